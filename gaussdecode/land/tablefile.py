"""Choose the file of an open entry for each row group.

Given the row groups of each table in order. Files that are read in the order of their creation give
the rows in that order. One thread at a time writes a file. A table with little data gets one file for each
run of rows under one schema. A file takes row groups until it is full, or until a row group has another
schema. So there are as many files as tables, plus more where files are full, where schemas change,
or where a transaction has more tables than files may be open. Knows no threads: the writer holds the lock.
"""

import dataclasses
from collections import Counter, deque

from gaussdecode.errors import AccountError
from gaussdecode.land.parquet import ParquetSink, encode, operations
from gaussdecode.land.rowgroups import Encoded
from gaussdecode.model.account import say
from gaussdecode.model.landing import LandingFile, Position
from gaussdecode.model.request import RowGroup


@dataclasses.dataclass(eq=False, slots=True)
class QueuedGroup:
    """A row group that waits for its file.

    Attributes:
        group: its rows, until they are encoded.
        encoded: row group as another lane than the file's encoded it.
        is_taken: a lane has it: the file's, or another one that encodes it ahead of its turn.
        held_bytes: memory that it takes.
    """

    group: RowGroup
    encoded: Encoded | None = None
    is_taken: bool = False
    held_bytes: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """It begins with its rows."""
        self.held_bytes = self.group.held_bytes

    def keep(self, encoded: Encoded) -> None:
        """Hold what was made of the rows in their place."""
        self.encoded = encoded
        self.group = dataclasses.replace(self.group, table=self.group.schema.empty_table())
        self.held_bytes = len(encoded.content)


@dataclasses.dataclass(eq=False, slots=True)
class TableFile:
    """One file of the open entry.

    Attributes:
        table: encoded directory name.
        schema_id: schema id of all its rows.
        source: source whose rows they are, where there are several; else None.
        queue: row groups waiting for a lane.
        sink: once the first row group is being encoded.
        is_scheduled: a lane has it, it is in the queue of the lanes, or waits for a row group of it
            that a lane encodes ahead of its turn.
        has_lane: a lane has it.
        is_sealed: no more row groups come.
        result: when it is finished.
    """

    table: str
    schema_id: str
    source: str | None = None
    queue: deque[QueuedGroup] = dataclasses.field(default_factory=deque)
    sink: ParquetSink | None = None
    is_scheduled: bool = False
    has_lane: bool = False
    is_sealed: bool = False
    result: LandingFile | None = None
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
        self._check(group)
        self._opened.write(group.table)
        self._note(group)

    def encode_ahead(self, group: RowGroup, compression: str) -> Encoded | None:
        """Encode a row group whose turn has not come, beside the lane that has the file.

        Returns:
            What `append` takes; None where only the lane that has the file can write it.

        Raises:
            AccountError: as `encode`.
        """
        self._check(group)
        return encode(group.table, compression, None if self.sink is None else self.sink.options)

    def append(self, group: RowGroup, encoded: Encoded) -> None:
        """Write what `encode_ahead` made; the lane that has the file calls it."""
        self._opened.append(encoded)
        self._note(group)

    @property
    def _opened(self) -> ParquetSink:
        if self.sink is None:
            raise ValueError("the file is not open")
        return self.sink

    def _check(self, group: RowGroup) -> None:
        found = operations(group.table)
        if found != group.ops:
            raise AccountError(
                f"{self.table}: {say(group.ops)} were collected, but the row group from {group.first} to "
                f"{group.last} has {say(found)}. It was not written"
            )

    def _note(self, group: RowGroup) -> None:
        if self._first is None:
            self._first = group.first
        self._last = group.last
        self._ops.update(group.ops)
        self._has_unchanged |= group.has_unchanged
        self._has_key_change |= group.has_key_change

    def close(self) -> None:
        """Write the rest of the file; the lane that has it calls this."""
        self._opened.close()

    def sync(self) -> LandingFile:
        """Make the closed file durable; any thread may do that."""
        if self.sink is None or self._first is None or self._last is None:
            raise ValueError("a file without rows")
        size, checksum = self.sink.sync()
        self.result = LandingFile(
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

    Args:
        target_file_size: a file with so many bytes takes no more row groups.
        max_open_files: files being written at once.

    Attributes:
        files: all of them, finished or not, in the order in which they were begun.
        unfinished: how many are not finished.
        is_crowded: there are more files than may be open, of as many tables or of schemas that
            alternate. What comes now may need yet another one: it is time to commit.
        is_abandoned: it is never committed; nobody need finish its files.
    """

    def __init__(self, target_file_size: int, max_open_files: int) -> None:
        self.files: list[TableFile] = []
        self.unfinished = 0
        self.is_abandoned = False
        self._target = target_file_size
        self._max_open = max_open_files
        self._last: dict[tuple[str, str | None], TableFile] = {}  # of each table and source
        self._used: dict[TableFile, None] = {}  # a set in order of last use

    @property
    def is_crowded(self) -> bool:
        """See above."""
        return len(self.files) > self._max_open

    @property
    def largest_file_bytes(self) -> int:
        """Size of the largest file so far."""
        return max((file.size for file in self.files), default=0)

    def assign(self, group: RowGroup) -> tuple[TableFile, list[TableFile]]:
        """Choose the file for a row group.

        Args:
            group: the next of its table.

        Returns:
            The file, and those that were sealed for it: the one before it of the table, whose schema
            is another, and one of any table, to keep the number of open ones bounded.
        """
        place = (group.table_dir, group.source)
        last = self._last.get(place)
        if last is not None and not self.close_if_full(last):
            if last.schema_id == group.schema_id:
                return self._use(last, group), []
            self._seal(last)
        else:
            last = None
        file = TableFile(group.table_dir, group.schema_id, group.source)
        self._last[place] = file
        self.files.append(file)
        self.unfinished += 1
        self._use(file, group)
        return file, [of for of in (last, self._evict()) if of is not None]

    def seal(self) -> list[TableFile]:
        """Say that no more row groups come; gives the files that just need closing."""
        for file in self._used:
            file.is_sealed = True
        idle = [file for file in self._used if not file.is_scheduled]
        self._used.clear()
        self._last.clear()
        return idle

    def close_if_full(self, file: TableFile) -> bool:
        """Seal a file that has reached its size; gives whether it takes no more."""
        if not file.is_sealed and file.size >= self._target:
            self._seal(file)
        return file.is_sealed

    def _seal(self, file: TableFile) -> None:
        file.is_sealed = True
        self._used.pop(file, None)

    def _use(self, file: TableFile, group: RowGroup) -> TableFile:
        self._used.pop(file, None)
        if group.is_last:  # closed by the lane that encodes it, and not kept open for nothing
            file.is_sealed = True
        else:
            self._used[file] = None
        return file

    def _evict(self) -> TableFile | None:
        if len(self._used) <= self._max_open:
            return None
        file = next(iter(self._used))
        self._seal(file)
        return file
