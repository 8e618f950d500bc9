"""The receive loop of a GaussDB stream over a socket pair, without a server."""

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from kit import gausswire, wire
from kit.vectors import vector_bytes

from gaussdecode.errors import (
    GaussDecodeError,
    SequenceError,
    SourceError,
    StreamError,
    TruncatedError,
    WireError,
)
from gaussdecode.ipc.control import Control, Word
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.shape import Definition
from gaussdecode.protocol.notices import Notice
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End
from gaussdecode.source._status import StatusClock
from gaussdecode.source.gaussdb._receive import GaussReceiver
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.source import GaussPath
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList, relation_record

START_LSN: Final = 0x1000
LIMIT: Final = 1 << 20
KEEPALIVE_FIELD: Final = 7  # of a batch's header
STATUS: Final = struct.Struct("<c5Qiiq?3xI")


def record(kind: bytes, lsn: int, body: bytes) -> bytes:
    """A record of the binary style."""
    return struct.pack(">IQ", 9 + len(body), lsn) + kind + body


def begin(first_lsn: int = 0x2000, csn: int = 7) -> bytes:
    """BEGIN."""
    return record(b"B", first_lsn, struct.pack(">QQ", csn, first_lsn))


def commit(end_lsn: int) -> bytes:
    """COMMIT."""
    return record(b"C", end_lsn, b"X" + struct.pack(">Q", 99))


def row(value: bytes = b"1", lsn: int = 0x2001) -> bytes:
    """INSERT of one column."""
    name = struct.pack(">H1s", 1, b"t") + struct.pack(">H1s", 1, b"s")
    body = b"N" + struct.pack(">HH1sII", 1, 1, b"a", 25, len(value)) + value
    return record(b"I", lsn, name + body)


def data(*records: bytes) -> bytes:
    """A CopyData with one batch."""
    return gausswire.copy_data(gausswire.wal_header(1, 2) + b"P".join(records) + b"F")


def transaction(end_lsn: int, *rows: bytes) -> bytes:
    """A whole transaction as one message."""
    return data(begin(end_lsn - 0x100), *rows, commit(end_lsn))


def other(letter: bytes, body: bytes) -> bytes:
    """A message that is no CopyData."""
    return letter + struct.pack(">I", 4 + len(body)) + body


def fields(**values: str) -> bytes:
    """The body of a notice or error."""
    return b"".join(k.encode() + v.encode() + b"\0" for k, v in values.items()) + b"\0"


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return listener.accept()[0], client


class Session:
    """A receiver with both ends of everything in this process."""

    def __init__(
        self,
        limit: int = LIMIT,
        *,
        is_tcp: bool = False,
        sender_timeout_us: int = 10_000_000,
        is_serial: bool = False,
        is_advancing: bool = False,
    ) -> None:
        self.server, self.client = tcp_pair() if is_tcp else socket.socketpair()
        self.client.setblocking(False)
        self.control = Control.create()
        self.ring = Ring.create(2 << 20, 128)
        self.dispatcher = Dispatcher([self.ring])
        now_us = time.monotonic_ns() // 1000
        clock = StatusClock(START_LSN, now_us, sender_timeout_us, 60_000_000)
        translator = Translator(b"b", is_batched=True, encoding="UTF8")
        self.receiver = GaussReceiver(
            self.control,
            self.dispatcher,
            clock,
            translator,
            limit,
            is_serial,
            is_advancing,
        )
        self.receiver.attach_socket(self.client, b"")
        self.relations = GaussRelations(WhiteList())
        self.notices: list[bytes] = []
        self.keepalives: list[int] = []  # in-band, from `messages`
        self.places: list[tuple[int, int]] = []

    def run(self) -> End:
        """Receive to the end, with the slow path."""
        while True:
            end = self.receiver.run()
            if end is End.RELATION:
                definition: Definition = self.relations.define(self.receiver.translator.describe())
                told = relation_record(definition.relation) if definition.is_new else None
                self.receiver.define(definition, told)
            elif end is End.NOTICE:
                self.notices.append(self.receiver.frame())
                self.receiver.reply(Notice(1, b"lost").to_bytes())
            else:
                return end

    def send(self, stream: bytes, size: int) -> None:
        """Send in slices, then close; for a thread."""
        for at in range(0, len(stream), size):
            self.server.sendall(stream[at : at + size])
        self.server.shutdown(socket.SHUT_WR)

    def feed(self, *messages: bytes) -> End:
        """Send messages, close, and receive to the end."""
        self.server.sendall(b"".join(messages))
        self.server.shutdown(socket.SHUT_WR)
        return self.run()

    def messages(self) -> list[bytes]:
        """What reached the ring, in order."""
        self.control.set(Word.FINISHED, 1)
        assert self.receiver.finish() is End.DONE
        found = []
        while (entry := self.ring.get_bytes(0)) is not None:
            header = wire.RAW_HEADER.unpack_from(entry)
            self.keepalives += [header[KEEPALIVE_FIELD]] if header[KEEPALIVE_FIELD] else []
            self.places.append((header[10], header[11]))
            found += [message for _, message in wire.section_of(entry)[0]]
        return found

    def statuses(self) -> list[tuple[int, int]]:
        """Written and flushed position of every status that was sent."""
        self.server.setblocking(False)
        try:
            sent = self.server.recv(1 << 16)
        except BlockingIOError:
            return []
        found = []
        for at in range(0, len(sent), 70):
            assert sent[at : at + 5] == b"d\0\0\0\x45"
            status = STATUS.unpack_from(sent, at + 5)
            assert status[0] == b"r"
            assert status[1] == status[2]
            assert status[3] == status[4] == status[5]
            found.append((status[2], status[3]))
        return found

    def close(self) -> None:
        """Free everything."""
        self.server.close()
        self.client.close()
        self.ring.close()
        self.control.close()


