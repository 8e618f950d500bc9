"""Existing rows of several PostgreSQL databases in one landing: of each source at a position of its own.

What Spark jobs and a reader made from the page of the format make of it is compared with the servers.
"""

import contextlib
import io
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from kit import landing, stranger
from kit.applied import held_by_source, in_order, rows_by_source
from kit.daemon import wait_until
from kit.postgres import Database, Postgres
from kit.shards import ShardsDaemon, prepared

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE
from gaussdecode.land.disk import Disk
from gaussdecode.land.failpoints import VARIABLE, SnapshotStep
from gaussdecode.land.files import Files
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.verify import verify
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.options import Summary

pytestmark = pytest.mark.integration
Shards = dict[str, Database]
_numbers = itertools.count()
_MAJORS: Final = {"east": 15, "west": 18}
_STEPS: Final = (
    SnapshotStep.SNAPSHOT_CUT,
    SnapshotStep.SNAPSHOT_CHUNK_READ,
    SnapshotStep.SNAPSHOT_READ,
    SnapshotStep.SNAPSHOT_HELD,
    SnapshotStep.SNAPSHOT_WRITTEN,
    SnapshotStep.SNAPSHOT_COMMITTED,
    SnapshotStep.SNAPSHOT_NOTED,
    SnapshotStep.SNAPSHOT_ANSWERED,
)
_CHUNKED: Final = {"chunk-bytes": "64KiB", "workers": 2}


@pytest.fixture
def shards(servers: Callable[[int], Postgres]) -> Iterator[Shards]:
    """Databases on servers of two majors."""
    name = f"rows_{os.getpid()}_{next(_numbers)}"
    made = {of: Database(servers(major), f"{name}_{of}") for of, major in _MAJORS.items()}
    prepared(made)
    yield made
    for shard in made.values():
        shard.drop()


def fill(shards: Shards, table: str = "public.t", rows: int = 3000) -> None:
    """A table with a key on each; the columns have other numbers."""
    shards["east"].execute(f"CREATE TABLE {table} (gone int, id int8 PRIMARY KEY, v text)")
    shards["east"].execute(f"ALTER TABLE {table} DROP COLUMN gone")
    shards["west"].execute(f"CREATE TABLE {table} (v text, id int8 PRIMARY KEY)")
    for name, shard in shards.items():
        shard.execute(
            f"INSERT INTO {table} (id, v) SELECT i, '{name} ' || repeat('x', 40) "
            f"FROM generate_series(1, {rows}) i"
        )


class Writers:
    """Change rows of a table on each shard, until they are stopped."""

    def __init__(self, shards: Shards, table: str = "public.t", rows: int = 3000) -> None:
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(shard, table, rows, seed), daemon=True)
            for seed, shard in enumerate(shards.values())
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, shard: Database, table: str, rows: int, seed: int) -> None:
        rng, new = Random(seed), rows
        with shard.connect() as session:
            while not self._stop.is_set():
                new += 1
                some = rng.randrange(1, rows)
                session.execute(f"INSERT INTO {table} (id, v) VALUES ({new}, 'new')")
                session.execute(f"UPDATE {table} SET v = v || 'u' WHERE id = {some}")
                session.execute(f"DELETE FROM {table} WHERE id = {rng.randrange(1, rows)}")
                session.execute(f"UPDATE {table} SET id = -id WHERE id = {rng.randrange(1, rows)}")
                self._stop.wait(0.005)

    def finish(self) -> None:
        """Let all changes be committed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def gaussdecode(*words: str | Path) -> tuple[int, str]:
    """Run a command here; gives its status, and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main([str(word) for word in words])
    return status, said.getvalue()


def asked(daemon: ShardsDaemon, *words: str) -> tuple[int, str]:
    """Ask for snapshots and wait for them."""
    return gaussdecode("snapshot", daemon.config_path, *words)


