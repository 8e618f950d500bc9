"""Tests for `gaussdecode.snapshot.renames`."""

from pathlib import Path

import pytest

from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.files import Files
from gaussdecode.land.snapshots import WHY_STOPPED, Json, SnapshotStore
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.settings.landing_sections import SnapshotConfig
from gaussdecode.snapshot.choice import ALL, Choice, Chooser, stopped
from gaussdecode.snapshot.renames import followed

IDENTITY = SourceIdentity("postgresql", "7", "shop", "orders", "pgoutput")
ILL: Json = {"state": "quarantined", "oid": 1, "reason": "bad", WHY_STOPPED: "bad"}
ASKED: Json = {"state": "asked", "oid": 1, "n": 5, "request": "r"}
ENTRY = 9  # the last one


def done(oid: int) -> Json:
    """Of a table whose rows have landed."""
    return {"state": "done", "oid": oid, "n": 3, "lsn": 7, "rows": 1}


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    """A ledger of a landing whose first tables are not known."""
    tmp_path.joinpath("landing").mkdir(mode=0o750)
    store = SnapshotStore(CommitLog.open(Files(tmp_path / "landing"), IDENTITY).disk)
    store.prepare()
    store.note({ALL: {"state": "listed", "mode": "initial", "tables": {}}})
    return store


def follow(store: SnapshotStore, **tables: int) -> Json:
    """Let tables have these OIDs in the catalogue; gives what is decided of them."""
    oids = {f"s.{name}": oid for name, oid in tables.items()}
    records = followed(store.ledger(), oids, ENTRY)
    if records:
        store.note(records)
    assert followed(store.ledger(), oids, ENTRY + 1) == {}  # all of it, at once
    return store.ledger()


def chosen(ledger: Json, title: str, oid: int, **settings: str) -> tuple[Choice, bool]:
    """What becomes of the rows of a table, and whether its changes are left out."""
    chooser = Chooser(SnapshotConfig(**settings), ledger)  # type: ignore[arg-type]
    return chooser.choose(title, oid), chooser.leaves_out(title, oid)


def states(ledger: Json) -> dict[str, tuple[str | None, int | None]]:
    """State and OID by name."""
    return {
        title.removeprefix("s."): (of.get("state"), of.get("oid"))
        for title, of in ledger.items()
        if title != ALL
    }


@pytest.mark.parametrize("setting", ["ignore", "stream", "initial"])
def test_a_healthy_table_that_exchanged_its_name(store: SnapshotStore, setting: str) -> None:
    """It is not new: its rows come under the name of now, as those of every renamed table."""
    store.note({"s.a": ILL, "s.b": done(2)})
    ledger = follow(store, a=2, b=1)
    assert states(ledger) == {"a": ("renamed", 2), "b": ("quarantined", 1)}
    assert stopped(ledger) == {"s.b": "bad"}
    assert chosen(ledger, "s.a", 2, on_new_table=setting) == (Choice.LAND, False)
    assert chosen(ledger, "s.a", 2, on_new_table=setting, mode="none") == (Choice.LEAVE, False)
    assert chosen(ledger, "s.b", 1, on_new_table=setting) == (Choice.LEAVE, True)
    assert "renamed" in follow(store, a=1, b=2)["s.b"]["state"]  # back: rows of between are missing


def test_three_names_that_went_around(store: SnapshotStore) -> None:
    """Every record stands where its table is."""
    store.note({"s.a": ILL, "s.b": done(2), "s.c": {"state": "ignored", "oid": 3}, "s.d": done(4)})
    ledger = follow(store, b=1, c=2, a=3, d=4)
    assert states(ledger) == {
        "a": ("ignored", 3),
        "b": ("quarantined", 1),
        "c": ("renamed", 2),
        "d": ("done", 4),
    }
    assert chosen(ledger, "s.a", 3) == (Choice.LEAVE, True)  # until it is asked for


def test_a_name_of_a_table_that_misses_changes(store: SnapshotStore) -> None:
    """What is known of it goes on with it; where it is not published any more, there is no place for it."""
    gone: Json = {"state": "missed", "oid": 2, "n": 4}
    store.note({"s.a": ILL, "s.b": gone})
    ledger = follow(store, b=1, c=2)
    assert states(ledger) == {"a": (None, None), "b": ("quarantined", 1), "c": ("missed", 2)}
    assert chosen(ledger, "s.c", 2, on_new_table="ignore") == (Choice.LAND, False)
    store.note({"s.d": gone})
    assert states(follow(store, d=1)) == {
        "a": (None, None),
        "b": (None, None),
        "c": ("missed", 2),
        "d": ("quarantined", 1),
    }


def test_a_table_that_was_only_renamed(store: SnapshotStore) -> None:
    """The name that it had is free: another table that takes it is a new one."""
    store.note({"s.a": ILL, "s.b": done(2)})
    ledger = follow(store, c=1, d=2)
    assert states(ledger) == {"a": (None, None), "b": ("done", 2), "c": ("quarantined", 1)}
    assert stopped(ledger) == {"s.c": "bad"}
    assert chosen(ledger, "s.d", 2, on_new_table="ignore") == (Choice.LAND, False)
    assert chosen(ledger, "s.a", 5, on_new_table="ignore") == (Choice.IGNORE, True)
    assert ledger["s.a"]["n"] == ledger["s.c"]["n"] == ENTRY  # no earlier snapshot is of this table


@pytest.mark.parametrize("oid", [1, 8])
def test_a_table_that_was_asked_for_by_its_new_name(store: SnapshotStore, oid: int) -> None:
    """It stays asked for, and stands still until its rows have come."""
    store.note({"s.a": ILL, "s.b": {**ASKED, "oid": oid}})
    ledger = follow(store, b=1)
    assert ledger["s.b"] == {**ASKED, WHY_STOPPED: "bad"}
    assert chosen(ledger, "s.b", 1) == (Choice.LAND, False)


def test_a_table_that_was_asked_for_by_its_former_name(store: SnapshotStore) -> None:
    """Its rows have not come yet, and another table has the name."""
    store.note({"s.a": {**ASKED, WHY_STOPPED: "bad"}, "s.b": done(2)})
    ledger = follow(store, a=2, b=1)
    assert states(ledger) == {"a": ("renamed", 2), "b": ("asked", 1)}
    assert stopped(ledger) == {"s.b": "bad"}


def test_a_record_of_the_table_under_its_name_of_now(store: SnapshotStore) -> None:
    """It is newer than what would come from a former name; but no table lands that stands still."""
    store.note({"s.a": ILL, "s.b": done(2), "s.c": done(2)})
    assert states(follow(store, b=1, c=2)) == {
        "a": (None, None),
        "b": ("quarantined", 1),
        "c": ("done", 2),
    }
    store.note({"s.a": {**ILL, "reason": "worse"}, "s.b": done(1)})
    ledger = follow(store, b=1, c=2)
    assert ledger["s.b"]["reason"] == "worse"


def test_without_a_quarantine_nothing_moves(store: SnapshotStore) -> None:
    """A decision for a title stays where the table is healthy."""
    store.note({"s.a": done(1), "s.b": done(2)})
    assert followed(store.ledger(), {"s.a": 2, "s.b": 1}, ENTRY) == {}
