"""Messages: cut anywhere, damaged anywhere, they are right or a typed error."""

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.scripted import answer, error, notice, startup_parameters
from kit.vectors import meaning, split_all, vector_bytes

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.protocol.gaussdb import messages
from gaussdecode.protocol.gaussdb.messages import Message, MessageReader, Tag

CONVERSATION = b"".join(
    (
        messages.frontend(Tag.NEGOTIATE.value, struct.pack(">II", 3 << 16, 1) + b"_pq_.x\0"),
        vector_bytes("A01"),
        messages.frontend(Tag.AUTHENTICATION.value, bytes(4)),
        messages.frontend(Tag.PARAMETER.value, b"server_encoding\0GBK\0"),
        messages.frontend(Tag.BACKEND_KEY.value, bytes(12)),
        messages.frontend(Tag.READY.value, b"I"),
        answer(("a", "b"), ("1", None), ("", "é")),
        notice("look"),
        error("42704", "gone", H="make it"),
        vector_bytes("W01"),
        messages.copy_data(vector_bytes("K01")),
    )
)
PARSERS: dict[Tag, Callable[[bytes], object]] = {
    Tag.AUTHENTICATION: messages.parse_authentication,
    Tag.PARAMETER: messages.parse_parameter,
    Tag.NEGOTIATE: messages.parse_negotiation,
    Tag.ERROR: messages.notice_fields,
    Tag.NOTICE: messages.notice_fields,
    Tag.ROW_DESCRIPTION: messages.parse_row_description,
    Tag.DATA_ROW: messages.parse_data_row,
    Tag.COMMAND_COMPLETE: messages.parse_command_complete,
    Tag.COPY_BOTH: messages.parse_copy_both,
}
ALL = list(split_all(CONVERSATION))


def collect(pieces: list[bytes]) -> list[Message]:
    """What a reader makes of bytes in pieces."""
    reader, found = MessageReader(), []
    for piece in pieces:
        reader.feed(piece)
        while (message := reader.take()) is not None:
            found.append(message)
    assert reader.rest() == b""
    return found


@pytest.mark.parametrize("at", range(1, len(CONVERSATION)))
def test_every_split_gives_the_same_messages(at: int) -> None:
    """It does not matter where the network cut."""
    assert collect([CONVERSATION[:at], CONVERSATION[at:]]) == ALL


def test_single_bytes_give_the_same_messages() -> None:
    """Even byte by byte."""
    assert collect([CONVERSATION[i : i + 1] for i in range(len(CONVERSATION))]) == ALL


@pytest.mark.parametrize("at", range(1, len(CONVERSATION)))
def test_every_prefix_is_whole_messages_or_truncated(at: int) -> None:
    """Nothing is made up for what did not come."""
    found: list[Message] = []
    with contextlib.suppress(TruncatedError):
        found.extend(split_all(CONVERSATION[:at]))
    assert found == ALL[: len(found)]
    assert len(found) < len(ALL)


@pytest.mark.parametrize("index", range(len(ALL)), ids=[message.tag.name for message in ALL])
def test_every_prefix_of_a_body_is_an_error(index: int) -> None:
    """A body that lost its end is noticed, but where its end says nothing."""
    message = ALL[index]
    parse = PARSERS.get(message.tag)
    if parse is None:
        assert message.tag in {Tag.BACKEND_KEY, Tag.READY, Tag.COPY_DATA}
        return
    parse(message.body)
    shortest = 4 if message.tag is Tag.AUTHENTICATION else len(message.body)
    for size in range(shortest):
        with pytest.raises(TruncatedError):
            parse(message.body[:size])
    if message.tag is not Tag.AUTHENTICATION:
        with pytest.raises(WireError, match="after the end"):
            parse(message.body + b"\0")


@given(st.data())
def test_mutated_bytes_end_in_messages_or_a_typed_error(data: st.DataObject) -> None:
    """Whatever stands there, no other exception comes out."""
    damaged = bytearray(CONVERSATION)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        for message in split_all(bytes(damaged)):
            with contextlib.suppress(WireError):
                PARSERS.get(message.tag, len)(message.body)


