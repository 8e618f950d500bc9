"""What is said of a table between two states of its catalogue, state by state."""

import dataclasses
import json
from typing import Any

import pytest

from gaussdecode.model.fingerprint import (
    ColumnState,
    FileState,
    Replaced,
    TableState,
    TypeState,
    differences,
    why_replaced,
)

INT, BIGINT, TEXT, VARCHAR = 23, 20, 25, 1043
MOOD, ADDRESS = 20000, 20001
TYPES = {
    MOOD: TypeState("s.mood", "e", (), {"1": "a", "2": "b"}),
    ADDRESS: TypeState("s.address", "c", (INT, MOOD), {"1": "23 -1", "2": "20000 -1"}, 20002),
}


def file(oid: int, node: int | None = None, **values: Any) -> FileState:
    """A file of its first transaction."""
    fields = {
        "title": f"s.t{oid}", "kind": "r", "file_node": node or oid, "persistence": "p",
        "identity": "d", "key": "id", "attached": "", "row_xid": 700,
    }  # fmt: skip
    return FileState(**{**fields, **values})


def table(*columns: ColumnState, **values: Any) -> TableState:
    """An ordinary table with an ``id``."""
    held = dict(enumerate((ColumnState("id", INT, -1, 700), *columns), 1))
    fields = {"files": {1: file(1)}, "columns": held, "column_count": len(held)}
    return TableState(1, "s", "t", **{"is_root": False, **fields, **values})


def parted(*files: FileState, **values: Any) -> TableState:
    """A table that is published as one, with partitions from OID 11 on."""
    root = file(1, 0, kind="p")
    held = {1: root, **{11 + number: of for number, of in enumerate(files)}}
    return table(is_root=True, files=held, **values)


def said(known: TableState, seen: TableState, types: Any = None) -> str:
    """Everything that is said, in one text."""
    return "; ".join(differences(known, seen, TYPES, types or TYPES))


def leaf(oid: int, node: int | None = None, **values: Any) -> FileState:
    """A partition."""
    return file(oid, node, **{"attached": "700", **values})


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (parted(leaf(11), leaf(12)), ""),
        (parted(leaf(11)), "partition s.t12 was detached or dropped"),
        (parted(leaf(11), leaf(12, attached="800")), "partition s.t12 was detached for a while"),
        (parted(leaf(11), leaf(12), leaf(13)), "partition s.t13 was attached, with the rows"),
        (parted(leaf(11), leaf(12), leaf(13, is_attached_empty=True)), ""),
        (parted(leaf(11), leaf(12), leaf(13, kind="f")), "is a foreign table"),
        (parted(leaf(11), leaf(12, persistence="u")), "partition s.t12 is unlogged"),
        (parted(leaf(11), leaf(12, identity="f")), "partition s.t12 has another replica identity"),
        (parted(leaf(11), leaf(12, key="k")), "partition s.t12 has another replica identity"),
    ],
)
def test_partitions(seen: TableState, text: str) -> None:
    """Rows that come and go with a partition are said, and whose changes do not show."""
    found = said(parted(leaf(11), leaf(12)), seen)
    assert text in found
    assert bool(found) == bool(text)


@pytest.mark.parametrize(
    ("column", "seen", "is_rewritten", "text"),
    [
        (ColumnState("a", INT, -1, 700), ColumnState("b", INT, -1, 800), False, ""),
        (ColumnState("a", INT, -1, 700), ColumnState("a", INT, -1, 700), True, ""),
        (ColumnState("a", INT, -1, 700), ColumnState("a", INT, -1, 800), True, "was altered, and"),
        (ColumnState("a", INT, -1, 700), ColumnState("a", BIGINT, -1, 800), True, "was integer, is bigint"),
        (ColumnState("a", VARCHAR, 9, 700), ColumnState("a", TEXT, -1, 800), False, ""),
        (ColumnState("a", VARCHAR, 9, 700), ColumnState("a", TEXT, -1, 800), True, "is text"),
        (ColumnState("a", VARCHAR, 9, 700), ColumnState("a", VARCHAR, 7, 800), False, "another modifier"),
        (ColumnState("a", MOOD, -1, 700), ColumnState("a", INT, -1, 800), False, "was type 20000"),
    ],
)  # fmt: skip
def test_columns(column: ColumnState, seen: ColumnState, is_rewritten: bool, text: str) -> None:
    """A type is known only where the value is; an altered column only where the file stayed."""
    files = {1: file(1, 99 if is_rewritten else 1)}
    found = said(table(column), table(seen, files=files))
    assert text in found
    assert bool(found) == bool(text)


