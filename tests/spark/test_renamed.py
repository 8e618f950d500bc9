"""Renamed tables keep their directory in a target, with the rows that they had."""

import contextlib
from pathlib import Path

import pytest
from kit.ddllanding import ID, OID, Of, dropped
from kit.icebergcatalog import in_a_file
from kit.renames import (
    APPLY,
    CASES,
    OTHER,
    RENAMED,
    A,
    Source,
    State,
    dying_commit,
    in_steps,
    killed,
    renamed,
    row,
)

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.masks import read_masks
from gaussdecode.spark.maintain.status import status
from gaussdecode.spark.merge import run
from gaussdecode.spark.merge.on_ddl import read_on_ddl
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.store import Target


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A table with a row."""
    made = Source(tmp_path)
    made.land(row(1))
    return made


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_renamed_table_goes_on_where_it_is(
    source: Source, case: str, *, is_together: bool
) -> None:
    """No row is missing, none is there twice, and no two tables are mixed."""
    steps, wanted = CASES[case]
    in_steps(source, steps, is_together=is_together)
    assert source.state() == wanted


def test_readers_of_iceberg_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table of each directory: its name in the catalog stays, and its comment has the name of now."""
    catalog = in_a_file(monkeypatch, tmp_path)
    source = Source(tmp_path, format=ICEBERG, catalog="lake.cdc", history=True)
    source.land(row(1))
    steps, wanted = CASES["exchanged"]
    in_steps(source, steps, is_together=False)
    assert source.state() == wanted
    for table, (title, ids) in wanted.items():
        found = catalog.load_table(("cdc", table.replace(".", "_")))
        assert sorted(of["id"] for of in found.scan().to_arrow().to_pylist()) == ids
        assert found.properties["comment"].startswith(title)


@pytest.mark.parametrize("is_each", [True, False])
@pytest.mark.parametrize(
    "case",
    [
        "exchanged",
        "another takes the old name",
        "the other one is renamed too",
        "back",
        "another without an OID takes the old name",
        "an OID that is known later",
        "without OIDs",
    ],
)
def test_an_apply_that_was_killed_between_two_tables_ends_the_same(
    source: Source, case: str, monkeypatch: pytest.MonkeyPatch, *, is_each: bool
) -> None:
    """Some tables are ahead of the database then; more lands after an apply died, or all has landed."""
    steps, wanted = CASES[case]
    source.apply()
    for items in steps:
        source.land(*items)
        if is_each:
            monkeypatch.setattr(run, "commit_table", dying_commit(1))
            with contextlib.suppress(KeyboardInterrupt):
                source.apply(APPLY)
    for count in (1, 2):
        monkeypatch.setattr(run, "commit_table", dying_commit(count))
        with contextlib.suppress(KeyboardInterrupt):
            source.apply(APPLY)
    monkeypatch.undo()
    assert source.apply(APPLY).stopped == {}
    assert source.state() == wanted


def test_by_default_the_new_name_begins_a_table(source: Source) -> None:
    """The old one stays as it was."""
    source.apply()
    source.land(renamed("u"), row(2, "u"))
    source.apply()
    assert source.state() == {"public.t": ("public.t", [1]), "public.u": ("public.u", [2])}
    source.land(renamed("v"), row(3, "v"))
    source.apply(APPLY)
    assert source.state()["public.v"] == ("public.v", [3])


def test_a_moved_table_stays_together(source: Source) -> None:
    """Also in a run without the option, and with further names."""
    source.land(renamed("u"), row(2, "u"))
    source.apply(APPLY)
    source.land(row(3, "u"), renamed("v"), row(4, "v"))
    source.apply()
    assert source.state() == {"public.t": ("public.u", [1, 2, 3]), "public.v": ("public.v", [4])}


@pytest.mark.parametrize(
    ("then", "wanted"),
    [
        ("apply", {"public.t": ("public.u", [1, 2, 3, 4])}),
        ("ignore", {"public.t": ("public.t", [1, 2]), "public.u": ("public.u", [3, 4])}),
    ],
)
def test_a_stopped_table_holds_its_rows_back_under_the_new_name(
    source: Source, then: str, wanted: State
) -> None:
    """None is lost, whichever way it goes on."""
    source.land(row(2))
    source.land(renamed("u"), row(3, "u"))
    (why,) = source.apply("rename-table=stop").stopped.values()
    assert why.endswith("To go on, apply once with --on-ddl rename-table=apply")
    assert source.state() == {"public.t": ("public.t", [1, 2])}
    source.land(row(4, "u"))
    source.apply("rename-table=stop")
    assert source.state() == {"public.t": ("public.t", [1, 2])}
    assert source.apply(f"rename-table={then}").stopped == {}
    assert source.state() == wanted


