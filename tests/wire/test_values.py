"""Values: the fast and the plain parser, on one table and against each other."""

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kit import texts, wire
from kit.decoded import read_entry
from twins.values import Interval, Misfit, decode_value

from gaussdecode._wire import BatchDecoder
from gaussdecode.model.types import ColumnType, Kind

Decode = Callable[[ColumnType, bytes], Any]  # Any: a value of the column's kind


def fast(column_type: ColumnType, text: bytes) -> Any:  # Any: a value of the column's kind
    """Decode one value with the fast decoder, as the plain one would return it."""
    relation = wire.relation([column_type], ())
    raw = wire.raw_batch([wire.insert([text])], [relation])
    (part,) = read_entry(BatchDecoder().decode_bytes(raw), {1: [column_type]}).parts
    if part.misfits:
        assert part.columns == [[None]]
        return Misfit(part.misfits[0, 0])
    return part.columns[0][0]


@pytest.fixture(params=[fast, decode_value], ids=["fast", "plain"])
def decode(request: pytest.FixtureRequest) -> Decode:
    """Either decoder."""
    chosen: Decode = request.param
    return chosen


def decimal(precision: int, scale: int) -> ColumnType:
    """A decimal column."""
    return ColumnType(Kind.DECIMAL, precision=precision, scale=scale)


def listed(element: Kind, precision: int = 0, scale: int = 0) -> ColumnType:
    """A list column."""
    return ColumnType(Kind.LIST, element, precision, scale)


