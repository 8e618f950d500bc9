"""How should a reader pace its reads so that the server sends fastest?

The walsender sends one message at a time, and on few cores it shares them with the reader: a
reader that reads every little piece takes CPU time and wakes it up again and again. The
empty loop (`emptyloop.py`) receives the same WAL through copies of one slot, run by run and
in turn, with each way of pacing:

    spin           reads whenever the socket is readable
    fixed N        naps N us when less than 32 KiB is there
    adaptive N     halves the nap after one in which twice as much arrived
    little N       as adaptive 300, but naps below N KiB
    gather N K     sleeps up to N us when less than K KiB is there, until K KiB are
                   (SO_RCVLOWAT)
    always         naps 300 us before every read, however much is there
    lowat N        no nap; the kernel wakes the reader at N KiB, set once

`pg_recvlogical` is the base. rows/s, CPU seconds of the loop per million rows, and reads
per second; `best` is the fastest. What `source/_receive.pyx` does is ``gather 3000 32``.

    python bench/pacing.py [--shape SHAPE] [--rows N] [--runs N] [--out FILE]
"""

import argparse
import statistics
from pathlib import Path
from typing import Any, Final

import corpus
import emptyloop
import live
from kit.postgres import Database, Postgres

from gaussdecode.model.lsn import Lsn

_KIB: Final = 1024
_HUGE: Final = str(1 << 30)  # more than ever waits
_ADAPTIVE: Final = ("--pace", "adaptive", "--nap-us")
_FIXED: Final = ("--pace", "fixed", "--nap-us")
PACES: Final[dict[str, tuple[str, ...]]] = {
    "spin": (*_FIXED, "0"),
    **{f"fixed {nap}": (*_FIXED, str(nap)) for nap in (100, 300, 1000)},
    **{f"adaptive {nap}": (*_ADAPTIVE, str(nap)) for nap in (100, 300, 1000)},
    **{
        f"little {size}": (*_ADAPTIVE, "300", "--little-bytes", str(size * _KIB))
        for size in (8, 128)
    },
    **{
        f"gather {nap} {size}": ("--nap-us", str(nap), "--little-bytes", str(size * _KIB))
        for nap, size in ((300, 32), (1000, 32), (3000, 32), (3000, 16), (3000, 64))
    },
    "always": (*_FIXED, "300", "--little-bytes", _HUGE),
    **{f"lowat {size}": (*_FIXED, "0", "--lowat-bytes", str(size * _KIB)) for size in (32, 256)},
}


def measure(args: argparse.Namespace, server: Postgres) -> dict[str, Any]:
    """Run all in turn, each on a copy of the slot."""
    database = Database(server, "bench_pacing")
    _, end = live.prepare(database, args.shape, args.rows)
    paces = {name: PACES[name] for name in args.paces}
    base: list[float] = []
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in paces}
    for run in range(args.runs):
        base.append(_timed(database, f"base_{run}", end))
        for name, options in paces.items():
            database.copy_slot("pace")
            dsn = f"{database.dsn} sslmode=disable"
            runs[name].append(emptyloop.run(dsn, "pace", database.publication, end, *options))
            corpus.drop_slot(database, "pace")
            print(f"run {run}, {name}: {runs[name][-1]['seconds']:.2f} s", flush=True)
    results = {name: _summary(done, args.rows, base) for name, done in runs.items()}
    return {
        "bench": "pacing",
        "shape": args.shape,
        "rows": args.rows,
        "runs": args.runs,
        "pg_recvlogical_rows_per_second": corpus.spread([args.rows / s for s in base]),
        "paces": results,
        "best": max(results, key=lambda name: results[name]["rows_per_second"]["median"]),
        "server": corpus.MAJOR,
        "machine": corpus.machine(),
    }


def _timed(database: Database, slot: str, end: Lsn) -> float:
    database.copy_slot(slot)
    seconds: float = live.run_recvlogical(database, slot, end)["seconds"]
    corpus.drop_slot(database, slot)
    return seconds


def _summary(done: list[dict[str, Any]], rows: int, base: list[float]) -> dict[str, Any]:
    return {
        "rows_per_second": corpus.spread([rows / run["seconds"] for run in done]),
        "ratio": corpus.spread([b / run["seconds"] for b, run in zip(base, done, strict=True)]),
        "cpu_seconds_per_million_rows": corpus.spread(
            [run["cpu_seconds"] / rows * 1e6 for run in done]
        ),
        "reads_per_second": round(statistics.median(r["reads"] / r["seconds"] for r in done)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=corpus.SHAPES, default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--paces", nargs="+", choices=list(PACES), default=list(PACES))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or corpus.ROWS[args.shape] // 2
    with corpus.start_server() as server:
        result = measure(args, server)
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
