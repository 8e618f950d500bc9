"""Record the raw stream of the slot into a file, without confirming anything.

`gaussdecode replay` can land the file later, or you can attach it to a bug report. It holds row values,
so protect it like the database. Without --follow it ends at the present end of the server's WAL;
Ctrl-C ends it in order. A slot that a daemon reads cannot be recorded; stop the daemon first.

Examples:
  gaussdecode capture /etc/gaussdecode/orders.yaml orders.capture
  gaussdecode capture --follow --seconds 600 --size 1GiB orders.yaml orders.capture
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from gaussdecode.console.arguments import lsn, seconds, size
from gaussdecode.console.signals import until_signal
from gaussdecode.errors import EX_OK
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.connections import address_of, is_gaussdb, open_server
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config
from gaussdecode.source.capture import CaptureWriter, Limits
from gaussdecode.source.gaussdb.capture import record_gaussdb, wal_end
from gaussdecode.source.postgresql.capture import record
from gaussdecode.source.postgresql.slot import read_server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")
    parser.add_argument("file", type=Path, help="file to write; must not exist")
    parser.add_argument("--upto-lsn", type=lsn, metavar="LSN", help="end after this position")
    parser.add_argument("--seconds", type=seconds, metavar="S", help="end after this time")
    parser.add_argument("--size", type=size, metavar="SIZE", help="end at this size, like 1GiB")
    parser.add_argument("--follow", action="store_true", help="wait for new changes")


def execute(args: argparse.Namespace) -> int:
    """Record until a limit is reached or a signal comes."""
    config = load(
        args.config
    )  # as who calls: nothing of the landing is used, and the file is the caller's
    upto = args.upto_lsn if args.upto_lsn or args.follow else _wal_end(config)
    limits = Limits(frame_bytes=args.size, seconds=args.seconds, lsn=upto)
    with until_signal() as stop:
        writer = _record(config, args.file, limits, stop.is_set)
    print(f"{args.file}: {writer.frame_count} frames, {writer.frame_bytes} bytes")
    return EX_OK


def _record(
    config: Config, path: Path, limits: Limits, should_stop: Callable[[], bool]
) -> CaptureWriter:
    if is_gaussdb(config):
        return record_gaussdb(config, address_of(config), path, limits, should_stop)
    return record(config, address_of(config), path, limits, should_stop)


def _wal_end(config: Config) -> Lsn:
    if is_gaussdb(config):
        return wal_end(config, address_of(config))
    with open_server(config) as connection:
        return read_server(connection, config.slot, config.source.publication).wal_end
