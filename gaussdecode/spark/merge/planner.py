"""Make the plan of an apply: find the files of each table that landed since its last apply.

Given the commit log; promises exactly the files of its entries, or merged files in their place. A gap stops
the plan, unless it is accepted. Suspect entries that may mean any table are reported. Rows of a snapshot
with a condition belong to their position: a plan that does not reach it reports so.
"""

import dataclasses
from collections.abc import Collection, Container, Mapping, Sequence

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile
from gaussdecode.model.quarantine import DROPPED, ended_by, oids_read_by
from gaussdecode.spark.log.change_file import (
    ALL_CSNS,
    ChangeFile,
    is_ahead,
    replaces,
    since_n,
    windowed,
)
from gaussdecode.spark.log.ddl import DdlEvent, read_events
from gaussdecode.spark.log.landing import Landing, data_kinds
from gaussdecode.spark.merge.merged_files import merge_files
from gaussdecode.spark.merge.on_ddl import DEFAULT, IGNORE, RENAME_TABLE, OnDdl, Policy
from gaussdecode.spark.merge.plan import SYSTEM_TABLES, Applied, Doubt, Plan, TablePlan
from gaussdecode.spark.merge.routes import Routes
from gaussdecode.spark.merge.source_plans import plan_sources
from gaussdecode.spark.merge.table_plan import TableChanges, plan_table


