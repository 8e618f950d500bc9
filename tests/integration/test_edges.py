"""Each step in the life of a transaction, with a fault around it: each row lands once, in its time.

A life of the daemon brings a transaction to each state of `kit.lives` at once, sees that it is
there, lets something break, takes every step while it is broken, and repairs it. What the log shows and the slot
has confirmed is compared with the table before, during and after; at the end all rows with the server.
"""

import dataclasses
import enum
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kit import landing, lives, oracle
from kit.daemon import Daemon, wait_until
from kit.hostile import Hostile
from kit.lives import CLAIMS, Edge, Event, Size, State
from kit.postgres import Database, Postgres, Session, run
from kit.proxy import Fault, Proxy
from kit.turns import is_every_major

from gaussdecode.cli import main
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration


class Break(enum.Enum):
    """What breaks."""

    KILL = "the daemon is killed"
    SYNC = "the daemon is killed while it syncs an entry"
    STOP = "the daemon is stopped"
    CUT = "the connection is cut"
    FULL = "the disk is full"
    CRASH = "the server is killed"


_IN_TURN: Final = {
    16: (Break.KILL, Break.FULL, Break.CRASH),
    18: (Break.SYNC, Break.STOP, Break.CUT),
}
_HOSTILE: Final = (Break.SYNC, Break.FULL)
_DRAINS: Final = (Break.STOP, Break.CUT)
_STALLS: Final = (Break.KILL, Break.STOP, Break.CUT)
_SOURCES: Final[dict[int, dict[str, object]]] = {
    14: {"streaming": "on"},
    15: {"streaming": "on", "two-phase": True},
    16: {"streaming": "on", "two-phase": True},
    17: {"streaming": "parallel", "two-phase": True},
    18: {"streaming": "parallel", "two-phase": True},
}
_CASES: Final = [
    (major, what) for major in _SOURCES for what in Break
    if is_every_major() or what in _IN_TURN.get(major, ())
]  # fmt: skip
_IN_A_BLOCK: Final = tuple(lives.TABLE[State.IN_BLOCK])


def edges_of(major: int, what: Break) -> list[Edge]:
    """Those that one life takes: one connection stands still in one block only."""
    is_two_phase = "two-phase" in _SOURCES[major]
    held = [event for event in _IN_A_BLOCK if is_two_phase or event is not Event.PREPARE]
    event = held[(major + list(Break).index(what)) % len(held)]
    return [
        edge
        for edge in lives.edges(is_two_phase=is_two_phase)
        if edge.state is not State.IN_BLOCK or (what in _STALLS and edge.event is event)
    ]


# Rows of a transaction, of its savepoint, and of what it does later; bytes of each.
_WRITES: Final[dict[Size, tuple[int, int, int]]] = {
    Size.SMALL: (3, 2, 20),
    Size.LARGE: (700, 700, 40),
    Size.HUGE: (900, 900, 1000),
}
_MORE: Final = 1200
_FILL: Final = "INSERT INTO kit.{} SELECT g, repeat('x', %s) FROM generate_series(%s::int8, %s) g"
# What is open is sent once its WAL is flushed: by this commit, which no plug-in tells of, and
# not when the WAL writer comes to it.
_FLUSH: Final = "SELECT setval('kit.flushed', 1)"
_PRESS: Final = (
    "INSERT INTO kit.press (v) SELECT string_agg(md5(g::text || random()), '') "
    "FROM generate_series(1, 32768) g, generate_series(1, 3) n GROUP BY n"
)


@dataclasses.dataclass
class Transaction:
    """One transaction, in a table of its own.

    Attributes:
        table: its name, which is its global identifier too.
        edge: the step that it is for.
        ids: of the rows that it is to land.
        session: it is open in; None once it has ended there.
        is_waiting: it is prepared at the server.
    """

    table: str
    edge: Edge
    ids: list[int] = dataclasses.field(default_factory=list)
    session: Session | None = None
    is_waiting: bool = False

    def begin(self, database: Database) -> None:
        """Write its rows, those of a savepoint last."""
        first, second, _ = _WRITES[self.edge.size]
        self.session = database.connect()
        run(self.session, "BEGIN")
        self._fill(1, first)
        run(self.session, "SAVEPOINT s")
        self._fill(first + 1, first + second)
        database.execute(_FLUSH)

    def _fill(self, first: int, last: int) -> None:
        assert self.session is not None
        size = _WRITES[self.edge.size][2]
        run(self.session, _FILL.format(self.table), (size, first, last))
        self.ids += range(first, last + 1)

    def take(self, event: Event, database: Database) -> None:
        """Take a step at the server; those of the daemon it takes itself."""
        if event is Event.MORE:
            self._fill(len(self.ids) + 1, len(self.ids) + _MORE)
        elif event is Event.UNDO:
            assert self.session is not None
            run(self.session, "ROLLBACK TO SAVEPOINT s")
            del self.ids[_WRITES[self.edge.size][0] :]
        elif event in {Event.COMMIT, Event.ROLLBACK}:
            self._end(event.name, event is Event.COMMIT)
        elif event is Event.PREPARE:
            self._end(f"PREPARE TRANSACTION '{self.table}'", is_whole=True)
            self.is_waiting = True
        elif event in {Event.COMMIT_PREPARED, Event.ROLLBACK_PREPARED}:
            database.execute(f"{event.name.replace('_', ' ')} '{self.table}'")
            self.is_waiting = False
            self.ids = self.ids if event is Event.COMMIT_PREPARED else []

    def _end(self, how: str, is_whole: bool) -> None:
        assert self.session is not None
        run(self.session, how)
        self.session.close()
        self.session = None
        self.ids = self.ids if is_whole else []

    def lose(self) -> None:
        """Its server died."""
        if self.session is not None:
            self.session.close()
            self.session = None
            self.ids = []


