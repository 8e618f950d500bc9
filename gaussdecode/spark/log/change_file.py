"""Describe a landed file for a plan: which of its rows count, and at which position.

Given files of entries of the log. Rows of a snapshot with a condition may have a position that only later
entries reach.
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
from gaussdecode.spark.log.schema import OLD, RAW, SOURCE, UNCHANGED

Numbering = tuple[tuple[int, int, int], ...]
"""Number, epoch and LSN of entries, which tell the entry of each row of a merged file."""

Window = tuple[int, int]
"""CSNs: above the first and up to the second."""
ALL_CSNS: Final = (1 << 63) - 1
_OURS: Final = frozenset(
    {
        "gd_op", SOURCE, "gd_epoch", "gd_lsn", "gd_seq", "gd_csn", "gd_xid", "gd_ts", UNCHANGED, OLD, RAW,
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeFile:
    """One file to read.

    Attributes:
        n: number of its entry; the first of several for a merged file.
        last_n: number of the last entry of a merged file.
        is_snapshot: whether its rows replace the table; not for a snapshot with a condition.
        file: the file as the log describes it.
        numbering: entry numbers of a merged file's rows, else empty.
        ignore_through: epoch and position up to which a snapshot of an earlier entry has all
            changes.
        epoch: epoch of its last row.
        part: part to read, as index and number of parts of its row groups.
        window: read only rows with a CSN above the first and up to the second; None for all.
        since_n: for a snapshot, the entry at which reading began; -1 if not recorded.
        is_mixed: whether rows of the table under another key may lie between its rows.
        masks: masks of columns, by name in the file.
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
        """Whether it has rows of a snapshot with a condition."""
        return bool(self.file.ops.get("R")) and not self.is_snapshot


def replaces(entry: CommitEntry, table: str) -> bool:
    """Whether an entry holds all rows of a table.

    Rows of a snapshot with a condition are upserted by key and leave other rows alone.
    """
    return entry.kind is EntryKind.SNAPSHOT and _snapshot_of(entry, table).get("where") is None


def since_n(entry: CommitEntry, table: str) -> int:
    """Entry at which reading of a table for its snapshot began; -1 if not recorded."""
    return int(_snapshot_of(entry, table).get("since_n", -1))


def _snapshot_of(entry: CommitEntry, table: str) -> dict[str, Any]:  # Any: JSON
    """The record of a table in a snapshot entry; empty for other kinds."""
    tables = entry.extra.get("snapshot", {}).get("tables", {})
    return dict(tables.get(table, {}))


def windowed(
    landing: Landing, files: Sequence[ChangeFile], after: int, until: int
) -> list[ChangeFile]:
    """Files of an entry with rows in a CSN window, limited to these rows."""
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


def is_known_column(name: str) -> bool:
    """Whether a column of a landed file is one of the table, or one of ours that a target has."""
    return name in _OURS or not name.startswith("gd_")


def in_window(rows: pa.Table, change: ChangeFile) -> pa.Table:
    """Keep the rows of a file that are in its window, and mask them.

    Columns that only the landing has are left out: files from before they began do not have them.
    """
    rows = rows.select([name for name in rows.column_names if is_known_column(name)])
    if change.masks:
        rows = masked(rows, change.masks)
    if change.window is None:
        return rows
    csns = as_int64(rows.column("gd_csn"))
    after, until = change.window
    return rows.filter(pa.array((csns > after) & (csns <= until)))


def _place_of(landing: Landing, change: ChangeFile) -> tuple[int, int]:
    """Epoch, and LSN or CSN, of a file's last row."""
    if landing.is_by_csn:
        return change.epoch, csns_of(landing.root / change.file.path)[1] or 0
    return change.epoch, change.file.last.lsn


def is_ahead(landing: Landing, change: ChangeFile, reached: CommitEntry | None) -> bool:
    """Whether a file has rows at a position that an entry does not reach."""
    if reached is None:
        return True
    at = reached.positions[change.file.source or landing.sources[0]]
    place = (at.epoch, at.csn or 0 if landing.is_by_csn else at.lsn)
    return _place_of(landing, change) > place


def in_order(landing: Landing, files: Sequence[ChangeFile]) -> list[ChangeFile]:
    """Sort files by the position of their rows."""
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
    """Move rows of a snapshot with a condition behind earlier changes of later entries."""
    at = after = ordered.index(change)
    place = _place_of(landing, change)
    for index, other in enumerate(ordered[at + 1 :], at + 1):
        if other.file.source != change.file.source:
            continue
        if other.is_snapshot or _place_of(landing, other) > place:
            break
        after = index
    ordered.insert(after, ordered.pop(at))
