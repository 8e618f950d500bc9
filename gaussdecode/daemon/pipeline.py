"""The one file that knows all stages, and wires them.

    config -> source settings -> reader, decoders -> collector -> writer -> commit log

The landing is opened once, before the first session where it exists already (so that
recovery does not wait for a server), else when the first connection has told whose it is.
"""

import dataclasses
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gaussdecode.collect.collector import Collector
from gaussdecode.collect.gate import Gate
from gaussdecode.collect.spool import Spool
from gaussdecode.collect.suspects import STOPPED
from gaussdecode.collect.tables import Tables
from gaussdecode.daemon import publications, quarantine
from gaussdecode.daemon.beginning import (
    Confirming,
    collector_settings,
    compare_resent,
    goes_on_at,
    is_unused,
    prepared_of,
)
from gaussdecode.daemon.housekeeping import Housekeeper
from gaussdecode.daemon.mirroring import Mirror, mirror_of
from gaussdecode.daemon.position import landing_position
from gaussdecode.daemon.session import Confirm, Session, SessionSettings
from gaussdecode.daemon.status.landed import Landed
from gaussdecode.daemon.streaming import Streaming
from gaussdecode.errors import (
    ConfigError,
    GaussDecodeError,
    StoppedError,
    SuspectError,
    TableError,
)
from gaussdecode.ipc.control import Word
from gaussdecode.land.commitlog import ORDER_CSN, ORDER_LSN, CommitLog
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files, make_root
from gaussdecode.land.layout import HIDES_TRUNCATE, read_layout
from gaussdecode.land.mirror.known import check_url, read_state
from gaussdecode.land.mirror.restore import Told, find_layout, restore
from gaussdecode.land.names import SPOOL, safe_columns, table_directory
from gaussdecode.land.schemas import read_schema
from gaussdecode.land.snapshots import Json, SnapshotStore
from gaussdecode.land.space import Reserve, SpaceWait
from gaussdecode.land.writer import Intake, Writer
from gaussdecode.logs import Event, get_logger
from gaussdecode.metrics import Labels
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.histogram import Counted
from gaussdecode.model.landing import EntryKind, SourceIdentity, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.relation import Relation
from gaussdecode.model.request import EntryRequest
from gaussdecode.model.title import table_title
from gaussdecode.objects.store import open_store
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import NOT_STREAMED, Config
from gaussdecode.snapshot.choice import stopped
from gaussdecode.snapshot.read import published_oids
from gaussdecode.snapshot.tablefilter import TableFilter, note_beginning, unread
from gaussdecode.source.address import source_address
from gaussdecode.source.catalog import CatalogTable
from gaussdecode.source.coverage import UNSENT, Coverage, listing
from gaussdecode.source.lookup import lookup_of
from gaussdecode.source.postgresql.members import read_members
from gaussdecode.source.settings import ReaderSettings
from gaussdecode.source.slot import LandingPosition

_FIRST_EPOCH: Final = 1
_HIDDEN: Final = (
    "the stream shows no TRUNCATE and no DDL (parallel decoding, or a server that never sends "
    "them): a table that is emptied keeps its rows in what is built from this landing"
)
_HIDDEN_ADVICE: Final = (
    "source.invisible-truncate is stop: decode serially on openGauss 6.0.0 or newer, or set warn"
)
_NOT_LISTED: Final = "published, but not on decoding.white-table-list: none of their changes land"
_NOT_PUBLISHED: Final = "on decoding.white-table-list, but no configured publication has them"
_log = get_logger("daemon")


