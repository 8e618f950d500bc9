"""Tests for `gaussdecode.source.gap` and `gaussdecode.model.gap`."""

import dataclasses

import pytest

from gaussdecode.model.gap import Gap, GapReason
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.gap import find_gap
from gaussdecode.source.slot import LandingPosition, ServerState, SlotState

LOG = LandingPosition("7", 1, "shop", "orders", "pgoutput", Lsn(100))
SLOT = SlotState(
    name="orders", plugin="pgoutput", slot_type="logical", database="shop", is_temporary=False,
    is_active=False, active_pid=None, restart_lsn=Lsn(90), confirmed_flush_lsn=Lsn(100),
    wal_status="reserved", safe_wal_size=None, is_two_phase=False, invalidation_reason=None,
    is_failover=False,
)  # fmt: skip
SERVER = ServerState(150018, "7", 1, Lsn(500), "shop", SLOT, 60000, "UTF8")


def with_slot(**fields: object) -> ServerState:
    """The server with another slot."""
    slot = dataclasses.replace(SLOT, **fields)  # type: ignore[arg-type]  # names of fields
    return dataclasses.replace(SERVER, slot=slot)


def test_a_slot_that_follows_the_log_leaves_no_gap() -> None:
    """Confirmed up to the log's position, or after it."""
    assert find_gap(LOG, SERVER) is None
    assert find_gap(LOG, with_slot(confirmed_flush_lsn=Lsn(60))) is None


@pytest.mark.parametrize(
    ("server", "reason", "until", "is_open"),
    [
        (dataclasses.replace(SERVER, slot=None), GapReason.SLOT_MISSING, 500, True),
        (with_slot(wal_status="lost"), GapReason.SLOT_LOST, 500, True),
        (with_slot(restart_lsn=None), GapReason.SLOT_LOST, 500, True),
        (with_slot(invalidation_reason="idle_timeout"), GapReason.SLOT_LOST, 500, True),
        (with_slot(confirmed_flush_lsn=Lsn(101)), GapReason.SLOT_ADVANCED, 101, False),
    ],
)
def test_every_loss_has_its_positions(
    server: ServerState, reason: GapReason, until: int, *, is_open: bool
) -> None:
    """From the durable position up to what can be known to be missing."""
    gap = find_gap(LOG, server)
    assert gap is not None
    assert (gap.reason, gap.from_lsn, gap.until_lsn, gap.is_open) == (reason, 100, until, is_open)
    assert Gap.from_extra(gap.to_extra()) == gap


@pytest.mark.parametrize(
    "fields", [{"system_identifier": "8"}, {"database": "postgres"}, {"wal_end": Lsn(99)}]
)
def test_another_server_tells_of_no_gap(fields: dict[str, object]) -> None:
    """A wrong connection string, or a server restored to the past, is no loss of changes."""
    other = dataclasses.replace(SERVER, slot=None, **fields)  # type: ignore[arg-type]  # names
    assert find_gap(LOG, other) is None


def test_other_json_is_no_gap() -> None:
    """A gap entry of another shape is refused, not guessed at."""
    with pytest.raises(ValueError, match="not a gap"):
        Gap.from_extra({"reason": "slot_lost"})
