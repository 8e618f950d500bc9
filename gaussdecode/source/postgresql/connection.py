"""A connection to PostgreSQL that runs commands and then streams.

Given a connection string and what the operator allows, `connect` gives a `Connection` in
replication mode, whose session spells values the way the decoder reads them. It speaks
through ``psycopg.pq`` only and belongs to the thread that made it. Errors come out as
`SourceError` or `SourceRefusedError`, judged by `sqlstate`, without the password.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from psycopg import OperationalError, pq
from psycopg.conninfo import make_conninfo
from psycopg.pq.abc import PGconn, PGresult

from gaussdecode.closing import Closing
from gaussdecode.errors import ConfigError, LoginRefusedError, SourceError, SourceRefusedError
from gaussdecode.settings.dsn import authority_problem, is_local, parameters_of
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.certificates import login_problem, look_at_server, own_certificate
from gaussdecode.source.pinned import REPORTED, later_statements, startup_options
from gaussdecode.source.postgresql.libpq import HIDDEN_READS, LibPq, ReadAhead, find_libpq
from gaussdecode.source.quoting import literal
from gaussdecode.source.sqlstate import MISSING_PUBLICATION, POOLED, Phase, error_of
from gaussdecode.wire.encoding import UTF8, find_encoding

MIN_VERSION: Final = 140000
_SAFE_MODE: Final = "verify-full"
_UNVERIFIED: Final = "certificate verify failed"  # libpq's text, which gives no reason
_DEFAULTS: Final = {
    "application_name": "gaussdecode",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "gssencmode": "disable",  # sslmode must decide how the stream is protected
    "ssl_min_protocol_version": "TLSv1.2",
}
ANSWER_SECONDS: Final = 60.0
"""Longest wait for an answer, where nothing else is said; arbitrary."""

CANCEL_SECONDS: Final = 10.0
"""Longest wait for the answer to a cancelled command; arbitrary."""

_POLL_SECONDS: Final = 0.1  # how soon a stop, and what TLS holds back, is noticed
_GOOD: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY)
# The server's function, whose name is in every language the same: from 18 on it goes on without
# a publication that is missing, and what only that one publishes is left out of the stream.
_SKIPPING: Final = b"LoadPublications"
_COPIES: Final = (pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT)
_STOPPING_SECONDS: Final = 2.0  # arbitrary: for the server to see the last status and CopyDone

Row = tuple[str | None, ...]


def session_conninfo(
    address: SourceAddress, *, is_replication: bool = True, **settings: str
) -> str:
    """Complete a connection string with session settings and safe defaults.

    Raises:
        ConfigError: it cannot be parsed, or protects the stream less than verify-full
            does without the operator's leave. Unix sockets need no protection.
    """
    given = parameters_of(address.conninfo)
    defaults = dict(_DEFAULTS)
    if not is_local(given):
        if "service" not in given or not address.is_insecure_allowed:
            defaults["sslmode"] = _SAFE_MODE  # wins over what the service's file says
        mode = given.get("sslmode", _SAFE_MODE)
        if mode != _SAFE_MODE and not address.is_insecure_allowed:
            raise ConfigError(
                f"source.dsn: sslmode={mode} lets others read or forge the stream; "
                f"use sslmode={_SAFE_MODE}, or set source.allow-insecure: true"
            )
    options = f"{given.get('options', '')} {startup_options()}".strip()
    own = {"options": options}
    if is_replication:
        own["replication"] = "database"
    if address.password is not None:
        own["password"] = address.password
    return make_conninfo("", **{**defaults, **given, **own, **settings})


class Connection(Closing):
    """An open connection.

    Attributes:
        pgconn: psycopg's connection object.
        libpq: the functions behind it.
        encoding: encoding of everything the server sends and takes: its own, whatever that is. Asked to
            translate, it would refuse a whole row for one byte that has no letter.
        on_gap: told, from inside libpq, that from here on the stream leaves changes out.
        patience: seconds that a command may take, which is cancelled then; None waits as long as the
            connection lives, and a proxy on the way may keep it alive for ever.
        should_stop: asked while an answer is waited for; the command is cancelled where it says so.
    """

    def __init__(self, pgconn: PGconn, libpq: LibPq, secret: str | None) -> None:
        self.pgconn = pgconn
        self.libpq = libpq
        self.encoding = UTF8
        self.on_gap: Callable[[], None] = _nothing
        self.patience: float | None = ANSWER_SECONDS
        self.should_stop: Callable[[], bool] = _never
        self._is_broken = False
        self._secret = secret
        self._gap: str | None = None
        self._ahead: ReadAhead | None = None

    @property
    def server_version(self) -> int:
        """Such as 150018."""
        return self.pgconn.server_version

    def parameter(self, name: str) -> str:
        """A setting that the server reported; empty when it did not."""
        return (self.pgconn.parameter_status(name.encode()) or b"").decode()

    def query(self, command: str) -> list[Row]:
        """Run one command and fetch what it gives, as text.

        Raises:
            SourceError: the server or the connection failed, it took too long, or a stop was asked for.
            SourceRefusedError: the server refuses.
        """
        result = self._execute(command, Phase.COMMAND)
        if result.status not in _GOOD:
            raise self._error(Phase.COMMAND, result)
        return [
            tuple(self._text(result.get_value(row, column)) for column in range(result.nfields))
            for row in range(result.ntuples)
        ]

    def _execute(self, command: str, phase: Phase) -> PGresult:
        return self.answer(lambda: self.pgconn.send_query(self.encoding.encode(command)), phase)

    def answer(self, send: Callable[[], None], phase: Phase = Phase.COMMAND) -> PGresult:
        """Send one command of the protocol, and wait for its answer, which may be an error.

        What is given up is cancelled at the server, which answers all the same.

        Args:
            send: sends it.
            phase: named in errors.

        Raises:
            SourceError: the connection failed, it took too long, or a stop was asked for.
        """
        with self._judging(phase):
            send()
            deadline = float("inf") if self.patience is None else time.monotonic() + self.patience
            try:
                result = self._answer(deadline, self.should_stop)
            except BaseException:  # as by Ctrl-C
                self.cancel()
                raise
            if result is not None:
                return result
            why = "a stop was asked for"
            if not self.should_stop():
                why = f"the server has not answered for {self.patience:.0f} seconds"
            self.cancel()
            rest = min(CANCEL_SECONDS, self.patience or CANCEL_SECONDS)
            result = self._answer(time.monotonic() + rest, _never)
            if result is None or result.status in {
                pq.ExecStatus.FATAL_ERROR,
                pq.ExecStatus.BAD_RESPONSE,
            }:
                raise SourceError(
                    f"{phase.value}: {why}", None if result is None else _code(result)
                )
            return result

    def _answer(self, deadline: float, should_stop: Callable[[], bool]) -> PGresult | None:
        """The last result of a command; None where it is to be given up."""
        last: PGresult | None = None
        try:
            while True:
                while self.pgconn.is_busy():
                    left = deadline - time.monotonic()
                    if left <= 0 or should_stop():
                        return None
                    select.select([self.pgconn.socket], [], [], min(left, _POLL_SECONDS))
                    self.pgconn.consume_input()
                result = self.pgconn.get_result()
                if result is None:
                    assert last is not None
                    return last
                last = result
                if last.status in _COPIES:
                    return last
        except OperationalError:
            if last is not None and last.status == pq.ExecStatus.FATAL_ERROR:
                return last  # the server's last word before it closed the connection
            raise

    def cancel(self) -> None:
        """Have the server give up the command that runs; does not wait for it."""
        self.libpq.cancel(self.pgconn)

    @contextlib.contextmanager
    def _judging(self, phase: Phase) -> Iterator[None]:
        """Have an error of libpq's own say what it means: the connection is lost."""
        try:
            yield
        except OperationalError as error:
            message = self.pgconn.get_error_message() or str(error)
            raise error_of(phase, message, None, self._secret) from None

    def start_copy(self, command: str) -> None:
        """Run COPY ... TO STDOUT; its rows are read from libpq, then `end_copy` is called.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses.
        """
        result = self._execute(command, Phase.COMMAND)
        if result.status != pq.ExecStatus.COPY_OUT:
            raise self._error(Phase.COMMAND, result)

    def end_copy(self, *, has_failed: bool) -> None:
        """See that a COPY ended well.

        Args:
            has_failed: libpq says that it did not.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses.
        """
        with self._judging(Phase.COMMAND):
            while (result := self.pgconn.get_result()) is not None:
                if result.status not in _GOOD:
                    raise self._error(Phase.COMMAND, result)
        if has_failed:
            message = self.pgconn.get_error_message()
            raise error_of(Phase.COMMAND, message, None, self._secret)

    def break_off(self) -> None:
        """End the connection for whoever waits for it in another thread."""
        with contextlib.suppress(OSError, OperationalError):
            with socket.socket(fileno=os.dup(self.pgconn.socket)) as connection:
                connection.shutdown(socket.SHUT_RDWR)

    def start_stream(self, command: str) -> None:
        """Run START_REPLICATION; afterwards the connection is in CopyBoth and non-blocking.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses.
        """
        result = self._execute(command, Phase.START)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._error(Phase.START, result)
        self.libpq.check_connection(self.pgconn)
        self.pgconn.nonblocking = 1
        self.pgconn.notice_handler = self._take_notice

    # ---- a stream, frame by frame ----------------------------------------------------------

    def take_frame(self) -> bytes | None:
        """The next frame of the stream that is here whole; None for none.

        Raises:
            SourceError: the stream ended or broke.
        """
        size, data = self.pgconn.get_copy_data(1)
        if size < 0 or (size == 0 and self._is_broken):
            raise self.stream_error()
        return bytes(data) if size > 0 else None

    def wait_for_frames(self, seconds: float) -> bool:
        """Wait for bytes of the stream and read what is here; whether any came."""
        try:
            is_readable = bool(select.select([self.pgconn.socket], [], [], seconds)[0])
            self.pgconn.consume_input()
        except OperationalError:
            self._is_broken = True  # what arrived before is read first; then it shows
            return True
        return is_readable

    def send_frame(self, frame: bytes) -> None:
        """Send a frame to the server.

        Raises:
            SourceError: the connection broke.
        """
        with self._judging(Phase.STREAM):
            self.pgconn.put_copy_data(frame)
            self.pgconn.flush()

    def read_ahead(self) -> ReadAhead | None:
        """Have TLS, if it is there, read ahead: from now on, and for whoever reads."""
        self._ahead = self.libpq.read_ahead(self.pgconn)
        return self._ahead

    def _consume(self) -> None:
        """Take what has arrived, also what TLS has read ahead."""
        self.pgconn.consume_input()
        for _ in range(HIDDEN_READS):
            if self._ahead is None or not self._ahead.is_pending():
                return
            self.pgconn.consume_input()

    def _take_notice(self, notice: PGresult) -> None:
        """Break off where the server says that it leaves changes out."""
        if notice.error_field(pq.DiagnosticField.SOURCE_FUNCTION) != _SKIPPING:
            return
        primary = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        self._gap = self._shown(primary)
        self.on_gap()
        self.break_off()

    def stream_error(self) -> SourceError:
        """Why the stream ended, after the copy has ended or the connection broke."""
        if self._gap is not None:
            return error_of(Phase.STREAM, self._gap, MISSING_PUBLICATION, self._secret)
        try:
            result = self.pgconn.get_result() if self._has_answered() else None
        except Exception:  # noqa: BLE001 - psycopg's classes differ; the text follows below
            result = None
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return self._error(Phase.STREAM, result)
        message = self.pgconn.get_error_message() if result is None else "the server closed it"
        return error_of(Phase.STREAM, message, None, self._secret)

    def _has_answered(self) -> bool:
        """Whether the result of the copy is there, or comes soon: asking for it may wait for ever."""
        deadline = time.monotonic() + _STOPPING_SECONDS
        while self.pgconn.is_busy():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            select.select([self.pgconn.socket], [], [], left)
            self._consume()
        return True

    def end_stream(self) -> None:
        """Say goodbye after the last status; waits a little for the server to read it."""
        deadline = time.monotonic() + _STOPPING_SECONDS
        try:
            self.pgconn.put_copy_end()
            while time.monotonic() < deadline:
                unsent = self.pgconn.flush()
                select.select([self.pgconn.socket], [self.pgconn.socket] if unsent else [], [], 0.1)
                self._consume()
                while (size := self.pgconn.get_copy_data(1)[0]) > 0:
                    pass
                if size < 0:
                    return
        except Exception:  # noqa: BLE001 - the server may be gone already, and we are leaving
            return

    def close(self) -> None:
        """Close the connection."""
        self.pgconn.finish()

    def _error(self, phase: Phase, result: PGresult) -> SourceError:
        primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
        message = self._shown(primary) if primary else result.get_error_message()
        return error_of(phase, message, _code(result), self._secret)

    def _text(self, value: bytes | None) -> str | None:
        return None if value is None else self.encoding.decode(value)

    def _shown(self, message: bytes) -> str:
        """A message of the server's, fit to be printed."""
        return self.encoding.to_utf8(message).decode(errors="replace")

    def use_encoding(self) -> None:
        """Have the server send and take everything in the encoding of the database.

        Raises:
            SourceError: it refuses.
        """
        name = self.parameter("server_encoding")
        self.query(f"SET client_encoding = {literal(name)}")
        self.encoding = find_encoding(name)


