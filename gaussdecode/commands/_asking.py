"""Asks a running daemon how it is, through its monitoring port."""

import http.client
import json
from typing import Any, Final

from gaussdecode.errors import SourceError
from gaussdecode.settings.load import Config

_SECONDS: Final = 5.0
_MAX_BYTES: Final = 64_000_000  # a hundred thousand tables that are being read

Record = dict[str, Any]  # Any: JSON


def ask_status(config: Config) -> Record:
    """What ``/status`` says.

    Raises:
        SourceError: nobody answers, or the daemon of another slot.
    """
    listen = config.monitoring.listen
    connection = http.client.HTTPConnection(listen.host, listen.port, timeout=_SECONDS)
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        body = response.read(_MAX_BYTES)
        record = json.loads(body) if response.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        record = None
    finally:
        connection.close()
    if not isinstance(record, dict) or "slot_name" not in record:
        raise SourceError(
            f"{config.path.name}: no daemon answers on {listen}; "
            f"is it running? (systemctl status gaussdecode@{config.name})"
        )
    if record["slot_name"] != config.slot:
        raise SourceError(
            f"{config.path.name}: the daemon on {listen} follows slot {record['slot_name']}, "
            f"not {config.slot}; give each slot a port of its own"
        )
    return record
