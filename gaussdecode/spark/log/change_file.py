"""Landed files as a plan reads them: which of their rows are meant, and in which order they count.

Given files of entries of the log. An entry of an early version may have files of a table that overlap; rows
that a condition chose may stand at a position that only later entries reach.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile
from gaussdecode.spark.log.events import as_int64
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.masks import Mask, masked
from gaussdecode.spark.log.row_probe import csns_of

Numbering = tuple[tuple[int, int, int], ...]
"""Number, epoch and LSN of entries: which entry a row of a merged file belongs to."""

Window = tuple[int, int]
"""CSNs: above the first and up to the second."""
ALL_CSNS: Final = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeFile:
    """One file to read.

    Attributes:
        n: of its entry; the first of several for a merged file.
        last_n: the last of several.
        is_snapshot: its rows replace the table; those of a condition do not.
        file: as the log describes it.
        numbering: for a merged file, else empty.
        ignore_through: epoch and position that a snapshot of an earlier entry covers.
        epoch: of its last row.
        part: which part of how many parts of its row groups is meant.
        window: of its rows those alone with a CSN above the first and up to the second; None for all.
        since_n: of a snapshot, the entry at which reading began; -1 where that is not said.
        is_mixed: rows of the table under another schema may stand between its rows.
        masks: of columns, by their names in the file.
    """

    n: int
    last_n: int
    is_snapshot: bool
    file: LandingFile
    numbering: Numbering = ()
    ignore_through: tuple[int, ...] | None = None
    epoch: int = 0
    part: tuple[int, int] = (0, 1)
    window: Window | None = None
    since_n: int = -1
    is_mixed: bool = False
    masks: tuple[tuple[str, Mask], ...] = ()

    @property
    def is_chosen(self) -> bool:
        """Whether it has rows of a snapshot that a condition chose."""
        return bool(self.file.ops.get("R")) and not self.is_snapshot


def replaces(entry: CommitEntry, table: str) -> bool:
    """Whether an entry holds all rows of a table.

    Rows of a snapshot that a condition chose are put by their key, and leave the others alone.
    """
    return entry.kind is EntryKind.SNAPSHOT and _snapshot_of(entry, table).get("where") is None


def since_n(entry: CommitEntry, table: str) -> int:
    """At which entry reading of a table for its snapshot began; -1 where that is not said."""
    return int(_snapshot_of(entry, table).get("since_n", -1))


def _snapshot_of(entry: CommitEntry, table: str) -> dict[str, Any]:  # Any: JSON
    """What an entry of kind snapshot says of a table; empty for other kinds."""
    tables = entry.extra.get("snapshot", {}).get("tables", {})
    return dict(tables.get(table, {}))


def windowed(
    landing: Landing, files: Sequence[ChangeFile], after: int, until: int
) -> list[ChangeFile]:
    """Files of one entry that have rows with a CSN above one and up to another, and these rows alone."""
    if (after, until) == (0, ALL_CSNS):
        return list(files)
    found = []
    for change in files:
        least, greatest = csns_of(landing.root / change.file.path)
        if least is None or greatest is None or (after < least and greatest <= until):
            found.append(change)
        elif least <= until and greatest > after:
            found.append(dataclasses.replace(change, window=(after, until)))
    return found


def in_window(rows: pa.Table, change: ChangeFile) -> pa.Table:
    """Of rows of a file those that are meant, without what is masked."""
    if change.masks:
        rows = masked(rows, change.masks)
    if change.window is None:
        return rows
    csns = as_int64(rows.column("gd_csn"))
    after, until = change.window
    return rows.filter(pa.array((csns > after) & (csns <= until)))


def is_mixed(landing: Landing, file: LandingFile, files: Sequence[LandingFile]) -> bool:
    """Whether rows under other schemas stand between those of a file, as in entries of early versions."""

    def bounds(of: LandingFile) -> tuple[Any, Any]:  # Any: numbers or positions
        if not landing.is_by_csn:
            return of.first, of.last
        least, greatest = csns_of(landing.root / of.path)
        return least or 0, greatest or 0

    others = [
        other
        for other in files
        if (other.table, other.source) == (file.table, file.source)
        and other.schema_id != file.schema_id
    ]
    if not others:
        return False
    first, last = bounds(file)
    return any(begin < last and first < end for begin, end in map(bounds, others))


def _place_of(landing: Landing, change: ChangeFile) -> tuple[int, int]:
    """Epoch of a file, and LSN or CSN of its last row."""
    if landing.is_by_csn:
        return change.epoch, csns_of(landing.root / change.file.path)[1] or 0
    return change.epoch, change.file.last.lsn


def is_ahead(landing: Landing, change: ChangeFile, reached: CommitEntry | None) -> bool:
    """Whether rows stand at a position that an entry does not reach."""
    if reached is None:
        return True
    at = reached.positions[change.file.source or landing.sources[0]]
    place = (at.epoch, at.csn or 0 if landing.is_by_csn else at.lsn)
    return _place_of(landing, change) > place


def in_order(landing: Landing, files: Sequence[ChangeFile]) -> list[ChangeFile]:
    """Files in the order in which the columns of their rows follow each other."""
    # Files of one entry are in order; a merged file begins where its first began.
    ordered = sorted(files, key=lambda change: change.n)
    if len({change.file.schema_id for change in files}) <= 1:
        return ordered
    if landing.has_several and landing.is_by_csn:
        begun = {
            change.file.path: csns_of(landing.root / change.file.path)[0] or 0 for change in ordered
        }
        ordered = sorted(ordered, key=lambda change: (change.n, begun[change.file.path]))
    for change in [change for change in ordered if change.is_chosen]:
        _move_to_position(landing, ordered, change)
    return ordered


def _move_to_position(landing: Landing, ordered: list[ChangeFile], change: ChangeFile) -> None:
    """Put rows that a condition chose after the changes of later entries that are not after them."""
    at = after = ordered.index(change)
    place = _place_of(landing, change)
    for index, other in enumerate(ordered[at + 1 :], at + 1):
        if other.file.source != change.file.source:
            continue
        if other.is_snapshot or _place_of(landing, other) > place:
            break
        after = index
    ordered.insert(after, ordered.pop(at))
