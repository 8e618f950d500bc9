"""Column types of the workload, and random values of each, as PostgreSQL reads them.

Every generator is seeded and leans to the ends of its type: limits, infinities, years
before Christ, empty strings, text that looks like NULL, many-byte characters.
"""

import itertools
import json
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

Generator = Callable[[Random], str]


class ColumnSpec(NamedTuple):
    """One column of the table of all types.

    Attributes:
        name: of the column.
        type: its SQL type.
        value: makes one value in the server's input form.
    """

    name: str
    type: str
    value: Generator


def one_of(*values: str) -> Generator:
    """Choose among fixed values."""
    return lambda rng: rng.choice(values)


def either(*generators: Generator) -> Generator:
    """Choose among generators."""
    return lambda rng: rng.choice(generators)(rng)


def whole(low: int, high: int) -> Generator:
    """Make integers, the limits often."""
    return lambda rng: str(rng.choice((low, high, max(low, 0), rng.randint(low, high))))


def decimal(digits: int, scale: int) -> Generator:
    """Make decimals that fill precision and scale, or a part of it."""

    def make(rng: Random) -> str:
        integral = rng.randint(0, digits - scale)
        head = "".join(rng.choices("0123456789", k=integral)) or "0"
        tail = "".join(rng.choices("0123456789", k=rng.randint(0, scale)))
        return rng.choice(("", "-")) + head + ("." + tail if tail else "")

    return make


_STRINGS: Final = (
    "", " ", "NULL", "null", r"\N", r"\\", "'", '"', "a\tb\nc\rd", "{}", "{a,NULL}", "(1,2)",
    "naïve", "Ελλάδα", "中文字符", "😀👩‍👩‍👧", "שלום", "e\u0301", "\u200b", "\ufeff", "\U0010ffff",
    "%s", "$1", "100%", "a,b;c", "\x01\x1f\x7f",
)  # fmt: skip


def string(limit: int) -> Generator:
    """Make text, odd or random, of at most `limit` characters."""

    def make(rng: Random) -> str:
        if rng.random() < 0.5:
            return rng.choice(_STRINGS)[:limit]
        size = rng.choice((1, 3, 10, 40, limit))
        return "".join(rng.choices("abc XYZ,.{}()\"'\\é€😀", k=min(size, limit)))

    return make


def octets(rng: Random) -> str:
    """Make bytes, in hexadecimal input form."""
    return r"\x" + rng.randbytes(rng.choice((0, 1, 2, 7, 300))).hex()


def document(rng: Random) -> str:
    """Make a JSON document with an extra blank, which json keeps and jsonb does not."""
    value = {"a": rng.randint(-9, 9), "b": [None, True, rng.choice(_STRINGS)], "c": {"d": 1e-9}}
    return rng.choice((json.dumps(value), "  null", "[]", '""', "{ }", "-0.0", "1e300"))


def uuid(rng: Random) -> str:
    """Make a UUID."""
    digits = f"{rng.getrandbits(128):032x}"
    cuts = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[a:b] for a, b in itertools.pairwise(cuts))


def moment(rng: Random) -> str:
    """Make a timestamp with up to six digits of fraction."""
    fraction = rng.choice(("", ".5", ".000001", f".{rng.randint(0, 999999):06}"))
    return (
        f"{rng.randint(1, 9998):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} "
        f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}{fraction}"
    )


