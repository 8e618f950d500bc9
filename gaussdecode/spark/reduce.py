"""Reduction on an executor, for tables that others keep: changes to one per row.

Rows as they are now, or what became of the rows that changed, are staged as Parquet files
that Spark reads natively and hands to MERGE. The merge of events is the one of `merge`; rows
of the table that are needed (values that were not sent, rows that are counted) come as base.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.spark.events import ACTION, KEY, PUT, REMOVE, row_keys, state_schema
from gaussdecode.spark.merge import Merged, merge
from gaussdecode.spark.schema import SOURCE, UNCHANGED, TableSchema
from gaussdecode.spark.statefile import write_state
from gaussdecode.spark.tasks import GROUP_BITS, Job, MapTask, events_of, from_bytes

EXTRA: Final = (pa.field(KEY, pa.binary()), pa.field(ACTION, pa.int8()))
"""Columns of staged files before those of the state."""

_EXACT: Final = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_string,
    pa.types.is_binary,
)

MOST_VALUES: Final = 10_000
"""So many values of a column of the key can be named in a statement; arbitrary."""

Values = dict[str, list[int | str]]
"""By column, all its values."""

Bounds = dict[str, tuple[int, int]]
"""By column, the least and the greatest value."""

IDENTITY: Final = ("gd_epoch", "gd_lsn", "gd_seq")
"""What tells rows of a table without key apart, beside what is in them; see `identity`."""


def identity(schema: TableSchema) -> tuple[str, ...]:
    """The same of a table, whose rows may be of several sources."""
    return (*IDENTITY, SOURCE) if schema.has_source else IDENTITY


def stage_keys(task: MapTask) -> Iterator[str]:
    """Write the keys that changes are about; give the file's path below the table's directory."""
    found = [events.column(KEY).combine_chunks() for events in events_of(task)]
    if not found:
        return
    keys = pc.unique(pa.chunked_array(found, pa.binary()))
    name = f"keys/{task.job.token}"
    yield json.dumps(write_state(pa.table({KEY: keys}), task.job.table_root, name, "").path)


def stage_group(
    group: int, payloads: Sequence[bytes], jobs: Sequence[Job], after: int | None
) -> list[str]:
    """Merge a group of rows and stage what comes out.

    Args:
        group: number of the table and of the bucket.
        payloads: events, base rows among them.
        jobs: tables of the pass.
        after: give what changed after this entry; None for all rows as they are.

    Returns:
        One JSON text that describes the file: columns whose values only the table may have,
        between which values of the key the rows are, and whether that is exact.
    """
    job, bucket = jobs[group >> GROUP_BITS], group & ((1 << GROUP_BITS) - 1)
    events = from_bytes(payloads)
    merged = merge(None, events, job.resets, job.schema, job.order, has_all=False)
    if after is None:
        rows = _put(merged.current, job.schema)
    else:
        rows = reduced(events, merged, job.schema, after)
    closed = merged.closed if job.with_history else merged.closed.slice(0, 0)
    result = {
        "file": _written(job, rows, f"files/{job.token}-{bucket:06d}"),
        "closed": _written(job, closed, f"closed/{job.token}-{bucket:06d}"),
        "unmatched": merged.unmatched,
        "unsent": unsent_columns(rows),
        "bounds": key_bounds(events, job.schema),
        "values": key_values(events, job.schema),
        "is_exact": is_exact(events, job.schema),
    }
    return [json.dumps(result)]


def _written(job: Job, rows: pa.Table, name: str) -> dict[str, Any] | None:  # Any: JSON
    if not rows.num_rows:
        return None
    return dataclasses.asdict(write_state(rows, job.table_root, name, job.schema.schema_id))


def unsent_columns(rows: pa.Table) -> list[str]:
    """Columns that some row has no value of."""
    return sorted(pc.unique(pc.list_flatten(rows.column(UNCHANGED))).to_pylist())


def key_bounds(events: pa.Table, schema: TableSchema) -> Bounds:
    """Least and greatest value of each column of the key, where it is a whole number.

    Of columns whose values compare alike everywhere, so that files without rows between them
    need not be read; a column that is NULL in some event has no bounds.
    """
    found: Bounds = {}
    for name in schema.key:
        column = events.column(name)
        if pa.types.is_integer(column.type) and events.num_rows and not column.null_count:
            span = pc.min_max(column)
            found[name] = (span["min"].as_py(), span["max"].as_py())
    return found


def key_values(events: pa.Table, schema: TableSchema) -> Values:
    """Values of each column of the key that has few, is a whole number or text, and is NULL in no event."""
    found: Values = {}
    for name in schema.key:
        column = events.column(name)
        is_named = pa.types.is_integer(column.type) or pa.types.is_string(column.type)
        if is_named and not column.null_count:
            values = pc.unique(column)
            if len(values) <= MOST_VALUES:
                found[name] = values.to_pylist()
    return found


def join_values(parts: Sequence[Values]) -> Values:
    """Values in several groups together; of the columns that all of them know, and that have few still."""
    known = set.intersection(*map(set, parts)) if parts else set[str]()
    found: Values = {
        name: list(dict.fromkeys(value for part in parts for value in part[name])) for name in known
    }
    return {name: values for name, values in found.items() if 0 < len(values) <= MOST_VALUES}


def is_exact(events: pa.Table, schema: TableSchema) -> bool:
    """Whether the columns of the key tell rows apart as ``gd_key`` does.

    Of types that are equal in every engine where they are equal here; NULL is what did not fit its column.
    """
    columns = [events.column(name) for name in schema.key]
    return bool(columns) and all(
        not column.null_count and any(is_of(column.type) for is_of in _EXACT) for column in columns
    )


def join_bounds(parts: Iterable[Mapping[str, Sequence[int]]]) -> Bounds:
    """Bounds of several groups together; of the columns that all of them know."""
    found: Bounds | None = None
    for part in parts:
        if found is None:
            found = {name: (low, high) for name, (low, high) in part.items()}
        else:
            found = {
                name: (min(found[name][0], low), max(found[name][1], high))
                for name, (low, high) in part.items()
                if name in found
            }
    return found or {}


def reduced(events: pa.Table, merged: Merged, schema: TableSchema, after: int) -> pa.Table:
    """One row for each row of the table that changed: put as it is now, or removed."""
    is_new = pc.greater(merged.current.column("gd_n"), after)
    puts = _put(merged.current.filter(is_new), schema)
    if schema.key:
        held = row_keys(merged.current, schema)
        every = events.column(KEY).combine_chunks()
        keys = pc.unique(every)
        gone = keys.filter(pc.invert(pc.is_in(keys, value_set=held)))
        of = events.take(pc.index_in(gone, value_set=every))
        names = (*schema.key, *([SOURCE] if schema.has_source else []))
        blank = pa.table({KEY: gone, **{name: of.column(name) for name in names}})
    else:
        ended = merged.closed
        places = {name: ended.column(name) for name in identity(schema)}
        blank = pa.table({KEY: row_keys(ended, schema), **places})
    return pa.concat_tables([puts, _removed(blank, schema)])


def staged_schema(schema: TableSchema) -> pa.Schema:
    """Arrow schema of staged files."""
    return pa.schema([*EXTRA, *state_schema(schema)])


def _put(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows as changes that put them."""
    actions = pa.array(np.full(rows.num_rows, PUT, dtype=np.int8))
    return pa.table([row_keys(rows, schema), actions, *rows.columns], schema=staged_schema(schema))


def _removed(rows: pa.Table, schema: TableSchema) -> pa.Table:
    arrays = []
    for field in staged_schema(schema):
        if field.name == ACTION:
            arrays.append(pa.array(np.full(rows.num_rows, REMOVE, dtype=np.int8)))
        elif field.name in rows.column_names:
            arrays.append(rows.column(field.name))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(arrays, schema=staged_schema(schema))
