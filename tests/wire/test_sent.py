"""Values in send formats against their text: a server's own, and what no server sends."""

import os
import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import wire
from kit.decoded import read_entry
from kit.postgres import Database, Postgres
from kit.values import (
    ALL_TYPES,
    TYPE_DDL,
    ColumnSpec,
    array,
    either,
    moment,
    nullable,
    one_of,
    string,
    whole,
)

from gaussdecode._wire import BatchDecoder
from gaussdecode.errors import InexactStreamError, WireError
from gaussdecode.model.relation import Relation
from gaussdecode.model.types import ColumnType, Kind, column_type
from gaussdecode.source.postgresql.binary import read_formats
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.wire.encoding import UTF8, find_encoding
from gaussdecode.wire.formats import SendFormat, Sent

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
MORE: tuple[ColumnSpec, ...] = (
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
UNKNOWN = {"c_money", "s_regclass", "s_costly"}


def float8(rng: random.Random) -> str:
    """Any of them, the ends and neighbours of powers often."""
    if rng.random() < 0.3:
        return rng.choice(("0", "-0", "NaN", "Infinity", "-Infinity", "1e23", "5e-324", "1e15"))
    bits = rng.choice((rng.getrandbits(64), rng.getrandbits(11) << 52, 0x43 << 56))
    (value,) = struct.unpack(">d", (bits + rng.choice((0, 1, -1)) & 2**64 - 1).to_bytes(8))
    return repr(rng.choice((value, round(rng.uniform(-1e6, 1e6), 3), 10.0 ** rng.randint(-9, 20))))


def floats_of(shape: str) -> Callable[[random.Random], str]:
    """Numbers that a shape may have, in its places."""
    numbers = one_of("0", "-0", "1", "-2.5", "0.1", "1e300", "1e-5", "123456789012345678")
    return lambda rng: re.sub("x", lambda _: numbers(rng), shape)


def outline(brackets: str) -> Callable[[random.Random], str]:
    """A path of some points."""
    point = floats_of("(x,x)")
    return lambda rng: (
        brackets[0] + ",".join(point(rng) for _ in range(rng.randint(1, 4))) + brackets[1]
    )


def spans(*bounds: str) -> Callable[[random.Random], str]:
    """Ranges with all kinds of ends; the bounds rise."""

    def make(rng: random.Random) -> str:
        low, high = sorted(rng.choices(range(len(bounds)), k=2))
        ends = ("[(", ")]")
        return (
            rng.choice(("empty", f"(,{bounds[high]}]", f"[{bounds[low]},)", "(,)"))
            if (rng.random() < 0.3)
            else f"{rng.choice(ends[0])}{bounds[low]},{bounds[high]}{rng.choice(ends[1])}"
        )

    return make


def several(one: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    """Multiranges."""
    return lambda rng: "{" + ",".join(one(rng) for _ in range(rng.randint(0, 3))) + "}"


def words(rng: random.Random) -> str:
    """A tsvector with odd words, positions and weights."""
    found = []
    for _ in range(rng.randint(0, 4)):
        word = string(20)(rng).replace("\\", "\\\\").replace("'", "''")
        places = ",".join(f"{rng.randint(1, 16383)}{rng.choice('ABCD')}" for _ in range(2))
        found.append(f"'{word or 'a'}'" + rng.choice(("", f":{places}")))
    return " ".join(found)


def query(rng: random.Random, depth: int = 0) -> str:
    """A tsquery with operators in each other."""
    if depth == 4 or rng.random() < 0.3:
        word = rng.choice(("a", "'it''s'", "'\\\\ b'", "é😀", "fat"))
        return word + rng.choice(("", ":*", ":A", ":*BD", ":ABCD"))
    if rng.random() < 0.25:
        return f"!( {query(rng, depth + 1)} )"
    operator = rng.choice(("&", "|", "<->", "<7>", "<0>"))
    return f"( {query(rng, depth + 1)} ) {operator} ( {query(rng, depth + 1)} )"


def period(rng: random.Random) -> str:
    """An interval of any sign in each part."""
    time = rng.choice(
        ("", f"{rng.choice('+-')}{rng.randint(0, 99999)}:{rng.randint(0, 59):02}:07.5")
    )
    parts = [f"{rng.choice((0, 1, -1, 12, -25))} {unit}" for unit in ("year", "mons", "days")]
    return " ".join([*parts, time])


def rows(*fields: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    """Composites, each field NULL now and then."""

    def make(rng: random.Random) -> str:
        found = []
        for field in fields:
            text = field(rng).replace("\\", "\\\\").replace('"', '""')
            found.append("" if rng.random() < 0.15 else f'"{text}"')
        return "(" + ",".join(found) + ")"

    return make


SENT_DDL = """
CREATE TYPE kit.inner AS (at timestamptz, shape point, moods kit.mood[], much numeric);
CREATE TYPE kit.outer AS (a kit.inner, b kit.label, gone int4, c text[], d kit.inner[], r int8range);
ALTER TYPE kit.outer DROP ATTRIBUTE gone;
CREATE TYPE kit.textrange AS RANGE (SUBTYPE = text, COLLATION = "C");
CREATE TYPE kit.floatrange AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = float8mi);
CREATE DOMAIN kit.spot AS point;
CREATE DOMAIN kit.spots AS kit.spot[];
CREATE DOMAIN kit.twice AS kit.spots;
CREATE TYPE kit.costly AS (a int4, much money);
CREATE TYPE kit.none AS ();
"""
INNER = rows(
    either(moment, one_of("infinity", "0044-03-15 BC")), floats_of("(x,x)"),
    array(one_of("sad", "very happy")), numeric,
)  # fmt: skip
TEXTS = ('""', '" "', '""""""', '"a,b"', "b", '"ca]"', "zz", "é")  # as they rise
MORE += (
    ColumnSpec("s_float8", "float8", float8),
    ColumnSpec("s_float8s", "float8[]", array(float8, odd=("{{0.1},{1e30}}", "[0:0]={1e23}"))),
    ColumnSpec("s_float4s", "float4[]", one_of("{{0.1,1e6}}", "{{999999,1e-5}}", "{{1e-45}}")),
    ColumnSpec("s_one_char", '"char"', one_of("a", "", " ", "\\", "0")),
    ColumnSpec("s_interval", "interval", period),
    ColumnSpec("s_intervals", "interval[]", one_of("{{-1 days 02:03}}", "{{00:00},{-00:00:01}}")),
    ColumnSpec("s_point", "point", floats_of("(x,x)")),
    ColumnSpec("s_points", "point[]", array(floats_of("(x,x)"), odd=('{{"(1,2)"}}',))),
    ColumnSpec("s_lseg", "lseg", floats_of("[(x,x),(x,x)]")),
    ColumnSpec("s_path", "path", either(outline("[]"), outline("()"))),
    ColumnSpec("s_box", "box", floats_of("(x,x),(x,x)")),
    ColumnSpec("s_boxes", "box[]", one_of("{}", "{(1,2),(0,0);(1e300,1),(0.5,-0)}", "{NULL}")),
    ColumnSpec("s_polygon", "polygon", outline("()")),
    ColumnSpec("s_line", "line", floats_of("{1.5,x,x}")),
    ColumnSpec("s_circle", "circle", floats_of("<(x,x),1e-7>")),
    ColumnSpec("s_tsvector", "tsvector", words),
    ColumnSpec("s_tsvectors", "tsvector[]", array(words)),
    ColumnSpec("s_tsquery", "tsquery", query),
    ColumnSpec("s_int2vector", "int2vector", one_of("", "1", "1 -2 3")),
    ColumnSpec("s_oidvector", "oidvector", one_of("", "4294967295 0")),
    ColumnSpec("s_snapshot", "pg_snapshot", one_of("10:20:", "10:20:10,14,15")),
    ColumnSpec("s_xid8", "xid8[]", one_of("{0,18446744073709551615}", "{{1}}")),
    ColumnSpec("s_int4range", "int4range", spans("-5", "0", "1", "7")),
    ColumnSpec("s_int8range", "int8range[]", array(spans("-5", "0", "1", "7"))),
    ColumnSpec("s_numrange", "numrange", spans("-5.50", "0", "1e50", "NaN")),
    ColumnSpec("s_daterange", "daterange", spans("-infinity", "0044-01-01 BC", "2024-02-29")),
    ColumnSpec("s_tsrange", "tsrange", spans("2024-01-01 10:00", "2024-01-01 10:00:00.5", "infinity")),
    ColumnSpec("s_tstzrange", "tstzrange", spans("1999-01-01", "2024-01-01 10:00:00.5")),
    ColumnSpec("s_textrange", "kit.textrange", spans(*TEXTS)),
    ColumnSpec("s_floatrange", "kit.floatrange", spans("-Infinity", "-0", "0.1", "1e23", "NaN")),
    ColumnSpec("s_nummultirange", "nummultirange", several(spans("1", "2.50", "7", "9"))),
    ColumnSpec("s_tsmultiranges", "tsmultirange[]", array(several(spans("2024-01-01", "infinity")))),
    ColumnSpec("s_textmultirange", "kit.textmultirange", several(spans(*TEXTS))),
    ColumnSpec("s_inner", "kit.inner", INNER),
    ColumnSpec("s_inners", "kit.inner[]", array(INNER)),
    ColumnSpec("s_none", "kit.none", one_of("()")),
    ColumnSpec(
        "s_outer", "kit.outer",
        rows(INNER, string(20), array(string(9)), array(INNER), spans("1", "9")),
    ),
    ColumnSpec("s_pairs", "kit.pair[]", array(rows(whole(-5, 5), string(12)))),
    ColumnSpec("s_spot", "kit.spot", floats_of("(x,x)")),
    ColumnSpec("s_twice", "kit.twice", array(floats_of("(x,x)"))),
    ColumnSpec("s_regclass", "regclass", one_of("pg_type")),
    ColumnSpec("s_costly", "kit.costly", one_of("(1,2)")),
)  # fmt: skip


def decoded(relation: Relation, formats: list[Sent], values: list[wire.Cell]) -> str:
    """The rows of one INSERT, as text: values, misfits, bytes."""
    raw = wire.raw_batch([wire.insert(values, relation.oid)], [relation], formats=formats)
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: relation}).parts
    return repr((part.columns, part.misfits))


class Answers:
    """What the product's connection is asked, by way of another."""

    encoding = UTF8

    def __init__(self, session: psycopg.Connection[Any]) -> None:  # Any: rows
        self.session = session

    def query(self, command: str) -> list[tuple[str | None, ...]]:
        """As text."""
        found = self.session.execute(command).fetchall()
        return [tuple(each if each is None else str(each) for each in row) for row in found]


class Types:
    """A server's table of all types, and how it sends them."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:  # Any: rows
        self.session = session
        specs = (*ALL_TYPES, *MORE)
        session.execute(TYPE_DDL)
        session.execute(SENT_DDL)
        session.execute(
            f"CREATE TABLE kit.sent ({', '.join(f'{each.name} {each.type}' for each in specs)})"
        )
        self.formats = read_formats(cast("Connection", Answers(session)))
        rows = session.execute(
            "SELECT t.oid, o.proname, s.proname FROM pg_type t "
            "JOIN pg_proc o ON o.oid = t.typoutput JOIN pg_proc s ON s.oid = t.typsend"
        ).fetchall()
        self.functions = {int(oid): (output, send) for oid, output, send in rows}
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


@pytest.fixture(scope="module", params=[14, 18])
def types(servers: Callable[[int], Postgres], request: pytest.FixtureRequest) -> Iterator[Types]:
    """On the oldest and the newest server, in a session with the daemon's settings."""
    database = Database(servers(request.param), "kit_sent")
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
    formats = [sent]
    for _ in range(ROUNDS):
        value = nullable(rng, spec.value)
        if value is None:
            continue
        text, binary = types.both(spec, value)
        cells: list[wire.Cell] = [wire.Binary(binary)]
        assert decoded(relation, formats, cells) == decoded(relation, formats, [text]), value


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "letter"), [("float8", "d"), ("float4", "f")])
def test_floats_are_spelled_as_the_server_does(types: Types, kind: str, letter: str) -> None:
    """Any bits, powers of two and ten with their neighbours, and what has few digits."""
    rng = random.Random(kind)
    width = struct.calcsize(letter)
    bits = [rng.getrandbits(8 * width) for _ in range(100 * ROUNDS)]
    fraction = 52 if width == 8 else 23
    for exponent in range(1 << (8 * width - 1 - fraction)):
        bits += [(exponent << fraction) + near & 2 ** (8 * width) - 1 for near in (-1, 0, 1, 2)]
    powers = range(-308, 309) if width == 8 else range(-37, 39)
    few = [digits * 10.0**power for power in powers for digits in (1, 9.5, 1.25)]
    few += [rng.randint(0, 10**9) / 1000 for _ in range(20 * ROUNDS)]
    values = [each.to_bytes(width) for each in bits]
    values += [struct.pack(f">{letter}", each) for each in few if abs(each) < 3e38 or width == 8]
    found = types.session.execute(
        f"SELECT {kind}send(v), v::text FROM unnest(%b::{kind}[]) v",
        ([struct.unpack(f">{letter}", each)[0] for each in values],),
    ).fetchall()
    part = Sent(SendFormat.FLOAT8 if width == 8 else SendFormat.FLOAT4)
    relation = wire.relation([Kind.STRING], identity=())
    rows = [wire.insert([wire.Binary(sent)], relation.oid) for sent, _ in found]
    raw = wire.raw_batch(rows, [relation], formats=[part])
    (spelled,) = read_entry(BatchDecoder().decode_bytes(raw), {1: relation}).parts[0].columns
    assert len(spelled) == len(values)
    assert [
        (ours, text) for ours, (_, text) in zip(spelled, found, strict=True) if ours != text
    ] == []


