"""The users of a server: a file with a verifier for each log-in, never a password.

    orders_reader:
      scram-sha-256: SCRAM-SHA-256$4096:SALT$STORED:SERVER     base64, as PostgreSQL keeps it
      sha256: sha256$10000:SALT:STORED:SERVER                  hexadecimal, for clients of openGauss
      tables: [sales.*, public.orders]                         what the user gets; all without it

Written by ``gaussdecode serve passwd``, with mode 0600. It is read again when it changes.
"""

import base64
import binascii
import contextlib
import dataclasses
import fnmatch
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import scramp
import yaml

from gaussdecode.errors import ConfigError
from gaussdecode.host.access import refused, rights
from gaussdecode.protocol.gaussdb.auth import derive_keys, sign

SCRAM_ITERATIONS: Final = 4096  # PostgreSQL's scram_iterations
SHA256_ITERATIONS: Final = 10_000  # openGauss' auth_iteration_count
_SCRAM: Final = re.compile(r"SCRAM-SHA-256\$([0-9]{1,8}):([^$:]+)\$([^$:]+):([^$:]+)")
_SHA256: Final = re.compile(r"sha256\$([0-9]{1,9}):([0-9a-f]{64}):([0-9a-f]{64}):([0-9a-f]{64})")
_NAME: Final = re.compile(r"[^\s:\x00-\x1f\x7f]{1,63}")
_KEYS: Final = frozenset({"scram-sha-256", "sha256", "tables"})
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclasses.dataclass(frozen=True, slots=True)
class Verifier:
    """What proves a password without having it.

    Attributes:
        iterations: of PBKDF2.
        salt: random bytes.
        stored_key: hash of the client's key.
        server_key: proves the server.
    """

    iterations: int
    salt: bytes
    stored_key: bytes = dataclasses.field(repr=False)
    server_key: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """Who may log in.

    Attributes:
        name: of the user.
        scram: for clients of PostgreSQL; None for none.
        sha256: for clients of openGauss; None for none.
        tables: patterns of ``schema.table``; None for all tables.
    """

    name: str
    scram: Verifier | None
    sha256: Verifier | None
    tables: tuple[str, ...] | None = None

    def wants(self, schema: str, name: str) -> bool:
        """Whether the user gets a table."""
        if self.tables is None:
            return True
        title = f"{schema}.{name}"
        return any(fnmatch.fnmatchcase(title, pattern) for pattern in self.tables)


