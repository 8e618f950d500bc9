"""The interface of a source: the calls that the reader makes for every kind."""

from collections.abc import Callable
from typing import Any, Protocol

from gaussdecode.errors import GaussDecodeError
from gaussdecode.ipc.control import Control
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End, Receiver
from gaussdecode.source._status import StatusClock

Record = dict[str, Any]  # Any: JSON


Log = Callable[..., None]
"""Writes an event with its fields to the log, as `ipc.process.Reports.log` does."""


class Source(Protocol):
    """A source of the stream."""

    @property
    def facts(self) -> Record:
        """Facts about the server, for main.

        ``identity`` (fields of `SourceIdentity`), ``start_lsn`` and ``timeline`` (numbers),
        ``log_lsn`` (the log's position as the server's history has it, or None),
        ``wal_end`` (end of the server's WAL at the start, missing for a recording),
        ``server_version``, ``warnings`` (texts), ``encoding``, ``is_origin_filtered`` (the
        server itself leaves out what has an origin), ``sender_timeout_ms``,
        ``hides_truncate`` (TRUNCATE and DDL do not show in the stream). Where there are
        publications, ``coverage`` (see `coverage.Coverage`).
        """

    @property
    def sender_timeout_ms(self) -> int:
        """The server's ``wal_sender_timeout``."""

    def receiver(self, control: Control, dispatcher: Dispatcher, clock: StatusClock) -> Receiver:
        """Make the loop that will read it; comes before `start`."""

    def start(self) -> None:
        """Begin the stream and let the loop read from it."""

    def answer(self, end: End) -> bool:
        """Take the slow path that the loop came back for; False when it was not for that."""

    def error(self) -> GaussDecodeError | None:
        """Why the stream ended; None when it is complete."""

    def end(self) -> None:
        """Take leave after the last status."""
