"""Run the reader's process: ``python -m gaussdecode.source.reader``, started by the daemon.

It gets one line of settings on standard input (see `settings.ReaderSettings`): the source, and the descriptors
of its rings and of the control block. It starts the stream only where the log and the server belong
together and main has said go. Every message that was received whole reaches the rings, however the stream
ends; end entries follow; the last status confirms what main has landed. Imports no pyarrow.

Reports, in this order:

- ``connected``: what main needs for the genesis entry; see `Source.facts`.
- ``streaming``: the source has begun the stream.
- ``log``: events worth a line.
- ``error``: why the stream ended other than on request; the end entries come after it.

Worked flow: connect, check, ``connected``, wait for GO, stream. On a new Relation or Type the
loop comes back for the slow path and goes on. On a stop: end entries, wait for FINISHED,
last status, exit 0. On a broken connection or wrong bytes: report, end entries, wait for
FINISHED, exit with the error's status. A ring without a reader: report and exit at once,
for main knows already.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Final, NoReturn

from gaussdecode._wire import BatchDecoder
from gaussdecode.errors import (
    ChildError,
    GaussDecodeError,
    SourceError,
    StreamError,
    attributed,
    to_record,
)
from gaussdecode.ipc.control import Control, Word
from gaussdecode.ipc.process import Reports, enter_child
from gaussdecode.ipc.ring import Ring
from gaussdecode.settings.rules import SourceKind
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End, Receiver
from gaussdecode.source._status import StatusClock
from gaussdecode.source.interface import Log, Record, Source
from gaussdecode.source.settings import ReaderSettings

_LOOK_SECONDS: Final = 0.005  # between looks at main's words before the stream starts
_KINDS: Final[Mapping[SourceKind, str]] = {
    SourceKind.POSTGRESQL: "gaussdecode.source.postgresql.source:PostgresSource",
    SourceKind.GAUSSDB: "gaussdecode.source.gaussdb.source:GaussSource",
    SourceKind.CAPTURE: "gaussdecode.source.capturesource:CaptureSource",
}
"""Module of each kind of source; only the one in use is imported."""


class Reader:
    """Runs one stream from its source into the rings.

    Args:
        record: record of the settings, and what the daemon has added.
        reports: reports to main.
    """

    def __init__(self, record: Record, reports: Reports) -> None:
        self._settings = ReaderSettings.from_record(record)
        self._reports = reports
        self._control = Control.attach(record["control_fd"])
        self._rings = [Ring.attach_producer(fds) for fds in record["ring_fds"]]
        self._decoder: BatchDecoder | None = None
        if record["decoder_count"] == 1:
            self._decoder = BatchDecoder(
                max_row_bytes=self._settings.max_row_bytes,
                defers_large_rows=self._settings.defers_large_rows,
            )

    def run(self) -> None:
        """Stream until the end.

        Raises:
            GaussDecodeError: before main said go. Later errors are reported, and end the
                process with their status after the end entries.
        """
        path = _KINDS[self._settings.kind]
        make: Callable[[ReaderSettings, Log], Source] = resolve_name(path)
        source = make(self._settings, self._reports.log)
        self._reports.write("connected", **source.facts)
        if not self._may_go():
            source.end()
            return
        receiver = self._receiver(source)
        error = self._receive(source, receiver)
        if error is not None:
            self._reports.error(error)
        if isinstance(error, ChildError) or receiver.finish() is End.DECODER:
            self._leave(error or ChildError("the reader of a queue has ended"))
        if error is not None:
            self._leave(error)
        source.end()

    def _may_go(self) -> bool:
        """Wait for main's word; False when it wants us to leave instead."""
        while not self._control.get(Word.GO):
            if self._control.get(Word.FINISHED):
                return False
            self._control.set(Word.READER_HEARTBEAT_NS, time.monotonic_ns())
            time.sleep(_LOOK_SECONDS)
        return True

    def _receiver(self, source: Source) -> Receiver:
        settings = self._settings
        dispatcher = Dispatcher(
            self._rings, decoder=self._decoder, kept_bytes=settings.decoding.kept_buffer_bytes
        )
        clock = StatusClock(
            source.facts["start_lsn"],
            time.monotonic_ns() // 1000,
            source.sender_timeout_ms * 1000,
            int(settings.receiver_timeout * 1e6),
        )
        return source.receiver(self._control, dispatcher, clock)

    def _receive(self, source: Source, receiver: Receiver) -> GaussDecodeError | None:
        """Run the loop and the slow path until the stream ends; give the reason."""
        try:
            source.start()
            self._reports.write("streaming")
            end = receiver.run()
            while source.answer(end):
                end = receiver.run()
            return self._reason(source, receiver, end)
        except GaussDecodeError as error:
            decoder = self._decoder if receiver.dispatcher.has_failed else None
            if decoder is not None:  # the loop may be transactions ahead of it
                decoder.locate(error)
            if isinstance(error, StreamError):
                receiver.locate(error)
            if decoder is not None:
                known = attributed(error, decoder.blamed())
                receiver.dispatcher.put_error(json.dumps(to_record(known)).encode())
            return error

    def _reason(self, source: Source, receiver: Receiver, end: End) -> GaussDecodeError | None:
        if end is End.STOP:
            return None
        if end is End.DECODER:
            return ChildError("a decoder has ended: its queue has no reader any more")
        receiver.disconnect()
        if end is End.SILENT:
            seconds = self._settings.receiver_timeout
            return SourceError(
                f"streaming: no byte from the server for {seconds:g} seconds, not even after a "
                "request for a reply"
            )
        return source.error()

    def _leave(self, error: GaussDecodeError) -> NoReturn:
        os._exit(error.exit_status)  # libpq must not wait for a dead server


def main() -> None:
    """Live and die as a child of the daemon; arguments are kinds of sources to import at once."""
    for kind in sys.argv[1:]:
        resolve_name(_KINDS[SourceKind(kind)])
    settings, reports = enter_child()
    try:
        Reader(settings, reports).run()
    except Exception as error:  # noqa: BLE001 - whatever it was, the daemon is to know
        reports.fail(error)


if __name__ == "__main__":
    main()