@pytest.mark.integration
def test_composites_that_have_changed(types: Types) -> None:
    """Attributes of types that it had are read by what they say; those of others are the server's."""
    spec = next(each for each in ALL_TYPES if each.name == "c_pair")
    known = types.formats[types.columns[spec.name][0]]
    relation = wire.relation([Kind.STRING], identity=())

    def after(change: str) -> tuple[str, str]:
        types.session.execute(f"BEGIN; ALTER TYPE kit.pair {change}")
        try:
            text, binary = types.both(spec, '(1,"a b",7)')
            return decoded(relation, [known], [text]), decoded(
                relation, [known], [wire.Binary(binary)]
            )
        finally:
            types.session.execute("ROLLBACK")

    printed, sent = after("ADD ATTRIBUTE c text")
    assert printed == sent
    with pytest.raises(InexactStreamError, match="column 1 of the relation with OID 16385"):
        after("ADD ATTRIBUTE c int8")


@pytest.mark.integration
def test_deep_queries_are_the_servers(types: Types) -> None:
    """Operators that stand in each other a thousand times have no text here."""
    spec = next(each for each in MORE if each.name == "s_tsquery")
    relation = wire.relation([Kind.STRING], identity=())
    _, binary = types.both(spec, " & ".join("a" * 1001))
    with pytest.raises(InexactStreamError):
        decoded(relation, [Sent(SendFormat.TSQUERY)], [wire.Binary(binary)])


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
        (of,) = kinds_of(sent.parts[0])[:1]
        if of.kind is Kind.LIST:
            return [ColumnType(Kind.STRING)]
        held = ColumnType(Kind.LIST, of.kind, of.precision, of.scale)
    return [held, ColumnType(Kind.STRING)]


