"""Collect the metric values of one session, of table snapshots and of the disk."""

import math
import time
from collections.abc import Mapping
from typing import Any, Final

from gaussdecode.collect.collector import Collector
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.daemon.status.queues import Fill
from gaussdecode.ipc.control import Control, Word
from gaussdecode.land.writer import Writer
from gaussdecode.metrics.daemon import STAGE_SECONDS
from gaussdecode.metrics.exposition import histogram_values
from gaussdecode.metrics.metric import Labels
from gaussdecode.model.histogram import Counted
from gaussdecode.source._pace import PACES
from gaussdecode.source.coverage import Coverage

NS: Final = 1e-9
Values = dict[str, dict[Labels, float]]
Record = dict[str, Any]  # Any: JSON


# Gauges that are of one stream: of several, those of the first stand for all.
_OF_ONE: Final = frozenset(
    {
        "gaussdecode_source_received_lsn",
        "gaussdecode_source_server_wal_end_lsn",
        "gaussdecode_source_confirmed_lsn",
        "gaussdecode_source_silence_seconds",
        "gaussdecode_source_heartbeat_lsn",
        "gaussdecode_source_heartbeat_flushed_lsn",
        "gaussdecode_source_heartbeat_timestamp_seconds",
        "gaussdecode_source_pace",
        "gaussdecode_source_pace_rate_bytes",
        "gaussdecode_collect_prepared_seconds",
    }
)


def running_values(session: Session | SessionGroup) -> Values:
    """Everything that belongs to one session, or to those of all sources: decoders are counted on."""
    total: Values = {}
    decoders = 0
    for member in session.members:
        for name, series in session_values(member, decoders).items():
            into = total.setdefault(name, {})
            for labels, value in series.items():
                if name in _OF_ONE:
                    into.setdefault(labels, value)
                else:
                    into[labels] = into.get(labels, 0.0) + value
        decoders += len(member.decoded_rings)
    return total


def session_values(session: Session, first_decoder: int = 0) -> Values:
    """Everything that belongs to one session.

    Args:
        session: session of one source.
        first_decoder: number of its first decoder among all.
    """
    plain = _reader_values(session.control.snapshot())
    values: Values = {}
    if session.collector is not None:
        plain |= _collector_values(session.collector)
        values["gaussdecode_collect_left_out_rows_total"] = {
            (reason,): float(rows)
            for reason, rows in session.collector.assembler.left_out_rows.items()
        }
        values |= histogram_values(STAGE_SECONDS, _durations(session.collector))
    values.update({f"gaussdecode_{name}": {(): float(value)} for name, value in plain.items()})
    values |= _pace_values(session.control)
    raw, decoded = queue_fills(session)
    for index, (waiting, done) in enumerate(zip(raw, decoded, strict=True)):
        series = {
            "read_change_queue_length": waiting.length,
            "read_change_queue_entries": waiting.entries,
            "read_change_queue_bytes": waiting.bytes,
            "decode_change_queue_length": done.length,
            "decode_change_queue_entries": done.entries,
            "decode_change_queue_bytes": done.bytes,
            **_decoder_values(session.control.decoder_snapshot(index)),
        }
        for name, value in series.items():
            label = str(first_decoder + index)
            values.setdefault(f"gaussdecode_{name}", {})[(label,)] = float(value)
    return values


def _reader_values(words: Mapping[str, int]) -> dict[str, float]:
    last = words["last_receive_ns"]
    return {
        "source_received_bytes_total": words["received_bytes"],
        "source_received_messages_total": words["received_messages"],
        "source_dispatched_batches_total": words["batches"],
        "source_received_lsn": words["received_lsn"] or math.nan,
        "source_server_wal_end_lsn": words["server_wal_end"] or math.nan,
        "source_confirmed_lsn": words["confirmed_lsn"] or math.nan,
        "source_silence_seconds": (time.monotonic_ns() - last) * NS if last else math.nan,
        "source_status_updates_total": words["status_sent_count"],
        "source_notices_total": words["notices"],
        "source_heartbeats_total": words["heartbeats"],
        **(_heartbeat_values(words) if words["heartbeats"] else {}),
        "source_busy_seconds_total": words["busy_ns"] * NS,
        "source_stalled_seconds_total": words["stalled_ns"] * NS,
        "source_waited_seconds_total": words["waited_ns"] * NS,
        "source_pace_changes_total": words["pace_changes"],
        "source_pace_trials_total": words["pace_trials"],
    }


def _heartbeat_values(words: Mapping[str, int]) -> dict[str, float]:
    """Values of the last heartbeat; none before the first."""
    return {
        "source_heartbeat_lsn": words["heartbeat_lsn"],
        "source_heartbeat_flushed_lsn": words["heartbeat_flushed_lsn"],
        "source_heartbeat_timestamp_seconds": words["heartbeat_time_us"] / 1e6,
    }


def _pace_values(control: Control) -> dict[str, dict[Labels, float]]:
    """How the reader reads, by pace."""
    used = control.get(Word.PACE)
    return {
        "gaussdecode_source_pace": {
            (pace,): float(index == used) for index, pace in enumerate(PACES)
        },
        "gaussdecode_source_pace_rate_bytes": {
            (pace,): float(control.get(Word.PACE_RATE + index)) for index, pace in enumerate(PACES)
        },
    }


