"""Keep the commit times of one entry's transactions in little memory.

Exact up to twice `LIMIT` transactions. Of more, the times are rounded down to a power of two of
microseconds, the least that leaves at most about `LIMIT` different ones: by less than 1/32768 of
the stretch between the first and the last.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from gaussdecode.model.histogram import Histogram

LIMIT: Final = 1 << 16  # arbitrary: a megabyte
_LIMIT_BITS: Final = LIMIT.bit_length() - 1
_Integers = npt.NDArray[np.int64]


class CommitTimes:
    """Gathers times, in microseconds since 1970. Owned by one thread at a time."""

    def __init__(self) -> None:
        self._times: list[_Integers] = []
        self._weights: list[_Integers] = []
        self._held = 0

    def add(self, times_us: _Integers) -> None:
        """Take the times of so many transactions; 0 is one that the source did not tell."""
        told = times_us[times_us != 0]
        self._keep(told, np.ones(len(told), dtype=np.int64))
        if self._held > 2 * LIMIT:
            self._round()

    def join(self, other: "CommitTimes") -> None:
        """Take what another one has gathered."""
        for times, weights in other.held():
            self._keep(times, weights)
        if self._held > 2 * LIMIT:
            self._round()

    def held(self) -> list[tuple[_Integers, _Integers]]:
        """Times, and how often each of them."""
        return list(zip(self._times, self._weights, strict=True))

    def tell(self, histogram: Histogram, now: float) -> None:
        """Count how long ago each of them was.

        Args:
            histogram: histogram to add the times to.
            now: seconds since 1970.
        """
        for times, weights in self.held():
            histogram.add_all(now - times / 1e6, weights)

    def _keep(self, times: _Integers, weights: _Integers) -> None:
        if len(times):
            self._times.append(times)
            self._weights.append(weights)
            self._held += len(times)

    def _round(self) -> None:
        """Keep at most about `LIMIT` different times; rounding twice is no worse than once."""
        times, weights = np.concatenate(self._times), np.concatenate(self._weights)
        span = int(times.max()) - int(times.min())
        step = (span >> _LIMIT_BITS).bit_length()
        kept, places = np.unique(times >> step << step, return_inverse=True)
        summed = np.bincount(places, weights).astype(np.int64)
        self._times, self._weights, self._held = [kept], [summed], len(kept)
