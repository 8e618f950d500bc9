"""Values in send formats against their text: a server's own, and what no server sends."""

import os
import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import wire
from kit.decoded import read_entry
from kit.postgres import Database, Postgres
from kit.values import ALL_TYPES, TYPE_DDL, ColumnSpec, array, either, moment, nullable, one_of

from gaussdecode._wire import BatchDecoder
from gaussdecode.errors import InexactStreamError, WireError
from gaussdecode.model.relation import Relation
from gaussdecode.model.types import ColumnType, Kind, column_type
from gaussdecode.wire.encoding import find_encoding
from gaussdecode.wire.formats import Formats, SendFormat, Sent, formats_of

ROUNDS = max(1, int(60 * float(os.environ.get("GAUSSDECODE_FUZZ_CASES", "1"))))


def nets(rng: random.Random) -> str:
    """Addresses of both versions, with runs of zeros in every place, with and without a mask."""
    if rng.random() < 0.4:
        address, most = ".".join(str(rng.choice([0, 1, 127, 255])) for _ in range(4)), 32
    else:
        words = [rng.choice(["0", "0", "1", "ffff", "db8"]) for _ in range(8)]
        address, most = ":".join(words), 128
    return address if rng.random() < 0.5 else f"{address}/{rng.randint(0, most)}"


def bits(rng: random.Random) -> str:
    return "".join(rng.choices("01", k=rng.choice((0, 1, 7, 8, 9, 40))))


def clock(rng: random.Random) -> str:
    fraction = rng.choice(("", ".1", ".000001", f".{rng.randint(0, 999999):06}"))
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}{fraction}"


def zoned(rng: random.Random) -> str:
    hours, minutes, seconds = rng.randint(0, 15), rng.choice((0, 30)), rng.choice((0, 0, 17))
    return f"{clock(rng)}{rng.choice('+-')}{hours:02}:{minutes:02}:{seconds:02}"


def days(rng: random.Random) -> str:
    year = rng.choice((1, 4, 99, 1600, 1900, 2000, 2023, 9999, 10000, 5874897))
    return f"{year:04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}" + (
        " BC" if year < 4000 and rng.random() < 0.3 else ""
    )


def numeric(rng: random.Random) -> str:
    whole = "".join(rng.choices("0123456789", k=rng.choice((0, 1, 4, 5, 8, 40)))).lstrip("0")
    part = "".join(rng.choices("0009", k=rng.choice((0, 1, 3, 4, 5, 20))))
    return rng.choice(("", "-")) + (whole or "0") + (f".{part}" if part else "")


def moments(rng: random.Random) -> str:
    """Of all years that a timestamp knows."""
    year = rng.choice(("0001", "0044", "1900", "2024", "9999", "10000", "294276"))
    era = " BC" if year < "1000" and rng.random() < 0.3 else ""
    return f"{year}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {clock(rng)}{era}"


ODD_TEXTS = ("{{a,b},{c,NULL}}", "[0:1]={x,NULL}", '[-2:-1][3:3]={{"a b"},{"{"}}', "{}")
MORE = (
    ColumnSpec("x_xid", "xid", one_of("0", "4294967295")),
    ColumnSpec("x_cid", "cid", one_of("7")),
    ColumnSpec("x_tid", "tid", one_of("(0,1)", "(4294967295,65535)")),
    ColumnSpec("x_macaddr8", "macaddr8", one_of("08:00:2b:01:02:03:04:05")),
    ColumnSpec("x_jsonpath", "jsonpath", one_of("$.a", "$[*] ? (@ > 1)")),
    ColumnSpec("x_inet", "inet", nets),
    ColumnSpec("x_varbit", "varbit", bits),
    ColumnSpec("x_time", "time", clock),
    ColumnSpec("x_timetz", "timetz", zoned),
    ColumnSpec("x_date", "date", days),
    ColumnSpec("x_timestamp", "timestamp", moments),
    ColumnSpec("x_timestamptz", "timestamptz", moments),
    ColumnSpec("x_numeric", "numeric", numeric),
    ColumnSpec("x_numeric_4_4", "numeric(4,4)", one_of("0", "0.1", "-0.9999", "0.0001")),
    ColumnSpec("x_numeric_38_38", "numeric(38,38)", one_of("0." + "9" * 38, "-0." + "1" * 38)),
    ColumnSpec("x_numeric_9_0", "numeric(9)", one_of("10000", "100000000", "-999999999")),
    ColumnSpec("x_dates", "date[]", array(days, odd=("{{2020-01-01}}", "{infinity}"))),
    ColumnSpec("x_numerics", "numeric[]", array(numeric, odd=("{{1.50},{NULL}}",))),
    ColumnSpec("x_uuids", "uuid[]", array(lambda rng: f"{rng.getrandbits(128):032x}")),
    ColumnSpec("x_odd_texts", "text[]", either(one_of(*ODD_TEXTS), one_of('{null,"NULL",""}'))),
    ColumnSpec("x_moments", "timestamp[]", array(moment, odd=("[3:3]={infinity}",))),
    ColumnSpec("x_floats", "float8[]", array(one_of("1.5", "NaN", "-0"))),
    ColumnSpec("x_int2s", "int2[]", array(one_of("1", "-2"), odd=("{{1,2}}", "[5:5]={6}"))),
    ColumnSpec("x_bits", "varbit[]", array(bits)),
    ColumnSpec("x_jsonbs", "jsonb[]", array(one_of("{}", '{"a": [1, null]}', "null"))),
    ColumnSpec("x_nets", "inet[]", array(nets)),
)
UNKNOWN = {
    "c_money", "c_one_char", "c_point", "c_tsvector", "c_int4range", "c_tsrange", "c_multirange",
    "c_pair",
}  # fmt: skip


