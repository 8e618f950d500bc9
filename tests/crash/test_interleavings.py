"""A session that fails at any moment, in every order of the threads: nothing goes missing.

The real session, collector, gate, writer and commit log run on a simulated disk, with threads
that take turns as told (`kit.scheduler`): every order that deviates at most `BOUND` times from
the default one. The source is a list of transactions; a session begins with those after the
durable position, as a server does. `MUTATIONS` takes the guards out one by one: each is
missed by a scenario.
"""

import dataclasses
import errno
import functools
import inspect
import json
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from kit.entries import BEGIN, COMMIT, Item, Mark, Row, entry, relation, relation_mark
from kit.landrun import IDENTITY, row_group
from kit.scheduler import ScheduleError, Turns
from kit.simdisk import Image, SimFiles

from gaussdecode.collect import snapshot_gate as gate_module
from gaussdecode.collect._assembler import PUMP_END, PUMP_TIME
from gaussdecode.collect.collector import Collector, CollectorSettings
from gaussdecode.collect.snapshot_gate import CollectorPort, Gate, HoldLostError, HoldSession
from gaussdecode.collect.tables import Tables
from gaussdecode.daemon import session as session_module
from gaussdecode.daemon.session import Confirm, Facts, Session, SessionSettings
from gaussdecode.daemon.session_life import Turn
from gaussdecode.errors import ChildError, SupersededError
from gaussdecode.land import commitlog as commitlog_module
from gaussdecode.land import tablefile as tablefile_module
from gaussdecode.land import writer as writer_module
from gaussdecode.land import writer_state as desk_module
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import Operation, Point, Step
from gaussdecode.land.rowgroups import Encoded
from gaussdecode.land.sink import Sink
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.writer import Writer
from gaussdecode.land.writer_state import Life, WriterState
from gaussdecode.model.account import Account
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.request import EntryRequest

BOUND: Final = 1
TABLE: Final = "public.t"
START: Final = 1
TRANSACTIONS: Final = (10, 20)  # where their commits begin; they end one byte after
ROWS: Final = 2
SLOW: Final = {Step.FILES_CLOSED, Step.ENTRY_COMMITTED}
_COLLECTOR: Final = CollectorSettings(
    row_group_rows=100,
    row_group_bytes=1 << 20,
    memory_bytes=1 << 22,
    txn_memory_bytes=1 << 20,
    target_file_size=1 << 20,
    max_commit_interval=0.0,
    only_local=True,
    skip_empty_xacts=True,
    include_xids=False,
    include_timestamp=False,
)
_SESSION: Final = SessionSettings(
    decoder_count=1,
    queue_entries=1,
    raw_ring_bytes=1,
    decoded_ring_bytes=1,
    kept_buffer_bytes=1,
    max_row_bytes=1 << 30,
    defers_large_rows=False,
    reader={},
)
_PATCHED: Final = (gate_module, session_module, commitlog_module, desk_module, writer_module)
Json = dict[str, Any]  # Any: JSON


class SlowDisk(SimFiles):
    """A disk that takes as long as it likes: at some steps the other threads go on.

    Attributes:
        is_stuck: whether it does nothing at all now.
    """

    def __init__(
        self, turns: Turns, image: Image, fail: Callable[[int, Operation, str], int] | None = None
    ) -> None:
        """Mount an image."""
        super().__init__(image, fail=fail)
        self.is_stuck = False
        self._turns = turns

    def reach(self, point: Point) -> None:
        """Let others go on."""
        if point in SLOW:
            self._turns.pause(str(point), lambda: not self.is_stuck)


class PlainSink:
    """What a lane writes, without Parquet: the positions of the rows, one per line."""

    options = None

    def __init__(self, disk: Disk, path: str, *_: object) -> None:
        """Create the file."""
        self.path = path
        self.rows = 0
        self._sink = Sink(disk, path)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._sink.size

    def write(self, table: pa.Table) -> None:
        """Append one row group."""
        self.append(plain(table))

    def append(self, encoded: Encoded) -> None:
        """Append one that was made elsewhere."""
        self._sink.write(encoded.content)
        self.rows += encoded.rows

    def close(self) -> None:
        """Have all of it be in the file."""
        self._sink.drain()

    def sync(self) -> tuple[int, str]:
        """Make it durable."""
        checksum = self._sink.finish()
        return self._sink.size, checksum

    def abandon(self) -> None:
        """Give it up."""
        self._sink.abandon()


