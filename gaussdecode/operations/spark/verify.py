"""Compare a target with its source: ``gaussdecode spark verify``."""

import argparse
import json
from pathlib import Path

from gaussdecode.console.arguments import count, seconds
from gaussdecode.console.metrics_file import write_metrics
from gaussdecode.errors import EX_IOERR, EX_OK, ConfigError
from gaussdecode.operations.spark.arguments import (
    engine_arguments,
    engine_of,
    flag,
    landing_argument,
    names,
    source_arguments,
    tables_argument,
    target_argument,
)
from gaussdecode.settings.sections import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    landing_argument(parser)
    target_argument(parser)
    source_arguments(parser)
    tables_argument(parser)
    parser.add_argument(
        "--wait", type=seconds, default=60.0, metavar="SECONDS",
        help="longest wait for open transactions of the source, and for the landing to reach the position",
    )  # fmt: skip
    parser.add_argument("--limit", type=count, default=100, metavar="ROWS", help="keys shown")
    flag(parser, "--repair", "ask the daemon for snapshots of the differing rows or tables")
    parser.add_argument("--metrics-file", type=Path, metavar="FILE", help="for Prometheus")
    flag(parser, "--json", "print one object")
    engine_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Compare, and ask for repairs."""
    from gaussdecode.operations.compare.compare import Comparison, report_lines
    from gaussdecode.settings.rules import SourceKind
    from gaussdecode.snapshot.held import Server
    from gaussdecode.source.address import SourceAddress, source_address

    if args.repair and not isinstance(args.root, Path):
        raise ConfigError(
            f"{args.root}: --repair asks the daemon, in its own directory; verify with it on its host, "
            "or run gaussdecode snapshot there"
        )
    if args.config is not None:
        server = Server.of(args.config, source_address(args.config))
    else:
        address = SourceAddress(args.dsn, is_insecure_allowed=args.allow_insecure)
        server = Server(SourceKind.POSTGRESQL, address, "gaussdecode_verify", args.wait)
    with engine_of(args) as engine:
        comparison = Comparison(engine, args.root, args.target, server, args.config, args.wait)
        result = comparison.run(names(args.tables))
        if args.repair:
            result = comparison.ask_for_repair(result)
    if args.metrics_file is not None:
        write_metrics(args.metrics_file, result.metrics_text(args.target))
    if args.json:
        print(json.dumps(result.to_record()))
    else:
        print("\n".join(report_lines(result, args.limit)))
    return EX_OK if result.is_equal else EX_IOERR


def check_source(config: Config) -> None:
    """Refuse a source whose rows cannot be compared.

    Raises:
        ConfigError: its rows cannot be read, or the stream would not tell their position.
    """
    if config.snapshot_refusal is not None:
        raise ConfigError(config.snapshot_refusal)
    if config.lands_by_csn:
        raise ConfigError(
            "spark verify finds a position by LSN, which a landing by CSN does not show"
        )
    if config.is_several:
        raise ConfigError("spark verify compares with one source; this configuration has several")
