"""The reader, the slot and its server."""

from typing import Final

from gaussdecode.metrics.metric import Metric, counter, gauge

SOURCE: Final[tuple[Metric, ...]] = (
    gauge(
        "source_connected",
        "bool",
        "1 while changes are streamed from the server",
        "0 for long: see the log for the reason. The server keeps WAL for the slot meanwhile.",
    ),
    counter("source_received_bytes", "bytes", "Bytes received from the server"),
    counter("source_received_messages", "messages", "Messages received from the server"),
    counter("source_dispatched_batches", "batches", "Batches given to the decoders"),
    gauge(
        "source_pace",
        "bool",
        "1 for the current pause between two reads of the socket; with a pause the server sends "
        "more at once; gather: no pause, wait until data is there",
        "Nothing; trials choose it. gather while little comes.",
        labels=("pace",),
    ),
    gauge(
        "source_pace_rate_bytes",
        "bytes",
        "Bytes per second with each pause when it was last used; 0: not tried in this session",
        "The highest is used. All alike: the limit is elsewhere.",
        labels=("pace",),
    ),
    counter("source_pace_changes", "changes", "Changes to another pause that was faster"),
    counter("source_pace_trials", "trials", "Trials of another pause"),
    gauge(
        "source_received_lsn",
        "lsn",
        "Highest WAL position received",
        "Constant while source_server_wal_end_lsn rises: a large transaction is open on the "
        "server, or the reader waits.",
    ),
    gauge("source_server_wal_end_lsn", "lsn", "Newest WAL position that the server reported"),
    gauge(
        "source_confirmed_lsn",
        "lsn",
        "Position last confirmed to the server",
        "Below land_durable_lsn for more than a few seconds: the connection hangs, or the store of the mirror is behind.",
    ),
    gauge(
        "source_lag_bytes",
        "bytes",
        "WAL between the server's end and the durable position, without WAL that a GaussDB "
        "server reported as having nothing for the slot; NaN where it is not known. While the "
        "server is away, the last lag that was known, if there was one",
        "Alert on growth: compare with max_slot_wal_keep_size, beyond which the slot is lost.",
    ),
    gauge(
        "source_lag_seconds",
        "seconds",
        "Age of the oldest commit that has not landed, by the commit times of the stream, else by "
        "the ends of WAL that were seen, and then an upper bound; grows while the server is away, "
        "and outlasts a restart; NaN where it is not known",
        "A few times max-commit-interval is usual. More: find the limiting stage, see "
        "daemon_limit.",
    ),
    gauge(
        "source_member_lag_bytes",
        "bytes",
        "Lag in bytes of each source; source_lag_bytes is the greatest; shown with several "
        "sources and in CSN order",
        "One far above the others: check that server and its stream; the others wait for it.",
        labels=("source",),
    ),
    gauge(
        "source_member_lag_seconds",
        "seconds",
        "Lag in seconds of each source; source_lag_seconds is the greatest, and NaN where that of a "
        "source is not known",
        "As source_member_lag_bytes.",
        labels=("source",),
    ),
    gauge(
        "source_silence_seconds",
        "seconds",
        "Time since the last byte from the server",
        "Near source.receiver-timeout: the daemon is about to close the connection.",
    ),
    counter("source_status_updates", "messages", "Positions sent to the server"),
    counter(
        "source_notices",
        "messages",
        "Notices from a GaussDB server inside the stream",
        "Any growth: see server_notice and rows_may_be_missing in the log, and "
        "land_suspect_entries_total.",
    ),
    counter(
        "source_streaming_fallbacks",
        "sessions",
        "Sessions without streaming after one with it failed",
        "Growing: the log event streaming_fallback has the reason; set source.streaming: off.",
    ),
    counter(
        "source_heartbeats",
        "messages",
        "Heartbeat records of a GaussDB server (enable-heartbeat)",
        "Constant with enable-heartbeat: the server's sender hangs.",
    ),
    gauge(
        "source_heartbeat_lsn",
        "lsn",
        "WAL position that a GaussDB server had read at its last heartbeat; never confirmed",
        "Far above source_received_lsn: the server's decoders are behind its reader.",
    ),
    gauge(
        "source_heartbeat_flushed_lsn",
        "lsn",
        "End of the WAL on a GaussDB server's disk at its last heartbeat; never confirmed",
        "Far above source_heartbeat_lsn: the server reads its WAL too slowly.",
    ),
    gauge(
        "source_heartbeat_timestamp_seconds",
        "seconds",
        "Unix time of the last record that a GaussDB server had decoded at its last heartbeat",
        "Far before now while changes are made: the server's decoding is behind.",
    ),
    counter("source_busy_seconds", "seconds", "Time that the reader worked"),
    counter(
        "source_stalled_seconds",
        "seconds",
        "Time that the reader waited for space in a read change queue",
        "A rate near 1: decoding or landing is the limit, not the server.",
    ),
    counter(
        "source_waited_seconds",
        "seconds",
        "Time that the reader waited for the server",
        "A rate near 1: idle, or with lag a slow server or network.",
    ),
    gauge(
        "source_retained_wal_bytes",
        "bytes",
        "WAL that the server keeps for the slot; not shown while the server cannot be asked",
        "Alert on growth: it fills the server's disk. Large while source_lag_bytes is small: an "
        "old transaction is open on the server.",
    ),
    gauge(
        "source_safe_wal_bytes",
        "bytes",
        "WAL that the server may still write before the slot can be lost; not shown without a "
        "limit",
        "Near 0: raise max_slot_wal_keep_size on the server now. Then find the limiting stage.",
    ),
    gauge(
        "source_invalidation_seconds",
        "seconds",
        "Predicted time until source_safe_wal_bytes is 0; not shown while the slot keeps up",
        "Alert well before: a lost slot is a gap that only a new snapshot closes.",
    ),
    gauge(
        "source_slot_lost",
        "bool",
        "1 when the slot is gone or the server has removed WAL it needs",
        "Changes are missing: see `gaussdecode gaps ROOT` for the positions.",
    ),
    gauge(
        "source_catalog_xmin_age_transactions",
        "transactions",
        "Age in transactions of the slot's catalog_xmin; not on GaussDB, whose transaction "
        "numbers have 64 bits",
        "Growing: see held_by in /status. VACUUM cannot freeze newer catalogue rows, and near 2 "
        "billion the server refuses to write.",
    ),
    gauge(
        "source_frozen_age_transactions",
        "transactions",
        "Age in transactions of the oldest unfrozen transaction number, over all databases of "
        "the server; not on GaussDB",
        "Above autovacuum_freeze_max_age: VACUUM does not finish. At 2 billion the server stops "
        "writing.",
    ),
    gauge(
        "source_oldest_transaction_seconds",
        "seconds",
        "Age of the oldest transaction on the server that has written; needs pg_read_all_stats; "
        "not shown without one",
        "Large: it holds back the slot's restart_lsn; end it.",
    ),
    gauge(
        "source_oldest_prepared_seconds",
        "seconds",
        "Age of the oldest prepared transaction on the server; not shown without one",
        "Large: it holds back the slot's restart_lsn. Run COMMIT PREPARED or ROLLBACK PREPARED.",
    ),
    counter(
        "source_server_spilled_bytes",
        "bytes",
        "Bytes that the server wrote to its disk while decoding, from pg_stat_replication_slots",
        "Growing with lag: raise logical_decoding_work_mem on the server.",
    ),
    gauge(
        "source_unlisted_tables",
        "tables",
        "Published tables that are not on white-table-list, so that none of their changes land",
        "Add them to the list, or remove them from the publication; `gaussdecode check` names "
        "them.",
    ),
    gauge(
        "source_unpublished_items",
        "items",
        "Items of white-table-list that no published table matches",
        "Correct the list, or add the tables to the publication; `gaussdecode check` names them.",
    ),
)
