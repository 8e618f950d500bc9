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


def test_a_directory_that_goes_is_made_again(tmp_path: Path) -> None:
    """One is removed as empty right before its file is created: it is there, and is synced again."""
    synced: list[str] = []

    class Swept(Files):
        """Others remove what is empty, twice, when a file is created."""

        times = 2

        def create(self, path: str) -> int:
            if self.times:
                self.times -= 1
                assert swept.remove_directory("data/t/d")
            return super().create(path)

        def sync_directory(self, path: str) -> None:
            synced.append(path)
            super().sync_directory(path)

    swept = Disk(Swept(tmp_path), SpaceWait(), "test")
    swept.ensure_directory("data/t/d")
    swept.sync_directories()
    synced.clear()
    swept.write_file("data/t/d/file", b"x")
    assert (tmp_path / "data/t/d/file").read_bytes() == b"x"
    swept.sync_directories("data/t/d")
    assert synced == ["data/t/d", "data/t"]
    swept.ensure_directory("data/t/e")
    (tmp_path / "data/t/e").rmdir()  # by a sweep that was under way
    swept.sync_directories()
    with pytest.raises(DiskError, match="fsync data/t/f"):
        swept.sync_directories("data/t/f")