@dataclasses.dataclass
class Shown:
    """What can be seen of all transactions at a moment.

    Attributes:
        ids: of landed rows, by table, in order.
        ends: positions that landed rows have, by table.
        kept: global identifiers of files that entries name.
        waiting: ends of PREPAREs, by global identifier, of those that the daemon has.
        confirmed: by the slot.
    """

    ids: dict[str, list[int]]
    ends: dict[str, set[int]]
    kept: set[str]
    waiting: dict[str, int]
    confirmed: int


class Life:
    """One daemon's life with one fault; see the head of this module."""

    def __init__(self, server: Postgres, what: Break, directory: Path) -> None:
        self.what = what
        self.database = Database(server, f"edges_{what.name.lower()}")
        self.proxy = Proxy(server.port)
        self.transactions = [
            Transaction(f"e{number}", edge)
            for number, edge in enumerate(edges_of(server.major, what))
        ]
        self._prepare()
        dsn = self.database.dsn.replace(f"port={server.port}", f"port={self.proxy.port}")
        config: dict[str, Any] = {  # Any: as YAML has it
            "source": {**_SOURCES[server.major], "receiver-timeout": "60s"},
            "decoding": {"max-txn-in-memory": 1},
            "landing": {
                "max-commit-interval": "600s",
                "target-file-size": "1MiB",
                "row-group-bytes": "1MiB",
            },
        }
        self.daemon = Daemon(self.database, directory, dsn=dsn, config=config)
        self.hostile = Hostile(directory, self.daemon.root) if what in _HOSTILE else None
        if self.hostile is not None:
            self.daemon.environment = dict(self.hostile.environment)
        self.before: Shown | None = None
        self.broken: Shown | None = None  # of a server that is down nothing is seen
        self.mended: Shown | None = None
        self.end: Shown | None = None

    def _prepare(self) -> None:
        tables = "".join(
            f"CREATE TABLE kit.{one.table} (id int8 PRIMARY KEY, v text);"
            for one in self.transactions
        )
        self.database.execute(
            "CREATE SCHEMA kit; CREATE SEQUENCE kit.flushed; CREATE TABLE kit.press (v text);"
            f"{tables}"
        )
        name = self.database.name
        self.database.execute(f'ALTER DATABASE "{name}" SET logical_decoding_work_mem = 64')
        self.database.create_slot()

    # --- one after the other -----------------------------------------------------------

    def live(self) -> None:
        """All of it."""
        with self.proxy, self.daemon:
            try:
                self._reach_states()
                self._break_and_step()
                self._finish()
            finally:
                for one in self.transactions:
                    one.lose()
                for (gid,) in self.database.execute("SELECT gid FROM pg_prepared_xacts"):
                    self.database.execute(f"ROLLBACK PREPARED '{gid}'")
        self.database.drop()

    def _of(self, *states: State) -> list[Transaction]:
        return [one for one in self.transactions if one.edge.state in states]

    def _reach_states(self) -> None:
        """Bring each transaction to its state, those first that outlast others' entries."""
        self.daemon.wait_for_state("streaming")
        self._prepare_all(self._of(State.KEPT))
        self._press(is_told=True)
        self.proxy.is_mute = True
        self._commit(self._of(State.DURABLE))
        self._press(is_told=False)
        released = self._counted("transactions") + len(self._of(State.RELEASED))
        self._commit(self._of(State.RELEASED))
        self._prepare_all(self._of(State.PREPARED))
        self.daemon.wait_while_running(
            lambda: self._counted("transactions") == released, "they are released"
        )
        for one in self._of(State.UNSENT):
            one.begin(self.database)
        for count, one in enumerate(self._of(*lives.STREAMED), 1):
            self._stream(one, count)
        assert self._counted("transactions") == released
        self.before = self._look()
        for one in self._of(State.IN_BLOCK):
            self.proxy.plan(Fault.STALL, 100_000, of_stream=True)
            one.begin(self.database)
            wait_until(lambda: self.proxy.faults == 1, "the connection stands still in a block")

    def _stream(self, one: Transaction, count: int) -> None:
        """Open a transaction, and see that it is here, in memory or on disk."""
        spooled = self._status("working_txn_spooled")
        one.begin(self.database)

        def is_here() -> bool:
            has_spooled = self._status("working_txn_spooled") > spooled
            return self._status("working_txn_cnt") == count and (
                has_spooled or one.edge.state is State.PAUSED
            )

        self.daemon.wait_while_running(is_here, f"open: {one.edge}")
        if one.edge.state is State.PAUSED:
            assert self._status("working_txn_spooled") == spooled

    def _commit(self, some: list[Transaction]) -> None:
        for one in some:
            one.begin(self.database)
            one.take(Event.COMMIT, self.database)

    def _prepare_all(self, some: list[Transaction]) -> None:
        for one in some:
            one.begin(self.database)
            one.take(Event.PREPARE, self.database)
        gids = {one.table for one in some}
        self.daemon.wait_while_running(lambda: gids <= self._waiting().keys(), "they are prepared")

    def _press(self, *, is_told: bool) -> None:
        """Commit so much that an entry is made; perhaps wait until the server knows."""
        before = self.database.wal_end()
        self.database.execute(_PRESS)
        self.daemon.wait_while_running(lambda: self.daemon.durable_lsn() > before, "an entry")
        if is_told:
            self.daemon.wait_while_running(self._is_confirmed, "its confirmation")

    def _is_confirmed(self) -> bool:
        return self.database.slot_positions()[1] >= self.daemon.durable_lsn()

    # --- what is seen ------------------------------------------------------------------

    def _status(self, name: str) -> Any:  # Any: JSON
        return (self.daemon.status() or {}).get(name)

    def _counted(self, name: str) -> int:
        text = self.daemon.get("/metrics")[1].decode()
        found = re.search(rf"^gaussdecode_collect_{name}_total{{[^}}]*}} (\S+)", text, re.MULTILINE)
        return 0 if found is None else round(float(found[1]))

    def _waiting(self) -> dict[str, int]:
        return {one["gid"]: Lsn.parse(one["lsn"]) for one in self._status("prepared_txns") or ()}

    def _look(self, waiting: dict[str, int] | None = None) -> Shown:
        """See everything; where no daemon is there to ask, with the prepared ones it had."""
        confirmed = self.database.slot_positions()[1]  # first: the log is never before it
        landed = landing.read(self.daemon.root)
        assert confirmed <= landed.durable_lsn
        ids: dict[str, list[int]] = {}
        ends: dict[str, set[int]] = {}
        for change in landed.changes:
            ids.setdefault(change.schema.table[1], []).append(change.new.get("id", 0))
            ends.setdefault(change.schema.table[1], set()).add(change.order[1])
        kept: dict[str, str] = {}  # global identifiers by path
        for entry in landed.entries:
            kept |= {file["path"]: file["gid"] for file in entry["extra"].get("prepared", ())}
            for path in entry["extra"].get("ended", ()):
                del kept[path]
        held = self._waiting() if waiting is None else waiting
        return Shown(ids, ends, set(kept.values()), held, confirmed)

    # --- faults ------------------------------------------------------------------------

    def _break_and_step(self) -> None:
        """Take the steps while something is broken; a server must have taken them before it dies."""
        assert self.before is not None
        if self.what is Break.CRASH:
            self._step()
            self._crash()
        else:
            {
                Break.KILL: self.daemon.kill9,
                Break.SYNC: self._kill_in_sync,
                Break.STOP: self._stop,
                Break.CUT: self._cut,
                Break.FULL: self._fill_disk,
            }[self.what]()
            self._step()
            self.broken = self._look(self.before.waiting)
        self.proxy.is_mute = False
        {
            Break.KILL: self.daemon.start,
            Break.SYNC: self._start_well,
            Break.STOP: self.daemon.start,
            Break.CUT: self._join,
            Break.FULL: self._empty_disk,
            Break.CRASH: self.database.server.start,
        }[self.what]()
        self._press(is_told=True)
        self.mended = self._look()

    def _step(self) -> None:
        for one in self.transactions:
            one.take(one.edge.event, self.database)

    def _kill_in_sync(self) -> None:
        """An entry is being made: files are written and not yet synced."""
        assert self.hostile is not None
        self.hostile.slow_sync(60)
        before = self.hostile.sync_count
        self.database.execute(_PRESS)
        wait_until(lambda: self.hostile is not None and self.hostile.sync_count > before, "a sync")
        self.daemon.kill9()

    def _start_well(self) -> None:
        self.daemon.environment.clear()
        self.daemon.start()

    def _stop(self) -> None:
        assert self.daemon.stop() == 0

    def _cut(self) -> None:
        """What has come whole lands before the daemon tries to come back.

        The server's catalogue can be seen: nothing lands while nobody knows of it.
        """
        self.proxy.is_stream_away = True
        self.proxy.cut_streams()
        ends = {one.table for one in self._of(State.RELEASED)}
        self.daemon.wait_while_running(lambda: ends <= self._look({}).ids.keys(), "the rest")

    def _join(self) -> None:
        self.proxy.is_stream_away = False

    def _fill_disk(self) -> None:
        assert self.hostile is not None
        self.hostile.fill_disk(is_full=True)
        self.database.execute(_PRESS)
        self.daemon.wait_while_running(
            lambda: "disk is full" in self.daemon.get("/readyz")[1].decode(), "a full disk"
        )

    def _empty_disk(self) -> None:
        assert self.hostile is not None
        self.hostile.behave()

    def _crash(self) -> None:
        self.database.server.kill9()
        for one in self.transactions:
            one.lose()

    # --- the end -----------------------------------------------------------------------

    def _finish(self) -> None:
        """Commit what is open yet, and compare all with the server."""
        for one in self.transactions:
            if one.session is not None:
                one.take(Event.COMMIT, self.database)
            elif one.is_waiting:
                one.take(Event.COMMIT_PREPARED, self.database)
        self._press(is_told=True)
        self.database.execute("CHECKPOINT")  # tells of transactions that died with their server
        self.daemon.wait_while_running(
            lambda: self._status("working_txn_cnt") == 0, "nothing is open"
        )
        assert self._waiting() == {}
        self.end = self._look()
        assert self.daemon.stop() == 0
        assert not list((self.daemon.root / "spool").iterdir())
        oracle.check(self.daemon.root, self.database)
        assert main(["verify", str(self.daemon.root)]) == 0


