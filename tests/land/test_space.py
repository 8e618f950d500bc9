"""Waiting for room, and what is kept free."""

import datetime as dt
import errno
import os
import types
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from kit.landrun import Landing
from kit.simdisk import SimFiles

from gaussdecode.errors import DiskError, DiskStillFullError
from gaussdecode.land.compaction import compact
from gaussdecode.land.prepared import PreparedFiles
from gaussdecode.land.retention import retain
from gaussdecode.land.space import Reserve, SpaceWait
from gaussdecode.snapshot.file import SnapshotFile

GIB = 1 << 30
ROOT = Path("/landing")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A file system of 4 GiB; `free` is what we may use of it."""
    made = types.SimpleNamespace(size=4 * GIB, free=GIB)

    def look(_: Path) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            f_frsize=4096, f_blocks=made.size // 4096, f_bavail=made.free // 4096
        )

    monkeypatch.setattr(os, "statvfs", look)
    return made


@pytest.mark.parametrize(
    ("size", "least", "kept"),
    [
        (24 << 20, None, (24 << 20) // 100),
        (4 * GIB, None, 4 * GIB // 100),
        (1000 * GIB, None, GIB),
        (4 * GIB, 2 * GIB, 2 * GIB),
        (4 * GIB, 0, 0),
    ],
)
def test_what_is_kept(disk: types.SimpleNamespace, size: int, least: int | None, kept: int) -> None:
    """As configured, else a small part of a small disk and no more than 1 GiB of a large one."""
    disk.size = size
    assert Reserve(ROOT, least).measure() == (GIB, kept)


def test_nothing_is_kept_where_nothing_can_be_told(tmp_path: Path) -> None:
    """A root that is not there yet, or is away, is others' business."""
    reserve = Reserve(tmp_path / "missing", GIB)
    assert reserve.measure() == (0, 0)
    reserve.check()


def test_wait_lasts_until_there_is_more(disk: types.SimpleNamespace) -> None:
    """It is one wait, seen as such, told once with both sums; up to the bound all goes on."""
    told: list[str] = []
    seen: list[bool] = []

    def make_room(_: float) -> None:
        seen.append(space.is_waiting)
        disk.free += 4096

    space = SpaceWait(sleep=make_room, on_wait=told.append, kept=Reserve(ROOT, GIB + 8192))
    space.reserve("write t")
    assert seen == [True, True]
    (reason,) = told
    assert reason == (
        "write t: 1,073,741,824 bytes are free on its file system, but landing.min-free-bytes is "
        "1,073,750,016"
    )
    assert not space.is_waiting
    space.reserve("write t")
    assert len(told) == 1


def test_what_makes_room_is_not_kept_from_it(disk: types.SimpleNamespace) -> None:
    """Only `reserve` looks at what is kept."""
    disk.free = 0
    space = SpaceWait(sleep=lambda _: pytest.fail("it waits"), kept=Reserve(ROOT, GIB))
    assert space.run("unlink data/t", lambda: "done") == "done"


def test_stop_ends_the_wait(disk: types.SimpleNamespace) -> None:
    """With the reason."""
    disk.free = 0
    space = SpaceWait(should_stop=lambda: True, kept=Reserve(ROOT, GIB))
    with pytest.raises(
        DiskStillFullError, match=r"write t: 0 bytes are free .* stopped while waiting"
    ):
        space.reserve("write t")
    assert not space.is_waiting


def test_other_errors_are_no_wait() -> None:
    """A disk that fails is not full."""
    space = SpaceWait(sleep=lambda _: pytest.fail("it waits"))

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(DiskError, match="write t: Input/output error"):
        space.run("write t", fail)


# ---- who waits for it ----------------------------------------------------------------------


class _WaitsError(Exception):
    """Somebody waits."""


def _wait(_: float) -> None:
    raise _WaitsError


def _landing(files: SimFiles) -> Landing:
    return Landing(files, "second", space=SpaceWait(sleep=_wait, kept=Reserve(ROOT, GIB)))


def test_what_makes_room_goes_on(
    disk: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery, merging of small files, and giving blocks up, with the entries that say so."""
    files = SimFiles()
    monkeypatch.setattr(Landing, "_maintain", lambda *_: None)
    Landing(files).run()
    disk.free = 0
    log = _landing(files).open()
    assert compact(log) is not None
    assert retain(log, dt.timedelta(0)) is not None
    log.close()


def test_rows_wait(disk: types.SimpleNamespace) -> None:
    """Of the stream, of a snapshot, and of prepared transactions; nothing was begun for them."""
    files = SimFiles()
    Landing(files).run()
    disk.free = 0
    landing = _landing(files)
    log = landing.open()
    before = sorted(files.image.paths())
    rows = pa.table({"id": [1]})
    landed = cast("Any", types.SimpleNamespace(directory="public.t"))
    with pytest.raises(_WaitsError):
        SnapshotFile(log, landed, cast("Any", None), "none")._append(rows, 1)
    with pytest.raises(_WaitsError):
        PreparedFiles(log, "layout").write({"xid": 7}, [])
    assert sorted(files.image.paths()) == before
    log.close()
