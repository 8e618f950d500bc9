"""The address of a server, and the credentials for it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Self

from gaussdecode.errors import ConfigError, LoginRefusedError
from gaussdecode.host.access import refused
from gaussdecode.settings.dsn import files_of, parameters_of
from gaussdecode.settings.sections import Config


@dataclasses.dataclass(frozen=True, slots=True)
class SourceAddress:
    """How to reach the server.

    Attributes:
        conninfo: libpq's connection string; may hold the password.
        password: given apart from it, or None.
        is_insecure_allowed: the stream may cross a network unprotected.
        reread: gives the password that its file has now; None where it is not read again.
    """

    conninfo: str = dataclasses.field(repr=False)
    password: str | None = dataclasses.field(default=None, repr=False)
    is_insecure_allowed: bool = False
    reread: Callable[[], str | None] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    def now(self) -> Self:
        """The same with the password of now: it may be changed while a daemon runs.

        Raises:
            LoginRefusedError: its file cannot be used now.
        """
        if self.reread is None:
            return self
        try:
            return dataclasses.replace(self, password=self.reread())
        except ConfigError as error:
            raise LoginRefusedError(f"connecting: {error}") from None

    def kept(self) -> Self:
        """The same with the password of now for good: for processes that may not read the file.

        Raises:
            LoginRefusedError: its file cannot be used now.
        """
        return dataclasses.replace(self.now(), reread=None)

    @property
    def secret(self) -> str | None:
        """Values that must never be shown."""
        return self.password or parameters_of(self.conninfo).get("password")


def source_address(config: Config) -> SourceAddress:
    """How to reach the server of a configuration; the password is read at each connection."""
    reread = functools.partial(read_credentials, config)
    return SourceAddress(config.conninfo(), None, config.source.allow_insecure, reread)


def read_credentials(config: Config) -> str | None:
    """The password of now, after a look at the files of TLS.

    Raises:
        ConfigError: the password cannot be had, or a file of TLS may not be read.
    """
    _check_files(config.source.dsn)
    return config.password()


def credentials(config: Config) -> tuple[object, ...]:
    """What a log-in shows to the server; when it has changed, another attempt is worth while."""
    try:
        password = config.password()
    except ConfigError:
        password = None
    times: list[int | None] = []
    for path in files_of(config.source.dsn).values():
        try:
            times.append(path.stat().st_mtime_ns)
        except OSError:
            times.append(None)
    return (password, *times)


def _check_files(dsn: str) -> None:
    """See that the files of certificates and keys may be read, as far as they are there.

    Raises:
        AccessError: one may not.
    """
    for path in files_of(dsn).values():
        try:
            path.open("rb").close()
        except PermissionError as error:
            raise refused(path, error) from None
        except OSError:
            continue  # the client says what is wrong with it
