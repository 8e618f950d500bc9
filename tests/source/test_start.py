"""May a stream be started: every rule, broken alone."""

import dataclasses

import pytest

from gaussdecode.errors import IdentityError, SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.slot import LandingPosition, ServerState, SlotState
from gaussdecode.source.start import (
    RULES,
    check_start,
    log_position,
    primary_problem,
    refuse_active,
    warnings,
)

SLOT = SlotState(
    name="orders",
    plugin="pgoutput",
    slot_type="logical",
    database="shop",
    is_temporary=False,
    is_active=False,
    active_pid=None,
    restart_lsn=Lsn(0x100),
    confirmed_flush_lsn=Lsn(0x200),
    wal_status="reserved",
    safe_wal_size=None,
    is_two_phase=False,
    invalidation_reason=None,
    is_failover=False,
)
SERVER = ServerState(
    version=150018,
    system_identifier="77",
    timeline=3,
    wal_end=Lsn(0x900),
    database="shop",
    slot=SLOT,
    sender_timeout_ms=60_000,
    encoding="UTF8",
    switch_points={2: Lsn(0x500), 1: Lsn(0x150)},
)
LOG = LandingPosition("77", 3, "shop", "orders", "pgoutput", Lsn(0x300))


def server(**changes: object) -> ServerState:
    """The server with some facts changed."""
    return dataclasses.replace(SERVER, **changes)  # type: ignore[arg-type]  # names are checked


def slot(**changes: object) -> ServerState:
    """The server with some facts of its slot changed."""
    return server(slot=dataclasses.replace(SLOT, **changes))  # type: ignore[arg-type]  # as above


def log(**changes: object) -> LandingPosition:
    """The log with some facts changed."""
    return dataclasses.replace(LOG, **changes)  # type: ignore[arg-type]  # as above


