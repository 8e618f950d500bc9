"""The collector."""

from typing import Final

from gaussdecode.metrics.metric import Metric, counter, gauge

COLLECT: Final[tuple[Metric, ...]] = (
    gauge(
        "collect_open_transactions",
        "transactions",
        "Transactions begun and not yet committed",
        "High for long: applications keep transactions open; these hold memory and WAL.",
    ),
    gauge(
        "collect_open_bytes",
        "bytes",
        "Memory held by open transactions",
        "Near max-reorderbuffer-in-memory or landing.memory-bytes: transactions go to disk.",
    ),
    gauge(
        "collect_pending_bytes",
        "bytes",
        "Memory held by released changes that are not yet landed",
        "Near landing.memory-bytes: files are written before they reach their size.",
    ),
    gauge(
        "collect_spooled_bytes",
        "bytes",
        "Bytes of open transactions on disk, in spool/",
        "Large: check the disk's free space; raise max-txn-in-memory if memory is free.",
    ),
    gauge(
        "collect_spooled_batches",
        "batches",
        "Decoded batches of open transactions on disk, in spool/; they have left the decode "
        "change queue",
        "Large with empty queues: transactions are open; the decoders do not wait.",
    ),
    gauge(
        "collect_spool_full",
        "bool",
        "1 while a transaction needs more space than landing.spool-bytes, and nothing is received",
        "It does not end by itself: raise landing.spool-bytes and restart the daemon.",
    ),
    counter(
        "collect_unread_ddl",
        "messages",
        "Messages with prefix gaussdecode.ddl that could not be read as DDL; they land with their content "
        "alone",
        "Any growth: see content in the newest files of gd_ddl, and who sends such messages.",
    ),
    counter(
        "collect_spooled_transactions",
        "transactions",
        "Transactions that went to disk before they committed",
        "Growing fast: raise max-txn-in-memory.",
    ),
    counter(
        "collect_streamed_transactions",
        "transactions",
        "Released transactions that the server streamed while they were open",
    ),
    counter(
        "collect_aborted_transactions",
        "transactions",
        "Streamed transactions that were rolled back; nothing of them lands",
        "Growing: an application rolls large transactions back.",
    ),
    counter(
        "collect_stray_rollbacks",
        "messages",
        "Rollbacks of transactions that the server never streamed; some versions send them",
    ),
    gauge(
        "collect_prepared_transactions",
        "transactions",
        "Prepared transactions whose rows wait here for COMMIT PREPARED or ROLLBACK PREPARED",
    ),
    gauge(
        "collect_prepared_seconds",
        "seconds",
        "Age of the oldest waiting prepared transaction; 0 without one",
        "Large: it was probably forgotten. Run COMMIT PREPARED or ROLLBACK PREPARED on the server.",
    ),
    gauge(
        "collect_turn_waiting_transactions",
        "transactions",
        "Ended transactions of each source that wait for their turn by CSN",
        "Growing: see collect_turn_held_seconds for the delaying source.",
        labels=("source",),
    ),
    gauge(
        "collect_turn_held_seconds",
        "seconds",
        "Time that the current CSN mark has waited for a source; 0 if it does not wait for it",
        "Above a few seconds: `gaussdecode status` shows the reason. Nothing of any source lands "
        "meanwhile.",
        labels=("source",),
    ),
    gauge(
        "collect_watermark_csn",
        "csn",
        "CSN up to which everything of a source has landed; equal for all sources",
        "Constant: see collect_turn_held_seconds.",
        labels=("source",),
    ),
    counter("collect_transactions", "transactions", "Committed transactions released"),
    counter("collect_rows", "rows", "Rows released in commit order"),
    counter(
        "collect_skipped_transactions",
        "transactions",
        "Transactions that the server sent again and that had already landed",
        "Some after each restart are usual.",
    ),
    counter(
        "collect_foreign_transactions",
        "transactions",
        "Transactions left out here: with a replication origin, or before start-position. "
        "Without source.two-phase, PostgreSQL 16 and later leaves out those with an origin itself",
        "Set only-local: false, or replay with --all-origins, to land changes with an origin.",
    ),
    counter(
        "collect_suspect_transactions",
        "transactions",
        "Transactions that a GaussDB server reported as possibly incomplete, because of DDL in "
        "them",
        "Any growth: see `gaussdecode gaps ROOT`, and compare their tables with the source.",
    ),
    counter(
        "collect_settled_transactions",
        "transactions",
        "Transactions of collect_suspect_transactions that lost nothing, as the server's WAL shows",
    ),
    counter(
        "collect_left_out_rows",
        "rows",
        "Rows, truncates and logical messages that the reader counted and that do not land, by "
        "reason",
        "origin, where wanted changes have a replication origin: set only-local: false. "
        "not-wanted: `gaussdecode status` names the tables that are left out.",
        labels=("reason",),
    ),
    counter(
        "collect_empty_transactions",
        "transactions",
        "Transactions without rows; only their position lands",
        "Nothing by itself; they let an idle slot advance.",
    ),
    counter(
        "collect_waited_seconds",
        "seconds",
        "Time that the collector waited for decoders",
        "A rate near 1 with lag: an earlier stage is the limit.",
    ),
    counter(
        "collect_busy_seconds",
        "seconds",
        "Time that the collector worked, including its waits for the writer",
        "Compare with collect_blocked_seconds_total.",
    ),
    counter(
        "collect_blocked_seconds",
        "seconds",
        "Time that the collector waited for the writer",
        "A rate near 1: encoding or committing is the limit.",
    ),
)
