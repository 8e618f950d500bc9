"""Print the changes that wait in the slot, and confirm them: they do not come again.

Like peek, but the server may forget what was printed, once standard output has taken it
(and the disk, where it goes to a file): whole transactions, in the order of their commits.
For slots that nothing lands: a landing would miss the changes, so it is refused where
landing.root holds one. A slot that a daemon reads cannot be read by another.

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
            f"{config.path.name}: decoding.output-order: 1 is possible for peek and for a landing: get "
            "confirms by position, below which other transactions may still be to come in that order"
        )
    print_changes(config, args, is_confirming=True)
    return EX_OK
