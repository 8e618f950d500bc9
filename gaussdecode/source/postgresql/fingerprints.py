"""Read the catalogue states of PostgreSQL's published tables (see `model.fingerprint`).

A check first asks which catalogue rows are newer than the check before. One query reads pg_class,
pg_attribute, pg_index, pg_inherits and pg_enum from end to end. Nearly always no row is. Otherwise, and at the
start, the states of the concerned tables are read.

*Newer than the check before*: the row's transaction is not older than all that ran at that check. So a
transaction that commits during a check is seen by this one or by the next one. Rows that are gone from a
catalogue show in the number and the sum of the remaining OIDs.

No query here opens a table that it asks about, so none waits for the lock of one: see `publications`.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from gaussdecode.errors import SourceError
from gaussdecode.model.fingerprint import ColumnState, FileState, TableState, TypeState, types_of
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import table_title
from gaussdecode.source.postgresql.connection import Connection, Row
from gaussdecode.source.postgresql.members import rows_of_members
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.source.quoting import literal
from gaussdecode.wire.encoding import raw_name, readable, spelled_name

_USER_OIDS: Final = 16384
_ROOT: Final = "p"
_LISTED_AT_ONCE: Final = 2000  # OIDs in a statement; arbitrary
_LOCK_MS: Final = 100  # arbitrary; a size that cannot be asked for is taken as more than none
_LOCKED: Final = "55P03"

_HERE: Final = """
    pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text,
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_insert_lsn() END::text
"""
_PUBLICATIONS: Final = """
    (SELECT pg_catalog.json_object_agg(p.pubname, pg_catalog.json_build_array(
        p.oid::int8, p.xmin::text::int8, coalesce(m.count, 0), coalesce(m.sum, 0)))::text
        FROM pg_catalog.pg_publication p LEFT JOIN (
            SELECT o.publication, count(*), sum(o.oid::int8) FROM ({rows}) o GROUP BY 1) m
        ON m.publication = p.oid)
"""
# {age} is what the oldest transaction that ran at the look before is behind the next one.
_POLL: Final = """
    SELECT {here}, {publications},
    (SELECT pg_catalog.json_build_array(count(*), sum(c.oid::int8),
        pg_catalog.json_agg(c.oid) FILTER (WHERE pg_catalog.age(c.xmin) BETWEEN 0 AND {age}))
        FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'p', 'f', 'c') AND c.relpersistence <> 't'),
    (SELECT pg_catalog.json_build_array(count(*), sum(i.inhrelid::int8 + i.inhparent::int8),
        pg_catalog.json_agg(i.inhrelid) FILTER (WHERE pg_catalog.age(i.xmin) BETWEEN 0 AND {age}))
        FROM pg_catalog.pg_inherits i),
    (SELECT pg_catalog.json_agg(DISTINCT a.attrelid) FROM pg_catalog.pg_attribute a
        WHERE pg_catalog.age(a.xmin) BETWEEN 0 AND {age} AND a.attnum > 0),
    (SELECT pg_catalog.json_agg(DISTINCT i.indrelid) FROM pg_catalog.pg_index i
        WHERE pg_catalog.age(i.xmin) BETWEEN 0 AND {age}),
    (SELECT pg_catalog.json_agg(DISTINCT e.enumtypid) FROM pg_catalog.pg_enum e
        WHERE pg_catalog.age(e.xmin) BETWEEN 0 AND {age})
"""
_AGE: Final = "(SELECT pg_catalog.age('{xid}'::xid8::xid))"
# Tables, and their partitions where they are published as one. A partition `is_born` if it was
# created as one, and what is above it too: to attach a table writes all rows of its columns anew, so
# that one which is as old as that of a system column was never written by ATTACH PARTITION.
_TREE: Final = """
    WITH RECURSIVE tree AS (
        SELECT c.oid AS top, c.oid, c.relkind, ''::text AS attached, true AS is_born
        FROM pg_catalog.pg_class c WHERE c.oid IN ({oids})
        UNION ALL
        SELECT t.top, c.oid, c.relkind, pg_catalog.concat_ws(' ', nullif(t.attached, ''), i.xmin),
            t.is_born AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
                AND a.attnum > 0 AND a.xmin = b.xmin AND a.cmin = b.cmin AND a.xmin = i.xmin)
        FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid AND t.relkind = 'p'
        JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
        JOIN pg_catalog.pg_attribute b ON b.attrelid = c.oid AND b.attnum = -1
        WHERE NOT i.inhdetachpending)
