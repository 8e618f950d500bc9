"""GaussDB's formats to canonical messages: vectors, every style, and what may not be."""

import dataclasses
import hashlib
import json
import random
import resource
import struct
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from kit import gaussrandom as gr
from kit import gausswire as gw
from twins.canonical import (
    Absent,
    Delete,
    GaussBegin,
    GaussCommit,
    Heartbeat,
    Insert,
    LogicalMessage,
    Message,
    Truncate,
    Update,
    parse,
)
from twins.gaussformats import PlainTranslator

from gaussdecode.errors import (
    LostRowError,
    SequenceError,
    SourceRefusedError,
    TruncatedError,
    WireError,
)
from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.shape import Definition, Shape
from gaussdecode.source.gaussdb.identity import Nulls, nulls_of
from gaussdecode.source.gaussdb.relations import GaussRelations, TableCatalog
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList

VECTORS: Final = json.loads((Path(__file__).parents[2] / "vectors" / "opengauss.json").read_text())
# The stream is inside a transaction before the vectors that begin with a row.
OPENING: Final = {
    "b": bytes.fromhex("00000019000000000cfe5d40420000000000000935000000000cfe5d4046"),
    "t": b"BEGIN CSN: 1 first_lsn: 0/1",
    "j": b"BEGIN CSN: 1 first_lsn: 0/1",
    "s": b"BEGIN 5",
    "q": b"BEGIN 5",
}
INTEGER: Final = gw.Column(b"a", 23, "integer")
TEXT: Final = gw.Column(b"b", 25, "text")
PAIR: Final = [(INTEGER, b"1"), (TEXT, b"x")]


class Session:
    """A translator with its registry; messages come parsed."""

    def __init__(
        self,
        style: str,
        batch: int = 0,
        catalog: TableCatalog | None = None,
        encoding: str = "UTF8",
        white_list: WhiteList | None = None,
        nulls: Nulls = Nulls.SENT,
        *,
        takes_ddl: bool = False,
    ) -> None:
        self.style = style
        self.translator = Translator(style.encode(), bool(batch), encoding, takes_ddl=takes_ddl)
        self.relations = GaussRelations(white_list or WhiteList(), catalog, nulls=nulls)
        self.definitions: list[Definition] = []

    def define(self, shape: Shape) -> Definition:
        """Define, and remember what came out."""
        self.definitions.append(self.relations.define(shape))
        return self.definitions[-1]

    def feed(self, payload: bytes, lsn: int = 0) -> list[Message]:
        """Translate one payload."""
        return [parse(each) for each in self.translator.feed_bytes(payload, lsn, self.define)]

    def open(self) -> "Session":
        """Begin a transaction."""
        self.feed(OPENING[self.style])
        return self

    def rows(self, *rows: gw.Row) -> list[Message]:
        """Translate rows inside a transaction."""
        return [
            message for row in rows for message in self.feed(payload_of(self.style, row), row.lsn)
        ]

    def named(self, message: Message) -> tuple[Any, ...]:  # Any: texts by column
        """Give a row as operation, table, and texts by column, new and old."""
        assert isinstance(message, Insert | Update | Delete)
        found = [d.relation for d in self.definitions if d.relation.oid == message.relation_oid]
        names = [column.name for column in found[-1].columns]
        sent = {column.name for column in found[-1].columns if column.is_identity}

        def texts(values: Any) -> Any:  # Any: as above
            if values is None:
                return None
            return dict(zip(names, (None if v is Absent.NULL else v for v in values), strict=True))

        is_bare = getattr(message, "old_tag", None) == "X"
        old = None if is_bare else texts(getattr(message, "old", None))
        if old is not None:
            old = {name: old[name] for name in names if name in sent} or None
        new = texts(getattr(message, "new", None))
        return type(message).__name__[0], found[-1].namespace, found[-1].name, new, old


def payload_of(style: str, row: gw.Row) -> bytes:
    """Write one row as one unbatched payload."""
    stream = gr.stream_of(style, 0, gw.Wanted())
    if isinstance(stream, gw.ParallelStream):
        return stream.style.row(row) + (b"F" if style == "b" else b"")
    text = stream._change(row)
    assert text is not None
    return text


def record(body: bytes, lsn: int = 7) -> bytes:
    """Frame a binary record, from its letter on, as the last of its payload."""
    return struct.pack(">IQ", len(body) + 8, lsn) + body + b"F"


# ---- vectors


