"""The tables that publications of PostgreSQL send, and what they are made of.

Asked on the connection that reads them, in its transaction: so the answer is what
its view has.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Final

from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.protocol.canonical import RelationColumn, RelationMessage, describe
from gaussdecode.source.export import Leaf, PublishedTable, TableChangedError, TableShape
from gaussdecode.source.postgresql.carried import Changes, Sender
from gaussdecode.source.postgresql.connection import Connection, Row
from gaussdecode.source.quoting import literal
from gaussdecode.wire.encoding import spelled_name

_FIRST_NAMED_OID: Final = 10000  # from here on the server sends Type messages
_ROOT: Final = "p"

_PUBLISHED: Final = """
    SELECT t.schemaname, t.tablename, c.oid, c.relkind, c.relreplident, {filter}, {columns},
        t.pubname, pg_catalog.array_to_json(ARRAY(
            SELECT a.relid::oid::int8 FROM pg_catalog.pg_partition_ancestors(c.oid) a))
    FROM pg_catalog.pg_publication_tables t
    JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
    WHERE t.pubname IN ({names}) ORDER BY 1, 2
"""
_COLUMNS: Final = """
    SELECT a.attname, a.atttypid, a.atttypmod, b.nspname, b.typname, a.attnum,
        EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid
            AND a.attnum = ANY (i.indkey::int2[]) AND ((c.relreplident = 'd' AND i.indisprimary
            AND i.indimmediate) OR (c.relreplident = 'i' AND i.indisreplident))),
        pg_catalog.format_type(a.atttypid, -1)
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid,
    LATERAL (WITH RECURSIVE d AS (
            SELECT t.oid, t.typbasetype, t.typname, t.typnamespace, t.typtype
            FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
            UNION ALL
            SELECT t.oid, t.typbasetype, t.typname, t.typnamespace, t.typtype
            FROM pg_catalog.pg_type t JOIN d ON t.oid = d.typbasetype WHERE d.typtype = 'd')
        SELECT n.nspname, d.typname FROM d
        JOIN pg_catalog.pg_namespace n ON n.oid = d.typnamespace WHERE d.typtype <> 'd') b
    WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped {generated}
    ORDER BY a.attnum
"""
_NAME: Final = """
    SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {oid}
