"""The watch of a real server's catalogue: what is said, when, and what is remembered over a death."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kit.postgres import Database

from gaussdecode.collect.descriptions import Descriptions
from gaussdecode.daemon.catalogwatch import CatalogWatch
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.columns import WireColumn
from gaussdecode.model.fingerprint import TableState
from gaussdecode.model.landing import Position
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import Connection, connect
from gaussdecode.source.postgresql.ddl import install_sql

pytestmark = pytest.mark.integration

Answer = TypeVar("Answer")


class Place:
    """A landing with a watch; `restart` is a new process, which knows what is written down alone."""

    def __init__(self, database: Database, root: Path) -> None:
        self.database = database
        self._store = SnapshotStore(Disk(Files(root), SpaceWait(), "test"))
        self._store.prepare()
        self.landed: set[str] = set()
        self.version = 0
        self.restart()

    def restart(self) -> None:
        """As after a death."""
        self.watch = CatalogWatch(
            [self.database.publication],
            None,
            self,
            self._store,
            lambda _schema, _name: True,
            lambda _title, _oid: False,
            lambda directory: directory in self.landed,
        )
        self.descriptions = Descriptions(self.watch.titles)

    def ask(self, question: Callable[[Connection], Answer], seconds: float) -> Answer:
        """As the daemon asks."""
        address = SourceAddress(
            f"{self.database.dsn} sslmode=disable", None, is_insecure_allowed=True
        )
        with connect(address, is_replication=False) as session:
            return question(session)

    def begin(self, lsn: int | None = None) -> list[str]:
        """Look at everything, all up to a position having landed; by default up to now."""
        return _texts(self.watch.begin(self.database.wal_end() if lsn is None else lsn))

    def check(self, lsn: int | None = None, emptied: Iterable[str] = ()) -> list[str]:
        """Look before an entry that has all up to a position; by default up to now."""
        lsn = self.database.wal_end() if lsn is None else lsn
        return _texts(self.watch.check(lsn, emptied, self.descriptions))

    def comes(self, title: str, oid: int = 0) -> None:
        """Rows of a table come; by default of the one that has the name."""
        self.descriptions.note_rows(title, self.relation(title, oid))

    def describes(self, *titles: str) -> None:
        """Tables are described, one after the other."""
        for title in titles:
            self.descriptions.note(self.relation(title))

    def relation(self, title: str, oid: int = 0) -> Relation:
        """The next description of a table; of OID 1 where there is none."""
        self.version += 1
        ((there,),) = self.database.execute(f"SELECT to_regclass('{title}')::oid::int8")
        schema, name = title.split(".")
        return Relation(
            self.version, oid or int(there or 1), schema, name, ReplicaIdentity.DEFAULT, ()
        )


def _texts(found: list[dict[str, Any]]) -> list[str]:  # Any: JSON
    return [f"{name}: {of['text']}" for each in found for name, of in each["changes"].items()]


@pytest.fixture
def place(database_15: Database, tmp_path: Path) -> Place:
    """With one table, that is known."""
    name = database_15.publication
    database_15.execute(
        f'DROP PUBLICATION "{name}"; '
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root);'
        "CREATE TABLE a (id int PRIMARY KEY, t text); INSERT INTO a VALUES (1)"
    )
    made = Place(database_15, tmp_path)
    assert made.begin() == []
    return made


def test_it_is_said_until_it_is_in_the_log(place: Place) -> None:
    """Once, where nobody dies; again, where nobody knows whether it was written."""
    place.landed.add("public.a")
    place.database.execute("ALTER TABLE a ALTER t TYPE varchar(3)")
    said = place.check()
    assert len(said) == 1
    assert said[0].startswith("public.a: the type of column t was changed")
    place.restart()
    assert place.begin() == said
    place.watch.recorded()
    assert place.check() == []
    place.restart()
    assert place.begin() == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_table_without_rows_is_named_once_some_come(place: Place, *, dies: bool) -> None:
    """They may be from before the change: the entry that has them comes after it was said."""
    before = place.database.wal_end()
    place.database.execute("ALTER TABLE a ALTER t TYPE varchar(3)")
    assert place.check(before) == []
    assert place.check(before) == []
    if dies:
        place.restart()
        assert place.begin(before) == []
    place.database.execute("ALTER TABLE a ADD c int DEFAULT random() * 9")
    place.comes("public.a")
    (said,) = place.check(before)
    assert "column t was changed" in said
    assert "column c" in said
    place.watch.recorded()
    place.restart()
    assert place.begin() == []


def test_a_truncate_beside_a_change_that_is_held_back(place: Place) -> None:
    """It landed: a start does not wait for it again. The change is still found."""
    place.database.execute("CREATE TABLE b (id int PRIMARY KEY)")
    assert place.check() == []
    place.landed.add("public.b")
    before = place.database.wal_end()
    place.database.execute("ALTER TABLE a ALTER t TYPE varchar(3)")
    assert place.check(before) == []
    place.database.execute("TRUNCATE b")
    assert place.check(before, ["public.b"]) == []
    place.restart()
    assert place.begin(before) == []
    place.comes("public.a")
    (said,) = place.check()
    assert said.startswith("public.a: the type of column t was changed")


@pytest.mark.parametrize("dies", [False, True])
def test_rows_from_after_a_change_need_no_word(place: Place, *, dies: bool) -> None:
    """All that the server had when the change was seen has come, and no row of the table was there."""
    before = place.database.wal_end()
    place.database.execute("ALTER TABLE a ALTER t TYPE varchar(3)")
    assert place.check(before) == []
    if dies:
        place.restart()
        assert place.begin(before) == []
    assert place.check() == []
    place.comes("public.a")
    assert place.check() == []
    place.restart()
    assert place.begin() == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_new_file_is_judged_when_all_has_come(place: Place, *, dies: bool) -> None:
    """By the TRUNCATE that explains it, if one came; a publication of all tables allows UNLOGGED."""
    place.landed.add("public.a")
    for emptied, wanted in ((["public.a"], 0), ([], 1)):
        before = place.database.wal_end()
        place.database.execute("TRUNCATE a" if emptied else "VACUUM FULL a")
        assert place.check(before) == []
        if dies:
            place.restart()
            assert place.begin(before) == []
        said = place.check(emptied=emptied)
        assert len(said) == wanted, said
        assert all("its file was replaced" in text for text in said)
        place.watch.recorded()
        place.restart()
        assert place.begin() == []


def test_a_truncate_that_comes_before_it_can_be_seen(place: Place) -> None:
    """It explains the file that the next look finds, and none after that."""
    place.landed.add("public.a")
    assert place.check(emptied=["public.a"]) == []
    place.database.execute("TRUNCATE a")
    assert place.check() == []
    place.database.execute("VACUUM FULL a")
    assert len(place.check() + place.check()) == 1


def test_a_table_made_anew_before_its_rows_have_come(place: Place) -> None:
    """Rows of the old one may come after the look, under the name of both."""
    before = place.database.wal_end()
    place.database.execute("DROP TABLE a")
    place.database.execute("CREATE TABLE a (id int PRIMARY KEY, t text)")
    assert place.check(before) == []
    place.comes("public.a")
    assert place.check(before) == ["public.a: it was dropped and made anew"]


def test_rows_of_a_table_that_nobody_saw(place: Place) -> None:
    """It was made and dropped between two looks, and another one has its name."""
    place.database.execute("CREATE TABLE n (id int PRIMARY KEY)")
    assert place.check() == []
    assert place.check() == []
    place.comes("public.n", 1)
    assert place.check() == ["public.n: it was dropped and made anew"]
    assert place.check() == []


@pytest.mark.parametrize("came", [None, "public.a", "public.b", "public.c"])
def test_a_renamed_table_is_named_where_rows_of_it_may_be_elsewhere(
    place: Place, came: str | None
) -> None:
    """Under any name that it had; a table that never had a row is renamed for nobody."""
    before = place.database.wal_end()
    for old, new in (("a", "b"), ("b", "c")):
        place.database.execute(f"ALTER TABLE {old} RENAME TO {new}")
        assert place.check(before) == []
    if came is not None:
        place.comes(came)
    named = {text.partition(":")[0] for text in place.check(before)}
    assert ("public.c" in named) == (came is not None)
    assert place.check() == []
    place.restart()
    assert place.begin() == []


_ROOT = (
    "CREATE TABLE n (id int, k int) PARTITION BY LIST (k);"
    "CREATE TABLE n_1 PARTITION OF n FOR VALUES IN (1); INSERT INTO n VALUES (1, 1)"
)
_ASIDE = "CREATE TABLE n_2 (id int, k int)"
_ATTACH = "ALTER TABLE n ATTACH PARTITION n_2 FOR VALUES IN (2)"
_NEW = "CREATE TABLE n (id int PRIMARY KEY, k int); INSERT INTO n VALUES (1, 1)"


@pytest.mark.parametrize("dies", [False, True])
def test_rows_that_came_under_the_name_of_one_transaction(place: Place, *, dies: bool) -> None:
    """A table was made, filled and renamed before it was seen: its rows are not under its name."""
    place.landed.add("public.a")
    place.database.execute(
        "BEGIN; CREATE TABLE n (id int PRIMARY KEY); ALTER TABLE a RENAME TO o; ALTER TABLE n RENAME TO a; COMMIT"
    )
    ((oid,),) = place.database.execute("SELECT 'a'::regclass::oid::int8")
    assert len(place.check()) == 2
    place.watch.recorded()
    place.comes("public.n", oid)
    assert place.check() == []
    for expected in (
        ["public.a: it had another name meanwhile, and rows from then are not under this one"],
        [],
    ):
        if dies:
            place.restart()
            assert place.begin() == []
        place.comes("public.a")
        assert place.check() == expected
        place.watch.recorded()


@pytest.mark.parametrize("dies", [False, True])
def test_a_renamed_table_is_named_once(place: Place, *, dies: bool) -> None:
    """Its first row under the new name tells nothing that was not said."""
    place.comes("public.a")
    place.landed.add("public.a")
    place.database.execute("ALTER TABLE a RENAME TO b")
    assert len(place.check()) == 1
    place.watch.recorded()
    if dies:
        place.restart()
        assert place.begin() == []
    place.comes("public.b")
    assert place.check() == []


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (_NEW, None),
        (f"{_NEW}; ALTER TABLE n ADD c int DEFAULT 7", None),
        (f"{_NEW}; CREATE INDEX ON n (k); ALTER TABLE n REPLICA IDENTITY FULL; ANALYZE n", None),
        (f"{_NEW}; ALTER TABLE n ADD c float DEFAULT random()", "its file was replaced"),
        (f"{_NEW}; ALTER TABLE n ALTER k TYPE int8 USING k * 2", "its file was replaced"),
        (f"{_NEW.replace('TABLE', 'UNLOGGED TABLE')}; ALTER TABLE n SET LOGGED", "its file was"),
        (_ROOT, None),
        (f"{_ROOT}; CREATE TABLE n_2 PARTITION OF n FOR VALUES IN (2)", None),
        (f"{_ROOT}; TRUNCATE n_1", "its file was replaced"),
        (
            f"{_ROOT}; {_ASIDE}; INSERT INTO n_2 VALUES (2, 2); {_ATTACH}",
            "partition public.n_2 was",
        ),
        (f"{_ROOT}; {_ASIDE}; {_ATTACH}", None),
    ],
)
def test_what_became_of_a_table_before_it_was_seen(
    place: Place, made: str, text: str | None
) -> None:
    """It was made since the look before, as is seen by its files; rows of it have come."""
    for statement in made.split(";"):
        place.database.execute(statement)
    place.comes("public.n")
    said = place.check() + place.check()
    assert len(said) == (text is not None), said
    assert all(each.startswith(f"public.n: {text}") for each in said)


@pytest.mark.parametrize("end", ["DROP TABLE n_1", "ALTER TABLE n DETACH PARTITION n_1", ""])
@pytest.mark.parametrize("is_seen", [False, True])
def test_rows_of_a_partition_that_the_table_does_not_have(
    place: Place, *, end: str, is_seen: bool
) -> None:
    """Dropped or detached before any look, or after one."""
    for statement in _ROOT.split(";"):
        place.database.execute(statement)
    place.comes("public.n")
    place.describes("public.n", "public.n_1")
    if is_seen:
        assert place.check() == []
    if end:
        place.database.execute(end)
    said = {text.partition(":")[0] for text in place.check()}
    assert said == {"": set(), "D": {"public.n"}, "A": {"public.n", "public.n_1"}}[end[:1]]
    assert place.check() == []


def test_a_state_is_unpacked_once_for_many_partitions(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look without news unpacks none: one with ten thousand partitions takes a tenth of a second."""
    for statement in _ROOT.split(";"):
        place.database.execute(statement)
    place.comes("public.n")
    place.describes(*["public.n", "public.n_1"] * 20)
    assert place.check() == []
    unpacked: list[str] = []
    read = TableState.from_record

    def noted(oid: int, record: dict[str, Any]) -> TableState:  # Any: JSON
        unpacked.append(record["name"])
        return read(oid, record)

    monkeypatch.setattr(TableState, "from_record", noted)
    assert place.check() == []
    assert unpacked == []
    place.describes(*["public.n", "public.n_1"] * 20)
    assert place.check() == []
    assert unpacked.count("n") == 1


