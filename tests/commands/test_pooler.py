"""A connection pooler in front of a PostgreSQL: what it does not pass on is noticed, and said.

`Pooler` does what PgBouncer 1.18 was seen to do: it refuses parameters of the startup message, or
leaves out those that its ignore_startup_parameters names.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.daemon import Daemon
from kit.postgres import Database
from kit.proxy import Proxy

from gaussdecode.errors import EX_CONFIG

pytestmark = pytest.mark.integration
POOLER = "a connection pooler such as PgBouncer is in between"
PROTOCOL_3 = 3 << 16


class Pooler(Proxy):
    """Leaves parameters out of startup messages, or refuses the first that it does not know."""

    refused: tuple[bytes, ...] = ()
    ignored: tuple[bytes, ...] = ()

    def start_up(self, data: bytes) -> tuple[bytes, bytes]:
        """See `Proxy`."""
        size, protocol = struct.unpack_from(">II", data)
        if protocol != PROTOCOL_3:
            return data, b""
        words = data[8 : size - 2].split(b"\0")
        given = dict(zip(words[::2], words[1::2], strict=True))
        for name in given:
            if name in self.refused:
                return b"", _fatal(b"unsupported startup parameter: " + name)
        kept = b"".join(
            name + b"\0" + value + b"\0"
            for name, value in given.items()
            if name not in self.ignored
        )
        return struct.pack(">II", len(kept) + 9, protocol) + kept + b"\0" + data[size:], b""


def _fatal(text: bytes) -> bytes:
    body = b"SFATAL\0C08P01\0M" + text + b"\0\0"
    return b"E" + struct.pack(">I", len(body) + 4) + body


@pytest.fixture
def pooler(database_15: Database) -> Iterator[Pooler]:
    """In front of the server."""
    with Pooler(database_15.server.port) as proxy:
        yield proxy


def through(pooler: Pooler, database: Database, path: str) -> str:
    """Have a configuration go through it."""
    text = Path(path).read_text()
    Path(path).write_text(text.replace(f"port={database.server.port}", f"port={pooler.port}"))
    return path


@pytest.mark.parametrize(
    ("refused", "ignored", "commands"),
    [
        ((b"replication",), (), ("check", "slot create", "slot list")),
        ((b"options",), (), ("check", "slot create", "slot list")),
        ((), (b"replication",), ("check", "slot create")),
        ((), (b"options",), ("check", "slot create", "slot list")),
        ((), (b"options", b"replication"), ("check", "slot create", "slot list")),
    ],
)
def test_commands(
    database_15: Database,
    pooler: Pooler,
    configure: Configure,
    run: Run,
    refused: tuple[bytes, ...],
    ignored: tuple[bytes, ...],
    commands: tuple[str, ...],
) -> None:
    """They say who is in between and what to do; trying again is no help."""
    pooler.refused, pooler.ignored = refused, ignored
    path = through(pooler, database_15, configure(database_15))
    for command in commands:
        result = run(*command.split(), path)
        assert result.status == EX_CONFIG, command
        assert POOLER in result.out + result.err
        assert "may pass by itself" not in result.out + result.err


@pytest.mark.parametrize("ignored", [b"options", b"replication"])
def test_daemon(
    database_15: Database,
    pooler: Pooler,
    make_daemon: Callable[..., Daemon],
    ignored: bytes,
) -> None:
    """It ends, and no row lands that may look different, or that others are missing beside."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database_15.execute("INSERT INTO public.t VALUES (1)")
    database_15.create_slot()
    dsn = database_15.dsn.replace(f"port={database_15.server.port}", f"port={pooler.port}")
    daemon = make_daemon(database_15, dsn=dsn, config={"snapshot": {"mode": "initial"}})
    daemon.begin()
    pooler.ignored = (ignored,)
    with daemon:
        assert daemon.wait() == EX_CONFIG
        assert POOLER in daemon.log_tail()
    assert not any(entry["files"] for entry in daemon.entries())


def test_pooler_that_passes_everything_on(
    database_15: Database, pooler: Pooler, make_daemon: Callable[..., Daemon]
) -> None:
    """It is no hindrance."""
    database_15.create_slot()
    dsn = database_15.dsn.replace(f"port={database_15.server.port}", f"port={pooler.port}")
    with make_daemon(database_15, dsn=dsn) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
