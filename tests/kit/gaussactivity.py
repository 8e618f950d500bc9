"""Who works on a simulated server: what pg_stat_activity and pg_get_running_xacts know of it."""

import dataclasses
import itertools
import time
from typing import Final

ACTIVE: Final = "active"
IDLE: Final = "idle"
IN_TRANSACTION: Final = "idle in transaction"
_FIRST_PID: Final = 140_000_000_000_000  # a thread's id, as openGauss shows it
_PID_STEP: Final = 4096


@dataclasses.dataclass(slots=True)
class Backend:
    """A thread of the server that serves a client.

    Attributes:
        pid: id of the thread, beyond 32 bits.
        user: who logged in.
        application: application_name.
        state: active, idle, or idle in transaction.
        query: that runs now, or ran last.
        query_start_us: when it began, since 1970 by the server's clock.
        xact_start_us: when the transaction began; None outside one.
        xid: of its transaction, 0 before it wrote anything.
        index: of the session, which a request to cancel names.
        is_cancelled: its statement is to be given up.
    """

    pid: int
    user: str
    application: str = "gsql"
    state: str = IDLE
    query: str = ""
    query_start_us: int | None = None
    xact_start_us: int | None = None
    xid: int = 0
    index: int = 0
    is_cancelled: bool = False

    def run(self, query: str, now_us: int) -> None:
        """Begin a statement."""
        self.is_cancelled = False
        self.state, self.query, self.query_start_us = ACTIVE, query, now_us
        if self.xact_start_us is None:
            self.xact_start_us = now_us

    def rest(self, *, is_in_transaction: bool) -> None:
        """End the statement."""
        self.state = IN_TRANSACTION if is_in_transaction else IDLE
        if not is_in_transaction:
            self.xact_start_us, self.xid = None, 0


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """A row of ``pg_get_running_xacts()``.

    Attributes:
        xid: 0 for a backend that has none.
        pid: 0 for a transaction that is prepared.
        is_prepared: it is.
    """

    xid: int
    pid: int
    is_prepared: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A row of ``pg_prepared_xacts``."""

    xid: int
    gid: str
    owner: str
    prepared_us: int


class Activity:
    """Sessions and prepared transactions of one server.

    Attributes:
        skew_us: by how much the server's clock is ahead.
        backends: by pid.
        prepared: by gid.
    """

    def __init__(self) -> None:
        self.skew_us = 0
        self.backends: dict[int, Backend] = {}
        self.prepared: dict[str, Prepared] = {}
        self._pids = itertools.count(_FIRST_PID, _PID_STEP)

    def now_us(self) -> int:
        """Microseconds since 1970, by the server's clock."""
        return time.time_ns() // 1000 + self.skew_us

    def connect(self, user: str, application: str = "gsql") -> Backend:
        """Begin a session."""
        pid = next(self._pids)
        index = (pid - _FIRST_PID) // _PID_STEP
        backend = Backend(pid, user, application, index=index)
        self.backends[backend.pid] = backend
        return backend

    def leave(self, backend: Backend) -> None:
        """End a session."""
        self.backends.pop(backend.pid, None)

    def running(self, asker: int = 0) -> list[Running]:
        """List sessions and prepared transactions, as the server does, without who asks."""
        sessions = [Running(b.xid, b.pid) for b in list(self.backends.values()) if b.pid != asker]
        waiting = [Running(p.xid, 0, is_prepared=True) for p in list(self.prepared.values())]
        return sessions + waiting
