"""Run sessions one after the other, until a stop is asked for or trying again is useless.

A session that ends in an error that may pass (the source is away) is followed by another one. The wait
doubles each time, with jitter, and begins anew once a session has lasted. A log-in that the server refuses
may pass as well, where it was let in before: a password or a certificate is changed on both sides, one
after the other. The waits are longer then, and end when the password or a file of the certificate is
changed. A GaussDB locks an account after ten wrong passwords: there a wrong one waits for that change
alone, and nobody else asks the server meanwhile: the guard rests, and snapshots need a session. Any
other error ends the daemon with the exit status of the error, and systemd acts on it. This includes a dead
process of the pipeline, so that no half-running daemon remains.

States, for `status` and systemd: starting, connecting, streaming, retrying, refused, stopping.
Refused is short: a loss is shown to the next scrape before the daemon ends of it.

SIGTERM and SIGINT stop in order. SIGHUP does so where the daemon was started at a terminal,
which has gone then; elsewhere it is a reload.

A reload (`daemon.acts`) ends the session in order and makes everything but the process anew, with the
configuration that was read: what a start does, so that no key can take effect in part. If no stream
begins with it, the same is done with the former one.
"""

import dataclasses
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from types import FrameType
from typing import Final

from gaussdecode import logs
from gaussdecode.daemon import lost_slot, quarantine
from gaussdecode.daemon.acts import Acts
from gaussdecode.daemon.control import Act, ActQueue, ControlSocket
from gaussdecode.daemon.decoders import Choice, Seen
from gaussdecode.daemon.guard import Guard, Look
from gaussdecode.daemon.httpacts import HttpActs
from gaussdecode.daemon.idle import Idle
from gaussdecode.daemon.notify import Notifier
from gaussdecode.daemon.pipeline import Pipeline, reserve_of
from gaussdecode.daemon.serving import Serving, Task
from gaussdecode.daemon.session import POLL_SECONDS, Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.daemon.snapshots import Snapshots
from gaussdecode.daemon.status.facts import DaemonFacts, Running, Standing
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.daemon.status.page import render_page
from gaussdecode.daemon.status.reading import Readings
from gaussdecode.daemon.status.tls import PortTls
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
from gaussdecode.ipc.control import Word
from gaussdecode.ipc.process import Prepared
from gaussdecode.logs import Event, get_logger
from gaussdecode.metrics.exposition import Exposition
from gaussdecode.settings.load import process_memory_bytes
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, PortFiles
from gaussdecode.source.address import SourceAddress, credentials, source_address
from gaussdecode.source.probe import SlotProbe, WorstProbe
from gaussdecode.source.sqlstate import WRONG_PASSWORD

_LASTED_SECONDS: Final = 60.0  # arbitrary: a session this long was a good one
_START_SECONDS: Final = 600.0  # recovery may read every byte of one entry
_EXTEND_SECONDS: Final = 30.0  # between two words to systemd that the start goes on
_LOGIN_FACTOR: Final = 5.0  # longer waits where the log-in is refused; arbitrary
_COMMAND_SECONDS: Final = 10.0  # between two runs of source.password-command; arbitrary
_LOGIN_CHANGED: Final = (
    "tried again at once when the password file, the output of the password command or a file of the "
    "certificate has changed; a systemd credential is read at the start of the unit only: restart it after a change"
)
_READ_ON_THE_WAY: Final = (
    "monitoring.control-token-file with monitoring.allow-remote: there is no TLS, and the token can be "
    "read on the way; set monitoring.tls-certificate-file and tls-key-file, or listen on the loopback interface"
)
_NO_ROOM: Final = "the landing's disk is full: recovery waits for space"
_ENDED_BY_STOP: Final = (DiskStillFullError, StoppedError)
_SCRAPE_SECONDS: Final = 75.0  # an interval of a minute is the longest that is usual
_ANSWER_SECONDS: Final = 1.0  # for the answer to a scrape to leave
_SERVE_FIRST, _SERVE_LONGEST = (
    1.0,
    60.0,
)  # seconds before the server for clients is started again; arbitrary
_PROBES: Final = {
    SourceKind.POSTGRESQL: "gaussdecode.source.postgresql.probe:PostgresProbe",
    SourceKind.GAUSSDB: "gaussdecode.source.gaussdb.probe:GaussProbe",
}
"""Only the one that is used is imported: a start is no slower for the other."""

