"""Tests for `gaussdecode.daemon.status.sources`."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gaussdecode.daemon.session import Session, SessionSettings
from gaussdecode.daemon.session_group import Held, SessionGroup
from gaussdecode.daemon.status.facts import DaemonFacts, MemberFacts, Running
from gaussdecode.daemon.status.landed import Landed
from gaussdecode.daemon.status.sources import Sources, lag_of, mark_waits, source_values
from gaussdecode.ipc.control import Word
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


def test_each_source_has_its_own_lag(group: Callable[[dict[str, Held]], SessionGroup]) -> None:
    """And that of the daemon is the greatest, though LSNs of the first are far above it."""
    running = Running(session=group({}))
    sources = Sources(FACTS, running, Landing())
    sources.note(0.0)
    views = sources.look(running.session)
    assert [view.lag_bytes for view in views] == [0, 450]
    assert views[0].lag_seconds == 0.0 < views[1].lag_seconds
    assert lag_of(views) == {"lag_bytes": 450, "lag_seconds": pytest.approx(views[1].lag_seconds)}


@pytest.mark.parametrize(
    ("source", "lags"), [("dn1", [200, 450]), ("dn2", [0, 1150]), (None, [200, 1150])]
)
def test_the_guard_sees_the_wal_of_its_own_source_only(
    group: Callable[[dict[str, Held]], SessionGroup], source: str | None, lags: list[int]
) -> None:
    """LSNs of one server say nothing of another's."""
    guard = SimpleNamespace(
        outlook=SimpleNamespace(look=SimpleNamespace(slot=SlotView(wal_end=1200, source=source)))
    )
    running = Running(session=group({}), guard=cast("Any", guard))
    views = Sources(FACTS, running, Landing()).look(running.session)
    assert [view.lag_bytes for view in views] == lags


def test_the_one_that_the_mark_waits_for_is_late(
    group: Callable[[dict[str, Held]], SessionGroup],
) -> None:
    """In the status and in the metrics, with its transactions."""
    held = {"dn2": Held(6.25, (RunningRow(5, 77), RunningRow(6, None)))}
    running = Running(session=group(held))
    views = Sources(FACTS, running, Landing()).look(running.session)
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
    views = Sources(FACTS, Running(), Landing()).look(None)
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
