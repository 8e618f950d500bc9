"""Declare the whole configuration, and its sections `ring`, `monitoring` and `guard`."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from gaussdecode.errors import AccessError, ConfigError
from gaussdecode.settings.dsn import completed, read_password
from gaussdecode.settings.landing_sections import (
    KEY_PIECE_BYTES,
    MIRROR_PUT_BYTES,
    LandingConfig,
    MirrorConfig,
    SnapshotConfig,
)
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.source_sections import DecodingConfig, Member, SourceConfig
from gaussdecode.settings.types import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    AbsolutePath,
    Address,
    AddressType,
    Boolean,
    Choice,
    Duration,
    Size,
    Text,
    setting,
)

ROW_COPIES: Final = 3
"""Most bytes over all processes for each byte of a huge row; bench/rowmemory.py measures them."""

PORT_CERTIFICATE: Final = "monitoring.tls-certificate-file"
_DESCRIPTORS: Final = 128  # files, directories, connections and libraries: some 60 are usual
_DECODER_DESCRIPTORS: Final = 16  # two queues of at most seven each, and pipes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RingConfig:
    """Shared memory between the processes, per decoder."""

    raw_ring_bytes: int = setting(
        4 * MIB, Size(1 * MIB, 1 * GIB, 64 * KIB), "The read change queue: from reader to decoder."
    )
    decoded_ring_bytes: int = setting(
        16 * MIB,
        Size(1 * MIB, 4 * GIB, 64 * KIB),
        "The decode change queue: from decoder to collector.",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringConfig:
    """The HTTP port for Prometheus and `gaussdecode status`, and the log."""

    listen: Address = setting(
        Address("127.0.0.1", 19187),
        AddressType(),
        "Address of /metrics, /status, /livez and /readyz.",
    )
    allow_remote: bool = setting(
        False,
        Boolean(),
        "Accept a `listen` address that other machines can reach. There is no login: everybody who "
        "reaches it may read.",
    )
    tls_certificate_file: Path | None = setting(
        None,
        AbsolutePath(),
        "PEM file with the certificate of the port, then those between it and its authority. With "
        "it the port speaks TLS 1.2 and newer only. It is read again when it changes.",
    )
    tls_key_file: Path | None = setting(
        None,
        AbsolutePath(),
        "PEM file with the private key of that certificate, without a password. Mode 0600, or 0640 "
        "if root owns it.",
    )
    tls_client_ca_file: Path | None = setting(
        None,
        AbsolutePath(),
        "PEM file with authorities. Who shows a client certificate of one of them needs no token "
        "for `POST /ctl`. Use an authority that signs nothing else.",
    )
    control_token_file: Path | None = setting(
        None,
        AbsolutePath(),
        "File with a token of 16 characters or more on its first line, mode 0600 or 0400. With it "
        "`POST /ctl` carries out the acts of `gaussdecode ctl`. Without TLS the token can be read "
        "on the way: keep `listen` on the loopback interface.",
    )
    log_level: str = setting(
        "info", Choice(("debug", "info", "warning", "error")), "Lowest level that is logged."
    )

    @property
    def tls_files(self) -> "PortFiles | None":
        """The files of the port's TLS; None without TLS."""
        if self.tls_certificate_file is None or self.tls_key_file is None:
            return None
        return PortFiles(self.tls_certificate_file, self.tls_key_file, self.tls_client_ca_file)

    @property
    def url(self) -> str:
        """Where the port is, as a browser wants it, without a path."""
        return f"{'http' if self.tls_files is None else 'https'}://{self.listen}"


