"""Gives processes of a landing a share of a core each, as the kernel's `cpu.max` would.

A process that has used what it may use is stopped (SIGSTOP) until it may use more again
(SIGCONT). What it could not use, because others had the cores, it may use later.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import processes

_LOOK_SECONDS: Final = 0.005
_MOST_SAVED: Final = 0.25  # CPU seconds that a process that waited may use later; arbitrary
_READER: Final = "reader"


@dataclasses.dataclass(slots=True)
class _Quota:
    """CPU seconds that one process may use now.

    Attributes:
        pid: of it.
        used: by its main thread, which does the work, since it began.
        left: until it is stopped.
        is_running: it is not stopped.
    """

    pid: int
    used: float
    left: float = 0.0
    is_running: bool = True

    def look(self, more: float) -> None:
        """Give it more, take what it has used, and stop it or let it go on."""
        used = _used(self.pid)
        self.left = min(self.left + more, _MOST_SAVED) - (used - self.used)
        self.used = used
        if self.is_running == (self.left > 0):
            return
        self.is_running = not self.is_running
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT if self.is_running else signal.SIGSTOP)


def throttle(process: subprocess.Popen[bytes], share: float) -> None:
    """Throttle each decoder, or the reader where it decodes, until a landing ends.

    Args:
        process: `gaussdecode replay`.
        share: CPU seconds per second that each may use.
    """
    while not (pids := _pids(process.pid)):
        if process.poll() is not None:
            return
        time.sleep(_LOOK_SECONDS)
    quotas = [_Quota(pid, _used(pid)) for pid in pids]
    before = time.perf_counter()
    while process.poll() is None:
        now = time.perf_counter()
        for quota in quotas:
            quota.look(share * (now - before))
        before = now
        time.sleep(_LOOK_SECONDS)


def _pids(parent: int) -> list[int]:
    """The decoders, or the reader; none before it has begun, which it does as the last one."""
    found = processes.children(parent)
    if _READER not in found:
        return []
    decoders = [pid for name, pid in found.items() if name != _READER]
    return decoders or [found[_READER]]


def _used(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0  # it has ended
