"""The file under pyarrow: exact bytes, checksum, and patience with a full disk."""

import errno
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.simdisk import SimFiles

from gaussdecode.errors import DiskError
from gaussdecode.land.disk import Disk
from gaussdecode.land.failpoints import Operation
from gaussdecode.land.sink import Sink
from gaussdecode.land.space import SpaceWait


@given(st.lists(st.integers(0, 300_000), max_size=6))
def test_content_size_and_checksum_agree(sizes: list[int]) -> None:
    """Whatever the pieces, the file holds them and the checksum is of the file."""
    files = SimFiles()
    sink = Sink(Disk(files, SpaceWait(), "w"), "f")
    content = b"".join(bytes([index]) * size for index, size in enumerate(sizes))
    for index, size in enumerate(sizes):
        sink.write(bytes([index]) * size)
    assert sink.finish() == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert files.read("f") == content
    assert sink.size == len(content)


def test_full_disk_in_the_middle_goes_on_at_the_right_byte() -> None:
    """After ENOSPC the same bytes are written, once; somebody is told, once per wait."""
    told: list[str] = []
    naps: list[float] = []
    files = SimFiles(
        fail=lambda number, op, _p: errno.ENOSPC if op is Operation.WRITE and number < 5 else 0
    )
    space = SpaceWait(sleep=naps.append, on_wait=told.append)
    sink = Sink(Disk(files, space, "w"), "f")
    sink.write(b"x" * 200_000)
    sink.finish()
    assert files.read("f") == b"x" * 200_000
    assert len(naps) == 4
    assert told == ["write f: No space left on device"]
    assert not space.is_waiting


def test_short_write_is_continued() -> None:
    """A file system may take fewer bytes than it was given."""
    files = SimFiles()
    whole = files.write
    files.write = lambda handle, data: whole(handle, bytes(data)[:70_000])  # type: ignore[method-assign]
    sink = Sink(Disk(files, SpaceWait(), "w"), "f")
    sink.write(bytes(range(256)) * 1000)
    sink.finish()
    assert files.read("f") == bytes(range(256)) * 1000


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.WRITE, Operation.SYNC])
def test_failing_disk_is_an_error(operation: Operation) -> None:
    """EIO is not waited for."""
    files = SimFiles(fail=lambda _n, op, _p: errno.EIO if op is operation else 0)

    def use() -> None:
        sink = Sink(Disk(files, SpaceWait(), "w"), "f")
        sink.write(b"x")
        sink.finish()

    with pytest.raises(DiskError, match="Input/output error"):
        use()


def test_failed_fsync_is_not_tried_again() -> None:
    """Not even for lack of space: the kernel may have dropped the pages."""
    files = SimFiles(fail=lambda _n, op, _p: errno.ENOSPC if op is Operation.SYNC else 0)
    sink = Sink(Disk(files, SpaceWait(), "w"), "f")
    sink.write(b"x")
    with pytest.raises(DiskError, match="recovery"):
        sink.finish()
    assert [op for op, _ in files.operations].count(Operation.SYNC) == 1
