"""Classes of a snapshot: the wanted table, its progress, and its surroundings."""

import dataclasses
import time
from typing import Final, Protocol

from gaussdecode.collect.snapshot_gate import Gate
from gaussdecode.collect.spool import Spool
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.names import table_directory
from gaussdecode.land.snapshots import Json, SnapshotStore
from gaussdecode.land.writer import Writer
from gaussdecode.model.entry import CommitEntry
from gaussdecode.snapshot.read import Counts
from gaussdecode.snapshot.tablefilter import TableFilter
from gaussdecode.source.export import PublishedTable


class Landing(Protocol):
    """The part of the pipeline that commits entries beside those of the stream."""

    @property
    def log(self) -> CommitLog | None:
        """The commit log, once the landing is open."""

    @property
    def writer(self) -> Writer | None:
        """The stream's writer."""

    @property
    def snapshots(self) -> SnapshotStore:
        """Stored files of unfinished snapshots, and the ledger."""

    @property
    def table_filter(self) -> TableFilter | None:
        """Of the newest session; None before the first."""

    def snapshot_landed(self, entry: CommitEntry) -> None:
        """Count an entry."""


class Context(Landing, Protocol):
    """The part of the pipeline, and of the source, that a snapshot uses."""

    @property
    def source(self) -> str | None:
        """Name of the source, where there are several; else None."""

    @property
    def gate(self) -> Gate:
        """Holds publications up."""

    def spool(self) -> Spool:
        """Room on the landing's disk for what memory may not hold."""

    def is_left_to_first(self, schema: str, name: str) -> bool:
        """Whether a table lands from the first source only, and this is another one."""

    def restart_session(self) -> None:
        """Have the session end in order and another one begin."""

    def fail(self, error: BaseException) -> None:
        """End the daemon."""


@dataclasses.dataclass(slots=True)
class Wanted:
    """A table to be read.

    Attributes:
        table: table as published.
        where: condition, or None.
        request: path of the request that asked for it, or None.
    """

    table: PublishedTable
    where: str | None = None
    request: str | None = None

    @property
    def title(self) -> str:
        """``schema.name``."""
        return self.table.title

    @property
    def directory(self) -> str:
        """Encoded name."""
        return table_directory(self.table.schema, self.table.name)


def title_of(source: str | None, title: str) -> str:
    """A table as the ledger spells it, and who looks on: of several sources with its source."""
    return title if source is None else f"{source}/{title}"


_OPEN: Final = frozenset({"waiting", "reading", "landing"})


@dataclasses.dataclass(slots=True)
class Progress:
    """Progress of one table, for the status.

    Attributes:
        state: waiting, reading, landing, done, failed or ignored.
        counts: counts of what is being read.
        reason: why it waits or failed, or None.
        began: when reading began, monotonic.
        chunks_before: pieces that were read before that.
    """

    state: str = "waiting"
    counts: Counts = dataclasses.field(default_factory=Counts)
    reason: str | None = None
    began: float = 0.0
    chunks_before: int = 0

    def begin_waiting(self, reason: str | None = None) -> None:
        """It is to be read, and others come first, or something went wrong."""
        self.state, self.reason = "waiting", reason

    def wait_for(self, reason: str) -> None:
        """It cannot be read now; say why."""
        if self.is_open:
            self.reason = reason

    @property
    def is_open(self) -> bool:
        """Whether rows are still to land."""
        return self.state in _OPEN

    def begin_reading(self, chunks: int, chunks_done: int, estimate: int) -> Counts:
        """It is being read; gives what readers count in."""
        if self.state != "reading":
            self.counts = Counts()
            self.began = time.monotonic()
            self.chunks_before = chunks_done
        self.state, self.reason = "reading", None
        self.counts.chunks, self.counts.chunks_done = chunks, chunks_done
        self.counts.estimate = estimate
        return self.counts

    def seconds_left(self, now: float) -> float | None:
        """Estimated seconds left; None where there is no estimate."""
        counts = self.counts
        if self.state != "reading":
            return None
        read, rest = counts.chunks_done - self.chunks_before, counts.chunks - counts.chunks_done
        if not read or counts.chunks == 1:
            read, rest = counts.rows, counts.estimate - counts.rows
        return round((now - self.began) * rest / read, 1) if read and rest > 0 else None

    def to_record(self) -> Json:
        """Make it fit for JSON."""
        left = self.seconds_left(time.monotonic())
        record = dataclasses.asdict(self.counts)
        return {"state": self.state, **record, "seconds_left": left, "reason": self.reason}
