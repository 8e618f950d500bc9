"""Act on a running daemon: pause, resume, reload, reconnect, rotate, snapshot, add, drop.

The daemon carries the act out and answers; its log says who asked. Only root and the daemon's own
account may ask, over a socket in the landing.

  pause      lands what has arrived. Then nothing lands and nothing is confirmed. The connection
             stays. The server keeps WAL for the slot. A restart of the daemon resumes.
  resume     ends a pause
  reload     reads the configuration file again and begins a new session with it. The answer names
             the keys that were taken, and those that need a restart. With a wrong file, or one with
             which no stream begins, nothing changes. SIGHUP and systemctl reload do the same.
  reconnect  ends the session in order, and begins another one at the durable position
  rotate     ends the current entry now, so that readers see what has arrived
  snapshot   asks for the existing rows of a table, as gaussdecode snapshot --no-wait does
  add        puts a table into the first publication of the configuration, where the daemon's role
             may alter it, and asks for its existing rows. Else the answer has the SQL to run.
  drop       takes a table out of the publications that list it. What has landed stays.

Exits with 0 when it is done, and with 69 when no daemon answers or the act was refused.

Examples:
  gaussdecode ctl orders pause
  gaussdecode ctl /etc/gaussdecode/orders.yaml reload
  gaussdecode ctl orders add public.orders
"""

import argparse
import sys
from pathlib import Path

from gaussdecode.daemon.control import ACTS, OF_A_TABLE
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE
from gaussdecode.operations.ask_daemon import ask_act
from gaussdecode.operations.fleet import DIRECTORY
from gaussdecode.settings.load import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "slot", metavar="SLOT|CONFIG", help=f"configuration file, or its name in {DIRECTORY}"
    )
    acts = parser.add_subparsers(title="acts", metavar="ACT", dest="act", required=True)
    for name, meaning in ACTS.items():
        act = acts.add_parser(name, help=meaning, description=meaning)
        act.set_defaults(table=None)
        if name in OF_A_TABLE:
            act.add_argument("table", metavar="SCHEMA.NAME", help="the table")


def execute(args: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    path = Path(args.slot)
    if not path.suffix and path.name == args.slot and not path.exists():
        path = DIRECTORY / f"{args.slot}.yaml"
    answer = ask_act(load(path), args.act, args.table)  # as who we are: the daemon notes it
    print(answer.text, file=sys.stdout if answer.is_done else sys.stderr)
    return EX_OK if answer.is_done else EX_UNAVAILABLE
