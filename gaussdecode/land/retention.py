"""Retention: forgetting the oldest entries and their files.

The floor is published first, as an entry that carries the hash the chain goes on from; then
the files go, then the entries. A crash in between leaves more than there should be, never
less, and the next start goes on. Whole blocks only: a checkpoint goes with its entries.
"""

import datetime as dt

from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.failpoints import Step
from gaussdecode.land.floor import apply_floor
from gaussdecode.land.publication import Draft
from gaussdecode.model.entry import CheckpointHeader, CommitEntry
from gaussdecode.model.landing import EntryKind


def retain(log: CommitLog, older_than: dt.datetime) -> CommitEntry | None:
    """Give up the blocks whose newest entry was published before a time.

    The newest block of entries always stays. Call it from a thread of its own: deleting
    takes its time, but only the publication of the floor holds up the writer.

    Args:
        log: open.
        older_than: aware.

    Returns:
        The retention entry, or None when there was nothing to give up.
    """
    header = newest_to_forget(log, older_than)
    if header is None:
        return None
    entry = log.publish(Draft(kind=EntryKind.RETENTION, floor=header.last, anchor=header.hash))
    log.disk.files.reach(Step.FLOOR_PUBLISHED)
    apply_floor(log.disk, log.entries, header.last)
    return entry


def newest_to_forget(log: CommitLog, older_than: dt.datetime) -> CheckpointHeader | None:
    """Find the newest block that may go; None if there is none."""
    found = None
    for _, last, path in log.entries.checkpoints():
        if last <= log.floor:
            continue
        header = log.entries.header(path)
        if last > log.next_n - 1 - log.block or header.published >= older_than:
            break
        found = header
    return found
