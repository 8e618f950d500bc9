"""The nogil side of `source.gaussdb._receive`."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gaussdecode.source._receive cimport Receiver
from gaussdecode.source.gaussdb.translate._translator cimport Translator
from gaussdecode.wire._layout cimport Buffer

ctypedef int (*SslRead)(void *ssl, void *buffer, int size) noexcept nogil
ctypedef int (*SslGetError)(const void *ssl, int result) noexcept nogil
ctypedef void (*ErrClear)() noexcept nogil
ctypedef unsigned long (*ErrPeek)() noexcept nogil
ctypedef const char *(*ErrReason)(unsigned long code) noexcept nogil

cdef enum:
    STATUS_MESSAGE = 70         # CopyData around the 65 bytes of a status


@cython.final
cdef class GaussReceiver(Receiver):
    cdef readonly Translator translator
    cdef dict settings          # that the server has reported, by name
    cdef object tls             # the SSLSocket, or None
    cdef void *ssl              # its OpenSSL's; NULL where Python reads
    cdef SslRead ssl_read
    cdef SslGetError ssl_get_error
    cdef ErrClear err_clear
    cdef ErrPeek err_peek
    cdef ErrReason err_reason
    cdef uint64_t start_lsn
    cdef uint64_t csn           # of the open transaction; 0 not sent
    cdef uint64_t from_csn      # option start-position
    cdef uint64_t from_lsn
    cdef bint is_pending        # the translated message waits for room
    cdef size_t walked          # bytes translated here since the clock was looked at
    cdef bytes answer           # goes in-band instead of the held notice
    cdef const uint8_t *answer_data
    cdef size_t answer_size
    cdef uint8_t[STATUS_MESSAGE] output
    cdef size_t output_next     # first byte the socket has not taken
    cdef readonly bytes server_error    # body of an ErrorResponse
    cdef readonly str failure   # why reading or writing failed
    cdef uint64_t notice_count
    cdef uint64_t heartbeat_count
    cdef bint is_serial         # keepalives tell what was sent, not what was read
    cdef bint is_advancing      # option auto-advance
    cdef uint64_t told_lsn      # of the last keepalive; 0 when data came after it
    cdef uint64_t idle_lsn      # all commits up to here were sent
    cdef uint64_t offered_lsn   # idle_lsn, to go in-band; 0 for none
    cdef uint64_t passed_lsn    # the last that went in-band

    cdef Buffer last            # the CopyData before, unless it was longer than that
    cdef size_t last_size
    cdef uint64_t record_lsn    # of the newest record of the open transaction

    cdef int refuse_double(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int refuse_step_back(self, uint8_t tag) except -1 nogil
    cdef int take_messages(self) except -1 nogil
    cdef int translate_next(self) except -1 nogil
    cdef int pass_message(self, uint8_t tag) except -1 nogil
    cdef bint is_before_start(self) noexcept nogil
    cdef int note_heartbeat(self) except -1 nogil
    cdef void note_idle(self, uint64_t wal_end) noexcept nogil
    cdef int take_setting(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_notice(self) except -1 nogil
    cdef int keep_error(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int make_room(self) except -1 nogil
    cdef int resize(self, size_t capacity) except -1 nogil
    cdef int use_openssl(self, dict functions, size_t address) except -1
    cdef int fill_encrypted(self) except -1 nogil
    cdef int fill_through_python(self) except -1 nogil
    cdef int fail_tls(self, int error, int number) except -1 nogil
    cdef int push_encrypted(self) except -1 nogil
