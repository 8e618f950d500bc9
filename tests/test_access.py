"""Tests for `gaussdecode.host.access` and what refuses by it; whom it names is seen on a live unit."""

import errno
import os
from pathlib import Path

import pytest

from gaussdecode.errors import EX_CONFIG, AccessError, DiskError
from gaussdecode.host.access import refused, rights
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.space import SpaceWait

DENIED = PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_rights_are_owner_group_and_mode(tmp_path: Path) -> None:
    """In the words of ls; of a file that is gone nothing."""
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o4640)
    assert rights(path).endswith("mode 4640")
    assert f"{path} belongs to {path.owner()}:{path.group()}" in rights(path)
    assert rights(tmp_path / "gone") == f"{tmp_path / 'gone'} cannot be looked at"


def test_missing_file_is_its_directorys_refusal(tmp_path: Path) -> None:
    """What may not be made there is a matter of the directory."""
    path = tmp_path / "new"
    text = str(refused(path, DENIED))
    assert text.startswith(f"{path}: Permission denied for user ")
    assert f"{tmp_path} belongs to" in text


def test_landing_names_the_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel knows only the name in its directory; the operator gets file, owner and mode."""
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "entry").write_bytes(b"x")
    files = Files(tmp_path)
    disk = Disk(files, SpaceWait(should_stop=lambda: True), "test")
    opened = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "entry":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessError) as caught:
        disk.read("commits/entry")
    assert str(caught.value).startswith(f"{tmp_path}/commits/entry: Permission denied")
    assert caught.value.exit_status == EX_CONFIG
    assert not caught.value.retryable
    files.close()


def test_other_failures_stay_the_disks() -> None:
    """A disk that fails is tried again by systemd; rights are not."""

    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(DiskError):
        SpaceWait().run("read", fail)
