"""The reader's process: ``python -m gaussdecode.source.reader``, started by the daemon.

Given, as one line of settings on standard input (see `settings.reader_settings`), where the
stream comes from and the descriptors of its rings and of the control block. Promises: the
stream is started only where the log and the server belong together and main has said go;
everything received whole reaches the rings, however it ends; end entries follow; the last
status confirms what main has landed. Imports no pyarrow.

Reports, in this order:

- ``connected``: what main needs for the genesis entry; see `Source.facts`.
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
import time
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from gaussdecode._wire import BatchDecoder
from gaussdecode.errors import ChildError, GaussDecodeError, IdentityError, SourceError, to_record
from gaussdecode.ipc.control import Control, Word
from gaussdecode.ipc.process import Reports, enter_child
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.source import slot as slots
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._known import KnownMessages
from gaussdecode.source._receive import End, Receiver
from gaussdecode.source._status import StatusClock
from gaussdecode.source.capture import Capture
from gaussdecode.source.libpq import address_of
from gaussdecode.source.postgresql import SourceAddress, connect
from gaussdecode.source.relations import Relations, WhiteList, relation_record
from gaussdecode.source.start import check_start, warnings

_LOOK_SECONDS: Final = 0.005  # between looks at main's words before the stream starts

Record = dict[str, Any]  # Any: JSON


class Source(Protocol):
    """Where the stream comes from."""

    @property
    def facts(self) -> Record:
        """What main is told.

        ``identity`` (fields of `SourceIdentity`), ``start_lsn`` and ``timeline`` (numbers),
        ``server_version``, ``warnings`` (texts), ``encoding``, ``is_origin_filtered`` (the
        server itself leaves out what has an origin), ``sender_timeout_ms``.
        """

    @property
    def sender_timeout_ms(self) -> int:
        """The server's ``wal_sender_timeout``."""

    def start(self) -> None:
        """Begin the stream."""

    def attach(self, receiver: Receiver) -> None:
        """Let the receive loop read from it."""

    def error(self) -> GaussDecodeError | None:
        """Why the stream ended; None when it is complete."""

    def end(self) -> None:
        """Take leave after the last status."""


class PostgresSource:
    """A slot of a PostgreSQL server, checked and ready.

    Args:
        settings: of the reader.
    """

    def __init__(self, settings: Record) -> None:
        self._slot: str = settings["slot"]
        log = settings["log"]
        state = None if log is None else slots.LogState(**{**log, "lsn": Lsn(log["lsn"])})
        publications: list[str] = settings["publications"]
        self._connection = connect(
            SourceAddress(
                settings["conninfo"], settings["password"], settings["is_insecure_allowed"]
            )
        )
        self._server = slots.read_server(self._connection, self._slot, publications, state)
        self._start_lsn = check_start(state, self._server, self._slot)
        self._options = slots.stream_options(
            self._server.version,
            publications,
            messages=settings["messages"],
            only_local=settings["only_local"],
        )

    @property
    def facts(self) -> Record:
        """See `Source`."""
        server = self._server
        return {
            "identity": _identity_record(
                SourceIdentity(
                    "postgresql",
                    server.system_identifier,
                    server.database,
                    self._slot,
                    slots.PLUGIN,
                )
            ),
            "start_lsn": int(self._start_lsn),
            "timeline": server.timeline,
            "server_version": server.version,
            "encoding": server.encoding,
            "sender_timeout_ms": server.sender_timeout_ms,
            "is_origin_filtered": self._options.get("origin") == "none",
            "warnings": warnings(server.version),
        }

    @property
    def sender_timeout_ms(self) -> int:
        """See `Source`."""
        return self._server.sender_timeout_ms

    def start(self) -> None:
        """Send START_REPLICATION."""
        slots.start_stream(self._connection, self._slot, self._start_lsn, self._options)

    def attach(self, receiver: Receiver) -> None:
        """Hand the connection to the loop; nobody else touches it until the loop is back."""
        pgconn = self._connection.pgconn
        receiver.attach_connection(
            pgconn,
            address_of(pgconn),
            self._connection.libpq.addresses,
            pgconn.socket,
            bool(pgconn.ssl_in_use),
        )

    def error(self) -> GaussDecodeError:
        """A server's stream never ends well by itself."""
        return self._connection.stream_error()

    def end(self) -> None:
        """Send CopyDone and close."""
        self._connection.end_stream()
        self._connection.close()


