"""Quote replication commands so that they survive the server's pre-parser.

Before GaussDB parses a replication command it looks at it twice. One look keeps a stack
of at most 100 characters: a quote (``"`` or ``'``) pops an equal one from the top or is
pushed, ``(`` is pushed, ``)`` must pop one. It knows no strings, so quotes and brackets
must be balanced also inside of values. The other look wants less than 1024 bytes. Each
refuses with a text that misleads, on a connection that is lost then; so both are done
here first. Inside of double quotes the server has no escape at all.
"""

import re
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.sqlnames import quoted_text

MAX_COMMAND_BYTES: Final = 1023
_MAX_DEPTH: Final = 100  # the server writes past its stack beyond it
_MAX_SLOT_BYTES: Final = 63
_SLOT_NAME: Final = re.compile(r"[a-z0-9_?.-]+")
_RESERVED: Final = ("gs_roach",)
_OPTION_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
IDENTIFY_SYSTEM: Final = "IDENTIFY_SYSTEM"


def literal(text: str) -> str:
    """Quote a value: single quotes, doubled inside; a backslash is itself.

    Raises:
        ConfigError: it holds a NUL.
    """
    if "\0" in text:
        raise ConfigError("a value holds a NUL byte")
    return quoted_text(text)


def sql_literal(text: str) -> str:
    """Quote a value for SQL, whatever ``standard_conforming_strings`` is.

    Raises:
        ConfigError: it holds a NUL.
    """
    quoted = literal(text)
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def slot_name(name: str) -> str:
    """Check the name of a slot.

    Raises:
        ConfigError: the server would not take it.
    """
    if (
        not _SLOT_NAME.fullmatch(name)
        or len(name) > _MAX_SLOT_BYTES
        or name in (".", "..")
        or name.startswith(_RESERVED)
    ):
        raise ConfigError(
            f"slot {name!r}: must be 1 to {_MAX_SLOT_BYTES} of a-z, 0-9, _, ?, . and -, not . or .., "
            "and not begin with gs_roach"
        )
    return name


def checked(command: str) -> str:
    """Look at a command as the server's pre-parser does.

    Raises:
        ConfigError: the server would refuse it.
    """
    size = len(command.encode())
    if size > MAX_COMMAND_BYTES:
        raise ConfigError(
            f"a replication command of {size} bytes; the server takes at most {MAX_COMMAND_BYTES}: "
            "shorten white-table-list"
        )
    if "\0" in command or not is_balanced(command):
        raise ConfigError(
            "a replication command with unbalanced quotes or brackets, which the server refuses "
            "also inside of values; check decoding.white-table-list and the other texts"
        )
    return command


def is_balanced(command: str) -> bool:
    """Whether the server's stack of quotes and brackets is empty at the end."""
    stack: list[str] = []
    for character in command:
        if character in "\"'":
            if stack and stack[-1] == character:
                stack.pop()
            else:
                stack.append(character)
        elif character == "(":
            stack.append(character)
        elif character == ")" and (not stack or stack.pop() != "("):
            return False
        if len(stack) >= _MAX_DEPTH:
            return False
    return not stack


def start_replication(slot: str, start_lsn: Lsn, options: Mapping[str, str]) -> str:
    """Build START_REPLICATION.

    Args:
        slot: its name.
        start_lsn: start of the stream; 0 for the position of the slot.
        options: values by name.

    Raises:
        ConfigError: the server would refuse it.
    """
    for name in options:
        if not _OPTION_NAME.fullmatch(name):
            raise ConfigError(f"not the name of an option: {name!r}")
    pairs = ", ".join(f'"{name}" {literal(value)}' for name, value in options.items())
    listed = f" ({pairs})" if pairs else ""
    return checked(f'START_REPLICATION SLOT "{slot_name(slot)}" LOGICAL {start_lsn}{listed}')
