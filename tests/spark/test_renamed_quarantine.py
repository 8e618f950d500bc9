"""Tables in quarantine that were renamed: a target holds their rows back, and nobody else's."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.ddllanding import OID
from kit.renames import APPLY, OTHER, Source, State, killed, renamed, row

from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine
from gaussdecode.operations.compare.compare import _why_not
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.store import Target

IGNORE = "rename-table=ignore"


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A table with a row."""
    made = Source(tmp_path)
    made.land(row(1))
    return made


def quarantine(source: Source, name: str = "t", oid: int = OID) -> None:
    """The table t stops, or the daemon says so of its name of now."""
    held = Quarantine(f"public.{name}", "public", name, oid, Lsn(source.lsn), "a row is damaged")
    source.writer.entry(EntryKind.QUARANTINE, source.lsn, extra=held.to_extra())


def in_turn(
    source: Source, steps: Sequence[Sequence[Any]], on_ddl: str, *, is_together: bool
) -> None:
    """Land steps, the last but one as a snapshot; apply after each, or once at the end."""
    for number, items in enumerate(steps, 2 - len(steps)):
        more: dict[str, Any] = {} if number else {"op": "R", "snapshot": {"oid": OID}}
        source.land(*items, **more)
        if not is_together:
            assert source.apply(on_ddl).stopped == {}
    source.apply(on_ddl)


def in_quarantine(source: Source) -> dict[str, int]:
    """Tables that the target says are."""
    database = Target(source.target).database()
    assert database is not None
    return database.quarantined


@pytest.mark.parametrize("is_together", [True, False])
def test_a_table_that_exchanged_names_with_one_in_quarantine_loses_no_row(
    source: Source, *, is_together: bool
) -> None:
    """What is held back is held back by OID."""
    source.land(row(2, "u", OTHER))
    source.apply(APPLY)
    quarantine(source)
    exchange = [renamed("x"), renamed("t", OTHER), renamed("u")]
    steps: list[list[Any]] = [
        exchange,
        [row(4, "t", OTHER)],
        [row(5, "u")],
        [row(6, "u"), row(7, "t", OTHER)],
    ]
    in_turn(source, steps, APPLY, is_together=is_together)
    assert in_quarantine(source) == {}
    assert source.state() == {"public.t": ("public.u", [5, 6]), "public.u": ("public.t", [2, 4, 7])}


@pytest.mark.parametrize("is_together", [True, False])
def test_a_new_table_with_the_name_of_one_in_quarantine_loses_no_row(
    source: Source, *, is_together: bool
) -> None:
    """It has a directory of its own from its first row on."""
    source.apply(APPLY)
    quarantine(source)
    steps: list[list[Any]] = [
        [renamed("u")],
        [row(4, "t", OTHER)],
        [row(5, "u")],
        [row(7, "t", OTHER)],
    ]
    in_turn(source, steps, APPLY, is_together=is_together)
    assert in_quarantine(source) == {}
    other = f"public.t_{OTHER}"
    assert source.state() == {"public.t": ("public.u", [5]), other: ("public.t", [4, 7])}


@pytest.mark.parametrize("is_together", [True, False])
def test_a_quarantine_stays_where_rows_of_another_table_were_held_back(
    source: Source, *, is_together: bool
) -> None:
    """By default a directory is for a name: a snapshot of the name brings them."""
    source.apply()
    quarantine(source)
    steps: list[list[Any]] = [
        [renamed("u")],
        [row(4, "t", OTHER)],
        [row(5, "u")],
        [row(7, "t", OTHER)],
    ]
    in_turn(source, steps, IGNORE, is_together=is_together)
    assert in_quarantine(source) == {"public.t": 2}
    assert source.state() == {"public.t": ("public.t", [1]), "public.u": ("public.u", [5])}
    source.land(row(4, "t", OTHER), row(7, "t", OTHER), op="R", snapshot={"oid": OTHER})
    source.land(row(8, "t", OTHER))
    assert source.apply().quarantined == {}
    assert source.state()["public.t"] == ("public.t", [4, 7, 8])


def test_a_quarantine_ends_with_a_snapshot_under_the_name_of_now(source: Source) -> None:
    """The entry names the directory of then."""
    source.apply(APPLY)
    quarantine(source)
    source.land(renamed("u"))
    assert source.apply(APPLY).quarantined == {"public.t": 2}
    source.land(row(5, "u"), op="R", snapshot={"oid": OID})
    assert source.apply(APPLY).quarantined == {}
    assert source.state() == {"public.t": ("public.u", [5])}


def lands(source: Source, *items: Any, **more: Any) -> Callable[[], object]:
    """A step in which something lands."""
    return lambda: source.land(*items, **more)


