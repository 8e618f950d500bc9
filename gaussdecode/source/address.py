"""The address of a server, and the credentials for it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaussdecode.host.access import refused
from gaussdecode.settings.dsn import parameters_of
from gaussdecode.settings.sections import Config

_FILES: Final = frozenset({"sslkey", "sslcert", "sslrootcert", "sslcrl"})


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
        """Values that must never be shown."""
        return self.password or parameters_of(self.conninfo).get("password")


def source_address(config: Config) -> SourceAddress:
    """How to reach the server of a configuration, password included.

    Raises:
        ConfigError: the password file cannot be used, or a file of TLS may not be read.
    """
    _check_files(parameters_of(config.source.dsn))
    return SourceAddress(config.conninfo(), config.password(), config.source.allow_insecure)


def _check_files(parameters: Mapping[str, str]) -> None:
    """See that the files of certificates and keys may be read, as far as they are there.

    Raises:
        AccessError: one may not.
    """
    for path in (Path(parameters[key]).expanduser() for key in _FILES & parameters.keys()):
        try:
            path.open("rb").close()
        except PermissionError as error:
            raise refused(path, error) from None
        except OSError:
            continue  # the client says what is wrong with it
