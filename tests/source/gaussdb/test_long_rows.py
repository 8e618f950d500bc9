"""The longest rows: whatever one takes, the server goes on hearing from us."""

import socket
import struct
import threading
import time
from typing import Final

import pytest
from kit import gaussrandom as gr
from kit import gausswire as gw
from kit import wire
from kit.gaussprofile import V6_0_0
from twins.canonical import Insert, parse

from gaussdecode._wire import BatchDecoder
from gaussdecode.errors import WireError
from gaussdecode.ipc.control import Control, Word
from gaussdecode.ipc.ring import Ring
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End
from gaussdecode.source._status import StatusClock
from gaussdecode.source.gaussdb._receive import GaussReceiver
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList, relation_record

MIB: Final = 1 << 20
STATUS_BYTES: Final = 70
LONG: Final = 32 * MIB
ALWAYS_DUE_US: Final = 3  # of the sender's timeout: a status is due at every look at the clock
TEXT: Final = gw.Column(b"note", 25, "text")
BYTES: Final = gw.Column(b"blob", 88, "blob")
HOSTILE: Final = b'it\'s \\\\ "x"\t\n\x01{},;[]' + "é汉😀".encode()
EVERYWHERE: Final = b"'\"\\\n"  # nothing but what some style escapes
OPENING: Final = {
    "b": bytes.fromhex("00000019000000000cfe5d40420000000000000935000000000cfe5d4046"),
    "t": b"BEGIN CSN: 1 first_lsn: 0/1",
    "j": b"BEGIN CSN: 1 first_lsn: 0/1",
    "s": b"BEGIN 5",
    "q": b"BEGIN 5",
}


def payload(style: str, column: gw.Column, unit: bytes, times: int) -> bytes:
    """One row of one column whose value is a text again and again.

    JSON is escaped letter by letter in Python, so it is escaped once.
    """
    is_json = style in "js"
    value = unit if is_json else unit * times
    row = gw.Row("I", 0x2001, b"public", b"t", [(column, value)], None)
    stream = gr.stream_of(style, 0, gw.Wanted())
    if isinstance(stream, gw.ParallelStream):
        text = stream.style.row(row) + (b"F" if style == "b" else b"")
    else:
        text = stream._change(row) or b""
    if not is_json:
        return text
    escaped = gw.json_string(gw.print_literal(column.type_oid, unit))[2:-2]
    return text.replace(escaped, escaped * times)


def batch(style: str, *texts: bytes) -> bytes:
    """One payload of several records or statements, as sending-batch makes it."""
    if style == "b":
        return b"P".join([OPENING[style][:-1], *texts]) + b"F"
    framed = [struct.pack(">IQ", len(text) + 8, 2) + text for text in (OPENING[style], *texts)]
    return b"".join(framed) + bytes(4)


