"""Values in the server's text form to Python values; the plain twin of ``_values.pyx``.

Slow and plain on purpose: it uses the number and date types of Python, so that a mistake
in the fast one shows. What fits and what does not is the same in both.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from gaussdecode.model.types import ColumnType, Kind


class Interval(NamedTuple):
    """A span of time in the server's three units, which do not convert to each other."""

    months: int
    days: int
    micros: int


@dataclass(frozen=True, slots=True)
class Misfit:
    r"""The text of a value that its column cannot hold.

    Attributes:
        text: as sent; where it was not UTF-8, and for every string, with backslashes
            doubled and the invalid bytes as ``\xNN``.
    """

    text: str


Scalar = bool | int | float | Decimal | date | datetime | str | bytes | Interval
Value = Scalar | list[Scalar | None]

_MAX_FLOAT_TEXT: Final = 63
_MAX_DIGITS: Final = 19  # of an integer
_EXACT: Final = Context(prec=100)
_FLOAT: Final = re.compile(rb"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)(e[+-]?[0-9]{1,4})?")
_DECIMAL: Final = re.compile(rb"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)")
_INTEGER: Final = re.compile(rb"(-?)([0-9]+)")
_DATE: Final = re.compile(rb"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP: Final = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
    rb"(?:([+-])([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?)?)?"
)
_INTERVAL: Final = re.compile(
    rb"(?:([+]?[0-9]+|-[0-9]+) years?(?: |\Z))?(?:([+]?[0-9]+|-[0-9]+) mons?(?: |\Z))?"
    rb"(?:([+]?[0-9]+|-[0-9]+) days?(?: |\Z))?"
    rb"(?:([+-]?)([0-9]{2,19}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_ELEMENT: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^",{}\\ \t-\r]+)', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)


def decode_value(column_type: ColumnType, text: bytes) -> Value | Misfit:
    """Convert one value.

    Args:
        column_type: how its column is held.
        text: as on the wire, in UTF-8.

    Returns:
        The value, or what is left of it when the column cannot hold it exactly.
    """
    value: Value | None
    if column_type.kind is Kind.LIST:
        value = _list(column_type, text)
    else:
        value = _SCALARS[column_type.kind](column_type, text)
    return value if value is not None else Misfit(_kept(column_type, text))


def _kept(column_type: ColumnType, text: bytes) -> str:
    if column_type.kind is not Kind.STRING:
        try:
            return text.decode()
        except UnicodeDecodeError:
            pass
    return text.replace(b"\\", b"\\\\").decode(errors="backslashreplace")


def _boolean(_: ColumnType, text: bytes) -> bool | None:
    return {b"t": True, b"f": False}.get(text)


def _integer(bits: int) -> Callable[[ColumnType, bytes], int | None]:
    def parse(_: ColumnType, text: bytes) -> int | None:
        match = _INTEGER.fullmatch(text)
        if match is None or len(match[2]) > _MAX_DIGITS:
            return None
        number = int(text)
        return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None

    return parse


def _special(text: bytes) -> float | None:
    if text in (b"NaN", b"Infinity", b"-Infinity", b"Nan", b"Inf", b"-Inf"):
        return float(text)
    return None


def _double(_: ColumnType, text: bytes) -> float | None:
    if _FLOAT.fullmatch(text) is None or len(text) > _MAX_FLOAT_TEXT:
        return _special(text)
    number = float(text)
    is_lost = number in (float("inf"), float("-inf")) or (number == 0 and Decimal(text.decode()))
    return None if is_lost else number


def _single(column_type: ColumnType, text: bytes) -> float | None:
    number = _double(column_type, text)
    if number is None or _FLOAT.fullmatch(text) is None or number == 0:
        return number
    try:
        near = struct.unpack("<I", struct.pack("<f", abs(number)))[0]
    except OverflowError:
        near = 0x7F7FFFFF
    # Rounding twice can be one off, so the neighbours are weighed against the exact value.
    exact = abs(Fraction(text.decode()))
    candidates = range(max(near - 1, 0), min(near + 1, 0x7F7FFFFF) + 1)
    best = min(candidates, key=lambda bits: (abs(_of_bits(bits) - exact), bits & 1))
    # Half a unit beyond the largest single is where rounding gives infinity.
    if best == 0 or exact >= _of_bits(0x7F7FFFFF) + Fraction(2) ** 103:
        return None
    rounded = float(_of_bits(best))
    return -rounded if text.startswith(b"-") else rounded


