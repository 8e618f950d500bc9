"""Plan an apply: find the files of each table that landed since its last apply.

Given the commit log; promises exactly the files of its entries, or merged files in their place. They
are cut into *eras*; within an era the same columns identify a row. A gap stops the plan, unless it is
accepted.

A table stops alone before changes whose columns cannot be matched, and before a suspect entry that
names it, unless these are accepted. A later snapshot of the table goes over them, and so does another
table with its name. Other suspect entries are reported. Rows of a snapshot with a condition belong to
their position: a plan that does not reach it reports so.
"""

import dataclasses
import datetime as dt
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, Replacement
from gaussdecode.model.quarantine import ended_by
from gaussdecode.spark.log.change_file import (
    ALL_CSNS,
    ChangeFile,
    Numbering,
    in_order,
    is_ahead,
    replaces,
    since_n,
    windowed,
)
from gaussdecode.spark.log.ddl import DdlEvent, read_events
from gaussdecode.spark.log.events import STAMPS, Reset
from gaussdecode.spark.log.landing import Landing, data_kinds
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.log.row_probe import first_row, rows_of_op
from gaussdecode.spark.log.schema import TableSchema, is_same_table, why_inexact, why_unknown
from gaussdecode.spark.log.source_schemas import DiffersError, joined
from gaussdecode.spark.merge.on_ddl import (
    DEFAULT,
    IGNORE,
    NO_DDL,
    RENAME_TABLE,
    Comment,
    OnDdl,
    Policy,
    decide,
    why_stopped,
)
from gaussdecode.spark.merge.routes import Home, Routes
from gaussdecode.spark.target.decided import Decided, Stop

SYSTEM_TABLES: Final = frozenset({"gd_transactions", "gd_messages", "gd_ddl"})
UNTOLD: Final = (
    "rows of it were updated or deleted, and the stream does not say which, because the table has no "
    "replica identity. Give it a key or ALTER TABLE ... REPLICA IDENTITY FULL"
)
MIXED: Final = (
    "it was renamed there and back in one entry while its key changed, and which of its rows came last is "
    "not told. Snapshot it: gaussdecode snapshot"
)
_LANDED_STAMPS: Final = tuple(name for name in STAMPS if name != "gd_n")


