"""What a stream of a CSN slot sends next, what it passed, and what a confirmation means to it.

Transactions go out in the order of their CSNs: one waits while a smaller CSN of this server has
no commit record yet. The product says so much and no more of it; what else is here is the
reading that forgives a client least: a confirmed position stands for the highest CSN among the
transactions that were sent and end at or before it, and nothing up to that CSN comes again.
"""

import bisect
import heapq

from kit.gaussstore import Committed, Store


class CsnQueue:
    """The transactions of one server in the order of CSNs, for one stream.

    Args:
        store: of the server.
        after: transactions up to this CSN are left out.

    Attributes:
        sent_csn: of the newest transaction that was taken, or `after`.
    """

    def __init__(self, store: Store, after: int) -> None:
        self._store = store
        self._after = after
        self._waiting: list[tuple[int, int]] = []  # CSN, index in the store
        self._seen = 0
        self._sent: list[tuple[int, int]] = []  # end of the commit record, CSN; unconfirmed
        self.sent_csn = after

    def take(self) -> Committed | None:
        """Take the next one, if nothing with a smaller CSN is still to come."""
        with self._store.changed:
            self._look()
            expected = self._store.expected()
            if not self._waiting or (expected and expected[0] < self._waiting[0][0]):
                return None
            csn, at = heapq.heappop(self._waiting)
            assert csn > self.sent_csn, "a CSN came late"
            self.sent_csn = csn
            of = self._store.committed[at]
            self._sent.append((of.end_lsn, csn))
            return of

    def passed(self) -> int:
        """The CSN up to which everything of this server was taken."""
        with self._store.changed:
            self._look()
            waiting = self._waiting[0][0] if self._waiting else self._store.next_csn
            return min([waiting, *self._store.expected()]) - 1

    def is_out(self, lsn: int) -> bool:
        """Whether every transaction whose commit record begins before a position was taken."""
        with self._store.changed:
            committed = self._store.committed
            at = bisect.bisect_left(committed, lsn, key=lambda one: one.commit_lsn)
            return lsn <= self._store.wal_end and all(
                of.csn <= self.sent_csn for of in committed[:at]
            )

    def confirm(self, lsn: int) -> int:
        """Give the CSN that a confirmed position stands for; 0 for none."""
        confirmed = [csn for end, csn in self._sent if end <= lsn]
        self._sent = [(end, csn) for end, csn in self._sent if end > lsn]
        return max(confirmed, default=0)

    def _look(self) -> None:
        committed = self._store.committed
        for at in range(self._seen, len(committed)):
            if committed[at].csn > self._after:
                heapq.heappush(self._waiting, (committed[at].csn, at))
        self._seen = len(committed)
