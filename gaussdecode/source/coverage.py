"""Compare publications with the white list: tables that are sent and dropped, or wanted and not sent.

A table lands only if both name it. A difference may be intended, but it is always reported.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from gaussdecode.source.relations import WhiteList

NAMED: Final = 20  # of each kind, in what is said; arbitrary
_NAMES: Final = ("unlisted", "unpublished", "unsent")
_ALL: Final = "*"
UNSENT: Final = (
    "stored by column: the server sends no change of such tables in any mode, and none of their rows "
    "land; store a table by row to follow it"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Coverage:
    """The tables that only the publications or only the white list has.

    Attributes:
        unlisted: some published tables that are not on the list, and how many there are.
        unlisted_count: number of all unlisted tables.
        unpublished: some items of the list that no published table matches.
        unpublished_count: number of all unpublished items.
        unsent: some wanted tables that the server never sends, because they are stored by column.
        unsent_count: number of all unsent tables.
    """

    unlisted: tuple[str, ...] = ()
    unlisted_count: int = 0
    unpublished: tuple[str, ...] = ()
    unpublished_count: int = 0
    unsent: tuple[str, ...] = ()
    unsent_count: int = 0

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for JSON."""
        lists = {name: list(getattr(self, name)) for name in _NAMES}
        return {**dataclasses.asdict(self), **lists}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:  # Any: JSON
        """Rebuild it; of a source without publications there is nothing to compare."""
        names = {name: tuple(record.get(name, ())) for name in _NAMES}
        return cls(**{**record, **names})


def compare(items: Sequence[tuple[str, str]], published: Iterable[tuple[str, str]]) -> Coverage:
    """Compare.

    Args:
        items: items of the white list, pairs of schema and table; none lists everything.
        published: schema and name of every table that is sent.
    """
    if not items:
        return Coverage()
    tables = list(published)
    wanted = WhiteList(items)
    unlisted = sorted(f"{s}.{t}" for s, t in tables if not wanted.allows(s, t))
    sent = {pair for s, t in tables for pair in ((s, t), (s, _ALL), (_ALL, t), (_ALL, _ALL))}
    unpublished = sorted(f"{s}.{t}" for s, t in set(items) - sent)
    return Coverage(
        tuple(unlisted[:NAMED]), len(unlisted), tuple(unpublished[:NAMED]), len(unpublished)
    )


def listing(names: Sequence[str], count: int) -> str:
    """Name some of many."""
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more
