"""Tests for `gaussdecode.model.words`."""

from gaussdecode.model.words import counted


def test_one_is_singular() -> None:
    """Nothing is ever "1 tables"."""
    assert counted(1, "table") == "1 table"
    assert counted(0, "table") == "0 tables"
    assert counted(1234, "entry", "entries") == "1,234 entries"
    assert counted(1, "entry", "entries") == "1 entry"
