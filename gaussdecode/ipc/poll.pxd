"""Waiting for descriptors."""

from posix.time cimport timespec

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    enum:
        POLLIN
        POLLOUT
    int poll(pollfd *fds, unsigned long count, int timeout)
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *mask)
