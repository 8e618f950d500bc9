"""Start child processes of the pipeline, and receive their reports.

Given a module to run and its settings. The child has no descriptors except the given ones, and a short
environment. Its settings are neither in its arguments nor in its environment. It dies with its parent. Its
reports arrive as whole JSON objects. Settings and reports are not interpreted here, except that
descriptors have keys that end with ``_fd`` or ``_fds``.

A child is started, and imports; then it gets its settings, and works. In between it may wait:
`Prepared` holds children that import while their parent does. Settings are one line of JSON on standard input,
which is a socket; the descriptors that they name go beside it, and have numbers of their own in the child.
Reports are one line of JSON each, through a pipe. Rows travel in rings, never here.

A terminal's Ctrl-C reaches only the parent: children are in a process group of their own,
and ignore SIGINT and SIGTERM (systemd sends those to the whole group). They stop when
the parent says so through the control block, when it kills them, or when it dies.

Children are started with `subprocess`. `multiprocessing` pickles data and keeps a tracker process; a fork of a
prepared process does not work, because threads of pyarrow and libpq do not survive it.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from gaussdecode import limits
from gaussdecode.errors import ChildError, to_record

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
LIBRARIES: Final = ("PG*", "SSL*", "KRB5*", "HOME", "PSYCOPG_IMPL")
"""Environment variables that libpq, TLS and Kerberos read."""

_KEPT: Final = ("PATH", "LANG", "TZ", "PYTHON*", "LC_*", "LD_*", "ASAN_*", "GAUSSDECODE_*")
_REPORT_LIMIT: Final = 1 << 20  # bytes of one report; arbitrary, an error record has hundreds
_READ_SIZE: Final = 1 << 16
_MOST_FDS: Final = 200  # of one message; the kernel takes 253
STUCK_SECONDS: Final = 120.0
"""Without a sign of life for so long a stage has failed; it moves many times a second. Arbitrary."""

# Any, in this module: JSON.


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies.

    Call it first. The signal comes when the *thread* that started this process ends, so
    the parent must start children from a thread that outlives them.

    Args:
        parent_pid: process id of the expected parent; if the parent is another already, this process exits.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(os.EX_OK)  # the parent died before prctl; nobody is left to be told


def show_name(name: str) -> None:
    """Have `ps -o comm` and `top` show this process by its role; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"gd {name}".encode(), 0, 0, 0)


class Reports:
    """A child's way to tell its parent something; safe from any thread.

    Args:
        fd: writing end of the report pipe; closed by `close`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def write(self, kind: str, **fields: Any) -> None:
        """Send one report; does nothing when the parent is gone.

        Raises:
            ValueError: the report is larger than the parent would take.
        """
        line = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"
        if len(line) > _REPORT_LIMIT:
            raise ValueError(f"report {kind!r} of {len(line)} bytes, limit {_REPORT_LIMIT}")
        rest = memoryview(line)
        with self._lock, contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def log(self, event: str, **fields: Any) -> None:
        """Send a log event; the parent writes it with the slot's name."""
        self.write("log", event=event, **fields)

    def error(self, error: BaseException) -> None:
        """Send the error that ends this process; `errors.from_record` rebuilds it."""
        self.write("error", error=to_record(limits.reached(error) or error))

    def fail(self, error: BaseException) -> NoReturn:
        """Send the error and end this process with its exit status."""
        self.error(error)
        raise SystemExit(getattr(error, "exit_status", os.EX_SOFTWARE))

    def close(self) -> None:
        """Close the pipe; the parent sees the end of file."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def enter_child() -> tuple[dict[str, Any], Reports]:
    """Begin life as a child: read the settings, bind to the parent, open the reports.

    A child whose parent ends before it has given the settings ends too.

    Returns:
        What the parent gave, with the numbers that descriptors have here, and the way back to it.

    Raises:
        ChildError: standard input is not what a parent writes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = read_settings()
    die_with_parent(int(settings["parent_pid"]))
    show_name(settings["name"])
    report_fd = int(settings["report_fd"])
    gc.freeze()  # what is imported by now lives as long as the process
    return settings, Reports(report_fd)


def read_settings() -> dict[str, Any]:
    """Read the one line of settings from standard input.

    Raises:
        ChildError: it is missing, cut off, or no JSON object.
    """
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(sys.stdin.fileno())) as channel:
        line, fds = _receive(channel)
        if not line:
            os._exit(os.EX_OK)  # the parent is gone; nobody is left to be told
        settings = _object(line)
        if settings is not None:
            return renumbered(settings, dict(zip(settings.pop("fds"), fds, strict=True)))
    raise ChildError("no settings on standard input: this module is started by the daemon")


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """What comes up to the end of the line, and the descriptors beside it."""
    line, fds = bytearray(), list[int]()
    while not line.endswith(b"\n"):
        data, more, _, _ = socket.recv_fds(channel, _READ_SIZE, _MOST_FDS)
        if not data:
            break
        line += data
        fds += more
    return bytes(line), fds


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a whole line."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and line.endswith(b"\n") else None


def descriptors(settings: Mapping[str, Any]) -> list[int]:
    """All descriptors in a child's settings, each once."""
    found: set[int] = set()

    def note(number: int) -> int:
        found.add(number)
        return number

    _with_descriptors(settings, note)
    return sorted(found)


