"""Do every file operation of the landing.

Paths are relative to the root, with ``/``. Nothing outside the root is touched: directories are opened
component by component without following links. An operation either happened or raised OSError. There
is no knowledge of entries, order or retry here.

The stage has no other way to the disk. So a test can replace the disk, and a failpoint can fail or kill at
each operation.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Generic, NamedTuple, TypeVar

from gaussdecode.errors import AccessError, ConfigError, DiskError, LandingError
from gaussdecode.host.access import group_name, refused, user_name
from gaussdecode.land.directories import DIRECTORY_FLAGS, Directory, OpenDirectories
from gaussdecode.land.failpoints import Failpoints, Operation, Point
from gaussdecode.land.names import LOCK

_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LOCK_MODE: Final = 0o600
_FLOCK: Final = re.compile(r"\d+: FLOCK\s+ADVISORY\s+\w+ (-?\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ")
_Given = TypeVar("_Given")
_RENAME_NOREPLACE: Final = 1
_NO_SUCH_LINK: Final = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)  # of a file of our own
_LINKS_NEEDED: Final = (
    "this file system has no hard links, which keep two writers apart; landing.root has to be on a local "
    "disk, NFS or a cluster's file system, and a store that is mounted is given to landing.mirror by URL"
)
_NO_SUCH_RENAME: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)

LOCAL_FILE_SYSTEMS: Final = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "f2fs", "jfs", "zfs", "tmpfs", "overlay")
)
"""File systems on which link, rename, flock and fsync are known to do what they say."""


class Item(NamedTuple):
    """One name in a directory; what is neither is a link, a pipe, a socket or a device."""

    name: str
    is_directory: bool
    is_file: bool


def make_root(root: Path) -> None:
    """See that the root is there, and that its name is durable.

    Raises:
        ConfigError: it cannot be made.
        DiskError: the file system failed.
    """
    missing = [path for path in (root, *root.parents) if not os.path.exists(path)]  # never raises
    for path in reversed(missing):
        try:
            path.mkdir(_DIRECTORY_MODE)
        except PermissionError as error:
            raise AccessError(
                f"{refused(path, error)}; make it: install -d -m 0750 -o {user_name(os.geteuid())} "
                f"-g {group_name(os.getegid())} {root}"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"landing root {root}: cannot make {path}: {error.strerror}"
            ) from error
    for path in {path.parent for path in missing} or {root.parent}:
        _sync_names(path)


def _sync_names(path: Path) -> None:
    """Make the names in a directory durable, if we may read it: else it was made by others."""
    try:
        descriptor = os.open(path, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise DiskError(f"fsync {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


class Files:
    """The landing's root directory, and all that is ever done below it.

    Thread-safe. Holds a descriptor of the root and a few of directories in use.
    """

    def __init__(self, root: Path, failpoints: Failpoints | None = None) -> None:
        """Open the root.

        Raises:
            ConfigError: it is no directory, is not ours, or others may write to it.
        """
        self.root = root
        self._failpoints = failpoints or Failpoints.from_environment()
        self._lock_fd = -1
        try:
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError as error:
            raise refused(root, error) from error
        except OSError as error:
            raise ConfigError(f"landing root {root}: {error.strerror}; create it first") from error
        self._directories = OpenDirectories(self._root_fd)

    def check_root(self) -> None:
        """Refuse a root that somebody else can change, or that is not on a local disk.

        Raises:
            ConfigError: and the text says what to do.
        """
        facts = os.fstat(self._root_fd)
        if facts.st_uid != os.geteuid():
            raise ConfigError(
                f"landing root {self.root} belongs to user {user_name(facts.st_uid)}, this process is "
                f"user {user_name(os.geteuid())}; run as root or as the owner, or chown the landing"
            )
        if facts.st_mode & stat.S_IWOTH:
            raise ConfigError(f"landing root {self.root} is world-writable; chmod o-w it")
        kind = file_system_of(self.root)
        if kind not in LOCAL_FILE_SYSTEMS:
            raise ConfigError(
                f"landing root {self.root} is on file system {kind!r}; a landing needs a local "
                f"one: {', '.join(sorted(LOCAL_FILE_SYSTEMS))}"
            )

    def lock(self) -> str | None:
        """Take the landing for this process, until `close`.

        The lock is on a file that only the owner of the landing can open. That of earlier
        versions is on the root, where any process that may read it can take it: it keeps us
        away only where its holder is the owner, or root.

        Returns:
            A sentence for the operator when somebody else holds the root, else None.

        Raises:
            LandingError: another process has the landing.
            OSError: the file cannot be made.
        """
        self.reach(Operation.CREATE)
        with self._named(LOCK):
            self._lock_fd = os.open(LOCK, _LOCK_FLAGS, _LOCK_MODE, dir_fd=self._root_fd)
            os.fchmod(self._lock_fd, _LOCK_MODE)
        try:
            fcntl.fcntl(self._lock_fd, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
        except (BlockingIOError, PermissionError) as error:
            raise self._in_use("") from error
        try:
            fcntl.flock(self._root_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holders = flock_holders(os.fstat(self._root_fd).st_ino)
            for pid, uid in holders:
                if uid in {0, os.geteuid()}:
                    raise self._in_use(f" ({pid}, of an earlier version)") from error
            names = ", ".join(f"process {pid} of user {uid}" for pid, uid in holders)
            return (
                f"landing root {self.root} is locked by {names or 'a process that does not show'}, "
                "which may not have it; passed over. Let only the readers of the landing read its "
                "root"
            )
        return None

    def is_locked(self) -> bool:
        """Whether a daemon has the landing, as far as this user can see; takes nothing."""
        if flock_holders(os.fstat(self._root_fd).st_ino):
            return True
        try:
            descriptor = os.open(LOCK, _READ_FLAGS | os.O_NONBLOCK, dir_fd=self._root_fd)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True  # only the owner can see
        try:
            asked = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
        finally:
            os.close(descriptor)
        (kind,) = struct.unpack_from("h", asked)
        return bool(kind != fcntl.F_UNLCK)

    def _in_use(self, by: str) -> LandingError:
        return LandingError(
            f"landing root {self.root} is in use by another process{by}; stop that one first"
        )

    def close(self) -> None:
        """Give the landing back."""
        self._directories.close()
        if self._root_fd >= 0:
            os.close(self._root_fd)
        self._root_fd = -1
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd = -1

    def reach(self, point: Point) -> None:
        """Pass a failpoint."""
        if self._failpoints is not None:
            self._failpoints.reach(point)

    def create(self, path: str) -> int:
        """Create a file that must not exist and give a handle for `write`."""
        self.reach(Operation.CREATE)
        with self._directory_of(path) as (directory, name):
            return os.open(name, _CREATE_FLAGS, _FILE_MODE, dir_fd=directory)

    def write(self, handle: int, data: bytes | memoryview) -> int:
        """Append; gives how many bytes were taken, which may be fewer than given."""
        self.reach(Operation.WRITE)
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """Make the content of an open file durable. Never call it again after it failed."""
        self.reach(Operation.SYNC)
        os.fsync(handle)

    def close_handle(self, handle: int) -> None:
        """Close what `create` opened."""
        os.close(handle)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable; the root is the empty path."""
        self.reach(Operation.SYNC_DIRECTORY)
        with self._directory(path) as descriptor:
            os.fsync(descriptor)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name that must not exist."""
        self.reach(Operation.LINK)
        with self._directory_of(old) as (source, a), self._directory_of(new) as (target, b):
            try:
                os.link(a, b, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_SUCH_LINK:
                    raise
                raise OSError(errno.EOPNOTSUPP, _LINKS_NEEDED) from error

    def rename(self, old: str, new: str) -> None:
        """Rename without replacing.

        Raises:
            FileExistsError: the new name is taken; nothing was changed.
        """
        self.reach(Operation.RENAME)
        with self._directory_of(old) as (source, a), self._directory_of(new) as (target, b):
            if not _rename_noreplace(source, a, target, b):
                os.link(a, b, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
                os.unlink(a, dir_fd=source)

    def replace(self, old: str, new: str) -> None:
        """Rename, and replace a file that has the new name."""
        self.reach(Operation.REPLACE)
        with self._directory_of(old) as (source, a), self._directory_of(new) as (target, b):
            os.replace(a, b, src_dir_fd=source, dst_dir_fd=target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self.reach(Operation.UNLINK)
        with self._directory_of(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def make_directory(self, path: str) -> None:
        """Create a directory that must not exist."""
        self.reach(Operation.MAKE_DIRECTORY)
        with self._directory_of(path) as (directory, name):
            os.mkdir(name, _DIRECTORY_MODE, dir_fd=directory)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self.reach(Operation.REMOVE_DIRECTORY)
        # In one: nobody is lent again what is going.
        with self._directory_of(path) as (directory, name), self._directories.without(path):
            os.rmdir(name, dir_fd=directory)

    def set_time(self, path: str, mtime_ms: int) -> None:
        """Set access and modification time, in milliseconds since 1970."""
        self.reach(Operation.SET_TIME)
        nanoseconds = mtime_ms * 1_000_000
        with self._directory_of(path) as (directory, name):
            os.utime(name, ns=(nanoseconds, nanoseconds), dir_fd=directory, follow_symlinks=False)

    def items(self, path: str) -> list[Item]:
        """Names in a directory, sorted; none if there is no such directory."""
        try:
            with self._directory(path) as descriptor, os.scandir(descriptor) as found:
                return sorted(map(_item, found))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def rest(self, path: str, pattern: re.Pattern[str], below: str) -> list[Item]:
        """The same without the files whose names fit a pattern and sort before another name.

        Of these there may be a million in one directory, of what is wanted none.
        """
        fits = pattern.fullmatch
        try:
            with self._directory(path) as descriptor, os.scandir(descriptor) as found:
                return sorted(
                    _item(entry)
                    for entry in found
                    if not (
                        (name := entry.name) < below
                        and fits(name) is not None
                        and entry.is_file(follow_symlinks=False)
                    )
                )
        except (FileNotFoundError, NotADirectoryError):
            return []

    def scan(self, path: str) -> Iterator[Item]:
        """The same, one at a time and in no order: a directory may hold a million names."""
        try:
            with self._directory(path) as descriptor, os.scandir(descriptor) as found:
                yield from map(_item, found)
        except (FileNotFoundError, NotADirectoryError):
            return

    def size(self, path: str) -> int | None:
        """Size of a regular file; None if there is none."""
        try:
            with self._directory_of(path) as (directory, name):
                facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return facts.st_size if stat.S_ISREG(facts.st_mode) else None

    def has_directory(self, path: str) -> bool:
        """Whether there is such a directory."""
        try:
            with self._directory_of(path) as (directory, name):
                facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(facts.st_mode)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        self.reach(Operation.READ)
        with self._directory_of(path) as (directory, name):
            return open(os.open(name, _READ_FLAGS | os.O_NONBLOCK, dir_fd=directory), "rb")

    def read(self, path: str) -> bytes:
        """Read a whole small file."""
        with self.open(path) as file:
            return file.read()

    def _directory_of(self, path: str) -> "_Lent[tuple[int, str]]":
        parent, _, name = path.rpartition("/")
        directory = self._lent(parent)
        return _Lent(self._directories, directory, (directory.descriptor, name), self.root, path)

    def _directory(self, path: str) -> "_Lent[int]":
        directory = self._lent(path)
        return _Lent(self._directories, directory, directory.descriptor)

    def _lent(self, path: str) -> Directory:
        """A directory that stays open until it is given back, though the cache may drop it."""
        try:
            return self._directories.lend(path)
        except PermissionError as error:
            error.filename = str(self.root / path)
            raise

    @contextlib.contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Have the kernel's refusal name the whole path, not what it is in its directory."""
        try:
            yield
        except PermissionError as error:
            error.filename = str(self.root / path)
            raise


