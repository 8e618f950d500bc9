"""Readings: all counters of the daemon at one moment, as metrics and as status.

Reads words that other threads and processes write; every number is whole by itself, two
of them may be an instant apart. Counters of past sessions are carried along, so that a
new session does not make them fall.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import gaussdecode
from gaussdecode.collect.collector import Collector
from gaussdecode.daemon.guard import Guard
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.status.advice import Advice, Surroundings, find_advice
from gaussdecode.daemon.status.history import History, Sample
from gaussdecode.daemon.status.lag import Lag, reached
from gaussdecode.daemon.status.landed import Landed
from gaussdecode.daemon.status.limit import WINDOW_SECONDS, Context, Limit, Stage, find_limit
from gaussdecode.daemon.status.page import Picture
from gaussdecode.daemon.status.serverside import guard_values, server_hint, server_record
from gaussdecode.ipc.control import Word
from gaussdecode.metrics import BY_NAME, Kind, Labels
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.coverage import Coverage

_NS: Final = 1e-9
Values = dict[str, dict[Labels, float]]


class LandingFacts(Protocol):
    """What the pipeline counts of its landing."""

    def stats(self) -> Mapping[str, float]:
        """Counters by metric, without their prefix."""

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Why some tables stand still, by title."""


@dataclasses.dataclass(slots=True)
class DaemonFacts:
    """What the supervisor knows, and changes while others read.

    Attributes:
        slot: name.
        root: of the landing.
        started_time: seconds since 1970.
        decoder_count: ``parallel-decode-num``.
        budget_bytes: sum of all byte bounds.
        session: the running one, or None between two.
        state: a word for the operator: starting, connecting, streaming, retrying, refused,
            stopping.
        reason: why it is not streaming, or None.
        durable_lsn: of the commit log.
        lag: in time.
        sessions: started so far.
        restarts: sessions that ended in an error, by class of error.
        landed: tables and publications since the start.
        history: the last half hour.
        guard: of slot and disk, or None before it looks.
        is_slot_lost: the daemon ends because changes are missing.
        lane_count: ``landing.writer-lanes``.
        commit_interval: ``landing.max-commit-interval``, seconds.
        queue_size: ``parallel-queue-size``.
        warn_before: ``guard.warn-before``, seconds.
        snapshot: progress of the tables whose rows are being landed, or None.
        coverage: what only one of publications and white list has.
    """

    slot: str
    root: Path
    started_time: float
    decoder_count: int
    budget_bytes: int
    session: Session | None = None
    state: str = "starting"
    reason: str | None = None
    durable_lsn: int = 0
    entry: int = -1
    lag: Lag = dataclasses.field(default_factory=Lag)
    sessions: int = 0
    restarts: dict[str, int] = dataclasses.field(default_factory=dict)
    landed: Landed = dataclasses.field(default_factory=Landed)
    history: History = dataclasses.field(default_factory=History)
    guard: Guard | None = None
    is_slot_lost: bool = False
    lane_count: int = 1
    commit_interval: float = 30.0
    queue_size: int = 128
    warn_before: float | None = None
    snapshot: Callable[[], dict[str, dict[str, Any]]] | None = None  # Any: JSON
    coverage: Coverage = dataclasses.field(default_factory=Coverage)

    def is_optional_paused(self) -> bool:
        """Whether the guard has asked for work that can wait to wait."""
        return self.guard is not None and self.guard.is_paused


