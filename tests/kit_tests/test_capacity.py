"""The model of the benches: the slowest of stages and cores is the rate, and is named."""

import pytest
from kit import capacity

from gaussdecode.daemon.status.limit import Stage

_SPLIT = capacity.Costs(
    {
        Stage.RECEIVE: 0.25,
        Stage.DECODE: 1.0,
        Stage.COLLECT: 0.5,
        Stage.ENCODE: 2.0,
        Stage.COMMIT: 0.0,
    },
    other=0.25,
)
_JOINED = capacity.Costs({Stage.DECODE: 1.2, Stage.COLLECT: 0.5, Stage.ENCODE: 2.0}, other=0.1)


def _limit(cores: float, decoders: int, lanes: int) -> tuple[float, str]:
    found = capacity.predict(_SPLIT, capacity.Setup(cores, decoders, lanes))
    return found.gb_per_second, found.limit


@pytest.mark.parametrize(
    ("cores", "decoders", "lanes", "expected"),
    [
        (2, 2, 2, (0.5, "cores")),
        (1.5, 2, 2, (0.375, "cores")),
        (8, 2, 2, (1.0, "encode")),
        (8, 1, 4, (1.0, "decode")),
        (64, 20, 16, (2.0, "collect")),
    ],
)
def test_the_slowest_is_the_rate(
    cores: float, decoders: int, lanes: int, expected: tuple[float, str]
) -> None:
    assert _limit(cores, decoders, lanes) == expected


def test_a_throttled_stage_does_its_share() -> None:
    setup = capacity.Setup(8, 2, 4, {Stage.DECODE: 0.25})
    assert capacity.predict(_SPLIT, setup) == capacity.Prediction(0.5, "decode", 2.0)


def test_a_stage_that_costs_nothing_is_no_limit() -> None:
    assert Stage.COMMIT not in capacity.bounds(_SPLIT, capacity.Setup(4, 2, 2))
    nothing = capacity.predict(capacity.Costs({}), capacity.Setup(4, 1, 1))
    assert nothing.gb_per_second == float("inf")


@pytest.mark.parametrize(
    ("cores", "decoders", "lanes", "limit"),
    [(1, 1, 1, "cores"), (3, 1, 2, "cores"), (4, 2, 2, "encode"), (64, 2, 4, "decode")],
)
def test_the_best_is_the_fastest_with_the_fewest(
    cores: int, decoders: int, lanes: int, limit: str
) -> None:
    setup, prediction = capacity.best(_JOINED, _SPLIT, cores, range(1, 21), range(1, 17))
    assert (setup.decoders, setup.lanes, prediction.limit) == (decoders, lanes, limit)
