"""What does it bring that transactions are streamed while they are open?

One transaction of many rows is committed while a daemon follows its slot, once sent whole and once
streamed while it is open. `seconds` counts from the COMMIT until its entry is durable. `spilled_bytes` and
`streamed_bytes` are of the server, for this transaction.

    python bench/streaming.py [--rows N] [--runs N] [--out FILE]
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import corpus
import live
from kit.daemon import Daemon
from kit.postgres import Database, Postgres, run

# What an entry waits for more is not what is measured.
SIZES: Final = {**live.SIZES, "max-commit-interval": "300ms"}


def commit_to_durable(
    server: Postgres, rows: int, streaming: str, directory: Path
) -> dict[str, float]:
    """Seconds from the COMMIT of one transaction of `rows` rows until its entry is durable."""
    database = Database(server, f"bench_open_{streaming}")
    database.execute(
        "CREATE TABLE public.t (id int8 PRIMARY KEY, n int4, at timestamptz, note text)"
    )
    database.create_slot()
    directory.mkdir()
    config = {"source": {"streaming": streaming}, "landing": SIZES}
    daemon = Daemon(database, directory, config=config)
    with daemon, database.connect() as session:
        daemon.wait_for_state("streaming")
        run(session, "BEGIN")
        for start in range(0, rows, 100_000):
            run(
                session,
                "INSERT INTO public.t SELECT g, g % 1000, now(), repeat('x', (g % 40)::int) "
                f"FROM generate_series({start + 1}, {start + 100_000}) g",
            )
        before = -1.0
        while (received := live.wire_bytes(daemon)) != before:  # all that comes while it is open
            before = received
            time.sleep(3.0)
        began = time.perf_counter()
        run(session, "COMMIT")
        database.execute("CREATE TABLE public.done (id int4)")
        while not _landed(daemon, rows):
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        (counts,) = database.execute(
            "SELECT spill_bytes, stream_bytes FROM pg_stat_replication_slots "
            f"WHERE slot_name = '{database.slot}'"
        )
        daemon.stop()
    database.drop()
    return {"seconds": seconds, "spilled_bytes": int(counts[0]), "streamed_bytes": int(counts[1])}


def _landed(daemon: Daemon, rows: int) -> bool:
    return sum(file["rows"] for entry in daemon.entries() for file in entry["files"]) >= rows


def measure(args: argparse.Namespace, server: Postgres, directory: Path) -> dict[str, Any]:
    """Both ways, one after the other."""
    result: dict[str, Any] = {
        "bench": "streaming", "rows": args.rows, "runs": args.runs, "open": {}, **corpus.machine(),
    }  # fmt: skip
    for streaming in ("off", "on"):
        runs = [
            commit_to_durable(server, args.rows, streaming, directory / f"{streaming}{number}")
            for number in range(args.runs)
        ]
        result["open"][streaming] = {
            "seconds": corpus.spread([each["seconds"] for each in runs]),
            "spilled_bytes": runs[-1]["spilled_bytes"],
            "streamed_bytes": runs[-1]["streamed_bytes"],
        }
        print(f"streaming {streaming}: {result['open'][streaming]}", flush=True)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, corpus.start_server() as server:
        corpus.write_result(args.out, measure(args, server, Path(directory)))


if __name__ == "__main__":
    main()
