"""Merge small files of a target: ``gaussdecode spark compact``."""

import argparse

from gaussdecode.console.arguments import count, size
from gaussdecode.errors import EX_OK
from gaussdecode.model.words import counted
from gaussdecode.operations.spark.arguments import (
    engine_arguments,
    engine_of,
    names,
    tables_argument,
    target_argument,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    target_argument(parser)
    tables_argument(parser)
    parser.add_argument("--target-size", type=size, default=128 << 20, metavar="SIZE")
    parser.add_argument("--buckets", type=count, metavar="N", help="new number of buckets")
    engine_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Merge them."""
    from gaussdecode.spark.maintain.upkeep import compact_with

    with engine_of(args) as engine:
        done = compact_with(
            engine,
            args.target,
            tables=names(args.tables),
            target_bytes=args.target_size,
            buckets=args.buckets,
        )
    print(
        f"{args.target}: {counted(done.tables, 'table')}, {counted(done.files_before, 'file')} became "
        f"{done.files_after}; vacuum removes the old ones"
    )
    return EX_OK
