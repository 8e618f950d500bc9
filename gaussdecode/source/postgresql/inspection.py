"""Inspect role, settings and connection of a PostgreSQL server, for `check`.

On an ordinary connection; reads views that any role may read, and changes nothing. `operations.check.doctor`
judges the result.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.source.quoting import literal
from gaussdecode.wire.encoding import spelled_name

_ROLE: Final = """
    SELECT r.rolname, r.rolsuper, r.rolreplication, r.rolcreaterole, r.rolcreatedb,
        r.rolbypassrls AND NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relrowsecurity), r.rolconnlimit,
        EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
            AND pg_catalog.has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))
    FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""
_SETTINGS: Final = (
    "wal_level",
    "max_wal_senders",
    "max_replication_slots",
    "max_slot_wal_keep_size",
    "wal_sender_timeout",
    "logical_decoding_work_mem",
    "idle_replication_slot_timeout",
    "sync_replication_slots",
    "synchronized_standby_slots",
    "track_commit_timestamp",
    "hot_standby_feedback",
    "primary_slot_name",
    "max_connections",
    "superuser_reserved_connections",
    "reserved_connections",
)
_USE: Final = """
    SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walsender'),
        (SELECT count(*) FROM pg_catalog.pg_replication_slots),
        pg_catalog.pg_is_in_recovery(),
        (SELECT ssl FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid()),
        extract(epoch FROM clock_timestamp()),
        (SELECT max(extract(epoch FROM clock_timestamp() - xact_start))
            FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'),
        (SELECT count(*) FROM pg_catalog.pg_prepared_xacts),
        (SELECT max(pg_catalog.age(datfrozenxid)) FROM pg_catalog.pg_database WHERE datallowconn),
        (SELECT pg_catalog.age(catalog_xmin) FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}),
        d.datname, d.datconnlimit, a.of_role, a.of_database, a.of_server
    FROM pg_catalog.pg_database d, (
        SELECT count(*) FILTER (WHERE usename = current_user) AS of_role,
            count(*) FILTER (WHERE datname = current_database()) AS of_database,
            count(*) FILTER (WHERE pid NOT IN (SELECT pid FROM pg_catalog.pg_stat_replication)) AS of_server
        FROM pg_catalog.pg_stat_activity WHERE usesysid IS NOT NULL AND pid <> pg_backend_pid()) a
    WHERE d.datname = current_database()
"""
_DDL_TRIGGERS: Final = """
    SELECT count(*) FROM pg_catalog.pg_event_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.evtfoid
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'gaussdecode' AND t.evtenabled <> 'D'
"""
_UNREADABLE: Final = """
    SELECT DISTINCT n.nspname, c.relname FROM ({tables}) t
    JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT (pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT'))
    ORDER BY 1, 2
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The result of an inspection.

    Attributes:
        role: we are.
        is_superuser: the role is a superuser.
        has_replication: the role has REPLICATION.
        extra_rights: attributes and privileges that following a slot does not need.
        connection_limit: connection limit of the role; -1 for none.
        role_connections: connections of the role now, beside this one.
        database: the database.
        database_limit: its connection limit; -1 for none.
        database_connections: connections to it now, beside this one.
        server_connections: connections to the server now, beside this one and the walsenders.
        settings: settings by name; those the version does not know are missing.
        senders: walsender processes now.
        slots: replication slots now.
        is_standby: the server is in recovery.
        is_encrypted: this connection; None where the server hides it.
        clock_offset: seconds by which the server's clock is ahead of ours.
        oldest_transaction: seconds; None where there is none.
        prepared_transactions: two-phase transactions that wait.
        frozen_age: transactions since the oldest that is not frozen.
        catalog_xmin_age: transactions since the oldest whose catalogue rows the slot keeps; 0
            where there is no slot.
        unreadable: published tables, as schema and name, that the role may not read.
        ddl_triggers: event triggers of ours that are installed in the database.
    """

    role: str
    is_superuser: bool
    has_replication: bool
    extra_rights: tuple[str, ...]
    connection_limit: int
    settings: dict[str, str]
    senders: int
    slots: int
    is_standby: bool
    is_encrypted: bool | None
    clock_offset: float
    oldest_transaction: float | None
    prepared_transactions: int
    frozen_age: int = 0
    catalog_xmin_age: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()
    role_connections: int = 0
    database: str = ""
    database_limit: int = -1
    database_connections: int = 0
    server_connections: int = 0
    ddl_triggers: int = 0


def inspect(connection: Connection, slot: str, publications: Sequence[str]) -> Inspection:
    """Ask everything.

    Args:
        connection: connection to the server.
        slot: slot that is followed, or will be.
        publications: publications whose tables the role is to read.

    Raises:
        SourceError: the server failed.
    """
    ((role, superuser, replication, *rights, limit, may_write),) = connection.query(_ROLE)
    attributes = ("CREATEROLE", "CREATEDB", "BYPASSRLS")
    extra = [name for name, value in zip(attributes, rights, strict=True) if value == "t"]
    extra += ["writing to tables"] if may_write == "t" else []
    began = datetime.datetime.now(datetime.UTC).timestamp()
    (use,) = connection.query(_USE.format(slot=literal(slot)))
    ended = datetime.datetime.now(datetime.UTC).timestamp()
    listed = ", ".join(literal(name) for name in _SETTINGS)
    rows = connection.query(
        f"SELECT name, current_setting(name) FROM pg_catalog.pg_settings WHERE name IN ({listed})"  # noqa: S608
    )
    tables = tables_of(publications, connection.server_version)
    unreadable = connection.query(_UNREADABLE.format(tables=tables))
    return Inspection(
        role=role or "",
        is_superuser=superuser == "t",
        has_replication=replication == "t",
        extra_rights=tuple(extra),
        connection_limit=int(limit or -1),
        settings={name or "": value or "" for name, value in rows},
        senders=int(use[0] or 0),
        slots=int(use[1] or 0),
        is_standby=use[2] == "t",
        is_encrypted=None if use[3] is None else use[3] == "t",
        clock_offset=float(use[4] or 0) - (began + ended) / 2,
        oldest_transaction=None if use[5] is None else float(use[5]),
        prepared_transactions=int(use[6] or 0),
        frozen_age=int(use[7] or 0),
        catalog_xmin_age=int(use[8] or 0),
        database=spelled_name(use[9] or ""),
        database_limit=int(use[10] or -1),
        role_connections=int(use[11] or 0),
        database_connections=int(use[12] or 0),
        server_connections=int(use[13] or 0),
        ddl_triggers=int(connection.query(_DDL_TRIGGERS)[0][0] or 0),
        unreadable=tuple(
            (spelled_name(schema or ""), spelled_name(name or "")) for schema, name in unreadable
        ),
    )
