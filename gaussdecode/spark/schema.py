"""Schemas of a table, and how rows of one version become rows of another.

A column of one version is the column of another by its attribute number, and by nothing else:
names change hands. Where a number is unknown, `match_columns` refuses; the plan stops a table
before that. Given Arrow tables; promises that a value that does not fit its new type is kept as
text in ``gd_raw``.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.errors import LandingError
from gaussdecode.model.title import table_title

RAW: Final = "gd_raw"
UNCHANGED: Final = "gd_unchanged"
SOURCE: Final = "gd_source"
OLD: Final = "gd_old"
OLD_PREFIX: Final = "old."
RAW_TYPE: Final = pa.map_(pa.string(), pa.string())
NAMES_TYPE: Final = pa.list_(pa.field("element", pa.string(), nullable=False))
_INTERVAL: Final = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())])
_TYPES: Final[dict[str, pa.DataType]] = {
    str(of): of
    for of in (
        pa.bool_(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"),
        pa.string(),
        pa.binary(),
        _INTERVAL,
    )
}
_DECIMAL: Final = re.compile(r"decimal128\((\d+), (\d+)\)")
_LIST: Final = re.compile(r"list<element: (.+)>")


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column of one version.

    Attributes:
        name: in the files.
        type: Arrow type, spelled as Arrow does.
        number: attribute number; below 0 where somebody said which column it is; None where
            nobody knows.
        identity: its old value is sent.
        true_name: on the server.
    """

    name: str
    type: str
    number: int | None = None
    identity: bool = False
    true_name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table.

    Attributes:
        schema_id: of its file.
        title: ``schema.name`` as the server says.
        name: without the schema.
        oid: of the table; 0 where unknown.
        key: names (in the files) of the columns that identify a row; empty for a multiset.
        columns: in the order of the table.
        unknown: why the number of a column is unknown; None where all are known.
        has_source: its rows say their source in ``gd_source``: the landing has several.
    """

    schema_id: str
    title: str
    name: str
    oid: int
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    unknown: str | None = None
    has_source: bool = False

    @classmethod
    def from_record(
        cls,
        schema_id: str,
        record: dict[str, Any],  # Any: JSON
        numbers: Mapping[str, int] | None = None,
    ) -> Self:
        """Read a schema file.

        Args:
            schema_id: its name.
            record: its content.
            numbers: by name in the files, where somebody said which columns they are.
        """
        said = numbers or {}
        landed = {column["name"]: column["landed"] for column in record["columns"]}
        columns = tuple(
            Column(
                column["landed"],
                column["arrow"],
                said.get(column["landed"], column.get("attribute_number")),
                bool(column["identity"]),
                column["name"],
            )
            for column in record["columns"]
        )
        key = tuple(landed[name] for name in record["key"] or ())
        title = table_title(record["schema"], record["name"])
        unknown = None
        if any(column.number is None for column in columns):
            unknown = record.get("unknown") or "its schema file has no numbers of columns"
        return cls(
            schema_id,
            title,
            record["name"],
            int(record["oid"]),
            key,
            columns,
            unknown,
            bool(record.get("has_source", False)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns in the files."""
        return tuple(column.name for column in self.columns)

    def arrow(self) -> pa.Schema:
        """Arrow schema of the columns alone."""
        return pa.schema([pa.field(c.name, parse_type(c.type)) for c in self.columns])

    def key_shape(self) -> tuple[tuple[str, str], ...]:
        """What rows are told apart by: names and types; all columns of a multiset."""
        names = self.key or self.names
        return tuple((c.name, c.type) for c in self.columns if c.name in names)


@functools.cache
def parse_type(text: str) -> pa.DataType:
    """Read the spelling of an Arrow type that lands.

    Raises:
        LandingError: no type of a landing is spelled so.
    """
    if text in _TYPES:
        return _TYPES[text]
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    match = _LIST.fullmatch(text)
    if match is not None:
        return pa.list_(pa.field("element", parse_type(match[1])))
    raise LandingError(f"a schema file names the type {text!r}, which this program does not know")