def test_a_suspect_table_is_healed_under_its_new_name(source: Source) -> None:
    """Its rows wait, those of another table with its old name do not."""
    source.apply(APPLY)
    source.doubt("t", table_oid=OID)
    source.land(renamed("u"), row(2, "u"))
    assert source.apply(APPLY).stopped
    source.land(row(3, "t", OTHER))
    assert source.apply(APPLY).stopped
    other = f"public.t_{OTHER}"
    assert source.state() == {"public.t": ("public.t", [1]), other: ("public.t", [3])}
    source.land(row(4, "u"), op="R")
    assert source.apply(APPLY).stopped == {}
    assert source.state() == {"public.t": ("public.u", [4]), other: ("public.t", [3])}


def test_what_the_catalogue_says_of_a_rename_stops_nothing(source: Source) -> None:
    """The entry may come before the command; with ``ignore`` the new name is incomplete, and stops."""
    source.land(row(2, "u", OTHER))
    source.apply(APPLY)
    source.doubt("u", is_rename=True, table_oid=OID)
    source.doubt("t", is_rename=True, table_oid=OTHER)
    assert source.apply(APPLY).stopped == {}
    source.land(renamed("x"), renamed("t", OTHER), renamed("u"), row(3, "u"))
    assert source.apply(APPLY).stopped == {}
    assert source.state() == {"public.t": ("public.u", [1, 3]), "public.u": ("public.t", [2])}


def test_a_new_table_of_the_old_name_is_not_suspect(source: Source) -> None:
    """It comes whole, and the table that had the name before is another one."""
    source.apply(APPLY)
    source.doubt("t", oid=OTHER, comes_whole=True)
    source.land(renamed("u"), row(2, "u"), row(3, "t", OTHER))
    assert source.apply(APPLY).stopped == {}
    assert source.state()["public.t"] == ("public.u", [1, 2])


def test_readers_find_tables_by_their_names_of_now(source: Source) -> None:
    """A name that no table has is that of the directory."""
    source.land(renamed("u"), row(2, "u"))
    source.apply(APPLY)
    store = Target(source.target)
    assert [store.find_table(f"public.{name}") for name in "ut"] == ["public.t"] * 2
    assert status(source.root, source.target).renamed == {"public.t": "public.u"}
    source.land(row(3, "t", OTHER))
    source.apply(tables=["public.t"])
    source.apply()
    assert Target(source.target).find_table("public.t") == f"public.t_{OTHER}"
    assert Landing(source.root).find_table("public.u") == "public.u"


def test_a_key_that_changes_between_a_rename_and_back_stops_the_table(source: Source) -> None:
    """Rows of both keys stand in one entry, in files that overlap: which came last is not told."""
    keyed = [Of(1, "id"), Of(2, "a", key=1)]
    source.land(row(2), (keyed, {"id": 3, "a": 3}, "u", OID), row(4))
    (why,) = source.apply(APPLY).stopped.values()
    assert "renamed there and back" in why
    assert source.state() == {"public.t": ("public.t", [1])}


def test_masks_go_along(source: Source) -> None:
    """With the table, and with the name of a directory to a new table."""
    source.apply(APPLY, masks=read_masks(["public.t=a:null"]))
    source.land(renamed("u"), row(2, "u"), row(3, "t", OTHER))
    source.apply(APPLY)
    store = Target(source.target)
    for table in ("public.t", f"public.t_{OTHER}"):
        version = store.newest(table)
        assert version is not None
        for file in version.current:
            rows = current_rows(store.table_root(table), file).to_pylist()
            assert {row["a"] for row in rows} == {None}


def found(source: Source, *names: str) -> list[str]:
    """Directories in which readers find tables."""
    store = Target(source.target)
    return [store.find_table(f"public.{name}") for name in names]


