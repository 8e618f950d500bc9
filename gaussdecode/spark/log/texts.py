"""Convert between values of landed Arrow types and the texts that the server prints for them.

Few values need it: constants of added columns, and old values of a column whose type changed.
"""

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

_UNIT: Final = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_CLOCK: Final = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)
_PLAIN_LIST: Final = re.compile(r'\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}', re.DOTALL)
_SECOND: Final = 1_000_000


def value_of(text: str, of: pa.DataType) -> Any:  # Any: whatever pyarrow takes
    """Parse the server's text of a value; None if a column of this type cannot hold it.

    Args:
        text: the server's text, not NULL.
        of: an Arrow type that lands.
    """
    try:
        return pa.scalar(_read(text, of), of).as_py()
    except (ValueError, ArithmeticError, pa.ArrowException):
        return None


def _read(text: str, of: pa.DataType) -> Any:  # Any: as above
    if pa.types.is_list(of):
        if not _PLAIN_LIST.fullmatch(text):
            raise ValueError("an array of several dimensions")
        return [None if item is None else _read(item, of.value_type) for item in _elements(text)]
    if pa.types.is_struct(of):
        return _interval(text)
    reader = next((read for is_of, read in _READERS if is_of(of)), str)
    return reader(text)


def _elements(text: str) -> list[str | None]:
    """Split the text of a one-dimensional array into elements."""
    found: list[str | None] = []
    for match in _ELEMENT.finditer(text[1:-1]):
        quoted, plain = match.groups()
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            found.append(None if plain == "NULL" else plain)
    return found


def _interval(text: str) -> dict[str, int]:
    if text.endswith("infinity"):
        raise ValueError("no interval holds it")
    amounts = {"year": 0, "mon": 0, "day": 0}
    for amount, unit in _UNIT.findall(text):
        amounts[unit] += int(amount)
    micros = 0
    clock = _CLOCK.search(text)
    if clock is not None:
        sign, hours, minutes, seconds, fraction = clock.groups()
        micros = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * _SECOND
        micros += int((fraction or "").ljust(6, "0"))
        micros = -micros if sign == "-" else micros
    months = amounts["year"] * 12 + amounts["mon"]
    return {"months": months, "days": amounts["day"], "micros": micros}


def _bool(text: str) -> bool:
    return {"t": True, "f": False}[text]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_READERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...]] = (
    (pa.types.is_boolean, _bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, decimal.Decimal),
    (pa.types.is_date, dt.date.fromisoformat),
    (pa.types.is_timestamp, dt.datetime.fromisoformat),
    (pa.types.is_binary, _bytes),
)


def text_of(value: Any, of: pa.DataType) -> str:  # Any: whatever pyarrow gives, not None
    """Format a value as the server prints it."""
    if pa.types.is_list(of):
        return "{" + ",".join(_element(item, of.value_type) for item in value) + "}"
    if pa.types.is_struct(of):
        return _spelled_interval(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        text = f"{value.year:04}" + value.strftime("-%m-%d %H:%M:%S")
        fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
        return text + fraction + ("+00" if value.tzinfo else "")
    if isinstance(value, float):
        return _spelled_float(value, of)
    return str(value)


def _element(value: Any, of: pa.DataType) -> str:  # Any: as above
    if value is None:
        return "NULL"
    text = text_of(value, of)
    if text and text.upper() != "NULL" and not re.search(r'[\s,{}"\\]', text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _spelled_float(value: float, of: pa.DataType) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if math.isnan(value):
        return "NaN"
    return str(pa.scalar(value, of).cast(pa.string()).as_py()).removesuffix(".0")


def _spelled_interval(value: dict[str, int]) -> str:
    """Format an interval as with ``IntervalStyle = postgres``."""
    years, months = divmod(abs(value["months"]), 12)
    sign = -1 if value["months"] < 0 else 1
    parts = [(years * sign, "year"), (months * sign, "mon"), (value["days"], "day")]
    words = []
    was_negative = False
    for amount, unit in parts:
        if amount:
            plus = "+" if was_negative and amount > 0 else ""
            words.append(f"{plus}{amount} {unit}{'' if amount == 1 else 's'}")
            was_negative = amount < 0
    micros = value["micros"]
    if micros or not words:
        seconds, fraction = divmod(abs(micros), _SECOND)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        clock += f".{fraction:06}".rstrip("0") if fraction else ""
        lead = "-" if micros < 0 else "+" if was_negative else ""
        words.append(lead + clock)
    return " ".join(words)
