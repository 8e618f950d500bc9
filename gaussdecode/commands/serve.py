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
import time
from pathlib import Path
from typing import Final

from gaussdecode import logs
from gaussdecode.daemon.notify import Notifier
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.daemon.status.tls import PortTls
from gaussdecode.errors import EX_OK, ConfigError, GaussDecodeError
from gaussdecode.host.certificates import CertificateEnd
from gaussdecode.metrics.exposition import Exposition, Snapshot
from gaussdecode.operations.owner import load_as_owner, work_as_owner_of
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.server import Server
from gaussdecode.serve.users import write_user
from gaussdecode.settings.sections import MonitoringConfig, serve_port_files
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.types import Address, AddressType

_WRITE_USER: Final = "passwd"
_ALIVE_SECONDS: Final = 30.0  # arbitrary: the event loop has a turn in every second
_log = logs.get_logger("serve")


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
    root, settings, monitoring, slot, keep = _settings(args)
    if args.listen is not None:
        try:
            address = AddressType().read(args.listen)
        except ValueError as error:
            raise ConfigError(f"--listen: {error}") from None
        settings = dataclasses.replace(settings, listen=address)
    logs.configure(monitoring.log_level, slot=slot)
    notifier = Notifier.from_environment()
    try:
        asyncio.run(_serve(root, settings, monitoring, slot, keep, notifier))
    except ServeError as error:
        raise ConfigError(error.message) from None
    except GaussDecodeError as error:
        _log.error(logs.Event.ERROR, reason=str(error), exit_status=error.exit_status)
        raise
    finally:
        notifier.close()
    _log.info(logs.Event.SERVE_STOPPED)
    return EX_OK


def _settings(
    args: argparse.Namespace,
) -> tuple[Path, ServeConfig, MonitoringConfig, str, int | None]:
    """Root, the sections `serve` and `monitoring`, name, `landing.max-slot-keep-size`."""
    args.config = Path(args.config)
    if args.config.is_dir():
        work_as_owner_of(args.config)
        return args.config.absolute(), ServeConfig(), MonitoringConfig(), args.config.name, None
    config = load_as_owner(args.config)
    landing = config.landing
    return landing.root, config.serve, config.monitoring, config.slot, landing.max_slot_keep_size


async def _serve(
    root: Path,
    settings: ServeConfig,
    monitoring: MonitoringConfig,
    slot: str,
    keep: int | None,
    notifier: Notifier,
) -> None:
    from gaussdecode.serve.outputs.registry import PLUGINS

    files = serve_port_files(settings)
    tls = None if files is None else PortTls(files).context
    server = Server(root, settings, PLUGINS, tls, keep)
    port = None
    if settings.monitoring_listen is not None:
        port = monitor(server, settings.monitoring_listen, monitoring, slot)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.run(lambda _port: notifier.ready("serving"), stop)
    finally:
        if port is not None:
            port.close()


def monitor(
    server: Server, listen: Address, monitoring: MonitoringConfig, slot: str
) -> MonitoringServer:
    """Show a server to Prometheus and to people.

    Args:
        server: the server; its event loop runs, or will.
        listen: address.
        monitoring: TLS of the port.
        slot: value of the label that every series has.

    Raises:
        ConfigError: the address cannot be had, or a file of TLS cannot be used.
    """
    path = server.settings.tls_certificate_file
    end = None if path is None else CertificateEnd(path)

    def metrics() -> Snapshot:
        values = server.counts.metrics()
        if end is not None:
            values["gaussdecode_daemon_certificate_end_time_seconds"] = {
                ("serve.tls-certificate-file",): end.seconds()
            }
        return values

    def is_alive() -> bool:
        return time.monotonic() - server.beat < _ALIVE_SECONDS

    files = monitoring.tls_files
    port = MonitoringServer(
        listen,
        render_metrics=Exposition(slot, metrics).render,
        take_status=lambda: {"slot_name": slot, **server.counts.status()},
        is_alive=is_alive,
        readiness=lambda: (True, "ready") if is_alive() else (False, "no progress"),
        tls=None if files is None else PortTls(files).context,
        name="serve.monitoring-listen",
    )
    port.start()
    _log.info(logs.Event.HTTP_STARTED, address=str(port.address), is_tls=files is not None)
    return port


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
