"""Measure how far the landing is behind the server: the age of the oldest commit that has not landed.

`Lag` keeps one moment, `Known.through`: every commit before it has landed. The lag in seconds is the age
of that moment. It moves on by the best evidence that there is:

* A commit that came and has not landed: everything before it has. This is exact.
* All that is known of the WAL has landed, while the server is heard: the moment is now, and the lag is 0.
* Else the landing has reached an end of WAL that was noted earlier: the moment is that of the note. So the
  lag is an upper bound, at most one interval of notes too large.

While the server is away nothing moves on, and the lag grows. The moment and the newest end of WAL outlast
a restart (`kept`). Before the first evidence the lag is the age of the first note of WAL that has not landed,
a lower bound; without such a note it is None. Times are seconds since 1970, as of commits. Thread-safe and
bounded.

WAL without changes for us is no lag. When everything that was sent has landed, a position up to which the
server has nothing more to send counts as landed too (`reached`).
"""

import dataclasses
import threading
from typing import Final

_LENGTH: Final = 1024  # marks; when there are more, every second one goes


def reached(durable: int, received: int, idle: int) -> int:
    """Up to where nothing is left to land.

    Args:
        durable: the landing is complete up to here.
        received: end of the last commit that was received.
        idle: the server has nothing more to send up to here; 0 when it does not say.
    """
    return max(durable, idle) if durable >= received else durable


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """The last facts about a server; they outlast a restart.

    Attributes:
        through: every commit before this time has landed; None where nothing says so.
        wal_end: newest end of its WAL that was seen; 0 for none.
        seen_time: when; None for never.
    """

    through: float | None = None
    wal_end: int = 0
    seen_time: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """The state of a stream at one moment.

    Attributes:
        is_heard: the server is connected and not silent.
        wal_end: newest end of WAL that is known now; 0 for none.
        complete_lsn: up to here nothing is left to land.
        oldest_time: commit time of the oldest commit that came and has not landed; None without one.
        landed_time: commit time of the newest commit that has landed; None where it is not known.
    """

    is_heard: bool
    wal_end: int = 0
    complete_lsn: int = 0
    oldest_time: float | None = None
    landed_time: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Mark:
    at: float
    end: int


class Lag:
    """Notes ends of WAL, and keeps until when every commit has landed.

    Args:
        known: what an earlier process knew.
    """

    def __init__(self, known: Known | None = None) -> None:
        self._lock = threading.Lock()
        self._marks: list[_Mark] = []
        self._known = known or Known()

    @property
    def known(self) -> Known:
        """The last facts."""
        return self._known

    def note(self, now: float, seen: Evidence) -> None:
        """Note where the WAL ends."""
        with self._lock:
            if not seen.is_heard:
                self._marks.clear()  # the next session may be on another timeline
                return
            end = self._end(seen)
            self._known = dataclasses.replace(
                self._known,
                through=self._through(now, seen, end),
                wal_end=end or self._known.wal_end,
                seen_time=now,
            )
            self._marks = [mark for mark in self._marks if seen.complete_lsn < mark.end < end]
            self._marks.append(_Mark(now, end))
            if len(self._marks) > _LENGTH:
                self._marks = [*self._marks[:-1:2], self._marks[-1]]

    def seconds(self, now: float, seen: Evidence) -> float | None:
        """Age of the oldest commit that has not landed; None where nothing is known."""
        with self._lock:
            end = self._end(seen)
            through = self._through(now, seen, end)
            if through is None and seen.is_heard and seen.complete_lsn < end and self._marks:
                through = self._marks[0].at
        return None if through is None else max(0.0, now - through)

    def size(self, seen: Evidence, landed: int) -> int | None:
        """Bytes of WAL behind; while the server is away, those that were known, or None.

        Args:
            seen: the present state.
            landed: up to here WAL is no lag.
        """
        with self._lock:
            end = self._end(seen)
            if seen.is_heard and end:
                return max(0, end - landed)
            behind = self._known.wal_end - landed
            return behind if landed and behind > 0 else None

    def _end(self, seen: Evidence) -> int:
        """Where the WAL ends: a look at the server that failed takes nothing back."""
        return max(seen.wal_end, self._marks[-1].end if self._marks else 0)

    def _through(self, now: float, seen: Evidence, end: int) -> float | None:
        """The newest moment that the evidence gives; it never goes back."""
        found = [self._known.through, seen.landed_time]
        if seen.oldest_time is not None:
            found.append(seen.oldest_time)
        elif seen.is_heard and 0 < end <= seen.complete_lsn:
            found.append(now)
        else:
            found += [mark.at for mark in self._marks if 0 < mark.end <= seen.complete_lsn][-1:]
        times = [min(time, now) for time in found if time is not None]
        return max(times, default=None)
