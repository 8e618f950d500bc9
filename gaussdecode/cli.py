"""The command line: finds the command, runs it, turns its end into an exit status.

Every module of ``gaussdecode.commands`` is a command of its name, with a docstring that
becomes its help, ``add_arguments(parser)`` and ``execute(args) -> int``. This module
knows none of them. A `GaussDecodeError` is an answer to the operator and printed as one
message; anything else is a bug and shows its traceback.
"""

import argparse
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import Final, Protocol, cast

import gaussdecode
from gaussdecode import commands
from gaussdecode.completion import SHELLS, completion_script
from gaussdecode.errors import EX_OK, EX_SOFTWARE, GaussDecodeError

EX_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count
EX_BROKEN_PIPE: Final = 141  # 128 + SIGPIPE
_ORDER: Final = ("run", "check", "status", "slot", "peek", "verify", "capture", "replay", "demo")
_DESCRIPTION: Final = """\
Lands the changes of a replication slot as Parquet, in order and exactly once.

A first look, without a database of your own:
  gaussdecode demo

The usual way:
  gaussdecode check  /etc/gaussdecode/orders.yaml         is the configuration right?
  gaussdecode slot create /etc/gaussdecode/orders.yaml    changes are kept from here on
  systemctl enable --now gaussdecode@orders               or: gaussdecode run orders.yaml
  gaussdecode status /etc/gaussdecode/orders.yaml         how far is it?
"""
_EPILOG: Final = """\
exit status: 0 done or stopped on request, 2 wrong usage, 69 source not available, 70 bug,
74 disk, 76 bytes break the protocol, 78 configuration, 130 interrupted
"""


class Command(Protocol):
    """What a module of ``gaussdecode.commands`` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what follows the command's name."""

    def execute(self, args: argparse.Namespace) -> int:
        """Do it, and return the exit status."""


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def find_commands() -> dict[str, Command]:
    """Import every command, in the order in which help shows them."""
    names = [info.name for info in pkgutil.iter_modules(commands.__path__)]
    public = sorted((name for name in names if not name.startswith("_")), key=_rank)
    package = commands.__name__
    return {name: cast("Command", importlib.import_module(f"{package}.{name}")) for name in public}


def build_parser() -> argparse.ArgumentParser:
    """Make the whole parser."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="gaussdecode", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=raw
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {gaussdecode.__version__}"
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in find_commands().items():
        doc = inspect.getdoc(command) or name
        summary = doc.splitlines()[0].rstrip(".")
        sub = subparsers.add_parser(name, help=summary, description=doc, formatter_class=raw)
        command.add_arguments(sub)
        sub.set_defaults(execute=command.execute)
    _add_completion(parser, subparsers)
    return parser


def _add_completion(
    parser: argparse.ArgumentParser,
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    summary = "Print a script that completes commands and options in a shell"
    sub = subparsers.add_parser("completion", help=summary, description=summary)
    sub.add_argument("shell", choices=SHELLS, help="source its output in the shell's start file")

    def execute(args: argparse.Namespace) -> int:
        sys.stdout.write(completion_script(parser, args.shell))
        return EX_OK

    sub.set_defaults(execute=execute)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; those of the process when None.

    Returns:
        The exit status; see docs/operations.md.
    """
    args = build_parser().parse_args(argv)
    try:
        status = int(args.execute(args))
        sys.stdout.flush()
    except GaussDecodeError as error:
        print(f"gaussdecode: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return EX_INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return EX_BROKEN_PIPE
    except Exception:  # noqa: BLE001 (the last line of defence)
        traceback.print_exc()
        print("gaussdecode: this is a bug; please report the lines above", file=sys.stderr)
        return EX_SOFTWARE
    return status


def _forget_output() -> None:
    """Point standard output at nothing, so that Python's last flush does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
