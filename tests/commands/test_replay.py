"""Tests for `gaussdecode.commands.replay` and `verify`, on a recording of a real server."""

import json
from pathlib import Path

import pyarrow.dataset as pads
import pytest
from kit.commands import Configure, Run
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_IOERR, EX_OK, EX_PROTOCOL

pytestmark = pytest.mark.integration


@pytest.fixture
def recording(database_15: Database, configure: Configure, run: Run, tmp_path: Path) -> Path:
    """A recording of 1000 inserts, some updates and a table that is left out below."""
    database_15.execute("CREATE TABLE t (x int PRIMARY KEY, y text)")
    database_15.execute("CREATE TABLE other (x int)")
    database_15.create_slot()
    database_15.execute("INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 1000) i")
    database_15.execute("UPDATE t SET y = 'z' WHERE x <= 10")
    database_15.execute("INSERT INTO other VALUES (1)")
    file = tmp_path / "t.capture"
    assert run("capture", configure(database_15), str(file)).status == EX_OK
    return file


def rows(root: Path, table: str) -> list[tuple[object, ...]]:
    """Everything landed for a table, in order."""
    found = pads.dataset(root / "data" / table, format="parquet").to_table()
    ordered = found.sort_by([("gd_lsn", "ascending"), ("gd_seq", "ascending")])
    columns = [ordered.column(name).to_pylist() for name in ("gd_op", "x", "y", "gd_lsn", "gd_seq")]
    return list(zip(*columns, strict=True))


def _landed(output: str) -> str:
    """The line that says how far the landing is; the others say how long it took."""
    return output.splitlines()[0]


@pytest.mark.parametrize("decoders", ["1", "3"])
def test_a_recording_is_landed_once(
    decoders: str, recording: Path, run: Run, tmp_path: Path
) -> None:
    """Every change in order; a second time adds nothing; verify agrees."""
    root = tmp_path / "landed"
    arguments = ["replay", str(recording), "--root", str(root), "--decoders", decoders]
    result = run(*arguments)
    assert result.status == EX_OK, result.err
    landed = rows(root, "public.t")
    assert [row[:3] for row in landed[:1000]] == [("I", i, f"v{i}") for i in range(1, 1001)]
    assert sorted(str(row[1]) for row in landed[1000:]) == sorted(map(str, range(1, 11)))

    again = run(*arguments)
    assert (again.status, _landed(again.out)) == (EX_OK, _landed(result.out))
    assert rows(root, "public.t") == landed

    report = run("verify", "--json", str(root))
    assert report.status == EX_OK, report.err
    assert json.loads(report.out)["ops"] == {"I": 1001, "U": 10}


def test_transactions_with_an_origin_are_counted_and_may_be_kept(
    database_15: Database, configure: Configure, run: Run, tmp_path: Path
) -> None:
    """Nothing is left out without a word."""
    database_15.execute("CREATE TABLE t (x int PRIMARY KEY, y text)")
    database_15.create_slot()
    origin = f"origin_{database_15.name}"
    with database_15.connect() as session:
        session.execute("SELECT pg_replication_origin_create(%s)", [origin])
        session.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
        session.execute("INSERT INTO t VALUES (1, 'brought')")
        session.execute("INSERT INTO t VALUES (2, 'brought')")
        session.execute("SELECT pg_replication_origin_session_reset()")
        session.execute("INSERT INTO t VALUES (3, 'own')")
        session.execute("SELECT pg_replication_origin_drop(%s)", [origin])
    file = tmp_path / "t.capture"
    assert run("capture", configure(database_15), str(file)).status == EX_OK
    replay = ["replay", str(file), "--root"]
    told = run(*replay, str(tmp_path / "local"))
    assert "left out: 2 transactions with a replication origin" in told.out
    assert [row[1] for row in rows(tmp_path / "local", "public.t")] == [3]
    counted = run(*replay, str(tmp_path / "counted"), "--json")
    assert json.loads(counted.out)["left_out_by_origin"] == 2
    kept = run(*replay, str(tmp_path / "all"), "--all-origins")
    assert "left out" not in kept.out
    assert [row[1] for row in rows(tmp_path / "all", "public.t")] == [1, 2, 3]


