"""Find certificates of ours that end soon: that of the monitoring port, and those that servers are shown."""

import time
from collections.abc import Iterator
from pathlib import Path

from gaussdecode.daemon.status.expiry import ending
from gaussdecode.host.certificates import CertificateEnd
from gaussdecode.operations.check.doctor import Finding
from gaussdecode.settings.sections import PORT_CERTIFICATE, Config
from gaussdecode.source.certificates import shown_to_servers


def examine_certificates(config: Config) -> Iterator[Finding]:
    """Those that end within two weeks; a bad one of the port is a problem, see `check.port`."""
    files, now = shown_to_servers(config), time.time()
    port = config.monitoring.tls_files
    if port is not None and CertificateEnd(port.certificate).seconds() > now:
        files[PORT_CERTIFICATE] = port.certificate
    for name, path in files.items():
        yield from ending_findings(name, path, "the other side refuses", "certificate-ends")


def ending_findings(name: str, path: Path, who: str, state: str | None = None) -> Iterator[Finding]:
    """Judge the certificate of a setting; `who` begins the consequence, such as ``clients refuse``."""
    text = ending(name, CertificateEnd(path).seconds(), time.time())
    if text is not None:
        yield Finding(
            text.removesuffix("."),
            f"after that {who} the connection",
            f"write a new certificate and its key into the same files: {path}",
            state,
        )
