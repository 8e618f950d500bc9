"""Declare all metrics, one row each, and show them to Prometheus.

Names are ``gaussdecode_<stage>_<subject>_<unit>[_total]``, in bytes and seconds; every series has the label
``slot``. Nothing is counted here: the stages count in plain numbers, and a scrape asks the supervisor for a
reading of them, so that the hot path pays nothing. Table names are no labels: there may be thousands, and they
would tell too much. docs/metrics.md is generated from this table.
"""

import dataclasses
import enum
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client import generate_latest as _generate

from gaussdecode.model.exposition import label_value
from gaussdecode.model.histogram import BOUNDS, Counted

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LABELS: Final = frozenset({"decoder", "stage", "reason", "version", "process", "source", "pace"})

Labels = tuple[str, ...]
Snapshot = Mapping[str, Mapping[Labels, float]]
_BUCKETS: Final = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


class Kind(enum.StrEnum):
    """Prometheus's types that we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: name as Prometheus shows it.
        kind: counter, gauge or histogram.
        unit: unit of the value; ``bool`` for 0 and 1.
        help: meaning, one sentence without a full stop.
        action: advice when it moves.
        labels: besides ``slot``, in the order of the snapshot's label tuples.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    action: str
    labels: Labels = ()

    @property
    def series(self) -> Mapping[str, Labels]:
        """Names under which a snapshot holds its values, and the labels of each."""
        if self.kind is not Kind.HISTOGRAM:
            return {self.name: self.labels}
        return {
            f"{self.name}_bucket": (*self.labels, "le"),
            f"{self.name}_sum": self.labels,
            f"{self.name}_count": self.labels,
        }


def _counter(name: str, unit: str, help_text: str, action: str, *labels: str) -> Metric:
    return Metric(f"gaussdecode_{name}_total", Kind.COUNTER, unit, help_text, action, labels)


def _gauge(name: str, unit: str, help_text: str, action: str, *labels: str) -> Metric:
    return Metric(f"gaussdecode_{name}", Kind.GAUGE, unit, help_text, action, labels)


def _histogram(name: str, help_text: str, action: str, *labels: str) -> Metric:
    return Metric(
        f"gaussdecode_{name}_seconds", Kind.HISTOGRAM, "seconds", help_text, action, labels
    )


STAGE_SECONDS: Final = "gaussdecode_daemon_stage_seconds"
_NOTHING: Final = "Nothing by itself; it is the base of rates."

METRICS: Final[tuple[Metric, ...]] = (
    _gauge(
        "read_change_queue_length",
        "entries",
        "Length of the queue of batches that wait to be decoded, per decoder; "
        "parallel-queue-size when it is full by batches or by bytes",
        "Near 0 with lag: the server or the network is the limit. Near parallel-queue-size: the "
        "limit is the decoders or a later stage; see decode_change_queue_length.",
        "decoder",
    ),
    _gauge(
        "decode_change_queue_length",
        "entries",
        "Length of the queue of decoded batches that wait for the collector, per decoder; "
        "parallel-queue-size when it is full",
        "Near 0 with a full read queue: raise parallel-decode-num. High: landing is the limit. "
        "See land_encoded_seconds_total; raise landing.writer-lanes or use a faster disk.",
        "decoder",
    ),
    _gauge(
        "read_change_queue_entries",
        "entries",
        "Batches that wait to be decoded",
        _NOTHING,
        "decoder",
    ),
    _gauge(
        "read_change_queue_bytes",
        "bytes",
        "Room that they take",
        "Near ring.raw-ring-bytes with few entries: the byte limit applies; larger rings only "
        "help with short peaks.",
        "decoder",
    ),
    _gauge(
        "decode_change_queue_entries",
        "entries",
        "Decoded batches that wait for the collector",
        _NOTHING,
        "decoder",
    ),
    _gauge(
        "decode_change_queue_bytes",
        "bytes",
        "Room that they take",
        "Near ring.decoded-ring-bytes with few entries: the byte limit applies.",
        "decoder",
    ),
    _gauge(
        "source_connected",
        "bool",
        "1 while changes are streamed from the server",
        "0 for long: see the log for the reason. The server keeps WAL for the slot meanwhile.",
    ),
    _counter("source_received_bytes", "bytes", "Bytes received from the server", _NOTHING),
    _counter("source_received_messages", "messages", "Messages received from the server", _NOTHING),
    _counter("source_dispatched_batches", "batches", "Batches given to the decoders", _NOTHING),
    _gauge(
        "source_pace",
        "bool",
        "1 for the current pause between two reads of the socket; with a pause the server sends "
        "more at once; gather: no pause, wait until data is there",
        "Nothing; trials choose it. gather while little comes.",
        "pace",
    ),
    _gauge(
        "source_pace_rate_bytes",
        "bytes",
        "Bytes per second with each pause when it was last used; 0: not tried in this session",
        "The highest is used. All alike: the limit is elsewhere.",
        "pace",
    ),
    _counter(
        "source_pace_changes", "changes", "Changes to another pause that was faster", _NOTHING
    ),
    _counter("source_pace_trials", "trials", "Trials of another pause", _NOTHING),
    _gauge(
        "source_received_lsn",
        "lsn",
        "Highest WAL position received",
        "Constant while source_server_wal_end_lsn rises: a large transaction is open on the "
        "server, or the reader waits.",
    ),
    _gauge(
        "source_server_wal_end_lsn", "lsn", "Newest WAL position that the server reported", _NOTHING
    ),
    _gauge(
        "source_confirmed_lsn",
        "lsn",
        "Position last confirmed to the server",
        "Below land_durable_lsn for more than a few seconds: the connection hangs, or the store of the mirror is behind.",
    ),
    _gauge(
        "source_lag_bytes",
        "bytes",
        "WAL between the server's end and the durable position, without WAL that a GaussDB "
        "server reported as having nothing for the slot",
        "Alert on growth: compare with max_slot_wal_keep_size, beyond which the slot is lost.",
    ),
    _gauge(
        "source_lag_seconds",
        "seconds",
        "Age of the oldest WAL end seen on the server that is not yet durable; WAL without "
        "changes for the slot does not count",
        "A few times max-commit-interval is usual. More: find the limiting stage, see "
        "daemon_limit.",
    ),
    _gauge(
        "source_member_lag_bytes",
        "bytes",
        "Lag in bytes of each source; source_lag_bytes is the greatest; shown with several "
        "sources and in CSN order",
        "One far above the others: check that server and its stream; the others wait for it.",
        "source",
    ),
    _gauge(
        "source_member_lag_seconds",
        "seconds",
        "Lag in seconds of each source; source_lag_seconds is the greatest",
        "As source_member_lag_bytes.",
        "source",
    ),
    _gauge(
        "source_silence_seconds",
        "seconds",
        "Time since the last byte from the server",
        "Near source.receiver-timeout: the daemon is about to close the connection.",
    ),
    _counter("source_status_updates", "messages", "Positions sent to the server", _NOTHING),
    _counter(
        "source_notices",
        "messages",
        "Notices from a GaussDB server inside the stream",
        "Any growth: see server_notice and rows_may_be_missing in the log, and "
        "land_suspect_entries_total.",
    ),
    _counter(
        "source_streaming_fallbacks",
        "sessions",
        "Sessions without streaming after one with it failed",
        "Growing: the log event streaming_fallback has the reason; set source.streaming: off.",
    ),
    _counter(
        "source_heartbeats",
        "messages",
        "Heartbeat records of a GaussDB server (enable-heartbeat)",
        "Constant with enable-heartbeat: the server's sender hangs.",
    ),
    _gauge(
        "source_heartbeat_lsn",
        "lsn",
        "WAL position that a GaussDB server had read at its last heartbeat; never confirmed",
        "Far above source_received_lsn: the server's decoders are behind its reader.",
    ),
    _gauge(
        "source_heartbeat_flushed_lsn",
        "lsn",
        "End of the WAL on a GaussDB server's disk at its last heartbeat; never confirmed",
        "Far above source_heartbeat_lsn: the server reads its WAL too slowly.",
    ),
    _gauge(
        "source_heartbeat_timestamp_seconds",
        "seconds",
        "Unix time of the last record that a GaussDB server had decoded at its last heartbeat",
        "Far before now while changes are made: the server's decoding is behind.",
    ),
    _counter("source_busy_seconds", "seconds", "Time that the reader worked", _NOTHING),
    _counter(
        "source_stalled_seconds",
        "seconds",
        "Time that the reader waited for space in a read change queue",
        "A rate near 1: decoding or landing is the limit, not the server.",
    ),
    _counter(
        "source_waited_seconds",
        "seconds",
        "Time that the reader waited for the server",
        "A rate near 1: idle, or with lag a slow server or network.",
    ),
    _gauge(
        "source_retained_wal_bytes",
        "bytes",
        "WAL that the server keeps for the slot; not shown while the server cannot be asked",
        "Alert on growth: it fills the server's disk. Large while source_lag_bytes is small: an "
        "old transaction is open on the server.",
    ),
    _gauge(
        "source_safe_wal_bytes",
        "bytes",
        "WAL that the server may still write before the slot can be lost; not shown without a "
        "limit",
        "Near 0: raise max_slot_wal_keep_size on the server now. Then find the limiting stage.",
    ),
    _gauge(
        "source_invalidation_seconds",
        "seconds",
        "Predicted time until source_safe_wal_bytes is 0; not shown while the slot keeps up",
        "Alert well before: a lost slot is a gap that only a new snapshot closes.",
    ),
    _gauge(
        "source_slot_lost",
        "bool",
        "1 when the slot is gone or the server has removed WAL it needs",
        "Changes are missing: see `gaussdecode gaps ROOT` for the positions.",
    ),
    _gauge(
        "source_catalog_xmin_age_transactions",
        "transactions",
        "Age in transactions of the slot's catalog_xmin; not on GaussDB, whose transaction "
        "numbers have 64 bits",
        "Growing: see held_by in /status. VACUUM cannot freeze newer catalogue rows, and near 2 "
        "billion the server refuses to write.",
    ),
    _gauge(
        "source_frozen_age_transactions",
        "transactions",
        "Age in transactions of the oldest unfrozen transaction number, over all databases of "
        "the server; not on GaussDB",
        "Above autovacuum_freeze_max_age: VACUUM does not finish. At 2 billion the server stops "
        "writing.",
    ),
    _gauge(
        "source_oldest_transaction_seconds",
        "seconds",
        "Age of the oldest transaction on the server that has written; needs pg_read_all_stats; "
        "not shown without one",
        "Large: it holds back the slot's restart_lsn; end it.",
    ),
    _gauge(
        "source_oldest_prepared_seconds",
        "seconds",
        "Age of the oldest prepared transaction on the server; not shown without one",
        "Large: it holds back the slot's restart_lsn. Run COMMIT PREPARED or ROLLBACK PREPARED.",
    ),
    _counter(
        "source_server_spilled_bytes",
        "bytes",
        "Bytes that the server wrote to its disk while decoding, from pg_stat_replication_slots",
        "Growing with lag: raise logical_decoding_work_mem on the server.",
    ),
    _gauge(
        "decode_decoders",
        "decoders",
        "Decoders of the running session; 1 decodes in the reader's process",
        "With parallel-decode-num auto: the number that was measured to be fastest.",
    ),
    _counter(
        "decode_decoder_changes",
        "changes",
        "Sessions that ended to change the number of decoders, with parallel-decode-num auto",
        "More than a few per hour: the load varies; set a fixed number.",
    ),
    _counter("decode_batches", "batches", "Batches decoded", _NOTHING, "decoder"),
    _counter("decode_wire_bytes", "bytes", "Bytes decoded", _NOTHING, "decoder"),
    _counter("decode_rows", "rows", "Rows decoded", _NOTHING, "decoder"),
    _counter("decode_busy_seconds", "seconds", "Time that a decoder worked", _NOTHING, "decoder"),
    _counter(
        "decode_waited_input_seconds",
        "seconds",
        "Time that a decoder waited for input",
        "A rate near 1 on all decoders: fewer are enough.",
        "decoder",
    ),
    _counter(
        "decode_waited_output_seconds",
        "seconds",
        "Time that a decoder waited for space in its decode change queue",
        "A rate near 1: landing is the limit.",
        "decoder",
    ),
    _counter(
        "decode_misfit_values",
        "values",
        "Values that did not fit their column and were kept as text in gd_raw",
        "Any growth: see gd_raw of the newest files. Often Infinity, dates BC, or a type that "
        "was altered.",
        "decoder",
    ),
    _gauge(
        "collect_open_transactions",
        "transactions",
        "Transactions begun and not yet committed",
        "High for long: applications keep transactions open; these hold memory and WAL.",
    ),
    _gauge(
        "collect_open_bytes",
        "bytes",
        "Memory held by open transactions",
        "Near max-reorderbuffer-in-memory or landing.memory-bytes: transactions go to disk.",
    ),
    _gauge(
        "collect_pending_bytes",
        "bytes",
        "Memory held by released changes that are not yet landed",
        "Near landing.memory-bytes: files are written before they reach their size.",
    ),
    _gauge(
        "collect_spooled_bytes",
        "bytes",
        "Bytes of open transactions on disk, in spool/",
        "Large: check the disk's free space; raise max-txn-in-memory if memory is free.",
    ),
    _gauge(
        "collect_spooled_batches",
        "batches",
        "Decoded batches of open transactions on disk, in spool/; they have left the decode "
        "change queue",
        "Large with empty queues: transactions are open; the decoders do not wait.",
    ),
    _gauge(
        "collect_spool_full",
        "bool",
        "1 while a transaction needs more space than landing.spool-bytes, and nothing is received",
        "It does not end by itself: raise landing.spool-bytes and restart the daemon.",
    ),
    _counter(
        "collect_spooled_transactions",
        "transactions",
        "Transactions that went to disk before they committed",
        "Growing fast: raise max-txn-in-memory.",
    ),
    _counter(
        "collect_streamed_transactions",
        "transactions",
        "Released transactions that the server streamed while they were open",
        _NOTHING,
    ),
    _counter(
        "collect_aborted_transactions",
        "transactions",
        "Streamed transactions that were rolled back; nothing of them lands",
        "Growing: an application rolls large transactions back.",
    ),
    _counter(
        "collect_stray_rollbacks",
        "messages",
        "Rollbacks of transactions that the server never streamed; some versions send them",
        _NOTHING,
    ),
    _gauge(
        "collect_prepared_transactions",
        "transactions",
        "Prepared transactions whose rows wait here for COMMIT PREPARED or ROLLBACK PREPARED",
        _NOTHING,
    ),
    _gauge(
        "collect_prepared_seconds",
        "seconds",
        "Age of the oldest waiting prepared transaction; 0 without one",
        "Large: it was probably forgotten. Run COMMIT PREPARED or ROLLBACK PREPARED on the server.",
    ),
    _gauge(
        "collect_turn_waiting_transactions",
        "transactions",
        "Ended transactions of each source that wait for their turn by CSN",
        "Growing: see collect_turn_held_seconds for the delaying source.",
        "source",
    ),
    _gauge(
        "collect_turn_held_seconds",
        "seconds",
        "Time that the current CSN mark has waited for a source; 0 if it does not wait for it",
        "Above a few seconds: `gaussdecode status` shows the reason. Nothing of any source lands "
        "meanwhile.",
        "source",
    ),
    _gauge(
        "collect_watermark_csn",
        "csn",
        "CSN up to which everything of a source has landed; equal for all sources",
        "Constant: see collect_turn_held_seconds.",
        "source",
    ),
    _counter("collect_transactions", "transactions", "Committed transactions released", _NOTHING),
    _counter("collect_rows", "rows", "Rows released in commit order", _NOTHING),
    _counter(
        "collect_skipped_transactions",
        "transactions",
        "Transactions that the server sent again and that had already landed",
        "Some after each restart are usual.",
    ),
    _counter(
        "collect_foreign_transactions",
        "transactions",
        "Transactions left out here: with a replication origin, or before start-position. "
        "Without source.two-phase, PostgreSQL 16 and later leaves out those with an origin itself",
        "Set only-local: false, or replay with --all-origins, to land changes with an origin.",
    ),
    _counter(
        "collect_suspect_transactions",
        "transactions",
        "Transactions that a GaussDB server reported as possibly incomplete, because of DDL in "
        "them",
        "Any growth: see `gaussdecode gaps ROOT`, and compare their tables with the source.",
    ),
    _counter(
        "collect_settled_transactions",
        "transactions",
        "Transactions of collect_suspect_transactions that lost nothing, as the server's WAL shows",
        _NOTHING,
    ),
    _counter(
        "collect_left_out_rows",
        "rows",
        "Rows, truncates and logical messages that the reader counted and that do not land, by "
        "reason",
        "origin, where wanted changes have a replication origin: set only-local: false. "
        "not-wanted: `gaussdecode status` names the tables that are left out.",
        "reason",
    ),
    _counter(
        "collect_empty_transactions",
        "transactions",
        "Transactions without rows; only their position lands",
        "Nothing by itself; they let an idle slot advance.",
    ),
    _counter(
        "collect_waited_seconds",
        "seconds",
        "Time that the collector waited for decoders",
        "A rate near 1 with lag: an earlier stage is the limit.",
    ),
    _counter(
        "collect_busy_seconds",
        "seconds",
        "Time that the collector worked, including its waits for the writer",
        "Compare with collect_blocked_seconds_total.",
    ),
    _counter(
        "collect_blocked_seconds",
        "seconds",
        "Time that the collector waited for the writer",
        "A rate near 1: encoding or committing is the limit.",
    ),
    _gauge(
        "land_durable_lsn",
        "lsn",
        "WAL position up to which everything has landed",
        "Constant while changes come: see the log and land_disk_full.",
    ),
    _gauge("land_entry", "entries", "Number of the newest entry of the commit log", _NOTHING),
    _counter("land_entries", "entries", "Entries committed", _NOTHING),
    _counter(
        "land_files",
        "files",
        "Files committed",
        "Thousands per minute: raise max-commit-interval, or use fewer tables per slot.",
    ),
    _counter("land_rows", "rows", "Rows committed", _NOTHING),
    _counter("land_bytes", "bytes", "Bytes of the files committed", _NOTHING),
    _gauge(
        "land_writer_lanes",
        "lanes",
        "Threads that encode Parquet",
        "With landing.writer-lanes auto: two, plus those added while cores were idle.",
    ),
    _counter(
        "land_encoded_seconds",
        "seconds",
        "Total time that the writer lanes encoded Parquet, including the work in progress",
        "A rate near land_writer_lanes: the lanes are the limit.",
    ),
    _counter(
        "land_synced_seconds",
        "seconds",
        "Part of land_encoded_seconds_total for syncing files",
        "Nearly all of it: the disk syncs slowly, or hangs.",
    ),
    _counter(
        "land_published_seconds",
        "seconds",
        "Time spent committing entries: sync, link, rename",
        "A rate above 0.25: the disk syncs slowly; the commit interval stretches by itself.",
    ),
    _histogram(
        "land_commit_to_durable",
        "Time from the commit of each transaction at the source, by the source's clock, until "
        "its entry was durable; a clock difference shifts it, and negative times count as 0",
        "Up to max-commit-interval is usual. After a stop it is far higher, because waiting "
        "changes are old. Else lower the interval, or see which daemon_stage_seconds has risen.",
    ),
    _gauge(
        "land_disk_full",
        "bool",
        "1 while landing waits for disk space",
        "Free disk space; landing then continues by itself. The server keeps WAL for the slot "
        "meanwhile.",
    ),
    _gauge(
        "land_free_bytes",
        "bytes",
        "Free space on the landing's file system",
        "Alert well before land_min_free_bytes; shorten landing.retention or grow the disk.",
    ),
    _gauge(
        "land_min_free_bytes",
        "bytes",
        "Space that is kept free: landing.min-free-bytes, or a hundredth of the file system",
        "When land_free_bytes is below it, nothing lands.",
    ),
    _gauge(
        "land_mirror_up",
        "bool",
        "1 while requests to the mirror's store succeed; only shown with landing.mirror",
        "0: the log event mirror_failed has the reason: no answer, or a refusal. Landing "
        "continues here; with `confirm: mirror` the server keeps its WAL.",
    ),
    _gauge(
        "land_mirror_entry",
        "entries",
        "Number of the newest entry in the mirror; -1 while unknown",
        _NOTHING,
    ),
    _gauge(
        "land_mirror_backlog_entries",
        "entries",
        "Entries that have landed and are not in the mirror yet",
        "Rising with land_mirror_up at 1: the store or the network is slower than the landing.",
    ),
    _gauge(
        "land_mirror_backlog_bytes",
        "bytes",
        "Bytes of the files of entries that are not in the mirror yet",
        _NOTHING,
    ),
    _gauge(
        "land_mirror_backlog_seconds",
        "seconds",
        "Age of the oldest entry that is not in the mirror yet",
        "With `confirm: mirror`, the changes of this time would be read again if this host were "
        "lost.",
    ),
    _counter(
        "land_mirror_shipped_bytes", "bytes", "Bytes of the files shipped to the mirror", _NOTHING
    ),
    _counter(
        "land_mirror_errors",
        "errors",
        "Failed shipments to the mirror, after retries of single requests",
        "See mirror_failed in the log.",
    ),
    _gauge(
        "land_full_seconds",
        "seconds",
        "Predicted time until land_free_bytes falls to land_min_free_bytes; not shown while free "
        "space does not shrink",
        "Alert well before: shorten landing.retention or grow the disk.",
    ),
    _counter(
        "land_gap_entries",
        "entries",
        "Gaps written to the commit log: changes are missing",
        "Any growth: see `gaussdecode gaps ROOT`; readers stop there.",
    ),
    _counter(
        "land_suspect_entries",
        "entries",
        "Landed transactions that the server may have sent incompletely",
        "Any growth: see `gaussdecode gaps ROOT` and compare these tables with the source.",
    ),
    _counter(
        "land_quarantine_entries",
        "entries",
        "Tables quarantined since the start because their changes could not be landed",
        "Any growth: see `gaussdecode gaps ROOT`, then take a snapshot of the table.",
    ),
    _gauge(
        "land_quarantined_tables",
        "tables",
        "Tables of which nothing lands until a snapshot of them",
        "Above 0: `gaussdecode status` names them; take a snapshot of each.",
    ),
    _gauge(
        "daemon_limit",
        "bool",
        "1 for the stage that limits the throughput now, 0 for the others",
        "none: nothing to do. Otherwise the status page names the setting to change.",
        "stage",
    ),
    _gauge(
        "daemon_guard_step",
        "step",
        "Step of the guard: 0 calm, 1 warn, 2 pause optional work, 3 drop the slot",
        "Above 0: see source_invalidation_seconds and land_full_seconds for the time that is left.",
    ),
    _counter(
        "daemon_guard_failures",
        "looks",
        "Checks of the slot that the server did not answer",
        "Growing while changes are streamed: the role may not open a second connection.",
    ),
    _gauge(
        "daemon_memory_budget_bytes",
        "bytes",
        "Sum of all configured memory limits",
        "Compare with process_resident_memory_bytes and the unit's MemoryMax.",
    ),
    _gauge(
        "daemon_start_time_seconds",
        "seconds",
        "Start time of the daemon, in seconds since 1970",
        "Recent again and again: systemd restarts it; see the log.",
    ),
    _gauge(
        "daemon_resident_bytes",
        "bytes",
        "Resident memory of each process of the daemon; shared queues count in each process that "
        "uses them",
        "Growing without end: a leak, which is a bug. Compare with the unit's MemoryMax.",
        "process",
    ),
    _counter(
        "daemon_cpu_seconds",
        "seconds",
        "CPU time of each process of the daemon, user and system",
        "A rate near 1 of the reader or a decoder: that process is the limit.",
        "process",
    ),
    _counter(
        "daemon_sessions",
        "sessions",
        "Streams started, including the first one",
        "Growing: connections break; see the log and daemon_restarts_total.",
    ),
    _counter(
        "daemon_restarts",
        "restarts",
        "Streams that were started again after an error, by class of error",
        "ChildError: a process died, see its exit status in the log. SourceError: network or server.",
        "reason",
    ),
    _histogram(
        "daemon_stage",
        "Time per stage: of a batch in receive, decode and collect, of an entry in gather and "
        "publish, of a row group in encode, of a file in sync; see Stages",
        "While lag grows, the first stage whose quantiles have risen is the limit; see Stages.",
        "stage",
    ),
    _gauge("daemon_info", "bool", "1, with the version", _NOTHING, "version"),
    _gauge(
        "land_snapshot_pending_tables",
        "tables",
        "Tables whose existing rows are wanted and have not landed",
        "For long: transactions on the server run longer than snapshot.hold-timeout; see the log.",
    ),
    _gauge(
        "land_snapshot_failed_tables",
        "tables",
        "Tables whose existing rows could not be landed, including those of suspect entries",
        "Above 0: /status and the log have the reason, and the command to try again.",
    ),
    _gauge(
        "land_snapshot_unreadable_requests",
        "requests",
        "Snapshot requests that cannot be read and are skipped",
        "Above 0: `gaussdecode status` names the file. Remove it, and ask again.",
    ),
    _counter(
        "land_snapshot_rows",
        "rows",
        "Rows read by snapshots since the start, including repeated reads",
        _NOTHING,
    ),
    _counter(
        "land_snapshot_bytes",
        "bytes",
        "Bytes of COPY read by snapshots since the start",
        "Limit it with snapshot.rate-limit if the server is overloaded.",
    ),
    _gauge(
        "land_snapshot_estimated_rows",
        "rows",
        "Rows of the tables being read, as the server estimates",
        _NOTHING,
    ),
    _gauge(
        "land_snapshot_chunks",
        "chunks",
        "Chunks of the tables being read",
        _NOTHING,
    ),
    _gauge(
        "land_snapshot_chunks_done",
        "chunks",
        "Finished chunks of the tables being read; they are not read again after a restart",
        "Not rising: /status shows the reason.",
    ),
    _gauge(
        "land_snapshot_left_seconds",
        "seconds",
        "Estimated time until the tables being read are finished",
        "More workers (snapshot.workers) make it shorter.",
    ),
    _gauge(
        "land_snapshot_ignored_tables",
        "tables",
        "Tables of which nothing lands because they were added later and on-new-table is ignore",
        "Run gaussdecode snapshot to land a table; its changes land from then on.",
    ),
    _gauge(
        "source_unlisted_tables",
        "tables",
        "Published tables that are not on white-table-list, so that none of their changes land",
        "Add them to the list, or remove them from the publication; `gaussdecode check` names "
        "them.",
    ),
    _gauge(
        "source_unpublished_items",
        "items",
        "Items of white-table-list that no published table matches",
        "Correct the list, or add the tables to the publication; `gaussdecode check` names them.",
    ),
)

STAGES: Final[Mapping[str, tuple[str, str]]] = {
    "receive": (
        "from the first message of a batch in the reader until a decoder takes it",
        (
            "If decode rises too: raise parallel-decode-num while cores are idle. Else a later stage "
            "is full; read on."
        ),
    ),
    "decode": (
        "decoding a batch, up to 1 MiB of messages or one larger row",
        (
            "Near 1 s without huge rows: the machine has no idle core. Lower parallel-decode-num, or "
            "add cores."
        ),
    ),
    "collect": (
        (
            "from then until the batch is in commit order, including waits for its turn and for the "
            "writer"
        ),
        (
            "If encode, sync or publish rises too: that is the limit. Alone: the collector's one "
            "thread is; use a second slot."
        ),
    ),
    "gather": (
        "from the first complete transaction of an entry until the entry is asked for",
        (
            "Near landing.max-commit-interval: as configured; lower that for fresher tables. Above "
            "it: see publish."
        ),
    ),
    "encode": (
        "compressing and writing one row group",
        "Raise landing.writer-lanes while cores are idle; landing.compression: snappy or none takes less.",
    ),
    "sync": (
        "footer and fsync of one data file",
        "The disk is slow, or others write much to it.",
    ),
    "publish": (
        "committing an entry: directories synced, entry written and linked, files renamed",
        (
            "Slow together with sync: the disk. Slow alone: too many files per entry; raise "
            "landing.max-commit-interval."
        ),
    ),
}
"""The meaning of each ``stage`` of daemon_stage_seconds, and advice when it rises."""

BY_NAME: Final[Mapping[str, Metric]] = {
    name: metric for metric in METRICS for name in metric.series
}
"""Metrics by the names in a reading."""


def histogram_values(
    name: str, counted: Mapping[Labels, Counted]
) -> dict[str, dict[Labels, float]]:
    """A histogram as a snapshot holds it: each bucket with those below it, sum and number.

    Args:
        name: name of the metric.
        counted: counted by its labels.
    """
    upward = {labels: tuple(itertools.accumulate(of.counts)) for labels, of in counted.items()}
    return {
        f"{name}_bucket": {
            (*labels, bound): float(count)
            for labels, counts in upward.items()
            for bound, count in zip(_BUCKETS, counts, strict=True)
        },
        f"{name}_sum": {labels: of.seconds for labels, of in counted.items()},
        f"{name}_count": {labels: float(counts[-1]) for labels, counts in upward.items()},
    }


def unknown_series(snapshot: Snapshot) -> list[str]:
    """Name what a snapshot holds that the table does not, for tests of the supervisor."""
    wrong = [name for name in snapshot if name not in BY_NAME]
    for name in snapshot.keys() & BY_NAME.keys():
        expected = len(BY_NAME[name].series[name])
        wrong += [f"{name}{labels}" for labels in snapshot[name] if len(labels) != expected]
    return wrong


class Exposition:
    """The text of ``/metrics``, written at each scrape.

    Whole numbers are written whole: a WAL position is compared digit by digit. Prometheus keeps
    them as floats, exact up to 2^53 (8 PiB of WAL).

    Args:
        slot: value of the label every series carries.
        take: gives ``{metric name: {label values: value}}``; label values are those of
            `Metric.series` in order, ``()`` for none. Names missing from it are not
            shown; names unknown to the table are left out.
    """

    def __init__(self, slot: str, take: Callable[[], Snapshot]) -> None:
        self._slot = slot
        self._take = take
        self._registry = CollectorRegistry()
        _OwnProcess(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self) -> bytes:
        """Write one scrape in Prometheus's text format."""
        snapshot = self._take()
        lines = [line for metric in METRICS for line in self._family(metric, snapshot)]
        return "".join(f"{line}\n" for line in lines).encode() + _generate(self._registry)

    def _family(self, metric: Metric, snapshot: Snapshot) -> Iterator[str]:
        """The lines of one metric; none where the snapshot does not hold it."""
        shown = [name for name in metric.series if name in snapshot]
        if not shown:
            return
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for name in shown:
            keys = ("slot", *metric.series[name])
            order = _by_bound if keys[-1] == "le" else None
            for labels, value in sorted(snapshot[name].items(), key=order):
                pairs = sorted(zip(keys, (self._slot, *labels), strict=True))
                text = ",".join(f"{key}={label_value(label)}" for key, label in pairs)
                yield f"{name}{{{text}}} {_number(value)}"


class _OwnProcess(ProcessCollector):
    """The library's metrics of this process; it looks for the boot time where our unit hides it."""

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _by_bound(item: tuple[Labels, float]) -> tuple[Labels, float]:
    """Buckets in rising order, as Prometheus wants them."""
    *labels, bound = item[0]
    return tuple(labels), float(bound)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
