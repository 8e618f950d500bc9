"""One sequence of CSNs for any number of simulated servers, as GTM gives it to the nodes of a cluster.

Its lock is the innermost one: whoever holds it asks for no other.
"""

import contextlib
import multiprocessing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kit.gaussstore import Store, Table

FIRST_CSN: Final = 20_000


class CsnClock:
    """A counter that threads and forked processes share.

    Args:
        first: the first CSN that is drawn.
    """

    def __init__(self, first: int = FIRST_CSN) -> None:
        self._next = multiprocessing.get_context("fork").Value("Q", first)

    @property
    def next(self) -> int:
        """The CSN that the next transaction will draw, and what a new snapshot does not see."""
        with self._next.get_lock():
            return int(self._next.value)

    def draw(self) -> int:
        """Take a CSN."""
        with self._next.get_lock():
            csn = int(self._next.value)
            self._next.value = csn + 1
            return csn

    def set_back(self, csn: int) -> None:
        """Give CSNs from one on again."""
        with self._next.get_lock():
            self._next.value = csn

    def skip(self, count: int) -> None:
        """Draw some CSNs that no transaction has: another database, another node, a rollback."""
        with self._next.get_lock():
            self._next.value += count


def draw_together(parts: "Iterable[tuple[Store, Iterable[Table]]]") -> int:
    """Draw one CSN for a transaction that is prepared on several servers of one clock.

    All of them know at once that its commit record is still to come.

    Args:
        parts: each server's store, and the tables that the transaction changed there.
    """
    # In one order, so that two transactions never wait for each other's stores.
    ordered = sorted(parts, key=lambda part: id(part[0]))
    assert len({id(store.csn_clock) for store, _ in ordered}) == 1, (
        "the servers have several clocks"
    )
    with contextlib.ExitStack() as held:
        for store, _ in ordered:
            held.enter_context(store.changed)
        csn = ordered[0][0].csn_clock.draw()
        for store, tables in ordered:
            store.expect(csn, tables)
        return csn
