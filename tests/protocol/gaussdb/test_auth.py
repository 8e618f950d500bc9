"""Log-in: the vectors, the server's side of each proof, and damaged requests."""

import hashlib
import hmac
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.vectors import meaning, split_all, vector, vector_bytes

from gaussdecode.errors import GaussDecodeError, SourceRefusedError, WireError
from gaussdecode.protocol.gaussdb import auth, messages
from gaussdecode.protocol.gaussdb.auth import Login
from gaussdecode.protocol.gaussdb.messages import AuthRequest

LOGIN = Login("gaussdecode", "Test@123")
SALT = bytes(range(32))
TOKEN = bytes.fromhex("a1b2c3d4")


def request(name: str) -> AuthRequest:
    """The request of a vector."""
    ((message),) = split_all(vector_bytes(name))
    return messages.parse_authentication(message.body)


def challenge(stored: int, iterations: int, token: bytes = TOKEN) -> bytes:
    """The body of method 10 or 13 to a client that announced 3.51."""
    salted = struct.pack(">i", stored) + SALT.hex().encode() + token.hex().encode()
    return salted + struct.pack(">i", iterations)


def test_sha256_vectors() -> None:
    """A01 is answered with A03, and its signature is checked."""
    assert vector("A01")["password"] == LOGIN.password
    answer = auth.answer(request("A01"), LOGIN, minor=0)
    assert messages.password(answer) == vector_bytes("A03")
    assert answer.decode() == meaning("A03")["response_hex"]


def test_sha256_keys_of_the_vector() -> None:
    """Every key on the way has the value that the vector says."""
    keys = auth.derive_keys(b"Test@123", SALT, auth.DEFAULT_ITERATIONS)
    expected = meaning("A03")
    assert keys.server_key.hex() == expected["server_key"]
    assert keys.client_key.hex() == expected["client_key"]
    assert keys.stored_key.hex() == expected["stored_key"]
    assert auth.sign(keys.server_key, TOKEN).hex() == meaning("A01")["server_signature_hex"]


def test_newer_client_gives_the_same_answer() -> None:
    """3.51 is sent the iterations and no signature."""
    asked = AuthRequest(auth.SHA256, challenge(2, 10_000))
    assert auth.answer(asked, LOGIN, minor=51).decode() == meaning("A03")["response_hex"]


def test_client_of_350_is_sent_neither() -> None:
    """Then 10000 iterations are meant."""
    asked = AuthRequest(auth.SHA256, challenge(2, 0)[:-4])
    assert auth.answer(asked, LOGIN, minor=50).decode() == meaning("A03")["response_hex"]


def test_server_that_does_not_know_the_password_gets_no_proof() -> None:
    """A proof could be guessed from; nothing is sent."""
    damaged = bytearray(request("A01").data)
    damaged[-1] ^= 1
    with pytest.raises(SourceRefusedError, match="did not prove") as caught:
        auth.answer(AuthRequest(auth.SHA256, bytes(damaged)), LOGIN, minor=0)
    assert "Test@123" not in str(caught.value)
    with pytest.raises(SourceRefusedError, match="did not prove"):
        auth.answer(request("A01"), Login("gaussdecode", "wrong"), minor=0)


def test_oldest_servers_meant_2048_iterations() -> None:
    """The signature says so."""
    keys = auth.derive_keys(b"Test@123", SALT, 2048)
    body = challenge(2, 0)[:-4] + auth.sign(keys.server_key, TOKEN).hex().encode()
    answer = auth.answer(AuthRequest(auth.SHA256, body), LOGIN, minor=0)
    assert answer.decode() == auth.prove(keys, TOKEN).hex()


@given(st.binary(min_size=4, max_size=4), st.integers(2048, 2060), st.text(min_size=1, max_size=20))
@settings(max_examples=20, deadline=None)
def test_server_accepts_every_proof(token: bytes, iterations: int, password: str) -> None:
    """As the server checks it: what it unmasks hashes to what it stored."""
    asked = AuthRequest(auth.SHA256, challenge(2, iterations, token))
    proof = bytes.fromhex(auth.answer(asked, Login("u", password), 51).decode())
    stored = auth.derive_keys(password.encode(), SALT, iterations).stored_key
    mask = hmac.digest(stored, token, "sha256")
    unmasked = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
    assert hashlib.sha256(unmasked).digest() == stored


def test_sm3_proof_unmasks_to_the_stored_key() -> None:
    """The server's check again, with SM3 where the stored key is made."""
    asked = AuthRequest(auth.SM3, challenge(3, 2048))
    proof = bytes.fromhex(auth.answer(asked, LOGIN, 51).decode())
    k = hashlib.pbkdf2_hmac("sha1", b"Test@123", SALT, 2048, 32)
    client_key = hmac.digest(k, b"Client Key", "sha256")
    stored = hashlib.new("sm3", client_key).digest()
    mask = hmac.digest(stored, TOKEN, "sha256")
    assert bytes(a ^ b for a, b in zip(proof, mask, strict=True)) == client_key
    keys = auth.derive_sm3_keys(b"Test@123", SALT, 2048)
    assert keys.server_key == hmac.digest(k, b"Server Key", "sha256")


def test_sm3_is_the_published_function() -> None:
    """The standard's own example."""
    assert hashlib.new("sm3", b"abc").hexdigest() == (
        "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
    )


