"""Doing something beside a test, again and again."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def repeating(work: Callable[[int], object], pause: float) -> Iterator[None]:
    """Call something in a thread until the end of the block; an error of it is raised there.

    Args:
        work: given how often it was called before.
        pause: seconds between two calls.
    """
    is_over = threading.Event()

    def repeat() -> None:
        for number in itertools.count():
            work(number)
            if is_over.wait(pause):
                return

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(repeat)
        try:
            yield
        finally:
            is_over.set()
        done.result()
