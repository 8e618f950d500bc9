"""Find the positions at which a table became empty, in the rows of its files."""

from typing import Any, Final

from gaussdecode.spark.log.change_file import ALL_CSNS, ChangeFile
from gaussdecode.spark.log.events import STAMPS, Reset
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.row_probe import first_row, rows_of_op

_LANDED_STAMPS: Final = tuple(name for name in STAMPS if name != "gd_n")


def read_truncates(landing: Landing, change: ChangeFile) -> list[Reset]:
    """Read the truncate markers of a file."""
    found = rows_of_op(landing.root / change.file.path, "T", _LANDED_STAMPS)
    after, until = change.window or (-1, ALL_CSNS)
    return [
        reset_at(landing, row, _number_of(row, change))
        for row in found
        if after < (row["gd_csn"] or 0) <= until
    ]


def made_anew(landing: Landing, change: ChangeFile) -> Reset:
    """The reset of another table with the name: it stands before its first row."""
    return reset_at(landing, {**_first_row(landing, change), "gd_op": "T"}, change.n)


def snapshot_reset(landing: Landing, change: ChangeFile) -> Reset:
    """The reset of a snapshot: it removes everything up to its position; its own rows follow."""
    row = {**_first_row(landing, change), "gd_seq": -1, "gd_op": "R"}
    return reset_at(landing, row, change.n)


def reset_at(landing: Landing, row: dict[str, Any], n: int) -> Reset:  # Any: a landed row
    """The reset at the position of a row that landed with an entry."""
    position = tuple(row[name] or 0 for name in landing.source_order)
    return Reset(position, {**row, "gd_n": n})


def _number_of(row: dict[str, Any], change: ChangeFile) -> int:  # Any: a landed row
    """Number of the entry that a row landed with."""
    for n, epoch, lsn in change.numbering:
        if (row["gd_epoch"], row["gd_lsn"]) <= (epoch, lsn):
            return n
    return change.n


def _first_row(landing: Landing, change: ChangeFile) -> dict[str, Any]:  # Any: a landed row
    return first_row(landing.root / change.file.path, landing.source_order, _LANDED_STAMPS)
