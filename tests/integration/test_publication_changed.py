"""A publication that is there whenever somebody looks, but is not the same any more."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_IOERR

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _again(database: Database) -> None:
    """Drop and make it again; in one transaction, so that the server never misses it."""
    name = database.publication
    database.execute(
        f'BEGIN; DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR ALL TABLES; COMMIT'
    )


def _suspects(daemon: Daemon) -> list[dict[str, Any]]:
    return [entry["extra"] for entry in daemon.entries() if entry["kind"] == "suspect"]


@pytest.mark.parametrize("postgres", [15, 18], indirect=True)
def test_changed_while_streaming_and_while_down(
    database: Database, make_daemon: MakeDaemon
) -> None:
    """Each change is one suspect entry with its stretch; the stream goes on."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    daemon = make_daemon(database, config={"guard": {"interval": "1s"}}).start()
    database.execute("INSERT INTO public.t VALUES (1)")
    daemon.catch_up()
    _again(database)
    daemon.wait_while_running(lambda: len(_suspects(daemon)) == 1, "it is noticed while streaming")
    database.execute("INSERT INTO public.t VALUES (2)")
    daemon.catch_up()
    assert daemon.stop() == 0
    _again(database)
    database.execute("INSERT INTO public.t VALUES (3)")
    daemon.start()
    daemon.wait_while_running(lambda: len(_suspects(daemon)) == 2, "it is noticed at the start")
    daemon.catch_up()
    assert daemon.stop() == 0
    database.execute(f"ALTER PUBLICATION \"{database.publication}\" SET (publish = 'insert')")
    database.execute(
        f"ALTER PUBLICATION \"{database.publication}\" SET (publish = 'insert, update, delete')"
    )
    for _ in range(2):
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    made, again, altered = _suspects(daemon)
    assert "was dropped and made again" in made["text"]
    assert "was dropped and made again" in again["text"]
    assert "was altered" in altered["text"]
    assert all(of["from_lsn"] <= of["until_lsn"] for of in _suspects(daemon))
    assert [change.new["id"] for change in landing.read(daemon.root).changes] == [1, 2, 3]
    command = [sys.executable, "-m", "gaussdecode", "gaps", str(daemon.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == EX_IOERR
    assert done.stdout.count("was dropped and made again") == 2


@pytest.mark.parametrize("kind", ["table", "schema"])
def test_taken_out_and_put_back(database_15: Database, make_daemon: MakeDaemon, kind: str) -> None:
    """The publication is what it was, and its table was missing from it for a while."""
    database, name = database_15, database_15.publication
    database.execute("CREATE SCHEMA s; CREATE TABLE s.t (id int4 PRIMARY KEY)")
    what = {"table": "TABLE s.t", "schema": "TABLES IN SCHEMA s"}[kind]
    database.execute(f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR {what}')
    database.create_slot()
    daemon = make_daemon(database, config={"guard": {"interval": "1s"}}).start()
    numbers = iter(range(100))

    def insert() -> None:
        database.execute(f"INSERT INTO s.t VALUES ({next(numbers)})")

    def take_out() -> None:
        database.execute(f'ALTER PUBLICATION "{name}" DROP {what}')
        insert()
        database.execute(f'ALTER PUBLICATION "{name}" ADD {what}')

    insert()
    daemon.catch_up()
    take_out()
    daemon.wait_while_running(lambda: len(_suspects(daemon)) == 1, "it is noticed while streaming")
    insert()
    daemon.catch_up()
    assert daemon.stop() == 0
    take_out()
    daemon.start()
    daemon.wait_while_running(lambda: len(_suspects(daemon)) == 2, "it is noticed at the start")
    insert()
    daemon.catch_up()
    assert daemon.stop() == 0
    assert [change.new["id"] for change in landing.read(daemon.root).changes] == [0, 2, 4]
    title = {"table": "table s.t", "schema": "schema 's'"}[kind]
    for record in _suspects(daemon):
        assert f"{title} was taken out of publication {name!r}" in record["text"]
        assert record["tables"] == {"table": ["s.t"], "schema": []}[kind]


def test_added_and_dropped_tables_are_no_change(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """A table that is published in addition, or dropped, misses nothing."""
    database, name = database_15, database_15.publication
    database.execute("CREATE TABLE a (id int4 PRIMARY KEY); CREATE TABLE b (id int4 PRIMARY KEY)")
    database.execute(f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR TABLE a')
    database.create_slot()
    daemon = make_daemon(database)
    for change in ("SELECT", f'ALTER PUBLICATION "{name}" ADD TABLE b', "DROP TABLE a"):
        database.execute(change)
        daemon.start()
        database.execute("INSERT INTO b VALUES ((SELECT count(*) FROM b))")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert _suspects(daemon) == []
    assert [change.new["id"] for change in landing.read(daemon.root).changes] == [1, 2]
    database.execute(f'ALTER PUBLICATION "{name}" DROP TABLE b')
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    (record,) = _suspects(daemon)
    assert f"table public.b was taken out of publication {name!r}" in record["text"]


def test_what_was_not_published_comes_back_by_a_snapshot(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """on-suspect: snapshot reads the table that was taken out again, and no other."""
    database, name = database_15, database_15.publication
    database.execute("CREATE TABLE a (id int4 PRIMARY KEY); CREATE TABLE b (id int4 PRIMARY KEY)")
    database.execute(f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR TABLE a, b')
    database.create_slot()
    config = {
        "guard": {"interval": "1s"},
        "landing": {"on-suspect": "snapshot"},
        "snapshot": {"mode": "none"},
    }
    daemon = make_daemon(database, config=config).start()
    database.execute("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)")
    daemon.catch_up()
    database.execute(f'ALTER PUBLICATION "{name}" DROP TABLE a')
    database.execute("INSERT INTO a VALUES (2)")
    database.execute(f'ALTER PUBLICATION "{name}" ADD TABLE a')
    daemon.wait_while_running(
        lambda: "snapshot_landed" in daemon.log.read_text(), "the rows of the table"
    )
    database.execute("INSERT INTO a VALUES (3)")
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    oracle.check_snapshots(landed)
    rows = {change.new["id"] for change in landed.effective() if change.schema.table[1] == "a"}
    assert rows == {1, 2, 3}
    assert {change.schema.table[1] for change in landed.changes if change.is_snapshot} == {"a"}


def test_a_changed_publication_stops_the_daemon(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """on-suspect: stop ends it at each start, until the operator has it recorded."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database_15.create_slot()
    daemon = make_daemon(database_15, config={"landing": {"on-suspect": "stop"}}).start()
    daemon.wait_for_state("streaming")
    assert daemon.stop() == 0
    _again(database_15)
    for _ in range(2):
        assert daemon.start().wait() == EX_CONFIG
        assert "was dropped and made again" in daemon.log_tail()
        assert "landing.on-suspect is stop. Set record" in daemon.log_tail()
    assert _suspects(daemon) == []
    daemon.write_config(landing={"on-suspect": "record"})
    daemon.start()
    database_15.execute("INSERT INTO public.t VALUES (1)")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert len(_suspects(daemon)) == 1
