"""Close one entry over several collectors, or one entry of all changes below a CSN mark.

It stands between a thread that offers marks (`daemon.csn_marks`) and the collectors, one per source::

    offer -> every collector has received up to the mark -> every collector releases the changes below
    it, hands them to the writer, and gives its part -> the last one asks for the entry

An entry is closed only where all collectors are at the mark. So transactions that committed on several
sources under one CSN are in the entry together, or not at all. By CSN a collector releases nothing
between two marks, so none has to wait for the others after it gave its part.

Sources without CSNs (PostgreSQL) have no common order and no marks. When an entry is due for one of
them, each gives its released changes at its next boundary. Then it waits until the last one has asked for
the entry, because no entry is open for changes that it would release meanwhile.

While a snapshot of one source holds entries (`collect.snapshot_gate`), no collector gives a part, and all
go on collecting. So no source gets an entry before the snapshot's. By CSN all collectors first go to the
position of the snapshot's view, as soon as a mark proves that everything up to there has arrived.

The sessions of a landing end together. Parts that were given to no entry by then are thrown away, and the
servers send them again.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gaussdecode.model.csns import Csns
from gaussdecode.model.entry import CSNS, ENDED, SETTLED
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.request import EntryRequest, Reached

_FULL_SHARE: Final = 2  # of the memory for open transactions, when a mark is due at once
_LATE_SECONDS: Final = 0.2  # after which a source is said to be waited for; arbitrary


class Cut(NamedTuple):
    """Up to where an entry goes: to a mark, or as far below it as no source has given anything up.

    Attributes:
        confirmable_lsns: per source, an LSN up to which every commit record has a CSN up to `csn`.
        csn: everything up to it lands with this entry or has landed.
        required_lsns: per source, an LSN up to which every commit record with such a CSN stood.
    """

    confirmable_lsns: Mapping[str, int]
    csn: int
    required_lsns: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """The last report of a collector.

    Attributes:
        arrived_lsn: up to there everything has been received.
        waiting: transactions that have ended and wait for their turn.
        held_bytes: memory that they take.
        given_up_csn: first CSN of the transactions that have no space and are read again in another session; None for none.
    """

    arrived_lsn: int = 0
    waiting: int = 0
    held_bytes: int = 0
    given_up_csn: int | None = None

    def lands_up_to(self, csn: int) -> int:
        """As far as an entry may go that is to go to a CSN."""
        return csn if self.given_up_csn is None else min(csn, self.given_up_csn - 1)


class EntryBarrier:
    """Cuts entries over the collectors of all sources.

    Args:
        names: names of the sources, in the order of the landing.
        commit: asks for an entry; may block while the one before is under way.
        memory_bytes: bytes of the transactions that wait; when half of it is full a mark is due.
    """

    def __init__(
        self, names: Sequence[str], commit: Callable[[EntryRequest], None], memory_bytes: int
    ) -> None:
        self._names = tuple(names)
        self._commit = commit
        self._memory_bytes = memory_bytes
        self._changed = threading.Condition()
        self._cut: Cut | None = None
        self._offered_at = 0.0
        self._arrived: set[str] = set()
        self._parts: dict[str, EntryRequest] = {}
        self._seen = {name: Seen() for name in names}
        self._waiting_since = 0.0
        self._is_asked = False
        self._held: set[str] = set()
        # By CSN: where an entry is to end, of those that are held; and what every collector gives its part of.
        self._limits: dict[str, int] = {}
        self._decided: Cut | None = None
        self._passed_csn = 0
        self._is_over = False

    # ---- who offers marks --------------------------------------------------------------

    def offer(self, cut: Cut) -> None:
        """Have the collectors cut an entry; the one before must be done."""
        with self._changed:
            assert self._cut is None
            self._cut = cut
            self._offered_at = time.monotonic()

    def wait_done(self, seconds: float) -> bool:
        """Wait until the entry was asked for; False when it was not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._cut is None, seconds)

    def wait_due(self, seconds: float, interval: float) -> bool:
        """Wait until transactions have waited long enough for a mark; False when none have.

        Args:
            seconds: how long at most.
            interval: interval that a transaction may wait.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                now = time.monotonic()
                due = self._due_at(interval)
                if due is not None and due <= now:
                    return True
                if now >= deadline:
                    return False
                self._changed.wait(min(deadline, due or deadline) - now)

    def _due_at(self, interval: float) -> float | None:
        if sum(seen.held_bytes for seen in self._seen.values()) * _FULL_SHARE > self._memory_bytes:
            return 0.0
        if self._is_asked:
            return 0.0
        if any(limit > self._passed_csn for limit in self._limits.values()):
            return 0.0
        return self._waiting_since + interval if self._waiting_since else None

    def late(self) -> list[str]:
        """Sources that have not received all up to the mark, a moment after it was offered."""
        with self._changed:
            if self._cut is None or time.monotonic() - self._offered_at < _LATE_SECONDS:
                return []
            return [name for name in self._names if name not in self._arrived]

    @property
    def held_seconds(self) -> float:
        """For how long the mark that was offered has been waited for; 0 where none was."""
        with self._changed:
            return time.monotonic() - self._offered_at if self._cut is not None else 0.0

    @property
    def is_over(self) -> bool:
        """Nothing more becomes an entry."""
        return self._is_over

    def end(self) -> None:
        """One of the sessions has ended, or is to: nobody waits for parts any more, none is an entry's."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    # ---- collectors --------------------------------------------------------------------

    def look(self, name: str, seen: Seen) -> tuple[int, Cut | None]:
        """Say how far a collector is.

        Returns:
            A CSN up to which nothing may be given up from now on, 0 for none; and the cut that the
            collector is to make now.
        """
        with self._changed:
            self._seen[name] = seen
            if seen.waiting and not self._waiting_since:
                self._waiting_since = time.monotonic()
                self._changed.notify_all()
            elif seen.held_bytes * _FULL_SHARE > self._memory_bytes:
                self._changed.notify_all()
            cut = self._cut
            if cut is None or name in self._parts or self._is_over:
                return 0, None
            if seen.arrived_lsn >= cut.required_lsns[name]:
                self._arrived.add(name)
            if name not in self._arrived:
                return 0, None
            kept_csn = seen.lands_up_to(cut.csn)
            if self._decided is None and len(self._arrived) == len(self._names):
                self._decide(cut)
            return kept_csn, self._decided

    def _decide(self, cut: Cut) -> None:
        """See how far the entry of a mark goes, the same for all; none while one is held at its limit."""
        csn = min(each.lands_up_to(cut.csn) for each in self._seen.values())
        if self._held:
            limit = min(self._limits.get(name, 0) for name in self._held)
            if self._passed_csn >= limit:
                return
            csn = min(csn, limit)
        self._decided = cut._replace(csn=csn)

    def ask(self, name: str, *, is_due: bool) -> bool:
        """Whether a collector is to give its part now; with marks, where one is due, have one taken.

        Args:
            name: name of its source.
            is_due: it finds an entry due.
        """
        with self._changed:
            if is_due and not self._is_asked:
                self._is_asked = True
                self._changed.notify_all()
            may_give = name not in self._parts and not self._held and not self._is_over
            return self._is_asked and may_give

    def hold(self, name: str, *, is_held: bool) -> None:
        """Say whether a snapshot of a source holds entries up; who gave a part before waits for it."""
        with self._changed:
            (self._held.add if is_held else self._held.discard)(name)
            if not is_held:
                self._limits.pop(name, None)

    def freeze(self, name: str) -> None:
        """By CSN: have no entry decided on from now on, for a view that is taken after this."""
        with self._changed:
            self._held.add(name)
            self._limits.pop(name, None)

    def reach(self, name: str, csn: int) -> int | None:
        """By CSN: have the entries go to a CSN and no further, while a source holds them up.

        Returns:
            The CSN that they have gone to, once they have: the same, or that of an entry which was made or
            decided on before. None before that.
        """
        with self._changed:
            if name not in self._limits:
                self._limits[name] = csn
                self._changed.notify_all()
            is_there = self._decided is None and self._passed_csn >= self._limits[name]
            return self._passed_csn if is_there else None

    def wait_asked(self, name: str, seconds: float) -> bool:
        """Wait, after a part was given, until its entry was asked for; False when it was not in time.

        By then others may have given their parts of the next one.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over or name not in self._parts, seconds)

    def give(self, name: str, part: EntryRequest) -> None:
        """Give a collector's part of the entry; the last one asks for it."""
        with self._changed:
            self._parts[name] = part
            if self._is_over or len(self._parts) < len(self._names):
                return
            request = joined([(each, self._parts[each]) for each in self._names])
        self._commit(request)
        with self._changed:
            self._parts.clear()
            self._arrived.clear()
            self._cut = self._decided = None
            self._passed_csn = request.position.csn or 0
            self._waiting_since = 0.0
            self._is_asked = False
            self._changed.notify_all()