def test_rows_that_no_stream_had_are_named_without_others(place: Place) -> None:
    """A table that gets its rows by ATTACH PARTITION lacks them, when its first row comes, too."""
    for statement in (_ROOT.partition(";")[0], _ASIDE, "INSERT INTO n_2 VALUES (2, 2)", _ATTACH):
        place.database.execute(statement)
    (said,) = place.check()
    assert said.startswith("public.n: partition public.n_2 was attached, with the rows")
    assert place.check() == []


def test_a_table_that_is_described_after_a_truncate_is_no_partition(place: Place) -> None:
    """TRUNCATE describes the partitioned table itself, and any other may come next."""
    place.database.execute(_ROOT.partition(";")[0])
    assert place.check() == []
    place.comes("public.n")
    place.comes("public.a")
    place.describes("public.n", "public.a")
    assert place.check(emptied=["public.n"]) == []
    place.database.execute("CREATE TABLE b (id int PRIMARY KEY)")
    place.describes("public.n", "public.b")
    assert place.check() == []


def test_nothing_that_is_said_of_a_table_hides_another(place: Place) -> None:
    """A partition came with rows, and another one came and went."""
    for statement in (_ROOT.partition(";")[0], _ASIDE, "INSERT INTO n_2 VALUES (2, 2)", _ATTACH):
        place.database.execute(statement)
    place.describes("public.n", "public.n_1")
    (said,) = place.check()
    assert "partition public.n_2 was attached, with the rows" in said
    assert "partition public.n_1 was attached, detached or dropped meanwhile" in said


