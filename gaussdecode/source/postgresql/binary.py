"""Which values may be asked for in binary: those whose text is known without the server."""

from collections.abc import Sequence
from typing import Final

from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.wire.encoding import spelled_name
from gaussdecode.wire.formats import Formats, formats_of

_TYPES: Final = """
    SELECT t.oid, s.proname, coalesce(es.proname, '')
    FROM pg_catalog.pg_type t
    JOIN pg_catalog.pg_proc s ON s.oid = t.typsend
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
    LEFT JOIN pg_catalog.pg_proc es
        ON es.oid = e.typsend AND es.pronamespace = 'pg_catalog'::regnamespace
    WHERE s.pronamespace = 'pg_catalog'::regnamespace
"""
_COLUMNS: Final = """
    SELECT n.nspname, c.relname, a.attname, a.atttypid
    FROM (SELECT DISTINCT oid FROM ({tables}) s) t
    JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE a.atttypid NOT IN ({known})
    ORDER BY 1, 2, a.attnum
"""


def read_formats(connection: Connection) -> Formats:
    """How the values of each type are sent, where their text is known here.

    Raises:
        SourceError: the server failed.
    """
    rows = connection.query(_TYPES)
    return formats_of((int(oid or 0), sender or "", of or "") for oid, sender, of in rows)


def unknown_columns(
    connection: Connection, publications: Sequence[str], formats: Formats
) -> list[str]:
    """Published columns of other types, as ``schema.table.column``.

    Raises:
        SourceError: the server failed.
    """
    tables = tables_of(publications, connection.server_version)
    known = ", ".join(map(str, sorted(formats)))
    rows = connection.query(_COLUMNS.format(tables=tables, known=known))
    return [".".join(spelled_name(part or "") for part in row[:3]) for row in rows]
