"""Detect a gap between the log and the slot, and give its positions.

Pure, like `start`: given the states of the log and of the server. Only the server that the log belongs to can
show a gap; a wrong `dsn` is a mistake in the configuration and no loss.
"""

from gaussdecode.model.gap import Gap, GapReason
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.slot import LandingPosition, ServerState
from gaussdecode.source.start import log_position


def find_gap(log: LandingPosition, server: ServerState) -> Gap | None:
    """Compare the log with its slot.

    Args:
        log: log of the landing.
        server: server from `slot.read_server`, for the log's slot.

    Returns:
        What is missing, or None when nothing is, or when the server is another.
    """
    is_own = (log.system_identifier, log.database) == (server.system_identifier, server.database)
    if not is_own or server.wal_end < (at := log_position(log, server)):
        return None
    slot = server.slot
    if slot is None:
        return _to_the_end(log, at, server, GapReason.SLOT_MISSING, "does not exist any more")
    if slot.wal_status == "lost" or slot.restart_lsn is None or slot.invalidation_reason:
        why = slot.invalidation_reason or "the server removed WAL it needs"
        return _to_the_end(log, at, server, GapReason.SLOT_LOST, f"is lost ({why})")
    confirmed = slot.confirmed_flush_lsn
    if confirmed is not None and confirmed > at:
        text = f"slot {log.slot!r} was confirmed up to {confirmed}, the log is at {at}"
        return Gap(GapReason.SLOT_ADVANCED, at, confirmed, is_open=False, text=text)
    return None


def _to_the_end(
    log: LandingPosition, at: Lsn, server: ServerState, reason: GapReason, what: str
) -> Gap:
    end: Lsn = server.wal_end
    text = f"slot {log.slot!r} {what}; seen when the server's WAL ended at {end}"
    return Gap(reason, at, end, is_open=True, text=text)
