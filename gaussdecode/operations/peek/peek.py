"""Declare the arguments of peek and get, and call the printer for the source."""

import argparse
from pathlib import Path

from gaussdecode.console.arguments import count, lsn, seconds
from gaussdecode.operations.connections import address_of, is_gaussdb
from gaussdecode.operations.peek.gaussdb import print_gaussdb
from gaussdecode.operations.peek.output import Limits
from gaussdecode.operations.peek.postgresql import print_postgresql
from gaussdecode.settings.sections import Config


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")
    parser.add_argument(
        "--style",
        choices=("t", "j", "b"),
        help="text, JSON or binary; default: decode-style; serial decoding: text",
    )
    parser.add_argument("--upto-lsn", type=lsn, metavar="LSN", help="end before this commit")
    parser.add_argument(
        "--limit",
        "--changes",
        type=count,
        metavar="N",
        help="end after the transaction of change N",
    )
    parser.add_argument("--seconds", type=seconds, metavar="S", help="end after this time")
    parser.add_argument("--follow", action="store_true", help="wait for new changes")


def print_changes(config: Config, args: argparse.Namespace, *, is_confirming: bool) -> None:
    """Stream and print until a limit is reached.

    Raises:
        ConfigError: the source is not a server, or cannot do this.
        SourceError: the server failed.
        WireError: the server sent a malformed message.
    """
    address_of(config)
    limits = Limits(args.upto_lsn, args.limit, args.seconds, config.decoding.data_limit_bytes)
    printer = print_gaussdb if is_gaussdb(config) else print_postgresql
    printer(config, args.style, limits, is_following=args.follow, is_confirming=is_confirming)