@pytest.fixture
def session() -> Iterator[Session]:
    """A receiver of style b in batches."""
    made = Session()
    yield made
    made.close()


def tags(messages: list[bytes]) -> str:
    """First letters."""
    return "".join(chr(message[0]) for message in messages)


def test_transactions_arrive_translated(session: Session) -> None:
    """Rows, whole transactions and parts of one leave as canonical messages."""
    end = session.feed(
        transaction(0x3000, row(), row(b"2")), data(begin(0x3100)), data(row(), commit(0x3200))
    )
    assert end is End.LOST
    assert tags(session.messages()) == "gIIfgIf"
    assert session.receiver.end_lsn == 0x3200


@pytest.mark.parametrize("size", [1, 2, 7, 4096])
def test_any_split_gives_the_same(session: Session, size: int) -> None:
    """However the bytes arrive, message by message or byte by byte."""
    stream = b"".join(
        (
            gausswire.copy_data(gausswire.keepalive(0x9000, 5)),
            transaction(0x3000, row()),
            other(b"S", b"a\0b\0"),
            other(b"N", fields(S="WARNING", M="x")),
            transaction(0x4000, row(b"y" * 3000)),
        )
    )
    thread = threading.Thread(target=session.send, args=(stream, size))
    thread.start()
    assert session.run() is End.LOST
    thread.join()
    assert tags(session.messages()) == "gIfngIf"
    assert session.receiver.server_wal_end == 0x9000
    assert len(session.notices) == 1


@pytest.mark.parametrize("is_tcp", [True, False], ids=["tcp", "unix"])
def test_what_is_less_than_is_waited_for_arrives(*, is_tcp: bool) -> None:
    """Little at a time, with the sender silent in between, is read before its end comes."""
    session = Session(is_tcp=is_tcp)
    receiver = threading.Thread(target=session.run)
    receiver.start()
    for number in range(1, 21):
        end_lsn = 0x3000 + 0x100 * number
        session.server.sendall(transaction(end_lsn, row(b"x" * 100 * number)))
        while session.control.get(Word.RECEIVED_LSN) < end_lsn:
            time.sleep(0.001)
    session.server.shutdown(socket.SHUT_WR)
    receiver.join()
    assert session.client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
    assert tags(session.messages()) == "gIf" * 20
    session.close()


def test_status_never_passes_the_last_commit(session: Session) -> None:
    """What main calls durable is confirmed up to the last commit; more ends the session."""
    session.feed(gausswire.copy_data(gausswire.keepalive(0x9000, 5)), transaction(0x3000, row()))
    assert session.statuses() == [(START_LSN, START_LSN)]
    session.control.set(Word.DURABLE_LSN, 0x3000)
    other_session = Session()
    other_session.control.set(Word.DURABLE_LSN, START_LSN + 1)
    with pytest.raises(SequenceError, match="last commit received"):
        other_session.run()
    assert other_session.statuses() == []
    other_session.close()


