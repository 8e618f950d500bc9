"""Run the sessions of a landing that has several sources, or is in CSN order: they start and end together.

Each session runs in a thread of its own, which starts its processes and watches them. When one ends, in
order or not, the others end in order. The first error is the error of all. Every server sends the changes
again that had not become an entry by then.

The sessions share one intake of the writer, and the first session that ends closes it. A refusal that
another session gets from the closed intake is not counted as its error. An error of a source names the
source; an error of the landing belongs to no source.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeGuard

from gaussdecode.collect.entry_barrier import EntryBarrier
from gaussdecode.daemon.session import POLL_SECONDS, Session
from gaussdecode.daemon.source_runtime import SourceRuntime
from gaussdecode.errors import (
    AccountError,
    GaussDecodeError,
    LandingError,
    MirrorError,
    SupersededError,
)

if TYPE_CHECKING:
    from gaussdecode.source.gaussdb.csn_mark_rules import Running

_JOIN_SECONDS: Final = 0.05
_OF_THE_LANDING: Final = (AccountError, LandingError, MirrorError)


class Held(NamedTuple):
    """A source that the present mark waits for.

    Attributes:
        seconds: waiting time.
        running: its transactions that may be committing, where it waits for these; else it waits for
            an answer of the source, or for its stream.
    """

    seconds: float
    running: "tuple[Running, ...]"


class Marks(Protocol):
    """A thread that runs beside the sessions while all of them stream."""

    def start(self) -> None:
        """Begin."""

    def close(self) -> None:
        """End, and wait for it."""

    def held(self) -> dict[str, Held]:
        """Sources that the present mark waits for, by name."""


class SessionGroup:
    """Runs sessions until one of them ends.

    Args:
        make: makes the session of a source, given what it is to ask whether to stop, and whom to
            tell that it streams.
        names: names of the sources.
        marks: runs once all of them stream; None where nothing has to.
        should_stop: asked several times per second.
        on_tick: called several times per second by who runs this; may raise.
        on_streaming: called when all of them stream.
        on_ending: called once one of them has ended, or all are to.
    """

    def __init__(
        self,
        make: Callable[[str, Callable[[], bool], Callable[[], None]], Session],
        names: tuple[str, ...],
        marks: Callable[[Callable[[BaseException], None]], Marks] | None,
        should_stop: Callable[[], bool],
        on_tick: Callable[[], None],
        on_streaming: Callable[[], None],
        on_ending: Callable[[], None],
    ) -> None:
        self._on_ending = on_ending
        self._should_stop = should_stop
        self._on_tick = on_tick
        self._on_streaming = on_streaming
        self._is_ending = False
        self._streaming: set[str] = set()
        self._has_told = False
        self._errors: list[tuple[str, BaseException]] = []
        self._lock = threading.Lock()
        self._make_marks = marks
        self._marks: Marks | None = None
        self.sessions: Mapping[str, Session] = {
            name: make(name, self._must_end, self._note_streaming(name)) for name in names
        }

    @property
    def members(self) -> tuple[Session, ...]:
        """Every session, in the order of the sources."""
        return tuple(self.sessions.values())

    @property
    def lead(self) -> Session:
        """The first of them, where one has to stand for all."""
        return self.members[0]

    @property
    def failed(self) -> str | None:
        """The source whose session ended in an error first; None while none has."""
        return self._errors[0][0] if self._errors else None

    def held(self) -> dict[str, Held]:
        """Sources that the present mark waits for, by name; none where there are no marks."""
        marks = self._marks
        return {} if marks is None else marks.held()

    def _must_end(self) -> bool:
        return self._is_ending or self._should_stop()

    def _note_streaming(self, name: str) -> Callable[[], None]:
        return lambda: self._streaming.add(name)

    def run(self) -> None:
        """Stream until stopped, or until one of them ends.

        Raises:
            GaussDecodeError: why the first of them ended other than on request.
        """
        threads = [
            threading.Thread(
                target=self._run_one, args=item, name=f"session-{item[0]}", daemon=True
            )
            for item in self.sessions.items()
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                self._is_ending |= not all(thread.is_alive() for thread in threads)
                if self._must_end():
                    self._on_ending()
                self._begin_marks()
                if self._marks is not None and self._must_end():
                    self._marks.close()
                    self._marks, self._make_marks = None, None
                next((one for one in threads if one.is_alive()), threads[0]).join(_JOIN_SECONDS)
                self._tick()
        finally:
            self._is_ending = True
            self._on_ending()
            if self._marks is not None:
                self._marks.close()
            for thread in threads:
                thread.join()
        for _, error in self._errors:
            raise error

    def _begin_marks(self) -> None:
        """Once all of them stream."""
        if self._is_ending or len(self._streaming) < len(self.sessions):
            return
        if not self._has_told:
            self._has_told = True
            self._on_streaming()
        if self._make_marks is not None and self._marks is None:
            self._marks = self._make_marks(self._on_error)
            self._marks.start()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked_at >= POLL_SECONDS:
            self._ticked_at = now
            self._on_tick()

    _ticked_at = 0.0

    def _run_one(self, name: str, session: Session) -> None:
        try:
            session.run()
        except BaseException as error:  # noqa: BLE001  # raised where they are waited for
            self._keep(name, error)

    def _on_error(self, error: BaseException) -> None:
        self._keep("", error)
        self._is_ending = True

    def _keep(self, name: str, error: BaseException) -> None:
        with self._lock:
            if any(error is known for _, known in self._errors):
                return  # one failure of the landing, seen by each
            if isinstance(error, SupersededError):
                return  # a session that is over closed the way in; why that is comes, if there is a reason
            if name and len(self.sessions) > 1 and _is_of_source(error):
                error.name_source(name)
            self._errors.append((name, error))

    def stuck_stage(self) -> str | None:
        """A sentence about a stage that should have moved and has not; None while all is well."""
        for name, session in self.sessions.items():
            stuck = session.stuck_stage()
            if stuck is not None:
                return f"{name}: {stuck}" if len(self.sessions) > 1 else stuck
        return None

    def process_ids(self) -> dict[str, int]:
        """Process number of each child, by name."""
        if len(self.sessions) == 1:
            return self.members[0].process_ids()
        return {
            f"{name}: {child}": pid
            for name, session in self.sessions.items()
            for child, pid in session.process_ids().items()
        }


def _is_of_source(error: BaseException) -> TypeGuard[GaussDecodeError]:
    return isinstance(error, GaussDecodeError) and not isinstance(error, _OF_THE_LANDING)


def group_of(
    runtimes: Mapping[str, SourceRuntime],
    barrier: EntryBarrier,
    should_stop: Callable[[], bool],
    on_tick: Callable[[], None],
    on_streaming: Callable[[], None],
    *,
    is_by_csn: bool,
) -> SessionGroup:
    """Make a session of each source.

    Args:
        runtimes: sources by name.
        barrier: cuts their entries.
        should_stop: see `SessionGroup`, as for the next two.
        on_tick: see there.
        on_streaming: see there.
        is_by_csn: the landing is in the order of CSNs.
    """

    def make(name: str, must_end: Callable[[], bool], told: Callable[[], None]) -> Session:
        return runtimes[name].make_session(must_end, lambda: None, told)

    def marks(on_error: Callable[[BaseException], None]) -> Marks:
        from gaussdecode.daemon.csn_marks import Marking  # what few landings need, at their start

        members = {name: runtime.config for name, runtime in runtimes.items()}
        return Marking(barrier, members, on_error)

    made = marks if is_by_csn else None
    return SessionGroup(
        make, tuple(runtimes), made, should_stop, on_tick, on_streaming, barrier.end
    )
