"""Put a table in quarantine when its rows cannot be landed and the operator chose to go on.

It runs between two sessions. It waits for the entry that the session before had begun. Nothing after the
durable position has been confirmed, and nothing of it is kept. First the quarantine entry becomes durable,
then the ledger leaves the table out, then the next session begins at the same position. If the process
is killed in between, the next session meets the error again and repeats the entry. So every row of the
table up to the entry's position has landed, and none after it. When an operator asks for a snapshot, the
ledger has the table as `asked`: its changes land again from the next session on, and the snapshot's entry
ends the quarantine for readers.

Nothing is committed before the transactions that the server sends again were compared with the landing,
because the row may be of another history. This holds for the quarantine too: the table is left out for one
session, and the entry follows the comparison.
"""

from collections.abc import Mapping, Sequence

from gaussdecode.daemon.session import Session
from gaussdecode.errors import TableError
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import SnapshotStep
from gaussdecode.land.names import table_directory
from gaussdecode.land.snapshots import WHY_STOPPED
from gaussdecode.land.snapshots import Json as Record
from gaussdecode.land.writer import Intake
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine
from gaussdecode.model.title import table_title
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.choice import QUARANTINED, stopped
from gaussdecode.snapshot.item import Landing

_log = get_logger("daemon")


def advised(config: Config, error: TableError) -> TableError:
    """The same error, with the ways out."""
    way = (
        ""
        if config.landing.is_quarantining
        else f", or set landing.on-table-error: quarantine in {config.path.name} to continue without "
        "it and take a snapshot of it later"
    )
    return TableError(
        error.namespace,
        error.name,
        error.oid,
        error.lsn,
        f"{error.reason}. Nothing after it is confirmed. Take the table out of the publication or of "
        f"white-table-list{way}",
    )


def helps(config: Config, context: Landing, error: TableError) -> bool:
    """Whether one table's trouble is to stop that table only, and does not already."""
    tables = context.table_filter
    is_out = tables is not None and table_title(error.namespace, error.name) in tables.quarantined
    return config.landing.is_quarantining and not is_out


def ledger_record(error: TableError) -> Record:
    """Make the ledger's record of a table that stops."""
    reason = f"after {error.lsn}: {error.reason}"
    return {"state": QUARANTINED, "oid": error.oid, "reason": reason, WHY_STOPPED: reason}


class Quarantines:
    """Tables that stand still: those that log and ledger name, and those that they do not name yet.

    Args:
        config: checked.
        context: the landing.
    """

    def __init__(self, config: Config, context: Landing) -> None:
        self._config = config
        self._context = context
        self._stopped: dict[str, str] = {}
        self._pending: dict[str, TableError] = {}

    def look(self) -> None:
        """Read the ledger."""
        self._stopped = stopped(self._context.snapshots.ledger())

    @property
    def stopped(self) -> Mapping[str, str]:
        """Why tables that the ledger names stand still, by title; until all of their rows have landed again."""
        if self._stopped:
            self.look()
        return self._stopped

    @property
    def has_any(self) -> bool:
        """Whether tables stand still."""
        return bool(self.stopped or self._pending)

    def pending_records(self) -> dict[str, Record]:
        """Records for the ledger of tables that it does not name yet, by title."""
        return {title: ledger_record(error) for title, error in self._pending.items()}

    def add(self, error: TableError, members: Sequence[Session]) -> None:
        """Between sessions: leave a table out from here on, and say so in the log as soon as that may be.

        Args:
            error: why.
            members: the sessions that have ended.
        """
        collectors = [one.collector for one in members if one.collector is not None]
        if any(collector.assembler.is_comparing for collector in collectors):
            self._pending[table_title(error.namespace, error.name)] = error
            return
        writer = self._context.writer
        assert writer is not None
        writer.discard()  # what was asked for before the error still lands, and moves the position
        self._commit(writer.begin(), error)

    def commit(self, intake: Intake) -> None:
        """Say in the log which tables are left out, before anything else lands."""
        for error in self._pending.values():
            self._commit(intake, error)
        if self._pending:
            self.look()
        self._pending = {}

    def _commit(self, intake: Intake, error: TableError) -> None:
        """Say it after all that was committed; durable on return."""
        log, store = self._context.log, self._context.snapshots
        assert log is not None
        assert log.position is not None
        found = Quarantine(
            table_directory(error.namespace, error.name),
            error.namespace,
            error.name,
            error.oid,
            Lsn(log.position.lsn),
            error.reason,
        )
        draft = Draft(kind=EntryKind.QUARANTINE, extra=found.to_extra())
        entry = intake.insert(draft, self._context.snapshot_landed)
        store.reach(SnapshotStep.QUARANTINE_COMMITTED)
        request = (
            store.ledger().get(found.title, {}).get("request")
        )  # what led here, and has failed
        here = TableError(error.namespace, error.name, error.oid, found.from_lsn, error.reason)
        record = {**ledger_record(here), "n": entry.n, "request": request}
        store.note({found.title: record})
        store.reach(SnapshotStep.TABLE_QUARANTINED)
        _log.error(
            Event.TABLE_QUARANTINED,
            table=found.title,
            entry=entry.n,
            from_lsn=str(found.from_lsn),
            reason=error.reason,
            land_it=f"gaussdecode snapshot {self._config.path} --table {found.title!r}",
        )
