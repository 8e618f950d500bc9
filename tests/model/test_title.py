"""A title is an identity, and what could be several tables is refused with the choices."""

import itertools

import pytest

from gaussdecode.model.title import split_title, table_title

PARTS = ["a", "b", "c", "a.b", "b.c", ".", "", '"', 'a"', '"a"."b"', "A", "a b", "a.b.c", "ä"]
PAIRS = list(itertools.product(PARTS, PARTS))


def test_usual_names_stay_as_they_are() -> None:
    """Nothing is quoted that need not be."""
    assert table_title("public", "orders") == "public.orders"
    assert table_title("Sales 2026", "größe") == "Sales 2026.größe"


def test_different_tables_have_different_titles() -> None:
    """Whatever dots and quotes are in their names."""
    assert len({table_title(*pair) for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_title_is_read_back(pair: tuple[str, str]) -> None:
    """By exactly the table that it is of."""
    assert split_title(table_title(*pair)) == pair


def test_quotes_that_are_not_needed_are_allowed() -> None:
    """As an operator may write them."""
    assert split_title('"public"."orders"') == ("public", "orders")


def test_what_could_be_several_is_refused_with_the_choices() -> None:
    """The operator is told how to write each of them."""
    with pytest.raises(ValueError, match=r"several ways: write a\.\"b\.c\" or \"a\.b\"\.c$"):
        split_title("a.b.c")


@pytest.mark.parametrize("text", ["", "orders", 'a."b', 'a.b"c', ".", "a.", ".b", '"a".b.c'])
def test_what_is_no_table_is_refused(text: str) -> None:
    """With the form that is wanted."""
    with pytest.raises(ValueError, match=r"is no table: write schema\.name"):
        split_title(text)
