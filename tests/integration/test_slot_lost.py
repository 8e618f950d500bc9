"""What the daemon needs on the server goes away while it streams: it stops, and says so.

Nothing is made again by itself, because only an operator can say that a gap is accepted;
what was committed before lands.
"""

import os
import signal
from collections.abc import Callable

import psycopg
import pytest
from kit import landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _streaming(database: Database, make_daemon: MakeDaemon) -> Daemon:
    """Start a daemon on a table with one row, and wait until that has landed."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    daemon = make_daemon(database).start()
    database.execute("INSERT INTO public.t VALUES (1)")
    daemon.catch_up()
    return daemon


def _landed_ids(daemon: Daemon) -> list[int]:
    return [change.new["id"] for change in landing.read(daemon.root).changes]


def _drop_slot(database: Database) -> None:
    """Drop a slot that somebody reads, as an operator in a hurry would."""

    def is_dropped() -> bool:
        where = f"WHERE slot_name = '{database.slot}'"
        try:
            database.execute(
                f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots {where} "
                "AND active"
            )
            database.execute(
                f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots {where}"
            )
        except psycopg.errors.ObjectInUse:
            return False
        return not database.execute(f"SELECT 1 FROM pg_replication_slots {where}")

    wait_until(is_dropped, "the slot is dropped")


def test_dropped_slot(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A slot dropped under the daemon, and one made again in its place, end it with status 78."""
    daemon = _streaming(database_15, make_daemon)
    _drop_slot(database_15)
    assert daemon.wait() == EX_CONFIG
    assert "does not exist, but the log is at" in daemon.log_tail()
    database_15.execute("INSERT INTO public.t VALUES (2)")
    database_15.create_slot()
    assert daemon.start().wait() == EX_CONFIG
    assert "it was made again" in daemon.log_tail()
    assert _landed_ids(daemon) == [1]


def test_dropped_publication(database: Database, make_daemon: MakeDaemon) -> None:
    """Without its publication the stream is not followed any further, on any version."""
    daemon = _streaming(database, make_daemon)
    database.execute("INSERT INTO public.t VALUES (2)")
    database.execute(f'DROP PUBLICATION "{database.publication}"')
    database.execute("INSERT INTO public.t VALUES (3)")
    lost_from = database.wal_end()
    assert daemon.wait() == EX_CONFIG
    assert "publication" in daemon.log_tail()
    assert _landed_ids(daemon) == [1, 2]
    assert daemon.durable_lsn() < lost_from, "the change that was not sent is not claimed"
    assert daemon.start().wait() == EX_CONFIG
    assert "no publication" in daemon.log_tail()


@pytest.mark.parametrize("is_silent", [False, True])
def test_publication_made_again(
    database: Database, make_daemon: MakeDaemon, *, is_silent: bool
) -> None:
    """Nothing after the hole lands, though the server sends it in the same breath.

    Also where the database's own setting would keep the server's warning from us.
    """
    if is_silent:
        database.execute(f'ALTER DATABASE "{database.name}" SET client_min_messages = error')
    daemon = _streaming(database, make_daemon)
    reader = daemon.children()["reader"]
    os.kill(reader, signal.SIGSTOP)
    database.execute("INSERT INTO public.t VALUES (2)")
    database.execute(f'DROP PUBLICATION "{database.publication}"')
    database.execute("INSERT INTO public.t VALUES (3)")
    lost_from = database.wal_end()
    database.execute(f'CREATE PUBLICATION "{database.publication}" FOR ALL TABLES')
    database.execute("INSERT INTO public.t VALUES (4)")
    target = database.wal_end()
    sent = f"SELECT sent_lsn >= '{target}' OR {database.server.major} < 18 FROM pg_stat_replication"
    wait_until(lambda: database.execute(sent) == [(True,)], "the server has sent all")
    os.kill(reader, signal.SIGCONT)
    for _ in range(2):
        assert daemon.wait() == EX_CONFIG
        assert "publication" in daemon.log_tail()
        assert _landed_ids(daemon) == [1, 2]
        assert daemon.durable_lsn() < lost_from
        daemon.start()
    assert daemon.wait() == EX_CONFIG


def test_the_way_behind_a_missing_publication(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """The commands that the error names lead to the source's rows again."""
    database = database_15
    daemon = _streaming(database, make_daemon)
    assert daemon.stop() == 0
    database.execute(f'DROP PUBLICATION "{database.publication}"')
    database.execute("INSERT INTO public.t VALUES (2)")
    database.execute(f'CREATE PUBLICATION "{database.publication}" FOR ALL TABLES')
    assert daemon.start().wait() == EX_CONFIG
    said = daemon.log_tail()
    config = str(daemon.config_path)
    position = str(Lsn(daemon.durable_lsn()))
    for arguments in (
        ["slot", "accept-gap", config, "--until-lsn", "now", "--from-lsn", position],
        ["snapshot", "--all", "--no-wait", config],
    ):
        assert f"gaussdecode {' '.join(arguments[:2])}" in said
        assert main(arguments) == 0
    daemon.start()
    daemon.wait_while_running(
        lambda: any(entry["kind"] == "snapshot" for entry in daemon.entries()), "the snapshot"
    )
    database.execute("INSERT INTO public.t VALUES (3)")
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check_tables(landing.read(daemon.root), database)


def test_slot_behind_the_limit(own_server: Postgres, make_daemon: MakeDaemon) -> None:
    """A slot that the server gave up (max_slot_wal_keep_size) ends it with status 78."""
    own_server.restart(settings={"max_slot_wal_keep_size": "1MB"})
    database = Database(own_server, "slow")
    daemon = _streaming(database, make_daemon)
    reader = daemon.children()["reader"]
    os.kill(reader, signal.SIGSTOP)
    for n in range(2, 6):
        database.execute(f"INSERT INTO public.t VALUES ({n})")
        database.execute("SELECT pg_switch_wal()")

    def is_lost() -> bool:
        database.execute("CHECKPOINT")
        rows = database.execute("SELECT wal_status FROM pg_replication_slots")
        return rows == [("lost",)]

    wait_until(is_lost, "the slot is lost")
    os.kill(reader, signal.SIGCONT)
    assert daemon.wait() == EX_CONFIG
    assert "is lost" in daemon.log_tail()
    landed = landing.read(daemon.root)
    oracle.check_log(landed.entries)
    oracle.check_order(landed)
