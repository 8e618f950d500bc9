"""A TLS end before a server, which cuts what the server sends into records of any size.

PostgreSQL sends a record for a message, or for 16 KiB of many; what stands between may cut otherwise.
"""

import random
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from kit.postgres import make_certificates

_SSL_REQUEST: Final = struct.pack(">II", 8, 80877103)
_WAIT_SECONDS: Final = 0.2
_BUFFER: Final = 1 << 16

Sizes = Callable[[random.Random], int]


class TlsProxy:
    """Accepts TLS on a port of its own, and talks to the server without.

    Args:
        target_port: of the server on 127.0.0.1.
        directory: gets certificate and key.
        sizes: bytes of the next record, at most 16384.
    """

    def __init__(self, target_port: int, directory: Path, sizes: Sizes) -> None:
        make_certificates(directory)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(directory / "server.pem", directory / "server.key")
        self._target_port = target_port
        self._sizes = sizes
        self._random = random.Random(target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self.records = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                plain, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            if plain.recv(len(_SSL_REQUEST), socket.MSG_WAITALL) != _SSL_REQUEST:
                plain.close()
                return
            plain.sendall(b"S")
            with (
                self._context.wrap_socket(plain, server_side=True) as client,
                socket.create_connection(("127.0.0.1", self._target_port)) as server,
            ):
                while not self._is_over.is_set() and self._forward(client, server):
                    pass
        except OSError:  # one side has gone
            return

    def _forward(self, client: ssl.SSLSocket, server: socket.socket) -> bool:
        """Pass on what has come, each way; whether both are still there."""
        readable = select.select([client, server], [], [], _WAIT_SECONDS)[0]
        if client in readable or client.pending():
            client.setblocking(False)
            try:
                received = client.recv(_BUFFER)
                server.sendall(received)
                if not received:
                    return False
            except ssl.SSLWantReadError:
                pass
            client.setblocking(True)
        if server in readable:
            data = server.recv(_BUFFER)
            if not data:
                return False
            while data:
                size = self._sizes(self._random)
                client.sendall(data[:size])
                data = data[size:]
                self.records += 1
        return True
