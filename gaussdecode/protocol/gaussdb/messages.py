"""Read and write messages of the front-end/back-end protocol 3, as far as GaussDB uses it.

    message        type u8, length i32 (of itself and the body), body
    startup        length i32, protocol i32, (name NUL, value NUL)*, NUL        no type
    SSLRequest     length i32 = 8, code i32 = 80877103                          no type
    CancelRequest  length i32 = 16, code i32 = 80877102, session i32, key i32   no type

Integers big-endian. `MessageReader` turns bytes that arrive in any pieces into messages;
the other functions read or write one body each. A length is compared with a limit before
anything is stored, and a body is read through one checked `_Body`. Texts that are no
UTF-8 (the server may speak before it knows the client's encoding) are kept escaped.
"""

import dataclasses
import enum
import struct
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import WireError
from gaussdecode.protocol.fields import Fields

PROTOCOL_3_0: Final = 3 << 16
PROTOCOL_3_51: Final = 3 << 16 | 51
MINOR_MASK: Final = 0xFFFF
SSL_REQUEST_CODE: Final = 80877103
CANCEL_REQUEST_CODE: Final = 80877102
CANCEL_KEY_BYTES: Final = 8
COMMAND_LIMIT_BYTES: Final = 64 << 20  # arbitrary; answers to our commands are small
_HEADER: Final = struct.Struct(">cI")
_LENGTH_BYTES: Final = 4
_NULL: Final = -1
_MAX_COLUMNS: Final = 1664  # the server's own limit of a result

Row = tuple[str | None, ...]


class Tag(enum.Enum):
    """Types of messages from the server; another letter is an error."""

    AUTHENTICATION = b"R"
    BACKEND_KEY = b"K"
    COMMAND_COMPLETE = b"C"
    COPY_BOTH = b"W"
    COPY_DATA = b"d"
    COPY_DONE = b"c"
    COPY_OUT = b"H"
    DATA_ROW = b"D"
    EMPTY_QUERY = b"I"
    ERROR = b"E"
    NEGOTIATE = b"v"
    NOTICE = b"N"
    NOTIFICATION = b"A"
    PARAMETER = b"S"
    READY = b"Z"
    ROW_DESCRIPTION = b"T"


_TAGS: Final = {tag.value: tag for tag in Tag}


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message of the server.

    Attributes:
        tag: its type.
        body: bytes after the length.
    """

    tag: Tag
    body: bytes


class MessageReader:
    """Cuts a byte stream into messages.

    Args:
        limit_bytes: a longer body is an error, found as soon as its header is there.
    """

    def __init__(self, limit_bytes: int = COMMAND_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._data = bytearray()
        self._next = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they came."""
        del self._data[: self._next]
        self._next = 0
        self._data += data

    def take(self) -> Message | None:
        """Give the next message, or None until more bytes are there.

        Raises:
            WireError: an unknown type, or a length that cannot be.
        """
        left = len(self._data) - self._next
        if left == 0:
            return None
        tag = _TAGS.get(bytes(self._data[self._next : self._next + 1]))
        if tag is None:
            raise WireError(f"unknown message type {self._data[self._next]:#04x}", self._next)
        if left < _HEADER.size:
            return None
        (_, length) = _HEADER.unpack_from(self._data, self._next)
        if not _LENGTH_BYTES <= length <= self._limit + _LENGTH_BYTES:
            raise WireError(
                f"a message of {length} bytes; allowed: {_LENGTH_BYTES} to "
                f"{self._limit + _LENGTH_BYTES}",
                self._next + 1,
            )
        end = self._next + 1 + length
        if len(self._data) < end:
            return None
        body = bytes(self._data[self._next + _HEADER.size : end])
        self._next = end
        return Message(tag, body)

    def rest(self) -> bytes:
        """Take what is left over; the reader is empty afterwards."""
        rest = bytes(self._data[self._next :])
        self._data.clear()
        self._next = 0
        return rest


class _Body(Fields):
    """A cursor over a body, whose texts may be in any encoding."""

    def int32(self) -> int:
        return self.number(4, signed=True)

    def count(self) -> int:
        value = self.number(2, signed=True)
        if not 0 <= value <= _MAX_COLUMNS:
            raise self.fail(f"a count of {value}", 2)
        return value

    def text(self) -> str:
        return decode_text(self.string())


def decode_text(data: bytes) -> str:
    """Read text of the server; what is no UTF-8 stays visible as escapes."""
    return data.decode("utf-8", "backslashreplace")


# ---- from the server -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class AuthRequest:
    """The server wants to know who we are.

    Attributes:
        code: 0 when it is content, else the method.
        data: data of the method.
    """

    code: int
    data: bytes


def parse_authentication(body: bytes) -> AuthRequest:
    """Read an Authentication message.

    Raises:
        WireError: it is cut off.
    """
    reader = _Body(body)
    return AuthRequest(reader.int32(), reader.take(reader.left))


