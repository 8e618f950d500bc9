"""The server is replaced by its standby: the daemon goes on where both agree, else stops."""

import signal
from collections.abc import Callable, Iterator

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres
from kit.standby import Standby

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.land.failpoints import VARIABLE
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


@pytest.fixture
def pair(own_server: Postgres) -> Iterator[tuple[Database, Standby]]:
    """A database with a slot, and a running standby of its server that knows the slot."""
    database = Database(own_server, "failover")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    own_server.stop()
    standby = Standby(own_server)
    own_server.start()
    with standby:
        yield database, standby


def _land(database: Database, daemon: Daemon, first: int, last: int) -> None:
    database.execute(f"INSERT INTO public.t SELECT generate_series({first}, {last})")
    daemon.catch_up()


def snapshot_state(daemon: Daemon, title: str) -> str | None:
    """How far a table's snapshot is."""
    snapshots = (daemon.status() or {}).get("snapshot") or {}
    state: str | None = snapshots.get(title, {}).get("state")
    return state


def epoch(daemon: Daemon) -> int:
    """In which epoch the log is."""
    (position,) = daemon.entries()[-1]["positions"].values()
    found: int = position["epoch"]
    return found


def _switch_to(standby: Standby, database: Database, daemon: Daemon) -> None:
    """Promote the standby, and point the daemon there as an operator would."""
    standby.promote()
    database.server = standby
    daemon.write_config(source={"dsn": f"{standby.dsn(database.name)} sslmode=disable"})


def test_promoted_standby_is_followed(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """A standby that had everything goes on under its new timeline, without loss or double."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database).start()
    _land(database, daemon, 1, 100)
    assert daemon.stop() == 0
    database.execute("INSERT INTO public.t SELECT generate_series(101, 150)")
    standby.wait_for(primary)
    primary.stop("immediate")
    _switch_to(standby, database, daemon)
    daemon.start()
    _land(database, daemon, 151, 200)
    assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    assert [change.new["id"] for change in landed.changes] == list(range(1, 201))
    (position,) = landed.entries[-1]["positions"].values()
    assert position["timeline"] == 2


def test_standby_without_the_slot_is_followed_behind_a_gap(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """Where the slot was not kept, an operator accepts the gap across the change of timeline."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database).start()
    _land(database, daemon, 1, 100)
    assert daemon.stop() == 0
    begin = daemon.durable_lsn()
    standby.wait_for(primary)
    primary.stop("immediate")
    _switch_to(standby, database, daemon)
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")
    database.execute("INSERT INTO public.t SELECT generate_series(101, 110)")
    assert daemon.start().wait() == EX_CONFIG
    accept = ("slot", "accept-gap", str(daemon.config_path), "--from-lsn", str(Lsn(begin)))
    assert main(accept) == EX_OK
    daemon.start()
    _land(database, daemon, 111, 120)
    assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    assert [change.new["id"] for change in landed.changes] == [*range(1, 101), *range(111, 121)]
    (position,) = landed.entries[-1]["positions"].values()
    assert (position["epoch"], position["timeline"]) == (2, 2)


def test_promoted_standby_that_lacks_what_landed_is_refused(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """What landed and the new primary never had cannot be taken back: status 78."""
    database, standby = pair
    primary = database.server
    standby.wait_for(primary)
    standby.stop()
    daemon = make_daemon(database).start()
    _land(database, daemon, 1, 100)
    assert daemon.stop() == 0
    before = landing.read_entries(daemon.root)
    primary.stop()
    standby.start()
    _switch_to(standby, database, daemon)
    # The new timeline grows beyond the position that the old one had.
    database.execute("INSERT INTO public.t SELECT generate_series(1000, 9999)")
    assert daemon.start().wait() == EX_CONFIG
    assert "changes were landed that the new primary never had" in daemon.log_tail()
    assert landing.read_entries(daemon.root) == before


def test_idle_position_beyond_the_fork_is_followed(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """Only WAL of others was beyond the fork: the log goes on from there, in the next epoch."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database).start()
    _land(database, daemon, 1, 100)
    standby.wait_for(primary)
    standby.stop()
    fork = database.wal_end()
    with primary.connect() as other:  # in another database
        other.execute("CREATE TABLE public.busy AS SELECT generate_series(1, 300000)")
    target = database.wal_end()
    daemon.wait_while_running(lambda: daemon.durable_lsn() >= target, "the idle log to move on")
    assert daemon.stop() == 0
    primary.stop("immediate")
    standby.start()
    _switch_to(standby, database, daemon)
    database.execute("INSERT INTO public.t SELECT generate_series(101, 150)")
    assert fork <= database.wal_end() < target
    daemon.environment[VARIABLE] = "entry_shown=kill"
    daemon.start().wait()
    assert daemon.entries()[-1]["kind"] == EntryKind.FORK, "killed before anything was confirmed"
    del daemon.environment[VARIABLE]
    daemon.start()
    daemon.wait_while_running(lambda: epoch(daemon) == 2, "going on from the fork")
    daemon.catch_up()
    _land(database, daemon, 151, 200)
    assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    assert [change.new["id"] for change in landed.changes] == list(range(1, 201))
    (position,) = landed.entries[-1]["positions"].values()
    assert (position["epoch"], position["timeline"]) == (2, 2)
    assert main(["verify", str(daemon.root)]) == EX_OK


def test_pieces_read_beyond_the_fork_are_forgotten(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """A view of the old primary may show rows that the new one never had, and no stream takes back."""
    database, standby = pair
    primary = database.server
    database.execute(
        "DROP TABLE public.t; CREATE TABLE public.big (id int8 PRIMARY KEY, v text);"
        "INSERT INTO public.big SELECT g, repeat('x', 200) FROM generate_series(1, 5000) g"
    )
    standby.wait_for(primary)
    standby.stop()
    database.execute("INSERT INTO public.big VALUES (-1, 'nobody else has it')")
    daemon = make_daemon(
        database,
        config={
            "snapshot": {"mode": "initial", "chunk-bytes": "64KiB"},
            "landing": {"max-commit-interval": "60s"},
        },
        environment={"GAUSSDECODE_FAILPOINTS": "snapshot_read=kill"},
    )
    assert daemon.start().wait() == -signal.SIGKILL
    assert list(daemon.root.glob("snapshots/public.big/chunk-*"))
    primary.stop("immediate")
    standby.start()
    _switch_to(standby, database, daemon)
    del daemon.environment[VARIABLE]
    daemon.write_config(landing={"max-commit-interval": "300ms"})
    daemon.start()
    wait_until(lambda: snapshot_state(daemon, "public.big") == "done", "the snapshot")
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database)


def test_older_copy_is_refused(pair: tuple[Database, Standby], make_daemon: MakeDaemon) -> None:
    """Back at the old primary after a failover, the daemon does not follow its timeline."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database)
    standby.wait_for(primary)
    _switch_to(standby, database, daemon)
    daemon.start()
    _land(database, daemon, 1, 10)
    assert daemon.stop() == 0
    daemon.write_config(source={"dsn": f"{primary.dsn(database.name)} sslmode=disable"})
    assert daemon.start().wait() == EX_CONFIG
    assert "older copy" in daemon.log_tail()