def _of_bits(bits: int) -> Fraction:
    return Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def _decimal(column_type: ColumnType, text: bytes) -> Decimal | None:
    if _DECIMAL.fullmatch(text) is None:
        return None
    whole, _, fraction = text.lstrip(b"-").partition(b".")
    kept, lost = fraction[: column_type.scale], fraction[column_type.scale :]
    magnitude = int(whole + kept.ljust(column_type.scale, b"0") or b"0")
    if lost.strip(b"0") or magnitude >= 10**column_type.precision:
        return None
    signed = -magnitude if text.startswith(b"-") else magnitude
    return Decimal(signed).scaleb(-column_type.scale, _EXACT)


def _date(_: ColumnType, text: bytes) -> date | None:
    match = _DATE.fullmatch(text)
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def _timestamp(column_type: ColumnType, text: bytes) -> datetime | None:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or (match[8] is not None) != (column_type.kind is Kind.TIMESTAMPTZ):
        return None
    hours, minutes, seconds = (int(match[index] or 0) for index in (9, 10, 11))
    if hours > 15 or minutes > 59 or seconds > 59:
        return None
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    try:
        year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
        micros = int((match[7] or b"0").ljust(6, b"0"))
        # The zone is added below, where there is one.
        moment = datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001
        moment += offset if match[8] == b"-" else -offset
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if match[8] is not None else moment


def _interval(_: ColumnType, text: bytes) -> Interval | None:
    match = _INTERVAL.fullmatch(text)
    if match is None or not text or text.endswith(b" "):
        return None
    units = [match[index] or b"0" for index in (1, 2, 3)]
    if any(len(unit.lstrip(b"+-")) > _MAX_DIGITS for unit in units):
        return None
    years, months, days = map(int, units)
    if not all(-(2**31) <= unit < 2**31 for unit in (years, months, days, years * 12 + months)):
        return None
    hours, minutes, seconds = (int(match[index] or 0) for index in (5, 6, 7))
    if minutes > 59 or seconds > 59:
        return None
    micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    micros += int((match[8] or b"0").ljust(6, b"0"))
    if match[4] == b"-":
        micros = -micros
    if not -(2**63) <= micros < 2**63:
        return None
    return Interval(years * 12 + months, days, micros)


def _string(_: ColumnType, text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _binary(_: ColumnType, text: bytes) -> bytes | None:
    if re.fullmatch(rb"\\x([0-9A-Fa-f]{2})*", text) is None:
        return None
    return bytes.fromhex(text[2:].decode())


def _list(column_type: ColumnType, text: bytes) -> list[Scalar | None] | None:
    """Read a list of one dimension that begins at 1; anything else does not fit."""
    if len(text) < 2 or not text.startswith(b"{") or not text.endswith(b"}"):
        return None
    assert column_type.element is not None  # for mypy: checked at construction
    element = ColumnType(
        column_type.element, precision=column_type.precision, scale=column_type.scale
    )
    values: list[Scalar | None] = []
    start, end = 1, len(text) - 1
    while start < end or values:
        match = _ELEMENT.match(text, start, end)
        if match is None:
            return None
        if match[2] == b"NULL":
            values.append(None)
        else:
            quoted, bare = match[1], match[2]
            if bare is not None and bare.upper() == b"NULL":
                return None
            part = bare if quoted is None else _ESCAPE.sub(rb"\1", quoted)
            value = _SCALARS[element.kind](element, part)
            if value is None:
                return None
            values.append(value)
        start = match.end() + 1
        if match.end() == end:
            break
        if text[match.end()] != ord(","):
            return None
    return values


_SCALARS: Final[dict[Kind, Callable[[ColumnType, bytes], Scalar | None]]] = {
    Kind.BOOL: _boolean,
    Kind.INT16: _integer(16),
    Kind.INT32: _integer(32),
    Kind.INT64: _integer(64),
    Kind.FLOAT32: _single,
    Kind.FLOAT64: _double,
    Kind.DECIMAL: _decimal,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamp,
    Kind.STRING: _string,
    Kind.BINARY: _binary,
    Kind.INTERVAL: _interval,
}
