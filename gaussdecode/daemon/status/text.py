"""Format figures for people."""

import math
from collections.abc import Callable
from typing import Final

_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")


UNKNOWN: Final = "-"


def known(value: float | None, spell: Callable[[float], str]) -> str:
    """Spell a figure; a dash for one that is not known: None, or NaN of a metric."""
    return UNKNOWN if value is None or math.isnan(value) else spell(value)


def count(number: float) -> str:
    """Spell a count, with a thin space at each thousand."""
    return f"{number:,.0f}".replace(",", "\u2009")


def span(seconds: float) -> str:
    """Spell a time span: ``3 h 20 min``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min"
    return f"{hours // 24} days"


def size(count: float) -> str:
    """Spell bytes with up to three digits: ``1.2 GB``."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    digits = 0 if not unit or count >= 99.5 else 1
    return f"{count:.{digits}f} {_UNITS[unit]}"
