"""Read the commit log as a Spark data source: ``spark.read.format("gaussdecode")`` and ``readStream``.

    spark.dataSource.register(GaussDecodeSource)
    spark.readStream.format("gaussdecode").option("table", "shop.orders").load(root)

Offsets are numbers of commit entries, so a micro-batch always ends between two entries, for all tables,
and has whole transactions. They name their landing (`gaussdecode.spark.log.offset`): if a new landing
was begun at the same path, the query stops. Rows are changes: of one table with its columns, or of all
tables in one form (`gaussdecode.spark.stream.rows`). Or they are landed files: in ``foreachBatch`` pass
those to `changes_of`, which reads the changes natively.

======================== =====================================================================
option                   is
======================== =====================================================================
``path``                 the landing's root, or the URL of its mirror
``table``                read only this table; rows have its columns
``rows``                 ``changes`` (default) or ``files``
``ddl``                  ``true``: without ``table``, a row for each DDL command too (default ``false``)
``startingOffset``       ``earliest`` (default: all that retention has left), ``latest``, or a number:
                         entries after it. ``41@ID`` refuses any other landing than the one with this id
``endingOffset``         last entry of a batch, in the same way; without it, the end of the log
``failOnDataLoss``       ``false`` continues after recorded gaps, tables in quarantine, suspect entries, and
                         entries that retention removed unread; ``true`` stops there (default)
``maxEntriesPerTrigger`` most entries in a micro-batch (arbitrary default 1000); before Spark 4.2
                         the first batch after a start takes all entries
``maxBytesPerTrigger``   add no further entry once the files of a micro-batch have this many bytes
======================== =====================================================================

With ``availableNow`` the query reads all entries that exist at its start, in several batches (in one,
before Spark 4.2). Spark has no metrics of Python sources; the query's progress shows how far the log
is ahead: ``latestOffset`` beside ``endOffset``.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile
from gaussdecode.spark.log.change_file import ChangeFile, replaces
from gaussdecode.spark.log.landing import Landing, data_kinds
from gaussdecode.spark.log.offset import Offset
from gaussdecode.spark.log.place import Given, place_of
from gaussdecode.spark.merge.plan import Doubt
from gaussdecode.spark.stream.changes import read_changes
from gaussdecode.spark.stream.rows import AllRows, TableRows

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Not asked for."""

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Never given."""


Json = dict[str, Any]  # Any: decoded JSON
SCHEMA: Final = (
    "n bigint, kind string, commit_time timestamp, epoch int, lsn bigint, table string, "
    "path string, schema_id string, rows bigint, bytes bigint, first_lsn bigint, "
    "last_lsn bigint, has_unchanged boolean, has_key_change boolean"
)
_DEFAULT_ENTRIES: Final = 1000
_TASK_FILES: Final = 10_000  # arbitrary; rows of files in one task
_ANEW: Final = "a new checkpoint location, and whatever it writes to begun anew as well"
_MOST_NAMED: Final = 10  # tables in an error; arbitrary
_GO_ON: Final = '.option("failOnDataLoss", "false")'
_BOOLEANS: Final = {"true": True, "false": False}
_KNOWN: Final = frozenset(
    name.lower()
    for name in (
        "path", "table", "rows", "ddl", "startingOffset", "endingOffset", "failOnDataLoss",
        "maxEntriesPerTrigger", "maxBytesPerTrigger",
    )
)  # fmt: skip


class Form(Protocol):
    """The form of a row."""

    def schema(self) -> T.StructType | str:
        """Schema for Spark."""

    def check(self, entry: CommitEntry) -> None:
        """Refuse an entry that rows of this form cannot show."""

    def parts(self, entries: Iterable[CommitEntry]) -> Iterator[Sequence[Any]]:
        """The input of each task; picklable. Any: as `read` takes it."""

    def read(self, parts: Sequence[Any], wanted: T.StructType) -> Iterator[Any]:
        """Rows, as tuples or in batches. Any: as Spark takes them."""


class FileRows:
    """Rows that each describe a landed file.

    Args:
        root: root of the landing.
        table: only this one; None for all.
    """

    def __init__(self, root: Given, table: str | None) -> None:
        self._landing = Landing(root)
        self._table = None if table is None else self._landing.find_table(table)

    def schema(self) -> str:
        """Schema for Spark."""
        return SCHEMA

    def check(self, entry: CommitEntry) -> None:
        """Accept any entry."""

    def parts(self, entries: Iterable[CommitEntry]) -> Iterator[Sequence[Any]]:
        """The rows themselves."""
        rows = [
            _row(self._landing, entry, file)
            for entry in entries
            for file in (entry.files if data_kinds(entry) else ())
            if self._table in {None, file.table}
        ]
        for first in range(0, len(rows), _TASK_FILES):
            yield rows[first : first + _TASK_FILES]

    def read(self, parts: Sequence[Any], wanted: T.StructType) -> Iterator[Any]:
        """Return the wanted columns."""
        names = [text.split()[0] for text in SCHEMA.split(", ")]
        chosen = [names.index(name) for name in wanted.names]
        for row in parts:
            yield tuple(row[index] for index in chosen)


class GaussDecodeSource(DataSource):
    """The Spark data source for a commit log."""

    _form: Form | None = None

    @classmethod
    def name(cls) -> str:
        """Name for ``format``."""
        return "gaussdecode"

    def schema(self) -> T.StructType | str:
        """Schema of the chosen form."""
        return self._known_form().schema()

    def _known_form(self) -> Form:
        """Made once, so that the reader knows the same columns as the schema."""
        if self._form is None:
            self._form = _Options(self.options).form()
        return self._form

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Read the log once."""
        return _Reader(_Options(self.options), self._known_form(), schema)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Read the log as it grows."""
        return _StreamReader(_Options(self.options), self._known_form(), schema)


class _Options:
    """Options as given; Spark puts their names in lower case."""

    def __init__(self, given: Any) -> None:  # Any: a mapping of Spark's
        options = {str(key).lower(): str(value) for key, value in given.items()}
        if "path" not in options:
            raise ConfigError('give the root of the landing: .option("path", "/var/lib/...")')
        unknown = sorted(set(options) - _KNOWN)
        if unknown:
            raise ConfigError(
                f"there is no option {unknown[0]!r}; there are: {', '.join(sorted(_KNOWN))}"
            )
        self.root = place_of(options["path"])
        self.table = options.get("table")
        self._rows = options.get("rows", "changes")
        if self._rows not in {"changes", "files"}:
            raise ConfigError(f"rows is {self._rows!r}, it can be changes or files")
        self._starting = options.get("startingoffset", "earliest")
        self._from: Offset | None = None
        if self._starting not in {"earliest", "latest"}:
            self._from = _offset(options, "startingOffset")
        self._ending = _offset(options, "endingOffset")
        self.max_entries = _number(options, "maxEntriesPerTrigger", 1, _DEFAULT_ENTRIES)
        self.max_bytes = _number(options, "maxBytesPerTrigger", 1, None)
        self._fails = _boolean(options, "failOnDataLoss", "true")
        self._with_ddl = _boolean(options, "ddl", "false")
        if self._with_ddl and (self.table is not None or self._rows == "files"):
            raise ConfigError(
                "ddl is true: rows of one table have its columns alone, and rows of files show gd_ddl anyway. Leave "
                "out the options table and rows"
            )

    def form(self) -> Form:
        """The chosen form of a row."""
        if self._rows == "files":
            return FileRows(self.root, self.table)
        if self.table is None:
            return AllRows(self.root, with_ddl=self._with_ddl)
        return TableRows(self.root, self.table)

    def start(self, landing: Landing) -> int:
        """Entry after which a query begins."""
        if self._from is not None:
            self._from.check_identity(landing, _ANEW)
            return self._from.n
        return landing.first_n - 1 if self._starting == "earliest" else landing.last_n

    def last(self, landing: Landing) -> int:
        """Entry that a batch ends with."""
        if self._ending is None:
            return landing.last_n
        self._ending.check_identity(landing, _ANEW)
        return min(landing.last_n, self._ending.n)

    def partitions(self, form: Form, first: int, last: int) -> list["_Task"]:
        """Cut a range of entries into tasks.

        Raises:
            LandingError: changes in it are missing, and failOnDataLoss is not false.
        """
        landing = Landing(self.root)
        begin = landing.first_n
        if first < begin and self._fails:
            raise LandingError(
                f"{self.root}: entries {first} to {begin - 1} were removed by retention before they were read; begin anew after a snapshot, or go on with {_GO_ON}"
            )
        directory = None if self.table is None else landing.find_table(self.table)
        entries = landing.entries(max(first, begin), last)
        tasks = [_Task(part) for part in form.parts(self._checked(form, entries, directory))]
        return tasks or [_Task(())]  # Spark reads a partition even where there is none

    def _checked(
        self, form: Form, entries: Iterable[CommitEntry], directory: str | None
    ) -> Iterator[CommitEntry]:
        for entry in entries:
            form.check(entry)
            loss = _loss(entry, directory) if self._fails else None
            if loss is not None:
                raise LandingError(f"{self.root}: entry {entry.n} {loss}, and go on with {_GO_ON}")
            yield entry

    def end(self, begin: int, last: int) -> int:
        """Last entry of the next micro-batch."""
        last = min(last, begin + self.max_entries)
        if self.max_bytes is None or last <= begin:
            return max(begin, last)
        landing, size = Landing(self.root), 0
        for entry in landing.entries(max(begin + 1, landing.first_n), last):
            size += sum(file.bytes for file in entry.files) if data_kinds(entry) else 0
            if size >= self.max_bytes:
                return entry.n
        return last


def _loss(entry: CommitEntry, directory: str | None) -> str | None:
    """Describe missing or doubtful changes of an entry, and the remedy.

    Args:
        entry: entry of any kind.
        directory: directory of the only table that is read; None for all.
    """
    if entry.kind is EntryKind.GAP:
        return (
            "is a gap, changes are missing (gaussdecode gaps says which); repair them by a snapshot"
        )
    named = entry.extra.get("tables", ())
    meant = [of for of in named if directory in (None, of)]
    if entry.kind is EntryKind.QUARANTINE and meant:
        return f"put {', '.join(named)} in quarantine: its changes are missing until a snapshot of it; wait for that"
    if entry.kind is not EntryKind.SUSPECT:
        return None
    if entry.extra.get("is_any_table", True):
        return (
            f"says that rows may be wrong: of any table, {entry.extra.get('text', '')}; read again those that differ "
            "from the source (gaussdecode snapshot CONFIG --table NAME)"
        )
    why = "; ".join(
        f"{table}: {Doubt.from_entry(entry, table).why}" for table in meant[:_MOST_NAMED]
    )
    more = f" and {len(meant) - _MOST_NAMED} more tables" if len(meant) > _MOST_NAMED else ""
    return (
        f"says that rows may be wrong: {why}{more}; read it again (gaussdecode snapshot CONFIG --table NAME)"
        if meant
        else None
    )


def _offset(options: dict[str, str], name: str) -> Offset | None:
    """An option with an entry number, and optionally the id of its landing: ``41@6f3a...``."""
    number, _, landing_id = options.get(name.lower(), "").partition("@")
    if not number:
        return None
    return Offset(_number({name.lower(): number}, name, -1, None), landing_id)


def _boolean(options: dict[str, str], name: str, default: str) -> bool:
    """An option that is true or false.

    Raises:
        ConfigError: it is another word.
    """
    word = options.get(name.lower(), default).lower()
    if word not in _BOOLEANS:
        raise ConfigError(f"{name} is {word!r}, it can be true or false")
    return _BOOLEANS[word]


def _number(options: dict[str, str], name: str, least: int, default: int | None) -> Any:  # Any: int
    """An option with a whole number.

    Raises:
        ConfigError: the text is not a whole number, or too small.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        words = "earliest, latest or " if name == "startingOffset" else ""
        raise ConfigError(f"{name} is {text!r}, it can be {words}a whole number from {least}")
    return number


