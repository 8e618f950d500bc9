"""List the states of a daemon: possible problems, their severity, and the interfaces that show them.

One row per state, the worst first. `gaussdecode status`, ``/readyz``, the page and ``/status`` read the
table. Tests compare the alert rules of config/prometheus/ with it. Pure: the caller gives the daemon's
data. `trouble` says what the columns mean.
"""

import math
from collections.abc import Callable
from typing import Final

from gaussdecode.daemon.status.expiry import ending, wraparound
from gaussdecode.daemon.status.holders import HOLDERS
from gaussdecode.daemon.status.limit import Stage
from gaussdecode.daemon.status.seen import HOUR, PREFIX, WINDOW_SECONDS, Seen, pasted
from gaussdecode.daemon.status.text import size, span
from gaussdecode.daemon.status.trouble import Severity, State, Told, Trouble, rank
from gaussdecode.model.words import counted

# As the rules have them; a test compares.
LAG_BYTES: Final = 10e9
RETAINED_BYTES: Final = 4e9
NO_PROGRESS_SECONDS: Final = 600.0
PREPARED_SECONDS: Final = 3600.0
HELD_SECONDS: Final = 300.0
RESTART_SECONDS: Final = 1800.0
VIRTUAL_SLOT_SHARE: Final = 0.8
_STALLED: Final = 0.5
_ENDS_SOON: Final = 2 * HOUR


def find_troubles(seen: Seen) -> list[Trouble]:
    """Name all states that are so now, the worst first."""
    told = [(state, state.tell(seen)) for state in STATES if state.tell is not None]
    found = [Trouble(state, *words) for state, words in told if words is not None]
    return sorted(found, key=lambda trouble: rank(trouble.state.severity))


# ---- how each is seen ----------------------------------------------------------------------


def _slot_lost(seen: Seen) -> Told | None:
    if not seen.get("source_slot_lost"):
        return None
    return Told(
        "The slot is lost: the server has removed changes that were not read yet.",
        f"Run {seen.command('gaps', str(seen.root))} for the positions. "
        f"{seen.command('slot', 'accept-gap', str(seen.config))} continues after them.",
    )


def _slot_near_its_end(seen: Seen) -> Told | None:
    end = seen.get("source_invalidation_seconds")
    if end is None or end >= (seen.warn_before or _ENDS_SOON):
        return None
    held = seen.total("source_retained_wal_bytes") + seen.total("source_safe_wal_bytes")
    limit = f"'{2 * math.ceil(held / (1 << 30))}GB'" if held else "'...'"
    return Told(
        f"The slot may be lost in {span(end)}: then the WAL for it reaches the server's limit.",
        "Double the limit on the server now, if its disk has the space: `ALTER SYSTEM SET "
        f"max_slot_wal_keep_size = {limit}; SELECT pg_reload_conf();`. Then find the limiting "
        "stage.",
    )


def _gap(seen: Seen) -> Told | None:
    if not seen.is_recent("land_gap_entries_total"):
        return None
    return Told(
        "A gap was recorded: changes are missing.",
        f"Run {seen.command('gaps', str(seen.root))} for the positions. Readers stop there.",
    )


def _disk_full(seen: Seen) -> Told | None:
    if not seen.get("land_disk_full"):
        return None
    free, kept = seen.get("land_free_bytes") or 0.0, seen.get("land_min_free_bytes") or 0.0
    how = "is full"
    if 0 < free < kept:
        how = f"has {size(free)} left; landing.min-free-bytes is {size(kept)}"
    waits = f": {seen.reason}" if seen.reason else ""
    return Told(
        f"The landing's disk {how}{waits}. Nothing lands, and the server keeps WAL for the slot.",
        f"Free space on its file system, {pasted('df', '-h', str(seen.root))}. Landing then "
        "continues by itself.",
    )


