"""Tell which cores this process may use, and how long they were idle."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_GROUPS: Final = "/sys/fs/cgroup"


class Cores:
    """The cores that this process may use, and how long nobody has used them.

    Args:
        read: text of a file; raises OSError where there is none.
    """

    def __init__(self, read: Callable[[str], str] = lambda path: Path(path).read_text()) -> None:
        self._read = read

    def idle_seconds(self, now: float) -> tuple[float, ...]:
        """Core seconds, of the machine and within a quota, if there is one; only differences mean something.

        Within a quota, what others leave idle cannot be used. A service that sees only processes in
        /proc has no /proc/stat: the root of the control groups then tells of the whole machine. Empty
        where nobody tells of the machine.

        Args:
            now: monotonic time.
        """
        machine = self._of_cores()
        if machine is None:
            machine = self._of_group("", float(os.cpu_count() or 1), now)
        quota = self._of_quota(now)
        return (
            tuple(one for one in (machine, quota) if one is not None) if machine is not None else ()
        )

    def _of_cores(self) -> float | None:
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = [line.split() for line in self._read("/proc/stat").splitlines()]
            own = [line for line in lines if line and line[0] in mine]
            return sum(int(line[4]) + int(line[5]) for line in own) / _TICKS  # idle, and iowait
        return None

    def _of_group(self, group: str, cores: float, now: float) -> float | None:
        """What a control group leaves of so many cores."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = self._read(f"{_GROUPS}{group}/cpu.stat")
            used = dict(line.split() for line in text.splitlines())
            return now * cores - int(used["usage_usec"]) / 1e6
        return None

    def _of_quota(self, now: float) -> float | None:
        with contextlib.suppress(OSError, ValueError):
            group = self._read("/proc/self/cgroup").rpartition("::")[2].strip().rstrip("/")
            quota, period = self._read(f"{_GROUPS}{group}/cpu.max").split()
            return self._of_group(group, int(quota) / int(period), now)
        return None


def least_growth(old: tuple[float, ...], new: tuple[float, ...]) -> float:
    """By how much what `Cores.idle_seconds` told has grown, by who tells of the fewest.

    Nothing where others tell than before.
    """
    if len(old) != len(new):
        return 0.0
    return min((after - before for before, after in zip(old, new, strict=True)), default=0.0)
