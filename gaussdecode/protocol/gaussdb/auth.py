"""Answer the server's log-in request, by method.

GaussDB's numbers are its own: 10 means SCRAM to PostgreSQL, and here

    code  body                                                        answer
    3                                                                 the password
    5     salt[4]                                                     md5 + md5(md5(password user) salt)
    10    method i32 = 2 or 0, salt[64 hex], token[8 hex],
          signature[64 hex] below 3.50, iterations i32 above 3.50     proof, 64 hex
    10    method i32 = 1, salt[4]                                     sha256 + sha256(md5(password user) salt)
    11    salt[64 hex], salt[4]                                       md5 + md5(verifier salt)
    13    as 10, method i32 = 3                                       proof, 64 hex

    K = PBKDF2-HMAC-SHA1(password, salt, iterations, 32)
    ServerKey = HMAC-SHA256(K, "Sever Key"), spelled so; "Server Key" for 13
    ClientKey = HMAC-SHA256(K, "Client Key")
    StoredKey = SHA256(ClientKey); SM3(ClientKey) for 13
    proof = HMAC-SHA256(StoredKey, token) XOR ClientKey
    signature = HMAC-SHA256(ServerKey, token)
    verifier = hex of salt, ServerKey and StoredKey

A server that does not send the iterations means 10000; the oldest ones meant 2048. The
signature, where there is one, says which, and is checked before a proof is sent.
Nothing here keeps, prints or raises the password. MD5 and SHA-1 are the server's choice.
"""

import dataclasses
import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from gaussdecode.errors import SourceRefusedError, TruncatedError, WireError
from gaussdecode.protocol.gaussdb.messages import AuthRequest

OK: Final = 0
CLEARTEXT: Final = 3
MD5: Final = 5
SHA256: Final = 10
MD5_SHA256: Final = 11
SM3: Final = 13
DEFAULT_ITERATIONS: Final = 10_000
_OLD_ITERATIONS: Final = 2048
# The range of auth_iteration_count: fewer would make a proof easy to guess from, more would hang us.
MIN_ITERATIONS: Final = 2048
MAX_ITERATIONS: Final = 134_217_728
_SIGNING_BELOW: Final = 50  # minor versions of stock PostgreSQL clients
_COUNTING_ABOVE: Final = 50
_SALT_HEX: Final = 64
_TOKEN_HEX: Final = 8
_SIGNATURE_HEX: Final = 64
_SHA256_STORED: Final = (0, 2)  # password_stored_method
_MD5_STORED: Final = 1
_SM3_STORED: Final = 3

