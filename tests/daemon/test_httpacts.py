"""Acts over HTTP: with the right token alone, and whatever a client sends."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaussdecode.daemon.control import Answer
from gaussdecode.daemon.httpacts import HttpActs
from gaussdecode.daemon.status.http import MAX_CONTENT, MonitoringServer
from gaussdecode.settings.types import Address

TOKEN = "0123456789abcdef"
PAUSE = b'{"act": "pause"}'


class _Served:
    """A server, its token's file, and what was asked for."""

    def __init__(self, token_file: Path | None) -> None:
        self.asked: list[tuple[object, object, str]] = []
        self.token_file = token_file
        self.server = MonitoringServer(
            Address("127.0.0.1", 0),
            render_metrics=lambda: b"",
            take_status=dict,
            is_alive=lambda: True,
            readiness=lambda: (True, "ready"),
            act=HttpActs(self._ask, token_file),
        )
        self.server.start()

    def _ask(self, act: object, table: object, by: str, _seconds: float) -> Answer:
        self.asked.append((act, table, by))
        return Answer(is_done=act == "pause", text="told")

    def post(
        self,
        token: str | None,
        content: bytes = PAUSE,
        path: str = "/ctl",
        *,
        length: str | None = None,
        host: str = "localhost",
    ) -> int:
        """Ask; the status of the answer."""
        connection = http.client.HTTPConnection(
            self.server.address.host, self.server.address.port, timeout=60
        )
        headers = {"Host": host, "Content-Length": length or str(len(content))}
        if token is not None:
            headers["Authorization"] = token
        try:
            connection.request("POST", path, content, headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.getheader("Content-Type") == "application/json":
            assert json.loads(body).keys() == {"is_done", "text"}
            assert TOKEN.encode() not in body
        return response.status


@pytest.fixture
def served(tmp_path: Path) -> Iterator[_Served]:
    """A server with a token."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    running = _Served(path)
    yield running
    running.server.close()


def test_the_token_lets_in(served: _Served) -> None:
    """The act is that of the client, whose address is named; a refused one is a conflict."""
    assert served.post(f"Bearer {TOKEN}") == 200
    assert served.post(f"Bearer {TOKEN}", b'{"act": "snapshot", "table": "s.t"}') == 409
    by = "HTTP client 127.0.0.1"
    assert served.asked == [("pause", None, by), ("snapshot", "s.t", by)]


@pytest.mark.parametrize(
    "token",
    [None, "", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
     "Bearer \xe4\xf6"],
)  # fmt: skip
def test_any_other_token_does_not(served: _Served, token: str | None) -> None:
    """Nothing is done."""
    assert served.post(token) == 401
    assert served.asked == []


@pytest.mark.parametrize("content", [b"", b"pause", b"[]", b"null", b"\xff", b"[" * 4000])
def test_what_is_no_request_is_refused(served: _Served, content: bytes) -> None:
    """Garbage with the right token is a bad request."""
    assert served.post(f"Bearer {TOKEN}", content) == 400
    assert served.asked == []


def test_long_and_foreign_requests_are_refused(served: _Served) -> None:
    """Before the token is looked at; other paths and other methods have no acts."""
    good = f"Bearer {TOKEN}"
    assert served.post(good, PAUSE + b" " * MAX_CONTENT) == 413
    assert served.post(good, length="-1") == 413
    assert served.post(good, host="evil.example") == 421
    assert served.post(good, path="/") == 404
    assert served.post(good, path="/status") == 404
    assert served.asked == []


def test_the_token_may_change(served: _Served) -> None:
    """It is read for each request; one that is too short, open to others or away lets nobody in."""
    assert served.token_file is not None
    served.token_file.write_text("fedcba9876543210\n")
    assert served.post(f"Bearer {TOKEN}") == 401
    assert served.post("Bearer fedcba9876543210") == 200
    served.token_file.write_text("short\n")
    assert served.post("Bearer short") == 403
    served.token_file.write_text(TOKEN)
    served.token_file.chmod(0o644)
    assert served.post(f"Bearer {TOKEN}") == 403
    served.token_file.unlink()
    assert served.post(f"Bearer {TOKEN}") == 403


def test_without_a_token_nobody_may() -> None:
    """No token is configured: every act is refused, also with an empty one."""
    running = _Served(None)
    try:
        assert running.post(f"Bearer {TOKEN}") == 403
        assert running.post("Bearer ") == 403
        assert running.asked == []
    finally:
        running.server.close()
