"""Check that a directory's file system can hold a target: hard links, locks, and renames that do not overwrite.

If two writers commit the same number, the file system lets one win, by a hard link. Without hard links
or locks a target could not be exact. Mounted object stores lack them: their renames copy, and two
machines that create the same file both succeed.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gaussdecode.errors import ConfigError, TargetBusyError

_LACKED: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}
)
"""Error numbers of a file system that lacks a call."""
PROBE: Final = ".probe-"


def prove(directory: Path) -> None:
    """Check that a directory, or the one that it will be created in, refuses to replace existing files.

    Raises:
        ConfigError: its file system does not.
    """
    home = next(place for place in (directory, *directory.parents) if place.is_dir())
    first, second = (home / f"{PROBE}{secrets.token_hex(8)}" for _ in range(2))
    try:
        first.touch(exist_ok=False)
        os.link(first, second)
        os.link(first, second)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno in _LACKED:
            raise _refused(directory, "hard links") from None
        raise
    finally:
        for path in (first, second):
            path.unlink(missing_ok=True)
    raise _refused(directory, "hard links that keep what exists")


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other writers on this machine out.

    Raises:
        ConfigError: the file system has no locks.
        TargetBusyError: another writer is running.
    """
    handle = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        _lock(handle, directory)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, directory: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TargetBusyError(
            f"target {directory} is being written by another process; wait for it"
        ) from None
    except OSError as error:
        if error.errno in _LACKED:
            raise _refused(directory, "locks") from None
        raise


def _refused(directory: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{directory}: this file system has no {what}, by which one of two writers is refused (a volume "
        "of Databricks, or a store that is mounted?); give the URL of the store behind it (s3://, gs://, "
        "abfss://), or a directory of a local disk or of NFS"
    )
