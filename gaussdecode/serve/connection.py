"""The bytes of one client: exact reads with a bound, writes that wait while the client is slow."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from gaussdecode.serve import messages
from gaussdecode.serve.messages import protocol_error

_READ_AHEAD: Final = 256 << 10  # of a client; more waits in its socket
_HEADER_BYTES: Final = 5
_LINGER_SECONDS: Final = 5.0  # arbitrary


class ClientGoneError(Exception):
    """The client has closed the connection, or it broke."""


class Connection(asyncio.Protocol):
    """One connection.

    Args:
        high_water: bytes that wait for a slow client before `drain` waits.

    Attributes:
        heard: loop time of the last bytes of the client.
    """

    def __init__(self, high_water: int) -> None:
        self._high_water = high_water
        self._data = bytearray()
        self._is_paused = False
        self._is_over = False
        self._input: asyncio.Future[None] | None = None
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()
        self._is_sending = False  # past the transport
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None  # a second handle, for what needs no copy
        self._output: asyncio.Future[None] | None = None
        self.limit = messages.STARTUP_BYTES
        self.heard = asyncio.get_running_loop().time()

    # ---- asyncio calls these ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(self._high_water)

    def data_received(self, data: bytes) -> None:
        """Keep what came."""
        self._data += data
        self.heard = asyncio.get_running_loop().time()
        if len(self._data) > _READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The client sends no more."""
        self._is_over = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._is_over = True
        self._wake()
        self._room.set()
        self._resume()
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket)
            self._socket.close()

    def pause_writing(self) -> None:
        """The client is slow."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It has taken enough."""
        self._room.set()

    def _wake(self) -> None:
        if self._input is not None and not self._input.done():
            self._input.set_result(None)

    def _resume(self) -> None:
        if self._output is not None and not self._output.done():
            self._output.set_result(None)

    # ---- the session calls these -----------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport:
        """What carries the bytes."""
        assert self._transport is not None
        return self._transport

    @property
    def has_input(self) -> bool:
        """Something came that is not read."""
        return bool(self._data)

    @property
    def is_over(self) -> bool:
        """The client is gone."""
        return self._is_over

    @property
    def is_clogged(self) -> bool:
        """More waits for the client than it should."""
        return self._is_sending or not self._room.is_set()

    async def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            if self._is_over:
                raise ClientGoneError
            if self._is_paused:
                self._is_paused = False
                self.transport.resume_reading()
            self._input = asyncio.get_running_loop().create_future()
            await self._input
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    async def read_startup(self) -> messages.Startup:
        """Read a packet that has no type.

        Raises:
            ServeError: it is damaged or too large.
            ClientGoneError: the client is gone.
        """
        length = int.from_bytes(await self._take(4), "big")
        if not 8 <= length <= messages.STARTUP_BYTES:
            raise protocol_error("invalid length of startup packet")
        return messages.parse_startup(await self._take(length - 4))

    async def read_message(self) -> tuple[bytes, bytes]:
        """Read a message: its type and its body.

        Raises:
            ServeError: its length cannot be, or is above `limit`.
            ClientGoneError: the client is gone.
        """
        header = await self._take(_HEADER_BYTES)
        tag, size = messages.parse_header(header, self.limit)
        return tag, await self._take(size)

    def write(self, data: bytes | bytearray) -> None:
        """Send bytes as soon as the client takes them."""
        if not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait while too much waits for the client.

        Raises:
            ClientGoneError: the client is gone.
        """
        await self._room.wait()
        self._check()

    def _check(self) -> None:
        if self._is_over or self.transport.is_closing():
            raise ClientGoneError

    async def send(
        self, data: bytes, waiting: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> None:
        """Send whole messages, and wait until the system has taken them: many clients share these bytes.

        The transport would copy what the system does not take at once. While this waits, `is_clogged`
        is true, and nothing else may be written. Where it is cancelled, the rest goes out before what
        is written later.

        Args:
            data: the messages.
            waiting: entered while the client makes this wait.

        Raises:
            ClientGoneError: the client is gone.
        """
        self._check()
        rest = memoryview(data)
        if self._direct() is None:
            self.write(data)
            rest = rest[:0]
        elif not self.transport.get_write_buffer_size():
            rest = rest[self._give(rest) :]
        if not rest and not self.is_clogged:
            await asyncio.sleep(0)  # others have their turn
            return
        with waiting():
            if rest:
                await self._send_rest(rest)
            await self.drain()

    async def _send_rest(self, rest: memoryview) -> None:
        self._is_sending = True
        try:
            self.transport.set_write_buffer_limits(0)
            await self.drain()
            while rest:
                await self._writable()
                rest = rest[self._give(rest) :]
        finally:
            self._is_sending = False
            self.transport.set_write_buffer_limits(self._high_water)
            self.write(bytes(rest))

    def _direct(self) -> socket.socket | None:
        """The socket, where bytes may go past the transport: without TLS, and with a descriptor to spare."""
        own = self.transport.get_extra_info("socket")
        if self._socket is None and own is not None and not self.is_encrypted:
            with contextlib.suppress(OSError):
                self._socket = own.dup()
        return self._socket

    def _give(self, data: memoryview) -> int:
        """Give the system what it takes at once of some bytes; gives how many."""
        assert self._socket is not None
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.transport.abort()
            raise ClientGoneError from None

    async def _writable(self) -> None:
        """Wait until the system takes more."""
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        self._output = loop.create_future()
        loop.add_writer(self._socket, self._resume)
        try:
            await self._output
        finally:
            if not self._is_over:
                loop.remove_writer(self._socket)
        self._check()

    async def start_tls(self, context: ssl.SSLContext, seconds: float) -> None:
        """Go on with TLS.

        Raises:
            ServeError: bytes that are not encrypted follow the request.
            ClientGoneError: the handshake failed.
        """
        if self._data:
            raise protocol_error("received unencrypted data after SSL request")
        self.write(b"S")
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self.transport, self, context, server_side=True, ssl_handshake_timeout=seconds
            )
        except (OSError, ssl.SSLError) as error:
            raise ClientGoneError from error
        if transport is None:
            raise ClientGoneError
        self._transport = transport
        transport.set_write_buffer_limits(self._high_water)

    @property
    def is_encrypted(self) -> bool:
        """It speaks TLS."""
        return self.transport.get_extra_info("ssl_object") is not None

    @property
    def peer(self) -> str:
        """Address of the client; empty for a socket without one."""
        name = self.transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    def close(self) -> None:
        """End the connection after what was written; a client that does not read it has some seconds."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.transport.abort)

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()
