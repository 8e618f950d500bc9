"""The golden vectors of openGauss: bytes and what they mean."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from gaussdecode.errors import TruncatedError
from gaussdecode.protocol.gaussdb.messages import Message, MessageReader

_FILE: Final = Path(__file__).parent.parent / "vectors" / "opengauss.json"
_ALL: Final = {
    vector["id"]: vector for vector in json.loads(_FILE.read_text(encoding="utf-8"))["vectors"]
}


def vector(name: str) -> dict[str, Any]:  # Any: JSON
    """All of one vector."""
    found: dict[str, Any] = _ALL[name]
    return found


def vector_bytes(name: str) -> bytes:
    """The bytes of one vector."""
    return bytes.fromhex(_ALL[name]["hex"])


def meaning(name: str) -> dict[str, Any]:  # Any: JSON
    """What the bytes of one vector say."""
    found: dict[str, Any] = _ALL[name]["decoded"]
    return found


def split_all(data: bytes) -> Iterable[Message]:
    """Messages that are all there; a last one that is cut off is an error."""
    reader = MessageReader()
    reader.feed(data)
    while (message := reader.take()) is not None:
        yield message
    if rest := reader.rest():
        raise TruncatedError("a message is cut off", len(data) - len(rest))
