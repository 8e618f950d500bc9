"""Keep batches of open transactions in a file when memory is full.

One file without a name below the landing's ``spool/``. It goes with the process, as the open
transactions do; the server sends them again. Other open transactions overwrite the space that a
transaction gives back. When no transaction is open any more, the file is emptied.

One file serves all tables. A file per table would lose the order over tables, and thousands of tables
would mean thousands of files.

`BoundedSpool` limits the size. A collector at this limit must not simply wait for the stream: the commit
that frees room comes after the batch that has no room.
"""

import bisect
import errno
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gaussdecode.errors import DiskError

_NO_TMPFILE: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
Attempt = Callable[[str, Callable[[], int]], int]


class Extents:
    """The free stretches of a file; neighbours are one stretch.

    Attributes:
        end: end of the file; beyond it everything is free.
    """

    def __init__(self) -> None:
        self.end = 0
        self._free: list[tuple[int, int]] = []  # offset and size, rising; none reaches `end`

    def has_gap(self, size: int) -> bool:
        """Whether a stretch can be taken without moving the end."""
        return any(length >= size for _, length in self._free)

    def take(self, size: int) -> int:
        """Take a stretch: the first that is long enough, else at the end; gives its offset."""
        for index, (offset, length) in enumerate(self._free):
            if length >= size:
                self._free[index : index + 1] = (
                    [(offset + size, length - size)] if length > size else []
                )
                return offset
        offset = self.end
        self.end += size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Give a stretch back that was taken, or a part of one."""
        if size == 0:
            return
        at = bisect.bisect(self._free, (offset, 0))
        if at < len(self._free) and self._free[at][0] == offset + size:
            size += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == offset:
            at -= 1
            before = self._free.pop(at)
            offset, size = before[0], before[1] + size
        if offset + size == self.end:
            self.end = offset
        else:
            self._free.insert(at, (offset, size))


def _freely(_: str) -> None:
    """All of the file system may be filled."""


class Spool:
    """Byte store whose stretches can be given back.

    Args:
        directory: exists, on the landing's file system.
        attempt: does a file operation, again and again while the disk is full; takes what
            to call it in an error, and the operation.
        reserve: waits until the file system may be filled further; takes what for.
    """

    def __init__(
        self, directory: Path, attempt: Attempt, reserve: Callable[[str], object] = _freely
    ) -> None:
        self._directory = directory
        self._attempt = attempt
        self._reserve = reserve
        self._fd = -1
        self._extents = Extents()

    def has_room(self, size: int, most_bytes: int) -> bool:
        """Whether so much can be written while the file stays within so many bytes."""
        return self._extents.end + size <= most_bytes or self._extents.has_gap(size)

    def write(self, data: memoryview) -> int:
        """Write bytes where there is room, or at the end.

        Returns:
            Their offset.

        Raises:
            DiskError: the file system failed in another way than being full.
        """
        if self._fd < 0:
            self._fd = self._attempt("open a spool file", self._open)
        if not self._extents.has_gap(data.nbytes):
            self._reserve("write to the spool")
        offset = self._extents.take(data.nbytes)
        left, at = data, offset
        while left.nbytes:
            pwrite = functools.partial(os.pwrite, self._fd, left, at)
            done = self._attempt("write to the spool", pwrite)
            at += done
            left = left[done:]
        return offset

    def _open(self) -> int:
        try:
            return os.open(self._directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
        fd, name = tempfile.mkstemp(prefix=".", suffix=".spool", dir=self._directory)
        os.unlink(name)
        return fd

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes that `write` put at `offset`.

        Raises:
            DiskError: they cannot be read.
        """
        left = target
        while left.nbytes:
            preadv = functools.partial(os.preadv, self._fd, [left], offset)
            done = self._attempt("read the spool", preadv)
            if done == 0:
                raise DiskError(f"{self._directory}: a spool file was cut short")
            offset += done
            left = left[done:]

    def free(self, offset: int, size: int) -> None:
        """Give back what `write` put there; what stands at the end goes from the disk at once."""
        end = self._extents.end
        self._extents.give(offset, size)
        if self._extents.end < end and self._fd >= 0:
            self._attempt("shorten the spool", self._truncate)

    def _truncate(self) -> int:
        os.ftruncate(self._fd, self._extents.end)
        return 0

    def close(self) -> None:
        """Let the file go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._extents = Extents()


class NoRoomError(Exception):
    """There is no space, and the data is no longer wanted: it was given up."""


class BoundedSpool:
    """A spool whose file grows no longer than that.

    Args:
        spool: the file.
        most_bytes: largest size of the file.
        on_full: called while there is no room for what is to be written, again and again until
            there is; it waits, makes room, or raises.
    """

    def __init__(self, spool: Spool, most_bytes: int, on_full: Callable[[], object]) -> None:
        self._spool = spool
        self._most_bytes = most_bytes
        self._on_full = on_full

    def write(self, data: memoryview) -> int:
        """As `Spool.write`, once there is room.

        Raises:
            NoRoomError: raised by `on_full`.
        """
        while not self._spool.has_room(data.nbytes, self._most_bytes):
            self._on_full()
        return self._spool.write(data)

    def read_into(self, offset: int, target: memoryview) -> None:
        """As `Spool.read_into`."""
        self._spool.read_into(offset, target)

    def free(self, offset: int, size: int) -> None:
        """As `Spool.free`."""
        self._spool.free(offset, size)