def decoded(relation: Relation, formats: list[wire.Format], values: list[wire.Cell]) -> str:
    """The rows of one INSERT, as text: values, misfits, bytes."""
    raw = wire.raw_batch([wire.insert(values, relation.oid)], [relation], formats=formats)
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: relation}).parts
    return repr((part.columns, part.misfits))


class Types:
    """A server's table of all types, and how it sends them."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:  # Any: rows
        self.session = session
        specs = (*ALL_TYPES, *MORE)
        session.execute(TYPE_DDL)
        session.execute(
            f"CREATE TABLE kit.sent ({', '.join(f'{each.name} {each.type}' for each in specs)})"
        )
        rows = session.execute(
            "SELECT t.oid, s.proname, coalesce(es.proname, ''), o.proname FROM pg_type t "
            "JOIN pg_proc o ON o.oid = t.typoutput JOIN pg_proc s ON s.oid = t.typsend LEFT JOIN pg_type e ON e.oid = t.typelem "
            "LEFT JOIN pg_proc es ON es.oid = e.typsend"
        ).fetchall()
        self.formats: Formats = formats_of((int(oid), name, of) for oid, name, of, _ in rows)
        self.functions = {int(oid): (out, name) for oid, name, _, out in rows}
        self.columns = {
            name: (int(oid), int(modifier), schema, base)
            for name, oid, modifier, schema, base in session.execute(
                "SELECT attname, atttypid, atttypmod, n.nspname, b.typname FROM pg_attribute a "
                "JOIN pg_type t ON t.oid = a.atttypid "
                "JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END "
                "JOIN pg_namespace n ON n.oid = b.typnamespace "
                "WHERE attrelid = 'kit.sent'::regclass AND attnum > 0"
            )
        }

    def type_of(self, name: str) -> ColumnType:
        """How the column is held, as the reader finds it."""
        oid, modifier, schema, base = self.columns[name]
        return column_type(oid, modifier, (schema, base) if oid >= 10000 else None)[0]

    def both(self, spec: ColumnSpec, value: str) -> tuple[str, bytes]:
        """What the server prints, and what it sends."""
        printed, sent = self.functions[self.columns[spec.name][0]]
        (row,) = self.session.execute(
            f"SELECT pg_catalog.{printed}(v), pg_catalog.{sent}(v) FROM (SELECT %s::{spec.type} AS v) s",
            (value,),
        ).fetchall()
        return str(row[0]), bytes(row[1])


@pytest.fixture(scope="module")
def types(servers: Callable[[int], Postgres]) -> Iterator[Types]:
    """On the newest server, in a session with the daemon's settings."""
    database = Database(servers(18), "kit_sent")
    session = database.connect()
    session.execute(
        "SET DateStyle = ISO; SET IntervalStyle = postgres; SET TimeZone = 'UTC'; "
        "SET extra_float_digits = 3; SET bytea_output = hex"
    )
    yield Types(session)
    session.close()
    database.drop()


