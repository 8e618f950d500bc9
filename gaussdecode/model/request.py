"""Requests of the collector to the writer: write row groups, and commit an entry."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from gaussdecode.model.account import Account
from gaussdecode.model.committimes import CommitTimes
from gaussdecode.model.landing import EntryKind, Position, SchemaChange, SourcePosition, Truncate

_COLUMN_BYTES: Final = 2048  # of arrays, buffers and their owners; measured, roughly


@dataclasses.dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of one table, in order, to be landed as one row group.

    Attributes:
        table_dir: encoded directory name of the table.
        schema_id: schema id of their schema.
        schema: schema of `table`; only columns Spark reads.
        table: the rows.
        first: position of the first row.
        last: position of the last row.
        ops: rows by operation.
        has_unchanged: some row has unchanged TOAST columns.
        has_key_change: some row changes its key.
        metadata: key-value metadata for the file.
        source: source whose rows they are, where a landing has several sources; else None.
        is_last: nothing more of the table comes before the entry is asked for; a hint, to close its file.
        held_bytes: memory that it takes: the values, and Arrow's memory for each column.
    """

    table_dir: str
    schema_id: str
    schema: pa.Schema
    table: pa.Table
    first: Position
    last: Position
    ops: dict[str, int]
    has_unchanged: bool = False
    has_key_change: bool = False
    metadata: dict[bytes, bytes] = dataclasses.field(default_factory=dict)
    source: str | None = None
    is_last: bool = False
    held_bytes: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Measure once: it is asked for several times, with a lock held."""
        size = self.table.get_total_buffer_size() + _COLUMN_BYTES * self.table.num_columns
        object.__setattr__(self, "held_bytes", size)


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """How far one of several sources is with an entry.

    Attributes:
        position: up to here everything is complete.
        account: the sums of its stretch.
    """

    position: SourcePosition
    account: Account | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EntryRequest:
    """What the collector says about everything written since the last one.

    Attributes:
        kind: kind of the entry.
        position: up to here everything is complete; of the first source, where there are several.
        commit_time: commit time of the newest transaction, or None.
        truncates: tables emptied.
        schema_changes: tables whose rows change over.
        extra: JSON for the entry.
        account: the sums of the stretch; what moves the position along the stream needs them.
        commit_times: commit times of its transactions.
        others: how far the other sources are, by name, where there are several.
    """

    kind: EntryKind
    position: SourcePosition
    commit_time: datetime.datetime | None = None
    truncates: tuple[Truncate, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)  # Any: JSON
    account: Account | None = None
    commit_times: CommitTimes = dataclasses.field(default_factory=CommitTimes)
    others: Mapping[str, Reached] = dataclasses.field(default_factory=dict)