def lsn_of(text: str) -> int:
    """Read a position as the vectors write it."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def micros_of(text: str | None) -> int | None:
    """Read a commit time as the vectors write it."""
    if text is None:
        return None
    return int(datetime.fromisoformat(text + ":00").timestamp() * 1_000_000 + 0.5)


def check_record(session: Session, message: Message, expected: dict[str, Any]) -> None:
    """Compare a message with what a vector says that its record means."""
    op = expected["op"]
    if op == "B":
        assert message == GaussBegin(
            lsn_of(expected["first_lsn"]), expected["csn"], expected.get("xid"),
            micros_of(expected.get("commit_time")), None, b"",
        )  # fmt: skip
    elif op == "C":
        time = micros_of(expected.get("commit_time"))
        assert message == GaussCommit(lsn_of(expected["lsn"]), expected.get("xid"), time, None)
    elif op == "h":
        lsns = lsn_of(expected["read_lsn"]), lsn_of(expected["flushed_lsn"])
        assert message == Heartbeat(*lsns, expected["timestamp_raw"] * 1000)
    else:
        texts = [
            None if expected[part] is None else
            {c["name"]: None if c["value"] is None else c["value"].encode() for c in expected[part]}
            for part in ("new", "old")
        ]  # fmt: skip
        assert session.named(message) == (op, expected["schema"], expected["table"], *texts)


BINARY: Final = [v for v in VECTORS["vectors"] if v["id"][0] in "BCIUDNPH"]


@pytest.mark.parametrize("vector", BINARY, ids=lambda vector: str(vector["id"]))
def test_binary_vectors(vector: dict[str, Any]) -> None:
    """Every record of the vectors means what they say."""
    payload = bytes.fromhex(vector["hex"])
    if vector["layer"] == "copydata_body":
        payload = payload[gw.HEADER_BYTES :]
    elif vector["layer"] == "record":
        payload += b"F"
    expected = vector["decoded"].get("records", [vector["decoded"]])
    session = Session("b", vector.get("sending_batch", 0))
    if expected[0]["op"] not in "Bh":
        session.open()

    messages = session.feed(payload)

    for message, meant in zip(messages, expected, strict=True):
        check_record(session, message, meant)


def test_recipe_vector() -> None:
    """A payload just over the megabyte ends with F and nothing more."""
    recipe = next(v for v in VECTORS["vectors"] if v["id"] == "T02")
    begin = bytes.fromhex(next(v for v in VECTORS["vectors"] if v["id"] == "B02")["hex"])
    value = b"x" * recipe["value_len"]
    row = gw.Row("I", 0xCFE5D40, b"public", b"big", [(gw.Column(b"v", 25, "text"), value)], None)
    payload = begin + b"P" + payload_of("b", row)
    header = gw.wal_header(lsn_of(recipe["header_lsn"]), 763_734_672_100_000)
    assert hashlib.sha256(header + payload).hexdigest() == recipe["sha256"]
    session = Session("b", 1)

    begun, inserted = session.feed(payload)

    assert isinstance(begun, GaussBegin)
    assert session.named(inserted) == ("I", "public", "big", {"v": value}, None)


TIME_US: Final = 1_710_419_472_098_179
AB: Final = {"a": b"3", "b": b"4"}
STATEMENTS: Final[dict[str, Any]] = {  # Any: messages, or rows by column
    "X01": [GaussBegin(0xCFE64D0, 2359, 78110, None, None, b"")],
    "X02": [("I", "public", "test1", AB, None)],
    "X03": [GaussCommit(0xCFE6560, 78110, None, None)],
    "X05": [
        GaussBegin(0xCFE6220, 2358, 78109, None, None, b""),
        ("I", "public", "test1", {"a": b"3", "b": b"3"}, None),
        GaussCommit(0xCFE6350, 78109, None, None),
    ],
    "X07": [("I", "My Schema", "T", {
        "Id": b"1", "s": b"it's \"q\" \\ tab\there\nline\x01", "n": None, "z": b"null", "b": b"t",
        "e": b"", "c": "\u503c/".encode(),
    }, None)],
    "X08": [("I", "public", "t3", {
        "id": b"1", "s": b"it's\nx", "n": None, "e": b"", "f": b"f", "Bits": b"101", "v": b"0.5",
    }, None)],
    "X09": [("U", "public", "t1", {"a": b"1", "b": b"cde"}, {"a": b"1"})],
    "X10": [("D", "public", "t1", None, None)],
    "X12": [GaussBegin(0xCFE64D0, 2359, 78110, TIME_US, None, b"")],
    "S01": [GaussBegin(0xCFE5D40, None, 78108, None, None, b"")],
    "S02": [GaussBegin(0, None, 78108, None, None, b"")],
    "S04": [GaussCommit(0xCFE5E68, 78108, TIME_US, 2357)],
}  # fmt: skip


def test_no_text_vector_is_left_out() -> None:
    """Each vector of a text style has its meaning written down."""
    assert {v["id"] for v in VECTORS["vectors"] if v["id"][0] in "XS"} == STATEMENTS.keys()


@pytest.mark.parametrize("name", STATEMENTS)
def test_text_vectors(name: str) -> None:
    """Every statement of the vectors means what their comments say."""
    vector = next(v for v in VECTORS["vectors"] if v["id"] == name)
    body = bytes.fromhex(vector["hex"])
    session = Session(vector["decode_style"] or "s", vector.get("sending_batch", 0))
    if not isinstance(STATEMENTS[name][0], GaussBegin):
        session.open()

    messages = session.feed(body[gw.HEADER_BYTES :], int.from_bytes(body[1:9], "big"))

    rows = (Insert, Update, Delete)
    assert STATEMENTS[name] == [
        session.named(message) if isinstance(message, rows) else message for message in messages
    ]


# ---- every style


def spelled(column: gw.Column, value: bytes | None) -> bytes | None:
    """Spell a value as PostgreSQL would."""
    if value is None or column.type_oid not in (86, 88, 1700):
        return value
    if column.type_oid == 1700:
        return (
            value.replace(b"-.", b"-0.")
            if value[:1] == b"-"
            else (b"0" + value if value[:1] == b"." else value)
        )
    return b"\\x" + value


def meant(row: gw.Row) -> tuple[Any, ...]:  # Any: texts by column
    """Say what a row must come out as."""
    parts = [
        None if fields is None else {c.name.decode(): spelled(c, v) for c, v in fields}
        for fields in (row.new, row.old)
    ]
    return row.op, row.schema.decode(), row.table.decode(), *parts


@pytest.mark.parametrize(("style", "batch"), gr.STYLES)
def test_rows_are_the_same_in_every_style(style: str, batch: int) -> None:
    """Whatever the style, the batching and the options: rows, times, numbers and order."""
    for seed in range(12):
        rng = random.Random(seed)
        tables = [gr.random_table(rng, names) for names in gr.TABLES]
        wanted = dataclasses.replace(gr.random_wanted(rng), skip_empty=False)
        sent = list(gr.random_transactions(rng, tables, 4))
        session = Session(style, batch, gr.Tables(tables))
        messages = [
            message
            for payload, lsn in gr.payloads_of(gr.stream_of(style, batch, wanted), sent)
            for message in session.feed(payload, lsn)
        ]
        for transaction in sent:
            begin = messages.pop(0)
            assert isinstance(begin, GaussBegin)
            assert begin.first_lsn == transaction.first_lsn
            for change in transaction.changes:
                assert isinstance(change, gw.Row)
                assert session.named(messages.pop(0)) == meant(change)
            commit = messages.pop(0)
            assert isinstance(commit, GaussCommit)
            is_bare = style in "tj" and not batch
            end = max([0, *(c.lsn for c in transaction.changes)]) if is_bare else 0
            assert commit.end_lsn == (
                max(end, transaction.commit_lsn) if is_bare else transaction.end_lsn
            )
            check_boundaries(transaction, begin, commit, wanted, style)
        assert messages == []


def check_boundaries(
    sent: gw.Transaction, begin: GaussBegin, commit: GaussCommit, wanted: gw.Wanted, style: str
) -> None:
    """Number, time, user and origin come from wherever the style has them."""
    time = sent.commit_time_us + gw.EPOCH_2000_US
    assert sent.csn in (begin.csn, commit.csn)
    assert commit.csn in (None, sent.csn)
    if style != "q":
        assert (begin.xid, commit.xid) == ((sent.xid,) * 2 if wanted.xids else (None, None))
        assert commit.commit_time_us == (time if wanted.timestamp else None)
    else:
        assert commit.commit_time_us == time
    if style in "btj":
        assert begin.commit_time_us == (time if wanted.timestamp else None)
        assert begin.user == (sent.user if wanted.user else b"")
    if style in "btjs":
        assert begin.origin == (sent.origin or None if wanted.originid else None)


def test_truncate_of_a_serial_plug_in() -> None:
    """Tables are asked for one by one; then one message names them all."""
    session = Session("s").open()
    tables = [(b"public", b"t"), (b"Big", b'a"b')]
    for restarts, cascades in [(False, False), (True, False), (False, True), (True, True)]:
        text = gw.truncate_text(gw.Truncate(1, tables, restarts, cascades))
        (message,) = session.feed(text)
        oids = tuple(definition.relation.oid for definition in session.definitions)
        assert message == Truncate(oids, cascades, restarts)
    assert [(d.relation.namespace, d.relation.name) for d in session.definitions] == [
        ("public", "t"), ("Big", 'a"b'),
    ]  # fmt: skip
    ((_, _, _, new, _),) = map(
        session.named, session.rows(gw.Row("I", 1, b"public", b"t", PAIR, None))
    )
    assert new == {"a": b"1", "b": b"x"}


def test_truncate_of_sql_decoding() -> None:
    """It is written as mppdb_decoding does, among statements."""
    session = Session("q", catalog=gr.Tables([gr.Table(b"s", b"t", (INTEGER, TEXT), (0,), "d")]))
    session.open().rows(gw.Row("I", 1, b"s", b"t", PAIR, None))
    text = gw.truncate_text(gw.Truncate(1, [(b"s", b"t"), (b"s", b"u")], True, False))
    (message,) = session.feed(text)
    assert isinstance(message, Truncate)
    assert len(message.relation_oids) == 2
    with pytest.raises(WireError):
        session.feed(b"table s.t: TRUNCATE: what")


def test_ddl_of_sql_decoding_is_kept() -> None:
    """As a transactional message under a prefix of its own, whole, line ends included."""
    text = (
        b"message: prefix p, relid 16390, cmdtype: Simple, sz: 2 content: {}\n"
        b"decode to : CREATE TABLE s.t (), [owner none]"
    )
    (message,) = Session("q").open().feed(text, 99)
    assert isinstance(message, LogicalMessage)
    assert message == LogicalMessage(True, 99, b"gaussdecode.ddl", text)
    with pytest.raises(SequenceError, match="DDL"):
        Session("q").feed(text)
    with pytest.raises(WireError, match="unknown statement"):
        Session("s").open().feed(text)


def test_ddl_of_a_serial_plug_in_is_kept() -> None:
    """A DDL statement becomes a logical message, word for word."""
    text = b"prefix: deparse, lsn: 0/1, relid 5, cmdtype: 1, size: 2, content: {}\ndecode to: x"
    (message,) = Session("s").open().feed(text, 0x99)
    assert message == LogicalMessage(True, 0x99, b"gaussdecode.ddl", text)


def binary_record(body: bytes) -> bytes:
    """A record of style b, the only one of its payload."""
    return struct.pack(">IQ", 8 + len(body), 0x99) + body + b"F"


@pytest.mark.parametrize("style", "btjsq")
@pytest.mark.parametrize(
    "text", [b'{"TDDL": "DROP TABLE \xd6"}', b'{  "JDDL":{"fmt":""}}', b'{"TDDL"']
)
def test_ddl_that_was_asked_for_is_kept(style: str, text: bytes) -> None:
    """In every style, converted to UTF-8; outside of a transaction it is refused."""
    payload = binary_record(text) if style == "b" else text
    session = Session(style, encoding="LATIN1", takes_ddl=True)
    with pytest.raises((SequenceError, WireError)):
        session.feed(payload)
    session = Session(style, encoding="LATIN1", takes_ddl=True).open()
    (message,) = session.feed(payload, 0x99)
    kept = text.decode("latin-1").encode()
    assert message == LogicalMessage(True, 0x99, b"gaussdecode.ddl", kept)
    twin = PlainTranslator(style, is_batched=False, encoding="LATIN1", takes_ddl=True)
    twin.feed(OPENING[style], 0, session.define)
    (spelled,) = twin.feed(payload, 0x99, session.define)
    assert parse(spelled) == message
    with pytest.raises(WireError):
        Session(style).open().feed(payload)


@pytest.mark.parametrize("style", "btjsq")
@pytest.mark.parametrize("record", [b"Zzz\0\xff", b"xDDL CREATE TABLE t()"])
def test_a_record_that_nobody_knows_is_kept_where_ddl_may_come(style: str, record: bytes) -> None:
    """Byte for byte; where no DDL was asked for it is damage."""
    payload = binary_record(record) if style == "b" else record
    session = Session(style, encoding="GBK", takes_ddl=True).open()
    (message,) = session.feed(payload, 0x99)
    assert message == LogicalMessage(True, 0x99, b"gaussdecode.ddl", record)
    twin = PlainTranslator(style, is_batched=False, encoding="GBK", takes_ddl=True)
    twin.feed(OPENING[style], 0, session.define)
    (spelled,) = twin.feed(payload, 0x99, session.define)
    assert parse(spelled) == message
    with pytest.raises(WireError, match="unknown"):
        Session(style, encoding="GBK").open().feed(payload)


def test_rows_of_test_decoding() -> None:
    """Serial texts name the table with a dot and a colon."""
    session = Session("s").open()
    (row,) = session.feed(b"table public.t: UPDATE: old-key: a[integer]:1 new-tuple: a[integer]:2")
    assert session.named(row) == ("U", "public", "t", {"a": b"2"}, {"a": b"1"})


def test_trailing_comma_of_sql() -> None:
    """sql_decoding ends a list with a comma when the last column was dropped."""
    table = gr.Table(b"public", b"t", (INTEGER, TEXT), (0,), "d")
    session = Session("q", catalog=gr.Tables([table])).open()
    (row,) = session.feed(b"insert into public.t values (1, 'x', );")
    assert session.named(row) == ("I", "public", "t", {"a": b"1", "b": b"x"}, None)


@pytest.mark.parametrize("style", ["t", "j"])
def test_heartbeats_in_words(style: str) -> None:
    """Positions and a time are found wherever they stand; without any the record's LSN is it."""
    text = b"HeartBeat: read 0/CFE6350, flushed 0/CFE6400, 2024-03-14 20:31:12.098179+08"
    assert Session(style).feed(text) == [Heartbeat(0xCFE6350, 0xCFE6400, TIME_US)]
    framed = struct.pack(">IQ", 8 + 14, 5) + b"HeartBeat: on " + bytes(4)
    assert Session(style, 1).feed(framed) == [Heartbeat(5, 0, 0)]
    seconds = b"HeartBeat: 0/1 0/2 1710419472"
    assert Session(style).feed(seconds) == [Heartbeat(1, 2, 1_710_419_472_000_000)]


