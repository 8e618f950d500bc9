"""Run sessions one after the other, until a stop is asked for or trying again is useless.

A session that ends in an error that may pass (the source is away) is followed by another one, after a wait
(`retry`). A log-in that the server refuses may pass as well, where it was let in before: a password or a
certificate is changed on both sides, one after the other. Nobody else asks the server meanwhile: the guard
rests, and snapshots need a session. Any other error ends the daemon with the exit status of the error, and
systemd acts on it. This includes a dead process of the pipeline, so that no half-running daemon remains.

States, for `status` and systemd: starting, connecting, streaming, retrying, refused, stopping.
Refused is short: a loss is shown to the next scrape before the daemon ends of it.

SIGTERM and SIGINT stop in order. SIGHUP does so where the daemon was started at a terminal,
which has gone then; elsewhere it is a reload.

A reload (`daemon.acts`) ends the session in order and makes everything but the process anew, with the
configuration that was read: what a start does, so that no key can take effect in part. If no stream
begins with it, the same is done with the former one.
"""

import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

from gaussdecode import logs
from gaussdecode.daemon import lost_slot, quarantine
from gaussdecode.daemon.acts import Acts
from gaussdecode.daemon.control import Act, ActQueue, ControlSocket
from gaussdecode.daemon.decoder_change import change_decoders
from gaussdecode.daemon.decoders import Choice
from gaussdecode.daemon.guard import Guard, Look, probe_of
from gaussdecode.daemon.idle import Idle
from gaussdecode.daemon.monitoring import Monitoring
from gaussdecode.daemon.notify import Notifier
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.retry import Backoff, Retry
from gaussdecode.daemon.serving import Serving, Task
from gaussdecode.daemon.session import POLL_SECONDS, Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.daemon.snapshots import Snapshots
from gaussdecode.daemon.status.facts import DaemonFacts, Running, Standing
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.daemon.status.reading import Readings
from gaussdecode.daemon.summary import Summary
from gaussdecode.daemon.troublehook import Told, TroubleHook
from gaussdecode.errors import (
    ConfigError,
    DiskStillFullError,
    GaussDecodeError,
    LoginRefusedError,
    RowError,
    SourceRefusedError,
    StoppedError,
    TableError,
    error_text,
)
from gaussdecode.host.cores import Cores
from gaussdecode.host.process_memory import process_memory_bytes
from gaussdecode.ipc.process import Prepared
from gaussdecode.logs import Event, get_logger
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config

_START_SECONDS: Final = 600.0  # recovery may read every byte of one entry
_EXTEND_SECONDS: Final = 30.0  # between two words to systemd that the start goes on
_NO_ROOM: Final = "the landing's disk is full: recovery waits for space"
_ENDED_BY_STOP: Final = (DiskStillFullError, StoppedError)
_SCRAPE_SECONDS: Final = 75.0  # an interval of a minute is the longest that is usual
_ANSWER_SECONDS: Final = 1.0  # for the answer to a scrape to leave
_SERVE_AGAIN: Final = (1.0, 60.0)  # seconds before the server for clients starts again; arbitrary
_log = get_logger("daemon")


