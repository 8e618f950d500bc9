"""Keep the server for clients of the landing running: one more process of the daemon (`serve.in-daemon`).

One thread starts the process and waits for its end. Whatever becomes of it, the stream goes on. It is started
again, and the wait doubles each time. One that gives no sign of life is killed.
"""

import base64
import dataclasses
import os
import pickle
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gaussdecode.errors import ConfigError, from_record
from gaussdecode.ipc.process import LIBRARIES, STUCK_SECONDS, Child, spawn_child
from gaussdecode.logs import Event, get_logger
from gaussdecode.settings.sections import Config, MonitoringConfig
from gaussdecode.settings.serve_section import ServeConfig

if TYPE_CHECKING:
    from gaussdecode.spark.log.place import Place

_MODULE: Final = "gaussdecode.daemon.serveprocess"
_STORE: Final = (
    "AWS_*", "GOOGLE_*", "AZURE_*", "HADOOP_*", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "no_proxy",
)  # fmt: skip
"""Environment variables that clients of a mirror's store read."""
_LOOK_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 5.0  # to tell clients and to write slots; then it is killed
_log = get_logger("daemon")


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """What a server serves, and how.

    Attributes:
        root: directory of the landing, or URL of its mirror.
        settings: section `serve`.
        monitoring: section `monitoring`, for the server's own port and the log.
        slot: name of the slot, for metrics and the log.
        keep: `landing.max-slot-keep-size`; None where it is not known, or not bounded.
        slots_root: directory with the virtual slots; None for `root`.
    """

    root: "Place"
    settings: ServeConfig
    monitoring: MonitoringConfig
    slot: str
    keep: int | None = None
    slots_root: Path | None = None

    @classmethod
    def of(cls, config: Config, *, from_mirror: bool = False) -> "Task":
        """The task that a configuration gives.

        Args:
            config: checked.
            from_mirror: serve the mirror in any case; without, only where the landing's directory does not keep all.

        Raises:
            ConfigError: there is no mirror.
        """
        landing, mirror = config.landing, config.mirror
        if from_mirror and not mirror.is_on:
            raise ConfigError("landing.mirror.url is not set: there is no mirror to serve")
        is_mirror = from_mirror or (mirror.is_on and mirror.local_retention is not None)
        root: Place = landing.root
        if is_mirror:
            # Here, because a daemon starts without its modules.
            from gaussdecode.spark.log.place import mirror_place

            root = mirror_place(mirror)
        return cls(
            root,
            config.serve,
            config.monitoring,
            config.slot,
            landing.max_slot_keep_size,
            landing.root if is_mirror else None,
        )

    def packed(self) -> str:
        """The task as text, for a child of this process alone."""
        return base64.b64encode(pickle.dumps(self)).decode()

    @staticmethod
    def unpacked(text: str) -> "Task":
        """What `packed` gave the parent of this process."""
        task: Task = pickle.loads(base64.b64decode(text))  # noqa: S301 - of our own parent
        return task


@dataclasses.dataclass(frozen=True, slots=True)
class ServingState:
    """How the server is.

    Attributes:
        state: ``starting``, ``serving`` or ``retrying``.
        reason: why it does not serve; None while nothing is wrong.
        pid: of the process; None without one.
        starts: how often it was started.
    """

    state: str = "starting"
    reason: str | None = None
    pid: int | None = None
    starts: int = 0

    @property
    def is_up(self) -> bool | None:
        """Whether it serves; None while it begins and has not failed before."""
        is_first = self.state == "starting" and self.reason is None
        return None if is_first else self.state == "serving"


class Serving:
    """Runs the server until it is closed.

    Args:
        task: what to serve.
        next_wait: seconds before the next start, after a process that lasted so many seconds.
        module: of the child.
    """

    def __init__(
        self, task: Task, next_wait: Callable[[float], float], module: str = _MODULE
    ) -> None:
        self._task = task
        self._next_wait = next_wait
        self._module = module
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)
        self.state = ServingState()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the server in order, within some seconds."""
        self._stop.set()
        self._thread.join()

    def record(self) -> dict[str, Any]:  # Any: JSON
        """How it is, for ``/status``."""
        return {**dataclasses.asdict(self.state), "listen": str(self._task.settings.listen)}

    # ---- the thread ------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                reason = self._run_once()
            except Exception as error:  # noqa: BLE001 - no process or descriptor left, or no report of ours
                reason = str(error) or type(error).__name__
            if self._stop.is_set():
                return
            wait = self._next_wait(time.monotonic() - began)
            _log.error(Event.SERVE_RETRYING, reason=reason, wait_seconds=round(wait, 2))
            self._show("retrying", reason)
            self._stop.wait(wait)

    def _show(self, state: str, reason: str | None = None, pid: int | None = None) -> None:
        self.state = dataclasses.replace(self.state, state=state, reason=reason, pid=pid)

    def _run_once(self) -> str:
        """Run one process to its end; why it ended."""
        theirs, ours = os.pipe2(os.O_CLOEXEC)  # when `ours` is closed, the child is to stop
        with open(ours, "wb") as word:
            try:
                settings = {"task": self._task.packed(), "stop_fd": theirs}
                child = spawn_child(self._module, settings, (*LIBRARIES, *_STORE), "serve")
            finally:
                os.close(theirs)
            self.state = dataclasses.replace(
                self.state, state="starting", pid=child.process.pid, starts=self.state.starts + 1
            )
            _log.debug(Event.CHILD_STARTED, child=child.name, pid=child.process.pid)
            try:
                return self._watch(child)
            finally:
                word.close()
                if child.wait(_LEAVE_SECONDS) is None:
                    child.kill()
                child.close_reports()
                _log.debug(Event.CHILD_ENDED, child=child.name, status=child.exit_status())

    def _watch(self, child: Child) -> str:
        """Until it ends, hangs, or is to stop."""
        heard = time.monotonic()
        reason = None
        while not self._stop.is_set():
            select.select([child.report_fd], [], [], _LOOK_SECONDS)
            for report in child.reports():
                heard = time.monotonic()
                if report["kind"] == "serving":
                    self._show("serving", pid=child.process.pid)
                elif report["kind"] == "error":
                    reason = str(from_record(report["error"]))
            if child.report_fd < 0:
                status = child.wait(_LEAVE_SECONDS)
                return reason or f"its process ended with {status}"
            if time.monotonic() - heard > STUCK_SECONDS:
                child.kill()
                return f"its process gave no sign of life for {STUCK_SECONDS:.0f} seconds"
        return "it is to stop"
