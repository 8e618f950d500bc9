"""Columns whose identity is unknown: their table stops, the others go on, and how it is resolved."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit.history import Column, LandingWriter, Table

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK, ConfigError
from gaussdecode.land.schemas import fingerprint
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.seal import canonical_json
from gaussdecode.spark.apply import Options, Summary, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.schema import UnknownColumnsError, match_columns
from gaussdecode.spark.maintain.status import metrics_text
from gaussdecode.spark.merge.column_identity import answer, question_of
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

OLD, NEW = {"id": 1, "v": 2}, {"id": 1, "w": None}
Rows = list[tuple[Any, ...]]


class Source:
    """A landing of two tables, ``t`` and ``other``, written entry by entry."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.writer = LandingWriter(root / "landing")
        self.lsn = 1000

    def land(self, columns: Mapping[str, int | None], *rows: tuple[Any, ...], name: str = "t",
             op: str = "I", lsn: int | None = None, oid: int = 1) -> int:  # fmt: skip
        """Commit rows of a table that has these columns; give the entry's number."""
        self.lsn += 10
        of = [pa.int32(), *[pa.string()] * (len(columns) - 1)]
        held = [Column(i, n, t) for i, (n, t) in enumerate(zip(columns, of, strict=True))]
        table = Table(name, held, (0,), full=False, oid=oid)
        record = table.record()
        for column in record["columns"]:
            column["attribute_number"] = columns[column["name"]]
        found = fingerprint(record)
        path = self.root / "landing" / "schemas" / table.directory / f"{found}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(canonical_json(record))
        at = self.lsn if lsn is None else lsn
        content = pa.Table.from_pylist(
            [
                {"gd_op": op, "gd_epoch": 0, "gd_lsn": at, "gd_seq": seq, "gd_xid": at,
                 **dict(zip(columns, row, strict=True))}
                for seq, row in enumerate(rows)
            ],
            schema=table.schema(),
        )  # fmt: skip
        file = self.writer.file(table.directory, found, content, 0)
        kind = EntryKind.SNAPSHOT if op == "R" else EntryKind.DATA
        return self.writer.entry(kind, self.lsn, [file])

    def apply(self, **options: Any) -> Summary:
        """Bring the target up to the end of the log."""
        return apply_with(
            LocalEngine(), self.root / "landing", self.root / "target", Options(**options)
        )

    def rows(self, name: str = "t", kind: str = "current") -> Rows:
        """What the target has of a table, by the names that its newest version has."""
        target = Target(self.root / "target")
        database = target.database()
        assert database is not None
        table = f"public.{name}"
        version = target.version(table, database.tables[table])
        names = target.schema(table, version.schema_id).names
        return sorted(
            tuple(row.get(name) for name in names)
            for file in getattr(version, kind)
            for row in current_rows(target.table_root(table), file).to_pylist()
        )

    def command(self, *args: str) -> int:
        """Run a command of ``gaussdecode spark``."""
        roots = [str(self.root / "landing"), str(self.root / "target")]
        return main(["spark", args[0], *roots, *args[1:]])


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Rows of ``t`` under known columns, then under columns that nobody knows."""
    made = Source(tmp_path)
    made.land(OLD, (1, "a"), (2, "b"))
    made.land(OLD, (3, "c"))
    made.land(NEW, (2, "B"), op="U")
    made.land({"id": 1}, (1,), name="other")
    return made


def test_one_table_stops_and_the_others_go_on(source: Source) -> None:
    """It keeps what it had, is said, and is not taken to be as far as the database."""
    summary = source.apply()
    assert list(summary.stopped) == ["public.t"]
    assert summary.n == 4
    assert source.rows("other") == [(1,)]
    assert source.rows() == [(1, "a"), (2, "b"), (3, "c")]
    source.land({"id": 1}, (2,), name="other")
    source.land(NEW, (4, "D"))
    again = source.apply()
    assert list(again.stopped) == ["public.t"]
    assert source.rows("other") == [(1,), (2,)]
    assert source.rows() == [(1, "a"), (2, "b"), (3, "c")]
    found = metrics_text(source.root / "landing", source.root / "target")
    assert re.search(r"^gaussdecode_spark_stopped_tables\{.*\} 1$", found, re.MULTILINE)
    assert re.search(r"^gaussdecode_spark_gone_tables\{.*\} 0$", found, re.MULTILINE)


def test_it_may_stop_before_its_first_version(tmp_path: Path) -> None:
    """Both descriptions came in the first apply: nothing after the first is lost."""
    source = Source(tmp_path)
    source.land({"id": 1}, (1,), name="other")
    source.apply()
    source.land(OLD, (1, "a"))
    source.land(NEW, (2, "b"))
    assert list(source.apply().stopped) == ["public.t"]
    assert list(source.apply().stopped) == ["public.t"]
    assert source.command("columns", "public.t", "--was", "w=v") == EX_OK
    assert source.apply().stopped == {}
    assert source.rows() == [(1, "a"), (2, "b")]


def test_the_log_is_not_read_again_for_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can move the table, only new entries are read; the answer or a snapshot moves it."""
    source.apply()
    read: list[int] = []
    entries = Landing.entries

    def noted(landing: Landing, first: int, last: int) -> Iterator[CommitEntry]:
        for entry in entries(landing, first, last):
            read.append(entry.n)
            yield entry

    monkeypatch.setattr(Landing, "entries", noted)
    assert list(source.apply().stopped) == ["public.t"]
    assert min(read, default=4) == 4
    for n in range(5, 8):
        source.land(NEW, (n, "D"))
        last = source.land({"id": 1}, (n,), name="other")
        summary = source.apply()
        assert (list(summary.stopped), summary.n) == (["public.t"], last)
        assert min(read) >= last - 2
        read.clear()
    assert len(source.rows("other")) == 4
    assert source.command("columns", "public.t", "--was", "w=v") == EX_OK
    assert source.apply().stopped == {}
    assert min(read) <= 3
    assert len(source.rows()) == 6


