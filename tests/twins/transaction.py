"""The order in which pgoutput's messages may come, as a table: the twin of the receive loop's checks.

A message that is not listed for the phase raises and moves nothing. Given the tags of the
messages and the positions of the commits, it promises that transactions and blocks of streamed ones
do not nest, that rows stand inside one, and that commits come in rising order. What the messages hold is not
its business.

A transactional logical message may stand outside of a transaction only when it is not
transactional, which its tag does not say; it is therefore allowed in both phases.
A streamed transaction's end stands between transactions and blocks; whose it is, and
whether it was ever begun, is the assembler's to know.
"""

import enum
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import SequenceError
from gaussdecode.model.lsn import Lsn


class Tag(enum.Enum):
    """First byte of a message."""

    BEGIN = b"B"
    COMMIT = b"C"
    ORIGIN = b"O"
    RELATION = b"R"
    TYPE = b"Y"
    INSERT = b"I"
    UPDATE = b"U"
    DELETE = b"D"
    TRUNCATE = b"T"
    MESSAGE = b"M"
    STREAM_START = b"S"
    STREAM_STOP = b"E"
    STREAM_COMMIT = b"c"
    STREAM_ABORT = b"A"
    PREPARE_BEGIN = b"b"
    PREPARE = b"P"
    STREAM_PREPARE = b"p"
    COMMIT_PREPARED = b"K"
    ROLLBACK_PREPARED = b"r"


COMMITS: Final = (Tag.COMMIT, Tag.STREAM_COMMIT, Tag.COMMIT_PREPARED)
PREPARED: Final = (Tag.PREPARE, Tag.STREAM_PREPARE, Tag.ROLLBACK_PREPARED)


class Phase(enum.Enum):
    """Whether a transaction is open."""

    IDLE = "idle"
    IN_TXN = "in transaction"
    IN_BLOCK = "in a block of a streamed transaction"
    IN_PREPARED = "in a prepared transaction"


_ANYWHERE: Final = (Tag.RELATION, Tag.TYPE, Tag.MESSAGE)
_INSIDE: Final = (Tag.ORIGIN, Tag.INSERT, Tag.UPDATE, Tag.DELETE, Tag.TRUNCATE)

TRANSITIONS: Final[Mapping[Phase, Mapping[Tag, Phase]]] = {
    Phase.IDLE: {
        **dict.fromkeys(_ANYWHERE, Phase.IDLE),
        Tag.BEGIN: Phase.IN_TXN,
        Tag.STREAM_START: Phase.IN_BLOCK,
        Tag.STREAM_COMMIT: Phase.IDLE,
        Tag.STREAM_ABORT: Phase.IDLE,
        Tag.PREPARE_BEGIN: Phase.IN_PREPARED,
        # Of transaction nobody knows; the collector refuses it.
        **dict.fromkeys((*PREPARED, Tag.COMMIT_PREPARED), Phase.IDLE),
    },
    Phase.IN_PREPARED: {
        **dict.fromkeys((*_ANYWHERE, *_INSIDE), Phase.IN_PREPARED),
        Tag.PREPARE: Phase.IDLE,
    },
    Phase.IN_BLOCK: {
        **dict.fromkeys((*_ANYWHERE, *_INSIDE), Phase.IN_BLOCK),
        Tag.STREAM_STOP: Phase.IDLE,
    },
    Phase.IN_TXN: {
        **dict.fromkeys((*_ANYWHERE, *_INSIDE), Phase.IN_TXN),
        Tag.COMMIT: Phase.IDLE,
    },
}


class TransactionFraming:
    """Follows the messages of one connection.

    Attributes:
        phase: where we are.
        end_lsn: of the last commit; 0 before the first.
    """

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.end_lsn = Lsn(0)

    def advance(self, tag: Tag, end_lsn: Lsn | None = None) -> Phase:
        """Take one message.

        Args:
            tag: its first byte.
            end_lsn: of a commit; required there.

        Raises:
            SequenceError: the message may not come here, or a commit does not lie above
                the one before it.
        """
        phase = TRANSITIONS[self.phase].get(tag)
        if phase is None:
            raise SequenceError(f"message {tag.name} is not allowed while {self.phase.value}")
        if tag in COMMITS:
            if end_lsn is None or end_lsn <= self.end_lsn:
                raise SequenceError(f"commit at {end_lsn} does not lie above {self.end_lsn}")
            self.end_lsn = end_lsn
        if tag in PREPARED and end_lsn is not None:
            self.end_lsn = max(self.end_lsn, end_lsn)
        self.phase = phase
        return phase
