"""Read what the wire does not say of a table from the catalogue of a PostgreSQL.

The main process asks when the stream describes a table, never for a row. The answer describes the table as it
is now, which may be newer than the WAL being read. `gaussdecode.model.columns` concludes from it what held at
that WAL. The answer has all attributes that ever were, and those that are unchanged since before anything that
the slot still has to send (the slot's ``catalog_xmin`` is newer than the transaction that wrote them).

Columns without identity stop their readers. So a failure, and a server that takes too
long, is asked once more on a new connection, and is then an error, after which the session is
tried again. After two minutes of those it is ``None``, remembered for a while, so that an ill
catalogue does not hold up the landing for ever; but under REPLICA IDENTITY FULL, where nothing
else tells the key, it stays an error.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Final, TypeVar

from gaussdecode.closing import Closing
from gaussdecode.errors import GaussDecodeError, SourceError
from gaussdecode.model.columns import Attribute, Reading
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.catalog import CatalogColumn, CatalogTable
from gaussdecode.source.postgresql.connection import Connection, Row, connect
from gaussdecode.source.quoting import literal
from gaussdecode.source.sqlstate import redact
from gaussdecode.wire.encoding import readable, spelled_name

Answer = TypeVar("Answer")
_CONNECT_SECONDS: Final = 3
_STATEMENT_SECONDS: Final = 3.0
_LATE: Final = (
    7.0  # seconds that an answer may be late; the server's own bound comes first where it answers
)
_REST_SECONDS: Final = 30.0  # after a failure; arbitrary
_PATIENCE_SECONDS: Final = 120.0  # of failures that end sessions; arbitrary
_ROOT: Final = "p"
_HAS_LISTS: Final = 150000  # publications of columns
_SENDS_GENERATED: Final = 180000
_TOASTABLE: Final = frozenset("xem")  # external, extended, main: may be stored out of line

_TABLE: Final = """
    SELECT c.relkind::text, c.relreplident::text, n.nspname, c.relname
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = {oid}
"""
_COLUMNS: Final = """
    SELECT a.attname, a.attnum, a.attstorage::text, t.typlen,
        pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text,
        array_position(i.indkey::int2[], a.attnum), a.atttypid, a.atttypmod, a.attisdropped,
        coalesce(pg_catalog.age(a.xmin) > (SELECT pg_catalog.age(s.catalog_xmin)
            FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = {slot}), false),
        CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END
    FROM pg_catalog.pg_attribute a
    LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = {oid} AND a.attnum > 0
    ORDER BY a.attnum
"""
# Of a partitioned table the partitions have them; NULL where they differ.
_CONSTANTS: Final = """
    WITH RECURSIVE tree AS (
        SELECT {oid}::oid AS oid
        UNION ALL
        SELECT i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid)
    SELECT a.attname, CASE WHEN count(DISTINCT a.attmissingval::text) = 1
        THEN min((a.attmissingval::text::text[])[1]) END
    FROM tree t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND a.atthasmissing
    GROUP BY a.attname
"""
# Whether a list of columns may have held at a position that the slot still has to send; and
# whether generated columns may have been sent there. A publication that changed since may.
_PUBLISHED: Final = """
    WITH slot AS (SELECT coalesce((SELECT pg_catalog.age(s.catalog_xmin)
            FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = {slot}), 2147483647) AS age),
    tree AS (SELECT c.oid, c.relnamespace FROM pg_catalog.pg_class c WHERE c.oid = {oid}
        OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors({oid}::oid::regclass))),
    pub AS (SELECT p.oid, p.puballtables, pg_catalog.to_jsonb(p) ->> 'pubgencols' AS generated,
        pg_catalog.age(p.xmin) > slot.age AS settled
        FROM pg_catalog.pg_publication p, slot WHERE p.pubname IN ({names})),
    named AS (SELECT r.prattrs IS NULL AS whole, pg_catalog.age(r.xmin) > slot.age AS settled
        FROM pg_catalog.pg_publication_rel r JOIN pub ON pub.oid = r.prpubid
        JOIN tree ON tree.oid = r.prrelid, slot
        UNION ALL
        SELECT true, pg_catalog.age(n.xmin) > slot.age
        FROM pg_catalog.pg_publication_namespace n JOIN pub ON pub.oid = n.pnpubid
        JOIN tree ON tree.relnamespace = n.pnnspid, slot
        UNION ALL
        SELECT true, settled FROM pub WHERE puballtables)
    SELECT NOT coalesce((SELECT bool_and(whole AND settled) FROM named), false)
            OR NOT coalesce((SELECT bool_and(settled) FROM pub), false),
        EXISTS (SELECT FROM pub WHERE generated <> 'n' OR NOT settled)
