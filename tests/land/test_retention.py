"""Retention gives up whole blocks, files first, and never the newest block."""

import datetime as dt

import pytest
from kit.landrun import BLOCK, START, Landing, check_invariants
from kit.simdisk import SimFiles

from gaussdecode.land.retention import newest_to_forget, retain
from gaussdecode.land.verify import verify_files

FUTURE = START + dt.timedelta(days=1000)


def test_old_blocks_go() -> None:
    """Entries and files at or below the floor are gone, the rest verifies."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    entry = retain(log, FUTURE)
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
    assert newest_to_forget(log, FUTURE) is None
    assert retain(log, FUTURE) is None


@pytest.mark.parametrize("days", [-1, 0])
def test_young_blocks_stay(days: int) -> None:
    """A block whose newest entry is not older than asked for stays."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    assert retain(log, START + dt.timedelta(days=days)) is None


def test_floor_survives_a_restart() -> None:
    """The next process knows the floor and lands on."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    retain(log, FUTURE)
    floor = log.floor
    log.close()
    third = Landing(files, "third", transactions=7, with_retention=False)
    third.run()
    log = Landing(files, "fourth").open()
    assert log.floor == floor
    log.close()
    check_invariants(files, 7, with_retention=True)
