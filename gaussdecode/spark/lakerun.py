"""One apply into tables that Delta Lake or Iceberg keep: the current state, merged.

The log is planned, read and merged as for `run`; what comes out is staged as Parquet and
goes into each table in one commit, which carries the number of the entry. Changes of rows go
in by MERGE; a table that was emptied, snapshotted, or whose rows are told apart anew is
replaced whole. Before a commit a record is kept of what the table will be at that number, so
that the number in the table is all that a later apply needs.
"""

import dataclasses
import functools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812 - the same

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.model.words import counted
from gaussdecode.spark import reduce, tasks
from gaussdecode.spark.catalog import check_apart
from gaussdecode.spark.changelog import ChangelogTask, write_changelog
from gaussdecode.spark.datacheck import (
    Checker,
    Rows,
    held_rows,
    rows_beside,
    rows_since,
    without,
)
from gaussdecode.spark.engine import Engine, LocalEngine, SparkEngine
from gaussdecode.spark.events import ACTION, KEY, PUT, REMOVE, closed_schema, state_schema
from gaussdecode.spark.failpoint import Step, reach
from gaussdecode.spark.frames import read_parquet, read_versions
from gaussdecode.spark.lake import open_lake
from gaussdecode.spark.lakechangelog import CHANGELOG, landed_changes, publish_changelog
from gaussdecode.spark.lakehistory import HISTORY, Versions, open_versions, publish
from gaussdecode.spark.lakepositions import publish_positions
from gaussdecode.spark.laketable import LakeTable, Merge, named_back
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.layout import PLAIN, Layout, comment, layouts_by_directory
from gaussdecode.spark.place import Place, remove_tree, whole
from gaussdecode.spark.plan import Applied, Era, Plan
from gaussdecode.spark.run import Options, Progress, Run, Work
from gaussdecode.spark.schema import TableSchema, renamed_columns
from gaussdecode.spark.sqltext import quoted
from gaussdecode.spark.staging import write_rows
from gaussdecode.spark.store import COMMITS, LOGGED, STAGING, DatabaseVersion, StateFile, Target
from gaussdecode.spark.tasks import Job, MapTask

_SMALL_BYTES: Final = 8 << 20
"""Changes of so many bytes are reduced in less time than it takes to start a task."""


@dataclasses.dataclass(frozen=True, slots=True)
class Staged:
    """What became of the rows of a table, as files.

    Attributes:
        files: staged.
        closed: files of versions of rows that ended.
        unsent: columns whose values some rows lack.
        bounds: between which values of the key the rows are.
        values: of the key, in these rows.
        is_exact: rows are the same where the columns of the key are.
    """

    files: list[StateFile]
    closed: list[StateFile]
    unsent: frozenset[str]
    bounds: reduce.Bounds
    values: reduce.Values
    is_exact: bool


@dataclasses.dataclass(slots=True)
class Prepared:
    """A table before its commit.

    Attributes:
        work: the table.
        held: where it is kept.
        schema: of its rows.
        rows: staged.
        merge: how they are merged; None where they replace all there is.
        said: what is done, for people.
        versions: for the history; None without one.
    """

    work: Work
    held: LakeTable
    schema: TableSchema
    rows: DataFrame
    merge: Merge | None
    said: str
    versions: Versions | None = None


