"""Tests for `gaussdecode.commands.slot`, on real servers."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.daemon import wait_until
from kit.postgres import Database
from psycopg import pq

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration


def cells(table: str) -> list[list[str]]:
    """Split a printed table into its cells, without the rule."""
    lines = [line for line in table.splitlines() if not set(line) <= set(" -+")]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_life_of_a_slot(database: Database, configure: Configure, run: Run) -> None:
    """It is created, listed, advanced and dropped, in the columns of the product."""
    path = configure(database)

    created = run("slot", "create", path)
    assert created.status == EX_OK, created.err
    header, row = cells(created.out)
    assert header == ["slotname", "xlog_position"]
    assert row[0] == database.slot

    listed = run("slot", "list", "--json", path)
    records = [json.loads(line) for line in listed.out.splitlines()]
    (record,) = [item for item in records if item["slot_name"] == database.slot]
    assert (record["plugin"], record["active"], record["confirmed_flush"]) == (
        "pgoutput", False, row[1],
    )  # fmt: skip
    assert database.slot in run("slot", "list", path).out

    target = database.wal_end()
    advanced = run("slot", "advance", "--upto-lsn", str(target), path)
    assert advanced.status == EX_OK, advanced.err
    assert Lsn.parse(cells(advanced.out)[1][1]) >= Lsn.parse(row[1])

    assert run("slot", "drop", path).out == f"slot {database.slot} is dropped\n"
    assert database.slot not in run("slot", "list", path).out


def test_a_second_slot_of_the_name_is_refused(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """The server's refusal is a configuration error, with its code."""
    path = configure(database_15)
    database_15.create_slot()
    result = run("slot", "create", path)
    assert result.status == EX_CONFIG
    assert "42710" in result.err


def test_dropping_what_is_not_there_is_refused(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """The message is one line without a traceback."""
    result = run("slot", "drop", configure(database_15))
    assert result.status == EX_CONFIG
    assert result.err.startswith("gaussdecode: ")
    assert "Traceback" not in result.err


@pytest.mark.parametrize("action", [["create"], ["advance", "--upto-lsn", "0/1"]])
def test_a_landed_slot_is_not_moved(
    action: list[str], database_15: Database, configure: Configure, run: Run, tmp_path: Path
) -> None:
    """A landing that exists would miss changes, so the operator is told before it happens."""
    path = configure(database_15)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "layout.json").touch()
    result = run("slot", *action, path)
    assert result.status == EX_CONFIG
    assert "would miss the changes" in " ".join(result.err.split())


def test_a_landed_slot_is_dropped_only_when_that_is_meant(
    database_15: Database,
    configure: Configure,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a terminal --yes is wanted, at one the slot's name; a slot in use stays."""
    path = configure(database_15)
    database_15.create_slot()
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "layout.json").touch()
    refused = run("slot", "drop", path)
    assert refused.status == EX_CONFIG
    assert "depends on slot" in refused.err
    assert "--yes" in refused.err

    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert "not confirmed" in run("slot", "drop", path).err
    monkeypatch.setattr("sys.stdin", Terminal(f"{database_15.slot}\n"))
    assert run("slot", "drop", path).status == EX_OK

    database_15.create_slot()
    with open_stream(database_15) as stream:
        used = run("slot", "drop", "--yes", path)
        assert used.status == EX_CONFIG
        assert f"in use by process {stream.backend_pid}" in used.err
        assert "tried again" not in used.err
    wait_until(lambda: run("slot", "drop", "--yes", path).status == EX_OK, "the slot is free")


class Terminal(io.StringIO):
    """Standard input where somebody types."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def open_stream(database: Database) -> Iterator[pq.abc.PGconn]:
    """Stream from the slot of a database, as a daemon would."""
    connection = pq.PGconn.connect(f"{database.dsn} replication=database".encode())
    command = (
        f'START_REPLICATION SLOT "{database.slot}" LOGICAL 0/0 '
        f"(proto_version '1', publication_names '{database.publication}')"
    )
    assert connection.exec_(command.encode()).status == pq.ExecStatus.COPY_BOTH
    try:
        yield connection
    finally:
        connection.finish()


def test_wrong_positions_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The message shows how a position is written."""
    with pytest.raises(SystemExit) as ended:
        main(["slot", "advance", "--upto-lsn", "12", "x.yaml"])
    assert ended.value.code == 2
    assert "'12' is no position like 16/B374D848" in capsys.readouterr().err