@pytest.mark.parametrize(("decoders", "decode"), [("1", []), ("2", ["decode x2"])])
def test_what_each_stage_did_is_told(
    decoders: str, decode: list[str], recording: Path, run: Run, tmp_path: Path
) -> None:
    """A line per stage, for people and as JSON, with all rows and bytes accounted for."""
    arguments = ["replay", str(recording), "--decoders", decoders, "--root"]
    result = run(*arguments, str(tmp_path / "one"))
    assert result.status == EX_OK, result.err
    lines = [line.partition("|")[0].strip() for line in result.out.splitlines() if "|" in line]
    first = "receive" if decode else "receive and decode"
    assert lines == [
        "stage", first, *decode, "collect", "encode x2", "publish"
    ]  # fmt: skip

    result = run(*arguments, str(tmp_path / "two"), "--json")
    assert result.status == EX_OK, result.err
    report = json.loads(result.out)
    assert report["entry"] == 1
    assert report["stages"]["collect"]["rows"] == 1011
    assert report["stages"]["publish"]["rows"] > 1011  # with what is told of transactions
    assert report["stages"][first]["bytes"] > 1011 * 20
    assert report["stages"]["encode"]["bytes"] > 0
    assert report["limit"]["sentence"]


def test_white_list_leaves_tables_out(recording: Path, run: Run, tmp_path: Path) -> None:
    """What is not listed does not land."""
    root = tmp_path / "landed"
    result = run("replay", str(recording), "--root", str(root), "--white-table-list", "public.t")
    assert result.status == EX_OK, result.err
    assert not (root / "data" / "public.other").exists()


@pytest.mark.parametrize(
    ("cut", "status"), [(0, EX_CONFIG), (10, EX_PROTOCOL), (-1, EX_PROTOCOL)], ids=str
)
def test_damaged_recordings_are_refused(
    cut: int, status: int, recording: Path, run: Run, tmp_path: Path
) -> None:
    """Nothing of them is landed."""
    damaged = tmp_path / "damaged.capture"
    damaged.write_bytes(recording.read_bytes()[:cut])
    result = run("replay", str(damaged), "--root", str(tmp_path / "landed"))
    assert result.status == status
    assert not (tmp_path / "landed").exists()


def test_arguments_are_checked(recording: Path, run: Run, tmp_path: Path) -> None:
    """The ranges are those of the options."""
    result = run("replay", str(recording), "--root", str(tmp_path), "--decoders", "21")
    assert result.status == EX_CONFIG
    assert "allowed: 1 to 20" in result.err


def test_verify_names_what_is_wrong(recording: Path, run: Run, tmp_path: Path) -> None:
    """A file altered by hand is found, and the exit status says disk."""
    root = tmp_path / "landed"
    assert run("replay", str(recording), "--root", str(root)).status == EX_OK
    (file,) = (root / "data" / "public.t").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    result = run("verify", str(root))
    assert result.status == EX_IOERR
    assert file.name in result.err


def test_verify_needs_a_landing(run: Run, tmp_path: Path) -> None:
    """Another directory is no landing, and one that is not there neither."""
    assert run("verify", str(tmp_path)).status == EX_IOERR
    assert run("verify", str(tmp_path / "none")).status == EX_CONFIG


def test_postgresql_has_no_csns(recording: Path, run: Run, tmp_path: Path) -> None:
    """The order of CSNs is refused before anything is made."""
    done = run("replay", str(recording), "--root", str(tmp_path / "no"), "--output-order", "1")
    assert (done.status, "a recording of postgresql" in done.err) == (EX_CONFIG, True)
    assert not (tmp_path / "no").exists()
