"""Check that the monitoring port is free, or that the configuration's own daemon uses it; ask that daemon."""

import errno
import os
import socket

from gaussdecode.errors import SourceError
from gaussdecode.operations.ask_daemon import OtherDaemonError, Record, ask_status
from gaussdecode.operations.check.doctor import Finding
from gaussdecode.settings.sections import Config


def examine_port(config: Config) -> tuple[list[Finding], Record | None]:
    """Try to listen on the daemon's port, and close it at once.

    Returns:
        Problems of the port or, if the daemon uses it, of the daemon; and the daemon's ``/status``.
    """
    listen = config.monitoring.listen
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return [_unusable(config, error.strerror or str(error))], None
    with socket.socket(found[0], socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(found[4])
            trial.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return [_unusable(config, os.strerror(error.errno or 0))], None
        else:
            return [], None
    try:
        record = ask_status(config)
    except OtherDaemonError as error:
        return [_taken(config, f"the daemon of slot {error.slot}")], None
    except SourceError:
        return [_taken(config, "another program")], None
    return [_finding(config, cause) for cause in record.get("causes") or []], record


def _finding(config: Config, cause: Record) -> Finding:
    """A problem that the running daemon reports, by its table of states."""
    follows = " ".join(cause["consequences"])
    page = f"http://{config.monitoring.listen}{cause['runbook']}"
    why = f"the running daemon says so: {cause['severity']}; {page} says more"
    return Finding(
        cause["what"], f"{follows} ({why})" if follows else why, cause["action"], cause["name"]
    )


def _taken(config: Config, holder: str) -> Finding:
    listen = config.monitoring.listen
    return Finding(
        f"monitoring.listen: {listen} is taken by {holder}",
        "the daemon cannot start while another has its port",
        f"another port for monitoring.listen; ss -ltnp 'sport = :{listen.port}' names the program",
    )


def _unusable(config: Config, reason: str) -> Finding:
    return Finding(
        f"monitoring.listen: {config.monitoring.listen} cannot be listened on: {reason}",
        "the daemon cannot start without its port",
        "an address of this machine and a port above 1023 for monitoring.listen",
    )
