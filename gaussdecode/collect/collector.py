"""Take batches from the decoder rings, release transactions to the writer, and close entries.

One thread. It pumps decoded batches through the assembler and hands full row groups to the writer.
It closes an entry at a transaction boundary when the entry is large enough, old enough or asked for.
The writer's threads write and fsync. The collector waits for them only when they fall behind: so
back-pressure begins.
"""

import contextlib
import dataclasses
import datetime
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from gaussdecode.collect._assembler import PUMP_END, PUMP_TIME, Assembler
from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect.arrow import DDL, MESSAGES, TRANSACTIONS, Rows, system_rows, table_rows
from gaussdecode.collect.descriptions import Descriptions
from gaussdecode.collect.entry_barrier import EntryBarrier, Seen
from gaussdecode.collect.entry_timing import SLICE_SECONDS, EntryTiming, Load
from gaussdecode.collect.resent import Resent
from gaussdecode.collect.snapshot_gate import Gate
from gaussdecode.collect.spool import BoundedSpool, Spool
from gaussdecode.collect.spool_room import SpoolRoom
from gaussdecode.collect.suspects import STOPPED, Settle, Suspects, nobody_tells, refusal
from gaussdecode.collect.table_registry import TableRegistry
from gaussdecode.collect.tables import Landed, Tables
from gaussdecode.collect.unlanded import HandedOver, Unlanded
from gaussdecode.errors import (
    LargeRowError,
    RowError,
    SequenceError,
    SourceError,
    SuspectError,
    TableError,
)
from gaussdecode.ipc.ring import Ring
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.account import Account
from gaussdecode.model.committimes import CommitTimes
from gaussdecode.model.csns import Csns
from gaussdecode.model.entry import CSNS, ENDED, PREPARED, SETTLED, prepared_record
from gaussdecode.model.histogram import Histogram
from gaussdecode.model.landing import (
    EntryKind,
    Position,
    PreparedFile,
    SchemaChange,
    SourcePosition,
    Truncate,
)
from gaussdecode.model.relation import Relation
from gaussdecode.model.request import EntryRequest, RowGroup
from gaussdecode.model.transaction import TransactionMark
from gaussdecode.protocol.notices import ROWS_MAY_BE_MISSING

_log = get_logger("collect")
_PAIR_BYTES: Final = 8  # row and column of a value that does not fit
_CASCADE: Final = 1
_RESTART_IDENTITY: Final = 2
# What one table alone may bring about; the disk and the server are not among it.
OF_A_TABLE: Final = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowTypeError,
    pa.ArrowCapacityError,
    ValueError,
)


def _never() -> bool:
    return False


class Writer(Load, Protocol):
    """The part of ``land.writer.Intake`` that the collector uses."""

    @property
    def generation(self) -> int:
        """Its number; what comes through an older one is refused."""

    def write(self, group: RowGroup) -> None:
        """Take a row group; blocks while too much waits."""

    def commit(self, request: EntryRequest) -> None:
        """Make one entry of everything written since the last call."""

    def note(self, request: EntryRequest) -> None:
        """Make an entry of nothing but what it says, durable when this returns."""

    def end(self) -> None:
        """Refuse everything from now on."""


class CatalogWatch(Protocol):
    """The part of ``daemon.catalogwatch.CatalogWatch`` that the collector uses."""

    def check(
        self,
        lsn: int,
        emptied: Iterable[str],
        descriptions: Descriptions,
    ) -> list[dict[str, Any]]:  # Any: JSON
        """Give the suspect entries that must come before an entry with everything up to a position."""

    def recorded(self) -> None:
        """They are in the log."""


class Kept(Protocol):
    """The part of ``land.prepared.KeptTransaction`` that the collector uses."""

    @property
    def file(self) -> PreparedFile:
        """As the log names it."""


