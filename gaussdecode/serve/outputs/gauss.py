"""The output of GaussDB and openGauss: parallel styles, and the text of the serial plug-ins."""

import json
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from gaussdecode.serve.block import Block, Messages, ServedColumn, TableSchema
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.outputs import _gauss
from gaussdecode.serve.outputs._gauss import GaussWriter
from gaussdecode.serve.outputs.keywords import OPENGAUSS, quote_identifier, quote_qualified
from gaussdecode.serve.outputs.options import INVALID_PARAMETER_VALUE, Options, parse_bool
from gaussdecode.serve.outputs.plan import (
    EXACT,
    ROUNDED,
    SKIP_ROWS,
    Columns,
    Planned,
    TablePlan,
    column_oid,
    format_type,
)
from gaussdecode.settings.option import Option, Section
from gaussdecode.settings.options import OPTIONS
from gaussdecode.settings.types import Boolean, Choice, Integer
from gaussdecode.source.relations import WhiteList

_FEATURE_NOT_SUPPORTED: Final = "0A000"
_SERIAL: Final = {"mppdb_decoding": b"s", "sql_decoding": b"q"}
_PARALLEL: Final = {
    "parallel_binary_decoding": b"b",
    "parallel_json_decoding": b"j",
    "parallel_text_decoding": b"t",
}
_SQL_OPTIONS: Final = frozenset(
    {"parallel-decode-num", "include-xids", "include-timestamp", "skip-empty-xacts", "only-local"}
)
_BY_NAME: Final = {option.name: option for option in OPTIONS}
_TIME: Final = re.compile(r"\s*([0-9]{1,10})\s*(ms|s|min|h|d)\s*")
_MILLISECONDS: Final = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
# What a landing does not have.
_NOT_SERVED: Final = ("enable-ddl-decoding", "exclude-userids", "start-position")


class GaussOptions:
    """Options of a client, read as the server reads them.

    Args:
        options: of the client.
        plugin: of the slot.

    Raises:
        ServeError: one is unknown in this mode, or its value is wrong.
    """

    def __init__(self, options: Options, plugin: str) -> None:
        number = options.get("parallel-decode-num")
        self.is_parallel = plugin in _PARALLEL or (
            number is not None and _read(_BY_NAME["parallel-decode-num"], number) != 1
        )
        other = Section.SERIAL if self.is_parallel else Section.PARALLEL
        self._values: dict[str, object] = {}
        for name, text in options.items():
            option = _BY_NAME.get(name)
            if (
                option is None
                or option.section is other
                or (plugin == "sql_decoding" and not self.is_parallel and name not in _SQL_OPTIONS)
            ):
                given = "(null)" if text is None else text
                raise ServeError(INVALID_PARAMETER_VALUE, f'option "{name}" = "{given}" is unknown')
            if text is not None:
                self._values[name] = _read(option, text)
            elif name == "include-timestamp":
                self._values[name] = False
        for name in options:
            if _BY_NAME[name].section is Section.DISTRIBUTED and not self["output-order"]:
                raise ServeError(
                    INVALID_PARAMETER_VALUE,
                    f'option "{name}" cannot be set when output-order is 0',
                )
        for name in _NOT_SERVED:
            if self._values.get(name):
                raise ServeError(
                    _FEATURE_NOT_SUPPORTED, f'option "{name}" cannot be served from a landing'
                )

    def __getitem__(self, name: str) -> object:
        """What the client gave, else what the product takes."""
        option = _BY_NAME[name]
        if name in self._values:
            return self._values[name]
        has_two = self.is_parallel and option.default_parallel is not None
        return option.default_parallel if has_two else option.default


