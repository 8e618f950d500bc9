"""How the files of a table of Delta Lake or Iceberg are laid out: what divides them, what orders rows in them.

Read from ``TABLE=EXPRESSION,...`` and checked against the columns of the table. Pure; needs no pyspark.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Self

from gaussdecode.errors import ConfigError
from gaussdecode.spark.formats import DELTA
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.schema import TableSchema, match_columns

_UNSORTED: Final = ("list", "struct")
_UNDIVIDED: Final = ("float", "double", "binary")
_TRANSFORM: Final = re.compile(r"(years|months|days|hours|bucket)\((?:(\d+), *)?([^()]+)\)")
_PART: Final = re.compile(r"(?:[^,()]|\([^()]*\))+")


@dataclasses.dataclass(frozen=True, slots=True)
class Partition:
    """One column, or a transform of one, whose values divide files.

    Attributes:
        column: its name.
        transform: ``years``, ``months``, ``days``, ``hours`` or ``bucket``; empty for the value itself.
        buckets: how many.
    """

    column: str
    transform: str = ""
    buckets: int = 0

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read ``column``, ``days(column)`` or ``bucket(16, column)``.

        Raises:
            ConfigError: it is none of these.
        """
        match = _TRANSFORM.fullmatch(text)
        if match is None and not re.search(r"[()]", text):
            return cls(text)
        if match is None or (match[1] == "bucket") != bool(int(match[2] or 0)):
            raise ConfigError(
                f"partition by {text!r} is none: give a column, or years, months, days or hours(COLUMN), or "
                "bucket(NUMBER, COLUMN)"
            )
        return cls(match[3], match[1], int(match[2] or 0))


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How files of a table are laid out.

    Attributes:
        partition: what divides files.
        cluster: columns by which rows lie near each other.
        comment: what the table says of itself.
    """

    partition: tuple[Partition, ...] = ()
    cluster: tuple[str, ...] = ()
    comment: str = ""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:  # Any: JSON
        """Read what `record` gave."""
        parts = tuple(Partition(**part) for part in record["partition"])
        return cls(parts, tuple(record["cluster"]))

    def record(self) -> dict[str, Any]:  # Any: JSON
        """As JSON, without the comment."""
        return {
            "partition": list(map(dataclasses.asdict, self.partition)),
            "cluster": list(self.cluster),
        }

    def check(self, table: str, columns: Mapping[str, str], kept_as: str) -> None:
        """See that a format can lay out a table so.

        Args:
            table: its title.
            columns: types, as Arrow spells them, by name.
            kept_as: the format.

        Raises:
            ConfigError: it has no such column, or the format has no such layout.
        """
        for name in (*(part.column for part in self.partition), *self.cluster):
            if name not in columns:
                raise ConfigError(
                    f"{table} has no column {name!r} to partition or cluster by; it has: "
                    f"{', '.join(columns)}"
                )
        if kept_as != DELTA:
            return
        for name in (*(part.column for part in self.partition), *self.cluster):
            if columns[name].startswith(_UNSORTED) or (
                columns[name] in _UNDIVIDED and name not in self.cluster
            ):
                raise ConfigError(
                    f"{table}: column {name!r} is of a type ({columns[name]}) that divides or orders no rows here"
                )
        if any(part.transform for part in self.partition):
            raise ConfigError(
                f"{table}: Delta Lake partitions by values of columns alone: give a column, cluster by it, or "
                "keep the table as iceberg"
            )

    def among(self, columns: Collection[str]) -> Self:
        """What of it is left where columns are gone."""
        parts = tuple(part for part in self.partition if part.column in columns)
        cluster = tuple(name for name in self.cluster if name in columns)
        return dataclasses.replace(self, partition=parts, cluster=cluster)


def followed(columns: Sequence[str], old: TableSchema, new: TableSchema) -> tuple[str, ...]:
    """What columns are called in a newer version; those that are gone, or of another type, are left out."""
    called = {before: after for after, before in match_columns(old, new).items()}
    types = {c.name: c.type for c in old.columns}
    now = {c.name: c.type for c in new.columns}
    return tuple(called[c] for c in columns if c in called and now[called[c]] == types[c])


PLAIN: Final = Layout()
Layouts = Mapping[str, Layout]


def read_layouts(partition: Sequence[str], cluster: Sequence[str]) -> dict[str, Layout]:
    """Read options, each ``TABLE=EXPRESSION,...``.

    Raises:
        ConfigError: one is none.
    """
    found: dict[str, Layout] = {}
    for text in partition:
        table, parts = _split(text, "--partition-by")
        found[table] = Layout(tuple(map(Partition.from_text, parts)))
    for text in cluster:
        table, parts = _split(text, "--cluster-by")
        found[table] = dataclasses.replace(found.get(table, PLAIN), cluster=tuple(parts))
    return found


def _split(text: str, option: str) -> tuple[str, list[str]]:
    table, _, rest = text.partition("=")
    parts = [part.strip() for part in _PART.findall(rest)]
    if not table or not all(parts) or not parts:
        raise ConfigError(
            f"{option} {text!r}: give TABLE=COLUMN,..., as in public.orders=ordered_on"
        )
    return table, parts


def layouts_by_directory(layouts: Layouts, find: Callable[[str], str]) -> dict[str, Layout]:
    """Layouts by the directory of their table; `find` raises for a title that there is not."""
    return {find(title): layout for title, layout in layouts.items()}


def comment(schema: TableSchema, landing: Landing) -> str:
    """What a table says of itself: where it is from, and what tells its rows apart."""
    key = ", ".join(schema.key) or "none"
    return (
        f"{schema.title} of {', '.join(landing.sources)}, landing {landing.landing_id}; key: {key}"
    )
