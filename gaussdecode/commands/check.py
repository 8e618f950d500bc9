"""Say whether a configuration is right, and what the daemon would do with it.

Reads the file and reports every mistake at once; then looks at the landing, connects, and
prints the plan: server, slot, tables and how their columns land, memory, and for each
of GaussDB's options who does it. Of a GaussDB or openGauss it shows the version and the
command that would start the stream, and warns of what cannot be seen in the mode asked for.
Then the doctor's findings, the memory limit of the unit among them: what is unwise around it, why it matters, and what to do.
Changes nothing but a file of its own beside the landing, which it removes. Ends with 78 when the daemon could not run.

Examples:
  gaussdecode check /etc/gaussdecode/orders.yaml
  gaussdecode check --offline config/example.yaml
  gaussdecode check --columns orders.yaml
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gaussdecode.commands._doctor import (
    Finding,
    Patient,
    examine_landing,
    examine_memory,
    examine_server,
)
from gaussdecode.commands._gaussplan import plan_gaussdb
from gaussdecode.commands._plan import Plan, option_rows, plan_landing, plan_server
from gaussdecode.commands._server import address_of, is_gaussdb, open_server
from gaussdecode.commands._table import print_table
from gaussdecode.commands._unit import unit_memory_max, unit_of
from gaussdecode.errors import EX_OK, ConfigError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.dsn import describe
from gaussdecode.settings.load import load, process_memory_bytes
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.gaussdb.server import GaussServerState
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.inspection import inspect
from gaussdecode.source.slot import SlotState

_MANY_TABLES: Final = 20  # above this, columns are shown only when asked for
_MIB: Final = 2**20
_IDENTITIES: Final = {"d": "default", "n": "nothing", "f": "full", "i": "index"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")
    parser.add_argument("--offline", action="store_true", help="read the file only")
    parser.add_argument("--columns", action="store_true", help="show the columns of all tables")


def execute(args: argparse.Namespace) -> int:
    """Check, print the plan, and end with everything that is wrong."""
    config = load(args.config)
    print(f"{config.path.name}: the configuration is right")
    plan = Plan()
    findings: list[Finding] = []
    if not args.offline:
        plan_landing(config, plan)
        if config.source.kind is not SourceKind.CAPTURE:
            findings = _ask_server(config, plan)
            _print_server(config, plan)
            _print_tables(config, plan, are_columns_wanted=args.columns)
        _print_landing(config, plan)
        unit = unit_of(config.path)
        memory = examine_memory(config, unit_memory_max(unit), f"MemoryMax of {unit}")
        _print_findings([*findings, *examine_landing(config), *memory])
    _print_memory(config)
    _print_options(config, plan)
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if plan.problems:
        raise ConfigError("\n".join(f"{config.path.name}: {text}" for text in plan.problems))
    return EX_OK


def _ask_server(config: Config, plan: Plan) -> list[Finding]:
    """Fill in the plan; give what the doctor finds on the server."""
    if is_gaussdb(config):
        return plan_gaussdb(config, plan)
    try:
        with open_server(config) as connection:
            server = plan_server(config, connection, plan)
        with connect(address_of(config), is_replication=False) as connection:
            seen = inspect(connection, config.source.publication)
    except SourceRefusedError as error:
        plan.problems.append(f"server: {error}")
        return []
    return examine_server(Patient(config, server, plan.tables, seen, plan.coverage))


def _print_findings(findings: Sequence[Finding]) -> None:
    _title(f"findings: {len(findings) or 'none'}")
    for finding in findings:
        print(f" - {finding.what}\n   why:  {finding.why}\n   do:   {finding.remedy}")


def _title(text: str) -> None:
    print(f"\n{text}")


def _print_server(config: Config, plan: Plan) -> None:
    server = plan.server
    if server is None:
        return
    _title("source")
    print(f" server       {describe(config.source.dsn)}")
    if isinstance(server, GaussServerState):
        _print_gaussdb(config, server)
    else:
        major, minor = divmod(server.version, 10000)
        print(f" version      PostgreSQL {major}.{minor}, encoding {server.encoding}")
    print(f" cluster      {server.system_identifier}, timeline {server.timeline}")
    print(f" slot         {config.slot}: {_slot_text(server.slot, server.wal_end)}")
    start = "nowhere, see below" if plan.start_lsn is None else str(plan.start_lsn)
    print(f" starts at    {start}")
    if config.source.publication:
        print(f" publication  {', '.join(config.source.publication)}")
    if plan.command:
        print(f" command      {plan.command}")


def _print_gaussdb(config: Config, server: GaussServerState) -> None:
    role = "standby" if server.is_standby else "primary"
    print(f" version      {server.profile.name}, {role}, encoding {server.encoding}")
    port = "the same port" if config.source.ha_port is None else f"port {config.source.ha_port}"
    if config.source.ha_port is None and server.settings.get("enable_thread_pool") == "on":
        port = "the next port, because enable_thread_pool is on"
    print(f" replication  {port}; pg_hba.conf needs a line for replication and one for SQL")
    settings = [
        f"{name} {server.settings[name]}"
        for name in ("DateStyle", "IntervalStyle", "TimeZone", "sql_compatibility")
        if name in server.settings
    ]
    print(f" values       {', '.join(settings)}")


def _slot_text(slot: SlotState | None, wal_end: Lsn) -> str:
    if slot is None:
        return "does not exist"
    parts = [f"plug-in {slot.plugin}", f"database {slot.database}"]
    parts.append(f"in use by process {slot.active_pid}" if slot.is_active else "not in use")
    if slot.confirmed_flush_lsn is not None:
        behind = max(0, wal_end - slot.confirmed_flush_lsn)
        parts.append(f"confirmed {slot.confirmed_flush_lsn}, {behind} bytes behind")
    if slot.wal_status not in {None, "reserved"}:
        parts.append(f"WAL {slot.wal_status}")
    return ", ".join(parts)


def _print_tables(config: Config, plan: Plan, *, are_columns_wanted: bool) -> None:
    if not plan.tables:
        return
    _title(f"{len(plan.tables)} tables")
    without_identity = "without the old key" if is_gaussdb(config) else "refused by the server"
    rows = [
        (
            f"{table.schema}.{table.name}",
            _IDENTITIES.get(table.identity, table.identity),
            "yes" if table.has_primary_key else "no",
            "yes" if table.can_update else without_identity,
        )
        for table in plan.tables
    ]
    print_table(("table", "replica identity", "primary key", "update and delete"), rows)
    if not are_columns_wanted and len(plan.tables) > _MANY_TABLES:
        print(f" ({len(plan.columns)} columns; --columns shows how they land)")
        return
    _title("columns")
    print_table(
        ("table", "column", "server type", "lands as", "values"),
        [(c.table, c.name, c.server_type, c.arrow_type, c.fidelity) for c in plan.columns],
    )


def _print_landing(config: Config, plan: Plan) -> None:
    _title("landing")
    root = config.landing.root
    if plan.log is not None:
        print(f" {root}: landed up to {plan.log.lsn}, of slot {plan.log.slot}")
    else:
        print(f" {root}: {'empty' if root.exists() else 'will be created'}")


def _print_memory(config: Config) -> None:
    _title("memory, at most")
    budget = config.memory_budget()
    total = sum(budget.values())
    rows = [(name, f"{size / _MIB:.0f} MiB") for name, size in budget.items()]
    available = process_memory_bytes()
    print_table(("buffers", "size"), [*rows, ("sum", f"{total / _MIB:.0f} MiB")])
    row = config.row_memory_bytes
    print(
        f"one row of source.max-row-bytes ({config.source.max_row_bytes / _MIB:.0f} MiB) takes up to "
        f"{row / _MIB:.0f} MiB beside that, over all processes"
    )
    if available is not None and total > available // 2:
        print(
            f"warning: {total / _MIB:.0f} MiB of buffers on a machine with "
            f"{available / _MIB:.0f} MiB; lower landing.memory-bytes or the ring sizes",
            file=sys.stderr,
        )


def _print_options(config: Config, plan: Plan) -> None:
    _title("decoding options")
    print_table(("option", "value", "done by", "how"), option_rows(config, plan.profile))
