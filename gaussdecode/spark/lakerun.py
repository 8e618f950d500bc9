"""One apply into tables that Iceberg keeps: the current state, merged.

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
from gaussdecode.spark.frames import as_version, read_parquet, read_versions
from gaussdecode.spark.icebergtable import IcebergTable, Merge, named_back
from gaussdecode.spark.lake import open_lake
from gaussdecode.spark.lakechangelog import CHANGELOG, landed_changes, publish_changelog
from gaussdecode.spark.lakehistory import HISTORY, Versions, open_versions, publish
from gaussdecode.spark.lakepositions import publish_positions
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.layout import PLAIN, Layout, comment, layouts_by_directory
from gaussdecode.spark.place import Place, remove_tree, whole
from gaussdecode.spark.plan import Applied, Era, Plan, TablePlan
from gaussdecode.spark.run import Options, Progress, Run, Work
from gaussdecode.spark.schema import SOURCE, TableSchema, match_columns, renamed_columns
from gaussdecode.spark.sources import record_of
from gaussdecode.spark.sqltext import quoted
from gaussdecode.spark.staging import write_rows
from gaussdecode.spark.statefile import StateFile
from gaussdecode.spark.store import COMMITS, LOGGED, STAGING, DatabaseVersion, Target
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
class Group:
    """A table, of whose rows those of each of several sources are merged by themselves.

    Attributes:
        work: of the table.
        schema: of its rows afterwards.
        parts: the works of the sources that have changes; of one source it is `work` itself.
        ignored: as of `Applied`, afterwards.
    """

    work: Work
    schema: TableSchema
    parts: list[Work]
    ignored: dict[str, tuple[int, ...]]


@dataclasses.dataclass(slots=True)
class Prepared:
    """A table before its commit.

    Attributes:
        work: the table.
        held: where it is kept.
        schema: of its rows.
        ignored: as of `Applied`.
        rows: staged.
        merge: how they are merged; None where they replace all there is.
        said: what is done, for people.
        versions: for the history; None without one.
    """

    work: Work
    held: IcebergTable
    schema: TableSchema
    ignored: dict[str, tuple[int, ...]]
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
            ignored = {source: tuple(of) for source, of in record.get("ignored", {}).items()}
            schema = self.store.schema(table, record["schema_id"])
            found[table] = Applied(n, schema, ignore and tuple(ignore), ignored=ignored)
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
        prepared, groups = [], list[Group]()
        for table, planned in sorted(plan.tables.items()):
            if not planned.changed:
                continue
            group = self._group(planned, applied.get(table, Applied()))
            groups.append(group)
            self._lay_out(group)
            held = self.lake.table(table)
            prepare = self._merged if self._can_merge(group, held) else self._replaced
            prepared.append(prepare(group, held))
        self._log_lake_changes(groups)  # not before all tests of data have passed
        for one in prepared:
            if one is not None:
                self._publish(one)
        self._count_unmatched([part for group in groups for part in group.parts])

    def _group(self, planned: TablePlan, state: Applied) -> Group:
        parts = [self._work(planned.table, planned, state, source) for source in planned.changed]
        if planned.schema is None:
            return Group(parts[0], parts[0].eras[-1].schema, parts, {})
        self.store.keep_schema(planned.table, planned.schema.schema_id, record_of(planned.schema))
        ignored = {
            source: part.ignore_through
            for source, part in planned.parts.items()
            if part.ignore_through is not None
        }
        work = dataclasses.replace(parts[0], schema=state.schema, source=None)
        return Group(work, planned.schema, parts, ignored)

    def _every_part(self, group: Group) -> list[Work]:
        """Its parts, and of each other source one without changes."""
        found = {part.source: part for part in group.parts}
        for schema in group.schema.parts:
            if schema.source not in found:
                era = Era(schema, {}, [], [])
                found[schema.source] = dataclasses.replace(
                    group.parts[0], source=schema.source, schema=schema, eras=[era], unmatched=0
                )
        return list(found.values())

    def _lay_out(self, group: Group) -> None:
        """See that a table is, or can be, laid out as it is wanted.

        Raises:
            ConfigError: it cannot.
        """
        work, schema = group.work, group.schema
        table, wanted = work.table, self.wanted.get(work.table)
        if wanted is None:
            return
        if work.schema is not None and wanted != self.layouts.get(table, PLAIN):
            raise ConfigError(
                f"{schema.title} was made with another layout, which it keeps: leave out --partition-by and "
                "--cluster-by for it, or begin a new target"
            )
        if work.schema is None:
            wanted.check(schema.title, {c.name: c.type for c in schema.columns}, self.store.format)
            self.layouts[table] = wanted

    def _can_merge(self, group: Group, held: IcebergTable) -> bool:
        """Whether rows keep their identity, and columns stay or are added."""
        old = group.work.schema
        if old is None or not all(map(_keeps_rows, group.parts)):
            return False
        renamed = renamed_columns(old, group.schema)
        if renamed is None:
            return False
        # A killed apply may have added or renamed columns to a newer version than its record says.
        present = [name for name in held.read().columns if name not in _ours(old)]
        names = {renamed.get(name, name) for name in present}
        return names <= set(group.schema.names) and len(names) == len(present)

    def _between(self, table: str, n: int, of: str = COMMITS) -> tuple[TableSchema, ...]:
        """Schemas that killed applies were about to bring a table to from an entry."""
        later = [k for k in self.store.records(table, of) if k > n]
        return tuple(
            self.store.schema(table, self.store.record(table, k, of)["schema_id"]) for k in later
        )

    def _merged(self, group: Group, held: IcebergTable) -> Prepared | None:
        work, schema = group.work, group.schema
        out = self.quarantine.get(work.table, ())
        with_history = self._begin_history(group, held)
        is_checked = bool(out or self.tests.get(work.table))
        found = [
            self._changes(part, group, held, with_history=with_history, is_checked=is_checked)
            for part in group.parts
        ]
        changes = _together(found, group.parts, schema)
        if not changes.files:
            return None
        rows = self._staged(work, schema, changes.files)
        versions = None
        if with_history:
            begun = rows.where((F.col(ACTION) == PUT) & (F.col("gd_n") > work.after))
            versions = self._versions_of(work, schema, begun, changes)
        of_source = (SOURCE,) if schema.has_source else ()
        on = (KEY, *of_source) if schema.key else (KEY, *reduce.identity(schema))
        if is_checked:
            rows = self._checked_changes(work, schema, rows, held, on)
        said = f"{counted(sum(file.rows for file in changes.files), 'row')} merged"
        if changes.is_exact:  # columns that whoever clusters the table clusters by
            on = (*schema.key, *of_source)
        merge = Merge(rows, on, changes.unsent, changes.bounds, changes.values)
        return Prepared(work, held, schema, group.ignored, rows, merge, said, versions)

    def _changes(
        self, part: Work, group: Group, held: IcebergTable, *, with_history: bool, is_checked: bool
    ) -> Staged:
        """Stage what became of the rows that changed."""
        era, out = part.eras[0], self._stage_out(part, group)
        job = self._lake_job(part, 0, out)
        needs_rows = not era.schema.key or era.may_move_unsent or with_history
        if needs_rows:
            job = self._lake_job(part, 0, (*self._stage_touched(part, group, held, job), *out))
        changes = self._reduce(part, job, era, part.after)
        if is_checked and changes.unsent and not needs_rows:  # tests ask for whole rows
            job = self._lake_job(part, 0, (*self._stage_touched(part, group, held, job), *out))
            changes = self._reduce(part, job, era, part.after)
        return changes

    def _replaced(self, group: Group, held: IcebergTable) -> Prepared:
        work, schema = group.work, group.schema
        held.position()  # refuses a table of somebody else's
        had_rows = work.schema is not None
        out = self.quarantine.get(work.table, ()) if had_rows else ()
        with_history = self._begin_history(group, held)
        files: list[StateFile] = []
        closed: list[StateFile] = []
        for part in self._every_part(group):
            base: tuple[StateFile, ...] = ()
            # Without a key, what removals before the reset find is counted.
            is_emptied = bool(part.eras[0].resets and part.eras[0].schema.key)
            if part.schema is not None and had_rows and (with_history or not is_emptied):
                base = (
                    *self._stage_rows(part, group, held.read()),
                    *self._stage_out(part, group),
                )
            for number, era in enumerate(part.eras):
                staged = self._reduce(part, self._lake_job(part, number, base), era, None)
                base, part.schema = tuple(staged.files), era.schema
                closed += staged.closed
            files += base
        rows = self._staged(work, schema, files).drop(ACTION)
        versions = None
        if with_history:
            begun = rows.where(F.col("gd_n") > work.after)
            ended = Staged([], closed, frozenset(), {}, {}, is_exact=False)
            versions = self._versions_of(work, schema, begun, ended)
        if out or self.tests.get(work.table):
            rows = self._checked_rows(work, schema, rows, out)
        said = f"{counted(sum(file.rows for file in files), 'row')}, all anew"
        return Prepared(work, held, schema, group.ignored, rows, None, said, versions)

    def _publish(self, one: Prepared) -> None:
        """Commit a table; the record of what it will be comes first."""
        work = one.work
        self._check_not_overtaken(one)
        reach(Step.LAKE_STAGED)
        record: dict[str, Any] = {
            "schema_id": one.schema.schema_id,
            "ignore_through": work.ignore_through,
        }
        if one.ignored:
            record["ignored"] = one.ignored
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

    def _log_lake_changes(self, groups: Sequence[Group]) -> None:
        """Append the changes of tables to their changelogs."""
        for group in groups:
            work, schema = group.work, group.schema
            logged = self.store.records(work.table, LOGGED)
            known = self.store.record(work.table, logged[-1], LOGGED) if logged else {}
            by = str(known.get("by") or self._changelog_by(None))
            if not by or (not logged and work.schema is not None and not self.options.changelog):
                continue
            root = self.staging / work.table
            changes = [
                change
                for part in group.parts
                for change in (*part.passed, *(file for era in part.eras for file in era.files))
            ]
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

    def _begin_history(self, group: Group, held: IcebergTable) -> bool:
        """Whether a table has a history; one that begins with rows begins with these."""
        work = group.work
        known = self.history_from.get(work.table)
        if known is None and not self._is_history_kept():
            return False
        for one in (work, *group.parts):
            one.history_from = work.after if known is None else known
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
        table: IcebergTable,
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
            order=self.landing.source_order,
            resets=tuple(era.resets),
            buckets=work.buckets,
            base=base,
            beside=(),
            is_rebuilt=True,
            with_history=work.history_from is not None,
            with_vectors=False,
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

    def _stage_touched(
        self, part: Work, group: Group, held: IcebergTable, job: Job
    ) -> tuple[StateFile, ...]:
        """Stage the rows of a table that changes are about."""
        root = self.landing.root
        portions = self._portions(part.eras[0].files)
        looks = [MapTask(job, root, changes=portion) for portion in portions]
        paths = [json.loads(text) for text in self.engine.each(looks, reduce.stage_keys)]
        if not paths:
            return ()
        of_keys = T.StructType([T.StructField(KEY, T.BinaryType())])
        keys = read_parquet(
            self.spark, of_keys, [job.table_root / path for path in paths]
        ).distinct()
        return self._stage_rows(part, group, held.read().join(keys, KEY, "left_semi"))

    def _stage_out(self, part: Work, group: Group) -> tuple[StateFile, ...]:
        """Rows in quarantine as base of a merge."""
        out = self.quarantine.get(part.table, ())
        if part.source is None or not out or part.schema is None:
            return out
        assert group.work.schema is not None
        return self._stage_rows(part, group, self._held_rows(part, group.work.schema, out))

    def _stage_rows(self, part: Work, group: Group, rows: DataFrame) -> tuple[StateFile, ...]:
        """Stage rows of the table as base of a merge: those of its source."""
        path = self.staging / part.table
        held, schema = group.work.schema, part.schema
        if schema is None:
            return ()
        assert held is not None
        rows = named_back(rows, held, self._between(part.table, part.after))
        if part.source is not None:
            rows = as_version(rows.where(F.col(SOURCE) == part.source), held, schema)
        names = [quoted(field.name) for field in state_schema(schema)]
        found = write_rows(
            rows.select(*names), schema.schema_id, state_schema(schema), path, "base/rows"
        )
        self.summary.bytes_read += sum(file.bytes for file in found)
        return found

    def _staged(self, work: Work, schema: TableSchema, files: Sequence[StateFile]) -> DataFrame:
        """Staged files as Spark reads them, as rows of a schema."""
        root = self.staging / work.table
        paths: dict[str, list[Place]] = {}
        for file in files:
            paths.setdefault(file.schema_id, []).append(root / file.path)
        schemas = {i: self.store.schema(work.table, i) for i in paths}
        schemas[schema.schema_id] = schema
        ours = {
            i: [f for f in reduce.staged_schema(of) if f.name not in of.names]
            for i, of in schemas.items()
        }
        return read_versions(self.spark, paths, schemas, schema, ours)

    def _sweep(self) -> None:
        """Remove what is staged; what no record names of the quarantine is for vacuum."""
        remove_tree(self.staging)


def _file_of(record: Mapping[str, Any]) -> StateFile:  # Any: JSON
    return StateFile(**record)


def _ours(schema: TableSchema) -> set[str]:
    return {KEY, *(f.name for f in state_schema(schema) if f.name not in schema.names)}


def _keeps_rows(part: Work) -> bool:
    """Whether rows of a source keep their identity, and columns there stay or are added."""
    old, era = part.schema, part.eras[0]
    if len(part.eras) > 1 or era.resets:
        return False
    if old is None:
        return True
    is_same = old.key_shape() == era.schema.key_shape()
    return is_same and renamed_columns(old, era.schema) is not None


def _together(found: Sequence[Staged], parts: Sequence[Work], schema: TableSchema) -> Staged:
    """What was staged of all sources, by the names of a schema over them."""
    named = [
        _renamed(staged, match_columns(part.eras[0].schema, schema))
        for staged, part in zip(found, parts, strict=True)
    ]
    return Staged(
        [file for staged in named for file in staged.files],
        [file for staged in named for file in staged.closed],
        frozenset().union(*(staged.unsent for staged in named)),
        reduce.join_bounds(staged.bounds for staged in named),
        reduce.join_values([staged.values for staged in named]),
        all(staged.is_exact for staged in named),
    )


def _renamed(staged: Staged, names: Mapping[str, str]) -> Staged:
    after = {before: name for name, before in names.items()}
    return dataclasses.replace(
        staged,
        unsent=frozenset(after[name] for name in staged.unsent),
        bounds={after[name]: of for name, of in staged.bounds.items()},
        values={after[name]: of for name, of in staged.values.items()},
    )
