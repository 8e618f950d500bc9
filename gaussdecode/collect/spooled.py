"""Keep Arrow tables in a spool, and read them back one at a time.

The tables can be read as often as asked, with one in memory. One thread adds and another reads:
a reading gives the tables that were there when it began.
"""

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Store(Protocol):
    """The part of ``collect.spool.Spool`` that is used here."""

    def write(self, data: memoryview) -> int:
        """Append bytes; gives their offset."""

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with what was written."""

    def close(self) -> None:
        """Let the bytes go."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pieces:
    """Tables that were there when it was made; each is read when its turn comes."""

    store: Store
    places: Sequence[tuple[int, int]]

    def __len__(self) -> int:
        """Number of tables."""
        return len(self.places)

    def __iter__(self) -> Iterator[pa.Table]:
        """Read one table after the other."""
        for offset, size in self.places:
            data = bytearray(size)
            self.store.read_into(offset, memoryview(data))
            with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
                yield reader.read_all()


class SpooledRows:
    """Tables in a spool of their own.

    Args:
        store: empty, and nobody else's.

    Attributes:
        row_count: rows of all tables.
    """

    def __init__(self, store: Store) -> None:
        self.row_count = 0
        self._store = store
        self._places: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def add(self, rows: pa.Table) -> None:
        """Write a table; after `close` it is forgotten at once."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
            writer.write_table(rows)
        data = memoryview(sink.getvalue())
        with self._lock:
            if self._is_closed:
                return
            self._places.append((self._store.write(data), data.nbytes))
            self.row_count += rows.num_rows

    def pieces(self) -> Pieces:
        """The tables that were added so far."""
        with self._lock:
            return Pieces(self._store, tuple(self._places))

    def close(self) -> None:
        """Give the space back."""
        with self._lock:
            self._is_closed = True
            self._places.clear()
            self._store.close()
