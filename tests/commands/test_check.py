"""Tests for `gaussdecode.commands.check`, on real servers."""

from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from gaussdecode.settings.rules import OPTIONS

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
    result = run("check", "--offline", str(ROOT / "config" / f"{name}.yaml"))
    assert result.status == EX_OK, result.err
    assert f"{name}.yaml: the configuration is right" in result.out
    assert "one row of source.max-row-bytes (1024 MiB) takes up to 3072 MiB beside" in result.out
    names = {first for first, _ in table_rows(result.out)}
    assert {option.name for option in OPTIONS} <= names


@pytest.mark.integration
def test_plan(database: Database, configure: Configure, run: Run, tmp_path: Path) -> None:
    """Server, slot, tables, columns and options of a configuration that would run."""
    database.execute(TYPES)
    lsn = database.create_slot()
    path = configure(database, "decoding: {parallel-decode-num: 2, white-table-list: public.*}")
    result = run("check", path)
    assert result.status == EX_OK, result.err
    assert f"starts at    {lsn}" in result.out
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
    assert " - table public.plain has no replica identity" in result.out
    assert 'do:   ALTER TABLE "public"."plain" REPLICA IDENTITY FULL;' in result.out
    assert " - role postgres is a superuser" in result.out
    assert f"{tmp_path / 'landing'}: will be created" in result.out


@pytest.mark.integration
def test_everything_wrong_is_shown(database_15: Database, configure: Configure, run: Run) -> None:
    """A missing slot keeps the daemon from running; the plan is printed all the same."""
    result = run("check", configure(database_15))
    assert result.status == EX_CONFIG
    assert "does not exist" in result.out
    assert "gaussdecode slot create" in result.err
    assert "decoding options" in result.out


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
    assert f"landing: {tmp_path}/plain is not a directory" in result.err


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
    assert f"no publication '{database_15.publication}'" in result.err


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
    assert "nobody_here" in result.err
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
    assert run("check", str(path)).status == EX_UNAVAILABLE
