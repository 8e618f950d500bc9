"""By CSN: transactions that have ended wait until all before them have come.

Where the landing is in the order of commit sequence numbers, a transaction that has ended is
*finished*, and is retained on until its turn comes (`_turns.pyx`): `pass_csn` says up to which CSN
everything has come, releases that in its order, and moves the boundary. The batches of these
transactions are shared: many small ones stand in one (`_retained.pyx`).

What comes with a CSN that was passed is an error, never a row; but for what stood in the log, up to
`resume_until`, when the position was taken: that has landed, and was sent again. A keepalive tells
how far all has come (`arrived_lsn`), and moves no boundary.

Where the spool may hold no more of them, the listener has the later half given up (`give_up`): they
are not released in this session, and no position passes them, so that they come again in the next.
From the least of their CSNs on everything that ends is left for that too.
"""

from libc.stdint cimport UINT64_MAX
from libc.string cimport memset

from gaussdecode.wire._layout cimport TALLY_TRANSACTION
from gaussdecode.wire._tally cimport tally_add, tally_move
from gaussdecode.collect._columns cimport Stamp
from gaussdecode.collect._open cimport Batch, open_create, open_free, open_retain
from gaussdecode.collect._sums cimport REASON_COUNT, Reason
from gaussdecode.collect._turns cimport (
    Finished, turns_begin, turns_free, turns_least, turns_part, turns_pop, turns_push,
)

from gaussdecode.errors import SequenceError


