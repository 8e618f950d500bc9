"""Where a log is cut by a CSN, against what a look at every entry says."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gaussdecode.model.csns import Csns, cut_at

ranges = st.tuples(st.integers(1, 20), st.integers(0, 6)).map(lambda of: Csns(of[0], sum(of)))
logs = st.lists(st.none() | ranges, max_size=8)


def held(entries: list[Csns | None]) -> Csns | None:
    """CSNs of all of them."""
    some = [of for of in entries if of is not None]
    if not some:
        return None
    return Csns(min(of.least for of in some), max(of.greatest for of in some))


@settings(deadline=None)
@given(csn=st.integers(1, 28), first=st.integers(0, 3), entries=logs)
@example(csn=2340, first=1, entries=[Csns(at, at) for at in (2350, 2340, 2360, 2355)])
def test_a_cut_is_exact_or_none(csn: int, first: int, entries: list[Csns | None]) -> None:
    """The last exact one where there is any, else the nearest on both sides."""
    cut = cut_at(csn, first, entries)
    below, complete = [], []
    for count in range(len(entries) + 1):
        before, after = held(entries[:count]), held(entries[count:])
        if before is None or before.greatest <= csn:
            below.append(count)
        if after is None or after.least > csn:
            complete.append(count)
    exact = set(below) & set(complete)
    assert cut.n == (first + max(exact) - 1 if exact else None)
    assert cut.below == first + max(below) - 1
    assert cut.held_below == held(entries[: max(below)])
    assert cut.complete == first + min(complete) - 1
    assert cut.held_complete == held(entries[: min(complete)])


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=3), max_size=8))
def test_where_csns_rise_every_end_of_an_entry_is_a_cut(parts: list[list[int]]) -> None:
    """As where the source sends in the order of CSNs."""
    numbers = iter(sorted({number for part in parts for number in part}))
    entries = [[next(numbers, None) for _ in part] for part in parts]
    known = [[number for number in part if number is not None] for part in entries]
    log = [Csns(part[0], part[-1]) if part else None for part in known]
    for n, of in enumerate(log):
        if of is not None:
            found = cut_at(of.greatest, 0, log).n
            assert found is not None
            assert held(list(log[: found + 1])) == held(list(log[: n + 1]))


def test_words() -> None:
    """As errors say them."""
    assert str(Csns(3, 3)) == "CSN 3"
    assert str(Csns(3, 5)) == "CSNs 3 to 5"


@pytest.mark.parametrize(
    "record",
    [{"least": 0, "greatest": 1}, {"least": 2, "greatest": 1}, {"least": 1.0, "greatest": 2}],
)
def test_what_is_no_range_is_refused(record: dict[str, object]) -> None:
    """Read from a log."""
    with pytest.raises(ValueError, match="not a range"):
        Csns.from_record(record)
