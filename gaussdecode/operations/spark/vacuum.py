"""Remove old versions of a target: ``gaussdecode spark vacuum``."""

import argparse

from gaussdecode.errors import EX_OK
from gaussdecode.model.words import counted
from gaussdecode.operations.spark.arguments import days, target_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    target_argument(parser)
    parser.add_argument("--older-than-days", type=days, default=7.0, metavar="DAYS")


def execute(args: argparse.Namespace) -> int:
    """Remove them."""
    from gaussdecode.spark.maintain.upkeep import DAY, vacuum

    done = vacuum(args.target, older_than_seconds=args.older_than_days * DAY)
    print(
        f"{args.target}: removed {counted(done.versions, 'version')} and {counted(done.files, 'file')} "
        f"({counted(done.bytes, 'byte')})"
    )
    return EX_OK