def _nothing() -> None:
    """Do nothing; the default callback."""


def _never() -> bool:
    """Never stop; the default."""
    return False


def _code(result: PGresult) -> str | None:
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    return code.decode() if code else None


def connect(
    address: SourceAddress,
    *,
    is_replication: bool = True,
    patience: float | None = None,
    **settings: str,
) -> Connection:
    """Open a connection.

    Args:
        address: address of the server.
        is_replication: it takes replication commands.
        patience: seconds that a command may take; None for `ANSWER_SECONDS`.
        settings: settings of libpq, which win over the address's.

    Raises:
        ConfigError: the connection string, or the libpq at hand, will not do.
        SourceError: the server cannot be reached now.
        LoginRefusedError: it does not let us in, or does not prove who it is, or a file of
            password or TLS cannot be used now.
        SourceRefusedError: it refuses us, or is too old.
    """
    address = address.now()
    conninfo = session_conninfo(address, is_replication=is_replication, **settings)
    problem = authority_problem(parameters_of(conninfo), os.environ, Path.home())
    if problem is not None:
        raise LoginRefusedError(f"connecting: {problem}")
    libpq = find_libpq()
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    connection = Connection(pgconn, libpq, address.secret)
    if patience is not None:
        connection.patience = patience
    try:
        _finish_connecting(connection, address, _limit_seconds(conninfo))
        libpq.check_connection(pgconn)
        if pgconn.server_version < MIN_VERSION:
            raise ConfigError(
                f"the server is version {pgconn.server_version}; PostgreSQL 14 or newer is needed"
            )
        _check_settings(connection)
        connection.use_encoding()
        for statement in later_statements(pgconn.server_version):
            connection.query(statement)
    except BaseException:
        pgconn.finish()
        raise
    return connection


