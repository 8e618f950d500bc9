"""Ask all daemons of a host at once, and explain why a silent one does not answer.

The page of a machine is a command, not a part of a daemon: the daemon that serves it may be the one
that is down.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gaussdecode.daemon.status.fleet import Member, worst_first
from gaussdecode.daemon.status.seen import pasted
from gaussdecode.errors import AccessError, ConfigError, SourceError
from gaussdecode.operations.ask_daemon import OtherDaemonError, ask_status
from gaussdecode.operations.unit import unit_of, unit_state
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config

DIRECTORY: Final = Path("/etc/gaussdecode")
"""Directory of the unit's configurations."""
_THREADS: Final = 16  # arbitrary; each waits for one daemon


def config_files(paths: Sequence[Path]) -> list[Path]:
    """Replace each directory by its configuration files.

    Raises:
        ConfigError: a directory has none.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(path.glob("*.yaml"))
        if not inside and not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(path))
        if not inside:
            raise ConfigError(f"{path}: no configuration (*.yaml) in this directory")
        found += inside
    return found


class Fleet:
    """The daemons of some configurations.

    Uses only slot and address of a configuration. Files are read again when they change, directories
    each time, so an added or removed slot is noticed.

    Args:
        paths: configuration files, or directories of them.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._read: dict[Path, tuple[int, Config]] = {}

    def look(self) -> list[Member]:
        """Ask all daemons; the worst first.

        Raises:
            ConfigError: there is no daemon to ask.
        """
        files = config_files(self._paths)
        with ThreadPoolExecutor(_THREADS) as threads:
            return worst_first(list(threads.map(self._member, files)))

    def configs(self) -> list[Config]:
        """All readable configurations."""
        found = []
        for path in config_files(self._paths):
            try:
                found.append(self._config(path))
            except (ConfigError, OSError):
                continue
        return found

    def find(self, name: str) -> Config | None:
        """The configuration with this name; None if there is none or it cannot be read."""
        return next((config for config in self.configs() if config.name == name), None)

    def _config(self, path: Path) -> Config:
        changed = path.stat().st_mtime_ns
        known = self._read.get(path)
        if known is None or known[0] != changed:
            known = changed, load(path)
            self._read[path] = known
        return known[1]

    def _member(self, path: Path) -> Member:
        name = path.stem
        try:
            config = self._config(path)
        except (AccessError, PermissionError) as error:
            what = str(error) if isinstance(error, AccessError) else f"{path} may not be read."
            return Member.silent(
                name, "not allowed", what, f"Use {pasted('sudo', 'gaussdecode', 'top')}."
            )
        except ConfigError as error:
            what = "; ".join(str(error).splitlines())
            return Member.silent(
                name, "wrong", what, f"See {pasted('gaussdecode', 'check', str(path))}."
            )
        except OSError as error:
            return Member.silent(
                name, "missing", f"{path}: {error.strerror}.", "Look at the directory."
            )
        try:
            return Member.answering(name, ask_status(config))
        except OtherDaemonError as error:
            action = f"Change monitoring.listen in {path}, then {pasted('systemctl', 'restart', unit_of(path))}."
            return Member.silent(name, "port taken", _what(error), action)
        except SourceError as error:
            return _unanswered(path, _what(error))


def _what(error: SourceError) -> str:
    """The error without its advice: our advice names a command."""
    return f"{error.reason.partition('; ')[0]}."


def _unanswered(path: Path, what: str) -> Member:
    """A daemon that does not answer, with the state of its unit, which tells more than the port."""
    unit = unit_of(path)
    state = unit_state(unit)
    told = "" if state is None else f" systemd: {state}."
    return Member.silent(
        path.stem,
        "silent" if state is None else state.partition(",")[0],
        f"{what}{told}",
        f"See why: {pasted('journalctl', '-u', unit, '-n', '20')}; then {pasted('systemctl', 'start', unit)}.",
    )