def joined(parts: Sequence[tuple[str, EntryRequest]]) -> EntryRequest:
    """One entry of the parts of several sources, in the order of the landing."""
    (_, first), *rest = parts
    if not rest:
        return first
    requests = [part for _, part in parts]
    for _, part in rest:
        first.commit_times.join(part.commit_times)
    times = [part.commit_time for part in requests if part.commit_time is not None]
    has_content = any(part.kind is EntryKind.DATA for part in requests)
    return dataclasses.replace(
        first,
        kind=EntryKind.DATA if has_content else EntryKind.IDLE,
        commit_time=max(times, default=None),
        truncates=tuple(item for part in requests for item in part.truncates),
        schema_changes=tuple(item for part in requests for item in part.schema_changes),
        extra=_extra(requests),
        others={name: Reached(part.position, part.account) for name, part in rest},
    )


def _extra(requests: Sequence[EntryRequest]) -> dict[str, object]:
    extra: dict[str, object] = {}
    ended = [path for request in requests for path in request.extra.get(ENDED, ())]
    if ended:
        extra[ENDED] = ended
    csns: Csns | None = None
    for request in requests:
        if CSNS in request.extra:
            csns = Csns.from_record(request.extra[CSNS]).joined(csns)
    if csns is not None:
        extra[CSNS] = csns.to_record()
    settled = sum(request.extra.get(SETTLED, 0) for request in requests)
    if settled:
        extra[SETTLED] = settled
    return extra