_ADVICE: Final = (
    "the DBA can set password_encryption_type = 2, give the role its password again with ALTER "
    "ROLE, and write method sha256 in pg_hba.conf"
)
_UNSUPPORTED: Final = {
    1: "Kerberos 4",
    2: "Kerberos 5",
    6: "SCM credentials",
    7: "GSSAPI",
    8: "GSSAPI",
    9: "SSPI",
    12: "SHA256_RFC of the lite build",
    14: "an IAM token",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Keys:
    """What follows from a password, a salt and a number of iterations.

    Attributes:
        server_key: proves the server.
        client_key: proves us.
        stored_key: value that the server stores of `client_key`.
    """

    server_key: bytes = dataclasses.field(repr=False)
    client_key: bytes = dataclasses.field(repr=False)
    stored_key: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Challenge:
    """Body of the methods 10 and 13.

    Attributes:
        salt_hex: salt as sent.
        token: 4 bytes to prove the password with.
        signature: signature of the server, or None.
        iterations: iterations as sent, or None.
    """

    salt_hex: bytes
    token: bytes
    signature: bytes | None
    iterations: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Login:
    """Who logs in.

    Attributes:
        user: name.
        password: or None when none is configured.
    """

    user: str
    password: str | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class _Attempt:
    """A request's data, and what answers it; `minor` of the protocol both sides speak."""

    data: bytes
    user: bytes
    password: bytes = dataclasses.field(repr=False)
    minor: int


def answer(request: AuthRequest, login: Login, minor: int) -> bytes:
    """Answer a request other than `OK`.

    Args:
        request: request of the server.
        login: user and password.
        minor: minor number of the protocol version that both sides speak.

    Raises:
        SourceRefusedError: the method is none of ours, there is no password, or the server
            does not prove that it knows it.
        WireError: the request is damaged.
    """
    method = _METHODS.get(request.code)
    if method is None or request.data.startswith(b"SCRAM-"):
        raise _unsupported(request)
    if not login.password:
        raise SourceRefusedError(
            "connecting: the server requires a password and none is configured; set password-file, "
            "or add the credential `password`"
        )
    return method(_Attempt(request.data, login.user.encode(), login.password.encode(), minor))


def _unsupported(request: AuthRequest) -> SourceRefusedError:
    if request.data.startswith(b"SCRAM-"):
        return SourceRefusedError(
            "connecting: the server asks for SCRAM, so it is a PostgreSQL and not a GaussDB: set "
            "source.kind: postgresql"
        )
    name = _UNSUPPORTED.get(request.code, "an unknown one")
    return SourceRefusedError(
        f"connecting: the server asks for authentication method {request.code} ({name}), which is "
        f"not supported; {_ADVICE}"
    )


# ---- the methods ---------------------------------------------------------------------------


def _cleartext(attempt: _Attempt) -> bytes:
    _expect(attempt.data, 0)
    return attempt.password


def _md5(attempt: _Attempt) -> bytes:
    _expect(attempt.data, 4)
    return b"md5" + _md5_hex(_md5_hex(attempt.password + attempt.user) + attempt.data)


def _sha256(attempt: _Attempt) -> bytes:
    stored = _stored_method(attempt.data)
    if stored == _MD5_STORED:
        _expect(attempt.data, 8)
        inner = _md5_hex(attempt.password + attempt.user)
        return b"sha256" + hashlib.sha256(inner + attempt.data[4:]).hexdigest().encode()
    if stored not in _SHA256_STORED:
        raise _stored_refusal(SHA256, stored)
    return _prove(parse_challenge(attempt.data, attempt.minor), attempt.password, derive_keys)


def _sm3(attempt: _Attempt) -> bytes:
    stored = _stored_method(attempt.data)
    if stored != _SM3_STORED:
        raise _stored_refusal(SM3, stored)
    if "sm3" not in hashlib.algorithms_available:
        raise SourceRefusedError(
            "connecting: the server asks for authentication method 13 (SM3), and this machine's "
            f"OpenSSL has no SM3; install one that has it, or {_ADVICE}"
        )
    return _prove(parse_challenge(attempt.data, attempt.minor), attempt.password, derive_sm3_keys)


def _md5_sha256(attempt: _Attempt) -> bytes:
    _expect(attempt.data, _SALT_HEX + 4)
    salt_hex = attempt.data[:_SALT_HEX]
    keys = derive_keys(attempt.password, _from_hex(salt_hex, 0), DEFAULT_ITERATIONS)
    verifier = salt_hex + keys.server_key.hex().encode() + keys.stored_key.hex().encode()
    return b"md5" + _md5_hex(verifier + attempt.data[_SALT_HEX:])


_METHODS: Final[dict[int, Callable[[_Attempt], bytes]]] = {
    CLEARTEXT: _cleartext,
    MD5: _md5,
    SHA256: _sha256,
    MD5_SHA256: _md5_sha256,
    SM3: _sm3,
}


def _stored_refusal(code: int, stored: int) -> SourceRefusedError:
    return SourceRefusedError(
        f"connecting: authentication method {code} with a password stored in form {stored} is not "
        f"supported; {_ADVICE}"
    )


def _prove(
    challenge: Challenge, password: bytes, derive: Callable[[bytes, bytes, int], Keys]
) -> bytes:
    salt = _from_hex(challenge.salt_hex, 4)
    for iterations in _candidates(challenge):
        keys = derive(password, salt, iterations)
        if challenge.signature is None or hmac.compare_digest(
            challenge.signature, sign(keys.server_key, challenge.token)
        ):
            return prove(keys, challenge.token).hex().encode()
    raise SourceRefusedError(
        "connecting: the server did not prove that it knows the password. The password is wrong, "
        "or this is another server; check the user and the password file"
    )


def _candidates(challenge: Challenge) -> tuple[int, ...]:
    if challenge.iterations is None:
        old = () if challenge.signature is None else (_OLD_ITERATIONS,)
        return (DEFAULT_ITERATIONS, *old)
    if not MIN_ITERATIONS <= challenge.iterations <= MAX_ITERATIONS:
        raise SourceRefusedError(
            f"connecting: the server asks for {challenge.iterations} iterations; allowed: "
            f"{MIN_ITERATIONS} to {MAX_ITERATIONS}, as for auth_iteration_count"
        )
    return (challenge.iterations,)


# ---- bytes ---------------------------------------------------------------------------------


def parse_challenge(data: bytes, minor: int) -> Challenge:
    """Read the body of method 10 or 13 for stored forms with a salt.

    Args:
        data: after the code.
        minor: minor number of the protocol version that both sides speak.

    Raises:
        WireError: it is damaged.
    """
    signed = _SIGNATURE_HEX if minor < _SIGNING_BELOW else 0
    counted = 4 if minor > _COUNTING_ABOVE else 0
    base = 4 + _SALT_HEX + _TOKEN_HEX
    _expect(data, base + signed + counted)
    token = _from_hex(data[4 + _SALT_HEX : base], 4 + _SALT_HEX)
    signature = _from_hex(data[base : base + signed], base) if signed else None
    iterations = int.from_bytes(data[-4:], "big", signed=True) if counted else None
    return Challenge(data[4 : 4 + _SALT_HEX], token, signature, iterations)


def derive_keys(password: bytes, salt: bytes, iterations: int) -> Keys:
    """Derive the keys of the method SHA256."""
    k = _pbkdf2(password, salt, iterations)
    client_key = _hmac(k, b"Client Key")
    return Keys(_hmac(k, b"Sever Key"), client_key, hashlib.sha256(client_key).digest())


def derive_sm3_keys(password: bytes, salt: bytes, iterations: int) -> Keys:
    """Derive the keys of the method SM3."""
    k = _pbkdf2(password, salt, iterations)
    client_key = _hmac(k, b"Client Key")
    return Keys(_hmac(k, b"Server Key"), client_key, hashlib.new("sm3", client_key).digest())


def prove(keys: Keys, token: bytes) -> bytes:
    """Prove that we know the password."""
    mask = _hmac(keys.stored_key, token)
    return bytes(a ^ b for a, b in zip(mask, keys.client_key, strict=True))


def sign(server_key: bytes, token: bytes) -> bytes:
    """Prove that the server knows the password."""
    return _hmac(server_key, token)


def _pbkdf2(password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha1", password, salt, iterations, 32)


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _md5_hex(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).hexdigest().encode()


def _stored_method(data: bytes) -> int:
    if len(data) < 4:
        raise TruncatedError(f"need 4 bytes, have {len(data)}", len(data))
    return int.from_bytes(data[:4], "big", signed=True)


def _expect(data: bytes, size: int) -> None:
    if len(data) < size:
        raise TruncatedError(f"need {size} bytes, have {len(data)}", len(data))
    if len(data) > size:
        raise WireError(f"{len(data) - size} bytes follow the end of the message", size)


def _from_hex(text: bytes, offset: int) -> bytes:
    try:
        value = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        value = b""
    if len(value) * 2 != len(text):  # fromhex skips spaces
        raise WireError("a field is not hexadecimal", offset)
    return value
