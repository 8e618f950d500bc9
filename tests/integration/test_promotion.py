"""A standby takes over while transactions are open or prepared: each row lands once, or none of it.

One is streamed in part when its server dies, and dies with it; others were prepared before and
end on the new primary. The slot came with a copy of the files (15), is kept on the standby by the server (17, 18),
or is the standby's own (16, 18).
"""

import concurrent.futures
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from integration.test_two_phase import landed_ids, waiting
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database, Postgres, Session, run
from kit.standby import Standby

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_TABLES = ("plain", "opened", "kept", "large", "undone")
_ROWS = 1500
_SETTINGS = {"fsync": "on", "logical_decoding_work_mem": "64kB"}
_FILL = "INSERT INTO kit.{} SELECT g, repeat('x', 50) FROM generate_series(1, {}) g"


@dataclasses.dataclass
class Pair:
    """A primary with a database, and a standby that has all of it."""

    database: Database
    standby: Standby

    @property
    def primary(self) -> Postgres:
        """The server that the database lives on now."""
        return self.database.server


def make_pair(
    major: int, settings: dict[str, str], of_standby: dict[str, str], slot: str | None
) -> Iterator[Pair]:
    """Make them; `slot` is the call that makes the daemon's slot, before the standby is made."""
    with Postgres(major, {**_SETTINGS, **settings}) as primary:
        database = Database(primary, "shop")
        tables = (f"CREATE TABLE kit.{name} (id int8 PRIMARY KEY, v text);" for name in _TABLES)
        database.execute("CREATE SCHEMA kit;" + "".join(tables))
        primary.execute("SELECT pg_create_physical_replication_slot('standby', true)")
        if slot is not None:
            database.execute(f"SELECT {slot}")
        primary.stop()
        own = {"primary_slot_name": "standby", "hot_standby_feedback": "on"}
        standby = Standby(primary, {**_SETTINGS, **own, **of_standby})
        if of_standby:  # the server keeps the slot there, and not the copy of the files
            shutil.rmtree(standby.data / "pg_replslot" / "shop")
        primary.start()
        with standby:
            yield Pair(database, standby)


_SLOT = "pg_create_logical_replication_slot('shop', 'pgoutput'"


@pytest.fixture(params=[15, 17, 18])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """With a slot that the standby knows: from 17 on because the server keeps it there."""
    major: int = request.param
    if major < 17:
        yield from make_pair(major, {}, {}, f"{_SLOT})")
    else:
        slot = f"{_SLOT}, failover => true)"
        synced = {"sync_replication_slots": "on"}
        yield from make_pair(major, {"synchronized_standby_slots": "standby"}, synced, slot)


