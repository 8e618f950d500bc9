"""Run one apply: plan, map and merge passes, commit. See `gaussdecode.spark.apply`."""

import contextlib
import dataclasses
import functools
import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from gaussdecode.errors import ConfigError, MirrorError
from gaussdecode.model.words import counted
from gaussdecode.spark.catalogs.announce import announce
from gaussdecode.spark.checks.data_tests import Failed, Tests, by_directory
from gaussdecode.spark.log.change_file import ChangeFile
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.masks import (
    Masks,
    check_columns,
    check_names,
    columns_of,
    from_record,
    to_record,
)
from gaussdecode.spark.log.place import files_below
from gaussdecode.spark.log.schema import TableSchema, UnknownColumnsError, reads_as
from gaussdecode.spark.log.source_schemas import record_of
from gaussdecode.spark.merge import key_changes, tasks
from gaussdecode.spark.merge.bucket import gather, merge_bucket, replaced
from gaussdecode.spark.merge.changelog import ChangelogTask, write_changelog
from gaussdecode.spark.merge.engine import Engine, SparkEngine
from gaussdecode.spark.merge.plan import AllBut, Applied, Era, Plan, TablePlan, make_plan, unmoved
from gaussdecode.spark.merge.rewrite import ConformTask, ParkTask, conform_file, is_stale, park_rows
from gaussdecode.spark.merge.sizing import MAX_BUCKETS, Sizes, power_of_two, shared_out
from gaussdecode.spark.merge.tasks import Job, MapTask
from gaussdecode.spark.target.catalog_names import check_apart
from gaussdecode.spark.target.decided import Stop
from gaussdecode.spark.target.failpoint import Step, reach
from gaussdecode.spark.target.layout import Layouts, comment, followed, layouts_by_directory
from gaussdecode.spark.target.state_file import (
    CHANGELOG,
    FOLDERS,
    HISTORY,
    OTHERS,
    PartVersion,
    StateFile,
    TableVersion,
)
from gaussdecode.spark.target.store import DatabaseVersion, Target, utc_now
from gaussdecode.spark.target.table_shape import shape_of

Progress = Callable[[str], None]
_PART_OF_KEYS: Final = 16
"""With deletion vectors a merge of few changes reads columns of the key alone: taken as a sixteenth of a file."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of an apply.

    Attributes:
        tables: table names; None for all.
        history: keep closed intervals. A table without them gets them from now on, and so do tables
            that appear later.
        vectors: use deletion vectors: a file with few outdated rows stays, and a vector lists these
            rows. Readers must support vectors. From now on, for all tables.
        changelog: keep changes, partitioned by this column; ``gd_commit_date`` is the date of the
            commit; None for no new changelog.
        buckets: number of buckets of new tables; None to choose it by size.
        accept_gaps: accept gap entries, and entries that retention removed; recorded in the target.
        accept_suspects: accept suspect entries that name a table, among the new changes.
        accept_hidden_truncates: apply although the stream has no TRUNCATE and no DDL, so that a
            truncated table keeps its rows.
        format: ``delta`` or ``iceberg``; None for the target's format, or Delta Lake for a new
            target.
        hides: hide our columns in current tables of an Iceberg catalog; for a new target.
        catalog: name pattern in a catalog, see `catalog_names.full_pattern`; None for the target's
            pattern.
        masks: masks by table and column, for new tables, see `masks`; None for none.
        mask_key: key for hashes; needed by each apply if a table has hashes.
        tests: data tests, see `data_tests`; None for none.
        layouts: layouts of new tables, by name; None for none.
        sizes: sizes of tasks and files.
    """

    tables: Collection[str] | None = None
    history: bool = False
    vectors: bool = False
    changelog: str | None = None
    buckets: int | None = None
    accept_gaps: bool = False
    accept_suspects: bool = False
    accept_hidden_truncates: bool = False
    format: str | None = None
    catalog: str | None = None
    hides: bool = False
    masks: Mapping[str, Masks] | None = None
    mask_key: bytes = dataclasses.field(default=b"", repr=False)
    tests: Tests | None = None
    layouts: Layouts | None = None
    sizes: Sizes = dataclasses.field(default_factory=Sizes)


@dataclasses.dataclass(slots=True)
class Summary:
    """The result of an apply.

    Attributes:
        from_n: entry of the database before; -1 if it did not exist.
        n: entry of the database now.
        last_n: newest entry of the landing.
        tables: number of tables with new versions.
        rows: number of landed rows that were read.
        bytes_read: bytes read, of landed files and of the state.
        bytes_written: bytes of new files.
        stopped_at_gap: number of a gap entry it stopped before, or None.
        accepted_gaps: gap entries that it accepted.
        suspects: entries in it that may be incomplete.
        quarantined: entry at which a table entered quarantine, by directory.
        unmatched: number of changes that did not match a table's rows, by table name; see
            `merge.Merged`.
        stopped: reason in a sentence, by name, for tables that are stopped while others go on.
        suspect_tables: stopped tables that are before a suspect entry.
        gone: stopped tables that the source does not have any more.
        tests: results of each test, for the tables that were tested.
        part: CSN up to which entry n + 1 is applied too; 0 for nothing.
        landing_id: id of the landing that the entry numbers belong to.
    """

    from_n: int
    n: int
    last_n: int
    tables: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    stopped_at_gap: int | None = None
    accepted_gaps: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    quarantined: dict[str, int] = dataclasses.field(default_factory=dict)
    unmatched: dict[str, int] = dataclasses.field(default_factory=dict)
    stopped: dict[str, str] = dataclasses.field(default_factory=dict)
    suspect_tables: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    tests: list[Failed] = dataclasses.field(default_factory=list)
    part: int = 0
    landing_id: str = ""


