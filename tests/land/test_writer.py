"""The writer: one entry per word, files as few as possible, and no thread that dies in silence."""

import dataclasses
import errno
import io
import random
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.landrun import COLUMNS, IDENTITY, SCHEMA, row_group
from kit.simdisk import SimFiles

from gaussdecode.errors import AccountError, DiskError, GaussDecodeError, SupersededError
from gaussdecode.land import lanes, writer, writer_state
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.compaction import compact
from gaussdecode.land.encodings import SmallOptions
from gaussdecode.land.failpoints import Operation
from gaussdecode.land.files import Files
from gaussdecode.land.lanes import Lanes
from gaussdecode.land.parquet import ParquetSink, operations
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.tablefile import OpenEntry, TableFile
from gaussdecode.land.verify import verify_files
from gaussdecode.land.writer import Writer
from gaussdecode.model.account import Account
from gaussdecode.model.committimes import CommitTimes
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.histogram import BOUNDS
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.request import EntryRequest, RowGroup

A = "public.a"
NOW = 1_800_000_000.0


class Bench:
    """A writer on a log, and what it told."""

    def __init__(self, files: Files, order: str = "lsn", **options: object) -> None:
        """Open the log, commit its genesis."""
        self.files = files
        self.durable: list[int] = []
        self.errors: list[BaseException] = []
        self.entries: list[CommitEntry] = []
        self.log = CommitLog.open(
            files, IDENTITY, space=SpaceWait(sleep=lambda _: None), order=order, block=2
        )
        self.writer = Writer(
            self.log,
            on_durable=lambda position: self.durable.append(position.lsn),
            on_error=self.errors.append,
            on_landed=self.entries.append,
            wall_clock=lambda: NOW,
            **options,  # type: ignore[arg-type]  # sizes and counts only
        )
        self.rows = self.at = 0
        self.begin()
        self.commit(1, EntryKind.GENESIS)
        self.writer.drain()

    def begin(self) -> None:
        """Open a way in."""
        self.intake = self.writer.begin()

    def write(self, lsn: int, seqs: range, table: str = A) -> None:
        """Hand over a row group."""
        schema_id, _ = self.intake.schemas.schema_id_for(table, COLUMNS)
        self.rows += len(seqs)
        self.intake.write(row_group(table, schema_id, lsn, seqs))

    def commit(
        self,
        lsn: int,
        kind: EntryKind = EntryKind.DATA,
        ages: tuple[float, ...] = (),
        csn: int | None = None,
    ) -> None:
        """Ask for an entry of what was handed over since the last one, committed so long ago."""
        times = CommitTimes()
        times.add(np.array([(NOW - age) * 1e6 for age in ages], dtype=np.int64))
        rows = {"I": self.rows} if self.rows else {}
        account = Account((0, self.at), (0, lsn), rows, rows)
        self.rows, self.at = 0, lsn
        self.intake.commit(
            EntryRequest(
                kind=kind,
                position=SourcePosition(0, 1, lsn, csn),
                account=None if kind is EntryKind.GENESIS else account,
                commit_times=times,
            )
        )

    def land(self, lsn: int, seqs: range) -> None:
        """Land a row group and wait for it."""
        self.write(lsn, seqs)
        self.commit(lsn)
        self.writer.drain()

    def close(self) -> None:
        """End threads and log."""
        self.writer.close()
        self.log.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A writer on a simulated disk."""
    made = Bench(SimFiles())
    yield made
    made.close()


def gated() -> tuple[SimFiles, threading.Event]:
    """A disk on which nobody begins a data file before the event is set."""
    files, gate = SimFiles(), threading.Event()
    create = files.create
    files.create = lambda path: (".parquet" in path and gate.wait(60), create(path))[1]  # type: ignore[method-assign]
    return files, gate


def test_small_table_gets_one_file(bench: Bench) -> None:
    """Many small row groups of one table are one file of one entry."""
    for seq in range(20):
        bench.write(10, range(seq, seq + 1))
    bench.commit(10)
    bench.writer.drain()
    (file,) = bench.entries[-1].files
    assert file.rows == 20
    assert (file.first.seq, file.last.seq) == (0, 19)
    assert file.ops == {"I": 20}
    assert bench.durable == [1, 10]


def test_latency_is_counted_when_the_entry_is_durable() -> None:
    """Once per transaction of it; nothing of an entry that was never decided."""
    files = SimFiles()
    bench = Bench(files)
    bench.write(10, range(3))
    bench.commit(10, ages=(0.25, 45.0, 45.0))
    bench.writer.drain()
    counts = dict(zip((*BOUNDS, None), bench.writer.latency.counted.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {0.5: 1, 60.0: 2}
    files._fail = lambda _n, op, _p: errno.EIO if op is Operation.LINK else 0
    bench.write(20, range(3))
    bench.commit(20, ages=(1.0,))
    with pytest.raises(GaussDecodeError):
        bench.writer.drain()
    assert sum(bench.writer.latency.counted.counts) == 3
    bench.close()


def test_what_the_landing_does_is_counted(bench: Bench) -> None:
    """Once for each row group, file and entry, the genesis included."""
    for seq in range(20):
        bench.write(10, range(seq, seq + 1), f"public.t{seq % 2}")
    bench.commit(10)
    bench.writer.drain()
    found = {stage: sum(of.counted.counts) for stage, of in bench.writer.durations.items()}
    assert found == {"encode": 20, "sync": 2, "publish": 2}


def test_row_group_is_the_given_table(bench: Bench) -> None:
    """What was handed over as one is one in the file, with metadata and statistics."""
    schema_id, _ = bench.intake.schemas.schema_id_for(A, COLUMNS)
    for start in (0, 5):
        group = row_group(A, schema_id, 10, range(start, start + 5))
        group.metadata[b"table"] = b"a"
        bench.rows += group.table.num_rows
        bench.intake.write(group)
    bench.commit(10)
    bench.writer.drain()
    raw = bench.files.read(bench.entries[-1].files[0].path)
    parquet = pq.ParquetFile(io.BytesIO(raw))
    assert parquet.num_row_groups == 2
    assert parquet.schema_arrow.metadata[b"table"] == b"a"
    statistics = parquet.metadata.row_group(1).column(3).statistics
    assert (statistics.min, statistics.max) == (5, 9)


def test_the_schema_of_a_file_is_made_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all files of a table, until its row groups have another one."""
    made: list[list[str]] = []

    class Noted(SmallOptions):
        def __init__(self, schema: pa.Schema) -> None:
            made.append(schema.names)
            super().__init__(schema)

    monkeypatch.setattr(writer, "SmallOptions", Noted)
    for lsn in (10, 20, 30):
        bench.write(lsn, range(3))
        bench.commit(lsn)
        bench.writer.drain()
    assert len(made) == 1


