"""docs/landing-format.md names every field that is written, and no other."""

import ast
import dataclasses
import datetime as dt
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit import stranger
from kit.gausswire import ddl_notice
from kit.history import History

from gaussdecode.collect.arrow import (
    DDL,
    GD_FIELDS,
    MESSAGES,
    TRANSACTIONS,
    system_schema,
    table_schema,
    with_source,
)
from gaussdecode.collect.suspects import Suspects
from gaussdecode.collect.tables import schema_record, system_record
from gaussdecode.daemon import fingerprints, publications
from gaussdecode.daemon.fingerprints import Change
from gaussdecode.land import names as places
from gaussdecode.land.layout import _KNOWN as CAPABILITIES
from gaussdecode.land.layout import Layout
from gaussdecode.land.schemas import SOURCE, with_renames
from gaussdecode.land.snapshots import ROOT
from gaussdecode.model.account import KINDS, REASONS, Account
from gaussdecode.model.columns import Known, Placed
from gaussdecode.model.csns import Csns
from gaussdecode.model.entry import IN_ORDER, CheckpointHeader, CommitEntry
from gaussdecode.model.gap import Gap, GapReason
from gaussdecode.model.landing import (
    EntryKind,
    LandingFile,
    Position,
    PreparedFile,
    Replacement,
    SchemaChange,
    SourceIdentity,
    SourcePosition,
    Truncate,
)
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine
from gaussdecode.model.relation import Column, Relation, ReplicaIdentity
from gaussdecode.model.types import ColumnType, Kind
from gaussdecode.snapshot.output import Output

PAGE = Path(__file__).parents[2] / "docs" / "landing-format.md"
TEXT = PAGE.read_text()
NOW = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
Json = dict[str, Any]  # Any: JSON


def documented(title: str) -> set[str]:
    """First cells of the tables of a section."""
    section = re.split(r"^#+ ", TEXT, flags=re.MULTILINE)
    (body,) = [part for part in section if part.split("\n", 1)[0] == title]
    found: set[str] = set()
    for line in body.splitlines():
        if line.startswith("| `"):
            found.update(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return found


def entry() -> Json:
    """One with something of everything."""
    position = Position(1, 2)
    made = CommitEntry(
        n=1, kind=EntryKind.DATA, previous="0" * 64, mtime_ms=1, committed_time=NOW,
        positions={"s": SourcePosition(0, 1, 2, 3, 4)},
        files=(LandingFile("t", "data/t/f.parquet", 1, 1, position, position, "x", {"I": 1},
                           False, False, "sha256:" + "0" * 64, "s"),),
        hidden=(".gd-x",), truncates=(Truncate("t", position, False, False, "s"),),
        schema_changes=(SchemaChange("t", position, "x", None, "s"),),
        replaced=(Replacement("c", ("f",), 1, 2),),
        extra={"sums": Account((0, 1), (0, 2), {}, {}).to_record()},
    )  # fmt: skip
    record: Json = json.loads(made.to_bytes())
    return record


def layout() -> Json:
    """Of a landing."""
    of = {"s": SourceIdentity("postgresql", "1", "d", "s", "pgoutput")}
    record: Json = json.loads(Layout("id", NOW, "lsn", of).to_bytes())
    return record


def schema() -> Json:
    """Of a table whose column was renamed."""
    column = Column("new", 23, -1, "integer", ColumnType(Kind.INT32), True)
    relation = Relation(1, 1, "s", "t", ReplicaIdentity.DEFAULT, (column,))
    constants = {1: "7"}
    record = schema_record(
        relation, ["new"], None, Placed((1,), None, Known()), constants=constants
    )
    before = {"columns": [{**record["columns"][0], "name": "old"}]}
    return with_renames(record, before)


PREPARED = PreparedFile(
    "prepared/0000000000000100-7-0123456789ab.prepared", 1, f"sha256:{'0' * 64}", 7, "g", 256, 1, 1
)


def header() -> Json:
    """Of a checkpoint."""
    made = CheckpointHeader(
        first=0, last=0, previous="", hash="", positions={}, schemas={}, floor=-1, anchor="",
        compacted=0, mtime_ms=0, committed_time=NOW, checksum="", elapsed_ms=0,
        prepared={PREPARED.path: PREPARED},
    )  # fmt: skip
    record: Json = json.loads(made.to_line())
    return record


def suspects() -> set[str]:
    """Fields of all kinds, with and without an end, of one of several sources."""
    told = Suspects()
    told.add("something that names nobody", 1)
    extra = told.describe()
    assert extra is not None
    text = (Path(__file__).parents[2] / "gaussdecode/daemon/source_runtime.py").read_text()
    (added,) = re.findall(r"\{\*\*extra, \"(\w+)\": self\.source\}", text)
    changed = fingerprints.suspect({"s.t": Change(("x",))}, 1, 2)
    assert all(f"`{key}`" in TEXT for key in changed["changes"]["s.t"])
    settled = Suspects(settle=lambda _: {"s.t"})
    settled.add(ddl_notice([(7, 1, 3, 2)]), 1)
    settled.settle()
    named = settled.describe()
    assert named is not None
    extra |= named
    return extra.keys() | publications.suspect(["x"], 1, 2).keys() | changed.keys() | {added}


def snapshot() -> set[str]:
    """Keys of the record that `Output.to_record` makes, as its source has them."""
    path = Path(Output.to_record.__code__.co_filename)
    (made,) = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "to_record"
    ]
    keys = [key for node in ast.walk(made) if isinstance(node, ast.Dict) for key in node.keys]
    named = [key.id for key in keys if isinstance(key, ast.Name)]
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)} | {
        Output.to_record.__globals__[name] for name in named
    }


