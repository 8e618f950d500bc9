"""Hold views that connections import, and find the positions of these views.

PostgreSQL gives a view together with its position. A transaction of the driver imports the snapshot of a
temporary slot and exports it again. Then the slot goes, so that no WAL is kept during hours of reading.

A view of GaussDB gives the CSN up to which it sees transactions. The landing has the CSNs and positions, and
is waited for twice: before rows are read, to find the position; and after that, to see that no transaction
below the CSN wrote its commit record late. `source.gaussdb.view` explains why that is exact.
"""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator
from typing import Final, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.export import OrderError, TableChangedError
from gaussdecode.source.gaussdb import view as gauss
from gaussdecode.source.postgresql.export import held_view
from gaussdecode.spark.log.landing import Landing, when_landed
from gaussdecode.spark.log.place import Place, read_table
from gaussdecode.spark.merge.planner import make_plan

_COLUMNS: Final = ("gd_op", "gd_lsn", "gd_csn")


class Held(Protocol):
    """One view."""

    @property
    def name(self) -> str:
        """For SET TRANSACTION SNAPSHOT."""

    def find(self, n: int, boundary: int, tables: Collection[str]) -> int:
        """Find the position for some tables.

        Args:
            n: an entry that had landed when the view was taken.
            boundary: its position.
            tables: directories.

        Raises:
            OrderError: there is none; another view may have one.
            TableChangedError: a table was altered just now.
        """

    def reach(self) -> None:
        """Wait until all has landed that the server has written by now.

        Raises:
            LandingError: it did not in time.
        """

    def confirm(self, table: str, n: int, lsn: int) -> None:
        """See that a position was right; after `reach`.

        Args:
            table: directory.
            n: as given to `find`.
            lsn: what `find` returned.

        Raises:
            OrderError: it was not.
            TableChangedError: the table was altered.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class _Positioned:
    """A view of PostgreSQL."""

    name: str
    lsn: int

    def find(self, n: int, boundary: int, tables: Collection[str]) -> int:
        """See `Held`."""
        return self.lsn

    def reach(self) -> None:
        """See `Held`."""

    def confirm(self, table: str, n: int, lsn: int) -> None:
        """See `Held`; the server itself guarantees it."""


class _Numbered:
    """A view of GaussDB.

    Args:
        view: taken.
        root: directory of the landing.
        seconds: seconds for the landing to get to a position.
    """

    def __init__(self, view: gauss.View, root: Place, seconds: float) -> None:
        self._view = view
        self._root = root
        self._seconds = seconds
        self._landing: Landing | None = None
        self.name = view.name

    def find(self, n: int, boundary: int, tables: Collection[str]) -> int:
        """See `Held`."""
        self.reach()
        return gauss.position_among(self._view.csn, boundary, self._changes(n, tables))

    def reach(self) -> None:
        """See `Held`."""
        wal_end = self._view.wal_end()
        self._landing = when_landed(self._root, int(wal_end), self._seconds, self._view.nudge)

    def confirm(self, table: str, n: int, lsn: int) -> None:
        """See `Held`."""
        gauss.check_order(self._view.csn, lsn, self._changes(n, {table}))

    def _changes(self, n: int, tables: Collection[str]) -> "_Changes":
        assert self._landing is not None
        return _Changes(changed_files(self._landing, n, tables))


@dataclasses.dataclass(frozen=True, slots=True)
class _Changes:
    """CSN and position of changes, file by file; may be gone through more than once."""

    files: list[Place]

    def __iter__(self) -> Iterator[pa.Table]:
        for path in self.files:
            rows = read_table(path, _COLUMNS)
            yield rows.filter(pc.not_equal(rows.column("gd_op"), "R"))


def changed_files(landing: Landing, n: int, tables: Collection[str]) -> list[Place]:
    """Landed files with changes of tables after an entry; merged ones for those they stand for.

    Raises:
        OrderError: retention has taken some.
        TableChangedError: nobody knows which columns of a table are which.
    """
    if landing.first_n > n + 1:
        raise OrderError("retention has removed changes since rows were read")
    found: list[Place] = []
    plan = make_plan(landing, {}, n, landing.last_n, only=set(tables), accept_gaps=True)
    for table, planned in plan.tables.items():
        if planned.stop is not None:
            raise TableChangedError(f"table {table}: {planned.stop.why}")
        files = [*planned.passed, *(change for era in planned.eras for change in era.files)]
        found += [landing.root / path for path in sorted({change.file.path for change in files})]
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A server that gives views.

    Attributes:
        kind: kind of the source.
        address: address of the server.
        slot: name that a temporary slot's begins with.
        seconds: seconds to wait for the transactions that run there, at most.
        nudge: see `source.gaussdb.view.View`.
    """

    kind: SourceKind
    address: SourceAddress
    slot: str
    seconds: float
    nudge: str = ""

    @classmethod
    def of(cls, config: Config, address: SourceAddress) -> Self:
        """Take the source of a slot."""
        nudge = config.snapshot.nudge if config.hides_empty_commits else ""
        seconds = config.snapshot.transaction_timeout
        return cls(config.source.kind, address, config.slot, seconds, nudge)


@contextlib.contextmanager
def hold(server: Server, root: Place, seconds: float) -> Iterator[Held]:
    """Take a view, and hold it.

    Args:
        server: server to take it of.
        root: directory of the landing.
        seconds: seconds for the landing to get to a position.

    Raises:
        SourceError: the server failed, or its transactions run too long.
        SourceRefusedError: it gives no view.
    """
    if server.kind is SourceKind.POSTGRESQL:
        with held_view(server.address, server.slot, server.seconds) as (lsn, name):
            yield _Positioned(name, int(lsn))
        return
    with gauss.View.open(server.address, server.seconds, lambda: False, server.nudge) as view:
        yield _Numbered(view, root, seconds)
