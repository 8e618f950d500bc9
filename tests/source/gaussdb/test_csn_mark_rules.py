"""Marks against every interleaving of small histories; the model asks the production's own `Round`.

A server is: a counter of CSNs, a log of commit records per node, running transactions with their
sessions. A daemon is: what was received, passed, made durable and confirmed. Every order of their
steps is tried, states seen before are left out, and each single step of the rule is taken away once
to see that the model notices.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import pytest

from gaussdecode.errors import SequenceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.gaussdb.csn_mark_rules import (
    Answer,
    Ask,
    Mark,
    Round,
    Running,
    Session,
    What,
)

# Kinds of transactions, by the states they go through. A dot is idle, digits are statements.
KINDS = {
    "autocommit": ("1", "drawn", "written", "left"),
    "block": ("1", ".", "2", "drawn", "written", "left"),
    "prepared": ("1", "prepared", "drawn", "written", "left"),
    "remote": (".", "drawn", "written", "left"),  # the coordinator draws; the session shows idle
    "both": (".", "drawn", "written", "left"),  # on both nodes, which write and leave on their own
}
NEW = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Txn:
    """A transaction: how far it is on each of its nodes, and its CSN."""

    kind: str
    nodes: tuple[str, ...]
    at: tuple[int, ...]
    csn: int = 0

    def state(self, node: str) -> str:
        """On a node; empty before it has begun or where it is not."""
        at = self.at[self.nodes.index(node)] if node in self.nodes else NEW
        return "" if at == NEW else KINDS[self.kind][at]


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """Server and daemon at one moment."""

    nodes: tuple[str, ...]
    txns: tuple[Txn, ...]
    logs: tuple[tuple[int, ...], ...]  # by node, transactions in the order of their records
    known: tuple[int, ...]  # by node, its next CSN
    received: tuple[int, ...]
    confirmed: tuple[int, ...]
    clock: int = 5
    round: Round | None = None
    mark: tuple[int, tuple[int, ...], tuple[int, ...]] | None = None
    passed: int = 0
    durable: int = 0
    landed: frozenset[tuple[int, str]] = frozenset()
    waiting: frozenset[tuple[int, str]] = frozenset()
    rounds: int = 0
    crashes: int = 0


class Broken(Exception):  # noqa: N818 - what is looked for, no error of anybody
    """A property does not hold."""


class Rule:
    """How the daemon goes about it; the mutations are subclasses."""

    ROUND: ClassVar[type[Round]] = Round
    is_clock_local: ClassVar[bool | None] = None  # as the history has it

    def confirm(self, mark: Mark, world: World) -> dict[str, Lsn] | None:
        """What is confirmed now."""
        return dict(mark.confirmable_lsns) if mark.csn <= world.durable else None

    def answered(self, ask: Ask, answer: Answer) -> Answer:
        """What the round is told."""
        del ask
        return answer


def replaced(
    values: tuple[Any, ...], index: int, value: Any
) -> tuple[Any, ...]:  # Any: of one kind
    """A tuple with another member."""
    return (*values[:index], value, *values[index + 1 :])


def start(history: tuple[tuple[str, str], ...], nodes: tuple[str, ...]) -> World:
    """The world before anything has happened."""
    txns = tuple(Txn(kind, tuple(on), (NEW,) * len(on)) for kind, on in history)
    zeros = tuple(0 for _ in nodes)
    return World(nodes, txns, tuple(() for _ in nodes), tuple(5 for _ in nodes), zeros, zeros)


def server_steps(world: World) -> Iterator[World]:
    """A transaction goes one step on, on one of its nodes."""
    for number, txn in enumerate(world.txns):
        for place, node in enumerate(txn.nodes):
            steps = KINDS[txn.kind]
            if txn.at[place] + 1 == len(steps):
                continue
            step, where = steps[txn.at[place] + 1], world.nodes.index(node)
            moved = dataclasses.replace(txn, at=replaced(txn.at, place, txn.at[place] + 1))
            then = world
            if step == "drawn":
                if NEW in txn.at:
                    continue  # all nodes have a part of it before it commits
                at = tuple(steps.index("drawn") for _ in txn.nodes)
                moved = dataclasses.replace(txn, at=at, csn=world.clock)
                then = dataclasses.replace(world, clock=world.clock + 1)
                if txn.kind in {"autocommit", "block", "prepared"}:
                    then = dataclasses.replace(then, known=tuple(then.clock for _ in world.nodes))
            elif step == "written":
                known = max(world.known[where], txn.csn + 1)
                log = (*world.logs[where], number)
                then = dataclasses.replace(
                    world,
                    known=replaced(world.known, where, known),
                    logs=replaced(world.logs, where, log),
                )
            yield dataclasses.replace(then, txns=replaced(then.txns, number, moved))


def answer_of(world: World, ask: Ask) -> Answer:
    """What a node answers at this moment."""
    where = world.nodes.index(ask.node)
    shown = [(n, txn.state(ask.node), txn) for n, txn in enumerate(world.txns)]
    here = [(n, state, txn) for n, state, txn in shown if state]
    if ask.what in {What.LOW, What.HIGH}:
        return Lsn(len(world.logs[where]))
    if ask.what is What.NEXT_CSN:
        return world.known[where]
    if ask.what is What.RUNNING:
        return frozenset(
            Running(n, None if "prepared" in KINDS[txn.kind] and state != "1" else n)
            for n, state, txn in here
            if state != "left"
        )
    return frozenset(session(n, state, txn) for n, state, txn in here if txn.kind != "prepared")


def session(number: int, state: str, txn: Txn) -> Session:
    """The row of the activity of a transaction's session."""
    if state == "." or (txn.kind in {"remote", "both"} and state == "drawn"):
        return Session(number, "idle in transaction", "q1")
    statement = "q2" if txn.kind == "block" and state != "1" else "q1"
    return Session(number, "active", statement)