def make_plan(
    landing: Landing,
    applied: Mapping[str, Applied],
    start: int,
    to: int,
    *,
    only: Container[str] | None = None,
    left_out: Container[str] = (),
    accept_gaps: bool = False,
    accept_suspects: bool = False,
    quarantined: Mapping[str, int] | None = None,
    withheld: Collection[str] | None = None,
    known: Mapping[str, tuple[int, int]] | None = None,
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
        left_out: directories of tables that are not wanted.
        accept_gaps: accept gap entries, and entries that retention removed.
        accept_suspects: accept suspect entries that name a table.
        quarantined: tables that were in quarantine by `start`.
        withheld: see `Plan`; None if unknown.
        known: see `Plan`; None for nothing.
        part: include entry `to` + 1 up to this CSN; None to end with entry `to`.
        policy: what DDL commands do, by kind.

    Raises:
        LandingError: an entry is missing or damaged.
    """
    plan = Plan(to, quarantined=dict(quarantined or {}), on_ddl=OnDdl((), policy))
    lacking = _Lacking(applied, start, only, left_out)
    plan.withheld |= set(plan.quarantined if withheld is None else withheld)
    routes = _routes_of(landing, plan, lacking)
    _shut_earlier(plan, known or {}, landing, routes)
    first = lacking.first(landing)
    if accept_gaps and first + 1 < landing.first_n:
        plan.accepted_gaps.append(landing.first_n - 1)
        first = landing.first_n - 1
    log = _read_log(landing, plan, lacking, routes, first, accept_gaps, accept_suspects)
    plan.names = routes.names
    if part is not None and plan.gap is None and plan.to == to:
        _add_part(landing, plan, lacking, log.files, part)
    files = log.files
    if landing.source_order[1] == "gd_lsn" and not landing.has_several:
        plan.on_ddl = OnDdl(log.ddl, policy)
        between = {table: [*plan.doubts.get(table, ()), *log.ddl] for table in files}
        files = merge_files(landing.root, files, log.compacts, tuple(log.numbering), between)
    _plan_tables(landing, plan, lacking, routes, files)
    return plan


def _routes_of(landing: Landing, plan: Plan, lacking: "_Lacking") -> Routes:
    """The directories that rows go to; what they find while the log is read is noted in plan and `lacking`."""
    homes = {table: of.home for table, of in lacking.applied.items() if of.home is not None}
    held = {table: of.held for table, of in lacking.applied.items() if of.held}
    action = plan.on_ddl.policy[RENAME_TABLE]
    routes = Routes(landing, homes, held, action, is_wanted=lacking.is_wanted)
    lacking.begun, plan.moves = routes.begun, routes.moves
    return routes


def _plan_tables(
    landing: Landing,
    plan: Plan,
    lacking: "_Lacking",
    routes: Routes,
    files: Mapping[str, list[ChangeFile]],
) -> None:
    """Plan each table that has files, a doubt or a DDL command."""
    applied, on_ddl = lacking.applied, plan.on_ddl
    changed = {t for t, of in applied.items() if lacking.is_wanted(t) and on_ddl.of(of.schema)}
    ignoring = dataclasses.replace(on_ddl, policy={**on_ddl.policy, RENAME_TABLE: IGNORE})
    for table in sorted({*files, *(plan.doubts.keys() & applied.keys()), *changed}):
        state = applied.get(table, Applied())
        is_home = state.schema is None or routes.follows(table)
        found = files.get(table, [])
        planned = _plan_of(landing, table, found, state, plan, on_ddl if is_home else ignoring)
        plan.waits += planned.waits
        if planned.changed or planned.stop is not None:
            plan.tables[table] = planned


@dataclasses.dataclass(slots=True)
class _Lacking:
    """The changes that a plan has to bring.

    Attributes:
        applied: see `make_plan`, as for the others.
        start: see there.
        only: see there.
        left_out: see there.
        begun: see `Routes`.
    """

    applied: Mapping[str, Applied]
    start: int
    only: Container[str] | None
    left_out: Container[str]
    begun: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def is_wanted(self, table: str) -> bool:
        """Whether the plan is for a table too."""
        is_asked = self.only is None or table in self.only
        return is_asked and table not in SYSTEM_TABLES and table not in self.left_out

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
        _note(plan, entry, landing, routes)
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
    landing: Landing, plan: Plan, lacking: _Lacking, files: dict[str, list[ChangeFile]], csn: int
) -> None:
    """Include the part of the next entry up to a CSN."""
    entry = landing.entry(plan.to + 1)
    routes = Routes(landing)
    for table, (_, oid) in plan.known.items():
        routes.shut(table, oid)
    for table, found in _files_of(landing, entry, plan, lacking, routes, ()).items():
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
    name = table if state.home is None else state.home.name
    names = {name, *(moved for _, moved in plan.moves.get(table, ()))}
    oid = 0 if state.home is None else state.home.oid
    stopped = {of: plan.known.get(of, (0, 0))[1] for of in names & plan.quarantined.keys()}
    out = [plan.quarantined[of] for of, known in stopped.items() if known in (0, oid) or not oid]
    if out:
        left = [event for event in on_ddl.events if event.n < min(out)]
        on_ddl = dataclasses.replace(on_ddl, events=left)
    doubts = plan.doubts.get(table, ())
    changes = TableChanges(landing, table, files, state, plan.to, doubts, on_ddl)
    planned = plan_sources(changes) if landing.has_several else plan_table(changes)
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


def _note(plan: Plan, entry: CommitEntry, landing: Landing, routes: Routes) -> None:
    if entry.kind is EntryKind.GAP:
        plan.accepted_gaps.append(entry.n)
    if entry.kind is EntryKind.SUSPECT:
        plan.suspects.append(entry.n)
    if entry.kind is EntryKind.QUARANTINE:
        stopped = _stopped_by(entry, landing)
        for table in entry.extra["tables"]:
            is_of_another = stopped is not None and plan.known.get(table, stopped) != stopped
            if table not in plan.quarantined or is_of_another:
                plan.quarantined[table] = entry.n
                _shut(plan, table, stopped, routes)
    read = _read_ones(plan, entry)
    for table in {*ended_by(entry), *(read - plan.withheld)} & plan.quarantined.keys():
        del plan.quarantined[table]
        plan.known.pop(table, None)
        plan.withheld.discard(table)
        plan.read_since.discard(table)
        routes.open(table)
    plan.read_since |= read & plan.known.keys()  # it is for the name now, until a snapshot under it
    if entry.commit_time is not None:
        plan.commit_time = max(plan.commit_time or entry.commit_time, entry.commit_time)
    where = landing.position(entry)
    plan.position = (where.epoch, where.lsn, where.csn)


def _shut(plan: Plan, table: str, stopped: tuple[int, int] | None, routes: Routes) -> None:
    """Note which table stopped: its epoch and OID; None if nothing tells."""
    if stopped is not None:
        plan.known[table] = stopped
        routes.shut(table, stopped[1])


def _shut_earlier(
    plan: Plan, known: Mapping[str, tuple[int, int]], landing: Landing, routes: Routes
) -> None:
    """The same for tables that were in quarantine by the start."""
    for table, n in plan.quarantined.items():
        stopped = known.get(table)  # the entry goes with retention
        if stopped is None and n >= landing.first_n:
            stopped = _stopped_by(landing.entry(n), landing)
            plan.read_since.add(table)  # nobody wrote down that it was not
        _shut(plan, table, stopped, routes)


def _stopped_by(entry: CommitEntry, landing: Landing) -> tuple[int, int] | None:
    """Epoch and OID of the table that stopped with an entry; None if it has no OID, or of several sources."""
    oid = int(entry.extra.get("oid") or 0)
    return (landing.position(entry).epoch, oid) if oid and not landing.has_several else None


def _read_ones(plan: Plan, entry: CommitEntry) -> set[str]:
    """Tables in quarantine that an entry has whole, maybe under another name."""
    return {of for of, (then, oid) in plan.known.items() if oid in oids_read_by(entry, then)}


def _is_out(
    landing: Landing, entry: CommitEntry, plan: Plan, routes: Routes, file: LandingFile
) -> bool:
    """Whether a file is of a table in quarantine, or may be: nothing tells that another has the name."""
    stopped, now = plan.known.get(file.table), landing.position(entry).epoch
    own = routes.oid(file) if plan.known else 0
    its = {of for of, known in plan.known.items() if known == (now, own)} - plan.read_since
    if its - {file.table} and not _is_dropped(entry, file):
        if file.table not in ended_by(entry):
            return True  # under whatever name
        plan.read_since |= its  # only its schema tells what a snapshot read
    if stopped is None or file.table not in plan.quarantined:
        return file.table in plan.quarantined
    then, oid = stopped
    if own and now == then and own != oid:
        return False
    if (now, own) != stopped:
        plan.withheld.add(file.table)
    return True


def _is_dropped(entry: CommitEntry, file: LandingFile) -> bool:
    """Whether an entry says that the source has no table of the name of a file any more."""
    said = entry.extra.get("snapshot", {}).get("tables", {})
    return bool(said.get(file.table, {}).get(DROPPED))


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
        if _is_out(landing, entry, plan, routes, file):
            continue
        is_dropped = _is_dropped(entry, file)
        table = routes.dropped(file.table) if is_dropped else routes.target_of(file, entry.n)
        if table is None or not lacking.is_wanted(table):
            continue
        if file.table in plan.quarantined and routes.is_shut(table):
            plan.withheld.add(file.table)
        else:
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
