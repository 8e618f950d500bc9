"""Find what keeps the unit of a configuration from running it: rights of its account, credentials, hidden paths.

The rest of `check` works with the rights of the user that runs it, or of the landing's owner. The unit may have
others, and systemd reads the credentials before any program of ours runs.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from gaussdecode.host.access import obstacle_for, rights
from gaussdecode.operations.unit import Unit
from gaussdecode.settings.dsn import CREDENTIAL, files_of
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, serve_port_files


def unit_problems(config: Config, unit: Unit | None) -> list[str]:
    """Problems that keep a unit from running a configuration; none without a unit.

    Args:
        config: the configuration.
        unit: its unit.
    """
    if unit is None:
        return []
    files = _read_by_daemon(config, unit)
    return [*_credentials(unit), *_files(files, unit), *_landing(config, unit)]


def serve_unit_problems(config: Config, unit: Unit | None) -> list[str]:
    """Problems that keep the unit of `gaussdecode serve` from serving a configuration; none where it is not used.

    Args:
        config: the configuration.
        unit: its unit.
    """
    if unit is None or config.serve.in_daemon:
        return []
    files = [("configuration", config.path), *_read_by_serve(config)]
    return [*_files(files, unit), *_landing(config, unit)]


def _read_by_serve(config: Config) -> Iterator[tuple[str, Path]]:
    """Files that the server for clients reads, with the key that names each."""
    ports = (serve_port_files(config.serve), config.monitoring.tls_files)
    for of in ports if config.serve.monitoring_listen is not None else ports[:1]:
        yield from () if of is None else of.named.items()
    if config.serve.users_file is not None:
        yield "serve.users-file", config.serve.users_file


def _credentials(unit: Unit) -> Iterator[str]:
    for name, source in (unit.credentials or {}).items():
        try:
            is_missing = source.startswith("/") and not Path(source).exists()
        except PermissionError:
            continue  # this user may not know
        if is_missing:
            yield (
                f"{unit.name}: {source}, the credential {name!r}, does not exist, so systemd starts the unit "
                "again and again (243/CREDENTIALS): create it (root, mode 0600), or, if no password is "
                "needed, add a drop-in with LoadCredential= (systemctl edit)"
            )


def _files(files: Iterable[tuple[str, Path]], unit: Unit) -> Iterator[str]:
    for key, path in files:
        hidden = _above(path, unit.hidden)
        if hidden is not None:
            yield f"{unit.name}: {key}: {path} is hidden from the unit, as all of {hidden}: move the file"
            continue
        found = obstacle_for(path, unit.account.pw_uid, unit.groups)
        if found is not None:
            yield (
                f"{unit.name}: {key}: {path} may not be read by user {unit.account.pw_name}: "
                f"{rights(found)}; give its group the right (chgrp, chmod g+r; g+x for a directory)"
            )


def _read_by_daemon(config: Config, unit: Unit) -> Iterator[tuple[str, Path]]:
    """Files that the daemon reads itself, with the key that names each."""
    yield "configuration", config.path
    if config.mirror.credentials_file is not None:
        yield "landing.mirror.credentials-file", config.mirror.credentials_file
    if config.monitoring.tls_files is not None:
        yield from config.monitoring.tls_files.named.items()
    if config.serve.in_daemon:
        yield from _read_by_serve(config)
    for member in config.members.values():
        source = member.source
        has_credential = unit.credentials is None or CREDENTIAL in unit.credentials
        if source.password_file is not None and not has_credential:
            yield "source.password-file", source.password_file
        if source.file is not None:
            yield "source.file", source.file
        if source.kind is not SourceKind.CAPTURE:
            yield from files_of(source.dsn).items()


def _landing(config: Config, unit: Unit) -> Iterator[str]:
    root = config.landing.root.resolve()
    hidden = _above(root, unit.hidden)
    if hidden is not None:
        yield (
            f"{unit.name}: landing.root: {root} is hidden from the unit, as all of {hidden}: "
            "change landing.root"
        )
    elif unit.writable is not None and _above(root, unit.writable) is None:
        yield (
            f"{unit.name}: landing.root: {root} is read-only for the unit (ProtectSystem=strict): add a "
            f"drop-in with ReadWritePaths={root} (systemctl edit)"
        )


def _above(path: Path, places: tuple[str, ...]) -> str | None:
    """The first of some directories that a path is in."""
    real = path.resolve()
    return next((place for place in places if real.is_relative_to(Path(place).resolve())), None)
