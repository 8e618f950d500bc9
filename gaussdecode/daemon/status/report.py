"""Report at the end of a run how long each stage worked and waited, and its bytes and rows.

Pure: given the metrics at the end of one run, which began at zero. With one decoder, decoding is a part of
the reader's work and is not shown separately.
"""

import dataclasses
import math
from typing import Any, Final

from gaussdecode.daemon.status.history import History, Sample, Values
from gaussdecode.daemon.status.limit import WAITS, Context, Limit, Stage, find_limit

_LEAST_SECONDS: Final = 1.0  # of a run of which anything can be said; arbitrary
_TOO_SHORT: Final = Limit(Stage.NONE, "The run was too short to name the limiting stage.", None)
_DECODERS: Final = "compare another decoding.parallel-decode-num; more are not always faster"
# The stage that a busiest stage's name stands for, and what would move it.
_BUSIEST: Final[dict[str, tuple[Stage, str | None]]] = {
    "receive and decode": (Stage.DECODE, _DECODERS),
    "receive": (Stage.RECEIVE, None),
    "decode": (Stage.DECODE, _DECODERS),
    "collect": (Stage.COLLECT, None),
    "encode": (Stage.ENCODE, "landing.writer-lanes, while the machine has idle cores"),
    "publish": (Stage.COMMIT, "a disk that syncs faster"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """The work of one stage; for several processes or threads the sum.

    Attributes:
        stage: its verb.
        count: processes or threads.
        busy_seconds: worked.
        waited_seconds: had nothing to do; None where nobody counts it.
        blocked_seconds: waited for room after it; None where nothing comes after it.
        bytes: taken in, or written by the stages that land.
        rows: rows taken in or written; None where the stage does not know rows.
    """

    stage: str
    count: int
    busy_seconds: float
    waited_seconds: float | None
    blocked_seconds: float | None
    bytes: int
    rows: int | None


def works(values: Values, decoder_count: int, lane_count: int) -> list[Work]:
    """Sum a reading of all metrics up by stage, in the order of the stream."""

    def total(name: str) -> float:
        return sum(values.get(f"gaussdecode_{name}", {}).values())

    received, landed = int(total("source_received_bytes_total")), int(total("land_bytes_total"))
    collected, rows = int(total("collect_rows_total")), int(total("land_rows_total"))
    blocked = total("collect_blocked_seconds_total")
    found = [
        Work(
            "receive" if decoder_count > 1 else "receive and decode",
            1,
            total("source_busy_seconds_total"),
            total("source_waited_seconds_total"),
            total("source_stalled_seconds_total"),
            received,
            None,
        ),
        Work(
            "decode",
            decoder_count,
            total("decode_busy_seconds_total"),
            total("decode_waited_input_seconds_total"),
            total("decode_waited_output_seconds_total"),
            int(total("decode_wire_bytes_total")),
            int(total("decode_rows_total")),
        ),
        Work(
            "collect",
            1,
            max(0.0, total("collect_busy_seconds_total") - blocked),
            total("collect_waited_seconds_total"),
            blocked,
            received,
            collected,
        ),
        Work("encode", lane_count, total("land_encoded_seconds_total"), None, None, landed, rows),
        Work("publish", 1, total("land_published_seconds_total"), None, None, landed, rows),
    ]
    return [work for work in found if work.stage != "decode" or decoder_count > 1]


def limit_of_run(found: list[Work], values: Values, seconds: float, context: Context) -> Limit:
    """Name the stage that limited a run whose input was at hand from the start.

    Where the reader waited for room, the waits tell, as in a daemon. Else nobody waited for
    anybody for long, and the limit is the stage that worked most; the reader's waiting is that
    for the others to end.

    Args:
        found: work of the stages.
        values: values at the end of the run.
        seconds: it lasted.
        context: context of the run.
    """
    if seconds < _LEAST_SECONDS:
        return _TOO_SHORT
    history = History()
    history.add(Sample(0.0))
    history.add(Sample.of(seconds, values))
    rates = history.rates(math.inf)
    assert rates is not None
    if rates.source_stalled_seconds_total >= WAITS:
        return find_limit(rates, context)
    most = max(found, key=lambda work: work.busy_seconds / work.count)
    stage, setting = _BUSIEST[most.stage]
    share = most.busy_seconds / most.count / seconds
    return Limit(
        stage,
        f"The stage {most.stage} took {min(share, 1.0):.0%} of the time, the largest share.",
        setting,
    )


def record(found: list[Work], seconds: float, limit: Limit) -> dict[str, Any]:  # Any: JSON
    """Spell the report as JSON."""
    return {
        "seconds": round(seconds, 3),
        "stages": {work.stage: _without_stage(work) for work in found},
        "limit": dataclasses.asdict(limit),
    }


def _without_stage(work: Work) -> dict[str, Any]:  # Any: JSON
    fields = dataclasses.asdict(work)
    del fields["stage"]
    return {name: round(v, 3) if isinstance(v, float) else v for name, v in fields.items()}


def table(found: list[Work], seconds: float) -> list[list[str]]:
    """Spell the report as cells, the header first.

    Shares are of the run's time, of one process or thread of the stage.
    """

    def share(value: float | None, count: int) -> str:
        return "" if value is None else f"{value / count / max(seconds, 1e-9):.0%}"

    cells = [["stage", "works", "waits for input", "waits for space", "MB/s", "rows/s"]]
    for work in found:
        rate = work.bytes / max(seconds, 1e-9) / 1e6
        cells.append(
            [
                work.stage if work.count == 1 else f"{work.stage} x{work.count}",
                share(work.busy_seconds, work.count),
                share(work.waited_seconds, work.count),
                share(work.blocked_seconds, work.count),
                f"{rate:.1f}",
                "" if work.rows is None else f"{work.rows / max(seconds, 1e-9):,.0f}",
            ]
        )
    return cells
