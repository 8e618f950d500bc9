"""Check PostgreSQL's catalogue for tables and columns with surprising properties.

These are landed tables that are no longer published, columns whose text depends on names of other
objects, partitions with another replica identity than the table that they are sent as, and row-level
security.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gaussdecode.land.names import SCHEMAS, table_directory
from gaussdecode.model.sqlnames import quoted_name
from gaussdecode.model.title import table_title
from gaussdecode.operations.check.doctor import NAMED_TABLES, Finding
from gaussdecode.settings.sections import Config
from gaussdecode.source.coverage import listing
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.source.relations import white_list
from gaussdecode.wire.encoding import spelled_name

_NOT_SENT: Final = """
    SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.oid >= 16384
    AND c.oid NOT IN (SELECT t.oid FROM ({tables}) t) ORDER BY 1, 2
"""
_NAMING: Final = """
    SELECT n.nspname, c.relname, a.attname, pg_catalog.format_type(a.atttypid, NULL)
    FROM ({tables}) t JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type y ON y.oid = a.atttypid LEFT JOIN pg_catalog.pg_type e ON e.oid = y.typelem
    WHERE coalesce(e.oid, y.oid) < 16384 AND coalesce(e.typname, y.typname) IN ('regclass', 'regproc',
        'regprocedure', 'regoper', 'regoperator', 'regtype', 'regrole', 'regnamespace', 'regconfig',
        'regdictionary', 'regcollation', 'aclitem')
    ORDER BY 1, 2, 3
"""

# A published table, and what is below it: a partition is sent as the table above it, or read by itself.
_TREE: Final = """
    WITH RECURSIVE tree AS (
        SELECT DISTINCT t.oid AS top, t.oid FROM ({tables}) t
        UNION SELECT t.top, i.inhrelid FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid AND c.relkind = 'p'
            JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid)
"""
_UNLIKE: Final = """
    {tree}, identity AS (
        SELECT t.top, c.oid, c.relkind, n.nspname, c.relname, CASE c.relreplident WHEN 'f' THEN '*' ELSE
            coalesce((SELECT string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attname)
                FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
                    ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
                WHERE i.indrelid = c.oid AND ((c.relreplident = 'd' AND i.indisprimary)
                    OR (c.relreplident = 'i' AND i.indisreplident))), '') END AS columns
        FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace)
    SELECT r.nspname, r.relname, l.nspname, l.relname FROM identity l
    JOIN identity r ON r.oid = l.top AND r.top = l.top
    WHERE l.oid <> l.top AND l.relkind = 'r' AND l.columns <> r.columns
        AND (l.columns <> '*' OR r.columns = '')  -- of a whole old row the key is taken
    ORDER BY 1, 2, 3, 4
"""
_HIDDEN: Final = """
    {tree}
    SELECT DISTINCT n.nspname, c.relname, current_user FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND pg_catalog.row_security_active(c.oid) ORDER BY 1, 2
"""


def catalog_findings(connection: Connection, config: Config) -> Iterator[Finding]:
    """Run the checks.

    Args:
        connection: connection to the server.
        config: configuration of one source.

    Raises:
        SourceError: the server failed.
    """
    tables = tables_of(config.source.publication, connection.server_version)
    listed = white_list(config.decoding)
    yield from _not_sent(connection.query(_NOT_SENT.format(tables=tables)), config)
    naming = [
        f"{table_title(spelled_name(schema or ''), spelled_name(name or ''))}.{column} ({of})"
        for schema, name, column, of in connection.query(_NAMING.format(tables=tables))
        if listed.allows(spelled_name(schema or ""), spelled_name(name or ""))
    ]
    if naming:
        yield Finding(
            f"columns hold numbers that are shown as names: {listing(naming[:NAMED_TABLES], len(naming))}",
            "when what they name is renamed, stored rows look different, and nothing in the stream says so",
            "keep names as text, or numbers as oid; or read these tables again after a rename",
        )
    tree = _TREE.format(tables=tables)
    unlike = [
        row
        for row in _spelled(connection.query(_UNLIKE.format(tree=tree)))
        if listed.allows(row[0], row[1])
    ]
    yield from _unlike_partitions(unlike)
    if config.reads_rows:
        hidden = _spelled(connection.query(_HIDDEN.format(tree=tree)))
        yield from _hidden_rows([row for row in hidden if listed.allows(row[0], row[1])])


def _spelled(rows: list[tuple[str | None, ...]]) -> list[list[str]]:
    return [[spelled_name(value or "") for value in row] for row in rows]


def _unlike_partitions(rows: list[list[str]]) -> Iterator[Finding]:
    """Partitions whose replica identity differs from that of the table they are sent as."""
    if not rows:
        return
    titles = [f"{table_title(*row[2:])} of {table_title(*row[:2])}" for row in rows]
    yield Finding(
        "partitions have another replica identity than the table they are sent as: "
        f"{listing(titles[:NAMED_TABLES], len(titles))}",
        "the server writes old rows by the partition's and sends them by the table's: updates and deletes come without the columns that identify the row, or with NULL where there was a value; or the server refuses them",
        "ALTER TABLE ... REPLICA IDENTITY ...;  -- the same for the table and all of its partitions; a primary "
        "key of the table is one of its partitions too",
    )


def _hidden_rows(rows: list[list[str]]) -> Iterator[Finding]:
    """Tables whose rows the role can read only in part."""
    if not rows:
        return
    titles = [table_title(*row[:2]) for row in rows]
    role = quoted_name(rows[0][2])
    yield Finding(
        f"row-level security keeps rows from role {rows[0][2]}: {listing(titles[:NAMED_TABLES], len(titles))}",
        "existing rows of these tables are not read: a snapshot is refused, for it would have some of them only",
        f"ALTER ROLE {role} BYPASSRLS;  -- or land without existing rows: snapshot.mode: none",
    )


def _not_sent(rows: list[tuple[str | None, ...]], config: Config) -> Iterator[Finding]:
    """Tables of the landing that exist, but are in no publication."""
    landed = config.landing.root / SCHEMAS
    found = []
    for schema, name in rows:
        pair = spelled_name(schema or ""), spelled_name(name or "")
        if white_list(config.decoding).allows(*pair) and _has_landed(landed, pair):
            found.append(pair)
    if found:
        titles = [table_title(*pair) for pair in found]
        schema, name = found[0]
        yield Finding(
            f"tables have landed that no publication has now: {listing(titles[:NAMED_TABLES], len(titles))}",
            "their changes do not come any more: a table that is dropped and made anew leaves a publication "
            "that lists tables",
            f"ALTER PUBLICATION {quoted_name(config.source.publication[0])} ADD TABLE {quoted_name(schema)}.{quoted_name(name)};"
            f"  -- then gaussdecode snapshot {config.path} --table {titles[0]!r}",
        )


def _has_landed(schemas: Path, pair: tuple[str, str]) -> bool:
    return (schemas / table_directory(*pair)).is_dir()
