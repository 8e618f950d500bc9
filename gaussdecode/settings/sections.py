"""Declare the sections of a configuration: fields, defaults, ranges, units and meanings.

Declared as data: reading (`config`), messages and docs/configuration.md come from here.
Frozen; sizes are bytes and time spans seconds. Nothing here reads a file.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from gaussdecode.errors import ConfigError
from gaussdecode.model.title import split_title
from gaussdecode.settings.dsn import completed, read_password
from gaussdecode.settings.rules import AUTO, BY_NAME, Section, SourceKind, given_decoders
from gaussdecode.settings.types import (
    GIB,
    KIB,
    MIB,
    AbsolutePath,
    Address,
    AddressType,
    Boolean,
    Choice,
    Duration,
    Integer,
    Patterns,
    Size,
    Text,
    TextList,
    ValueType,
)

KEY_PIECE_BYTES: Final = 16 * MIB
"""Keys of changed rows that a snapshot has in memory at a time; arbitrary."""

MOST_CHOSEN: Final = 4
"""Decoders that are chosen at most: a reader brings no more than so many can decode."""

FIRST_LANES: Final = 2
"""Lanes that are begun with: one encodes while another closes a file."""

MOST_LANES: Final = 8
"""Lanes that are chosen at most: a collector brings no more than so many encode."""

ROW_COPIES: Final = 3
"""Most bytes over all processes for each byte of a huge row; bench/rowmemory.py measures them."""

MIRROR_PUT_BYTES: Final = 160 * MIB
"""Largest file that is put in one request, which holds it in memory; above the default size."""

_DESCRIPTORS: Final = 128  # files, directories, connections and libraries: some 60 are usual
_DECODER_DESCRIPTORS: Final = 16  # two queues of at most seven each, and pipes
_DAY: Final = 86400.0
_HOUR: Final = 3600.0
SLOT_NAME: Final = Text(r"[a-z0-9_]{1,63}", "1 to 63 of a-z, 0-9 and _")
GAUSSDB_SLOT_NAME: Final = Text(
    r"(?!(?i:gs_roach))(?!\.{1,2}\Z)[A-Za-z0-9_?.-]{1,63}",
    "1 to 63 of a-z, 0-9, _, ?, . and -, other than . and .., not beginning with gs_roach; upper "
    "case is read as lower case",
)
MPPDB_DECODING: Final = "mppdb_decoding"
SQL_DECODING: Final = "sql_decoding"
SQL_DECODING_OPTIONS: Final = frozenset(
    {"include-xids", "include-timestamp", "skip-empty-xacts", "only-local"}
)
"""All that the serial plug-in sql_decoding knows."""
PARALLEL_PLUGINS: Final[Mapping[str, str]] = {
    "parallel_binary_decoding": "b",
    "parallel_json_decoding": "j",
    "parallel_text_decoding": "t",
}
"""Plug-ins that decode in parallel only, with the decode-style that they mean."""
PLUGINS: Final = (MPPDB_DECODING, SQL_DECODING, *PARALLEL_PLUGINS)
NOT_STREAMED: Final = "off"
STREAMED: Final = "on"
STREAMED_PARALLEL: Final = "parallel"
_PUBLICATION: Final = Text(r"[^\0]{1,63}", "a name of 1 to 63 bytes")
_PATTERN: Final = Text(r"[^\0.]+\.[^\0]+", "schema.name, schema.*, *.name, *.*")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is known about a field besides its default.

    Attributes:
        type: reads and shows it.
        meaning: one or two sentences.
        is_secret: its value is never repeated.
    """

    type: ValueType
    meaning: str
    is_secret: bool = False


