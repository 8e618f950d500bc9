"""Read and write messages of the front-end/back-end protocol 3, from the server's side.

Nothing here does I/O. Lengths are compared with a limit before anything is stored. A body is read through
`Body`, whose steps are checked; what is wrong raises `ServeError` with SQLSTATE 08P01.

    startup        length i32, protocol i32, (name NUL, value NUL)*, NUL        no type
    message        type u8, length i32 (of itself and the body), body
"""

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from gaussdecode.serve.errors import ServeError

SSL_REQUEST: Final = 80877103
GSSENC_REQUEST: Final = 80877104
CANCEL_REQUEST: Final = 80877102
STARTUP_BYTES: Final = 10_000  # MAX_STARTUP_PACKET_LENGTH of PostgreSQL
EPOCH_2000_US: Final = 946_684_800_000_000
OPENGAUSS_MINORS: Final = (50, 51)
"""Minor numbers of protocol 3 that clients of openGauss ask for."""
MAX_COUNT: Final = 1664
"""Most fields of a message; arbitrary: PostgreSQL's limit of columns."""
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">cI")
_KEEPALIVE: Final = struct.Struct(">cIcQqB")
_STATUS: Final = struct.Struct(">QQQqB")
_KEEPALIVE_LENGTH: Final = 22
_GAUSS_KEEPALIVE: Final = struct.Struct("<Qiiq8B")
_GAUSS_KEEPALIVE_LENGTH: Final = 37
_GAUSS_STATUS: Final = struct.Struct("<QQQQQiiqB3xI")
_GAUSS_NORMAL: Final = 1  # role and state of a server that is neither primary nor standby


def protocol_error(text: str) -> ServeError:
    """An error of a client that does not follow the protocol."""
    return ServeError("08P01", text)


class Body:
    """A read pointer in a body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    @property
    def left(self) -> int:
        """Bytes that are not read."""
        return len(self._data) - self._next

    def take(self, size: int) -> bytes:
        """Read bytes."""
        if not 0 <= size <= self.left:
            raise protocol_error("a message is shorter than its fields")
        field = self._data[self._next : self._next + size]
        self._next += size
        return field

    def int16(self) -> int:
        """Read a signed number of two bytes."""
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        """Read a signed number of four bytes."""
        return int(_INT32.unpack(self.take(4))[0])

    def count(self) -> int:
        """Read how many fields follow."""
        value = self.int16()
        if not 0 <= value <= MAX_COUNT:
            raise protocol_error(f"a count of {value}; allowed: 0 to {MAX_COUNT}")
        return value

    def text(self) -> str:
        """Read a string up to its zero byte."""
        end = self._data.find(b"\0", self._next)
        if end < 0:
            raise protocol_error("a string without its end")
        field = self._data[self._next : end]
        self._next = end + 1
        return decode(field)

    def value(self) -> bytes | None:
        """Read a value with its length; None for NULL."""
        size = self.int32()
        return None if size == -1 else self.take(size)

    def end(self) -> None:
        """See that nothing follows."""
        if self.left:
            raise protocol_error(f"{self.left} bytes follow the end of a message")


def decode(data: bytes) -> str:
    """Read text of a client.

    Raises:
        ServeError: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ServeError("22021", "a text is not UTF-8, the only client_encoding here") from None


@dataclasses.dataclass(frozen=True, slots=True)
class Startup:
    """The first message of a client.

    Attributes:
        code: protocol version, or one of the requests.
        parameters: by name; empty for a request.
        key: process and secret of a CancelRequest; None for others.
    """

    code: int
    parameters: dict[str, str]
    key: tuple[int, int] | None = None

    @property
    def minor(self) -> int:
        """Minor number of the protocol version."""
        return self.code & 0xFFFF


def parse_startup(data: bytes) -> Startup:
    """Read a startup packet, without its length.

    Raises:
        ServeError: it is damaged, or of another major version.
    """
    body = Body(data)
    code = body.int32()
    if code in (SSL_REQUEST, GSSENC_REQUEST):
        body.end()
        return Startup(code, {})
    if code == CANCEL_REQUEST:
        if body.left != 8:  # protocol 3.2 may have longer keys, which we never give
            return Startup(code, {})
        return Startup(code, {}, (body.int32(), body.int32()))
    if code >> 16 != 3:
        raise ServeError(
            "0A000", f"unsupported protocol {code >> 16}.{code & 0xFFFF}; this server speaks 3.0"
        )
    parameters: dict[str, str] = {}
    while body.left > 1:
        name = body.text()
        if not name:
            break
        parameters[name] = body.text()
    if body.left and body.take(1) != b"\0":
        raise protocol_error("the startup packet does not end with a zero byte")
    body.end()
    return Startup(code, parameters)


def parse_header(data: bytes, limit: int) -> tuple[bytes, int]:
    """Read type and length of a message's body.

    Args:
        data: five bytes.
        limit: most bytes of a body.

    Raises:
        ServeError: the length cannot be, or is above the limit.
    """
    tag, length = _HEADER.unpack(data)
    if length < 4:
        raise protocol_error(f"a message of {length} bytes")
    if length - 4 > limit:
        raise ServeError(
            "54000",
            f"a message of {length} bytes is larger than serve.message-bytes, {limit}",
            hint="Send less at once, or raise serve.message-bytes.",
        )
    return bytes(tag), length - 4


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """A standby status update.

    Attributes:
        written: last LSN that the client has received.
        flushed: what the client confirms.
        applied: last LSN that it has applied.
        wants_reply: it asks for a keepalive.
    """

    written: int
    flushed: int
    applied: int
    wants_reply: bool


