"""Read the address of a GaussDB and the protection of the connection from a connection string.

Given the string and the operator's settings, `parse_target` gives a `Target`: addresses in order, socket
options, TLS checks. It opens no connection; `tls_context` reads the files of TLS. A key that is not known here
is refused, never ignored: some of libpq's keys decide about safety. No text repeats a value that could be
a password.
"""

import dataclasses
import itertools
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from psycopg.conninfo import make_conninfo

from gaussdecode.errors import ConfigError, LoginRefusedError
from gaussdecode.host.certificates import is_open_key
from gaussdecode.settings.dsn import GAUSSDB_HARMLESS, GAUSSDB_NUMBERS, GAUSSDB_TEXTS, parameters_of
from gaussdecode.source.address import SourceAddress

SAFE_MODE: Final = "verify-full"
MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", SAFE_MODE)
_VERIFYING: Final = ("verify-ca", SAFE_MODE)
_DEFAULT_PORT: Final = "5432"
_DEFAULT_ROOT: Final = "~/.postgresql/root.crt"  # where libpq looks
_SYSTEM_ROOT: Final = "system"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """One place where the server may be.

    Attributes:
        host: name as configured, which a certificate is checked against.
        address: address to connect to: a name, a number or a directory.
        port: TCP port, or the number in the name of the Unix socket.
    """

    host: str
    address: str
    port: int

    @property
    def is_local(self) -> bool:
        """It is a Unix socket."""
        return self.address.startswith(("/", "@"))

    @property
    def socket_path(self) -> str:
        """Name of the Unix socket."""
        path = f"{self.address}/.s.PGSQL.{self.port}"
        return "\0" + path[1:] if path.startswith("@") else path

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files that TLS needs.

    Attributes:
        mode: sslmode.
        root: file of the authorities, ``system``, or empty.
        certificate: file of our own certificate, or empty.
        key: file of its key, or empty.
        key_password: key password of that file.
        revoked: file of revoked certificates, or empty.
        lowest: version of TLS.
    """

    mode: str = SAFE_MODE
    root: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = dataclasses.field(default="", repr=False)
    revoked: str = ""
    lowest: str = "TLSv1.2"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The address and settings of a connection.

    Attributes:
        endpoints: tried in this order.
        database: name.
        user: name.
        password: or None.
        application_name: shown by the server.
        tls: settings of TLS.
        numbers: time-outs in libpq's units, by key.
    """

    endpoints: tuple[Endpoint, ...]
    database: str
    user: str
    password: str | None = dataclasses.field(repr=False)
    application_name: str
    tls: TlsFiles
    numbers: Mapping[str, int]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown."""
        return tuple(text for text in (self.password, self.tls.key_password) if text)


def on_next_port(address: SourceAddress) -> SourceAddress:
    """The same servers, each at the port after its own: where a thread pool has replication."""
    given = parameters_of(address.conninfo)
    ports = [str(int(port or _DEFAULT_PORT) + 1) for port in given.get("port", "").split(",")]
    parameters = {**given, "port": ",".join(ports)}
    return dataclasses.replace(address, conninfo=make_conninfo("", **parameters))


def on_port(address: SourceAddress, port: int) -> SourceAddress:
    """The same server at another port, such as the HA port."""
    parameters = {**parameters_of(address.conninfo), "port": str(port)}
    return dataclasses.replace(address, conninfo=make_conninfo("", **parameters))


def parse_target(address: SourceAddress) -> Target:
    """Read a connection string.

    Raises:
        ConfigError: it is none, holds a key that is not offered for GaussDB, or protects the
            stream less than verify-full does without the operator's leave.
    """
    given = parameters_of(address.conninfo)
    _check_keys(given)
    for key in ("dbname", "user"):
        if not given.get(key):
            raise ConfigError(f"source.dsn: names no {key}; write {key}=...")
    endpoints = _endpoints(given)
    return Target(
        endpoints=endpoints,
        database=given["dbname"],
        user=given["user"],
        password=address.password or given.get("password") or None,
        application_name=given.get("application_name", "gaussdecode"),
        tls=_tls_files(given, endpoints, address.is_insecure_allowed),
        numbers={key: _number(given, key, default) for key, default in GAUSSDB_NUMBERS.items()},
    )


def _check_keys(given: Mapping[str, str]) -> None:
    for key, value in given.items():
        if key in GAUSSDB_TEXTS or key in GAUSSDB_NUMBERS or value in GAUSSDB_HARMLESS.get(key, ()):
            continue
        harmless = GAUSSDB_HARMLESS.get(key)
        what = f"{key} other than {' or '.join(harmless)}" if harmless else key
        raise ConfigError(f"source.dsn: {what} is not offered for GaussDB; leave it out")


def _number(given: Mapping[str, str], key: str, default: int) -> int:
    text = given.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"source.dsn: {key} is not a number")
    return int(text)


def _endpoints(given: Mapping[str, str]) -> tuple[Endpoint, ...]:
    names = given.get("host", "").split(",")
    addresses = given.get("hostaddr", "").split(",")
    if len(names) < len(addresses) and "host" not in given:
        names = [""] * len(addresses)
    if "hostaddr" not in given:
        addresses = [""] * len(names)
    ports = given.get("port", _DEFAULT_PORT).split(",")
    if len(ports) == 1:
        ports *= len(names)
    if not len(names) == len(addresses) == len(ports):
        raise ConfigError("source.dsn: host, hostaddr and port list different numbers of servers")
    return tuple(itertools.starmap(_endpoint, zip(names, addresses, ports, strict=True)))


def _endpoint(name: str, address: str, port: str) -> Endpoint:
    place = address or name
    if not place:
        raise ConfigError(
            "source.dsn: names no host; write host=NAME, or host=/DIRECTORY for a Unix socket"
        )
    number = port or _DEFAULT_PORT
    if not (number.isascii() and number.isdigit() and 0 < int(number[:6]) < 65536):
        raise ConfigError("source.dsn: port is not a number from 1 to 65535")
    return Endpoint(name or address, place, int(number))


def _tls_files(
    given: Mapping[str, str], endpoints: Sequence[Endpoint], is_insecure_allowed: bool
) -> TlsFiles:
    mode = given.get("sslmode", SAFE_MODE)
    if mode not in MODES:
        raise ConfigError(f"source.dsn: sslmode must be one of {', '.join(MODES)}")
    is_network = not all(endpoint.is_local for endpoint in endpoints)
    if is_network and mode != SAFE_MODE and not is_insecure_allowed:
        raise ConfigError(
            f"source.dsn: sslmode={mode} lets others read or forge the stream; "
            f"use sslmode={SAFE_MODE}, or set source.allow-insecure: true"
        )
    lowest = given.get("ssl_min_protocol_version", "TLSv1.2")
    if lowest not in _VERSIONS:
        raise ConfigError("source.dsn: ssl_min_protocol_version must be TLSv1.2 or TLSv1.3")
    root = given.get("sslrootcert", "")
    if root and mode == "require":
        mode = "verify-ca"  # as libpq does: who names an authority wants it asked
    if root == _SYSTEM_ROOT and mode != SAFE_MODE:
        raise ConfigError(f"source.dsn: sslrootcert=system needs sslmode={SAFE_MODE}")
    return TlsFiles(
        mode=mode,
        root=root,
        certificate=given.get("sslcert", ""),
        key=given.get("sslkey", ""),
        key_password=given.get("sslpassword", ""),
        revoked=given.get("sslcrl", ""),
        lowest=lowest,
    )


# ---- TLS -----------------------------------------------------------------------------------


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Read the files of TLS and say what it must prove.

    Raises:
        LoginRefusedError: a file is missing, damaged, or open to others: it may be being replaced.
        ConfigError: a key is named without its certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[files.lowest]
    context.check_hostname = files.mode == SAFE_MODE
    context.verify_mode = ssl.CERT_REQUIRED if files.mode in _VERIFYING else ssl.CERT_NONE
    if files.mode in _VERIFYING:
        _load_authorities(context, files)
    if files.certificate:
        _load_own(context, files)
    elif files.key:
        raise ConfigError("source.dsn: sslkey without sslcert")
    return context


def _load_authorities(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.root == _SYSTEM_ROOT:
        context.load_default_certs()
    else:
        path = Path(files.root or _DEFAULT_ROOT).expanduser()
        if not path.is_file():
            raise LoginRefusedError(
                f"connecting: no file {path} with the authority that signed the server's "
                "certificate; name it with sslrootcert="
            )
        _load(context, "sslrootcert", path)
    if files.revoked:
        _load(context, "sslcrl", Path(files.revoked).expanduser())
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


def _load(context: ssl.SSLContext, key: str, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise LoginRefusedError(f"connecting: {key}: {path}: {_reason(error)}") from None


def _load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    certificate = Path(files.certificate).expanduser()
    key = Path(files.key).expanduser() if files.key else certificate
    try:
        if is_open_key(key):
            raise LoginRefusedError(f"connecting: sslkey: {key} is open to others; chmod 0600")
        context.load_cert_chain(certificate, key, lambda: files.key_password)
    except (OSError, ssl.SSLError) as error:
        raise LoginRefusedError(f"connecting: sslcert, sslkey: {key}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "not the file of certificates or key that it should be"
    return os.strerror(error.errno) if error.errno else "cannot be read"
