"""Tests for `gaussdecode.daemon.status.limit`."""

import dataclasses
import math

import pytest

from gaussdecode.daemon.status.history import Sample
from gaussdecode.daemon.status.limit import Context, Limit, ServerHint, Stage, find_limit
from gaussdecode.daemon.status.stopped import Stopped

STREAMING = Context(
    is_streaming=True,
    reason=None,
    is_disk_full=False,
    decoder_count=4,
    lane_count=2,
    usual_lag_seconds=60.0,
)
BEHIND = Sample(30.0, source_lag_seconds=600.0)


def limit(rates: Sample | None, **context: object) -> Limit:
    """Judge, with parts of the context changed."""
    return find_limit(rates, dataclasses.replace(STREAMING, **context))  # type: ignore[arg-type]


def rates(**values: float) -> Sample:
    """A daemon that is behind, with these shares of the time per second."""
    return dataclasses.replace(BEHIND, **values)


SEEN = ServerHint("WalSenderMain", 0.0, 0.1, 0.1)  # as of a server that reads its log


def test_a_mark_that_waits_is_why_nothing_lands() -> None:
    """Not the server's log; and a landing by CSN cannot follow a standby."""
    behind = rates(source_waited_seconds_total=0.95)
    by_lsn = limit(behind, hint=SEEN)
    assert "standby-connection" in str(by_lsn.setting)
    by_csn = limit(behind, hint=SEEN, is_by_csn=True)
    assert by_csn.sentence == by_lsn.sentence
    assert by_csn.setting == "the server's disk"
    text = "for 2 transactions of dn1 that may be committing, for 70 s so far"
    held = limit(behind, hint=SEEN, is_by_csn=True, mark_waits=text)
    assert text in held.sentence
    assert "log" not in held.sentence
    assert "standby" not in str(held.setting)
    quiet = rates(source_lag_seconds=1.0, source_waited_seconds_total=0.99)
    assert limit(quiet, is_by_csn=True, mark_waits=text).stage is Stage.NONE


