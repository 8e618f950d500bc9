"""Show the state of each source: how far behind it is, and whether the others wait for it.

A landing of several sources, or in CSN order, lands up to marks, and a mark waits for every source. So one
late source delays all, and operators must see which one it is.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from gaussdecode.daemon.guard import Guard
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import Held, SessionGroup
from gaussdecode.daemon.status.facts import DaemonFacts, MemberFacts, Running
from gaussdecode.daemon.status.lag import Evidence, Known, Lag, reached
from gaussdecode.daemon.status.processes import read_use
from gaussdecode.daemon.status.stopped import STOPPED, Stopped
from gaussdecode.ipc.control import Word
from gaussdecode.land.server_state import Record, read_server_state, write_server_state
from gaussdecode.metrics.metric import Labels
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.words import counted
from gaussdecode.settings.rules import SourceKind

_LONG_SECONDS: Final = 5.0  # that a mark is waited for before that is why nothing lands; arbitrary
_SILENT_SECONDS: Final = 60.0
"""Without a byte of the stream or an answer to the guard for so long a server is away. A healthy one is
heard every 30 seconds. Arbitrary."""
_KEEP_SECONDS: Final = 10.0  # between two writes of the last facts; arbitrary
_UNMOVED_SECONDS: Final = 30.0  # a reader may ask the server for so long; arbitrary
_NOT_HELD: Final = Held(0.0, ())


@dataclasses.dataclass(frozen=True, slots=True)
class SourceView:
    """One source at one moment.

    Attributes:
        of: the source.
        lag_bytes: WAL that has not landed; None where that is not known.
        lag_seconds: age of the oldest commit that has not; None likewise.
        received_lsn: end of the last commit that was received; this and the next ones are 0 where
            they are not known.
        durable_lsn: everything of it up to here has landed.
        confirmed_lsn: told to the server.
        wal_end: newest end that is known.
        seen_seconds: age of that; None for never.
        waiting: transactions that have ended and wait for their turn by CSN, or for an entry.
        csn: CSN of its position in the log; None where it has none.
        held: time that the present mark has waited for it; None where it does not.
    """

    of: MemberFacts
    lag_bytes: int | None
    lag_seconds: float | None
    received_lsn: int
    durable_lsn: int
    confirmed_lsn: int
    wal_end: int
    seen_seconds: float | None
    waiting: int
    csn: int | None
    held: Held | None

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for JSON."""
        held = self.held or _NOT_HELD
        return {
            "name": self.of.name,
            "slot": self.of.slot,
            "host": self.of.host,
            "lag_bytes": self.lag_bytes,
            "lag_seconds": self.lag_seconds,
            "received_lsn": spelled_lsn(self.received_lsn),
            "durable_lsn": spelled_lsn(self.durable_lsn),
            "confirmed_lsn": spelled_lsn(self.confirmed_lsn),
            "server_wal_end": spelled_lsn(self.wal_end),
            "server_seen_seconds": self.seen_seconds,
            "waiting_transactions": self.waiting,
            "watermark_csn": self.csn,
            "is_late": self.held is not None,
            "held_seconds": round(held.seconds, 1),
            "held_by": [{"xid": row.xid, "pid": row.pid} for row in held.running],
        }


