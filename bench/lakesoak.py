"""Do random histories of a real server end as the same rows in every format of the lake?

For each seed: a database of its own, sessions that change it at random (all types, columns that come
and go, truncates, keys that change, transactions that are large, prepared or rolled back), and a daemon that
meanwhile is left alone, stopped, killed, or has its connection cut, round by round. After each round a
target of Parquet, with all tables, and one of Delta Lake or Iceberg, by turns, with a few of
them, are brought up to the landing, and `gaussdecode spark verify` compares their tables with the server.
What a seed costs is tables of a lake times rounds: a MERGE and its comparison are seconds of Spark, all
else is one.

A seed that differs, or fails, is told and the next one runs; the exit status is 1 then. A table that
stopped, and what verify does not compare, are counted by their reason. Needs Spark 4.0 with the jars:

    PYTHONPATH=.venv/pyspark-4.0 python bench/lakesoak.py [--seeds N] [--first N] [--rounds N] [--tables N]
        [--seconds N] [--out FILE]
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import corpus
from kit import oracle
from kit.daemon import Daemon, Keeper
from kit.jars import jars
from kit.postgres import Database, Postgres
from kit.proxy import Proxy
from kit.workload import Workload, prepare
from pyspark.sql import SparkSession
from spark_apply import session
from sparkverify import verify

from gaussdecode.errors import GaussDecodeError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.engine import LocalEngine, SparkEngine
from gaussdecode.spark.formats import DELTA, FORMATS, ICEBERG, settings
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.store import Target

_TRANSACTIONS: Final = 40  # a round; arbitrary
_SMALL: Final = {  # planning anew and compiling take longer than these few rows
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
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
    lake = ICEBERG
    found: dict[str, Counter[str]] = {kind: Counter() for kind in (DELTA, lake)}
    happened: list[str] = []
    chosen: list[str] = []
    with Proxy(server.port) as way:
        life = Life(database, where / "daemon", way, seed)
        root = life.daemon.root
        try:
            for _ in range(rounds):
                happened.append(life.round())
                if not chosen:
                    known = sorted(Landing(root).tables().values())
                    chosen = sorted(rng.sample(known, min(count, len(known))))
                options = Options(history=rng.random() < 0.5)
                apply_with(LocalEngine(), root, where / DELTA, options)
                found[DELTA] += verify(life.daemon, where / DELTA)
                options = Options(history=rng.random() < 0.5, format=lake, tables=chosen)
                apply_with(SparkEngine(spark), root, where / lake, options)
                # One of which nothing has landed yet but its schema is no table of the target.
                held = [table for table in chosen if table in Target(where / lake).tables()]
                if held:
                    found[lake] += verify(life.daemon, where / lake, held, is_local=False)
        finally:
            life.daemon.stop()
        oracle.check(root, database)
    database.drop()
    return {"seed": seed, "happened": happened, "chosen": chosen, "tables": found}


def main() -> int:
    """Run all seeds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tables", type=int, default=3, help="of a lake")
    parser.add_argument("--seconds", type=float, default=86400.0, help="none begins later")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results, failed = [], []
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in FORMATS}
    ends = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as name, Postgres(16) as server:
        classes = {"spark.driver.extraClassPath": ":".join(map(str, jars()))}
        spark = session(Path(name), {**settings(DELTA), **_SMALL, **classes})
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
