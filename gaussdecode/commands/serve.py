"""Serve what has landed to clients that speak PostgreSQL's replication protocol.

CONFIG is the configuration of the slot, or the directory of its landing. One slot on the database then serves
many clients, each with a virtual slot and a position of its own. `serve passwd FILE USER` writes a user into a
file of verifiers; it asks for the password, or reads it from the first line of --password-file.

Examples:
  gaussdecode serve /etc/gaussdecode/orders.yaml
  gaussdecode serve /var/lib/gaussdecode/orders --listen 127.0.0.1:15432
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
from gaussdecode.daemon.status.tls import PortTls
from gaussdecode.errors import EX_OK, ConfigError, GaussDecodeError
from gaussdecode.operations.owner import load_as_owner, work_as_owner_of
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.server import Server
from gaussdecode.serve.users import write_user
from gaussdecode.settings.sections import PortFiles
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.types import AddressType

_WRITE_USER: Final = "passwd"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", help="configuration file, directory of a landing, or passwd")
    parser.add_argument(
        "passwd", nargs="*", metavar="FILE USER", help="after passwd: file and user"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="in place of serve.listen")
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
    root, settings, slot, level, keep = _settings(args)
    if args.listen is not None:
        try:
            address = AddressType().read(args.listen)
        except ValueError as error:
            raise ConfigError(f"--listen: {error}") from None
        settings = dataclasses.replace(settings, listen=address)
    logs.configure(level, slot=slot)
    log = logs.get_logger("serve")
    notifier = Notifier.from_environment()
    try:
        asyncio.run(_serve(root, settings, keep, notifier))
    except ServeError as error:
        raise ConfigError(error.message) from None
    except GaussDecodeError as error:
        log.error(logs.Event.ERROR, reason=str(error), exit_status=error.exit_status)
        raise
    finally:
        notifier.close()
    log.info(logs.Event.SERVE_STOPPED)
    return EX_OK


def _settings(args: argparse.Namespace) -> tuple[Path, ServeConfig, str, str, int | None]:
    """Root, section `serve`, name and level of the log, `landing.max-slot-keep-size`."""
    args.config = Path(args.config)
    if args.config.is_dir():
        work_as_owner_of(args.config)
        return args.config.absolute(), ServeConfig(), args.config.name, "info", None
    config = load_as_owner(args.config)
    landing = config.landing
    level = config.monitoring.log_level
    return landing.root, config.serve, config.slot, level, landing.max_slot_keep_size


async def _serve(root: Path, settings: ServeConfig, keep: int | None, notifier: Notifier) -> None:
    from gaussdecode.serve.outputs.registry import PLUGINS

    tls = None
    if settings.tls_certificate_file is not None and settings.tls_key_file is not None:
        files = PortFiles(settings.tls_certificate_file, settings.tls_key_file, section="serve")
        tls = PortTls(files).context
    server = Server(root, settings, PLUGINS, tls, keep)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.run(lambda _port: notifier.ready("serving"), stop)


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
