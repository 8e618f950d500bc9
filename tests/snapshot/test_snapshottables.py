"""Rows of a table that is read while it changes stand at one position, or do not land.

The real tools, gate, writer and commit log, on a simulated disk. The server is a list of what
it shows at each look at it; the stream a thread that attends the gate.
"""

import contextlib
import datetime as dt
import errno
import io
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.entries import relation
from kit.landrun import IDENTITY
from kit.simdisk import SimFiles

from gaussdecode.collect.arrow import table_schema
from gaussdecode.collect.snapshot_gate import Gate, HoldLostError
from gaussdecode.collect.spool import Spool
from gaussdecode.errors import DiskError, SourceError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import Point, Step
from gaussdecode.land.retention import retain
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.verify import verify_files
from gaussdecode.land.writer import Intake, Writer
from gaussdecode.model.account import Account
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, Position, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.request import EntryRequest, RowGroup
from gaussdecode.settings.landing_sections import LandingConfig, SnapshotConfig
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, MonitoringConfig, RingConfig
from gaussdecode.settings.source_sections import DecodingConfig, SourceConfig
from gaussdecode.snapshot import tools as snapshottools
from gaussdecode.snapshot.chunks import ATTEMPTS, ChunkedTable
from gaussdecode.snapshot.item import Wanted
from gaussdecode.snapshot.once import take_at_once
from gaussdecode.snapshot.read import parallel
from gaussdecode.snapshot.tools import Tools
from gaussdecode.source.export import (
    Chunk,
    Leaf,
    Measure,
    PublishedTable,
    TableChangedError,
    TableShape,
    VerifyError,
)

TABLE: Final = "public.t"
RELATION: Final = relation(1, "t", 7)
NAMES: Final = ("id", "note")
SCHEMA: Final = table_schema(RELATION.columns, NAMES)
PAGE: Final = 10  # rows with ids that far apart are in different pages
PUBLISHED: Final = PublishedTable("public", "t", 7, False, "d", None)
Rows = dict[int, str]
Row = tuple[str, int | None, str | None]  # operation, key and note


@dataclass(frozen=True)
class Sight:
    """What a server shows at one look.

    Attributes:
        lsn: position of the view.
        rows: note by id.
        file_node: of the table's file.
        unseen: why changes may not show.
        found_node: of the file that the table's name leads to by then.
    """

    lsn: int
    rows: Rows
    file_node: int = 1
    unseen: str | None = None
    found_node: int | None = None


@dataclass
class Server:
    """One table, as it is from look to look; the last sight stays.

    Attributes:
        sights: one per view that is taken, in order.
        before_view: called with the number of each view before it is taken.
        counts_more: rows that it counts and does not send.
        hash: what it makes of any text.
        disagrees: found when the reading is over, with the position of the view.
        equal_keys: that it takes for equal to any other one.
        breaks_at: number of the chunk in which it goes away, once.
    """

    sights: Sequence[Sight]
    before_view: Callable[[int], object] = lambda _: None
    counts_more: int = 0
    hash: int | None = None
    disagrees: bool = False
    equal_keys: Sequence[int] = ()
    breaks_at: int | None = None
    taken: int = 0

    def open_view(self, _seconds: float, _should_stop: object) -> "View":
        """See `export.Exporter`."""
        number = self.taken
        self.before_view(number)
        self.taken += 1
        return View(self, self.sights[min(number, len(self.sights) - 1)])

    def open_reader(self, _seconds: float, _should_stop: object) -> "Reader":
        """See `export.Exporter`."""
        return Reader(self)


