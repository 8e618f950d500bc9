"""Remove the oldest entries and their files.

The floor is committed first, as an entry that carries the hash the chain goes on from; then
the files go, then the entries. A crash in between leaves more than there should be, never
less, and the next start goes on. Whole blocks only: a checkpoint goes with its entries.

No clock is asked for the age of an entry. What counts is the time that the log has seen since
(`land.state`): neither a clock at 1970 nor one ten years ahead makes anything old.
"""

import dataclasses
import datetime as dt

from gaussdecode.errors import LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.expiry import apply_floor
from gaussdecode.land.failpoints import Step
from gaussdecode.model.entry import CheckpointHeader, CommitEntry
from gaussdecode.model.landing import EntryKind


@dataclasses.dataclass(slots=True)
class Hold:
    """Old entries that somebody still has to read.

    Attributes:
        needed_from: number of the first of them.
        most_bytes: of files that stay for this reason alone; None for no bound.
        bytes: of files that do, after `retain`.
    """

    needed_from: int
    most_bytes: int | None
    bytes: int = 0


def retain(
    log: CommitLog, keep: dt.timedelta, through: int | None = None, hold: Hold | None = None
) -> CommitEntry | None:
    """Give up the blocks whose newest entry is older than asked for.

    The newest block of entries always stays. Call it from a thread of its own: deleting
    takes its time, but only committing the floor holds up the writer.

    Args:
        log: open.
        keep: entries stay for at least so long, by the time that the log has seen.
        through: entries beyond this number stay, because the mirror has not got them.
        hold: old entries that stay longer, within a bound; None for none.

    Returns:
        The retention entry, or None when there was nothing to give up.
    """
    header = newest_to_forget(log, keep, through)
    if header is not None and hold is not None and hold.needed_from <= header.last:
        header = _held_back(log, header, hold)
    if header is None:
        return None
    entry = log.commit(Draft(kind=EntryKind.RETENTION, floor=header.last, anchor=header.hash))
    log.disk.files.reach(Step.FLOOR_COMMITTED)
    apply_floor(log.disk, log.entries, header.last)
    return entry


def newest_to_forget(
    log: CommitLog, keep: dt.timedelta, through: int | None = None
) -> CheckpointHeader | None:
    """Find the newest block that may go; None if there is none.

    Raises:
        LandingError: it ends with another entry than its header says.
    """
    kept_ms = keep // dt.timedelta(milliseconds=1)
    now_ms = log.elapsed_ms
    for first, last, path in reversed(log.entries.checkpoints()):
        header = log.entries.header(path)
        if last <= log.floor:
            return None
        if through is not None and last > through:
            continue
        if last <= log.next_n - 1 - log.block and now_ms - header.elapsed_ms > kept_ms:
            if log.entries.last_of(first, last, path).hash != header.hash:
                raise LandingError(f"{path}: its header names another entry; restore it")
            return header
    return None


def _held_back(log: CommitLog, header: CheckpointHeader, hold: Hold) -> CheckpointHeader | None:
    """The newest block that may go although others are still to be read; None if there is none.

    Args:
        log: open.
        header: the newest block that is old enough.
        hold: what stays, as far as its bound allows.
    """
    for first, last, path in reversed(log.entries.checkpoints()):
        if last > header.last:
            continue
        if last <= log.floor:
            return None
        if last < hold.needed_from:
            return log.entries.header(path)
        files = (file for entry in log.entries.iterate(first, last) for file in entry.files)
        size = sum(file.bytes for file in files)
        if hold.most_bytes is not None and hold.bytes + size > hold.most_bytes:
            return log.entries.header(path)
        hold.bytes += size
    return None
