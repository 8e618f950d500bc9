"""Rows of a prepared transaction as readers may see them, before it has ended.

Given what is kept of one; promises the rows that would land were it committed now, in order, under the
descriptions that the stream gave, and that nobody is asked about its tables: it may have made or altered
them, and holds their locks.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from gaussdecode.collect._assembler import Assembler
from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect.arrow import MESSAGES, TRANSACTIONS, table_rows
from gaussdecode.collect.tables import Landed, Tables
from gaussdecode.model.relation import Relation

_OF_ITS_END: Final = ("gd_epoch", "gd_lsn", "gd_csn", "gd_ts")
"""Columns of landed rows that a transaction has none of before it has ended."""


class Bounds(Protocol):
    """What is needed of the collector's settings."""

    @property
    def row_group_rows(self) -> int:
        """Of a part."""

    @property
    def row_group_bytes(self) -> int:
        """Of a part, in memory."""

    @property
    def memory_bytes(self) -> int:
        """Of all parts that are being made."""


class Shown(NamedTuple):
    """A part of the rows of one table under one description.

    Attributes:
        table: its directory.
        schema: as of a schema file, but for numbers of columns.
        rows: in order.
    """

    table: str
    schema: Mapping[str, Any]  # Any: JSON
    rows: pa.Table


class Showing:
    """Makes rows of what is kept of one transaction; used once.

    Args:
        tables: names of directories and columns.
        bounds: of memory.
        put: takes a part; what it raises ends it all.
    """

    def __init__(self, tables: Tables, bounds: Bounds, put: Callable[[Shown], None]) -> None:
        self._tables = tables
        self._bounds = bounds
        self._put = put
        self._made: dict[Relation, Accumulator[Landed] | None] = {}
        self._records: dict[Landed, Mapping[str, Any]] = {}  # Any: JSON

    def show(self, kept: Any) -> None:  # Any: what `Assembler` takes as a kept transaction
        """Give all rows of a transaction.

        Raises:
            RowError: one of them cannot be.
        """
        bounds = self._bounds
        self._assembler = Assembler(
            self,
            self._system(TRANSACTIONS),
            self._system(MESSAGES),
            _NOWHERE,
            resume_lsn=0,
            memory_limit=0,
            row_limit=bounds.row_group_rows,
            byte_limit=bounds.row_group_bytes,
            budget=bounds.memory_bytes,
            kept=(kept,),
        )
        self._assembler.show(kept.xid)
        self.relieve()

    def _system(self, table: str) -> Accumulator[Landed]:
        landed = self._tables.system(table)
        return Accumulator(landed, *landed.kinds())

    # ---- called by the assembler -----------------------------------------------------

    def prepared_table(self, definition: bytes) -> Accumulator[Landed] | None:
        """Where rows under a description are gathered; None for a table that does not land."""
        relation = dataclasses.replace(Relation.from_record(json.loads(definition)), version=0)
        if relation not in self._made:  # a description may have come several times
            self._made[relation] = None
            if not relation.is_filtered and self._tables.is_wanted(relation):
                landed, record = self._tables.unproved(relation)
                self._made[relation] = Accumulator(landed, *landed.kinds())
                self._records[landed] = record
        return self._made[relation]

    def change_over(self, accumulator: Accumulator[Landed]) -> None:
        """Give what is gathered of a table under other descriptions, so that its parts are in order."""
        for held in self._made.values():
            if held is not None and held.table.directory == accumulator.table.directory:
                self.flush(held)
                held.is_current = held is accumulator

    def flush(self, accumulator: Accumulator[Landed]) -> None:
        """Give the rows that are gathered, of a table that has some."""
        if not accumulator.row_count:
            return
        landed = accumulator.table
        self._assembler.taken(accumulator.byte_count)
        taken = accumulator.take()
        if landed.relation is None:
            return  # messages are no rows of a table
        rows = table_rows(
            taken, landed.schema, landed.columns, landed.names, 0, with_xid=True, with_time=False
        )
        self._put(
            Shown(landed.directory, self._records[landed], rows.drop_columns(list(_OF_ITS_END)))
        )

    def relieve(self) -> None:
        """Give all that is gathered."""
        for accumulator in self._made.values():
            if accumulator is not None:
                self.flush(accumulator)

    def truncated(self, accumulator: Accumulator[Landed], lsn: int, seq: int, flags: int) -> None:
        """A row of op T says it."""


class _Nowhere:
    """A spool for what is in a file already."""

    def write(self, data: memoryview) -> int:
        raise AssertionError("a kept transaction is spooled")

    def read_into(self, offset: int, target: memoryview) -> None:
        raise AssertionError("a kept transaction is read from a spool")

    def free(self, offset: int, size: int) -> None:
        """Places in the file stay."""


_NOWHERE: Final = _Nowhere()
