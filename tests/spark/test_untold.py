"""Tables without replica identity, of which a real openGauss sends updates and deletions."""

from pathlib import Path

import pytest
from kit import realstream

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.stop_rules import UNTOLD
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

UNKNOWN = {"public.t_nothing", "public.t_nopk"}


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real server sent, landed."""
    folder = tmp_path_factory.mktemp("untold")
    file = realstream.write_capture("5.0.0/b-batched", folder)
    assert main(["replay", str(file), "--root", str(folder / "landing")]) == EX_OK
    return folder / "landing"


def test_they_stop_and_the_others_go_on(landing: Path, tmp_path: Path) -> None:
    """Neither a deletion of anybody nor an old row beside the new one; all else is the server's."""
    for _ in range(2):
        summary = apply_with(
            LocalEngine(), landing, tmp_path, Options(accept_hidden_truncates=True)
        )
        assert {title for title, why in summary.stopped.items() if why == UNTOLD} == UNKNOWN
    target = Target(tmp_path)
    database = target.database()
    assert database is not None
    compared = set()
    for (schema, name), wanted in realstream.final_rows("5.0.0/b-batched").items():
        directory = f"{schema}.{name}"
        if not wanted or "id" not in wanted[0] or directory not in database.tables:
            continue
        if directory in summary.stopped or name == "t_tr":
            continue  # t_tr: its TRUNCATE is not sent
        compared.add(name)
        version = target.version(directory, database.tables[directory])
        found = [
            row["id"]
            for file in version.current
            for row in current_rows(target.table_root(directory), file).to_pylist()
        ]
        late = {"1"} if name == "t_new" else set()  # lost after DDL in its transaction
        assert sorted(map(str, found)) == sorted(
            str(r["id"]) for r in wanted if r["id"] not in late
        )
    assert len(compared) > 10
    for directory in UNKNOWN & set(database.tables):
        assert not target.version(directory, database.tables[directory]).current


def test_what_to_do_is_said(
    landing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command names the tables, the reason and the way out; no columns are asked for."""
    arguments = ["--local", "--accept-hidden-truncates"]
    assert main(["spark", "apply", str(landing), str(tmp_path), *arguments]) == EX_CONFIG
    said = capsys.readouterr().err.splitlines()
    for directory in UNKNOWN:
        (line,) = (line for line in said if line.startswith(f"gaussdecode: {directory} stands"))
        assert "still, the other tables go on: rows of it were" in line
        assert line.endswith(f"then snapshot it: gaussdecode snapshot CONFIG --table {directory}")