class View:
    """See `export.View`."""

    name = ""
    through_csn = None

    def __init__(self, server: Server, sight: Sight) -> None:
        self.sight = sight
        self.lsn = Lsn(sight.lsn)
        self._server = server

    def find_position(self, boundary: int, shown: object, reach: object) -> None:
        """It came with its position."""

    def confirm(self, shown: object) -> None:
        """See whether the position holds."""
        if self._server.disagrees:
            raise SourceError("the position does not hold")

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Reader:
    """See `export.TableReader`."""

    is_translated = False

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sight = server.sights[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def nudge(self) -> None:
        """The stream moves by itself."""

    def begin(self, view: View) -> None:
        """See what a view does."""
        self._sight = view.sight

    def end(self) -> None:
        """Nothing is open."""

    def shape(self, table: PublishedTable) -> TableShape:
        """As the view has it."""
        sight = self._sight
        pages = max(sight.rows, default=0) // PAGE + 1
        leaf = Leaf(7, "public", "t", sight.file_node, pages, len(sight.rows))
        return TableShape(table, RELATION, ("bigint", "text"), (1, 2), (leaf,), unseen=sight.unseen)

    def check_files(self, shape: TableShape, leaves: Iterable[int]) -> None:
        """See that the name leads to the view's file."""
        assert list(leaves) == [0]
        if self._sight.found_node is not None:
            raise TableChangedError("table public.t was rewritten while it was read")

    def _of(self, chunk: Chunk) -> Rows:
        stop = float("inf") if chunk.stop is None else chunk.stop
        return {k: v for k, v in self._sight.rows.items() if chunk.first <= k // PAGE < stop}

    def copy_chunk(self, shape: TableShape, chunk: Chunk, where: str | None) -> Iterator[bytes]:
        """Its rows; a condition holds for none."""
        yield from _lines({} if where else self._of(chunk))
        if chunk.number == self._server.breaks_at:
            self._server.breaks_at = None
            raise SourceError("the server went away")

    def measure_chunk(
        self, shape: TableShape, chunk: Chunk, where: str | None, *, has_checksum: bool
    ) -> Measure:
        """What it says that it holds."""
        return Measure(len(self._of(chunk)) + self._server.counts_more, None)

    def hash_of(self, text: str) -> int:
        """What it makes of a text."""
        assert self._server.hash is not None
        return self._server.hash

    def copy_keys(
        self, shape: TableShape, keys: Sequence[int], arrays: Sequence[str], where: str | None
    ) -> Iterator[bytes]:
        """Rows with these keys, and with those that it takes for equal."""
        wanted = {int(text.strip('"')) for text in arrays[0].strip("{}").split(",")}
        wanted |= set(self._server.equal_keys)
        yield from _lines({k: v for k, v in self._sight.rows.items() if k in wanted})


def _lines(rows: Rows) -> Iterator[bytes]:
    if rows:
        yield b"".join(b"%d\t%s\n" % (key, note.encode()) for key, note in rows.items())


def changes(lsn: int, op: str, rows: Rows) -> pa.Table:
    """Rows of the stream."""
    found = [
        {"gd_op": op, "gd_epoch": 0, "gd_lsn": lsn, "gd_seq": seq}
        | ({"gd_old": {"id": key}} if op == "D" else {"id": key, "note": note})
        for seq, (key, note) in enumerate(rows.items())
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


@dataclass
class Stream:
    """Plays the collector: attends the gate, and shows a hold what comes after its boundary.

    Attributes:
        until: how far the stream comes while it is held.
        gathered: rows of that, which the hold is shown when it asks for a position.
    """

    gate: Gate
    intake: Intake
    boundary: int
    until: int
    gathered: list[pa.Table] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generation = self.intake.generation
        self.attendance = self.gate.attach()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.is_over.wait(0.001):
                if self.attendance.is_closed:
                    self.boundary = self.until
                self.attendance.attend(self)
        except Exception as error:  # noqa: BLE001 - as a session keeps its collector's
            self.errors.append(error)
            self.attendance.end()

    def commit_all(self) -> bool:
        """All is committed."""
        return True

    def reach_csn(self, csn: int) -> tuple[int, int] | None:
        """It is by LSN."""
        raise AssertionError(csn)

    def flush_tables(self, directories: Iterable[str]) -> None:
        """Hand over what is gathered."""
        for rows in self.gathered:
            self.attendance.see(TABLE, rows)
        self.gathered.clear()

    def schema_landed(self, directory: str, schema_id: str) -> None:
        """Nothing is kept of it."""


class Run:
    """A landing with a stream at 10, and the tools that read a server's table."""

    def __init__(
        self, server: Server, directory: Path, snapshot: SnapshotConfig, files: SimFiles
    ) -> None:
        self.server = server
        self.files = files
        self.log = CommitLog.open(files, IDENTITY, space=SpaceWait(sleep=lambda _: None), block=3)
        self.log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 10)))
        self.writer = Writer(self.log, lanes=1, on_durable=lambda _: None, on_error=lambda _: None)
        self.intake = self.writer.begin()
        self.store = SnapshotStore(self.log.disk)
        self.store.prepare()
        gate = Gate(lambda: Spool(directory, SpaceWait().run))
        self.stream = Stream(gate, self.intake, 10, server.sights[-1].lsn)
        self.requested = 10
        config = Config(
            path=Path("orders.yaml"),
            slot="orders",
            source=SourceConfig(kind=SourceKind.POSTGRESQL, dsn="host=nowhere dbname=shop"),
            decoding=DecodingConfig.of(SourceKind.POSTGRESQL),
            landing=LandingConfig(root=directory, writer_lanes=1, target_file_size=1),
            ring=RingConfig(),
            monitoring=MonitoringConfig(),
            snapshot=snapshot,
        )
        context: Any = SimpleNamespace(
            source=None,
            log=self.log,
            writer=self.writer,
            gate=gate,
            snapshots=self.store,
            table_filter=None,
            spool=lambda: Spool(directory, SpaceWait().run),
            snapshot_landed=lambda _: None,
        )
        self.tools = Tools(config, context, lambda: False)
        self.item = Wanted(PUBLISHED)

    def in_chunks(self) -> None:
        """Read the table in chunks."""
        ChunkedTable(self.tools, self.item).take()

    def at_once(self) -> None:
        """Read the table in one view."""
        take_at_once(self.tools, [self.item])

    def land(self, lsn: int, op: str, rows: Rows) -> None:
        """Have the stream publish changes of the table."""
        schema_id, _ = self.intake.schemas.schema_id_for(
            TABLE, {"columns": [{"name": name} for name in NAMES]}
        )
        content = changes(lsn, op, rows)
        first, last = Position(lsn, 0), Position(lsn, len(rows) - 1)
        ops = {op: len(rows)}
        self.intake.write(RowGroup(TABLE, schema_id, SCHEMA, content, first, last, ops))
        account = Account((0, self.requested), (0, lsn), ops, ops)
        self.requested = lsn
        position = SourcePosition(0, 1, lsn)
        request = EntryRequest(kind=EntryKind.DATA, position=position, account=account)
        self.intake.commit(request)

    def landed(self) -> list[Row]:
        """Every row that a snapshot has landed."""
        return landed(self.files)

    def hidden(self) -> list[str]:
        """Files below data/ that no entry names yet."""
        return [path for path in self.files.image.paths() if "/.gd-" in path and "data/" in path]

    def close(self) -> None:
        """End all."""
        self.stream.is_over.set()
        self.stream.thread.join()
        self.writer.close()
        self.log.close()


