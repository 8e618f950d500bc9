"""Encode row keys as bytes, and assign each key to a bucket.

Given columns; promises that two rows have the same bytes exactly if the server holds the same key.
Values that did not fit their column are told apart by their text in ``gd_raw``. Text forms are used,
so that ``integer`` 5 and ``bigint`` 5 agree.
"""

import hashlib
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NULL: Final = b"n"


def encode(values: Sequence[pa.Array], raws: Sequence[pa.Array | None], count: int = 0) -> pa.Array:
    """Join columns into one binary value per row, never NULL.

    Args:
        values: the columns.
        raws: per column, the texts of values that did not fit (NULL elsewhere), or None.
        count: number of rows; used if there are no columns, as a table may have none.
    """
    if not values:
        return pa.array([b""] * count, pa.binary())
    parts = [_part(value, raw) for value, raw in zip(values, raws, strict=True)]
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, b"")


def digest(keys: pa.Array) -> pa.Array:
    """Shorten keys to 16 bytes; keys of a multiset are whole rows."""
    return pa.array(
        [hashlib.blake2b(key, digest_size=16).digest() for key in keys.to_pylist()], pa.binary()
    )


def buckets_of(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """Choose a bucket from 0 for each key; the same on every machine."""
    return np.fromiter(
        (zlib.crc32(key) % count for key in keys.to_pylist()), dtype=np.int64, count=len(keys)
    )


def _part(value: pa.Array, raw: pa.Array | None) -> pa.Array:
    """Encode one column: its length, a letter for its origin, and its bytes."""
    part = _marked(_as_binary(value), b"v")
    if raw is not None and raw.null_count < len(raw):
        part = pc.coalesce(_marked(raw.cast(pa.binary()), b"r"), part)
    return pc.fill_null(part, pa.scalar(_NULL, pa.binary()))


def _marked(value: pa.Array, letter: bytes) -> pa.Array:
    lengths = pc.binary_length(value).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(lengths, value, letter)


def _as_binary(value: pa.Array) -> pa.Array:
    of = value.type
    if pa.types.is_binary(of):
        return value
    if pa.types.is_string(of):
        return value.cast(pa.binary())
    if pa.types.is_nested(of):
        texts = [None if item is None else repr(item).encode() for item in value.to_pylist()]
        return pa.array(texts, pa.binary())
    if pa.types.is_timestamp(of) or pa.types.is_date(of):
        value = value.cast(pa.int64() if pa.types.is_timestamp(of) else pa.int32())
    return value.cast(pa.string()).cast(pa.binary())