class Sources:
    """Looks at every source; keeps the lag of each.

    Args:
        facts: data that hold from start to end.
        running: data that change; read, never written.
        landing: landed positions and counts.
    """

    def __init__(self, facts: DaemonFacts, running: Running, landing: Pipeline) -> None:
        self._facts = facts
        self._running = running
        self._landing = landing
        kept = read_server_state(facts.root) if self._is_kept else {}
        self._lags = {of.name: Lag(_known(kept.get(of.name))) for of in facts.sources}
        self._kept_at = -math.inf

    @property
    def _is_kept(self) -> bool:
        """A recording has no server, and its commits are old."""
        return self._facts.source.get("kind") != SourceKind.CAPTURE

    def note(self) -> None:
        """Keep where each WAL ends now."""
        session = self._running.session
        for of in self._facts.sources:
            self._lags[of.name].note(time.time(), self._evidence(of, session_of(session, of.name)))

    def keep(self, *, is_last: bool = False) -> None:
        """Write the last facts to the landing, if it is time; only while its lock is held.

        Args:
            is_last: the daemon ends.
        """
        now = time.monotonic()
        if not self._is_kept or (now - self._kept_at < _KEEP_SECONDS and not is_last):
            return
        self._kept_at = now
        known = {name: lag.known for name, lag in self._lags.items()}
        if any(of != Known() for of in known.values()):
            records = {name: dataclasses.asdict(of) for name, of in known.items()}
            write_server_state(self._facts.root, records)

    def look(self, session: Session | SessionGroup | None) -> list[SourceView]:
        """See all of them, in the order of the configuration."""
        held = session.held() if isinstance(session, SessionGroup) else {}
        return [
            self._view(of, session_of(session, of.name), held.get(of.name))
            for of in self._facts.sources
        ]

    def _view(self, of: MemberFacts, session: Session | None, held: Held | None) -> SourceView:
        words = {} if session is None else session.control.snapshot()
        lag, seen, now = self._lags[of.name], self._evidence(of, session), time.time()
        position, known = self._landing.positions.get(of.name), lag.known
        return SourceView(
            of=of,
            lag_bytes=lag.size(seen, self._reached(of, session)),
            lag_seconds=lag.seconds(now, seen),
            received_lsn=words.get("received_lsn", 0),
            durable_lsn=self._durable(of),
            confirmed_lsn=words.get("confirmed_lsn", 0),
            wal_end=seen.wal_end or known.wal_end,
            seen_seconds=None if known.seen_time is None else max(0.0, now - known.seen_time),
            waiting=_waiting(session),
            csn=None if position is None else position.csn,
            held=held,
        )

    def _durable(self, of: MemberFacts) -> int:
        """Of its position in the log; that of the only source is kept by those who commit."""
        if len(self._facts.sources) == 1:
            return self._landing.landed.durable.lsn
        position = self._landing.positions.get(of.name)
        return 0 if position is None else position.lsn

    def _reached(self, of: MemberFacts, session: Session | None) -> int:
        """Up to where nothing is left to land; what is idle is read before what was received."""
        durable = self._durable(of)
        if session is None:
            return durable
        idle = session.control.get(Word.IDLE_LSN)
        return reached(durable, session.control.get(Word.RECEIVED_LSN), idle)

    def _evidence(self, of: MemberFacts, session: Session | None) -> Evidence:
        """What the stream of a source proves now."""
        if session is None or session.facts is None or not self._running.standing.is_streaming:
            return Evidence(is_heard=False)
        durable = self._durable(of)
        complete = self._reached(of, session)
        end = self._wal_end(of, session)
        heard = self._is_heard(of, session)
        if session.collector is None or not self._is_kept:
            return Evidence(heard, end, complete)
        found = session.collector.unlanded(durable)
        complete = max(complete, found.complete_lsn)
        return Evidence(heard, end, complete, found.oldest_time, found.landed_time)

    def _is_heard(self, of: MemberFacts, session: Session) -> bool:
        """Whether the server has said something of late."""
        received = session.control.get(Word.LAST_RECEIVE_NS) / 1e9
        guard = self._running.guard
        outlook = None if guard is None else guard.outlook
        asked = 0.0 if outlook is None or not _seen_end(guard, of) else outlook.look.at
        return not received or time.monotonic() - max(received, asked) <= _SILENT_SECONDS

    def _wal_end(self, of: MemberFacts, session: Session) -> int:
        """The newest end that is known.

        The stream tells it only with what it sends: while the server gathers a large
        transaction it sends nothing, and only the guard sees how far the WAL is.
        """
        began = 0 if session.facts is None else int(session.facts.get("wal_end", 0))
        told = session.control.get(Word.SERVER_WAL_END)
        return max(told, began, _seen_end(self._running.guard, of))


