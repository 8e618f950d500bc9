"""Ask a running daemon for its status, through its monitoring port."""

import http.client
import json
import socket
from typing import Any, Final

from gaussdecode.daemon.control import ANSWER_SECONDS, Answer, at_root
from gaussdecode.errors import SourceError
from gaussdecode.host.access import refused
from gaussdecode.land.names import CONTROL
from gaussdecode.settings.sections import Config
from gaussdecode.settings.types import Address

_SECONDS: Final = 5.0
_MAX_BYTES: Final = 64_000_000  # a hundred thousand tables that are being read

Record = dict[str, Any]  # Any: JSON


class OtherDaemonError(SourceError):
    """The daemon of another slot uses the port.

    Attributes:
        slot: slot of that daemon.
    """

    def __init__(self, reason: str, slot: str) -> None:
        super().__init__(reason)
        self.slot = slot


def ask_status(config: Config) -> Record:
    """Fetch ``/status``.

    Raises:
        SourceError: no daemon of ours answers.
        OtherDaemonError: the daemon of another slot answers.
    """
    listen, name = config.monitoring.listen, config.path.name
    try:
        status, body = fetch(listen, "/status")
        record = json.loads(body) if status == http.HTTPStatus.OK else None
    except ValueError:
        record = None
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(
            f"{name}: no daemon answers on {listen} ({_why(error)}); "
            f"is it running? (systemctl status gaussdecode@{config.name})"
        ) from None
    if not isinstance(record, dict) or "slot_name" not in record:
        raise SourceError(
            f"{name}: no daemon answers on {listen}, but another program; give each slot a port of "
            f"its own, or end that program (ss -ltnp 'sport = :{listen.port}')"
        )
    if record["slot_name"] != config.slot:
        raise OtherDaemonError(
            f"{name}: the daemon on {listen} follows slot {record['slot_name']}, "
            f"not {config.slot}; give each slot a port of its own",
            str(record["slot_name"]),
        )
    return record


def ask_act(config: Config, act: str, table: str | None) -> Answer:
    """Have the daemon carry out an act, and wait for the answer.

    Raises:
        SourceError: no daemon answers.
    """
    root = config.landing.root
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, at_root(root) as path:
            client.settimeout(ANSWER_SECONDS + _SECONDS)
            client.connect(path)
            client.sendall(json.dumps({"act": act, "table": table}).encode() + b"\n")
            with client.makefile("rb") as answer:
                record = json.loads(answer.readline(_MAX_BYTES))
        return Answer(bool(record["is_done"]), str(record["text"]))
    except PermissionError as error:
        raise refused(root / CONTROL, error) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = _why(error) if isinstance(error, OSError) else "no whole answer"
        raise SourceError(
            f"{config.path.name}: no daemon answers at {root / CONTROL} ({why}); "
            f"is it running? (systemctl status gaussdecode@{config.name})"
        ) from None


def fetch(listen: Address, path: str) -> tuple[int, bytes]:
    """Fetch a page: status and content.

    Raises:
        OSError: no answer.
        HTTPException: the answer is not HTTP.
    """
    connection = http.client.HTTPConnection(listen.host, listen.port, timeout=_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(_MAX_BYTES)
    finally:
        connection.close()


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"silent for {_SECONDS:.0f} seconds"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return "not HTTP"
