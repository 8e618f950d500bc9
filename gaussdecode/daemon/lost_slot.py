"""Detect lost changes, record them as a gap entry, and drop a slot that the guard gives up.

It runs when a session was refused, and at the guard's last step. Each gap becomes an entry of the commit log
once, however often the daemon is started afterwards.
"""

import contextlib
from collections.abc import Mapping
from typing import Final

from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.source_runtime import SourceRuntime
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
from gaussdecode.source.postgresql import connection as postgresql
from gaussdecode.source.postgresql import slot
from gaussdecode.source.slot import ServerState

_log = get_logger("daemon")
_ADVICE: Final = "see `gaussdecode gaps`, `gaussdecode slot accept-gap` and the operations guide"


def record_loss(config: Config, pipeline: Pipeline) -> Mapping[str, Gap]:
    """After a refusal: if changes are gone, say so in the commit log.

    A landing of several sources gets no such entry: there is no place after the gap of one from which
    all could go on (see `final_refusal`).

    Returns:
        By source, the gap, recorded now or before; empty when nothing is missing, or when no server
        can be asked (then the next start asks again).
    """
    if config.source.kind is SourceKind.CAPTURE:
        return {}
    found = {name: _gap_of(runtime) for name, runtime in pipeline.runtimes.items()}
    gaps = {name: gap for name, gap in found.items() if gap is not None}
    if not config.is_several:
        for gap in gaps.values():
            record(pipeline, gap)
    return gaps


def _gap_of(runtime: SourceRuntime) -> Gap | None:
    """The gap of a source; None also where its server cannot be asked."""
    state = runtime.landing_position
    if state is None:
        return None
    try:
        return find_gap(state, _ask(runtime.config, is_dropping=False))
    except GaussDecodeError:
        return None


def final_refusal(config: Config, gaps: Mapping[str, Gap]) -> SourceRefusedError | None:
    """Why a landing cannot go on after a gap at all; None where an operator may accept it.

    Args:
        config: configuration of the daemon.
        gaps: gaps by source; at least one.
    """
    if not config.cuts_together:
        return None
    which = "; ".join(
        f"source {name}: {gap.text}, and the landing is at {gap.from_lsn}"
        if config.is_several
        else gap.text
        for name, gap in gaps.items()
    )
    kind = "several sources" if config.is_several else "a source in the order of CSNs"
    return SourceRefusedError(
        f"{which}. Transactions that ended after that are lost, and a landing of {kind} cannot "
        f"continue after a gap. {config.landing.root} stays readable. To land into a new "
        f"landing.root: drop the slots (gaussdecode slot drop --yes {config.path}), set "
        f"landing.root, then gaussdecode slot create {config.path}"
    )


def give_up_slot(config: Config, pipeline: Pipeline) -> SourceRefusedError:
    """Drop the slot as the guard's last step, and record what is missing from then on.

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
    state = pipeline.first.landing_position
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
    from gaussdecode.source.gaussdb import connection as gaussdb  # not at every start
    from gaussdecode.source.gaussdb import server as gaussserver

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