def mark_waits(session: Session | SessionGroup | None) -> str | None:
    """The reason for which the present CSN mark waits, in words; None where it does not take long."""
    held = session.held() if isinstance(session, SessionGroup) else {}
    late = {name: of for name, of in held.items() if of.seconds >= _LONG_SECONDS}
    if not late:
        return None
    running = sum(len(of.running) for of in late.values())
    names = ", ".join(late)
    seconds = max(of.seconds for of in late.values())
    if running:
        return f"for {counted(running, 'transaction')} of {names} that may be committing, for {seconds:.0f} s so far"
    return f"for the stream or an answer of {names}, for {seconds:.0f} s so far"


def _seen_end(guard: Guard | None, of: MemberFacts) -> int:
    """What the guard saw last, where it looked at this source: LSNs of another say nothing here."""
    view = None if guard is None or guard.outlook is None else guard.outlook.look.slot
    if view is None or view.source in {None, of.name}:
        return 0 if view is None else view.wal_end
    return view.wal_ends.get(of.name, 0)


def _known(record: Record | None) -> Known:
    """What an earlier process kept; nothing where the record is not understood."""
    try:
        return Known() if record is None else Known(**record)
    except TypeError:
        return Known()


def spelled_lsn(lsn: int) -> str | None:
    """Spell a position; None for one that is not known."""
    return str(Lsn(lsn)) if lsn else None


def _waiting(session: Session | None) -> int:
    if session is None or session.collector is None:
        return 0
    return session.collector.assembler.finished_count


def session_of(session: Session | SessionGroup | None, name: str) -> Session | None:
    """The session of a source among those that run."""
    return session.sessions.get(name) if isinstance(session, SessionGroup) else session


def lag_of(views: Sequence[SourceView]) -> dict[str, float | None]:
    """That of the daemon: the greatest of all sources, in bytes and in seconds.

    None where that of a source is not known: it may be the greatest.
    """
    sizes = [view.lag_bytes for view in views if view.lag_bytes is not None]
    ages = [view.lag_seconds for view in views if view.lag_seconds is not None]
    return {
        "lag_bytes": max(sizes) if len(sizes) == len(views) else None,
        "lag_seconds": max(ages) if len(ages) == len(views) else None,
    }


def number(value: float | None) -> float:
    """A metric's value; NaN, which Prometheus shows as such, for one that is not known."""
    return math.nan if value is None else float(value)


def source_values(
    views: Sequence[SourceView], *, is_by_csn: bool
) -> dict[str, dict[Labels, float]]:
    """Metrics by source, without their prefix.

    Args:
        views: views of every source.
        is_by_csn: transactions wait for their turn, and marks for sources.
    """
    values: dict[str, dict[Labels, float]] = {
        "source_member_lag_bytes": {(view.of.name,): number(view.lag_bytes) for view in views},
        "source_member_lag_seconds": {(view.of.name,): number(view.lag_seconds) for view in views},
    }
    if not is_by_csn:
        return values
    return {
        **values,
        "collect_turn_waiting_transactions": {
            (view.of.name,): float(view.waiting) for view in views
        },
        "collect_turn_held_seconds": {
            (view.of.name,): (view.held or _NOT_HELD).seconds for view in views
        },
        "collect_watermark_csn": {
            (view.of.name,): float(view.csn) for view in views if view.csn is not None
        },
    }


def find_stopped(session: Session | SessionGroup | None) -> tuple[Stopped, ...]:
    """Look at reader and decoders of every source.

    Args:
        session: the running one, or None between two.
    """
    if session is None:
        return ()
    named = session.sessions if isinstance(session, SessionGroup) else {"": session}
    found = []
    for source, one in named.items():
        ages = one.signs_of_life()
        for name, pid in one.process_ids().items():
            use, age = read_use(pid), ages.get(name, 0.0)
            if use is not None and (use.state in STOPPED or age >= _UNMOVED_SECONDS):
                title = f"{name} of {source}" if len(named) > 1 else name
                found.append(Stopped(title, pid, use.state, age))
    return tuple(found)