def renumbered(settings: Mapping[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    """Settings with other numbers for their descriptors."""
    return _with_descriptors(settings, numbers.__getitem__)


def _with_descriptors(settings: Mapping[str, Any], put: Callable[[int], int]) -> dict[str, Any]:
    return {
        key: _each(value, put) if key.endswith(("_fd", "_fds")) else value
        for key, value in settings.items()
    }


def _each(value: Any, put: Callable[[int], int]) -> Any:
    return put(value) if isinstance(value, int) else [_each(item, put) for item in value]


@dataclass(slots=True)
class Child:
    """A process of the pipeline, seen from its parent.

    Attributes:
        name: name for messages: the module's last part, or what the caller said.
        process: the running process.
        report_fd: readable when there are reports, or the child is gone.
    """

    name: str
    process: subprocess.Popen[bytes]
    report_fd: int
    _partial: bytearray = field(default_factory=bytearray, repr=False)

    def reports(self) -> list[dict[str, Any]]:
        """Take the reports that have arrived; never waits.

        What a child wrote before it died is still there. Closes the pipe at its end:
        `report_fd` is -1 then.

        Raises:
            ChildError: a report is no JSON object, or longer than a child may write.
        """
        while self.report_fd >= 0:
            try:
                got = os.read(self.report_fd, _READ_SIZE)
            except BlockingIOError:
                break
            if not got:
                self.close_reports()
            self._partial += got
            if len(self._partial) > 4 * _REPORT_LIMIT:
                break  # take these first, the rest stays in the pipe
        *lines, rest = bytes(self._partial).split(b"\n")
        if len(rest) > _REPORT_LIMIT:
            raise ChildError(f"{self.name}: a report longer than {_REPORT_LIMIT} bytes")
        self._partial[:] = rest
        return [self._parse(line) for line in lines]

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            report = json.loads(line)
        except ValueError:
            report = None
        if not isinstance(report, dict) or "kind" not in report:
            raise ChildError(f"{self.name}: a report that is not JSON")
        return report

    def exit_status(self) -> int | None:
        """Exit status, minus the signal that ended it, or None while it runs."""
        return self.process.poll()

    def kill(self) -> None:
        """End it at once and reap it; nothing happens when it has ended."""
        self.process.kill()
        self.process.wait()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end. Returns its exit status, or None when the time is over."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def close_reports(self) -> None:
        """Stop listening."""
        if self.report_fd >= 0:
            os.close(self.report_fd)
            self.report_fd = -1


class Waiting:
    """A child that imports its module, and waits for its settings.

    Start it from a thread that outlives the child (see `die_with_parent`).

    Args:
        module: runs with this interpreter and this copy of the package.
        arguments: arguments of the module; anybody may read them.
        env_allow: more names of environment variables to keep; a final ``*`` is a prefix.

    Raises:
        OSError: no process or descriptor left.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), env_allow: Iterable[str] = ()
    ) -> None:
        self._module = module
        self._channel, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=theirs.fileno(),
                env=_environment((*_KEPT, *env_allow)),
                process_group=0,
            )
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()

    def give(self, settings: Mapping[str, Any], name: str | None = None) -> Child:
        """Have it begin its work.

        Args:
            settings: JSON; ``name``, ``parent_pid`` and ``report_fd`` are added. The child gets copies of
                the descriptors in it, the caller still has its own.
            name: name for messages, when several children run the same module.

        Raises:
            OSError: no descriptor left.
        """
        report_fd, child_report_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(report_fd, False)
        full = {
            **settings,
            "name": name or self._module.rpartition(".")[2],
            "parent_pid": os.getpid(),
            "report_fd": child_report_fd,
        }
        fds = descriptors(full)
        line = json.dumps({**full, "fds": fds}, separators=(",", ":")).encode() + b"\n"
        # A child that is dead by now shows by its status.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError), self._channel:
            for at in range(0, len(fds), _MOST_FDS):
                socket.send_fds(self._channel, [line[:1]], fds[at : at + _MOST_FDS])
                line = line[1:]
            self._channel.sendall(line)
        os.close(child_report_fd)
        return Child(name or self._module.rpartition(".")[2], self._process, report_fd)

    def close(self) -> None:
        """End it; it has not begun."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


class Prepared:
    """Children that were started early, by their modules: they import while the parent does."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}

    def start(self, module: str, *arguments: str) -> None:
        """Start one, as for `spawn_child`; where that cannot be, the one who needs it is told."""
        with contextlib.suppress(OSError):
            self._waiting[module] = Waiting(module, arguments, LIBRARIES)

    def take(self, module: str, *arguments: str) -> Waiting:
        """The one that waits, or one that is started now.

        Raises:
            OSError: no process or descriptor left.
        """
        return self._waiting.pop(module, None) or Waiting(module, arguments, LIBRARIES)

    def close(self) -> None:
        """End those that nobody took."""
        while self._waiting:
            self._waiting.popitem()[1].close()


def spawn_child(
    module: str,
    settings: Mapping[str, Any],
    env_allow: Iterable[str] = (),
    name: str | None = None,
) -> Child:
    """Start ``python -m module`` and give it its settings; see `Waiting`."""
    return Waiting(module, (), env_allow).give(settings, name)


def _environment(kept: Iterable[str]) -> dict[str, str]:
    """Keep the variables that match, and see to it that the child finds this package."""
    names = set(kept)
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    environment = {
        key: value
        for key, value in os.environ.items()
        if key in names or (prefixes and key.startswith(prefixes))
    }
    root = str(Path(__file__).resolve().parents[2])
    if root not in (*site.getsitepackages(), site.getusersitepackages()):
        paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
