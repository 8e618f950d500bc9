"""Tests for `gaussdecode.commands.check`, on real servers."""

import json
import re
import socket
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from gaussdecode.operations.check.doctor import Finding
from gaussdecode.operations.check.report import Grid, Report
from gaussdecode.settings.options import OPTIONS

ROOT = Path(__file__).parents[2]
TYPES = """
    CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TABLE all_types (
        id bigint PRIMARY KEY, flag boolean, price numeric(10,2), any_number numeric,
        at timestamptz, day date, raw bytea, doc jsonb, tags text[], feeling mood,
        size positive, made int GENERATED ALWAYS AS (1) STORED
    );
    CREATE TABLE plain (x int);
    CREATE TABLE loud (x int);
    ALTER TABLE loud REPLICA IDENTITY FULL;
"""


def table_rows(out: str) -> dict[tuple[str, str], list[str]]:
    """Rows of every printed table, by their first two cells."""
    rows = [[cell.strip() for cell in line.split(" | ")] for line in out.splitlines()]
    return {(row[0], row[1]): row[2:] for row in rows if len(row) > 1}


@pytest.mark.parametrize("name", ["example", "small"])
def test_offline_reads_the_file_only(name: str, run: Run) -> None:
    """The shipped examples are right, and every option is explained."""
    result = run("check", "--offline", "--options", str(ROOT / "config" / f"{name}.yaml"))
    assert result.status == EX_OK, result.err
    assert result.out.startswith(f"{name}.yaml: the configuration is right")
    assert "one row of source.max-row-bytes (1024 MiB) takes up to 3072 MiB beside" in result.out
    names = {first for first, _ in table_rows(result.out)}
    assert {option.name for option in OPTIONS} <= names


@pytest.mark.integration
def test_plan(database: Database, configure: Configure, run: Run, tmp_path: Path) -> None:
    """Server, slot, tables, columns and options of a configuration that would run."""
    database.execute(TYPES)
    lsn = database.create_slot()
    path = configure(database, "decoding: {parallel-decode-num: 2, white-table-list: public.*}")
    result = run("check", "--tables", "--columns", "--options", path)
    assert result.status == EX_OK, result.err
    assert f" starts at    {lsn}\n" in result.out
    rows = table_rows(result.out)
    assert rows["public.all_types", "default"] == ["yes", "yes"]
    assert rows["public.plain", "default"] == ["no", "refused by the server"]
    assert rows["public.loud", "full"] == ["no", "yes"]
    columns = {
        "id": ["bigint", "int64", "exact"],
        "flag": ["boolean", "bool", "exact"],
        "price": ["numeric(10,2)", "decimal128(10, 2)", "exact; NaN in gd_raw"],
        "any_number": ["numeric", "string", "the server's text"],
        "raw": ["bytea", "binary", "exact"],
        "doc": ["jsonb", "string", "the server's text"],
        "feeling": ["public.mood", "string", "the server's text"],
        "size": ["public.positive", "int32", "exact"],
    }
    for name, expected in columns.items():
        assert rows["public.all_types", name] == expected
    assert rows["public.all_types", "tags"][1] == "list<string>"
    assert ("public.all_types", "made") not in rows
    assert rows["parallel-decode-num", "2"][0] == "daemon"
    assert " - without replica identity: public.plain\n" in result.out
    assert 'do:   ALTER TABLE "public"."plain" REPLICA IDENTITY FULL;' in result.out
    assert " - role postgres is a superuser" in result.out
    assert f"{tmp_path / 'landing'}: will be created" in result.out


@pytest.mark.integration
def test_everything_wrong_is_shown(database_15: Database, configure: Configure, run: Run) -> None:
    """A missing slot and publication are both named, the plan is printed all the same."""
    database_15.execute(f'DROP PUBLICATION "{database_15.publication}"')
    result = run("check", "--options", configure(database_15))
    assert result.status == EX_CONFIG
    assert "the daemon cannot run: 2 problems\n" in result.out.splitlines(keepends=True)[0]
    assert "gaussdecode slot create" in result.out
    assert f"publication: no publication '{database_15.publication}'" in result.out
    assert "does not exist" in result.out
    assert "decoding options" in result.out
    assert not result.err


@pytest.mark.integration
def test_a_slot_is_not_made_before_its_publication(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """The server looks publications up as they were when the slot was made."""
    database_15.execute(f'DROP PUBLICATION "{database_15.publication}"')
    result = run("slot", "create", configure(database_15))
    assert result.status == EX_CONFIG
    assert f"no publication '{database_15.publication}'" in result.err
    (left,) = database_15.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    )
    assert left == (0,)


@pytest.mark.integration
def test_a_root_below_a_file_is_named(
    database_15: Database, configure: Configure, run: Run, tmp_path: Path
) -> None:
    """Nothing can be made there: the check says so and fails, as the daemon would."""
    database_15.create_slot()
    path = configure(database_15)
    (tmp_path / "plain").write_text("")
    text = Path(path).read_text().replace(f"{tmp_path}/landing", f"{tmp_path}/plain/landing")
    Path(path).write_text(text)
    result = run("check", path)
    assert result.status == EX_CONFIG
    assert f"landing: {tmp_path}/plain is not a directory" in result.out


