"""Asks the daemons of a machine, all at once, and says of those that are silent why."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gaussdecode.daemon.status.fleet import Member, worst_first
from gaussdecode.daemon.status.states import pasted
from gaussdecode.errors import AccessError, ConfigError, SourceError
from gaussdecode.operations.ask_daemon import OtherDaemonError, ask_status
from gaussdecode.operations.unit import unit_of, unit_state
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config

DIRECTORY: Final = Path("/etc/gaussdecode")
"""Where the unit has its configurations."""
_THREADS: Final = 16  # arbitrary; each waits for one daemon


def config_files(paths: Sequence[Path]) -> list[Path]:
    """Put the files of a directory in its place.

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

    Of a configuration only slot and address are used. Files are read again when they change,
    directories each time: a slot that is added or removed is seen.

    Args:
        paths: configuration files, or directories of them.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._read: dict[Path, tuple[int, Config]] = {}

    def look(self) -> list[Member]:
        """Ask all; the worst first.

        Raises:
            ConfigError: there is nobody to ask.
        """
        files = config_files(self._paths)
        with ThreadPoolExecutor(_THREADS) as threads:
            return worst_first(list(threads.map(self._member, files)))

    def configs(self) -> list[Config]:
        """All that can be read."""
        found = []
        for path in config_files(self._paths):
            try:
                found.append(self._config(path))
            except (ConfigError, OSError):
                continue
        return found

    def find(self, name: str) -> Config | None:
        """The configuration of that name, as far as it can be read; None for none."""
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
    """What is wrong, without the advice after it: ours names a command."""
    return f"{error.reason.partition('; ')[0]}."


def _unanswered(path: Path, what: str) -> Member:
    """One that does not answer: what systemd says of its unit is more than the port can tell."""
    unit = unit_of(path)
    state = unit_state(unit)
    told = "" if state is None else f" systemd: {state}."
    return Member.silent(
        path.stem,
        "silent" if state is None else state.partition(",")[0],
        f"{what}{told}",
        f"See why: {pasted('journalctl', '-u', unit, '-n', '20')}; then {pasted('systemctl', 'start', unit)}.",
    )
