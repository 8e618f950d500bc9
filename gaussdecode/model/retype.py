"""List the type changes of a column after which the value of every stored row is known.

Each pair was tried against servers (`tests/integration/test_retypes.py`): PostgreSQL and readers of a landing
make the same of each value. After any other change the values depend on settings of the server and on
``USING``, which nothing records. They are never guessed.

Types are spelled as the server does, without modifier.
"""

from typing import Final

_NO_LIMIT: Final = -1
_NUMERIC_HEADER: Final = 4  # in the modifier of a numeric
_INTEGERS: Final = ("smallint", "integer", "bigint")
_TEXTS: Final = frozenset({"text", "character varying"})
_PRINTED: Final = frozenset({*_TEXTS, *_INTEGERS, "name", "uuid", "json", "jsonb", "xml"})
"""As text they are what they print."""
_WIDENED: Final = frozenset(
    {
        ("real", "double precision"),
        ("smallint", "double precision"),
        ("integer", "double precision"),
        *((a, b) for i, a in enumerate(_INTEGERS) for b in _INTEGERS[i + 1 :]),
    }
)
_WITH_LENGTH: Final = frozenset({"character varying", "bit varying"})
_WITH_DIGITS: Final = frozenset(
    {
        "timestamp without time zone",
        "timestamp with time zone",
        "time without time zone",
        "time with time zone",
    }
)
_MOST_DIGITS: Final = 6  # of a second; the same as no limit

Typed = tuple[str, int]
"""A type without modifier, and its modifier: -1 for none."""


def is_exact(old: Typed, new: Typed) -> bool:
    """Whether every value of a column is known under its new type.

    Args:
        old: before.
        new: after; without ``USING``, or nobody knows.
    """
    (old_type, before), (new_type, after) = old, new
    if old == new:
        return True
    if old_type != new_type:
        is_text = new_type in _TEXTS and after == _NO_LIMIT
        return (old_type in _PRINTED and is_text) or (old_type, new_type) in _WIDENED
    if old_type in _WITH_LENGTH:
        return after == _NO_LIMIT or (before != _NO_LIMIT and after >= before)
    if old_type in _WITH_DIGITS:
        return _digits(after) >= _digits(before)
    return old_type == "numeric" and _is_wider_numeric(before, after)


def _digits(modifier: int) -> int:
    return _MOST_DIGITS if modifier == _NO_LIMIT else modifier


def _is_wider_numeric(before: int, after: int) -> bool:
    """As many digits before the point and after it, or more."""
    if _NO_LIMIT in (before, after):
        return after == _NO_LIMIT
    old, new = before - _NUMERIC_HEADER, after - _NUMERIC_HEADER
    old_scale, scale = old & 0xFFFF, new & 0xFFFF
    return scale >= old_scale and (new >> 16) - scale >= (old >> 16) - old_scale
