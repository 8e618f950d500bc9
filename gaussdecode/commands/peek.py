"""Print pending changes without consuming them.

Printed changes stay in the slot, and the daemon will still land them. The styles are GaussDB's: t for
text, j for JSON, b for binary as its pg_recvlogical prints it. GaussDB sends the style itself; for
PostgreSQL the same lines are made here, without CSN. Without --follow the command ends at the present
end of the server's WAL, and after decoding.data-limit GB at the latest. A slot that a daemon reads
cannot be peeked at; stop the daemon first.

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
