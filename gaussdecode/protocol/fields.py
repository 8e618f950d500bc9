"""Read the fields of one message; every length is checked in one place."""

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.wire.encoding import UTF8, Encoding


class Fields:
    """A cursor over one message; every field goes through `take`."""

    def __init__(self, payload: bytes, encoding: Encoding = UTF8) -> None:
        self.payload = payload
        self.next = 0
        self.encoding = encoding

    @property
    def left(self) -> int:
        """How many bytes follow."""
        return len(self.payload) - self.next

    def take(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            TruncatedError: there are not so many.
        """
        if not 0 <= size <= self.left:
            raise TruncatedError(f"need {size} bytes, have {self.left}", self.next)
        self.next += size
        return self.payload[self.next - size : self.next]

    def number(self, size: int, *, signed: bool = False) -> int:
        """An integer of so many bytes."""
        return int.from_bytes(self.take(size), "big", signed=signed)

    def string(self) -> bytes:
        """Bytes up to a NUL, which is stepped over."""
        nul = self.payload.find(b"\0", self.next)
        if nul < 0:
            self.take(self.left + 1)
        return self.take(nul + 1 - self.next)[:-1]

    def text(self) -> str:
        """A name."""
        return self.encoding.name_of(self.string())

    def flags(self, known: int, what: str) -> int:
        """A byte of which only these bits are known."""
        flags = self.number(1)
        if flags & ~known:
            raise self.fail(f"unknown flags of a {what}")
        return flags

    def change_xid(self) -> int:
        """Whose change it is, in a block of a streamed transaction."""
        xid = self.number(4)
        if xid == 0:
            raise self.fail("change of transaction 0", 4)
        return xid

    def end(self) -> None:
        """See that nothing follows."""
        if self.left:
            raise self.fail(f"{self.left} bytes after the end of the message", 0)

    def fail(self, reason: str, back: int = 1) -> WireError:
        """The error of the byte so far back."""
        return WireError(reason, self.next - back)
