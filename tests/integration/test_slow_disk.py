"""A disk that stands still, while a process of the pipeline dies or changes go on coming."""

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import landing
from kit.daemon import Daemon, wait_until
from kit.postgres import Database
from kit.stilldisk import StillDisk

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _unfinished(daemon: Daemon) -> int:
    """Data files of the table that lanes have begun."""
    return len(list((daemon.root / "data" / "public.t").rglob(".*")))


def _wait_for_files(daemon: Daemon, count: int) -> None:
    daemon.wait_while_running(lambda: _unfinished(daemon) >= count, f"file {count}")


def test_decoder_dies_while_the_disk_stands_still(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """The collector waits to publish and is given up: what it had comes again, all of it."""
    disk = StillDisk(tmp_path)
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    daemon = make_daemon(database, config={"landing": {"writer-lanes": 4}})
    daemon.environment |= disk.environment
    with daemon:
        database.execute("INSERT INTO public.t VALUES (0)")
        daemon.catch_up()
        disk.stand()
        for waiting in (1, 2):  # the first publication waits for the disk, the second for the first
            first = waiting * 20
            for number in range(first, first + 20):
                database.execute(f"INSERT INTO public.t VALUES ({number})")
            _wait_for_files(daemon, waiting)
        os.kill(daemon.children()["worker 0"], signal.SIGKILL)
        wait_until(lambda: not daemon.children(), "the session is given up")
        disk.go_on()
        assert daemon.wait() == os.EX_SOFTWARE
        assert "was killed by signal 9; the landing ends at" in daemon.log_tail()
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    found = [
        change.new["id"]
        for change in landing.read(daemon.root).streamed
        if change.schema.table == ("public", "t")
    ]
    assert found == [row[0] for row in database.execute("SELECT id FROM public.t ORDER BY id")]


def test_lanes_that_wait_for_the_disk_get_company(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """While cores are idle, as they are then; metrics and the log say how many there are."""
    disk = StillDisk(tmp_path)
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY); CREATE TABLE public.u (id int4)")
    database.create_slot()
    daemon = make_daemon(database, config={"landing": {"row-group-rows": 1024}})
    daemon.environment |= disk.environment
    lanes = f'gaussdecode_land_writer_lanes{{slot="{database.slot}"}} '
    with daemon:
        database.execute("INSERT INTO public.t VALUES (0); INSERT INTO public.u VALUES (0)")
        daemon.catch_up()
        assert f"{lanes}2\n" in daemon.get("/metrics")[1].decode()
        disk.slow_down()
        next_id = itertools.count(1)

        def is_told() -> bool:
            database.execute(f"INSERT INTO public.t VALUES ({next(next_id)})")
            database.execute("INSERT INTO public.u VALUES (0)")
            return '"event": "lanes_added"' in daemon.log.read_text()

        wait_until(is_told, "there are more lanes")
        assert f"{lanes}2\n" not in daemon.get("/metrics")[1].decode()
        disk.go_on()
        daemon.catch_up()
        assert daemon.stop() == 0
    found = sorted(
        change.new["id"]
        for change in landing.read(daemon.root).streamed
        if change.schema.table == ("public", "t")
    )
    assert found == [row[0] for row in database.execute("SELECT id FROM public.t ORDER BY id")]
