"""Sessions: the table decides every pair, and what is learned on the way."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.scripted import answer, error, notice, startup_parameters
from kit.vectors import split_all, vector_bytes

from gaussdecode.errors import GaussDecodeError, SequenceError, SourceRefusedError, WireError
from gaussdecode.protocol.gaussdb import messages
from gaussdecode.protocol.gaussdb.auth import Login
from gaussdecode.protocol.gaussdb.messages import Message, Tag
from gaussdecode.protocol.gaussdb.session import TRANSITIONS, Phase, Session

LOGIN = Login("gaussdecode", "Test@123")
BODIES = {
    Tag.AUTHENTICATION: bytes(4),
    Tag.BACKEND_KEY: bytes(12),
    Tag.COMMAND_COMPLETE: b"SELECT\0",
    Tag.COPY_BOTH: bytes(3),
    Tag.DATA_ROW: b"\0\0",
    Tag.ERROR: b"SERROR\0C42704\0Mgone\0\0",
    Tag.COPY_OUT: b"\0\0\1\0\0",
    Tag.NEGOTIATE: struct.pack(">II", 3 << 16, 0),
    Tag.NOTICE: b"Mlook\0\0",
    Tag.PARAMETER: b"a\0b\0",
    Tag.READY: b"I",
    Tag.ROW_DESCRIPTION: b"\0\0",
}
PAIRS = [(phase, tag) for phase in Phase for tag in Tag]
START = b"".join(
    (
        messages.frontend(Tag.AUTHENTICATION.value, bytes(4)),
        messages.frontend(Tag.PARAMETER.value, b"server_encoding\0GBK\0"),
        messages.frontend(Tag.READY.value, b"I"),
    )
)


def session(*, is_replication: bool = False, protocol: int = messages.PROTOCOL_3_51) -> Session:
    """A new session."""
    extra = {"replication": "database"} if is_replication else {}
    return Session(LOGIN, {"database": "shop", **extra}, protocol)


def tell(subject: Session, data: bytes) -> bytes:
    """Tell a session whole messages; give what it wants to send."""
    return b"".join(subject.take(message) for message in split_all(data))


def idle(*, is_replication: bool = False) -> Session:
    """A session that waits for a command."""
    made = session(is_replication=is_replication)
    tell(made, START)
    return made


@pytest.mark.parametrize(("phase", "tag"), PAIRS, ids=str)
def test_table_decides_every_pair(phase: Phase, tag: Tag) -> None:
    """A listed pair moves; an unlisted one raises and moves nothing."""
    subject = session(is_replication=True)
    subject.phase = phase
    message = Message(tag, BODIES.get(tag, b""))
    if tag in TRANSITIONS[phase]:
        subject.take(message)
        assert subject.phase is TRANSITIONS[phase][tag]
    else:
        with pytest.raises(SequenceError, match=tag.name):
            subject.take(message)
        assert subject.phase is phase


@pytest.mark.parametrize("tag", BODIES)
def test_damaged_message_moves_nothing(tag: Tag) -> None:
    """Unless nothing in it is looked at."""
    if tag in {Tag.BACKEND_KEY, Tag.READY}:
        return
    for phase in (phase for phase in Phase if tag in TRANSITIONS[phase]):
        subject = session()
        subject.phase = phase
        with pytest.raises(WireError):
            subject.take(Message(tag, BODIES[tag][:-1]))
        assert subject.phase is phase


def test_startup_names_the_user_first() -> None:
    """Then database and the rest."""
    data = session(is_replication=True).start()
    assert startup_parameters(data[4:]) == {
        "user": "gaussdecode",
        "database": "shop",
        "replication": "database",
    }


def test_log_in_with_a_password() -> None:
    """The proof goes out once, and the parameters are kept."""
    subject = session(protocol=messages.PROTOCOL_3_0)
    assert tell(subject, vector_bytes("A01")) == vector_bytes("A03")
    assert subject.has_answered
    tell(subject, START)
    assert subject.phase is Phase.IDLE
    assert subject.parameters == {"server_encoding": "GBK"}


def test_second_password_is_refused() -> None:
    """A server that asks again might be collecting proofs."""
    subject = session(protocol=messages.PROTOCOL_3_0)
    tell(subject, vector_bytes("A01"))
    with pytest.raises(SequenceError, match="second password"):
        tell(subject, vector_bytes("A01"))


def test_older_minor_version_is_taken_over() -> None:
    """Below 3.50 the server signs, which changes the length of its request."""
    subject = session()
    tell(subject, messages.frontend(Tag.NEGOTIATE.value, struct.pack(">II", 3 << 16, 0)))
    assert subject.minor == 0
    assert tell(subject, vector_bytes("A01")) == vector_bytes("A03")


def test_unknown_method_reaches_the_caller() -> None:
    """As an error that no retry helps."""
    with pytest.raises(SourceRefusedError, match="IAM"):
        tell(session(), messages.frontend(Tag.AUTHENTICATION.value, struct.pack(">i", 14)))


def test_answer_has_columns_and_rows() -> None:
    """NULL is None, an empty text is empty."""
    subject = idle()
    assert subject.ask("SELECT") == messages.query("SELECT")
    tell(subject, answer(("a", "b"), ("1", None), ("", "x")))
    assert (subject.phase, subject.columns) == (Phase.IDLE, ("a", "b"))
    assert subject.rows == [("1", None), ("", "x")]


def test_two_command_complete_are_one_answer() -> None:
    """DROP_REPLICATION_SLOT sends two."""
    subject = idle()
    subject.ask("DROP_REPLICATION_SLOT x")
    for tag in (b"DROP_REPLICATION_SLOT\0", b"SELECT\0"):
        tell(subject, messages.frontend(Tag.COMMAND_COMPLETE.value, tag))
        assert subject.phase is Phase.BUSY
    tell(subject, messages.frontend(Tag.READY.value, b"I"))
    assert subject.phase is Phase.IDLE


def test_error_ends_a_replication_session_only() -> None:
    """An ordinary one is ready again afterwards."""
    for is_replication in (True, False):
        subject = idle(is_replication=is_replication)
        subject.ask("SELECT")
        tell(subject, error("42704", "gone"))
        assert subject.error is not None
        assert subject.error["C"] == "42704"
        assert subject.phase is (Phase.FAILED if is_replication else Phase.BUSY)
    tell(subject, messages.frontend(Tag.READY.value, b"I"))
    assert subject.phase is Phase.IDLE
    subject.ask("SELECT")
    assert subject.error is None


def test_nobody_asks_twice() -> None:
    """A command waits for the end of the one before."""
    subject = idle()
    subject.ask("SELECT")
    with pytest.raises(SequenceError, match="busy"):
        subject.ask("SELECT")


def test_rows_must_fit_their_columns() -> None:
    """A row of another width is damage."""
    subject = idle()
    subject.ask("SELECT")
    with pytest.raises(WireError, match="0 values for 1 columns"):
        tell(subject, answer(("a",), ()))


def test_notices_are_kept_up_to_a_bound() -> None:
    """A talkative server costs no memory."""
    subject = idle()
    for _ in range(150):
        tell(subject, notice("look"))
    assert len(subject.notices) == 100
    assert subject.notices[0]["M"] == "look"


@given(st.lists(st.tuples(st.sampled_from(list(Tag)), st.binary(max_size=40)), max_size=30))
def test_any_messages_end_in_a_phase_or_a_typed_error(sent: list[tuple[Tag, bytes]]) -> None:
    """Nothing else comes out."""
    subject = session()
    for tag, body in sent:
        try:
            subject.take(Message(tag, body))
        except GaussDecodeError:
            return
        assert subject.phase in Phase
