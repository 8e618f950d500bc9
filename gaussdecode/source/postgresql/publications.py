"""List the tables that publications of PostgreSQL send: as pg_publication_tables, without a lock.

From PostgreSQL 16 on that view opens every table it lists, and in every version it spells row filters through a
function that does. So it waits while any session holds ACCESS EXCLUSIVE on one of them: an ALTER TABLE, a VACUUM
FULL, or a prepared transaction that did one and waits for days. The query here reads tables of the catalogue
alone, and waits for nobody.

What is listed below a partitioned table that is sent as a whole is not a table of its own; the
view of PostgreSQL 14 shows it as one.

Nor may anything else that all tables go through wait. These functions open the table they are
asked about, and are for tables that are read anyway, under a lock_timeout: pg_get_expr,
pg_get_indexdef, pg_relation_size and its kin, pg_partition_tree. These do not:
pg_partition_ancestors, pg_relation_filenode, to_regclass, has_table_privilege and its kin.
"""

from collections.abc import Sequence
from typing import Final

from gaussdecode.source.quoting import literal

_HAS_LISTS: Final = 150000  # publications of schemas, columns and rows
_SENDS_GENERATED: Final = 180000
_HAS_EXCEPTIONS: Final = 190000

# `fit` can be published, `tree` is listed (by itself or by its schema) or stands below what is.
_TABLES: Final = """
    WITH RECURSIVE pub AS (
        SELECT * FROM pg_catalog.pg_publication p WHERE p.pubname IN ({names})),
    fit AS (
        SELECT c.oid, c.relnamespace, c.relkind, c.relispartition FROM pg_catalog.pg_class c
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384),
    part AS (
        SELECT i.inhparent AS root, i.inhrelid AS oid FROM pg_catalog.pg_inherits i
        JOIN pg_catalog.pg_class c ON c.oid = i.inhparent AND c.relkind = 'p'
        WHERE NOT i.inhdetachpending),
    tree AS (
        SELECT r.prpubid AS pub, r.prrelid AS oid, {is_except} AS is_except, false AS is_below
        FROM pg_catalog.pg_publication_rel r JOIN pub ON pub.oid = r.prpubid {schemas}
        UNION
        SELECT t.pub, part.oid, t.is_except, true FROM tree t JOIN part ON part.root = t.oid),
    sent AS (
        (SELECT t.pub, t.oid FROM tree t JOIN pub ON pub.oid = t.pub AND NOT pub.pubviaroot
            JOIN pg_catalog.pg_class c ON c.oid = t.oid AND c.relkind <> 'p'
        UNION
        SELECT t.pub, t.oid FROM tree t JOIN pub ON pub.oid = t.pub AND pub.pubviaroot
            GROUP BY t.pub, t.oid HAVING NOT bool_or(t.is_below)
        UNION
        SELECT pub.oid, fit.oid FROM pub JOIN fit ON pub.puballtables
            AND CASE WHEN pub.pubviaroot THEN NOT fit.relispartition ELSE fit.relkind = 'r' END)
        EXCEPT
        SELECT t.pub, t.oid FROM tree t WHERE t.is_except)
    SELECT pub.pubname AS publication, sent.oid, {columns} AS columns,
        {has_generated} AS has_generated, {is_filtered} AS is_filtered
    FROM sent JOIN pub ON pub.oid = sent.pub {member}
"""
_SCHEMAS: Final = """
        UNION
        SELECT s.pnpubid, fit.oid, false, false FROM pg_catalog.pg_publication_namespace s
        JOIN pub ON pub.oid = s.pnpubid JOIN fit ON fit.relnamespace = s.pnnspid
"""
# Columns and rows of a table that comes with all tables, or with its schema, are all of them.
_MEMBER: Final = """
    LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = sent.pub AND r.prrelid = sent.oid
        AND NOT pub.puballtables AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_publication_namespace s
            JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid
            WHERE s.pnpubid = sent.pub AND c.oid = sent.oid)
"""


# What a publication sends of a table, by name of the column, where others send something else.
_CONFLICTS: Final = """
    WITH sent AS (SELECT t.publication, t.oid, pg_catalog.array_to_json(ARRAY(
        SELECT a.attname FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND CASE WHEN t.columns IS NOT NULL THEN a.attnum = ANY (t.columns)
                ELSE a.attgenerated = '' OR (t.has_generated AND a.attgenerated = 's') END
        ORDER BY a.attnum))::text AS columns FROM ({tables}) t)
    SELECT n.nspname, c.relname, s.publication, s.columns FROM sent s
    JOIN pg_catalog.pg_class c ON c.oid = s.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE s.oid IN (SELECT oid FROM sent GROUP BY oid HAVING count(DISTINCT columns) > 1)
    ORDER BY 1, 2, 3
"""


def conflicts_sql(publications: Sequence[str], server_version: int) -> str:
    """A query of tables of which publications send different columns: the server refuses to send them.

    Its columns are schema, name, publication and a JSON array of names; a row for each publication
    of such a table.
    """
    return _CONFLICTS.format(tables=tables_of(publications, server_version))


def tables_of(publications: Sequence[str], server_version: int) -> str:
    """A query of the tables that publications send, one row for each publication of a table.

    Its columns are ``publication``, its name; ``oid`` of the table; ``columns``, the numbers of
    those that are listed, NULL where all are sent; ``has_generated``, whether these include what
    is generated and stored; ``is_filtered``, whether only some rows are sent.
    """
    has_lists = server_version >= _HAS_LISTS
    return _TABLES.format(
        names=", ".join(literal(name) for name in publications) or "NULL",
        is_except="r.prexcept" if server_version >= _HAS_EXCEPTIONS else "false",
        schemas=_SCHEMAS if has_lists else "",
        columns="r.prattrs::int2[]" if has_lists else "NULL::int2[]",
        has_generated="pub.pubgencols = 's'" if server_version >= _SENDS_GENERATED else "false",
        is_filtered="r.prqual IS NOT NULL" if has_lists else "false",
        member=_MEMBER if has_lists else "",
    )
