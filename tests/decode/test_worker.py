"""A decoder process between two rings."""

import contextlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kit import wire
from kit.decoded import HEADER, read_entry

from gaussdecode.decode._decoder import DecoderLoop
from gaussdecode.errors import ChildError, WireError, from_record
from gaussdecode.ipc.control import Control
from gaussdecode.ipc.process import Child, spawn_child
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.types import ColumnType, Kind

TYPES = [ColumnType(Kind.INT64), ColumnType(Kind.STRING)]
RELATION = wire.relation(TYPES)
PATIENCE = 30.0  # seconds; a hang guard, not a promise
END = 1
ERROR = 2


class Rig:
    """One decoder process, with the test at both of its ends."""

    def __init__(self) -> None:
        self.raw = Ring.create(1 << 20, 16)
        self.decoded = Ring.create(1 << 20, 16)
        self.control = Control.create()
        raw_fds, decoded_fds = self.raw.consumer_fds(), self.decoded.producer_fds()
        settings = {
            "raw_ring_fds": raw_fds,
            "decoded_ring_fds": decoded_fds,
            "control_fd": self.control.fd,
            "decoder_index": 3,
            "kept_buffer_bytes": 16 << 20,
            "max_row_bytes": 1 << 30,
            "defers_large_rows": False,
        }
        self.child: Child = spawn_child("gaussdecode.decode.worker", settings)
        self.raw.close_consumer_side()
        self.decoded.close_producer_side()

    def put(self, raw: bytes) -> None:
        """Hand over one raw batch."""
        assert self.raw.put_bytes(raw, PATIENCE)

    def get(self) -> bytes:
        """Take one decoded batch."""
        entry = self.decoded.get_bytes(PATIENCE)
        assert entry is not None
        return entry

    def status(self) -> int | None:
        """Wait for the end of the process."""
        return self.child.wait(PATIENCE)

    def error(self) -> Exception:
        """What the process reported when it failed."""
        reports: list[dict[str, Any]] = []  # Any: JSON
        os.set_blocking(self.child.report_fd, True)
        while self.child.report_fd >= 0:
            reports += self.child.reports()
        (failure,) = [report for report in reports if report["kind"] == "error"]
        return from_record(failure["error"])

    def close(self) -> None:
        """End it whatever happened."""
        self.child.kill()
        self.child.close_reports()
        self.raw.close()
        self.decoded.close()
        self.control.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A running decoder process."""
    with contextlib.closing(Rig()) as made:
        yield made


def test_batches_keep_their_order_and_number(rig: Rig) -> None:
    """Every raw batch gives one decoded batch with its dispatch sequence."""
    for seq in range(10):
        rig.put(
            wire.raw_batch(
                [wire.insert([str(seq), "x" * seq])], [RELATION] if seq == 0 else [], seq=seq
            )
        )
    for seq in range(10):
        entry = read_entry(rig.get(), {1: TYPES})
        assert (entry.dispatch_seq, entry.parts[0].columns) == (seq, [[seq], ["x" * seq]])


def test_a_batch_says_when_it_was_decoded(rig: Rig) -> None:
    """By the clock that all processes share, beside the moment that came with it."""
    before = time.monotonic_ns()
    rig.put(wire.raw_batch([wire.begin()], seq=0, opened_ns=77))
    opened, taken, decoded = read_entry(rig.get(), {}).moments
    assert opened == 77
    assert before < taken < decoded < time.monotonic_ns()


def test_end_is_passed_on(rig: Rig) -> None:
    """The end of the stream comes out as the last entry, and the process ends well."""
    rig.put(wire.raw_batch([wire.begin()], seq=4))
    rig.put(wire.raw_batch([], seq=5, kind=wire.END))
    assert read_entry(rig.get(), {}).kind == wire.DATA
    last = read_entry(rig.get(), {})
    assert (last.kind, last.dispatch_seq, last.events) == (END, 5, [])
    assert rig.status() == 0


def test_batch_larger_than_the_ring_passes(rig: Rig) -> None:
    """A row larger than both rings goes through in pieces."""
    text = "y" * (3 << 20)
    held = wire.raw_batch([wire.insert(["1", text])], [RELATION])
    state = rig.raw.put_bytes(held, 0.0)
    while not state:
        state = rig.raw.put_bytes(held, 0.5)
    assert read_entry(rig.get(), {1: TYPES}).parts[0].columns[1] == [text]


def test_bad_bytes_are_told_in_place(rig: Rig) -> None:
    """A batch that breaks the format becomes an error entry, and status 76."""
    rig.put(wire.raw_batch([wire.begin()], seq=0))
    rig.put(wire.raw_batch([b"?"], seq=1, place=(0x3000, 77)))
    rig.get()
    entry = rig.get()
    header = HEADER.unpack_from(entry)
    assert (header[1], header[2], header[3]) == (ERROR, 1, len(entry))
    told = from_record(json.loads(entry[HEADER.size :]))
    assert isinstance(told, WireError)
    assert str(told).endswith("near 0/3000, in transaction 77")
    assert rig.status() == os.EX_PROTOCOL
    assert str(rig.error()) == str(told)


def test_reader_that_dies_is_an_error(rig: Rig) -> None:
    """End of file without the end of the stream: what came is decoded, then status 70."""
    rig.put(wire.raw_batch([wire.begin()], seq=0))
    rig.raw.close_producer_side()
    rig.get()
    assert rig.status() == os.EX_SOFTWARE
    assert isinstance(rig.error(), ChildError)


def test_collector_that_dies_is_an_error(rig: Rig) -> None:
    """Nobody takes the result: status 70, not a wait for ever."""
    rig.decoded.close_consumer_side()
    rig.put(wire.raw_batch([wire.begin()], seq=0))
    assert rig.status() == os.EX_SOFTWARE
    assert isinstance(rig.error(), ChildError)


@pytest.mark.parametrize(("kept", "released"), [(1 << 20, 0), (4096, 10), (1, 11)])
def test_a_result_above_what_is_kept_is_released(kept: int, released: int) -> None:
    """The product of the two buffer options says which results give their memory back."""
    raw, decoded = Ring.create(1 << 20, 64), Ring.create(1 << 20, 64)
    control = Control.create()
    loop = DecoderLoop(raw, decoded, control, 0, kept)
    for seq in range(10):
        text = "x" * 5000
        relations = [RELATION] if seq == 0 else []
        assert raw.put_bytes(wire.raw_batch([wire.insert([str(seq), text])], relations, seq=seq), 0)
    assert raw.put_bytes(wire.raw_batch([], seq=10, kind=wire.END), 0)
    loop.run()
    assert loop.release_count == released
    for seq in range(10):
        entry = decoded.get_bytes(0)
        assert entry is not None
        assert read_entry(entry, {1: TYPES}).parts[0].columns[0] == [seq]
    for ring in (raw, decoded):
        ring.close()
    control.close()


def test_counters_reach_the_control_block(rig: Rig) -> None:
    """Rows, bytes, batches and misfits stand in the words of this decoder."""
    messages = [wire.insert(["1", "a"]), wire.insert(["no", b"\xff"])]
    rig.put(wire.raw_batch(messages, [RELATION]))
    rig.put(wire.raw_batch([], seq=1, kind=wire.END))
    assert rig.status() == 0
    words = rig.control.decoder_snapshot(3)
    assert words["batches"] == 2
    assert words["rows"] == 2
    assert words["misfits"] == 2
    assert words["wire_bytes"] == sum(len(struct.pack("=I", 0) + each) for each in messages)
    assert words["heartbeat_ns"] > 0


def test_no_arrow_in_a_decoder() -> None:
    """The process stays small: importing it brings no pyarrow and no numpy."""
    source = "import sys, gaussdecode.decode.worker; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0
