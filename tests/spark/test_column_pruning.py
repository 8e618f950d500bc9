"""Which columns a query may need, told from its text."""

import pytest

from gaussdecode.spark.sql.column_pruning import named_columns


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM a", "SELECT a.* FROM a", "TABLE a", "DESCRIBE a", "FROM a SELECT x",
        "WITH b AS (FROM a |> LIMIT 1) SELECT x FROM b", "SELECT x FROM a NATURAL JOIN b",
        "SELECT x FROM a PIVOT (count(y) FOR z IN (1))", "SELECT count(*), b * 2 FROM a",
        "SELECT * FROM (SELECT 1)", "SELECT IDENTIFIER('x' || 'y') FROM a",
        "SELECT x FROM f(TABLE (a))", "SELECT x FROM a WHERE EXISTS ( FROM b)",
    ],
)  # fmt: skip
def test_all_may_be_needed(text: str) -> None:
    """Where columns are taken that are not named."""
    assert named_columns(text) is None


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("SELECT x FROM a", "x", True),
        ("select A.X from a", "x", True),
        ("SELECT x FROM a", "y", False),
        ("SELECT count( * ) FROM a WHERE `we``ird` > 0", "we`ird", True),
        ("WITH b AS (SELECT doc FROM a) SELECT count(*) FROM b", "doc", True),
        ("SELECT \u0130D, \u0131t FROM a", "id", True),
        ("SELECT \u0130D, \u0131t FROM a", "IT", True),
        ("SELECT \u212aey FROM a", "key", True),
        ("SELECT x FROM a JOIN b USING (id)", "id", True),
        ("SELECT 名称 FROM a", "名称", True),
        ("SELECT 名 FROM a", "名称", False),
        ("SELECT idle, _id, id2, xid FROM a", "id", False),
        ("SELECT a.id,b FROM a", "id", True),
        ("SELECT `x y` FROM a", "x", True),
        ("SELECT `1#` FROM a", "1#", True),
        ("SELECT x.gd_raw FROM a", "gd_raw", True),
    ],
)
def test_names_that_stand_in_the_text(text: str, name: str, expected: bool) -> None:
    """In any case and anywhere; others are not needed."""
    found = named_columns(text)
    assert found is not None
    assert (name in found) is expected
