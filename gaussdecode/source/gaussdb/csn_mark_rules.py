"""Find the CSN up to which all changes of a slot have arrived, while transactions run.

Pure: gives the questions for each node, and takes the answers. A server draws a CSN, then writes the commit
record, then removes the transaction from the running ones; the stream follows the records. So a round asks all
nodes each question before the next one:

1. LOW, where the log ends. Every commit record before it has drawn already.
2. NEXT_CSN. The greatest of the answers is C: each node knows of what it has written, none of what is to come.
3. RUNNING. What has drawn below C has left, with its record in the log, or is one of these.
4. RUNNING again (and ACTIVITY, where it can prove something) until each has ended or is proven to draw at C or above.
5. HIGH, where the log ends. Every record with a CSN below C is before it.

The mark is C - 1, and holds when each node's stream has been received up to its HIGH. A node's LOW
may be confirmed when everything up to the mark is durable, and neither before nor further.

Proofs count only where the server draws at the COMMIT itself: on a distributed one the
coordinator may have drawn for a session that a data node shows as idle.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple, Self

from gaussdecode.errors import SequenceError
from gaussdecode.model.lsn import Lsn


class What(enum.Enum):
    """Is asked of a node."""

    LOW = "low"
    NEXT_CSN = "next csn"
    RUNNING = "running"
    ACTIVITY = "activity"
    HIGH = "high"


class Ask(NamedTuple):
    """A question."""

    node: str
    what: What


class Running(NamedTuple):
    """A row of the running transactions that has a transaction number.

    Attributes:
        xid: XID of the top transaction; its subtransactions commit with it.
        pid: process id whose it is; None where nobody's, as of a prepared one.
    """

    xid: int
    pid: int | None


class Session(NamedTuple):
    """A row of the activity.

    Attributes:
        pid: process id of the thread.
        state: state as the server reports it; None or unknown proves nothing.
        query_start: query start of its statement, as text that is compared for sameness and never to a clock.
    """

    pid: int
    state: str | None
    query_start: str | None


Answer = Lsn | int | frozenset[Running] | frozenset[Session]

_BETWEEN_STATEMENTS = frozenset({"idle in transaction", "idle in transaction (aborted)"})


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Everything up to a CSN has come, once each node was received up to its high LSN.

    Attributes:
        csn: the last one of what has come.
        confirmable_lsns: confirmable LSNs by node, what may be confirmed when everything up to `csn` is durable.
        required_lsns: required LSNs by node, what has to be received.
    """

    csn: int
    confirmable_lsns: Mapping[str, Lsn]
    required_lsns: Mapping[str, Lsn]

    def holds(self, received: Mapping[str, int]) -> bool:
        """Whether that much was received of every node."""
        return all(received[node] >= high for node, high in self.required_lsns.items())


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """One round of questions; a value, of which `answered` makes the next.

    Attributes:
        nodes: all of them.
        is_clock_local: a session draws its CSN in its own COMMIT; never so on a distributed server.
        stage: present question; None at the end.
        left: nodes that have not answered it.
        is_first: the running transactions are asked for the first time.
        lows, highs: by node.
        csn: C.
        waiting: transactions that may have drawn below C, by node.
        seen: state of each session when first read after C, by node.
        before: ends of the WAL at the end of the round before, by node.
    """

    nodes: tuple[str, ...]
    is_clock_local: bool
    stage: What | None = None
    left: tuple[str, ...] = ()
    is_first: bool = True
    confirmable_lsns: tuple[tuple[str, Lsn], ...] = ()
    required_lsns: tuple[tuple[str, Lsn], ...] = ()
    csn: int = 0
    waiting: frozenset[tuple[str, Running]] = frozenset()
    seen: frozenset[tuple[str, Session]] = frozenset()
    before: tuple[tuple[str, Lsn], ...] = ()

    ORDER: ClassVar[tuple[What, ...]] = (What.LOW, What.NEXT_CSN, What.RUNNING)

    @classmethod
    def begun(
        cls, nodes: Iterable[str], *, is_clock_local: bool, before: Mark | None = None
    ) -> Self:
        """A round of which nothing was asked.

        Args:
            nodes: names; of several, all have one clock.
            is_clock_local: see the class.
            before: result of the round before; None for the first one.

        Returns:
            The round.

        Raises:
            ValueError: no node, or several that draw for themselves: their numbers are no order.
        """
        names = tuple(nodes)
        if not names or (is_clock_local and len(names) > 1):
            raise ValueError("a local clock is that of one node")
        ends = () if before is None else tuple(before.required_lsns.items())
        return cls(names, is_clock_local, cls.ORDER[0], names, before=ends)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The present questions, in any order; repeated after a wait while `waiting` is not empty."""
        return () if self.stage is None else tuple(Ask(node, self.stage) for node in self.left)

    @property
    def mark(self) -> Mark | None:
        """The mark; None before the end."""
        if self.stage is not None:
            return None
        return Mark(self.csn - 1, dict(self.confirmable_lsns), dict(self.required_lsns))

    def answered(self, ask: Ask, answer: Answer) -> Self:
        """Take an answer.

        Args:
            ask: one of `asks`.
            answer: an LSN to LOW and HIGH, a number to NEXT_CSN, a set to the others.

        Returns:
            The round after it.

        Raises:
            SequenceError: that was not asked, or the answer is of another kind, or a log ends before
                where it ended.
        """
        if ask not in self.asks:
            raise SequenceError(f"{ask.what.value} was not asked of {ask.node}")
        taken = self._taken(ask, answer)
        left = tuple(node for node in self.left if node != ask.node)
        return dataclasses.replace(taken, left=left) if left else taken._next()  # noqa: SLF001 - of its own class

    def _taken(self, ask: Ask, answer: Answer) -> Self:
        node, what = ask
        if isinstance(answer, Lsn) and what is What.LOW:
            _refuse_back(node, answer, self.before)
            return dataclasses.replace(
                self, confirmable_lsns=(*self.confirmable_lsns, (node, answer))
            )
        if isinstance(answer, Lsn) and what is What.HIGH:
            _refuse_back(node, answer, self.confirmable_lsns)
            return dataclasses.replace(self, required_lsns=(*self.required_lsns, (node, answer)))
        if isinstance(answer, int) and what is What.NEXT_CSN:
            return dataclasses.replace(self, csn=max(self.csn, answer))
        if isinstance(answer, frozenset) and what is What.RUNNING:
            rows = frozenset(row for row in answer if isinstance(row, Running))
            return dataclasses.replace(self, waiting=self._still(node, rows))
        if isinstance(answer, frozenset) and what is What.ACTIVITY:
            return self._looked(node, [row for row in answer if isinstance(row, Session)])
        raise SequenceError(f"{node} answers {type(answer).__name__} to {what.value}")

    def _still(self, node: str, rows: frozenset[Running]) -> frozenset[tuple[str, Running]]:
        """What is waited for after an answer: at first all, then what is left of it."""
        if self.is_first:
            return self.waiting | {(node, row) for row in rows}
        xids = {row.xid for row in rows}
        return frozenset(
            (other, row) for other, row in self.waiting if other != node or row.xid in xids
        )

    def _looked(self, node: str, sessions: list[Session]) -> Self:
        """Drop what is proven: its session came between two statements after C was taken.

        Whatever it commits later is drawn in a later statement, be it a procedure's COMMIT or a
        string of several. A thread of several sessions, or of none that is shown, proves nothing.
        """
        first = {session.pid: session for at, session in self.seen if at == node}
        pids = [session.pid for session in sessions]
        proven = {
            session.pid
            for session in sessions
            if pids.count(session.pid) == 1 and _is_proof(session, first.get(session.pid))
        }
        return dataclasses.replace(
            self,
            waiting=frozenset(
                (at, row) for at, row in self.waiting if at != node or row.pid not in proven
            ),
            seen=self.seen | {(node, row) for row in sessions if row.pid not in first},
        )

    def _next(self) -> Self:
        """The next question, when all have answered."""
        stage, order = self.stage, self.ORDER
        if stage is What.HIGH:
            return dataclasses.replace(self, stage=None, left=())
        if self.is_first and stage is not order[-1]:
            return dataclasses.replace(
                self, stage=order[order.index(stage or order[0]) + 1], left=self.nodes
            )
        busy = tuple(node for node in self.nodes if any(at == node for at, _ in self.waiting))
        if not busy:
            return dataclasses.replace(self, stage=What.HIGH, left=self.nodes, is_first=False)
        is_look = self.is_clock_local and stage is not What.ACTIVITY
        again = What.ACTIVITY if is_look else What.RUNNING
        return dataclasses.replace(self, stage=again, left=busy, is_first=False)


def _refuse_back(node: str, lsn: Lsn, before: tuple[tuple[str, Lsn], ...]) -> None:
    known = dict(before).get(node, lsn)
    if lsn < known:
        raise SequenceError(f"{node} reports the end of its WAL at {lsn}, after {known} before")


def _is_proof(session: Session, first: Session | None) -> bool:
    """Whether a session was between two statements after the first look, or is."""
    if session.state in _BETWEEN_STATEMENTS:
        return True
    starts = (session.query_start, None if first is None else first.query_start)
    return None not in starts and starts[0] != starts[1]
