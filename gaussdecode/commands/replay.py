"""Land a recording made by `gaussdecode capture`, as the daemon would have landed it.

Needs no server. The landing is created, or continued at its end: landing the same recording again adds
nothing. Recordings must follow each other without a gap.

At the end the command prints, for each stage, its share of time working, waiting for input, and
waiting for room behind it; and which stage was the limit. Transactions with a replication origin are
left out and counted, as by the daemon's default; --all-origins lands them.

With --output-order 1 a recording of GaussDB lands in CSN order, as one entry, once all of it was read.
The landing has that order from its first entry on. Another recording can continue it if all its CSNs
are higher.

Examples:
  gaussdecode replay orders.capture --root /var/tmp/orders
  gaussdecode replay orders.capture --root /var/tmp/orders --decoders 4
  gaussdecode replay orders.capture --root /var/tmp/orders --json | jq .limit
  gaussdecode replay orders.capture --root /var/tmp/by-csn --output-order 1
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Final

from gaussdecode import logs
from gaussdecode.console.arguments import count
from gaussdecode.console.signals import until_signal
from gaussdecode.console.table import print_table
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.status import report
from gaussdecode.daemon.status.facts import DaemonFacts, Running
from gaussdecode.daemon.status.landed import Durable
from gaussdecode.daemon.status.limit import Context
from gaussdecode.daemon.status.reading import Readings
from gaussdecode.daemon.status.values import Values
from gaussdecode.errors import EX_OK, ConfigError
from gaussdecode.host.lean_imports import forgo_pandas
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.words import counted
from gaussdecode.operations.owner import work_as_owner_of
from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.settings.options import DECODERS
from gaussdecode.settings.rules import BY_NAME, SourceKind
from gaussdecode.settings.sections import Config, MonitoringConfig, RingConfig
from gaussdecode.settings.source_sections import DecodingConfig, SourceConfig
from gaussdecode.source.capture import Capture

_FOREIGN: Final = "gaussdecode_collect_foreign_transactions_total"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, help="recording to land")
    parser.add_argument("--root", type=Path, required=True, help="directory of the landing")
    parser.add_argument("--decoders", type=count, default=1, metavar="N", help="1 to 20; default 1")
    parser.add_argument("--white-table-list", default="", metavar="LIST", help="schema.table,...")
    parser.add_argument(
        "--all-origins",
        action="store_true",
        help="also land transactions with a replication origin",
    )
    parser.add_argument(
        "--output-order", type=int, choices=(0, 1), default=0, help="0: by commit LSN, 1: by CSN"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--verbose", action="store_true", help="log every entry")


def execute(args: argparse.Namespace) -> int:
    """Run one session over the recording, and print the result."""
    forgo_pandas()
    work_as_owner_of(args.root)
    config = _config(args)
    logs.configure("info" if args.verbose else "warning", slot=config.slot)
    facts = DaemonFacts.of(config)
    began = ended = time.monotonic()

    def note_start() -> None:
        nonlocal began
        began = time.monotonic()

    with until_signal() as stop, Pipeline(config, stop.is_set) as pipeline:
        pipeline.recover()
        readings = Readings(facts, Running(), pipeline)
        session = pipeline.session(pipeline.check, note_start)
        session.run()
        ended = time.monotonic()
        readings.retire(session)
        values = readings.metrics()
        context = _context(facts, pipeline.lane_count)
        is_stopped = stop.is_set()
    _print(facts, context, pipeline.landed.durable, values, ended - began, is_json=args.json)
    if is_stopped:
        raise KeyboardInterrupt
    return EX_OK


def _print(
    facts: DaemonFacts,
    context: Context,
    durable: Durable,
    values: Values,
    seconds: float,
    *,
    is_json: bool,
) -> None:
    works = report.works(values, context.decoder_count, context.lane_count)
    limit = report.limit_of_run(works, values, seconds, context)
    foreign = int(sum(values.get(_FOREIGN, {}).values()))
    landed = {"root": str(facts.root), "durable_lsn": str(Lsn(durable.lsn))}
    if is_json:
        record = {
            **landed,
            "entry": durable.entry,
            "left_out_by_origin": foreign,
            **report.record(works, seconds, limit),
        }
        print(json.dumps(record, indent=2))
        return
    print(f"{facts.root}: landed up to {landed['durable_lsn']}, entry {durable.entry}")
    if foreign:
        print(
            f"left out: {counted(foreign, 'transaction')} with a replication origin; --all-origins lands them"
        )
    header, *rows = report.table(works, seconds)
    print_table(header, rows)
    print(limit.sentence)
    if limit.setting is not None:
        print(f"Remedy: {limit.setting}")


def _context(facts: DaemonFacts, lane_count: int) -> Context:
    return Context(
        is_streaming=True,
        reason=None,
        is_disk_full=False,
        decoder_count=facts.decoder_count,
        lane_count=lane_count,
        usual_lag_seconds=0.0,
    )


def _config(args: argparse.Namespace) -> Config:
    """Make the configuration that a file would give.

    Raises:
        ConfigError: the file is not a recording, or an argument is out of range.
    """
    capture = Capture(args.file)
    identity = capture.header.identity
    capture.close()
    if args.output_order and identity.kind != SourceKind.GAUSSDB:
        raise ConfigError(
            f"{args.file}: --output-order 1 needs the CSNs of GaussDB, and this is a recording of {identity.kind}; leave the option out"
        )
    try:
        DECODERS.read(args.decoders)
        BY_NAME["white-table-list"].type.read(args.white_table_list)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Config(
        path=args.file,
        slot=identity.slot,
        source=SourceConfig(kind=SourceKind.CAPTURE, file=args.file.resolve()),
        decoding=dataclasses.replace(
            DecodingConfig.of(SourceKind.CAPTURE),
            parallel_decode_num=args.decoders,
            white_table_list=args.white_table_list,
            only_local=not args.all_origins,
            output_order=args.output_order,
        ),
        landing=LandingConfig(root=args.root.resolve()),
        ring=RingConfig(),
        monitoring=MonitoringConfig(),
    )