def snapshots(root: Path) -> list[tuple[str, list[str], int]]:
    """Source, tables and number of each entry that has existing rows."""
    return [
        (entry["extra"]["source"], sorted(entry["extra"]["snapshot"]["tables"]), entry["n"])
        for entry in landing.read_entries(root)
        if entry["kind"] == "snapshot"
    ]


def applied(root: Path, target: Path) -> Summary:
    """Make tables of all that landed."""
    return apply_with(LocalEngine(), root, target, Options(history=True, changelog="gd_op"))


def check(shards: Shards, root: Path, target: Path, *tables: str) -> None:
    """What landed gives the servers' tables: as it was applied in steps, at once, and by the page."""
    summary = applied(root, target)
    assert not summary.stopped
    once = target.with_name(f"{target.name} once")
    assert not applied(root, once).stopped
    for table in tables:
        wanted = held_by_source(shards, table)
        assert wanted
        assert rows_by_source(target, table) == wanted
        assert rows_by_source(once, table) == wanted
        readers = {name: stranger.Reader(root, source=name).advance() for name in shards}
        found = {name: of.tables[table] for name, of in readers.items() if table in of.tables}
        assert in_order(stranger.as_one(found)) == wanted
    report = verify(root)
    assert not report.findings, report.findings


def test_a_table_is_read_on_each_source(shards: Shards, tmp_path: Path) -> None:
    """By a command, while rows change; one of them has a table alone."""
    fill(shards)
    shards["west"].execute(
        "CREATE TABLE public.alone (id int PRIMARY KEY); INSERT INTO alone VALUES (1)"
    )
    for shard in shards.values():
        shard.create_slot()
    with ShardsDaemon(shards, tmp_path, config={"snapshot": _CHUNKED}) as daemon:
        writers = Writers(shards)
        daemon.catch_up_all()
        applied(daemon.root, tmp_path / "target")
        status, said = asked(daemon, "--table", "public.t")
        assert status == EX_OK, said
        assert "east/public.t: " in said
        assert "west/public.t: " in said
        status, said = asked(daemon, "--table", "public.alone")
        assert status == EX_OK, said
        assert "west/public.alone: 1 row in entry" in said
        assert "east: no configured publication has this table" in said
        status, said = asked(daemon, "--table", "public.nowhere")
        assert status == EX_UNAVAILABLE
        assert "east: no configured publication has this table" in said
        writers.finish()
        daemon.catch_up_all()
        assert daemon.stop() == 0
    check(shards, daemon.root, tmp_path / "target", "public.t", "public.alone")
    of = [(source, tables) for source, tables, _ in snapshots(daemon.root)]
    assert sorted(of) == [
        ("east", ["public.t"]),
        ("west", ["public.alone"]),
        ("west", ["public.t"]),
    ]


def is_whole(root: Path) -> bool:
    """What `gaps` says of suspect entries."""
    status, said = gaussdecode("gaps", "--unaccepted", "--json", root)
    return status == EX_OK or all(
        not json.loads(line)["not_read_again"] for line in said.splitlines()
    )


