"""Follow renamed tables: what a quarantine goes along with is said in the log before the ledger.

Readers of the landing know a table in quarantine by its name. Another table may have that name now, and a
snapshot of it ends the quarantine for them. So before one can land, an entry says that the table stands
still under its name of now. The ledger follows. If the process is killed in between, the next start says
it again.
"""

from collections.abc import Mapping
from typing import Final

from gaussdecode.collect.snapshot_gate import CollectorPort
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import SnapshotStep
from gaussdecode.land.names import table_directory
from gaussdecode.land.snapshots import WHY_STOPPED, Json
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine
from gaussdecode.model.title import split_title
from gaussdecode.snapshot.item import title_of
from gaussdecode.snapshot.renames import followed, missed
from gaussdecode.snapshot.tools import Tools

_SINCE_EVER: Final = Lsn(0)
_log = get_logger("snapshot")


def follow_names(tools: Tools, tables: Mapping[str, int]) -> None:
    """Write down of which tables changes are missed now, and what goes along with renamed ones.

    Args:
        tools: tools of the landing.
        tables: OID of each published table, by title.

    Raises:
        HoldLostError: the session ended; nothing is noted of renamed tables.
    """
    store, last = tools.store, tools.log.next_n - 1
    records = missed(store.ledger(), tables, last)
    if records:
        store.note(records)
    records = followed(store.ledger(), tables, last)
    if not records:
        return
    stopped = [_stopped(tools, title, of) for title, of in records.items() if of.get(WHY_STOPPED)]
    if stopped:
        _commit(tools, stopped)
    store.note(records)
    store.reach(SnapshotStep.TABLE_QUARANTINED)


def _stopped(tools: Tools, title: str, record: Json) -> Quarantine:
    """A table in quarantine under its name of now: since when and why, as its newest entry has it."""
    log, oid = tools.log, record["oid"]
    known: Quarantine | None = None
    for entry in log.iterate(log.floor + 1, log.next_n - 1):
        if entry.kind is EntryKind.QUARANTINE and entry.extra.get("oid") == oid:
            known = Quarantine.from_extra(entry.extra)
    since = _SINCE_EVER if known is None else known.from_lsn
    error = str(record[WHY_STOPPED]) if known is None else known.error
    schema, name = split_title(title)
    return Quarantine(table_directory(schema, name), schema, name, oid, since, error)


def _commit(tools: Tools, stopped: list[Quarantine]) -> None:
    """Commit an entry for each, in the collector's thread; durable on return."""
    context, gate = tools.context, tools.context.gate
    committed: list[CommitEntry] = []

    def act(port: CollectorPort) -> None:
        writer = context.writer
        assert writer is not None
        intake = writer.intake_of(port.generation)
        intake.drain()
        for of in stopped:
            draft = Draft(kind=EntryKind.QUARANTINE, extra=of.to_extra())
            committed.append(intake.insert(draft, context.snapshot_landed))

    hold = gate.hold({})
    try:
        gate.run(hold, act)
    finally:
        gate.release(hold)
    tools.store.reach(SnapshotStep.QUARANTINE_COMMITTED)
    for of, entry in zip(stopped, committed, strict=True):
        _log.error(
            Event.TABLE_QUARANTINED,
            table=title_of(tools.source, of.title),
            entry=entry.n,
            from_lsn=str(of.from_lsn),
            reason=of.error,
            land_it=f"gaussdecode snapshot {tools.config.path} --table {of.title!r}",
        )
