"""One comparable form for a value, whether it landed or the server printed it.

Most types compare as the text that PostgreSQL prints. Floats, intervals and arrays have
several spellings; they compare as numbers and tuples.
"""

import datetime as dt
import decimal
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

Canon = str | tuple[Any, ...] | None  # Any: canonical elements

_UNIT: Final = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_CLOCK: Final = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)


def of_value(value: Any, of: pa.DataType) -> Canon:  # Any: whatever pyarrow gives
    """Bring a value that pyarrow read into the common form."""
    if isinstance(value, list):
        return tuple(of_value(item, of.value_type) for item in value)
    spell = _SPELLED.get(type(value))
    return str(value) if spell is None else spell(value)


def of_text(text: str | None, of: pa.DataType) -> Canon:
    """Bring what the server printed into the common form of the type it lands as."""
    if text is None:
        return None
    if of.id == _LIST and text.startswith("{"):
        return tuple(of_text(item, of.value_type) for item in array_elements(text))
    read = _READ.get(of.id)
    return text if read is None else read(text)


def array_elements(text: str) -> list[str | None]:
    """Split a one-dimensional array literal; text inside braces of its own stays whole."""
    result: list[str | None] = []
    for match in _ELEMENT.finditer(text[1:-1]):
        quoted, plain = match.groups()
        if quoted is None:
            result.append(None if plain == "NULL" else plain)
        else:
            result.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
    return result


def interval_parts(text: str) -> Canon:
    """Read an interval in style ``postgres``; give months, days, microseconds."""
    if text.endswith("infinity"):
        return text
    amounts = {"year": 0, "mon": 0, "day": 0}
    for amount, unit in _UNIT.findall(text):
        amounts[unit] += int(amount)
    micros = 0
    clock = _CLOCK.search(text)
    if clock:
        sign, hours, minutes, seconds, fraction = clock.groups()
        micros = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000
        micros += int((fraction or "0").ljust(6, "0"))
        micros = -micros if sign == "-" else micros
    return (amounts["year"] * 12 + amounts["mon"], amounts["day"], micros)


def _of_time(value: dt.datetime) -> str:
    text = f"{value.year:04}" + value.strftime("-%m-%d %H:%M:%S")
    fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
    return text + fraction + ("+00" if value.tzinfo else "")


# Hundreds of thousands of values pass through in one test: one look-up each.
_LIST: Final = pa.list_(pa.null()).id
_SPELLED: Final[Mapping[type, Callable[[Any], Canon]]] = {
    str: lambda value: value,
    type(None): lambda _: None,
    bool: lambda value: "t" if value else "f",
    float: repr,
    bytes: lambda value: "\\x" + value.hex(),
    dict: lambda value: (value["months"], value["days"], value["micros"]),
    decimal.Decimal: lambda value: f"{value:f}",
    dt.datetime: _of_time,
}
"""How a value of each Python type is spelled; all others as `str` does."""

_READ: Final[Mapping[int, Callable[[str], Canon]]] = {
    pa.float32().id: lambda text: repr(struct.unpack("f", struct.pack("f", float(text)))[0]),
    pa.float64().id: lambda text: repr(float(text)),
    pa.struct([]).id: interval_parts,
}
"""How a text is read, by the kind of Arrow type; all others stay as they are."""
