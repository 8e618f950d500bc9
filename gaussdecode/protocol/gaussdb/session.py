"""Run a session from its first byte to the stream: messages in, bytes to send out.

`Session` takes every message and gives the bytes to send back. Its attributes have what it learned. It knows no
socket and no clock; TLS is agreed upon before it begins. A table says which message may come in which phase;
any other raises and changes nothing.

    AUTHENTICATING --OK--> SETTING_UP --ready--> IDLE <--> BUSY --CopyBoth--> STREAMING
                                                            BUSY --CopyOut--> COPYING --done--> BUSY
    and from each of the first four, by an error, to FAILED

On a replication connection every error ends the session: the server closes it without
another message. On an ordinary one the server is ready again after an error.
"""

import enum
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import SequenceError, WireError
from gaussdecode.protocol.gaussdb import auth, messages
from gaussdecode.protocol.gaussdb.messages import Message, Row, Tag

_MAX_NOTICES: Final = 100  # arbitrary; later ones are dropped
_MAX_ROWS: Final = 1_000_000  # arbitrary; no answer to our commands comes near


class Phase(enum.Enum):
    """Where a session is."""

    AUTHENTICATING = "authenticating"
    SETTING_UP = "setting up"
    IDLE = "idle"
    BUSY = "busy"
    COPYING = "copying"
    STREAMING = "streaming"
    FAILED = "failed"


_ANY_TIME: Final = (Tag.NOTICE, Tag.PARAMETER, Tag.NOTIFICATION)
_IN_ANSWER: Final = (Tag.ROW_DESCRIPTION, Tag.DATA_ROW, Tag.COMMAND_COMPLETE, Tag.EMPTY_QUERY)
# AUTHENTICATION leads on only with code 0, ERROR keeps an ordinary session alive.
TRANSITIONS: Final[Mapping[Phase, Mapping[Tag, Phase]]] = {
    Phase.AUTHENTICATING: {
        Tag.AUTHENTICATION: Phase.SETTING_UP,
        Tag.NEGOTIATE: Phase.AUTHENTICATING,
        Tag.NOTICE: Phase.AUTHENTICATING,
        Tag.ERROR: Phase.FAILED,
    },
    Phase.SETTING_UP: {
        **dict.fromkeys(_ANY_TIME, Phase.SETTING_UP),
        Tag.BACKEND_KEY: Phase.SETTING_UP,
        Tag.READY: Phase.IDLE,
        Tag.ERROR: Phase.FAILED,
    },
    Phase.IDLE: {**dict.fromkeys(_ANY_TIME, Phase.IDLE), Tag.ERROR: Phase.FAILED},
    Phase.BUSY: {
        **dict.fromkeys(_ANY_TIME, Phase.BUSY),
        **dict.fromkeys(_IN_ANSWER, Phase.BUSY),
        Tag.READY: Phase.IDLE,
        Tag.COPY_BOTH: Phase.STREAMING,
        Tag.COPY_OUT: Phase.COPYING,
        Tag.ERROR: Phase.FAILED,
    },
    Phase.COPYING: {
        **dict.fromkeys(_ANY_TIME, Phase.COPYING),
        Tag.COPY_DATA: Phase.COPYING,
        Tag.COPY_DONE: Phase.BUSY,
        Tag.ERROR: Phase.FAILED,
    },
    Phase.STREAMING: {},
    Phase.FAILED: {},
}


