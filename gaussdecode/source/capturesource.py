"""A capture file as a source of the reader."""

from pathlib import Path

from gaussdecode.errors import IdentityError
from gaussdecode.ipc.control import Control
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._pgreceive import PostgresReceiver
from gaussdecode.source._receive import End
from gaussdecode.source._status import StatusClock
from gaussdecode.source.capture import Capture
from gaussdecode.source.interface import Log, Record, identity_record
from gaussdecode.source.pgsource import SlowPath, known_messages
from gaussdecode.source.relations import Relations, white_list


class CaptureSource:
    """A capture file.

    Args:
        settings: of the reader.
        say: tells what is worth a line.
    """

    sender_timeout_ms = 0

    def __init__(self, settings: Record, say: Log) -> None:
        self._capture = Capture(Path(settings["file"]))
        recorded = self._capture.header.identity
        self._identity = SourceIdentity(
            "capture",
            recorded.system_identifier,
            recorded.database,
            settings["slot"],
            recorded.plugin,
        )
        self._start_lsn = self._capture.header.start_lsn
        self._relations = Relations(white_list(settings))
        self._known = known_messages(settings)
        log = settings["log"]
        if log is not None:
            self._check(log)
            self._start_lsn = max(self._start_lsn, Lsn(log["lsn"]))

    def _check(self, log: Record) -> None:
        """The capture must belong to the log, and leave no gap behind its position."""
        for key in ("system_identifier", "database"):
            if log[key] != getattr(self._identity, key):
                raise IdentityError(
                    f"the log belongs to {key.replace('_', ' ')} {log[key]!r}, the capture to "
                    f"{getattr(self._identity, key)!r}; use another landing root"
                )
        if Lsn(log["lsn"]) < self._start_lsn:
            raise IdentityError(
                f"the log is at {Lsn(log['lsn'])}, the capture begins at {self._start_lsn}: changes "
                "in between are in neither; land the capture before this one first"
            )

    @property
    def facts(self) -> Record:
        """See `Source`."""
        header = self._capture.header
        return {
            "identity": identity_record(self._identity),
            "start_lsn": int(self._start_lsn),
            "timeline": header.timeline,
            "server_version": header.server_version,
            "encoding": header.encoding,
            "sender_timeout_ms": 0,
            "is_origin_filtered": header.options.get("origin") == "none",
            "hides_truncate": False,
            "warnings": [],
        }

    def receiver(
        self, control: Control, dispatcher: Dispatcher, clock: StatusClock
    ) -> PostgresReceiver:
        """See `Source`."""
        self._receiver = PostgresReceiver(control, dispatcher, clock, self._known)
        self._slow_path = SlowPath(self._receiver, self._relations)
        return self._receiver

    def start(self) -> None:
        """Let the loop read the mapped frames."""
        self._receiver.attach_capture(self._capture.frames)

    def answer(self, end: End) -> bool:
        """See `Source`."""
        return self._slow_path.answer(end)

    def error(self) -> None:
        """A capture's end is its end."""

    def end(self) -> None:
        """Nothing to be done: the loop still refers to the mapping."""
