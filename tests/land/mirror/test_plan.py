"""What is decided without a store."""

from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.land.mirror.plan import (
    MirrorState,
    batches,
    newest_entry,
    numbered_copies,
    numbered_path,
)
from gaussdecode.land.snapshots import LEDGER
from gaussdecode.model.landing import LandingFile, Position


def file(size: int) -> LandingFile:
    """A file of a size."""
    at = Position(1, 0)
    return LandingFile("public.a", "data/x", 1, size, at, at, "", {}, False, False, "")


@given(st.lists(st.integers(0, 300)), st.integers(1, 5), st.integers(1, 400))
def test_batches_are_bounded(sizes: list[int], most_files: int, most_bytes: int) -> None:
    """Every file is in one, in order; what is in memory at a time is bounded, but for a single file."""
    found = [
        [of.bytes for of in batch] for batch in batches(map(file, sizes), most_files, most_bytes)
    ]
    assert [size for batch in found for size in batch] == sizes
    for batch in found:
        assert 1 <= len(batch) <= most_files
        assert len(batch) == 1 or sum(batch) <= most_bytes


@given(
    st.builds(
        MirrorState,
        st.text(),
        st.integers(-1, 2**63),
        st.integers(-1, 2**63),
        st.integers(-1, 2**63),
        st.booleans(),
    )
)
def test_states_come_back(state: MirrorState) -> None:
    """What is written is what is read."""
    assert MirrorState.from_bytes(state.to_bytes()) == state


def test_names_tell_what_they_are() -> None:
    """Ledgers rise by entry, then by number; other names are passed over."""
    paths = [
        numbered_path(LEDGER, 2, 11),
        numbered_path(LEDGER, 2, 9),
        numbered_path(LEDGER, 1, 12),
    ]
    names = [path.partition("/")[2] for path in paths]
    assert numbered_copies(LEDGER, [*names, "ledger.json", "requests"]) == [
        (1, 12),
        (2, 9),
        (2, 11),
    ]
    assert newest_entry([]) == -1
    assert newest_entry([f"{7:020d}.json", f".{9:020d}.json", "x", f"{8:020d}.json"]) == 8
