"""How fast would it be with other numbers of cores, and what would be the limit?

From the CPU seconds per GB of each stage (`stagecpu.py`) in landings of recordings
(`scenarios.py`) the model (`tests/kit/capacity.py`) predicts rates. Whether it may be believed is
checked on this machine first, run by run and in turn, each with several numbers of decoders:

cores_2         the rate on two cores, predicted from the costs on one
cores_1         the rate on one core, predicted from the costs on two
null_...        both with a null sink (`nullreplay.py`), where no core is short, but the stage
                that decodes
cores_2_decode_at_50%
                the rate on two cores where each process that decodes may use half of a core (or a
                fifth: `throttle.py`), from the costs on two without that

`error` is predicted over measured, less 1; `cores` is what other processes and the host left of
them in the landing that was measured, and the rate is predicted for so many; `busy` the share of
it that was used: while a landing begins and ends only some of its stages work, so that short ones
use less. What a core loses to its neighbour (caches, memory, the host) the model does not know.

Then predictions: for each number of cores the decoders and lanes that are best, and the stage
that is the limit. They are of a recording: nothing is received from a socket, and a real server's
walsender, on another machine or on cores of its own, is no part of it. The disk is not either
(everything is below /dev/shm, unless asked for elsewhere), and a GB costs with any number of
cores, decoders and lanes what it costs on two cores.

    python bench/model.py [--shape NAME ...] [--runs N] [--bytes N] [--cores N ...]
        [--directory DIR] [--out FILE]
"""

import argparse
import itertools
import math
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import corpus
import scenarios
from kit import capacity
from kit.capacity import Costs
from landings import LANES, OTHER, Landed, Landing, Way

from gaussdecode.daemon.status.limit import Stage

_SHAPES: Final = ("narrow", "wide", "gaussdb")
_MOST_DECODERS, _MOST_LANES = 20, 16  # that settings allow
Turn = dict[Way, Landed]
"""One run: what was landed each way."""


def ways(decoders: int) -> list[Way]:
    """What is landed in turn: on one core, on two, and throttled."""
    both = "0,1"
    shares = (0.5,) if decoders == 1 else (0.5, 0.2)
    return [
        *(Way(cpus, decoders, sink=sink) for sink in ("parquet", "null") for cpus in ("0", both)),
        *(Way(both, decoders, Stage.DECODE, share) for share in shares),
    ]


def turn(path: Path, directory: Path, decoders: list[int]) -> Turn:
    """Land each way once."""
    landed = {}
    for way in itertools.chain.from_iterable(map(ways, decoders)):
        found = landed[way] = Landing(path, directory / "root", way).result()
        seen = (
            f"{found.gb_per_second:.3f} GB/s, {found.setup.cores:.2f} cores, {found.busy:.0%} busy"
        )
        print(f"{way}: {seen}", file=sys.stderr, flush=True)
    return landed


def predicted(done: Turn, way: Way) -> capacity.Prediction:
    """Of one way: from the costs on as many cores as it had not, or without the throttle."""
    one, two = (Way(cpus, way.decoders, sink=way.sink) for cpus in ("0", "0,1"))
    return capacity.predict(done[one if way == two else two].costs, done[way].setup)


def check(done: list[Turn], way: Way) -> dict[str, Any]:
    """How well the model does on one way."""
    landed = [each[way] for each in done]
    found = [predicted(each, way) for each in done]
    both = list(zip(found, landed, strict=True))
    return {
        "mb_per_second": corpus.spread([one.gb_per_second * 1e3 for one in landed]),
        "predicted_mb_per_second": corpus.spread([one.gb_per_second * 1e3 for one in found]),
        "limit": found[-1].limit,
        "error": corpus.spread([one.gb_per_second / was.gb_per_second - 1 for one, was in both]),
        "cores": corpus.spread([one.setup.cores for one in landed]),
        "busy": corpus.spread([one.busy for one in landed]),
    }


def median_costs(done: list[Turn], way: Way) -> Costs:
    """The median of each stage over the runs."""
    found = [each[way].costs for each in done]

    def median(values: list[float]) -> float:
        return corpus.spread(values)["median"]

    stages = {stage: median([one.by_stage[stage] for one in found]) for stage in found[0].by_stage}
    return Costs(stages, median([one.other for one in found]))


def predictions(joined: Costs, split: Costs, cores: list[int], least: int) -> list[dict[str, Any]]:
    """For each number of cores: the best with the default lanes, and with the best."""
    found = []
    for count, lanes in itertools.product(cores, ([LANES], range(1, _MOST_LANES + 1))):
        choice, prediction = capacity.best(
            joined, split, count, range(least, _MOST_DECODERS + 1), lanes
        )
        after = prediction.next_gb_per_second * 1e3
        found.append(
            {
                "cores": count,
                "decoders": choice.decoders,
                "lanes": choice.lanes,
                "are_lanes_default": len(lanes) == 1,
                "mb_per_second": round(prediction.gb_per_second * 1e3, 1),
                "limit": prediction.limit,
                "next_limit_mb_per_second": round(after, 1) if math.isfinite(after) else None,
            }
        )
    return found


def measure(
    scenario: scenarios.Scenario, args: argparse.Namespace, directory: Path
) -> dict[str, Any]:
    """Land in turn, check, predict."""
    path = scenarios.record(scenario, directory, args.bytes).path
    decoders = [1, 2] if scenario.decoders == 1 else [2]
    Landing(path, directory / "root", Way("0,1", decoders[0])).result()  # warms up
    done = [turn(path, directory, decoders) for _ in range(args.runs)]
    costs = {count: median_costs(done, Way("0,1", count)) for count in decoders}
    return {
        "wire_bytes": path.stat().st_size,
        "costs_seconds_per_gb": {
            str(way): _record(median_costs(done, way)) for way in done[0] if way.throttled is None
        },
        "checks": {str(way): check(done, way) for way in done[0]},
        "predictions": predictions(
            costs[decoders[0]], costs[decoders[-1]], args.cores, scenario.decoders
        ),
    }


def _record(costs: Costs) -> dict[str, float]:
    stages = {str(stage): round(cost, 3) for stage, cost in costs.by_stage.items()}
    return {**stages, OTHER: round(costs.other, 3), "total": round(costs.total, 3)}


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """Checks and predictions as lines for people."""
    lines = [f"{'scenario':12} {'check, MB/s':34} cores measured predicted   error"]
    for name, result in found.items():
        for way, seen in result["checks"].items():
            cores, measured, predicted, error = (
                seen[key]["median"]
                for key in ("cores", "mb_per_second", "predicted_mb_per_second", "error")
            )
            lines.append(
                f"{name:12} {way:34} {cores:5.2f} {measured:8.0f} {predicted:9.0f} {error:+7.1%}"
            )
    lines.append(f"\n{'scenario':12} cores decoders lanes {'MB/s':>8} limit")
    lines += [
        f"{name:12} {line['cores']:5} {line['decoders']:8} {line['lanes']:5} "
        f"{line['mb_per_second']:8.0f} {line['limit']}"
        for name, result in found.items()
        for line in result["predictions"]
    ]
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", nargs="+", choices=list(scenarios.SCENARIOS), default=_SHAPES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="no disk's")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = {}
    for name in args.shape:
        with tempfile.TemporaryDirectory(dir=args.directory) as directory:
            found[name] = measure(scenarios.SCENARIOS[name], args, Path(directory))
    result = {"bench": "model", "runs": args.runs, "scenarios": found}
    corpus.write_result(args.out, {**result, "machine": corpus.machine()})
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