@dataclasses.dataclass(slots=True)
class Work:
    """One table on its way from entry `after` to a new version, at entry `to`.

    With several sources there is one for each source with changes, and at the end one for the table,
    with `parts`.
    """

    table: str
    after: int
    to: int
    version: TableVersion | None
    schema: TableSchema | None
    eras: list[Era]
    passed: list[ChangeFile]
    ignore_through: tuple[int, ...] | None
    current: list[StateFile]
    closed: list[StateFile] = dataclasses.field(default_factory=list)
    changelog: list[StateFile] = dataclasses.field(default_factory=list)
    quarantine: tuple[StateFile, ...] = ()
    history_from: int | None = None
    buckets: int = 1
    partition: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    unmatched: int = 0
    since: int = -1
    source: str | None = None
    parts: dict[str, PartVersion] = dataclasses.field(default_factory=dict)


class Run:
    """One apply; all files that it writes carry its token."""

    def __init__(
        self, engine: Engine, landing: Landing, store: Target, options: Options, progress: Progress
    ) -> None:
        self.engine = self.worker = engine
        self.landing = landing
        self.store = store
        self.options = options
        self.progress = progress
        self.token = secrets.token_hex(6)
        self.before = store.database()
        at = -1 if self.before is None else self.before.n
        self.summary = Summary(at, at, landing.last_n, landing_id=landing.landing_id)
        self.tests = by_directory(options.tests or {}, landing.find_table)
        self.chosen_layouts = layouts_by_directory(options.layouts or {}, landing.find_table)
        self.touched: dict[str, int] = {}  # by table, the first version that this run may make
        self.stopped: dict[str, Stop] = {}
        self.unmoved: set[str] = set()

    def run(self, to: int, part: int | None = None) -> Summary:
        """Plan, apply, commit.

        Args:
            to: entry to apply up to.
            part: CSN to apply up to in the next entry; None for nothing.
        """
        summary, before = self.summary, self.before
        only = self._only()
        for title in self.options.masks or ():
            self._kept_masks(self._directory(title))
        self.unmoved = self._unmoved(max(to, summary.from_n))
        if before is not None and before.reach >= (to, part or 0) and self._is_whole(only):
            summary.n, summary.part = before.n, before.part
            self._tell_stopped({t: Stop(**stop) for t, stop in before.stopped.items()})
            return summary
        applied = self._with_stopped(self._applied())
        start = before.n if before is not None and before.is_complete else -1
        part = part if to >= summary.from_n else None
        plan = self._plan(applied, start, max(to, summary.from_n), only, part)
        summary.stopped_at_gap = plan.gap
        summary.suspects = tuple(plan.suspects)
        summary.quarantined = dict(plan.quarantined)
        summary.accepted_gaps = tuple(plan.accepted_gaps)
        self._tell_stopped(self._stopped(plan))
        try:
            has_eras = any(planned.changed for planned in plan.tables.values())
            if plan.to > summary.from_n or has_eras or plan.part is not None:
                self._apply_tables(plan, applied)
                reach(Step.TABLES_DONE)
                self._commit_database(plan, applied, only)
        finally:
            self._sweep()
        return summary

    def _plan(
        self, applied: Mapping[str, Applied], start: int, to: int, only: set[str] | None,
        part: int | None,
    ) -> Plan:  # fmt: skip
        """Plan up to an entry, or to the one before rows whose position is not reached.

        Older changes of later entries need the rows that these replace.
        """
        before = self.before
        plan = make_plan(
            self.landing,
            applied,
            start,
            to,
            only=AllBut(self.unmoved, only) if self.unmoved else only,
            accept_gaps=self.options.accept_gaps,
            accept_suspects=self.options.accept_suspects,
            quarantined={} if before is None else before.quarantined,
            part=part,
        )
        if plan.early is None:
            return plan
        self.progress(
            f"entry {plan.early} waits: its snapshot has a condition, and the landing has not reached the position of its rows yet; apply again when more has landed"
        )
        return self._plan(applied, start, plan.early - 1, only, None)

    def load(self, plan: Plan) -> Summary:
        """Create first versions of tables, but no version of the database: an apply does that."""
        try:
            self._apply_tables(plan, {})
        finally:
            self._sweep()
        return self.summary

    def held(self) -> dict[str, Applied]:
        """How far the target's tables are applied, by directory."""
        return self._applied()

    def _tell_stopped(self, stopped: dict[str, Stop]) -> None:
        """Put stopped tables into the summary."""
        self.stopped, summary = stopped, self.summary
        titles = {self._title(table, stop): stop for table, stop in stopped.items()}
        summary.stopped = {title: of.why for title, of in titles.items() if not of.is_gone}
        summary.gone = tuple(title for title, of in titles.items() if of.is_gone)
        summary.suspect_tables = tuple(sorted(t for t, of in titles.items() if of.is_suspect))

    def _unmoved(self, to: int) -> set[str]:
        """Stopped tables whose changes need not be read again."""
        before = self.before
        if before is None or not before.is_complete:
            return set()
        stops = {table: Stop(**stop) for table, stop in before.stopped.items()}
        return unmoved(
            self.landing, stops, {table: self.store.decided(table) for table in stops}, before.n, to,
            accept_suspects=self.options.accept_suspects,
        )  # fmt: skip

    def _only(self) -> set[str] | None:
        if self.options.tables is None:
            return None
        return {self.landing.find_table(name) for name in self.options.tables}

    def _applied(self) -> dict[str, Applied]:
        """How far each table is applied; its newest version may be ahead of the database's."""
        found: dict[str, Applied] = {}
        for table in self.store.tables():
            version = self.store.newest(table)
            if version is None:
                continue
            n = version.n
            before = self._speaks_for(table)
            if before is not None and before.tables.get(table) == version.v:
                n = max(n, before.n)
            schema = self.store.schema(table, version.schema_id)
            part = version.part if n == version.n else 0
            ignored = {
                source: of.ignore_through
                for source, of in version.parts.items()
                if of.ignore_through is not None
            }
            found[table] = Applied(n, schema, version.ignore_through, part=part, ignored=ignored)
        return found

    def _speaks_for(self, table: str) -> DatabaseVersion | None:
        """The database's version, unless a table is stopped after it."""
        return None if self.before is None or table in self.before.stopped else self.before

    def _with_stopped(self, applied: dict[str, Applied]) -> dict[str, Applied]:
        """Add the stopped tables, and an operator's declarations about columns."""
        stopped = {} if self.before is None else self.before.stopped
        for table in {*applied, *stopped}:
            state = applied.get(table, Applied())
            applied[table] = dataclasses.replace(
                state,
                n=max(state.n, stopped[table]["n"]) if table in stopped else state.n,
                decided=self.store.decided(table),
                is_stopped=table in stopped,
            )
        return applied

    def _stopped(self, plan: Plan) -> dict[str, Stop]:
        """Tables that are stopped; one without new changes stays stopped."""
        stopped = {} if self.before is None else self.before.stopped
        found = {table: Stop(**stop) for table, stop in stopped.items() if table not in plan.tables}
        if self.options.accept_suspects:
            found = {table: stop for table, stop in found.items() if not stop.is_suspect}
        planned = {table: planned.stop for table, planned in plan.tables.items()}
        return found | {table: stop for table, stop in planned.items() if stop is not None}

    def _title(self, table: str, stop: Stop) -> str:
        schema_id = stop.new or stop.old
        if not schema_id:
            return table
        return TableSchema.from_record(
            schema_id, self.landing.schema_record(table, schema_id)
        ).title

    def _is_whole(self, only: Collection[str] | None) -> bool:
        """Whether the database's version covers all wanted tables."""
        assert self.before is not None
        if self.unmoved != self.before.stopped.keys():
            return False
        return self.before.is_complete if only is None else set(only) <= set(self.before.tables)

    def _mask(self, table: str, planned: TablePlan) -> None:
        """Mask the files of a table's plan by the target's rules.

        Raises:
            ConfigError: the masks differ from the target's, are not possible, or need a key.
        """
        masks = from_record(
            table, self._kept_masks(table), self.options.mask_key, self.store.landing_id
        )
        if not masks:
            return
        is_new = self.store.newest(table) is None
        landed = {i: self.landing.schema_record(table, i) for i in self.landing.schema_ids(table)}
        records = {**self.store.schema_records(table), **landed}
        for part in (planned, *planned.parts.values()):
            for files in (part.passed, *(era.files for era in part.eras)):
                for at, change in enumerate(files):
                    record = records[change.file.schema_id]
                    found = columns_of(masks, change.file.schema_id, records)
                    check_columns(table, found, masks, record, is_new=is_new)
                    rules = tuple((column, masks[name]) for column, name in found.items())
                    files[at] = dataclasses.replace(change, masks=rules)

    def _directory(self, title: str) -> str:
        """Directory of a table; a table whose rows were loaded may not have landed yet.

        Raises:
            ConfigError: there is no such table.
        """
        try:
            return self.landing.find_table(title)
        except ConfigError:
            with contextlib.suppress(ConfigError):
                return self.store.find_table(title)
            raise

    def _kept_masks(self, table: str) -> dict[str, Any] | None:  # Any: JSON
        """The masks that the target keeps for a table; the wanted ones for a new table.

        Raises:
            ConfigError: other masks are wanted, or they are not possible.
        """
        kept = self.store.masks(table)
        asked = {self._directory(title): of for title, of in (self.options.masks or {}).items()}
        wanted = asked.get(table)
        if wanted is None:
            return kept
        record = to_record(wanted, self.options.mask_key, self.store.landing_id)
        if kept is None and self.store.newest(table) is None:
            records = [self.landing.schema_record(table, i) for i in self.landing.schema_ids(table)]
            check_names(table, wanted, {c["name"] for of in records for c in of["columns"]})
            self.store.keep_masks(table, record)
            return record
        if kept is None or kept["masks"] != record["masks"]:
            raise ConfigError(
                f"{table} was made with {'other masks' if kept else 'no masks'}, which it keeps: begin a new "
                "target, or leave out --mask for it"
            )
        return kept

    # --- the passes ------------------------------------------------------------------------

    def _apply_tables(self, plan: Plan, applied: Mapping[str, Applied]) -> None:
        for table, planned in plan.tables.items():
            self._mask(table, planned)
        works = [
            work
            for table, planned in plan.tables.items()
            for work in self._works(table, planned, applied.get(table, Applied()))
        ]
        landed = sum(_landed(era) for work in works for era in work.eras)
        self.worker = self._for_bytes(landed, sum(self._read_bytes(work) for work in works))
        tables = {work.table: [w for w in works if w.table == work.table] for work in works}
        if self.store.catalog:
            for beside in ("", *FOLDERS[1:]):
                check_apart(self.store.catalog, {*applied, *tables}, beside)
        self.progress(f"entry {plan.to}: changes of {counted(len(tables), 'table')}")
        self._log_changes(works)
        for number in range(max((len(work.eras) for work in works), default=0)):
            self._pass([work for work in works if number < len(work.eras)], number)
        reach(Step.FILES_WRITTEN)
        whole = [self._together(found, plan) for found in tables.values()]
        for work in whole:
            self._check(work)
        self._conform(whole)
        for work in whole:
            self._commit(work, plan)
        self._count_unmatched(works)

    def _count_unmatched(self, works: Sequence[Work]) -> None:
        for work in works:
            if work.unmatched:
                title = work.table if work.schema is None else work.schema.title
                known = self.summary.unmatched.get(title, 0)
                self.summary.unmatched[title] = known + work.unmatched

    def _log_changes(self, works: Sequence[Work]) -> None:
        """Copy the new changes into the changelogs."""
        planned = [
            ChangelogTask(
                index,
                self.landing.root,
                self.store.table_root(work.table),
                part,
                self._changelog_by(work.version),
                self.token,
            )
            for index, work in enumerate(works)
            if self._changelog_by(work.version)
            for part in self._portions([*work.passed, *(f for e in work.eras for f in e.files)])
        ]
        for text in self.worker.each(planned, write_changelog):
            index, record = json.loads(text)
            file = StateFile(**record)
            works[index].changelog.append(file)
            self.summary.bytes_written += file.bytes

    def _together(self, works: Sequence[Work], plan: Plan) -> Work:
        """Join the versions of several sources, also of those without changes, into one table."""
        first = works[0]
        schema = plan.tables[first.table].schema
        if schema is None:
            return first
        self.store.keep_schema(first.table, schema.schema_id, record_of(schema))
        current, parts = {}, {}
        if first.version is not None:
            current = self.store.by_source(first.table, first.version.current)
            parts = dict(first.version.parts)
        for work in works:
            current[work.source] = work.current
            parts[str(work.source)] = PartVersion(work.buckets, work.ignore_through)
        return dataclasses.replace(
            first,
            schema=schema,
            source=None,
            current=[file for files in current.values() for file in files],
            closed=[file for work in works for file in work.closed],
            changelog=[file for work in works for file in work.changelog],
            buckets=max(part.buckets for part in parts.values()),
            unmatched=sum(work.unmatched for work in works),
            parts=parts,
        )

    def _works(self, table: str, planned: TablePlan, state: Applied) -> list[Work]:
        """One `Work` for each source with changes; for each source if rows are in quarantine."""
        works = [self._work(table, planned, state, source) for source in planned.changed]
        if not works or planned.schema is None or works[0].version is None:
            return works
        if not works[0].version.quarantine:
            return works
        version, there = works[0].version, {work.source for work in works}
        for schema in planned.schema.parts:
            if schema.source not in there and schema.source in version.parts:
                of = version.parts[schema.source]
                works.append(
                    dataclasses.replace(
                        works[0],
                        source=schema.source,
                        schema=schema,
                        eras=[Era(schema, {schema.schema_id: schema}, [], [])],
                        passed=[],
                        ignore_through=of.ignore_through,
                        current=self.store.files_of(table, version.current, schema.source),
                        buckets=of.buckets,
                    )
                )
        return works

    def _work(
        self, table: str, whole: TablePlan, state: Applied, source: str | None = None
    ) -> Work:
        version, planned = self.store.newest(table), whole.changed[source]
        state = state if source is None else state.of(source)
        ids = {schema_id for era in planned.eras for schema_id in era.schemas}
        # The changelog has files too that a snapshot goes over, maybe of a version that nothing else is of.
        for schema_id in ids | {change.file.schema_id for change in planned.passed}:
            record = self.landing.schema_record(table, schema_id)
            self.store.keep_schema(table, schema_id, record)
        work = Work(
            table,
            state.n,
            planned.to,
            version,
            state.schema,
            planned.eras,
            planned.passed,
            planned.ignore_through,
            [] if version is None else self.store.files_of(table, version.current, source),
            since=planned.since,
            source=source,
        )
        landed = sum(change.file.bytes for era in planned.eras for change in era.files)
        self.summary.bytes_read += landed
        self.summary.rows += sum(c.file.rows for era in planned.eras for c in era.files)
        self._choose_layout(work)
        held = None if version is None else version.buckets_of(source)
        if held is None:
            wanted = power_of_two(landed / self.options.sizes.first_bucket)
            work.buckets = self.options.buckets or wanted
        else:
            work.buckets = held
        self.touched[table] = 0 if version is None else version.v + 1
        return work

    def _choose_layout(self, work: Work) -> None:
        """Check that a table has, or can have, the wanted layout.

        Raises:
            ConfigError: it has another layout, or cannot have this one.
        """
        version, wanted = work.version, self.chosen_layouts.get(work.table)
        if version is not None:
            work.partition, work.cluster = version.partition, version.cluster
        if wanted is None:
            return
        schema = work.eras[-1].schema if work.eras else work.schema
        title = work.table if schema is None else schema.title
        if version is not None:
            if (wanted.partition, wanted.cluster) != (version.partition, version.cluster):
                raise ConfigError(
                    f"{title} was made with another layout, which it keeps: leave out --partition-by and "
                    "--cluster-by for it, or begin a new target"
                )
            return
        if work.source is not None:
            raise ConfigError(
                f"{title} is of several sources, whose columns may differ: such a table has no layout"
            )
        if schema is not None:
            wanted.check(title, {c.name: c.type for c in schema.columns})
        work.partition, work.cluster = wanted.partition, wanted.cluster

    def _follow_layout(self, work: Work, schema: TableSchema) -> bool:
        """Use the current names of layout columns; return whether all files have to be rewritten."""
        if work.schema is None or not (work.partition or work.cluster):
            return False
        before = work.partition
        try:
            work.partition = followed(work.partition, work.schema, schema)
            work.cluster = followed(work.cluster, work.schema, schema)
        except (
            UnknownColumnsError
        ):  # a snapshot goes over it, and nobody knows which column is which
            work.partition = work.cluster = ()
        return work.partition != before

    def _pass(self, works: Sequence[Work], number: int) -> None:
        """Apply one era of each table."""
        jobs = [self._job(index, work, number) for index, work in enumerate(works)]
        described = [(job, work.eras[number]) for job, work in zip(jobs, works, strict=True)]
        resolved = self._resolve(jobs, described)
        planned: list[MapTask] = []
        for job, era in described:
            planned += self._map_tasks(job, era.files)
            if job.index in resolved:
                paths = tuple(resolved[job.index])
                planned.append(MapTask(job, self.landing.root, resolved=paths))
        texts = self.worker.gathered(
            planned,
            functools.partial(tasks.map_events, is_resolved=bool(resolved)),
            (
                (functools.partial(merge_bucket, jobs=jobs), self._shares(described)),
                (functools.partial(gather, jobs=jobs), self._gather_shares(described)),
            ),
        )
        for text in texts:
            self._take(works, json.loads(text))
        for job, work in zip(jobs, works, strict=True):
            work.schema = job.schema
            if job.is_rebuilt:
                work.current = [file for file in work.current if self._is_mine(file, number)]

    def _job(self, index: int, work: Work, number: int) -> Job:
        era = work.eras[number]
        is_rebuilt = work.schema is not None and (work.schema.key_shape() != era.schema.key_shape())
        is_rebuilt |= any(file.bucket == OTHERS for file in work.current)
        is_rebuilt |= self._follow_layout(work, era.schema)
        sizes = self.options.sizes
        bulk = sum(file.bytes for file in work.current) + _landed(era)
        if bulk > work.buckets * sizes.full_bucket and work.buckets < MAX_BUCKETS:
            # More buckets for what comes too: a task has to hold a bucket and all its changes.
            work.buckets = power_of_two(bulk / sizes.bucket)
            is_rebuilt = True
        schemas = dict(era.schemas)
        beside = () if number or work.version is None else work.version.quarantine
        for file in (*work.current, *beside):
            if file.schema_id not in schemas:
                schemas[file.schema_id] = self.store.schema(work.table, file.schema_id)
        return Job(
            index=index,
            table_root=self.store.table_root(work.table),
            schema=era.schema,
            schemas=schemas,
            order=self.landing.source_order,
            resets=tuple(era.resets),
            buckets=work.buckets,
            base=tuple(work.current),
            beside=beside,
            is_rebuilt=is_rebuilt,
            with_history=self._has_history(work.version),
            with_vectors=self._with_vectors(),
            token=f"{self.token}{number:02d}",
            partition=work.partition,
            cluster=work.cluster,
            sizes=sizes,
        )

    def _map_tasks(self, job: Job, files: Sequence[ChangeFile]) -> list[MapTask]:
        root = self.landing.root
        planned = [MapTask(job, root, changes=part) for part in self._portions(files)]
        planned += [MapTask(job, root, base=(file,)) for file in job.beside]
        if job.is_rebuilt:
            planned += [MapTask(job, root, base=(file,)) for file in job.base]
        else:
            forced = {
                file.bucket
                for file in job.base
                if job.resets or not reads_as(job.schemas[file.schema_id], job.schema)
            }
            if -1 in forced:  # rows of any bucket
                forced = set(range(job.buckets))
            if forced:
                planned.append(MapTask(job, root, forced=tuple(sorted(forced))))
        return planned

    def _resolve(
        self, jobs: Sequence[Job], described: Sequence[tuple[Job, Era]]
    ) -> dict[int, list[str]]:
        """Resolve key changes that lack values; return files of whole events per table."""
        asked = [(job, era) for job, era in described if era.may_move_unsent and job.schema.key]
        if not asked:
            return {}
        root = self.landing.root
        looks = [
            MapTask(job, root, changes=part)
            for job, era in asked
            for part in self._portions(era.files)
        ]
        pairs: dict[int, list[tuple[bytes, bytes]]] = {}
        for text in self.worker.each(looks, tasks.map_edges):
            index, old, new = json.loads(text)
            pairs.setdefault(index, []).append((bytes.fromhex(old), bytes.fromhex(new)))
        if not pairs:
            return {}
        involved = {index: key_changes.components(found) for index, found in pairs.items()}
        looks += [
            MapTask(job, root, base=(file,))
            for job, _ in asked
            for file in (*job.base, *job.beside)
        ]
        texts = self.worker.grouped(
            [task for task in looks if task.job.index in involved],
            functools.partial(tasks.map_involved, involved=involved),
            functools.partial(tasks.resolve_group, jobs=list(jobs)),
            tasks.shares_of_involved(jobs, involved, self.options.sizes.reduce),
        )
        found: dict[int, list[str]] = {index: [] for index in involved}
        for text in texts:
            index, path = json.loads(text)
            found[index].append(path)
        return found

    def _portions(self, files: Sequence[ChangeFile]) -> list[tuple[ChangeFile, ...]]:
        return portions(files, self.options.sizes.read)

    def _shares(self, described: Sequence[tuple[Job, Era]]) -> dict[int, int]:
        """The task that merges each bucket of a pass."""
        weights = [
            (job.group(bucket), weight)
            for job, era in described
            for bucket, weight in enumerate(_weights(job, _landed(era)))
        ]
        return shared_out(weights, self.options.sizes.reduce)

    def _gather_shares(self, described: Sequence[tuple[Job, Era]]) -> dict[int, int]:
        """The task that gathers each table of a pass."""
        weights = ((job.index, _landed(era)) for job, era in described)
        return shared_out(weights, self.options.sizes.reduce)

    def _take(self, works: Sequence[Work], result: dict[str, Any]) -> None:  # Any: JSON
        """Replace the previous files by those of a pass."""
        work = works[result["table"]]
        work.current = replaced(work.current, result)
        work.closed += [StateFile(**file) for kind, file in result["files"] if kind == "closed"]
        whole = [file for files in result["whole"].values() for file in files]
        written = [*whole, *(file for _, file in result["files"])]
        self.summary.bytes_written += result["written"] + sum(file["bytes"] for file in written)
        work.unmatched += result["unmatched"]
        self.summary.bytes_read += result["read"]

    def _check(self, work: Work) -> None:
        """Run the tests of a table; see `data_check`."""
        tests = self.tests.get(work.table, ())
        held = () if work.version is None else work.version.quarantine
        if not tests and not held:
            return
        if not isinstance(self.engine, SparkEngine):
            raise ConfigError(
                f"{self.store.root}: {work.table} has tests, or rows in quarantine, which need Spark: "
                "leave out --local"
            )
        from gaussdecode.spark.merge.file_check import check_files

        found = check_files(self.engine.session, self.store, work, tests, self.token)
        work.quarantine = found.quarantine
        self.summary.tests += found.failed
        self._park(work)

    def _read_bytes(self, work: Work) -> int:
        """Bytes of the current rows that the merge reads, about."""
        held = sum(file.bytes for file in work.current)
        landed = sum(map(_landed, work.eras))
        reads_keys = self._with_vectors() and not self._has_history(work.version)
        reads_keys &= all(era.schema.key and not era.resets for era in work.eras)
        return held // _part_read(reads_keys, landed, held, self.options.sizes)

    def _for_bytes(self, landed: int, held: int) -> Engine:
        """See `SparkEngine.for_bytes`."""
        engine = self.engine
        return engine.for_bytes(landed, held) if isinstance(engine, SparkEngine) else engine

    def _park(self, work: Work) -> None:
        """Remove the rows in quarantine from the table's files."""
        if not work.quarantine:
            return
        by_source = self.store.by_source(work.table, work.current)
        planned = [
            ParkTask(self.store.table_root(work.table), file, work.quarantine, source, self.token)
            for source, files in by_source.items()
            for file in files
        ]
        for text in self.worker.each(planned, park_rows):
            path, record = json.loads(text)
            work.current = [file for file in work.current if file.path != path]
            if record is not None:
                work.current.append(StateFile(**record))
                self.summary.bytes_written += record["bytes"]

    def _conform(self, works: Sequence[Work]) -> None:
        """Rewrite closed intervals and changes whose columns now have other names or types."""
        planned = [task for index, work in enumerate(works) for task in self._stale(index, work)]
        if planned:
            files = counted(len(planned), "file")
            self.progress(f"columns have other names or types: {files} of history and changelog")
        worker = self._for_bytes(0, sum(task.file.bytes for task in planned))
        for text in worker.each(planned, conform_file):
            index, path, record = json.loads(text)
            work, new = works[index], StateFile(**record)
            self.summary.bytes_written += new.bytes
            for files in (work.closed, work.changelog):
                files[:] = [new if file.path == path else file for file in files]

    def _stale(self, index: int, work: Work) -> Iterator[ConformTask]:
        schema, before = work.schema, work.version
        assert schema is not None
        if before is not None:
            work.closed[:0], work.changelog[:0] = before.closed, before.changelog
        columns = shape_of(schema).columns
        for folder, files in ((HISTORY, work.closed), (CHANGELOG, work.changelog)):
            for file in files:
                old = self.store.schema(work.table, file.schema_id)
                new = schema if not schema.parts else schema.of(old.source)
                if new is not None and is_stale(file, old, new):
                    root = self.store.table_root(work.table)
                    yield ConformTask(index, root, file, old, new, columns[folder], self.token)

    def _commit(self, work: Work, plan: Plan) -> None:
        before = work.version
        assert work.schema is not None
        changelog_by = self._changelog_by(before)
        n_before = work.since if before is None else before.n
        version = TableVersion(
            v=0 if before is None else before.v + 1,
            n=work.to,
            schema_id=work.schema.schema_id,
            buckets=work.buckets,
            current=tuple(sorted(work.current, key=lambda file: file.bucket)),
            closed=tuple(work.closed),
            changelog=tuple(work.changelog),
            quarantine=work.quarantine,
            history_from=_since(before, "history_from", n_before, self._has_history(before)),
            changelog_from=_since(before, "changelog_from", n_before, bool(changelog_by)),
            changelog_by=changelog_by,
            ignore_through=work.ignore_through,
            accepted_gaps=tuple(
                sorted({*(() if before is None else before.accepted_gaps), *plan.accepted_gaps})
            ),
            unmatched=work.unmatched + (0 if before is None else before.unmatched),
            created=utc_now(),
            part=self._part(work, plan),
            partition=work.partition,
            cluster=work.cluster,
            parts=work.parts,
        )
        said = comment(work.schema, self.landing)
        vectors = self._with_vectors()
        try:
            self.store.commit_table(work.table, version, comment=said, with_vectors=vectors)
        except MirrorError:
            # No answer came: the store may have the commit, or still make it, so its files stay.
            del self.touched[work.table]
            raise
        self.summary.tables += 1
        rows = version.rows
        self.progress(
            f"{work.table}: version {version.v} at entry {version.n}, {counted(rows, 'row')}"
        )

    def _part(self, work: Work, plan: Plan) -> int:
        """CSN up to which a table includes the next entry."""
        if work.table not in self.stopped:
            return plan.part or 0
        before = work.version
        return 0 if before is None or before.n != work.to else before.part

    def _commit_database(
        self, plan: Plan, applied: Mapping[str, Applied], only: Collection[str] | None
    ) -> None:
        """Commit one version of all tables, once all of them are there."""
        before = self.before
        behind = [
            name
            for name, state in applied.items()
            if only is not None
            and name not in only
            and state.n < plan.to
            and name not in self.stopped
        ]
        if behind:
            self.summary.n = self.summary.from_n
            self.progress(f"the database stays at entry {self.summary.n}: {len(behind)} tables are")
            return
        if (newer := ahead(plan, applied, is_by_csn=self.landing.is_by_csn)) is not None:
            self.summary.n = self.summary.from_n
            self.progress(
                f"the database stays at entry {self.summary.n}: {newer} was loaded at a position that "
                f"entry {plan.to} does not reach; apply again when more has landed"
            )
            return
        time = plan.commit_time.isoformat() if plan.commit_time is not None else None
        epoch, lsn, csn = plan.position or (0, 0, None)
        version = DatabaseVersion(
            k=1 if before is None else before.k + 1,
            n=plan.to,
            tables=self._versions(sorted({*applied, *plan.tables})),
            is_complete=only is None,
            epoch=epoch,
            lsn=lsn,
            csn=csn,
            commit_time=time if time is not None or before is None else before.commit_time,
            accepted_gaps=_joined(before, "accepted_gaps", plan.accepted_gaps),
            suspects=_joined(before, "suspects", plan.suspects),
            quarantined=plan.quarantined,
            history=self.options.history or (before is not None and before.history),
            changelog=self.options.changelog or ("" if before is None else before.changelog),
            vectors=self._with_vectors(),
            stopped={table: dataclasses.asdict(stop) for table, stop in self.stopped.items()},
            created=utc_now(),
            part=plan.part or 0,
            hash=self.landing.hash_at(plan.to),
        )
        self._announce(version)
        self.store.commit_database(version)
        self.summary.n, self.summary.part = plan.to, version.part

    def _announce(self, version: DatabaseVersion) -> None:
        """Publish the version to external catalogs, before it is committed."""
        session = self.engine.session if isinstance(self.engine, SparkEngine) else None
        announce(self.store, version, self.before, session, self.progress)

    def _versions(self, tables: Collection[str]) -> dict[str, int]:
        """Number of the newest version of each table that has one."""
        newest = {name: self.store.newest(name) for name in tables}
        return {name: version.v for name, version in newest.items() if version is not None}

    # --- what a table is made with -----------------------------------------------------------

    def _has_history(self, version: TableVersion | None) -> bool:
        """Whether history is wanted now, or was wanted once for this table or for all."""
        before = self.before is not None and self.before.history
        has_had = version is not None and version.history_from is not None
        return self.options.history or has_had or (version is None and before)

    def _with_vectors(self) -> bool:
        """Whether deletion vectors are wanted now, or were once."""
        return self.options.vectors or (self.before is not None and self.before.vectors)

    def _changelog_by(self, version: TableVersion | None) -> str:
        """Partition column of the changelog; empty without one."""
        if version is not None and version.changelog_from is not None:
            return version.changelog_by
        before = "" if self.before is None or version is not None else self.before.changelog
        return self.options.changelog or before

    def _is_mine(self, file: StateFile, number: int) -> bool:
        return f"/{self.token}{number:02d}-" in file.path

    def _sweep(self) -> None:
        """Remove files of this run that no version names; vacuum removes any that remain."""
        for table, first in self.touched.items():
            log, root = self.store.log(table), self.store.table_root(table)
            named = log.paths()
            # On a store another run may have gone on: what it took away again, our version still names.
            for v in (v for v in log.versions() if v >= first):
                named |= log.version(v).paths
            for folder in FOLDERS:
                for path in (f"{folder}/{file.path}" for file in files_below(root / folder)):
                    if self.token in path and path not in named:
                        (root / path).unlink(missing_ok=True)


