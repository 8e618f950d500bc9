"""Run one apply: plan, map and merge passes, commit. See `gaussdecode.spark.apply`."""

import secrets
from collections.abc import Collection, Mapping, Sequence

from gaussdecode.errors import ConfigError, MirrorError
from gaussdecode.model.words import counted
from gaussdecode.spark.checks.data_tests import by_directory
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.changelog import log_changes
from gaussdecode.spark.merge.commit import commit_database, commit_table, part_of
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.engine import Engine, SparkEngine
from gaussdecode.spark.merge.leftovers import Leftovers
from gaussdecode.spark.merge.masking import Masking
from gaussdecode.spark.merge.on_ddl import APPLY, RENAME_TABLE, policy_of
from gaussdecode.spark.merge.options import Options, Progress, Summary
from gaussdecode.spark.merge.passes import Passes
from gaussdecode.spark.merge.plan import Applied, Plan, TablePlan
from gaussdecode.spark.merge.planner import make_plan
from gaussdecode.spark.merge.rewrite import conform_works, park
from gaussdecode.spark.merge.routes import Home
from gaussdecode.spark.merge.stops import Stops
from gaussdecode.spark.merge.work import Work, landed_bytes, part_read
from gaussdecode.spark.merge.works import together, works_of
from gaussdecode.spark.target.catalog_names import check_apart
from gaussdecode.spark.target.failpoint import Step, reach
from gaussdecode.spark.target.layout import Layout, layouts_by_directory
from gaussdecode.spark.target.state_file import FOLDERS
from gaussdecode.spark.target.store import Target


