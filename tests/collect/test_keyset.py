"""Keys of changed rows, and the rows that may be out of date for them."""

import decimal

import pyarrow as pa
import pytest

from gaussdecode.collect import keyset
from gaussdecode.model.types import ColumnType, Kind

_OLD = pa.struct([("k", pa.int64()), ("s", pa.string())])


def _changes(
    *rows: tuple[str, tuple[int | None, str | None] | None, tuple[int, str] | None],
) -> pa.Table:
    """Make changes of (operation, new key, old key)."""
    new = [row[1] or (None, None) for row in rows]
    old = [None if row[2] is None else {"k": row[2][0], "s": row[2][1]} for row in rows]
    return pa.table(
        {
            "gd_op": [row[0] for row in rows],
            "gd_old": pa.array(old, _OLD),
            "k": pa.array([key[0] for key in new], pa.int64()),
            "s": pa.array([key[1] for key in new], pa.string()),
        }
    )


def test_keys_before_and_after_count() -> None:
    """A move gives two keys, a deletion the old one, a truncate none."""
    rows = _changes(
        ("I", (1, "a"), None), ("U", (2, "b"), (3, "c")), ("D", None, (4, "d")), ("T", None, None)
    )  # fmt: skip

    keys = keyset.changed_keys(rows, ["k", "s"])

    assert {tuple(row.values()) for row in keys.to_pylist()} == {
        (1, "a"), (2, "b"), (3, "c"), (4, "d")
    }  # fmt: skip


def test_a_key_without_value_is_not_guessed() -> None:
    """A key that did not fit its column is an error, because the row cannot be named."""
    with pytest.raises(keyset.UnknownKeyError):
        keyset.changed_keys(_changes(("I", (None, "a"), None)), ["k", "s"])


@pytest.mark.parametrize("names", [["k"], ["k", "s"]])
def test_only_rows_with_these_keys_are_changed(names: list[str]) -> None:
    """Rows are told apart by all columns of the key; no value is no empty text."""
    rows = pa.table(
        {"k": pa.array([1, 1, 2, None], pa.int64()), "s": pa.array(["", None, "x", ""])}
    )
    keys = pa.table({"k": pa.array([1], pa.int64()), "s": [""]}).select(names)

    found = keyset.is_changed(rows, keys).to_pylist()

    assert found == ([True, True, False, False] if names == ["k"] else [True, False, False, False])


def test_arrays_are_quoted() -> None:
    """Values reach the server as they are, whatever characters they hold."""
    keys = pa.table({"s": ['a"b', "c\\d", "{,}"], "d": [decimal.Decimal("1.50")] * 3})

    assert keyset.array_texts(keys) == ['{"a\\"b","c\\\\d","{,}"}', '{"1.50","1.50","1.50"}']


def test_some_types_are_no_keys() -> None:
    """A key with a type that cannot be compared here is not used."""
    assert keyset.is_usable([ColumnType(Kind.INT64), ColumnType(Kind.STRING)])
    assert not keyset.is_usable([ColumnType(Kind.FLOAT64)])
    assert not keyset.is_usable([])
