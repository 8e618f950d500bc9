"""Snapshots of existing rows."""

from typing import Final

from gaussdecode.metrics.metric import Metric, counter, gauge

SNAPSHOT: Final[tuple[Metric, ...]] = (
    gauge(
        "land_snapshot_pending_tables",
        "tables",
        "Tables whose existing rows are wanted and have not landed",
        "For long: transactions on the server run longer than snapshot.hold-timeout; see the log.",
    ),
    gauge(
        "land_snapshot_failed_tables",
        "tables",
        "Tables whose existing rows could not be landed, including those of suspect entries",
        "Above 0: /status and the log have the reason, and the command to try again.",
    ),
    gauge(
        "land_snapshot_unreadable_requests",
        "requests",
        "Snapshot requests that cannot be read and are skipped",
        "Above 0: `gaussdecode status` names the file. Remove it, and ask again.",
    ),
    counter(
        "land_snapshot_rows",
        "rows",
        "Rows read by snapshots since the start, including repeated reads",
    ),
    counter(
        "land_snapshot_bytes",
        "bytes",
        "Bytes of COPY read by snapshots since the start",
        "Limit it with snapshot.rate-limit if the server is overloaded.",
    ),
    gauge(
        "land_snapshot_estimated_rows",
        "rows",
        "Rows of the tables being read, as the server estimates",
    ),
    gauge("land_snapshot_chunks", "chunks", "Chunks of the tables being read"),
    gauge(
        "land_snapshot_chunks_done",
        "chunks",
        "Finished chunks of the tables being read; they are not read again after a restart",
        "Not rising: /status shows the reason.",
    ),
    gauge(
        "land_snapshot_left_seconds",
        "seconds",
        "Estimated time until the tables being read are finished",
        "More workers (snapshot.workers) make it shorter.",
    ),
    gauge(
        "land_snapshot_ignored_tables",
        "tables",
        "Tables of which nothing lands because they were added later and on-new-table is ignore",
        "Run gaussdecode snapshot to land a table; its changes land from then on.",
    ),
)