class Readings:
    """Takes readings; counters never fall.

    Args:
        facts: shared with the supervisor.
        landing: counts what has landed.
    """

    def __init__(self, facts: DaemonFacts, landing: LandingFacts) -> None:
        self._facts = facts
        self._landing = landing
        self._past: Values = {}

    def retire(self, session: Session) -> None:
        """Carry the counters of a session that ends along."""
        for name, series in _session_values(session).items():
            if BY_NAME[name].kind is Kind.COUNTER:
                kept = self._past.setdefault(name, {})
                for labels, value in series.items():
                    kept[labels] = kept.get(labels, 0) + value

    def metrics(self) -> Values:
        """All metrics, for `metrics.Exposition`."""
        facts = self._facts
        values: Values = {name: dict(series) for name, series in self._past.items()}
        session = facts.session
        if session is not None:
            for name, series in _session_values(session).items():
                into = values.setdefault(name, {})
                is_counter = BY_NAME[name].kind is Kind.COUNTER
                for labels, value in series.items():
                    into[labels] = value + (into.get(labels, 0) if is_counter else 0)
        lag = self.lag(session)
        plain = {
            "source_connected": float(facts.state == "streaming"),
            "source_lag_bytes": lag["lag_bytes"],
            "source_lag_seconds": lag["lag_seconds"],
            "land_durable_lsn": facts.durable_lsn,
            "land_entry": facts.entry,
            "land_free_bytes": free_bytes(facts.root),
            "daemon_memory_budget_bytes": facts.budget_bytes,
            "daemon_started_seconds": facts.started_time,
            "daemon_sessions_total": facts.sessions,
            "land_gap_entries_total": facts.landed.count(EntryKind.GAP),
            "land_suspect_entries_total": facts.landed.count(EntryKind.SUSPECT),
            "land_quarantine_entries_total": facts.landed.count(EntryKind.QUARANTINE),
            "land_quarantined_tables": len(self._landing.quarantined),
            **guard_values(facts.guard),
            **self._landing.stats(),
        }
        if facts.is_slot_lost:
            plain["source_slot_lost"] = 1.0  # the guard may not have looked since
        values.update({f"gaussdecode_{name}": {(): value} for name, value in plain.items()})
        values["gaussdecode_daemon_restarts_total"] = {
            (reason,): count for reason, count in facts.restarts.items()
        }
        values["gaussdecode_daemon_info"] = {(gaussdecode.__version__,): 1.0}
        values.update(_snapshot_values(facts))
        limit = self.limit().stage
        values["gaussdecode_daemon_limit"] = {(str(s),): float(s is limit) for s in Stage}
        return values

    def sample(self) -> None:
        """Keep a reading in the history when it is time; called several times per second."""
        now = time.monotonic()
        if self._facts.history.is_due(now):
            end = self._wal_end(self._facts.session)
            self._facts.lag.note(now, end, self._reached(self._facts.session))
            self._facts.history.add(Sample.of(now, self.metrics()))

    def limit(self) -> Limit:
        """Name the stage that limits now."""
        facts = self._facts
        session = facts.session
        is_full = session is not None and bool(session.control.snapshot()["disk_wait"])
        context = Context(
            is_streaming=facts.state == "streaming",
            reason=facts.reason or facts.state,
            is_disk_full=is_full,
            decoder_count=facts.decoder_count,
            lane_count=facts.lane_count,
            usual_lag_seconds=self._usual_lag(),
            hint=server_hint(facts.guard, facts.queue_size),
        )
        return find_limit(facts.history.rates(WINDOW_SECONDS), context)

    def _usual_lag(self) -> float:
        """Seconds behind that say nothing: a few publications."""
        return 2 * self._facts.commit_interval + WINDOW_SECONDS / 3

    def advice(self, limit: Limit) -> list[Advice]:
        """What an operator should know now."""
        facts = self._facts
        around = Surroundings(
            facts.state,
            facts.reason,
            None if facts.guard is None else facts.guard.reason,
            self._usual_lag(),
            facts.warn_before,
        )
        return find_advice(self.metrics(), limit, around)

    def picture(self) -> Picture:
        """All that the status page shows."""
        facts = self._facts
        session = facts.session
        limit = self.limit()
        raw, decoded = ([], []) if session is None else _queue_lengths(session)
        return Picture(
            status=self.status(),
            queues=list(zip(raw, decoded, strict=True)),
            queue_size=facts.queue_size,
            limit=limit,
            advice=self.advice(limit),
            samples=facts.history.samples(),
            rates=facts.history.rates(WINDOW_SECONDS),
            lane_count=facts.lane_count,
            tables=facts.landed.tables(),
            commits=facts.landed.commits(),
        )

    def lag(self, session: Session | None) -> dict[str, float]:
        """How far what has landed is behind the server's end of WAL."""
        landed = self._reached(session)
        behind = max(0, self._wal_end(session) - landed)
        return {
            "lag_bytes": behind,
            "lag_seconds": self._facts.lag.seconds(time.monotonic(), landed),
        }

    def _reached(self, session: Session | None) -> int:
        """Up to where nothing is left to land; what is idle is read before what was received."""
        durable = self._facts.durable_lsn
        if session is None:
            return durable
        idle = session.control.get(Word.IDLE_LSN)
        return reached(durable, session.control.get(Word.RECEIVED_LSN), idle)

    def _wal_end(self, session: Session | None) -> int:
        """The newest end that is known.

        The stream tells it only with what it sends: while the server gathers a large
        transaction it sends nothing, and only the guard sees how far the WAL is.
        """
        told = 0 if session is None else session.control.snapshot()["server_wal_end"]
        guard = self._facts.guard
        view = None if guard is None or guard.outlook is None else guard.outlook.look.slot
        return max(told, 0 if view is None else view.wal_end)

    def status(self) -> dict[str, Any]:  # Any: JSON
        """The document of ``/status``: first the columns of gs_get_parallel_decode_status."""
        facts = self._facts
        session = facts.session
        words = {} if session is None else session.control.snapshot()
        lengths = [[], []] if session is None else _queue_lengths(session)
        received = words.get("received_lsn", 0)
        limit = self.limit()
        collector = None if session is None else session.collector
        return {
            "slot_name": facts.slot,
            "parallel_decode_num": facts.decoder_count,
            "read_change_queue_length": _queues(lengths[0]),
            "decode_change_queue_length": _queues(lengths[1]),
            "reader_lsn": str(Lsn(received)),
            "working_txn_cnt": int(
                collector is not None and collector.assembler.is_transaction_open
            ),
            "working_txn_memory": 0 if collector is None else collector.assembler.retained_bytes,
            "durable_lsn": str(Lsn(facts.durable_lsn)),
            "confirmed_lsn": str(Lsn(words.get("confirmed_lsn", 0))),
            "server_wal_end": str(Lsn(words.get("server_wal_end", 0))),
            **self.lag(session),
            "state": facts.state,
            "detail": facts.reason,
            "entry": facts.entry,
            "root": str(facts.root),
            "pid": os.getpid(),
            "children": {} if session is None else session.process_ids(),
            "stages": _stages(session, self._landing.stats()),
            "limit": dataclasses.asdict(limit),
            "warnings": [f"{item.what} {item.action}" for item in self.advice(limit)],
            "server": server_record(facts.guard),
            "snapshot": {} if facts.snapshot is None else facts.snapshot(),
            "coverage": facts.coverage.to_record(),
            "version": gaussdecode.__version__,
        }