class LakeRun(Run):
    """One apply; what it stages is gone afterwards."""

    def __init__(
        self,
        engine: SparkEngine,
        landing: Landing,
        store: Target,
        options: Options,
        progress: Progress,
    ) -> None:
        super().__init__(engine, landing, store, options, progress)
        self.spark = engine.session
        self.lake = open_lake(self.spark, store)
        self.history_from: dict[str, int] = {}
        self.wanted = layouts_by_directory(options.layouts or {}, landing.find_table)
        self.layouts: dict[str, Layout] = {}
        self.quarantine: dict[str, tuple[StateFile, ...]] = {}  # with whole paths
        if not store.is_shared:
            remove_tree(store.root / STAGING)  # of a run that was killed; on a store vacuum does it
        self.staging = store.root / STAGING / self.token

    # --- where tables are --------------------------------------------------------------------

    def _applied(self) -> dict[str, Applied]:
        """How far each table says it is; the database's version may say more."""
        found: dict[str, Applied] = {}
        known = {} if self.before is None else self.before.tables
        for table in self.store.tables():
            n = self.lake.table(table).position()
            if n is None:
                if table in known:
                    raise LandingError(f"{self.store.root}: table {table} is gone; restore it")
                continue
            record = self.store.record(table, n)
            if self.before is not None and table in known:
                self._check_not_set_back(table, n)
                n = n if table in self.before.stopped else max(n, self.before.n)
            self.quarantine[table] = tuple(
                dataclasses.replace(file, path=whole(self.store.table_root(table) / file.path))
                for file in map(_file_of, record.get("quarantine", ()))
            )
            if "layout" in record:
                self.layouts[table] = Layout.from_record(record["layout"])
            if "history_from" in record:
                self.history_from[table] = record["history_from"]
            ignore = record["ignore_through"]
            found[table] = Applied(
                n, self.store.schema(table, record["schema_id"]), ignore and tuple(ignore)
            )
        return found

    def _check_not_set_back(self, table: str, n: int) -> None:
        """Commits up to the database's entry were seen to succeed: the last is still there."""
        assert self.before is not None
        kept = self.store.records(table)
        expected = max((k for k in kept if k <= self.before.n), default=n)
        if n < expected:
            raise LandingError(
                f"{self.store.root}: table {table} is at entry {n} and was at {expected}; it was "
                "set back to an older version. Restore the newer one, or begin a new target"
            )

    def _check_not_overtaken(self, one: Prepared) -> None:
        """On a store no lock holds, and Iceberg takes older changes after newer ones."""
        n = one.held.position() if self.store.is_shared else None
        if n is not None and n > one.work.after:
            raise LandingError(
                f"{self.store.root}: {one.work.table} was committed by another writer at the same time; "
                "nothing was changed by this one, run it again"
            )

    def _versions(self, tables: Collection[str]) -> dict[str, int]:
        opened = {name: self.lake.table(name) for name in tables}
        return {n: t.version() for n, t in opened.items() if t.is_there()}

    # --- one table ---------------------------------------------------------------------------

    def _apply_tables(self, plan: Plan, applied: Mapping[str, Applied]) -> None:
        if self.store.catalog:
            beside = HISTORY if self._is_history_kept() else ""
            check_apart(self.store.catalog, {*applied, *plan.tables}, beside)
            if self._changelog_by(None):
                check_apart(self.store.catalog, {*applied, *plan.tables}, CHANGELOG)
        self.progress(f"entry {plan.to}: changes of {counted(len(plan.tables), 'table')}")
        prepared, works = [], list[Work]()
        for table in sorted(name for name, planned in plan.tables.items() if planned.eras):
            work = self._work(plan, table, applied.get(table, Applied()))
            works.append(work)
            self._lay_out(work)
            held = self.lake.table(table)
            prepare = self._merged if self._can_merge(work, held) else self._replaced
            prepared.append(prepare(work, held))
        self._log_lake_changes(works)  # not before all tests of data have passed
        for one in prepared:
            if one is not None:
                self._publish(one)
        self._count_unmatched(works)

    def _lay_out(self, work: Work) -> None:
        """See that a table is, or can be, laid out as it is wanted.

        Raises:
            ConfigError: it cannot.
        """
        table, wanted = work.table, self.wanted.get(work.table)
        if wanted is None:
            return
        schema = work.eras[-1].schema
        if work.schema is not None and wanted != self.layouts.get(table, PLAIN):
            raise ConfigError(
                f"{schema.title} was made with another layout, which it keeps: leave out --partition-by and "
                "--cluster-by for it, or begin a new target"
            )
        if work.schema is None:
            wanted.check(schema.title, schema.names, self.store.format)
            self.layouts[table] = wanted

    def _can_merge(self, work: Work, held: LakeTable) -> bool:
        """Whether rows keep their identity, and columns stay or are added."""
        old, era = work.schema, work.eras[0]
        if old is None or len(work.eras) > 1 or era.resets:
            return False
        if old.key_shape() != era.schema.key_shape():
            return False
        renamed = renamed_columns(old, era.schema)
        if renamed is None:
            return False
        # A killed apply may have added or renamed columns to a newer version than its record says.
        present = [name for name in held.read().columns if name not in _ours(old)]
        names = {renamed.get(name, name) for name in present}
        return names <= set(era.schema.names) and len(names) == len(present)

    def _between(self, table: str, n: int, of: str = COMMITS) -> tuple[TableSchema, ...]:
        """Schemas that killed applies were about to bring a table to from an entry."""
        later = [k for k in self.store.records(table, of) if k > n]
        return tuple(
            self.store.schema(table, self.store.record(table, k, of)["schema_id"]) for k in later
        )

    def _merged(self, work: Work, held: LakeTable) -> Prepared | None:
        era, out = work.eras[0], self.quarantine.get(work.table, ())
        job = self._lake_job(work, 0, out)
        with_history = self._begin_history(work, held)
        needs_rows = not era.schema.key or era.may_move_unsent or with_history
        if needs_rows:
            job = self._lake_job(work, 0, (*self._stage_touched(work, held, job), *out))
        changes = self._reduce(work, job, era, work.after)
        is_checked = bool(out or self.tests.get(work.table))
        if is_checked and changes.unsent and not needs_rows:  # tests ask for whole rows
            job = self._lake_job(work, 0, (*self._stage_touched(work, held, job), *out))
            changes = self._reduce(work, job, era, work.after)
        if not changes.files:
            return None
        rows = self._staged(work, era.schema, changes.files)
        versions = None
        if with_history:
            begun = rows.where((F.col(ACTION) == PUT) & (F.col("gd_n") > work.after))
            versions = self._versions_of(work, era.schema, begun, changes)
        on: tuple[str, ...] = (KEY,) if era.schema.key else (KEY, *reduce.identity(era.schema))
        if is_checked:
            rows = self._checked_changes(work, era.schema, rows, held, on)
        said = f"{counted(sum(file.rows for file in changes.files), 'row')} merged"
        if changes.is_exact:  # columns that whoever clusters the table clusters by
            on = era.schema.key
        merge = Merge(rows, on, changes.unsent, changes.bounds, changes.values)
        return Prepared(work, held, era.schema, rows, merge, said, versions)

    def _replaced(self, work: Work, held: LakeTable) -> Prepared:
        held.position()  # refuses a table of somebody else's
        base: tuple[StateFile, ...] = ()
        out = self.quarantine.get(work.table, ())
        with_history = self._begin_history(work, held)
        # Without a key, what removals before the reset find is counted.
        is_emptied = bool(work.eras[0].resets and work.eras[0].schema.key)
        if work.schema is None or (is_emptied and not with_history):
            out = ()
        else:
            base = (*self._stage_rows(work, held.read(), work.schema), *out)
        closed: list[StateFile] = []
        for number, era in enumerate(work.eras):
            staged = self._reduce(work, self._lake_job(work, number, base), era, None)
            base, work.schema = tuple(staged.files), era.schema
            closed += staged.closed
        schema = work.eras[-1].schema
        rows = self._staged(work, schema, base).drop(ACTION)
        versions = None
        if with_history:
            begun = rows.where(F.col("gd_n") > work.after)
            ended = Staged([], closed, frozenset(), {}, {}, is_exact=False)
            versions = self._versions_of(work, schema, begun, ended)
        if out or self.tests.get(work.table):
            rows = self._checked_rows(work, schema, rows, out)
        said = f"{counted(sum(file.rows for file in base), 'row')}, all anew"
        return Prepared(work, held, schema, rows, None, said, versions)

    def _publish(self, one: Prepared) -> None:
        """Commit a table; the record of what it will be comes first."""
        work = one.work
        self._check_not_overtaken(one)
        reach(Step.LAKE_STAGED)
        record: dict[str, Any] = {
            "schema_id": one.schema.schema_id,
            "ignore_through": work.ignore_through,
        }
        if work.quarantine:
            record["quarantine"] = list(map(dataclasses.asdict, work.quarantine))
        if work.history_from is not None:
            record["history_from"] = work.history_from
        layout = self.layouts.get(work.table, PLAIN).among(one.schema.names)
        if layout != PLAIN:
            record["layout"] = layout.record()
        self.store.keep_record(work.table, work.to, record)
        if one.merge is not None:
            assert work.schema is not None
            one.held.rename_columns(renamed_columns(work.schema, one.schema) or {})
            ours = {KEY, ACTION}
            one.held.add_columns([f for f in one.rows.schema.fields if f.name not in ours])
        if one.versions is not None:
            past = self.lake.table(work.table, HISTORY)
            scratch = self.staging / work.table / HISTORY
            publish(self.spark, past, one.versions, work.to, scratch)
            reach(Step.LAKE_HISTORY)
        if one.merge is not None:
            one.held.merge(one.merge, work.to)
        else:
            says = comment(one.schema, self.landing)
            one.held.replace(one.rows, work.to, dataclasses.replace(layout, comment=says))
        reach(Step.LAKE_COMMITTED)
        self.summary.tables += 1
        self.progress(f"{work.table}: entry {work.to}, {one.said}")
        remove_tree(self.staging / work.table)

    # --- changelog -----------------------------------------------------------------------------

    def _log_lake_changes(self, works: Sequence[Work]) -> None:
        """Append the changes of tables to their changelogs."""
        for work in works:
            logged = self.store.records(work.table, LOGGED)
            known = self.store.record(work.table, logged[-1], LOGGED) if logged else {}
            by = str(known.get("by") or self._changelog_by(None))
            if not by or (not logged and work.schema is not None and not self.options.changelog):
                continue
            root, schema = self.staging / work.table, work.eras[-1].schema
            changes = [*work.passed, *(file for era in work.eras for file in era.files)]
            staged = [
                ChangelogTask(0, self.landing.root, root, part, by, self.token)
                for part in self._portions(changes)
            ]
            is_small = sum(change.file.bytes for change in changes) <= _SMALL_BYTES
            engine = LocalEngine() if is_small else self.engine
            texts = engine.each(staged, write_changelog)
            files = [StateFile(**json.loads(text)[1]) for text in texts]
            rows = landed_changes(self.spark, self.store, work.table, schema, files, root, by)
            held = self.lake.table(work.table, CHANGELOG)
            at = held.position()
            old = None
            if at is not None:
                record = self.store.record(work.table, at, LOGGED)
                old = self.store.schema(work.table, record["schema_id"])
            record = {"schema_id": schema.schema_id, "by": by}
            self.store.keep_record(work.table, work.to, record, LOGGED)
            between = () if at is None else self._between(work.table, at, LOGGED)
            publish_changelog(held, rows, old, schema, between, work.to, by)
            reach(Step.LAKE_LOGGED)

    # --- history -------------------------------------------------------------------------------

    def _is_history_kept(self) -> bool:
        return self.options.history or (self.before is not None and self.before.history)

    def _begin_history(self, work: Work, held: LakeTable) -> bool:
        """Whether a table has a history; one that begins with rows begins with these."""
        known = self.history_from.get(work.table)
        if known is None and not self._is_history_kept():
            return False
        work.history_from = work.after if known is None else known
        past = self.lake.table(work.table, HISTORY)
        if past.position() is None and work.schema is not None:
            if known is not None:
                raise LandingError(
                    f"{self.store.root}: history of {work.table} is gone; restore it"
                )
            rows, out = held.read(), self.quarantine.get(work.table, ())
            rows = named_back(rows, work.schema, self._between(work.table, work.after))
            if out:
                names = map(quoted, rows.columns)
                rows = rows.unionByName(self._held_rows(work, work.schema, out).select(*names))
            past.replace(open_versions(rows), work.after)
        return True

    def _versions_of(
        self,
        work: Work,
        schema: TableSchema,
        begun: DataFrame,
        staged: Staged,
    ) -> Versions:
        """Versions of rows that began or ended."""
        root, closed = self.staging / work.table, staged.closed
        rows = open_versions(begun)
        if closed:
            schemas = {f.schema_id: self.store.schema(work.table, f.schema_id) for f in closed}
            paths: dict[str, list[Place]] = {}
            for file in closed:
                paths.setdefault(file.schema_id, []).append(root / file.path)
            schemas[schema.schema_id] = schema
            ours = {
                i: [f for f in closed_schema(of) if f.name not in of.names]
                for i, of in schemas.items()
            }
            ended = read_versions(self.spark, paths, schemas, schema, ours)
            rows = rows.unionByName(ended.select(*map(quoted, rows.columns)))
        at = self.lake.table(work.table, HISTORY).position()
        old, between = None, tuple[TableSchema, ...]()
        if at is not None:
            old = self.store.schema(work.table, self.store.record(work.table, at)["schema_id"])
            between = self._between(work.table, at)
        return Versions(rows, old, schema, between, staged.bounds, staged.values)

    # --- tests of data -------------------------------------------------------------------------

    def _checked_rows(
        self, work: Work, schema: TableSchema, rows: DataFrame, out: Sequence[StateFile]
    ) -> DataFrame:
        """Rows without those that go into quarantine; see `datacheck`."""
        held = self._held_rows(work, schema, out) if out else None
        found = self._find(work, schema, rows_since(rows, work.after, held))
        return without(rows, self._held_rows(work, schema, found)) if found else rows

    def _checked_changes(
        self,
        work: Work,
        schema: TableSchema,
        staged: DataFrame,
        table: LakeTable,
        on: Sequence[str],
    ) -> DataFrame:
        """Changes, in which a row that goes into quarantine is removed, and one that comes back put."""
        before = self.quarantine.get(work.table, ())
        held = self._held_rows(work, schema, before) if before else None
        puts = staged.where(F.col(ACTION) == PUT).drop(ACTION)
        gone = staged.select(*on)
        assert work.schema is not None
        there = table.read().withColumnsRenamed(renamed_columns(work.schema, schema) or {})
        rows = rows_beside(puts, there.join(gone, list(on), "left_anti"), held, gone, on)
        found = self._find(work, schema, rows)
        if not found and not before:
            return staged
        names, passed = staged.columns, rows.looked_at
        if found:
            passed = without(passed, self._held_rows(work, schema, found))
        kept = passed.withColumn(ACTION, F.lit(PUT).cast("tinyint")).select(*map(quoted, names))
        lost = staged.join(kept.select(*on), list(on), "left_anti").select(*map(quoted, names))
        return kept.unionByName(lost.withColumn(ACTION, F.lit(REMOVE).cast("tinyint")))

    def _find(self, work: Work, schema: TableSchema, rows: Rows) -> tuple[StateFile, ...]:
        root, tests = self.store.table_root(work.table), self.tests.get(work.table, ())
        found = Checker(self.spark, root, schema, tests, self.token).check(rows)
        self.summary.tests += found.failed
        work.quarantine = found.quarantine
        return found.quarantine

    def _held_rows(self, work: Work, schema: TableSchema, files: Sequence[StateFile]) -> DataFrame:
        schemas = {f.schema_id: self.store.schema(work.table, f.schema_id) for f in files}
        schemas[schema.schema_id] = schema
        return held_rows(self.spark, self.store.table_root(work.table), files, schemas, schema)

    def _commit_database(
        self, plan: Plan, applied: Mapping[str, Applied], only: Collection[str] | None
    ) -> None:
        super()._commit_database(plan, applied, only)
        for table in self.touched:
            n = self.stopped[table].n if table in self.stopped else plan.to
            self.store.forget_records(table, n)

    def _announce(self, version: DatabaseVersion) -> None:
        if self.store.catalog:
            publish_positions(self.spark, self.lake, self.store, version)

    # --- staging -----------------------------------------------------------------------------

    def _lake_job(self, work: Work, number: int, base: tuple[StateFile, ...]) -> Job:
        era = work.eras[number]
        schemas = dict(era.schemas)
        if work.schema is not None:
            schemas[work.schema.schema_id] = work.schema
        for file in base:
            if file.schema_id not in schemas:
                schemas[file.schema_id] = self.store.schema(work.table, file.schema_id)
        return Job(
            index=0,
            table_root=self.staging / work.table,
            schema=era.schema,
            schemas=schemas,
            order=self.landing.order,
            resets=tuple(era.resets),
            buckets=work.buckets,
            base=base,
            is_rebuilt=True,
            with_history=work.history_from is not None,
            token=f"{self.token}{number:02d}",
            sizes=self.options.sizes,
        )

    def _reduce(self, work: Work, job: Job, era: Era, after: int | None) -> Staged:
        """Stage what became of the rows: all of them, or those that changed after an entry."""
        resolved = self._resolve([job], [(job, era)]).get(job.index)
        planned = self._map_tasks(job, era.files)
        if resolved is not None:
            planned.append(MapTask(job, self.landing.root, resolved=tuple(resolved)))
        texts = self._engine_for(job, era).grouped(
            planned,
            functools.partial(tasks.map_events, is_resolved=resolved is not None),
            functools.partial(reduce.stage_group, jobs=[job], after=after),
            self._shares([(job, era)]),
        )
        results = [json.loads(text) for text in texts]
        files = [StateFile(**found["file"]) for found in results if found["file"] is not None]
        closed = [StateFile(**found["closed"]) for found in results if found["closed"] is not None]
        work.unmatched += sum(found["unmatched"] for found in results)
        self.summary.bytes_written += sum(file.bytes for file in files)
        unsent = {name for found in results for name in found["unsent"]}
        bounds = reduce.join_bounds(found["bounds"] for found in results)
        exact = all(found["is_exact"] for found in results)
        values = reduce.join_values([found["values"] for found in results])
        return Staged(files, closed, frozenset(unsent), bounds, values, exact)

    def _engine_for(self, job: Job, era: Era) -> Engine:
        """This process where the tasks would take longer to start than to run."""
        size = sum(c.file.bytes for c in era.files) + sum(file.bytes for file in job.base)
        return LocalEngine() if size <= _SMALL_BYTES else self.engine

    def _stage_touched(self, work: Work, held: LakeTable, job: Job) -> tuple[StateFile, ...]:
        """Stage the rows of a table that changes are about."""
        root = self.landing.root
        parts = self._portions(work.eras[0].files)
        looks = [MapTask(job, root, changes=part) for part in parts]
        paths = [json.loads(text) for text in self.engine.each(looks, reduce.stage_keys)]
        assert work.schema is not None
        if not paths:
            return ()
        of_keys = T.StructType([T.StructField(KEY, T.BinaryType())])
        keys = read_parquet(
            self.spark, of_keys, [job.table_root / path for path in paths]
        ).distinct()
        return self._stage_rows(work, held.read().join(keys, KEY, "left_semi"), work.schema)

    def _stage_rows(
        self, work: Work, rows: DataFrame, schema: TableSchema
    ) -> tuple[StateFile, ...]:
        """Stage rows of the table as base of a merge."""
        path = self.staging / work.table
        rows = named_back(rows, schema, self._between(work.table, work.after))
        names = [quoted(field.name) for field in state_schema(schema)]
        found = write_rows(
            rows.select(*names), schema.schema_id, state_schema(schema), path, "base/rows"
        )
        self.summary.bytes_read += sum(file.bytes for file in found)
        return found

    def _staged(self, work: Work, schema: TableSchema, files: Sequence[StateFile]) -> DataFrame:
        """Staged files as Spark reads them."""
        root = self.staging / work.table
        ours = [f for f in reduce.staged_schema(schema) if f.name not in schema.names]
        paths = {schema.schema_id: [root / file.path for file in files]} if files else {}
        schemas = {schema.schema_id: schema}
        return read_versions(self.spark, paths, schemas, schema, {schema.schema_id: ours})

    def _sweep(self) -> None:
        """Remove what is staged; what no record names of the quarantine is for vacuum."""
        remove_tree(self.staging)


def _file_of(record: Mapping[str, Any]) -> StateFile:  # Any: JSON
    return StateFile(**record)


def _ours(schema: TableSchema) -> set[str]:
    return {KEY, *(f.name for f in state_schema(schema) if f.name not in schema.names)}
