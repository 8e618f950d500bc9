"""Certificates of the connection to the server that are not valid now: either client says which, and its dates."""

import contextlib
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.certificates import sign
from kit.postgres import make_certificates

from gaussdecode.errors import LoginRefusedError, SourceError
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.certificates import login_problem
from gaussdecode.source.gaussdb import connection as gaussdb
from gaussdecode.source.postgresql import connection as postgresql

Connect = Callable[[SourceAddress], object]
EXPIRED = r"has expired: it is valid from \d{4}-\d\d-\d\d \d\d:\d\d UTC to .* UTC, and this machine's clock says .* UTC; "
EARLY = (
    r"is not valid yet: it is valid from .* UTC to .* UTC, and this machine's clock says .* UTC; "
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and what it has signed for now, for a past and for a coming time."""
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    sign(directory, "expired", begin_days=-9, end_days=-2)
    sign(directory, "early", begin_days=2, end_days=9)
    sign(directory, "own", common="gaussdecode")
    return directory


@pytest.fixture(params=["gaussdb", "postgresql"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Connect with the client of either server."""
    clients: dict[str, Connect] = {"gaussdb": gaussdb.connect, "postgresql": postgresql.connect}
    return clients[request.param]


@contextlib.contextmanager
def server(made: Path, name: str = "server", *, wants: Path | None = None) -> Iterator[str]:
    """A server that agrees upon TLS and ends then.

    Args:
        made: has its certificate and key.
        name: of them.
        wants: authority of the certificates that clients must have.

    Yields:
        The beginning of a connection string.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / f"{name}.pem", made / f"{name}.key")
    if wants is not None:
        context.load_verify_locations(wants)
        context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(60)
                client.recv(8)
                client.sendall(b"S")
                with context.wrap_socket(client, server_side=True) as secured:
                    secured.recv(4096)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        port = listener.getsockname()[1]
        yield f"host=127.0.0.1 port={port} dbname=shop user=u sslrootcert={made}/authority.pem"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def refused(connect: Connect, dsn: str) -> str:
    """What the client says of a server that it does not trust, or that does not trust it."""
    with pytest.raises(LoginRefusedError) as caught:
        connect(SourceAddress(dsn, "word"))
    return str(caught.value)


@pytest.mark.parametrize(("name", "text"), [("expired", EXPIRED), ("early", EARLY)])
def test_the_servers_certificate_is_not_valid_now(
    made: Path, connect: Connect, name: str, text: str
) -> None:
    """Host and port, its dates, the clock, and what to do."""
    with server(made, name) as dsn:
        said = refused(connect, dsn)
    pattern = r"connecting: 127\.0\.0\.1:\d+: the server's certificate " + text
    assert re.fullmatch(pattern + "renew it on the server, or set the clock of this machine", said)


def test_the_authority_is_not_valid_now(made: Path, connect: Connect, tmp_path: Path) -> None:
    """The server's own is; the file of sslrootcert needs the new one."""
    for name in ("authority.key", "authority.pem"):
        shutil.copy(made / name, tmp_path)
    sign(tmp_path, "old", begin_days=-9, end_days=-2, authority="past authority")
    shutil.copy(tmp_path / "old.pem", tmp_path / "authority.pem")
    shutil.copy(tmp_path / "old.key", tmp_path / "authority.key")
    sign(tmp_path, "server")
    with server(tmp_path) as dsn:
        said = refused(connect, dsn)
    assert re.search(
        r"authority 'past authority' of sslrootcert " + EXPIRED + "write the new one", said
    )


def test_another_authority_is_told_apart(made: Path, connect: Connect, tmp_path: Path) -> None:
    """No dates: the file of sslrootcert has another authority than the server's."""
    other = make_certificates(tmp_path)
    with server(made) as dsn:
        said = refused(connect, dsn.replace(str(made / "authority.pem"), str(other)))
    assert "the server's certificate is not valid (unable to get local issuer certificate)" in said
    assert "sslrootcert must have the authority that signed it" in said


@pytest.mark.parametrize(("name", "text"), [("expired", EXPIRED), ("early", EARLY)])
def test_our_certificate_is_not_valid_now(
    made: Path, connect: Connect, name: str, text: str
) -> None:
    """The server ends the connection with an alert; the file, its dates and the clock are told."""
    with server(made, wants=made / "authority.pem") as dsn:
        said = refused(connect, f"{dsn} sslcert={made}/{name}.pem sslkey={made}/{name}.key")
    file = re.escape(f"{made}/{name}.pem")
    assert re.search(f"our certificate, sslcert={file}, {text}renew it, or set the clock", said)


@pytest.mark.parametrize("is_renewed", [False, True])
def test_our_certificate_is_not_accepted(
    made: Path, connect: Connect, tmp_path: Path, is_renewed: bool
) -> None:
    """Its dates are right here: the authority, which may have had the same name, or the server's clock is not."""
    other = make_certificates(tmp_path)
    if not is_renewed:
        other = sign(tmp_path, "other", authority="another authority")
    with server(made, wants=other) as dsn:
        said = refused(connect, f"{dsn} sslcert={made}/own.pem sslkey={made}/own.key")
    assert re.search(
        r"does not accept our certificate, sslcert=.*own\.pem, valid from .* UTC: see", said
    )


def test_a_certificate_of_ours_is_missing(
    made: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server wants one: the keys of the connection string are named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with server(made, wants=made / "authority.pem") as dsn:
        said = refused(connect, dsn)
    assert "the server wants a certificate of ours: name it and its key with sslcert=" in said


def test_an_end_without_a_word_may_be_our_certificate(made: Path) -> None:
    """Some servers send no alert; an end may pass, and other errors are left as they are."""
    ended = SourceError("connecting: the server closed the connection unexpectedly")
    told = login_problem(ended, made / "expired.pem")
    assert type(told) is SourceError
    assert re.search("our certificate, .*" + EXPIRED, str(told))
    assert login_problem(ended, made / "own.pem") is ended
    other = SourceError("connecting: Connection refused")
    assert login_problem(other, made / "expired.pem") is other