def plain(table: pa.Table) -> Encoded:
    """What `PlainSink` writes of a row group."""
    places = ([row["gd_lsn"], row.get("gd_seq")] for row in table.to_pylist())
    content = b"".join(json.dumps(place).encode() + b"\n" for place in places)
    return Encoded(memoryview(content), {}, table.num_rows)


class Pump:
    """Takes the place of a collector's assembler: one transaction at a time, then the end."""

    def __init__(
        self,
        pause: Callable[["Pump"], None],
        assembler: Any,  # Any: the attributes of the real one
        batches: Sequence[bytes],
    ) -> None:
        """Put it before the real one."""
        self.count = 0
        self._pause = pause
        self._assembler = assembler
        self._batches = batches

    def __getattr__(self, name: str) -> Any:  # Any: of the assembler
        """All else is the real one's."""
        return getattr(self._assembler, name)

    def pump(self, _: object, __: float) -> int:
        """One transaction."""
        self._pause(self)
        self.count += 1
        if self.count > len(self._batches):
            return int(PUMP_END)
        self._assembler.absorb_bytes(self._batches[self.count - 1])
        return int(PUMP_TIME)


def _batches(resume_lsn: int) -> Iterator[bytes]:
    """What a server sends from a position on."""
    first: list[Item] = [relation_mark(relation(1, "t", oid=7))]
    for seq, lsn in enumerate(lsn for lsn in TRANSACTIONS if lsn >= resume_lsn):
        rows: list[Item] = [Row(1, number, "x") for number in range(ROWS)]
        yield entry(seq, [*first, Mark(BEGIN, x=lsn, z=lsn), *rows, Mark(COMMIT, x=lsn, y=lsn + 1)])
        first = []


class Spool:
    """Nothing is large here."""

    def clear(self) -> None:
        """Nothing is in it."""

    def close(self) -> None:
        """Nothing is open."""


@dataclasses.dataclass
class Daemon:
    """A landing, and the sessions that fill it, one after the other, as the pipeline does.

    Attributes:
        allowed: how often a collector may pump now.
    """

    turns: Turns
    disk: SlowDisk
    allowed: int = 99
    lanes: int = 1
    errors: list[BaseException] = dataclasses.field(default_factory=list)
    sessions: list[Session] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate = Gate(cast("Any", Spool))
        self.log = CommitLog.open(self.disk, IDENTITY, space=SpaceWait(sleep=lambda _: None))
        self.writer = Writer(
            self.log,
            lanes=self.lanes,
            on_durable=lambda _: None,
            on_error=self.errors.append,
            clock=lambda: 0.0,  # nothing may hang on how long a run takes
        )

    def begin(self) -> Session:
        """The next session; it streams when this returns."""
        self.writer.discard()
        session = Session(_SESSION, self._begin, self.writer.drain, lambda: False, lambda: None)
        self.sessions.append(session)
        session._turn(Turn.SPAWN)
        session._connected({})
        return session

    def _begin(self, facts: Facts, confirm: Confirm) -> Collector:
        del facts

        def told(position: SourcePosition) -> None:
            durable = self.log.position
            assert durable is not None
            assert position.lsn <= durable.lsn, "confirmed before it is durable"
            confirm(position)

        intake = self.writer.begin(told)
        position = self.log.position
        assert position is not None
        tables = Tables(
            intake.schemas, lambda schema, name: f"{schema}.{name}", list, lambda _: None
        )
        spool = cast("Any", Spool())
        collector = Collector(
            _COLLECTOR, tables, intake, spool, position, self.log.schemas, self.gate
        )
        batches = list(_batches(position.lsn))
        collector.assembler = cast("Any", Pump(self._pump, collector.assembler, batches))
        return collector

    def _pump(self, pump: Pump) -> None:
        self.turns.pause("pump", lambda: pump.count < self.allowed)

    def until_pumped(self, session: Session, count: int) -> None:
        """Wait until the collector is so far."""
        pump = cast("Any", session.collector).assembler
        self.turns.pause(f"until {count}", lambda: pump.count >= count or bool(self.errors))

    def break_off(self, session: Session) -> None:
        """A process was killed: the session ends as `Session.run` ends it."""
        session._fail(ChildError("killed"))
        session._close()

    def finish(self, session: Session) -> None:
        """The stream has ended: the session ends as `Session.run` ends it."""
        assert session._thread is not None
        session._thread.join()
        session._turn(Turn.COLLECTED)
        session._finish()
        session._close()

    def close(self) -> None:
        """As the pipeline does; then see that no thread is left."""
        self.writer.close()
        self.log.close()
        for session in self.sessions:
            assert session._thread is not None
            session._thread.join()
            session.control.close()


