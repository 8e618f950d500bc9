"""The list of guards is of the code as it is: each is there once, and without it it still parses."""

import pytest
from mutations.guards import GUARDS, Guard
from mutations.run import mutated


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.file)
def test_guard_can_be_taken_out(guard: Guard) -> None:
    """Else a mutation would be caught by what cannot be imported, or try nothing."""
    compile(mutated(guard), guard.file, "exec")
