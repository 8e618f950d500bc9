"""Is a change slower than what was kept of the last release, or does it ask for more memory?

Recordings are made without a server and landed, and the decoder runs alone, all on one core, in
turn; `results/check.json` holds what was kept. Per scenario:

    cpu           CPU time of a row over that of a row in `checkbase.py`, which runs before and
                  after: machines and noise change both
    instructions  per row, in place of it where `perf stat` counts them
    calls         for memory per thousand rows, of all processes (`allocations.py`)

CPU time is the least of several runs over the least of the base: noise only adds. Calls are a
median. A figure that is more than a tenth worse is measured again, until it is not, or the time
is over; then the exit status is 1.

Seen beside other work on two virtual cores, where two to nine times as many processes wanted
them, without a change: calls within 13 percent (`narrow` within 3); CPU time of the decoder within
12, of landings within 8 to 28, and time enough for one round only, so that `cpu` failed though
nothing had changed. A call per row and a decoder 12 percent slower were found. On such a machine
only `calls` can be believed; what is kept belongs to a quiet one.

    python bench/check.py [--keep] [--only SCENARIO ...] [--seconds N] [--kept FILE]
        [--samples FILE]
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import allocations
import checkrun
import corpus
import gaussrecording
import stream

NAMES: Final = ("narrow", "narrow_2", "wide", "small", "gauss_b", "decode")
KEPT: Final = Path(__file__).parent / "results" / "check.json"
PART: Final = 0.10
_SLACK: Final = {"calls": 1.0}  # beside the part: nearly nothing may double
_RUN: Final = str(Path(__file__).parent / "checkrun.py")
_LOOPS: Final = 200
_TIMES: Final = 4  # runs of a process
_ROUNDS: Final = 3
_MOST_ROUNDS: Final = 12
_KEPT_ROUNDS: Final = 6  # of what is kept: the least of more is the steadier
_SECONDS: Final = 165.0  # less than three minutes

Outcome = Literal["fine", "worse", "better", "unknown"]
Figures = dict[str, dict[str, float]]  # by kind and scenario


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to measure.

    Attributes:
        name: of it.
        rows: that a run turns into Parquet, or into columns.
        arguments: of `checkrun.py`.
    """

    name: str
    rows: int
    arguments: tuple[str, ...]