def check(disk: SimFiles, *, is_complete: bool) -> None:
    """Judge what is on disk: a prefix of the source, each row once, under its position."""
    names = [item.name for item in disk.items("commits") if item.name.endswith(".json")]
    entries = [json.loads(disk.read(f"commits/{name}")) for name in sorted(names)]
    positions = [_position(item) for item in entries]
    found: list[tuple[int, int]] = []
    before = 0
    for item, position in zip(entries, positions, strict=True):
        for file in item["files"]:
            if file["table"] == TABLE:
                rows = [tuple(json.loads(line)) for line in disk.read(file["path"]).splitlines()]
                assert all(before < lsn <= position for lsn, _ in rows), "not under its position"
                found += rows
        if item["kind"] == "snapshot":
            assert before <= item["extra"]["lsn"], "a snapshot after changes that it lacks"
        assert position >= before
        before = position
    source = [(lsn + 1, seq) for lsn in TRANSACTIONS for seq in range(ROWS)]
    assert found == [row for row in source if row[0] <= before], "rows are missing, or twice there"
    assert not is_complete or found == source, "not all has landed"


def _position(item: Json) -> int:
    (where,) = item["positions"].values()
    lsn: int = where["lsn"]
    return lsn


@functools.cache
def _begun() -> Image:
    """A landing with its first entry."""
    disk = SimFiles(Image())
    log = CommitLog.open(disk, IDENTITY)
    log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(1, 1, START)))
    log.close()
    return disk.image


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Threads of all modules that take part take turns."""
    _begun()
    made = Turns()
    for module in _PATCHED:
        monkeypatch.setattr(module, "threading", made)
    monkeypatch.setattr(writer_module, "ParquetSink", PlainSink)
    monkeypatch.setattr(writer_module, "_SYNCERS", 2)
    monkeypatch.setattr(tablefile_module, "encode", functools.partial(_encode_slowly, made))
    return made


def _encode_slowly(turns: Turns, table: pa.Table, *_: object) -> Encoded:
    turns.pause("encode ahead")
    return plain(table)


# ---- scenarios ----------------------------------------------------------------------------


def _fails(turns: Turns, moment: int) -> None:
    """A session fails while its collector waits, and another one follows."""
    daemon = Daemon(turns, SlowDisk(turns, _begun().copy()))
    session = daemon.begin()
    daemon.until_pumped(session, moment)
    daemon.break_off(session)
    daemon.finish(daemon.begin())
    daemon.close()
    check(daemon.disk, is_complete=True)


def _ends(turns: Turns, moment: int) -> None:
    """The daemon ends with its session, and another one starts on what is there."""
    daemon = Daemon(turns, SlowDisk(turns, _begun().copy()))
    session = daemon.begin()
    daemon.until_pumped(session, moment)
    daemon.break_off(session)
    daemon.close()
    check(daemon.disk, is_complete=False)
    again = Daemon(turns, SlowDisk(turns, daemon.disk.image))
    again.finish(again.begin())
    again.close()
    check(again.disk, is_complete=True)


def _stuck(turns: Turns) -> None:
    """The disk stands still: the collector's thread ends all the same, and the writer's wait."""
    daemon = Daemon(turns, SlowDisk(turns, _begun().copy()))
    session = daemon.begin()
    daemon.disk.is_stuck = True
    daemon.until_pumped(session, len(TRANSACTIONS))
    writer_state = daemon.writer._writer_state
    turns.pause("until nobody moves", lambda: not writer_state._ready and not writer_state._busy)
    daemon.break_off(session)
    assert session._thread is not None
    assert not session._thread.is_alive(), "the collector was not woken"
    daemon.disk.is_stuck = False
    daemon.close()
    check(daemon.disk, is_complete=False)


def _held(turns: Turns) -> None:
    """A snapshot holds entries while sessions fail and follow."""
    daemon = Daemon(turns, SlowDisk(turns, _begun().copy()))

    def take() -> None:
        for _ in range(2):
            try:
                hold = daemon.gate.hold({TABLE: []})
            except HoldLostError:
                continue
            try:
                daemon.gate.run(hold, functools.partial(insert, hold.boundary))
            except HoldLostError:
                continue
            finally:
                daemon.gate.release(hold)

    def insert(boundary: int, port: CollectorPort) -> None:
        intake = daemon.writer.intake_of(port.generation)
        intake.drain()
        intake.insert(Draft(kind=EntryKind.SNAPSHOT, extra={"lsn": boundary}), lambda _: None)

    session = daemon.begin()
    snapshots = turns.Thread(target=take, name="snapshots")
    snapshots.start()
    daemon.until_pumped(session, 1)
    daemon.break_off(session)
    daemon.finish(daemon.begin())
    snapshots.join()
    daemon.close()
    check(daemon.disk, is_complete=True)


def _asleep(turns: Turns) -> None:
    """A snapshot waits for a collector that does not wake: it is told of the end at once."""
    daemon = Daemon(turns, SlowDisk(turns, _begun().copy()), allowed=0)
    session = daemon.begin()
    told: list[str] = []

    def take() -> None:
        with pytest.raises(HoldLostError):
            daemon.gate.hold({TABLE: []})
        told.append("the session ended")

    snapshots = turns.Thread(target=take, name="snapshots")
    snapshots.start()
    collector = cast("Any", session.collector)
    turns.pause("until asked", lambda: collector._hold_session.hold is not None)
    daemon.break_off(session)
    snapshots.join(60)
    assert told, "the snapshot still waits"
    daemon.allowed = 99
    daemon.finish(daemon.begin())
    daemon.close()
    check(daemon.disk, is_complete=True)


def _inserts_late(turns: Turns) -> None:
    """A snapshot's entry whose turn in the log comes when its session is over is refused."""
    daemon = Daemon(turns, SlowDisk(turns, _begun().copy()), allowed=0)
    steps: list[str] = []

    def insert(port: CollectorPort) -> None:
        intake = daemon.writer.intake_of(port.generation)
        steps.append("acting")
        turns.pause("until late", lambda: "late" in steps)
        draft = Draft(kind=EntryKind.SNAPSHOT, extra={"lsn": port.boundary})
        intake.insert(draft, lambda _: None)

    def take() -> None:
        hold = daemon.gate.hold({TABLE: []})
        steps.append("held")
        with pytest.raises(HoldLostError):
            daemon.gate.run(hold, insert)
        daemon.gate.release(hold)

    session = daemon.begin()
    snapshots = turns.Thread(target=take, name="snapshots")
    snapshots.start()
    collector = cast("Any", session.collector)
    turns.pause("until asked", lambda: collector._hold_session.hold is not None)
    daemon.allowed = 1
    turns.pause("until held", lambda: "held" in steps)
    daemon.allowed = 2
    turns.pause("until acting", lambda: "acting" in steps)
    daemon.break_off(session)
    daemon.allowed = 99
    daemon.finish(daemon.begin())
    steps.append("late")
    snapshots.join()
    daemon.close()
    check(daemon.disk, is_complete=True)


