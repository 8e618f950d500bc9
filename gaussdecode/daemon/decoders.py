"""Choose the number of decoders of a stream while it runs (``parallel-decode-num: auto``).

Decoding in the reader's process costs least. It is as fast as any other way while something else is the
limit: the server, the collector, the files. More decoders can help only where the one thread that receives
and decodes is busy all the time and cores are idle. Fewer may help where no core is idle. A trial decides:
the session ends in order, the next one continues from the durable position with twice or half as many
decoders, and its bytes received per second are compared with those before.

    resting  -- decoding is the limit, cores are idle, twice in a row --> trying twice as many
    resting  -- no core is idle, six times in a row -------------------> trying half as many
    resting  -- half as many had time to spare, for two minutes -------> resting with half
    trying   -- more that bring 5 % more, fewer that bring 5 % less at most --> resting with them
    trying   -- else -------------------------------------------------------> resting as before

A trial that failed is repeated after a minute, then after two, four and so on, up to an hour. After a
change the server reads its WAL again from the oldest open transaction. Where that is far back, or not
known, nothing is changed.

`Choice` is pure: the caller gives it the time, the counters and the idle cores.
"""

import dataclasses
import enum
from typing import Final

from gaussdecode.host.cores import least_growth

WINDOW_SECONDS: Final = 5.0  # arbitrary, as all of these
SETTLE_SECONDS: Final = 3.0  # of a new session, before it is measured
BETTER: Final = 1.05
BACKOFF_SECONDS: Final = 60.0
MOST_BACKOFF_SECONDS: Final = 3600.0
MOST_REREAD_BYTES: Final = 256 << 20  # of WAL, from the oldest open transaction on
_BUSY: Final = 0.85  # of a window, from which a thread has no time left
_STALLED: Final = 0.1  # of a window, up to which nothing behind the decoders is full
_IDLE_CORES: Final = 0.5  # that a decoder more could use
_SPARE: Final = 0.5  # of a thread, below which the work of several fits one
_FULL: Final = 0.1  # idle cores, below which the machine has none left
_TRIED_WINDOWS: Final = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Counters of a session and of the machine, at one moment; seconds and bytes.

    Attributes:
        at: monotonic.
        received_bytes: bytes from the source.
        reader_busy: busy time of the reader's thread; decoding too, with one decoder.
        reader_stalled: it waited for room in a queue.
        decoders_busy: busy time of all decoders together; 0 with one.
        decoders_blocked: time that the decoders waited for the collector.
        idle: core seconds that nobody used, by each that tells; see `Cores`.
        reread_bytes: bytes of its log that the server would read again; None where that is not known.
    """

    at: float
    received_bytes: int
    reader_busy: float
    reader_stalled: float
    decoders_busy: float = 0.0
    decoders_blocked: float = 0.0
    idle: tuple[float, ...] = ()
    reread_bytes: int | None = None


class Verdict(enum.Enum):
    """The result of a window, and how many in a row cause an action."""

    NOTHING = 0
    LIMITED = 2  # decoding is what all wait for, and there are cores for more of it
    FULL = 6  # no core is left for what several decoders cost beyond one
    SPARE = 24  # half as many would have time to spare


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """What `Seen` has grown by, per second; idle cores by who tells of the fewest."""

    rate: float
    reader: float
    stalled: float
    decoders: float
    blocked: float
    idle: float

    @classmethod
    def between(cls, old: Seen, new: Seen) -> "Window":
        """Compare two moments of one session."""
        span = new.at - old.at
        return cls(
            (new.received_bytes - old.received_bytes) / span,
            (new.reader_busy - old.reader_busy) / span,
            (new.reader_stalled - old.reader_stalled) / span,
            (new.decoders_busy - old.decoders_busy) / span,
            (new.decoders_blocked - old.decoders_blocked) / span,
            least_growth(old.idle, new.idle) / span,
        )

    def verdict(self, count: int) -> Verdict:
        """What it says of a session with so many decoders."""
        if count > 1 and self.reader + self.decoders < _SPARE * max(1, count // 2):
            return Verdict.SPARE
        if count > 1 and self.idle < _FULL:
            return Verdict.FULL
        is_busy = self.decoders >= _BUSY * count if count > 1 else self.reader >= _BUSY
        behind = self.blocked / count if count > 1 else self.stalled
        if is_busy and behind <= _STALLED and self.idle >= _IDLE_CORES:
            return Verdict.LIMITED
        return Verdict.NOTHING


class Choice:
    """Decides how many decoders the next session has.

    Args:
        most: the most that there may be.

    Attributes:
        count: number of the next session.
        rate_before: bytes per second, of the sessions that are compared: with what was before,
        rate_tried: and with what is or was tried; None before anything was.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 1
        self.rate_before: float | None = None
        self.rate_tried: float | None = None
        self._kept = 1  # to go back to
        self._due_at: float | None = None
        self._last: Seen | None = None
        self._verdict = Verdict.NOTHING
        self._rates: list[float] = []  # of windows in a row that say the same, or of what is tried
        self._retry_at = 0.0
        self._backoff = BACKOFF_SECONDS

    @property
    def is_trying(self) -> bool:
        """The running session is compared with those before."""
        return self.count != self._kept

    def begin(self) -> None:
        """A session begins: what was counted before has no meaning any more."""
        self._due_at = self._last = None
        self._rates = []
        self._verdict = Verdict.NOTHING

    def is_due(self, now: float) -> bool:
        """Whether to `look`; asked while the session streams."""
        if self._due_at is None:
            self._due_at = now + SETTLE_SECONDS
        return now >= self._due_at

    def look(self, seen: Seen) -> bool:
        """Take a reading of the session that streams, when it is due.

        Returns:
            Whether the session is to end, because `count` is another one now.
        """
        last, self._last = self._last, seen
        self._due_at = seen.at + WINDOW_SECONDS
        if last is None:
            return False
        window = Window.between(last, seen)
        before = self.count
        if self.is_trying:
            self._judge(window, seen.at)
        else:
            self._rest(window, seen)
        return self.count != before

    def _judge(self, window: Window, now: float) -> None:
        """Keep what is tried, or go back."""
        assert self.rate_before is not None
        self._rates.append(window.rate)
        if len(self._rates) < _TRIED_WINDOWS:
            return
        self.rate_tried = _mean(self._rates)
        self._rates, self._verdict = [], Verdict.NOTHING
        least = self.rate_before * (BETTER if self.count > self._kept else 1 / BETTER)
        if self.rate_tried >= least:
            self._kept = self.count
            self._backoff = BACKOFF_SECONDS
            return
        self.count = self._kept
        self._retry_at = now + self._backoff
        self._backoff = min(2 * self._backoff, MOST_BACKOFF_SECONDS)

    def _rest(self, window: Window, seen: Seen) -> None:
        """Try more, or fewer, where they may bring something."""
        verdict = window.verdict(self.count)
        if verdict is not self._verdict:
            self._rates, self._verdict = [], verdict
        self._rates.append(window.rate)
        if verdict is Verdict.NOTHING or len(self._rates) < verdict.value or not _is_cheap(seen):
            return
        count = 2 * self.count if verdict is Verdict.LIMITED else self.count // 2
        if verdict is Verdict.SPARE:
            self.count = self._kept = count
        elif count <= self._most and seen.at >= self._retry_at:
            self.rate_before, self.rate_tried = _mean(self._rates[-Verdict.FULL.value :]), None
            self.count = count


def _mean(rates: list[float]) -> float:
    return sum(rates) / len(rates)


def _is_cheap(seen: Seen) -> bool:
    """Whether another session costs the server little."""
    return seen.reread_bytes is not None and seen.reread_bytes <= MOST_REREAD_BYTES
