"""Which columns a query may need, told from its text alone.

Spark does not tell a Python worker which columns of a file a query needs. A query that says every
column by its name can need no other: a name that stands nowhere in its text is not needed. Pure; what
it is not sure of it takes for needed.
"""

import re
from collections.abc import Container
from typing import Final

_COUNTS: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)")
_QUERY: Final = re.compile(r"\s*(?:select|with)\b")
# These take columns that they do not name.
_IMPLICIT: Final = re.compile(r"\*|\|>|\(\s*from\b|natural|pivot|\btable\b|identifier")


class Mentioned(Container[str]):
    """The names that stand in a text, and others."""

    def __init__(self, folded: str) -> None:
        self._text = folded

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        # Beside a letter it is a part of another name, unless what begins or ends it is none.
        wanted = re.escape(_folded(name.replace("`", "``")))
        before = r"(?<!\w)" if name[:1].isalnum() else ""
        after = r"(?!\w)" if name[-1:].isalnum() else ""
        return re.search(f"{before}{wanted}{after}", self._text) is not None


def mentioned(text: str) -> Mentioned | None:
    """Tell which columns a query may need; None for all of them."""
    folded = _folded(text)
    if not _QUERY.match(folded) or _IMPLICIT.search(_COUNTS.sub("", folded)):
        return None
    return Mentioned(folded)


def _folded(text: str) -> str:
    """Make texts alike that Java takes for equal but for case."""
    return text.replace("\u0130", "i").replace("\u0131", "i").casefold()
