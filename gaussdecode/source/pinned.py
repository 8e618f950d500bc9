"""Pin the session settings that correctness depends on, on every connection.

``ALTER ROLE ... SET`` and ``ALTER DATABASE ... SET`` could otherwise change the text of values, the rows that are
read, whether a warning arrives, or when a command is given up. One table has each setting, its value and the
reason.

PostgreSQL gets most of them when the connection is made, after the operator's own ``options``, so that ours win.
Settings that older versions would refuse follow as statements. GaussDB prints values in the stream by the
settings of database and role, whatever a session asks for, and the rows of snapshots must look alike. So
ordinary connections to it pin only settings that change no value's text. Its stream connection gets the rest
too, which serial decoding uses.

``lc_monetary`` is not pinned: it decides how many digits of a stored ``money`` are after the point, so another
value would print another amount. Settings that only a superuser may choose are not pinned either: other roles
would be refused the whole connection.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final


class Use(enum.Flag):
    """The kind of connection that a setting is for."""

    POSTGRESQL = enum.auto()
    GAUSSDB_SQL = enum.auto()
    GAUSSDB_STREAM = enum.auto()
    ALL = POSTGRESQL | GAUSSDB_SQL | GAUSSDB_STREAM


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: name as the server spells it.
        value: pinned.
        why: problem under another value.
        use: connections that it is pinned on.
        since: first version of PostgreSQL that knows it; 0 for all that are supported.
    """

    name: str
    value: str
    why: str
    use: Use = Use.POSTGRESQL
    since: int = 0


_SHOWN: Final = Use.POSTGRESQL | Use.GAUSSDB_STREAM

SETTINGS: Final[tuple[Setting, ...]] = (
    # How values are printed.
    Setting("DateStyle", "ISO,YMD", "dates are decoded from the ISO form", _SHOWN),
    Setting("IntervalStyle", "postgres", "intervals are decoded from this form", _SHOWN),
    Setting("TimeZone", "UTC", "a timestamp with zone is printed in the session's zone", _SHOWN),
    Setting("extra_float_digits", "3", "fewer digits round floating-point numbers", _SHOWN),
    Setting("bytea_output", "hex", "bytes are decoded from hexadecimal digits", _SHOWN),
    Setting("search_path", "", "reg* values and type names leave out a schema that is on it"),
    Setting("quote_all_identifiers", "off", "reg* values and type names would be quoted"),
    # What is read.
    Setting("row_security", "off", "rows would be left out of snapshots in silence"),
    Setting("array_nulls", "on", "NULL in an array of keys would be read as a text", Use.ALL),
    Setting(
        "transform_null_equals", "off", "a condition would choose other rows than it says", Use.ALL
    ),
    Setting("xmloption", "content", "a text might not be taken for xml"),
    Setting(
        "standard_conforming_strings", "on", "a backslash in a name would be no backslash", Use.ALL
    ),
    # What is said.
    Setting(
        "client_min_messages", "warning", "the server warns where it leaves changes out", Use.ALL
    ),
    # Transactions.
    Setting("default_transaction_isolation", r"read committed", "looks must see what is", Use.ALL),
    Setting("default_transaction_read_only", "off", "an empty transaction must commit", Use.ALL),
    Setting("default_transaction_deferrable", "off", "a look would wait for others", Use.ALL),
    # When something is given up; who needs an end sets one.
    Setting("statement_timeout", "0", "a long command would be given up", _SHOWN),
    Setting("lock_timeout", "0", "a command behind a lock would be given up"),
    Setting("idle_in_transaction_session_timeout", "0", "a view's transaction would end"),
    Setting("idle_session_timeout", "0", "a connection that waits would be closed"),
    Setting("transaction_timeout", "0", "a view's transaction would end", since=170000),
    Setting("exit_on_error", "off", "a command that is refused would end the connection"),
)


HEAR_WARNINGS: Final = "SET client_min_messages = warning"
"""Settings that GaussDB's stream connection gets as well, because its sender sets them anew."""


_REPORTED: Final = frozenset({"DateStyle", "IntervalStyle", "TimeZone"})


def startup_options() -> str:
    """The settings of PostgreSQL as ``options`` of a connection string."""
    pinned = [of for of in SETTINGS if Use.POSTGRESQL in of.use and not of.since]
    return " ".join(f"-c {of.name}={_escaped(of.value)}" for of in pinned)


REPORTED: Final = {of.name: of.value for of in SETTINGS if of.name in _REPORTED}
"""Those of PostgreSQL that every server says by itself when a session begins, without spaces."""


def later_statements(version: int) -> list[str]:
    """Statements for an open connection to this version of PostgreSQL."""
    pinned = [of for of in SETTINGS if Use.POSTGRESQL in of.use and 0 < of.since <= version]
    return [f"SET {of.name} = '{of.value}'" for of in pinned]


def startup_parameters(use: Use) -> Mapping[str, str]:
    """The settings for a connection of GaussDB, as its startup message has them."""
    return {of.name: of.value for of in SETTINGS if use in of.use}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
