"""What does one huge row cost in memory, over all processes of the daemon?

A real server sends one row with a text of so many bytes, and the daemon lands it. Twenty
times a second the processes' memory is added up: heap, stacks and shared queues (`Pss` of
smaps_rollup, less what is of files), so that nothing shared counts twice. `row` is the most of
the sum above what it was before the row, over the size of the row; `at_peak` says who held it.

    python bench/rowmemory.py [--bytes N] [--decoders N ...] [--major N] [--out FILE]
"""

import argparse
import re
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

import corpus
import processes
from kit.daemon import Daemon
from kit.postgres import Database, Postgres

_LOOK_SECONDS: Final = 0.05
_PART: Final = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)


class MemoryWatch(threading.Thread):
    """Adds up the memory of a process and its children until it is over.

    Attributes:
        peak: bytes by process, when their sum was the largest.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.is_over = threading.Event()
        self.peak: dict[str, int] = {}

    def look(self) -> dict[str, int]:
        """Bytes by process, now."""
        found: dict[str, int] = {}
        for name, pid in {"main": self._pid, **processes.children(self._pid)}.items():
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            found[name] = 1024 * sum(map(int, _PART.findall(text)))
        return found

    def run(self) -> None:
        """Look until it is over, and keep the largest."""
        while not self.is_over.wait(_LOOK_SECONDS):
            found = self.look()
            if sum(found.values()) > sum(self.peak.values()):
                self.peak = found


def measure(server: Postgres, size: int, decoders: int, directory: Path) -> dict[str, Any]:
    """Land one row of so many bytes."""
    database = Database(server, f"row_{decoders}")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    config = {
        "decoding": {"parallel-decode-num": decoders},
        "landing": {"max-commit-interval": "1s"},
    }
    with Daemon(database, directory, config=config) as daemon:
        database.execute("INSERT INTO public.t VALUES (1, 'small')")
        daemon.catch_up()
        watch = MemoryWatch(daemon.pid)
        before = watch.look()
        watch.start()
        database.execute(
            f"INSERT INTO public.t SELECT 2, string_agg(md5(g::text), '') "
            f"FROM generate_series(1, {size // 32}) g"
        )
        daemon.catch_up()
        watch.is_over.set()
        watch.join()
        daemon.stop()
    grown = sum(watch.peak.values()) - sum(before.values())
    return {
        "decoders": decoders,
        "row_bytes": size,
        "rows": round(grown / size, 2),
        "before": before,
        "at_peak": {name: round(held / size, 2) for name, held in watch.peak.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=200_000_000)
    parser.add_argument("--decoders", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--major", type=int, default=18)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = []
    with Postgres(args.major, {"wal_sender_timeout": "10min"}) as server:
        for decoders in args.decoders:
            with tempfile.TemporaryDirectory() as name:
                results.append(measure(server, args.bytes, decoders, Path(name)))
    corpus.write_result(
        args.out, {"bench": "rowmemory", "results": results, "machine": corpus.machine()}
    )


if __name__ == "__main__":
    main()
