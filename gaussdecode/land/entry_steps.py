"""Make one entry of the commit log: its content, and its steps on disk.

The steps are functions over an entry, so that recovery takes the same steps as the process that began them.
Each step makes durable:

============  ==============================================================  ===========
step          does                                                            afterwards
============  ==============================================================  ===========
`sync`    1   data files and schemas under their directories, all fsynced     nothing yet
`decide`  2   the entry, hidden, in ``commits/``                              decided
`reveal`  3   modification times, data files under their names                readable
`show`    4   the entry under its name                                        shown
============  ==============================================================  ===========

A file is begun in the directory in which it will be visible, so the last rename stays inside one directory.
A rename across two directories can lose the file if only one of them reaches the disk. A hidden name
carries the lowest entry number that can name the file, so the sweep at a start need not read the whole log.
"""

import dataclasses
import datetime as dt
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from gaussdecode.errors import AccountError, LandingError
from gaussdecode.land.disk import Disk
from gaussdecode.land.failpoints import Step
from gaussdecode.land.names import (
    COMMITS,
    DATA,
    MESSAGES,
    data_directory,
    data_name,
    entry_path,
    hidden_entry_path,
    parent,
)
from gaussdecode.land.state import LogState, ranks
from gaussdecode.model.account import Account, counted_files, files_of, say
from gaussdecode.model.entry import IN_ORDER, SUMS, SUMS_BY_SOURCE, CommitEntry
from gaussdecode.model.landing import (
    EntryKind,
    LandingFile,
    Replacement,
    SchemaChange,
    SourcePosition,
    Truncate,
)
from gaussdecode.model.request import Reached


@dataclasses.dataclass(frozen=True, slots=True)
class PendingSchema:
    """A schema file to be written with the next entry."""

    table: str
    schema_id: str
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is to become one entry.

    Attributes:
        kind: kind of the entry.
        position: position of the source, or None where it does not move.
        commit_time: commit time of the newest transaction, or None.
        files: finished and durable, each with its hidden path; no entry names them yet.
        schemas: schema files the entry needs.
        truncates: tables emptied.
        schema_changes: tables whose rows change over.
        replaced: older paths, and their first and last n, by index into `files`.
        floor: new floor, for retention.
        anchor: its hash.
        extra: JSON for the entry.
        account: the sums of its stretch of the stream, or None where it covers none.
        others: position and sums of the other sources, by name, where there are several.
    """

    kind: EntryKind
    position: SourcePosition | None = None
    commit_time: dt.datetime | None = None
    files: tuple[LandingFile, ...] = ()
    schemas: tuple[PendingSchema, ...] = ()
    truncates: tuple[Truncate, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    replaced: dict[str, Replacement] = dataclasses.field(default_factory=dict)
    floor: int | None = None
    anchor: str | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)  # Any: JSON
    account: Account | None = None
    others: Mapping[str, Reached] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A draft with its number and the final names of its files.

    Attributes:
        entry: sealed.
        raw: its exact bytes.
        moves: hidden path now, hidden path in the directory of its final name.
        schemas: schemas of the draft.
    """

    entry: CommitEntry
    raw: bytes
    moves: tuple[tuple[str, str], ...]
    schemas: tuple[PendingSchema, ...]


def plan(
    draft: Draft, state: LogState, source: str, now: dt.datetime, *, is_by_csn: bool = False
) -> Plan:
    """Number a draft. Pure.

    Args:
        draft: content of the entry to commit.
        state: state of the log.
        source: name of the one source, or the first of several.
        now: aware; gives the partition and the modification times.
        is_by_csn: positions do not say the order of rows.

    Raises:
        AccountError: its sums are not those of its files, or not of the stretch that begins at
            the position of the log; or files of a table are not in order.
    """
    committed = now.astimezone(dt.UTC)
    files, landed, moves = _place(draft, state.next_n, partition_day(now, state))
    positions = dict(state.positions)
    if draft.position is not None:
        positions[source] = draft.position
    positions.update({name: reached.position for name, reached in draft.others.items()})
    entry, raw = CommitEntry(
        n=state.next_n,
        kind=draft.kind,
        previous=state.last_hash,
        positions=positions,
        committed_time=committed,
        mtime_ms=max(int(committed.timestamp() * 1000), state.mtime_ms + 1),
        commit_time=draft.commit_time,
        files=tuple(landed),
        hidden=tuple(path.rpartition("/")[2] for _, path in moves),
        truncates=draft.truncates,
        schema_changes=draft.schema_changes,
        replaced=tuple(
            dataclasses.replace(draft.replaced[file.path], path=final.path)
            for file, final in zip(files, landed, strict=True)
            if file.path in draft.replaced
        ),
        floor=draft.floor,
        anchor=draft.anchor,
        extra=_extra(draft, source),
    ).sealed()
    state.check_next(entry)
    _check_accounts(_accounts(draft, source), entry, state.positions)
    if entry.is_in_order and not is_by_csn:
        _check_order(entry)
    return Plan(entry, raw, tuple(moves), draft.schemas)


