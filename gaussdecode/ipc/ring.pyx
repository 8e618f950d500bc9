"""A bounded queue of byte strings from one process to one other.

Given: messages of any size. Promises: each arrives whole, once and in order, lying in one
piece at an address that is a multiple of 64; the memory is bounded and was there at the
start; the other side's death is noticed. Refuses to know what the bytes mean, and never
blocks except in the two `wait_` methods.

**Memory.** One page of header and the data area, in a `memfd_create` file: no name, nothing
in /dev/shm, gone with the last process. It is allocated before first use, so that no store
can meet a missing page, and sealed, so that nobody can shrink it under a mapping. The data
area is mapped twice, one mapping after the other; what begins near its end goes on in the
second mapping, which is its beginning again. So every piece is contiguous.

**Positions.** `head` and `tail` count bytes since the start and never wrap; modulo the
capacity they are places. The producer alone writes `head`, the consumer alone `tail`, each
keeps its own copy outside the shared memory and believes that one. What it reads of the
other's is checked against it before use: whatever a damaged header says, no access leaves
the mapping. `entries_in - entries_out` is the length; both limits, bytes and entries, hold.

**Entries.** A message up to a quarter of the ring is one piece. A longer one goes through in
pieces of that size (FIRST, MORE, ..., LAST) and is put together in memory of the consumer,
who frees the room of each as soon as it has copied it. So a message needs room for one piece
at a time, never for all of it: a ring of 64 KiB and one entry passes gigabytes. The bytes of a
held message belong to the consumer until `release`, then to the producer. The consumer's
private memory is the largest split message; above the capacity it is given back at once.

**Order of stores.** The producer copies the bytes, then stores `head` (release), then writes a
token into the data pipe. The consumer loads `head` (acquire) and then reads bytes; it stores
`entries_out` and `tail` (release) after its last look at them.

**No lost wake-up.** Tokens only say "look again"; the words say what is true. A full pipe needs
no further token, for it is readable.

- Data: the consumer sees an empty ring, empties the data pipe, and *looks once more* before it
  says 0. A message shown before the second look is seen by it. One shown later writes
  its token later, after the pipe was emptied; then `data_fd` is readable.
- Space: the producer sees a full ring, empties the space pipe, stores `producer_waits` = 1,
  fence, and *looks once more* before it says 0. The consumer stores `tail`, fence, and looks
  at `producer_waits`. One of the two must see the other's store (each stores first and loads
  second, with a full fence between). If the consumer sees the flag, it takes it back and writes
  a token, and the producer, who emptied the pipe before it set the flag, finds it. If the room
  is still too small, the next call sets the flag again.

  The order *empty, set, look* matters. With *set, empty, look* the consumer could take the flag
  and write a token for too little room between the first two; the token would be lost, no flag
  would be set, and the producer would sleep for ever beside an emptying ring.

**Death.** Each pipe has one writer and one reader, once the creator has closed its ends. When the
producer dies, the kernel closes its end of the data pipe: `data_fd` becomes readable, and
reading it gives the end of file. The consumer looks at `head` *after* that, hands out what is
complete, and only then says -1. Bytes copied without a stored `head` do not exist; a split
message without its LAST is dropped. When the consumer dies, the data token meets EPIPE, or
the space pipe its end of file: `put` says -1. (Python ignores SIGPIPE at start; so must any host.)
Both stay -1 for ever: a ring is not repaired, it is made anew.

**Deadlock.** A ring waits for nobody else's lock, there is none. A producer waits for the
consumer of its own ring and for nobody else; the consumer of a split message waits for the
producer while it holds no room. So rings in a chain can only wait on the last consumer.

**Threads.** Each side is for one thread at a time. `length`, `used_bytes` and `stats` may be
called from any thread and process that holds the ring, `close` only when no other call runs.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, EPIPE, errno
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.mman cimport (
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_FIXED,
    MAP_PRIVATE,
    MAP_SHARED,
    PROT_NONE,
    PROT_READ,
    PROT_WRITE,
    mmap,
    munmap,
)

from gaussdecode.ipc.clock cimport monotonic_ns
from gaussdecode.ipc.poll cimport POLLIN, poll, pollfd
from posix.unistd cimport read, write

from gaussdecode.wire._layout cimport MOVED_BYTES, give_back
from gaussdecode.ipc.atomics cimport exchange, fence, load_acquire, store_release

import fcntl
import os
import resource
import time

from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno

from gaussdecode.errors import ConfigError, GaussDecodeError

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_PAGE = resource.getpagesize()
_LONG_WAIT_MS = 60_000      # of one poll; the caller looks at its deadline after each
_MAX_CAPACITY = 1 << 40     # arbitrary; far below where the double mapping could overflow


cdef int fail_damaged(const char *what) except -1 with gil:
    """Raise; cold. The numbers in the header no longer fit what this side did."""
    raise GaussDecodeError(
        f"shared ring is damaged: {what.decode()}; "
        "another process wrote into it, restart the daemon"
    )


cdef int fail_use(const char *what) except -1 with gil:
    raise GaussDecodeError(f"wrong use of a ring: {what.decode()}")


cdef int fail_memory(uint64_t size) except -1 with gil:
    raise MemoryError(f"no memory to put a message of {size} bytes together")


cdef int fail_system() except -1 with gil:
    PyErr_SetFromErrno(OSError)
    return -1


cdef inline uint64_t room_of(uint64_t size) noexcept nogil:
    """Bytes a piece takes in the ring; `size` is far below the overflow."""
    return PIECE_BYTES + ((size + PIECE_BYTES - 1) & ~<uint64_t>(PIECE_BYTES - 1))


cdef int send_token(int fd) except -1 nogil:
    """Write one byte. Returns 1, or 0 when nobody can ever read it."""
    cdef char token = 1
    while write(fd, &token, 1) < 0:
        if errno == EAGAIN:     # full, so it is readable
            return 1
        if errno == EPIPE:
            return 0
        if errno != EINTR:
            fail_system()
    return 1


cdef int wait_readable(int fd, int timeout_ms) except -1 nogil:
    """Wait for bytes or the end of file. Returns 0 when the time is over or a signal came."""
    cdef pollfd entry
    entry.fd = fd
    entry.events = POLLIN
    entry.revents = 0
    if poll(&entry, 1, timeout_ms) >= 0:
        return entry.revents != 0
    if errno != EINTR:
        fail_system()
    return 0


@cython.final
cdef class Ring:
    """One end of a queue, or both; make it with `create`, `attach_producer` or `attach_consumer`.

    Attributes:
        capacity_bytes: size of the data area, whole pages.
        max_entries: most pieces that may wait.
        memory_fd: the shared memory, or -1 after `close`.
        data_fd: consumer's; readable when `get` may give something. Poll it after a 0.
        space_fd: producer's; readable when `put` may go on. Poll it after a 0.
        consumer_gone: a `put` met the consumer's death.
        producer_gone: a `get` met the producer's death; messages may be left.
    """

    def __cinit__(self):
        self.memory_fd = self.data_fd = self.space_fd = -1
        self.data_token_fd = self.space_token_fd = -1

    def __dealloc__(self):
        if self.header != NULL:
            munmap(self.header, self.mapped)
        free(self.joined)

    def __del__(self):
        self.close()

    @staticmethod
    def create(capacity_bytes, max_entries):
        """Make a ring; the caller holds both ends until it closes one.

        Args:
            capacity_bytes: size of the data area, rounded up to whole pages.
            max_entries: most pieces that may wait, at least 1.

        Raises:
            ConfigError: a number out of range, or not enough memory; names ring-bytes.
        """
        cdef Ring ring = Ring.__new__(Ring)
        if not 1 <= capacity_bytes <= _MAX_CAPACITY:
            raise ConfigError(f"ring-bytes must be 1 to {_MAX_CAPACITY}, got {capacity_bytes}")
        if not 1 <= max_entries <= 0xFFFFFFFF:
            raise ConfigError(f"a ring needs room for at least one entry, got {max_entries}")
        capacity = -(-capacity_bytes // _PAGE) * _PAGE
        ring.memory_fd = os.memfd_create("gaussdecode-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _allocate(ring.memory_fd, _PAGE + capacity)
        fcntl.fcntl(ring.memory_fd, fcntl.F_ADD_SEALS, _SEALS)
        ring.map_memory(ring.memory_fd, capacity)
        ring.header.magic = RING_MAGIC
        ring.header.capacity = capacity
        ring.header.max_entries = max_entries
        ring.start()
        ring.data_fd, ring.data_token_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ring.space_fd, ring.space_token_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        return ring

    @staticmethod
    def attach_producer(fds):
        """Take the producer's end over; the descriptors are the ring's from now on.

        Args:
            fds: what `producer_fds` gave, inherited from the creator.

        Raises:
            GaussDecodeError: the descriptors are not those of a ring of this build.
        """
        cdef Ring ring = _attach(fds)
        ring.data_token_fd, ring.space_fd = _keep(fds[1]), _keep(fds[2])
        return ring

    @staticmethod
    def attach_consumer(fds):
        """Take the consumer's end over; as `attach_producer`, with `consumer_fds`."""
        cdef Ring ring = _attach(fds)
        ring.data_fd, ring.space_token_fd = _keep(fds[1]), _keep(fds[2])
        return ring

    cdef int map_memory(self, int fd, uint64_t capacity) except -1:
        """Map header and data area, and the data area again after them."""
        cdef size_t page = _PAGE
        cdef size_t size = page + 2 * capacity
        cdef uint8_t *base = <uint8_t *>mmap(
            NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
        )
        if base == MAP_FAILED:
            raise ConfigError(f"no address space for a ring of {capacity} bytes; lower ring-bytes")
        self.header = <RingHeader *>base
        self.mapped = size
        if (
            mmap(base, page + capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0)
            == MAP_FAILED
            or mmap(
                base + page + capacity, capacity, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED, fd, page,
            ) == MAP_FAILED
        ):
            raise ConfigError(f"cannot map a ring of {capacity} bytes; lower ring-bytes")
        self.ring = base + page
        self.capacity_bytes = capacity
        return 0

    cdef int start(self) except -1:
        """Take over limits and positions; from here the private copies are the truth."""
        cdef RingHeader *header = self.header
        if (
            header.magic != RING_MAGIC
            or header.capacity != self.capacity_bytes
            or not 1 <= header.max_entries <= 0xFFFFFFFF
        ):
            fail_damaged("its first line is not that of a ring of this build")
        self.max_entries = header.max_entries
        self.piece_limit = (self.capacity_bytes // SHARE) // PIECE_BYTES * PIECE_BYTES - PIECE_BYTES
        self.tail = load_acquire(&header.tail)
        self.head = load_acquire(&header.head)
        self.entries_out = load_acquire(&header.entries_out)
        self.entries_in = load_acquire(&header.entries_in)
        if (self.head | self.tail) % PIECE_BYTES or self.head - self.tail > self.capacity_bytes:
            fail_damaged("its positions are out of range")
        return 0

    cdef int find_room(self, uint64_t need) except -1 nogil:
        """Is there room for one piece of `need` bytes?"""
        cdef uint64_t used = self.head - load_acquire(&self.header.tail)
        cdef uint64_t waiting = self.entries_in - load_acquire(&self.header.entries_out)
        if used > self.capacity_bytes:
            fail_damaged("its tail is out of range")
        if waiting > self.max_entries:
            fail_damaged("its count of taken entries is out of range")
        return used + need <= self.capacity_bytes and waiting < self.max_entries

    cdef int await_room(self, uint64_t need) except -2 nogil:
        """Ask for a token, and look once more. Returns 1 room, 0 none yet, -1 consumer gone."""
        if self.check_end(self.space_fd):
            self.consumer_gone = True
            return -1
        store_release(&self.header.producer_waits, 1)
        fence()
        if self.find_room(need):
            store_release(&self.header.producer_waits, 0)
            return 1
        store_release(&self.header.full_count, self.header.full_count + 1)
        return 0

    cdef int check_end(self, int fd) except -1 nogil:
        """Empty a pipe of tokens. Returns 1 at the end of file, else 0.

        What is left of more than 4096 tokens only wakes once too often.
        """
        cdef char tokens[4096]
        cdef Py_ssize_t count = read(fd, tokens, sizeof(tokens))
        if count < 0 and errno != EAGAIN and errno != EINTR:
            fail_system()
        return count == 0

    cdef int write_piece(self, const uint8_t *data, uint64_t total, uint64_t part) except -2 nogil:
        """Store one piece and show it. Returns 1, or -1 when the consumer is gone."""
        cdef RingHeader *header = self.header
        cdef uint8_t *place = self.ring + self.head % self.capacity_bytes
        cdef Piece *piece = <Piece *>place
        cdef uint64_t used
        piece.magic = PIECE_MAGIC
        piece.entry = self.entries_in
        piece.size = part
        piece.offset = self.put_done
        piece.total = total
        if part == total:
            piece.kind = PIECE_WHOLE
        elif self.put_done == 0:
            piece.kind = PIECE_FIRST
        elif self.put_done + part < total:
            piece.kind = PIECE_MORE
        else:
            piece.kind = PIECE_LAST
        if part:
            memcpy(place + PIECE_BYTES, data + self.put_done, part)
        if self.put_moves:
            give_back(data + self.put_done, part)
        self.put_done += part
        self.head += room_of(part)
        self.entries_in += 1
        used = self.head - load_acquire(&header.tail)
        if header.peak_bytes < used <= self.capacity_bytes:
            store_release(&header.peak_bytes, used)
        store_release(&header.bytes_in, header.bytes_in + part)
        store_release(&header.entries_in, self.entries_in)
        store_release(&header.head, self.head)
        if not send_token(self.data_token_fd):
            self.consumer_gone = True
            return -1
        return 1

    cdef int put(self, const uint8_t *data, size_t size, bint moves=False) except -2 nogil:
        """Store a message, or as much of it as there is room for; see ring.pxd."""
        cdef uint64_t part
        cdef int state
        if self.header == NULL or self.data_token_fd < 0 or self.space_fd < 0:
            fail_use("put without the producer's end")
        if self.put_open and size != self.put_size:
            fail_use("put of another message before the first was stored whole")
        if self.consumer_gone:
            return -1
        self.put_open = True
        self.put_size = size
        self.put_moves = moves and size >= MOVED_BYTES
        while True:
            part = size - self.put_done
            if part > self.piece_limit:
                part = self.piece_limit
            if not self.find_room(room_of(part)):
                state = self.await_room(room_of(part))
                if state != 1:
                    return state
            if self.write_piece(data, size, part) < 0:
                return -1
            if self.put_done == size:
                self.put_open = False
                self.put_done = 0
                return 1

    cdef int read_piece(self, uint64_t head, Piece *piece) except -1 nogil:
        """Copy the header of the next piece and check every number in it."""
        cdef uint64_t used = head - self.tail
        if used > self.capacity_bytes or used < PIECE_BYTES or used % PIECE_BYTES:
            fail_damaged("its head is out of range")
        memcpy(piece, self.ring + self.tail % self.capacity_bytes, sizeof(Piece))
        if piece.magic != PIECE_MAGIC or piece.entry != self.entries_out:
            fail_damaged("no piece begins where the next one should")
        if piece.size > self.piece_limit or room_of(piece.size) > used:
            fail_damaged("a piece is longer than what was stored")
        if piece.offset != self.joined_size:
            fail_damaged("a piece does not follow the one before it")
        if piece.kind == PIECE_WHOLE or piece.kind == PIECE_FIRST:
            if self.joined_total:
                fail_damaged("a message begins inside another")
        elif self.joined_total == 0 or piece.total != self.joined_total:
            fail_damaged("a piece belongs to another message")
        if piece.kind == PIECE_FIRST or piece.kind == PIECE_MORE:
            if piece.size == 0 or piece.size >= piece.total - piece.offset:
                fail_damaged("a piece is longer than its message")
        elif piece.kind > PIECE_LAST or piece.size != piece.total - piece.offset:
            fail_damaged("a message ends too early or too late")
        return 0

    cdef int join_piece(self, const Piece *piece) except -1 nogil:
        """Copy a piece after the ones before it, and free its room."""
        if piece.kind == PIECE_FIRST and piece.total > self.joined_capacity:
            free(self.joined)
            self.joined_capacity = 0
            self.joined = <uint8_t *>malloc(piece.total)
            if self.joined == NULL:
                fail_memory(piece.total)
            self.joined_capacity = piece.total
        if piece.offset + piece.size > self.joined_capacity:
            fail_damaged("a piece is longer than its message")
        memcpy(
            self.joined + piece.offset,
            self.ring + self.tail % self.capacity_bytes + PIECE_BYTES,
            piece.size,
        )
        self.joined_total = piece.total
        self.joined_size = piece.offset + piece.size
        return self.free_room(room_of(piece.size))

    cdef int free_room(self, uint64_t room) except -1 nogil:
        """Give the oldest piece's room to the producer; wake it if it asked."""
        cdef RingHeader *header = self.header
        self.tail += room
        self.entries_out += 1
        store_release(&header.entries_out, self.entries_out)
        store_release(&header.tail, self.tail)
        fence()
        if load_acquire(&header.producer_waits) and exchange(&header.producer_waits, 0):
            send_token(self.space_token_fd)
        return 0

    cdef int get(self, const uint8_t **data, size_t *size) except -2 nogil:
        """Give the next message; the same again until `release`. See ring.pxd."""
        cdef Piece piece
        cdef uint64_t head
        cdef bint looked = False
        if self.header == NULL or self.data_fd < 0 or self.space_token_fd < 0:
            fail_use("get without the consumer's end")
        while not self.holding:
            head = load_acquire(&self.header.head)
            if head == self.tail:
                if self.producer_gone:
                    self.joined_total = self.joined_size = 0
                    return -1
                if looked:
                    store_release(&self.header.empty_count, self.header.empty_count + 1)
                    return 0
                looked = True
                self.producer_gone = self.check_end(self.data_fd)
                continue
            looked = False
            self.read_piece(head, &piece)
            if piece.kind == PIECE_WHOLE:
                self.held = self.ring + self.tail % self.capacity_bytes + PIECE_BYTES
                self.held_size = piece.size
                self.held_room = room_of(piece.size)
                self.holding = True
            else:
                self.join_piece(&piece)
                if piece.kind == PIECE_LAST:
                    self.held = self.joined
                    self.held_size = piece.total
                    self.held_room = 0
                    self.holding = True
                    self.joined_total = self.joined_size = 0
        data[0] = self.held
        size[0] = self.held_size
        return 1

    cdef int release(self) except -1 nogil:
        """Give the message of the last `get` back."""
        if not self.holding or self.header == NULL:
            fail_use("release without a message")
        self.holding = False
        self.held = NULL
        if self.held_room:
            return self.free_room(self.held_room)
        if self.joined_capacity > self.capacity_bytes:
            free(self.joined)
            self.joined = NULL
            self.joined_capacity = 0
        return 0

    cdef int wait_data(self, int timeout_ms) except -1 nogil:
        """Wait until `get` may give something, or the producer is gone; see ring.pxd."""
        cdef uint64_t began
        cdef int ready
        if self.header == NULL or self.data_fd < 0:
            fail_use("wait_data without the consumer's end")
        if self.holding or load_acquire(&self.header.head) != self.tail:
            return 1
        began = monotonic_ns()
        ready = wait_readable(self.data_fd, timeout_ms)
        store_release(
            &self.header.data_wait_ns, self.header.data_wait_ns + monotonic_ns() - began
        )
        return ready

    cdef int wait_space(self, int timeout_ms) except -1 nogil:
        """Wait, after a `put` that said 0, until it may go on; see ring.pxd."""
        cdef uint64_t began
        cdef int ready
        if self.header == NULL or self.space_fd < 0:
            fail_use("wait_space without the producer's end")
        began = monotonic_ns()
        ready = wait_readable(self.space_fd, timeout_ms)
        store_release(
            &self.header.space_wait_ns, self.header.space_wait_ns + monotonic_ns() - began
        )
        return ready

    def producer_fds(self):
        """Descriptors for `Popen(pass_fds=...)` and `attach_producer`."""
        return self.memory_fd, self.data_token_fd, self.space_fd

    def consumer_fds(self):
        """Descriptors for `Popen(pass_fds=...)` and `attach_consumer`."""
        return self.memory_fd, self.data_fd, self.space_token_fd

    def close_producer_side(self):
        """Give the producer's end up; the end of file works only after that."""
        _close(self.data_token_fd)
        _close(self.space_fd)
        self.data_token_fd = self.space_fd = -1

    def close_consumer_side(self):
        """Give the consumer's end up; its death is noticed only after that."""
        _close(self.data_fd)
        _close(self.space_token_fd)
        self.data_fd = self.space_token_fd = -1

    def close(self):
        """Unmap the memory and close every descriptor of this process.

        Bytes that `get` gave are gone with it, unless they were copied.
        """
        self.close_producer_side()
        self.close_consumer_side()
        _close(self.memory_fd)
        self.memory_fd = -1
        self.holding = False
        if self.header != NULL:
            munmap(self.header, self.mapped)
            self.header = NULL
            self.ring = NULL

    def put_bytes(self, data, timeout=None):
        """Store a message, waiting for room; for tests and slow paths.

        Args:
            data: bytes, or what gives a contiguous view of bytes.
            timeout: seconds, None for ever.

        Returns:
            False when the time was over; call again with the same data.

        Raises:
            BrokenPipeError: the consumer is gone.
        """
        cdef const uint8_t[::1] view = data
        cdef size_t size = view.shape[0]
        cdef const uint8_t *start = &view[0] if size else NULL
        cdef int state
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with nogil:
                state = self.put(start, size)
            if state == 1:
                return True
            if state == -1:
                raise BrokenPipeError("the consumer of the ring is gone")
            if not _wait(self, False, deadline):
                return False

    def get_bytes(self, timeout=None):
        """Take a message, waiting for one; for tests and slow paths.

        Args:
            timeout: seconds, None for ever.

        Returns:
            A copy of the message, or None when the time was over.

        Raises:
            EOFError: the producer is gone and all it stored was taken.
        """
        cdef const uint8_t *start = NULL
        cdef size_t size = 0
        cdef int state
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with nogil:
                state = self.get(&start, &size)
            if state == 1:
                message = start[:size] if size else b""
                self.release()
                return message
            if state == -1:
                raise EOFError("the producer of the ring is gone")
            if not _wait(self, True, deadline):
                return None

    def length(self):
        """Pieces that wait, or are held; from the shared words, so any process may ask."""
        cdef uint64_t taken
        if self.header == NULL:
            return 0
        taken = load_acquire(&self.header.entries_out)
        return min(load_acquire(&self.header.entries_in) - taken, self.max_entries)

    def used_bytes(self):
        """Room they take, headers and padding included."""
        cdef uint64_t tail
        if self.header == NULL:
            return 0
        tail = load_acquire(&self.header.tail)
        return min(load_acquire(&self.header.head) - tail, self.capacity_bytes)

    def stats(self):
        """Counters since the start, read one after another."""
        if self.header == NULL:
            raise GaussDecodeError("wrong use of a ring: stats after close")
        return {
            "entries_in": load_acquire(&self.header.entries_in),
            "entries_out": load_acquire(&self.header.entries_out),
            "bytes_in": load_acquire(&self.header.bytes_in),
            "peak_bytes": load_acquire(&self.header.peak_bytes),
            "full_count": load_acquire(&self.header.full_count),
            "empty_count": load_acquire(&self.header.empty_count),
            "space_wait_ns": load_acquire(&self.header.space_wait_ns),
            "data_wait_ns": load_acquire(&self.header.data_wait_ns),
        }


cdef bint _wait(Ring ring, bint for_data, object deadline) except -1:
    """Wait for a token until the deadline; False when it has passed. Runs signal handlers."""
    cdef int timeout_ms = -1
    if deadline is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        timeout_ms = min(_LONG_WAIT_MS, int(left * 1000) + 1)
    with nogil:
        if for_data:
            ring.wait_data(timeout_ms)
        else:
            ring.wait_space(timeout_ms)
    PyErr_CheckSignals()
    return True


cdef Ring _attach(fds):
    """Map the memory behind inherited descriptors."""
    cdef Ring ring = Ring.__new__(Ring)
    memory_fd = fds[0]
    size = os.fstat(memory_fd).st_size
    try:
        sealed = fcntl.fcntl(memory_fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        sealed = False
    if not sealed or size < 2 * _PAGE or size % _PAGE or size - _PAGE > _MAX_CAPACITY:
        raise GaussDecodeError(f"descriptor {memory_fd} is not the memory of a ring")
    ring.map_memory(memory_fd, size - _PAGE)
    ring.start()
    ring.memory_fd = _keep(memory_fd)
    return ring


def _keep(fd):
    """Make an inherited descriptor ours alone: a further child must not hold the pipe open."""
    os.set_inheritable(fd, False)
    return fd


def _close(fd):
    if fd >= 0:
        os.close(fd)


def _allocate(fd, size):
    """Give the file its pages now, or say that there are none.

    The kernel would rather kill a process than refuse a page, so ask for what it has first.
    """
    free_bytes = _available_memory()
    if size > free_bytes:
        raise ConfigError(
            f"no memory for a ring of {size} bytes, {free_bytes} are available; lower ring-bytes"
        )
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        raise ConfigError(
            f"no memory for a ring of {size} bytes ({error.strerror}); lower ring-bytes"
        ) from error


def _available_memory():
    """Bytes the kernel could give out without swapping; all there are when it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass    # no /proc: posix_fallocate decides
    return _MAX_CAPACITY + _PAGE
