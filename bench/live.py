"""How fast do changes of a real server become durable Parquet?

Fills a table while a slot holds its WAL, then measures on copies of that slot, run by run and
in turn:

    pg_recvlogical  -f /dev/null: what the server can send at all
    empty_loop      our reader's libpq calls and pacing, with everything dropped
                    (`emptyloop.py`): the least that any consumer must do
    daemon          from the moment its stream begins to the commit entry after the last
                    row (when everything is received it is asked to stop, so that the
                    commit interval is not what is measured)

All read the same WAL of the same server. rows/s and MB/s of wire bytes (what the server sent).
`ratio` is ours over pg_recvlogical's, in rows/s, run by run. CPU seconds per million rows by
process, all threads; `cpu_beyond_empty_loop` is the sum of ours less the loop's, run by run.
`peak_memory` is the most anonymous and shared memory each process ever had. `limit` is the
stage that the daemon's own ``/status`` named last, `stages` what each stage worked and waited.

    python bench/live.py [--shape SHAPE] [--rows N] [--runs N] [--decoders N] [--out FILE]
"""

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import corpus
import emptyloop
import processes
from kit.daemon import Daemon, Json
from kit.postgres import Database, Postgres

from gaussdecode.model.lsn import Lsn

# For ten seconds or so: what a daemon imports in its first second would count for too much.
ROWS: Final = {"narrow": 1_500_000, "wide": 500_000, "changes": 800_000, "small": 800_000}

SIZES: Final = {
    "target-file-size": "128MiB",
    "max-commit-interval": "10s",
    "row-group-rows": 131072,
    "row-group-bytes": "64MiB",
    "memory-bytes": "512MiB",
}


def run_recvlogical(database: Database, slot: str, end: Lsn) -> dict[str, Any]:
    """Seconds that pg_recvlogical needs for everything up to `end`."""
    server: Postgres = database.server
    command = [
        str(server.program("pg_recvlogical")), "-d", database.dsn, "-S", slot, "--start",
        "--no-loop", "-f", "/dev/null", "-E", str(end), "-o", "proto_version=1",
        "-o", f"publication_names={database.publication}",
    ]  # fmt: skip
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds, after = time.perf_counter() - began, os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return {"seconds": seconds, "cpu_seconds": spent}


def run_empty_loop(database: Database, slot: str, end: Lsn) -> dict[str, Any]:
    """Receive everything up to `end` with the empty loop."""
    dsn = f"{database.dsn} sslmode=disable"
    return emptyloop.run(dsn, slot, database.publication, end)


def run_daemon(
    database: Database,
    slot: str,
    end: Lsn,
    directory: Path,
    decoders: int,
    source: Json | None = None,
) -> dict[str, Any]:
    """Let the daemon land everything up to `end`; give what it took. `source` adds to its keys."""
    directory.mkdir()
    daemon = Daemon(
        database,
        directory,
        config={
            "decoding": {"parallel-decode-num": decoders},
            "landing": SIZES,
            "source": source or {},
            "ring": {"raw-ring-bytes": "4MiB", "decoded-ring-bytes": "16MiB"},  # the defaults
            "monitoring": {"log-level": "info"},
        },
    )
    daemon.write_config_value("slot", slot)
    with daemon:
        watch = processes.ProcessWatch(daemon.pid)
        genesis = daemon.root / "commits" / f"{0:020d}.json"
        while not genesis.exists():  # the stream begins after it
            check_running(daemon)
            time.sleep(0.002)
        watch.restart()
        began = time.perf_counter()
        watch.start()
        status = _wait_until_received(daemon, end, began)
        wire = wire_bytes(daemon)
        # What is received is landed now, not when the commit interval is over.
        assert daemon.process is not None
        daemon.process.terminate()
        while daemon.durable_lsn() < end:
            check_running(daemon)
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        watch.look()
        watch.is_over.set()
        files = [file for entry in daemon.entries() for file in entry["files"]]
        daemon.wait()
    return {
        "seconds": seconds,
        "wire_bytes": wire,
        "cpu_seconds": watch.cpu_seconds,
        "memory": watch.peak_bytes,
        "landed_bytes": sum(file["bytes"] for file in files),
        "landed_rows": sum(f["rows"] for f in files if f["table"].startswith("public.")),
        "files": len(files),
        "limit": status.get("limit"),
        "stages": status.get("stages"),
    }


def check_running(daemon: Daemon) -> None:
    if not daemon.is_running:
        raise SystemExit(f"the daemon ended:\n{daemon.log_tail()}")


