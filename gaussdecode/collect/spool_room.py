"""Make room in a spool that may hold no more, or wait where nobody but an operator can.

The stream is taken in order, so that no commit that would free room can come before what there is no room
for. What is prepared goes to files of its own. Streamed transactions are given up for whole ones, of which
only one at a time needs room. By CSN the later half of those that wait for their turn is read again, when
the others have landed. One that does not fit alone waits for a larger bound; the connection is kept
meanwhile.
"""

import time
from collections.abc import Callable
from typing import Final

from gaussdecode.collect._assembler import Assembler
from gaussdecode.collect.spool import NoRoomError
from gaussdecode.errors import DiskStillFullError, SpoolFullError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.types import format_size

_SECONDS: Final = 0.2  # between two looks for room; arbitrary


class SpoolRoom:
    """Of one session.

    Args:
        spool_bytes: bound of the spool.
        is_streamed: the source sends transactions while they are open.
        is_read_again: by CSN: what is given up is read again.
        keep_prepared: puts prepared transactions into files; false where that cannot be now.
        should_stop: asked while it waits; true ends the wait.
        on_wait: called in each round of waiting.

    Attributes:
        spool_bytes: as above.
        why_full: why nothing can be taken, in words; None where it can.
    """

    def __init__(
        self,
        spool_bytes: int,
        *,
        is_streamed: bool,
        is_read_again: bool,
        keep_prepared: Callable[[], bool],
        should_stop: Callable[[], bool],
        on_wait: Callable[[], None],
    ) -> None:
        self.spool_bytes = spool_bytes
        self._is_streamed = is_streamed
        self._is_read_again = is_read_again
        self._keep_prepared = keep_prepared
        self._should_stop = should_stop
        self._on_wait = on_wait
        self.why_full: str | None = None

    def make(self, assembler: Assembler) -> None:
        """Make room, or wait for a moment; the spool then asks again.

        Raises:
            NoRoomError: the transaction at hand is one that is read again.
            SpoolFullError: they are streamed.
            DiskStillFullError: a stop was asked for.
        """
        if self._is_read_again and assembler.give_up():
            if assembler.is_given_up:
                raise NoRoomError
            return
        if assembler.unkept() and self._keep_prepared():
            self.why_full = None
            return
        self.why_full = text = self._text(assembler)
        if self._is_streamed:
            raise SpoolFullError(text)
        if self._should_stop():
            raise DiskStillFullError(f"{text}; stopped while waiting")
        self._on_wait()
        time.sleep(_SECONDS)

    def why_read_again(self, count: int) -> str:
        """Say what is read again, and why."""
        return (
            f"{count} transactions that waited for their turn by CSN had no space in "
            f"landing.spool-bytes ({format_size(self.spool_bytes)}); they are read again"
        )

    def _text(self, assembler: Assembler) -> str:
        """Say which transaction needs more of the spool than there may be."""
        assert assembler.spooling is not None
        xid, commit_lsn, held_bytes = assembler.spooling
        bound = f"landing.spool-bytes ({format_size(self.spool_bytes)}) allows"
        if assembler.finished_count:
            return (
                "transactions that wait for their turn by CSN need more space than "
                f"{bound}; the newest batch is of transaction {xid}"
            )
        if self._is_streamed:
            return (
                f"open transactions need more space than {bound}; the newest batch is of transaction "
                f"{xid}, which has {held_bytes:,} bytes here"
            )
        committed = f", which commits at {Lsn(commit_lsn)}," if commit_lsn else ""
        return (
            f"transaction {xid}{committed} needs more space than {bound}: {held_bytes:,} bytes of it "
            "are here, and more comes"
        )
