"""The nogil side of `source.gaussdb.translate._translator`.

A reader's loop over one CopyData payload (the bytes after the 25-byte header):

    translator.start(payload, size, header_lsn)
    while True:
        step = translator.step()
        if step == TRANSLATED:          # translator.out.data, .out.size: one canonical message
            ...                         # translator.tag: its letter; translator.end_lsn for c
        elif step == NEED_RELATION:     # with the GIL, the batch cut before this record:
            definition = relations.define(translator.describe())
            if definition.is_new:
                dispatcher.add_relation(relation_record(definition.relation))
            translator.define(definition)           # then step() again: the same record
        elif step == END_OF_PAYLOAD:    # the bytes may go
            break
        # PASSED_OVER: a row that nobody wants, of which there is no message

The loop may be left after any step and gone on with later; `is_open` tells whether a payload
is unfinished. Its bytes must stay where they are until END_OF_PAYLOAD. After an error a
translator is of no use any more.
"""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.wire._layout cimport Buffer, Tally
from gaussdecode.source.gaussdb.translate._transcode cimport Transcoder
from gaussdecode.source.gaussdb.translate._known cimport Known, KnownColumn, KnownTable
from gaussdecode.source.gaussdb.translate._row cimport Field, Row, Tuple
from gaussdecode.source.gaussdb.translate._statement cimport Boundary


cdef enum Step:
    END_OF_PAYLOAD = 0
    TRANSLATED = 1
    NEED_RELATION = 2
    PASSED_OVER = 3


@cython.final
cdef class Translator:
    cdef Buffer out             # the canonical message of the last TRANSLATED
    cdef uint8_t tag            # its letter
    cdef readonly uint64_t lsn  # of the record: BEGIN first_lsn, row LSN, commit end LSN
    cdef readonly uint64_t end_lsn      # of the last commit; unbatched t and j: its header's
    cdef readonly bint in_transaction
    cdef uint64_t begin_count   # transactions that began
    cdef readonly uint64_t xid  # of the open transaction; 0 where none is, or it was not sent
    cdef readonly bint is_open  # a payload is unfinished
    cdef readonly uint64_t record_count
    cdef Tally framed           # records read since the receiver took the sums,
    cdef Tally filtered         # and the rows of them that became no message
    cdef readonly uint64_t filtered_count       # rows of tables that nobody wants
    cdef readonly uint64_t heartbeat_count
    cdef readonly uint64_t unknown_part_count   # of BEGIN and COMMIT, stepped over
    cdef readonly uint64_t unread_time_count    # commit times that say nothing
    cdef readonly uint64_t unconverted_count    # values with bytes that are no letters
    cdef uint8_t style
    cdef bint is_binary
    cdef bint is_framed         # texts have a length and an LSN before them
    cdef Transcoder transcoder
    cdef Cursor payload
    cdef Cursor record          # the one being read
    cdef size_t record_size
    cdef uint64_t header_lsn
    cdef Row row
    cdef Cursor tables          # of a TRUNCATE
    cdef bint is_json           # the row
    cdef bint is_last           # no record follows in this payload
    cdef bint is_held           # the row is read, its relation is asked for
    cdef bint is_answered       # and was given
    cdef Buffer single          # a text whose quotes stood doubled
    cdef KnownTable known
    cdef size_t memory_limit
    cdef bint takes_ddl
    cdef readonly size_t held_bytes     # of descriptions
    cdef Known *last            # table of the row before

    # Take one payload; the one before must have been finished.
    cdef int start(self, const uint8_t *payload, size_t size, uint64_t header_lsn) except -1 nogil
    # Read one record, or translate the held one again.
    cdef int step(self) except -1 nogil
    # Bytes that the next step reads, as far as its payload says.
    cdef size_t step_size(self) noexcept nogil
    # Give the memory of a long record that was translated back; with `moves` also the
    # payload up to its end, which is the caller's own and not read again.
    cdef void leave_record(self, bint moves) noexcept nogil

    cdef int take_binary(self) except -1 nogil
    cdef int read_separator(self) except -1 nogil
    cdef int read_record(self) except -1 nogil
    cdef bint take_like_last(self) except -1 nogil
    cdef bint emit_like_last(self, const Known *known, const uint8_t *text) except -1 nogil
    cdef int take_text(self) except -1 nogil
    cdef int read_statement(self) except -1 nogil
    cdef void note_parts(self, const Boundary *boundary) noexcept nogil
    cdef int begin(self, const Boundary *boundary) except -1 nogil
    cdef int commit(self, const Boundary *boundary) except -1 nogil
    cdef int take_heartbeat(self) except -1 nogil
    cdef bint is_ddl(self) noexcept nogil
    cdef int emit_ddl(self, bint is_text) except -1 nogil
    cdef Known *find(self) noexcept nogil
    cdef int ask(self) except -1 nogil
    cdef int take_row(self) except -1 nogil
    cdef int end_row(self) except -1 nogil
    cdef int emit_row(self, const Known *known) except -1 nogil
    cdef int emit_old(self, const Known *known) except -1 nogil
    cdef int emit_value(self, const KnownColumn *column, const Field *field) except -1 nogil
    cdef int emit_other(self, const KnownColumn *column, const Field *field) except -1 nogil
    cdef bint is_own(self, const uint8_t *text) noexcept nogil
    cdef int emit_text(self, const KnownColumn *column, const Field *field) except -1 nogil
    cdef int begin_truncate(self) except -1 nogil
    cdef int truncate(self) except -1 nogil
    cdef int fail_order(self, const char *what) except -1 with gil
    cdef list spellings(self, object relation, const Known *before)
