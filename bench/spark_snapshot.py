"""How fast do executors load existing rows into a target, beside COPY of the same table?

All in turns, over the same table of the same server: psql's ``copy ... to`` a file, and ``gaussdecode
spark snapshot`` with 1 and with ``--executors`` tasks at a time (``local[N]``, N connections), from the start of
the command until the table is in the target. `load` is what the command says it took, without the start
of Spark; `seconds` is all of it. Rows and megabytes per second are of the median of `load`, the megabytes
those of COPY's text; `ratio` is them by COPY's. COPY writes text once; the load decodes, writes ranges
as Parquet, and merges them into buckets by key.

    python bench/spark_snapshot.py --millions 2 --rounds 3 --out build/bench/spark_snapshot.json
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import corpus
from corpus import Database, Postgres
from kit.daemon import Daemon
from snapshot import fill, measure_command, summarize

_MAJOR: Final = 17
_CONFIG: Final = {
    "snapshot": {"mode": "none", "chunk-bytes": "32MiB"},
    "monitoring": {"log-level": "warning"},
}


def load(daemon: Daemon, target: Path, executors: int, rows: int) -> tuple[float, float]:
    """Seconds of the load, and of the whole command."""
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gaussdecode", "spark", "snapshot", str(daemon.config_path),
         str(target), "--master", f"local[{executors}]", "--connections", str(executors), "--json"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    took = time.perf_counter() - began
    said = json.loads(done.stdout)
    assert said["rows"] == rows, said
    return float(said["seconds"]), took


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--millions", type=float, default=2.0, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=3, help="turns")
    parser.add_argument("--executors", type=int, default=3, help="tasks at a time, beside 1")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows, counts = int(arguments.millions * 1e6), (1, arguments.executors)
    copied: list[float] = []
    loads: dict[int, list[float]] = {count: [] for count in counts}
    wholes: dict[int, list[float]] = {count: [] for count in counts}
    with Postgres(_MAJOR) as server, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        database = Database(server, "bench")
        fill(database, rows)
        database.create_slot()
        psql, out = str(server.program("psql")), directory / "copied"
        with Daemon(database, directory, config=_CONFIG) as daemon:
            daemon.catch_up()
            for _ in range(arguments.rounds):
                copied.append(
                    measure_command([psql, "-q", "-d", database.dsn, "-c", rf"\copy t to '{out}'"])
                )
                for count in counts:
                    took, whole = load(daemon, directory / "target", count, rows)
                    loads[count].append(took)
                    wholes[count].append(whole)
            assert daemon.stop() == 0
        size = out.stat().st_size
    base = statistics.median(copied)
    result = {
        "machine": corpus.machine(),
        "rows": rows,
        "bytes": size,
        "copy": summarize(copied, rows, size),
        "executors": {
            str(count): {
                **summarize(loads[count], rows, size),
                "whole_seconds": [round(each, 2) for each in wholes[count]],
                "ratio": round(base / statistics.median(loads[count]), 2),
            }
            for count in counts
        },
    }
    corpus.write_result(arguments.out, result)


if __name__ == "__main__":
    main()
