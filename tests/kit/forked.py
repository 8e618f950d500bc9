"""The command in a process of its own that begins with its modules imported.

A start by `exec` costs most of a second of CPU before its first line, that of its children as much
again, and the tests start hundreds. So a process of each test worker imports what the daemon does and
then only forks. The daemon knows no difference, nor do its reader and decoders, which are forked too.
That new interpreters start them is shown by the units, the demo, the package, and the tests that give
a daemon an environment which an interpreter reads as it starts.
"""

import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from gaussdecode import cli
from gaussdecode.ipc import process

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_ARGUMENTS: Final = slice(45, 47)  # where they lie, in /proc/self/stat behind the name
_REQUEST_BYTES: Final = 1 << 17

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "gaussdecode.commands.run",
        "gaussdecode.daemon.supervisor",
        "gaussdecode.decode.worker",
        "gaussdecode.source.reader",
        # What they import when they first need it.
        "gaussdecode.source.gaussdb.export",
        "gaussdecode.source.gaussdb.probe",
        "gaussdecode.source.gaussdb.source",
        "gaussdecode.source.postgresql.export",
        "gaussdecode.source.postgresql.probe",
        "gaussdecode.source.postgresql.source",
        "encodings.idna",
        "numpy.ma",
        "pyarrow.parquet",
    ]
)


def _begin(
    arguments: Sequence[str], environment: Mapping[str, str], directory: str, log: Path
) -> None:
    """Become the command: with these, and with both outputs in the log."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    opened = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.close(opened)
    _show(["gaussdecode", *arguments])
    starter = SimpleNamespace(Popen=_Nursery().start, TimeoutExpired=subprocess.TimeoutExpired)
    setattr(process, "subprocess", starter)  # noqa: B010 - mypy: no other module has its place
    sys.argv = ["gaussdecode", *arguments]
    sys.exit(cli.main())


class _Nursery:
    """A process beside the command that forks its children: the command itself has threads by then.

    The command is the parent of each child all the same. A process between the two ends, and the
    command takes in what that leaves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = os.getpid()
        if os.fork() == 0:
            self._channel.close()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == command:
                _serve(theirs)
            os._exit(os.EX_OK)
        theirs.close()

    def start(
        self, command: Sequence[str], *, stdin: int, env: Mapping[str, str], process_group: int
    ) -> subprocess.Popen[bytes]:
        """Start ``python -P -m module argument ...``, as `subprocess.Popen` would.

        Raises:
            OSError: no process could be started.
        """
        assert process_group == 0, "a child has a group of its own"
        request = json.dumps([command[3:], dict(env)]).encode()
        with self._lock:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._channel, [request], [stdin])
                answer = self._channel.recv(_REQUEST_BYTES)
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)
        if not answer:
            raise ChildProcessError("nobody is there who forks children of the command")
        return _Born(command, int(answer))


class _Born(subprocess.Popen[bytes]):
    """A child that another process started."""

    def __init__(self, command: Sequence[str], pid: int) -> None:
        self.args, self.pid, self.returncode = command, pid, None
        self.stdin = self.stdout = self.stderr = None
        self._child_created, self._waitpid_lock = True, threading.Lock()


def _serve(channel: socket.socket) -> None:
    """Fork what is asked for, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _show(["kit.forked"])
    while True:
        request, fds, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 1)
        if not request:
            return
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                os.close(reader)
                os.close(writer)
                channel.close()
                command, environment = json.loads(request)
                _live(command, environment, fds[0])
            os.write(writer, str(child).encode())
            os._exit(os.EX_OK)
        os.waitpid(between, 0)
        channel.send(os.read(reader, _REQUEST_BYTES))
        for fd in (reader, writer, *fds):
            os.close(fd)


def _live(command: Sequence[str], environment: Mapping[str, str], stdin: int) -> None:
    """Be a child: run a module with arguments, and end."""
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environment)
        os.dup2(stdin, 0)
        os.close(stdin)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as it lives
        sys.argv = list(command)
        _show(command)
        importlib.import_module(command[0]).main()
        status = os.EX_OK
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _show(command: Sequence[str]) -> None:
    """Have the list of processes show a command in place of the one that this began as."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, end = map(int, fields[_ARGUMENTS])
    text = "\0".join(("python", "-P", "-m", *command, "")).encode()[: end - first - 1]
    ctypes.memmove(first, text.ljust(end - first, b"\0"), end - first)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Forked:
    """A process, as `subprocess.Popen` is one.

    Attributes:
        pid: its process id.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        given = (list(arguments), {**os.environ, **(environment or {})}, os.getcwd(), log)
        self._process = _CONTEXT.Process(target=_begin, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status if it has ended."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Give its exit status if it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and give its exit status.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("gaussdecode", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)
