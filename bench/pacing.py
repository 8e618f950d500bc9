"""How should a reader pace its reads so that the server sends fastest?

The walsender sends one message at a time. What such a send costs depends on the reader: through
an open window, into the reader's queue and perhaps to its wake-up, ten times as much as into a buffer
of its own while the window is closed. The empty loop (`emptyloop.py`) receives the same WAL through
copies of one slot, run by run and in turn, with each way of pacing:

    auto           the reader's own pacer (`source/_pace.pyx`), which tries and chooses
    by records     the same, where TLS does not read ahead
    wide           the same over plain TCP, where the kernel may enlarge the receive buffer
    spin           reads whenever the socket is readable
    fixed N        naps N us when less than 16 KiB is there
    adaptive N     halves the nap after one in which twice as much arrived
    gather N K     sleeps up to N us when less than K KiB is there, until K KiB are
                   (SO_RCVLOWAT)

in each of these places:

    tcp     over loopback
    unix    over a Unix socket
    tls     over TLS
    busy    over TCP, while another process keeps a core busy
    pinned  over TCP, server and loop on one core

but for the longest naps over a Unix socket, which would take minutes, records without TLS, and a wide
buffer with it.

`pg_recvlogical` is the base, in the same place. rows/s, CPU seconds of the loop and of the walsender
per million rows, reads per second. `best` is the fastest of the fixed ones, `auto_over_best` the
pacer over it, run by run.

    python bench/pacing.py [--shape SHAPE] [--rows N] [--runs N] [--places P ...] [--out FILE]
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import corpus
import emptyloop
import live
import walsender
from kit.postgres import Database
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gaussdecode.model.lsn import Lsn

_KIB: Final = 1024
_ADAPTIVE: Final = ("--pace", "adaptive", "--nap-us")
_FIXED: Final = ("--pace", "fixed", "--little-bytes", str(16 * _KIB), "--nap-us")
_GATHER: Final = ("--pace", "gather", "--nap-us")
AUTO: Final = "auto"
_RECORDS: Final = "by records"
_WIDE: Final = "wide"
PACES: Final[dict[str, tuple[str, ...]]] = {
    AUTO: ("--pace", "auto"),
    _RECORDS: ("--pace", "auto", "--no-ahead"),
    _WIDE: ("--pace", "auto", "--wide"),
    "spin": (*_FIXED, "0"),
    **{f"fixed {nap}": (*_FIXED, str(nap)) for nap in (300, 1000, 2000, 5000, 10000, 20000, 30000)},
    **{f"adaptive {nap}": (*_ADAPTIVE, str(nap)) for nap in (300, 1000)},
    "gather 3000 32": (*_GATHER, "3000", "--little-bytes", str(32 * _KIB)),
}
PLACES: Final = ("tcp", "unix", "tls", "busy", "pinned")
_LONG: Final = {f"fixed {nap}" for nap in (5000, 10000, 20000, 30000)}
_POINTLESS: Final = {
    **{place: {_RECORDS} for place in PLACES},
    "unix": {_RECORDS, _WIDE} | _LONG,  # these stand still there
    "tls": {_WIDE},
}
_BUSY: Final = (sys.executable, "-c", "while True: pass")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run all in turn in each place, each on a copy of the slot."""
    with corpus.start_server() as server:
        server.use_tls()
        database = Database(server, "bench_pacing")
        _, end = live.prepare(database, args.shape, args.rows)
        found = {}
        for place in args.places:
            with taken(place, database):
                names = [name for name in args.paces if name not in _POINTLESS.get(place, ())]
                found[place] = in_place(names, args, database, end, dsn_of(place, database))
    return {
        "bench": "pacing",
        "shape": args.shape,
        "rows": args.rows,
        "runs": args.runs,
        **found,
        "server": corpus.MAJOR,
        "machine": corpus.machine(),
    }


def dsn_of(place: str, database: Database) -> str:
    """How the loop connects there."""
    if place != "unix":
        return f"{database.dsn} sslmode={'require' if place == 'tls' else 'disable'}"
    (directories,) = database.execute("SHOW unix_socket_directories")[0]
    given = {**conninfo_to_dict(database.dsn), "host": directories.split(",")[0].strip()}
    return make_conninfo(**given)


@contextlib.contextmanager
def taken(place: str, database: Database) -> Iterator[None]:
    """Make the place: a busy core, or one core for all."""
    if place == "busy":
        other = subprocess.Popen(_BUSY)
        try:
            yield
        finally:
            other.kill()
            other.wait()
    elif place == "pinned":
        everywhere = os.sched_getaffinity(0)
        (directory,) = database.execute("SHOW data_directory")[0]
        postmaster = int(Path(directory, "postmaster.pid").read_text().split()[0])
        for pid in (0, postmaster):  # those that they start from now on follow
            os.sched_setaffinity(pid, {min(everywhere)})
        try:
            yield
        finally:
            for pid in (0, postmaster):
                os.sched_setaffinity(pid, everywhere)
    else:
        yield


def in_place(
    names: list[str], args: argparse.Namespace, database: Database, end: Lsn, dsn: str
) -> dict[str, Any]:
    """All paces in turn."""
    paces = {name: PACES[name] for name in names}
    base: list[float] = []
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in paces}
    for run in range(args.runs):
        base.append(_timed(database, f"base_{run}", end))
        for name, options in paces.items():
            database.copy_slot("pace")
            watch = walsender.Watch(database, "pace")
            watch.start()
            done = emptyloop.run(dsn, "pace", database.publication, end, *options)
            watch.is_over.set()
            watch.join()
            runs[name].append({**done, "walsender": watch.user + watch.system})
            corpus.drop_slot(database, "pace")
            print(f"run {run}, {name}: {runs[name][-1]['seconds']:.2f} s", flush=True)
    results = {name: _summary(done, args.rows, base) for name, done in runs.items()}
    best = max(
        (name for name in results if name not in {AUTO, _RECORDS, _WIDE}),
        key=lambda name: results[name]["rows_per_second"]["median"],
        default=AUTO,
    )
    auto = runs.get(AUTO, [])
    return {
        "pg_recvlogical_rows_per_second": corpus.spread([args.rows / s for s in base]),
        "paces": results,
        "best": best,
        "auto_over_best": corpus.spread(
            [b["seconds"] / a["seconds"] for a, b in zip(auto, runs[best], strict=True)]
        )
        if auto
        else None,
    }


def _timed(database: Database, slot: str, end: Lsn) -> float:
    database.copy_slot(slot)
    seconds: float = live.run_recvlogical(database, slot, end)["seconds"]
    corpus.drop_slot(database, slot)
    return seconds


def _summary(done: list[dict[str, Any]], rows: int, base: list[float]) -> dict[str, Any]:
    millions = rows / 1e6
    return {
        "rows_per_second": corpus.spread([rows / run["seconds"] for run in done]),
        "ratio": corpus.spread([b / run["seconds"] for b, run in zip(base, done, strict=True)]),
        "cpu_seconds_per_million_rows": corpus.spread(
            [run["cpu_seconds"] / millions for run in done]
        ),
        "walsender_cpu_seconds_per_million_rows": corpus.spread(
            [run["walsender"] / millions for run in done]
        ),
        "reads_per_second": round(statistics.median(r["reads"] / r["seconds"] for r in done)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=corpus.SHAPES, default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--paces", nargs="+", choices=list(PACES), default=list(PACES))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or corpus.ROWS[args.shape]
    corpus.write_result(args.out, measure(args))


if __name__ == "__main__":
    main()