def compact() -> set[str]:
    """What its reader in the program takes, and its writer gives."""
    text = (Path(__file__).parents[2] / "gaussdecode/land/compaction.py").read_text()
    (found,) = re.findall(r"extra=(\{[^}]*\})", text)
    return set(re.findall(r'"(\w+)":', found))


def fork() -> set[str]:
    """What a source's sessions write."""
    text = (Path(__file__).parents[2] / "gaussdecode/daemon/source_runtime.py").read_text()
    (found,) = re.findall(r"extra = (\{\"from_lsn\"[^}]*\})", text)
    return set(re.findall(r'"(\w+)":', found))


def names(of: Iterable[pa.Field]) -> set[str]:
    """Of the columns."""
    return {field.name for field in of}


TABLE = names(
    field
    for field in with_source(
        table_schema([Column("c", 23, -1, "integer", ColumnType(Kind.INT32), True)], ["c"])
    )
    if field.name.startswith("gd_")
)
GAP = Gap(GapReason.SLOT_LOST, Lsn(1), Lsn(2), True, "x")
CASES: dict[str, Iterable[str]] = {
    "layout.json": layout(),
    "Source identity": layout()["sources"]["s"],
    "Entries": entry(),
    "Positions of an entry": entry()["positions"]["s"],
    "Files of an entry": entry()["files"][0],
    "Truncates of an entry": entry()["truncates"][0],
    "Schema changes of an entry": entry()["schema_changes"][0],
    "Replacements of an entry": entry()["replaced"][0],
    "Kinds of entries": [str(kind) for kind in EntryKind],
    "Sums in extra": entry()["extra"]["sums"],
    "CSNs in extra": Csns(1, 2).to_record(),
    "Prepared in extra": [field.name for field in dataclasses.fields(PreparedFile)],
    "Snapshot in extra": snapshot(),
    "Gap in extra": GAP.to_extra(),
    "Quarantine in extra": Quarantine("t", "s", "t", 1, Lsn(1), "x").to_extra(),
    "Suspect in extra": suspects(),
    "Fork in extra": fork(),
    "Compact in extra": compact(),
    "Columns of a table's files": TABLE,
    "Schemas": [*schema(), SOURCE, "hash"],
    "Columns of a schema": [*schema()["columns"][0]],
    "gd_transactions": names(with_source(system_schema(TRANSACTIONS))),
    "gd_messages": names(with_source(system_schema(MESSAGES))),
    "gd_ddl": names(with_source(system_schema(DDL))),
    "Checkpoints": header(),
}


@pytest.mark.parametrize("title", CASES)
def test_every_field_is_on_the_page(title: str) -> None:
    """What the code writes, and what its section names, are the same."""
    assert documented(title) == set(CASES[title])


def test_every_word_is_on_the_page() -> None:
    """Capabilities, reasons, kinds of sums and of gaps."""
    words = [*CAPABILITIES, *REASONS, *KINDS, *map(str, GapReason)]
    words += [publications.REASON, fingerprints.REASON, "ddl_in_transaction", IN_ORDER]
    missing = [word for word in words if f"`{word}`" not in TEXT and word not in set("IUDR")]
    assert not missing
    assert {field.name for field in GD_FIELDS} <= TABLE
    assert {
        key
        for column in system_record(TRANSACTIONS, system_schema(TRANSACTIONS))["columns"]
        for key in column
    } == {
        "name",
        "arrow",
    }
    assert {field.name for field in dataclasses.fields(CommitEntry)} >= set(entry()) - {
        "version",
        "published",
    }


def test_every_place_is_on_the_page() -> None:
    """What lies directly below the root."""
    tree = " ".join(documented("The tree"))
    for name in (*places.DIRECTORIES, places.LAYOUT, places.LOCK, places.MIRROR, ROOT):
        assert f"{name}" in tree, name


def test_the_stranger_knows_nothing_of_the_program() -> None:
    """The reader made from the page imports the standard library and pyarrow."""
    tree = ast.parse(Path(stranger.__file__).read_text())
    found = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not [name for name in found if name.split(".")[0] in {"gaussdecode", "kit", "twins"}]


def test_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one with pyarrow, and the one with DuckDB on what it found."""
    history = History(tmp_path, 3, with_schema_changes=False)
    history.run(4)
    known: dict[str, object] = {"LANDING": str(tmp_path)}
    for name in ("pyarrow", "duckdb"):
        (code,) = re.findall(rf"```python {name}\n(.*?)```", TEXT, re.DOTALL)
        exec(compile(code, str(PAGE), "exec"), known)
    rows = known["rows"]
    changes: Any = known["changes"]  # Any: a relation of DuckDB
    assert isinstance(rows, pa.Table)
    assert rows.num_rows == changes.count("*").fetchall()[0][0] > 0
    assert capsys.readouterr().out
