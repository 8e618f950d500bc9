"""Read all counters of the daemon at one moment, as metrics and as status.

Other threads and processes write the counters. Every number is whole by itself; two of them may be an
instant apart. Counters of earlier sessions are added, so that a new session does not make them fall.
"""

import os
import time
from typing import Final

import gaussdecode
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.daemon.status.changes import Changes
from gaussdecode.daemon.status.document import status_document
from gaussdecode.daemon.status.facts import DaemonFacts, Running
from gaussdecode.daemon.status.history import History, Sample, series
from gaussdecode.daemon.status.limit import WINDOW_SECONDS, Context, Limit, Stage, find_limit
from gaussdecode.daemon.status.page import Picture
from gaussdecode.daemon.status.processes import Processes
from gaussdecode.daemon.status.queues import mean_share
from gaussdecode.daemon.status.seen import WATCHED, Seen
from gaussdecode.daemon.status.seen import WINDOW_SECONDS as STATES_SECONDS
from gaussdecode.daemon.status.serverside import guard_values, server_hint
from gaussdecode.daemon.status.sources import (
    Sources,
    find_stopped,
    lag_of,
    mark_waits,
    number,
    source_values,
)
from gaussdecode.daemon.status.states import find_troubles
from gaussdecode.daemon.status.trouble import Trouble, readiness
from gaussdecode.daemon.status.values import (
    Record,
    Values,
    queue_fills,
    running_values,
    snapshot_values,
)
from gaussdecode.metrics.exposition import histogram_values
from gaussdecode.metrics.metric import Kind, Labels
from gaussdecode.metrics.table import BY_NAME
from gaussdecode.model.landing import EntryKind
from gaussdecode.settings.sections import PORT_CERTIFICATE

_LAG_POINTS: Final = 30  # of the history in the status document; arbitrary


