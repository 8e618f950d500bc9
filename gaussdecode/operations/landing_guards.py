"""Refusals of what an operator must not do while a landing depends on it."""

from pathlib import Path

from gaussdecode.errors import ConfigError
from gaussdecode.host.access import is_there
from gaussdecode.land.names import CHECKPOINTS, COMMITS, LAYOUT, entry_number
from gaussdecode.model.entry import BEGINS, CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.settings.sections import Config


def has_landing(config: Config) -> bool:
    """Whether the landing at the configured root has gone on from where it began."""
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
    """Whether an entry says no more than where the landing begins."""
    try:
        entry = CommitEntry.from_bytes(path.read_bytes())
    except (OSError, ValueError):
        return False
    return entry.kind is EntryKind.GENESIS or BEGINS in entry.extra


def refuse_landed(config: Config, what: str) -> None:
    """Keep an operator from making a hole in a landing without noticing.

    Raises:
        ConfigError: there is one, which would miss changes.
    """
    if has_landing(config):
        raise ConfigError(
            f"{config.path.name}: {config.landing.root} holds a landing already, which would miss the "
            f"changes in between; {what} with a new landing.root, or go on with `gaussdecode slot "
            "accept-gap`"
        )
