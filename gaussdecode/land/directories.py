"""Keep some directories of a landing open.

A landing has a directory for each day of each table, and a file that lands needs its own a dozen times. The
users of an open directory are counted: a descriptor of its own for each would be two calls more each time.
Links are not followed.
"""

import contextlib
import ctypes
import errno
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CACHED: Final = 128
_OPENAT2: Final = ctypes.c_long(437)  # on every architecture
_NO_LINKS_BENEATH: Final = 0x04 | 0x08  # RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH
_OPEN_HOW: Final = struct.pack("QQQ", DIRECTORY_FLAGS, 0, _NO_LINKS_BENEATH)
_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


class Directory:
    """An open directory.

    Args:
        descriptor: closed when the cache has dropped it and nobody uses it.
    """

    __slots__ = ("descriptor", "is_dropped", "users")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 0
        self.is_dropped = False

    def close_if_over(self) -> None:
        """Close it, if neither the cache nor anybody else has it."""
        if self.is_dropped and not self.users:
            os.close(self.descriptor)


class OpenDirectories:
    """The directories that were used last. Thread-safe.

    Args:
        root: descriptor of what all of them are in; the caller closes it, after these.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._found: OrderedDict[str, Directory] = OrderedDict()
        self._is_closed = False

    def lend(self, path: str) -> Directory:
        """Give a directory, which stays open until `give_back`.

        Raises:
            OSError: it cannot be opened, or all were closed.
        """
        with self._lock:
            if self._is_closed:
                raise OSError(errno.EBADF, "the landing is closed")
            directory = self._found.get(path)
            if directory is None:
                directory = Directory(_open_directory(self._root, path))
                self._found[path] = directory
                if len(self._found) > _CACHED:
                    self._drop(next(iter(self._found)))
            else:
                self._found.move_to_end(path)
            directory.users += 1
            return directory

    def give_back(self, directory: Directory) -> None:
        """Say that its user does without it."""
        with self._lock:
            directory.users -= 1
            directory.close_if_over()

    @contextlib.contextmanager
    def without(self, path: str) -> Iterator[None]:
        """Drop one, and lend none until the end of the block."""
        with self._lock:
            if path in self._found:
                self._drop(path)
            yield

    def close(self) -> None:
        """Lend no more, and close what nobody uses."""
        with self._lock:
            self._is_closed = True
            while self._found:
                self._drop(next(iter(self._found)))

    def _drop(self, path: str) -> None:
        directory = self._found.pop(path)
        directory.is_dropped = True
        directory.close_if_over()


def _open_directory(root: int, path: str) -> int:
    """Open a directory below the root, without following links.

    In one call where the kernel has it; else, and to tell what is wrong, by walking down.
    """
    if path.isascii() and "." not in path[:1] and "/." not in path and "//" not in path:
        how = _OPEN_HOW, ctypes.c_size_t(len(_OPEN_HOW))
        descriptor = int(_syscall(_OPENAT2, ctypes.c_long(root), path.encode() or b".", *how))
        if descriptor >= 0:
            return descriptor
    return _walk(root, path)


def _walk(root: int, path: str) -> int:
    descriptor = os.dup(root)
    for component in path.split("/") if path else ():
        if component in ("", ".", ".."):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a path below the root", path)
        try:
            below = os.open(component, DIRECTORY_FLAGS, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor
