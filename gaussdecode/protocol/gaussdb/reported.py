"""Check settings that a server reports inside a stream after a reload.

Given the settings reported so far and the body of a ParameterStatus, says whether values may look different
from here on. Earlier values are not affected, so a session that ends here loses nothing: the next
one checks the settings before it begins.
"""

from collections.abc import MutableMapping
from typing import Final

# Settings that decide how values are written, and which part of them does.
_WRITING: Final = {
    "DateStyle": ",",
    "IntervalStyle": "",
    "client_encoding": "",
    "server_encoding": "",
}


def change_of(known: MutableMapping[str, str], body: bytes) -> str | None:
    """Take a ParameterStatus in.

    Args:
        known: settings reported so far, by name; kept up to date.
        body: two texts, each with a zero byte at its end.

    Returns:
        Why the stream must not be read on; None where it may.
    """
    name, value = (part.decode("utf-8", "replace") for part in (*body.split(b"\0"), b"")[:2])
    before = known.get(name)
    known[name] = value
    if before is None or name not in _WRITING or _written(name, before) == _written(name, value):
        return None
    return (
        f"the server's configuration was reloaded, and {name} is {value!r} now, not {before!r}: values "
        "may be written in another way from here on"
    )


def _written(name: str, value: str) -> str:
    """The part of a value that decides."""
    mark = _WRITING[name]
    return (value.partition(mark)[0] if mark else value).strip().casefold()
