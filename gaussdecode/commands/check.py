"""Check whether the daemon could run with a configuration, and show what it would do.

First the verdict. Then the problems that keep the daemon from running, and other findings: why each
matters, and the command that repairs it. Then the plan: server, slot, start of the stream, number of
tables, landing, memory. The options below show the rest of the plan. The command changes nothing,
except a temporary file beside the landing and a temporary object in the mirror. If systemd has the unit
of the configuration, the files are checked with the rights of its account too.

Exits with 0 when the daemon can run, 78 when it cannot, 69 when the server cannot be reached.

Examples:
  gaussdecode check /etc/gaussdecode/orders.yaml
  gaussdecode check --offline config/example.yaml
  gaussdecode check --tables --columns orders.yaml
  gaussdecode check --quiet orders.yaml      # prints nothing if there is nothing to do
"""

import argparse
import collections
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gaussdecode.console.table import terminal_width
from gaussdecode.errors import AccessError, ConfigError, SourceError, SourceRefusedError
from gaussdecode.host.process_memory import process_memory_bytes
from gaussdecode.land.names import SERVE
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.words import counted, printable
from gaussdecode.operations.check.catalog_postgresql import catalog_findings
from gaussdecode.operations.check.certificates import examine_certificates
from gaussdecode.operations.check.doctor import CheckInput, Finding, examine_server
from gaussdecode.operations.check.landing import examine_landing, examine_memory
from gaussdecode.operations.check.mirror import examine_mirror
from gaussdecode.operations.check.plan import (
    Plan,
    doubtful_values,
    option_rows,
    plan_landing,
    plan_server,
)
from gaussdecode.operations.check.plan_gaussdb import plan_gaussdb
from gaussdecode.operations.check.port import examine_port
from gaussdecode.operations.check.report import Grid, Report
from gaussdecode.operations.check.serve import examine_serve
from gaussdecode.operations.check.source_tables import differing_tables
from gaussdecode.operations.check.unit import serve_unit_problems, unit_problems
from gaussdecode.operations.connections import address_of, is_gaussdb, open_server
from gaussdecode.operations.owner import load_as_owner
from gaussdecode.operations.unit import SERVE_UNIT, find_unit, unit_memory_max, unit_of
from gaussdecode.settings.dsn import describe
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.source_sections import NOT_STREAMED
from gaussdecode.source.gaussdb.server import GaussServerState
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.inspection import inspect
from gaussdecode.source.postgresql.slot import streaming_of
from gaussdecode.source.slot import Place, SlotState
from gaussdecode.source.start import same_place_problem

_MIB: Final = 2**20
_IDENTITIES: Final = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
_SECTIONS: Final = ("tables", "columns", "memory", "options")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")
    parser.add_argument("--offline", action="store_true", help="read the file only")
    parser.add_argument("--tables", action="store_true", help="show the tables that would land")
    parser.add_argument("--columns", action="store_true", help="show how their columns land")
    parser.add_argument("--memory", action="store_true", help="show every buffer and its bound")
    parser.add_argument("--options", action="store_true", help="show each decoding option")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as one JSON object")
    form.add_argument("--quiet", action="store_true", help="print problems only")


def execute(args: argparse.Namespace) -> int:
    """Check, and report problems first."""
    report = Report(args.config.name, is_offline=args.offline)
    try:
        _examine(load_as_owner(args.config, lambda config: _look_at_unit(config, report)), report)
    except ConfigError as error:
        if not args.json:
            raise
        prefix = f"{args.config.name}: "
        report.problems += [line.removeprefix(prefix) for line in str(error).splitlines()]
    if args.json:
        print(json.dumps(report.to_record(), indent=2))
    elif not (args.quiet and report.is_clean):
        shown = [name for name in _SECTIONS if getattr(args, name)]
        width = terminal_width()
        lines = report.brief_lines(width) if args.quiet else report.lines(shown, width)
        print(printable("\n".join(lines)))
    return report.exit_status


def _look_at_unit(config: Config, report: Report) -> None:
    """Add problems of the unit; root sees its files, which the owner of the landing may not."""
    if not report.is_offline:
        report.problems += unit_problems(config, find_unit(config.path))
        report.problems += serve_unit_problems(config, find_unit(config.path, SERVE_UNIT))