def landed(files: SimFiles) -> list[Row]:
    """Every row that a snapshot has landed."""
    found: list[Row] = []
    for item in files.items("commits"):
        if item.name.endswith(".json") and not item.name.startswith("."):
            entry = CommitEntry.from_bytes(files.read(f"commits/{item.name}"))
            for file in entry.files if entry.kind is EntryKind.SNAPSHOT else ():
                rows = pq.read_table(io.BytesIO(files.read(file.path))).to_pylist()
                found += [(row["gd_op"], row["id"], row["note"]) for row in rows]
    return sorted(found, key=str)


MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MakeRun]:
    """Makes a run over a server."""
    catalog = SimpleNamespace(look_up=lambda _: None, close=lambda: None)
    monkeypatch.setattr(snapshottools, "lookup_of", lambda _: catalog)
    with contextlib.ExitStack() as stack:

        def make(server: Server, *, files: SimFiles | None = None, **settings: Any) -> Run:
            monkeypatch.setattr(snapshottools, "exporter_of", lambda _: server)
            snapshot = SnapshotConfig(workers=1, chunk_bytes=8192, **settings)
            run = Run(server, tmp_path, snapshot, SimFiles() if files is None else files)
            stack.callback(run.close)
            return run

        yield make


OLD: Final = {1: "a", 2: "b", 11: "c", 12: "d"}
BEFORE: Final = Sight(10, OLD)