def partition_day(now: dt.datetime, state: LogState) -> dt.date:
    """Day (UTC) of the partition of files that are committed now."""
    today = now.astimezone(dt.UTC).date()
    return today if state.committed_time is None else max(today, state.committed_time.date())


def _accounts(draft: Draft, source: str) -> dict[str, Account]:
    """The sums of each source."""
    given = {source: draft.account} | {name: of.account for name, of in draft.others.items()}
    return {name: account for name, account in given.items() if account is not None}


def _extra(draft: Draft, source: str) -> dict[str, Any]:  # Any: JSON
    records = {name: account.to_record() for name, account in _accounts(draft, source).items()}
    extra = {**draft.extra}
    if draft.kind is EntryKind.DATA:
        extra[IN_ORDER] = True
    if draft.others and records:
        extra[SUMS_BY_SOURCE] = records
    elif records:
        extra[SUMS] = records[source]
    return extra


def _check_accounts(
    accounts: Mapping[str, Account], entry: CommitEntry, before: Mapping[str, SourcePosition]
) -> None:
    """Refuse what does not add up; nothing is decided yet."""
    if not accounts:
        return
    wrong: str | None = None
    for source, account in accounts.items():
        wrong = (
            wrong
            or account.wrong_place(before.get(source), entry.positions[source])
            or account.wrong(counted_files(files_of(entry.files, source)))
        )
    for file in entry.files:
        if file.ops and sum(file.ops.values()) != file.rows:
            wrong = wrong or f"{file.path} holds {file.rows} rows, of which {say(file.ops)} count"
    if wrong is not None:
        raise AccountError(
            f"entry {entry.n} was not committed, because its sums differ: {wrong}. The server sends "
            "this stretch again. If it fails again, keep the landing and the log, and report it"
        )


def _check_order(entry: CommitEntry) -> None:
    """Refuse files that readers, who take them as they stand, would read in a wrong order."""
    for before, after in itertools.pairwise(entry.files):
        is_same = (before.table, before.source) == (after.table, after.source)
        if is_same and before.table != MESSAGES and before.last >= after.first:
            raise AccountError(
                f"entry {entry.n} is not committed: {after.path} would begin at {after.first}, and the "
                f"file of {before.table} before it ends at {before.last}. The server sends this stretch "
                "again; if it fails again, keep the landing and the log, and report it"
            )


def _place(
    draft: Draft, n: int, date: dt.date
) -> tuple[list[LandingFile], list[LandingFile], list[tuple[str, str]]]:
    """Sort the files of a draft by table and source, and give them their final names.

    Those of one table and source stay in the order in which they were begun.
    """
    files = sorted(draft.files, key=lambda file: (file.table, file.source or ""))
    landed: list[LandingFile] = []
    moves: list[tuple[str, str]] = []
    for table, group in itertools.groupby(files, key=lambda file: file.table):
        for rank, file in enumerate(group):
            directory = _directory(file, table, date)
            name = data_name(n, file.first.lsn, file.last.lsn, rank)
            landed.append(dataclasses.replace(file, path=f"{directory}/{name}"))
            moves.append((file.path, f"{directory}/{file.path.rpartition('/')[2]}"))
    return files, landed, moves