def read_again(source: Source, *items: Any, oid: int) -> Callable[[], object]:
    """A step in which a snapshot lands."""
    return lands(source, *items, op="R", snapshot={"oid": oid})


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("has_landed", [True, False])
@pytest.mark.parametrize("then", ["apply", "ignore"])
def test_a_snapshot_of_the_healthy_table_ends_only_the_former_name(
    tmp_path: Path, then: str, *, has_landed: bool, is_early: bool, is_together: bool
) -> None:
    """The daemon says of the name of now that it stands still, perhaps before the stream is so far."""
    source, on_ddl = Source(tmp_path), f"rename-table={then}"
    source.land(row(2, "u", OTHER), *([row(1)] if has_landed else []))
    source.apply(on_ddl)
    quarantine(source)
    exchange = lands(source, renamed("x"), renamed("t", OTHER), renamed("u"))
    says: list[Callable[[], object]] = [
        lambda: quarantine(source, "u"),
        lands(source, row(3, "u", OTHER)),
        exchange,
    ]
    steps = [
        *(says if is_early else [says[1], exchange, says[0]]),
        lands(source, row(4, "t", OTHER)),
        read_again(source, row(2, "t", OTHER), row(3, "t", OTHER), row(4, "t", OTHER), oid=OTHER),
        lands(source, row(6, "t", OTHER)),
    ]
    for step in steps:
        step()
        if not is_together:
            assert source.apply(on_ddl).stopped == {}
    source.apply(on_ddl)
    assert in_quarantine(source).keys() == {"public.u"}
    healthy = "public.t" if then == "ignore" else "public.u"
    assert source.state()[healthy] == ("public.t", [2, 3, 4, 6])
    source.land(row(5, "u"), op="R", snapshot={"oid": OID})
    source.land(row(7, "u"), row(8, "t", OTHER))
    assert source.apply(on_ddl).quarantined == {}
    found = dict(source.state().values())
    assert found == {"public.t": [2, 3, 4, 6, 8], "public.u": [5, 7]}


@pytest.mark.parametrize("is_together", [True, False])
def test_a_name_of_now_that_the_stream_does_not_know_yet_shuts_no_healthy_table(
    tmp_path: Path, *, is_together: bool
) -> None:
    """The table in quarantine has no directory; no snapshot of the healthy one comes."""
    source = Source(tmp_path)
    source.land(row(2, "u", OTHER))
    source.apply(APPLY)
    quarantine(source)
    quarantine(source, "u")
    exchange = [renamed("x"), renamed("t", OTHER), renamed("u")]
    for items in ([row(3, "u", OTHER)], exchange, [row(4, "t", OTHER)]):
        source.land(*items)
        if not is_together:
            source.apply(APPLY)
    source.apply(APPLY)
    assert source.state() == {"public.u": ("public.t", [2, 3, 4])}
    source.land(row(5, "u"), op="R", snapshot={"oid": OID})
    assert source.apply(APPLY).quarantined == {}
    assert sorted(source.state().values()) == [("public.t", [2, 3, 4]), ("public.u", [5])]


def test_both_of_an_exchange_are_in_quarantine(source: Source) -> None:
    """Each until its own snapshot."""
    source.land(row(2, "u", OTHER))
    source.apply(APPLY)
    quarantine(source)
    quarantine(source, "u", OTHER)
    source.land(renamed("x"), renamed("t", OTHER), renamed("u"))
    quarantine(source, "u")
    quarantine(source, "t", OTHER)
    source.land(row(5, "u"), op="R", snapshot={"oid": OID})
    assert source.apply(APPLY).quarantined.keys() == {"public.t"}
    source.land(row(6, "t", OTHER), op="R", snapshot={"oid": OTHER})
    assert source.apply(APPLY).quarantined == {}
    assert source.state() == {"public.t": ("public.u", [5]), "public.u": ("public.t", [6])}


def test_a_quarantine_does_not_end_with_an_oid_of_another_epoch(source: Source) -> None:
    """After a restore it is another table's."""
    source.apply(APPLY)
    quarantine(source)
    source.writer.epoch += 1
    source.land(row(5, "u"), op="R", snapshot={"oid": OID})
    assert source.apply(APPLY).quarantined == {"public.t": 2}
    source.land(row(6), op="R", snapshot={"oid": OTHER})
    assert source.apply(APPLY).quarantined == {}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_apply_that_was_killed_holds_no_row_of_another_table_back(
    source: Source, monkeypatch: pytest.MonkeyPatch, count: int, *, is_first: bool
) -> None:
    """The directory of the table in quarantine may be ahead of the database then."""
    if not is_first:
        source.apply(APPLY)
        source.land(row(2))
    quarantine(source)
    source.land(renamed("u"))
    source.land(row(4, "t", OTHER))
    with killed(monkeypatch, count):
        source.apply(APPLY)
    source.apply(APPLY)
    other = f"public.t_{OTHER}"
    assert source.state()[other] == ("public.t", [4])
    source.land(row(5, "u"), op="R", snapshot={"oid": OID})
    source.land(row(7, "t", OTHER))
    source.apply(APPLY)
    assert in_quarantine(source) == {}
    assert source.state() == {"public.t": ("public.u", [5]), other: ("public.t", [4, 7])}


