"""Seal JSON objects: each ends with its own hash.

The hash is SHA-256 over everything before ``,"hash"``, closed with ``}``::

    {"a":1,"version":1,"hash":"<64 hex digits>"}

Given bytes; promises that no byte of a sealed object can change unnoticed. Whatever decides
positions, kinds, names or identities at a start is sealed: entries, headers of checkpoints,
the layout, schemas, and what is below ``snapshots/``.
"""

import hashlib
import json
import re
from typing import Any, Final

HASH: Final = "hash"
_TAIL: Final = b',"hash":"'
_TAIL_SIZE: Final = len(_TAIL) + 64 + 2
_HEX: Final = re.compile(r"[0-9a-f]{64}")


class NewerFormatError(ValueError):
    """What is sealed, and so is what was written, and is not understood: a newer program wrote it."""


def check_version(record: dict[str, Any], known: int) -> None:  # Any: JSON
    """Refuse another version of a file; one without a number has the first.

    Raises:
        NewerFormatError: it is not the known one.
    """
    version = record.get("version", 1)
    if version != known:
        raise NewerFormatError(f"version {version!r}, this program reads {known}")


def canonical_json(record: Any) -> bytes:  # Any: JSON
    """Give the one spelling of a JSON value that hashes are taken over."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed(body: bytes) -> bytes:
    """Add its hash to the bytes of a JSON object.

    Raises:
        ValueError: it is empty, and so needs no seal.
    """
    if body == b"{}":
        raise ValueError("an empty object has nothing to seal")
    return body[:-1] + _TAIL + hashlib.sha256(body).hexdigest().encode() + b'"}'


def hash_of(raw: bytes) -> str:
    """Check the hash at the end of a sealed object and give it.

    Raises:
        ValueError: the bytes are torn or altered.
    """
    body, tail = raw[:-_TAIL_SIZE], raw[-_TAIL_SIZE:]
    written = tail[len(_TAIL) : -2].decode("ascii", "replace")
    if not tail.startswith(_TAIL) or not tail.endswith(b'"}') or not _HEX.fullmatch(written):
        raise ValueError("torn: it does not end with its hash")
    if hashlib.sha256(body + b"}").hexdigest() != written:
        raise ValueError("altered: its hash does not match its content")
    return written


def read_sealed(raw: bytes) -> dict[str, Any]:  # Any: JSON
    """Read an object with its seal checked.

    Returns:
        The object, without its hash.

    Raises:
        ValueError: torn, altered, or not a JSON object.
    """
    hash_of(raw)
    record = json.loads(raw)
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  # wrong content, as above
    record.pop(HASH, None)
    return record
