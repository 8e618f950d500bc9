"""Tests for `gaussdecode.wire.letters` and `_letters.pxd`."""

import enum
import re
from pathlib import Path
from typing import Final

import pytest

from gaussdecode.wire import letters
from gaussdecode.wire.letters import Cell, Image, Letter, StreamStyle

PACKAGE: Final = Path(letters.__file__).parents[1]
TABLES: Final[dict[str, type[enum.Enum]]] = {
    "LETTER": Letter,
    "IMAGE": Image,
    "CELL": Cell,
    "STYLE": StreamStyle,
}
OF_PGOUTPUT: Final = frozenset(b"BCORYIUDTMSEcAbPKrp")  # of all its protocols
OURS: Final = (Letter.GAUSS_BEGIN, Letter.GAUSS_COMMIT, Letter.NOTICE, Letter.HEARTBEAT)


def letter_of(one: enum.Enum) -> str:
    """As text, whatever the table holds it as."""
    return one.value if isinstance(one.value, str) else one.value.decode()


@pytest.mark.parametrize("prefix", TABLES)
def test_cython_has_the_same_letters(prefix: str) -> None:
    """All names, numbers and comments of the declaration, and no other."""
    table = TABLES[prefix]
    text = (PACKAGE / "wire/_letters.pxd").read_text()
    block = re.search(rf"^cdef enum {table.__name__}:\n((?:    .+\n)+)", text, re.MULTILINE)
    assert block is not None
    declared = re.findall(r"    (\w+) = (0x[0-9A-F]{2}) +# (\w)\n", block[1])
    assert len(declared) == block[1].count("\n")
    assert [(name, int(number, 16), letter) for name, number, letter in declared] == [
        (f"{prefix}_{one.name}", ord(letter_of(one)), letter_of(one)) for one in table
    ]


def test_our_own_letters_are_nobody_elses() -> None:
    """A message of a later protocol is refused, not taken for one of ours."""
    assert not {ord(letter.value) for letter in OURS} & OF_PGOUTPUT
    assert {ord(of.value) for of in Letter} - {ord(of.value) for of in OURS} <= OF_PGOUTPUT


@pytest.mark.parametrize("prefix", TABLES)
def test_letters_differ(prefix: str) -> None:
    """No two names of a table share one; an alias would vanish in silence."""
    table = TABLES[prefix]
    assert len(table.__members__) == len(list(table))


@pytest.mark.parametrize(
    "path",
    ["_wire.pyx", "wire/_tally.pxd", "wire/_part.pyx", "source/gaussdb/translate/_translator.pyx"],
)
def test_letters_are_not_spelled_anew(path: str) -> None:
    """Where messages are read or made, they are told apart by the table's names."""
    code = (PACKAGE / path).read_text()
    assert "gaussdecode.wire._letters cimport" in code
    assert re.findall(r"(?:tag|style) [!=]?= c\"\w\"|append_count\(out, c\"\w\"", code) == []
