"""The end of a transaction: whether it lands, and where the stream stands then.

Order. Rows are released in the order of their COMMIT on the wire, and the end LSN must rise from
transaction to transaction. `boundary_lsn` is where the stream stood when nothing was open: the end
of the last commit, or a keepalive's WAL end after it. A GaussDB stream has no keepalives here:
nothing but commits moves its boundary, also those of transactions without rows, of which nothing
lands and no entry of its own tells.

Skipped. A transaction that ends at or below `resume_lsn` is already durable and was sent again.
Where the listener compares them with what landed, it is shown each of them, and told once
everything up to `resume_until` has come, before anything else is released.

What a GaussDB transaction says of itself stands at its BEGIN or at its COMMIT, by plug-in and
version: CSN, xid and commit time are taken from whichever has them, and are NULL when neither does.
"""

from gaussdecode.wire._layout cimport (
    EVENT_BEGIN, EVENT_COMMIT, EVENT_COMMIT_PREPARED, EVENT_CSN, EVENT_KEEPALIVE, EVENT_MESSAGE,
    EVENT_ORIGIN, EVENT_PREPARE, EVENT_RELATION, EVENT_ROLLBACK_PREPARED, EVENT_SEGMENT,
    EVENT_STREAM_ABORT, EVENT_STREAM_COMMIT, EVENT_STREAM_START, EVENT_TRUNCATE, GAUSS_EVENT,
    TALLY_TRANSACTION,
)
from gaussdecode.collect._sums cimport (
    BECAUSE_BEFORE_START, BECAUSE_ORIGIN, BECAUSE_RESENT, BECAUSE_USER, REASON_COUNT,
)

from gaussdecode.errors import SequenceError


