"""Quote names and strings in replication commands, which take no parameters."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from gaussdecode.errors import ConfigError
from gaussdecode.model.sqlnames import quoted_name, quoted_text
from gaussdecode.wire.encoding import raw_name

_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
_MAX_NAME_BYTES: Final = 63


def identifier(name: str) -> str:
    """Quote a name, as `encoding` spells it, for the server: double quotes, doubled inside.

    Raises:
        ConfigError: it is empty, or holds a NUL.
    """
    if not name or "\0" in name:
        raise ConfigError(f"not a name: {name!r}")
    return quoted_name(raw_name(name))


def literal(text: str) -> str:
    """Quote a string for a replication command or for SQL; a backslash is itself.

    Raises:
        ConfigError: it holds a NUL.
    """
    if "\0" in text:
        raise ConfigError("a value holds a NUL byte")
    return quoted_text(text)


def slot_identifier(name: str) -> str:
    """Check and quote the name of a slot.

    Raises:
        ConfigError: it is not 1 to 63 of a-z, 0-9 and _.
    """
    if not _SLOT_NAME.fullmatch(name):
        raise ConfigError(f"slot {name!r}: must be 1 to 63 of a-z, 0-9 and _")
    return identifier(name)


def publication_list(names: Iterable[str]) -> str:
    """Join publications to the one string that ``publication_names`` takes, unquoted itself.

    Raises:
        ConfigError: none is given, or a name is longer than the server keeps.
    """
    quoted = []
    for name in names:
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise ConfigError(f"publication {name!r}: longer than {_MAX_NAME_BYTES} bytes")
        quoted.append(identifier(name))
    if not quoted:
        raise ConfigError("source.publication: name at least one")
    return ",".join(quoted)


def start_replication(slot: str, start_lsn: str, options: Mapping[str, str]) -> str:
    """Build START_REPLICATION."""
    pairs = ", ".join(f"{identifier(name)} {literal(value)}" for name, value in options.items())
    return f"START_REPLICATION SLOT {slot_identifier(slot)} LOGICAL {start_lsn} ({pairs})"