"""


class Catalog(Closing):
    """Looks tables up; opens its connection when first asked, and again after a failure.

    Args:
        config: says where the server is; a capture has none, and nothing is known then.
            The role needs no privilege beyond logging in.
        clock: monotonic seconds.
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        is_server = config.source.kind is SourceKind.POSTGRESQL
        self._address = source_address(config) if is_server else None
        self._slot = config.slot
        self._publications = list(config.source.publication)
        self._clock = clock
        self._session: Connection | None = None
        self._seconds = 0.0  # that a statement of the session may take
        self._failing_since: float | None = None
        self._rest_until = float("-inf")
        self._constants: dict[int, tuple[tuple[Row, ...], dict[str, str]]] = {}  # by OID
        self.failure: str | None = None
        self.failure_count = 0

    def look_up(self, relation: Relation) -> CatalogTable | None:
        """Look a table of the stream up.

        Returns:
            It, or `CatalogTable.missing`: there is no such table any more. None where the catalogue
            has failed for a while (then `failure` says why), or there is none.

        Raises:
            SourceError: it cannot be read now, or only it knows the table's key.
        """
        if self._address is None:
            return None
        is_needed = relation.identity is ReplicaIdentity.FULL
        if self._clock() < self._rest_until and not is_needed:
            return None
        try:
            found = self.ask(
                lambda session: self._look_up(session, relation.oid), _STATEMENT_SECONDS
            )
            if found is None:
                found = CatalogTable.missing(relation.namespace, relation.name)
        except (OSError, GaussDecodeError) as error:
            since = self._note_failure(redact(str(error), self._address.secret))
            table = f"table {relation.namespace}.{relation.name}"
            if is_needed:
                raise SourceError(
                    f"reading the catalogue: {self.failure}; {table} has REPLICA IDENTITY FULL, so only the "
                    "catalogue has its key"
                ) from None
            if self._clock() - since < _PATIENCE_SECONDS:
                raise SourceError(
                    f"reading the catalogue: {self.failure}; only the catalogue has the columns of {table}"
                ) from None
            self._rest_until = self._clock() + _REST_SECONDS
            return None
        self.failure = None
        self._failing_since = None
        return found

    def _note_failure(self, failure: str) -> float:
        """Remember a failure; gives when the first of them in a row was."""
        self.failure = failure
        self.failure_count += 1
        if self._failing_since is None:
            self._failing_since = self._clock()
        return self._failing_since

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def ask(self, question: Callable[[Connection], Answer], seconds: float) -> Answer:
        """Ask something over the connection, which is opened when there is none.

        A connection that was kept may have been closed long ago: then once more on a new one.

        Args:
            question: asks.
            seconds: seconds that each of its statements may take.

        Raises:
            SourceError: the server failed, or there is none.
        """
        if self._address is None:
            raise SourceError("a recording has no catalogue")
        if self._session is not None:
            try:
                return self._ask(self._address, question, seconds)
            except (OSError, GaussDecodeError):
                self.close()
        try:
            return self._ask(self._address, question, seconds)
        except BaseException:
            self.close()
            raise

    def _ask(
        self, address: SourceAddress, question: Callable[[Connection], Answer], seconds: float
    ) -> Answer:
        session = self._connected(address)
        if self._seconds != seconds:
            session.query(f"SET statement_timeout = {int(seconds * 1000)}")
            session.patience = seconds + _LATE
            self._seconds = seconds
        return question(session)

    def _look_up(self, session: Connection, oid: int) -> CatalogTable | None:
        rows = session.query(_TABLE.format(oid=oid))
        if not rows:
            return None
        kind, identity, schema, name = (spelled_name(value or "") for value in rows[0])
        slot = literal(self._slot)
        found = session.query(_COLUMNS.format(slot=slot, oid=oid))
        may_hide = sends_generated = False
        if session.server_version >= _HAS_LISTS:
            named = ", ".join(literal(name) for name in self._publications) or "NULL"
            ((hides, sends),) = session.query(_PUBLISHED.format(slot=slot, oid=oid, names=named))
            may_hide, sends_generated = hides == "t", sends == "t"
        reading = Reading(
            tuple(_attribute(row) for row in found),
            may_hide=may_hide,
            sends_generated=session.server_version >= _SENDS_GENERATED
            and (sends_generated or may_hide),
        )
        columns = tuple(_column(row) for row in found if row[_IS_DROPPED] != "t")
        if kind == _ROOT:
            constants = self._constants_of(session, oid, tuple(row[:_IS_SETTLED] for row in found))
            columns = tuple(
                dataclasses.replace(column, constant=constants.get(column.name))
                for column in columns
            )
        return CatalogTable(oid, schema, name, kind, identity, columns, reading=reading)

    def _constants_of(
        self, session: Connection, oid: int, columns: tuple[Row, ...]
    ) -> dict[str, str]:
        """Constants of a partitioned table's columns, by name.

        The server describes such a table again for each partition that has rows, and to look through thousands
        of them each time takes minutes. A column that is there keeps its constant: nothing is asked again before
        the columns change.
        """
        before, constants = self._constants.get(oid, ((), {}))
        if before != columns:
            rows = session.query(_CONSTANTS.format(oid=oid))
            constants = {
                spelled_name(name or ""): readable(text) for name, text in rows if text is not None
            }
            self._constants[oid] = columns, constants
        return constants

    def _connected(self, address: SourceAddress) -> Connection:
        if self._session is None:
            self._session = connect(
                address,
                is_replication=False,
                patience=_STATEMENT_SECONDS + _LATE,
                connect_timeout=str(_CONNECT_SECONDS),
                tcp_user_timeout=str(int(_STATEMENT_SECONDS * 1000)),
            )
            self._seconds = 0.0
            self._constants.clear()  # it may be another server by now
        return self._session


_IS_DROPPED: Final = 10  # of _COLUMNS
_IS_SETTLED: Final = 11  # likewise


def _attribute(row: Row) -> Attribute:
    name, number, *_, generated, _, type_oid, modifier, is_dropped, is_settled, _ = row
    return Attribute(
        number=int(number or 0),
        name=spelled_name(name or ""),
        type_oid=int(type_oid or 0),
        type_modifier=int(modifier or 0),
        is_dropped=is_dropped == "t",
        is_generated=generated != "",
        is_settled=is_settled == "t",
    )


def _column(row: Row) -> CatalogColumn:
    name, number, storage, length, formatted, is_not_null, generated, position = row[:8]
    return CatalogColumn(
        name=spelled_name(name or ""),
        number=int(number or 0),
        is_toastable=storage in _TOASTABLE and length == "-1",
        type_text=spelled_name(formatted or ""),
        is_not_null=is_not_null == "t",
        is_generated=generated == "s",
        key_position=None if position is None else int(position),
        type_oid=int(row[8] or 0),
        type_modifier=int(row[9] or 0),
        constant=None if row[12] is None else readable(row[12]),
    )
