"""The values of the benches: every sort is there, from Python and from a server alike."""

import random
from collections import Counter

import pytest
from kit.postgres import Database
from kit.uneven import ODD_TEXTS, uneven, uneven_sql

SORTS = {"absent", "empty", "odd", "long", "common", "other"}


def sort_of(value: str | None) -> str:
    """Which sort of value it is, where an even one is a number of six digits."""
    if value is None:
        return "absent"
    if value in ODD_TEXTS:
        return "odd"
    if len(value) > 6:
        return "long"
    return "empty" if not value else "other"


def sorts_of(values: list[str | None]) -> set[str]:
    """All sorts there are; common is what a tenth of the values or more is."""
    most = Counter(value for value in values if value).most_common(1)[0][1]
    return {sort_of(value) for value in values} | (
        {"common"} if most > len(values) // 20 else set()
    )


def test_every_sort_is_made() -> None:
    """Of a text all sorts, of another column NULLs and common values."""
    rng = random.Random(1)

    def make(chosen: random.Random) -> str:
        return str(chosen.randrange(100_000, 1_000_000))

    assert sorts_of([uneven(rng, make, is_text=True) for _ in range(5000)]) == SORTS
    assert sorts_of([uneven(rng, make, is_text=False) for _ in range(5000)]) == {
        "absent", "common", "other",
    }  # fmt: skip


@pytest.mark.integration
def test_a_server_makes_every_sort(database: Database) -> None:
    """The same from the statement that fills a table."""
    expression = uneven_sql("(100000 + g)::text", is_text=True)
    rows = database.execute(f"SELECT {expression} FROM generate_series(1, 5000) g")
    assert sorts_of([row[0] for row in rows]) == SORTS
