"""The plug-in wal2json with its format version 2: one JSON object for each change."""

import json
import re
from collections.abc import Sequence
from typing import Final

from gaussdecode.serve.block import Block, Messages, ServedColumn, TableSchema
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.outputs._wal2json import Wal2JsonWriter
from gaussdecode.serve.outputs.options import (
    INVALID_PARAMETER_VALUE,
    Options,
    boolean,
    refuse_others,
)
from gaussdecode.serve.outputs.plan import (
    Planned,
    TablePlan,
    column_oid,
    format_type_with_modifier,
)

_FEATURE_NOT_SUPPORTED: Final = "0A000"
_INVALID_NAME: Final = "42602"
_VERSION: Final = 2
# Booleans of the writer: argument, default.
_WRITTEN: Final = {
    "include-transaction": ("has_transactions", True),
    "include-xids": ("has_xids", False),
    "include-timestamp": ("has_times", False),
    "include-origin": ("has_origins", False),
    "include-lsn": ("has_lsns", False),
    "numeric-data-types-as-string": ("quotes_numbers", False),
}
# Format 2 does not look at them: types always have their modifier.
_IGNORED: Final = ("include-typmod", "pretty-print", "write-in-chunks")
# What a landing does not have.
_NOT_SERVED: Final = ("include-not-null", "include-default", "include-column-positions")
_LISTS: Final = (
    "actions", "add-msg-prefixes", "add-tables", "filter-msg-prefixes", "filter-origins",
    "filter-tables",
)  # fmt: skip
_KNOWN: Final = frozenset(
    {
        *_WRITTEN, *_IGNORED, *_NOT_SERVED, *_LISTS, "format-version", "include-schemas",
        "include-types", "include-type-oids", "include-domain-data-type", "include-pk",
    }
)  # fmt: skip
_ACTIONS: Final = {"insert": b"I", "update": b"U", "delete": b"D", "truncate": b"T"}
_ITEM: Final = re.compile(r"\s*((?:\\.|[^\s,\\])+)\s*(?:(,)|\Z)", re.DOTALL)
_TABLE: Final = re.compile(r"((?:\\.|[^.\\])*)\.((?:\\.|[^\\])*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_NAME: Final = re.compile(r'"([^"]*)"')

TableName = tuple[str | None, str | None]
"""Schema and name; None for every one."""


class Wal2Json(Planned):
    """wal2json, format version 2.

    Other than the server's: times are in UTC; a generated column is missing; the number of an
    origin, and the primary key of a table whose replica identity hides it, are null.

    Args:
        options: of the client.

    Raises:
        ServeError: an option is wrong, or needs what a landing does not have.
    """

    is_text = True

    def __init__(self, options: Options) -> None:
        _check(options)
        self._has_schemas = boolean(options, "include-schemas", default=True)
        self._has_types = boolean(options, "include-types", default=True)
        self._has_oids = boolean(options, "include-type-oids", default=False)
        self._has_bases = boolean(options, "include-domain-data-type", default=False)
        self._has_pk = boolean(options, "include-pk", default=False)
        self._filtered = _tables(options, "filter-tables")
        self._added = _tables(options, "add-tables") if "add-tables" in options else [(None, None)]
        self._objects = Wal2JsonWriter(
            actions=_actions(options),
            added_prefixes=_prefixes(options, "add-msg-prefixes"),
            filtered_prefixes=_prefixes(options, "filter-msg-prefixes"),
            **{
                argument: boolean(options, name, default=default)
                for name, (argument, default) in _WRITTEN.items()
            },
        )
        super().__init__(self._objects, only_local=False, has_messages=True)

    def write(self, block: Block) -> Messages:
        """Write all messages of a block."""
        self._objects.set_origins(block.transactions.origin)
        return super().write(block)

    def plan(self, schema: TableSchema) -> TablePlan:
        """Prepare what is written for a table."""
        name = f',"schema":{_json(schema.schema)}' if self._has_schemas else ""
        name += f',"table":{_json(schema.name)}'
        key = self._key(schema) if self._has_pk else ""
        return TablePlan(
            schema,
            is_wanted=not _is_of(self._filtered, schema) and _is_of(self._added, schema),
            oid=schema.oid,
            heads=lambda *_: (name.encode(), b"", b"", name.encode(), key.encode(), b""),
            prefix=lambda column: f'{self._facts(column)},"value":'.encode(),
        )

    def heartbeat(self, lsn: int, flushed_lsn: int, time_us: int) -> bytes | None:
        """It has none."""
        return None

    def _facts(self, column: ServedColumn) -> str:
        facts = f'{{"name":{_json(column.name)}'
        if self._has_types:
            facts += f',"type":{_json(_type(column, is_base=self._has_bases))}'
        if self._has_oids:
            facts += f',"typeoid":{column_oid(column) or "null"}'
        return facts

    def _key(self, schema: TableSchema) -> str:
        """The primary key; null where the landing does not know it."""
        if schema.identity not in "df" or (schema.identity == "f" and schema.key is None):
            return ',"pk":null'
        key = schema.key or ()
        columns = (f"{self._facts(c)}}}" for c in schema.columns if c.name in key)
        return f',"pk":[{",".join(columns)}]'


def _check(options: Options) -> None:
    refuse_others(options, _KNOWN)
    _check_version(options)
    for name in _IGNORED:
        boolean(options, name, default=False)
    for name in _NOT_SERVED:
        if boolean(options, name, default=False):
            raise _not_served(name)
    if _items(options, "filter-origins"):
        raise _not_served("filter-origins")


def _check_version(options: Options) -> None:
    text = options.get("format-version", "1")
    if text is None:
        return
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", text):
        raise _unread(text, "format-version", INVALID_PARAMETER_VALUE)
    version = int(text)
    for is_wrong, bound in ((version > _VERSION, "2 or lower"), (version < 1, "1 or higher")):
        if is_wrong:
            raise ServeError(
                _FEATURE_NOT_SUPPORTED,
                f"client sent format_version={version} but we only support format {bound}",
            )
    if version != _VERSION:
        raise ServeError(
            _FEATURE_NOT_SUPPORTED,
            "format version 1 of wal2json, its default, is not served",
            hint="Give the option format-version the value 2.",
        )


def _not_served(name: str) -> ServeError:
    return ServeError(
        _FEATURE_NOT_SUPPORTED,
        f'option "{name}" cannot be served: a landing does not have what it shows',
        hint="Leave the option out.",
    )


def _unread(text: str, name: str, state: str) -> ServeError:
    return ServeError(state, f'could not parse value "{text}" for parameter "{name}"')


def _items(options: Options, name: str) -> list[str]:
    """Cut a list at its commas; a backslash keeps a comma or a space in an item."""
    text = options.get(name)
    found: list[str] = []
    at = 0
    while text is not None and (text.strip() or found):
        match = _ITEM.match(text, at)
        if match is None:
            raise _unread(text, name, _INVALID_NAME)
        found.append(match[1])
        at = match.end()
        if not match[2]:
            break
    return found


def _prefixes(options: Options, name: str) -> bytes:
    return b"".join(item.encode() + b"\0" for item in _items(options, name))


def _actions(options: Options) -> bytes:
    if options.get("actions") is None:
        return b"".join(_ACTIONS.values())
    found = b""
    for word in _items(options, "actions"):
        if word not in _ACTIONS:
            raise _unread(word, "actions", INVALID_PARAMETER_VALUE)
        found += _ACTIONS[word]
    return found


def _tables(options: Options, name: str) -> list[TableName]:
    """Tables of a list, as ``schema.table``; a star stands for every one."""
    found: list[TableName] = []
    for item in _items(options, name):
        match = _TABLE.fullmatch(item)
        if match is None:
            raise _unread(options[name] or "", name, _INVALID_NAME)
        schema, table = (
            None if part == "*" else _ESCAPED.sub(r"\1", part) for part in match.groups()
        )
        found.append((schema, table))
    return found


def _is_of(tables: Sequence[TableName], schema: TableSchema) -> bool:
    return any(of in {None, schema.schema} and table in {None, schema.name} for of, table in tables)


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _type(column: ServedColumn, *, is_base: bool) -> str:
    """Spell a type with its modifier; of one quoted name, without the quotes."""
    if column.type_text is not None and not is_base:
        name = column.type_text.removeprefix("public.").removeprefix("pg_catalog.")
    else:
        name = format_type_with_modifier(column)
    quoted = _QUOTED_NAME.fullmatch(name)
    return quoted[1] if quoted else name
