"""Encodings of databases to UTF-8."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.errors import SourceRefusedError
from gaussdecode.source.gaussdb.translate._transcode import Transcoder

CODECS = {"GBK": "gbk", "GB18030": "gb18030", "LATIN1": "latin-1"}
# The interpreter has GB 18030 in its edition of 2000; later ones moved letters out of private use.
MOVED = "\u1e3f" + "".join(map(chr, [*range(0x9FB4, 0x9FBC), *range(0xFE10, 0xFE1A)]))
LETTERS = st.characters(exclude_categories=["Cs", "Co"], exclude_characters=MOVED)


@pytest.mark.parametrize("encoding", CODECS)
@given(text=st.text(LETTERS, max_size=40))
def test_agrees_with_the_interpreter(encoding: str, text: str) -> None:
    """Whatever the encoding can write comes out as UTF-8, at any length."""
    raw = text.encode(CODECS[encoding], "ignore").replace(b"\0", b"")
    expected = raw.decode(CODECS[encoding]).encode()
    assert Transcoder(encoding).transcode_bytes(raw) == (expected, True)


def test_every_letter_of_gbk() -> None:
    """Two bytes by two bytes, the C library's table is the interpreter's."""
    transcoder = Transcoder("GBK")
    letters = 0
    for high in range(0x81, 0xFF):
        for low in [*range(0x40, 0x7F), *range(0x80, 0xFF)]:
            raw = bytes([high, low])
            try:
                expected = raw.decode("gbk")
            except UnicodeDecodeError:
                continue
            letters += 1
            assert transcoder.transcode_bytes(raw) == (expected.encode(), True)
    assert letters > 21000


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
@given(raw=st.binary(max_size=40))
def test_passed_on_as_they_are(encoding: str, raw: bytes) -> None:
    """Where nothing is to be converted, nothing is checked either."""
    assert Transcoder(encoding).transcode_bytes(raw) == (raw, True)


@pytest.mark.parametrize("encoding", ["GBK", "GB18030"])
@given(raw=st.binary(max_size=40))
def test_bytes_that_are_no_letters_show(encoding: str, raw: bytes) -> None:
    """All is UTF-8, or it says so and is not."""
    converted, is_whole = Transcoder(encoding).transcode_bytes(raw)
    try:
        converted.decode()
    except UnicodeDecodeError:
        assert not is_whole
    else:
        assert is_whole


def test_good_letters_around_bad_bytes() -> None:
    """What can be read stays readable."""
    raw = "\u4e2d".encode("gbk") + b"\xff" + "\u6587".encode("gbk")
    assert Transcoder("GBK").transcode_bytes(raw) == (
        "\u4e2d".encode() + b"\xff" + "\u6587".encode(), False,
    )  # fmt: skip


def test_long_texts() -> None:
    """Growth on the way is made room for."""
    raw = ("\u00e9" * 1_000_003).encode("latin-1")
    converted, is_whole = Transcoder("LATIN1").transcode_bytes(raw)
    assert is_whole
    assert converted == ("\u00e9" * 1_000_003).encode()


def test_refused() -> None:
    """An encoding that is not supported is named."""
    with pytest.raises(SourceRefusedError, match="BIG5"):
        Transcoder("BIG5")
