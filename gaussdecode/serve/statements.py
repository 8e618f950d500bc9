"""Answer the SQL that is served: values, functions of slots, views, settings, and changes of a slot.

`describe` tells the columns of a statement before it runs, as the extended protocol asks. `Session` of
`serve.session` gives what a statement may use.
"""

import dataclasses
import re
import struct
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from gaussdecode.model.lsn import Lsn
from gaussdecode.serve._framing import data_rows
from gaussdecode.serve.block import Output
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.feed import Feed
from gaussdecode.serve.messages import Column, data_row, warning
from gaussdecode.serve.outputs.options import boolean
from gaussdecode.serve.reader import ReadPosition
from gaussdecode.serve.slots import Slot
from gaussdecode.serve.sql import (
    Call,
    Forwarded,
    Item,
    Known,
    Select,
    Set,
    Show,
    Statement,
    Value,
    not_served,
)
from gaussdecode.serve.stream import Sent
from gaussdecode.serve.walk import Walk

BOOL, BYTEA, INT8, INT4, TEXT, OID, XID, LSN, VOID, RECORD, NUMERIC = (
    16, 17, 20, 23, 25, 26, 28, 3220, 2278, 2249, 1700,
)  # fmt: skip
_CHUNK: Final = 256 << 10
_TEXTS: Final = frozenset({18, 19, TEXT, 1042, 1043})  # types whose binary form is the text
_BINARY: Final[Mapping[int, str]] = {
    BOOL: ">?",
    21: ">h",
    INT4: ">i",
    INT8: ">q",
    OID: ">I",
    XID: ">I",
    LSN: ">Q",
}
_AREA: Final = "pg_logical_get_area_changes"
_DATA_LIMIT: Final = "data-limit"
INCLUDE_SNAPSHOT: Final = "include-snapshot"
"""Option of a client: it gets the rows of snapshots."""
_MOST_DATA_GB: Final = 100
_GB: Final = 1 << 30
# Possessive: a text that does not match takes no more time than one that does.
_ELEMENT: Final = re.compile(r'\s*+(?:"((?:[^"\\]|\\.)*+)"\s*+|([^,"{}\\]++))', re.DOTALL)
_CHANGES: Final = re.compile(r"pg_logical_slot_(peek|get)_(binary_)?changes")
_TYPES: Final = {
    "text": TEXT,
    "number": INT4,
    "bool": BOOL,
    "pg_lsn": LSN,
    "int": INT4,
    "bigint": INT8,
}

Scalar = str | int | bool | bytes | None


