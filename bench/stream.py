"""Recordings of any shape, without a server: seeded rows in pgoutput, as a slot would send them.

A block of whole transactions is made row by row, and repeated at ever higher positions until the
recording has its size (see `recording.py`), so that many gigabytes take seconds.

    python bench/stream.py OUT [--tables N] [--columns N] [--rows N] [--open N] [--bytes N]
"""

import argparse
import dataclasses
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import corpus  # noqa: F401 - finds the package's test kit
import recording
from kit.uneven import uneven

from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.capture import CaptureHeader

_START: Final = 0x1000000
_TIME_US: Final = 820_000_000_000_000  # since 2000: in December 2025
_BLOCK_BYTES: Final = 8 << 20
_ROUNDS: Final = 3  # blocks of a transaction that is sent while it is open
_BODY: Final = 4 + 25  # in a frame: where the message begins
_TEXT: Final = 25
_TYPES: Final = (
    (20, -1), (23, -1), (25, -1), (701, -1), (1700, (12 << 16 | 2) + 4), (1184, -1), (16, -1),
    (1082, -1), (25, -1), (21, -1),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What a stream is made of.

    Attributes:
        tables: that change in turn, row by row.
        columns: of each table, of ten types in turn.
        rows: per transaction.
        open: transactions that are sent while they are open, their blocks in turn; 0 for whole
            transactions, one after the other.
        total: bytes of the recording, roughly.
    """

    tables: int = 1
    columns: int = 10
    rows: int = 1000
    open: int = 0
    total: int = 300_000_000


def _value(kind: int, rng: random.Random) -> bytes | None:
    is_text = _TYPES[kind % len(_TYPES)][0] == _TEXT
    text = uneven(rng, lambda chosen: _even(kind, chosen), is_text=is_text)
    return None if text is None else text.encode()


def _even(kind: int, rng: random.Random) -> str:
    number = rng.randrange(1_000_000)
    texts = (
        f"{number * 7919}", f"{number}", f"{number:032x}", f"{number / 7.0!r}", f"{number / 100:.2f}",
        f"2025-12-{number % 28 + 1:02} 10:11:12.{number:06}+00", "t" if number % 3 else "f",
        f"2025-{number % 12 + 1:02}-{number % 28 + 1:02}", f"category {number % 20}",
        f"{number % 30000}",
    )  # fmt: skip
    return texts[kind % len(_TYPES)]


def _frame(lsn: int, message: bytes) -> bytes:
    payload = b"w" + struct.pack(">QQq", lsn, lsn, _TIME_US) + message
    return struct.pack("<I", len(payload)) + payload


def _relation(table: int, columns: int) -> bytes:
    message = b"R" + struct.pack(">I", 16384 + table) + b"public\0" + b"t%d\0" % table + b"d"
    message += struct.pack(">H", columns)
    for column in range(columns):
        oid, modifier = _TYPES[column % len(_TYPES)]
        message += struct.pack(">B", column == 0) + b"c%d\0" % column
        message += struct.pack(">Ii", oid, modifier)
    return _frame(0, message)


def _row(table: int, columns: int, rng: random.Random) -> bytes:
    values = b"".join(
        b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value
        for value in (_value(column, rng) for column in range(columns))
    )
    return _frame(
        0, b"I" + struct.pack(">I", 16384 + table) + b"N" + struct.pack(">H", columns) + values
    )


def _begin(lsn: int, xid: int) -> bytes:
    return _frame(lsn, b"B" + struct.pack(">QqI", lsn, _TIME_US, xid))


def _commit(lsn: int) -> bytes:
    return _frame(lsn, b"C\0" + struct.pack(">QQq", lsn, lsn + 8, _TIME_US))


def _blocks(shape: Shape) -> Iterator[bytes]:
    """Rows of all tables in turn, endlessly; the same 4096 templates again and again."""
    rng = random.Random(20260131)
    wanted = max(2 * shape.tables, min(4096, _BLOCK_BYTES // (20 * shape.columns)))
    templates = [_row(number % shape.tables, shape.columns, rng) for number in range(wanted)]
    while True:
        yield from templates


def _header(shape: Shape) -> bytes:
    identity = SourceIdentity("postgresql", "1", "bench", "bench", "pgoutput")
    options = {"proto_version": "1", "tables": str(shape.tables)}
    if shape.open:
        options |= {"proto_version": "2", "streaming": "on"}
    return CaptureHeader(identity, 170000, 1, "UTF8", Lsn(_START), options, time.time()).to_bytes()


def write(path: Path, shape: Shape) -> int:
    """Write a recording; gives its rows."""
    if shape.open:
        return _write_open(path, shape)
    rows = _blocks(shape)
    head = _header(shape)
    relations = b"".join(_relation(table, shape.columns) for table in range(shape.tables))
    sample = sum(len(next(rows)) for _ in range(100)) // 100
    if shape.rows * sample > _BLOCK_BYTES:
        return _write_large(path, shape, head, relations, sample)
    parts: list[bytes] = []
    size = transactions = 0
    while size < _BLOCK_BYTES:
        lsn = _START + 1024 * (transactions + 1)
        parts.append(_begin(lsn, 1000 + transactions))
        parts.extend(next(rows) for _ in range(shape.rows))
        parts.append(_commit(lsn))
        size += shape.rows * sample + 120
        transactions += 1
    block = relations + b"".join(parts)
    times = max(1, shape.total // len(block))
    count = transactions * (shape.rows + 2) + shape.tables
    recording.write_repeated(path, head, block, count, times)
    return times * transactions * shape.rows


def _write_large(path: Path, shape: Shape, head: bytes, relations: bytes, sample: int) -> int:
    """One block is less than a transaction: the rows alone are repeated."""
    rows = _blocks(shape)
    per_block = max(1, min(shape.rows, _BLOCK_BYTES // sample))
    block = b"".join(next(rows) for _ in range(per_block))
    blocks = max(1, shape.rows // per_block)
    transactions = max(1, shape.total // (blocks * len(block)))
    size = count = 0
    with path.open("wb") as file:
        file.write(head)
        for number in range(transactions):
            lsn = _START + 1024 * (number + 1)
            first = (relations if number == 0 else b"") + _begin(lsn, 1000 + number)
            size += file.write(first)
            for _ in range(blocks):
                size += file.write(block)
            size += file.write(_commit(lsn))
            count += blocks * per_block + 2 + (shape.tables if number == 0 else 0)
        file.write(recording.TRAILER.pack(0, count, size))
    return transactions * blocks * per_block


def _write_open(path: Path, shape: Shape) -> int:
    """Blocks of `shape.open` transactions in turn, then their commits; again and again."""
    rows = _blocks(shape)
    size = count = done = 0
    lsn, first = _START, 1000

    def write_frames(file: BinaryIO, frames: list[bytes]) -> None:
        nonlocal size, count
        size += file.write(b"".join(frames))
        count += len(frames)

    with path.open("wb") as file:
        file.write(_header(shape))
        while size < shape.total:
            xids = range(first, first + shape.open)
            for part in range(_ROUNDS):
                for xid in xids:
                    lsn += 64
                    inside = [next(rows) for _ in range(shape.rows // _ROUNDS)]
                    if part == 0:
                        inside = [_relation(t, shape.columns) for t in range(shape.tables)] + inside
                    start = _frame(lsn, b"S" + struct.pack(">IB", xid, part == 0))
                    stop = _frame(lsn, b"E")
                    write_frames(file, [start, *(_inside(xid, frame) for frame in inside), stop])
            for xid in xids:
                lsn += 64
                done += shape.rows // _ROUNDS * _ROUNDS
                commit = struct.pack(">IBQQq", xid, 0, lsn, lsn + 8, _TIME_US)
                write_frames(file, [_frame(lsn, b"c" + commit)])
            first += shape.open
        file.write(recording.TRAILER.pack(0, count, size))
    return done


def _inside(xid: int, frame: bytes) -> bytes:
    """A framed message as it stands in a block: its transaction after its letter."""
    (length,) = struct.unpack_from("<I", frame)
    body = frame[4:_BODY], frame[_BODY : _BODY + 1], frame[_BODY + 1 :]
    return struct.pack("<I", length + 4) + body[0] + body[1] + struct.pack(">I", xid) + body[2]


def main() -> None:
    """Write one recording."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1000, help="per transaction")
    parser.add_argument("--open", type=int, default=0, help="transactions at once; 0: whole ones")
    parser.add_argument("--bytes", type=int, default=300_000_000)
    args = parser.parse_args()
    rows = write(args.out, Shape(args.tables, args.columns, args.rows, args.open, args.bytes))
    print(f"{args.out}: {rows} rows, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
