"""Which columns of a relation land, and what the schema says of them."""

import dataclasses
from typing import Any

import pytest

from gaussdecode.collect.tables import Tables
from gaussdecode.model.columns import CONTRADICTED, DROPPED, GONE, NO_CATALOG, Attribute, Reading
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
            type_oid=20,
        )
        for number, name in enumerate(NAMES, 1)
    )
    attributes = tuple(
        Attribute(c.number, c.name, 20, -1, is_generated=c.is_generated, is_settled=True)
        for c in columns
    )
    reading = Reading(attributes, sends_generated=True)
    return CatalogTable(7, "public", "t", "r", "d", columns, reading=reading)


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


# ---- identities ------------------------------------------------------------------------------


class Server:
    """A table of ``bigint`` columns; the first is its key. The catalogue is asked when told."""

    def __init__(self, *names: str) -> None:
        self.there: dict[int, str] = dict(enumerate(names, 1))
        self.highest = len(names)
        self.settled = self.highest
        self.oid = 7
        self.is_reachable = True
        self.is_gone = False

    def add(self, name: str) -> None:
        self.highest += 1
        self.there[self.highest] = name

    def drop(self, name: str) -> None:
        del self.there[next(number for number, held in self.there.items() if held == name)]

    def rename(self, old: str, new: str) -> None:
        self.there = {number: new if name == old else name for number, name in self.there.items()}

    def sent(self, *names: str) -> Relation:
        """As the stream describes it, now or as it was."""
        columns = tuple(
            Column(name, 20, -1, "bigint", ColumnType(Kind.INT64), index == 0)
            for index, name in enumerate(names or self.there.values())
        )
        return Relation(1, self.oid, "public", "t", ReplicaIdentity.DEFAULT, columns)

    def look_up(self, relation: Relation) -> CatalogTable | None:
        if not self.is_reachable:
            return None
        attributes = tuple(
            Attribute(n, self.there.get(n, "..."), 20, -1, n not in self.there, is_settled=n == 1)
            for n in range(1, self.highest + 1)
        )
        columns = tuple(
            CatalogColumn(name, n, False, "bigint", False, False, None, 20)
            for n, name in self.there.items()
        )
        oid = 8 if self.is_gone else self.oid
        return CatalogTable(oid, "public", "t", "r", "d", columns, reading=Reading(attributes))


def numbers(schemas: Schemas) -> list[int | None]:
    """Of the columns of the newest schema."""
    return [column["attribute_number"] for column in schemas.records[-1]["columns"]]


def tables_of(server: Server, schemas: Schemas, earlier: dict[str, Any] | None = None) -> Tables:
    """Tables of a stream of this server."""
    return Tables(schemas, lambda s, n: f"{s}.{n}", list, server.look_up, lambda _: earlier)


def test_names_that_change_hands_are_followed() -> None:
    """One transaction adds a column and swaps names with it, and the catalogue is behind it all."""
    server, schemas = Server("id", "amount"), Schemas()
    tables = tables_of(server, schemas)
    tables.find(server.sent())
    server.add("amount_new")
    server.rename("amount", "amount_old")
    server.rename("amount_new", "amount")
    tables.find(server.sent("id", "amount", "amount_new"))
    assert numbers(schemas) == [1, 2, 3]
    tables.find(server.sent("id", "amount_old", "amount"))
    assert numbers(schemas) == [1, 2, 3]


def test_a_column_made_anew_is_another_one() -> None:
    """The same bytes on the wire: unknown as long as it may have been before or after."""
    server, schemas = Server("id", "v"), Schemas()
    tables = tables_of(server, schemas)
    first = tables.find(server.sent())
    assert tables.find(server.sent()) is first
    server.drop("v")
    server.add("v")
    assert tables.find(server.sent()) is not first
    assert numbers(schemas) == [1, None]
    assert schemas.records[-1]["unknown"]