_log = get_logger("daemon")


class Backoff:
    """How long to wait before the next attempt.

    Args:
        first: seconds before the first new attempt; doubles each time.
        longest: seconds at most.
        jitter: gives a factor between 0.5 and 1, so that many daemons do not come at once.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        jitter: Callable[[], float] = lambda: random.uniform(0.5, 1.0),
    ) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._next = first

    def next_wait(self, lasted: float) -> float:
        """Seconds to wait after a session that lasted so many seconds."""
        if lasted >= _LASTED_SECONDS:
            self._next = self._first
        wait = self._next
        self._next = min(2 * wait, self._longest)
        return wait * self._jitter()


def _probe(config: Config) -> SlotProbe | None:
    """The probe of the slot; a recording has none."""
    if config.source.kind is SourceKind.CAPTURE:
        return None
    make: Callable[[SourceAddress, str], SlotProbe] = resolve_name(_PROBES[config.source.kind])
    probes = {name: make(source_address(of), of.slot) for name, of in config.members.items()}
    return WorstProbe(probes) if config.is_several else probes[config.slot]


def _choice(config: Config) -> Choice | None:
    """Who decides how many decoders there are, where that is left to the daemon."""
    return Choice(config.decoding.most_decoders) if config.changes_decoders else None


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
        self._tls: dict[PortFiles, PortTls] = {}
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
        source = config.source
        self._config = config
        started = self._facts.started_time
        self._facts = dataclasses.replace(DaemonFacts.of(config), started_time=started)
        self._backoff = Backoff(source.retry_first, source.retry_max)
        self._login_backoff = Backoff(
            _LOGIN_FACTOR * source.retry_first, _LOGIN_FACTOR * source.retry_max
        )
        self._choice = _choice(config)

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
            self._running.virtual_slots = pipeline.virtual_slots
            self._readings = readings = Readings(self._facts, self._running, pipeline)
            self._summary = summary = Summary(pipeline.landed, time.monotonic())
            server = self._serve(readings)
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
        guard = self._start_guard(readings)
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

    def _start_guard(self, readings: Readings) -> Guard:
        config = self._config
        guard = Guard(
            config.guard,
            _probe(config),
            reserve_of(config).measure,
            readings.keep,
        )
        self._running.guard = guard
        guard.start()
        return guard

    def _start_serving(self) -> Serving | None:
        """Start the server for clients of the landing, where it is to run in the daemon."""
        if not self._config.serve.in_daemon:
            return None
        again = Backoff(_SERVE_FIRST, _SERVE_LONGEST)
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

    def _serve(self, readings: Readings) -> MonitoringServer:
        exposition = Exposition(self._config.slot, readings.metrics)
        tls = self._port_tls()
        self._acts.reread_certificate = None if tls is None else tls.reread
        self._running.port_end = None if tls is None else lambda: tls.end
        server = MonitoringServer(
            self._config.monitoring.listen,
            render_metrics=exposition.render,
            take_status=readings.status,
            is_alive=self._is_alive,
            readiness=readings.readiness,
            render_page=lambda certified: render_page(readings.picture(), certified),
            act=self._posting(),
            tls=None if tls is None else tls.context,
        )
        server.start()
        _log.info(Event.HTTP_STARTED, address=str(server.address), is_tls=tls is not None)
        return server

    def _port_tls(self) -> PortTls | None:
        """TLS of the port; after a reload that of before, which goes on where its files are bad by now."""
        files = self._config.monitoring.tls_files
        if files is not None and files not in self._tls:
            self._tls[files] = PortTls(files)
        return None if files is None else self._tls[files]

    def _posting(self) -> HttpActs:
        """Who answers acts over HTTP."""
        monitoring = self._config.monitoring
        is_readable = monitoring.allow_remote and monitoring.tls_files is None
        if monitoring.control_token_file is not None and is_readable:
            _log.warning(Event.CONFIG_WARNING, text=_READ_ON_THE_WAY)
        return HttpActs(self._queue.ask, monitoring.control_token_file)

    # ---- sessions --------------------------------------------------------------------

    def _run_sessions(self, pipeline: Pipeline, readings: Readings) -> None:
        while not self._is_leaving():
            self._acts.is_hurried = False
            self._set_state("connecting", self._running.standing.reason)  # why it did not before
            self._running.sessions += 1
            began = time.monotonic()
            shown = self._credentials()
            try:
                session = pipeline.session(self._on_tick, self._on_streaming)
            except LoginRefusedError as refused:
                if not self._was_let_in(pipeline):
                    raise
                self._wait(refused, 0.0, shown)  # a file is being changed
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
                pipeline.quarantine_table(error, session)
                continue
            error = self._give_up(pipeline, error)
            if error is None and self._config.source.kind is SourceKind.CAPTURE:
                return  # a recording ends
            if error is not None and not self._is_leaving():
                self._wait(error, time.monotonic() - began, shown)

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
        self._set_state("streaming")
        self._acts.has_begun()

    def _was_let_in(self, pipeline: Pipeline) -> bool:
        """Whether the server has let us in before, now or in an earlier process."""
        return self._has_streamed or pipeline.landed.durable.entry > 0

    def _wait(
        self, error: GaussDecodeError, lasted: float, shown: Sequence[tuple[object, ...]]
    ) -> None:
        """Wait before the next session.

        Args:
            error: why the one before ended.
            lasted: how long it took.
            shown: the credentials that it began with.
        """
        if self._acts.has_failed(error):
            return  # nobody waits: the former configuration comes next
        reason = error_text(error)
        self._set_state("retrying", reason)
        if isinstance(error, LoginRefusedError):
            self._wait_for_login(error, reason, lasted, shown)
            return
        wait = self._backoff.next_wait(lasted)
        _log.warning(Event.SESSION_RETRYING, reason=reason, wait_seconds=round(wait, 2))
        self._pass_time(wait)

    def _wait_for_login(
        self,
        error: LoginRefusedError,
        reason: str,
        lasted: float,
        shown: Sequence[tuple[object, ...]],
    ) -> None:
        guard = self._running.guard
        locks = self._config.source.kind is SourceKind.GAUSSDB
        wait = self._login_backoff.next_wait(lasted)
        if locks and error.sqlstate == WRONG_PASSWORD:
            wait = math.inf
        _log.error(
            Event.SESSION_RETRYING,
            reason=reason,
            wait_seconds=None if wait == math.inf else round(wait, 2),
            text=_LOGIN_CHANGED,
        )
        if guard is not None:
            guard.login_refusal = reason
        self._pass_time(wait, self._change_of(shown))
        if guard is not None:
            guard.login_refusal = None

    def _change_of(self, shown: Sequence[tuple[object, ...]]) -> Callable[[], bool]:
        """Whether a log-in would show something else now; a command is not run at each tick for it."""
        looks = _COMMAND_SECONDS if self._config.source.password_command else 0.0
        look_at = time.monotonic() + looks

        def has_changed() -> bool:
            nonlocal look_at
            if time.monotonic() < look_at:
                return False
            changed = self._credentials() != shown
            look_at = time.monotonic() + looks
            return changed

        return has_changed

    def _credentials(self) -> list[tuple[object, ...]]:
        """What the log-in at each server shows."""
        if self._config.source.kind is SourceKind.CAPTURE:
            return []
        return [credentials(member) for member in self._config.members.values()]

    def _pass_time(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
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
            self._choose_decoders(self._pipeline, self._choice)
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
            pipeline.see_role(is_standby=outlook.look.slot.is_standby)

    def _choose_decoders(self, pipeline: Pipeline, choice: Choice) -> None:
        """Have another session begin where another number of decoders may be faster."""
        session, before = self._running.session, choice.count
        if session is None or not self._running.standing.is_streaming:
            return
        if pipeline.streaming.reason is not None:
            return  # the one that takes what could not be streamed ends when that has landed
        now = time.monotonic()
        idle = self._cores.idle_seconds(now) if choice.is_due(now) else ()
        if idle and choice.look(self._seen(session.lead, now, idle)):
            _log.info(
                Event.DECODERS_CHANGED,
                before=before,
                decoders=choice.count,
                is_trial=choice.is_trying,
                bytes_per_second={"before": choice.rate_before, "tried": choice.rate_tried},
            )
            self._running.decoder_changes += 1
            pipeline.change_decoders(choice.count)

    def _seen(self, session: Session, now: float, idle: tuple[float, ...]) -> Seen:
        """The figures for the choice of decoders."""
        words = session.control
        decoders = [words.decoder_snapshot(index) for index in range(len(session.raw_rings))]
        guard = self._running.guard
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

    def _is_alive(self) -> bool:
        session = self._running.session
        return session is None or session.stuck_stage() is None
