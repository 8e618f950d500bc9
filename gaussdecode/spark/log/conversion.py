"""Convert rows of one schema version to another.

Given Arrow tables; promises to keep a value that does not fit its new type as text in ``gd_raw``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.spark.log.schema import (
    NAMES_TYPE,
    OLD,
    OLD_PREFIX,
    RAW,
    RAW_TYPE,
    UNCHANGED,
    Column,
    TableSchema,
    is_added,
    is_exact_change,
    match_columns,
    parse_type,
)
from gaussdecode.spark.log.texts import text_of, value_of

Casts = dict[str, tuple[pa.ChunkedArray, pa.Array]]
"""Values whose text goes to ``gd_raw``, and their rows, by column."""


def conform(rows: pa.Table, old: TableSchema, new: TableSchema) -> pa.Table:
    """Convert rows of one version to another.

    Args:
        rows: columns of `old`, and any of our columns; ``gd_raw``, ``gd_unchanged`` and ``gd_old``
            are translated, others pass through.
        old: version of the rows.
        new: version wanted; the rows are of one source, even if it is a joint schema.
    """
    if new.parts and not old.parts:
        part = new.of(old.source)
        if part is not None and part.schema_id != old.schema_id:
            rows, old = conform(rows, old, part), part
    if old.schema_id == new.schema_id and set(new.names) <= set(rows.column_names):
        return rows
    matched = match_columns(old, new)
    casts: Casts = {}
    before = {column.name: column for column in old.columns}
    columns: dict[str, Any] = {
        name: rows.column(name)
        for name in rows.column_names
        if name.startswith("gd_") and name not in {RAW, UNCHANGED, OLD}
    }
    for column in new.columns:
        of = parse_type(column.type)
        source = matched.get(column.name)
        if source is None and is_added(column, old, new):
            columns[column.name] = _constant(column, of, rows.num_rows, casts)
            continue
        if source is None or source not in rows.column_names:
            columns[column.name] = pa.nulls(rows.num_rows, of)
            continue
        was = before[source]
        columns[column.name] = _converted(rows.column(source), was, column, column.name, casts)
    back = {before: after for after, before in matched.items()}
    columns[UNCHANGED] = _rename_list(rows, back)
    if OLD in rows.column_names:
        columns[OLD] = _conform_old(rows.column(OLD), before, new, matched, casts)
    columns[RAW] = _conform_raw(rows, back, casts)
    return pa.table(columns)


def _constant(column: Column, of: pa.DataType, count: int, casts: Casts) -> pa.Array:
    """The constant in each row; NULL, with the text noted, if the column cannot hold it."""
    assert column.constant is not None
    value = value_of(column.constant, of)
    if value is None:
        texts = pa.chunked_array([pa.array([column.constant] * count, pa.string())])
        casts[column.name] = (texts, pa.array([True] * count, pa.bool_()))
    return pa.array([value] * count, of) if count else pa.nulls(0, of)


def _converted(
    values: pa.ChunkedArray, old: Column, new: Column, name: str, casts: Casts
) -> pa.ChunkedArray:
    """Convert a column to its new type; unknown values become NULL and are noted in `casts`."""
    of = parse_type(new.type)
    if is_exact_change(old, new):
        return _cast(values, of)
    casts[name] = (values, pc.is_valid(values.combine_chunks()))
    return pa.chunked_array([pa.nulls(len(values), of)])


def _cast(values: pa.ChunkedArray, of: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_decimal(values.type) and pa.types.is_string(of):  # never with an exponent
        texts = [None if value is None else f"{value:f}" for value in values.to_pylist()]
        return pa.chunked_array([pa.array(texts, of)])
    return values if values.type == of else pc.cast(values, of)


def _rename_list(rows: pa.Table, back: dict[str, str]) -> pa.ChunkedArray | pa.Array:
    if UNCHANGED not in rows.column_names:
        return pa.nulls(rows.num_rows, NAMES_TYPE)
    column = rows.column(UNCHANGED)
    if column.null_count == len(column):
        return pa.nulls(rows.num_rows, NAMES_TYPE)
    lists = [
        None if names is None else [back[name] for name in names if name in back] or None
        for names in column.to_pylist()
    ]
    return pa.array(lists, NAMES_TYPE)


def _conform_old(
    old: pa.ChunkedArray,
    before: Mapping[str, Column],
    new: TableSchema,
    matched: dict[str, str],
    casts: Casts,
) -> pa.Array:
    values = old.combine_chunks()
    fields, arrays = [], []
    present = {field.name for field in old.type}
    for column in new.columns:
        source = matched.get(column.name)
        if source not in present:
            continue
        child = pa.chunked_array([pc.struct_field(values, source)])
        fields.append(pa.field(column.name, parse_type(column.type)))
        name = OLD_PREFIX + column.name
        arrays.append(_converted(child, before[str(source)], column, name, casts).combine_chunks())
    if not fields:
        return pa.nulls(len(values), pa.struct([]))
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(values))


def _conform_raw(rows: pa.Table, back: dict[str, str], casts: Casts) -> pa.Array:
    given = rows.column(RAW) if RAW in rows.column_names else pa.nulls(rows.num_rows, RAW_TYPE)
    if given.null_count == rows.num_rows and not casts:
        return pa.nulls(rows.num_rows, RAW_TYPE)
    rename = _raw_renamer(back)
    maps = [
        None if pairs is None else dict(p for p in map(rename, pairs) if p is not None)
        for pairs in given.to_pylist()
    ]
    for name, (values, lost) in casts.items():
        for index in pc.indices_nonzero(lost).to_pylist():
            held = maps[index] = dict(maps[index] or {})
            held[name] = text_of(values[index].as_py(), values.type)
    return pa.array([None if not m else list(m.items()) for m in maps], RAW_TYPE)


def _raw_renamer(back: dict[str, str]) -> Callable[[tuple[str, str]], tuple[str, str] | None]:
    def rename(pair: tuple[str, str]) -> tuple[str, str] | None:
        key, text = pair
        if key in back:
            return back[key], text
        name = key.removeprefix(OLD_PREFIX)
        return (OLD_PREFIX + back[name], text) if key != name and name in back else None

    return rename
