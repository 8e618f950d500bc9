"""Existing rows loaded by tasks that read the source, while it changes; and the way on from there."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kit import canon, oracle
from kit.daemon import Daemon, wait_until
from kit.dying import Killed, die_at
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussserver import GaussServer
from kit.gaussstore import Table
from kit.gaussworkload import Workload as GaussWorkload
from kit.oracle import Cell, TableState
from kit.postgres import Database
from kit.s3 import S3
from kit.workload import Workload

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.model.title import table_title
from gaussdecode.snapshot import initial, ranges
from gaussdecode.spark.log.place import Given
from gaussdecode.spark.target import durable, store, table_log
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.failpoint import VARIABLE, Step
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.integration, pytest.mark.spark]
MakeDaemon = Callable[..., Daemon]
Config = dict[str, dict[str, Any]]  # Any: YAML
_CONFIG = {"snapshot": {"mode": "none", "chunk-bytes": "64KiB"}}
_TABLES = """
CREATE TABLE public.skewed (id int8 PRIMARY KEY, v text, big text);
ALTER TABLE public.skewed ALTER big SET STORAGE EXTERNAL;
INSERT INTO public.skewed SELECT CASE WHEN g < 2900 THEN g ELSE g * 1000000007::int8 END, 'v' || g,
  CASE WHEN g % 50 = 0 THEN repeat('x', 3000) END FROM generate_series(1, 3000) g;
CREATE SCHEMA "a ""b";
CREATE TABLE "a ""b"."Ünï.cöde 🚀" ("A.b" text COLLATE "C", "select" int4, v numeric,
  PRIMARY KEY ("A.b", "select"));
INSERT INTO "a ""b"."Ünï.cöde 🚀" SELECT 'it''s, "' || g % 7, g, g * 1.5
  FROM generate_series(1, 2500) g;
CREATE TABLE public.bag (x int4, v text); ALTER TABLE public.bag REPLICA IDENTITY FULL;
INSERT INTO public.bag SELECT g % 5, repeat('y', 40) FROM generate_series(1, 2000) g;
CREATE TABLE public.none_yet (id int4 PRIMARY KEY);
"""
# Rows that were read change, go, come, and move to another page; large values are not sent again.
_CHANGES = """
UPDATE skewed SET v = v || '!' WHERE id % 50 = 0;
DELETE FROM skewed WHERE id % 97 = 0;
UPDATE skewed SET id = -id WHERE id % 150 = 0;
INSERT INTO skewed VALUES (0, 'new', 'x');
UPDATE "a ""b"."Ünï.cöde 🚀" SET v = -v WHERE "select" % 9 = 0;
UPDATE bag SET x = 9 WHERE ctid < '(3,0)';
"""


def command(*arguments: str, failpoint: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    if failpoint is not None:
        environment[VARIABLE] = failpoint
    return subprocess.run(
        [sys.executable, "-m", "gaussdecode", *arguments],
        check=False, capture_output=True, text=True, env=environment,
    )  # fmt: skip


def loaded(target: Given, title: str) -> TableState:
    """A table of the target, as the oracle compares it."""
    held = Target(target)
    database = held.database()
    assert database is not None
    table = held.find_table(title)
    version = held.version(table, database.tables[table])
    schema = held.schema(table, version.schema_id)
    state = TableState()
    types = schema.arrow()
    true = {column.name: column.true_name for column in schema.columns}
    state.types = {true[name]: types.field(name).type for name in schema.names}
    state.key = tuple(true[name] for name in schema.key) or None
    bag: Counter[tuple[tuple[str, canon.Canon], ...]] = Counter()
    for file in version.current:
        for row in current_rows(held.table_root(table), file).to_pylist():
            raw = dict(row["gd_raw"] or ())
            cells = {
                true[n]: Cell(row.get(n), raw.get(n), types.field(n).type) for n in schema.names
            }
            filled = {n: c for n, c in cells.items() if c.value is not None or c.raw is not None}
            if state.key:
                state.keyed[tuple(cells[n].canon for n in state.key)] = filled
            else:
                bag[tuple(sorted((n, c.canon) for n, c in filled.items()))] += 1
    state.bag = bag
    return state


def kill_at(step: Step, count: int, patch: pytest.MonkeyPatch) -> None:
    """End a run in this process when a step is reached for the count-th time."""
    reach = die_at(step, count)
    for module in (ranges, initial, durable, store, table_log):
        patch.setattr(module, "reach", reach)


@pytest.mark.timeout(600)
def test_load_that_is_killed_at_every_turn_is_exact(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The command dies at every step and is run again, while rows of every type change."""
    workload = Workload(database_15, 17, hidden_ddl=False)
    workload.create()
    workload.run(20)
    database_15.execute(_TABLES)
    # The table that is read last is large: the first kill falls among its ranges.
    database_15.execute("INSERT INTO skewed SELECT g, 'w' FROM generate_series(10001, 40000) g")
    database_15.create_slot()
    target = tmp_path / "target"
    with make_daemon(database_15, config=_CONFIG) as daemon:
        daemon.catch_up()
        load = ["spark", "snapshot", str(daemon.config_path), str(target), "--local"]
        apply = ["spark", "apply", str(daemon.root), str(target), "--local"]
        workload.start(50, pause=0.2)
        killed = command(*load, failpoint="range_read:30")  # some are left to be finished
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert main(apply) == EX_CONFIG
        assert "not all loaded" in capsys.readouterr().err
        database_15.execute(_CHANGES)
        for step, count in ((Step.RANGE_FINISHED, 1), (Step.MANIFEST_DURABLE, 4),
                            (Step.TABLES_LOADED, 1)):  # fmt: skip
            with monkeypatch.context() as patch:
                kill_at(step, count, patch)
                with pytest.raises(Killed):
                    main(load)
            database_15.execute("UPDATE skewed SET v = v || '?' WHERE id % 60 = 0")
        assert main(load) == EX_OK
        assert not (target / "load").exists()
        workload.finish(stop=False)
        daemon.catch_up()
        assert main(load) == EX_OK
        assert "nothing to load" in capsys.readouterr().out
        assert main(apply) == EX_OK
        check(daemon, target, capsys)
        assert daemon.stop() == 0