class Readings:
    """Takes readings; counters never fall.

    Args:
        facts: data that hold from start to end.
        running: data that change; read, never written.
        landing: landed positions and counts.
    """

    def __init__(self, facts: DaemonFacts, running: Running, landing: Pipeline) -> None:
        self._facts = facts
        self._running = running
        self._landing = landing
        self._sources = Sources(facts, running, landing)
        self._history = History()
        self._changes = Changes(WATCHED)
        self._processes = Processes()
        self._past: tuple[Values, Session | SessionGroup | None] = (
            {},
            None,
        )  # and the last session in it

    def retire(self, session: Session | SessionGroup) -> None:
        """Carry the counters of a session that ends along; those who read see them once."""
        values, _ = self._past
        self._past = _sum(values, running_values(session), is_past=True), session

    def metrics(self) -> Values:
        """All metrics, for `metrics.Exposition`."""
        running, landing = self._running, self._landing
        session = running.session
        values, retired = self._past  # after the session is read: none may be missed
        if session is not None and session is not retired:
            values = _sum(values, running_values(session), is_past=False)
        limit = self.limit().stage
        own: Values = {
            **{name: {(): value} for name, value in self._plain(session).items()},
            **self._processes.values({"main": os.getpid(), **running.process_ids()}),
            "daemon_restarts_total": {(error,): n for error, n in running.restarts.items()},
            "daemon_info": {(gaussdecode.__version__,): 1.0},
            "daemon_certificate_end_time_seconds": self._certificates(),
            "daemon_limit": {(str(stage),): float(stage is limit) for stage in Stage},
        }
        if self._facts.tells_sources:
            views = self._sources.look(session)
            own |= source_values(views, is_by_csn=self._facts.is_by_csn)
        tables = [] if running.snapshot is None else list(running.snapshot().values())
        return {
            **_sum(values, self._durations(), is_past=True),
            **{f"gaussdecode_{name}": series for name, series in own.items()},
            **snapshot_values(tables, running.snapshot_read(), landing.coverage),
        }

    def _durations(self) -> Values:
        """Histograms of the landing."""
        values: Values = {}
        for name, counted in self._landing.histograms().items():
            values |= histogram_values(f"gaussdecode_{name}", counted)
        return values

    def _certificates(self) -> dict[Labels, float]:
        """Until when each certificate is valid, in seconds since 1970."""
        ends = {name: of.seconds() for name, of in self._facts.certificates.items()}
        if self._running.port_end is not None:
            ends[PORT_CERTIFICATE] = self._running.port_end()
        return {(name,): end for name, end in ends.items()}

    def _plain(self, session: Session | SessionGroup | None) -> dict[str, float]:
        """Metrics without labels that are no session's."""
        facts, running, landing = self._facts, self._running, self._landing
        lag, durable = self.lag(session), landing.landed.durable
        plain = {
            "source_connected": float(running.standing.is_streaming),
            "source_lag_bytes": number(lag["lag_bytes"]),
            "source_lag_seconds": number(lag["lag_seconds"]),
            "land_durable_lsn": number(durable.lsn or None),
            "land_entry": durable.entry,
            "daemon_memory_budget_bytes": facts.budget_bytes,
            "daemon_start_time_seconds": facts.started_time,
            "daemon_sessions_total": running.sessions,
            "daemon_paused": float(running.pause is not None),
            "decode_decoders": running.decoder_count(facts),
            "decode_decoder_changes_total": running.decoder_changes,
            "land_gap_entries_total": landing.landed.count(EntryKind.GAP),
            "land_suspect_entries_total": landing.landed.count(EntryKind.SUSPECT),
            "land_unread_suspect_entries": landing.landed.unread_suspects(landing.read_again_n),
            "land_quarantine_entries_total": landing.landed.count(EntryKind.QUARANTINE),
            "land_quarantined_tables": len(landing.quarantined),
            "land_snapshot_unreadable_requests": len(running.snapshot_faults()),
            "land_lost_virtual_slots": sum(of["is_lost"] is True for of in running.virtual_slots()),
            **guard_values(running.guard),
            **landing.stats(),
        }
        if running.is_slot_lost:
            plain["source_slot_lost"] = 1.0  # the guard may not have looked since
        is_up = None if running.serving is None else running.serving.state.is_up
        if is_up is not None:
            plain["daemon_serve_up"] = float(is_up)
        return plain

    def sample(self) -> None:
        """Keep a reading in the history when it is time; called several times per second."""
        now = time.monotonic()
        self._sources.note()
        if self._history.is_due(now):
            values = self.metrics()
            self._changes.note(now, values)
            self._history.add(Sample.of(now, values))

    def limit(self) -> Limit:
        """Name the stage that limits now."""
        facts, running = self._facts, self._running
        standing = running.standing
        waiting, done = queue_fills(running.session)
        context = Context(
            is_streaming=standing.is_streaming,
            reason=standing.reason or standing.state,
            is_disk_full=bool(self._landing.stats().get("land_disk_full")),
            is_spool_full=_spool_wait(running.session) is not None,
            decoder_count=running.decoder_count(facts),
            lane_count=self._landing.lane_count,
            usual_lag_seconds=self._usual_lag(),
            read_share=mean_share(waiting),
            decode_share=mean_share(done),
            hint=server_hint(running.guard, facts.queue_size),
            is_by_csn=facts.is_by_csn,
            mark_waits=mark_waits(running.session),
            chooses_decoders=facts.chooses_decoders,
            stopped=find_stopped(running.session),
        )
        return find_limit(self._history.rates(WINDOW_SECONDS), context)

    def _usual_lag(self) -> float:
        """Seconds behind that say nothing: a few entries."""
        return 2 * self._facts.commit_interval + WINDOW_SECONDS / 3

    def troubles(self) -> list[Trouble]:
        """The present problems, the worst first."""
        facts, standing, guard = self._facts, self._running.standing, self._running.guard
        outlook = None if guard is None else guard.outlook
        return find_troubles(
            Seen(
                values=self.metrics(),
                ages=self._changes.ages(time.monotonic()),
                state=standing.state,
                reason=standing.reason,
                guard_reason=None if guard is None else guard.reason,
                spool_reason=_spool_wait(self._running.session),
                faults=tuple(self._running.snapshot_faults().values()),
                stopped=find_stopped(self._running.session),
                limit=self.limit(),
                rates=self._history.rates(STATES_SECONDS),
                retained_rate=0.0 if outlook is None else outlook.retained_rate,
                decoder_count=self._running.decoder_count(facts),
                usual_lag_seconds=self._usual_lag(),
                warn_before=facts.warn_before,
                config=facts.config,
                root=facts.root,
                now=time.time(),
                pause=None if self._running.pause is None else self._running.pause.text,
                serve_reason=None
                if self._running.serving is None
                else self._running.serving.state.reason,
            )
        )

    def readiness(self) -> tuple[bool, str]:
        """The answer of ``/readyz``."""
        return readiness(self.troubles())

    def picture(self) -> Picture:
        """All that the status page shows."""
        limit, troubles = self.limit(), self.troubles()
        raw, decoded = queue_fills(self._running.session)
        return Picture(
            status=self._document(limit, troubles),
            queues=list(zip(raw, decoded, strict=True)),
            limit=limit,
            troubles=troubles,
            samples=self._history.samples(),
            rates=self._history.rates(WINDOW_SECONDS),
            lane_count=self._landing.lane_count,
            tables=self._landing.landed.tables(),
            commits=self._landing.landed.commits(),
            has_acts=self._facts.has_acts,
        )

    def status(self) -> Record:
        """The document of ``/status``."""
        return self._document(self.limit(), self.troubles())

    def _document(self, limit: Limit, troubles: list[Trouble]) -> Record:
        return status_document(
            self._facts,
            self._running,
            self._landing,
            self._sources.look(self._running.session),
            limit,
            troubles,
            self._history.rates(WINDOW_SECONDS),
            series(self._history.samples(), "source_lag_seconds", _LAG_POINTS),
        )

    def lag(self, session: Session | SessionGroup | None) -> dict[str, float | None]:
        """Lag of the landing behind the server; of several sources, the greatest."""
        return lag_of(self._sources.look(session))

    def keep(self, *, is_last: bool = False) -> None:
        """See `Sources.keep`."""
        self._sources.keep(is_last=is_last)


def _spool_wait(session: Session | SessionGroup | None) -> str | None:
    """Why nothing can be taken, where a transaction is larger than the spool may be."""
    collectors = [] if session is None else [one.collector for one in session.members]
    waits = (one.spool_wait for one in collectors if one is not None)
    return next((wait for wait in waits if wait is not None), None)


def _sum(values: Values, more: Values, *, is_past: bool) -> Values:
    """Add a session's counters to those before it; its gauges hold only while it runs."""
    total = {name: dict(labelled) for name, labelled in values.items()}
    for name, labelled in more.items():
        is_counter = BY_NAME[name].kind is not Kind.GAUGE
        if is_past and not is_counter:
            continue
        into = total.setdefault(name, {})
        for labels, value in labelled.items():
            into[labels] = value + (into.get(labels, 0) if is_counter else 0)
    return total
