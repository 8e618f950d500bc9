"""Judge errors of reading a table: whose they are, and whether another attempt may succeed."""

from typing import Final

from gaussdecode.collect.snapshot_gate import HoldLostError
from gaussdecode.errors import (
    AccountError,
    ChildError,
    ConfigError,
    LandingError,
    LoginRefusedError,
    SourceError,
    StateError,
    SupersededError,
    WireError,
)
from gaussdecode.source.export import TableChangedError

NO_COLUMN: Final = "42703"
# What is the landing's or the machine's, and ends the daemon; anything else is wrong with one table.
_NO_PRIVILEGE: Final = "42501"
_LOCKED: Final = "55P03"  # by lock_timeout
_CHANGED: Final = frozenset({NO_COLUMN, "42P01"})  # undefined table
_CONNECTION_CLASSES: Final = ("08", "53", "57P")  # SQLSTATEs that are no table's fault
_NOBODYS: Final = (
    LandingError,
    AccountError,
    ChildError,
    StateError,
    SupersededError,
    HoldLostError,
    OSError,
    MemoryError,
)


def may_pass(error: Exception) -> bool:
    """Whether the same attempt may succeed later."""
    return isinstance(error, SourceError) and error.retryable


def has_changed(error: Exception) -> bool:
    """Whether a table was changed or replaced."""
    return isinstance(error, TableChangedError) or getattr(error, "sqlstate", None) in _CHANGED


def is_in_motion(error: Exception) -> bool:
    """Whether a table is being changed or locked just now."""
    return has_changed(error) or getattr(error, "sqlstate", None) == _LOCKED


def is_nobodys(error: Exception) -> bool:
    """Whether an error is no table's, but the landing's, the server's or the connection's."""
    if isinstance(error, _NOBODYS):
        return True
    if isinstance(error, LoginRefusedError):
        return error.sqlstate != _NO_PRIVILEGE
    if not isinstance(error, SourceError) or not error.retryable or has_changed(error):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_CONNECTION_CLASSES)


def text_of(error: Exception) -> str:
    """Word an error; the words of others may hold a value of a row."""
    if isinstance(error, SourceError | WireError | ConfigError):
        return str(error)
    return f"its rows cannot be made into columns ({type(error).__name__})"
