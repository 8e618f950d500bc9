"""A connection to GaussDB: the socket, TLS, and the loop that waits.

The protocol is in `protocol.gaussdb.session`, the address in `target`. Errors come out as `SourceError` or
`SourceRefusedError`, judged by `errors`, without a password. A connection belongs to the thread that made it.

There are two kinds. One for replication goes to the HA port where the server has one, is
told ``IDENTIFY_SYSTEM`` and START_REPLICATION and nothing else, and is lost with the first
error. One for SQL goes to the ordinary port and survives errors of its statements.
"""

import contextlib
import functools
import select
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from gaussdecode.closing import Closing
from gaussdecode.errors import (
    GaussDecodeError,
    SequenceError,
    SourceError,
    SourceRefusedError,
    WireError,
)
from gaussdecode.protocol.gaussdb import auth, messages
from gaussdecode.protocol.gaussdb.messages import Message, MessageReader, Row
from gaussdecode.protocol.gaussdb.profile import VersionProfile, parse_version
from gaussdecode.protocol.gaussdb.session import Phase as SessionPhase
from gaussdecode.protocol.gaussdb.session import Session
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.certificates import login_problem
from gaussdecode.source.gaussdb._copylines import take_lines
from gaussdecode.source.gaussdb.dial import Place, Socket, open_socket, places, reason_of, ways
from gaussdecode.source.gaussdb.errors import broken, error_of_body, server_error
from gaussdecode.source.gaussdb.target import Endpoint, Target, parse_target
from gaussdecode.source.pinned import HEAR_WARNINGS, Use, startup_parameters
from gaussdecode.source.sqlstate import Phase

ANSWER_SECONDS: Final = 60.0
"""Longest wait for an answer, where nothing else is said; arbitrary."""

EMPTY: Final = "SELECT pg_catalog.txid_current()"
"""A transaction that changes nothing, of which the log has a commit record."""

CANCEL_SECONDS: Final = 10.0
"""Longest wait for a server that was told to cancel a command; arbitrary."""

_READ_BYTES: Final = 1 << 16
_COPY_READ_BYTES: Final = 1 << 18
_POLL_SECONDS: Final = 0.2  # how soon a stop that was asked for is noticed
_STOPPING_SECONDS: Final = 2.0  # arbitrary: for the server to see the last status and CopyDone
_OLD_PROTOCOL: Final = "unsupported frontend protocol"
# Phases in which the server has said all it had to, or the stream takes over.
_OURS: Final = frozenset(
    {SessionPhase.IDLE, SessionPhase.STREAMING, SessionPhase.COPYING, SessionPhase.FAILED}
)
_PROTOCOLS: Final = (messages.PROTOCOL_3_51, messages.PROTOCOL_3_0)


