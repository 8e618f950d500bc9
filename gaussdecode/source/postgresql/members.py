"""Read the members of PostgreSQL's publications: tables and schemas, one catalogue row each.

A table that is taken out of a publication and put back gets a new row, while the row of the publication stays
the same. So each check compares the number and the sum of the OIDs of these rows, however many there are. The
rows themselves are read only after a change.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from gaussdecode.model.title import table_title
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.quoting import literal
from gaussdecode.wire.encoding import spelled_name

_HAS_SCHEMAS: Final = 150000  # publications of schemas
_OIDS: Final = "SELECT r.prpubid AS publication, r.oid FROM pg_catalog.pg_publication_rel r"
_SCHEMA_OIDS: Final = (
    " UNION ALL SELECT s.pnpubid, s.oid FROM pg_catalog.pg_publication_namespace s"
)
_TABLES: Final = """
    SELECT p.pubname, r.oid, c.oid, n.nspname, c.relname FROM pg_catalog.pg_publication p
    JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
    JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname IN ({names})
"""
_SCHEMAS: Final = """
    UNION ALL SELECT p.pubname, s.oid, n.oid, n.nspname, NULL FROM pg_catalog.pg_publication p
    JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname IN ({names})
"""
_THERE: Final = """
    SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid IN ({oids})
    UNION ALL SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.oid IN ({oids})
"""


class Member(NamedTuple):
    """A table or schema that a publication lists.

    Attributes:
        row: OID in pg_publication_rel or pg_publication_namespace.
        oid: OID of the table or schema.
        schema: its name.
        name: name of the table; None for all tables of the schema.
    """

    row: int
    oid: int
    schema: str
    name: str | None

    @property
    def title(self) -> str:
        """For people."""
        if self.name is None:
            return f"schema {self.schema!r}"
        return f"table {table_title(self.schema, self.name)}"


Members = Mapping[str, Sequence[Member]]
"""Members by the name of the publication."""


def rows_of_members(server_version: int) -> str:
    """A query of ``publication`` (OID) and ``oid`` of everything that is listed."""
    return _OIDS + (_SCHEMA_OIDS if server_version >= _HAS_SCHEMAS else "")


def sums(members: Collection[Member]) -> tuple[int, int]:
    """Number and sum of the rows' OIDs; differs when something was put in or taken out."""
    return len(members), sum(member.row for member in members)


def taken_out(known: Collection[Member], seen: Collection[Member]) -> list[Member]:
    """What was listed, and is not by the same row any more."""
    rows = {(member.row, member.oid) for member in seen}
    return [member for member in known if (member.row, member.oid) not in rows]


def read_members(
    connection: Connection, publications: Sequence[str], known: Members
) -> tuple[Members, Members]:
    """Ask the server what publications list.

    Args:
        connection: ordinary.
        publications: names.
        known: members listed before.

    Returns:
        What they list now; and what they listed before, not any more, and is still there: a
        table that was dropped misses nothing.

    Raises:
        SourceError: the server failed.
    """
    seen = _read(connection, publications)
    gone = {name: taken_out(of, seen.get(name, ())) for name, of in known.items()}
    oids = [str(member.oid) for of in gone.values() for member in of]
    there = set()
    if oids:
        rows = connection.query(_THERE.format(oids=", ".join(oids)))
        there = {int(oid or 0) for (oid,) in rows}
    return seen, {
        name: [member for member in of if member.oid in there] for name, of in gone.items()
    }


def _read(connection: Connection, names: Sequence[str]) -> Members:
    query = _TABLES + (_SCHEMAS if connection.server_version >= _HAS_SCHEMAS else "")
    found: dict[str, list[Member]] = {name: [] for name in names}
    for publication, row, oid, schema, name in connection.query(
        query.format(names=", ".join(literal(name) for name in names) or "NULL")
    ):
        member = Member(
            int(row or 0),
            int(oid or 0),
            spelled_name(schema or ""),
            None if name is None else spelled_name(name),
        )
        found[publication or ""].append(member)
    return found