cdef class CsnOrder:
    """Finished transactions of one session.

    Args:
        ends: where the stream stands; releases what has its turn.
        retained: gives back what is given up.
        tallies: counts what waits here as open.
        resume_csn: everything up to it is durable already.
        first_csn: give up whatever has a higher one from the beginning, so that it has room; 0 for
            none.
    """

    def __cinit__(
        self, Ends ends, RetainedBatches retained, Sums tallies, uint64_t resume_csn,
        uint64_t first_csn,
    ):
        self.ends = ends
        self.retained = retained
        self.tallies = tallies
        self.resume_csn = resume_csn
        self.given_up_csn = first_csn + 1 if first_csn else UINT64_MAX
        self.given_up_end = UINT64_MAX
        self.given_up_before = UINT64_MAX

    def __dealloc__(self):
        turns_free(&self.turns)

    cdef OpenTransaction *finish(
        self, OpenTransaction *transaction, const Event *event, const uint8_t *entry,
        uint64_t size, uint32_t first, uint32_t commit,
    ) except NULL nogil:
        """All of a transaction has come: it waits for its turn, if anything of it lands.

        Returns:
            What is the caller's then: the same transaction, or a new one where it waits.
        """
        cdef OpenTransaction *other
        cdef Finished finished
        cdef Batch *batch
        cdef Reason why
        if event.y <= self.ends.last_end_lsn:
            self.ends.fail_commit_order(event)
        finished.before_lsn = self.ends.last_end_lsn
        self.ends.last_end_lsn = event.y
        self.ends.arrived_lsn = event.y
        if self.is_passed(transaction.csn) and event.y <= self.ends.resume_until:
            transaction.tally.count[<int>TALLY_TRANSACTION] += 1
            self.ends.pass_over(transaction, event)
            return transaction
        if event.y > self.ends.resume_until:
            self.ends.catch_up()
        if transaction.csn <= self.ends.last_csn:
            self.fail_late(transaction, event)
        self.arrived_csn = max(self.arrived_csn, transaction.csn)
        transaction.tally.count[<int>TALLY_TRANSACTION] += 1
        why = self.ends.why_left_out(transaction)
        if why != REASON_COUNT:
            self.ends.leave_out(transaction, why)
            return transaction
        if transaction.is_given_up or self.is_given_up(transaction.csn):
            self.leave_for_later(transaction, event, finished.before_lsn)
            return transaction
        if commit > first:
            batch = self.retained.share(transaction, entry, size)
            if batch == NULL:
                self.leave_for_later(transaction, event, finished.before_lsn)
                return transaction
            open_retain(transaction, batch)
            transaction.retained[transaction.retained_count - 1].first_event = first
            transaction.retained[transaction.retained_count - 1].stop_event = commit
            transaction.retained[transaction.retained_count - 1].taken_back = (
                transaction.taken_back > 0      # of this piece or of another: it is looked at
            )
        finished.transaction = transaction
        finished.commit = event[0]
        other = open_create(0)
        turns_push(&self.turns, &finished)
        self.note_next()
        tally_add(&self.tallies.open, &transaction.tally)
        return other

    cdef int leave_for_later(
        self, OpenTransaction *transaction, const Event *event, uint64_t before_lsn
    ) except -1 nogil:
        """What has just ended comes again in another session; until then it counts as open."""
        if transaction.csn < min(self.given_up_csn, turns_least(&self.turns)):
            self.lost_csn = transaction.csn
        tally_move(&self.tallies.open, &transaction.tally)
        self.retained.drop(transaction)
        self.note_given_up(transaction.csn, event.y, before_lsn)
        return 0

    cdef void note_given_up(
        self, uint64_t csn, uint64_t end_lsn, uint64_t before_lsn
    ) noexcept nogil:
        self.given_up_count += 1
        self.given_up_csn = min(self.given_up_csn, csn)
        if end_lsn < self.given_up_end:
            self.given_up_end = end_lsn
            self.given_up_before = before_lsn

    cdef bint give_up(self, OpenTransaction *at_hand) except -1:
        """See `Assembler.give_up`."""
        cdef uint64_t own = at_hand.csn if at_hand.csn else UINT64_MAX
        cdef uint64_t limit
        cdef Turns later
        cdef uint32_t i
        if self.turns.count == 0:
            return False
        csns = [
            self.turns.items[i].transaction.csn for i in range(self.turns.count)
            if self.turns.items[i].transaction.csn > self.kept_csn
        ]
        csns = sorted([*csns, own])
        limit = csns[len(csns) // 2]
        if own >= limit:
            at_hand.is_given_up = True
            self.retained.drop(at_hand)
        memset(&later, 0, sizeof(Turns))
        try:
            turns_part(&self.turns, limit, &later)
            for i in range(later.count):
                self.note_given_up(
                    later.items[i].transaction.csn, later.items[i].commit.y,
                    later.items[i].before_lsn,
                )
                self.retained.drop(later.items[i].transaction)
        finally:
            turns_free(&later)
            self.note_next()
        return True

    cdef int pass_csn(self, uint64_t csn, uint64_t lsn) except -1:
        """See `Assembler.pass_csn`."""
        with nogil:
            self.release_turns(csn)
        self.ends.last_csn = max(self.ends.last_csn, csn)
        lsn = turns_begin(&self.turns, lsn)
        if self.given_up_end <= lsn:
            lsn = min(lsn, self.given_up_before)
        self.ends.move_boundary(lsn)
        return 0

    cdef int release_turns(self, uint64_t csn) except -1 nogil:
        cdef Finished finished
        cdef Stamp stamp
        while turns_least(&self.turns) <= csn:
            finished = turns_pop(&self.turns)
            try:
                self.tallies.close(&finished.transaction.tally)
                self.ends.fill_stamp(finished.transaction, &finished.commit, &stamp)
                self.ends.releaser.land(finished.transaction, &stamp, NULL, 0, 0, False)
                self.ends.last_commit_time_us = max(self.ends.last_commit_time_us, stamp.time_us)
            finally:
                open_free(finished.transaction)
        self.note_next()
        return 0

    cdef void note_next(self) noexcept nogil:
        """Keep a copy of its commit time: other threads read that, and nothing in the heap."""
        cdef int64_t time_us = 0
        if self.turns.count:
            time_us = <int64_t>self.turns.items[0].commit.z
            if time_us == 0:
                time_us = self.turns.items[0].transaction.time_us
        self.next_commit_us = time_us

    cdef int fail_late(
        self, const OpenTransaction *transaction, const Event *event
    ) except -1 with gil:
        if transaction.csn == 0:
            raise SequenceError(
                "a transaction without a CSN, which has no place in the order of CSNs", event.y
            )
        raise SequenceError(
            f"a transaction with CSN {transaction.csn} came after all up to CSN "
            f"{self.ends.last_csn} had landed: it can have no place any more", event.y,
        )

    cdef void forget(self) noexcept:
        turns_free(&self.turns)
