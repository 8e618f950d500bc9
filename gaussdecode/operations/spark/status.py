"""Show how far a target has been applied: ``gaussdecode spark status``."""

import argparse

from gaussdecode.errors import EX_OK
from gaussdecode.model.words import counted
from gaussdecode.operations.spark.arguments import flag, landing_argument, target_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    landing_argument(parser)
    target_argument(parser)
    flag(parser, "--metrics", "print Prometheus' text format")


def execute(args: argparse.Namespace) -> int:
    """Show it."""
    from gaussdecode.spark.maintain.status import metrics_text, status

    if args.metrics:
        print(metrics_text(args.root, args.target), end="")
        return EX_OK
    found = status(args.root, args.target)
    print(
        f"{args.target}: entry {found.n} of {found.last_n}, {found.lag_entries} behind, "
        f"{found.lag_seconds:.0f} s"
    )
    for table, title in found.renamed.items():
        print(f"{args.target}: {title} is in tables/{table}, as it was renamed")
    for table, stop in found.stopped.items():
        print(f"{args.target}: {table} stands still at entry {stop['n']}: {stop['why']}")
    for table, number in found.unmatched.items():
        changes = counted(number, "change did", "changes did")
        print(
            f"{args.target}: {table}: {changes} not fit its rows; compare it: gaussdecode spark verify"
        )
    for table, stop in found.gone.items():
        print(
            f"{args.target}: {table} is gone from the source, and stays as it was at entry {stop['n']}"
        )
    return EX_OK
