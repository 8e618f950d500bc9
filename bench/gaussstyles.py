"""What does each style of GaussDB's stream cost, and what its largest rows?

The same transactions of a simulated server (inserts, updates, deletes; NULLs, escapes, letters
beyond ASCII, common values) are recorded once in every style, batched or not, and serially,
with `gaussdecode capture`; then each recording is landed with `gaussdecode replay`, run by run
and in turn. So all of the daemon is measured, and nothing of the simulator.

MB/s and CPU seconds per million changes, start-up included in the latter; `ratio` is a style's
changes per second over those of style b in batches. `largest` is one row whose single text has
so many bytes, half of which must be escaped in some styles: its MB/s should not fall with
its size.

    python bench/gaussstyles.py [--rows N] [--columns N] [--row-bytes N] [--large N ...]
        [--runs N] [--out FILE]
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final

import corpus
import processes
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussload import columns_of, row_of
from kit.gaussprofile import V6_0_0
from kit.gaussserver import GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.postgres import Postgres

_COMMAND: Final = (sys.executable, "-m", "gaussdecode")
_PARALLEL: Final = {"parallel_decode_num": 2}
STYLES: Final[dict[str, dict[str, object]]] = {
    "b_batched": {**_PARALLEL, "decode_style": "b", "sending_batch": 1},
    "b": {**_PARALLEL, "decode_style": "b", "sending_batch": 0},
    "t_batched": {**_PARALLEL, "decode_style": "t", "sending_batch": 1},
    "t": {**_PARALLEL, "decode_style": "t", "sending_batch": 0},
    "j_batched": {**_PARALLEL, "decode_style": "j", "sending_batch": 1},
    "j": {**_PARALLEL, "decode_style": "j", "sending_batch": 0},
    "serial": {"parallel_decode_num": 1},
}
_BASE: Final = "b_batched"
_TRANSACTION_ROWS: Final = 500
_ESCAPED: Final = 'ab"\\'  # of four letters two are escaped, in JSON


def fill(store: Store, args: argparse.Namespace) -> int:
    """Commit the transactions; gives the number of changes."""
    rng, changes = Random(1), 0
    table = store.create_table("public", "load", columns_of(args.columns), key=["id"])
    for first in range(0, args.rows, _TRANSACTION_ROWS):
        transaction = store.begin()
        ids = [
            transaction.insert(table, row_of(rng, table, number, args.row_bytes))[0]
            for number in range(first, first + _TRANSACTION_ROWS)
        ]
        for row_id in ids[::10]:
            transaction.update(table, row_id, {"c1": str(rng.randint(0, 9))})
        for row_id in ids[5::20]:
            transaction.delete(table, row_id)
        transaction.commit()
        changes += len(ids) + len(ids[::10]) + len(ids[5::20])
    return changes


def fill_large(store: Store, size: int) -> int:
    """Commit one row with a text of so many bytes."""
    table = store.create_table("public", f"large_{size}", {"id": "int8", "v": "text"}, key=["id"])
    transaction = store.begin()
    transaction.insert(table, {"id": "1", "v": _ESCAPED * (size // len(_ESCAPED))})
    transaction.commit()
    return 1


def record(server: GaussServer, style: str, directory: Path) -> Path:
    """Record all that the slot of a style holds."""
    path = directory / f"{style}.capture"
    path.unlink(missing_ok=True)
    config = lands(GaussDatabase(server, style), directory / style, **STYLES[style]).config_path
    subprocess.run([*_COMMAND, "capture", str(config), str(path)], check=True)
    return path


def land(path: Path, root: Path) -> dict[str, Any]:
    """Land a recording with one decoder."""
    shutil.rmtree(root, ignore_errors=True)
    cost = processes.run([*_COMMAND, "replay", str(path), "--root", str(root), "--json"])
    return {**cost, "seconds": json.loads(cost["output"])["seconds"]}


def compare(paths: dict[str, Path], changes: int, runs: int, root: Path) -> dict[str, Any]:
    """Land the recordings in turn; give rates."""
    done: dict[str, list[dict[str, Any]]] = {style: [] for style in paths}
    for run in range(runs):
        for style, path in paths.items():
            done[style].append(land(path, root))
            print(f"run {run}, {style}: {done[style][-1]['seconds']:.2f} s", flush=True)
    base = [run["seconds"] for run in done[_BASE]]
    return {
        style: {
            "recorded_bytes": (size := paths[style].stat().st_size),
            "mb_per_second": corpus.spread([size / run["seconds"] / 1e6 for run in found]),
            "changes_per_second": corpus.spread([changes / run["seconds"] for run in found]),
            "cpu_seconds_per_million": corpus.spread(
                [run["cpu_seconds"] / changes * 1e6 for run in found]
            ),
            "ratio": corpus.spread([base[i] / run["seconds"] for i, run in enumerate(found)]),
            "peak_memory": found[-1]["peak_bytes"],
        }
        for style, found in done.items()
    }


def measure(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Record everything, then land it."""
    result: dict[str, Any] = {"bench": "gaussstyles", "runs": args.runs, "rows": args.rows,
                              "columns": args.columns, "row_bytes": args.row_bytes}  # fmt: skip
    with Postgres(15) as postgres:
        catalogue = Catalogue(postgres)
        for size in (0, *args.large):
            server = GaussServer(Store(), V6_0_0, catalogue=catalogue).start()
            for style in STYLES:
                server.create_slot(style)
            changes = fill_large(server.store, size) if size else fill(server.store, args)
            paths = {style: record(server, style, directory) for style in STYLES}
            server.crash()
            rates = compare(paths, changes, args.runs, directory / "root")
            if size:
                result.setdefault("largest", {})[str(size)] = {
                    style: {
                        key: rate[key] for key in ("recorded_bytes", "mb_per_second", "peak_memory")
                    }
                    for style, rate in rates.items()
                }
            else:
                result |= {"changes": changes, "styles": rates}
        catalogue.close()
    return {**result, "machine": corpus.machine()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--row-bytes", type=int, default=500)
    parser.add_argument("--large", type=int, nargs="*", default=[16_000_000, 64_000_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        corpus.write_result(args.out, measure(args, Path(name)))


if __name__ == "__main__":
    main()