def test_a_partition_that_came_and_was_emptied_before_it_was_seen(place: Place) -> None:
    """Its rows came, and its file is not the one that it was made with."""
    for statement in _ROOT.split(";"):
        place.database.execute(statement)
    place.comes("public.n")
    assert place.check() == []
    for statement in ("CREATE TABLE n_2 PARTITION OF n FOR VALUES IN (2)", "TRUNCATE n_2"):
        place.database.execute(statement)
    (said,) = place.check()
    assert said.startswith("public.n: its file was replaced")


def test_recorded_ddl_gives_the_place(place: Place) -> None:
    """A change says since where, once its command has come; columns that are not true are told of."""
    place.landed.add("public.a")
    place.database.execute(install_sql())
    ((oid,),) = place.database.execute("SELECT 'a'::regclass::oid::int8")
    assert place.check() == []
    assert place.check() == []
    wire = [WireColumn("id", 23, -1), WireColumn("t", 25, -1)]
    assert place.watch.ddl.numbers(oid, wire) == (1, 2)
    place.database.execute("ALTER TABLE a ALTER t TYPE varchar(3)")
    command = {"version": 1, "object_type": "table", "oid": oid, "object_count": 1}
    place.watch.ddl.take(json.dumps(command).encode(), Position(7, 2))
    (extra,) = place.watch.check(place.database.wal_end(), (), place.descriptions)
    assert extra["changes"]["public.a"]["since"] == [7, 2]
    place.watch.recorded()
    forged = [{"attribute_number": 1, "name": "id", "type_oid": 23, "type_modifier": -1}]
    place.watch.ddl.take(json.dumps(command | {"columns": forged}).encode(), Position(9, 0))
    place.watch.ddl.believed(oid)
    place.database.execute("ALTER TABLE a ADD c int")
    found = [*place.check(), *place.check()]
    assert len(found) == 1
    assert "forged" in found[0]