def read(rows: Rows) -> list[Row]:
    """Rows as a snapshot lands them."""
    return sorted((("R", key, note) for key, note in rows.items()), key=str)


# ---- in chunks ----------------------------------------------------------------------------


def test_what_landed_meanwhile_is_read_again(make_run: MakeRun) -> None:
    """Changes that were committed before the hold: the chunks have the rows as they were."""
    now = {1: "A", 2: "b", 11: "c", 13: "e"}
    run = make_run(Server([BEFORE, Sight(20, now)]))

    def change(number: int) -> None:
        if number == 1:
            run.land(14, "U", {1: "A"})
            run.land(16, "D", {12: "d"})
            run.land(18, "I", {13: "e"})

    run.server.before_view = change
    run.in_chunks()
    assert run.landed() == read(now)


def test_what_the_hold_was_shown_is_read_again(make_run: MakeRun) -> None:
    """Changes that the stream brings up to the last view."""
    now = {1: "A", 2: "b", 11: "c", 12: "d"}
    run = make_run(Server([BEFORE, Sight(20, now)]))
    run.stream.gathered.append(changes(15, "U", {1: "A"}))
    run.in_chunks()
    assert run.landed() == read(now)


def test_keys_that_the_server_takes_for_equal(make_run: MakeRun) -> None:
    """What comes with the changed rows, and did not change, lands once."""
    now = {1: "A", 2: "b", 11: "c", 12: "d"}
    run = make_run(Server([BEFORE, Sight(20, now)], equal_keys=[2]))
    run.stream.gathered.append(changes(15, "U", {1: "A"}))
    run.in_chunks()
    assert run.landed() == read(now)


@pytest.mark.parametrize(
    "last",
    [
        Sight(20, {}, file_node=2),
        Sight(20, OLD, unseen="a trigger writes what the stream leaves out"),
        Sight(20, {}, found_node=2),
    ],
    ids=["rewritten", "unseen", "renamed"],
)
def test_table_that_is_another_one_behind_the_reading(make_run: MakeRun, last: Sight) -> None:
    """Nothing of it lands, and nothing of it is left in the landing."""
    run = make_run(Server([BEFORE, last]))
    with pytest.raises(TableChangedError):
        run.in_chunks()
    assert run.landed() == []
    assert run.hidden() == []
    assert run.tools.attempts.get(TABLE, 0) == (ATTEMPTS if last.unseen else 0)


@pytest.mark.parametrize(
    "kind", [EntryKind.GAP, EntryKind.FORK, EntryKind.SUSPECT, EntryKind.QUARANTINE]
)
def test_changes_that_may_be_missing(make_run: MakeRun, kind: EntryKind) -> None:
    """The chunks are worth nothing: nobody can tell which rows are not what they were."""
    run = make_run(Server([BEFORE, Sight(20, OLD)]))
    run.server.before_view = lambda number: (
        run.log.commit(Draft(kind=kind)) if number == 1 else None
    )
    with pytest.raises(TableChangedError, match="came after the first chunk"):
        run.in_chunks()
    assert run.landed() == []


def test_changes_that_retention_has_taken(make_run: MakeRun) -> None:
    """The same."""
    run = make_run(Server([BEFORE, Sight(20, {1: "A"})]))

    def change(number: int) -> None:
        if number == 1:
            run.land(11, "U", {1: "A"})
            for lsn in range(12, 20):
                run.land(lsn, "I", {lsn + 100: "x"})
            run.writer.drain()
            assert retain(run.log, dt.timedelta(milliseconds=-1)) is not None

    run.server.before_view = change
    with pytest.raises(TableChangedError, match="retention"):
        run.in_chunks()
    assert run.landed() == []


