"""The faults of `soak.py`, in the order in which they happen.

The first ones end processes; those of the second part the daemon must outlive, so that one
life is long enough to see whether its memory grows. Each says which alerts it may raise:
an alert that fires without such a fault is a false one.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from kit.daemon import Daemon, wait_until
from kit.postgres import Postgres
from kit.proxy import Fault as Break
from kit.proxy import Proxy
from kit.systemd import Supervised
from soakload import Load

_ROOM: Final = "8g"  # far more than a soak lands, so that the disk does not seem to fill up


@dataclasses.dataclass(slots=True)
class Stage:
    """All that faults are done to.

    Attributes:
        server: behind the proxy.
        daemon: behind the supervisor.
        hold: seconds that a state must last for the alerts with scaled patience.
        disk: the landing is a file system of its own.
    """

    server: Postgres
    proxy: Proxy
    daemon: Daemon
    supervised: Supervised
    load: Load
    rng: Random
    hold: float
    disk: Path | None

    def wait_for_stream(self) -> None:
        """Until changes are streamed again."""
        wait_until(
            lambda: (self.daemon.status() or {}).get("state") == "streaming", "streaming again", 300
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: for the report.
        happen: does it, and returns when the state it makes is over.
        alerts: that it may raise.
    """

    name: str
    happen: Callable[[Stage], None]
    alerts: tuple[str, ...] = ()


def _kill(victim: str) -> Callable[[Stage], None]:
    def happen(stage: Stage) -> None:
        count = len(stage.supervised.ends)
        children = stage.daemon.children()
        os.kill(stage.daemon.pid if victim == "main" else children[victim], signal.SIGKILL)
        wait_until(lambda: len(stage.supervised.ends) > count, "its end")

    return happen


def _freeze(victim: str, seconds: float) -> Callable[[Stage], None]:
    def happen(stage: Stage) -> None:
        pid = stage.daemon.children()[victim]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    return happen


def _hang(victim: str) -> Callable[[Stage], None]:
    """Freeze a process until the daemon or the watchdog has had enough."""

    def happen(stage: Stage) -> None:
        count = len(stage.supervised.ends)
        pid = stage.daemon.pid if victim == "main" else stage.daemon.children()[victim]
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: len(stage.supervised.ends) > count, "an end of the hanging", 400)
        if victim == "main":
            assert stage.supervised.ends[-1].is_watchdog
        else:
            assert stage.supervised.ends[-1].status == os.EX_SOFTWARE

    return happen


def _configure(**sections: dict[str, object]) -> Callable[[Stage], None]:
    """Change the configuration and restart."""

    def happen(stage: Stage) -> None:
        stage.daemon.write_config(**sections)
        status = stage.supervised.restart()
        assert status == 0, f"restarted with status {status}"

    return happen


def _misconfigure(stage: Stage) -> None:
    """A mistake in the configuration: stays down until the operator mends it."""
    path = stage.daemon.config_path
    path.write_text(f"{path.read_text()}\nslots: typo\n")
    stage.supervised.restart()
    wait_until(lambda: stage.supervised.ends[-1].status == os.EX_CONFIG, "status 78")
    time.sleep(stage.hold)
    assert not stage.daemon.is_running, "78 stays down"
    stage.daemon.write_config()
    stage.supervised.start()


def _cut(times: int) -> Callable[[Stage], None]:
    """Cut the connection in the middle of a message, several times."""

    def happen(stage: Stage) -> None:
        for _ in range(times):
            before = stage.proxy.faults
            stage.proxy.plan(Break.CUT, stage.rng.choice((1, 26, 1000, 70_000)))
            wait_until(lambda before=before: stage.proxy.faults > before, "the cut", 300)
            stage.wait_for_stream()
            time.sleep(1)

    return happen


def _silence(stage: Stage) -> None:
    """The network swallows everything; the server keeps the slot taken for a while."""
    before = stage.proxy.faults
    connections = stage.proxy.connections
    stage.proxy.plan(Break.BLACKHOLE, 5000)
    wait_until(lambda: stage.proxy.faults > before, "the silence", 300)
    wait_until(lambda: stage.proxy.connections > connections, "a new connection", 300)