CASES = {
    "idle": (
        rates(source_lag_seconds=1.0, source_waited_seconds_total=0.99),
        Stage.NONE,
        None,
    ),
    "server": (rates(source_waited_seconds_total=0.9), Stage.SERVER, "pg_stat_activity"),
    "reader": (rates(source_busy_seconds_total=0.95), Stage.RECEIVE, "second slot"),
    "decoders": (
        rates(source_stalled_seconds_total=0.8, decode_busy_seconds_total=3.9),
        Stage.DECODE,
        "parallel-decode-num",
    ),
    "collector": (
        rates(
            source_stalled_seconds_total=0.8,
            decode_waited_output_seconds_total=3.0,
            collect_busy_seconds_total=0.99,
        ),
        Stage.COLLECT,
        "second slot",
    ),
    "lanes": (
        rates(
            source_stalled_seconds_total=0.8,
            decode_waited_output_seconds_total=3.0,
            collect_busy_seconds_total=0.99,
            collect_blocked_seconds_total=0.9,
            land_encoded_seconds_total=1.9,
        ),
        Stage.ENCODE,
        "writer-lanes",
    ),
    "lanes that sync": (
        rates(
            source_stalled_seconds_total=0.8,
            decode_waited_output_seconds_total=3.0,
            collect_blocked_seconds_total=0.9,
            land_encoded_seconds_total=1.0,
            land_synced_seconds_total=0.9,
        ),
        Stage.COMMIT,
        "a disk that syncs faster",
    ),
    "lanes that sync beside much work": (
        rates(
            source_stalled_seconds_total=0.8,
            decode_waited_output_seconds_total=3.0,
            collect_blocked_seconds_total=0.9,
            land_encoded_seconds_total=1.9,
            land_synced_seconds_total=0.8,
        ),
        Stage.ENCODE,
        "writer-lanes",
    ),
    "files that are synced beside idle lanes": (
        rates(
            source_stalled_seconds_total=0.8,
            decode_waited_output_seconds_total=3.0,
            collect_blocked_seconds_total=0.9,
            land_encoded_seconds_total=0.02,
            land_synced_beside_seconds_total=1.0,
        ),
        Stage.COMMIT,
        "a disk that syncs faster",
    ),
    "files that are synced beside busy lanes": (
        rates(
            source_stalled_seconds_total=0.8,
            decode_waited_output_seconds_total=3.0,
            collect_blocked_seconds_total=0.9,
            land_encoded_seconds_total=1.9,
            land_synced_beside_seconds_total=1.0,
        ),
        Stage.ENCODE,
        "writer-lanes",
    ),
    "committer": (
        rates(
            source_stalled_seconds_total=0.8,
            decode_waited_output_seconds_total=3.0,
            collect_blocked_seconds_total=0.9,
            land_published_seconds_total=0.95,
        ),
        Stage.COMMIT,
        "max-commit-interval",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_stage_that_waits_for_nobody_is_named(name: str) -> None:
    """Each stage is found from the waits before and after it, with the setting that moves it."""
    given, stage, setting = CASES[name]
    found = limit(given)
    assert found.stage is stage
    assert (found.setting is None) == (setting is None)
    assert setting is None or setting in str(found.setting)


def test_a_decoder_in_a_long_wait_is_not_blamed() -> None:
    """Its wait is not counted yet, but the queue that it waits at is full: what follows is the limit."""
    stalled = rates(source_stalled_seconds_total=0.9)
    assert limit(stalled, read_share=0.9, decode_share=0.1).stage is Stage.DECODE
    found = limit(stalled, read_share=0.9, decode_share=0.9)
    assert found.stage is Stage.COLLECT
    assert "decode change queues 90%" in found.sentence


def test_serial_decoding_is_the_readers_work() -> None:
    """With one decoder a busy reader is decoding, and parallel decoding would move it."""
    found = limit(rates(source_busy_seconds_total=0.9), decoder_count=1)
    assert found.stage is Stage.DECODE
    assert "parallel-decode-num: auto" in str(found.setting)


@pytest.mark.parametrize("decoders", [1, 4])
def test_nobody_advises_a_number_of_decoders_that_was_not_tried(decoders: int) -> None:
    """Where the daemon tries them itself, its result stands; else the advice is to try."""
    behind = (
        rates(source_busy_seconds_total=0.9)
        if decoders == 1
        else rates(source_stalled_seconds_total=0.8, decode_busy_seconds_total=3.9)
    )
    fixed = limit(behind, decoder_count=decoders)
    assert "tries" in str(fixed.setting)
    own = limit(behind, decoder_count=decoders, chooses_decoders=True)
    assert own.sentence == fixed.sentence
    assert str(own.setting).startswith("a second slot")


def test_serial_decoders_are_not_blamed_for_the_collector() -> None:
    """With one decoder the reader waits for the collector itself."""
    found = limit(
        rates(source_stalled_seconds_total=0.9, collect_busy_seconds_total=0.9), decoder_count=1
    )
    assert found.stage is Stage.COLLECT


@pytest.mark.parametrize(
    ("hint", "stage", "setting"),
    [
        (ServerHint("WalSenderWriteData"), Stage.NETWORK, "network"),
        (ServerHint(None, 5e6), Stage.SERVER, "logical_decoding_work_mem"),
        (ServerHint("WALRead"), Stage.SERVER, "disk"),
        (ServerHint(), Stage.SERVER, "publication"),
        (ServerHint(read_share=0.0, decode_share=0.0), Stage.SERVER, "disk"),
        (ServerHint(read_share=0.9, decode_share=0.1), Stage.SERVER, "parallel-decode-num"),
        (ServerHint(read_share=0.9, decode_share=0.9), Stage.NETWORK, "network"),
    ],
)
def test_the_server_says_more(hint: ServerHint, stage: Stage, setting: str) -> None:
    """What the server's sender waits for tells the network from decoding, spilling and reading."""
    found = limit(rates(source_waited_seconds_total=0.9), hint=hint)
    assert found.stage is stage
    assert setting in str(found.setting)


@pytest.mark.parametrize("event", ["WalSenderWaitForWAL", "WalSenderMain"])
def test_a_server_that_has_sent_all_is_no_limit(event: str) -> None:
    """Behind is then only WAL without changes, until the next idle entry."""
    found = limit(rates(source_waited_seconds_total=0.9), hint=ServerHint(event, 5e6))
    assert (found.stage, found.setting) == (Stage.NONE, None)


def test_a_full_disk_comes_first() -> None:
    """Whatever else waits, it waits for the disk."""
    assert limit(BEHIND, is_disk_full=True).stage is Stage.DISK
    found = limit(BEHIND, is_spool_full=True)
    assert (found.stage, found.setting) == (Stage.DISK, "landing.spool-bytes")


def test_without_a_stream_the_reason_is_given() -> None:
    """The connection is the limit, in its own words."""
    found = limit(BEHIND, is_streaming=False, reason="server away")
    assert found.stage is Stage.CONNECTION
    assert "server away" in found.sentence


def test_too_early_is_said() -> None:
    """Without two readings nothing is claimed."""
    assert limit(None).stage is Stage.NONE


def test_a_stopped_process_is_the_limit() -> None:
    """However full the queues around it are: what looks slow does not run."""
    full = rates(source_stalled_seconds_total=0.9, decode_busy_seconds_total=0.0)
    for name, stage in (("decoder 1", Stage.DECODE), ("reader", Stage.RECEIVE)):
        stopped = (Stopped(name, 77, "T", 3.0),)
        found = limit(full, stopped=stopped, read_share=1.0)
        assert (found.stage, found.setting) == (stage, "kill -CONT 77")
        assert found.sentence.startswith(f"The {name} (process 77) is stopped")


def test_a_lag_that_is_not_known_is_no_limit() -> None:
    """NaN is neither above the usual lag nor below it."""
    found = limit(rates(source_lag_seconds=math.nan))
    assert found.stage is Stage.NONE