class Supervisor:
    """One daemon, one slot.

    Args:
        config: checked.
        notifier: systemd's socket, or one that does nothing.
        prepared: children that were started before; None for no such.
    """

    def __init__(
        self, config: Config, notifier: Notifier, prepared: Prepared | None = None
    ) -> None:
        self._prepared = prepared
        self._notifier = notifier
        self._stop = threading.Event()
        self._running = Running()
        self._queue = ActQueue()
        self._acts = Acts(config, self._running, self._queue)
        self._control: ControlSocket | None = None  # since the landing was recovered
        self._is_reload_asked = False
        self._is_at_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._facts = DaemonFacts.of(config)
        self._monitoring = Monitoring(self._running, self._acts, self._queue)
        self._use(config)
        self._pipeline: Pipeline | None = None
        self._readings: Readings | None = None
        self._summary: Summary | None = None
        self._looked_at: Look | None = None
        self._has_streamed = False
        self._told = Told()
        self._idle = Idle()
        self._cores = Cores()

    def _use(self, config: Config) -> None:
        """Take what follows from a configuration alone."""
        self._config = config
        started = self._facts.started_time
        self._facts = dataclasses.replace(DaemonFacts.of(config), started_time=started)
        self._retry = Retry(config)
        self._choice = Choice(config.decoding.most_decoders) if config.changes_decoders else None

    def run(self) -> None:
        """Recover the landing, then stream until stopped; with each configuration that is reloaded.

        Raises:
            GaussDecodeError: why it cannot go on.
        """
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, self._on_hangup)
        try:
            while True:
                try:
                    self._run_configured()
                except GaussDecodeError as error:
                    if self._stop.is_set() or not self._acts.has_failed(error):
                        raise
                config = self._acts.take_next()
                if config is None or self._stop.is_set():
                    return
                self._use(config)
                logs.configure(config.monitoring.log_level, slot=config.slot)
        finally:
            self._acts.close()
            if self._control is not None:
                self._control.close()

    def _run_configured(self) -> None:
        """Do all of it with one configuration."""
        self._check_snapshots()
        self._check_memory()
        self._notifier.extend(_START_SECONDS)
        with Pipeline(
            self._config,
            self._should_end,
            self._running.is_optional_paused,
            self._prepared,
            self._acts.is_paused,
        ) as pipeline:
            self._pipeline = pipeline
            self._running.virtual_slots = pipeline.virtual_slots.records
            self._readings = readings = Readings(self._facts, self._running, pipeline)
            self._summary = summary = Summary(pipeline.landed, time.monotonic())
            server = self._monitoring.open(self._config, readings, self._is_alive)
            hook = TroubleHook(
                self._config.notify, self._config.slot, readings.troubles, self._told
            )
            hook.start()
            try:
                if self._recover(pipeline):
                    self._follow(pipeline, readings, server)
            finally:
                self._leave()
                hook.close()
                server.close()
                summary.tell(time.monotonic(), readings.lag(None), is_last=True)

    def _recover(self, pipeline: Pipeline) -> bool:
        """Recover the landing in a thread, while this one says how it is.

        Recovery may have to wait for room on the disk, or for a log that comes from the mirror:
        that is seen over HTTP, by systemd and in the log, and a stop ends it.

        Returns:
            False when a stop ended the wait for room, or for the mirror.
        """
        failures: list[BaseException] = []

        def recover() -> None:
            try:
                pipeline.recover()
            except BaseException as error:  # noqa: BLE001  # raised where it is waited for
                failures.append(error)

        thread = threading.Thread(target=recover, name="recovery", daemon=True)
        thread.start()
        extend_at = time.monotonic() + _EXTEND_SECONDS
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            reason = _NO_ROOM if pipeline.is_waiting_for_space else pipeline.fetching
            self._running.standing = Standing("starting", reason)
            self._on_tick()
            if time.monotonic() > extend_at:
                extend_at += _EXTEND_SECONDS
                self._notifier.extend(_START_SECONDS)
                self._notifier.status(reason or "recovering the landing")
        self._running.standing = Standing("starting")
        if failures and isinstance(failures[0], _ENDED_BY_STOP) and self._stop.is_set():
            _log.warning(Event.DAEMON_STOPPING, reason=str(failures[0]))
            return False
        if failures:
            raise failures[0]
        return True

    def _follow(self, pipeline: Pipeline, readings: Readings, server: MonitoringServer) -> None:
        """Stream into a landing that is recovered, until stopped."""
        if self._control is None:  # a reload keeps it: who asks meanwhile is told to ask again
            self._control = ControlSocket(self._config.landing.root, self._queue.ask)
        guard = self._start_guard(pipeline, readings)
        snapshots = self._start_snapshots(pipeline)
        serving = self._start_serving()
        self._notifier.ready("landing recovered")
        try:
            self._run_sessions(pipeline, readings)
        except SourceRefusedError as error:
            self._let_be_seen(server, error)
            raise
        finally:
            self._leave()
            self._acts.settle()
            if snapshots is not None:
                snapshots.close()
            guard.close()
            readings.keep(is_last=True)
            if serving is not None:
                serving.close()
                self._running.serving = None

    def _check_memory(self) -> None:
        """Say when the buffers may hold more than this process may have."""
        limit = process_memory_bytes()
        if limit is not None and self._facts.budget_bytes > limit:
            _log.warning(
                Event.CONFIG_WARNING,
                text=f"the buffers may hold {self._facts.budget_bytes >> 20} MiB, this process and "
                f"its children may have {limit >> 20} MiB: raise MemoryMax, or lower "
                "landing.memory-bytes, landing.row-group-bytes, landing.writer-lanes, snapshot.workers or the ring sizes",
            )

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        if self._is_at_terminal:
            self._stop.set()
        self._is_reload_asked = True  # for the next tick, not in the middle of anything

    def _should_end(self) -> bool:
        """A session is to end in order: on request, or because the guard gives the slot up."""
        guard = self._running.guard
        is_restart_wanted = self._pipeline is not None and self._pipeline.is_restart_wanted
        is_giving_up = guard is not None and guard.wants_drop
        return self._is_leaving() or is_restart_wanted or is_giving_up

    def _is_leaving(self) -> bool:
        """No more sessions with this configuration."""
        return self._stop.is_set() or self._acts.next is not None

    def _start_guard(self, pipeline: Pipeline, readings: Readings) -> Guard:
        config, measure = self._config, pipeline.reserve.measure
        guard = Guard(config.guard, probe_of(config), measure, readings.keep)
        self._running.guard = guard
        guard.start()
        return guard

    def _start_serving(self) -> Serving | None:
        """Start the server for clients of the landing, where it is to run in the daemon."""
        if not self._config.serve.in_daemon:
            return None
        again = Backoff(*_SERVE_AGAIN)
        serving = self._running.serving = Serving(Task.of(self._config), again.next_wait)
        serving.start()
        return serving

    def _check_snapshots(self) -> None:
        """Refuse, or say aloud, that existing rows cannot be read with these settings.

        A landing that has not begun is refused where it is to begin.
        """
        reason = self._config.beginning_refusal
        if reason is None:
            return
        if self._config.snapshot.mode == "only":
            raise ConfigError(reason)
        _log.warning(Event.SNAPSHOT_REFUSED, reason=reason)

    def _start_snapshots(self, pipeline: Pipeline) -> Snapshots | None:
        if self._config.snapshot_refusal is not None:
            self._running.is_snapshot_settled = lambda: True
            return None
        snapshots = Snapshots(self._config, pipeline, self._stop.set)
        self._running.snapshot = snapshots.status
        self._running.snapshot_read = snapshots.read
        self._running.snapshot_faults = snapshots.faults
        self._running.is_snapshot_settled = snapshots.is_settled
        snapshots.start()
        return snapshots

    # ---- sessions --------------------------------------------------------------------

    def _run_sessions(self, pipeline: Pipeline, readings: Readings) -> None:
        while not self._is_leaving():
            self._acts.is_hurried = False
            self._set_state("connecting", self._running.standing.reason)  # why it did not before
            self._running.sessions += 1
            self._retry.begin()
            try:
                session = pipeline.session(self._on_tick, self._on_streaming)
            except LoginRefusedError as refused:
                if not self._was_let_in(pipeline):
                    raise
                self._wait(refused)  # a file is being changed
                continue
            self._running.session = session
            if self._choice is not None:
                self._choice.begin()
            try:
                error = self._run_one(pipeline, session)
            except LoginRefusedError as refused:
                if not self._was_let_in(pipeline):
                    raise  # at the first start it is a mistake in the configuration
                error = refused
            except SourceRefusedError as refused:
                gaps = lost_slot.record_loss(self._config, pipeline)
                self._running.is_slot_lost = bool(gaps)
                final = lost_slot.final_refusal(self._config, gaps) if gaps else None
                if final is not None:
                    raise final from refused
                raise
            readings.retire(session)
            pipeline.session_ended(error)
            self._running.session = None
            if isinstance(error, TableError | RowError) and pipeline.streaming.reason is not None:
                continue  # the row is asked for once more, of a transaction that has committed
            if isinstance(error, TableError):
                pipeline.quarantines.add(error, session.members)
                continue
            error = self._give_up(pipeline, error)
            if error is None and self._config.source.kind is SourceKind.CAPTURE:
                return  # a recording ends
            if error is not None and not self._is_leaving():
                self._wait(error)

    def _run_one(
        self, pipeline: Pipeline, session: Session | SessionGroup
    ) -> GaussDecodeError | None:
        """Run a session; an error that may pass is given back, others are raised."""
        try:
            session.run()
        except DiskStillFullError as error:
            if not self._should_end():
                raise
            _log.warning(Event.DAEMON_STOPPING, reason=str(error))
        except GaussDecodeError as error:
            self._running.note_restart(type(error).__name__)
            if isinstance(error, TableError | RowError) and pipeline.streaming.shows_uncommitted:
                return error
            if isinstance(error, TableError):
                if not quarantine.helps(self._config, pipeline, error):
                    raise quarantine.advised(self._config, error) from error
                return error
            if not error.retryable:
                raise
            return error
        return None

    def _give_up(
        self, pipeline: Pipeline, error: GaussDecodeError | None
    ) -> GaussDecodeError | None:
        """Between two sessions: take the guard's last step, if it is to be taken."""
        guard = self._running.guard
        if guard is None or not guard.wants_drop or self._stop.is_set():
            return error
        try:
            refusal = lost_slot.give_up_slot(self._config, pipeline)
        except GaussDecodeError as failure:
            if not failure.retryable and not isinstance(failure, LoginRefusedError):
                raise
            return failure
        self._running.is_slot_lost = True
        raise refusal

    def _let_be_seen(self, server: MonitoringServer, error: GaussDecodeError) -> None:
        """Stay for one more scrape after a loss: no alert comes of what nobody has read.

        Only where somebody has scraped since the start.
        """
        seen = server.scrapes
        if not seen or not self._running.is_slot_lost:
            return
        self._set_state("refused", str(error))
        deadline = time.monotonic() + _SCRAPE_SECONDS
        while server.scrapes == seen and time.monotonic() < deadline and not self._stop.is_set():
            self._on_tick()
            self._stop.wait(POLL_SECONDS)
        self._stop.wait(_ANSWER_SECONDS)

    def _on_streaming(self) -> None:
        self._has_streamed = True
        self._retry.streams()
        self._set_state("streaming")
        self._acts.has_begun()

    def _was_let_in(self, pipeline: Pipeline) -> bool:
        """Whether the server has let us in before, now or in an earlier process."""
        return self._has_streamed or pipeline.landed.durable.entry > 0

    def _wait(self, error: GaussDecodeError) -> None:
        """Wait before the next session, after one that ended in an error."""
        if self._acts.has_failed(error):
            return  # nobody waits: the former configuration comes next
        reason, guard = error_text(error), self._running.guard
        self._set_state("retrying", reason)
        seconds, is_over = self._retry.wait_after(error)
        if guard is not None and isinstance(error, LoginRefusedError):
            guard.login_refusal = reason
        self._pass_time(seconds, is_over)
        if guard is not None:
            guard.login_refusal = None

    def _pass_time(self, seconds: float, is_over: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while (
            not (self._is_leaving() or self._acts.is_hurried or is_over())
            and time.monotonic() < deadline
        ):
            self._on_tick()
            self._stop.wait(min(POLL_SECONDS, seconds))

    # ---- how it is -------------------------------------------------------------------

    def _leave(self) -> None:
        """Show that the daemon ends, or that it begins again with another configuration."""
        self._set_state("stopping" if self._acts.next is None else "starting")

    def _set_state(self, state: str, reason: str | None = None) -> None:
        self._running.standing = standing = Standing(state, reason)
        if state == "stopping":
            self._notifier.stopping(standing.text)
        else:
            self._notifier.status(standing.text)

    def _on_tick(self) -> None:
        assert self._pipeline is not None
        assert self._readings is not None
        assert self._summary is not None
        self._readings.sample()
        self._summary.tell(time.monotonic(), self._readings.lag(self._running.session))
        self._pipeline.check()
        self._idle.look(time.monotonic_ns(), self._pipeline.landed_ns())
        self._look_at_server(self._pipeline)
        if self._choice is not None and not self._should_end():
            change_decoders(self._pipeline, self._running, self._choice, self._cores)
        self._acts.look(self._pipeline)
        if self._is_reload_asked and not self._is_at_terminal:
            self._is_reload_asked = False
            self._acts.carry_out(Act("reload", None, "SIGHUP"), self._pipeline)
        if not self._notifier.feed(time.monotonic(), self._is_alive):
            _log.error(Event.WATCHDOG_WITHHELD)

    def _look_at_server(self, pipeline: Pipeline) -> None:
        """Hand over what the guard has seen last, while a session streams."""
        outlook = None if self._running.guard is None else self._running.guard.outlook
        if outlook is None or outlook.look.slot is None or not self._running.standing.is_streaming:
            return
        if outlook.look is not self._looked_at:
            self._looked_at = outlook.look
            pipeline.first.see_role(is_standby=outlook.look.slot.is_standby)

    def _is_alive(self) -> bool:
        session = self._running.session
        return session is None or session.stuck_stage() is None
