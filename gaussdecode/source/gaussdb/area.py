"""Find the tables that a transaction may have lost rows of, by reading its part of the WAL once more.

The server leaves out rows that follow DDL in their transaction. It names each transaction with DDL,
also the many that lost nothing. `pg_logical_get_area_changes` (from 3.0.0 on) prints the content of a stretch of
the WAL, without a slot, and leaves nothing out for DDL. According to the server's source:

* it prints every change of the stretch, of all transactions, also of those that were rolled back, and
  does not say of which each is. So a table that it names may have lost rows; one that it does not name
  has not, and no row can be taken from here to its place;
* it reads at most ten WAL files, and ends without an error where WAL is missing: only the commit record
  of the transaction itself proves that all was read;
* a table is found by the file that it has now. One that does not have its first file any more, and whose
  entry in pg_class or pg_partition is of this time or later, may have lost rows;
* rows that COPY wrote compressed are left out: a table with compression may have lost rows.

What GaussDB's function leaves out is not known: only an openGauss is asked.
"""

import json
import time
from typing import Final

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.title import split_title
from gaussdecode.protocol.gaussdb.notices import LostChanges
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.export import CANCELLED
from gaussdecode.source.gaussdb.connection import GaussConnection, connect
from gaussdecode.source.gaussdb.tables import LOGGED, ROW_STORE, storage_option

STATEMENT_SECONDS: Final = 10.0  # ten WAL files take a few; arbitrary
_REST_SECONDS: Final = 600.0  # after a refusal; arbitrary
_PAUSE_SECONDS: Final = 60.0  # after a failure, which may be one of time; arbitrary

_AREA: Final = """
SELECT DISTINCT a.xid::text = '{xid}' AND a.data LIKE 'COMMIT%',
substring(a.data, '^\\{{"table_name":("(?:[^"\\\\]|\\\\.)*")')
FROM pg_catalog.pg_logical_get_area_changes('{first}', '{upto}', NULL, 'mppdb_decoding', NULL) a"""
_REPLACED: Final = f"""
SELECT n.nspname, c.relname, c.reloptions, {{is_other}} FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE {LOGGED} AND (c.reloptions::text LIKE '%compress%' OR {{is_other}})"""  # noqa: S608 - constants
_IS_OTHER: Final = """(c.relfilenode <> c.oid AND c.xmin::text::int8 > {xid} OR EXISTS (
SELECT 1 FROM pg_catalog.pg_partition p WHERE p.relfilenode <> p.oid AND p.xmin::text::int8 > {xid}
AND (p.parentid = c.oid OR p.parentid IN
(SELECT q.oid FROM pg_catalog.pg_partition q WHERE q.parentid = c.oid))))"""
_EARLIER: Final = 1_000_000  # transactions that one may be open beside; arbitrary

Table = tuple[str, str]


class Area:
    """Asks a server; opens a connection when first asked, and another when it is lost.

    Args:
        address: address of the SQL port; the role needs REPLICATION, as for the stream.
    """

    def __init__(self, address: SourceAddress) -> None:
        self._address = address
        self._connection: GaussConnection | None = None
        self._rest_until = float("-inf")
        self.failure = ""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def lost(self, of: LostChanges) -> frozenset[Table] | None:
        """Tell which tables may lack rows of a transaction.

        Args:
            of: transaction as the server named it; it has committed.

        Returns:
            Schema and name of each; empty where it lost nothing; None where nobody can tell, and why is
            in `failure`.
        """
        if time.monotonic() < self._rest_until:
            return None
        try:
            return self._ask(of)
        except ValueError:
            self.failure = "the answer names a table in a way that cannot be read"
            return None
        except SourceError as error:
            self.close()
            self.failure = error.reason
            is_refused = isinstance(error, SourceRefusedError)
            rest = _REST_SECONDS if is_refused else _PAUSE_SECONDS
            self._rest_until = time.monotonic() + rest
            return None

    def _ask(self, of: LostChanges) -> frozenset[Table] | None:
        if self._connection is not None:
            try:
                return self._read(of)
            except SourceError as error:
                if isinstance(error, SourceRefusedError) or error.sqlstate == CANCELLED:
                    raise  # a new connection would get the same answer
                self.close()  # it was kept, and session_timeout ends idle ones after ten minutes
        return self._read(of)

    def _read(self, of: LostChanges) -> frozenset[Table] | None:
        if self._connection is None:
            self._connection = connect(self._address, is_replication=False)
            self._connection.timeout = STATEMENT_SECONDS + 5
            limit = int(STATEMENT_SECONDS * 1000)
            self._connection.query(f"SET statement_timeout = {limit}")
        profile = self._connection.profile
        if not profile.reads_areas:
            raise SourceRefusedError(f"{profile.name} may leave out parts of a stretch of its WAL")
        upto = type(of.final_lsn)(of.final_lsn + 1)  # else it ends before the commit record
        rows = self._connection.query(_AREA.format(xid=of.xid, first=of.skip_start_lsn, upto=upto))
        if not any(is_end == "t" for is_end, _ in rows):
            self.failure = "the WAL of the transaction was not read to its end"
            return None
        named = {split_title(json.loads(title)) for _, title in rows if title is not None}
        is_other = _IS_OTHER.format(xid=of.xid - _EARLIER)
        doubtful = {
            (schema or "", name or "")
            for schema, name, options, is_replaced in self._connection.query(
                _REPLACED.format(is_other=is_other)
            )
            if storage_option(options, "orientation") in ROW_STORE
            and (is_replaced == "t" or storage_option(options, "compression") not in ("", "no"))
        }
        return frozenset(named | doubtful)