class Context(Protocol):
    """What statements use of a session; `serve.session.Session` has it, and says what each does."""

    # ruff: noqa: D102
    @property
    def database(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def process(self) -> int: ...
    @property
    def version(self) -> str: ...
    @property
    def is_by_csn(self) -> bool: ...
    async def create_slot(self, name: str, plugin: str, *, is_temporary: bool) -> Slot: ...
    def drop_slot(self, name: str) -> None: ...
    async def advance_slot(self, name: str, lsn: int) -> Slot: ...
    def acquire(self, name: str) -> Slot: ...
    async def release(self, slot: Slot) -> None: ...
    def feed(self) -> Feed: ...
    def output_of(self, plugin: str, options: Mapping[str, str | None]) -> Output: ...
    async def end_lsn(self) -> int: ...
    def slots(self) -> list[Slot]: ...
    def show(self, name: str) -> str: ...
    def assign(self, name: str, value: str | None) -> None: ...
    def settings(self) -> Mapping[str, str]: ...
    def streams(self) -> list[Mapping[str, Scalar]]: ...
    def sent(self, slot: Slot) -> Sent: ...
    async def of_catalog(
        self, statement: Forwarded, parameters: Sequence[str | None], form: int
    ) -> list[list[bytes | None]]: ...


@dataclasses.dataclass(slots=True)
class Fetch:
    """How many rows are wanted now; None for all.

    A piece of an answer has no more. Between two pieces the number may change.
    """

    most: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a statement.

    Attributes:
        rows: encoded DataRow messages, in pieces; each with its number of rows.
        tag: of CommandComplete; ``{}`` stands for the number of rows.
    """

    rows: AsyncGenerator[tuple[bytes | bytearray, int], None]
    tag: str


def encode(value: Scalar, column: Column, form: int) -> bytes | None:
    """Encode a value for a client.

    Args:
        value: of the column's type.
        column: of the answer.
        form: 0 for text, 1 for binary.
    """
    if value is None:
        return None
    if form == 1 and column.oid in _BINARY:
        try:
            return struct.pack(_BINARY[column.oid], value)
        except struct.error:
            raise ServeError("22003", f"a value of {column.name[:64]} is out of range") from None
    if form == 1 and column.oid == NUMERIC:
        raise not_served("the binary form of a numeric")
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, bytes):
        return value if form == 1 else b"\\x" + value.hex().encode()
    if column.oid == LSN:
        return str(Lsn(int(value))).encode()
    return str(value).encode("utf-8", "backslashreplace")


async def _of_rows(
    rows: Sequence[Sequence[Scalar]], columns: Sequence[Column], formats: Sequence[int]
) -> AsyncGenerator[tuple[bytes | bytearray, int], None]:
    for row in rows:
        cells = [
            encode(value, column, form_of(formats, index))
            for index, (value, column) in enumerate(zip(row, columns, strict=True))
        ]
        yield data_row(cells), 1


async def _as_they_are(
    rows: Sequence[Sequence[bytes | None]],
) -> AsyncGenerator[tuple[bytes | bytearray, int], None]:
    for row in rows:
        yield data_row(row), 1


def _in_form(text: bytes | None, column: Column, form: int) -> bytes | None:
    """A value that a database gave as text, in the form that a client wants."""
    if text is None or form == 0 or column.oid in _TEXTS:
        return text
    if column.oid not in _BINARY:
        raise not_served(f"the binary form of type {column.oid} beside columns in text")
    if column.oid == BOOL:
        return encode(text == b"t", column, form)
    return encode(int(Lsn.parse(text.decode()) if column.oid == LSN else text), column, form)


def form_of(formats: Sequence[int], index: int) -> int:
    """Form of a column, where a client gives none, one for all, or one for each."""
    if not formats:
        return 0
    return formats[0] if len(formats) == 1 else formats[index]


# ---- values --------------------------------------------------------------------------------


def bind(value: Value, parameters: Sequence[str | None]) -> str | None:
    """The text of a constant or a parameter.

    Raises:
        ServeError: there is no such parameter.
    """
    if value.parameter == 0:
        return value.text
    if value.parameter > len(parameters):
        raise ServeError("42P02", f"there is no parameter ${value.parameter}")
    return parameters[value.parameter - 1]


def _lsn(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(Lsn.parse(text))
    except ValueError:
        raise ServeError(
            "22P02", "invalid input syntax for type pg_lsn", hint="Write it as 16/B374D848."
        ) from None


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise ServeError("22P02", "invalid input syntax for type integer") from None
    if value < 1:
        raise ServeError("22023", f"a number of changes of {value}; allowed: 1 and more, or NULL")
    return value


def _limit(text: str) -> int:
    if not _fits_in(text, INT8) or text.startswith("-"):
        raise ServeError("2201W", "LIMIT must be a whole number, not below 0")
    return int(text)


def _needed(text: str | None, what: str) -> str:
    if text is None:
        raise ServeError("22004", f"{what} must not be null")
    return text


def _array(text: str | None) -> list[str | None]:
    """Read the text of a ``text[]`` with one dimension."""
    if text is None:
        return []
    found: list[str | None] = []
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}") and len(body) > 1):
        raise _malformed()
    at, end = 1, len(body) - 1
    if not body[at:end].strip():
        return []
    while True:
        match = _ELEMENT.match(body, at, end)
        if match is None:
            raise _malformed()
        quoted, plain = match[1], (match[2] or "").strip()
        if quoted is None and not plain:
            raise _malformed()
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            found.append(None if plain.lower() == "null" else plain)
        at = match.end()
        if at == end:
            return found
        if body[at] != ",":
            raise _malformed()
        at += 1


def _malformed() -> ServeError:
    return ServeError("22P02", "malformed array literal of options")


# ---- functions -----------------------------------------------------------------------------

Function = Callable[[Context, Sequence[str | None]], Any]  # Any: a Scalar, or what gives one later


async def _create(context: Context, values: Sequence[str | None]) -> tuple[Scalar, ...]:
    name, plugin = _needed(values[0], "the name"), _needed(values[1], "the plug-in")
    is_temporary = len(values) > 2 and values[2] in {"t", "true", "1", "on"}
    for value in values[3:]:
        if value in {"t", "true", "1", "on"}:
            raise not_served("a slot with two_phase or failover")
    slot = await context.create_slot(name, plugin, is_temporary=is_temporary)
    return slot.name, slot.lsn


async def _advance(context: Context, values: Sequence[str | None]) -> tuple[Scalar, ...]:
    lsn = _lsn(_needed(values[1], "the LSN"))
    slot = await context.advance_slot(_needed(values[0], "the name"), lsn or 0)
    return slot.name, slot.lsn


def _drop(context: Context, values: Sequence[str | None]) -> Scalar:
    context.drop_slot(_needed(values[0], "the name"))
    return ""


def _set_config(context: Context, values: Sequence[str | None]) -> Scalar:
    name = _needed(values[0], "the name")
    context.assign(name, values[1])
    return context.show(name)


@dataclasses.dataclass(frozen=True, slots=True)
class _Function:
    """A function: least and most arguments, columns of its answer, and what gives it."""

    least: int
    most: int
    columns: tuple[tuple[str, int], ...]
    run: Function


_FUNCTIONS: Final[Mapping[str, _Function]] = {
    "version": _Function(0, 0, (("version", TEXT),), lambda c, _: c.version),
    "current_database": _Function(0, 0, (("current_database", TEXT),), lambda c, _: c.database),
    "current_catalog": _Function(0, 0, (("current_catalog", TEXT),), lambda c, _: c.database),
    "current_schema": _Function(0, 0, (("current_schema", TEXT),), lambda _c, _: "public"),
    "current_user": _Function(0, 0, (("current_user", TEXT),), lambda c, _: c.user),
    "session_user": _Function(0, 0, (("session_user", TEXT),), lambda c, _: c.user),
    "pg_backend_pid": _Function(0, 0, (("pg_backend_pid", INT4),), lambda c, _: c.process),
    "pg_is_in_recovery": _Function(0, 0, (("pg_is_in_recovery", BOOL),), lambda _c, _: False),
    "pg_current_wal_lsn": _Function(0, 0, (("pg_current_wal_lsn", LSN),), lambda c, _: c.end_lsn()),
    "pg_current_wal_flush_lsn": _Function(
        0, 0, (("pg_current_wal_flush_lsn", LSN),), lambda c, _: c.end_lsn()
    ),
    "pg_current_xlog_location": _Function(
        0, 0, (("pg_current_xlog_location", LSN),), lambda c, _: c.end_lsn()
    ),
    "current_setting": _Function(
        1, 2, (("current_setting", TEXT),), lambda c, v: c.show(_needed(v[0], "the name"))
    ),
    "set_config": _Function(3, 3, (("set_config", TEXT),), _set_config),
    "pg_create_logical_replication_slot": _Function(
        2, 5, (("slot_name", TEXT), ("lsn", LSN)), _create
    ),
    "pg_replication_slot_advance": _Function(
        2, 2, (("slot_name", TEXT), ("end_lsn", LSN)), _advance
    ),
    "pg_drop_replication_slot": _Function(1, 1, (("pg_drop_replication_slot", VOID),), _drop),
}


def _known(call: Call) -> _Function:
    known = _FUNCTIONS.get(call.name)
    if known is None:
        raise not_served(f"function {call.name[:64]}")
    if call.named or not known.least <= len(call.arguments) <= known.most:
        raise ServeError(
            "42883",
            f"function {call.name} takes {known.least} to {known.most} arguments, in order",
        )
    return known


async def _called(
    context: Context, call: Call, parameters: Sequence[str | None]
) -> tuple[Scalar, ...]:
    known = _known(call)
    arguments = list(call.arguments)
    if known.run is _create and len(arguments) == 3:
        order = bind(arguments[2], parameters)  # GaussDB has the order of transactions here
        if arguments[2].type == "number" or (arguments[2].parameter and order in {"0", "1"}):
            if order not in {"0", "1"}:
                raise ServeError("22023", "the order of transactions is neither 0 nor 1")
            arguments.pop()
            check_order(order, is_by_csn=context.is_by_csn)
    found = known.run(context, [bind(value, parameters) for value in arguments])
    if hasattr(found, "__await__"):
        found = await found
    return found if isinstance(found, tuple) else (found,)


def check_order(asked: str | None, *, is_by_csn: bool) -> None:
    """Refuse another order of transactions than that of the landing.

    Args:
        asked: value of ``output-order``, 0 or 1; None where the client leaves it to the server.
        is_by_csn: the landing is in the order of CSNs.

    Raises:
        ServeError: it is another one.
    """
    if asked is not None and (int(asked) != 0) != is_by_csn:
        order = "CSNs" if is_by_csn else "commit records"
        raise ServeError(
            "22023",
            f"output-order {int(asked)} is not served here: transactions have landed in the order of their {order}",
            hint=f"Leave output-order out, or set it to {int(is_by_csn)}.",
        )


# ---- views ---------------------------------------------------------------------------------

_SLOT_COLUMNS: Final = (
    ("slot_name", TEXT), ("plugin", TEXT), ("slot_type", TEXT), ("datoid", OID), ("database", TEXT),
    ("temporary", BOOL), ("active", BOOL), ("active_pid", INT4), ("xmin", XID), ("catalog_xmin", XID),
    ("restart_lsn", LSN), ("confirmed_flush_lsn", LSN), ("wal_status", TEXT), ("safe_wal_size", INT8),
    ("two_phase", BOOL), ("owner", TEXT), ("confirmed_csn", INT8),
)  # fmt: skip
_STREAM_COLUMNS: Final = (
    ("pid", INT4), ("usename", TEXT), ("application_name", TEXT), ("client_addr", TEXT), ("slot_name", TEXT),
    ("state", TEXT), ("sent_lsn", LSN), ("flush_lsn", LSN), ("bytes", INT8), ("rows", INT8),
)  # fmt: skip
_DECODE_COLUMNS: Final = (
    ("slot_name", TEXT), ("parallel_decode_num", INT4), ("read_change_queue_length", TEXT),
    ("decode_change_queue_length", TEXT), ("reader_lsn", TEXT), ("working_txn_cnt", INT8),
    ("working_txn_memory", INT8),
)  # fmt: skip
_VIEWS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "pg_replication_slots": _SLOT_COLUMNS,
    "pg_get_replication_slots": _SLOT_COLUMNS,
    "gs_get_parallel_decode_status": _DECODE_COLUMNS,
    "pg_stat_replication": _STREAM_COLUMNS,
    "pg_settings": (("name", TEXT), ("setting", TEXT)),
}
_VIEW_FUNCTIONS: Final = frozenset({"pg_get_replication_slots", "gs_get_parallel_decode_status"})


def _view_rows(context: Context, name: str) -> list[dict[str, Scalar]]:
    if name == "pg_settings":
        return [{"name": key, "setting": text} for key, text in listed(context.settings()).items()]
    if name in {"pg_stat_replication", "gs_get_parallel_decode_status"}:
        return [dict(stream) for stream in context.streams()]
    return [
        {
            "slot_name": slot.name,
            "plugin": slot.plugin,
            "slot_type": "logical",
            "datoid": None,
            "database": slot.database,
            "temporary": slot.is_temporary,
            "active": slot.process is not None,
            "active_pid": slot.process,
            "xmin": None,
            "catalog_xmin": None,
            "restart_lsn": slot.lsn,
            "confirmed_flush_lsn": slot.lsn,
            "wal_status": None,
            "safe_wal_size": None,
            "two_phase": False,
            "owner": slot.owner or None,
            "confirmed_csn": slot.lsn if context.is_by_csn else None,
        }
        for slot in context.slots()
    ]


def listed(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as the view pg_settings has them: without units."""
    key = "wal_sender_timeout"
    return {**settings, key: settings[key].removesuffix("ms")}


def slots_for_catalog(context: Context) -> list[dict[str, str | int | bool | None]]:
    """Virtual slots as rows of the view in a statement that the source answers.

    Without the number of the process, which would be that of another one there. The landing keeps what the
    slots need, so their WAL counts as reserved.
    """
    shown = {"active_pid": None, "wal_status": "reserved", "failover": False, "synced": False}
    found = []
    for row in _view_rows(context, "pg_replication_slots"):
        del row["owner"], row["confirmed_csn"]
        for key in ("restart_lsn", "confirmed_flush_lsn"):
            row[key] = str(Lsn(int(row[key] or 0)))
        found.append({**row, **shown})
    return found  # type: ignore[return-value]  # the view has no bytes


# ---- statements ----------------------------------------------------------------------------


def describe(statement: Statement) -> tuple[Column, ...] | None:
    """Columns of an answer; None for a statement without one.

    Raises:
        ServeError: it is not served.
    """
    if isinstance(statement, Show):
        return (Column(statement.name),)
    if isinstance(statement, Forwarded | Known):
        return statement.columns
    if not isinstance(statement, Select):
        return None
    if statement.source is None:
        return tuple(_item_column(item) for item in statement.items)
    return tuple(column for _, column in _projection(statement))


def _item_column(item: Item) -> Column:
    expression = item.expression
    if isinstance(expression, str):
        raise ServeError("42703", f'column "{expression[:64]}" does not exist')
    if isinstance(expression, Value):
        oid = _TYPES.get(expression.type, TEXT)
        if expression.type == "number" and expression.text is not None:
            oid = next((oid for oid in (INT4, INT8) if _fits_in(expression.text, oid)), NUMERIC)
        return Column(item.alias or "?column?", oid)
    if _is_changes(expression.name):
        raise not_served(f"{expression.name} in place of a column; write it after FROM")
    known = _known(expression)
    oid = known.columns[0][1] if len(known.columns) == 1 else RECORD
    return Column(item.alias or expression.name, oid)


def _is_changes(name: str) -> bool:
    return name == _AREA or _CHANGES.fullmatch(name) is not None


def _source_columns(source: Call | str) -> tuple[tuple[str, int], ...]:
    name = source if isinstance(source, str) else source.name
    if isinstance(source, Call):
        changes = _CHANGES.fullmatch(name)
        if name == _AREA:
            return (("location", TEXT), ("xid", XID), ("data", TEXT))
        if changes:
            return (("lsn", LSN), ("xid", XID), ("data", BYTEA if changes[2] else TEXT))
        if name in _FUNCTIONS:
            return _known(source).columns
    if name in _VIEWS and isinstance(source, Call) == (name in _VIEW_FUNCTIONS):
        return _VIEWS[name]
    raise not_served(f"{'table' if isinstance(source, str) else 'function'} {name[:64]}")


def _projection(statement: Select) -> list[tuple[int, Column]]:
    """Indexes of the source's columns, and what they are called; -1 for ``count(*)``."""
    assert statement.source is not None
    available = _source_columns(statement.source)
    names = [name for name, _ in available]
    aliases = {"location": "lsn"} if "lsn" in names else {}
    found: list[tuple[int, Column]] = []
    for item in statement.items:
        expression = item.expression
        if isinstance(expression, Call) and expression.name == "count" and not expression.arguments:
            found.append((-1, Column(item.alias or "count", INT8)))
            continue
        if not isinstance(expression, str):
            raise not_served("an expression in a SELECT with FROM")
        if expression == "*":
            found += [(index, Column(name, oid)) for index, (name, oid) in enumerate(available)]
            continue
        column = aliases.get(expression, expression)
        if column not in names:
            raise ServeError("42703", f'column "{expression[:64]}" does not exist')
        index = names.index(column)
        found.append((index, Column(item.alias or expression, available[index][1])))
    if any(index < 0 for index, _ in found) and len(found) > 1:
        raise not_served("count(*) beside other columns")
    return found


async def run(
    context: Context,
    statement: Statement,
    parameters: Sequence[str | None] = (),
    formats: Sequence[int] = (),
    fetch: Fetch | None = None,
) -> Answer:
    """Carry out a statement.

    Args:
        context: its session.
        statement: as parsed.
        parameters: texts of its parameters.
        formats: forms of the columns of the answer.
        fetch: bounds each piece of the answer.

    Raises:
        ServeError: it cannot be carried out.
    """
    if isinstance(statement, Show):
        rows: list[Sequence[Scalar]] = [(context.show(statement.name),)]
        return Answer(_of_rows(rows, (Column(statement.name),), formats), "SHOW")
    if isinstance(statement, Set):
        context.assign(statement.name, statement.value)
        return Answer(_of_rows((), (), ()), statement.tag)
    if isinstance(statement, Known):
        return Answer(_of_rows(statement.rows, statement.columns, formats), "SELECT {}")
    if isinstance(statement, Forwarded):
        if len(set(formats)) < 2:
            found = await context.of_catalog(statement, parameters, form_of(formats, 0))
        else:  # libpq asks for one form of all
            texts = await context.of_catalog(statement, parameters, 0)
            columns = statement.columns
            found = [list(map(_in_form, row, columns, formats)) for row in texts]
        return Answer(_as_they_are(found), "SELECT {}")
    if not isinstance(statement, Select):
        return Answer(_of_rows((), (), ()), statement.tag)
    columns = describe(statement) or ()
    source = statement.source
    if source is None:
        return Answer(
            _of_rows([await _values(context, statement, parameters)], columns, formats),
            "SELECT {}",
        )
    if isinstance(source, Call) and _is_changes(source.name):
        rows_of = _changes(context, statement, source, parameters, formats, fetch or Fetch())
        return Answer(rows_of, "SELECT {}")
    return Answer(
        _of_rows(await _table(context, statement, parameters), columns, formats), "SELECT {}"
    )


async def _values(
    context: Context, statement: Select, parameters: Sequence[str | None]
) -> list[Scalar]:
    found: list[Scalar] = []
    for item, column in zip(statement.items, describe(statement) or (), strict=True):
        expression = item.expression
        if isinstance(expression, Call):
            values = await _called(context, expression, parameters)
            found.append(values[0] if len(values) == 1 else _record(values, expression))
        elif isinstance(expression, Value):
            found.append(_typed(bind(expression, parameters), column.oid))
    return found


def _record(values: Sequence[Scalar], call: Call) -> str:
    columns = [Column(name, oid) for name, oid in _known(call).columns]
    texts = [encode(value, column, 0) or b"" for value, column in zip(values, columns, strict=True)]
    return f"({b','.join(texts).decode()})"


def _typed(text: str | None, oid: int) -> Scalar:
    if text is None:
        return None
    if oid == BOOL:
        return text == "true"
    if oid == LSN:
        return _lsn(text)
    if oid in {INT4, INT8}:
        if not _fits_in(text, oid):
            raise ServeError("22P02", "invalid input syntax for type integer, or out of its range")
        return int(text)
    return text


def _fits_in(text: str, oid: int) -> bool:
    """Whether a text is a number of a type."""
    if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
        return False
    most = 1 << (31 if oid == INT4 else 63)
    return -most <= int(text) < most


async def _table(
    context: Context, statement: Select, parameters: Sequence[str | None]
) -> list[list[Scalar]]:
    source = statement.source
    assert source is not None
    available = _source_columns(source)
    names = [name for name, _ in available]
    if isinstance(source, Call) and source.name in _FUNCTIONS:
        values = await _called(context, source, parameters)
        rows = [dict(zip(names, values, strict=True))]
    else:
        rows = _view_rows(context, source if isinstance(source, str) else source.name)
    for condition in statement.conditions:
        if condition.column not in names:
            raise ServeError("42703", f'column "{condition.column[:64]}" does not exist')
        wanted = bind(condition.value, parameters)
        column = Column(condition.column, available[names.index(condition.column)][1])
        rows = [
            row for row in rows if _fits(row[condition.column], column, condition.operator, wanted)
        ]
    for name, is_falling in reversed(statement.order):
        key = name
        if _fits_in(name, INT4) and 0 < int(name) <= len(names):
            key = names[int(name) - 1]
        if key not in names:
            raise ServeError("42703", f'column "{name[:64]}" does not exist')
        rows.sort(key=lambda row: (row[key] is None, str(row[key])), reverse=is_falling)
    if statement.limit is not None:
        limit = bind(statement.limit, parameters)
        if limit is not None:
            rows = rows[: _limit(limit)]
    projection = _projection(statement)
    if projection[0][0] < 0:
        return [[len(rows)]]
    return [[row[names[index]] for index, _ in projection] for row in rows]


def _fits(value: Scalar, column: Column, operator: str, wanted: str | None) -> bool:
    if operator == "is-null":
        return value is None
    if operator == "is-not-null":
        return value is not None
    if value is None or wanted is None:
        return False
    if column.oid == BOOL:
        wanted = "t" if wanted.lower() in {"t", "true", "1", "on"} else "f"
    is_equal = encode(value, column, 0) == wanted.encode("utf-8", "backslashreplace")
    return is_equal if operator == "=" else not is_equal


# ---- changes -------------------------------------------------------------------------------


async def _changes(
    context: Context,
    statement: Select,
    call: Call,
    parameters: Sequence[str | None],
    formats: Sequence[int],
    fetch: Fetch,
) -> AsyncGenerator[tuple[bytes | bytearray, int], None]:
    """Rows of pg_logical_slot_peek_changes and its relatives; get confirms after the last one."""
    if statement.conditions or statement.order:
        raise not_served(f"WHERE or ORDER BY with {call.name}")
    is_area = call.name == _AREA
    count = 5 if is_area else 3
    if call.named or len(call.arguments) < count:
        given = (
            "a start LSN, an LSN, a number, a plug-in, NULL"
            if is_area
            else "a slot, an LSN, a number"
        )
        raise ServeError("42883", f"{call.name} takes {given}, and options in pairs")
    values = [bind(value, parameters) for value in call.arguments[:count]]
    options = _options(call.arguments[count:], parameters)
    projection = _projection(statement)
    if is_area:
        batch = await _area(context, values, options)
        async for piece in _pieces(batch, projection, formats, fetch):
            yield piece
        return
    match = _CHANGES.fullmatch(call.name)
    assert match is not None
    slot = context.acquire(_needed(values[0], "the slot"))
    sent = context.sent(slot)
    try:
        include_snapshot = take_include_snapshot(options, is_by_csn=context.is_by_csn)
        batch = _Batch(
            context.feed(),
            start_of(slot),
            slot.name,
            _output(context, slot.plugin, options, None if match[2] else call.name),
            _lsn(values[1]),
            _count(values[2]),
            include_snapshot=include_snapshot,
        )
        try:
            async for piece in _pieces(batch, projection, formats, fetch):
                sent.bytes += len(piece[0])
                yield piece
        finally:
            sent.rows += batch.changes if projection[0][0] >= 0 else 0
        if match[1] == "get":
            slot.confirm(*batch.reached)
    finally:
        await context.release(slot)


def _options(values: Sequence[Value], parameters: Sequence[str | None]) -> dict[str, str | None]:
    """Read options, which stand in pairs, or in arrays of them."""
    found: list[str | None] = []
    for value in values:
        text = bind(value, parameters)
        found += _array(text) if value.type == "text[]" else [text]
    if len(found) % 2:
        raise ServeError("22023", "array must have even number of elements")
    return {
        _needed(name, "the name of an option"): value
        for name, value in zip(found[::2], found[1::2], strict=True)
    }


def take_include_snapshot(options: dict[str, str | None], *, is_by_csn: bool) -> bool:
    """Take the option out of those of a client; the others are the plug-in's.

    Args:
        options: of the client.
        is_by_csn: the landing is in the order of CSNs: between two of them there is no place for a snapshot.

    Raises:
        ServeError: it is neither true nor false, or the rows have no place.
    """
    found = boolean(options, INCLUDE_SNAPSHOT, default=False)
    options.pop(INCLUDE_SNAPSHOT, None)
    if found and is_by_csn:
        raise not_served(f"{INCLUDE_SNAPSHOT} over a landing in the order of CSNs")
    return found


def _output(
    context: Context, plugin: str, options: Mapping[str, str | None], text_function: str | None
) -> Output:
    """Make a plug-in; for a function that shows text, one that writes text."""
    output = context.output_of(plugin, options)
    if text_function is not None and not output.is_text:
        hint = text_function.replace("changes", "binary_changes")
        raise ServeError(
            "0A000",
            f'logical decoding output plugin "{plugin}" produces binary output, but function "{text_function}" '
            "expects textual data",
            hint=f"Use {hint}."
            if text_function != _AREA
            else "Use a plug-in or options with text.",
        )
    return output


async def _area(
    context: Context, values: Sequence[str | None], options: dict[str, str | None]
) -> "_Batch":
    """Transactions that end in a stretch of the log, for pg_logical_get_area_changes."""
    start, upto, number, plugin, path = values
    if path is not None:
        raise not_served(f"{_AREA} of a file of the WAL: write NULL in place of the path, which")
    first, last = _lsn(start), _lsn(upto)
    if first is None:
        raise ServeError("22004", "start_lsn and xlog_dir cannot be null at the same time.")
    if last is not None and last < first:
        raise ServeError("22023", "upto_lsn can not be smaller than start_lsn.")
    limit = options.pop(_DATA_LIMIT, None) or "10"
    if not re.fullmatch(r"[0-9]{1,3}", limit) or int(limit) > _MOST_DATA_GB:
        raise ServeError(
            "22023",
            f'could not parse value "{limit[:64]}" for parameter "{_DATA_LIMIT}"',
            hint=f"Input a number of GB between 0 and {_MOST_DATA_GB}; 0 is no limit.",
        )
    feed = context.feed()
    include_snapshot = take_include_snapshot(options, is_by_csn=context.is_by_csn)
    return _Batch(
        feed,
        await feed.position(first),
        None,
        _output(context, _needed(plugin, "the plug-in"), options, _AREA),
        last,
        None if number == "0" else _count(number),
        int(limit) * _GB,
        include_snapshot=include_snapshot,
    )


async def _pieces(
    batch: "_Batch",
    projection: Sequence[tuple[int, Column]],
    formats: Sequence[int],
    fetch: Fetch,
) -> AsyncGenerator[tuple[bytes | bytearray, int], None]:
    """Rows of the answer in pieces, or their number."""
    is_count = projection[0][0] < 0
    codes = bytes(
        _code(index, column, form_of(formats, at)) for at, (index, column) in enumerate(projection)
    )
    counted = 0
    wanted = Fetch() if is_count else fetch
    async for piece, rows in batch.rows(b"" if is_count else codes, wanted):
        counted += rows
        if not is_count:
            yield piece, rows
    if is_count:
        yield data_row([str(counted).encode()]), 1
    if batch.is_cut:
        problem = ServeError(
            "01000",
            f"decoding ended at {_DATA_LIMIT}, after {Lsn(batch.reached[2])}; more has landed",
            hint=f"Begin again from there, or give a higher {_DATA_LIMIT}.",
        )
        yield warning(problem), 0


def _code(index: int, column: Column, form: int) -> int:
    if index < 0:
        return 0
    if index < 2 and form == 1:
        raise not_served("the binary form of an LSN or XID")
    return 3 if column.oid == BYTEA and form == 0 else index


class _Batch:
    """Transactions up to an LSN or a number of changes, whole transactions only.

    Args:
        feed: of the tables that are shown.
        start: where to begin.
        slot: its name; None where there is none.
        output: writes the messages.
        upto_lsn: no transaction that ends after it; None for no limit.
        upto_n: stop after the transaction that reaches this number of messages; None for no limit.
        most_bytes: stop after a transaction where messages have so many bytes; 0 for no limit.
        include_snapshot: show the rows of snapshots.

    Attributes:
        reached: number of an entry, epoch and LSN of the last transaction that was shown.
        changes: how many were shown.
        is_cut: `most_bytes` was reached, and more has landed.
    """

    def __init__(
        self,
        feed: Feed,
        start: ReadPosition,
        slot: str | None,
        output: Output,
        upto_lsn: int | None,
        upto_n: int | None,
        most_bytes: int = 0,
        *,
        include_snapshot: bool = False,
    ) -> None:
        self._feed = feed
        self._output = output
        self._upto_lsn = upto_lsn
        self._upto_n = upto_n
        self._most_bytes = most_bytes
        self._walk = Walk(feed, start, slot, include_snapshot=include_snapshot)
        self._is_reached = slot is not None and upto_lsn is not None and start.lsn >= upto_lsn
        self.reached = (start.n, start.epoch, start.lsn)
        self.changes = 0
        self.is_cut = False

    async def rows(
        self, codes: bytes, fetch: Fetch
    ) -> AsyncGenerator[tuple[bytes | bytearray, int], None]:
        """Encoded rows, in pieces."""
        if self._is_reached:
            return
        await self._walk.check_start()
        last = await self._feed.end.see()
        counted = size = 0
        while self._walk.n <= last and (found := await self._walk.next()) is not None:
            if found.reached is not None:
                at = found.reached
                if self._upto_lsn is None or at.lsn <= self._upto_lsn:
                    self.reached = (at.n, at.epoch, at.lsn)
                if self._upto_lsn is not None and at.lsn >= self._upto_lsn:
                    return  # an error may wait in the next entry
            if found.block is None:
                continue
            block = found.block
            if self._most_bytes and size >= self._most_bytes and not block.is_continued:
                first_end = int(block.transactions.end_lsn[0])
                self.is_cut = self._upto_lsn is None or first_end <= self._upto_lsn
                return
            written = await self._feed.call(lambda block=block: self._output.write(block))  # type: ignore[misc]
            of_transaction = written.transaction
            ends = block.transactions.end_lsn
            count = len(written.ends)
            stop = count
            is_over = False
            if self._upto_lsn is not None:
                fitting = int(np.searchsorted(ends, np.uint64(self._upto_lsn), "right"))
                if fitting < len(ends):
                    stop = int(np.searchsorted(of_transaction, fitting, "left"))
                    is_over = True
            if self._upto_n is not None and counted + stop >= self._upto_n:
                at_most = max(0, self._upto_n - counted - 1)
                full = int(of_transaction[at_most]) if count else len(ends) - 1
                last_of = int(np.searchsorted(of_transaction, full, "right"))
                is_open = block.is_open and full == len(ends) - 1
                if last_of <= stop and not is_open:
                    stop, is_over = last_of, True
            first = 0
            xids = block.transactions.xid[of_transaction] if count else np.empty(0, np.int64)
            while first < stop:
                begin = int(written.ends[first - 1]) if first else 0
                last_message = int(np.searchsorted(written.ends, begin + _CHUNK, "right"))
                last_message = min(max(last_message, first + 1), stop)
                if fetch.most is not None:
                    last_message = min(last_message, first + fetch.most)
                yield (
                    data_rows(
                        written.content,
                        written.ends,
                        written.start_lsn,
                        xids,
                        codes,
                        first,
                        last_message,
                    ),
                    last_message - first,
                )
                first = last_message
            counted += stop
            shown = int(of_transaction[stop - 1]) if stop else -1
            self.changes += int(block.transactions.row_ends[shown]) if shown >= 0 else 0
            if stop:
                sent = ends[of_transaction[stop - 1]]
                if not (block.is_open and of_transaction[stop - 1] == len(ends) - 1):
                    self.reached = (self._walk.floor, block.epoch, int(sent))
            size += len(written.content)
            if is_over:
                return


def start_of(slot: Slot) -> ReadPosition:
    """Where the walk of a slot begins."""
    return ReadPosition(slot.n, slot.epoch, slot.lsn)
