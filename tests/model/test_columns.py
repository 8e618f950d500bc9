"""The rule that gives columns their identity, against a model of the server's catalogue."""

import dataclasses
import itertools
import random

import pytest

from gaussdecode.model.columns import (
    AMBIGUOUS,
    CONTRADICTED,
    Attribute,
    Known,
    Reading,
    WireColumn,
    place,
    unplaced,
)

HISTORIES = 1500


def wire(*names: str) -> list[WireColumn]:
    """Columns of one type."""
    return [WireColumn(name, 23, -1) for name in names]


def attributes(*said: str) -> tuple[Attribute, ...]:
    """``name`` settled, ``name?`` recent, ``-`` dropped, ``-?`` dropped recently, in order."""
    return tuple(
        Attribute(
            number, text.rstrip("?*"), 23, -1, is_dropped=text.startswith("-"),
            is_generated=text.rstrip("?").endswith("*"), is_settled=not text.endswith("?"),
        )
        for number, text in enumerate(said, 1)
    )  # fmt: skip


def known(*numbers: int, dropped: tuple[int, ...] = ()) -> Known:
    """What was proved before."""
    return Known(frozenset(numbers), frozenset(dropped))


@pytest.mark.parametrize(
    ("columns", "catalog", "before", "numbers"),
    [
        pytest.param("id v", "id v", (), (1, 2), id="a quiet table"),
        pytest.param("id v", "id? v?", (), (1, 2), id="a new table"),
        pytest.param("id v", "id - v", (), (1, 3), id="dropped long ago"),
        pytest.param("id v", "id -? v?", (), (1, None), id="dropped and added, first seen"),
        pytest.param("id v", "id -? v?", (1, 2), (1, None), id="dropped and added"),
        pytest.param("id v w", "id v? w?", (1, 2), (1, 2, 3), id="added"),
        pytest.param("id old v", "id old? v?", (1, 2), (1, 2, 3), id="added and swapped, after"),
        pytest.param("id v new", "id old? v?", (1, 2), (1, 2, 3), id="added and swapped, before"),
        pytest.param("id w", "id v?", (1, 2), (1, 2), id="renamed after the row"),
        pytest.param("id w", "id w?", (1, 2), (1, 2), id="renamed before the row"),
        pytest.param("b a", "b? a?", (1, 2), (1, 2), id="names swapped"),
        pytest.param("id b", "id -? b", (1, 2, 3), (1, 3), id="dropped in the middle"),
        pytest.param("id a b", "id -? b", (1, 2, 3), (1, 2, 3), id="dropped after the row"),
        pytest.param("id a", "id a b?", (1, 2), (1, 2), id="added after the row"),
        pytest.param("id x y", "id -? y x?", (1, 2, 3), (1, 2, 3), id="renamed, and dropped later"),
        pytest.param("id y x", "id -? y x?", (1, 2, 3), (1, 3, 4), id="a settled name between"),
        pytest.param("id a", "id g* a", (), (1, 3), id="a generated column is not sent"),
        pytest.param("id a", "id g*? a?", (), (1, 3), id="a new one neither"),
        pytest.param("id a", "id", (1, 2), (None, None), id="it cannot be"),
    ],
)  # fmt: skip
def test_what_is_proved(
    columns: str, catalog: str, before: tuple[int, ...], numbers: tuple[int | None, ...]
) -> None:
    """A column is known where every way to place it gives the same number."""
    reading = Reading(attributes(*catalog.split()))
    assert place(wire(*columns.split()), reading, known(*before)).numbers == numbers


def test_reasons_are_told_apart() -> None:
    """Several ways, and none."""
    several = place(wire("id", "v"), Reading(attributes("id", "-?", "v?")), known(1, 2))
    none = place(wire("id", "v"), Reading(attributes("id")), known(1, 2))
    assert (several.reason, none.reason) == (AMBIGUOUS, CONTRADICTED)
    assert several.known == none.known == known(1, 2)


def test_what_was_dropped_is_remembered() -> None:
    """A number that is not sent any more never comes back, so the next step is certain."""
    first = place(wire("id", "b"), Reading(attributes("id", "-?", "b")), known(1, 2, 3))
    assert first.known == known(1, 3, dropped=(2,))
    after = Reading(attributes("id", "-?", "b?", "c?"))
    assert place(wire("id", "b", "c"), after, first.known).numbers == (1, 3, 4)


def test_a_list_of_columns_hides() -> None:
    """Where a publication may leave columns out, their number proves nothing."""
    seen = attributes("id", "a?", "b?")
    assert place(wire("id", "b"), Reading(seen, may_hide=True), known(1, 2)).numbers == (1, None)
    settled = Reading(attributes("id", "a", "b"), may_hide=True)
    assert place(wire("id", "b"), settled, known()).numbers == (1, 3)


def test_generated_columns_from_18_on() -> None:
    """They may be sent or not; a settled one is found by its name."""
    reading = Reading(attributes("id", "g*", "b"), sends_generated=True)
    assert place(wire("id", "g", "b"), reading, known()).numbers == (1, 2, 3)
    assert place(wire("id", "b"), reading, known()).numbers == (1, 3)


def test_without_a_catalogue_nothing_is_proved() -> None:
    """The names alone say nothing."""
    assert unplaced(2, "why", known(1)).numbers == (None, None)


# ---- random histories ------------------------------------------------------------------------


@dataclasses.dataclass
class Live:
    """One attribute in the model."""

    number: int
    name: str
    written: int
    type_oid: int = 23
    is_dropped: bool = False
    is_generated: bool = False


