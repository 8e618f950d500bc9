"""Versions of relations from rows of GaussDB and its catalogue."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from gaussdecode.errors import LostRowError, SourceError, SourceRefusedError
from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.shape import Shape, ShapeColumn
from gaussdecode.model.types import Kind
from gaussdecode.source.catalog import CatalogColumn, CatalogTable
from gaussdecode.source.gaussdb._spill import Spill
from gaussdecode.source.gaussdb.catalog import CatalogType
from gaussdecode.source.gaussdb.identity import Nulls
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.relations import WhiteList

TABLE = ("s", "t")
MONEY = (12 << 16 | 2) + 4  # numeric(12,2)


def column(
    name: str, oid: int, text: str, key: int | None = None, modifier: int = -1
) -> CatalogColumn:
    """A column as the catalogue has it."""
    return CatalogColumn(
        name=name, number=1, is_toastable=False, type_text=text, is_not_null=key is not None,
        is_generated=False, key_position=key, type_oid=oid, type_modifier=modifier,
    )  # fmt: skip


COLUMNS = (
    column("id", 23, "integer", 0),
    column("amount", 1700, "numeric(12,2)", modifier=MONEY),
    column("mood", 20000, "s.mood"),
    column("size", 20001, "s.size"),
    column("note", 90, "clob"),
)
TYPES = {
    20000: CatalogType(20000, "s", "mood", "e", 20000, -1, 0, "E"),
    20001: CatalogType(20001, "s", "size", "d", 23, -1, 0, "N"),
    23: CatalogType(23, "pg_catalog", "int4", "b", 23, -1, 0, "N"),
}


class Catalog:
    """What the catalogue answers; `table` may be changed, as a table may."""

    def __init__(self, table: CatalogTable | None) -> None:
        self.table = table
        self.failure: Exception | None = None

    def look_up_table(self, schema: str, name: str) -> CatalogTable | None:
        """Answer."""
        if self.failure is not None:
            raise self.failure
        table = self.table
        return table if table is not None and (table.schema, table.name) == (schema, name) else None

    def types(self, oids: Iterable[int]) -> Mapping[int, CatalogType]:
        """Answer, with the bases of domains."""
        found = {oid: TYPES[oid] for oid in oids if oid in TYPES}
        return found | {each.base_oid: TYPES[each.base_oid] for each in found.values()}


def described(identity: str = "d", columns: tuple[CatalogColumn, ...] = COLUMNS) -> CatalogTable:
    """The table as it is now."""
    return CatalogTable(555, *TABLE, "r", identity, columns, ("amount",))


def shape(
    op: str = "I",
    new: Iterable[CatalogColumn] | None = COLUMNS,
    old: Iterable[CatalogColumn] | None = None,
    *,
    named: bool = False,
) -> Shape:
    """The shape of a row of these columns, types by OID or by name."""

    def listed(columns: Iterable[CatalogColumn] | None) -> tuple[ShapeColumn, ...] | None:
        if columns is None:
            return None
        if named:
            names = {"numeric(12,2)": "numeric", "clob": "text", "s.mood": "mood"}
            return tuple(
                ShapeColumn(c.name, 0, names.get(c.type_text, c.type_text)) for c in columns
            )
        return tuple(ShapeColumn(c.name, c.type_oid) for c in columns)

    return Shape((TABLE,), op, listed(new), listed(old))


def key_of(relations: GaussRelations, of: Shape) -> tuple[str, list[str]]:
    """Define a shape; the identity that comes out."""
    relation = relations.define(of).relation
    return relation.identity.value, [c.name for c in relation.columns if c.is_identity]


def test_types_modifiers_key_and_oid() -> None:
    """The catalogue completes what the row says; user types by name, domains by base."""
    relation = GaussRelations(WhiteList(), Catalog(described())).define(shape()).relation
    assert (relation.oid, relation.is_oid_known, relation.version) == (555, True, 1)
    assert [(c.name, c.type_name, c.type.kind) for c in relation.columns] == [
        ("id", "integer", Kind.INT32),
        ("amount", "numeric", Kind.DECIMAL),
        ("mood", "s.mood", Kind.STRING),
        ("size", "integer", Kind.INT32),
        ("note", "clob", Kind.STRING),
    ]
    assert (relation.columns[1].type.precision, relation.columns[1].type.scale) == (12, 2)
    assert [c.is_identity for c in relation.columns] == [True, False, False, False, False]


@pytest.mark.parametrize("op", ["I", "D"])
def test_styles_give_the_same_relation(op: str) -> None:
    """Types by OID or by name, an insert or a delete first: the same version."""
    new, old = (COLUMNS, None) if op == "I" else (None, COLUMNS[:1])
    by_oid, by_name = (
        GaussRelations(WhiteList(), Catalog(described())).define(shape(op, new, old, named=named))
        for named in (False, True)
    )
    whole = GaussRelations(WhiteList(), Catalog(described())).define(shape())
    assert by_oid.relation == by_name.relation == whole.relation


def test_without_a_catalogue() -> None:
    """Types by OID or name still hold; numerics are text and the OID is our own."""
    for named in (False, True):
        relation = GaussRelations(WhiteList()).define(shape(named=named)).relation
        kinds = [c.type.kind for c in relation.columns]
        assert kinds == [Kind.INT32, *[Kind.STRING] * 4]
        assert not relation.is_oid_known
        assert [c.is_identity for c in relation.columns] == [False] * 5


def test_type_that_changed_since() -> None:
    """A column whose type is another now is of the type that the row says."""
    was = (COLUMNS[0], dataclasses.replace(COLUMNS[1], type_oid=23, type_text="integer"))
    for named in (False, True):
        relations = GaussRelations(WhiteList(), Catalog(described()))
        relation = relations.define(shape("I", was, named=named)).relation
        assert [c.type.kind for c in relation.columns] == [Kind.INT32, Kind.INT32]


def test_repeats_are_no_versions() -> None:
    """A shape that says nothing new gives the version that is there."""
    relations = GaussRelations(WhiteList(), Catalog(described()))
    first = relations.define(shape())
    again = [relations.define(of) for of in (
        shape(), shape("U", COLUMNS, COLUMNS[:1]), shape("D", None, COLUMNS[:1]),
        shape(named=True), shape("T", None),
    )]  # fmt: skip
    assert first.is_new
    assert not any(definition.is_new for definition in again)
    assert {definition.relation for definition in again} == {first.relation}


def test_modifiers_outlive_the_table() -> None:
    """A table dropped since keeps the modifiers that were known."""
    catalog = Catalog(described())
    relations = GaussRelations(WhiteList(), catalog)
    first = relations.define(shape()).relation
    catalog.table = None
    definition = relations.define(shape("U", COLUMNS, COLUMNS[:1]))
    assert not definition.is_new
    assert definition.relation == first


def test_failing_catalogue_is_passed_on() -> None:
    """Nothing is defined by guess while the catalogue is ill, and all is well afterwards."""
    catalog = Catalog(described())
    catalog.failure = SourceError("reading the catalogue: gone")
    relations = GaussRelations(WhiteList(), catalog)
    with pytest.raises(SourceError, match="gone"):
        relations.define(shape())
    catalog.failure = None
    assert relations.define(shape()).relation.version == 1


@pytest.mark.parametrize(
    ("identity", "expected"),
    [("d", ("d", ["id"])), ("i", ("i", ["amount"])), ("n", ("n", [])),
     ("f", ("f", ["id", "amount", "mood", "size", "note"]))],
)  # fmt: skip
def test_declared_identity(identity: str, expected: tuple[str, list[str]]) -> None:
    """Until an old tuple is seen, what is declared is believed."""
    assert key_of(GaussRelations(WhiteList(), Catalog(described(identity))), shape()) == expected


def test_old_tuples_overrule_the_catalogue() -> None:
    """The catalogue is newer than the WAL; the tuple is as old as the row."""
    every = [c.name for c in COLUMNS]
    relations = GaussRelations(WhiteList(), Catalog(described("d")))
    assert key_of(relations, shape("U", COLUMNS, COLUMNS)) == ("f", every)
    assert key_of(relations, shape("I")) == ("f", every)
    assert key_of(relations, shape("D", None, COLUMNS[1:2])) == ("i", ["amount"])
    assert key_of(relations, shape("U", COLUMNS, COLUMNS[:1])) == ("d", ["id"])
    relations = GaussRelations(WhiteList(), Catalog(described("n")))
    assert key_of(relations, shape("U", COLUMNS, COLUMNS[:1])) == ("d", ["id"])
    assert key_of(relations, shape("D", None, None)) == ("n", [])
    assert key_of(relations, shape("U", COLUMNS, COLUMNS[:1])) == ("d", ["id"])


@pytest.mark.parametrize(
    ("identity", "nulls", "has_key", "is_speculative"),
    [
        ("d", Nulls.SENT, True, True),
        ("d", Nulls.SENT, False, False),  # its deletes have no old tuple
        ("i", Nulls.SENT, False, True),
        ("n", Nulls.SENT, True, False),
        ("f", Nulls.SENT, False, True),  # a row without a key is sent whole, its NULLs too
        ("f", Nulls.LEFT_OUT, False, True),  # a row of NULLs is an old tuple without columns
        ("f", Nulls.HIDDEN, False, False),  # it may be a row of NULLs
        ("f", Nulls.HIDDEN, True, True),  # a key has none
    ],
)
def test_a_delete_that_takes_back(
    identity: str, nulls: Nulls, *, has_key: bool, is_speculative: bool
) -> None:
    """Where deletes have an old tuple, one without says nothing of the table's identity."""
    columns = tuple(
        dataclasses.replace(c, key_position=c.key_position if has_key else None) for c in COLUMNS
    )
    relations = GaussRelations(WhiteList(), Catalog(described(identity, columns)), nulls=nulls)
    before = relations.define(shape("I"))
    found = relations.define(shape("D", None, None))
    assert found.is_speculative == is_speculative
    assert found.is_new == (
        not is_speculative and before.relation.identity != found.relation.identity
    )
    if is_speculative:
        assert found.relation == before.relation