"""
_FILES: Final = f"""{_TREE}
    SELECT t.top, c.oid, n.nspname, c.relname, c.relkind, c.relfilenode, c.relpersistence, c.relreplident,
        (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ',' ORDER BY a.attname)
            FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
                ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[])
            WHERE i.indrelid = c.oid AND ((c.relreplident IN ('d', 'f') AND i.indisprimary)
                OR (c.relreplident = 'i' AND i.indisreplident))),
        t.attached, c.xmin, c.xmin = b.xmin, t.is_born, c.relnatts
    FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute b ON b.attrelid = c.oid AND b.attnum = -1
    WHERE c.relkind <> 'p' OR t.attached = ''
"""  # noqa: S608 - constants
_COLUMNS: Final = """
    SELECT a.attrelid, pg_catalog.json_agg(pg_catalog.json_build_array(a.attnum, a.attname, a.atttypid::int8,
        a.atttypmod, a.xmin::text::int8, a.attgenerated <> ''))
    FROM pg_catalog.pg_attribute a WHERE a.attrelid IN ({oids}) AND a.attnum > 0 AND NOT a.attisdropped
    GROUP BY a.attrelid
"""
_CONSTANTS: Final = f"""{_TREE}
    SELECT t.oid, a.attname, (a.attmissingval::text::text[])[1] FROM tree t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND a.atthasmissing
"""  # noqa: S608 - constants
# What a type is made of: elements, the base of a domain, bounds of a range, attributes.
_MADE_OF: Final = """
    SELECT t.typelem AS oid UNION ALL SELECT t.typbasetype
    UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
    UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped
"""
_TYPES: Final = f"""
    WITH RECURSIVE used AS (
        SELECT t.oid FROM pg_catalog.pg_type t WHERE t.oid IN ({{oids}})
        UNION
        SELECT m.oid FROM used JOIN pg_catalog.pg_type t ON t.oid = used.oid CROSS JOIN LATERAL ({_MADE_OF}) m
        WHERE m.oid >= {_USER_OIDS})
    SELECT t.oid, pg_catalog.format_type(t.oid, NULL), t.typtype,
        (SELECT pg_catalog.json_agg(m.oid) FROM ({_MADE_OF}) m WHERE m.oid <> 0),
        CASE t.typtype
            WHEN 'e' THEN (SELECT pg_catalog.json_object_agg(e.oid, e.enumlabel)
                FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid)
            WHEN 'c' THEN (SELECT pg_catalog.json_object_agg(a.attnum, a.atttypid || ' ' || a.atttypmod)
                FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
            WHEN 'b' THEN (SELECT pg_catalog.json_build_object('output',
                    pg_catalog.md5(pg_catalog.concat(p.oid, ' ', p.probin, ' ', p.prosrc)))
                FROM pg_catalog.pg_proc p WHERE p.oid = t.typoutput) END,
        t.typrelid
    FROM used JOIN pg_catalog.pg_type t ON t.oid = used.oid
"""  # noqa: S608 - constants
_EMPTY: Final = """
    SELECT c.oid FROM pg_catalog.pg_class c
    WHERE c.oid IN ({oids}) AND c.relkind = 'r' AND pg_catalog.pg_relation_size(c.oid) = 0
"""
_LISTING: Final = """
    SELECT t.oid, n.nspname, c.relname, c.relkind,
        CASE WHEN bool_and(t.columns IS NOT NULL) THEN pg_catalog.json_agg(t.columns) END,
        bool_or(t.has_generated), bool_or(p.pubtruncate OR NOT p.pubdelete),
        bool_and(NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = t.oid))
    FROM ({tables}) t JOIN pg_catalog.pg_publication p ON p.pubname = t.publication
    JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace GROUP BY 1, 2, 3, 4
