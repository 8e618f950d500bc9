"""Do random histories of a real server end as the same rows in every format of the lake?

For each seed: a database of its own, sessions that change it at random (all types, columns that come
and go, truncates, keys that change, transactions that are large, prepared or rolled back), and a daemon that
meanwhile is left alone, stopped, killed, or has its connection cut, round by round. After each round two
targets are brought up to the landing: of Delta Lake, with a few tables, by Spark, with deletion vectors now
and then; and of Iceberg, with all tables, by this process, in a catalog that pyiceberg keeps in a file of
SQLite. `gaussdecode spark verify` compares their tables with the server. What each snapshot in the catalog
shows to pyiceberg, of histories and changelogs too, is compared with the files of the same version of the
Delta table. Most of the time of a seed is that of verify, some 8 s each.

A seed that differs, or fails, is told and the next one runs; the exit status is 1 then. A table that
stopped, and what verify does not compare, are counted by their reason, snapshots as ``snapshots``. Needs no
jars:

    python bench/lakesoak.py [--seeds N] [--first N] [--rounds N] [--tables N] [--seconds N] [--out FILE]
"""

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import corpus
import pytest
from kit import oracle
from kit.daemon import Daemon, Keeper
from kit.icebergcatalog import in_a_file
from kit.postgres import Database, Postgres
from kit.proxy import Proxy
from kit.workload import Workload, prepare
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from spark_apply import session
from sparkverify import verify

from gaussdecode.errors import GaussDecodeError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.place import read_table
from gaussdecode.spark.merge.engine import LocalEngine, SparkEngine
from gaussdecode.spark.target.delta_log import DeltaLog, path_of
from gaussdecode.spark.target.formats import DELTA, FORMATS, ICEBERG
from gaussdecode.spark.target.store import Target

