"""`gaussdecode replay` that also writes down the CPU seconds of each of its stages.

A thread's own clock is read when it ends, a child's CPU time whenever main looks at it, last
when it is dead and not yet reaped. All from the moment the reader is let go (the collector
begins) until the last entry is durable and the committer ends; so are the seconds.

    python bench/stagecpu.py COSTS SINK RECORDING --root DIR [--decoders N] [--json]

SINK is `parquet`, or `null` for that of `nullreplay.py`.

COSTS becomes JSON: ``seconds``, ``taken``: CPU seconds that others took of the cores this process
may use (other processes, the host); and under ``cpu`` the stages as
`gaussdecode.daemon.status.limit.Stage` names them, and ``other``: the main thread, and threads of
libraries. Where the reader decodes, all of its process is ``decode``.
"""

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import nullreplay

from gaussdecode import cli
from gaussdecode.daemon.status.limit import Stage

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS: Final = 0.01
_THREADS: Final = {"collector": Stage.COLLECT, "lane": Stage.ENCODE, "committer": Stage.COMMIT}
_FIRST, _LAST = "collector", "committer"
_READER: Final = "gaussdecode.source.reader"


@dataclasses.dataclass(slots=True)
class _Span:
    """CPU seconds of something, or a clock's: where they began and where they are."""

    began: float = 0.0
    now: float = 0.0

    @property
    def seconds(self) -> float:
        return self.now - self.began


class Clock:
    """CPU seconds of threads and children, and of this process, since the stream began."""

    def __init__(self) -> None:
        self._children: dict[int, tuple[bool, _Span]] = {}
        self._threads: dict[str, float] = {}
        self._main, self._wall, self._cores = _Span(), _Span(), _Span()

    def add(self, pid: int, arguments: Any) -> None:  # Any: as subprocess has it
        """A child was started."""
        self._children[pid] = (_READER in arguments, _Span())

    def look(self, pid: int) -> None:
        """Note what a child has spent, if it was not reaped."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return
        if pid in self._children:
            self._children[pid][1].now = (int(fields[11]) + int(fields[12])) / _TICKS

    def thread_begins(self, name: str) -> None:
        """Where it is the first that works on the stream, everything begins."""
        if name != _FIRST:
            return
        for pid, (_, span) in self._children.items():
            self.look(pid)
            span.began = span.now
        self._main.began, self._wall.began = time.process_time(), time.perf_counter()
        self._cores.began = busy_seconds()

    def thread_ends(self, name: str) -> None:
        """Called by the thread itself."""
        self._threads[name] = self._threads.get(name, 0.0) + time.thread_time()
        if name == _LAST:
            self._main.now, self._wall.now = time.process_time(), time.perf_counter()
            self._cores.now = busy_seconds()

    def record(self) -> dict[str, Any]:  # Any: JSON
        """Spell what was found as JSON."""
        found = dict.fromkeys((Stage.RECEIVE, Stage.DECODE, *_THREADS.values()), 0.0)
        for name, spent in self._threads.items():
            stage = _THREADS.get(name.partition("-")[0])
            if stage is not None:
                found[stage] += spent
        other = max(0.0, self._main.seconds - sum(found.values()))
        is_joined = all(is_reader for is_reader, _ in self._children.values())
        for is_reader, span in self._children.values():
            found[Stage.RECEIVE if is_reader and not is_joined else Stage.DECODE] += span.seconds
        cpu = {str(stage): spent for stage, spent in found.items()}
        cpu["other"] = other
        taken = max(0.0, self._cores.seconds - sum(cpu.values()))
        return {"seconds": self._wall.seconds, "taken": taken, "cpu": cpu}


def busy_seconds() -> float:
    """Seconds in which the cores that this process may use were not idle, since the machine began."""
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    spent = [sum(map(int, _not_idle(times))) for name, *times in lines if name in cores]
    return sum(spent) / _TICKS


def _not_idle(times: list[str]) -> list[str]:
    """User, nice, system, interrupts, and what the host took; guests are in the first two."""
    return times[:3] + times[5:8]


def watch(clock: Clock) -> None:
    """Have threads and children tell the clock."""
    run, begin, poll = threading.Thread.run, subprocess.Popen.__init__, subprocess.Popen.poll

    def told_run(self: threading.Thread) -> None:
        clock.thread_begins(self.name)
        try:
            run(self)
        finally:
            clock.thread_ends(self.name)

    def told_begin(self: subprocess.Popen[bytes], args: Any, *more: Any, **named: Any) -> None:
        begin(self, args, *more, **named)
        clock.add(self.pid, args)

    def told_poll(self: subprocess.Popen[bytes]) -> int | None:
        if self.returncode is None:
            clock.look(self.pid)
        return poll(self)

    def told_wait(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (status := told_poll(self)) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(_LOOK_SECONDS)
        return status

    told = {"__init__": told_begin, "poll": told_poll, "wait": told_wait}
    for name, function in told.items():
        setattr(subprocess.Popen, name, function)
    setattr(threading.Thread, "run", told_run)  # noqa: B010 - a method, by its name like those


def main(arguments: list[str]) -> int:
    """Replay, then write the costs."""
    path, sink, *rest = arguments
    if sink == "null":
        nullreplay.install()
    clock = Clock()
    watch(clock)
    status = cli.main(["replay", *rest])
    Path(path).write_text(json.dumps(clock.record()))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
