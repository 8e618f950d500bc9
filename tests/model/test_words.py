"""Tests for `gaussdecode.model.words`."""

from gaussdecode.model.words import counted, printable


def test_one_is_singular() -> None:
    """Nothing is ever "1 tables"."""
    assert counted(1, "table") == "1 table"
    assert counted(0, "table") == "0 tables"
    assert counted(1234, "entry", "entries") == "1,234 entries"
    assert counted(1, "entry", "entries") == "1 entry"


def test_what_a_terminal_acts_on_is_spelled() -> None:
    """Escapes and NUL are shown; letters of any script, and line ends, stay."""
    assert printable("a\x1b[31mb\0c\r") == "a\\x1b[31mb\\x00c\\r"
    assert printable("\u009b\u202e") == "\\x9b\\u202e"
    assert printable("ä\nж\tΩ") == "ä\nж\tΩ"
