"""A simulated openGauss or GaussDB server: a real TCP server with the real server's manners.

It speaks the protocol as the server's side (sessions in `kit.gausssession`, the walsender in
`kit.gausssender`), keeps slots in memory and on its "disk", and does on request what servers
do at the worst moment: crash, fall silent, freeze, forget what was confirmed.

What a client does wrong is not forgiven, and is written down in `GaussServer.violations`.
"""

import contextlib
import dataclasses
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from gaussdecode.demo.ports import free_port
from kit.daemon import wait_until
from kit.gaussactivity import Backend
from kit.gausscommand import CommandError
from kit.gausspassword import User
from kit.gaussprofile import V6_0_0, Profile
from kit.gausssession import Session
from kit.gausssql import Catalogue
from kit.gaussstore import Store, StoreCopy
from kit.gausstypes import Printer

CODECS: Final[Mapping[str, str]] = {
    "UTF8": "utf-8", "GBK": "gbk", "GB18030": "gb18030", "LATIN1": "latin-1", "SQL_ASCII": "utf-8",
}  # fmt: skip
_VIEWS: Final = ("pgxc_node", "pg_stat_activity", "pg_running_xacts", "pg_prepared_xacts")
_EPOCH_2000: Final = 946_684_800
PLUGINS: Final = ("mppdb_decoding", "sql_decoding", "test_decoding", "pgoutput")
COMMERCIAL_PLUGINS: Final = (
    "parallel_binary_decoding", "parallel_json_decoding", "parallel_text_decoding",
)  # fmt: skip


@dataclasses.dataclass(slots=True)
class Behaviour:
    """How the server is set up; tests change it while it runs.

    Attributes:
        hba: pg_hba method for ordinary connections; "reject" for no line.
        replication_hba: the same for lines with the keyword ``replication``.
        thread_pool: enable_thread_pool: replication must come to the HA port.
        sender_timeout_ms: logical_sender_timeout; 0 for never.
        flush_seconds: the timer that empties a batch and sends keepalives; a second in life.
        protocols: minors of protocol 3 that it takes.
        encoding: of the database.
        zone_minutes: TimeZone of the database, for values.
        leading_zero: display_leading_zero is on.
        short_infinity: Inf and Nan.
        compatibility: A, B, C or PG.
        is_standby: it is one.
        is_receiving: as a standby it has reached its primary since its start.
        late_slot_errors: parallel slot errors come after CopyBothResponse.
        heartbeat_framed: heartbeats look like records.
        is_silent: nothing is sent to streaming clients any more.
        is_frozen: nothing is read or sent at all.
        is_sending_excluded: exclude-users is taken, and filters nothing.
        is_held: transactions are not sent; keepalives run ahead of them.
        masks_activity: pg_stat_activity hides from a user what others do, unless SYSADMIN.
        is_csn_local: gs_get_next_xid_csn() tells what this server has seen of a shared clock.
        node_type: as a distributed server has it in pgxc_node: C for a coordinator, D for a data node; None
            where there is no such row.
        is_idle_csn_stuck: heartbeats of a CSN slot tell the CSN of the last transaction that was
            sent, and do not move on when there is none.
        told_csn: what gs_get_next_xid_csn() answers in place of the next CSN; empty for that.
        area_from: WAL before it is gone.
        refuses_area: nobody may read stretches of it.
        doubled: the so-many-th message of a transaction from now on is sent twice; 0 for none.
    """

    hba: str = "sha256"
    replication_hba: str = "sha256"
    thread_pool: bool = False
    sender_timeout_ms: int = 30_000
    flush_seconds: float = 1.0
    protocols: tuple[int, ...] = (0, 50, 51)
    encoding: str = "UTF8"
    zone_minutes: int = 0
    leading_zero: bool = False
    short_infinity: bool = False
    compatibility: str = "A"
    is_standby: bool = False
    is_receiving: bool = True
    late_slot_errors: bool = False
    heartbeat_framed: bool = True
    is_silent: bool = False
    is_frozen: bool = False
    is_held: bool = False
    is_sending_excluded: bool = False
    masks_activity: bool = False
    is_csn_local: bool = False
    node_type: str | None = None
    is_idle_csn_stuck: bool = False
    area_from: int = 0
    refuses_area: bool = False
    doubled: int = 0
    told_csn: str | None = ""
    settings: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class Slot:
    """A replication slot; the last three fields are what a crash leaves of it.

    Attributes:
        confirmed_csn: up to which nothing is sent any more; 0 for a slot that goes by LSN.
        decoders: of the stream that runs, when it is active.
    """

    name: str
    plugin: str
    database: str
    restart_lsn: int
    confirmed_lsn: int
    confirmed_csn: int = 0
    is_physical: bool = False
    is_active: bool = False
    decoders: int = 1
    disk_restart_lsn: int = 0
    disk_confirmed_lsn: int = 0
    disk_confirmed_csn: int = 0

    def save(self) -> None:
        """Write it to disk."""
        self.disk_restart_lsn, self.disk_confirmed_lsn = self.restart_lsn, self.confirmed_lsn
        self.disk_confirmed_csn = self.confirmed_csn

    def load(self) -> None:
        """Read it back."""
        self.restart_lsn, self.confirmed_lsn = self.disk_restart_lsn, self.disk_confirmed_lsn
        self.confirmed_csn = self.disk_confirmed_csn
        self.is_active = False

    @property
    def position(self) -> int:
        """What SQL tells of it: where it is confirmed, a CSN in the place of an LSN."""
        return self.confirmed_csn or self.confirmed_lsn


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCopy:
    """What `GaussServer.copy` took."""

    store: StoreCopy
    slots: Mapping[str, Slot]