def test_damaged_chunk(make_run: MakeRun) -> None:
    """What is not what was written is not landed."""
    run = make_run(Server([BEFORE, Sight(20, OLD)]))

    def damage(number: int) -> None:
        if number == 1:
            image = run.files.image
            node, file = image.file(run.store.chunks(TABLE)[0])
            assert b"ab" in file.data
            data = file.data.replace(b"ab", b"zb")
            image.nodes[node] = file._replace(data=data, synced=data)

    run.server.before_view = damage
    with pytest.raises(TableChangedError, match="was altered"):
        run.in_chunks()
    assert run.landed() == []
    assert run.hidden() == []


# ---- either way ---------------------------------------------------------------------------

BOTH: Final = pytest.mark.parametrize("way", [Run.in_chunks, Run.at_once])


@BOTH
def test_rows_land(make_run: MakeRun, way: Callable[[Run], None]) -> None:
    """Each once, it is noted, and accounted for; nothing else stays."""
    run = make_run(Server([BEFORE]))
    way(run)
    assert run.landed() == read(OLD)
    (entry,) = run.log.iterate(1, run.log.next_n - 1)
    assert entry.account == Account((0, 10), (0, 10), {"R": len(OLD)}, {"R": len(OLD)})
    assert run.store.ledger()[TABLE]["rows"] == len(OLD)
    assert run.store.tables() == []
    assert run.hidden() == []


@BOTH
def test_view_before_what_is_committed(make_run: MakeRun, way: Callable[[Run], None]) -> None:
    """Its rows would lack what has landed already: it is given up, and publications go on."""
    run = make_run(Server([BEFORE, BEFORE, Sight(9, OLD), BEFORE]))
    if way is Run.at_once:
        run.server.taken = 1
    with pytest.raises(HoldLostError, match="before the committed position"):
        way(run)
    assert run.landed() == []
    way(run)
    assert run.landed() == read(OLD)


@BOTH
def test_position_that_does_not_hold(make_run: MakeRun, way: Callable[[Run], None]) -> None:
    """What was read is thrown away, down to the last file."""
    run = make_run(Server([BEFORE], disagrees=True))
    with pytest.raises(SourceError, match="does not hold"):
        way(run)
    assert run.landed() == []
    assert run.hidden() == []


@BOTH
@pytest.mark.parametrize(
    ("server", "verify", "reason"),
    [
        (
            Server([BEFORE], counts_more=1),
            "counts",
            "the server reports 3 rows, but 2 rows arrived",
        ),
        (Server([BEFORE], hash=1), "checksums", r"hashtext\(\) differs"),
    ],
    ids=["counts", "hash"],
)
def test_server_that_disagrees(
    make_run: MakeRun, way: Callable[[Run], None], server: Server, verify: str, reason: str
) -> None:
    """A piece of which the server says something else does not land."""
    run = make_run(replace(server), verify=verify)
    with pytest.raises(VerifyError, match=reason):
        way(run)
    assert run.landed() == []


@BOTH
def test_name_that_leads_to_another_table(make_run: MakeRun, way: Callable[[Run], None]) -> None:
    """A piece that may be of another file does not land."""
    run = make_run(Server([Sight(10, OLD, found_node=2), Sight(20, OLD)]))
    run.server.sights = [run.server.sights[0]] * 2 + [run.server.sights[way is Run.in_chunks]]
    with pytest.raises(TableChangedError):
        way(run)
    assert run.landed() == []


@BOTH
def test_stream_under_way_comes_first(make_run: MakeRun, way: Callable[[Run], None]) -> None:
    """What the collector has handed over lands before the snapshot, and is looked through."""
    now = {**OLD, 1: "A"}
    files = Gated()
    run = make_run(
        Server([Sight(10, OLD if way is Run.in_chunks else now), Sight(20, now)]), files=files
    )
    files.let_go_by(run.writer, "drain")
    files.let_go_by(run.intake, "drain")

    def change(number: int) -> None:
        if number == 1:
            files.is_gated = True
            run.land(14, "U", {1: "A"})

    run.server.before_view = change
    try:
        way(run)
        kinds = [entry.kind for entry in run.log.iterate(1, run.log.next_n - 1)]
    finally:
        files.let_all_go()
    assert kinds == [EntryKind.DATA, EntryKind.SNAPSHOT]
    assert run.landed() == read(now)