def test_heartbeats_among_records() -> None:
    """Both framings are met between rows, and change nothing."""
    session = Session("b", 1)
    framed = gw.heartbeat(9, 8, 1_710_419_472_098, framed=True)[:-1] + b"P"
    bare = gw.heartbeat(9, 8, 1_710_419_472_098, framed=False)[:-1] + b"P"
    begin = OPENING["b"][:-1] + b"P"
    row = payload_of("b", gw.Row("I", 1, b"s", b"t", PAIR, None))[:-1] + b"P"
    messages = session.feed(begin + bare + row + framed + row + bytes(4))
    beat = Heartbeat(9, 8, 1_710_419_472_098_000)
    assert [type(m) for m in messages] == [GaussBegin, Heartbeat, Insert, Heartbeat, Insert]
    assert messages[1] == messages[3] == beat
    assert session.translator.heartbeat_count == 2


# ---- parts of a boundary


def test_optional_parts_in_any_order() -> None:
    """Known letters are read, others stepped over by their length and counted."""
    parts = {
        "X": b"X" + struct.pack(">Q", 2**40),
        "T": b"T\0\0\0\x16" + b"2024-03-14 20:31:12+08",
        "N": b"N\0\0\0\3joe",
        "O": b"O\0\0\0\7",
        "z": b"z\0\0\0\4\0\xffPF",
    }
    rng = random.Random(1)
    for _ in range(20):
        order = rng.sample(sorted(parts), 5)
        session = Session("b")
        body = b"B" + struct.pack(">QQ", 9, 8) + b"".join(parts[letter] for letter in order)
        (begin,) = session.feed(record(body))
        assert begin == GaussBegin(8, 9, 2**40, TIME_US - 98_179, 7, b"joe")
        assert session.translator.unknown_part_count == 1


