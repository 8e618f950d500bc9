"""What GaussDB's errors mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.errors import GaussDecodeError, SourceError, SourceRefusedError, WireError
from gaussdecode.source.gaussdb.errors import broken, error_of_body, server_error
from gaussdecode.source.sqlstate import Phase

# Text of the server, code, tried again, part of the advice.
TEXTS = [
    ("replication should connect HA port in thread_pool", "08004", False, "source.ha-port"),
    ("logical replication should connect HA port in thread_pool", "08004", False, "source.ha-port"),
    ("the local listen ip and port is not for the gsql client", "08004", False, "SQL port"),
    (
        'no pg_hba.conf entry for replication connection from host "::1"',
        "28000",
        False,
        "two lines",
    ),
    ("No gs_hba.conf entry for replication connection", "28000", False, "two lines"),
    ("Forbid remote connection with initial user.", "28000", False, "make a role"),
    ("Forbid remote connection with trust method!", "28000", False, "make a role"),
    ("Invalid username/password,login denied.", "28P01", False, "lock the account"),
    ("The account has been locked.", "28000", False, "ACCOUNT UNLOCK"),
    ('replication slot "x" does not exist', "42704", False, "slot create"),
    ("Invalid logical replication slot x.", "F0000", False, "slot create"),
    ('replication slot "x" is already active', "55006", True, "another connection"),
    ('replication slot "x" already exists', "42710", False, "another name"),
    ('replication slot "x" was not created in this database', "55000", False, "dbname"),
    ("cannot use physical replication slot for logical decoding", "55000", False, "logical slot"),
    ("logical decoding requires wal_level >= logical", "55000", False, "wal_level = logical"),
    ("can't create logical decode dispatcher", "53000", True, "20 parallel"),
    ("walsender closed because of role is primary.", "XX000", False, "standby-connection"),
    ('option "decode-style" = "b" is unknown', "22023", False, "gaussdecode check"),
    ('could not parse value "9" for parameter "sending-batch"', "22023", False, "check"),
    ("parallel decode toast chunk missing", "XX000", False, "parallel-decode-num: 1"),
    ("can't decode in pmState is not run or recovery in progress.", "0A000", False, "primary"),
    ("couldn't advance in recovery", "0A000", False, "primary"),
    ("cannot move slot to 0/1, minimum is 0/2", "22023", False, "forward only"),
    ("replication command, syntax error.", "42601", False, "1023 bytes"),
    ("replication slot name should be shorter than 64.", "42601", False, "1023 bytes"),
    ("insufficient data left in message", "08P01", False, "source.kind"),
    ("terminating walsender process after promotion", "57P01", True, "became the primary"),
    ("the database system is starting up", "57P03", True, "pass by itself"),
    ("something else", "57P01", True, "ended the connection"),
    ("something else", "28000", False, "pg_hba.conf"),
    ("something else", "XX123", True, "pass by itself"),
]


@pytest.mark.parametrize(
    ("text", "code", "is_retryable", "advice"), TEXTS, ids=lambda v: str(v)[:40]
)
def test_texts_are_judged(text: str, code: str, is_retryable: bool, advice: str) -> None:
    """Whether to try again, and a sentence for the operator."""
    error = server_error(Phase.START, {"M": text, "C": code})
    assert error.retryable is is_retryable
    assert isinstance(error, SourceRefusedError) is not is_retryable
    assert advice in str(error)
    assert error.sqlstate == code
    assert text.rstrip(".")[:30] in str(error)


def test_range_of_an_option_is_told() -> None:
    """The server gives it as a hint."""
    fields = {"M": "could not parse value", "C": "22023", "H": "Input a number between 1 and 20."}
    assert "between 1 and 20" in str(server_error(Phase.STREAM, fields))


def test_value_of_a_row_is_not_repeated() -> None:
    """A conversion that fails in the stream quotes what it could not convert."""
    fields = {"M": 'invalid input syntax for integer: "geheim"', "C": "22P02"}
    assert "geheim" not in str(server_error(Phase.STREAM, fields))
    assert "geheim" in str(server_error(Phase.COMMAND, fields))


def test_passwords_are_cut_out() -> None:
    """Wherever they come from."""
    text = "login failed for password=abc and geheim"
    for error in (
        server_error(Phase.CONNECT, {"M": text}, ("geheim",)),
        broken(Phase.CONNECT, text, ("geheim",)),
    ):
        assert "geheim" not in str(error)
        assert "abc" not in str(error)


def test_end_without_a_word_may_pass() -> None:
    """Networks break."""
    error = broken(Phase.STREAM, "")
    assert type(error) is SourceError
    assert "the connection ended" in str(error)


def test_error_without_a_text_says_so() -> None:
    """And its code is kept."""
    error = server_error(Phase.STREAM, {"C": "57P01"})
    assert "no reason" in str(error)
    assert error.sqlstate == "57P01"


def test_bodies_of_the_stream() -> None:
    """What the receive loop hands over."""
    error = error_of_body(b'SFATAL\0C55006\0Mreplication slot "x" is already active\0\0')
    assert isinstance(error, SourceError)
    assert error.sqlstate == "55006"
    assert isinstance(error_of_body(b"SFATAL\0C550"), WireError)


@given(st.binary(max_size=80))
def test_any_body_gives_an_error_of_ours(body: bytes) -> None:
    """Nothing is raised while an error is made."""
    assert isinstance(error_of_body(body), GaussDecodeError)
