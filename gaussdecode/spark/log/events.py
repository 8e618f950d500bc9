"""Turn the changes of a table into events on its rows.

====  ===================================================================================
op    events
====  ===================================================================================
I R   put the row
U     put the row; columns that were not sent keep the value of the row before it
U     of the key: remove the old key, put the new one; values not sent are under the old key
D     remove the row
T     none: see `Reset`
====  ===================================================================================

Under REPLICA IDENTITY FULL the old row supplies values that were not sent. A multiset's update is
always a removal of its whole old row and a new one. Given rows of one schema version;
knows no files, and no order beyond the columns given.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.errors import LandingError
from gaussdecode.spark.log import keys
from gaussdecode.spark.log.schema import (
    NAMES_TYPE,
    OLD,
    OLD_PREFIX,
    RAW,
    RAW_TYPE,
    SOURCE,
    UNCHANGED,
    parse_type,
)
from gaussdecode.spark.log.schema import TableSchema as Schema

KEY: Final = "gd_key"
SUB: Final = "gd_sub"
ACTION: Final = "gd_action"
REMOVE, PUT, FILL, MOVE = range(4)
"""Actions: remove; put whole; put and fill from the row before; put, values elsewhere."""

_TS: Final = pa.timestamp("us", tz="UTC")
STAMPS: Final[dict[str, pa.DataType]] = {
    "gd_op": pa.string(),
    "gd_epoch": pa.int32(),
    "gd_lsn": pa.int64(),
    "gd_seq": pa.int64(),
    "gd_csn": pa.int64(),
    "gd_xid": pa.int64(),
    "gd_ts": _TS,
    "gd_n": pa.int64(),
}
"""Columns kept of a row's last change; they are also the beginning of its validity."""

ENDS: Final[dict[str, pa.DataType]] = {
    f"gd_to_{name.removeprefix('gd_')}": of for name, of in STAMPS.items() if name != "gd_xid"
}
"""The end of a closed interval, from the change that ended it."""


SOURCE_FIELD: Final = pa.field(SOURCE, pa.string())
"""Source of a row, if there are several."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reset:
    """The table is empty from here on: a truncate, a snapshot, or a new table of that name.

    Attributes:
        position: position, in the order's columns; events at it come after it.
        stamps: ``gd_op``, ``gd_n`` and others, for the intervals that it ends.
    """

    position: tuple[int, ...]
    stamps: dict[str, Any]  # Any: values of STAMPS

    @property
    def place(self) -> tuple[int, ...]:
        """Its position and, within its transaction, the number of its entry.

        A snapshot's position may be the end of a transaction; changes of that transaction in an earlier
        entry are before it.
        """
        *place, seq = self.position
        return (*place, self.stamps["gd_n"], seq)


def stamp_fields(schema: Schema) -> list[pa.Field]:
    """Fields of `STAMPS`, and of the source if there are several."""
    fields = [pa.field(name, of) for name, of in STAMPS.items()]
    at = 1 + list(STAMPS).index("gd_epoch")
    return [*fields[:at], *([SOURCE_FIELD] if schema.has_source else []), *fields[at:]]


def state_schema(schema: Schema) -> pa.Schema:
    """Arrow schema of the current state's files."""
    ours = stamp_fields(schema)
    return pa.schema(
        [*ours, pa.field(UNCHANGED, NAMES_TYPE), pa.field(RAW, RAW_TYPE), *schema.arrow()]
    )


def closed_schema(schema: Schema) -> pa.Schema:
    """Arrow schema of the files of closed intervals."""
    return pa.schema([*[pa.field(name, of) for name, of in ENDS.items()], *state_schema(schema)])


def change_fields(schema: Schema) -> list[pa.Field]:
    """Our own columns in landed files of a version."""
    old = [pa.field(c.name, parse_type(c.type)) for c in schema.columns if c.identity]
    ours = [
        ("gd_op", pa.string()),
        ("gd_epoch", pa.int32()),
        ("gd_lsn", pa.int64()),
        ("gd_seq", pa.int64()),
        ("gd_csn", pa.int64()),
        ("gd_xid", pa.int64()),
        ("gd_ts", pa.timestamp("us", tz="UTC")),
        (UNCHANGED, NAMES_TYPE),
    ]
    if schema.has_source:
        ours.insert(2, (SOURCE, pa.string()))
    fields = [pa.field(name, of) for name, of in ours]
    return [*fields, *([pa.field(OLD, pa.struct(old))] if old else []), pa.field(RAW, RAW_TYPE)]


