"""Whether the next session asks for transactions while they are open, and for values in binary.

Given what the configuration wants and how sessions ended; promises that what the server, the
protocol or the spool's bound does not let stream does not stop the slot: the session after is without, which costs
the server a file and time, and never a row. It is tried again with the session after that,
which begins as soon as the transaction has landed, where it is known.

Servers fail on transactions that they stream and not on the same ones whole; such a
failure comes again at the same position with the same text, which tells it from others.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

from gaussdecode.errors import (
    GaussDecodeError,
    InexactStreamError,
    RowError,
    SourceError,
    SpoolFullError,
    TableError,
)
from gaussdecode.settings.sections import NOT_STREAMED

_MOST_REMEMBERED: Final = 100  # texts of failures; arbitrary


@dataclasses.dataclass(frozen=True, slots=True)
class _Failure:
    position: int | None
    text: str


class Streaming:
    """One daemon's memory of it.

    Args:
        wanted: ``off``, ``on`` or ``parallel``, of the configuration.
        wants_binary: the configuration asks for it.
        on_fallback: told why, each time.

    Attributes:
        fallback_count: how often sessions went on without.
        reason: why the present one is without; None where it is as configured.
    """

    def __init__(
        self, wanted: str, on_fallback: Callable[[str], None], *, wants_binary: bool = False
    ) -> None:
        self._wanted = wanted
        self._wants_binary = wants_binary
        self._on_fallback = on_fallback
        self._last: _Failure | None = None
        self._known: list[str] = []
        self._until_lsn: int | None = None
        self.fallback_count = 0
        self.reason: str | None = None

    @property
    def mode(self) -> str:
        """What the next session is to ask for."""
        return self._wanted if self.reason is None else NOT_STREAMED

    @property
    def is_binary(self) -> bool:
        """Whether it is to ask for values in binary."""
        return self._wants_binary and self.reason is None

    def ended(self, error: GaussDecodeError | None, position: int | None) -> None:
        """A session has ended.

        Args:
            error: why; None where it was asked to.
            position: up to where the landing is durable.
        """
        if self._wanted == NOT_STREAMED and not self._wants_binary:
            return
        if self.reason is not None:
            self.reason = None
            return
        if isinstance(error, InexactStreamError):
            # Sent again after it had landed, it is over when the position has moved, and not before:
            # until something is confirmed, the server would send it once more.
            until = None if error.end_lsn is None else max(error.end_lsn, (position or 0) + 1)
            self._fall_back(error.reason, until)
        elif isinstance(error, SpoolFullError):
            self._fall_back(error.reason)
        elif isinstance(error, TableError | RowError) and self.shows_uncommitted:
            self._fall_back(str(error))  # of a row that may be rolled back; whole ones are not
        elif isinstance(error, SourceError) and error.sqlstate is not None:
            failure = _Failure(position, str(error))
            if failure == self._last or failure.text in self._known:
                self._known = [*self._known, failure.text][-_MOST_REMEMBERED:]
                self._fall_back(failure.text)
            self._last = failure

    @property
    def shows_uncommitted(self) -> bool:
        """Whether a row of this session may be of a transaction that is rolled back later."""
        return self.mode != NOT_STREAMED

    def may_resume(self, position: int | None) -> bool:
        """Whether the transaction that could not be streamed has landed at a position."""
        until = self._until_lsn
        return self.reason is not None and until is not None and (position or 0) >= until

    def _fall_back(self, reason: str, until_lsn: int | None = None) -> None:
        self.fallback_count += 1
        self._until_lsn = until_lsn
        self.reason = reason
        self._on_fallback(reason)
