"""Create and connect all stages; no other module knows all of them.

    config -> source settings -> reader, decoders -> collector -> writer -> commit log

The landing is opened once, before the first session where it exists already (so that
recovery does not wait for a server), else when the first connection has told whose it is.
"""

import dataclasses
import functools
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from gaussdecode.collect.entry_barrier import EntryBarrier
from gaussdecode.collect.spool import Spool
from gaussdecode.daemon import quarantine
from gaussdecode.daemon.housekeeping import Housekeeper
from gaussdecode.daemon.mirroring import Mirror, mirror_of
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import Marks, SessionGroup
from gaussdecode.daemon.source_runtime import SourceRuntime
from gaussdecode.daemon.status.landed import Landed
from gaussdecode.daemon.streaming import Streaming
from gaussdecode.errors import (
    ConfigError,
    GaussDecodeError,
    IdentityError,
    StoppedError,
    TableError,
)
from gaussdecode.ipc.control import Word
from gaussdecode.ipc.process import Prepared
from gaussdecode.land.commitlog import ORDER_CSN, ORDER_LSN, CommitLog
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files, make_root
from gaussdecode.land.lanes import Lanes
from gaussdecode.land.layout import read_layout
from gaussdecode.land.mirror.known import check_url, read_state
from gaussdecode.land.mirror.restore import Told, find_layout, restore
from gaussdecode.land.names import SPOOL
from gaussdecode.land.snapshots import Json, SnapshotStore
from gaussdecode.land.space import Reserve, SpaceWait
from gaussdecode.land.writer import Intake, Writer
from gaussdecode.logs import Event, get_logger
from gaussdecode.metrics.metric import Labels
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.histogram import Counted
from gaussdecode.model.landing import EntryKind, SourceIdentity, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import table_title
from gaussdecode.objects.store import open_store
from gaussdecode.serve.kept import read_slots
from gaussdecode.serve.lags import Lags, slot_record
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import table_pairs
from gaussdecode.snapshot.choice import stopped
from gaussdecode.snapshot.doubts import read_again_n
from gaussdecode.snapshot.dropped import EVERY_SOURCE
from gaussdecode.snapshot.read import published_oids
from gaussdecode.snapshot.tablefilter import TableFilter, note_beginning
from gaussdecode.source.coverage import Coverage
from gaussdecode.source.relations import WhiteList
from gaussdecode.source.slot import LandingPosition, Place
from gaussdecode.source.start import same_place_problem

_log = get_logger("daemon")
_SLOTS_SECONDS: Final = 1.0  # between two looks at virtual slots