_TRANSACTIONS: Final = 40  # a round; arbitrary
_SPACE: Final = "cdc"
_SMALL: Final = {  # planning anew and compiling take longer than these few rows
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


class Life:
    """One database with its daemon, and what happens to it."""

    def __init__(self, database: Database, root: Path, way: Proxy, seed: int) -> None:
        self._rng = Random(seed)
        self._way = way
        self._workload: Workload = prepare(database, seed)
        dsn = database.dsn.replace(f"port={database.server.port}", f"port={way.port}")
        root.mkdir()
        self.daemon = Daemon(database, root, dsn=dsn)
        self._keeper = Keeper(self.daemon)
        self._keeper.keep()

    def round(self) -> str:
        """Change the database while something happens; gives what."""
        happens: Callable[[], None] = self._rng.choice(
            (self._nothing, self._stop, self._kill, self._cut)
        )
        happens()
        self._keeper.catch_up()
        return happens.__name__.strip("_")

    def _nothing(self) -> None:
        self._workload.run(_TRANSACTIONS)

    def _stop(self) -> None:
        self.daemon.stop()
        self._workload.run(_TRANSACTIONS)

    def _kill(self) -> None:
        self._workload.start(pause=0.01)
        for _ in range(2):
            time.sleep(self._rng.uniform(0.05, 1.5))
            self.daemon.kill9()
            self._keeper.keep()
        self._workload.finish()

    def _cut(self) -> None:
        self._workload.start(pause=0.01)
        for _ in range(6):
            time.sleep(self._rng.uniform(0.05, 0.4))
            self._way.cut_all()
            self._keeper.keep()
        self._workload.finish()


def run(
    spark: SparkSession, server: Postgres, seed: int, rounds: int, count: int, where: Path
) -> dict[str, Any]:
    """One seed."""
    rng = Random(seed)
    database = Database(server, f"lake{seed}")
    found: dict[str, Counter[str]] = {kind: Counter() for kind in FORMATS}
    happened: list[str] = []
    chosen: list[str] = []
    with Proxy(server.port) as way, pytest.MonkeyPatch.context() as patch:
        catalog = in_a_file(patch, where)
        life = Life(database, where / "daemon", way, seed)
        root = life.daemon.root
        try:
            for _ in range(rounds):
                happened.append(life.round())
                if not chosen:
                    known = sorted(Landing(root).tables().values())
                    chosen = sorted(rng.sample(known, min(count, len(known))))
                history, vectors = rng.random() < 0.5, rng.random() < 0.5
                options = Options(history=history, vectors=vectors, tables=chosen)
                apply_with(SparkEngine(spark), root, where / DELTA, options)
                # One of which nothing has landed yet but its schema is no table of the target.
                held = [table for table in chosen if table in Target(where / DELTA).tables()]
                if held:
                    found[DELTA] += verify(life.daemon, where / DELTA, held, is_local=False)
                options = Options(
                    history=rng.random() < 0.5,
                    changelog="gd_commit_date" if rng.random() < 0.5 else None,
                    format=ICEBERG,
                    catalog=f"lake.{_SPACE}",
                )
                apply_with(LocalEngine(), root, where / ICEBERG, options)
                found[ICEBERG] += verify(life.daemon, where / ICEBERG)
                found[ICEBERG]["snapshots"] += check_snapshots(catalog)
        finally:
            life.daemon.stop()
        oracle.check(root, database)
    database.drop()
    return {"seed": seed, "happened": happened, "chosen": chosen, "tables": found}


def check_snapshots(catalog: Catalog) -> int:
    """Compare each tagged snapshot of a catalog with its version of the Delta table; gives how many there are.

    Raises:
        AssertionError: they differ, or a table shows another snapshot than that of its newest version.
    """
    checked = 0
    for name in catalog.list_tables(_SPACE):
        table = catalog.load_table(name)
        log = DeltaLog(Path(table.location().removeprefix("file://")))
        snapshots = {tag: ref.snapshot_id for tag, ref in table.refs().items()}
        shown = snapshots.pop("main")
        assert shown == snapshots[f"v{log.newest()}"], name
        for tag, snapshot in snapshots.items():
            found = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
            in_order = sorted(repr(sorted(row.items())) for row in found)
            assert in_order == rows_of(log, int(tag[1:])), (name, tag)
            checked += 1
    return checked


def rows_of(log: DeltaLog, version: int) -> list[str]:
    """Rows of the files that a version of a Delta table has, each with the table's columns by their names."""
    snapshot, found = log.snapshot(version), []
    names = {field["name"] for field in json.loads(snapshot.metadata["schemaString"])["fields"]}
    for add in snapshot.adds.values():
        days = {
            name: None if of is None else dt.date.fromisoformat(of)
            for name, of in add["partitionValues"].items()
        }
        for row in read_table(log.root / path_of(add)).to_pylist():
            known = {name: row.get(name) for name in names} | days
            found.append(repr(sorted(known.items())))
    return sorted(found)


def main() -> int:
    """Run all seeds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tables", type=int, default=3, help="of the target by Spark")
    parser.add_argument("--seconds", type=float, default=86400.0, help="none begins later")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results, failed = [], []
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in FORMATS}
    ends = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as name, Postgres(16) as server:
        spark = session(Path(name), {**_SMALL, "spark.sql.warehouse.dir": f"{name}/warehouse"})
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            began = time.monotonic()
            if began > ends:
                break
            try:
                with tempfile.TemporaryDirectory(dir=name) as where:
                    one = (arguments.rounds, arguments.tables, Path(where))
                    results.append(run(spark, server, seed, *one))
            except (AssertionError, GaussDecodeError) as error:
                failed.append(seed)
                print(f"seed {seed} FAILED: {error}", flush=True)
                continue
            for kind, of in results[-1]["tables"].items():
                totals[kind] += of
            seconds = time.monotonic() - began
            print(f"seed {seed}: {' '.join(results[-1]['happened'])}, {seconds:.0f} s", flush=True)
        spark.stop()
    for kind, of in totals.items():
        print(kind, dict(of))
    print(f"{len(results)} seeds are equal; failed: {failed or 'none'}")
    corpus.write_result(
        arguments.out,
        {
            "bench": "lakesoak",
            "totals": totals,
            "seeds": results,
            "failed": failed,
            "machine": corpus.machine(),
        },
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
