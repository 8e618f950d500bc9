"""The order of messages."""

import itertools

import pytest

from gaussdecode.errors import SequenceError
from gaussdecode.model.lsn import Lsn
from twins.transaction import TRANSITIONS, Phase, Tag, TransactionFraming

PAIRS = list(itertools.product(Phase, Tag))


@pytest.mark.parametrize(("phase", "tag"), PAIRS, ids=str)
def test_table_decides_every_pair(phase: Phase, tag: Tag) -> None:
    """A listed pair moves; an unlisted one raises and moves nothing."""
    framing = TransactionFraming()
    framing.phase = phase

    if tag in TRANSITIONS[phase]:
        assert framing.advance(tag, Lsn(1)) is TRANSITIONS[phase][tag]
    else:
        with pytest.raises(SequenceError, match=tag.name):
            framing.advance(tag, Lsn(1))
        assert framing.phase is phase


@pytest.mark.parametrize("end_lsn", [None, Lsn(4), Lsn(5)])
def test_commits_rise(end_lsn: Lsn | None) -> None:
    """A commit that does not lie above the last one raises and moves nothing."""
    framing = TransactionFraming()
    framing.advance(Tag.BEGIN)
    framing.advance(Tag.COMMIT, Lsn(5))
    framing.advance(Tag.BEGIN)

    with pytest.raises(SequenceError, match="above 0/5"):
        framing.advance(Tag.COMMIT, end_lsn)

    assert framing.phase is Phase.IN_TXN
    assert framing.end_lsn == 5
