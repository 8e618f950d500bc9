"""Which changes of a type are known to keep every value."""

import pytest

from gaussdecode.model.retype import is_exact

HEADER = 4


def numeric(precision: int, scale: int) -> tuple[str, int]:
    """``numeric(p,s)`` with its modifier."""
    return "numeric", (precision << 16 | scale) + HEADER


@pytest.mark.parametrize(
    ("old", "new", "exact"),
    [
        (("integer", -1), ("bigint", -1), True),
        (("bigint", -1), ("integer", -1), False),
        (("integer", -1), ("text", -1), True),
        (("integer", -1), ("character varying", 9), False),
        (("character varying", 9), ("character varying", 13), True),
        (("character varying", 13), ("character varying", 9), False),
        (("character varying", -1), ("character varying", 9), False),
        (("character varying", 9), ("text", -1), True),
        (("character", 9), ("text", -1), False),
        (("inet", -1), ("text", -1), False),
        (("timestamp without time zone", 3), ("timestamp without time zone", -1), True),
        (("timestamp without time zone", -1), ("timestamp without time zone", 3), False),
        (("timestamp without time zone", -1), ("timestamp with time zone", -1), False),
        (numeric(10, 2), numeric(12, 2), True),
        (numeric(10, 2), numeric(12, 4), True),
        (numeric(10, 2), numeric(11, 4), False),
        (numeric(10, 2), numeric(10, 1), False),
        (numeric(10, 2), ("numeric", -1), True),
        (("numeric", -1), numeric(10, 2), False),
        (("real", -1), ("double precision", -1), True),
        (("double precision", -1), ("real", -1), False),
        (("bit varying", 4), ("bit varying", 8), True),
    ],
)
def test_known_and_unknown(old: tuple[str, int], new: tuple[str, int], exact: bool) -> None:
    """A value that may be cut, rounded or spelled anew is not known."""
    assert is_exact(old, new) is exact
