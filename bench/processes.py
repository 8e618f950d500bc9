"""What a command and its children cost: seconds, CPU seconds and peak memory by process.

CPU seconds are those of all threads, also of threads that have ended (``/proc/PID/stat``).
Memory is the most anonymous memory (heap, stacks, shared queues) each process ever had; a
mapped recording is the kernel's cache and not counted, nor is the code of libraries.
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

_LOOK_SECONDS: Final = 0.1  # looking costs CPU time on the machine that is measured
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessWatch(threading.Thread):
    """Looks at a process and its children until it ends.

    Attributes:
        cpu_seconds: by process, user and system, since the watch or its `restart` began.
        peak_bytes: by process.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._before: dict[str, float] = {}
        self.is_over = threading.Event()
        self.cpu_seconds: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}

    def run(self) -> None:
        """Look ten times a second."""
        while not self.is_over.wait(_LOOK_SECONDS):
            self.look()

    def restart(self) -> None:
        """Forget the CPU time spent so far: what is measured begins now."""
        self._before.clear()
        self.look()
        self._before = dict(self.cpu_seconds)
        self.look()

    def look(self) -> None:
        """Look once."""
        for name, pid in {"main": self._pid, **children(self._pid)}.items():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            spent = (int(fields[11]) + int(fields[12])) / _TICKS
            self.cpu_seconds[name] = spent - self._before.get(name, 0.0)
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
                others = sum(name.startswith("reader") for name in result)
                result[f"reader {others}" if others else "reader"] = child
            elif "decode.worker" in command:
                result[f"decoder {sum(name.startswith('decoder') for name in result)}"] = child
    return result


def run(command: Sequence[str]) -> dict[str, Any]:
    """Run a command to its end.

    Returns:
        ``seconds``, ``cpu_seconds`` of all processes together, ``peak_bytes`` by process, and
        the ``output``.
    """
    before = os.times()
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watch = ProcessWatch(process.pid)
    watch.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - began
    after = os.times()
    watch.is_over.set()
    watch.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    spent = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
    return {
        "seconds": seconds,
        "cpu_seconds": spent,
        "peak_bytes": watch.peak_bytes,
        "output": output,
    }
