"""Compare a target with its source, table by table, at one exact position.

The source's view is taken after the target's version, so its position is never earlier. Changes that
landed between the two are laid over the target's rows. A table that is altered in between is tried
again in a newer view of the source.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gaussdecode.errors import ConfigError
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.exposition import label_value
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import split_title, table_directory
from gaussdecode.model.words import counted
from gaussdecode.operations.compare.source_sums import PgSums, SourceColumn, SourceSums, SourceTable
from gaussdecode.operations.compare.source_sums_gaussdb import GaussSums
from gaussdecode.operations.landing_files import opened
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.held import Held, Server, hold
from gaussdecode.source.export import OrderError, Spelling, TableChangedError
from gaussdecode.source.quoting import identifier, literal
from gaussdecode.spark.catalogs.announce import differences as differences_of
from gaussdecode.spark.log.landing import Landing, when_landed
from gaussdecode.spark.log.masks import columns_of
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.maintain.checksums import (
    Difference,
    LakeTable,
    MovingError,
    Shape,
    Stored,
    StoredFiles,
    differences,
    different_ranges,
    overlay,
)
from gaussdecode.spark.merge.engine import Engine
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.store import Target

_ATTEMPTS: Final = 3
_NO_TABLE: Final = (
    "the source has no such table, and here it has {rows}: if it was dropped, gaussdecode snapshot CONFIG "
    "--table {table} --dropped, then apply"
)
_RENAMED: Final = (
    "the source calls it {now} now{other}: apply with --on-ddl rename-table=apply, and verify again. If it shall stay "
    "under the old name: gaussdecode snapshot CONFIG --table {table}{option}, then apply"
)
_ROWS_PER_RANGE: Final = 2000  # arbitrary: what is fetched for each range that differs
_MAX_DIGITS: Final = 5  # a million ranges
_MAX_RANGES: Final = 500  # looked into row by row; arbitrary
_MAX_KEYS: Final = 1000  # in one condition; arbitrary
_LITERAL: Final = ("int", "string", "date", "timestamp", "decimal128", "bool")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """Result for one table.

    Attributes:
        table: ``schema.name``.
        rows: number of rows in the source.
        target_rows: number of rows in the target, at the same position.
        ranges: number of ranges compared.
        different_ranges: number of ranges with different sums.
        differences: differing rows of the first such ranges, by key.
        is_more: whether other ranges differ too and were not examined.
        not_compared: columns that only one side has, or that are masked.
        why_not: reason why the table could not be compared; None if it was.
        repair: request made to the daemon; None for none.
    """

    table: str
    rows: int = 0
    target_rows: int = 0
    ranges: int = 0
    different_ranges: int = 0
    differences: tuple[Difference, ...] = ()
    is_more: bool = False
    not_compared: tuple[str, ...] = ()
    why_not: str | None = None
    repair: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """Result for all tables.

    Attributes:
        lsn: position of the last snapshot of the source.
        n: entry of the target's version.
        tables: results by table.
    """

    lsn: Lsn
    n: int
    tables: tuple[TableResult, ...]

    @property
    def is_equal(self) -> bool:
        """Whether every table was compared and none differs."""
        return not any(of.different_ranges or of.why_not for of in self.tables)

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make a record for JSON."""
        tables = [dataclasses.asdict(of) for of in self.tables]
        return {"lsn": str(self.lsn), "n": self.n, "is_equal": self.is_equal, "tables": tables}

    def metrics_text(self, target: Place) -> str:
        """The result in Prometheus' text format, for node_exporter's textfile collector."""
        label = label_value(str(target))
        lines = [
            "# TYPE gaussdecode_spark_verified_timestamp_seconds gauge",
            f"gaussdecode_spark_verified_timestamp_seconds{{target={label}}} {time.time():.0f}",
            "# TYPE gaussdecode_spark_verified_lsn gauge",
            f"gaussdecode_spark_verified_lsn{{target={label}}} {int(self.lsn)}",
            "# TYPE gaussdecode_spark_verify_different_ranges gauge",
        ]
        lines += [
            f"gaussdecode_spark_verify_different_ranges{{target={label},"
            f"table={label_value(of.table)}}} {-1 if of.why_not else of.different_ranges}"
            for of in self.tables
        ]
        return "\n".join(lines) + "\n"


