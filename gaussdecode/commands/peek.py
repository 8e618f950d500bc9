"""Print the changes that wait in the slot, without confirming them.

Whatever is printed stays in the slot, and the daemon will still land it. The styles are
GaussDB's: t for text, j for JSON, b for binary as its pg_recvlogical prints it. A GaussDB
sends the style itself; from PostgreSQL the same lines are made, without CSN. Without
--follow it ends where the server's WAL ends now, and after decoding.data-limit GB at the
latest. A slot that a daemon reads cannot be peeked at; stop the daemon first.

Examples:
  gaussdecode peek /etc/gaussdecode/orders.yaml
  gaussdecode peek --style j --limit 10 orders.yaml
  gaussdecode peek --follow --seconds 60 orders.yaml
  gaussdecode peek --upto-lsn 16/B374D848 orders.yaml
"""

import argparse

from gaussdecode.errors import EX_OK
from gaussdecode.operations.owner import load_as_owner
from gaussdecode.operations.peek.peek import add_limits, print_changes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_limits(parser)


def execute(args: argparse.Namespace) -> int:
    """Stream and print until a limit is reached."""
    print_changes(load_as_owner(args.config), args, is_confirming=False)
    return EX_OK
