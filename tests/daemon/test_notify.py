"""Tests for `gaussdecode.daemon.notify`."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaussdecode.daemon.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket as systemd makes one, and its name."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(60)
    if request.param == "path":
        name = str(tmp_path / "notify")
        listener.bind(name)
    else:
        name = f"@gaussdecode-test-{os.getpid()}"
        listener.bind("\0" + name[1:])
    yield listener, name
    listener.close()


def test_messages(systemd: tuple[socket.socket, str]) -> None:
    """Each call is one datagram in systemd's spelling; a status stays on one line."""
    listener, name = systemd
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    notifier.ready("streaming\nnow")
    notifier.status("lag 3s")
    notifier.stopping("asked to")
    notifier.extend(1.5)
    notifier.close()
    received = [listener.recv(1000) for _ in range(4)]
    assert received == [
        b"READY=1\nSTATUS=streaming now",
        b"STATUS=lag 3s",
        b"STOPPING=1\nSTATUS=asked to",
        b"EXTEND_TIMEOUT_USEC=1500000",
    ]


def test_watchdog_is_fed_by_progress_only(systemd: tuple[socket.socket, str]) -> None:
    """A third of the time apart while alive; not at all when nothing moves."""
    listener, name = systemd
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
    assert notifier.feed(100.0, lambda: True)
    assert notifier.feed(109.9, lambda: False)
    assert not notifier.feed(110.0, lambda: False)
    assert notifier.feed(110.1, lambda: True)
    notifier.close()
    listener.setblocking(False)
    assert [listener.recv(100), listener.recv(100)] == [b"WATCHDOG=1"] * 2
    with pytest.raises(BlockingIOError):
        listener.recv(100)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "relative"},
        {"NOTIFY_SOCKET": "/nonexistent/socket"},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "soon"},
    ],
)
def test_outside_systemd_nothing_happens(environment: dict[str, str]) -> None:
    """No call fails, and no watchdog is expected."""
    notifier = Notifier.from_environment(environment)
    notifier.ready("x")
    assert notifier.feed(0.0, lambda: False)
    notifier.close()
    notifier.status("after the end")
