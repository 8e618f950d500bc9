"""Describe the schema versions of a table, and match their columns.

Columns of two versions are the same if they have the same attribute number. Names do not count: a name
can pass from one column to another. If a number is unknown, `match_columns` refuses; the plan stops the
table before that. `conversion` converts rows.

Each of several sources has its own numbers. A joint schema (`source_schemas`) has one version of each
source as its parts; between these and the joint schema, columns match by true name.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Final, Self

import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.model.retype import is_exact
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
        name: name in the files.
        type: Arrow type, as Arrow spells it.
        number: attribute number; below 0 if an operator assigned it; None if unknown.
        identity: whether its old value is sent.
        true_name: name on the server.
        server_type: type as the server spells it, without modifier; empty if unknown.
        modifier: type modifier; -1 for none.
        constant: text of the value in rows older than the column; None for NULL.
        type_oid: type OID on the server; 0 if unknown.
    """

    name: str
    type: str
    number: int | None = None
    identity: bool = False
    true_name: str = ""
    server_type: str = ""
    modifier: int = -1
    constant: str | None = None
    type_oid: int = 0

    @property
    def spelled(self) -> str:
        """Its type, for messages."""
        shown = self.server_type or self.type
        return shown if self.modifier < 0 else f"{shown} (modifier {self.modifier})"


