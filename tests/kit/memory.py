"""What the processes of a daemon hold in memory, all together, at the moment when it is most."""

import re
import threading
from pathlib import Path
from typing import Final

from kit.daemon import Daemon

_LOOK_SECONDS: Final = 0.05
_PART: Final = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)


class MemoryWatch(threading.Thread):
    """Adds up heap, stacks and shared queues of a daemon and its children until it is over.

    Nothing that is shared counts twice, and nothing of files counts.

    Attributes:
        before: bytes by process, when it was made.
        peak: the same, when their sum was the largest.
    """

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self._daemon = daemon
        self._is_over = threading.Event()
        self.before = self.peak = self._look()

    @property
    def grown(self) -> int:
        """Bytes that the largest sum is above the first."""
        return sum(self.peak.values()) - sum(self.before.values())

    def _look(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, pid in {"main": self._daemon.pid, **self._daemon.children()}.items():
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            found[name] = 1024 * sum(map(int, _PART.findall(text)))
        return found

    def run(self) -> None:
        """Look until it is over, and keep the largest."""
        while not self._is_over.wait(_LOOK_SECONDS):
            found = self._look()
            if sum(found.values()) > sum(self.peak.values()):
                self.peak = found

    def end(self) -> None:
        """Look no more."""
        self._is_over.set()
        self.join()
