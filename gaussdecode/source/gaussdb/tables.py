"""List the tables of a GaussDB database that the stream can carry, by its catalogue.

Tables stored by column are in no stream. Their internal tables (``cstore.pg_cudesc_N``, ``cstore.pg_delta_N``)
look like users' tables, and are left out.
"""

import dataclasses
from collections.abc import Iterable
from typing import Final

from gaussdecode.source.coverage import NAMED, Coverage
from gaussdecode.source.gaussdb.connection import GaussConnection
from gaussdecode.source.relations import WhiteList

FIRST_USER_OID: Final = 16384  # below it stands what the server itself made
LOGGED: Final = (
    f"c.relkind = 'r' AND c.relpersistence = 'p' AND c.oid >= {FIRST_USER_OID} "
    "AND n.nspname <> 'cstore'"
)
"""Condition on pg_class c and pg_namespace n: tables of users that are written to the WAL."""

TABLES: Final = f"""
SELECT c.oid, n.nspname, c.relname, c.relreplident, c.reloptions,
EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
AND i.indimmediate AND i.indisvalid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE {LOGGED} ORDER BY 2, 3"""  # noqa: S608 - constants
UNREADABLE: Final = f"""
SELECT n.nspname, c.relname, c.reloptions
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE {LOGGED} AND NOT (pg_catalog.has_schema_privilege(n.oid, 'USAGE')
AND pg_catalog.has_table_privilege(c.oid, 'SELECT')) ORDER BY 1, 2"""  # noqa: S608 - constants
BY_INTERVAL: Final = f"""
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE {LOGGED} AND c.oid IN (SELECT p.parentid FROM pg_catalog.pg_partition p
WHERE p.parttype = 'r' AND p.partstrategy = 'i') ORDER BY 1, 2"""  # noqa: S608 - constants
ALL_COLUMNS: Final = f"""
SELECT n.nspname, c.relname, a.attname, a.atttypid, a.atttypmod,
pg_catalog.format_type(a.atttypid, a.atttypmod), b.oid, bn.nspname, b.typname,
EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND a.attnum = ANY (i.indkey)
    AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false ELSE i.indisprimary END)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
JOIN pg_catalog.pg_namespace bn ON bn.oid = b.typnamespace
WHERE {LOGGED}
ORDER BY 1, 2, a.attnum
"""  # noqa: S608 - constants
ROW_STORE: Final = ("", "row")
_TRUE: Final = "t"


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTable:
    """One table.

    Attributes:
        oid: pg_class.oid.
        schema: name.
        name: name of the table.
        identity: pg_class.relreplident.
        has_key: it has a primary key.
        is_by_row: its rows are in the stream.
        is_ustore: so are whole old rows, where it has no key.
    """

    oid: int
    schema: str
    name: str
    identity: str
    has_key: bool
    is_by_row: bool
    is_ustore: bool = False


def read_tables(connection: GaussConnection, white_list: WhiteList) -> list[StoredTable]:
    """Read the tables that are wanted, whether their rows are in the stream or not.

    Raises:
        SourceError: the server failed.
    """
    return [
        StoredTable(
            int(oid or 0),
            schema or "",
            name or "",
            identity or "",
            has_key == _TRUE,
            storage_option(options, "orientation") in ROW_STORE,
            storage_option(options, "storage_type") == "ustore",
        )
        for oid, schema, name, identity, options, has_key in connection.query(TABLES)
        if white_list.allows(schema or "", name or "")
    ]


def read_unreadable(connection: GaussConnection) -> tuple[tuple[str, str], ...]:
    """Schema and name of the tables in the stream whose rows our role may not read.

    Raises:
        SourceError: the server failed.
    """
    return tuple(
        (schema or "", name or "")
        for schema, name, options in connection.query(UNREADABLE)
        if storage_option(options, "orientation") in ROW_STORE
    )


def read_by_interval(connection: GaussConnection) -> tuple[tuple[str, str], ...]:
    """Schema and name of the tables whose partitions the server makes as rows come that need them.

    Raises:
        SourceError: the server failed.
    """
    return tuple((schema or "", name or "") for schema, name in connection.query(BY_INTERVAL))


def unsent(tables: Iterable[StoredTable]) -> Coverage:
    """The tables of which the server sends nothing, for what is said of them."""
    names = tuple(f"{table.schema}.{table.name}" for table in tables if not table.is_by_row)
    return Coverage(unsent=names[:NAMED], unsent_count=len(names))


def storage_option(options: str | None, name: str) -> str:
    """One of a table's storage options, ``{orientation=row,compression=no}``."""
    for item in (options or "").strip("{}").split(","):
        key, _, value = item.strip('"').partition("=")
        if key == name:
            return value.lower()
    return ""
