"""What the system does not give: commands and the daemon say which limit it is, and what to raise."""

import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.commands import Configure
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

from gaussdecode import limits
from gaussdecode.errors import EX_CONFIG, EX_IOERR, EX_OK, EX_OSERR, LimitError

pytestmark = pytest.mark.integration
_ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def limited(limit: str, *arguments: str) -> tuple[int, str]:
    """Run a command under a limit of the shell; gives its exit status and all that it said."""
    command = shlex.join([sys.executable, "-m", "gaussdecode", *arguments])
    done = subprocess.run(
        ["sh", "-c", f"ulimit {limit}; exec {command}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_ENVIRONMENT,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode()


@pytest.fixture
def landed(database_15: Database, make_daemon: Callable[..., Daemon]) -> Daemon:
    """A daemon that was stopped, with a landing."""
    daemon = make_daemon(database_15)
    daemon.land_a_row()
    return daemon


def test_too_few_descriptors_for_the_daemon(landed: Daemon) -> None:
    """It says how many there are, and how many it needs; with those it runs."""
    path = str(landed.config_path)
    status, said = limited("-n 24", "run", path)
    assert status == EX_CONFIG
    assert "Traceback" not in said
    found = re.search(r"may have 24 file descriptors, and (\d+) are needed", said)
    assert found is not None, said
    assert "LimitNOFILE" in said
    needed = int(found[1])
    assert limited(f"-n {needed - 1}", "run", path)[0] == EX_CONFIG
    command = shlex.join([sys.executable, "-m", "gaussdecode", "run", path])
    process = subprocess.Popen(["sh", "-c", f"ulimit -Hn {needed}; ulimit -Sn 24; exec {command}"])
    try:
        wait_until(
            lambda: (landed.status() or {}).get("state") == "streaming", "the daemon streams"
        )
        soft = Path(f"/proc/{process.pid}/limits").read_text().split("Max open files")[1].split()[0]
        assert int(soft) == needed
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < needed
        process.terminate()
        assert process.wait(60) == EX_OK
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("count", [7, 9, 11, 13, 15, 17])
def test_too_few_descriptors_for_a_command(landed: Daemon, count: int) -> None:
    """Wherever they end, also while libraries are loaded."""
    for arguments in (("verify", str(landed.root)), ("check", str(landed.config_path))):
        status, said = limited(f"-n {count}", *arguments)
        assert "Traceback" not in said
        assert status in {EX_OK, EX_OSERR, EX_IOERR, EX_CONFIG}, said
        if status != EX_OK:
            assert f"LimitNOFILE= of a unit, `ulimit -n` of a shell); it is {count}" in said


@pytest.mark.parametrize("mebibytes", [300, 400, 450, 550, 600, 650])
def test_too_little_memory_for_the_daemon(landed: Daemon, mebibytes: int) -> None:
    """Threads, libraries and queues ask for it; each says what to raise or to lower.

    Where it is just enough, the daemon streams and tells its state, for a while at least; that is not
    the same in each run. Up to 400 MiB it ends.
    """
    command = shlex.join([sys.executable, "-m", "gaussdecode", "run", str(landed.config_path)])
    with subprocess.Popen(
        ["sh", "-c", f"ulimit -v {mebibytes << 10}; exec {command}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_ENVIRONMENT,
    ) as process:
        try:
            wait_until(
                lambda: (
                    process.poll() is not None
                    or (mebibytes > 400 and (landed.status() or {}).get("state") == "streaming")
                ),
                "the daemon streams or ends",
            )
            if process.poll() is None:
                process.terminate()
            said = process.communicate(timeout=60)[1].decode()
        finally:
            process.kill()
    assert "Traceback" not in said
    if process.returncode != EX_OK:
        assert process.returncode in {EX_OSERR, EX_CONFIG}, said
        assert re.search("raise the limit|raise MemoryMax|lower ring-bytes", said), said


def test_errors_of_limits() -> None:
    """Each is known by its number, or by the words of what has no number; nothing else is."""
    found = {
        error: limits.reached(error)
        for error in (
            BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
            RuntimeError("can't start new thread"),
            OSError(errno.ENFILE, os.strerror(errno.ENFILE)),
            MemoryError(),
            ImportError("libx.so.1: cannot open shared object file: Too many open files"),
        )
    }
    assert all(isinstance(limit, LimitError) for limit in found.values())
    assert [("TasksMax" in str(limit)) for limit in found.values()] == [True, True] + [False] * 3
    for error in (
        BlockingIOError(errno.EAGAIN, "write could not complete without blocking"),
        OSError(errno.ENOENT, os.strerror(errno.ENOENT)),
        ImportError("no module"),
        RuntimeError("other"),
        ValueError("Too many open files"),
    ):
        assert limits.reached(error) is None


def test_names_that_the_locale_cannot_spell(database_15: Database, configure: Configure) -> None:
    """They are escaped, as Python does on standard error."""
    database_15.execute('CREATE TABLE public."größe" (id int4 PRIMARY KEY)')
    database_15.create_slot()
    done = subprocess.run(
        [sys.executable, "-m", "gaussdecode", "check", "--tables", configure(database_15)],
        capture_output=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == EX_OK
    assert rb"gr\xf6\xdfe" in done.stdout