def _is(value_type: ValueType, meaning: str, *, is_secret: bool = False) -> dict[str, Setting]:
    return {"setting": Setting(value_type, meaning, is_secret)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The source of changes, and its limits and timeouts."""

    kind: SourceKind = dataclasses.field(
        metadata=_is(Choice(tuple(SourceKind)), "The source: a slot of a server, or a recording.")
    )
    dsn: str = dataclasses.field(
        default="",
        repr=False,
        metadata=_is(
            Text(r"[^\0]+", "a libpq connection string"),
            "A libpq connection string with host, dbname and user. `sslmode` is `verify-full` unless "
            "set. The port is the one for ordinary SQL.",
            is_secret=True,
        ),
    )
    password_file: Path | None = dataclasses.field(
        default=None,
        metadata=_is(
            AbsolutePath(),
            "File with the password on its first line, mode 0600 or 0400. The systemd credential "
            "`password` takes precedence.",
        ),
    )
    publication: tuple[str, ...] = dataclasses.field(
        default=(),
        metadata=_is(
            TextList(_PUBLICATION), "Publications on the server; required with kind postgresql."
        ),
    )
    ha_port: int | None = dataclasses.field(
        default=None,
        metadata=_is(
            Integer(1, 65535),
            "With kind gaussdb: the port for replication, if it differs from the port in the dsn. "
            "Default: the dsn's port plus 1 if `enable_thread_pool` is on, else the dsn's port.",
        ),
    )
    plugin: str = dataclasses.field(
        default=MPPDB_DECODING,
        metadata=_is(
            Choice(PLUGINS),
            "With kind gaussdb: the slot's output plug-in. Parallel decoding works with any of them.",
        ),
    )
    invisible_truncate: str = dataclasses.field(
        default="warn",
        metadata=_is(
            Choice(("warn", "stop")),
            "With kind gaussdb: the stream of parallel decoding shows no TRUNCATE and no DDL. `warn` "
            "reports this at every start and in layout.json. `stop` refuses to start.",
        ),
    )
    max_message_size: int = dataclasses.field(
        default=1 * GIB,
        metadata=_is(
            Size(2 * MIB, 2 * GIB - 1),
            "With kind gaussdb: the longest message that is accepted. One row may be that long.",
        ),
    )
    max_row_bytes: int = dataclasses.field(
        default=1 * GIB,
        metadata=_is(
            Size(2 * MIB, 2 * GIB - 1),
            "The largest accepted row, in bytes of its values. A larger row is an error of its "
            "table; see `landing.on-table-error`. No server sends more than the default. "
            "`gaussdecode check` prints the memory that such a row needs.",
        ),
    )
    file: Path | None = dataclasses.field(
        default=None,
        metadata=_is(AbsolutePath(), "The recording to read, with kind capture."),
    )
    allow_insecure: bool = dataclasses.field(
        default=False,
        metadata=_is(Boolean(), "Accept a network connection whose `sslmode` is not verify-full."),
    )
    messages: bool = dataclasses.field(
        default=True,
        metadata=_is(Boolean(), "Land logical messages (pg_logical_emit_message)."),
    )
    streaming: str = dataclasses.field(
        default=NOT_STREAMED,
        metadata=_is(
            Choice((NOT_STREAMED, STREAMED, STREAMED_PARALLEL)),
            "With kind postgresql. `on`: the server sends a large transaction while it is open, "
            "instead of keeping it on its disk until the commit. Its rows wait here, in memory or in "
            "spool/, and land when it commits. `parallel`: the same with PostgreSQL 16 and later, "
            "which also send where a rolled-back transaction ended. Older servers are asked for `on`.",
        ),
    )
    two_phase: bool = dataclasses.field(
        default=False,
        metadata=_is(
            Boolean(),
            "With kind postgresql, from version 15 on: receive prepared transactions at PREPARE "
            "TRANSACTION, not at their commit. Their rows wait in prepared/ and land at COMMIT "
            "PREPARED. A slot keeps this setting once it was used.",
        ),
    )
    connect_timeout: float = dataclasses.field(
        default=10.0,
        metadata=_is(Duration(2.0, _HOUR), "Longest wait for a connection."),
    )
    receiver_timeout: float = dataclasses.field(
        default=60.0,
        metadata=_is(
            Duration(1.0, _HOUR),
            "After half of this time without data the server is asked for a reply. After all of it "
            "the connection is closed.",
        ),
    )
    retry_first: float = dataclasses.field(
        default=1.0,
        metadata=_is(Duration(0.1, _HOUR), "Wait before the first new attempt; doubles each time."),
    )
    retry_max: float = dataclasses.field(
        default=60.0, metadata=_is(Duration(0.1, _HOUR), "Longest wait between attempts.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecodingConfig:
    """GaussDB's options that the daemon carries out; `given` holds all that were set.

    Made by `of`: defaults stand in the table of options alone. `chooses_decoders` says that
    ``parallel-decode-num`` is ``auto``, where the number is the one that is begun with.
    """

    parallel_decode_num: int
    chooses_decoders: bool
    parallel_queue_size: int
    white_table_list: str
    only_local: bool
    skip_empty_xacts: bool
    include_xids: bool
    include_timestamp: bool
    max_txn_in_memory: int
    max_reorderbuffer_in_memory: int
    desc_memory_limit: int
    include_user: bool
    include_originid: bool
    exclude_users: str
    standby_connection: bool
    sender_timeout: int | None
    change_log_max_len: int
    max_decode_to_sender_cache_num: int
    enable_heartbeat: bool
    output_order: int
    auto_advance: bool
    skip_generated_columns: bool
    timezone_is_utc: bool
    data_limit: int
    start_position: str
    decode_style: str
    sending_batch: int
    given: Mapping[str, object]

    @classmethod
    def of(
        cls,
        kind: SourceKind,
        given: Mapping[str, object] = MappingProxyType({}),
        plugin: str = MPPDB_DECODING,
    ) -> Self:
        """Fill in the defaults of a kind of source, and the style that its plug-in means.

        Args:
            kind: kind of the source.
            given: options by name, with values of the right type.
            plugin: output plug-in of the slot.
        """
        decoders = given_decoders(given, kind)
        is_parallel = decoders not in (1, AUTO)
        values: dict[str, Any] = {  # Any: of many types, each checked by its option
            name.replace("-", "_"): given.get(
                name, option.effective_default(kind, is_parallel=is_parallel)
            )
            for name, option in BY_NAME.items()
        }
        values["chooses_decoders"] = decoders == AUTO
        values["parallel_decode_num"] = 1 if decoders == AUTO else decoders
        if "decode-style" not in given:
            values["decode_style"] = PARALLEL_PLUGINS.get(plugin, values["decode_style"])
        names = {field.name for field in dataclasses.fields(cls)} - {"given"}
        return cls(**{name: values[name] for name in names}, given=dict(given))

    @property
    def is_parallel(self) -> bool:
        """Whether decoders run in processes of their own."""
        return self.parallel_decode_num > 1

    @property
    def most_decoders(self) -> int:
        """How many decoders there may come to be."""
        return MOST_CHOSEN if self.chooses_decoders else self.parallel_decode_num

    def has(self, section: Section) -> bool:
        """Whether the options of a chapter of the product's documentation apply."""
        return self.chooses_decoders or {
            Section.PARALLEL: self.is_parallel,
            Section.SERIAL: not self.is_parallel,
        }.get(section, True)

    @property
    def white_tables(self) -> tuple[tuple[str, str], ...]:
        """The white list as (schema, table) pairs, ``*`` for all; empty lists everything."""
        return table_pairs(self.white_table_list)

    @property
    def excluded_users(self) -> tuple[str, ...]:
        """Names of those whose transactions are left out."""
        return tuple(self.exclude_users.split(",")) if self.exclude_users else ()

    @property
    def start_at(self) -> tuple[int, int] | None:
        """CSN and LSN before which changes are left out; None for none."""
        csn, slash, lsn = self.start_position.partition("/")
        return (int(csn), int(lsn)) if slash else None

    @property
    def desc_memory_bytes(self) -> int:
        """Memory for descriptions of tables, above which they go to disk."""
        return self.desc_memory_limit * MIB

    @property
    def kept_buffer_bytes(self) -> int:
        """What a decoder keeps of its result buffer between two batches."""
        return self.change_log_max_len * self.max_decode_to_sender_cache_num

    @property
    def data_limit_bytes(self) -> int | None:
        """Size of output at which peek and get end; None for no limit."""
        return self.data_limit * GIB or None


def table_pairs(listed: str) -> tuple[tuple[str, str], ...]:
    """A list of tables, as white-table-list has them, as (schema, table) pairs."""
    items = listed.split(",") if listed else []
    return tuple((item.partition(".")[0], item.partition(".")[2]) for item in items)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LandingConfig:
    """Directory, size, format and retention of the landed files."""

    root: Path = dataclasses.field(
        metadata=_is(AbsolutePath(), "Directory of this landing, on a local file system.")
    )
    target_file_size: int = dataclasses.field(
        default=128 * MIB,
        metadata=_is(Size(1 * MIB, 16 * GIB), "A file is closed at about this size."),
    )
    max_commit_interval: float = dataclasses.field(
        default=30.0,
        metadata=_is(
            Duration(0.1, _DAY),
            "Longest time between commits to the landing. It stretches when a commit takes longer "
            "than a quarter of it.",
        ),
    )
    on_table_error: str = dataclasses.field(
        default="stop",
        metadata=_is(
            Choice(("stop", "quarantine")),
            "Action when changes of one table cannot be decoded or written. `stop` ends the daemon; "
            "no change is lost. `quarantine` leaves the table out from there on, records this in an "
            "entry of the commit log, and continues with all other tables. A snapshot of the table "
            "ends its quarantine. For a prepared transaction with a row above "
            "`source.max-row-bytes`: `quarantine` acts only if it commits; `stop` ends at its "
            "PREPARE, so that a larger `source.max-row-bytes` can still land the row.",
        ),
    )
    on_suspect: str = dataclasses.field(
        default="record",
        metadata=_is(
            Choice(("record", "snapshot", "stop")),
            "Action when changes may be missing: a GaussDB server reports dropped rows after DDL in "
            "a transaction, a publication was changed, or a command changed stored rows that "
            "PostgreSQL does not send. `record` writes a suspect entry to the commit log and "
            "continues. `snapshot` also reads the affected tables again. `stop` ends the daemon "
            "before it confirms any of these changes.",
        ),
    )
    replicated_tables: str = dataclasses.field(
        default="",
        metadata=_is(
            BY_NAME["white-table-list"].type,
            "Replicated tables of a distributed GaussDB, with a full copy on every data node. With "
            "`sources` they are read only from the source whose name sorts first. If a replicated "
            "table is not listed, each change lands once per node. If a listed table is not "
            "replicated, the rows of the other nodes are missing; this is not checked. "
            "Do not change it once the landing has begun.",
        ),
    )
    retention: float | None = dataclasses.field(
        default=None,
        metadata=_is(
            Duration(_HOUR, 3650 * _DAY, or_none=True),
            "Files older than this are deleted. The newest 1000 entries stay.",
        ),
    )
    compact: bool = dataclasses.field(
        default=False,
        metadata=_is(
            Boolean(),
            "Merge small files for readers of the commit log. The small files stay until retention "
            "deletes them, because plain streams read their directories.",
        ),
    )
    compression: str = dataclasses.field(
        default="zstd",
        metadata=_is(Choice(("zstd", "snappy", "none")), "Compression of the Parquet files."),
    )
    writer_lanes: int | str = dataclasses.field(
        default=AUTO,
        metadata=_is(
            Integer(1, 16, word=AUTO),
            f"Threads that encode files at the same time. auto starts with {FIRST_LANES}. It adds "
            f"more, up to {MOST_LANES}, while all other stages wait for them and cores are idle.",
        ),
    )
    row_group_rows: int = dataclasses.field(
        default=131072,
        metadata=_is(Integer(1024, 1048576), "Maximum rows in a row group."),
    )
    row_group_bytes: int = dataclasses.field(
        default=64 * MIB,
        metadata=_is(Size(1 * MIB, 1 * GIB), "Maximum bytes in a row group, before compression."),
    )
    memory_bytes: int = dataclasses.field(
        default=512 * MIB,
        metadata=_is(
            Size(32 * MIB, 1024 * GIB),
            "Memory for transactions that are open or not yet landed. Above it, changes are landed "
            "early or go to disk.",
        ),
    )
    spool_bytes: int | None = dataclasses.field(
        default=None,
        metadata=_is(
            Size(1 * MIB, 1024 * 1024 * GIB, or_none=True),
            "Maximum disk space for open transactions, in spool/. When it is full, streamed "
            "transactions are asked for whole, and the later half of those that wait for their turn "
            "by CSN is read again. If one transaction alone needs more, nothing is received any more "
            "and an alert fires: docs/operate.md, Bounds of the disk.",
        ),
    )
    min_free_bytes: int | None = dataclasses.field(
        default=None,
        metadata=_is(
            Size(0, 1024 * 1024 * GIB, or_none=True),
            "Rows and open transactions wait while the landing's file system has less free space "
            "than this. Work that frees space continues. Unset or none: a hundredth of the file "
            "system, 1GiB at most.",
        ),
    )

    @property
    def is_quarantining(self) -> bool:
        """Whether a table stops alone where what it brings cannot land."""
        return self.on_table_error == "quarantine"

    @property
    def queue_bytes(self) -> int:
        """One row group for each lane there may come to be, and one that waits for the first to be done."""
        return (self.most_lanes + 1) * self.row_group_bytes

    @property
    def lanes(self) -> int:
        """Encoding threads to begin with."""
        return FIRST_LANES if isinstance(self.writer_lanes, str) else self.writer_lanes

    @property
    def most_lanes(self) -> int:
        """How many encoding threads there may come to be."""
        return MOST_LANES if isinstance(self.writer_lanes, str) else self.writer_lanes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """A copy of the landing on an object store, if `url` is set; docs/mirror.md."""

    url: str = dataclasses.field(
        default="",
        metadata=_is(
            Text(
                r"(?:(?:s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]*|(?:s?web)?hdfs://[A-Za-z0-9\[][A-Za-z0-9._:\]-]*"
                r"|file:///[^\0?#@]+)(?:/[^\0?#@]*)?",
                "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://namenode/prefix, "
                "webhdfs://namenode:port/prefix, swebhdfs://namenode:port/prefix or file:///directory",
                is_echoed=False,
            ),
            "Target of each entry after it is committed here. The store must support put-if-absent. "
            "It must be empty, or hold this landing.",
        ),
    )
    confirm: str = dataclasses.field(
        default="mirror",
        metadata=_is(
            Choice(("mirror", "local")),
            "Position that is confirmed to the server: `mirror` waits for the store, `local` for the "
            "local disk only.",
        ),
    )
    local_retention: float | None = dataclasses.field(
        default=None,
        metadata=_is(
            Duration(0.0, 3650 * _DAY, or_none=True),
            "Local data files are deleted this long after the store has their entry; with `compact` "
            "also not before they were merged. The log stays. Unset: they stay until "
            "`landing.retention`.",
        ),
    )
    endpoint: str = dataclasses.field(
        default="",
        metadata=_is(
            Text(
                r"https?://[^\0@/?#]+(?:/[^\0@?#]*)?",
                "a URL without user and password",
                is_echoed=False,
            ),
            "Address of the store if it is not the provider's own: MinIO, Huawei OBS and others. "
            "With HDFS: the web addresses of its name nodes, separated by commas.",
        ),
    )
    region: str = dataclasses.field(
        default="",
        metadata=_is(Text(r"[A-Za-z0-9-]{1,64}", "the name of a region"), "Region of an s3 store."),
    )
    credentials_file: Path | None = dataclasses.field(
        default=None,
        metadata=_is(
            AbsolutePath(),
            "File with lines `NAME=value`, with the names of the store's own tools "
            "(AWS_ACCESS_KEY_ID, ...), mode 0600. It is read again when it changes, so that "
            "credentials may expire. Unset: credentials come from the environment or the machine.",
        ),
    )
    allow_http: bool = dataclasses.field(
        default=False, metadata=_is(Boolean(), "Accept an endpoint without TLS.")
    )
    virtual_hosted: bool = dataclasses.field(
        default=False,
        metadata=_is(
            Boolean(),
            "With s3: the bucket is in the host name and not in the path. Huawei OBS needs this.",
        ),
    )
    timeout: float = dataclasses.field(
        default=120.0,
        metadata=_is(
            Duration(1.0, _HOUR),
            "Longest wait for one request, the upload of a whole file included.",
        ),
    )

    @property
    def is_on(self) -> bool:
        """Whether there is one."""
        return bool(self.url)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RingConfig:
    """Shared memory between the processes, per decoder."""

    raw_ring_bytes: int = dataclasses.field(
        default=4 * MIB,
        metadata=_is(
            Size(1 * MIB, 1 * GIB, 64 * KIB), "The read change queue: from reader to decoder."
        ),
    )
    decoded_ring_bytes: int = dataclasses.field(
        default=16 * MIB,
        metadata=_is(
            Size(1 * MIB, 4 * GIB, 64 * KIB), "The decode change queue: from decoder to collector."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringConfig:
    """The HTTP port for Prometheus and `gaussdecode status`, and the log."""

    listen: Address = dataclasses.field(
        default=Address("127.0.0.1", 19187),
        metadata=_is(AddressType(), "Address of /metrics, /status, /livez and /readyz."),
    )
    allow_remote: bool = dataclasses.field(
        default=False,
        metadata=_is(
            Boolean(), "Accept a `listen` address that other machines can reach. There is no TLS."
        ),
    )
    log_level: str = dataclasses.field(
        default="info",
        metadata=_is(Choice(("debug", "info", "warning", "error")), "Lowest level that is logged."),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """Actions before the slot is lost or the disk is full; docs/operate.md, Guard."""

    interval: float = dataclasses.field(
        default=15.0,
        metadata=_is(
            Duration(1.0, _HOUR),
            "Time between two checks of slot and disk. They use their own connection.",
        ),
    )
    warn_before: float | None = dataclasses.field(
        default=2 * _HOUR,
        metadata=_is(
            Duration(1.0, 30 * _DAY, or_none=True),
            "Warn when the slot may be lost, or the disk may be full, within this time.",
        ),
    )
    pause_before: float | None = dataclasses.field(
        default=_HOUR / 2,
        metadata=_is(
            Duration(1.0, 30 * _DAY, or_none=True),
            "Stop optional work (`landing.compact`) when either is predicted within this time.",
        ),
    )
    drop_slot_above: int | None = dataclasses.field(
        default=None,
        metadata=_is(
            Size(16 * MIB, 1024 * 1024 * GIB, or_none=True),
            "Drop the slot when the server keeps more WAL than this for it. This is the last step: "
            "it loses changes to save the server's disk. First all received changes are landed. A "
            "gap entry records what is missing, and the daemon stays down.",
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotConfig:
    """Reading of existing rows; not for a recording. docs/operate.md, Snapshots."""

    mode: str = dataclasses.field(
        default="initial",
        metadata=_is(
            Choice(("initial", "none", "only")),
            "`initial` lands the existing rows of every published table, in a new landing or one "
            "that is switched to it from `none`. `none` lands only those of tables asked for with "
            "`gaussdecode snapshot`. `only` is like `initial`, and ends the daemon when all tables "
            "are done.",
        ),
    )
    tables: tuple[tuple[str, str], ...] = dataclasses.field(
        default=(),
        metadata=_is(
            Patterns(_PATTERN, Choice(("initial", "none"))),
            "The mode of single tables; it overrides `mode`. If several patterns match, the one with "
            "fewer `*` is used, then the one that names the schema.",
        ),
    )
    on_new_table: str = dataclasses.field(
        default="snapshot",
        metadata=_is(
            Choice(("snapshot", "stream", "ignore")),
            "Action for a table that is added to a publication later. `snapshot` lands its existing "
            "rows if `mode` is not none. `stream` lands only its changes. `ignore` lands nothing of "
            "it until it is asked for with `gaussdecode snapshot`; ignored changes are lost, and the "
            "log names the table.",
        ),
    )
    workers: int = dataclasses.field(
        default=4, metadata=_is(Integer(1, 64), "Connections that read at the same time.")
    )
    chunk_bytes: int = dataclasses.field(
        default=64 * MIB,
        metadata=_is(
            Size(64 * KIB, 16 * GIB),
            "A table is read in chunks of this size on the server. A finished chunk is not read "
            "again after a restart. Smaller tables are read at once, several together.",
        ),
    )
    transaction_timeout: float = dataclasses.field(
        default=_HOUR / 2,
        metadata=_is(
            Duration(1.0, 30 * _DAY),
            "Longest time that reading keeps one transaction open. Then it continues in a new one.",
        ),
    )
    statement_timeout: float = dataclasses.field(
        default=_HOUR / 6,
        metadata=_is(
            Duration(1.0, 30 * _DAY), "Longest time for one statement, which reads one chunk."
        ),
    )
    hold_timeout: float = dataclasses.field(
        default=10.0,
        metadata=_is(
            Duration(1.0, _DAY),
            "Longest wait for the server's running transactions while entries are held. Then the "
            "snapshot lets go and tries again with twice the wait. Also the longest wait for a lock "
            "on a table.",
        ),
    )
    rate_limit: int | None = dataclasses.field(
        default=None,
        metadata=_is(
            Size(64 * KIB, 1024 * GIB, or_none=True), "Maximum bytes per second that are read."
        ),
    )
    suspect_interval: float = dataclasses.field(
        default=_HOUR,
        metadata=_is(
            Duration(1.0, 30 * _DAY),
            "Minimum time between automatic snapshots of `landing.on-suspect: snapshot`. Tables that "
            "become suspect meanwhile are read together.",
        ),
    )
    verify: str = dataclasses.field(
        default="none",
        metadata=_is(
            Choice(("none", "counts", "checksums")),
            "`counts`: the server counts the rows of each chunk, and the counts are compared. "
            "`checksums`: it also hashes every row as COPY prints it. A table that differs is marked "
            "as failed.",
        ),
    )
    nudge: str = dataclasses.field(
        default="",
        metadata=_is(
            Text(".*", "one SQL statement, or nothing"),
            "Statement that runs once a second while a snapshot of GaussDB waits for the stream. It "
            "must change a row of a table in the stream. Needed with `skip-empty-xacts: true`, "
            "because that stream shows nothing else of a quiet server.",
        ),
    )

    @property
    def wants_rows(self) -> bool:
        """Whether rows of some table land without being asked for."""
        return self.mode != "none" or any(mode != "none" for _, mode in self.tables)

    def wants_rows_of(self, title: str) -> bool:
        """Whether rows of a table land without being asked for."""
        return (self.mode_of(title) or self.mode) != "none"

    def mode_of(self, title: str) -> str | None:
        """The mode of a single table; None where `mode` says it.

        A pattern without quotes means every table that reads so: ``a.b.c`` both ``a."b.c"`` and
        ``"a.b".c``. The title, with its quotes, means one.
        """
        schema, name = split_title(title)
        for pattern in (title, f"{schema}.{name}", f"{schema}.*", f"*.{name}", "*.*"):
            for known, mode in self.tables:
                if known == pattern:
                    return mode
        return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of several sources of a landing, under `sources`: the settings of its own."""

    dsn: str = dataclasses.field(
        repr=False,
        metadata=_is(
            Text(r"[^\0]+", "a libpq connection string"),
            "Connection string of this server, as `source.dsn`.",
            is_secret=True,
        ),
    )
    slot: str = dataclasses.field(
        metadata=_is(
            Text(r"[^\0]{1,63}", "a name, as `slot`"),
            "Name of the replication slot on this server.",
        )
    )
    slice_id: int | None = dataclasses.field(
        default=None,
        metadata=_is(
            Integer(0, 8192),
            "With kind gaussdb: number of the data node. `peek` needs it for slots in CSN order. Set "
            "it for all sources or for none. A landing has ordinary slots, and does not need it.",
        ),
    )
    ha_port: int | None = dataclasses.field(
        default=None,
        metadata=_is(Integer(1, 65535), "As `source.ha-port`, if it differs."),
    )
    password_file: Path | None = dataclasses.field(
        default=None,
        metadata=_is(AbsolutePath(), "As `source.password-file`, if it differs."),
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
        """Read the password from the service's credential or the password file.

        Raises:
            ConfigError: the file cannot be used.
        """
        if self._kept is not None:
            return self._kept.give()
        return read_password(self.source.password_file, os.environ.get("CREDENTIALS_DIRECTORY"))

    def with_password_read(self) -> Self:
        """The same, with the password as it is now: for a process that gives up its rights.

        Where it cannot be read, this is said when it is asked for.
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
            **self._snapshot_budget(),
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
