"""What a plug-in writes for a table, prepared once, and the arrays of a block's rows."""

import dataclasses
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gaussdecode.model.types import is_headless_hex, is_numeric, type_oid
from gaussdecode.serve.block import MESSAGES, Block, Messages, ServedColumn, TableRows, TableSchema
from gaussdecode.serve.outputs._rows import BoundTable, Writer

QUOTED, BARE, BIT, BOOL, BYTES = range(5)
"""How a value is quoted in SQL: `Literal` of ``_rows.pxd``."""
SHORTEST, EXACT, ROUNDED = range(3)
"""How numbers are printed: `Digits` of ``_arrow.pxd``."""
SKIP_TRANSACTION, SKIP_ROWS, SKIP_FRAME = 1, 2, 3
_PLAIN, _HEADLESS, _SHORTEST32, _SHORTEST64, _NUMERIC = range(5)
_OLD: Final = "old."
_LITERALS: Final = {
    **dict.fromkeys((20, 21, 23, 26, 700, 701, 1700), BARE),
    **dict.fromkeys((1560, 1562), BIT),
    16: BOOL,
    17: BYTES,
}
_INT1: Final = 5545
_TYPMOD_HEADER: Final = 4
_WITH_LENGTH: Final = frozenset({"character varying", "character"})
_WITH_DIGITS: Final = frozenset(
    {
        "bit", "bit varying", "time without time zone", "time with time zone",
        "timestamp without time zone", "timestamp with time zone",
    }
)  # fmt: skip
_USERS_ARRAY: Final = re.compile(
    r"""(?P<schema>(?:"(?:[^"]|"")*"|[^."]+)\.)?(?P<quote>"?)_(?P<name>.+)"""
)


