"""Read a capture file as a source."""

import dataclasses
from pathlib import Path

from gaussdecode.errors import IdentityError
from gaussdecode.ipc.control import Control
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End, Receiver
from gaussdecode.source._status import StatusClock
from gaussdecode.source.capture import Capture, Style
from gaussdecode.source.gaussdb._receive import GaussReceiver
from gaussdecode.source.gaussdb.capture import RecordedCatalog
from gaussdecode.source.gaussdb.identity import nulls_of
from gaussdecode.source.gaussdb.source import GaussPath, relations_of, translator_of
from gaussdecode.source.interface import Log, Record
from gaussdecode.source.postgresql._receive import PostgresReceiver
from gaussdecode.source.postgresql.relations import Relations
from gaussdecode.source.postgresql.source import SlowPath, known_messages
from gaussdecode.source.relations import white_list
from gaussdecode.source.settings import ReaderSettings
from gaussdecode.source.slot import LandingPosition
from gaussdecode.wire.encoding import find_encoding


class CaptureSource:
    """A capture file.

    Args:
        settings: settings of the reader.
        say: tells what is worth a line.
    """

    sender_timeout_ms = 0
    _slow_path: SlowPath | GaussPath

    def __init__(self, settings: ReaderSettings, say: Log) -> None:
        assert settings.file is not None  # a configuration of this kind has one
        self._capture = Capture(Path(settings.file))
        recorded = self._capture.header.identity
        self._identity = SourceIdentity(
            "capture", recorded.system_identifier, recorded.database, settings.slot, recorded.plugin
        )
        self._start_lsn = self._capture.header.start_lsn
        self._settings = settings
        self._say = say
        if settings.log is not None:
            self._check(settings.log)
            self._start_lsn = max(self._start_lsn, settings.log.lsn)

    def _check(self, log: LandingPosition) -> None:
        """The capture must belong to the log, and leave no gap after its position."""
        for key in ("system_identifier", "database"):
            if getattr(log, key) != getattr(self._identity, key):
                raise IdentityError(
                    f"the log belongs to {key.replace('_', ' ')} {getattr(log, key)!r}, the capture to "
                    f"{getattr(self._identity, key)!r}; use another landing root"
                )
        if log.lsn < self._start_lsn:
            raise IdentityError(
                f"the log is at {log.lsn}, the capture begins at {self._start_lsn}: changes "
                "in between are in neither; land the capture before this one first"
            )

    @property
    def facts(self) -> Record:
        """See `Source`."""
        header = self._capture.header
        return {
            "identity": dataclasses.asdict(self._identity),
            "start_lsn": int(self._start_lsn),
            "log_lsn": None,
            "timeline": header.timeline,
            "server_version": header.server_version,
            "encoding": header.encoding,
            "sender_timeout_ms": 0,
            "is_origin_filtered": header.options.get("origin") == "none",
            "hides_truncate": header.style is not None and header.style.hides_truncate,
            "warnings": [],
        }

    def receiver(self, control: Control, dispatcher: Dispatcher, clock: StatusClock) -> Receiver:
        """See `Source`; which loop it is depends on what was recorded."""
        style = self._capture.header.style
        if style is None:
            self._receiver: Receiver = self._pgoutput(control, dispatcher, clock)
        else:
            self._receiver = self._translated(style, control, dispatcher, clock)
        return self._receiver

    def _pgoutput(
        self, control: Control, dispatcher: Dispatcher, clock: StatusClock
    ) -> PostgresReceiver:
        settings = self._settings
        receiver = PostgresReceiver(control, dispatcher, clock, known_messages(settings))
        encoding = find_encoding(self._capture.header.stream_encoding)
        self._slow_path = SlowPath(
            receiver, Relations(white_list(settings.decoding), encoding, settings.unread)
        )
        return receiver

    def _translated(
        self, style: Style, control: Control, dispatcher: Dispatcher, clock: StatusClock
    ) -> GaussReceiver:
        settings, recorded = self._settings, RecordedCatalog()
        translator = translator_of(
            settings,
            style.letter,
            self._capture.header.encoding,
            is_batched=style.is_batched,
            takes_ddl=self._capture.header.options.get("enable-ddl-decoding") == "true",
        )
        receiver = GaussReceiver(control, dispatcher, clock, translator, settings.max_message_bytes)
        nulls = nulls_of(self._capture.header.server_version, style.letter)
        relations = relations_of(settings, recorded, nulls)
        self._slow_path = GaussPath(receiver, relations, self._say, recorded)
        return receiver

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