@pytest.fixture(params=[16, 18])
def pair_of_its_own(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """With a standby that is the source."""
    yield from make_pair(request.param, {}, {}, None)


def open_and_prepare(database: Database) -> Session:
    """One that stays open, and three that are prepared; two of all are streamed."""
    database.execute(_FILL.format("plain", 10))
    for table, rows in (("kept", 3), ("large", _ROWS), ("undone", _ROWS)):
        with database.connect() as session:
            run(session, "BEGIN")
            run(session, _FILL.format(table, rows))
            run(session, f"PREPARE TRANSACTION '{table}'")
    session = database.connect()
    run(session, "BEGIN")
    run(session, _FILL.format("opened", _ROWS))
    return session


def is_there(daemon: Daemon) -> bool:
    """Whether the daemon has all of it."""
    status = daemon.status() or {}
    return status.get("working_txn_cnt") == 1 and status.get("prepared_txn_cnt") == 3


def end_them(pair: Pair, daemon: Daemon) -> None:
    """End what was prepared on the new primary, and compare everything."""
    database = pair.database
    assert {each["gid"] for each in waiting(daemon)} == {"kept", "large", "undone"}
    assert landed_ids(daemon.root, "kit.kept") == []
    database.execute("COMMIT PREPARED 'large'")
    database.execute("ROLLBACK PREPARED 'undone'")
    database.execute("COMMIT PREPARED 'kept'")
    database.execute("INSERT INTO kit.opened VALUES (1, 'of the new primary')")
    daemon.catch_up()
    assert waiting(daemon) == []
    database.execute("CHECKPOINT")  # tells of transactions that died with their server
    daemon.wait_while_running(
        lambda: (daemon.status() or {}).get("working_txn_cnt") == 0, "nothing is open"
    )
    assert daemon.stop() == 0
    oracle.check(daemon.root, database)
    assert landed_ids(daemon.root, "kit.kept") == [1, 2, 3]
    assert landed_ids(daemon.root, "kit.large") == [*range(1, _ROWS + 1)]
    assert landed_ids(daemon.root, "kit.undone") == []
    assert landed_ids(daemon.root, "kit.opened") == [1]
    (position,) = landing.read_entries(daemon.root)[-1]["positions"].values()
    assert position["timeline"] == 2
    assert main(["verify", str(daemon.root)]) == 0


SOURCE: dict[str, Any] = {"streaming": "on", "two-phase": True}


def test_failover(pair: Pair, make_daemon: MakeDaemon) -> None:
    """The primary dies with an open transaction; what was prepared ends on the new one."""
    database, standby = pair.database, pair.standby
    primary = database.server
    daemon = make_daemon(database, config={"source": SOURCE})
    with daemon:
        while primary.major >= 17 and not is_synced(standby):  # a prepared one would hold it up
            primary.execute("CHECKPOINT")
            daemon.catch_up()
        session = open_and_prepare(database)
        daemon.wait_while_running(lambda: is_there(daemon), "open and prepared")
        daemon.catch_up()
        daemon.wait_while_running(
            lambda: database.slot_positions()[1] >= daemon.durable_lsn(), "it is confirmed"
        )
        standby.wait_for(primary)
        primary.stop("immediate")
        session.close()
        daemon.kill9()
        standby.promote()
        database.server = standby
        daemon.write_config(source={"dsn": f"{standby.dsn(database.name)} sslmode=disable"})
        daemon.start()
        daemon.catch_up()
        end_them(pair, daemon)


def is_synced(standby: Standby) -> bool:
    """Whether the standby would keep the slot over its promotion."""
    query = "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = 'shop'"
    return standby.execute(query) == [(True,)]


def test_promoted_source(pair_of_its_own: Pair, make_daemon: MakeDaemon) -> None:
    """The standby that the daemon read is promoted while it is down; it says what to change."""
    pair = pair_of_its_own
    database, standby = pair.database, pair.standby
    primary = database.server
    daemon = daemon_of_standby(pair, make_daemon)
    with daemon:
        opened = open_and_prepare(database)
        daemon.wait_while_running(lambda: is_there(daemon), "open and prepared")
        standby.wait_for(primary)
        primary.stop("immediate")
        opened.close()
        daemon.kill9()
        standby.promote()
        database.server = standby
        daemon.start()
        go_on_as_primary(pair, daemon)


def test_promoted_while_it_is_read(pair_of_its_own: Pair, make_daemon: MakeDaemon) -> None:
    """The daemon goes on with the server, says so, and notes the new timeline before it stops."""
    pair = pair_of_its_own
    database, standby = pair.database, pair.standby
    primary = database.server
    daemon = daemon_of_standby(pair, make_daemon)
    with daemon:
        opened = open_and_prepare(database)
        daemon.wait_while_running(lambda: is_there(daemon), "open and prepared")
        standby.wait_for(primary)
        primary.stop("immediate")
        opened.close()
        standby.promote()
        database.server = standby
        database.execute("INSERT INTO kit.plain VALUES (100, 'of the new timeline')")
        daemon.wait_while_running(
            lambda: "timeline_followed" in daemon.log.read_text(), "the new timeline is noted"
        )
        database.execute("INSERT INTO kit.plain VALUES (101, 'of the new timeline')")
        daemon.catch_up()
        assert daemon.log.read_text().count('"standby_promoted"') == 1
        daemon.stop()
        (fork,) = (e for e in landing.read_entries(daemon.root) if e["kind"] == "fork")
        assert fork["extra"]["from_timeline"] == 1
        daemon.start()
        go_on_as_primary(pair, daemon)


def daemon_of_standby(pair: Pair, make_daemon: MakeDaemon) -> Daemon:
    """A daemon whose source is the standby, with a slot there."""
    make_slot(pair)
    config = {
        "source": {**SOURCE, "dsn": f"{pair.standby.dsn(pair.database.name)} sslmode=disable"},
        "decoding": {"standby-connection": True},
    }
    return make_daemon(pair.database, config=config)


def go_on_as_primary(pair: Pair, daemon: Daemon) -> None:
    """A start says which option is to be changed; changed, all of it lands."""
    assert daemon.wait() == EX_CONFIG
    assert "decoding.standby-connection: the server is a primary" in daemon.log_tail(5)
    daemon.write_config(decoding={"standby-connection": False})
    daemon.start()
    daemon.catch_up()
    end_them(pair, daemon)


def make_slot(pair: Pair) -> None:
    """Make the slot on the standby, which waits for what the primary logs of running transactions."""
    with (
        pair.standby.connect(pair.database.name) as session,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        made = pool.submit(run, session, f"SELECT {_SLOT})")
        while not made.done():
            pair.primary.execute("SELECT pg_log_standby_snapshot()")
            concurrent.futures.wait([made], 0.2)
        made.result()