"""
_THERE: Final = """
    SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid IN ({oids})
        OR (n.nspname, c.relname) IN ({names})
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """From when on rows of the catalogue are newer than a look.

    Attributes:
        xmin: transactions below this number had ended; 64 bits.
        relations: number and sum of OIDs in pg_class.
        partitions: the same in pg_inherits.
    """

    xmin: int
    relations: tuple[int, int]
    partitions: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """A table that publications send.

    Attributes:
        schema: name.
        name: name of the table.
        is_root: a partitioned table that is published as one.
        columns: numbers of those that are sent; None for all.
        sends_generated: stored generated columns are among all.
        sends_truncate: see `TableState`.
        can_be_unlogged: see `TableState`.
    """

    schema: str
    name: str
    is_root: bool
    columns: frozenset[int] | None
    sends_generated: bool
    sends_truncate: bool
    can_be_unlogged: bool

    def sends(self, number: int, *, is_generated: bool) -> bool:
        """Whether the stream has a column."""
        if self.columns is not None:
            return number in self.columns
        return self.sends_generated or not is_generated

    @property
    def title(self) -> str:
        """How it is spelled."""
        return table_title(self.schema, self.name)


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """The result of a check.

    Attributes:
        mark: mark for the next check.
        wal_lsn: end of the WAL after it.
        publications: as `ServerState.publications`.
        listed: tables that are sent, by OID; None where nothing is newer than the look before.
        tables: states by OID, of those that are new or concerned.
        types: types of what their columns are made of, by OID.
        there: titles by OID, of tables that were sent before and still exist, and of those that have the
            name of one.
    """

    mark: Mark
    wal_lsn: Lsn
    publications: dict[str, tuple[int, ...]]
    listed: Mapping[int, Listed] | None = None
    tables: Mapping[int, TableState] = dataclasses.field(default_factory=dict)
    types: Mapping[int, TypeState] = dataclasses.field(default_factory=dict)
    there: Mapping[int, str] = dataclasses.field(default_factory=dict)


