"""A life as a table: which event leads from which state to which.

A pair that is not listed raises and changes nothing. Knows no threads: who owns one steps
it under the lock that guards what the state means.
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
        name: of what lives, for errors.
        table: by state, what each event leads to.
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
