"""Compute the shape of a table's Delta tables from its schema. Pure."""

from collections.abc import Sequence

import pyarrow as pa

from gaussdecode.spark.log.events import change_fields, closed_schema, state_schema
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.target.layout import Part
from gaussdecode.spark.target.state_file import BY_COMMIT_DATE, CHANGELOG, CURRENT, HISTORY
from gaussdecode.spark.target.table_log import Shape


def shape_of(
    schema: TableSchema, by: str = "", comment: str = "", partition: Sequence[str] = ()
) -> Shape:
    """Columns of all its Delta tables.

    Args:
        schema: schema of the rows.
        by: partition column of the changelog; empty for none.
        comment: comment that the table gets when it is created.
        partition: partition columns of the rows.
    """
    changes = pa.schema([*change_fields(schema), pa.field("gd_n", pa.int64()), *schema.arrow()])
    parts = {CURRENT: [Part.from_text(text).field(changes) for text in partition]}
    if by == BY_COMMIT_DATE:
        parts[CHANGELOG] = [pa.field(by, pa.date32())]
    elif by:
        is_there = by in changes.names
        parts[CHANGELOG] = [changes.field(by) if is_there else pa.field(by, pa.string())]
    columns = {CURRENT: state_schema(schema), HISTORY: closed_schema(schema), CHANGELOG: changes}
    return Shape(columns, parts, comment)
