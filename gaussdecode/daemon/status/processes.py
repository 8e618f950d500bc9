"""Read memory and CPU time of each process of the daemon from the kernel.

Read from ``/proc/PID/stat``, which a unit with ProcSubset=pid sees too. When a process is replaced by one
of the same name, its CPU time is added to the new one's: the total never falls. Thread-safe.
"""

import dataclasses
import os
import resource
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaussdecode.metrics.metric import Labels

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = resource.getpagesize()
# Fields of proc(5) after the name, which may hold spaces and ends with the last bracket.
_USER, _SYSTEM, _RESIDENT = 11, 12, 21


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """Of one process.

    Attributes:
        cpu_seconds: user and system, since it started.
        resident_bytes: now.
        state: letter of proc(5): R, S, D, T, t, Z.
    """

    cpu_seconds: float
    resident_bytes: int
    state: str = "R"


def read_use(pid: int) -> Use | None:
    """Ask the kernel; None when there is no such process, or it may not be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    return Use(ticks / _TICKS, int(fields[_RESIDENT]) * _PAGE, fields[0])


@dataclasses.dataclass(slots=True)
class _Account:
    pid: int
    before: float = 0.0  # seconds of those that had the name earlier
    seconds: float = 0.0


class Processes:
    """Remembers what processes used that are gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}

    def values(self, ids: Mapping[str, int]) -> dict[str, dict[Labels, float]]:
        """Both metrics, without their prefix.

        Args:
            ids: numbers of the processes that run, by name.
        """
        found = {name: (pid, read_use(pid)) for name, pid in ids.items()}
        with self._lock:
            for name, (pid, use) in found.items():
                if use is not None:
                    self._count(name, pid, use.cpu_seconds)
            seconds: dict[Labels, float] = {
                (name,): account.before + account.seconds
                for name, account in self._accounts.items()
            }
        resident: dict[Labels, float] = {
            (name,): float(use.resident_bytes) for name, (_, use) in found.items() if use
        }
        return {"daemon_cpu_seconds_total": seconds, "daemon_resident_bytes": resident}

    def _count(self, name: str, pid: int, seconds: float) -> None:
        account = self._accounts.setdefault(name, _Account(pid))
        if account.pid != pid:
            account.before += account.seconds
            account.pid, account.seconds = pid, 0.0
        account.seconds = max(account.seconds, seconds)  # another thread may have read later
