"""A disk in memory that remembers what was fsynced, and can lose the rest.

`SimFiles` is the landing's `Files` on top of it: the landing runs unchanged, every changing
operation is recorded with the state of the disk just before it, and any of these states can
be turned into what a crash or a power cut would have left.

A file has its content and the content of its last fsync; a directory has its names and the
names of its last fsync. Nothing else makes anything durable: not closing, not renaming, not
an fsync of something else. That is harsher than any real file system.
"""

import dataclasses
import enum
import errno
import io
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gaussdecode.errors import LandingError
from gaussdecode.land.failpoints import Operation, Point
from gaussdecode.land.files import Files, Item


class File(NamedTuple):
    """A regular file."""

    data: bytes = b""
    synced: bytes = b""
    mtime_ms: int = 0


class Directory(NamedTuple):
    """A directory: name to node number, now and at its last fsync."""

    names: dict[str, int]
    synced: dict[str, int]


class Loss(enum.Enum):
    """What becomes of the disk when the process, or the power, goes."""

    PROCESS = "the process is killed, the kernel lives on"
    LOST = "nothing survives but what was fsynced"
    TORN = "all names survive, of contents not fsynced only half"
    ZEROS = "all names survive, contents not fsynced are zeros"
    COMMITS = "names in commits/ survive, elsewhere only what was fsynced"
    DATA = "names outside of commits/ survive, there only what was fsynced"


class Image:
    """The whole disk. Nodes are immutable, so a copy is a copy of one dictionary.

    Threads may change names at the same time, as on a real disk: each change is made as a whole.
    """

    def __init__(self, nodes: dict[int, File | Directory] | None = None, serial: int = 0) -> None:
        empty: dict[int, File | Directory] = {0: Directory({}, {})}
        self.nodes = empty if nodes is None else nodes
        self.serial = serial
        self._lock = threading.Lock()

    def copy(self) -> "Image":
        """Give a snapshot."""
        return Image(dict(self.nodes), self.serial)

    def add(self, node: File | Directory) -> int:
        """Store a new node and give its number."""
        with self._lock:
            self.serial += 1
            self.nodes[self.serial] = node
            return self.serial

    def directory(self, path: str) -> tuple[int, Directory]:
        """Find a directory."""
        number = 0
        for name in path.split("/") if path else ():
            number = self._directory(number, path).names.get(name, -1)
        return number, self._directory(number, path)

    def file(self, path: str) -> tuple[int, File]:
        """Find a file."""
        parent, _, name = path.rpartition("/")
        number = self.directory(parent)[1].names.get(name, -1)
        node = self.nodes.get(number)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return number, node

    def rename_in(self, path: str, change: Callable[[dict[str, int]], object]) -> None:
        """Change the names of a directory."""
        with self._lock:
            number, found = self.directory(path)
            names = dict(found.names)
            change(names)
            self.nodes[number] = Directory(names, found.synced)

    def add_in(self, path: str, number: int) -> None:
        """Give a node a name that must be free."""
        parent, _, name = path.rpartition("/")

        def put(names: dict[str, int]) -> None:
            if names.setdefault(name, number) != number:
                raise FileExistsError(errno.EEXIST, "exists", path)

        self.rename_in(parent, put)

    def sync_directory(self, path: str) -> None:
        """Make the names of a directory outlast the power."""
        with self._lock:
            number, found = self.directory(path)
            self.nodes[number] = Directory(found.names, found.names)

    def after(self, loss: Loss) -> "Image":
        """Give the disk as the next process finds it."""
        if loss is Loss.PROCESS:
            return self.copy()
        nodes: dict[int, File | Directory] = {}
        for number, path in self._reachable(loss):
            node = self.nodes[number]
            if isinstance(node, File):
                data = _surviving(node, loss)
                nodes[number] = File(data, data, node.mtime_ms)
            else:
                names = node.names if _names_survive(path, loss) else node.synced
                nodes[number] = Directory(names, names)
        return Image(nodes, self.serial)

    def key(self) -> int:
        """Equal for disks that no program can tell apart, now or after a power cut."""
        return hash((frozenset(self._tree(0, "", 0)), frozenset(self._tree(0, "", 1))))

    def visible_key(self) -> int:
        """Equal for disks that no program can tell apart while the power is on."""
        return hash(frozenset((path, data) for path, data, _ in self._tree(0, "", 0)))

    def paths(self) -> Iterator[str]:
        """All files."""
        return (path for path, *_ in self._tree(0, "", 0))

    def _reachable(self, loss: Loss, number: int = 0, path: str = "") -> Iterator[tuple[int, str]]:
        yield number, path
        node = self.nodes[number]
        if isinstance(node, Directory):
            names = node.names if _names_survive(path, loss) else node.synced
            for name, below in names.items():
                yield from self._reachable(loss, below, f"{path}/{name}".lstrip("/"))

    def _tree(self, number: int, path: str, view: int) -> Iterator[tuple[str, bytes, bytes]]:
        node = self.nodes[number]
        if isinstance(node, File):
            yield path, node.data, node.synced
            return
        for name, below in node[view].items():
            yield from self._tree(below, f"{path}/{name}".lstrip("/"), view)

    def _directory(self, number: int, path: str) -> Directory:
        node = self.nodes.get(number)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node


def _names_survive(path: str, loss: Loss) -> bool:
    in_commits = path.startswith("commits")
    return (
        loss in (Loss.TORN, Loss.ZEROS)
        or (loss is Loss.COMMITS and in_commits)
        or (loss is Loss.DATA and not in_commits)
    )