@dataclasses.dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table.

    Attributes:
        schema_id: id of its schema file.
        title: ``schema.name`` as on the server.
        name: table name without the schema.
        oid: OID of the table; 0 if unknown.
        key: names (in the files) of the columns that identify a row; empty for a multiset.
        columns: columns in table order.
        unknown: why the number of a column is unknown; None if all are known.
        has_source: whether rows name their source in ``gd_source``: the landing has several
            sources.
        source: the source, if there are several; None for a joint schema.
        parts: for a joint schema, the version of each source.
    """

    schema_id: str
    title: str
    name: str
    oid: int
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    unknown: str | None = None
    has_source: bool = False
    source: str | None = None
    parts: tuple["TableSchema", ...] = ()

    @classmethod
    def from_record(
        cls,
        schema_id: str,
        record: dict[str, Any],  # Any: JSON
        numbers: Mapping[str, int] | None = None,
        parts: tuple["TableSchema", ...] = (),
    ) -> Self:
        """Read a schema file.

        Args:
            schema_id: name of the schema file.
            record: content of the schema file.
            numbers: attribute numbers that an operator assigned, by name in the files.
            parts: parts of a joint schema.
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
                column.get("type", ""),
                int(column.get("type_modifier", -1)),
                column.get("constant"),
                int(column.get("type_oid", 0)),
            )
            for column in record["columns"]
        )
        key = tuple(landed[name] for name in record["key"] or ())
        title = table_title(record["schema"], record["name"])
        unknown = None
        if not parts and any(column.number is None for column in columns):
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
            record.get("source"),
            parts,
        )

    def of(self, source: str | None) -> "TableSchema | None":
        """The version of one of several sources; None if it has none."""
        return next((part for part in self.parts or (self,) if part.source == source), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns in the files."""
        return tuple(column.name for column in self.columns)

    def arrow(self) -> pa.Schema:
        """Arrow schema of the table's own columns."""
        return pa.schema([pa.field(c.name, parse_type(c.type)) for c in self.columns])

    def key_shape(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the columns that tell rows apart; all columns of a multiset."""
        names = self.key or self.names
        return tuple((c.name, c.type) for c in self.columns if c.name in names)


@functools.cache
def parse_type(text: str) -> pa.DataType:
    """Parse the name of an Arrow type that lands.

    Raises:
        LandingError: no type of a landing has this name.
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
    """The columns of two versions cannot be matched."""


class MixedColumnsError(LandingError):
    """The sources disagree on how the columns of two schemas match."""


def is_same_table(old: TableSchema, new: TableSchema) -> bool:
    """Whether two versions may be of one table, and not of a table that was created again."""
    return not old.oid or not new.oid or old.oid == new.oid


def why_unknown(old: TableSchema, new: TableSchema) -> str | None:
    """Why columns of two versions cannot be matched; None when they can."""
    if old.schema_id == new.schema_id or not is_same_table(old, new):
        return None
    return old.unknown or new.unknown


def match_columns(old: TableSchema, new: TableSchema) -> dict[str, str]:
    """Match each column of `new` with its column of `old`; names in the files.

    Columns of a table that was created again are matched by name, for readers that read both as one.

    Args:
        old: one version.
        new: another one.

    Raises:
        UnknownColumnsError: the columns cannot be matched.
        MixedColumnsError: two joint schemas, and the sources disagree.
    """
    if old.schema_id == new.schema_id:
        return {name: name for name in new.names}
    if old.parts or new.parts:
        return _match_over_sources(old, new)
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


def why_inexact(old: TableSchema, new: TableSchema) -> str | None:
    """Name a column whose older values are unknown under a new version; None if there is none."""
    if old.parts or new.parts:
        return next(filter(None, (why_inexact(*of) for of in _same_parts(old, new))), None)
    if old.schema_id == new.schema_id or not is_same_table(old, new):
        return None
    columns = {column.name: column for column in old.columns}
    matched = match_columns(old, new)
    for column in new.columns:
        before = columns.get(matched.get(column.name, ""))
        if before is not None and not is_exact_change(before, column):
            return (
                f"the type of column {column.true_name or column.name} was changed from "
                f"{before.spelled} to {column.spelled}, and the server's conversion of older values is unknown"
            )
    return None


def is_exact_change(old: Column, new: Column) -> bool:
    """Whether the older values of a column are known under its new type."""
    if old.type_oid and (old.type_oid, old.modifier) == (new.type_oid, new.modifier):
        return True  # a type that was renamed
    if not (old.server_type and new.server_type):
        return old.type == new.type
    return is_exact((old.server_type, old.modifier), (new.server_type, new.modifier))


def _same_parts(old: TableSchema, new: TableSchema) -> list[tuple[TableSchema, TableSchema]]:
    """Versions, before and after, of the sources that have both."""
    pairs = ((part, new.of(part.source)) for part in old.parts or (old,))
    return [(before, after) for before, after in pairs if after is not None]


def ways_by_source(
    old: TableSchema, new: TableSchema
) -> dict[str | None, list[TableSchema]] | None:
    """The versions through which rows of each source are converted to another schema.

    None if they are not needed: for two versions of one source, and for joint schemas whose columns
    changed in the same way on all sources.
    """
    if not (old.parts or new.parts):
        return None
    pairs = _same_parts(old, new)
    try:
        match_columns(old, new)
    except MixedColumnsError:
        pass
    else:
        if not (why_inexact(old, new) or fills_constants(old, new)):
            return None
    return {before.source: [old, before, after, new] for before, after in pairs}


def _match_over_sources(old: TableSchema, new: TableSchema) -> dict[str, str]:
    both = [part.source for part in old.parts or (old,) if new.of(part.source) is not None]
    found = {source: _match_on(source, old, new) for source in both}
    matched: dict[str, str] = {}
    for name in new.names:
        names = {of[name] for of in found.values() if name in of}
        if not names:
            continue
        before = names.pop()
        # Rows of a source that never had the column have NULL there, as they should.
        others = [source for source, of in found.items() if name not in of]
        if names or any(before in _true_names(old, old.of(source)) for source in others):
            raise MixedColumnsError(f"{new.title}: which column {name!r} was differs by source")
        matched[name] = before
    return matched


def _match_on(source: str | None, old: TableSchema, new: TableSchema) -> dict[str, str]:
    """`match_columns` for one of several sources."""
    before, after = old.of(source), new.of(source)
    if before is None or after is None:
        return {}
    of_old, of_new = _true_names(old, before), _true_names(new, after)
    wanted = {part: name for name, part in of_new.items()}
    held = {part: name for name, part in of_old.items()}
    matched = match_columns(before, after)
    return {
        wanted[name]: held[was] for name, was in matched.items() if name in wanted and was in held
    }


def _true_names(schema: TableSchema, part: TableSchema | None) -> dict[str, str]:
    """Columns that a schema and one of its parts share: their names in both."""
    names = {} if part is None else {column.true_name: column.name for column in part.columns}
    return {c.name: names[c.true_name] for c in schema.columns if c.true_name in names}


def reads_as(old: TableSchema, new: TableSchema) -> bool:
    """Whether reading files of `old` by the column names of `new` gives the right rows."""
    matched = match_columns(old, new)
    types = {c.name: c.type for c in old.columns}
    return all(
        matched.get(c.name) == c.name and types[c.name] == c.type
        if c.name in types
        else c.name not in matched and c.constant is None
        for c in new.columns
    )


def fills_constants(old: TableSchema, new: TableSchema) -> bool:
    """Whether rows of an older version get the constant of an added column."""
    if old.parts or new.parts:
        return any(fills_constants(*of) for of in _same_parts(old, new))
    matched = match_columns(old, new)
    added = (column for column in new.columns if column.name not in matched)
    return any(is_added(column, old, new) for column in added)


def is_added(column: Column, old: TableSchema, new: TableSchema) -> bool:
    """Whether rows of an older version predate an added column, and get its constant."""
    numbers = [of.number for of in old.columns]
    return (
        column.constant is not None
        and column.number is not None
        and is_same_table(old, new)
        and all(number is not None and number < column.number for number in numbers)
    )
