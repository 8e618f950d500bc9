"""The cold half of `_cursor.pxd`: what a cursor raises. Never a byte of the message."""

from gaussdecode.errors import TruncatedError, WireError


cdef int fail_truncated(Cursor *cursor, size_t need) except -1 with gil:
    """Raise TruncatedError; cold, so that the readers stay small enough to inline."""
    raise TruncatedError(
        f"need {need} bytes, have {cursor.end - cursor.next}", cursor.next - cursor.head
    )


cdef int fail_wire(Cursor *cursor, const char *reason, size_t back) except -1 with gil:
    """Raise WireError at the byte `back` before the next one."""
    raise WireError(reason.decode("ascii"), cursor.next - cursor.head - back)