def parse_parameter(body: bytes) -> tuple[str, str]:
    """Read a ParameterStatus: name and value.

    Raises:
        WireError: it is not two strings.
    """
    reader = _Body(body)
    pair = reader.text(), reader.text()
    reader.end()
    return pair


def parse_negotiation(body: bytes) -> int:
    """Read a NegotiateProtocolVersion: the minor version the server speaks.

    Raises:
        WireError: it is damaged.
    """
    reader = _Body(body)
    version = reader.int32() & MINOR_MASK
    count = reader.int32()
    if not 0 <= count <= _MAX_COLUMNS:
        raise WireError(f"a count of {count}", 4)
    for _ in range(count):
        reader.text()
    reader.end()
    return version


def notice_fields(body: bytes) -> dict[str, str]:
    """Read an ErrorResponse or NoticeResponse: texts by field letter, the first of each.

    ``S`` severity, ``C`` SQLSTATE, ``M`` message, ``D`` detail, ``H`` hint; GaussDB has
    letters of its own, which are kept.

    Raises:
        WireError: it is damaged.
    """
    reader = _Body(body)
    fields: dict[str, str] = {}
    while (letter := reader.take(1)) != b"\0":
        fields.setdefault(decode_text(letter), reader.text())
    reader.end()
    return fields


def parse_row_description(body: bytes) -> tuple[str, ...]:
    """Read a RowDescription: the names of the columns.

    Raises:
        WireError: it is damaged.
    """
    reader = _Body(body)
    names = []
    for _ in range(reader.count()):
        names.append(reader.text())
        reader.take(18)  # table, column, type, size, modifier, format
    reader.end()
    return tuple(names)


def parse_data_row(body: bytes) -> Row:
    """Read a DataRow: texts, None for NULL.

    Raises:
        WireError: it is damaged.
    """
    reader = _Body(body)
    values: list[str | None] = []
    for _ in range(reader.count()):
        size = reader.int32()
        values.append(None if size == _NULL else decode_text(reader.take(size)))
    reader.end()
    return tuple(values)


def parse_command_complete(body: bytes) -> str:
    """Read a CommandComplete: the command's tag.

    Raises:
        WireError: it is damaged.
    """
    reader = _Body(body)
    tag = reader.text()
    reader.end()
    return tag


def parse_copy_both(body: bytes) -> None:
    """Check a CopyBothResponse.

    Raises:
        WireError: it is damaged, or the copy is of columns.
    """
    reader = _Body(body)
    reader.take(1)
    columns = reader.count()
    if columns:
        raise WireError(f"a replication stream of {columns} columns", 1)
    reader.end()


def parse_copy_out(body: bytes) -> None:
    """Check a CopyOutResponse.

    Raises:
        WireError: it is damaged, or the copy is not in text form.
    """
    reader = _Body(body)
    is_binary = reader.take(1) != b"\0"
    for _ in range(reader.count()):
        is_binary |= reader.take(2) != bytes(2)
    reader.end()
    if is_binary:
        raise WireError("a copy in binary form", 0)


# ---- to the server -------------------------------------------------------------------------


def ssl_request() -> bytes:
    """Ask for TLS; the answer is one byte, ``S`` or ``N``."""
    return struct.pack(">II", 8, SSL_REQUEST_CODE)


def cancel_request(key: bytes) -> bytes:
    """Have the command of another session given up; there is no answer.

    Args:
        key: the eight bytes of the session's BackendKeyData.
    """
    return struct.pack(">II", 16, CANCEL_REQUEST_CODE) + key


def startup(protocol: int, parameters: Mapping[str, str]) -> bytes:
    """Open a session.

    Args:
        protocol: `PROTOCOL_3_51` or `PROTOCOL_3_0`.
        parameters: ``user``, ``database``, ``replication`` and settings.
    """
    pairs = b"".join(_c_string(text) for pair in parameters.items() for text in pair)
    return struct.pack(">II", 8 + len(pairs) + 1, protocol) + pairs + b"\0"


def frontend(letter: bytes, body: bytes = b"") -> bytes:
    """Build a message with a type."""
    return _HEADER.pack(letter, len(body) + _LENGTH_BYTES) + body


def query(sql: str) -> bytes:
    """Run a command or statement, with the simple protocol."""
    return frontend(b"Q", _c_string(sql))


def password(answer: bytes) -> bytes:
    """Answer an authentication request."""
    return frontend(b"p", answer + b"\0")


def copy_data(payload: bytes) -> bytes:
    """Send something inside of a stream."""
    return frontend(b"d", payload)


def copy_done() -> bytes:
    """End our side of a stream."""
    return frontend(b"c")


def terminate() -> bytes:
    """Say goodbye."""
    return frontend(b"X")


def _c_string(text: str) -> bytes:
    data = text.encode()
    if b"\0" in data:
        raise ValueError("a NUL byte cannot be sent")
    return data + b"\0"
