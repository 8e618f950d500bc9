"""A scripted client of the simulated server, on a raw socket; nothing of the product.

It reads the streams with a decoder of its own, so that the simulator is judged by something
else than itself.
"""

import contextlib
import dataclasses
import hashlib
import hmac
import json
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self

MINOR: Final = 51
_SECONDS: Final = 60.0
_TEXT_BEGIN: Final = re.compile(
    rb"BEGIN CSN: (\d+) first_lsn: ([0-9A-F]+/[0-9A-F]+)(.*)", re.DOTALL
)


class ServerError(Exception):
    """An ErrorResponse.

    Attributes:
        fields: by letter.
    """

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(fields)
        self.fields = fields


class Record(NamedTuple):
    """One decoded record: kind B C I U D h, its LSN, and what it says."""

    kind: str
    lsn: int
    table: str = ""
    new: dict[str, str | None] | None = None
    old: dict[str, str | None] | None = None
    xid: int = 0
    csn: int = 0
    parts: str = ""


@dataclasses.dataclass(slots=True)
class Received:
    """What a stream brought.

    Attributes:
        bodies: payloads after the 25 bytes of a header.
        headers: header LSNs.
        keepalives: (walEnd, reply wanted).
        notices: messages of NoticeResponses.
        order: letters w, k, N in order of arrival.
        completes: command tags inside the stream.
    """

    bodies: list[bytes] = dataclasses.field(default_factory=list)
    headers: list[int] = dataclasses.field(default_factory=list)
    keepalives: list[tuple[int, bool]] = dataclasses.field(default_factory=list)
    notices: list[str] = dataclasses.field(default_factory=list)
    order: str = ""
    completes: list[str] = dataclasses.field(default_factory=list)


