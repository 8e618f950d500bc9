"""Where a server is, and what proves who we are."""

import dataclasses

from gaussdecode.settings.dsn import parameters_of
from gaussdecode.settings.sections import Config


@dataclasses.dataclass(frozen=True, slots=True)
class SourceAddress:
    """How to reach the server.

    Attributes:
        conninfo: libpq's connection string; may hold the password.
        password: given apart from it, or None.
        is_insecure_allowed: the stream may cross a network unprotected.
    """

    conninfo: str = dataclasses.field(repr=False)
    password: str | None = dataclasses.field(default=None, repr=False)
    is_insecure_allowed: bool = False

    @property
    def secret(self) -> str | None:
        """What must never be shown."""
        return self.password or parameters_of(self.conninfo).get("password")


def source_address(config: Config) -> SourceAddress:
    """How to reach the server of a configuration, password included.

    Raises:
        ConfigError: the password file cannot be used.
    """
    return SourceAddress(config.conninfo(), config.password(), config.source.allow_insecure)