def test_a_rename_while_nobody_reads_is_followed() -> None:
    """What the schema file of before proves is enough."""
    server, schemas = Server("id", "v"), Schemas()
    tables_of(server, schemas).find(server.sent())
    server.rename("v", "w")
    earlier = schemas.records[0]
    tables_of(server, schemas, earlier).find(server.sent())
    assert numbers(schemas) == [1, 2]
    server.oid = 9  # another table of the same name proves nothing about this one
    server.drop("w")
    server.add("w")
    tables_of(server, schemas, earlier).find(server.sent())
    assert numbers(schemas) == [1, None]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [("is_reachable", NO_CATALOG), ("is_gone", GONE), ("there", CONTRADICTED)],
)
def test_what_nobody_can_tell_is_unknown(spoil: str, reason: str) -> None:
    """No catalogue, another table, one that does not fit: no number is given."""
    server, schemas = Server("id", "v"), Schemas()
    sent = server.sent()
    if spoil == "there":
        server.there, server.highest = {1: "id"}, 1
    else:
        setattr(server, spoil, spoil == "is_gone")
    tables_of(server, schemas).find(sent)
    assert numbers(schemas) == [None, None]
    assert schemas.records[-1]["unknown"] == reason


def test_a_dropped_table_is_told_from_a_catalogue_that_is_away() -> None:
    """What its columns are can never be told, and readers need not wait for it."""
    server, schemas = Server("id", "v"), Schemas()
    sent = server.sent()
    gone = CatalogTable.missing("public", "t")
    Tables(schemas, "{}.{}".format, list, lambda _: gone).find(sent)
    assert numbers(schemas) == [None, None]
    assert schemas.records[-1]["unknown"] == DROPPED


@pytest.mark.parametrize("is_new", [False, True])
def test_a_commit_that_is_not_seen_yet_is_waited_for(*, is_new: bool) -> None:
    """It is sent when it is durable, and seen a moment later: a column, or all of the table, is missing at first."""
    server, schemas = Server("id", "v"), Schemas()
    server.add("w")
    asked: list[int] = []

    def look_up(relation: Relation) -> CatalogTable | None:
        asked.append(1)
        if len(asked) > 2:
            return server.look_up(relation)
        if is_new:
            return CatalogTable.missing("public", "t")
        behind = Server("id", "v")
        return behind.look_up(relation)

    Tables(schemas, "{}.{}".format, list, look_up).find(server.sent())
    assert (numbers(schemas), len(asked)) == ([1, 2, 3], 3)


def test_nobody_waits_again_where_it_did_not_help() -> None:
    """A stream that is behind may have many tables that are gone: one of them is asked for again, not all."""
    server, schemas, asked = Server("id"), Schemas(), list[int]()

    def look_up(_: Relation) -> CatalogTable | None:
        asked.append(1)
        return CatalogTable.missing("public", "t")

    tables = Tables(schemas, "{}.{}".format, list, look_up)
    for number in range(20):
        server.oid = number + 10
        tables.find(server.sent())
    assert len(asked) == 20 + 3


def test_key_of_full_identity_goes_by_number() -> None:
    """The primary key's column has another name in the catalogue by now."""
    server, schemas = Server("id", "v"), Schemas()
    full = dataclasses.replace(server.sent(), identity=ReplicaIdentity.FULL)
    there = server.look_up(full)
    assert there is not None
    renamed = dataclasses.replace(there.columns[0], name="number", key_position=0)
    reading = Reading(
        tuple(dataclasses.replace(a, is_settled=False) for a in there.reading.attributes)
        if there.reading
        else ()
    )
    newer = dataclasses.replace(there, columns=(renamed, *there.columns[1:]), reading=reading)
    Tables(schemas, lambda s, n: f"{s}.{n}", list, lambda _: newer).find(full)
    assert schemas.records[0]["key"] == ["id"]


@pytest.mark.parametrize("may_hide", [False, True])
def test_part_of_a_key_is_no_key(*, may_hide: bool) -> None:
    """A list of columns may leave out some of the primary key where only inserts are committed."""
    there, schemas = catalog("id", "price"), Schemas()
    assert there.reading is not None
    reading = dataclasses.replace(there.reading, may_hide=may_hide)
    newer = dataclasses.replace(there, reading=reading)
    whole = relation(ReplicaIdentity.DEFAULT, "id", "price")
    part = dataclasses.replace(
        relation(ReplicaIdentity.DEFAULT, "id"),
        columns=tuple(column for column in whole.columns if column.name != "price"),
    )
    for sent in (whole, part):
        Tables(schemas, lambda s, n: f"{s}.{n}", list, lambda _: newer).find(sent)
    assert [record["key"] for record in schemas.records] == [
        ["id", "price"],
        None if may_hide else ["id"],
    ]
