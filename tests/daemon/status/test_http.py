"""Tests for `gaussdecode.daemon.status.http`."""

import http.client
import json
import socket
import threading
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
        readiness=lambda: (daemon.reason is None, daemon.reason or "ready"),
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


def test_a_query_is_passed_over(server: MonitoringServer) -> None:
    """Some probes add one."""
    assert ask(server, "/livez?verbose=1")[0] == 200


def test_head_has_no_body(server: MonitoringServer) -> None:
    """HEAD is answered with headers only."""
    assert ask(server, "/metrics", "HEAD") == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(server: MonitoringServer, method: str) -> None:
    """Only GET and HEAD exist."""
    assert ask(server, "/metrics", method)[0] == 501


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/../etc/passwd", "//[", "?", "/%00"])
def test_unknown_paths_are_404(server: MonitoringServer, path: str) -> None:
    """No page but the four."""
    assert ask(server, path)[0] == 404


def test_a_taken_port_is_a_configuration_error(server: MonitoringServer, daemon: Daemon) -> None:
    """The message names key, address and what to do."""
    message = rf"monitoring\.listen: {server.address}: the port is taken .* choose another"
    with pytest.raises(ConfigError, match=message):
        serve(daemon, server.address)


def _connected(server: MonitoringServer, count: int, said: bytes) -> list[socket.socket]:
    """Clients that say something, and read nothing."""
    address = (server.address.host, server.address.port)
    clients = [socket.create_connection(address, timeout=10) for _ in range(count)]
    for client in clients:
        client.sendall(said)
    return clients


@pytest.mark.parametrize("said", [b"", b"GET /met", b"GET /metrics HTTP/1.0\r\nX: y\r\n"])
def test_silent_clients_cost_no_scrape(
    server: MonitoringServer, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """More of them than there are places: each scrape is answered; time ends those that are left."""
    silent = _connected(server, 3 * MAX_CONNECTIONS, said)
    try:
        for _ in range(10):
            assert ask(server, "/metrics") == (200, b"a 1\n")
        ended = sum(_is_ended(client) for client in silent)
        assert 2 * MAX_CONNECTIONS <= ended < 3 * MAX_CONNECTIONS, "only as many as had to go"
        monkeypatch.setattr(monitoring, "MAX_SECONDS", 0.0)
        for client in silent:
            assert client.recv(1) == b""
    finally:
        for client in silent:
            client.close()


def test_it_answers_where_the_system_has_no_thread(
    server: MonitoringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request after the other; who says nothing, or half of it, is not waited for."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    where = (server.address.host, server.address.port)
    for _ in range(2 * MAX_CONNECTIONS):
        assert ask(server, "/livez")[0] == 200
    monkeypatch.setattr(monitoring._Handler, "timeout", 600.0)
    for said in (b"", b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n"):
        with socket.create_connection(where) as slow:
            slow.sendall(said)
            assert ask(server, "/livez")[0] == 200
            assert not slow.recv(1)


def test_clients_that_have_room_are_left_alone(server: MonitoringServer) -> None:
    """As many as there are places, in any state, each of them answered in the end."""
    slow = _connected(server, MAX_CONNECTIONS - 1, b"GET /livez HTTP/1.0\r\n")
    for _ in range(3):
        (quick,) = _connected(server, 1, b"GET /livez HTTP/1.0\r\n\r\n")
        with quick, quick.makefile("rb") as answer:
            # To its end: only then is the place free again, which the body's length does not tell.
            assert answer.read().startswith(b"HTTP/1.0 200")
    for client in slow:
        client.sendall(b"\r\n")
        assert client.recv(12) == b"HTTP/1.0 200"
        client.close()


def _is_ended(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    finally:
        client.settimeout(10)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200), ("localhost:19187", 200), ("[::1]:9", 200), ("slot.localhost", 200),
        ("10.0.0.7", 200), ("", 200), ("evil.example", 421), ("localhost.evil.example:19187", 421),
        ("127.0.0.1.nip.io", 421), ("[", 421),
    ],
)  # fmt: skip
def test_a_name_of_others_is_refused(server: MonitoringServer, host: str, status: int) -> None:
    """Whose DNS points a name at this machine does not get to read through a browser here."""
    head = f"GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    (client,) = _connected(server, 1, head.encode())
    with client, client.makefile("rb") as answer:
        line, body = answer.readline(), answer.read()
    assert int(line.split()[1]) == status
    assert (b"orders" in body) is (status == 200)


def test_every_name_is_taken_where_others_may_ask(daemon: Daemon) -> None:
    """A machine has many names; which of them Prometheus uses nobody knows."""
    server = serve(daemon, Address("0.0.0.0", 0))
    try:
        head = b"GET /livez HTTP/1.1\r\nHost: db7.example\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.address.port), timeout=10) as client:
            client.sendall(head)
            assert client.makefile("rb").readline().split()[1] == b"200"
    finally:
        server.close()


def test_tls_is_refused_at_once(server: MonitoringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake need not hold the end of a line, which would be waited for."""
    monkeypatch.setattr(monitoring._Handler, "timeout", 600.0)
    monkeypatch.setattr(monitoring, "MAX_SECONDS", 600.0)
    (client,) = _connected(server, 1, b"\x16\x03\x01\x02\x00\x01")
    with client:
        client.settimeout(60)
        assert client.recv(100).startswith(b"HTTP/1.0 400")


def test_port_is_free_after_close(daemon: Daemon) -> None:
    """A restart gets the same port."""
    first = serve(daemon)
    address = first.address
    first.close()
    serve(daemon, address).close()
