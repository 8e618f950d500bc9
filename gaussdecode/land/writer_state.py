"""The shared state of the writer's intake, lanes and committer: who may act, and who waits.

All of it is under one lock; nothing here encodes, touches the disk or starts a thread.

Generations
    Each session enters with a number of its own. `end` and `revoke` raise the number first. From then on
    a call with an older number is refused, and a waiting call is woken and refused too. A refused call
    has changed nothing. An entry that an older generation sealed holds whole transactions and is
    completed; an entry that it did not seal is thrown away. A number that is compared where data is taken
    is one place. A flag would have to be checked in every place that waits, and any time to wait for a
    thread is too short for some disk.

The writer's life, by event::

              begin   put,seal  revoke   end      cleared  fail    close
    idle      open    -         -        ending   -        failed  closed
    open      -       open      revoked  ending   -        failed  -
    revoked   -       -         -        ending   -        failed  -
    ending    -       -         -        ending   idle     failed  -
    failed    -       -         -        failed   failed   failed  closed
    closed    -       -         -        closed   closed   closed  closed

The one entry under way::

                seal    take        done  broke   drop
    none        sealed  -           -     -       none
    sealed      -       committing  -     -       none      dropped only after a failure
    committing  -       -           none  broken  -
    broken      -       -           -     -       none
"""

import dataclasses
import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gaussdecode.automaton import Automaton
from gaussdecode.errors import GaussDecodeError, LandingError, SupersededError
from gaussdecode.land.entry_steps import PendingSchema
from gaussdecode.land.rowgroups import Encoded
from gaussdecode.land.stopwatch import Stopwatch
from gaussdecode.land.tablefile import OpenEntry, QueuedGroup, TableFile
from gaussdecode.model.landing import SourcePosition
from gaussdecode.model.request import EntryRequest, RowGroup

_MOST_TO_SYNC: Final = 32  # each holds a descriptor; arbitrary
_SMALL_GROUP: Final = 4 << 20
"""Row groups below this may wait in any number, up to so much for each two; arbitrary."""

_AHEAD_BYTES: Final = 2 << 20
"""A row group below this waits for the lane that has its file; arbitrary."""


class Life(enum.Enum):
    """Of the writer."""

    IDLE = "idle"
    OPEN = "open"
    REVOKED = "revoked"
    ENDING = "ending"
    FAILED = "failed"
    CLOSED = "closed"


class Event(enum.Enum):
    """In the writer's life."""

    BEGIN = "begin"
    PUT = "put"
    SEAL = "seal"
    REVOKE = "revoke"
    END = "end"
    CLEARED = "cleared"
    FAIL = "fail"
    CLOSE = "close"


LIFE: Final[Mapping[Life, Mapping[Event, Life]]] = {
    Life.IDLE: {
        Event.BEGIN: Life.OPEN,
        Event.END: Life.ENDING,
        Event.FAIL: Life.FAILED,
        Event.CLOSE: Life.CLOSED,
    },
    Life.OPEN: {
        Event.PUT: Life.OPEN,
        Event.SEAL: Life.OPEN,
        Event.REVOKE: Life.REVOKED,
        Event.END: Life.ENDING,
        Event.FAIL: Life.FAILED,
    },
    Life.REVOKED: {Event.END: Life.ENDING, Event.FAIL: Life.FAILED},
    Life.ENDING: {Event.END: Life.ENDING, Event.CLEARED: Life.IDLE, Event.FAIL: Life.FAILED},
    Life.FAILED: {
        Event.END: Life.FAILED,
        Event.CLEARED: Life.FAILED,
        Event.FAIL: Life.FAILED,
        Event.CLOSE: Life.CLOSED,
    },
    Life.CLOSED: dict.fromkeys((Event.END, Event.CLEARED, Event.FAIL, Event.CLOSE), Life.CLOSED),
}


class Stage(enum.Enum):
    """Of the one entry under way."""

    NONE = "none"
    SEALED = "sealed"
    COMMITTING = "committing"
    BROKEN = "broken"


