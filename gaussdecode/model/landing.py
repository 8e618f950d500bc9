"""Classes for the files, entries and identity of a landing."""

import dataclasses
import enum

from gaussdecode.model.lsn import Lsn


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a row or marker stands in the order of one source.

    Attributes:
        lsn: end of the commit record.
        seq: number inside the transaction, from 0, over all tables.
    """

    lsn: int
    seq: int

    def __str__(self) -> str:
        return f"{Lsn(self.lsn)} row {self.seq}"


@dataclasses.dataclass(frozen=True, slots=True)
class SourcePosition:
    """Everything of a source up to here is complete.

    Attributes:
        epoch: rises when LSNs may repeat (new snapshot, accepted gap, another cluster).
        timeline: timeline of the server that streamed it; 0 where the source has none.
        lsn: the durable position.
        csn: commit sequence number, or None where the source has none. In a landing in the order of
            CSNs the watermark: everything up to it has landed, and nothing above it.
        until: in such a landing, the end in the WAL of all transactions up to `csn`: one that ends later
            and has such a CSN came too late. None in others.
    """

    epoch: int
    timeline: int
    lsn: int
    csn: int | None = None
    until: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which stream a landing belongs to; all of it must match at every start.

    Attributes:
        kind: ``postgresql``, ``gaussdb`` or ``capture``.
        system_identifier: system identifier of the cluster, as text.
        database: name.
        slot: name.
        plugin: output plug-in of the slot.
    """

    kind: str
    system_identifier: str
    database: str
    slot: str
    plugin: str


@dataclasses.dataclass(frozen=True, slots=True)
class LandingFile:
    """One immutable Parquet file, as its commit entry describes it.

    Attributes:
        table: encoded ``<schema>.<name>``, the directory below ``data/``.
        path: relative to the root, with ``/``.
        rows: number of rows.
        bytes: size of the file.
        first: position of its first row.
        last: position of its last row.
        schema_id: file in ``schemas/<table>/`` without ``.json``.
        ops: rows by operation: ``{"I": 3, "D": 1}``.
        has_unchanged: some row has unchanged TOAST columns.
        has_key_change: some row changes its key.
        checksum: ``sha256:`` and 64 hexadecimal digits over the whole file.
        source: source whose rows they are, where a landing has several sources; else None.
    """

    table: str
    path: str
    rows: int
    bytes: int
    first: Position
    last: Position
    schema_id: str
    ops: dict[str, int]
    has_unchanged: bool
    has_key_change: bool
    checksum: str
    source: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Truncate:
    """A table was emptied at a position.

    Attributes:
        table: encoded directory name.
        position: position of the T row.
        cascade: TRUNCATE ... CASCADE.
        restart_identity: TRUNCATE ... RESTART IDENTITY.
        source: source whose rows of the table are gone, where a landing has several; else None.
    """

    table: str
    position: Position
    cascade: bool
    restart_identity: bool
    source: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaChange:
    """Rows of a table land under another schema from a position on.

    Attributes:
        table: encoded directory name.
        position: position of the first row or marker under the new schema.
        schema_id: the new one.
        previous: the one before, or None for a table never seen.
        source: source of the rows, where a landing has several; else None.
    """

    table: str
    position: Position
    schema_id: str
    previous: str | None
    source: str | None = None

    @property
    def key(self) -> str:
        """What a log knows the schema under: see `schema_key`."""
        return schema_key(self.table, self.source)


def schema_key(table: str, source: str | None) -> str:
    """What a log knows the present schema of a table under: each of several sources has its own."""
    return table if source is None else f"{source}/{table}"


@dataclasses.dataclass(frozen=True, slots=True)
class Replacement:
    """A compacted file holds exactly the rows of several older ones.

    Attributes:
        path: the compacted file.
        replaced: paths of the older files, in position order.
        first_n: lowest number of the entries that named them.
        last_n: highest number of the entries that named them.
    """

    path: str
    replaced: tuple[str, ...]
    first_n: int
    last_n: int


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedFile:
    """A prepared transaction that had not ended, as its entry names it.

    Attributes:
        path: relative to the root.
        bytes: size of the file.
        checksum: ``sha256:`` and 64 hexadecimal digits over the whole file.
        xid: XID of the transaction.
        gid: its global identifier; what is not UTF-8 is escaped.
        lsn: end of its PREPARE.
        time_us: time of its PREPARE, microseconds since 1970.
        rows: rows, truncates and messages in it, whether they will land or not.
    """

    path: str
    bytes: int
    checksum: str
    xid: int
    gid: str
    lsn: int
    time_us: int
    rows: int


class EntryKind(enum.StrEnum):
    """What an entry of the commit log says."""

    GENESIS = "genesis"
    DATA = "data"
    IDLE = "idle"
    SNAPSHOT = "snapshot"
    PREPARED = "prepared"
    GAP = "gap"
    FORK = "fork"
    SUSPECT = "suspect"
    QUARANTINE = "quarantine"
    COMPACT = "compact"
    RETENTION = "retention"
