"""The commit log as a source: rows of one table, of all tables, or files; once, and all of them."""

import ast
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.ddllanding import ID, OID, Command, DdlLanding, Of, dropped
from kit.history import Column, History, Table
from kit.s3 import S3
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.offset import Offset
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.stream.datasource import GaussDecodeSource, changes_of
from gaussdecode.spark.stream.rows import TableRows, parts_of
from gaussdecode.spark.stream.schema_history import schemas
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
INT4 = pa.int32()
Places = Counter[tuple[str, int, int, int, str]]
"""Table, number of the entry, LSN, seq and op of rows."""


def changelog(root: Path) -> Places:
    """What apply makes of the same landing."""
    apply_with(LocalEngine(), root / "landing", root / "target", Options(changelog="gd_ts"))
    target, found = Target(root / "target"), Places()
    for table in target.tables():
        version = target.newest(table)
        assert version is not None
        for file in version.changelog:
            path = target.table_root(table) / file.path
            for row in pq.read_table(path, partitioning=None).to_pylist():
                found[table, row["gd_n"], row["gd_lsn"], row["gd_seq"], row["gd_op"]] += 1
    return found


class Stream:
    """A stream of a landing, started again and again until there is no more.

    Args:
        spark: running.
        directory: of its checkpoint.
        options: of the source.
    """

    def __init__(self, spark: SparkSession, directory: Path, **options: str) -> None:
        spark.dataSource.register(GaussDecodeSource)
        self._spark, self._directory, self._options = spark, directory, options
        self.batches: list[list[dict[str, Any]]] = []  # Any: values of rows
        self.progress: list[dict[str, Any]] = []  # Any: JSON of Spark's

    def run(self, **options: str) -> list[list[dict[str, Any]]]:
        """Read all there is; gives the rows of each batch so far."""
        source = self._spark.readStream.format("gaussdecode").options(
            **{**self._options, **options}
        )

        def keep(batch: DataFrame, _: int) -> None:
            self.batches.append(batch.toArrow().to_pylist())

        query = (
            source.load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._directory))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
        self.progress = [of["sources"][0] for of in query.recentProgress]
        return self.batches

    @property
    def numbers(self) -> list[set[int]]:
        """Entries of each batch."""
        return [{row["gd_n"] for row in batch} for batch in self.batches]


def read(spark: SparkSession, root: Path | str, **options: str) -> list[dict[str, Any]]:
    """Read all there is at once."""
    spark.dataSource.register(GaussDecodeSource)
    frame = spark.read.format("gaussdecode").options(path=str(root), **options).load()
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()  # Any: as above
    return rows


def read_here(root: Path | str, **options: str) -> list[dict[str, Any]]:
    """The same without Spark's processes; a schema that is text needs a session (`spark`)."""
    source = GaussDecodeSource({"path": str(root), **options})
    schema = source.schema()
    wanted = T.StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(wanted, T.StructType)
    reader = source.reader(wanted)
    batches: list[Any] = [of for part in reader.partitions() for of in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_all_tables_exactly_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """Started again with its checkpoint while more lands: the changelog that apply makes."""
    source = History(tmp_path / "landing", 2, with_schema_changes=False)
    root = str(tmp_path / "landing")
    stream = Stream(spark, tmp_path / "checkpoint", path=root, maxEntriesPerTrigger="8")
    for _ in range(2):
        source.run(4)
        source.snapshot(source.tables[1])
        source.transaction()
        source.commit()
        stream.run()
    rows = [row for batch in stream.batches for row in batch]
    found = Places(
        (row["table"], row["gd_n"], row["gd_lsn"], row["gd_seq"], row["gd_op"]) for row in rows
    )
    assert found == changelog(tmp_path)
    for row in rows:
        assert (row["gd_op"] == "R") == (row["gd_snapshot"] == "all")
        assert (row["after"] is None) == (row["gd_op"] in "DT")
        assert (row["key"] is None) == (row["gd_op"] == "T" or row["table"] == "public.bag")
    assert rows == [] or {"I", "U", "D", "R"} <= {row["gd_op"] for row in rows}
    latest = {
        dict(row["key"])["id"]: dict(row["after"])
        for row in sorted(rows, key=lambda row: (row["gd_lsn"], row["gd_seq"]))
        if row["table"] == "public.full_key" and row["gd_op"] in "IUR"
    }
    states = source.states["full_key"]
    for held in states[max(states)].rows:
        assert latest[str(held[0])]["a"] == held[1]


def other_landing(root: Path, seed: int) -> History:
    """Begin another landing at the same path."""
    shutil.rmtree(root)
    history = History(root, seed, with_schema_changes=False)
    layout = json.loads((root / "layout.json").read_text())
    layout["landing_id"] = f"{seed:032x}"
    (root / "layout.json").write_text(json.dumps(layout))
    return history


@pytest.mark.parametrize("entries", [2, 12], ids=["shorter", "longer"])
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_new_landing_at_the_same_path_stops_the_stream(
    starting: str, entries: int, spark: SparkSession, tmp_path: Path
) -> None:
    """Its numbers begin anew: whether the one that was read comes again or not, no entry is skipped."""
    history = History(tmp_path / "landing", 5, with_schema_changes=False)
    history.run(5)
    options = {"path": str(tmp_path / "landing"), "startingOffset": starting}
    Stream(spark, tmp_path / "checkpoint", **options).run()
    other_landing(tmp_path / "landing", 6).run(entries)
    with pytest.raises(StreamingQueryException, match="holds another landing now"):
        Stream(spark, tmp_path / "checkpoint", **options).run()
    batches = Stream(spark, tmp_path / "new", path=options["path"]).run()
    assert 1 in {row["gd_n"] for batch in batches for row in batch}


def offsets(checkpoint: Path) -> list[Path]:
    """Files in which Spark keeps the offsets of batches, in order."""
    found = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))


