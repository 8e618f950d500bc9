"""Make Arrow tables of row groups: the columns of a table and the columns that the landing adds.

It builds arrays around the memory of an accumulator. It copies bits, intervals and the rare lists,
and nothing else. It knows no files and no transactions.
"""

import functools
from collections.abc import Container, Sequence
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gaussdecode.collect._columns import OwnedMemory
from gaussdecode.collect.ddl import DDL_TYPE, ddl_columns
from gaussdecode.model.relation import Column
from gaussdecode.model.types import ColumnType, Kind

OLD_COLUMN: Final = 0x8000  # `_layout.pxd`: the value is of the old tuple
OLD_PREFIX: Final = "old."
_INTERVAL: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("micros", "<i8")])
_TIMESTAMPTZ: Final = pa.timestamp("us", tz="UTC")
_SIMPLE: Final[dict[Kind, pa.DataType]] = {
    Kind.BOOL: pa.bool_(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: _TIMESTAMPTZ,
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.INTERVAL: pa.struct(
        [("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())]
    ),
}
_NAMES: Final = pa.list_(pa.field("element", pa.string(), nullable=False))
_RAW: Final = pa.map_(pa.string(), pa.string())
GD_FIELDS: Final[tuple[pa.Field, ...]] = (
    pa.field("gd_op", pa.string(), nullable=False),
    pa.field("gd_epoch", pa.int32(), nullable=False),
    pa.field("gd_lsn", pa.int64(), nullable=False),
    pa.field("gd_seq", pa.int64(), nullable=False),
    pa.field("gd_csn", pa.int64()),
    pa.field("gd_xid", pa.int64()),
    pa.field("gd_ts", _TIMESTAMPTZ),
    pa.field("gd_change_lsn", pa.int64()),
    pa.field("gd_unchanged", _NAMES),
)
_STAMPS: Final = ("gd_epoch", "gd_lsn", "gd_seq", "gd_csn", "gd_xid", "gd_ts", "gd_change_lsn")
SOURCE_FIELD: Final = pa.field("gd_source", pa.string(), nullable=False)
"""Column of the source; only with several sources."""
TRANSACTIONS: Final = "gd_transactions"
MESSAGES: Final = "gd_messages"
DDL: Final = "gd_ddl"
_BY_NAME: Final = {field.name: field for field in GD_FIELDS}
SYSTEM_COLUMNS: Final[dict[str, tuple[tuple[str, ColumnType], ...]]] = {
    TRANSACTIONS: (
        ("origin", ColumnType(Kind.STRING)),
        ("user", ColumnType(Kind.STRING)),
        ("rows", ColumnType(Kind.INT64)),
        ("gd_first_lsn", ColumnType(Kind.INT64)),
        ("gd_commit_lsn", ColumnType(Kind.INT64)),
        ("gd_gid", ColumnType(Kind.STRING)),
    ),
    MESSAGES: (
        ("transactional", ColumnType(Kind.BOOL)),
        ("prefix", ColumnType(Kind.STRING)),
        ("content", ColumnType(Kind.BINARY)),
    ),
    DDL: (("content", ColumnType(Kind.BINARY)),),
}
"""What an accumulator of each system table holds; the other columns of `DDL` are read from the content."""

Child = tuple[OwnedMemory | None, OwnedMemory | None, OwnedMemory, int, int]
Taken = tuple[OwnedMemory | None, OwnedMemory | None, OwnedMemory | None, int, Child | None]


class Rows(TypedDict):
    """The result of ``Accumulator.take``; see there."""

    rows: int
    op: OwnedMemory
    lsn: OwnedMemory
    seq: OwnedMemory
    csn: OwnedMemory | None
    xid: OwnedMemory
    time_us: OwnedMemory
    change_lsn: OwnedMemory | None
    new: list[Taken]
    old: list[Taken] | None
    old_present: OwnedMemory | None
    unchanged: OwnedMemory
    misfits: OwnedMemory
    misfit_offsets: OwnedMemory
    misfit_text: OwnedMemory
    ops: dict[str, int]
    has_key_change: bool


@functools.lru_cache(4096)
def arrow_type(column: ColumnType) -> pa.DataType:
    """Name the Arrow type that holds a column; none of them is unreadable for Spark."""
    if column.kind is Kind.DECIMAL:
        return pa.decimal128(column.precision, column.scale)
    if column.kind is Kind.LIST:
        return pa.list_(pa.field("element", _element_type(column)))
    return _SIMPLE[column.kind]


def _element_type(column: ColumnType) -> pa.DataType:
    if column.element is Kind.DECIMAL:
        return pa.decimal128(column.precision, column.scale)
    assert column.element is not None
    return _SIMPLE[column.element]


def table_schema(
    columns: Sequence[Column], names: Sequence[str], skipped: Container[int] = ()
) -> pa.Schema:
    """Schema of a table's files.

    Args:
        columns: columns of the relation.
        names: names of the columns in the files.
        skipped: index of every column that stands in ``gd_old`` only.
    """
    fields = [
        pa.field(name, arrow_type(column.type)) for name, column in zip(names, columns, strict=True)
    ]
    identity = [field for field, column in zip(fields, columns, strict=True) if column.is_identity]
    return file_schema([f for index, f in enumerate(fields) if index not in skipped], identity)


def file_schema(fields: Sequence[pa.Field], identity: Sequence[pa.Field]) -> pa.Schema:
    """Schema of a table's files.

    Args:
        fields: its columns, as they are called in the files.
        identity: those of ``gd_old``.
    """
    old = [pa.field("gd_old", pa.struct(identity))] if identity else []
    return pa.schema([*GD_FIELDS, *old, pa.field("gd_raw", _RAW), *fields])


def system_schema(table: str) -> pa.Schema:
    """Schema of a system table."""
    stamps = [_BY_NAME[name] for name in _STAMPS]
    if table == MESSAGES:
        stamps[_STAMPS.index("gd_seq")] = pa.field("gd_seq", pa.int64())
    elif table == TRANSACTIONS:
        stamps = [field for field in stamps if field.name not in ("gd_seq", "gd_change_lsn")]
    read = list(DDL_TYPE) if table == DDL else []
    fields = [pa.field(name, arrow_type(column)) for name, column in SYSTEM_COLUMNS[table]]
    return pa.schema([*stamps, *read, *fields])


def with_source(schema: pa.Schema) -> pa.Schema:
    """The same, and which source a row is of, after its epoch."""
    return schema.insert(schema.get_field_index("gd_epoch") + 1, SOURCE_FIELD)


def _buffer(memory: OwnedMemory | None) -> pa.Buffer | None:
    if memory is None:
        return None
    view = memoryview(memory)
    return pa.py_buffer(view) if view.nbytes else pa.py_buffer(b"")


def _interval(rows: int, validity: pa.Buffer | None, data: OwnedMemory, nulls: int) -> pa.Array:
    """Split 16-byte intervals into the three children of their struct."""
    values = np.frombuffer(memoryview(data), dtype=_INTERVAL, count=rows)
    assert _INTERVAL.names is not None
    children = [pa.array(np.ascontiguousarray(values[name])) for name in _INTERVAL.names]
    return pa.Array.from_buffers(_SIMPLE[Kind.INTERVAL], rows, [validity], nulls, children=children)


def _plain(kind: Kind, of: pa.DataType, rows: int, taken: Taken | Child) -> pa.Array:
    validity, offsets, data, nulls = taken[:4]
    assert data is not None
    if kind is Kind.INTERVAL:
        return _interval(rows, _buffer(validity), data, nulls)
    buffers = [_buffer(validity), _buffer(data)]
    if offsets is not None:
        buffers.insert(1, _buffer(offsets))
    return pa.Array.from_buffers(of, rows, buffers, nulls)


def column_array(column: ColumnType, rows: int, taken: Taken) -> pa.Array:
    """Build one column around its memory."""
    if column.kind is not Kind.LIST:
        return _plain(column.kind, arrow_type(column), rows, taken)
    validity, offsets, _, nulls, child = taken
    assert child is not None
    assert column.element is not None
    elements = _plain(column.element, _element_type(column), child[4], child)
    return pa.Array.from_buffers(
        arrow_type(column), rows, [_buffer(validity), _buffer(offsets)], nulls, children=[elements]
    )


def _offsets(rows: int, of_rows: npt.NDArray[np.uint32]) -> tuple[list[pa.Buffer], int]:
    """Validity and offsets of a list column of which most rows are NULL."""
    counts = np.bincount(of_rows, minlength=rows)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    validity = np.packbits(counts > 0, bitorder="little")
    return [pa.py_buffer(validity), pa.py_buffer(offsets)], int((counts == 0).sum())


def _pairs(memory: OwnedMemory) -> npt.NDArray[np.uint32]:
    view = memoryview(memory)
    if not view.nbytes:
        return np.empty((0, 2), dtype=np.uint32)
    return np.frombuffer(view, dtype=np.uint32).reshape(-1, 2)


def unchanged_array(
    rows: int, memory: OwnedMemory, names: Sequence[str], skipped: Sequence[int] = ()
) -> pa.Array:
    """``gd_unchanged``: the names of the TOAST columns that were not sent."""
    pairs = _pairs(memory)
    if skipped:
        pairs = pairs[~np.isin(pairs[:, 1], skipped)]
    if not len(pairs):
        return pa.nulls(rows, _NAMES)
    buffers, nulls = _offsets(rows, pairs[:, 0])
    values = pa.array(list(names), pa.string()).take(pa.array(pairs[:, 1]))
    return pa.Array.from_buffers(_NAMES, rows, buffers, nulls, children=[values])


def raw_array(taken: Rows, names: Sequence[str], skipped: Sequence[int] = ()) -> pa.Array:
    """``gd_raw``: the original text of values that do not fit, by column."""
    rows = taken["rows"]
    pairs = _pairs(taken["misfits"])
    if not len(pairs):
        return pa.nulls(rows, _RAW)
    texts = pa.Array.from_buffers(
        pa.string(),
        len(pairs),
        [None, _buffer(taken["misfit_offsets"]), _buffer(taken["misfit_text"])],
        0,
    )
    if skipped:
        is_kept = ~np.isin(pairs[:, 1], skipped)
        pairs, texts = pairs[is_kept], texts.filter(pa.array(is_kept))
    buffers, nulls = _offsets(rows, pairs[:, 0])
    keys = pa.array([*names, *(OLD_PREFIX + name for name in names)], pa.string())
    index = (pairs[:, 1] & (OLD_COLUMN - 1)) + (pairs[:, 1] // OLD_COLUMN) * len(names)
    entries = pa.StructArray.from_arrays(
        [keys.take(pa.array(index)), texts], fields=[_RAW.key_field, _RAW.item_field]
    )
    return pa.Array.from_buffers(_RAW, rows, buffers, nulls, children=[entries])


def _old_array(taken: Rows, columns: Sequence[Column], of: pa.DataType) -> pa.Array:
    """``gd_old``: the identity's columns as they were, NULL where none were sent."""
    rows = taken["rows"]
    if taken["old"] is None:
        return pa.nulls(rows, of)
    identity = [column for column in columns if column.is_identity]
    children = [
        column_array(column.type, rows, old)
        for column, old in zip(identity, taken["old"], strict=True)
    ]
    return pa.Array.from_buffers(of, rows, [_buffer(taken["old_present"])], children=children)


def _stamps(taken: Rows, epoch: int, *, with_xid: bool, with_time: bool) -> dict[str, pa.Array]:
    """Build the columns that every row has, by name."""
    rows = taken["rows"]
    int64 = pa.int64()

    def fixed(name: str, of: pa.DataType, *, has_gaps: bool = False) -> pa.Array:
        memory: Any = taken[name]  # type: ignore[literal-required]  # Any: one of the buffers
        if memory is None:
            return pa.nulls(rows, of)
        validity, nulls = _sent(memory) if has_gaps else (None, 0)
        return pa.Array.from_buffers(of, rows, [validity, _buffer(memory)], nulls)

    return {
        "gd_epoch": pa.array(np.full(rows, epoch, dtype=np.int32)),
        "gd_lsn": fixed("lsn", int64),
        "gd_seq": fixed("seq", int64),
        "gd_csn": fixed("csn", int64, has_gaps=True),
        "gd_xid": fixed("xid", int64, has_gaps=True) if with_xid else pa.nulls(rows, int64),
        "gd_ts": fixed("time_us", _TIMESTAMPTZ, has_gaps=True)
        if with_time
        else pa.nulls(rows, _TIMESTAMPTZ),
        "gd_change_lsn": fixed("change_lsn", int64, has_gaps=True),
    }


def _sent(memory: OwnedMemory) -> tuple[pa.Buffer | None, int]:
    """Validity of a column in which 0 means that the source did not say."""
    present = np.frombuffer(memoryview(memory), dtype=np.int64) != 0
    if present.all():
        return None, 0
    return pa.py_buffer(np.packbits(present, bitorder="little")), int((~present).sum())


def _op_array(taken: Rows) -> pa.Array:
    """One letter per row: the bytes are the values, the offsets count."""
    rows = taken["rows"]
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, _buffer(taken["op"])], 0)


def table_rows(
    taken: Rows,
    schema: pa.Schema,
    columns: Sequence[Column],
    names: Sequence[str],
    epoch: int,
    *,
    with_xid: bool,
    with_time: bool,
    source: str | None = None,
) -> pa.Table:
    """Build a row group of a table.

    Args:
        taken: rows taken from the accumulator.
        schema: schema of `table_schema`; columns that it leaves out do not land.
        columns: columns of the relation.
        names: names of the columns in the files.
        epoch: epoch of the source.
        with_xid: else ``gd_xid`` is NULL (``include-xids: false``).
        with_time: else ``gd_ts`` is NULL (``include-timestamp: false``).
        source: source of the rows, where the schema has it.
    """
    rows = taken["rows"]
    arrays = _stamps(taken, epoch, with_xid=with_xid, with_time=with_time)
    arrays |= _source_of(rows, source)
    arrays["gd_op"] = _op_array(taken)
    landed = frozenset(schema.names)
    skipped = [index for index, name in enumerate(names) if name not in landed]
    arrays["gd_unchanged"] = unchanged_array(rows, taken["unchanged"], names, skipped)
    arrays["gd_raw"] = raw_array(taken, names, skipped)
    if "gd_old" in schema.names:
        arrays["gd_old"] = _old_array(taken, columns, schema.field("gd_old").type)
    for name, column, new in zip(names, columns, taken["new"], strict=True):
        if name in landed:
            arrays[name] = column_array(column.type, rows, new)
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _source_of(rows: int, source: str | None) -> dict[str, pa.Array]:
    return {} if source is None else {SOURCE_FIELD.name: pa.repeat(pa.scalar(source), rows)}


def system_rows(
    table: str,
    taken: Rows,
    epoch: int,
    *,
    with_xid: bool,
    with_time: bool,
    source: str | None = None,
) -> pa.Table:
    """Build a row group of a system table."""
    rows = taken["rows"]
    schema = system_schema(table) if source is None else with_source(system_schema(table))
    arrays = _stamps(taken, epoch, with_xid=with_xid, with_time=with_time)
    arrays |= _source_of(rows, source)
    if table == MESSAGES:
        _blank_outside(arrays)
    for (name, column), new in zip(SYSTEM_COLUMNS[table], taken["new"], strict=True):
        arrays[name] = column_array(column, rows, new)
    if table == DDL:
        arrays |= ddl_columns(arrays["content"])
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _blank_outside(arrays: dict[str, pa.Array]) -> None:
    """A message outside of a transaction has no number in it."""
    seq = arrays["gd_seq"].to_numpy(zero_copy_only=False)
    outside = seq < 0
    if not outside.any():
        return
    arrays["gd_seq"] = pa.array(seq, mask=outside)