def test_retention_takes_nothing_that_a_quarantine_is_known_by(source: Source) -> None:
    """The target keeps it where the entry goes."""
    source.apply(APPLY)
    quarantine(source)
    source.land(renamed("u"))
    source.apply(APPLY)
    for path in sorted((source.root / "commits").glob("*.json"))[:3]:
        path.unlink()
    assert Landing(source.root).first_n == 3
    source.land(row(4, "t", OTHER))
    assert source.apply(APPLY).quarantined == {"public.t": 2}
    other = f"public.t_{OTHER}"
    assert source.state() == {"public.t": ("public.t", [1]), other: ("public.t", [4])}
    source.land(row(5, "u"), op="R", snapshot={"oid": OID})
    assert source.apply(APPLY).quarantined == {}
    assert source.state() == {"public.t": ("public.u", [5]), other: ("public.t", [4])}


def test_a_version_says_no_more_than_it_needs_to() -> None:
    """Earlier releases read versions without a quarantine; others come back as they were."""
    plain = DatabaseVersion(1, 0, {}, is_complete=True)
    assert not {"known", "withheld", "renamed"} & plain.to_record().keys()
    held = dataclasses.replace(plain, quarantined={"t": 0}, withheld=[], known={"t": (1, OID)})
    for version in (plain, held):
        assert DatabaseVersion.from_record(json.loads(json.dumps(version.to_record()))) == version


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize(
    ("on_ddl", "wanted"),
    [
        (APPLY, {"public.t": ("public.u", [2, 5, 6])}),
        (IGNORE, {"public.t": ("public.t", [1]), "public.u": ("public.u", [2, 5, 6])}),
    ],
)
def test_rows_under_the_name_of_now_wait_for_the_snapshot_too(
    source: Source, on_ddl: str, wanted: State, *, is_together: bool
) -> None:
    """They are held back by OID; after the snapshot they are not."""
    source.apply(on_ddl)
    quarantine(source)
    source.land(renamed("u"))
    if not is_together:
        source.apply(on_ddl)
    source.land(row(5, "u"))
    source.apply(on_ddl)
    assert sorted(n for _, ids in source.state().values() for n in ids) == [1]
    source.land(row(2, "u"), row(5, "u"), op="R", snapshot={"oid": OID})
    if not is_together:
        source.apply(on_ddl)
    source.land(row(6, "u"))
    assert source.apply(on_ddl).quarantined == {}
    assert source.state() == wanted


@pytest.mark.parametrize("says", [{"oid": OID}, {}])
@pytest.mark.parametrize("is_together", [True, False])
def test_a_quarantine_that_is_left_for_a_name_holds_no_other_name_back(
    source: Source, says: dict[str, Any], *, is_together: bool
) -> None:
    """A snapshot has read the table since; the quarantine stays for the rows of another one."""
    source.apply()
    quarantine(source)
    steps: list[tuple[list[Any], dict[str, Any]]] = [
        ([renamed("u")], {}),
        ([row(4, "t", OTHER)], {}),
        ([row(5, "u")], {"op": "R", "snapshot": says}),
        ([row(6, "u")], {}),
        ([row(7, "u")], {}),
    ]
    for items, more in steps:
        source.land(*items, **more)
        if not is_together:
            source.apply(IGNORE)
    source.apply(IGNORE)
    assert in_quarantine(source) == {"public.t": 2}
    wanted = {"public.t": ("public.t", [1]), "public.u": ("public.u", [5, 6, 7])}
    assert source.state() == wanted


@pytest.mark.parametrize("is_retained", [True, False])
def test_verify_knows_a_quarantine_by_its_oid(source: Source, *, is_retained: bool) -> None:
    """It skips the directory of the renamed table, not that of a new one with the former name."""
    source.apply(APPLY)
    quarantine(source)
    source.land(renamed("u"))
    source.land(row(4, "t", OTHER))
    source.apply(APPLY)
    if not is_retained:
        for path in sorted((source.root / "commits").glob("*.json"))[:3]:
            path.unlink()
    store, landing = Target(source.target), Landing(source.root)
    database = store.database()
    assert database is not None
    whys = {
        table: _why_not(store, landing, database, table, store.schema_at(database, table), None)
        for table in database.tables
    }
    assert whys == {"public.t": "it is in quarantine since entry 2", f"public.t_{OTHER}": None}