class Looker:
    """Looks at the catalogue over one connection.

    Args:
        connection: ordinary, in autocommit.
        publications: names.
        lands: whether a table lands by configuration, given schema and name.
    """

    def __init__(
        self,
        connection: Connection,
        publications: Sequence[str],
        lands: Callable[[str, str], bool] = lambda _schema, _name: True,
    ) -> None:
        self._connection = connection
        self._names = tuple(publications)
        self._lands = lands

    def look(
        self,
        since: Mark | None,
        publications: Mapping[str, tuple[int, ...]],
        tables: Mapping[int, TableState],
        types: Mapping[int, TypeState],
        gone: Iterable[int] = (),
        *,
        is_whole: bool = False,
    ) -> Look:
        """Look once.

        Args:
            since: mark of the look before; None for the first one.
            publications: as they were then.
            tables: known by OID.
            types: known by OID.
            gone: OIDs of tables that were sent once.
            is_whole: read every table, whatever is newer.

        Raises:
            SourceError: the server failed.
        """
        look, changed, is_fewer = self._poll(since)
        is_same = all(look.publications.get(name) == of for name, of in publications.items())
        if not (is_whole or changed or is_fewer) and is_same:
            return look
        listed = self._listed()
        wanted = set(listed) if is_whole else _concerned(changed, tables, types, is_fewer=is_fewer)
        wanted = (wanted & listed.keys()) | (listed.keys() - tables.keys())
        found, of_types = self._read(listed, wanted)
        found = self._with_empty(found, tables)
        left = {*gone, *(tables.keys() - listed.keys())}
        names = [(tables[oid].schema, tables[oid].name) for oid in left if oid in tables]
        there = self._there(left, names)
        return dataclasses.replace(
            look, wal_lsn=self._wal_lsn(), listed=listed, tables=found, types=of_types, there=there
        )

    def _poll(self, since: Mark | None) -> tuple[Look, set[int], bool]:
        """What is newer than the look before: OIDs of relations and types; and whether some are gone."""
        rows = rows_of_members(self._connection.server_version)
        age = "-1" if since is None else _AGE.format(xid=since.xmin)
        query = _POLL.format(here=_HERE, publications=_PUBLICATIONS.format(rows=rows), age=age)
        (row,) = self._connection.query(query)
        xmin, lsn, publications, relations, partitions, *others = row
        of_relations, of_partitions = json.loads(relations or ""), json.loads(partitions or "")
        mark = Mark(int(xmin or 0), _sum(of_relations), _sum(of_partitions))
        changed = [of_relations[2], of_partitions[2], *(json.loads(of or "null") for of in others)]
        found = {name: tuple(of) for name, of in json.loads(publications or "{}").items()}
        look = Look(
            mark, Lsn.parse(lsn or ""), {name: found[name] for name in self._names if name in found}
        )
        is_fewer = since is not None and (since.relations, since.partitions) != (
            mark.relations,
            mark.partitions,
        )
        return look, {int(oid) for oids in changed for oid in oids or ()}, is_fewer

    def _wal_lsn(self) -> Lsn:
        ((_, lsn),) = self._connection.query(f"SELECT {_HERE}")
        return Lsn.parse(lsn or "")

    def _listed(self) -> dict[int, Listed]:
        tables = tables_of(self._names, self._connection.server_version)
        rows = self._connection.query(_LISTING.format(tables=tables))
        found = {
            int(oid or 0): Listed(
                _name(schema),
                _name(name),
                kind == _ROOT,
                _numbers(columns),
                generated == "t",
                sends == "t",
                can_be == "t" and kind != _ROOT,
            )
            for oid, schema, name, kind, columns, generated, sends, can_be in rows
        }
        return {oid: of for oid, of in found.items() if self._lands(of.schema, of.name)}

    def _read(
        self, listed: Mapping[int, Listed], oids: Iterable[int]
    ) -> tuple[dict[int, TableState], dict[int, TypeState]]:
        """States of tables by OID, and the types of their columns; what is gone by now is not there."""
        tables: dict[int, TableState] = {}
        wanted = sorted(set(oids))
        for first in range(0, len(wanted), _LISTED_AT_ONCE):
            part = wanted[first : first + _LISTED_AT_ONCE]
            tables.update(self._read_some(listed, part))
        return tables, self._types(
            {column.type_oid for table in tables.values() for column in table.columns.values()}
        )

    def _read_some(
        self, listed: Mapping[int, Listed], oids: Sequence[int]
    ) -> dict[int, TableState]:
        query, listing = self._connection.query, ", ".join(map(str, oids))
        files: dict[int, dict[int, FileState]] = {}
        names: dict[int, tuple[str, str]] = {}
        counts: dict[int, int] = {}
        constants: dict[int, dict[str, str]] = {}
        for oid, name, text in query(_CONSTANTS.format(oids=listing)):
            constants.setdefault(int(oid or 0), {})[_name(name)] = readable(text or "")
        for row in query(_FILES.format(oids=listing)):
            top, relation = int(row[0] or 0), int(row[1] or 0)
            file = _file(row, constants.get(relation, {}))
            files.setdefault(top, {})[relation] = file
            if top == relation:
                names[top] = _name(row[2]), _name(row[3])
                counts[top] = int(row[-1] or 0)
        columns = {
            int(oid or 0): {
                number: ColumnState(_name(name), type_oid, modifier, xid)
                for number, name, type_oid, modifier, xid, is_generated in json.loads(lists or "")
                if listed[int(oid or 0)].sends(number, is_generated=is_generated)
            }
            for oid, lists in query(_COLUMNS.format(oids=listing))
        }
        return {
            oid: TableState(
                oid,
                *names[oid],
                listed[oid].is_root,
                files[oid],
                columns.get(oid, {}),
                counts[oid],
                listed[oid].can_be_unlogged,
                listed[oid].sends_truncate,
            )
            for oid in oids
            if oid in names
        }

    def _types(self, oids: Iterable[int]) -> dict[int, TypeState]:
        """Types, and what they are made of; those of PostgreSQL's own are left out."""
        wanted = ", ".join(str(oid) for oid in sorted(set(oids)) if oid >= _USER_OIDS)
        if not wanted:
            return {}
        rows = self._connection.query(_TYPES.format(oids=wanted))
        return {
            int(oid or 0): TypeState(
                _name(name),
                kind or "",
                tuple(sorted(map(int, json.loads(uses or "[]")))),
                json.loads(parts or "{}"),
                int(relation or 0),
            )
            for oid, name, kind, uses, parts, relation in rows
        }

    def _with_empty(
        self, tables: Mapping[int, TableState], known: Mapping[int, TableState]
    ) -> dict[int, TableState]:
        """Say of partitions that are new whether they have no row at all; where nothing is known, all are."""
        before = {oid for table in known.values() if table.is_root for oid in table.files}
        new = {
            oid
            for table in tables.values()
            if table.is_root and known
            for oid, file in table.files.items()
            if oid not in before and not file.is_attached_empty
        }
        empty = self._empty(new)
        return {
            oid: dataclasses.replace(
                table,
                files={
                    of: dataclasses.replace(file, is_attached_empty=True) if of in empty else file
                    for of, file in table.files.items()
                },
            )
            for oid, table in tables.items()
        }

    def _empty(self, oids: Iterable[int]) -> set[int]:
        """Which of some tables have no row; one that is locked is taken as one with rows."""
        listing = ", ".join(str(oid) for oid in sorted(set(oids)))
        if not listing:
            return set()
        query = self._connection.query
        query(f"SET lock_timeout = {_LOCK_MS}")
        try:
            rows = query(_EMPTY.format(oids=listing))
        except SourceError as error:
            if error.sqlstate != _LOCKED:
                raise
            rows = []
        query("SET lock_timeout = 0")
        return {int(oid or 0) for (oid,) in rows}

    def _there(self, oids: Iterable[int], names: Sequence[tuple[str, str]]) -> dict[int, str]:
        """Titles by OID of tables that exist, of those with an OID or a name."""
        listing = ", ".join(str(oid) for oid in sorted(set(oids)))
        if not listing:
            return {}
        pairs = ", ".join(
            f"({literal(raw_name(schema))}, {literal(raw_name(name))})" for schema, name in names
        )
        rows = self._connection.query(_THERE.format(oids=listing, names=pairs or "('', '')"))
        return {
            int(oid or 0): table_title(_name(schema), _name(name)) for oid, schema, name in rows
        }