def daemon_steps(world: World, rule: Rule) -> Iterator[World]:
    """The daemon does one thing."""
    for where in range(len(world.nodes)):
        if world.received[where] < len(world.logs[where]):
            yield received(world, where)
    if world.round is None and world.mark is None and world.rounds < 2:
        is_local = len(world.nodes) == 1 and world.txns[0].kind not in {"remote", "both"}
        local = is_local if rule.is_clock_local is None else rule.is_clock_local
        begun = (
            rule.ROUND.begun(world.nodes, is_clock_local=local)
            if len(world.nodes) == 1 or not local
            else rule.ROUND(world.nodes, local, rule.ROUND.ORDER[0], world.nodes)
        )
        yield dataclasses.replace(world, round=begun, rounds=world.rounds + 1)
    if world.round is not None:
        ask = world.round.asks[0]
        told = world.round.answered(ask, rule.answered(ask, answer_of(world, ask)))
        if (mark := told.mark) is None:
            yield dataclasses.replace(world, round=told)
        else:
            plain = (
                mark.csn,
                tuple(mark.confirmable_lsns.values()),
                tuple(mark.required_lsns.values()),
            )
            yield dataclasses.replace(world, round=None, mark=plain)
    if world.mark is not None:
        yield from marked(world, rule)
    if world.durable < world.passed:
        yield made_durable(world)
    if world.crashes < 1 and world.rounds:
        yield dataclasses.replace(
            world,
            received=world.confirmed,
            waiting=frozenset(),
            round=None,
            mark=None,
            passed=world.durable,
            crashes=1,
        )


def received(world: World, where: int) -> World:
    """The next record of a node comes."""
    node, number = world.nodes[where], world.logs[where][world.received[where]]
    then = dataclasses.replace(
        world, received=replaced(world.received, where, world.received[where] + 1)
    )
    part = (number, node)
    if world.txns[number].csn > world.passed:
        return dataclasses.replace(then, waiting=then.waiting | {part})
    if part not in world.landed | world.waiting:
        raise Broken("late")
    return then


def marked(world: World, rule: Rule) -> Iterator[World]:
    """What a mark allows: to pass it when it holds, then to confirm."""
    assert world.mark is not None
    csn, confirmable_lsns, required_lsns = world.mark
    mark = Mark(
        csn,
        {node: Lsn(low) for node, low in zip(world.nodes, confirmable_lsns, strict=True)},
        {node: Lsn(high) for node, high in zip(world.nodes, required_lsns, strict=True)},
    )
    if world.passed < csn and mark.holds(dict(zip(world.nodes, world.received, strict=True))):
        yield dataclasses.replace(world, passed=csn)
    if world.passed >= csn and (lsns := rule.confirm(mark, world)) is not None:
        yield confirmed(world, tuple(lsns[node] for node in world.nodes))


