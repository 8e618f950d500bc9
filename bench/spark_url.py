"""What do an apply and a query cost at a URL beside the same in directories?

A table of N rows is landed, applied, changed M times and applied again, and asked for one column and for
all, once with landing and target in directories, once with both in S3Proxy on this machine, through Spark
in turns. Seconds, CPU seconds of this process, Spark's and its workers', and those of the store's server beside
them. ``ratio`` is the CPU of the URL by that of the directories. A bucket is a directory of the server: the
landing is put there before the clock runs.

    python bench/spark_url.py [--rows N] [--changes M] [--runs N] [--out FILE]
"""

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import spark_apply
from kit.s3 import S3
from pyspark.sql import SparkSession

from gaussdecode.spark.apply import apply
from gaussdecode.spark.sql.views import ask

ONE: Final = "SELECT sum(a) FROM public.t"
ALL: Final = "SELECT * FROM public.t"


class Costs:
    """Seconds and CPU seconds of steps, by place; of the server apart."""

    def __init__(self, s3: S3) -> None:
        self._s3 = s3
        self.found: dict[str, dict[str, list[dict[str, float]]]] = {}

    def _server(self) -> float:
        fields = Path(f"/proc/{self._s3.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def of(self, place: str, step: str, run: Callable[[], object]) -> None:
        """Take one step."""
        before = self._server()
        seconds, used = spark_apply.timed(run)
        server = self._server() - before
        costs = {"seconds": seconds, "cpu": used - server, "server": server}
        self.found.setdefault(step, {}).setdefault(place, []).append(costs)

    def record(self) -> dict[str, Any]:
        """The medians, and what the URL costs by the directories."""
        steps: dict[str, Any] = {}
        for step, places in self.found.items():
            steps[step] = {
                place: {
                    name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]
                }
                for place, runs in places.items()
            }
            medians = steps[step]
            steps[step]["ratio"] = round(medians["url"]["cpu"] / medians["directory"]["cpu"], 2)
        return steps


def measure(spark: SparkSession, s3: S3, rows: int, changes: int, runs: int) -> dict[str, Any]:
    """Measure, with a new landing and new targets for each run; the first run warms up."""
    costs = Costs(s3)
    for number in range(runs + 1):
        if number == 1:
            costs.found.clear()
        with tempfile.TemporaryDirectory() as scratch:
            root, bucket = Path(scratch, "landing"), s3.bucket()
            source = spark_apply.Source(root, number)
            places = {
                "directory": (str(root), str(Path(scratch, "target"))),
                "url": (s3.url(bucket, "landing"), s3.url(bucket, "target")),
            }
            for step, land in (
                ("first apply", functools.partial(source.insert, rows)),
                ("apply of changes", functools.partial(source.change, changes)),
            ):
                land()
                s3.keep(root, bucket, "landing")
                for place, (landing, target) in places.items():
                    costs.of(place, step, functools.partial(apply, spark, landing, target))
            answers: list[Any] = []
            for step, text in (("query of a column", ONE), ("query of all", ALL)):
                for place, (_, target) in places.items():
                    costs.of(place, step, functools.partial(query, spark, target, text, answers))
            assert len(set(answers)) == 1, "both places hold the same"
    return costs.record()


def query(spark: SparkSession, target: str, text: str, answers: list[Any]) -> None:
    """Ask, and take all rows."""
    frame = ask(spark, target, text)
    if text == ONE:
        answers.append(frame.collect()[0][0])
    else:
        frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--changes", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, S3(Path(scratch)) as s3:
        spark = spark_apply.session(Path(scratch))
        found = measure(spark, s3, args.rows, args.changes, args.runs)
        spark.stop()
    record = {"rows": args.rows, "changes": args.changes, "runs": args.runs, "steps": found}
    text = json.dumps(record, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