def event_schema(schema: Schema) -> pa.Schema:
    """Arrow schema of events."""
    ours = [pa.field(KEY, pa.binary()), pa.field(SUB, pa.int8()), pa.field(ACTION, pa.int8())]
    return pa.schema([*ours, *state_schema(schema)])


def to_events(
    rows: pa.Table,
    schema: Schema,
    numbers: npt.NDArray[np.int64],
    *,
    order: Sequence[str],
    ignore_through: tuple[int, ...] | None = None,
) -> pa.Table:
    """Turn changes into events.

    Args:
        rows: landed rows, conformed to `schema`.
        schema: version wanted.
        numbers: commit entry number of each row.
        order: columns that order changes.
        ignore_through: epoch and position up to which a snapshot already has all changes.

    Raises:
        LandingError: a deletion has no key.
    """
    rows = rows.append_column("gd_n", pa.array(numbers))
    wanted = pc.not_equal(rows.column("gd_op"), "T")
    if ignore_through is not None:
        late = positions_above(rows, order[: len(ignore_through)], ignore_through)
        wanted = pc.and_(wanted, pc.or_(pa.array(late), pc.equal(rows.column("gd_op"), "R")))
    rows = rows.filter(wanted).combine_chunks()
    rows = fill_from_old(rows)
    old_keys = _old_keys(rows, schema)
    new_keys = row_keys(rows, schema)
    ops = rows.column("gd_op").combine_chunks()
    has_old = pc.is_valid(old_keys)
    is_update, is_delete = pc.equal(ops, "U"), pc.equal(ops, "D")
    if pc.any(pc.and_not(is_delete, has_old)).as_py():
        raise LandingError(f"{schema.title}: a deletion landed without the key of its row")
    is_move = pc.and_(
        pc.and_(is_update, has_old), pc.fill_null(_moved(old_keys, new_keys, schema), False)
    )
    removes = _removals(rows, old_keys, pc.or_(is_delete, is_move), schema)
    actions = pc.if_else(is_move, MOVE if schema.key else PUT, pc.if_else(is_update, FILL, PUT))
    puts = _assemble(rows, new_keys, actions.cast(pa.int8()), 1, schema).filter(
        pc.invert(is_delete)
    )
    return pa.concat_tables([removes, puts])


def _moved(old_keys: pa.Array, new_keys: pa.Array, schema: Schema) -> pa.Array:
    """Whether an update leaves its old key; in a multiset every update does."""
    return pc.not_equal(old_keys, new_keys) if schema.key else pc.is_valid(old_keys)


