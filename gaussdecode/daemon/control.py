"""Take the acts of an operator: over a socket in the landing, and by whoever calls `ActQueue.ask`.

The socket takes one line of JSON, ``{"act": "pause", "table": null}``, and answers with one,
``{"is_done": true, "text": "..."}``. Only root and the daemon's own account may ask. The kernel names the
user of the other side (SO_PEERCRED), so no client can say that it is somebody else.

The main thread carries acts out in its turns: no other thread changes how the daemon runs. Those who ask
wait for the answer. Clients have bounds in number, bytes and seconds, and none of them can hold up the
daemon.
"""

import contextlib
import dataclasses
import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gaussdecode.errors import ConfigError, DiskError
from gaussdecode.host.access import user_name
from gaussdecode.land.names import CONTROL
from gaussdecode.land.space import PASSING
from gaussdecode.logs import Event, get_logger

ACTS: Final[Mapping[str, str]] = {
    "pause": "land what has arrived, then land and confirm nothing more; the connection stays",
    "resume": "end a pause",
    "reload": "read the configuration file again, and take what can change without a restart",
    "reconnect": "end the session in order, and begin another one at the durable position",
    "rotate": "end the current entry now, so that readers see what has arrived",
    "snapshot": "land the existing rows of a table",
    "add": "put a table into the publication, and land its existing rows",
    "drop": "take a table out of the publications",
}
"""What can be asked for, with its meaning."""
OF_A_TABLE: Final = frozenset({"snapshot", "add", "drop"})
"""Acts that need a table."""

ANSWER_SECONDS: Final = 60.0
"""Longest wait for the answer to an act; arbitrary."""
ENDS: Final = "the daemon ends"
MAX_BYTES: Final = 4096
"""Longest request."""
_REQUEST_SECONDS: Final = 5.0  # for a whole request to come; arbitrary
_MAX_CLIENTS: Final = 8  # at a time; arbitrary
_POLL_SECONDS: Final = 0.25
_LEAVE_SECONDS: Final = 1.0  # for answers to leave, when the daemon ends; arbitrary
_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group
_log = get_logger("daemon")


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What became of an act.

    Attributes:
        is_done: false for one that was refused, or that failed.
        text: sentences for the operator.
    """

    is_done: bool
    text: str


class Act:
    """One act of an operator.

    Args:
        name: one of `ACTS`.
        table: title of a table, where the act is of one.
        by: who asked, for the log and the status.
    """

    def __init__(self, name: str, table: str | None, by: str) -> None:
        self.name = name
        self.table = table
        self.by = by
        self.answer: Answer | None = None
        self._answered = threading.Event()

    def finish(self, text: str) -> None:
        """Say that it is done."""
        self._end(Answer(is_done=True, text=text))
        _log.warning(Event.ACT_DONE, act=self.name, table=self.table, by=self.by, text=text)

    def refuse(self, reason: str) -> None:
        """Say why it is not done."""
        self._end(Answer(is_done=False, text=reason))
        _log.warning(Event.ACT_REFUSED, act=self.name, table=self.table, by=self.by, reason=reason)

    def _end(self, answer: Answer) -> None:
        self.answer = self.answer or answer  # what takes long is answered before its end
        self._answered.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the answer; False when it did not come in time."""
        return self._answered.wait(seconds)


class ActQueue:
    """Acts that wait for the main thread.

    Args:
        seconds: longest wait for an answer.
    """

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = seconds
        self._waiting: queue.SimpleQueue[Act] = queue.SimpleQueue()
        self._is_closed = False
        self._lock = threading.Lock()

    def ask(self, name: object, table: object, by: str, seconds: float | None = None) -> Answer:
        """Any thread: have an act carried out, and wait for the answer.

        Args:
            name: the act, as the client wrote it.
            table: the table, as the client wrote it.
            by: who asks.
            seconds: longest wait; that of the queue when None.
        """
        limit = self._seconds if seconds is None else seconds
        if not isinstance(name, str) or name not in ACTS:
            return Answer(is_done=False, text=f"no such act; known: {', '.join(ACTS)}")
        if name in OF_A_TABLE and not (isinstance(table, str) and table):
            return Answer(is_done=False, text=f"{name} needs a table, as SCHEMA.NAME")
        if name not in OF_A_TABLE and table is not None:
            return Answer(is_done=False, text=f"{name} takes no table")
        act = Act(name, table if isinstance(table, str) else None, by)
        with self._lock:
            if self._is_closed:
                return Answer(is_done=False, text=ENDS)
            self._waiting.put(act)
        if act.wait(limit) and act.answer is not None:
            return act.answer
        return Answer(
            is_done=False,
            text=f"{name} was asked for, and is not done after {limit:.0f} seconds; it is not "
            "taken back. The log has its end",
        )

    def take(self) -> list[Act]:
        """Main thread: the acts that were asked for since the last call."""
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._waiting.get_nowait())
        return taken

    def close(self) -> list[Act]:
        """Main thread: take no more; gives the acts that were asked for since the last `take`."""
        with self._lock:
            self._is_closed = True
        return self.take()


