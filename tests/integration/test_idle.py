"""Slots with nothing to do: they do not hold the server's WAL, nor its shutdown."""

from collections.abc import Callable

import pytest
from kit.daemon import Daemon
from kit.postgres import Database, Postgres, run

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def test_idle_slot_advances(database: Database, make_daemon: MakeDaemon) -> None:
    """WAL of others moves an idle slot's confirmed position, through entries of the log."""
    database.execute("CREATE TABLE public.t (id int4)")
    database.create_slot()
    with make_daemon(database) as daemon:
        daemon.catch_up()
        with database.server.connect() as other:
            run(other, "CREATE TABLE public.busy AS SELECT generate_series(1, 100000)")
            run(other, "DROP TABLE public.busy")
        target = database.wal_end()
        daemon.wait_while_running(
            lambda: database.slot_positions()[1] >= target, "the idle slot to advance"
        )
        assert daemon.durable_lsn() >= target
        assert daemon.stop() == 0
        assert any(entry["kind"] == "idle" for entry in daemon.entries())


def test_server_shuts_down(own_server: Postgres, make_daemon: MakeDaemon) -> None:
    """A fast shutdown of the server, which waits for its receivers, ends with us connected."""
    database = Database(own_server, "shutdown")
    database.execute("CREATE TABLE public.t (id int4)")
    database.create_slot()
    with make_daemon(database) as daemon:
        database.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        own_server.stop("fast")
        daemon.wait_for_state("retrying")
        own_server.start()
        daemon.wait_for_state("streaming")
        database.execute("INSERT INTO public.t VALUES (2)")
        daemon.catch_up()
        assert daemon.stop() == 0