def test_full_file_is_rolled_over() -> None:
    """A file that reached its size takes no more row groups; names are numbered."""
    bench = Bench(SimFiles(), target_file_size=1)
    for seq in range(3):
        bench.write(10, range(seq, seq + 1))
        while bench.writer.waiting_bytes:
            pass
    bench.commit(10)
    bench.writer.drain()
    names = [file.path.rpartition("/")[2] for file in bench.entries[-1].files]
    stem = f"{1:020d}-{10:016x}-{10:016x}"
    assert names == [f"{stem}.parquet", f"{stem}-1.parquet", f"{stem}-2.parquet"]
    bench.close()


def test_open_files_are_bounded() -> None:
    """With more tables than may be open, files are closed early and nothing is lost."""
    bench = Bench(SimFiles(), max_open_files=2)
    for seq in range(12):
        bench.write(10, range(seq, seq + 1), f"public.t{seq % 6}")
    bench.commit(10)
    bench.writer.drain()
    assert sum(file.rows for file in bench.entries[-1].files) == 12
    bench.close()
    assert verify_files(bench.files).is_clean


def test_hot_table_uses_several_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one lane has a table's file, another encodes what comes next in it."""
    monkeypatch.setattr(writer_state, "_AHEAD_BYTES", 1)
    files, gate = gated()
    bench = Bench(files)
    bench.write(10, range(5))
    bench.write(10, range(5, 1000))
    encoded = bench.writer.durations["encode"]
    deadline = time.monotonic() + 60
    while not sum(encoded.counted.counts) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sum(encoded.counted.counts) == 1, "the second one, before the file is there"
    gate.set()
    bench.commit(10)
    bench.writer.drain()
    (file,) = bench.entries[-1].files
    found = pq.ParquetFile(io.BytesIO(files.read(file.path)))
    assert [found.metadata.row_group(group).num_rows for group in range(2)] == [5, 995]
    assert found.read()["gd_seq"].to_pylist() == list(range(1000))
    assert bench.writer.waiting_bytes == 0
    bench.close()
    assert verify_files(files).is_clean


