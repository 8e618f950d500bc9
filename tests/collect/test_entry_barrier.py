"""One entry of several collectors: cut where all of them are, and by nobody once one has ended."""

import threading
from random import Random

import pytest

from gaussdecode.collect.entry_barrier import Cut, EntryBarrier, Seen, joined
from gaussdecode.model.account import Account
from gaussdecode.model.entry import CSNS
from gaussdecode.model.landing import (
    EntryKind,
    Position,
    SchemaChange,
    SourcePosition,
    Truncate,
)
from gaussdecode.model.request import EntryRequest

NAMES = ("a", "b", "c")


def part(lsn: int, csn: int | None = None, **more: object) -> EntryRequest:
    """What a collector gives."""
    position = SourcePosition(1, 1, lsn, csn)
    account = Account((1, 0), (1, lsn), {}, {})
    return EntryRequest(kind=EntryKind.IDLE, position=position, account=account, **more)  # type: ignore[arg-type]  # as given


def test_nobody_passes_a_mark_before_all_are_there() -> None:
    """However often the others ask; the last one asks for the entry, once."""
    asked: list[EntryRequest] = []
    barrier = EntryBarrier(NAMES, asked.append, 1000)
    barrier.offer(Cut(dict.fromkeys(NAMES, 5), 7, {"a": 10, "b": 20, "c": 30}))

    def look(name: str, lsn: int) -> Cut | None:
        return barrier.look(name, Seen(lsn, 1, 1))[1]

    assert look("a", 10) is None
    assert look("b", 19) is None
    assert look("c", 30) is None
    assert look("a", 11) is None
    assert look("b", 20) is not None
    assert not barrier.wait_done(0)
    for name in ("b", "a"):
        assert look(name, 99) is not None
        barrier.give(name, part(5, 7))
        assert look(name, 99) is None, "it gave its part"
    assert asked == []
    barrier.give("c", part(5, 7))
    (request,) = asked
    assert barrier.wait_done(0)
    assert request.others.keys() == {"b", "c"}


def test_an_entry_ends_before_what_was_given_up() -> None:
    """By any of them; and who is there may give up no more of it while the others come."""
    barrier = EntryBarrier(NAMES, lambda _: None, 1000)
    assert barrier.look("a", Seen(50, given_up_csn=6)) == (0, None)
    barrier.offer(Cut(dict.fromkeys(NAMES, 5), 7, dict.fromkeys(NAMES, 10)))
    assert barrier.look("b", Seen(9)) == (0, None)
    assert barrier.look("a", Seen(50, given_up_csn=6)) == (5, None)
    assert barrier.look("c", Seen(10)) == (7, None)
    kept, cut = barrier.look("b", Seen(10))
    assert (kept, cut and cut.csn) == (7, 5)
    for name in NAMES:
        _, cut = barrier.look(name, Seen(99, given_up_csn=6 if name == "a" else 8))
        assert cut is not None
        assert cut.csn == 5


def test_entries_go_to_where_a_view_stands() -> None:
    """Not beyond it while a source is held, whatever the mark; with two of them to the lower one first."""
    asked: list[EntryRequest] = []
    barrier = EntryBarrier(NAMES, asked.append, 1000)

    def offer(csn: int) -> None:
        barrier.offer(Cut(dict.fromkeys(NAMES, 5), csn, dict.fromkeys(NAMES, 10)))

    def cut_of(name: str) -> int | None:
        cut = barrier.look(name, Seen(10))[1]
        return None if cut is None else cut.csn

    def cuts() -> list[int | None]:
        for name in NAMES:
            barrier.look(name, Seen(10))
        found = [cut_of(name) for name in NAMES]
        for name, csn in zip(NAMES, found, strict=True):
            if csn is not None:
                barrier.give(name, part(5, csn))
        return found

    offer(7)
    assert cuts() == [7, 7, 7]
    barrier.freeze("a")
    offer(9)
    assert cuts() == [None] * 3
    assert barrier.reach("a", 11) is None
    assert barrier.wait_due(0, 1000), "a mark that goes as far is due at once"
    assert cuts() == [9, 9, 9]
    assert barrier.reach("a", 11) is None
    barrier.freeze("b")
    offer(20)
    assert cuts() == [None] * 3, "another one is about to take a view"
    assert barrier.reach("b", 15) is None
    assert cuts() == [11, 11, 11]
    assert barrier.reach("a", 11) == 11
    assert barrier.reach("b", 15) is None
    assert not barrier.wait_done(0) or barrier.wait_due(0, 1000)
    offer(21)
    assert cuts() == [None] * 3
    barrier.hold("a", is_held=False)
    assert cuts() == [15, 15, 15]
    assert barrier.reach("b", 15) == 15
    barrier.freeze("b")
    assert barrier.reach("b", 18) is None, "another view, at another CSN"
    barrier.freeze("b")
    assert barrier.reach("b", 12) == 15, "a view of a node whose clock is behind"
    barrier.hold("b", is_held=False)
    assert not barrier.wait_due(0, 1000)
    offer(22)
    assert cuts() == [22, 22, 22]