def _examine(config: Config, report: Report) -> None:
    """Run all checks and fill the report."""
    plan = Plan()
    if not report.is_offline:
        plans: dict[str, Plan] = {}
        places: dict[str, Place] = {}
        for name, member in config.members.items():
            plan = _examine_source(name if config.is_several else None, member, report, plan)
            plans[name] = plan
            if plan.server is not None:
                places[name] = plan.server.place
        same = same_place_problem(places)
        if same is not None:
            plan.problems.append(same)
        if config.is_several:
            report.findings += differing_tables(config, plans)
        _report_landing(config, plan, report)
        if config.mirror.is_on:
            _report_mirror(config, report)
        unit = unit_of(config.path)
        report.findings += [
            *examine_landing(config),
            *examine_certificates(config),
            *examine_memory(config, unit_memory_max(unit), f"MemoryMax of {unit}"),
        ]
        _ask_daemon(config, report)
        _report_serve(config, report)
    _report_memory(config, report)
    options = option_rows(config, plan.profile)
    report.grids["options"] = Grid(
        "decoding options", ("option", "value", "done by", "how"), options
    )
    report.problems += plan.problems
    report.notes += [*doubtful_values(config), *plan.warnings]
    report.unexamined += plan.unexamined


def _examine_source(source: str | None, config: Config, report: Report, before: Plan) -> Plan:
    """Check a source, and its part of the landing; return its plan.

    Args:
        source: name of the source, if there are several; else None.
        config: configuration of the source.
        report: report that receives the results.
        before: plan of the previous source, whose problems are kept.
    """
    plan = Plan()
    facts = len(report.facts)
    findings = len(report.findings)
    plan_landing(config, plan, source)
    if config.source.kind is not SourceKind.CAPTURE:
        _ask_server(config, plan, report)
        _report_server(config, plan, report)
        _report_tables(config, plan, report)
    if source is not None:
        report.facts[facts:] = [(f"{source}: {what}", text) for what, text in report.facts[facts:]]
        report.findings[findings:] = [
            dataclasses.replace(found, what=f"{source}: {found.what}")
            for found in report.findings[findings:]
        ]
        if report.unreached is not None and not report.unreached.startswith("source "):
            report.unreached = f"source {source}: {report.unreached}"
        for texts in (plan.problems, plan.warnings, plan.unexamined):
            texts[:] = [f"{source}: {text}" for text in texts]
    plan.problems[:0] = before.problems
    plan.warnings[:0] = before.warnings
    plan.unexamined[:0] = before.unexamined
    plan.profile = plan.profile or before.profile
    return plan


def _ask_daemon(config: Config, report: Report) -> None:
    """Add problems of the port, or the problems that the running daemon reports."""
    port = examine_port(config)
    if port.problem is not None:
        report.problems.append(port.problem)
    told = {finding.state for finding in port.findings if finding.state is not None}
    report.findings = [each for each in report.findings if each.state not in told]
    report.findings += port.findings
    text = "not running" if port.record is None else f"running, {port.record['state']}"
    report.facts.append(("daemon", text))


def _ask_server(config: Config, plan: Plan, report: Report) -> None:
    """Fill in the plan, and add the doctor's findings about the server."""
    try:
        report.findings += _examine_server(config, plan)
    except AccessError:
        raise  # the command line says which user may
    except (ConfigError, SourceRefusedError) as error:
        plan.refuse("server", error)
    except SourceError as error:
        report.unreached = f"server: {error}"
        plan.unexamined.append("the server")


def _examine_server(config: Config, plan: Plan) -> list[Finding]:
    if is_gaussdb(config):
        return plan_gaussdb(config, plan)
    with open_server(config) as connection:
        server = plan_server(config, connection, plan)
    with connect(address_of(config), is_replication=False) as connection:
        seen = inspect(connection, config.slot, config.source.publication)
        of_catalog = list(catalog_findings(connection, config))
    plan.ddl_triggers = seen.ddl_triggers
    inputs = CheckInput(config, server, plan.tables, seen, plan.coverage)
    return [*examine_server(inputs), *of_catalog]