def _row(landing: Landing, entry: CommitEntry, file: LandingFile) -> tuple[Any, ...]:
    where = landing.position(entry, file.source)
    return (
        entry.n,
        str(entry.kind),
        entry.commit_time,
        where.epoch,
        where.lsn,
        file.table,
        str(landing.root / file.path),
        file.schema_id,
        file.rows,
        file.bytes,
        file.first.lsn,
        file.last.lsn,
        file.has_unchanged,
        file.has_key_change,
    )


class _Task(InputPartition):
    """The input of one task; picklable.

    Args:
        parts: parts of the form.
    """

    def __init__(self, parts: Sequence[Any]) -> None:  # Any: as the form reads them
        super().__init__(parts)


class _Reader(DataSourceReader):
    """Reads all entries that exist now."""

    def __init__(self, options: _Options, form: Form, schema: T.StructType) -> None:
        self._options, self._form, self._schema = options, form, schema

    def partitions(self) -> list[_Task]:
        landing = Landing(self._options.root)
        first, last = self._options.start(landing) + 1, self._options.last(landing)
        return self._options.partitions(self._form, first, last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._form.read(partition.value, self._schema)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads entries after an offset, which is that of the last one; see `Offset`."""

    def __init__(self, options: _Options, form: Form, schema: T.StructType) -> None:
        self._options, self._form, self._schema = options, form, schema
        self._end: int | None = None  # of availableNow
        self._read: Offset | None = None  # what the batch before ended with
        self._has_begun = False

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        landing = Landing(self._options.root)
        return Offset.of(landing, self._options.start(landing)).to_record()

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: Json | None = None,
        limit: Any = None,  # Any: ReadLimit, which Spark 4.0 does not have
    ) -> Json:
        """End of the next batch; Spark before 4.2 passes neither its start nor a limit."""
        landing = Landing(self._options.root)
        # Spark before 4.2 plans the batch of the last run once more, before it asks for the first time.
        given = self._read if self._has_begun else None
        begin = given if start is None else Offset.from_record(start)
        self._has_begun = True
        if begin is not None:
            begin.check(landing, _ANEW)
        last = landing.last_n
        if self._end is not None:
            last = min(last, self._end)
        if begin is None or isinstance(limit, ReadAllAvailable):
            end = last if begin is None else max(begin.n, last)
        else:
            end = self._options.end(begin.n, last)
        return Offset.of(landing, end).to_record()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name; Any: ReadLimit
        return ReadMaxFiles(self._options.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._end = Landing(self._options.root).last_n

    def reportLatestOffset(self) -> Json:  # noqa: N802 - Spark's name
        landing = Landing(self._options.root)
        return Offset.of(landing, landing.last_n).to_record()

    def partitions(self, start: Json, end: Json) -> list[_Task]:
        first, self._read = Offset.from_record(start), Offset.from_record(end)
        landing = Landing(self._options.root)
        for offset in (first, self._read):
            offset.check(landing, _ANEW)
        return self._options.partitions(self._form, first.n + 1, self._read.n)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._form.read(partition.value, self._schema)


def changes_of(spark: SparkSession, root: Given, batch: DataFrame) -> dict[str, DataFrame]:
    """Read the changes in the files of a micro-batch.

    Args:
        spark: a running session.
        root: root of the landing.
        batch: rows of this source, as ``foreachBatch`` gets them.

    Returns:
        Changes by table directory, see `gaussdecode.spark.stream.changes.changes`.
    """
    landing = Landing(root)
    wanted = {(row["n"], row["path"]) for row in batch.select("n", "path").collect()}
    found: dict[str, list[ChangeFile]] = {}
    left = set(wanted)
    for n in sorted({number for number, _ in wanted if number <= landing.last_n}):
        entry = landing.entry(n)
        for file in entry.files:
            if (n, str(landing.root / file.path)) in wanted:
                left.discard((n, str(landing.root / file.path)))
                change = ChangeFile(n, n, replaces(entry, file.table), file)
                found.setdefault(file.table, []).append(change)
    if left:
        n, path = min(left)
        raise LandingError(
            f"{landing.root}: entry {n} names no file {path}: these rows are of another landing, or of a copy"
        )
    return {
        table: read_changes(spark, landing, table, files)
        for table, files in found.items()
        if not table.startswith("gd_")
    }
