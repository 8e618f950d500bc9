"""What does an apply into Delta Lake or Iceberg cost beside a MERGE that is written by hand?

A table of N rows with a key, an out-of-line text and some columns is landed and brought into
three tables of a format, two by `gaussdecode`, one by hand. Then M random changes (updates, a
tenth of them without the text, deletes, inserts) are landed and brought into all of them:

* ``apply``: `gaussdecode.spark.apply` with this session, with deletion vectors in Delta Lake, and with
  the commit to a catalog of Iceberg, which pyiceberg keeps in a file of SQLite;
* ``local``: the same in this process, as by ``spark apply --local``;
* ``merge``: the newest change of each key by a window function, then MERGE on the key in Spark, with
  the text that was not sent from the row that is there, into a table that has the table's own
  columns only, and that writes deletion vectors or merges on read. Iceberg's is in a Hadoop catalog.

``cpu`` is the CPU time of the driver, its JVM and its Python workers, the least of several runs,
each with new changes; ``ratio`` is that of each way over merge's. With ``--small`` a hundred applies
of a hundred changes each are measured instead, in this process. Needs Spark 4.0 with the jars:

    PYTHONPATH=.venv/pyspark-4.0 python bench/lake_apply.py [--kind K ...] [--rows N ...]
        [--changes M ...] [--near] [--small] [--runs N] [--out FILE]
"""

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import corpus
import numpy as np
import pyarrow as pa
import pytest
from kit.history import START, LandingWriter, Table, describe
from kit.history import Column as KitColumn
from kit.icebergcatalog import in_a_file
from kit.jars import jars
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.demo.java import provide_java
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import Engine, LocalEngine, SparkEngine
from gaussdecode.spark.query import current
from gaussdecode.spark.target.formats import DELTA, ICEBERG, settings

NAMES: Final = ("id", "doc", "a", "b", "c", "d")
_FILE_ROWS: Final = 250_000
_POSITION: Final = ("gd_epoch", "gd_lsn", "gd_seq")
_CATALOG: Final = "lake"  # of `in_a_file`
_PROPERTIES: Final = {
    DELTA: "'delta.enableDeletionVectors' = 'true'",
    ICEBERG: "'format-version' = '2', 'write.merge.mode' = 'merge-on-read', "
    "'write.update.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read'",
}


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
        for start in range(0, len(ops), _FILE_ROWS):
            rows = self.rows(
                ops[start : start + _FILE_ROWS], keys[start : start + _FILE_ROWS], start
            )
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
            "gd_change_lsn": pa.nulls(count, pa.int64()), "gd_unchanged": names, "gd_old": old,
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
    return spark.read.parquet(*paths).select("gd_op", *_POSITION, "gd_unchanged", key, *rest)


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


def checksum(frame: DataFrame) -> tuple[Any, ...]:
    """Rows and sums, to see that all ways give the same."""
    row = frame.agg(F.count("*"), F.sum(F.xxhash64(*NAMES).cast("decimal(38,0)"))).collect()[0]
    return tuple(row)


def session(scratch: Path, more: Mapping[str, str]) -> SparkSession:
    """A local Spark on all cores, with more settings."""
    os.environ["JAVA_HOME"] = str(provide_java(scratch))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false", "spark.driver.memory": "4g", "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * cores), "spark.local.dir": str(scratch),
        **more,
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    return builder.getOrCreate()


def newest(spark: SparkSession, root: Path, first: int) -> DataFrame:
    """The newest change of each key in the entries from one on."""
    rows = all_changes(spark, root, first)
    by_key = Window.partitionBy("id").orderBy(*_POSITION)
    sent = F.when(F.col("gd_unchanged").isNull(), F.struct("doc"))
    filled = F.last(sent, ignorenulls=True).over(by_key)
    is_last = F.lead("gd_op").over(by_key).isNull()
    rows = rows.withColumn("sent", filled).withColumn("is_last", is_last)
    return rows.where("is_last").select(
        "gd_op", "id", F.col("sent").isNotNull().alias("is_sent"),
        F.col("sent.doc").alias("doc"), *[n for n in NAMES if n not in {"id", "doc"}],
    )  # fmt: skip


def merge(spark: SparkSession, name: str, changes: DataFrame) -> None:
    """The MERGE of somebody who knows the table."""
    changes.createOrReplaceTempView("changes")
    updates = ", ".join(f"t.{n} = s.{n}" for n in NAMES if n not in {"id", "doc"})
    spark.sql(
        f"MERGE INTO {name} AS t USING changes AS s ON t.id = s.id "
        "WHEN MATCHED AND s.gd_op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET "
        f"t.doc = CASE WHEN s.is_sent THEN s.doc ELSE t.doc END, {updates} "
        f"WHEN NOT MATCHED AND s.gd_op <> 'D' THEN INSERT ({', '.join(NAMES)}) "
        f"VALUES ({', '.join(f's.{n}' for n in NAMES)})"
    ).collect()


def options(kind: str, namespace: str, *, vectors: bool = False) -> Options:
    """Of a target of a format; each has a namespace of its own in the catalog."""
    return Options(
        format=kind, catalog=f"{_CATALOG}.{namespace}" if kind == ICEBERG else None, vectors=vectors
    )


def create(spark: SparkSession, kind: str, where: Path, namespace: str, root: Path) -> str:
    """Make the table that is kept by hand, with the rows of a landing; gives its name."""
    if kind == DELTA:
        name = f"delta.`{where / 'by-hand'}`"
    else:
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop",
            ".warehouse": str(where / "by-hand"), ".cache-enabled": "false",
        }.items():  # fmt: skip
            spark.conf.set(f"spark.sql.catalog.{namespace}{key}", value)
        name = f"{namespace}.tables.t"
    newest(spark, root, 0).select(*NAMES).createOrReplaceTempView("loaded")
    spark.sql(
        f"CREATE TABLE {name} USING {kind} TBLPROPERTIES ({_PROPERTIES[kind]}) "
        "AS SELECT * FROM loaded"
    )
    return name


