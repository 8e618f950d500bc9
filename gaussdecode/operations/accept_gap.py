"""Accept a gap: measure it, provide a slot, and let the log continue after it.

The landing is locked meanwhile, so no daemon runs. The steps are in this order, so that an attempt that
ended at any point can be repeated:

1. `Hole.find`: log and server belong together except for the slot, and changes are missing, or are to
   be skipped;
2. the operator confirms the exact beginning; 3. a lost slot is dropped, and a missing slot is created:
the gap ends where the new slot begins; to skip
   changes, the slot is advanced;
4. the server is asked again: with this slot and a log at this position a stream may start;
5. an entry of kind gap is committed there, in the next epoch.

A slot created or advanced in step 3 and not recorded in step 5 is, at the next attempt, a slot that was
"confirmed" beyond the log, with the same two positions.

The operator types the position where the gap begins. `--yes` would not say which gap was looked at, and
an option of `run` would stay in a unit file and accept the next gap unseen.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Final

from gaussdecode.console.signals import interruptible
from gaussdecode.daemon.position import landing_position
from gaussdecode.errors import ConfigError, SourceRefusedError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model.entry import ENDED, CommitEntry
from gaussdecode.model.gap import Gap, GapReason
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.connections import is_gaussdb, open_pair, open_server
from gaussdecode.operations.landing_files import layout_at, opened
from gaussdecode.operations.slots import slots_of
from gaussdecode.settings.sections import Config
from gaussdecode.source import start
from gaussdecode.source.gap import find_gap
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.gaussdb.server import GaussServerState
from gaussdecode.source.postgresql.slot import read_server
from gaussdecode.source.slot import LandingPosition, ServerState, SlotState

END: Final = Lsn((1 << 64) - 1)
"""The present end of the server's WAL."""

_SEARCHED: Final = 100  # entries at the end of the log, for why the slot was lost; arbitrary


@contextlib.contextmanager
def open_log(config: Config) -> Iterator[CommitLog]:
    """Lock and recover the landing of a configuration, as the daemon does.

    Raises:
        ConfigError: there is no landing yet.
        IdentityError: the landing belongs to another slot.
        LandingError: the daemon holds the lock, or the landing is damaged.
    """
    root = config.landing.root
    layout = layout_at(root)
    if layout is None:
        raise ConfigError(f"{config.path.name}: {root} holds no landing, so nothing is missing")
    (kept,) = layout.sources.values()
    identity = dataclasses.replace(kept, slot=config.slot, kind=config.source.kind.value)
    with opened(root) as disk:
        yield CommitLog.open(disk.files, identity, space=disk.space)


@dataclasses.dataclass(frozen=True, slots=True)
class Hole:
    """The gap between a log and its slot.

    Attributes:
        config: configuration of the slot.
        log: position of the log.
        server: state of the server when the gap was measured.
        gap: gap to accept; its end is known only if the slot can be used.
        skips_until: position to advance the slot to; None to skip nothing.
    """

    config: Config
    log: LandingPosition
    server: ServerState
    gap: Gap
    skips_until: Lsn | None = None

    @classmethod
    def find(cls, config: Config, log: CommitLog, until: Lsn | None = None) -> "Hole":
        """Compare a log with its slot.

        Args:
            config: configuration of the slot.
            log: the locked log.
            until: skip changes up to this position; `END` for all, None for none.

        Raises:
            ConfigError: nothing is missing, the slot is in use, or `until` is not a position to
                skip to.
            IdentityError: another error exists, which accepting a gap does not repair.
            SourceError: the server does not answer.
        """
        state = landing_position(log.layout, log.entries, log.source)
        if state is None:
            raise ConfigError(f"{config.path.name}: the landing has no entry, nothing is missing")
        server = ask_server(config, state)
        check_server(config, state, _with_a_good_slot(server, state))
        gap = find_gap(state, server)
        if until is not None:
            until = server.wal_end if until == END else until
            gap = _skipped(config, state, server, gap, until)
        if gap is None:
            raise ConfigError(
                f"{config.path.name}: there is no gap to accept: slot {config.slot!r} has "
                f"everything after {state.lsn}, where the landing is"
            )
        slot = server.slot
        if slot is not None and slot.is_active:
            raise ConfigError(
                f"{config.path.name}: slot {config.slot!r} is in use by process "
                f"{slot.active_pid or 'unknown'} of the server; stop its reader, then accept the gap"
            )
        return cls(config, state, server, _with_reason(log, gap), until)

    @property
    def needs_slot(self) -> bool:
        """Whether accepting creates a slot; a lost one is dropped first."""
        return self.server.slot is None or _is_lost(self.server.slot)

    def accept(self, log: CommitLog, *, failover: bool = False) -> CommitEntry:
        """Do steps 3 to 5.

        Raises:
            IdentityError: a stream could not start afterwards; nothing is recorded.
            SourceError: the server failed or refused; nothing is recorded.
            LandingError: the entry could not be committed.
        """
        made = self._make_slot(failover=failover) if self.needs_slot else None
        if made is None and self.skips_until is not None:
            slots_of(self.config).advance(self.skips_until)
        server = ask_server(self.config, self.log)
        slot = server.slot
        until = made or (None if slot is None else slot.confirmed_flush_lsn) or self.log.lsn
        behind = dataclasses.replace(self.log, lsn=until, timeline=server.timeline)
        check_server(self.config, behind, server)
        ended = _ended_in_gap(self.config, log)
        _forget_snapshots(log)
        return _commit(log, self.gap, until, server.timeline, ended)

    def _make_slot(self, *, failover: bool) -> Lsn:
        slots = slots_of(self.config)
        slot = self.server.slot
        with interruptible() as interrupt:
            if slot is not None:
                slots.drop()
            failover = failover or (slot is not None and slot.is_failover)
            return slots.create(interrupt, failover=failover)


