"""Reads decoded batches into plain Python values, for tests to compare.

Every offset is checked: aligned, inside the entry, and each list of offsets rising.
"""

import dataclasses
import enum
import itertools
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from twins.values import Interval

from gaussdecode.model.relation import Relation
from gaussdecode.model.types import ColumnType, Kind

ENTRY_MAGIC = 0x42444447
HEADER = struct.Struct("=IIQQIIQQQQ3Q18QII")
EVENT = struct.Struct("=BBHIIIQQQQQ")
PART = struct.Struct("=IIIIQQQQQQII")
COLUMN = struct.Struct("=BBHIQQQQIIQQQQ")
UNCHANGED = struct.Struct("=II")
MISFIT = struct.Struct("=IHHQQ")
OLD_COLUMN = 0x8000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a zone


class EventKind(enum.IntEnum):
    """Numbers of `EventKind` in the layout."""

    BEGIN = 1
    COMMIT = 2
    SEGMENT = 3
    TRUNCATE = 4
    MESSAGE = 5
    ORIGIN = 6
    KEEPALIVE = 7
    RELATION = 8
    CSN = 9
    NOTICE = 10
    HEARTBEAT = 11
    STREAM_START = 12
    STREAM_COMMIT = 13
    STREAM_ABORT = 14
    PREPARE = 15
    COMMIT_PREPARED = 16
    ROLLBACK_PREPARED = 17
    LARGE_ROW = 18
    TAKEN_BACK = 19


@dataclasses.dataclass(frozen=True)
class Event:
    """One event; fields as in the layout."""

    kind: EventKind
    flags: int
    index: int
    first_row: int
    row_count: int
    x: int
    y: int
    z: int
    payload: bytes


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows of one relation version, column by column.

    Attributes:
        columns: new values; None is NULL.
        old_columns: identity values, empty when no row has an old tuple.
        unchanged: (row, column) of values not sent.
        misfits: text by (row, column); old values have column + `OLD_COLUMN`.
    """

    version: int
    row_count: int
    columns: list[list[Any]]  # Any: a value of the column's kind
    old_columns: list[list[Any]]
    ops: bytes
    old_present: bytes
    key_changed: bytes
    unchanged: list[tuple[int, int]]
    misfits: dict[tuple[int, int], str]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One decoded batch; tallies as `kit.wire.tally` counts."""

    kind: int
    dispatch_seq: int
    wire_bytes: int
    row_count: int
    events: list[Event]
    parts: list[Part]
    framed: tuple[int, ...] = ()
    filtered: tuple[int, ...] = ()
    before_start: tuple[int, ...] = ()
    moments: tuple[int, ...] = (0, 0, 0)

    def rows(self) -> list[tuple[int, int, str]]:
        """(version, row in its part, operation) in wire order, by way of the segments."""
        listed = []
        for event in self.events:
            if event.kind is EventKind.SEGMENT:
                part = self.parts[event.index]
                last = event.first_row + event.row_count
                listed += [
                    (part.version, row, chr(part.ops[row])) for row in range(event.first_row, last)
                ]
        return listed


def read_entry(data: bytes, types: Mapping[int, list[ColumnType] | Relation]) -> Entry:
    """Read a decoded batch.

    Args:
        data: all of it.
        types: of the columns, by relation version; a relation where there are old
            decimals, whose scale only it can tell.
    """
    return _Reader(data, types).entry()


