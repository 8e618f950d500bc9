"""What an operator must not do behind the back of a landing."""

from gaussdecode.errors import ConfigError
from gaussdecode.land.names import LAYOUT
from gaussdecode.settings import Config


def refuse_landed(config: Config, what: str) -> None:
    """Keep an operator from making a hole in a landing without noticing.

    Raises:
        ConfigError: there is one, which would miss changes.
    """
    root = config.landing.root
    if (root / LAYOUT).exists():
        raise ConfigError(
            f"{config.path.name}: {root} holds a landing already, which would miss the changes "
            f"in between; {what} with a new landing.root"
        )