def made_durable(world: World) -> World:
    """What was passed lands as one entry."""
    parts = {part for part in world.waiting if world.txns[part[0]].csn <= world.passed}
    if parts & world.landed:
        raise Broken("doubled")
    landed = world.landed | parts
    for number, txn in enumerate(world.txns):
        there = [(number, node) in landed for node in txn.nodes]
        if any(there) and not all(there):
            raise Broken("half")
    return dataclasses.replace(
        world, landed=landed, waiting=world.waiting - parts, durable=world.passed
    )


def confirmed(world: World, lsns: tuple[int, ...]) -> World:
    """The server is told, and keeps nothing of what is before."""
    for where, lsn in enumerate(lsns):
        for number in world.logs[where][:lsn]:
            if (number, world.nodes[where]) not in world.landed:
                raise Broken("lost")
    most = tuple(max(pair) for pair in zip(lsns, world.confirmed, strict=True))
    return dataclasses.replace(world, confirmed=most, mark=None)


def explore(world: World, rule: Rule) -> tuple[int, int]:
    """Go through all that can happen.

    Returns:
        How many states there are, and most transactions that have landed in one.

    Raises:
        Broken: a property does not hold somewhere.
    """
    seen, todo, most = {world}, [world], 0
    while todo:
        now = todo.pop()
        most = max(most, len({number for number, _ in now.landed}))
        for then in (*server_steps(now), *daemon_steps(now, rule)):
            if then not in seen:
                seen.add(then)
                todo.append(then)
    return len(seen), most


