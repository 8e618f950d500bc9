"""The files of an open entry: which row group goes into which.

Given row groups in the order of their tables; promises that each file is written by one
thread at a time, in the order given, and that a table with little data gets one file. A
file takes row groups until it is full; a table that brings them faster than one thread
encodes gets a second file beside the first, while there are fewer such files than lanes. So
there are at most as many files as tables and lanes, but where files grow full, or where a
transaction reaches more tables than files may be open. Knows no threads: the writer holds
the lock.
"""

import dataclasses
from collections import Counter, deque
from typing import Final

from gaussdecode.errors import AccountError
from gaussdecode.land.making import HiddenFile
from gaussdecode.land.parquet import ParquetSink, operations
from gaussdecode.model.account import say
from gaussdecode.model.landing import Position
from gaussdecode.model.request import RowGroup

_SPLIT_BYTES: Final = 2 << 20
"""A row group smaller than this waits for its table's file rather than opening another."""


@dataclasses.dataclass(eq=False, slots=True)
class TableFile:
    """One file of the open entry.

    Attributes:
        table: encoded directory name.
        schema_id: of all its rows.
        source: whose rows they are, where there are several; else None.
        pending: row groups waiting for a lane.
        sink: once the first row group is being encoded.
        is_scheduled: a lane has it, or it is in the queue of the lanes.
        is_sealed: no more row groups come.
        result: when it is finished.
    """

    table: str
    schema_id: str
    source: str | None = None
    pending: deque[RowGroup] = dataclasses.field(default_factory=deque)
    sink: ParquetSink | None = None
    is_scheduled: bool = False
    is_sealed: bool = False
    result: HiddenFile | None = None
    _first: Position | None = None
    _last: Position | None = None
    _ops: Counter[str] = dataclasses.field(default_factory=Counter)
    _has_unchanged: bool = False
    _has_key_change: bool = False

    @property
    def size(self) -> int:
        """Bytes encoded so far."""
        return 0 if self.sink is None else self.sink.size

    def encode(self, group: RowGroup) -> None:
        """Write a row group; the lane that has the file calls it.

        Raises:
            AccountError: its rows are not those that the collector counted.
        """
        if self.sink is None:
            raise ValueError("the file is not open")
        found = operations(group.table)
        if found != group.ops:
            raise AccountError(
                f"{self.table}: {say(group.ops)} were collected, a row group from "
                f"{group.first} to {group.last} holds {say(found)}: it is not landed"
            )
        self.sink.write(group.table)
        if self._first is None:
            self._first = group.first
        self._last = group.last
        self._ops.update(found)
        self._has_unchanged |= group.has_unchanged
        self._has_key_change |= group.has_key_change

    def finish(self) -> HiddenFile:
        """Close the file and make it durable."""
        if self.sink is None or self._first is None or self._last is None:
            raise ValueError("a file without rows")
        size, checksum = self.sink.finish()
        self.result = HiddenFile(
            path=self.sink.path,
            table=self.table,
            rows=self.sink.rows,
            bytes=size,
            first=self._first,
            last=self._last,
            schema_id=self.schema_id,
            ops=dict(sorted(self._ops.items())),
            has_unchanged=self._has_unchanged,
            has_key_change=self._has_key_change,
            checksum=checksum,
            source=self.source,
        )
        return self.result


class OpenEntry:
    """Everything written since the last entry.

    Attributes:
        files: all of them, finished or not.
        unfinished: how many are not finished.
        is_crowded: there are more tables than files may be open. What comes for a table
            whose file was closed early needs another one: it is time to commit.
        is_abandoned: it is never committed; nobody need finish its files.
    """

    def __init__(self, target_file_size: int, max_open_files: int, lanes: int) -> None:
        self.files: list[TableFile] = []
        self.unfinished = 0
        self.is_crowded = False
        self.is_abandoned = False
        self._target = target_file_size
        self._max_open = max_open_files
        self._beside_left = lanes
        self._open: dict[tuple[str, str, str | None], list[TableFile]] = {}
        self._used: dict[TableFile, None] = {}  # a set in order of last use

    @property
    def largest_file_bytes(self) -> int:
        """Size of the largest file so far."""
        return max((file.size for file in self.files), default=0)

    def assign(self, group: RowGroup, *, has_idle_lane: bool) -> tuple[TableFile, TableFile | None]:
        """Choose the file for a row group.

        Args:
            group: the next of its table.
            has_idle_lane: another file could be written at once.

        Returns:
            The file, and one that was sealed to keep the number of open ones bounded.
        """
        key = (group.table_dir, group.schema_id, group.source)
        candidates = [file for file in self._open.get(key, ()) if not self.close_if_full(file)]
        self._open[key] = candidates
        for file in candidates:
            if not file.is_scheduled:
                return self._use(file), None
        wants_more = has_idle_lane and group.table.nbytes >= _SPLIT_BYTES
        if candidates and not (wants_more and self._beside_left):
            return self._use(min(candidates, key=lambda file: len(file.pending))), None
        self._beside_left -= bool(candidates)
        file = TableFile(*key)
        candidates.append(file)
        self.files.append(file)
        self.unfinished += 1
        return self._use(file), self._evict()

    def allow_beside(self, count: int) -> None:
        """So many more tables may have another file, or one table so many."""
        self._beside_left += count

    def seal(self) -> list[TableFile]:
        """Say that no more row groups come; gives the files that just need closing."""
        for file in self._used:
            file.is_sealed = True
        idle = [file for file in self._used if not file.is_scheduled]
        self._used.clear()
        self._open.clear()
        return idle

    def close_if_full(self, file: TableFile) -> bool:
        """Seal a file that has reached its size; gives whether it takes no more."""
        if file.is_sealed:
            return True
        if file.size >= self._target:
            file.is_sealed = True
            self._used.pop(file, None)
        return file.is_sealed

    def _use(self, file: TableFile) -> TableFile:
        self._used.pop(file, None)
        self._used[file] = None
        return file

    def _evict(self) -> TableFile | None:
        if len(self._used) <= self._max_open:
            return None
        self.is_crowded = True
        file = next(iter(self._used))
        del self._used[file]
        file.is_sealed = True
        return file