def test_nobody_knows_what_a_delete_takes_back_without_a_catalogue() -> None:
    """What an old tuple showed before may not hold any more."""
    relations = GaussRelations(WhiteList())
    relations.define(shape("U", COLUMNS, COLUMNS[:1]))
    assert not relations.define(shape("D", None, None)).is_speculative


def test_key_of_all_columns_is_a_key() -> None:
    """A table whose columns are all of its key has not REPLICA IDENTITY FULL."""
    columns = (column("a", 23, "integer", 0), column("b", 23, "integer", 1))
    relations = GaussRelations(WhiteList(), Catalog(described("d", columns)))
    assert key_of(relations, shape("U", columns, columns)) == ("d", ["a", "b"])


def test_identity_outlives_a_new_column() -> None:
    """Columns that are added belong to a full identity, and to no key."""
    every = [c.name for c in COLUMNS]
    for old, expected in ((COLUMNS[:4], ("f", every)), (COLUMNS[:1], ("d", ["id"]))):
        relations = GaussRelations(WhiteList())
        relations.define(shape("U", COLUMNS[:4], old))
        assert key_of(relations, shape("I", COLUMNS)) == expected


def test_gaps_are_proved() -> None:
    """Under FULL, the key and more, or no key at all, is a full tuple without its NULLs."""
    catalog = Catalog(described("f"))
    relations = GaussRelations(WhiteList(), catalog)
    assert relations.define(shape("U", COLUMNS, COLUMNS[:2])).has_gaps
    without = tuple(dataclasses.replace(c, key_position=None) for c in COLUMNS)
    relations = GaussRelations(WhiteList(), Catalog(described("f", without)))
    assert relations.define(shape("U", without, without[:1])).has_gaps