class _Lent(Generic[_Given]):
    """A directory, open while something is done in it; used once, at once.

    A class, for it is used a dozen times for each file that lands.

    Args:
        directories: has lent it.
        directory: given back at the end.
        given: path as the user of the file sees it.
        root: root of the landing.
        path: path that an error of the kernel names; none where it names nothing.
    """

    __slots__ = ("_directories", "_directory", "_given", "_path", "_root")

    def __init__(
        self,
        directories: OpenDirectories,
        directory: Directory,
        given: _Given,
        root: Path | None = None,
        path: str = "",
    ) -> None:
        self._directories = directories
        self._directory = directory
        self._given = given
        self._root = root
        self._path = path

    def __enter__(self) -> _Given:
        return self._given

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._directories.give_back(self._directory)
        if self._root is not None and isinstance(error, PermissionError):
            error.filename = str(self._root / self._path)


def flock_holders(inode: int) -> list[tuple[int, int]]:
    """Process and user of everybody who holds a flock on a file, as far as the kernel tells."""
    found = []
    for line in Path("/proc/locks").read_text().splitlines():
        match = _FLOCK.match(line)
        if match is None or int(match[2]) != inode:
            continue
        try:
            status = Path(f"/proc/{match[1]}/status").read_text()
        except OSError:  # it has ended, or does not show
            continue
        # Not the owner of /proc/<pid>, which a process can have root be.
        found += [
            (int(match[1]), int(uid))
            for uid in re.findall(r"^Uid:\s+\d+\s+(\d+)", status, re.MULTILINE)
        ]
    return found