def _snapshot_values(facts: DaemonFacts) -> Values:
    """How far snapshots of tables are, and what publications and white list leave out."""
    tables = [] if facts.snapshot is None else list(facts.snapshot().values())
    states = [table["state"] for table in tables]
    left = [table["seconds_left"] for table in tables if table["seconds_left"] is not None]
    running = [table for table in tables if table["state"] in ("reading", "landing")]
    counts = {
        "pending_tables": sum(state not in ("done", "failed", "ignored") for state in states),
        "failed_tables": states.count("failed"),
        "ignored_tables": states.count("ignored"),
        "rows": sum(table["rows"] for table in tables),
        "bytes": sum(table["bytes"] for table in tables),
        "estimated_rows": sum(max(table["estimate"], table["rows"]) for table in running),
        "chunks": sum(table["chunks"] for table in running),
        "chunks_done": sum(table["chunks_done"] for table in running),
        "left_seconds": sum(left),
    }
    covered = {
        "gaussdecode_source_unlisted_tables": facts.coverage.unlisted_count,
        "gaussdecode_source_unpublished_items": facts.coverage.unpublished_count,
    }
    named = {f"gaussdecode_land_snapshot_{name}": count for name, count in counts.items()}
    return {name: {(): float(count)} for name, count in {**named, **covered}.items()}


def free_bytes(root: Path) -> float:
    """Room for us on the file system of a landing; 0 when it cannot be told."""
    try:
        found = os.statvfs(root)
    except OSError:
        return 0.0
    return float(found.f_bavail * found.f_frsize)


def _queue_lengths(session: Session) -> list[list[int]]:
    decoded = [ring.length() for ring in session.decoded_rings]
    raw = [ring.length() for ring in session.raw_rings] or [0] * len(decoded)
    return [raw, decoded]


def _queues(lengths: list[int]) -> str:
    """The server's spelling: ``queue0: 33, queue1: 36``."""
    return ", ".join(f"queue{index}: {length}" for index, length in enumerate(lengths))


