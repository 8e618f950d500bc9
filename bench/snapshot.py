"""How fast existing rows land, beside COPY to a file and pg_dump.

All read the same table of the same server, one after the other, in turns: psql's ``copy ... to`` a
file, ``pg_dump`` to a file, and the daemon from its start until the entry with all rows is
shown. The daemon reads with ``--workers`` connections and writes durable Parquet, the others
read with one and write text; seconds are those of the whole command.

``seconds`` is a list, one for each turn; rows and megabytes per second are of their median, the
megabytes those of COPY's text. ``peak_bytes`` is by process of the daemon; it is flat when it
does not grow with ``--millions``. ``oldest_transaction_seconds`` is the oldest of the daemon's
transactions that was ever seen, to be compared with ``--limit`` (``transaction-timeout``) plus the
time of one chunk; ``oldest_xmin`` how many transactions the oldest view held back.

    python bench/snapshot.py --millions 5 --rounds 3
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import corpus
from corpus import Database, Postgres
from kit.daemon import Daemon
from kit.uneven import uneven_sql
from processes import ProcessWatch

_MAJOR: Final = 17
_BATCH: Final = 1_000_000
_TABLE: Final = (
    "CREATE TABLE t (id int8 PRIMARY KEY, a int4, b text, n numeric(12,2), t timestamptz)"
)
_VALUES: Final = (
    ("g % 1000", False),
    ("'row ' || g", True),
    ("g / 7.0", False),
    ("timestamptz '2026-01-01' + g * interval '1 ms'", False),
)


def statement(first: int, last: int) -> str:
    """The statement that makes rows with these numbers."""
    values = ", ".join(uneven_sql(value, is_text=is_text) for value, is_text in _VALUES)
    return f"INSERT INTO t SELECT g, {values} FROM generate_series({first}, {last}) g"


_OLDEST: Final = """
    SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0)::float8,
        coalesce(max(age(backend_xmin)), 0)::int8
    FROM pg_stat_activity WHERE application_name = 'gaussdecode' AND backend_type <> 'walsender'
        OR backend_type = 'walsender' AND backend_xmin IS NOT NULL
"""
_POLL_SECONDS: Final = 0.2


def fill(database: Database, rows: int) -> None:
    """Make the table."""
    database.execute(_TABLE)
    for first in range(1, rows + 1, _BATCH):
        database.execute(statement(first, min(first + _BATCH - 1, rows)))
    database.execute("VACUUM ANALYZE t")


def measure_command(command: list[str]) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def measure_daemon(
    database: Database, arguments: argparse.Namespace, directory: Path
) -> dict[str, Any]:  # Any: JSON
    """Land the table into a landing of its own."""
    rows = int(arguments.millions * 1e6)
    directory.mkdir()
    database.create_slot()
    config = {
        "snapshot": {
            "mode": "initial",
            "workers": arguments.workers,
            "chunk-bytes": arguments.chunk,
            "transaction-timeout": arguments.limit,
        },
        "landing": {
            "row-group-rows": 131072,
            "row-group-bytes": "64MiB",
            "memory-bytes": "512MiB",
            "target-file-size": "128MiB",
        },
        "monitoring": {"log-level": "warning"},
    }
    oldest, held_back = 0.0, 0
    began = time.perf_counter()
    with Daemon(database, directory, config=config) as daemon:
        watch = ProcessWatch(daemon.pid)
        watch.start()
        while True:
            ((age, xmin),) = database.execute(_OLDEST)
            oldest, held_back = max(oldest, float(str(age))), max(held_back, int(str(xmin)))
            found = [entry for entry in daemon.entries() if entry["kind"] == "snapshot"]
            if found:
                break
            assert daemon.is_running, daemon.log_tail()
            time.sleep(_POLL_SECONDS)
        seconds = time.perf_counter() - began
        watch.is_over.set()
        watch.join()
        landed = sum(file["rows"] for file in found[0]["files"])
        assert landed == rows, f"{landed} rows landed, not {rows}"
        assert daemon.stop() == 0
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")
    return {
        "seconds": seconds,
        "peak_bytes": watch.peak_bytes,
        "cpu_seconds": watch.cpu_seconds,
        "landed_bytes": sum(file["bytes"] for file in found[0]["files"]),
        "oldest_transaction_seconds": oldest,
        "oldest_xmin": held_back,
    }


def summarize(seconds: list[float], rows: int, size: int) -> dict[str, Any]:  # Any: JSON
    """Rates of the median."""
    median = statistics.median(seconds)
    return {
        "seconds": [round(each, 2) for each in seconds],
        "rows_per_second": round(rows / median),
        "megabytes_per_second": round(size / median / 1e6, 1),
    }


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--millions", type=float, default=2.0, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=3, help="turns")
    parser.add_argument("--workers", type=int, default=2, help="connections of the daemon")
    parser.add_argument("--chunk", default="32MiB", help="snapshot.chunk-bytes")
    parser.add_argument("--limit", default="10s", help="snapshot.transaction-timeout")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = int(arguments.millions * 1e6)
    with Postgres(_MAJOR) as server, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        database = Database(server, "bench")
        fill(database, rows)
        text, dump = directory / "copy.txt", directory / "dump.sql"
        commands = {
            "copy": [str(server.program("psql")), database.dsn, "-qc", f"\\copy t TO '{text}'"],
            "pg_dump": [str(server.program("pg_dump")), database.dsn, "-t", "t", "-f", str(dump)],
        }
        seconds: dict[str, list[float]] = {tool: [] for tool in (*commands, "gaussdecode")}
        runs = []
        for number in range(arguments.rounds):
            for tool, command in commands.items():
                seconds[tool].append(measure_command(command))
            runs.append(measure_daemon(database, arguments, directory / f"run{number}"))
            seconds["gaussdecode"].append(runs[-1].pop("seconds"))
        size = text.stat().st_size
        results = {tool: summarize(taken, rows, size) for tool, taken in seconds.items()}
        results["gaussdecode"]["runs"] = runs
        settings = {key: getattr(arguments, key) for key in ("workers", "chunk", "limit")}
        sizes = {"rows": rows, "copy_bytes": size}
        corpus.write_result(
            arguments.out,
            {"bench": "snapshot", **sizes, **settings, **results, "machine": corpus.machine()},
        )
        database.drop()


if __name__ == "__main__":
    main()
