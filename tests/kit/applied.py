"""Rows of tables that are kept as files, read without Spark."""

from typing import Any

import pyarrow as pa

from gaussdecode.spark.schema import TableSchema, conform
from gaussdecode.spark.store import TableVersion, Target
from gaussdecode.spark.vectors import current_rows


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
