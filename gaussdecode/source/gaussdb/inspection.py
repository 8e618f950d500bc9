"""Inspect role, settings and connection of a GaussDB, for `check`.

As `inspection`, on an ordinary connection. Rows are read by column name, because every version has other
columns. Values that a version or the role's rights do not show are None, and no finding.
"""

import dataclasses
import datetime
from typing import Final

from gaussdecode.errors import SourceRefusedError
from gaussdecode.source.gaussdb.connection import GaussConnection
from gaussdecode.source.gaussdb.server import list_slots
from gaussdecode.source.gaussdb.tables import read_by_interval, read_unreadable

ROLE: Final = "SELECT * FROM pg_catalog.pg_roles WHERE rolname = current_user"
_RIGHTS: Final = {
    "rolsystemadmin": "SYSADMIN",
    "rolcreaterole": "CREATEROLE",
    "rolcreatedb": "CREATEDB",
    "rolauditadmin": "AUDITADMIN",
    "rolmonitoradmin": "MONADMIN",
    "roloperatoradmin": "OPRADMIN",
    "rolpolicyadmin": "POLADMIN",
}
_SETTINGS: Final = ("max_wal_senders", "max_replication_slots", "enable_slot_log")
_NAMES: Final = ", ".join(f"'{name}'" for name in _SETTINGS)
READ_SETTINGS: Final = f"SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ({_NAMES})"  # noqa: S608 - constants
CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())"
_OLDEST: Final = """
SELECT max(extract(epoch FROM clock_timestamp() - xact_start))
FROM pg_catalog.pg_stat_activity WHERE datname = current_database()
"""
_PREPARED: Final = "SELECT count(*) FROM pg_catalog.pg_prepared_xacts"
_TRUE: Final = "t"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GaussInspection:
    """The result of an inspection.

    Attributes:
        role: we are.
        has_all_rights: it is the initial user.
        extra_rights: attributes that following a slot does not need.
        connection_limit: connection limit of the role; -1 for none.
        settings: the few that matter here and are visible.
        slots: slots of the server.
        active_slots: slots that are being read now.
        is_encrypted: this connection.
        clock_offset: seconds by which the server's clock is ahead of ours.
        oldest_transaction: seconds.
        prepared_transactions: two-phase transactions that wait.
        unreadable: tables in the stream, as schema and name, that the role may not read.
        by_interval: tables, as schema and name, whose partitions the server makes by itself; none where the
            role may not see that.
    """

    role: str
    has_all_rights: bool
    extra_rights: tuple[str, ...]
    connection_limit: int
    settings: dict[str, str]
    slots: int
    active_slots: int
    is_encrypted: bool
    clock_offset: float
    oldest_transaction: float | None
    prepared_transactions: int | None
    unreadable: tuple[tuple[str, str], ...] = ()
    by_interval: tuple[tuple[str, str], ...] = ()


def inspect_gaussdb(sql: GaussConnection) -> GaussInspection:
    """Ask everything.

    Raises:
        SourceError: the server failed.
    """
    (role,) = sql.query_table(ROLE)
    began = datetime.datetime.now(datetime.UTC).timestamp()
    ((clock,),) = sql.query(CLOCK)
    ended = datetime.datetime.now(datetime.UTC).timestamp()
    slots = list_slots(sql)
    oldest, prepared = _number(sql, _OLDEST), _number(sql, _PREPARED)
    return GaussInspection(
        role=role.get("rolname") or "",
        has_all_rights=role.get("rolsuper") == _TRUE,
        extra_rights=tuple(name for column, name in _RIGHTS.items() if role.get(column) == _TRUE),
        connection_limit=int(role.get("rolconnlimit") or -1),
        settings={name or "": value or "" for name, value in sql.query(READ_SETTINGS)},
        slots=len(slots),
        active_slots=sum(slot.is_active for slot in slots),
        is_encrypted=sql.is_encrypted,
        clock_offset=float(clock or ended) - (began + ended) / 2,
        oldest_transaction=oldest,
        prepared_transactions=None if prepared is None else int(prepared),
        unreadable=read_unreadable(sql),
        by_interval=_by_interval(sql),
    )


def _by_interval(sql: GaussConnection) -> tuple[tuple[str, str], ...]:
    try:
        return read_by_interval(sql)
    except SourceRefusedError:
        return ()


def _number(sql: GaussConnection, query: str) -> float | None:
    """Ask for a number that not every role may see."""
    try:
        ((value,),) = sql.query(query)
    except SourceRefusedError:
        return None
    return None if value is None else float(value)
