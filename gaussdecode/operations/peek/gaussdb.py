"""Print a GaussDB stream: the server's own lines, in the wanted style."""

import dataclasses
import enum
import sys
from typing import Final

from gaussdecode.errors import ConfigError, StreamError
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.connections import GaussPair, open_pair
from gaussdecode.operations.peek.output import Limits, Output
from gaussdecode.protocol.copyboth import XLogData
from gaussdecode.protocol.gaussdb.copyboth import parse_server
from gaussdecode.protocol.gaussdb.options import (
    StreamRequest,
    is_batched,
    server_options,
    start_command,
    stream_style,
)
from gaussdecode.protocol.gaussdb.printed import Part, Statement, statements
from gaussdecode.settings.sections import Config
from gaussdecode.source.gaussdb.stream import GaussStream

_WAIT_SECONDS: Final = 0.2
_BATCH_BYTES: Final = 1 << 20  # of sending-batch 1
_AS_SENT: Final = (
    "decoding.output-order: 1 has no effect here: openGauss sends in the order of commit records, and this is "
    "printed as it is sent; the daemon lands in the order of CSNs"
)
_QUIET_SIGNS: Final = 2  # of life in a row, without data in between: nothing more is on its way


class _Sign(enum.Enum):
    """The kinds of sign of life that a server sends."""

    KEEPALIVE = enum.auto()
    HEARTBEAT = enum.auto()


def styled(config: Config, style: str | None) -> Config:
    """The configuration with another output style.

    Raises:
        ConfigError: serial decoding has no styles.
    """
    if style is None:
        return config
    if not config.decoding.is_parallel:
        raise ConfigError(
            f"{config.path.name}: --style applies only with decoding.parallel-decode-num from 2 to "
            "20; serial decoding prints what the plug-in makes"
        )
    given = {**config.decoding.given, "decode-style": style}
    decoding = dataclasses.replace(config.decoding, decode_style=style, given=given)
    return dataclasses.replace(config, decoding=decoding)


def print_gaussdb(
    config: Config, style: str | None, limits: Limits, *, is_following: bool, is_confirming: bool
) -> None:
    """Stream and print until a limit is reached.

    Args:
        config: configuration of kind gaussdb.
        style: style to use in place of the configuration's.
        limits: limits to end at.
        is_following: wait for more changes, else end at the server's present end of WAL.
        is_confirming: confirm printed changes, so that the server may forget them.

    Raises:
        ConfigError: the configuration asks for something impossible.
        SourceError: the server failed.
        WireError: the server sent a malformed message.
    """
    config = styled(config, style)
    with open_pair(config) as pair:
        start_lsn = pair.check_start(config, None)
        options = server_options(
            StreamRequest.of(config), pair.state.profile, is_landing=is_confirming
        )
        if config.decoding.output_order and "output-order" not in options:
            print(f"gaussdecode: {config.path.name}: {_AS_SENT}", file=sys.stderr)
        target = None if is_following else pair.state.wal_end
        pair.sql.close()
        pair.stream.hear_warnings()
        pair.stream.start_stream(start_command(config.slot, 0, options))
        stream = _stream(config, pair, start_lsn)
        output = Output(
            limits,
            _BATCH_BYTES if is_batched(StreamRequest.of(config), is_landing=is_confirming) else 0,
            is_held=limits.upto is not None,
        )
        try:
            printing = _Printing(config, stream, output, target, is_confirming=is_confirming)
            printing.shows_keepalives &= "enable-heartbeat" not in options
            printing.run()
        finally:
            output.close()
        stream.close()


def _stream(config: Config, pair: GaussPair, start_lsn: Lsn) -> GaussStream:
    asked = config.decoding.sender_timeout
    timeout_ms = pair.state.sender_timeout_ms if asked is None else asked
    return GaussStream(
        pair.stream,
        start_lsn,
        timeout_ms,
        config.source.receiver_timeout,
        is_asking=not config.decoding.is_parallel,
    )


