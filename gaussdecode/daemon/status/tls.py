"""Read certificate and key of the monitoring port, and read them again when their files change.

A file that cannot be used is refused with its key, at the start and by ``gaussdecode check``. While the daemon
runs it leaves the former certificate in use, and the log says why: to write two files takes a moment.
"""

import ssl
import threading
from pathlib import Path
from typing import Final

from gaussdecode.errors import ConfigError
from gaussdecode.host.access import refused, rights
from gaussdecode.host.certificates import Validity, is_open_key, stamp
from gaussdecode.logs import Event, get_logger
from gaussdecode.settings.sections import PortFiles

_CERTIFICATE: Final = "tls-certificate-file"
_KEY: Final = "tls-key-file"
_CLIENT_CA: Final = "monitoring.tls-client-ca-file"
_log = get_logger("daemon")


class PortTls:
    """The TLS of the port, as its files are now. Thread-safe.

    Args:
        files: its files.

    Raises:
        ConfigError: one of them cannot be used.
    """

    def __init__(self, files: PortFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen = _stamps(files)  # before they are read: a change meanwhile is seen later
        self._context = server_context(files)
        self._validity = Validity.of_file(files.certificate)

    @property
    def end(self) -> float:
        """Until when the certificate in use is valid; seconds since 1970."""
        return float(self._validity.end)

    def context(self) -> ssl.SSLContext:
        """What a connection that begins now is to use."""
        if _stamps(self._files) != self._seen:
            try:
                told = self.reread()
                _log.info(Event.CERTIFICATE_READ, text=told)
            except ConfigError as error:
                _log.error(Event.ERROR, reason=str(error))
        return self._context

    def reread(self) -> str:
        """Read the files now, and tell how long the certificate is valid.

        Raises:
            ConfigError: one of them cannot be used; the former certificate stays.
        """
        with self._lock:
            self._seen = _stamps(self._files)
            try:
                self._context = server_context(self._files)
            except ConfigError as error:
                raise ConfigError(f"{error}; the former certificate stays in use") from None
            self._validity = Validity.of_file(self._files.certificate)
            return f"{self._files.section}.{_CERTIFICATE}: {self._validity}"


def server_context(files: PortFiles) -> ssl.SSLContext:
    """Read the files.

    Raises:
        ConfigError: one cannot be used.
        AccessError: one may not be read by this user.
    """
    for name, path in files.named.items():
        try:
            path.open("rb").close()
        except PermissionError as error:
            raise refused(path, error) from None
        except OSError as error:
            raise ConfigError(f"{name}: {path}: {error.strerror}") from None
    if is_open_key(files.key):
        raise ConfigError(
            f"{files.section}.{_KEY}: {rights(files.key)}: it is open to others; chmod 0600, or 0640 if root owns it"
        )
    _check_validity(f"{files.section}.{_CERTIFICATE}", files.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # a connection has one request
    _load_pair(context, files)
    if files.client_ca is not None:
        _load_clients(context, files.client_ca)
    return context


def _check_validity(key: str, path: Path) -> None:
    try:
        problem = Validity.of_file(path).problem()
    except ValueError:
        problem = "holds no certificate in PEM form; write it there, beginning with the port's own"
    except OSError as error:
        problem = error.strerror
    else:
        problem = problem and f"{problem}; renew the certificate, or set the clock"
    if problem is not None:
        raise ConfigError(f"{key}: {path}: {problem}")


def _load_pair(context: ssl.SSLContext, files: PortFiles) -> None:
    def no_password() -> str:
        raise ConfigError(
            f"{files.section}.{_KEY}: {files.key}: it is protected by a password, which nobody enters here; write it "
            "without one (openssl pkey)"
        )

    try:
        context.load_cert_chain(files.certificate, files.key, no_password)
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            why = f"is not the key of the first certificate in {files.certificate}; write both anew"
        else:
            why = (
                f"it holds no private key in PEM form, or a certificate in {files.certificate} is damaged "
                f"(OpenSSL: {error.reason or 'no reason given'})"
            )
        raise ConfigError(f"{files.section}.{_KEY}: {files.key}: {why}") from None


def _load_clients(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        pass  # said below: it holds none
    authorities = context.get_ca_certs()
    problems = [Validity.of(each).problem() for each in authorities]
    if not authorities or None not in problems:
        why = problems[0] if problems else "it holds no certificate of an authority in PEM form"
        raise ConfigError(f"{_CLIENT_CA}: {path}: {why}; write a valid one there")
    context.verify_mode = ssl.CERT_OPTIONAL


def _stamps(files: PortFiles) -> list[tuple[int, ...] | None]:
    """What changes with the files; None for one that is not there."""
    return [stamp(path) for path in files.named.values()]
