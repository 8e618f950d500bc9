"""Judge failed file operations: wait for free space, or end the daemon.

A full disk or a full quota passes: wait, and repeat the operation. The same for a lack of descriptors
or kernel memory. Everything else is a `DiskError`, and recovery decides from the state on disk. A failed fsync
is never tried again, because the kernel may have dropped the pages that it could not write; it goes through
`once`.

The data that fills the disk (rows, the spool, prepared transactions) waits before the disk is full: `reserve`
keeps a `Reserve` free, for files that make room and for those that record the position.
"""

import dataclasses
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from gaussdecode import limits
from gaussdecode.errors import DiskError, DiskStillFullError
from gaussdecode.host.access import refused

T = TypeVar("T")

PASSING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""Errors that end by themselves, or when space is freed."""

POLL_SECONDS: Final = 1.0
_MOST_RESERVED: Final = 1 << 30  # where nothing is said, and
_SHARE: Final = 100  # no more than this part of the file system; both arbitrary


def _never() -> bool:
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class Reserve:
    """Room that is kept free on a file system.

    Attributes:
        root: a directory there; before it exists, nothing is kept.
        least_bytes: how much; None for a hundredth of the file system, 1 GiB at most.
    """

    root: Path
    least_bytes: int | None = None

    def measure(self) -> tuple[float, float]:
        """Bytes that we may use, and those of them to be kept; 0 and 0 when it cannot be told."""
        try:
            found = os.statvfs(self.root)
        except OSError:
            return 0.0, 0.0
        kept = self.least_bytes
        if kept is None:
            kept = min(_MOST_RESERVED, found.f_blocks * found.f_frsize // _SHARE)
        return float(found.f_bavail * found.f_frsize), float(kept)

    def check(self) -> None:
        """See that there is more room than is kept.

        Raises:
            OSError: there is not; as on a full disk.
        """
        free, kept = self.measure()
        if free < kept:
            raise OSError(
                errno.ENOSPC,
                f"{free:,.0f} bytes are free on its file system, but landing.min-free-bytes is {kept:,.0f}",
            )


NOTHING_RESERVED: Final = Reserve(Path("/"), 0)


class SpaceWait:
    """Repeats operations until there is room. Thread-safe.

    Args:
        should_stop: asked between two attempts; true ends the wait with DiskError.
        sleep: waits the given seconds.
        on_wait: told once per operation that has to wait, with the reason.
        kept: reserve that `reserve` leaves free.
    """

    def __init__(
        self,
        should_stop: Callable[[], bool] = _never,
        sleep: Callable[[float], object] = time.sleep,
        on_wait: Callable[[str], object] | None = None,
        kept: Reserve = NOTHING_RESERVED,
    ) -> None:
        self._should_stop = should_stop
        self._sleep = sleep
        self._on_wait = on_wait
        self._kept = kept
        self._lock = threading.Lock()
        self._waiting = 0

    @property
    def is_waiting(self) -> bool:
        """Some operation is waiting for room now."""
        return self._waiting > 0

    def run(self, what: str, operation: Callable[[], T]) -> T:
        """Do an operation that may be repeated.

        Args:
            what: names it in errors: ``write data/public.t/...``.
            operation: must change nothing when it raises.

        Raises:
            DiskError: the disk failed.
            AccessError: this user may not do it.
            DiskStillFullError: a stop was asked for while it was full.
            FileExistsError: passed through; only the caller knows what it means.
            FileNotFoundError: the file is missing.
        """
        waited = False
        try:
            while True:
                try:
                    return operation()
                except OSError as error:
                    if error.errno not in PASSING:
                        raise _translated(what, error) from error
                    if self._should_stop():
                        raise DiskStillFullError(
                            f"{what}: {_reason(error)}; stopped while waiting"
                        ) from error
                    if not waited:
                        waited = True
                        self._begin(f"{what}: {_reason(error)}")
                self._sleep(POLL_SECONDS)
        finally:
            if waited:
                self._change(-1)

    def reserve(self, what: str) -> None:
        """Wait until the disk may be filled further.

        Args:
            what: is to be written, as in `run`.

        Raises:
            DiskStillFullError: a stop was asked for while it was too full.
        """
        self.run(what, self._kept.check)

    def once(self, what: str, operation: Callable[[], T]) -> T:
        """Do an operation that must not be repeated: fsync.

        Raises:
            DiskError: it failed; nothing may be confirmed on the strength of it.
        """
        try:
            return operation()
        except OSError as error:
            raise DiskError(
                f"{what}: {error.strerror}; restart the daemon, recovery then decides from the files on "
                "disk"
            ) from error

    def _begin(self, reason: str) -> None:
        self._change(1)
        if self._on_wait is not None:
            self._on_wait(reason)

    def _change(self, by: int) -> None:
        with self._lock:
            self._waiting += by


def _reason(error: OSError) -> str | None:
    limit = None if error.errno == errno.EAGAIN else limits.reached(error)
    return error.strerror if limit is None else str(limit)


def _translated(what: str, error: OSError) -> Exception:
    if isinstance(error, FileExistsError | FileNotFoundError):
        return error
    if isinstance(error, PermissionError) and isinstance(error.filename, str):
        return refused(error.filename, error)
    return DiskError(f"{what}: {error.strerror}")