cdef class Ends:
    """Where one session's stream stands, by the ends of its transactions.

    Args:
        retained: gives back what a transaction held that does not land.
        tallies: counts why it does not.
        comparison: is shown what is sent again.
        releaser: is given what lands.
        resume_lsn: everything that ends here or below is durable already.
        resume_until: up to there comes what is sent again.
        last_csn: everything up to it is durable already; only by CSN.
        only_local: drop transactions that have an origin.
        start_csn: drop transactions with a lower CSN.
    """

    def __cinit__(
        self, RetainedBatches retained, Sums tallies, Comparison comparison, Releaser releaser,
        uint64_t resume_lsn, uint64_t resume_until, uint64_t last_csn, bint only_local,
        uint64_t start_csn,
    ):
        self.retained = retained
        self.tallies = tallies
        self.comparison = comparison
        self.releaser = releaser
        self.only_local = only_local
        self.start_csn = start_csn
        self.resume_lsn = resume_lsn
        self.resume_until = resume_until
        self.boundary_lsn = resume_lsn
        self.arrived_lsn = resume_lsn
        self.last_end_lsn = resume_lsn
        self.last_csn = last_csn

    cdef int end(
        self, OpenTransaction *transaction, const Event *event, const uint8_t *entry,
        uint32_t first, uint32_t commit, bint moves,
    ) except -1 nogil:
        """Release a transaction by its commit, or say why nothing of it lands."""
        cdef Stamp stamp
        cdef Reason why
        transaction.tally.count[<int>TALLY_TRANSACTION] += 1
        if event.y <= self.resume_lsn:
            self.arrived_lsn = max(self.arrived_lsn, event.y)
            return self.pass_over(transaction, event)
        self.catch_up()
        if event.y <= self.last_end_lsn:
            self.fail_commit_order(event)
        self.fill_stamp(transaction, event, &stamp)
        why = self.why_left_out(transaction)
        if why != REASON_COUNT:
            self.leave_out(transaction, why)
        else:
            self.releaser.land(transaction, &stamp, entry, first, commit, moves)
        self.last_end_lsn = event.y
        self.boundary_lsn = event.y
        self.last_commit_time_us = stamp.time_us
        self.last_csn = transaction.csn
        return 0

    cdef int pass_over(self, OpenTransaction *transaction, const Event *commit) except -1 nogil:
        """Leave an ended transaction out, which has landed before."""
        self.resent_count += 1
        self.tallies.leave_out(BECAUSE_RESENT, &transaction.tally)
        if self.comparison.is_running:
            self.compare(transaction, commit)
        return self.retained.drop(transaction)

    cdef int leave_out(self, OpenTransaction *transaction, Reason why) except -1 nogil:
        self.foreign_count += 1
        self.tallies.leave_out(why, &transaction.tally)
        return self.retained.drop(transaction)

    cdef int fail_commit_order(self, const Event *event) except -1 with gil:
        raise SequenceError("a COMMIT that does not end after the one before it", event.y)

    cdef int compare(self, OpenTransaction *transaction, const Event *commit) except -1 nogil:
        """Show the listener an ended transaction, which has landed before."""
        cdef Stamp stamp
        self.fill_stamp(transaction, commit, &stamp)
        self.comparison.show(
            transaction, &stamp, self.is_before_start(transaction) or transaction.is_excluded
        )
        if commit.y == self.resume_until:
            self.catch_up()
        return 0

    cdef int catch_up(self) except -1 nogil:
        """Everything up to `resume_until` has come; tell the listener, once."""
        if self.comparison.is_running:
            self.comparison.finish()
            self.releaser.wants_attention = True
        return 0

    cdef void fill_stamp(
        self, const OpenTransaction *transaction, const Event *commit, Stamp *stamp
    ) noexcept nogil:
        """What all rows of a transaction share; see the module's text."""
        stamp.lsn = commit.y
        stamp.csn = transaction.csn
        stamp.xid = transaction.xid
        stamp.time_us = commit.z
        stamp.commit_lsn = 0 if commit.flags & GAUSS_EVENT else <int64_t>commit.x
        if commit.flags & GAUSS_EVENT:
            if stamp.xid == 0:
                stamp.xid = commit.x
            if stamp.time_us == 0:
                stamp.time_us = transaction.time_us

    cdef Reason why_left_out(self, const OpenTransaction *transaction) noexcept nogil:
        """Why nothing of a transaction lands; REASON_COUNT where it does."""
        if self.is_before_start(transaction):
            return BECAUSE_BEFORE_START
        if transaction.has_origin and self.only_local:
            return BECAUSE_ORIGIN
        return BECAUSE_USER if transaction.is_excluded else REASON_COUNT

    cdef bint is_before_start(self, const OpenTransaction *transaction) noexcept nogil:
        return 0 < transaction.csn < self.start_csn

    cdef int fail_order(self, const Event *event, const OpenTransaction *inside) except -1 with gil:
        """An event came that may not stand inside of a transaction, or outside of any: NULL."""
        names = {
            EVENT_BEGIN: "BEGIN", EVENT_COMMIT: "COMMIT", EVENT_SEGMENT: "rows",
            EVENT_TRUNCATE: "TRUNCATE", EVENT_MESSAGE: "a logical message",
            EVENT_ORIGIN: "ORIGIN", EVENT_KEEPALIVE: "a keepalive",
            EVENT_RELATION: "RELATION", EVENT_CSN: "a CSN", EVENT_STREAM_START: "STREAM START",
            EVENT_STREAM_COMMIT: "STREAM COMMIT", EVENT_STREAM_ABORT: "STREAM ABORT",
            EVENT_PREPARE: "PREPARE", EVENT_COMMIT_PREPARED: "COMMIT PREPARED",
            EVENT_ROLLBACK_PREPARED: "ROLLBACK PREPARED",
        }
        where = "outside of a transaction" if inside == NULL else "inside a transaction"
        raise SequenceError(
            f"{names.get(event.kind, 'an unknown event')} {where}",
            self.boundary_lsn if inside == NULL else inside.commit_lsn,
        )