class UnknownColumnsError(LandingError):
    """Nobody knows which column of one version is which of another."""


def is_same_table(old: TableSchema, new: TableSchema) -> bool:
    """Whether two versions may be of one table, and not of one that was made anew."""
    return not old.oid or not new.oid or old.oid == new.oid


def why_unknown(old: TableSchema, new: TableSchema) -> str | None:
    """Why columns of two versions cannot be matched; None when they can."""
    if old.schema_id == new.schema_id or not is_same_table(old, new):
        return None
    return old.unknown or new.unknown


def match_columns(old: TableSchema, new: TableSchema) -> dict[str, str]:
    """Find for each column of `new` the one of `old` that it was; names in the files.

    Columns of a table that was made anew are matched by name, for who reads both as one.

    Args:
        old: one version.
        new: another one.

    Raises:
        UnknownColumnsError: nobody knows.
    """
    if old.schema_id == new.schema_id:
        return {name: name for name in new.names}
    if not is_same_table(old, new):
        names = {column.true_name or column.name: column.name for column in old.columns}
        pairs = ((c.name, names.get(c.true_name or c.name)) for c in new.columns)
        return {name: before for name, before in pairs if before is not None}
    why = why_unknown(old, new)
    if why is not None:
        raise UnknownColumnsError(
            f"{new.title}: which columns of version {old.schema_id} are which of version "
            f"{new.schema_id} is unknown: {why}. Say it with: gaussdecode spark columns LANDING "
            f"TARGET {new.title} --versions {old.schema_id}:{new.schema_id}"
        )
    numbers = {column.number: column.name for column in old.columns}
    return {c.name: numbers[c.number] for c in new.columns if c.number in numbers}


def reads_as(old: TableSchema, new: TableSchema) -> bool:
    """Whether files of `old` give the right rows when they are read by the names of `new`."""
    matched = match_columns(old, new)
    types = {c.name: c.type for c in old.columns}
    return all(
        matched.get(c.name) == c.name and types[c.name] == c.type
        if c.name in types
        else c.name not in matched
        for c in new.columns
    )


def renamed_columns(old: TableSchema, new: TableSchema) -> dict[str, str] | None:
    """What columns of `old` are called in `new`, of those whose name is another one.

    None where more has changed than names and added columns, or where a name changes hands.
    """
    matched = match_columns(old, new)
    types = {column.name: column.type for column in old.columns}
    renamed = {before: after for after, before in matched.items() if before != after}
    stays = all(types[matched[c.name]] == c.type for c in new.columns if c.name in matched)
    is_taken = any(c.name in types and matched.get(c.name) != c.name for c in new.columns)
    if not stays or is_taken or set(old.names) - set(matched.values()):
        return None
    return renamed


def conform(rows: pa.Table, old: TableSchema, new: TableSchema) -> pa.Table:
    """Give rows of one version as rows of another.

    Args:
        rows: columns of `old`, and any of ours; ``gd_raw``, ``gd_unchanged`` and ``gd_old`` are
            translated with them, all others pass.
        old: version of the rows.
        new: version wanted.
    """
    if old.schema_id == new.schema_id and set(new.names) <= set(rows.column_names):
        return rows
    matched = match_columns(old, new)
    casts: dict[str, tuple[pa.ChunkedArray, pa.Array]] = {}
    columns: dict[str, Any] = {
        name: rows.column(name)
        for name in rows.column_names
        if name.startswith("gd_") and name not in {RAW, UNCHANGED, OLD}
    }
    for column in new.columns:
        of = parse_type(column.type)
        source = matched.get(column.name)
        if source is None or source not in rows.column_names:
            columns[column.name] = pa.nulls(rows.num_rows, of)
            continue
        columns[column.name] = _converted(rows.column(source), of, column.name, casts)
    back = {before: after for after, before in matched.items()}
    columns[UNCHANGED] = _rename_list(rows, back)
    if OLD in rows.column_names:
        columns[OLD] = _conform_old(rows.column(OLD), new, matched, casts)
    columns[RAW] = _conform_raw(rows, back, casts)
    return pa.table(columns)


