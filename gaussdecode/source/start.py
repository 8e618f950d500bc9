"""Decide whether a stream may start, and where: the log and the server must belong together.

Pure: `check_start` is given both states. Each rule is one function. When the rule is broken it gives a
sentence with both values and with what the operator can do. A slot that was dropped, made again, or read by
another client means lost changes. Then the daemon must not continue, and only an operator can accept the gap.

After a failover the position goes back to the fork in a new epoch. If it stayed, transactions of the new
timeline that end below it would be taken for resent ones.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Final

from gaussdecode.errors import IdentityError, SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.slot import PLUGIN, LandingPosition, Place, ServerState, SlotState

TWO_PHASE_VERSION: Final = 150000
"""First server version whose pgoutput sends transactions at their PREPARE."""

_ADVICE_GAP: Final = (
    "changes in between are gone; accept the gap with `gaussdecode slot accept-gap`, or create a "
    "new slot with a new landing"
)
Rule = Callable[["Start"], str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """The input of the rules.

    Attributes:
        log: log of the landing; None for one that has no entry yet.
        server: state of the server.
        name: name of the configured slot.
        plugins: plugins that will do for this stream; empty when any does.
        two_phase: prepared transactions are wanted at their PREPARE; None for as the slot has it.
    """

    log: LandingPosition | None
    server: ServerState
    name: str
    plugins: tuple[str, ...] = (PLUGIN,)
    two_phase: bool | None = False

    @property
    def lsn(self) -> Lsn:
        """The log's position, as the server's history has it.

        Beyond the fork of a newer timeline nothing of the older one is left. A log that only
        counted idle WAL there goes on from the fork.
        """
        log = self.log
        assert log is not None
        point = self.server.switch_points.get(log.timeline)
        if point is None or self.server.timeline <= log.timeline:
            return log.lsn
        if is_same_instance(log, self.server):
            return log.lsn
        return point if self.landed_lsn <= point < log.lsn else log.lsn

    @property
    def landed_lsn(self) -> Lsn:
        """Nothing that ends beyond it has landed."""
        log = self.log
        assert log is not None
        return log.lsn if log.landed_lsn is None else log.landed_lsn

    @property
    def slot(self) -> SlotState:
        """The slot, for rules that come after the one that wants it there."""
        assert self.server.slot is not None
        return self.server.slot


def is_same_instance(log: LandingPosition | None, server: ServerState) -> bool:
    """Whether the log was read from this server, and it has not been started since.

    Its WAL is one then, on whatever timeline: none of it was taken back.
    """
    return log is not None and bool(log.instance) and log.instance == server.instance


def _slot_missing(start: Start) -> str | None:
    if start.server.slot is not None:
        return None
    if start.log is None:
        return f"slot {start.name!r} does not exist; create it with `gaussdecode slot create`"
    return (
        f"slot {start.name!r} does not exist, but the log is at {start.log.lsn}: it was dropped, or this is "
        f"another server; {_ADVICE_GAP}"
    )


def _slot_name(start: Start) -> str | None:
    if start.log is None or start.log.slot == start.name:
        return None
    return f"the log belongs to slot {start.log.slot!r}, not {start.name!r}; use the right landing root"


def _system(start: Start) -> str | None:
    if start.log is None or start.log.system_identifier == start.server.system_identifier:
        return None
    return (
        f"the log belongs to cluster {start.log.system_identifier}, the server is cluster "
        f"{start.server.system_identifier}; correct source.dsn, or use a new landing"
    )


def _database(start: Start) -> str | None:
    if start.log is not None and start.log.database != start.server.database:
        return (
            f"the log belongs to database {start.log.database!r}, the connection is to "
            f"{start.server.database!r}; correct dbname in source.dsn"
        )
    return None


def _slot_kind(start: Start) -> str | None:
    state = start.slot
    if state.slot_type != "logical" or (start.plugins and state.plugin not in start.plugins):
        found = state.plugin or f"none ({state.slot_type})"
        needed = " or ".join(start.plugins) or "a logical one"
        return f"slot {start.name!r} has plug-in {found}, {needed} is needed; name another slot"
    if start.log is not None and start.log.plugin != state.plugin:
        return (
            f"the log belongs to plug-in {start.log.plugin}, slot {start.name!r} has {state.plugin}"
        )
    if state.database != start.server.database:
        return (
            f"slot {start.name!r} is in database {state.database!r}, the connection is to "
            f"{start.server.database!r}; correct dbname in source.dsn"
        )
    if state.is_temporary:
        return f"slot {start.name!r} is temporary; create a permanent one"
    return None


def _two_phase(start: Start) -> str | None:
    if start.two_phase and start.server.version < TWO_PHASE_VERSION:
        major = start.server.version // 10000
        return (
            f"source.two-phase is true, and the server is PostgreSQL {major}: it sends prepared transactions "
            "at their PREPARE from 15 on; leave the option out"
        )
    if start.two_phase is not False or not start.slot.is_two_phase:
        return None
    return (
        f"slot {start.name!r} has two_phase on: the server sends the rows of a prepared transaction once, at "
        "its PREPARE, and source.two-phase is false; set it to true, or create another slot"
    )


def _lost(start: Start) -> str | None:
    state = start.slot
    if state.wal_status == "lost" or state.restart_lsn is None or state.invalidation_reason:
        why = state.invalidation_reason or f"wal_status is {state.wal_status}"
        return (
            f"slot {start.name!r} is lost ({why}): the server removed WAL it needs; {_ADVICE_GAP}"
        )
    return None


def _timeline(start: Start) -> str | None:
    if start.log is None or start.log.timeline in (0, start.server.timeline):
        return None
    if is_same_instance(start.log, start.server):
        return None
    if start.server.timeline < start.log.timeline:
        return (
            f"the log is on timeline {start.log.timeline}, the server on {start.server.timeline}: it is an "
            "older copy; connect to the current primary"
        )
    point = start.server.switch_points.get(start.log.timeline)
    if point is None or max(start.lsn, start.landed_lsn) > point:
        where = "is not in its history" if point is None else f"ended at {point}"
        return (
            f"the log is at {start.log.lsn} of timeline {start.log.timeline}, which {where} for the server "
            f"(timeline {start.server.timeline}): changes were landed that the new primary never had; "
            "begin a new landing with a snapshot"
        )
    return None


def _wal_end(start: Start) -> str | None:
    if start.log is None or start.server.is_standby:
        return None
    end = max(start.lsn, start.landed_lsn)
    if end <= start.server.wal_end:
        return None
    return (
        f"the landing is complete up to {end}, the server's WAL ends at {start.server.wal_end}: the server was "
        "restored to the past, or is another one; begin a new landing with a snapshot"
    )


def _confirmed(start: Start) -> str | None:
    confirmed = start.slot.confirmed_flush_lsn
    if start.log is None or confirmed is None or confirmed <= start.lsn:
        return None
    return (
        f"slot {start.name!r} was confirmed up to {confirmed}, but the log is at {start.lsn}: another "
        f"client read the slot, it was made again, or the landing is an older copy; {_ADVICE_GAP}"
    )


def _publications(start: Start) -> str | None:
    return publication_problem(start.server)


def publication_problem(server: ServerState) -> str | None:
    """Name the configured publications that are not there, or None.

    They must be there before the slot: at every change the server looks them up as they were
    when it was made.
    """
    if not server.missing_publications:
        return None
    names = ", ".join(repr(name) for name in server.missing_publications)
    return (
        f"no publication {names} in database {server.database!r}; CREATE PUBLICATION first, and the slot "
        "after it"
    )


RULES: Final[tuple[Rule, ...]] = (
    _slot_name,
    _system,
    _database,
    _slot_missing,
    _slot_kind,
    _two_phase,
    _lost,
    _timeline,
    _wal_end,
    _confirmed,
    _publications,
)


def log_position(log: LandingPosition, server: ServerState) -> Lsn:
    """The position of a log as a server's history has it; lower than its own beyond a fork."""
    return Start(log, server, log.slot).lsn