def test_offsets_of_before_are_gone_on_from(spark: SparkSession, tmp_path: Path) -> None:
    """They have a number alone, which is taken as it is; the next ones say which landing it is of."""
    history = History(tmp_path / "landing", 5, with_schema_changes=False)
    history.run(3)
    read, options = history.writer.n - 1, {"path": str(tmp_path / "landing")}
    stream = Stream(spark, tmp_path / "checkpoint", **options)
    stream.run()
    for path in offsets(tmp_path / "checkpoint"):
        *head, line = path.read_text().splitlines()
        path.write_text("\n".join([*head, json.dumps({"n": json.loads(line)["n"]})]))
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    history.run(2)
    stream.batches.clear()
    stream.run()
    assert min(n for numbers in stream.numbers for n in numbers) > read
    line = offsets(tmp_path / "checkpoint")[-1].read_text().splitlines()[-1]
    assert (
        json.loads(line)
        == Offset.of(Landing(tmp_path / "landing"), history.writer.n - 1).to_record()
    )


def test_a_copy_that_went_on_by_itself_stops_the_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It has the same id, and other entries; one that has nothing else yet is gone on with."""
    history = History(tmp_path / "landing", 5, with_schema_changes=False)
    history.run(3)
    options = {"path": str(tmp_path / "landing")}
    stream = Stream(spark, tmp_path / "checkpoint", **options)
    stream.run()
    shutil.copytree(tmp_path / "landing", tmp_path / "copy")
    history.run(2)
    stream.run()
    with pytest.raises(
        StreamingQueryException, match=r"ends with entry .*and was read up to entry"
    ):
        stream.run(path=str(tmp_path / "copy"))
    history.writer.root, history.writer.n = tmp_path / "copy", Landing(tmp_path / "copy").last_n + 1
    history.writer.previous = Landing(tmp_path / "copy").hash_at(history.writer.n - 1)
    history.lsn += 1000
    history.run(6)
    with pytest.raises(StreamingQueryException, match="differs from the entry that was read"):
        stream.run(path=str(tmp_path / "copy"))


@pytest.mark.usefixtures("spark")
def test_numbers_may_say_which_landing_they_are_of(tmp_path: Path) -> None:
    """As options too; what was kept of another landing is refused."""
    root = tmp_path / "landing"
    history = History(root, 5, with_schema_changes=False)
    history.run(3)
    known = Landing(root).landing_id
    given = {"startingOffset": f"1@{known}", "endingOffset": f"2@{known}"}
    assert {row["gd_n"] for row in read_here(root, **given)} == {2}
    other_landing(root, 6).run(3)
    for name, text in given.items():
        with pytest.raises(LandingError, match="holds another landing now"):
            read_here(root, **{name: text})
    with pytest.raises(ConfigError, match="it can be earliest, latest or a whole number from -1"):
        read_here(root, startingOffset=f"x@{known}")


def test_files_of_another_landing_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of a micro-batch name files, which must be those of the landing."""
    root = tmp_path / "landing"
    History(root, 5, with_schema_changes=False).run(2)
    spark.dataSource.register(GaussDecodeSource)
    frame = spark.read.format("gaussdecode").options(path=str(root), rows="files").load()
    kept = spark.createDataFrame(frame.collect(), frame.schema)
    assert changes_of(spark, root, kept)
    other_landing(root, 6).run(3)
    with pytest.raises(LandingError, match="these rows are of another landing"):
        changes_of(spark, root, kept)


