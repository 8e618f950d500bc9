"""When sessions go on without streaming, and when again with it."""

import pytest

from gaussdecode.daemon.streaming import Streaming
from gaussdecode.errors import (
    ChildError,
    GaussDecodeError,
    InexactStreamError,
    OpenTransactionError,
    RowError,
    SourceError,
    SpoolFullError,
    TableError,
)

FAILED = OpenTransactionError("streaming: could not map filenode", "XX000")
ENDED = SourceError("streaming: terminating connection", "57P01")
OF_A_ROW = RowError("a row of 3 columns", 0, 7, 1, 16384)
OF_A_TABLE = TableError("public", "t", 16384, 5, "a row of 3 columns")


def run(*ends: tuple[GaussDecodeError | None, int], wanted: str = "on") -> tuple[str, list[str]]:
    """What the next session asks for after these, and what was said on the way."""
    told: list[str] = []
    streaming = Streaming(wanted, told.append)
    for error, position in ends:
        streaming.ended(error, position)
    assert streaming.fallback_count == len(told)
    return streaming.mode, told


@pytest.mark.parametrize(
    ("ends", "mode"),
    [
        ([], "on"),
        ([(FAILED, 5)], "off"),
        ([(FAILED, 5), (None, 5)], "on"),
        ([(ENDED, 5)] * 3, "on"),
        ([(SourceError("streaming: something else", "XX000"), 5)] * 2, "on"),
        ([(SourceError("streaming: the connection ended"), 5)] * 2, "on"),
        ([(ChildError("a decoder died"), 5)] * 2, "on"),
        ([(None, 5)] * 2, "on"),
        ([(InexactStreamError("a message", 9), 5)], "off"),
        ([(SpoolFullError("landing.spool-bytes"), 5)], "off"),
        ([(SpoolFullError("landing.spool-bytes"), 5), (None, 7)], "on"),
        ([(OF_A_ROW, 5)], "off"),
        ([(OF_A_TABLE, 5)], "off"),
        ([(OF_A_TABLE, 5), (OF_A_TABLE, 5)], "on"),
        ([(FAILED, 5), (None, 7), (FAILED, 8)], "off"),
    ],
)
def test_next_session(ends: list[tuple[GaussDecodeError | None, int]], mode: str) -> None:
    """Without where what was sent while it was open failed, and with it after that."""
    assert run(*ends)[0] == mode


def test_reason_is_told_once() -> None:
    """With the server's text."""
    _, told = run((FAILED, 5))
    assert told == ["streaming: could not map filenode (SQLSTATE XX000)"]


def test_nothing_to_fall_back_from() -> None:
    """Where it is off, failures are others' business."""
    assert run((FAILED, 5), (FAILED, 5), (OF_A_ROW, 5), wanted="off") == ("off", [])


def test_whole_transactions_show_nothing_uncommitted() -> None:
    """A bad row of the session after is of a transaction that has committed."""
    streaming = Streaming("on", lambda _: None)
    seen = [streaming.shows_uncommitted]
    streaming.ended(OF_A_TABLE, 5)
    seen.append(streaming.shows_uncommitted)
    assert seen == [True, False]


def test_streaming_resumes_when_the_transaction_has_landed() -> None:
    """Where its end is known; where it is not, with the next session."""
    streaming = Streaming("parallel", lambda _: None)
    assert not streaming.may_resume(100)
    streaming.ended(InexactStreamError("a message", 9), 5)
    assert [streaming.may_resume(at) for at in (None, 5, 8, 9, 10)] == [False] * 3 + [True] * 2
    streaming.ended(None, 9)
    assert streaming.mode == "parallel"
    assert not streaming.may_resume(10)


def test_streaming_resumes_by_itself() -> None:
    """After a minute, then after twice as long each time; after an hour without a failure as at first."""
    now = [0.0]
    streaming = Streaming("on", lambda _: None, clock=lambda: now[0])
    waits = []
    for calm in (0.0, 0.0, 0.0, 3500.0, 0.0, 0.0, 0.0, 4000.0, 0.0):
        now[0] += calm
        streaming.ended(FAILED, 5)
        began = now[0]
        while not streaming.may_resume(5):
            now[0] += 10.0
        waits.append(now[0] - began)
        streaming.ended(None, 5)  # the session is restarted
        assert (streaming.mode, streaming.may_resume(10**9)) == ("on", False)
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 60.0, 120.0]


def test_streaming_does_not_resume_where_nothing_has_moved() -> None:
    """A transaction that had landed and was sent again would be sent again at once."""
    streaming = Streaming("on", lambda _: None)
    streaming.ended(InexactStreamError("a message", 9), 20)
    assert [streaming.may_resume(at) for at in (9, 20, 21)] == [False, False, True]
