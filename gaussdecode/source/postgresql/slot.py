"""Read the state of slots, and change them.

All on a connection in replication mode, which takes SQL as well. `start` decides from the answer of
`read_server` whether a stream may be started.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Final

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.source_sections import NOT_STREAMED, STREAMED, STREAMED_PARALLEL
from gaussdecode.source.postgresql.connection import Connection, Row
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.source.quoting import literal, publication_list, slot_identifier, start_replication
from gaussdecode.source.slot import PLUGIN, LandingPosition, ServerState, SlotState
from gaussdecode.source.sqlstate import POOLED
from gaussdecode.source.start import TWO_PHASE_VERSION
from gaussdecode.wire.encoding import spelled_name

_SYNTAX_ERROR: Final = "42601"
_STREAMS_PARALLEL: Final = 160000
_TWO_PHASE_PROTOCOL: Final = "3"
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN: Final = re.compile(r"(\d+)\s*(ms|s|min|h|d|)")


@dataclasses.dataclass(frozen=True, slots=True)
class ListedTable:
    """A table that a publication sends.

    Attributes:
        schema: name.
        name: name of the table.
        identity: pg_class.relreplident.
        has_primary_key: it has one.
    """

    schema: str
    name: str
    identity: str
    has_primary_key: bool

    @property
    def can_update(self) -> bool:
        """Whether the server lets rows be updated and deleted once it is published."""
        return self.identity in ("f", "i") or (self.identity == "d" and self.has_primary_key)


def read_server(
    connection: Connection,
    slot: str,
    publications: Sequence[str],
    log: LandingPosition | None = None,
) -> ServerState:
    """Ask the server everything that `start.check_start` needs.

    Args:
        connection: connection in replication mode.
        slot: name.
        publications: configured names.
        log: log whose timeline is looked up when the server's is another.

    Raises:
        SourceError: the server failed.
    """
    try:
        (identity,) = connection.query("IDENTIFY_SYSTEM")
    except SourceError as error:
        if error.sqlstate != _SYNTAX_ERROR:
            raise
        raise SourceRefusedError(f"the session takes no replication commands: {POOLED}") from None
    system_identifier, timeline_text, wal_end, database = (value or "" for value in identity)
    timeline = int(timeline_text)
    present = {name for (name,) in connection.query(_PUBLICATIONS)}
    slots = [state for state in list_slots(connection) if state.name == slot]
    points: Mapping[int, Lsn] = {}
    if log is not None and 0 < log.timeline < timeline:
        points = _switch_points(connection, timeline)
    return ServerState(
        version=connection.server_version,
        system_identifier=system_identifier,
        timeline=timeline,
        wal_end=Lsn.parse(wal_end),
        database=spelled_name(database),
        slot=slots[0] if slots else None,
        sender_timeout_ms=_milliseconds(_setting(connection, "wal_sender_timeout")),
        encoding=_setting(connection, "server_encoding"),
        missing_publications=tuple(name for name in publications if name not in present),
        switch_points=points,
        is_standby=connection.query("SELECT pg_catalog.pg_is_in_recovery()") == [("t",)],
        instance=connection.query(_INSTANCE)[0][0] or "",
    )


def _setting(connection: Connection, name: str) -> str:
    ((value,),) = connection.query(f"SHOW {name}")
    return value or ""


def _milliseconds(text: str) -> int:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise SourceError(f"the server spells a time span {text!r}")
    return int(match[1]) * _UNITS_MS[match[2]]


def _switch_points(connection: Connection, timeline: int) -> dict[int, Lsn]:
    """Read a history file: ``1<TAB>0/3000158<TAB>no recovery target specified``."""
    ((_, content),) = connection.query(f"TIMELINE_HISTORY {timeline}")
    points: dict[int, Lsn] = {}
    for line in (content or "").splitlines():
        fields = line.split("\t")
        if len(fields) >= 2 and fields[0].strip().isdigit():
            points[int(fields[0])] = Lsn.parse(fields[1].strip())
    return points


_INSTANCE: Final = (
    "SELECT pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())::pg_catalog.text"
)
_COLUMNS: Final = (
    "slot_name, plugin, slot_type, database, temporary, active, active_pid, restart_lsn, "
    "confirmed_flush_lsn, wal_status, safe_wal_size, two_phase"
)

_PUBLICATIONS: Final = "SELECT pubname FROM pg_catalog.pg_publication"
_SLOTS: Final = "pg_catalog.pg_replication_slots ORDER BY slot_name"
_TABLES: Final = """
    SELECT DISTINCT n.nspname, c.relname, c.relreplident, EXISTS (
        SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
    FROM ({tables}) t JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2
"""


def list_slots(connection: Connection) -> list[SlotState]:
    """Read all slots of the server, by name.

    Raises:
        SourceError: the server failed.
    """
    version = connection.server_version
    reason, failover = "NULL", "false"
    if version >= 170000:
        reason, failover = "invalidation_reason", "failover"
    elif version >= 160000:
        reason = "CASE WHEN conflicting THEN 'conflict' END"
    columns = f"{_COLUMNS}, {reason}, {failover}"
    rows = connection.query(f"SELECT {columns} FROM {_SLOTS}")  # noqa: S608 - constants
    return [_slot_state(row) for row in rows]


def _slot_state(row: Row) -> SlotState:
    return SlotState(
        name=row[0] or "",
        plugin=row[1],
        slot_type=row[2] or "",
        database=None if row[3] is None else spelled_name(row[3]),
        is_temporary=row[4] == "t",
        is_active=row[5] == "t",
        active_pid=int(row[6]) if row[6] else None,
        restart_lsn=Lsn.parse(row[7]) if row[7] else None,
        confirmed_flush_lsn=Lsn.parse(row[8]) if row[8] else None,
        wal_status=row[9],
        safe_wal_size=int(row[10]) if row[10] else None,
        is_two_phase=row[11] == "t",
        invalidation_reason=row[12],
        is_failover=row[13] == "t",
    )


def published_tables(connection: Connection, publications: Sequence[str]) -> list[ListedTable]:
    """Read which tables the publications send, by name.

    Raises:
        SourceError: the server failed.
    """
    tables = tables_of(publications, connection.server_version)
    rows = connection.query(_TABLES.format(tables=tables))
    return [
        ListedTable(
            spelled_name(schema or ""), spelled_name(name or ""), identity or "", has_key == "t"
        )
        for schema, name, identity, has_key in rows
    ]


# ---- changing ----------------------------------------------------------------------------


def streaming_of(server_version: int, wanted: str) -> tuple[str, str]:
    """How a server of this version streams open transactions, and the protocol that takes.

    Args:
        server_version: version as a number, as 160004.
        wanted: off, on or parallel.

    Returns:
        The value of its option, empty for none; version of the protocol.
    """
    if wanted == NOT_STREAMED:
        return "", "1"
    if wanted == STREAMED_PARALLEL and server_version >= _STREAMS_PARALLEL:
        return STREAMED_PARALLEL, "4"
    return STREAMED, "2"


def stream_options(
    server_version: int,
    publications: Sequence[str],
    *,
    messages: bool,
    only_local: bool,
    streaming: str = NOT_STREAMED,
    two_phase: bool = False,
) -> dict[str, str]:
    """The options of pgoutput for a server of this version; `streaming` as configured.

    With `two_phase` the slot becomes one of which prepared transactions are sent at their PREPARE,
    if it is not that already. Then what has an origin comes too, and is left out where it lands: a
    server that leaves out a PREPARE with an origin sends a COMMIT PREPARED without one all the same,
    and one that leaves out the end of a transaction has told of its beginning.
    """
    mode, version = streaming_of(server_version, streaming)
    if two_phase:
        version = max(version, _TWO_PHASE_PROTOCOL)
    options = {"proto_version": version, "publication_names": publication_list(publications)}
    if mode:
        options["streaming"] = mode
    if messages:
        options["messages"] = "true"
    if two_phase:
        options["two_phase"] = "true"
    if server_version >= 160000:
        options["origin"] = "none" if only_local and not two_phase else "any"
    return options


def start_stream(
    connection: Connection, slot: str, start_lsn: Lsn, options: Mapping[str, str]
) -> None:
    """Start streaming.

    Raises:
        SourceError: the slot is in use, or the server failed.
        SourceRefusedError: it refuses.
    """
    connection.start_stream(start_replication(slot, str(start_lsn), options))


def create_slot(
    connection: Connection, name: str, *, failover: bool = False, two_phase: bool = False
) -> Lsn:
    """Create a logical slot; waits for the transactions that run on the server.

    Args:
        connection: connection in replication mode.
        name: name of the slot.
        failover: have standbys keep it, from PostgreSQL 17 on.
        two_phase: prepared transactions are sent at their PREPARE, from PostgreSQL 15 on; a
            failover slot becomes such with its first stream.

    Returns:
        Its consistent point: every transaction that commits later will be streamed.

    Raises:
        SourceRefusedError: it exists, or the server has no room for it.
        ConfigError: the name is not one for a slot.
    """
    version = connection.server_version
    if failover and version < 170000:
        raise SourceRefusedError("failover slots need PostgreSQL 17 or newer")
    if two_phase and version < TWO_PHASE_VERSION:
        raise SourceRefusedError("source.two-phase needs PostgreSQL 15 or newer")
    if version >= 150000:
        # Newer servers refuse both at once; the first stream then asks for the one that is left.
        is_asked = two_phase and not failover
        wanted = ["SNAPSHOT 'nothing'", *["TWO_PHASE"] * is_asked, *["FAILOVER"] * failover]
        options = f"({', '.join(wanted)})"
    else:
        options = "NOEXPORT_SNAPSHOT"
    command = f"CREATE_REPLICATION_SLOT {slot_identifier(name)} LOGICAL {PLUGIN} {options}"
    connection.patience = None  # transactions run for as long as they like
    (row,) = connection.query(command)
    return Lsn.parse(row[1] or "")


def drop_slot(connection: Connection, name: str) -> None:
    """Drop a slot; changes that it had not confirmed cannot be read afterwards.

    Raises:
        SourceError: it is in use.
        SourceRefusedError: it does not exist.
    """
    connection.query(f"DROP_REPLICATION_SLOT {slot_identifier(name)}")


def advance_slot(connection: Connection, name: str, lsn: Lsn) -> Lsn:
    """Move a slot forward; the changes up to there are gone.

    Returns:
        Where it stands now.

    Raises:
        SourceError: it is in use.
        SourceRefusedError: it cannot go there.
    """
    slot_identifier(name)
    connection.patience = None  # the server reads its log up to there
    call = f"pg_catalog.pg_replication_slot_advance({literal(name)}, '{lsn}')"
    rows = connection.query(f"SELECT end_lsn FROM {call}")  # noqa: S608 - quoted above
    return Lsn.parse(rows[0][0] or "")
