"""How an openGauss server asks for a password and judges the answer.

The stored form is decided when the password is set, the question by pg_hba.conf, the stored
form and the protocol that the client announced.
"""

import dataclasses
import functools
import hashlib
import hmac
import os
import struct
from typing import Final

OK, PASSWORD, MD5, SHA256, MD5_SHA256, SM3 = 0, 3, 5, 10, 11, 13
_STORED_METHOD: Final = {"md5": 0, "combined": 2, "sha256": 2, "sm3": 3}
_BASE_MINOR: Final = 50
ITERATIONS: Final = 10000


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A role that may log in.

    Attributes:
        name: of the role.
        password: in clear, since the server is ours.
        stored: md5, combined, sha256 or sm3.
        iterations: auth_iteration_count when the password was set.
        can_replicate: REPLICATION or SYSADMIN.
        rights: columns of pg_roles that are true beside that one.
        connection_limit: -1 for none.
    """

    name: str
    password: str
    stored: str = "sha256"
    iterations: int = ITERATIONS
    can_replicate: bool = True
    rights: frozenset[str] = frozenset()
    connection_limit: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Keys:
    """What is derived of a password and a salt."""

    client: bytes
    server: bytes
    stored: bytes


def salt_of(user: User) -> bytes:
    """Give the salt that is kept with the stored password."""
    return hashlib.sha256(user.name.encode()).digest()


@functools.cache  # a server stores them, and derives nothing when somebody logs in
def derive(user: User, salt: bytes) -> Keys:
    """Derive the keys of a stored password."""
    k = hashlib.pbkdf2_hmac("sha1", user.password.encode(), salt, user.iterations, 32)
    is_sm3 = user.stored == "sm3"
    client = hmac.digest(k, b"Client Key", "sha256")
    server = hmac.digest(k, b"Server Key" if is_sm3 else b"Sever Key", "sha256")
    return Keys(client, server, hashlib.new("sm3" if is_sm3 else "sha256", client).digest())


class Question:
    """One authentication request, and what answers it.

    Args:
        method: of pg_hba.conf: trust, password, md5, sha256, sm3.
        user: who logs in.
        minor: of the protocol that the client announced.
        salt: 32 bytes, kept with the stored password.
        token: 4 random bytes; also the salt of md5.
    """

    def __init__(
        self, method: str, user: User, minor: int, salt: bytes | None = None, token: bytes = b""
    ) -> None:
        self._user = user
        self._minor = minor
        self._salt = salt or os.urandom(32)
        self._token = token or os.urandom(4)
        self.code = self._choose(method)

    def _choose(self, method: str) -> int:
        stored = self._user.stored
        if method in ("trust", "password"):
            return OK if method == "trust" else PASSWORD
        if stored == "sm3" or method == "sm3":
            return SM3
        if stored == "md5":
            return MD5
        if method == "md5":
            return MD5 if stored == "combined" else MD5_SHA256
        return MD5 if stored == "combined" and self._minor < _BASE_MINOR else SHA256

    @property
    def message(self) -> bytes:
        """The body of the authentication request."""
        body = struct.pack(">i", self.code)
        if self.code == MD5:
            return body + self._token
        if self.code == MD5_SHA256:
            return body + self._salt.hex().encode() + self._token
        if self.code in (SHA256, SM3):
            body += struct.pack(">i", _STORED_METHOD[self._user.stored])
            body += self._salt.hex().encode() + self._token.hex().encode()
            if self._minor < _BASE_MINOR:
                keys = derive(self._user, self._salt)
                body += hmac.digest(keys.server, self._token, "sha256").hex().encode()
            elif self._minor > _BASE_MINOR:
                body += struct.pack(">i", self._user.iterations)
        return body

    def accepts(self, answer: bytes) -> bool:
        """Judge the body of the client's ``p`` message."""
        if not answer.endswith(b"\0"):
            return False
        text = answer[:-1]
        user = self._user
        if self.code == PASSWORD:
            return text == user.password.encode()
        if self.code == MD5:
            inner = hashlib.md5((user.password + user.name).encode()).hexdigest().encode()
            return text == b"md5" + hashlib.md5(inner + self._token).hexdigest().encode()
        keys = derive(user, self._salt)
        if self.code == MD5_SHA256:
            inner = f"{self._salt.hex()}{keys.server.hex()}{keys.stored.hex()}".encode()
            return text == b"md5" + hashlib.md5(inner + self._token).hexdigest().encode()
        return self._proves(text, keys)

    def _proves(self, text: bytes, keys: Keys) -> bool:
        """Recover the client key from a proof and compare its hash with the stored key."""
        try:
            proof = bytes.fromhex(text.decode())
        except ValueError:
            return False
        signature = hmac.digest(keys.stored, self._token, "sha256")
        client = bytes(a ^ b for a, b in zip(signature, proof, strict=False))
        name = "sm3" if self.code == SM3 else "sha256"
        return hashlib.new(name, client).digest() == keys.stored
