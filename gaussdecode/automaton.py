"""Run a state machine from a table: each event leads from one state to another.

A pair that is not listed raises and changes nothing. Knows no threads: the owner calls it under the lock that
guards the state.
"""

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from gaussdecode.errors import StateError

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class Automaton(Generic[S, E]):
    """One life.

    Args:
        name: name of what lives, for errors.
        table: table by state, what each event leads to.
        first: the state it begins in.

    Attributes:
        state: the present one.
    """

    __slots__ = ("_name", "_table", "state")

    def __init__(self, name: str, table: Mapping[S, Mapping[E, S]], first: S) -> None:
        self._name = name
        self._table = table
        self.state = first

    def step(self, event: E) -> S:
        """Take an event; gives the state it led to.

        Raises:
            StateError: the pair is not listed.
        """
        following = self._table[self.state].get(event)
        if following is None:
            raise StateError(f"{self._name}: no {event.value} while {self.state.value}")
        self.state = following
        return following