def test_machine_without_sm3_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method is named, and what the DBA can do."""
    monkeypatch.setattr(hashlib, "algorithms_available", {"sha256"})
    with pytest.raises(SourceRefusedError, match=r"13 \(SM3\).*password_encryption_type"):
        auth.answer(AuthRequest(auth.SM3, challenge(3, 2048)), LOGIN, 51)


def test_md5_of_a_sha256_password() -> None:
    """A04, answered as the server will compute it from what it stores."""
    expected = meaning("A04")
    answer = auth.answer(request("A04"), LOGIN, minor=51)
    stored = expected["salt_hex"] + meaning("A03")["server_key"] + meaning("A03")["stored_key"]
    salted = stored.encode() + bytes.fromhex(expected["md5_salt"])
    assert answer == b"md5" + hashlib.md5(salted).hexdigest().encode()


def test_md5_and_cleartext() -> None:
    """As PostgreSQL's."""
    assert auth.answer(AuthRequest(auth.CLEARTEXT, b""), LOGIN, 51) == b"Test@123"
    inner = hashlib.md5(b"Test@123gaussdecode").hexdigest().encode()
    expected = hashlib.md5(inner + b"\1\2\3\4").hexdigest().encode()
    assert auth.answer(AuthRequest(auth.MD5, b"\1\2\3\4"), LOGIN, 51) == b"md5" + expected


def test_sha256_of_an_md5_password() -> None:
    """Method 10 with stored form 1 salts the MD5 of the password."""
    data = struct.pack(">i", 1) + b"\1\2\3\4"
    inner = hashlib.md5(b"Test@123gaussdecode").hexdigest().encode()
    expected = b"sha256" + hashlib.sha256(inner + b"\1\2\3\4").hexdigest().encode()
    assert auth.answer(AuthRequest(auth.SHA256, data), LOGIN, 51) == expected


@pytest.mark.parametrize("code", [1, 2, 4, 6, 7, 8, 9, 12, 14, 99])
def test_other_methods_are_named_with_advice(code: int) -> None:
    """The operator learns what to ask the DBA for."""
    with pytest.raises(SourceRefusedError, match=rf"method {code} .*ALTER ROLE"):
        auth.answer(AuthRequest(code, b"anything"), LOGIN, 51)


def test_postgresql_is_recognised() -> None:
    """Its method 10 is a list of SASL mechanisms."""
    with pytest.raises(SourceRefusedError, match=r"source\.kind: postgresql"):
        auth.answer(AuthRequest(auth.SHA256, b"SCRAM-SHA-256\0\0"), LOGIN, 0)


@pytest.mark.parametrize("password", [None, ""])
def test_missing_password_is_named(password: str | None) -> None:
    """Before anything is computed."""
    with pytest.raises(SourceRefusedError, match="password-file"):
        auth.answer(request("A01"), Login("u", password), 0)


@pytest.mark.parametrize("iterations", [0, 1, 2047, 134_217_729, -1])
def test_iterations_out_of_range_are_refused(iterations: int) -> None:
    """Too few give the password away, too many never end."""
    with pytest.raises(SourceRefusedError, match="auth_iteration_count"):
        auth.answer(AuthRequest(auth.SHA256, challenge(2, iterations)), LOGIN, 51)


@pytest.mark.parametrize("code", [auth.SHA256, auth.SM3])
def test_unknown_stored_form_is_refused(code: int) -> None:
    """Such as a form of a future version."""
    with pytest.raises(SourceRefusedError, match="form 9"):
        auth.answer(AuthRequest(code, challenge(9, 2048)), LOGIN, 51)


REQUESTS = {
    "cleartext": (auth.CLEARTEXT, b"", 51),
    "md5": (auth.MD5, bytes(4), 51),
    "sha256": (auth.SHA256, challenge(2, 2048), 51),
    "sha256 of md5": (auth.SHA256, struct.pack(">i", 1) + bytes(4), 51),
    "sha256, old": (auth.SHA256, request("A01").data, 0),
    "md5 of sha256": (auth.MD5_SHA256, request("A04").data, 51),
    "sm3": (auth.SM3, challenge(3, 2048), 51),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_other_length_is_an_error(name: str) -> None:
    """Cut anywhere, or longer by a byte."""
    code, data, minor = REQUESTS[name]
    for wrong in (*(data[:size] for size in range(len(data))), data + b"0"):
        with pytest.raises(WireError):
            auth.answer(AuthRequest(code, wrong), LOGIN, minor)


@given(st.sampled_from(list(REQUESTS)), st.data())
@settings(deadline=None)
def test_mutated_requests_end_in_an_answer_or_a_typed_error(name: str, data: st.DataObject) -> None:
    """Nothing else comes out, and never the password."""
    code, body, minor = REQUESTS[name]
    damaged = bytearray(body) or bytearray(1)
    count = len(damaged) - (4 if minor == 51 and code in {auth.SHA256, auth.SM3} else 0)
    damaged[data.draw(st.integers(0, max(count, 1) - 1))] = data.draw(st.integers(0, 255))
    try:
        auth.answer(AuthRequest(code, bytes(damaged)), LOGIN, minor)
    except GaussDecodeError as error:
        assert "Test@123" not in str(error)


@pytest.mark.parametrize("field", [slice(4, 6), slice(68, 70)])
def test_salt_and_token_must_be_hexadecimal(field: slice) -> None:
    """A space is no digit either."""
    for wrong in (b"zz", b"  "):
        data = bytearray(challenge(2, 2048))
        data[field] = wrong
        with pytest.raises(WireError, match="hexadecimal"):
            auth.answer(AuthRequest(auth.SHA256, bytes(data)), LOGIN, 51)


def test_secrets_do_not_print() -> None:
    """Neither the password nor a key stands in a repr."""
    keys = auth.derive_keys(b"Test@123", SALT, 2048)
    for thing in (LOGIN, keys):
        assert "Test@123" not in repr(thing)
        assert keys.client_key.hex() not in repr(thing)
        assert repr(keys.client_key) not in repr(thing)