class PreparedWriter(Protocol):
    """The part of ``land.prepared.PreparedFiles`` that the collector uses."""

    def write(self, facts: Mapping[str, Any], batches: Iterable[memoryview]) -> Kept:  # Any: JSON
        """Write a prepared transaction, durable when this returns.

        `show` is called with what was kept, and gives its rows for readers.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The files of prepared transactions, and the transactions in them.

    Attributes:
        writer: writer of their files.
        kept: those that have not ended.
        stale: paths of files of which the server sends the transactions again.
    """

    writer: PreparedWriter
    kept: tuple[Kept, ...] = ()
    stale: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """Bounds of the collector; sizes in bytes, time spans in seconds."""

    row_group_rows: int
    row_group_bytes: int
    memory_bytes: int
    txn_memory_bytes: int
    target_file_size: int
    max_commit_interval: float
    only_local: bool
    skip_empty_xacts: bool
    include_xids: bool
    include_timestamp: bool
    open_memory_bytes: int | None = None  # of all open transactions; None for no limit
    by_csn: bool = False  # land in the order of CSNs
    spool_bytes: int | None = None  # likewise on disk
    is_streamed: bool = False  # the source sends transactions while they are open
    start_csn: int = 0
    excluded_users: tuple[str, ...] = ()
    stops_at_suspects: bool = False  # nothing after one lands
    is_first_due: bool = True  # the first transaction is an entry at once
    first_csn: int = 0  # by CSN: only what is up to it may take room; 0 for all
    name: str = ""  # of the source
    source: str | None = None  # the same, where a landing has several sources and rows say so
    most_tables: int = 1000  # that keep their place in memory between entries; arbitrary