@pytest.mark.parametrize("suspects", ["east", "both"])
def test_a_suspect_is_read_again_on_its_source(
    shards: Shards, tmp_path: Path, suspects: str
) -> None:
    """And on no other, while the workload goes on; then nothing is in doubt."""
    fill(shards)
    for shard in shards.values():
        shard.create_slot()
    config: dict[str, dict[str, Any]] = {  # Any: values
        "landing": {"on-suspect": "snapshot"},
        "snapshot": {**_CHUNKED, "suspect-interval": "1s"},
    }
    of = list(shards) if suspects == "both" else ["east"]
    with ShardsDaemon(shards, tmp_path, config=config) as daemon:
        assert asked(daemon, "--table", "public.t")[0] == EX_OK  # its rows of before the slot
        writers = Writers(shards)
        daemon.catch_up_all()
        applied(daemon.root, tmp_path / "target")
        for name in of:
            shards[name].execute("ALTER TABLE public.t ALTER v TYPE varchar(99) USING upper(v)")
            shards[name].execute("UPDATE public.t SET v = v || '!' WHERE id = 1")
        daemon.catch_up_all()
        wait_until(lambda: is_whole(daemon.root), "all in doubt is read again")
        writers.finish()
        for name in set(shards) - set(of):  # names and types are learned with rows
            shards[name].execute("ALTER TABLE public.t ALTER v TYPE varchar(99)")
            shards[name].execute("UPDATE public.t SET v = v || '!' WHERE id = 1")
        daemon.catch_up_all()
        wait_until(lambda: is_whole(daemon.root), "all in doubt is read again")
        assert daemon.stop() == 0
    entries = landing.read_entries(daemon.root)
    meant = {entry["extra"]["source"] for entry in entries if entry["kind"] == "suspect"}
    assert meant >= set(of)
    assert {source for source, _, _ in snapshots(daemon.root)[2:]} == meant
    check(shards, daemon.root, tmp_path / "target", "public.t")


@pytest.mark.parametrize("step", _STEPS)
def test_killed_at_each_step(shards: Shards, tmp_path: Path, step: SnapshotStep) -> None:
    """What was asked for is landed by the next start, of each source, and stands at its position."""
    fill(shards, rows=1500)
    for shard in shards.values():
        shard.create_slot()
    daemon = ShardsDaemon(shards, tmp_path, config={"snapshot": _CHUNKED})
    with daemon:
        daemon.catch_up_all()
        applied(daemon.root, tmp_path / "target")
        assert daemon.stop() == 0
    writers = Writers(shards, rows=1500)
    daemon.environment = {VARIABLE: f"{step}=kill"}
    with daemon:
        status, said = asked(daemon, "--table", "public.t", "--no-wait")
        assert status == EX_OK, said
        daemon.wait()
        daemon.environment = {}
        daemon.start()
        left = daemon.root / "snapshots" / "requests"
        wait_until(lambda: not list(left.iterdir()), "what was asked for has landed")
        writers.finish()
        daemon.catch_up_all()
        assert daemon.stop() == 0
    found = snapshots(daemon.root)
    assert {source for source, _, _ in found} == set(shards)
    assert not list((daemon.root / "snapshots").glob("sources/*/*/*"))
    check(shards, daemon.root, tmp_path / "target", "public.t")


def test_existing_rows_at_the_beginning(shards: Shards, tmp_path: Path) -> None:
    """`snapshot.mode: initial`: rows of before the slots, of each source, and changes after them; over kills."""
    fill(shards)
    shards["east"].execute("CREATE TABLE public.keyless (a int)")
    shards["east"].execute("ALTER TABLE public.keyless REPLICA IDENTITY FULL")
    shards["east"].execute("INSERT INTO public.keyless SELECT i / 2 FROM generate_series(1, 9) i")
    for shard in shards.values():
        shard.create_slot()
    writers = Writers(shards)
    config = {"snapshot": {**_CHUNKED, "mode": "initial"}}
    with ShardsDaemon(shards, tmp_path, config=config) as daemon:
        for pause in (0.2, 0.7, 1.5):
            daemon.wait_for_state("streaming")
            time.sleep(pause)
            daemon.kill9()
            daemon.start()
        wait_until(lambda: len(snapshots(daemon.root)) >= len(shards) + 1, "all rows land")
        writers.finish()
        daemon.catch_up_all()
        assert daemon.stop() == 0
    check(shards, daemon.root, tmp_path / "target", "public.t", "public.keyless")