def test_rows_of_a_table_over_its_versions(spark: SparkSession, tmp_path: Path, s3: S3) -> None:
    """As a batch: every landed row with its columns typed, also those that were dropped since."""
    source = History(tmp_path / "landing", 2013)
    source.run(6)
    root = tmp_path / "landing"
    rows = read(spark, root, table="public.plain")
    expected = [
        {**row, "gd_n": entry.n}
        for entry in Landing(root).entries(0, source.writer.n - 1)
        for file in entry.files
        if file.table == "public.plain"
        for row in pq.read_table(root / file.path, partitioning=None).to_pylist()
    ]
    assert len({tuple(sorted(row)) for row in expected}) > 1, "versions differ"
    by_place = {(row["gd_lsn"], row["gd_seq"], row["gd_op"]): row for row in rows}
    assert len(by_place) == len(rows) == len(expected)
    for landed in expected:
        row = by_place[landed["gd_lsn"], landed["gd_seq"], landed["gd_op"]]
        for name in ("gd_n", "gd_epoch", "gd_xid", "gd_ts", "id"):
            assert row[name] == landed[name]
        assert len(row["gd_unchanged"] or ()) <= len(landed["gd_unchanged"] or ())
        assert (row["gd_old"] is None) == (landed["gd_old"] is None)
    assert {column.name for column in source.tables[0].columns} <= set(rows[0])
    some = read_here(root, table="public.plain", startingOffset="2", endingOffset="4")
    assert {row["gd_n"] for row in some} == {n for row in rows if 2 < (n := row["gd_n"]) <= 4}
    assert read_here(root, table="public.plain", startingOffset="latest") == []
    url = s3.keep(root, s3.bucket(), "landing")
    batches = Stream(spark, tmp_path / "checkpoint", path=url, table="public.plain").run()
    assert sorted(repr(row) for batch in batches for row in batch) == sorted(map(repr, rows))
    assert read_here(url) == read_here(root)


