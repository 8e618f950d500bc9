"""Refuse commands that would make a landing miss changes."""

from pathlib import Path

from gaussdecode.errors import ConfigError
from gaussdecode.host.access import is_there
from gaussdecode.land.names import CHECKPOINTS, COMMITS, LAYOUT, entry_number
from gaussdecode.model.entry import BEGINS, CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.settings.sections import Config


def has_landing(config: Config) -> bool:
    """Whether the landing at the configured root has entries after its first one."""
    root = config.landing.root
    if not is_there(root / LAYOUT):
        return False
    try:
        items = [item for item in (root / COMMITS).iterdir() if entry_number(item.name) is not None]
        is_used = any((root / CHECKPOINTS).iterdir())
    except OSError:
        return True
    return is_used or not all(map(_begins, items))


def _begins(path: Path) -> bool:
    """Whether an entry is only the beginning of a landing."""
    try:
        entry = CommitEntry.from_bytes(path.read_bytes())
    except (OSError, ValueError):
        return False
    return entry.kind is EntryKind.GENESIS or BEGINS in entry.extra


def refuse_landed(config: Config, what: str) -> None:
    """Refuse a command that would make the landing miss changes.

    Raises:
        ConfigError: there is a landing.
    """
    if has_landing(config):
        raise ConfigError(
            f"{config.path.name}: {config.landing.root} holds a landing already, which would miss the "
            f"changes in between; {what} with a new landing.root, or go on with `gaussdecode slot "
            "accept-gap`"
        )