def _wait_until_received(daemon: Daemon, end: Lsn, began: float) -> Json:
    """Wait until the reader is there; give the last status."""
    status: Json = {}
    start = 0

    def share() -> float:
        nonlocal start, status
        check_running(daemon)
        status = daemon.status() or {}
        received = Lsn.parse(status.get("reader_lsn") or "0/0")
        start = start or received
        return 1.0 if received >= end else (received - start) / (end - start + 1)

    corpus.wait_until_done(share, began)
    return status


def wire_bytes(daemon: Daemon) -> float:
    """What the server sent."""
    found = re.search(
        r"^gaussdecode_source_received_bytes_total\{[^}]*\} (\S+)",
        daemon.get("/metrics")[1].decode(),
        re.MULTILINE,
    )
    return float(found[1]) if found else 0.0


def prepare(database: Database, shape: str, rows: int) -> tuple[Lsn, Lsn]:
    """Fill the slot; give where what is measured begins and ends."""
    corpus.make_table(database, shape, rows)
    database.create_slot()
    start = database.wal_end()
    corpus.fill_table(database, shape, rows)
    end = database.wal_end()
    database.execute("CREATE TABLE public.done (id int4)")  # a commit after the end
    database.execute("INSERT INTO public.done VALUES (1)")
    database.server.execute("CHECKPOINT")
    return start, end


def measure(args: argparse.Namespace, server: Postgres, directory: Path) -> dict[str, Any]:
    """Run all in turn, each on a copy of the slot."""
    database = Database(server, f"bench_{args.shape}")
    start, end = prepare(database, args.shape, args.rows)
    contenders: dict[str, Callable[[str], dict[str, Any]]] = {
        "pg_recvlogical": lambda slot: run_recvlogical(database, slot, end),
        "empty_loop": lambda slot: run_empty_loop(database, slot, end),
        "daemon": lambda slot: run_daemon(database, slot, end, directory / slot, args.decoders),
    }
    done: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for run in range(args.runs):
        for name, contender in contenders.items():
            slot = f"{name}_{run}"
            database.copy_slot(slot)
            done[name].append(contender(slot))
            corpus.drop_slot(database, slot)
        shown = ", ".join(f"{name} {runs[-1]['seconds']:.2f} s" for name, runs in done.items())
        print(f"run {run}: {shown}", flush=True)
    for landed in done["daemon"]:
        if landed["landed_rows"] < args.rows:
            raise SystemExit(f"{landed['landed_rows']} rows landed of {args.rows}")
    return summarize(args, end - start, done)


def summarize(
    args: argparse.Namespace, wal_bytes: int, done: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Turn seconds into rates."""
    theirs, loop, ours = (done[name] for name in ("pg_recvlogical", "empty_loop", "daemon"))
    rows, wire = args.rows, ours[0]["wire_bytes"]
    names = sorted({name for run in ours for name in run["memory"]})
    millions = rows / 1e6
    spent = [sum(run["cpu_seconds"].values()) / millions for run in ours]
    beyond = [s - run["cpu_seconds"] / millions for s, run in zip(spent, loop, strict=True)]
    ratio = [t["seconds"] / o["seconds"] for t, o in zip(theirs, ours, strict=True)]
    rates = {
        f"{name}_{unit}_per_second": corpus.spread([amount / run["seconds"] for run in runs])
        for name, runs in done.items()
        for unit, amount in (("rows", rows), ("mb", wire / 1e6))
    }
    return {
        "bench": "live",
        "shape": args.shape,
        "rows": rows,
        "runs": args.runs,
        "decoders": args.decoders,
        "wal_bytes": wal_bytes,
        "wire_bytes": wire,
        "parquet_bytes": ours[0]["landed_bytes"],
        "files": ours[0]["files"],
        **rates,
        "ratio": corpus.spread(ratio),
        "cpu_seconds_per_million_rows": {
            **{
                name: corpus.spread([run["cpu_seconds"].get(name, 0.0) / millions for run in ours])
                for name in names
            },
            "all": corpus.spread(spent),
            "empty_loop": corpus.spread([run["cpu_seconds"] / millions for run in loop]),
            "pg_recvlogical": corpus.spread([run["cpu_seconds"] / millions for run in theirs]),
        },
        "cpu_beyond_empty_loop": corpus.spread(beyond),
        "peak_memory": {name: max(run["memory"].get(name, 0) for run in ours) for name in names},
        "limit": ours[-1]["limit"],
        "stages": ours[-1]["stages"],
        "server": corpus.MAJOR,
        "machine": corpus.machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=corpus.SHAPES, default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--decoders", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or ROWS[args.shape]
    with tempfile.TemporaryDirectory() as name, corpus.start_server() as server:
        result = measure(args, server, Path(name))
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