@pytest.mark.integration
@pytest.mark.parametrize("spec", [*ALL_TYPES, *MORE], ids=lambda spec: spec.name)
def test_binary_is_the_text(types: Types, spec: ColumnSpec) -> None:
    """The same value, the same misfit, byte for byte: what the server sends in either way."""
    sent = types.formats.get(types.columns[spec.name][0])
    assert (sent is None) == (spec.name in UNKNOWN)
    if sent is None:
        return
    rng = random.Random(spec.name)
    relation = wire.relation([types.type_of(spec.name)], identity=())
    formats = [(int(sent.format), int(sent.element))]
    for _ in range(ROUNDS):
        value = nullable(rng, spec.value)
        if value is None:
            continue
        text, binary = types.both(spec, value)
        cells: list[wire.Cell] = [wire.Binary(binary)]
        assert decoded(relation, formats, cells) == decoded(relation, formats, [text]), value


@pytest.mark.integration
def test_floats_of_odd_arrays_are_the_servers(types: Types) -> None:
    """Their shortest spelling is not made up here."""
    spec = next(each for each in MORE if each.name == "x_floats")
    _, binary = types.both(spec, "{{0.1},{1e30}}")
    relation = wire.relation([types.type_of(spec.name)], identity=())
    with pytest.raises(InexactStreamError, match="column 1 of the relation with OID 16385"):
        decoded(relation, [(SendFormat.ARRAY, SendFormat.FLOAT8)], [wire.Binary(binary)])


def kinds_of(sent: Sent) -> list[ColumnType]:
    """The columns that hold such values."""
    held = {
        SendFormat.BOOL: ColumnType(Kind.BOOL),
        SendFormat.INT2: ColumnType(Kind.INT16),
        SendFormat.INT4: ColumnType(Kind.INT32),
        SendFormat.INT8: ColumnType(Kind.INT64),
        SendFormat.UINT4: ColumnType(Kind.INT64),
        SendFormat.FLOAT4: ColumnType(Kind.FLOAT32),
        SendFormat.FLOAT8: ColumnType(Kind.FLOAT64),
        SendFormat.NUMERIC: ColumnType(Kind.DECIMAL, precision=12, scale=3),
        SendFormat.DATE: ColumnType(Kind.DATE),
        SendFormat.TIMESTAMP: ColumnType(Kind.TIMESTAMP),
        SendFormat.TIMESTAMPTZ: ColumnType(Kind.TIMESTAMPTZ),
        SendFormat.INTERVAL: ColumnType(Kind.INTERVAL),
        SendFormat.BYTEA: ColumnType(Kind.BINARY),
    }.get(sent.format, ColumnType(Kind.STRING))
    if sent.format is SendFormat.ARRAY:
        (of,) = kinds_of(Sent(sent.element))[:1]
        held = ColumnType(Kind.LIST, of.kind, of.precision, of.scale)
    return [held, ColumnType(Kind.STRING)]


SCALARS = [each for each in SendFormat if each not in (SendFormat.NONE, SendFormat.ARRAY)]
SENT = [Sent(each) for each in SCALARS] + [Sent(SendFormat.ARRAY, each) for each in SCALARS]
heads = st.sampled_from([b"", struct.pack(">iii", 1, 0, 25) + struct.pack(">ii", 1, 1), bytes(8)])
bodies = st.builds(lambda *parts: b"".join(parts), heads, st.binary(max_size=40))


@settings(max_examples=max(20, 20 * ROUNDS), deadline=None)
@given(sent=st.sampled_from(SENT), body=bodies, data=st.data())
def test_any_bytes_are_a_value_or_an_error(sent: Sent, body: bytes, data: st.DataObject) -> None:
    """Nothing is read beyond them, and what is no value of the type is refused."""
    held = data.draw(st.sampled_from(kinds_of(sent)))
    relation = wire.relation([held], identity=())
    try:
        decoded(relation, [(sent.format, sent.element)], [wire.Binary(body)])
    except (WireError, InexactStreamError):
        return


def test_any_bytes_of_a_fixed_width_are_read() -> None:
    """Extremes of every number, also those that no server sends."""
    for sent in SENT:
        for size in (1, 2, 4, 6, 8, 12, 16):
            for byte in (b"\0", b"\x7f", b"\x80", b"\xff"):
                for held in kinds_of(sent):
                    relation = wire.relation([held], identity=())
                    cells: list[wire.Cell] = [wire.Binary(byte * size)]
                    try:
                        decoded(relation, [(sent.format, sent.element)], cells)
                    except (WireError, InexactStreamError):
                        continue


