"""Tests for `gaussdecode.daemon.status.report`."""

import dataclasses

import pytest

from gaussdecode.daemon.status.limit import Context, Limit, Stage
from gaussdecode.daemon.status.report import limit_of_run, record, table, works

VALUES = {
    "source_received_bytes_total": 4e9,
    "source_busy_seconds_total": 2.0,
    "source_waited_seconds_total": 1.0,
    "source_stalled_seconds_total": 7.0,
    "decode_wire_bytes_total": 3.9e9,
    "decode_rows_total": 1000.0,
    "decode_busy_seconds_total": 8.0,
    "decode_waited_output_seconds_total": 10.0,
    "collect_busy_seconds_total": 9.0,
    "collect_blocked_seconds_total": 6.0,
    "collect_rows_total": 1000.0,
    "land_rows_total": 1001.0,
    "land_bytes_total": 5e8,
    "land_encoded_seconds_total": 19.0,
    "land_published_seconds_total": 0.5,
}
CONTEXT = Context(
    is_streaming=True,
    reason=None,
    is_disk_full=False,
    decoder_count=2,
    lane_count=2,
    usual_lag_seconds=0.0,
)


def readings(**changes: float) -> dict[str, dict[tuple[str, ...], float]]:
    """The metrics at the end of a run of ten seconds, some of them changed."""
    return {f"gaussdecode_{name}": {(): value} for name, value in {**VALUES, **changes}.items()}


def judge(decoders: int, seconds: float = 10.0, **changes: float) -> Limit:
    """Name the limit of such a run."""
    values = readings(**changes)
    context = dataclasses.replace(CONTEXT, decoder_count=decoders)
    return limit_of_run(works(values, decoders, 2), values, seconds, context)


def test_stages_are_summed_in_the_order_of_the_stream() -> None:
    """Labels are summed; what the collector was blocked is not work of its own."""
    values = readings()
    values["gaussdecode_decode_busy_seconds_total"] = {("0",): 3.0, ("1",): 5.0}
    found = {work.stage: work for work in works(values, 2, 2)}
    assert list(found) == ["receive", "decode", "collect", "encode", "publish"]
    assert found["decode"].busy_seconds == 8.0
    assert (found["collect"].busy_seconds, found["collect"].blocked_seconds) == (3.0, 6.0)
    assert (found["encode"].bytes, found["encode"].rows) == (500_000_000, 1001)


def test_one_decoder_is_a_part_of_the_reader() -> None:
    """It has no counters of its own, so it has no line of its own."""
    names = [work.stage for work in works(readings(), 1, 2)]
    assert names == ["receive and decode", "collect", "encode", "publish"]


def test_waits_for_room_name_the_limit() -> None:
    """As in a daemon: the stage after the last one that waits for room."""
    limit = judge(2)
    assert limit.stage is Stage.ENCODE
    assert limit.setting is not None
    assert "writer-lanes" in limit.setting


@pytest.mark.parametrize(
    ("changes", "decoders", "stage"),
    [
        ({"source_busy_seconds_total": 9.9}, 1, Stage.DECODE),
        ({"source_busy_seconds_total": 9.9}, 2, Stage.RECEIVE),
        ({"decode_busy_seconds_total": 19.8}, 2, Stage.DECODE),
        ({"collect_busy_seconds_total": 15.8}, 2, Stage.COLLECT),
        ({"land_published_seconds_total": 9.8}, 2, Stage.COMMIT),
        ({}, 2, Stage.ENCODE),
    ],
)
def test_without_waits_the_busiest_stage_is_the_limit(
    changes: dict[str, float], decoders: int, stage: Stage
) -> None:
    """A recording has no server to wait for, however long the reader had nothing to do."""
    given = {"source_stalled_seconds_total": 0.0, "source_waited_seconds_total": 8.0, **changes}
    assert judge(decoders, **given).stage is stage


def test_a_short_run_names_no_limit() -> None:
    """Starting up is most of it."""
    assert judge(2, 0.5).stage is Stage.NONE


def test_table_gives_shares_of_one_thread() -> None:
    """Two lanes that encoded 19 of 20 seconds worked 95 % of the time."""
    cells = {row[0]: row[1:] for row in table(works(readings(), 2, 2), 10.0)}
    assert cells["encode x2"] == ["95%", "", "", "50.0", "100"]
    assert cells["receive"] == ["20%", "10%", "70%", "400.0", ""]


def test_record_is_json_by_stage() -> None:
    """The same figures, whole."""
    found = record(works(readings(), 2, 2), 10.0, judge(2))
    assert found["stages"]["decode"]["bytes"] == 3_900_000_000
    assert found["stages"]["encode"]["busy_seconds"] == 19.0
    assert found["limit"]["stage"] == "encode"
