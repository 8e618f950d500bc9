"""Ask a running daemon for its status, through its monitoring port."""

import contextlib
import http.client
import json
import re
import socket
import ssl
from pathlib import Path
from typing import Any, Final

from gaussdecode.daemon.control import ANSWER_SECONDS, Answer, at_root
from gaussdecode.daemon.status.http import NEEDS_TLS
from gaussdecode.errors import SourceError
from gaussdecode.host.access import refused
from gaussdecode.land.names import CONTROL
from gaussdecode.settings.sections import Config

_SECONDS: Final = 5.0
_PLAIN: Final = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
)  # of OpenSSL, before and from 3.2 on
_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
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
        status, body = fetch(config, "/status")
        if status == http.HTTPStatus.BAD_REQUEST and body == NEEDS_TLS:
            raise SourceError(f"{name}: {_unlike(config, 'with TLS')}")
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
            with contextlib.suppress(BrokenPipeError):  # refused before it asked
                client.sendall(json.dumps({"act": act, "table": table}).encode() + b"\n")
            with client.makefile("rb") as answer:
                record = json.loads(answer.readline(_MAX_BYTES))
        return Answer(bool(record["is_done"]), str(record["text"]))
    except PermissionError as error:
        raise refused(root / CONTROL, error) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = _why(error) if isinstance(error, OSError) else "no whole answer"
        raise SourceError(
            f"{config.path.name}: no daemon answers at {root / CONTROL} ({why}); {_advice(config)}"
        ) from None


def _advice(config: Config) -> str:
    """What to do where the socket does not answer: it is made when the landing is recovered."""
    try:
        state = ask_status(config)["state"]
    except SourceError:
        return f"is it running? (systemctl status gaussdecode@{config.name})"
    return f"its state is {state}: ask again"


def fetch(config: Config, path: str) -> tuple[int, bytes]:
    """Fetch a page of a daemon: status and content.

    With TLS the daemon must show the certificate that the configuration names, and no other will do: not its
    name and not its dates matter to a program of the same machine.

    Raises:
        OSError: no answer.
        HTTPException: the answer is not HTTP.
        SourceError: it is not the daemon of this configuration, as far as TLS shows.
    """
    listen, files = config.monitoring.listen, config.monitoring.tls_files
    if files is None:
        connection = http.client.HTTPConnection(listen.host, listen.port, timeout=_SECONDS)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is compared below, before anything is sent
        connection = http.client.HTTPSConnection(
            listen.host, listen.port, timeout=_SECONDS, context=context
        )
    try:
        if files is not None:
            _connect(connection, files.certificate, config)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(_MAX_BYTES)
    finally:
        connection.close()


def _connect(connection: http.client.HTTPConnection, path: Path, config: Config) -> None:
    """Connect, and compare the certificate of the other side with that of a file."""
    try:
        connection.connect()
    except ssl.SSLError as error:
        why = "without TLS" if error.reason in _PLAIN else f"and TLS failed ({error.reason})"
        raise SourceError(f"{config.path.name}: {_unlike(config, why)}") from None
    assert isinstance(connection.sock, ssl.SSLSocket)
    shown = connection.sock.getpeercert(binary_form=True)
    where = f"{config.path.name}: monitoring.tls-certificate-file: {path}"
    try:
        pem = _PEM.search(path.read_text(errors="replace"))
        own = None if pem is None else ssl.PEM_cert_to_DER_cert(pem[0])
    except PermissionError as error:
        raise SourceError(f"{where}: {refused(path, error)}; run this as another user") from None
    except OSError as error:
        raise SourceError(f"{where}: {error.strerror}; write the certificate there") from None
    except ValueError:
        own = None
    if own is None:
        raise SourceError(f"{where}: holds no certificate in PEM form; write it there")
    if own != shown:
        raise SourceError(
            f"{where}: what answers on {config.monitoring.listen} shows another certificate; see the log of "
            f"the daemon, which may not have taken this one (journalctl -u gaussdecode@{config.name}), or "
            f"another program listens there (ss -ltnp 'sport = :{config.monitoring.listen.port}')"
        )


def _unlike(config: Config, how: str) -> str:
    """An answer that is not as the configuration has it."""
    return (
        f"{config.monitoring.listen} answers {how}, unlike monitoring in the configuration; if its daemon "
        f"runs with a former one, reload it (gaussdecode ctl {config.name} reload)"
    )


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"silent for {_SECONDS:.0f} seconds"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return "not HTTP"
