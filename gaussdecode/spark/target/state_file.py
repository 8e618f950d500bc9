"""Describe the files of a table in a target, and the version that they make up.

Pure, except for writing a file.
"""

import dataclasses
import secrets
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.spark.log.place import Place
from gaussdecode.spark.target.delta_schema import statistics
from gaussdecode.spark.target.durable import write_file

Json = dict[str, Any]  # decoded JSON
NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
CURRENT: Final = "current"
HISTORY: Final = "history"
CHANGELOG: Final = "changelog"
QUARANTINE: Final = "quarantine"
FOLDERS: Final = (CURRENT, HISTORY, CHANGELOG, QUARANTINE)
"""Delta tables of a table, below its directory; the one that decides is the first."""
BY_COMMIT_DATE: Final = "gd_commit_date"
"""A changelog is partitioned by the day of the commit."""
OTHERS: Final = -2
"""Bucket of a file that another writer made of ours: any rows are in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class StateFile:
    """One Parquet file of a version.

    Attributes:
        path: relative to the table's directory.
        rows: number of rows.
        bytes: its size.
        schema_id: schema version of its rows.
        bucket: bucket, in the current state. -1 for other files, and for files with rows of many
            buckets; see `OTHERS`.
        partition: ``column=value/...`` of the partition columns, percent-encoded; empty for none.
        deletes: location of its deletion vector, see `deletion_vectors.Vector`; empty for none.
        deleted: number of rows in the deletion vector.
        stats: statistics of its rows, as in the log.
    """

    path: str
    rows: int
    bytes: int
    schema_id: str
    bucket: int = -1
    partition: str = ""
    deletes: str = ""
    deleted: int = 0
    stats: str = ""

    @property
    def deletes_path(self) -> str:
        """Path of the file with its deletion vector, relative to the table's directory."""
        prefix, number, _, _ = self.deletes.split(":")
        return f"{self.path.partition('/')[0]}/{prefix}/deletion_vector_{number}.bin"


@dataclasses.dataclass(frozen=True, slots=True)
class PartVersion:
    """The part of a version that belongs to one of several sources; fields as in `TableVersion`."""

    buckets: int
    ignore_through: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of one table.

    Attributes:
        v: its number in the log of its rows, from 0.
        n: the last entry applied.
        schema_id: schema version of the current state.
        buckets: number of buckets; with several sources see `parts`.
        current: files of the current state: those of buckets, and those with added rows.
        closed: files of closed intervals.
        changelog: files of the changelog.
        quarantine: files of the rows among the current ones that failed a test.
        history_from: intervals that ended after this entry are kept; None without history.
        changelog_from: changes after this entry are kept; None without changelog.
        changelog_by: partition column of the changelog.
        ignore_through: position that a snapshot covers; with several sources see `parts`.
        accepted_gaps: gap entries that were accepted.
        unmatched: changes that did not match the table's rows, since the table was begun; see
            `merge.Merged`.
        created: time of creation.
        part: CSN up to which entry n + 1 is applied too; 0 for nothing.
        partition: partition columns of the current state.
        cluster: columns that the rows of a file are sorted by.
        parts: the parts of several sources, by name; their rows are in separate files.
    """

    v: int
    n: int
    schema_id: str
    buckets: int
    current: tuple[StateFile, ...] = ()
    closed: tuple[StateFile, ...] = ()
    changelog: tuple[StateFile, ...] = ()
    quarantine: tuple[StateFile, ...] = ()
    history_from: int | None = None
    changelog_from: int | None = None
    changelog_by: str = ""
    ignore_through: tuple[int, ...] | None = None
    accepted_gaps: tuple[int, ...] = ()
    unmatched: int = 0
    created: str = ""
    part: int = 0
    partition: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    parts: dict[str, PartVersion] = dataclasses.field(default_factory=dict)

    @property
    def files(self) -> tuple[StateFile, ...]:
        """All its files that have rows."""
        return (*self.current, *self.closed, *self.changelog)

    @property
    def paths(self) -> set[str]:
        """Paths of all its files, deletion vectors included, relative to the table's directory."""
        deletes = {file.deletes_path for file in self.files if file.deletes}
        return {file.path for file in (*self.files, *self.quarantine)} | deletes

    def buckets_of(self, source: str | None) -> int | None:
        """Number of buckets of a source; None if it has no rows yet."""
        if source is None:
            return self.buckets
        return self.parts[source].buckets if source in self.parts else None

    @property
    def rows(self) -> int:
        """Rows of the current state."""
        return sum(file.rows - file.deleted for file in self.current)

    def of_folder(self, folder: str) -> tuple[StateFile, ...]:
        """Its files in one of `FOLDERS`."""
        found: tuple[StateFile, ...] = getattr(self, "closed" if folder == HISTORY else folder)
        return found

    def to_record(self) -> Json:
        """Everything but its number and files, for the log."""
        left_out = {"v", CURRENT, "closed", CHANGELOG, QUARANTINE}
        return {name: of for name, of in dataclasses.asdict(self).items() if name not in left_out}

    @classmethod
    def from_record(cls, record: Json, v: int, files: Mapping[str, tuple[StateFile, ...]]) -> Self:
        """Read a record of `to_record`; files are by folder."""
        record = {**record, "v": v, "closed": files[HISTORY]}
        record |= {folder: files[folder] for folder in FOLDERS if folder != HISTORY}
        record["ignore_through"] = _tuple(record["ignore_through"])
        record["parts"] = {
            source: PartVersion(of["buckets"], _tuple(of["ignore_through"]))
            for source, of in record.get("parts", {}).items()
        }
        for name in ("accepted_gaps", "partition", "cluster"):
            record[name] = tuple(record[name])
        return cls(**record)


def _tuple(values: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def spelled_value(value: object) -> str:
    """Format a partition value as in `StateFile.partition`; NULL has a word of its own."""
    text = None if value is None else urllib.parse.quote(str(value), safe="-")
    return text or NO_PARTITION


def write_state(
    rows: pa.Table, root: Place, name: str, schema_id: str, bucket: int = -1, partition: str = "",
    *, group_rows: int = 131_072,
) -> StateFile:  # fmt: skip
    """Write a durable file under a name that is never used again.

    Args:
        rows: rows to write.
        root: directory of the table.
        name: path from there; a random part is added.
        schema_id: see `StateFile`.
        bucket: see there.
        partition: see there.
        group_rows: rows of a row group.
    """
    footers: list[pq.FileMetaData] = []

    def write(file: BinaryIO) -> None:
        pq.write_table(
            rows, file, compression="zstd", compression_level=1, row_group_size=group_rows,
            metadata_collector=footers,
        )  # fmt: skip

    path, size = write_file(write, root, f"{name}-{secrets.token_hex(8)}.parquet")
    return StateFile(
        path, rows.num_rows, size, schema_id, bucket, partition, stats=statistics(footers[0])
    )
