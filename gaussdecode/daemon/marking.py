"""Marks of CSNs for the sessions that run: when they are asked for, and by whom they are waited for.

One thread. A mark is asked for when transactions wait for their turn, or when the servers' logs have
moved on without any: what is confirmed must follow. It costs a few queries on an ordinary connection to
each server, and, where a server is quiet, a transaction without rows, which shows in its stream how far
that is.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from gaussdecode.collect.collector import IDLE_SECONDS
from gaussdecode.collect.together import Cut, Together
from gaussdecode.daemon.session import POLL_SECONDS
from gaussdecode.errors import GaussDecodeError
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import source_address
from gaussdecode.source.gaussdb.marker import Marker

_NUDGE_SECONDS: Final = 1.0  # between two of one source; arbitrary


class Marking:
    """Offers marks until it is closed.

    Args:
        together: takes them.
        members: configuration of each source, by name.
        on_error: told why it cannot go on; then it ends.
    """

    def __init__(
        self,
        together: Together,
        members: Mapping[str, Config],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._together = together
        self._members = members
        self._on_error = on_error
        self._interval = min(one.landing.max_commit_interval for one in members.values())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marks", daemon=True)
        self._marked_at = time.monotonic()
        self._highs: Mapping[str, int] = {}
        self._nudged: dict[str, float] = {}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            addresses = {name: source_address(one) for name, one in self._members.items()}
            with Marker(addresses, self._stop.is_set) as marker:
                while not self._stop.is_set():
                    self._turn(marker)
        except BaseException as error:  # noqa: BLE001  # handed to who waits for the sessions
            if not (self._stop.is_set() and isinstance(error, GaussDecodeError)):
                self._on_error(error)

    def _turn(self, marker: Marker) -> None:
        """Offer a mark when one is due, and see it through."""
        if not self._together.wait_due(POLL_SECONDS, self._interval) and not self._has_moved(
            marker
        ):
            return
        mark = marker.mark()
        if mark is None:  # it is to end
            return
        self._marked_at = time.monotonic()
        self._highs = mark.highs
        self._together.offer(Cut(mark.lows, mark.csn, mark.highs))
        while not self._together.wait_done(POLL_SECONDS) and not self._stop.is_set():
            for name in self._together.late():
                self._nudge(marker, name)

    def _nudge(self, marker: Marker, name: str) -> None:
        now = time.monotonic()
        if now - self._nudged.get(name, 0.0) >= _NUDGE_SECONDS:
            self._nudged[name] = now
            marker.nudge(name)

    def _has_moved(self, marker: Marker) -> bool:
        """Whether so much was written without a transaction for us that it is time to say so."""
        if time.monotonic() - self._marked_at < IDLE_SECONDS:
            return False
        self._marked_at = time.monotonic()
        now = marker.ends()
        return any(now[name] > self._highs.get(name, 0) for name in now)
