"""Check connection strings, and find the password.

psycopg parses a string, as libpq will read it. Nothing here connects, and no message repeats a part of the
string.
"""

import difflib
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from gaussdecode.errors import ConfigError
from gaussdecode.host.access import is_there, refused
from gaussdecode.model.words import printable

_OURS: Final = ("replication", "options", "client_encoding")
_SERVICE: Final = "service"
_NEEDED: Final = ("dbname", "user")
_SAFE_MODE: Final = "verify-full"
_PUBLIC_AUTHORITIES: Final = "system"
_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_UNKNOWN_KEY: Final = re.compile(r'invalid connection option "(\w+)"')
_LIBPQ_KEYS: Final = tuple(option.keyword.decode() for option in Conninfo.get_defaults())
GAUSSDB_TEXTS: Final = frozenset(
    {
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "application_name",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "sslpassword",
        "sslcrl",
        "ssl_min_protocol_version",
    }
)
GAUSSDB_NUMBERS: Final[Mapping[str, int]] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Numbers for our own client of GaussDB, and what each is where nothing is said."""
GAUSSDB_HARMLESS: Final[Mapping[str, Sequence[str]]] = {
    "gssencmode": ("disable", "prefer"),
    "target_session_attrs": ("any",),
    "load_balance_hosts": ("disable",),
    "sslnegotiation": ("postgres",),
    "channel_binding": ("disable", "prefer"),
}
"""Keys of libpq of which our own client takes the values that say what it does anyway."""
GAUSSDB_KEYS: Final = GAUSSDB_TEXTS | GAUSSDB_NUMBERS.keys() | GAUSSDB_HARMLESS.keys()
"""Keys that a connection string may have for our own client of GaussDB."""
_NUMBERS: Final = frozenset(GAUSSDB_NUMBERS)
_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "ssl_min_protocol_version": ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
    "ssl_max_protocol_version": ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "sslnegotiation": ("postgres", "direct"),
    "sslcertmode": ("disable", "allow", "require"),
    "load_balance_hosts": ("disable", "random"),
    "target_session_attrs": (
        "any",
        "read-write",
        "read-only",
        "primary",
        "standby",
        "prefer-standby",
    ),
}
"""Words that a key of libpq takes."""
CREDENTIAL: Final = "password"
_MAX_PASSWORD_BYTES: Final = 4096
_MAX_SAID_BYTES: Final = 500  # of what a failed command said
_COMMAND_SECONDS: Final = 10.0
_PASSWORD_FILE: Final = "source.password-file"  # noqa: S105 - a key


def _parameters(dsn: str) -> dict[str, str]:
    return {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}


def parameters_of(dsn: str) -> dict[str, str]:
    """Take a connection string apart; what it leaves to libpq is missing.

    Raises:
        ConfigError: it is none.
    """
    try:
        return _parameters(dsn)
    except (ProgrammingError, ValueError) as error:
        raise ConfigError(f"source.dsn: {_unread(error)}") from None


def _unread(error: Exception) -> str:
    """Say why libpq cannot read a string, without a word of it: what is misspelled may be a secret."""
    found = _UNKNOWN_KEY.search(str(error))
    near = difflib.get_close_matches(found[1], _LIBPQ_KEYS, n=1) if found else []
    meant = f"a key of it is unknown, perhaps {near[0]} misspelled; " if near else ""
    return f"is not a connection string; {meant}write host=... port=... dbname=... user=..."


def authority_problem(
    parameters: Mapping[str, str], environment: Mapping[str, str], home: Path
) -> str | None:
    """Say what is wrong with the certificate by which the server's is verified, or None.

    libpq would say it too, but only after others have answered, and with a path that nobody wrote.

    Args:
        parameters: parameters of a connection string.
        environment: environment in which libpq looks for missing parameters.
        home: home of the user.
    """
    mode = parameters.get("sslmode", _SAFE_MODE)
    if is_local(parameters) or _SERVICE in parameters or not mode.startswith("verify"):
        return None
    named = parameters.get("sslrootcert", environment.get("PGSSLROOTCERT", ""))
    if named == _PUBLIC_AUTHORITIES:
        return None
    path = Path(named) if named else home / ".postgresql/root.crt"
    try:
        with path.open("rb"):
            return None
    except OSError as error:
        why = f"{path}: {error.strerror}"
    return (
        f"sslmode={mode} needs the certificate of the authority that signed the server's ({why}); name it "
        "with sslrootcert=FILE, readable by the daemon's user, or sslrootcert=system for a public one"
    )


def files_of(dsn: str) -> dict[str, Path]:
    """The files of certificates and keys that a connection string names, by key.

    Raises:
        ConfigError: it is none.
    """
    given = parameters_of(dsn)
    return {
        key: Path(given[key]).expanduser()
        for key in _FILES
        if given.get(key) and given[key] != _PUBLIC_AUTHORITIES
    }


def is_local(parameters: Mapping[str, str]) -> bool:
    """Whether every host is a Unix socket; without a host somebody else decides."""
    hosts = parameters.get("host", "").split(",")
    return "hostaddr" not in parameters and all(host.startswith(("/", "@")) for host in hosts)


def dsn_problems(dsn: str, is_private_file: bool, is_insecure_allowed: bool) -> Iterator[str]:
    """Find what is wrong with a connection string.

    Args:
        dsn: the string.
        is_private_file: the file it stands in is readable by its owner only.
        is_insecure_allowed: the operator accepts a connection that can be listened to.

    Yields:
        One text per problem; none repeats a value.
    """
    try:
        parameters = _parameters(dsn)
    except (ProgrammingError, ValueError) as error:
        yield _unread(error)
        return
    has_service = _SERVICE in parameters  # then a file of libpq's holds the rest
    if not has_service and "host" not in parameters and "hostaddr" not in parameters:
        yield "names no host; write host=NAME, or host=/DIRECTORY for a Unix socket"
    for key in _NEEDED:
        if key not in parameters and not has_service:
            yield f"names no {key}; write {key}=..."
    for key in _OURS:
        if key in parameters:
            yield f"must not set {key}: the daemon sets it"
    if "password" in parameters and not is_private_file:
        yield "holds a password in a file that others can read; use password-file, or chmod 0600"
    wrong = dict(_value_problems(parameters))
    yield from wrong.values()
    mode = parameters.get("sslmode", _SAFE_MODE)
    is_weak = mode != _SAFE_MODE and "sslmode" not in wrong
    if is_weak and not is_local(parameters) and not is_insecure_allowed:
        yield (
            "asks for less than sslmode=verify-full, so the stream could be read or forged on "
            "its way; set allow-insecure: true to accept that"
        )


def _value_problems(parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Find values that no client takes, by key; a value itself is not repeated: it may be a secret."""
    for port in parameters.get("port", "").split(","):
        if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
            yield "port", "port is not a number from 1 to 65535"
    for key in sorted(_NUMBERS & parameters.keys()):
        digits = parameters[key].removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            yield key, f"{key} is not a whole number"
    for key in sorted(_WORDS.keys() & parameters.keys()):
        if parameters[key] and parameters[key] not in _WORDS[key]:
            near = difflib.get_close_matches(parameters[key].replace("_", "-"), _WORDS[key], 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield key, f"{key} must be one of {', '.join(_WORDS[key])}{meant}"


def gaussdb_dsn_problems(dsn: str) -> Iterator[str]:
    """Find what our own client of GaussDB cannot do with a connection string.

    Args:
        dsn: the string; one that is none is reported by `dsn_problems` already.

    Yields:
        One text per problem; none repeats a value.
    """
    try:
        parameters = _parameters(dsn)
    except (ProgrammingError, ValueError):
        return
    for key in sorted(parameters.keys() - GAUSSDB_KEYS - set(_OURS)):
        yield f"sets {key}, which has no use with kind gaussdb"


def read_password(
    password_file: Path | None, credentials: str | None, command: Sequence[str] = ()
) -> str | None:
    """Read the password, from the service's credentials if there are any.

    Args:
        password_file: path as configured.
        command: program and arguments that print it, as configured.
        credentials: the value of ``$CREDENTIALS_DIRECTORY``, or None.

    Returns:
        The first line, or None when no password is configured.

    Raises:
        ConfigError: the file cannot be read, is readable by others, or is empty; or the command failed.
    """
    credential = Path(credentials, CREDENTIAL) if credentials else None
    if credential is not None and is_there(credential):
        return _first_line(credential, _PASSWORD_FILE)
    if command:
        return _printed(command)
    return None if password_file is None else read_secret(password_file, _PASSWORD_FILE)


def read_secret(path: Path, key: str) -> str:
    """Read the first line of a file that only its owner may read.

    Args:
        path: the file.
        key: the setting that names it, for errors.

    Raises:
        ConfigError: the file cannot be read, is readable by others, or is empty.
    """
    try:
        status = path.stat()
    except PermissionError as error:
        raise refused(path, error) from None
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None
    if status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(f"{key}: {path} is open to others; chmod 0600")
    return _first_line(path, key)


def _printed(command: Sequence[str]) -> str:
    """Run a command and take the password from its output, which no message repeats."""
    key = f"source.password-command: {command[0]}"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{key}: has not ended after {_COMMAND_SECONDS:.0f} seconds") from None
    except PermissionError as error:
        raise refused(command[0], error) from None
    except OSError as error:
        raise ConfigError(f"{key}: {error.strerror}") from None
    if done.returncode != 0:
        said = printable(" ".join(done.stderr[-_MAX_SAID_BYTES:].decode(errors="replace").split()))
        how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise ConfigError(f"{key}: ended with {how}: {said or 'it said nothing'}")
    try:
        password = done.stdout.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: printed what is not UTF-8") from None
    if (
        not password
        or len(done.stdout) > _MAX_PASSWORD_BYTES
        or "\0" in password
        or "\n" in password
    ):
        raise ConfigError(f"{key}: printed no password, or more than one line")
    return password


def _first_line(path: Path, key: str) -> str:
    try:
        with path.open("rb") as file:
            line = file.read(_MAX_PASSWORD_BYTES).split(b"\n")[0].removesuffix(b"\r")
        secret = line.decode()
    except PermissionError as error:
        raise refused(path, error) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{key}: {path}: {reason}") from None
    if not secret or "\0" in secret:
        what = "password" if key == _PASSWORD_FILE else "token"
        raise ConfigError(f"{key}: {path} holds no {what} on its first line")
    return secret


def completed(dsn: str, *, connect_timeout: float, sender_timeout_ms: int | None) -> str:
    """Add what the configuration says elsewhere; what the string says itself stays.

    Args:
        dsn: connection string as configured.
        connect_timeout: seconds.
        sender_timeout_ms: option sender-timeout; None leaves the server's.
    """
    parameters = {"connect_timeout": str(max(2, round(connect_timeout))), **_parameters(dsn)}
    if sender_timeout_ms is not None:
        parameters["options"] = f"-c wal_sender_timeout={sender_timeout_ms}"
    return make_conninfo("", **parameters)


def describe(dsn: str) -> str:
    """Name server, database and user, and nothing else, for messages and logs."""
    parameters = _parameters(dsn)
    keys = (_SERVICE, "host", "hostaddr", "port", "dbname", "user")
    return " ".join(f"{key}={parameters[key]}" for key in keys if key in parameters)
