"""Compare comments of tables and columns in a database with those in a lake.

Columns match by attribute number if the table is the one that landed. If the table was created again,
or restored elsewhere, they match by true name. Pure; needs no pyspark.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final, Self

from gaussdecode.spark.log.schema import TableSchema

_CUT: Final = "\u2026"
_APART: Final = "\n\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """Comments of a table in the database.

    Attributes:
        oid: OID of the table.
        table: its comment; empty for none.
        names: true names of its columns, by attribute number.
        columns: comments by attribute number; only columns that have one.
    """

    oid: int
    table: str = ""
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    columns: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def shortened(self, letters: int) -> Self:
        """The same comments, cut to this number of characters; at least 1."""
        columns = {number: _cut(text, letters) for number, text in self.columns.items()}
        return dataclasses.replace(self, table=_cut(self.table, letters), columns=columns)


@dataclasses.dataclass(frozen=True, slots=True)
class Comments:
    """Comments of a lake table.

    Attributes:
        table: comment of the table; empty for none.
        columns: comments of all columns, by name; empty for none.
    """

    table: str
    columns: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """Comments of a table that change.

    Attributes:
        table: new comment of the table; None if unchanged.
        columns: new comments of changed columns, by name; empty to remove one.
    """

    table: str | None = None
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.table is not None or bool(self.columns)


NOTHING_CHANGED: Final = Changed()


def wanted(schema: TableSchema, here: Described, where_from: str) -> Comments:
    """The comments that a lake table should have.

    Args:
        schema: schema of the table in the lake.
        here: comments in the database now.
        where_from: sentence on the table's origin, which follows its comment.
    """
    by_name = {name: here.columns.get(number, "") for number, name in here.names.items()}
    columns = {}
    for column in schema.columns:
        number = column.number or 0  # below 0 somebody has said which column it is
        if schema.oid == here.oid and number > 0:
            columns[column.name] = here.columns.get(number, "")
        else:
            columns[column.name] = by_name.get(column.true_name or column.name, "")
    return Comments(before(where_from, here.table), columns)


def before(where_from: str, text: str) -> str:
    """A table's comment followed by the sentence on its origin."""
    return f"{text}{_APART}{where_from}" if text else where_from


def kept(where_from: str, held: str) -> str:
    """The comment of a rewritten table: the old comment with a new sentence on its origin."""
    text, apart, _ = held.rpartition(_APART)
    return before(where_from, text if apart else "")


def is_of(landing_id: str, held: str) -> bool:
    """Whether a table's comment ends with the sentence on its origin."""
    return f", landing {landing_id}; key: " in held.rpartition(_APART)[2]


def difference(held: Comments, to_be: Comments) -> Changed:
    """The changes that turn one set of comments into another; columns in both only."""
    columns = {
        name: text
        for name, text in to_be.columns.items()
        if name in held.columns and held.columns[name] != text
    }
    return Changed(None if held.table == to_be.table else to_be.table, columns)


def removed(changed: Changed) -> Collection[str]:
    """Columns that lose their comment."""
    return [name for name, text in changed.columns.items() if not text]


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + _CUT