def test_recorded_ddl_tells_a_plain_conversion(place: Place) -> None:
    """A wider type is no doubt once its command has come; USING is, and so is what has not come."""
    place.landed.add("public.a")
    place.database.create_slot("ddl_watch", "test_decoding")
    place.database.execute(install_sql())
    assert [*place.check(), *place.check()] == []

    def run(statement: str) -> list[str]:
        place.database.execute(statement)
        got = place.database.execute(
            "SELECT data FROM pg_logical_slot_get_changes('ddl_watch', NULL, NULL) WHERE data LIKE 'message%'"
        )
        for (data,) in got:
            place.watch.ddl.take(data.partition("content:")[2].encode(), Position(7, 2))
        return place.check()

    try:
        assert run("ALTER TABLE a ADD c smallint, ADD v varchar(9), ADD x int") == []
        assert run("ALTER TABLE a ALTER c TYPE integer, ALTER v TYPE text") == []
        same = "BEGIN; ALTER TABLE a ALTER c TYPE bigint; COMMENT ON TABLE a IS 'x'; COMMIT"
        assert run(same) == []
        assert "column c was altered" in str(run("ALTER TABLE a ALTER c TYPE bigint USING c * 2"))
        added = "ALTER TABLE a ADD n int DEFAULT 5, ADD m int; ALTER TABLE a ALTER v TYPE"
        assert run("ALTER TABLE a ADD w smallint") == []
        assert run(f"BEGIN; {added} varchar(9) USING 'x'; COMMIT") != []
        place.watch.recorded()
        added = (
            added.replace("ADD n", "ADD p").replace("ADD m", "ADD o").replace("ALTER v", "ALTER w")
        )
        assert run(f"BEGIN; {added} integer; COMMIT") == []
        ((oid, number),) = place.database.execute(
            "SELECT attrelid::int8, attnum::int4 FROM pg_attribute WHERE attname = 'p' AND NOT atthasmissing"
        )
        assert place.watch.ddl.constants(oid) == {number: "5"}
        place.restart()
        assert place.begin(0) == [], "an entry that was to follow was never written"
        assert place.watch.ddl.constants(oid) == {number: "5"}
        assert place.check() == []
        place.database.execute("ALTER TABLE a ALTER x TYPE bigint")
        assert "column x was changed (was integer, is bigint)" in str(place.check())
    finally:
        place.database.execute("SELECT pg_drop_replication_slot('ddl_watch')")