WITH_PARTS = range(SendFormat.ARRAY, SendFormat.UNKNOWN)
SCALARS = [Sent(each) for each in SendFormat if each and each not in WITH_PARTS]
SENT = [
    *SCALARS,
    *(Sent(form, (each,)) for form in map(SendFormat, WITH_PARTS) for each in SCALARS),
    Sent(SendFormat.RECORD, (Sent(SendFormat.INT4, oid=23), Sent(SendFormat.TEXT, oid=25))),
    Sent(SendFormat.ARRAY, (Sent(SendFormat.RANGE, (Sent(SendFormat.TEXT),)),)),
    Sent(SendFormat.MULTIRANGE, (Sent(SendFormat.RANGE, (Sent(SendFormat.TEXT),)),)),
]
ONE_ELEMENT = struct.pack(">iiiii", 1, 0, 25, 1, 1)
HEADS = (
    b"", bytes(4), bytes(8), ONE_ELEMENT, struct.pack(">ii", 1, 0), struct.pack(">iii", 2, 0, 4),
    struct.pack(">iii", 1, 23, 4), b"\6\0\0\0\1", struct.pack(">iBii", 1, 2, 0, 1), b"\0\0\0\1\1\0\0",
    b"\0\0\0\1a\0\0\1", b"\0\0\0\3\2\4\0\1",
)  # fmt: skip
heads = st.sampled_from(HEADS)
bodies = st.builds(lambda *parts: b"".join(parts), heads, st.binary(max_size=40))


