"""Compare transactions that the server sends again with the transactions that have landed.

A stream begins at the confirmed position of the slot, at or before the position of the log. In between
the server repeats transactions that have landed already. Only these show that a server was restored to an
earlier state: after its WAL has grown again, its system identifier, timeline and positions are the same.

Both sides are read in the order of their end positions. A transaction that is on both sides is recognised
by its end, number and commit time. A transaction that is on one side only is an error, unless settings
decide whether it lands:

* it has no rows, comes from another server, or its user is left out;
* its tables are wanted only since then, or its user was left out before, and the sums of the log say that
  transactions were left out.

Nothing is landed or confirmed before everything up to the log's position was compared. Then the rest of
the stream continues the log.

Memory: one transaction of either side, however long the compared stretch is.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from gaussdecode.errors import IdentityError
from gaussdecode.model.account import EMPTY, USER
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.transaction import TransactionMark

_ADVICE: Final = (
    "the server, or its slot, was restored to the past, or is another copy. Nothing was landed or "
    "confirmed. Connect to the server whose changes have landed, or begin a new landing with a "
    "snapshot. If source.publication, source.messages or the options of decoding were changed since "
    "the last start, start once as they were before"
)


class Resent:
    """Compares one session's repetition with the log.

    Args:
        landed: transactions of the log after `since_lsn`, rising.
        since_lsn: transactions that end here or below are not compared: they are confirmed, or no
            longer in the log.
        until_lsn: the log's position.
        on_equal: told the number of transactions, once all up to `until_lsn` are equal.
        lands_from: the position before which nothing of a table has landed.
        left_out: how many transactions the log left out, by reason.
        excluded_users: excluded users whose transactions do not land any more.
    """

    def __init__(
        self,
        landed: Iterator[TransactionMark],
        since_lsn: int,
        until_lsn: int,
        on_equal: Callable[[int], None],
        lands_from: Callable[[str], int] = lambda _: 0,
        left_out: Mapping[str, int] | None = None,
        excluded_users: Collection[str] = (),
    ) -> None:
        self._landed = landed
        self._since_lsn = since_lsn
        self._until_lsn = until_lsn
        self._on_equal = on_equal
        self._held = next(landed, None)
        self._left_out = Counter(left_out)
        self._excluded_users = excluded_users
        self.lands_from = lands_from
        self.count = 0

    def take(self, sent: TransactionMark) -> None:
        """Compare the next transaction that the server repeats.

        Raises:
            IdentityError: it is not what landed.
        """
        if sent.end_lsn <= self._since_lsn:
            return
        self._pass_absent(sent.end_lsn, str(sent))
        held = self._held
        if held is None or held.end_lsn > sent.end_lsn:
            if not sent.may_be_absent and not self._was_left_out(sent):
                self._refuse("no such transaction" if held is None else str(held), str(sent))
            return
        if not held.is_same(sent):
            self._refuse(str(held), str(sent))
        self.count += 1
        self._held = next(self._landed, None)

    def finish(self) -> None:
        """The stream is at the log's position, or beyond.

        Raises:
            IdentityError: something landed that the server did not repeat.
        """
        self._pass_absent(self._until_lsn + 1, "nothing more up to there")
        self._on_equal(self.count)

    def _was_left_out(self, sent: TransactionMark) -> bool:
        """Whether it may be of one whose user, or the tables of which, were not wanted then."""
        for reason, may_be in ((EMPTY, sent.is_of_new_tables), (USER, bool(sent.user))):
            if may_be and self._left_out[reason]:
                self._left_out[reason] -= 1
                return True
        return False

    def _pass_absent(self, end_lsn: int, sent: str) -> None:
        """Pass over what landed before a position and was not repeated, if it may be absent."""
        while (held := self._held) is not None and held.end_lsn < end_lsn:
            if not held.may_be_absent and held.user not in self._excluded_users:
                self._refuse(str(held), sent)
            self._held = next(self._landed, None)

    def _refuse(self, landed: str, sent: str) -> None:
        raise IdentityError(
            f"after {Lsn(self._since_lsn)} and up to the log's {Lsn(self._until_lsn)}, the landing "
            f"has {landed}, but the server sends {sent}: {_ADVICE}"
        )
