r"""Hold commits back for a moment, so that a snapshot becomes an entry before later changes do.

A snapshot of a table must be committed before any change after its position. So the snapshot asks for a
*hold*: the collector commits everything that it has released, and then collects without committing. The
hold sees the batches that the collector hands to the writer for the tables being read, so it knows every
later change. Batches that somebody will look at wait in the spool, however much is streamed meanwhile.

A hold belongs to one collector: to the `HoldSession` that was open when the hold was made. When that session
ends, the hold is lost. A collector of an ended session cannot reach a hold of the next one. The states::

            ready    act     acted  lose
    wanted  held     -       -      lost
    held    -        acting  -      lost
    acting  -        -       done   acting   what has begun is finished, then judged
    done    -        -       -      done
    lost    lost     -       -      lost

Threads: `hold`, `reach`, `run` and `release` are the snapshot's side and block; `attend`,
`see` and `end` never block but for a short lock: the first two are the collector's, `end` is
anybody's.
"""

import enum
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import pyarrow as pa

from gaussdecode.automaton import Automaton
from gaussdecode.collect.spooled import Pieces, SpooledRows, Store
from gaussdecode.errors import GaussDecodeError, SupersededError

_POLL_SECONDS: Final = 0.2  # how soon a stop that was asked for is noticed
_MARK_SECONDS: Final = 600.0  # until a view that waits for a mark is let go; arbitrary
_POSITION: Final = ("gd_lsn", "gd_csn")  # by which a view finds where it stands


class HoldLostError(GaussDecodeError):
    """The session ended, or a stop was asked for, while a hold was kept; try again."""

    retryable = True


class State(enum.Enum):
    """Of a hold."""

    WANTED = "wanted"
    HELD = "held"
    ACTING = "acting"
    DONE = "done"
    LOST = "lost"


class Event(enum.Enum):
    """In a hold's life."""

    READY = "ready"
    ACT = "act"
    ACTED = "acted"
    LOSE = "lose"


HOLD: Final[Mapping[State, Mapping[Event, State]]] = {
    State.WANTED: {Event.READY: State.HELD, Event.LOSE: State.LOST},
    State.HELD: {Event.ACT: State.ACTING, Event.LOSE: State.LOST},
    State.ACTING: {Event.ACTED: State.DONE, Event.LOSE: State.ACTING},
    State.DONE: {Event.LOSE: State.DONE},
    State.LOST: {Event.READY: State.LOST, Event.LOSE: State.LOST},
}


class CollectorPort(Protocol):
    """The part of the collector that the gate uses; called in its thread."""

    def commit_all(self) -> bool:
        """Commit all that is released; False when that cannot be now."""

    def flush_tables(self, directories: Iterable[str]) -> None:
        """Hand what is gathered of these tables to the writer."""

    def schema_landed(self, directory: str, schema_id: str) -> None:
        """A snapshot has changed a table over to another schema."""

    @property
    def boundary(self) -> int:
        """LSN up to which all transactions are released."""

    @property
    def generation(self) -> int:
        """Of the writer's intake."""

    def reach_csn(self, csn: int) -> tuple[int, int] | None:
        """By CSN: have all up to a CSN committed, and nothing after it; see `EntryBarrier.reach`.

        Returns:
            The CSN, and the LSN up to which all of that stood in the log; None before it is committed.
        """


class Hold:
    """One hold; made by `Gate.hold`.

    Attributes:
        columns: per directory of the tables whose changes are shown to it, what is kept of
            them, beside their positions.
        boundary: the position at which all was committed.
        seen: the changes since, in the order in which they came.
        stands_at: the position by CSN up to which everything is committed; see `Gate.reach_csn`.
        life: its state; stepped under the gate's lock.
    """

    def __init__(self, columns: Mapping[str, Iterable[str]], spool: Store) -> None:
        self.columns = {table: {*_POSITION, *names} for table, names in columns.items()}
        self.seen = SpooledRows(spool)
        self.life = Automaton("hold", HOLD, State.WANTED)
        self.boundary = 0
        self.wanted_lsn: int | None = None
        self.wanted_csn: int | None = None
        self.stands_at: tuple[int, int] | None = None
        self.is_reached = False
        self.action: Callable[[CollectorPort], object] | None = None
        self.error: BaseException | None = None