@pytest.mark.parametrize("has_stopped", [True, False])
def test_a_snapshot_goes_over_it(source: Source, *, has_stopped: bool) -> None:
    """Its rows replace the table's; history has what ended, under the names of now."""
    source.apply(history=True) if has_stopped else None
    source.land({"id": 1, "w": 2}, (1, "A"), (2, "B"), op="R")
    source.land({"id": 1, "w": 2}, (5, "E"))
    summary = source.apply(history=True)
    assert summary.stopped == {}
    assert source.rows() == [(1, "A"), (2, "B"), (5, "E")]
    target = Target(source.root / "target")
    newest = target.newest("public.t")
    assert newest is not None
    closed = {target.schema("public.t", file.schema_id).names for file in newest.closed}
    assert closed == {("id", "w")}
    files = [current_rows(target.table_root("public.t"), file) for file in newest.closed]
    ended = [tuple(row.values()) for rows in files for row in rows.select(["id", "w"]).to_pylist()]
    assert sorted(ended) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("has_stopped", [True, False])
def test_a_table_made_anew_goes_over_it(source: Source, *, has_stopped: bool) -> None:
    """Another table under the name begins empty, whatever the columns of the old one were."""
    source.apply(history=True) if has_stopped else None
    source.land(NEW, (1, "x"), oid=2)
    source.land(OLD, (1, "A"), oid=3)
    assert source.apply(history=True).stopped == {}
    assert source.rows() == [(1, "A")]


def test_changes_that_a_snapshot_covers_stop_nothing(source: Source) -> None:
    """They come after it in the log, and before it in the stream."""
    source.land({"id": 1, "w": 2}, (1, "A"), op="R")
    source.land(NEW, (2, "x"), lsn=source.lsn - 5)
    source.land({"id": 1, "w": 2}, (6, "F"))
    assert source.apply().stopped == {}
    assert source.rows() == [(1, "A"), (6, "F")]


def test_what_somebody_says_is_kept(source: Source) -> None:
    """The command shows what is asked, takes the answer, and the table goes on."""
    source.apply()
    assert source.command("apply", "--local") == EX_CONFIG
    assert source.command("columns", "public.t") == EX_OK
    assert source.command("columns", "public.t", "--was", "w=nothing") == EX_CONFIG
    assert source.command("columns", "public.t", "--was", "w=v") == EX_OK
    assert source.command("apply", "--local") == EX_OK
    assert source.rows() == [(1, "a"), (2, "B"), (3, "c")]
    assert source.command("columns", "public.t", "--was", "w=v") == EX_CONFIG


def test_a_column_is_said_to_be_new(source: Source) -> None:
    """Rows from before have no value in it."""
    source.apply()
    assert source.command("columns", "public.t", "--was", "w=") == EX_OK
    assert source.apply().stopped == {}
    assert source.rows() == [(1, None), (2, "B"), (3, None)]


def test_what_was_said_holds_for_one_change(source: Source) -> None:
    """The same two versions in another place of the log are another question."""
    source.apply()
    assert source.command("columns", "public.t", "--was", "w=v") == EX_OK
    source.apply()
    source.land(OLD, (7, "g"))
    assert list(source.apply().stopped) == ["public.t"]


def test_answers_that_contradict_are_refused(source: Source) -> None:
    """Numbers that are known stay as they are, and no column was two."""
    source.apply()
    landing, store = Landing(source.root / "landing"), Target(source.root / "target")
    question = question_of(landing, store, "public.t")
    with pytest.raises(ConfigError, match="both are known"):
        answer(question, {"id": "v"})
    with pytest.raises(ConfigError, match="two columns cannot both"):
        answer(question, {"w": "id"})
    with pytest.raises(ConfigError, match="calls a column new or renamed"):
        answer(question, {"id": "", "w": ""})


def test_unknown_columns_are_never_matched(source: Source) -> None:
    """Not by name either: the last guard, below the plan."""
    source.apply()
    landing, store = Landing(source.root / "landing"), Target(source.root / "target")
    question = question_of(landing, store, "public.t")
    with pytest.raises(UnknownColumnsError, match="gaussdecode spark columns"):
        match_columns(question.old, question.new)
    anew = dataclasses.replace(question.new, oid=99)
    assert match_columns(question.old, anew) == {"id": "id"}


def test_a_changelog_has_what_a_snapshot_goes_over(tmp_path: Path) -> None:
    """Changes of a version that no other file is of, under the names of now."""
    source = Source(tmp_path)
    source.land({"id": 1, "v": 2}, (1, "a"))
    source.land({"id": 1, "w": 2}, (1, "a"), (2, "b"), op="R")
    assert source.apply(changelog="gd_commit_date").stopped == {}
    assert source.rows() == [(1, "a"), (2, "b")]
    assert source.rows(kind="changelog") == [(1, "a"), (1, "a"), (2, "b")]