def test_a_table_that_is_gone_from_one_source(shards: Shards, tmp_path: Path) -> None:
    """Its rows there go, on request, and those of the other stay."""
    fill(shards, rows=50)
    for shard in shards.values():
        shard.create_slot()
    with ShardsDaemon(shards, tmp_path) as daemon:
        daemon.catch_up_all()
        assert asked(daemon, "--table", "public.t")[0] == EX_OK
        applied(daemon.root, tmp_path / "target")
        shards["west"].execute("DROP TABLE public.t")
        status, said = asked(daemon, "--table", "public.t", "--dropped", "--source", "east")
        assert status == EX_UNAVAILABLE
        assert "the server has a table of this name" in said
        status, said = asked(daemon, "--table", "public.t", "--dropped", "--source", "west")
        assert status == EX_OK, said
        status, said = asked(daemon, "--table", "public.t", "--source", "north")
        assert "north is none of east, west" in said
        shards["east"].execute("DELETE FROM public.t WHERE id > 7")
        daemon.catch_up_all()
        assert daemon.stop() == 0
    check(shards, daemon.root, tmp_path / "target", "public.t")


def test_some_rows_of_a_source(shards: Shards, tmp_path: Path) -> None:
    """Rows that a condition chose are put by their key, among those of their source alone."""
    fill(shards, rows=50)
    for shard in shards.values():
        shard.create_slot()
    with ShardsDaemon(shards, tmp_path) as daemon:
        daemon.catch_up_all()
        status, said = asked(
            daemon, "--table", "public.t", "--where", "id <= 50", "--source", "east"
        )
        assert status == EX_OK, said
        status, said = asked(daemon, "--table", "public.t", "--where", "id <= 50")
        assert status == EX_OK, said
        for shard in shards.values():
            shard.execute("UPDATE public.t SET v = 'u' WHERE id < 5")
        daemon.catch_up_all()
        assert daemon.stop() == 0
    assert [source for source, _, _ in snapshots(daemon.root)].count("east") == 2
    check(shards, daemon.root, tmp_path / "target", "public.t")


def test_all_tables_of_all_sources(shards: Shards, tmp_path: Path) -> None:
    """A landing that began without rows is switched by the command; only then the daemon may end by itself."""
    fill(shards, rows=50)
    shards["west"].execute("CREATE TABLE public.e (id int PRIMARY KEY)")
    for shard in shards.values():
        shard.create_slot()
    with ShardsDaemon(shards, tmp_path) as daemon:
        daemon.catch_up_all()
        status, said = asked(daemon, "--all")
        assert status == EX_OK, said
        assert sorted(line.split(" in entry ")[0] for line in said.splitlines()) == [
            "east/public.t: 50 rows",
            "west/public.e: 0 rows",
            "west/public.t: 50 rows",
        ]
        shards["east"].execute(
            "CREATE TABLE public.e (id int PRIMARY KEY); INSERT INTO e VALUES (4)"
        )
        daemon.write_config(snapshot={"mode": "only"})
        assert daemon.stop() == 0
        daemon.start()
        assert daemon.wait() == EX_OK
        daemon.write_config(snapshot={"mode": "none"})
        daemon.start()
        daemon.catch_up_all()
        assert daemon.stop() == 0
    check(shards, daemon.root, tmp_path / "target", "public.t", "public.e")


def test_a_request_that_names_no_source(shards: Shards, tmp_path: Path) -> None:
    """It is said, and passed over."""
    fill(shards, rows=5)
    for shard in shards.values():
        shard.create_slot()
    with ShardsDaemon(shards, tmp_path) as daemon:
        daemon.catch_up_all()
        files = Files(daemon.root)
        store = SnapshotStore(Disk(files, SpaceWait(), "test"))
        path = store.ask({"table": "public.t", "where": None})
        wait_until(lambda: f"{path}: names no source" in daemon.log_tail(), "it is said")
        assert store.is_asked(path)
        files.close()
        assert asked(daemon, "--table", "public.t")[0] == EX_OK
        assert daemon.stop() == 0
    assert len(snapshots(daemon.root)) == len(shards)
