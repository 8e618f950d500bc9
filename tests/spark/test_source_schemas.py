"""Schemas of one table on several sources, joined."""

import dataclasses

import pytest

from gaussdecode.spark.log.schema import Column, TableSchema
from gaussdecode.spark.log.source_schemas import DiffersError, joined


def version(source: str, *key: str, columns: tuple[str, ...] = ("a", "b")) -> TableSchema:
    """A version of a source with text columns."""
    made = tuple(Column(name, "string", at + 1, True, name) for at, name in enumerate(columns))
    of = TableSchema(f"s_{source}", "public.t", "t", 1, key, made)
    return dataclasses.replace(of, source=source)


def test_the_order_of_arrival_does_not_matter() -> None:
    """Whichever source landed first: one schema, with one order of the key and of the columns."""
    east = version("east", "a", "b", columns=("a", "b", "more"))
    west = version("west", "b", "a", columns=("b", "a", "less"))
    first = joined({"east": east, "west": west})
    then = joined({"west": west, "east": east})
    assert first == then
    assert first.key == ("a", "b")
    assert [column.name for column in first.columns] == ["a", "b", "more", "less"]


def test_errors_do_not_depend_on_the_order_of_arrival() -> None:
    """They name the sources by their order."""
    versions = {"west": version("west", "b"), "east": version("east", "a")}
    with pytest.raises(
        DiffersError, match=r"source east .* \(a\), those of source west by key \(b\)"
    ):
        joined(versions)