class Client:
    """One connection.

    Attributes:
        parameters: ParameterStatus by name.
        code: the authentication request that was met.
    """

    def __init__(
        self,
        port: int,
        *,
        replication: bool = False,
        user: str = "replica",
        password: str = "Gauss@123",
        database: str = "shop",
        minor: int = MINOR,
        tls: ssl.SSLContext | None = None,
        **settings: str,
    ) -> None:
        self._socket: socket.socket = socket.create_connection(("127.0.0.1", port), _SECONDS)
        self.parameters: dict[str, str] = {}
        self.code = -1
        if tls is not None:
            self._socket.sendall(struct.pack(">II", 8, 80877103))
            assert self._socket.recv(1) == b"S"
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        given = {"user": user, "database": database, **settings}
        if replication:
            given["replication"] = "database"
        body = struct.pack(">HH", 3, minor)
        body += b"".join(k.encode() + b"\0" + v.encode() + b"\0" for k, v in given.items()) + b"\0"
        self._socket.sendall(struct.pack(">I", len(body) + 4) + body)
        try:
            self._log_in(user, password, minor)
        except BaseException:
            self.close()
            raise

    def _log_in(self, user: str, password: str, minor: int) -> None:
        while True:
            letter, body = self.message()
            if letter == b"R":
                (code,) = struct.unpack_from(">i", body)
                if code:
                    self.code = code
                    self.send(b"p", answer(code, body[4:], user, password, minor) + b"\0")
            elif letter == b"S":
                name, value, _ = body.split(b"\0")
                self.parameters[name.decode()] = value.decode()
            elif letter == b"Z":
                return

    def __enter__(self) -> Self:
        """Give it; it is connected already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    # --- messages ----------------------------------------------------------------------

    def send(self, letter: bytes, body: bytes = b"") -> None:
        """Send one message."""
        self._socket.sendall(letter + struct.pack(">I", len(body) + 4) + body)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def message(self) -> tuple[bytes, bytes]:
        """Read one message.

        Raises:
            ServerError: it is an error.
            EOFError: the connection ends.
        """
        head = self._exactly(5)
        body = self._exactly(struct.unpack(">I", head[1:])[0] - 4)
        if head[:1] == b"E":
            raise ServerError(_fields(body))
        return head[:1], body

    def is_ended(self) -> bool:
        """Whether the server has closed the connection, once all is read."""
        with contextlib.suppress(ServerError):
            try:
                while True:
                    self.message()
            except (EOFError, ConnectionError):
                return True
        return self.is_ended()

    # --- queries -----------------------------------------------------------------------

    def query(self, text: str) -> list[tuple[str | None, ...]]:
        """Run a simple query; give its rows."""
        return self.run(text)[0]

    def run(self, text: str) -> tuple[list[tuple[str | None, ...]], list[str]]:
        """Run a simple query; give its rows and command tags."""
        self.send(b"Q", text.encode() + b"\0")
        rows: list[tuple[str | None, ...]] = []
        tags: list[str] = []
        while True:
            letter, body = self.message()
            if letter == b"D":
                rows.append(_row(body))
            elif letter == b"C":
                tags.append(body[:-1].decode())
            elif letter == b"Z":
                return rows, tags

    # --- streams -----------------------------------------------------------------------

    def start(self, slot: str, lsn: str = "0/0", **options: str) -> None:
        """Send START_REPLICATION and wait for CopyBothResponse."""
        given = ", ".join(
            f"\"{name.replace('_', '-')}\" '{value}'" for name, value in options.items()
        )
        text = f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn}' + (f" ({given})" if given else "")
        self.send(b"Q", text.encode() + b"\0")
        letter, body = self.message()
        assert (letter, body) == (b"W", b"\0\0\0")

    def receive(self, until: int = 0, seconds: float = 5.0) -> Received:
        """Read the stream until so many payloads have come, or nothing for a while.

        Raises:
            ServerError: the server ends the stream with an error.
        """
        got = Received()
        deadline = time.monotonic() + seconds
        while len(got.bodies) < until or not until:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._socket.settimeout(left)
            try:
                letter, body = self.message()
            except (TimeoutError, EOFError, ConnectionError):
                break
            finally:
                self._socket.settimeout(_SECONDS)
            self._keep(got, letter, body)
        return got

    @staticmethod
    def _keep(got: Received, letter: bytes, body: bytes) -> None:
        if letter == b"N":
            got.notices.append(_fields(body)["M"])
            got.order += "N"
        elif letter == b"C":
            got.completes.append(body[:-1].decode())
        elif letter == b"d":
            got.order += chr(body[0])
            if body[:1] == b"w":
                start, end, _ = struct.unpack_from(">QQq", body, 1)
                assert start == end
                got.headers.append(end)
                got.bodies.append(body[25:])
            else:
                assert len(body) == 33
                got.keepalives.append((struct.unpack_from("<Q", body, 1)[0], bool(body[25])))

    def confirm(self, lsn: int, *, wants_reply: bool = False) -> None:
        """Send a status update of 65 bytes."""
        body = struct.pack("<QQQQQiiqB3xI", lsn, lsn, lsn, lsn, lsn, 0, 0, 0, wants_reply, 0)
        self.send(b"d", b"r" + body)


def answer(code: int, body: bytes, user: str, password: str, minor: int) -> bytes:
    """Answer an authentication request."""
    secret = password.encode()
    if code == 3:
        return secret
    if code == 5:
        inner = hashlib.md5(secret + user.encode()).hexdigest().encode()
        return b"md5" + hashlib.md5(inner + body[:4]).hexdigest().encode()
    if code == 11:
        salt_text, md5_salt, iterations = body[:64], body[64:68], 10000
    else:
        salt_text = body[4:68]
        iterations = struct.unpack_from(">i", body, 76)[0] if minor > 50 else 10000
    k = hashlib.pbkdf2_hmac("sha1", secret, bytes.fromhex(salt_text.decode()), iterations, 32)
    client_key = hmac.digest(k, b"Client Key", "sha256")
    stored = hashlib.new("sm3" if code == 13 else "sha256", client_key).digest()
    if code == 11:
        server_key = hmac.digest(k, b"Sever Key", "sha256")
        inner = salt_text + server_key.hex().encode() + stored.hex().encode()
        return b"md5" + hashlib.md5(inner + md5_salt).hexdigest().encode()
    token = bytes.fromhex(body[68:76].decode())
    signature = hmac.digest(stored, token, "sha256")
    return bytes(a ^ b for a, b in zip(signature, client_key, strict=True)).hex().encode()


def _fields(body: bytes) -> dict[str, str]:
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def _row(body: bytes) -> tuple[str | None, ...]:
    (count,) = struct.unpack_from(">H", body)
    at, values = 2, []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", body, at)
        at += 4
        values.append(None if size < 0 else body[at : at + size].decode())
        at += max(size, 0)
    return tuple(values)


# ---- a decoder of its own ----------------------------------------------------------------


class Reader:
    """A cursor in a payload."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        """Take bytes."""
        part = self.data[self.at : self.at + count]
        assert len(part) == count, "truncated"
        self.at += count
        return part

    def number(self, width: int) -> int:
        """Take a big-endian number."""
        return int.from_bytes(self.take(width))

    def peek(self) -> bytes:
        """Look at one byte."""
        return self.data[self.at : self.at + 1]


def binary_records(payload: bytes, encoding: str = "utf-8") -> Iterator[Record]:
    """Split a binary payload."""
    reader = Reader(payload)
    while True:
        size = reader.number(4)
        if size == 0:
            assert reader.at == len(payload)
            return
        end = reader.at + size
        yield _binary_record(reader, end, encoding)
        assert reader.at == end, "leftover bytes"
        if reader.take(1) == b"F":
            assert reader.at == len(payload)
            return


def _binary_record(reader: Reader, end: int, encoding: str) -> Record:
    lsn, kind = reader.number(8), reader.take(1).decode()
    if kind in "BC":
        csn = reader.number(8) if kind == "B" else 0
        if kind == "B":
            reader.number(8)
        xid, parts = 0, ""
        while reader.at < end:
            letter = reader.take(1).decode()
            parts += letter
            if letter == "X":
                xid = reader.number(8)
            elif letter == "O":
                reader.number(4)
            else:
                parts += reader.take(reader.number(4)).decode(encoding)
        return Record(kind, lsn, xid=xid, csn=csn, parts=parts)
    if kind == "h":
        reader.take(24)
        return Record(kind, lsn)
    names = [reader.take(reader.number(2)).decode(encoding) for _ in range(2)]
    tuples: dict[str, dict[str, str | None]] = {}
    while reader.at < end:
        letter = reader.take(1).decode()
        tuples[letter] = _binary_tuple(reader, encoding)
    return Record(kind, lsn, ".".join(names), tuples.get("N"), tuples.get("O"))


def _binary_tuple(reader: Reader, encoding: str) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for _ in range(reader.number(2)):
        name = reader.take(reader.number(2)).decode(encoding)
        reader.number(4)
        size = reader.number(4)
        values[name] = None if size == 0xFFFFFFFF else reader.take(size).decode(encoding)
    return values


def statements(payload: bytes, *, is_batched: bool) -> Iterator[tuple[int, bytes]]:
    """Split a payload of the text styles into (LSN, statement)."""
    if not is_batched:
        yield 0, payload
        return
    reader = Reader(payload)
    while size := reader.number(4):
        lsn = reader.number(8)
        yield lsn, reader.take(size - 8)
    assert reader.at == len(payload)


def json_record(text: bytes, encoding: str = "utf-8") -> Record:
    """Read one statement of style j or of serial mppdb_decoding."""
    match = _TEXT_BEGIN.fullmatch(text)
    if match:
        return Record("B", 0, csn=int(match[1]), parts=match[3].decode(encoding))
    if text.lower().startswith((b"commit", b"begin")):
        numbers = re.findall(rb"\d+", text)
        kind = "C" if text[:1] in b"cC" else "B"
        return Record(kind, 0, xid=int(numbers[0]) if numbers else 0, parts=text.decode(encoding))
    row = json.loads(text.decode(encoding))
    new = {n: unquote(v) for n, v in zip(row["columns_name"], row["columns_val"], strict=True)}
    old = {n: unquote(v) for n, v in zip(row["old_keys_name"], row["old_keys_val"], strict=True)}
    return Record(row["op_type"][0], 0, row["table_name"], new or None, old or None)


def unquote(literal: str) -> str | None:
    """Undo a SQL literal."""
    if literal == "null":
        return None
    if literal in ("true", "false"):
        return literal[0]
    if literal.startswith("B'"):
        return literal[2:-1]
    if literal.startswith("'"):
        return literal[1:-1].replace("''", "'")
    return literal


def mirrored_only_until(name: str) -> str:
    """Undo the quoting of a name."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
