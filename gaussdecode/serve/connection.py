"""The bytes of one client: exact reads with a bound, writes that wait while the client is slow."""

import asyncio
import ssl
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
        self._transport: asyncio.Transport | None = None
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

    def pause_writing(self) -> None:
        """The client is slow."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It has taken enough."""
        self._room.set()

    def _wake(self) -> None:
        if self._input is not None and not self._input.done():
            self._input.set_result(None)

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
        return not self._room.is_set()

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
        if self._is_over or self.transport.is_closing():
            raise ClientGoneError

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
