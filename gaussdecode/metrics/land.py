"""The landing and its mirror."""

from typing import Final

from gaussdecode.metrics.metric import Metric, counter, gauge, histogram

LAND: Final[tuple[Metric, ...]] = (
    gauge(
        "land_durable_lsn",
        "lsn",
        "WAL position up to which everything has landed",
        "Constant while changes come: see the log and land_disk_full.",
    ),
    gauge("land_entry", "entries", "Number of the newest entry of the commit log"),
    counter("land_entries", "entries", "Entries committed"),
    counter(
        "land_files",
        "files",
        "Files committed",
        "Thousands per minute: raise max-commit-interval, or use fewer tables per slot.",
    ),
    counter("land_rows", "rows", "Rows committed"),
    counter("land_bytes", "bytes", "Bytes of the files committed"),
    gauge(
        "land_writer_lanes",
        "lanes",
        "Threads that encode Parquet",
        "With landing.writer-lanes auto: two, plus those added while cores were idle.",
    ),
    counter(
        "land_encoded_seconds",
        "seconds",
        "Total time that the writer lanes encoded Parquet, including the work in progress",
        "A rate near land_writer_lanes: the lanes are the limit.",
    ),
    counter(
        "land_synced_seconds",
        "seconds",
        "Part of land_encoded_seconds_total for syncing files",
        "Nearly all of it: the disk syncs slowly, or hangs.",
    ),
    counter(
        "land_synced_beside_seconds",
        "seconds",
        "Time in which threads beside the writer lanes synced files; two at once count once",
        "Nearly all of the time, while the lanes are idle: the disk syncs slowly, or hangs.",
    ),
    counter(
        "land_published_seconds",
        "seconds",
        "Time spent committing entries: sync, link, rename",
        "A rate above 0.25: the disk syncs slowly; the commit interval stretches by itself.",
    ),
    histogram(
        "land_commit_to_durable",
        "Time from the commit of each transaction at the source, by the source's clock, until "
        "its entry was durable; a clock difference shifts it, and negative times count as 0",
        "Up to max-commit-interval is usual. After a stop it is far higher, because waiting "
        "changes are old. Else lower the interval, or see which daemon_stage_seconds has risen.",
    ),
    gauge(
        "land_disk_full",
        "bool",
        "1 while landing waits for disk space",
        "Free disk space; landing then continues by itself. The server keeps WAL for the slot "
        "meanwhile.",
    ),
    gauge(
        "land_free_bytes",
        "bytes",
        "Free space on the landing's file system",
        "Alert well before land_min_free_bytes; shorten landing.retention or grow the disk.",
    ),
    gauge(
        "land_min_free_bytes",
        "bytes",
        "Space that is kept free: landing.min-free-bytes, or a hundredth of the file system",
        "When land_free_bytes is below it, nothing lands.",
    ),
    gauge(
        "land_mirror_up",
        "bool",
        "1 while requests to the mirror's store succeed; only shown with landing.mirror",
        "0: the log event mirror_failed has the reason: no answer, or a refusal. Landing "
        "continues here; with `confirm: mirror` the server keeps its WAL.",
    ),
    gauge(
        "land_mirror_entry", "entries", "Number of the newest entry in the mirror; -1 while unknown"
    ),
    gauge(
        "land_mirror_backlog_entries",
        "entries",
        "Entries that have landed and are not in the mirror yet",
        "Rising with land_mirror_up at 1: the store or the network is slower than the landing.",
    ),
    gauge(
        "land_mirror_backlog_bytes",
        "bytes",
        "Bytes of the files of entries that are not in the mirror yet",
    ),
    gauge(
        "land_mirror_backlog_seconds",
        "seconds",
        "Age of the oldest entry that is not in the mirror yet",
        "With `confirm: mirror`, the changes of this time would be read again if this host were "
        "lost.",
    ),
    counter("land_mirror_shipped_bytes", "bytes", "Bytes of the files shipped to the mirror"),
    counter(
        "land_mirror_errors",
        "errors",
        "Failed shipments to the mirror, after retries of single requests",
        "See mirror_failed in the log.",
    ),
    gauge(
        "land_full_seconds",
        "seconds",
        "Predicted time until land_free_bytes falls to land_min_free_bytes; not shown while free "
        "space does not shrink",
        "Alert well before: shorten landing.retention or grow the disk.",
    ),
    counter(
        "land_gap_entries",
        "entries",
        "Gaps written to the commit log: changes are missing",
        "Any growth: see `gaussdecode gaps ROOT`; readers stop there.",
    ),
    counter(
        "land_suspect_entries",
        "entries",
        "Landed transactions that the server may have sent incompletely",
        "Any growth: see `gaussdecode gaps ROOT` and compare these tables with the source.",
    ),
    gauge(
        "land_unread_suspect_entries",
        "entries",
        "Suspect entries since the start whose tables have not all been read again by a snapshot",
        "Above 0: see `gaussdecode gaps ROOT`. One that may mean any table needs an order of all.",
    ),
    counter(
        "land_quarantine_entries",
        "entries",
        "Tables quarantined since the start because their changes could not be landed",
        "Any growth: see `gaussdecode gaps ROOT`, then take a snapshot of the table.",
    ),
    gauge(
        "land_quarantined_tables",
        "tables",
        "Tables of which nothing lands until a snapshot of them",
        "Above 0: `gaussdecode status` names them; take a snapshot of each.",
    ),
    gauge(
        "land_lost_virtual_slots",
        "slots",
        "Virtual slots of gaussdecode serve that need entries which retention has removed",
        "Above 0: `gaussdecode status` names them; their clients have to begin anew.",
    ),
    gauge(
        "land_virtual_slot_held_bytes",
        "bytes",
        "Size of files that stay beyond landing.retention for virtual slots of gaussdecode serve alone",
        "Near land_virtual_slot_limit_bytes: a slot will be lost; see `gaussdecode status`.",
    ),
    gauge(
        "land_virtual_slot_limit_bytes",
        "bytes",
        "landing.max-slot-keep-size; not shown without a bound or without retention",
    ),
)