def _spool_full(seen: Seen) -> Told | None:
    if not seen.get("collect_spool_full"):
        return None
    why = seen.spool_reason or "a transaction needs more space than landing.spool-bytes"
    return Told(
        f"Nothing is received any more: {why}. The server keeps WAL for the slot.",
        "Waiting does not help. Set landing.spool-bytes higher, or to none, if the disk has the "
        f"space. Then restart the daemon, {pasted('systemctl', 'restart', seen.unit)}; nothing is "
        "lost.",
    )


def _disk_filling(seen: Seen) -> Told | None:
    full = seen.get("land_full_seconds")
    if seen.get("land_disk_full") or full is None or full >= (seen.warn_before or _ENDS_SOON):
        return None
    return Told(
        f"The landing's disk will be full in {span(full)} at the current rate.",
        "Shorten landing.retention or grow the disk.",
    )


def _mirror_away(seen: Seen) -> Told | None:
    if seen.get("land_mirror_up") != 0.0:
        return None
    waiting = counted(
        round(seen.get("land_mirror_backlog_entries") or 0), "entry waits", "entries wait"
    )
    return Told(
        f"The mirror's store does not accept entries: {waiting} here.",
        f"{seen.command('check', str(seen.config))} shows what is wrong with the store. Waiting "
        "entries are shipped when it is back.",
    )


def _standing(*states: str) -> Callable[[Seen], Told | None]:
    def tell(seen: Seen) -> Told | None:
        if seen.state not in states:
            return None
        return Told(
            f"Not streaming: {seen.reason or seen.state}.",
            f"If it does not pass, {seen.command('check', str(seen.config))} shows what is wrong. The "
            "server keeps WAL for the slot meanwhile.",
        )

    return tell


def _process_stopped(seen: Seen) -> Told | None:
    if not seen.stopped:
        return None
    return Told(
        " ".join(of.what for of in seen.stopped), " ".join(of.action for of in seen.stopped)
    )


def _paused(seen: Seen) -> Told | None:
    if seen.pause is None:
        return None
    return Told(
        f"The landing is {seen.pause}. Nothing lands, and the server keeps WAL for the slot.",
        f"{seen.command('ctl', str(seen.config), 'resume')} goes on. So does a restart.",
    )


def _no_progress(seen: Seen) -> Told | None:
    age = seen.ages.get("land_durable_lsn", 0.0)
    lag = seen.get("source_lag_bytes") or 0.0
    if seen.state != "streaming" or age < NO_PROGRESS_SECONDS or not lag > 0:
        return None
    return Told(
        f"Nothing has landed for {span(age)}, although changes wait.",
        "Wait for the end of a large transaction that has committed and is still being sent: the "
        f"received bytes rise. If they stand still, look for a stage that hangs, {seen.log}.",
    )


def _quarantined(seen: Seen) -> Told | None:
    count = seen.get("land_quarantined_tables")
    if not count:
        return None
    return Told(
        f"{counted(round(count), 'table')} in quarantine: nothing of them lands.",
        f"Run {seen.command('gaps', str(seen.root))} for the reasons. Then take a snapshot of "
        f"each: {seen.command('snapshot', str(seen.config), '--table', 'NAME')}.",
    )


def _snapshot_failed(seen: Seen) -> Told | None:
    count = seen.get("land_snapshot_failed_tables")
    if not count:
        return None
    return Told(
        f"The existing rows of {counted(round(count), 'table')} could not be landed.",
        f"{seen.command('status', str(seen.config))} shows the reason for each, and how to try "
        "again.",
    )


def _snapshot_request(seen: Seen) -> Told | None:
    if not seen.faults:
        return None
    return Told(
        f"A snapshot request cannot be read: {'; '.join(seen.faults)}.",
        f"Remove the file, and run {seen.command('snapshot', str(seen.config))} again.",
    )


