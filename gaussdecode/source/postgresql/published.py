"""Read the tables that publications of PostgreSQL send, with their columns and sizes.

Asked on the connection that reads them, in its transaction: so the answer fits its view.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Final

from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.protocol.described import RelationColumn, RelationMessage, describe
from gaussdecode.source.export import Leaf, PublishedTable, TableChangedError, TableShape
from gaussdecode.source.postgresql.carried import Changes, Sender
from gaussdecode.source.postgresql.connection import Connection, Row
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.wire.encoding import spelled_name

_FIRST_NAMED_OID: Final = 10000  # from here on the server sends Type messages
_ROOT: Final = "p"

_PUBLISHED: Final = """
    SELECT n.nspname, c.relname, c.oid, c.relkind, c.relreplident, t.is_filtered,
        pg_catalog.array_to_json(t.columns), t.has_generated, t.publication, pg_catalog.array_to_json(ARRAY(
            SELECT a.relid::oid::int8 FROM pg_catalog.pg_partition_ancestors(c.oid) a))
    FROM ({tables}) t JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2
"""
# Waits for the table's lock.
_FILTERS: Final = """
    SELECT p.pubname, pg_catalog.pg_get_expr(r.prqual, r.prrelid) FROM pg_catalog.pg_publication p
    JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
    WHERE r.prrelid = {oid} AND r.prqual IS NOT NULL
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
    WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND ({wanted})
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
    tables = tables_of(publications, connection.server_version)
    rows = connection.query(_PUBLISHED.format(tables=tables))
    found: dict[str, PublishedTable] = {}
    above: dict[str, frozenset[int]] = {}
    for row in rows:
        table = _published(row)
        above[table.title] = frozenset(json.loads(row[9] or "[]")) - {table.oid}
        found[table.title] = _union(found.get(table.title), table)
    roots = {table.oid for table in found.values() if table.is_root}
    sent = [table for title, table in found.items() if not above[title] & roots]
    evidence = changes.evidence([table.oid for table in sent])
    return [dataclasses.replace(of, evidence=evidence.get(of.oid, "")) for of in sent]


def read_shape(connection: Connection, table: PublishedTable, changes: Changes) -> TableShape:
    """See `export.TableReader.shape`."""
    if changes.evidence([table.oid]).get(table.oid) != table.evidence:
        raise TableChangedError(
            f"the published columns or rows of table {table.title} were changed, or it is no longer "
            "published"
        )
    wanted = "a.attgenerated = ''" + " OR a.attgenerated = 's'" * table.has_generated
    if table.columns is not None:
        wanted = f"a.attnum IN ({', '.join(map(str, sorted(table.columns)))})"
    rows = connection.query(_COLUMNS.format(oid=table.oid, wanted=wanted))
    filters = _filters(connection, table)
    oids = str(table.oid)
    if table.is_root:
        tree = f"pg_catalog.pg_partition_tree({table.oid}::pg_catalog.oid::regclass)"
        found = connection.query(f"SELECT relid::oid FROM {tree} WHERE isleaf")  # noqa: S608
        oids = ", ".join(str(oid) for (oid,) in found) or "0"
    leaves = connection.query(_LEAVES.format(oids=oids))
    named = connection.query(_NAME.format(oid=table.oid))
    if [(_name(s), _name(t)) for s, t in named] != [(table.schema, table.name)]:
        raise TableChangedError(f"table {table.title} was dropped or renamed")
    if (not rows and table.columns) or (not leaves and not table.is_root):
        raise TableChangedError(f"table {table.title} is gone")
    for leaf in leaves:
        if leaf[3] != leaf[4]:
            raise TableChangedError(f"table {table.title} was rewritten or truncated just now")
    senders = [Sender(name, frozenset(), text) for name, text in filters.items()]
    some = [text for text in filters.values() if text is not None]
    carried = changes.judge(table.oid, [int(leaf[0] or 0) for leaf in leaves], senders)
    return TableShape(
        table,
        _relation(table, rows),
        tuple(str(row[7]) for row in rows),
        tuple(int(row[5] or 0) for row in rows),
        tuple(_leaf(row) for row in leaves),
        filter=" OR ".join(f"({text})" for text in some) if len(some) == len(filters) else None,
        unseen=carried.reason,
        evidence=carried.evidence,
        encoding=connection.encoding,
    )


def _filters(connection: Connection, table: PublishedTable) -> dict[str, str | None]:
    """Which rows each publication sends, by its name; None for all."""
    if not any(table.publications.values()):
        return dict.fromkeys(table.publications)
    rows = connection.query(_FILTERS.format(oid=table.oid))
    texts = {name or "": text for name, text in rows}
    if any(texts.get(name) is None for name, is_some in table.publications.items() if is_some):
        raise TableChangedError(f"table {table.title} is gone")
    return {name: texts[name] if is_some else None for name, is_some in table.publications.items()}


def _name(text: str | None) -> str:
    return spelled_name(text or "")


def _published(row: Row) -> PublishedTable:
    schema, name, oid, kind, identity, is_filtered, columns, generated, *rest = row
    publication, _ = rest
    return PublishedTable(
        _name(schema),
        _name(name),
        int(oid or 0),
        kind == _ROOT,
        identity or "",
        None if columns is None else frozenset(json.loads(columns)),
        generated == "t",
        {publication or "": is_filtered == "t"},
    )


def _union(first: PublishedTable | None, second: PublishedTable) -> PublishedTable:
    """What two publications send of one table."""
    if first is None:
        return second
    columns = None
    if first.columns is not None and second.columns is not None:
        columns = first.columns | second.columns
    publications = {**first.publications, **second.publications}
    generated = first.has_generated or second.has_generated
    return dataclasses.replace(
        first, columns=columns, has_generated=generated, publications=publications
    )


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
