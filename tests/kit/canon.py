"""One comparable form for a value, whether it landed or the server printed it.

Most types compare as the text that PostgreSQL prints. Floats, intervals and arrays have
several spellings; they compare as numbers and tuples.
"""

import datetime as dt
import decimal
import re
import struct
from typing import Any, Final

import pyarrow as pa

Canon = str | tuple[Any, ...] | None  # Any: canonical elements

_UNIT: Final = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_CLOCK: Final = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)


def of_value(value: Any, of: pa.DataType) -> Canon:  # Any: whatever pyarrow gives
    """Bring a value that pyarrow read into the common form."""
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(of_value(item, of.value_type) for item in value)
    if isinstance(value, dict):
        return (value["months"], value["days"], value["micros"])
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, dt.datetime):
        text = f"{value.year:04}" + value.strftime("-%m-%d %H:%M:%S")
        fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
        return text + fraction + ("+00" if value.tzinfo else "")
    return str(value)


def of_text(text: str | None, of: pa.DataType) -> Canon:
    """Bring what the server printed into the common form of the type it lands as."""
    if text is None:
        return None
    if pa.types.is_list(of) and text.startswith("{"):
        return tuple(of_text(item, of.value_type) for item in array_elements(text))
    if pa.types.is_struct(of):
        return interval_parts(text)
    if pa.types.is_float32(of):
        return repr(struct.unpack("f", struct.pack("f", float(text)))[0])
    if pa.types.is_float64(of):
        return repr(float(text))
    return text


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
