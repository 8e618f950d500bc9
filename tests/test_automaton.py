"""Lives as tables: each pair does what the text above its module shows, or raises."""

import enum
import types
from collections.abc import Mapping
from typing import Any, Final

import pytest

from gaussdecode.automaton import Automaton
from gaussdecode.collect import snapshot_gate
from gaussdecode.daemon import session_life
from gaussdecode.errors import StateError
from gaussdecode.land import writer_state

Table = Mapping[Any, Mapping[Any, Any]]  # Any: enums of each module
LIVES: Final[dict[str, tuple[types.ModuleType, Table, type[enum.Enum], type[enum.Enum]]]] = {
    "writer": (writer_state, writer_state.LIFE, writer_state.Life, writer_state.Event),
    "entry": (writer_state, writer_state.ENTRY, writer_state.Stage, writer_state.Step),
    "hold": (snapshot_gate, snapshot_gate.HOLD, snapshot_gate.State, snapshot_gate.Event),
    "session": (session_life, session_life.LIFE, session_life.Life, session_life.Turn),
}


def _drawn(
    module: types.ModuleType, states: type[enum.Enum], events: type[enum.Enum]
) -> dict[tuple[str, str], str]:
    """What the table in a module's text says, for the pairs that lead somewhere."""
    state_names = {state.value for state in states}
    event_names = {event.value for event in events}
    found: dict[tuple[str, str], str] = {}
    header: list[list[str]] = []
    for line in (module.__doc__ or "").splitlines():
        words = line.split()
        if words and set(line.replace(",", " ").split()) <= event_names:
            header = [word.split(",") for word in words]
        elif not words:
            header = []
        elif header and words[0] in state_names:
            for column, following in zip(header, words[1:], strict=False):
                found.update({(words[0], one): following for one in column if following != "-"})
    return found


@pytest.mark.parametrize("name", LIVES)
def test_drawn_table_is_the_code(name: str) -> None:
    """What is drawn above the module is what is done."""
    module, table, states, events = LIVES[name]
    done = {
        (state.value, event.value): following.value
        for state, row in table.items()
        for event, following in row.items()
    }
    assert _drawn(module, states, events) == done


@pytest.mark.parametrize("name", LIVES)
def test_every_pair(name: str) -> None:
    """A listed pair leads where the table says; any other raises and changes nothing."""
    _, table, states, events = LIVES[name]
    assert set(table) == set(states)
    for state in states:
        for event in events:
            life = Automaton(name, table, state)
            following = table[state].get(event)
            if following is None:
                with pytest.raises(StateError, match=f"no {event.value} while {state.value}"):
                    life.step(event)
                assert life.state is state
            else:
                assert life.step(event) is following
                assert life.state is following
