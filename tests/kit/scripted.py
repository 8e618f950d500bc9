"""A server that plays what a test wrote for it, one function per connection.

The functions run in a thread of the server's, in the order in which clients come; what
one raises is raised again by `ScriptedServer.__exit__`, so that a test cannot pass while
its script failed.
"""

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

_SECONDS: Final = 60.0  # patience of a test, never a claim about speed


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def read(self, size: int) -> bytes:
        """Read so many bytes."""
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            assert more, f"the client left after {len(data)} of {size} bytes"
            data += more
        return data

    def read_startup(self) -> bytes:
        """Read a message without a type: its bytes after the length."""
        (size,) = struct.unpack(">I", self.read(4))
        return self.read(size - 4)

    def read_message(self) -> tuple[bytes, bytes]:
        """Read a message: type and body."""
        letter, size = struct.unpack(">cI", self.read(5))
        return letter, self.read(size - 4)

    def send(self, *messages: bytes) -> None:
        """Send bytes."""
        self.sock.sendall(b"".join(messages))

    def send_slowly(self, data: bytes) -> None:
        """Send byte by byte."""
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(data)):
            self.sock.sendall(data[index : index + 1])

    def log_in(self, *parameters: tuple[str, str]) -> dict[str, str]:
        """Let a client in without a password; give what its startup message asked for."""
        asked = startup_parameters(self.read_startup())
        self.send(b"R" + struct.pack(">II", 8, 0))
        for name, value in (("server_encoding", "UTF8"), *parameters):
            body = name.encode() + b"\0" + value.encode() + b"\0"
            self.send(b"S" + struct.pack(">I", len(body) + 4) + body)
        self.send(b"K" + struct.pack(">IQI", 16, 1 << 40, 7))
        self.send(b"Z" + struct.pack(">I", 5) + b"I")
        return asked


def startup_parameters(body: bytes) -> dict[str, str]:
    """Read the pairs of a startup message."""
    texts = [text.decode() for text in body[4:].split(b"\0")]
    return dict(zip(texts[0:-2:2], texts[1:-2:2], strict=True))


def error(code: str, message: str, **more: str) -> bytes:
    """Build an ErrorResponse."""
    return _fields(b"E", {"S": "FATAL", "C": code, "M": message, **more})


def notice(message: str) -> bytes:
    """Build a NoticeResponse."""
    return _fields(b"N", {"S": "WARNING", "C": "01000", "M": message})


def _fields(letter: bytes, fields: dict[str, str]) -> bytes:
    body = b"".join(key.encode() + text.encode() + b"\0" for key, text in fields.items()) + b"\0"
    return letter + struct.pack(">I", len(body) + 4) + body


def answer(columns: Sequence[str], *rows: Sequence[str | None]) -> bytes:
    """Build the whole answer to a query."""
    heads = b"".join(name.encode() + b"\0" + bytes(18) for name in columns)
    made = [(b"T", struct.pack(">h", len(columns)) + heads)]
    for row in rows:
        cells = b"".join(
            struct.pack(">i", -1)
            if cell is None
            else struct.pack(">i", len(cell.encode())) + cell.encode()
            for cell in row
        )
        made.append((b"D", struct.pack(">h", len(row)) + cells))
    made += [(b"C", b"SELECT\0"), (b"Z", b"I")]
    return b"".join(letter + struct.pack(">I", len(body) + 4) + body for letter, body in made)


class ScriptedServer:
    """Listens on a port of its own until its scripts are played.

    Args:
        scripts: one function per expected connection.
    """

    def __init__(self, *scripts: Callable[[Peer], None]) -> None:
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_SECONDS)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def dsn(self, extra: str = "sslmode=disable") -> str:
        """Connection string of it."""
        return f"host=127.0.0.1 port={self.port} dbname=shop user=gaussdecode {extra}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_rest: object) -> None:
        if kind is not None:
            self._listener.close()
            return
        self._thread.join(_SECONDS)
        self._listener.close()
        assert not self._thread.is_alive(), "a script is still waiting"
        if self._failure is not None:
            raise self._failure

    def _play(self) -> None:
        try:
            for script in self._scripts:
                sock, _ = self._listener.accept()
                sock.settimeout(_SECONDS)
                with sock:
                    script(Peer(sock))
        except BaseException as failure:  # noqa: BLE001 - raised again by the test's thread
            self._failure = failure
