"""Streams of the simulated GaussDB, read in plain Python."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import gausswire as wire
from kit.gaussclient import binary_records
from kit.gaussprofile import V6_0_0
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Committed, Store, Table
from kit.postgres import make_certificates
from kit.scripted import Peer, ScriptedServer, error

from gaussdecode.errors import SequenceError, SourceError, SourceRefusedError, WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, XLogData
from gaussdecode.protocol.gaussdb import messages
from gaussdecode.protocol.gaussdb.commands import start_replication
from gaussdecode.protocol.gaussdb.copyboth import parse_server
from gaussdecode.protocol.gaussdb.notices import lost_changes
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.connection import GaussConnection, connect
from gaussdecode.source.gaussdb.stream import GaussStream

PARALLEL = {"parallel-decode-num": "2", "decode-style": "b", "sending-batch": "1"}
COPY_BOTH = messages.frontend(messages.Tag.COPY_BOTH.value, bytes(3))
_SECONDS = 60.0  # patience of a test, never a claim about speed


class Gauss:
    """A simulated server with one table and one slot."""

    def __init__(self, certificates: Path | None = None) -> None:
        self.store = Store()
        how = Behaviour(flush_seconds=0.05)
        self.server = GaussServer(
            self.store, V6_0_0, certificates=certificates, behaviour=how
        ).start()
        self.connections: list[GaussConnection] = []
        self.server.create_slot("orders")
        self.table: Table = self.store.create_table(
            "public", "t", {"id": "int8", "v": "text"}, key=["id"]
        )

    def insert(self, number: int, *, with_ddl: bool = False) -> Committed:
        """One transaction."""
        transaction = self.store.begin()
        transaction.insert(self.table, {"id": str(number), "v": "x" * 100})
        if with_ddl:
            transaction.ddl()
            transaction.insert(self.table, {"id": str(number + 1), "v": "lost"})
        return transaction.commit()

    def connect(self, tls: str = "sslmode=disable") -> GaussConnection:
        """A connection in replication mode."""
        dsn = f"host=127.0.0.1 port={self.server.ha_port} dbname=shop user=replica {tls}"
        self.connections.append(connect(SourceAddress(dsn, "Gauss@123", True)))
        return self.connections[-1]

    def close(self) -> None:
        """End all connections and the server, which must have nothing to complain of."""
        for connection in self.connections:
            connection.close()
        self.server.crash()
        assert self.server.violations == []

    def stream(self, tls: str = "sslmode=disable", **options: str) -> GaussStream:
        """A started stream from where the slot stands."""
        connection = self.connect(tls)
        given = {**PARALLEL, **{key.replace("_", "-"): value for key, value in options.items()}}
        connection.hear_warnings()
        connection.start_stream(start_replication("orders", Lsn(0), given))
        return GaussStream(connection, Lsn(0), 30_000)

    @property
    def confirmed(self) -> int:
        """Where the slot stands."""
        return self.server.slots["orders"].confirmed_lsn


@pytest.fixture
def gauss() -> Iterator[Gauss]:
    """A server with its connections."""
    made = Gauss()
    yield made
    made.close()


def read_until(stream: GaussStream, condition: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Read frames until something holds of their payloads."""
    payloads: list[bytes] = []
    deadline = time.monotonic() + _SECONDS
    while not condition(payloads):
        assert time.monotonic() < deadline, payloads
        for frame in stream.frames(0.05):
            message = parse_server(frame)
            if isinstance(message, XLogData):
                payloads.append(message.payload)
    return payloads


def kinds(payloads: list[bytes]) -> str:
    """Letters of the binary records."""
    return "".join(record.kind for payload in payloads for record in binary_records(payload))


def wait_until(condition: Callable[[], bool]) -> None:
    """Give the server time to read."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("batch", ["0", "1"])
def test_transactions_arrive_whole(gauss: Gauss, batch: str) -> None:
    """Batched or one by one."""
    for number in range(3):
        gauss.insert(number)
    stream = gauss.stream(sending_batch=batch)
    assert kinds(read_until(stream, lambda got: kinds(got).count("C") == 3)) == "BIC" * 3
    stream.close()


def test_nothing_is_confirmed_unasked(gauss: Gauss) -> None:
    """A look does not move the slot."""
    before = gauss.confirmed
    gauss.insert(1)
    stream = gauss.stream()
    read_until(stream, lambda got: "C" in kinds(got))
    stream.close()
    assert gauss.confirmed == before


def test_confirmed_commit_is_not_sent_again(gauss: Gauss) -> None:
    """The last status arrives although the connection is closed after it."""
    first = gauss.insert(1)
    stream = gauss.stream()
    read_until(stream, lambda got: "C" in kinds(got))
    stream.reached(Lsn(first.end_lsn))
    stream.confirm(Lsn(first.end_lsn))
    stream.close()
    wait_until(lambda: gauss.confirmed == first.end_lsn)
    wait_until(lambda: not gauss.server.slots["orders"].is_active)
    gauss.insert(2)
    again = gauss.stream()
    payloads = read_until(again, lambda got: "C" in kinds(got))
    assert kinds(payloads) == "BIC"
    again.close()


def test_what_was_not_received_cannot_be_confirmed(gauss: Gauss) -> None:
    """Not even the end of the server's WAL that a keepalive names."""
    stream = gauss.stream()
    gauss.insert(1)
    with pytest.raises(SequenceError, match="must not be confirmed"):
        stream.confirm(Lsn(gauss.server.wal_end))
    stream.close()


