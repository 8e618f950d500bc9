"""What errors mean to the operator."""

import pytest

from gaussdecode.errors import LoginRefusedError, SourceError, SourceRefusedError
from gaussdecode.source.sqlstate import TABLE, Phase, error_of, judge, redact


@pytest.mark.parametrize(
    ("phase", "sqlstate", "is_retryable", "word"),
    [
        (Phase.CONNECT, "28P01", False, "password"),
        (Phase.CONNECT, "28000", False, "pg_hba"),
        (Phase.CONNECT, "3D000", False, "dbname"),
        (Phase.CONNECT, "57P03", True, "not available"),
        (Phase.CONNECT, "53300", True, "max_wal_senders"),
        (Phase.START, "42704", False, "slot"),
        (Phase.STREAM, "42704", False, "publication"),
        (Phase.START, "55000", False, "invalidated"),
        (Phase.START, "55006", True, "wal_sender_timeout"),
        (Phase.START, "XX000", False, "option"),
        (Phase.STREAM, "XX000", True, "log"),
        (Phase.STREAM, "57P01", True, "ended"),
        (Phase.STREAM, "58P01", False, "snapshot"),
        (Phase.START, "0A000", False, "support the request"),
        (Phase.COMMAND, "42501", False, "REPLICATION"),
        (Phase.COMMAND, "42P01", False, "changed"),
        (Phase.COMMAND, "40001", True, "pass"),
        (Phase.STREAM, None, True, "not available"),
    ],
)
def test_verdicts(phase: Phase, sqlstate: str | None, is_retryable: bool, word: str) -> None:
    """By code and phase; unlisted ones by their class."""
    verdict = judge(phase, sqlstate)
    assert verdict.is_retryable is is_retryable
    assert word in verdict.advice


@pytest.mark.parametrize("key", TABLE, ids=str)
def test_every_line_makes_an_error(key: tuple[Phase | None, str]) -> None:
    """The class follows the verdict, and the message names phase, text, advice and code."""
    phase, sqlstate = key[0] or Phase.COMMAND, key[1]
    error = error_of(phase, "the text", sqlstate, None)
    assert isinstance(error, SourceRefusedError) is not TABLE[key].is_retryable
    assert str(error) == f"{phase.value}: the text; {TABLE[key].advice} (SQLSTATE {sqlstate})"


@pytest.mark.parametrize("severity", ["FATAL", "ВАЖНО", "FATAL ERROR"])
def test_code_is_found_in_libpqs_text(severity: str) -> None:
    """While connecting, the code stands in the text, behind a word in any language."""
    text = f"failed: {severity}:  28P01: password authentication failed\nLOCATION:  x"
    error = error_of(Phase.CONNECT, text, None, None)
    assert error.sqlstate == "28P01"
    assert isinstance(error, SourceRefusedError)
    assert "LOCATION" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "SSL error: certificate verify failed",
        'server certificate for "a" does not match host name "b"',
        'root certificate file "/x" does not exist',
        "server does not support SSL, but SSL was required",
        "fe_sendauth: no password supplied",
        'invalid sslmode value: "x"',
    ],
)
def test_local_faults_are_not_tried_again(text: str) -> None:
    """What libpq itself refuses, it will refuse again."""
    assert isinstance(error_of(Phase.CONNECT, text, None, None), SourceRefusedError)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('could not read root certificate file "/x": bad end line', "sslrootcert"),
        ('could not read certificate file "/x": no start line', "sslcert"),
        ('could not load private key file "/x": key values mismatch', "sslkey"),
        ('certificate present, but not private key file "/x"', "sslkey"),
    ],
)
def test_a_file_that_is_half_written_is_a_refused_login(text: str, key: str) -> None:
    """It may be in the middle of a rotation: the first start ends of it, a daemon that was let in waits."""
    error = error_of(Phase.CONNECT, text, None, None)
    assert isinstance(error, LoginRefusedError)
    assert key in str(error)


def test_unreachable_server_is_tried_again() -> None:
    """Neither a name that does not resolve nor a refused port is forever."""
    for text in ("could not translate host name", "Connection refused"):
        error = error_of(Phase.CONNECT, text, None, None)
        assert type(error) is SourceError


@pytest.mark.parametrize(
    "text",
    [
        "failed for geheim",
        "password=geheim host=x",
        "sslpassword = 'geh eim' x",
        "postgresql://user:geheim@host/db",
    ],
)
def test_no_password_gets_through(text: str) -> None:
    """Neither the one we know nor what looks like one."""
    hidden = redact(text, "geheim")
    assert "geh" not in hidden
    assert "***" in hidden


def test_row_values_do_not_get_through() -> None:
    """A failing row filter repeats the value in its message."""
    text = 'invalid input syntax for type integer: "4711"'
    assert "4711" not in str(error_of(Phase.STREAM, text, "22P02", None))
