"""Run one session: one connection, its processes and queues, until it ends.

    reader --raw rings--> decoders --decoded rings--> collector thread --> writer

Main's thread starts the children (they die with that thread, see `ipc.process`). Then it watches reports,
exits, the collector and progress. A session ends in one of three ways:

* *Drained*: the reader closed the stream, on request or because the source ended it. All that arrived whole
  is landed, then the reader is told to confirm it and leave.
* *Failed*: a process died, bytes were wrong, the disk failed. Changes that are not durable are dropped.
* *Stuck*: a stage stopped moving, or the source did not answer before the stream. Then as failed.

Only the log passes from one session to the next. Before anything else is given up, the collector is
revoked: whatever its thread still does, however late, is refused (`land.writer_state`,
`collect.snapshot_gate`). `session_life` has the states of a session.
"""

import dataclasses
import os
import selectors
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from gaussdecode import limits
from gaussdecode.automaton import Automaton
from gaussdecode.collect.collector import Collector
from gaussdecode.daemon.session_life import LIFE, Life, Turn
from gaussdecode.errors import ChildError, GaussDecodeError, LimitError, SourceError, from_record
from gaussdecode.host import lazy_pyarrow
from gaussdecode.ipc.control import Control, Word
from gaussdecode.ipc.process import STUCK_SECONDS, Child, Prepared
from gaussdecode.ipc.ring import Ring
from gaussdecode.logs import Event, get_logger, relay
from gaussdecode.model.landing import SourcePosition
from gaussdecode.model.lsn import Lsn

POLL_SECONDS: Final = 0.2
LEAVE_SECONDS: Final = 10.0  # for the last status to reach the server
_log = get_logger("daemon")