def _surviving(file: File, loss: Loss) -> bytes:
    added = len(file.data) - len(file.synced)
    if loss is Loss.TORN:
        return file.data[: len(file.synced) + added // 2]
    if loss is Loss.ZEROS:
        return file.synced + bytes(added)
    return file.synced


@dataclasses.dataclass(frozen=True)
class Moment:
    """The disk just before an operation."""

    operation: Operation
    path: str
    image: Image
    note: int


class SimFiles(Files):
    """The landing's files on an `Image`.

    Attributes:
        image: the disk.
        moments: the disk before each changing operation, if recording.
        operations: each changing operation, numbered from 0.
        note: whatever the test wants to find again in the moments.
    """

    def __init__(  # it has no real root
        self,
        image: Image | None = None,
        *,
        record: bool = False,
        fail: Callable[[int, Operation, str], int] | None = None,
        holds_lock: bool = True,
    ) -> None:
        """Mount an image.

        Args:
            image: changed in place; an empty disk by default.
            record: keep the moments.
            fail: given number, operation and path; an errno makes the operation fail.
            holds_lock: refuse a second lock, as a real file system does.
        """
        self.root = Path("/simulated")
        self.image = image or Image()
        self.moments: list[Moment] = []
        self.operations: list[tuple[Operation, str]] = []
        self.note = 0
        self._record = record
        self._fail = fail
        self._handles: dict[int, int] = {}
        self._numbers = itertools.count(1001)
        self._holds_lock = holds_lock
        self._is_locked = False

    def check_root(self) -> None:
        """Accept it."""

    def lock(self) -> str | None:
        """Take it once."""
        if self._is_locked and self._holds_lock:
            raise LandingError("in use by another process")
        self._is_locked = True
        return None

    def is_locked(self) -> bool:
        """Whether it is taken."""
        return self._is_locked

    def close(self) -> None:
        """Give it back."""
        self._is_locked = False

    def reach(self, point: Point) -> None:
        """Pass; a test fails operations instead."""

    def create(self, path: str) -> int:
        self._begin(Operation.CREATE, path)
        number = self.image.add(File())
        self.image.add_in(path, number)
        handle = next(self._numbers)
        self._handles[handle] = number
        return handle

    def write(self, handle: int, data: bytes | memoryview) -> int:
        number = self._handles[handle]
        self._begin(Operation.WRITE, str(number))
        file = self._file(number)
        taken = bytes(data)
        self.image.nodes[number] = file._replace(data=file.data + taken)
        return len(taken)

    def sync(self, handle: int) -> None:
        number = self._handles[handle]
        self._begin(Operation.SYNC, str(number))
        file = self._file(number)
        self.image.nodes[number] = file._replace(synced=file.data)

    def close_handle(self, handle: int) -> None:
        del self._handles[handle]

    def sync_directory(self, path: str) -> None:
        self._begin(Operation.SYNC_DIRECTORY, path)
        self.image.sync_directory(path)

    def link(self, old: str, new: str) -> None:
        self._begin(Operation.LINK, new)
        self.image.add_in(new, self.image.file(old)[0])

    def rename(self, old: str, new: str) -> None:
        self._begin(Operation.RENAME, new)
        self.image.add_in(new, self.image.file(old)[0])
        self._take(old)

    def replace(self, old: str, new: str) -> None:
        self._begin(Operation.REPLACE, new)
        number = self.image.file(old)[0]
        parent, _, name = new.rpartition("/")
        self.image.rename_in(parent, lambda names: names.update({name: number}))
        self._take(old)

    def unlink(self, path: str) -> None:
        self._begin(Operation.UNLINK, path)
        self.image.file(path)
        self._take(path)

    def make_directory(self, path: str) -> None:
        self._begin(Operation.MAKE_DIRECTORY, path)
        self.image.add_in(path, self.image.add(Directory({}, {})))

    def remove_directory(self, path: str) -> None:
        self._begin(Operation.REMOVE_DIRECTORY, path)
        if self.image.directory(path)[1].names:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._take(path)

    def set_time(self, path: str, mtime_ms: int) -> None:
        self._begin(Operation.SET_TIME, path)
        number, file = self.image.file(path)
        self.image.nodes[number] = file._replace(mtime_ms=mtime_ms)

    def items(self, path: str) -> list[Item]:
        try:
            names = self.image.directory(path)[1].names
        except FileNotFoundError:
            return []
        nodes = self.image.nodes
        return sorted(
            Item(name, isinstance(nodes[n], Directory), isinstance(nodes[n], File))
            for name, n in names.items()
        )

    def rest(self, path: str, pattern: re.Pattern[str], below: str) -> list[Item]:
        return [
            item
            for item in self.items(path)
            if not (item.is_file and item.name < below and pattern.fullmatch(item.name))
        ]

    def scan(self, path: str) -> Iterator[Item]:
        yield from self.items(path)

    def size(self, path: str) -> int | None:
        try:
            return len(self.image.file(path)[1].data)
        except FileNotFoundError:
            return None

    def has_directory(self, path: str) -> bool:
        try:
            self.image.directory(path)
        except FileNotFoundError:
            return False
        return True

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.image.file(path)[1].data)

    def _begin(self, operation: Operation, path: str) -> None:
        if self._record:
            self.moments.append(Moment(operation, path, self.image.copy(), self.note))
        number = len(self.operations)
        self.operations.append((operation, path))
        code = self._fail(number, operation, path) if self._fail is not None else 0
        if code:
            raise OSError(code, os.strerror(code), path)

    def _file(self, number: int) -> File:
        node = self.image.nodes[number]
        assert isinstance(node, File)
        return node

    def _take(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        self.image.rename_in(parent, lambda names: names.pop(name))