def _comes_late(turns: Turns) -> None:
    """Whatever comes through the intake of a session that is over is refused."""
    daemon = Daemon(turns, SlowDisk(turns, _begun().copy()))
    old = daemon.writer.begin()
    old.end()
    daemon.writer.discard()
    new = daemon.writer.begin()
    request = EntryRequest(kind=EntryKind.IDLE, position=SourcePosition(1, 1, 99))
    group = row_group(TABLE, "id", 10, range(2))
    refused: list[Callable[[], object]] = [
        lambda: old.write(group),
        lambda: old.commit(request),
        lambda: old.note(request),
        old.drain,
        old.check,
        lambda: daemon.writer.intake_of(old.generation),
    ]
    for call in refused:
        with pytest.raises(SupersededError):
            call()
    assert daemon.writer.intake_of(new.generation) is new
    assert daemon.writer.waiting_bytes == 0
    daemon.close()
    check(daemon.disk, is_complete=False)


def _throws_away(turns: Turns) -> None:
    """Of what nobody will commit, a lane ends what it has in hand, and begins nothing."""
    created: list[str] = []
    disk = SlowDisk(turns, _begun().copy())
    daemon = Daemon(turns, disk)

    def create(_: int, operation: Operation, path: str) -> int:
        if operation is Operation.CREATE:
            created.append(path)
            turns.pause("create", lambda: daemon.writer._writer_state._life.state is not Life.OPEN)
        return 0

    intake = daemon.writer.begin()
    disk._fail = create
    for number in range(3):
        intake.write(row_group(f"public.t{number}", "id", 10, range(2)))
    turns.pause("until a lane is at work", lambda: bool(created))
    daemon.writer.discard()
    assert len(created) == 1, "what is thrown away is written first"
    daemon.close()
    check(disk, is_complete=False)


