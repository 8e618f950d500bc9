"""Threads that take turns as told, so that their interleavings can be run one by one.

`Turns` stands in for the module ``threading`` in the modules under test. Its threads are
real, but only one runs at a time; it hands over where it asks for a condition or an RLock,
waits, starts or joins a thread, ends, or says `pause`. Which thread goes on there is a *choice*. `explore`
runs a scenario again and again, each time with other choices, until all are done that deviate
from the default order at most `bound` times. The default order: go on as long as possible,
then the next thread that can. Time passes (a wait with a limit gives up) when nobody else can
go on, or as a deviation.

Between two such places a thread is not interrupted. That misses nothing where shared state is
only touched under a lock; what is read without one is seen as it is at the last place.

A scenario fails by an exception in any thread that nobody caught, by a deadlock, by a thread
that is left, or by going on for ever. What is raised then shows the choices and the way.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

_LONGEST: Final = 20_000  # places in one run; more is going on for ever
_PATIENCE_SECONDS: Final = 60.0  # without any progress: a lock of the real kind is in the way


class _Abandoned(BaseException):
    """The run is over; leave."""


class ScheduleError(AssertionError):
    """A scenario failed under one order of its threads."""


@dataclasses.dataclass(eq=False)
class _Task:
    """A thread.

    Attributes:
        name: of the thread.
        where: what it does next.
        can_go: whether it can go on; None for always.
        may_time_out: whether its wait may give up now; None where it never does.
        has_timed_out: it did.
        is_done: it has ended.
        turn: taken by the thread while it waits for its turn.
    """

    name: str
    where: str = "begin"
    can_go: Callable[[], bool] | None = None
    may_time_out: Callable[[], bool] | None = None
    has_timed_out: bool = False
    is_done: bool = False
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.turn.acquire()


@dataclasses.dataclass(slots=True)
class _Choice:
    taken: int
    count: int


class _Run:
    """One run of a scenario, with the first choices given."""

    def __init__(self, given: Sequence[int]) -> None:
        self.choices: list[_Choice] = []
        self.way: list[str] = []
        self.failure: BaseException | None = None
        self._given = given
        self._tasks: list[_Task] = []
        self._threads: list[threading.Thread] = []
        self._current: _Task | None = None
        self._is_over = False
        self._end = threading.Event()

    # ---- called by the threads -------------------------------------------------------

    def add(self, name: str, target: Callable[[], object]) -> _Task:
        """Make a thread, which goes on when it is chosen."""
        task = _Task(name)

        def body() -> None:
            task.turn.acquire()
            try:
                if not self._is_over:
                    target()
            except _Abandoned:
                pass
            except BaseException as error:  # noqa: BLE001 - judged by who runs the scenario
                self._fail(error)
            self._leave(task)

        self._tasks.append(task)
        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return task

    def pause(
        self,
        where: str,
        can_go: Callable[[], bool] | None = None,
        may_time_out: Callable[[], bool] | None = None,
    ) -> bool:
        """Let others go on, until this thread can and is chosen; false when time ran out."""
        if self._is_over:
            raise _Abandoned
        task = self._current
        assert task is not None
        task.where, task.can_go, task.may_time_out = where, can_go, may_time_out
        task.has_timed_out = False
        following = self._choose(task)
        if following is not None and following is not task:
            self._hand_over(following)
            task.turn.acquire()
        if self._is_over:
            raise _Abandoned
        return not task.has_timed_out

    def _leave(self, task: _Task) -> None:
        task.is_done = True
        if self._is_over:
            return
        if all(other.is_done for other in self._tasks):
            self._stop()
            return
        following = self._choose(task)
        if following is not None:
            self._hand_over(following)

    def _hand_over(self, task: _Task) -> None:
        self._current = task
        task.turn.release()

    def _choose(self, current: _Task) -> _Task | None:
        """Whose turn it is; None when the run is over instead."""
        start = self._tasks.index(current)
        order = self._tasks[start:] + self._tasks[:start]
        there = [task for task in order if not task.is_done]
        ready = [task for task in there if task.can_go is None or task.can_go()]
        others_first = [*there[1:], *there[:1]]
        late = [task for task in others_first if task not in ready and _is_true(task.may_time_out)]
        candidates = ready + late
        if not candidates:
            stuck = ", ".join(f"{task.name} at {task.where}" for task in there)
            self._fail(ScheduleError(f"deadlock: {stuck}"))
            return None
        if len(self.way) > _LONGEST:
            self._fail(ScheduleError("it goes on for ever"))
            return None
        index = 0
        if len(candidates) > 1:
            number = len(self.choices)
            index = self._given[number] if number < len(self._given) else 0
            self.choices.append(_Choice(index, len(candidates)))
        chosen = candidates[index]
        chosen.has_timed_out = chosen in late
        how = " gives up waiting" if chosen.has_timed_out else ""
        self.way.append(f"{chosen.name}: {chosen.where}{how}")
        return chosen

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self._stop()

    def _stop(self) -> None:
        self._is_over = True
        self._end.set()
        for task in self._tasks:
            if task.turn.locked() and task is not self._current:
                task.turn.release()

    # ---- called by the test ----------------------------------------------------------

    def go(self, main: Callable[[], object]) -> None:
        """Run the scenario's main thread and all that it starts, to the end."""
        task = self.add("main", main)
        self._hand_over(task)
        while not self._end.wait(_PATIENCE_SECONDS):
            self._fail(ScheduleError("no thread moves: one waits for something real"))
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)