@pytest.fixture(scope="module")
def lived(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[int, Break], Life]]:
    """Lives by major and fault, each lived when it is first asked for."""
    servers: dict[int, Postgres] = {}

    @functools.cache
    def live(major: int, what: Break) -> Life | BaseException:
        if major not in servers:
            settings = {
                "autovacuum": "off",  # before 15 its transactions come too, empty
                "max_prepared_transactions": "40",
                "wal_sender_timeout": "0",
            }
            servers[major] = Postgres(major, settings).__enter__()
        life = Life(servers[major], what, tmp_path_factory.mktemp(what.name.lower()))
        try:
            life.live()
        except BaseException as error:  # noqa: BLE001 - raised for each of its edges
            return error
        return life

    def get(major: int, what: Break) -> Life:
        found = live(major, what)
        if isinstance(found, BaseException):
            raise found
        return found

    yield get
    for server in servers.values():
        server.remove()


@pytest.mark.parametrize(
    ("major", "what", "edge"),
    [
        pytest.param(major, what, edge, id=f"{major}-{what.name.lower()}-{edge}")
        for major, what in _CASES
        for edge in edges_of(major, what)
    ],
)
def test_edge(lived: Callable[[int, Break], Life], major: int, what: Break, edge: Edge) -> None:
    """It was in the state, nothing was to be seen too early, and its rows landed once, in order."""
    life = lived(major, what)
    (one,) = [each for each in life.transactions if each.edge == edge]
    assert life.before is not None
    assert life.mended is not None
    assert life.end is not None
    check(one, edge.state, life.before, life.end)
    if life.broken is not None:
        drained = lives.IN_TIME.get(edge.state, edge.state) if what in _DRAINS else edge.state
        check(one, drained, life.broken, life.end, is_told=False)
        assert life.broken.confirmed == life.before.confirmed
    following = edge.following
    if what is Break.CRASH and following in lives.OPEN:
        following = State.GONE
    check(one, lives.IN_TIME.get(following, following), life.mended, life.end)
    assert life.end.ids.get(one.table, []) == one.ids
    assert len(life.end.ends.get(one.table, ())) == bool(one.ids)


def check(
    one: Transaction, state: State, shown: Shown, end: Shown, *, is_told: bool = True
) -> None:
    """Assert what the table claims of a state; `is_told`: the server is there to confirm to."""
    claim = CLAIMS[state]
    assert (one.table in shown.ids) == claim.is_visible
    assert (one.table in shown.kept) == claim.is_kept
    if claim.is_confirmed is not None and (is_told or not claim.is_confirmed):
        ends = end.ends.get(one.table, set())
        until = shown.waiting[one.table] if state in lives.PREPARED else max(ends)
        assert (shown.confirmed >= until) == claim.is_confirmed