def _read(option: Option, text: str) -> object:
    of = option.type
    wrong = ServeError(
        INVALID_PARAMETER_VALUE, f'could not parse value "{text}" for parameter "{option.name}"'
    )
    if isinstance(of, Boolean):
        value = parse_bool(text)
        if value is None or (of.only is not None and value is not of.only):
            raise wrong
        return value
    if option.unit == "ms" and (match := _TIME.fullmatch(text)):
        text = str(int(match[1]) * _MILLISECONDS[match[2]])
    if isinstance(of, Integer):
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) or not (
            of.minimum <= int(text) <= of.maximum
        ):
            wrong.hint = f"Input a number between {of.minimum} and {of.maximum}."
            raise wrong
        if of.power_of_two and int(text).bit_count() != 1:
            raise ServeError(
                INVALID_PARAMETER_VALUE, f'option "{option.name}" should be a power of two'
            )
        return int(text)
    if isinstance(of, Choice):
        if text[:1] not in of.words:
            raise wrong
        return text[:1]
    if option.name == "white-table-list":
        return _white_list(text, wrong)
    try:
        return of.read(text)
    except ValueError:
        raise wrong from None


def _white_list(text: str, wrong: ServeError) -> WhiteList:
    """Split at commas, then each item at its first point; space around them does not count."""
    items = []
    for item in text.split(",") if text.strip() else ():
        schema, point, table = item.strip().partition(".")
        if not point or not schema or not table:
            raise wrong
        items.append((schema, table))
    return WhiteList(items)


class GaussOutput(Planned):
    """A plug-in of GaussDB with the options of one client.

    Other than a server's: numbers have the digits of openGauss up to 6.0; times with a zone are in
    UTC; BEGIN and the end of a batch are as a server has them whose timer sends each block. The
    parallel styles have no TRUNCATE, as the server's. In style b a column is missing whose value was
    not sent and is not known; the other styles have ``unchanged-toast-datum``.

    Args:
        plugin: name of the slot's plug-in.
        options: of the client.
        begin_has_xid: BEGIN of a parallel style has the transaction's id, as in openGauss from 6.0 on.

    Raises:
        ServeError: an option is wrong.
    """

    is_text: bool

    def __init__(self, plugin: str, options: Options, *, begin_has_xid: bool = False) -> None:
        read = GaussOptions(options, plugin)
        style = _SERIAL.get(plugin, b"")
        if read.is_parallel:
            asked = read["decode-style"] if "decode-style" in options else None
            style = str(asked).encode() if asked else _PARALLEL.get(plugin, b"b")
        self._style = style
        self.has_unchanged = style != b"b"
        self.is_text = style != b"b" and not (read.is_parallel and read["sending-batch"])
        self._batch = int(str(read["sending-batch"])) if read.is_parallel else 0
        self._has_heartbeat = bool(read["enable-heartbeat"])
        self._has_users = bool(read["include-user"])
        tables = read["white-table-list"]
        self._tables = tables if isinstance(tables, WhiteList) else WhiteList()
        users = read["exclude-users"]
        self._excluded = frozenset(str(users).split(",")) if users else frozenset()
        self._gauss = GaussWriter(
            style=style,
            has_xids=bool(read["include-xids"]),
            begin_has_xid=begin_has_xid,
            has_times=bool(read["include-timestamp"]),
            has_users=self._has_users,
            has_origins=bool(read["include-originid"]),
            batch=self._batch,
            is_by_csn=bool(read["output-order"]) and read.is_parallel,
            is_lazy=bool(read["skip-empty-xacts"]),
        )
        super().__init__(self._gauss, only_local=bool(read["only-local"]), skip=SKIP_ROWS)

    def write(self, block: Block) -> Messages:
        """Write all messages of a block."""
        if self._has_users:
            self._gauss.set_users(block.transactions.user)
        return super().write(block)

    def _skipped(self, block: Block) -> npt.NDArray[np.uint8]:
        skipped = super()._skipped(block)
        if self._excluded:
            skipped[[user in self._excluded for user in block.transactions.user]] = SKIP_ROWS
        return skipped

    def plan(self, schema: TableSchema) -> TablePlan:
        """Prepare what is written for a table."""
        heads, prefix = _FORMS[self._style]
        return TablePlan(
            schema,
            is_wanted=self._tables.allows(schema.schema, schema.name),
            oid=schema.oid,
            heads=lambda new, old: heads(schema, new, old),
            prefix=prefix,
            digits=ROUNDED if self._style == b"q" else EXACT,
        )

    def heartbeat(self, lsn: int, flushed_lsn: int, time_us: int) -> bytes | None:
        """Write a heartbeat, if they are asked for: its time is in milliseconds."""
        if not self._has_heartbeat:
            return None
        time_ms = time_us // 1000
        if self._style == b"b":
            letter = _gauss.HEARTBEAT_LETTER
            return struct.pack(">IQcQQqc", 33, lsn, letter, lsn, flushed_lsn, time_ms, _gauss.LAST)
        shown = (f"{of >> 32:X}/{of & 0xFFFFFFFF:X}" for of in (lsn, flushed_lsn))
        text = f"{_gauss.HEARTBEAT} {' '.join(shown)} {time_ms}".encode()
        return struct.pack(">IQ", len(text) + 8, lsn) + text + bytes(4) if self._batch else text