class _Reader:
    def __init__(self, data: bytes, types: Mapping[int, list[ColumnType] | Relation]) -> None:
        self.data = data
        self.types = types

    def block(self, offset: int, size: int) -> bytes:
        assert 0 <= offset <= len(self.data) - size
        return self.data[offset : offset + size]

    def aligned(self, offset: int, size: int) -> bytes:
        assert offset % 8 == 0
        return self.block(offset, size)

    def entry(self) -> Entry:
        (magic, kind, seq, size, event_count, part_count, event_offset, part_offset, wire_bytes,
         row_count, *rest) = HEADER.unpack(self.block(0, HEADER.size))  # fmt: skip
        assert (magic, size) == (ENTRY_MAGIC, len(self.data))
        assert size % 8 == 0
        events = [
            self.event(event)
            for event in EVENT.iter_unpack(self.aligned(event_offset, event_count * EVENT.size))
        ]
        parts = [
            self.part(part)
            for part in PART.iter_unpack(self.aligned(part_offset, part_count * PART.size))
        ]
        assert row_count == sum(part.row_count for part in parts)
        moments, sums, (stream_xid, block) = tuple(rest[:3]), rest[3:-2], rest[-2:]
        assert (block != 0) == (stream_xid != 0)
        framed, filtered, before_start = (tuple(sums[at : at + 6]) for at in (0, 6, 12))
        return Entry(
            kind, seq, wire_bytes, row_count, events, parts, framed, filtered, before_start, moments
        )

    def event(self, fields: tuple[int, ...]) -> Event:
        kind, flags, reserved, index, first_row, row_count, x, y, z, offset, size = fields
        assert reserved == 0
        payload = self.block(offset, size)
        return Event(EventKind(kind), flags, index, first_row, row_count, x, y, z, payload)

    def part(self, fields: tuple[int, ...]) -> Part:
        (version, rows, new_count, old_count, column_offset, op_offset, old_present_offset,
         key_changed_offset, unchanged_offset, misfit_offset, unchanged_count,
         misfit_count) = fields  # fmt: skip
        headers = list(
            COLUMN.iter_unpack(self.aligned(column_offset, COLUMN.size * (new_count + old_count)))
        )
        types = self.types[version]
        old_types: list[ColumnType | None] = [None] * old_count
        if isinstance(types, Relation):
            if old_count:
                old_types = [each.type for each in types.columns if each.is_identity]
            types = [each.type for each in types.columns]
        assert new_count == len(types)
        unchanged = self.aligned(unchanged_offset, unchanged_count * UNCHANGED.size)
        misfits = self.aligned(misfit_offset, misfit_count * MISFIT.size)
        listed = [(row, column) for row, column in UNCHANGED.iter_unpack(unchanged)]
        assert listed == sorted(set(listed))
        kept = list(MISFIT.iter_unpack(misfits))
        assert [misfit[0] for misfit in kept] == sorted(misfit[0] for misfit in kept)
        return Part(
            version,
            rows,
            [self.column(*pair, rows) for pair in zip(headers[:new_count], types, strict=True)],
            [self.column(*pair, rows) for pair in zip(headers[new_count:], old_types, strict=True)],
            self.aligned(op_offset, rows),
            self.aligned(old_present_offset, rows) if old_count else b"",
            self.aligned(key_changed_offset, rows) if key_changed_offset else b"",
            listed,
            {
                (row, column): self.block(offset, size).decode()
                for row, column, _, offset, size in kept
            },
        )

    def column(self, header: tuple[int, ...], held: ColumnType | None, rows: int) -> list[Any]:
        (kind, element, _, null_count, validity_offset, offsets_offset, data_offset, data_size,
         child_count, child_null_count, child_validity_offset, child_offsets_offset,
         child_data_offset, child_data_size) = header  # fmt: skip
        if held is not None:
            assert (kind, element) == (held.kind, held.element or 0)
        scale = held.scale if held is not None else 0
        if kind == Kind.LIST:
            child = self.values(
                Kind(element), scale, child_count, child_null_count, child_validity_offset,
                child_offsets_offset, child_data_offset, child_data_size,
            )  # fmt: skip
            ends = self.offsets(offsets_offset, rows, child_count)
            whole = [child[start:end] for start, end in itertools.pairwise(ends)]
            return self.masked(whole, rows, null_count, validity_offset)
        return self.values(
            Kind(kind), scale, rows, null_count, validity_offset, offsets_offset, data_offset,
            data_size,
        )  # fmt: skip

    def values(
        self, kind: Kind, scale: int, count: int, null_count: int, validity_offset: int,
        offsets_offset: int, data_offset: int, data_size: int,
    ) -> list[Any]:  # fmt: skip
        data = self.aligned(data_offset, data_size)
        cut: list[bytes]
        if kind in (Kind.STRING, Kind.BINARY):
            ends = self.offsets(offsets_offset, count, data_size) if count or data_size else [0]
            cut = [data[start:end] for start, end in itertools.pairwise(ends)]
        else:
            width = _WIDTHS[kind]
            assert data_size == count * width
            cut = [data[index * width : (index + 1) * width] for index in range(count)]
        valid = self.validity(count, null_count, validity_offset)
        values = [
            _VALUES[kind](part, scale) if is_valid else None
            for part, is_valid in zip(cut, valid, strict=True)
        ]
        assert all(valid[index] or not any(part) for index, part in enumerate(cut))
        return values

    def masked(self, values: list[Any], count: int, null_count: int, offset: int) -> list[Any]:
        valid = self.validity(count, null_count, offset)
        return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]

    def validity(self, count: int, null_count: int, offset: int) -> bytes:
        if null_count == 0:
            return b"\1" * count
        valid = self.aligned(offset, count)
        assert set(valid) <= {0, 1}
        assert valid.count(0) == null_count
        return valid

    def offsets(self, offset: int, count: int, last: int) -> list[int]:
        ends = list(struct.unpack(f"={count + 1}i", self.aligned(offset, 4 * (count + 1))))
        assert ends[0] == 0
        assert ends[-1] == last
        assert ends == sorted(ends)
        return ends


def _integer(data: bytes, _: int) -> int:
    return int.from_bytes(data, "little", signed=True)


def _decimal(data: bytes, scale: int) -> Decimal:
    return Decimal(f"{int.from_bytes(data, 'little', signed=True)}e{-scale}")


def _moment(data: bytes, _: int) -> datetime:
    return _EPOCH + timedelta(microseconds=_integer(data, 0))


_WIDTHS: dict[Kind, int] = {
    Kind.BOOL: 1, Kind.INT16: 2, Kind.INT32: 4, Kind.INT64: 8, Kind.FLOAT32: 4, Kind.FLOAT64: 8,
    Kind.DECIMAL: 16, Kind.DATE: 4, Kind.TIMESTAMP: 8, Kind.TIMESTAMPTZ: 8, Kind.INTERVAL: 16,
}  # fmt: skip

_VALUES: dict[Kind, Callable[[bytes, int], Any]] = {
    Kind.BOOL: lambda data, _: {0: False, 1: True}[data[0]],
    Kind.INT16: _integer,
    Kind.INT32: _integer,
    Kind.INT64: _integer,
    Kind.FLOAT32: lambda data, _: struct.unpack("<f", data)[0],
    Kind.FLOAT64: lambda data, _: struct.unpack("<d", data)[0],
    Kind.DECIMAL: _decimal,
    Kind.DATE: lambda data, _: date(1970, 1, 1) + timedelta(days=_integer(data, 0)),
    Kind.TIMESTAMP: _moment,
    Kind.TIMESTAMPTZ: lambda data, _: _moment(data, 0).replace(tzinfo=UTC),
    Kind.STRING: lambda data, _: data.decode(),
    Kind.BINARY: lambda data, _: data,
    Kind.INTERVAL: lambda data, _: Interval(*struct.unpack("<iiq", data)),
}