def sync(disk: Disk, planned: Plan) -> None:
    """Step 1: see that everything the entry names is durable, under hidden names."""
    touched: set[str] = set()
    for (old, new), file in zip(planned.moves, planned.entry.files, strict=True):
        if disk.size(file.path) is not None:
            raise LandingError(f"{file.path} is there before its entry; run `gaussdecode verify`")
        if old != new:
            disk.ensure_directory(parent(new))
            disk.rename(old, new)
            touched.add(parent(old))
        touched.add(parent(new))
    disk.together(functools.partial(_write_schema, disk, planned.entry.n), planned.schemas)
    touched.update(_schema_directory(schema) for schema in planned.schemas)
    disk.sync_directories(*touched)
    disk.files.reach(Step.FILES_DURABLE)


def decide(disk: Disk, planned: Plan, check_next: Callable[[], None]) -> None:
    """Step 2: write the hidden entry. When this returns, there is no way back.

    Args:
        disk: the landing.
        planned: its entry is sealed.
        check_next: raises when the entry is not the next of the log any more.

    Raises:
        LandingError: another writer was faster; nothing of ours is left.
        DiskError: nobody knows whether the entry is decided.
    """
    n = planned.entry.n
    unfinished, hidden = disk.unfinished(COMMITS, n, "entry"), hidden_entry_path(n)
    disk.write_file(unfinished, planned.raw)
    disk.files.reach(Step.ENTRY_WRITTEN)
    try:
        disk.link(unfinished, hidden)
    except FileExistsError as error:
        disk.remove(unfinished)
        raise LandingError(f"fenced: another writer commits entry {n}") from error
    disk.files.reach(Step.ENTRY_LINKED)
    try:
        check_next()
    except LandingError:
        disk.remove(hidden)
        disk.remove(unfinished)
        raise
    disk.remove(unfinished)
    disk.sync_directories(COMMITS)
    disk.files.reach(Step.ENTRY_COMMITTED)


def reveal(disk: Disk, entry: CommitEntry) -> None:
    """Step 3: give every file its time and its name; files that have theirs are kept."""
    touched = set()
    for file, hidden, rank in zip(entry.files, entry.hidden, ranks(entry), strict=True):
        directory = parent(file.path)
        path = f"{directory}/{hidden}"
        try:
            disk.set_time(path, entry.mtime_ms + rank)
            disk.rename(path, file.path)
        except (FileNotFoundError, FileExistsError):  # somebody began this, and was killed
            if disk.size(file.path) is None:  # nobody did: what has the name is no file
                raise
            disk.set_time(file.path, entry.mtime_ms + rank)
            disk.remove(path)
        touched.add(directory)
    disk.sync_directories(*touched)
    disk.files.reach(Step.FILES_RENAMED)


def show(disk: Disk, entry: CommitEntry) -> None:
    """Step 4: give the entry its name."""
    try:
        disk.link(hidden_entry_path(entry.n), entry_path(entry.n))
    except FileExistsError as error:
        if disk.read(entry_path(entry.n)) != entry.to_bytes():
            raise LandingError(f"fenced: another writer committed entry {entry.n}") from error
    disk.sync_directories(COMMITS)
    disk.files.reach(Step.ENTRY_SHOWN)


def tidy(disk: Disk, entry: CommitEntry) -> None:
    """Step 6: remove the hidden name; not worth an fsync, recovery knows it."""
    disk.remove(hidden_entry_path(entry.n))
    disk.files.reach(Step.ENTRY_TIDIED)


def _directory(file: LandingFile, table: str, date: dt.date) -> str:
    if file.path.startswith(f"{DATA}/"):
        return data_directory(table, date)
    return parent(file.path)


def _schema_directory(schema: PendingSchema) -> str:
    return f"schemas/{schema.table}"


def _write_schema(disk: Disk, n: int, schema: PendingSchema) -> None:
    """Write a schema file; its name is its content, so it may be seen before the entry."""
    directory = _schema_directory(schema)
    path = f"{directory}/{schema.schema_id}.json"
    disk.ensure_directory(directory)
    if disk.size(path) is None:
        hidden = disk.unfinished(directory, n, "json")
        disk.write_file(hidden, schema.content)
        disk.rename(hidden, path)
