"""Listen for clients of one landing, and hold what they share."""

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gaussdecode import __version__
from gaussdecode.errors import ConfigError, GaussDecodeError, SourceError
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.lsn import Lsn
from gaussdecode.serve import messages
from gaussdecode.serve.block import Output
from gaussdecode.serve.catalog import Catalog
from gaussdecode.serve.connection import Connection
from gaussdecode.serve.counts import Counts
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.feed import Feeds
from gaussdecode.serve.landed_catalog import LandedCatalog
from gaussdecode.serve.session import Session
from gaussdecode.serve.slots import SAVE_SECONDS, Slots
from gaussdecode.serve.statements import Scalar
from gaussdecode.serve.users import Users
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.spark.log.place import Place

_log = get_logger("serve")
_THREADS: Final = 4  # arbitrary: files are read and messages written without the GIL
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_UNKNOWN_VERSION: Final = (
    "15.0"  # what a driver that needs a number gets where the source's is not known
)
_OPENGAUSS: Final = "openGauss 6.0.0"  # the release whose output the plug-ins have, TRUNCATE of serial ones included

Plugin = Callable[[Mapping[str, str | None]], Output]
"""Makes an output plug-in of the options of a client."""


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What the landing tells of its source.

    Attributes:
        landing_id: chosen once.
        system_identifier: of the cluster.
        database: name.
        kind: ``postgresql``, ``gaussdb`` or ``capture``.
    """

    landing_id: str
    system_identifier: str
    database: str
    kind: str


class _Protocol(Connection):
    """A connection that begins a session when it is made."""

    def __init__(self, server: "Server") -> None:
        super().__init__(server.settings.buffer_bytes)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)
        self._server.begin(self)


class Server:
    """Serves one landing.

    Args:
        root: directory of the landing, or URL of its mirror.
        settings: section `serve`.
        plugins: output plug-ins by name.
        tls: gives what a connection that begins now is to use; None without TLS.
        keep: `landing.max-slot-keep-size`, for errors; None where it is not known.
        slots_root: directory with the virtual slots; None for `root`.

    Attributes:
        root: directory of the landing, or URL of its mirror.
        sessions: by number.
        has_several: the landing has several sources; each is a database, by its name.
        databases: names that clients may connect to.
        counts: what it counts.
        beat: monotonic time at which the event loop last had a turn, of once in a second.

    Raises:
        ConfigError: there is no landing, another server has it, or a setting is refused.
    """

    def __init__(
        self,
        root: Place,
        settings: ServeConfig,
        plugins: Mapping[str, Plugin],
        tls: Callable[[], ssl.SSLContext] | None = None,
        keep: int | None = None,
        slots_root: Path | None = None,
    ) -> None:
        self.settings = settings
        self._plugins = plugins
        self._tls = tls
        self.root = root
        if slots_root is None:
            if not isinstance(root, Path):
                raise ConfigError(
                    f"{root}: a store keeps no virtual slots; give a directory for them"
                )
            slots_root = root
        self._check_listen()
        self.users = Users(settings.users_file) if settings.users_file is not None else None
        self._networks = [ipaddress.ip_network(each) for each in settings.allow]
        self.feeds = Feeds(root, settings.cache_bytes, _THREADS, keep)
        layout = json.loads((self.feeds.landing.root / "layout.json").read_bytes())
        self._identities: Mapping[str, Mapping[str, str]] = layout["sources"]
        self.has_several = self.feeds.landing.has_several
        self.databases: Sequence[str] = (
            sorted(self._identities) if self.has_several else [self.facts("").database]
        )
        self.sessions: dict[int, Session] = {}
        self.counts = Counts(self)
        self.beat = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = 0
        self._saving = asyncio.Lock()
        self.landed = {
            name: LandedCatalog(self.feeds.landing, self.source_of(name)) for name in self.databases
        }
        self.catalog = self._catalog()
        version = _UNKNOWN_VERSION
        if self.catalog is not None:
            try:
                version = self.catalog.version()
            except SourceError as error:
                _log.warning(
                    Event.ERROR, reason=f"serve.catalog-dsn: {error}; clients see version {version}"
                )
        self.slots = Slots(slots_root, self.feeds.landing.landing_id, settings.slots)
        for name, what in self.slots.damaged.items():
            _log.error(
                Event.ERROR,
                reason=f'replication slot "{name}": {what}; restore the file and restart, or drop the slot',
            )
        serving = f"gaussdecode {__version__}, serving what has landed"
        self.version_text = f"PostgreSQL {version} ({serving})"
        self.opengauss_text = f"({_OPENGAUSS}) {serving}"
        self.shown: Mapping[str, str] = _shown(version, settings)

    def _catalog(self) -> Catalog | None:
        dsn = self.settings.catalog_dsn
        if not dsn:
            return None
        if self.has_several:
            raise ConfigError(
                "serve.catalog-dsn: the landing has several sources, each with a catalogue of its own; leave the option "
                "out"
            )
        kind = self.facts(self.databases[0]).kind
        if kind != "postgresql":
            raise ConfigError(
                f"serve.catalog-dsn: the landing is of kind {kind}; only PostgreSQL's catalogue can be asked; leave "
                "the option out"
            )
        return Catalog(dsn, self.feeds.pool)

    def _check_listen(self) -> None:
        listen = self.settings.listen
        if listen.host not in _LOOPBACK and self.settings.users_file is None:
            raise ConfigError(
                f"serve.listen: {listen}: other machines can reach it, and there are no users; set serve.users-file, "
                "or listen on 127.0.0.1"
            )

    def source_of(self, database: str) -> str | None:
        """The source that a database is; None where the landing has one source."""
        return database if self.has_several else None

    def facts(self, database: str) -> Facts:
        """What the landing tells of the source that a database is."""
        name = self.source_of(database) or next(iter(self._identities))
        source, landing = self._identities[name], self.feeds.landing
        return Facts(
            landing.landing_id, source["system_identifier"], source["database"], source["kind"]
        )

    async def timeline(self, database: str) -> int:
        """Timeline of a source in the newest entry; 0 where it has none."""
        source = self.source_of(database)
        feed = self.feeds.feed(None, source=source)
        with contextlib.suppress(ServeError):
            entry = await feed.entry(self.feeds.end.last)
            return feed.reader.landing.position(entry, source).timeline
        return 0

    # ---- life ------------------------------------------------------------------------------

    async def run(self, started: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serve until told to stop.

        Args:
            started: is told the port, once it is open.
            stop: ends everything.

        Raises:
            ConfigError: the port cannot be opened.
        """
        listen = self.settings.listen
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: _Protocol(self), listen.host, listen.port)
        except OSError as error:
            raise ConfigError(f"serve.listen: {listen}: {error.strerror}") from None
        saver = asyncio.create_task(self._save_always())
        try:
            port = server.sockets[0].getsockname()[1]
            _log.info(
                Event.SERVE_STARTED, listen=str(listen), root=str(self.root), slots=len(self.slots)
            )
            started(port)
            await stop.wait()
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            saver.cancel()
            await asyncio.gather(saver, return_exceptions=True)
            if self.catalog is not None:
                self.catalog.close()
            self.slots.close()  # first: a thread may wait for a store
            self.feeds.close()

    def begin(self, connection: Connection) -> None:
        """Begin the session of a new connection, or refuse it."""
        if not self._is_allowed(connection.peer):
            _log.warning(Event.CLIENT_REFUSED, client=connection.peer, reason="not in serve.allow")
            self.counts.refuse("address")
            self._refuse(
                connection, ServeError("28000", "no entry of serve.allow has this address")
            )
            return
        if len(self._tasks) >= self.settings.connections:
            self.counts.refuse("connections")
            self._refuse(
                connection,
                ServeError(
                    "53300", "sorry, too many clients already", hint="See serve.connections."
                ),
            )
            return
        self._next += 1
        task = asyncio.get_running_loop().create_task(self._run(connection, self._next))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: Connection, process: int) -> None:
        session = Session(self, connection, process)
        self.sessions[process] = session
        try:
            await session.run()
        finally:
            del self.sessions[process]

    @staticmethod
    def _refuse(connection: Connection, problem: ServeError) -> None:
        connection.write(messages.error(problem, "FATAL"))
        connection.close()

    def _is_allowed(self, peer: str) -> bool:
        if not self._networks:
            return True
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._networks)

    def cancel(self, process: int, secret: int) -> None:
        """End what a session does, as its CancelRequest asks: here, its connection."""
        session = self.sessions.get(process)
        if session is not None and session.secret == secret & 0xFFFFFFFF:
            session.connection.abort()

    # ---- what sessions share ---------------------------------------------------------------

    def tls(self) -> ssl.SSLContext | None:
        """What a connection that begins now is to use; None without TLS."""
        return None if self._tls is None else self._tls()

    def needs_tls(self, peer: str) -> bool:
        """Whether a client at an address must speak TLS: with certificates, all but this machine."""
        try:
            return self._tls is not None and not ipaddress.ip_address(peer).is_loopback
        except ValueError:
            return self._tls is not None

    def plugin(self, name: str) -> Plugin:
        """What makes an output plug-in.

        Raises:
            ServeError: there is none of that name.
        """
        made = self._plugins.get(name)
        if made is None:
            raise ServeError(
                "42704",
                f'output plug-in "{name[:64]}" is not served here',
                f"Served: {', '.join(sorted(self._plugins))}.",
            )
        return made

    async def save(self) -> None:
        """Write the slots that changed."""
        async with self._saving:
            changed = self.slots.changed()
            if changed:
                loop = asyncio.get_running_loop()
                try:
                    await loop.run_in_executor(None, self.slots.write, changed)
                except asyncio.CancelledError:
                    for slot, _ in changed:  # it may not have begun
                        slot.is_dirty = True
                    raise

    async def _save_always(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            self.beat = time.monotonic()
            try:
                await self.save()
            except GaussDecodeError as error:
                _log.error(Event.ERROR, reason=f"{error}; the slots are written again in a second")

    def streams(self) -> list[Mapping[str, Scalar]]:
        """What is sent to clients now; a client has one reader and one plug-in that writes."""
        return [
            {
                "parallel_decode_num": 1,
                "read_change_queue_length": f"queue0: {session.stream.read_changes}",
                "decode_change_queue_length": f"queue0: {session.stream.held[0]}",
                "reader_lsn": str(Lsn(session.stream.read_lsn)),
                "working_txn_cnt": session.stream.held[1],
                "working_txn_memory": session.stream.held[2],
                "pid": session.process,
                "usename": session.user,
                "application_name": session.show("application_name"),
                "client_addr": session.connection.peer or None,
                "slot_name": session.slot_name,
                "state": "streaming" if session.stream.is_at_end else "catchup",
                "sent_lsn": session.stream.sent,
                "flush_lsn": self.slots.get(session.slot_name).lsn,
                "bytes": session.stream.bytes,
                "rows": session.stream.rows,
            }
            for session in self.sessions.values()
            if session.stream is not None
        ]


def _shown(version: str, settings: ServeConfig) -> Mapping[str, str]:
    major, minor = (int(number) for number in re.findall(r"\d+", f"{version}.0")[:2])
    return {
        "server_version": version,
        "server_version_num": str(major * 10_000 + minor),
        "server_encoding": "UTF8",
        "client_encoding": "UTF8",
        "application_name": "",
        "datestyle": "ISO, MDY",
        "intervalstyle": "postgres",
        "integer_datetimes": "on",
        "is_superuser": "off",
        "standard_conforming_strings": "on",
        "timezone": "UTC",
        "in_hot_standby": "off",
        "default_transaction_read_only": "on",
        "transaction_read_only": "on",
        "transaction_isolation": "read committed",
        "default_transaction_isolation": "read committed",
        "search_path": "public",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "wal_level": "logical",
        "wal_segment_size": "16MB",
        "data_directory_mode": "0700",
        "max_identifier_length": "63",
        "max_replication_slots": str(settings.slots),
        "max_wal_senders": str(settings.connections),
        "wal_sender_timeout": f"{int(settings.sender_timeout * 1000)}ms",
        "ssl": "on" if settings.tls_certificate_file is not None else "off",
        "statement_timeout": "0",
    }