class Pipeline:
    """The landing, and sessions that fill it.

    Args:
        config: checked.
        should_stop: asked while waiting.
        is_paused: whether work that can wait is to wait.

    Attributes:
        landed: up to where, and what; written by the threads that commit.
        coverage: what only one of publications and white list has; written by main's thread.
    """

    def __init__(
        self,
        config: Config,
        should_stop: Callable[[], bool],
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._should_stop = should_stop
        self._is_paused = is_paused
        self.landed = Landed()
        self.coverage = Coverage()
        self.server_version: int | None = None
        self._session: Session | None = None
        self._failure: BaseException | None = None
        self._reserve = reserve_of(config)
        self._space = SpaceWait(self._must_not_wait, on_wait=self._on_wait, kept=self._reserve)
        self._catalog = lookup_of(config)
        self._was_full = False
        self._spool_wait: str | None = None  # as it was logged
        self._is_leaving = False
        self.is_restart_wanted = False
        self.fetching: str | None = None  # how far the log is that comes from the mirror
        self._housekeeper: Housekeeper | None = None
        self.mirror: Mirror | None = None
        self._confirming: Confirming | None = None
        self.gate = Gate(self.spool, self._must_not_wait)
        self.log: CommitLog | None = None
        self.writer: Writer | None = None
        self.table_filter: TableFilter | None = None
        self._stopped: dict[str, str] = {}
        self._aside: dict[str, TableError] = {}
        source = config.source
        self.streaming = Streaming(source.streaming, self._on_fallback, wants_binary=source.binary)
        self._instance = ""  # of the server that this process reads
        self._reads_standby = False  # it was one when the session began
        self._promoted = ""  # instance that is known to have been promoted
        self._publications: publications.Identities = {}
        self._publications_at = 0.0  # monotonic

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
        identity = _kept_identity(root)
        if identity is None and self._config.mirror.is_on:
            identity = begin_from_mirror(self._config, self._space, self._on_fetching)
            self.fetching = None
        if identity is not None:
            self._open(dataclasses.replace(identity, slot=self._config.slot, kind=kind.value))
        if kind is not SourceKind.CAPTURE and (self.log is None or self.log.is_empty):
            raise ConfigError(_no_landing(self._config))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go; what is not committed is left to recovery after an error."""
        self._is_leaving = True  # nobody waits for a full disk any more
        if self._housekeeper is not None:
            self._housekeeper.close()
        if self.mirror is not None:
            self.mirror.close()
        if self.writer is not None:
            self.writer.close()
        self._catalog.close()
        if self.log is not None:
            self.log.close()

    # ---- landing ---------------------------------------------------------------------

    def _open(self, identity: SourceIdentity) -> CommitLog:
        landing = self._config.landing
        order = ORDER_CSN if self._config.lands_by_csn else ORDER_LSN
        self.log = CommitLog.open(Files(landing.root), identity, order=order, space=self._space)
        for finding in self.log.findings:
            _log.info(Event.LANDING_RECOVERED, finding=finding)
        self.snapshots = SnapshotStore(self.log.disk)
        self.snapshots.prepare()
        self._stopped = stopped(self.snapshots.ledger())
        self.writer = Writer(
            self.log,
            lanes=landing.writer_lanes,
            queue_bytes=2 * landing.writer_lanes * landing.row_group_bytes,
            target_file_size=landing.target_file_size,
            compression=landing.compression,
            on_durable=self._on_durable,
            on_error=self._on_error,
            on_landed=self._on_landed,
        )
        if not self._config.mirror.is_on:
            check_url(read_state(self.log.disk), "")
        self.mirror = mirror_of(self._config, self.log, self._on_shipped, self._on_error)
        if self.mirror is not None:
            self.mirror.start()
        self._housekeeper = Housekeeper(
            self.log, landing, self._on_error, is_paused=self._is_paused, mirror=self.mirror
        )
        self._housekeeper.start()
        position = self.log.position
        self.landed.reach(self.log.next_n - 1, None if position is None else position.lsn)
        return self.log

    @property
    def landing_position(self) -> LandingPosition | None:
        """What the landing tells the source of itself; None for one that has not begun."""
        if self.log is None:
            return None
        position = landing_position(self.log.layout, self.log.entries)
        if position is None:
            return None
        return dataclasses.replace(position, instance=self._instance)

    def _on_durable(self, position: SourcePosition) -> None:
        """Committer's thread: show it. The session whose rows they are tells its reader."""
        assert self.log is not None
        self.landed.reach(self.log.next_n - 1, position.lsn)

    def _on_shipped(self, position: SourcePosition) -> None:
        """Mirror's thread: have the session's server told, where it is told what the store has."""
        confirming = self._confirming
        if self._confirms_mirror and confirming is not None:
            confirming(position)

    @property
    def _confirms_mirror(self) -> bool:
        return self._config.mirror.is_on and self._config.mirror.confirm == "mirror"

    def _reached(self) -> SourcePosition | None:
        """Up to where what has landed may be confirmed."""
        assert self.log is not None
        if not self._confirms_mirror:
            return self.log.position
        return None if self.mirror is None else self.mirror.position

    def _on_landed(self, entry: CommitEntry) -> None:
        """Committer's thread: count what an entry brought."""
        assert self.writer is not None
        if self.mirror is not None:
            self.mirror.wake()
        self.landed.add(entry)
        (position,) = entry.positions.values()
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
    def quarantined(self) -> dict[str, str]:
        """Why some tables stand still, by title; until all of their rows have landed again."""
        if self._stopped:
            self._stopped = stopped(self.snapshots.ledger())
        return self._stopped

    def stop_table(self, error: TableError, session: Session) -> None:
        """Between sessions: leave a table out from here on, and say so as soon as that may be."""
        collector = session.collector
        if collector is not None and collector.assembler.is_comparing:
            self._aside[table_title(error.namespace, error.name)] = error
        else:
            quarantine.record(self._config, self, error)

    def _left_out(self) -> dict[str, Json]:
        """The ledger, with tables that are left out and not yet written down there."""
        aside = {title: quarantine.left_out(error) for title, error in self._aside.items()}
        return {**self.snapshots.ledger(), **aside}

    def _commit_aside(self, intake: Intake) -> None:
        """Say of which tables nothing lands, before anything else does."""
        for error in self._aside.values():
            quarantine.commit(self._config, self, intake, error)
        if self._aside:
            self._stopped = stopped(self.snapshots.ledger())
        self._aside = {}

    def snapshot_landed(self, entry: CommitEntry) -> None:
        """Count an entry that is none of the stream's: of a snapshot, or of a quarantine."""
        self._on_landed(entry)
        self.landed.reach(entry.n)

    def see_role(self, *, is_standby: bool | None) -> None:
        """Begin anew when the standby that is read was promoted, before its WAL goes far.

        What a session notes belongs to the timeline that it began with.
        """
        if is_standby is False and self._reads_standby and self._promoted != self._instance:
            self._promoted = self._instance
            _log.warning(
                Event.STANDBY_PROMOTED,
                text="the daemon goes on with it; take decoding.standby-connection out before the "
                "next restart",
            )
            self.restart_session()

    def restart_session(self) -> None:
        """Have the session end in order and another one begin."""
        self.is_restart_wanted = True

    def fail(self, error: BaseException) -> None:
        """End the daemon for an error in another thread of the landing."""
        self._on_error(error)

    @property
    def is_waiting_for_space(self) -> bool:
        """The landing's disk is full."""
        return self._space.is_waiting

    def stats(self) -> dict[str, float]:
        """Values of the landing, by metric without its prefix; also while it is recovered."""
        counts = self.landed.totals()
        counts["source_streaming_fallbacks_total"] = self.streaming.fallback_count
        counts["land_disk_full"] = float(self.is_waiting_for_space)
        counts["land_free_bytes"], counts["land_min_free_bytes"] = self._reserve.measure()
        if self.mirror is not None:
            counts.update(self.mirror.stats())
        if self.writer is not None:
            counts["land_encoded_seconds_total"] = self.writer.encoding.seconds
            counts["land_synced_seconds_total"] = self.writer.syncing.seconds
            counts["land_published_seconds_total"] = self.writer.committing.seconds
            counts["collect_blocked_seconds_total"] = self.writer.blocked_seconds
        return counts

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

    def _on_wait(self, reason: str) -> None:
        _log.warning(Event.DISK_FULL, reason=reason)

    def _on_fetching(self, what: str, done: int, total: int) -> None:
        """Recovery's thread: say how far it is, and end it when a stop is asked for."""
        self.fetching = f"the log comes from the mirror: {done} of {total} {what}"
        if self._must_not_wait():
            raise StoppedError(f"{self.fetching}; the next start begins it again")

    @property
    def _durable_lsn(self) -> int | None:
        position = None if self.log is None else self.log.position
        return None if position is None else position.lsn

    def _on_fallback(self, reason: str) -> None:
        _log.error(Event.STREAMING_FALLBACK, reason=reason)

    def session_ended(self, error: GaussDecodeError | None) -> None:
        """A session has ended; the next may be asked for otherwise."""
        self.streaming.ended(error, self._durable_lsn)

    def _must_not_wait(self) -> bool:
        return self._failure is not None or self._is_leaving or self._should_stop()

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
        if self._session is not None:
            self._session.control.set(Word.DISK_WAIT, int(is_full))
            self._note_spool_wait(self._session)
        if self.streaming.may_resume(self._durable_lsn):
            self.restart_session()

    def _note_spool_wait(self, session: Session) -> None:
        wait = None if session.collector is None else session.collector.spool_wait
        if wait is not None and wait != self._spool_wait:
            _log.error(Event.SPOOL_FULL, reason=wait)
        self._spool_wait = wait

    # ---- sessions --------------------------------------------------------------------

    def session(self, on_tick: Callable[[], None], on_streaming: Callable[[], None]) -> Session:
        """Make the next session, from the durable position.

        Args:
            on_tick: called several times per second.
            on_streaming: called when the source has begun the stream.
        """
        config = self._config
        self.is_restart_wanted = False
        if self.writer is not None:
            self.writer.discard()  # what the session before could not commit comes again
        session = Session(
            SessionSettings(
                decoder_count=config.decoding.parallel_decode_num,
                queue_entries=config.decoding.parallel_queue_size,
                raw_ring_bytes=config.ring.raw_ring_bytes,
                decoded_ring_bytes=config.ring.decoded_ring_bytes,
                kept_buffer_bytes=config.decoding.kept_buffer_bytes,
                max_row_bytes=config.source.max_row_bytes,
                reader=dataclasses.replace(
                    ReaderSettings.of(
                        config, self.landing_position, str(config.landing.root / SPOOL)
                    ),
                    streaming=self.streaming.mode,
                    binary=self.streaming.is_binary,
                    **({} if self.log is None else unread(self._left_out())),
                ).to_record(),
            ),
            self._begin,
            self._drain,
            self._should_stop,
            on_tick,
            self._landed_ns,
            on_streaming,
        )
        self._session = session
        return session

    def _begin(self, facts: Mapping[str, Any], confirm: Confirm) -> Collector:  # Any: JSON
        """Check whose stream it is, write the genesis entry of a new log, make a collector."""
        log = self._accept(facts)
        self._instance = str(facts.get("instance", ""))
        self._reads_standby = bool(facts.get("is_standby", False))
        assert self.writer is not None
        timeline, start_lsn = int(facts["timeline"]), int(facts["start_lsn"])
        self._confirming = confirming = Confirming(confirm, self._reached)
        intake = self.writer.begin(None if self._confirms_mirror else confirming)
        table_filter = self._choose_tables(is_new=is_unused(log))
        if log.is_empty:
            start = SourcePosition(_FIRST_EPOCH, timeline, start_lsn)
            intake.commit(EntryRequest(kind=EntryKind.GENESIS, position=start))
            intake.drain()
        self._check_publications(log, intake, facts)
        assert log.position is not None
        position = goes_on_at(log.position, timeline, facts["log_lsn"])
        has_forked = log.position.timeline not in (0, timeline)

        def go_on() -> None:
            if has_forked:
                self._note_fork(log, intake, position)
            self._commit_aside(intake)
            confirming.begin()

        has_stopped = bool(self.quarantined or self._aside)
        settings = collector_settings(
            self._config,
            has_stopped=has_stopped,
            is_streamed=self.streaming.mode != NOT_STREAMED,
        )
        tables = self._tables(log, intake, table_filter)
        resent = compare_resent(
            log, start_lsn, position.lsn, self._config.decoding.excluded_users, go_on
        )
        return Collector(
            settings,
            tables,
            intake,
            self.spool(),
            position,
            log.schemas,
            self.gate,
            resent,
            prepared_of(log, position.lsn),
            self._should_stop,
            self._must_not_wait,
        )

    def _accept(self, facts: Mapping[str, Any]) -> CommitLog:  # Any: JSON
        """See that the stream is the landing's, and say what is to be known of it."""
        identity = SourceIdentity(**facts["identity"])
        log = self.log or self._open(identity)
        log.check_identity(identity)
        if facts.get("hides_truncate"):
            self._accept_hidden(log)
        self.server_version = int(facts["server_version"])
        _log.info(Event.SOURCE_CONNECTED, **facts["identity"], version=self.server_version)
        for warning in facts.get("warnings", ()):
            _log.warning(Event.SERVER_KNOWN_BUG, text=warning)
        self._note_coverage(Coverage.from_record(facts.get("coverage", {})))
        return log

    def _tables(self, log: CommitLog, intake: Intake, table_filter: TableFilter) -> Tables:
        return Tables(
            intake.schemas,
            table_directory,
            safe_columns,
            self._look_up,
            self._earlier_schemas(log),
            skip_generated=self._config.decoding.skip_generated_columns,
            is_wanted=table_filter.is_wanted,
        )

    def _note_fork(self, log: CommitLog, intake: Intake, position: SourcePosition) -> None:
        """Write down that the log goes on with another timeline of its server.

        Where it had moved on over WAL of the older timeline in which there was nothing to land,
        it goes on below its position, in the next epoch.
        """
        assert log.position is not None
        known = log.position
        extra = {"from_lsn": known.lsn, "from_timeline": known.timeline}
        intake.commit(EntryRequest(kind=EntryKind.FORK, position=position, extra=extra))
        intake.drain()
        _log.warning(
            Event.TIMELINE_FOLLOWED,
            timeline=position.timeline,
            position=str(Lsn(position.lsn)),
            from_timeline=known.timeline,
            from_position=str(Lsn(known.lsn)),
        )

    def _note_coverage(self, coverage: Coverage) -> None:
        """Say, once, what only one of publications and white list has."""
        if coverage == self.coverage:
            return
        self.coverage = coverage
        if coverage.unlisted:
            tables = listing(coverage.unlisted, coverage.unlisted_count)
            _log.warning(Event.TABLES_NOT_LISTED, tables=tables, reason=_NOT_LISTED)
        if coverage.unpublished:
            tables = listing(coverage.unpublished, coverage.unpublished_count)
            _log.warning(Event.TABLES_NOT_PUBLISHED, tables=tables, reason=_NOT_PUBLISHED)

        if coverage.unsent:
            tables = listing(coverage.unsent, coverage.unsent_count)
            _log.warning(Event.TABLES_NOT_PUBLISHED, tables=tables, reason=UNSENT)

    def _check_publications(
        self,
        log: CommitLog,
        intake: Intake,
        facts: Mapping[str, Any],  # Any: JSON
    ) -> None:
        """See that the publications are those that the landing followed before.

        The entry comes first: said twice after a crash is no harm.
        """
        self._publications_at = time.monotonic()
        self._publications = seen = publications.read_identities(facts.get("publications", {}))
        known, listed = publications.known_to(self.snapshots)
        if publications.are_known(known, seen):
            return
        members, gone = read_members(
            source_address(self._config), self._config.source.publication, listed
        )
        self._publications = seen = publications.with_members(seen, members)
        found = publications.differences(known, seen)
        gone = publications.taken_out(gone, known, seen)
        assert log.position is not None
        if found or gone:
            extra = publications.suspect(found, log.position.lsn, int(facts["wal_end"]), gone)
            if self._config.landing.on_suspect == "stop":
                raise SuspectError(f"{extra['text']}. {STOPPED}")
            _log.error(Event.PUBLICATION_CHANGED, text=extra["text"])
            intake.note(EntryRequest(kind=EntryKind.SUSPECT, position=log.position, extra=extra))
        publications.remember(self.snapshots, seen, members)

    def see_publications(self, seen: publications.Identities, at: float) -> None:
        """Take what the server had at a time; what differs is recorded by the next session."""
        ours = {name: of for name, of in seen.items() if name in self._publications}
        if at > self._publications_at and not publications.are_known(self._publications, ours):
            self.restart_session()

    def _choose_tables(self, *, is_new: bool) -> TableFilter:
        """Write down how the landing begins, before it does; and see what is left out of it."""
        config, store = self._config, self.snapshots
        if config.snapshot_refusal is None:
            note_beginning(store, config, lambda: published_oids(config), is_new=is_new)
        self.table_filter = TableFilter(store, config, self._left_out())
        self._stopped = stopped(store.ledger())
        return self.table_filter

    def _accept_hidden(self, log: CommitLog) -> None:
        """Say that the stream shows no TRUNCATE and no DDL, here and to readers.

        Raises:
            ConfigError: the operator does not want to land such a stream.
        """
        if self._config.source.invisible_truncate == "stop":
            raise ConfigError(f"{self._config.path.name}: {_HIDDEN}; {_HIDDEN_ADVICE}")
        log.require(HIDES_TRUNCATE)
        _log.warning(Event.CONFIG_WARNING, text=_HIDDEN)

    def _earlier_schemas(self, log: CommitLog) -> Callable[[str], Json | None]:
        """What the tables' schemas were where the stream begins.

        A snapshot after that position may have landed already; what it says of columns holds
        from there on, and not for the changes before it.
        """
        assert log.position is not None
        start, schemas, ledger = log.position.lsn, dict(log.schemas), self.snapshots.ledger()
        ahead = {title for title, done in ledger.items() if int(done.get("lsn") or 0) > start}

        def earlier(directory: str) -> Json | None:
            schema_id = schemas.get(directory)
            record = None if schema_id is None else read_schema(log.disk, directory, schema_id)
            if record is None or table_title(record["schema"], record["name"]) in ahead:
                return None
            return record

        return earlier

    def _look_up(self, relation: Relation) -> CatalogTable | None:
        """Ask the catalogue; what it cannot tell only makes a schema less detailed."""
        known_failures = self._catalog.failure_count
        table = self._catalog.look_up(relation)
        if self._catalog.failure_count > known_failures:
            _log.warning(Event.CATALOG_UNREADABLE, reason=self._catalog.failure)
        return table

    def _landed_ns(self) -> int:
        return 0 if self.writer is None else self.writer.moved_ns

    def _drain(self, seconds: float) -> bool:
        assert self.writer is not None
        is_done = self.writer.drain(seconds)
        self.check()
        return is_done


def reserve_of(config: Config) -> Reserve:
    """What the landing leaves free of its file system."""
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
) -> SourceIdentity | None:
    """Fetch the landing that a mirror holds into an empty root; None where it holds none.

    Args:
        config: with a mirror.
        space: waits for room on the disk.
        told: how far it is.

    Raises:
        GaussDecodeError: it is damaged, or the store does not do it.
    """
    root = config.landing.root
    store = open_store(config.mirror)
    layout = find_layout(store)
    if layout is None:
        return None
    if config.slot not in layout.sources:
        raise ConfigError(
            f"{config.path.name}: landing.mirror.url: {store.url} holds the landing of slot "
            f"{', '.join(layout.sources)}, not of {config.slot}; correct one of them"
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
    return _kept_identity(root)


def _kept_identity(root: Path) -> SourceIdentity | None:
    """Whose landing is at `root`; None where there is none yet."""
    if not root.is_dir():
        return None
    files = Files(root)
    try:
        layout = read_layout(Disk(files, SpaceWait(), "look"))
    finally:
        files.close()
    if layout is None:
        return None
    (identity,) = layout.sources.values()
    return identity