def _since(version: TableVersion | None, field: str, n_before: int, is_wanted: bool) -> int | None:
    """Entry after which a product is kept: as before, or from now on."""
    if version is not None and getattr(version, field) is not None:
        return int(getattr(version, field))
    return n_before if is_wanted else None


def ahead(plan: Plan, applied: Mapping[str, Applied], *, is_by_csn: bool = False) -> str | None:
    """A table whose rows were read at a later position than the plan reaches; None for none.

    With several sources there is none: only the daemon reads their rows, and they have an entry.
    """
    epoch, lsn, csn = plan.position or (0, 0, 0)
    to = (epoch, csn or 0) if is_by_csn else (epoch, lsn)
    loaded = ((table, state) for table, state in sorted(applied.items()) if not state.ignored)
    covered = ((table, state.ignore_through) for table, state in loaded)
    return next((table for table, until in covered if until is not None and until > to), None)


def _joined(version: DatabaseVersion | None, field: str, more: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({*(getattr(version, field) if version is not None else ()), *more}))


def portions(files: Sequence[ChangeFile], size: int) -> list[tuple[ChangeFile, ...]]:
    """Cut a list of files into tasks of about one size; large files by row groups."""
    pieces = [
        (dataclasses.replace(change, part=(part, parts)), change.file.bytes // parts)
        for change in files
        for parts in [max(1, -(-change.file.bytes // size))]
        for part in range(parts)
    ]
    found: list[list[ChangeFile]] = []
    held = size
    for piece, weight in pieces:
        if held + weight > size:
            found.append([])
            held = 0
        found[-1].append(piece)
        held += weight
    return [tuple(portion) for portion in found]


def _landed(era: Era) -> int:
    """Bytes of the changes of an era."""
    return sum(change.file.bytes for change in era.files)


def _part_read(reads_keys: bool, landed: int, held: int, sizes: Sizes) -> int:
    """Divisor of the stored bytes that a merge reads, if few changes make it read keys alone."""
    return _PART_OF_KEYS if reads_keys and landed <= sizes.share * held else 1


def _weights(job: Job, landed: int) -> list[int]:
    """Bytes that the merge of each bucket handles."""
    found = [landed // job.buckets] * job.buckets
    held = sum(file.bytes for file in job.base)
    reads_keys = job.with_vectors and not (job.with_history or job.is_rebuilt or job.resets)
    part = _part_read(reads_keys and bool(job.schema.key), landed, held, job.sizes)
    for file in job.base:
        size = file.bytes // part
        if not job.is_rebuilt and file.bucket >= 0:
            found[file.bucket] += size
        else:
            found = [weight + size // job.buckets for weight in found]
    return found
