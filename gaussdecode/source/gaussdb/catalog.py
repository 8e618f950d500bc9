"""Read keys, modifiers and user types from the catalogue of a GaussDB; its stream does not send them.

Ordinary SQL that a server of the 9.2 family understands, over its own connection to the SQL port. Asked when a
relation version is first seen, never for a row. The answer describes the table as it is now, which may be newer
than the WAL being read.

A server that fails or takes too long raises `SourceError`: the stream of GaussDB carries
neither keys nor modifiers, so a table landed without them could not be followed, and the
session is tried again. A connection that was kept may have been closed in the meantime
(``session_timeout`` ends idle ones after ten minutes); then the question is asked once more
on a new one. After a failure the next questions fail at once for a while, so that an ill
catalogue costs one timeout and not one per table.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from gaussdecode.closing import Closing
from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.columns import Attribute, Reading
from gaussdecode.model.relation import Relation
from gaussdecode.protocol.gaussdb.commands import sql_literal
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.catalog import CatalogColumn, CatalogTable
from gaussdecode.source.gaussdb.connection import GaussConnection, connect

_STATEMENT_MS: Final = 3000
_ANSWER_SECONDS: Final = 5.0  # the server's own limit comes first
_REST_SECONDS: Final = 10.0  # after a failure; arbitrary
_MAX_DEPTH: Final = 32  # of domains over domains; arbitrary
_TOASTABLE: Final = frozenset("xem")  # external, extended, main: may be stored out of line
_DOMAIN: Final = "d"

TABLE: Final = """
SELECT c.oid, c.relkind, c.relreplident FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s"""
COLUMNS: Final = """
SELECT a.attname, a.attnum, a.attstorage, t.typlen,
pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atttypid, a.atttypmod
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
ATTRIBUTES: Final = """
SELECT a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped
FROM pg_catalog.pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 ORDER BY a.attnum"""
INDEXES: Final = """
SELECT i.* FROM pg_catalog.pg_index i
WHERE i.indrelid = %s AND (i.indisprimary OR i.indisreplident)"""
DEFAULTS: Final = "SELECT d.* FROM pg_catalog.pg_attrdef d WHERE d.adrelid = %s"
TYPES: Final = """
SELECT t.oid, n.nspname, t.typname, t.typtype, t.typbasetype, t.typtypmod, t.typelem, t.typcategory
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE t.oid IN (%s)"""

Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogType:
    """One type.

    Attributes:
        oid: pg_type.oid.
        schema: name.
        name: name of the type.
        kind: pg_type.typtype: ``b`` base, ``c`` composite, ``d`` domain, ``e`` enum, ...
        base_oid: base OID of a domain, the type at its bottom; else the type itself.
        base_modifier: base modifier of that type, -1 for none.
        element_oid: element OID of an array, what it holds; else 0.
        category: pg_type.typcategory; ``A`` for an array.
    """

    oid: int
    schema: str
    name: str
    kind: str
    base_oid: int
    base_modifier: int
    element_oid: int
    category: str