def test_added_columns() -> None:
    """NULL and constants are known; a value that was written into each row is not."""
    added = ColumnState("c", INT, -1, 800)
    before = table()
    assert said(before, table(added)) == ""
    assert said(before, table(added, files={1: file(1, constants={"c": "7"})})) == ""
    assert "written in the rows alone" in said(before, table(added, files={1: file(1, 99)}))
    unsent = dataclasses.replace(before, column_count=2)
    assert "column c was not sent before" in said(unsent, table(added))
    one, other = leaf(11, constants={"c": "7"}), leaf(12, constants={"c": "8"})
    of_root = {**parted().columns, 2: added}
    seen = parted(one, other, columns=of_root, column_count=2)
    assert "another value in each partition" in said(parted(leaf(11), leaf(12)), seen)
    new = leaf(12, is_attached_empty=True)
    assert said(parted(leaf(11)), parted(one, new, columns=of_root, column_count=2)) == ""


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ({MOOD: TypeState("s.mood", "e", (), {"1": "a", "2": "b", "3": "c"})}, ""),
        ({MOOD: TypeState("s.humour", "e", (), {"1": "a", "2": "b"})}, ""),
        ({MOOD: TypeState("s.mood", "e", (), {"1": "A", "2": "b"})}, "values of type s.mood"),
        ({ADDRESS: TypeState("s.address", "c", (INT,), {"1": "23 -1"}, 20002)}, "type s.address"),
    ],
)
def test_types(types: dict[int, TypeState], text: str) -> None:
    """Labels may be added; all else that values are printed by counts, however deep it is."""
    held = table(ColumnState("a", ADDRESS, -1, 700))
    found = said(held, held, {**TYPES, **types})
    assert text in found
    assert bool(found) == bool(text)


@pytest.mark.parametrize(
    ("known", "seen", "shown", "hidden"),
    [
        (table(), table(files={1: file(1, 9)}), Replaced.NO, Replaced.NO),
        (table(), table(files={1: file(1, 9)}, can_be_unlogged=True), Replaced.SHOWN, Replaced.UNSURE),
        (table(), table(files={1: file(1, 9)}, sends_truncate=False), Replaced.HIDDEN, Replaced.HIDDEN),
        (parted(leaf(11), leaf(12)), parted(leaf(11, 9), leaf(12)), Replaced.HIDDEN, Replaced.HIDDEN),
        (parted(leaf(11), leaf(12)), parted(leaf(11, 8, row_xid=9), leaf(12, 9, row_xid=9)),
         Replaced.SHOWN, Replaced.UNSURE),
        (parted(leaf(11), leaf(12)), parted(leaf(11, 8, row_xid=9), leaf(12, 9, row_xid=10)),
         Replaced.HIDDEN, Replaced.HIDDEN),
    ],
)  # fmt: skip
def test_replaced_files(
    known: TableState, seen: TableState, shown: Replaced, hidden: Replaced
) -> None:
    """A TRUNCATE of the table explains one file, or all of one command; nothing explains a partition's."""
    assert why_replaced(known, known, is_emptied=False) is Replaced.NO
    assert why_replaced(known, seen, is_emptied=True) is shown
    assert why_replaced(known, seen, is_emptied=False) is hidden


def test_records() -> None:
    """What is written down is read again, but for what only one look knows."""
    one = parted(leaf(11, constants={"c": "7"}, is_attached_empty=True), can_be_unlogged=True)
    again = TableState.from_record(1, json.loads(json.dumps(one.to_record())))
    assert again == one
    assert not again.files[11].is_attached_empty
    for of in TYPES.values():
        assert TypeState.from_record(json.loads(json.dumps(of.to_record()))) == of
