"""What does applying changes cost beside doing it the simple way, in the same run?

A table of N rows with a key, an out-of-line text and some columns is landed and applied once;
then M random changes (updates, a tenth of them without the text, deletes, inserts) are landed
and brought into the table in four ways, each of which writes Parquet:

* ``apply``: `gaussdecode.spark.apply`, beside the buckets where few rows have changed;
* ``replay``: a window function over all changes since the beginning, the last row of each key;
* ``join``: the newest change of each key, full outer join with the table, written whole;
* ``hand``: as somebody who knows Spark would: the newest change of each key is broadcast, rows with
  such a key are left out, the new ones put beside them, with texts that were not sent from the table.

Seconds and CPU seconds (of this process, Spark's and its workers') of each, the best of several runs
(every run of ``apply`` takes new changes); ``ratio`` is the other's over apply's. ``files`` and
``bytes`` are what each wrote, ``touched`` the bytes of the landed changes. Then, with ``--small``, so
many applies of a hundred changes each follow, in this process without Spark. With ``--rows`` given
twice the growth of the table shows.

    python bench/spark_apply.py [--rows N ...] [--changes M ...] [--runs N] [--small N] [--out FILE]
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pyarrow as pa
from kit.history import START, LandingWriter, Table, describe
from kit.history import Column as KitColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.demo.java import provide_java
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import apply, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.query import current
from gaussdecode.spark.target.store import Target

NAMES = ("id", "doc", "a", "b", "c", "d")
FILE_ROWS = 250_000
POSITION = ("gd_epoch", "gd_lsn", "gd_seq")


def table() -> Table:
    """The table."""
    types = (pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.string(), pa.int64())
    columns = [
        KitColumn(i, name, of, toast=name == "doc")
        for i, (name, of) in enumerate(zip(NAMES, types, strict=True), 1)
    ]
    return Table("t", columns, (1,), full=False)


class Source:
    """Lands rows of the table in large files."""

    def __init__(self, root: Path, seed: int) -> None:
        self.writer = LandingWriter(root)
        self.table = table()
        self.rng = np.random.default_rng(seed)
        self.lsn = 0
        self.keys = 0
        self.alive = np.empty(0, dtype=np.int64)

    def land(self, ops: np.ndarray[Any, Any], keys: np.ndarray[Any, Any]) -> None:
        """Land one entry."""
        schema_id, files = self.writer.schema_id(self.table), []
        self.lsn += 1000
        for start in range(0, len(ops), FILE_ROWS):
            rows = self.rows(ops[start : start + FILE_ROWS], keys[start : start + FILE_ROWS], start)
            path = f"data/public.t/gd_date=2026-01-31/{self.writer.n:020d}-{start}.parquet"
            files.append(
                describe(self.writer.root, path, "public.t", schema_id, rows, group_rows=131072)
            )
        self.writer.entry(EntryKind.DATA, self.lsn, files, START)

    def rows(self, ops: np.ndarray[Any, Any], keys: np.ndarray[Any, Any], seq: int) -> pa.Table:
        """Some changes."""
        count, rng = len(ops), self.rng
        is_delete = ops == "D"
        unsent = (ops == "U") & (rng.random(count) < 0.1)
        schema = self.table.schema()
        old = pa.StructArray.from_arrays(
            [pa.array(keys)], fields=[pa.field("id", pa.int64())], mask=pa.array(~is_delete)
        )
        names = pa.array([["doc"] if out else None for out in unsent],
                         schema.field("gd_unchanged").type)  # fmt: skip
        words = np.array([f"word {i} of some text that compresses" for i in range(1000)])

        def column(values: Any, mask: Any = is_delete) -> pa.Array:
            return pa.array(values, mask=mask)

        content = {
            "gd_op": pa.array(ops), "gd_epoch": pa.array(np.zeros(count, dtype=np.int32)),
            "gd_lsn": pa.array(np.full(count, self.lsn)),
            "gd_seq": pa.array(np.arange(seq, seq + count)),
            "gd_csn": pa.nulls(count, pa.int64()), "gd_xid": pa.array(np.full(count, self.lsn)),
            "gd_ts": pa.array(np.full(count, 1_770_000_000_000_000)).cast(
                pa.timestamp("us", tz="UTC")),
            "gd_unchanged": names, "gd_old": old,
            "gd_raw": pa.nulls(count, schema.field("gd_raw").type),
            "id": column(keys), "doc": column(words[rng.integers(0, 1000, count)],
                                              is_delete | unsent),
            "a": column(rng.integers(0, 1 << 30, count).astype(np.int32)),
            "b": column(rng.random(count)), "c": column(words[rng.integers(0, 1000, count)]),
            "d": column(rng.integers(0, 1 << 60, count)),
        }  # fmt: skip
        return pa.table([content[name] for name in schema.names], schema=schema)

    def insert(self, count: int) -> None:
        """Land new rows."""
        self.land(np.full(count, "I"), self.fresh(count))

    def fresh(self, count: int) -> np.ndarray[Any, Any]:
        """New keys."""
        found = np.arange(self.keys, self.keys + count)
        self.keys += count
        self.alive = np.concatenate([self.alive, found])
        return found

    def change(self, count: int) -> None:
        """Land random changes of rows that are there: eight updates to one delete and one insert."""
        ops = self.rng.choice(["U", "D", "I"], count, p=[0.8, 0.1, 0.1])
        keys = np.empty(count, dtype=np.int64)
        gone = self.rng.choice(self.alive, int((ops == "D").sum()), replace=False)
        self.alive = np.setdiff1d(self.alive, gone, assume_unique=True)
        keys[ops == "D"] = gone
        keys[ops == "U"] = self.rng.choice(self.alive, int((ops == "U").sum()))
        keys[ops == "I"] = self.fresh(int((ops == "I").sum()))
        self.land(ops, keys)


def all_changes(spark: SparkSession, root: Path, first: int) -> DataFrame:
    """Landed rows from an entry on, with the key of deletes in its column."""
    landing = Landing(root)
    paths = [
        str(root / file.path)
        for entry in landing.entries(first, landing.last_n)
        for file in entry.files
    ]
    key = F.coalesce("id", F.col("gd_old.id")).alias("id")
    rest = [name for name in NAMES if name != "id"]
    return spark.read.parquet(*paths).select("gd_op", *POSITION, "gd_unchanged", key, *rest)


def replay(spark: SparkSession, root: Path, out: Path) -> None:
    """The last row of each key over all changes; texts that were not sent from before."""
    rows = all_changes(spark, root, 0)
    by_key = Window.partitionBy("id").orderBy(*POSITION)
    sent = F.when(F.col("gd_unchanged").isNull(), F.struct("doc"))
    filled = F.last(sent, ignorenulls=True).over(by_key)["doc"]
    is_last = F.lead("gd_op").over(by_key).isNull()
    found = rows.withColumn("doc", filled).withColumn("is_last", is_last)
    found.where("is_last and gd_op <> 'D'").select(*NAMES).write.parquet(str(out))


def join(spark: SparkSession, root: Path, base: DataFrame, first: int, out: Path) -> None:
    """The newest change of each key, full outer join with the table."""
    rest = [name for name in NAMES if name not in {"id", "doc"}]
    everything = F.struct(*POSITION, "gd_op", *rest)
    sent = F.struct(*POSITION, "doc")
    is_sent = (F.col("gd_op") != "D") & F.col("gd_unchanged").isNull()
    changed = (
        all_changes(spark, root, first).groupBy("id")
        .agg(F.max(everything).alias("x"), F.max(F.when(is_sent, sent)).alias("y"))
    )  # fmt: skip
    both = base.select(*NAMES).alias("t").join(changed.alias("s"), "id", "full_outer")
    is_changed = F.col("x").isNotNull()
    columns = [
        "id",
        F.when(F.col("y").isNotNull(), F.col("y.doc")).otherwise(F.col("t.doc")).alias("doc"),
        *[
            F.when(is_changed, F.col(f"x.{name}")).otherwise(F.col(f"t.{name}")).alias(name)
            for name in rest
        ],
    ]
    kept = both.where("x is null or x.gd_op <> 'D'")
    kept.select(*columns).write.parquet(str(out))


def hand(spark: SparkSession, root: Path, base: DataFrame, first: int, out: Path) -> None:
    """The newest change of each key broadcast; the table without these keys, and the new rows."""
    rest = [name for name in NAMES if name not in {"id", "doc"}]
    everything = F.struct(*POSITION, "gd_op", *rest)
    sent = F.struct(*POSITION, "doc")
    is_sent = (F.col("gd_op") != "D") & F.col("gd_unchanged").isNull()
    changed = (
        all_changes(spark, root, first).groupBy("id")
        .agg(F.max(everything).alias("x"), F.max(F.when(is_sent, sent)).alias("y"))
        .localCheckpoint()
    )  # fmt: skip
    kept = base.select(*NAMES).join(F.broadcast(changed.select("id")), "id", "left_anti")
    put = changed.where("x.gd_op <> 'D'")
    unsent = F.broadcast(put.where("y is null").select("id"))
    texts = base.select("id", "doc").join(unsent, "id", "left_semi")
    new = put.join(F.broadcast(texts), "id", "left").select(
        "id",
        F.when(F.col("y").isNotNull(), F.col("y.doc")).otherwise(F.col("doc")).alias("doc"),
        *[F.col(f"x.{name}").alias(name) for name in rest],
    )
    kept.select(*NAMES).unionByName(new).write.parquet(str(out))


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds it takes, and CPU seconds."""
    begun, used = time.perf_counter(), cpu_seconds()
    run()
    return time.perf_counter() - begun, cpu_seconds() - used


