"""Tests for `gaussdecode.daemon.status.advice`."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gaussdecode.daemon.status.advice import Advice, Surroundings, find_advice, span
from gaussdecode.daemon.status.limit import Limit, Stage

DOCS = Path(__file__).parents[3] / "docs"
WELL = Surroundings("streaming", None, None, usual_lag_seconds=60.0, warn_before=7200.0)
LIMIT = Limit(Stage.ENCODE, "The lanes encode all the time.", "landing.writer-lanes")


def find(around: Surroundings = WELL, **metrics: float) -> list[Advice]:
    """Advice for metrics without labels."""
    values: Mapping[str, Mapping[tuple[str, ...], float]] = {
        f"gaussdecode_{name}": {(): value} for name, value in metrics.items()
    }
    return find_advice(values, LIMIT, around)


CASES = {
    "source_slot_lost": (1.0, 0.0, True),
    "source_invalidation_seconds": (7199.0, 7201.0, True),
    "land_disk_full": (1.0, 0.0, True),
    "land_full_seconds": (7199.0, 7201.0, False),
    "land_gap_entries_total": (1.0, 0.0, True),
    "land_suspect_entries_total": (1.0, 0.0, False),
    "decode_misfit_values_total": (1.0, 0.0, False),
    "source_lag_seconds": (61.0, 60.0, False),
    "daemon_restarts_total": (1.0, 0.0, False),
}


@pytest.mark.parametrize("name", CASES)
def test_each_trouble_is_told_alone(name: str) -> None:
    """At its bound, not below it, with what to do and a section of the guide that exists."""
    wrong, right, is_error = CASES[name]
    assert find(WELL, **{name: right}) == []
    (advice,) = find(WELL, **{name: wrong})
    assert advice.is_error is is_error
    assert advice.action.endswith(".")
    pages = (DOCS / "alerts.md").read_text() + (DOCS / "procedures.md").read_text()
    assert f"\n### {advice.section}\n" in pages


def test_all_is_well() -> None:
    """Nothing to say of a daemon that streams."""
    assert find() == []


@pytest.mark.parametrize("state", ["starting", "connecting", "retrying"])
def test_what_keeps_it_from_streaming_is_told(state: str) -> None:
    """In the reader's words; only trying again is an error."""
    around = Surroundings(state, "server away", None, 60.0, None)
    (advice,) = find(around)
    assert "server away" in advice.what
    assert advice.is_error == (state == "retrying")


def test_a_blind_guard_is_told_only_while_changes_come() -> None:
    """While the server is away its own line says enough."""
    blind = Surroundings("streaming", None, "too many connections", 60.0, None)
    (advice,) = find(blind)
    assert "too many connections" in advice.what


def test_lag_names_the_limit_and_the_worst_comes_first() -> None:
    """What moves it stands in the action; errors come before warnings."""
    first, second = find(source_lag_seconds=600.0, land_disk_full=1.0)
    assert first.is_error
    assert "landing.writer-lanes" in second.action


def test_spans_are_spelled_for_people() -> None:
    """Seconds, minutes, hours, days."""
    assert [span(s) for s in (3, 119, 600, 12000, 400000)] == [
        "3 s", "119 s", "10 min", "3 h 20 min", "4 days",
    ]  # fmt: skip