def _skipped(
    config: Config, log: LandingPosition, server: ServerState, gap: Gap | None, until: Lsn
) -> Gap:
    """The gap that remains if changes up to a position are skipped.

    Raises:
        ConfigError: the position cannot be skipped to.
    """
    begin = log.lsn if gap is None else gap.from_lsn
    known = begin if gap is None else gap.until_lsn
    if until <= begin or until < known:
        raise ConfigError(
            f"{config.path.name}: --until-lsn {until} is not after {known}, up to where changes have landed "
            "or are lost already"
        )
    if until > server.wal_end:
        raise ConfigError(
            f"{config.path.name}: --until-lsn {until}: the server's WAL ends at {server.wal_end}"
        )
    if gap is not None:
        return gap
    text = f"changes up to {until} are skipped on request"
    return Gap(GapReason.SKIPPED, begin, until, is_open=False, text=text)


def _is_lost(slot: SlotState) -> bool:
    return slot.wal_status == "lost" or slot.restart_lsn is None or bool(slot.invalidation_reason)


def ask_server(config: Config, log: LandingPosition | None) -> ServerState:
    """Ask a configuration's server for the state that decides whether a stream can start.

    Raises:
        SourceError: the server does not answer.
    """
    if is_gaussdb(config):
        with open_pair(config) as pair:
            return pair.state
    with open_server(config) as connection:
        return read_server(connection, config.slot, config.source.publication, log)


def check_server(config: Config, log: LandingPosition | None, server: ServerState) -> None:
    """Check that log, server and slot belong together.

    Raises:
        SourceRefusedError: they do not, or the stream could not be read.
    """
    if isinstance(server, GaussServerState):
        plugins = () if config.decoding.is_parallel else (config.source.plugin,)
        gaussserver.check_start(log, server, config.slot, plugins)
        problem = gaussserver.landing_problem(server)
        if problem is not None:
            raise SourceRefusedError(problem)
    else:
        start.check_start(log, server, config.slot, two_phase=config.source.two_phase)


def _with_a_good_slot(server: ServerState, log: LandingPosition) -> ServerState:
    """The same server state as if nothing were missing: any error left is not a gap."""
    slot = server.slot or SlotState(
        name=log.slot,
        plugin=log.plugin,
        slot_type="logical",
        database=server.database,
        is_temporary=False,
        is_active=False,
        active_pid=None,
        restart_lsn=None,
        confirmed_flush_lsn=None,
        wal_status=None,
        safe_wal_size=None,
        is_two_phase=False,
        invalidation_reason=None,
        is_failover=False,
    )
    at = start.log_position(log, server)
    good = dataclasses.replace(
        slot,
        restart_lsn=at,
        confirmed_flush_lsn=at,
        wal_status="reserved",
        invalidation_reason=None,
    )
    return dataclasses.replace(server, slot=good)


def _with_reason(log: CommitLog, gap: Gap) -> Gap:
    """Add the reason that the daemon recorded; the slot may exist again by now."""
    first = max(log.floor + 1, log.next_n - _SEARCHED)
    for entry in reversed(list(log.iterate(first, log.next_n - 1))):
        if entry.kind is EntryKind.GAP and entry.extra.get("from_lsn") == int(gap.from_lsn):
            known = Gap.from_extra(entry.extra)
            return dataclasses.replace(gap, reason=known.reason, text=known.text)
    return gap


def _forget_snapshots(log: CommitLog) -> None:
    """Drop chunks of unfinished snapshots: later changes of their rows may be in the gap."""
    store = SnapshotStore(log.disk)
    for table in store.tables():
        store.drop(table)


def _ended_in_gap(config: Config, log: CommitLog) -> list[str]:
    """Paths of kept prepared transactions that the server has no more: their end is in the gap."""
    kept = log.prepared
    if not kept:
        return []
    with open_server(config) as connection:
        rows = connection.query("SELECT transaction FROM pg_catalog.pg_prepared_xacts")
    waiting = {int(xid or 0) for (xid,) in rows}
    return [file.path for file in kept if file.xid not in waiting]


def _commit(log: CommitLog, gap: Gap, until: Lsn, timeline: int, ended: list[str]) -> CommitEntry:
    before = log.position
    assert before is not None
    accepted = dataclasses.replace(
        gap, until_lsn=until, is_open=False, is_accepted=True, text=f"accepted: {gap.text}"
    )
    position = SourcePosition(before.epoch + 1, timeline, int(until), before.csn)
    extra = accepted.to_extra() | ({ENDED: ended} if ended else {})
    return log.commit(Draft(kind=EntryKind.GAP, position=position, extra=extra))
