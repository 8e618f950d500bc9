"""Recordings of a GaussDB stream in style b and batches, without a server.

The transactions of `kit.gaussload`, and the answer that a catalogue would have given when the
first row came.
"""

import dataclasses
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import corpus  # noqa: F401 - finds the package's test kit
import recording
from kit.gaussload import Load, columns_of
from kit.gausstypes import parse_type

from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.capture import CaptureHeader, Style
from gaussdecode.source.catalog import CatalogColumn, CatalogTable


def _column(number: int, name: str, kind: str) -> CatalogColumn:
    spec = parse_type(kind)
    is_key = name == "id"
    return CatalogColumn(
        name, number, "text" in kind or "varchar" in kind, kind, is_key, False,
        0 if is_key else None, spec.oid, spec.modifier,
    )  # fmt: skip


def _answer(columns: int) -> bytes:
    """What a catalogue says of the table, as a recording has it."""
    found = [
        _column(number, name, kind)
        for number, (name, kind) in enumerate(columns_of(columns).items(), start=1)
    ]
    table = CatalogTable(16384, "public", "load", "r", "d", tuple(found))
    record = {"schema": "public", "name": "load", "table": dataclasses.asdict(table)}
    return b"T" + json.dumps(record).encode()


def _payloads(data: memoryview) -> Iterator[memoryview]:
    """What CopyData messages hold."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at + 1)
        yield data[at + 5 : at + 1 + size]
        at += 1 + size


def _header() -> bytes:
    identity = SourceIdentity("gaussdb", "1", "bench", "load", "")
    options = {"parallel-decode-num": "2", "decode-style": "b", "sending-batch": "1"}
    style = Style("b", is_batched=True, hides_truncate=True)
    return CaptureHeader(identity, 60000, 1, "UTF8", Lsn(1), options, time.time(), style).to_bytes()


def write(path: Path, columns: int, row_bytes: int, cycle_bytes: int, cycles: int) -> int:
    """Write a recording; gives its rows."""
    load = Load(columns, row_bytes, cycle_bytes=cycle_bytes)
    size = count = 0
    with path.open("wb") as file:
        file.write(_header())

        def add(payload: bytes | memoryview) -> None:
            nonlocal size, count
            size += file.write(struct.pack("<I", len(payload))) + file.write(payload)
            count += 1

        add(_answer(columns))
        buffers = load.buffers()
        for _ in range(cycles):
            for payload in _payloads(next(buffers)):
                add(payload)
        file.write(recording.TRAILER.pack(0, count, size))
    return load.cycle_rows * cycles