def _whole_file(kind: int) -> bytes:
    """A ``struct flock`` for all of a file."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)


def _item(found: os.DirEntry[str]) -> Item:
    is_directory = found.is_dir(follow_symlinks=False)
    return Item(found.name, is_directory, found.is_file(follow_symlinks=False))


def _rename_noreplace(source: int, old: str, target: int, new: str) -> bool:
    """Call renameat2; False where the kernel, C library or file system lacks it."""
    function = getattr(_libc, "renameat2", None)
    if function is None:
        return False
    if function(source, os.fsencode(old), target, os.fsencode(new), _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_SUCH_RENAME:
        return False
    raise OSError(number, os.strerror(number), old, None, new)


_libc: Final = ctypes.CDLL(None, use_errno=True)


def file_system_of(path: Path) -> str:
    """Name of the file system a directory is on, as the kernel spells it."""
    wanted = os.fsencode(os.path.realpath(path))
    best, kind = -1, "unknown"
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        left, _, right = line.partition(b" - ")
        mount = left.split(b" ")[4].decode("unicode_escape").encode("latin-1")
        inside = wanted == mount or wanted.startswith(mount.rstrip(b"/") + b"/")
        if inside and len(mount) >= best:
            best, kind = len(mount), os.fsdecode(right.split(b" ")[0])
    return kind
