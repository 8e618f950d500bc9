"""Print pending changes and consume them.

Like peek, but confirms the printed changes, so that the server does not send them again. It confirms
whole transactions, in commit order, once standard output has taken them (and the disk, if it is a
file). Use it only for slots without a landing: a landing would miss the changes, so the command refuses
if landing.root holds one. A slot that a daemon reads cannot be read by another process.

Examples:
  gaussdecode get /etc/gaussdecode/orders.yaml > changes.txt
  gaussdecode get --style j --limit 1000 orders.yaml
  gaussdecode get --upto-lsn 16/B374D848 orders.yaml
"""

import argparse

from gaussdecode.errors import EX_OK, ConfigError
from gaussdecode.operations.landing_guards import refuse_landed
from gaussdecode.operations.owner import load_as_owner
from gaussdecode.operations.peek.peek import add_limits, print_changes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_limits(parser)


def execute(args: argparse.Namespace) -> int:
    """Stream, print and confirm until a limit is reached."""
    config = load_as_owner(args.config)
    refuse_landed(config, "get changes")
    if config.decoding.output_order == 1:
        raise ConfigError(
            f"{config.path.name}: decoding.output-order: 1 is possible for peek and for a landing, not for get: get confirms by position, and in that order, transactions below the position may still follow"
        )
    print_changes(config, args, is_confirming=True)
    return EX_OK
