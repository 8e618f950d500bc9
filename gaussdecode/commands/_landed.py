"""What an operator must not do behind the back of a landing."""

from gaussdecode.errors import ConfigError
from gaussdecode.land.names import LAYOUT
from gaussdecode.settings import Config


def has_landing(config: Config) -> bool:
    """Whether something has landed, or was to land, at the configured root."""
    return (config.landing.root / LAYOUT).exists()


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
