"""How fast does a recording become durable Parquet, without a server in the way?

Records the stream of a freshly filled table with `gaussdecode capture`, then lands the
recording with `gaussdecode replay`, with several numbers of decoders in turn: 1 decodes
in the reader's process, more use processes of their own.

rows/s and MB/s of recorded bytes, over the whole run of the command less its start-up (the
time it takes for an empty recording); `peak_memory` is the most each process ever had.

    python bench/replay.py [--shape narrow|wide] [--rows N] [--runs N] [--out FILE]
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import corpus
from kit.daemon import Daemon, command_line
from kit.postgres import Database

COMMAND = (sys.executable, "-m", "gaussdecode")


def record(database: Database, directory: Path, name: str) -> Path:
    """Record everything the slot holds now."""
    path = directory / name
    config = Daemon(database, directory).config_path
    subprocess.run([*COMMAND, "capture", str(config), str(path)], check=True)
    return path


class MemoryWatch(threading.Thread):
    """Looks at the peak memory of a process and its children until they end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.peaks: dict[str, int] = {}

    def run(self) -> None:
        """Look ten times a second."""
        while self._process.poll() is None:
            pids = {"main": self._process.pid, **self._children()}
            for name, pid in pids.items():
                try:
                    found = corpus.peak_memory({name: pid})
                except (OSError, ValueError):
                    continue
                self.peaks[name] = max(self.peaks.get(name, 0), found.get(name, 0))
            time.sleep(0.1)

    def _children(self) -> dict[str, int]:
        result: dict[str, int] = {}
        for task in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            try:
                pids = [int(text) for text in task.read_text().split()]
            except OSError:
                continue
            for pid in pids:
                command = command_line(pid)
                kind = "reader" if "source.reader" in command else "decoder"
                result[kind if kind == "reader" else f"decoder {len(result)}"] = pid
        return result


def land(path: Path, root: Path, decoders: int) -> tuple[float, dict[str, int]]:
    """Land a recording; give seconds and peak memory."""
    shutil.rmtree(root, ignore_errors=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, "replay", str(path), "--root", str(root), "--decoders", str(decoders)],
        stdout=subprocess.DEVNULL,
    )
    watch = MemoryWatch(process)
    watch.start()
    if process.wait():
        raise SystemExit("gaussdecode replay failed")
    return time.perf_counter() - began, watch.peaks


def measure(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Record once, land in turn with each number of decoders."""
    with corpus.start_server() as server:
        database = Database(server, "bench_replay")
        corpus.make_table(database, args.shape)
        database.create_slot()
        corpus.fill_table(database, args.shape, 1)
        empty = record(database, directory, "empty")
        corpus.fill_table(database, args.shape, args.rows)
        full = record(database, directory, "full")
    result: dict[str, Any] = {
        "bench": "replay",
        "shape": args.shape,
        "rows": args.rows,
        "recorded_bytes": full.stat().st_size,
    }
    seconds: dict[int, list[float]] = {count: [] for count in args.decoders}
    memory: dict[int, dict[str, int]] = {}
    for run in range(args.runs):
        for count in args.decoders:
            start_up, _ = land(empty, directory / "root", count)
            taken, memory[count] = land(full, directory / "root", count)
            seconds[count].append(taken - start_up)
            print(f"run {run}, {count} decoders: {taken:.2f} s less {start_up:.2f} s")
    for count, runs in seconds.items():
        result[f"decoders_{count}"] = {
            "rows_per_second": corpus.spread([args.rows / s for s in runs]),
            "mb_per_second": corpus.spread([full.stat().st_size / s / 1e6 for s in runs]),
            "peak_memory": memory[count],
        }
    return {**result, "server": corpus.MAJOR, "machine": corpus.machine()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=sorted(corpus.SHAPES), default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--decoders", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or 4 * corpus.ROWS[args.shape]
    with tempfile.TemporaryDirectory() as name:
        result = measure(args, Path(name))
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
