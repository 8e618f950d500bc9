"""Find misconfiguration around a PostgreSQL source; explain why it matters and how to repair it.

Pure: each rule is one function of answers collected before. It gives findings
of three lines: the problem, why it matters, and the command that repairs it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from psycopg.conninfo import conninfo_to_dict

from gaussdecode.daemon.status.expiry import wraparound
from gaussdecode.model.sqlnames import quoted_name
from gaussdecode.model.title import table_title
from gaussdecode.model.words import counted
from gaussdecode.settings.dsn import is_local
from gaussdecode.settings.sections import Config
from gaussdecode.source.coverage import Coverage, listing
from gaussdecode.source.postgresql.inspection import Inspection
from gaussdecode.source.postgresql.slot import ListedTable
from gaussdecode.source.relations import WhiteList
from gaussdecode.source.slot import ServerState

_CONNECTIONS: Final = 4  # reader, catalogue, guard, and one of a command
_SNAPSHOT_CONNECTIONS: Final = 4  # catalogue, view, and two readers, beside its workers
LEAST_TIMEOUT_MS: Final = 10_000  # a shorter one ends streams for a short pause; arbitrary
NAMED_TABLES: Final = 3  # of those that one finding is about; arbitrary
_CLOCK_SECONDS: Final = 5.0  # arbitrary: times of publications and commits are compared by people
_OLD_SECONDS: Final = 3600.0  # arbitrary
_FAILOVER: Final = 170000


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One problem to repair.

    Attributes:
        what: the problem.
        why: the consequence.
        remedy: a command, or what to do.
        state: its row in the daemon's table of states, if it has one.
    """

    what: str
    why: str
    remedy: str
    state: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CheckInput:
    """Input of the rules."""

    config: Config
    server: ServerState
    tables: Sequence[ListedTable]
    seen: Inspection
    coverage: Coverage = dataclasses.field(default_factory=Coverage)

    @property
    def role(self) -> str:
        """The role, quoted for SQL."""
        return quoted_name(self.seen.role)


Rule = Callable[[CheckInput], Iterator[Finding]]


def _wal_level(inputs: CheckInput) -> Iterator[Finding]:
    level = inputs.seen.settings.get("wal_level", "")
    if level != "logical":
        yield Finding(
            f"wal_level is {level}",
            "the server writes too little into its WAL for logical decoding",
            "ALTER SYSTEM SET wal_level = 'logical';  -- then restart the server",
        )


