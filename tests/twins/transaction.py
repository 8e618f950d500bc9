"""The order in which pgoutput's messages may come, as a table: the twin of the receive loop's checks.

A message that is not listed for the phase raises and moves nothing. Given the tags of the
messages and the positions of the commits, it promises that transactions do not nest, that
rows stand inside one, and that commits come in rising order. What the messages hold is not
its business.

A transactional logical message may stand outside of a transaction only when it is not
transactional, which its tag does not say; it is therefore allowed in both phases.
Stray Stream Aborts are sent by servers with a known bug even in protocol 1: they move
nothing.
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
    STREAM_ABORT = b"A"


class Phase(enum.Enum):
    """Whether a transaction is open."""

    IDLE = "idle"
    IN_TXN = "in transaction"


_ANYWHERE: Final = (Tag.RELATION, Tag.TYPE, Tag.MESSAGE, Tag.STREAM_ABORT)
_INSIDE: Final = (Tag.ORIGIN, Tag.INSERT, Tag.UPDATE, Tag.DELETE, Tag.TRUNCATE)

TRANSITIONS: Final[Mapping[Phase, Mapping[Tag, Phase]]] = {
    Phase.IDLE: {
        **dict.fromkeys(_ANYWHERE, Phase.IDLE),
        Tag.BEGIN: Phase.IN_TXN,
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
        if tag is Tag.COMMIT:
            if end_lsn is None or end_lsn <= self.end_lsn:
                raise SequenceError(f"commit at {end_lsn} does not lie above {self.end_lsn}")
            self.end_lsn = end_lsn
        self.phase = phase
        return phase
