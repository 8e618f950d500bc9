"""Check that the monitoring port is free, or that the configuration's own daemon uses it; ask that daemon."""

import dataclasses
import errno
import os
import socket
from collections.abc import Sequence
from typing import Final

from gaussdecode.daemon.status.tls import server_context
from gaussdecode.errors import ConfigError, SourceError
from gaussdecode.operations.ask_daemon import OtherDaemonError, Record, ask_status
from gaussdecode.operations.check.doctor import Finding
from gaussdecode.settings.sections import Config
from gaussdecode.settings.types import Address

KEY: Final = "monitoring.listen"


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """The result of a look at the port.

    Attributes:
        problem: why the daemon cannot listen there; None if it can, or does.
        findings: what the daemon reports, if it listens.
        record: the daemon's ``/status``, if it listens.
    """

    problem: str | None = None
    findings: Sequence[Finding] = ()
    record: Record | None = None


def examine_port(config: Config) -> Port:
    """Read the files of the port's TLS, then try to listen on the daemon's port, and close it at once."""
    listen, files = config.monitoring.listen, config.monitoring.tls_files
    if files is not None:
        try:
            server_context(files)
        except ConfigError as error:
            return Port(str(error))
    failure = listen_error(listen)
    if failure is None:
        return Port()
    if failure.errno != errno.EADDRINUSE:
        return Port(unusable(KEY, listen, failure))
    try:
        record = ask_status(config)
    except OtherDaemonError as error:
        return Port(taken(KEY, listen, f"the daemon of slot {error.slot}"))
    except SourceError as error:
        if config.monitoring.tls_files is not None:
            return Port(error.reason.removeprefix(f"{config.path.name}: "))
        return Port(taken(KEY, listen, "another program"))
    causes = [_finding(config, cause) for cause in record.get("causes") or []]
    return Port(findings=causes, record=record)


def listen_error(listen: Address) -> OSError | None:
    """Try to listen on an address, and close it at once; why it fails, or None."""
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(found[4])
            trial.listen(1)
    except OSError as error:
        return error
    return None


def _finding(config: Config, cause: Record) -> Finding:
    """A problem that the running daemon reports, by its table of states."""
    follows = " ".join(cause["consequences"])
    page = f"{config.monitoring.url}{cause['runbook']}"
    why = f"the running daemon says so: {cause['severity']}; {page} says more"
    return Finding(
        cause["what"], f"{follows} ({why})" if follows else why, cause["action"], cause["name"]
    )


def taken(key: str, listen: Address, holder: str) -> str:
    """Say that a program has the port of a key."""
    return (
        f"{key}: {listen} is taken by {holder}; use another port "
        f"(ss -ltnp 'sport = :{listen.port}' names the program)"
    )


def unusable(key: str, listen: Address, error: OSError) -> str:
    """Say that the address of a key cannot be listened on."""
    is_name = isinstance(error, socket.gaierror)
    reason = (error.strerror if is_name else os.strerror(error.errno or 0)) or str(error)
    return (
        f"{key}: {listen} cannot be listened on: {reason}; use an address of "
        "this machine and a port above 1023"
    )