@settings(max_examples=max(20, 20 * ROUNDS), deadline=None)
@given(sent=st.sampled_from(SENT), body=bodies, data=st.data())
def test_any_bytes_are_a_value_or_an_error(sent: Sent, body: bytes, data: st.DataObject) -> None:
    """Nothing is read beyond them, and what is no value of the type is refused."""
    held = data.draw(st.sampled_from(kinds_of(sent)))
    relation = wire.relation([held], identity=())
    try:
        decoded(relation, [sent], [wire.Binary(body)])
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
                        decoded(relation, [sent], cells)
                    except (WireError, InexactStreamError):
                        continue


PAIR = Sent(SendFormat.RECORD, (Sent(SendFormat.TEXT, oid=25),))
SPAN = Sent(SendFormat.RANGE, (Sent(SendFormat.TEXT),))
SPANS = Sent(SendFormat.MULTIRANGE, (SPAN,))
WRONG = {
    "short integer": (Sent(SendFormat.INT4), Kind.INT32, b"\0\0\0"),
    "long integer": (Sent(SendFormat.INT4), Kind.INT32, bytes(5)),
    "digits of ten thousand": (
        Sent(SendFormat.NUMERIC), Kind.STRING, struct.pack(">hhHHH", 1, 0, 0, 0, 10000),
    ),
    "missing group": (Sent(SendFormat.NUMERIC), Kind.STRING, struct.pack(">hhHH", 1, 0, 0, 0)),
    "unknown sign": (Sent(SendFormat.NUMERIC), Kind.STRING, struct.pack(">hhHH", 0, 0, 1, 0)),
    "version of jsonb": (Sent(SendFormat.VERSIONED), Kind.STRING, b"\2{}"),
    "bits": (Sent(SendFormat.BIT), Kind.STRING, struct.pack(">i", 9) + b"\0"),
    "time after midnight": (Sent(SendFormat.TIME), Kind.STRING, struct.pack(">q", 86_400_000_001)),
    "family": (Sent(SendFormat.INET), Kind.STRING, b"\4\x20\0\4\1\2\3\4"),
    "mask": (Sent(SendFormat.INET), Kind.STRING, b"\2\x21\0\4\1\2\3\4"),
    "bits of a char": (Sent(SendFormat.CHAR), Kind.STRING, b"ab"),
    "field after the last": (PAIR, Kind.STRING, struct.pack(">ii", 0, 0)),
    "missing field": (PAIR, Kind.STRING, struct.pack(">i", 1)),
    "long field": (PAIR, Kind.STRING, struct.pack(">iIi", 1, 25, 1)),
    "negative field": (PAIR, Kind.STRING, struct.pack(">iIi", 1, 25, -2)),
    "range of unknown flags": (SPAN, Kind.STRING, b"\x20"),
    "range without its bound": (SPAN, Kind.STRING, b"\2"),
    "bound that is NULL": (SPAN, Kind.STRING, b"\x10" + struct.pack(">i", -1)),
    "bytes after a range": (SPAN, Kind.STRING, b"\1\0"),
    "missing range": (SPANS, Kind.STRING, struct.pack(">i", 1)),
    "short range": (SPANS, Kind.STRING, struct.pack(">iiB", 1, 2, 1)),
    "points": (Sent(SendFormat.POLYGON), Kind.STRING, struct.pack(">idd", 2, 0, 0)),
    "path": (Sent(SendFormat.PATH), Kind.STRING, struct.pack(">bidd", 2, 1, 0, 0)),
    "word without an end": (Sent(SendFormat.TSVECTOR), Kind.STRING, b"\0\0\0\1ab"),
    "missing positions": (Sent(SendFormat.TSVECTOR), Kind.STRING, b"\0\0\0\1a\0\0\2\0\1"),
    "unknown operator": (Sent(SendFormat.TSQUERY), Kind.STRING, b"\0\0\0\1\2\5"),
    "operator without sides": (Sent(SendFormat.TSQUERY), Kind.STRING, b"\0\0\0\1\2\2"),
    "word after a query": (Sent(SendFormat.TSQUERY), Kind.STRING, b"\0\0\0\1" + 2 * b"\1\0\0a\0"),
    "missing transactions": (Sent(SendFormat.SNAPSHOT), Kind.STRING, struct.pack(">iqq", 1, 5, 6)),
    "NULL in a vector": (
        Sent(SendFormat.VECTOR, (Sent(SendFormat.INT2),)), Kind.STRING,
        struct.pack(">iiiiii", 1, 1, 21, 1, 0, -1),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "kind", "body"), WRONG.values(), ids=WRONG.keys())
