"""Hypothesis strategies for values as the server writes them, and as it never would."""

import random
import re
import struct

from hypothesis import strategies as st

from gaussdecode.model.types import ColumnType, Kind

_SCALARS = [kind for kind in Kind if kind is not Kind.LIST]
_EDGES = [
    "", "0", "-0", "-", "+", "1", "-1", "007", "+7", "1.", ".1", "1e5", "t", "f", "true", "NaN",
    "Infinity", "-Infinity", "infinity", "-infinity", "nan", "NULL", "{}", "{1,2}", "{NULL}",
    '{"a","b"}', "{{1},{2}}", "[0:1]={1,2}", "{null}", "{ 1}", '{"\\\\x00"}', '{"a\\', '{"', "}",
    "{,}", "{1,}", "32767", "32768", "-32768", "-32769", "2147483647", "2147483648",
    "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "4294967295", "10000000000000000000000",
    "1e400", "-1e400", "1e-400", "3.4028235e+38", "3.4028236e+38", "1e-45", "7e-46", "1e-46",
    "1e39", "5e-324", "2e-324", "1.7976931348623157e+308", "0.1", "1e23", "9007199254740993",
    "8.41e21", "2.2250738585072011e-308", "16777217", "0." + "0" * 70 + "1", "1" * 64,
    "1970-01-01", "0001-01-01", "0000-01-01", "9999-12-31", "10000-01-01", "2000-02-29",
    "1900-02-29", "2001-02-29", "2020-13-01", "2020-04-31", "0044-03-15 BC", "2020-1-01",
    "2020-01-01 24:00:00", "2020-01-01 23:59:60", "2020-01-01 00:00:00", "2020-01-01T00:00:00",
    "2020-01-01 00:00:00+00", "2020-01-01 12:34:56.7+05:30", "2020-01-01 12:34:56.000001-03:30:15",
    "2020-01-01 00:00:00.1234567+00", "2020-01-01 00:00:00.+00", "0001-01-01 00:00:00+01",
    "9999-12-31 23:59:59.999999-01", "0001-01-01 00:00:00-15:59:59", "2020-01-01 00:00:00+16",
    "2020-01-01 00:00:00+5", "2020-01-01 00:00:00 BC", "\\x", "\\x0", "\\xDEADbeef", "\\xzz",
    "\\000", "00:00:00", "-00:00:01", "1 year", "-1 years -2 mons +3 days -04:05:06.789",
    "1 mon 1 year", "178000000 years", "-178956970 years -8 mons", "178956970 years 8 mons",
    "1 day 1 day", "1  day", "1 day ", "2562047788:00:54.775807", "-2562047788:00:54.775808",
    "2562047788:00:54.775808", "1 week", "+-1 days", "1 days 1:00:00", "99 days 123:59:59.5",
    "\u00e9\u4e2d\U0001f600", "a\\b", "\x7f\x80", ".5", "-.25", ".", "-.", ".0", "-.0", ".5e3", ".e3",
    "..5", "5.", "Inf", "-Inf", "Nan", "-Nan", "inf", "nan", "{.5,-.25}", "{Inf,Nan,-Inf}",
    ".99999999999999999999999999999999999999", ".100000000000000006",
]  # fmt: skip

_HOSTILE = [
    b"\xff", b"ok\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8", b"\x80",
    b"\\\xff", b"\xf0\x9f\x98\x80 12345678\xf8", b"1\xff", b'{"\xff"}', b"\0", b"a\0b",
]  # fmt: skip


def column_types() -> st.SearchStrategy[ColumnType]:
    """Any column type."""
    decimals = st.integers(1, 38).flatmap(
        lambda precision: st.tuples(st.just(precision), st.integers(0, precision))
    )

    def made(kind: Kind, element: Kind, decimal: tuple[int, int]) -> ColumnType:
        held = element if kind is Kind.LIST else None
        precision, scale = decimal if Kind.DECIMAL in (kind, held) else (0, 0)
        return ColumnType(kind, held, precision, scale)

    return st.builds(made, st.sampled_from(Kind), st.sampled_from(_SCALARS), decimals)


def _float_text(bits: int) -> str:
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return repr(value).replace("inf", "Infinity").replace("nan", "NaN")


def _single_text(bits: int) -> str:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return f"{value:.9g}".replace("inf", "Infinity").replace("nan", "NaN")


