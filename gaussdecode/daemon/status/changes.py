"""Remember when some metrics changed last, so that old problems are not reported for ever. Thread-safe."""

import threading
from collections.abc import Iterable, Mapping
from typing import Final

from gaussdecode.metrics.metric import Labels

_PREFIX: Final = "gaussdecode_"


class Changes:
    """Notes readings and tells ages.

    Args:
        names: names of metrics, without their prefix; those with labels are summed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._names = tuple(names)
        self._known: dict[str, tuple[float, float]] = {}  # value, and when it came

    def note(self, now: float, values: Mapping[str, Mapping[Labels, float]]) -> None:
        """Compare with what is known; a first value other than 0 is a change.

        Args:
            now: monotonic seconds.
            values: all metrics.
        """
        with self._lock:
            for name in self._names:
                value = sum(values.get(_PREFIX + name, {}).values())
                if value != self._known.get(name, (0.0,))[0]:
                    self._known[name] = value, now

    def ages(self, now: float) -> dict[str, float]:
        """Seconds since each changed; one that never has is missing."""
        with self._lock:
            return {name: now - at for name, (_, at) in self._known.items()}