class _Printing:
    """One stream from its start to a limit.

    Attributes:
        shows_keepalives: print them, if the server sends no heartbeats of its own.
    """

    def __init__(
        self,
        config: Config,
        stream: GaussStream,
        output: Output,
        target: Lsn | None,
        *,
        is_confirming: bool,
    ) -> None:
        self._stream = stream
        self._output = output
        self._target = target
        self._confirm = stream.confirm if is_confirming else None
        self._style = stream_style(StreamRequest.of(config))
        self._is_batched = is_batched(StreamRequest.of(config), is_landing=is_confirming)
        self._start_at = config.decoding.start_at
        self.shows_keepalives = config.decoding.enable_heartbeat
        self._is_open = False
        self._is_dropped = False
        self._rows_from: Lsn | None = None
        self._quiet = dict.fromkeys(_Sign, 0)
        self._shown = Lsn(0)
        self._lsn = Lsn(0)  # of what was taken last, for errors
        self._xid: int | None = None

    def run(self) -> None:
        """Receive and print until a limit is reached."""
        try:
            self._run()
        except StreamError as error:
            error.place(self._lsn, self._xid)
            raise

    def _run(self) -> None:
        while not self._output.must_end():
            for frame in self._stream.frames(_WAIT_SECONDS):
                self._take(frame)
                if self._output.must_end():
                    break
            self._give_out()

    def _give_out(self) -> None:
        """Flush the output, then confirm it to the server."""
        for text in self._stream.notices:
            print(f"warning: the server says: {text}", file=sys.stderr)
        self._stream.notices.clear()
        self._output.give_out(self._confirm)

    def _take(self, frame: bytes) -> None:
        message = parse_server(frame)
        if not isinstance(message, XLogData):
            self._keepalive(message.wal_end)
            return
        self._lsn = message.start_lsn or self._lsn
        for statement in statements(
            message.payload, self._style, is_batched=self._is_batched, header_lsn=message.start_lsn
        ):
            self._lsn = statement.lsn or self._lsn
            self._print(statement)
            if self._output.is_full:
                return

    def _keepalive(self, wal_end: Lsn) -> None:
        if self.shows_keepalives and wal_end > self._shown and not self._is_open:
            self._output.line(f"HeartBeat: {wal_end}".encode())
            self._output.commit(None)
            self._shown = wal_end
        self._alive(_Sign.KEEPALIVE, wal_end)

    def _alive(self, sign: "_Sign", wal_end: Lsn) -> None:
        """Detect the end of the stream: two signs of life without a message between them.

        Keepalives and heartbeats come together, so each kind is counted separately.
        """
        if self._target is not None and wal_end >= self._target and not self._is_open:
            self._quiet[sign] += 1
            if self._quiet[sign] >= _QUIET_SIGNS:
                self._output.is_full = True

    def _print(self, statement: Statement) -> None:
        if statement.part is Part.HEARTBEAT:
            self._output.line(statement.line)
            if statement.lsn is not None:
                self._alive(_Sign.HEARTBEAT, statement.lsn)
            return
        self._quiet = dict.fromkeys(_Sign, 0)
        if statement.part is Part.BEGIN:
            self._begin(statement)
        elif statement.part is Part.COMMIT:
            self._commit(statement)
        elif not self._is_dropped and not self._is_early(statement):
            self._output.line(statement.line, is_change=True)

    def _begin(self, statement: Statement) -> None:
        self._is_open = True
        self._is_dropped = False
        self._xid = statement.xid
        self._rows_from = None
        if self._start_at is not None and statement.csn is not None:
            csn, lsn = self._start_at
            self._is_dropped = statement.csn < csn
            if statement.csn == csn:
                self._rows_from = Lsn(lsn)
        if not self._is_dropped and self._rows_from is None:
            self._output.line(statement.line)

    def _is_early(self, statement: Statement) -> bool:
        """Whether start-position excludes a row of the transaction that it names."""
        return (
            self._rows_from is not None
            and statement.lsn is not None
            and statement.lsn < self._rows_from
        )

    def _commit(self, statement: Statement) -> None:
        if not self._is_dropped:
            self._output.line(statement.line)
        if statement.lsn is not None:
            self._stream.reached(statement.lsn)
        self._output.commit(statement.lsn)
        self._is_open = False
        self._xid = None
        if self._target is not None and statement.lsn is not None:
            self._output.is_full |= statement.lsn >= self._target
