"""What the wire does not say of a table, from the catalogue, on a connection of its own.

Asked by the main process when a relation version is first seen; never on the way of a row.
The answer describes the table as it is now, which may be newer than the WAL being read: it
refines a schema. A failure, and a server that takes too long, gives ``None`` and is remembered
for a while, so that an ill catalogue costs one timeout and not one per table.

It decides one thing: under REPLICA IDENTITY FULL nothing else tells the key. There the
failure is an error, after which the session is tried again, because a table whose key
comes and goes with the server's health could not be followed by any reader.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Final, Self

from gaussdecode.encoding import spelled_name
from gaussdecode.errors import GaussDecodeError, SourceError
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.options import SourceKind
from gaussdecode.settings import Config
from gaussdecode.source.postgresql import Connection, Row, SourceAddress, connect
from gaussdecode.source.settings import source_address
from gaussdecode.source.sqlstate import redact

_CONNECT_SECONDS: Final = 3
_STATEMENT_MS: Final = 3000
_REST_SECONDS: Final = 30.0  # after a failure; arbitrary
_TOASTABLE: Final = frozenset("xem")  # external, extended, main: may be stored out of line

_TABLE: Final = """
    SELECT c.relkind::text, c.relreplident::text, n.nspname, c.relname
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = {oid}
"""
_COLUMNS: Final = """
    SELECT a.attname, a.attnum, a.attstorage::text, t.typlen,
        pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text,
        array_position(i.indkey::int2[], a.attnum)
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogColumn:
    """One column, as the catalogue has it now.

    Attributes:
        name: of the column.
        number: attnum.
        is_toastable: its values may be stored out of line, and then not be sent.
        type_text: the type with its modifier, ``numeric(10,2)``.
        is_not_null: declared so.
        is_generated: stored generated.
        key_position: place in the primary key from 0, or None.
        type_oid: of the type; 0 where nobody asked.
        type_modifier: of the column, -1 for none.
    """

    name: str
    number: int
    is_toastable: bool
    type_text: str
    is_not_null: bool
    is_generated: bool
    key_position: int | None
    type_oid: int = 0
    type_modifier: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogTable:
    """One table, as the catalogue has it now.

    Attributes:
        oid: pg_class.oid.
        schema: name.
        name: of the table.
        kind: pg_class.relkind.
        identity: pg_class.relreplident.
        columns: by number.
        identity_index: columns of the index under REPLICA IDENTITY USING INDEX, where known.
    """

    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    columns: tuple[CatalogColumn, ...]
    identity_index: tuple[str, ...] = ()

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of its columns in key order; empty without a primary key."""
        found = [(c.key_position, c.name) for c in self.columns if c.key_position is not None]
        return tuple(name for _, name in sorted(found))

    def column(self, name: str) -> CatalogColumn | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)


class Catalog:
    """Looks tables up; opens its connection when first asked, and again after a failure.

    Args:
        config: says where the server is; a capture has none, and nothing is known then.
            The role needs no privilege beyond logging in.
        clock: monotonic seconds.

    Raises:
        ConfigError: the password file cannot be used.
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        is_server = config.source.kind is SourceKind.POSTGRESQL
        self._address = source_address(config) if is_server else None
        self._clock = clock
        self._session: Connection | None = None
        self._rest_until = float("-inf")
        self.failure: str | None = None
        self.failure_count = 0

    def look_up(self, relation: Relation) -> CatalogTable | None:
        """Look a table of the stream up.

        Returns:
            It, or None: there is no such table any more, or the catalogue cannot be read
            now (then `failure` says why).

        Raises:
            SourceError: it cannot be read, and only it knows the table's key.
        """
        if self._address is None:
            return None
        is_needed = relation.identity is ReplicaIdentity.FULL
        if self._clock() < self._rest_until and not is_needed:
            return None
        try:
            found = self._look_up(self._address, relation.oid)
        except (OSError, GaussDecodeError) as error:
            self.close()
            self.failure = redact(str(error), self._address.secret)
            self.failure_count += 1
            self._rest_until = self._clock() + _REST_SECONDS
            if is_needed:
                raise SourceError(
                    f"reading the catalogue: {self.failure}; table {relation.namespace}."
                    f"{relation.name} has REPLICA IDENTITY FULL, so its key is only known there"
                ) from None
            return None
        self.failure = None
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _look_up(self, address: SourceAddress, oid: int) -> CatalogTable | None:
        session = self._connected(address)
        rows = session.query(_TABLE.format(oid=oid))
        if not rows:
            return None
        kind, identity, schema, name = (spelled_name(value or "") for value in rows[0])
        columns = tuple(_column(row) for row in session.query(_COLUMNS.format(oid=oid)))
        return CatalogTable(oid, schema, name, kind, identity, columns)

    def _connected(self, address: SourceAddress) -> Connection:
        if self._session is None:
            self._session = connect(
                address,
                is_replication=False,
                connect_timeout=str(_CONNECT_SECONDS),
                tcp_user_timeout=str(_STATEMENT_MS),
            )
            self._session.query(f"SET statement_timeout = {_STATEMENT_MS}")
        return self._session


def _column(row: Row) -> CatalogColumn:
    name, number, storage, length, formatted, is_not_null, generated, position = row
    return CatalogColumn(
        name=spelled_name(name or ""),
        number=int(number or 0),
        is_toastable=storage in _TOASTABLE and length == "-1",
        type_text=spelled_name(formatted or ""),
        is_not_null=is_not_null == "t",
        is_generated=generated == "s",
        key_position=None if position is None else int(position),
    )
