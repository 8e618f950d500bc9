"""In a landing in the order of CSNs every CSN is a point, inside an entry too, and exact."""

from pathlib import Path
from typing import Any

import pytest
from kit.applied import newest
from kit.csnhistory import SOURCES, CsnHistory, SharedHistory
from kit.history import canon, state_at
from pyspark.sql import SparkSession

from gaussdecode.cli import main
from gaussdecode.errors import ConfigError
from gaussdecode.spark import query
from gaussdecode.spark.apply import Options, apply, apply_with
from gaussdecode.spark.checks.data_check import rows_since, without
from gaussdecode.spark.checks.data_tests import DataTest, Kind, OnFailure
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.log.place import read_table
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.stream.changes import changes
from gaussdecode.spark.stream.datasource import GaussDecodeSource
from gaussdecode.spark.stream.rows import TableRows
from gaussdecode.spark.target.store import Target

END = 1 << 40
Rows = list[tuple[Any, ...]]  # Any: values


def rows_in(target: Path) -> dict[str, Rows]:
    """Current rows of each table of the newest version, by its name at the source; columns by name."""
    store = Target(target)
    database = store.database()
    assert database is not None
    found: dict[str, Rows] = {}
    for directory in database.tables:
        schema, rows = newest(store, directory)
        names = sorted(schema.names)
        found[schema.name] = canon([tuple((name, row[name]) for name in names) for row in rows])
    return found


def expected(history: CsnHistory, csn: int) -> dict[str, Rows]:
    """What the source had after the transactions up to a CSN; tables that had any change."""
    found = {}
    for name, states in history.states.items():
        state = state_at(states, (0, csn, END))
        if state is not None:
            found[name] = canon(
                [tuple(sorted(zip(state.names, row, strict=True))) for row in state.rows]
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_csn_is_a_point(tmp_path: Path, seed: int) -> None:
    """Applied from one CSN to the next, in steps inside of entries and over several."""
    history = CsnHistory(tmp_path / "landing", seed)
    history.run(6)
    options = Options(history=True, changelog="gd_op")
    wanted = sorted({*history.rng.sample(history.csns, 6), *range(101, history.mark + 1, 3)})
    for csn in wanted:
        apply_with(
            LocalEngine(), tmp_path / "landing", tmp_path / "target", options, to=Point(csn=csn)
        )
        found = rows_in(tmp_path / "target")
        assert found == expected(history, csn), (csn, seed)
        again = apply_with(
            LocalEngine(), tmp_path / "landing", tmp_path / "target", options, to=Point(csn=csn)
        )
        assert again.tables == 0
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", options)
    assert rows_in(tmp_path / "target") == expected(history, history.mark)
    store, landing = Target(tmp_path / "target"), Landing(tmp_path / "landing")
    database = store.database()
    assert database is not None
    for table, number in database.tables.items():  # each change once, whatever the steps were
        files = [f for e in landing.entries(0, landing.last_n) for f in e.files if f.table == table]
        logged = store.version(table, number).changelog
        assert sum(file.rows for file in logged) == sum(file.rows for file in files)


def truncated(history: SharedHistory) -> set[str]:
    """Which tables were emptied on some source."""
    landing = Landing(history.writer.root)
    entries = landing.entries(0, landing.last_n)
    return {file.table for entry in entries for file in entry.files if file.ops.get("T")}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_several_sources_together(tmp_path: Path, seed: int) -> None:
    """Exact at every CSN over all of them, where a TRUNCATE empties a table on some of them only."""
    history = SharedHistory(tmp_path / "landing", seed)
    history.run(6)
    if seed == 1:
        assert truncated(history), "nothing was emptied: the test tells less"
    options = Options(history=True, changelog="gd_op")
    for csn in [*sorted(history.rng.sample(history.csns, 6)), history.mark]:
        to = Point(csn=csn)
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", options, to=to)
        assert rows_in(tmp_path / "target") == expected(history, csn)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_several_logs_side_by_side(tmp_path: Path, seed: int) -> None:
    """In the order of LSNs each source has its own; whole entries are what the sources had."""
    history = SharedHistory(tmp_path / "landing", seed, order="lsn")
    landing = Landing(tmp_path / "landing")
    assert landing.order == ("gd_epoch", "gd_source", "gd_lsn", "gd_seq")
    for _ in range(5):
        history.step()
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target")
        assert rows_in(tmp_path / "target") == expected(history, history.mark)
    with pytest.raises(ConfigError, match=r"several sources .dn1, dn2, dn3.*ask by entry or time"):
        landing.resolve(Point(lsn=2000))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_steps_and_at_once(tmp_path: Path, seed: int) -> None:
    """Where the sources do not show a change of columns together, steps make no difference; nor do stops."""
    history = SharedHistory(tmp_path / "landing", seed, shows_ddl=False)
    history.run(12)
    stops = 0
    for n in range(1, history.writer.n):
        steps = apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "steps", to=Point(n=n))
        once = apply_with(LocalEngine(), tmp_path / "landing", tmp_path / f"at{n}", to=Point(n=n))
        assert steps.stopped == once.stopped
        assert rows_in(tmp_path / "steps") == rows_in(tmp_path / f"at{n}")
        stops += len(steps.stopped)
    if seed == 1:
        assert stops, "nothing stopped: the test tells less"


