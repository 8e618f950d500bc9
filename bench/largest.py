"""How large may a transaction be, and how many may be open, under a kernel's limit of memory?

    rows   one transaction of `--rows` narrow rows, from a live server that streams it while it
           is open
    bytes  the same of `--gigabytes` on the wire: texts of a megabyte, which the server holds
           compressed, so that its own disk is no limit
    many   `--open` transactions at once whose blocks come in turn (a recording without a server)
    spill  what a transaction costs that waited on disk over one that waited in memory, in CPU
           seconds of all processes, run by run in turn (a recording)

All processes of the daemon share one memory cgroup of `--limit` MB, of version 1 or 2 (needs root, who
may make one): whoever takes more is killed. `peak` is the most anonymous and shared memory that each process
had, `spool` the most that lay in spool/, `equal` whether count and sum of the landed keys are
the server's.

    python bench/largest.py [--what NAME ...] [--rows N] [--gigabytes N] [--open N] [--limit MB] [--out FILE]
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import corpus
import live
import processes
import pyarrow.compute as pc
import pyarrow.parquet as pq
import replay
import stream
import streaming
from kit.daemon import Daemon
from kit.postgres import Database, Postgres, run

_MB: Final = 1 << 20
_LOOK_SECONDS: Final = 0.2
_ROOTS: Final = (
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
)
_SPILL_ROWS: Final = 20_000_000  # of which memory holds a fraction
_TEXT_BYTES: Final = 1_000_000


@contextlib.contextmanager
def limited(megabytes: int) -> Iterator[Path]:
    """A memory cgroup of so many MB, which this process is in meanwhile."""
    root, limit = next((Path(r), name) for r, name in _ROOTS if (Path(r) / "cgroup.procs").exists())
    group = root / f"gaussdecode-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(megabytes * _MB))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield group
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        for _ in range(100):  # the kernel takes a moment to forget who was in it
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


class SpoolWatch(threading.Thread):
    """The most that a file without a name below a directory had on disk, in bytes."""

    def __init__(self, pid: int, spool: Path) -> None:
        super().__init__(daemon=True)
        self._descriptors = Path(f"/proc/{pid}/fd")
        self._spool = str(spool)
        self.is_over = threading.Event()
        self.peak = 0

    def run(self) -> None:
        """Look until it is over."""
        while not self.is_over.wait(_LOOK_SECONDS):
            held = 0
            with contextlib.suppress(OSError):
                for each in self._descriptors.iterdir():
                    with contextlib.suppress(OSError):
                        if os.readlink(each).startswith(self._spool):
                            held += each.stat().st_blocks * 512
            self.peak = max(self.peak, held)


def one_transaction(
    server: Postgres, directory: Path, limit: int, statements: list[str], count: int
) -> dict[str, Any]:
    """Land one transaction of a live server; `statements` make it."""
    database = Database(server, "bench_largest")
    database.execute("CREATE TABLE public.t (id int8 PRIMARY KEY, n int4, note text)")
    database.execute("ALTER TABLE public.t ALTER COLUMN note SET COMPRESSION pglz")
    database.create_slot()
    directory.mkdir()
    config = {"source": {"streaming": "on"}, "landing": streaming.SIZES}
    daemon = Daemon(database, directory, config=config)
    with limited(limit), daemon, database.connect() as session:
        daemon.wait_for_state("streaming")
        watch = processes.ProcessWatch(daemon.pid)
        spool = SpoolWatch(daemon.pid, daemon.root / "spool")
        watch.start()
        spool.start()
        began = time.perf_counter()
        run(session, "BEGIN")
        for number, statement in enumerate(statements, start=1):
            run(session, statement)
            print(f"\r  {number}/{len(statements)} of the transaction", end="", flush=True)
        before = -1.0
        while (received := live.wire_bytes(daemon)) != before:
            before = received
            time.sleep(3.0)
        print(f"\n  {received / 1e9:.1f} GB received, still open", flush=True)
        assert not any(entry["files"] for entry in daemon.entries()), "open, and already landed"
        committed = time.perf_counter()
        run(session, "COMMIT")
        while sum(f["rows"] for e in daemon.entries() for f in e["files"]) < count:
            live.check_running(daemon)
            time.sleep(0.2)
        ended = time.perf_counter()
        watch.is_over.set()
        spool.is_over.set()
        (slot,) = database.execute(
            "SELECT spill_bytes, stream_bytes FROM pg_stat_replication_slots "
            f"WHERE slot_name = '{database.slot}'"
        )
        daemon.stop()
    size = sum(path.stat().st_size for path in daemon.root.rglob("*") if path.is_file())
    result = {
        "rows": count,
        "wire_bytes": received,
        "seconds": round(ended - began, 1),
        "commit_to_durable_seconds": round(ended - committed, 1),
        "cpu_seconds": {name: round(spent, 1) for name, spent in watch.cpu_seconds.items()},
        "peak": watch.peak_bytes,
        "spool": spool.peak,
        "landed_bytes": size,
        "server_spilled_bytes": int(slot[0]),
        "server_streamed_bytes": int(slot[1]),
        "equal": landed_sum(daemon.root) == (count, count * (count + 1) // 2),
    }
    database.drop()
    return result


def landed_sum(root: Path) -> tuple[int, int]:
    """Count and sum of the keys that landed, file by file."""
    count = total = 0
    for entry in sorted((root / "commits").glob("*.json")):
        for file in json.loads(entry.read_text())["files"]:
            if "public.t" in file["path"]:
                keys = pq.read_table(root / file["path"], columns=["id"]).column(0)
                count += len(keys)
                total += pc.sum(keys).as_py()
    return count, total


def rows(server: Postgres, directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Many rows."""
    step = 1_000_000
    statements = [
        f"INSERT INTO public.t SELECT g, g % 1000, md5(g::text) FROM generate_series({at + 1}, "
        f"{min(at + step, args.rows)}) g"
        for at in range(0, args.rows, step)
    ]
    return one_transaction(server, directory / "rows", args.limit, statements, args.rows)