@dataclasses.dataclass(frozen=True, slots=True)
class PortFiles:
    """The files of the port's TLS.

    Attributes:
        certificate: file of its certificate.
        key: file of the private key.
        client_ca: file of authorities whose clients need no token; None for none.
        section: of the configuration.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    section: str = "monitoring"

    @property
    def named(self) -> Mapping[str, Path]:
        """Each of them by its key in the configuration."""
        files = {"certificate": self.certificate, "key": self.key, "client-ca": self.client_ca}
        return {
            f"{self.section}.tls-{name}-file": path
            for name, path in files.items()
            if path is not None
        }


def serve_port_files(serve: ServeConfig) -> PortFiles | None:
    """The files of the TLS of `gaussdecode serve`; None without TLS."""
    if serve.tls_certificate_file is None or serve.tls_key_file is None:
        return None
    return PortFiles(serve.tls_certificate_file, serve.tls_key_file, section="serve")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """Actions before the slot is lost or the disk is full; docs/operate.md, Guard."""

    interval: float = setting(
        15.0,
        Duration(1.0, HOUR),
        "Time between two checks of slot and disk. They use their own connection.",
    )
    warn_before: float | None = setting(
        2 * HOUR,
        Duration(1.0, 30 * DAY, or_none=True),
        "Warn when the slot may be lost, or the disk may be full, within this time.",
    )
    pause_before: float | None = setting(
        HOUR / 2,
        Duration(1.0, 30 * DAY, or_none=True),
        "Stop optional work (`landing.compact`) when either is predicted within this time.",
    )
    drop_slot_above: int | None = setting(
        None,
        Size(16 * MIB, 1024 * 1024 * GIB, or_none=True),
        "Drop the slot when the server keeps more WAL than this for it. This is the last step: it "
        "loses changes to save the server's disk. First all received changes are landed. A gap "
        "entry records what is missing, and the daemon stays down.",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConfig:
    """Whom to tell when a state of docs/alerts.md begins or is over; docs/operate.md, Notifications."""

    url: str = setting(
        "",
        Text(r"https?://[^\0\s]+", "a URL with http or https", is_echoed=False),
        "Gets a POST with the state as JSON.",
        is_secret=True,
    )
    command: Path | None = setting(
        None,
        AbsolutePath(),
        "A program, which runs without a shell and without arguments and reads the same JSON from "
        "its standard input. It is killed after ten seconds.",
    )
    interval: float = setting(
        HOUR,
        Duration(1.0, 30 * DAY),
        "One state is told to begin at most once in this time, however often it comes and goes.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class KeptPassword:
    """A password that was read before it was needed, or why it could not be.

    Attributes:
        password: None where none is configured.
        failure: why there is none to give.
    """

    password: str | None = dataclasses.field(repr=False)
    failure: ConfigError | None

    def give(self) -> str | None:
        """The password.

        Raises:
            ConfigError: it could not be read.
        """
        if self.failure is not None:
            raise self.failure
        return self.password


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A checked configuration.

    Attributes:
        path: the file it was read from.
        slot: name of the replication slot.
        source: source of changes.
        decoding: GaussDB's options.
        landing: files of the landing.
        ring: sizes of the queues.
        monitoring: port and log.
        guard: guard of the slot and the disk.
        snapshot: snapshot of the existing rows.
        mirror: the landing's copy on an object store.
        notify: whom to tell of trouble.
        serve: the server for clients of the landing.
    """

    path: Path
    slot: str
    source: SourceConfig
    decoding: DecodingConfig
    landing: LandingConfig
    ring: RingConfig
    monitoring: MonitoringConfig
    guard: GuardConfig = dataclasses.field(default_factory=GuardConfig)
    snapshot: SnapshotConfig = dataclasses.field(default_factory=SnapshotConfig)
    mirror: MirrorConfig = dataclasses.field(default_factory=MirrorConfig)
    notify: NotifyConfig = dataclasses.field(default_factory=NotifyConfig)
    serve: ServeConfig = dataclasses.field(default_factory=ServeConfig)
    _kept: "KeptPassword | None" = dataclasses.field(default=None, repr=False)
    _members: Mapping[str, "Config"] = dataclasses.field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )

    @property
    def reads_rows(self) -> bool:
        """Whether existing rows are read without being asked for."""
        return self.snapshot.wants_rows or self.landing.on_suspect == "snapshot"

    @property
    def follows_keepalives(self) -> bool:
        """In serial decoding of GaussDB: what keepalives tell goes through the log, and is confirmed.

        Without it nothing tells that the stream has come to where existing rows were read.
        """
        decoding = self.decoding
        if decoding.is_parallel or self.source.kind is not SourceKind.GAUSSDB:
            return False
        return decoding.auto_advance or self.lands_by_csn or self.reads_rows

    @property
    def changes_decoders(self) -> bool:
        """``parallel-decode-num: auto``, where the daemon follows it: one source, PostgreSQL."""
        is_one = self.source.kind is SourceKind.POSTGRESQL and not self.is_several
        return self.decoding.chooses_decoders and is_one

    @property
    def lands_by_csn(self) -> bool:
        """The landing is in the order of CSNs."""
        kinds = (SourceKind.GAUSSDB, SourceKind.CAPTURE)
        return self.source.kind in kinds and self.decoding.output_order == 1

    @property
    def cuts_together(self) -> bool:
        """Entries are cut where several sources are, or where a mark of CSNs is."""
        is_marked = self.lands_by_csn and self.source.kind is not SourceKind.CAPTURE
        return is_marked or self.is_several

    @property
    def members(self) -> Mapping[str, "Config"]:
        """The configuration of each source, by its name; of one source its own, by its slot."""
        return self._members or {self.slot: self}

    @property
    def is_several(self) -> bool:
        """Whether the landing has several sources."""
        return len(self.members) > 1

    def with_members(self, members: Mapping[str, "Member"]) -> Self:
        """The same, of several sources, each of which differs in where it is only."""
        configs: dict[str, Config] = {}
        for name, member in members.items():
            slices = {} if member.slice_id is None else {"slice-id": member.slice_id}
            configs[name] = dataclasses.replace(
                self,
                slot=member.slot,
                source=dataclasses.replace(
                    self.source,
                    dsn=member.dsn,
                    ha_port=member.ha_port or self.source.ha_port,
                    password_file=member.password_file or self.source.password_file,
                    password_command=()
                    if member.password_file is not None
                    else self.source.password_command,
                ),
                decoding=dataclasses.replace(
                    self.decoding, given={**self.decoding.given, **slices}
                ),
            )
        return dataclasses.replace(self, _members=configs)

    @property
    def snapshot_refusal(self) -> str | None:
        """Why existing rows cannot be read with these settings; None if they can."""
        if self.source.kind is SourceKind.CAPTURE:
            return "a recording has no tables that could be read"
        if self.source.kind is SourceKind.POSTGRESQL:
            return None
        if self.decoding.standby_connection:
            return (
                "a view needs a transaction id of its own, which a standby does not give "
                "(decoding.standby-connection): follow the primary, or set snapshot.mode: none"
            )
        if self.snapshot.nudge or not self.hides_empty_commits or self.lands_by_csn:
            return None
        if self.follows_keepalives:
            return None
        way = "skip-empty-xacts: false" if self.decoding.is_parallel else "auto-advance: true"
        return (
            "while tables are quiet the stream of GaussDB would not show its position: set "
            f"decoding.{way}, or snapshot.nudge"
        )

    @property
    def beginning_refusal(self) -> str | None:
        """Why a new landing cannot begin with these settings: the rows there are would be missing; else None."""
        reason = self.snapshot_refusal
        if reason is None or self.snapshot.mode == "none" or self.source.kind is SourceKind.CAPTURE:
            return None
        return f"snapshot.mode: {self.snapshot.mode}: {reason}"

    @property
    def hides_empty_commits(self) -> bool:
        """Whether a stream of GaussDB leaves transactions out that change no row."""
        return not self.decoding.is_parallel or self.decoding.skip_empty_xacts

    @property
    def name(self) -> str:
        """The file's name without its ending: the instance of the systemd unit."""
        return self.path.stem

    def conninfo(self) -> str:
        """Make the connection string, without a password from elsewhere; never log it.

        Raises:
            ConfigError: there are several sources, each with its own.
        """
        if self.is_several:
            raise ConfigError(
                f"{self.path.name}: sources: this command works only with one source, given by slot and "
                "source.dsn"
            )
        is_postgresql = self.source.kind is SourceKind.POSTGRESQL
        return completed(
            self.source.dsn,
            connect_timeout=self.source.connect_timeout,
            sender_timeout_ms=self.decoding.sender_timeout if is_postgresql else None,
        )

    def password(self) -> str | None:
        """Read the password from the service's credential, the password file or the command.

        Raises:
            ConfigError: the file cannot be used, or the command failed.
        """
        try:
            return read_password(
                self.source.password_file,
                os.environ.get("CREDENTIALS_DIRECTORY"),
                self.source.password_command,
            )
        except AccessError:  # this process has given up the right to read it
            if self._kept is None:
                raise
            return self._kept.give()

    def with_password_read(self) -> Self:
        """The same, with the password as it is now: for a process that gives up its rights.

        As long as it may read the file, the password is what stands there. Where it could not be
        read, this is said when it is asked for.
        """
        try:
            kept = KeptPassword(self.password(), None)
        except ConfigError as error:
            kept = KeptPassword(None, error)
        members = {name: member.with_password_read() for name, member in self._members.items()}
        return dataclasses.replace(self, _kept=kept, _members=members)

    @property
    def txn_memory_bytes(self) -> int:
        """Memory above which one open transaction goes to disk."""
        limit = self.decoding.max_txn_in_memory * MIB
        return min(limit or self.reorderbuffer_bytes, self.reorderbuffer_bytes)

    @property
    def reorderbuffer_bytes(self) -> int:
        """Memory of all open transactions above which the current one goes to disk."""
        limit = self.decoding.max_reorderbuffer_in_memory * GIB
        return min(limit or self.landing.memory_bytes, self.landing.memory_bytes)

    @property
    def row_memory_bytes(self) -> int:
        """What the largest row takes over all processes, beside the budget."""
        return ROW_COPIES * self.source.max_row_bytes

    @property
    def descriptors(self) -> int:
        """File descriptors that the main process may need."""
        decoders = sum(member.decoding.most_decoders for member in self.members.values())
        return _DESCRIPTORS + decoders * _DECODER_DESCRIPTORS

    def memory_budget(self) -> dict[str, int]:
        """Name every byte bound; their sum is what the processes may hold in buffers."""
        decoders = self.decoding.most_decoders
        raw_rings = decoders if decoders > 1 else 0
        is_gaussdb = self.source.kind is SourceKind.GAUSSDB
        return {
            "messages being received": 8 * MIB if is_gaussdb else 0,
            "read change queues": raw_rings * self.ring.raw_ring_bytes,
            "decode change queues": decoders * self.ring.decoded_ring_bytes,
            "batches being decoded": decoders * self.ring.decoded_ring_bytes // 4,
            "transactions open or not yet landed": self.landing.memory_bytes,
            "row groups being encoded": self.landing.queue_bytes,
            "files being shipped to the mirror": MIRROR_PUT_BYTES if self.mirror.is_on else 0,
            **self._serve_budget(),
            **self._snapshot_budget(),
        }

    def _serve_budget(self) -> dict[str, int]:
        """Byte bounds of the server inside the daemon, where all clients of a source get the same tables."""
        serve = self.serve
        if not serve.in_daemon:
            return {}
        return {
            "rows kept for clients": len(self.members) * serve.cache_bytes,
            "bytes that wait for clients": serve.connections * serve.buffer_bytes,
        }

    def _snapshot_budget(self) -> dict[str, int]:
        """Byte bounds of reading tables, of each source its own; a capture has none to read.

        Each worker gathers one row group and encodes another; when a table is landed, each lane
        holds a row group and a piece of the keys that changed, beside the piece that is made.
        """
        if self.source.kind is SourceKind.CAPTURE:
            return {}
        landing = self.landing
        readers = max(self.snapshot.workers, landing.lanes)
        sources = 1 if self.snapshot_refusal is not None else len(self.members)
        return {
            "tables being read": 2 * sources * readers * landing.row_group_bytes,
            "changes of tables being read": sources * (landing.lanes + 2) * KEY_PIECE_BYTES,
        }
