"""What is sent again, walked beside what landed: equal, or the first difference."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.collect.resent import Resent
from gaussdecode.errors import IdentityError
from gaussdecode.model.account import EMPTY, USER
from gaussdecode.model.transaction import TransactionMark

SINCE, UNTIL = 100, 200
FIRST = TransactionMark(120, 7, 1_000_000, 3, has_origin=False)
SECOND = TransactionMark(150, 8, 2_000_000, 1, has_origin=False)
LAST = TransactionMark(200, 9, 3_000_000, 1, has_origin=False)
LANDED = (FIRST, SECOND, LAST)


def _compare(landed: list[TransactionMark], sent: list[TransactionMark]) -> list[int]:
    """Run a comparison to its end; give what was told."""
    told: list[int] = []
    resent = Resent(iter(landed), SINCE, UNTIL, told.append)
    for mark in sent:
        resent.take(mark)
        assert not told
    resent.finish()
    return told


def _changed(mark: TransactionMark, **values: int | bool) -> TransactionMark:
    return dataclasses.replace(mark, **values)  # type: ignore[arg-type]  # names are checked


def test_equal_ones_are_counted() -> None:
    """The usual case after a crash of the server."""
    assert _compare(list(LANDED), list(LANDED)) == [3]
    assert _compare([], []) == [0]


@pytest.mark.parametrize(
    "sent",
    [
        [FIRST, SECOND],
        [SECOND, LAST],
        [],
        [FIRST, _changed(SECOND, xid=99), LAST],
        [FIRST, _changed(SECOND, time_us=2_000_001), LAST],
        [FIRST, _changed(SECOND, end_lsn=151), LAST],
        [FIRST, SECOND, _changed(SECOND, end_lsn=160), LAST],
    ],
    ids=["last missing", "first missing", "all missing", "xid", "time", "end", "surplus"],
)
def test_difference_is_refused_with_both_sides(sent: list[TransactionMark]) -> None:
    """Missing, surplus or another: an operator must decide."""
    with pytest.raises(IdentityError, match=r"the landing has .*server sends .*restored") as caught:
        _compare(list(LANDED), sent)
    assert not caught.value.retryable


def test_surplus_behind_the_last_that_landed() -> None:
    """The log's position had moved on without a transaction; there must be none."""
    with pytest.raises(IdentityError, match="no such transaction"):
        _compare([FIRST], [FIRST, SECOND])


@pytest.mark.parametrize("changes", [{"row_count": 0}, {"has_origin": True}])
def test_what_settings_may_leave_out_may_be_on_one_side_only(changes: dict[str, int]) -> None:
    """A transaction without rows, or of another server."""
    odd = _changed(SECOND, **changes)
    assert _compare([FIRST, odd, LAST], [FIRST, LAST]) == [2]
    assert _compare([FIRST, LAST], [FIRST, odd, LAST]) == [2]
    assert _compare([FIRST, odd], [FIRST]) == [1]


def test_what_was_left_out_while_its_tables_were_not_wanted() -> None:
    """As many as the log says, and of no table that had landed by then."""

    def compare(left_out: int, *sent: TransactionMark) -> None:
        counts = {EMPTY: left_out, USER: 5}
        resent = Resent(iter([FIRST, LAST]), SINCE, UNTIL, lambda _: None, left_out=counts)
        for mark in (FIRST, *sent, LAST):
            resent.take(mark)
        resent.finish()

    new = _changed(SECOND, is_of_new_tables=True)
    newer = _changed(new, end_lsn=160)
    compare(1, new)
    compare(2, new, newer)
    for left_out, sent in ((0, [new]), (1, [new, newer]), (1, [SECOND])):
        with pytest.raises(IdentityError):
            compare(left_out, *sent)


def test_users_who_were_left_out_and_are_not_any_more() -> None:
    """As many transactions as the log says, and of no one without a name."""

    def compare(left_out: int, *sent: TransactionMark) -> None:
        counts = {USER: left_out, EMPTY: 5}
        resent = Resent(iter([FIRST, LAST]), SINCE, UNTIL, lambda _: None, left_out=counts)
        for mark in (FIRST, *sent, LAST):
            resent.take(mark)
        resent.finish()

    named = dataclasses.replace(SECOND, user="mallory")
    later = dataclasses.replace(named, end_lsn=160)
    compare(1, named)
    compare(2, named, later)
    for left_out, sent in ((0, [named]), (1, [named, later]), (1, [SECOND])):
        with pytest.raises(IdentityError):
            compare(left_out, *sent)


def test_users_who_landed_and_are_left_out_now() -> None:
    """What the landing has of them need not be sent; what is sent of them is the same or news."""

    def compare(*sent: TransactionMark, excluded: tuple[str, ...] = ("eve", "mallory")) -> None:
        landed = iter([FIRST, dataclasses.replace(SECOND, user="mallory"), LAST])
        resent = Resent(landed, SINCE, UNTIL, lambda _: None, excluded_users=excluded)
        for mark in (FIRST, *sent, LAST):
            resent.take(mark)
        resent.finish()

    seen = _changed(SECOND, row_count=0)  # as of one whose rows do not land
    compare()
    compare(seen)
    with pytest.raises(IdentityError):
        compare(excluded=("eve",))
    with pytest.raises(IdentityError):
        compare(_changed(seen, xid=99))


@pytest.mark.parametrize("unknown", [{"xid": 0}, {"time_us": 0}, {"xid": 0, "time_us": 0}])
def test_what_one_side_does_not_know_does_not_differ(unknown: dict[str, int]) -> None:
    """Numbers and times may be left out of a landing, or of a stream."""
    vague = _changed(SECOND, **unknown)
    assert _compare([FIRST, vague, LAST], list(LANDED)) == [3]
    assert _compare(list(LANDED), [FIRST, vague, LAST]) == [3]


def test_what_the_log_does_not_hold_is_not_compared() -> None:
    """At or below the position from which on the log is known."""
    assert _compare(list(LANDED), [_changed(FIRST, end_lsn=SINCE), *LANDED]) == [3]


marks = st.lists(
    st.builds(
        TransactionMark,
        st.integers(SINCE + 1, SINCE + 12),
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(0, 1),
        st.booleans(),
    ),
    unique_by=lambda mark: mark.end_lsn,
).map(lambda found: sorted(found, key=lambda mark: mark.end_lsn))


@given(marks, marks)
def test_agrees_with_sets(landed: list[TransactionMark], sent: list[TransactionMark]) -> None:
    """A plain model: by end, equal where both are, dispensable where only one is."""
    left, right = ({mark.end_lsn: mark for mark in side} for side in (landed, sent))
    is_equal = all(
        left[end].is_same(right[end])
        if end in left and end in right
        else (left.get(end) or right[end]).may_be_absent
        for end in left.keys() | right.keys()
    )
    try:
        told = _compare(landed, sent)
    except IdentityError:
        assert not is_equal
    else:
        assert is_equal
        assert told == [len(left.keys() & right.keys())]
