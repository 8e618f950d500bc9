"""Plan what the daemon would do with a configuration on GaussDB or openGauss, for `check`.

Asks the server and changes nothing. Tries both connections that the daemon needs: different lines of
pg_hba.conf admit them, and they may need different ports.
"""

from collections.abc import Iterator
from typing import Final

from gaussdecode.errors import ConfigError, SourceRefusedError
from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.title import table_title
from gaussdecode.model.types import column_type, is_built_in
from gaussdecode.operations.check.doctor import NAMED_TABLES, Finding
from gaussdecode.operations.check.doctor_gaussdb import GaussCheckInput, examine_gaussdb
from gaussdecode.operations.check.plan import Plan, PlannedColumn, arrow, fidelity
from gaussdecode.operations.connections import GaussPair, open_pair, open_sql
from gaussdecode.protocol.gaussdb.options import StreamRequest, server_options, start_command
from gaussdecode.protocol.gaussdb.profile import VersionProfile
from gaussdecode.settings.sections import Config
from gaussdecode.source.coverage import UNSENT, listing
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.gaussdb.connection import GaussConnection
from gaussdecode.source.gaussdb.inspection import inspect_gaussdb
from gaussdecode.source.gaussdb.server import DDL_ADVICE, GaussServerState
from gaussdecode.source.gaussdb.tables import ALL_COLUMNS, StoredTable, read_tables, unsent
from gaussdecode.source.postgresql.slot import ListedTable
from gaussdecode.source.relations import WhiteList

_FLOATS: Final = (700, 701, 1021, 1022)  # real, double precision, and arrays of them
_ROUNDED: Final = "rounded by the server: 6 digits of real, 15 of double precision"


def plan_gaussdb(config: Config, plan: Plan) -> list[Finding]:
    """Ask the server: version, slot, settings, tables, and the side that applies each option.

    Returns:
        Findings of the doctor.

    Raises:
        SourceError: the server cannot be reached now.
    """
    try:
        with open_sql(config) as sql:
            plan.profile = sql.profile
    except SourceRefusedError as error:
        plan.refuse("server", error)
        return []
    _plan_options(config, plan.profile, plan)
    try:
        with open_pair(config) as pair:
            _plan_server(config, pair, plan)
            return examine_gaussdb(GaussCheckInput(config, pair.state, inspect_gaussdb(pair.sql)))
    except SourceRefusedError as error:
        plan.refuse("replication", error)
    return []


def _plan_options(config: Config, profile: VersionProfile, plan: Plan) -> None:
    try:
        options = server_options(StreamRequest.of(config), profile)
        plan.command = start_command(config.slot, 0, options)
    except ConfigError as error:
        prefix = f"{config.path.name}: "
        plan.problems += [line.removeprefix(prefix) for line in str(error).splitlines()]


def _plan_server(config: Config, pair: GaussPair, plan: Plan) -> None:
    state = pair.state
    is_rounding = state.profile.rounds_floats(
        config.source.plugin, is_parallel=config.decoding.is_parallel
    )
    plan.server = state
    plan.warnings += [
        *gaussserver.warnings(state, is_parallel=config.decoding.is_parallel),
        *_warnings(config, state, plan.command or "", is_rounding=is_rounding),
    ]
    plan.problems += _standby_problems(config, state)
    try:
        plan.start_lsn = pair.check_start(config, plan.log)
    except SourceRefusedError as error:
        plan.problems.append(f"slot: {error}")
    if (problem := gaussserver.csn_slot_problem(state.slot)) is not None:
        plan.problems.append(f"slot: {problem}")
    if (refusal := config.beginning_refusal) is not None:
        (plan.problems if plan.log is None else plan.warnings).append(refusal)
    if (problem := gaussserver.coordinator_problem(state.is_coordinator)) is not None:
        plan.problems.append(f"server: {problem}")
    stored = read_tables(pair.sql, WhiteList(config.decoding.white_tables))
    found = unsent(stored)
    if found.unsent:
        plan.warnings.append(f"{listing(found.unsent, found.unsent_count)}: {UNSENT}")
    plan.tables = [_listed(table) for table in stored if table.is_by_row]
    names = {f"{table.schema}.{table.name}" for table in plan.tables}
    plan.columns = [
        column for column in _columns(pair.sql, is_rounding=is_rounding) if column.table in names
    ]
    if not plan.tables:
        plan.warnings.append("no table of the database is on white-table-list, or it has none")
    bare = [table_title(table.schema, table.name) for table in plan.tables if not table.can_update]
    if bare:
        plan.warnings.append(
            f"without replica identity: {listing(bare[:NAMED_TABLES], len(bare))}: UPDATE and DELETE come "
            "without the old key; give each a primary key, or ALTER TABLE ... REPLICA IDENTITY FULL"
        )


