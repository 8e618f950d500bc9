"""Read from the text of a DDL statement what it itself says that it does; nothing else is concluded."""

import re
from typing import Final

_RUNS: Final = ("SELECT", "DO", "CALL", "EXECUTE")
"""Words of statements that may run other commands than those that stand in them."""


def adds(statement: str | None, name: str) -> bool:
    """Whether a statement says that it adds a column, and runs nothing that could do more.

    Args:
        statement: None where it is unknown.
        name: of the column, not quoted.
    """
    return _says(statement, rf"ADD\s+(?:COLUMN\s+)?{_spelled(name)}")


def retypes(statement: str | None, name: str) -> bool:
    """Whether a statement says that it gives a column another type, and converts none with USING."""
    pattern = rf"ALTER\s+(?:COLUMN\s+)?{_spelled(name)}\s+(?:SET\s+DATA\s+)?TYPE"
    return not has_word(statement, "USING") and _says(statement, pattern)


def has_word(statement: str | None, word: str) -> bool:
    """Whether a statement has a word, in any case; true for an unknown one."""
    return statement is None or re.search(rf"\b{word}\b", statement, re.IGNORECASE) is not None


def _says(statement: str | None, pattern: str) -> bool:
    if statement is None or any(has_word(statement, word) for word in _RUNS):
        return False
    return re.search(rf"\b{pattern}(?![\w$\"])", statement, re.IGNORECASE) is not None


def _spelled(name: str) -> str:
    """A pattern for a name, with quotes or without."""
    return f'(?:"{re.escape(name.replace(chr(34), chr(34) * 2))}"|{re.escape(name)})'
