"""Slots that are lost, advanced, dropped by hand or by the guard: always a recorded gap."""

from collections.abc import Callable, Iterator

import pytest
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_IOERR
from gaussdecode.land.verify import verify
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
MIB = 2**20


@pytest.fixture
def small() -> Iterator[Postgres]:
    """A server that keeps two segments of WAL for a slot, at each checkpoint."""
    settings = {"max_slot_wal_keep_size": "32MB", "min_wal_size": "32MB", "max_wal_size": "64MB"}
    with Postgres(15, settings) as server:
        yield server


def write_wal(database: Database, mib: int) -> None:
    """Write WAL that no slot sends as a row."""
    for _ in range(mib):
        database.execute(f"SELECT pg_logical_emit_message(false, 'x', repeat('x', {MIB}))")


def landed(database: Database, make_daemon: MakeDaemon, **config: object) -> Daemon:
    """A daemon that has landed a row."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    daemon = make_daemon(database, config=config).start()
    database.execute("INSERT INTO public.t VALUES (1)")
    daemon.catch_up()
    return daemon


def gaps(daemon: Daemon) -> list[dict[str, object]]:
    """The extras of the gap entries."""
    return [entry["extra"] for entry in daemon.entries() if entry["kind"] == "gap"]


def test_a_lost_slot_ends_in_one_gap(
    small: Postgres, make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gap begins at the durable position; a second start stays down and adds no other."""
    database = Database(small, "lost")
    daemon = landed(database, make_daemon)
    assert daemon.stop() == 0
    durable = daemon.durable_lsn()
    write_wal(database, 96)
    small.execute("CHECKPOINT")
    assert small.execute("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
    for _ in range(2):
        daemon.start()
        assert daemon.wait() == EX_CONFIG
        (gap,) = gaps(daemon)
        assert (gap["reason"], gap["from_lsn"], gap["is_open"]) == ("slot_lost", durable, True)
        until = gap["until_lsn"]
        assert isinstance(until, int)
        assert durable + 96 * MIB < until <= database.wal_end()
    assert main(["gaps", str(daemon.root)]) == EX_IOERR
    assert str(Lsn(durable)) in capsys.readouterr().out
    assert verify(daemon.root).is_clean


def test_a_slot_taken_away_ends_in_a_gap(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Advanced behind the daemon's back: exactly up to where; dropped: and on."""
    daemon = landed(database_15, make_daemon)
    assert daemon.stop() == 0
    durable = daemon.durable_lsn()
    database_15.execute("INSERT INTO public.t VALUES (2)")
    database_15.execute(
        f"SELECT pg_replication_slot_advance('{database_15.slot}', pg_current_wal_lsn())"
    )
    _, confirmed = database_15.slot_positions()
    daemon.start()
    assert daemon.wait() == EX_CONFIG
    (gap,) = gaps(daemon)
    assert gap["reason"] == "slot_advanced"
    assert (gap["from_lsn"], gap["until_lsn"], gap["is_open"]) == (durable, confirmed, False)


def test_another_server_is_no_gap(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A configuration that names another database is refused, and nothing is recorded."""
    daemon = landed(database_15, make_daemon)
    assert daemon.stop() == 0
    other = f"{database_15.server.dsn('postgres')} sslmode=disable"
    daemon.write_config(source={"dsn": other})
    daemon.start()
    assert daemon.wait() == EX_CONFIG
    assert gaps(daemon) == []


def test_the_guard_drops_the_slot_only_where_it_was_asked_to(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """All that came before is landed, then the slot goes, a gap is recorded, and it stays down."""
    guard = {"interval": "1s", "drop-slot-above": "24MiB"}
    daemon = landed(database_15, make_daemon, guard=guard)
    with database_15.connect() as writer:
        writer.autocommit = False
        writer.execute("INSERT INTO public.t VALUES (-1)")  # open: the server keeps its WAL
        for number in range(2, 5):
            database_15.execute(f"INSERT INTO public.t VALUES ({number})")
            write_wal(database_15, 12)
        assert daemon.wait() == EX_CONFIG
        writer.rollback()
    (gap,) = gaps(daemon)
    assert gap["reason"] == "slot_dropped_by_guard"
    assert gap["from_lsn"] == daemon.durable_lsn()
    slots = database_15.execute(
        f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database_15.slot}'"
    )
    assert slots == []
    text = daemon.log.read_text()
    assert '"step": "drop"' in text
    assert "slot_dropped" in text
    daemon.start()
    assert daemon.wait() == EX_CONFIG
    assert len(gaps(daemon)) == 1
    assert verify(daemon.root).is_clean


def test_the_guard_leaves_a_slot_alone_that_nobody_gave_up(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Without drop-slot-above as much WAL changes nothing."""
    daemon = landed(database_15, make_daemon, guard={"interval": "1s"})
    with database_15.connect() as writer:
        writer.autocommit = False
        writer.execute("INSERT INTO public.t VALUES (-1)")
        write_wal(database_15, 36)

        def looked() -> bool:
            slot = daemon.record()["server"]["slot"]
            return slot is not None and slot["retained_bytes"] > 30 * MIB

        wait_until(looked, "the guard has looked")
        assert daemon.is_running
        writer.rollback()
    assert daemon.stop() == 0
    assert gaps(daemon) == []