HISTORIES: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]] = {
    "autocommit": ((("autocommit", "a"), ("autocommit", "a")), ("a",)),
    "blocks": ((("block", "a"), ("autocommit", "a")), ("a",)),
    "prepared": ((("prepared", "a"), ("autocommit", "a")), ("a",)),
    "remote": ((("remote", "a"), ("remote", "a")), ("a",)),
    "apart": ((("remote", "a"), ("remote", "b")), ("a", "b")),
    "both": ((("both", "ab"), ("remote", "b")), ("a", "b")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HISTORIES)
def test_nothing_is_late_lost_doubled_or_halved(name: str) -> None:
    """In every interleaving of a history, with a crash anywhere."""
    history, nodes = HISTORIES[name]
    states, most = explore(start(history, nodes), Rule())
    assert states > 1000
    assert most == len(history), "marks that nothing ever waits for prove nothing"


class LowAfterNext(Round):
    """C before LOW."""

    __slots__ = ()
    ORDER = (What.NEXT_CSN, What.LOW, What.RUNNING)


class RunningBeforeNext(Round):
    """The running transactions before C."""

    __slots__ = ()
    ORDER = (What.LOW, What.RUNNING, What.NEXT_CSN)


class Impatient(Rule):
    """Nobody is waited for."""

    def answered(self, ask: Ask, answer: Answer) -> Answer:
        return frozenset() if ask.what is What.RUNNING else answer


class PreparedHaveEnded(Rule):
    """Prepared ones are taken for ended."""

    def answered(self, ask: Ask, answer: Answer) -> Answer:
        if ask.what is not What.RUNNING:
            return answer
        assert isinstance(answer, frozenset)
        return frozenset(row for row in answer if isinstance(row, Running) and row.pid is not None)


class ActiveIsProof(Rule):
    """What is in its first statement still is taken for between two."""

    def answered(self, ask: Ask, answer: Answer) -> Answer:
        if ask.what is not What.ACTIVITY:
            return answer
        assert isinstance(answer, frozenset)
        rows = [row for row in answer if isinstance(row, Session)]
        return frozenset(row._replace(state="idle in transaction") for row in rows)


class HighIsLow(Rule):
    """What has to be received is where the log ended before C."""

    def __init__(self) -> None:
        class Early(Round):
            __slots__ = ()

            def answered(self, ask: Ask, answer: Answer) -> Self:
                if ask.what is What.HIGH:
                    return super(Early, self).answered(ask, dict(self.confirmable_lsns)[ask.node])
                return super(Early, self).answered(ask, answer)

        self.ROUND = Early  # type: ignore[misc]  # of this rule


class HighIsConfirmed(Rule):
    """HIGH is confirmed in place of LOW."""

    def confirm(self, mark: Mark, world: World) -> dict[str, Lsn] | None:
        return dict(mark.required_lsns) if mark.csn <= world.durable else None


class NotDurable(Rule):
    """Confirmed when it was passed."""

    def confirm(self, mark: Mark, world: World) -> dict[str, Lsn] | None:
        del world
        return dict(mark.confirmable_lsns)


class OneNodesNext(Rule):
    """C is that of the first node alone."""

    def answered(self, ask: Ask, answer: Answer) -> Answer:
        return 0 if ask == Ask("b", What.NEXT_CSN) else answer


class Proofs(Rule):
    """A session's idleness is a proof where the coordinator draws."""

    is_clock_local = True


class OneTooMany(Rule):
    """The mark is C itself."""

    def answered(self, ask: Ask, answer: Answer) -> Answer:
        assert ask.what is not What.NEXT_CSN or isinstance(answer, int)
        return answer + 1 if ask.what is What.NEXT_CSN and isinstance(answer, int) else answer


class OneNodesHigh(Rule):
    """Only the first node's stream is waited for."""

    def answered(self, ask: Ask, answer: Answer) -> Answer:
        return Lsn(0) if ask == Ask("b", What.HIGH) else answer


def with_round(kind: type[Round]) -> Rule:
    """The rule with another round."""
    rule = Rule()
    rule.ROUND = kind  # type: ignore[misc]  # of this rule
    return rule


MUTATIONS: dict[str, tuple[Callable[[], Rule], str, str]] = {
    "C before LOW": (lambda: with_round(LowAfterNext), "autocommit", "lost"),
    "R before C": (lambda: with_round(RunningBeforeNext), "autocommit", "late"),
    "nobody waited for": (Impatient, "autocommit", "late"),
    "prepared have ended": (PreparedHaveEnded, "prepared", "late"),
    "active is a proof": (ActiveIsProof, "blocks", "late"),
    "LOW as HIGH": (HighIsLow, "autocommit", "late"),
    "HIGH confirmed": (HighIsConfirmed, "autocommit", "lost"),
    "confirmed before durable": (NotDurable, "autocommit", "lost"),
    "C of one node": (OneNodesNext, "apart", "lost"),
    "proofs on a distributed server": (Proofs, "remote", "late"),
    "C itself": (OneTooMany, "autocommit", "late"),
    "HIGH of one node": (OneNodesHigh, "both", "half|late"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_no_step_of_the_rule_can_be_left_out(name: str) -> None:
    """The model finds what becomes of it."""
    rule, history, what = MUTATIONS[name]
    with pytest.raises(Broken, match=what):
        explore(start(*HISTORIES[history]), rule())


def test_a_question_that_was_not_asked_is_refused() -> None:
    """So is an answer of another kind; neither changes the round."""
    begun = Round.begun(["a"], is_clock_local=True)
    with pytest.raises(SequenceError, match="high was not asked of a"):
        begun.answered(Ask("a", What.HIGH), Lsn(1))
    with pytest.raises(SequenceError, match="a answers frozenset to low"):
        begun.answered(Ask("a", What.LOW), frozenset())


@pytest.mark.parametrize(("nodes", "is_local"), [((), False), (("a", "b"), True)])
def test_numbers_of_several_clocks_are_no_order(nodes: tuple[str, ...], is_local: bool) -> None:
    """A round of nodes that draw for themselves is refused."""
    with pytest.raises(ValueError, match="local clock is that of one node"):
        Round.begun(nodes, is_clock_local=is_local)


def test_a_session_with_another_statement_is_not_waited_for() -> None:
    """One that is in the same statement, vanished, or shares its thread, is."""
    told = Round.begun(["a"], is_clock_local=True)
    rows = frozenset(Running(xid, xid) for xid in (1, 2, 3, 4)) | {Running(5, None)}
    first = frozenset(Session(pid, "active", "q1") for pid in (1, 2, 3, 4))
    changed = frozenset({Session(1, "active", "q2"), Session(2, "active", "q1")})
    shared = frozenset({Session(4, "active", "q2"), Session(4, "idle in transaction", "q3")})
    for what, answer in (
        (What.LOW, Lsn(7)),
        (What.NEXT_CSN, 9),
        (What.RUNNING, rows),
        (What.ACTIVITY, first),
        (What.RUNNING, rows),
        (What.ACTIVITY, changed | shared),
    ):
        told = told.answered(Ask("a", what), answer)
    assert {row.xid for _, row in told.waiting} == {2, 3, 4, 5}
