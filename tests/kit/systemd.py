"""Supervises a daemon as systemd would with our unit file, on machines without systemd.

What of the unit counts here: ``Restart=on-failure``, ``RestartPreventExitStatus``,
``RestartSec``, ``WatchdogSec``, ``TimeoutStopSec`` and ``NotifyAccess=main``; all are read
from the file that is installed. The daemon talks to a real datagram socket.
"""

import dataclasses
import os
import re
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kit.daemon import Daemon, wait_until

UNIT: Final = Path(__file__).parents[2] / "systemd" / "gaussdecode@.service"
_POLL_SECONDS: Final = 0.1
_CREDENTIALS: Final = struct.Struct("iii")  # pid, uid, gid


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """What the unit file asks of a supervisor.

    Attributes:
        stay_down: exit statuses after which nothing is started again.
        restart_seconds: wait before the next start.
        watchdog_seconds: a daemon that is silent for longer is killed.
        stop_seconds: from the signal to SIGKILL.
    """

    stay_down: frozenset[int]
    restart_seconds: float
    watchdog_seconds: float
    stop_seconds: float

    @classmethod
    def read(cls, path: Path = UNIT) -> Self:
        """Read the file."""
        text = path.read_text()

        def value(key: str) -> str:
            found = re.search(rf"^{key}=(.*)$", text, re.MULTILINE)
            assert found is not None, key
            return found[1]

        assert value("Restart") == "on-failure"
        assert value("Type") == "notify"
        assert value("NotifyAccess") == "main"
        return cls(
            frozenset(map(int, value("RestartPreventExitStatus").split())),
            float(value("RestartSec").removesuffix("s")),
            float(value("WatchdogSec").removesuffix("s")),
            float(value("TimeoutStopSec").removesuffix("s")),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """One end of the main process.

    Attributes:
        at: seconds since 1970.
        status: exit status, or minus the signal.
        is_watchdog: it was killed because it was silent.
        is_started_again: by the unit's rules.
    """

    at: float
    status: int
    is_watchdog: bool
    is_started_again: bool


class Supervised:
    """Runs a daemon under the rules of a unit, until the end of a ``with`` block.

    Args:
        daemon: not yet started.
        directory: gets the socket.
        unit: the rules.

    Attributes:
        ends: of the main process.
        pings: of the watchdog, in the current life.
        is_ready: the current life has said READY=1.
    """

    def __init__(self, daemon: Daemon, directory: Path, unit: Unit) -> None:
        self.daemon = daemon
        self.unit = unit
        self.ends: list[End] = []
        self.pings = 0
        self.is_ready = False
        self._wants_run = False
        self._last_ping = 0.0
        self._kill_at: float | None = None
        self._start_at: float | None = None
        self._is_watchdog = False
        self._is_seen = False
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._listener.settimeout(_POLL_SECONDS)
        path = directory / "notify"
        self._listener.bind(str(path))
        daemon.environment["NOTIFY_SOCKET"] = str(path)
        daemon.environment["WATCHDOG_USEC"] = str(round(unit.watchdog_seconds * 1e6))
        self._thread = threading.Thread(target=self._run, name="systemd", daemon=True)

    def __enter__(self) -> Self:
        """Start the daemon."""
        self._thread.start()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything, whatever state it is in."""
        self._over.set()
        self._thread.join()
        self.daemon.__exit__(kind, error, trace)
        self._listener.close()

    def start(self) -> None:
        """``systemctl start``."""
        with self._lock:
            self._wants_run = True
            if not self.daemon.is_running:
                self._launch()

    def stop(self) -> int:
        """``systemctl stop``: give the exit status."""
        with self._lock:
            self._wants_run, self._start_at = False, None
            count = len(self.ends)
            if not self.daemon.is_running:
                return self.ends[-1].status if self.ends else 0
            os.kill(self.daemon.pid, signal.SIGTERM)
            os.kill(self.daemon.pid, signal.SIGCONT)
            self._kill_at = time.monotonic() + self.unit.stop_seconds
        wait_until(lambda: len(self.ends) > count, "the daemon ends")
        return self.ends[-1].status

    def restart(self) -> int:
        """``systemctl restart``: give the exit status of the life that ended."""
        status = self.stop()
        self.start()
        return status

    # --- the supervisor's thread -------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            self._listen()
            with self._lock:
                self._look(time.monotonic())

    def _launch(self) -> None:
        self.is_ready, self.pings = False, 0
        self._is_watchdog, self._kill_at, self._start_at = False, None, None
        self._last_ping = time.monotonic()
        self._is_seen = False
        self.daemon.start()

    def _listen(self) -> None:
        """Take one datagram; only the main process is heard."""
        try:
            data, ancillary, _, _ = self._listener.recvmsg(
                4096, socket.CMSG_SPACE(_CREDENTIALS.size)
            )
        except TimeoutError:
            return
        senders = [
            _CREDENTIALS.unpack(content)[0]
            for level, kind, content in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
        ]
        with self._lock:
            if not self.daemon.is_running or senders != [self.daemon.pid]:
                return
            lines = data.split(b"\n")
            self.is_ready |= b"READY=1" in lines
            if b"WATCHDOG=1" in lines or b"READY=1" in lines:
                self._last_ping = time.monotonic()
                self.pings += b"WATCHDOG=1" in lines

    def _look(self, now: float) -> None:
        process = self.daemon.process
        if process is None:
            return
        if process.poll() is None:
            self._watch(now)
        elif not self._is_seen:
            self._ended(now, self.daemon.wait())
        elif self._start_at is not None and now >= self._start_at:
            self._launch()

    def _watch(self, now: float) -> None:
        """Kill a main process that is silent, and one that does not go when told to."""
        if self._kill_at is not None:
            if now >= self._kill_at:
                os.kill(self.daemon.pid, signal.SIGKILL)
        elif self.is_ready and now - self._last_ping > self.unit.watchdog_seconds:
            self._is_watchdog = True
            self._kill_at = now + self.unit.stop_seconds
            os.kill(self.daemon.pid, signal.SIGABRT)
            os.kill(self.daemon.pid, signal.SIGCONT)

    def _ended(self, now: float, status: int) -> None:
        """Note an end, and start again if the rules say so."""
        is_failure = status not in {0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGPIPE}
        again = self._wants_run and is_failure and status not in self.unit.stay_down
        self._is_seen = True
        self._start_at = now + self.unit.restart_seconds if again else None
        self.ends.append(End(time.time(), status, self._is_watchdog, again))
