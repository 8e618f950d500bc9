"""Values as tables have them: absent, empty, escaped, beyond ASCII, long, and mostly the same.

Every generator of a bench takes its values through here, so that none measures a stream of
even values that no application writes. Shares are arbitrary, and the same in both forms.
"""

import random
import re
from collections.abc import Callable
from typing import Final

_OF: Final = 100  # the shares below are of so many values
_NULLS: Final = 8
_EMPTY: Final = 3
_ODD: Final = 4
_LONG: Final = 1
_COMMON: Final = 30
_LONGER: Final = 10
ODD_TEXTS: Final = (
    "it''s 'quoted'", 'say "yes"', "back\\slash \\n \\x41", "tab\tand\nline", "a,b;c)d]e}f{g[h(",
    "é ü ñ ß", "汉字和假名", "письмо", "🙂🚀", " blank at both ends ", "null", "\x01",
)  # fmt: skip


def uneven(
    rng: random.Random, make: Callable[[random.Random], str], *, is_text: bool
) -> str | None:
    """Make a value.

    Args:
        rng: decides.
        make: makes an even one.
        is_text: any text fits the column.

    Returns:
        None for NULL.
    """
    share = rng.randrange(_OF)
    if share < _NULLS:
        return None
    if (share := share - _NULLS) < _COMMON:
        return make(random.Random(rng.randrange(3)))
    if is_text:
        if (share := share - _COMMON) < _EMPTY:
            return ""
        if (share := share - _EMPTY) < _ODD:
            return rng.choice(ODD_TEXTS)
        if share - _ODD < _LONG:
            return make(rng) * _LONGER
    return make(rng)


def uneven_sql(expression: str, *, is_text: bool) -> str:
    """The same in SQL, by the number `g` of the row; which shares it hits depends on the column."""
    share = f"(hashint8(g::int8 + {sum(expression.encode())}) & 2147483647) % {_OF}"
    common = re.sub(r"\bg\b", "(1 + g % 3)", expression)
    odd = ", ".join(map(_quoted, ODD_TEXTS))
    choices = [(_NULLS, "NULL"), (_COMMON, common)]
    if is_text:
        choices += [
            (_EMPTY, "''"),
            (_ODD, f"(ARRAY[{odd}])[1 + g % {len(ODD_TEXTS)}]"),
            (_LONG, f"repeat({expression}, {_LONGER})"),
        ]
    whens, last = "", 0
    for size, value in choices:
        last += size
        whens += f"WHEN {share} < {last} THEN {value} "
    return f"CASE {whens}ELSE {expression} END"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return "E'" + escaped.replace("\t", "\\t").replace("\n", "\\n").replace("\x01", "\\x01") + "'"