class Session:
    """A receiver that is given its bytes at once, with both ends of everything here."""

    def __init__(
        self,
        style: str,
        encoding: str = "UTF8",
        *,
        is_serial: bool = False,
        is_batched: bool = False,
        white_list: WhiteList | None = None,
    ) -> None:
        self.server, self.client = socket.socketpair()
        self.client.setblocking(False)
        self.control = Control.create()
        self.ring = Ring.create(8 * MIB, 128)
        decoder = BatchDecoder() if is_serial else None
        dispatcher = Dispatcher([self.ring], decoder=decoder)
        clock = StatusClock(0x1000, time.monotonic_ns() // 1000, ALWAYS_DUE_US, 60_000_000)
        translator = Translator(style.encode(), is_batched=is_batched, encoding=encoding)
        self.receiver = GaussReceiver(self.control, dispatcher, clock, translator)
        self.relations = GaussRelations(white_list or WhiteList())
        self.entries: list[bytes] = []
        self.is_over = False
        self.status_bytes = 0

    def receive(self, *payloads: bytes) -> None:
        """Receive payloads that are all there, to the end of the connection."""
        stream = b"".join(gw.copy_data(gw.wal_header(1, 2) + each) for each in payloads)
        self.receiver.attach_socket(self.client, stream)
        self.server.shutdown(socket.SHUT_WR)
        threads = [threading.Thread(target=each) for each in (self._drain, self._hear)]
        for thread in threads:
            thread.start()
        try:
            while (end := self.receiver.run()) is End.RELATION:
                definition = self.relations.define(self.receiver.translator.describe())
                told = relation_record(definition.relation) if definition.is_new else None
                self.receiver.define(definition, told)
            assert end is End.LOST
            self.control.set(Word.FINISHED, 1)
            assert self.receiver.finish() is End.DONE
        finally:
            self.is_over = True
            self.client.close()
            for thread in threads:
                thread.join()
            self.server.close()

    def _drain(self) -> None:
        """Take what arrives at the ring, and keep the data of it.

        A wait that found nothing says that all was taken only if all was put before it began.
        """
        is_last = False
        while not is_last:
            is_last = self.is_over
            while (entry := self.ring.get_bytes(0.1)) is not None:
                if entry[4] == wire.DATA:
                    self.entries.append(entry)

    def _hear(self) -> None:
        while sent := self.server.recv(MIB):
            self.status_bytes += len(sent)

    def value(self) -> bytes:
        """The last bytes of the only row that reached the ring, from its column on."""
        header = wire.RAW_HEADER.unpack_from(self.entries[-1])
        assert header[4] == 1, "a long row is alone in its batch"
        insert = parse(self.entries[-1][header[5] + wire.MESSAGE.size :])
        assert isinstance(insert, Insert)
        (value,) = insert.new
        assert isinstance(value, bytes)
        return value

    def close(self) -> None:
        """Free everything."""
        self.ring.close()
        self.control.close()


CASES: Final = [
    pytest.param("b", TEXT, HOSTILE, id="b"),
    pytest.param("b", BYTES, b"DEADBEEF", id="b-bytea"),
    pytest.param("t", TEXT, EVERYWHERE, id="t-escapes"),
    pytest.param("j", TEXT, EVERYWHERE, id="j-escapes"),
    pytest.param("j", TEXT, HOSTILE, id="j"),
    pytest.param("s", TEXT, EVERYWHERE, id="s-escapes"),
    pytest.param("q", TEXT, EVERYWHERE, id="q-escapes"),
]


@pytest.mark.parametrize(("style", "column", "unit"), CASES)
def test_statuses_go_on_while_a_row_is_translated(
    style: str, column: gw.Column, unit: bytes
) -> None:
    """Of a table that nobody wants a row is translated, and nothing else takes long."""
    session = Session(style, white_list=WhiteList([("public", "other")]))
    session.receive(OPENING[style], payload(style, column, unit, LONG // len(unit)))
    assert session.receiver.translator.filtered_count == 1
    assert session.receiver.worker_status_count > 0
    assert session.status_bytes % STATUS_BYTES == 0
    assert session.status_bytes // STATUS_BYTES > session.receiver.worker_status_count
    session.close()


@pytest.mark.parametrize(("style", "column", "unit"), CASES[:-1])
def test_long_rows_arrive_whole(style: str, column: gw.Column, unit: bytes) -> None:
    """Translated, appended and stored by another thread, each with a status at least."""
    times = LONG // len(unit)
    session = Session(style)
    session.receive(OPENING[style], payload(style, column, unit, times))
    assert session.value() == (b"\\x" if column is BYTES else b"") + unit * times
    assert session.receiver.worker_status_count >= 3
    session.close()


@pytest.mark.parametrize("encoding", ["GBK", "GB18030"])
def test_long_rows_of_another_encoding_arrive_whole(encoding: str) -> None:
    """Converted letter by letter, under the same rule."""
    text = "汉字, " * (LONG // 16)
    session = Session("b", encoding)
    session.receive(OPENING["b"], payload("b", TEXT, text.encode("gbk"), 1))
    assert session.value() == text.encode()
    assert session.receiver.worker_status_count >= 3
    session.close()


def test_long_row_of_many_columns_arrives_whole() -> None:
    """It may owe its length to any number of values."""
    columns = [gw.Column(b"c%d" % index, 25, "text") for index in range(1000)]
    fields = [(column, EVERYWHERE * (LONG // 4000)) for column in columns]
    row = gw.Row("I", 0x2001, b"public", b"t", fields, None)
    session = Session("t")
    session.receive(OPENING["t"], gw.TextStyle(gw.Wanted(), V6_0_0).row(row))
    header = wire.RAW_HEADER.unpack_from(session.entries[-1])
    insert = parse(session.entries[-1][header[5] + wire.MESSAGE.size :])
    assert isinstance(insert, Insert)
    assert list(insert.new) == [value for _, value in fields]
    assert session.receiver.worker_status_count >= 3
    session.close()


@pytest.mark.parametrize(
    ("style", "column", "unit", "landed"),
    [("b", BYTES, b"DEADBEEF", b"\xde\xad\xbe\xef"), ("j", TEXT, EVERYWHERE, EVERYWHERE)],
)
def test_statuses_go_on_while_a_row_is_decoded(
    style: str, column: gw.Column, unit: bytes, landed: bytes
) -> None:
    """With one decoder it is decoded here, too; that has a status of its own."""
    session = Session(style, is_serial=True)
    session.receive(OPENING[style], payload(style, column, unit, LONG // len(unit)))
    assert landed * (LONG // len(unit)) in session.entries[-1]
    assert session.receiver.worker_status_count >= 4
    session.close()


def test_what_goes_wrong_aside_is_the_sessions_error() -> None:
    """A long row that breaks the format ends the stream as a short one does."""
    session = Session("b")
    damaged = payload("b", TEXT, b"x", LONG)[:-1] + b"?"
    with pytest.raises(WireError, match="separator"):
        session.receive(OPENING["b"], damaged)
    session.close()


def test_short_rows_need_no_other_thread() -> None:
    """What is less than 4 MiB is done at once."""
    session = Session("b")
    session.receive(OPENING["b"], payload("b", TEXT, b"x", 3 * MIB))
    assert session.value() == b"x" * 3 * MIB
    assert session.receiver.worker_status_count == 0
    session.close()


@pytest.mark.parametrize("style", ["b", "t", "j"])
def test_of_a_batch_only_what_is_long_goes_to_another_thread(style: str) -> None:
    """A long row among many short ones: it is translated, appended and stored there, they are not."""
    unit = b"x"
    short, long = (payload(style, TEXT, unit, size).removesuffix(b"F") for size in (10, 5 * MIB))
    session = Session(style, is_batched=True)
    session.receive(batch(style, *[short] * 5000, long, *[short] * 5000))
    headers = [wire.RAW_HEADER.unpack_from(entry) for entry in session.entries]
    assert sum(header[4] for header in headers) == 1 + 5000 + 1 + 5000
    assert 3 <= session.receiver.worker_count < 1000  # a full queue is tried again
    session.close()


@pytest.mark.parametrize("style", ["b", "t", "j"])
def test_statuses_go_out_between_the_records_of_a_long_batch(style: str) -> None:
    """None is long, and nobody wants them, so that nothing but their size ends the walk."""
    short = payload(style, TEXT, b"x", 64 << 10).removesuffix(b"F")
    session = Session(style, is_batched=True, white_list=WhiteList([("public", "other")]))
    session.receive(batch(style, *[short] * (LONG // (64 << 10))))
    assert session.receiver.translator.filtered_count == LONG // (64 << 10)
    assert session.receiver.worker_count == 0
    assert session.status_bytes // STATUS_BYTES >= LONG // (4 * MIB)
    session.close()
