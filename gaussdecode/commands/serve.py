"""Serve what has landed to clients that speak PostgreSQL's replication protocol.

CONFIG is the configuration of the slot, the directory of its landing, or the URL of its mirror. One slot on the
database then serves many clients, each with a virtual slot and a position of its own. `serve passwd FILE USER`
writes a user into a file of verifiers; it asks for the password, or reads it from the first line of
--password-file.

Examples:
  gaussdecode serve /etc/gaussdecode/orders.yaml
  gaussdecode serve /var/lib/gaussdecode/orders --listen 127.0.0.1:15432
  gaussdecode serve s3://bucket/orders --slots-directory /var/lib/orders-clients
  gaussdecode serve passwd /etc/gaussdecode/orders.users reader --tables 'sales.*'
  pg_recvlogical -h 127.0.0.1 -p 15432 -d shop -U me -S copy -P test_decoding --create-slot --start -f -
"""

import argparse
import asyncio
import dataclasses
import getpass
import signal
import sys
from pathlib import Path
from typing import Final

from gaussdecode import logs
from gaussdecode.daemon.notify import Notifier
from gaussdecode.daemon.serving import Task
from gaussdecode.errors import EX_OK, ConfigError, GaussDecodeError
from gaussdecode.host.lean_imports import forgo_pandas
from gaussdecode.operations.owner import load_as_owner, work_as_owner_of
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.users import write_user
from gaussdecode.settings.sections import MonitoringConfig
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.types import AddressType
from gaussdecode.spark.log.place import Place, place_of

_WRITE_USER: Final = "passwd"
_log = logs.get_logger("serve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config", help="configuration file, directory of a landing, URL of its mirror, or passwd"
    )
    parser.add_argument(
        "passwd", nargs="*", metavar="FILE USER", help="after passwd: file and user"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="in place of serve.listen")
    parser.add_argument(
        "--mirror", action="store_true", help="serve landing.mirror.url in place of landing.root"
    )
    parser.add_argument(
        "--slots-directory",
        type=Path,
        metavar="DIRECTORY",
        help="keep virtual slots here; default: the directory of the landing",
    )
    parser.add_argument(
        "--password-file", type=Path, help="passwd: file with the password on its first line"
    )
    parser.add_argument(
        "--tables", metavar="LIST", help="passwd: what the user gets, as sales.*,public.orders"
    )


def execute(args: argparse.Namespace) -> int:
    """Serve, or write a user."""
    if args.config == _WRITE_USER:
        return _passwd(args)
    if args.passwd:
        raise ConfigError("serve takes one configuration or directory")
    task = _task(args)
    if args.listen is not None:
        try:
            address = AddressType().read(args.listen)
        except ValueError as error:
            raise ConfigError(f"--listen: {error}") from None
        settings = dataclasses.replace(task.settings, listen=address)
        task = dataclasses.replace(task, settings=settings)
    logs.configure(task.monitoring.log_level, slot=task.slot)
    forgo_pandas()
    notifier = Notifier.from_environment()
    try:
        asyncio.run(_serve(task, notifier))
    except ServeError as error:
        raise ConfigError(error.message) from None
    except GaussDecodeError as error:
        _log.error(logs.Event.ERROR, reason=str(error), exit_status=error.exit_status)
        raise
    finally:
        notifier.close()
    _log.info(logs.Event.SERVE_STOPPED)
    return EX_OK


def _task(args: argparse.Namespace) -> Task:
    """What is to be served."""
    slots_root = None if args.slots_directory is None else args.slots_directory.absolute()
    is_url = "://" in args.config
    if args.mirror and (is_url or Path(args.config).is_dir()):
        raise ConfigError(
            "--mirror: the URL of the mirror stands in a configuration file; give that"
        )
    if is_url:
        if slots_root is None:
            raise ConfigError(
                f"{args.config.partition('?')[0]}: a mirror is only read; name a directory for the virtual slots with "
                "--slots-directory"
            )
        work_as_owner_of(slots_root)
        return _of_place(place_of(args.config), slots_root)
    args.config = Path(args.config)
    if args.config.is_dir():
        work_as_owner_of(args.config)
        return _of_place(args.config.absolute(), slots_root)
    task = Task.of(load_as_owner(args.config), from_mirror=args.mirror)
    return task if slots_root is None else dataclasses.replace(task, slots_root=slots_root)


def _of_place(root: Place, slots_root: Path | None) -> Task:
    """A landing, or a mirror, without a configuration."""
    return Task(root, ServeConfig(), MonitoringConfig(), root.name, slots_root=slots_root)


async def _serve(task: Task, notifier: Notifier) -> None:
    from gaussdecode.daemon.serveprocess import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(task, lambda _port: notifier.ready("serving"), stop)


def _passwd(args: argparse.Namespace) -> int:
    if len(args.passwd) != 2:
        raise ConfigError("usage: gaussdecode serve passwd FILE USER")
    path, user = Path(args.passwd[0]), args.passwd[1]
    password = _read_password(args.password_file)
    tables = None
    if args.tables is not None:
        tables = tuple(part.strip() for part in args.tables.split(",") if part.strip())
    write_user(path, user, password, tables)
    print(f"{path}: user {user} may log in")
    return EX_OK


def _read_password(path: Path | None) -> str:
    if path is not None:
        try:
            return (path.read_text(encoding="utf-8").splitlines() or [""])[0]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--password-file: {path}: cannot be read: {error}") from None
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal to ask for the password; use --password-file")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise ConfigError("the two passwords differ; nothing was written")
    return password
