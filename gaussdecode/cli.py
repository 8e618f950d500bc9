"""Find the command, run it, and turn its end into an exit status.

Every module of ``gaussdecode.commands`` is a command of its name (``_`` is a hyphen), with a docstring that
becomes its help, ``add_arguments(parser)`` and ``execute(args) -> int``. This module knows none of them. A
`GaussDecodeError` is an answer to the operator and is printed as one message; anything else is a bug and shows
its traceback.
"""

import argparse
import gc
import importlib
import io
import os
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn, Protocol, cast

import gaussdecode
from gaussdecode import commands, limits
from gaussdecode.console.completion import SHELLS, completion_script
from gaussdecode.errors import EX_OK, EX_SOFTWARE, AccessError, GaussDecodeError
from gaussdecode.host.access import refused, user_name
from gaussdecode.model.words import printable

_QUOTES: Final = '"' * 3
EX_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count
_SERVICE: Final = "INVOCATION_ID"  # in the environment of what systemd starts
EX_BROKEN_PIPE: Final = 141  # 128 + SIGPIPE
_ORDER: Final = (
    "run",
    "check",
    "status",
    "top",
    "ctl",
    "slot",
    "ddl",
    "snapshot",
    "peek",
    "get",
    "verify",
    "serve",
    "capture",
    "replay",
    "spark",
    "gaps",
    "install-units",
    "demo",
)
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
71 limit of the system, 74 disk, 76 bytes break the protocol, 78 configuration, 130 interrupted
"""


class Command(Protocol):
    """A module of ``gaussdecode.commands``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what follows the command's name."""

    def execute(self, args: argparse.Namespace) -> int:
        """Do it, and return the exit status."""


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def command_names() -> list[str]:
    """Name every command, in the order in which help shows them."""
    names = [info.name for info in pkgutil.iter_modules(commands.__path__)]
    public = (name.replace("_", "-") for name in names if not name.startswith("_"))
    return sorted(public, key=_rank)


def load_command(name: str) -> Command:
    """Import one command."""
    return cast("Command", importlib.import_module(f"{commands.__name__}.{_module(name)}"))


def _module(name: str) -> str:
    return name.replace("-", "_")


def _docstring(name: str) -> str:
    """Read a command's docstring without importing what it needs, or parsing all of its module."""
    text = Path(commands.__path__[0], f"{_module(name)}.py").read_text(encoding="utf-8")
    head, _, rest = text.partition(_QUOTES)
    return name if head else rest.partition(_QUOTES)[0].strip()


class _Version(argparse.Action):
    """As argparse's own, but the version is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(f"{parser.prog} {gaussdecode.__version__}\n")
        parser.exit()


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Make the parser.

    Args:
        only: the one command that is wanted: the others have neither arguments nor help. None for
            all, which imports all; what is no command, for the help of all.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="gaussdecode", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=raw
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    names = command_names()
    for name in names:
        doc = name if only in names and only != name else _docstring(name)
        summary = doc.splitlines()[0].rstrip(".")
        sub = subparsers.add_parser(name, help=summary, description=doc, formatter_class=raw)
        if only in {None, name}:
            command = load_command(name)
            command.add_arguments(sub)
            sub.set_defaults(execute=command.execute)
    _add_completion(subparsers)
    return parser


def _add_completion(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    summary = "Print a script that completes commands and options in a shell"
    sub = subparsers.add_parser("completion", help=summary, description=summary)
    sub.add_argument("shell", choices=SHELLS, help="source its output in the shell's start file")

    def execute(args: argparse.Namespace) -> int:
        sys.stdout.write(completion_script(build_parser(), args.shell))
        return EX_OK

    sub.set_defaults(execute=execute)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; those of the process when None.

    Returns:
        The exit status; see docs/operate.md.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    command = next(iter(arguments), "")
    began_as = os.geteuid()
    try:
        if argv is None:  # the process is the command's
            args = _parse_quickly(command, arguments)
        else:
            args = build_parser(command).parse_args(arguments)
        status = int(args.execute(args))
        sys.stdout.flush()
    except (GaussDecodeError, PermissionError) as error:
        told = _as_ours(error)
        advice = _advice(told, began_as, arguments)
        print(printable(f"gaussdecode: {told}{advice}"), file=sys.stderr)
        return told.exit_status
    except KeyboardInterrupt:
        return EX_INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return EX_BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 (the last line of defence)
        limit = limits.reached(error)
        if limit is not None:
            print(f"gaussdecode: {limit}", file=sys.stderr)
            return limit.exit_status
        traceback.print_exc()
        print("gaussdecode: this is a bug; please report the lines above", file=sys.stderr)
        return EX_SOFTWARE
    return status


def _parse_quickly(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Import and parse, with what makes a process that lives for long start slowly at rest."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # numpy's threads spin, and have no work here
    gc.disable()  # what is imported lives as long as the process
    args = build_parser(command).parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names that a locale cannot spell
    gc.freeze()
    gc.enable()
    return args


def _as_ours(error: GaussDecodeError | PermissionError) -> GaussDecodeError:
    """Give the error for the operator; refusals of the kernel get the file's owner and mode."""
    if isinstance(error, GaussDecodeError):
        return error
    return refused(str(error.filename or "a file without a name"), error)


def _advice(error: GaussDecodeError, began_as: int, arguments: Sequence[str]) -> str:
    """Name the users that may do what was refused: root, by the same command, or a user that root allows."""
    if not isinstance(error, AccessError):
        return ""
    if began_as != 0 and _SERVICE not in os.environ:
        return f"; use: sudo {shlex.join(['gaussdecode', *arguments])}"
    name = user_name(os.geteuid())
    return f"; let user {name} have it, by chown, chgrp or chmod of what was named last"


def _forget_output() -> None:
    """Point standard output at nothing, so that Python's last flush does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
