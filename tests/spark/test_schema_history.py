"""The history of tables' columns: from commands, from rows, and what is not known."""

import json
from pathlib import Path
from typing import Any

import pytest
from kit.ddllanding import ID, OID, Command, DdlLanding, Of, dropped

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.on_ddl import DEFAULT
from gaussdecode.spark.stream.schema_history import SCHEMA, read_schemas
from gaussdecode.spark.target.store import Target

A, B, C = Of(2, "a"), Of(3, "b", "text"), Of(4, "c", "bigint")
Json = dict[str, Any]


def changed(root: Path, table: str | None = None, to: int | None = None) -> list[Any]:
    """Of each row: its entry, where it was seen, and its changes as texts."""
    found = read_schemas(Landing(root), table, Point(n=to))
    assert found.schema == SCHEMA
    return [
        (row["gd_n"], row["seen_in"], None if row["changes"] is None else [
            f"{c['kind']} {c['name']}" + (f" was {c['was']}" if c["was"] is not None else "")
            for c in row["changes"]])
        for row in found.to_pylist()
    ]  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> DdlLanding:
    """An empty landing."""
    return DdlLanding(tmp_path / "landing")


def test_a_command_of_one_source_is_of_its_table_alone(tmp_path: Path) -> None:
    """Although both tables have one name and one OID; positions of two sources are in no order."""
    both = DdlLanding(tmp_path / "landing", "a", "b")
    for both.source in ("a", "b"):
        both.land(Command([ID, A], "CREATE TABLE"), ([ID, A], {"id": 1, "a": 1}))
    both.source, both.lsn = "a", both.lsn + 10_000
    both.land(Command([ID, A, B]), Command([ID, A, B], name="u"))
    both.source, both.lsn = "b", 1100
    both.land(([ID, A], {"id": 2, "a": 2}), dropped())
    found = read_schemas(Landing(both.root)).to_pylist()
    assert [(row["gd_n"], row["gd_source"], row["table"]) for row in found] == [
        (1, "a", "public.t"), (2, "b", "public.t"), (3, "a", "public.t"), (3, "a", "public.u"),
        (4, "b", "public.t"),
    ]  # fmt: skip
    target = tmp_path / "target"
    summary = apply_with(
        LocalEngine(), both.root, target, Options(on_ddl=dict.fromkeys(DEFAULT, "apply"))
    )
    assert not summary.stopped
    version = Target(target).newest("public.t")
    assert version is not None
    assert version.rows == 3


def test_commands_tell_all_of_a_table(source: DdlLanding) -> None:
    """Each change is a row, at its position; commands and rows that change nothing are none."""
    source.land(Command([ID, A], "CREATE TABLE"), ([ID, A], {"id": 1}))
    source.land(Command([ID, A]))
    source.land(Command([ID, A, B]), ([ID, A, B], {"id": 2}), Command([ID, Of(2, "z"), B]))
    source.land(Command([ID, Of(2, "z", "bigint", default="5", not_null=True), B]))
    source.land(Command([ID, B]), Command([ID, B], name="u"))
    source.land(dropped("u"))
    assert changed(source.root) == [
        (1, "gd_ddl", ["create-table public.t"]),
        (3, "gd_ddl", ["add-column b"]),
        (3, "gd_ddl", ["rename z was a"]),
        (4, "gd_ddl", ["retype z was integer", "not-null z was false", "default z"]),
        (5, "gd_ddl", ["drop-column z"]),
        (5, "gd_ddl", ["rename-table public.u was public.t"]),
        (6, "gd_ddl", ["drop-table public.u"]),
    ]
    assert changed(source.root, "public.t") == changed(source.root, "public.u")
    assert [n for n, *_ in changed(source.root, to=3)] == [1, 3, 3]
    rows = read_schemas(Landing(source.root)).to_pylist()
    assert (rows[1]["gd_lsn"], rows[1]["gd_seq"], rows[2]["gd_seq"]) == (0x418, 0, 2)
    assert rows[3]["columns"][1] == {
        "attribute_number": 2, "name": "z", "type": "bigint", "not_null": True, "default": "5",
        "generated": None, "identity": None, "key_position": None,
    }  # fmt: skip
    assert rows[3]["columns"][0]["key_position"] == 1
    assert rows[-1]["columns"] is None


def test_rows_tell_what_they_have(source: DdlLanding) -> None:
    """A landing without commands: the rest is NULL, also what was before its first rows."""
    source.land(([ID, A], {"id": 1}))
    source.land(([ID, A], {"id": 2}))
    source.land(([ID, Of(2, "z"), C], {"id": 3}))
    source.land(([ID, Of(4, "c", "text")], {"id": 3}))
    assert changed(source.root) == [
        (1, "rows", None),
        (3, "rows", ["rename z was a", "add-column c"]),
        (4, "rows", ["drop-column z", "retype c was bigint"]),
    ]
    row = read_schemas(Landing(source.root)).to_pylist()[0]
    assert row["columns"][0]["key_position"] == 1
    assert row["columns"][1] | {"attribute_number": 0} == {
        "attribute_number": 0, "name": "a", "type": "integer", "not_null": None, "default": None,
        "generated": None, "identity": None, "key_position": None,
    }  # fmt: skip


def test_commands_after_rows_and_rows_after_commands(source: DdlLanding) -> None:
    """Columns that rows did not show are new only where the command says so; a change that no command told shows."""
    source.land(([ID, B], {"id": 1}))
    source.land(Command([ID, A, B, C], statement="ALTER TABLE t ADD COLUMN c bigint"))
    source.land(([ID, B], {"id": 2}))
    source.land(([ID, Of(3, "x", "text")], {"id": 3}))
    source.land(Command([ID, A, Of(3, "x", "text")], statement="SELECT migrate()"))
    assert changed(source.root)[1:] == [
        (2, "gd_ddl", ["first-seen a", "add-column c"]),
        (4, "rows", ["rename x was b"]),
        (5, "gd_ddl", ["first-seen a"]),
    ]


@pytest.mark.parametrize(
    "command",
    [
        Command(None, more={"is_cut": True}),
        Command(None, more={"error": "XX000", "object_count": None, "oid": None}),
        Command(None, more={"version": 2}),
    ],
)
def test_what_a_command_does_not_tell_is_null(source: DdlLanding, command: Command) -> None:
    """Neither columns nor changes; what follows is compared with what was known last."""
    source.land(Command([ID, A], "CREATE TABLE"))
    source.land(command)
    source.land(Command([ID, A, B]))
    found = read_schemas(Landing(source.root)).to_pylist()[1]
    assert (found["gd_n"], found["columns"], found["changes"]) == (2, None, None)
    assert changed(source.root)[2][2] == ["add-column b"]


def test_command_line(source: DdlLanding, capsys: pytest.CaptureFixture[str]) -> None:
    """A line or an object for each change; an unknown table is an error."""
    source.land(([ID, A], {"id": 1}))
    source.land(Command([ID, A, B], statement="ALTER TABLE t ADD b text"))
    words = ["spark", "schemas", str(source.root), "public.t"]
    assert main([*words, "--json"]) == EX_OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["oid"] for line in lines] == [OID, OID]
    assert main(words) == EX_OK
    last = capsys.readouterr().out.splitlines()[-1]
    assert [cell.strip() for cell in last.split("|")] == [
        "public.t", "2", "0", "0/408", "0", "gd_ddl", "ALTER TABLE", "add-column b",
        "id integer not null, a integer, b text",
    ]  # fmt: skip
    assert main(["spark", "schemas", str(source.root), "public.no"]) == EX_CONFIG
