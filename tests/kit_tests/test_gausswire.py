"""The simulator's bytes equal the golden vectors, and its buffer keeps the server's rules."""

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from kit import gausswire as wire
from kit.gaussprofile import PROFILES, V3_0_0, V5_0_1, V6_0_0
from kit.gausswire import BinaryStyle, Column, ParallelStream, Row, Transaction, Wanted

Json = dict[str, Any]  # Any: JSON
NOW: Final = 763_734_672_100_000
COMMIT_TIME: Final = 763_734_672_098_179
ZONE: Final = 480
_FILE: Final = Path(__file__).parents[1] / "vectors" / "opengauss.json"
VECTORS: Final[dict[str, Json]] = {
    vector["id"]: vector for vector in json.loads(_FILE.read_text())["vectors"]
}
_NAMES: Final = {
    16: "boolean", 23: "integer", 25: "text", 1114: "timestamp without time zone", 1560: "bit",
    1700: "numeric",
}  # fmt: skip


def expected(name: str) -> bytes:
    """The bytes of a vector."""
    return bytes.fromhex(VECTORS[name]["hex"])


def lsn(text: str) -> int:
    """Read a position."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def wanted(vector: Json) -> Wanted:
    """What the options of a vector ask for."""
    options = vector.get("options") or {}
    return Wanted(
        xids=options.get("include-xids", "true") == "true",
        timestamp=options.get("include-timestamp") == "true",
        originid=options.get("include-originid") == "true",
        skip_empty=options.get("skip-empty-xacts") == "true",
        time_zone=ZONE,
    )


def fields(columns: Sequence[Json] | None) -> list[tuple[Column, bytes | None]] | None:
    """The columns of a vector."""
    if columns is None:
        return None
    return [
        (
            Column(one["name"].encode(), one["type_oid"], _NAMES[one["type_oid"]]),
            None if one["value"] is None else one["value"].encode(),
        )
        for one in columns
    ]


def row(record: Json) -> Row:
    """The row of a vector."""
    return Row(
        record["op"], lsn(record["lsn"]), record["schema"].encode(), record["table"].encode(),
        fields(record["new"]), fields(record["old"]),
    )  # fmt: skip


def integers(*values: int) -> list[tuple[Column, bytes | None]]:
    """Columns a, b ... of type integer."""
    return [
        (Column(name.encode(), 23, "integer"), b"%d" % value)
        for name, value in zip("abc", values, strict=False)
    ]


def insert(at: int, *values: int) -> Row:
    """An INSERT into public.test1."""
    return Row("I", at, b"public", b"test1", integers(*values), None)


FIRST: Final = Transaction(
    78108, 2357, 0xCFE5D40, 0xCFE5DE8, 0xCFE5E68, COMMIT_TIME, (insert(0xCFE5D40, 1, 2),)
)
SECOND: Final = Transaction(
    78109, 2358, 0xCFE6220, 0xCFE62D0, 0xCFE6350, COMMIT_TIME, (insert(0xCFE6220, 3, 3),)
)
THIRD: Final = Transaction(
    78110, 2359, 0xCFE64D0, 0xCFE6560, 0xCFE6600, COMMIT_TIME, (insert(0xCFE64D0, 3, 4),)
)


def stream(
    letter: str, batch: int, of: Wanted | None = None, **options: Any
) -> ParallelStream:  # Any: passed on
    """A parallel stream with the clock of the vectors."""
    return ParallelStream(letter, batch, of or Wanted(), clock=lambda: NOW, **options)


@pytest.mark.parametrize("name", [n for n, v in VECTORS.items() if v["layer"] == "record"])
def test_binary_records(name: str) -> None:
    """Each record is written byte for byte as the server writes it."""
    vector = VECTORS[name]
    decoded = vector["decoded"]
    style = BinaryStyle(wanted(vector), V6_0_0)
    end = lsn(decoded["lsn"])
    of = Transaction(78108, 2357, end, end, end, COMMIT_TIME, ())
    if decoded["op"] == "B":
        made = style.begin(of)
    elif decoded["op"] == "C":
        made = style.commit(of)
    else:
        made = style.row(row(decoded))
    assert made == expected(name)


def test_unbatched_messages() -> None:
    """Without batching each record is a message, with the header's odd positions."""
    unbatched = stream("b", 0)
    bodies = [*unbatched.transaction(FIRST), *unbatched.transaction(SECOND)]
    assert bodies[:4] == [expected(name) for name in ("N01", "N02", "N03", "N04")]


