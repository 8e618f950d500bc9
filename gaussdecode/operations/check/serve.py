"""Find what would keep `gaussdecode serve` from serving with a configuration, as it finds it itself at its start."""

import dataclasses
import errno

from gaussdecode.daemon.status.tls import server_context
from gaussdecode.errors import ConfigError
from gaussdecode.operations.check.certificates import ending_findings
from gaussdecode.operations.check.doctor import Finding
from gaussdecode.operations.check.port import listen_error, taken, unusable
from gaussdecode.serve.kept import is_running
from gaussdecode.serve.users import read_users
from gaussdecode.settings.option import SourceKind
from gaussdecode.settings.section_checks import LOOPBACK
from gaussdecode.settings.sections import Config, serve_port_files


@dataclasses.dataclass(frozen=True, slots=True)
class ServeFound:
    """The result.

    Attributes:
        text: how it is, in words.
        problems: why it cannot serve.
        findings: what else to repair.
    """

    text: str
    problems: list[str] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)


def examine_serve(config: Config) -> ServeFound:
    """Look at landing, users, TLS and ports of the section `serve`."""
    runs = is_running(config.landing.root)
    state = {True: "running", False: "not running", None: "not known"}[runs]
    found = ServeFound(f"{state}, in the daemon" if config.serve.in_daemon else state)
    _users(config, found)
    _tls(config, found)
    serve = config.serve
    if serve.catalog_dsn and (config.is_several or config.source.kind is not SourceKind.POSTGRESQL):
        found.problems.append(
            "serve.catalog-dsn: only the catalogue of one PostgreSQL source can be asked; leave the option out"
        )
    for key, listen in (("listen", serve.listen), ("monitoring-listen", serve.monitoring_listen)):
        error = None if listen is None else listen_error(listen)
        if listen is None or error is None:
            continue
        if error.errno != errno.EADDRINUSE:
            found.problems.append(unusable(f"serve.{key}", listen, error))
        elif runs is False:
            found.problems.append(taken(f"serve.{key}", listen, "another program"))
    return found


def _users(config: Config, found: ServeFound) -> None:
    path = config.serve.users_file
    if path is None:
        return
    try:
        if read_users(path):
            return
    except ConfigError as error:
        found.problems.append(str(error))
        return
    found.findings.append(
        Finding(
            f"serve.users-file: {path} has no user",
            "nobody can log in",
            f"gaussdecode serve passwd {path} NAME",
        )
    )


def _tls(config: Config, found: ServeFound) -> None:
    listen, files = config.serve.listen, serve_port_files(config.serve)
    if files is None:
        if listen.host not in LOOPBACK:
            found.findings.append(
                Finding(
                    f"serve.listen: {listen} is reached from other machines, without TLS",
                    "rows can be read on the way",
                    "set serve.tls-certificate-file and serve.tls-key-file",
                )
            )
        return
    try:
        server_context(files)
    except ConfigError as error:
        found.problems.append(str(error))
        return
    name = "serve.tls-certificate-file"
    found.findings.extend(ending_findings(name, files.certificate, "clients refuse"))