class GaussConnection(Closing):
    """An open connection.

    Attributes:
        socket: blocking until the stream starts.
        is_encrypted: the connection uses TLS.
        is_replication: it was opened to stream.
        endpoint: whom it reached.
        pending: after `start_stream`, what was read after the server's consent.
        timeout: seconds that one answer may take; None for any time.
        should_stop: asked while an answer is waited for, or None; the command is cancelled where it says so.
    """

    def __init__(
        self, sock: Socket, session: Session, endpoint: Endpoint, place: Place, target: Target
    ) -> None:
        self.socket = sock
        self.is_encrypted = isinstance(sock, ssl.SSLSocket)
        self.is_replication = session.is_replication
        self.endpoint = endpoint
        self.pending = b""
        self.timeout: float | None = ANSWER_SECONDS
        self.should_stop: Callable[[], bool] | None = None
        self._session = session
        self._reader = MessageReader()
        self._place = place
        self._target = target
        self._secrets = target.secrets
        self._cancelled_until: float | None = None
        self._failure: GaussDecodeError | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """Settings that the server reported."""
        return self._session.parameters

    @property
    def notices(self) -> list[dict[str, str]]:
        """Fields of the notices so far, by letter."""
        return self._session.notices

    @functools.cached_property
    def profile(self) -> VersionProfile:
        """What this version can do; asks the server, once.

        Raises:
            SequenceError: the connection is for replication, which takes no SQL here.
            SourceRefusedError: the server is no GaussDB.
        """
        if self.is_replication:
            raise SequenceError("the version is asked for on an ordinary connection")
        return parse_version(self.query("SELECT pg_catalog.version()")[0][0] or "")

    def query(self, sql: str) -> list[Row]:
        """Run one command and fetch what it gives, as text.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses.
        """
        self._ask(sql, Phase.COMMAND)
        if self._session.phase is not SessionPhase.IDLE:
            raise SequenceError("a command started a stream")
        return list(self._session.rows)

    def query_table(self, sql: str) -> list[dict[str, str | None]]:
        """Run one command and fetch rows by column name, as text.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses.
        """
        rows = self.query(sql)
        return [dict(zip(self._session.columns, row, strict=True)) for row in rows]

    def copy_out(self, sql: str, wanted_bytes: int) -> Iterator[bytes]:
        """Run COPY ... TO STDOUT; who does not take it to its end loses the connection.

        Args:
            sql: the command.
            wanted_bytes: approximate size of lines handed over at once.

        Yields:
            Whole lines.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses.
        """
        self._ask(sql, Phase.COMMAND)
        if self._session.phase is not SessionPhase.COPYING:
            raise SequenceError("a COPY command did not start a copy")
        try:
            yield from self._copied(wanted_bytes)
        except SourceError as error:
            if self._session.phase is SessionPhase.COPYING:
                self._lose(error)
            raise
        finally:
            if self._session.phase is SessionPhase.COPYING:
                self._lose(broken(Phase.COMMAND, "a copy was not taken to its end"))

    def _copied(self, wanted_bytes: int) -> Iterator[bytes]:
        deadline = self._deadline()
        data = bytearray(self._reader.rest())
        pieces: list[bytes] = []
        size = 0
        while self._session.phase is SessionPhase.COPYING:
            lines, used = take_lines(data, messages.COMMAND_LIMIT_BYTES)
            del data[:used]
            pieces.append(lines)
            size += len(lines)
            if size >= wanted_bytes:
                yield b"".join(pieces)
                pieces, size = [], 0
            if data and data[:1] != b"d":  # another message, most often the end
                self._reader.feed(bytes(data))
                self._exchange(b"", Phase.COMMAND, deadline)
                data = bytearray(self._reader.rest())
            elif used < _COPY_READ_BYTES // 2:
                data += self._receive(Phase.COMMAND, deadline, _COPY_READ_BYTES)
        if size:
            yield b"".join(pieces)

    def hear_warnings(self) -> None:
        """Have the server send its warnings in the stream that follows.

        From openGauss 3.0.3 on a sender of its own accord sends errors only, whatever the
        startup message asks for, and rows lost to DDL are announced by nothing but a warning. A
        version that takes no SET here heeds the startup message.

        Raises:
            SourceError: the connection failed.
        """
        with contextlib.suppress(SourceRefusedError):
            self.query(HEAR_WARNINGS)

    def start_stream(self, command: str) -> None:
        """Run START_REPLICATION; afterwards the socket is non-blocking and the stream's.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses. It may also refuse later, in the stream.
        """
        self._ask(command, Phase.START)
        if self._session.phase is not SessionPhase.STREAMING:
            raise SequenceError("the server answered without starting the stream")
        self.pending = self._reader.rest()
        self.socket.setblocking(False)

    def stream_error(self, body: bytes | None) -> GaussDecodeError:
        """Why the stream ended.

        Args:
            body: body of the ErrorResponse; None when the connection ended without one.
        """
        if body is None:
            return broken(Phase.STREAM, "the server closed the connection")
        return error_of_body(body, self._secrets)

    def send(self, data: bytes, limit_seconds: float = _STOPPING_SECONDS) -> None:
        """Send bytes of a stream, waiting until the system has taken them.

        Raises:
            SourceError: the connection broke, or took nothing for that long.
        """
        left = memoryview(data)
        while left:
            try:
                left = left[self.socket.send(left) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not select.select([], [self.socket], [], limit_seconds)[1]:
                    raise broken(Phase.STREAM, "the server takes nothing") from None
            except OSError as error:
                raise self._broken(Phase.STREAM, error) from None

    def end_stream(self) -> None:
        """Say goodbye after the last status; waits a little for the server to read it.

        The server ends without a word. Closing before that, with bytes unread, would have
        the system throw away the status that is still on its way.
        """
        deadline = time.monotonic() + _STOPPING_SECONDS
        with contextlib.suppress(SourceError, OSError, ValueError):
            self.send(messages.copy_done() + messages.terminate())
            while (left := deadline - time.monotonic()) > 0:
                select.select([self.socket], [], [], left)
                try:
                    if not self.socket.recv(_READ_BYTES):
                        return
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue

    def close(self) -> None:
        """Close the connection."""
        if self._session.phase is SessionPhase.IDLE:
            with contextlib.suppress(OSError, ValueError):
                self.socket.settimeout(_STOPPING_SECONDS)
                self.socket.sendall(messages.terminate())
        self.socket.close()

    # ---- waiting ---------------------------------------------------------------------------

    def log_in(self, deadline: float) -> None:
        """Speak until the session is idle.

        Raises:
            SourceError: the server or the connection failed.
            SourceRefusedError: the server refuses, or is no GaussDB.
        """
        self._exchange(self._session.start(), Phase.CONNECT, deadline)

    @property
    def is_lost(self) -> bool:
        """Nothing more can be asked on it."""
        return self._session.phase is SessionPhase.FAILED

    def _ask(self, sql: str, phase: Phase) -> None:
        if self.is_lost:  # and somebody has passed over it: it keeps its name
            raise self._failure or broken(phase, "the connection was ended")
        self._exchange(self._session.ask(sql), phase, self._deadline())

    def _deadline(self) -> float:
        return float("inf") if self.timeout is None else time.monotonic() + self.timeout

    def cancel(self) -> bool:
        """Have the server give up the command that runs; does not wait for it.

        Returns:
            It was told so; else it goes on with the command.
        """
        key = self._session.cancel_key
        if not key or self.is_replication:
            return False
        deadline = time.monotonic() + _STOPPING_SECONDS
        place = self.endpoint, self._place, self._target, deadline
        try:
            with open_socket(*place, is_tls=False) as asking:  # as libpq does: the key is used up
                asking.sendall(messages.cancel_request(key))
                asking.recv(1)  # the server has read it when it closes
        except (GaussDecodeError, OSError):
            return False
        return True

    def _until_cancelled(self) -> float:
        """Until when an answer is waited for, after a stop was asked for; it is cancelled once."""
        if self._cancelled_until is None:
            rest = CANCEL_SECONDS if self.cancel() else 0.0
            self._cancelled_until = time.monotonic() + rest
        return self._cancelled_until

    def _exchange(self, data: bytes, phase: Phase, deadline: float) -> None:
        """Send, then take messages until the session waits for us again."""
        session = self._session
        self._cancelled_until = None
        try:
            self._send_all(data, phase, deadline)
            while True:
                answer = session.take(self._next(phase, deadline))
                if answer:
                    self._send_all(answer, phase, deadline)
                if session.phase in _OURS:
                    break
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self.cancel()
            self._lose(error)  # nobody knows what would come next
            raise
        if session.error is not None:
            said = server_error(phase, session.error, self._secrets)
            if self.is_lost:
                self._lose(said)
            raise said

    def _lose(self, error: BaseException) -> None:
        self._session.phase = SessionPhase.FAILED
        self._failure = error if isinstance(error, GaussDecodeError) else None
        self.close()

    def _next(self, phase: Phase, deadline: float) -> Message:
        while (message := self._reader.take()) is None:
            self._reader.feed(self._receive(phase, deadline))
        return message

    def _receive(self, phase: Phase, deadline: float, size: int = _READ_BYTES) -> bytes:
        while True:
            self._wait(phase, deadline)
            try:
                data = self.socket.recv(size)
            except TimeoutError as error:
                if self.should_stop is None or time.monotonic() >= deadline:
                    raise self._broken(phase, error) from None
                if self.should_stop() and time.monotonic() >= self._until_cancelled():
                    raise broken(phase, "a stop was asked for") from None
                continue
            except OSError as error:
                raise self._broken(phase, error) from None
            if not data:
                raise broken(phase, "the server closed the connection")
            return data

    def _send_all(self, data: bytes, phase: Phase, deadline: float) -> None:
        self._wait(phase, deadline)
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise self._broken(phase, self._last_word(error)) from None

    def _last_word(self, error: OSError) -> OSError:
        """TLS's alert, where the server has ended the connection with one; else the error of a send."""
        try:
            self.socket.setblocking(False)
            self.socket.recv(1)
        except ssl.SSLError as said:
            return said if said.reason else error
        except OSError:
            pass
        return error

    def _wait(self, phase: Phase, deadline: float) -> None:
        """Let the next operation take what is left of the time."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise broken(phase, "no answer in time")
        if self.should_stop is not None:
            left = min(left, _POLL_SECONDS)
        self.socket.settimeout(None if left == float("inf") else left)

    def _broken(self, phase: Phase, error: OSError) -> SourceError:
        return broken(phase, reason_of(error), self._secrets)


# ---- connecting ----------------------------------------------------------------------------


def connect(address: SourceAddress, *, is_replication: bool = True) -> GaussConnection:
    """Open a connection to the first server of the connection string that lets us in.

    Raises:
        ConfigError: the connection string, or a file that it names, will not do.
        SourceError: no server can be reached now.
        SourceRefusedError: one refuses us, or is not who it should be.
    """
    target = parse_target(address.now())
    failures: list[tuple[Endpoint, SourceError]] = []
    for endpoint in target.endpoints:
        try:
            return _connect_to(endpoint, target, is_replication=is_replication)
        except SourceRefusedError:
            raise
        except SourceError as error:
            failures.append((endpoint, error))
    if len(failures) == 1:
        raise failures[0][1]
    told = "; ".join(f"{endpoint}: {error}" for endpoint, error in failures)
    raise SourceError(f"connecting: no server can be reached: {told}")


def _connect_to(endpoint: Endpoint, target: Target, *, is_replication: bool) -> GaussConnection:
    """Try the addresses behind a name, and the ways that sslmode allows."""
    failure: SourceError | None = None
    for place in places(endpoint):
        for is_tls in ways(endpoint, target.tls.mode):
            attempt = _Attempt(endpoint, target, place, is_tls=is_tls)
            try:
                return attempt.open(is_replication=is_replication)
            except SourceError as error:
                if not error.retryable and not attempt.may_try_another_way:
                    raise
                if failure is None or (failure.retryable and not error.retryable):
                    failure = error  # a refusal says more than an address nobody listens at
    assert failure is not None
    raise failure


class _Attempt:
    """One address, one way."""

    def __init__(self, endpoint: Endpoint, target: Target, place: Place, *, is_tls: bool) -> None:
        self._endpoint = endpoint
        self._target = target
        self._place = place
        self._is_tls = is_tls
        seconds = target.numbers["connect_timeout"]
        self._deadline = time.monotonic() + seconds if seconds else float("inf")
        self._session: Session | None = None

    @property
    def may_try_another_way(self) -> bool:
        """Nothing secret was given away yet, so another try costs no wrong password."""
        return self._session is None or not self._session.has_answered

    def open(self, *, is_replication: bool) -> GaussConnection:
        """Connect, in the newest protocol that the server takes."""
        for protocol in _PROTOCOLS:
            try:
                return self._open(protocol, is_replication=is_replication)
            except SourceError as error:
                if protocol == _PROTOCOLS[-1] or _OLD_PROTOCOL not in str(error):
                    raise
        raise AssertionError("the last protocol returns or raises")

    def _open(self, protocol: int, *, is_replication: bool) -> GaussConnection:
        self._session = None
        try:
            return self._log_in(protocol, is_replication=is_replication)
        except SourceError as error:
            own = self._target.tls.certificate
            if not self._is_tls or error.sqlstate is not None:
                raise
            raise login_problem(error, Path(own).expanduser() if own else None) from None

    def _log_in(self, protocol: int, *, is_replication: bool) -> GaussConnection:
        target = self._target
        sock = open_socket(self._endpoint, self._place, target, self._deadline, is_tls=self._is_tls)
        login = auth.Login(target.user, target.password)
        self._session = Session(login, _parameters(target, is_replication), protocol)
        connection = GaussConnection(sock, self._session, self._endpoint, self._place, target)
        try:
            connection.log_in(self._deadline)
        except (WireError, SequenceError) as error:
            raise SourceRefusedError(
                f"connecting: the server at {self._endpoint} does not speak GaussDB's protocol ({error}); "
                "check host and port"
            ) from None
        connection.socket.settimeout(None)
        return connection


def _parameters(target: Target, is_replication: bool) -> dict[str, str]:
    parameters = {
        "database": target.database,
        "application_name": target.application_name,
        "client_encoding": "UTF8",
    }
    if is_replication:
        return {**parameters, "replication": "database", **startup_parameters(Use.GAUSSDB_STREAM)}
    return {**parameters, **startup_parameters(Use.GAUSSDB_SQL)}