def _session_values(session: Session) -> Values:
    """Everything that belongs to one session."""
    words = session.control.snapshot()
    now = time.monotonic_ns()
    last = words["last_receive_ns"]
    plain = {
        "source_received_bytes_total": words["received_bytes"],
        "source_received_messages_total": words["received_messages"],
        "source_dispatched_batches_total": words["batches"],
        "source_received_lsn": words["received_lsn"],
        "source_server_wal_end_lsn": words["server_wal_end"],
        "source_confirmed_lsn": words["confirmed_lsn"],
        "source_silence_seconds": (now - last) * _NS if last else 0.0,
        "source_status_updates_total": words["status_sent_count"],
        "source_notices_total": words["notices"],
        "source_heartbeats_total": words["heartbeats"],
        "source_heartbeat_lsn": words["heartbeat_lsn"],
        "source_busy_seconds_total": words["busy_ns"] * _NS,
        "source_stalled_seconds_total": words["stalled_ns"] * _NS,
        "source_waited_seconds_total": words["waited_ns"] * _NS,
    }
    if session.collector is not None:
        plain |= _collector_values(session.collector)
    values: Values = {f"gaussdecode_{name}": {(): float(value)} for name, value in plain.items()}
    if session.collector is not None:
        values["gaussdecode_collect_left_out_rows_total"] = {
            (reason,): float(rows)
            for reason, rows in session.collector.assembler.left_out_rows.items()
        }
    raw, decoded = _queue_lengths(session)
    for index, (waiting, done) in enumerate(zip(raw, decoded, strict=True)):
        label = (str(index),)
        decoder = session.control.decoder_snapshot(index)
        series = {
            "read_change_queue_length": waiting,
            "decode_change_queue_length": done,
            "decode_batches_total": decoder["batches"],
            "decode_wire_bytes_total": decoder["wire_bytes"],
            "decode_rows_total": decoder["rows"],
            "decode_busy_seconds_total": decoder["busy_ns"] * _NS,
            "decode_waited_input_seconds_total": decoder["waited_input_ns"] * _NS,
            "decode_waited_output_seconds_total": decoder["waited_output_ns"] * _NS,
            "decode_misfit_values_total": decoder["misfits"],
        }
        for name, value in series.items():
            values.setdefault(f"gaussdecode_{name}", {})[label] = float(value)
    return values


def _collector_values(collector: Collector) -> dict[str, float]:
    held = collector.assembler
    return {
        "collect_open_transactions": float(held.is_transaction_open),
        "collect_open_bytes": held.retained_bytes,
        "collect_pending_bytes": held.held_bytes,
        "collect_spooled_bytes": held.spooled_bytes,
        "collect_spooled_transactions_total": held.spooled_count,
        "collect_transactions_total": held.transaction_count,
        "collect_rows_total": held.row_count,
        "collect_skipped_transactions_total": held.resent_count,
        "collect_foreign_transactions_total": held.foreign_count,
        "collect_suspect_transactions_total": collector.suspect_count,
        "collect_empty_transactions_total": held.empty_count,
        "collect_waited_seconds_total": held.waited_ns * _NS,
        "collect_busy_seconds_total": max(0, held.busy_ns - held.waited_ns) * _NS,
    }


def _stages(session: Session | None, writer: Mapping[str, float]) -> dict[str, Any]:  # Any: JSON
    """Seconds each stage worked and waited, so that the limiting one can be named."""
    if session is None:
        return {}
    words = session.control.snapshot()
    decoders = [
        session.control.decoder_snapshot(index) for index in range(len(session.decoded_rings))
    ]
    stages: dict[str, Any] = {  # Any: JSON
        "source": {
            "busy_seconds": words["busy_ns"] * _NS,
            "waited_seconds": words["waited_ns"] * _NS,
            "stalled_seconds": words["stalled_ns"] * _NS,
            "bytes": words["received_bytes"],
        },
        "decode": [
            {
                "busy_seconds": decoder["busy_ns"] * _NS,
                "waited_seconds": decoder["waited_input_ns"] * _NS,
                "stalled_seconds": decoder["waited_output_ns"] * _NS,
                "bytes": decoder["wire_bytes"],
                "rows": decoder["rows"],
            }
            for decoder in decoders
        ],
        "land": dict(writer),
    }
    if session.collector is not None:
        held = session.collector.assembler
        waited = held.waited_ns * _NS
        stages["collect"] = {
            "busy_seconds": max(0.0, held.busy_ns * _NS - waited),
            "waited_seconds": waited,
            "rows": held.row_count,
            "transactions": held.transaction_count,
            "misfits": session.collector.misfit_count,
        }
    return stages
