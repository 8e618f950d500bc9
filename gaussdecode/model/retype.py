"""Changes of a column's type after which every stored value has the text it had before.

Of types that PostgreSQL itself has, and of changes that it makes without writing the table anew. Known
by OID and modifier, so that the catalogue alone tells. Whether another change keeps the values
is never guessed: ``USING`` may have done anything, and nothing keeps what it said.
"""

from typing import Final

_TEXT, _VARCHAR, _XML = 25, 1043, 142
_NUMERIC, _VARBIT = 1700, 1562
_TIMESTAMP, _TIMESTAMPTZ, _TIME, _TIMETZ = 1114, 1184, 1083, 1266
_HAS_LENGTH: Final = frozenset({_VARCHAR, _VARBIT})
_HAS_PRECISION: Final = frozenset({_TIMESTAMP, _TIMESTAMPTZ, _TIME, _TIMETZ})
_NO_LIMIT: Final = -1
_MOST_DIGITS: Final = 6  # of a second; the same as no limit
_HEADER: Final = 4  # in the modifier of a numeric
_WITHOUT_LENGTH: Final = frozenset({(_VARCHAR, _TEXT), (_TEXT, _VARCHAR), (_XML, _TEXT)})


def keeps_text(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Whether values of one type have the same text under another, if the table was not rewritten.

    Args:
        old: pg_type.oid and modifier before.
        new: the same after.
    """
    (old_oid, before), (oid, after) = old, new
    if old == new:
        return True
    if old_oid != oid:
        return (old_oid, oid) in _WITHOUT_LENGTH and after == _NO_LIMIT
    if oid in _HAS_LENGTH:
        return _is_wider(before, after)
    if oid in _HAS_PRECISION:
        return _digits(after) >= _digits(before)
    if oid == _NUMERIC:
        return _is_wider_numeric(before, after)
    return False


def _is_wider(before: int, after: int) -> bool:
    return after == _NO_LIMIT or (before != _NO_LIMIT and after >= before)


def _digits(modifier: int) -> int:
    return _MOST_DIGITS if modifier == _NO_LIMIT else modifier


def _is_wider_numeric(before: int, after: int) -> bool:
    """More digits before the point, and as many after it."""
    if _NO_LIMIT in (after, before):
        return after == _NO_LIMIT
    old, new = before - _HEADER, after - _HEADER
    return old & 0xFFFF == new & 0xFFFF and new >> 16 >= old >> 16
