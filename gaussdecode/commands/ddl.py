"""Record DDL of PostgreSQL in the landing: install, remove or show its event triggers.

Logical decoding sends no DDL. install makes three event triggers and their function, in a schema
gaussdecode of the source's database. From then on each DDL command is a logical message of its
transaction, which lands in table gd_ddl if source.messages is on. Commands on temporary tables are
left out. See docs/ddl.md.

install changes nothing where all is as it should be, and brings an older version up to date. It and
remove need a role that may make event triggers: a superuser, or the one that a managed service allows
it. --print shows the SQL, for such a role to run, and connects to nothing. Neither waits for a lock
longer than two seconds.

status shows what is installed, and what differs from what install would make. It ends with 0 where
the triggers are installed without a difference, else with 78.

Examples:
  gaussdecode ddl install /etc/gaussdecode/orders.yaml
  gaussdecode ddl install --print /etc/gaussdecode/orders.yaml | psql "host=db dbname=shop user=postgres"
  gaussdecode ddl status  /etc/gaussdecode/orders.yaml
  gaussdecode ddl remove  /etc/gaussdecode/orders.yaml
"""

import argparse
from pathlib import Path

from gaussdecode.console.table import print_table
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.operations import ddl as operation
from gaussdecode.operations.owner import load_as_owner
from gaussdecode.settings.sections import Config
from gaussdecode.source.postgresql.ddl import install_sql, remove_sql


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    install = actions.add_parser(
        "install", help="make the event triggers, or bring them up to date"
    )
    install.set_defaults(act=_install)
    remove = actions.add_parser("remove", help="remove them, with function and schema")
    remove.set_defaults(act=_remove)
    for sub in (install, remove):
        sub.add_argument(
            "--print", action="store_true", dest="is_printed", help="print the SQL, change nothing"
        )
    status = actions.add_parser("status", help="show what is installed")
    status.set_defaults(act=_status)
    for sub in (install, remove, status):
        sub.add_argument("config", type=Path, help="configuration file of one slot")


def execute(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    config = load_as_owner(args.config)
    status: int = args.act(config, args)
    return status


def _install(config: Config, args: argparse.Namespace) -> int:
    operation.refuse_others(config)
    if args.is_printed:
        print(install_sql(), end="")
        return EX_OK
    for name, is_changed in operation.install_all(config):
        print(f"{name}: the event triggers are {'' if is_changed else 'already '}installed")
    if not config.source.messages:
        print("source.messages is off: DDL does not land until it is on")
    return EX_OK


def _remove(config: Config, args: argparse.Namespace) -> int:
    operation.refuse_others(config)
    if args.is_printed:
        print(remove_sql(), end="")
        return EX_OK
    for name, is_changed in operation.remove_all(config):
        print(f"{name}: the event triggers {'are removed' if is_changed else 'are not installed'}")
    return EX_OK


def _status(config: Config, _args: argparse.Namespace) -> int:
    rows = []
    for name, state in operation.read_all(config).items():
        enabled = ", ".join(f"{of} {how}" for of, how in state.triggers.items()) or "none"
        version = "unknown" if state.version is None else str(state.version)
        wrong = "; ".join((*state.differences, *state.hindrances)) or "none"
        if not state.is_there:
            version, wrong = "not installed", "all"
        rows.append((name, version, state.owner or "-", enabled, wrong))
    print_table(("source", "version", "owner", "enabled", "differences"), rows)
    return EX_CONFIG if any(row[-1] != "none" for row in rows) else EX_OK
