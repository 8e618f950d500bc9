"""Decide when the next session begins, after one that failed.

The wait doubles each time, with jitter, and begins anew once a session has streamed for a while.
Where a log-in is refused the waits are longer, and end when the password or a file of the
certificate is changed. A GaussDB locks an account after ten wrong passwords: there a wrong one
waits for that change alone.
"""

import math
import random
import time
from collections.abc import Callable
from typing import Final

from gaussdecode.errors import GaussDecodeError, LoginRefusedError, error_text
from gaussdecode.logs import Event, get_logger
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import credentials
from gaussdecode.source.sqlstate import WRONG_PASSWORD

_LASTED_SECONDS: Final = 60.0  # arbitrary: a session this long was a good one
_LOGIN_FACTOR: Final = 5.0  # longer waits where the log-in is refused; arbitrary
_COMMAND_SECONDS: Final = 10.0  # between two runs of source.password-command; arbitrary
_LOGIN_CHANGED: Final = (
    "tried again at once when the password file, the output of the password command or a file of the "
    "certificate has changed; a systemd credential is read at the start of the unit only: restart it after a change"
)
_log = get_logger("daemon")


class Backoff:
    """How long to wait before the next attempt.

    Args:
        first: seconds before the first new attempt; doubles each time.
        longest: seconds at most.
        jitter: gives a factor between 0.5 and 1, so that many daemons do not come at once.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        jitter: Callable[[], float] = lambda: random.uniform(0.5, 1.0),
    ) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._next = first

    def next_wait(self, lasted: float) -> float:
        """Seconds to wait after a session that streamed for so many seconds."""
        if lasted >= _LASTED_SECONDS:
            self._next = self._first
        wait = self._next
        self._next = min(2 * wait, self._longest)
        return wait * self._jitter()


class Retry:
    """Waits between the sessions of one configuration."""

    def __init__(self, config: Config) -> None:
        source = config.source
        self._config = config
        self._backoff = Backoff(source.retry_first, source.retry_max)
        self._login_backoff = Backoff(
            _LOGIN_FACTOR * source.retry_first, _LOGIN_FACTOR * source.retry_max
        )
        self._streams_since: float | None = None
        self._shown: list[tuple[object, ...]] = []

    def begin(self) -> None:
        """A session begins."""
        self._streams_since = None
        self._shown = self._credentials()

    def streams(self) -> None:
        """It streams: before that it has not lasted, however long the attempt took."""
        self._streams_since = time.monotonic()

    def wait_after(self, error: GaussDecodeError) -> tuple[float, Callable[[], bool]]:
        """Seconds to wait after a session that ended in an error, and what ends that; logs them."""
        since = self._streams_since
        reason, lasted = error_text(error), 0.0 if since is None else time.monotonic() - since
        if not isinstance(error, LoginRefusedError):
            wait = self._backoff.next_wait(lasted)
            _log.warning(Event.SESSION_RETRYING, reason=reason, wait_seconds=round(wait, 2))
            return wait, lambda: False
        wait = self._login_backoff.next_wait(lasted)
        if self._config.source.kind is SourceKind.GAUSSDB and error.sqlstate == WRONG_PASSWORD:
            wait = math.inf
        _log.error(
            Event.SESSION_RETRYING,
            reason=reason,
            wait_seconds=None if wait == math.inf else round(wait, 2),
            text=_LOGIN_CHANGED,
        )
        return wait, self._change()

    def _change(self) -> Callable[[], bool]:
        """Whether a log-in would show something else now; a command is not run at each tick for it."""
        looks = _COMMAND_SECONDS if self._config.source.password_command else 0.0
        look_at = time.monotonic() + looks

        def has_changed() -> bool:
            nonlocal look_at
            if time.monotonic() < look_at:
                return False
            changed = self._credentials() != self._shown
            look_at = time.monotonic() + looks
            return changed

        return has_changed

    def _credentials(self) -> list[tuple[object, ...]]:
        """What the log-in at each server shows."""
        if self._config.source.kind is SourceKind.CAPTURE:
            return []
        return [credentials(member) for member in self._config.members.values()]