def _suspects(seen: Seen) -> Told | None:
    if not seen.is_recent("land_suspect_entries_total"):
        return None
    if seen.get("land_unread_suspect_entries") == 0:  # all of their tables were read again
        return None
    return Told(
        "Transactions may be incomplete: the server reported it, or a publication was changed.",
        f"Run {seen.command('gaps', str(seen.root))}, and compare these tables with the source. "
        "Or set landing.on-suspect: snapshot, to read such tables again.",
    )


_MISFITS: Final = (
    (
        ("decode_misfit_values_total", "value"),
        "did not fit their column since the start, and are kept as text in gd_raw.",
        "See gd_raw in the newest files; nothing is lost.",
    ),
    (
        ("collect_unread_ddl_total", "message"),
        "with prefix gaussdecode.ddl could not be read as DDL since the start.",
        "See content in the newest files of gd_ddl; nothing is lost.",
    ),
)


def _misfits(seen: Seen) -> Told | None:
    found = [of for of in _MISFITS if seen.is_recent(of[0][0])]
    texts = (f"{counted(round(seen.total(of)), noun)} {what}" for (of, noun), what, _ in found)
    return Told(" ".join(texts), " ".join(of[2] for of in found)) if found else None


def _not_streamed(seen: Seen) -> Told | None:
    if not seen.is_recent("source_streaming_fallbacks_total"):
        return None
    return Told(
        "A transaction could not be received while it was open. Sessions now ask for whole "
        "transactions.",
        f"The reason: {seen.log}. If it happens again, set source.streaming: off.",
    )


def _prepared_long(seen: Seen) -> Told | None:
    age = seen.get("collect_prepared_seconds") or 0.0
    if age < PREPARED_SECONDS:
        return None
    count = counted(round(seen.get("collect_prepared_transactions") or 0.0), "prepared transaction")
    return Told(
        f"{count} {'waits' if count.startswith('1 ') else 'wait'}, the oldest for {span(age)}.",
        f"Find it on the server, `{HOLDERS['prepared'].query}`, and end it. Its rows wait in "
        "prepared/ of the landing.",
    )


def _turns_held(seen: Seen) -> Told | None:
    held = seen.values.get(f"{PREFIX}collect_turn_held_seconds", {})
    (name,), age = max(held.items(), key=lambda item: item[1], default=(("",), 0.0))
    if age <= HELD_SECONDS:
        return None
    return Told(
        f"The CSN mark has waited for source {name} for {span(age)}. Nothing of any source lands.",
        f"{seen.command('status', str(seen.config))} names the transaction, or shows that the "
        "server does not send. Look there for a long transaction, "
        f"`{HOLDERS['transaction'].query}`, or a prepared one, `{HOLDERS['prepared'].query}`, and "
        "end it.",
    )


def _guard_blind(seen: Seen) -> Told | None:
    if seen.guard_reason is None or seen.state != "streaming":
        return None
    return Told(
        f"The slot cannot be watched: {seen.guard_reason}",
        "Let the role open one more connection (CONNECTION LIMIT, pg_hba.conf).",
    )


def _certificate_ends(seen: Seen) -> Told | None:
    ends = seen.values.get(f"{PREFIX}daemon_certificate_end_time_seconds", {})
    told = (ending(name, end, seen.now) for (name,), end in ends.items())
    texts = [*filter(None, told)]
    if not texts:
        return None
    return Told(
        " ".join(texts),
        "Write a new certificate and its key into the same files. The daemon takes them at the next "
        "connection, without a restart.",
    )


def _lag_seconds(seen: Seen) -> Told | None:
    lag = seen.get("source_lag_seconds") or 0.0
    if not lag > seen.usual_lag_seconds:  # also where it is not known
        return None
    how = "" if seen.limit.setting is None else f" Remedy: {seen.limit.setting}."
    return Told(
        f"The landing is {span(lag)} behind.",
        f"{seen.limit.sentence}{how}"
        if seen.limit.stage is not Stage.NONE
        else f"See the log: {seen.log}.",
    )


