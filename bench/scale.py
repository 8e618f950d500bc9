"""Does landing stay as fast and as small as work grows?

Recordings without a server (see `stream.py`), landed by `gaussdecode replay`; one curve per
thing that grows, each with everything else as in its first point:

    bytes         of stream
    tables        that change in turn, row by row
    columns       of the one table
    transaction   rows of each transaction

rows/s and MB/s of recorded bytes, from the moment the stream begins; CPU seconds; the most
memory each process had; files per publication, and the stage that limited. The base of each curve is its own first point.

With ``--tables`` the curve of tables has these points instead, of a few rows for each table: what a
table costs that a publication touches.

    python bench/scale.py [--curves NAME ...] [--tables N ...] [--large | --short] [--out FILE]
"""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import corpus
import processes
import stream
from kit import landing
from stream import Shape

_MB: Final = 1_000_000
_CURVES: Final[dict[str, Sequence[Shape]]] = {
    "bytes": [Shape(total=size * _MB) for size in (500, 1000, 2000, 4000)],
    "tables": [Shape(tables=count) for count in (1, 10, 100, 500, 2000)],
    "columns": [Shape(columns=count, rows=100) for count in (1, 10, 100, 400, 1600)],
    "transaction": [
        Shape(rows=10**power, total=max(300, 220 * 10**power // _MB) * _MB) for power in range(8)
    ],
}
_FEW: Final = 2000  # bytes of stream for each table
_SHORT: Final = 3
_SHORT_ROWS: Final = 1_000_000
_LARGE: Final = [Shape(total=size * _MB) for size in (1000, 5000, 10_000, 20_000)]


def land(recording: Path, root: Path, decoders: int) -> dict[str, Any]:
    """Land a recording; gives what it cost and how many files it made."""
    shutil.rmtree(root, ignore_errors=True)
    cost = processes.run(
        [sys.executable, "-m", "gaussdecode", "replay", str(recording), "--root", str(root),
         "--decoders", str(decoders), "--json"]
    )  # fmt: skip
    report = json.loads(cost["output"])
    entries = [entry for entry in landing.read_entries(root) if entry["files"]]
    files = [len(entry["files"]) for entry in entries]
    sizes = [path.stat().st_size for path in (root / "commits").glob("*.json")]
    cost |= {"seconds": report["seconds"], "limit": report["limit"]["stage"]}
    return {
        **cost,
        "entries": len(entries),
        "entry_bytes_max": max(sizes, default=0),
        "files_per_entry_max": max(files, default=0),
    }


def point(shape: Shape, directory: Path, decoders: int) -> dict[str, Any]:
    """One point of a curve."""
    path = directory / "recording"
    rows = stream.write(path, shape)
    size = path.stat().st_size
    cost = land(path, directory / "root", decoders)
    path.unlink()
    seconds = max(cost["seconds"], 1e-3)
    return {
        "tables": shape.tables,
        "columns": shape.columns,
        "rows_per_transaction": shape.rows,
        "rows": rows,
        "recorded_bytes": size,
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds),
        "mb_per_second": round(size / seconds / _MB, 1),
        "cpu_seconds_per_gb": round(cost["cpu_seconds"] / size * 1e9, 2),
        "peak_memory": cost["peak_bytes"],
        "entries": cost["entries"],
        "entry_bytes_max": cost["entry_bytes_max"],
        "files_per_entry_max": cost["files_per_entry_max"],
        "limit": cost["limit"],
    }


def _shapes(curve: str, *, is_large: bool, is_short: bool) -> Sequence[Shape]:
    """The points of a curve."""
    if is_large and curve == "bytes":
        return _LARGE
    if not is_short:
        return _CURVES[curve]
    return [
        dataclasses.replace(shape, total=shape.total // _SHORT)
        for shape in _CURVES[curve]
        if shape.rows <= _SHORT_ROWS
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", nargs="+", choices=sorted(_CURVES), default=sorted(_CURVES))
    parser.add_argument("--decoders", type=int, default=1)
    parser.add_argument("--tables", nargs="+", type=int, default=[], help="points of that curve")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--large", action="store_true", help="1 to 20 GB of stream")
    size.add_argument("--short", action="store_true", help="a fraction of each point")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    curves: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for curve in args.curves:
            shapes = _shapes(curve, is_large=args.large, is_short=args.short)
            if curve == "tables" and args.tables:
                shapes = [Shape(tables=count, total=_FEW * count) for count in args.tables]
            curves[curve] = []
            for shape in shapes:
                curves[curve].append(point(shape, directory, args.decoders))
                print(f"{curve}: {json.dumps(curves[curve][-1])}", flush=True)
    result = {
        "bench": "scale",
        "decoders": args.decoders,
        "curves": curves,
        "machine": corpus.machine(),
    }
    corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