def order_values(rows: pa.Table, order: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """Columns that order changes, as numbers."""
    return [as_int64(rows.column(name)) for name in order]


def positions_above(
    rows: pa.Table, order: Sequence[str], position: tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """Whether each row is after a position."""
    columns = [as_int64(rows.column(name)) for name in order]
    return above(columns, position, inclusive=False)


def above(
    columns: Sequence[npt.NDArray[np.int64]], position: Sequence[int], *, inclusive: bool
) -> npt.NDArray[np.bool_]:
    """Compare tuples held in columns with one tuple."""
    result = np.full(len(columns[0]), inclusive)
    for column, value in zip(reversed(columns), reversed(position), strict=True):
        result = (column > value) | ((column == value) & result)
    return result


def as_int64(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    """A column of whole numbers, NULL as 0."""
    filled = pc.fill_null(column.cast(pa.int64()), 0)
    return np.asarray(
        filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy()
    )


def row_keys(rows: pa.Table, schema: Schema) -> pa.Array:
    """Keys of rows by their own columns."""
    names = schema.key or schema.names
    raw = rows.column(RAW).combine_chunks()
    values = [rows.column(name).combine_chunks() for name in names]
    found = keys.encode(values, [_raw_text(raw, name) for name in names], rows.num_rows)
    return found if schema.key else keys.digest(found)


def _old_keys(rows: pa.Table, schema: Schema) -> pa.Array:
    """Keys of the rows before the change; NULL if none was sent."""
    if OLD not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.binary())
    old = rows.column(OLD).combine_chunks()
    present = {field.name for field in old.type}
    names = schema.key or schema.names
    raw = rows.column(RAW).combine_chunks()
    columns = {column.name: column for column in schema.arrow()}
    values = [
        pc.struct_field(old, name) if name in present else pa.nulls(len(old), columns[name].type)
        for name in names
    ]
    found = keys.encode(
        values, [_raw_text(raw, OLD_PREFIX + name) for name in names], rows.num_rows
    )
    found = found if schema.key else keys.digest(found)
    return pc.if_else(pc.is_valid(old), found, pa.scalar(None, pa.binary()))


def _raw_text(raw: pa.Array, name: str) -> pa.Array | None:
    if raw.null_count == len(raw):
        return None
    return pc.map_lookup(raw, name, "first")


def fill_from_old(rows: pa.Table) -> pa.Table:
    """Take columns that were not sent from the old row, if it has them all."""
    if OLD not in rows.column_names or rows.column(UNCHANGED).null_count == rows.num_rows:
        return rows
    old = rows.column(OLD).combine_chunks()
    present = {field.name for field in old.type}
    unchanged = [set(names or ()) for names in rows.column(UNCHANGED).to_pylist()]
    has_old = pc.is_valid(old).to_pylist()
    fill = [
        names & present if valid else set() for names, valid in zip(unchanged, has_old, strict=True)
    ]
    if not any(fill):
        return rows
    for name in set().union(*fill):
        mask = pa.array([name in names for names in fill])
        filled = pc.if_else(mask, pc.struct_field(old, name), rows.column(name).combine_chunks())
        rows = rows.set_column(rows.column_names.index(name), name, filled)
    left = [sorted(a - b) or None for a, b in zip(unchanged, fill, strict=True)]
    rows = rows.set_column(
        rows.column_names.index(UNCHANGED), UNCHANGED, pa.array(left, NAMES_TYPE)
    )
    return _raw_from_old(rows, fill)


def _raw_from_old(rows: pa.Table, fill: list[set[str]]) -> pa.Table:
    raw = rows.column(RAW)
    if raw.null_count == rows.num_rows:
        return rows
    result = []
    for pairs, names in zip(raw.to_pylist(), fill, strict=True):
        texts = dict(pairs or ())
        texts.update({n: texts[OLD_PREFIX + n] for n in sorted(names) if OLD_PREFIX + n in texts})
        result.append(list(texts.items()) or None)
    return rows.set_column(rows.column_names.index(RAW), RAW, pa.array(result, RAW_TYPE))


def _removals(rows: pa.Table, old_keys: pa.Array, mask: pa.Array, schema: Schema) -> pa.Table:
    """Events that remove rows; they carry the key columns only."""
    rows, old_keys = rows.filter(mask), old_keys.filter(mask)
    blank = rows.select([name for name in rows.column_names if name in {*STAMPS, SOURCE}])
    if OLD in rows.column_names:
        old = rows.column(OLD).combine_chunks()
        present = {field.name for field in old.type}
        for name in (name for name in schema.key if name in present):
            blank = blank.append_column(name, pc.struct_field(old, name))
    actions = pa.array(np.zeros(rows.num_rows, dtype=np.int8))
    return _assemble(blank, old_keys, actions, 0, schema)


def _assemble(
    rows: pa.Table, row_keys: pa.Array, actions: pa.Array, sub: int, schema: Schema
) -> pa.Table:
    """Give rows the columns of events, NULL for those they lack."""
    given = {
        KEY: row_keys,
        SUB: pa.array(np.full(rows.num_rows, sub, dtype=np.int8)),
        ACTION: actions,
    }
    target = event_schema(schema)
    arrays = []
    for field in target:
        if field.name in given:
            arrays.append(given[field.name])
        elif field.name in rows.column_names:
            arrays.append(rows.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(arrays, schema=target)


def base_events(rows: pa.Table, row_keys: pa.Array, schema: Schema) -> pa.Table:
    """Turn rows of the current state into events that put them."""
    actions = pa.array(np.full(rows.num_rows, PUT, dtype=np.int8))
    return _assemble(rows, row_keys, actions, 1, schema)