class Server:
    """pg_attribute of one table; time is the number of DDL commands so far."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.time = 0
        self.all: list[Live] = []
        self.hidden: frozenset[int] = frozenset()
        self.sends_generated = False
        for _ in range(chance.randint(1, 3)):
            self.add()

    def live(self) -> list[Live]:
        return [each for each in self.all if not each.is_dropped]

    def free_name(self) -> str:
        taken = {each.name for each in self.live()}
        return self.chance.choice([name for name in "abcdefgh" if name not in taken])

    def add(self) -> None:
        is_generated = bool(self.all) and self.chance.random() < 0.15
        self.all.append(
            Live(
                len(self.all) + 1, self.free_name(), self.time,
                self.chance.choice((23, 25)), is_generated=is_generated,
            )
        )  # fmt: skip

    def step(self) -> None:
        """One DDL command, or one that the stream shows in the same way."""
        self.time += 1
        live = self.live()
        of = self.chance.choice(live)
        kind = self.chance.choice(("add", "drop", "rename", "again", "swap", "type", "plain"))
        if kind in {"add", "again"} and len(live) < 7:
            if kind == "again" and len(live) > 1:
                of.is_dropped, of.written = True, self.time
                self.all.append(Live(len(self.all) + 1, of.name, self.time, of.type_oid))
            else:
                self.add()
        elif kind == "drop" and len(live) > 1:
            of.is_dropped, of.written = True, self.time
        elif kind == "swap" and len(live) > 1:
            other = self.chance.choice([each for each in live if each is not of])
            of.name, other.name = other.name, of.name
            of.written = other.written = self.time
        elif kind == "type":
            of.type_oid, of.written = 48 - of.type_oid, self.time
        elif kind == "plain" and of.is_generated:
            of.is_generated, of.written = False, self.time
        else:
            of.name, of.written = self.free_name(), self.time

    def commit(self) -> None:
        """Another list of columns, and whether generated ones are sent."""
        self.hidden = frozenset(each.number for each in self.all if self.chance.random() < 0.3)

    def sent(self) -> list[Live]:
        return [
            each
            for each in self.live()
            if each.number not in self.hidden and (self.sends_generated or not each.is_generated)
        ]


def read(there: list[Live], horizon: int, *, is_listed: bool, is_new: bool) -> Reading:
    """What the catalogue says; rows written up to `horizon` are settled."""
    return Reading(
        tuple(
            Attribute(
                each.number, "........" if each.is_dropped else each.name,
                0 if each.is_dropped else each.type_oid, -1, each.is_dropped,
                each.is_generated and not each.is_dropped, each.written <= horizon,
            )
            for each in there
        ),
        may_hide=is_listed,
        sends_generated=is_new,
    )  # fmt: skip


def describe(sent: list[Live]) -> list[WireColumn]:
    return [WireColumn(each.name, each.type_oid, -1) for each in sent]


def is_taken_for_granted(then: list[Live], now: list[Live], shown: list[WireColumn]) -> bool:
    """The one thing that the rule does not consider; see the module."""
    names = {column.name for column in shown}
    return any(
        before.is_generated and not after.is_generated and after.name in names
        for before, after in zip(then, now, strict=False)
        if not after.is_dropped
    )


def run_history(seed: int, *, is_listed: bool, is_new: bool) -> tuple[int, int]:
    """Play one history; how many columns were placed, and how many of them were known."""
    chance = random.Random(seed)
    server = Server(chance)
    server.sends_generated = is_new and chance.random() < 0.5
    # What is sent, what there is, and when; the catalogue is read at a later moment.
    moments: list[tuple[list[Live], list[Live], int]] = []
    for _ in range(chance.randint(2, 8)):
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            server.step()
            if is_listed and chance.random() < 0.3:
                server.commit()
            if is_new and chance.random() < 0.1:
                server.sends_generated = not server.sends_generated
        everything = [dataclasses.replace(each) for each in server.all]
        sent = [dataclasses.replace(each) for each in server.sent()]
        moments.append((sent, everything, server.time))
    found = proved = 0
    before = Known()
    at = 0
    for index, (sent, then, time) in enumerate(moments):
        at = max(at, chance.randint(index, len(moments) - 1) if chance.random() < 0.5 else index)
        late = moments[at][1]
        reading = read(late, chance.randint(-1, time), is_listed=is_listed, is_new=is_new)
        if is_taken_for_granted(then, late, describe(sent)):
            return found, proved
        answer = place(describe(sent), reading, before)
        for number, each in zip(answer.numbers, sent, strict=True):
            assert number in (None, each.number), f"seed {seed}: {number} is not {each}"
        assert (answer.reason is None) == (None not in answer.numbers)
        gone = {each.number for each in then if each.is_dropped}
        assert answer.known.dropped <= gone, f"seed {seed}"
        before = answer.known
        found += len(sent)
        proved += sum(number is not None for number in answer.numbers)
    return found, proved


@pytest.mark.parametrize(("is_listed", "is_new"), list(itertools.product((False, True), repeat=2)))
def test_never_wrong(*, is_listed: bool, is_new: bool) -> None:
    """Over random histories, read late and settled late, no column gets another's number."""
    found = proved = 0
    for seed in range(HISTORIES):
        more = run_history(seed, is_listed=is_listed, is_new=is_new)
        found, proved = found + more[0], proved + more[1]
    assert proved > found * (0.25 if is_listed else 0.5), f"{proved} of {found}"


def test_every_history_that_is_read_at_once_is_known() -> None:
    """A daemon that keeps up, on a server whose settled rows follow, knows all columns."""
    for seed in range(500):
        chance = random.Random(seed)
        server, before = Server(chance), Known()
        for _ in range(6):
            server.step()
            sent = server.sent()
            reading = read(server.all, server.time, is_listed=False, is_new=False)
            answer = place(describe(sent), reading, before)
            assert answer.numbers == tuple(each.number for each in sent), f"seed {seed}"
            before = answer.known
