"""Choose the values that may be asked for in binary: those whose text is known without the server."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.wire.encoding import UTF8, spelled_name
from gaussdecode.wire.formats import Formats, SendFormat, TypeFacts, formats_of

# Functions of the server itself are of language 12, internal, also where an extension names them.
# The rows of tables are types too, and many; as columns they are rare.
_TYPES: Final = """
    SELECT t.oid, coalesce(s.prosrc, ''), coalesce(o.prosrc, ''), t.typbasetype, t.typelem,
        t.typdelim, coalesce(r.rngsubtype, m.rngtypid, 0),
        coalesce((SELECT string_agg(a.atttypid::text, ' ' ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '')
    FROM pg_catalog.pg_type t
    LEFT JOIN pg_catalog.pg_proc s ON s.oid = t.typsend AND s.prolang = 12
    LEFT JOIN pg_catalog.pg_proc o ON o.oid = t.typoutput AND o.prolang = 12
    LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid
    LEFT JOIN pg_catalog.pg_range m ON m.rngmultitypid = t.oid
    WHERE t.typtype <> 'c'
        OR EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid AND c.relkind = 'c')
"""
_VERSION: Final = "SELECT pg_catalog.version()"
_COLUMNS: Final = """
    (SELECT n.nspname AS schema, c.relname AS relation, a.attname AS name, a.attnum, a.atttypid AS type
    FROM (SELECT DISTINCT oid FROM ({tables}) s) t
    JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
    AS columns
"""
_OTHERS: Final = """
    SELECT schema, relation, name FROM {columns} WHERE type NOT IN ({types}) ORDER BY 1, 2, attnum
"""
# False of a publication that has no tables yet.
_ALL_OF: Final = "SELECT coalesce(bool_and(type IN ({types})), false) FROM {columns}"
_AS_TEXT: Final = frozenset({SendFormat.TEXT, SendFormat.VERSIONED})
# What is put into quotes goes by which bytes the server's C library takes for blanks: on Linux,
# those of ASCII.
_BY_BLANKS: Final = frozenset({"record_send", "range_send"})
# Sent with the name of its encoding, and printed without.
_BY_ENCODING: Final = frozenset({"xml_send"})


def read_formats(connection: Connection) -> Formats:
    """How the values of each type are sent, where their text is known here.

    Raises:
        SourceError: the server failed.
    """
    ((version,),) = connection.query(_VERSION)
    left_out = _BY_BLANKS if "linux" not in (version or "") else frozenset()
    if connection.encoding != UTF8:
        left_out |= _BY_ENCODING
    types = (_facts(row) for row in connection.query(_TYPES))
    return formats_of(each for each in types if each.send not in left_out)


def _facts(row: Sequence[str | None]) -> TypeFacts:
    oid, send, output, base, element, delimiter, subtype, attributes = (each or "" for each in row)
    return TypeFacts(
        int(oid), send, output, int(base), int(element), delimiter, int(subtype),
        tuple(map(int, attributes.split())),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Whether values are to be asked for in binary.

    Attributes:
        known: how the values of each type are sent, where their text is known here.
        text_columns: published columns of other types, as ``schema.table.column``.
        is_all_text: in binary all published columns would be sent as text anyway.
    """

    known: Formats
    text_columns: Sequence[str]
    is_all_text: bool

    @property
    def formats(self) -> Formats | None:
        """How values will be sent in binary; None where text is asked for."""
        return None if self.text_columns or self.is_all_text else self.known


def choose(connection: Connection, publications: Sequence[str]) -> Choice:
    """Look at the types of the published columns.

    Raises:
        SourceError: the server failed.
    """
    known = read_formats(connection)
    same = [oid for oid, sent in known.items() if sent.format in _AS_TEXT]
    columns = _COLUMNS.format(tables=tables_of(publications, connection.server_version))
    ((is_all_text,),) = connection.query(_ALL_OF.format(columns=columns, types=_list(same)))
    rows = connection.query(_OTHERS.format(columns=columns, types=_list(known)))
    others = [".".join(spelled_name(part or "") for part in row) for row in rows]
    return Choice(known, others, is_all_text == "t")


def _list(types: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(types)))
