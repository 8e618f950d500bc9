"""Where the batches of an open transaction wait when memory may hold no more of them.

One file without a name below the landing's ``spool/``: it dies with the process, as the
transaction does, which the server will send again.
"""

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from gaussdecode.errors import DiskError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Spool:
    """Byte store that only grows until it is cleared.

    Args:
        directory: exists, on the landing's file system.
        wait_for_space: called while the disk is full; returns to try again.
    """

    def __init__(self, directory: Path, wait_for_space: Callable[[], None]) -> None:
        self._directory = directory
        self._wait_for_space = wait_for_space
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
            self._fd = self._open()
        offset = self._size
        left = data
        while left.nbytes:
            try:
                done = os.pwrite(self._fd, left, self._size)
            except OSError as error:
                if error.errno not in _FULL:
                    raise DiskError(f"{self._directory}: cannot spool: {error.strerror}") from error
                self._wait_for_space()
                continue
            self._size += done
            left = left[done:]
        return offset

    def _open(self) -> int:
        try:
            return os.open(self._directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise DiskError(f"{self._directory}: cannot spool: {error.strerror}") from error
        fd, name = tempfile.mkstemp(prefix=".", suffix=".spool", dir=self._directory)
        os.unlink(name)
        return fd

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes that `write` put at `offset`."""
        left = target
        while left.nbytes:
            done = os.preadv(self._fd, [left], offset)
            if done == 0:
                raise DiskError(f"{self._directory}: a spool file was cut short")
            offset += done
            left = left[done:]

    def clear(self) -> None:
        """Forget everything and give the space back."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
        self._size = 0

    def close(self) -> None:
        """Let the file go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._size = 0