@pytest.mark.parametrize("catalog", [Catalog(described("f")), None])
def test_gaps_are_learnt(catalog: Catalog | None) -> None:
    """A table that goes back and forth between its key and all has gaps in the end."""
    relations = GaussRelations(WhiteList(), catalog)
    definitions = [
        relations.define(shape("U", COLUMNS, COLUMNS[:1] if number % 2 else COLUMNS))
        for number in range(12)
    ]
    assert definitions[1].relation.identity is ReplicaIdentity.DEFAULT
    assert not definitions[1].has_gaps
    assert all(d.has_gaps for d in definitions[-4:])
    assert [d.relation.identity.value for d in definitions[-4:]] == ["f"] * 4
    assert not any(d.is_new for d in definitions[-4:])


def test_tables_of_the_same_oid() -> None:
    """A renamed table's OID is given once; names keep apart what decoders must."""
    table = described()
    catalog = Catalog(table)
    relations = GaussRelations(WhiteList(), catalog)
    first = relations.define(shape()).relation
    catalog.table = dataclasses.replace(table, name="u")
    other = relations.define(dataclasses.replace(shape(), tables=(("s", "u"),))).relation
    assert (first.oid, first.is_oid_known) == (555, True)
    assert other.oid != 555
    assert not other.is_oid_known


