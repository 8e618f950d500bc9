"""A TCP proxy between the daemon and the server that breaks connections on purpose."""

import contextlib
import enum
import selectors
import socket
import struct
import threading
from types import TracebackType
from typing import Final, Self

_CHUNK: Final = 16384
_REPLICATION: Final = b"\0replication\0database\0"


class Fault(enum.Enum):
    """What happens to a connection once its bytes are used up.

    CUT closes both sides at once, in the middle of a message; RESET does so without a goodbye, as
    a firewall that has forgotten the connection; STALL forwards nothing any more from the server;
    BLACKHOLE forwards nothing either way, as a dead network does.
    """

    CUT = enum.auto()
    RESET = enum.auto()
    STALL = enum.auto()
    BLACKHOLE = enum.auto()


class Proxy:
    """Forwards connections to a port on 127.0.0.1.

    Attributes:
        port: where to connect to.
        connections: how many were accepted.
        faults: how many faults happened.
        is_away: new connections are closed at once; `cut_all` ends those that are there.
        is_stream_away: the same of replication connections alone, and `cut_streams`.
        is_mute: what replication connections say waits here; what the server says passes.
        brought: sizes of the pieces in which the server's bytes came.
        accepts: connections, after which nobody listens any more; None for no such end.
    """

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._plan: tuple[Fault, int] | None = None
        self._plans_stream: bool | None = None
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._streams: set[tuple[socket.socket, socket.socket]] = set()
        self._closed = False
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.faults = 0
        self.is_away = False
        self.is_stream_away = False
        self.is_mute = False
        self.brought: list[int] = []
        self.accepts: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def plan(self, fault: Fault, after_bytes: int, *, of_stream: bool | None = None) -> None:
        """Let a fault happen once, when connections have brought so many bytes from now on.

        With `of_stream` only replication connections count, or, if it is false, all others.
        """
        with self._lock:
            self._plan = (fault, after_bytes)
            self._plans_stream = of_stream

    def cut_all(self) -> None:
        """Close every connection now."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._close(pair)

    def cut_streams(self) -> None:
        """Close every replication connection now."""
        with self._lock:
            pairs = list(self._streams)
        for pair in pairs:
            self._close(pair)

    def close(self) -> None:
        """Close everything."""
        self._closed = True
        self.stop_listening()
        self.cut_all()

    def stop_listening(self) -> None:
        """Have the system refuse new connections."""
        with contextlib.suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)  # who accepts would keep it open
        self._listener.close()

    def __enter__(self) -> Self:
        """Give the proxy; it listens already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close everything."""
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.connections == self.accepts:
                self.stop_listening()
            if self.is_away:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        silent: set[socket.socket] = set()
        is_stream: bool | None = None
        held = b""
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError, ValueError):
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self._closed:
                if held and not self.is_mute:
                    server.sendall(held)
                    held = b""
                for key, _ in selector.select(0.2):
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    data = source.recv(_CHUNK)
                    if not data:
                        raise OSError("closed")
                    if is_stream is None:  # the first bytes are the client's start-up message
                        is_stream = _REPLICATION in data
                        if is_stream and self.is_stream_away:
                            raise OSError("away")
                        if is_stream:
                            with self._lock:
                                self._streams.add(pair)
                        data, answer = self.start_up(data)
                        client.sendall(answer)
                    if source is client and is_stream and self.is_mute:
                        held += data
                    elif source not in silent:
                        sink: socket.socket = key.data
                        is_counted = source is server and self._plans_stream in {None, is_stream}
                        sink.sendall(self._spoil(data, is_counted, pair, silent))
        self._close(pair)
        with self._lock:
            self._pairs.discard(pair)
            self._streams.discard(pair)

    def start_up(self, data: bytes) -> tuple[bytes, bytes]:
        """Give what of a connection's first bytes is passed on, and what is answered instead."""
        return data, b""

    def _spoil(
        self,
        data: bytes,
        is_counted: bool,
        pair: tuple[socket.socket, socket.socket],
        silent: set[socket.socket],
    ) -> bytes:
        """Count the server's bytes; carry out the plan when they are used up."""
        if not is_counted:
            return data
        with self._lock:
            self.brought.append(len(data))
            if self._plan is None:
                return data
            fault, left = self._plan
            if len(data) <= left:
                self._plan = (fault, left - len(data))
                return data
            self._plan = None
            self.faults += 1
        client, server = pair
        if fault in {Fault.CUT, Fault.RESET}:
            client.sendall(data[:left])
            if fault is Fault.RESET:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            raise OSError("cut")
        silent.add(server)
        if fault is Fault.BLACKHOLE:
            silent.add(client)
        return data[:left]

    @staticmethod
    def _close(pair: tuple[socket.socket, socket.socket]) -> None:
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