class Gated(SimFiles):
    """A disk on which no publication ends before somebody waits for it.

    Attributes:
        is_gated: it is so from now on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_gated = False
        self._gate = threading.Event()

    def reach(self, point: Point) -> None:
        """Wait."""
        if self.is_gated and point is Step.FILES_CLOSED:
            self._gate.wait()

    def let_go_by(self, waiter: object, name: str) -> None:
        """Let publications end from when this is called."""
        wait = getattr(waiter, name)

        def waits(*arguments: object) -> object:
            self._gate.set()
            return wait(*arguments)

        setattr(waiter, name, waits)

    def let_all_go(self) -> None:
        """From now on."""
        self._gate.set()


def test_disk_that_fails_at_any_operation(make_run: MakeRun) -> None:
    """The entry may be decided then: only the next start can tell, and it lands all or nothing."""
    outcomes: set[int] = set()
    broken = [-1]
    for number in itertools.count():
        files = SimFiles(fail=lambda at, _, __: errno.EIO if at == broken[0] else 0)
        run = make_run(Server([BEFORE]), files=files)
        broken[0] = len(files.operations) + number
        with contextlib.suppress(DiskError):
            run.at_once()
        is_whole = len(files.operations) <= broken[0]
        broken[0] = -1
        run.close()
        again = SimFiles(files.image.copy())
        CommitLog.open(again, IDENTITY, block=3).close()
        report = verify_files(again)
        assert report.is_clean, (number, report.findings)
        assert landed(again) in ([], read(OLD))
        outcomes.add(len(landed(again)))
        if is_whole:
            break
    assert outcomes == {0, len(OLD)}


def test_refused_entry_leaves_nothing(make_run: MakeRun) -> None:
    """A session that is over when its turn comes: the files go at once."""
    run = make_run(Server([BEFORE]))
    drain = run.intake.drain

    def drain_and_end() -> None:
        drain()
        run.intake.end()

    run.intake.drain = drain_and_end  # type: ignore[method-assign]
    with pytest.raises(HoldLostError):
        run.at_once()
    assert run.landed() == []
    assert run.hidden() == []


def test_empty_table_and_condition_that_none_fulfils(make_run: MakeRun) -> None:
    """A table without rows is emptied; that no row fulfils a condition empties nothing."""
    run = make_run(Server([Sight(10, {})]))
    run.item = Wanted(PUBLISHED, where="id < 0")
    run.at_once()
    assert run.landed() == []
    assert not any(entry.truncates for entry in run.log.iterate(0, run.log.next_n - 1))
    run.item = Wanted(PUBLISHED)
    run.at_once()
    assert run.landed() == [("T", None, None)]


def test_rows_that_do_not_come_to_an_end(make_run: MakeRun) -> None:
    """An error in a reading thread is the caller's."""
    run = make_run(Server([BEFORE], breaks_at=1))
    with pytest.raises(SourceError, match="went away"):
        run.at_once()
    assert run.landed() == []
    run.server.breaks_at = 1
    with pytest.raises(SourceError, match="went away"):
        run.in_chunks()
    assert list(run.store.chunks(TABLE)) == [0]


def test_older_entry_does_not_change_what_is_noted(make_run: MakeRun) -> None:
    """A start goes through the newest entries: what the ledger knows of a later one stays."""
    run = make_run(Server([BEFORE]))
    run.at_once()
    (entry,) = run.log.iterate(1, run.log.next_n - 1)
    run.store.note({TABLE: {"state": "failed", "n": entry.n + 1}})
    run.tools.note_done(entry)
    assert run.store.ledger()[TABLE] == {"state": "failed", "n": entry.n + 1}


def test_error_of_a_job_is_the_callers() -> None:
    """The one that matters, not that others were broken off for it."""

    def fail(error: Exception) -> None:
        raise error

    jobs = [
        lambda: None,
        lambda: fail(HoldLostError("reading was stopped")),
        lambda: fail(DiskError("fsync: Input/output error")),
    ]
    with pytest.raises(DiskError):
        parallel(1, jobs)
