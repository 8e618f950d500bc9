"""Targets follow DDL commands where they stand, and stop or wait where that is asked for or not known."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from kit.ddllanding import ID, Command, DdlLanding, Of, dropped

from gaussdecode.cli import main
from gaussdecode.collect.arrow import arrow_type
from gaussdecode.errors import EX_CONFIG, EX_OK, ConfigError
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.types import ColumnType, Kind
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.ddl_schema import ARROW, arrow_text
from gaussdecode.spark.log.masks import read_masks
from gaussdecode.spark.log.place import read_table
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.on_ddl import DEFAULT, read_on_ddl
from gaussdecode.spark.merge.options import Summary
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.delta_log import DeltaLog
from gaussdecode.spark.target.store import Target

A, B = Of(2, "a"), Of(3, "b", "text")
T = "public.t"


class Source(DdlLanding):
    """The landing and its target."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "landing")
        self.target = root / "target"
        self.said: list[str] = []

    def apply(self, *on_ddl: str, **options: Any) -> Summary:
        """Bring the target up to the end of the log."""
        made = Options(on_ddl=read_on_ddl(on_ddl), **options)
        return apply_with(LocalEngine(), self.root, self.target, made, progress=self.said.append)

    def columns(self) -> dict[str, str]:
        """Columns of the source that the Delta table has, with their types."""
        log = DeltaLog(Target(self.target).table_root(T) / "current")
        fields = json.loads(log.snapshot().metadata["schemaString"])["fields"]
        return {of["name"]: of["type"] for of in fields if not of["name"].startswith("gd_")}

    def rows(self) -> list[tuple[Any, ...]]:
        """Rows of the target, by the names of its newest version."""
        store = Target(self.target)
        version = store.newest(T)
        assert version is not None
        names = store.schema(T, version.schema_id).names
        return sorted(
            tuple(row.get(name) for name in names)
            for file in version.current
            for row in current_rows(store.table_root(T), file).to_pylist()
        )


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A table with two columns and two rows."""
    made = Source(tmp_path)
    made.land(([ID, A], {"id": 1, "a": 10}), ([ID, A], {"id": 2, "a": 20}))
    return made


@pytest.mark.parametrize(
    ("after", "columns", "rows"),
    [
        ([ID, A, B], {"id": "integer", "a": "integer", "b": "string"}, [(1, 10, None), (2, 20, None)]),
        ([ID], {"id": "integer"}, [(1,), (2,)]),
        ([ID, Of(2, "z")], {"id": "integer", "z": "integer"}, [(1, 10), (2, 20)]),
        ([ID, Of(2, "a", "bigint")], {"id": "integer", "a": "long"}, [(1, 10), (2, 20)]),
        ([Of(1, "key", "bigint", key=1), Of(2, "gd_a")], {"key": "long", "col_gd_a": "integer"},
         [(1, 10), (2, 20)]),
        ([ID, Of(3, "a", "text")], {"id": "integer", "a": "string"}, [(1, None), (2, None)]),
        ([ID, Of(2, "a", not_null=True, default="5")], {"id": "integer", "a": "integer"}, [(1, 10), (2, 20)]),
    ],
    ids=["add", "drop", "rename", "widen", "key", "anew", "default"],
)  # fmt: skip
@pytest.mark.parametrize("is_together", [True, False])
def test_columns_change_with_the_command(
    source: Source, after: list[Of], columns: dict[str, str], rows: list[Any], *, is_together: bool
) -> None:
    """No row has come since; rows have their values under the new columns, and later rows fit."""
    if not is_together:
        source.apply(history=True)
    source.land(Command(after))
    assert source.apply(history=True).stopped == {}
    assert source.columns() == {n: of for n, of in columns.items() if not n.startswith("gd_")}
    assert source.rows() == rows
    new = {of.name: 3 for of in after if of.type != "text"}
    source.land((after, new))
    summary = source.apply(history=True)
    assert not summary.stopped
    assert not summary.unmatched
    assert len(source.rows()) == 3


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE t ADD b text DEFAULT 'x', ALTER b DROP DEFAULT", None]
)
@pytest.mark.parametrize("is_together", [True, False])
def test_older_rows_get_the_constant_of_a_new_column(
    source: Source, statement: str | None, *, is_together: bool
) -> None:
    """With the command, also in history; rows that come later have their own values."""
    if not is_together:
        source.apply(history=True)
    new = [ID, A, B, Of(4, "d", "timestamp with time zone")]
    constants = {3: "x,y", 4: "2026-01-31 12:00:00+00"}
    source.land(Command(new, statement=statement, constants=constants))
    source.apply(history=True)
    at = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    assert source.rows() == [(1, 10, "x,y", at), (2, 20, "x,y", at)]
    source.land((new, {"id": 2, "a": 21, "b": None}), op="U")
    source.apply(history=True)
    assert source.rows() == [(1, 10, "x,y", at), (2, 21, None, None)]
    version = Target(source.target).newest(T)
    assert version is not None
    (closed,) = version.closed
    (row,) = read_table(Target(source.target).table_root(T) / closed.path).to_pylist()
    assert (row["a"], row["b"], row["d"]) == (20, "x,y", at)


def test_a_constant_of_another_column_says_nothing(source: Source) -> None:
    """A column without one may have its values in the rows: it waits."""
    source.land(
        Command(
            [ID, A, B],
            statement="ALTER TABLE t ADD b text DEFAULT md5(random()::text)",
            constants={2: "7"},
        )
    )
    source.apply()
    assert source.columns() == {"id": "integer", "a": "integer"}
    assert any("waits for the next rows" in text for text in source.said)


@pytest.mark.parametrize(
    ("statement", "count"),
    [("ALTER TABLE t ALTER a TYPE bigint USING a", 0), ("ALTER TABLE t ALTER a TYPE bigint", 1)],
)
def test_values_that_are_known_go_on_under_a_wider_type(
    source: Source, statement: str, count: int
) -> None:
    """USING changes nothing where the server wrote nothing anew; a plain conversion is known."""
    source.apply()
    source.land(Command(BIG, statement=statement, more={"rewritten_count": count}))
    source.apply()
    assert source.columns() == {"id": "integer", "a": "long"}


def test_the_order_is_that_of_the_rows(source: Source) -> None:
    """A command before the last row is not after it; one after it changes what is there."""
    source.land(Command([ID]), ([ID], {"id": 3}), Command([ID, B]), ([ID, B], {"id": 4, "b": "x"}),
                Command([ID, Of(3, "c", "text")]))  # fmt: skip
    source.apply()
    assert source.columns() == {"id": "integer", "c": "string"}
    assert source.rows() == [(1, None), (2, None), (3, None), (4, "x")]


BIG = [ID, Of(2, "a", "bigint")]
ADDED = "ALTER TABLE t ADD COLUMN b text"


@pytest.mark.parametrize(
    ("after", "more", "why"),
    [
        (
            [ID, A, Of(3, "b", "text", default="now()")],
            {},
            "column b may have values in older rows",
        ),
        *[
            ([ID, A, B], {"statement": text}, "column b may have values in older rows")
            for text in (
                "ALTER TABLE t ADD b text DEFAULT 'x', ALTER b DROP DEFAULT",
                "ALTER TABLE t ALTER b DROP DEFAULT",
                "ALTER TABLE t ADD bb text, ADD IF NOT EXISTS b text",
                f"DO $$ BEGIN {ADDED}; END $$",
                f"SELECT migrate(); {ADDED}",
                None,
            )
        ],
        ([ID, A, B], {"statement_is_cut": True}, "column b may have values in older rows"),
        *[
            (BIG, {"statement": text, "rewritten_count": 1}, "with USING")
            for text in (
                "ALTER TABLE t ALTER a TYPE bigint USING a * 2",
                "ALTER TABLE t RENAME b TO a",
                "INSERT INTO jobs VALUES (1)",
            )
        ],
        ([ID, A, Of(3, "b", "mood")], {}, "column b of type mood"),
        ([ID, Of(2, "a", "date")], {}, "server's conversion of older values is unknown"),
        ([ID, A, Of(3, "b", key=2)], {}, "the key was changed"),
        ([ID, A, B], {"replica_identity": "f"}, "replica identity was changed"),
    ],
)
def test_what_is_not_known_waits_for_the_next_rows(
    source: Source, after: list[Of], more: dict[str, Any], why: str
) -> None:
    """The columns stay, and the reason is said."""
    source.apply()
    source.land(Command(after, more=more))
    source.apply()
    assert source.columns() == {"id": "integer", "a": "integer"}
    (said,) = (text for text in source.said if "waits for the next rows: " in text)
    assert why in said
    assert "ALTER TABLE at 0/408 row 0 of epoch 0, entry 2" in said


@pytest.mark.parametrize(
    "command",
    [
        Command([ID, A, Of(3, "g", generated="s")]),
        Command([ID, A, B], name="u"),
        Command([ID, A, B], oid=1),
        Command(None, more={"is_cut": True}),
        Command(None, "ALTER TABLE", more={"version": 2}),
        Command(None, more={"error": "XX000", "object_count": None, "oid": None}),
        dropped(),
    ],
    ids=["generated", "renamed table", "another table", "cut", "newer", "error", "dropped"],
)
def test_commands_that_change_nothing(source: Source, command: Command) -> None:
    """Columns that the stream does not show, another table, and what cannot be read."""
    source.land(command)
    assert source.apply().stopped == {}
    assert source.columns() == {"id": "integer", "a": "integer"}
    assert source.rows() == [(1, 10), (2, 20)]


def test_a_list_of_columns_shows_no_new_ones(source: Source) -> None:
    """A publication that leaves a column out leaves new ones out too."""
    source.land(([ID, B], {"id": 3}))
    source.land(Command([ID, A, B, Of(4, "c")]))
    source.apply()
    assert source.columns() == {"id": "integer", "b": "string"}


@pytest.mark.parametrize(
    ("on_ddl", "after"),
    [("drop-column=stop", [ID]), ("stop", [ID, A, B]), ("rename=stop", [ID, Of(2, "z")]),
     ("add-column=ignore,retype=stop", [ID, Of(2, "a", "bigint")])],
)  # fmt: skip
@pytest.mark.parametrize("is_told", [True, False])
def test_a_table_stops_where_that_is_asked_for(
    source: Source, on_ddl: str, after: list[Of], *, is_told: bool
) -> None:
    """Before the entry of the command, or of the first rows where there is none; the others go on."""
    source.land(([ID, A], {"id": 3, "a": 30}), *([Command(after)] if is_told else []))
    if not is_told:
        source.land((after, {"id": 4}))
    for _ in range(2):
        summary = source.apply(on_ddl)
        (why,) = summary.stopped.values()
        assert list(summary.stopped) == list(summary.ddl_tables) == [T]
        kind = (
            on_ddl.partition("=")[0].replace("add-column", "retype").replace("stop", "add-column")
        )
        assert (
            f"--on-ddl {on_ddl.rsplit(',', maxsplit=1)[-1] if '=' in on_ddl else 'add-column=stop'}"
            in why
        )
        where = (
            "ALTER TABLE at 0/408 row 1 of epoch 0, entry 2" if is_told else "the rows of entry 3"
        )
        assert why.startswith(where)
        assert why.endswith(f"To go on, apply once with --on-ddl {kind}=apply")
    assert len(source.rows()) == (2 if is_told else 3)
    assert source.apply("ignore").stopped == {}
    assert source.apply(on_ddl).stopped == {}
    assert len(source.rows()) == (3 if is_told else 4)
    assert source.columns().keys() == {"id", "a"} if is_told else {of.name for of in after}


@pytest.mark.parametrize("commands", [[Command([ID])], []], ids=["told", "not told"])
def test_a_snapshot_does_not_go_over_a_stop(source: Source, commands: list[Command]) -> None:
    """It would bring the columns that nobody has agreed to; with or without a command."""
    source.apply()
    for command in commands:
        source.land(command)
    source.land(([ID], {"id": 7}), op="R")
    assert list(source.apply("drop-column=stop").stopped) == [T]
    assert source.columns() == {"id": "integer", "a": "integer"}
    assert source.rows() == [(1, 10), (2, 20)]
    assert source.apply().stopped == {}
    assert source.rows() == [(7,)]


def test_a_snapshot_has_what_commands_before_it_did(source: Source) -> None:
    """A command at a position that it covers, but of a later entry, changes nothing."""
    source.lsn += 64
    source.land(([ID, B], {"id": 7, "b": "x"}), op="R")
    source.lsn -= 64
    source.land(Command([ID]))
    source.apply()
    assert source.rows() == [(7, "x")]
    source.lsn += 64
    source.land(Command([ID]))
    source.apply()
    assert source.rows() == [(7,)]


def test_a_suspect_table_waits(source: Source) -> None:
    """Commands after the doubt change nothing; those before it do, and all of them once it is accepted."""
    source.land(Command([ID, A, B]))
    said = {"is_any_table": False, "tables": [T], "text": "wrong rows"}
    source.writer.entry(EntryKind.SUSPECT, source.lsn, extra=said)
    source.land(Command([ID, B]))
    assert list(source.apply().stopped) == [T]
    assert source.columns().keys() == {"id", "a", "b"}
    assert source.apply(accept_suspects=True).stopped == {}
    assert source.columns().keys() == {"id", "b"}


def test_masks_follow_their_columns(source: Source) -> None:
    """Under the name that a command gives them, rows that come later too."""
    masks = read_masks([f"{T}=a:null"])
    source.apply(masks=masks)
    source.land(Command([ID, Of(2, "z")]))
    source.apply()
    source.land(([ID, Of(2, "z")], {"id": 3, "z": 30}))
    source.apply()
    assert source.rows() == [(1, None), (2, None), (3, None)]


def test_a_version_that_no_file_has_is_known_later(source: Source) -> None:
    """A stop, and further commands, after a version that only a command made."""
    source.land(Command([ID, A, B]))
    source.land(Command([ID, B]))
    assert list(source.apply("drop-column=stop").stopped) == [T]
    assert source.columns() == {"id": "integer", "a": "integer", "b": "string"}
    assert list(source.apply("drop-column=stop").stopped) == [T]
    assert source.apply().stopped == {}
    assert source.columns() == {"id": "integer", "b": "string"}


def test_a_dropped_table_is_emptied_where_that_is_asked_for(source: Source) -> None:
    """Its rows end with the command; one that is made anew begins empty."""
    source.apply(history=True)
    source.land(dropped())
    assert list(source.apply("drop-table=stop").stopped) == [T]
    assert source.apply("drop-table=apply", history=True).stopped == {}
    assert source.rows() == []
    closed = Target(source.target).newest(T)
    assert closed is not None
    assert sum(file.rows for file in closed.closed) == 2


def test_comments_follow(source: Source) -> None:
    """Of the table and of columns, in the commit; under the column's name of now."""

    def comment(kind: str, identity: str, text: str) -> Command:
        what = f"COMMENT ON {kind.rsplit(maxsplit=1)[-1].upper()} {identity} IS {text}"
        return Command([ID, A], "COMMENT", what, more={"object_type": kind, "object_identity": identity})  # fmt: skip

    source.land(
        comment("table", "public.t", "'It''s t'"), comment("table column", "public.t.a", "'A'")
    )
    source.land(comment("table column", 'public.t."a"', "'B'"), Command([ID, Of(2, "z")]))
    source.land(
        comment("table column", "public.t.z", "E'no\\n'"),
        comment("table column", "public.t.q", "''"),
    )
    source.apply()
    log = Target(source.target).log(T)
    found = log.comments("current")
    assert found.table.startswith("It's t\n\npublic.t of orders")
    assert {name: text for name, text in found.columns.items() if text} == {"z": "B"}
    assert any("does not tell the comment alone" in text for text in source.said)
    assert any("the rows have no column q yet" in text for text in source.said)
    source.land(Command([ID, Of(2, "z")], "COMMENT", "COMMENT ON TABLE t IS NULL"))
    source.apply("comment=ignore")
    assert log.comments("current").table.startswith("It's t")
    source.land(Command([ID, Of(2, "z")], "COMMENT", "COMMENT ON TABLE t IS NULL"))
    source.apply()
    assert log.comments("current").table.startswith("public.t of orders")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("drop=stop", "a kind is one of add-column, drop-column"),
        ("rename=no", "an action is one of apply, stop, ignore"),
        ("wait", "an action is one of"),
        ("", "an action is one of"),
    ],
)
def test_options_that_are_none(given: str, why: str) -> None:
    """They are refused with those that there are."""
    with pytest.raises(ConfigError, match=why):
        read_on_ddl([given])


