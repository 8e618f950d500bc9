"""Ports for servers that are started a moment later."""

import random
import socket

import pytest

from gaussdecode.demo import ports


def test_never_one_of_outgoing_connections() -> None:
    """The kernel gives the ports from this number on to connections of anybody."""
    low = int(ports._EPHEMERAL_RANGE.read_text().split()[0])
    assert all(10240 <= ports.free_port() < low for _ in range(50))


def test_used_ports_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port with a listener is not given, and the next try is."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy, free = taken.getsockname()[1], ports.free_port()
        monkeypatch.setattr(ports, "_given", set())
        draws = iter([busy, busy, free])
        monkeypatch.setattr(random, "randrange", lambda *_: next(draws))
        assert ports.free_port() == free


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the first may be down for a moment."""
    first, second = ports.free_port(), ports.free_port()
    monkeypatch.setattr(ports, "_given", set())
    draws = iter([first, first, second])
    monkeypatch.setattr(random, "randrange", lambda *_: next(draws))
    assert [ports.free_port(), ports.free_port()] == [first, second]


def test_none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where was looked."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(random, "randrange", lambda *_: taken.getsockname()[1])
        with pytest.raises(OSError, match=r"no free TCP port on 127\.0\.0\.1 among"):
            ports.free_port()


def test_kernel_chooses_where_all_ports_are_ephemeral(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range that begins at 1024 leaves none to us."""
    monkeypatch.setattr(ports, "_ephemeral_start", lambda: 1024)
    assert ports.free_port() > 0
