"""What a directory must be able to do to hold a target."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from kit.history import History

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target import local_disk


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_refused_by_name(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is made there, and where a target was copied to it."""
    source, target = History(tmp_path / "landing", 3), tmp_path / "target"
    source.run(2)

    def link(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", link)
            with pytest.raises(
                ConfigError, match=r"no hard links.*give the URL of the store behind it"
            ):
                apply_with(LocalEngine(), source.writer.root, target, Options(buckets=1))
        assert not target.exists() or not list(target.glob(f"{local_disk.PROBE}*"))
        apply_with(LocalEngine(), source.writer.root, target, Options(buckets=1))


def test_a_file_system_that_replaces_what_exists_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its links copy, as the renames of mounted stores do."""
    monkeypatch.setattr(os, "link", lambda old, new: Path(new).write_bytes(Path(old).read_bytes()))
    with pytest.raises(ConfigError, match="no hard links that keep what exists"):
        local_disk.prove(tmp_path / "not" / "yet")
    assert list(tmp_path.iterdir()) == []


def test_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One holds it; where there are none, that is said."""
    with local_disk.locked(tmp_path):
        with pytest.raises(LandingError, match="being written by another process"):
            with local_disk.locked(tmp_path):
                pass

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ConfigError, match="no locks"), local_disk.locked(tmp_path):
        pass
