"""Nouns of a snapshot: the table that is wanted, how far it is, and what is around it."""

import dataclasses
import time
from typing import Protocol

from gaussdecode.collect.gate import Gate
from gaussdecode.daemon.snapshotread import Counts
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.names import table_directory
from gaussdecode.land.schemas import SchemaStore
from gaussdecode.land.snapshots import Json
from gaussdecode.land.writer import Writer
from gaussdecode.model.entry import CommitEntry
from gaussdecode.source.export import PublishedTable


class Context(Protocol):
    """What a snapshot needs of the pipeline."""

    @property
    def log(self) -> CommitLog | None:
        """The commit log, once the landing is open."""

    @property
    def writer(self) -> Writer | None:
        """The stream's writer."""

    @property
    def schemas(self) -> SchemaStore:
        """Of the landing."""

    @property
    def gate(self) -> Gate:
        """Holds publications up."""

    def snapshot_landed(self, entry: CommitEntry) -> None:
        """Count an entry."""

    def fail(self, error: BaseException) -> None:
        """End the daemon."""


@dataclasses.dataclass(slots=True)
class Wanted:
    """A table to be read.

    Attributes:
        table: as published.
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


@dataclasses.dataclass(slots=True)
class Progress:
    """How far one table is, for those who look on."""

    state: str = "waiting"
    counts: Counts = dataclasses.field(default_factory=Counts)
    reason: str | None = None
    began: float = dataclasses.field(default_factory=time.monotonic)

    def to_record(self) -> Json:
        """Make it fit for JSON."""
        counts = self.counts
        left = None
        if self.state == "reading" and counts.chunks_done:
            spent = time.monotonic() - self.began
            left = round(spent * (counts.chunks - counts.chunks_done) / counts.chunks_done, 1)
        record = dataclasses.asdict(counts)
        return {"state": self.state, **record, "seconds_left": left, "reason": self.reason}
