"""Build the ``/status`` document, beginning with the columns of gs_get_parallel_decode_status."""

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import gaussdecode
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.daemon.status.facts import DaemonFacts, Running
from gaussdecode.daemon.status.history import Sample
from gaussdecode.daemon.status.limit import Limit
from gaussdecode.daemon.status.processes import read_use
from gaussdecode.daemon.status.queues import Fill
from gaussdecode.daemon.status.serverside import server_record
from gaussdecode.daemon.status.sources import SourceView, lag_of, spelled_lsn
from gaussdecode.daemon.status.trouble import Trouble, find_causes
from gaussdecode.daemon.status.values import NS, Record, queue_fills
from gaussdecode.model.lsn import Lsn

_MOST_PREPARED: Final = 20  # transactions of a status; arbitrary


def status_document(
    facts: DaemonFacts,
    running: Running,
    landing: Pipeline,
    views: Sequence[SourceView],
    limit: Limit,
    troubles: Sequence[Trouble],
    rates: Sample | None,
    lags: Sequence[tuple[float, float]],
) -> Record:
    """Write it.

    Args:
        facts: facts of the daemon.
        running: current state.
        landing: landed positions and counts.
        views: views of every source.
        limit: the stage that limits.
        troubles: problems, the worst first.
        rates: rates of the last seconds, or None.
        lags: lag of the last half hour: seconds ago, and seconds or NaN.
    """
    session, durable, stats = running.session, landing.landed.durable, landing.stats()
    words = {} if session is None else session.lead.control.snapshot()
    return {
        "slot_name": facts.slot,
        "source": {**facts.source, "version": _version(facts, landing.server_version)},
        "uptime_seconds": round(max(0.0, time.time() - facts.started_time), 1),
        "rows_per_second": None if rates is None else round(rates.land_rows_total, 1),
        "memory_bytes": _memory(running),
        "parallel_decode_num": running.decoder_count(facts),
        **_queue_records(session),
        "reader_lsn": spelled_lsn(words.get("received_lsn", 0)),
        **_held(session),
        "durable_lsn": spelled_lsn(durable.lsn),
        "confirmed_lsn": spelled_lsn(words.get("confirmed_lsn", 0)),
        "server_wal_end": spelled_lsn(views[0].wal_end),
        "server_seen_seconds": views[0].seen_seconds,
        **lag_of(views),
        "lag_history": [[round(ago), _known(lag)] for ago, lag in lags],
        "sources": [view.to_record() for view in views] if facts.tells_sources else [],
        "state": running.shown_state,
        "detail": running.standing.reason,
        "paused": None if running.pause is None else running.pause.to_record(),
        "entry": durable.entry,
        "mirror": _mirror(stats),
        "root": str(facts.root),
        "pid": os.getpid(),
        "children": running.process_ids(),
        "stages": {} if session is None else _stages(session.lead, stats),
        "limit": dataclasses.asdict(limit),
        **_judged(troubles),
        "server": server_record(running.guard),
        "snapshot": {} if running.snapshot is None else running.snapshot(),
        "is_snapshot_settled": running.is_snapshot_settled(),
        "coverage": landing.coverage.to_record(),
        "serve": None if running.serving is None else running.serving.record(),
        "virtual_slots": running.virtual_slots(),
        "version": gaussdecode.__version__,
    }


def _known(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds, 1)


def _held(session: Session | SessionGroup | None) -> Record:
    """What the assemblers of all sources hold together."""
    members = () if session is None else session.members
    held = [one.collector.assembler for one in members if one.collector is not None]
    prepared = [waiting for one in held for waiting in one.prepared_transactions]
    return {
        "working_txn_cnt": sum(one.open_count for one in held),
        "working_txn_memory": sum(one.retained_bytes for one in held),
        "working_txn_spooled": sum(one.spooled_bytes for one in held),
        "working_txn_spooled_batches": sum(one.spooled_batches for one in held),
        "prepared_txn_cnt": len(prepared),
        "prepared_txns": _prepared(prepared),
    }