BROKEN = {
    "slot missing": (LOG, server(slot=None), ("'orders'", "0/300", "dropped")),
    "slot missing, new landing": (None, server(slot=None), ("slot create",)),
    "log of another slot": (log(slot="other"), SERVER, ("'other'", "'orders'")),
    "another cluster": (log(system_identifier="78"), SERVER, ("78", "77", "source.dsn")),
    "another database": (log(database="bank"), SERVER, ("'bank'", "'shop'")),
    "slot of another database": (LOG, slot(database="bank"), ("'bank'", "'shop'", "dbname")),
    "another plug-in": (LOG, slot(plugin="test_decoding"), ("test_decoding", "pgoutput")),
    "log of another plug-in": (log(plugin="mppdb_decoding"), SERVER, ("mppdb_decoding",)),
    "physical slot": (LOG, slot(plugin=None, slot_type="physical"), ("physical", "pgoutput")),
    "temporary slot": (LOG, slot(is_temporary=True), ("temporary",)),
    "two-phase slot": (LOG, slot(is_two_phase=True), ("two_phase", "source.two-phase is false")),
    "lost slot": (LOG, slot(wal_status="lost"), ("lost", "gone")),
    "slot without WAL": (LOG, slot(restart_lsn=None), ("lost",)),
    "invalidated slot": (LOG, slot(invalidation_reason="idle_timeout"), ("idle_timeout",)),
    "timeline below": (log(timeline=4), SERVER, ("timeline 4", "on 3")),
    "past the fork": (log(timeline=2, lsn=Lsn(0x501)), SERVER, ("0/501", "0/500", "never had")),
    "past the fork with what landed": (
        log(timeline=2, lsn=Lsn(0x600), landed_lsn=Lsn(0x501)),
        SERVER,
        ("0/600", "never had"),
    ),
    "a snapshot past the fork": (
        log(timeline=2, lsn=Lsn(0x400), landed_lsn=Lsn(0x501)),
        SERVER,
        ("0/400", "never had"),
    ),
    "timeline unknown": (
        log(timeline=2),
        server(switch_points={}),
        ("not in its history",),
    ),
    "server in the past": (log(lsn=Lsn(0x901)), SERVER, ("0/901", "0/900", "past")),
    "server before what landed": (
        log(lsn=Lsn(0x800), landed_lsn=Lsn(0x901)),
        SERVER,
        ("0/901", "0/900", "past"),
    ),
    "slot ahead": (log(lsn=Lsn(0x1FF)), SERVER, ("0/200", "0/1FF", "another client")),
    "publication missing": (LOG, server(missing_publications=("p",)), ("'p'", "CREATE")),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_rule_refuses(case: str) -> None:
    """The sentence names both values and what the operator can do; no retry helps."""
    state, seen, words = BROKEN[case]
    with pytest.raises(IdentityError) as caught:
        check_start(state, seen, "orders")
    assert not caught.value.retryable
    for word in words:
        assert word in str(caught.value)


def test_two_phase_slot_as_it_is_wanted() -> None:
    """Wanted, or taken as it is, it may have it or not; of an old server it cannot be wanted."""
    for state in (SERVER, slot(is_two_phase=True)):
        assert check_start(LOG, state, "orders", two_phase=True) == SLOT.confirmed_flush_lsn
        assert check_start(LOG, state, "orders", two_phase=None) == SLOT.confirmed_flush_lsn
    with pytest.raises(IdentityError, match="PostgreSQL 14"):
        check_start(LOG, server(version=140012), "orders", two_phase=True)


def test_every_rule_is_broken_by_some_case() -> None:
    """The table above leaves no rule out."""
    from gaussdecode.source.start import Start

    for rule in RULES:
        hits = []
        for state, seen, _ in BROKEN.values():
            try:
                hits.append(rule(Start(state, seen, "orders")))
            except AssertionError:  # a rule that needs the slot, where there is none
                continue
        assert any(hits), rule.__name__


def test_starts_where_the_slot_stands() -> None:
    """What the server sends again up to the log's position is compared with what landed."""
    assert check_start(LOG, SERVER, "orders") == SLOT.confirmed_flush_lsn


def test_starts_at_the_log_where_the_slot_does_not_tell() -> None:
    """Old servers do not show what a slot has confirmed."""
    assert check_start(LOG, slot(confirmed_flush_lsn=None), "orders") == LOG.lsn


def test_slot_that_may_still_move_is_tried_again() -> None:
    """Whoever reads it may confirm more, so nobody knows what would be sent again."""
    with pytest.raises(SourceError, match="in use by process 4711") as caught:
        refuse_active(LOG, slot(is_active=True, active_pid=4711))
    assert caught.value.retryable
    refuse_active(LOG, slot(is_active=True, active_pid=4711, confirmed_flush_lsn=LOG.lsn))
    refuse_active(LOG, SERVER)
    refuse_active(None, slot(is_active=True, active_pid=4711))


def test_new_landing_starts_where_the_slot_stands() -> None:
    """The consistent point, for a slot nobody has read."""
    assert check_start(None, SERVER, "orders") == SLOT.confirmed_flush_lsn


@pytest.mark.parametrize("lsn", [Lsn(0x200), Lsn(0x900)])
def test_borders_are_allowed(lsn: Lsn) -> None:
    """Exactly the confirmed position, and exactly the end of the WAL."""
    assert check_start(log(lsn=lsn), SERVER, "orders") == SLOT.confirmed_flush_lsn


def test_promoted_standby_is_allowed_up_to_the_fork() -> None:
    """A log at or below the switch point has nothing the new primary lacks."""
    state = log(timeline=2, lsn=Lsn(0x500))
    assert check_start(state, SERVER, "orders") == SLOT.confirmed_flush_lsn


def test_idle_position_past_the_fork_goes_on_from_it() -> None:
    """Nothing that landed lies beyond the fork, so nothing is in danger."""
    state = log(timeline=2, lsn=Lsn(0x600), landed_lsn=Lsn(0x500))
    assert check_start(state, SERVER, "orders") == SLOT.confirmed_flush_lsn
    assert log_position(state, SERVER) == Lsn(0x500)
    short = server(wal_end=Lsn(0x580))  # what the new primary has written so far
    assert check_start(state, short, "orders") == SLOT.confirmed_flush_lsn
    with pytest.raises(IdentityError, match="another client"):
        check_start(state, slot(confirmed_flush_lsn=Lsn(0x501)), "orders")


def test_log_before_the_fork_stays_where_it_is() -> None:
    """The position is the log's own, whatever landed."""
    state = log(timeline=2, lsn=Lsn(0x400), landed_lsn=Lsn(0x300))
    assert log_position(state, SERVER) == Lsn(0x400)
    assert log_position(LOG, SERVER) == LOG.lsn


def test_server_that_was_promoted_under_us_has_all_that_it_sent() -> None:
    """Rows beyond the fork are of its own WAL; of any other server, or after a start, they may not be."""
    state = log(timeline=2, lsn=Lsn(0x600), instance="1700000000.25")
    same = server(instance="1700000000.25")
    assert check_start(state, same, "orders") == SLOT.confirmed_flush_lsn
    assert log_position(state, same) == state.lsn
    assert primary_problem(same, state, wants_standby=True) is None
    for other in (server(instance="1700000000.5"), SERVER):
        with pytest.raises(IdentityError, match="the new primary never had"):
            check_start(state, other, "orders")
        assert "standby-connection" in (primary_problem(other, state, wants_standby=True) or "")
    with pytest.raises(IdentityError, match="the new primary never had"):
        check_start(log(timeline=2, lsn=Lsn(0x600)), SERVER, "orders")


def test_log_without_timeline_is_not_compared() -> None:
    """Sources that have none write 0."""
    assert check_start(log(timeline=0), SERVER, "orders") == SLOT.confirmed_flush_lsn


@pytest.mark.parametrize(
    ("version", "count"),
    [(140017, 2), (140018, 1), (140019, 0), (150013, 1), (170006, 0), (180001, 1), (190000, 1)],
)
def test_minor_versions_with_known_faults(version: int, count: int) -> None:
    """One text per fault that the minor still has."""
    found = warnings(version)
    assert len(found) == count
    assert all(str(version // 10000) in text for text in found)


def test_standby_that_replays_is_waited_for() -> None:
    """After a crash it may stand below the log for a while; a primary there was restored."""
    state = log(lsn=Lsn(int(SERVER.wal_end) + 1))
    with pytest.raises(SourceError, match="replayed up to") as caught:
        check_start(state, server(is_standby=True), "orders")
    assert caught.value.retryable
    with pytest.raises(IdentityError, match="restored to the past"):
        check_start(state, server(), "orders")
    assert check_start(LOG, server(is_standby=True), "orders") == SLOT.confirmed_flush_lsn
