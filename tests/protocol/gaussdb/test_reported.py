"""Settings that a server reports inside a stream."""

import pytest

from gaussdecode.protocol.gaussdb.reported import change_of

KNOWN = {"DateStyle": "ISO, MDY", "client_encoding": "UTF8", "application_name": "x"}


@pytest.mark.parametrize(
    ("name", "value", "is_change"),
    [
        ("DateStyle", "SQL, MDY", True),
        ("DateStyle", "ISO, YMD", False),
        ("DateStyle", "iso", False),
        ("client_encoding", "GBK", True),
        ("client_encoding", "utf8", False),
        ("application_name", "y", False),
        ("IntervalStyle", "iso_8601", False),  # reported for the first time
    ],
)
def test_only_what_changes_values_counts(name: str, value: str, *, is_change: bool) -> None:
    """A change of how values are written is named; all else goes on."""
    known = dict(KNOWN)
    found = change_of(known, f"{name}\0{value}\0".encode())
    assert known[name] == value
    assert (found is not None) is is_change
    if found is not None:
        assert f"{name} is {value!r}" in found


@pytest.mark.parametrize("body", [b"", b"\0", b"DateStyle", b"\xff\0\xff\0"])
def test_damaged_reports_break_nothing(body: bytes) -> None:
    """A body that is no pair of texts is taken for what it holds."""
    change_of(dict(KNOWN), body)
