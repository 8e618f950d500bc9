"""The watch of a real server's catalogue: what is said, when, and what is remembered over a death."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kit.postgres import Database

from gaussdecode.daemon.catalogwatch import CatalogWatch
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import Connection, connect

pytestmark = pytest.mark.integration

Answer = TypeVar("Answer")


class Place:
    """A landing with a watch; `restart` is a new process, which knows what is written down alone."""

    def __init__(self, database: Database, root: Path) -> None:
        self.database = database
        self._store = SnapshotStore(Disk(Files(root), SpaceWait(), "test"))
        self._store.prepare()
        self.landed: set[str] = set()
        self.come: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """As after a death."""
        self.come.clear()
        self.watch = CatalogWatch(
            [self.database.publication],
            None,
            self,
            self._store,
            lambda _schema, _name: True,
            lambda _title, _oid: False,
            lambda directory: directory in self.landed,
        )

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
        return _texts(self.watch.check(lsn, emptied, (), lambda name: name in self.come))


def _texts(found: list[dict[str, Any]]) -> list[str]:  # Any: JSON
    return [f"{name}: {of['text']}" for each in found for name, of in each["changes"].items()]


@pytest.fixture
def place(database_15: Database, tmp_path: Path) -> Place:
    """With one table, that is known."""
    database_15.execute("CREATE TABLE a (id int PRIMARY KEY, t text); INSERT INTO a VALUES (1)")
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
    place.come.add("public.a")
    (said,) = place.check(before)
    assert "column t was changed" in said
    assert "column c" in said
    place.watch.recorded()
    place.restart()
    assert place.begin() == []


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
    place.come.add("public.a")
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


def test_a_table_made_anew_before_its_rows_have_come(place: Place) -> None:
    """Rows of the old one may come after the look, under the name of both."""
    before = place.database.wal_end()
    place.database.execute("DROP TABLE a")
    place.database.execute("CREATE TABLE a (id int PRIMARY KEY, t text)")
    assert place.check(before) == []
    place.come.add("public.a")
    assert place.check(before) == ["public.a: it was dropped and made anew"]


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
        place.come.add(came)
    named = {text.partition(":")[0] for text in place.check(before)}
    assert ("public.c" in named) == (came is not None)
    assert place.check() == []
    place.restart()
    assert place.begin() == []