def test_unknown_words_of_a_begin() -> None:
    """Words that nobody knows are stepped over, blanks and all."""
    session = Session("t")
    text = b"BEGIN CSN: 5 first_lsn: 1/2 colour: deep red xid: 6 user_name: a b"
    assert session.feed(text) == [GaussBegin(0x1_0000_0002, 5, 6, None, None, b"a b")]
    assert session.translator.unknown_part_count == 1


@pytest.mark.parametrize("time", ["infinity", "0044-03-15 00:00:00+00 BC", "2024-03-14 20:31:12"])
def test_times_that_say_nothing(time: str) -> None:
    """A time that is none, or has no zone, counts as not sent."""
    session = Session("t").open()
    assert session.feed(b"commit xid: 1 (at " + time.encode() + b")", 9) == [
        GaussCommit(9, 1, None, None)
    ]
    assert session.translator.unread_time_count == 1


def test_commit_in_capitals() -> None:
    """The manual's spelling is read as the server's."""
    assert Session("t").open().feed(b"COMMIT XID: 78109", 9) == [GaussCommit(9, 78109, None, None)]


# ---- relations


def test_one_question_per_shape() -> None:
    """A thousand rows of one shape ask once, however their values differ."""
    session = Session("b").open()
    row = gw.Row("I", 1, b"s", b"t", PAIR, None)
    assert len(session.rows(*[row] * 1000)) == 1000
    assert len(session.definitions) == 1


@pytest.mark.parametrize("style", ["b", "t", "j"])
def test_another_shape_is_another_version(style: str) -> None:
    """A column more, a new type, another name or order: each begins a version."""
    session = Session(style).open()
    wide = gw.Column(b"a", 20, "bigint")
    upper, third = gw.Column(b"A", 23, "integer"), gw.Column(b"c", 23, "integer")
    shapes: list[gw.Fields] = [
        PAIR,
        [*PAIR, (third, None)],
        [(wide, b"1"), PAIR[1]],
        [(upper, b"1"), PAIR[1]],
        PAIR[::-1],
        PAIR,
    ]
    session.rows(*[gw.Row("I", 1, b"s", b"t", fields, None) for fields in shapes])
    assert [d.relation.version for d in session.definitions] == [1, 2, 3, 4, 5, 6]
    assert len({d.relation.oid for d in session.definitions}) == 1


