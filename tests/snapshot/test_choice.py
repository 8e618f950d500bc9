"""Tests for `gaussdecode.snapshot.choice` and how a table's progress is told."""

from typing import Any

import pytest

from gaussdecode.daemon.publications import KEY as PUBLICATIONS
from gaussdecode.settings.landing_sections import SnapshotConfig
from gaussdecode.snapshot.choice import (
    ALL,
    Beginning,
    Choice,
    Chooser,
    Origin,
    begin,
    tables_of,
)
from gaussdecode.snapshot.doubts import KEY as SUSPECTS
from gaussdecode.snapshot.item import Progress

Json = dict[str, Any]  # Any: JSON
_OLD, _NEW = ("s.old", 1), ("s.new", 2)


def _ledger(origin: str = "initial", **records: Json) -> Json:
    beginning = Beginning(Origin(origin), {"s.old": 1})
    tables = {f"s.{name}": record for name, record in records.items()}
    return {ALL: beginning.to_record(), **tables}


@pytest.mark.parametrize(
    ("settings", "origin", "old", "new"),
    [
        ({}, "initial", Choice.LAND, Choice.LAND),
        ({}, "earlier", Choice.LEAVE, Choice.LEAVE),
        ({}, "none", Choice.LEAVE, Choice.LEAVE),
        ({"mode": "none"}, "none", Choice.LEAVE, Choice.LEAVE),
        ({"mode": "only"}, "initial", Choice.LAND, Choice.LAND),
        ({"on_new_table": "stream"}, "initial", Choice.LAND, Choice.STREAM),
        ({"on_new_table": "ignore"}, "initial", Choice.LAND, Choice.IGNORE),
        ({"on_new_table": "ignore", "mode": "none"}, "none", Choice.LEAVE, Choice.IGNORE),
        ({"on_new_table": "stream"}, "earlier", Choice.LEAVE, Choice.LEAVE),
        ({"tables": (("s.old", "none"),)}, "initial", Choice.LEAVE, Choice.LAND),
        ({"tables": (("s.*", "initial"),), "mode": "none"}, "none", Choice.LAND, Choice.LAND),
        ({"tables": (("s.old", "initial"),)}, "earlier", Choice.LAND, Choice.LEAVE),
    ],
)
def test_choice(settings: Json, origin: str, old: Choice, new: Choice) -> None:
    """A table of the beginning and a new one, by what is set and how the landing began."""
    chooser = Chooser(SnapshotConfig(**settings), _ledger(origin))
    assert chooser.choose(*_OLD) is old
    assert chooser.choose(*_NEW) is new


@pytest.mark.parametrize(
    ("record", "choice"),
    [
        ({"state": "done", "oid": 1}, Choice.LEAVE),
        ({"state": "done", "oid": 77}, Choice.LAND),
        ({"state": "streamed", "oid": 1}, Choice.LEAVE),
        ({"state": "ignored", "oid": 1}, Choice.LEAVE),
        ({"state": "ignored", "oid": None}, Choice.LEAVE),
        ({"state": "asked", "oid": 1}, Choice.LAND),
        ({"state": "failed"}, Choice.LAND),
    ],
)
def test_what_was_decided_stays(record: Json, choice: Choice) -> None:
    """A record counts for its table, not for one that has taken its name."""
    chooser = Chooser(SnapshotConfig(), _ledger(old=record))
    assert chooser.choose(*_OLD) is choice


