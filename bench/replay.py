"""How fast does a recording become durable Parquet, without a server in the way?

Records the stream of a freshly filled table with `gaussdecode capture`, makes it longer (see
`recording.py`), then lands it with `gaussdecode replay` with several numbers of decoders, on
one core and on two, run by run and in turn: 1 decodes in the reader's process, more use
processes of their own. `scaling` is two cores over one with the same decoders. The same again
with a null sink (`nullreplay.py`): rows become Arrow and are dropped, which shows how
reading, decoding and collecting scale by themselves.

rows/s and MB/s of recorded bytes, from the moment the stream begins to the last row durable
and all processes gone (replay says it itself); CPU seconds of all processes, start-up
included, per million rows; `peak_memory` is the most anonymous and shared memory each process ever had; `stages` is
replay's own report, with the stage that limited.

    python bench/replay.py [--shape SHAPE] [--rows N] [--times N] [--runs N] [--out FILE]
"""

import argparse
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import corpus
import processes
import recording
from kit.daemon import Daemon
from kit.postgres import Database

COMMAND: Final = (sys.executable, "-m", "gaussdecode")
_COMMANDS: Final = {
    "parquet": (*COMMAND, "replay"),
    "null": (sys.executable, str(Path(__file__).parent / "nullreplay.py")),
}


class Contender(NamedTuple):
    """One way of landing."""

    sink: str
    decoders: int
    cores: int

    def __str__(self) -> str:
        sink = "" if self.sink == "parquet" else f"{self.sink}_"
        return f"{sink}decoders_{self.decoders}_cores_{self.cores}"


def record(database: Database, directory: Path, name: str) -> Path:
    """Record everything the slot holds now."""
    path = directory / name
    config = Daemon(database, directory).config_path
    subprocess.run([*COMMAND, "capture", str(config), str(path)], check=True)
    return path


def land(path: Path, root: Path, contender: Contender) -> dict[str, Any]:
    """Land a recording; gives what `processes.run` gives, and what replay says."""
    shutil.rmtree(root, ignore_errors=True)
    cost = processes.run(
        ["taskset", "-c", f"0-{contender.cores - 1}", *_COMMANDS[contender.sink], str(path),
         "--root", str(root), "--decoders", str(contender.decoders), "--json"]
    )  # fmt: skip
    report = json.loads(cost["output"])
    return {**cost, "seconds": report["seconds"], "report": report}


def prepare(args: argparse.Namespace, directory: Path) -> Path:
    """Record a stream and make it long."""
    with corpus.start_server() as server:
        database = Database(server, "bench_replay")
        corpus.make_table(database, args.shape, args.rows)
        database.create_slot()
        corpus.fill_table(database, args.shape, args.rows)
        full = record(database, directory, "full")
    long = directory / "long"
    recording.grow(full, long, args.times)
    full.unlink()
    return long


def measure(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Land in turn, each sink with each number of decoders on each number of cores."""
    long = prepare(args, directory)
    size, rows = long.stat().st_size, args.rows * args.times
    root = directory / "root"
    contenders = [
        Contender(*key) for key in itertools.product(args.sinks, args.decoders, args.cores)
    ]
    runs: dict[Contender, list[dict[str, Any]]] = {key: [] for key in contenders}
    for run in range(args.runs):
        for key in contenders:
            runs[key].append(land(long, root, key))
            print(f"run {run}, {key}: {runs[key][-1]['seconds']:.2f} s", flush=True)
    seconds = {key: [run["seconds"] for run in done] for key, done in runs.items()}
    return {
        "bench": "replay",
        "shape": args.shape,
        "rows": rows,
        "runs": args.runs,
        "recorded_bytes": size,
        **{str(key): _summary(done, seconds[key], rows, size) for key, done in runs.items()},
        **_scaling(seconds),
        "server": corpus.MAJOR,
        "machine": corpus.machine(),
    }


def _summary(
    done: list[dict[str, Any]], seconds: list[float], rows: int, size: int
) -> dict[str, Any]:
    """Figures of one contender."""
    return {
        "seconds": corpus.spread(seconds),
        "rows_per_second": corpus.spread([rows / s for s in seconds]),
        "mb_per_second": corpus.spread([size / s / 1e6 for s in seconds]),
        "cpu_seconds_per_million_rows": corpus.spread(
            [run["cpu_seconds"] / rows * 1e6 for run in done]
        ),
        "peak_memory": done[-1]["peak_bytes"],
        "stages": done[-1]["report"]["stages"],
        "limit": done[-1]["report"]["limit"],
    }


def _scaling(seconds: dict[Contender, list[float]]) -> dict[str, float]:
    """Two cores over one."""
    found = {}
    for key, spent in seconds.items():
        one = seconds.get(key._replace(cores=1))
        if key.cores == 2 and one is not None:
            name = str(key).removesuffix("_cores_2")
            found[f"scaling_{name}"] = round(statistics.median(one) / statistics.median(spent), 3)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=corpus.SHAPES, default="narrow")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--times", type=int, default=12, help="length in recordings of ROWS")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--decoders", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sinks", nargs="+", choices=list(_COMMANDS), default=list(_COMMANDS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rows = args.rows or corpus.ROWS[args.shape]
    with tempfile.TemporaryDirectory() as name:
        result = measure(args, Path(name))
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
