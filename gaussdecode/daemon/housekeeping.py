"""Run compaction and retention beside the stream.

One thread reads the commit log now and then. Only the last step of its work, committing an entry, takes
turns with the writer. A failure is a failure of the landing: it ends the daemon, as a failure of the
writer does.
"""

import datetime
import threading
from collections.abc import Callable, Sequence
from typing import Final

from gaussdecode.daemon.mirroring import Mirror
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.compaction import compact
from gaussdecode.land.retention import Hold, retain
from gaussdecode.logs import Event, get_logger
from gaussdecode.serve.kept import KeptSlot
from gaussdecode.settings.landing_sections import LandingConfig

INTERVAL_SECONDS: Final = 60.0  # arbitrary; a block of entries takes far longer to fill
_log = get_logger("land")


class Housekeeper:
    """Keeps a landing small while it grows.

    Args:
        log: open; others commit to it too.
        settings: compaction and retention as configured.
        on_error: told the first error; then the thread ends.
        is_paused: whether merging, which can wait, has to.
        mirror: state of the mirror; entries that it has not got stay.
        slots: gives the virtual slots of the landing.

    Attributes:
        held_bytes: of files that stay beyond retention for virtual slots alone, at the last look; None before it.
    """

    def __init__(
        self,
        log: CommitLog,
        settings: LandingConfig,
        on_error: Callable[[BaseException], object],
        is_paused: Callable[[], bool] = lambda: False,
        mirror: Mirror | None = None,
        slots: Callable[[], Sequence[KeptSlot]] = list,
    ) -> None:
        self._log = log
        self._settings = settings
        self._on_error = on_error
        self._is_paused = is_paused
        self._mirror = mirror
        self._slots = slots
        self.held_bytes: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeper", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop at the next possible place."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def values(self) -> dict[str, float]:
        """Values by metric without its prefix; none before the first look."""
        if self.held_bytes is None:
            return {}
        limit = self._settings.max_slot_keep_size
        limits = {} if limit is None else {"land_virtual_slot_limit_bytes": float(limit)}
        return {"land_virtual_slot_held_bytes": float(self.held_bytes), **limits}

    def _run(self) -> None:
        try:
            while not self._stop.wait(INTERVAL_SECONDS):
                self.work()
        except BaseException as error:  # noqa: BLE001 - a thread must not die in silence
            self._on_error(error)

    def work(self) -> None:
        """Do all that can be done now."""
        self._log.forget_prepared(None if self._mirror is None else self._mirror.shipped)
        if self._settings.compact and not self._is_paused():
            self._compact()
        if self._settings.retention is not None:
            self._expire(self._settings.retention)

    def _compact(self) -> None:
        landing = self._settings
        while not self._stop.is_set() and not self._is_paused():
            entry = compact(
                self._log,
                target_bytes=landing.target_file_size,
                small_bytes=landing.target_file_size // 4,
                compression=landing.compression,
                should_stop=self._stop.is_set,
            )
            if entry is None:
                return
            replaced = sum(len(item.replaced) for item in entry.replaced)
            _log.info(
                Event.LANDING_COMPACTED, entry=entry.n, files=len(entry.files), replaced=replaced
            )

    def _expire(self, seconds: float) -> None:
        through = None if self._mirror is None else self._mirror.shipped
        # A lost slot needs nothing more. What a damaged file needs nobody knows: everything.
        slots = {slot.name: slot.n for slot in self._slots()}
        needed = [n or 0 for n in slots.values() if n is None or n > self._log.floor]
        hold = Hold(min(needed), self._settings.max_slot_keep_size) if needed else None
        entry = retain(self._log, datetime.timedelta(seconds=seconds), through, hold)
        self.held_bytes = 0 if hold is None else hold.bytes
        if entry is None or entry.floor is None:
            return
        _log.info(Event.LANDING_EXPIRED, entry=entry.n, floor=entry.floor)
        lost = sorted(name for name, n in slots.items() if (n or 0) <= entry.floor)
        if lost:
            _log.error(Event.SERVE_SLOTS_LOST, slots=lost, floor=entry.floor)