class Pipeline:
    """The landing, and sessions that fill it.

    Args:
        config: checked.
        should_stop: asked while waiting.
        is_paused: whether work that can wait is to wait.
        prepared: children that were started before; None for no such.
        is_collecting_paused: whether an operator wants nothing more to land.

    Attributes:
        landed: up to where, and what; written by the threads that commit.
        runtimes: the sources, by name.
        barrier: cuts the entries of the sessions that run now, where collectors do not decide alone.
    """

    def __init__(
        self,
        config: Config,
        should_stop: Callable[[], bool],
        is_paused: Callable[[], bool] = lambda: False,
        prepared: Prepared | None = None,
        is_collecting_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.prepared = prepared or Prepared()
        self.is_paused = is_collecting_paused
        self._config = config
        self._should_stop = should_stop
        self._is_paused = is_paused
        self.landed = Landed()
        members = config.members
        self.runtimes = {
            name: SourceRuntime(
                name,
                member,
                self,
                is_one_of_several=len(members) > 1,
                tables_from_first_source=_left_to_first(config) if at else None,
            )
            for at, (name, member) in enumerate(members.items())
        }
        self.barrier: EntryBarrier | None = None
        self._intake: Intake | None = None
        self._begin_lock = threading.RLock()
        self._places: dict[str, Place] = {}
        self._failure: BaseException | None = None
        self._reserve = reserve_of(config)
        self._space = SpaceWait(self.must_not_wait, on_wait=self._on_wait, kept=self._reserve)
        self._was_full = False
        self._spool_wait: str | None = None  # as it was logged
        self._is_leaving = False
        self.is_restart_wanted = False
        self.fetching: str | None = None  # how far the log is that comes from the mirror
        self._housekeeper: Housekeeper | None = None
        self._lags: Lags | None = None
        self._slots_seen: tuple[float, list[dict[str, Any]]] = (-_SLOTS_SECONDS, [])  # Any: JSON
        self.mirror: Mirror | None = None
        self.log: CommitLog | None = None
        self.writer: Writer | None = None
        self._stopped: dict[str, str] = {}
        self._pending_quarantines: dict[str, TableError] = {}

    def __enter__(self) -> Self:
        """Begin; `recover` opens the landing."""
        return self

    def recover(self) -> None:
        """Open the landing; only that of a recording is made here.

        Raises:
            ConfigError: there is none.
            GaussDecodeError: it is damaged, in use, or of another source.
        """
        root = self._config.landing.root
        kind = self._config.source.kind
        if kind is SourceKind.CAPTURE:
            make_root(root)
        kept = _kept_identities(root)
        if not kept and self._config.mirror.is_on:
            kept = begin_from_mirror(self._config, self._space, self._on_fetching)
            self.fetching = None
        if kept:
            self._open(self._as_configured(kept))
        if kind is not SourceKind.CAPTURE and (self.log is None or self.log.is_empty):
            raise ConfigError(_no_landing(self._config))

    def __exit__(self, *_exception: object) -> None:
        """Let go; what is not committed is left to recovery after an error."""
        self._is_leaving = True  # nobody waits for a full disk any more
        if self._housekeeper is not None:
            self._housekeeper.close()
        if self.mirror is not None:
            self.mirror.close()
        if self.writer is not None:
            self.writer.close()
        for runtime in self.runtimes.values():
            runtime.close()
        if self.log is not None:
            self.log.close()

    # ---- landing ---------------------------------------------------------------------

    def _as_configured(self, kept: Mapping[str, SourceIdentity]) -> dict[str, SourceIdentity]:
        """What a landing says of its sources, with the slots of the configuration."""
        kind = self._config.source.kind.value
        if len(kept) == len(self.runtimes) == 1:
            (identity,) = kept.values()
            return {
                name: dataclasses.replace(identity, slot=name, kind=kind) for name in self.runtimes
            }
        named = dict.fromkeys(self.runtimes, next(iter(kept.values()))) | {
            name: identity for name, identity in kept.items() if name in self.runtimes
        }
        return {
            name: dataclasses.replace(identity, slot=self.runtimes[name].config.slot, kind=kind)
            for name, identity in named.items()
        }

    def take_place(self, name: str, place: Place) -> None:
        """Know where a source is.

        Raises:
            IdentityError: another source is there.
        """
        with self._begin_lock:
            self._places[name] = place
            problem = same_place_problem(self._places)
        if problem is not None:
            raise IdentityError(problem)

    def open_log(self, name: str, identity: SourceIdentity) -> CommitLog:
        """The log; made where nobody has yet."""
        return self.log or self._open({name: identity})

    def _open(self, identities: Mapping[str, SourceIdentity]) -> CommitLog:
        landing = self._config.landing
        order = ORDER_CSN if self._config.lands_by_csn else ORDER_LSN
        (name, identity), *rest = identities.items()
        self.log = CommitLog.open(
            Files(landing.root),
            identity,
            source=name,
            others=dict(rest),
            order=order,
            space=self._space,
        )
        for finding in self.log.findings:
            _log.info(Event.LANDING_RECOVERED, finding=finding)
        self.snapshots = SnapshotStore(self.log.disk)
        self.snapshots.prepare()
        self._stopped = stopped(self.snapshots.ledger())
        self.writer = Writer(
            self.log,
            lanes=Lanes(landing.lanes, landing.most_lanes),
            lane_bytes=landing.row_group_bytes,
            target_file_size=landing.target_file_size,
            compression=landing.compression,
            on_durable=self._on_durable,
            on_error=self._on_error,
            on_landed=self._on_landed,
            on_lanes=self._on_lanes,
        )
        if not self._config.mirror.is_on:
            check_url(read_state(self.log.disk), "")
        self.mirror = mirror_of(self._config, self.log, self._on_shipped, self._on_error)
        if self.mirror is not None:
            self.mirror.start()
        self._housekeeper = Housekeeper(
            self.log,
            landing,
            self._on_error,
            is_paused=self._is_paused,
            mirror=self.mirror,
            slots=functools.partial(read_slots, landing.root),
        )
        self._housekeeper.start()
        log = self.log
        self._lags = Lags(
            lambda: (log.floor + 1, log.next_n - 1),
            log.iterate,
            is_by_csn=log.layout.order == ORDER_CSN,
        )
        position = self.log.position
        self.landed.reach(self.log.next_n - 1, None if position is None else position.lsn)
        return self.log

    @property
    def _first(self) -> SourceRuntime:
        return next(iter(self.runtimes.values()))

    @property
    def landing_position(self) -> LandingPosition | None:
        """Position of the landing for its source, or the first of several; None before it has begun."""
        return self._first.landing_position

    @property
    def positions(self) -> Mapping[str, SourcePosition]:
        """Up to where each source has landed; none before there is a log."""
        return {} if self.log is None else self.log.positions

    @property
    def coverage(self) -> Coverage:
        """Tables that only the publications or only the white list has, of the first source that reports some."""
        found = (
            runtime.coverage for runtime in self.runtimes.values() if runtime.coverage != Coverage()
        )
        return next(found, self._first.coverage)

    @property
    def server_version(self) -> int | None:
        """Of the newest stream's server, as a number; None before there was one."""
        return self._first.server_version

    @property
    def streaming(self) -> Streaming:
        """How the source, or the first of several, is asked for open transactions."""
        return self._first.streaming

    def _on_durable(self, position: SourcePosition) -> None:
        """Committer's thread: show it. The session whose rows they are tells its reader."""
        assert self.log is not None
        self.landed.reach(self.log.next_n - 1, position.lsn)

    def _on_shipped(self) -> None:
        """Mirror's thread: have the sessions' servers told, where they are told what the store has."""
        if self._confirms_mirror:
            self._confirm()

    def _confirm(self) -> None:
        """Give every session's reader its confirmable position."""
        for runtime in self.runtimes.values():
            if runtime.confirming is not None:
                runtime.confirming.tell()

    @property
    def _confirms_mirror(self) -> bool:
        return self._config.mirror.is_on and self._config.mirror.confirm == "mirror"

    def reached(self, name: str) -> SourcePosition | None:
        """Position up to which the landed changes of a source may be confirmed."""
        assert self.log is not None
        if not self._confirms_mirror:
            return self.log.positions.get(name)
        return None if self.mirror is None else self.mirror.positions.get(name)

    def intake(self) -> Intake:
        """Of the sessions that run now; the first of them begins it."""
        assert self.writer is not None
        with self._begin_lock:
            if self._intake is None:
                confirm = None if self._confirms_mirror else lambda _: self._confirm()
                self._intake = self.writer.begin(confirm)
            return self._intake

    def _on_landed(self, entry: CommitEntry) -> None:
        """Committer's thread: count what an entry brought."""
        assert self.writer is not None
        if self.mirror is not None:
            self.mirror.wake()
        self.landed.add(entry)
        position = next(iter(entry.positions.values()))
        if entry.kind is EntryKind.DATA:
            _log.debug(
                Event.BATCH_LANDED,
                entry=entry.n,
                files=len(entry.files),
                rows=sum(file.rows for file in entry.files),
                bytes=sum(file.bytes for file in entry.files),
                position=str(Lsn(position.lsn)),
            )

    def spool(self) -> Spool:
        """Room on the landing's disk for what memory may not hold."""
        return Spool(self._config.landing.root / SPOOL, self._space.run, self._space.reserve)

    @property
    def table_filter(self) -> TableFilter | None:
        """Of the newest session of the source, or of the first of several; None before there was one."""
        return self._first.table_filter

    @property
    def quarantined(self) -> dict[str, str]:
        """Why some tables stand still, by title; until all of their rows have landed again."""
        if self._stopped:
            self._stopped = stopped(self.snapshots.ledger())
        return self._stopped

    @property
    def has_pending_quarantine(self) -> bool:
        """Tables are left out of which the log does not say so yet."""
        return bool(self._pending_quarantines)

    def quarantine_table(self, error: TableError, session: Session | SessionGroup) -> None:
        """Between sessions: leave a table out from here on, and say so as soon as that may be."""
        collectors = [one.collector for one in session.members if one.collector is not None]
        if any(collector.assembler.is_comparing for collector in collectors):
            self._pending_quarantines[table_title(error.namespace, error.name)] = error
        else:
            quarantine.record(self._config, self, error)

    def ledger_of(self, name: str) -> dict[str, Json]:
        """The ledger of a source, with tables that are left out and not yet written down there."""
        pending = {
            title: quarantine.ledger_record(error)
            for title, error in self._pending_quarantines.items()
        }
        return {**self.runtimes[name].snapshots.ledger(), **pending}

    def commit_quarantines(self, intake: Intake) -> None:
        """Say of which tables nothing lands, before anything else does."""
        for error in self._pending_quarantines.values():
            quarantine.commit(self._config, self, intake, error)
        if self._pending_quarantines:
            self._stopped = stopped(self.snapshots.ledger())
        self._pending_quarantines = {}

    def read_again_n(self, source: str | None) -> int:
        """Up to which entry suspect tables of a source, or of all, were ordered and read again."""
        names = self.runtimes if source is None else [source]
        return min(read_again_n(self.runtimes[name].snapshots.ledger()) for name in names)

    def snapshot_landed(self, entry: CommitEntry) -> None:
        """Count an entry that is none of the stream's: of a snapshot, or of a quarantine."""
        self._on_landed(entry)
        self.landed.reach(entry.n)

    def restart_session(self) -> None:
        """Have the session end in order and another one begin."""
        self.is_restart_wanted = True

    def ask_snapshot(self, title: str) -> None:
        """Ask for the existing rows of a table; durable when this returns."""
        for runtime in self.runtimes.values():
            source = runtime.source
            every = {} if source is None else {"source": source, EVERY_SOURCE: True}
            runtime.snapshots.ask({"table": title, "where": None, **every})

    def end_entry(self) -> Callable[[], bool | None]:
        """Have an entry cut of what has arrived; gives what tells whether it has landed.

        That gives None where a session ended before: what had arrived comes again.
        """
        asked = []
        for runtime in self.runtimes.values():
            collector = None if runtime.session is None else runtime.session.collector
            if collector is not None:
                collector.end_entry()
                asked.append((runtime, collector))

        def has_landed() -> bool | None:
            for runtime, collector in asked:
                session = runtime.session
                is_over = session is None or session.collector is not collector
                durable_lsn = runtime.durable_lsn or 0
                if collector.is_entry_asked or durable_lsn < collector.position.lsn:
                    return None if is_over else False
            return True

        return has_landed

    def change_decoders(self, count: int) -> None:
        """Have the next session decode with so many, and begin it."""
        self._first.decoder_count = count
        self.restart_session()

    def fail(self, error: BaseException) -> None:
        """End the daemon for an error in another thread of the landing."""
        self._on_error(error)

    @property
    def is_waiting_for_space(self) -> bool:
        """The landing's disk is full."""
        return self._space.is_waiting

    @property
    def lane_count(self) -> int:
        """Threads that encode; before there are any, those that are begun with."""
        return self._config.landing.lanes if self.writer is None else self.writer.lane_count

    def stats(self) -> dict[str, float]:
        """Values of the landing, by metric without its prefix; also while it is recovered."""
        counts = self.landed.totals()
        counts["source_streaming_fallbacks_total"] = sum(
            runtime.streaming.fallback_count for runtime in self.runtimes.values()
        )
        counts["land_disk_full"] = float(self.is_waiting_for_space)
        counts["land_free_bytes"], counts["land_min_free_bytes"] = self._reserve.measure()
        held = None if self._housekeeper is None else self._housekeeper.held_bytes
        if held is not None:
            counts["land_virtual_slot_held_bytes"] = float(held)
            limit = self._config.landing.max_slot_keep_size
            if limit is not None:
                counts["land_virtual_slot_limit_bytes"] = float(limit)
        if self.mirror is not None:
            counts.update(self.mirror.stats())
        if self.writer is not None:
            counts["land_writer_lanes"] = float(self.writer.lane_count)
            counts["land_encoded_seconds_total"] = self.writer.encoding.seconds
            counts["land_synced_seconds_total"] = self.writer.syncing.seconds
            counts["land_synced_beside_seconds_total"] = self.writer.syncing_beside.any_seconds
            counts["land_published_seconds_total"] = self.writer.committing.seconds
            counts["collect_blocked_seconds_total"] = self.writer.blocked_seconds
        return counts

    def virtual_slots(self) -> list[dict[str, Any]]:  # Any: JSON
        """The virtual slots of `gaussdecode serve`, as they are on disk."""
        now, lags = time.monotonic(), self._lags
        if lags is not None and now - self._slots_seen[0] > _SLOTS_SECONDS:
            slots = read_slots(self._config.landing.root)
            found = lags.look(slots)
            self._slots_seen = (now, [slot_record(slot, found[slot.name]) for slot in slots])
        return self._slots_seen[1]

    def histograms(self) -> dict[str, dict[Labels, Counted]]:
        """Durations of the landing, by metric without its prefix and by labels."""
        if self.writer is None:
            return {}
        stages: dict[Labels, Counted] = {
            (stage,): of.counted for stage, of in self.writer.durations.items()
        }
        return {
            "land_commit_to_durable_seconds": {(): self.writer.latency.counted},
            "daemon_stage_seconds": stages,
        }

    def _on_error(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def _on_lanes(self, count: int) -> None:
        _log.info(Event.LANES_ADDED, lanes=count)

    def _on_wait(self, reason: str) -> None:
        _log.warning(Event.DISK_FULL, reason=reason)

    def _on_fetching(self, what: str, done: int, total: int) -> None:
        """Recovery's thread: say how far it is, and end it when a stop is asked for."""
        self.fetching = f"the log comes from the mirror: {done} of {total} {what}"
        if self.must_not_wait():
            raise StoppedError(f"{self.fetching}; the next start begins it again")

    def check(self) -> None:
        """Called several times per second.

        Raises:
            GaussDecodeError: the writer failed.
        """
        if self._failure is not None:
            raise self._failure
        is_full = self.is_waiting_for_space
        if self._was_full and not is_full:
            _log.info(Event.DISK_FREED)
        self._was_full = is_full
        for runtime in self.runtimes.values():
            if runtime.session is not None:
                # Nobody has to move in a pause either.
                runtime.session.control.set(Word.DISK_WAIT, int(is_full or self.is_paused()))
            if runtime.streaming.may_resume(runtime.durable_lsn):
                self.restart_session()
            runtime.renew_if_due()
        self._note_spool_wait()

    def _note_spool_wait(self) -> None:
        waits = (runtime.spool_wait for runtime in self.runtimes.values())
        wait = next((one for one in waits if one is not None), None)
        if wait is not None and wait != self._spool_wait:
            _log.error(Event.SPOOL_FULL, reason=wait)
        self._spool_wait = wait

    # ---- sessions --------------------------------------------------------------------

    def session(
        self, on_tick: Callable[[], None], on_streaming: Callable[[], None]
    ) -> Session | SessionGroup:
        """Make the next session, or one of each source, from the durable position.

        Args:
            on_tick: called several times per second.
            on_streaming: called when the source has begun the stream, or all of them have.
        """
        self.is_restart_wanted = False
        if self.writer is not None:
            self.writer.discard()  # what the session before could not commit comes again
        self._intake = None
        if not self._config.cuts_together:
            return self._first.make_session(self._should_stop, on_tick, on_streaming)
        names = tuple(self.runtimes)
        self.barrier = barrier = EntryBarrier(
            names, lambda request: self.intake().commit(request), self._config.reorderbuffer_bytes
        )

        def make(name: str, should_stop: Callable[[], bool], told: Callable[[], None]) -> Session:
            return self.runtimes[name].make_session(should_stop, lambda: None, told)

        def marks(on_error: Callable[[BaseException], None]) -> Marks:
            from gaussdecode.daemon.csn_marks import (
                Marking,  # what few landings need, at their start
            )

            members = {name: runtime.config for name, runtime in self.runtimes.items()}
            return Marking(barrier, members, on_error)

        return SessionGroup(
            make,
            names,
            marks if self._config.lands_by_csn else None,
            self._should_stop,
            on_tick,
            on_streaming,
            barrier.end,
        )

    def session_ended(self, error: GaussDecodeError | None) -> None:
        """A session has ended, or those of all sources; the next may be asked for otherwise."""
        for runtime in self.runtimes.values():
            runtime.session_ended(error)

    def choose_tables(self, name: str, *, is_new: bool) -> TableFilter:
        """Write down how the landing begins, before it does; and see what is left out of a source.

        It begins for all sources at once: what one of them lands first makes it old for the others.

        Raises:
            ConfigError: it would begin without the rows that there are, and nobody said that it may.
        """
        with self._begin_lock:
            refusal = self._config.beginning_refusal
            if is_new and refusal is not None:
                raise ConfigError(refusal)
            if self._config.snapshot_refusal is None:
                for runtime in self.runtimes.values():
                    list_tables = functools.partial(published_oids, runtime.config)
                    note_beginning(runtime.snapshots, runtime.config, list_tables, is_new=is_new)
            runtime = self.runtimes[name]
            self._stopped = stopped(self.snapshots.ledger())
            return TableFilter(runtime.snapshots, runtime.config, self.ledger_of(name))

    def see_role(self, *, is_standby: bool | None) -> None:
        """Begin anew when the standby that is read was promoted, before its WAL goes far."""
        self._first.see_role(is_standby=is_standby)

    def landed_ns(self) -> int:
        """Monotonic time at which the writer last moved."""
        return 0 if self.writer is None else self.writer.moved_ns

    def must_not_wait(self) -> bool:
        """Whether a wait is to end."""
        return self._failure is not None or self._is_leaving or self._should_stop()

    def should_stop(self) -> bool:
        """Whether the sessions are to end."""
        return self._should_stop()

    def drain(self, seconds: float) -> bool:
        """Wait for the writer to commit all it was given; True when it has."""
        assert self.writer is not None
        is_done = self.writer.drain(seconds)
        self.check()
        return is_done


def _left_to_first(config: Config) -> WhiteList | None:
    """Tables that are taken from the first source only; None where none are."""
    listed = table_pairs(config.landing.replicated_tables)
    return WhiteList(listed) if listed else None


def reserve_of(config: Config) -> Reserve:
    """Space that the landing keeps free on its file system."""
    return Reserve(config.landing.root, config.landing.min_free_bytes)


def _no_landing(config: Config) -> str:
    """Say that there is nothing to go on with, and what begins it."""
    root = config.landing.root
    found = "holds no landing" if root.is_dir() else "does not exist"
    return (
        f"{config.path.name}: landing.root: {root} {found}. If it is on a file system that is not mounted, "
        f"mount it. To begin a landing there: gaussdecode slot create {config.path}, or, for a slot that "
        f"exists, gaussdecode slot adopt {config.path}"
    )


def begin_from_mirror(
    config: Config, space: SpaceWait | None = None, told: Told = lambda *_: None
) -> dict[str, SourceIdentity]:
    """Fetch the landing that a mirror holds into an empty root; gives whose it is, if any.

    Args:
        config: configuration with a mirror.
        space: waits for room on the disk.
        told: how far it is.

    Raises:
        GaussDecodeError: it is damaged, or the store does not do it.
    """
    root = config.landing.root
    store = open_store(config.mirror)
    layout = find_layout(store)
    if layout is None:
        return {}
    if set(config.members) != set(layout.sources):
        raise ConfigError(
            f"{config.path.name}: landing.mirror.url: {store.url} holds the landing of slot "
            f"{', '.join(layout.sources)}, not of {', '.join(config.members)}; correct one of them"
        )
    make_root(root)
    files = Files(root)
    try:
        files.check_root()
        files.lock()
        last = restore(Disk(files, space or SpaceWait(), secrets.token_hex(8)), store, told)
    finally:
        files.close()
    _log.warning(Event.MIRROR_FETCHED, url=config.mirror.url, entry=last)
    return _kept_identities(root)


def _kept_identities(root: Path) -> dict[str, SourceIdentity]:
    """Whose landing is at `root`, by name; nobody's where there is none yet."""
    if not root.is_dir():
        return {}
    files = Files(root)
    try:
        layout = read_layout(Disk(files, SpaceWait(), "look"))
    finally:
        files.close()
    return {} if layout is None else dict(layout.sources)
