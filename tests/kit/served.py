"""A server of `gaussdecode serve` in a thread of the test, over a landing that an earlier version kept."""

import asyncio
import dataclasses
import select
import ssl
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from gaussdecode.demo.ports import free_port
from gaussdecode.model.lsn import Lsn
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.outputs.registry import PLUGINS
from gaussdecode.serve.server import Server
from gaussdecode.serve.slots import Slot
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.types import Address
from gaussdecode.spark.log.place import Place

KEPT: Final = Path(__file__).parents[1] / "data" / "0.1.0.tar.xz"
_PATIENCE: Final = 60.0
Session = psycopg.Connection[tuple[Any, ...]]


def unpack_landing(directory: Path) -> Path:
    """Put the landing below a directory, and give its root."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(directory, filter="data")
    return directory / "landing"


class Served:
    """A running server.

    Args:
        root: of the landing, or of its mirror.
        tls: as of `Server`.
        keep: likewise.
        slots_root: likewise.
        settings: of the section `serve`.
    """

    def __init__(
        self,
        root: Place,
        tls: Callable[[], ssl.SSLContext] | None = None,
        keep: int | None = None,
        slots_root: Path | None = None,
        **settings: Any,
    ) -> None:
        config = dataclasses.replace(ServeConfig(listen=Address("127.0.0.1", 0)), **settings)
        self.server = Server(root, config, PLUGINS, tls, keep, slots_root)
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def _work(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()

        def started(port: int) -> None:
            self.port = port
            self._ready.set()

        try:
            await self.server.run(started, self._stop)
        finally:
            self._ready.set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_PATIENCE)
        assert self.port
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive()

    @property
    def database(self) -> str:
        """Name of the landing's database."""
        return self.server.databases[0]

    def end_lsn(self) -> int:
        """LSN up to which everything has landed."""
        landing = self.server.feeds.landing
        return int(landing.position(landing.entry(self.server.feeds.end.look())).lsn)

    def connect(self, **extra: Any) -> Session:
        """Open an ordinary connection; `replication` makes it one of replication."""
        given = {
            "host": "127.0.0.1", "port": self.port, "dbname": self.database, "user": "tester", "sslmode": "disable",
            **extra,
        }  # fmt: skip
        return psycopg.connect(autocommit=True, **given)

    def add_slot(self, name: str, lsn: int = 0, plugin: str = "test_decoding") -> Slot:
        """A slot at the beginning of the log, or after an LSN."""
        server = self.server
        feed = server.feeds.feed(None)
        at = feed.reader.at(lsn) if lsn else feed.reader.beginning()
        slot = Slot(
            name, plugin, "tester", self.database, server.facts(self.database).landing_id, at.n, at.epoch, lsn
        )  # fmt: skip
        server.slots.create(slot)
        return slot


class Process:
    """`gaussdecode serve` as a process of its own."""

    def __init__(self, root: Path) -> None:
        self.port = free_port()
        command = [
            sys.executable, "-m", "gaussdecode", "serve", str(root), "--listen", f"127.0.0.1:{self.port}",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if b"serve_started" in line:
                return
        raise AssertionError("it ended")

    def kill(self) -> None:
        """As a crash ends it."""
        self.process.kill()
        self.process.communicate()

    def connect(self, **extra: Any) -> Session:
        """As of `Served`."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname="kept", user="me", sslmode="disable", autocommit=True, **extra,
        )  # fmt: skip


class Replication:
    """A client that streams.

    Args:
        served: the server.
        slot: name.
        lsn: where to begin.
        options: after the LSN, with parentheses.
        extra: of the connection.
    """

    def __init__(
        self, served: "Served | Process", slot: str, lsn: int = 0, options: str = "", **extra: Any
    ) -> None:
        self.session = served.connect(replication="database", **extra)
        self.connection = self.session.pgconn
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {Lsn(lsn)} {options}'
        result = self.connection.exec_(command.encode())
        if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
            state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b""
            text = result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) or b""
            self.session.close()
            raise ServeError(state.decode(), text.decode())

    def next(self) -> tuple[int, bytes] | None:
        """LSN and content of the next message; LSN alone of a keepalive; None at the end."""
        size, data = self.connection.get_copy_data(1)  # a wait inside of libpq would hold the GIL
        while size == 0:
            self._wait()
            size, data = self.connection.get_copy_data(1)
        if size < 0:
            while self.connection.is_busy():
                self._wait()
            result = self.connection.get_result()
            if result is not None and result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
                self.session.close()
                raise psycopg.OperationalError(result.error_message.decode())
            return None
        content = bytes(data)
        if content[:1] == b"k":
            return int.from_bytes(content[1:9], "big"), b""
        return int.from_bytes(content[1:9], "big"), content[25:]

    def _wait(self) -> None:
        assert select.select([self.connection.socket], [], [], _PATIENCE)[0], "silence"
        self.connection.consume_input()

    def until(self, lsn: int) -> list[tuple[int, bytes]]:
        """Messages until everything up to an LSN was sent."""
        found: list[tuple[int, bytes]] = []
        while (message := self.next()) is not None:
            if message[1]:
                found.append(message)
            elif message[0] >= lsn:
                break
        return found

    def rest(self) -> list[tuple[int, bytes]]:
        """Messages until the server ends the stream.

        Raises:
            psycopg.OperationalError: it ended it with an error.
        """
        found: list[tuple[int, bytes]] = []
        while (message := self.next()) is not None:
            found.append(message)
        return found

    def confirm(self, lsn: int) -> None:
        """Send a status, and ask for a keepalive."""
        self.connection.put_copy_data(b"r" + lsn.to_bytes(8, "big") * 3 + bytes(8) + b"\1")
        self.connection.flush()

    def close(self) -> None:
        """End the stream as clients do, and wait for the server's end."""
        self.connection.put_copy_end()
        self.rest()
        self.session.close()