def _hot(turns: Turns, *, is_discarded: bool = False) -> None:
    """Two lanes work for one table, in any order: its rows stand in theirs, in one file."""
    disk = SlowDisk(turns, _begun().copy())
    daemon = Daemon(turns, disk, lanes=2)
    writer_state = daemon.writer._writer_state

    def is_helped() -> bool:
        is_over = writer_state.is_committing or writer_state._life.state is not Life.OPEN
        return is_over or writer_state._busy > 1

    def create(_: int, operation: Operation, path: str) -> int:
        if operation is Operation.CREATE and path.endswith(".parquet"):
            turns.pause("create", is_helped)
        return 0

    disk._fail = create
    intake = daemon.writer.begin()
    if is_discarded:
        for number in range(3):
            intake.write(row_group(TABLE, "id", 10, range(number, number + 1)))
        daemon.writer.discard()
        intake = daemon.writer.begin()
    first, second = TRANSACTIONS
    for lsn, seqs in ((first, range(1)), (first, range(1, ROWS)), (second, range(ROWS))):
        intake.write(row_group(TABLE, "id", lsn + 1, seqs))
    counts = {"I": ROWS * len(TRANSACTIONS)}
    end = TRANSACTIONS[-1] + 1
    account = Account((1, START), (1, end), counts, counts)
    position = SourcePosition(1, 1, end)
    intake.commit(EntryRequest(kind=EntryKind.DATA, position=position, account=account))
    daemon.writer.drain()
    assert daemon.writer.waiting_bytes == 0
    daemon.close()
    assert not daemon.errors
    assert sum(item.is_directory for item in disk.items("data")) == 1
    (directory,) = (item.name for item in disk.items(f"data/{TABLE}"))
    assert len(disk.items(f"data/{TABLE}/{directory}")) == 1
    check(disk, is_complete=True)


