"""Tests for `gaussdecode.settings.dsn`."""

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from gaussdecode.errors import ConfigError
from gaussdecode.settings import dsn as dsn_module
from gaussdecode.settings.dsn import (
    authority_problem,
    completed,
    describe,
    dsn_problems,
    read_password,
)

GOOD = "host=db1 dbname=shop user=gd"


def secret(directory: Path, content: bytes, mode: int = 0o600) -> Path:
    """Make a password file."""
    path = directory / "password"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "dsn",
    [
        GOOD,
        f"{GOOD} sslmode=verify-full",
        "postgresql://gd@db1/shop",
        "host=/run/postgresql dbname=shop user=gd",
        "host=/run/postgresql dbname=shop user=gd sslmode=disable",
        "host=@abstract dbname=shop user=gd sslmode=disable",
        "hostaddr=10.0.0.1 dbname=shop user=gd",
        "service=shop",
        "service=shop host=db1",
    ],
)
def test_safe_connection_strings_are_accepted(dsn: str) -> None:
    """verify-full is the default on a network; a Unix socket needs no TLS."""
    assert list(dsn_problems(dsn, is_private_file=False, is_insecure_allowed=False)) == []


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_weak_tls_needs_consent(mode: str) -> None:
    """Anything below verify-full is refused, unless the operator says otherwise."""
    dsn = f"{GOOD} sslmode={mode}"
    assert "allow-insecure" in next(dsn_problems(dsn, False, is_insecure_allowed=False))
    assert list(dsn_problems(dsn, False, is_insecure_allowed=True)) == []


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("host=db1 dname=shop user=gd", "perhaps dbname misspelled"),
        ("host=db1 dbname=shop user=gd passwort=geheim", "perhaps password misspelled"),
        ("host=db1 dbname=shop user=gd password=two words", "is not a connection string"),
        ("host=db1 xyzzy_secret=1", "is not a connection string"),
        ("host='db1", "is not a connection string"),
    ],
)
def test_a_misspelled_key_is_guessed(dsn: str, told: str) -> None:
    """The key that was meant is named; nothing that was written is, for it may be a password."""
    (problem,) = dsn_problems(dsn, is_private_file=True, is_insecure_allowed=False)
    assert told in problem
    for word in ("dname", "passwort", "geheim", "words", "xyzzy"):
        assert word not in problem


def test_the_authority_must_be_there(tmp_path: Path) -> None:
    """Verified TLS needs a certificate to verify with, wherever libpq would look for it."""
    parameters = {"host": "db1"}
    assert "root.crt: No such file" in (authority_problem(parameters, {}, tmp_path) or "")
    file = tmp_path / "ca.pem"
    named = {**parameters, "sslrootcert": str(file)}
    assert f"{file}: No such file" in (authority_problem(named, {}, tmp_path) or "")
    assert "sslmode=verify-ca" in (
        authority_problem({**named, "sslmode": "verify-ca"}, {}, tmp_path) or ""
    )
    file.touch()
    assert authority_problem(named, {}, tmp_path) is None
    assert authority_problem(parameters, {"PGSSLROOTCERT": str(file)}, tmp_path) is None
    (tmp_path / ".postgresql").mkdir()
    file.rename(tmp_path / ".postgresql" / "root.crt")
    assert authority_problem(parameters, {}, tmp_path) is None
    for free in ({"sslrootcert": "system"}, {"sslmode": "require"}, {"host": "/run"}):
        assert authority_problem({**parameters, **free}, {}, Path("/nowhere")) is None


def test_one_network_host_among_sockets_is_a_network() -> None:
    """The weakest host of a list decides."""
    dsn = "host=/run/postgresql,db2 dbname=shop user=gd sslmode=disable"
    assert len(list(dsn_problems(dsn, False, is_insecure_allowed=False))) == 1


def test_service_is_a_network() -> None:
    """Its file may name any host, so asking for less than verify-full needs consent too."""
    dsn = "service=shop sslmode=disable"
    assert len(list(dsn_problems(dsn, False, is_insecure_allowed=False))) == 1
    assert describe(dsn) == "service=shop"


def test_password_comes_from_the_file(tmp_path: Path) -> None:
    """The first line counts, without its end."""
    path = secret(tmp_path, b"s3cret \r\nmore\n")
    assert read_password(path, None) == "s3cret "


