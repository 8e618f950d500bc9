"""Names below the root: safe, distinct, deterministic."""

import datetime as dt
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.land import names

ANY_NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("orders", "orders"),
        ("Orders-2_x", "Orders-2_x"),
        ("_hidden", "%5Fhidden"),
        (".hidden", "%2Ehidden"),
        ("..", "%2E%2E"),
        ("a/b", "a%2Fb"),
        ("k=v", "k%3Dv"),
        ("ä", "%C3%A4"),
        ("100%", "100%25"),
        ("", "%00"),
    ],
)
def test_part_is_encoded(name: str, encoded: str) -> None:
    """Every byte that a path, Hive or Spark could misread is written as %XX."""
    assert names.encode_part(name) == encoded


def test_table_directory_joins_encoded_parts() -> None:
    """The only dot is the one between schema and name."""
    assert names.table_directory("sales.eu", "a.b") == "sales%2Eeu.a%2Eb"


def test_long_name_is_cut_and_told_apart() -> None:
    """Two long names with the same beginning keep different, bounded directories."""
    one, two = names.encode_part("ß" * 63 + "a"), names.encode_part("ß" * 63 + "b")
    assert one != two
    assert len(one) <= 100
    assert re.fullmatch(r"(%C3%9F)+~[0-9a-f]{16}|(%C3%9F)+%C3~[0-9a-f]{16}", one)


@given(ANY_NAME, ANY_NAME)
def test_different_names_have_different_directories(one: str, two: str) -> None:
    """Encoding loses nothing."""
    assert (names.encode_part(one) == names.encode_part(two)) == (one == two)


@given(ANY_NAME, ANY_NAME)
def test_table_directory_is_safe(namespace: str, name: str) -> None:
    """Whatever the names, the directory is one visible path component."""
    directory = names.table_directory(namespace, name)
    assert re.fullmatch(r"[A-Za-z0-9%~-][A-Za-z0-9_%~.-]*", directory)
    assert directory.count(".") == 1
    assert len(directory) <= 255


def test_numbers_are_read_back() -> None:
    """What the name functions write, the number functions read, and nothing else."""
    assert names.entry_number("00000000000000000042.json") == 42
    assert names.entry_number(".00000000000000000042.json") is None
    assert names.hidden_entry_number(".00000000000000000042.json") == 42
    assert names.unfinished_number(names.unfinished_name("ab1", 7, 3, "parquet")) == 7
    assert names.unfinished_number(".other-tool") is None
    assert names.data_number(names.data_name(7, 16, 255, 2)) == 7
    assert names.data_number("part-0000.parquet") is None
    assert names.checkpoint_range(f"{0:020d}-{999:020d}.jsonl") == (0, 999)
    assert names.partition_date("gd_date=2026-01-31") == dt.date(2026, 1, 31)
    assert names.partition_date("gd_date=x") is None


def test_data_name_sorts_like_positions() -> None:
    """Lexicographic order is position order, for people and `ls`."""
    assert (
        names.data_name(1, 0x10, 0xFF, 0)
        == "0" * 19 + "1-0000000000000010-00000000000000ff.parquet"
    )
    assert names.data_name(9, 1, 2, 0) < names.data_name(10, 1, 2, 0)