@pytest.mark.parametrize("style", ["b", "t", "j", "s"])
def test_old_tuples_show_the_key(style: str) -> None:
    """Without a catalogue the identity is what an old tuple shows, and changes with it."""
    session = Session(style).open()
    key, full = PAIR[:1], PAIR
    rows = session.rows(
        gw.Row("I", 1, b"s", b"t", PAIR, None),
        gw.Row("U", 2, b"s", b"t", PAIR, key),
        gw.Row("U", 3, b"s", b"t", PAIR, None),
        gw.Row("D", 4, b"s", b"t", None, key),
        gw.Row("U", 5, b"s", b"t", PAIR, full),
        gw.Row("D", 6, b"s", b"t", None, None),
    )
    shown = [
        (d.relation.identity, [c.name for c in d.relation.columns if c.is_identity])
        for d in session.definitions
        if d.is_new
    ]
    default, every = ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL
    assert shown == [(default, []), (default, ["a"]), (every, ["a", "b"]), (default, [])]
    assert [getattr(row, "old_tag", "-") for row in rows] == ["-", "K", None, "K", "O", "K"]
    assert rows[3] == Delete(rows[3].relation_oid, "K", (b"1", Absent.NULL))  # type: ignore[union-attr]
    assert rows[5] == Delete(rows[5].relation_oid, "K", (Absent.NULL, Absent.NULL))  # type: ignore[union-attr]


def test_gaps_of_old_tuples() -> None:
    """Where NULLs are left out of full old tuples, what is not there is NULL."""
    third = gw.Column(b"c", 23, "integer")
    fields = [*PAIR, (third, b"3")]
    table = gr.Table(b"s", b"t", (INTEGER, TEXT, third), (0,), "f")
    session = Session("b", catalog=gr.Tables([table])).open()
    rows = session.rows(
        gw.Row("U", 1, b"s", b"t", fields, fields),
        gw.Row("U", 2, b"s", b"t", fields, [fields[0], fields[2]]),
        gw.Row("U", 3, b"s", b"t", fields, fields[:1]),
        gw.Row("U", 4, b"s", b"t", fields, fields),
    )
    assert [row.old for row in rows if isinstance(row, Update)] == [
        (b"1", b"x", b"3"), (b"1", Absent.NULL, b"3"), (b"1", Absent.NULL, Absent.NULL),
        (b"1", b"x", b"3"),
    ]  # fmt: skip
    assert [d.is_new for d in session.definitions] == [True, False]


@pytest.mark.parametrize("style", ["b", "t", "j", "s", "q"])
def test_rows_nobody_wants(style: str) -> None:
    """A table that the white list leaves out asks once, for nothing, and gives nothing."""
    white_list = WhiteList([("s", "u")])
    table = gr.Table(b"s", b"u", (INTEGER, TEXT), (0,), "d")
    catalog = gr.Tables([table])
    session = Session(style, catalog=catalog, white_list=white_list).open()
    hidden = gw.Row("I", 1, b"s", b"t", PAIR, None)
    other = gw.Row("I", 1, b"s", b"t", PAIR[:1], None)
    assert session.rows(hidden, other, dataclasses.replace(hidden, op="D", new=None)) == []
    assert len(session.definitions) == 1
    assert session.definitions[0].relation.is_filtered
    assert (catalog.asked, session.translator.filtered_count) == (0, 3)
    assert len(session.rows(gw.Row("I", 1, b"s", b"u", PAIR, None))) == 1


def test_catalogue_gives_key_modifiers_and_oid() -> None:
    """The first insert already has key, precision and OID, in every style alike."""
    seen = []
    for style in "btjsq":
        columns = (INTEGER, gw.Column(b"n", 1700, "numeric"), gw.Column(b"c", 90, "clob"))
        table = gr.Table(b"s", b"t", columns, (0,), "d")
        catalog = WithModifier([table])
        session = Session(style, catalog=catalog).open()
        session.rows(gw.Row("I", 1, b"s", b"t", [(column, b"1") for column in columns], None))
        (definition,) = session.definitions
        seen.append(definition.relation)
    assert seen[1:] == seen[:-1]
    assert (seen[0].oid, seen[0].is_oid_known) == (16384, True)
    assert [column.is_identity for column in seen[0].columns] == [True, False, False]
    assert (seen[0].columns[1].type.precision, seen[0].columns[1].type.scale) == (10, 2)


class WithModifier(gr.Tables):
    """A catalogue in which every numeric is a numeric(10,2)."""

    def look_up_table(self, schema: str, name: str) -> Any:  # Any: CatalogTable | None
        """Answer with modifiers."""
        found = super().look_up_table(schema, name)
        if found is None:
            return None
        columns = tuple(
            dataclasses.replace(c, type_text="numeric(10,2)", type_modifier=(10 << 16 | 2) + 4)
            if c.type_oid == 1700 else c
            for c in found.columns
        )  # fmt: skip
        return dataclasses.replace(found, columns=columns)


def test_names_with_blanks_in_text_style() -> None:
    """The catalogue tells which of several readings is a table; without it that is an error."""
    fields = PAIR
    row = gw.Row("I", 1, b"My Schema", b"T 1", fields, None)
    tables = [
        gr.Table(b"My Schema", b"T 1", (INTEGER, TEXT), (0,), "d"),
        gr.Table(b"My", b"Schema", (INTEGER, TEXT), (0,), "d"),
    ]
    session = Session("t", catalog=gr.Tables(tables)).open()
    (message,) = session.rows(row)
    assert session.named(message)[1:3] == ("My Schema", "T 1")
    with pytest.raises(SourceRefusedError, match=r'"My"\."Schema T 1"'):
        Session("t").open().rows(row)
    wanted = WhiteList([("My Schema", "*")])
    assert len(Session("t", white_list=wanted).open().rows(row)) == 1
    assert Session("t", white_list=WhiteList([("x", "*")])).open().rows(row) == []


def test_inserts_of_sql_need_the_catalogue() -> None:
    """A row without names is refused when nobody can tell its columns."""
    row = gw.Row("I", 1, b"s", b"t", PAIR, None)
    with pytest.raises(LostRowError, match="names no columns"):
        Session("q").open().rows(row)
    narrow = gr.Tables([gr.Table(b"s", b"t", (INTEGER,), (0,), "d")])
    with pytest.raises(LostRowError, match="1 columns now"):
        Session("q", catalog=narrow).open().rows(row)


