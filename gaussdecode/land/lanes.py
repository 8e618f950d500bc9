"""Choose the number of writer lanes while they encode (``landing.writer-lanes: auto``).

More lanes make a landing faster where the collector waits for busy lanes and cores are idle. Then it gets as
many more as there are idle cores, and at most twice as many as before. No lane is taken back: a lane
without work costs nothing. `Lanes` is pure: the caller gives the time, the work of lanes and collector, and
the idle cores.
"""

from collections.abc import Callable
from typing import Final

from gaussdecode.host.cores import Cores, least_growth

WINDOW_SECONDS: Final = 1.0  # arbitrary
_WAITS: Final = 0.25  # of a window, from which the collector waits for the writer
_BUSY: Final = 0.6  # and this for its lanes: the last files of an entry are closed by some of them
_IDLE_CORES: Final = 0.5  # that a lane more could use


class Lanes:
    """The number of lanes.

    Args:
        first: first to begin with.
        most: there may be; as many as the first where somebody named a number.
        idle_seconds: seconds of cores, at a time; else those that this process may use.

    Attributes:
        first: number of lanes at the beginning.
    """

    def __init__(
        self,
        first: int,
        most: int,
        idle_seconds: Callable[[float], tuple[float, ...]] | None = None,
    ) -> None:
        self.first = first
        self._most = most
        self._idle_seconds = idle_seconds or Cores().idle_seconds
        self._seen: tuple[float, float, float, tuple[float, ...]] | None = None

    def forget(self) -> None:
        """What was seen last says nothing of what comes."""
        self._seen = None

    def look(self, now: float, spent: float, waited: float, count: int) -> int:
        """See whether others would help.

        Args:
            now: monotonic seconds.
            spent: seconds of all lanes until now.
            waited: seconds in which a collector waited for the writer.
            count: number of the lanes since the last look.

        Returns:
            How many more there should be.
        """
        if count >= self._most or (self._seen is not None and now < self._seen[0] + WINDOW_SECONDS):
            return 0
        before, self._seen = self._seen, (now, spent, waited, self._idle_seconds(now))
        if before is None:
            return 0
        then, spent_then, waited_then, idle_then = before
        seconds = now - then
        idle = least_growth(idle_then, self._seen[3]) / seconds
        is_limit = waited - waited_then >= _WAITS * seconds
        is_busy = spent - spent_then >= _BUSY * count * seconds
        if not (is_limit and is_busy and idle >= _IDLE_CORES):
            return 0
        return min(max(1, int(idle)), count, self._most - count)
