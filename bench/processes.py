"""What a command and its children cost: seconds, CPU seconds and peak memory by process.

Memory is the most anonymous memory (heap, stacks, shared queues) each process ever had; a
mapped recording is the kernel's cache and not counted.
"""

import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kit.daemon import command_line

_LOOK_SECONDS: Final = 0.05
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessWatch(threading.Thread):
    """Looks at a process and its children until it ends.

    Attributes:
        cpu_seconds: by process, user and system.
        peak_bytes: by process.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.is_over = threading.Event()
        self.cpu_seconds: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}

    def run(self) -> None:
        """Look twenty times a second."""
        while not self.is_over.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Look once."""
        for name, pid in {"main": self._pid, **children(self._pid)}.items():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            self.cpu_seconds[name] = (int(fields[11]) + int(fields[12])) / _TICKS
            found = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", status, re.MULTILINE)
            resident = sum(map(int, found)) * 1024
            self.peak_bytes[name] = max(self.peak_bytes.get(name, 0), resident)


def children(pid: int) -> dict[str, int]:
    """Process ids of a daemon's children: ``reader``, ``decoder 0`` ..."""
    result: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = sorted(int(text) for text in task.read_text().split())
        except OSError:
            continue
        for child in pids:
            command = command_line(child)
            if "source.reader" in command:
                result["reader"] = child
            elif "decode.worker" in command:
                result[f"decoder {sum(name.startswith('decoder') for name in result)}"] = child
    return result


def run(command: Sequence[str]) -> dict[str, Any]:
    """Run a command to its end.

    Returns:
        ``seconds``, ``cpu_seconds`` of all processes together, and ``peak_bytes`` by process.
    """
    before = os.times()
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    watch = ProcessWatch(process.pid)
    watch.start()
    status = process.wait()
    seconds = time.perf_counter() - began
    after = os.times()
    watch.is_over.set()
    watch.join()
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    spent = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
    return {"seconds": seconds, "cpu_seconds": spent, "peak_bytes": watch.peak_bytes}