def _lag_bytes(seen: Seen) -> Told | None:
    lag = seen.get("source_lag_bytes") or 0.0
    if not lag > LAG_BYTES:
        return None
    return Told(
        f"The landing is {size(lag)} of WAL behind.",
        "Find the limiting stage; compare with the server's max_slot_wal_keep_size.",
    )


def _retained(seen: Seen) -> Told | None:
    kept = seen.get("source_retained_wal_bytes") or 0.0
    if kept <= RETAINED_BYTES or seen.retained_rate <= 0:
        return None
    return Told(
        f"The server keeps {size(kept)} of WAL for the slot, and it grows.",
        "Without lag the reason is an old open transaction on the server, "
        f"`{HOLDERS['transaction'].query}`, or a prepared one, `{HOLDERS['prepared'].query}`.",
    )


def _wraparound(seen: Seen) -> Told | None:
    kept, frozen = "source_catalog_xmin_age_transactions", "source_frozen_age_transactions"
    return wraparound(seen.get(kept) or 0.0, seen.get(frozen) or 0.0)


def _virtual_slot_lost(seen: Seen) -> Told | None:
    lost = seen.get("land_lost_virtual_slots") or 0
    if not lost:
        return None
    slots = "1 virtual slot is" if lost == 1 else f"{lost:.0f} virtual slots are"
    return Told(
        f"{slots} lost: retention has removed what clients of gaussdecode serve had not confirmed.",
        f"{seen.command('status', str(seen.config))} names them. Drop each, create it anew, and bring the "
        "rows on the client's side up to date from the source.",
    )


def _virtual_slot_near_its_end(seen: Seen) -> Told | None:
    held = seen.get("land_virtual_slot_held_bytes") or 0.0
    limit = seen.get("land_virtual_slot_limit_bytes")
    if limit is None or held <= VIRTUAL_SLOT_SHARE * limit:
        return None
    return Told(
        f"{size(held)} of files stay for a virtual slot of gaussdecode serve alone. Above "
        f"{size(limit)} the slot is lost.",
        f"{seen.command('status', str(seen.config))} names the slot that is furthest behind. Have its client go "
        "on, or drop it. If the disk has the space, raise landing.max-slot-keep-size and reload.",
    )


def _serve_away(seen: Seen) -> Told | None:
    if seen.get("daemon_serve_up") != 0.0:
        return None
    return Told(
        f"Clients of the landing are not served: {seen.serve_reason or 'the server starts again'}.",
        (
            f"It is started again by itself. {seen.command('check', str(seen.config))} shows what is wrong with the "
            "section `serve`. The landing goes on."
        ),
    )


def _queues_full(seen: Seen) -> Told | None:
    rates = seen.rates
    if rates is None or rates.at < WINDOW_SECONDS / 2:  # catching up after a start is no trouble
        return None
    decoders = rates.decode_waited_output_seconds_total / seen.decoder_count
    waits = max(rates.source_stalled_seconds_total, decoders)
    if waits <= _STALLED:
        return None
    return Told(
        f"A stage has waited for space {min(waits, 1):.0%} of the last {span(rates.at)}.",
        "This limits the throughput. If there is lag, see the limit on the status page.",
    )


def _reconnects(seen: Seen) -> Told | None:
    if not seen.is_recent("daemon_restarts_total", RESTART_SECONDS):
        return None
    count = counted(round(seen.total("daemon_restarts_total")), "time")
    return Told(
        f"The stream ended in an error {count} since the start.", f"The reasons: {seen.log}."
    )


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_NOT_STREAMING: Final = "GaussdecodeNotStreaming"
# What may be nothing but a consequence, each with what follows from it in turn.
_KEPT: Final = frozenset({"wal-retained"})
_LATE: Final = _KEPT | {"lagging", "lagging-bytes", "queues-full"}
_STUCK: Final = _LATE | {"no-progress"}
_AWAY: Final = _LATE | {"reconnecting"}

