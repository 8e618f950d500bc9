"""Which columns of a relation land, and what the schema says of them."""

import dataclasses
from typing import Any

import pytest

from gaussdecode.collect.tables import Tables
from gaussdecode.model.relation import Column, Relation, ReplicaIdentity
from gaussdecode.model.types import ColumnType, Kind
from gaussdecode.source.catalog import CatalogColumn, CatalogTable

NAMES = ("id", "price", "twice", "half")
GENERATED = ("twice", "half")


class Schemas:
    """Keeps what it was given."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []  # Any: JSON

    def schema_id_for(self, table: str, record: dict[str, Any]) -> tuple[str, bool]:  # Any: JSON
        """A number for each different record."""
        if record not in self.records:
            self.records.append(record)
        return f"{table}-{self.records.index(record)}", True


def relation(identity: ReplicaIdentity, *key: str) -> Relation:
    """A table of four numbers."""
    columns = tuple(
        Column(name, 20, -1, "bigint", ColumnType(Kind.INT64), name in key) for name in NAMES
    )
    return Relation(1, 7, "public", "t", identity, columns)


def catalog(*key: str) -> CatalogTable:
    """The same table in the catalogue; two columns are generated."""
    columns = tuple(
        CatalogColumn(
            name=name,
            number=number,
            is_toastable=False,
            type_text="bigint",
            is_not_null=False,
            is_generated=name in GENERATED,
            key_position=key.index(name) if name in key else None,
        )
        for number, name in enumerate(NAMES, 1)
    )
    return CatalogTable(7, "public", "t", "r", "d", columns)


@pytest.mark.parametrize(
    ("wanted", "identity", "key", "landed"),
    [
        (False, ReplicaIdentity.DEFAULT, ["id"], ["id", "price", "twice", "half"]),
        (True, ReplicaIdentity.DEFAULT, ["id"], ["id", "price"]),
        (True, ReplicaIdentity.INDEX, ["id", "half"], ["id", "price", "half"]),
        (True, ReplicaIdentity.FULL, list(NAMES), ["id", "price"]),
    ],
    ids=["not asked", "skipped", "part of the key", "full"],
)
def test_generated_columns_are_skipped(
    wanted: bool, identity: ReplicaIdentity, key: list[str], landed: list[str]
) -> None:
    """They stay in gd_old, and in new rows where they identify a row."""
    schemas = Schemas()
    tables = Tables(
        schemas, lambda s, n: f"{s}.{n}", list, lambda _: catalog("id"), skip_generated=wanted
    )
    found = tables.find(relation(identity, *key))
    assert [name for name in found.schema.names if not name.startswith("gd_")] == landed
    assert [column["name"] for column in schemas.records[0]["columns"]] == landed
    assert [field.name for field in found.schema.field("gd_old").type] == key
    assert [NAMES[index] for index in sorted(found.skipped)] == [
        name for name in NAMES if name not in landed
    ]
    assert len(found.kinds()[0]) == len(NAMES) + len(key)  # the rows still have all of them


def test_without_the_catalogue_all_columns_land() -> None:
    """Nothing says then which are generated."""
    tables = Tables(Schemas(), lambda s, n: f"{s}.{n}", list, lambda _: None, skip_generated=True)
    found = tables.find(dataclasses.replace(relation(ReplicaIdentity.DEFAULT, "id"), version=2))
    assert not found.skipped
