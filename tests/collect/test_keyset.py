"""Keys of changed rows, and the rows that may be out of date for them."""

import decimal
from pathlib import Path

import pyarrow as pa
import pytest

from gaussdecode.collect import keyset
from gaussdecode.collect.spool import Spool
from gaussdecode.land.space import SpaceWait
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


@pytest.mark.parametrize("piece_bytes", [1, 200, 1 << 20])
def test_keys_in_pieces_are_the_keys(tmp_path: Path, piece_bytes: int) -> None:
    """However small the pieces, each key is there once, and its rows are told from others."""
    keys = keyset.Keys(Spool(tmp_path, SpaceWait().run), piece_bytes)
    for first in (0, 5, 3, 40, 0):
        keys.add(pa.table({"k": list(range(first, first + 10)), "s": ["x"] * 10}))
    keys.add(pa.table({"k": pa.array([], pa.int64()), "s": pa.array([], pa.string())}))
    pieces = list(keys.pieces(4))
    assert max(piece.num_rows for piece in pieces) <= 4
    found = sorted(key for piece in pieces for key in piece["k"].to_pylist())
    assert found == [*range(15), *range(40, 50)]
    rows = pa.table({"k": list(range(60)), "s": ["x"] * 60, "v": list(range(60))})
    assert keys.without(rows)["v"].to_pylist() == [*range(15, 40), *range(50, 60)]
    keys.close()


def test_no_keys_change_no_rows(tmp_path: Path) -> None:
    """Without a change every row stands."""
    keys = keyset.Keys(Spool(tmp_path, SpaceWait().run), 100)
    rows = pa.table({"k": [1, 2]})
    assert list(keys.pieces(10)) == []
    assert keys.without(rows) == rows
