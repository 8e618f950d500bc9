"""Rows of tables that are kept as files, read without Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.state_file import TableVersion
from gaussdecode.spark.target.store import Target
from kit.postgres import Database

Rows = list[dict[str, Any]]  # Any: values


def newest(target: Target, table: str) -> tuple[TableSchema, list[dict[str, Any]]]:  # Any: values
    """Schema and current rows of a table in the newest version of the database.

    Args:
        target: that has it.
        table: directory.
    """
    database = target.database()
    assert database is not None
    return rows_of(target, table, target.version(table, database.tables[table]))


def rows_of(
    target: Target, table: str, version: TableVersion
) -> tuple[TableSchema, list[dict[str, Any]]]:  # Any: values
    """Schema and current rows of a version; rows of several sources as one table."""
    schema = target.schema(table, version.schema_id)
    found: list[dict[str, Any]] = []
    for file in version.current:
        rows: pa.Table = current_rows(target.table_root(table), file)
        if schema.parts:
            part = schema.of(target.schema(table, file.schema_id).source)
            assert part is not None
            rows = conform(rows, part, schema)
        found += rows.to_pylist()
    return schema, found


def rows_by_source(target: Path, table: str) -> Rows:
    """Current rows of a table, each with its source, in one order; columns by true name, NULLs left out."""
    store = Target(target)
    schema, rows = newest(store, store.find_table(table))
    names = {column.name: column.true_name for column in schema.columns}
    found = []
    for row in rows:
        values = {names[name]: row[name] for name in names if row[name] is not None}
        found.append({"gd_source": row["gd_source"], **values})
    return in_order(found)


def held_by_source(shards: Mapping[str, Database], table: str) -> Rows:
    """The same of the servers that have such a table."""
    found = []
    for name, shard in shards.items():
        with shard.connect() as session:
            if session.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
                continue
            cursor = session.execute(f"SELECT * FROM {table}")
            columns = [column.name for column in cursor.description or ()]
            for values in cursor.fetchall():
                pairs = zip(columns, values, strict=True)
                found.append({"gd_source": name, **{k: v for k, v in pairs if v is not None}})
    return in_order(found)


def in_order(rows: Rows) -> Rows:
    """In one order, whatever the order of their columns is."""
    return sorted(rows, key=lambda row: repr(sorted(row.items())))
