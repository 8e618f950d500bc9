"""Print a PostgreSQL stream in GaussDB's styles."""

import dataclasses
import time
from typing import Final

from gaussdecode.errors import SourceError, StreamError
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.connections import open_server
from gaussdecode.operations.peek.output import Limits, Output
from gaussdecode.operations.peek.styles import Styler
from gaussdecode.protocol import canonical as pgoutput
from gaussdecode.protocol.copyboth import EPOCH_US, Keepalive, parse_server, status_update
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import DecodingConfig
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.postgresql.slot import read_server, start_stream, stream_options
from gaussdecode.source.start import check_start

_IDLE_SECONDS: Final = 0.2  # between two questions to an idle server how far it is
_STATUS_SECONDS: Final = 5.0
_BATCH_BYTES: Final = 1 << 20  # of sending-batch 1
_CHANGES: Final = (
    pgoutput.Insert,
    pgoutput.Update,
    pgoutput.Delete,
    pgoutput.Truncate,
    pgoutput.LogicalMessage,
)


def print_postgresql(
    config: Config, style: str | None, limits: Limits, *, is_following: bool, is_confirming: bool
) -> None:
    """Stream and print until a limit is reached.

    Args:
        config: configuration of kind postgresql.
        style: style to use in place of the configuration's.
        limits: limits to end at.
        is_following: wait for more changes, else end at the server's present end of WAL.
        is_confirming: confirm printed changes, so that the server may forget them.

    Raises:
        SourceError: the stream ended with an error.
        WireError: it holds a message that no server sends.
    """
    with open_server(config) as connection:
        server = read_server(connection, config.slot, config.source.publication)
        check_start(None, server, config.slot, two_phase=None)
        options = stream_options(
            server.version,
            config.source.publication,
            messages=config.source.messages,
            only_local=config.decoding.only_local,
        )
        start_stream(connection, config.slot, Lsn(0), options)
        styler = Styler(style or style_of(config.decoding), config.decoding)
        output = Output(
            dataclasses.replace(limits, upto=None),  # BEGIN says where it commits: see `end`
            _BATCH_BYTES if config.decoding.sending_batch else 0,
        )
        end = limits.upto if limits.upto or is_following else server.wal_end
        printing = _Printing(config, connection, styler, output, end, is_confirming=is_confirming)
        printing.run()
        connection.end_stream()


def style_of(decoding: DecodingConfig) -> str:
    """The style of the output where none is asked for; serial decoding has text."""
    is_styled = decoding.is_parallel or "decode-style" in decoding.given
    return decoding.decode_style if is_styled else "t"


_BEGINS: Final = (pgoutput.Begin, pgoutput.PrepareBegin, pgoutput.CommitPrepared)
_ENDS: Final = (
    pgoutput.Commit,
    pgoutput.Prepare,
    pgoutput.CommitPrepared,
    pgoutput.RollbackPrepared,
)


def _position(message: pgoutput.Begin | pgoutput.PrepareBegin | pgoutput.CommitPrepared) -> int:
    """Position of a message in the order of commits, for a message that begins a transaction or is alone."""
    return message.prepare_lsn if isinstance(message, pgoutput.PrepareBegin) else message.commit_lsn


class _Printing:
    """One stream from its start to a limit.

    Args:
        config: configuration of the slot.
        connection: the streaming connection.
        styler: formats lines.
        output: receives the lines.
        end: stop before a transaction that commits here or later; None for no such end.
        is_confirming: confirm printed changes, so that the server may forget them.
    """

    def __init__(
        self,
        config: Config,
        connection: Connection,
        styler: Styler,
        output: Output,
        end: Lsn | None,
        *,
        is_confirming: bool,
    ) -> None:
        self._connection = connection
        self._styler = styler
        self._output = output
        self._end = end
        self._confirm = self._tell if is_confirming else None
        self._shows_keepalives = config.decoding.enable_heartbeat
        self._shown = Lsn(0)
        self._written = Lsn(0)
        self._lsn = Lsn(0)  # of what was taken last, for errors
        self._is_open = False
        self._xid: int | None = None
        self._next_status = 0.0
        self._heard_at = time.monotonic()
        self._silent_seconds = config.source.receiver_timeout

    def run(self) -> None:
        """Receive and print until a limit is reached."""
        try:
            self._run()
        except StreamError as error:
            error.place(self._lsn, self._xid)
            raise

    def _run(self) -> None:
        while not self._output.must_end():
            frame = self._connection.take_frame()
            if frame is None:
                self._wait()
            elif self._is_last(frame):
                break
        self._output.give_out(self._confirm)

    def _tell(self, _confirmed: Lsn) -> None:
        """Tell the server what the output has confirmed."""
        self._send_status(is_reply_wanted=False)

    def _wait(self) -> None:
        """Wait briefly for the server; ask a silent one for its position."""
        self._output.give_out(self._confirm)
        readable = self._connection.wait_for_frames(_IDLE_SECONDS)
        now = time.monotonic()
        if readable:
            self._heard_at = now
        elif now - self._heard_at > self._silent_seconds:
            raise SourceError("streaming: the server is silent")
        if not readable or now >= self._next_status:
            self._send_status(is_reply_wanted=not readable)

    def _send_status(self, *, is_reply_wanted: bool) -> None:
        """Keep the connection alive."""
        now_us = time.time_ns() // 1000 - EPOCH_US
        confirmed = self._output.confirmed  # as long as it is 0, nothing is
        written = max(self._written, confirmed)
        status = status_update(written, confirmed, now_us, reply_wanted=is_reply_wanted)
        self._connection.send_frame(status)
        self._next_status = time.monotonic() + _STATUS_SECONDS

    def _is_last(self, data: bytes) -> bool:
        """Handle one message; True if it reaches the end."""
        received = parse_server(data)
        if isinstance(received, Keepalive):
            return self._keepalive(received)
        self._lsn = received.start_lsn or self._lsn
        self._written = max(self._written, received.start_lsn)
        message = pgoutput.parse(received.payload, encoding=self._connection.encoding)
        if isinstance(message, _BEGINS):
            if self._is_beyond(_position(message)):
                return True
            self._is_open, self._xid = True, message.xid
        is_change = isinstance(message, _CHANGES)
        lines = list(self._styler.lines(message, received.start_lsn))
        for number, line in enumerate(lines, 1):  # a BEGIN may have waited for its first change
            self._output.line(line.encode(), is_change=is_change and number == len(lines))
        if isinstance(message, _ENDS):
            self._is_open, self._xid = False, None
            self._output.commit(Lsn(message.end_lsn))
        return False

    def _keepalive(self, received: Keepalive) -> bool:
        if received.reply_wanted:
            self._send_status(is_reply_wanted=False)
        if self._shows_keepalives and received.wal_end > self._shown and not self._is_open:
            self._output.line(f"HeartBeat: {Lsn(received.wal_end)}".encode())
            self._shown = received.wal_end
        return not self._is_open and self._is_beyond(received.wal_end)

    def _is_beyond(self, lsn: int) -> bool:
        return self._end is not None and lsn >= self._end