"""
_LEAVES: Final = """
    SELECT c.oid, n.nspname, c.relname, c.relfilenode, pg_catalog.pg_relation_filenode(c.oid),
        pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int8,
        greatest(c.reltuples, 0)::int8
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid IN ({oids}) AND c.relkind = 'r' ORDER BY c.oid
"""


def read_published(
    connection: Connection, publications: Sequence[str], changes: Changes
) -> list[PublishedTable]:
    """See `export.TableReader.published`.

    What stands below a partitioned table that some publication sends as a whole is sent as that
    table, also where another publication has it under its own name.
    """
    is_new = connection.server_version >= 150000
    rows = connection.query(
        _PUBLISHED.format(
            filter="t.rowfilter" if is_new else "NULL",
            columns="pg_catalog.array_to_json(t.attnames)" if is_new else "NULL",
            names=", ".join(literal(name) for name in publications) or "NULL",
        )
    )
    found: dict[str, PublishedTable] = {}
    above: dict[str, frozenset[int]] = {}
    for row in rows:
        table = _published(row)
        above[table.title] = frozenset(json.loads(row[8] or "[]")) - {table.oid}
        found[table.title] = _union(found.get(table.title), table)
    roots = {table.oid for table in found.values() if table.is_root}
    sent = [table for title, table in found.items() if not above[title] & roots]
    evidence = changes.evidence([table.oid for table in sent])
    return [dataclasses.replace(of, evidence=evidence.get(of.oid, "")) for of in sent]


def read_shape(connection: Connection, table: PublishedTable, changes: Changes) -> TableShape:
    """See `export.TableReader.shape`."""
    if changes.evidence([table.oid]).get(table.oid) != table.evidence:
        raise TableChangedError(
            f"what is published of table {table.title} was changed, or it is gone"
        )
    # Up to 17 the stream has no generated column, whatever pg_publication_tables lists.
    generated = "" if connection.server_version >= 180000 else "AND a.attgenerated = ''"
    rows = connection.query(_COLUMNS.format(oid=table.oid, generated=generated))
    wanted = table.columns
    rows = [row for row in rows if wanted is None or _name(row[0]) in wanted]
    oids = str(table.oid)
    if table.is_root:
        tree = f"pg_catalog.pg_partition_tree({table.oid}::pg_catalog.oid::regclass)"
        found = connection.query(f"SELECT relid::oid FROM {tree} WHERE isleaf")  # noqa: S608
        oids = ", ".join(str(oid) for (oid,) in found) or "0"
    leaves = connection.query(_LEAVES.format(oids=oids))
    named = connection.query(_NAME.format(oid=table.oid))
    if [(_name(s), _name(t)) for s, t in named] != [(table.schema, table.name)]:
        raise TableChangedError(f"table {table.title} is gone, or has another name")
    if (not rows and wanted) or (not leaves and not table.is_root):
        raise TableChangedError(f"table {table.title} is gone")
    for leaf in leaves:
        if leaf[3] != leaf[4]:
            raise TableChangedError(f"table {table.title} was rewritten or truncated just now")
    senders = [Sender(name, frozenset(), text) for name, text in table.filters.items()]
    carried = changes.judge(table.oid, [int(leaf[0] or 0) for leaf in leaves], senders)
    return TableShape(
        table,
        _relation(table, rows),
        tuple(str(row[7]) for row in rows),
        tuple(int(row[5] or 0) for row in rows),
        tuple(_leaf(row) for row in leaves),
        unseen=carried.reason,
        evidence=carried.evidence,
        encoding=connection.encoding,
    )


def _name(text: str | None) -> str:
    return spelled_name(text or "")


def _published(row: Row) -> PublishedTable:
    schema, name, oid, kind, identity, condition, columns, publication, _ = row
    return PublishedTable(
        _name(schema),
        _name(name),
        int(oid or 0),
        kind == _ROOT,
        identity or "",
        condition,
        None if columns is None else frozenset(map(spelled_name, json.loads(columns))),
        {publication or "": condition},
    )


def _union(first: PublishedTable | None, second: PublishedTable) -> PublishedTable:
    """What two publications send of one table."""
    if first is None:
        return second
    both = None
    if first.filter is not None and second.filter is not None:
        both = f"({first.filter}) OR ({second.filter})"
    columns = None
    if first.columns is not None and second.columns is not None:
        columns = first.columns | second.columns
    filters = {**first.filters, **second.filters}
    return dataclasses.replace(first, filter=both, columns=columns, filters=filters)


def _relation(table: PublishedTable, rows: Sequence[Row]) -> Relation:
    """Describe a table as the server's Relation message would."""
    identity = ReplicaIdentity(table.identity)
    columns = tuple(
        RelationColumn(
            is_key=row[6] == "t" or identity is ReplicaIdentity.FULL,
            name=_name(row[0]),
            type_oid=int(row[1] or 0),
            type_modifier=int(row[2] or -1),
        )
        for row in rows
    )
    types = {
        int(row[1] or 0): (_sent_namespace(row[3]), _name(row[4]))
        for row in rows
        if int(row[1] or 0) >= _FIRST_NAMED_OID
    }
    message = RelationMessage(table.oid, table.schema, table.name, identity, columns)
    return describe(message, 1, types)


def _sent_namespace(name: str | None) -> str:
    """The server spells pg_catalog as nothing."""
    return "" if name == "pg_catalog" else _name(name)


def _leaf(row: Row) -> Leaf:
    oid, schema, name, _, node, pages, tuples = row
    return Leaf(
        int(oid or 0), _name(schema), _name(name), int(node or 0), int(pages or 0), int(tuples or 0)
    )