def test_options() -> None:
    """By kind, given again, or for all; the rest is as by default."""
    assert read_on_ddl(["drop-column=stop,rename=apply", "comment=ignore"]) == {
        "drop-column": "stop", "rename": "apply", "comment": "ignore",
    }  # fmt: skip
    assert read_on_ddl(["stop"]) == dict.fromkeys(DEFAULT, "stop")
    assert read_on_ddl(["apply"]).keys() == DEFAULT.keys() - {"rename-table"}


def test_the_command_says_what_to_do(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    """Table, command, position, and the way on; the status is that of a stopped table."""
    source.land(Command([ID]))
    words = ["spark", "apply", str(source.root), str(source.target), "--local"]
    assert main([*words, "--on-ddl", "drop-column=stop"]) == EX_CONFIG
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "gaussdecode: public.t stands still, the other tables go on: ALTER TABLE at 0/408 row 0 of epoch 0, "
        "entry 2 (drop-column: a), and --on-ddl drop-column=stop. To go on, apply once with --on-ddl "
        "drop-column=apply"
    )
    assert main(["spark", "columns", str(source.root), str(source.target), T]) == EX_CONFIG
    assert "drop-column=stop" in capsys.readouterr().err
    assert main(words) == EX_OK


def test_types_are_spelled_as_they_land() -> None:
    """Those of schema files, of every kind."""
    plain = [ColumnType(kind) for kind in ARROW]
    lists = [ColumnType(Kind.LIST, kind) for kind in ARROW]
    made = [
        ColumnType(Kind.DECIMAL, precision=9, scale=2),
        ColumnType(Kind.LIST, Kind.DECIMAL, 9, 2),
    ]
    for held in [*plain, *lists, *made]:
        assert arrow_text(held) == str(arrow_type(held))
    assert {of.kind for of in [*plain, *made]} == set(Kind)


def test_columns_whose_numbers_are_not_known(tmp_path: Path) -> None:
    """They wait, and a comment of the table is that of no column."""
    source = Source(tmp_path)
    source.unknown.add("a")
    source.land(([ID, A], {"id": 3}))
    text = "COMMENT ON TABLE t IS 'T'"
    source.land(Command([ID, A], "COMMENT", text), Command([ID], statement="ALTER TABLE t DROP a"))
    source.apply()
    found = Target(source.target).log(T).comments("current")
    assert found.table.startswith("T\n\n")
    assert set(found.columns.values()) == {""}
    assert any("the attribute numbers of its columns are not known" in text for text in source.said)