@pytest.mark.parametrize("style", ["b", "t", "j", "s"])
def test_rows_that_the_server_lost(style: str) -> None:
    """No column, or no tuple, of a table that has columns is an error of its own."""
    for row in (
        gw.Row("I", 1, b"s", b"t", [], None),
        gw.Row("U", 1, b"s", b"t", [], PAIR[:1]),
        *([] if style in "js" else [gw.Row("U", 1, b"s", b"t", PAIR, [])]),
        *([] if style in "js" else [gw.Row("D", 1, b"s", b"t", None, [])]),
    ):
        session = Session(style).open()
        session.rows(gw.Row("I", 1, b"s", b"t", PAIR, None))
        with pytest.raises(LostRowError, match=r"s\.t"):
            session.rows(row)
    with pytest.raises(LostRowError):
        Session("b").open().rows(gw.Row("I", 1, b"s", b"t", None, None))


@pytest.mark.parametrize("style", ["b", "t", "j", "s", "q"])
@pytest.mark.parametrize("is_first", [True, False])
def test_old_rows_of_nulls_alone(style: str, *, is_first: bool) -> None:
    """Where NULLs are left out of old tuples, no column at all is a row of NULLs."""
    table = gr.Table(b"s", b"t", (INTEGER, TEXT), (), "f")
    old: gw.Fields | None = None if style in "js" else []
    for version in (3_00_00, 3_01_01):
        session = Session(style, catalog=gr.Tables([table]), nulls=nulls_of(version, style)).open()
        if not is_first:
            session.rows(gw.Row("I", 1, b"s", b"t", PAIR, None))
            session.rows(gw.Row("U", 1, b"s", b"t", PAIR, PAIR[1:]))
        update, delete, part = session.rows(
            gw.Row("U", 1, b"s", b"t", PAIR, old),
            gw.Row("D", 1, b"s", b"t", None, old),
            gw.Row("D", 1, b"s", b"t", None, PAIR[:1]),
        )
        for message in (update, delete):
            assert isinstance(message, Update | Delete)
            assert message.old_tag == "O"
            assert message.old == (Absent.NULL, Absent.NULL)
        assert isinstance(part, Delete)
        assert part.old_tag == "O"
        assert part.old == (b"1", Absent.NULL)
        assert len({definition.relation.identity for definition in session.definitions}) == 1


@pytest.mark.parametrize("style", ["b", "t", "j", "s", "q"])
def test_the_twin_reads_rows_of_nulls_alike(style: str) -> None:
    """The plain twin gives the same messages, rows with and without columns mixed."""
    table = gr.Table(b"s", b"t", (INTEGER, TEXT), (), "f")
    rows = [
        gw.Row(op, 1, b"s", b"t", None if op == "D" else PAIR, old)
        for op in "UD"
        for old in (PAIR, None if style in "js" else [], PAIR[1:], PAIR[:1])
    ]
    payloads = [OPENING[style], *(payload_of(style, row) for row in rows)]
    nulls = nulls_of(3_00_00, style)
    fast, plain = (
        Translator(style.encode(), False, "UTF8"),
        PlainTranslator(style, is_batched=False),
    )
    quick, slow = (GaussRelations(WhiteList(), gr.Tables([table]), nulls=nulls) for _ in range(2))
    for payload in payloads:
        found = fast.feed_bytes(payload, 1, quick.define)
        assert found == plain.feed(payload, 1, slow.define)


@pytest.mark.parametrize("style", ["b", "t", "j", "s"])
def test_a_key_is_no_row_of_nulls(style: str) -> None:
    """Where NULLs are left out, a table that is known by its key still is."""
    table = gr.Table(b"s", b"t", (INTEGER, TEXT), (0,), "d")
    session = Session(style, catalog=gr.Tables([table]), nulls=nulls_of(3_00_00, style)).open()
    update, delete = session.rows(
        gw.Row("U", 1, b"s", b"t", PAIR, None), gw.Row("D", 1, b"s", b"t", None, PAIR[:1])
    )
    assert isinstance(update, Update)
    assert update.old is None
    assert isinstance(delete, Delete)
    assert delete.old_tag == "K"
    assert not any(definition.has_gaps for definition in session.definitions)


@pytest.mark.parametrize("version", [3_00_03, 3_00_06, 5_00_00, 6_00_00, 505_01_00])
@pytest.mark.parametrize("style", ["b", "t", "j", "s"])
def test_newer_servers_send_their_nulls(version: int, style: str) -> None:
    """There a row without columns is one that the server lost."""
    assert nulls_of(version, style) is Nulls.SENT


def test_table_without_columns() -> None:
    """Rows of a table that has none are rows."""
    for style in "btj":
        session = Session(style).open()
        (row,) = session.rows(gw.Row("I", 1, b"s", b"z", [], None))
        assert isinstance(row, Insert)
        assert row.new == ()


def test_descriptions_above_the_limit_are_asked_for_again() -> None:
    """Forgetting costs a question and no version."""
    translator = Translator(b"b", False, "UTF8", 2000)
    relations = GaussRelations(WhiteList())
    definitions = []

    def define(shape: Shape) -> Definition:
        definitions.append(relations.define(shape))
        return definitions[-1]

    translator.feed_bytes(OPENING["b"])
    for _ in range(3):
        for number in range(50):
            row = gw.Row("I", 1, b"s", b"t%d" % number, PAIR, None)
            translator.feed_bytes(payload_of("b", row), 0, define)
    assert translator.held_bytes <= 2000
    assert len(definitions) > 100
    assert sum(definition.is_new for definition in definitions) == 50


# ---- encodings


def gbk_backslash() -> str:
    """Letters whose second byte in GBK is a backslash, a quote's neighbour, or a bracket."""
    return "".join(
        bytes([0x81 + index, byte]).decode("gbk")
        for index in range(5)
        for byte in (0x5C, 0x5B, 0x5D, 0x7B, 0x7D, 0x60)
    )