def test_lazy_begin_carries_the_row() -> None:
    """With skip-empty-xacts BEGIN comes with the first row and carries its position."""
    bodies = list(stream("b", 0, Wanted(skip_empty=True)).transaction(FIRST))
    assert [int.from_bytes(body[1:9]) for body in bodies] == [0xCFE5D40, 0xCFE5D40, 0xCFE5DE8]


def test_timer_flush() -> None:
    """The timer's flush ends with P and a zero; the header keeps the first commit's start."""
    batched = stream("b", 1)
    assert not [*batched.transaction(FIRST), *batched.transaction(SECOND)]
    assert batched.buffer.flush() == expected("P01")
    assert batched.buffer.is_empty
    assert batched.buffer.flush() is None


def test_size_flush_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush by size ends with F, without a zero, in the middle of a transaction."""
    monkeypatch.setattr(wire, "BATCH_BYTES", 220)
    batched = stream("b", 1)
    bodies = [*batched.transaction(FIRST), *batched.transaction(SECOND)]
    assert bodies == [expected("P02")]


def test_shared_lsn() -> None:
    """Rows of one WAL record share their position."""
    rows = [
        Row("I", 0xD000010, b"public", b"m", [(Column(b"k", 23, "integer"), b"%d" % k)], None)
        for k in (1, 2, 3)
    ]
    of = Transaction(79000, 2400, 0xD000010, 0xD000180, 0xD000200, COMMIT_TIME, rows)
    batched = stream("b", 1)
    assert not list(batched.transaction(of))
    assert batched.buffer.flush() == expected("P04")


@pytest.mark.parametrize("missing", [0, 1])
def test_megabyte_boundary(missing: int) -> None:
    """The buffer is sent when it is longer than 1 MiB, header included; not before."""
    vector = VECTORS["T02"]
    value = b"x" * (vector["value_len"] - missing)
    rows = [Row("I", 0xCFE5D40, b"public", b"big", [(Column(b"v", 25, "text"), value)], None)]
    of = Transaction(78108, 2357, 0xCFE5D40, 0xCFE5DE8, 0xCFE5E68, COMMIT_TIME, rows)
    bodies = list(stream("b", 1).transaction(of))
    if missing:
        (body,) = bodies
        assert body[:-1].endswith(BinaryStyle(Wanted(), V6_0_0).commit(of)), "too early"
    else:
        assert hashlib.sha256(bodies[0]).hexdigest() == vector["sha256"]


def test_text_messages() -> None:
    """Text statements go out bare when they are not batched."""
    bodies = list(stream("t", 0).transaction(THIRD))
    assert bodies == [expected(name) for name in ("X01", "X02", "X03")]


def test_json_batch() -> None:
    """A JSON batch counts each statement with its position and ends with a zero."""
    batched = stream("j", 1)
    assert not list(batched.transaction(SECOND))
    assert batched.buffer.flush() == expected("X05")


@pytest.mark.parametrize(("name", "letter"), [("X07", "j"), ("X08", "t")])
def test_escaping(name: str, letter: str) -> None:
    """Values are SQL literals first; JSON strings escape them again."""
    vector = VECTORS[name]
    schema, table = (b"My Schema", b"T") if letter == "j" else (b"public", b"t3")
    made = Row("I", 1, schema, table, fields(vector["decoded"]["columns"]), None)
    assert stream(letter, 0).style.row(made) == expected(name)[25:]


@pytest.mark.parametrize(("name", "of"), [("X09", "U01"), ("X10", "D02")])
def test_text_old_rows(name: str, of: str) -> None:
    """A text UPDATE tells the old key first; a DELETE without one says so."""
    decoded = VECTORS[of]["decoded"]
    assert stream("t", 0).style.row(row(decoded)) == expected(name)[25:]


def test_text_begin_with_everything() -> None:
    """Time and origin follow the xid in a text BEGIN."""
    made = stream("t", 0, wanted(VECTORS["X12"])).style.begin(THIRD)
    assert made == expected("X12")[25:]


def test_serial_messages() -> None:
    """Serial mode sends one text per callback."""
    serial = wire.SerialStream(Wanted(timestamp=True, time_zone=ZONE), clock=lambda: NOW)
    bodies = list(serial.transaction(FIRST))
    assert bodies[0] == expected("S01")
    assert json.loads(bodies[1][25:])["columns_val"] == ["1", "2"]
    assert bodies[2] == expected("S04")
    lazy = wire.SerialStream(Wanted(skip_empty=True), clock=lambda: NOW)
    assert next(lazy.transaction(FIRST)) == expected("S02")


def test_sql_messages() -> None:
    """The plug-in sql_decoding prints statements."""
    update = row(VECTORS["U01"]["decoded"])
    of = Transaction(1, 2357, 1, 2, 3, COMMIT_TIME, (update,))
    bodies = list(wire.SqlStream(Wanted(time_zone=ZONE), clock=lambda: NOW).transaction(of))
    assert [body[25:] for body in bodies] == [
        b"BEGIN 2357",
        b"delete from public.t1 where a = 1;insert into public.t1 values (1, 'cde');",
        b"COMMIT (at 2024-03-14 20:31:12.098179+08) 2357",
    ]


def test_truncate_message() -> None:
    """Only newer servers tell a TRUNCATE, and only in serial mode."""
    one = wire.Truncate(5, [(b"public", b"a"), (b"S", b"b")], restarts=True)
    of = Transaction(1, 2, 3, 4, 5, 0, (one,))
    texts = [body[25:] for body in wire.SerialStream(Wanted()).transaction(of)]
    assert texts[1] == b'table public.a, "S".b: TRUNCATE: restart_seqs'
    assert len(list(wire.SerialStream(Wanted(), V5_0_1).transaction(of))) == 2
    assert len(list(stream("b", 0).transaction(of))) == 2


def test_control_messages() -> None:
    """Keepalive, status update, CopyBothResponse and heartbeats have the server's layout."""
    assert wire.keepalive(0xCFE6350, NOW, catchup=True) == expected("K01")
    status = wire.Status(0, 0xCFE6350, 0xCFE5E68, 0, 0xCFE5E68, 0, 0, NOW, 0, 0)
    assert b"r" + wire.STATUS.pack(*status) == expected("R01")
    assert expected("W01") == wire.COPY_BOTH
    for name, framed in (("H01", False), ("H02", True)):
        assert wire.heartbeat(0xCFE6350, 0xCFE6400, 1710419472098, framed=framed) == expected(name)