def _is_true(condition: Callable[[], bool] | None) -> bool:
    return condition is not None and condition()


class Turns:
    """What stands in for the module ``threading``; names as there."""

    def __init__(self) -> None:
        self._run: _Run | None = None

    @property
    def run(self) -> _Run:
        """The present run."""
        assert self._run is not None, "outside of a scenario"
        return self._run

    def pause(self, where: str, can_go: Callable[[], bool] | None = None) -> None:
        """Let others go on here, until this thread can."""
        self.run.pause(where, can_go)

    def explore(self, scenario: Callable[[], object], bound: int) -> int:
        """Run a scenario with all choices that deviate at most `bound` times.

        Returns:
            How many runs that were.

        Raises:
            ScheduleError: one of them failed.
        """
        given: list[int] = []
        runs = 0
        while True:
            choices = self.replay(scenario, given)
            runs += 1
            following = _next(choices, bound)
            if following is None:
                return runs
            given = following

    def replay(self, scenario: Callable[[], object], given: Sequence[int]) -> list[_Choice]:
        """Run a scenario once, with these choices; gives all that were made.

        Raises:
            ScheduleError: it failed.
        """
        self._run = run = _Run(given)
        run.go(scenario)
        if run.failure is not None:
            taken = [choice.taken for choice in run.choices]
            while taken and not taken[-1]:
                taken.pop()
            way = "\n    ".join(run.way[-60:])
            raise ScheduleError(
                f"{type(run.failure).__name__}: {run.failure}\n"
                f"  choices: {taken}\n  the last of the way:\n    {way}"
            ) from run.failure
        return run.choices

    # ---- as the module ---------------------------------------------------------------

    def Lock(self) -> threading.Lock:  # noqa: N802 - named as in threading
        """A real lock: who holds one comes to no place."""
        return threading.Lock()

    def RLock(self) -> "_Lock":  # noqa: N802
        """A lock that its owner may take again."""
        return _Lock(self)

    def Condition(self, lock: "_Lock | None" = None) -> "_Condition":  # noqa: N802
        """A condition with a lock of its own, or with one that others share."""
        return _Condition(self, lock or _Lock(self))

    def Thread(  # noqa: N802
        self,
        *,
        target: Callable[..., object],
        args: tuple[object, ...] = (),
        name: str = "thread",
        daemon: bool = False,
    ) -> "_Thread":
        """A thread."""
        del daemon
        return _Thread(self, lambda: target(*args), name)


class _Lock:
    """A lock that its owner may take again."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._owner: _Task | None = None
        self._depth = 0

    @property
    def is_free(self) -> bool:
        return self._owner is None

    def acquire(self) -> None:
        run = self._turns.run
        if self._owner is not None and self._owner is run._current:
            self._depth += 1
            return
        run.pause("take a lock", lambda: self.is_free)
        self.take()

    def take(self) -> None:
        self._owner, self._depth = self._turns.run._current, 1

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class _Condition:
    def __init__(self, turns: Turns, lock: _Lock) -> None:
        self._turns = turns
        self._lock = lock
        self._told: dict[_Task, bool] = {}

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        return self._wait(lambda: True, timeout)

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:
        if not predicate():
            self._wait(lambda: bool(predicate()), timeout)
        return bool(predicate())

    def _wait(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until told while the predicate holds; being told in vain is forgotten."""
        run, lock = self._turns.run, self._lock
        task = run._current
        assert task is not None
        assert lock._owner is task
        depth, lock._owner, lock._depth = lock._depth, None, 0
        self._told[task] = False

        def can_go() -> bool:
            if not self._told[task] or not lock.is_free:
                return False
            self._told[task] = predicate()
            return self._told[task]

        may_time_out = None if timeout is None else lambda: lock.is_free
        is_met = run.pause("wait", can_go, may_time_out)
        del self._told[task]
        lock._owner, lock._depth = task, depth
        return is_met

    def notify(self) -> None:
        """Tell one of those that wait and were not told yet."""
        self._check_owner()
        task = next((task for task, is_told in self._told.items() if not is_told), None)
        if task is not None:
            self._told[task] = True

    def notify_all(self) -> None:
        self._check_owner()
        for task in self._told:
            self._told[task] = True

    def _check_owner(self) -> None:
        assert self._lock._owner is self._turns.run._current or self._turns.run._is_over


class _Thread:
    def __init__(self, turns: Turns, body: Callable[[], object], name: str) -> None:
        self._turns = turns
        self._body = body
        self.name = name
        self._task: _Task | None = None

    def start(self) -> None:
        self._task = self._turns.run.add(self.name, self._body)
        self._turns.pause(f"start {self.name}")

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_done

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        assert task is not None
        may_time_out = None if timeout is None else lambda: True
        self._turns.run.pause(f"join {self.name}", lambda: task.is_done, may_time_out)


def _next(choices: Sequence[_Choice], bound: int) -> list[int] | None:
    """The choices of the next run, depth first; None when all are done."""
    taken = [choice.taken for choice in choices]
    for index in range(len(choices) - 1, -1, -1):
        deviations = sum(bool(one) for one in taken[:index])
        if taken[index] + 1 < choices[index].count and deviations < bound:
            return [*taken[:index], taken[index] + 1]
    return None