class GaussCatalog(Closing):
    """Looks tables and types up; opens its connection when first asked, and again when lost.

    Args:
        address: address of the SQL port; the role needs no privilege beyond logging in.
        clock: monotonic seconds.
    """

    def __init__(self, address: SourceAddress, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._connection: GaussConnection | None = None
        self._rest_until = float("-inf")
        self.failure: SourceError | None = None
        self.failure_count = 0

    def look_up(self, relation: Relation) -> CatalogTable:
        """The table of a relation, by its name: the stream carries no OIDs of tables."""
        schema, name = relation.namespace, relation.name
        return self.look_up_table(schema, name) or CatalogTable.missing(schema, name)

    def look_up_table(self, schema: str, name: str) -> CatalogTable | None:
        """Look a table up.

        Args:
            schema: unquoted name.
            name: name of the table, unquoted.

        Returns:
            It, or None when there is no such table any more.

        Raises:
            SourceError: the catalogue cannot be read now; it is tried again.
            SourceRefusedError: it refuses us.
        """
        return self._answered(lambda connection: read_table(connection, schema, name))

    def types(self, oids: Iterable[int]) -> dict[int, CatalogType]:
        """Look types up, with the types that domains and arrays lead to.

        Args:
            oids: OIDs of types; those that are not there are missing in the answer.

        Raises:
            SourceError: the catalogue cannot be read now; it is tried again.
            SourceRefusedError: it refuses us.
        """
        wanted = set(oids)
        return self._answered(lambda connection: read_types(connection, wanted))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answered(self, ask: Callable[[GaussConnection], Answer]) -> Answer:
        if self.failure is not None and self._clock() < self._rest_until:
            raise self.failure
        try:
            answer = self._ask(ask)
        except SourceError as error:
            self.close()
            cls = SourceError if error.retryable else SourceRefusedError
            self.failure = cls(f"reading the catalogue: {error.reason}", error.sqlstate)
            self.failure_count += 1
            self._rest_until = self._clock() + _REST_SECONDS
            raise self.failure from None
        self.failure = None
        return answer

    def _ask(self, ask: Callable[[GaussConnection], Answer]) -> Answer:
        if self._connection is not None:
            try:
                return ask(self._connection)
            except SourceError:
                self.close()  # it was kept, and may have been closed long ago
        self._connection = connect(self._address, is_replication=False)
        self._connection.timeout = _ANSWER_SECONDS
        self._connection.query(f"SET statement_timeout = {_STATEMENT_MS}")
        return ask(self._connection)


def read_table(connection: GaussConnection, schema: str, name: str) -> CatalogTable | None:
    """Look a table up, as the connection's transaction sees it; None when it is not there.

    Raises:
        SourceError: the server failed.
    """
    found = connection.query(TABLE % (sql_literal(schema), sql_literal(name)))
    if not found:
        return None
    oid, kind, identity = (value or "" for value in found[0])
    rows = connection.query(COLUMNS % int(oid))
    primary, replica = _keys(connection, int(oid))
    generated = {
        row["adnum"]
        for row in connection.query_table(DEFAULTS % int(oid))
        if row.get("adgencol") == "s"
    }
    names = {int(row[1] or 0): row[0] or "" for row in rows}
    columns = tuple(
        _column([value or "" for value in row], primary, is_generated=row[1] in generated)
        for row in rows
    )
    index = tuple(names[number] for number in replica if number in names)
    attributes = tuple(
        _attribute([value or "" for value in row], is_generated=row[0] in generated)
        for row in connection.query(ATTRIBUTES % int(oid))
    )
    reading = Reading(attributes, sends_generated=True)
    return CatalogTable(int(oid), schema, name, kind, identity, columns, index, reading)


def _keys(connection: GaussConnection, oid: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers of the columns of the primary key and of the identity's index."""
    primary: tuple[int, ...] = ()
    replica: tuple[int, ...] = ()
    for row in connection.query_table(INDEXES % oid):
        if not (row["indimmediate"] == row["indisvalid"] == "t"):
            continue  # one that is deferred, or still being made, identifies no row in the stream
        numbers = tuple(int(number) for number in (row["indkey"] or "").split())
        if row.get("indnkeyatts"):  # columns that are only included come last
            numbers = numbers[: int(row["indnkeyatts"] or 0)]
        if row["indisprimary"] == "t":
            primary = numbers
        if row["indisreplident"] == "t":
            replica = numbers
    return primary, replica


def _column(row: list[str], primary: tuple[int, ...], *, is_generated: bool) -> CatalogColumn:
    name, number, storage, length, type_text, is_not_null, type_oid, modifier = row
    return CatalogColumn(
        name=name,
        number=int(number),
        is_toastable=storage in _TOASTABLE and length == "-1",
        type_text=type_text,
        is_not_null=is_not_null == "t",
        is_generated=is_generated,
        key_position=primary.index(int(number)) if int(number) in primary else None,
        type_oid=int(type_oid),
        type_modifier=int(modifier),
    )


def _attribute(row: list[str], *, is_generated: bool) -> Attribute:
    number, name, type_oid, modifier, is_dropped = row
    return Attribute(
        number=int(number),
        name=name,
        type_oid=int(type_oid or 0),
        type_modifier=int(modifier),
        is_dropped=is_dropped == "t",
        is_generated=is_generated,
    )


# ---- types ---------------------------------------------------------------------------------


def read_types(connection: GaussConnection, wanted: set[int]) -> dict[int, CatalogType]:
    """Read types, then what they are made of, until nothing new is named.

    Raises:
        SourceError: the server failed.
    """
    found: dict[int, CatalogType] = {}
    for _ in range(_MAX_DEPTH):
        missing = sorted(wanted - found.keys())
        if not missing:
            break
        listed = ", ".join(str(oid) for oid in missing)
        rows = [_type(row) for row in connection.query(TYPES % listed)]
        found |= {row.oid: row for row in rows}
        wanted = {oid for row in rows for oid in (row.base_oid, row.element_oid) if oid}
    return {oid: _resolved(found, one) for oid, one in found.items()}


def _type(row: tuple[str | None, ...]) -> CatalogType:
    oid, schema, name, kind, base, modifier, element, category = (value or "" for value in row)
    is_domain = kind == _DOMAIN
    return CatalogType(
        oid=int(oid),
        schema=schema,
        name=name,
        kind=kind,
        base_oid=int(base) if is_domain else int(oid),
        base_modifier=int(modifier) if is_domain else -1,
        element_oid=int(element or 0) if category == "A" else 0,
        category=category,
    )


def _resolved(found: dict[int, CatalogType], one: CatalogType) -> CatalogType:
    """Follow a domain to the bottom; the lowest modifier that is given holds."""
    bottom, modifier = one, one.base_modifier
    for _ in range(_MAX_DEPTH):
        below = found.get(bottom.base_oid)
        if bottom.kind != _DOMAIN or below is None:
            break
        bottom = below
        modifier = modifier if modifier >= 0 else below.base_modifier
    if bottom is one:
        return one
    return dataclasses.replace(one, base_oid=bottom.oid, base_modifier=modifier)
