"""Bring ranges of one table that were read in several views to the last view.

Every change between the first view and the present one has landed once the daemon is beyond the present view.
Rows whose keys are among these changes are left out of the ranges and read again, by key, in the present
view. All other rows are unchanged. The daemon's snapshots work the same way; here it is done in tasks.

A position per range with later changes on top would be wrong: a row that moves between ranges leaves its
unsent values in a page that nobody read.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import GaussDecodeError
from gaussdecode.snapshot.doubts import may_miss
from gaussdecode.snapshot.held import changed_files
from gaussdecode.snapshot.ranges import FinishTask, KeysTask, Reading, find_keys, finish_range
from gaussdecode.snapshot.read import TableTask
from gaussdecode.snapshot.staging import Cut, Range, Staging
from gaussdecode.snapshot.tools import key_names
from gaussdecode.source.export import TableChangedError
from gaussdecode.spark.log.landing import Landing, when_landed
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.merge.engine import Engine

_FILES_AT_ONCE: Final = 16  # landed files that one task looks into; arbitrary


class UnknownChangesError(GaussDecodeError):
    """Nobody knows which rows changed between two views."""


@dataclasses.dataclass(frozen=True, slots=True)
class Again:
    """One table.

    Attributes:
        engine: runs the tasks.
        landing: directory or URL.
        reading: reading in the present view.
        task: the table, as it was looked up in it; still what it was when it was cut.
        cut: into ranges.
        wait: seconds for the landing to get to the view.
        connections: connections that read at the same time.
    """

    engine: Engine
    landing: Place
    reading: Reading
    task: TableTask
    cut: Cut
    wait: float
    connections: int

    def finish(self, ranges: Mapping[int, Range]) -> list[Range]:
        """Give files with the rows as they are in the present view.

        Raises:
            UnknownChangesError: it cannot be known which rows changed.
            TableChangedError: the table is not any more what it was.
            LandingError: the landing does not get to the view.
            SourceError: the server failed.
        """
        names = key_names(self.task)
        assert names is not None
        files = self._changed_files(min(of.lsn for of in ranges.values()))
        data = Staging(self.reading.root).data(self.task.landed.directory)
        parts = (files[i : i + _FILES_AT_ONCE] for i in range(0, len(files), _FILES_AT_ONCE))
        looks = [KeysTask(tuple(part), tuple(names), data) for part in parts]
        found = [json.loads(text) for text in self.engine.each(looks, find_keys)]
        if None in found:
            raise UnknownChangesError(
                f"table {self.cut.title}: changes do not show its key; it is read in one view"
            )
        keys = tuple(data / name for name in found)
        if not keys:
            return list(ranges.values())
        return self._finished(ranges, keys)

    def _finished(self, ranges: Mapping[int, Range], keys: tuple[Place, ...]) -> list[Range]:
        lsn, token = self.reading.view.lsn, f"{self.cut.token}f{len(keys):x}"
        old = {number: of for number, of in ranges.items() if of.lsn < lsn}
        tasks = [
            FinishTask(self.reading, self.task, token, number, of.path, keys)
            for number, of in old.items()
        ]
        count = min(self.connections, len(keys))
        tasks += [
            FinishTask(
                self.reading, self.task, token, self.cut.count + index, None, keys[index::count]
            )
            for index in range(count)
        ]
        for text in self.engine.each(tasks, finish_range):
            raise TableChangedError(json.loads(text))
        written = Staging(self.reading.root).ranges(self.task.landed.directory, token)
        kept = [of for number, of in ranges.items() if number not in old]
        return kept + [of for of in written.values() if of.lsn == lsn]

    def _changed_files(self, lsn: int) -> list[Place]:
        """Landed files with changes of the table since a view."""
        first = self.cut.views[lsn].n
        landing: Landing = when_landed(self.landing, self.reading.view.lsn, self.wait)
        last = landing.last_n
        if landing.first_n > first + 1:
            raise UnknownChangesError(
                f"table {self.cut.title}: retention has removed changes since its first range was read"
            )
        for entry in landing.entries(first + 1, last):
            if may_miss(entry, self.task.landed.directory):
                raise UnknownChangesError(
                    f"table {self.cut.title}: entry {entry.n} ({entry.kind}) came after its first "
                    "range was read"
                )
        return changed_files(landing, first, {self.task.landed.directory})
