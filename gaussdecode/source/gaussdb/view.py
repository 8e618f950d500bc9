"""Take a view of GaussDB, and find its position in the stream; see `export.View`.

A GaussDB decides by number what a snapshot sees: every transaction draws a CSN when it
commits, a snapshot has one too, and it sees exactly the transactions of a smaller one. The
stream tells the CSN of every transaction, but in the order of commit records, which is
nearly the same order and not quite. So a view begins with a CSN, S, and its position is
found in the stream while nothing is committed:

1. A transaction of our own commits, then the view is taken: S is above the CSN of every
   transaction whose commit record was there before, so of all that was committed.
2. The stream is read up to where the WAL ends after the view. Of the transactions that
   changed the tables at hand, the position is the last one below S. If one that is not below
   S comes before it, there is no position: another view is taken.
3. When the tables have been read, the stream is read up to where the WAL ends then. A
   transaction below S may have written its commit record only after step 2; but the reading
   cannot have met its rows without waiting for it, so its record is there now. If there is
   one, or any that does not fit, all is read again in another view.

The position is exact for the tables at hand, which is what a snapshot needs. See
docs/adr/0055.

References:
    openGauss, snapmgr.cpp: pg_export_snapshot_and_csn(), XidVisibleInSnapshot(); xact.cpp:
    getLocalNextCSN().
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gaussdecode.closing import Closing
from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.export import OrderError, Reach, Shown
from gaussdecode.source.gaussdb.connection import ANSWER_SECONDS, EMPTY, GaussConnection, connect
from gaussdecode.source.gaussdb.csn_mark_queries import answer_from
from gaussdecode.source.gaussdb.csn_mark_rules import Ask, What

BEGIN: Final = "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_ISOLATION: Final = "repeatable read"
_EXPORT: Final = "SELECT * FROM pg_catalog.pg_export_snapshot_and_csn()"
_WAL_END: Final = "SELECT pg_catalog.pg_current_xlog_insert_location()"
_STREAM_SECONDS: Final = 600.0  # until changes that wait are let go; arbitrary
_UNDEFINED_FUNCTION: Final = "42883"
_TIMEOUTS: Final = ("session_timeout", "idle_in_transaction_session_timeout")  # of idle sessions
_HALF: Final = 1 << 31
_MASK: Final = (1 << 32) - 1


class View(Closing):
    """See `export.View`; made by `open`.

    Attributes:
        lsn: its position; 0 before `find_position`.
        name: name for SET TRANSACTION SNAPSHOT.
        csn: it sees what has a smaller one; 32 bits of it.
        through_csn: see `export.View`.
    """

    def __init__(
        self, keeper: GaussConnection, clerk: GaussConnection, name: str, csn: int, nudge: str = ""
    ) -> None:
        self._nudge = nudge or EMPTY
        self.lsn = Lsn(0)
        self.through_csn: int | None = None
        self.name = name
        self._keeper = keeper
        self._clerk = clerk
        self.csn = csn

    @classmethod
    def open(
        cls,
        address: SourceAddress,
        seconds: float,
        should_stop: Callable[[], bool],
        nudge: str = "",
    ) -> Self:
        """Take the state of the database as it is now.

        Args:
            address: address of the SQL port.
            seconds: longest answer.
            should_stop: asked while an answer is waited for.
            nudge: SQL of which the stream shows something; empty for an empty transaction.

        Raises:
            SourceError: the server failed, or took longer.
            SourceRefusedError: it gives no snapshot with its CSN.
        """
        with contextlib.ExitStack() as stack:
            clerk = stack.enter_context(connect_lasting(address, seconds, should_stop))
            keeper = stack.enter_context(connect_lasting(address, seconds, should_stop))
            clerk.query(EMPTY)  # step 1
            keeper.query(BEGIN)
            ((isolation,),) = keeper.query("SHOW transaction_isolation")
            if isolation != _ISOLATION:
                raise SourceRefusedError(
                    f"the server reads at {isolation}; a snapshot needs {_ISOLATION}"
                )
            ((name, csn),) = _exported(keeper)
            view = cls(keeper, clerk, name or "", int(csn or "", 16), nudge)
            stack.pop_all()
        return view

    def nudge(self) -> None:
        """Commit a transaction, of which the stream tells the end."""
        try:
            self._clerk.query(self._nudge)
        except SourceError as error:
            if self._nudge == EMPTY:
                raise
            raise type(error)(f"snapshot.nudge: {error.reason}", error.sqlstate) from None

    def find_position(self, boundary: int, shown: Shown, reach: Reach) -> None:
        """See `export.View`; step 2."""
        self.lsn = Lsn(position_among(self.csn, boundary, self._shown(shown)))

    def confirm(self, shown: Shown) -> None:
        """See `export.View`; step 3."""
        check_order(self.csn, int(self.lsn), self._shown(shown))

    def wal_end(self) -> Lsn:
        """The present end of the WAL."""
        ((wal_end,),) = self._clerk.query(_WAL_END)
        return Lsn.parse(wal_end or "")

    def _shown(self, shown: Shown) -> Iterable[pa.Table]:
        """All changes up to where the WAL ends now."""
        wal_end = self.wal_end()
        deadline = time.monotonic() + _STREAM_SECONDS

        def nudge() -> None:
            if time.monotonic() >= deadline:
                raise SourceError(
                    f"the stream did not reach {wal_end} in {_STREAM_SECONDS:.0f} seconds"
                )
            self.nudge()

        return shown(int(wal_end), nudge)

    def close(self) -> None:
        """Let go of it; the server forgets the snapshot with its transaction."""
        self._keeper.close()
        self._clerk.close()


class CsnView(View):
    """A view for a landing in the order of CSNs, where everything below its CSN lands before its rows.

    A mark proves that all of it has come (see `source.gaussdb.csn_mark_rules`): nothing has to be looked up in the
    stream, and nothing is left to confirm. No entry is decided on while the view is taken. So what has landed by
    then is below the view's CSN; on a node whose clock is behind that of others it may have a greater
    one, and then the node has nothing between the two and will have nothing, by what the mark promises.
    """

    def find_position(self, boundary: int, shown: Shown, reach: Reach) -> None:
        """See `export.View`."""
        next_csn = answer_from(self._clerk, Ask("snapshots", What.NEXT_CSN))
        assert isinstance(next_csn, int)
        csn = next_csn - ((next_csn - self.csn) & _MASK)  # the view tells 32 bits of it
        self.through_csn, lsn = reach(csn - 1)
        self.lsn = Lsn(lsn)

    def confirm(self, shown: Shown) -> None:
        """See `export.View`."""


def position_among(csn: int, boundary: int, seen: Iterable[pa.Table]) -> int:
    """The position of a view: that of the last transaction which it sees.

    Args:
        csn: CSN of the view, 32 bits of it.
        boundary: position up to which it sees all.
        seen: changes after that, with ``gd_csn`` and ``gd_lsn``; gone through twice.

    Raises:
        OrderError: it does not see one that comes before.
    """
    last = boundary
    for lsns, is_inside in _positions(csn, seen):
        last = max(last, int(lsns[is_inside].max(initial=0)))
    check_order(csn, last, seen)
    return last


def check_order(csn: int, lsn: int, seen: Iterable[pa.Table]) -> None:
    """See that a view has exactly the changes up to a position.

    Raises:
        OrderError: it has not.
    """
    for lsns, is_inside in _positions(csn, seen):
        if bool(((lsns <= lsn) != is_inside).any()):
            raise OrderError(
                "transactions became visible in another order than they were written; the snapshot takes "
                "another view"
            )


def _positions(
    csn: int, seen: Iterable[pa.Table]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
    """Positions of changes, and which of them a view has."""
    for rows in seen:
        csns = rows.column("gd_csn")
        if csns.null_count:
            raise SourceRefusedError("the stream does not send the CSN of its transactions")
        # The server prints 32 bits of its CSN; what is compared here is never that far apart.
        distance = (csns.to_numpy() - csn) & _MASK
        yield rows.column("gd_lsn").to_numpy(), distance >= _HALF


def _exported(keeper: GaussConnection) -> list[tuple[str | None, ...]]:
    try:
        return keeper.query(_EXPORT)
    except SourceError as error:
        if error.sqlstate != _UNDEFINED_FUNCTION:
            raise
        raise SourceRefusedError(
            "this server has no pg_export_snapshot_and_csn(). Without a snapshot's CSN, existing "
            "rows cannot be joined to the stream",
            error.sqlstate,
        ) from None


def connect_lasting(
    address: SourceAddress, seconds: float, should_stop: Callable[[], bool]
) -> GaussConnection:
    """Open a connection that the server does not end for being idle.

    Args:
        address: address of the SQL port.
        seconds: longest statement.
        should_stop: asked while an answer is waited for.

    Raises:
        SourceError: the server cannot be reached.
    """
    connection = connect(address, is_replication=False)
    connection.timeout = seconds + ANSWER_SECONDS  # the server's own limit comes first
    connection.should_stop = should_stop
    for name in _TIMEOUTS:
        try:
            connection.query(f"SET {name} = 0")
        except SourceError:
            if connection.is_lost:
                raise
            # else: a version that does not know it has none
    return connection
