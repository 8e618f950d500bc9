"""Hostile clients, by the thousand and in this process: each gets a code or an end, nobody waits, nothing grows.

`GAUSSDECODE_FUZZ_CASES` multiplies how many cases there are; it may be below 1.
"""

import asyncio
import os
import random
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from kit.served import unpack_landing

from gaussdecode.serve import sql, statements
from gaussdecode.serve.connection import Connection
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.outputs.registry import PLUGINS
from gaussdecode.serve.reader import ReadPosition
from gaussdecode.serve.server import Server, _Protocol
from gaussdecode.serve.slots import Slot
from gaussdecode.serve.users import ScramExchange, Verifier, write_user
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.types import Address

TIMES: Final = float(os.environ.get("GAUSSDECODE_FUZZ_CASES", "1"))
_PATIENCE: Final = 60.0
_VERSION: Final = 3 << 16
QUERIES: Final = (
    "SELECT slot_name, active FROM pg_replication_slots WHERE slot_name = 'fuzz' AND xmin IS NULL ORDER BY 1 DESC LIMIT 5",
    "SELECT data FROM pg_logical_slot_peek_changes('fuzz', NULL, 2, 'include-xids', 'off')",
    "SELECT count(*) FROM pg_logical_slot_get_binary_changes('fuzz', '0/1', NULL, VARIADIC '{a,\"b\",NULL}'::text[])",
    "SELECT pg_drop_replication_slot($1), version(), 1.5 AS \"x\", E'a\\n''', pg_lsn '0/0', -7::bigint /* c */",
    "SELECT * FROM pg_replication_slot_advance('fuzz', '0/FF') -- c",
    "SHOW transaction isolation level; SET SESSION extra_float_digits = 3; RESET application_name; BEGIN; COMMIT",
    "SELECT set_config('application_name', 'é', false), current_setting('ssl'), current_user",
    "IDENTIFY_SYSTEM; READ_REPLICATION_SLOT fuzz; DROP_REPLICATION_SLOT nothing WAIT",
    "CREATE_REPLICATION_SLOT \"fuzz\" TEMPORARY LOGICAL test_decoding (SNAPSHOT 'nothing', TWO_PHASE false)",
    "START_REPLICATION SLOT nothing LOGICAL 0/0 (\"include-xids\" 'on', x)",
)  # fmt: skip
_PIECES: Final = (
    "'", '"', "/*", "*/", "--", "\n", "$1", "$0", "$99999", "$" + "9" * 30, "(", ")", "::", "[", "]", "*", ",", ";",
    "E'", "\\", "\0", "é", "²", "\U0010ffff", "LIMIT", "ORDER BY", "9" * 5000, "-", "1.5", "NULL", "::int", "::text[]",
    "'abc'", "FFFFFFFF/FFFFFFFF", "FROM", "SELECT", " ", "true", "{", "}", "{,}", "=>", "VARIADIC", "ARRAY[",
)  # fmt: skip


def _mutated(chance: random.Random, text: str) -> str:
    """A text with parts cut out, put in, doubled and exchanged."""
    for _ in range(chance.randrange(4)):
        a, b = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        piece = chance.choice(_PIECES)
        text = chance.choice(
            (
                text[:a] + text[b:],
                text[:a] + piece + text[b:],
                text[:b] + text[a:],
                text[:a] + piece,
            )
        )
    return text


def _damaged(chance: random.Random, data: bytes) -> bytes:
    """Bytes with some changed, cut off, or added."""
    changed = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randrange(9))
        elif kind == 3:
            changed[at : at + 4] = struct.pack(">i", chance.choice((-1, 0, 1 << 30, -(1 << 31), 5)))
        else:
            changed += changed[at:]
    return bytes(changed)


# ---- parsers -------------------------------------------------------------------------------


def test_sql() -> None:
    """Every text is a statement, or an error with a code."""
    chance = random.Random(1)
    for _ in range(int(20_000 * TIMES)):
        text = _mutated(chance, chance.choice(QUERIES))
        try:
            for tokens in sql.statements_of(text):
                if sql.parse_command(tokens) is None:
                    statements.describe(sql.parse_sql(tokens))
        except ServeError as problem:
            assert len(problem.sqlstate) == 5


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    try:
        work()
    except ServeError:
        pass
    return time.process_time() - began