class LoadSource(Protocol):
    """Prepared messages for benchmarks."""

    @property
    def wal_end(self) -> int:
        """End of what was sent so far."""

    def buffers(self) -> Iterator[memoryview]:
        """Give whole messages, many at once."""


class GaussServer:
    """A server with one database.

    Args:
        store: the database.
        profile: the version.
        catalogue: answers catalogue queries; without it they fail.
        certificates: directory with ``server.pem`` and ``server.key``; None for no TLS.
        behaviour: how it is set up.
        clock: seconds, for timers.
        load: prepared messages that streams send in place of the store's transactions.
        node_name: as the server calls itself.

    Attributes:
        port: for SQL.
        ha_port: for replication.
        database: its name.
        system_identifier: of the cluster.
        users: by name.
        wrong_passwords: that clients gave; a real server locks the account after ten.
        slots: by name.
        violations: what clients did that a real server would not have survived, or that
            would have cost data.
        snapshots: CSN by name, of those that are exported.
        forbidden: tables that may not be read.
        denied: pairs of a user and a function or view that it may not use.
        told_lsns: WAL positions that SQL functions told; a stream may confirm them.
        node_name: as the server calls itself.
        connections: how many were accepted.
        sent: bytes of CopyData sent to streaming clients.
    """

    def __init__(
        self,
        store: Store,
        profile: Profile = V6_0_0,
        *,
        catalogue: Catalogue | None = None,
        certificates: Path | None = None,
        behaviour: Behaviour | None = None,
        database: str = "shop",
        clock: Callable[[], float] = time.monotonic,
        load: LoadSource | None = None,
        node_name: str = "dn_6001",
    ) -> None:
        self.store = store
        self.load = load
        self.profile = profile
        self.catalogue = catalogue
        self.behaviour = behaviour or Behaviour()
        self.database = database
        self.clock = clock
        self.system_identifier = 7_123_456_789_012_345_678
        self.users: dict[str, User] = {}
        self.wrong_passwords = 0
        self.add_user(User("replica", "Gauss@123"))
        self.slots: dict[str, Slot] = {}
        self.snapshots: dict[str, int] = {}
        self.forbidden: set[tuple[str, str]] = set()
        self.denied: set[tuple[str, str]] = set()
        self.told_lsns: set[int] = set()
        self.node_name = node_name
        self.violations: list[str] = []
        self.unknown_queries: list[str] = []
        self.connections = 0
        self.sent = 0
        self.port = self.ha_port = 0
        self.lock = threading.RLock()
        self.is_stopping = False
        self.reloads: list[dict[str, str]] = []
        self._tls = self._context(certificates)
        self._cut_after: int | None = None
        self._sessions: set[Session] = set()
        self._listeners: list[socket.socket] = []
        self._acceptors: list[threading.Thread] = []
        self._threads: list[threading.Thread] = []

    @staticmethod
    def _context(certificates: Path | None) -> ssl.SSLContext | None:
        if certificates is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        return context

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen; on the same ports as before after a stop."""
        self.is_stopping = False
        for is_ha, listener in zip((False, True), self._pair(), strict=True):
            self._listeners.append(listener)
            thread = threading.Thread(target=self._accept, args=(listener, is_ha), daemon=True)
            thread.start()
            self._acceptors.append(thread)
        return self

    def _pair(self) -> tuple[socket.socket, socket.socket]:
        """On the ports of before; at first on any, with the HA port next to the other."""
        while True:
            port = self.port or free_port()  # no outgoing connection takes it while it is away
            first = None
            try:
                first = socket.create_server(("127.0.0.1", port))
                second = socket.create_server(("127.0.0.1", port + 1))
            except OSError:
                if first is not None:
                    first.close()
                if self.port:
                    raise
                continue
            self.port, self.ha_port = port, port + 1
            return first, second

    def reload(self, **settings: str) -> None:
        """Read the configuration again: streams report settings, changed ones or not."""
        self.reloads.append({"client_encoding": self.behaviour.encoding, **settings})

    def end_idle(self) -> None:
        """End the sessions that do not stream, as session_timeout does."""
        with self.lock:
            sessions = list(self._sessions)
        for session in sessions:
            if not session.is_streaming:
                session.terminate()

    def stop(self) -> None:
        """Shut down: slots are saved; serial streams are told, parallel ones just end."""
        self.is_stopping = True
        self._close_listeners()
        self.end_idle()
        self._join(self._threads)
        with self.lock:
            for slot in self.slots.values():
                slot.save()
                slot.load()

    def crash(self) -> None:
        """End at once: connections are reset, slots go back to what is on disk."""
        self._close_listeners()
        self.reset_connections()
        self._join(self._threads)
        with self.lock:
            for slot in self.slots.values():
                slot.load()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._listeners.clear()
        # A connection that is being accepted now must be among the sessions that are ended next.
        self._join(self._acceptors)

    @staticmethod
    def _join(threads: list[threading.Thread]) -> None:
        me = threading.current_thread()
        for thread in threads:
            if thread is not me:
                thread.join(60)
                assert not thread.is_alive(), "a thread of the simulator does not end"
        threads.clear()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Crash; nobody waits for anything."""
        self.crash()

    def _accept(self, listener: socket.socket, is_ha: bool) -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            session = Session(self, raw, is_ha=is_ha, tls=self._tls)
            with self.lock:
                self.connections += 1
                self._sessions.add(session)
            thread = threading.Thread(target=self._serve, args=(session,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, session: Session) -> None:
        try:
            session.run()
        finally:
            with self.lock:
                self._sessions.discard(session)
            session.close()

    # --- faults ------------------------------------------------------------------------

    def reset_connections(self) -> None:
        """Reset every connection now, and wait until none of them holds a slot any more."""
        with self.lock:
            sessions = set(self._sessions)
        for session in sessions:
            session.reset()
        wait_until(lambda: not sessions & self._sessions, "the end of connections")

    def cut_after(self, count: int) -> None:
        """Reset the streaming connection that sends the so-many-th byte from now on, there."""
        with self.lock:
            self._cut_after = count

    @property
    def is_cut_pending(self) -> bool:
        """Whether a planned cut has not happened yet."""
        return self._cut_after is not None

    def allowed(self, wanted: int) -> tuple[int, bool]:
        """Say how many bytes of a stream may still be sent, and whether the cut is then."""
        with self.lock:
            if self._cut_after is None:
                return wanted, False
            if wanted < self._cut_after:
                self._cut_after -= wanted
                return wanted, False
            now, self._cut_after = self._cut_after, None
            return now, True

    def checkpoint(self) -> None:
        """Write RUNNING_XACTS: restart positions move, and slots reach the disk."""
        with self.lock:
            for slot in self.slots.values():
                slot.restart_lsn = max(slot.restart_lsn, min(slot.confirmed_lsn, self.wal_end))
                slot.save()

    def rewind(self, name: str, lsn: int, csn: int | None = None) -> None:
        """Let a slot forget what was confirmed after a position, or a CSN."""
        with self.lock:
            slot = self.slots[name]
            slot.confirmed_lsn = min(slot.confirmed_lsn, lsn)
            if csn is not None:
                slot.confirmed_csn = min(slot.confirmed_csn, csn)
            slot.save()

    def copy(self) -> "ServerCopy":
        """Copy its files, the slots included."""
        with self.lock:
            slots = {name: dataclasses.replace(slot) for name, slot in self.slots.items()}
            return ServerCopy(self.store.copy(), slots)

    def restore(self, copy: "ServerCopy", *, is_clock_too: bool = False) -> None:
        """Crash, and start again from a copy of its files; `is_clock_too` as of `Store.put_back`."""
        self.crash()
        self.store.put_back(copy.store, is_clock_too=is_clock_too)
        with self.lock:
            self.slots = {name: dataclasses.replace(slot) for name, slot in copy.slots.items()}
            for slot in self.slots.values():
                slot.is_active = False
            self.told_lsns.clear()
        self.start()

    # --- what sessions ask -------------------------------------------------------------

    @property
    def wal_end(self) -> int:
        """End of the WAL."""
        return self.store.wal_end if self.load is None else self.load.wal_end

    def now_us(self) -> int:
        """Microseconds since 2000, of the wall clock."""
        return int((time.time() - _EPOCH_2000) * 1_000_000)

    @property
    def codec(self) -> str:
        """Python codec of the database's encoding."""
        return CODECS[self.behaviour.encoding]

    def printer(self, *, is_utc: bool = False) -> Printer:
        """How values are printed in streams."""
        how = self.behaviour
        return Printer(
            self.profile, self.codec, how.leading_zero, how.short_infinity,
            0 if is_utc else how.zone_minutes,
        )  # fmt: skip

    def add_user(self, user: User) -> None:
        """Let somebody log in."""
        self.users[user.name] = user

    def may_see_all(self, asker: Backend | None) -> bool:
        """Whether a session sees what other users do."""
        user = self.users.get(asker.user) if asker else None
        return user is not None and bool(user.rights & {"rolsuper", "rolsystemadmin"})

    def check_right(self, user: str, text: str) -> None:
        """Look whether a user may use the functions and views of a statement.

        Raises:
            CommandError: one is denied.
        """
        for denied, name in self.denied:
            if denied == user and re.search(rf"\b{name}\b", text, re.IGNORECASE):
                kind = "relation" if name in _VIEWS else "function"
                raise CommandError(f"permission denied for {kind} {name}", "42501")

    def violate(self, what: str) -> None:
        """Write down what a client did."""
        with self.lock:
            self.violations.append(what)

    def create_slot(self, name: str, plugin: str = "mppdb_decoding", csn: int = 0) -> Slot:
        """Create a logical slot at the end of the WAL.

        Args:
            name: of it.
            plugin: of it.
            csn: of a CSN slot: up to this one nothing is sent; 0 for a slot that goes by LSN.

        Raises:
            CommandError: it exists, there is no such plug-in, or this is a standby.
        """
        known = PLUGINS + (COMMERCIAL_PLUGINS if self.profile.is_commercial else ())
        with self.lock:
            if self.behaviour.is_standby:
                raise CommandError(
                    "can't decode in pmState is not run or recovery in progress.", "0A000"
                )
            if name in self.slots:
                raise CommandError(f'replication slot "{name}" already exists', "42710")
            if plugin not in known:
                raise CommandError(f'could not access file "{plugin}": No such file', "58P01")
            self.store.write(100)
            slot = Slot(name, plugin, self.database, self.wal_end, self.wal_end, csn)
            slot.save()
            self.slots[name] = slot
            return slot

    def create_csn_slot(self, name: str, plugin: str = "mppdb_decoding") -> Slot:
        """Create a CSN slot: what draws its CSN from now on is sent.

        Raises:
            CommandError: it exists, there is no such plug-in, or this is no GaussDB.
        """
        if not self.profile.is_commercial:
            raise CommandError(
                "function pg_create_logical_replication_slot(unknown, unknown, integer) does not "
                "exist",
                "42883",
            )
        return self.create_slot(name, plugin, self.store.next_csn - 1)

    def drop_slot(self, name: str) -> None:
        """Drop a slot.

        Raises:
            CommandError: there is none, or it is in use.
        """
        with self.lock:
            slot = self.slot(name)
            if slot.is_active:
                raise CommandError(f'replication slot "{name}" is already active', "55006")
            del self.slots[name]

    def slot(self, name: str) -> Slot:
        """Find a slot.

        Raises:
            CommandError: there is none.
        """
        found = self.slots.get(name)
        if found is None:
            raise CommandError(f'replication slot "{name}" does not exist', "42704")
        return found

    def advance_slot(self, name: str, restart_lsn: int, confirmed_lsn: int) -> Slot:
        """Do what ADVANCE_REPLICATION does: it never asks whether the position makes sense.

        Raises:
            CommandError: the slot is in use, or this is a standby.
        """
        with self.lock:
            if self.behaviour.is_standby:
                raise CommandError("couldn't advance in recovery", "0A000")
            slot = self.slot(name)
            if slot.is_active:
                raise CommandError(f'replication slot "{name}" is already active', "55006")
            if slot.confirmed_csn:
                last = self.store.next_csn - 1
                slot.confirmed_csn = max(slot.confirmed_csn, min(confirmed_lsn, last))
                slot.save()
                return slot
            slot.confirmed_lsn = max(slot.confirmed_lsn, min(confirmed_lsn, self.wal_end))
            slot.restart_lsn = max(slot.restart_lsn, min(restart_lsn, self.wal_end))
            slot.save()
            return slot
