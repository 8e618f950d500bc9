"""Names of columns in files: distinct, and none of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.model import names

ANY_NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("columns", "safe"),
    [
        (["id", "name"], ["id", "name"]),
        (["id", "ID", "Id"], ["id", "ID_2", "Id_3"]),
        (["id", "ID", "id_2"], ["id", "ID_3", "id_2"]),
        (["gd_op", "GD_x"], ["col_gd_op", "col_GD_x"]),
        (["gd_x", "col_gd_x"], ["col_gd_x_2", "col_gd_x"]),
    ],
)
def test_columns_are_renamed(columns: list[str], safe: list[str]) -> None:
    """Case twins and our own prefix are renamed; the first keeps its name."""
    assert names.safe_columns(columns) == safe


@given(st.lists(ANY_NAME, unique=True))
def test_safe_columns_are_distinct(columns: list[str]) -> None:
    """No two are equal when lower-cased, and none looks like ours."""
    safe = names.safe_columns(columns)
    assert len({name.lower() for name in safe}) == len(columns)
    assert not any(name.lower().startswith("gd_") for name in safe)