def _quiet(event: str, **fields: Any) -> None:
    """Nothing is logged here."""


class _Slow:
    """Relations whose catalogue answers only after the server has heard from us again."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def define(self, shape: Any) -> Any:  # Any: passed on as it is
        heard = 0
        self._session.server.settimeout(30)
        while heard < 3:
            heard += self._session.server.recv(1 << 16).count(b"d\0\0\0")
        return self._session.relations.define(shape)


def test_status_goes_on_while_the_catalogue_is_slow() -> None:
    """The thread that owns the stream keeps it alive; a sender that hears nothing cuts it."""
    session = Session(sender_timeout_us=60_000)
    slow: Any = _Slow(session)
    path = GaussPath(session.receiver, slow, _quiet)
    session.server.sendall(transaction(0x3000, row()))
    assert (end := session.receiver.run()) is End.RELATION
    assert path.answer(end)
    session.server.shutdown(socket.SHUT_WR)
    assert session.receiver.run() is End.LOST
    assert tags(session.messages()) == "gIf"
    session.close()


def test_error_of_the_catalogue_is_the_sessions() -> None:
    """What it raises in its own thread ends the stream as before."""

    class Ill:
        def define(self, shape: object) -> None:
            raise SourceError("the catalogue takes too long")

    session = Session()
    ill: Any = Ill()
    path = GaussPath(session.receiver, ill, _quiet)
    session.server.sendall(transaction(0x3000, row()))
    with pytest.raises(SourceError, match="takes too long"):
        path.answer(session.receiver.run())
    session.close()


def test_durable_commit_is_confirmed(session: Session) -> None:
    """The end of a commit is sent as flushed once it is durable."""
    assert session.feed(transaction(0x3000, row()), other(b"C", b"COPY 0\0")) is End.COPY
    session.control.set(Word.DURABLE_LSN, 0x3000)
    session.messages()
    assert session.statuses()[-1] == (0x3000, 0x3000)


def test_reply_is_sent_when_wanted(session: Session) -> None:
    """A keepalive that wants a reply gets a status."""
    asked = gausswire.copy_data(gausswire.keepalive(0x9000, 5, wants_reply=True))
    assert session.feed(asked, other(b"c", b"")) is End.COPY
    assert session.statuses()[0] == (START_LSN, START_LSN)


@pytest.mark.parametrize(
    ("message", "error", "reason"),
    [
        (data(row()), SequenceError, "'I' outside|outside"),
        (data(commit(0x3000)), SequenceError, "outside"),
        (data(begin(), begin()), SequenceError, "inside"),
        (transaction(0x3000) + transaction(0x3000, row()), SequenceError, "not above"),
        (transaction(0x3000) + transaction(0x3000), SequenceError, "same message came twice"),
        (data(begin(), row(lsn=9), row(lsn=8)), SequenceError, "stands before it"),
        (data(begin(), row(lsn=9), commit(8)), SequenceError, "stands before it"),
        (gausswire.copy_data(b"k" + bytes(17)), TruncatedError, "cut off"),
        (gausswire.copy_data(b"w" + bytes(10)), TruncatedError, "cut off"),
        (gausswire.copy_data(b"x" + bytes(40)), WireError, "unknown"),
        (other(b"Q", b"x"), WireError, "unknown"),
        (b"d" + struct.pack(">I", LIMIT + 1), WireError, "longer than"),
        (b"d\0\0\0\3", WireError, "longer than|no length"),
    ],
)
def test_breaking_the_protocol_is_an_error(
    session: Session, message: bytes, error: type[GaussDecodeError], reason: str
) -> None:
    """Wrong order, short messages and unknown letters end the session with a reason."""
    with pytest.raises(error, match=reason) as raised:
        session.feed(transaction(0x2F00), message)
    assert isinstance(raised.value, StreamError)
    session.receiver.locate(raised.value)
    assert raised.value.lsn


def test_error_of_a_record_names_its_position_and_transaction(session: Session) -> None:
    """Not the message's: a batch may hold many records."""
    opened = record(b"B", 0x3000, struct.pack(">QQ", 7, 0x3000) + b"X" + struct.pack(">Q", 99))
    with pytest.raises(WireError, match="unknown type of record") as raised:
        session.feed(data(opened, row(lsn=0x3001), record(b"?", 0x3002, b"")))
    session.receiver.locate(raised.value)
    assert str(raised.value).endswith("near 0/3002, in transaction 99")


