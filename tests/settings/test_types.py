"""Tests for `gaussdecode.settings.types`."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.settings.types import (
    MIB,
    AbsolutePath,
    Address,
    AddressType,
    Boolean,
    Choice,
    Duration,
    Integer,
    Size,
    Text,
    TextList,
    ValueType,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

NAME = Text("[a-z]+", "letters")


@pytest.mark.parametrize(
    ("value_type", "given_value", "expected"),
    [
        (Boolean(), True, True),
        (Integer(1, 20), 1, 1),
        (Integer(1, 20), 20, 20),
        (Integer(2, 1024, power_of_two=True), 1024, 1024),
        (Size(1, MIB), "1MiB", MIB),
        (Size(1, MIB), "0.5 MiB", MIB // 2),
        (Duration(0.1, 60.0), "100ms", 0.1),
        (Duration(0.1, 60.0), "1min", 60.0),
        (Duration(1.0, 60.0, or_none=True), "none", None),
        (Duration(1.0, 60.0, or_none=True), None, None),
        (Choice(("j", "t")), "j", "j"),
        (NAME, "abc", "abc"),
        (TextList(NAME), ["a", "b"], ("a", "b")),
        (TextList(NAME), "a", ("a",)),
        (AbsolutePath(), "/a/b", Path("/a/b")),
        (AddressType(), "127.0.0.1:0", Address("127.0.0.1", 0)),
        (AddressType(), "[::1]:65535", Address("::1", 65535)),
    ],
)
def test_reads(value_type: ValueType, given_value: object, expected: object) -> None:
    """What is allowed is read, at both ends of its range."""
    assert value_type.read(given_value) == expected


@pytest.mark.parametrize(
    ("value_type", "given_value", "message"),
    [
        (Boolean(), 1, "1 is not a boolean; allowed: true, false"),
        (Boolean(only=False), True, "true is not possible; allowed: false"),
        (Integer(1, 20), 0, "0 is out of range; allowed: 1 to 20"),
        (Integer(1, 20), 21, "21 is out of range; allowed: 1 to 20"),
        (Integer(1, 20), True, "true is not a whole number; allowed: 1 to 20"),
        (Integer(1, 20), "2", '"2" is a text; write it without quotes; allowed: 1 to 20'),
        (Integer(1, 20), 2.5, "2.5 is not a whole number; allowed: 1 to 20"),
        (
            Integer(2, 1024, power_of_two=True),
            100,
            "100 is not a power of two; allowed: 2 to 1024, a power of two",
        ),
        (Size(2, MIB), "1B", "1B is out of range; allowed: 2B to 1MiB"),
        (Size(2, MIB), "2MiB", "2MiB is out of range; allowed: 2B to 1MiB"),
        (Size(2, MIB), 5, '5 is not a size with a unit, like "128MiB"; allowed: 2B to 1MiB'),
        (Size(2, MIB), "5MB", '5MB is not a size like "128MiB"; allowed: 2B to 1MiB'),
        (Size(2, MIB), "0.3B", '0.3B is not a size like "128MiB"; allowed: 2B to 1MiB'),
        (
            Size(0, MIB, 4096),
            "1000B",
            "1000B is no multiple of 4KiB; allowed: 0B to 1MiB, a multiple of 4KiB",
        ),
        (Duration(1.0, 60.0), "500ms", "500ms is out of range; allowed: 1s to 1min"),
        (Duration(1.0, 60.0), "soon", 'soon is not a duration like "30s"; allowed: 1s to 1min'),
        (
            Duration(1.0, 60.0),
            30,
            '30 is not a duration with a unit, like "30s"; allowed: 1s to 1min',
        ),
        (Choice(("j", "t")), "x", "x is unknown; allowed: j, t"),
        (NAME, 123, "123 is not a text; put it in quotes; allowed: letters"),
        (NAME, "A", "A has the wrong form; allowed: letters"),
        (
            TextList(NAME),
            [],
            "[] is not a list with at least one item; allowed: a list, [a, b], of: letters",
        ),
        (
            TextList(NAME),
            ["a", "a"],
            "a, a names one thing twice; allowed: a list, [a, b], of: letters",
        ),
        (AbsolutePath(), "a/b", "a/b is not an absolute path; allowed: an absolute path"),
        (
            AddressType(),
            "::1:80",
            "::1:80 is not an address; allowed: host:port, with a port from 0 to 65535",
        ),
        (
            AddressType(),
            "h:65536",
            "h:65536 is not an address; allowed: host:port, with a port from 0 to 65535",
        ),
    ],
)
def test_refuses(value_type: ValueType, given_value: object, message: str) -> None:
    """What is not allowed is refused with the value, the reason and what is allowed."""
    with pytest.raises(ValueError) as refused:
        value_type.read(given_value)
    assert str(refused.value) == message


def test_refused_value_is_shortened_and_printable() -> None:
    """A refused value cannot flood or control the terminal."""
    with pytest.raises(ValueError) as refused:
        NAME.read("\x1b[2J" + "x" * 10_000)
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 200


@given(st.integers(0, 2**50))
def test_sizes_survive_the_text(size: int) -> None:
    """A size that is spelled and read again is the same."""
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 10**12))
def test_durations_survive_the_text(milliseconds: int) -> None:
    """A duration in whole milliseconds that is spelled and read again is the same."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)
