"""A model of throughput: from the CPU time that each stage spends on a GB to GB/s, and the limit.

Pure. A stage that is one thread does no more than one second of work per second; decoders and
writer lanes share theirs; and all of them together have no more than the cores. The slowest of
these is the rate::

    min(1/receive, decoders/decode, 1/collect, lanes/encode, 1/publish, cores/total)

The model takes the cost of a GB as the same with any number of cores, decoders and lanes, and
stages as never waiting for what is not a stage: it knows no disk, no bandwidth of memory, no
lock of an interpreter, no server that sends.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Final

from gaussdecode.daemon.status.limit import Stage

CORES: Final = "cores"
_STAGES: Final = (Stage.RECEIVE, Stage.DECODE, Stage.COLLECT, Stage.ENCODE, Stage.COMMIT)


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds per GB of wire, of each stage; of several processes or threads their sum.

    Attributes:
        by_stage: a stage that is not there costs nothing. Where the reader decodes, all of its
            process is `Stage.DECODE`.
        other: of what can be done beside every stage, which needs a core, but limits nothing.
    """

    by_stage: Mapping[Stage, float]
    other: float = 0.0

    @property
    def total(self) -> float:
        """Of everything."""
        return sum(self.by_stage.values()) + self.other


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """What the stages run on.

    Attributes:
        cores: for these processes alone; what others take of a core is not in it.
        decoders: `parallel-decode-num`; with 1 the reader decodes.
        lanes: `landing.writer-lanes`.
        shares: of the time in which a stage may run at all; 1 for those that are not there.
    """

    cores: float
    decoders: int
    lanes: int
    shares: Mapping[Stage, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """A rate and what keeps it from being higher.

    Attributes:
        gb_per_second: of wire.
        limit: a `Stage`, or `CORES`.
        next_gb_per_second: the second lowest bound: how far the limit may be moved.
    """

    gb_per_second: float
    limit: str
    next_gb_per_second: float


def bounds(costs: Costs, setup: Setup) -> dict[str, float]:
    """GB/s that each stage allows, and the cores."""
    workers = {Stage.DECODE: setup.decoders, Stage.ENCODE: setup.lanes}
    found = {
        str(stage): _rate(workers.get(stage, 1) * setup.shares.get(stage, 1.0), cost)
        for stage in _STAGES
        if (cost := costs.by_stage.get(stage, 0.0)) > 0
    }
    return {**found, CORES: _rate(setup.cores, costs.total)}


def _rate(workers: float, cost: float) -> float:
    return workers / cost if cost > 0 else math.inf


def predict(costs: Costs, setup: Setup) -> Prediction:
    """The lowest bound."""
    (limit, rate), *others = sorted(bounds(costs, setup).items(), key=lambda bound: bound[1])
    return Prediction(rate, limit, others[0][1] if others else math.inf)


def best(
    joined: Costs, split: Costs, cores: float, decoders: Iterable[int], lanes: Iterable[int]
) -> tuple[Setup, Prediction]:
    """The fastest choice of decoders and lanes; of equal ones that with the fewest.

    Args:
        joined: measured with one decoder: the reader decodes.
        split: measured with more.
        cores: of the machine.
        decoders: to choose from.
        lanes: likewise.
    """
    choices = [Setup(cores, count, more) for count in decoders for more in lanes]
    found = [
        (choice, predict(joined if choice.decoders == 1 else split, choice)) for choice in choices
    ]
    return max(
        found,
        key=lambda each: (each[1].gb_per_second, -(each[0].decoders + each[0].lanes)),
    )
