"""Maintain a target while `apply --follow` runs: merge small files, remove old versions.

After a number of applies that committed changes, small files of closed intervals and changelogs are
merged, sixteen of about one size into one. So each row is written only a few times, however long the
apply runs. Now and then versions older than an age are removed, with the files that only they name.
The current state needs neither: apply itself keeps its files few.
"""

import time
from collections.abc import Callable
from typing import Final

from gaussdecode.errors import CatalogError, LandingError, MirrorError
from gaussdecode.model.words import counted
from gaussdecode.spark.log.place import Given
from gaussdecode.spark.maintain.upkeep import compact_with, vacuum
from gaussdecode.spark.merge.engine import Engine

APPLIES: Final = 16
"""Applies between two merges of small files, and number of small files that become one."""

VACUUM_SECONDS: Final = 3600.0
"""Time between two removals of old versions; arbitrary."""


class Maintenance:
    """Maintains a target between applies.

    Args:
        engine: engine that runs the applies.
        target: directory or URL.
        keep_seconds: versions younger than this stay.
        say: called with a sentence for each thing done.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        engine: Engine,
        target: Given,
        *,
        keep_seconds: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._target = target
        self._keep_seconds = keep_seconds
        self._say = say
        self._clock = clock
        self._applies = 0
        self._vacuum_at = clock() + VACUUM_SECONDS

    def keep(self, *, is_changed: bool) -> None:
        """Do the maintenance that is due after an apply; retry later if another writer prevents it."""
        self._applies += is_changed
        try:
            if self._applies >= APPLIES:
                self._applies = 0
                self._compact()
            if self._clock() >= self._vacuum_at:
                self._vacuum_at = self._clock() + VACUUM_SECONDS
                self._vacuum()
        except (LandingError, MirrorError, CatalogError) as error:
            self._say(f"upkeep was put off: {error}")

    def _compact(self) -> None:
        done = compact_with(self._engine, self._target, fewest=APPLIES, is_settling=False)
        if done.tables:
            self._say(
                f"merged small files of {counted(done.tables, 'table')}: "
                f"{counted(done.files_before, 'file')} became {done.files_after}"
            )

    def _vacuum(self) -> None:
        done = vacuum(self._target, older_than_seconds=self._keep_seconds)
        if done.versions or done.files:
            self._say(
                f"removed {counted(done.versions, 'old version')} and {counted(done.files, 'file')} "
                f"({counted(done.bytes, 'byte')})"
            )