@pytest.mark.parametrize(
    "text",
    [
        "/* " * 300_000, "'" * 999_999, '"' * 999_999, "E'" + "\\" * 999_999, "/**/" * 250_000, "1" * 999_999,
        "SELECT " + "(" * 900_000, "SELECT " + "-" * 900_000, "A" * 2_000_000, "$" * 999_999, "SHOW " + "a." * 400_000,
    ],
    ids=lambda text: text[:9],
)  # fmt: skip
def test_long_sql_takes_no_longer_than_its_length(text: str) -> None:
    """No text makes the tokenizer go over it many times: it would hold up all clients."""
    assert _seconds(lambda: [sql.parse_sql(part) for part in sql.statements_of(text)]) < 30


@pytest.mark.parametrize(
    "text",
    ["{" + " " * 20_000 + "{}", "{" + '"' * 20_001 + "}", "{" + "a " * 20_000 + '"}', "{" + "\\" * 9999 + "}"],
    ids=["spaces", "quotes", "words", "escapes"],
)  # fmt: skip
def test_long_array(text: str) -> None:
    """The same of arrays of options, whose damage was left out in silence."""

    def work() -> None:
        with pytest.raises(ServeError, match="malformed array") as caught:
            statements._array(text)
        assert caught.value.sqlstate == "22P02"

    assert _seconds(work) < 30


def test_arrays() -> None:
    """What PostgreSQL reads, and what it refuses."""
    assert statements._array(' { a , "b,\\"c" ,NULL,"NULL", "" } ') == [
        "a",
        'b,"c',
        None,
        "NULL",
        "",
    ]
    assert statements._array("{}") == statements._array("{ }") == statements._array(None) == []
    for text in ("", "{", "}", "{a", "{a,}", "{,a}", "{a,,b}", "{a}b}", '{"a}', '{"a"b}', "{{a}}"):
        with pytest.raises(ServeError, match="malformed array"):
            statements._array(text)


def test_scram_messages() -> None:
    """A damaged message of an exchange is a refusal, and no error of the library."""
    chance = random.Random(2)
    verifier = Verifier(1, b"s" * 16, b"k" * 32, b"v" * 32)
    for _ in range(int(3000 * TIMES)):
        exchange = ScramExchange(verifier)
        try:
            exchange.first(_damaged(chance, b"n,,n=,r=abcdefghij"))
            exchange.final(_damaged(chance, b"c=biws,r=abcdefghij,p=" + b"QQ==" * 8))
        except ValueError:
            pass


# ---- whole sessions ------------------------------------------------------------------------


class _Transport(asyncio.Transport):
    """A connection to nobody: keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.sent = bytearray()
        self._is_closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def _frame(tag: bytes, body: bytes) -> bytes:
    return tag + struct.pack(">I", len(body) + 4) + body


def _hello(database: str, *more: str) -> bytes:
    pairs = ("user", "reader", "database", database, *more)
    body = struct.pack(">I", _VERSION) + b"".join(each.encode() + b"\0" for each in pairs) + b"\0"
    return struct.pack(">I", len(body) + 4) + body


def _codes(data: bytes) -> list[str]:
    """SQLSTATEs of all errors, after a look at every frame."""
    found = []
    at = 0
    while at < len(data):
        tag, size = struct.unpack_from(">cI", data, at)
        body = data[at + 5 : at + 1 + size]
        assert len(body) == size - 4, "a frame that is not whole"
        if tag == b"E":
            fields = {field[:1]: field[1:] for field in body.split(b"\0") if field}
            found.append(fields[b"C"].decode())
        at += 1 + size
    return found


@pytest.fixture(params=[False, True], ids=["open", "users"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server without a port, without users and with one."""
    root = unpack_landing(tmp_path)
    users = None
    if request.param:
        users = tmp_path / "users"
        write_user(users, "reader", "secret")
    config = ServeConfig(listen=Address("127.0.0.1", 0), users_file=users, slots=20)
    made = Server(root, config, PLUGINS)
    at = made.feeds.feed(None).reader.beginning()
    for name in ("fuzz", "stream"):
        made.slots.create(
            Slot(name, "test_decoding", "reader", "kept", made.facts("kept").landing_id, at.n, at.epoch, 0)
        )  # fmt: skip
    yield made
    made.feeds.close()
    made.slots.close()


async def _talk(server: Server, parts: Sequence[bytes]) -> list[str]:
    """Codes of what the server says to a client that sends some bytes and goes."""
    connection = _Protocol(server)
    transport = _Transport()
    connection.connection_made(transport)
    for part in parts:
        connection.data_received(part)
        await asyncio.sleep(0)
    connection.eof_received()
    async with asyncio.timeout(_PATIENCE):
        while server._tasks:
            await asyncio.wait(list(server._tasks))
    assert not server.sessions
    assert all(slot.process is None for slot in server.slots)
    sent = bytes(transport.sent)
    return _codes(sent.lstrip(b"N") if sent[:1] == b"N" else sent)