def array(element: Generator, *, odd: tuple[str, ...] = ()) -> Generator:
    """Make one-dimensional arrays with nulls, empty ones, and now and then an odd shape."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def make(rng: Random) -> str:
        if odd and rng.random() < 0.1:
            return rng.choice(odd)
        items = [
            "NULL" if rng.random() < 0.15 else quoted(element(rng))
            for _ in range(rng.choice((0, 1, 2, 5)))
        ]
        return "{" + ",".join(items) + "}"

    return make


_DATES: Final = one_of(
    "2024-02-29", "0001-01-01", "9999-12-31", "1969-12-31", "0044-03-15 BC", "10000-01-01",
    "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31",
)  # fmt: skip
_TIMES: Final = one_of(
    "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999",
    "0044-03-15 12:00:00 BC", "10000-01-01 00:00:00", "infinity", "-infinity",
    "294276-12-31 23:59:59.999999",
)  # fmt: skip
_FLOATS: Final = one_of("0", "-0", "NaN", "Infinity", "-Infinity", "1e-30", "3.1415927", "-1e30")
_NUMERICS: Final = one_of(
    "NaN", "0", "0.00", "-0.0001", "1e100", "-123456789012345678901234567890.123456789", "1e-50"
)
_NETS: Final = one_of("10.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32", "0.0.0.0/0")

# Types that the servers have out of the box; kit's own types are created by `TYPE_DDL`.
ALL_TYPES: Final = (
    ColumnSpec("c_bool", "bool", one_of("t", "f")),
    ColumnSpec("c_int2", "int2", whole(-(2**15), 2**15 - 1)),
    ColumnSpec("c_int4", "int4", whole(-(2**31), 2**31 - 1)),
    ColumnSpec("c_int8", "int8", whole(-(2**63), 2**63 - 1)),
    ColumnSpec("c_oid", "oid", whole(0, 2**32 - 1)),
    ColumnSpec("c_float4", "float4", _FLOATS),
    ColumnSpec("c_float8", "float8", either(_FLOATS, one_of("1e308", "5e-324", "0.1"))),
    ColumnSpec("c_numeric", "numeric", either(_NUMERICS, decimal(60, 25))),
    ColumnSpec("c_numeric_12_3", "numeric(12,3)", either(one_of("NaN"), decimal(12, 3))),
    ColumnSpec("c_numeric_38_0", "numeric(38,0)", decimal(38, 0)),
    ColumnSpec("c_numeric_38_10", "numeric(38,10)", decimal(38, 10)),
    ColumnSpec("c_numeric_60_20", "numeric(60,20)", decimal(60, 20)),
    ColumnSpec("c_money", "money", one_of("0", "-12.34", "92233720368547758.07")),
    ColumnSpec("c_text", "text", string(3000)),
    ColumnSpec("c_varchar", "varchar(40)", string(40)),
    ColumnSpec("c_char", "char(10)", string(10)),
    ColumnSpec("c_one_char", '"char"', one_of("a", "", " ")),
    ColumnSpec("c_name", "name", string(15)),
    ColumnSpec("c_bytea", "bytea", octets),
    ColumnSpec("c_date", "date", _DATES),
    ColumnSpec("c_time", "time", one_of("00:00:00", "24:00:00", "23:59:59.999999")),
    ColumnSpec("c_timetz", "timetz", one_of("00:00:00+00", "12:30:00.5-08", "24:00:00+15")),
    ColumnSpec("c_timestamp", "timestamp", either(_TIMES, moment)),
    ColumnSpec("c_timestamp_3", "timestamp(3)", moment),
    ColumnSpec("c_timestamptz", "timestamptz", either(_TIMES, moment)),
    ColumnSpec(
        "c_interval",
        "interval",
        one_of(
            "0", "1 year 2 mons -3 days 04:05:06.789", "-00:00:00.000001", "-7 mons", "178 years"
        ),
    ),
    ColumnSpec("c_uuid", "uuid", uuid),
    ColumnSpec("c_json", "json", document),
    ColumnSpec("c_jsonb", "jsonb", document),
    ColumnSpec("c_inet", "inet", _NETS),
    ColumnSpec("c_cidr", "cidr", one_of("10.0.0.0/8", "::/0", "192.168.1.0/24")),
    ColumnSpec("c_macaddr", "macaddr", one_of("08:00:2b:01:02:03")),
    ColumnSpec("c_bit", "bit(7)", one_of("0000000", "1010101")),
    ColumnSpec("c_varbit", "varbit", one_of("", "1", "101010101010")),
    ColumnSpec("c_point", "point", one_of("(1,2)", "(-0.5,1e300)")),
    ColumnSpec("c_tsvector", "tsvector", one_of("", "a fat cat", "'it''s':1 b:2A")),
    ColumnSpec("c_lsn", "pg_lsn", one_of("0/0", "16/B374D848")),
    ColumnSpec("c_int4range", "int4range", one_of("empty", "[1,5)", "(,3]", "(,)")),
    ColumnSpec("c_tsrange", "tsrange", one_of("[2024-01-01,infinity)", "empty")),
    ColumnSpec("c_multirange", "int4multirange", one_of("{}", "{[1,2),[5,9)}")),
    ColumnSpec("c_mood", "kit.mood", one_of("sad", "ok", "very happy", "😀")),
    ColumnSpec("c_positive", "kit.positive", whole(1, 2**31 - 1)),
    ColumnSpec("c_label", "kit.label", string(20)),
    ColumnSpec("c_pair", "kit.pair", one_of('(1,"a b")', "(,)", '(-5,"q""q")')),
    ColumnSpec(
        "c_int4s",
        "int4[]",
        array(whole(-(2**31), 2**31 - 1), odd=("{{1,2},{3,4}}", "[2:4]={7,8,9}")),
    ),
    ColumnSpec("c_texts", "text[]", array(string(30))),
    ColumnSpec("c_numerics", "numeric(12,3)[]", array(decimal(9, 3))),
    ColumnSpec("c_timestamptzs", "timestamptz[]", array(moment)),
    ColumnSpec("c_bools", "bool[]", array(one_of("t", "f"))),
    ColumnSpec("c_byteas", "bytea[]", array(octets)),
    ColumnSpec("c_uuids", "uuid[]", array(uuid)),
    ColumnSpec("c_moods", "kit.mood[]", array(one_of("sad", "very happy"))),
)

TYPE_DDL: Final = """
CREATE SCHEMA kit;
CREATE TYPE kit.mood AS ENUM ('sad', 'ok', 'very happy', '😀');
CREATE DOMAIN kit.positive AS int4 CHECK (VALUE > 0);
CREATE DOMAIN kit.label AS varchar(20);
CREATE TYPE kit.pair AS (a int4, b text);
"""


def nullable(rng: Random, generator: Generator) -> str | None:
    """Make a value, or NULL one time in eight."""
    return None if rng.random() < 0.125 else generator(rng)