@pytest.mark.parametrize("style", ["b", "t", "j", "s"])
@pytest.mark.parametrize(
    ("encoding", "codec", "sample"),
    [
        ("GBK", "gbk", "\u4e2d\u6587 it's " + gbk_backslash()),
        ("GB18030", "gb18030", "\u4e2d\U0001f600'\u00e9 " + gbk_backslash()),
        ("LATIN1", "latin-1", "na\u00efve 'caf\u00e9' \u00ff"),
        ("UTF8", "utf-8", "\u4e2d\u6587\U0001f600"),
        ("SQL_ASCII", "utf-8", "\u4e2d\u6587\U0001f600"),
    ],
)
def test_encodings(style: str, encoding: str, codec: str, sample: str) -> None:
    """Names and values arrive in UTF-8, quotes and trail bytes included."""
    raw = sample.encode(codec)
    column = gw.Column(sample[:2].encode(codec), 25, "text")
    session = Session(style, encoding=encoding).open()
    name = b"T_" + raw.replace(b" ", b"_")
    (message,) = session.rows(gw.Row("I", 1, b"s", name, [(column, raw)], None))
    assert session.named(message) == (
        "I", "s", name.decode(codec), {sample[:2]: sample.encode()}, None,
    )  # fmt: skip


def test_bytes_that_are_no_letters() -> None:
    """What has no letter stays as it is, and the whole is not UTF-8."""
    session = Session("b", encoding="GBK").open()
    for raw in (b"ok \xff", b"\x81", b"\xc4\x80\xff\xff a", b"\xa2\xa0\xc3\xa9"):
        column = gw.Column(b"v", 25, "text")
        (message,) = session.rows(gw.Row("I", 1, b"s", b"t", [(column, raw)], None))
        assert isinstance(message, Insert)
        with pytest.raises(UnicodeDecodeError):
            message.new[0].decode()  # type: ignore[union-attr]
    assert session.translator.unconverted_count == 4


def test_user_names_are_converted() -> None:
    """The user of a transaction arrives in UTF-8, too."""
    body = b"B" + bytes(16) + b"N\0\0\0\2" + "\u4e2d".encode("gbk")
    (begin,) = Session("b", encoding="GBK").feed(record(body))
    assert isinstance(begin, GaussBegin)
    assert begin.user == "\u4e2d".encode()


def test_unknown_encoding_is_refused() -> None:
    """An encoding nobody can convert is named, with what can be."""
    with pytest.raises(SourceRefusedError, match=r"EUC_JIS_2004.*GBK"):
        Translator(b"b", True, "EUC_JIS_2004")


# ---- what may not be

ROW: Final = payload_of("b", gw.Row("I", 1, b"s", b"t", PAIR, None))
LAST_SIZE: Final = len(ROW) - 1 - 1 - 4  # of the last value: before its text and the separator


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (record(b"B" + bytes(16)) + b"x", "after the end of the payload"),
        (bytes(4) + b"x", "after the end of the payload"),
        (record(b"B" + bytes(16))[:-1] + b"Q", "unknown separator"),
        (record(b"R"), "unknown type of record"),
        (record(b"h" + bytes(25)), "after the end of the record"),
        (record(b"B" + bytes(16) + b"N\0\0\0\3a\0b"), "zero byte"),
    ],
)
def test_binary_framing_errors(payload: bytes, reason: str) -> None:
    """Framing that is not the format's stops the translator."""
    with pytest.raises(WireError, match=reason):
        Session("b").feed(payload)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: row[:LAST_SIZE] + b"\xff\xff\xff\xfe" + b"xF", "reserved size"),
        (lambda row: row.replace(b"N\0\2", b"Q\0\2"), "unknown part"),
        (lambda row: row.replace(b"N\0\2", b"O\0\2"), "unknown part"),
    ],
)
def test_row_errors(change: Callable[[bytes], bytes], reason: str) -> None:
    """A row that is not the format's stops the translator."""
    with pytest.raises(WireError, match=reason):
        Session("b").open().feed(change(ROW))


def test_two_tuples_of_a_kind() -> None:
    """A second new tuple is no part of the format."""
    part = b"N\0\1\0\1a\0\0\0\x17\0\0\0\1" + b"1"
    with pytest.raises(WireError, match="two tuples"):
        Session("b").open().feed(record(b"I\0\1s\0\1t" + part + part))


@pytest.mark.parametrize("size", [0xFFFFFFFD, 0x80000000, 0x7FFFFFFF])
def test_claimed_sizes_are_not_believed(size: int) -> None:
    """A record, a value, a part, a name or a count longer than its bytes is truncated."""
    big = struct.pack(">I", size)
    begin = b"B" + bytes(16)
    for payload in (
        big + bytes(12),
        record(begin + b"T" + big + b"2"),
        record(begin + b"z" + big),
        struct.pack(">I", len(ROW) - 5) + ROW[4:LAST_SIZE] + big + ROW[LAST_SIZE + 4 :],
        record(b"I" + big[2:] + b"s"),
        record(b"I\0\1s\0\1tN\xff\xff" + bytes(100)),
    ):
        with pytest.raises(TruncatedError):
            Session("b").open().feed(payload) if payload[12:13] == b"I" else Session("b").feed(
                payload
            )
    with pytest.raises(TruncatedError):
        Session("t", 1).feed(struct.pack(">IQ", max(size, 9), 1))


def test_statement_shorter_than_its_position() -> None:
    """The eight bytes of the position are in the size."""
    for size in range(1, 8):
        with pytest.raises(WireError, match="shorter"):
            Session("j", 1).feed(struct.pack(">I", size) + bytes(size + 4))


def test_columns_without_number() -> None:
    """More columns than any table has are refused before they cost memory."""
    text = b"table s t INSERT:" + b" a[b]:1" * 0x8000
    with pytest.raises(WireError, match="more columns"):
        Session("t").open().feed(text)


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("t", b"table public t INSERT: a[integer]3"),
        ("t", b"table public t MERGE: a[integer]:3"),
        ("t", b"table public t INSERT: A[integer]:3"),
        ("t", b"table public t INSERT: a[integer]:3,"),
        ("t", b"table public t INSERT: a[integer]:'x''"),
        ("t", b"table public t UPDATE: old-key: a[integer]:1"),
        ("t", b"table public t DELETE: a[integer]:unchanged-toast-datum"),
        ("t", b"table t INSERT: a[integer]:3"),
        ("t", b'{"table_name":"a.b"}'),
        ("t", b"hello"),
        ("j", b'{"table_name":"a.b","op_type":"MERGE"'),
        ("j", b"table public t INSERT: a[integer]:3"),
        ("q", b"insert into public.t values (1, 2)"),
        ("q", b"insert into public.t (a) values (1);"),
        ("q", b"delete from a.b where a = 1;insert into a.c values (1);"),
        ("s", b"ABORT 5"),
        ("s", b"table public.t, public.u TRUNCATE: (no-flags)"),
        ("s", b"table public.t: TRUNCATE: all"),
        ("t", b"commit xid: x"),
        ("t", b"commit at noon"),
    ],
)
def test_statements_that_do_not_follow_their_style(style: str, text: bytes) -> None:
    """A text that is not the style's is refused; nothing is guessed."""
    with pytest.raises(WireError):
        Session(style).open().feed(text)


