"""Create and connect all stages; no other module knows all of them.

    config -> source settings -> reader, decoders -> collector -> writer -> commit log

The landing is opened once, before the first session where it exists already (so that
recovery does not wait for a server), else when the first connection has told whose it is.
"""

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Self

from gaussdecode.collect.entry_barrier import EntryBarrier
from gaussdecode.collect.spool import Spool
from gaussdecode.daemon.existing_landing import (
    as_configured,
    begin_from_mirror,
    kept_identities,
    no_landing,
)
from gaussdecode.daemon.housekeeping import Housekeeper
from gaussdecode.daemon.mirroring import Mirror, mirror_of
from gaussdecode.daemon.quarantine import Quarantines
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import SessionGroup, group_of
from gaussdecode.daemon.source_runtime import SourceRuntime
from gaussdecode.daemon.status.landed import Landed
from gaussdecode.daemon.status.values import writer_histograms, writer_values
from gaussdecode.daemon.streaming import Streaming
from gaussdecode.daemon.virtual_slots import VirtualSlots
from gaussdecode.errors import ConfigError, GaussDecodeError, IdentityError, StoppedError
from gaussdecode.ipc.control import Word
from gaussdecode.ipc.process import Prepared
from gaussdecode.land.commitlog import ORDER_CSN, ORDER_LSN, CommitLog
from gaussdecode.land.files import Files, make_root
from gaussdecode.land.lanes import Lanes
from gaussdecode.land.mirror.known import check_url, read_state
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
from gaussdecode.serve.kept import read_slots
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import table_pairs
from gaussdecode.snapshot.doubts import read_again_n
from gaussdecode.snapshot.dropped import EVERY_SOURCE
from gaussdecode.snapshot.read import published_oids
from gaussdecode.snapshot.tablefilter import TableFilter, note_beginning
from gaussdecode.source.coverage import Coverage
from gaussdecode.source.relations import WhiteList
from gaussdecode.source.slot import Place
from gaussdecode.source.start import same_place_problem