def check_start(
    log: LandingPosition | None,
    server: ServerState,
    slot: str,
    plugins: tuple[str, ...] = (PLUGIN,),
    *,
    two_phase: bool | None = False,
) -> Lsn:
    """Decide whether and where a stream may start.

    Args:
        log: log of the landing; None for one that has no entry yet.
        server: server from `read_server`.
        slot: configured name.
        plugins: output plug-ins that will do; empty when any does.
        two_phase: see `Start`.

    Returns:
        The position to ask for. It is the slot's, where the server says it: what it sends
        again up to the log's is compared with what landed, see `collect.resent`.

    Raises:
        IdentityError: the first rule that is broken, with both values and what to do.
        SourceError: a standby has not replayed so far yet; try again.
    """
    start = Start(log, server, slot, plugins, two_phase)
    for rule in RULES:
        problem = rule(start)
        if problem is not None:
            raise IdentityError(problem)
    if log is not None and start.lsn > server.wal_end:
        # After a crash it replays again from its last restart point.
        raise SourceError(
            f"the server is a standby that has replayed up to {server.wal_end}, but the log is at "
            f"{start.lsn}; the stream begins when the standby is there"
        )
    confirmed = start.slot.confirmed_flush_lsn
    if confirmed is None:
        return Lsn(0) if log is None else start.lsn
    return confirmed


