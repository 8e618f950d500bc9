"""Declare the sections `landing` and `snapshot`; sizes are bytes, time spans seconds."""

import dataclasses
from pathlib import Path
from typing import Final

from gaussdecode.model.title import split_title
from gaussdecode.settings.option import AUTO
from gaussdecode.settings.rules import BY_NAME
from gaussdecode.settings.types import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    AbsolutePath,
    Boolean,
    Choice,
    Duration,
    Integer,
    Patterns,
    Size,
    Text,
    about,
    setting,
)

FIRST_LANES: Final = 2
"""Lanes that are begun with: one encodes while another closes a file."""

MOST_LANES: Final = 8
"""Lanes that are chosen at most: a collector brings no more than so many encode."""

MIRROR_PUT_BYTES: Final = 160 * MIB
"""Largest file that is put in one request, which holds it in memory; above the default size."""

KEY_PIECE_BYTES: Final = 16 * MIB
"""Keys of changed rows that a snapshot has in memory at a time; arbitrary."""

_PATTERN: Final = Text(r"[^\0.]+\.[^\0]+", "schema.name, schema.*, *.name, *.*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LandingConfig:
    """Directory, size, format and retention of the landed files."""

    root: Path = dataclasses.field(
        metadata=about(
            AbsolutePath(), "Directory of this landing, on a local file system.", is_for_start=True
        )
    )
    target_file_size: int = setting(
        128 * MIB, Size(1 * MIB, 16 * GIB), "A file is closed at about this size."
    )
    max_commit_interval: float = setting(
        30.0,
        Duration(0.1, DAY),
        "Longest time between commits to the landing. It stretches when a commit takes longer than "
        "a quarter of it.",
    )
    on_table_error: str = setting(
        "stop",
        Choice(("stop", "quarantine")),
        "Action when changes of one table cannot be decoded or written. `stop` ends the daemon; no "
        "change is lost. `quarantine` leaves the table out from there on, records this in an entry "
        "of the commit log, and continues with all other tables. A snapshot of the table ends its "
        "quarantine. For a prepared transaction with a row above `source.max-row-bytes`: "
        "`quarantine` acts only if it commits; `stop` ends at its PREPARE, so that a larger "
        "`source.max-row-bytes` can still land the row.",
    )
    on_suspect: str = setting(
        "record",
        Choice(("record", "snapshot", "stop")),
        "Action when changes may be missing: a GaussDB server reports dropped rows after DDL in a "
        "transaction, a publication was changed, or a command changed stored rows that PostgreSQL "
        "does not send. `record` writes a suspect entry to the commit log and continues. "
        "`snapshot` also reads the affected tables again. `stop` ends the daemon before it "
        "confirms any of these changes.",
    )
    replicated_tables: str = setting(
        "",
        BY_NAME["white-table-list"].type,
        "Replicated tables of a distributed GaussDB, with a full copy on every data node. With "
        "`sources` they are read only from the source whose name sorts first. If a replicated "
        "table is not listed, each change lands once per node. If a listed table is not "
        "replicated, the rows of the other nodes are missing; this is not checked. Do not change "
        "it once the landing has begun.",
        is_for_start=True,
    )
    retention: float | None = setting(
        None,
        Duration(HOUR, 3650 * DAY, or_none=True),
        "Files older than this are deleted. The newest 1000 entries stay.",
    )
    max_slot_keep_size: int | None = setting(
        10 * GIB,
        Size(0, 1024 * 1024 * GIB, or_none=True),
        "Maximum size of files that stay beyond `retention` because a virtual slot of `gaussdecode "
        "serve` still needs them. A slot that needs more is lost: its client has to begin anew. "
        "none: no bound.",
    )
    compact: bool = setting(
        False,
        Boolean(),
        "Merge small files for readers of the commit log. The small files stay until retention "
        "deletes them, because plain streams read their directories.",
    )
    compression: str = setting(
        "zstd",
        Choice(("zstd", "snappy", "none")),
        "Compression of the Parquet files, but for columns that it makes hardly smaller.",
    )
    writer_lanes: int | str = setting(
        AUTO,
        Integer(1, 16, word=AUTO),
        f"Threads that encode files at the same time. auto starts with {FIRST_LANES}. It adds "
        f"more, up to {MOST_LANES}, while all other stages wait for them and cores are idle.",
    )
    row_group_rows: int = setting(131072, Integer(1024, 1048576), "Maximum rows in a row group.")
    row_group_bytes: int = setting(
        64 * MIB, Size(1 * MIB, 1 * GIB), "Maximum bytes in a row group, before compression."
    )
    memory_bytes: int = setting(
        512 * MIB,
        Size(32 * MIB, 1024 * GIB),
        "Memory for transactions that are open or not yet landed. Above it, changes are landed "
        "early or go to disk.",
    )
    spool_bytes: int | None = setting(
        None,
        Size(1 * MIB, 1024 * 1024 * GIB, or_none=True),
        "Maximum disk space for open transactions, in spool/. When it is full, streamed "
        "transactions are asked for whole, and the later half of those that wait for their turn by "
        "CSN is read again. If one transaction alone needs more, nothing is received any more and "
        "an alert fires: docs/operate.md, Bounds of the disk.",
    )
    min_free_bytes: int | None = setting(
        None,
        Size(0, 1024 * 1024 * GIB, or_none=True),
        "Rows and open transactions wait while the landing's file system has less free space than "
        "this. Work that frees space continues. Unset or none: a hundredth of the file system, "
        "1GiB at most.",
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

    url: str = setting(
        "",
        Text(
            r"(?:(?:s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]*|(?:s?web)?hdfs://[A-Za-z0-9\[][A-Za-z0-9._:\]-]*"
            r"|file:///[^\0?#@]+)(?:/[^\0?#@]*)?",
            "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://namenode/prefix, "
            "webhdfs://namenode:port/prefix, swebhdfs://namenode:port/prefix or file:///directory",
            is_echoed=False,
        ),
        "Target of each entry after it is committed here. The store must support put-if-absent. It "
        "must be empty, or hold this landing.",
    )
    confirm: str = setting(
        "mirror",
        Choice(("mirror", "local")),
        "Position that is confirmed to the server: `mirror` waits for the store, `local` for the "
        "local disk only.",
    )
    local_retention: float | None = setting(
        None,
        Duration(0.0, 3650 * DAY, or_none=True),
        "Local data files are deleted this long after the store has their entry; with `compact` "
        "also not before they were merged. The log stays. Unset: they stay until "
        "`landing.retention`.",
    )
    endpoint: str = setting(
        "",
        Text(
            r"https?://[^\0@/?#]+(?:/[^\0@?#]*)?",
            "a URL without user and password",
            is_echoed=False,
        ),
        "Address of the store if it is not the provider's own: MinIO, Huawei OBS and others. With "
        "HDFS: the web addresses of its name nodes, separated by commas.",
    )
    region: str = setting(
        "", Text(r"[A-Za-z0-9-]{1,64}", "the name of a region"), "Region of an s3 store."
    )
    credentials_file: Path | None = setting(
        None,
        AbsolutePath(),
        "File with lines `NAME=value`, with the names of the store's own tools (AWS_ACCESS_KEY_ID, "
        "...), mode 0600. It is read again when it changes, so that credentials may expire. Unset: "
        "credentials come from the environment or the machine.",
    )
    allow_http: bool = setting(False, Boolean(), "Accept an endpoint without TLS.")
    virtual_hosted: bool = setting(
        False,
        Boolean(),
        "With s3: the bucket is in the host name and not in the path. Huawei OBS needs this.",
    )
    timeout: float = setting(
        120.0,
        Duration(1.0, HOUR),
        "Longest wait for one request, the upload of a whole file included.",
    )

    @property
    def is_on(self) -> bool:
        """Whether there is one."""
        return bool(self.url)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotConfig:
    """Reading of existing rows; not for a recording. docs/operate.md, Snapshots."""

    mode: str = setting(
        "initial",
        Choice(("initial", "none", "only")),
        "`initial` lands the existing rows of every published table, in a new landing or one that "
        "is switched to it from `none`. `none` lands only those of tables asked for with "
        "`gaussdecode snapshot`. `only` is like `initial`, and ends the daemon when all tables are "
        "done.",
    )
    tables: tuple[tuple[str, str], ...] = setting(
        (),
        Patterns(_PATTERN, Choice(("initial", "none"))),
        "The mode of single tables; it overrides `mode`. If several patterns match, the one with "
        "fewer `*` is used, then the one that names the schema.",
    )
    on_new_table: str = setting(
        "snapshot",
        Choice(("snapshot", "stream", "ignore")),
        "Action for a table that is added to a publication later. `snapshot` lands its existing "
        "rows if `mode` is not none. `stream` lands only its changes. `ignore` lands nothing of it "
        "until it is asked for with `gaussdecode snapshot`; ignored changes are lost, and the log "
        "names the table.",
    )
    workers: int = setting(4, Integer(1, 64), "Connections that read at the same time.")
    chunk_bytes: int = setting(
        64 * MIB,
        Size(64 * KIB, 16 * GIB),
        "A table is read in chunks of this size on the server. A finished chunk is not read again "
        "after a restart. Smaller tables are read at once, several together.",
    )
    transaction_timeout: float = setting(
        HOUR / 2,
        Duration(1.0, 30 * DAY),
        "Longest time that reading keeps one transaction open. Then it continues in a new one.",
    )
    statement_timeout: float = setting(
        HOUR / 6, Duration(1.0, 30 * DAY), "Longest time for one statement, which reads one chunk."
    )
    hold_timeout: float = setting(
        10.0,
        Duration(1.0, DAY),
        "Longest wait for the server's running transactions while entries are held. Then the "
        "snapshot lets go and tries again with twice the wait. Also the longest wait for a lock on "
        "a table.",
    )
    rate_limit: int | None = setting(
        None, Size(64 * KIB, 1024 * GIB, or_none=True), "Maximum bytes per second that are read."
    )
    suspect_interval: float = setting(
        HOUR,
        Duration(1.0, 30 * DAY),
        "Minimum time between automatic snapshots of `landing.on-suspect: snapshot`. Tables that "
        "become suspect meanwhile are read together.",
    )
    verify: str = setting(
        "none",
        Choice(("none", "counts", "checksums")),
        "`counts`: the server counts the rows of each chunk, and the counts are compared. "
        "`checksums`: it also hashes every row as COPY prints it. A table that differs is marked "
        "as failed.",
    )
    nudge: str = setting(
        "",
        Text(".*", "one SQL statement, or nothing"),
        "Statement that runs once a second while a snapshot of GaussDB waits for the stream. It "
        "must change a row of a table in the stream. Needed with `skip-empty-xacts: true`, because "
        "that stream shows nothing else of a quiet server.",
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
