"""What do the order of CSNs, and several data nodes in one landing, cost?

Simulated nodes of openGauss hold the same number of transactions in all, committed before the
daemon starts: on one node, or spread over two and four. One daemon lands them in style b, and what
counts is the CPU time of all its processes for a row, from its start until everything is durable; the
servers, in a process of their own, are the slowest part and are not counted. In turn, in each run:

    by_lsn      one node, in the order of commit records: the base
    by_csn      one node, in the order of CSNs: what waiting for turns costs
    nodes_2     two nodes; each has a reader, decoders and a collector of its own
    nodes_4     four

`start_seconds` is the CPU time of the same daemon with nothing to land, `cpu_us_per_row` has it taken off.
`ratio` is `by_lsn`'s CPU time over theirs.

    python bench/sources.py [--rows N] [--runs N] [--out FILE]
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import corpus
import processes
from kit.daemon import Daemon
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDaemon
from kit.gaussseveral import ClusterDatabase, SeveralDaemon

_ROWS: Final = 100  # of a transaction
_COLUMNS: Final = {
    "id": "int8", "a": "int4", "b": "varchar(200)", "c": "numeric(12,3)", "d": "timestamp",
    "e": "text", "f": "int8", "g": "int4", "h": "text", "i": "numeric(12,3)",
}  # fmt: skip
_LANDING: Final = {
    "target-file-size": "128MiB", "max-commit-interval": "2s", "row-group-rows": 65536,
    "row-group-bytes": "64MiB", "memory-bytes": "1GiB",
}  # fmt: skip


class Case(NamedTuple):
    """What is landed, and how."""

    nodes: int
    by_csn: bool


CASES: Final = {
    "by_lsn": Case(1, False),
    "by_csn": Case(1, True),
    "nodes_2": Case(2, True),
    "nodes_4": Case(4, True),
}


@contextlib.contextmanager
def filled(nodes: int, rows: int, postgres: Any) -> Iterator[ClusterDatabase]:  # Any: a server
    """A cluster whose slots were made before so many rows were committed."""
    names = tuple(f"dn{number}" for number in range(1, nodes + 1))
    with GaussCluster(names, postgres=postgres) as cluster:
        tables = cluster.create_table("public", "load", _COLUMNS, key=["id"])
        database = ClusterDatabase(cluster)
        for number in range(rows // _ROWS):
            node = names[number % nodes]
            first = number * _ROWS
            transaction = cluster.begin()
            transaction.on(node).insert(
                tables[node], *[_row(first + index) for index in range(_ROWS)]
            )
            transaction.commit()
        yield database


def _row(number: int) -> dict[str, str | None]:
    return {
        "id": str(number), "a": str(number % 7919), "b": f"customer {number % 1000}",
        "c": f"{number % 100000 / 100:.3f}", "d": "2024-03-14 12:31:12.098179",
        "e": None if number % 3 else f"note {number:020d}", "f": str(number * 7919),
        "g": None if number % 5 else "5", "h": f"{number * 2654435761 % 2**64:016x}",
        "i": f"{number % 1000}.125",
    }  # fmt: skip


def land(case: Case, rows: int, postgres: Any) -> dict[str, float]:  # Any: a server
    """Land so many rows; gives seconds and CPU seconds of all processes."""
    with filled(case.nodes, rows, postgres) as database, tempfile.TemporaryDirectory() as name:
        options: dict[str, Any] = {
            "parallel-decode-num": 2, "decode-style": "b", "sending-batch": 1,
            "output-order": int(case.by_csn),
        }  # fmt: skip
        config = {"decoding": options, "landing": _LANDING, "monitoring": {"log-level": "warning"}}
        make = SeveralDaemon if case.nodes > 1 else GaussDaemon
        daemon: Daemon = make(database, Path(name), config=config)
        daemon.begin()
        process = subprocess.Popen(
            [sys.executable, "-m", "gaussdecode", "run", str(daemon.config_path)],
            env={**os.environ},
        )
        watch = processes.ProcessWatch(process.pid)
        watch.start()
        began = time.perf_counter()
        while _landed(daemon.root) < rows or time.perf_counter() - began < 5:
            if process.poll() is not None:
                raise SystemExit(f"the daemon ended with status {process.returncode}")
            time.sleep(0.05)
        watch.look()
        seconds = time.perf_counter() - began
        watch.is_over.set()
        process.terminate()
        process.wait()
        return {"seconds": seconds, "cpu_seconds": sum(watch.cpu_seconds.values())}


def _landed(root: Path) -> int:
    """Rows of the table in all entries so far."""
    total = 0
    for path in (root / "commits").glob("[0-9]*.json"):
        for file in json.loads(path.read_text())["files"]:
            total += file["rows"] if file["table"] == "public.load" else 0
    return total


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the cases in turn."""
    runs: dict[str, list[float]] = {name: [] for name in CASES}
    starts: dict[str, list[float]] = {name: [] for name in CASES}
    with corpus.start_server() as postgres:
        for run in range(args.runs):
            for name, case in CASES.items():
                start = land(case, 0, postgres)["cpu_seconds"]
                done = land(case, args.rows, postgres)
                starts[name].append(start)
                runs[name].append((done["cpu_seconds"] - start) / args.rows * 1e6)
                print(f"run {run}, {name}: {done} start {start:.2f}", flush=True)
    base = runs["by_lsn"]
    return {
        "bench": "sources",
        "runs": args.runs,
        "rows": args.rows,
        **{
            name: {
                "cpu_us_per_row": corpus.spread(costs),
                "start_seconds": corpus.spread(starts[name]),
                "ratio": corpus.spread([b / c for b, c in zip(base, costs, strict=True)]),
            }
            for name, costs in runs.items()
        },
        "machine": corpus.machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    corpus.write_result(args.out, measure(args))


if __name__ == "__main__":
    main()
