"""What a catalogue of PostgreSQL says of tables that a landing has, or will have, and nobody would expect.

Tables that landed and are not sent any more; columns whose text hangs on names of other objects.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gaussdecode.commands._doctor import NAMED_TABLES, Finding, quoted
from gaussdecode.land.names import SCHEMAS, table_directory
from gaussdecode.model.title import table_title
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


def catalog_findings(connection: Connection, config: Config) -> Iterator[Finding]:
    """Look.

    Args:
        connection: to the server.
        config: of one source.

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


def _not_sent(rows: list[tuple[str | None, ...]], config: Config) -> Iterator[Finding]:
    """Tables of the landing that exist, and that no publication has."""
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
            f"ALTER PUBLICATION {quoted(config.source.publication[0])} ADD TABLE {quoted(schema)}.{quoted(name)};"
            f"  -- then gaussdecode snapshot {config.path} --table {titles[0]!r}",
        )


def _has_landed(schemas: Path, pair: tuple[str, str]) -> bool:
    return (schemas / table_directory(*pair)).is_dir()