class Session:
    """One session.

    Args:
        login: user and password.
        parameters: parameters of the startup message: ``database``, settings, ``replication``.
        protocol: version to ask for.

    Attributes:
        phase: current phase.
        has_answered: a password, or proof of it, was given away.
        minor: minor version that both sides speak.
        parameters: settings that the server reported.
        columns: names, of the last answer with rows.
        rows: rows of it.
        error: fields of the error of the last command, or of the one that ended the session.
        notices: fields of the first hundred notices.
        cancel_key: key that cancels a command of the session, for `messages.cancel_request`; empty for none.
    """

    def __init__(self, login: auth.Login, parameters: Mapping[str, str], protocol: int) -> None:
        self._login = login
        self._startup = {"user": login.user, **parameters}
        self._protocol = protocol
        self.has_answered = False
        self.phase = Phase.AUTHENTICATING
        self.minor = protocol & messages.MINOR_MASK
        self.parameters: dict[str, str] = {}
        self.columns: tuple[str, ...] = ()
        self.rows: list[Row] = []
        self.error: dict[str, str] | None = None
        self.notices: list[dict[str, str]] = []
        self.cancel_key = b""

    @property
    def is_replication(self) -> bool:
        """It was opened to stream."""
        return "replication" in self._startup

    def start(self) -> bytes:
        """Give the first message."""
        return messages.startup(self._protocol, self._startup)

    def ask(self, sql: str) -> bytes:
        """Run a command; the answer is complete when the session is idle again.

        Raises:
            SequenceError: the session is not idle.
        """
        if self.phase is not Phase.IDLE:
            raise SequenceError(f"a command in a session that is {self.phase.value}")
        data = messages.query(sql)
        self.phase = Phase.BUSY
        self.columns, self.rows, self.error = (), [], None
        return data

    def take(self, message: Message) -> bytes:
        """Take a message of the server; gives what to send back, often nothing.

        Raises:
            SequenceError: it must not come now.
            WireError: it is damaged.
            SourceRefusedError: the server wants a log-in that cannot be given.
        """
        following = TRANSITIONS[self.phase].get(message.tag)
        if following is None:
            raise SequenceError(
                f"unexpected message {message.tag.name} in a session that is {self.phase.value}"
            )
        if message.tag is Tag.AUTHENTICATION:
            return self._authenticate(message.body, following)
        if message.tag is Tag.ERROR:
            self.error = messages.notice_fields(message.body)
            if self.phase in (Phase.BUSY, Phase.COPYING) and not self.is_replication:
                following = Phase.BUSY
        else:
            self._note(message)
        self.phase = following
        return b""

    def _authenticate(self, body: bytes, following: Phase) -> bytes:
        request = messages.parse_authentication(body)
        if request.code == auth.OK:
            self.phase = following
            return b""
        if self.has_answered:
            raise SequenceError("the server asks for a second password")
        answer = messages.password(auth.answer(request, self._login, self.minor))
        self.has_answered = True
        return answer

    def _note(self, message: Message) -> None:
        """Learn from a message that changes the phase by the table alone."""
        match message.tag:
            case Tag.PARAMETER:
                name, value = messages.parse_parameter(message.body)
                self.parameters[name] = value
            case Tag.NOTICE:
                fields = messages.notice_fields(message.body)
                if len(self.notices) < _MAX_NOTICES:
                    self.notices.append(fields)
            case Tag.BACKEND_KEY if len(message.body) >= messages.CANCEL_KEY_BYTES:
                self.cancel_key = message.body[: messages.CANCEL_KEY_BYTES]
            case Tag.NEGOTIATE:
                self.minor = min(self.minor, messages.parse_negotiation(message.body))
            case Tag.ROW_DESCRIPTION:
                self.columns, self.rows = messages.parse_row_description(message.body), []
            case Tag.DATA_ROW:
                self._add(messages.parse_data_row(message.body))
            case Tag.COMMAND_COMPLETE:
                messages.parse_command_complete(message.body)
            case Tag.COPY_BOTH:
                messages.parse_copy_both(message.body)
            case Tag.COPY_OUT:
                messages.parse_copy_out(message.body)
            case _:
                pass  # notifications, copied lines, READY: nothing to learn

    def _add(self, row: Row) -> None:
        if len(row) != len(self.columns):
            raise WireError(f"a row of {len(row)} values for {len(self.columns)} columns", 0)
        if len(self.rows) >= _MAX_ROWS:
            raise WireError(f"an answer of more than {_MAX_ROWS} rows", 0)
        self.rows.append(row)