STATES: Final[tuple[State, ...]] = (
    State(
        "slot-lost",
        _E,
        "GaussdecodeSlotLost",
        _slot_lost,
        is_unready=True,
        explains=_AWAY | {"gap", "slot-near-its-end", "not-streaming", "not-yet-streaming"},
    ),
    State("gap", _E, "GaussdecodeGap", _gap),
    State("slot-near-its-end", _E, "GaussdecodeSlotNearInvalidation", _slot_near_its_end),
    State(
        "disk-full",
        _E,
        "GaussdecodeDiskFull",
        _disk_full,
        is_unready=True,
        explains=_STUCK | _AWAY | {"not-yet-streaming"},
    ),
    State("spool-full", _E, "GaussdecodeSpoolFull", _spool_full, is_unready=True, explains=_STUCK),
    State(
        "not-streaming",
        _E,
        _NOT_STREAMING,
        _standing("retrying", "refused"),
        is_unready=True,
        explains=_AWAY,
    ),
    State(
        "process-stopped",
        _E,
        "GaussdecodeNoProgress",
        _process_stopped,
        is_unready=True,
        explains=_STUCK,
    ),
    State("no-progress", _E, "GaussdecodeNoProgress", _no_progress, explains=_LATE),
    State("quarantined", _E, "GaussdecodeQuarantinedTables", _quarantined),
    State("snapshot-failed", _E, "GaussdecodeSnapshotFailed", _snapshot_failed),
    State("snapshot-request", _E, "GaussdecodeSnapshotFailed", _snapshot_request),
    State("suspect", _E, "GaussdecodeSuspectTransactions", _suspects),
    State("virtual-slot-lost", _E, "GaussdecodeVirtualSlotLost", _virtual_slot_lost),
    State("down", _E, "GaussdecodeDown", None, is_unready=True),
    State("paused", _W, "GaussdecodePaused", _paused, is_unready=True, explains=_STUCK),
    State("disk-filling", _W, "GaussdecodeDiskFillingUp", _disk_filling),
    State("mirror-away", _W, "GaussdecodeMirrorAway", _mirror_away),
    State(
        "virtual-slot-near-its-end",
        _W,
        "GaussdecodeVirtualSlotNearItsEnd",
        _virtual_slot_near_its_end,
    ),
    State("serve-away", _W, "GaussdecodeServeAway", _serve_away),
    State("client-behind", _W, "GaussdecodeClientBehind", None),
    State("certificate-ends", _W, "GaussdecodeCertificateEnds", _certificate_ends),
    State("guard-blind", _W, "GaussdecodeGuardBlind", _guard_blind),
    State("lagging", _W, "GaussdecodeLagSeconds", _lag_seconds, explains=_LATE - {"lagging"}),
    State(
        "lagging-bytes",
        _W,
        "GaussdecodeLagBytes",
        _lag_bytes,
        explains=_LATE - {"lagging", "lagging-bytes"},
    ),
    State("wal-retained", _W, "GaussdecodeRetainedWalGrowing", _retained),
    State("wraparound", _W, "GaussdecodeWraparound", _wraparound),
    State("queues-full", _W, "GaussdecodeQueueFull", _queues_full),
    State("misfits", _W, "GaussdecodeMisfitValues", _misfits),
    State("not-streamed", _W, "GaussdecodeNotStreamed", _not_streamed),
    State("prepared-long", _W, "GaussdecodePreparedLong", _prepared_long),
    State("turns-held", _W, "GaussdecodeTurnsHeld", _turns_held, explains=_STUCK),
    State("reconnecting", _W, "GaussdecodeReconnects", _reconnects),
    State("restarting", _W, "GaussdecodeRestarts", None),
    State(
        "not-yet-streaming",
        _N,
        _NOT_STREAMING,
        _standing("starting", "connecting", "stopping"),
        is_unready=True,
        explains=_AWAY,
    ),
)
