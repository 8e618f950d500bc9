"""Sums: what the reader framed must be what landed and what was left out.

What the reader framed, as each batch says, must be what landed, what was left out for some reason,
and what stands in the open transaction; after every batch this is compared. Rows are counted as
they come, before anything is kept or dropped, and again as they are released.

The other parts count what they see; this one knows what the counts must say of each other. The
transaction that began with a BEGIN has its own counts, here `plain`; the counts of streamed,
prepared and finished transactions are added up in `open`.
"""

from gaussdecode.wire._layout cimport TALLY_KINDS
from gaussdecode.wire._tally cimport tally_add, tally_clear, tally_dict, tally_equals, tally_rows

from gaussdecode.errors import AccountError
from gaussdecode.model import account

REASONS = (
    account.RESENT, account.ORIGIN, account.USER, account.BEFORE_START, account.FILTERED,
    account.NOT_WANTED, account.EMPTY, account.ABORTED,
    account.SPECULATIVE,
)


cdef class Sums:
    """Counts since the last entry."""

    cdef int check(
        self, const EntryHeader *header, const Tally *plain, uint64_t lsn
    ) except -1 nogil:
        """See that all of a batch has landed, was left out, or waits for its commit."""
        cdef Tally found = self.landed
        cdef int i
        tally_add(&self.framed, &header.framed)
        tally_add(&self.left_out[<int>BECAUSE_FILTERED], &header.filtered)
        tally_add(&self.left_out[<int>BECAUSE_BEFORE_START], &header.before_start)
        tally_add(&found, plain)
        tally_add(&found, &self.open)
        for i in range(REASON_COUNT):
            tally_add(&found, &self.left_out[i])
        if not tally_equals(&found, &self.framed):
            self.fail(&found, lsn)
        return 0

    cdef int fail(self, const Tally *found, uint64_t lsn) except -1 with gil:
        raise AccountError(
            f"up to {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X} the reader "
            f"counted {tally_dict(&self.framed)} since the last entry, of which "
            f"{tally_dict(found)} landed, were left out or wait for their commit: "
            "nothing of it is committed"
        )

    cdef tuple since_committed(self, const Tally *plain):
        """See `Assembler.sums`."""
        cdef Tally framed = self.framed
        cdef int i
        for i in range(TALLY_KINDS):
            framed.count[i] -= plain.count[i] + self.open.count[i]
        left_out = {}
        for i in range(REASON_COUNT):
            if tally_dict(&self.left_out[i]):
                left_out[REASONS[i]] = tally_dict(&self.left_out[i])
        return tally_dict(&framed), tally_dict(&self.landed), left_out

    cdef dict left_out_rows(self):
        """See `Assembler.left_out_rows`."""
        cdef int i
        rows = {}
        for i in range(REASON_COUNT):
            rows[REASONS[i]] = self.left_out_total[i] + tally_rows(&self.left_out[i])
        return rows

    cdef void committed(self, const Tally *plain) noexcept:
        """All released so far is part of an entry; begin again with what is open."""
        cdef int i
        self.framed = plain[0]
        tally_add(&self.framed, &self.open)
        tally_clear(&self.landed)
        for i in range(REASON_COUNT):
            self.left_out_total[i] += tally_rows(&self.left_out[i])
            tally_clear(&self.left_out[i])
