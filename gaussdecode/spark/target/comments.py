"""Comments of tables and columns: those a database has, those a lake has, and what differs.

Columns are the same by their attribute number where the table is the one that landed, as everywhere; only
where it was made anew, or restored elsewhere, by their true name. Pure; needs no pyspark.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final, Self

from gaussdecode.spark.log.schema import TableSchema

_CUT: Final = "\u2026"
_APART: Final = "\n\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """What a database says of a table.

    Attributes:
        oid: of the table.
        table: its comment; empty for none.
        names: true names of its columns, by attribute number.
        columns: comments of columns, by attribute number; of those that have one.
    """

    oid: int
    table: str = ""
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    columns: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def shortened(self, letters: int) -> Self:
        """The same, with comments of so many letters at most; from 1."""
        columns = {number: _cut(text, letters) for number, text in self.columns.items()}
        return dataclasses.replace(self, table=_cut(self.table, letters), columns=columns)


@dataclasses.dataclass(frozen=True, slots=True)
class Comments:
    """Comments of a table of a lake.

    Attributes:
        table: the table's; empty for none.
        columns: of all columns, by name; empty for none.
    """

    table: str
    columns: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """What of the comments of a table changes.

    Attributes:
        table: its new comment; None where that stays.
        columns: by name, those that get another comment; empty for none any more.
    """

    table: str | None = None
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.table is not None or bool(self.columns)


def wanted(schema: TableSchema, here: Described, where_from: str) -> Comments:
    """What a table of a lake is to say.

    Args:
        schema: of the table as it is in the lake.
        here: what the database says of the table now.
        where_from: sentence about the table that stands after its comment.
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
    """A table's comment and, after it, the sentence that says where the table is from."""
    return f"{text}{_APART}{where_from}" if text else where_from


def kept(where_from: str, held: str) -> str:
    """What a table that is written anew says: what it said, with a newer sentence after it."""
    text, apart, _ = held.rpartition(_APART)
    return before(where_from, text if apart else "")


def difference(held: Comments, to_be: Comments) -> Changed:
    """What makes comments of a table those that are wanted; of columns that both know."""
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
