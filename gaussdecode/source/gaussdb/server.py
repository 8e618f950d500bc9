"""Read the state of a GaussDB server and its slots, and change slots.

All of it is ordinary SQL on an ordinary connection, but for ``IDENTIFY_SYSTEM``, which the
stream's own connection is asked. Rows are read by column name, because every version has
other columns; what one does not have is None. Whether a stream may be started is decided
by `check_start`, from what `read_server` finds.

Values arrive in the stream as the settings of database and role print them, whatever the
connection asks for. Those that the decoder would misread are named here, with the
statement that puts them right.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.commands import IDENTIFY_SYSTEM, slot_name, sql_literal
from gaussdecode.protocol.gaussdb.profile import VersionProfile
from gaussdecode.source import start
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.connection import GaussConnection
from gaussdecode.source.gaussdb.target import on_next_port, on_port
from gaussdecode.source.slot import LandingPosition, ServerState, SlotState

ENCODINGS: Final = ("UTF8", "GBK", "GB18030", "LATIN1", "SQL_ASCII")
DDL_ADVICE: Final = (
    "keep DDL out of transactions that change rows. openGauss 3.0.3 and newer announce the "
    "loss, and landing.on-suspect decides what happens. 6.0.0 and newer have none with "
    "parallel-decode-num: 1"
)
_GB18030_2022: Final = "GB18030_2022"  # differs from GB18030 in a few rare characters
_SETTINGS: Final = (
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "bytea_output",
    "server_encoding",
    "wal_level",
    "logical_sender_timeout",
    "wal_sender_timeout",
    "enable_thread_pool",
    "sql_compatibility",
    "logical_decode_options_default",
    "pgxc_node_name",
)
_CANONICAL: Final = {name.lower(): name for name in _SETTINGS}
_NAMES: Final = ", ".join(f"'{name}'" for name in _CANONICAL)
READ_SETTINGS: Final = (
    f"SELECT name, setting FROM pg_catalog.pg_settings WHERE lower(name) IN ({_NAMES})"  # noqa: S608 - constants
)
_STYLES: Final = {"DateStyle": "ISO", "IntervalStyle": "postgres", "bytea_output": "hex"}
_READ_SLOTS: Final = "SELECT * FROM pg_catalog.pg_replication_slots"
_READ_STATUS: Final = "SELECT * FROM pg_catalog.gs_get_parallel_decode_status()"
READ_NODE_TYPE: Final = """
SELECT n.node_type FROM pg_catalog.pgxc_node n JOIN pg_catalog.pg_settings s ON n.node_name = s.setting
WHERE s.name = 'pgxc_node_name'
"""
_COORDINATOR: Final = "C"
_UNKNOWN: Final = VersionProfile("GaussDB", (3, 0, 0))
_DEFAULT_TIMEOUT_MS: Final = 30_000
_QUEUE: Final = re.compile(r"queue(\d+): (\d+)")

Cells = Mapping[str, str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class GaussServerState(ServerState):
    """The state of the server before a stream is started.

    Attributes:
        profile: product and version.
        settings: settings of database and role, by the names of `_SETTINGS`.
        is_coordinator: it says that it is a coordinator of a distributed server.
    """

    profile: VersionProfile = _UNKNOWN
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_coordinator: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DecodeStatus:
    """One running parallel stream, as the server sees it.

    Attributes:
        slot: its name.
        read_queues: items waiting for each decoder.
        decode_queues: items waiting for the sender, by decoder.
    """

    slot: str
    read_queues: tuple[int, ...]
    decode_queues: tuple[int, ...]


# ---- asking --------------------------------------------------------------------------------


def read_server(sql: GaussConnection, stream: GaussConnection, slot: str) -> GaussServerState:
    """Ask the server everything that `check_start` needs.

    Args:
        sql: an ordinary connection.
        stream: the one that will stream.
        slot: name.

    Raises:
        SourceError: the server failed.
        SourceRefusedError: it is no GaussDB, or refuses.
    """
    profile = sql.profile
    settings = read_settings(sql)
    (identity,) = stream.query(IDENTIFY_SYSTEM)
    system_identifier, timeline, wal_end, database = (value or "" for value in identity[:4])
    slots = [state for state in list_slots(sql) if state.name == slot]
    return GaussServerState(
        version=profile.number,
        system_identifier=system_identifier,
        timeline=int(timeline),
        wal_end=Lsn.parse(wal_end),
        database=database,
        slot=slots[0] if slots else None,
        sender_timeout_ms=_sender_timeout_ms(settings),
        encoding=sql.parameters.get("server_encoding") or settings.get("server_encoding", ""),
        profile=profile,
        settings=settings,
        is_standby=is_standby(sql),
        is_coordinator=is_coordinator(sql),
        node=settings.get("pgxc_node_name", ""),
    )


def read_settings(sql: GaussConnection) -> dict[str, str]:
    """Read the settings that matter, as database and role have them; unknown ones are missing.

    Raises:
        SourceError: the server failed.
    """
    reported = {name: value for name, value in sql.parameters.items() if name in _SETTINGS}
    rows = sql.query(READ_SETTINGS)
    return reported | {_CANONICAL[(name or "").lower()]: value or "" for name, value in rows}


def stream_address(
    address: SourceAddress, ha_port: int | None, sql: GaussConnection
) -> SourceAddress:
    """Address for replication: ``source.ha-port``, or the next port if there is a thread pool.

    Raises:
        SourceError: the server failed.
    """
    if ha_port is not None:
        return on_port(address, ha_port)
    has_pool = read_settings(sql).get("enable_thread_pool") == "on"
    return on_next_port(address) if has_pool else address


def is_standby(sql: GaussConnection) -> bool:
    """Whether the server recovers.

    Raises:
        SourceError: the server failed.
    """
    return sql.query("SELECT pg_catalog.pg_is_in_recovery()")[0][0] == "t"


def is_coordinator(sql: GaussConnection) -> bool:
    """Whether the server says that it is a coordinator; what does not say so is taken for a data node.

    Raises:
        SourceError: the connection failed.
    """
    try:
        rows = sql.query(READ_NODE_TYPE)
    except SourceRefusedError:  # no such table, or none that this role may read
        return False
    return any(row[0] == _COORDINATOR for row in rows)


def _sender_timeout_ms(settings: Mapping[str, str]) -> int:
    for name in ("logical_sender_timeout", "wal_sender_timeout"):
        text = settings.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return _DEFAULT_TIMEOUT_MS


def list_slots(sql: GaussConnection) -> list[SlotState]:
    """Read all slots of the server, by name.

    Raises:
        SourceError: the server failed.
    """
    states = [_slot_state(row) for row in sql.query_table(_READ_SLOTS)]
    return sorted(states, key=lambda state: state.name)


def _slot_state(row: Cells) -> SlotState:
    confirmed = row.get("confirmed_flush") or row.get("confirmed_flush_lsn")
    pid = row.get("active_pid")
    return SlotState(
        name=row.get("slot_name") or "",
        plugin=row.get("plugin"),
        slot_type=row.get("slot_type") or "",
        database=row.get("database"),
        is_temporary=row.get("temporary") == "t",
        is_active=row.get("active") == "t",
        active_pid=int(pid) if pid else None,
        restart_lsn=_lsn(row.get("restart_lsn")),
        confirmed_flush_lsn=_lsn(confirmed),
        wal_status=row.get("wal_status"),
        safe_wal_size=None,
        is_two_phase=False,
        invalidation_reason=None,
        is_failover=False,
        confirmed_csn=_whole(row.get("confirmed_csn")),
    )


def _lsn(text: str | None) -> Lsn | None:
    if not text:
        return None
    try:
        return Lsn.parse(text)
    except ValueError:
        raise SourceError(f"the server spells a position {text!r}") from None


def read_decode_status(sql: GaussConnection) -> list[DecodeStatus]:
    """Read the parallel streams that run on this server.

    Raises:
        SourceError: the server failed, or is too old to say.
    """
    return [decode_status(row) for row in sql.query_table(_READ_STATUS)]


def decode_status(row: Cells) -> DecodeStatus:
    """Read one row of ``gs_get_parallel_decode_status()``."""
    return DecodeStatus(
        slot=row.get("slot_name") or "",
        read_queues=_queues(row.get("read_change_queue_length")),
        decode_queues=_queues(row.get("decode_change_queue_length")),
    )


def _queues(text: str | None) -> tuple[int, ...]:
    """Read ``queue0: 33, queue1: 36``."""
    found = sorted((int(number), int(size)) for number, size in _QUEUE.findall(text or ""))
    return tuple(size for _, size in found)


def _whole(text: str | None) -> int | None:
    """A CSN; None where the server has no such column, or the slot no such position."""
    return int(text) or None if text else None


# ---- judging -------------------------------------------------------------------------------


def problems(state: GaussServerState) -> list[str]:
    """Name what makes the stream unreadable here, with what puts it right."""
    found = []
    if state.encoding not in (*ENCODINGS, _GB18030_2022):
        found.append(
            f"the database's encoding is {state.encoding or 'unknown'}; understood: "
            f"{', '.join(ENCODINGS)}"
        )
    if state.settings.get("wal_level", "logical") != "logical":
        found.append(
            f"wal_level is {state.settings['wal_level']}; the DBA sets wal_level = logical and "
            "restarts the server"
        )
    return found + value_problems(state.settings)


def value_problems(settings: Mapping[str, str]) -> list[str]:
    """Name the settings of database and role that print values in an unreadable way.

    Any TimeZone will do: DateStyle ISO prints the offset with every time.
    """
    style = settings.get("DateStyle", "").partition(",")[0].strip()
    seen = {**settings, "DateStyle": style}
    return [
        f"{name} of this database and role is {settings.get(name, 'unknown')!r}, in which the server "
        f"prints the values of the stream; {value} is needed: ALTER ROLE ... SET {name} = '{value}' "
        "for this role, and look for ALTER ROLE ... IN DATABASE"
        for name, value in _STYLES.items()
        if seen.get(name, "").lower() != value.lower()
    ]


def check_start(
    log: LandingPosition | None, server: GaussServerState, slot: str, plugins: tuple[str, ...] = ()
) -> Lsn:
    """Decide whether and where a stream may start.

    Args:
        log: log of the landing; None for one that has no entry yet.
        server: server from `read_server`.
        slot: configured name.
        plugins: output plug-ins that will do; any does in parallel mode.

    Returns:
        The position to ask for; see `start.check_start`.

    Raises:
        SourceRefusedError: the stream could not be read.
        IdentityError: log, server and slot do not belong together.
    """
    for problem in problems(server):
        raise SourceRefusedError(problem)
    return start.check_start(log, server, slot, plugins)


def landing_problem(server: GaussServerState) -> str | None:
    """Say what keeps a landing from following a slot that could be streamed; None if nothing.

    Args:
        server: server from `read_server`.
    """
    return coordinator_problem(server.is_coordinator) or csn_slot_problem(server.slot)


def coordinator_problem(is_coordinator: bool) -> str | None:
    """Say that a coordinator has no log of its own that a landing could follow; None if it is none."""
    if not is_coordinator:
        return None
    return (
        "the server is a coordinator, which merges the streams of its data nodes by itself: its positions are in no "
        "log, and of what it sends nobody can tell up to which CSN everything has come. Follow the data "
        "nodes: name the primary of each under sources, with decoding.output-order: 1"
    )


def csn_slot_problem(slot: SlotState | None) -> str | None:
    """Say that a slot is in the order of CSNs, of which no position can be confirmed; None if not."""
    if slot is None or slot.confirmed_csn is None:
        return None
    return (
        f"slot {slot.name!r} sends in the order of CSNs (confirmed_csn {slot.confirmed_csn}), and a landing confirms by "
        "position: it needs an ordinary slot, in either decoding.output-order. Drop this one (gaussdecode "
        "slot drop), and make one with gaussdecode slot create"
    )


def warnings(state: GaussServerState, *, is_parallel: bool) -> list[str]:
    """List warnings about this version, in the configured mode."""
    profile = state.profile
    found = []
    if profile.drops_after_ddl(is_parallel=is_parallel) and not profile.warns_of_loss:
        found.append(
            f"{profile.name} drops rows that follow DDL in their transaction without a word; "
            f"{DDL_ADVICE}"
        )
    if state.slot is not None and state.slot.confirmed_flush_lsn is None:
        found.append(
            f"{profile.name} does not show the confirmed position of a slot, so another reader of the "
            "slot cannot be noticed"
        )
    if state.encoding == _GB18030_2022:
        found.append("the encoding GB18030_2022 is read as GB18030")
    return found


# ---- changing ------------------------------------------------------------------------------


def create_slot(sql: GaussConnection, name: str, plugin: str, *, is_by_csn: bool = False) -> Lsn:
    """Create a logical slot; waits for the transactions that run on the server.

    Args:
        sql: an ordinary connection to the primary.
        name: name of the slot.
        plugin: one of the profile's.
        is_by_csn: it sends in the order of CSNs, for peek; GaussDB only.

    Returns:
        Its consistent point: every transaction that commits later will be streamed.

    Raises:
        ConfigError: the name is not one for a slot.
        SourceRefusedError: it exists, the plug-in is not there, or this is a standby.
    """
    allowed = sql.profile.plugins
    if plugin not in allowed:
        raise SourceRefusedError(
            f"{sql.profile.name} has no plug-in {plugin!r}; allowed: {', '.join(allowed)}"
        )
    if is_by_csn and not sql.profile.is_commercial:
        raise SourceRefusedError(
            f"{sql.profile.name} has no slots in CSN order; use decoding.output-order: 0 for peek"
        )
    order = ", 1" if is_by_csn else ""
    call = f"pg_create_logical_replication_slot({_slot(name)}, {sql_literal(plugin)}{order})"
    return _second_lsn(sql, call)


def drop_slot(sql: GaussConnection, name: str) -> None:
    """Drop a slot; changes that it had not confirmed cannot be read afterwards.

    Raises:
        SourceError: it is in use.
        SourceRefusedError: it does not exist.
    """
    sql.query(f"SELECT pg_catalog.pg_drop_replication_slot({_slot(name)})")


def advance_slot(sql: GaussConnection, name: str, lsn: Lsn) -> Lsn:
    """Move a slot forward; the changes up to there are gone.

    Returns:
        Where it stands now.

    Raises:
        SourceError: it is in use.
        SourceRefusedError: it cannot go there, or this is a standby.
    """
    return _second_lsn(sql, f"pg_replication_slot_advance({_slot(name)}, '{lsn}')")


def _slot(name: str) -> str:
    return sql_literal(slot_name(name))


def _second_lsn(sql: GaussConnection, call: str) -> Lsn:
    """Call a function that gives a slot's name and a position, however long it waits for transactions."""
    sql.timeout = None
    (row,) = sql.query(f"SELECT * FROM pg_catalog.{call}")  # noqa: S608 - quoted by the caller
    lsn = _lsn(row[1] if len(row) > 1 else None)
    if lsn is None:
        raise SourceError("the server gave no position for the slot")
    return lsn
