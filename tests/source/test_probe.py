"""Of several slots the one that is nearest to being lost is shown, whatever the others do."""

import pytest

from gaussdecode.errors import SourceError
from gaussdecode.source.probe import SlotView, WorstProbe


class Told:
    """A probe that shows what it is told."""

    def __init__(self, view: SlotView | None) -> None:
        self.view = view
        self.is_closed = False

    def look(self) -> SlotView:
        """Show it; None is a server that is away."""
        if self.view is None:
            raise SourceError("connecting: nobody answers")
        return self.view

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


def held(size: int, safe: int | None = None, status: str | None = "reserved") -> SlotView:
    """A slot that holds so much."""
    return SlotView(wal_end=1, retained_bytes=size, safe_bytes=safe, wal_status=status)


def test_the_worst_is_shown_until_another_is_worse_by_half() -> None:
    """What is extrapolated is of one slot; a lost one comes before all."""
    east, west = Told(held(100)), Told(held(90))
    probe = WorstProbe({"east": east, "west": west})
    assert probe.look().source == "east"
    west.view = held(140)
    assert probe.look().source == "east"
    west.view = held(160)
    assert probe.look().source == "west"
    east.view = held(1, safe=10)
    assert probe.look().source == "east", "its allowance ends"
    west.view = held(0, status="lost")
    assert probe.look().source == "west"
    probe.close()
    assert east.is_closed
    assert west.is_closed


def test_who_is_away_hides_nobody() -> None:
    """The others hold WAL meanwhile; only where all are away nothing is known, and one is named."""
    east, west = Told(None), Told(held(90))
    probe = WorstProbe({"east": east, "west": west})
    assert probe.look().source == "west"
    west.view = None
    with pytest.raises(SourceError, match="source east: connecting: nobody answers"):
        probe.look()