def _report_server(config: Config, plan: Plan, report: Report) -> None:
    server = plan.server
    report.facts.append(("server", describe(config.source.dsn)))
    if server is None:
        return
    if isinstance(server, GaussServerState):
        report.facts += _gaussdb_facts(config, server)
    else:
        major, minor = divmod(server.version, 10000)
        version = f"PostgreSQL {major}.{minor}, encoding {server.encoding}"
        report.facts.append(("version", version))
    start = "nowhere, see above" if plan.start_lsn is None else str(plan.start_lsn)
    report.facts += [
        ("cluster", f"{server.system_identifier}, timeline {server.timeline}"),
        ("slot", f"{config.slot}: {_slot_text(server.slot, server.wal_end)}"),
        ("starts at", start),
    ]
    if config.source.kind is SourceKind.POSTGRESQL and config.source.streaming != NOT_STREAMED:
        mode, version = streaming_of(server.version, config.source.streaming)
        report.facts.append(
            ("streaming", f"{mode}, protocol {version}: open transactions wait here")
        )
    if config.source.publication:
        report.facts.append(("publication", ", ".join(config.source.publication)))
    if plan.ddl_triggers is not None:
        text = "recorded by event triggers" if plan.ddl_triggers else "not recorded (ddl install)"
        report.facts.append(("DDL", text))
    if plan.command:
        report.facts.append(("command", plan.command))


def _gaussdb_facts(config: Config, server: GaussServerState) -> Iterator[tuple[str, str]]:
    role = "standby" if server.is_standby else "primary"
    yield "version", f"{server.profile.name}, {role}, encoding {server.encoding}"
    port = "the same port" if config.source.ha_port is None else f"port {config.source.ha_port}"
    if config.source.ha_port is None and server.settings.get("enable_thread_pool") == "on":
        port = "the next port, because enable_thread_pool is on"
    yield "replication", f"{port}; pg_hba.conf needs a line for replication and one for SQL"
    settings = [
        f"{name} {server.settings[name]}"
        for name in ("DateStyle", "IntervalStyle", "TimeZone", "sql_compatibility")
        if name in server.settings
    ]
    yield "values", ", ".join(settings)


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


def _report_tables(config: Config, plan: Plan, report: Report) -> None:
    if plan.server is None:
        return
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
    kept = collections.Counter(column.fidelity for column in plan.columns)
    kinds = "; ".join(f"{number} {fidelity}" for fidelity, number in kept.most_common())
    report.facts += [
        ("tables", f"{len(rows)} (--tables)"),
        ("columns", f"{len(plan.columns)} (--columns){': ' if kinds else ''}{kinds}"),
    ]
    report.grids["tables"] = Grid(
        counted(len(rows), "table"),
        ("table", "replica identity", "primary key", "update and delete"),
        rows,
    )
    report.grids["columns"] = Grid(
        counted(len(plan.columns), "column"),
        ("table", "column", "server type", "lands as", "values"),
        [(c.table, c.name, c.server_type, c.arrow_type, c.fidelity) for c in plan.columns],
    )


def _report_landing(config: Config, plan: Plan, report: Report) -> None:
    root = config.landing.root
    if plan.log is not None:
        text = f"landed up to {plan.log.lsn}, of slot {plan.log.slot}"
    else:
        text = plan.landing
    report.facts.append(("landing", f"{root}: {text}"))


def _report_mirror(config: Config, report: Report) -> None:
    seen = examine_mirror(config)
    report.facts.append(("mirror", seen.text))
    report.problems += seen.problems
    report.findings += seen.findings


def _report_serve(config: Config, report: Report) -> None:
    """Judge what `gaussdecode serve` reads, where it is configured or has served."""
    if config.serve == ServeConfig() and not os.path.exists(config.landing.root / SERVE):
        return
    seen = examine_serve(config)
    report.facts.append(("serve", f"{config.serve.listen}, {seen.text}"))
    report.problems += seen.problems
    report.findings += seen.findings


def _report_memory(config: Config, report: Report) -> None:
    budget = config.memory_budget()
    total = sum(budget.values())
    row = config.row_memory_bytes
    text = (
        f"{total / _MIB:.0f} MiB of buffers at most (--memory); one row of source.max-row-bytes "
        f"({config.source.max_row_bytes / _MIB:.0f} MiB) takes up to {row / _MIB:.0f} MiB beside that, over "
        "all processes"
    )
    report.facts.append(("memory", text))
    rows = [(name, f"{size / _MIB:.0f} MiB") for name, size in budget.items()]
    report.grids["memory"] = Grid(
        "memory, at most", ("buffers", "size"), [*rows, ("sum", f"{total / _MIB:.0f} MiB")]
    )
    available = process_memory_bytes()
    if available is not None and total > available // 2:
        report.findings.append(
            Finding(
                f"{total / _MIB:.0f} MiB of buffers on a machine with {available / _MIB:.0f} MiB",
                "when it is short of memory the kernel kills the daemon, or the server beside it",
                "lower landing.memory-bytes, landing.writer-lanes or the ring sizes",
            )
        )