def _name(column: ServedColumn) -> str:
    return quote_identifier(column.name, OPENGAUSS)


def _type(column: ServedColumn) -> str:
    name = format_type(column)
    return "text" if name == "clob" else name


def _counted(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def _binary_heads(schema: TableSchema, _new: Columns, _old: Columns) -> tuple[bytes, ...]:
    return (_counted(schema.schema) + _counted(schema.name), b"", b"", b"", b"", b"")


def _binary_prefix(column: ServedColumn) -> bytes:
    return _counted(_name(column)) + struct.pack(">I", column_oid(column))


def _text_heads(schema: TableSchema, _new: Columns, _old: Columns) -> tuple[bytes, ...]:
    table = f"{_gauss.TABLE}{schema.schema} {schema.name}"
    words = (_gauss.INSERT, _gauss.UPDATE, _gauss.DELETE)
    return (
        *(f"{table}{word}".encode() for word in words),
        b"", _gauss.OLD_KEY.encode(), _gauss.NEW_TUPLE.encode(),
    )  # fmt: skip


def _text_prefix(column: ServedColumn) -> bytes:
    return f" {_name(column)}[{_type(column)}]:".encode()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _json_heads(schema: TableSchema, new: Columns, old: Columns) -> tuple[bytes, ...]:
    table = quote_qualified(schema.schema, schema.name, OPENGAUSS)

    begin, operation, *words = _gauss.OF_JSON
    insert, update, delete = _gauss.JSON_OPERATIONS

    def row(word: str, columns: Columns) -> bytes:
        return f"{begin}{_compact(table)}{operation}{word}{keys(words[:3], columns)}".encode()

    def keys(words: Sequence[str], columns: Columns) -> str:
        names, types, values = words
        shown = _items(map(_name, columns)), _items(map(_type, columns))
        return f"{names}{shown[0]}{types}{shown[1]}{values}"

    return (
        row(insert, new), row(update, new), row(delete, ()), table.encode(),
        f"]{keys(words[3:], old)}".encode(), f"]{keys(words[3:], ())}".encode(),
    )  # fmt: skip


def _items(texts: Iterable[str]) -> str:
    """The items of a JSON array, and its end."""
    return _compact(list(texts))[1:]


def _no_prefix(_column: ServedColumn) -> bytes:
    return b""


def _sql_heads(schema: TableSchema, _new: Columns, _old: Columns) -> tuple[bytes, ...]:
    table = quote_qualified(schema.schema, schema.name, OPENGAUSS)
    insert, values, delete, where, _ = _gauss.OF_SQL
    return (
        f"{insert}{table}{values}".encode(), b"", f"{delete}{table}{where}".encode(),
        table.encode(), b"", b"",
    )  # fmt: skip


def _sql_prefix(column: ServedColumn) -> bytes:
    return f"{_name(column)}{_gauss.OF_SQL[-1]}".encode()


_Heads = Callable[[TableSchema, Columns, Columns], tuple[bytes, ...]]
_FORMS: Final[dict[bytes, tuple[_Heads, Callable[[ServedColumn], bytes]]]] = {
    b"b": (_binary_heads, _binary_prefix),
    b"t": (_text_heads, _text_prefix),
    b"j": (_json_heads, _no_prefix),
    b"s": (_json_heads, _no_prefix),
    b"q": (_sql_heads, _sql_prefix),
}
PLUGINS: Final = (*_PARALLEL, *_SERIAL)