@pytest.mark.integration
def test_a_missing_publication_is_named(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """The stream would fail at its first change, so it must not start."""
    database_15.create_slot()
    path = configure(database_15)
    database_15.execute(f'DROP PUBLICATION "{database_15.publication}"')
    result = run("check", path)
    assert result.status == EX_CONFIG
    assert f"no publication '{database_15.publication}'" in result.out


@pytest.mark.integration
def test_wrong_credentials_are_a_problem(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """The server's answer is shown, the password is not."""
    path = Path(configure(database_15))
    text = path.read_text().replace("sslmode=", "password=hunter2 sslmode=")
    path.write_text(text.replace("user=postgres", "user=nobody_here"))
    result = run("check", str(path))
    assert result.status == EX_CONFIG
    assert "nobody_here" in result.out
    assert "findings: none" not in result.out
    assert "not examined: the server's settings and rights" in result.out
    assert "hunter2" not in result.out + result.err


@pytest.mark.integration
def test_an_absent_server_is_not_a_configuration_error(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """It may come back: exit status 69."""
    path = Path(configure(database_15))
    lines = path.read_text().splitlines()
    dsn = "  dsn: host=127.0.0.1 port=1 dbname=d user=u sslmode=disable"
    path.write_text("\n".join(dsn if "dsn:" in line else line for line in lines))
    result = run("check", str(path))
    assert result.status == EX_UNAVAILABLE
    assert "the server cannot be reached" in result.out.splitlines()[0]
    assert "not examined: the server\n" in result.out
    assert "landing: will be created" in result.out, "what can be looked at is"


@pytest.mark.integration
def test_the_first_screen_is_enough(database: Database, configure: Configure, run: Run) -> None:
    """Verdict first; a hundred tables without identity are one finding; a screen has 40 lines."""
    database.execute("".join(f"CREATE TABLE bare_{i} (x int);" for i in range(100)))
    database.create_slot()
    result = run("check", configure(database))
    lines = result.out.splitlines()
    assert result.status == EX_OK, result.err
    assert re.match(r"\S+: the daemon can run; \d findings?$", lines[0])
    assert "public.bare_0, public.bare_1, public.bare_10 and 97 more" in result.out
    assert len(lines) <= 40, result.out


@pytest.mark.integration
def test_forms(database_15: Database, configure: Configure, run: Run) -> None:
    """--json holds everything; --quiet says only what there is to do."""
    database_15.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric)")
    path = configure(database_15)
    missing = run("check", "--json", path)
    record = json.loads(missing.out)
    assert missing.status == record["exit_status"] == EX_CONFIG
    assert record["verdict"] == "wrong"
    assert "slot create" in record["problems"][0]
    database_15.create_slot()
    record = json.loads(run("check", "--json", path).out)
    assert record["verdict"] == "ready"
    assert record["tables"] == [
        {"table": "public.t", "replica_identity": "default", "primary_key": "yes",
         "update_and_delete": "yes"}
    ]  # fmt: skip
    assert [column["lands_as"] for column in record["columns"]] == ["int32", "string"]
    assert {option["option"] for option in record["options"]} >= {option.name for option in OPTIONS}
    assert all(finding["what"] and finding["why"] and finding["remedy"]
               for finding in record["findings"])  # fmt: skip
    quiet = run("check", "--quiet", path)
    assert "role postgres is a superuser" in quiet.out
    assert "plug-in" not in quiet.out


def test_what_tls_lacks_is_in_the_report(run: Run, tmp_path: Path) -> None:
    """A certificate that is not there is a problem like any other; the rest is looked at."""
    path = tmp_path / "orders.yaml"
    path.write_text(
        "slot: orders\nsource: {kind: postgresql, dsn: host=127.0.0.1 port=1 dbname=d user=u "
        f"sslrootcert={tmp_path}/ca.pem, publication: [p]}}\nlanding: {{root: {tmp_path}/landing}}\n"
    )
    path.chmod(0o600)
    result = run("check", "--json", str(path))
    record = json.loads(result.out)
    assert result.status == record["exit_status"] == EX_CONFIG
    (problem,) = record["problems"]
    assert f"{tmp_path}/ca.pem: No such file" in problem
    assert record["not_examined"] == ["the server's settings and rights"]
    assert "will be created" in record["plan"]["landing"]
    assert run("check", str(path)).out.startswith("orders.yaml: the daemon cannot run: 1 problem\n")


def test_mistakes_in_the_file_as_json(run: Run, tmp_path: Path) -> None:
    """A program gets what a person gets."""
    path = tmp_path / "bad.yaml"
    path.write_text("slot: orders\nsource: {kind: nonsense}\n")
    path.chmod(0o600)
    result = run("check", "--json", str(path))
    record = json.loads(result.out)
    assert result.status == EX_CONFIG
    assert record["verdict"] == "wrong"
    assert any("source.kind" in problem for problem in record["problems"])


@pytest.mark.integration
def test_a_taken_port_is_found(database_15: Database, configure: Configure, run: Run) -> None:
    """The daemon could not start."""
    database_15.create_slot()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        path = configure(database_15, f"monitoring: {{listen: 127.0.0.1:{port}}}")
        result = run("check", path)
        assert f"monitoring.listen: 127.0.0.1:{port} is taken by another program" in result.out
        assert result.status == EX_CONFIG
    assert "monitoring.listen" not in run("check", path).out


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lines_are_as_wide_as_the_terminal(width: int) -> None:
    """Texts and tables are folded, a command to copy never is, and no word is lost."""
    why = "a long text about what happens when nobody looks " * 4
    report = Report("orders.yaml", problems=[why], findings=[Finding(why, why, "x" * 300)])
    report.facts.append(("server", why))
    report.grids["g"] = Grid("g", ("a", "b"), [("cell", why), ("other", "")])
    lines = [line for text in report.lines(["g"], width) for line in text.splitlines()]
    commands = [line for line in lines if "x" * 300 in line]
    assert commands == ["   do:   " + "x" * 300]
    assert max(len(line) for line in lines if line not in commands) <= width
    told = " ".join(" ".join(lines).replace("|", " ").split())
    assert told.count("happens") == 5 * 4
    assert list(report.lines(["g"], None))[4] == f" - {why}"
