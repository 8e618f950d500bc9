"""Decide whether the next session asks for open transactions.

The decision depends on the configuration and on how sessions ended. When the server, the protocol or the
spool's limit prevents streaming, the next session runs without it. That costs the server a file and time,
never a row. Streaming is tried again as soon as the transaction has landed, where its end is known. Else
it is tried after a minute, and after twice as long each time that it fails again.

Servers can fail on a streamed transaction and succeed on the same one sent whole. The reader recognises
such a failure by its place: inside a block of an open transaction. A connection that ends elsewhere,
or because the server ends connections (SQLSTATE classes 57 and 08), says nothing about streaming.
"""

import time
from collections.abc import Callable
from typing import Final

from gaussdecode.errors import (
    GaussDecodeError,
    InexactStreamError,
    OpenTransactionError,
    RowError,
    SpoolFullError,
    TableError,
)
from gaussdecode.settings.source_sections import NOT_STREAMED

FIRST_SECONDS: Final = 60.0  # until it is tried again; arbitrary
LONGEST_SECONDS: Final = 3600.0


class Streaming:
    """One daemon's memory of it.

    Args:
        wanted: ``off``, ``on`` or ``parallel``, of the configuration.
        on_fallback: told why, each time.
        clock: monotonic seconds.

    Attributes:
        fallback_count: how often sessions went on without.
        reason: why the present one is without; None where it is as configured.
    """

    def __init__(
        self,
        wanted: str,
        on_fallback: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted = wanted
        self._on_fallback = on_fallback
        self._clock = clock
        self._until_lsn: int | None = None
        self._wait = FIRST_SECONDS
        self._tried_at = clock()
        self._due_at = 0.0
        self.fallback_count = 0
        self.reason: str | None = None

    @property
    def mode(self) -> str:
        """Choose the options of the next session."""
        return self._wanted if self.reason is None else NOT_STREAMED

    def ended(self, error: GaussDecodeError | None, position: int | None) -> None:
        """A session has ended.

        Args:
            error: why; None where it was asked to.
            position: up to where the landing is durable.
        """
        if self._wanted == NOT_STREAMED:
            return
        if self.reason is not None:
            self.reason = None
            self._tried_at = self._clock()
            return
        if isinstance(error, InexactStreamError):
            # Sent again after it had landed, it is over when the position has moved, and not before:
            # until something is confirmed, the server would send it once more.
            until = None if error.end_lsn is None else max(error.end_lsn, (position or 0) + 1)
            self._fall_back(error.reason, until)
        elif isinstance(error, SpoolFullError | OpenTransactionError):
            self._fall_back(str(error))
        elif isinstance(error, TableError | RowError) and self.shows_uncommitted:
            self._fall_back(str(error))  # of a row that may be rolled back; whole ones are not

    @property
    def shows_uncommitted(self) -> bool:
        """Whether a row of this session may be of a transaction that is rolled back later."""
        return self.mode != NOT_STREAMED

    def may_resume(self, position: int | None) -> bool:
        """Whether to try it again: the transaction has landed at a position, or it was long ago."""
        if self.reason is None:
            return False
        if self._until_lsn is not None:
            return (position or 0) >= self._until_lsn
        return self._clock() >= self._due_at

    def _fall_back(self, reason: str, until_lsn: int | None = None) -> None:
        now = self._clock()
        if now - self._tried_at > LONGEST_SECONDS:
            self._wait = FIRST_SECONDS  # it went well for long
        self._due_at = now + self._wait
        self._wait = min(2 * self._wait, LONGEST_SECONDS)
        self.fallback_count += 1
        self._until_lsn = until_lsn
        self.reason = reason
        self._on_fallback(reason)