def test_lanes_are_added_while_they_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """They work for the open entry at once, and who asks is told the number."""
    monkeypatch.setattr(writer_state, "_AHEAD_BYTES", 1)
    monkeypatch.setattr(lanes, "WINDOW_SECONDS", 0.01)
    monkeypatch.setattr(lanes, "_WAITS", 0.0)  # nobody waits: what was written is in the queue
    (files, gate), told = gated(), list[int]()
    bench = Bench(files, lanes=Lanes(1, 4, lambda now: (2.5 * now,)), on_lanes=told.append)
    number = 0
    while not told or told[-1] < 4:  # a busy machine has its lanes begin late
        bench.write(10, range(5 * number, 5 * number + 5))
        number += 1
        time.sleep(0.02)
    assert told == [2, 4]
    assert bench.writer.lane_count == 4
    gate.set()
    bench.commit(10)
    bench.writer.drain()
    (file,) = bench.entries[-1].files
    assert file.rows == 5 * number
    bench.close()
    assert not any(one.is_alive() for one in bench.writer._threads)
    assert verify_files(files).is_clean


def test_lanes_are_added_while_the_collector_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group for which there is no room is no reason not to look."""
    for module in (lanes, writer):
        monkeypatch.setattr(module, "WINDOW_SECONDS", 0.01)
    (files, gate), told = gated(), threading.Event()
    bench = Bench(
        files,
        lane_bytes=1,
        lanes=Lanes(1, 2, lambda now: (now,)),
        on_lanes=lambda _: told.set(),
    )
    bench.write(10, range(5))
    thread = threading.Thread(target=bench.write, args=(10, range(5, 10)))
    thread.start()
    assert told.wait(60)
    assert thread.is_alive()
    gate.set()
    thread.join(60)
    assert not thread.is_alive()
    bench.commit(10)
    bench.writer.drain()
    assert bench.entries[-1].files[0].rows == 10
    bench.close()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look says that another lane would help, but the first one."""
    for name, value in (("WINDOW_SECONDS", 1e-9), ("_WAITS", 0.0), ("_BUSY", 0.0)):
        monkeypatch.setattr(lanes, name, value)


@pytest.mark.usefixtures("eager")
def test_several_collectors_may_look() -> None:
    """Of many sources each has its own; a look is one of them's, and there are no more than allowed."""
    at_once, looking, twice = threading.Barrier(8), threading.Lock(), list[float]()

    def idle(now: float) -> tuple[float, ...]:
        if looking.acquire(blocking=False):
            time.sleep(0.0005)  # others come meanwhile
            looking.release()
        else:
            twice.append(now)
        return (now,)

    bench = Bench(SimFiles(), lanes=Lanes(1, 5, idle))

    def look() -> None:
        at_once.wait()
        for _ in range(20):
            bench.writer.add_lanes(bench.intake.generation)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not twice
    assert bench.writer.lane_count == 5
    assert sorted(one.name for one in bench.writer._threads) == [
        "committer", *(f"lane-{number}" for number in range(5))
    ]  # fmt: skip
    bench.close()