class Run:
    """One apply; all files that it writes carry its token."""

    def __init__(
        self, engine: Engine, landing: Landing, store: Target, options: Options, progress: Progress
    ) -> None:
        self._before = before = store.database()
        at = -1 if before is None else before.n
        self._summary = Summary(at, at, landing.last_n, landing_id=landing.landing_id)
        self._context = Context(
            engine=engine,
            landing=landing,
            store=store,
            options=options,
            progress=progress,
            before=before,
            token=secrets.token_hex(6),
            summary=self._summary,
        )
        self._engine, self._landing, self._store = engine, landing, store
        self._options = options
        self._tests = by_directory(options.tests or {}, landing.find_table)
        self._layouts = layouts_by_directory(options.layouts or {}, landing.find_table)
        self._policy = policy_of(options.on_ddl)
        self._masking = Masking(landing, store, options)
        self._stops = Stops(self._context)
        self._leftovers = Leftovers(store, self._context.token)

    def run(self, to: int, part: int | None = None) -> Summary:
        """Plan, apply, commit.

        Args:
            to: entry to apply up to.
            part: CSN to apply up to in the next entry; None for nothing.
        """
        summary, before, stops = self._summary, self._before, self._stops
        only = self._only()
        self._masking.check()
        unmoved = stops.unmoved(max(to, summary.from_n))
        if before is not None and before.reach >= (to, part or 0) and self._is_whole(only, unmoved):
            summary.n, summary.part = before.n, before.part
            stops.tell(stops.before)
            return summary
        applied = stops.applied_or_stopped()
        part = part if to >= summary.from_n else None
        plan = self._plan(applied, max(to, summary.from_n), only, unmoved, part)
        for text in plan.waits:
            self._context.progress(text)
        summary.stopped_at_gap = plan.gap
        summary.suspects = tuple(plan.suspects)
        summary.quarantined = dict(plan.quarantined)
        summary.accepted_gaps = tuple(plan.accepted_gaps)
        stops.tell(stops.after(plan))
        try:
            has_eras = any(planned.changed for planned in plan.tables.values())
            if plan.to > summary.from_n or has_eras or plan.part is not None:
                self._apply_tables(plan, applied)
                reach(Step.TABLES_DONE)
                commit_database(self._context, plan, applied, only, stops)
        finally:
            self._leftovers.remove()
        return summary

    def _only(self) -> set[str] | None:
        if self._options.tables is None:
            return None
        if self._policy[RENAME_TABLE] == APPLY and not (self._before and self._before.is_complete):
            raise ConfigError(
                f"--tables with --on-ddl {RENAME_TABLE}={APPLY} needs a target whose tables were all applied once: a table "
                "that was not may have had the name of another one. Apply without --tables first"
            )
        names = {self._landing.find_table(name) for name in self._options.tables}
        return self._stops.directories(names)

    def _is_whole(self, only: Collection[str] | None, unmoved: set[str]) -> bool:
        """Whether the database's version covers all wanted tables."""
        before = self._before
        assert before is not None
        if unmoved != before.stopped.keys():
            return False
        return before.is_complete if only is None else set(only) <= set(before.tables)

    def _plan(
        self, applied: Mapping[str, Applied], to: int, only: set[str] | None,
        left_out: set[str], part: int | None,
    ) -> Plan:  # fmt: skip
        """Plan up to an entry, or to the one before rows whose position is not reached.

        Older changes of later entries need the rows that these replace.
        """
        before = self._before
        plan = make_plan(
            self._landing,
            applied,
            before.n if before is not None and before.is_complete else -1,
            to,
            only=only,
            left_out=left_out,
            accept_gaps=self._options.accept_gaps,
            accept_suspects=self._options.accept_suspects,
            quarantined={} if before is None else before.quarantined,
            withheld=() if before is None else before.withheld,
            known={} if before is None else before.known,
            part=part,
            policy=self._policy,
        )
        if plan.early is None:
            return plan
        self._context.progress(
            f"entry {plan.early} waits: its snapshot has a condition, and the landing has not "
            "reached the position of its rows yet; apply again when more has landed"
        )
        return self._plan(applied, plan.early - 1, only, left_out, None)

    def _apply_tables(self, plan: Plan, applied: Mapping[str, Applied]) -> None:
        """Write the new version of each table of a plan, and commit it."""
        context = self._context
        for table, planned in plan.tables.items():
            self._masking.mask(table, planned)
        works = [
            work
            for table, planned in plan.tables.items()
            for work in works_of(
                context, planned, applied.get(table, Applied()), self._layout(table, planned)
            )
        ]
        self._leftovers.expect(works)
        tables = {work.table: [w for w in works if w.table == work.table] for work in works}
        if self._store.catalog:
            for beside in ("", *FOLDERS[1:]):
                check_apart(self._store.catalog, {*applied, *tables}, beside)
        context.progress(f"entry {plan.to}: changes of {counted(len(tables), 'table')}")
        worker = self._worker(works)
        log_changes(context, worker, works)
        Passes(context, worker).run(works)
        reach(Step.FILES_WRITTEN)
        whole = [together(context, found, plan) for found in tables.values()]
        for work in whole:
            self._check(work, worker)
        conform_works(context, whole)
        for work in whole:
            try:
                commit_table(context, work, plan, part_of(work, plan, self._stops))
            except MirrorError:
                self._leftovers.keep(work.table)
                raise
        self._count_unmatched(works)

    def _layout(self, table: str, planned: TablePlan) -> Layout | None:
        """The wanted layout of a table; a new one may have another directory than its name has."""
        if self._store.newest(table) is None and planned.landed:
            return self._layouts.get(planned.landed[-1].table)
        return self._layouts.get(table)

    def _worker(self, works: Sequence[Work]) -> Engine:
        """What runs the tasks of an apply."""
        landed = sum(landed_bytes(era) for work in works for era in work.eras)
        return self._engine.for_bytes(landed, sum(map(self._read_bytes, works)))

    def _read_bytes(self, work: Work) -> int:
        """Bytes of the current rows that the merge reads, about."""
        context = self._context
        held = sum(file.bytes for file in work.current)
        landed = sum(map(landed_bytes, work.eras))
        reads_keys = context.with_vectors and not context.has_history(work.version)
        reads_keys &= all(era.schema.key and not era.resets for era in work.eras)
        return held // part_read(reads_keys, landed, held, self._options.sizes)

    def _check(self, work: Work, worker: Engine) -> None:
        """Run the tests of a table; see `data_check`."""
        name = work.table if work.schema is None else Home.of(work.schema, work.to).name
        tests = self._tests.get(name, ())
        held = () if work.version is None else work.version.quarantine
        if not tests and not held:
            return
        if not isinstance(self._engine, SparkEngine):
            raise ConfigError(
                f"{self._store.root}: {work.table} has tests, or rows in quarantine, which need "
                "Spark: leave out --local"
            )
        from gaussdecode.spark.merge.file_check import check_files

        token = self._context.token
        found = check_files(self._engine.session, self._store, work, tests, token)
        work.quarantine = found.quarantine
        self._summary.tests += found.failed
        park(self._context, worker, work)

    def _count_unmatched(self, works: Sequence[Work]) -> None:
        for work in works:
            if work.unmatched:
                title = work.table if work.schema is None else work.schema.title
                known = self._summary.unmatched.get(title, 0)
                self._summary.unmatched[title] = known + work.unmatched
