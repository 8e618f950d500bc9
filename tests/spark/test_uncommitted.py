"""Rows of prepared transactions: marked where they are asked for, and nowhere else."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit.history import Column, History, Table
from kit.landrun import IDENTITY
from kit.s3 import S3
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, ConfigError, LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.files import Files, make_root
from gaussdecode.land.making import Draft
from gaussdecode.land.prepared import KeptTransaction, PreparedFiles, ShownRows
from gaussdecode.model.entry import prepared_record
from gaussdecode.model.landing import EntryKind, PreparedFile, SourcePosition
from gaussdecode.model.seal import canonical_json, read_sealed, sealed
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.datasource import GaussDecodeSource
from gaussdecode.spark.engine import LocalEngine
from gaussdecode.spark.landing import Landing, Point
from gaussdecode.spark.reading import changes
from gaussdecode.spark.uncommitted import prepared, trailer_of
from gaussdecode.spark.views import ask

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
MARKS = ["gd_gid", "gd_prepared_lsn", "gd_prepared_ts"]
OURS = [
    ("gd_op", pa.string()), ("gd_seq", pa.int64()), ("gd_xid", pa.int64()),
    ("gd_unchanged", pa.list_(pa.field("element", pa.string(), nullable=False))),
]  # fmt: skip
Json = dict[str, Any]  # Any: JSON


@dataclasses.dataclass
class Rows:
    """Rows of ``public.orders`` by one transaction, as `collect.shown` makes them.

    Attributes:
        values: op, id and note, and of a column that the transaction added where it did.
        added: name and type of that.
    """

    values: list[tuple[Any, ...]]
    added: tuple[str, str] | None = None
    table: str = "public.orders"

    @property
    def schema(self) -> Json:
        """Without numbers of columns."""
        columns = [("id", "int32", True), ("note", "string", False)]
        columns += [(*self.added, False)] if self.added else []
        return {
            "schema": "public", "name": self.table.partition(".")[2], "oid": 0, "identity": "d", "key": ["id"],
            "columns": [
                {"name": name, "landed": name, "arrow": of, "identity": key, "attribute_number": None}
                for name, of, key in columns
            ],
            "dropped": [], "unknown": "nobody was asked",
        }  # fmt: skip

    @property
    def rows(self) -> pa.Table:
        """All of them."""
        types = [("id", pa.int32()), ("note", pa.string())]
        types += [(self.added[0], pa.int64())] if self.added else []
        old = ("gd_old", pa.struct([types[0]]))
        raw = ("gd_raw", pa.map_(pa.string(), pa.string()))
        names = [name for name, _ in types]
        made = [
            {"gd_op": op, "gd_seq": seq, "gd_xid": 7, **dict(zip(names, values, strict=True))}
            for seq, (op, *values) in enumerate(self.values)
        ]
        return pa.Table.from_pylist(made, schema=pa.schema([*OURS, old, raw, *types]))


class Source:
    """A landing of orders, in which transactions are prepared and end."""

    def __init__(self, root: Path) -> None:
        columns = [Column(1, "id", pa.int32()), Column(2, "note", pa.string())]
        table = [Table("orders", columns, (1,), full=False)]
        self.history = History(root, 3, tables=table, with_schema_changes=False)
        self.root, self.writer = root, self.history.writer
        self.history.run(3)
        (root / "prepared").mkdir()
        self._aside = root.with_name("aside")  # a daemon's own
        make_root(self._aside)
        log = CommitLog.open(Files(self._aside), IDENTITY)
        log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(1, 1, 1)))
        self._files = PreparedFiles(log, "layout")

    def prepare(self, gid: str, *parts: Rows, why: str | None = None) -> PreparedFile:
        """One is prepared, and its entry says so."""

        def show(_: KeptTransaction, put: Callable[[ShownRows], None]) -> str | None:
            for part in parts:
                put(part)
            return why

        facts = {
            "xid": 7, "lsn": self.history.lsn + 1, "time_us": 10**15, "gid": gid.encode(),
            "origin": None, "aborted": [], "tally": [1], "relations": {},
        }  # fmt: skip
        file = self._files.write(facts, [memoryview(b"batch")], show).file
        (self._aside / file.path).rename(self.root / file.path)
        self.writer.entry(
            EntryKind.PREPARED, self.history.lsn, extra={"prepared": [prepared_record(file)]}
        )
        return file

    def end(self, file: PreparedFile) -> int:
        """It ends; gives the entry."""
        (self.root / file.path).unlink()
        return self.writer.entry(EntryKind.DATA, self.history.lsn, extra={"ended": [file.path]})


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """With one transaction that has ended and two that wait."""
    made = Source(tmp_path / "landing")
    made.end(made.prepare("ended", Rows([("I", 900, "no")])))
    made.prepare("one", Rows([("I", 901, "a"), ("U", 901, "b")]))
    made.prepare("it's", Rows([("I", 902, "c", 5)], added=("more", "int64")))
    made.history.run(2)
    return made


def found(frame: Any) -> list[tuple[Any, ...]]:  # Any: a frame of Spark; values
    """Marks and values of rows that are not committed, in their order."""
    rows = frame.where("gd_gid IS NOT NULL").toArrow().to_pylist()
    rows.sort(key=lambda row: (row["gd_prepared_lsn"], row["gd_gid"], row["gd_seq"]))
    return [(row["gd_gid"], row["gd_op"], row["id"], row["note"], row.get("more")) for row in rows]


WAITING = [("it's", "I", 902, "c", 5), ("one", "I", 901, "a", None), ("one", "U", 901, "b", None)]


def test_changes_show_them_marked(spark: SparkSession, source: Source) -> None:
    """Beside all that is committed, with nothing of a commit; a column of the PREPARE comes last."""
    committed = changes(spark, source.root, "public.orders")
    everything = changes(spark, source.root, "public.orders", read_uncommitted=True)
    assert sorted(found(everything)) == WAITING
    assert everything.columns[-1] == "more"
    uncommitted = everything.where("gd_gid IS NOT NULL").toArrow().to_pylist()
    for row in uncommitted:
        assert [row[name] for name in ("gd_lsn", "gd_epoch", "gd_csn", "gd_ts")] == [None] * 4
        assert row["gd_xid"] == 7
        assert row["gd_prepared_lsn"] > 1000
        assert row["gd_prepared_ts"].timestamp() == 10**9
    rest = everything.where("gd_gid IS NULL").drop(*MARKS, "more")
    assert rest.columns == committed.columns
    assert sorted(map(str, rest.collect())) == sorted(map(str, committed.collect()))
    assert committed.count() > 0
    alone = prepared(spark, source.root, "public.orders")
    assert alone.columns[:3] == MARKS
    assert sorted(found(alone)) == WAITING
    assert alone.count() == 3


def test_nobody_else_takes_them(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Targets, the stream source, and changes without being asked; with the files there or gone."""
    spark.dataSource.register(GaussDecodeSource)

    def seen() -> set[int]:
        target = tmp_path / f"target{len(list(tmp_path.iterdir()))}"
        options = Options(history=True, changelog="gd_ts")
        apply_with(LocalEngine(), source.root, target, options)
        ids = set()
        for name in ("orders", "orders_history"):
            ids |= {row.id for row in ask(spark, target, f"SELECT id FROM {name}").collect()}
        one = spark.read.format("gaussdecode").option("table", "public.orders")
        ids |= {row.id for row in one.load(str(source.root)).collect()}
        every = spark.read.format("gaussdecode").load(str(source.root))
        ids |= {int(row.key["id"]) for row in every.collect() if row.key}
        ids |= {row.id for row in changes(spark, source.root, "public.orders").collect()}
        return {number for number in ids if number is not None}

    first = seen()
    assert first
    assert max(first) < 900
    for file in (source.root / "prepared").iterdir():
        file.unlink()  # who never opens one does not miss it
    assert seen() == first
    with pytest.raises(AnalysisException, match="no option 'readuncommitted'"):
        spark.read.format("gaussdecode").option("readUncommitted", "true").load(str(source.root))


