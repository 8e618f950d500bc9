"""Is what the server sends again what has landed?

A stream begins where the slot is confirmed, at or before the log's position. In between
the server repeats transactions that have landed already. They are the one thing in which a
server that was restored to the past differs from one that merely forgot a confirmation:
system identifier, timeline and positions are the same, once its WAL has grown again.

So both sides are walked side by side, in the order of their ends. A transaction that both
have is recognised by its end, number and commit time. One that only one side has ends the
comparison with an error, unless settings decide whether it lands at all: one without rows,
one of another server, one of a user who is left out, or one of tables that are wanted only since
or of a user who was left out before, where the sums of the log say that transactions were. Until everything up to the log's position was compared, nothing is
landed or confirmed; then the rest of the stream is what the log goes on with.

Memory: one transaction of either side, whatever the length of the stretch.
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
        since_lsn: what ends here or below is not compared: it is confirmed, or the log does
            not hold it any more.
        until_lsn: the log's position.
        on_equal: told the number of transactions, once all up to `until_lsn` are equal.
        lands_from: of a table, the position before which nothing of it has landed.
        left_out: how many transactions the log left out, by reason.
        excluded_users: whose transactions do not land any more.
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
            f"after {Lsn(self._since_lsn)} and up to the log's {Lsn(self._until_lsn)}, the landing has "
            f"{landed}, where the server sends {sent}: {_ADVICE}"
        )