def test_what_is_no_value_is_refused(sent: Sent, kind: Kind, body: bytes) -> None:
    """With the place, and without the bytes."""
    with pytest.raises(WireError, match="binary value that is none of its type"):
        decoded(wire.relation([kind], identity=()), [sent], [wire.Binary(body)])


@pytest.mark.parametrize(
    ("form", "first", "count"), [(42, 0, 0), (36, 0, 0), (38, 2, 1), (38, 0, 1), (38, 1, 2)]
)
def test_impossible_formats_are_refused(form: int, first: int, count: int) -> None:
    """Unknown ones, and parts that are not there."""
    relation = wire.relation([Kind.STRING], identity=())
    raw = wire.raw_batch(
        [], [relation], formats=[Sent(SendFormat.RECORD, (Sent(SendFormat.INT4),))]
    )
    old = struct.pack("=IIHBB", 0, 1, 1, SendFormat.RECORD, ord(","))
    assert old in raw
    BatchDecoder().decode_bytes(raw)
    with pytest.raises(WireError, match="relation plan"):
        BatchDecoder().decode_bytes(
            raw.replace(old, struct.pack("=IIHBB", 0, first, count, form, ord(",")))
        )


def test_binary_that_nobody_asked_for_is_refused() -> None:
    """Where binary is off."""
    with pytest.raises(WireError, match="binary is off"):
        decoded(wire.relation([Kind.INT32], identity=()), [], [wire.Binary(bytes(4))])


def test_what_was_not_sent_comes_from_the_old_row() -> None:
    """Also in binary; and a key that was only stored out of line has not changed."""
    relation = wire.relation([Kind.INT32, Kind.STRING], identity=(0,))
    one, text = wire.Binary(struct.pack(">i", 1)), wire.Binary(b"long")
    formats = [Sent(SendFormat.INT4), Sent(SendFormat.TEXT)]
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
    pxd = Path(__file__).parents[2] / "gaussdecode" / "wire" / "_formats.pxd"
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
            Sent(SendFormat.ARRAY, (Sent(SendFormat.TEXT),)),
            struct.pack(">iiiiii", 1, 0, 25, 1, 1, 2) + LETTERS.encode("latin-1"),
        ),
        (
            ColumnType(Kind.LIST, Kind.STRING),
            Sent(SendFormat.ARRAY, (Sent(SendFormat.VERSIONED),)),
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
        formats=[sent], encoding=LATIN1.number,
    )  # fmt: skip
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: relation}).parts
    assert part.columns == [[[LETTERS] if held.kind is Kind.LIST else LETTERS]]