def test_sql_names_them(
    spark: SparkSession, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By a name of their own, which is there with the option only; tables stay what they are."""
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: spark))
    target = tmp_path / "target"
    apply_with(LocalEngine(), source.root, target, Options())
    command = ["spark", "query", str(target)]
    asked = ["--read-uncommitted", "--root", str(source.root), "--json"]
    text = "SELECT gd_gid, id, note FROM orders_prepared ORDER BY id, gd_seq"
    assert main([*command, text, *asked]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["gd_gid"], row["id"]) for row in rows] == [
        ("one", 901),
        ("one", 901),
        ("it's", 902),
    ]
    source.prepare("new", Rows([("I", 1, "of a table that is new")], table="public.fresh"))
    apply_with(LocalEngine(), source.root, target, Options())
    for name in ("fresh_prepared", "public.fresh_prepared", "Fresh_Prepared"):
        status = main([*command, f"SELECT gd_gid, note FROM {name}", *asked])
        assert status == 0, capsys.readouterr().err
        (row,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
        assert row == {"gd_gid": "new", "note": "of a table that is new"}
    assert main([*command, "SELECT * FROM fresh", *asked]) == EX_CONFIG
    assert "there is no such table" in capsys.readouterr().err
    assert main([*command, "SELECT max(id) AS id FROM orders", *asked]) == 0
    assert json.loads(capsys.readouterr().out)["id"] < 900
    assert main([*command, text]) == EX_CONFIG
    assert "there is no such table" in capsys.readouterr().err
    assert main([*command, text, "--read-uncommitted"]) == EX_CONFIG
    assert "give the root of the landing too" in capsys.readouterr().err


def test_points(spark: SparkSession, source: Source) -> None:
    """As of the entry that is read; what has ended since is gone, and that is said."""
    last = Landing(source.root).last_n
    waits = source.prepare("late", Rows([("I", 903, "d")]))
    assert len(found(prepared(spark, source.root, "public.orders"))) == 4
    then = changes(spark, source.root, "public.orders", to=Point(n=last), read_uncommitted=True)
    assert sorted(found(then)) == WAITING
    ended = source.end(waits)
    assert sorted(found(prepared(spark, source.root, "public.orders"))) == WAITING
    with pytest.raises(
        ConfigError, match=rf"'late' was prepared at entry {last + 1} and ended at entry {ended}"
    ):
        prepared(spark, source.root, "public.orders", at=Point(n=last + 1))
    assert found(prepared(spark, source.root, "public.orders", at=Point(n=1))) == []


def test_what_waits_is_told_by_checkpoints_too(tmp_path: Path) -> None:
    """Entry for entry the same as by all entries from the first on."""
    make_root(tmp_path / "landing")
    log = CommitLog.open(Files(tmp_path / "landing"), IDENTITY, block=4)
    log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(1, 1, 1)))
    files = PreparedFiles(log, "layout")
    waits: list[set[str]] = [set()]
    for number in range(30):
        draft, held = Draft(kind=EntryKind.IDLE), set(waits[-1])
        if number % 5 == 1:
            facts = {
                "xid": number, "lsn": number, "time_us": 1, "gid": b"g", "origin": None,
                "aborted": [], "tally": [1], "relations": {},
            }  # fmt: skip
            file = files.write(facts, [memoryview(b"x")]).file
            held.add(file.path)
            draft = Draft(kind=EntryKind.PREPARED, extra={"prepared": [prepared_record(file)]})
        elif number % 7 == 6:
            draft = Draft(kind=EntryKind.IDLE, extra={"ended": [held.pop()]})
        log.commit(draft)
        waits.append(held)
    log.close()
    assert len(list((tmp_path / "landing" / "commits" / "checkpoints").iterdir())) > 3
    landing = Landing(tmp_path / "landing")
    assert [set(landing.prepared_at(n)) for n in range(landing.last_n + 1)] == waits
    for path in (tmp_path / "landing" / "commits").rglob("*"):
        if path.is_file() and int(path.name.split("-")[0].split(".")[0]) < 8:
            path.unlink()  # as retention does
    assert landing.first_n == 8
    first, *_ = [last for _, last, _ in landing._checkpoints()]
    with pytest.raises(ConfigError, match="the log begins with entry 8"):
        landing.prepared_at(8)
    assert [set(landing.prepared_at(n)) for n in range(first, landing.last_n + 1)] == waits[first:]


def test_a_landing_without_any(spark: SparkSession, tmp_path: Path) -> None:
    """No rows, with all columns; a table that is not there is an error."""
    source = Source(tmp_path / "landing")
    alone = prepared(spark, source.root, "public.orders")
    assert alone.count() == 0
    assert {*MARKS, "gd_op", "id", "note"} <= set(alone.columns)
    everything = changes(spark, source.root, "public.orders", read_uncommitted=True)
    assert found(everything) == []
    assert everything.count() == changes(spark, source.root, "public.orders").count()
    with pytest.raises(ConfigError, match=r"has no table 'public\.other'"):
        prepared(spark, source.root, "public.other")


def test_files_that_cannot_be_read(spark: SparkSession, source: Source) -> None:
    """Of an early version, of a row that is none, gone, or damaged: each is said."""
    odd = source.prepare("odd", Rows([("I", 1, "a")]), why="a row is odd")
    with pytest.raises(ConfigError, match=r"'odd' cannot be shown: a row is odd"):
        prepared(spark, source.root, "public.orders")
    source.end(odd)
    file = source.prepare("torn", Rows([("I", 1, "a")]))
    path = source.root / file.path
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"unshown"', b'"unshowm"'))
    with pytest.raises(LandingError, match="altered"):
        prepared(spark, source.root, "public.orders")
    size = int.from_bytes(whole[-8:], "little")
    early = {k: v for k, v in read_sealed(whole[-8 - size : -8]).items() if "shown" not in k}
    end = sealed(canonical_json(early))
    path.write_bytes(whole[: -8 - size] + end + len(end).to_bytes(8, "little"))
    with pytest.raises(ConfigError, match="prepared under an earlier version"):
        trailer_of(path, dataclasses.replace(file, bytes=path.stat().st_size))
    torn = bytearray(whole)
    torn[len(b"batch") + 40] ^= 1
    path.write_bytes(torn)
    with pytest.raises(Exception, match="are not what was written"):
        prepared(spark, source.root, "public.orders").collect()
    path.unlink()
    with pytest.raises(LandingError, match="ended while it was read"):
        prepared(spark, source.root, "public.orders")


def test_through_a_mirror(spark: SparkSession, source: Source, s3: S3) -> None:
    """At a URL, by the same client as all else."""
    url = s3.keep(source.root, s3.bucket(), "landing")
    assert sorted(found(prepared(spark, url, "public.orders"))) == WAITING
    everything = changes(spark, url, "public.orders", read_uncommitted=True)
    assert sorted(found(everything)) == WAITING
