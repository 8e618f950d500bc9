"""Tests for `gaussdecode.daemon.status.http`."""

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from gaussdecode.daemon.status import http as monitoring
from gaussdecode.daemon.status.http import MAX_CONNECTIONS, MonitoringServer
from gaussdecode.errors import ConfigError
from gaussdecode.settings.types import Address

LOOPBACK = Address("127.0.0.1", 0)


class Daemon:
    """What the server shows; tests change it."""

    alive = True
    reason: str | None = None

    def metrics(self) -> bytes:
        """Some text."""
        return b"a 1\n"

    def status(self) -> dict[str, object]:
        """A record, or a failure when the slot is called broken."""
        if self.reason == "broken":
            raise ZeroDivisionError
        return {"slot_name": "orders"}


def serve(daemon: Daemon, listen: Address = LOOPBACK) -> MonitoringServer:
    """Start a server."""
    server = MonitoringServer(
        listen,
        render_metrics=daemon.metrics,
        take_status=daemon.status,
        is_alive=lambda: daemon.alive,
        why_not_ready=lambda: daemon.reason,
    )
    server.start()
    return server


@pytest.fixture
def daemon() -> Daemon:
    """A healthy one."""
    return Daemon()


@pytest.fixture
def server(daemon: Daemon) -> Iterator[MonitoringServer]:
    """A running server."""
    running = serve(daemon)
    yield running
    running.close()


def ask(server: MonitoringServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    """Send one request."""
    connection = http.client.HTTPConnection(server.address.host, server.address.port, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_pages(server: MonitoringServer) -> None:
    """Each page says what its callable gives."""
    assert ask(server, "/metrics") == (200, b"a 1\n")
    status, body = ask(server, "/status?x=1")
    assert (status, json.loads(body)) == (200, {"slot_name": "orders"})
    assert ask(server, "/livez") == (200, b"alive\n")
    assert ask(server, "/readyz") == (200, b"ready\n")


def test_ill_health_is_503(server: MonitoringServer, daemon: Daemon) -> None:
    """Probes see the reason and a status that says no."""
    daemon.alive, daemon.reason = False, "connecting"
    assert ask(server, "/livez") == (503, b"no progress\n")
    assert ask(server, "/readyz") == (503, b"connecting\n")


def test_a_failing_page_tells_nothing(server: MonitoringServer, daemon: Daemon) -> None:
    """An error inside is 500 without detail, and the next request works."""
    daemon.reason = "broken"
    assert ask(server, "/status") == (500, b"failed\n")
    assert ask(server, "/metrics")[0] == 200


def test_head_has_no_body(server: MonitoringServer) -> None:
    """HEAD is answered with headers only."""
    assert ask(server, "/metrics", "HEAD") == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(server: MonitoringServer, method: str) -> None:
    """Only GET and HEAD exist."""
    assert ask(server, "/metrics", method)[0] == 501


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/../etc/passwd"])
def test_unknown_paths_are_404(server: MonitoringServer, path: str) -> None:
    """No page but the four."""
    assert ask(server, path)[0] == 404


def test_a_taken_port_is_a_configuration_error(server: MonitoringServer, daemon: Daemon) -> None:
    """The message names key, address and what to do."""
    message = rf"monitoring\.listen: {server.address}: the port is taken .* choose another"
    with pytest.raises(ConfigError, match=message):
        serve(daemon, server.address)


def test_too_many_clients_are_turned_away(
    server: MonitoringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent connections fill the places; the next client is told so; time frees them."""
    address = (server.address.host, server.address.port)
    silent = [socket.create_connection(address, timeout=10) for _ in range(MAX_CONNECTIONS)]
    try:
        late = socket.create_connection(address, timeout=10)
        assert late.recv(100).startswith(b"HTTP/1.0 503")
        late.close()
        monkeypatch.setattr(monitoring, "MAX_SECONDS", 0.0)
        for connection in silent:
            assert connection.recv(1) == b""
    finally:
        for connection in silent:
            connection.close()
    monkeypatch.undo()
    while ask(server, "/livez")[0] == 503:
        time.sleep(0.01)


def test_port_is_free_after_close(daemon: Daemon) -> None:
    """A restart gets the same port."""
    first = serve(daemon)
    address = first.address
    first.close()
    serve(daemon, address).close()