_used: dict[int, int] = {}
"""Clock ticks of each process that was seen: what ends takes its own time with it."""


def cpu_seconds() -> float:
    """What this process and all that it started have used, those that were seen and ended included."""
    times: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            times[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in times.items() if parent in ours} - ours:
        ours |= more
    _used.update({pid: times[pid][1] for pid in ours if pid in times})
    return sum(_used.values()) / os.sysconf("SC_CLK_TCK")


def written(directory: Path, since: set[Path]) -> tuple[int, int]:
    """Files below a directory that were not there, and their bytes."""
    found = [path for path in directory.rglob("*") if path.is_file() and path not in since]
    return len(found), sum(path.stat().st_size for path in found)


def checksum(frame: DataFrame) -> tuple[Any, ...]:
    """Rows and sums, to see that all ways give the same."""
    row = frame.agg(F.count("*"), F.sum(F.xxhash64(*NAMES).cast("decimal(38,0)"))).collect()[0]
    return tuple(row)


def measure(
    spark: SparkSession, rows: int, sizes: list[int], runs: int, small: int, where: Path
) -> list[dict[str, Any]]:
    """One size of table, and several of changes."""
    source = Source(where / "landing", 1)
    source.insert(rows)
    target = where / "target"
    first = timed(lambda: apply(spark, where / "landing", target))
    points = [{"rows": rows, "first_apply": rounded(first)}]
    for changes in sizes:
        points.append({"rows": rows, **changed(spark, source, changes, runs, where)})
        print(json.dumps(points[-1]), flush=True)
    if small:
        points.append({"rows": rows, **small_applies(source, small, where)})
        print(json.dumps(points[-1]), flush=True)
    return points