def parse_feedback(data: bytes, *, is_opengauss: bool) -> Status | None:
    """Read a CopyData of a client that streams; None for what has no position.

    Args:
        data: body of the CopyData.
        is_opengauss: it has the form of openGauss: little-endian, with five positions.

    Raises:
        ServeError: it is none of the messages of a standby.
    """
    kind, body = data[:1], data[1:]
    if is_opengauss and kind == b"r" and len(body) == _GAUSS_STATUS.size:
        _, written, flushed, applied, _, _, _, _, reply, _ = _GAUSS_STATUS.unpack(body)
        return Status(written, flushed, applied, reply != 0)
    if not is_opengauss and kind == b"r" and len(body) == _STATUS.size:
        written, flushed, applied, _, reply = _STATUS.unpack(body)
        return Status(written, flushed, applied, reply != 0)
    if kind == b"h":
        return None  # hot standby feedback: nothing here is vacuumed
    size = 1 + (_GAUSS_STATUS.size if is_opengauss else _STATUS.size)
    raise protocol_error(f"a CopyData that is no standby status update of {size} bytes")


# ---- to the client -------------------------------------------------------------------------


def message(tag: bytes, body: bytes = b"") -> bytes:
    """Frame one message."""
    return _HEADER.pack(tag, len(body) + 4) + body


def cstring(text: str) -> bytes:
    """Encode a string with its end."""
    return text.replace("\0", "").encode("utf-8", "backslashreplace") + b"\0"


def authentication(code: int, data: bytes = b"") -> bytes:
    """Ask for a log-in, or accept it with code 0."""
    return message(b"R", _INT32.pack(code) + data)


def parameter_status(name: str, value: str) -> bytes:
    """Report a setting."""
    return message(b"S", cstring(name) + cstring(value))


def key_data(process: int, secret: int) -> bytes:
    """Give what a CancelRequest must have."""
    return message(b"K", struct.pack(">iI", process, secret))


def negotiation(minor: int, unknown: Iterable[str]) -> bytes:
    """Say which minor version is spoken, and which ``_pq_.`` options are not known."""
    names = list(unknown)
    body = struct.pack(">ii", minor, len(names)) + b"".join(map(cstring, names))
    return message(b"v", body)


def ready(status: bytes = b"I") -> bytes:
    """Say that the next command may come; `status` is I, T or E."""
    return message(b"Z", status)


def complete(tag: str) -> bytes:
    """Say that a command is done."""
    return message(b"C", cstring(tag))


def error(problem: ServeError, severity: str = "ERROR") -> bytes:
    """Describe an error."""
    return message(b"E", _fields(problem, severity))


def warning(problem: ServeError) -> bytes:
    """Describe what the client must know of an answer that it gets all the same."""
    return message(b"N", _fields(problem, "WARNING"))


def _fields(problem: ServeError, severity: str) -> bytes:
    fields = [("S", severity), ("V", severity), ("C", problem.sqlstate), ("M", problem.message)]
    fields += [("D", problem.detail)] if problem.detail else []
    fields += [("H", problem.hint)] if problem.hint else []
    return b"".join(k.encode() + cstring(v) for k, v in fields) + b"\0"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer.

    Attributes:
        name: shown name.
        oid: of its type.
    """

    name: str
    oid: int = 25

    @property
    def size(self) -> int:
        """Bytes of a value of the type; -1 for those that vary."""
        return {16: 1, 20: 8, 21: 2, 23: 4, 26: 4, 28: 4, 3220: 8, 2278: 4}.get(self.oid, -1)


def row_description(columns: Sequence[Column], formats: Sequence[int] = ()) -> bytes:
    """Describe the columns of an answer."""
    parts = [struct.pack(">h", len(columns))]
    for index, column in enumerate(columns):
        form = _format_of(formats, index)
        fields = struct.pack(">ihihih", 0, 0, column.oid, column.size, -1, form)
        parts.append(cstring(column.name) + fields)
    return message(b"T", b"".join(parts))


def _format_of(formats: Sequence[int], index: int) -> int:
    if not formats:
        return 0
    return formats[0] if len(formats) == 1 else formats[index]


def data_row(values: Sequence[bytes | None]) -> bytes:
    """Give a row of a small answer."""
    parts = [_INT16.pack(len(values))]
    parts += [_INT32.pack(-1) if v is None else _INT32.pack(len(v)) + v for v in values]
    return message(b"D", b"".join(parts))


def copy_both() -> bytes:
    """Begin a stream."""
    return message(b"W", b"\0\0\0")


def keepalive(lsn: int, now_us: int, *, wants_reply: bool, is_opengauss: bool = False) -> bytes:
    """Tell how far the stream is.

    Args:
        lsn: everything before it has been sent.
        now_us: microseconds since 1970.
        wants_reply: ask for a status at once.
        is_opengauss: in the form of openGauss, of which a C struct is copied.
    """
    if is_opengauss:
        time = now_us - EPOCH_2000_US
        flags = (int(wants_reply), 0, 0, 0, 0, 0, 0, 0)
        struct_ = _GAUSS_KEEPALIVE.pack(lsn, _GAUSS_NORMAL, _GAUSS_NORMAL, time, *flags)
        return _HEADER.pack(b"d", _GAUSS_KEEPALIVE_LENGTH) + b"k" + struct_
    body = (b"d", _KEEPALIVE_LENGTH, b"k", lsn, now_us - EPOCH_2000_US, int(wants_reply))
    return _KEEPALIVE.pack(*body)
