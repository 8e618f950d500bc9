"""How much CPU time does a GB of wire cost, from bytes to durable Parquet, and how much must it?

Recordings (see `scenarios.py`; a narrow and a wide one in pgoutput, decoded by the reader;
GaussDB's style b in batches, with two decoders) are landed by `gaussdecode replay`: N bytes of
each, and 3N, both on one core and on all. CPU seconds are user and system of all processes from
start to end. Run by run and in turn with the bases of `costbase.py`, one thread each: the same
bytes copied, the same values parsed from CSV, the same tables written as Parquet.

cost        of 3N on one core, per GB; start-up is in it
marginal    the difference of both, per GB: start-up is not in it
spread_out  the same on all cores: what two that share caches and units slow each other down by
            is in it
ratio       marginal cost over CSV and Parquet together, of the same run, each for the rows of one
            GB of wire; the base knows no order, no transactions, no checks and no syncs, and
            writes none of our columns; `ratio_encoded` has Parquet with our encodings

    python bench/cost.py [--shape NAME ...] [--runs N] [--bytes N] [--out FILE]

N is a third of BYTES. Landing from a recording costs neither the server's sending nor our
receiving: `live.py` and `gaussdb.py` measure those.
"""

import argparse
import dataclasses
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import corpus
import costbase
import processes
import recording
import scenarios

_SAMPLE_BYTES: Final = 128 << 20  # of wire, whose rows are parsed and written
_COMMAND: Final = (sys.executable, "-m", "gaussdecode", "replay")


