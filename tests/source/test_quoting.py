"""Names and strings in replication commands."""

import pytest

from gaussdecode.errors import ConfigError
from gaussdecode.source.quoting import (
    identifier,
    literal,
    publication_list,
    slot_identifier,
    start_replication,
)


def test_quotes_are_doubled() -> None:
    """A quote inside cannot end the name or the string; a backslash is itself."""
    assert identifier('a"b') == '"a""b"'
    assert literal("a'b\\") == "'a''b\\'"


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_impossible_names_are_refused(name: str) -> None:
    """Nothing the server could cut short."""
    with pytest.raises(ConfigError):
        identifier(name)


@pytest.mark.parametrize("name", ["", "A", "a-b", "a" * 64, 'a"', "a b"])
def test_slot_names_have_one_shape(name: str) -> None:
    """1 to 63 of a-z, 0-9 and _."""
    with pytest.raises(ConfigError, match="slot"):
        slot_identifier(name)


def test_publications_are_quoted_in_one_string() -> None:
    """Each name is quoted, and the list once more as a string."""
    command = start_replication("s", "0/1", {"publication_names": publication_list(["O'x", 'b"'])})
    assert command == (
        'START_REPLICATION SLOT "s" LOGICAL 0/1 ("publication_names" \'"O\'\'x","b"""\')'
    )


@pytest.mark.parametrize("names", [[], ["é" * 32]])
def test_wrong_publication_lists_are_refused(names: list[str]) -> None:
    """None at all, or a name that the server would cut."""
    with pytest.raises(ConfigError):
        publication_list(names)
