"""A server that forgot: confirmations lost in a crash are harmless, a restored past is not."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.poison import POISON, Poisoner
from kit.postgres import Database, Postgres
from kit.shards import ShardsDaemon, prepared

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


@pytest.fixture(params=[15, 18])
def durable_server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """A server whose files can be copied and put back."""
    with Postgres(request.param, {"fsync": "on", "wal_sender_timeout": "10s"}) as server:
        yield server


def _prepare(server: Postgres) -> Database:
    database = Database(server, "restored")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    return database


def _insert(database: Database, first: int, last: int) -> None:
    for number in range(first, last + 1):
        database.execute(f"INSERT INTO public.t VALUES ({number})")


def _grow_beyond(database: Database, lsn: int) -> None:
    """Write WAL that no publication sends, until it is longer than the log."""
    while database.wal_end() <= lsn:
        database.execute("CREATE UNLOGGED TABLE public.u (id int4); DROP TABLE public.u")


def test_restored_server_is_refused_however_often_it_is_tried(
    durable_server: Postgres, make_daemon: MakeDaemon
) -> None:
    """Also once its WAL is longer than the log: other transactions, nothing landed or confirmed."""
    database = _prepare(durable_server)
    daemon = make_daemon(database).start()
    _insert(database, 1, 10)
    daemon.catch_up()
    assert daemon.stop() == 0
    saved = durable_server.save_files()
    daemon.start()
    _insert(database, 11, 20)
    daemon.catch_up()
    assert daemon.stop() == 0
    before = landing.read_entries(daemon.root)
    durable_server.put_back(saved)
    assert daemon.start().wait() == EX_CONFIG
    assert "restored to the past" in daemon.log_tail()
    _, confirmed = database.slot_positions()
    _insert(database, 1011, 1020)
    _grow_beyond(database, daemon.durable_lsn())
    _insert(database, 1021, 1030)
    for _ in range(2):
        assert daemon.start().wait() == EX_CONFIG
        assert "restored to the past" in daemon.log_tail()
        assert landing.read_entries(daemon.root) == before
        assert database.slot_positions()[1] == confirmed < daemon.durable_lsn()


@pytest.mark.parametrize("durable_server", [15], indirect=True)
def test_no_table_stops_for_a_row_of_another_history(
    durable_server: Postgres, make_daemon: MakeDaemon
) -> None:
    """A damaged row among what a restored server sends again: refused, and nothing is said of it."""
    database = _prepare(durable_server)
    database.execute("CREATE TABLE public.sick (v text)")
    proxy = Poisoner(durable_server.port)
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(database, dsn=proxy.dsn(database), config=config).start()
    _insert(database, 1, 10)
    daemon.catch_up()
    assert daemon.stop() == 0
    saved = durable_server.save_files()
    daemon.start()
    _insert(database, 11, 20)
    daemon.catch_up()
    assert daemon.stop() == 0
    durable_server.put_back(saved)
    database.execute(f"INSERT INTO public.sick VALUES ('{POISON}')")
    _insert(database, 21, 30)
    _grow_beyond(database, daemon.durable_lsn())
    before = len(daemon.entries())
    for _ in range(2):
        assert daemon.start().wait() == EX_CONFIG
        assert "restored to the past" in daemon.log_tail()
    assert len(daemon.entries()) == before
    proxy.close()


def test_restored_server_that_sends_nothing_again_is_refused(
    durable_server: Postgres, make_daemon: MakeDaemon
) -> None:
    """What landed is missing there: a keepalive after the log's position is enough to tell."""
    database = _prepare(durable_server)
    daemon = make_daemon(database).start()
    _insert(database, 1, 2)
    daemon.catch_up()
    assert daemon.stop() == 0
    saved = durable_server.save_files()
    daemon.start()
    _insert(database, 3, 4)
    daemon.catch_up()
    assert daemon.stop() == 0
    before = landing.read_entries(daemon.root)
    durable_server.put_back(saved)
    _grow_beyond(database, daemon.durable_lsn())
    assert daemon.start().wait() == EX_CONFIG
    assert landing.read_entries(daemon.root) == before


@pytest.fixture
def shards(
    durable_server: Postgres, servers: Callable[[int], Postgres]
) -> Iterator[dict[str, Database]]:
    """One on a server whose files can be put back, one on another."""
    made = {"east": Database(servers(16), "restored_east"), "west": _prepare(durable_server)}
    made["east"].execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    made["east"].create_slot()
    prepared(made)
    yield made
    made["east"].drop()


def test_a_restored_shard_is_refused_however_often_it_is_tried(
    durable_server: Postgres, shards: dict[str, Database], tmp_path: Path
) -> None:
    """Beside one that was not restored: of neither anything lands, and nothing is confirmed."""
    with ShardsDaemon(shards, tmp_path) as daemon:
        for shard in shards.values():
            _insert(shard, 1, 5)
        daemon.catch_up_all()
        assert daemon.stop() == 0
        saved = durable_server.save_files()
        daemon.start()
        for shard in shards.values():
            _insert(shard, 6, 10)
        daemon.catch_up_all()
        assert daemon.stop() == 0
        before = landing.read_entries(daemon.root)
        durable_server.put_back(saved)
        _insert(shards["west"], 1011, 1020)
        _grow_beyond(shards["west"], before[-1]["positions"]["west"]["lsn"])
        _insert(shards["west"], 1021, 1030)
        _insert(shards["east"], 11, 12)
        _, confirmed = shards["west"].slot_positions()
        for _ in range(2):
            assert daemon.start().wait() == EX_CONFIG
            assert "restored to the past" in daemon.log_tail()
            assert "west" in daemon.log_tail(2)
            assert landing.read_entries(daemon.root) == before
            assert shards["west"].slot_positions()[1] == confirmed