def test_batches_say_where_they_begin() -> None:
    """For decoders, which see no positions: of the first message, and its transaction."""
    opened = record(b"B", 0x3000, struct.pack(">QQ", 7, 0x3000) + b"X" + struct.pack(">Q", 99))
    large = row(b"x" * LIMIT, lsn=0x3002)
    session = Session(4 * LIMIT)
    stream = data(opened) + data(row(lsn=0x3001), large, row(lsn=0x3003)) + data(commit(0x3100))
    thread = threading.Thread(target=session.send, args=(stream, 1 << 16))
    thread.start()
    assert session.run() is End.LOST
    thread.join()
    session.messages()
    assert [place for place in session.places if place[0]] == [
        (0x3000, 99), (0x3001, 99), (0x3002, 99), (0x3003, 99)
    ]  # fmt: skip
    session.close()


def test_longest_message_is_taken(session: Session) -> None:
    """A message of exactly the limit arrives; its memory is made as its bytes come."""
    overhead = len(transaction(0x3000, row(b""))) - 1
    size = LIMIT - overhead
    message = transaction(0x3000, row(b"z" * size))
    assert len(message) == LIMIT + 1

    thread = threading.Thread(target=session.send, args=(message, 1 << 16))
    thread.start()
    assert session.run() is End.LOST
    thread.join()
    assert [len(each) for each in session.messages()][1] > size


def alive(wal_end: int) -> bytes:
    """A keepalive."""
    return gausswire.copy_data(gausswire.keepalive(wal_end, 5))


def test_rest_of_a_parallel_stream(session: Session) -> None:
    """A position is idle when another keepalive follows it and no data; nothing is confirmed."""
    session.feed(
        alive(0), alive(0x2800), transaction(0x3000, row()), alive(0x3400), data(begin(0x3500)),
        alive(0x9000), alive(0x9100), data(row(), commit(0x3600)),
        alive(0x9200), alive(0x9300), data(begin(0x9400)), alive(0x9500),
    )  # fmt: skip
    assert session.control.get(Word.IDLE_LSN) == 0x9200
    session.messages()
    assert session.keepalives == []


@pytest.mark.parametrize("framed", [False, True])
def test_heartbeats_are_no_data(session: Session, *, framed: bool) -> None:
    """With enable-heartbeat an idle stream is at rest too, and one with rows is not."""

    def beat(at: int) -> bytes:
        header = gausswire.wal_header(1, at)
        return gausswire.copy_data(header + gausswire.heartbeat(0x9000, 5, at, framed=framed))

    session.feed(
        transaction(0x3000, row()), beat(1), alive(0x9000), beat(2), alive(0x9100), beat(3),
        data(begin(0x9400)), beat(4), alive(0x9500), data(row(), commit(0x9600)), beat(5),
        alive(0x9700), data(begin(0x9800), row(), commit(0x9900)), beat(6), alive(0x9A00),
    )  # fmt: skip
    assert session.control.get(Word.IDLE_LSN) == 0x9000


@pytest.mark.parametrize("is_advancing", [False, True])
def test_rest_of_a_serial_stream(*, is_advancing: bool) -> None:
    """Every keepalive outside of a transaction tells what was sent; auto-advance passes it on."""
    session = Session(is_serial=True, is_advancing=is_advancing)
    session.feed(
        alive(0x2000), transaction(0x3000, row()), alive(0x2F00), alive(0x3800),
        data(begin(0x3900)), alive(0x3A00), data(row(), commit(0x4000)), alive(0x4000),
    )  # fmt: skip
    assert session.control.get(Word.IDLE_LSN) == 0x4000
    assert tags(session.messages()) == "gIfgIf"
    assert session.keepalives == ([0x2000, 0x3800] if is_advancing else [])
    session.close()


@pytest.mark.parametrize("is_serial", [False, True])
def test_serial_streams_are_asked(*, is_serial: bool) -> None:
    """A serial sender says nothing of its own accord, so each status wants an answer."""
    session = Session(is_serial=is_serial)
    session.feed(transaction(0x3000, row()))
    session.server.setblocking(False)
    assert STATUS.unpack_from(session.server.recv(70), 5)[9] is is_serial
    session.messages()
    session.close()