def _concerned(
    changed: set[int],
    tables: Mapping[int, TableState],
    types: Mapping[int, TypeState],
    *,
    is_fewer: bool,
) -> set[int]:
    """OIDs of known tables that changed relations and types may concern."""
    of_types = {oid for oid, of in types.items() if oid in changed or of.relation in changed}
    return {
        oid
        for oid, table in tables.items()
        if (is_fewer and table.is_root)
        or not changed.isdisjoint(table.files)
        or (of_types and not of_types.isdisjoint(types_of(table, types)))
    }


def _numbers(lists: str | None) -> frozenset[int] | None:
    """Numbers of the columns that some publication lists; None where one sends all."""
    return None if lists is None else frozenset(n for of in json.loads(lists) for n in of)


def _sum(record: list[Any]) -> tuple[int, int]:  # Any: JSON
    return int(record[0]), int(record[1] or 0)


def _file(row: Row, constants: dict[str, str]) -> FileState:
    _, _, schema, name, kind, node, persistence, identity, key, attached, xid, *rest = row
    is_as_created, is_born, _ = rest
    return FileState(
        table_title(_name(schema), _name(name)),
        kind or "",
        int(node or 0),
        persistence or "",
        identity or "",
        _name(key),
        attached or "",
        int(xid or 0),
        constants,
        is_attached_empty=is_born == "t",
        is_as_created=is_as_created == "t",
    )


def _name(text: str | None) -> str:
    return spelled_name(text or "")
