"""Serve the status over HTTP to Prometheus, ``gaussdecode status`` and load balancers.

It calls the given callables from its own threads, for GET and HEAD. With a token it takes acts too, as
``POST /ctl`` (`daemon.control`). It serves at most
`MAX_CONNECTIONS` clients at once, for `MAX_SECONDS` each; one more client ends the oldest connection. So slow
or silent clients cost no scrape. No client can reach the data path. An
error in a callable is answered with 500 and no detail.

With TLS each handshake is done by the thread of its connection, within the same limits. A client that has shown
a certificate of an authority that the configuration names may act without a token. A browser shows it for a page of another
origin too, so that such a page is refused by its Origin.

A server on a loopback address answers only requests whose host is a loopback name or address. Otherwise a
page in the operator's browser could read ours through a DNS name that points to loopback.
"""

import errno
import io
import ipaddress
import json
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from gaussdecode.daemon.status._assets import CONTENT_POLICY
from gaussdecode.daemon.status.guide import render_guide
from gaussdecode.errors import ConfigError
from gaussdecode.metrics.exposition import CONTENT_TYPE
from gaussdecode.model.words import printable
from gaussdecode.settings.types import Address

MAX_CONNECTIONS: Final = 16  # arbitrary; Prometheus needs one
MAX_SECONDS: Final = 10.0  # one request, first byte to last
_IDLE_SECONDS: Final = 5.0  # between two bytes
_POLL_SECONDS: Final = 0.25
_MOST_BYTES: Final = (
    65536  # of a request that came without TLS, read so that its answer arrives; arbitrary
)
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"
_FOREIGN: Final = b"not for this host; ask for 127.0.0.1, [::1] or localhost\n"
NEEDS_TLS: Final = b"this port speaks TLS only; use https://\n"
"""Content of the answer to a request without TLS."""
_HAS_NO_TLS: Final = b"this port does not speak TLS; use http://\n"
_BAD: Final = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
)
_HANDSHAKE: Final = b"\x16"  # first byte of TLS

Page = tuple[HTTPStatus, str, bytes]
"""Status, content type and content."""
Find = Callable[[str, str | None], Callable[[], Page] | None]
"""Given a path, and the name in a certificate of the client that is good in place of a token, finds what makes its page."""
Post = Callable[[str, str, bytes, bool], Page]
"""Given what stands in Authorization, who asks, the content of a request, and whether a certificate of the client
is good in place of a token, answers it."""
MAX_CONTENT: Final = 4096
"""Longest content of a request; bytes."""
_Request = socket.socket | tuple[bytes, socket.socket]  # socketserver's; the pair is for UDP


def html(body: bytes) -> Page:
    """A page for people."""
    return HTTPStatus.OK, _HTML, body


def record(content: object) -> Page:
    """A page for programs."""
    return HTTPStatus.OK, _JSON, json.dumps(content).encode()