@dataclass(slots=True)
class Samples:
    """What was measured of one scenario so far, by kind; per row, but for calls.

    Attributes:
        cost: CPU seconds, or instructions.
        base: CPU seconds of the base.
        calls: per thousand rows.
    """

    cost: list[float] = field(default_factory=list)
    base: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)

    @property
    def cost_figure(self) -> float:
        """The least cost, over the least of the base where there is one."""
        return min(self.cost) / min(self.base, default=1.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure beside what was kept of it; `bound` is the most that is fine."""

    scenario: str
    kind: str
    kept: float | None
    now: float
    bound: float | None
    outcome: Outcome


def judge(scenario: str, kind: str, kept: float | None, now: float) -> Verdict:
    """Say whether a figure is fine; less is better."""
    if kept is None:
        return Verdict(scenario, kind, None, now, None, "unknown")
    slack = _SLACK.get(kind, 0.0)
    bound = kept + max(kept * PART, slack)
    outcome: Outcome = "fine"
    if now > bound:
        outcome = "worse"
    elif now < kept - max(kept * PART, slack):
        outcome = "better"
    return Verdict(scenario, kind, kept, now, bound, outcome)


def compare(kept: Mapping[str, Mapping[str, float]], now: Figures) -> list[Verdict]:
    """Judge every figure; `kept` may lack kinds and scenarios."""
    return [
        judge(scenario, kind, kept.get(kind, {}).get(scenario), value)
        for kind, found in now.items()
        for scenario, value in found.items()
    ]


def table(verdicts: Iterable[Verdict]) -> str:
    """Show them, a line each."""
    lines = [f"{'scenario':12} {'figure':12} {'kept':>9} {'now':>9} {'change':>8} {'bound':>9}"]
    for one in verdicts:
        kept = "-" if one.kept is None else f"{one.kept:.3f}"
        bound = "-" if one.bound is None else f"{one.bound:.3f}"
        change = f"{100 * (one.now / one.kept - 1):+.1f} %" if one.kept else "-"
        mark = {"fine": "", "worse": "WORSE", "better": "better", "unknown": "nothing kept"}
        lines.append(
            f"{one.scenario:12} {one.kind:12} {kept:>9} {one.now:9.3f} {change:>8} {bound:>9}"
            f"  {mark[one.outcome]}".rstrip()
        )
    return "\n".join(lines)


# ---- measuring


def prepare(directory: Path) -> list[Scenario]:
    """Write the recordings; gives what is to be measured."""

    def write(name: str, shape: stream.Shape) -> tuple[str, int]:
        path = directory / name
        return str(path), stream.write(path, shape)

    narrow, rows = write("narrow", stream.Shape(total=100_000_000))
    wide, wide_rows = write("wide", stream.Shape(columns=50, total=120_000_000))
    small, small_rows = write("small", stream.Shape(rows=2, total=60_000_000))
    gauss = str(directory / "gauss")
    gauss_rows = gaussrecording.write(Path(gauss), 20, 500, cycle_bytes=4 << 20, cycles=25)
    decoded = len(checkrun.decode_rows()) * _LOOPS
    return [
        Scenario("narrow", rows, ("replay", narrow)),
        Scenario("narrow_2", rows, ("replay", narrow, "--decoders", "2")),
        Scenario("wide", wide_rows, ("replay", wide)),
        Scenario("small", small_rows, ("replay", small)),
        Scenario("gauss_b", gauss_rows, ("replay", gauss)),
        Scenario("decode", decoded, ("decode", "--loops", str(_LOOPS))),
    ]


class Bench:
    """Measures scenarios, and keeps what it found.

    Args:
        directory: for landings.
        scenarios: what is to be measured.

    Attributes:
        cost: the kind of the first figure: ``cpu`` or ``instructions``.
        samples: by scenario.
    """

    def __init__(self, directory: Path, scenarios: Sequence[Scenario]) -> None:
        self._root = directory / "root"
        self._library = allocations.build()
        self._report = directory / "perf"
        self._scenarios = scenarios
        self.cost = "instructions" if can_count_instructions(self._report) else "cpu"
        self.samples = {one.name: Samples() for one in scenarios}

    def run(self, once_more: Callable[[int, Figures], set[str]]) -> None:
        """Measure in rounds, those scenarios whose names `once_more` gives."""
        wanted, rounds = set(self.samples), 0
        while wanted:
            for one in self._scenarios:
                if one.name in wanted:
                    self._measure_cost(one, self.samples[one.name])
                    if rounds % 2 == 0:
                        self._measure_calls(one, self.samples[one.name])
            rounds += 1
            wanted = once_more(rounds, self.figures())

    def figures(self) -> Figures:
        """What was found so far, by kind and scenario."""
        found = self.samples.items()
        return {
            self.cost: {name: one.cost_figure for name, one in found},
            "calls": {name: statistics.median(one.calls) for name, one in found},
        }

    def _measure_calls(self, one: Scenario, found: Samples) -> None:
        """Add samples of calls; the first landing of a process imports more, and is left out."""
        output = allocations.run(self._command(one, 3), self._library)
        found.calls += [run["calls"] / one.rows * 1000 for run in json.loads(output)[1:]]

    def _measure_cost(self, one: Scenario, found: Samples) -> None:
        """Add samples of CPU time with the base around, or of instructions."""
        if self.cost == "instructions":
            several, single = (self._instructions(one, times) for times in (_TIMES, 1))
            found.cost.append((several - single) / (_TIMES - 1) / one.rows)
            return
        runs = json.loads(_output(self._command(one, _TIMES, "--base")))
        found.cost += [run["cpu_seconds"] / one.rows for run in runs]
        found.base += [seconds for run in runs for seconds in run["base"]]

    def _instructions(self, one: Scenario, times: int) -> int:
        _output([*_perf(self._report), *self._command(one, times)])
        return instructions_of(self._report.read_text())

    def _command(self, one: Scenario, times: int, *options: str) -> list[str]:
        root = ["--root", str(self._root)] if one.arguments[0] == "replay" else []
        return [sys.executable, _RUN, "--times", str(times), *options, *one.arguments, *root]


def _output(command: Sequence[str]) -> str:
    """Standard output of a command; what it says beside is dropped, unless it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def _perf(report: Path) -> list[str]:
    return ["perf", "stat", "-x", ",", "-e", "instructions:u", "-o", str(report)]


def can_count_instructions(report: Path) -> bool:
    """Whether this machine counts them: most virtual ones do not."""
    if shutil.which("perf") is None:
        return False
    done = subprocess.run([*_perf(report), "true"], capture_output=True, check=False)
    return done.returncode == 0 and instructions_of(report.read_text()) > 0


def instructions_of(report: str) -> int:
    """What perf counted; 0 where it did not."""
    for line in report.splitlines():
        number, _, rest = line.partition(",")
        if "instructions" in rest and number.isdigit():
            return int(number)
    return 0


# ---- what was kept


def read_kept(path: Path) -> tuple[Figures, dict[str, Any]]:  # Any: JSON
    """The figures of this architecture, and the machine that they are from; empty without any."""
    record = json.loads(path.read_text()) if path.exists() else {}
    found = record.get(platform.machine(), {})
    return found.get("figures", {}), found.get("machine", {})


def keep(path: Path, figures: Figures) -> None:
    """Keep figures for this architecture; those of others and of other kinds stay."""
    record = json.loads(path.read_text()) if path.exists() else {"bench": "check"}
    before, _ = read_kept(path)
    merged = {kind: {**before.get(kind, {}), **found} for kind, found in figures.items()}
    record[platform.machine()] = {"figures": {**before, **merged}, "machine": corpus.machine()}
    path.write_text(json.dumps(record, indent=2) + "\n")


def notes(verdicts: Sequence[Verdict], before: Mapping[str, Any]) -> list[str]:
    """What a reader of the table should know beside it."""
    now = corpus.machine()
    found = [
        f"{name} is {now[name]}, and was {before.get(name)}: that may be the cause"
        for name in ("python", "pyarrow")
        if before and before.get(name) != now[name]
    ]
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 2 * cores and any(one.outcome == "worse" for one in verdicts):
        found.append(f"{load:.0f} processes want {cores} cores: CPU time is dearer then; again?")
    unknown = sorted({one.kind for one in verdicts if one.outcome == "unknown"})
    if unknown:
        found.append(
            f"nothing was compared where nothing is kept for {platform.machine()} "
            f"({', '.join(unknown)}): --keep on the last release writes it"
        )
    if any(one.outcome == "better" for one in verdicts):
        found.append("better by more than a tenth: --keep keeps it, so that it is not lost again")
    return found


# ---- the command


def measure(args: argparse.Namespace, kept: Figures) -> Bench:
    """Measure in rounds until nothing is worse, or the time is over."""
    began = time.monotonic()
    deadline = began + args.seconds
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    def once_more(rounds: int, figures: Figures) -> set[str]:
        nonlocal began
        took, began = time.monotonic() - began, time.monotonic()
        if rounds >= _MOST_ROUNDS or began + took > deadline:
            return set()
        if rounds < (_KEPT_ROUNDS if args.keep else _ROUNDS):
            return set(figures["calls"])
        worse = {one.scenario for one in compare(kept, figures) if one.outcome == "worse"}
        return set() if args.keep else worse

    with tempfile.TemporaryDirectory() as name:
        found = prepare(Path(name))
        began = time.monotonic()
        chosen = [one for one in found if not args.only or one.name in args.only]
        bench = Bench(Path(name), chosen)
        bench.run(once_more)
    return bench


def main() -> None:
    """Measure, compare, print; or keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the figures to compare with")
    parser.add_argument("--only", nargs="+", choices=NAMES)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of all, roughly")
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--samples", type=Path, help="write every single measurement there")
    args = parser.parse_args()
    kept, before = read_kept(args.kept)
    bench = measure(args, kept)
    if args.samples is not None:
        record = {name: dataclasses.asdict(found) for name, found in bench.samples.items()}
        args.samples.write_text(json.dumps(record) + "\n")
    verdicts = compare(kept, bench.figures())
    print(table(verdicts))
    if args.keep:
        keep(args.kept, bench.figures())
        return
    print("\n".join(notes(verdicts, before)))
    if any(one.outcome == "worse" for one in verdicts):
        sys.exit(1)


if __name__ == "__main__":
    main()