def in_catalog(spark: SparkSession, catalog: Catalog, namespace: str) -> DataFrame:
    """Rows of the files that a table has in the catalog."""
    tasks = list(catalog.load_table((namespace, "public_t")).scan().plan_files())
    assert not any(task.delete_files for task in tasks)
    return spark.read.parquet(*[task.file.file_path for task in tasks])


def measure(
    spark: SparkSession, catalog: Catalog, kind: str, rows: int, changes: int, where: Path, *,
    runs: int, near: bool,
) -> dict[str, Any]:  # fmt: skip
    """One format, one size of table and of changes."""
    root = where / "landing"
    source = Source(root, 1)
    source.insert(rows)
    engines: dict[str, Engine] = {"apply": SparkEngine(spark), "local": LocalEngine()}
    spaces = {way: f"{way}_{rows}_{changes}" for way in engines}

    def bring(way: str) -> object:
        made = options(kind, spaces[way], vectors=kind == DELTA)
        return apply_with(engines[way], root, where / way, made)

    first = {way: round(timed(lambda way=way: bring(way))[1], 2) for way in engines}
    name = create(spark, kind, where, f"hand_{rows}_{changes}", root)
    best: dict[str, tuple[float, float]] = {}
    for run in range(runs):
        entry = source.writer.n
        if near:
            source.alive = source.alive[-max(changes * 4, 1000) :]
        source.change(changes)
        ways: list[tuple[str, Callable[[], object]]] = [
            *((way, lambda way=way: bring(way)) for way in engines),
            ("merge", lambda entry=entry: merge(spark, name, newest(spark, root, entry))),
        ]
        for way, do in ways if run % 2 else reversed(ways):
            best[way] = min(best.get(way, (1e9, 1e9)), timed(do), key=itemgetter(1))
        frames = [spark.table(name), *(current(spark, where / way, "public.t") for way in engines)]
        if kind == ICEBERG:
            frames += [in_catalog(spark, catalog, spaces[way]) for way in engines]
        assert len(set(map(checksum, frames))) == 1, "they differ"
    return {
        "kind": kind, "rows": rows, "changes": changes, "near": near, "first_apply_cpu": first,
        "cpu": {way: round(value[1], 2) for way, value in best.items()},
        "seconds": {way: round(value[0], 2) for way, value in best.items()},
        "ratio": {way: round(best[way][1] / best["merge"][1], 2) for way in engines},
    }  # fmt: skip


def small_applies(kind: str, where: Path, rows: int, *, vectors: bool) -> dict[str, Any]:
    """A hundred applies of a hundred random rows each, in this process."""
    source, made = Source(where / "landing", 1), options(kind, where.name, vectors=vectors)
    source.insert(rows)
    target = where / "target"

    def step() -> object:
        return apply_with(LocalEngine(), where / "landing", target, made)

    def sizes() -> dict[Path, int]:
        return {path: path.stat().st_size for path in target.rglob("*") if path.is_file()}

    step()
    held = sizes()
    whole, files, written, cpu = sum(held.values()), len(held), 0, 0.0
    for _ in range(100):
        source.change(100)
        cpu += timed(step)[1]
        now = sizes()
        written += sum(size for path, size in now.items() if path not in held)
        held |= now
    return {
        "kind": "small applies", "format": kind, "rows": rows, "deletion_vectors": vectors,
        "cpu": round(cpu, 2), "table_mb": round(whole / 1e6, 1), "written_mb": round(written / 1e6, 1),
        "files": len(sizes()) - files,
    }  # fmt: skip


def all_small(args: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Small applies of each kind and size; needs no Spark."""
    for kind, rows in itertools.product(args.kind, args.rows):
        for vectors in (True, False) if kind == DELTA else (False,):
            where = scratch / f"{kind}_{rows}_{vectors}"
            where.mkdir()
            yield small_applies(kind, where, rows, vectors=vectors)


def all_points(
    args: argparse.Namespace, scratch: Path, catalog: Catalog
) -> Iterator[dict[str, Any]]:
    """Each kind and size beside a MERGE."""
    spark = session(scratch, {
        **settings(DELTA),
        "spark.driver.extraClassPath": ":".join(map(str, jars())),
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.databricks.delta.snapshotPartitions": "2",
    })  # fmt: skip
    for kind, rows, changes in itertools.product(args.kind, args.rows, args.changes):
        where = scratch / f"{kind}-{rows}-{changes}"
        where.mkdir()
        yield measure(
            spark, catalog, kind, rows, changes, where, runs=args.runs, near=args.near
        )  # fmt: skip
    spark.stop()


def main() -> None:
    """Measure all that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", nargs="+", default=[DELTA, ICEBERG], choices=(DELTA, ICEBERG))
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000])
    parser.add_argument("--changes", type=int, nargs="+", default=[2_000, 200_000])
    parser.add_argument("--small", action="store_true", help="a hundred small applies instead")
    parser.add_argument("--near", action="store_true", help="change rows of the newest keys only")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        scratch = Path(name)
        catalog = in_a_file(patch, scratch)
        points = all_small(args, scratch) if args.small else all_points(args, scratch, catalog)
        for point in points:
            results.append(point)
            print(json.dumps(point), flush=True)
    corpus.write_result(
        args.out,
        {"bench": "lake_apply", "runs": args.runs, "points": results, "machine": corpus.machine()},
    )


if __name__ == "__main__":
    main()
