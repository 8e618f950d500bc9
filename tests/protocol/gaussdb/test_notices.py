"""The notice that rows may be missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.notices import LostChanges, is_loss, lost_changes

HEAD = (
    "Due to DDL in the same top transaction, partial modification may be lost for "
    "<XID, FIRST_LSN, FINAL_LSN, SKIP_START_LSN> = { "
)
NUMBER = st.integers(0, 2**64 - 1)
CHANGES = st.builds(LostChanges, NUMBER, NUMBER.map(Lsn), NUMBER.map(Lsn), NUMBER.map(Lsn))


@given(st.lists(CHANGES, max_size=5))
def test_all_transactions_are_read(changes: list[LostChanges]) -> None:
    """Top transactions and their parts alike."""
    items = ", ".join(
        f"<{one.xid}, {one.first_lsn}, {one.final_lsn}, {one.skip_start_lsn}>" for one in changes
    )
    text = HEAD + items + " }"
    assert is_loss(text)
    assert lost_changes(text) == tuple(changes)


def test_heading_is_no_transaction() -> None:
    """Its names stand in the same brackets."""
    assert lost_changes(HEAD + "}") == ()


@pytest.mark.parametrize("text", ["", "look", "<1, 0/1, 0/2, 0/3>"])
def test_other_notices_say_nothing(text: str) -> None:
    """Only the words mean loss."""
    assert not is_loss(text)
    assert lost_changes(text) == ()


@given(st.text(max_size=60))
def test_damaged_list_gives_what_can_be_read(text: str) -> None:
    """No exception comes out."""
    for one in lost_changes(HEAD + text):
        assert one.xid >= 0


def test_number_beyond_64_bits_is_left_out() -> None:
    """It is no xid."""
    assert lost_changes(HEAD + "<99999999999999999999, 0/1, 0/2, 0/3> }") == ()