def _startup(chance: random.Random, database: str) -> bytes:
    hello = _hello(database, "options", "-c extra_float_digits=2", "replication", "database")
    requests = [struct.pack(">II", 8, code) for code in (80877103, 80877104, 80877102)]
    return b"".join(chance.sample(requests, chance.randrange(3))) + _damaged(chance, hello)


def _extended(chance: random.Random) -> bytes:
    query = _mutated(chance, chance.choice(QUERIES)).encode()
    bodies = {
        b"P": b"s\0" + query + b"\0" + struct.pack(">hI", 1, 23),
        b"B": b"p\0s\0" + struct.pack(">hhhi", 1, chance.randrange(3), 1, 2) + b"\0\1" + struct.pack(">hh", 1, 1),
        b"D": chance.choice((b"S", b"P")) + chance.choice((b"s\0", b"p\0")),
        b"E": b"p\0\0\0\0\0", b"C": b"Ss\0", b"S": b"", b"H": b"", b"F": b"\0\0\0\1", b"Q": query + b"\0",
        b"d": b"r" + bytes(33), b"z": b"",
    }  # fmt: skip
    tags = [b"P", b"B", b"D", b"E", b"S"]
    if chance.random() < 0.5:
        tags = [chance.choice(list(bodies)) for _ in range(6)]
    frames = [_frame(tag, bodies[tag]) for tag in tags]
    if chance.random() < 0.5:
        at = chance.randrange(len(frames))
        frames[at] = _damaged(chance, frames[at])
    return b"".join(frames)


def _stream(chance: random.Random) -> bytes:
    start = "START_REPLICATION SLOT stream LOGICAL 0/0" + chance.choice(
        ("", " (\"include-xids\" 'off')")
    )
    lsn = chance.choice((0, 1, 26504424, 1 << 63, (1 << 64) - 1))
    status = _frame(b"d", b"r" + struct.pack(">QQQqB", lsn, lsn, lsn, 0, 1))
    frames = [_damaged(chance, status) for _ in range(4)] + [_frame(b"c", b""), _frame(b"X", b"")]
    return _frame(b"Q", start.encode() + b"\0") + b"".join(frames[chance.randrange(6) :])


def _sasl(chance: random.Random) -> bytes:
    first = b"n,,n=,r=abcdefghij"
    initial = b"SCRAM-SHA-256\0" + struct.pack(">i", len(first)) + first
    frames = [
        _frame(b"p", _damaged(chance, initial)),
        _frame(b"p", _damaged(chance, b"c=biws,r=x,p=QQ==")),
    ]
    return b"".join(frames) if chance.random() < 0.7 else _damaged(chance, b"".join(frames))


