"""File operations of many steps."""

import threading
from pathlib import Path

import pytest

from gaussdecode.errors import DiskError
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.space import SpaceWait


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """An empty landing."""
    return Disk(Files(tmp_path), SpaceWait(), "test")


def test_many_directories_are_synced_from_the_leaves_up(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several at a time, yet no directory before all that are in it; each of them once."""
    synced: list[str] = []
    monkeypatch.setattr(disk.files, "sync_directory", synced.append)
    for number in range(100):
        disk.ensure_directory(f"data/t{number}/gd_date=2026-01-01")
    disk.sync_directories()
    assert len(synced) == len(set(synced)) == 202
    heights = [path.count("/") for path in synced]
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize("count", [3, 300])
def test_the_first_failure_ends_a_common_work(disk: Disk, count: int) -> None:
    """Alone or together: it is raised, and everything that was begun has ended by then."""
    running = threading.Semaphore(0)

    def work(number: int) -> None:
        if number == 1:
            raise DiskError("no more")
        running.release()

    with pytest.raises(DiskError, match="no more"):
        disk.together(work, range(count))
    assert not [each for each in threading.enumerate() if each.name.startswith("sync")]