def instant(text: str) -> datetime:
    """A moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


FITS: list[tuple[ColumnType, str, Any]] = [  # Any: a value of the column's kind
    (ColumnType(Kind.BOOL), "t", True),
    (ColumnType(Kind.BOOL), "f", False),
    (ColumnType(Kind.INT16), "-32768", -32768),
    (ColumnType(Kind.INT16), "32767", 32767),
    (ColumnType(Kind.INT32), "-2147483648", -(2**31)),
    (ColumnType(Kind.INT32), "2147483647", 2**31 - 1),
    (ColumnType(Kind.INT64), "-9223372036854775808", -(2**63)),
    (ColumnType(Kind.INT64), "9223372036854775807", 2**63 - 1),
    (ColumnType(Kind.INT64), "4294967295", 2**32 - 1),
    (ColumnType(Kind.FLOAT32), "3.4028235e+38", struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]),
    (ColumnType(Kind.FLOAT32), "1e-45", struct.unpack("<f", b"\1\0\0\0")[0]),
    (ColumnType(Kind.FLOAT64), "0.1", 0.1),
    (ColumnType(Kind.FLOAT64), "1e+23", 1e23),
    (ColumnType(Kind.FLOAT64), "-1.5e-07", -1.5e-07),
    (ColumnType(Kind.FLOAT64), "5e-324", 5e-324),
    (ColumnType(Kind.FLOAT64), "1.7976931348623157e+308", 1.7976931348623157e308),
    (ColumnType(Kind.FLOAT64), "Infinity", float("inf")),
    (ColumnType(Kind.FLOAT64), "-Infinity", float("-inf")),
    (ColumnType(Kind.FLOAT64), ".5", 0.5),
    (ColumnType(Kind.FLOAT64), "-.25", -0.25),
    (ColumnType(Kind.FLOAT64), ".100000000000000006", 0.1),
    (ColumnType(Kind.FLOAT64), "Inf", float("inf")),
    (ColumnType(Kind.FLOAT32), "-Inf", float("-inf")),
    (ColumnType(Kind.FLOAT32), ".100000001", struct.unpack("<f", b"\xcd\xcc\xcc\x3d")[0]),
    (decimal(10, 2), ".5", Decimal("0.50")),
    (decimal(10, 2), "-.05", Decimal("-0.05")),
    (decimal(10, 0), "-.0", Decimal(0)),
    (listed(Kind.FLOAT64), "{.5,-.25,Inf}", [0.5, -0.25, float("inf")]),
    (decimal(10, 2), "-12345678.90", Decimal("-12345678.90")),
    (decimal(10, 2), "7", Decimal("7.00")),
    (decimal(38, 0), "9" * 38, Decimal("9" * 38)),
    (decimal(38, 38), "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
    (decimal(38, 19), "9" * 19 + "." + "9" * 19, Decimal("9" * 19 + "." + "9" * 19)),
    (decimal(3, 1), "1.500", Decimal("1.5")),
    (ColumnType(Kind.DATE), "0001-01-01", date(1, 1, 1)),
    (ColumnType(Kind.DATE), "9999-12-31", date(9999, 12, 31)),
    (ColumnType(Kind.DATE), "2000-02-29", date(2000, 2, 29)),
    (ColumnType(Kind.TIMESTAMP), "2020-01-02 03:04:05.6", datetime(2020, 1, 2, 3, 4, 5, 600000)),  # noqa: DTZ001
    (ColumnType(Kind.TIMESTAMPTZ), "1969-12-31 23:59:59.999999+00",
     instant("1969-12-31 23:59:59.999999")),
    (ColumnType(Kind.TIMESTAMPTZ), "2020-06-01 00:00:00+05:30", instant("2020-05-31 18:30:00")),
    (ColumnType(Kind.TIMESTAMPTZ), "2020-06-01 00:00:00-03:30:15",
     instant("2020-06-01 03:30:15")),
    (ColumnType(Kind.STRING), "", ""),
    (ColumnType(Kind.STRING), "\u4e2d\u6587 \U0001f600 \\ plain", "\u4e2d\u6587 \U0001f600 \\ plain"),
    (ColumnType(Kind.BINARY), "\\x", b""),
    (ColumnType(Kind.BINARY), "\\x00DEadff", b"\x00\xde\xad\xff"),
    (ColumnType(Kind.INTERVAL), "00:00:00", Interval(0, 0, 0)),
    (ColumnType(Kind.INTERVAL), "1 year 2 mons -3 days +04:05:06.789",
     Interval(14, -3, 14_706_789_000)),
    (ColumnType(Kind.INTERVAL), "-1 years -2 mons +3 days -04:05:06",
     Interval(-14, 3, -14_706_000_000)),
    (ColumnType(Kind.INTERVAL), "-2562047788:00:54.775808", Interval(0, 0, -(2**63))),
    (listed(Kind.INT32), "{}", []),
    (listed(Kind.INT32), "{1,NULL,-3}", [1, None, -3]),
    (listed(Kind.STRING), '{a,"b,c","d\\"e","f\\\\g","","NULL",NULL}',
     ["a", "b,c", 'd"e', "f\\g", "", "NULL", None]),
    (listed(Kind.DECIMAL, 5, 2), "{1.50,-2.00}", [Decimal("1.50"), Decimal("-2.00")]),
    (listed(Kind.BINARY), '{"\\\\x00ff"}', [b"\x00\xff"]),
    (listed(Kind.TIMESTAMPTZ), '{"2020-01-01 00:00:00+00"}', [instant("2020-01-01")]),
    (listed(Kind.INTERVAL), '{"1 day",00:00:01}', [Interval(0, 1, 0), Interval(0, 0, 10**6)]),
    (listed(Kind.BOOL), "{t,f}", [True, False]),
]  # fmt: skip

MISFITS: list[tuple[ColumnType, str]] = [
    (ColumnType(Kind.BOOL), "true"),
    (ColumnType(Kind.INT16), "32768"),
    (ColumnType(Kind.INT32), "-2147483649"),
    (ColumnType(Kind.INT64), "9223372036854775808"),
    (ColumnType(Kind.INT64), ""),
    (ColumnType(Kind.INT64), "1.0"),
    (ColumnType(Kind.FLOAT32), "1e39"),
    (ColumnType(Kind.FLOAT32), "1e-46"),
    (ColumnType(Kind.FLOAT64), "1e309"),
    (ColumnType(Kind.FLOAT64), "1e-400"),
    (ColumnType(Kind.FLOAT64), "0x10"),
    (ColumnType(Kind.FLOAT64), "inf"),
    (decimal(10, 2), "NaN"),
    (decimal(10, 2), "Infinity"),
    (decimal(10, 2), "100000000.00"),
    (decimal(10, 2), "0.001"),
    (decimal(38, 0), "1" + "0" * 38),
    (decimal(10, 2), "1e3"),
    (ColumnType(Kind.DATE), "infinity"),
    (ColumnType(Kind.DATE), "0044-03-15 BC"),
    (ColumnType(Kind.DATE), "10000-01-01"),
    (ColumnType(Kind.DATE), "1900-02-29"),
    (ColumnType(Kind.TIMESTAMP), "-infinity"),
    (ColumnType(Kind.TIMESTAMP), "2020-01-01 00:00:00+00"),
    (ColumnType(Kind.TIMESTAMPTZ), "2020-01-01 00:00:00"),
    (ColumnType(Kind.TIMESTAMPTZ), "9999-12-31 23:59:59-01"),
    (ColumnType(Kind.TIMESTAMPTZ), "0001-01-01 00:00:00+01"),
    (ColumnType(Kind.BINARY), "\\000\\001"),
    (ColumnType(Kind.BINARY), "\\x0"),
    (ColumnType(Kind.INTERVAL), "infinity"),
    (ColumnType(Kind.INTERVAL), "178956970 years 8 mons"),
    (ColumnType(Kind.INTERVAL), "2562047788:00:54.775808"),
    (listed(Kind.INT32), "{{1,2},{3,4}}"),
    (listed(Kind.INT32), "[0:1]={1,2}"),
    (listed(Kind.INT32), "{1,2147483648}"),
    (listed(Kind.STRING), '{"unclosed}'),
]


@pytest.mark.parametrize(("held", "text", "expected"), FITS, ids=lambda each: str(each)[:40])
def test_values_that_fit(
    decode: Decode, held: ColumnType, text: str, expected: Any  # Any: as in FITS
) -> None:  # fmt: skip
    """What the server writes comes out exactly."""
    assert decode(held, text.encode()) == expected


@pytest.mark.parametrize(("held", "text"), MISFITS, ids=lambda each: str(each)[:40])
def test_values_that_do_not_fit_keep_their_text(
    decode: Decode, held: ColumnType, text: str
) -> None:
    """Out of range, infinite or of another shape: the exact text, never a near value."""
    assert decode(held, text.encode()) == Misfit(text)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (b"\xff", "\\xff"),
        (b"a\\b\xc3", "a\\\\b\\xc3"),
        (b"\xe4\xb8", "\\xe4\\xb8"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        ("é".encode() + b"\x80", "é\\x80"),
    ],
)
def test_text_that_is_not_utf8_is_escaped(decode: Decode, text: bytes, escaped: str) -> None:
    """Invalid bytes stay readable and reversible."""
    assert decode(ColumnType(Kind.STRING), text) == Misfit(escaped)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.LIST], ids=str)
@pytest.mark.parametrize("shape", ["scalar", "list"])
def test_edges_agree(kind: Kind, shape: str) -> None:
    """Every awkward text has the same outcome in both decoders, for every kind."""
    precision, scale = (38, 9) if kind is Kind.DECIMAL else (0, 0)
    held = (
        ColumnType(kind, None, precision, scale)
        if shape == "scalar"
        else ColumnType(Kind.LIST, kind, precision, scale)
    )
    for text in texts.EDGES:
        assert repr(fast(held, text)) == repr(decode_value(held, text)), text


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts.column_types(), texts.texts())
@example(ColumnType(Kind.FLOAT64), b"nan")
def test_decoders_agree_on_any_text(held: ColumnType, text: bytes) -> None:
    """Same value or same kept text, whatever arrives."""
    assert repr(fast(held, text)) == repr(decode_value(held, text))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**64 - 1))
def test_every_double_comes_back(bits: int) -> None:
    """The shortest text of a double gives the same 64 bits."""
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    text = repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    assert repr(fast(ColumnType(Kind.FLOAT64), text.encode())) == repr(value)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**63), st.integers(-40, 40))
def test_doubles_are_rounded_once(mantissa: int, power: int) -> None:
    """Long mantissas with any power of ten agree with exact arithmetic."""
    text = f"{mantissa}e{power:+03}"
    assert fast(ColumnType(Kind.FLOAT64), text.encode()) == float(text)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001
       st.integers(-15 * 3600, 15 * 3600))  # fmt: skip
def test_every_moment_comes_back(moment: datetime, offset: int) -> None:
    """A moment in any zone is the same moment in UTC."""
    hours, rest = divmod(abs(offset), 3600)
    zone = f"{'-' if offset < 0 else '+'}{hours:02}:{rest // 60:02}:{rest % 60:02}"
    text = f"{moment.isoformat(' ', 'microseconds')}{zone}"
    expected = (moment - timedelta(seconds=offset)).replace(tzinfo=UTC)
    assert fast(ColumnType(Kind.TIMESTAMPTZ), text.encode()) == expected
