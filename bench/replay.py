"""How fast does a recording become durable Parquet, without a server in the way?

Records the stream of a freshly filled table with `gaussdecode capture`, makes it longer (see
`recording.py`), then lands it with `gaussdecode replay` with several numbers of decoders, on
one core and on two, run by run and in turn: 1 decodes in the reader's process, more use
processes of their own. `scaling` is two cores over one with the same decoders.

rows/s and MB/s of recorded bytes, over the whole run of the command less its start-up (the
time it takes for an empty recording); CPU seconds of all processes per million rows;
`peak_memory` is the most anonymous and shared memory each process ever had.

    python bench/replay.py [--shape narrow|wide] [--rows N] [--times N] [--runs N] [--out FILE]
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import corpus
import processes
import recording
from kit.daemon import Daemon
from kit.postgres import Database

COMMAND = (sys.executable, "-m", "gaussdecode")


def record(database: Database, directory: Path, name: str) -> Path:
    """Record everything the slot holds now."""
    path = directory / name
    config = Daemon(database, directory).config_path
    subprocess.run([*COMMAND, "capture", str(config), str(path)], check=True)
    return path


def land(path: Path, root: Path, decoders: int, cores: int) -> dict[str, Any]:
    """Land a recording on so many cores; gives what `processes.run` gives."""
    shutil.rmtree(root, ignore_errors=True)
    return processes.run(
        ["taskset", "-c", f"0-{cores - 1}", *COMMAND, "replay", str(path), "--root", str(root),
         "--decoders", str(decoders)]
    )  # fmt: skip


def prepare(args: argparse.Namespace, directory: Path) -> tuple[Path, Path]:
    """Record an empty and a long stream."""
    with corpus.start_server() as server:
        database = Database(server, "bench_replay")
        corpus.make_table(database, args.shape)
        database.create_slot()
        corpus.fill_table(database, args.shape, 1)
        empty = record(database, directory, "empty")
        corpus.fill_table(database, args.shape, args.rows)
        full = record(database, directory, "full")
    long = directory / "long"
    recording.grow(full, long, args.times)
    full.unlink()
    return empty, long


def measure(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Land in turn with each number of decoders on each number of cores."""
    empty, long = prepare(args, directory)
    size, rows = long.stat().st_size, args.rows * args.times
    root = directory / "root"
    contenders = [(decoders, cores) for decoders in args.decoders for cores in (1, 2)]
    start_up = {key: land(empty, root, *key)["seconds"] for key in contenders}
    runs: dict[tuple[int, int], list[dict[str, Any]]] = {key: [] for key in contenders}
    for run in range(args.runs):
        for key in contenders:
            runs[key].append(land(long, root, *key))
            print(f"run {run}, decoders {key[0]}, cores {key[1]}: {runs[key][-1]['seconds']:.2f} s")
    result: dict[str, Any] = {
        "bench": "replay",
        "shape": args.shape,
        "rows": rows,
        "recorded_bytes": size,
    }
    for (decoders, cores), done in runs.items():
        seconds = [run["seconds"] - start_up[decoders, cores] for run in done]
        result[f"decoders_{decoders}_cores_{cores}"] = {
            "seconds": corpus.spread(seconds),
            "rows_per_second": corpus.spread([rows / s for s in seconds]),
            "mb_per_second": corpus.spread([size / s / 1e6 for s in seconds]),
            "cpu_seconds_per_million_rows": corpus.spread(
                [run["cpu_seconds"] / rows * 1e6 for run in done]
            ),
            "peak_memory": done[-1]["peak_bytes"],
        }
    for decoders in args.decoders:
        one, two = (
            statistics.median(
                run["seconds"] - start_up[decoders, cores] for run in runs[decoders, cores]
            )
            for cores in (1, 2)
        )
        result[f"scaling_decoders_{decoders}"] = round(one / two, 3)
    return {**result, "server": corpus.MAJOR, "machine": corpus.machine()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=sorted(corpus.SHAPES), default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--times", type=int, default=12, help="length in recordings of ROWS")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--decoders", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or corpus.ROWS[args.shape]
    with tempfile.TemporaryDirectory() as name:
        result = measure(args, Path(name))
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