def test_lost_rows_name_the_table() -> None:
    """Without columns, of a table that has some; the operator is told what to do."""
    relations = GaussRelations(WhiteList(), Catalog(described()))
    for of in (shape("I", ()), shape("U", COLUMNS, ()), shape("D", None, ()), shape("I", None)):
        with pytest.raises(LostRowError, match=r"s\.t .*new snapshot"):
            relations.define(of)


def test_sql_takes_names_in_order() -> None:
    """An insert that names nothing has the catalogue's columns, or those known before."""
    unnamed = Shape((TABLE,), "I", (ShapeColumn(""),) * 5, None)
    catalog = Catalog(described())
    relations = GaussRelations(WhiteList(), catalog)
    whole = GaussRelations(WhiteList(), Catalog(described())).define(shape()).relation
    assert relations.define(unnamed).relation == whole
    catalog.table = None
    assert relations.define(unnamed).relation == whole
    with pytest.raises(LostRowError, match="does not have it"):
        relations.define(Shape((TABLE,), "I", (ShapeColumn(""),) * 4, None))


def test_ambiguous_names() -> None:
    """Known tables decide first, then the catalogue by columns; two that fit are an error."""
    names = (("a", "b c"), ("a b", "c"))
    of = dataclasses.replace(shape(), tables=names)
    relations = GaussRelations(
        WhiteList(), Catalog(dataclasses.replace(described(), schema="a b", name="c"))
    )
    assert (relations.define(of).relation.namespace, relations.define(of).relation.name) == names[1]
    with pytest.raises(SourceRefusedError, match="None of these exist"):
        GaussRelations(WhiteList(), Catalog(None)).define(of)
    with pytest.raises(SourceRefusedError, match="Several of these exist"):
        GaussRelations(WhiteList()).define(of)


def test_versions_that_wait_on_disk(tmp_path: Path) -> None:
    """Above the limit quiet tables leave memory, and are the same when they come back."""
    spill = Spill(2000, str(tmp_path))
    relations = GaussRelations(WhiteList(), None, spill)
    shapes = [dataclasses.replace(shape("U", COLUMNS, COLUMNS[:1]), tables=(("s", f"t{number}"),))
              for number in range(40)]  # fmt: skip
    first = [relations.define(each) for each in shapes]
    again = [relations.define(each) for each in shapes]
    assert [d.relation for d in again] == [d.relation for d in first]
    assert not any(d.is_new for d in again)
    assert spill.held_bytes <= 2000
    assert spill.eviction_count >= 60
    assert list(tmp_path.iterdir()) == []


def test_disk_that_fails(tmp_path: Path) -> None:
    """What the disk will not take counts as never seen."""
    spill = Spill(1, str(tmp_path / "missing"))
    spill.put(("s", "a"), {"n": 1})
    spill.put(("s", "b"), {"n": 2})
    assert (spill.get(("s", "a")), spill.get(("s", "b"))) == (None, {"n": 2})


def test_spill_keeps_the_newest(tmp_path: Path) -> None:
    """A record replaces the one on disk."""
    spill = Spill(12, str(tmp_path))
    for number in range(3):
        spill.put(("s", "a"), {"n": number})
        spill.put(("s", "b"), {"n": number + 10})
    assert (spill.get(("s", "a")), spill.get(("s", "b"))) == ({"n": 2}, {"n": 12})