@pytest.mark.parametrize(
    "text",
    [
        b"BEGIN", b"BEGIN 5", b"BEGIN CSN: x first_lsn: 0/1", b"BEGIN CSN: 1 first_lsn: 0-1",
        b"BEGIN CSN: 99999999999999999999 first_lsn: 0/1", b"BEGIN CSN: 1 first_lsn: 0/123456789",
        b"BEGIN CSN: 1 first_lsn: 0/1 origin_id: 4294967296", b"BEGIN CSN: 1 first_lsn",
    ],
)  # fmt: skip
def test_begins_that_cannot_be_read(text: bytes) -> None:
    """Numbers that are none, or too large, are refused."""
    with pytest.raises(WireError):
        Session("t").feed(text)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'""', "without a literal"),
        (b'"\'"', "without a literal"),
        (b'"\'a"', "without a literal"),
        (b"\"'a'b'\"", "without a literal"),
        (b'"B\'1"', "without a literal"),
        (rb'"\q"', "unknown escape"),
        (rb'"\u00zz"', "unknown escape"),
        (rb'"\u00"', "need 4 bytes"),
        (rb'"\ud83d"', "surrogate"),
        (rb'"\ud83d\u0041"', "surrogate"),
        (b"5", "follow"),
        (b'"1","2"', "more values"),
        (b"", "fewer values"),
    ],
)
def test_json_values_that_are_none(value: bytes, reason: str) -> None:
    """A value is one string with one literal in it."""
    row = payload_of("j", gw.Row("I", 1, b"s", b"t", PAIR[:1], None))
    with pytest.raises(WireError, match=reason):
        Session("j").open().feed(row.replace(b'["1"]', b"[" + value + b"]"))


def test_json_escapes() -> None:
    """Every escape of JSON stands for its letter, pairs for one."""
    session = Session("j").open()
    row = payload_of("j", gw.Row("I", 1, b"s", b"t", PAIR[:1], None))
    literal = rb"""["'\u00e9\ud83d\ude00\b\f\/\u0041\u0000'"]"""
    (message,) = session.feed(row.replace(b'["1"]', literal))
    assert isinstance(message, Insert)
    assert message.new == ("\u00e9\U0001f600\b\f/A\0".encode(),)
    with pytest.raises(WireError, match="not UTF-8"):
        Session("j", encoding="GBK").open().feed(row.replace(b'["1"]', literal))


def test_json_of_escapes_alone() -> None:
    """A value of many lines is read once; looked through again at each of them it never ends."""
    lines = 8 << 20
    row = payload_of("j", gw.Row("I", 1, b"s", b"t", PAIR[:1], None))
    literal = b"""["'""" + rb"seven..\n" * lines + b"""'"]"""
    (message,) = Session("j").open().feed(row.replace(b'["1"]', literal))
    assert isinstance(message, Insert)
    (value,) = message.new
    assert value == b"seven..\n" * lines


@pytest.mark.parametrize("style", ["b", "t", "j"])
def test_null_takes_no_room(style: str) -> None:
    """A size that means NULL is not taken for one: four gigabytes for each row."""
    fields = [PAIR[0], (TEXT, None)]
    row = gw.Row("U", 1, b"s", b"t", fields, fields)
    session = Session(style).open()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    try:
        (message,) = session.rows(row)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert isinstance(message, Update)
    assert message.new == (b"1", Absent.NULL)


@pytest.mark.parametrize("style", ["b", "t", "j", "s", "q"])
def test_order_of_records(style: str) -> None:
    """A BEGIN inside, a row or a COMMIT outside of a transaction: each is an error."""
    commit = record(b"C") if style == "b" else b"commit"
    row = payload_of(style, gw.Row("D", 1, b"s", b"t", None, PAIR))
    with pytest.raises(SequenceError, match="BEGIN inside"):
        Session(style).open().feed(OPENING[style])
    for payload, what in ((commit, "COMMIT outside"), (row, "row outside")):
        with pytest.raises(SequenceError, match=what):
            Session(style).feed(payload)


def test_payload_before_the_end_of_another() -> None:
    """A payload is taken when the one before has ended."""
    session = Session("b").open()
    with pytest.raises(ValueError, match="nobody to define"):
        session.translator.feed_bytes(ROW)
    assert session.translator.is_open
    with pytest.raises(SequenceError, match="payload before the end"):
        session.feed(ROW)


def test_questions_at_the_wrong_time() -> None:
    """Only a held row can be described and defined."""
    session = Session("b").open()
    with pytest.raises(ValueError, match="no row is held"):
        session.translator.describe()
    session.rows(gw.Row("I", 1, b"s", b"t", PAIR, None))
    with pytest.raises(ValueError, match="no row is held"):
        session.translator.define(session.definitions[0])


def test_answer_that_does_not_fit() -> None:
    """A definition of another row is noticed, once, and not asked for again."""
    session = Session("b").open()
    session.rows(gw.Row("I", 1, b"s", b"t", PAIR, None))
    wrong = session.definitions[0]
    other = payload_of("b", gw.Row("I", 1, b"s", b"t", PAIR[:1], None))
    with pytest.raises(WireError, match="does not describe"):
        session.translator.feed_bytes(other, 0, lambda _shape: wrong)


@pytest.mark.parametrize("style", [b"x", b"bb", b""])
def test_unknown_style(style: bytes) -> None:
    """There are five styles."""
    with pytest.raises(ValueError, match="no style"):
        Translator(style, True, "UTF8")
