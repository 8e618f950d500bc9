"""The parts of the pipeline that its sources share."""

from typing import Protocol

from gaussdecode.collect.entry_barrier import EntryBarrier
from gaussdecode.collect.spool import Spool
from gaussdecode.daemon.quarantine import Quarantines
from gaussdecode.ipc.process import Prepared
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.snapshots import Json, SnapshotStore
from gaussdecode.land.writer import Intake
from gaussdecode.model.landing import SourceIdentity, SourcePosition
from gaussdecode.snapshot.tablefilter import TableFilter
from gaussdecode.source.slot import Place


class Shared(Protocol):
    """What a source asks of the pipeline."""

    prepared: Prepared
    log: CommitLog | None
    snapshots: SnapshotStore
    barrier: EntryBarrier | None
    quarantines: Quarantines

    def take_place(self, name: str, place: Place) -> None:
        """Know where a source is, and refuse two at one place."""

    def open_log(self, name: str, identity: SourceIdentity) -> CommitLog:
        """The log; made when nobody has yet."""

    def intake(self) -> Intake:
        """Of the sessions that run now."""

    def choose_tables(self, name: str, *, is_new: bool) -> TableFilter:
        """Decide which tables of a source land."""

    def ledger_of(self, name: str) -> dict[str, Json]:
        """The ledger of a source, with tables that are left out and not yet written down there."""

    def reached(self, name: str) -> SourcePosition | None:
        """Position up to which the landed changes of a source may be confirmed."""

    def spool(self) -> Spool:
        """Room on the landing's disk for what memory may not hold."""

    def drain(self, seconds: float) -> bool:
        """Wait for the writer to commit all it was given."""

    def landed_ns(self) -> int:
        """Monotonic time at which the writer last moved."""

    def must_not_wait(self) -> bool:
        """Whether a wait is to end."""

    def should_stop(self) -> bool:
        """Whether the sessions are to end."""

    def is_paused(self) -> bool:
        """Whether collecting is to pause."""

    def restart_session(self) -> None:
        """Have the sessions end in order and others begin."""
