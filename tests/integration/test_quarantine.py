"""One table's trouble: the others go on, the landing says so, and a snapshot brings it back."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from kit import landing
from kit.daemon import Daemon
from kit.poison import Poisoner
from kit.postgres import Database

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gaussdecode", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _prepare(database: Database) -> None:
    database.execute(
        "CREATE TABLE public.sick (id int4 PRIMARY KEY, v text);"
        "CREATE TABLE public.well (id int4 PRIMARY KEY, v text)"
    )
    database.create_slot()
    for table in ("sick", "well"):
        database.execute(f"INSERT INTO public.{table} VALUES (1, 'first')")


def _poison(database: Database) -> None:
    database.execute(
        "INSERT INTO public.sick VALUES (2, 'poison'); INSERT INTO public.well VALUES (2, 'b')"
    )
    database.execute(
        "INSERT INTO public.sick VALUES (3, 'c'); INSERT INTO public.well VALUES (3, 'c')"
    )


def _ids(daemon: Daemon, table: str) -> list[int]:
    landed = landing.read(daemon.root)
    return [of.new["id"] for of in landed.settled() if of.schema.table == ("public", table)]


@pytest.mark.parametrize("decoders", [1, 2])
def test_the_table_is_named_with_both_ways_out(
    decoders: int, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """By default the daemon ends, with nothing lost and nothing confirmed behind it."""
    _prepare(database_15)
    _poison(database_15)
    proxy = Poisoner(database_15.server.port)
    config = {"decoding": {"parallel-decode-num": decoders}}
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    assert daemon.wait() == 76
    log = daemon.log.read_text()
    proxy.close()
    for part in ("table public.sick, behind 0/", "on-table-error: quarantine", "publication"):
        assert part in log
    assert "poison" not in log


@pytest.mark.parametrize("point", [None, "quarantine_published", "table_quarantined"])
def test_others_go_on_and_a_snapshot_brings_it_back(
    point: str | None, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Killed between any two steps, too."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    environment = {} if point is None else {"GAUSSDECODE_FAILPOINTS": f"{point}=kill"}
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(
        database_15, dsn=proxy.dsn(database_15), config=config, environment=environment
    ).start()
    _poison(database_15)
    if point is not None:
        assert daemon.wait() == -9
        daemon.environment.clear()
        daemon.start()
    daemon.catch_up()
    assert _ids(daemon, "well") == [1, 2, 3]
    assert set(_ids(daemon, "sick")) <= {1}
    status = daemon.status() or {}
    assert status["snapshot"]["public.sick"]["state"] == "quarantined"
    listed = _command("gaps", "--json", str(daemon.root))
    assert listed.returncode == 74
    (record, *_) = map(json.loads, listed.stdout.splitlines())
    assert (record["kind"], record["tables"]) == ("quarantine", ["public.sick"])
    assert "poison" not in listed.stdout + daemon.log.read_text()
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.sick")
    assert asked.returncode == 0, asked.stderr
    database_15.execute("INSERT INTO public.sick VALUES (4, 'd')")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert sorted(_ids(daemon, "sick")) == [1, 2, 3, 4]
    assert _command("verify", str(daemon.root)).returncode == 0
    proxy.close()


@pytest.mark.parametrize("skips_empty", [False, True])
def test_what_landed_is_recognised_without_the_table_and_with_it_again(
    skips_empty: bool, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """A server that heard of no confirmation sends all again: before, in and after quarantine."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    proxy.is_forgetting = True
    config = {
        "landing": {"on-table-error": "quarantine"},
        "decoding": {"skip-empty-xacts": skips_empty},
    }
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    daemon.catch_up()
    assert (_ids(daemon, "sick"), _ids(daemon, "well")) == ([1], [1])
    _poison(database_15)
    database_15.execute("INSERT INTO public.sick VALUES (5, 'e')")
    daemon.catch_up()
    assert (_ids(daemon, "sick"), _ids(daemon, "well")) == ([1], [1, 2, 3])
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.sick")
    assert asked.returncode == 0, asked.stderr
    daemon.catch_up()
    assert daemon.stop() == 0
    assert sorted(_ids(daemon, "sick")) == [1, 2, 3, 5]
    assert daemon.log.read_text().count('"resent_compared"') >= 2
    assert _command("verify", str(daemon.root)).returncode == 0
    proxy.close()


def test_a_table_is_known_by_its_title(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A name with a dot in it: quarantine and snapshot speak of the same table."""
    database_15.execute('CREATE TABLE public."si.ck" (id int4 PRIMARY KEY, v text)')
    database_15.create_slot()
    proxy = Poisoner(database_15.server.port)
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    database_15.execute("""INSERT INTO public."si.ck" VALUES (2, 'poison')""")
    daemon.catch_up()
    title = 'public."si.ck"'
    status = daemon.status() or {}
    assert status["snapshot"][title]["state"] == "quarantined"
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", title)
    assert asked.returncode == 0, asked.stderr
    daemon.catch_up()
    assert daemon.stop() == 0
    assert _ids(daemon, "si.ck") == [2]
    proxy.close()