class _Since(NamedTuple):
    """Changes that landed after the target's version.

    Attributes:
        landing: the landing.
        entries: entries in order.
        until: epoch and LSN of the source's snapshot.
    """

    landing: Landing
    entries: Sequence[CommitEntry]
    until: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Compares a target with its source.

    Attributes:
        engine: engine for the target's rows.
        root: root of the landing.
        target: directory or URL.
        server: the source.
        config: the daemon's configuration; None for PostgreSQL by connection string.
        wait: longest wait for transactions of the source, and for the landing to reach the
            position, in seconds.
        progress: called with a sentence for each step.
    """

    engine: Engine
    root: Place
    target: Place
    server: Server
    config: Config | None = None
    wait: float = 60.0
    progress: Callable[[str], None] = lambda _: None

    def run(self, tables: Collection[str] | None = None) -> Result:
        """Compare tables.

        Args:
            tables: ``schema.name`` of wanted tables; None for all of the target.

        Raises:
            ConfigError: there is no target, or this session cannot read it.
            LandingError: the landing did not reach the source's position in time, or is damaged.
            SourceError: the server failed.
        """
        store = Target(self.target)
        wanted = None if tables is None else [store.find_table(name) for name in tables]
        done: dict[str, TableResult] = {}
        attempt = 0
        while True:
            attempt += 1
            database = store.database()
            if database is None:
                raise ConfigError(f"{self.target} has no version yet: apply to it first")
            left = [table for table in wanted or store.living(database) if table not in done]
            lsn, found, moved = self._attempt(database, left)
            done |= found
            if attempt == _ATTEMPTS:
                done |= {
                    table: TableResult(
                        table=store.schema_at(database, table).title,
                        why_not=f"{why}; apply, and verify again",
                    )
                    for table, why in moved.items()
                }
            if not moved or attempt == _ATTEMPTS:
                return Result(lsn, database.n, tuple(done[table] for table in sorted(done)))

    def _attempt(
        self, database: DatabaseVersion, tables: Sequence[str]
    ) -> tuple[Lsn, dict[str, TableResult], dict[str, str]]:
        """Compare tables in one view; return its position, and the reasons why some were not comparable."""
        done: dict[str, TableResult] = {}
        moved: dict[str, str] = {}
        with self._held() as held, self._sums(held) as source:
            before = Landing(self.root)
            Target(self.target).check_landing(before)
            boundary = before.position(before.entry(database.n)).lsn
            store = Target(self.target)
            names = {table: _landed(store.schema_at(database, table)) for table in tables}
            try:
                lsn = Lsn(held.find(database.n, boundary, set(names.values())))
            except (OrderError, TableChangedError) as error:
                return Lsn(0), {}, dict.fromkeys(tables, error.reason)
            self.progress(f"source at {lsn}, target at entry {database.n}")
            landing = when_landed(self.root, lsn, self.wait)
            entries = list(landing.entries(database.n, landing.last_n))
            epoch = landing.position(entries[-1]).epoch
            elsewhere = differences_of(store, database, tables) if store.format == ICEBERG else {}
            since = _Since(landing, entries[1:], (epoch, int(lsn)))
            for table in tables:
                try:
                    done[table] = self._compare(
                        source, database, since, table, elsewhere.get(table)
                    )
                except MovingError as error:
                    moved[table] = str(error)
            held.reach()
            for table in list(done):
                try:
                    held.confirm(names[table], database.n, int(lsn))
                except (OrderError, TableChangedError) as error:
                    moved[table] = error.reason
                    del done[table]
        return lsn, done, moved

    @contextlib.contextmanager
    def _held(self) -> Iterator[Held]:
        try:
            with hold(self.server, self.root, self.wait) as held:
                yield held
        except ConfigError as error:
            if self.config is not None:
                raise
            raise ConfigError(in_words_of_the_command(str(error))) from None

    def _sums(self, held: Held) -> SourceSums:
        if self.config is None or self.server.kind is SourceKind.POSTGRESQL:
            return PgSums(self.server.address, held.name)
        return GaussSums(self.config, held)

    def _compare(
        self, source: SourceSums, database: DatabaseVersion, since: _Since, table: str,
        elsewhere: Sequence[str] | None,
    ) -> TableResult:  # fmt: skip
        """Compare one table.

        Raises:
            MovingError: the table was emptied, altered or read anew meanwhile.
        """
        store = Target(self.target)
        schema = store.schema_at(database, table)
        why = _why_not(store, since.landing, database, table, schema, elsewhere)
        if why is not None:
            return TableResult(table=schema.title, why_not=why)
        with source.table(*split_title(schema.title)) as here:
            is_its_own = not schema.oid or (here is not None and here.oid == schema.oid)
            now = None if is_its_own else source.title_of(schema.oid)
            if here is None:
                return self._missing(store, database, since, table, schema, now)
            if now is not None:
                return TableResult(table=schema.title, why_not=_renamed(schema, now, is_taken=True))
            masked = self._masked(store, table, schema)
            name = _landed(schema)
            if masked & set(schema.key):
                why = "its key is masked, so nothing tells which rows are the same"
                return TableResult(table=schema.title, why_not=why)
            columns, skipped = _columns(schema, here.columns, masked)
            missing = set(schema.key) - {column.landed for column in columns}
            if missing:
                why = f"the source has no column {min(missing)!r} of its key"
                return TableResult(table=schema.title, why_not=why)
            shape = Shape(tuple(column.landed for column in columns), schema.key)
            laid = overlay(since.landing, since.entries, name, schema, shape, since.until)
            stored = self._stored(store, database, table)
            digits = _digits(stored.count())
            lake = LakeTable(stored, shape, laid)
            return self._compared(source, here, columns, lake, schema, digits, skipped)

    def _masked(self, store: Target, table: str, schema: TableSchema) -> set[str]:
        """Columns that the target masks."""
        kept, landing = store.masks(table), Landing(self.root)
        if kept is None:
            return set()
        name = _landed(schema)
        landed = {i: landing.schema_record(name, i) for i in landing.schema_ids(name)}
        records = {**store.schema_records(table), **landed}
        return {
            column
            for part in schema.parts or (schema,)
            for column in columns_of(kept["masks"], part.schema_id, records)
        }

    def _missing(
        self,
        store: Target,
        database: DatabaseVersion,
        since: _Since,
        table: str,
        schema: TableSchema,
        now: str | None,
    ) -> TableResult:
        """Compare a table of a name that the source does not have: it must have no rows in the target.

        `now` is what the source calls it, if it was renamed.
        """
        shape = Shape(schema.names, schema.key)
        old = (
            schema if now is None else dataclasses.replace(schema, oid=0)
        )  # not rows of the new name
        laid = overlay(since.landing, since.entries, _landed(schema), old, shape, since.until)
        sums = LakeTable(self._stored(store, database, table), shape, laid).sums(1)
        rows = sum(count for count, _ in sums.values())
        why = None if not rows else _NO_TABLE.format(rows=counted(rows, "row"), table=schema.title)
        if rows and now is not None:
            why = _renamed(schema, now, is_taken=False)
        return TableResult(table=schema.title, target_rows=rows, why_not=why)

    def _stored(self, store: Target, database: DatabaseVersion, table: str) -> Stored:
        version = store.version(table, database.tables[table])
        return StoredFiles(self.engine, store, table, version)

    def _compared(
        self,
        source: SourceSums,
        here: SourceTable,
        columns: Sequence[SourceColumn],
        lake: LakeTable,
        schema: TableSchema,
        digits: int,
        skipped: tuple[str, ...],
    ) -> TableResult:
        ours, theirs = lake.sums(digits), source.sums(here.sql, columns, schema.key, digits)
        found = different_ranges(theirs, ours)
        looked = found[:_MAX_RANGES]
        rows: Sequence[Difference] = ()
        if looked:
            rows = differences(
                source.rows(here.sql, columns, schema.key, looked), lake.rows(looked)
            )
        self.progress(f"{schema.title}: {len(found)} of {len({*ours, *theirs})} ranges differ")
        return TableResult(
            table=schema.title,
            rows=sum(count for count, _ in theirs.values()),
            target_rows=sum(count for count, _ in ours.values()),
            ranges=len({*ours, *theirs}),
            different_ranges=len(found),
            differences=tuple(rows),
            is_more=len(found) > len(looked),
            not_compared=skipped,
        )

    def ask_for_repair(self, result: Result) -> Result:
        """Ask the daemon for snapshots of differing rows, or of the whole table if needed."""
        assert isinstance(self.root, Path)  # the daemon is asked in its own directory
        with opened(self.root) as disk:
            store = SnapshotStore(disk)
            tables = [
                self._repaired(store, of) if of.different_ranges else of for of in result.tables
            ]
        return dataclasses.replace(result, tables=tuple(tables))

    def _repaired(self, store: SnapshotStore, of: TableResult) -> TableResult:
        target = Target(self.target)
        database, table = target.database(), target.find_table(of.table)
        assert database is not None
        where = condition(target.schema_at(database, table), of)
        store.ask({"table": of.table, "where": where})
        text = (
            "a snapshot of all rows"
            if where is None
            else f"a snapshot of {len(of.differences)} rows"
        )
        return dataclasses.replace(of, repair=text)


def in_words_of_the_command(text: str) -> str:
    """Word an error of the connection string for a command line instead of a configuration."""
    text = text.replace("set source.allow-insecure: true", "give --allow-insecure")
    return text.replace("source.dsn: ", "--dsn: ")


def condition(schema: TableSchema, of: TableResult) -> str | None:
    """SQL condition for the rows that differ; None if only a snapshot of the whole table helps.

    A snapshot with a condition removes no rows, so a surplus row needs the whole table.
    """
    types = {column.name: column.type for column in schema.columns}
    is_spelled = all(types[name].startswith(_LITERAL) for name in schema.key)
    kinds = {row.kind for row in of.differences}
    if not schema.key or "surplus" in kinds or of.is_more or not is_spelled:
        return None
    if len(of.differences) > _MAX_KEYS:
        return None
    true = {column.name: column.true_name for column in schema.columns}
    keys = [json.loads(row.key) for row in of.differences]
    names = ", ".join(identifier(true[name]) for name in schema.key)
    values = ", ".join(
        "(" + ", ".join(literal(key[name]) for name in schema.key) + ")" for key in keys
    )
    return f"({names}) IN ({values})"


def _why_not(
    store: Target, landing: Landing, database: DatabaseVersion, table: str, schema: TableSchema,
    elsewhere: Sequence[str] | None,
) -> str | None:  # fmt: skip
    stop = database.stopped.get(table)
    if stop is not None:
        return f"it stands still at entry {stop['n']}: {stop['why']}"
    for name, n in database.quarantined.items():
        said = landing.entry(n).extra if n >= landing.first_n else {}  # under a name of then
        oid = said.get("oid") or database.known.get(name, (0, 0))[1]
        is_it = name == _landed(schema) and not _is_anothers(store, database, name, table, oid)
        if is_it or (schema.oid and oid == schema.oid):
            return f"it is in quarantine since entry {n}"
    if elsewhere:
        return f"in Iceberg {'; '.join(elsewhere)}; gaussdecode spark vacuum TARGET sets it right"
    return None


def _is_anothers(store: Target, database: DatabaseVersion, name: str, table: str, oid: int) -> bool:
    """Whether a quarantine is for another directory, and no row of the name was held back."""
    held = database.quarantined if database.withheld is None else database.withheld
    if not oid or name in held:
        return False
    others = database.tables.keys() - {table}
    return any(store.schema_at(database, other).oid == oid for other in others)


def _landed(schema: TableSchema) -> str:
    """The directory of the landing that has the rows of a table under its name."""
    return table_directory(*split_title(schema.title))


def _renamed(schema: TableSchema, now: str, *, is_taken: bool) -> str:
    other, option = (", and another table has its name", "") if is_taken else ("", " --dropped")
    return _RENAMED.format(now=now, other=other, table=schema.title, option=option)


def _columns(
    schema: TableSchema, here: Mapping[str, Spelling], masked: Collection[str]
) -> tuple[list[SourceColumn], tuple[str, ...]]:
    """Columns that both sides have and show, and the others."""
    both = [
        SourceColumn(column.name, column.true_name, column.type, here[column.true_name])
        for column in schema.columns
        if column.true_name in here and column.name not in masked
    ]
    names = {column.true_name for column in schema.columns if column.name not in masked}
    return both, tuple(sorted(names ^ here.keys()))


def _digits(rows: int) -> int:
    """Number of hexadecimal digits of a range, for this number of rows."""
    digits = 1
    while rows >> (4 * digits) > _ROWS_PER_RANGE and digits < _MAX_DIGITS:
        digits += 1
    return digits


def report_lines(result: Result, limit: int) -> list[str]:
    """The report for people."""
    lines = []
    for of in result.tables:
        if of.why_not is not None:
            lines.append(f"{of.table}: not compared: {of.why_not}")
            continue
        verdict = "equal" if not of.different_ranges else f"{of.different_ranges} ranges differ"
        lines.append(f"{of.table}: {of.rows} rows at {result.lsn}, {of.ranges} ranges: {verdict}")
        lines += [f"  {row.kind} {row.key}" for row in of.differences[:limit]]
        if of.is_more or len(of.differences) > limit:
            lines.append("  and more, see --limit and --json")
        if of.not_compared:
            lines.append(f"  columns that only one side has: {', '.join(of.not_compared)}")
        if of.repair is not None:
            lines.append(f"  asked the daemon for {of.repair}; apply when it has landed")
    return lines
