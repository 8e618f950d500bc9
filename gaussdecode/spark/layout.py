"""How the files of a table are laid out: what divides them, what orders rows in them.

Read from ``TABLE=COLUMN,...`` and checked against the columns of the table. Pure; needs no pyspark.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gaussdecode.errors import ConfigError
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.schema import TableSchema, match_columns

_UNSORTED: Final = ("list", "struct")
_UNDIVIDED: Final = ("float", "double", "binary")


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How files of a table are laid out.

    Attributes:
        partition: columns whose values divide files.
        cluster: columns by which rows lie near each other.
    """

    partition: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()

    def check(self, table: str, columns: Mapping[str, str]) -> None:
        """See that a table can be laid out so.

        Args:
            table: its title.
            columns: types, as Arrow spells them, by name.

        Raises:
            ConfigError: it has no such column, or one of a type that cannot be.
        """
        for name in (*self.partition, *self.cluster):
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
    """What columns are called in a newer version; those that are gone, or of another type, are left out."""
    called = {before: after for after, before in match_columns(old, new).items()}
    types = {c.name: c.type for c in old.columns}
    now = {c.name: c.type for c in new.columns}
    return tuple(called[c] for c in columns if c in called and now[called[c]] == types[c])


PLAIN: Final = Layout()
Layouts = Mapping[str, Layout]


def read_layouts(partition: Sequence[str], cluster: Sequence[str]) -> dict[str, Layout]:
    """Read options, each ``TABLE=COLUMN,...``.

    Raises:
        ConfigError: one is none.
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
    """Layouts by the directory of their table; `find` raises for a title that there is not."""
    return {find(title): layout for title, layout in layouts.items()}


def comment(schema: TableSchema, landing: Landing) -> str:
    """What a table says of itself: where it is from, and what tells its rows apart."""
    key = ", ".join(schema.key) or "none"
    return (
        f"{schema.title} of {', '.join(landing.sources)}, landing {landing.landing_id}; key: {key}"
    )