def _listed(table: StoredTable) -> ListedTable:
    """Describe a table; one in ustore without a key sends its old rows as if it were FULL."""
    is_default = table.identity == ReplicaIdentity.DEFAULT
    is_whole = is_default and table.is_ustore and not table.has_key
    identity = ReplicaIdentity.FULL if is_whole else table.identity
    return ListedTable(table.schema, table.name, identity, table.has_key)


def _warnings(
    config: Config, state: GaussServerState, command: str, *, is_rounding: bool
) -> Iterator[str]:
    """Warn of limits of the configured decoding mode."""
    decoding = config.decoding
    profile = state.profile
    mode = "parallel decoding" if decoding.is_parallel else f"{profile.name}, decoding serially,"
    if decoding.is_parallel or not profile.sends_truncate:
        yield (
            f"{mode} does not send TRUNCATE and DDL: current-state tables in Spark stop there "
            "unless told otherwise"
        )
    if profile.drops_after_ddl(is_parallel=decoding.is_parallel):
        yield f"{mode} drops the rows that follow DDL in their own transaction: {DDL_ADVICE}"
    if is_rounding:
        yield (
            f"{config.source.plugin} of {profile.name} rounds real to 6 and double precision to 15 "
            "digits: decode in parallel, or use source.plugin mppdb_decoding on 3.0.0 or newer"
        )
    # By CSN the option is always sent as false; see `protocol.gaussdb.options`.
    if decoding.is_parallel and decoding.skip_empty_xacts and not decoding.output_order:
        yield (
            "skip-empty-xacts: an idle slot advances only when a row of a listed table changes; "
            "update a heartbeat row now and then, or leave the option out"
        )
    if not decoding.is_parallel and not config.follows_keepalives:
        yield (
            "serial decoding: an idle slot advances only when a transaction of this database commits, "
            "and the server keeps the WAL of the whole instance until then; set "
            "decoding.auto-advance: true"
        )
    if defaults := state.settings.get("logical_decode_options_default"):
        held = ", ".join(_defaults_in_force(defaults, command)) or "nothing of it"
        yield (
            f"the server's logical_decode_options_default is {defaults}: {held} holds for this "
            "stream; what the configuration sets under decoding goes before it"
        )


def _defaults_in_force(defaults: str, command: str) -> Iterator[str]:
    """The server's defaults for streams that the stream's own options do not override."""
    for setting in defaults.split(","):
        name, _, value = setting.partition("=")
        if f'"{name.strip()}"' not in command:
            yield f"{name.strip()} {value.strip()}"


def _standby_problems(config: Config, state: GaussServerState) -> Iterator[str]:
    if config.decoding.standby_connection and not state.is_standby:
        yield (
            "decoding.standby-connection: the server is the primary, which ends such a stream with "
            "'walsender closed because of role is primary.'; name a standby in source.dsn, or leave "
            "the option out"
        )


def _columns(sql: GaussConnection, *, is_rounding: bool) -> Iterator[PlannedColumn]:
    for row in sql.query(ALL_COLUMNS):
        schema, table, name, _, modifier, spelled, base_oid, base_schema, base, is_key = (
            item or "" for item in row
        )
        oid = int(base_oid)
        user_type = None if is_built_in(oid) else (base_schema, base)
        held, type_name = column_type(oid, int(modifier), user_type)
        kept = _ROUNDED if is_rounding and oid in _FLOATS else fidelity(held, type_name)
        yield PlannedColumn(f"{schema}.{table}", name, spelled, arrow(held), kept, is_key == "t")
