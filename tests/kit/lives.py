"""The life of one transaction, from its first change to the position that the server is told.

The machine is a table: which event leads from which state to which, and what must hold of the
landing and of the slot while a transaction is in a state. Tests drive a real server and a real
daemon along each of its edges and hold both to the table. Given a state, an event and a size it says what
is to come; it knows no server, no daemon and no fault but what a fault makes of a state.

    UNSENT -> PAUSED -> SPOOLED    open: nothing of it is visible, and nothing beyond it is confirmed
    IN_BLOCK                       the connection stands still in the middle of a block
    PREPARED -> KEPT               visible to nobody; its PREPARE is confirmed only once it is kept
    RELEASED -> DURABLE -> CONFIRMED
    GONE                           rolled back: never visible
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Final


class State(enum.Enum):
    """Where a transaction is, as the daemon sees it."""

    UNSENT = "unsent"
    IN_BLOCK = "in a block"
    PAUSED = "paused"
    SPOOLED = "spooled"
    PREPARED = "prepared"
    KEPT = "kept"
    RELEASED = "released"
    DURABLE = "durable"
    CONFIRMED = "confirmed"
    GONE = "gone"


class Event(enum.Enum):
    """What happens next: to the session that has it, or in the daemon by itself."""

    MORE = "more rows"
    UNDO = "savepoint rolled back"
    ROLLBACK = "rollback"
    PREPARE = "prepare"
    COMMIT = "commit"
    COMMIT_PREPARED = "commit prepared"
    ROLLBACK_PREPARED = "rollback prepared"
    KEEP = "kept by an entry"
    ENTRY = "entry"
    CONFIRM = "confirmation"


class Size(enum.Enum):
    """How much a transaction writes: sent whole, streamed, streamed and too much for memory."""

    SMALL = "small"
    LARGE = "large"
    HUGE = "huge"


@dataclasses.dataclass(frozen=True)
class Claim:
    """What must hold while a transaction is in a state.

    Attributes:
        is_visible: its rows are in the commit log's files.
        is_kept: an entry names a file of its rows.
        is_confirmed: the slot's confirmed position is beyond its end, or that of its PREPARE;
            None where it has no end yet.
    """

    is_visible: bool = False
    is_kept: bool = False
    is_confirmed: bool | None = None


CLAIMS: Final[Mapping[State, Claim]] = {
    **dict.fromkeys((State.UNSENT, State.IN_BLOCK, State.PAUSED, State.SPOOLED), Claim()),
    State.PREPARED: Claim(is_confirmed=False),
    State.KEPT: Claim(is_kept=True, is_confirmed=True),
    State.RELEASED: Claim(is_confirmed=False),
    State.DURABLE: Claim(is_visible=True, is_confirmed=False),
    State.CONFIRMED: Claim(is_visible=True, is_confirmed=True),
    State.GONE: Claim(),
}

_ENDS: Final = {
    Event.ROLLBACK: State.GONE,
    Event.PREPARE: State.PREPARED,
    Event.COMMIT: State.RELEASED,
}
_ENDS_PREPARED: Final = {
    Event.COMMIT_PREPARED: State.RELEASED,
    Event.ROLLBACK_PREPARED: State.GONE,
}
TABLE: Final[Mapping[State, Mapping[Event, State]]] = {
    State.UNSENT: {Event.MORE: State.PAUSED, Event.UNDO: State.UNSENT, **_ENDS},
    State.IN_BLOCK: {Event.MORE: State.PAUSED, Event.UNDO: State.PAUSED, **_ENDS},
    State.PAUSED: {Event.MORE: State.SPOOLED, Event.UNDO: State.PAUSED, **_ENDS},
    State.SPOOLED: {Event.MORE: State.SPOOLED, Event.UNDO: State.SPOOLED, **_ENDS},
    State.PREPARED: {Event.KEEP: State.KEPT, **_ENDS_PREPARED},
    State.KEPT: _ENDS_PREPARED,
    State.RELEASED: {Event.ENTRY: State.DURABLE},
    State.DURABLE: {Event.CONFIRM: State.CONFIRMED},
    State.CONFIRMED: {},
    State.GONE: {},
}
OPEN: Final = (State.UNSENT, State.IN_BLOCK, State.PAUSED, State.SPOOLED)
STREAMED: Final = (State.PAUSED, State.SPOOLED)
IN_TIME: Final[Mapping[State, State]] = {
    State.PREPARED: State.KEPT,
    State.RELEASED: State.CONFIRMED,
    State.DURABLE: State.CONFIRMED,
}
"""Where the daemon brings a transaction by itself, with an entry and a confirmation."""
PREPARED: Final = (State.PREPARED, State.KEPT)
_OF_PREPARED: Final = {
    Event.PREPARE,
    Event.COMMIT_PREPARED,
    Event.ROLLBACK_PREPARED,
    Event.KEEP,
}
_SIZES: Final[Mapping[State, tuple[Size, ...]]] = {
    State.UNSENT: (Size.SMALL,),
    State.IN_BLOCK: (Size.HUGE,),
    State.PAUSED: (Size.LARGE,),
    State.SPOOLED: (Size.HUGE,),
}


@dataclasses.dataclass(frozen=True)
class Edge:
    """One step of a life, of a transaction of some size."""

    state: State
    event: Event
    size: Size

    @property
    def following(self) -> State:
        """Where it leads."""
        return TABLE[self.state][self.event]

    def __str__(self) -> str:
        """Name a test by it."""
        return f"{self.state.value}, {self.event.value}, {self.size.value}"


def edges(*, is_two_phase: bool) -> Iterator[Edge]:
    """Every edge of the table, once for each size that can be in its state."""
    for state, events in TABLE.items():
        for event in events:
            if is_two_phase or (event not in _OF_PREPARED and state not in PREPARED):
                for size in _SIZES.get(state, tuple(Size)):
                    yield Edge(state, event, size)
