"""Restores commit order and releases whole transactions.

Given decoded batches in dispatch order, which is wire order, it finds where each transaction
commits, and only then has its rows appended to the accumulators of their tables: the end of the
commit record, which is every row's position, is not known before.

The assembler reads the events of batches. What they mean is the matter of parts; a part calls only
those that stand above it:

    _relations     which accumulator the rows of a relation version go to
    _retained      batches of open transactions: in memory, in the spool, in files
    _sums          what came, what landed, and why something did not
    _upserts       rows that an upsert inserted and took back
    _comparison    what is sent again, for the comparison with what landed
    _releaser      rows of whole transactions into accumulators
    _ends          the end of a transaction: whether it lands, and the position
    _csnorder      transactions that have ended and wait for their turn by CSN
    _prepared      transactions that were prepared and have not ended
    _streams       transactions whose rows come in blocks
    _pumptimes     how long batches take, and the pump

States. No transaction that began with a BEGIN is open, or exactly one is (`plain`). While one is
open, the batches that hold its beginning are *retained*. Notices are told to the listener as they
come, wherever they stand.

Skipped. A non-transactional message is durable only if its own LSN is below `resume_lsn`, since it
says where its record begins, not where it ends; for the same reason nothing may be committed while
`message_lsn` is not below `boundary_lsn`.

Crash. All state here dies with the process; nothing of it was confirmed.

Deadlock. The rings are read strictly in dispatch order, so the ring that is waited for is the one
whose decoder holds the oldest batch; it never waits for another's.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen

from gaussdecode.wire._layout cimport (
    ENTRY_DATA, ENTRY_END, ENTRY_ERROR, ENTRY_MAGIC, EVENT_BEGIN, EVENT_COMMIT,
    EVENT_COMMIT_PREPARED, EVENT_CSN, EVENT_HEARTBEAT, EVENT_KEEPALIVE, EVENT_MESSAGE, EVENT_NOTICE,
    EVENT_ORIGIN, EVENT_PREPARE, EVENT_RELATION, EVENT_ROLLBACK_PREPARED, EVENT_SEGMENT,
    EVENT_STREAM_ABORT, EVENT_STREAM_COMMIT, EVENT_TAKEN_BACK, EVENT_TRUNCATE, GAUSS_EVENT, Buffer,
    ColumnHeader, EntryHeader, Event, Misfit, PartHeader, TALLY_DELETE, TALLY_MESSAGE,
    TALLY_TRUNCATE, Tally, Unchanged, buffer_append,
)
from gaussdecode.wire._tally cimport tally_add
from gaussdecode.collect._columns cimport Accumulator, Stamp
from gaussdecode.collect._comparison cimport Comparison
from gaussdecode.collect._csnorder cimport CsnOrder
from gaussdecode.collect._ends cimport Ends
from gaussdecode.collect._open cimport (
    OpenTransaction, open_begin, open_create, open_set_origin, open_forget, open_free,
)
from gaussdecode.collect._prepared cimport PreparedTransactions
from gaussdecode.collect._pumptimes cimport (
    SPAN_COLLECT, SPAN_DECODE, SPAN_RECEIVE, PumpTimes,
)
from gaussdecode.collect._relations cimport Relations
from gaussdecode.collect._releaser cimport Releaser
from gaussdecode.collect._retained cimport RetainedBatches
from gaussdecode.collect._streams cimport Streams
from gaussdecode.collect._sums cimport BECAUSE_RESENT, Sums, count_segment
from gaussdecode.ipc.clock cimport monotonic_ns
from gaussdecode.ipc.ring cimport Ring

import json
import sys

from gaussdecode.collect import _sums
from gaussdecode.errors import ChildError, SequenceError, from_record
from gaussdecode.model.csns import MOST_CSN

REASONS = _sums.REASONS

cdef enum:
    MAX_WAIT_MS = 100       # arbitrary: how long a stop request may go unnoticed
    # Of what decoded batches mean; raise it with every change of that. LSNs of rows raised
    # nothing: a batch without them is read, and who does not know them does not look at them.
    BATCH_VERSION = 2

cpdef enum:                 # what `Assembler.pump` came back for
    PUMP_TIME = 1
    PUMP_ATTENTION = 2
    PUMP_END = 3


cdef class Assembler:
    """Batches in, rows in accumulators out; see the module's text.

    Args:
        tables: gives the accumulator of a relation version; see `TableSource` in `_assembler.pyi`.
        listener: is told what happens; see `Listener` there. Both are called with the GIL held,
            rarely.
        transactions: accumulator of one row per transaction (origin, user, rows).
        messages: accumulator of logical messages (transactional, prefix, content).
        ddl: accumulator of those in a transaction that our event triggers write (content).
        spool: ``write(memoryview) -> offset``, ``read_into(offset, memoryview)``,
            ``free(offset, size)``.
        resume_lsn: everything that ends here or below is durable already.
        memory_limit: bytes of an open transaction kept in memory.
        total_limit: bytes of all open transactions kept in memory; None for no limit.
        row_limit, byte_limit: size of a row group.
        budget: bytes of all accumulators together.
        only_local: drop transactions that have an origin.
        skip_empty: no row in `transactions` for a transaction without rows.
        start_csn: drop transactions with a lower CSN.
        excluded_users: drop transactions whose BEGIN names one of them; in UTF-8.
        is_compared: show the listener what is sent again.
        kept: files of prepared transactions, as `keep` takes.
        by_csn: release in the order of CSNs, as `pass_csn` says.
        resume_csn: everything up to it is durable already; only by CSN.
        first_csn: give up whatever has a higher one from the beginning, so that it has room; only
            by CSN, 0 for none.
        resume_until: up to there in the log stood all of that; what ends behind it is late. 0 for
            `resume_lsn`.
    """

    cdef object listener
    cdef Relations relations
    cdef RetainedBatches retained
    cdef Sums tallies
    cdef Comparison comparison
    cdef Releaser releaser
    cdef Ends ends
    cdef CsnOrder order
    cdef PreparedTransactions prepared
    cdef Streams streams
    cdef PumpTimes times
    cdef OpenTransaction *plain     # the one that began with a BEGIN
    cdef bint is_open               # it did, and has not ended
    cdef int64_t open_commit_us     # its commit time, by its BEGIN; 0: unknown
    cdef bint by_csn
    cdef bytes excluded_users       # each with a NUL after it; an empty one is the end
    cdef const char *excluded_names
    cdef uint64_t most_csn
    cdef uint64_t message_lsn
    cdef bint moves                 # rows of the batch are not read again
    cdef readonly uint64_t heartbeat_count
    cdef readonly bint keepalive_is_urgent
    cdef readonly uint64_t dispatch_seq
    cdef uint32_t end_count

    def __cinit__(
        self, tables, listener, Accumulator transactions, Accumulator messages,
        Accumulator ddl, spool, *,
        uint64_t resume_lsn, uint64_t memory_limit, uint64_t row_limit,
        uint64_t byte_limit, uint64_t budget, bint only_local=True,
        bint skip_empty=False, uint64_t start_csn=0, excluded_users=(),
        bint is_compared=False, total_limit=None, kept=(), bint by_csn=False,
        uint64_t resume_csn=0, uint64_t resume_until=0, uint64_t first_csn=0,
    ):
        self.plain = open_create(0)
        self.listener = listener
        self.by_csn = by_csn
        self.excluded_users = b"".join([name + b"\0" for name in excluded_users])
        self.excluded_names = self.excluded_users
        self.most_csn = MOST_CSN
        self.relations = Relations(tables)
        self.retained = RetainedBatches(spool, memory_limit, total_limit, by_csn)
        self.tallies = Sums()
        self.comparison = Comparison(listener, self.relations, self.retained, is_compared)
        self.releaser = Releaser(
            tables, listener, transactions, messages, ddl, self.relations, self.retained,
            self.tallies, skip_empty, row_limit, byte_limit, budget,
        )
        self.ends = Ends(
            self.retained, self.tallies, self.comparison, self.releaser, resume_lsn,
            max(resume_lsn, resume_until), resume_csn, only_local, start_csn,
        )
        self.order = CsnOrder(self.ends, self.retained, self.tallies, resume_csn, first_csn)
        self.prepared = PreparedTransactions(listener, self.relations, self.retained)
        self.streams = Streams(
            self.relations, self.retained, self.tallies, self.comparison, self.ends, self.prepared
        )
        self.times = PumpTimes()
        for file in kept:
            tally_add(&self.tallies.open, &self.prepared.adopt(file).tally)
        self.tallies.committed(&self.plain.tally)

    def __dealloc__(self):
        open_free(self.plain)

    # ---- events ----------------------------------------------------------------------

    def absorb_bytes(self, const uint8_t[::1] entry not None):
        """Absorb one decoded batch from Python; for tests and other slow callers."""
        self.absorb(&entry[0], entry.shape[0])

    cdef int absorb(self, const uint8_t *entry, uint64_t size) except -1 nogil:
        """Take one decoded batch in; nothing of it is needed afterwards."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        if header.stream_xid:
            if self.is_open:
                self.streams.fail_block(
                    header.stream_xid, b"stands inside of another transaction"
                )
            self.streams.absorb(entry, size, self.moves)
            return self.tallies.check(header, &self.plain.tally, self.ends.boundary_lsn)
        try:
            self.absorb_whole(entry, size)
        finally:
            self.retained.leave_shared()
        self.tallies.check(header, &self.plain.tally, self.ends.boundary_lsn)
        return self.releaser.keep_to_budget(entry)

    cdef int absorb_whole(self, const uint8_t *entry, uint64_t size) except -1 nogil:
        """Take in a batch of transactions that are sent one after the other."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *events = <const Event *>(entry + header.event_offset)
        cdef uint32_t i = 0
        while i < header.event_count:
            if events[i].kind == EVENT_RELATION:
                # DDL in the transaction at hand is known when that is released, and so are columns.
                self.relations.register(
                    entry, &events[i],
                    self.is_open and self.plain.tally.count[<int>TALLY_MESSAGE] > 0,
                )
                i += 1
            elif self.is_open:
                i = <uint32_t>self.continue_transaction(entry, size, i)
            elif events[i].kind == EVENT_BEGIN:
                self.is_open = True
                open_begin(self.plain)
                if self.comparison.is_running:
                    self.comparison.begin()
                self.plain.flags = events[i].flags
                self.plain.time_us = events[i].y
                self.open_commit_us = events[i].y
                self.plain.commit_lsn = events[i].x
                self.plain.xid = events[i].z
                if events[i].flags & GAUSS_EVENT:
                    self.plain.first_lsn = events[i].x
                elif events[i].payload_size:
                    memcpy(
                        &self.plain.first_lsn, entry + events[i].payload_offset,
                        sizeof(self.plain.first_lsn),
                    )
                i = <uint32_t>self.continue_transaction(entry, size, i + 1)
            else:
                self.stand_alone(entry, &events[i])
                i += 1
        return 0

    cdef int continue_transaction(
        self, const uint8_t *entry, uint64_t size, uint32_t first
    ) except -1 nogil:
        """Release the open transaction, or keep the batch; gives the next event."""
        cdef uint64_t taken_back = self.plain.taken_back
        cdef int64_t commit = self.find_commit(entry, first)
        if self.comparison.is_running:
            self.comparison.count_rows(
                self.plain, entry, first,
                <uint32_t>commit if commit >= 0 else (<const EntryHeader *>entry).event_count,
                self.ends.boundary_lsn,
            )
        if commit < 0:
            if self.order.is_given_up(self.plain.csn):
                self.plain.is_given_up = True
                self.retained.drop(self.plain)
            if not (
                self.plain.is_excluded or self.plain.is_given_up
                or self.order.is_passed(self.plain.csn)
            ):
                self.retained.retain(self.plain, entry, size, first, self.moves)
                if self.plain.retained_count and self.plain.taken_back > taken_back:
                    self.plain.retained[self.plain.retained_count - 1].taken_back = True
            return <int>(<const EntryHeader *>entry).event_count
        self.release(entry, size, first, <uint32_t>commit)
        return <int>commit + 1

    cdef int release(
        self, const uint8_t *entry, uint64_t size, uint32_t first, uint32_t commit
    ) except -1 nogil:
        """A commit came: release the retained batches and events `first` .. `commit`."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *event = &(<const Event *>(entry + header.event_offset))[commit]
        if event.flags != self.plain.flags or (
            not event.flags & GAUSS_EVENT and event.x != self.plain.commit_lsn
        ):
            with gil:
                raise SequenceError("a COMMIT whose position is not its BEGIN's", event.x)
        self.is_open = False
        if self.by_csn and event.y > self.ends.resume_lsn:
            self.plain = self.order.finish(self.plain, event, entry, size, first, commit)
            return 0
        return self.ends.end(self.plain, event, entry, first, commit, self.moves)

    cdef int64_t find_commit(self, const uint8_t *entry, uint32_t first) except -2 nogil:
        """Walk the open transaction; its COMMIT's event, or -1 when it is not here."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *events = <const Event *>(entry + header.event_offset)
        cdef Tally *tally = &self.plain.tally
        cdef uint32_t i
        for i in range(first, header.event_count):
            if events[i].kind == EVENT_COMMIT:
                return i
            if events[i].kind == EVENT_ORIGIN:
                open_set_origin(
                    self.plain, entry + events[i].payload_offset, events[i].payload_size
                )
            elif events[i].kind == EVENT_CSN:
                self.note_csn(entry, &events[i])
            elif events[i].kind == EVENT_NOTICE:
                self.notice(entry, &events[i])
            elif events[i].kind == EVENT_HEARTBEAT:
                self.heartbeat_count += 1
            elif events[i].kind == EVENT_SEGMENT:
                count_segment(tally, entry, &events[i])
            elif events[i].kind == EVENT_TRUNCATE:
                tally.count[<int>TALLY_TRUNCATE] += 1
            elif events[i].kind == EVENT_MESSAGE and events[i].flags & 1:
                tally.count[<int>TALLY_MESSAGE] += 1
            elif events[i].kind == EVENT_TAKEN_BACK and self.plain.flags & GAUSS_EVENT:
                tally.count[<int>TALLY_DELETE] += 1
                self.plain.taken_back += 1
            else:
                self.ends.fail_order(&events[i], self.plain)
        return -1

    cdef int note_csn(self, const uint8_t *entry, const Event *event) except -1 nogil:
        if event.x > self.most_csn:
            self.fail_csn(event.x)
        if event.x:
            self.plain.csn = event.x
        if event.payload_size:
            self.plain.user.size = 0
            buffer_append(&self.plain.user, entry + event.payload_offset, event.payload_size)
            self.plain.has_user = True
            self.plain.is_excluded = self.excludes_user(&self.plain.user)
        return 0

    cdef int fail_csn(self, uint64_t csn) except -1 with gil:
        raise SequenceError(
            f"a transaction has CSN {csn}, and the greatest that can be is {self.most_csn}",
            self.ends.boundary_lsn,
        )

    cdef bint excludes_user(self, const Buffer *user) noexcept nogil:
        """Whether a user is one of those that are left out."""
        cdef const char *name = self.excluded_names
        cdef size_t size = strlen(name)
        while size:
            if size == user.size and memcmp(name, user.data, size) == 0:
                return True
            name += size + 1
            size = strlen(name)
        return False

    cdef int notice(self, const uint8_t *entry, const Event *event) except -1 with gil:
        text = (<const char *>entry + event.payload_offset)[:event.payload_size]
        self.listener.noticed(event.index, text, self.ends.boundary_lsn)
        self.releaser.wants_attention = True
        return 0

    cdef int stand_alone(self, const uint8_t *entry, const Event *event) except -1 nogil:
        """What may stand outside of any transaction."""
        cdef Stamp stamp
        if event.kind == EVENT_NOTICE:
            self.notice(entry, event)
        elif event.kind == EVENT_HEARTBEAT:
            self.heartbeat_count += 1
        elif event.kind == EVENT_KEEPALIVE:
            if event.x >= self.ends.resume_until:
                self.ends.catch_up()
            if self.by_csn:
                self.ends.arrived_lsn = max(self.ends.arrived_lsn, event.x)
            else:
                self.ends.move_boundary(event.x)
            if event.flags & 1:
                self.keepalive_is_urgent = True
                self.releaser.wants_attention = True
        elif event.kind == EVENT_MESSAGE and not event.flags & 1:
            if event.x >= self.ends.resume_until:
                self.ends.catch_up()
            if event.x >= self.ends.resume_lsn:
                stamp.lsn = event.x
                stamp.csn = 0
                stamp.xid = 0
                stamp.time_us = 0
                stamp.commit_lsn = 0
                self.releaser.land_message(entry, event, &stamp)
                self.message_lsn = event.x
            else:
                self.ends.resent_count += 1
                self.tallies.count_left_out(BECAUSE_RESENT, TALLY_MESSAGE)
        elif event.kind == EVENT_STREAM_COMMIT:
            self.streams.commit(entry, event)
        elif event.kind == EVENT_STREAM_ABORT:
            self.streams.abort(event)
        elif event.kind == EVENT_PREPARE:
            self.streams.prepare(entry, event)
        elif event.kind == EVENT_COMMIT_PREPARED:
            self.streams.commit_prepared(entry, event)
        elif event.kind == EVENT_ROLLBACK_PREPARED:
            self.streams.rollback_prepared(entry, event)
        else:
            self.ends.fail_order(event, NULL)
        return 0

    # ---- rings -----------------------------------------------------------------------

    def pump(self, list rings, double seconds):
        """Take decoded batches from `rings`, in dispatch order.

        Args:
            rings: `ipc.ring.Ring` of each decoder, consumer side.
            seconds: how long at most.

        Returns:
            PUMP_TIME when the time is over, PUMP_ATTENTION when a row group was handed
            over, an answer is urgent or a first transaction waits for its entry, PUMP_END
            when the stream was closed and all before its end is absorbed.

        Raises:
            ChildError: a decoder died without closing its stream.
            GaussDecodeError: what a decoder reported, or a wrong order.
        """
        cdef int64_t deadline = self.times.begin() + <int64_t>(seconds * 1e9)
        cdef int result
        self.releaser.wants_attention = False
        try:
            while True:
                result = self.pump_one(rings[self.dispatch_seq % len(rings)], deadline)
                if result == PUMP_END and self.end_count < len(rings):
                    continue
                if result:
                    return result
        finally:
            self.times.end()

    cdef int pump_one(self, Ring ring, int64_t deadline) except -1:
        """Take the next batch from the one ring it can come from; 0: go on."""
        cdef const uint8_t *entry = NULL
        cdef size_t size = 0
        cdef int64_t now = <int64_t>monotonic_ns(), left
        cdef uint64_t opened, taken, decoded
        cdef int got
        cdef uint32_t kind
        with nogil:
            got = ring.get(&entry, &size)
            while got == 0:
                left = (deadline - now) // 1000000
                if now >= deadline:
                    break
                self.times.begin_wait(now)
                ring.wait_data(<int>(left + 1 if left < MAX_WAIT_MS else MAX_WAIT_MS))
                now = self.times.end_wait()
                got = ring.get(&entry, &size)
        if got == 0:
            return PUMP_TIME
        if got < 0:
            raise ChildError("a decoder ended without closing its stream")
        kind = self.check(entry, size)
        if kind == ENTRY_ERROR:
            record = (<const char *>entry)[sizeof(EntryHeader):size]
            raise from_record(json.loads(record))
        with nogil:
            if kind == ENTRY_DATA:
                opened = (<const EntryHeader *>entry).opened_ns
                taken = (<const EntryHeader *>entry).taken_ns
                decoded = (<const EntryHeader *>entry).decoded_ns
                self.moves = True
                self.absorb(entry, size)
                self.moves = False
                now = <int64_t>monotonic_ns()
                self.times.count(SPAN_RECEIVE, opened, taken)
                self.times.count(SPAN_DECODE, taken, decoded)
                self.times.count(SPAN_COLLECT, decoded, <uint64_t>now)
            ring.release()
        self.dispatch_seq += 1
        if kind == ENTRY_END:
            self.end_count += 1
            return PUMP_END
        if self.releaser.wants_attention:
            return PUMP_ATTENTION
        return PUMP_TIME if now >= deadline else 0

    cdef int check(self, const uint8_t *entry, size_t size) except -1:
        """The header of a decoded batch says what was expected; its kind."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        if size < sizeof(EntryHeader) or header.magic != ENTRY_MAGIC:
            raise SequenceError("a decoded batch that does not begin with its header")
        if header.dispatch_seq != self.dispatch_seq:
            raise SequenceError(
                f"decoded batch {header.dispatch_seq} came where {self.dispatch_seq} "
                "was expected"
            )
        return header.kind

    # ---- entries ---------------------------------------------------------------------

    @property
    def can_hand_over(self):
        """False while a message stands after the last boundary."""
        return self.message_lsn == 0 or self.message_lsn < self.ends.boundary_lsn

    def answered(self):
        """Nothing has to be committed of what came so far; its sums go into the next entry."""
        self.releaser.waiting_count = 0
        self.releaser.waiting_commit_us = 0
        self.keepalive_is_urgent = False

    def committed(self):
        """All released so far is part of an entry."""
        self.answered()
        self.tallies.committed(&self.plain.tally)

    def sums(self):
        """What came since the last entry, open transactions left out.

        Returns:
            Three dicts: what the reader framed, what landed, and by reason what did not.
        """
        return self.tallies.since_committed(&self.plain.tally)

    def forget_version(self, uint32_t version):
        """Let go of a version's accumulator, which has no rows, until there are some."""
        self.relations.forget_version(version)

    def taken(self, uint64_t byte_count):
        """The listener took `byte_count` bytes out of an accumulator."""
        self.releaser.held_bytes -= byte_count

    def forget(self):
        """Give back all that is held; rows cannot be absorbed any more."""
        open_forget(self.plain)
        self.streams.forget()
        self.prepared.forget()
        self.order.forget()
        self.retained.forget()
        self.relations.forget()
        self.releaser.held_bytes = 0

    # ---- prepared transactions ---------------------------------------------------------

    def unkept(self):
        """Numbers of the prepared transactions in no file, in the order of their PREPARE."""
        return self.prepared.unkept()

    def dump(self, uint32_t xid):
        """What is to be written of a prepared transaction.

        Returns:
            A dict of what `adopt` reads: ``xid``, ``lsn``, ``time_us``, ``first_lsn``, ``gid``,
            ``origin``, ``aborted``, ``tally`` and, once the batches were taken, ``relations``
            (descriptions by version, None for tables that do not land); and its batches, an
            iterator of memoryviews, valid until it is kept.
        """
        return self.prepared.dump(xid)

    def keep(self, file):
        """All of a prepared transaction is in a file, and durable; let go of what is held of it.

        Args:
            file: ``xid``, ``places`` (offset and size of each batch), ``relations`` and
                ``read_into(offset, memoryview)``.
        """
        self.prepared.keep(file)

    def show(self, uint32_t xid):
        """Release the rows of a kept transaction as if it ended now; nothing else may follow."""
        cdef OpenTransaction *transaction = self.prepared.of_number(xid)
        cdef Stamp stamp
        cdef int64_t seq = 0
        stamp.lsn = stamp.csn = stamp.time_us = stamp.commit_lsn = 0
        stamp.xid = xid
        self.releaser.release_kept(transaction, &stamp, &seq)

    @property
    def prepared_transactions(self):
        """Those that are prepared and have not ended, by the end of their PREPARE.

        Returns:
            Global identifier, number, end of the PREPARE, its time in microseconds since 1970, and
            rows, of each. Any thread may ask.
        """
        return self.prepared.told()

    # ---- by CSN ------------------------------------------------------------------------

    def give_up(self):
        """Give up the later half of what waits for its turn, the transaction at hand included.

        Returns:
            Whether anything was; nothing is where the transaction at hand is all that there is.
        """
        return self.order.give_up(self.plain)

    def keep_up_to(self, uint64_t csn):
        """Give up nothing up to a CSN from now on: an entry of it is being cut."""
        self.order.kept_csn = csn

    @property
    def least_given_up(self):
        """The least CSN that comes again in another session; None where there is none."""
        return None if self.order.given_up_csn == UINT64_MAX else self.order.given_up_csn

    @property
    def is_given_up(self):
        """Whether the transaction at hand was."""
        return bool(self.plain.is_given_up)

    def pass_csn(self, uint64_t csn, uint64_t lsn):
        """Release what is finished up to a CSN, in the order of CSNs.

        Args:
            csn: everything up to it has come.
            lsn: every commit record up to there has a CSN up to `csn`, waits here, or was given up.
        """
        self.order.pass_csn(csn, lsn)

    @property
    def arrived_lsn(self):
        """By CSN: up to there all has come."""
        return self.ends.arrived_lsn

    @property
    def arrived_csn(self):
        """By CSN: the highest of a transaction that is finished."""
        return self.order.arrived_csn

    @property
    def finished_count(self):
        """Transactions that have ended and wait for their turn."""
        return self.order.turns.count

    @property
    def given_up_count(self):
        """Transactions that come again in another session."""
        return self.order.given_up_count

    @property
    def lost_csn(self):
        """One of those, before which nothing stood; 0 where there is none."""
        return self.order.lost_csn

    # ---- what others see ---------------------------------------------------------------

    @property
    def boundary_lsn(self):
        """Where the stream stood when nothing was open."""
        return self.ends.boundary_lsn

    @property
    def last_csn(self):
        """CSN of the last transaction, 0 where the source sends none; by CSN, the one passed."""
        return self.ends.last_csn

    @property
    def last_commit_time_us(self):
        """Commit time of the last transaction, in microseconds since 1970."""
        return self.ends.last_commit_time_us

    @property
    def is_transaction_open(self):
        """True between a BEGIN and its COMMIT."""
        return self.is_open

    @property
    def open_count(self):
        """Number of open transactions, streamed ones included, prepared ones not."""
        return self.streams.opens.count + self.is_open

    @property
    def is_comparing(self):
        """Whether what was sent again has not all come yet."""
        return bool(self.comparison.is_running)

    @property
    def held_bytes(self):
        """Bytes in all accumulators."""
        return self.releaser.held_bytes

    @property
    def retained_bytes(self):
        """Bytes of open transactions in memory."""
        return self.retained.memory_bytes

    @property
    def spooled_bytes(self):
        """Bytes of open transactions in the spool."""
        return self.retained.spooled_bytes

    @property
    def spooled_batches(self):
        """Number of batches there."""
        return self.retained.spooled_batches

    @property
    def spooled_count(self):
        """Number of transactions that ever went to the spool."""
        return self.retained.spooled_count

    @property
    def spooling(self):
        """Number, commit LSN and bytes of the transaction that went there last."""
        return self.retained.spooling

    @property
    def waiting_count(self):
        """Transactions and messages since `committed`."""
        return self.releaser.waiting_count

    @property
    def oldest_commit_us(self):
        """Commit time of the oldest transaction since `committed`, in microseconds since 1970.

        0 where there is none, or where the server does not say.
        """
        if self.releaser.waiting_count:
            return self.releaser.waiting_commit_us
        if self.order.turns.count:
            return self.order.next_commit_us
        return self.open_commit_us if self.is_open else 0

    @property
    def waiting_since_ns(self):
        """When the first of them came; monotonic."""
        return self.releaser.waiting_since_ns

    @property
    def transaction_count(self):
        """Transactions that were released."""
        return self.releaser.transaction_count

    @property
    def row_count(self):
        """Rows, truncate markers and transactional messages that were released."""
        return self.releaser.row_count

    @property
    def empty_count(self):
        """Transactions without rows, of which nothing landed."""
        return self.releaser.empty_count

    @property
    def resent_count(self):
        """Transactions and messages that had landed before."""
        return self.ends.resent_count

    @property
    def foreign_count(self):
        """Transactions left out by origin, user and start CSN."""
        return self.ends.foreign_count

    @property
    def streamed_count(self):
        """Released transactions that were streamed."""
        return self.streams.streamed_count

    @property
    def aborted_count(self):
        """Streamed transactions that were rolled back."""
        return self.streams.aborted_count

    @property
    def stray_count(self):
        """Rollbacks of transactions that nobody knew."""
        return self.streams.stray_count

    @property
    def left_out_rows(self):
        """Rows, truncates and messages that did not land since the start, by reason."""
        return self.tallies.left_out_rows()

    @property
    def waited_ns(self):
        """Time in `pump` that it waited for batches."""
        return self.times.waited_ns

    @property
    def worked_ns(self):
        """Time in `pump` without its waits for batches, until now.

        Read while it changes, it may be ahead by a wait; so it stands then, and does not fall.
        """
        return self.times.worked()

    @property
    def durations(self):
        """What batches took so far, by stage."""
        return self.times.durations()

    @staticmethod
    def layouts():
        """What the bytes of a retained batch depend on, and those before that are read as well."""
        sizes = (
            sizeof(EntryHeader), sizeof(Event), sizeof(PartHeader), sizeof(ColumnHeader),
            sizeof(Unchanged), sizeof(Misfit), sys.byteorder == "little",
        )
        of_machine = ",".join(str(int(size)) for size in sizes)
        return tuple(f"{version}:{of_machine}" for version in range(BATCH_VERSION, 0, -1))