class Users:
    """The users of a file, as it is now.

    Args:
        path: the file.

    Raises:
        ConfigError: it cannot be read, is open to others, or has a mistake.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._users: Mapping[str, User] = {}
        self._secret = secrets.token_bytes(32)
        self.reread()

    def reread(self) -> None:
        """Read the file if it has changed."""
        facts = _facts(self._path)
        seen = (facts.st_ino, facts.st_mtime_ns)
        if seen != self._seen:
            self._users = read_users(self._path)
            self._seen = seen

    def get(self, name: str) -> User | None:
        """A user; None for nobody. A file that became unreadable keeps the former users."""
        with contextlib.suppress(ConfigError):
            self.reread()
        return self._users.get(name)

    def decoy(self, name: str) -> Verifier:
        """A verifier for a name that nobody has: the same at each try, and no password fits."""
        salt = hmac.digest(self._secret, name.encode(), "sha256")
        return Verifier(
            SCRAM_ITERATIONS, salt[:16], secrets.token_bytes(32), secrets.token_bytes(32)
        )

    def decoy_sha256(self, name: str) -> Verifier:
        """The same for clients of openGauss."""
        salt = hmac.digest(self._secret, name.encode(), "sha256")
        return Verifier(SHA256_ITERATIONS, salt, secrets.token_bytes(32), secrets.token_bytes(32))


def _facts(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except PermissionError as error:
        raise refused(path, error) from None
    except OSError as error:
        raise ConfigError(f"serve.users-file: {path}: {error.strerror}") from None


def read_users(path: Path) -> dict[str, User]:
    """Read a file of users.

    Raises:
        ConfigError: it cannot be read, is open to others, or has a mistake.
    """
    if stat.S_IMODE(_facts(path).st_mode) & 0o077:
        raise ConfigError(f"serve.users-file: {rights(path)}: it is open to others; chmod 0600")
    return {name: _user(path, name, record) for name, record in _records(path).items()}


def _records(path: Path) -> dict[str, Any]:  # Any: YAML
    try:
        records = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise ConfigError(
            f"serve.users-file: {path}: cannot be read as YAML; gaussdecode serve passwd writes such files"
        ) from None
    if not isinstance(records, dict):
        raise ConfigError(
            f"serve.users-file: {path}: allowed: a name and its verifiers, many times"
        )
    return {str(name): record for name, record in records.items()}


def _user(path: Path, name: str, record: object) -> User:
    where = f"serve.users-file: {path}: {name}"
    if not _NAME.fullmatch(name) or not isinstance(record, dict):
        raise ConfigError(f"{where}: allowed: a name without spaces, and its verifiers")
    unknown = set(record) - _KEYS
    if unknown:
        raise ConfigError(
            f"{where}: unknown key {min(map(str, unknown))}; allowed: {', '.join(sorted(_KEYS))}"
        )
    tables = record.get("tables")
    if tables is not None and not (
        isinstance(tables, list) and all(isinstance(each, str) and "." in each for each in tables)
    ):
        raise ConfigError(f"{where}: tables: allowed: a list of schema.table, with * and ?")
    try:
        scram = _scram_verifier(record.get("scram-sha-256"))
        sha256 = _sha256_verifier(record.get("sha256"))
    except (ValueError, binascii.Error):
        raise ConfigError(
            f"{where}: a verifier is damaged; write it again: gaussdecode serve passwd {path} {name}"
        ) from None
    return User(name, scram, sha256, None if tables is None else tuple(tables))


def _scram_verifier(text: object) -> Verifier | None:
    if text is None:
        return None
    match = _SCRAM.fullmatch(str(text))
    if match is None:
        raise ValueError
    salt, stored, server = (base64.b64decode(part, validate=True) for part in match.groups()[1:])
    if len(stored) != 32 or len(server) != 32 or not salt:
        raise ValueError
    return Verifier(int(match[1]), salt, stored, server)


def _sha256_verifier(text: object) -> Verifier | None:
    if text is None:
        return None
    match = _SHA256.fullmatch(str(text))
    if match is None:
        raise ValueError
    salt, stored, server = (bytes.fromhex(part) for part in match.groups()[1:])
    return Verifier(int(match[1]), salt, stored, server)


def write_user(path: Path, name: str, password: str, tables: tuple[str, ...] | None = None) -> None:
    """Add a user, or give one a new password; other users stay as they are.

    Args:
        path: file of users; made with mode 0600 where it is missing.
        name: of the user.
        password: not kept.
        tables: patterns of the user's tables; None keeps those that it has.

    Raises:
        ConfigError: the name or the password cannot be, or the file cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"user {name!r}: allowed: 1 to 63 characters without space and colon")
    if not password or "\0" in password or "\n" in password:
        raise ConfigError("the password is empty, or has a line break; choose another one")
    records = _records(path) if path.exists() else {}
    if path.exists():
        read_users(path)
    record = dict(records.get(name) or {})
    record["scram-sha-256"] = _scram_text(password)
    record["sha256"] = _sha256_text(password)
    if tables is not None:
        record["tables"] = list(tables)
    _user(path, name, record)
    records[name] = record
    text = yaml.safe_dump(records, allow_unicode=True, width=1000)
    hidden = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(hidden, _FLAGS, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o600)
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.replace(hidden, path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _scram_text(password: str) -> str:
    try:
        salt, stored, server, iterations = scramp.ScramMechanism("SCRAM-SHA-256").make_auth_info(
            password, iteration_count=SCRAM_ITERATIONS, salt=secrets.token_bytes(16)
        )
    except scramp.ScramException:
        raise ConfigError(
            "the password has characters that SCRAM forbids; choose another"
        ) from None
    parts = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${int(iterations)}:{parts[0]}${parts[1]}:{parts[2]}"


def _sha256_text(password: str) -> str:
    salt = secrets.token_bytes(32)
    keys = derive_keys(password.encode(), salt, SHA256_ITERATIONS)
    stored = keys.stored_key.hex()
    return f"sha256${SHA256_ITERATIONS}:{salt.hex()}:{stored}:{keys.server_key.hex()}"


class ScramExchange:
    """The server's side of SCRAM-SHA-256.

    Args:
        verifier: of the user.
    """

    def __init__(self, verifier: Verifier) -> None:
        mechanism = scramp.ScramMechanism("SCRAM-SHA-256")
        info = (verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations)
        self._server = mechanism.make_server(lambda _user: info)

    def first(self, message: bytes) -> bytes:
        """Answer the client's first message.

        Raises:
            ValueError: it is wrong.
        """
        given = message.decode("utf-8", "replace")
        # The name is that of the startup packet, and libpq leaves it empty here; the library takes no empty one.
        header, _, bare = given.partition(",,")
        named = f"{header},,{re.sub('^n=,', 'n=*,', bare)}".encode()

        def put(text: str) -> None:
            self._server.set_client_first(text)
            self._server.client_first_bare = bare

        return self._step(named, put, self._server.get_server_first)

    def final(self, message: bytes) -> bytes:
        """Answer the client's proof.

        Raises:
            ValueError: it does not prove the password.
        """
        return self._step(message, self._server.set_client_final, self._server.get_server_final)

    @staticmethod
    def _step(
        message: bytes, put: Any, get: Any
    ) -> bytes:  # Any: methods of scramp, which has no types
        try:
            put(message.decode())
            return str(get()).encode()
        except (scramp.ScramException, UnicodeDecodeError, ValueError):
            raise ValueError("the exchange failed") from None


class Sha256Exchange:
    """The server's side of openGauss' sha256.

    Args:
        verifier: of the user.
        minor: minor number of the client's protocol.
    """

    def __init__(self, verifier: Verifier, minor: int) -> None:
        self._verifier = verifier
        self._token = secrets.token_bytes(4)
        self._minor = minor

    @property
    def challenge(self) -> bytes:
        """Body of the request, after its code."""
        parts = [b"\0\0\0\2", self._verifier.salt.hex().encode(), self._token.hex().encode()]
        if self._minor < 50:
            parts.append(sign(self._verifier.server_key, self._token).hex().encode())
        elif self._minor > 50:
            parts.append(self._verifier.iterations.to_bytes(4, "big"))
        return b"".join(parts)

    def accepts(self, proof: bytes) -> bool:
        """Whether the client's answer proves the password."""
        try:
            given = bytes.fromhex(proof.rstrip(b"\0").decode("ascii"))
        except ValueError:
            return False
        mask = hmac.digest(self._verifier.stored_key, self._token, "sha256")
        if len(given) != len(mask):
            return False
        client_key = bytes(a ^ b for a, b in zip(given, mask, strict=True))
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key)
