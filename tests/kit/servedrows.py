"""Blocks of rows, as the reader of a landing makes them."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gaussdecode.serve.block import (
    Block,
    Messages,
    ServedColumn,
    TableRows,
    TableSchema,
    Transactions,
)

OID = 16400
_RAW = pa.map_(pa.string(), pa.string())


def column(name: str, spelled: str, oid: int, *, is_key: bool = False) -> ServedColumn:
    """A column that lands under its own name."""
    return ServedColumn(name, name, spelled, oid, -1, None, is_key)


def schema(columns: Sequence[ServedColumn], *, identity: str = "d") -> TableSchema:
    """Table ``public.t``."""
    key = tuple(column.name for column in columns if column.in_identity)
    return TableSchema("s1", "public", "t", OID, identity, key or None, tuple(columns))


def rows(
    ops: str,
    arrays: dict[str, pa.Array],
    *,
    old: pa.Array | None = None,
    raw: Sequence[dict[str, str] | None] | None = None,
    unchanged: Sequence[list[str] | None] | None = None,
) -> pa.RecordBatch:
    """Rows of a file, one for each letter of `ops`."""
    named: dict[str, pa.Array] = {
        "gd_op": pa.array(list(ops), pa.string()),
        "gd_unchanged": pa.array(unchanged or [None] * len(ops), pa.list_(pa.string())),
        "gd_raw": pa.array(
            [each and list(each.items()) for each in raw or [None] * len(ops)], _RAW
        ),
    }
    if old is not None:
        named["gd_old"] = old
    return pa.RecordBatch.from_pydict(named | arrays)


def block(
    tables: Sequence[TableRows], ends: Sequence[int], **fields: Any
) -> Block:  # Any: of a block
    """Transactions 1, 2, ... that end after so many rows, of the tables one after the other.

    Row *n* has the LSN 1000 + *n*; transaction *t* begins its commit record at 100,000 times *t* and ends
    it 16 bytes later.
    """
    number = np.arange(1, len(ends) + 1, dtype=np.int64)
    commit = (100_000 * number).astype(np.uint64)
    counts = [len(table.rows) for table in tables]
    nobody = (None,) * len(ends)
    transactions = Transactions(
        xid=number,
        end_lsn=commit + np.uint64(16),
        commit_lsn=commit,
        first_lsn=commit - np.uint64(16),
        csn=number + 50,
        time_us=number * 1_500_000,
        origin=fields.pop("origin", nobody),
        user=fields.pop("user", nobody),
        gid=nobody,
        is_outside=np.array(fields.pop("outside", [False] * len(ends))),
        row_ends=np.array(ends, np.int64),
    )
    return Block(
        0,
        transactions,
        tuple(tables),
        np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        np.concatenate([np.arange(count, dtype=np.int64) for count in counts] or [number[:0]]),
        np.arange(1000, 1000 + sum(counts), dtype=np.uint64),
        **fields,
    )


def split(messages: Messages) -> list[bytes]:
    """The messages one by one."""
    starts = [0, *messages.ends.tolist()]
    return [messages.content[a:b] for a, b in itertools.pairwise(starts)]
