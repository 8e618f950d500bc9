"""Collect the keys of rows that changed while a table was read.

`changed_keys` gives the keys of changes as they land. `is_changed` marks the rows of an earlier read that
may be out of date. Both compare Arrow values, and one decoder makes them for copied rows and for rows
of the stream. A key that does not fit its column has no value there: then the answer is unknown, and the
caller must read the table in another way. `Keys` has a part of the keys in memory at a time. A table is
never read anew because too much changed: the busiest table would never be done.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from gaussdecode.collect.spooled import SpooledRows, Store
from gaussdecode.host import lazy_pyarrow
from gaussdecode.model.types import ColumnType, Kind

_KINDS: Final = frozenset(
    {
        Kind.BOOL,
        Kind.INT16,
        Kind.INT32,
        Kind.INT64,
        Kind.DECIMAL,
        Kind.DATE,
        Kind.TIMESTAMP,
        Kind.TIMESTAMPTZ,
        Kind.STRING,
    }
)


class UnknownKeyError(ValueError):
    """A row's key has no value of its column's type."""


def is_usable(key: Sequence[ColumnType]) -> bool:
    """Whether keys of these types can be compared here and asked for in SQL."""
    return bool(key) and all(column.kind in _KINDS for column in key)


def needed_columns(names: Sequence[str], schema: pa.Schema) -> list[str]:
    """The columns that `changed_keys` looks at."""
    return ["gd_op", *(["gd_old"] if "gd_old" in schema.names else []), *names]


def changed_keys(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Keys of the rows that changes touched, before and after.

    Args:
        rows: rows as they land; their `needed_columns`.
        names: names of the key's columns.

    Raises:
        UnknownKeyError: a change does not show its key.
    """
    ops = rows.column("gd_op")
    new = rows.filter(lazy_pyarrow.pc.is_in(ops, pa.array(["I", "U"]))).select(list(names))
    found = [new]
    if "gd_old" in rows.column_names:
        old = rows.column("gd_old").combine_chunks()
        old = old.filter(lazy_pyarrow.pc.is_valid(old))
        if len(old):
            columns = [lazy_pyarrow.pc.struct_field(old, name) for name in names]
            found.append(pa.table(columns, names=list(names)).cast(new.schema))
    keys = pa.concat_tables(found)
    for name in names:
        if keys.column(name).null_count:
            raise UnknownKeyError(name)
    return keys


class Keys:
    """Keys, each once; in pieces of which no two share a key.

    Args:
        spool: spool for the pieces before the last one.
        piece_bytes: size of a piece.
    """

    def __init__(self, spool: Store, piece_bytes: int) -> None:
        self._spooled = SpooledRows(spool)
        self._piece_bytes = piece_bytes
        self._last: pa.Table | None = None
        self._added: list[pa.Table] = []
        self._added_bytes = 0

    def add(self, keys: pa.Table) -> None:
        """Take keys in; all tables have the same columns."""
        if not keys.num_rows:
            return
        self._added.append(keys)
        self._added_bytes += keys.nbytes
        if self._added_bytes >= self._piece_bytes:
            self._gather()

    def _gather(self) -> None:
        """Make the last piece of what was added and is not in the pieces before it."""
        together = pa.concat_tables([*([] if self._last is None else [self._last]), *self._added])
        distinct = together.group_by(together.column_names).aggregate([])
        last = _missing(distinct, self._spooled.pieces())
        self._added.clear()
        self._added_bytes = 0
        self._last = last
        if last.nbytes >= self._piece_bytes:
            self._spooled.add(last)
            self._last = None

    def pieces(self, most_rows: int) -> Iterator[pa.Table]:
        """Every key once, so many at a time."""
        for piece in self._pieces():
            for first in range(0, piece.num_rows, most_rows):
                yield piece.slice(first, most_rows)

    def without(self, rows: pa.Table) -> pa.Table:
        """The rows whose key is not here; several threads may ask after `pieces`."""
        return _missing(rows, self._pieces())

    def _pieces(self) -> Iterator[pa.Table]:
        if self._added:
            self._gather()
        yield from self._spooled.pieces()
        if self._last is not None:
            yield self._last

    def close(self) -> None:
        """Give the space back."""
        self._spooled.close()


def _missing(rows: pa.Table, pieces: Iterable[pa.Table]) -> pa.Table:
    for piece in pieces:
        rows = rows.filter(lazy_pyarrow.pc.invert(is_changed(rows, piece)))
    return rows


def is_changed(rows: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
    """Whether the key of each row is among `keys`, whose columns it has."""
    names = keys.column_names
    if len(names) == 1:
        column = rows.column(names[0])
        return lazy_pyarrow.pc.is_in(
            column, keys.column(names[0]).cast(column.type).combine_chunks()
        )
    return lazy_pyarrow.pc.is_in(_joined(rows, names), _joined(keys, names).combine_chunks())


def _joined(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """One text per key; each part after its length, so that no two keys look alike."""
    parts = []
    for name in names:
        text = rows.column(name).cast(pa.string())
        size = lazy_pyarrow.pc.fill_null(
            lazy_pyarrow.pc.binary_length(text), -1
        )  # no value is no empty text
        parts += [size.cast(pa.string()), lazy_pyarrow.pc.fill_null(text, "")]
    return lazy_pyarrow.pc.binary_join_element_wise(*parts, ":")


def array_texts(keys: pa.Table) -> list[str]:
    """Per column, the values as the text of a PostgreSQL array."""
    return [_array_text(keys.column(name)) for name in keys.column_names]


def _array_text(column: pa.ChunkedArray) -> str:
    text = column.cast(pa.string())
    text = lazy_pyarrow.pc.replace_substring(
        lazy_pyarrow.pc.replace_substring(text, "\\", "\\\\"), '"', '\\"'
    )
    quoted = lazy_pyarrow.pc.binary_join_element_wise('"', text, '"', "")
    listed = pa.ListArray.from_arrays(
        pa.array([0, len(quoted)], pa.int32()), pa.chunked_array(quoted).combine_chunks()
    )
    joined: str = lazy_pyarrow.pc.binary_join(listed, ",")[0].as_py()
    return "{" + joined + "}"
