"""Old tuples, unchanged values and rows beside one another in one batch."""

from typing import Any

import pytest
from kit import wire
from kit.decoded import OLD_COLUMN, Part, read_entry

from gaussdecode._wire import BatchDecoder
from gaussdecode.model.types import ColumnType, Kind

TYPES = [ColumnType(Kind.INT32), ColumnType(Kind.STRING), ColumnType(Kind.STRING)]
KEYED = wire.relation(TYPES, [0, 1])
FULL = wire.relation(TYPES, [0, 1, 2])


def decode(messages: list[bytes], full: bool = False) -> Part:
    """Decode rows of one table."""
    raw = wire.raw_batch(messages, [FULL if full else KEYED])
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: TYPES}).parts
    return part


def test_four_absences_stay_four() -> None:
    """NULL, empty, unchanged and not sent can be told apart."""
    part = decode([wire.insert(["1", None, ""]), wire.update(["1", "k", wire.UNCHANGED])])
    assert part.columns == [[1, 1], [None, "k"], ["", None]]
    assert part.unchanged == [(1, 2)]
    assert part.old_columns == []


def test_old_columns_are_dense() -> None:
    """Rows without an old tuple have NULL and no presence, before, between and after."""
    part = decode(
        [
            wire.insert(["1", "a", "x"]),
            wire.delete(["1", "a", None]),
            wire.insert(["2", "b", "y"]),
            wire.update(["3", "b", "y"], key=["2", "b", None]),
            wire.insert(["4", "d", "z"]),
        ]
    )
    assert part.old_columns == [[None, 1, None, 2, None], [None, "a", None, "b", None]]
    assert part.old_present == bytes([0, 1, 0, 1, 0])
    assert part.columns[0] == [1, None, 2, 3, 4]


def test_only_the_identity_of_a_key_tuple_counts() -> None:
    """A NULL outside of the key says nothing about the column."""
    part = decode([wire.update(["1", "a", wire.UNCHANGED], key=["1", "a", None])])
    assert part.unchanged == [(0, 2)]
    assert part.key_changed == b""


def test_full_old_tuple_gives_unchanged_values() -> None:
    """Under REPLICA IDENTITY FULL a value not sent is the old one."""
    part = decode([wire.update(["1", "a", wire.UNCHANGED], old=["1", "b", "big"])], full=True)
    assert part.columns[2] == ["big"]
    assert part.unchanged == []
    assert part.old_columns == [[1], ["b"], ["big"]]
    assert part.key_changed == b""


def test_unchanged_without_an_old_value_is_said() -> None:
    """A NULL in the full old tuple cannot be what was not sent."""
    part = decode([wire.update(["1", "a", wire.UNCHANGED], old=["1", "b", None])], full=True)
    assert part.unchanged == [(0, 2)]


def test_unchanged_key_is_taken_from_the_key_tuple() -> None:
    """A key stored out of line arrives in the K tuple only, and is not a key change."""
    part = decode([wire.update(["1", wire.UNCHANGED, "c"], key=["1", "long", None])])
    assert part.columns[1] == ["long"]
    assert part.unchanged == []
    assert part.key_changed == b""


@pytest.mark.parametrize(
    ("key", "new", "changed"),
    [
        (["1", "a"], ["1", "a"], False),
        (["1", "a"], ["2", "a"], True),
        (["1", "a"], ["1", "aa"], True),
        (["1", None], ["1", "a"], True),
        (["1", "a"], ["1", None], True),
        (["1", None], ["1", None], False),
        (["1", ""], ["1", None], True),
        (["1", "a"], ["1", wire.UNCHANGED], False),
        (["1", "a"], ["2", wire.UNCHANGED], True),
    ],
)
def test_key_change_is_a_difference(key: list[Any], new: list[Any], changed: bool) -> None:
    """A K tuple alone is not a key change; its values are compared."""
    part = decode([wire.insert(["9", "z", "z"]), wire.update([*new, "c"], key=[*key, None])])
    assert part.key_changed == (b"\0\1" if changed else b"")


def test_old_values_that_do_not_fit_are_kept() -> None:
    """The text of an old value is kept beside that of the new one."""
    part = decode([wire.update(["no", "a", "x"], key=["never", "a", None])])
    assert part.misfits == {(0, OLD_COLUMN): "never", (0, 0): "no"}
    assert part.old_columns[0] == [None]


def test_deleted_row_has_no_new_values() -> None:
    """The columns of a delete are NULL even when a full tuple came."""
    part = decode([wire.delete(["1", "a", "x"], b"O")], full=True)
    assert part.columns == [[None], [None], [None]]
    assert part.old_columns == [[1], ["a"], ["x"]]


def test_table_without_columns() -> None:
    """A table may have no columns; its rows still count."""
    raw = wire.raw_batch([wire.insert([]), wire.insert([])], [wire.relation([], [])])
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: []}).parts
    assert (part.row_count, part.columns, part.ops) == (2, [], b"II")


def test_widest_table() -> None:
    """1600 columns, the server's limit, each in its place."""
    relation = wire.relation([Kind.INT32] * 1600, range(1600))
    values = [str(number) for number in range(1600)]
    raw = wire.raw_batch([wire.insert(values), wire.delete(values)], [relation])
    types = {1: [ColumnType(Kind.INT32)] * 1600}
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), types).parts
    assert part.columns == [[number, None] for number in range(1600)]
    assert part.old_columns == [[None, number] for number in range(1600)]


def test_batches_do_not_mix() -> None:
    """Each batch begins empty, whatever the one before held."""
    decoder = BatchDecoder()
    many = [wire.update(["2", None, wire.UNCHANGED], key=["1", "a", None]) for _ in range(1000)]
    decoder.decode_bytes(wire.raw_batch(many, [KEYED]))
    raw = wire.raw_batch([wire.insert(["1", "a", "b"]), wire.insert(["x", "", "c"])])
    (part,) = read_entry(decoder.decode_bytes(raw), {1: TYPES}).parts
    assert part.columns == [[1, None], ["a", ""], ["b", "c"]]
    assert (part.old_columns, part.unchanged, part.key_changed) == ([], [], b"")
    assert part.misfits == {(1, 0): "x"}


def test_lists_share_a_child_column() -> None:
    """Elements of all rows lie in one column; a list that does not fit leaves none there."""
    types = [ColumnType(Kind.LIST, Kind.STRING)]
    rows = ["{a,NULL}", None, '{b,"\\\\"}', "{c,{d}}", '{x,"y}', "{}", "{e}"]
    raw = wire.raw_batch([wire.insert([row]) for row in rows], [wire.relation(types)])
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: types}).parts
    assert part.columns == [[["a", None], None, ["b", "\\"], None, None, [], ["e"]]]
    assert part.misfits == {(3, 0): "{c,{d}}", (4, 0): '{x,"y}'}
