"""The receive buffer of a stream: bounded where the server is near, and only there."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from gaussdecode.ipc.control import Control
from gaussdecode.ipc.ring import Ring
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._status import StatusClock
from gaussdecode.source.postgresql._receive import PostgresReceiver
from gaussdecode.source.postgresql.libpq import FUNCTIONS

Pair = tuple[socket.socket, socket.socket]
KERNEL_FACTOR = 2
BOUND = 65536 * KERNEL_FACTOR


def tcp() -> Pair:
    """Both ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


@pytest.fixture
def receiver() -> Iterator[PostgresReceiver]:
    control, ring = Control.create(), Ring.create(1 << 16, 128)
    clock = StatusClock(0, time.monotonic_ns() // 1000, 0, 60_000_000)
    yield PostgresReceiver(control, Dispatcher([ring]), clock)
    ring.close()
    control.close()


@pytest.mark.parametrize(
    ("make", "is_encrypted", "is_bounded"),
    [(tcp, False, True), (tcp, True, False), (socket.socketpair, False, False)],
    ids=["tcp", "tls", "unix"],
)
def test_the_buffer_is_bounded(
    receiver: PostgresReceiver, make: Callable[[], Pair], is_encrypted: bool, is_bounded: bool
) -> None:
    ours, theirs = make()
    with ours, theirs:
        before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        functions = dict.fromkeys(FUNCTIONS, 0)
        receiver.attach_connection(ours, 0, functions, ours.fileno(), is_encrypted)
        after = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert receiver.is_narrow == is_bounded
    assert after == (BOUND if is_bounded else before)
