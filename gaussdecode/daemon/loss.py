"""Changes that are lost, or are to be given up: found out, recorded, dropped.

Asked when a session was refused, and when the guard's last step is taken. Each gap becomes
an entry of the commit log once, however often the daemon is started afterwards.
"""

import contextlib
from typing import Final

from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.errors import GaussDecodeError, SourceRefusedError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.gap import Gap, GapReason
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.request import EntryRequest
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import source_address
from gaussdecode.source.gap import find_gap
from gaussdecode.source.gaussdb import connection as gaussdb
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.postgresql import connection as postgresql
from gaussdecode.source.postgresql import slot
from gaussdecode.source.slot import ServerState

_log = get_logger("daemon")
_ADVICE: Final = "see `gaussdecode gaps`, `gaussdecode slot accept-gap` and the operations guide"


def record_loss(config: Config, pipeline: Pipeline) -> Gap | None:
    """After a refusal: if changes are gone, say so in the commit log.

    Returns:
        The gap, recorded now or before; None when nothing is missing, or when the server
        cannot be asked (then the next start asks again).
    """
    state = pipeline.landing_position
    if state is None or config.source.kind is SourceKind.CAPTURE:
        return None
    try:
        server = _ask(config, is_dropping=False)
    except GaussDecodeError:
        return None
    gap = find_gap(state, server)
    if gap is not None:
        record(pipeline, gap)
    return gap


def give_up_slot(config: Config, pipeline: Pipeline) -> SourceRefusedError:
    """The guard's last step: drop the slot and say what is missing from then on.

    All that had come is landed already. The gap is recorded only once the slot is gone.

    Returns:
        Why the daemon must stay down.

    Raises:
        GaussDecodeError: the slot could not be dropped; it is tried again.
    """
    bound = config.guard.drop_slot_above
    server = _ask(config, is_dropping=True)
    _log.warning(Event.SLOT_DROPPED, by="guard", drop_slot_above=bound)
    text = (
        f"slot {config.slot!r} was dropped by the guard: the server kept more than "
        f"guard.drop-slot-above ({bound} bytes) of WAL for it"
    )
    state = pipeline.landing_position
    if state is not None:
        reason = GapReason.SLOT_DROPPED_BY_GUARD
        record(pipeline, Gap(reason, state.lsn, server.wal_end, is_open=True, text=text))
    return SourceRefusedError(f"{text}; {_ADVICE}")


def _ask(config: Config, *, is_dropping: bool) -> ServerState:
    """Ask the server of a configuration for everything, the slot dropped before or not.

    Raises:
        GaussDecodeError: it cannot be asked, or refuses.
    """
    address = source_address(config)
    if config.source.kind is not SourceKind.GAUSSDB:
        with postgresql.connect(address) as connection:
            if is_dropping:
                slot.drop_slot(connection, config.slot)
            return slot.read_server(connection, config.slot, config.source.publication)
    with contextlib.closing(gaussdb.connect(address, is_replication=False)) as sql:
        if is_dropping:
            gaussserver.drop_slot(sql, config.slot)
        place = gaussserver.stream_address(address, config.source.ha_port, sql)
        with contextlib.closing(gaussdb.connect(place, is_replication=True)) as stream:
            return gaussserver.read_server(sql, stream, config.slot)


def record(pipeline: Pipeline, gap: Gap) -> None:
    """Commit a gap entry, unless the newest gap entry has the same beginning."""
    log = pipeline.log
    assert log is not None
    if _is_known(log, gap):
        return
    assert pipeline.writer is not None
    assert log.position is not None
    pipeline.writer.discard()  # nothing without a place after the gap
    intake = pipeline.writer.begin()
    intake.commit(EntryRequest(kind=EntryKind.GAP, position=log.position, extra=gap.to_extra()))
    pipeline.writer.drain()
    _log.error(
        Event.GAP_RECORDED,
        entry=log.next_n - 1,
        reason=str(gap.reason),
        from_lsn=str(gap.from_lsn),
        until_lsn=str(gap.until_lsn),
    )


def _is_known(log: CommitLog, gap: Gap) -> bool:
    """Whether the end of the log says so already; only entries without a stream follow one."""
    first = max(0, log.next_n - 10)
    for entry in reversed(list(log.iterate(first, log.next_n - 1))):
        if entry.kind is EntryKind.GAP:
            return entry.extra.get("from_lsn") == int(gap.from_lsn)
        if entry.kind in {EntryKind.DATA, EntryKind.IDLE}:
            return False
    return False