def primary_problem(
    server: ServerState, log: LandingPosition | None, *, wants_standby: bool
) -> str | None:
    """Say that a server is a primary where a standby is asked for, or None.

    One that was promoted while this process read it is gone on with.

    Args:
        server: state of the server.
        log: log of the landing; None for one that has no entry yet.
        wants_standby: option standby-connection.
    """
    if server.is_standby or not wants_standby:
        return None
    if is_same_instance(log, server):
        return None
    return (
        "decoding.standby-connection: the server is a primary; name a standby in source.dsn, or leave "
        "the option out"
    )


def same_place_problem(places: Mapping[str, Place]) -> str | None:
    """Say that two sources are one database, of which each row would land twice; None if none are.

    Args:
        places: places of the sources, by name.
    """
    for (first, place), (second, other) in itertools.combinations(sorted(places.items()), 2):
        if place.is_same(other):
            node = f" on node {place.node}" if place.node else ""
            return (
                f"sources: {first!r} and {second!r} are one database ({place.database!r} of cluster "
                f"{place.system_identifier}{node}): each of its rows would land twice. Correct the dsn of one "
                "of them, or take it out"
            )
    return None


def refuse_active(log: LandingPosition | None, server: ServerState) -> None:
    """Refuse a slot that somebody reads and that stands before the log: it may move yet.

    Most often it is our own last connection, of which the server has not noticed the end.
    Where slot and log agree there is nothing to compare, and the server refuses by itself.

    Raises:
        SourceError: try again.
    """
    slot = server.slot
    if log is None or slot is None or not slot.is_active:
        return
    confirmed = slot.confirmed_flush_lsn
    if confirmed is not None and confirmed < log_position(log, server):
        raise SourceError(
            f"slot {slot.name!r} is in use by process {slot.active_pid or 'unknown'} of the server"
        )


# Known faults of servers: text, and by major the first minor without it.
_FAULTS: Final[tuple[tuple[str, Mapping[int, int]], ...]] = (
    (
        "changes can be lost when a publication or type is altered while others write",
        {14: 18, 15: 13, 16: 9, 17: 5},
    ),
    (
        "the slot's position can move back, so that changes are sent again (they are skipped)",
        {14: 19, 15: 14, 16: 10, 17: 6},
    ),
)
_SILENT_SKIP_MAJOR: Final = 18


def warnings(server_version: int) -> list[str]:
    """Name the known faults of a server's minor version.

    Args:
        server_version: such as 150018.
    """
    major, minor = divmod(server_version, 10000)
    found = [
        f"PostgreSQL {major}.{minor}: {text}; fixed in {major}.{fixed[major]}"
        for text, fixed in _FAULTS
        if major in fixed and minor < fixed[major]
    ]
    if major >= _SILENT_SKIP_MAJOR:
        found.append(
            f"PostgreSQL {major} leaves changes out while a configured publication is missing; the "
            "daemon stops there, so never drop or rename one that is in use"
        )
    return found