def _number_texts() -> st.SearchStrategy[str]:
    digits = st.text("0123456789", min_size=1, max_size=40)
    return st.one_of(
        st.integers(-(2**65), 2**65).map(str),
        st.integers(0, 2**64 - 1).map(_float_text),
        st.integers(0, 2**32 - 1).map(_single_text),
        st.builds(lambda whole, part: f"{whole}.{part}", digits, digits),
        st.builds(lambda whole, part: f"-{whole}.{part}", digits, digits),
        st.builds(
            lambda whole, part, power: f"{whole}.{part}e{power:+03}",
            st.text("0123456789", min_size=1, max_size=20),
            st.text("0123456789", min_size=1, max_size=20),
            st.integers(-330, 320),
        ),
    )


def _time_texts() -> st.SearchStrategy[str]:
    two = st.integers(0, 61).map("{:02}".format)
    day = st.builds(
        "{}-{}-{}".format, st.integers(0, 10001).map("{:04}".format), two,
        st.integers(0, 32).map("{:02}".format),
    )  # fmt: skip
    clock = st.builds("{}:{}:{}".format, st.integers(0, 24).map("{:02}".format), two, two)
    fraction = st.text("0123456789", max_size=7).map(lambda text: "." + text if text else "")
    zone = st.sampled_from(["", "+00", "-08", "+05:30", "-03:30:15", "+15:59:59", "+16", "+1"])
    unit = st.integers(-(2**33), 2**33)
    spans = st.builds(
        lambda years, months, days, time: f"{years} years {months} mons {days:+} days {time}",
        unit, unit, unit, clock,
    )  # fmt: skip
    return st.one_of(
        day,
        st.builds(lambda *parts: f"{parts[0]} {parts[1]}{parts[2]}{parts[3]}", day, clock,
                  fraction, zone),
        st.builds("{}{}".format, clock, fraction),
        spans,
        st.integers(-100, 100).map("{} days".format),
    )  # fmt: skip


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _scalar_texts() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(_EDGES),
        _number_texts(),
        _time_texts(),
        st.text(max_size=30).map(lambda text: text.encode(errors="replace").decode()),
        st.binary(max_size=20).map(lambda data: "\\x" + data.hex()),
    )


def _list_texts() -> st.SearchStrategy[str]:
    plain = st.one_of(st.integers(-40000, 40000).map(str), st.sampled_from(["NULL", "t", "f", "a"]))
    return st.lists(st.one_of(plain, _scalar_texts().map(_quoted)), max_size=5).map(
        lambda parts: "{" + ",".join(parts) + "}"
    )


def texts() -> st.SearchStrategy[bytes]:
    """A value of any kind, right or wrong for its column, seldom not even UTF-8."""
    good = st.one_of(_scalar_texts(), _list_texts()).map(lambda text: text.encode())
    return st.one_of(good, good, good, st.sampled_from(_HOSTILE), st.binary(max_size=40))


_ESCAPED = re.compile(rb'["\\]')
EDGES: list[bytes] = [edge.encode() for edge in _EDGES] + _HOSTILE


def random_type(rng: random.Random) -> ColumnType:
    """Any column type, without the cost of a strategy."""
    kind = rng.choice(list(Kind))
    element = rng.choice(_SCALARS) if kind is Kind.LIST else None
    precision = rng.randrange(1, 39) if Kind.DECIMAL in (kind, element) else 0
    return ColumnType(kind, element, precision, rng.randrange(precision + 1))


def random_text(rng: random.Random) -> bytes:
    """A value of any kind, right or wrong for its column, without the cost of a strategy."""
    choice = rng.randrange(8)
    if choice == 0:
        return str(
            rng.randrange(-(10 ** rng.randrange(1, 25)), 10 ** rng.randrange(1, 25))
        ).encode()
    if choice == 1:
        return f"{rng.randrange(10**9)}.{rng.randrange(10 ** rng.randrange(1, 30))}".encode()
    if choice == 2:
        return _float_text(rng.getrandbits(64)).encode()
    if choice == 3:
        parts = [rng.choice(EDGES) for _ in range(rng.randrange(4))]
        quoted = [_ESCAPED.sub(rb"\\\g<0>", part) for part in parts]
        return b"{" + b",".join(b'"' + part + b'"' for part in quoted) + b"}"
    if choice == 4:
        edge = bytearray(rng.choice(EDGES) + b"0")
        edge[rng.randrange(len(edge))] = rng.randrange(256)
        return bytes(edge)
    return rng.choice(EDGES)
