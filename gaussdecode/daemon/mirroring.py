"""Ship the landing to its mirror in one thread, and report its progress.

A failure at the store is tried again for as long as the daemon runs, and the landed files stay here
meanwhile. A failure that trying again cannot mend (another host, another landing, a missing file) ends the
daemon. Only the confirmation waits for the mirror: an entry is confirmed to the server once the store has
it.
"""

import datetime as dt
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from gaussdecode.errors import FencedError, MirrorError
from gaussdecode.land.commitlog import CommitLog, utc_now
from gaussdecode.land.mirror.shipper import Shipper
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.landing import SourcePosition
from gaussdecode.objects.store import open_store
from gaussdecode.settings.landing_sections import MirrorConfig
from gaussdecode.settings.sections import Config

_LOOK_SECONDS: Final = 1.0  # entries that nobody tells of (merged files, retention) wait so long
_NOTE_SECONDS: Final = 1.0  # `verify --mirror` misses only what this one does not tell
_CLOSE_SECONDS: Final = 10.0  # an upload that takes longer is left to the next start
_FIRST_WAIT: Final = 0.5
_WAIT_SHARE: Final = 0.25  # of the timeout of a request, before all is tried again; arbitrary
_log = get_logger("land")


class Mirror:
    """Ships landed entries.

    Args:
        log: open.
        settings: settings of the mirror; it is on.
        is_compacting: small files are merged here.
        on_shipped: told that `positions` may have moved.
        on_error: told an error that trying again cannot mend; then the thread ends.

    Attributes:
        failure: why the store does not do it now; None while it does.
        errors: requests that failed, after their own repetitions.
        shipped_bytes: bytes of data files that were shipped.
    """

    def __init__(
        self,
        log: CommitLog,
        settings: MirrorConfig,
        *,
        is_compacting: bool,
        on_shipped: Callable[[], object],
        on_error: Callable[[BaseException], object],
    ) -> None:
        self._log = log
        self._settings = settings
        self._on_shipped = on_shipped
        self._on_error = on_error
        self._shipper = Shipper(log, open_store(settings), is_compacting=is_compacting)
        self._is_prepared = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._waiting: deque[tuple[int, int, dt.datetime]] = deque()
        self._known = self._shipper.shipped
        self._noted_at = time.monotonic()
        self.failure: str | None = None
        self.errors = 0
        self.shipped_bytes = 0

    @property
    def positions(self) -> Mapping[str, SourcePosition]:
        """Per source, up to where the store has everything; none while that is not known."""
        return self._shipper.positions

    @property
    def shipped(self) -> int:
        """Number of the newest entry that the store has; -1 while that is not known."""
        return self._shipper.shipped

    def start(self) -> None:
        """Take the log over where it came from the mirror, then begin to ship.

        Raises:
            GaussDecodeError: it cannot be taken over; nothing may be streamed.
        """
        if not self._shipper.is_claimed:
            self._shipper.prepare()
            self._shipper.claim()
            _log.warning(Event.MIRROR_TAKEN_OVER, url=self._settings.url, entry=self.shipped)
        self._thread.start()

    def wake(self) -> None:
        """Say that something has landed."""
        self._wake.set()

    def close(self) -> None:
        """Stop after the present request; entries that were not shipped wait for the next start."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def stats(self) -> dict[str, float]:
        """Values for Prometheus, by metric without its prefix."""
        waiting = list(self._waiting)
        age = 0.0 if not waiting else (utc_now() - waiting[0][2]).total_seconds()
        return {
            "land_mirror_up": float(self.failure is None),
            "land_mirror_entry": float(self.shipped),
            "land_mirror_backlog_entries": float(max(0, self._log.next_n - 1 - self.shipped)),
            "land_mirror_backlog_bytes": float(sum(size for _, size, _ in waiting)),
            "land_mirror_backlog_seconds": max(0.0, age),
            "land_mirror_shipped_bytes_total": float(self.shipped_bytes),
            "land_mirror_errors_total": float(self.errors),
        }

    # ---- the thread ------------------------------------------------------------------

    def _run(self) -> None:
        longest = self._settings.timeout * _WAIT_SHARE
        first = wait = min(_FIRST_WAIT, longest)
        try:
            while not self._stop.is_set():
                self._wake.clear()
                try:
                    self._work()
                except MirrorError as error:
                    self._failed(error)
                    self._stop.wait(wait)
                    wait = min(2 * wait, longest)
                    continue
                wait = first
                self._recovered()
                if not self._stop.is_set():
                    self._wake.wait(_LOOK_SECONDS)
            self._shipper.note()
        except BaseException as error:  # noqa: BLE001 - a thread must not die in silence
            if isinstance(error, FencedError):
                _log.error(Event.MIRROR_FENCED, reason=str(error))
            self._on_error(error)

    def _work(self) -> None:
        """Ship all there is, and do what may be done then."""
        self._count()
        if not self._is_prepared:
            known = self.shipped
            self._shipper.prepare()
            self._is_prepared = True
            if self.shipped < known:
                _log.warning(Event.MIRROR_ENTRIES_LOST, newest=self.shipped, shipped_before=known)
            self._tell()
        while not self._stop.is_set():
            entry = self._shipper.ship()
            if entry is None:
                break
            self.shipped_bytes += sum(file.bytes for file in entry.files)
            self._tell()
            self._recovered()
            self._shipper.follow(entry)
            self._count()
        if self._stop.is_set():
            return
        self._shipper.ship_numbered()
        self._tidy()

    def _tell(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.shipped:
            self._waiting.popleft()
        if self.positions:
            self._on_shipped()

    def _tidy(self) -> None:
        now = time.monotonic()
        if now - self._noted_at >= _NOTE_SECONDS:
            self._shipper.note()
            self._noted_at = now
        keep = self._settings.local_retention
        if keep is not None:
            self._shipper.remove_local(keep, now)

    def _count(self) -> None:
        """Look at what has landed since the last time, for what waits."""
        first = max(self._known, self._log.floor) + 1
        for entry in self._log.iterate(first, self._log.next_n - 1):
            self._known = entry.n
            size = sum(file.bytes for file in entry.files)
            self._waiting.append((entry.n, size, entry.committed_time))
        while self._waiting and self._waiting[0][0] <= self.shipped:
            self._waiting.popleft()

    def _failed(self, error: MirrorError) -> None:
        self.errors += 1
        if self.failure is None:
            _log.error(Event.MIRROR_FAILED, reason=str(error), waiting=len(self._waiting))
        self.failure = str(error)

    def _recovered(self) -> None:
        if self.failure is not None:
            _log.info(Event.MIRROR_RECOVERED, waiting=len(self._waiting))
        self.failure = None


def mirror_of(
    config: Config,
    log: CommitLog,
    on_shipped: Callable[[], object],
    on_error: Callable[[BaseException], object],
) -> Mirror | None:
    """The mirror that a configuration asks for."""
    if not config.mirror.is_on:
        return None
    return Mirror(
        log,
        config.mirror,
        is_compacting=config.landing.compact,
        on_shipped=on_shipped,
        on_error=on_error,
    )
