"""A block: transactions of a landing, in order, between the reader of the log and an output plug-in.

The reader (`serve.reader`) makes blocks of entries. An `Output` writes the messages of a block. The sender
frames them for a client. None of the three looks at single rows in Python.
"""

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclasses.dataclass(frozen=True, slots=True)
class ServedColumn:
    """One column of a table, as its schema file has it; see docs/landing-format.md.

    Attributes:
        name: true name.
        landed: its name in the files.
        type: the server's name of the type.
        type_oid: 0 where it is not known.
        type_modifier: -1 for none.
        type_text: with the modifier, as ``numeric(10,2)``, or None.
        in_identity: it is part of ``gd_old``.
    """

    name: str
    landed: str
    type: str
    type_oid: int
    type_modifier: int
    type_text: str | None
    in_identity: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's columns, as its schema file has it.

    Attributes:
        schema_id: name of the schema's file; two tables never share one object of this class.
        schema: true name of the table's schema.
        name: true name of the table.
        oid: 0 where it is not known.
        identity: replica identity: ``d``, ``n``, ``f`` or ``i``.
        key: true names of the columns that identify a row, or None.
        columns: in the order of the stream.
    """

    schema_id: str
    schema: str
    name: str
    oid: int
    identity: str
    key: tuple[str, ...] | None
    columns: tuple[ServedColumn, ...]


MESSAGES: Final = TableSchema(
    "",
    "",
    "gd_messages",
    0,
    "n",
    None,
    (
        ServedColumn("prefix", "prefix", "text", 25, -1, None, False),
        ServedColumn("content", "content", "bytea", 17, -1, None, False),
    ),
)
"""Logical messages: rows of op M, between those of tables."""


@dataclasses.dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table under one schema.

    Attributes:
        schema: names, types and key, as landed.
        rows: columns of the landing's file, see docs/landing-format.md: ``gd_op``, ``gd_unchanged``, ``gd_old``,
            ``gd_raw``, ``gd_change_lsn`` where the landing has it, and the table's own. In order. Of `MESSAGES`
            ``gd_op``, and those of its schema.
        truncates: flags of its rows of op T: ``(cascade, restart_identity)`` by row.
    """

    schema: TableSchema
    rows: pa.RecordBatch
    truncates: Mapping[int, tuple[bool, bool]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions of a block, in the order of the landing; arrays of length T.

    Attributes:
        xid: int64; 0 where it is not known.
        end_lsn: uint64, end of the commit record.
        commit_lsn: uint64, beginning of the commit record; `end_lsn` where the landing does not have it.
        first_lsn: uint64, LSN of its first record; `end_lsn` where the landing does not have it.
        csn: int64; 0 where it has none.
        time_us: int64, commit time in microseconds since 1970; 0 where it is not known.
        origin: names of replication origins; None for none.
        user: names of users; None where they are not known.
        gid: global identifiers of prepared transactions; None for others.
        is_outside: bool; true: no transaction, but one logical message outside of any. Its `end_lsn` is its
            LSN + 1: it is read again after whatever ends at its LSN, where it begins.
        row_ends: int64; rows of transaction t are ``row_ends[t - 1]`` up to and without ``row_ends[t]`` of
            `Block.row_table`.
    """

    xid: npt.NDArray[np.int64]
    end_lsn: npt.NDArray[np.uint64]
    commit_lsn: npt.NDArray[np.uint64]
    first_lsn: npt.NDArray[np.uint64]
    csn: npt.NDArray[np.int64]
    time_us: npt.NDArray[np.int64]
    origin: tuple[str | None, ...]
    user: tuple[str | None, ...]
    gid: tuple[str | None, ...]
    is_outside: npt.NDArray[np.bool_]
    row_ends: npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Transactions, and their rows in order.

    A transaction that is too large for one block goes on in the next ones; all of these have it among their
    `transactions`, the later ones with none before it.

    Attributes:
        epoch: of their positions.
        transactions: T transactions.
        tables: rows by table and schema.
        row_table: int32 of length N: index in `tables` of each row.
        row_index: int64 of length N: its row there.
        change_lsn: uint64 of length N: LSN of each change; `end_lsn` of its transaction where the landing does
            not have it.
        is_continued: rows of the first transaction stood in the block before: its BEGIN is written.
        is_open: rows of the last transaction stand in the next block: its COMMIT is not due.
    """

    epoch: int
    transactions: Transactions
    tables: tuple[TableRows, ...]
    row_table: npt.NDArray[np.int32]
    row_index: npt.NDArray[np.int64]
    change_lsn: npt.NDArray[np.uint64]
    is_continued: bool = False
    is_open: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Messages:
    """What a plug-in wrote for a block: M messages, one after the other.

    Attributes:
        content: all bytes.
        ends: int64 of length M: end of each message in `content`.
        start_lsn: uint64 of length M: the message's LSN, for the header of XLogData.
        end_lsn: uint64 of length M: what a client may confirm after it: of the last message of a transaction
            the end of its commit record, else the same as `start_lsn`.
        transaction: int64 of length M: index of the (last) transaction that the message has something of.
    """

    content: bytes
    ends: npt.NDArray[np.int64]
    start_lsn: npt.NDArray[np.uint64]
    end_lsn: npt.NDArray[np.uint64]
    transaction: npt.NDArray[np.int64]


class Output(Protocol):
    """An output plug-in with the options of one client; it may keep state from block to block.

    Raises:
        gaussdecode.serve.errors.ServeError: a client's option is wrong (when it is made), or a row cannot be
            written as the plug-in does.
    """

    @property
    def is_text(self) -> bool:
        """Whether `pg_logical_slot_peek_changes` may show its messages as text."""
        ...

    @property
    def has_unchanged(self) -> bool:
        """Whether a client can tell a large value that an update did not change from NULL."""
        ...

    def write(self, block: Block) -> Messages:
        """Write all messages of a block."""
        ...

    def state(self, block: Block) -> Hashable:
        """What was written before, as far as messages of a block depend on it.

        Outputs with the same options and the same state write the same messages.
        """
        ...

    def resume(self, block: Block, state: Hashable) -> None:
        """Go on as if it had written a block, by the state of an output that has."""
        ...

    def heartbeat(self, lsn: int, flushed_lsn: int, time_us: int) -> bytes | None:
        """A heartbeat, or None where the options do not want one."""
        ...