def test_versions_differ_in_begin_and_header() -> None:
    """Old servers send no xid in BEGIN, and the oldest never overwrite the header."""
    begin = next(stream("b", 0, profile=V5_0_1).transaction(FIRST))
    assert begin[25:] == expected("N01")[25:][:3] + b"\x19" + expected("B01")[4:] + b"F"
    bodies = list(stream("b", 0, profile=V3_0_0).transaction(FIRST))
    assert [struct.unpack(">Q", body[1:9])[0] for body in bodies] == [0xCFE5DE8] * 3


def test_user_names() -> None:
    """The commercial server tells the user after the time."""
    of = Transaction(1, 2, 3, 4, 5, COMMIT_TIME, (), user="王".encode())
    ask = Wanted(timestamp=True, user=True, time_zone=ZONE)
    made = BinaryStyle(ask, PROFILES["GaussDB"]).begin(of)
    assert made.endswith(b"T\0\0\0\x1d2024-03-14 20:31:12.098179+08N\0\0\0\x03\xe7\x8e\x8b")


@pytest.mark.parametrize(
    ("us", "zone", "text"),
    [
        (0, 0, "2000-01-01 00:00:00+00"),
        (1, 0, "2000-01-01 00:00:00.000001+00"),
        (100_000, 330, "2000-01-01 05:30:00.1+05:30"),
        (-1_000_000, -480, "1999-12-31 15:59:59-08"),
    ],
)
def test_times(us: int, zone: int, text: str) -> None:
    """Times are ISO, without needless zeros."""
    assert wire.time_text(us, zone) == text.encode()
