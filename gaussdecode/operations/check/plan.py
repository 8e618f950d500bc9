"""Plan what the daemon would do with a configuration on its server, for `check`.

Asks the server and looks at the landing, and changes neither. Every error becomes a problem in words,
so that all are shown at once.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Final

from gaussdecode.daemon.position import landing_position
from gaussdecode.errors import AccessError, GaussDecodeError, IdentityError
from gaussdecode.host.access import is_there
from gaussdecode.land.entry import Entries
from gaussdecode.land.layout import check_sources, read_layout
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import table_title
from gaussdecode.model.types import ColumnType, Kind, column_type
from gaussdecode.operations.check.doctor import LEAST_TIMEOUT_MS
from gaussdecode.operations.landing_files import opened
from gaussdecode.operations.owner import landing_owner
from gaussdecode.protocol.gaussdb.profile import VersionProfile
from gaussdecode.settings.option import Doer, Option, Section, ServerProfile, SourceKind
from gaussdecode.settings.options import OPTIONS
from gaussdecode.settings.sections import Config
from gaussdecode.source.coverage import Coverage, compare
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.postgresql.publications import conflicts_sql, tables_of
from gaussdecode.source.postgresql.slot import ListedTable, published_tables, read_server
from gaussdecode.source.slot import LandingPosition, ServerState
from gaussdecode.source.start import check_start, primary_problem, publication_problem, warnings
from gaussdecode.wire.encoding import find_encoding, spelled_name

_LEAST_KEPT: Final = 1 << 20  # bytes; arbitrary: the result of one batch
_FIRST_USER_OID: Final = 10000  # types from here on come with a Type message
_ARROW: Final = {
    Kind.BOOL: "bool",
    Kind.INT16: "int16",
    Kind.INT32: "int32",
    Kind.INT64: "int64",
    Kind.FLOAT32: "float32",
    Kind.FLOAT64: "float64",
    Kind.DATE: "date32",
    Kind.TIMESTAMP: "timestamp[us]",
    Kind.TIMESTAMPTZ: "timestamp[us, UTC]",
    Kind.STRING: "string",
    Kind.BINARY: "binary",
    Kind.INTERVAL: "struct<months, days, micros>",
}
_TEXTS: Final = frozenset({"text", "character varying", "character", "name", '"char"'})
_FIDELITY: Final = {
    Kind.DECIMAL: "exact; NaN in gd_raw",
    Kind.DATE: "exact; infinity, BC and years past 9999 in gd_raw",
    Kind.TIMESTAMP: "exact; infinity, BC and years past 9999 in gd_raw",
    Kind.TIMESTAMPTZ: "exact; infinity, BC and years past 9999 in gd_raw",
    Kind.LIST: "exact; arrays of several dimensions in gd_raw",
}
_COLUMNS: Final = """
    SELECT n.nspname, c.relname, a.attname, a.atttypid, a.atttypmod,
        pg_catalog.format_type(a.atttypid, a.atttypmod), bn.nspname, b.typname,
        EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid
            AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
            AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false ELSE i.indisprimary END)
    FROM ({tables}) p JOIN pg_catalog.pg_class c ON c.oid = p.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = ''
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
    JOIN pg_catalog.pg_namespace bn ON bn.oid = b.typnamespace
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, a.attnum
    ORDER BY 1, 2, a.attnum