_log = get_logger("daemon")


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
        reserve: space that the landing keeps free on its file system.
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
        self.should_stop = should_stop
        self._is_paused = is_paused
        self.landed = Landed()
        members = config.members
        of_first = table_pairs(config.landing.replicated_tables)
        self.runtimes = {
            name: SourceRuntime(
                name,
                member,
                self,
                is_one_of_several=len(members) > 1,
                tables_from_first_source=WhiteList(of_first) if at and of_first else None,
            )
            for at, (name, member) in enumerate(members.items())
        }
        self.barrier: EntryBarrier | None = None
        self._intake: Intake | None = None
        self._begin_lock = threading.RLock()
        self._places: dict[str, Place] = {}
        self._failure: BaseException | None = None
        self.reserve = Reserve(config.landing.root, config.landing.min_free_bytes)
        self._space = SpaceWait(
            self.must_not_wait,
            on_wait=lambda reason: _log.warning(Event.DISK_FULL, reason=reason),
            kept=self.reserve,
        )
        self._was_full = False
        self._spool_wait: str | None = None  # as it was logged
        self._is_leaving = False
        self.is_restart_wanted = False
        self.fetching: str | None = None  # how far the log is that comes from the mirror
        self._housekeeper: Housekeeper | None = None
        self.virtual_slots = VirtualSlots(config.landing.root, lambda: self.log)
        self.mirror: Mirror | None = None
        self.log: CommitLog | None = None
        self.writer: Writer | None = None
        self.quarantines = Quarantines(config, self)

    def __enter__(self) -> Self:
        """Begin; `recover` opens the landing."""
        return self

    def recover(self) -> None:
        """Open the landing; only that of a recording is made here.

        Raises:
            ConfigError: there is none.
            GaussDecodeError: it is damaged, in use, or of another source.
        """
        root, kind = self._config.landing.root, self._config.source.kind
        if kind is SourceKind.CAPTURE:
            make_root(root)
        kept = kept_identities(root)
        if not kept and self._config.mirror.is_on:
            kept = begin_from_mirror(self._config, self._space, self._on_fetching)
            self.fetching = None
        if kept:
            self._open(as_configured(self._config, kept))
        if kind is not SourceKind.CAPTURE and (self.log is None or self.log.is_empty):
            raise ConfigError(no_landing(self._config))

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
        landing, files = self._config.landing, Files(self._config.landing.root)
        order = ORDER_CSN if self._config.lands_by_csn else ORDER_LSN
        (name, identity), *rest = identities.items()
        self.log = CommitLog.open(
            files, identity, source=name, others=dict(rest), order=order, space=self._space
        )
        for finding in self.log.findings:
            _log.info(Event.LANDING_RECOVERED, finding=finding)
        self.snapshots = SnapshotStore(self.log.disk)
        self.snapshots.prepare()
        self.quarantines.look()
        self.writer = Writer(
            self.log,
            lanes=Lanes(landing.lanes, landing.most_lanes),
            lane_bytes=landing.row_group_bytes,
            target_file_size=landing.target_file_size,
            compression=landing.compression,
            on_durable=self._on_durable,
            on_error=self.fail,
            on_landed=self._on_landed,
            on_lanes=lambda count: _log.info(Event.LANES_ADDED, lanes=count),
        )
        if not self._config.mirror.is_on:
            check_url(read_state(self.log.disk), "")
        self.mirror = mirror_of(self._config, self.log, self._on_shipped, self.fail)
        if self.mirror is not None:
            self.mirror.start()
        slots = functools.partial(read_slots, landing.root)
        self._housekeeper = Housekeeper(
            self.log, landing, self.fail, self._is_paused, self.mirror, slots
        )
        self._housekeeper.start()
        position = self.log.position
        self.landed.reach(self.log.next_n - 1, None if position is None else position.lsn)
        return self.log

    @property
    def first(self) -> SourceRuntime:
        """The only source, or the first of several."""
        return next(iter(self.runtimes.values()))

    @property
    def positions(self) -> Mapping[str, SourcePosition]:
        """Up to where each source has landed; none before there is a log."""
        return {} if self.log is None else self.log.positions

    @property
    def coverage(self) -> Coverage:
        """Tables that only the publications or only the white list has, of the first source that reports some."""
        found = [of.coverage for of in self.runtimes.values() if of.coverage != Coverage()]
        return found[0] if found else self.first.coverage

    @property
    def server_version(self) -> int | None:
        """Of the newest stream's server, as a number; None before there was one."""
        return self.first.server_version

    @property
    def streaming(self) -> Streaming:
        """How the source, or the first of several, is asked for open transactions."""
        return self.first.streaming

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
        return self.first.table_filter

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Why some tables stand still, by title."""
        return self.quarantines.stopped

    def ledger_of(self, name: str) -> dict[str, Json]:
        """The ledger of a source, with tables that are left out and not yet written down there."""
        return {**self.runtimes[name].snapshots.ledger(), **self.quarantines.pending_records()}

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
        asked = [
            (runtime, runtime.session.collector)
            for runtime in self.runtimes.values()
            if runtime.session is not None and runtime.session.collector is not None
        ]
        for _, collector in asked:
            collector.end_entry()

        def has_landed() -> bool | None:
            for runtime, collector in asked:
                session = runtime.session
                is_over = session is None or session.collector is not collector
                durable_lsn = runtime.durable_lsn or 0
                if collector.is_entry_asked or durable_lsn < collector.position.lsn:
                    return None if is_over else False
            return True

        return has_landed

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
        counts["land_free_bytes"], counts["land_min_free_bytes"] = self.reserve.measure()
        if self._housekeeper is not None:
            counts.update(self._housekeeper.values())
        if self.mirror is not None:
            counts.update(self.mirror.stats())
        if self.writer is not None:
            counts.update(writer_values(self.writer))
        return counts

    def histograms(self) -> dict[str, dict[Labels, Counted]]:
        """Durations of the landing, by metric without its prefix and by labels."""
        return {} if self.writer is None else writer_histograms(self.writer)

    def fail(self, error: BaseException) -> None:
        """End the daemon for an error in a thread of the landing; the first one counts."""
        if self._failure is None:
            self._failure = error

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
        wait = next(filter(None, (of.spool_wait for of in self.runtimes.values())), None)
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
            return self.first.make_session(self.should_stop, on_tick, on_streaming)
        self.barrier = EntryBarrier(
            tuple(self.runtimes),
            lambda request: self.intake().commit(request),
            self._config.reorderbuffer_bytes,
        )
        by_csn = self._config.lands_by_csn
        return group_of(
            self.runtimes, self.barrier, self.should_stop, on_tick, on_streaming, is_by_csn=by_csn
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
            self.quarantines.look()
            return TableFilter(runtime.snapshots, runtime.config, self.ledger_of(name))

    def landed_ns(self) -> int:
        """Monotonic time at which the writer last moved."""
        return 0 if self.writer is None else self.writer.moved_ns

    def must_not_wait(self) -> bool:
        """Whether a wait is to end."""
        return self._failure is not None or self._is_leaving or self.should_stop()

    def drain(self, seconds: float) -> bool:
        """Wait for the writer to commit all it was given; True when it has."""
        assert self.writer is not None
        is_done = self.writer.drain(seconds)
        self.check()
        return is_done
