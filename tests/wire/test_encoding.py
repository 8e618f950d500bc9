"""Every encoding that a database can have, beside what real servers make of it."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.postgres import Postgres

from gaussdecode.errors import ConfigError
from gaussdecode.wire._encoding import translate
from gaussdecode.wire.encoding import ENCODINGS, Encoding, find_encoding, raw_name, spelled_name

_SERVER = """
    CREATE OR REPLACE FUNCTION pg_temp.translated(code bytea, source name) RETURNS bytea
    LANGUAGE plpgsql AS $$ BEGIN RETURN convert(code, source, 'UTF8');
    EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$
"""
_HIGH = range(0x80, 0x100)
_GRAPHIC = range(0xA0, 0x100)
# Codes that the server translates and we keep: each has a letter that another code is for.
_TWINS = {"EUC_JP": 23, "EUC_TW": 5864}
KNOWN = [encoding for encoding in ENCODINGS[1:] if encoding.is_known]


def _codes(encoding: Encoding) -> Iterator[bytes]:
    """The whole code space."""
    yield from (bytes((byte,)) for byte in _HIGH)
    if encoding.name.startswith("EUC_"):
        yield from map(bytes, itertools.product(_HIGH, _HIGH))
        yield from (bytes((0x8F, *rest)) for rest in itertools.product(_GRAPHIC, _GRAPHIC))
    if encoding.name == "EUC_TW":
        planes = range(0xA0, 0xB2)
        rest = itertools.product(planes, _GRAPHIC, _GRAPHIC)
        yield from (bytes((0x8E, *code)) for code in rest)


@pytest.mark.integration
@pytest.mark.parametrize("encoding", KNOWN, ids=lambda encoding: encoding.name)
def test_letters_are_the_servers(encoding: Encoding, postgres_15: Postgres) -> None:
    """No code has another letter; those that only the server knows are twins, or none."""
    codes = list(_codes(encoding))
    with postgres_15.connect() as session:
        session.execute(_SERVER)
        rows = session.execute(
            "SELECT code, pg_temp.translated(code, %s) FROM unnest(%s::bytea[]) code",
            (encoding.name, codes),
        )
        server = {bytes(code): bytes(text).decode() for code, text in rows if text is not None}
    kept = 0
    for code, text in server.items():
        ours, is_whole = translate(encoding.number, code)
        if is_whole:
            assert ours.decode() == text, code.hex()
            assert encoding.encode(text) == code
        else:
            assert encoding.encode(text) != code, f"{code.hex()} has no twin"
            kept += 1
    assert kept == _TWINS.get(encoding.name, 0)
    assert not set(encoding.letters) - set(server)


@pytest.mark.integration
def test_every_encoding_of_a_database_has_a_table(postgres_15: Postgres) -> None:
    """What a server can have is translated, but for the one that has no map to UTF-8."""
    rows = postgres_15.execute(
        "SELECT pg_encoding_to_char(n) FROM generate_series(0, 34) n "
        "WHERE pg_encoding_to_char(n) <> ''"
    )
    names = {name for (name,) in rows}
    assert {name for name in names if not find_encoding(name).is_known} == {"MULE_INTERNAL"}
    assert {encoding.name for encoding in ENCODINGS} | {"SQL_ASCII"} == names


@given(st.binary(max_size=12), st.sampled_from(ENCODINGS))
def test_any_bytes_come_back(raw: bytes, encoding: Encoding) -> None:
    """As text and as a name; names of different bytes are spelled differently."""
    assert encoding.encode(encoding.decode(raw)) == raw
    name = encoding.name_of(raw)
    assert name.encode().decode() == name
    assert encoding.encode(raw_name(name)) == raw


@pytest.mark.parametrize(
    ("name", "raw", "kept"),
    [
        ("WIN1252", b"a\x81\\z\xe9", "a\\x81\\\\z\u00e9"),
        ("EUC_JP", b"\xa9\xfe\xb0\xa1\xa9", "\\xa9\\xfe\u4e9c\\xa9"),
        ("EUC_TW", b"\x8e\xb0\xa1\xa1\xa4\xa4", "\\x8e\\xb0\\xa1\\xa1\uff13"),
        ("MULE_INTERNAL", b"x\x81\xe9", "x\\x81\\xe9"),
        ("JOHAB", b"\xb0\xa1", "\\xb0\\xa1"),
    ],
)
def test_a_code_without_a_letter_is_kept_whole(name: str, raw: bytes, kept: str) -> None:
    """Its neighbours are translated."""
    assert translate(find_encoding(name).number, raw) == (kept.encode(), False)


def test_a_spelled_byte_and_its_spelling_are_two_names() -> None:
    """A backslash that reads like one is spelled itself; others are not."""
    assert spelled_name("a\udc81") == "a\\x81"
    assert spelled_name("a\\x81") == "a\\x5cx81"
    assert spelled_name("\\back\\slash") == "\\back\\slash"


def test_a_letter_without_a_code_is_said() -> None:
    """What a database cannot hold is not asked for in other letters."""
    with pytest.raises(ConfigError, match=r"U\+6F22 has no place.*LATIN1"):
        find_encoding("LATIN1").encode("\u6f22")
