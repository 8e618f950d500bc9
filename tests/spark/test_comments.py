"""What a lake is to say of its tables, and what differs from what it says."""

import pytest

from gaussdecode.spark.log.schema import Column, TableSchema
from gaussdecode.spark.log.sql_text import literal
from gaussdecode.spark.target.comments import (
    Changed,
    Comments,
    Described,
    before,
    difference,
    kept,
    removed,
    wanted,
)

OID = 17000
SCHEMA = TableSchema(
    "s", "shop.items", "items", OID, ("id",),
    (
        Column("id", "int32", 1, identity=True, true_name="id"),
        Column("total", "int64", 2, true_name="total"),
        Column("gd_x_", "string", 5, true_name="gd_x"),
        Column("said", "string", -3, true_name="said"),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("here", "columns"),
    [
        # Renamed there, and another column has the name.
        (
            Described(OID, "", {1: "id", 2: "amount", 9: "total"}, {2: "whole", 9: "other"}),
            {"total": "whole"},
        ),
        # Dropped there, and made anew.
        (Described(OID, "", {1: "id", 9: "total"}, {1: "key", 9: "other"}), {"id": "key"}),
        # Another table of the name: by name.
        (
            Described(OID + 1, "", {1: "total", 2: "id", 3: "gd_x"}, {1: "a", 2: "b", 3: "c"}),
            {"total": "a", "id": "b", "gd_x_": "c"},
        ),
        # Somebody said which column it is: the catalogue does not know that number.
        (Described(OID, "", {7: "said"}, {7: "of it"}), {"said": "of it"}),
        (Described(OID), {}),
    ],
    ids=["renamed", "dropped", "anew", "decided", "none"],
)
def test_columns_are_attribute_numbers(here: Described, columns: dict[str, str]) -> None:
    """A column has the comment of its number, whatever its name is; by name in another table."""
    found = wanted(SCHEMA, here, "shop.items of db")
    assert found == Comments("shop.items of db", dict.fromkeys(SCHEMA.names, "") | columns)


def test_where_a_table_is_from_stands_after_its_comment() -> None:
    """It stays as it is written anew, with a newer sentence; without a comment it stands alone."""
    said = wanted(SCHEMA, Described(OID, "One.\n\nTwo."), "from a").table
    assert said == "One.\n\nTwo.\n\nfrom a"
    assert kept("from b", said) == before("from b", "One.\n\nTwo.")
    assert kept("from b", "from a") == kept("from b", "") == before("from b", "") == "from b"


def test_only_what_differs_is_set() -> None:
    """Columns that one side lacks are let be; a comment that is gone is taken away."""
    held = Comments("t", {"same": "a", "gone": "b", "other": "c", "gd_op": "ours", "none": ""})
    to_be = Comments("t", {"same": "a", "gone": "", "other": "d", "new": "e", "none": ""})
    found = difference(held, to_be)
    assert found == Changed(None, {"gone": "", "other": "d"})
    assert removed(found) == ["gone"]
    assert not difference(held, held)
    assert difference(held, Comments("u", {})) == Changed("u", {})


def test_comments_are_cut() -> None:
    """To the limit they stay whole, beyond it they end with a mark, at the limit."""
    here = Described(1, "abcd", {1: "x"}, {1: "abc", 2: "\U0001f418" * 5})
    assert here.shortened(3) == Described(
        1, "ab…", {1: "x"}, {1: "abc", 2: "\U0001f418\U0001f418…"}
    )
    assert here.shortened(1).table == "…"


def test_text_of_sql_names_no_setting() -> None:
    """Spark would put a setting, or a variable of its environment, in place of a name in braces."""
    assert literal("it's ${env:HOME} \\") == "'it\\'s \\u0024{env:HOME} \\\\'"
    assert "${" not in literal("$${a}${${b}}")