def test_a_first_apply_that_died_loses_no_row(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables take each other's names in it; what it had made goes on under the names of then."""
    source.land(row(2, "u", OTHER))
    source.land(renamed("w", OTHER), renamed("u"), row(3, "u"))
    with killed(monkeypatch):
        source.apply(APPLY)
    assert source.apply(APPLY).stopped == {}
    assert sorted(ids for _, ids in source.state().values()) == [[1, 3], [2]]
    assert dict(source.state().values()) == {
        "public.u": [1, 3],
        "public.w": [2],
    }


def test_a_table_that_took_a_name_over_is_renamed_in_the_same_apply(source: Source) -> None:
    """Its title is that of then, so that a third table of the first name leaves it alone."""
    source.apply(APPLY)
    source.land(dropped("t"), row(2, "t", OTHER), renamed("u", OTHER))
    source.apply(APPLY)
    source.land(row(3, "t", OTHER + 1))
    source.apply(APPLY)
    source.land(row(4, "u", OTHER))
    source.apply(APPLY)
    assert dict(source.state().values()) == {
        "public.u": [2, 4],
        "public.t": [3],
    }


def test_rows_that_a_stop_held_back_get_a_table_of_their_own(source: Source) -> None:
    """The directory of the new name belongs to a table that was dropped, and is ahead of them."""
    source.land(row(2, "u", OTHER))
    source.apply()
    source.land(dropped("u", OTHER))
    source.land(renamed("u"), row(3, "u"))
    assert list(source.apply("rename-table=stop").stopped) == ["public.t"]
    source.land(row(4, "u"))
    source.apply("rename-table=stop")
    source.apply()
    source.land(row(5, "u"))
    source.apply()
    assert [3, 4, 5] in [ids for _, ids in source.state().values()]


def test_a_table_that_stopped_before_its_first_version_is_still_known(source: Source) -> None:
    """Another one has its first name meanwhile."""
    source.apply(APPLY)
    source.land(row(2, "n", OTHER), renamed("m", OTHER), row(3, "n", OTHER + 1))
    assert source.apply("rename-table=stop").stopped
    assert source.apply(APPLY).stopped == {}
    titles = dict(source.state().values())
    assert (titles["public.m"], titles["public.n"]) == ([2], [3])


def test_a_rename_unmasks_nothing(source: Source) -> None:
    """Where another table takes the name that has masks, apply refuses to go on."""
    masks = read_masks(["public.t=a:null"])
    source.apply(APPLY, masks=masks)
    source.land(row(2, "n", OTHER))
    source.apply(APPLY, masks=masks)
    source.land(renamed("old"), renamed("t", OTHER), row(3, "t", OTHER))
    with pytest.raises(ConfigError, match="which has other masks"):
        source.apply(APPLY, masks=masks)


def test_readers_find_who_has_a_name_now(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a table that was dropped with it; also after an apply that died in an exchange."""
    source.apply(APPLY)
    source.land(renamed("u"), row(2, "t", OTHER))
    source.apply(APPLY)
    source.land(dropped("t", OTHER))
    source.apply(APPLY)
    source.land(renamed("t"), row(3))
    source.apply(APPLY)
    assert found(source, "t") == ["public.t"]
    store = Target(source.target)
    database = store.database()
    assert database is not None
    assert store.living(database) == ["public.t"]
    source.land(row(4, "v", OTHER + 1))
    source.apply(APPLY)
    source.land(
        renamed("x"), renamed("t", OTHER + 1), renamed("v"), row(5, "v"), row(6, "t", OTHER + 1)
    )
    with killed(monkeypatch):
        source.apply(APPLY)
    source.apply(APPLY)
    assert found(source, "t", "v") == ["public.v", "public.t"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_rename_that_was_made_is_not_made_undone(
    source: Source, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """By a run with `ignore` after one that died, or that was for some tables: no row comes twice."""
    source.land(row(9, "z", OTHER))
    source.apply(APPLY)
    source.land(renamed("u"), row(2, "u"), row(10, "z", OTHER))
    if is_killed:
        with killed(monkeypatch):
            source.apply(APPLY)
    else:
        source.apply(APPLY, tables=["public.u"])
    source.apply()
    source.land(row(3, "u"))
    source.apply()
    assert sorted(n for _, ids in source.state().values() for n in ids) == [1, 2, 3, 9, 10]


def test_some_tables_need_a_whole_apply_before(source: Source) -> None:
    """What was not applied may have had another one's name."""
    with pytest.raises(ConfigError, match="Apply without --tables first"):
        source.apply(APPLY, tables=["public.t"])


def test_a_snapshot_ends_the_stop_of_a_table_without_a_version(source: Source) -> None:
    """It is in the directory of a name and its OID, and the snapshot in that of the name."""
    source.apply(APPLY)
    source.land(renamed("u"))
    source.doubt("t", table_oid=OTHER)
    source.land(row(2, "t", OTHER))
    assert source.apply(APPLY).stopped
    source.land(row(5, "t", OTHER), op="R")
    assert source.apply(APPLY).stopped == {}
    assert [5] in [ids for title, ids in source.state().values() if title == "public.t"]


def test_a_rename_that_nobody_recorded_and_a_new_table_of_the_name(source: Source) -> None:
    """The older rows went with the name: the renamed table stops, and says so."""
    source.apply(APPLY)
    source.doubt("u", is_rename=True, table_oid=OID)
    source.doubt("t", oid=OTHER, comes_whole=True)
    source.land(row(2, "t", OTHER))
    source.land(row(3, "u"))
    assert list(source.apply(APPLY).stopped) == ["public.u"]


def test_a_former_name_that_is_let_go_empties_nobody_else(source: Source) -> None:
    """Who asks for that means a dropped table; this one has another name, and its rows."""
    source.land(renamed("u"), row(2, "u"))
    source.apply(APPLY)
    gone = ([ID, A], {"id": None, "a": None}, "t", OID)
    source.land(gone, op="T", snapshot={"dropped": True, "rows": 0, "oid": OID})
    source.land(row(3, "u"))
    assert source.apply(APPLY).stopped == {}
    assert source.state() == RENAMED


def test_apply_alone_is_not_for_renames() -> None:
    """They are asked for by their kind."""
    assert "rename-table" not in read_on_ddl(["apply"])
    assert read_on_ddl(["stop", "rename-table=apply"])["rename-table"] == "apply"