@dataclasses.dataclass(frozen=True, slots=True)
class Landed:
    """What one replay cost.

    Attributes:
        wire_bytes: of the recording.
        rows: that landed.
        cpu_seconds: of all processes.
    """

    wire_bytes: int
    rows: int
    cpu_seconds: float

    @property
    def per_gb(self) -> float:
        """CPU seconds per GB."""
        return self.cpu_seconds / self.wire_bytes * 1e9


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    """What others spent in the same run.

    Attributes:
        copy: CPU seconds per GB of wire.
        csv_of_csv: per GB of CSV text.
        csv: for the rows of one GB of wire.
        parquet: likewise.
        encoded: likewise, with our encodings.
    """

    copy: float
    csv_of_csv: float
    csv: float
    parquet: float
    encoded: float


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One turn: a short recording and a long one, on one core and on all, and the bases."""

    short: Landed
    long: Landed
    spread_short: Landed
    spread_long: Landed
    base: Base

    @property
    def marginal(self) -> float:
        """CPU seconds of one more GB, on one core."""
        return _marginal(self.short, self.long)

    @property
    def spread_out(self) -> float:
        """CPU seconds of one more GB, on all cores."""
        return _marginal(self.spread_short, self.spread_long)

    @property
    def start_up(self) -> float:
        """CPU seconds that do not grow with the bytes."""
        return self.short.cpu_seconds - self.marginal * self.short.wire_bytes / 1e9

    @property
    def ratio(self) -> float:
        """Marginal cost over the bases of the values."""
        return self.marginal / (self.base.csv + self.base.parquet)


def _marginal(short: Landed, long: Landed) -> float:
    spent = long.cpu_seconds - short.cpu_seconds
    return spent / (long.wire_bytes - short.wire_bytes) * 1e9


def land(path: Path, root: Path, decoders: int, *, is_pinned: bool) -> Landed:
    """Land a recording into an empty directory."""
    shutil.rmtree(root, ignore_errors=True)
    command = [*_COMMAND, str(path), "--root", str(root), "--decoders", str(decoders)]
    pinned = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] if is_pinned else []
    cost = processes.run([*pinned, *command])
    return Landed(path.stat().st_size, costbase.landed_rows(root), cost["cpu_seconds"])


def base_of(path: Path, values: costbase.Values, rows_per_gb: float, directory: Path) -> Base:
    """Measure the bases once."""
    share = rows_per_gb / values.rows
    parsed = costbase.cpu_seconds(lambda: costbase.parse(values))
    file = directory / "base.parquet"
    written = costbase.cpu_seconds(lambda: costbase.write(values, file))
    encoded = costbase.cpu_seconds(lambda: costbase.write(values, file, is_as_ours=True))
    return Base(
        copy=costbase.copy_seconds_per_gb(path),
        csv_of_csv=parsed / values.text.size * 1e9,
        csv=parsed * share,
        parquet=written * share,
        encoded=encoded * share,
    )


def measure(scenario: scenarios.Scenario, total: int, runs: int, directory: Path) -> dict[str, Any]:
    """All runs of one scenario."""
    recorded = scenarios.record(scenario, directory, total)
    short, root = directory / "short", directory / "root"
    recording.shorten(recorded.path, short, recorded.path.stat().st_size // 3)
    first = land(short, root, scenario.decoders, is_pinned=False)  # for its rows; it warms up
    rows_per_gb = first.rows / first.wire_bytes * 1e9
    values = costbase.values_of(root, int(rows_per_gb * _SAMPLE_BYTES / 1e9))
    base_of(short, values, rows_per_gb, directory)  # once in vain: pyarrow imports as it goes
    done: list[Run] = []
    for number in range(runs):
        one, three, spread_one, spread_three = (
            land(path, root, scenario.decoders, is_pinned=is_pinned)
            for is_pinned in (True, False)
            for path in (short, recorded.path)
        )
        base = base_of(short, values, rows_per_gb, directory)
        done.append(Run(one, three, spread_one, spread_three, base))
        print(f"{scenario.name}, run {number}: {done[-1]}", file=sys.stderr, flush=True)
    return {
        "decoders": scenario.decoders,
        "rows_per_gb": round(rows_per_gb),
        "repeats_after_bytes": recorded.unique_bytes,
        "csv_bytes_per_wire_byte": round(values.text.size / values.rows * rows_per_gb / 1e9, 3),
        **summary(done),
    }


def summary(done: list[Run]) -> dict[str, Any]:
    """Figures of one scenario."""
    base = [run.base for run in done]
    return {
        "wire_bytes": [done[0].short.wire_bytes, done[0].long.wire_bytes],
        "cost_seconds_per_gb": corpus.spread([run.long.per_gb for run in done]),
        "marginal_seconds_per_gb": corpus.spread([run.marginal for run in done]),
        "spread_out_seconds_per_gb": corpus.spread([run.spread_out for run in done]),
        "start_up_seconds": corpus.spread([run.start_up for run in done]),
        "copy_seconds_per_gb": corpus.spread([each.copy for each in base]),
        "csv_seconds_per_gb_of_csv": corpus.spread([each.csv_of_csv for each in base]),
        "csv_seconds_per_gb": corpus.spread([each.csv for each in base]),
        "parquet_seconds_per_gb": corpus.spread([each.parquet for each in base]),
        "encoded_seconds_per_gb": corpus.spread([each.encoded for each in base]),
        "ratio": corpus.spread([run.ratio for run in done]),
        "ratio_with_start_up": corpus.spread(
            [run.long.per_gb / (run.base.csv + run.base.parquet) for run in done]
        ),
        "ratio_encoded": corpus.spread(
            [run.marginal / (run.base.csv + run.base.encoded) for run in done]
        ),
        "times_copy": corpus.spread([run.marginal / run.base.copy for run in done]),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--shape", nargs="+", choices=list(scenarios.SCENARIOS), default=list(scenarios.SCENARIOS)
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=3_000_000_000, help="of the long recording")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = {}
    for name in args.shape:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = measure(scenarios.SCENARIOS[name], args.bytes, args.runs, Path(directory))
    corpus.write_result(
        args.out,
        {"bench": "cost", "runs": args.runs, "scenarios": found, "machine": corpus.machine()},
    )


if __name__ == "__main__":
    main()