@pytest.mark.timeout(400)
def test_executors_that_die_read_what_is_left(
    database_15: Database, make_daemon: MakeDaemon, s3: S3, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's tasks go on where those before them died, on another host than the daemon's.

    They know the landing by its mirror and load into a store; rows change while they read. There are
    never more connections, and never more bytes a second, than was said.
    """
    database_15.execute(_TABLES)
    database_15.create_slot()
    bucket = s3.bucket()
    target, landing = s3.url(bucket, "target"), s3.url(bucket, "landing")
    with make_daemon(database_15, config=s3.mirrored(_CONFIG, bucket)) as daemon:
        daemon.catch_up()
        size = size_of(database_15, "skewed", '"a ""b"."Ünï.cöde 🚀"', "bag")
        load = ["spark", "snapshot", str(daemon.config_path), target, "--landing", landing]
        load += ["--connections", "2", "--rate", f"{size // 5}B", "--master", "local[4,40]"]
        with database_15.connect() as session, ThreadPoolExecutor(2) as pool:
            died = pool.submit(command, *load, failpoint="range_read:4")
            readers = pool.submit(most_readers, session, died.done)
            daemon.wait_while_running(lambda: has_range(s3, bucket), "a range")
            begun = time.monotonic()
            database_15.execute(_CHANGES)
            database_15.execute("TRUNCATE none_yet; INSERT INTO none_yet VALUES (1)")
        done = died.result()
        assert done.returncode == EX_OK, done.stdout + done.stderr
        assert readers.result() in {1, 2}
        # Of five seconds, those for other ranges than the first.
        assert time.monotonic() - begun > 2.5
        assert not any(path.startswith("target/load/") for path in s3.objects(bucket))
        daemon.catch_up()
        assert main(["spark", "apply", str(daemon.root), target, "--local"]) == EX_OK
        check(daemon, target, capsys)
        assert daemon.stop() == 0


@pytest.mark.timeout(300)
def test_load_of_gaussdb_stands_where_its_stream_says(
    make_gauss: Callable[..., GaussServer], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Rows of every type join the stream by the CSN of a view, though commit records come late.

    The command dies before and after that, and changes go on.
    """
    gauss = make_gauss()
    workload = GaussWorkload(gauss.store, 5, large=False)
    workload.run(25)
    config: Config = {"decoding": {"parallel-decode-num": 2, "decode-style": "b"}, **_CONFIG}
    target = tmp_path / "target"
    with GaussDaemon(GaussDatabase(gauss), tmp_path, config=config) as daemon:
        workload.run(10)
        daemon.catch_up()
        load = ["spark", "snapshot", str(daemon.config_path), str(target), "--local"]
        for step, count in ((Step.RANGE_READ, 3), (Step.MANIFEST_DURABLE, 6)):
            with monkeypatch.context() as patch:
                kill_at(step, count, patch)
                with pytest.raises(Killed):
                    main(load)
        columns = {"id": "int8", "v": "text"}
        orders = gauss.store.create_table("public", "orders", columns, key=["id"])
        put(gauss, orders, 1, 2)
        late = gauss.store.begin()
        late.insert(orders, {"id": "3", "v": "late"})
        late.draw_csn()
        put(gauss, orders, 4)
        workload.run(3)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(main, load)
            wait_until(lambda: gauss.store.waiting > 0 or done.done(), "a reader that waits")
            put(gauss, orders, 5)
            late.commit()
            workload.run(10)
            assert done.result() == EX_OK, capsys.readouterr().err
        assert "another order" in capsys.readouterr().out
        workload.run(5)
        daemon.catch_up()
        apply = ["spark", "apply", str(daemon.root), str(target), "--local"]
        # kit.shape is altered; in parallel decoding nobody may know when, so that it stands still.
        assert main([*apply, "--accept-hidden-truncates"]) in (EX_OK, EX_CONFIG)
        for where, table in gauss.store.tables.items():
            if where == ("kit", "shape"):
                continue
            rows = [table.row(values) for values in gauss.store.contents(table).values()]
            texts = [
                {n: v.decode("latin-1") if isinstance(v, bytes) else v for n, v in row.items()}
                for row in rows
            ]
            oracle.compare(where, loaded(target, table_title(*where)), texts)
        check_gaussdb(daemon, gauss, workload, target, capsys)
        wait_until(lambda: not gauss.snapshots, "no view is left behind")
        assert not gauss.unknown_queries
        assert daemon.stop() == 0


def check_gaussdb(
    daemon: GaussDaemon, gauss: GaussServer, workload: GaussWorkload, target: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The target is the source at one position, as `verify` says, with changes not applied yet."""
    workload.run(5)
    verify = ["spark", "verify", str(daemon.root), str(target), "--config", str(daemon.config_path)]
    capsys.readouterr()
    main([*verify, "--local", "--json"])
    said = capsys.readouterr()
    assert said.out, said.err
    found = {of["table"]: of for of in json.loads(said.out)["tables"]}
    assert len(found) == len(gauss.store.tables), said.err
    for title, of in found.items():
        is_still = title == "kit.shape"
        assert (of["why_not"] is not None, of["different_ranges"]) == (is_still, 0), of


def put(gauss: GaussServer, table: Table, *ids: int) -> None:
    """Insert rows in one transaction."""
    transaction = gauss.store.begin()
    for number in ids:
        transaction.insert(table, {"id": str(number), "v": f"value\t{number}\\"})
    transaction.commit()


def size_of(database: Database, *tables: str) -> int:
    """Bytes of tables' rows as text, about."""
    sums = (f"(SELECT sum(octet_length(t::text)) FROM {table} t)" for table in tables)
    ((size,),) = database.execute(f"SELECT {' + '.join(sums)}")
    return int(size)


def most_readers(session: psycopg.Connection[tuple[Any, ...]], is_over: Callable[[], bool]) -> int:
    """The most connections that copied rows at the same time."""
    most = 0
    while not is_over():
        asked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY %'"
        most = max(most, session.execute(asked).fetchall()[0][0])
        time.sleep(0.02)
    return most


def has_range(s3: S3, bucket: str) -> bool:
    """Whether a range has been read."""
    return any(path.startswith("target/load/data/") for path in s3.objects(bucket))


def check(daemon: Daemon, target: Given, capsys: pytest.CaptureFixture[str]) -> None:
    """The target is the source: as `verify` says, and as the oracle does."""
    database = daemon.database
    dsn = f"{database.dsn} sslmode=disable"
    verify = ["spark", "verify", str(daemon.root), str(target), "--dsn", dsn, "--local"]
    assert main([*verify, "--allow-insecure"]) == EX_OK, capsys.readouterr().out
    with database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for table in oracle.source_tables(session):
            rows = oracle.source_rows(session, table)
            oracle.compare(table, loaded(target, table_title(*table)), rows)
