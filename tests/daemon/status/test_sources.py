"""Tests for `gaussdecode.daemon.status.sources`."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gaussdecode.daemon.session import Session, SessionSettings
from gaussdecode.daemon.session_group import Held, SessionGroup
from gaussdecode.daemon.status.facts import DaemonFacts, MemberFacts, Running, Standing
from gaussdecode.daemon.status.landed import Landed
from gaussdecode.daemon.status.sources import (
    Sources,
    lag_of,
    mark_waits,
    session_of,
    source_values,
)
from gaussdecode.ipc.control import Word
from gaussdecode.land.server_state import read_server_state, write_server_state
from gaussdecode.metrics.table import BY_NAME
from gaussdecode.model.landing import SourcePosition
from gaussdecode.source.coverage import Coverage
from gaussdecode.source.gaussdb.csn_mark_rules import Running as RunningRow
from gaussdecode.source.probe import SlotView

FACTS = DaemonFacts(
    slot="orders",
    config=Path("/etc/orders.yaml"),
    root=Path("/"),
    started_time=1.0,
    budget_bytes=1,
    decoder_count=1,
    commit_interval=30.0,
    queue_size=128,
    warn_before=None,
    members=(MemberFacts("dn1", "s1", "h:1"), MemberFacts("dn2", "s2", "h:2")),
    is_by_csn=True,
)


STREAMING = Standing("streaming")


class Landing:
    """Two sources, the second far behind."""

    def __init__(self) -> None:
        self.landed = Landed()
        self.coverage = Coverage()
        self.lane_count = 1
        self.server_version: int | None = None
        self.quarantined: dict[str, str] = {}
        self.positions = {
            "dn1": SourcePosition(1, 1, 1000, csn=7),
            "dn2": SourcePosition(1, 1, 50, csn=7),
        }

    def stats(self) -> dict[str, float]:
        """None."""
        return {}

    def read_again_n(self, source: str | None) -> int:
        """Nothing was ordered."""
        return -1

    def histograms(self) -> dict[str, Any]:
        """None."""
        return {}


class Marks:
    """What the present mark waits for."""

    def __init__(self, held: dict[str, Held]) -> None:
        self._held = held

    def start(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def held(self) -> dict[str, Held]:
        """As given."""
        return self._held


@pytest.fixture
def group() -> Iterator[Callable[[dict[str, Held]], SessionGroup]]:
    """Sessions of both sources, without processes: dn1 has all of its WAL, dn2 lacks 450 bytes."""
    made: list[Session] = []

    def make(name: str, *_: object) -> Session:
        settings = SessionSettings(
            decoder_count=1,
            queue_entries=1,
            raw_ring_bytes=1,
            decoded_ring_bytes=1,
            kept_buffer_bytes=1,
            max_row_bytes=1,
            defers_large_rows=False,
            reader={},
        )
        session = Session(settings, cast("Any", None), lambda _: True, lambda: False, lambda: None)
        session.facts = {"wal_end": 40}
        session.control.set(Word.SERVER_WAL_END, {"dn1": 1000, "dn2": 500}[name])
        session.control.set(Word.RECEIVED_LSN, {"dn1": 1000, "dn2": 60}[name])
        made.append(session)
        return session

    def build(held: dict[str, Held]) -> SessionGroup:
        nothing = lambda: None  # noqa: E731
        all_of = SessionGroup(
            make,
            ("dn1", "dn2"),
            None,
            should_stop=lambda: False,
            on_tick=nothing,
            on_streaming=nothing,
            on_ending=nothing,
        )
        all_of._marks = Marks(held)
        return all_of

    yield build
    for session in made:
        session._close()


def test_what_a_mark_waits_for_is_said(group: Callable[[dict[str, Held]], SessionGroup]) -> None:
    """Once it has waited for a while: transactions that may be committing, or else a stream."""
    row = RunningRow(7, 12)
    assert mark_waits(None) is None
    assert mark_waits(group({})) is None
    assert mark_waits(group({"dn1": Held(1.0, (row,))})) is None
    held = group({"dn1": Held(70.0, (row,)), "dn2": Held(71.0, (row, RunningRow(8, None)))})
    said = "for 3 transactions of dn1, dn2 that may be committing, for 71 s so far"
    assert mark_waits(held) == said
    assert mark_waits(group({"dn2": Held(9.0, ())})) == (
        "for the stream or an answer of dn2, for 9 s so far"
    )


def test_each_source_has_its_own_lag(
    group: Callable[[dict[str, Held]], SessionGroup], tmp_path: Path
) -> None:
    """And that of the daemon is the greatest, though LSNs of the first are far above it."""
    now = time.time()
    known = {"through": now - 60, "wal_end": 50, "seen_time": now - 60}
    write_server_state(tmp_path, {"dn1": known, "dn2": known})
    running = Running(STREAMING, session=group({}))
    sources = Sources(dataclasses.replace(FACTS, root=tmp_path), running, cast("Any", Landing()))
    sources.note()
    views = sources.look(running.session)
    assert [view.lag_bytes for view in views] == [0, 450]
    assert views[0].lag_seconds == 0.0
    assert (views[1].lag_seconds or 0.0) >= 60.0
    assert lag_of(views) == {"lag_bytes": 450, "lag_seconds": views[1].lag_seconds}


@pytest.mark.parametrize(
    ("source", "lags"), [("dn1", [200, 450]), ("dn2", [0, 1150]), (None, [200, 1150])]
)
def test_the_guard_sees_the_wal_of_its_own_source_only(
    group: Callable[[dict[str, Held]], SessionGroup], source: str | None, lags: list[int]
) -> None:
    """LSNs of one server say nothing of another's."""
    guard = SimpleNamespace(
        outlook=SimpleNamespace(
            look=SimpleNamespace(at=0.0, slot=SlotView(wal_end=1200, source=source))
        )
    )
    running = Running(STREAMING, session=group({}), guard=cast("Any", guard))
    views = Sources(FACTS, running, cast("Any", Landing())).look(running.session)
    assert [view.lag_bytes for view in views] == lags