def _cases(chance: random.Random, server: Server) -> Iterator[bytes]:
    hello = _hello(server.databases[0], "replication", "database")
    count = int(1500 * TIMES)
    if server.users is not None:
        opengauss = bytearray(hello)
        opengauss[7] = 51
        for _ in range(count):
            yield bytes(chance.choice((hello, opengauss))) + _sasl(chance)
        return
    for _ in range(count):
        yield _startup(chance, server.databases[0])
        yield hello + _extended(chance)
        yield hello + _frame(b"Q", _mutated(chance, chance.choice(QUERIES)).encode() + b"\0")
    for _ in range(count // 10):
        yield hello + _stream(chance)


def test_sessions(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """Startup packets, log-ins, queries, streams: damaged, cut off, endless, in any order."""
    chance = random.Random(3)

    async def all_of_them() -> set[str]:
        found: set[str] = set()
        for number, data in enumerate(_cases(chance, server)):
            at = chance.randrange(len(data) + 1)
            codes = await _talk(server, (data[:at], data[at:]))
            assert "XX000" not in codes, (number, data)
            found.update(codes)
        return found

    found = asyncio.run(all_of_them())
    assert {"08P01", "28P01" if server.users is not None else "42601"} <= found
    assert "Traceback" not in "".join(capfd.readouterr())


# ---- memory and time -----------------------------------------------------------------------


def _run(work: Callable[[], Awaitable[Any]]) -> Any:  # Any: of the coroutine
    async def bounded() -> Any:
        async with asyncio.timeout(_PATIENCE):
            return await work()

    return asyncio.run(bounded())


@pytest.mark.parametrize("server", [False], indirect=True, ids=["open"])
def test_replies_do_not_pile_up(server: Server) -> None:
    """A client that reads nothing and asks for keepalives without an end gets none while it is slow."""

    async def work() -> None:
        connection = _Protocol(server)
        transport = _Transport()
        connection.connection_made(transport)
        start = b"START_REPLICATION SLOT stream LOGICAL 0/0\0"
        connection.data_received(
            _hello(server.databases[0], "replication", "database") + _frame(b"Q", start)
        )
        while b"COMMIT" not in transport.sent:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        connection.pause_writing()
        sent = server.counts.of(server.slots.get("stream"))
        (session,) = server.sessions.values()
        while not (sent.waited_seconds or (session.stream and session.stream.is_at_end)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = len(transport.sent)
        for _ in range(20):
            connection.data_received(_frame(b"d", b"r" + bytes(32) + b"\1") * 100)
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert len(transport.sent) - before < 1000
        connection.eof_received()
        connection.connection_lost(None)
        await asyncio.wait(list(server._tasks))

    _run(work)


@pytest.mark.parametrize("server", [False], indirect=True, ids=["open"])
def test_bounds_of_a_session(server: Server) -> None:
    """What a client makes the server keep has a bound; so have requests before the log-in, and clients at once."""

    async def work() -> None:
        hello = _hello(server.databases[0])
        text = b"SELECT '" + b"x" * 400_000 + b"'\0\0\0"
        parse = [_frame(b"P", b"%d\0" % at + text) + _frame(b"S", b"") for at in range(4)]
        assert await _talk(server, [hello, *parse]) == ["53200", "53200"]
        again = [_frame(b"P", b"\0" + text) + _frame(b"S", b"") for _ in range(4)]
        assert await _talk(server, [hello, *again]) == []
        ssl = struct.pack(">II", 8, 80877103)
        assert await _talk(server, [ssl * 1000]) == ["08P01"]
        made = [_Protocol(server) for _ in range(server.settings.connections + 5)]
        transports = [_Transport() for _ in made]
        for connection, transport in zip(made, transports, strict=True):
            connection.connection_made(transport)  # before any session has begun
        refused = [transport for transport in transports if transport.sent]
        assert len(refused) == 5
        assert {code for each in refused for code in _codes(bytes(each.sent))} == {"53300"}
        for connection in made:
            connection.eof_received()
        await asyncio.wait(list(server._tasks))

    _run(work)


def test_reading_ahead_has_a_bound() -> None:
    """However large a message may be, a client's pipeline waits in its socket."""

    async def work() -> None:
        paused = []

        class Paused(_Transport):
            def pause_reading(self) -> None:
                paused.append(True)

        connection = Connection(1 << 20)
        connection.limit = 64 << 20
        connection.connection_made(Paused())
        connection.data_received(_frame(b"S", b"") * 60_000)
        assert paused

    _run(work)


def test_a_client_that_never_reads_the_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it, and its connection, do not stay for ever."""
    monkeypatch.setattr("gaussdecode.serve.connection._LINGER_SECONDS", 0.01)

    async def work() -> None:
        aborted = asyncio.Event()

        class Full(_Transport):
            def get_write_buffer_size(self) -> int:
                return 1 << 20

            def abort(self) -> None:
                aborted.set()

        connection = Connection(1 << 20)
        connection.connection_made(Full())
        connection.close()
        await aborted.wait()

    _run(work)


def test_a_slot_is_given_back_once(tmp_path: Path) -> None:
    """A client that goes in the middle of rows: the slot is free, and the end of its query takes it from nobody."""
    made = Server(unpack_landing(tmp_path), ServeConfig(listen=Address("127.0.0.1", 0)), PLUGINS)
    at = ReadPosition(0, 0, 0)
    slot = Slot(
        "copy", "test_decoding", "me", "kept", made.facts("kept").landing_id, at.n, at.epoch, 0
    )
    made.slots.create(slot)

    async def work() -> None:
        connection = _Protocol(made)
        transport = _Transport()
        connection.connection_made(transport)
        connection.pause_writing()
        query = b"SELECT * FROM pg_logical_slot_get_changes('copy', NULL, NULL)\0"
        connection.data_received(_hello("kept") + _frame(b"Q", query))
        while b"COMMIT" not in transport.sent:
            if connection._room.is_set() or not slot.process:
                connection.resume_writing()
                await asyncio.sleep(0.005)
                connection.pause_writing()
            await asyncio.sleep(0.005)
        connection.eof_received()
        connection.connection_lost(None)
        await asyncio.wait(list(made._tasks))
        assert made.slots.get("copy").process is None
        made.slots.acquire("copy", "other", 99)
        await asyncio.sleep(0.1)
        assert made.slots.get("copy").process == 99
        assert slot.lsn == 0

    try:
        _run(work)
    finally:
        made.feeds.close()
        made.slots.close()