Columns = Sequence[ServedColumn]


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column.

    Attributes:
        name: true name, for errors.
        landed: name in the files.
        raw_key: key of its text in ``gd_raw``; empty where none can be there.
        prefix: bytes before its value.
        literal: how its value is quoted.
        form: how its array prints, where the array does not tell.
        digits: how numbers are printed.
        in_identity: it identifies a row.
    """

    name: str
    landed: bytes
    raw_key: bytes
    prefix: bytes
    literal: int
    form: int
    digits: int
    in_identity: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TablePlan:
    """One table under one schema.

    Attributes:
        schema: its columns and names.
        is_wanted: its rows are written.
        oid: of the table; 0 where it is not known.
        heads: of the columns of the new row and of the old one, the bytes before those of an insert,
            an update, a delete; what stands for the table in a truncate; bytes before an old row, and
            before a new one after it.
        prefix: bytes before the value of a column, by column.
        digits: how numbers are printed.
        relation: number of the table, from 0.
        version: number of its schema, from 1.
    """

    schema: TableSchema
    is_wanted: bool
    oid: int
    heads: Callable[[Columns, Columns], tuple[bytes, ...]]
    prefix: Callable[[ServedColumn], bytes]
    digits: int = SHORTEST
    relation: int = 0
    version: int = 0

    def bind(self, table: TableRows) -> BoundTable:
        """Point into the arrays of rows."""
        rows = table.rows
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        old = arrays.get("gd_old")
        olds = {} if old is None else {field.name: old.field(i) for i, field in enumerate(old.type)}
        new_columns = [column for column in self.schema.columns if column.landed in arrays]
        old_columns = [column for column in self.schema.columns if column.landed in olds]
        return BoundTable(
            self,
            self.heads(new_columns, old_columns),
            len(rows),
            arrays["gd_op"],
            arrays.get("gd_unchanged"),
            arrays.get("gd_raw"),
            old,
            [self._column(c, arrays[c.landed], is_old=False) for c in new_columns],
            [self._column(c, olds[c.landed], is_old=True) for c in old_columns],
            np.array(list(table.truncates), np.int64),
            np.array([c + 2 * r for c, r in table.truncates.values()], np.uint8),
        )

    def _column(
        self, column: ServedColumn, array: pa.Array, *, is_old: bool
    ) -> tuple[ColumnPlan, pa.Array]:
        key = _OLD + column.landed if is_old else column.landed
        is_taken = is_old and any(other.landed == key for other in self.schema.columns)
        array, form = _printable(column, array, digits=self.digits)
        return ColumnPlan(
            column.name,
            column.landed.encode(),
            b"" if is_taken else key.encode(),
            self.prefix(column),
            _literal(column, digits=self.digits),
            form,
            self.digits,
            column.in_identity,
        ), array


def _printable(column: ServedColumn, array: pa.Array, *, digits: int) -> tuple[pa.Array, int]:
    """An array that `_arrow` prints, and how."""
    is_list = pa.types.is_list(array.type)
    of = array.type.value_type if is_list else array.type
    if pa.types.is_floating(of) and digits == SHORTEST:
        form = _SHORTEST32 if pa.types.is_float32(of) else _SHORTEST64
        return array.cast(pa.list_(pa.string()) if is_list else pa.string()), form
    oid = column_oid(column)
    if digits != SHORTEST and is_numeric(oid) and pa.types.is_string(of):
        return array, _NUMERIC
    return array, _HEADLESS if is_headless_hex(oid) else _PLAIN


def column_oid(column: ServedColumn) -> int:
    """OID of its type; 0 where it is not known."""
    return column.type_oid or type_oid(column.type) or 0


def _literal(column: ServedColumn, *, digits: int) -> int:
    oid = column_oid(column)
    return BARE if digits != SHORTEST and oid == _INT1 else _LITERALS.get(oid, QUOTED)


def format_type(column: ServedColumn) -> str:
    """Spell a column's type as format_type_be does where ``public`` is on the search path.

    The stream names the array of a type of a user's by its own name, the element's after ``_``.
    """
    name = column.type.removeprefix("public.").removeprefix("pg_catalog.")
    match = _USERS_ARRAY.fullmatch(name) if "." in column.type else None
    return "".join((match["schema"] or "", match["quote"], match["name"], "[]")) if match else name


def format_type_with_modifier(column: ServedColumn) -> str:
    """Same, with the modifier that a catalogue would show; one of an interval is left out."""
    name, modifier = format_type(column), column.type_modifier
    base = name.removesuffix("[]")
    if modifier < 0:
        return name
    if base in _WITH_LENGTH:
        shown = str(modifier - _TYPMOD_HEADER)
    elif base in _WITH_DIGITS:
        shown = str(modifier)
    elif base == "numeric":
        scale = ((modifier - _TYPMOD_HEADER & 0x7FF) ^ 0x400) - 0x400
        shown = f"{modifier - _TYPMOD_HEADER >> 16},{scale}"
    else:
        return name
    first, space, rest = name.partition(" with")
    array = "" if space else name[len(base) :]
    return f"{first.removesuffix('[]') if array else first}({shown}){space}{rest}{array}"


class Planned:
    """A plug-in that writes what its plans of the tables say; subclasses make them.

    Args:
        writer: writes the messages.
        only_local: transactions that came from elsewhere are left out.
        skip: what is left out of them.
        has_messages: logical messages are written.
    """

    has_unchanged = True

    def __init__(
        self,
        writer: Writer,
        *,
        only_local: bool,
        skip: int = SKIP_TRANSACTION,
        has_messages: bool = False,
    ) -> None:
        self._skip = skip
        self._message_plan = TablePlan(
            MESSAGES, has_messages, 0, lambda *_: (b"",) * 6, lambda _: b""
        )
        self._writer = writer
        self._only_local = only_local
        self._plans: dict[tuple[str, str, str], TablePlan] = {}

    def plan(self, schema: TableSchema) -> TablePlan:
        """Prepare what is written for a table."""
        raise NotImplementedError

    def write(self, block: Block) -> Messages:
        """Write all messages of a block."""
        all_ = block.transactions
        content, ends, start_lsn, end_lsn, transaction = self._writer.write(
            all_.xid,
            all_.end_lsn,
            all_.commit_lsn,
            all_.first_lsn,
            all_.csn,
            all_.time_us,
            all_.row_ends,
            self._skipped(block),
            block.row_table,
            block.row_index,
            block.change_lsn,
            [self._bind(table) for table in block.tables],
            block.is_continued,
            block.is_open,
        )
        return Messages(
            content,
            np.frombuffer(ends, np.int64),
            np.frombuffer(start_lsn, np.uint64),
            np.frombuffer(end_lsn, np.uint64),
            np.frombuffer(transaction, np.int64),
        )

    def state(self, block: Block) -> Hashable:
        """What was written before, as far as messages of a block depend on it."""
        del block
        state: Hashable = self._writer.state
        return state

    def resume(self, block: Block, state: Any) -> None:
        """Go on as if it had written a block."""
        del block
        self._writer.state = state

    def planned(self, schema: TableSchema) -> TablePlan:
        """The plan of a table under one schema, made once."""
        key = (schema.schema, schema.name, schema.schema_id)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self.plan(schema)
        return plan

    def _bind(self, table: TableRows) -> BoundTable:
        is_message = table.schema is MESSAGES
        return (self._message_plan if is_message else self.planned(table.schema)).bind(table)

    def _skipped(self, block: Block) -> npt.NDArray[np.uint8]:
        """`Skip` of each transaction, or 0."""
        origin = block.transactions.origin
        skipped = np.zeros(len(origin), np.uint8)
        if self._only_local and origin.count(None) != len(origin):
            skipped[[name is not None for name in origin]] = self._skip
        skipped[block.transactions.is_outside] = SKIP_FRAME
        return skipped