def changed(
    spark: SparkSession, source: Source, changes: int, runs: int, where: Path
) -> dict[str, Any]:
    """One size of changes, in all ways."""
    target = where / "target"
    best: dict[str, tuple[float, float]] = {}
    facts: dict[str, tuple[int, int]] = {}
    for run in range(runs):
        entry = source.writer.n
        base = current(spark, target, "public.t")
        source.change(changes)
        outs = {name: where / f"{name}{changes}-{run}" for name in ("replay", "join", "hand")}
        ways: dict[str, Callable[[], object]] = {
            "replay": lambda outs=outs: replay(spark, where / "landing", outs["replay"]),
            "join": lambda outs=outs, base=base, entry=entry: join(
                spark, where / "landing", base, entry, outs["join"]),
            "hand": lambda outs=outs, base=base, entry=entry: hand(
                spark, where / "landing", base, entry, outs["hand"]),
            "apply": lambda: apply(spark, where / "landing", target),
        }  # fmt: skip
        for name, way in ways.items():
            before = set(target.rglob("*"))
            best[name] = min(best.get(name, (1e9, 1e9)), timed(way))
            facts[name] = written(outs.get(name, target), before)
        sums = {checksum(spark.read.parquet(str(out))) for out in outs.values()}
        assert sums == {checksum(current(spark, target, "public.t"))}, "the results differ"
        for out in outs.values():
            shutil.rmtree(out)
    landing = Landing(where / "landing")
    return {
        "changes": changes,
        "seconds": {name: round(value[0], 2) for name, value in best.items()},
        "cpu_seconds": {name: round(value[1], 2) for name, value in best.items()},
        "ratio": {n: round(best[n][1] / best["apply"][1], 2) for n in best if n != "apply"},
        "files": {name: value[0] for name, value in facts.items()},
        "bytes": {name: value[1] for name, value in facts.items()},
        "touched": sum(file.bytes for file in landing.entry(landing.last_n).files),
    }


def small_applies(source: Source, count: int, where: Path) -> dict[str, Any]:
    """Many applies of a hundred changes each, one after the other, without Spark."""
    target = where / "target"
    before, took = set(target.rglob("*")), (0.0, 0.0)
    for _ in range(count):
        source.change(100)
        one = timed(lambda: apply_with(LocalEngine(), where / "landing", target))
        took = took[0] + one[0], took[1] + one[1]
    files, size = written(target, before)
    version = Target(target).newest("public.t")
    assert version is not None
    return {
        "small_applies": count, "changes": 100, "took": rounded(took), "files": files,
        "bytes": size, "files_of_newest": len(version.paths),
    }  # fmt: skip


def rounded(took: tuple[float, float]) -> dict[str, float]:
    """Seconds and CPU seconds."""
    return {"seconds": round(took[0], 2), "cpu_seconds": round(took[1], 2)}


def session(scratch: Path, more: Mapping[str, str] | None = None) -> SparkSession:
    """A local Spark on all cores, with more settings."""
    os.environ["JAVA_HOME"] = str(provide_java(scratch))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false", "spark.driver.memory": "4g", "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * cores), "spark.local.dir": str(scratch),
        **(more or {}),
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Measure all sizes asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--changes", type=int, nargs="+", default=[2_000, 200_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--small", type=int, default=100)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(Path(scratch))
        for rows in args.rows:
            where = Path(scratch, str(rows))
            where.mkdir()
            results += measure(spark, rows, args.changes, args.runs, args.small, where)
        spark.stop()
    corpus.write_result(
        args.out,
        {"bench": "spark_apply", "runs": args.runs, "points": results, "machine": corpus.machine()},
    )


if __name__ == "__main__":
    main()