def size(server: Postgres, directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Many bytes."""
    count, step = args.gigabytes * 1000, 500
    statements = [
        f"INSERT INTO public.t SELECT g, g % 1000, repeat(md5(g::text), {_TEXT_BYTES // 32}) "
        f"FROM generate_series({at + 1}, {min(at + step, count)}) g"
        for at in range(0, count, step)
    ]
    return one_transaction(server, directory / "bytes", args.limit, statements, count)


def many(directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Many at once."""
    path = directory / "many"
    shape = stream.Shape(rows=30, open=args.open, total=500_000_000)
    count = stream.write(path, shape)
    with limited(args.limit):
        cost = replay.land(path, directory / "root", replay.Contender("parquet", 2, 2))
    landed = sum(
        file["rows"]
        for entry in (directory / "root" / "commits").glob("*.json")
        for file in json.loads(entry.read_text())["files"]
        if "public.t" in file["path"]
    )
    return {
        "open": args.open,
        "rows": count,
        "recorded_bytes": path.stat().st_size,
        "seconds": cost["seconds"],
        "cpu_seconds": cost["cpu_seconds"],
        "peak": cost["peak_bytes"],
        "equal": landed == count,
    }


def spill(directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    """On disk over in memory: the same rows as one transaction, and as many small ones."""
    paths = {}
    for name, count in (("spilled", _SPILL_ROWS), ("in_memory", 1000)):
        paths[name] = directory / name
        stream.write(paths[name], stream.Shape(rows=count, total=4_500_000_000))
    found: dict[str, list[float]] = {name: [] for name in paths}
    for number in range(args.runs):
        for name, path in paths.items():
            cost = replay.land(path, directory / "root", replay.Contender("parquet", 2, 2))
            found[name].append(cost["cpu_seconds"])
            print(f"  run {number}, {name}: {cost['cpu_seconds']:.1f} CPU s", flush=True)
    over = [a / b for a, b in zip(found["spilled"], found["in_memory"], strict=True)]
    return {"cpu_seconds": found, "ratio": corpus.spread(over), "median": statistics.median(over)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("rows", "bytes", "many", "spill")
    parser.add_argument("--what", nargs="+", choices=names, default=list(names))
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--gigabytes", type=int, default=50)
    parser.add_argument("--open", type=int, default=5000)
    parser.add_argument("--limit", type=int, default=2048, help="MB of all processes together")
    parser.add_argument("--runs", type=int, default=3, help="of spill")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {"bench": "largest", "limit_mb": args.limit, **corpus.machine()}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        for what in args.what:
            print(what, flush=True)
            if what == "many":
                result[what] = many(directory, args)
            elif what == "spill":
                result[what] = spill(directory, args)
            else:
                server = stack.enter_context(Postgres(17, {"max_wal_size": "4GB"}))
                measured = rows if what == "rows" else size
                result[what] = measured(server, directory, args)
            print(f"  {result[what]}", flush=True)
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
