"""Where the batches of an open transaction wait when memory may hold no more of them.

One file without a name below the landing's ``spool/``: it dies with the process, as the
transaction does, which the server will send again.
"""

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


class Spool:
    """Byte store that only grows until it is cleared.

    Args:
        directory: exists, on the landing's file system.
        attempt: does a file operation, again and again while the disk is full; takes what
            to call it in an error, and the operation.
    """

    def __init__(self, directory: Path, attempt: Attempt) -> None:
        self._directory = directory
        self._attempt = attempt
        self._fd = -1
        self._size = 0

    def write(self, data: memoryview) -> int:
        """Append bytes.

        Returns:
            Their offset.

        Raises:
            DiskError: the file system failed in another way than being full.
        """
        if self._fd < 0:
            self._fd = self._attempt("open a spool file", self._open)
        offset = self._size
        left = data
        while left.nbytes:
            pwrite = functools.partial(os.pwrite, self._fd, left, self._size)
            done = self._attempt("write to the spool", pwrite)
            self._size += done
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

    def clear(self) -> None:
        """Forget everything and give the space back."""
        if self._fd >= 0:
            self._attempt("empty the spool", self._truncate)
        self._size = 0

    def _truncate(self) -> int:
        os.ftruncate(self._fd, 0)
        return 0

    def close(self) -> None:
        """Let the file go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._size = 0