def test_a_table_made_anew_on_one_of_several(tmp_path: Path) -> None:
    """Its rows there are gone, those of the other sources stay."""
    history = SharedHistory(tmp_path / "landing", 2)
    history.run(3)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options(history=True))
    history.make_anew("dn2")
    begun = history.writer.n
    history.run(4)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options(history=True))
    entries = Landing(tmp_path / "landing").entries(begun, history.writer.n - 1)
    shown = {f.table for e in entries for f in e.files if f.source == "dn2"}
    found, wanted = rows_in(tmp_path / "target"), expected(history, history.mark)
    names = [table.name for table in history.tables if table.directory in shown]
    assert len(names) > 1
    assert {name: found[name] for name in names} == {name: wanted[name] for name in names}


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_several_are_read_in_one_schema(tmp_path: Path, seed: int) -> None:
    """A value stands under the name that its column has now on its source, whatever its number is."""
    history = SharedHistory(tmp_path / "landing", seed)
    history.run(8)
    landing = Landing(tmp_path / "landing")
    entries = list(landing.entries(0, landing.last_n))
    seen = set[str | None]()
    for table in history.tables:
        rows = TableRows(tmp_path / "landing", table.directory)
        versions = {i: landing.schema_record(table.directory, i) for i in rows._versions}
        for part in (part for parts in rows.parts(entries) for part in parts):
            version = TableSchema.from_record(part.schema_id, versions[part.schema_id])
            newest = rows._target.of(version.source)
            assert newest is not None
            names = {column.number: column.true_name for column in newest.columns}
            found = [row for batch in rows.read([part], rows.schema()) for row in batch.to_pylist()]
            for row, landed in zip(
                found, read_table(landing.root / part.path).to_pylist(), strict=True
            ):
                assert row["gd_source"] == version.source
                values = {names.get(of.number): landed[of.name] for of in version.columns}
                assert {name: row[name] for name in values if name is not None} == {
                    name: value for name, value in values.items() if name is not None
                }
            seen.add(version.source)
    assert seen == set(SOURCES)


def test_a_suspect_is_of_one_of_several(tmp_path: Path) -> None:
    """A snapshot of that source ends it, and one of another source does not: it has other rows."""
    history = SharedHistory(tmp_path / "landing", 2, order="lsn")
    history.run(4)
    landing, target = tmp_path / "landing", tmp_path / "target"
    apply_with(LocalEngine(), landing, target)
    table = max(history.tables, key=lambda of: len(of.rows))
    title = f"public.{table.name}"
    history.suspect_on("dn2", table)
    history.snapshot_on("dn1", table)
    summary = apply_with(LocalEngine(), landing, target)
    assert summary.stopped == {title: "source dn2: something happened"}
    assert summary.suspect_tables == (title,)
    history.run(2)
    history.snapshot_on("dn2", table)
    assert not apply_with(LocalEngine(), landing, target).stopped
    assert not apply_with(LocalEngine(), landing, tmp_path / "at once").stopped
    wanted = expected(history, history.mark)[table.name]
    assert rows_in(target)[table.name] == wanted
    assert rows_in(tmp_path / "at once")[table.name] == wanted


def test_a_csn_that_has_not_landed(tmp_path: Path) -> None:
    """Refused with the newest one; what follows an entry without transactions is known."""
    history = CsnHistory(tmp_path / "landing", 1)
    history.run(3)
    landing = Landing(tmp_path / "landing")
    assert landing.reach(Point(csn=history.mark)).n == landing.last_n
    with pytest.raises(
        ConfigError, match=rf"up to CSN {history.mark} has landed.*{history.mark + 1}"
    ):
        landing.reach(Point(csn=history.mark + 1))


def test_where_only_whole_entries_are_shown(tmp_path: Path) -> None:
    """A CSN inside an entry is an error there, which names the entries beside it."""
    history = CsnHistory(tmp_path / "landing", 3)
    history.run(5)
    landing = Landing(tmp_path / "landing")
    inside = [csn for csn in history.csns if landing.reach(Point(csn=csn)).csn is not None]
    found = landing.reach(Point(csn=inside[0]))
    with pytest.raises(ConfigError, match=rf"inside entry {found.n}.*{found.n - 1} or {found.n}"):
        landing.resolve(Point(csn=inside[0]))