def test_left_out() -> None:
    """Changes are left out of tables that are ignored, also by a setting of before."""
    ignoring = SnapshotConfig(on_new_table="ignore")
    assert Chooser(ignoring, _ledger()).leaves_out(*_NEW)
    assert not Chooser(ignoring, _ledger()).leaves_out(*_OLD)
    assert not Chooser(ignoring, _ledger()).leaves_out("s.renamed", 1)
    landed = _ledger(other={"state": "done", "oid": 5})
    assert not Chooser(ignoring, landed).leaves_out("s.another_name", 5)
    ignored = _ledger(new={"state": "ignored", "oid": 2})
    assert Chooser(SnapshotConfig(), ignored).leaves_out(*_NEW)
    assert not Chooser(ignoring, _ledger(new={"state": "asked", "oid": 2})).leaves_out(*_NEW)
    assert not Chooser(ignoring, _ledger(new={"state": "failed"})).leaves_out(*_NEW)
    assert not Chooser(ignoring, {}).leaves_out(*_NEW)  # nothing was written down


def test_tables_without_numbers() -> None:
    """Where the source tells no OID the name says which table it is."""
    chooser = Chooser(SnapshotConfig(on_new_table="ignore"), _ledger())
    assert chooser.choose("s.old", None) is Choice.LAND
    assert chooser.leaves_out("s.new", None)


@pytest.mark.parametrize(
    ("before", "mode", "after"),
    [
        ("initial", "none", "none"),
        ("none", "initial", "initial"),
        ("earlier", "initial", "earlier"),
        ("earlier", "none", "none"),
        ("earlier", "only", "initial"),
        ("initial", "initial", "initial"),
    ],
)
def test_switching(before: str, mode: str, after: str) -> None:
    """A change of the mode is followed, the default after an upgrade is not."""
    beginning = Beginning(Origin(before), {"s.old": 1})
    switched = beginning.switched(mode)
    assert switched == Beginning(Origin(after), {"s.old": 1})
    assert Beginning.of({ALL: switched.to_record()}) == switched


def test_beginnings() -> None:
    """A landing begins as it is told, and its tables are listed later."""
    assert begin("initial") == begin("only") == Beginning(Origin.INITIAL)
    assert begin("none") == Beginning(Origin.NONE)
    assert Beginning.of({}) is None
    assert Beginning.of({ALL: begin("initial").to_record()}) == begin("initial")


@pytest.mark.parametrize(
    ("title", "mode"),
    [
        ("a.b", "none"),
        ("a.c", "initial"),
        ("x.b", "none"),
        ("x.y", "initial"),
        ('a."b.c"', "initial"),
    ],
)
def test_most_specific_pattern(title: str, mode: str) -> None:
    """The pattern with fewer wild cards counts, in whichever order they are written."""
    tables = (("*.*", "initial"), ("*.b", "none"), ("a.*", "initial"), ("a.b", "none"))
    assert SnapshotConfig(tables=tables).mode_of(title) == mode
    assert SnapshotConfig(tables=tables[::-1]).mode_of(title) == mode
    assert SnapshotConfig().mode_of(title) is None


def test_time_left() -> None:
    """What is left follows from what this process has read, not from what it found."""
    progress = Progress()
    assert progress.seconds_left(100.0) is None
    counts = progress.begin_reading(chunks=10, chunks_done=4, estimate=1000)
    progress.began = 100.0
    assert progress.seconds_left(105.0) is None
    counts.chunks_done, counts.rows = 6, 200
    assert progress.seconds_left(110.0) == 20.0
    progress.state = "landing"
    assert progress.seconds_left(110.0) is None


def test_time_left_of_one_piece() -> None:
    """A table of one piece is judged by its rows."""
    progress = Progress()
    counts = progress.begin_reading(chunks=1, chunks_done=0, estimate=1000)
    progress.began, counts.rows = 100.0, 250
    assert progress.seconds_left(101.0) == 3.0
    counts.rows = 2000
    assert progress.seconds_left(101.0) is None


def test_tables_of_the_ledger() -> None:
    """Titles of any spelling are tables; what the ledger keeps beside them is not."""
    titles = ("public.t", '"a.b"."*"', "*.*")
    beside = (ALL, SUSPECTS, PUBLICATIONS)
    ledger = {name: {"name": name} for name in (*titles, *beside)}
    assert set(tables_of(ledger)) == set(titles)