@pytest.mark.usefixtures("eager")
def test_lanes_are_not_added_for_a_session_that_is_over() -> None:
    """Nor lost: the next one gets them."""
    bench = Bench(SimFiles(), lanes=Lanes(1, 2, lambda now: (now,)))
    bench.writer.add_lanes(bench.intake.generation)
    bench.intake.end()
    with pytest.raises(SupersededError):
        bench.writer.add_lanes(bench.intake.generation)
    assert bench.writer.lane_count == 1
    bench.writer.discard()
    bench.begin()
    bench.writer.add_lanes(bench.intake.generation)
    assert bench.writer.lane_count == 2
    bench.close()


@pytest.mark.usefixtures("eager")
def test_no_lane_is_added_while_the_disk_is_full() -> None:
    """Those there are wait for room; others would too. What was seen before is forgotten."""
    bench = Bench(SimFiles(), lanes=Lanes(1, 2, lambda now: (now,)))
    bench.writer.add_lanes(bench.intake.generation)
    bench.log.disk.space._waiting = 1
    for _ in range(3):
        bench.writer.add_lanes(bench.intake.generation)
    bench.log.disk.space._waiting = 0
    bench.writer.add_lanes(bench.intake.generation)
    assert bench.writer.lane_count == 1
    bench.writer.add_lanes(bench.intake.generation)
    assert bench.writer.lane_count == 2
    bench.close()