WRONG = {
    "short integer": (SendFormat.INT4, Kind.INT32, b"\0\0\0"),
    "long integer": (SendFormat.INT4, Kind.INT32, bytes(5)),
    "digits of ten thousand": (
        SendFormat.NUMERIC, Kind.STRING, struct.pack(">hhHHH", 1, 0, 0, 0, 10000),
    ),
    "missing group": (SendFormat.NUMERIC, Kind.STRING, struct.pack(">hhHH", 1, 0, 0, 0)),
    "unknown sign": (SendFormat.NUMERIC, Kind.STRING, struct.pack(">hhHH", 0, 0, 1, 0)),
    "version of jsonb": (SendFormat.VERSIONED, Kind.STRING, b"\2{}"),
    "bits": (SendFormat.BIT, Kind.STRING, struct.pack(">i", 9) + b"\0"),
    "time after midnight": (SendFormat.TIME, Kind.STRING, struct.pack(">q", 86_400_000_001)),
    "family": (SendFormat.INET, Kind.STRING, b"\4\x20\0\4\1\2\3\4"),
    "mask": (SendFormat.INET, Kind.STRING, b"\2\x21\0\4\1\2\3\4"),
}  # fmt: skip


@pytest.mark.parametrize(("send_format", "kind", "body"), WRONG.values(), ids=WRONG.keys())
def test_what_is_no_value_is_refused(send_format: SendFormat, kind: Kind, body: bytes) -> None:
    """With the place, and without the bytes."""
    with pytest.raises(WireError, match="binary value that is none of its type"):
        decoded(wire.relation([kind], identity=()), [(send_format, 0)], [wire.Binary(body)])


def test_binary_that_nobody_asked_for_is_refused() -> None:
    """Where binary is off."""
    with pytest.raises(WireError, match="binary is off"):
        decoded(wire.relation([Kind.INT32], identity=()), [(0, 0)], [wire.Binary(bytes(4))])


def test_what_was_not_sent_comes_from_the_old_row() -> None:
    """Also in binary; and a key that was only stored out of line has not changed."""
    relation = wire.relation([Kind.INT32, Kind.STRING], identity=(0,))
    one, text = wire.Binary(struct.pack(">i", 1)), wire.Binary(b"long")
    formats = [(SendFormat.INT4, 0), (SendFormat.TEXT, 0)]
    messages = [
        wire.update([one, wire.UNCHANGED], old=[one, text], oid=relation.oid),
        wire.update([one, text], key=[one, None], oid=relation.oid),
        wire.delete([one, text], b"O", relation.oid),
    ]
    raw = wire.raw_batch(messages, [relation], formats=formats)
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: relation}).parts
    assert part.columns == [[1, 1, None], ["long", "long", None]]
    assert part.old_columns == [[1, 1, 1]]
    assert part.unchanged == []
    assert not part.key_changed


def test_numbers_are_those_of_the_decoder() -> None:
    """The two tables of formats are one."""
    pxd = Path(__file__).parents[2] / "gaussdecode" / "wire" / "_sent.pxd"
    found = re.findall(r"SENT_(\w+) = (\d+)", pxd.read_text())
    assert {name: int(number) for name, number in found} == {each.name: each for each in SendFormat}


LATIN1 = find_encoding("LATIN1")
LETTERS = "Ã©"  # in LATIN1 the bytes of another letter in UTF-8


@pytest.mark.parametrize(
    ("held", "sent", "body"),
    [
        (ColumnType(Kind.STRING), Sent(SendFormat.TEXT), LETTERS.encode("latin-1")),
        (ColumnType(Kind.STRING), Sent(SendFormat.VERSIONED), b"\1" + LETTERS.encode("latin-1")),
        (
            ColumnType(Kind.LIST, Kind.STRING),
            Sent(SendFormat.ARRAY, SendFormat.TEXT),
            struct.pack(">iiiiii", 1, 0, 25, 1, 1, 2) + LETTERS.encode("latin-1"),
        ),
        (
            ColumnType(Kind.LIST, Kind.STRING),
            Sent(SendFormat.ARRAY, SendFormat.VERSIONED),
            struct.pack(">iiiiii", 1, 0, 25, 1, 1, 3) + b"\1" + LETTERS.encode("latin-1"),
        ),
    ],
)
def test_letters_of_another_encoding_are_translated(
    held: ColumnType, sent: Sent, body: bytes
) -> None:
    """Wherever they stand, also where their bytes would be UTF-8."""
    relation = wire.relation([held], identity=())
    raw = wire.raw_batch(
        [wire.insert([wire.Binary(body)], relation.oid)], [relation],
        formats=[(sent.format, sent.element)], encoding=LATIN1.number,
    )  # fmt: skip
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: relation}).parts
    assert part.columns == [[[LETTERS] if held.kind is Kind.LIST else LETTERS]]