def _decoder_values(decoder: Mapping[str, int]) -> dict[str, float]:
    return {
        "decode_batches_total": decoder["batches"],
        "decode_wire_bytes_total": decoder["wire_bytes"],
        "decode_rows_total": decoder["rows"],
        "decode_busy_seconds_total": decoder["busy_ns"] * NS,
        "decode_waited_input_seconds_total": decoder["waited_input_ns"] * NS,
        "decode_waited_output_seconds_total": decoder["waited_output_ns"] * NS,
        "decode_misfit_values_total": decoder["misfits"],
    }


def _collector_values(collector: Collector) -> dict[str, float]:
    held = collector.assembler
    prepared = sorted(held.prepared_transactions, key=lambda one: one[3])
    return {
        "collect_open_transactions": float(held.open_count),
        "collect_open_bytes": held.retained_bytes,
        "collect_pending_bytes": held.held_bytes,
        "collect_spooled_bytes": held.spooled_bytes,
        "collect_spooled_batches": held.spooled_batches,
        "collect_unread_ddl_total": collector.unread_ddl_count,
        "collect_spool_full": float(collector.spool_wait is not None),
        "collect_spooled_transactions_total": held.spooled_count,
        "collect_streamed_transactions_total": held.streamed_count,
        "collect_aborted_transactions_total": held.aborted_count,
        "collect_stray_rollbacks_total": held.stray_count,
        "collect_prepared_transactions": float(len(prepared)),
        "collect_prepared_seconds": max(0.0, time.time() - prepared[0][3] / 1e6)
        if prepared
        else 0.0,
        "collect_transactions_total": held.transaction_count,
        "collect_rows_total": held.row_count,
        "collect_skipped_transactions_total": held.resent_count,
        "collect_foreign_transactions_total": held.foreign_count,
        "collect_suspect_transactions_total": collector.suspect_count,
        "collect_settled_transactions_total": collector.settled_count,
        "collect_empty_transactions_total": held.empty_count,
        "collect_waited_seconds_total": held.waited_ns * NS,
        "collect_busy_seconds_total": held.worked_ns * NS,
    }


def _durations(collector: Collector) -> dict[Labels, Counted]:
    stages = {**collector.assembler.durations, "gather": collector.gathered.counted}
    return {(stage,): counted for stage, counted in stages.items()}


def queue_fills(session: Session | SessionGroup | None) -> tuple[list[Fill], list[Fill]]:
    """Of the read and of the decode change queues, by decoder; none between two sessions."""
    fills = [] if session is None else [_fills(one) for one in session.members]
    return [fill for raw, _ in fills for fill in raw], [fill for _, of in fills for fill in of]


def _fills(session: Session) -> tuple[list[Fill], list[Fill]]:
    """Of one session, as many of both, also while it makes them."""
    decoded = [Fill.of(ring) for ring in session.decoded_rings]
    raw = [Fill.of(ring) for ring in session.raw_rings]
    raw = (
        raw
        if len(raw) == len(decoded)
        else [Fill(0, of.max_entries, 0, of.max_bytes) for of in decoded]
    )
    return raw, decoded


def snapshot_values(tables: list[Record], read: tuple[int, int], coverage: Coverage) -> Values:
    """How far snapshots of tables are, and what publications and white list leave out.

    Args:
        tables: progress of each table.
        read: rows and bytes since the start.
        coverage: coverage of publications and white list.
    """
    states = [table["state"] for table in tables]
    left = [table["seconds_left"] for table in tables if table["seconds_left"] is not None]
    running = [table for table in tables if table["state"] in ("reading", "landing")]
    counts = {
        "pending_tables": sum(state not in ("done", "failed", "ignored") for state in states),
        "failed_tables": states.count("failed"),
        "ignored_tables": states.count("ignored"),
        "rows_total": read[0],
        "bytes_total": read[1],
        "estimated_rows": sum(max(table["estimate"], table["rows"]) for table in running),
        "chunks": sum(table["chunks"] for table in running),
        "chunks_done": sum(table["chunks_done"] for table in running),
        "left_seconds": sum(left),
    }
    covered = {
        "gaussdecode_source_unlisted_tables": coverage.unlisted_count,
        "gaussdecode_source_unpublished_items": coverage.unpublished_count,
    }
    named = {f"gaussdecode_land_snapshot_{name}": count for name, count in counts.items()}
    return {name: {(): float(count)} for name, count in {**named, **covered}.items()}


def writer_values(writer: Writer) -> dict[str, float]:
    """Values of the landing's writer, by metric without its prefix."""
    return {
        "land_writer_lanes": float(writer.lane_count),
        "land_encoded_seconds_total": writer.encoding.seconds,
        "land_synced_seconds_total": writer.syncing.seconds,
        "land_synced_beside_seconds_total": writer.syncing_beside.any_seconds,
        "land_published_seconds_total": writer.committing.seconds,
        "collect_blocked_seconds_total": writer.blocked_seconds,
    }


def writer_histograms(writer: Writer) -> dict[str, dict[Labels, Counted]]:
    """Durations of the landing, by metric without its prefix and by labels."""
    stages: dict[Labels, Counted] = {(name,): of.counted for name, of in writer.durations.items()}
    return {
        "land_commit_to_durable_seconds": {(): writer.latency.counted},
        "daemon_stage_seconds": stages,
    }