class PageServer:
    """Serves pages until it is closed.

    Args:
        name: name of the setting that says where, for errors.
        listen: address to listen at; port 0 takes any free one, see `address`.
        find: gives what makes the page of a path, or None where there is none.
        post: answers ``POST /ctl``; None where nothing does.
        tls: gives what a new connection is to use; None for no TLS.

    Raises:
        ConfigError: the address cannot be had.
    """

    def __init__(
        self,
        name: str,
        listen: Address,
        find: Find,
        post: Post | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        try:
            self._server = _Server(listen, find, post, tls)
        except OSError as error:
            raise ConfigError(f"{name}: {listen}: {_explain(error)}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True
        )

    @property
    def address(self) -> Address:
        """Address with the real port."""
        host, port = self._server.server_address[:2]
        return Address(str(host), int(port))

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class MonitoringServer(PageServer):
    """Serves /, /alerts, /metrics, /status, /livez and /readyz until it is closed.

    Args:
        listen: address to listen at; port 0 takes any free one, see `address`.
        render_metrics: text of /metrics.
        take_status: content of /status, fit for JSON.
        is_alive: whether the stages make progress.
        readiness: whether changes are streamed and landed, and what to say.
        render_page: text of /, given the name in a certificate of the client that is good in place of a token;
            None for no such page.
        act: answers ``POST /ctl``; None for no acts.
        tls: gives what a new connection is to use; None for no TLS.
        name: name of the setting that says where, for errors.

    Attributes:
        scrapes: how often /metrics was asked for; counted before it is read.

    Raises:
        ConfigError: the address cannot be had.
    """

    def __init__(
        self,
        listen: Address,
        *,
        render_metrics: Callable[[], bytes],
        take_status: Callable[[], Mapping[str, object]],
        is_alive: Callable[[], bool],
        readiness: Callable[[], tuple[bool, str]],
        render_page: Callable[[str | None], bytes] | None = None,
        act: Post | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        name: str = "monitoring.listen",
    ) -> None:
        self.scrapes = 0

        def live() -> Page:
            alive = is_alive()
            return _plain(alive, "alive" if alive else "no progress")

        def ready() -> Page:
            return _plain(*readiness())

        def scraped() -> Page:
            self.scrapes += 1
            return HTTPStatus.OK, CONTENT_TYPE, render_metrics()

        pages: dict[str, Callable[[], Page]] = {
            "/metrics": scraped,
            "/status": lambda: record(dict(take_status())),
            "/livez": live,
            "/readyz": ready,
            "/alerts": lambda: html(render_guide()),
        }

        def find(path: str, name: str | None) -> Callable[[], Page] | None:
            if path == "/" and render_page is not None:
                return lambda: html(render_page(name))
            return pages.get(path)

        super().__init__(name, listen, find, act, tls)


def _plain(is_good: bool, text: str) -> Page:
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return status, _TEXT, f"{text}\n".encode()


def _explain(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is taken by another program; choose another, one per slot"
    return error.strerror or "cannot be used"


class _Server(ThreadingHTTPServer):
    """Counts its connections and ends those that last too long, or that others need the place of."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        listen: Address,
        find: Find,
        post: Post | None,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self.find = find
        self.post = post
        self._tls = tls
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        family = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0][0]
        self.address_family = family
        super().__init__((listen.host, listen.port), _Handler)
        self.is_loopback = ipaddress.ip_address(str(self.server_address[0])).is_loopback

    def server_bind(self) -> None:
        """Bind without the name lookup of http.server, which may block."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:  # Any: an address of any family
        """Take a connection; its handshake is its thread's."""
        request, address = super().get_request()
        if self._tls is None:
            return request, address
        try:
            return self._tls().wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            ), address
        except BaseException:
            request.close()
            raise

    def process_request(self, request: _Request, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        with self._lock:
            surplus = list(self._open)[: max(0, len(self._open) + 1 - MAX_CONNECTIONS)]
            for oldest in surplus:
                del self._open[oldest]
            self._open[request] = time.monotonic()
        for oldest in surplus:
            _hang_up(oldest)
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The system gives no more threads. Answered here, one after the other: what the
            # daemon says of itself matters most on such a machine. Nobody is waited for long.
            with self._lock:
                self._open[request] = time.monotonic() + _POLL_SECONDS - MAX_SECONDS
            self.process_request_thread(request, client_address)

    def finish_request(self, request: _Request, client_address: object) -> None:
        """Serve a client that is who it must be."""
        assert isinstance(request, socket.socket)
        if not isinstance(request, ssl.SSLSocket) or _shakes_hands(request, self.left(request)):
            super().finish_request(request, client_address)

    def left(self, request: socket.socket) -> float:
        """Seconds that a connection may still take; more than 0."""
        with self._lock:
            since = self._open.get(request, 0.0)
        return max(since + MAX_SECONDS - time.monotonic(), 0.001)

    def shutdown_request(self, request: _Request) -> None:
        assert isinstance(request, socket.socket)
        with self._lock:
            self._open.pop(request, None)
        if isinstance(request, ssl.SSLSocket):
            _say_goodbye(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that have had their time; called at each poll."""
        limit = time.monotonic() - MAX_SECONDS
        with self._lock:
            late = [request for request, since in self._open.items() if since < limit]
        for request in late:
            _hang_up(request)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """Say nothing: a client that went away is no event."""


def _shakes_hands(request: ssl.SSLSocket, seconds: float) -> bool:
    """Agree upon TLS within a time; a client that speaks plain HTTP is told so."""
    request.settimeout(min(_IDLE_SECONDS, seconds))
    try:
        request.do_handshake()
    except ssl.SSLError as error:
        if error.reason == "HTTP_REQUEST":
            request.setblocking(False)
            socket.socket.recv(request, _MOST_BYTES)  # unread, it would end the connection early
            socket.socket.send(request, _BAD % (len(NEEDS_TLS), NEEDS_TLS))
        return False
    return True


def _say_goodbye(request: ssl.SSLSocket) -> None:
    """Tell that the answer is whole; whether the client says so too is not waited for."""
    try:
        request.setblocking(False)
        request.unwrap()
    except (OSError, ValueError):
        pass


def _hang_up(request: socket.socket) -> None:
    """End a connection; the thread that serves it closes it.

    That of an `SSLSocket` would first forget TLS, and its thread could go on without.
    """
    try:
        socket.socket.shutdown(request, socket.SHUT_RDWR)
    except OSError:
        pass


def _is_local(host: str | None) -> bool:
    """Whether a request's Host is an address or localhost, which no DNS of others can point here."""
    name = ""
    try:
        name = urlsplit(f"//{host or 'localhost'}").hostname or ""
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return True


class _Timed(io.RawIOBase):
    """What a client sends, in the time that it has."""

    def __init__(self, server: _Server, request: socket.socket, idle: float) -> None:
        super().__init__()
        self._server = server
        self._request = request
        self._idle = idle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # Any: a buffer
        self._request.settimeout(min(self._idle, self._server.left(self._request)))
        return self._request.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    rfile: io.BufferedReader
    timeout = _IDLE_SECONDS
    server_version = "gaussdecode"
    sys_version = ""

    def setup(self) -> None:
        """Read from the client in its time."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Timed(self.server, self.connection, self.timeout))

    def handle_one_request(self) -> None:
        """Answer, also a client that begins with TLS where there is none: its bytes need not hold a line."""
        if self.rfile.peek(1)[:1] == _HANDSHAKE:
            self.wfile.write(_BAD % (len(_HAS_NO_TLS), _HAS_NO_TLS))
        else:
            super().handle_one_request()

    def do_GET(self) -> None:
        """Answer with a page."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer with a page's headers."""
        self._answer()

    def do_POST(self) -> None:
        """Carry an act out; a server without acts has no such method."""
        if self.server.post is None:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED)
        else:
            self._answer()

    def _posted(self, post: Post) -> Page:
        """Answer a request with content; the content is read where it is short enough."""
        length = self.headers["Content-Length"] or ""
        if not (length.isascii() and length.isdigit() and int(length) <= MAX_CONTENT):
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TEXT, b"4096 bytes of JSON are allowed\n"
        client = f"HTTP client {self.client_address[0]}"
        name = None if self._is_of_another_page() else self._certified()
        if name is not None:
            client += f", certificate {name}"
        content = self.rfile.read(int(length))
        return post(self.headers["Authorization"] or "", client, content, name is not None)

    def _is_of_another_page(self) -> bool:
        """A browser asks for a page of another origin; it shows a certificate without asking anybody."""
        origin, site = self.headers["Origin"], self.headers["Sec-Fetch-Site"]
        is_ours = origin is None or origin == f"https://{self.headers['Host']}"
        return not is_ours or site not in {None, "same-origin"}

    def _certified(self) -> str | None:
        """Common name of the certificate that the client itself has shown, and that is good; else None."""
        if not isinstance(self.connection, ssl.SSLSocket):
            return None
        shown = self.connection.getpeercert()
        if not shown:
            return None
        subject: Any = shown.get("subject", ())  # Any: pairs of ssl's
        names = dict(pair for part in subject for pair in part)
        return repr(printable(names.get("commonName", "without a name")))

    def _answer(self) -> None:
        path, post = self.path.partition("?")[0], self.server.post
        page = self.server.find(path, self._certified())
        if self.command == "POST":
            page = None if post is None or path != "/ctl" else lambda: self._posted(post)
        status, content_type, body = HTTPStatus.NOT_FOUND, _TEXT, b"not found\n"
        if self.server.is_loopback and not _is_local(self.headers["Host"]):
            status, body = HTTPStatus.MISDIRECTED_REQUEST, _FOREIGN
        elif page is not None:
            try:
                status, content_type, body = page()
            except Exception:  # noqa: BLE001 (a page must not end the thread or tell why)
                status, content_type = HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT
                body = b"failed\n"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", CONTENT_POLICY)
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a scrape is no event."""