class ControlSocket:
    """The socket ``.control`` of a landing.

    Call it with the landing's lock held: what an earlier daemon left under the name is removed.

    Args:
        root: directory of the landing.
        ask: carries an act out, as `ActQueue.ask`.
        allowed: user ids of those who may ask; root and the daemon's own when None.

    Raises:
        ConfigError: the socket cannot be made.
        DiskError: the disk is full.
    """

    def __init__(
        self,
        root: Path,
        ask: Callable[[object, object, str], Answer],
        allowed: set[int] | None = None,
    ) -> None:
        self._ask = ask
        self._allowed = {0, os.geteuid()} if allowed is None else allowed
        self._clients: set[threading.Thread] = set()
        self._is_closing = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with at_root(root) as path:
                Path(path).unlink(missing_ok=True)
                self._socket.bind(path)
                Path(path).chmod(0o600)
            self._socket.listen(_MAX_CLIENTS)
            self._socket.settimeout(_POLL_SECONDS)
        except OSError as error:
            self._socket.close()
            kind = DiskError if error.errno in PASSING else ConfigError  # a full disk passes
            raise kind(f"{root / CONTROL}: {error.strerror}") from None
        self._thread = threading.Thread(target=self._accept, name="control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more acts; those who asked have a moment to get their answers."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for a client at once
        self._thread.join()
        self._socket.close()
        deadline = time.monotonic() + _LEAVE_SECONDS
        for client in list(self._clients):
            client.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        while not self._is_closing:
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:  # no descriptors, or it is being closed
                if not self._is_closing:
                    time.sleep(_POLL_SECONDS)
                continue
            if len(self._clients) >= _MAX_CLIENTS:
                text = f"{_MAX_CLIENTS} others ask at this moment; ask again"
                with client, contextlib.suppress(OSError):
                    _send(client, Answer(is_done=False, text=text))
                continue
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._clients.add(thread)
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads
                self._clients.discard(thread)
                client.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):
                _send(client, self._answer(client))
        finally:
            self._clients.discard(threading.current_thread())

    def _answer(self, client: socket.socket) -> Answer:
        size = _CREDENTIALS.size
        raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        by = f"{user_name(uid)} (uid {uid})"
        line = _read_line(client)  # of everybody: who still writes reads no answer
        if uid not in self._allowed:
            _log.warning(Event.ACT_REFUSED, by=by, reason="neither root nor the daemon's account")
            return Answer(
                is_done=False, text=f"user {by} may not: use root or the daemon's account"
            )
        try:
            request = None if line is None else json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            return Answer(is_done=False, text="no request: one line with a JSON object is allowed")
        return self._ask(request.get("act"), request.get("table"), by)


def _send(client: socket.socket, answer: Answer) -> None:
    client.settimeout(_REQUEST_SECONDS)
    client.sendall(json.dumps(dataclasses.asdict(answer)).encode() + b"\n")


def _read_line(client: socket.socket) -> bytes | None:
    """The first line of a client; None where it is too long, too slow or not whole."""
    deadline = time.monotonic() + _REQUEST_SECONDS
    data = b""
    while b"\n" not in data:
        client.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            part = client.recv(MAX_BYTES + 1 - len(data))
        except TimeoutError:
            return None
        data += part
        if not part or len(data) > MAX_BYTES:
            return None
    return data.partition(b"\n")[0]


@contextlib.contextmanager
def at_root(root: Path) -> Iterator[str]:
    """Give the path of a landing's socket, short enough for the kernel however deep the landing is."""
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{CONTROL}"
    finally:
        os.close(descriptor)