def test_notice_of_loss_is_handed_over(gauss: Gauss) -> None:
    """It stands between the data, and names the transaction."""
    transaction = gauss.insert(1, with_ddl=True)
    stream = gauss.stream()
    read_until(stream, lambda got: "C" in kinds(got))
    (text,) = stream.notices
    assert [one.xid for one in lost_changes(text)] == [transaction.xid]
    stream.close()


def test_keepalives_are_frames_of_their_own(gauss: Gauss) -> None:
    """An idle server sends them; they say where its reader is."""
    end_lsn = gauss.insert(1).end_lsn
    stream = gauss.stream()
    found: list[Keepalive] = []
    deadline = time.monotonic() + _SECONDS
    while not any(message.wal_end >= end_lsn for message in found):
        assert time.monotonic() < deadline
        parsed = [parse_server(frame) for frame in stream.frames(0.05)]
        found += [message for message in parsed if isinstance(message, Keepalive)]
    stream.close()


def test_server_that_stops_may_come_back(gauss: Gauss) -> None:
    """In order, or not."""
    for end in (gauss.server.stop, gauss.server.reset_connections):
        gauss.insert(1)
        stream = gauss.stream()
        read_until(stream, lambda got: "C" in kinds(got))
        end()
        with pytest.raises(SourceError) as caught:
            read_until(stream, lambda _: False)
        assert caught.value.retryable
        if end == gauss.server.stop:
            gauss.server.start()


def test_error_of_an_option_may_come_before_or_in_the_stream(gauss: Gauss) -> None:
    """Parallel mode looks before, serial mode after it started."""
    with pytest.raises(SourceRefusedError, match="gaussdecode check"):
        gauss.stream(parallel_queue_size="3")
    connection = gauss.connect()
    connection.start_stream(
        start_replication("orders", Lsn(0), {"parallel-decode-num": "1", "decode-style": "b"})
    )
    stream = GaussStream(connection, Lsn(0), 30_000)
    with pytest.raises(SourceRefusedError, match="gaussdecode check"):
        read_until(stream, lambda _: False)


def test_stream_over_tls(tmp_path: Path) -> None:
    """Large payloads and feedback through the record layer."""
    authority = make_certificates(tmp_path)
    gauss = Gauss(tmp_path)
    try:
        ends = [gauss.insert(number).end_lsn for number in range(500)]
        stream = gauss.stream(f"sslrootcert={authority}")
        assert stream._connection.is_encrypted
        read_until(stream, lambda got: kinds(got).count("C") == 500)
        stream.reached(Lsn(ends[-1]))
        stream.confirm(Lsn(ends[-1]))
        stream.close()
        wait_until(lambda: gauss.confirmed == ends[-1])
    finally:
        gauss.close()


# ---- a scripted server ---------------------------------------------------------------------


def streaming(*then: Callable[[Peer], None]) -> Callable[[Peer], None]:
    """A script that starts a stream and goes on."""

    def script(peer: Peer) -> None:
        peer.log_in()
        peer.read_message()
        peer.send(COPY_BOTH)
        for step in then:
            step(peer)

    return script


def started(server: ScriptedServer, receiver_timeout: float = 60.0) -> GaussStream:
    """A stream of a scripted server."""
    connection = connect(SourceAddress(server.dsn(), None, True))
    connection.start_stream("START_REPLICATION")
    return GaussStream(connection, Lsn(0), 30_000, receiver_timeout)


def test_reply_that_is_wanted_is_sent_in_65_bytes() -> None:
    """Once at the start, once for the keepalive."""
    seen: list[wire.Status] = []

    def status(peer: Peer) -> None:
        letter, body = peer.read_message()
        assert letter == b"d"
        seen.append(wire.Status(*wire.STATUS.unpack(body[1:])))

    def ask(peer: Peer) -> None:
        status(peer)
        data = b"w" + struct.pack(">QQq", 0x500, 0x500, 0) + b"x"
        keepalive = wire.keepalive(0x9000, 0, wants_reply=True)
        peer.send(messages.copy_data(data), messages.copy_data(keepalive))
        status(peer)
        peer.send(error("57P01", "terminating connection"))

    with ScriptedServer(streaming(ask)) as server:
        stream = started(server)
        with pytest.raises(SourceError, match="ended the connection"):
            read_until(stream, lambda _: False)
        stream._connection.close()
    assert [update.flush for update in seen] == [0, 0]
    assert seen[1].write == 0x500


@pytest.mark.parametrize(
    ("data", "error_class"),
    [
        (messages.copy_data(b"k" + bytes(17)), WireError),
        (messages.copy_data(b"?"), WireError),
        (messages.copy_data(b""), WireError),
        (b"\0", WireError),
        (messages.frontend(messages.Tag.COPY_DONE.value), SourceError),
    ],
)
def test_what_must_not_come_is_a_typed_error(data: bytes, error_class: type[Exception]) -> None:
    """PostgreSQL's keepalive too."""

    def send(peer: Peer) -> None:
        peer.send(data)
        peer.read_message()

    with ScriptedServer(streaming(send)) as server:
        stream = started(server)
        with pytest.raises(error_class):
            read_until(stream, lambda _: False)
        stream._connection.close()


def test_silent_server_is_given_up() -> None:
    """After a ping without an answer."""

    def listen(peer: Peer) -> None:
        while peer.sock.recv(4096):
            pass

    with ScriptedServer(streaming(listen)) as server:
        stream = started(server, receiver_timeout=0.2)
        with pytest.raises(SourceError, match="silent"):
            read_until(stream, lambda _: False)
        stream._connection.close()
