"""Disks that are full or broken: the daemon waits or ends, and nothing is lost."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import Workload, prepare

from gaussdecode.errors import EX_IOERR

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_POINTS = "GAUSSDECODE_FAILPOINTS"


def _fill(daemon: Daemon, workload: Workload) -> None:
    """Let a daemon, on a disk that has room for 25 writes, run into its end."""
    daemon.wait_for_state("streaming")
    workload.run(40)
    daemon.wait_while_running(
        lambda: "disk is full" in daemon.get("/readyz")[1].decode(), "a full disk"
    )


def _land_the_rest(daemon: Daemon) -> None:
    """Start again without faults, and compare."""
    daemon.environment.clear()
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, daemon.database)


@contextlib.contextmanager
def _small_disk(directory: Path, size: str) -> Iterator[bool]:
    """Mount a small file system, where we may; tell whether we did."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0750", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.parametrize(
    ("point", "error"),
    [
        ("write:20", "ENOSPC"),
        ("create:12", "EDQUOT"),
        ("link:3", "ENOSPC"),
        ("make_directory:6", "EDQUOT"),
    ],
)
def test_full_disk_passes(
    database_15: Database, make_daemon: MakeDaemon, point: str, error: str
) -> None:
    """An operation that finds the disk full is done again when there is room."""
    workload = prepare(database_15, 30)
    daemon = make_daemon(database_15, environment={_POINTS: f"{point}={error}"})
    with daemon:
        workload.run(60)
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


def test_full_disk_waits(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A disk that stays full stops the landing and not the connection; room lets it go on."""
    workload = prepare(database_15, 31)
    daemon = make_daemon(database_15)
    with _small_disk(daemon.root, "24m") as mounted, daemon:
        daemon.wait_for_state("streaming")
        workload.run(20)
        daemon.catch_up()
        ballast = daemon.root.parent / "ballast"
        if mounted:
            ballast = daemon.root / ".ballast"
            # Unbuffered: closing must have nothing left to write.
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(os.urandom(65536))
        before = daemon.durable_lsn()
        workload.run(60)
        if mounted:
            daemon.wait_while_running(
                lambda: daemon.get("/readyz")[0] != 200, "not ready: the disk is full"
            )
            assert daemon.durable_lsn() >= before
            assert database_15.slot_positions()[1] <= daemon.durable_lsn()
            ballast.unlink()
        daemon.catch_up()
        assert daemon.stop() == 0
        oracle.check(daemon.root, database_15)


def test_full_disk_at_the_start_is_said(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Recovery that waits for room is seen over HTTP and ends in order; nothing is lost by it."""
    workload = prepare(database_15, 36)
    daemon = make_daemon(database_15)
    with daemon:
        workload.run(20)
        daemon.catch_up()
        assert daemon.stop() == 0
    workload.run(20)
    daemon.environment[_POINTS] = "create:1+=ENOSPC"
    with daemon:
        daemon.wait_while_running(
            lambda: "waits for room" in ((daemon.status() or {}).get("detail") or ""), "a full disk"
        )
        assert daemon.get("/livez")[0] == 200
        status, why = daemon.get("/readyz")
        assert status == 503
        assert b"recovery waits for room" in why
        values = daemon.get("/metrics")[1].decode().splitlines()
        (full,) = (line for line in values if line.startswith("gaussdecode_land_disk_full"))
        assert float(full.split()[-1]) == 1
        record = daemon.status()
        assert record is not None
        assert record["state"] == "starting"
        assert daemon.stop() == 0
    _land_the_rest(daemon)


@pytest.mark.parametrize("point", ["write:25", "sync:9", "rename:3", "sync_directory:12"])
def test_broken_disk_ends_it(database_15: Database, make_daemon: MakeDaemon, point: str) -> None:
    """A disk error ends the daemon with status 74, and the next start repairs what it left."""
    workload = prepare(database_15, 32)
    daemon = make_daemon(database_15, environment={_POINTS: f"{point}=EIO"})
    with daemon:
        workload.run(40)
        assert daemon.wait() == EX_IOERR
        entries = daemon.entries()
        if entries:
            assert database_15.slot_positions()[1] <= landing.position(entries[-1])
    _land_the_rest(daemon)


@pytest.mark.parametrize("victim", ["reader", "worker 0"])
def test_dead_process_beside_a_full_disk(
    database_15: Database, make_daemon: MakeDaemon, victim: str
) -> None:
    """Waiting for room keeps nobody alive who cannot go on; the next start lands the rest."""
    workload = prepare(database_15, 33)
    daemon = make_daemon(database_15, environment={_POINTS: "write:25+=ENOSPC"})
    with daemon:
        _fill(daemon, workload)
        os.kill(daemon.children()[victim], signal.SIGKILL)
        assert daemon.wait() == os.EX_SOFTWARE
    _land_the_rest(daemon)


def test_stop_beside_a_full_disk(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A stop does not wait for room."""
    workload = prepare(database_15, 34)
    daemon = make_daemon(database_15, environment={_POINTS: "write:25+=ENOSPC"})
    with daemon:
        _fill(daemon, workload)
        assert daemon.stop() == 0
    _land_the_rest(daemon)
