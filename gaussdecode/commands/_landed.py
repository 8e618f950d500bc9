"""Refusals of what an operator must not do while a landing depends on it."""

from gaussdecode.access import is_there
from gaussdecode.errors import ConfigError
from gaussdecode.land.names import CHECKPOINTS, COMMITS, LAYOUT, entry_number
from gaussdecode.settings.sections import Config


def has_landing(config: Config) -> bool:
    """Whether the landing at the configured root has gone on from where it began."""
    root = config.landing.root
    if not is_there(root / LAYOUT):
        return False
    try:
        items = [item.name for item in (root / COMMITS).iterdir()]
        is_used = any((root / CHECKPOINTS).iterdir())
    except OSError:
        return True
    return is_used or any((entry_number(name) or 0) > 0 for name in items)


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