@given(st.sampled_from(list(PARSERS)), st.binary(max_size=80))
def test_random_bodies_end_in_a_value_or_a_typed_error(tag: Tag, body: bytes) -> None:
    """The parsers read any bytes."""
    with contextlib.suppress(WireError):
        PARSERS[tag](body)


@pytest.mark.parametrize("size", [0, 3, 101 + 4, 2**32 - 1])
def test_impossible_lengths_are_found_with_the_header(size: int) -> None:
    """No byte of such a body is waited for."""
    reader = MessageReader(100)
    reader.feed(b"D" + struct.pack(">I", size))
    with pytest.raises(WireError, match="allowed: 4 to 104"):
        reader.take()


def test_longest_body_is_taken() -> None:
    """The limit itself is allowed."""
    reader = MessageReader(100)
    reader.feed(b"D" + struct.pack(">I", 104) + bytes(100))
    taken = reader.take()
    assert taken is not None
    assert len(taken.body) == 100


def test_foreign_type_is_named() -> None:
    """What is no message of a server is refused at its first byte."""
    reader = MessageReader()
    reader.feed(b"\x16\x03\x01")
    with pytest.raises(WireError, match="0x16"):
        reader.take()


def test_rest_is_what_no_message_took() -> None:
    """The stream's first bytes may arrive with the answer that starts it."""
    reader = MessageReader()
    reader.feed(vector_bytes("W01") + b"d\0\0")
    assert reader.take() == Message(Tag.COPY_BOTH, bytes.fromhex("000000"))
    assert reader.take() is None
    assert reader.rest() == b"d\0\0"
    assert reader.rest() == b""


def test_copy_both_vector() -> None:
    """W01, both ways."""
    ((message),) = split_all(vector_bytes("W01"))
    messages.parse_copy_both(message.body)
    assert messages.frontend(Tag.COPY_BOTH.value, message.body) == vector_bytes("W01")
    assert meaning("W01") == {"message": "CopyBothResponse", "format": 0, "columns": 0}
    with pytest.raises(WireError, match="1 columns"):
        messages.parse_copy_both(b"\0\0\1\0\0")


def test_query_vector() -> None:
    """Q01: a command as a simple query."""
    assert messages.query(meaning("Q01")["sql"]) == vector_bytes("Q01")


def test_error_keeps_every_letter_and_the_first_text() -> None:
    """GaussDB has letters of its own."""
    body = b"SFATAL\0C28000\0Mno\0mmod\0Magain\0\0"
    assert messages.notice_fields(body) == {"S": "FATAL", "C": "28000", "M": "no", "m": "mod"}


def test_text_before_the_encoding_is_known_stays_visible() -> None:
    """A message in GBK is no reason to fail."""
    assert messages.notice_fields(b"M\xc4\xe3\0\0") == {"M": "\\xc4\\xe3"}


def test_startup_has_its_version_and_pairs() -> None:
    """Protocol 3.51 with the parameters in order."""
    data = messages.startup(messages.PROTOCOL_3_51, {"user": "u", "database": "d"})
    assert data[:8] == struct.pack(">II", len(data), 3 << 16 | 51)
    assert startup_parameters(data[4:]) == {"user": "u", "database": "d"}
    assert messages.ssl_request() == bytes.fromhex("0000000804d2162f")


@pytest.mark.parametrize("make", [messages.query, lambda t: messages.startup(3, {"user": t})])
def test_nul_cannot_be_sent(make: Callable[[str], bytes]) -> None:
    """It would end the text early."""
    with pytest.raises(ValueError, match="NUL"):
        make("a\0b")


def test_small_messages_of_ours() -> None:
    """Letters and lengths."""
    assert messages.terminate() == b"X\0\0\0\4"
    assert messages.copy_done() == b"c\0\0\0\4"
    assert messages.password(b"x") == b"p\0\0\0\6x\0"
    assert messages.copy_data(b"r") == b"d\0\0\0\5r"
