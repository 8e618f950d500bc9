"""Say what is wrong with a certificate of the connection to the server: which, its dates, what to do.

libpq says only that the verification failed. Where it did, `look_at_server` connects once more, asks the server for TLS as
libpq does, and hangs up when the certificate is there. Nothing is sent that a server without proof may not see.
"""

import os
import re
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gaussdecode.errors import LoginRefusedError, SourceError
from gaussdecode.host.certificates import Validity
from gaussdecode.settings.dsn import is_local, parameters_of
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.sqlstate import AWAY

_Decoded = Mapping[str, Any]  # Any: ssl's form of a certificate
_WRONG_TIME: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_WRONG_NAME: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_WRONG_LIST: Final = (3, 11, 12)  # X509_V_ERR_UNABLE_TO_GET_CRL, CRL_NOT_YET_VALID, CRL_HAS_EXPIRED
_SSL_REQUEST: Final = struct.pack(">II", 8, 80877103)
_LOOK_SECONDS: Final = 5.0  # arbitrary
_DEFAULT_PORT: Final = "5432"
_SYSTEM: Final = "system"
_HOME: Final = Path("~/.postgresql")  # where libpq looks
_ALERT: Final = re.compile(
    r"alert (?:decrypt error|(?:(?:bad|unsupported|unknown) )?(?:certificate|ca)\b)"
)
"""TLS's word that the certificate is not accepted; a decrypt error is that of an authority with the same name."""
_ENDED: Final = re.compile("closed the connection|connection reset|broken pipe|eof ")


def verification_problem(
    error: ssl.SSLCertVerificationError, secured: ssl.SSLSocket, context: ssl.SSLContext
) -> str:
    """Say why the server's certificate was not accepted, and what to do.

    Args:
        error: what `ssl` says of it.
        secured: socket of the handshake that failed.
        context: with the authorities of sslrootcert.
    """
    if error.verify_code in _WRONG_NAME:
        return "the certificate is for another host; check host="
    shown, advice = [], "sslrootcert must have the authority that signed it"
    if error.verify_code in _WRONG_TIME:
        chain = getattr(secured, "_sslobj").get_unverified_chain()  # noqa: B009 - not in its types
        shown = [each.get_info() for each in chain or ()]
        advice = "renew it, or set the clock of this machine"
    elif error.verify_code in _WRONG_LIST:
        advice = "see sslcrl: the list of revoked certificates must be there and up to date"
    for text in _wrong_times(shown, context.get_ca_certs() if shown else ()):
        return text
    return f"the server's certificate is not valid ({error.verify_message}); {advice}"


def _wrong_times(shown: Sequence[_Decoded], known: Sequence[_Decoded]) -> Iterator[str]:
    """Certificates that are not valid now: those that the server shows, the others."""
    for number, each in enumerate(shown):
        problem = Validity.of(each).problem()
        what = (
            "the server's certificate" if number == 0 else f"authority {_name(each)} of the server"
        )
        if problem is not None:
            yield f"{what} {problem}; renew it on the server, or set the clock of this machine"
    for each in known:
        problem = Validity.of(each).problem()
        if problem is not None:
            yield (
                f"authority {_name(each)} of sslrootcert {problem}; write the new one there, or set the "
                "clock of this machine"
            )


def _name(decoded: _Decoded) -> str:
    names = dict(pair for part in decoded.get("subject", ()) for pair in part)
    return repr(str(names.get("commonName", "without a name")))


def login_problem(error: SourceError, certificate: Path | None) -> SourceError:
    """The same error, with what it has to do with our own certificate.

    A server that does not accept a certificate may end the connection without a word.

    Args:
        error: why the log-in failed; its text has TLS's alert, if there was one.
        certificate: file of sslcert; None for none.
    """
    said = str(error).lower().replace("_", " ")
    alert = _ALERT.search(said)
    if alert is None and _ENDED.search(said) is None:
        return error
    own = _own_problem(certificate, is_refused=alert is not None)
    if own is None:
        return error
    if alert is None:
        return type(error)(f"{error.reason}; {own}")
    return LoginRefusedError(f"{error.reason.removesuffix(f'; {AWAY.advice}')}; {own}")


def _own_problem(certificate: Path | None, *, is_refused: bool) -> str | None:
    if certificate is None:
        asked = (
            "the server wants a certificate of ours: name it and its key with sslcert= and sslkey="
        )
        return asked if is_refused else None
    try:
        validity = Validity.of_file(certificate)
    except (OSError, ValueError):
        return None  # the client has said what is wrong with it
    problem = validity.problem()
    if problem is not None:
        return f"our certificate, sslcert={certificate}, {problem}; renew it, or set the clock"
    if not is_refused:
        return None
    return (
        f"the server does not accept our certificate, sslcert={certificate}, {validity}: see that ssl_ca_file of "
        "the server has its authority, and that the server's clock is within these dates"
    )


def own_certificate(given: Mapping[str, str]) -> Path | None:
    """The file of our certificate, by libpq's parameters; None if there is none."""
    path = Path(given.get("sslcert") or _HOME / "postgresql.crt").expanduser()
    return path if given.get("sslcert") or path.exists() else None


def shown_to_servers(config: Config) -> dict[str, Path]:
    """The files of our certificates, by name: ``source.sslcert``, or ``sources.NAME.sslcert`` of several.

    What stands only in a service's file of libpq is not looked for.
    """
    found = {}
    for name, member in config.members.items():
        if member.source.kind is SourceKind.CAPTURE:
            continue
        given = parameters_of(member.source.dsn)
        if member.source.kind is SourceKind.GAUSSDB:  # whose client reads no environment
            path = Path(given["sslcert"]).expanduser() if given.get("sslcert") else None
        elif is_local(given):
            path = None
        else:
            path = own_certificate({"sslcert": os.environ.get("PGSSLCERT", ""), **given})
        if path is not None:
            found[f"sources.{name}.sslcert" if config.is_several else "source.sslcert"] = path
    return found


def look_at_server(given: Mapping[str, str]) -> str | None:
    """Find the server whose certificate cannot be verified, and say why.

    Args:
        given: libpq's parameters, those of the environment too.

    Returns:
        Host, port and problem; None if the certificate of every server that answers is good.
    """
    names = given.get("host", "").split(",")
    addresses = given.get("hostaddr", "").split(",")
    ports = given.get("port", "").split(",")
    count = max(len(names), len(addresses))
    for number in range(count):
        name, address = (of[number] if number < len(of) else "" for of in (names, addresses))
        port = ports[number if len(ports) == count else 0] or _DEFAULT_PORT
        try:
            problem = _look(name or address, address or name, int(port), given)
        except (OSError, ValueError):
            continue  # it does not answer, or has no TLS: libpq has said so
        if problem is not None:
            return f"{name or address}:{port}: {problem}"
    return None


def _look(name: str, address: str, port: int, given: Mapping[str, str]) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # libpq tells a wrong name well
    root = given.get("sslrootcert") or str((_HOME / "root.crt").expanduser())
    if root == _SYSTEM:
        context.load_default_certs()
    else:
        context.load_verify_locations(root)
    with socket.create_connection((address, port), _LOOK_SECONDS) as plain:
        plain.sendall(_SSL_REQUEST)
        if plain.recv(1) != b"S":
            return None
        with context.wrap_socket(
            plain, server_hostname=name, do_handshake_on_connect=False
        ) as secured:
            try:
                secured.do_handshake()
            except ssl.SSLCertVerificationError as error:
                return verification_problem(error, secured, context)
    return None
