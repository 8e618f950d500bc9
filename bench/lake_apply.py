"""What does an apply into Delta Lake or Iceberg cost beside a MERGE that is written by hand?

A table of N rows with a key, an out-of-line text and some columns is landed and brought into
two tables of a format, one by `gaussdecode.spark.apply`, one by hand. Then M random changes
(updates, a tenth of them without the text, deletes, inserts) are landed and brought into both:

* ``apply``: `gaussdecode.spark.apply`, with deletion vectors where it keeps Delta Lake;
* ``merge``: the newest change of each key by a window function, then MERGE on the key, with the
  text that was not sent from the row that is there, into a table that has the table's own
  columns only, and that writes deletion vectors or merges on read.

``cpu`` is the CPU time of the driver, its JVM and its Python workers, the least of several runs,
each with new changes; ``ratio`` is apply's over merge's. Needs Spark 4.0 with the jars:

    PYTHONPATH=.venv/pyspark-4.0 python bench/lake_apply.py [--kind K ...] [--rows N ...]
        [--changes M ...] [--near] [--runs N] [--out FILE]
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import corpus
from kit.jars import jars
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from spark_apply import NAMES, POSITION, Source, all_changes, checksum, session, timed

from gaussdecode.spark.apply import Options, apply, apply_with
from gaussdecode.spark.engine import LocalEngine
from gaussdecode.spark.formats import DELTA, ICEBERG, settings
from gaussdecode.spark.query import current

_PROPERTIES: Final = {
    DELTA: "'delta.enableDeletionVectors' = 'true'",
    ICEBERG: "'format-version' = '2', 'write.merge.mode' = 'merge-on-read', "
    "'write.update.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read'",
}


def newest(spark: SparkSession, root: Path, first: int) -> DataFrame:
    """The newest change of each key in the entries from one on."""
    rows = all_changes(spark, root, first)
    by_key = Window.partitionBy("id").orderBy(*POSITION)
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


def measure(
    spark: SparkSession, kind: str, rows: int, changes: int, where: Path, *, runs: int, near: bool
) -> dict[str, Any]:
    """One format, one size of table and of changes."""
    source = Source(where / "landing", 1)
    source.insert(rows)
    target = where / "target"
    vectors = kind == DELTA
    _, first = timed(lambda: apply(spark, where / "landing", target, format=kind, vectors=vectors))
    if kind == DELTA:
        name = f"delta.`{where / 'by-hand'}`"
    else:
        catalog = "hand"
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop",
            ".warehouse": str(where.parent / "by-hand"), ".cache-enabled": "false",
        }.items():  # fmt: skip
            spark.conf.set(f"spark.sql.catalog.{catalog}{key}", value)
        name = f"{catalog}.tables.t{rows}_{changes}"
    loaded = newest(spark, where / "landing", 0).select(*NAMES)
    loaded.createOrReplaceTempView("loaded")
    spark.sql(
        f"CREATE TABLE {name} USING {kind} TBLPROPERTIES ({_PROPERTIES[kind]}) "
        "AS SELECT * FROM loaded"
    )
    best: dict[str, tuple[float, float]] = {}
    for run in range(runs):
        entry = source.writer.n
        if near:
            source.alive = source.alive[-max(changes * 4, 1000) :]
        source.change(changes)
        ways: list[tuple[str, Callable[[], object]]] = [
            ("apply", lambda: apply(spark, where / "landing", target)),
            ("merge", lambda entry=entry: merge(
                spark, name, newest(spark, where / "landing", entry))),
        ]  # fmt: skip
        for way, do in ways if run % 2 else reversed(ways):
            best[way] = min(best.get(way, (1e9, 1e9)), timed(do), key=itemgetter(1))
        by_hand = spark.table(name)
        assert checksum(by_hand) == checksum(current(spark, target, "public.t")), "they differ"
    return {
        "kind": kind, "rows": rows, "changes": changes, "near": near,
        "first_apply_cpu": round(first, 2),
        "cpu": {way: round(value[1], 2) for way, value in best.items()},
        "seconds": {way: round(value[0], 2) for way, value in best.items()},
        "ratio": round(best["apply"][1] / best["merge"][1], 2),
    }  # fmt: skip


def small_applies(where: Path, rows: int, *, vectors: bool) -> dict[str, Any]:
    """A hundred applies into Delta Lake of a hundred random rows each, in this process."""
    source, options = Source(where / "landing", 1), Options(vectors=vectors)
    source.insert(rows)
    target = where / "target"

    def step() -> object:
        return apply_with(LocalEngine(), where / "landing", target, options)

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
        "kind": "small applies", "rows": rows, "deletion_vectors": vectors, "cpu": round(cpu, 2),
        "table_mb": round(whole / 1e6, 1), "written_mb": round(written / 1e6, 1),
        "files": len(sizes()) - files,
    }  # fmt: skip


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
    with tempfile.TemporaryDirectory() as scratch:
        if args.small:
            for rows in args.rows:
                for vectors in (True, False):
                    where = Path(scratch, f"small-{rows}-{vectors}")
                    where.mkdir()
                    results.append(small_applies(where, rows, vectors=vectors))
                    print(json.dumps(results[-1]), flush=True)
            args.kind = []
        spark = session(Path(scratch), {
            **settings(DELTA),
            "spark.driver.extraClassPath": ":".join(map(str, jars())),
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.databricks.delta.snapshotPartitions": "2",
        })  # fmt: skip
        for kind in args.kind:
            for rows in args.rows:
                for changes in args.changes:
                    where = Path(scratch, f"{kind}-{rows}-{changes}")
                    where.mkdir()
                    results.append(
                        measure(spark, kind, rows, changes, where, runs=args.runs, near=args.near)
                    )
                    print(json.dumps(results[-1]), flush=True)
        spark.stop()
    corpus.write_result(
        args.out,
        {"bench": "lake_apply", "runs": args.runs, "points": results, "machine": corpus.machine()},
    )


if __name__ == "__main__":
    main()