def _privileges(inputs: CheckInput) -> Iterator[Finding]:
    seen = inputs.seen
    if not seen.has_replication and not seen.is_superuser:
        yield Finding(
            f"role {seen.role} may not replicate",
            "it cannot stream from a slot",
            f"ALTER ROLE {inputs.role} REPLICATION;",
        )
    if seen.is_superuser:
        yield Finding(
            f"role {seen.role} is a superuser",
            "REPLICATION and CONNECT are enough; its password gives full access",
            f"ALTER ROLE {inputs.role} NOSUPERUSER REPLICATION;",
        )
    elif seen.extra_rights:
        yield Finding(
            f"role {seen.role} may do more than it needs: {', '.join(seen.extra_rights)}",
            "following a slot needs REPLICATION and CONNECT only",
            f"ALTER ROLE {inputs.role} NOCREATEROLE NOCREATEDB NOBYPASSRLS;  -- and REVOKE the rest",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """One of the limits that a connection meets.

    Attributes:
        what: who may have how many, and the name of the limit.
        most: connections; negative for no limit.
        used: connections now.
        remedy: command that sets it to a number, ``{}``.
    """

    what: str
    most: int
    used: int
    remedy: str


def _limits(seen: Inspection) -> Iterator[ConnectionLimit]:
    """The limits of role, database and server; a superuser meets the last one alone."""
    if not seen.is_superuser:
        yield role_limit(seen.role, seen.connection_limit, seen.role_connections)
        yield ConnectionLimit(
            f"database {seen.database} takes {counted(seen.database_limit, 'connection')} (datconnlimit)",
            seen.database_limit,
            seen.database_connections,
            f"ALTER DATABASE {quoted_name(seen.database)} CONNECTION LIMIT {{}};",
        )
    names = ("superuser_reserved_connections", "reserved_connections")
    kept = 0 if seen.is_superuser else sum(int(seen.settings.get(name, "0")) for name in names)
    if "max_connections" in seen.settings:
        most = int(seen.settings["max_connections"]) - kept
        yield ConnectionLimit(
            f"the server takes {counted(most, 'connection')} (max_connections, less {kept} reserved ones)",
            most,
            seen.server_connections,
            "ALTER SYSTEM SET max_connections = {};  -- then restart the server",
        )


def role_limit(role: str, most: int, used: int = 0) -> ConnectionLimit:
    """The limit of a role."""
    return ConnectionLimit(
        f"role {role} may open {counted(most, 'connection')} (rolconnlimit)",
        most,
        used,
        f"ALTER ROLE {quoted_name(role)} CONNECTION LIMIT {{}};",
    )


def connection_findings(
    config: Config, limits: Iterable[ConnectionLimit], *, is_active: bool
) -> Iterator[Finding]:
    """Say which limit would refuse a connection of the daemon.

    Args:
        config: configuration of the source.
        limits: limits of the server.
        is_active: the daemon runs, so that some of the connections that are used are its own.
    """
    is_reading = config.reads_rows and config.snapshot_refusal is None
    more = config.snapshot.workers + _SNAPSHOT_CONNECTIONS if is_reading else 0
    needed = _CONNECTIONS + more
    why = "the daemon uses three (stream, catalogue, guard), a command one more"
    for limit in limits:
        used = 0 if is_active else limit.used
        if 0 <= limit.most < needed + used:
            yield Finding(
                limit.what + (f", and {used} are in use" if used else ""),
                f"{why}, reading existing rows {more}: {needed} in all" if more else why,
                limit.remedy.format(needed + limit.used + 1),
            )


def _connections(inputs: CheckInput) -> Iterator[Finding]:
    seen = inputs.seen
    is_active = inputs.server.slot is not None and inputs.server.slot.is_active
    yield from connection_findings(inputs.config, _limits(seen), is_active=is_active)
    left = int(seen.settings.get("max_wal_senders", "0")) - seen.senders
    if left < 1 and not is_active:
        yield Finding(
            f"no walsender of {seen.senders} is free",
            "the stream cannot be started",
            f"ALTER SYSTEM SET max_wal_senders = {seen.senders + 4};  -- then restart the server",
        )
    if inputs.server.slot is None:
        yield from _slots(seen, "the slot cannot be created")


def _slots(seen: Inspection, why: str) -> Iterator[Finding]:
    if int(seen.settings.get("max_replication_slots", "0")) <= seen.slots:
        yield Finding(
            f"no replication slot of {seen.slots} is free",
            why,
            f"ALTER SYSTEM SET max_replication_slots = {seen.slots + 4};  -- then restart the server",
        )


def _snapshots(inputs: CheckInput) -> Iterator[Finding]:
    """Check the needs of reading existing rows, if they are wanted."""
    seen = inputs.seen
    if not inputs.config.reads_rows:
        return
    if inputs.server.slot is not None:
        why = "existing rows cannot be read: a snapshot needs one for some moments"
        yield from _slots(seen, why)
    yield from reading_findings(inputs.config, seen.role, seen.unreadable)


def reading_findings(
    config: Config, role: str, unreadable: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """Name tables whose rows must be read, at the beginning or after a suspect entry, and cannot be.

    Args:
        config: configuration of a source whose tables can be read.
        role: name of the role.
        unreadable: schema and name of tables that the role may not read.
    """
    settings, white_list = config.snapshot, WhiteList(config.decoding.white_tables)
    is_healing = config.landing.on_suspect == "snapshot"
    wanted = [
        (schema, name)
        for schema, name in unreadable
        if white_list.allows(schema, name)
        and (is_healing or settings.wants_rows_of(table_title(schema, name)))
    ]
    if not wanted:
        return
    titles = [table_title(schema, name) for schema, name in wanted]
    names = ", ".join(quoted_name(schema) for schema in sorted({schema for schema, _ in wanted}))
    yield Finding(
        f"role {role} may not read {listing(titles[:NAMED_TABLES], len(titles))}",
        "after a suspect entry they cannot be read again; changes land"
        if is_healing
        else "their existing rows do not land; changes do",
        f"GRANT USAGE ON SCHEMA {names} TO {quoted_name(role)}; GRANT SELECT ON ALL TABLES IN "
        f"SCHEMA {names} TO {quoted_name(role)};  -- or "
        + ("landing.on-suspect: record" if is_healing else "snapshot.mode: none"),
    )


def _retention(inputs: CheckInput) -> Iterator[Finding]:
    settings = inputs.seen.settings
    if settings.get("max_slot_wal_keep_size") == "-1":
        yield Finding(
            "max_slot_wal_keep_size is not set",
            "a daemon that is down fills the server's disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '100GB'; SELECT pg_reload_conf();",
        )
    idle = settings.get("idle_replication_slot_timeout", "0")
    if idle not in {"0", "0s", "0min"}:
        yield Finding(
            f"idle_replication_slot_timeout is {idle}",
            "a daemon that is down for longer loses its slot, and changes with it",
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
        )
    timeout = inputs.server.sender_timeout_ms
    if 0 < timeout < LEAST_TIMEOUT_MS and inputs.config.decoding.sender_timeout is None:
        yield Finding(
            f"wal_sender_timeout is {timeout} ms",
            "a short pause of the network ends the stream",
            "ALTER SYSTEM SET wal_sender_timeout = '60s'; SELECT pg_reload_conf();",
        )


def _slot_end(inputs: CheckInput) -> Iterator[Finding]:
    slot = inputs.server.slot
    if slot is not None and slot.wal_status == "unreserved":
        yield Finding(
            f"slot {slot.name} needs WAL that the server may remove at its next checkpoint",
            "the slot is lost then, and the changes that were not yet read",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '...'; SELECT pg_reload_conf();  -- twice what it "
            f"is, and gaussdecode@{inputs.config.name} started at once",
            "slot-near-its-end",
        )


def _transaction_numbers(inputs: CheckInput) -> Iterator[Finding]:
    found = wraparound(inputs.seen.catalog_xmin_age, inputs.seen.frozen_age)
    if found is not None:
        what, remedy = found
        yield Finding(
            what, "then nobody can write to it until it is vacuumed", remedy, "wraparound"
        )


def _failover(inputs: CheckInput) -> Iterator[Finding]:
    slot = inputs.server.slot
    if slot is None or inputs.server.version < _FAILOVER or inputs.seen.is_standby:
        return
    if not slot.is_failover:
        yield Finding(
            f"slot {slot.name} is not kept on standbys",
            "after a failover it is missing, and the changes not yet read are lost",
            f"gaussdecode slot create --failover {inputs.config.path}  "
            "# for a new slot; see the operations guide, Failover",
        )
    elif not inputs.seen.settings.get("synchronized_standby_slots"):
        yield Finding(
            "synchronized_standby_slots is empty",
            "the daemon may land changes that a standby has not got when it takes over",
            "ALTER SYSTEM SET synchronized_standby_slots = '<slot of the standby>'; "
            "SELECT pg_reload_conf();",
        )


def _standby(inputs: CheckInput) -> Iterator[Finding]:
    """Check that the primary keeps the catalogue rows which decoding on a standby needs."""
    seen = inputs.seen
    if not seen.is_standby:
        return
    if seen.settings.get("hot_standby_feedback") == "off":
        yield Finding(
            "hot_standby_feedback is off on this standby",
            "the primary may vacuum rows of its catalogues that decoding here still needs, and the slot is "
            "lost",
            "ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();  -- on the standby",
        )
    elif not seen.settings.get("primary_slot_name"):
        yield Finding(
            "primary_slot_name is empty on this standby",
            "while it is not connected nobody tells the primary what decoding here needs, and the slot is "
            "lost",
            "SELECT pg_create_physical_replication_slot('standby');  -- on the primary; then on the standby: "
            "ALTER SYSTEM SET primary_slot_name = 'standby'; SELECT pg_reload_conf();",
        )


def _ddl(inputs: CheckInput) -> Iterator[Finding]:
    if inputs.seen.ddl_triggers and not inputs.config.source.messages:
        yield Finding(
            "event triggers of gaussdecode write DDL into the stream, and source.messages is off",
            "no DDL lands in gd_ddl",
            f"source.messages: true, or: gaussdecode ddl remove {inputs.config.path}",
        )


def transaction_findings(oldest: float | None, prepared: int | None) -> Iterator[Finding]:
    """Judge the age (seconds) of the oldest open transaction, and the number of prepared ones."""
    if oldest is not None and oldest > _OLD_SECONDS:
        yield Finding(
            f"a transaction has been open for {oldest / 3600:.1f} hours",
            "the server keeps all WAL since its beginning for the slot, and creating a slot waits",
            "SELECT pid, xact_start, usename, application_name FROM pg_stat_activity ORDER BY xact_start LIMIT 5;",
        )
    if prepared:
        yield Finding(
            f"{counted(prepared, 'prepared transaction')} not committed or rolled back",
            "the server keeps all WAL since their beginning for the slot",
            "SELECT gid, prepared, owner FROM pg_prepared_xacts ORDER BY prepared;",
        )


def clock_finding(offset: float) -> Iterator[Finding]:
    """Judge by how many seconds the server's clock is ahead of ours."""
    if abs(offset) > _CLOCK_SECONDS:
        where = "ahead of" if offset > 0 else "behind"
        yield Finding(
            f"the server's clock is {abs(offset):.0f} seconds {where} this machine's",
            "commit times and the times of entries cannot be compared",
            "chronyc tracking  # on both machines",
        )


def encryption_finding(config: Config, *, is_encrypted: bool | None) -> Iterator[Finding]:
    """Judge whether a connection is encrypted; None if unknown."""
    parameters = {key: str(value) for key, value in conninfo_to_dict(config.source.dsn).items()}
    if is_encrypted is False and not is_local(parameters):
        yield Finding(
            "the connection is not encrypted",
            "rows and, with weak authentication, the password can be read on the way",
            "sslmode=verify-full in source.dsn, ssl = on on the server",
        )


def _tables(inputs: CheckInput) -> Iterator[Finding]:
    bare = [table for table in inputs.tables if not table.can_update]
    if not bare:
        return
    titles = [table_title(table.schema, table.name) for table in bare[:NAMED_TABLES]]
    first = f"{quoted_name(bare[0].schema)}.{quoted_name(bare[0].name)}"
    yield Finding(
        f"without replica identity: {listing(titles, len(bare))}",
        "the server refuses UPDATE and DELETE on such a table while it is published",
        f"ALTER TABLE {first} REPLICA IDENTITY FULL;  -- better: give it a primary key"
        + ("; check --tables names the others" if len(bare) > 1 else ""),
    )


def _coverage(inputs: CheckInput) -> Iterator[Finding]:
    """A table lands only if publications and white list both have it."""
    found = inputs.coverage
    publication = quoted_name(next(iter(inputs.config.source.publication), ""))
    if found.unlisted:
        tables = listing(found.unlisted, found.unlisted_count)
        yield Finding(
            f"published, but not on white-table-list: {tables}",
            "the server sends their changes, and none of them land",
            "put them on decoding.white-table-list, or ALTER PUBLICATION "
            f"{publication} DROP TABLE ...;",
        )
    if found.unpublished:
        items = listing(found.unpublished, found.unpublished_count)
        yield Finding(
            f"on white-table-list, but in no configured publication: {items}",
            "the server never sends a change of them, so nothing of them lands",
            f"correct decoding.white-table-list, or ALTER PUBLICATION {publication} ADD TABLE ...;",
        )


RULES: Final[tuple[Rule, ...]] = (
    _wal_level,
    _privileges,
    _connections,
    _snapshots,
    _retention,
    _slot_end,
    _transaction_numbers,
    _failover,
    _standby,
    _ddl,
    lambda of: transaction_findings(of.seen.oldest_transaction, of.seen.prepared_transactions),
    lambda of: clock_finding(of.seen.clock_offset),
    lambda of: encryption_finding(of.config, is_encrypted=of.seen.is_encrypted),
    _tables,
    _coverage,
)


def examine_server(inputs: CheckInput) -> list[Finding]:
    """Check role, server and tables."""
    return [finding for rule in RULES for finding in rule(inputs)]
