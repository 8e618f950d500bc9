"""Receive a PostgreSQL stream through libpq and drop it: what receiving alone costs.

The same functions of the same libpq as our reader's, called in the same order: with `little_bytes`
or more in the socket read on; with less, nap for `nap_us` first, so that the server can send
more; with nothing, sleep until the socket is readable. A gathering nap ends as soon as
`little_bytes` are there (SO_RCVLOWAT). The reader's `Pacer` chooses between gathering and naps.
Feedback confirms what was received. Nothing is decoded or kept.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from gaussdecode.source._pace cimport Pacer
from gaussdecode.source._libpq cimport (
    Libpq,
    consume_input_t,
    flush_t,
    freemem_t,
    get_copy_data_t,
    put_copy_data_t,
)

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *mask)
    enum:
        POLLIN

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)
    enum:
        FIONREAD

cdef extern from "<sys/socket.h>" nogil:
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)
    enum:
        SOL_SOCKET
        SO_RCVLOWAT

cdef enum:
    STATUS_SIZE = 34            # 'r', three positions, client time, reply wanted
    STATUS_US = 5000000         # arbitrary, well inside wal_sender_timeout
    LOOK_US = 100000            # longest sleep
    GATHER_US = 3000            # these as in source/_receive.pyx
    GATHERED_BYTES = 32768
    RESTED_BYTES = 16384
    VAIN_READS = 2
    SMALL_BYTES = 4096
    SMALL_READS = 8
    SHORT_BYTES = 131072
    DRAINED_TENTHS = 7          # of what waits, without headers of messages and records

ctypedef int (*has_pending_t)(const void *ssl) noexcept nogil

cdef struct Pace:
    int nap_us
    int little_bytes
    bint is_gathering
    bint is_narrow              # the window closes in each nap: read to the end
    int small_reads             # that brought little in a row, since the last nap
    bint is_flowing             # something arrived in the last nap
    uint64_t drain_until        # read on until so many bytes have come,
    uint64_t last_bytes         # as long as that makes these others
    int last_waiting
    bint is_short               # TLS reads ahead, and the last nap brought so little
    bint has_tail               # that the rest of it is taken by one read more
    void *ssl
    has_pending_t has_pending
    uint64_t hidden_bytes
    unsigned int vain_reads

cdef struct Counts:
    uint64_t messages
    uint64_t bytes
    uint64_t reads
    uint64_t naps
    uint64_t last_lsn


def receive(owner not None, size_t connection, dict functions not None, int socket_fd,
            uint64_t end_lsn, Pacer pacer not None, size_t ssl, size_t has_pending,
            bint is_narrow):
    """Take and drop everything up to a position.

    Args:
        owner: kept alive meanwhile.
        connection: address of the ``PGconn``, in CopyBoth and non-blocking.
        functions: addresses by name, from `source.postgresql.libpq`.
        socket_fd: its socket.
        end_lsn: the first frame at or after it ends the loop.
        pacer: chooses length and kind of the naps again and again.
        ssl: address of an ``SSL`` that reads ahead; 0 for none.
        has_pending: address of SSL_has_pending of its library.
        is_narrow: the pacer's naps are followed by reading to the end.

    Returns:
        Counts of messages, bytes, reads and naps.

    Raises:
        ConnectionError: the stream ended before the position.
    """
    cdef Libpq pq
    cdef Pace pace
    cdef Counts counts
    cdef bint is_whole
    pq.connection = <void *>connection
    pq.get_copy_data = <get_copy_data_t><size_t>functions["PQgetCopyData"]
    pq.consume_input = <consume_input_t><size_t>functions["PQconsumeInput"]
    pq.put_copy_data = <put_copy_data_t><size_t>functions["PQputCopyData"]
    pq.flush = <flush_t><size_t>functions["PQflush"]
    pq.freemem = <freemem_t><size_t>functions["PQfreemem"]
    pace.is_narrow = is_narrow
    pace.ssl = <void *>ssl
    pace.has_pending = <has_pending_t>has_pending
    pace.hidden_bytes = 0
    pace.vain_reads = 0
    pace.is_flowing = False
    pace.small_reads = 0
    pace.drain_until = pace.last_bytes = 0
    pace.last_waiting = 0
    pace.is_short = pace.has_tail = False
    counts.messages = counts.bytes = counts.reads = counts.naps = counts.last_lsn = 0
    is_whole = run(&pq, socket_fd, end_lsn, &pace, &counts, pacer)
    if not is_whole:
        raise ConnectionError("the stream ended too early")
    return {"messages": counts.messages, "bytes": counts.bytes, "reads": counts.reads,
            "naps": counts.naps}


cdef bint run(
    Libpq *pq, int fd, uint64_t end_lsn, Pace *pace, Counts *counts, Pacer pacer
) noexcept:
    """Whether the position was reached."""
    cdef int64_t idle_us, status_us = now_us()
    cdef char *buffer = NULL
    cdef int size
    while counts.last_lsn < end_lsn:
        size = pq.get_copy_data(pq.connection, &buffer, 1)
        if size > 0:
            note(<const uint8_t *>buffer, size, counts)
            pq.freemem(buffer)
        elif size < 0:
            return False
        else:
            if hides_more(pace, counts):
                counts.reads += 1
                if not pq.consume_input(pq.connection):
                    return False
                continue
            if now_us() - status_us >= STATUS_US:
                confirm(pq, counts.last_lsn)
                status_us = now_us()
            choose(pacer, pace, counts)
            idle_us = await_input(fd, pace, counts)
            if idle_us:
                pacer.pause(idle_us)
            counts.reads += 1
            if not pq.consume_input(pq.connection):
                return False
    confirm(pq, end_lsn)
    return True


cdef void note(const uint8_t *frame, int size, Counts *counts) noexcept nogil:
    """Count a frame, and see how far it is: XLogData and keepalives begin with a position."""
    cdef uint64_t lsn = 0
    cdef int i
    counts.messages += 1
    counts.bytes += size
    if size < 9:
        return
    for i in range(1, 9):
        lsn = lsn << 8 | frame[i]
    if lsn > counts.last_lsn:
        counts.last_lsn = lsn


cdef bint hides_more(Pace *pace, const Counts *counts) noexcept nogil:
    """As `Receiver.hides_more` does it."""
    if pace.ssl == NULL or not pace.has_pending(pace.ssl):
        return False
    if counts.bytes != pace.hidden_bytes:
        pace.hidden_bytes = counts.bytes
        pace.vain_reads = 0
    pace.vain_reads += 1
    return pace.vain_reads <= VAIN_READS


cdef void choose(Pacer pacer, Pace *pace, const Counts *counts) noexcept:
    """Do as the pacer says."""
    cdef int64_t rest_us
    pacer.note(now_us(), counts.bytes, 0)
    rest_us = pacer.rest_us()
    pace.is_gathering = rest_us == 0
    pace.nap_us = <int>rest_us if rest_us else GATHER_US
    pace.little_bytes = GATHERED_BYTES
    if rest_us:
        pace.little_bytes = 1 if pace.is_narrow else RESTED_BYTES


cdef int64_t await_input(int fd, Pace *pace, Counts *counts) noexcept nogil:
    """As `Receiver.await_input` does it; for how many microseconds there was nothing."""
    cdef int waiting = waiting_bytes(fd)
    cdef int64_t before_us, idle_us = 0
    if pace.is_narrow and not pace.is_gathering:
        pace.small_reads = pace.small_reads + 1 if waiting < SMALL_BYTES else 0
        if pace.small_reads > SMALL_READS:
            pace.little_bytes = RESTED_BYTES
    if waiting >= pace.little_bytes:
        pace.has_tail = pace.is_short
        return 0
    if waiting and pace.has_tail:
        pace.has_tail = False
        return 0
    if waiting and counts.bytes < pace.drain_until and (
        waiting != pace.last_waiting or counts.bytes != pace.last_bytes
    ):
        pace.last_waiting = waiting
        pace.last_bytes = counts.bytes
        return 0
    if waiting == 0 and not pace.is_flowing:
        before_us = now_us()
        rest(fd, LOOK_US)
        idle_us = now_us() - before_us
        waiting = waiting_bytes(fd)
    if waiting >= pace.little_bytes or (waiting == 0 and not pace.is_flowing):
        return idle_us
    counts.naps += 1
    if pace.is_gathering:
        gather(fd, pace)
    else:
        rest(-1, pace.nap_us)
    waiting = waiting_bytes(fd)
    pace.small_reads = 0
    pace.is_flowing = waiting > 0
    pace.is_short = pace.ssl != NULL and waiting < SHORT_BYTES
    pace.drain_until = counts.bytes + waiting * DRAINED_TENTHS // 10
    return idle_us


cdef void gather(int fd, Pace *pace) noexcept nogil:
    """Sleep until enough is there; while something comes, the next sleep is such a one, too."""
    wake_at(fd, pace.little_bytes)
    rest(fd, pace.nap_us)
    wake_at(fd, 1)


cdef int waiting_bytes(int fd) noexcept nogil:
    cdef int count = 0
    return count if ioctl(fd, FIONREAD, &count) >= 0 else 0


cdef void wake_at(int fd, int count) noexcept nogil:
    """Have the socket count as readable from so many bytes on."""
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof(count))


cdef void rest(int fd, int64_t limit_us) noexcept nogil:
    """Wait for a descriptor (or none)."""
    cdef pollfd poll
    cdef timespec timeout
    poll.fd = fd
    poll.events = POLLIN
    poll.revents = 0
    timeout.tv_sec = limit_us // 1000000
    timeout.tv_nsec = limit_us % 1000000 * 1000
    ppoll(&poll, 0 if fd < 0 else 1, &timeout, NULL)


cdef void confirm(Libpq *pq, uint64_t lsn) noexcept nogil:
    """Send a status: everything up to here is written and flushed."""
    cdef uint8_t[STATUS_SIZE] message
    cdef int i
    for i in range(STATUS_SIZE):
        message[i] = 0
    message[0] = c"r"
    for i in range(24):
        message[1 + i] = <uint8_t>(lsn >> (56 - 8 * (i % 8)))
    pq.put_copy_data(pq.connection, <const char *>message, STATUS_SIZE)
    pq.flush(pq.connection)


cdef int64_t now_us() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000
