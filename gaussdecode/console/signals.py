"""Handle SIGINT and SIGTERM: stop work in order, or interrupt it."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def until_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that work can stop in order."""
    stop = threading.Event()
    with _handled(stop.set):
        yield stop


class Interrupt:
    """SIGINT and SIGTERM raise KeyboardInterrupt, except while `hold` is in force.

    Attributes:
        is_set: a signal came.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._is_held = False

    def hold(self) -> None:
        """Raise nothing from now on, unless a second signal comes."""
        self._is_held = True

    def release(self) -> None:
        """End `hold`.

        Raises:
            KeyboardInterrupt: a signal came meanwhile.
        """
        self._is_held = False
        if self.is_set:
            raise KeyboardInterrupt

    def on_signal(self) -> None:
        """Handle a signal."""
        may_wait = self._is_held and not self.is_set
        self.is_set = True
        if not may_wait:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Make SIGINT and SIGTERM interrupt the running code."""
    interrupt = Interrupt()
    with _handled(interrupt.on_signal):
        yield interrupt


@contextlib.contextmanager
def _handled(act: Callable[[], None]) -> Iterator[None]:
    """Make SIGINT and SIGTERM call a function."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        act()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = [signal.signal(number, on_signal) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