Facts = Mapping[str, Any]  # Any: JSON of the reader's report
Confirm = Callable[[SourcePosition], object]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Sizes of a session; bytes.

    Attributes:
        decoder_count: 1 decodes in the reader's process.
        queue_entries: bound of every ring in entries.
        raw_ring_bytes: bytes of each ring from reader to decoder.
        decoded_ring_bytes: bytes of each ring from decoder to collector.
        kept_buffer_bytes: size of the result buffer that a decoder keeps between batches.
        max_row_bytes: largest row that is decoded.
        defers_large_rows: one of a prepared transaction is its table's trouble when that commits.
        reader: settings of the reader's process, without descriptors.
    """

    decoder_count: int
    queue_entries: int
    raw_ring_bytes: int
    decoded_ring_bytes: int
    kept_buffer_bytes: int
    max_row_bytes: int
    defers_large_rows: bool
    reader: Mapping[str, Any]  # Any: JSON


class Session:
    """Runs one stream from the source to the writer.

    Args:
        settings: sizes and what the reader needs.
        begin: called with the reader's facts before anything is streamed; checks them
            against the log and makes the collector, whose durable positions go to what is
            given second: this session's reader. Raises to refuse.
        drain: waits so many seconds at most for the writer to commit all it was given;
            True when it has.
        should_stop: asked several times per second.
        on_tick: called several times per second, for the watchdog.
        landed_ns: monotonic time at which the writer last moved: the collector may wait for
            it for longer than a stage may stand still.
        on_streaming: called when the source has begun the stream.
        prepared: children that were started before.
    """

    def __init__(
        self,
        settings: SessionSettings,
        begin: Callable[[Facts, Confirm], Collector],
        drain: Callable[[float], bool],
        should_stop: Callable[[], bool],
        on_tick: Callable[[], None],
        landed_ns: Callable[[], int] = lambda: 0,
        on_streaming: Callable[[], None] = lambda: None,
        prepared: Prepared | None = None,
    ) -> None:
        self._prepared = prepared or Prepared()
        self._settings = settings
        self._begin = begin
        self._drain = drain
        self._should_stop = should_stop
        self._on_tick = on_tick
        self._landed_ns = landed_ns
        self._on_streaming = on_streaming
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()
        self._reader_error: GaussDecodeError | None = None
        self._lock = threading.Lock()  # of life and failure
        self._life = Automaton("session", LIFE, Life.NEW)
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_aborted = False
        self._drain_began_ns = 0
        self._spawned_ns = 0
        self._last_tick = time.monotonic()
        self._grace_until = time.monotonic() + STUCK_SECONDS
        self.control = Control.create()
        self.raw_rings: list[Ring] = []
        self.decoded_rings: list[Ring] = []
        self.collector: Collector | None = None
        self.facts: Facts | None = None
        self.collector_round_ns = time.monotonic_ns()

    @property
    def members(self) -> "tuple[Session, ...]":
        """Itself: see `daemon.session_group`."""
        return (self,)

    @property
    def lead(self) -> "Session":
        """Itself."""
        return self

    @property
    def has_lost_source(self) -> bool:
        """The reader has reported why nothing more comes: what has come is to be collected."""
        return self._reader_error is not None

    @property
    def decoder_count(self) -> int:
        """1 decodes in the reader's process."""
        return self._settings.decoder_count

    # ---- life ------------------------------------------------------------------------

    def run(self) -> None:
        """Stream until stopped.

        Raises:
            GaussDecodeError: why the session ended other than on request.
        """
        try:
            self._spawn()
            self._watch()
            self._finish()
        finally:
            self._close()
        if self._reader_error is not None:
            raise self._reader_error

    def _turn(self, turn: Turn) -> Life:
        with self._lock:
            return self._life.step(turn)

    def _fail(self, error: BaseException) -> None:
        """Keep the first error; the main thread raises it."""
        with self._lock:
            self._life.step(Turn.FAIL)
            if self._failure is None:
                self._failure = error

    def _spawn(self) -> None:
        """Make the queues and start the processes, each with its own ends only."""
        self._turn(Turn.SPAWN)
        self._spawned_ns = time.monotonic_ns()
        settings = self._settings
        count = settings.decoder_count
        parallel = count > 1
        make = Ring.create
        self.decoded_rings = [
            make(settings.decoded_ring_bytes, settings.queue_entries) for _ in range(count)
        ]
        if parallel:
            self.raw_rings = [
                make(settings.raw_ring_bytes, settings.queue_entries) for _ in range(count)
            ]
        for index in range(count if parallel else 0):
            raw, decoded = self.raw_rings[index], self.decoded_rings[index]
            fds = {
                "raw_ring_fds": raw.consumer_fds(),
                "decoded_ring_fds": decoded.producer_fds(),
                "control_fd": self.control.fd,
            }
            worker = {
                **fds,
                "decoder_index": index,
                "kept_buffer_bytes": settings.kept_buffer_bytes,
                "max_row_bytes": settings.max_row_bytes,
                "defers_large_rows": settings.defers_large_rows,
            }
            self._start_child("gaussdecode.decode.worker", worker, f"decoder {index}")
            raw.close_consumer_side()
            decoded.close_producer_side()
        targets = self.raw_rings or self.decoded_rings
        fds = {"ring_fds": [ring.producer_fds() for ring in targets], "control_fd": self.control.fd}
        reader = {**settings.reader, **fds, "decoder_count": count}
        self._start_child("gaussdecode.source.reader", reader, "reader")
        for ring in targets:
            ring.close_producer_side()

    def _start_child(self, module: str, settings: dict[str, Any], name: str) -> None:  # Any: JSON
        try:
            child = self._prepared.take(module).give(settings, name)
        except OSError as error:
            reason = limits.reached(error) or error.strerror
            raise LimitError(f"{name} cannot be started: {reason}") from error
        self._children.append(child)
        self._selector.register(child.report_fd, selectors.EVENT_READ, child)
        _log.debug(Event.CHILD_STARTED, child=name, pid=child.process.pid)

    # ---- watching --------------------------------------------------------------------

    def _watch(self) -> None:
        """Until the collector's thread has ended, or there will never be one."""
        while True:
            self._take_reports(POLL_SECONDS)
            self._tick()
            self._raise_refusal()
            if self._failure is not None:
                self._raise_cause(self._failure)
            if self._should_stop():
                self.control.set(Word.STOP_REQUESTED, 1)
            if self._thread is not None and not self._thread.is_alive():
                self._turn(Turn.COLLECTED)
                return
            self._check_children()
            if self._thread is None and self._should_stop():
                self._turn(Turn.STOPPED)
                return
            self._check_progress()

    def _take_reports(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            child: Child = key.data
            for report in child.reports():
                self._take_report(child, report)
            if child.report_fd < 0:
                self._selector.unregister(key.fd)

    def _take_report(self, child: Child, report: dict[str, Any]) -> None:  # Any: JSON
        kind = report["kind"]
        if kind == "log":
            relay(report, stage="source" if child.name == "reader" else "decode", child=child.name)
        elif kind == "connected":
            self._connected(report)
        elif kind == "streaming":
            if self._life.state is Life.STREAMING:  # else it is ending by now
                self._on_streaming()
        elif kind == "error":
            error = from_record(report["error"])
            _log.debug(Event.CHILD_REPORTED, child=child.name, reason=str(error))
            if child.name == "reader":
                self._reader_error = error
            elif self._thread is None:
                self._fail(error)

    def _connected(self, facts: Facts) -> None:
        """The reader stands before the stream: check, make the collector, let it go."""
        if self._turn(Turn.CONNECTED) is not Life.STREAMING:
            return
        self.facts = facts
        self.collector = self._begin(facts, self._confirm)
        thread = threading.Thread(target=self._collect, name="collector", daemon=True)
        thread.start()  # which may fail: then there is nothing to end
        self._thread = thread
        self._let_go()
        lazy_pyarrow.load()  # while the server begins the stream

    def _confirm(self, position: SourcePosition) -> None:
        """Committer's thread: from now on this session's reader may confirm this."""
        self.control.raise_to(Word.DURABLE_LSN, position.lsn)

    def _let_go(self) -> None:
        self.control.set(Word.GO, 1)

    def _collect(self) -> None:
        assert self.collector is not None
        try:
            self.collector.run(self.decoded_rings, self._collector_round)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._fail(error)

    def _collector_round(self) -> None:
        self.collector_round_ns = time.monotonic_ns()
        if self._is_aborted:
            raise ChildError("the session was ended")

    def _raise_refusal(self) -> None:
        """Before there is a stream, the reader's error counts: decoders only die of its end.

        It was written before they could see that end, so it can be read by now.
        """
        self._take_reports(0)
        if self._thread is None and self._reader_error is not None:
            raise self._reader_error

    def _check_children(self) -> None:
        """A child that ended with an error, or was killed, ends the session."""
        for child in self._children:
            status = child.exit_status()
            if status is None or status == os.EX_OK:
                continue
            self._raise_refusal()
            if child.name == "reader" and self._reader_error is not None:
                continue  # it closed the stream in order; the collector sees its end
            if status > 0:
                self._await_collector()  # a decoder's error comes through its queue
            self._raise_cause(self._failure or self._killed(child, status))

    def _await_collector(self) -> None:
        """Give the collector time to come to what a child has said before it ended."""
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < deadline:
            self._take_reports(POLL_SECONDS)
            self._tick()

    def _raise_cause(self, failure: BaseException) -> NoReturn:
        """Raise the process that failed first: its neighbours only saw their queues end.

        Which of them is seen to have ended first says nothing: they end within a moment.

        Raises:
            GaussDecodeError: there is one, and the failure is of this kind.
            BaseException: the failure itself.
        """
        if isinstance(failure, ChildError):
            for child in self._children:
                status = child.wait(POLL_SECONDS)
                if status is not None and status < 0:
                    raise self._killed(child, status) from failure
                if status is not None and status > 0 and child.name == "reader":
                    self._blame_reader(child, status, failure)
        raise failure

    def _blame_reader(self, reader: Child, status: int, failure: ChildError) -> None:
        """A reader that failed without closing its stream is why the decoders saw its end."""
        self._take_reports(0)
        if self._reader_error is None:
            raise self._killed(reader, status) from failure
        if not self._reader_error.retryable:
            raise self._reader_error from failure

    def _killed(self, child: Child, status: int) -> ChildError:
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return ChildError(f"{child.name} (process {child.process.pid}) {how}; {self._next_start()}")

    def _next_start(self) -> str:
        durable = Lsn(self.control.get(Word.DURABLE_LSN))
        if not durable:
            return "nothing was confirmed since it began"
        return f"the landing ends at {durable}; the next start continues from there"

    # ---- progress --------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._last_tick > STUCK_SECONDS / 4:
            self._grace_until = now + STUCK_SECONDS  # we were stopped ourselves, and all with us
        if self._waits_for_disk():
            self._grace_until = now + STUCK_SECONDS  # nobody has moved, however long it took
        self._last_tick = now
        self.control.set(Word.MAIN_HEARTBEAT_NS, time.monotonic_ns())
        self._on_tick()

    def oldest_heartbeat(self) -> tuple[str, float]:
        """The stage that has not moved for longest, and for how many seconds.

        A process that never moved counts from its start: it may hang in there.
        """
        now = time.monotonic_ns()
        beats = self._beats()
        if self._thread is not None and self._thread.is_alive() and not self._waits_for_disk():
            beats["collector"] = max(self.collector_round_ns, self._landed_ns())
        if self._drain_began_ns:
            beats["writer"] = max(self._drain_began_ns, self._landed_ns())
        moved = {name: beat or self._spawned_ns for name, beat in beats.items()}
        ages = {name: (now - beat) / 1e9 for name, beat in moved.items() if beat}
        return max(ages.items(), key=lambda item: item[1], default=("none", 0.0))

    def _beats(self) -> dict[str, int]:
        """Monotonic time at which each child moved last, by name; 0 for never."""
        beats = {"reader": self.control.get(Word.READER_HEARTBEAT_NS)}
        for index in range(len(self.raw_rings)):
            beats[f"decoder {index}"] = self.control.decoder_snapshot(index)["heartbeat_ns"]
        return beats

    def signs_of_life(self) -> dict[str, float]:
        """Seconds since each child moved last, by name; one that never has is missing."""
        now = time.monotonic_ns()
        return {name: (now - beat) / 1e9 for name, beat in self._beats().items() if beat}

    def process_ids(self) -> dict[str, int]:
        """Process number of each child, by name."""
        return {child.name: child.process.pid for child in self._children}

    def _waits_for_disk(self) -> bool:
        return bool(self.control.get(Word.DISK_WAIT))

    def stuck_stage(self) -> str | None:
        """A sentence about a stage that should have moved and has not; None while all is well."""
        if self._thread is None or time.monotonic() < self._grace_until:
            return None
        stage, age = self.oldest_heartbeat()
        return f"{stage} has not moved for {age:.0f} seconds" if age > STUCK_SECONDS else None

    def _check_progress(self) -> None:
        if self._thread is None and time.monotonic() > self._grace_until:
            # Nobody else would end it where a proxy on the way keeps the connection alive.
            raise SourceError(
                f"the source did not answer for {STUCK_SECONDS:.0f} seconds before the stream began"
            )
        problem = self.stuck_stage()
        if problem is not None:
            raise ChildError(f"{problem}; {self._next_start()}")

    # ---- end -------------------------------------------------------------------------

    def _finish(self) -> None:
        """The stream is closed and collected: land it, have it confirmed, let all leave."""
        if self._failure is not None:
            self._raise_cause(self._failure)
        if self._thread is not None:
            self._drain_began_ns = time.monotonic_ns()
            while not self._drain(POLL_SECONDS):
                self._take_reports(0)
                self._tick()
                self._check_progress()
            self._drain_began_ns = 0
            self._turn(Turn.DRAINED)
        self.control.set(Word.FINISHED, 1)
        deadline = time.monotonic() + LEAVE_SECONDS
        for child in self._children:
            while child.exit_status() is None and time.monotonic() < deadline:
                self._take_reports(POLL_SECONDS / 4)
                self._on_tick()
        self._take_reports(0)

    def _close(self) -> None:
        """Leave nothing behind: no process, no descriptor, no thread.

        A thread that waits for the disk stays until it wakes; it can do nothing then.
        """
        self._turn(Turn.CLOSE)
        self._is_aborted = True
        if self.collector is not None:
            self.collector.revoke()
        for child in self._children:
            child.kill()
            child.close_reports()
            _log.debug(Event.CHILD_ENDED, child=child.name, status=child.exit_status())
        self._selector.close()
        if self._thread is not None:
            self._thread.join(LEAVE_SECONDS)
        for ring in (*self.raw_rings, *self.decoded_rings):
            if self._thread is None or not self._thread.is_alive():
                ring.close()
