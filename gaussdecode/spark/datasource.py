"""``spark.read.format("gaussdecode")`` and ``readStream``: the commit log as a source.

    spark.dataSource.register(GaussDecodeSource)
    spark.readStream.format("gaussdecode").option("path", root).load()

Rows are landed files, offsets are numbers of commit entries, so a micro-batch always ends
between two entries, for all tables. In ``foreachBatch`` give the batch to `changes_of` and
get the changes themselves, read natively.

Options: ``path`` (the landing's root), ``table`` (only this one), ``startingN`` (only entries
after it), ``maxEntriesPerTrigger`` (arbitrary default 1000; the last batch is not waited for).
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)

from gaussdecode.errors import ConfigError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import LandingFile
from gaussdecode.spark.landing import Landing, data_kinds
from gaussdecode.spark.plan import ChangeFile, replaces
from gaussdecode.spark.reading import read_changes

SCHEMA: Final = (
    "n bigint, kind string, commit_time timestamp, epoch int, lsn bigint, table string, "
    "path string, schema_id string, rows bigint, bytes bigint, first_lsn bigint, "
    "last_lsn bigint, has_unchanged boolean, has_key_change boolean"
)
_DEFAULT_ENTRIES: Final = 1000


class GaussDecodeSource(DataSource):
    """Lists the files of a commit log."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "gaussdecode"

    def schema(self) -> str:
        """One row is one landed file."""
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # Any: StructType
        """Read the log once."""
        return _Reader(_Options(self.options))

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802 - Spark's name
        """Read the log as it grows."""
        return _StreamReader(_Options(self.options))


class _Options:
    """Options as given; Spark lowers the case of their names."""

    def __init__(self, given: Any) -> None:  # Any: a mapping of Spark's
        options = {str(key).lower(): str(value) for key, value in given.items()}
        if "path" not in options:
            raise ConfigError('give the root of the landing: .option("path", "/var/lib/...")')
        self.root = options["path"]
        self.table = options.get("table")
        self.starting_n = int(options.get("startingn", "-1"))
        self.max_entries = int(options.get("maxentriespertrigger", str(_DEFAULT_ENTRIES)))

    def rows(self, first: int, last: int) -> list[tuple[Any, ...]]:
        """Files of entries `first` to `last`."""
        landing = Landing(self.root)
        wanted = None if self.table is None else landing.find_table(self.table)
        return [
            _row(landing, entry, file)
            for entry in landing.entries(max(first, landing.first_n), last)
            if data_kinds(entry)
            for file in entry.files
            if wanted in {None, file.table}
        ]


def _row(landing: Landing, entry: CommitEntry, file: LandingFile) -> tuple[Any, ...]:
    where = landing.position(entry)
    return (
        entry.n, str(entry.kind), entry.commit_time, where.epoch, where.lsn, file.table,
        str(landing.root / file.path), file.schema_id, file.rows, file.bytes, file.first.lsn,
        file.last.lsn, file.has_unchanged, file.has_key_change,
    )  # fmt: skip


class _Reader(DataSourceReader):
    """All entries there are now, in one partition."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        landing = Landing(self._options.root)
        return iter(self._options.rows(self._options.starting_n + 1, landing.last_n))


class _StreamReader(SimpleDataSourceStreamReader):
    """Entries after an offset; the offset is the number of the last one."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": self._options.starting_n}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        last = min(Landing(self._options.root).last_n, start["n"] + self._options.max_entries)
        end = {"n": max(last, start["n"])}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(  # noqa: N802 - Spark's name
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[Any, ...]]:
        return iter(self._options.rows(start["n"] + 1, end["n"]))


def changes_of(spark: SparkSession, root: str, batch: DataFrame) -> dict[str, DataFrame]:
    """Give the changes that the files of a micro-batch hold.

    Args:
        spark: running.
        root: of the landing.
        batch: rows of this source, as ``foreachBatch`` gets them.

    Returns:
        By table's directory, see `gaussdecode.spark.reading.changes`.
    """
    landing = Landing(root)
    wanted = {(row["n"], row["path"]) for row in batch.select("n", "path").collect()}
    found: dict[str, list[ChangeFile]] = {}
    for n in sorted({number for number, _ in wanted}):
        entry = landing.entry(n)
        for file in entry.files:
            if (n, str(landing.root / file.path)) in wanted:
                change = ChangeFile(n, n, replaces(entry, file.table), file)
                found.setdefault(file.table, []).append(change)
    return {
        table: read_changes(spark, landing, table, files)
        for table, files in found.items()
        if not table.startswith("gd_")
    }