def _check_settings(connection: Connection) -> None:
    """See that what the session was opened with has reached the server.

    Raises:
        SourceRefusedError: a pooler has left it out. Rows would look different, or be left out.
    """
    for name, value in REPORTED.items():
        found = connection.parameter(name)
        if found.replace(" ", "") != value:
            raise SourceRefusedError(f"connecting: the session has {name} {found!r}: {POOLED}")


def _limit_seconds(conninfo: str) -> float:
    """The connection timeout, for all hosts together; 0 is none."""
    parameters = parameters_of(conninfo)
    hosts = parameters.get("hostaddr", parameters.get("host", "")).count(",") + 1
    return float(parameters["connect_timeout"]) * hosts


def _finish_connecting(connection: Connection, address: SourceAddress, limit: float) -> None:
    pgconn = connection.pgconn
    deadline = time.monotonic() + limit if limit > 0 else float("inf")
    if pgconn.status != pq.ConnStatus.BAD:
        connection.libpq.make_verbose(pgconn)
    status = pq.PollingStatus.WRITING
    while pgconn.status != pq.ConnStatus.BAD:
        left = deadline - time.monotonic()
        if left <= 0:
            raise SourceError("connecting: no answer within connect_timeout")
        socket = pgconn.socket
        waits: tuple[Sequence[int], Sequence[int]] = (
            ([socket], []) if status == pq.PollingStatus.READING else ([], [socket])
        )
        select.select(*waits, [], min(left, 3600.0))
        status = pq.PollingStatus(pgconn.connect_poll())
        if status == pq.PollingStatus.OK:
            return
        if status == pq.PollingStatus.FAILED:
            break
    message = pgconn.get_error_message()
    error = error_of(Phase.CONNECT, message, None, address.secret)
    if error.sqlstate is not None:
        raise error
    given = {each.keyword.decode(): (each.val or b"").decode() for each in pgconn.info}
    problem = look_at_server(given) if _UNVERIFIED in message else None
    if problem is not None:
        raise LoginRefusedError(f"connecting: {problem}")
    raise login_problem(error, own_certificate(given))
