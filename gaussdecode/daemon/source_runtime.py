"""Keep the running state of one source: its sessions, and what is known of its server.

A landing has one source or several. The pipeline has the parts that they share: the log, the writer, and
the tables that are left out. The state of one server is here, and no source sees that of another.

After a failover, the process proves that a promoted standby is the same server by the start time of its
postmaster: no start was in between, so none of its WAL was taken back. A process that was killed has no
proof, and the log is refused as before.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from gaussdecode.collect.collector import Collector
from gaussdecode.collect.snapshot_gate import Gate
from gaussdecode.collect.suspects import STOPPED
from gaussdecode.collect.tables import Tables
from gaussdecode.daemon.catalogwatch import CatalogWatch
from gaussdecode.daemon.position import landing_position
from gaussdecode.daemon.renewal import Renewal
from gaussdecode.daemon.session import Confirm, Session, SessionSettings
from gaussdecode.daemon.session_start import (
    Confirming,
    collector_settings,
    compare_resent,
    goes_on_at,
    is_unused,
    prepared_of,
)
from gaussdecode.daemon.shared import Shared
from gaussdecode.daemon.streaming import Streaming
from gaussdecode.errors import ConfigError, GaussDecodeError, SuspectError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.layout import HIDES_TRUNCATE
from gaussdecode.land.names import SPOOL, table_directory
from gaussdecode.land.schemas import read_schema
from gaussdecode.land.snapshots import Json, SnapshotStore
from gaussdecode.land.writer import Intake
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.entry import WITHOUT_ROWS
from gaussdecode.model.landing import EntryKind, SourceIdentity, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.names import safe_columns
from gaussdecode.model.relation import Relation
from gaussdecode.model.request import EntryRequest
from gaussdecode.model.title import table_title
from gaussdecode.protocol.gaussdb.notices import LostChanges
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import NOT_STREAMED
from gaussdecode.snapshot.tablefilter import TableFilter, unread
from gaussdecode.source.catalog import CatalogTable
from gaussdecode.source.coverage import UNSENT, Coverage, listing
from gaussdecode.source.lookup import area_of, lookup_of
from gaussdecode.source.postgresql.catalog import Catalog
from gaussdecode.source.relations import WhiteList, white_list
from gaussdecode.source.settings import ReaderSettings
from gaussdecode.source.slot import LandingPosition, Place

_FIRST_EPOCH: Final = 1
_HIDDEN: Final = (
    "the stream shows no TRUNCATE and no DDL (parallel decoding, or a server that never "
    "sends them): tables built from this landing keep the rows of a table that was emptied"
)
_HIDDEN_ADVICE: Final = (
    "source.invisible-truncate is stop: decode serially on openGauss 6.0.0 or newer, or set warn"
)
_NOT_LISTED: Final = "published, but not on decoding.white-table-list: none of their changes land"
_NOT_PUBLISHED: Final = "on decoding.white-table-list, but no configured publication has them"
_log = get_logger("daemon")


class SourceRuntime:
    """One source.

    Args:
        name: name of the source in the landing.
        config: its own: of a member, where there are several.
        shared: the pipeline.
        is_one_of_several: rows and files say which source they are of.
        tables_from_first_source: tables of which nothing lands from here, for another source has them too.

    Attributes:
        gate: gate where snapshots of its tables hold entries.
        table_filter: tables that land in the newest session; None before the first.
        coverage: tables that only the publications or only the white list has; written by main's thread.
        confirming: position that the running session's reader may confirm.
        decoder_count: decoders of the next session.
        session: the running one.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        shared: Shared,
        *,
        is_one_of_several: bool,
        tables_from_first_source: WhiteList | None = None,
    ) -> None:
        self._left_to_first = tables_from_first_source
        self.name = name
        self._config = config
        self._shared = shared
        self._is_one_of_several = is_one_of_several
        self.gate = Gate(shared.spool, shared.must_not_wait)
        self.table_filter: TableFilter | None = None
        self.coverage = Coverage()
        self.server_version: int | None = None
        self.session: Session | None = None
        self.confirming: Confirming | None = None
        self._catalog = lookup_of(config)
        self._area = area_of(config)
        self._renewal = Renewal()
        self._area_failure = ""  # that was said
        source = config.source
        self.decoder_count = config.decoding.parallel_decode_num
        self.streaming = Streaming(source.streaming, self._on_fallback)
        self._first_csn = (
            0  # that has to have room in the next session, before any above it; 0: none
        )
        self._instance = ""  # of the server that this process reads
        self._reads_standby = False  # it was one when the session began
        self._promoted = ""  # instance that is known to have been promoted

    @property
    def source(self) -> str | None:
        """Its name, where rows and notes say which source they are of."""
        return self.name if self._is_one_of_several else None

    @property
    def snapshots(self) -> SnapshotStore:
        """Stored snapshots of its tables."""
        return self._shared.snapshots.of(self.source)

    @property
    def config(self) -> Config:
        """Its own."""
        return self._config

    def close(self) -> None:
        """Close the connections to the catalogue."""
        self._catalog.close()
        if self._area is not None:
            self._area.close()

    @property
    def landing_position(self) -> LandingPosition | None:
        """Position of the landing for the source; None for one that has not begun."""
        log = self._shared.log
        if log is None:
            return None
        position = landing_position(log.layout, log.entries, self.name)
        if position is None:
            return None
        return dataclasses.replace(position, instance=self._instance)

    @property
    def durable_lsn(self) -> int | None:
        """Of its position in the log."""
        log = self._shared.log
        position = None if log is None else log.positions.get(self.name)
        return None if position is None else position.lsn

    @property
    def spool_wait(self) -> str | None:
        """Why nothing can be taken, where a transaction is larger than the spool may be."""
        collector = None if self.session is None else self.session.collector
        return None if collector is None else collector.spool_wait

    def _on_fallback(self, reason: str) -> None:
        _log.error(Event.STREAMING_FALLBACK, reason=reason)

    def session_ended(self, error: GaussDecodeError | None) -> None:
        """A session has ended; the next may be asked for otherwise."""
        self.streaming.ended(error, self.durable_lsn)
        self.session = None

    # ---- sessions --------------------------------------------------------------------

    def make_session(
        self,
        should_stop: Callable[[], bool],
        on_tick: Callable[[], None],
        on_streaming: Callable[[], None],
    ) -> Session:
        """Make the next session, from the durable position.

        Args:
            should_stop: asked several times per second.
            on_tick: called several times per second.
            on_streaming: called when the source has begun the stream.
        """
        config, shared = self._config, self._shared
        self.session = session = Session(
            SessionSettings(
                decoder_count=self.decoder_count,
                queue_entries=config.decoding.parallel_queue_size,
                raw_ring_bytes=config.ring.raw_ring_bytes,
                decoded_ring_bytes=config.ring.decoded_ring_bytes,
                kept_buffer_bytes=config.decoding.kept_buffer_bytes,
                max_row_bytes=config.source.max_row_bytes,
                defers_large_rows=config.landing.is_quarantining,
                reader=dataclasses.replace(
                    ReaderSettings.of(
                        config, self.landing_position, str(config.landing.root / SPOOL)
                    ),
                    streaming=self.streaming.mode,
                    **({} if shared.log is None else unread(shared.ledger_of(self.name))),
                ).to_record(),
            ),
            self._begin,
            shared.drain,
            should_stop,
            on_tick,
            shared.landed_ns,
            on_streaming,
            shared.prepared,
        )
        return session

    def _begin(self, facts: Mapping[str, Any], confirm: Confirm) -> Collector:  # Any: JSON
        """Check whose stream it is, write the genesis entry of a new log, make a collector."""
        shared = self._shared
        log = self._accept(facts)
        self._instance = str(facts.get("instance", ""))
        self._reads_standby = bool(facts.get("is_standby", False))
        timeline, start_lsn = int(facts["timeline"]), int(facts["start_lsn"])
        self.confirming = confirming = Confirming(confirm, lambda: shared.reached(self.name))
        intake = shared.intake()
        table_filter = shared.choose_tables(self.name, is_new=is_unused(log))
        self.table_filter = table_filter
        if log.is_empty:
            self._write_genesis(intake, SourcePosition(_FIRST_EPOCH, timeline, start_lsn))
        known = log.positions[self.name]
        watch = self._watch(log, table_filter)
        titles = {} if watch is None else watch.titles
        if watch is not None:
            self._compare_catalog(watch, known, intake)
        position = goes_on_at(known, timeline, facts["log_lsn"])
        has_forked = known.timeline not in (0, timeline)
        self._refuse_fork(known, position)

        def go_on() -> None:
            if has_forked and not self._is_one_of_several:
                self._note_fork(known, intake, position)
            shared.quarantines.commit(intake)
            confirming.begin()

        settings = dataclasses.replace(
            collector_settings(
                self._config,
                has_stopped=shared.quarantines.has_any,
                is_streamed=self.streaming.mode != NOT_STREAMED,
            ),
            first_csn=self._first_csn,
            name=self.name,
            source=self.source,
        )
        self._first_csn = 0
        excluded = self._config.decoding.excluded_users
        resent = compare_resent(log, self.name, start_lsn, position, excluded, go_on)
        return Collector(
            settings,
            self._tables(log, known, intake, table_filter, titles, watch),
            intake,
            shared.spool(),
            position,
            log.schemas_of(self.name),
            self.gate,
            resent,
            prepared_of(log, position.lsn),
            shared.should_stop,
            shared.must_not_wait,
            shared.barrier,
            watch,
            self._read_again,
            self._settle,
            self._is_paused,
        )

    def _write_genesis(self, intake: Intake, start: SourcePosition) -> None:
        said = {} if self._config.snapshot.wants_rows else {WITHOUT_ROWS: True}
        intake.commit(EntryRequest(kind=EntryKind.GENESIS, position=start, extra=said))
        intake.drain()

    def _is_paused(self) -> bool:
        """Collecting is paused, and the session is not to end: then what has arrived lands first."""
        if not self._shared.is_paused() or self._shared.should_stop():
            return False
        return self.session is None or not self.session.has_lost_source

    def _read_again(self, reason: str, first_csn: int) -> None:
        """Have the sessions begin anew after an entry, for what they had no room for."""
        _log.warning(Event.TURNS_GIVEN_UP, source=self.name, reason=reason)
        self._first_csn = first_csn
        self._shared.restart_session()

    def _refuse_fork(self, known: SourcePosition, position: SourcePosition) -> None:
        """A new timeline below what has landed has no place between the others' CSNs."""
        if self._shared.barrier is not None and position.epoch != known.epoch:
            raise SuspectError(
                f"{self.name}: the server continues with timeline {position.timeline} from "
                f"{Lsn(position.lsn)}, but the landing is at {Lsn(known.lsn)} of timeline "
                f"{known.timeline}. A landing in CSN order, or of several sources, cannot go back. Land "
                "into a new root"
            )

    def _accept(self, facts: Mapping[str, Any]) -> CommitLog:  # Any: JSON
        """See that the stream is the landing's, and say what is to be known of it."""
        identity = SourceIdentity(**facts["identity"])
        node = str(facts.get("node", ""))
        self._shared.take_place(
            self.name, Place(identity.system_identifier, identity.database, node)
        )
        log = self._shared.open_log(self.name, identity)
        log.check_identity(identity, self.name)
        if facts.get("hides_truncate"):
            self._accept_hidden(log)
        self.server_version = int(facts["server_version"])
        _log.info(Event.SOURCE_CONNECTED, **facts["identity"], version=self.server_version)
        for warning in facts.get("warnings", ()):
            _log.warning(Event.SERVER_KNOWN_BUG, text=warning)
        self._note_coverage(Coverage.from_record(facts.get("coverage", {})))
        return log

    def _tables(
        self,
        log: CommitLog,
        known: SourcePosition,
        intake: Intake,
        table_filter: TableFilter,
        titles: Mapping[int, str],
        watch: CatalogWatch | None,
    ) -> Tables:
        return Tables(
            intake.schemas,
            table_directory,
            safe_columns,
            self._look_up,
            self._earlier_schemas(log, known.lsn),
            skip_generated=self._config.decoding.skip_generated_columns,
            is_wanted=lambda of: (
                not self.is_left_to_first(of.namespace, of.name) and table_filter.is_wanted(of)
            ),
            source=self.source,
            titles=titles,
            ddl=None if watch is None else watch.ddl,
        )

    def is_left_to_first(self, schema: str, name: str) -> bool:
        """Whether every source has the rows of a table, and another one brings them."""
        listed = self._left_to_first
        return listed is not None and listed.allows(schema, name)

    def _note_fork(self, known: SourcePosition, intake: Intake, position: SourcePosition) -> None:
        """Write down that the log goes on with another timeline of its server.

        Where it had moved on over WAL of the older timeline in which there was nothing to land,
        it goes on below its position, in the next epoch.
        """
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

    def see_role(self, *, is_standby: bool | None) -> None:
        """Begin anew when the standby that is read was promoted, before its WAL goes far.

        What a session notes belongs to the timeline that it began with.
        """
        if is_standby is False and self._reads_standby and self._promoted != self._instance:
            self._promoted = self._instance
            _log.warning(
                Event.STANDBY_PROMOTED,
                text="the daemon continues with it; remove decoding.standby-connection before the next restart",
            )
            self._shared.restart_session()

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

    # ---- the catalogue ---------------------------------------------------------------

    def _watch(self, log: CommitLog, table_filter: TableFilter) -> CatalogWatch | None:
        """What looks at the catalogue before each entry; None where there is none that it knows."""
        if not isinstance(self._catalog, Catalog) or self._config.source.kind is SourceKind.CAPTURE:
            return None
        return CatalogWatch(
            self._config.source.publication,
            self.source,
            self._catalog,
            self._shared.snapshots,
            self._lands,
            table_filter.leaves_out,
            lambda directory: directory in log.schemas_of(self.name),
            self._renewal.ask,
        )

    def renew_if_due(self) -> None:
        """Have another connection begin, once everything has landed that the commands left behind."""
        if self._renewal.begin_if_due(self.durable_lsn or 0):
            self._shared.restart_session()

    def _lands(self, schema: str, name: str) -> bool:
        """Whether rows of a table land from here by configuration."""
        is_listed = white_list(self._config.decoding).allows(schema, name)
        return is_listed and not self.is_left_to_first(schema, name)

    def _compare_catalog(self, watch: CatalogWatch, known: SourcePosition, intake: Intake) -> None:
        """See that tables and publications are those that the landing goes by; else say so first."""
        found = watch.begin(known.lsn)
        found += self._renewal.end(known.lsn)
        for extra in found:
            if self._config.landing.on_suspect == "stop":
                raise SuspectError(f"{extra['text']}. {STOPPED}")
            said = extra if self.source is None else {**extra, "source": self.source}
            intake.note(EntryRequest(kind=EntryKind.SUSPECT, position=known, extra=said))
            _log.error(Event.TABLES_CHANGED, text=extra["text"])
        watch.recorded()

    # ---- tables ----------------------------------------------------------------------

    def _accept_hidden(self, log: CommitLog) -> None:
        """Say that the stream shows no TRUNCATE and no DDL, here and to readers.

        Raises:
            ConfigError: the operator does not want to land such a stream.
        """
        if self._config.source.invisible_truncate == "stop":
            raise ConfigError(f"{self._config.path.name}: {_HIDDEN}; {_HIDDEN_ADVICE}")
        log.require(HIDES_TRUNCATE)
        _log.warning(Event.CONFIG_WARNING, text=_HIDDEN)

    def _earlier_schemas(self, log: CommitLog, start: int) -> Callable[[str], Json | None]:
        """What the tables' schemas were where the stream begins.

        A snapshot after that position may have landed already; what it says of columns holds
        from there on, and not for the changes before it.
        """
        schemas, ledger = log.schemas_of(self.name), self.snapshots.ledger()
        ahead = {title for title, done in ledger.items() if int(done.get("lsn") or 0) > start}

        def earlier(directory: str) -> Json | None:
            schema_id = schemas.get(directory)
            record = None if schema_id is None else read_schema(log.disk, directory, schema_id)
            if record is None or table_title(record["schema"], record["name"]) in ahead:
                return None
            return record

        return earlier

    def _settle(self, of: LostChanges) -> frozenset[str] | None:
        """Directories of the tables that may lack rows of a transaction; None where nobody can tell."""
        tables = None if self._area is None else self._area.lost(of)
        if tables is None:
            if self._area is not None and self._area.failure != self._area_failure:
                self._area_failure = self._area.failure
                _log.warning(Event.SUSPECTS_UNSETTLED, reason=self._area_failure)
            return None
        return frozenset(table_directory(*table) for table in tables if self._lands(*table))

    def _look_up(self, relation: Relation) -> CatalogTable | None:
        """Ask the catalogue; what it cannot tell only makes a schema less detailed."""
        known_failures = self._catalog.failure_count
        table = self._catalog.look_up(relation)
        if self._catalog.failure_count > known_failures:
            _log.warning(Event.CATALOG_UNREADABLE, reason=self._catalog.failure)
        return table
