"""Words of state that every process of the pipeline sees at once.

Given: nothing but the descriptor of a page. Promises: each word is read and written whole,
what was written before a word is seen by all who read the word, and nobody ever waits.
Refuses to know what the words mean; who writes which is said in `control.pxd`.

The memory is anonymous (`memfd_create`), inherited by descriptor, sealed in size. A word
has one writer, with one exception: `raise_to` may be called by several. A process that dies
leaves its words as they were; that is what the heartbeats are for.
"""

cimport cython
from libc.stdint cimport uint64_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from gaussdecode.ipc.atomics cimport add_fetch, load_acquire, raise_word, store_release

import fcntl
import os
import resource
from enum import IntEnum

from gaussdecode.errors import GaussDecodeError

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
DECODER_LIMIT = MAX_DECODERS


class Word(IntEnum):
    """Words written by main or by the reader."""

    DURABLE_LSN = WORD_DURABLE_LSN
    STOP_REQUESTED = WORD_STOP_REQUESTED
    FINISHED = WORD_FINISHED
    MAIN_HEARTBEAT_NS = WORD_MAIN_HEARTBEAT_NS
    DISK_WAIT = WORD_DISK_WAIT
    GO = WORD_GO
    READER_HEARTBEAT_NS = WORD_READER_HEARTBEAT_NS
    RECEIVED_BYTES = WORD_RECEIVED_BYTES
    RECEIVED_MESSAGES = WORD_RECEIVED_MESSAGES
    RECEIVED_LSN = WORD_RECEIVED_LSN
    SERVER_WAL_END = WORD_SERVER_WAL_END
    LAST_SERVER_TIME_US = WORD_LAST_SERVER_TIME_US
    CONFIRMED_LSN = WORD_CONFIRMED_LSN
    STATUS_SENT_COUNT = WORD_STATUS_SENT_COUNT
    STALLED_NS = WORD_STALLED_NS
    WAITED_NS = WORD_WAITED_NS
    BUSY_NS = WORD_BUSY_NS
    BATCHES = WORD_BATCHES
    RELATIONS = WORD_RELATIONS
    TRANSACTION_OPEN = WORD_TRANSACTION_OPEN
    LAST_RECEIVE_NS = WORD_LAST_RECEIVE_NS
    NOTICES = WORD_NOTICES
    HEARTBEATS = WORD_HEARTBEATS
    HEARTBEAT_LSN = WORD_HEARTBEAT_LSN
    HEARTBEAT_TIME_US = WORD_HEARTBEAT_TIME_US
    IDLE_LSN = WORD_IDLE_LSN
    PACE = WORD_PACE
    PACE_CHANGES = WORD_PACE_CHANGES
    PACE_TRIALS = WORD_PACE_TRIALS
    HEARTBEAT_FLUSHED_LSN = WORD_HEARTBEAT_FLUSHED_LSN
    PACE_RATE = WORD_PACE_RATE


class DecoderField(IntEnum):
    """Words of one decoder, counted from its first."""

    HEARTBEAT_NS = DECODER_HEARTBEAT_NS
    BATCHES = DECODER_BATCHES
    WIRE_BYTES = DECODER_WIRE_BYTES
    ROWS = DECODER_ROWS
    BUSY_NS = DECODER_BUSY_NS
    WAITED_INPUT_NS = DECODER_WAITED_INPUT_NS
    WAITED_OUTPUT_NS = DECODER_WAITED_OUTPUT_NS
    MISFITS = DECODER_MISFITS


def word_of_decoder(decoder_index, field):
    """Number of one decoder's word, for `Control.get` and its companions.

    Raises:
        IndexError: there is no such decoder or field.
    """
    if not 0 <= decoder_index < DECODER_LIMIT or not 0 <= field < DECODER_STRIDE:
        raise IndexError(f"no word {field} of decoder {decoder_index}")
    return DECODER_BASE + decoder_index * DECODER_STRIDE + field


cdef int fail_word(unsigned int word) except -1 with gil:
    raise IndexError(f"no control word {word}, there are {WORD_COUNT} or the block is closed")


@cython.final
cdef class Control:
    """A block of shared words; make it with `create` or `attach`."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.words != NULL:
            munmap(self.words, self.mapped)

    def __del__(self):
        self.close()

    @staticmethod
    def create():
        """Make a block of zeros.

        Raises:
            OSError: the kernel has no memory or no descriptor left.
        """
        cdef Control control = Control.__new__(Control)
        size = _size()
        fd = os.memfd_create("gaussdecode-control", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(fd, 0, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            control.map_memory(fd, size)
        except BaseException:
            os.close(fd)
            raise
        control.fd = fd
        return control

    @staticmethod
    def attach(int fd):
        """Map the block behind an inherited descriptor, which is ours from now on.

        Raises:
            GaussDecodeError: the descriptor is no control block of this build.
        """
        cdef Control control = Control.__new__(Control)
        size = _size()
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        if os.fstat(fd).st_size != size or seals & _SEALS != _SEALS:
            raise GaussDecodeError(f"descriptor {fd} is not a control block of this build")
        os.set_inheritable(fd, False)
        control.map_memory(fd, size)
        control.fd = fd
        return control

    cdef int map_memory(self, int fd, size_t size) except -1:
        cdef void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if memory == MAP_FAILED:
            raise OSError("cannot map the control block")
        self.words = <uint64_t *>memory
        self.mapped = size
        return 0

    cpdef uint64_t get(self, unsigned int word) except? 0x7FFFFFFF nogil:
        """Read a word."""
        if word >= WORD_COUNT or self.words == NULL:
            fail_word(word)
        return load_acquire(&self.words[word])

    cpdef int set(self, unsigned int word, uint64_t value) except -1 nogil:
        """Write a word; for its one writer."""
        if word >= WORD_COUNT or self.words == NULL:
            fail_word(word)
        store_release(&self.words[word], value)
        return 0

    cpdef uint64_t add(self, unsigned int word, uint64_t value) except? 0x7FFFFFFF nogil:
        """Add to a word; returns its new value."""
        if word >= WORD_COUNT or self.words == NULL:
            fail_word(word)
        return add_fetch(&self.words[word], value)

    cpdef uint64_t raise_to(self, unsigned int word, uint64_t value) except? 0x7FFFFFFF nogil:
        """Raise a word to `value` unless it is higher; returns its new value."""
        if word >= WORD_COUNT or self.words == NULL:
            fail_word(word)
        return raise_word(&self.words[word], value)

    def snapshot(self):
        """Every word of main and of the reader, by its name in lower case.

        The words are read one after another; they are not of one moment.
        """
        return {word.name.lower(): self.get(word) for word in Word}

    def decoder_snapshot(self, int decoder_index):
        """Every word of one decoder, by its name in lower case."""
        return {
            field.name.lower(): self.get(word_of_decoder(decoder_index, field))
            for field in DecoderField
        }

    def close(self):
        """Unmap the block and close its descriptor; other processes keep theirs."""
        if self.words != NULL:
            munmap(self.words, self.mapped)
            self.words = NULL
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _size():
    """Bytes of the block: all words, in whole pages."""
    page = resource.getpagesize()
    return -(-WORD_COUNT * 8 // page) * page