def _converted(
    values: pa.ChunkedArray,
    of: pa.DataType,
    name: str,
    casts: dict[str, tuple[pa.ChunkedArray, pa.Array]],
) -> pa.ChunkedArray:
    """Cast a column; where a value does not fit, leave NULL and note it in `casts`."""
    if values.type == of:
        return values
    try:
        return pc.cast(values, of)
    except pa.ArrowException:
        pass
    result = pa.chunked_array([_one_by_one(values.combine_chunks(), of)], of)
    lost = pc.and_(pc.is_valid(values), pc.is_null(result))
    casts[name] = (values, lost.combine_chunks() if isinstance(lost, pa.ChunkedArray) else lost)
    return result


def _one_by_one(values: pa.Array, of: pa.DataType) -> pa.Array:
    converted = []
    for index in range(len(values)):
        try:
            converted.append(pc.cast(values.slice(index, 1), of)[0])
        except pa.ArrowException:
            converted.append(pa.scalar(None, of))
    return pa.array([scalar.as_py() for scalar in converted], of)


def text_of(value: Any) -> str:  # Any: whatever pyarrow gives
    """Spell a value that its new type cannot hold."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return str(value)


def _rename_list(rows: pa.Table, back: dict[str, str]) -> pa.ChunkedArray | pa.Array:
    if UNCHANGED not in rows.column_names:
        return pa.nulls(rows.num_rows, NAMES_TYPE)
    column = rows.column(UNCHANGED)
    if column.null_count == len(column):
        return pa.nulls(rows.num_rows, NAMES_TYPE)
    lists = [
        None if names is None else [back[name] for name in names if name in back] or None
        for names in column.to_pylist()
    ]
    return pa.array(lists, NAMES_TYPE)


def _conform_old(
    old: pa.ChunkedArray,
    new: TableSchema,
    matched: dict[str, str],
    casts: dict[str, tuple[pa.ChunkedArray, pa.Array]],
) -> pa.Array:
    values = old.combine_chunks()
    fields, arrays = [], []
    present = {field.name for field in old.type}
    for column in new.columns:
        source = matched.get(column.name)
        if source not in present:
            continue
        of = parse_type(column.type)
        child = pa.chunked_array([pc.struct_field(values, source)])
        fields.append(pa.field(column.name, of))
        arrays.append(_converted(child, of, OLD_PREFIX + column.name, casts).combine_chunks())
    if not fields:
        return pa.nulls(len(values), pa.struct([]))
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(values))


def _conform_raw(
    rows: pa.Table, back: dict[str, str], casts: dict[str, tuple[pa.ChunkedArray, pa.Array]]
) -> pa.Array:
    given = rows.column(RAW) if RAW in rows.column_names else pa.nulls(rows.num_rows, RAW_TYPE)
    if given.null_count == rows.num_rows and not casts:
        return pa.nulls(rows.num_rows, RAW_TYPE)
    rename = _raw_renamer(back)
    maps = [
        None if pairs is None else dict(p for p in map(rename, pairs) if p is not None)
        for pairs in given.to_pylist()
    ]
    for name, (values, lost) in casts.items():
        for index in pc.indices_nonzero(lost).to_pylist():
            held = maps[index] = dict(maps[index] or {})
            held[name] = text_of(values[index].as_py())
    return pa.array([None if not m else list(m.items()) for m in maps], RAW_TYPE)


def _raw_renamer(back: dict[str, str]) -> Callable[[tuple[str, str]], tuple[str, str] | None]:
    def rename(pair: tuple[str, str]) -> tuple[str, str] | None:
        key, text = pair
        if key in back:
            return back[key], text
        name = key.removeprefix(OLD_PREFIX)
        return (OLD_PREFIX + back[name], text) if key != name and name in back else None

    return rename


def missing_columns(names: Sequence[str], rows: pa.Table) -> list[str]:
    """Names that are not there."""
    return [name for name in names if name not in rows.column_names]
