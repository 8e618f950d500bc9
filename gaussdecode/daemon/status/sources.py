"""Show the state of each source: how far behind it is, and whether the others wait for it.

A landing of several sources, or in CSN order, lands up to marks, and a mark waits for every source. So one
late source delays all, and operators must see which one it is.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Final

from gaussdecode.daemon.guard import Guard
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import Held, SessionGroup
from gaussdecode.daemon.status.facts import DaemonFacts, LandingFacts, MemberFacts, Running
from gaussdecode.daemon.status.lag import Lag, reached
from gaussdecode.ipc.control import Word
from gaussdecode.metrics.metric import Labels
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.words import counted

_LONG_SECONDS: Final = 5.0  # that a mark is waited for before that is why nothing lands; arbitrary
_NOT_HELD: Final = Held(0.0, ())


@dataclasses.dataclass(frozen=True, slots=True)
class SourceView:
    """One source at one moment.

    Attributes:
        of: the source.
        lag_bytes: WAL that has not landed.
        lag_seconds: age of the oldest end of WAL that has not.
        received_lsn: end of the last commit that was received.
        durable_lsn: everything of it up to here has landed.
        confirmed_lsn: told to the server.
        wal_end: newest end that is known.
        waiting: transactions that have ended and wait for their turn by CSN, or for an entry.
        csn: CSN of its position in the log; None where it has none.
        held: time that the present mark has waited for it; None where it does not.
    """

    of: MemberFacts
    lag_bytes: int
    lag_seconds: float
    received_lsn: int
    durable_lsn: int
    confirmed_lsn: int
    wal_end: int
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
            "received_lsn": str(Lsn(self.received_lsn)),
            "durable_lsn": str(Lsn(self.durable_lsn)),
            "confirmed_lsn": str(Lsn(self.confirmed_lsn)),
            "server_wal_end": str(Lsn(self.wal_end)),
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

    def __init__(self, facts: DaemonFacts, running: Running, landing: LandingFacts) -> None:
        self._facts = facts
        self._running = running
        self._landing = landing
        self._lags = {of.name: Lag() for of in facts.sources}

    def note(self, now: float) -> None:
        """Keep where each WAL ends, at this monotonic time."""
        session = self._running.session
        for of in self._facts.sources:
            one = session_of(session, of.name)
            self._lags[of.name].note(now, self._wal_end(of, one), self._reached(of, one))

    def look(self, session: Session | SessionGroup | None) -> list[SourceView]:
        """See all of them, in the order of the configuration."""
        held = session.held() if isinstance(session, SessionGroup) else {}
        return [
            self._view(of, session_of(session, of.name), held.get(of.name))
            for of in self._facts.sources
        ]

    def _view(self, of: MemberFacts, session: Session | None, held: Held | None) -> SourceView:
        words = {} if session is None else session.control.snapshot()
        landed, end = self._reached(of, session), self._wal_end(of, session)
        position = self._landing.positions.get(of.name)
        return SourceView(
            of=of,
            lag_bytes=max(0, end - landed),
            lag_seconds=self._lags[of.name].seconds(time.monotonic(), landed),
            received_lsn=words.get("received_lsn", 0),
            durable_lsn=self._durable(of),
            confirmed_lsn=words.get("confirmed_lsn", 0),
            wal_end=end,
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

    def _wal_end(self, of: MemberFacts, session: Session | None) -> int:
        """The newest end that is known.

        The stream tells it only with what it sends: while the server gathers a large
        transaction it sends nothing, and only the guard sees how far the WAL is.
        """
        told = 0 if session is None else session.control.snapshot()["server_wal_end"]
        return max(told, _seen_end(self._running.guard, of))


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
    return 0 if view is None or view.source not in (None, of.name) else view.wal_end


def _waiting(session: Session | None) -> int:
    if session is None or session.collector is None:
        return 0
    return session.collector.assembler.finished_count


def session_of(session: Session | SessionGroup | None, name: str) -> Session | None:
    """The session of a source among those that run."""
    return session.sessions.get(name) if isinstance(session, SessionGroup) else session


def lag_of(views: Sequence[SourceView]) -> dict[str, float]:
    """That of the daemon: the greatest of all sources, in bytes and in seconds."""
    return {
        "lag_bytes": max(view.lag_bytes for view in views),
        "lag_seconds": max(view.lag_seconds for view in views),
    }


def source_values(
    views: Sequence[SourceView], *, is_by_csn: bool
) -> dict[str, dict[Labels, float]]:
    """Metrics by source, without their prefix.

    Args:
        views: views of every source.
        is_by_csn: transactions wait for their turn, and marks for sources.
    """
    values: dict[str, dict[Labels, float]] = {
        "source_member_lag_bytes": {(view.of.name,): float(view.lag_bytes) for view in views},
        "source_member_lag_seconds": {(view.of.name,): view.lag_seconds for view in views},
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
