"""Which old columns a table sends, judged from old tuples and the catalogue."""

import pytest

from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.shape import Shape, ShapeColumn
from gaussdecode.source.catalog import CatalogColumn, CatalogTable
from gaussdecode.source.gaussdb.identity import judge

ALL = frozenset({"id", "v", "n"})


def shape(*old: str) -> Shape:
    """A DELETE with these old columns."""
    return Shape((("public", "t"),), "D", None, tuple(ShapeColumn(name) for name in old))


def catalog(*key: str, identity: str = "d") -> CatalogTable:
    """The table as the catalogue has it."""
    columns = tuple(
        CatalogColumn(
            name, number, False, "int4", False, False, key.index(name) if name in key else None
        )
        for number, name in enumerate(sorted(ALL), 1)
    )
    return CatalogTable(16385, "public", "t", "r", identity, columns)


@pytest.mark.parametrize("identity", ["d", "f"])
def test_old_row_of_a_table_without_key_has_gaps(identity: str) -> None:
    """Fewer columns than all are no key where there is none: NULLs were left out."""
    found = judge(shape("id", "v"), ALL, None, catalog(identity=identity))
    assert found.letter is ReplicaIdentity.FULL
    assert found.names == ALL
    assert found.has_gaps


def test_old_key_is_no_gap() -> None:
    """The columns of the declared key are that key, not what is left of a whole row."""
    found = judge(shape("id"), ALL, None, catalog("id"))
    assert (found.letter, found.names) == (ReplicaIdentity.DEFAULT, frozenset({"id"}))
    assert not found.has_gaps


def test_other_columns_are_an_earlier_identity() -> None:
    """Where a key is declared, other old columns were an index when the row was written."""
    found = judge(shape("v"), ALL, None, catalog("id"))
    assert (found.letter, found.names) == (ReplicaIdentity.INDEX, frozenset({"v"}))
