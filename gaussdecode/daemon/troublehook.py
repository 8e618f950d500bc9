"""Tell a URL or a program of trouble, for teams without Prometheus.

A state of `status.states` is told when it begins and when it is over; notes, which pass by themselves, are
not told. One state begins at most once in an interval, however often it comes and goes. What could not be
told is tried again after the interval, if the state is still there.

It has its own thread: neither a slow URL nor a program that hangs holds up the daemon. No text has a row's
value or a password, and no log has the URL, which may hold a secret. `daemon.notify` is another thing: it
talks to systemd.
"""

import contextlib
import ctypes
import dataclasses
import datetime
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gaussdecode.daemon.status.trouble import Severity, Trouble
from gaussdecode.logs import Event, get_logger
from gaussdecode.settings.sections import NotifyConfig

_LOOK_SECONDS: Final = 2.0
_LIMIT_SECONDS: Final = 10.0  # for an answer of the URL, and for the program; arbitrary
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
_log = get_logger("daemon")


@dataclasses.dataclass(slots=True)
class Told:
    """What was told; it outlives a reload.

    Attributes:
        begun: monotonic time at which each state was last told, or tried to be told, to begin.
        open: states that are told to have begun and not yet to be over.
    """

    begun: dict[str, float] = dataclasses.field(default_factory=dict)
    open: dict[str, Trouble] = dataclasses.field(default_factory=dict)


class TroubleHook:
    """Tells of trouble until it is closed.

    Args:
        config: whom to tell, and how often.
        slot: name of the slot.
        troubles: gives the present problems.
        told: what was told before.
    """

    def __init__(
        self, config: NotifyConfig, slot: str, troubles: Callable[[], Sequence[Trouble]], told: Told
    ) -> None:
        self._config = config
        self._slot = slot
        self._troubles = troubles
        self._told = told
        self._failed: set[str] = set()  # ways that fail, and of which the log says so
        self._program: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)

    def start(self) -> None:
        """Begin to look, where somebody is to be told."""
        if self._config.url or self._config.command is not None:
            self._thread.start()

    def close(self) -> None:
        """End, and kill a program that runs; wait for nobody."""
        self._stop.set()
        program = self._program
        if program is not None and program.poll() is None:
            _kill(program)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                self.look(time.monotonic())
            except Exception as error:  # noqa: BLE001  # what is read is the daemon's: it may be ending
                self._note("reading the states", type(error).__name__)

    def look(self, now: float) -> None:
        """Tell what has begun and what is over.

        Args:
            now: seconds of a monotonic clock.
        """
        told = self._told
        present = {
            trouble.state.name: trouble
            for trouble in self._troubles()
            if trouble.state.severity is not Severity.NOTE
        }
        for name in [name for name in told.open if name not in present]:
            self._tell(told.open.pop(name), is_over=True)
        for name, trouble in present.items():
            is_late = now - told.begun.get(name, float("-inf")) >= self._config.interval
            if name not in told.open and is_late:
                told.begun[name] = now
                if self._tell(trouble, is_over=False):
                    told.open[name] = trouble

    def _tell(self, trouble: Trouble, *, is_over: bool) -> bool:
        """Tell everybody; whether all of them took it."""
        record = {
            "slot": self._slot,
            "host": socket.gethostname(),
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "is_over": is_over,
            "state": trouble.state.name,
            "severity": str(trouble.state.severity),
            "alert": trouble.state.alert,
            "what": trouble.what,
            "action": trouble.action,
        }
        content = json.dumps(record).encode()
        failures = []
        if self._config.url:
            failures.append(self._note("url", _post(self._config.url, content)))
        if self._config.command is not None:
            failures.append(self._note("command", self._execute(self._config.command, content)))
        return not any(failures)

    def _note(self, way: str, failure: str | None) -> str | None:
        """Log the first failure of a way, until it works again."""
        if failure is None:
            self._failed.discard(way)
        elif way not in self._failed:
            self._failed.add(way)
            _log.error(Event.NOTIFY_FAILED, reason=f"notify.{way}: {failure}")
        return failure

    def _execute(self, command: Path, content: bytes) -> str | None:
        """Run the program; why it failed."""
        try:
            program = subprocess.Popen(
                [str(command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_us,  # noqa: PLW1509 - one system call, bound before
            )
        except (OSError, subprocess.SubprocessError) as error:
            return getattr(error, "strerror", None) or type(error).__name__
        self._program = program
        try:
            if self._stop.is_set():
                _kill(program)
            program.communicate(content, _LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(program)
            return f"killed, for it took longer than {_LIMIT_SECONDS:.0f} seconds"
        finally:
            program.wait()
            self._program = None
        return None if program.returncode == os.EX_OK else f"ended with {program.returncode}"


def _post(url: str, content: bytes) -> str | None:
    """Send JSON; why it failed, without the URL."""
    headers = {"Content-Type": "application/json", "User-Agent": "gaussdecode"}
    try:
        request = urllib.request.Request(url, content, headers)  # noqa: S310 - http(s), by its setting
        with urllib.request.urlopen(request, timeout=_LIMIT_SECONDS):  # noqa: S310
            return None
    except urllib.error.HTTPError as error:
        with error:  # it has the connection
            return f"status {error.code}"
    except Exception as error:  # noqa: BLE001  # whatever a server may send
        reason = getattr(error, "reason", error)
        return getattr(reason, "strerror", None) or type(reason).__name__


def _kill(program: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)


def _die_with_us() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
