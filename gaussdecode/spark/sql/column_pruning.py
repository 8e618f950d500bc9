"""Find the columns that a query may need, from the text of the query alone.

Spark does not tell a Python worker which columns of a file a query needs. A query that writes every
column by name needs no other: a column whose name is not in the text is not needed. Pure. In doubt a
column counts as needed.
"""

import re
from collections.abc import Container
from typing import Final

_COUNTS: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)")
_QUERY: Final = re.compile(r"\s*(?:select|with)\b")
# These take columns that they do not name.
_IMPLICIT: Final = re.compile(r"\*|\|>|\(\s*from\b|natural|pivot|\btable\b|identifier")


class Mentioned(Container[str]):
    """The names in a query's text, and every name that could match one of them."""

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


def named_columns(text: str) -> Mentioned | None:
    """Find the columns that a query may need; None for all of them."""
    folded = _folded(text)
    if not _QUERY.match(folded) or _IMPLICIT.search(_COUNTS.sub("", folded)):
        return None
    return Mentioned(folded)


def _folded(text: str) -> str:
    """Fold text so that names which Java takes for equal ignoring case become equal."""
    return text.replace("\u0130", "i").replace("\u0131", "i").casefold()
