"""Open the TCP or Unix socket to a server, and TLS over it.

Given an endpoint and a deadline, `open_socket` gives a socket on which nothing was said
yet. Every failure is a `SourceError` that names the endpoint, or a `LoginRefusedError`
when TLS did not prove what it must.
"""

import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gaussdecode.errors import LoginRefusedError
from gaussdecode.protocol.gaussdb import messages
from gaussdecode.source.certificates import verification_problem
from gaussdecode.source.gaussdb.errors import broken
from gaussdecode.source.gaussdb.target import Endpoint, Target, tls_context
from gaussdecode.source.sqlstate import Phase

Socket = socket.socket | ssl.SSLSocket
Place = tuple[int, Any]  # Any: address family and what `socket.connect` takes for it
_IN_PLAIN: Final = (
    "TLS failed: the answer is in plain text. A server that refuses a connection does that; its log says why "
    "(too many connections, a start or a stop, pg_hba.conf)"
)


def ways(endpoint: Endpoint, mode: str) -> tuple[bool, ...]:
    """With TLS or without, in the order that sslmode says."""
    if endpoint.is_local or mode == "disable":
        return (False,)
    return {"allow": (False, True), "prefer": (True, False)}.get(mode, (True,))


def places(endpoint: Endpoint) -> Iterator[Place]:
    """Look a host up.

    Raises:
        SourceError: it is not known.
    """
    if endpoint.is_local:
        yield socket.AF_UNIX, endpoint.socket_path
        return
    try:
        found = socket.getaddrinfo(endpoint.address, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise broken(Phase.CONNECT, f"host {endpoint.address!r} is not known") from None
    for family, _, _, _, place in found:
        yield family, place


def open_socket(
    endpoint: Endpoint, place: Place, target: Target, deadline: float, *, is_tls: bool
) -> Socket:
    """Reach one address.

    Args:
        endpoint: whom a certificate must name.
        place: one of its addresses.
        target: socket options and what TLS needs.
        deadline: deadline on the monotonic clock.
        is_tls: agree upon TLS; with ``prefer`` the server may say no.

    Raises:
        ConfigError: a file of TLS will not do.
        SourceError: it cannot be reached now.
        LoginRefusedError: it has no TLS, or does not prove who it is.
    """
    family, address = place
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(deadline))
        if not endpoint.is_local:
            _keep_alive(sock, target.numbers)
        sock.connect(address)
        return _secured(sock, endpoint, target, deadline) if is_tls else sock
    except OSError as error:
        sock.close()
        raise broken(Phase.CONNECT, f"{endpoint}: {reason_of(error)}") from None
    except BaseException:
        sock.close()
        raise


def _secured(sock: socket.socket, endpoint: Endpoint, target: Target, deadline: float) -> Socket:
    context = tls_context(target.tls)
    sock.settimeout(_left(deadline))
    sock.sendall(messages.ssl_request())
    answer = sock.recv(1)  # one byte: whatever follows must come through TLS
    if answer == b"S":
        return _verified(context, sock, endpoint)
    if answer == b"N" and target.tls.mode == "prefer":
        return sock
    if not answer:
        raise broken(Phase.CONNECT, f"{endpoint}: the server closed the connection")
    if answer == b"E":  # what it says then is nobody's word: TLS has not proved who it is
        raise broken(Phase.CONNECT, f"{endpoint}: {_IN_PLAIN}")
    raise LoginRefusedError(f"connecting: {endpoint}: the server has no TLS; turn ssl on there")


def _verified(context: ssl.SSLContext, sock: socket.socket, endpoint: Endpoint) -> ssl.SSLSocket:
    secured = context.wrap_socket(
        sock, server_hostname=endpoint.host, do_handshake_on_connect=False
    )
    try:
        secured.do_handshake()
    except ssl.SSLCertVerificationError as error:
        problem = verification_problem(error, secured, context)
        secured.close()
        raise LoginRefusedError(f"connecting: {endpoint}: {problem}") from None
    except BaseException:
        secured.close()
        raise
    return secured


def _left(deadline: float) -> float | None:
    left = deadline - time.monotonic()
    return None if left == float("inf") else max(left, 0.001)


def reason_of(error: OSError) -> str:
    """Describe the failure of a socket, without the library's additions."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return _IN_PLAIN
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'})"
    return os.strerror(error.errno) if error.errno else "the connection broke"


def _keep_alive(sock: socket.socket, numbers: Mapping[str, int]) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(numbers["keepalives"] != 0))
    for option, key in (
        (socket.TCP_KEEPIDLE, "keepalives_idle"),
        (socket.TCP_KEEPINTVL, "keepalives_interval"),
        (socket.TCP_KEEPCNT, "keepalives_count"),
        (socket.TCP_USER_TIMEOUT, "tcp_user_timeout"),
    ):
        if numbers[key]:
            sock.setsockopt(socket.IPPROTO_TCP, option, numbers[key])