def test_spark_reads_at_every_csn(spark: SparkSession, tmp_path: Path) -> None:
    """Changes up to and after a CSN, and by history the rows as they were."""
    history = CsnHistory(tmp_path / "landing", 5)
    history.run(4)
    root, target = tmp_path / "landing", tmp_path / "target"
    apply_with(LocalEngine(), root, target, Options(history=True))
    every = [
        (row["gd_csn"], row["gd_seq"]) for row in changes(spark, root, "public.plain").collect()
    ]
    landing = Landing(root)
    chosen = [csn for csn in history.csns if landing.reach(Point(csn=csn)).csn is not None][:3]
    assert chosen, "no CSN inside an entry: the test tells nothing"
    for csn in [*chosen, history.mark]:
        at = Point(csn=csn)
        before = changes(spark, root, "public.plain", to=at).collect()
        after = changes(spark, root, "public.plain", from_=at).collect()
        assert sorted((r["gd_csn"], r["gd_seq"]) for r in before) == sorted(
            p for p in every if p[0] <= csn
        )
        assert sorted((r["gd_csn"], r["gd_seq"]) for r in after) == sorted(
            p for p in every if p[0] > csn
        )
        for table in ("pair", "bag"):
            state = state_at(history.states[table], (0, csn, END))
            shown = query.current(spark, target, f"public.{table}", at=at, root=root)
            names = [c.name for c in next(t for t in history.tables if t.name == table).columns]
            rows = canon([tuple(row[name] for name in names) for row in shown.collect()])
            assert rows == ([] if state is None else state.rows), (table, csn)


def test_spark_says_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """Of changes, of versions of rows, and of the stream's rows; NULL of none."""
    history = SharedHistory(tmp_path / "landing", 4)
    history.run(4)
    root, target = tmp_path / "landing", tmp_path / "target"
    apply_with(LocalEngine(), root, target, Options(history=True, changelog="gd_op"))
    landed = changes(spark, root, "public.plain")
    place = ["gd_csn", "gd_source", "gd_seq"]
    every = {tuple(row) for row in landed.select(*place).collect()}
    assert {source for _, source, _ in every} <= set(SOURCES)
    assert len(every) == landed.count() > 1
    logged = query.changelog(spark, target, "public.plain").select(*place).collect()
    assert {tuple(row) for row in logged} == every
    versions = query.history(spark, target, "public.plain").select(*place).collect()
    assert {tuple(row) for row in versions} <= every
    for csn in history.csns[::3]:
        shown = query.current(spark, target, "public.bag", at=Point(csn=csn), root=root)
        state = state_at(history.states["bag"], (0, csn, END))
        rows = canon([(row["x"], row["y"]) for row in shown.collect()])
        assert rows == ([] if state is None else state.rows), csn
    spark.dataSource.register(GaussDecodeSource)
    read = spark.read.format("gaussdecode")
    for option in ({"table": "public.plain"}, {}):
        said = read.options(**option).load(str(root)).select("gd_source").distinct().collect()
        assert {row["gd_source"] for row in said} <= set(SOURCES)


def test_the_command_goes_inside_an_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exactly to a CSN, and says how far it is."""
    history = CsnHistory(tmp_path / "landing", 3)
    history.run(5)
    landing = Landing(tmp_path / "landing")
    inside = next(csn for csn in history.csns if landing.reach(Point(csn=csn)).csn is not None)
    places = [str(tmp_path / "landing"), str(tmp_path / "target")]
    assert main(["spark", "apply", *places, "--local", "--to-csn", str(inside)]) == 0
    assert rows_in(tmp_path / "target") == expected(history, inside)
    assert f"and of the next what is up to CSN {inside} of" in capsys.readouterr().out


def test_rows_of_two_sources_at_one_place(spark: SparkSession) -> None:
    """In quarantine is the row of one of them; the other one's has the same LSN, and stays."""
    columns = (
        "gd_op string, gd_epoch int, gd_source string, gd_lsn bigint, gd_seq bigint, gd_n bigint"
    )
    rows = spark.createDataFrame([("I", 0, name, 7, 0, 1) for name in SOURCES], columns)
    held = rows.where("gd_source = 'dn2'")
    left = without(rows, held).select("gd_source").collect()
    assert sorted(row[0] for row in left) == ["dn1", "dn3"]
    told = rows_since(rows, 1, held)
    assert [row.gd_source for row in told.looked_at.collect()] == ["dn2"]
    assert sorted(row.gd_source for row in told.others.collect()) == ["dn1", "dn3"]


def test_quarantine_of_several_sources(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that fail a test are out, each of its source, and come back when they pass."""
    history = SharedHistory(tmp_path / "landing", 4)
    root, target = tmp_path / "landing", tmp_path / "target"
    tests = {"public.bag": [DataTest("y", Kind.NOT_NULL, ("y",), on_failure=OnFailure.QUARANTINE)]}
    for steps in (3, 2):
        history.run(steps)
        apply(spark, root, target, tests=tests)
        state = state_at(history.states["bag"], (0, history.mark, END))
        assert state is not None
        at = state.names.index("y")
        shown, out = (
            canon([tuple(row[name] for name in state.names) for row in read.collect()])
            for read in (
                query.current(spark, target, "public.bag"),
                query.quarantine(spark, target, "public.bag"),
            )
        )
        assert shown == [row for row in state.rows if row[at] is not None]
        assert out == [row for row in state.rows if row[at] is None]
