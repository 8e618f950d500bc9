"""Convert Arrow tables to the types that Spark expects."""

import inspect

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it
from pyspark.sql.pandas.types import to_arrow_schema


def arrow_schema(wanted: T.StructType) -> pa.Schema:
    """Arrow types that Spark expects; before 4.2 timestamps have no zone and are UTC."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(wanted, timezone="UTC")
    return to_arrow_schema(wanted)  # type: ignore[unused-ignore]  # as far as older ones go


def fitted(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    """A column of a table in the type that Spark expects; NULLs if there is no such column."""
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    if not pa.types.is_struct(field.type) or column.type.names == field.type.names:
        return column.cast(field.type)
    values = column.combine_chunks()
    held = {of.name for of in values.type}
    children = [
        pc.struct_field(values, of.name).cast(of.type)
        if of.name in held
        else pa.nulls(len(values), of.type)
        for of in field.type
    ]
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=pc.is_null(values))
