"""File operations of several steps, which wait for free space and keep track of fsyncs.

Built on `Files` and `SpaceWait`. After `sync_directories` every directory in its list, and every parent, is
durable. A directory counts as durable only once this process has synced it: one that an earlier process made
may never have reached the disk.
"""

import contextlib
import functools
import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from gaussdecode.errors import DiskError
from gaussdecode.land.files import Files, Item
from gaussdecode.land.names import parent, unfinished_name
from gaussdecode.land.space import SpaceWait

_READ_BYTES: Final = 1 << 20
_SYNCERS: Final = 16  # threads that wait for the disk; arbitrary
_TRIES: Final = 8  # arbitrary
_MANY: Final = 32  # items from which threads pay; arbitrary
_Item = TypeVar("_Item")


class Disk:
    """The landing's files, with patience. Thread-safe.

    Args:
        files: the root.
        space: waits when there is no room.
        writer: token that makes this writer's unfinished names its own.
    """

    def __init__(self, files: Files, space: SpaceWait, writer: str) -> None:
        self.files = files
        self.space = space
        self.writer = writer
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._serial = 0
        self._trusted: set[str] = {""}
        self._unsynced: set[str] = set()

    def unfinished(self, directory: str, n: int, suffix: str) -> str:
        """Give a path nobody has used."""
        with self._lock:
            self._serial += 1
            serial = self._serial
        return f"{directory}/{unfinished_name(self.writer, n, serial, suffix)}".lstrip("/")

    def ensure_directory(self, path: str) -> None:
        """See that a directory and its parents exist; `sync_directories` makes them durable."""
        missing = []
        with self._lock:
            while path not in self._trusted and path not in self._unsynced:
                missing.append(path)
                path = parent(path)
        made = None
        for directory in reversed(missing):
            if made == parent(directory) or not self.files.has_directory(directory):
                self._make(directory)
                made = directory
            with self._lock:
                self._unsynced |= {directory, parent(directory)}

    def sync_directories(self, *touched: str) -> None:
        """Make the names in the given and in all newly used directories durable.

        One thread at a time: who finds a directory already taken by another thread must
        not go on before that one has synced it.
        """
        with self._sync_lock:
            with self._lock:
                pending = self._unsynced
                self._unsynced = set()
            going = pending - set(touched)  # nothing is in them yet: they may be removed meanwhile
            # From the leaves up, so that a directory is whole before its parent names it.
            paths = sorted(pending | set(touched), key=_height)
            for _, level in itertools.groupby(paths, _height):
                sync = functools.partial(self._sync_directory, going=going)
                self.together(sync, sorted(level))
            with self._lock:
                self._trusted |= pending

    def together(self, work: Callable[[_Item], object], items: Sequence[_Item]) -> None:
        """Do something with each item; with many of them several at a time.

        What waits for the disk waits for one flush then, not for one after the other.

        Raises:
            DiskError: the first failure, once all that was begun has ended.
        """
        if len(items) < _MANY:
            for item in items:
                work(item)
            return
        waiting = iter(items)
        errors: list[BaseException] = []

        def work_off() -> None:
            try:
                for item in waiting:  # shared: each takes the next
                    work(item)
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)

        with ThreadPoolExecutor(_SYNCERS, "sync") as pool:
            with contextlib.suppress(RuntimeError):  # the system has no more threads
                for _ in range(_SYNCERS - 1):
                    pool.submit(work_off)
            work_off()
        if errors:
            raise errors[0]

    def create(self, path: str) -> int:
        """Create a file that must not exist, and what it is in; gives a handle for `files`.

        Whoever removes empty directories may have taken it away before the file was there.

        Raises:
            FileNotFoundError: somebody else does it again and again.
        """
        for _ in range(_TRIES):
            self.ensure_directory(parent(path))
            try:
                return self.space.run(f"create {path}", lambda: self.files.create(path))
            except FileNotFoundError:
                with self._lock:
                    self._forget(parent(path))
        raise FileNotFoundError(path)

    def write_file(self, path: str, data: bytes) -> None:
        """Create a file with this content and make the content durable."""
        handle = self.create(path)
        try:
            self.write(handle, path, memoryview(data))
            self.space.once(f"fsync {path}", lambda: self.files.sync(handle))
        finally:
            self.files.close_handle(handle)

    def write(self, handle: int, path: str, data: memoryview) -> None:
        """Append all of `data`, going on where the disk was full."""
        while data:
            done = self._write_some(handle, path, data)
            if done <= 0:
                raise DiskError(f"write {path}: the file system accepts no bytes")
            data = data[done:]

    def link(self, old: str, new: str) -> None:
        """Give a second name; FileExistsError when it is taken."""
        self.space.run(f"link {new}", lambda: self.files.link(old, new))

    def rename(self, old: str, new: str) -> None:
        """Rename without replacing; FileExistsError when the name is taken."""
        self.space.run(f"rename {old} to {new}", lambda: self.files.rename(old, new))

    def replace(self, old: str, new: str) -> None:
        """Rename, replacing."""
        self.space.run(f"rename {old} over {new}", lambda: self.files.replace(old, new))

    def set_time(self, path: str, mtime_ms: int) -> None:
        """Set the modification time."""
        self.space.run(f"set time of {path}", lambda: self.files.set_time(path, mtime_ms))

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        try:
            self.space.run(f"unlink {path}", lambda: self.files.unlink(path))
        except FileNotFoundError:
            return

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty."""
        with self._lock:  # over both: who makes it anew must find it to be synced
            try:
                self.files.remove_directory(path)
            except OSError:
                return False
            self._forget(path)
        return True

    def items(self, path: str) -> list[Item]:
        """Names in a directory, sorted."""
        return self.space.run(f"list {path or '.'}", lambda: self.files.items(path))

    def rest(self, path: str, pattern: re.Pattern[str], below: str) -> list[Item]:
        """The same without the files whose names fit a pattern and sort before another name."""
        return self.space.run(f"list {path or '.'}", lambda: self.files.rest(path, pattern, below))

    def size(self, path: str) -> int | None:
        """Size of a file; None if there is none."""
        return self.space.run(f"stat {path}", lambda: self.files.size(path))

    def read(self, path: str) -> bytes | None:
        """Content of a small file; None if there is none."""
        try:
            return self.space.run(f"read {path}", lambda: self.files.read(path))
        except FileNotFoundError:
            return None

    def checksum(self, path: str) -> str:
        """``sha256:`` and the digest of a file, read piece by piece."""
        return self.space.run(f"read {path}", lambda: self._checksum(path))

    def matches(self, path: str, size: int, checksum: str) -> bool:
        """Whether a file is there with this size and checksum."""
        return self.size(path) == size and self.checksum(path) == checksum

    def _write_some(self, handle: int, path: str, data: memoryview) -> int:
        return self.space.run(f"write {path}", lambda: self.files.write(handle, data))

    def _sync_directory(self, path: str, going: Collection[str]) -> None:
        def sync() -> None:
            try:
                self.files.sync_directory(path)
            except FileNotFoundError:
                if path not in going:
                    raise

        self.space.once(f"fsync {path or '.'}", sync)

    def _forget(self, path: str) -> None:
        self._trusted.discard(path)
        self._unsynced.discard(path)

    def _checksum(self, path: str) -> str:
        digest = hashlib.sha256()
        with self.files.open(path) as file:
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
        return f"sha256:{digest.hexdigest()}"

    def _make(self, path: str) -> None:
        try:
            self.space.run(f"mkdir {path}", lambda: self.files.make_directory(path))
        except FileExistsError:
            return


def _height(path: str) -> int:
    """Sorts directories before those they are in."""
    return -path.count("/")