"""


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedColumn:
    """One column: its type, and which values it keeps exactly.

    Attributes:
        table: ``schema.name``.
        name: name of the column.
        server_type: type as the server spells it.
        arrow_type: type that it lands as.
        fidelity: values that are exact, and those that are not.
        is_key: whether it is part of the key.
    """

    table: str
    name: str
    server_type: str
    arrow_type: str
    fidelity: str
    is_key: bool = False


@dataclasses.dataclass(slots=True)
class Plan:
    """The plan that `check` prints.

    Attributes:
        server: state of the server, or None if it was not asked.
        log: position of the landing, or None if there is none yet or it cannot be read.
        landing: the landing in words, if there is no `log`.
        start_lsn: position where streaming would begin, or None if it must not.
        tables: tables that would land.
        columns: columns of these tables.
        warnings: warnings for the operator.
        problems: problems that keep the daemon from running.
        profile: profile of the GaussDB or openGauss server that answered, else None.
        command: command that would start the stream; empty if it must not start.
        coverage: tables that only publications or only the white list has.
        unexamined: checks that the server refused.
        ddl_triggers: event triggers of ours in the database; None where that was not asked.
    """

    server: ServerState | None = None
    log: LandingPosition | None = None
    landing: str = "not looked at"
    start_lsn: Lsn | None = None
    tables: list[ListedTable] = dataclasses.field(default_factory=list)
    columns: list[PlannedColumn] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    profile: VersionProfile | None = None
    command: str = ""
    coverage: Coverage = dataclasses.field(default_factory=Coverage)
    unexamined: list[str] = dataclasses.field(default_factory=list)
    ddl_triggers: int | None = None

    def refuse(self, where: str, error: Exception) -> None:
        """Record that the server refused a connection, so that a check did not run."""
        self.problems.append(f"{where}: {error}")
        self.unexamined.append("the server's settings and rights")


def plan_landing(config: Config, plan: Plan, source: str | None = None) -> None:
    """Examine the landing: is the root usable, which slot is it for, how far is it?

    Args:
        config: configuration of the source.
        plan: plan that receives the results.
        source: name of the source in the landing, if there are several; else None.
    """
    root = config.landing.root
    plan.landing = "cannot be read, see above"
    try:
        if not is_there(root):
            plan.landing = f"will be created by `slot create`, owned by {landing_owner(config)}"
            place = next(parent for parent in root.parents if parent.exists())
            if not place.is_dir():
                plan.problems.append(f"landing: {place} is not a directory; change landing.root")
            return
        with opened(root) as disk:
            disk.files.check_root()
            layout = read_layout(disk)
            plan.landing = "empty" if layout is None else "holds no entry yet"
            if layout is not None and source is not None:
                check_sources(layout, [*layout.sources, source])
            if layout is not None:
                name = source or next(iter(layout.sources))
                plan.log = landing_position(layout, Entries(disk), name)
    except AccessError as error:
        plan.problems.append(f"landing: {error}; use: sudo gaussdecode check {config.path}")
    except GaussDecodeError as error:
        plan.problems.append(f"landing: {error}")


def plan_server(config: Config, connection: Connection, plan: Plan) -> ServerState:
    """Ask the server: version, slot, publication, tables, columns."""
    publications = config.source.publication
    server = read_server(connection, config.slot, publications, plan.log)
    plan.server = server
    plan.warnings += warnings(server.version)
    if not find_encoding(server.encoding).is_known:
        plan.warnings.append(
            f"database encoding {server.encoding}: texts that are not ASCII go to gd_raw, escaped"
        )
    if server.encoding == "SQL_ASCII":
        plan.warnings.append("database encoding SQL_ASCII: bytes that are no UTF-8 go to gd_raw")
    primary = primary_problem(server, None, wants_standby=config.decoding.standby_connection)
    if primary is not None:
        plan.problems.append(primary)
    try:
        plan.start_lsn = check_start(
            plan.log, server, config.slot, two_phase=config.source.two_phase
        )
    except IdentityError as error:
        plan.problems.append(f"slot: {error}")
        missing = publication_problem(server)
        if missing is not None and missing != str(error):
            plan.problems.append(f"publication: {missing}")
    plan.problems += column_conflicts(connection, publications)
    listed = config.decoding.white_tables
    published = published_tables(connection, publications)
    plan.coverage = compare(listed, ((table.schema, table.name) for table in published))
    plan.tables = [
        table
        for table in published
        if not listed or any(s in {"*", table.schema} and t in {"*", table.name} for s, t in listed)
    ]
    names = {f"{table.schema}.{table.name}" for table in plan.tables}
    plan.columns = [column for column in _columns(connection, config) if column.table in names]
    if not plan.tables:
        plan.warnings.append("no table of the publication is on white-table-list, or it has none")
    return server


def column_conflicts(connection: Connection, publications: Sequence[str]) -> list[str]:
    """Name tables with different columns in several publications; no server sends these."""
    found: dict[str, list[str]] = {}
    for schema, name, publication, columns in connection.query(
        conflicts_sql(publications, connection.server_version)
    ):
        title = table_title(spelled_name(schema or ""), spelled_name(name or ""))
        listed = ", ".join(json.loads(columns or "[]"))
        found.setdefault(title, []).append(f"{publication} ({listed})")
    return [
        f"publication: table {title} is in several with different columns: {', '.join(of)}. The server "
        "refuses to send it, and the stream ends there for good: make the lists the same (ALTER PUBLICATION "
        "... SET TABLE) before a change of it is committed"
        for title, of in found.items()
    ]


def _columns(connection: Connection, config: Config) -> list[PlannedColumn]:
    tables = tables_of(config.source.publication, connection.server_version)
    planned = []
    for row in connection.query(_COLUMNS.format(tables=tables)):
        schema, table, name, oid, modifier, spelled, base_schema, base, is_key = (
            spelled_name(item or "") for item in row
        )
        user_type = (base_schema, base) if int(oid) >= _FIRST_USER_OID else None
        held, type_name = column_type(int(oid), int(modifier), user_type)
        planned.append(
            PlannedColumn(
                f"{schema}.{table}",
                name,
                spelled,
                arrow(held),
                fidelity(held, type_name),
                is_key == "t",
            )
        )
    return planned


def arrow(held: ColumnType) -> str:
    """Format the Arrow type of a column."""
    if held.kind is Kind.LIST:
        assert held.element is not None  # for mypy: checked at construction
        element = ColumnType(held.element, precision=held.precision, scale=held.scale)
        return f"list<{arrow(element)}>"
    if held.kind is Kind.DECIMAL:
        return f"decimal128({held.precision}, {held.scale})"
    return _ARROW[held.kind]


def fidelity(held: ColumnType, type_name: str) -> str:
    """Describe which values a column keeps exactly."""
    if held.kind is Kind.STRING and type_name not in _TEXTS:
        return "the server's text"
    return _FIDELITY.get(held.kind, "exact")


def doubtful_values(config: Config) -> Iterator[str]:
    """Name values that are allowed, and do not do what somebody may expect."""
    decoding = config.decoding
    timeout = decoding.sender_timeout
    if timeout is not None and 0 < timeout < LEAST_TIMEOUT_MS:
        yield (
            f"decoding.sender-timeout: {timeout} ms is too short: a pause of the network or a large transaction "
            f"ends the stream; use {LEAST_TIMEOUT_MS} or more, or leave it out for the server's value"
        )
    if config.source.receiver_timeout * 1000 < LEAST_TIMEOUT_MS:
        yield (
            "source.receiver-timeout: is too short: a pause of the network or of the server ends the connection; "
            f"use {LEAST_TIMEOUT_MS // 1000}s or more"
        )
    if decoding.kept_buffer_bytes < _LEAST_KEPT:
        yield (
            f"decoding.change-log-max-len ({decoding.change_log_max_len}) times max-decode-to-sender-cache-num "
            f"({decoding.max_decode_to_sender_cache_num}) is {decoding.kept_buffer_bytes} bytes: a decoder frees and makes "
            f"its buffer anew for almost every batch; use {_LEAST_KEPT} or more"
        )
    if config.source.kind is SourceKind.GAUSSDB:
        for name in sorted({"logical-receiver-num", "slice-id"} & decoding.given.keys()):
            yield f"decoding.{name}: has an effect on peek only, not on a landing"


def option_row(
    option: Option, config: Config, server: ServerProfile | None = None
) -> tuple[str, str, str, str]:
    """Describe one option: name, value, the side that applies it, and how."""
    kind, is_parallel = config.source.kind, config.decoding.is_parallel
    candidates = option.candidates(kind, server)
    if not config.decoding.has(option.section):
        numbers = "from 2 to 20" if option.section is Section.PARALLEL else "1"
        return option.name, "-", "nobody", f"applies only with parallel-decode-num {numbers}"
    default = option.effective_default(kind, is_parallel=is_parallel)
    value = config.decoding.given.get(option.name, default)
    spelled = "the server's" if value is None else option.type.show(value)
    if all(support.by is Doer.REFUSED for support in candidates):
        spelled = "-"
    by = [str(support.by) for support in candidates]
    how = [support.how for support in candidates]
    return option.name, spelled, _by_product(by), _by_product(how)


def _by_product(texts: list[str]) -> str:
    """One text if it holds for both products, else one for each."""
    if len(set(texts)) == 1:
        return texts[0]
    return f"GaussDB: {texts[0]}; openGauss: {texts[1]}"


def option_rows(
    config: Config, server: ServerProfile | None = None
) -> list[tuple[str, str, str, str]]:
    """Describe all options.

    Args:
        config: the configuration.
        server: state of a server of kind gaussdb; None if it was not asked: then both products are
            described.
    """
    return [option_row(option, config, server) for option in OPTIONS]
