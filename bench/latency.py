"""How long after its commit is a change visible in the landing?

Small transactions at a steady rate, each on the next of several tables, while the daemon
follows. From the moment the session has its answer to COMMIT until the entry of the commit log
that holds the transaction exists: data durable, shown, to be read. The base is the
commit interval itself: `over` is what comes on top of it, in milliseconds, at the median and the
99th percentile. A transaction waits for half an interval on average; its oldest
neighbour waits for all of it.

    python bench/latency.py [--intervals MS ...] [--tables N ...] [--seconds N] [--out FILE]
"""

import argparse
import json
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import corpus
import numpy as np
from kit import landing
from kit.daemon import Daemon
from kit.postgres import Database, Postgres

from gaussdecode.model.lsn import Lsn

_RATE: Final = 100  # transactions per second
_LOOK_SECONDS: Final = 0.001


class Watch(threading.Thread):
    """Notes when each entry of a commit log appears, and what waited for it."""

    def __init__(self, root: Path, next_number: int) -> None:
        super().__init__(daemon=True)
        self._commits = root / "commits"
        self._number = next_number
        self._waiting: deque[tuple[int, float]] = deque()
        self._is_over = threading.Event()
        self.seconds: list[float] = []

    def committed(self, lsn: int, at: float) -> None:
        """A transaction that ends at `lsn` was committed."""
        self._waiting.append((lsn, at))

    @property
    def is_idle(self) -> bool:
        """Everything committed is visible."""
        return not self._waiting

    def stop(self) -> None:
        """Stop looking."""
        self._is_over.set()

    def run(self) -> None:
        """Look for the next number, a thousand times a second."""
        while not self._is_over.is_set():
            path = self._commits / f"{self._number:020d}.json"
            if not path.exists():
                time.sleep(_LOOK_SECONDS)
                continue
            seen = time.monotonic()
            lsn = landing.position(json.loads(path.read_text()))
            self._number += 1
            while self._waiting and self._waiting[0][0] <= lsn:
                self.seconds.append(seen - self._waiting.popleft()[1])


def commit_steadily(database: Database, tables: int, seconds: float, watch: Watch) -> None:
    """Commit at the rate; a late transaction does not delay those after it."""
    with database.connect() as session:
        session.execute("SET synchronous_commit = on")  # else the server itself waits 200 ms
        began = time.monotonic()
        for number in range(int(seconds * _RATE)):
            time.sleep(max(0.0, began + number / _RATE - time.monotonic()))
            session.execute(f"INSERT INTO public.t{number % tables} VALUES ({number}, 'a value')")
            at = time.monotonic()
            row = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            watch.committed(Lsn.parse(row[0]), at)


def measure(server: Postgres, tables: int, interval_ms: int, seconds: float) -> dict[str, Any]:
    """One daemon, one interval, so many tables in turn."""
    database = Database(server, f"latency_{interval_ms}_{tables}")
    for number in range(tables):
        database.execute(f"CREATE TABLE public.t{number} (id int8, v text)")
    database.create_slot()
    with tempfile.TemporaryDirectory() as name:
        daemon = Daemon(
            database,
            Path(name),
            config={
                "decoding": {"parallel-decode-num": 1},
                "landing": {"max-commit-interval": f"{interval_ms}ms"},
                "monitoring": {"log-level": "warning"},
            },
        )
        with daemon:
            daemon.wait_for_state("streaming")
            commit_steadily(database, tables, 1.0, Watch(daemon.root, 0))  # schemas, directories
            daemon.catch_up()
            watch = Watch(daemon.root, daemon.entries()[-1]["n"] + 1)
            watch.start()
            commit_steadily(database, tables, seconds, watch)
            while not watch.is_idle:
                daemon.mark()
                time.sleep(interval_ms / 1000)
            watch.stop()
            watch.join()
            daemon.stop()
    database.drop()
    return summarize(np.array(watch.seconds) * 1000, tables, interval_ms)


def summarize(milliseconds: np.ndarray, tables: int, interval_ms: int) -> dict[str, Any]:
    """Percentiles of one run."""
    median, high, most = (float(np.percentile(milliseconds, p)) for p in (50, 99, 100))
    return {
        "interval_ms": interval_ms,
        "tables": tables,
        "transactions": len(milliseconds),
        "p50_ms": round(median, 1),
        "p99_ms": round(high, 1),
        "max_ms": round(most, 1),
        "over": {"p50": round(median - interval_ms, 1), "p99": round(high - interval_ms, 1)},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--intervals", type=int, nargs="+", default=[100, 1000], metavar="MS")
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    curve = []
    with corpus.start_server() as server:
        for interval in args.intervals:
            for tables in args.tables:
                curve.append(measure(server, tables, interval, args.seconds))
                print(json.dumps(curve[-1]), flush=True)
    result = {"bench": "latency", "rate": _RATE, "curve": curve, "machine": corpus.machine()}
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