class CaptureSource:
    """A capture file.

    Args:
        settings: of the reader.
    """

    sender_timeout_ms = 0

    def __init__(self, settings: Record) -> None:
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
            "identity": _identity_record(self._identity),
            "start_lsn": int(self._start_lsn),
            "timeline": header.timeline,
            "server_version": header.server_version,
            "encoding": header.encoding,
            "sender_timeout_ms": 0,
            "is_origin_filtered": header.options.get("origin") == "none",
            "warnings": [],
        }

    def start(self) -> None:
        """Nothing to be done."""

    def attach(self, receiver: Receiver) -> None:
        """Let the loop read the mapped frames."""
        receiver.attach_capture(self._capture.frames)

    def error(self) -> None:
        """A capture's end is its end."""

    def end(self) -> None:
        """Nothing to be done: the loop still refers to the mapping."""


def _identity_record(identity: SourceIdentity) -> Record:
    return {
        "kind": identity.kind,
        "system_identifier": identity.system_identifier,
        "database": identity.database,
        "slot": identity.slot,
        "plugin": identity.plugin,
    }


class Reader:
    """Runs one stream from its source into the rings.

    Args:
        settings: of the reader.
        reports: to main.
    """

    def __init__(self, settings: Record, reports: Reports) -> None:
        self._settings = settings
        self._reports = reports
        self._control = Control.attach(settings["control_fd"])
        self._rings = [Ring.attach_producer(fds) for fds in settings["ring_fds"]]
        self._decoder = BatchDecoder() if settings["decoder_count"] == 1 else None
        tables = ((schema, table) for schema, table in settings["white_tables"])
        self._relations = Relations(WhiteList(tables))

    def run(self) -> None:
        """Stream until the end.

        Raises:
            GaussDecodeError: before main said go. Later errors are reported, and end the
                process with their status after the end entries.
        """
        is_capture = self._settings["kind"] == "capture"
        source: Source = (CaptureSource if is_capture else PostgresSource)(self._settings)
        self._reports.write("connected", **source.facts)
        if not self._may_go():
            source.end()
            return
        receiver = self._receiver(source)
        error = self._receive(source, receiver)
        if error is not None:
            self._reports.error(error)
        if isinstance(error, ChildError) or receiver.finish() is End.DECODER:
            self._leave(error or ChildError("a queue's reader is gone"))
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
            self._rings, decoder=self._decoder, kept_bytes=settings["kept_buffer_bytes"]
        )
        clock = StatusClock(
            source.facts["start_lsn"],
            time.monotonic_ns() // 1000,
            source.sender_timeout_ms * 1000,
            int(settings["receiver_timeout"] * 1e6),
        )
        known = KnownMessages(settings["desc_memory_bytes"], settings["desc_directory"])
        return Receiver(self._control, dispatcher, clock, known)

    def _receive(self, source: Source, receiver: Receiver) -> GaussDecodeError | None:
        """Run the loop and the slow path until the stream ends; give the reason."""
        try:
            source.start()
            source.attach(receiver)
            while True:
                end = receiver.run()
                if end is End.RELATION:
                    relation = self._relations.define(receiver.frame())
                    receiver.define(relation.oid, relation_record(relation))
                elif end is End.TYPE:
                    receiver.define(self._relations.note_type(receiver.frame()), None)
                else:
                    return self._reason(source, receiver, end)
        except GaussDecodeError as error:
            if receiver.dispatcher.has_failed:
                receiver.dispatcher.put_error(json.dumps(to_record(error)).encode())
            return error

    def _reason(self, source: Source, receiver: Receiver, end: End) -> GaussDecodeError | None:
        if receiver.stray_count:
            self._reports.log("stray_messages_dropped", count=receiver.stray_count)
        if end is End.STOP:
            return None
        if end is End.DECODER:
            return ChildError("a decoder is gone: its queue has no reader any more")
        receiver.disconnect()
        if end is End.SILENT:
            seconds = self._settings["receiver_timeout"]
            return SourceError(
                f"streaming: no byte from the server for {seconds:g} seconds, not even after a "
                "request for a reply; it is tried again"
            )
        return source.error()

    def _leave(self, error: GaussDecodeError) -> NoReturn:
        os._exit(error.exit_status)  # libpq must not wait for a dead server


def main() -> None:
    """Live and die as a child of the daemon."""
    settings, reports = enter_child()
    try:
        Reader(settings, reports).run()
    except Exception as error:  # noqa: BLE001 - whatever it was, the daemon is to know
        reports.fail(error)


if __name__ == "__main__":
    main()