class Collector:
    """Collects one session's stream.

    Attributes:
        gathered: times from the first transaction of each entry until the entry was asked for.

    Args:
        settings: bounds.
        tables: directories and schemas of relation versions.
        writer: takes row groups and entries, for as long as the session lasts.
        spool: spool for what an open transaction cannot hold in memory.
        position: the durable position; the stream starts there.
        schemas: per table directory, the schema its rows land under now.
        gate: gate where a snapshot may hold entries.
        resent: compares what the server sends again with what landed; None when the slot is
            confirmed up to the log's position.
        prepared: keeps prepared transactions; None where the source sends none.
        is_cut_short: asked at the end of the stream: whether there would be more of it.
        should_stop: asked while it waits for room in the spool; true ends the wait.
        barrier: says when to cut an entry, with the collectors of other sources or by CSN; None
            where this one decides alone.
        watch: looks at the catalogue before each entry; None where nobody does.
        settle: asks the server what a transaction with DDL lost.
        is_paused: asked each round; while it is true nothing more is taken, once the entry that was asked
            for has been cut.
        read_again: has another session begin, which reads again what this one had no room for. Given why,
            and the CSN that has to have room first, 0 for none.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        tables: Tables,
        writer: Writer,
        spool: Spool,
        position: SourcePosition,
        schemas: dict[str, str],
        gate: Gate | None = None,
        resent: Resent | None = None,
        prepared: Prepared | None = None,
        is_cut_short: Callable[[], bool] = lambda: False,
        should_stop: Callable[[], bool] = _never,
        barrier: EntryBarrier | None = None,
        watch: CatalogWatch | None = None,
        read_again: Callable[[str, int], None] = lambda *_: None,
        settle: Settle = nobody_tells,
        is_paused: Callable[[], bool] = _never,
    ) -> None:
        self._is_paused = is_paused
        self.is_entry_asked = False
        self._barrier = barrier
        self._watch = watch
        self._read_again = read_again
        self._is_cut_short = is_cut_short
        self._prepared = prepared
        self._ended = [] if prepared is None else list(prepared.stale)
        self._resent = resent
        self._hold_session = (gate or Gate(lambda: spool)).attach(is_open=resent is None)
        self._settings = settings
        self._tables = tables
        self._registry = TableRegistry(
            tables,
            (lambda _: 0) if resent is None else resent.lands_from,
            self._trouble_of,
            OF_A_TABLE,
        )
        self._writer = writer
        self._position = position
        self._schemas = schemas
        self._truncates: list[Truncate] = []
        self._changes: list[SchemaChange] = []
        self._suspects = Suspects(settle=settle)
        self._settled_n = 0  # transactions of entries so far that lost nothing
        self._commit_times = CommitTimes()
        self._handed_over = HandedOver()
        self._csns: Csns | None = None  # of the transactions since the entry before
        self.gathered = Histogram()
        self._spool = spool
        self._room = self._make_room(should_stop)
        self._on_round: Callable[[], None] = _nothing
        self.misfit_count = 0
        self.unread_ddl_count = 0
        self.assembler = self._make_assembler()
        self.timing = EntryTiming(
            writer,
            self.assembler,
            interval=settings.max_commit_interval,
            target_bytes=settings.target_file_size,
            is_first_due=settings.is_first_due,
        )

    def _make_room(self, should_stop: Callable[[], bool]) -> SpoolRoom | None:
        """Room in the spool; None where it has no limit."""
        settings = self._settings
        if settings.spool_bytes is None:
            return None
        return SpoolRoom(
            settings.spool_bytes,
            is_streamed=settings.is_streamed,
            is_read_again=settings.by_csn and self._barrier is not None,
            keep_prepared=self._may_keep_prepared,
            should_stop=should_stop,
            on_wait=self._tell_round,
        )

    def _make_assembler(self) -> Assembler:
        settings, room = self._settings, self._room
        spool: Spool | BoundedSpool = self._spool
        if room is not None:
            spool = BoundedSpool(self._spool, room.spool_bytes, lambda: room.make(self.assembler))
        return Assembler(
            self._registry,
            self,
            self._registry.accumulator(self._tables.system(TRANSACTIONS)),
            self._registry.accumulator(self._tables.system(MESSAGES)),
            self._registry.accumulator(self._tables.system(DDL)),
            spool,
            resume_lsn=self._position.lsn,
            memory_limit=settings.txn_memory_bytes,
            total_limit=settings.open_memory_bytes,
            row_limit=settings.row_group_rows,
            byte_limit=settings.row_group_bytes,
            budget=settings.memory_bytes,
            only_local=settings.only_local,
            skip_empty=settings.skip_empty_xacts,
            start_csn=settings.start_csn,
            excluded_users=[name.encode() for name in settings.excluded_users],
            is_compared=self._resent is not None,
            kept=() if self._prepared is None else self._prepared.kept,
            by_csn=settings.by_csn,
            resume_csn=(self._position.csn or 0) if settings.by_csn else 0,
            resume_until=(self._position.until or 0) if settings.by_csn else 0,
            first_csn=settings.first_csn,
        )

    @property
    def spool_wait(self) -> str | None:
        """Why nothing can be taken, where a transaction is larger than the spool may be; else None."""
        return None if self._room is None else self._room.why_full

    @property
    def position(self) -> SourcePosition:
        """Up to where entries were asked for."""
        return self._position

    @property
    def settled_count(self) -> int:
        """Transactions that a notice named, and that lost nothing."""
        return self._suspects.settled

    @property
    def suspect_count(self) -> int:
        """Transactions that the server said may be incomplete."""
        return self._suspects.count

    # ---- called by the assembler -----------------------------------------------------

    def prepared_ended(self, kept: Kept) -> None:
        """A kept transaction has ended; the next entry says so."""
        self._ended.append(kept.file.path)

    def truncated(self, accumulator: Accumulator[Landed], lsn: int, seq: int, flags: int) -> None:
        """Remember a truncate for the entry; its marker row is in the accumulator."""
        self._truncates.append(
            Truncate(
                accumulator.table.directory,
                Position(lsn, seq),
                cascade=bool(flags & _CASCADE),
                restart_identity=bool(flags & _RESTART_IDENTITY),
                source=self._settings.source,
            )
        )

    def noticed(self, code: int, text: bytes, lsn: int) -> None:
        """Remember what a notice of the server says of the changes around it."""
        if code == ROWS_MAY_BE_MISSING:
            self._suspects.add(text.decode("utf-8", "replace"), lsn)
        if self._suspects.is_full:
            self._note_suspects()

    def resent(
        self,
        end_lsn: int,
        xid: int,
        time_us: int,
        row_count: int,
        has_origin: bool,
        is_of_new_tables: bool,
        user: bytes,
        csn: int,
    ) -> None:
        """Compare a transaction that the server repeats with what landed."""
        assert self._resent is not None
        name = user.decode("utf-8", "replace")
        self._resent.take(
            TransactionMark(
                end_lsn, xid, time_us, row_count, has_origin, is_of_new_tables, user=name, csn=csn
            )
        )

    def caught_up(self) -> None:
        """All that has landed was sent again, and is equal: from now on the log grows."""
        assert self._resent is not None
        self._resent.finish()
        self._hold_session.open()

    def change_over(self, accumulator: Accumulator[Landed]) -> None:
        """Hand over what a table holds under other schemas: rows of this one come now.

        So row groups of a table are in order, and so are its files, whatever order its schemas
        come in: a transaction may release rows of an older version after rows of a newer one.
        """
        for held in self._registry.of_directory(accumulator.table.directory):
            self.flush(held)
            held.is_current = held is accumulator

    def flush(self, accumulator: Accumulator[Landed], *, is_last: bool = False) -> None:
        """Hand an accumulator's rows to the writer as one row group; `is_last` as there."""
        if not accumulator.row_count:
            return
        landed = accumulator.table
        first, last = (Position(lsn, max(seq, 0)) for lsn, seq in accumulator.bounds())
        self.assembler.taken(accumulator.byte_count)
        self._note_schema(landed, first)
        taken = accumulator.take()
        self._registry.used(landed)
        self.misfit_count += len(taken["misfits"]) // _PAIR_BYTES
        settings = self._settings
        with_xid, with_time = settings.include_xids, settings.include_timestamp
        if landed.directory == TRANSACTIONS:
            self._commit_times.add(np.frombuffer(memoryview(taken["time_us"]), dtype=np.int64))
            self._note_csns(taken)
        if landed.relation is None:
            table = system_rows(
                landed.directory,
                taken,
                self._position.epoch,
                with_xid=with_xid,
                with_time=with_time,
                source=settings.source,
            )
            if landed.directory == DDL:
                self.unread_ddl_count += table["command_tag"].null_count
        else:
            table = self._table_rows(landed, landed.relation, taken)
        self._hold_session.see(landed.directory, table)
        ops = taken["ops"]
        self._writer.write(
            RowGroup(
                table_dir=landed.directory,
                schema_id=landed.schema_id,
                schema=landed.schema,
                table=table,
                first=first,
                last=last,
                ops=ops,
                has_unchanged=len(taken["unchanged"]) > 0,
                has_key_change=taken["has_key_change"]
                or (landed.updates_may_change_key and ops.get("U", 0) > 0),
                metadata=metadata_of(landed),
                source=settings.source,
                is_last=is_last,
            )
        )
        self._on_round()  # a transaction's release may take many row groups

    def _note_csns(self, transactions: Rows) -> None:
        """Keep the least and the greatest, where the source sends them."""
        if transactions["csn"] is None:
            return
        sent = np.frombuffer(memoryview(transactions["csn"]), dtype=np.int64)
        sent = sent[sent != 0]
        if len(sent):
            self._csns = Csns(int(sent.min()), int(sent.max())).joined(self._csns)

    def _table_rows(self, landed: Landed, relation: Relation, taken: Rows) -> pa.Table:
        """Rows as they land; an error is the table's."""
        settings = self._settings
        try:
            return table_rows(
                taken,
                landed.schema,
                landed.columns,
                landed.names,
                self._position.epoch,
                with_xid=settings.include_xids,
                with_time=settings.include_timestamp,
                source=settings.source,
            )
        except OF_A_TABLE as error:
            raise self._trouble_of(relation, error) from error

    def _note_schema(self, landed: Landed, first: Position) -> None:
        directory, schema_id = landed.directory, landed.schema_id
        previous = self._schemas.get(directory)
        if previous != schema_id:
            self._schemas[directory] = schema_id
            self._changes.append(
                SchemaChange(directory, first, schema_id, previous, self._settings.source)
            )

    def relieve(self) -> None:
        """Flush the largest accumulators until half of the budget is free."""
        largest = sorted(self._registry.all(), key=lambda held: held.byte_count, reverse=True)
        for accumulator in largest:
            if self.assembler.held_bytes <= self._settings.memory_bytes // 2:
                return
            self.flush(accumulator)

    # ---- the loop --------------------------------------------------------------------

    def run(self, rings: Sequence[Ring], on_round: Callable[[], None]) -> None:
        """Collect until the stream is closed, then commit what is complete.

        Args:
            rings: consumer side, by decoder.
            on_round: called whenever the collector has moved; raises to end the collection.
        """
        self._on_round = on_round
        try:
            while True:
                outcome = self._pump(rings)
                on_round()
                if self._barrier is not None:
                    if outcome != PUMP_END:
                        self._attend()
                    self._cut_with_others(self._barrier)
                    if outcome == PUMP_END:
                        return
                    continue
                if outcome == PUMP_END:
                    self._hold_session.end()
                    self._pass_all()
                    self._commit_last()
                    return
                self._attend()
                self._commit_if(is_due=self._is_due())
        finally:
            self._hold_session.end()
            self._forget()

    def _commit_last(self) -> None:
        """Commit what is complete at the end of the stream.

        Where the server is gone, nobody can tell whether its catalogue is what it was: what is not
        committed by then comes again.
        """
        with contextlib.suppress(SourceError):
            self._commit_if(is_due=True)

    def _pass_all(self) -> None:
        """By CSN: all of a recording has come, so that everybody's turn is known.

        Of a part of it nothing is: a lower CSN may stand in the rest.
        """
        assembler = self.assembler
        if self._settings.by_csn and not self._is_cut_short():
            assembler.pass_csn(assembler.arrived_csn, assembler.arrived_lsn)

    def end_entry(self) -> None:
        """Another thread: have an entry cut as soon as one can be, of what has arrived."""
        self.is_entry_asked = True

    def _attend(self) -> None:
        """Do what a snapshot asks for; in a pause none begins to land."""
        if self._hold_session.is_closed or not self._is_paused():
            self._hold_session.attend(self)

    def _pump(self, rings: Sequence[Ring]) -> int:
        """Collect for a while, or wait as long where collecting is paused.

        Raises:
            TableError: a row cannot be decoded; names its table.
        """
        if self._is_paused() and not self.is_entry_asked:
            if not self._hold_session.is_closed:
                time.sleep(SLICE_SECONDS)
                return PUMP_TIME
            self.is_entry_asked = True  # a snapshot that had begun ends, and the pause after it
        try:
            return self.assembler.pump(rings, self.timing.slice_seconds)
        except RowError as error:
            found = next((r for r in self._registry.relations() if r.oid == error.oid), None)
            described = error.described if found is None else (found.namespace, found.name)
            if not described:
                raise
            namespace, name = described
            if isinstance(error, LargeRowError) and found is not None:
                error.name = found.columns[error.column].name
            raise self._trouble(namespace, name, error.oid, str(error)) from error

    def _trouble(self, namespace: str, name: str, oid: int | None, reason: str) -> TableError:
        return TableError(namespace, name, oid, self.assembler.boundary_lsn, reason)

    def _trouble_of(self, relation: Relation, error: Exception) -> TableError:
        """An error that one table brought; what it says may hold a value, so it is left out."""
        oid = relation.oid if relation.is_oid_known else None
        reason = f"it cannot be written as Parquet ({type(error).__name__})"
        return self._trouble(relation.namespace, relation.name, oid, reason)

    def revoke(self) -> None:
        """Have everything refused that this collector may still do, wherever it waits now.

        Called by another thread when the session is over; waits for nobody.
        """
        self._writer.end()
        self._hold_session.end()

    # ---- called by the gate ----------------------------------------------------------

    @property
    def generation(self) -> int:
        """Of the writer's intake."""
        return self._writer.generation

    @property
    def boundary(self) -> int:
        """LSN up to which all transactions are released."""
        return self.assembler.boundary_lsn

    def commit_all(self) -> bool:
        """Commit all that is released; False when that cannot be now."""
        barrier = self._barrier
        if barrier is None:
            self._commit_if(is_due=True)
            return not self.assembler.waiting_count
        if self._settings.by_csn:  # nothing is released between two entries
            barrier.freeze(self._settings.name)
            return not barrier.is_over
        if self.assembler.waiting_count or self.assembler.boundary_lsn > self._position.lsn:
            self._give_part(barrier, is_due=True)
        # A part that was given to sessions that were over by then is no entry's.
        return not self.assembler.waiting_count and not barrier.is_over

    def reach_csn(self, csn: int) -> tuple[int, int] | None:
        """See `gate.CollectorPort`."""
        assert self._barrier is not None
        reached = self._barrier.reach(self._settings.name, csn)
        return None if reached is None else (reached, self._position.until or self._position.lsn)

    def flush_tables(self, directories: Iterable[str]) -> None:
        """Hand what is gathered of these tables to the writer."""
        for directory in directories:
            for accumulator in self._registry.of_directory(directory):
                self.flush(accumulator)

    def schema_landed(self, directory: str, schema_id: str) -> None:
        """A snapshot has changed a table over to another schema."""
        self._schemas[directory] = schema_id

    # ---- how often -------------------------------------------------------------------

    def _forget(self) -> None:
        """Give back what is held now, and not when somebody looks for garbage.

        The next session fills its own budget, perhaps before that.
        """
        self._spool.close()
        self.assembler.forget()
        self._registry.clear()

    def unlanded(self, durable_lsn: int) -> Unlanded:
        """See which commits came and are not durable; from any thread.

        Args:
            durable_lsn: everything up to here is.
        """
        assembler = self.assembler
        boundary = assembler.boundary_lsn  # before what waits: a commit between counts as waiting
        is_all = not (
            assembler.waiting_count
            or assembler.finished_count
            or assembler.given_up_count
            or assembler.is_comparing
        )
        coming_us = assembler.oldest_commit_us
        return self._handed_over.look(durable_lsn, coming_us, boundary if is_all else 0)

    def _is_due(self) -> bool:
        timing = self.timing
        if self.is_entry_asked:
            return True
        return self._suspects.is_due(timing.effective_interval) or timing.is_due(self._position.lsn)

    def _commit_if(self, *, is_due: bool) -> None:
        assembler = self.assembler
        if not is_due:
            return
        self._note_suspects()
        if not assembler.can_hand_over or self._hold_session.is_closed:
            return
        self._keep_prepared()
        if not assembler.waiting_count and assembler.boundary_lsn <= self._position.lsn:
            assembler.answered()
            self.is_entry_asked = False
            return
        self._look_at_catalog()
        self._writer.commit(self._request(self._position.until))

    def _cut_with_others(self, barrier: EntryBarrier) -> None:
        """Do what is due of an entry that others have a part in, or that waits for a mark.

        By CSN nothing is released between two entries, so that nobody has to wait for the others.
        """
        assembler = self.assembler
        is_held = self._hold_session.is_closed
        barrier.hold(self._settings.name, is_held=is_held)
        if not self._settings.by_csn:
            if not is_held:
                self._give_part(barrier, is_due=self._is_due())
            return
        name = self._settings.name
        seen = Seen(
            arrived_lsn=0 if assembler.is_comparing else assembler.arrived_lsn,
            waiting=assembler.finished_count + assembler.given_up_count,
            held_bytes=assembler.retained_bytes,
            given_up_csn=assembler.least_given_up,
        )
        if self.is_entry_asked:
            barrier.ask(name, is_due=True)
        kept_csn, cut = barrier.look(name, seen)
        assembler.keep_up_to(kept_csn)
        if cut is None:
            return
        self._note_suspects()
        self._look_at_catalog()
        confirmable_lsns, csn, required_lsns = cut
        assembler.pass_csn(csn, confirmable_lsns[name])
        barrier.give(name, self._request(required_lsns[name]))
        assembler.keep_up_to(0)
        if assembler.given_up_count:
            self._wait_asked(barrier)
            assert self._room is not None
            self._read_again(
                self._room.why_read_again(assembler.given_up_count), assembler.lost_csn
            )

    def _give_part(self, barrier: EntryBarrier, *, is_due: bool) -> None:
        """Give what is released when one of the sources finds an entry due, and wait for the others."""
        name = self._settings.name
        if self.assembler.is_comparing or not barrier.ask(name, is_due=is_due):
            return
        self._note_suspects()
        if not self.assembler.can_hand_over:
            return
        self._look_at_catalog()
        barrier.give(name, self._request(None))
        self._wait_asked(barrier)

    def _wait_asked(self, barrier: EntryBarrier) -> None:
        while not barrier.wait_asked(self._settings.name, SLICE_SECONDS):
            self._on_round()

    def _request(self, until: int | None) -> EntryRequest:
        """Hand all over that is released, and say what an entry of it says; begin the next one.

        Args:
            until: by CSN, the position up to which all of it was in the log.
        """
        assembler = self.assembler
        has_content = assembler.waiting_count > 0
        for accumulator in self._registry.all():
            self.flush(accumulator, is_last=True)
        position = dataclasses.replace(
            self._position,
            lsn=assembler.boundary_lsn,
            csn=assembler.last_csn or self._position.csn,
            until=until,
        )
        if has_content:
            self.gathered.add(self.timing.age)
            self._handed_over.add(
                position.lsn, assembler.oldest_commit_us, assembler.last_commit_time_us
            )
        request = EntryRequest(
            kind=EntryKind.DATA if has_content else EntryKind.IDLE,
            position=position,
            commit_time=_time(assembler.last_commit_time_us) if has_content else None,
            truncates=tuple(self._truncates),
            schema_changes=tuple(self._changes),
            account=self._account(position),
            commit_times=self._commit_times,
            extra=self._said(),
        )
        self._ended = []
        self._csns = None
        self._commit_times = CommitTimes()
        self._position = position
        assembler.committed()
        for version in self._registry.pack(self._settings.most_tables):
            assembler.forget_version(version)
        self._truncates.clear()
        self._changes.clear()
        self.timing.committed()
        self.is_entry_asked = False
        return request

    def _said(self) -> dict[str, Any]:  # Any: JSON
        """Extra fields that only some entries have."""
        said: dict[str, Any] = {}
        if self._ended:
            said[ENDED] = self._ended
        if self._csns is not None:
            said[CSNS] = self._csns.to_record()
        if self._suspects.settled > self._settled_n:
            said[SETTLED] = self._suspects.settled - self._settled_n
            self._settled_n = self._suspects.settled
        return said

    def _account(self, until: SourcePosition) -> Account:
        """The sums of the stretch from the present position to the next one."""
        framed, landed, left_out = self.assembler.sums()
        return Account(
            since=(self._position.epoch, self._position.lsn),
            until=(until.epoch, until.lsn),
            framed=framed,
            landed=landed,
            left_out=left_out,
        )

    def _tell_round(self) -> None:
        self._on_round()

    def _may_keep_prepared(self) -> bool:
        """Make room by files of prepared transactions; false while a snapshot holds entries."""
        if self._hold_session.is_closed:
            return False
        self._keep_prepared()
        return True

    def _keep_prepared(self) -> None:
        """Make prepared transactions durable, before a position beyond their PREPARE can be.

        One that has ended by now is in the entry, and needs no file.
        """
        fresh = self.assembler.unkept()
        if not fresh:
            return
        if self._prepared is None:
            raise SequenceError(
                f"the server sent PREPARE for transaction {fresh[0]}, although source.two-phase is off"
            )
        kept = [self._prepared.writer.write(*self.assembler.dump(xid)) for xid in fresh]
        records = [prepared_record(one.file) for one in kept]
        self._writer.note(
            EntryRequest(
                kind=EntryKind.PREPARED, position=self._position, extra={PREPARED: records}
            )
        )
        for one in kept:
            self.assembler.keep(one)
        self._on_round()

    def _look_at_catalog(self) -> None:
        """Say first what the stream does not show of the tables of the next entry.

        Raises:
            SourceError: the server cannot be asked.
            SuspectError: something was found, and nothing may go on then.
        """
        if self._watch is None:
            return
        emptied = [item.table for item in self._truncates]
        found = self._watch.check(self.assembler.boundary_lsn, emptied, self._tables.descriptions)
        if not found:
            return
        for extra in found:
            if self._settings.stops_at_suspects:
                raise SuspectError(f"{extra['text']}. {STOPPED}")
            self._note(extra)
            _log.error(Event.TABLES_CHANGED, text=extra["text"])
        self._watch.recorded()

    def _note(self, extra: dict[str, Any]) -> None:  # Any: JSON
        """Commit what a suspect entry says."""
        source = self._settings.source
        said = extra if source is None else {**extra, "source": source}
        self._writer.note(EntryRequest(kind=EntryKind.SUSPECT, position=self._position, extra=said))

    def _note_suspects(self) -> None:
        """Commit what may be incomplete, before anything of it can be confirmed.

        The server says it once: were the changes durable first and the daemon killed then,
        nobody would learn of it. Said twice after a crash is no harm.
        """
        self._suspects.settle(self._on_round)
        extra = self._suspects.describe()
        if extra is None:
            return
        if self._settings.stops_at_suspects:
            raise SuspectError(refusal(extra))
        self._note(extra)
        self._suspects.forget()


def _nothing() -> None:
    """Do nothing; the default callback."""


def _time(microseconds: int) -> datetime.datetime | None:
    if not microseconds:
        return None
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=microseconds)


def metadata_of(landed: Landed) -> dict[bytes, bytes]:
    """Key-value metadata of a Parquet file: the true names."""
    relation = landed.relation
    facts = {"schema_id": landed.schema_id, "table": landed.directory}
    if relation is not None:
        facts["namespace"] = relation.namespace
        facts["name"] = relation.name
    return {b"gaussdecode": json.dumps(facts, sort_keys=True).encode()}