def _many(turns: Turns, *, is_discarded: bool = False) -> int:
    """Lane and syncers make the files of several tables durable, in any order; how many at once."""
    disk = SlowDisk(turns, _begun().copy())
    daemon = Daemon(turns, disk)
    writer_state = daemon.writer._writer_state
    most = syncs = 0

    def can_go() -> bool:
        return not is_discarded or writer_state._life.state is not Life.OPEN

    def sync(_: int, operation: Operation, __: str) -> int:
        nonlocal most, syncs
        if operation is Operation.SYNC and writer_state._busy:  # no file of the committer's
            most, syncs = max(most, writer_state._busy), syncs + 1
            turns.pause("sync", can_go)
        return 0

    disk._fail = sync
    tables = (TABLE, *(f"public.t{number}" for number in range(4)))
    intake = daemon.writer.begin()
    if is_discarded:
        writer_state._content._target = 1  # each file is full at once
        for table in tables:
            intake.write(row_group(table, "id", 10, range(ROWS)))
        turns.pause("until all are at it", lambda: 0 < syncs == writer_state._busy)
        daemon.writer.discard()
        assert syncs <= 3, "what is thrown away is synced first"
    else:
        for lsn in TRANSACTIONS:
            for table in tables:
                intake.write(row_group(table, "id", lsn + 1, range(ROWS)))
        end = TRANSACTIONS[-1] + 1
        counts = {"I": ROWS * len(TRANSACTIONS) * len(tables)}
        account = Account((1, START), (1, end), counts, counts)
        position = SourcePosition(1, 1, end)
        intake.commit(EntryRequest(kind=EntryKind.DATA, position=position, account=account))
        daemon.writer.drain()
    daemon.close()
    assert not daemon.errors
    left = [
        item.name
        for table in disk.items("data")
        for day in disk.items(f"data/{table.name}")
        for item in disk.items(f"data/{table.name}/{day.name}")
    ]
    assert len(left) == (0 if is_discarded else len(tables)), left
    check(disk, is_complete=not is_discarded)
    return most


def _broken(turns: Turns, number: int) -> None:
    """An operation of the disk fails: what had landed stays, the next daemon lands the rest."""
    disk = SlowDisk(turns, _begun().copy())
    daemon = Daemon(turns, disk)
    disk.operations.clear()
    disk._fail = lambda _, operation, __: (
        errno.EIO if operation in _SYNCS and _count(disk) == number else 0
    )
    session = daemon.begin()
    daemon.until_pumped(session, len(TRANSACTIONS))
    daemon.break_off(session)
    daemon.close()
    again = Daemon(turns, SlowDisk(turns, disk.image))
    again.finish(again.begin())
    again.close()
    check(again.disk, is_complete=True)


_SYNCS: Final = {Operation.SYNC, Operation.SYNC_DIRECTORY}


def _count(disk: SimFiles) -> int:
    return sum(operation in _SYNCS for operation, _ in disk.operations)


# ---- tests --------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [1, 2])
def test_session_that_fails(turns: Turns, moment: int) -> None:
    """Its collector may wake when the next session is there already."""
    assert turns.explore(functools.partial(_fails, turns, moment), BOUND) > 1


def test_daemon_that_ends(turns: Turns) -> None:
    """What the last thread still does before the process is gone is no harm."""
    assert turns.explore(functools.partial(_ends, turns, 2), BOUND) > 1


@pytest.mark.parametrize("scenario", [_asleep, _inserts_late, _comes_late, _throws_away])
def test_old_caller(turns: Turns, scenario: Callable[[Turns], None]) -> None:
    """Who comes when the session is over is refused, and what it left is not gone on with."""
    assert turns.explore(functools.partial(scenario, turns), 0) == 1


def test_disk_that_stands_still(turns: Turns) -> None:
    """A collector that waits for it leaves at once when its session is given up."""
    assert turns.explore(functools.partial(_stuck, turns), 0) == 1


def test_snapshot_in_flight(turns: Turns) -> None:
    """It lands before every change after it, or not at all."""
    assert turns.explore(functools.partial(_held, turns), BOUND) > 1


@pytest.mark.parametrize(("number", "bound"), [(1, 1), *((number, 0) for number in range(2, 10))])
def test_fsync_that_fails(turns: Turns, number: int, bound: int) -> None:
    """Each of them once; the first in every order."""
    assert turns.explore(functools.partial(_broken, turns, number), bound) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("is_discarded", "bound"), [(False, 2), (True, BOUND)])
