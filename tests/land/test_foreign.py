"""Files, directories, links and pipes of others, anywhere below the root.

None of them ends a start with anything but a sentence, none is removed, and each is named.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from kit.landrun import Landing, check_invariants

from gaussdecode.errors import LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.files import Files
from gaussdecode.land.names import entry_path
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.verify import verify

NUMBER: Final = f"{3:020d}"
NAMES: Final = (
    "notes",
    "_SUCCESS",
    ".hidden",
    "99999999999999999999",
    "gd_date=2026-99-99",
    "٣" * 20,  # digits, but not ours
    f"{'٣' * 20}.json",
    ".gd-x-y-z.parquet",
    f"{NUMBER}-{NUMBER}.jsonl.bak",
    b"\xff\xfe\n".decode("utf-8", "surrogateescape"),
)
PLACES: Final = (
    "",
    "commits",
    "commits/checkpoints",
    "schemas",
    "schemas/public.a",
    "data",
    "data/public.a",
    "data/public.a/*",
    "compact",
    "compact/*",
    "compact/*/public.a",
    "spool",
    "prepared",
    "snapshots",
    "snapshots/requests",
)


def file(path: Path) -> None:
    """A file."""
    path.write_bytes(b"theirs")


def directory(path: Path) -> None:
    """A directory with something in it."""
    path.mkdir()
    (path / "inside").write_bytes(b"theirs")


def link(path: Path) -> None:
    """A link to somewhere else."""
    path.symlink_to("/etc")


def pipe(path: Path) -> None:
    """What a reader would wait for."""
    os.mkfifo(path)


MAKERS: Final = (file, directory, link, pipe)


def opened(root: Path, token: str) -> CommitLog:
    """What the daemon does with a landing at its start."""
    log = Landing(Files(root), token).open()
    SnapshotStore(log.disk).prepare()
    return log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A landing with a checkpoint and merged files."""
    landing = Landing(Files(tmp_path))
    landing.run()
    opened(tmp_path, "first").close()
    return tmp_path


def directories(root: Path) -> list[Path]:
    """One directory of each kind."""
    return [next(root.glob(place)) if place else root for place in PLACES]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_foreign_things_are_named_and_left_alone(root: Path, make: Callable[[Path], None]) -> None:
    """Of any name, in any place: the start goes on, `verify` names it, and it is still there."""
    made = [where / name for where in directories(root) for name in NAMES]
    for path in made:
        make(path)
    log = opened(root, "second")
    assert any("is not of this landing; left alone" in each for each in log.findings)
    assert any("things below the root not made by gaussdecode" in each for each in log.findings)
    log.close()
    Landing(Files(root), "third", transactions=12, with_retention=True).run()
    assert all(os.path.lexists(path) for path in made)
    found = verify(root).findings
    assert len([each for each in found if "is not ours" in each]) >= len(made)
    assert all(each.isprintable() for each in found)
    for path in made:  # what is ours is what it was
        if path.is_dir() and not path.is_symlink():
            (path / "inside").unlink()
            path.rmdir()
        else:
            path.unlink()
    files = Files(root)
    check_invariants(files, 12, with_retention=True)
    files.close()


@pytest.mark.parametrize("make", [directory, link, pipe], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "name",
    [entry_path(99), f"commits/.{99:020d}.json", f"commits/checkpoints/{9:020d}-{11:020d}.jsonl"],
)
def test_entry_that_is_no_file_is_a_sentence(
    root: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Nobody can commit beside a directory in the place of an entry."""
    make(root / name)
    with pytest.raises(LandingError, match="move it away"):
        opened(root, "second")


@pytest.mark.parametrize("make", [directory, link, pipe], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["layout.json", entry_path(2), "snapshots/ledger.json"])
def test_file_of_ours_that_is_no_file_is_a_sentence(
    root: Path, name: str, make: Callable[[Path], None]
) -> None:
    """What is needed and cannot be read ends in an error of the landing, never in a wait."""
    (root / name).unlink(missing_ok=True)
    make(root / name)
    with pytest.raises(LandingError):
        SnapshotStore(opened(root, "second").disk).ledger()