def test_the_wal_of_every_source_that_answered_counts(
    group: Callable[[dict[str, Held]], SessionGroup],
) -> None:
    """The guard shows one slot, and the ends of WAL of all."""
    shown = SlotView(wal_end=1200, source="dn1", wal_ends={"dn1": 1200, "dn2": 700})
    guard = SimpleNamespace(outlook=SimpleNamespace(look=SimpleNamespace(at=0.0, slot=shown)))
    running = Running(STREAMING, session=group({}), guard=cast("Any", guard))
    views = Sources(FACTS, running, cast("Any", Landing())).look(running.session)
    assert [view.lag_bytes for view in views] == [200, 650]


@pytest.mark.parametrize("is_begun", [False, True])
def test_what_is_not_known_is_no_zero(
    group: Callable[[dict[str, Held]], SessionGroup], tmp_path: Path, *, is_begun: bool
) -> None:
    """Without a server, or before one was heard: no lag, no position, and NaN as a metric."""
    facts = dataclasses.replace(FACTS, root=tmp_path)
    running = Running(session=group({}) if is_begun else None)
    sources = Sources(facts, running, cast("Any", Landing()))
    sources.note()
    sources.keep(is_last=True)
    assert read_server_state(tmp_path) == {}, "nothing is known that could be kept"
    views = sources.look(running.session)
    records = [view.to_record() for view in views]
    unknown = ("lag_bytes", "lag_seconds", "server_wal_end", "server_seen_seconds")
    assert [of[name] for of in records for name in unknown] == [None] * 8
    assert lag_of(views) == {"lag_bytes": None, "lag_seconds": None}
    values = source_values(views, is_by_csn=False)
    assert all(math.isnan(value) for series in values.values() for value in series.values())


def test_the_last_facts_are_kept(
    group: Callable[[dict[str, Held]], SessionGroup], tmp_path: Path
) -> None:
    """A new process with its server away goes on from them; a torn file tells nothing."""
    facts = dataclasses.replace(FACTS, root=tmp_path)
    running = Running(STREAMING, session=group({}))
    sources = Sources(facts, running, cast("Any", Landing()))
    sources.note()
    sources.keep()
    first, second = Sources(facts, Running(), cast("Any", Landing())).look(None)
    assert (first.lag_bytes, second.lag_bytes) == (None, 450)
    assert first.lag_seconds is not None
    assert first.wal_end == 1000
    assert first.seen_seconds is not None
    assert second.lag_seconds is None, "it never was up to date"
    whole = (tmp_path / "server.json").read_bytes()
    for torn in (whole[:-9], b"", whole.replace(b"through", b"thr0ugh"), b"[]"):
        (tmp_path / "server.json").write_bytes(torn)
        assert [
            view.lag_seconds
            for view in Sources(facts, Running(), cast("Any", Landing())).look(None)
        ] == [
            None,
            None,
        ]


def test_a_silent_server_is_not_taken_for_one_at_rest(
    group: Callable[[dict[str, Held]], SessionGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stream without a byte for a minute, while the guard gets no answer, nothing is known."""
    running = Running(STREAMING, session=group({}))
    session = session_of(running.session, "dn1")
    assert session is not None
    session.control.set(Word.LAST_RECEIVE_NS, time.monotonic_ns())
    sources = Sources(FACTS, running, cast("Any", Landing()))
    assert sources.look(running.session)[0].lag_seconds == 0.0
    late = time.monotonic() + 100
    monkeypatch.setattr("gaussdecode.daemon.status.sources.time.monotonic", lambda: late)
    assert sources.look(running.session)[0].lag_seconds is None


def test_the_one_that_the_mark_waits_for_is_late(
    group: Callable[[dict[str, Held]], SessionGroup],
) -> None:
    """In the status and in the metrics, with its transactions."""
    held = {"dn2": Held(6.25, (RunningRow(5, 77), RunningRow(6, None)))}
    running = Running(session=group(held))
    views = Sources(FACTS, running, cast("Any", Landing())).look(running.session)
    first, second = (view.to_record() for view in views)
    assert (first["is_late"], first["held_seconds"], first["held_by"]) == (False, 0.0, [])
    assert second["is_late"] is True
    assert second["held_by"] == [{"xid": 5, "pid": 77}, {"xid": 6, "pid": None}]
    values = source_values(views, is_by_csn=True)
    assert values["collect_turn_held_seconds"] == {("dn1",): 0.0, ("dn2",): 6.25}
    assert values["collect_watermark_csn"] == {("dn1",): 7.0, ("dn2",): 7.0}
    for name, series in values.items():
        labels = BY_NAME[f"gaussdecode_{name}"].labels
        assert {len(of) for of in series} <= {len(labels)}


def test_nothing_waits_for_a_turn_where_there_is_no_order_of_csns() -> None:
    """Only lags are told of sources side by side."""
    views = Sources(FACTS, Running(), cast("Any", Landing())).look(None)
    assert set(source_values(views, is_by_csn=False)) == {
        "source_member_lag_bytes",
        "source_member_lag_seconds",
    }


def test_sources_are_told_where_one_waits_for_another() -> None:
    """Of several, and of one in the order of CSNs; not of one alone."""
    one = dataclasses.replace(FACTS, members=FACTS.members[:1], is_by_csn=False)
    assert FACTS.tells_sources
    assert not one.tells_sources
    assert dataclasses.replace(one, is_by_csn=True).tells_sources
