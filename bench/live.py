"""How fast do changes of a real server become durable Parquet?

Fills a table while slots hold its WAL, then measures, run by run and in turn:
`pg_recvlogical -f /dev/null` on a copy of the slot, which is what the server can send at
all, and the daemon on another copy, from the first moment it streams to the commit
entry behind the last row (when everything is received the daemon is asked to stop, so that
the commit interval is not what is measured). Both read the same WAL of the same server.

rows/s and MB/s of wire bytes (what the server sent); `ratio` is ours over
pg_recvlogical's. `peak_memory` is the most each process ever had resident.

    python bench/live.py [--shape narrow|wide] [--rows N] [--runs N] [--decoders N] [--out FILE]
"""

import argparse
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import corpus
from kit.daemon import Daemon
from kit.postgres import Database, Postgres

from gaussdecode.model.lsn import Lsn

_SIZES = {
    "target-file-size": "128MiB",
    "max-commit-interval": "10s",
    "row-group-rows": 131072,
    "row-group-bytes": "64MiB",
    "memory-bytes": "512MiB",
}


def time_recvlogical(database: Database, slot: str, end: Lsn) -> float:
    """Seconds that pg_recvlogical needs for everything up to `end`."""
    server: Postgres = database.server
    command = [
        str(server.program("pg_recvlogical")), "-d", database.dsn, "-S", slot, "--start",
        "--no-loop", "-f", "/dev/null", "-E", str(end), "-o", "proto_version=1",
        "-o", f"publication_names={database.publication}",
    ]  # fmt: skip
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def time_daemon(
    database: Database, slot: str, end: Lsn, directory: Path, decoders: int
) -> dict[str, Any]:
    """Let the daemon land everything up to `end`; give seconds, bytes and peak memory."""
    directory.mkdir()
    daemon = Daemon(
        database,
        directory,
        config={
            "decoding": {"parallel-decode-num": decoders},
            "landing": _SIZES,
            "ring": {"raw-ring-bytes": "16MiB", "decoded-ring-bytes": "64MiB"},
            "monitoring": {"log-level": "info"},
        },
    )
    daemon.write_config_value("slot", slot)
    with daemon:
        daemon.wait_for_state("streaming")
        began = time.perf_counter()
        while _received(daemon) < end:
            time.sleep(0.02)
        wire = _wire_bytes(daemon)
        # What is received is landed now, not when the commit interval is over.
        memory = corpus.peak_memory({"main": daemon.pid, **daemon.children()})
        assert daemon.process is not None
        daemon.process.terminate()
        while daemon.durable_lsn() < end:
            if not daemon.is_running:
                raise SystemExit(f"the daemon ended:\n{daemon.log_tail()}")
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        landed = sum(file["bytes"] for entry in daemon.entries() for file in entry["files"])
        daemon.wait()
    return {"seconds": seconds, "wire_bytes": wire, "memory": memory, "landed_bytes": landed}


def _received(daemon: Daemon) -> int:
    """How far the reader is."""
    if not daemon.is_running:
        raise SystemExit(f"the daemon ended:\n{daemon.log_tail()}")
    return Lsn.parse((daemon.status() or {}).get("reader_lsn") or "0/0")


def _wire_bytes(daemon: Daemon) -> float:
    """What the server sent."""
    found = re.search(
        r"^gaussdecode_source_received_bytes_total\{[^}]*\} (\S+)",
        daemon.get("/metrics")[1].decode(),
        re.MULTILINE,
    )
    return float(found[1]) if found else 0.0


def measure(args: argparse.Namespace, server: Postgres, directory: Path) -> dict[str, Any]:
    """Run both in turn on copies of one slot."""
    database = Database(server, f"bench_{args.shape}")
    corpus.make_table(database, args.shape)
    database.create_slot()
    start = database.wal_end()
    corpus.fill_table(database, args.shape, args.rows)
    end = database.wal_end()
    database.execute("CREATE TABLE public.done (id int4)")  # a commit behind the end
    database.execute("INSERT INTO public.done VALUES (1)")
    server.execute("CHECKPOINT")
    theirs: list[float] = []
    ours: list[dict[str, Any]] = []
    for run in range(args.runs):
        database.copy_slot(f"recv_{run}")
        database.copy_slot(f"ours_{run}")
        theirs.append(time_recvlogical(database, f"recv_{run}", end))
        ours.append(time_daemon(database, f"ours_{run}", end, directory / f"{run}", args.decoders))
        print(f"run {run}: pg_recvlogical {theirs[-1]:.2f} s, daemon {ours[-1]['seconds']:.2f} s")
    return summarize(args, end - start, theirs, ours)


def summarize(
    args: argparse.Namespace, wal_bytes: int, theirs: list[float], ours: list[dict[str, Any]]
) -> dict[str, Any]:
    """Turn seconds into rates."""
    wire = ours[0]["wire_bytes"]
    seconds = [run["seconds"] for run in ours]
    names = sorted({name for run in ours for name in run["memory"]})
    return {
        "bench": "live",
        "shape": args.shape,
        "rows": args.rows,
        "decoders": args.decoders,
        "wal_bytes": wal_bytes,
        "wire_bytes": wire,
        "parquet_bytes": ours[0]["landed_bytes"],
        "daemon_rows_per_second": corpus.spread([args.rows / s for s in seconds]),
        "daemon_mb_per_second": corpus.spread([wire / s / 1e6 for s in seconds]),
        "pg_recvlogical_rows_per_second": corpus.spread([args.rows / s for s in theirs]),
        "pg_recvlogical_mb_per_second": corpus.spread([wire / s / 1e6 for s in theirs]),
        "ratio": corpus.spread([t / s for t, s in zip(theirs, seconds, strict=True)]),
        "peak_memory": {name: max(run["memory"].get(name, 0) for run in ours) for name in names},
        "server": corpus.MAJOR,
        "machine": corpus.machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=sorted(corpus.SHAPES), default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--decoders", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or corpus.ROWS[args.shape]
    with tempfile.TemporaryDirectory() as name, corpus.start_server() as server:
        result = measure(args, server, Path(name))
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