class Gate:
    """Between collectors and snapshots; one hold at a time.

    Args:
        make_spool: makes the spool in which a hold keeps its batches.
        should_stop: asked while the snapshot's side waits.
    """

    def __init__(
        self, make_spool: Callable[[], Store], should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._make_spool = make_spool
        self._should_stop = should_stop
        self._changed = threading.Condition()
        self._hold_session: HoldSession | None = None

    def attach(self, *, is_open: bool = True) -> "HoldSession":
        """A collector is there: the one of the newest session. The one before is not.

        Args:
            is_open: snapshots may be taken; else only after `HoldSession.open`.
        """
        with self._changed:
            if self._hold_session is not None:
                self._hold_session.end()
            self._hold_session = HoldSession(self._changed, is_open=is_open)
            return self._hold_session

    @property
    def is_attended(self) -> bool:
        """A collector is at work."""
        hold_session = self._hold_session
        return hold_session is not None and hold_session.is_open and not hold_session.is_over

    def hold(self, columns: Mapping[str, Iterable[str]]) -> Hold:
        """Have the collector commit all it has, and commit nothing from then on.

        Args:
            columns: columns by directory of the tables to hold, what is to be seen of their changes
                beside the position.

        Raises:
            HoldLostError: no session is there, or it ended.
        """
        with self._changed:
            hold_session = self._hold_session
            if hold_session is None or hold_session.is_over or not hold_session.is_open:
                raise HoldLostError("no session is streaming")
            assert hold_session.hold is None
            hold = hold_session.hold = Hold(columns, self._make_spool())
        try:
            self._wait(hold, State.HELD)
        except BaseException:
            self.release(hold)
            raise
        return hold

    def reach(self, hold: Hold, lsn: int, nudge: Callable[[], object]) -> None:
        """Wait until every change up to a position has been shown to the hold.

        Args:
            hold: kept.
            lsn: the position; it may be asked for one after the other.
            nudge: called every second, to make a quiet server say how far it is.

        Raises:
            HoldLostError: the hold is lost.
        """
        with self._changed:
            if hold.wanted_lsn is None or hold.wanted_lsn < lsn:
                hold.wanted_lsn = lsn
                hold.is_reached = False
        nudge_at = time.monotonic() + 1.0
        while not hold.is_reached:
            with self._changed:
                self._check(hold)
                self._changed.wait_for(
                    lambda: hold.is_reached or hold.life.state is State.LOST, _POLL_SECONDS
                )
            if time.monotonic() >= nudge_at and not hold.is_reached:
                nudge_at = time.monotonic() + 1.0
                nudge()

    def reach_csn(self, hold: Hold, csn: int) -> tuple[int, int]:
        """By CSN: wait until all up to a CSN is committed; nothing after it is while the hold is kept.

        Args:
            hold: kept.
            csn: asked for once.

        Returns:
            The CSN that was reached, which may be a greater one where several sources share a clock; and the
            LSN up to which all of that stood in the log.

        Raises:
            HoldLostError: the hold is lost, or transactions ran too long.
        """
        deadline = time.monotonic() + _MARK_SECONDS
        with self._changed:
            hold.wanted_csn = csn
            while hold.stands_at is None:
                self._check(hold)
                if time.monotonic() >= deadline:
                    raise HoldLostError(
                        f"no CSN mark reached {csn} in {_MARK_SECONDS:.0f} seconds; the snapshot tries again"
                    )
                self._changed.wait(_POLL_SECONDS)
            return hold.stands_at

    def shown(self, hold: Hold, lsn: int, nudge: Callable[[], object]) -> Pieces:
        """Every change of the tables that are held, up to a position and perhaps further.

        Raises:
            HoldLostError: the hold is lost.
        """
        self.reach(hold, lsn, nudge)
        return hold.seen.pieces()

    def run(self, hold: Hold, action: Callable[[CollectorPort], object]) -> None:
        """Have the collector's thread do something while nothing is committed.

        Raises:
            HoldLostError: the hold is lost; the action was not begun, or was refused as a
                whole because its session was over.
        """
        with self._changed:
            hold.action = action
        self._wait(hold, State.DONE)
        if isinstance(hold.error, SupersededError):
            raise HoldLostError("the session ended") from hold.error
        if hold.error is not None:
            raise hold.error

    def release(self, hold: Hold) -> None:
        """Let the collector commit again."""
        with self._changed:
            hold.life.step(Event.LOSE)
            if self._hold_session is not None and self._hold_session.hold is hold:
                self._hold_session.hold = None
        hold.seen.close()

    def _wait(self, hold: Hold, state: State) -> None:
        with self._changed:
            while hold.life.state is not state:
                self._check(hold)
                self._changed.wait(_POLL_SECONDS)

    def _check(self, hold: Hold) -> None:
        if hold.life.state is State.LOST:
            raise HoldLostError("the session ended")
        if self._should_stop() and hold.life.state is not State.ACTING and hold.action is None:
            raise HoldLostError("a stop was asked for")


class HoldSession:
    """The collector's side of a gate, for one session; made by `Gate.attach`.

    Args:
        changed: the gate's lock.
        is_open: snapshots may be taken from the start.

    Attributes:
        hold: hold that a snapshot asks of this collector, or None.
        is_over: its session is.
        is_open: the server is known to be the log's, so that snapshots may be taken of it.
    """

    def __init__(self, changed: threading.Condition, *, is_open: bool = True) -> None:
        self.is_open = is_open
        self.hold: Hold | None = None
        self.is_over = False
        self._changed = changed

    def open(self) -> None:
        """Let snapshots be taken."""
        self.is_open = True

    @property
    def is_closed(self) -> bool:
        """Nothing may be committed now."""
        hold = self.hold
        return hold is not None and hold.life.state in {State.HELD, State.ACTING}

    def attend(self, port: CollectorPort) -> None:
        """Do what the hold asks for, between two slices of the stream."""
        hold = self.hold
        if hold is None or hold.life.state in {State.DONE, State.LOST}:
            return
        if hold.life.state is State.WANTED:
            if port.commit_all():
                hold.boundary = port.boundary
                self._step(hold, Event.READY)
            return
        wanted = hold.wanted_lsn
        if wanted is not None and not hold.is_reached and port.boundary >= wanted:
            port.flush_tables(hold.columns)
            with self._changed:
                hold.is_reached = hold.wanted_lsn == wanted
                self._changed.notify_all()
        if hold.wanted_csn is not None and hold.stands_at is None:
            stands_at = port.reach_csn(hold.wanted_csn)
            with self._changed:
                hold.stands_at = stands_at
                self._changed.notify_all()
        if hold.action is not None:
            self._act(hold, hold.action, port)

    def _act(
        self, hold: Hold, action: Callable[[CollectorPort], object], port: CollectorPort
    ) -> None:
        with self._changed:
            if hold.life.state is State.LOST:
                return
            hold.life.step(Event.ACT)
            hold.action = None
        try:
            action(port)
        except BaseException as error:
            hold.error = error
            raise
        finally:
            self._step(hold, Event.ACTED)

    def _step(self, hold: Hold, event: Event) -> None:
        with self._changed:
            hold.life.step(event)
            self._changed.notify_all()

    def see(self, directory: str, rows: pa.Table) -> None:
        """Show rows that go to the writer."""
        hold = self.hold
        if hold is not None and self.is_closed and directory in hold.columns:
            kept = hold.columns[directory]
            hold.seen.add(rows.select([name for name in rows.schema.names if name in kept]))

    def end(self) -> None:
        """No more is collected in this session, or the last of it is to be committed."""
        with self._changed:
            self.is_over = True
            if self.hold is not None:
                self.hold.life.step(Event.LOSE)
                self.hold = None
            self._changed.notify_all()
