"""Ending a command in order."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def until_signal() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set, so that work is ended in order."""
    stop = threading.Event()
    with _handled(stop.set):
        yield stop


class Interrupt:
    """SIGINT and SIGTERM: they raise KeyboardInterrupt, but not while a step that has begun is held.

    Attributes:
        is_set: one came.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._is_held = False

    def hold(self) -> None:
        """Let nothing be raised from now on, unless a second signal comes."""
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
        """Take a signal."""
        may_wait = self._is_held and not self.is_set
        self.is_set = True
        if not may_wait:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Have SIGINT and SIGTERM interrupt what runs."""
    interrupt = Interrupt()
    with _handled(interrupt.on_signal):
        yield interrupt


@contextlib.contextmanager
def _handled(act: Callable[[], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM do something."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        act()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = [signal.signal(number, on_signal) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
