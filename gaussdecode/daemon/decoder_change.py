"""Have another session begin where another number of decoders may be faster."""

import time

from gaussdecode.daemon.decoders import Choice, Seen
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.status.facts import Running
from gaussdecode.host.cores import Cores
from gaussdecode.ipc.control import Word
from gaussdecode.logs import Event, get_logger

_log = get_logger("daemon")


def change_decoders(pipeline: Pipeline, running: Running, choice: Choice, cores: Cores) -> None:
    """Follow the choice of decoders; called several times per second."""
    session, before = running.session, choice.count
    if session is None or not running.standing.is_streaming:
        return
    if pipeline.streaming.reason is not None:
        return  # the one that takes what could not be streamed ends when that has landed
    now = time.monotonic()
    idle = cores.idle_seconds(now) if choice.is_due(now) else ()
    if idle and choice.look(_seen(running, session.lead, now, idle)):
        _log.info(
            Event.DECODERS_CHANGED,
            before=before,
            decoders=choice.count,
            is_trial=choice.is_trying,
            bytes_per_second={"before": choice.rate_before, "tried": choice.rate_tried},
        )
        running.decoder_changes += 1
        pipeline.first.decoder_count = choice.count
        pipeline.restart_session()


def _seen(running: Running, session: Session, now: float, idle: tuple[float, ...]) -> Seen:
    """The figures for the choice."""
    words = session.control
    decoders = [words.decoder_snapshot(index) for index in range(len(session.raw_rings))]
    guard = running.guard
    slot = None if guard is None or guard.outlook is None else guard.outlook.look.slot
    return Seen(
        at=now,
        received_bytes=words.get(Word.RECEIVED_BYTES),
        reader_busy=words.get(Word.BUSY_NS) / 1e9,
        reader_stalled=words.get(Word.STALLED_NS) / 1e9,
        decoders_busy=sum(one["busy_ns"] for one in decoders) / 1e9,
        decoders_blocked=sum(one["waited_output_ns"] for one in decoders) / 1e9,
        idle=idle,
        reread_bytes=None if slot is None else slot.reread_bytes,
    )
