"""File operations on a real file system, and that the simulated one agrees."""

import errno
import fcntl
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.simdisk import SimFiles

from gaussdecode.errors import ConfigError, DiskError, LandingError
from gaussdecode.land import directories
from gaussdecode.land import files as module
from gaussdecode.land.disk import Disk
from gaussdecode.land.failpoints import Failpoints
from gaussdecode.land.files import Files, Item, make_root
from gaussdecode.land.space import SpaceWait


@pytest.fixture(params=["real", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A root of each kind: one suite for both."""
    return Files(tmp_path) if request.param == "real" else SimFiles()


def put(files: Files, path: str, data: bytes) -> None:
    """Create a file."""
    handle = files.create(path)
    assert files.write(handle, data) == len(data)
    files.sync(handle)
    files.close_handle(handle)


def test_file_is_written_and_read(files: Files) -> None:
    """What was written is there, with its size, below directories."""
    files.make_directory("a")
    files.make_directory("a/b")
    put(files, "a/b/c", b"hello")
    files.sync_directory("a/b")
    assert files.read("a/b/c") == b"hello"
    assert files.size("a/b/c") == 5
    assert files.items("a") == [Item("b", is_directory=True, is_file=False)]
    assert files.has_directory("a/b")


def test_the_rest_of_a_directory(files: Files) -> None:
    """All but the files of a pattern that sort before a name; a directory is none of them."""
    files.make_directory("a")
    files.make_directory("a/3x")
    for name in ("1x", "2x", "4x", "5x", "1y", ".1x"):
        put(files, f"a/{name}", b"")
    found = files.rest("a", re.compile(r"[0-9]x"), "5")
    assert [item.name for item in found] == [".1x", "1y", "3x", "5x"]
    assert [item.is_directory for item in found] == [False, False, True, False]
    assert files.rest("nowhere", re.compile("x"), "5") == []


def _use_others(cache: directories.OpenDirectories) -> None:
    for number in range(1, 200):
        cache.give_back(cache.lend(f"d{number}"))


def _let_go(cache: directories.OpenDirectories) -> None:
    with cache.without("d0"):
        pass


@pytest.mark.parametrize("drop", [_use_others, _let_go, directories.OpenDirectories.close])
def test_a_directory_in_use_stays_open(
    tmp_path: Path, drop: Callable[[directories.OpenDirectories], None]
) -> None:
    """Whatever drops it: others that are used since, its removal, the end; its last user closes it."""
    for number in range(200):
        (tmp_path / f"d{number}").mkdir()
    root = os.open(tmp_path, os.O_RDONLY)
    cache = directories.OpenDirectories(root)
    first, again = cache.lend("d0"), cache.lend("d0")
    assert first is again
    drop(cache)
    cache.give_back(first)
    assert os.listdir(first.descriptor) == []
    cache.give_back(again)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first.descriptor)
    cache.close()
    os.close(root)


@pytest.mark.parametrize("number", [directories._OPENAT2, -1])
def test_no_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Neither in one call nor, on a kernel without it, walking down; not out of the root either."""
    monkeypatch.setattr(directories, "_OPENAT2", number)
    root = tmp_path / "root"
    root.mkdir()
    files = Files(root)
    files.make_directory("a")
    files.make_directory("a/b")
    put(files, "a/b/c", b"here")
    (root / "link").symlink_to(root / "a", target_is_directory=True)
    (root / "a/up").symlink_to(tmp_path, target_is_directory=True)
    assert files.read("a/b/c") == b"here"
    assert files.items("link") == files.items("a/up") == []
    for path in ("link/b/c", "a/up/x", "../x", "a/../a/b/c", "a//b/c", "./a/b/c"):
        with pytest.raises(OSError):
            files.size(path)


def test_missing_things(files: Files) -> None:
    """A missing directory lists as empty, a missing file has no size and cannot be read."""
    assert files.items("nowhere") == []
    assert files.size("nowhere/x") is None
    assert not files.has_directory("nowhere")
    with pytest.raises(FileNotFoundError):
        files.read("x")
    with pytest.raises(FileNotFoundError):
        files.unlink("x")


@pytest.mark.parametrize("how", ["create", "link", "rename"])
def test_nothing_is_replaced(files: Files, how: str) -> None:
    """A taken name stays what it was, whoever wants it."""
    put(files, "old", b"old")
    put(files, "new", b"new")
    acts: dict[str, Callable[[], object]] = {
        "create": lambda: files.create("new"),
        "link": lambda: files.link("old", "new"),
        "rename": lambda: files.rename("old", "new"),
    }
    with pytest.raises(FileExistsError):
        acts[how]()
    assert files.read("new") == b"new"
    assert files.read("old") == b"old"


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what a landing needs, and that nobody's rights are wrong."""
    files = Disk(Files(tmp_path), SpaceWait(should_stop=lambda: True), "d")
    put(files.files, "a", b"1")

    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(
        DiskError, match=r"link b: this file system has no hard links.*landing\.mirror"
    ):
        files.link("a", "b")


def test_names_move(files: Files) -> None:
    """Link adds a name, rename moves it, replace takes another's place, unlink removes."""
    put(files, "a", b"a")
    put(files, "b", b"b")
    files.link("a", "c")
    files.rename("c", "d")
    files.replace("d", "b")
    files.unlink("a")
    assert files.items("") == [Item("b", is_directory=False, is_file=True)]
    assert files.read("b") == b"a"


def test_directory_is_removed_only_when_empty(files: Files) -> None:
    """A directory with something in it stays."""
    files.make_directory("a")
    put(files, "a/x", b"")
    with pytest.raises(OSError):
        files.remove_directory("a")
    files.unlink("a/x")
    files.remove_directory("a")
    assert not files.has_directory("a")


def test_second_lock_is_refused(tmp_path: Path) -> None:
    """The lock ends with its holder; `verify` sees it and takes nothing."""
    first, second = Files(tmp_path), Files(tmp_path)
    assert not second.is_locked()
    first.lock()
    assert second.is_locked()
    with pytest.raises(LandingError, match="another process"):
        second.lock()
    first.close()
    assert not second.is_locked()
    second.lock()
    second.close()


def flock_as(uid: int, root: Path) -> subprocess.Popen[bytes]:
    """A process of another user that holds the flock of the root, as any reader can."""
    code = (
        "import fcntl, os, sys; os.setuid(int(sys.argv[2])); "
        "fd = os.open(sys.argv[1], os.O_RDONLY); "
        "fcntl.flock(fd, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(root), str(uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


@pytest.fixture
def shared_root() -> Iterator[Path]:
    """A root that everybody may read."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        yield root


def test_reader_of_the_root_cannot_keep_the_daemon_down(
    shared_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flock of another user is named and passed over, and nobody else can lock the file."""
    mine = os.geteuid()
    other = 65534 if mine == 0 else mine  # who is not root plays both, under another number
    with flock_as(other, shared_root) as child:
        monkeypatch.setattr(os, "geteuid", lambda: 0 if mine == 0 else mine + 1)
        files = Files(shared_root)
        sentence = files.lock()
        assert sentence is not None
        assert f"process {child.pid} of user {other}" in sentence
        assert (shared_root / ".lock").stat().st_mode & 0o777 == 0o600
        files.close()
        child.kill()


def test_daemon_of_an_earlier_version_is_respected(shared_root: Path) -> None:
    """It holds the root and not the file; the owner's flock counts."""
    with flock_as(os.geteuid(), shared_root) as child:
        files = Files(shared_root)
        assert files.is_locked()
        with pytest.raises(LandingError, match=f"in use by another process .{child.pid}, of an"):
            files.lock()
        files.close()
        child.kill()


def test_daemon_of_an_earlier_version_is_kept_away(tmp_path: Path) -> None:
    """It would take the flock of the root, which we hold too."""
    files = Files(tmp_path)
    files.lock()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
    files.close()


def test_rename_without_renameat2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel call is missing, link and unlink do the same."""
    monkeypatch.setattr(module, "_rename_noreplace", lambda *_: False)
    files = Files(tmp_path)
    put(files, "a", b"a")
    files.rename("a", "b")
    put(files, "a", b"x")
    with pytest.raises(FileExistsError):
        files.rename("a", "b")
    assert files.read("b") == b"a"
    files.close()


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A symbolic link below the root leads nowhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "way").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    files = Files(root)
    for act in (
        lambda: files.read("way/secret"),
        lambda: files.read("file"),
        lambda: files.create("way/x"),
    ):
        with pytest.raises(OSError):
            act()
    with pytest.raises(OSError):
        files.read("../outside/secret")
    files.close()


def test_modification_time_is_set(tmp_path: Path) -> None:
    """Milliseconds reach the file."""
    files = Files(tmp_path)
    put(files, "a", b"")
    files.set_time("a", 1_769_860_800_123)
    assert (tmp_path / "a").stat().st_mtime_ns == 1_769_860_800_123_000_000
    files.close()


def test_missing_root_is_refused(tmp_path: Path) -> None:
    """The operator makes the root, not the daemon."""
    with pytest.raises(ConfigError, match="create it first"):
        Files(tmp_path / "nowhere")


def test_world_writable_root_is_refused(tmp_path: Path) -> None:
    """Nobody else may write below the root."""
    tmp_path.chmod(0o777)
    files = Files(tmp_path)
    with pytest.raises(ConfigError, match="world-writable"):
        files.check_root()
    files.close()


def test_foreign_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root belongs to the user the daemon runs as."""
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    files = Files(tmp_path)
    with pytest.raises(ConfigError, match="belongs to user"):
        files.check_root()
    files.close()


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "cifs", "9p", "unknown"])
def test_network_file_system_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, and the name is in the error."""
    monkeypatch.setattr(module, "file_system_of", lambda _: kind)
    files = Files(tmp_path)
    with pytest.raises(ConfigError, match=kind):
        files.check_root()
    files.close()


def test_file_system_is_found() -> None:
    """The longest mount point that holds a path gives its kind."""
    assert module.file_system_of(Path("/proc/self")) == "proc"


def test_descriptors_do_not_pile_up(tmp_path: Path) -> None:
    """Thousands of directories in use keep a bounded number of descriptors."""
    files = Files(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for index in range(400):
        files.make_directory(f"d{index}")
        put(files, f"d{index}/x", b"")
    assert len(os.listdir("/proc/self/fd")) <= before + 130
    files.close()
    assert len(os.listdir("/proc/self/fd")) < before


def test_failpoint_fails_an_operation(tmp_path: Path) -> None:
    """The n-th write fails with the errno of the rule, the others do not."""
    files = Files(tmp_path, Failpoints.parse("write:2=ENOSPC"))
    handle = files.create("a")
    files.write(handle, b"1")
    with pytest.raises(OSError, match="No space left"):
        files.write(handle, b"2")
    files.write(handle, b"3")
    files.close_handle(handle)
    assert files.read("a") == b"13"
    files.close()


@pytest.mark.parametrize("text", ["write", "nothing=kill", "write=NOSUCH", "write:x=kill"])
def test_wrong_failpoint_is_refused(text: str) -> None:
    """A typing mistake must not make a test pass."""
    with pytest.raises(ConfigError, match="GAUSSDECODE_FAILPOINTS"):
        Failpoints.parse(text)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_root_is_made_and_its_name_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """The directory that holds the root, or what was made above it, is synced."""
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", sync)
    parts = ["a", "b", "c"][:depth]
    root = tmp_path.joinpath(*parts)
    make_root(root)
    assert root.is_dir()
    above = [str(tmp_path.joinpath(*parts[:count])) for count in range(depth)]
    assert sorted(synced) == (above or [str(tmp_path.parent)])


def test_root_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in its way is a mistake of the configuration."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "root", Path("/proc/nowhere")):
        with pytest.raises(ConfigError, match="cannot make"):
            make_root(path)
    make_root(tmp_path / "file")  # `Files` says what is wrong with it
    with pytest.raises(ConfigError, match="Not a directory"):
        Files(tmp_path / "file")