@dataclasses.dataclass(slots=True)
class Era:
    """Files whose schemas identify rows by the same columns.

    Attributes:
        schema: the last schema; rows are converted to it.
        schemas: all schemas, by id.
        files: files in order of position.
        resets: resets in order of position.
        ddl: for each DDL command that changed the table: its entry, and the schema after it.
    """

    schema: TableSchema
    schemas: dict[str, TableSchema]
    files: list[ChangeFile]
    resets: list[Reset]
    ddl: list[tuple[int, TableSchema]] = dataclasses.field(default_factory=list)

    @property
    def may_move_unsent(self) -> bool:
        """Whether an update may change a key and lack a value."""
        return any(f.file.has_key_change for f in self.files) and any(
            f.file.has_unchanged for f in self.files
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Doubt:
    """A suspect entry that names a table.

    Attributes:
        n: number of the entry.
        why: the reason, in words.
        oid: OID of the table that took over its name, if any; else 0.
        comes_whole: whether the stream has all rows of that new table.
        source: source that changed its rows, if there are several; None for the only one.
        of: OID of the table itself; 0 where the entry does not tell.
        is_rename: nothing is said but that the table has rows under another name.
    """

    n: int
    why: str
    oid: int = 0
    comes_whole: bool = False
    source: str | None = None
    of: int = 0
    is_rename: bool = False

    @classmethod
    def from_entry(cls, entry: CommitEntry, table: str) -> "Doubt":
        """Read the doubt about a table from an entry."""
        said = entry.extra.get("changes", {}).get(table, {})
        why = said.get("text") or entry.extra.get("text", "")
        return cls(
            entry.n,
            str(why),
            int(said.get("oid") or 0),
            bool(said.get("comes_whole")),
            entry.extra.get("source"),
            int(said.get("table_oid") or 0),
            bool(said.get("is_rename")),
        )


@dataclasses.dataclass(slots=True)
class TablePlan:
    """The new changes of one table.

    Attributes:
        table: directory of the table.
        to: entry that it is applied up to.
        eras: eras in order; none if nothing changed.
        ignore_through: epoch and position that a snapshot already covers, or None.
        stop: the stop that ends it early, or None.
        passed: files that a snapshot replaces unread; for the changelog only.
        parts: with several sources, the plan of each by name; `eras` is then empty.
        schema: joint schema of the parts.
        made: schemas that no file has: those after a DDL command, by id.
        comments: comments that DDL commands set, with their entries.
        waits: DDL commands whose change is left to the next rows, with the reason.
    """

    table: str
    to: int
    eras: list[Era]
    ignore_through: tuple[int, ...] | None
    stop: Stop | None = None
    passed: list[ChangeFile] = dataclasses.field(default_factory=list)
    parts: dict[str, "TablePlan"] = dataclasses.field(default_factory=dict)
    schema: TableSchema | None = None
    made: dict[str, TableSchema] = dataclasses.field(default_factory=dict)
    comments: list[tuple[int, Comment]] = dataclasses.field(default_factory=list)
    waits: list[str] = dataclasses.field(default_factory=list)

    @property
    def landed(self) -> list[LandingFile]:
        """All its landed files, of all sources; those that are passed over come first."""
        parts = [self, *self.parts.values()]
        passed = [change.file for part in parts for change in part.passed]
        return [*passed, *(f.file for part in parts for era in part.eras for f in era.files)]

    @property
    def changed(self) -> dict[str | None, "TablePlan"]:
        """Plans to merge separately, by source: the parts with changes, or the whole table."""
        found = self.parts.items() if self.parts else [(None, self)]
        return {source: part for source, part in found if part.eras}


@dataclasses.dataclass(slots=True)
class Plan:
    """The new changes of all tables.

    Attributes:
        to: entry that it includes everything up to.
        tables: tables with changes, by directory.
        gap: number of a gap entry that stopped it, or None.
        early: number of its first snapshot entry with a condition whose rows' position it does not
            reach; None for none.
        accepted_gaps: numbers of accepted gap entries.
        suspects: numbers of suspect entries in it.
        doubts: suspect entries that name a table and are not accepted, by directory.
        quarantined: entry at which a table entered quarantine, by directory. Later changes of the
            table are not in the plan, until a snapshot of it.
        commit_time: commit time of its newest transaction.
        position: position of the source after it: epoch, LSN and CSN; None if nothing is new.
        part: CSN up to which it includes entry `to` + 1; None for nothing.
        on_ddl: its DDL commands, and what they do.
        waits: DDL commands whose change is left to the next rows, with the reason.
        moves: names in the landing that tables got, with their entries, by directory.
        names: see `Routes`.
    """

    to: int
    tables: dict[str, TablePlan] = dataclasses.field(default_factory=dict)
    gap: int | None = None
    early: int | None = None
    accepted_gaps: list[int] = dataclasses.field(default_factory=list)
    suspects: list[int] = dataclasses.field(default_factory=list)
    doubts: dict[str, list[Doubt]] = dataclasses.field(default_factory=dict)
    quarantined: dict[str, int] = dataclasses.field(default_factory=dict)
    commit_time: dt.datetime | None = None
    position: tuple[int, int, int | None] | None = None
    part: int | None = None
    on_ddl: OnDdl = dataclasses.field(default_factory=OnDdl)
    waits: list[str] = dataclasses.field(default_factory=list)
    moves: dict[str, list[tuple[int, str]]] = dataclasses.field(default_factory=dict)
    names: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Applied:
    """How far a table is applied.

    Attributes:
        n: applied up to this entry; -1 for nothing.
        schema: schema of its rows, or None.
        ignore_through: position that an earlier snapshot covers.
        decided: an operator's declarations about its columns.
        is_stopped: whether it is stopped before entry n + 1.
        part: CSN up to which entry n + 1 is applied too; 0 for nothing.
        ignored: `ignore_through` per source, if there are several.
        home: the table in the version of the database, or in the newest where that has none.
        held: names in the landing that the table got after the entry that it is stopped at.
    """

    n: int = -1
    schema: TableSchema | None = None
    ignore_through: tuple[int, ...] | None = None
    decided: Decided = dataclasses.field(default_factory=Decided)
    is_stopped: bool = False
    part: int = 0
    ignored: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    home: Home | None = None
    held: tuple[str, ...] = ()

    def of(self, source: str) -> Self:
        """The same for one of several sources."""
        schema = None if self.schema is None else self.schema.of(source)
        return dataclasses.replace(self, schema=schema, ignore_through=self.ignored.get(source))


@dataclasses.dataclass(frozen=True, slots=True)
class AllBut:
    """All tables, or some, except those that are left out.

    Attributes:
        left_out: directories that are left out.
        only: see `make_plan`.
    """

    left_out: Container[str]
    only: Container[str] | None = None

    def __contains__(self, table: object) -> bool:
        """Whether a table is included."""
        return table not in self.left_out and (self.only is None or table in self.only)


def unmoved(
    landing: Landing, stops: Mapping[str, Stop], decided: Mapping[str, Decided], after: int, to: int,
    *, accept_suspects: bool = False, policy: Policy = DEFAULT,
) -> set[str]:  # fmt: skip
    """Stopped tables that would stop again if their missing changes were read again.

    A snapshot, a change with another schema, or an operator's declaration ends a stop.

    Args:
        landing: landing to read.
        stops: stops of the tables.
        decided: an operator's declarations by now.
        after: entry up to which the stops were found.
        to: entry to go to.
        accept_suspects: see `make_plan`.
        policy: see `make_plan`.
    """
    found = {
        table: frozenset(stop.seen or ())
        for table, stop in stops.items()
        if not stop.may_move(
            decided[table], landing.first_n, policy, accept_suspects=accept_suspects
        )
    }
    if not found:
        return set()
    for entry in landing.entries(max(after + 1, landing.first_n), min(to + 1, landing.last_n)):
        moved = {
            file.table for file in entry.files if file.schema_id not in found.get(file.table, ())
        }
        if entry.kind is EntryKind.SNAPSHOT:
            moved |= {*entry.extra.get("snapshot", {}).get("tables", {})}
            moved |= {file.table for file in entry.files}
        for table in moved & found.keys():
            del found[table]
    return set(found)


def make_plan(
    landing: Landing,
    applied: Mapping[str, Applied],
    start: int,
    to: int,
    *,
    only: Container[str] | None = None,
    accept_gaps: bool = False,
    accept_suspects: bool = False,
    quarantined: Mapping[str, int] | None = None,
    part: int | None = None,
    policy: Policy = DEFAULT,
) -> Plan:
    """Read the log and make a plan.

    Args:
        landing: landing to read.
        applied: how far each known table is applied.
        start: entry up to which tables not in `applied` are complete; -1 for nothing.
        to: entry to go to.
        only: directories of the tables wanted; None for all.
        accept_gaps: accept gap entries, and entries that retention removed.
        accept_suspects: accept suspect entries that name a table.
        quarantined: tables that were in quarantine by `start`.
        part: include entry `to` + 1 up to this CSN; None to end with entry `to`.
        policy: what DDL commands do, by kind.

    Raises:
        LandingError: an entry is missing or damaged.
    """
    plan = Plan(to, quarantined=dict(quarantined or {}), on_ddl=OnDdl((), policy))
    homes = {table: of.home for table, of in applied.items() if of.home is not None}
    held = {table: of.held for table, of in applied.items() if of.held}
    lacking = _Lacking(applied, start, only)
    action = plan.on_ddl.policy[RENAME_TABLE]
    routes = Routes(landing, homes, held, action, is_wanted=lacking.is_wanted)
    lacking.begun, plan.moves = routes.begun, routes.moves
    first = lacking.first(landing)
    if accept_gaps and first + 1 < landing.first_n:
        plan.accepted_gaps.append(landing.first_n - 1)
        first = landing.first_n - 1
    log = _read_log(landing, plan, lacking, routes, first, accept_gaps, accept_suspects)
    plan.names = routes.names
    if part is not None and plan.gap is None and plan.to == to:
        _add_part(landing, plan, lacking, log.files, part)
    files = log.files
    is_by_lsn = landing.source_order[1] == "gd_lsn" and not landing.has_several
    if is_by_lsn:
        plan.on_ddl = OnDdl(log.ddl, policy)
        between = {table: [*plan.doubts.get(table, ()), *log.ddl] for table in files}
        files = merge_files(landing.root, files, log.compacts, tuple(log.numbering), between)
    changed = {t for t, of in applied.items() if lacking.is_wanted(t) and plan.on_ddl.of(of.schema)}
    ignoring = {**plan.on_ddl.policy, RENAME_TABLE: IGNORE}
    for table in sorted({*files, *(plan.doubts.keys() & applied.keys()), *changed}):
        state = applied.get(table, Applied())
        is_home = state.schema is None or routes.follows(table)
        planned = _plan_of(
            landing,
            table,
            files.get(table, []),
            state,
            plan,
            plan.on_ddl if is_home else dataclasses.replace(plan.on_ddl, policy=ignoring),
        )
        plan.waits += planned.waits
        if planned.changed or planned.stop is not None:
            plan.tables[table] = planned
    return plan


@dataclasses.dataclass(slots=True)
class _Lacking:
    """The changes that a plan has to bring.

    Attributes:
        applied: see `make_plan`, as for the others.
        start: see there.
        only: see there.
        begun: see `Routes`.
    """

    applied: Mapping[str, Applied]
    start: int
    only: Container[str] | None
    begun: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def is_wanted(self, table: str) -> bool:
        """Whether the plan is for a table too."""
        return table not in SYSTEM_TABLES and (self.only is None or table in self.only)

    def lacks(self, table: str, n: int) -> bool:
        """Whether a table lacks changes of an entry."""
        if table in self.applied:
            return n > self.applied[table].n
        return n > self.begun.get(table, self.start)

    def csn_before(self, table: str, n: int) -> int:
        """CSN up to which a table has the changes of an entry already; 0 for nothing."""
        held = self.applied.get(table, Applied())
        return held.part if n == held.n + 1 else 0

    def first(self, landing: Landing) -> int:
        """Entry up to which all wanted tables are complete."""
        held = landing.first_n - 1  # a table that stands still does not keep others from going on
        known = (
            max(state.n, held) if state.is_stopped else state.n
            for name, state in self.applied.items()
            if self.is_wanted(name)
        )
        return min([self.start, *known])


@dataclasses.dataclass(slots=True)
class _Log:
    """What was read of the log.

    Attributes:
        files: files that tables lack, by directory.
        compacts: entries with merged files.
        numbering: number, epoch and LSN of each entry of the plan.
        ddl: DDL commands, in order.
    """

    files: dict[str, list[ChangeFile]] = dataclasses.field(default_factory=dict)
    compacts: list[CommitEntry] = dataclasses.field(default_factory=list)
    numbering: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    ddl: list[DdlEvent] = dataclasses.field(default_factory=list)


def _read_log(
    landing: Landing,
    plan: Plan,
    lacking: _Lacking,
    routes: Routes,
    first: int,
    accept_gaps: bool,
    accept_suspects: bool,
) -> _Log:
    """Read the entries after `first`, and note in the plan what they say."""
    log = _Log()
    chosen: list[ChangeFile] = []
    doubts: list[tuple[str, Doubt, str]] = []
    reached: CommitEntry | None = None
    for entry in landing.entries(first + 1, landing.last_n):
        if entry.kind is EntryKind.COMPACT:
            log.compacts.append(entry)
        if not _is_planned(plan, entry, accept_gaps=accept_gaps):
            continue
        _note(plan, entry, landing)
        if not accept_suspects:
            doubts += [(*of, routes.named(of[0])) for of in _doubts_of(entry)]
        reached = entry
        where = landing.position(entry)
        log.numbering.append((entry.n, where.epoch, where.lsn))
        events = [event for event in read_events(landing, entry) if event.oid is not None]
        log.ddl += events
        for table, found in _files_of(landing, entry, plan, lacking, routes, events).items():
            if lacking.lacks(table, entry.n):
                chosen += [change for change in found if change.is_chosen]
                after = lacking.csn_before(table, entry.n)
                log.files.setdefault(table, []).extend(windowed(landing, found, after, ALL_CSNS))
    for name, doubt, then in doubts:
        for table in routes.doubted(name, then, doubt):
            if lacking.lacks(table, doubt.n) and lacking.is_wanted(table):
                plan.doubts.setdefault(table, []).append(doubt)
    plan.early = min((of.n for of in chosen if is_ahead(landing, of, reached)), default=None)
    return log


def _add_part(
    landing: Landing,
    plan: Plan,
    lacking: _Lacking,
    files: dict[str, list[ChangeFile]],
    csn: int,
) -> None:
    """Include the part of the next entry up to a CSN."""
    entry = landing.entry(plan.to + 1)
    for table, found in _files_of(landing, entry, plan, lacking, Routes(landing), ()).items():
        if lacking.lacks(table, entry.n):
            taken = windowed(landing, found, lacking.csn_before(table, entry.n), csn)
            if taken:
                files.setdefault(table, []).extend(taken)
    plan.part = csn
    lsn = 0 if plan.position is None else plan.position[1]
    plan.position = (landing.position(entry).epoch, lsn, csn)


def _plan_of(
    landing: Landing, table: str, files: list[ChangeFile], state: Applied, plan: Plan, on_ddl: OnDdl
) -> TablePlan:
    """Plan a table, of one source or several."""
    make = plan_sources if landing.has_several else plan_table
    name = table if state.home is None else state.home.name
    names = {name, *(moved for _, moved in plan.moves.get(table, ()))}
    out = [plan.quarantined[of] for of in names & plan.quarantined.keys()]
    if out:
        left = [event for event in on_ddl.events if event.n < min(out)]
        on_ddl = dataclasses.replace(on_ddl, events=left)
    planned = make(landing, table, files, state, plan.to, plan.doubts.get(table, ()), on_ddl)
    if planned.stop is not None:
        seen = tuple(sorted({change.file.schema_id for change in files}))
        decided = len(state.decided.changes)
        home = None
        if state.schema is None and files:
            first = files[0].file
            home = int(landing.schema_record(first.table, first.schema_id)["oid"]), first.table
        elif state.schema is None and state.home is not None:
            home = state.home.oid, state.home.name
        planned.stop = dataclasses.replace(planned.stop, seen=seen, decided=decided, home=home)
    return planned


def _is_planned(plan: Plan, entry: CommitEntry, *, accept_gaps: bool) -> bool:
    """Whether the plan reaches an entry; a gap ends it before."""
    if entry.n > plan.to:
        return False
    if entry.kind is EntryKind.GAP and not accept_gaps:
        plan.gap, plan.to = entry.n, entry.n - 1
        return False
    return True


def _note(plan: Plan, entry: CommitEntry, landing: Landing) -> None:
    if entry.kind is EntryKind.GAP:
        plan.accepted_gaps.append(entry.n)
    if entry.kind is EntryKind.SUSPECT:
        plan.suspects.append(entry.n)
    if entry.kind is EntryKind.QUARANTINE:
        for table in entry.extra["tables"]:
            plan.quarantined.setdefault(table, entry.n)
    for table in ended_by(entry):
        plan.quarantined.pop(table, None)
    if entry.commit_time is not None:
        plan.commit_time = max(plan.commit_time or entry.commit_time, entry.commit_time)
    where = landing.position(entry)
    plan.position = (where.epoch, where.lsn, where.csn)


def _doubts_of(entry: CommitEntry) -> list[tuple[str, Doubt]]:
    """The doubts of a suspect entry about tables that it names; none if it may mean any table."""
    if entry.kind is not EntryKind.SUSPECT or entry.extra.get("is_any_table", True):
        return []
    return [(table, Doubt.from_entry(entry, table)) for table in entry.extra.get("tables", ())]


def _files_of(
    landing: Landing,
    entry: CommitEntry,
    plan: Plan,
    lacking: _Lacking,
    routes: Routes,
    events: Sequence[DdlEvent],
) -> dict[str, list[ChangeFile]]:
    """Files of an entry by the directory that their rows go to, in the order of their first rows.

    Of a table in quarantine there are none: a snapshot brings all rows anew.
    """
    found: dict[str, list[ChangeFile]] = {}
    if not data_kinds(entry):
        return found
    left = list(events)
    files: Sequence[LandingFile] = entry.files
    if left or plan.moves:
        files = sorted(files, key=lambda file: (file.first.lsn, file.first.seq))
    for file in files:
        if file.table in SYSTEM_TABLES:
            continue
        while left and left[0].place[1:] < (file.first.lsn, file.first.seq):
            routes.follow(left.pop(0))
        table = routes.target_of(file, entry.n)
        if lacking.is_wanted(table) and file.table not in plan.quarantined:
            change = ChangeFile(
                entry.n, entry.n, replaces(entry, file.table), file,
                epoch=landing.position(entry, file.source).epoch,
                since_n=since_n(entry, file.table),
            )  # fmt: skip
            found.setdefault(table, []).append(change)
    for event in left:
        routes.follow(event)
    return {table: _with_overlaps(landing, changes) for table, changes in found.items()}


def _with_overlaps(landing: Landing, changes: list[ChangeFile]) -> list[ChangeFile]:
    """Mark files of a table that was renamed there and back within an entry, if its key changed meanwhile."""
    if len({change.file.table for change in changes}) == 1:
        return changes

    def key(file: LandingFile) -> object:
        return landing.schema_record(file.table, file.schema_id)["key"]

    def overlaps(one: LandingFile, other: LandingFile) -> bool:
        return one.first < other.last and other.first < one.last and key(one) != key(other)

    files = [change.file for change in changes]
    return [
        dataclasses.replace(change, is_mixed=True)
        if any(overlaps(change.file, file) for file in files)
        else change
        for change in changes
    ]


def merge_files(
    root: Place,
    files: dict[str, list[ChangeFile]],
    compacts: list[CommitEntry],
    numbering: Numbering,
    between: Mapping[str, Sequence[Doubt | DdlEvent]] = MappingProxyType({}),
) -> dict[str, list[ChangeFile]]:
    """Replace files by merged files, if all files that these replace are wanted.

    A merged file is not used if something of `between` is in its entries.
    """
    tables = {change.file.path: table for table, found in files.items() for change in found}
    merged: dict[str, ChangeFile] = {}
    for entry in compacts:
        described = {file.path: file for file in entry.files}
        for item in entry.replaced:
            if len(of := {tables.get(path) for path in item.replaced}) != 1 or None in of:
                continue
            merged_file, table = described[item.path], tables[item.replaced[0]]
            if _is_parted(files[table], item, merged_file.schema_id, between.get(table, ())):
                continue
            if (root / item.path).is_file():
                span = tuple(x for x in numbering if item.first_n <= x[0] <= item.last_n)
                change = ChangeFile(
                    item.first_n,
                    item.last_n,
                    False,
                    merged_file,
                    span,
                    epoch=max((x[1] for x in span), default=0),
                )
                merged.update(dict.fromkeys(item.replaced, change))
    return {table: _replaced(found, merged) for table, found in files.items()}


def _is_parted(
    files: list[ChangeFile], item: Replacement, schema_id: str,
    between: Sequence[Doubt | DdlEvent],
) -> bool:  # fmt: skip
    """Whether a snapshot, a doubt, a DDL command or another schema separates two files."""
    return any(item.first_n <= of.n <= item.last_n for of in between) or any(
        item.first_n <= f.n <= item.last_n and (f.is_snapshot or f.file.schema_id != schema_id)
        for f in files
    )


def _replaced(files: list[ChangeFile], merged: dict[str, ChangeFile]) -> list[ChangeFile]:
    result: dict[str, ChangeFile] = {}
    for change in files:
        chosen = merged.get(change.file.path, change)
        result.setdefault(chosen.file.path, chosen)
    return list(result.values())


def plan_table(
    landing: Landing,
    table: str,
    files: list[ChangeFile],
    state: Applied,
    to: int,
    doubts: Sequence[Doubt] = (),
    on_ddl: OnDdl = NO_DDL,
) -> TablePlan:
    """Cut the files of a table into eras and find where it became empty."""
    ordered = in_order(landing, files)
    schemas = {
        schema_id: TableSchema.from_record(
            schema_id,
            landing.schema_record(directory, schema_id),
            state.decided.numbers.get(schema_id),
        )
        for schema_id, directory in {c.file.schema_id: c.file.table for c in ordered}.items()
    }
    plan = TablePlan(table, to, [], state.ignore_through)
    before = state.schema
    index = 0
    left = list(doubts)
    events = [event for event in on_ddl.events if state.n < event.n <= to]
    if state.is_stopped and state.n + 1 < landing.first_n:
        plan.stop = Stop(state.n, "", "", f"retention has taken its changes after {state.n}")
        index = _pass_over(landing, plan, ordered, 0, before, schemas, left)
        before = None
    while index < len(ordered):
        change = ordered[index]
        schema = schemas[change.file.schema_id]
        while plan.stop is None and events and _is_before(events[0], change):
            before = _follow_ddl(landing, plan, state, before, events.pop(0), left, on_ddl.policy)
        if plan.stop is not None:
            break
        left = _open(left, change, schema, before)
        doubt = _first_of(left, change.n)
        if doubt is None and _is_covered(landing, plan, change):
            plan.passed.append(change)
            index += 1
            continue
        step = Step(change, schema, before, doubt, state.decided, on_ddl.policy)
        plan.stop = _stop_before(step)
        if plan.stop is not None and plan.stop.ddl:
            _cut(plan, plan.stop.n)
            break
        if plan.stop is not None:
            index = _pass_over(landing, plan, ordered, index, before, schemas, left)
            before = None
        elif before is not None and step.why_other_columns is not None:
            _empty(landing, plan, change, before)  # the snapshot has all rows under its own columns
            before = None
        else:
            _extend(landing, plan, change, schema, before)
            before = schema
            index += 1
    while plan.stop is None and events:
        before = _follow_ddl(landing, plan, state, before, events.pop(0), left, on_ddl.policy)
    if plan.stop is None and left and before is not None:
        plan.stop = Stop(left[0].n - 1, before.schema_id, "", left[0].why, is_suspect=True)
    for era in plan.eras:
        era.resets = sorted(era.resets, key=lambda reset: reset.place)
    if plan.stop is not None:
        plan.to = plan.stop.n
    return plan


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A file of a table, and what stands before it.

    Attributes:
        change: the file.
        schema: schema of its rows.
        before: schema of the rows before it; None where the table is empty or stopped there.
        doubt: the first suspect entry before the file that nothing has ended; None for none.
        decided: an operator's declarations about the columns.
        policy: what changes of columns do, by kind.
    """

    change: ChangeFile
    schema: TableSchema
    before: TableSchema | None
    doubt: Doubt | None
    decided: Decided
    policy: Policy = dataclasses.field(default_factory=lambda: DEFAULT)

    @property
    def why_other_columns(self) -> str | None:
        """Why the rows before cannot continue under the schema of the file; None if they can."""
        before, schema = self.before, self.schema
        if before is None:
            return None
        why = why_unknown(before, schema) or why_inexact(before, schema)
        if why is not None or before.schema_id == schema.schema_id:
            return why
        is_said = not {before.schema_id, schema.schema_id}.isdisjoint(self.decided.numbers)
        is_known = (self.change.n, before.schema_id, schema.schema_id) in self.decided.changes
        if is_said and not is_known and is_same_table(before, schema):
            return "the declaration about its columns is for another schema change"
        return None

    def stop(self, why: str) -> Stop:
        """A stop before the entry of the file."""
        old = "" if self.before is None else self.before.schema_id
        return Stop(self.change.n - 1, old, self.schema.schema_id, why)


def _suspect(step: Step) -> Stop | None:
    """Rows before the file may be wrong."""
    if step.doubt is None:
        return None
    stop = step.stop(step.doubt.why)
    return dataclasses.replace(stop, n=step.doubt.n - 1, is_suspect=True)


def _untold(step: Step) -> Stop | None:
    """Rows change, and the stream does not say which.

    PostgreSQL refuses such changes of a published table; GaussDB sends them.
    """
    ops = step.change.file.ops
    has_changes = bool(ops.get("U") or ops.get("D"))
    is_told = any(column.identity for column in step.schema.columns)
    return step.stop(UNTOLD) if has_changes and not is_told else None


def _mixed(step: Step) -> Stop | None:
    """Files under several keys overlap."""
    return step.stop(MIXED) if step.change.is_mixed else None


def _other_columns(step: Step) -> Stop | None:
    """The rows before cannot continue, and the file does not bring all rows anew."""
    why = step.why_other_columns
    return None if why is None or step.change.is_snapshot else step.stop(why)


def _not_wanted(step: Step) -> Stop | None:
    """The columns change in a way that ``--on-ddl`` stops at."""
    before, schema, n = step.before, step.schema, step.change.n
    if before is None or not is_same_table(before, schema) or why_unknown(before, schema):
        return None
    where = f"the rows of entry {n} have other columns"
    kinds, why = why_stopped(before, schema, step.policy, where)
    return dataclasses.replace(step.stop(why), ddl=kinds) if kinds else None


_STOPS: Final = (_suspect, _untold, _mixed, _not_wanted, _other_columns)
"""Why a table stops before a file; the first that applies is told."""


def _stop_before(step: Step) -> Stop | None:
    return next((stop for rule in _STOPS if (stop := rule(step)) is not None), None)


def _open(
    doubts: list[Doubt], change: ChangeFile, schema: TableSchema, before: TableSchema | None
) -> list[Doubt]:
    """Doubts that remain at a file; a snapshot that began after a doubt ends it."""
    is_anew = before is not None and not is_same_table(before, schema)

    def is_ended(doubt: Doubt) -> bool:
        is_of_it = bool(doubt.oid) and doubt.oid == schema.oid
        if change.is_snapshot:
            return change.since_n >= doubt.n or is_of_it
        return is_anew and is_of_it and doubt.comes_whole

    return [doubt for doubt in doubts if doubt.n >= change.n or not is_ended(doubt)]


def _first_of(doubts: Sequence[Doubt], n: int) -> Doubt | None:
    """The first doubt before an entry."""
    return next((doubt for doubt in doubts if doubt.n < n), None)


def plan_sources(
    landing: Landing,
    table: str,
    files: list[ChangeFile],
    state: Applied,
    to: int,
    doubts: Sequence[Doubt] = (),
    on_ddl: OnDdl = NO_DDL,
) -> TablePlan:
    """Plan a table of several sources: each source alone, as long as they are one table."""
    parts = _plan_parts(landing, table, files, state, to, doubts, on_ddl)
    stops = [
        dataclasses.replace(part.stop, why=f"source {source}: {part.stop.why}")
        for source, part in parts.items()
        if part.stop is not None
    ]
    stop = min(stops, key=lambda stop: stop.n, default=None)
    if stop is not None:
        parts = _plan_parts(landing, table, _until(files, stop.n), state, stop.n, doubts, on_ddl)
    schema, apart = _follow(parts, state.schema)
    if apart is not None:
        stop = apart
        parts = _plan_parts(landing, table, _until(files, stop.n), state, stop.n, doubts, on_ddl)
    end = to if stop is None else stop.n
    return TablePlan(table, end, [], None, stop, parts=parts, schema=schema)


def _plan_parts(
    landing: Landing,
    table: str,
    files: Sequence[ChangeFile],
    state: Applied,
    to: int,
    doubts: Sequence[Doubt],
    on_ddl: OnDdl,
) -> dict[str, TablePlan]:
    return {
        source: plan_table(
            landing,
            table,
            [change for change in files if change.file.source == source],
            state.of(source),
            to,
            [doubt for doubt in doubts if doubt.n <= to and doubt.source in (None, source)],
            on_ddl,
        )
        for source in landing.sources
    }


def _until(files: Sequence[ChangeFile], n: int) -> list[ChangeFile]:
    return [change for change in files if change.n <= n]


def _follow(
    parts: Mapping[str, TablePlan], before: TableSchema | None
) -> tuple[TableSchema | None, Stop | None]:
    """Join the versions of all sources from entry to entry.

    Returns:
        The last joint schema; and the stop at which they had no joint schema any more, unless they have
        one at the end.
    """
    versions = {} if before is None else {str(part.source): part for part in before.parts}
    schema, stop = before, None
    for n, changed in sorted(_changes_of(parts, versions).items()):
        versions |= changed
        try:
            schema, stop = joined(versions, schema), None
        except DiffersError as error:
            new = next(iter(changed.values())).schema_id
            stop = Stop(n - 1 if stop is None else stop.n, "", new, str(error))
    return schema, stop


def _changes_of(
    parts: Mapping[str, TablePlan], versions: Mapping[str, TableSchema]
) -> dict[int, dict[str, TableSchema]]:
    """Schema versions that begin at each entry, by source."""
    found: dict[int, dict[str, TableSchema]] = {}
    for source, part in parts.items():
        held = versions.get(source)
        for era in part.eras:
            for change in era.files:
                schema = era.schemas[change.file.schema_id]
                if held is None or held.schema_id != schema.schema_id:
                    found.setdefault(change.n, {})[source] = schema
                held = schema
    return found


def _is_covered(landing: Landing, plan: TablePlan, change: ChangeFile) -> bool:
    """Whether a snapshot of an earlier entry already has all changes of a file."""
    if plan.ignore_through is None or change.file.ops.get("R"):
        return False
    if landing.source_order[1] != "gd_lsn":
        return False
    return (change.epoch, change.file.last.lsn) <= plan.ignore_through


def _pass_over(
    landing: Landing,
    plan: TablePlan,
    ordered: list[ChangeFile],
    index: int,
    before: TableSchema | None,
    schemas: Mapping[str, TableSchema],
    doubts: list[Doubt],
) -> int:
    """Skip files up to a point at which the table is empty anyway; without such a point, stop before them.

    Such a point is its next snapshot, or the first change of another table with its name; neither
    leaves a doubt.
    """
    for later in range(index, len(ordered)):
        change = ordered[later]
        schema = schemas[change.file.schema_id]
        is_anew = before is not None and not is_same_table(before, schema)
        if not (change.is_snapshot or is_anew):
            continue
        left = _open(doubts, change, schema, before)
        if _first_of(left, change.n) is None:
            doubts[:] = left
            plan.passed += ordered[index:later]
            plan.stop = None
            if before is not None:
                _empty(landing, plan, change, before)
            return later
    assert plan.stop is not None
    _cut(plan, plan.stop.n)
    return len(ordered)


def _empty(landing: Landing, plan: TablePlan, change: ChangeFile, before: TableSchema) -> None:
    """Add a reset: all rows of the previous version end."""
    made = _snapshot_reset if change.is_snapshot else _made_anew
    plan.eras.append(Era(before, {}, [], [made(landing, change)]))


def _is_before(event: DdlEvent, change: ChangeFile) -> bool:
    """Whether a command stands before the last row of a file."""
    if not change.n <= event.n <= change.last_n:
        return event.n < change.n
    last = change.file.last
    return event.place < (change.epoch, last.lsn, last.seq)


def _follow_ddl(
    landing: Landing, plan: TablePlan, state: Applied, before: TableSchema | None, event: DdlEvent,
    doubts: Sequence[Doubt], policy: Policy,
) -> TableSchema | None:  # fmt: skip
    """Let a DDL command change a table; return the table's schema after it.

    Nothing happens where the table has no rows, is in doubt, or has a newer snapshot.
    """
    if before is None or _first_of(doubts, event.n) is not None:
        return before
    if plan.ignore_through is not None and event.place[:2] <= plan.ignore_through:
        return before
    found = decide(before, event, policy)
    if found.stopped:
        _cut(plan, event.n - 1)
        held = plan.eras[-1].schema if plan.eras else state.schema
        old = "" if held is None else held.schema_id
        plan.stop = Stop(event.n - 1, old, "", found.why, ddl=found.stopped)
        return before
    if found.why:
        waits = "is left to gaussdecode spark comments" if event.command_tag == "COMMENT" else (
            "waits for the next rows"
        )  # fmt: skip
        plan.waits.append(f"{before.title}: {event.told} {waits}: {found.why}")
    schema = found.schema or before
    if found.schema is None and found.comment is None and not found.empties:
        return before
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
        era.resets.append(
            _reset(landing, {"gd_csn": None, **event.stamps, **at, "gd_op": "T"}, event.n)
        )
    return schema


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


def _extend(
    landing: Landing,
    plan: TablePlan,
    change: ChangeFile,
    schema: TableSchema,
    before: TableSchema | None,
) -> None:
    """Add a file, in a new era if other columns identify its rows."""
    eras, ignore = plan.eras, plan.ignore_through
    is_after = before is not None and bool(eras)
    if not is_after or not _is_one_era(eras[-1].schema, schema):
        eras.append(Era(schema, {}, [], []))
        if before is not None and not is_same_table(before, schema):
            eras[-1].resets.append(_made_anew(landing, change))
    era = eras[-1]
    era.schema = schema
    era.schemas[schema.schema_id] = schema
    era.files.append(dataclasses.replace(change, ignore_through=ignore))
    if change.file.ops.get("T"):
        era.resets += [
            reset
            for reset in read_truncates(landing, change)
            if ignore is None or reset.position[:2] > ignore
        ]
    if change.is_snapshot:
        reset = _snapshot_reset(landing, change)
        if ignore is None or reset.position[:2] > ignore:
            era.resets.append(reset)
            plan.ignore_through = reset.position[:2]


def _is_one_era(old: TableSchema, new: TableSchema) -> bool:
    return old.key_shape() == new.key_shape() and is_same_table(old, new)


def read_truncates(landing: Landing, change: ChangeFile) -> list[Reset]:
    """Read the truncate markers of a file."""
    found = rows_of_op(landing.root / change.file.path, "T", _LANDED_STAMPS)
    after, until = change.window or (-1, ALL_CSNS)
    return [
        _reset(landing, row, number_of(row, change))
        for row in found
        if after < (row["gd_csn"] or 0) <= until
    ]


def number_of(row: dict[str, Any], change: ChangeFile) -> int:  # Any: a landed row
    """Number of the entry that a row landed with."""
    for n, epoch, lsn in change.numbering:
        if (row["gd_epoch"], row["gd_lsn"]) <= (epoch, lsn):
            return n
    return change.n


def _reset(landing: Landing, row: dict[str, Any], n: int) -> Reset:  # Any: a landed row
    position = tuple(row[name] or 0 for name in landing.source_order)
    return Reset(position, {**row, "gd_n": n})


def _first_row(landing: Landing, change: ChangeFile) -> dict[str, Any]:  # Any: a landed row
    return first_row(landing.root / change.file.path, landing.source_order, _LANDED_STAMPS)


def _made_anew(landing: Landing, change: ChangeFile) -> Reset:
    return _reset(landing, {**_first_row(landing, change), "gd_op": "T"}, change.n)


def _snapshot_reset(landing: Landing, change: ChangeFile) -> Reset:
    """The reset of a snapshot: it removes everything up to its position; its own rows follow."""
    row = {**_first_row(landing, change), "gd_seq": -1, "gd_op": "R"}
    return _reset(landing, row, change.n)
