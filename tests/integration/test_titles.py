"""Two tables whose names read alike: each is its own, in snapshots, changes, filters and requests."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG
from gaussdecode.spark.log.landing import Landing

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
TABLES = (("kit", "b.c"), ("kit.b", "c"))
TITLES = ('kit."b.c"', '"kit.b".c')


def _create(database: Database) -> None:
    database.execute('CREATE SCHEMA kit; CREATE SCHEMA "kit.b"')
    for number, (schema, name) in enumerate(TABLES, 1):
        database.execute(
            f'CREATE TABLE "{schema}"."{name}" (id int4 PRIMARY KEY, v text);'
            f'INSERT INTO "{schema}"."{name}" SELECT g, \'first\' FROM generate_series(1, {number * 50}) g'
        )


def _ask(daemon: Daemon, title: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
    return subprocess.run([*command, "--table", title], capture_output=True, text=True, check=False)


def _wait(daemon: Daemon, *titles: str) -> None:
    daemon.wait_while_running(
        lambda: all(
            ((daemon.status() or {}).get("snapshot") or {}).get(title, {}).get("state") == "done"
            for title in titles
        ),
        f"snapshots of {titles}",
    )


def _check(daemon: Daemon) -> None:
    landed = landing.read(daemon.root)
    oracle.check_snapshots(landed)
    states = oracle.replay(landed.effective())
    with daemon.database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for table in TABLES:
            oracle.compare(table, states[table], oracle.source_rows(session, table))


def test_tables_that_read_alike_are_two(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Both land, both stream, each is asked for by its own title, and readers find both."""
    _create(database_15)
    database_15.create_slot()
    daemon = make_daemon(database_15, config={"snapshot": {"mode": "initial"}})
    with daemon:
        _wait(daemon, *TITLES)
        for number, (schema, name) in enumerate(TABLES, 1):
            database_15.execute(
                f'UPDATE "{schema}"."{name}" SET v = \'changed\' WHERE id <= {number}'
            )
        ambiguous = _ask(daemon, "kit.b.c")
        assert ambiguous.returncode == EX_CONFIG
        assert all(title in ambiguous.stderr for title in TITLES)
        for rows, title in ((50, TITLES[0]), (100, TITLES[1])):
            done = _ask(daemon, title)
            assert done.returncode == 0, done.stderr
            assert f"{title}: {rows} rows" in done.stdout
        daemon.catch_up()
        assert daemon.stop() == 0
    _check(daemon)
    reader = Landing(daemon.root)
    assert [reader.find_table(title) for title in TITLES] == ["kit.b%2Ec", "kit%2Eb.c"]


def test_filters_tell_tables_that_read_alike_apart(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """The mode of one of them is its own."""
    _create(database_15)
    database_15.create_slot()
    daemon = make_daemon(
        database_15, config={"snapshot": {"mode": "initial", "tables": {TITLES[0]: "none"}}}
    )
    with daemon:
        _wait(daemon, TITLES[1])
        daemon.catch_up()
        assert daemon.stop() == 0
    found = {change.schema.table for change in landing.read(daemon.root).changes}
    assert found == {TABLES[1]}