def _judged(troubles: Sequence[Trouble]) -> Record:
    return {
        "is_well": not any(item.state.ends_status for item in troubles),
        "is_ready": not any(item.state.is_unready for item in troubles),
        "troubles": [item.to_record() for item in troubles],
        "causes": [cause.to_record() for cause in find_causes(troubles)],
    }


def _prepared(waiting: Sequence[tuple[bytes, int, int, int, int]]) -> list[Record]:
    """The prepared transactions that wait, the oldest first; not more than a screen of them."""
    return [
        {
            "gid": gid.decode("utf-8", "backslashreplace"),
            "xid": xid,
            "lsn": str(Lsn(lsn)),
            "seconds": round(max(0.0, time.time() - time_us / 1e6), 1),
            "rows": rows,
        }
        for gid, xid, lsn, time_us, rows in sorted(waiting, key=lambda one: one[3])[:_MOST_PREPARED]
    ]


def _queue_records(session: Session | SessionGroup | None) -> Record:
    """As the server shows its own, and in more words."""
    raw, decoded = queue_fills(session)
    return {
        "read_change_queue_length": _queues(raw),
        "decode_change_queue_length": _queues(decoded),
        "queues": [
            {"read": _fill(waiting), "decode": _fill(done)}
            for waiting, done in zip(raw, decoded, strict=True)
        ],
    }


def _version(facts: DaemonFacts, number: int | None) -> str | None:
    """As the product spells it: 15.18, 5.0.1."""
    if number is None:
        return None
    major, rest = divmod(number, 10_000)
    parts = (rest,) if facts.source.get("plugin") == "pgoutput" else divmod(rest, 100)
    return ".".join(map(str, (major, *parts)))


def _memory(running: Running) -> int:
    """Of all processes; what they share counts in each."""
    ids = [os.getpid(), *running.process_ids().values()]
    return sum(use.resident_bytes for use in map(read_use, ids) if use is not None)


def _queues(fills: Sequence[Fill]) -> str:
    """The server's spelling: ``queue0: 33, queue1: 36``."""
    return ", ".join(f"queue{index}: {fill.length}" for index, fill in enumerate(fills))


def _fill(fill: Fill) -> dict[str, float]:
    return {**dataclasses.asdict(fill), "length": fill.length, "share": round(fill.share, 3)}


def _mirror(stats: Mapping[str, float]) -> Record | None:
    """How far the mirror is; None where there is none."""
    if "land_mirror_up" not in stats:
        return None
    return {
        "is_up": bool(stats["land_mirror_up"]),
        "entry": int(stats["land_mirror_entry"]),
        "backlog_entries": int(stats["land_mirror_backlog_entries"]),
        "backlog_bytes": int(stats["land_mirror_backlog_bytes"]),
        "backlog_seconds": round(stats["land_mirror_backlog_seconds"], 1),
    }


def _stages(session: Session, writer: Mapping[str, float]) -> dict[str, Any]:  # Any: JSON
    """Seconds each stage worked and waited, so that the limiting one can be named."""
    words = session.control.snapshot()
    decoders = [
        session.control.decoder_snapshot(index) for index in range(len(session.decoded_rings))
    ]
    stages: dict[str, Any] = {  # Any: JSON
        "source": {
            "busy_seconds": words["busy_ns"] * NS,
            "waited_seconds": words["waited_ns"] * NS,
            "stalled_seconds": words["stalled_ns"] * NS,
            "bytes": words["received_bytes"],
        },
        "decode": [
            {
                "busy_seconds": decoder["busy_ns"] * NS,
                "waited_seconds": decoder["waited_input_ns"] * NS,
                "stalled_seconds": decoder["waited_output_ns"] * NS,
                "bytes": decoder["wire_bytes"],
                "rows": decoder["rows"],
            }
            for decoder in decoders
        ],
        "land": dict(writer),
    }
    if session.collector is not None:
        held = session.collector.assembler
        stages["collect"] = {
            "busy_seconds": held.worked_ns * NS,
            "waited_seconds": held.waited_ns * NS,
            "rows": held.row_count,
            "transactions": held.transaction_count,
            "misfits": session.collector.misfit_count,
        }
    return stages
