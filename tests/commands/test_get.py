"""Tests for `gaussdecode.commands.get`, on real servers."""

from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.land.names import LAYOUT

pytestmark = pytest.mark.integration


def rows(out: str) -> list[str]:
    """The lines of changes."""
    return [line for line in out.splitlines() if line.startswith("table ")]


def test_what_was_printed_does_not_come_again(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """Whole transactions up to the limit are confirmed, later ones stay."""
    database_15.execute("CREATE TABLE plain (x int)")
    database_15.create_slot()
    database_15.execute("INSERT INTO plain VALUES (1), (2)")
    middle = database_15.wal_end()
    database_15.execute("INSERT INTO plain VALUES (3)")
    database_15.execute("INSERT INTO plain VALUES (4)")
    path = configure(database_15)
    first = run("get", "--upto-lsn", str(middle), path)
    assert first.status == EX_OK, first.err
    assert len(rows(first.out)) == 2
    assert rows(run("peek", path).out) == [
        "table public plain INSERT: x[integer]:3",
        "table public plain INSERT: x[integer]:4",
    ]
    assert rows(run("get", "--limit", "1", path).out) == ["table public plain INSERT: x[integer]:3"]
    assert len(rows(run("get", path).out)) == 1
    assert rows(run("get", path).out) == []


def test_nothing_is_taken_from_a_landing(
    database_15: Database, configure: Configure, run: Run, tmp_path: Path
) -> None:
    """The landing would miss what was printed."""
    database_15.execute("CREATE TABLE plain (x int)")
    database_15.create_slot()
    database_15.execute("INSERT INTO plain VALUES (1)")
    path = configure(database_15)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / LAYOUT).write_text("{}")
    result = run("get", path)
    assert result.status == EX_CONFIG
    assert "holds a landing already" in result.err
    (tmp_path / "landing" / LAYOUT).unlink()
    assert len(rows(run("get", path).out)) == 1