def test_other_columns_stop_the_stream_until_it_is_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A query that runs keeps its columns; started again with its checkpoint it has the new ones."""
    source = History(tmp_path / "landing", 5, with_schema_changes=False)
    source.run(3)
    root, table = str(tmp_path / "landing"), source.tables[0]
    spark.dataSource.register(GaussDecodeSource)
    seen: list[dict[str, Any]] = []  # Any: values of rows

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(batch.toArrow().to_pylist())

    def load() -> DataFrame:
        stream = spark.readStream.format("gaussdecode").option("table", "public.plain")
        return stream.load(root)

    def drain(frame: DataFrame) -> None:
        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)

    frame = load()
    drain(frame)
    before = len(seen)
    table.columns = [*table.columns, Column(50, "added", table.columns[0].type)]
    for row in table.rows.values() if isinstance(table.rows, dict) else ():
        row[50] = None
    for _ in range(8):
        source.transaction()
    source.commit()
    changed = source.writer.n - 1
    with pytest.raises(StreamingQueryException, match=f"columns changed in entry {changed}; start"):
        drain(frame)
    assert len(seen) == before
    drain(load())
    assert "added" in seen[-1]
    places = Counter((row["gd_lsn"], row["gd_seq"], row["gd_op"]) for row in seen)
    expected = changelog(tmp_path)
    assert places == Counter(
        {(place[2:]): n for place, n in expected.items() if place[0] == "public.plain"}
    )


def test_stream_takes_its_time(spark: SparkSession, tmp_path: Path) -> None:
    """In batches of as many entries or bytes as were asked for; the progress says how far the log is."""
    source = History(tmp_path / "landing", 8)
    source.run(3)
    last = source.writer.n
    stream = Stream(spark, tmp_path / "checkpoint", path=str(tmp_path / "landing"))
    stream.run(maxEntriesPerTrigger="2")
    is_asked = tuple(map(int, spark.version.split(".")[:2])) >= (4, 2)
    assert len(stream.batches) == (-(-last // 2) if is_asked else 1)
    entries = list(Landing(tmp_path / "landing").entries(0, last - 1))
    assert set.union(*stream.numbers) == {entry.n for entry in entries if entry.files}
    source.run(2)
    before = len(stream.batches)
    stream.run(maxBytesPerTrigger="1")
    landed = [
        n for n in range(last, source.writer.n) if Landing(tmp_path / "landing").entry(n).files
    ]
    assert [n for n in stream.numbers[before:] if n] == [{n} for n in landed] or not is_asked
    told = [
        {name: ast.literal_eval(of[name]) for name in ("endOffset", "latestOffset") if of[name]}
        for of in stream.progress
    ]
    newest = Offset.of(Landing(tmp_path / "landing"), source.writer.n - 1).to_record()
    assert told[-1]["endOffset"] == newest
    assert all(of["latestOffset"] == newest for of in told if is_asked)


@pytest.mark.parametrize("loss", ["gap", "retention", "quarantine", "suspect", "suspect of any"])
@pytest.mark.usefixtures("spark")
def test_it_stops_where_changes_are_missing(loss: str, tmp_path: Path) -> None:
    """A gap, a quarantine, suspect rows, entries that went before they were read; it goes on when told so."""
    root = tmp_path / "landing"
    source = History(root, 9, with_schema_changes=False)
    source.run(2)
    lost = source.writer.n
    if loss == "gap":
        source.writer.entry(EntryKind.GAP, source.lsn)
    extra: dict[str, Any]  # Any: JSON
    if loss == "quarantine":
        extra = {"reason": "table_error", "tables": ["public.pair"]}
        source.writer.entry(EntryKind.QUARANTINE, source.lsn, extra=extra)
    if loss == "suspect":
        changes = {"public.pair": {"text": "a partition was emptied", "oid": None}}
        extra = {
            "reason": "table_changed",
            "text": "public.pair: a partition was emptied. Between ...",
        }
        extra |= {"tables": ["public.pair"], "is_any_table": False, "changes": changes}
        source.writer.entry(EntryKind.SUSPECT, source.lsn, extra=extra)
    if loss == "suspect of any":
        extra = {"reason": "ddl_in_transaction", "text": "rows after DDL were left out"}
        extra |= {"tables": [], "is_any_table": True}
        source.writer.entry(EntryKind.SUSPECT, source.lsn, extra=extra)
    source.run(3)
    if loss == "retention":
        for n in range(lost + 1):
            (root / "commits" / f"{n:020d}.json").unlink()
    told = {
        "gap": f"entry {lost} is a gap",
        "retention": f"entries {lost} to {lost} were removed by retention",
        "quarantine": f"entry {lost} put public.pair in quarantine",
        "suspect": rf"entry {lost} says that rows may be wrong: public.pair: a partition was emptied; read "
        r"it again \(gaussdecode snapshot CONFIG --table NAME\).*failOnDataLoss",
        "suspect of any": f"entry {lost} says that rows may be wrong: .*rows after DDL were left out",
    }
    after = str(lost - 1)
    with pytest.raises(LandingError, match=told[loss]):
        read_here(root, startingOffset=after)
    if loss in {"quarantine", "suspect"}:  # others are whole
        assert read_here(root, startingOffset=after, table="public.plain")
    else:
        with pytest.raises(LandingError, match=told[loss]):
            read_here(root, startingOffset=after, table="public.plain")
    for table in ("public.pair", "public.plain") if loss == "suspect" else ():
        options = {"rows": "files", "startingOffset": after, "table": table}
        reader = GaussDecodeSource({"path": str(root), **options}).reader(T.StructType())
        if table == "public.plain":
            assert reader.partitions()
        else:
            with pytest.raises(LandingError, match=told[loss]):
                reader.partitions()
    rows = read_here(root, startingOffset=after, failOnDataLoss="false")
    assert max(row["gd_n"] for row in rows) == source.writer.n - 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe', it can be true or false"),
        ({"startingOffset": "now"}, "startingOffset is 'now', it can be earliest, latest or"),
        ({"rows": "some"}, "rows is 'some', it can be changes or files"),
        ({"maxBytesPerTrigger": "0"}, "it can be a whole number from 1"),
        ({"startingN": "3"}, "there is no option 'startingn'"),
        (
            {"ddl": "true", "table": "public.plain"},
            "ddl is true: rows of one table have its columns",
        ),
        ({"table": "public.nothing"}, "has no table 'public.nothing'; it has: public"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], told: str, tmp_path: Path) -> None:
    """With what they can be."""
    History(tmp_path / "landing", 9).run(1)
    with pytest.raises(ConfigError, match=told):
        read_here(tmp_path / "landing", **options)


def test_files_and_their_changes(spark: SparkSession, tmp_path: Path) -> None:
    """A row is a landed file; in foreachBatch its changes are read natively."""
    root = tmp_path / "landing"
    source = History(root, 1, with_schema_changes=False)
    source.run(4)
    landing = Landing(root)
    files = [
        (entry.n, str(root / file.path), file.rows)
        for entry in landing.entries(0, landing.last_n)
        for file in entry.files
        if file.table == "public.plain"
    ]
    spark.dataSource.register(GaussDecodeSource)
    options = {"rows": "files", "table": "public.plain"}
    frame = spark.read.format("gaussdecode").options(**options).load(str(root))
    assert sorted((row.n, row.path, row.rows) for row in frame.collect()) == sorted(files)
    found = changes_of(spark, str(root), frame)
    assert sum(rows.count() for rows in found.values()) == sum(rows for _, _, rows in files)


def test_large_files_are_cut_by_row_groups(tmp_path: Path) -> None:
    """Every row is in one part, whatever a part may hold."""
    source = History(tmp_path, 7, tables=[Table("plain", [Column(1, "id", INT4)], (1,), full=False)],
                     with_schema_changes=False, keys=200)  # fmt: skip
    for _ in range(60):
        source.transaction()
    source.commit()
    source.run(3)
    rows = TableRows(tmp_path, "public.plain")
    entries = list(Landing(tmp_path).entries(0, source.writer.n - 1))
    size = max(file.bytes for entry in entries for file in entry.files)
    seen = []
    for limit in (size * 10, size, size // 4):
        parts = list(parts_of(tmp_path, entries, "public.plain", limit))
        read = [
            (row["gd_lsn"], row["gd_seq"])
            for part in parts
            for batch in rows.read(part, rows.schema())
            for row in batch.to_pylist()
        ]
        assert len(set(read)) == len(read) == sum(f.rows for e in entries for f in e.files)
        seen.append(len(parts))
    assert seen == sorted(seen)
    assert seen[0] == 1 < seen[-1]
    (tmp_path / entries[1].files[0].path).unlink()
    with pytest.raises(LandingError, match="of entry 1 is gone: retention took it"):
        list(rows.read(next(parts_of(tmp_path, entries, None)), rows.schema()))


def test_ddl_commands_where_they_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """A row for each, in its place between the others; and the history of columns as a frame."""
    landing = DdlLanding(tmp_path / "landing")
    a, b = Of(2, "a"), Of(3, "b", "text")
    landing.land(([ID, a], {"id": 1}), Command([ID, a, b]), ([ID, a, b], {"id": 2}))
    landing.land(dropped(), Command(None, more={"version": 2}))
    stream = Stream(spark, tmp_path / "checkpoint", path=str(landing.root))
    (plain,) = stream.run()
    (batch,) = Stream(spark, tmp_path / "other", path=str(landing.root), ddl="true").run()
    rows = sorted(batch, key=lambda row: (row["gd_lsn"], row["gd_seq"]))
    ops = [(row["gd_n"], row["gd_seq"], row["gd_op"], row["table"]) for row in rows]
    assert ops == [
        (1, 0, "I", "public.t"), (1, 1, "DDL", "public.t"), (1, 2, "I", "public.t"),
        (2, 0, "DDL", "public.t"), (2, 1, "DDL", None),
    ]  # fmt: skip
    assert [row for row in rows if row["gd_op"] == "I"] == sorted(plain, key=lambda r: r["gd_seq"])
    after = dict(rows[1]["after"])
    assert (after["command_tag"], after["oid"]) == ("ALTER TABLE", str(OID))
    assert [column["name"] for column in json.loads(after["columns"])] == ["id", "a", "b"]
    assert rows[1]["key"] is rows[1]["before"] is None
    assert set(dict(rows[4]["after"]).values()) == {None}
    frame = schemas(spark, landing.root, "public.t")
    told = [(row["gd_n"], row["seen_in"]) for row in frame.select("gd_n", "seen_in").collect()]
    assert told == [(1, "rows"), (1, "gd_ddl"), (2, "gd_ddl")]
    named = frame.selectExpr("explode(columns) AS c").where("c.type = 'text'").select("c.name")
    assert [row["name"] for row in named.collect()] == ["b"]
