"""The real daemon in a process of its own, started and killed as systemd would.

`Daemon` writes a configuration, runs ``gaussdecode run``, and waits by looking at what an
operator sees: ``/status``, the commit log, the exit status.
"""

import contextlib
import http.client
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from gaussdecode.cli import main
from gaussdecode.demo.ports import free_port
from kit import landing
from kit.forked import Forked
from kit.postgres import Database

Json = dict[str, Any]  # Any: JSON
MARK: Final = "kit mark"
_POLL_SECONDS: Final = 0.05
_LONGEST_POLL_SECONDS: Final = 0.25
# How long a test waits before it says that something does not happen at all; generous,
# because nothing is judged by it.
PATIENCE_SECONDS: Final = 200.0
_READ_LATE: Final = "GAUSSDECODE_"  # others may be read while an interpreter or a module begins

_SMALL: Final[Json] = {
    "decoding": {"parallel-decode-num": 2},
    "landing": {
        "target-file-size": "4MiB",
        "max-commit-interval": "300ms",
        "row-group-rows": 4096,
        "row-group-bytes": "4MiB",
        "memory-bytes": "64MiB",
    },
    "ring": {"raw-ring-bytes": "2MiB", "decoded-ring-bytes": "4MiB"},
    "monitoring": {"log-level": "debug"},
    "snapshot": {"mode": "none"},  # tests of snapshots say so
}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something to become true; who has waited for long looks less often.

    Raises:
        AssertionError: it never did.
    """
    deadline, pause = time.monotonic() + seconds, _POLL_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} seconds in vain: {what}"
        time.sleep(pause)
        pause = min(1.1 * pause, _LONGEST_POLL_SECONDS)


class Daemon:
    """One daemon over one database.

    Args:
        database: the source; its slot must exist before `start`.
        directory: gets the configuration, the log and the landing.
        dsn: connection string, when it is not the database's own.
        environment: variables for the daemon, such as failpoints.
        config: sections and keys on top of small test sizes.

    Attributes:
        root: of the landing.
        log: what the daemon wrote to standard error.
        authority: that of the certificate of the monitoring port, if that has one.
        is_forked: whether a start may be a fork; tests do that, measurements begin as users do.
    """

    is_forked = False

    def __init__(
        self,
        database: Database,
        directory: Path,
        *,
        dsn: str | None = None,
        environment: Mapping[str, str] | None = None,
        config: Mapping[str, Json] | None = None,
    ) -> None:
        self.database = database
        self.root = directory / "landing"
        self.log = directory / "daemon.log"
        self.config_path = directory / f"{database.name}.yaml"
        self.port = free_port()
        self.authority: Path | None = None
        self.environment = dict(environment or {})
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._marks = 0
        self._config = self._merge(dsn or database.dsn, config or {})
        self.write_config()

    def _merge(self, dsn: str, changes: Mapping[str, Json]) -> Json:
        base: Json = {
            "slot": self.database.slot,
            "source": {
                "kind": "postgresql",
                "dsn": f"{dsn} sslmode=disable" if "sslmode" not in dsn else dsn,
                "publication": [self.database.publication],
                "allow-insecure": True,
                "retry-first": "200ms",
                "retry-max": "1s",
            },
        }
        for part in (_SMALL, changes):
            for section, keys in part.items():
                base[section] = {**base.get(section, {}), **keys}
        base["landing"] = {**base["landing"], "root": str(self.root)}
        base["monitoring"] = {**base["monitoring"], "listen": f"127.0.0.1:{self.port}"}
        return base

    def write_config(self, **changes: Json) -> None:
        """Write the configuration again, with sections changed."""
        for section, keys in changes.items():
            self._config[section] = {**self._config.get(section, {}), **keys}
        self.config_path.write_text(yaml.safe_dump(self._config, sort_keys=False))
        self.config_path.chmod(0o600)

    def write_config_value(self, key: str, value: object) -> None:
        """Write the configuration again, with one top-level key changed."""
        self._config[key] = value
        self.write_config()

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the daemon; does not wait for anything."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        self.begin()
        if self.is_forked and all(name.startswith(_READ_LATE) for name in self.environment):
            self.log.touch()  # it can be read from now on, as that of an interpreter
            self.process = Forked(["run", str(self.config_path)], self.log, self.environment)
            return self
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gaussdecode", "run", str(self.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        return self

    def begin(self) -> None:
        """Begin the landing as an operator would, with the slot as it stands, if that can be.

        Tests give the daemon connections that work only in its environment, or not at all; then
        the landing begins over the database's own.
        """
        if (self.root / "layout.json").exists() or self._adopt(self.config_path):
            return
        own = {"dsn": f"{self.database.dsn} sslmode=disable", "allow-insecure": True}
        source = {**self._config["source"], **own}
        source.pop("password-file", None)
        path = self.config_path.with_suffix(".adopt.yaml")
        path.write_text(yaml.safe_dump({**self._config, "source": source}, sort_keys=False))
        path.chmod(0o600)
        self._adopt(path)
        path.unlink()

    @staticmethod
    def _adopt(path: Path) -> bool:
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            return main(["slot", "adopt", str(path)]) == 0

    @property
    def pid(self) -> int:
        """Process id of the main process."""
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the main process is there."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int:
        """Ask it to stop, wait, and give its exit status."""
        if self.process is None:
            return 0
        if self.is_running:
            self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for its end and give its exit status."""
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon does not stop:\n{self.log_tail()}") from None

    def kill9(self) -> None:
        """Kill the main process; its children must follow by themselves."""
        children = list(self.children().values())
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        wait_until(lambda: not any(map(is_alive, children)), "the children die with main")

    def children(self) -> dict[str, int]:
        """Process ids by name: ``reader``, ``worker 0``, ``worker 1`` ..."""
        result: dict[str, int] = {}
        listing = Path(f"/proc/{self.pid}/task")
        pids: list[int] = []
        for task in listing.glob("*/children"):
            try:
                pids += [int(text) for text in task.read_text().split()]
            except OSError:  # the thread or process has just ended
                continue
        for pid in sorted(pids):
            command = command_line(pid)
            if "gaussdecode.source.reader" in command:
                result["reader"] = pid
            elif "gaussdecode.decode.worker" in command:
                result[f"worker {sum(name.startswith('worker') for name in result)}"] = pid
        return result

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, whatever state it is in; show its log when the test failed."""
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)
            for pid in self.children().values():
                os.kill(pid, signal.SIGCONT)
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        if error is not None:
            print(self.log_tail(60))

    # --- what an operator sees ---------------------------------------------------------

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def get(self, path: str) -> tuple[int, bytes]:
        """Ask the monitoring port.

        Raises:
            OSError: nobody answers, or the daemon ended within its answer.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        if "tls-certificate-file" in self._config["monitoring"]:
            context = ssl.create_default_context(cafile=self.authority)
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=10, context=context
            )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise ConnectionResetError(f"half an answer: {type(error).__name__}") from error
        finally:
            connection.close()

    def status(self) -> Json | None:
        """What ``/status`` says, or None while nobody answers."""
        try:
            code, body = self.get("/status")
        except OSError:
            return None
        if code != http.HTTPStatus.OK:
            return None
        record: Json = json.loads(body)
        return record

    def record(self) -> Json:
        """What ``/status`` says; waits while nobody answers, as on a busy machine."""
        found: list[Json] = []

        def is_told() -> bool:
            record = self.status()
            if record is not None:
                found.append(record)
            return record is not None

        self.wait_while_running(is_told, "an answer of /status")
        return found[0]

    def wait_for_state(self, state: str) -> None:
        """Wait until ``/status`` shows a state."""
        self.wait_while_running(
            lambda: (self.status() or {}).get("state") == state, f"state {state}"
        )

    def wait_while_running(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fail at once when the daemon ends before."""

        def met() -> bool:
            if condition():
                return True
            assert self.is_running, f"the daemon ended before {what}:\n{self.log_tail()}"
            return False

        try:
            wait_until(met, what)
        except AssertionError as error:
            stands = f"{json.dumps(self.status(), indent=1)}\n{self.database.senders()}"
            raise AssertionError(f"{error}\n{stands}\n{self.log_tail(30)}") from None

    def entries(self) -> list[Json]:
        """The commit log; empty while there is none."""
        return landing.read_entries(self.root)

    def durable_lsn(self) -> int:
        """Position of the newest entry; 0 while there is none."""
        newest = landing.newest_entry(self.root)
        return 0 if newest is None else landing.position(newest)

    def land_a_row(self) -> None:
        """Begin with a table of one row that comes in the stream, and stop."""
        self.database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
        self.database.create_slot()
        self.start()
        self.database.execute("INSERT INTO public.t VALUES (1)")
        self.catch_up()
        assert self.stop() == 0

    def catch_up(self) -> None:
        """Wait until all that is committed now has landed.

        Commits a mark, a logical message, so that there is a commit to wait for.
        """
        target = self.database.wal_end()
        self.mark()
        self.wait_while_running(lambda: self.durable_lsn() > target, f"landing up to {target}")

    def mark(self) -> None:
        """Commit a logical message, so that there is a commit to wait for."""
        self._marks += 1
        self.database.execute(f"SELECT pg_logical_emit_message(true, '{MARK}', '{self._marks}')")


class Keeper:
    """Starts a daemon again whenever it ends, as systemd does.

    Attributes:
        ends: every exit status seen.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.ends: list[int] = []

    def keep(self) -> None:
        """Start the daemon if it has ended."""
        if not self.daemon.is_running:
            if self.daemon.process is not None:
                self.ends.append(self.daemon.wait())
            self.daemon.start()

    def catch_up(self) -> None:
        """Wait until all that is committed now has landed, through any number of restarts."""
        target = self.daemon.database.wal_end()
        self.daemon.mark()

        def is_landed() -> bool:
            self.keep()
            return self.daemon.durable_lsn() > target

        try:
            wait_until(is_landed, f"landing up to {target}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.daemon.log_tail(30)}") from None


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def command_line(pid: int) -> str:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
