"""Print the changes that wait in the slot, without confirming them.

Whatever is printed stays in the slot, and the daemon will still land it. The styles are
GaussDB's: t for text, j for JSON. Without --follow it ends where the server's WAL
ends now. A slot that a daemon reads cannot be peeked at; stop the daemon first.

Examples:
  gaussdecode peek /etc/gaussdecode/orders.yaml
  gaussdecode peek --style j --changes 10 orders.yaml
  gaussdecode peek --follow --seconds 60 orders.yaml
  gaussdecode peek --upto-lsn 16/B374D848 orders.yaml
"""

import argparse
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gaussdecode.commands._arguments import count, lsn, seconds
from gaussdecode.commands._server import open_server
from gaussdecode.commands._styles import Styler
from gaussdecode.config import load
from gaussdecode.errors import EX_OK
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol import pgoutput
from gaussdecode.protocol.copyboth import EPOCH_US, Keepalive, StatusUpdate, parse_server
from gaussdecode.settings import Config
from gaussdecode.source.postgresql import Connection
from gaussdecode.source.slot import read_server, start_stream, stream_options
from gaussdecode.source.start import check_start

_IDLE_SECONDS: Final = 0.2  # between two questions to an idle server how far it is
_STATUS_SECONDS: Final = 5.0
_BATCH_CHARACTERS: Final = 2**20  # of sending-batch 1
_NOTHING: Final = Lsn(0)  # confirms nothing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")
    parser.add_argument("--style", choices=("t", "j"), help="text or JSON; else decode-style, or t")
    parser.add_argument("--upto-lsn", type=lsn, metavar="LSN", help="end before this commit")
    parser.add_argument(
        "--changes", type=count, metavar="N", help="end after the transaction of change N"
    )
    parser.add_argument("--seconds", type=seconds, metavar="S", help="end after this time")
    parser.add_argument("--follow", action="store_true", help="wait for changes to come")


def execute(args: argparse.Namespace) -> int:
    """Stream and print until a limit is reached."""
    config = load(args.config)
    with open_server(config) as connection:
        server = read_server(connection, config.slot, config.source.publication)
        check_start(None, server, config.slot)
        options = stream_options(
            server.version,
            config.source.publication,
            messages=config.source.messages,
            only_local=config.decoding.only_local,
        )
        start_stream(connection, config.slot, _NOTHING, options)
        upto = args.upto_lsn if args.upto_lsn or args.follow else server.wal_end
        peek = _Peek(connection, _printer(config, args.style), upto, args.changes, args.seconds)
        peek.run()
        connection.end_stream()
    return EX_OK


def _printer(config: Config, style: str | None) -> "_Printer":
    chosen = style or config.decoding.decode_style
    styler = Styler("j" if chosen == "j" else "t", config.decoding)
    return _Printer(styler, _BATCH_CHARACTERS if config.decoding.sending_batch else 0)


class _Printer:
    """Prints lines, and flushes them by the line or by the batch."""

    def __init__(self, styler: Styler, batch: int) -> None:
        self._styler = styler
        self._batch = batch
        self._waiting = 0

    def message(self, message: pgoutput.Message, lsn: Lsn) -> int:
        """Print a message; returns how many changes that were."""
        count = 0
        for line in self._styler.lines(message, lsn):
            sys.stdout.write(line + "\n")
            self._waiting += len(line) + 1
            count += not line.startswith(("BEGIN", "COMMIT"))
            if self._waiting > self._batch:
                self.flush()
        return count

    def flush(self) -> None:
        """Give everything out."""
        self._waiting = 0
        sys.stdout.flush()


class _Peek:
    """One stream from its start to a limit.

    Args:
        connection: streaming.
        printer: where messages go.
        upto: end before a transaction that commits here or later; None for no such limit.
        changes: end after the transaction that reaches so many; None for no limit.
        seconds: end after so long; None for no limit.
    """

    def __init__(
        self,
        connection: Connection,
        printer: _Printer,
        upto: Lsn | None,
        changes: int | None,
        seconds: float | None,
    ) -> None:
        self._connection = connection
        self._printer = printer
        self._upto = upto
        self._changes_left = changes
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._written = _NOTHING
        self._is_open = False
        self._next_status = 0.0

    def run(self) -> None:
        """Receive and print until a limit is reached.

        Raises:
            SourceError: the stream broke off.
            WireError: it holds what no server sends.
        """
        pgconn = self._connection.pgconn
        while not self._is_late():
            size, data = pgconn.get_copy_data(1)
            if size < 0:
                raise self._connection.stream_error()
            if size == 0:
                self._wait(pgconn.socket, pgconn.consume_input)
            elif self._is_last(bytes(data)):
                break
        self._printer.flush()

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _wait(self, socket: int, consume: Callable[[], None]) -> None:
        """Wait for the server a little, asking it for its position when it is silent."""
        self._printer.flush()
        readable, _, _ = select.select([socket], [], [], _IDLE_SECONDS)
        if readable:
            consume()
        if not readable or time.monotonic() >= self._next_status:
            self._send_status(is_reply_wanted=not readable)

    def _send_status(self, *, is_reply_wanted: bool) -> None:
        """Keep the connection alive; position 0 as flushed confirms nothing."""
        now_us = time.time_ns() // 1000 - EPOCH_US
        status = StatusUpdate(self._written, _NOTHING, _NOTHING, now_us, is_reply_wanted)
        self._connection.pgconn.put_copy_data(status.to_bytes())
        self._connection.pgconn.flush()
        self._next_status = time.monotonic() + _STATUS_SECONDS

    def _is_last(self, data: bytes) -> bool:
        """Take one message; True when a limit is reached with it."""
        received = parse_server(data)
        if isinstance(received, Keepalive):
            if received.reply_wanted:
                self._send_status(is_reply_wanted=False)
            return not self._is_open and self._is_beyond(received.wal_end)
        self._written = max(self._written, received.start_lsn)
        message = pgoutput.parse(received.payload)
        if isinstance(message, pgoutput.Begin):
            if self._is_beyond(message.commit_lsn):
                return True
            self._is_open = True
        count = self._printer.message(message, received.start_lsn)
        if self._changes_left is not None:
            self._changes_left -= count
        if isinstance(message, pgoutput.Commit):
            self._is_open = False
            return self._changes_left is not None and self._changes_left <= 0
        return False

    def _is_beyond(self, lsn: int) -> bool:
        return self._upto is not None and lsn >= self._upto