def test_what_is_decided_on_is_an_entry_though_a_hold_comes() -> None:
    """Who looks after it must not cut it elsewhere; the view that is taken then stands behind it."""
    asked: list[EntryRequest] = []
    barrier = EntryBarrier(NAMES, asked.append, 1000)

    def cut(csn: int) -> None:
        for name in NAMES:
            found = barrier.look(name, Seen(10))[1]
            assert found is not None
            assert found.csn == csn
            barrier.give(name, part(5, csn))

    for csn in (6, 7):
        barrier.offer(Cut(dict.fromkeys(NAMES, 5), csn, dict.fromkeys(NAMES, 10)))
        for name in NAMES:
            barrier.look(name, Seen(10))
        if csn == 6:
            cut(6)
    barrier.freeze("b")
    assert barrier.reach("b", 6) is None
    cut(7)
    assert barrier.reach("b", 6) == 7


def test_who_is_late_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment after the mark was offered, and not before."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    barrier = EntryBarrier(NAMES, lambda _: None, 1000)
    barrier.offer(Cut({}, 7, dict.fromkeys(NAMES, 10)))
    barrier.look("b", Seen(10))
    assert barrier.late() == []
    now[0] += 1
    assert barrier.late() == ["a", "c"]
    assert barrier.held_seconds == 1.0


def test_a_mark_is_due_when_somebody_waits_or_memory_is_half_full() -> None:
    """And not while nobody does."""
    barrier = EntryBarrier(NAMES, lambda _: None, 1000)
    assert not barrier.wait_due(0, 0)
    barrier.look("a", Seen(1))
    assert not barrier.wait_due(0, 0)
    barrier.look("a", Seen(1, 1, 10))
    assert barrier.wait_due(0, 0)
    assert not barrier.wait_due(0, 3600)
    barrier.look("b", Seen(1, 0, 600))
    assert barrier.wait_due(0, 3600)


@pytest.mark.parametrize("seed", range(8))
def test_threads_make_whole_entries(seed: int) -> None:
    """Without marks: whoever finds one due, each entry has one part of each, in the order given."""
    asked: list[EntryRequest] = []
    barrier = EntryBarrier(NAMES, asked.append, 1000)
    entries = 40

    def collect(name: str) -> None:
        rng = Random(f"{seed} {name}")
        lsn = 0
        while lsn < entries:
            if not barrier.ask(name, is_due=rng.random() < 0.3):
                continue
            lsn += 1
            barrier.give(name, part(lsn))
            while not barrier.wait_asked(name, 0.01):
                pass

    threads = [threading.Thread(target=collect, args=(name,), daemon=True) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [request.position.lsn for request in asked] == list(range(1, entries + 1))
    for request in asked:
        assert {of.position.lsn for of in request.others.values()} == {request.position.lsn}


def test_after_the_end_nothing_is_an_entry() -> None:
    """Who waits for the others is let go, and a part that comes late asks for nothing."""
    asked: list[EntryRequest] = []
    barrier = EntryBarrier(NAMES, asked.append, 1000)
    barrier.ask("a", is_due=True)
    barrier.give("a", part(1))
    assert not barrier.wait_asked("a", 0)
    barrier.end()
    assert barrier.wait_asked("a", 0)
    assert not barrier.ask("b", is_due=True)
    for name in ("b", "c"):
        barrier.give(name, part(1))
    assert asked == []


def test_parts_are_joined() -> None:
    """Truncates and changes of schemas of all, and the CSNs from the least to the greatest."""
    truncates = [Truncate("t", Position(1, 0), False, False, name) for name in NAMES]
    changes = [SchemaChange("t", Position(1, 0), "x", None, name) for name in NAMES]
    csns = [(5, 9), (2, 3), None]
    parts = [
        (
            name,
            part(
                number,
                9,
                truncates=(truncate,),
                schema_changes=(changes[number],),
                extra={} if of is None else {CSNS: {"least": of[0], "greatest": of[1]}},
            ),
        )
        for number, (name, truncate, of) in enumerate(zip(NAMES, truncates, csns, strict=True))
    ]
    request = joined(parts)
    assert request.truncates == tuple(truncates)
    assert request.schema_changes == tuple(changes)
    assert request.extra == {CSNS: {"least": 2, "greatest": 9}}
    assert {name: of.position.lsn for name, of in request.others.items()} == {"b": 1, "c": 2}