class Step(enum.Enum):
    """Of an entry."""

    SEAL = "seal"
    TAKE = "take"
    DONE = "done"
    BROKE = "broke"
    DROP = "drop"


ENTRY: Final[Mapping[Stage, Mapping[Step, Stage]]] = {
    Stage.NONE: {Step.SEAL: Stage.SEALED, Step.DROP: Stage.NONE},
    Stage.SEALED: {Step.TAKE: Stage.COMMITTING, Step.DROP: Stage.NONE},
    Stage.COMMITTING: {Step.DONE: Stage.NONE, Step.BROKE: Stage.BROKEN},
    Stage.BROKEN: {Step.DROP: Stage.NONE},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """For one lane.

    Attributes:
        file: file of the open entry, or of one that was asked for.
        queued: a row group of it; None to close the file.
        is_ahead: another lane has the file: encode the row group, and leave it.
    """

    file: TableFile
    queued: QueuedGroup | None
    is_ahead: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Sealed:
    """An entry that was asked for.

    Attributes:
        request: request of the collector.
        content: its files.
        schemas: schemas that its entry needs.
        confirm: the session's own way to tell its source.
        requested: when; monotonic seconds.
    """

    request: EntryRequest
    content: OpenEntry
    schemas: tuple[PendingSchema, ...]
    confirm: Callable[[SourcePosition], object]
    requested: float


class WriterState:
    """The shared state of a writer.

    Args:
        make_content: makes an empty entry.
        lane_count: encoding threads to begin with.
        lane_bytes: Arrow bytes that each lane may encode, and that may wait for the one that is
            done first; never more than two of the largest row groups for each lane. One row
            group always may.
        clock: monotonic seconds.

    Attributes:
        blocked: seconds that callers have waited.
        lane_count: encoding threads.
        waiting_bytes: bytes that wait for a lane or are being encoded.
        moved_ns: monotonic time at which a lane or the committer last finished something.
    """

    def __init__(
        self,
        make_content: Callable[[], OpenEntry],
        lane_count: int,
        lane_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self.blocked = Stopwatch()
        self.lane_count = lane_count
        self.waiting_bytes = 0
        self.moved_ns = time.monotonic_ns()
        self._make_content = make_content
        self._lane_bytes = lane_bytes
        self._largest = _SMALL_GROUP  # row group so far
        self._wake_bytes = 0  # that may still wait when collectors are told of room
        self._clock = clock
        self._lock = threading.RLock()
        # Each group waits for what concerns it. An entry may have ten thousand files, and with
        # one condition every one of them would wake all threads.
        self._for_work = threading.Condition(self._lock)  # lanes
        self._for_sync = threading.Condition(self._lock)  # syncers
        self._for_entry = threading.Condition(self._lock)  # the committer
        self._for_room = threading.Condition(self._lock)  # collectors, and who ends a generation
        self._life = Automaton("writer", LIFE, Life.IDLE)
        self._stage = Automaton("entry", ENTRY, Stage.NONE)
        self._generation = 0
        self._failure: BaseException | None = None
        self._content = make_content()
        self._sealed: Sealed | None = None
        self._ready: deque[TableFile] = deque()
        self._ahead: deque[Work] = (
            deque()
        )  # row groups that another lane than the file's may encode
        self._to_sync: deque[TableFile] = deque()  # closed, and not durable
        self._owner: dict[TableFile, OpenEntry] = {}
        self._busy = 0  # lanes and syncers

    # ---- the intake's side -----------------------------------------------------------

    @property
    def is_committing(self) -> bool:
        """An entry is under way; `seal` would block."""
        return self._sealed is not None

    @property
    def largest_file_bytes(self) -> int:
        """Size of the largest file that is not yet handed to an entry."""
        with self._lock:
            return self._content.largest_file_bytes

    @property
    def is_crowded(self) -> bool:
        """Files of the open entry were closed early, for other tables' sake."""
        with self._lock:
            return self._content.is_crowded

    def begin(self) -> int:
        """Open a new generation; gives its number.

        Raises:
            LandingError: the writer has failed or is closed.
            StateError: the generation before has not ended.
        """
        with self._lock:
            self._check_usable()
            self._life.step(Event.BEGIN)
            self._generation += 1
            return self._generation

    def check(self, generation: int) -> None:
        """See whether a caller is of the present generation.

        Raises:
            SupersededError: it is not.
            LandingError: the writer has failed or is closed.
        """
        with self._lock:
            self._check(generation)

    def put(self, generation: int, group: RowGroup, seconds: float) -> bool:
        """Take a row group; blocks while too much waits, for so long at most.

        Returns:
            Whether it was taken.

        Raises:
            SupersededError: the caller's generation is over.
            LandingError: the writer has failed.
        """
        size = group.held_bytes
        with self._lock:
            if not self._has_room(size):
                self._wake_bytes = self.waiting_bytes // 2
            if not self._wait(generation, lambda: self._has_room(size), seconds):
                return False
            self._life.step(Event.PUT)
            self._largest = max(self._largest, size)
            file, sealed = self._content.assign(group)
            queued = QueuedGroup(group)
            file.queue.append(queued)
            if size >= _AHEAD_BYTES:
                self._ahead.append(Work(file, queued, is_ahead=True))
                self._for_work.notify()
            self.waiting_bytes += size
            for changed in (file, *sealed):
                self._schedule(changed)
            return True

    def add_lanes(self, count: int) -> None:
        """Say that there are so many more."""
        with self._lock:
            self.lane_count += count
            self._for_room.notify_all()

    def seal(
        self,
        generation: int,
        request: EntryRequest,
        schemas: tuple[PendingSchema, ...],
        confirm: Callable[[SourcePosition], object],
    ) -> None:
        """Make an entry of everything that was put; blocks while one is under way.

        Raises:
            SupersededError: the caller's generation is over.
            LandingError: the writer has failed.
        """
        with self._lock:
            self._wait(generation, lambda: self._stage.state is Stage.NONE)
            self._life.step(Event.SEAL)
            self._stage.step(Step.SEAL)
            for file in self._content.seal():
                self._schedule(file)
            self._sealed = Sealed(request, self._content, schemas, confirm, self._clock())
            self._content = self._make_content()
            self._for_entry.notify()

    def wait_committed(self, seconds: float | None = None, generation: int | None = None) -> bool:
        """Wait until no entry is under way; gives whether none is.

        Raises:
            SupersededError: the caller named a generation, and it is over.
            LandingError: the writer has failed or is closed.
        """
        with self._lock:
            is_met = self._for_room.wait_for(
                lambda: self._stage.state is Stage.NONE or self._refuses(generation), seconds
            )
            self._check(generation)
            return is_met

    def revoke(self, generation: int) -> None:
        """End a generation, if it is the present one; waits for nobody."""
        with self._lock:
            if generation == self._generation and self._life.state is Life.OPEN:
                self._life.step(Event.REVOKE)
                self._supersede()

    def _supersede(self) -> None:
        """Refuse everyone who is inside or comes later."""
        self._generation += 1
        self._for_room.notify_all()

    def _has_room(self, size: int) -> bool:
        """Memory beyond what keeps all lanes at work would make nothing faster."""
        enough = 2 * self.lane_count * max(self._largest, size)
        limit = min((self.lane_count + 1) * self._lane_bytes, enough)
        return not self.waiting_bytes or self.waiting_bytes + size <= limit

    def _refuses(self, generation: int | None) -> bool:
        return (
            generation not in {None, self._generation}
            or self._failure is not None
            or self._life.state is Life.CLOSED
        )

    def _check(self, generation: int | None) -> None:
        self._check_usable()
        if generation not in {None, self._generation}:
            raise SupersededError(
                f"generation {generation} of the writer's intake has ended; nothing was accepted"
            )

    def _check_usable(self) -> None:
        if self._failure is not None:
            if isinstance(self._failure, GaussDecodeError):
                raise self._failure
            raise LandingError(f"the writer has failed: {self._failure!r}") from self._failure
        if self._life.state is Life.CLOSED:
            raise LandingError("the writer is closed")

    def _wait(
        self, generation: int, condition: Callable[[], bool], seconds: float | None = None
    ) -> bool:
        """Let a caller wait, and count for how long; refuse it when its time is over."""
        with self.blocked:
            is_met = self._for_room.wait_for(
                lambda: self._refuses(generation) or condition(), seconds
            )
        self._check(generation)
        return is_met

    def _schedule(self, file: TableFile) -> None:
        if not file.is_scheduled:
            file.is_scheduled = True
            self._owner[file] = self._content
            self._ready.append(file)
            self._for_work.notify()

    # ---- the lanes' side -------------------------------------------------------------

    @property
    def _is_over(self) -> bool:
        return self._life.state in {Life.FAILED, Life.CLOSED}

    @property
    def _has_work(self) -> bool:
        """Whether a lane that waits has a reason not to."""
        while self._ahead and not _is_left(self._ahead[0]):
            self._ahead.popleft()
        return bool(self._is_over or self._ready or self._ahead)

    def has_work(self, seconds: float) -> bool:
        """Wait so long for work; gives whether there is some, or a reason to leave."""
        with self._lock:
            return self._for_work.wait_for(lambda: self._has_work, seconds)

    def next_work(self) -> Work | None:
        """Wait for a file to go on with, else for a row group to encode ahead; None: leave."""
        with self._lock:
            self._for_work.wait_for(lambda: self._has_work)
            if self._is_over:
                return None
            self._busy += 1
            if not self._ready:
                work = self._ahead.popleft()
                assert work.queued is not None
                work.queued.is_taken = True
                return work
            file = self._ready.popleft()
            file.has_lane = True
            queued = file.queue.popleft() if file.queue else None
            if queued is not None:
                queued.is_taken = True
            return Work(file, queued)

    def is_complete(self, file: TableFile, queued: QueuedGroup | None) -> bool:
        """Put a file back; true when the lane is to close it, because nothing more comes."""
        with self._lock:
            file.has_lane = False
            if queued is not None:
                self.waiting_bytes -= queued.held_bytes
            owner = self._owner[file]
            if owner.is_abandoned:
                return False
            owner.close_if_full(file)
            if file.queue:
                self._offer(file)
            elif not file.is_sealed:
                file.is_scheduled = False
            self._tell_room()
            return file.is_sealed and not file.queue

    def encoded(self, file: TableFile, queued: QueuedGroup, encoded: Encoded | None) -> None:
        """A row group was encoded ahead, or could not be: the file that waits for it goes on."""
        with self._lock:
            queued.is_taken = False
            if encoded is not None:
                self.waiting_bytes -= queued.held_bytes
                queued.keep(encoded)
                self.waiting_bytes += queued.held_bytes
            if file.queue and file.queue[0] is queued and not file.has_lane:
                self._offer(file)
            self._tell_room()

    def _tell_room(self) -> None:
        """Wake collectors once half of what waited is gone: each wake takes as long as a small file."""
        if self.waiting_bytes <= self._wake_bytes:
            self._for_room.notify_all()

    def _offer(self, file: TableFile) -> None:
        """Give a file to the lanes, unless one of them encodes its next row group ahead."""
        if not self._owner[file].is_abandoned and not file.queue[0].is_taken:
            self._ready.append(file)
            self._for_work.notify()

    @property
    def has_ready(self) -> bool:
        """Another file waits for a lane."""
        return bool(self._ready)

    def hand_over(self, file: TableFile) -> bool:
        """Leave a closed file to the syncers.

        Returns:
            Whether they take it: not while so many wait already, and not when the writer ends.
        """
        with self._lock:
            if self._is_over or len(self._to_sync) >= _MOST_TO_SYNC:
                return False
            self._to_sync.append(file)
            self._for_sync.notify()
            return True

    def next_unsynced(self) -> TableFile | None:
        """Wait for a closed file; None: leave."""
        with self._lock:
            self._for_sync.wait_for(lambda: self._is_over or self._to_sync)
            if self._is_over:
                return None
            self._busy += 1
            return self._to_sync.popleft()

    def finished(self, file: TableFile) -> None:
        """A file is durable."""
        with self._lock:
            owner = self._owner.pop(file)
            owner.unfinished -= 1
            if not owner.unfinished:  # nobody waits for less, and an entry may have many files
                self._for_entry.notify()

    def rest(self) -> None:
        """A lane or syncer has nothing in hand any more, whatever became of it."""
        with self._lock:
            self._busy -= 1
            self.moved_ns = time.monotonic_ns()
            if not self._busy:
                self._for_room.notify_all()

    def _wake_all(self) -> None:
        for condition in (self._for_work, self._for_sync, self._for_entry, self._for_room):
            condition.notify_all()

    # ---- the committer's side --------------------------------------------------------

    def next_sealed(self) -> Sealed | None:
        """Wait for an entry whose files are finished; None: leave."""
        with self._lock:
            self._for_entry.wait_for(lambda: self._is_over or self._is_sealed_complete)
            if self._is_over:
                return None
            self._stage.step(Step.TAKE)
            return self._sealed

    @property
    def _is_sealed_complete(self) -> bool:
        return self._sealed is not None and not self._sealed.content.unfinished

    def entry_done(self, *, is_committed: bool) -> None:
        """The committer is done with an entry, or has failed at it."""
        with self._lock:
            self._stage.step(Step.DONE if is_committed else Step.BROKE)
            if is_committed:
                self._sealed = None
            self.moved_ns = time.monotonic_ns()
            self._for_room.notify_all()

    # ---- the end ---------------------------------------------------------------------

    def fail(self, error: BaseException) -> bool:
        """Take a thread's error; gives whether it is the first."""
        with self._lock:
            self._life.step(Event.FAIL)
            is_first = self._failure is None
            if is_first:
                self._failure = error
            self._wake_all()
            return is_first

    def end(self, *, is_uncertain: Callable[[], bool]) -> list[TableFile]:
        """End the generation; wait for what it asked for; give the files to be removed.

        After a failure nothing is waited for but threads that are at work, and files that a
        decided entry may name are kept.

        Args:
            is_uncertain: only recovery can tell whether the last entry happened.
        """
        with self._lock:
            self._life.step(Event.END)
            self._supersede()
            self._abandon()
            self._for_room.wait_for(lambda: self._stage.state is Stage.NONE or self._is_over)
            self._for_room.wait_for(
                lambda: not self._busy and self._stage.state is not Stage.COMMITTING
            )
            pending_removals = self._content.files
            if self._sealed is not None and not is_uncertain():
                pending_removals = pending_removals + self._sealed.content.files
            self._stage.step(Step.DROP)
            self._sealed = None
            self._content = self._make_content()
            self._ready.clear()
            self._ahead.clear()
            self._to_sync.clear()
            self._owner.clear()
            self.waiting_bytes = 0
            return pending_removals

    def _abandon(self) -> None:
        """Let the lanes see only what is sealed."""
        self._content.is_abandoned = True
        self._ready = self._not_abandoned(self._ready)
        self._to_sync = self._not_abandoned(self._to_sync)
        self._ahead = deque(
            of for of in self._ahead if _is_left(of) and not self._owner[of.file].is_abandoned
        )

    def _not_abandoned(self, files: Iterable[TableFile]) -> deque[TableFile]:
        return deque(file for file in files if not self._owner[file].is_abandoned)

    def cleared(self, *, is_last: bool) -> None:
        """What was thrown away is gone; and if it is the last, so do the threads."""
        with self._lock:
            self._life.step(Event.CLEARED)
            if is_last:
                self._life.step(Event.CLOSE)
            self._wake_all()


def _is_left(work: Work) -> bool:
    """Whether a row group still waits for a lane that encodes it ahead."""
    return work.queued is not None and not work.queued.is_taken
