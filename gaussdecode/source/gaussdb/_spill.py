"""Keep descriptions of tables in memory, and those of quiet tables in a file.

Option desc-memory-limit limits the memory of descriptions. Above it the least recently used ones go to a file
without a name, and come back when they are needed. A failing disk loses nothing: a description that it does not
take or give back counts as never seen, which costs a repeated definition.
"""

import collections
import json
import os
import tempfile
import weakref
from typing import Any

Record = dict[str, Any]  # Any: JSON


class Spill:
    """A dictionary from tables to JSON records.

    Args:
        memory_limit: bytes of records above which they go to disk; 0 for no limit.
        directory: directory of the file, which exists by then; None for the system's.
    """

    def __init__(self, memory_limit: int = 0, directory: str | None = None) -> None:
        self._limit = memory_limit
        self._directory = directory
        self._held: collections.OrderedDict[tuple[str, str], bytes] = collections.OrderedDict()
        self._places: dict[tuple[str, str], tuple[int, int]] = {}
        self._file: int | None = None
        self._file_bytes = 0
        self.held_bytes = 0
        self.eviction_count = 0

    def get(self, table: tuple[str, str]) -> Record | None:
        """Give the record of a table, or None."""
        data = self._held.get(table)
        if data is None:
            data = self._read(table)
            if data is None:
                return None
            self._hold(table, data)
        self._held.move_to_end(table)
        record: Record = json.loads(data)
        return record

    def put(self, table: tuple[str, str], record: Record) -> None:
        """Keep the record of a table instead of the one before."""
        self._places.pop(table, None)
        before = self._held.pop(table, None)
        self.held_bytes -= 0 if before is None else len(before)
        self._hold(table, json.dumps(record, separators=(",", ":")).encode())

    def _hold(self, table: tuple[str, str], data: bytes) -> None:
        self._held[table] = data
        self.held_bytes += len(data)
        while self._limit and self.held_bytes > self._limit and len(self._held) > 1:
            quiet, quiet_data = self._held.popitem(last=False)
            self.held_bytes -= len(quiet_data)
            self.eviction_count += 1
            if quiet not in self._places:
                self._write(quiet, quiet_data)

    def _write(self, table: tuple[str, str], data: bytes) -> None:
        try:
            written = os.pwrite(self._opened(), data, self._file_bytes)
        except OSError:
            return
        if written == len(data):
            self._places[table] = self._file_bytes, written
            self._file_bytes += written

    def _read(self, table: tuple[str, str]) -> bytes | None:
        place = self._places.get(table)
        if place is None:
            return None
        at, size = place
        try:
            data = os.pread(self._opened(), size, at)
        except OSError:
            return None
        return data if len(data) == size else None

    def _opened(self) -> int:
        if self._file is None:
            self._file, name = tempfile.mkstemp(prefix=".descriptions-", dir=self._directory)
            weakref.finalize(self, os.close, self._file)
            os.unlink(name)
        return self._file