def _restart_server(mode: str) -> Callable[[Stage], None]:
    def happen(stage: Stage) -> None:
        stage.server.stop(mode)
        time.sleep(1)
        stage.server.start()
        stage.load.resolve()

    return happen


def _server_away(stage: Stage) -> None:
    stage.server.stop("immediate")
    time.sleep(stage.hold)
    stage.server.start()
    time.sleep(6)
    stage.load.resolve()


def _idle(stage: Stage) -> None:
    stage.load.idle(stage.hold)


def _fill_disk(stage: Stage) -> None:
    """The file system of the landing shrinks to what it holds, and grows again later."""
    assert stage.disk is not None
    taken = subprocess.run(
        ["df", "--output=used", "-k", str(stage.disk)], check=True, capture_output=True, text=True
    )
    _resize(stage.disk, f"{int(taken.stdout.split()[1]) + 64}k")
    try:
        wait_until(lambda: stage.daemon.get("/readyz")[0] != 200, "a full disk", 120)
        time.sleep(max(stage.hold, 75.0))  # GaussdecodeDiskFull waits for a minute
    finally:
        _resize(stage.disk, _ROOM)
    wait_until(lambda: stage.daemon.get("/readyz")[0] == 200, "ready again", 120)


def _resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


@contextlib.contextmanager
def own_disk(directory: Path) -> Iterator[Path | None]:
    """Give the landing a file system of its own, where we may mount one."""
    directory.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM},mode=0750", "tmpfs", str(directory)]
    is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield directory if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(directory)], check=True)


_RESTARTS: Final = ("GaussdecodeRestarts",)
_STREAM: Final = ("GaussdecodeReconnects",)
_HANGS: Final = ("GaussdecodeNoProgress", "GaussdecodeQueueFull")
_DISK: Final = ("GaussdecodeDiskFull", "GaussdecodeDiskFillingUp")

# Ends processes.
_ENDS: Final = (
    Fault("kill -9 of main", _kill("main"), _RESTARTS),
    Fault("kill -9 of the reader", _kill("reader"), _RESTARTS),
    Fault("kill -9 of a decoder", _kill("worker 0"), _RESTARTS),
    Fault(
        "restart with one decoder",
        _configure(decoding={"parallel-decode-num": 1}),
        _RESTARTS,
    ),
    Fault("main hangs", _hang("main"), (*_RESTARTS, "GaussdecodeDown")),
    Fault("the reader stands still for 20 s", _freeze("reader", 20), _STREAM),
    Fault(
        "restart with three decoders, smaller files, other lanes",
        _configure(
            decoding={"parallel-decode-num": 3},
            landing={"target-file-size": "2MiB", "writer-lanes": 1, "compression": "snappy"},
        ),
        _RESTARTS,
    ),
    Fault("a decoder hangs", _hang("worker 1"), (*_RESTARTS, *_HANGS)),
    Fault("a mistake in the configuration", _misconfigure, (*_RESTARTS, "GaussdecodeDown")),
    Fault(
        "restart with two decoders, larger files",
        _configure(
            decoding={"parallel-decode-num": 2},
            landing={"target-file-size": "8MiB", "writer-lanes": 2, "compression": "zstd"},
        ),
        _RESTARTS,
    ),
)
# The daemon outlives these.
_OUTLIVED: Final = (
    Fault("the connection is cut 3 times", _cut(3), _STREAM),
    Fault("the server restarts", _restart_server("fast"), _STREAM),
    Fault("nobody does anything", _idle),
    Fault("the server crashes and is away", _server_away, (*_STREAM, "GaussdecodeNotStreaming")),
    Fault("the disk is full", _fill_disk, (*_DISK, *_HANGS)),
    Fault("the network swallows everything", _silence, (*_STREAM, "GaussdecodeNotStreaming")),
    Fault("the connection is cut 4 times", _cut(4), _STREAM),
    Fault("the server crashes", _restart_server("immediate"), _STREAM),
)
FAULTS: Final = (*_ENDS, *_OUTLIVED)
# What the load itself raises: it writes NaN, Infinity and dates before Christ, and changes types of columns.
BY_LOAD: Final = ("GaussdecodeMisfitValues", "GaussdecodeSuspectTransactions")
