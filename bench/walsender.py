"""How far does the server itself limit, and by what: its CPU time for a row, by what it is asked for.

A table of the shape is filled while a slot holds its WAL. `pg_recvlogical -f /dev/null` then reads
copies of that slot, run by run and in turn, each asked otherwise; what counts is the CPU time of the
walsender that serves it, user and system apart, beside that of pg_recvlogical:

    nothing         pgoutput with a publication of another table: WAL is read, rows are put together
                    and thrown away; what is left is what every plug-in has to do
    text            pgoutput as the daemon asks for it: the base
    binary          the same with binary values
    two_columns     text, of a publication that lists the key and one column
    streaming       text, transactions in blocks while they are open (here none is large: the same)
    test_decoding   PostgreSQL's own plug-in for tests

`ceiling_rows_per_second` is what one walsender could send if it had a core for itself: one over its
CPU time. `ratio` is the text's CPU time over theirs.

    python bench/walsender.py [--shape SHAPE] [--rows N] [--runs N] [--out FILE]
"""

import argparse
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Final

import corpus
from kit.postgres import Database

from gaussdecode.model.lsn import Lsn

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS: Final = 0.01
WAYS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "nothing": ("pgoutput", {"proto_version": "1", "publication_names": "other"}),
    "text": ("pgoutput", {"proto_version": "1", "publication_names": "all"}),
    "binary": ("pgoutput", {"proto_version": "1", "publication_names": "all", "binary": "true"}),
    "two_columns": ("pgoutput", {"proto_version": "1", "publication_names": "two"}),
    "streaming": (
        "pgoutput", {"proto_version": "2", "publication_names": "all", "streaming": "on"}
    ),
    "test_decoding": ("test_decoding", {}),
}  # fmt: skip


class Watch(threading.Thread):
    """Remembers the CPU time of the walsender of a slot for as long as it lives."""

    def __init__(self, database: Database, slot: str) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._slot = slot
        self.user = self.system = 0.0
        self.is_over = threading.Event()

    def run(self) -> None:
        """Find its process, and look until it has gone."""
        pid = None
        with self._database.connect() as session:
            while pid is None and not self.is_over.is_set():
                found = session.execute(
                    "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [self._slot]
                ).fetchone()
                pid = found[0] if found else None
        while pid is not None and self._look(Path(f"/proc/{pid}/stat")):
            time.sleep(_LOOK_SECONDS)

    def _look(self, path: Path) -> bool:
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            return False
        self.user, self.system = int(fields[11]) / _TICKS, int(fields[12]) / _TICKS
        return True


def read(database: Database, slot: str, end: Lsn, options: dict[str, str]) -> dict[str, float]:
    """Let pg_recvlogical read all that the slot has; gives seconds of both sides."""
    command = [
        str(database.server.program("pg_recvlogical")), "-d", database.dsn, "-S", slot, "--start",
        "--no-loop", "-f", "/dev/null", "-E", str(end),
        *(part for key, value in options.items() for part in ("-o", f"{key}={value}")),
    ]  # fmt: skip
    watch = Watch(database, slot)
    watch.start()
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds, after = time.perf_counter() - began, os.times()
    watch.is_over.set()
    watch.join()
    spent = after.children_user + after.children_system
    return {
        "seconds": seconds,
        "user": watch.user,
        "system": watch.system,
        "consumer": spent - before.children_user - before.children_system,
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Read in turn, each way on a copy of a slot of its plug-in."""
    with corpus.start_server() as server:
        database = Database(server, "bench_walsender")
        corpus.make_table(database, args.shape, args.rows)
        database.execute("CREATE TABLE public.other (id int8)")
        database.execute("CREATE PUBLICATION other FOR TABLE public.other")
        database.execute('CREATE PUBLICATION "all" FOR TABLE public.' + args.shape)
        database.execute(f"CREATE PUBLICATION two FOR TABLE public.{args.shape} (id, c1)")
        database.create_slot()
        corpus.fill_table(database, args.shape, args.rows)
        end = Lsn.parse(database.execute("SELECT pg_current_wal_lsn()::text")[0][0])
        database.execute("SELECT pg_log_standby_snapshot()")  # something to send behind the end
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
        for run in range(args.runs):
            for name, (plugin, options) in WAYS.items():
                slot = f"{name}_{run}"
                database.copy_slot(slot, plugin)
                runs[name].append(read(database, slot, end, options))
                corpus.drop_slot(database, slot)
                print(f"run {run}, {name}: {runs[name][-1]}", flush=True)
    base = [run["user"] + run["system"] for run in runs["text"]]
    return {
        "bench": "walsender",
        "shape": args.shape,
        "rows": args.rows,
        "runs": args.runs,
        **{name: _summary(done, args.rows, base) for name, done in runs.items()},
        "server": corpus.MAJOR,
        "machine": corpus.machine(),
    }


def _summary(done: list[dict[str, float]], rows: int, base: list[float]) -> dict[str, Any]:
    spent = [run["user"] + run["system"] for run in done]
    millions = rows / 1e6
    return {
        "rows_per_second": corpus.spread([rows / run["seconds"] for run in done]),
        "walsender_cpu_seconds_per_million_rows": corpus.spread([s / millions for s in spent]),
        "of_it_system": corpus.spread([run["system"] / millions for run in done]),
        "consumer_cpu_seconds_per_million_rows": corpus.spread(
            [run["consumer"] / millions for run in done]
        ),
        "ceiling_rows_per_second": corpus.spread([rows / s for s in spent]),
        "ratio": corpus.spread([b / s for b, s in zip(base, spent, strict=True)]),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=corpus.SHAPES, default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or corpus.ROWS[args.shape]
    corpus.write_result(args.out, measure(args))


if __name__ == "__main__":
    main()
