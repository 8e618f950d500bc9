"""The spool against a plain model of a byte store."""

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussdecode.collect.spool import BoundedSpool, Extents, Spool
from gaussdecode.land.space import SpaceWait


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=60))
def test_stretches_never_overlap(steps: list[tuple[bool, int]]) -> None:
    """What is taken is nobody else's, and the end is that of the last that is taken."""
    extents = Extents()
    taken: dict[int, int] = {}
    for is_taking, number in steps:
        if is_taking or not taken:
            offset = extents.take(number)
            held = {at for start, size in taken.items() for at in range(start, start + size)}
            assert held.isdisjoint(range(offset, offset + number))
            taken[offset] = number
        else:
            offset = sorted(taken)[number % len(taken)]
            extents.give(offset, taken.pop(offset))
        assert extents.end == max((start + size for start, size in taken.items()), default=0)


def test_first_gap_that_is_long_enough_is_used() -> None:
    """Neighbours that were given back are one stretch."""
    extents = Extents()
    places = [extents.take(10) for _ in range(4)]
    extents.give(places[0], 10)
    extents.give(places[1], 10)
    assert extents.take(20) == 0
    assert extents.end == 40


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=40)), max_size=40))
def test_bytes_come_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, bytes]]
) -> None:
    """Whatever was given back meanwhile, the rest is as it was written."""
    spool = Spool(tmp_path_factory.getbasetemp(), SpaceWait().run)
    held: dict[int, bytes] = {}
    for is_writing, data in steps:
        if is_writing or not held:
            held[spool.write(memoryview(data))] = data
        else:
            offset = min(held)
            spool.free(offset, len(held.pop(offset)))
        for offset, expected in held.items():
            found = bytearray(len(expected))
            spool.read_into(offset, memoryview(found))
            assert found == expected
    spool.close()


def test_space_goes_back_with_the_last(tmp_path: Path) -> None:
    """The file has no name, and ends where the last stretch in use does."""
    spool = Spool(tmp_path, SpaceWait().run)
    places = [spool.write(memoryview(bytes(4096))) for _ in range(3)]
    held = next(path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in _target(path))
    assert list(tmp_path.iterdir()) == []
    spool.free(places[2], 4096)
    assert held.stat().st_size == 2 * 4096
    spool.free(places[0], 4096)
    assert held.stat().st_size == 2 * 4096
    spool.free(places[1], 4096)
    assert held.stat().st_size == 0
    spool.close()


@pytest.mark.parametrize("has_tmpfile", [True, False])
def test_nobody_else_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tmpfile: bool
) -> None:
    """Whatever the umask, and on file systems without files without names."""
    if not has_tmpfile:
        opening = os.open

        def refusing(path: Path, flags: int, *mode: int) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "not supported")
            return opening(path, flags, *mode)

        monkeypatch.setattr(os, "open", refusing)
    before = os.umask(0)
    try:
        spool = Spool(tmp_path, SpaceWait().run)
        spool.write(memoryview(b"rows"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.fstat(spool._fd).st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []
    spool.close()


def test_bound_holds_for_the_file(tmp_path: Path) -> None:
    """What fits into it, or into a gap, is written; for the rest room has to be made."""
    asked: list[int] = []
    spool = Spool(tmp_path, SpaceWait().run, lambda _: asked.append(spool._extents.end))

    def make_room() -> None:
        calls.append(1)
        if len(calls) == 3:
            bounded.free(places[0], 40)

    calls: list[int] = []
    bounded = BoundedSpool(spool, 100, make_room)
    places = [bounded.write(memoryview(bytes([65 + index]) * 40)) for index in range(2)]
    places.append(bounded.write(memoryview(b"C" * 20)))
    assert (calls, os.fstat(spool._fd).st_size) == ([], 100)
    assert bounded.write(memoryview(b"D" * 40)) == places[0]
    assert (len(calls), os.fstat(spool._fd).st_size) == (3, 100)
    assert asked == [0, 40, 80], "a gap needs no more of the disk"
    found = bytearray(40)
    bounded.read_into(places[0], memoryview(found))
    assert found == b"D" * 40
    spool.close()


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