def test_lanes_that_work_for_one_table(
    turns: Turns, is_discarded: bool, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is done first, the rows are in order; what is discarded stays away."""
    monkeypatch.setattr(desk_module, "_AHEAD_BYTES", 1)
    assert turns.explore(functools.partial(_hot, turns, is_discarded=is_discarded), bound) > 1


@pytest.mark.parametrize("is_discarded", [False, True])
def test_files_that_others_sync(turns: Turns, is_discarded: bool) -> None:
    """An entry waits for all of them; of what is discarded nothing stays."""
    at_once = set()
    turns.explore(lambda: at_once.add(_many(turns, is_discarded=is_discarded)), BOUND)
    assert max(at_once) > 1


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A guard that is taken out.

    Attributes:
        function: where it stands.
        old: its text.
        new: what stands there instead.
        scenario: that misses it.
        bound: of the orders that are tried.
    """

    function: Callable[..., object]
    old: str
    new: str
    scenario: Callable[[Turns], object]
    bound: int = BOUND

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take it out."""
        path = inspect.getsourcefile(self.function)
        assert path is not None
        source = Path(path).read_text()
        lines, first = inspect.getsourcelines(self.function)
        body = "".join(lines)
        assert body.count(self.old) == 1, f"{self.old!r} is not in {self.function.__qualname__}"
        before = "".join(source.splitlines(keepends=True)[: first - 1])
        mutated = before + body.replace(self.old, self.new) + source[len(before) + len(body) :]
        code = _code_of(compile(mutated, path, "exec"), self.function.__qualname__)
        assert code is not None
        monkeypatch.setattr(self.function, "__code__", code)


def _code_of(code: types.CodeType, name: str) -> types.CodeType | None:
    """The code of a function, by its qualified name."""
    if code.co_qualname == name:
        return code
    inner = (_code_of(item, name) for item in code.co_consts if isinstance(item, types.CodeType))
    return next((found for found in inner if found is not None), None)


MUTATIONS: Final = {
    "who waits is not refused": Mutation(
        WriterState._refuses, "generation not in {None, self._generation}", "False",
        _stuck, 0,
    ),
    "who comes late is not refused": Mutation(
        WriterState._check, "generation not in {None, self._generation}", "False", _comes_late, 0
    ),
    "the generation stays": Mutation(
        WriterState._supersede, "self._generation += 1", "pass", _stuck, 0
    ),
    "who waits is not woken": Mutation(
        WriterState._supersede, "self._for_room.notify_all()", "pass", _stuck, 0
    ),
    "the next session has the number of the last": Mutation(
        WriterState.begin, "self._generation += 1", "self._generation = 1", _comes_late, 0
    ),
    "a session does not revoke its collector": Mutation(
        Session._close, "self.collector.revoke()", "pass", _stuck, 0
    ),
    "a collector does not end its intake": Mutation(
        Collector.revoke, "self._writer.end()", "pass", _stuck, 0
    ),
    "a collector does not end its attendance": Mutation(
        Collector.revoke, "self._hold_session.end()", "pass", _asleep, 0
    ),
    "an insertion is not checked": Mutation(
        CommitLog.commit, "check()", "pass", _inserts_late, 0
    ),
    "what is discarded stays": Mutation(
        WriterState.end, "self._content = self._make_content()", "pass",
        functools.partial(_fails, moment=2),
    ),
    "lanes go on with what is discarded": Mutation(
        WriterState.end, "self._abandon()", "pass", _throws_away, 0
    ),
    "a file does not wait for what is encoded ahead": Mutation(
        WriterState._offer, "not file.queue[0].is_taken", "True", _hot, 2
    ),
    "what is taken is taken again": Mutation(
        WriterState.next_work, "work.queued.is_taken = True", "pass", _hot, 2
    ),
    "a file that waits is not gone on with": Mutation(
        WriterState.encoded, "self._offer(file)", "pass", _hot, 2
    ),
    "nobody waits for who syncs": Mutation(
        WriterState.next_unsynced, "self._busy += 1", "pass",
        functools.partial(_many, is_discarded=True),
    ),
    "syncers go on with what is discarded": Mutation(
        WriterState._abandon, "self._to_sync = self._not_abandoned(self._to_sync)", "pass",
        functools.partial(_many, is_discarded=True),
    ),
    "a hold passes to the next collector": Mutation(
        HoldSession.end, "self.hold.life.step(Event.LOSE)", "pass", _asleep, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_guard_is_needed(turns: Turns, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a scenario fails."""
    mutation = MUTATIONS[name]
    monkeypatch.setattr(desk_module, "_AHEAD_BYTES", 1)
    mutation.apply(monkeypatch)
    with pytest.raises(ScheduleError):
        turns.explore(lambda: mutation.scenario(turns), mutation.bound)