def test_credential_wins_over_the_file(tmp_path: Path) -> None:
    """Under systemd the file is the administrator's and not readable."""
    secret(tmp_path, b"from systemd\n", 0o400)
    assert read_password(Path("/nonexistent"), str(tmp_path)) == "from systemd"


def test_credentials_without_a_password_fall_back(tmp_path: Path) -> None:
    """A directory of other credentials changes nothing."""
    assert read_password(None, str(tmp_path)) is None


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"x\n", 0o604, "is open to others; chmod 0600"),
        (b"x\n", 0o620, "is open to others; chmod 0600"),
        (b"\n", 0o600, "holds no password on its first line"),
        (b"", 0o600, "holds no password on its first line"),
        (b"\xff\n", 0o600, "not UTF-8"),
    ],
)
def test_bad_password_files_are_refused(
    tmp_path: Path, content: bytes, mode: int, reason: str
) -> None:
    """The message names the file and what to do, never its content."""
    path = secret(tmp_path, content, mode)
    with pytest.raises(ConfigError, match=reason):
        read_password(path, None)


def test_what_the_configuration_says_elsewhere_is_added() -> None:
    """Time limits become parameters; what the string says itself stays."""
    text = completed(GOOD, connect_timeout=10.0, sender_timeout_ms=5000)
    parameters = conninfo_to_dict(text)
    assert parameters["connect_timeout"] == "10"
    assert parameters["options"] == "-c wal_sender_timeout=5000"
    text = completed(f"{GOOD} connect_timeout=7", connect_timeout=10.0, sender_timeout_ms=None)
    parameters = conninfo_to_dict(text)
    assert parameters["connect_timeout"] == "7"
    assert "options" not in parameters


def test_description_shows_no_secret() -> None:
    """Only host, port, database and user are named."""
    text = describe(f"{GOOD} port=5433 password=hunter2 sslkey=/k sslpassword=hunter3")
    assert text == "host=db1 port=5433 dbname=shop user=gd"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("port=abc", "port is not a number from 1 to 65535"),
        ("port=5432,70000", "port is not a number from 1 to 65535"),
        ("connect_timeout=soon", "connect_timeout is not a whole number"),
        ("keepalives=yes", "keepalives is not a whole number"),
        ("sslmode=verify_full", "did you mean verify-full?"),
        ("target_session_attrs=master", "target_session_attrs must be one of any, read-write"),
        ("ssl_min_protocol_version=1.2", "ssl_min_protocol_version must be one of TLSv1"),
    ],
)
def test_values_that_no_client_takes_are_named(more: str, told: str) -> None:
    """By key, with what is allowed; no value is repeated, for it may be a secret."""
    (problem,) = dsn_problems(f"{GOOD} {more}", is_private_file=True, is_insecure_allowed=False)
    assert told in problem
    assert "verify_full" not in problem


def _program(directory: Path, body: str) -> tuple[str, ...]:
    path = directory / "secret.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return (str(path), "an argument; with $signs")


def test_a_command_prints_the_password(tmp_path: Path) -> None:
    """Without a shell, each time anew; the credential of the service takes precedence."""
    command = _program(tmp_path, "printf '%s\\n' \"$1\"")
    assert read_password(None, None, command) == "an argument; with $signs"
    secret(tmp_path, b"of the credential")
    assert read_password(None, str(tmp_path), command) == "of the credential"
    _program(tmp_path, "printf ' with spaces '")
    assert read_password(None, None, command) == " with spaces "


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo geheim; echo no lease >&2; exit 3", "ended with status 3: no lease"),
        ("echo geheim; kill -9 $$", "ended with signal 9: it said nothing"),
        ("echo geheim; echo more", "printed no password, or more than one line"),
        ("true", "printed no password"),
        ("printf '\\377geheim'", "printed what is not UTF-8"),
        ("echo geheim; sleep 60", "has not ended after"),
    ],
)
def test_commands_that_give_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, told: str
) -> None:
    """What it says on standard error is shown, and nothing that it printed."""
    if "sleep" in body:
        monkeypatch.setattr(dsn_module, "_COMMAND_SECONDS", 0.3)
    with pytest.raises(ConfigError, match=told) as refused:
        read_password(None, None, _program(tmp_path, body))
    assert "geheim" not in str(refused.value)
    assert "source.password-command: " in str(refused.value)


def test_a_command_that_is_not_there() -> None:
    """It is named with the key."""
    with pytest.raises(ConfigError, match="password-command: /nowhere/x: No such file"):
        read_password(None, None, ("/nowhere/x",))
