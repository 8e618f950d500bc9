"""Reading TLS through OpenSSL itself: the same bytes, ends and errors as through Python."""

import _ssl
import contextlib
import gc
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.postgres import make_certificates
from source.gaussdb.test_receive import (
    Session,
    begin,
    commit,
    data,
    row,
    tags,
    tcp_pair,
    transaction,
)

from gaussdecode.source._receive import End
from gaussdecode.source.gaussdb import _receive, openssl

Talk = Callable[[ssl.SSLSocket], None]
PAUSE = 0.5  # in which the other side reads all that has come


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority and a server's certificate."""
    directory = tmp_path_factory.mktemp("tls")
    make_certificates(directory)
    return directory


@pytest.fixture(params=["openssl", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads."""
    if request.param == "python":
        monkeypatch.setattr(_receive, "find_openssl", lambda _: None)
    return str(request.param)


@contextlib.contextmanager
def talking(
    certificates: Path, talk: Talk, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> Iterator[ssl.SSLSocket]:
    """A client's end; the server's end talks in a thread, then is cut off."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.maximum_version = version
    theirs, ours = tcp_pair()

    def serve() -> None:
        with contextlib.suppress(OSError), context.wrap_socket(theirs, server_side=True) as server:
            talk(server)

    thread = threading.Thread(target=serve)
    thread.start()
    client = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
    client.check_hostname = False
    with client.wrap_socket(ours) as connection:
        connection.setblocking(False)
        yield connection
    thread.join()


def received(connection: ssl.SSLSocket, way: str) -> tuple[End, list[bytes], str | None]:
    """What a receiver makes of it: its end, messages, and why it failed."""
    session = Session()
    session.receiver.attach_socket(connection, b"")
    assert session.receiver.reads_openssl is (way == "openssl")
    end = session.run()
    failure = session.receiver.failure
    session.receiver.disconnect()
    found = session.messages()
    session.close()
    return end, found, failure


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [1, 100, 16384, 1_000_000])
def test_all_arrives(certificates: Path, way: str, size: int, version: ssl.TLSVersion) -> None:
    """In small records and in large ones, nothing is missing and nothing is kept back."""
    count = 3 if size == 1 else 3000
    stream = b"".join(transaction(0x3000 + 0x100 * i, row(b"x" * 40)) for i in range(1, count + 1))

    def talk(server: ssl.SSLSocket) -> None:
        for at in range(0, len(stream), size):
            server.sendall(stream[at : at + size])
        server.unwrap()

    with talking(certificates, talk, version) as connection:
        end, found, failure = received(connection, way)
    assert (end, failure) == (End.LOST, None)
    assert tags(found) == "gIf" * count


def test_a_record_that_has_come_is_not_left_for_the_next(certificates: Path, way: str) -> None:
    """What OpenSSL read ahead is taken though the socket is silent after it."""
    is_read = threading.Event()

    def talk(server: ssl.SSLSocket) -> None:
        server.sendall(transaction(0x3000, row()))
        server.sendall(data(begin(0x4000)))
        server.sendall(data(row(), commit(0x5000)))
        assert is_read.wait(60)

    with talking(certificates, talk) as connection:
        session = Session()
        session.receiver.attach_socket(connection, b"")
        reading = threading.Thread(target=session.run)
        reading.start()
        for _ in range(1200):
            if session.receiver.end_lsn == 0x5000:
                break
            is_read.wait(0.05)
        assert session.receiver.end_lsn == 0x5000
        is_read.set()
        reading.join()
        assert session.receiver.reads_openssl is (way == "openssl")
        session.close()


def test_a_server_that_dies_is_the_end(certificates: Path, way: str) -> None:
    """Without close_notify what came whole counts, and there is nothing to say of it."""

    def talk(server: ssl.SSLSocket) -> None:
        server.sendall(transaction(0x3000, row()) + data(begin(0x4000)))
        with socket.socket(fileno=server.detach()) as raw:
            raw.shutdown(socket.SHUT_WR)
            raw.recv(1000)  # a status, which would make a reset of the end
            time.sleep(PAUSE)

    with talking(certificates, talk) as connection:
        end, found, failure = received(connection, way)
    assert (end, failure) == (End.LOST, None)
    assert tags(found) == "gIfg"


def test_a_reset_says_so(certificates: Path, way: str) -> None:
    """The connection is broken off, and that is the reason; Python takes it for an end."""

    def talk(server: ssl.SSLSocket) -> None:
        server.sendall(transaction(0x3000, row()))
        time.sleep(PAUSE)  # or the status that is sent would hear of it instead
        raw = socket.socket(fileno=server.detach())
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()

    with talking(certificates, talk) as connection:
        end, _, failure = received(connection, way)
    assert end is End.LOST
    assert failure == ("Connection reset by peer" if way == "openssl" else None)


def test_bytes_that_are_no_tls_end_it(certificates: Path, way: str) -> None:
    """A record that is not what the other side has encrypted is refused, with OpenSSL's reason."""

    def talk(server: ssl.SSLSocket) -> None:
        server.sendall(transaction(0x3000, row()))
        raw = socket.socket(fileno=server.detach())
        raw.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
        time.sleep(PAUSE)
        raw.close()

    with talking(certificates, talk) as connection:
        end, found, failure = received(connection, way)
    assert end is End.LOST
    assert tags(found) == "gIf"
    assert failure is not None
    assert "bad record mac" in failure.lower() or "bad_record_mac" in failure.lower()


def test_another_layout_is_not_trusted(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python's object is not what is known, or OpenSSL another one, Python reads."""
    with talking(certificates, lambda _: None) as connection:
        assert openssl.find_openssl(connection) is not None
        with monkeypatch.context() as patch:
            patch.setattr(ssl, "OPENSSL_VERSION_NUMBER", 0x10000000)
            assert openssl.find_openssl(connection) is None
        with monkeypatch.context() as patch:
            patch.setattr(openssl, "FUNCTIONS", ("SSL_no_such_function",))
            assert openssl.find_openssl(connection) is None
        with monkeypatch.context() as patch:
            patch.setattr(_ssl, "_SSLSocket", ssl.SSLSocket)
            assert openssl.find_openssl(connection) is None


def test_nothing_is_kept(certificates: Path) -> None:
    """Receivers over TLS do not pile up."""

    def talk(server: ssl.SSLSocket) -> None:
        server.sendall(transaction(0x3000, row()))
        server.unwrap()

    def once() -> None:
        with talking(certificates, talk) as connection:
            received(connection, "openssl")

    once()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(5):
        once()
    gc.collect()
    assert len(gc.get_objects()) - before < 100
