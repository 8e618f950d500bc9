"""Plan one table: cut its files into eras, find where it became empty, and where it stops.

A table stops alone before changes whose columns cannot be matched, and before a suspect entry that
names it, unless these are accepted. A later snapshot of the table goes over them, and so does another
table with its name.
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

from gaussdecode.spark.log.change_file import ChangeFile, in_order
from gaussdecode.spark.log.ddl import DdlEvent
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.schema import TableSchema, is_same_table
from gaussdecode.spark.merge.on_ddl import Decision, OnDdl, decide
from gaussdecode.spark.merge.plan import Applied, Doubt, Era, TablePlan
from gaussdecode.spark.merge.resets import made_anew, read_truncates, reset_at, snapshot_reset
from gaussdecode.spark.merge.stop_rules import Step, stop_before
from gaussdecode.spark.target.decided import Stop


@dataclasses.dataclass(frozen=True, slots=True)
class TableChanges:
    """What a plan of a table is made of.

    Attributes:
        landing: landing to read.
        table: directory of the table.
        files: its files.
        state: how far it is applied.
        to: entry to go to.
        doubts: suspect entries that name it.
        on_ddl: DDL commands, and what they do.
    """

    landing: Landing
    table: str
    files: Sequence[ChangeFile]
    state: Applied
    to: int
    doubts: Sequence[Doubt]
    on_ddl: OnDdl

    def until(self, n: int) -> Self:
        """The same up to an entry."""
        files = [change for change in self.files if change.n <= n]
        return dataclasses.replace(self, files=files, to=n)

    def of(self, source: str) -> Self:
        """The same of one of several sources."""
        return dataclasses.replace(
            self,
            files=[change for change in self.files if change.file.source == source],
            state=self.state.of(source),
            doubts=[of for of in self.doubts if of.n <= self.to and of.source in (None, source)],
        )


def plan_table(changes: TableChanges) -> TablePlan:
    """Cut the files of a table into eras and find where it became empty."""
    return _TablePlanner(changes).make()


class _TablePlanner:
    """Goes through the files and DDL commands of a table, in order."""

    def __init__(self, changes: TableChanges) -> None:
        state = changes.state
        self._landing = changes.landing
        self._state = state
        self._files = in_order(changes.landing, changes.files)
        self._at = 0  # index of the next file
        self._schemas = {
            schema_id: TableSchema.from_record(
                schema_id,
                changes.landing.schema_record(directory, schema_id),
                state.decided.numbers.get(schema_id),
            )
            for schema_id, directory in {
                f.file.schema_id: f.file.table for f in self._files
            }.items()
        }
        self._before = state.schema  # of the rows so far; None where there are none
        self._doubts = list(changes.doubts)  # that nothing has ended
        self._events = [of for of in changes.on_ddl.events if state.n < of.n <= changes.to]
        self._policy = changes.on_ddl.policy
        self._plan = TablePlan(changes.table, changes.to, [], state.ignore_through)

    def make(self) -> TablePlan:
        """Make the plan."""
        plan, n = self._plan, self._state.n
        if self._state.is_stopped and n + 1 < self._landing.first_n:
            plan.stop = Stop(n, "", "", f"retention has taken its changes after {n}")
            self._pass_over()
        while plan.stop is None and self._at < len(self._files):
            self._take(self._files[self._at])
        while plan.stop is None and self._events:
            self._follow(self._events.pop(0))
        if plan.stop is None and self._doubts and self._before is not None:
            doubt = self._doubts[0]
            plan.stop = Stop(doubt.n - 1, self._before.schema_id, "", doubt.why, is_suspect=True)
        for era in plan.eras:
            era.resets = sorted(era.resets, key=lambda reset: reset.place)
        if plan.stop is not None:
            plan.to = plan.stop.n
        return plan

    # ---- files -----------------------------------------------------------------------

    def _take(self, change: ChangeFile) -> None:
        """Take the next file, after the DDL commands before it; stop before it, or pass over it."""
        plan = self._plan
        while plan.stop is None and self._events and _is_before(self._events[0], change):
            self._follow(self._events.pop(0))
        if plan.stop is not None:
            return
        schema = self._schemas[change.file.schema_id]
        self._doubts = self._open(change, schema)
        doubt = _first_of(self._doubts, change.n)
        if doubt is None and self._is_covered(change):
            plan.passed.append(change)
            self._at += 1
            return
        step = Step(change, schema, self._before, doubt, self._state.decided, self._policy)
        plan.stop = stop_before(step)
        if plan.stop is not None and plan.stop.ddl:
            _cut(plan, plan.stop.n)
        elif plan.stop is not None:
            self._pass_over()
        elif self._before is not None and step.why_other_columns is not None:
            self._empty(change, self._before)  # the snapshot has all rows under its own columns
        else:
            self._extend(change, schema)

    def _open(self, change: ChangeFile, schema: TableSchema) -> list[Doubt]:
        """Doubts that remain at a file; a snapshot that began after a doubt ends it."""
        is_anew = self._is_anew(schema)

        def is_ended(doubt: Doubt) -> bool:
            is_of_it = bool(doubt.oid) and doubt.oid == schema.oid
            if change.is_snapshot:
                return change.since_n >= doubt.n or is_of_it
            return is_anew and is_of_it and doubt.comes_whole

        return [doubt for doubt in self._doubts if doubt.n >= change.n or not is_ended(doubt)]

    def _is_anew(self, schema: TableSchema) -> bool:
        """Whether rows with a schema are of another table than those before."""
        return self._before is not None and not is_same_table(self._before, schema)

    def _is_covered(self, change: ChangeFile) -> bool:
        """Whether a snapshot of an earlier entry already has all changes of a file."""
        if self._plan.ignore_through is None or change.file.ops.get("R"):
            return False
        if self._landing.source_order[1] != "gd_lsn":
            return False
        return (change.epoch, change.file.last.lsn) <= self._plan.ignore_through

    def _pass_over(self) -> None:
        """Skip files up to a point at which the table is empty anyway; without such a point, stop before them.

        Such a point is its next snapshot, or the first change of another table with its name; neither
        leaves a doubt.
        """
        plan = self._plan
        for index in range(self._at, len(self._files)):
            change = self._files[index]
            schema = self._schemas[change.file.schema_id]
            if not (change.is_snapshot or self._is_anew(schema)):
                continue
            left = self._open(change, schema)
            if _first_of(left, change.n) is None:
                self._doubts = left
                plan.passed += self._files[self._at : index]
                plan.stop = None
                self._at = index
                if self._before is not None:
                    self._empty(change, self._before)
                return
        assert plan.stop is not None
        _cut(plan, plan.stop.n)

    def _empty(self, change: ChangeFile, before: TableSchema) -> None:
        """Add a reset: all rows of the previous version end."""
        make = snapshot_reset if change.is_snapshot else made_anew
        self._plan.eras.append(Era(before, {}, [], [make(self._landing, change)]))
        self._before = None

    def _extend(self, change: ChangeFile, schema: TableSchema) -> None:
        """Add a file, in a new era if other columns identify its rows."""
        plan, ignore = self._plan, self._plan.ignore_through
        is_after = self._before is not None and bool(plan.eras)
        if not is_after or not _is_one_era(plan.eras[-1].schema, schema):
            plan.eras.append(Era(schema, {}, [], []))
            if self._is_anew(schema):
                plan.eras[-1].resets.append(made_anew(self._landing, change))
        era = plan.eras[-1]
        era.schema = schema
        era.schemas[schema.schema_id] = schema
        era.files.append(dataclasses.replace(change, ignore_through=ignore))
        if change.file.ops.get("T"):
            era.resets += [
                reset
                for reset in read_truncates(self._landing, change)
                if ignore is None or reset.position[:2] > ignore
            ]
        if change.is_snapshot:
            reset = snapshot_reset(self._landing, change)
            if ignore is None or reset.position[:2] > ignore:
                era.resets.append(reset)
                plan.ignore_through = reset.position[:2]
        self._before = schema
        self._at += 1

    # ---- DDL commands ----------------------------------------------------------------

    def _follow(self, event: DdlEvent) -> None:
        """Let a DDL command change the table.

        Nothing happens where the table has no rows, is in doubt, or has a newer snapshot.
        """
        plan, before = self._plan, self._before
        if before is None or _first_of(self._doubts, event.n) is not None:
            return
        if plan.ignore_through is not None and event.place[:2] <= plan.ignore_through:
            return
        found = decide(before, event, self._policy)
        if found.stopped:
            _cut(plan, event.n - 1)
            held = plan.eras[-1].schema if plan.eras else self._state.schema
            old = "" if held is None else held.schema_id
            plan.stop = Stop(event.n - 1, old, "", found.why, ddl=found.stopped)
            return
        if found.why:
            waits = "is left to gaussdecode spark comments" if event.command_tag == "COMMENT" else (
                "waits for the next rows"
            )  # fmt: skip
            plan.waits.append(f"{before.title}: {event.told} {waits}: {found.why}")
        if found.schema is not None or found.comment is not None or found.empties:
            self._change(event, found, found.schema or before)

    def _change(self, event: DdlEvent, found: Decision, schema: TableSchema) -> None:
        """Add a DDL command that does something, and the schema after it."""
        plan = self._plan
        if not plan.eras or not _is_one_era(plan.eras[-1].schema, schema):
            plan.eras.append(Era(schema, {}, [], []))
        era = plan.eras[-1]
        era.schema = schema
        era.ddl.append((event.n, schema))
        if found.schema is not None:
            era.schemas[schema.schema_id] = plan.made[schema.schema_id] = schema
        if found.comment is not None:
            plan.comments.append((event.n, found.comment))
        if found.empties:
            at = dict(zip(("gd_epoch", "gd_lsn", "gd_seq"), event.place, strict=True))
            row = {"gd_csn": None, **event.stamps, **at, "gd_op": "T"}
            era.resets.append(reset_at(self._landing, row, event.n))
        self._before = schema


def _first_of(doubts: Sequence[Doubt], n: int) -> Doubt | None:
    """The first doubt before an entry."""
    return next((doubt for doubt in doubts if doubt.n < n), None)


def _is_before(event: DdlEvent, change: ChangeFile) -> bool:
    """Whether a command stands before the last row of a file."""
    if not change.n <= event.n <= change.last_n:
        return event.n < change.n
    last = change.file.last
    return event.place < (change.epoch, last.lsn, last.seq)


def _is_one_era(old: TableSchema, new: TableSchema) -> bool:
    return old.key_shape() == new.key_shape() and is_same_table(old, new)


def _cut(plan: TablePlan, n: int) -> None:
    """Drop everything after entry `n`."""
    plan.comments = [(at, comment) for at, comment in plan.comments if at <= n]
    for era in plan.eras:
        era.ddl = [(at, schema) for at, schema in era.ddl if at <= n]
        era.files = [change for change in era.files if change.n <= n]
        era.resets = [reset for reset in era.resets if reset.stamps["gd_n"] <= n]
        used = {change.file.schema_id for change in era.files}
        used |= {schema.schema_id for _, schema in era.ddl}
        era.schemas = {i: schema for i, schema in era.schemas.items() if i in used}
    plan.eras = [era for era in plan.eras if era.files or era.resets or era.ddl]
    for era in plan.eras:
        if era.files:
            era.schema = era.schemas[era.files[-1].file.schema_id]
        if era.ddl and (not era.files or era.ddl[-1][0] > era.files[-1].n):
            era.schema = era.ddl[-1][1]
