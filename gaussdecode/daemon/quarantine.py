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
from gaussdecode.snapshot.choice import QUARANTINED
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


def record(config: Config, context: Landing, error: TableError) -> None:
    """Between sessions, say in the commit log that a table stops here, then leave it out."""
    writer = context.writer
    assert writer is not None
    writer.discard()  # what was asked for before the error still lands, and moves the position
    commit(config, context, writer.begin(), error)


def commit(config: Config, context: Landing, intake: Intake, error: TableError) -> None:
    """Say it after all that was committed; durable on return."""
    log, store = context.log, context.snapshots
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
    entry = intake.insert(draft, context.snapshot_landed)
    store.reach(SnapshotStep.QUARANTINE_COMMITTED)
    request = store.ledger().get(found.title, {}).get("request")  # what led here, and has failed
    here = TableError(error.namespace, error.name, error.oid, found.from_lsn, error.reason)
    store.note({found.title: {**ledger_record(here), "request": request}})
    store.reach(SnapshotStep.TABLE_QUARANTINED)
    command = f"gaussdecode snapshot {config.path} --table {found.title!r}"
    _log.error(
        Event.TABLE_QUARANTINED,
        table=found.title,
        entry=entry.n,
        from_lsn=str(found.from_lsn),
        reason=error.reason,
        land_it=command,
    )
