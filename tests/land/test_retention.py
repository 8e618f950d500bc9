"""Retention gives up whole blocks, files first, and never the newest block."""

import datetime as dt

import pytest
from kit.landrun import BLOCK, IDENTITY, START, Landing, check_invariants, put
from kit.simdisk import SimFiles

from gaussdecode.errors import LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.retention import Hold, newest_to_forget, retain
from gaussdecode.land.verify import verify_files
from gaussdecode.model.landing import EntryKind, SourcePosition

AT_ONCE = dt.timedelta(0)


def test_old_blocks_go() -> None:
    """Entries and files at or below the floor are gone, the rest verifies."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    entry = retain(log, AT_ONCE)
    assert entry is not None
    assert entry.floor is not None
    assert (entry.floor + 1) % BLOCK == 0
    assert log.floor == entry.floor
    log.close()
    report = verify_files(files)
    assert report.is_clean, report.findings
    assert report.first_n == report.floor + 1
    names = [item.name for item in files.items("commits/checkpoints")]
    assert all(int(name.split("-")[0]) > entry.floor for name in names)


def test_newest_block_stays() -> None:
    """However old, the newest block of entries is never given up."""
    files = SimFiles()
    Landing(files, transactions=2).run()
    log = Landing(files, "second").open()
    assert log.next_n <= 2 * BLOCK
    assert newest_to_forget(log, AT_ONCE) is None
    assert retain(log, AT_ONCE) is None


def test_what_is_still_to_be_read_stays_within_a_bound() -> None:
    """The block that is needed and all after it; beyond the bound the oldest of them go."""
    files = SimFiles()
    Landing(files, transactions=15).run()
    log = Landing(files, "second").open()
    newest = newest_to_forget(log, AT_ONCE)
    assert newest is not None
    assert newest.last > 2 * BLOCK
    assert retain(log, AT_ONCE, hold=Hold(0, None)) is None
    assert retain(log, AT_ONCE, hold=Hold(BLOCK - 1, None)) is None
    entry = retain(log, AT_ONCE, hold=Hold(BLOCK, None))
    assert entry is not None
    assert entry.floor == BLOCK - 1
    newest = newest_to_forget(log, AT_ONCE)  # the retention's entry has filled another block
    assert newest is not None
    held = list(log.entries.iterate(BLOCK, newest.last))
    size = sum(file.bytes for e in held for file in e.files)
    assert retain(log, AT_ONCE, hold=Hold(BLOCK, size)) is None
    entry = retain(log, AT_ONCE, hold=Hold(BLOCK, size - 1))
    assert entry is not None
    assert entry.floor == 2 * BLOCK - 1
    entry = retain(log, AT_ONCE, hold=Hold(log.next_n, 0))
    assert entry is not None
    assert entry.floor is not None
    assert entry.floor >= newest.last
    log.close()
    assert verify_files(files).is_clean


def test_young_blocks_stay() -> None:
    """A block whose newest entry is not older than asked for stays."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    assert retain(log, dt.timedelta(days=1)) is None


def idle_log(files: SimFiles, times: list[dt.datetime], block: int = BLOCK) -> CommitLog:
    """A log with an entry at each of these times of the daemon's clock."""
    clock = iter([times[0], *times])  # the first for the layout
    log = CommitLog.open(files, IDENTITY, now=lambda: next(clock), writer="w", block=block)
    first = log.next_n
    for n in range(first, first + len(times)):
        kind = EntryKind.IDLE if n else EntryKind.GENESIS
        log.commit(Draft(kind=kind, position=SourcePosition(0, 1, n + 1)))
    return log


def clock(*leaps: tuple[int, dt.timedelta], count: int = 30) -> list[dt.datetime]:
    """A clock that is read every minute; from the n-th reading on it is wrong by so much."""
    wrong = dict(leaps)
    times, error = [], dt.timedelta(0)
    for n in range(count):
        error = wrong.get(n, error)
        times.append(START + n * dt.timedelta(minutes=1) + error)
    return times


YEARS = dt.timedelta(days=3650)
TO_1970 = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - START


@pytest.mark.parametrize(
    "leaps",
    [
        [(8, TO_1970), (9, dt.timedelta(0))],
        [(8, TO_1970), (20, dt.timedelta(0))],
        [(0, TO_1970), (12, dt.timedelta(0))],
        [(8, YEARS), (9, dt.timedelta(0))],
        [(8, YEARS), (20, dt.timedelta(0))],
        [(29, YEARS)],
        [(29, TO_1970)],
    ],
    ids=["1970-once", "1970", "1970-first", "ahead-once", "ahead", "ahead-last", "1970-last"],
)
def test_leap_of_the_clock_makes_nothing_old(leaps: list[tuple[int, dt.timedelta]]) -> None:
    """An entry at 1970, or ten years ahead: nothing of the last half hour is a day old."""
    log = idle_log(SimFiles(), clock(*leaps))
    assert retain(log, dt.timedelta(days=1)) is None
    log.close()


def test_age_is_what_the_log_has_seen() -> None:
    """With a right clock, entries go when they are as old as asked for, and not before."""
    log = idle_log(SimFiles(), clock(count=31))  # blocks end with entry 2, 5, 8, ...
    for minutes, last in ((28, None), (27, 2), (20, 8)):
        header = newest_to_forget(log, dt.timedelta(minutes=minutes, seconds=30))
        assert (None if header is None else header.last) == last
    log.close()


def test_checkpoint_with_the_header_of_another_log_stays() -> None:
    """The chain would go on from an entry that nobody has: retention refuses in a sentence."""
    path = f"commits/checkpoints/{6:020d}-{8:020d}.jsonl"
    files, other = SimFiles(), SimFiles()
    idle_log(other, clock((1, dt.timedelta(seconds=1)))).close()
    log = idle_log(files, clock())
    header, lines = other.read(path).partition(b"\n")[0], files.read(path).partition(b"\n")[2]
    put(files, path, header + b"\n" + lines)
    floor = log.floor
    with pytest.raises(LandingError, match="its header names another entry"):
        retain(log, dt.timedelta(minutes=20, seconds=30))
    assert log.floor == floor
    log.close()


def test_floor_survives_a_restart() -> None:
    """The next process knows the floor and lands on."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    retain(log, AT_ONCE)
    floor = log.floor
    log.close()
    third = Landing(files, "third", transactions=7, with_retention=False)
    third.run()
    log = Landing(files, "fourth").open()
    assert log.floor == floor
    log.close()
    check_invariants(files, 7, with_retention=True)