def test_shards_that_forgot_confirmations_are_followed(
    shards: dict[str, Database], tmp_path: Path
) -> None:
    """Both send again what has landed while more comes; all of it lands once."""
    proxies = {name: Poisoner(shard.server.port) for name, shard in shards.items()}
    with ShardsDaemon(shards, tmp_path) as daemon:
        own = daemon._config["sources"]
        for proxy in proxies.values():
            proxy.is_forgetting = True
        forgetting = {
            name: {**own[name], "dsn": f"{proxies[name].dsn(shard)} sslmode=disable"}
            for name, shard in shards.items()
        }
        daemon.wait_for_state("streaming")
        assert daemon.stop() == 0
        daemon.write_config_value("sources", forgetting)
        daemon.start()
        for shard in shards.values():
            _insert(shard, 1, 30)
        daemon.catch_up_all()
        daemon.kill9()
        daemon.write_config_value("sources", own)
        daemon.start()
        for shard in shards.values():
            _insert(shard, 31, 40)
        daemon.catch_up_all()
        assert daemon.stop() == 0
    for proxy in proxies.values():
        proxy.close()
    for name, shard in shards.items():
        landed = landing.read(daemon.root, name)
        oracle.check_order(landed)
        oracle.check_tables(landed, shard)
    assert main(["verify", str(daemon.root)]) == 0
    assert daemon.log.read_text().count('"resent_compared"') == len(shards)


def test_server_that_forgot_confirmations_in_a_crash_is_followed(
    durable_server: Postgres, make_daemon: MakeDaemon
) -> None:
    """It sends again what has landed; that is compared, found equal, and landed once."""
    database = _prepare(durable_server)
    daemon = make_daemon(database).start()
    _insert(database, 1, 10)
    daemon.catch_up()
    assert daemon.stop() == 0
    durable_server.restart()
    saved = database.slot_state.read_bytes()
    daemon.start()
    _insert(database, 11, 20)
    daemon.catch_up()
    durable_server.kill9()
    assert daemon.stop() == 0
    database.slot_state.write_bytes(saved)  # as if none had been written since
    durable_server.start()
    assert database.slot_positions()[1] < daemon.durable_lsn()
    daemon.start()
    _insert(database, 21, 30)
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    assert [change.new["id"] for change in landed.changes] == list(range(1, 31))
    assert '"resent_compared"' in daemon.log.read_text()
    assert database.slot_positions()[1] == daemon.durable_lsn()


def _lists(daemon: Daemon) -> None:
    daemon.write_config(decoding={"white-table-list": "public.kept,public.other"})


def _asks(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
    subprocess.run([*command, "--table", "public.other", "--no-wait"], check=True)


def _publishes(daemon: Daemon) -> None:
    database = daemon.database
    database.execute(f"ALTER PUBLICATION {database.publication} ADD TABLE public.other")


@pytest.mark.parametrize("wants", [_lists, _asks, _publishes], ids=["listed", "asked", "published"])
def test_a_table_that_is_wanted_now_has_not_landed_then(
    wants: Callable[[Daemon], None], database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Killed, and started with more tables than before: what is sent again is no other history."""
    database = database_15
    database.execute("CREATE TABLE public.kept (id int4 PRIMARY KEY)")
    if wants is _publishes:
        name = database.publication
        database.execute(
            f"DROP PUBLICATION {name}; CREATE PUBLICATION {name} FOR TABLE public.kept"
        )
    database.create_slot()
    proxy = Poisoner(database.server.port)
    proxy.is_forgetting = True
    config = {
        "decoding": {
            "skip-empty-xacts": True,
            "white-table-list": "public.kept" if wants is _lists else "",
        },
        "snapshot": {"on-new-table": "ignore" if wants is _asks else "stream"},
    }
    daemon = make_daemon(database, dsn=proxy.dsn(database), config=config).start()
    daemon.wait_for_state("streaming")
    database.execute("CREATE TABLE public.other (id int4 PRIMARY KEY)")
    for number in range(3):
        for table in ("other", "kept"):
            database.execute(f"INSERT INTO public.{table} VALUES ({number})")
    daemon.catch_up()
    daemon.kill9()
    wants(daemon)
    daemon.start().catch_up()
    if wants is _asks:
        daemon.wait_while_running(
            lambda: any(entry["kind"] == "snapshot" for entry in daemon.entries()), "the snapshot"
        )
    database.execute("INSERT INTO public.other VALUES (10)")
    daemon.catch_up()
    daemon.kill9()
    daemon.start().catch_up()
    assert daemon.stop() == 0
    proxy.close()
    landed = landing.read(daemon.root).effective()
    ids = {
        table: sorted(of.new["id"] for of in landed if of.schema.table == ("public", table))
        for table in ("kept", "other")
    }
    assert ids == {"kept": [0, 1, 2], "other": [0, 1, 2, 10] if wants is _asks else [10]}
    assert main(["verify", str(daemon.root)]) == 0