@pytest.mark.usefixtures("eager")
def test_a_thread_that_cannot_be_had_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of the system on threads is no reason to land nothing."""
    bench = Bench(SimFiles(), lanes=Lanes(2, 6, lambda now: (9 * now,)))
    start, left = threading.Thread.start, [1]

    def refuse(thread: threading.Thread) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    bench.writer.add_lanes(bench.intake.generation)
    bench.writer.add_lanes(bench.intake.generation)
    assert bench.writer.lane_count == 3
    bench.land(10, range(5))
    assert bench.durable[-1] == 10
    bench.close()


@pytest.mark.parametrize("left", [0, 3, 100])
def test_many_files_are_synced_with_the_threads_there_are(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Without syncers the lanes do it themselves."""
    bench = Bench(SimFiles(), max_open_files=200)
    start, refused = threading.Thread.start, [left]

    def refuse(thread: threading.Thread) -> None:
        refused[0] -= 1
        if refused[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for number in range(200):
        table = f"public.t{number}"
        schema_id, _ = bench.intake.schemas.schema_id_for(table, COLUMNS)
        bench.intake.write(row_group(table, schema_id, 10, range(5)))
        bench.rows += 5
    bench.commit(10)
    bench.writer.drain()
    assert len(bench.entries[-1].files) == 200
    assert bench.writer._syncer_count == min(left, 16)
    assert (bench.writer.syncing_beside.seconds > 0) is (left > 0)
    bench.close()


@pytest.mark.usefixtures("eager")
def test_close_waits_for_whoever_adds_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lane is left behind that was about to be started."""
    bench = Bench(SimFiles(), lanes=Lanes(1, 2, lambda now: (now,)))
    bench.writer.add_lanes(bench.intake.generation)
    begun, gate, start = threading.Event(), threading.Event(), bench.writer._start

    def wait(name: str, loop: Callable[[], None]) -> None:
        begun.set()
        gate.wait(60)
        start(name, loop)

    monkeypatch.setattr(bench.writer, "_start", wait)
    adding = threading.Thread(target=bench.writer.add_lanes, args=(bench.intake.generation,))
    adding.start()
    assert begun.wait(60)
    closing = threading.Thread(target=bench.writer.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    gate.set()
    closing.join(60)
    adding.join(60)
    assert len(bench.writer._threads) == 3
    assert not any(one.is_alive() for one in (closing, adding, *bench.writer._threads))
    bench.close()


def test_write_blocks_while_the_queue_is_full() -> None:
    """The collector waits for the lanes, and goes on when they did."""
    files, gate = gated()
    bench = Bench(files, lane_bytes=1)
    bench.write(10, range(5))
    thread = threading.Thread(target=bench.write, args=(10, range(5, 10)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    gate.set()
    thread.join(60)
    assert not thread.is_alive()
    bench.commit(10)
    bench.writer.drain()
    assert bench.entries[-1].files[0].rows == 10
    bench.close()


def test_one_more_entry_is_allowed() -> None:
    """`commit` returns while its entry is under way, the next call waits for it."""
    gate = threading.Event()
    files = SimFiles()
    bench = Bench(files)
    link = files.link
    files.link = lambda old, new: (gate.wait(60), link(old, new))[1]  # type: ignore[method-assign]
    bench.write(10, range(2))
    bench.commit(10)
    bench.write(11, range(2))
    assert bench.writer.is_committing
    thread = threading.Thread(target=bench.commit, args=(11,))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    gate.set()
    thread.join(60)
    bench.writer.drain()
    assert bench.durable == [1, 10, 11]
    bench.close()


def test_discard_leaves_no_trace(bench: Bench) -> None:
    """What was not committed is gone from disk and memory; the writer can be used again."""
    before = sorted(bench.files.image.paths())  # type: ignore[attr-defined]
    bench.write(10, range(3))
    bench.writer.discard()
    bench.rows = 0
    assert sorted(bench.files.image.paths()) == before  # type: ignore[attr-defined]
    assert bench.writer.waiting_bytes == 0
    bench.begin()
    bench.write(10, range(2))
    bench.commit(10)
    bench.writer.drain()
    assert bench.entries[-1].files[0].rows == 2
    assert bench.files.size(f"schemas/{A}/{bench.entries[-1].files[0].schema_id}.json")


def test_discard_waits_for_what_was_asked_for(bench: Bench) -> None:
    """A requested entry holds whole transactions and is completed."""
    bench.write(10, range(3))
    bench.commit(10)
    bench.write(11, range(3))
    bench.writer.discard()
    assert bench.durable == [1, 10]


def test_ended_intake_is_refused_though_nobody_revoked_it(bench: Bench) -> None:
    """Whoever comes late is told so, and nothing of theirs was taken."""
    bench.writer.discard()
    with pytest.raises(SupersededError):
        bench.write(10, range(3))


def test_close_twice_is_harmless(bench: Bench) -> None:
    """Shutting down has many ways; all of them may close."""
    bench.writer.close()
    bench.writer.close()
    with pytest.raises(GaussDecodeError, match="closed"):
        bench.write(10, range(1))


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.SYNC, Operation.LINK])
def test_first_error_ends_the_writer(operation: Operation) -> None:
    """It is reported once, from then on every call raises it, and nothing is confirmed."""
    files = SimFiles()
    bench = Bench(files)
    files._fail = lambda _n, op, _p: errno.EIO if op is operation else 0
    with pytest.raises(DiskError):
        bench.land(10, range(2))
    with pytest.raises(DiskError):
        bench.write(11, range(2))
    with pytest.raises(DiskError):
        bench.commit(11)
    assert len(bench.errors) == 1
    assert bench.durable == [1]
    bench.close()


def test_bug_in_a_lane_is_reported(bench: Bench) -> None:
    """Not only our own errors: rows that pyarrow refuses end the writer too."""
    schema_id, _ = bench.intake.schemas.schema_id_for(A, COLUMNS)
    group = row_group(A, schema_id, 10, range(2))
    other = SCHEMA.set(4, pa.field("id", pa.string()))
    bench.intake.write(
        type(group)(A, schema_id, other, group.table, group.first, group.last, group.ops)
    )
    with pytest.raises(GaussDecodeError):
        bench.land(10, range(2))
    assert len(bench.errors) == 1


def test_waiting_for_space_is_visible() -> None:
    """While the disk is full somebody can see it, and afterwards everything lands."""
    gate = threading.Event()
    seen: list[bool] = []
    full = True
    files = SimFiles(fail=lambda _n, op, _p: errno.ENOSPC if full and op is Operation.WRITE else 0)
    full = False
    bench = Bench(files)

    def nap(_: float) -> None:
        nonlocal full
        seen.append(bench.writer.is_waiting_for_space)
        full = False
        gate.set()

    bench.log.disk.space._sleep = nap
    full = True
    bench.write(10, range(2))
    bench.commit(10)
    bench.writer.drain()
    assert gate.is_set()
    assert seen
    assert all(seen)
    assert not bench.writer.is_waiting_for_space
    assert bench.durable == [1, 10]
    bench.close()


def test_rows_wait_for_what_is_kept_free_and_entries_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row group waits before its file is begun; an entry without rows is committed meanwhile."""
    bench = Bench(SimFiles())
    room = threading.Event()
    waiting = threading.Event()

    def nap(_: float) -> None:
        waiting.set()
        room.wait(60)

    space = bench.log.disk.space
    monkeypatch.setattr(space, "_sleep", nap)
    monkeypatch.setattr(space, "_kept", types.SimpleNamespace(check=lambda: _check(room)))
    bench.write(10, range(2))
    bench.commit(10)
    assert waiting.wait(60)
    assert space.is_waiting
    bench.intake.note(EntryRequest(kind=EntryKind.SUSPECT, position=SourcePosition(0, 1, 1)))
    assert [entry.kind for entry in bench.entries] == [EntryKind.GENESIS, EntryKind.SUSPECT]
    assert not bench.files.has_directory(f"data/{A}")
    room.set()
    bench.writer.drain()
    assert bench.durable == [1, 10]
    bench.close()


def _check(room: threading.Event) -> None:
    if not room.is_set():
        raise OSError(errno.ENOSPC, "landing.min-free-bytes keeps it")


def test_largest_file_bytes_are_of_the_open_entry(bench: Bench) -> None:
    """They grow with what is encoded and start again with each entry."""
    assert bench.intake.largest_file_bytes == 0
    bench.write(10, range(1000))
    while bench.writer.waiting_bytes:
        pass
    assert bench.intake.largest_file_bytes > 0
    bench.commit(10)
    assert bench.intake.largest_file_bytes == 0
    bench.writer.drain()
    assert bench.writer.commit_seconds > 0


def test_many_tables_on_a_real_disk(tmp_path: Path) -> None:
    """Several lanes, tables and entries at once, judged by verify."""
    bench = Bench(Files(tmp_path), target_file_size=20_000)
    rows = 0
    for entry in range(1, 8):
        lsn = entry * 100
        for seq in range(40):
            table = f"public.t{seq % 5}"
            bench.write(lsn, range(seq * 100, seq * 100 + 100), table)
            rows += 100
        bench.commit(lsn)
    bench.writer.drain()
    bench.close()
    assert not bench.errors
    files = Files(tmp_path)
    report = verify_files(files)
    assert report.is_clean, report.findings
    assert report.rows == rows
    assert report.tables == 5
    files.close()


@pytest.mark.parametrize("lane_count", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_files_are_read_in_the_order_in_which_rows_came(
    lane_count: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the sizes of row groups, the lanes, the tables and the schemas that alternate."""
    monkeypatch.setattr(writer_state, "_AHEAD_BYTES", 4000)
    rng = random.Random(seed)
    bench = Bench(SimFiles(), lanes=lane_count, target_file_size=30_000, max_open_files=3)
    schemas = [
        dict(COLUMNS),
        {"columns": [*COLUMNS["columns"], {"name": "b", "attribute_number": 2}]},
    ]
    written: dict[str, list[tuple[str, int, int]]] = {}
    for number in range(1, 4):
        seq = 0
        for _ in range(60):
            table, count = f"public.t{rng.randrange(4)}", rng.choice((1, 10, 300, 1000))
            of = rng.choices(schemas, (4, 1))[0] if table != "public.t0" else rng.choice(schemas)
            schema_id, _ = bench.intake.schemas.schema_id_for(table, of)
            bench.intake.write(row_group(table, schema_id, 10 * number, range(seq, seq + count)))
            rows = [(schema_id, 10 * number, at) for at in range(seq, seq + count)]
            written.setdefault(table, []).extend(rows)
            bench.rows += count
            seq += count
        bench.commit(10 * number)
    bench.writer.drain()
    merged = 0
    while (made := compact(bench.log, target_bytes=1 << 20)) is not None:
        merged += len(made.files)
    assert merged
    bench.close()
    assert not bench.errors
    found: dict[str, list[tuple[str, int, int]]] = {}
    for entry in bench.entries:
        for file in entry.files:
            content = pq.read_table(io.BytesIO(bench.files.read(file.path)))
            places = zip(*(content[name].to_pylist() for name in ("gd_lsn", "gd_seq")), strict=True)
            rows = [(file.schema_id, lsn, at) for lsn, at in places]
            assert rows[0][1:] == tuple(dataclasses.astuple(file.first))
            assert rows[-1][1:] == tuple(dataclasses.astuple(file.last))
            found.setdefault(file.table, []).extend(rows)
    assert found == written
    report = verify_files(bench.files)
    assert report.is_clean, report.findings


def test_in_the_order_of_csns_too() -> None:
    """Where transactions land in another order than their positions, files stand in that order."""
    bench = Bench(SimFiles(), order="csn")
    schema = SCHEMA.append(pa.field("gd_csn", pa.int64()))
    for csn, lsn, name in ((5, 30, "a"), (6, 20, "b"), (7, 10, "a"), (8, 25, "a")):
        schema_id, _ = bench.intake.schemas.schema_id_for(A, {"columns": [], "name": name})
        made = row_group(A, schema_id, lsn, range(3))
        table = made.table.append_column(schema.field("gd_csn"), [pa.array([csn] * 3, pa.int64())])
        bench.intake.write(dataclasses.replace(made, schema=schema, table=table))
        bench.rows += 3
    bench.commit(30, csn=8)
    bench.writer.drain()
    (*_, entry) = bench.entries
    assert [(file.first.lsn, file.last.lsn) for file in entry.files] == [
        (30, 30),
        (20, 20),
        (10, 25),
    ]
    bench.close()
    report = verify_files(bench.files)
    assert report.is_clean, report.findings


def refused(bench: Bench, request: EntryRequest, reason: str) -> None:
    """See that an entry is refused before its commit point, and leaves nothing."""
    committed = bench.log.next_n
    bench.intake.commit(request)
    with pytest.raises(AccountError, match=reason):
        bench.writer.drain()
    assert bench.log.next_n == committed
    assert bench.durable == [1]
    bench.writer.discard()
    bench.log.close()
    again = CommitLog.open(bench.files, IDENTITY)
    assert again.next_n == committed
    again.close()
    assert verify_files(bench.files).is_clean


def request_of(account: Account | None, lsn: int = 10) -> EntryRequest:
    """An entry of the stream."""
    return EntryRequest(kind=EntryKind.DATA, position=SourcePosition(0, 1, lsn), account=account)


@pytest.mark.parametrize(
    ("account", "reason"),
    [
        (None, "has no sums"),
        (Account((0, 1), (0, 10), {"I": 4}, {"I": 4}), "I 4 were handed over, the files hold I 3"),
        (Account((0, 1), (0, 10), {"I": 2}, {"I": 2}), "I 2 were handed over, the files hold I 3"),
        (Account((0, 1), (0, 10), {"U": 3}, {"U": 3}), "U 3 were handed over, the files hold I 3"),
        (Account((0, 1), (0, 10), {"I": 4}, {"I": 3}), "framed I 4, of which I 3 landed"),
        (Account((0, 1), (0, 10), {"I": 3}, {"I": 3}, {"empty": {"transactions": 1}}), "empty:"),
        (Account((0, 1), (0, 10), {"I": 3, "messages": 1}, {"I": 3, "messages": 1}), "messages"),
        (Account((0, 2), (0, 10), {"I": 3}, {"I": 3}), "its stretch of the stream is 0/1"),
        (Account((0, 1), (0, 9), {"I": 3}, {"I": 3}), "its stretch of the stream is 0/1"),
        (Account((1, 1), (0, 10), {"I": 3}, {"I": 3}), "epoch 1"),
    ],
)  # fmt: skip
def test_sums_that_do_not_add_up_are_refused(account: Account | None, reason: str) -> None:
    """What the files hold, what was handed over, what was framed, and where: all must agree."""
    bench = Bench(SimFiles())
    bench.write(10, range(3))
    refused(bench, request_of(account), reason)


def test_files_that_do_not_follow_each_other_are_refused() -> None:
    """A fault here is no wrong table there."""
    bench = Bench(SimFiles())
    for of, seqs in ((COLUMNS, range(2, 4)), ({"columns": []}, range(2))):
        schema_id, _ = bench.intake.schemas.schema_id_for(A, dict(of))
        bench.intake.write(row_group(A, schema_id, 10, seqs))
    account = Account((0, 1), (0, 10), {"I": 4}, {"I": 4})
    refused(
        bench,
        request_of(account),
        r"would begin at 0/A row 0, and the file of public\.a before it ends at 0/A row 3",
    )


def test_row_lost_on_the_way_to_the_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's own footer is counted, not what it was given."""
    bench = Bench(SimFiles())
    write = ParquetSink.write
    monkeypatch.setattr(ParquetSink, "write", lambda sink, table: write(sink, table.slice(1)))
    bench.write(10, range(3))
    refused(bench, request_of(Account((0, 1), (0, 10), {"I": 3}, {"I": 3})), "holds 2 rows")


def test_row_group_lost_before_its_lane_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group that never reaches a file is missed at the entry."""
    bench = Bench(SimFiles())
    bench.write(10, range(3))
    with monkeypatch.context() as patch:
        patch.setattr(OpenEntry, "assign", _assign_to_nothing)
        bench.write(10, range(3, 5), "public.b")
    account = Account((0, 1), (0, 10), {"I": 5}, {"I": 5})
    refused(bench, request_of(account), "I 5 were handed over, the files hold I 3")


def _assign_to_nothing(_: OpenEntry, group: RowGroup) -> tuple[TableFile, list[TableFile]]:
    lost = TableFile(group.table_dir, group.schema_id)
    lost.is_scheduled = True
    return lost, []


def test_rows_that_were_not_collected_are_refused(bench: Bench) -> None:
    """A row group whose rows are not those that were counted on the way never gets a file."""
    schema_id, _ = bench.intake.schemas.schema_id_for(A, COLUMNS)
    group = dataclasses.replace(row_group(A, schema_id, 10, range(3)), ops={"I": 4})
    bench.intake.write(group)
    with pytest.raises(AccountError, match=r"public\.a: I 4 were collected, .* has I 3"):
        bench.land(10, range(2))


def test_operations_are_counted_from_the_rows() -> None:
    """Any slice of any chunks, by letter; a table without operations has none."""
    letters = ["I", "U", "D", "T", "R", "I", "I"]
    column = pa.chunked_array([pa.array(letters[:3]), pa.array([], pa.string()), letters[3:]])
    table = pa.table({"gd_op": column})
    assert operations(table) == {"D": 1, "I": 3, "R": 1, "T": 1, "U": 1}
    assert operations(table.slice(4)) == {"R": 1, "I": 2}
    assert operations(table.slice(7)) == {}
    assert operations(pa.table({"id": [1]})) == {}
