"""Lay out the files of a table: partition columns, and the order of rows.

Read from ``TABLE=COLUMN,days(COLUMN),...`` and checked against the table's columns. Pure; needs no
pyspark.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.schema import TableSchema, match_columns

_UNSORTED: Final = ("list", "struct")
_UNDIVIDED: Final = ("float", "double", "binary")


_COMPUTED: Final = re.compile(r"(years|months|days|hours)\((.+)\)")
_FORMATS: Final = {"years": "%Y", "months": "%Y-%m", "days": "", "hours": "%Y-%m-%d-%H"}
_TYPES: Final = {
    "years": pa.int32(), "months": pa.string(), "days": pa.date32(), "hours": pa.string(),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A partition column: the value of a column, or a unit of time computed from it.

    Attributes:
        column: column of the table.
        unit: ``years``, ``months``, ``days`` or ``hours``; empty for the value itself.
    """

    column: str
    unit: str = ""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read ``column`` or ``days(column)``."""
        match = _COMPUTED.fullmatch(text)
        return cls(text) if match is None else cls(match[2], match[1])

    def __str__(self) -> str:
        return f"{self.unit}({self.column})" if self.unit else self.column

    @property
    def name(self) -> str:
        """Name of the partition column that readers see."""
        return f"{self.column}_{self.unit.removesuffix('s')}" if self.unit else self.column

    def field(self, schema: pa.Schema) -> pa.Field:
        """Field of that column."""
        return pa.field(self.name, _TYPES[self.unit]) if self.unit else schema.field(self.column)

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Partition values of rows; times with a zone are taken in UTC."""
        values = rows.column(self.column)
        if self.unit == "days":
            return values.cast(pa.date32())
        if not self.unit:
            return values
        texts = pc.strftime(values.cast(pa.timestamp("us")), _FORMATS[self.unit])
        return texts.cast(_TYPES[self.unit])


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table's files.

    Attributes:
        partition: partition columns, or texts of `Part`.
        cluster: columns that rows are sorted by.
    """

    partition: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()

    def check(self, table: str, columns: Mapping[str, str]) -> None:
        """Check that a table can have this layout.

        Args:
            table: title of the table.
            columns: Arrow types as text, by column name.

        Raises:
            ConfigError: a column does not exist, or its type is not allowed.
        """
        parts = [Part.from_text(text) for text in self.partition]
        for part in parts:
            if part.unit and not columns.get(part.column, "timestamp").startswith(
                ("timestamp", "date")[: 1 + (part.unit != "hours")]
            ):
                raise ConfigError(
                    f"{table}: {part} needs a column of times: {part.column!r} is {columns[part.column]}"
                )
            if part.unit and part.name in columns:
                raise ConfigError(
                    f"{table} has a column {part.name!r} already: {part} would be another"
                )
        for name in (*(part.column for part in parts), *self.cluster):
            if name not in columns:
                raise ConfigError(
                    f"{table} has no column {name!r} to partition or cluster by; it has: "
                    f"{', '.join(columns)}"
                )
            if columns[name].startswith(_UNSORTED) or (
                columns[name] in _UNDIVIDED and name not in self.cluster
            ):
                raise ConfigError(
                    f"{table}: column {name!r} is of a type ({columns[name]}) that divides or orders no rows here"
                )


def followed(columns: Sequence[str], old: TableSchema, new: TableSchema) -> tuple[str, ...]:
    """Names of columns in a newer version; dropped columns, and those of another type, are left out."""
    called = {before: after for after, before in match_columns(old, new).items()}
    types = {c.name: c.type for c in old.columns}
    now = {c.name: c.type for c in new.columns}
    parts = [(Part.from_text(text), text) for text in columns]
    kept = [(part, called[part.column]) for part, _ in parts if part.column in called]
    return tuple(
        str(dataclasses.replace(part, column=column))
        for part, column in kept
        if now[column] == types[part.column]
    )


PLAIN: Final = Layout()
Layouts = Mapping[str, Layout]


def read_layouts(partition: Sequence[str], cluster: Sequence[str]) -> dict[str, Layout]:
    """Read layout options, each ``TABLE=COLUMN,...``.

    Raises:
        ConfigError: an option has the wrong form.
    """
    found: dict[str, Layout] = {}
    for text in partition:
        table, parts = _split(text, "--partition-by")
        found[table] = Layout(tuple(parts))
    for text in cluster:
        table, parts = _split(text, "--cluster-by")
        found[table] = dataclasses.replace(found.get(table, PLAIN), cluster=tuple(parts))
    return found


def _split(text: str, option: str) -> tuple[str, list[str]]:
    table, _, rest = text.partition("=")
    parts = [part.strip() for part in rest.split(",")]
    if not table or not all(parts) or not parts:
        raise ConfigError(
            f"{option} {text!r}: give TABLE=COLUMN,..., as in public.orders=ordered_on"
        )
    return table, parts


def layouts_by_directory(layouts: Layouts, find: Callable[[str], str]) -> dict[str, Layout]:
    """Layouts by the directory of their table; `find` raises for an unknown title."""
    return {find(title): layout for title, layout in layouts.items()}


def comment(schema: TableSchema, landing: Landing) -> str:
    """The default comment of a table: its source, and the columns that identify a row."""
    key = ", ".join(schema.key) or "none"
    return (
        f"{schema.title} of {', '.join(landing.sources)}, landing {landing.landing_id}; key: {key}"
    )