@pytest.mark.parametrize(("durable", "is_refused"), [(0x3800, False), (0x3801, True)])
def test_a_position_that_went_in_band_may_be_confirmed(durable: int, *, is_refused: bool) -> None:
    """And none beyond it."""
    session = Session(is_serial=True, is_advancing=True)
    failures: list[GaussDecodeError] = []

    def receive() -> None:
        try:
            session.run()
        except GaussDecodeError as error:
            failures.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    session.server.sendall(transaction(0x3000, row()) + alive(0x3800))
    while session.control.get(Word.IDLE_LSN) != 0x3800:
        time.sleep(0.001)
    session.control.set(Word.DURABLE_LSN, durable)
    while thread.is_alive() and session.control.get(Word.CONFIRMED_LSN) != durable:
        time.sleep(0.001)
    session.server.shutdown(socket.SHUT_WR)
    thread.join()
    assert bool(failures) is is_refused
    assert (session.statuses()[-1][1] == durable) is not is_refused
    session.close()


def test_vector_of_a_keepalive(session: Session) -> None:
    """The server's own bytes: native order, at the server's offsets."""
    session.feed(gausswire.copy_data(vector_bytes("K01")))
    assert session.receiver.server_wal_end == 0x0CFE6350
    session.messages()
    assert session.control.get(Word.LAST_SERVER_TIME_US) == 763734672100000 + 946684800000000


def test_server_error_is_kept(session: Session) -> None:
    """An ErrorResponse ends the stream; what came before it arrives."""
    body = fields(S="FATAL", C="57P01", M="terminating")
    assert session.feed(transaction(0x3000, row()), other(b"E", body)) is End.LOST
    assert session.receiver.server_error == body
    assert tags(session.messages()) == "gIf"


def test_a_setting_that_changes_values_ends_the_session(session: Session) -> None:
    """After a reload with other date texts nothing more is read; what came before arrives."""
    session.receiver.attach_socket(session.client, b"", {"DateStyle": "ISO, MDY"})
    harmless = (other(b"S", b"DateStyle\0ISO, YMD\0"), other(b"S", b"application_name\0x\0"))
    changed = other(b"S", b"DateStyle\0SQL, MDY\0")
    end = session.feed(*harmless, transaction(0x3000, row()), changed, transaction(0x4000, row()))
    assert end is End.LOST
    assert session.receiver.failure is not None
    assert "DateStyle is 'SQL, MDY' now" in session.receiver.failure
    assert tags(session.messages()) == "gIf"


def test_heartbeats_stay_out_of_the_stream(session: Session) -> None:
    """Both framings are counted and shown, nothing is passed on."""
    beats = [
        gausswire.copy_data(
            gausswire.wal_header(1, 2) + gausswire.heartbeat(lsn, 5, 6, framed=framed)
        )
        for lsn, framed in ((0x5000, False), (0x6000, True))
    ]
    session.feed(transaction(0x3000, row()), *beats)
    assert tags(session.messages()) == "gIf"
    assert session.control.get(Word.HEARTBEATS) == 2
    assert session.control.get(Word.HEARTBEAT_LSN) == 0x6000


def test_start_position_leaves_rows_out(session: Session) -> None:
    """Rows below a CSN, or below an LSN of the transaction with it, are left out."""
    session.receiver.start_from(7, 0x2002)
    low = data(begin(csn=6), row(), commit(0x3000))
    equal = data(begin(csn=7), row(lsn=0x2001), row(lsn=0x2002), commit(0x3100))
    above = data(begin(csn=8), row(lsn=0x1), commit(0x3200))
    session.feed(low, equal, above)
    assert tags(session.messages()) == "gfgIfgIf"


@pytest.mark.parametrize("seed", range(8))
def test_hostile_bytes_end_with_an_error(seed: int) -> None:
    """Damaged streams raise our errors or end; nothing is read past the end."""
    rng = random.Random(f"hostile {seed}")
    whole = b"".join(
        (
            transaction(0x3000, row(), row(b"x" * 300)),
            gausswire.copy_data(gausswire.keepalive(0x9000, 5)),
            other(b"N", fields(S="WARNING", M="m")),
            transaction(0x4000, row()),
        )
    )
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(damaged))
            damaged[place] = rng.choice((0, 255, rng.randrange(256)))
        made = Session()
        try:
            assert made.feed(bytes(damaged)) in (End.LOST, End.COPY)
        except GaussDecodeError as error:
            assert str(error)
        finally:
            made.close()
