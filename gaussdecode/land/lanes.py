"""How many lanes encode, found out while they do (``landing.writer-lanes: auto``).

One lane more makes a landing faster where the collector waits for those at work, and the machine has cores
that nobody uses; then it gets as many more as there are idle cores, and twice as many at most. None is taken
back: a lane without work costs nothing. `Lanes` is pure: it is given the time, what lanes and collector
spent, and what of the machine was idle.
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
        first: to begin with.
        most: there may be; as many as the first where somebody named a number.
        idle_seconds: of cores, at a time; else those that this process may use.

    Attributes:
        first: as above.
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
            count: of the lanes since the last look.

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
