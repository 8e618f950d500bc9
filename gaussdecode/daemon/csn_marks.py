"""Ask for CSN marks for the running sessions, and pass them to the waiting collectors.

One thread. It asks for a mark when transactions wait for one, or when the servers' WAL has grown without
transactions, so that the confirmed position can follow. A mark costs a few queries on an ordinary
connection to each server. On a quiet server it also costs a transaction without rows, which shows in the
stream how far the server is.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gaussdecode.collect.entry_barrier import Cut, EntryBarrier
from gaussdecode.collect.entry_timing import IDLE_SECONDS
from gaussdecode.daemon.session import POLL_SECONDS
from gaussdecode.daemon.session_group import Held
from gaussdecode.errors import GaussDecodeError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import source_address
from gaussdecode.source.gaussdb.connection import EMPTY, GaussConnection
from gaussdecode.source.gaussdb.csn_mark_queries import Marker, answer_from
from gaussdecode.source.gaussdb.csn_mark_rules import Ask, Mark, Running, What
from gaussdecode.source.gaussdb.view import connect_lasting

_NUDGE_SECONDS: Final = 1.0  # between two of one source; arbitrary
_ANSWER_SECONDS: Final = 60.0  # longest answer; arbitrary
_LATE_SECONDS: Final = 0.2  # of taking a mark, after which it waits for somebody; arbitrary
_FIRST_PAUSE: Final = 0.002  # between two looks at transactions that run
_LONGEST_PAUSE: Final = 0.2


class Marking:
    """Offers marks until it is closed.

    Args:
        barrier: takes them.
        members: configuration of each source, by name.
        on_error: told why it cannot go on; then it ends.

    Attributes:
        waiting: transactions that may be committing, which the mark waits for.
    """

    def __init__(
        self,
        barrier: EntryBarrier,
        members: Mapping[str, Config],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._barrier = barrier
        self._members = members
        self._on_error = on_error
        self._interval = min(one.landing.max_commit_interval for one in members.values())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marks", daemon=True)
        self._marked_at = time.monotonic()
        self._highs: Mapping[str, int] = {}
        self._nudged: dict[str, float] = {}
        self._marker: Marker | None = None
        self._taken_since: float | None = None  # monotonic, while a mark is being taken
        self.waiting: frozenset[tuple[str, Running]] = frozenset()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def held(self) -> dict[str, Held]:
        """Sources that the present mark waits for, by name.

        While it is taken: those with transactions that may be committing, and one that has not
        answered. Then those whose stream has not come up to it.
        """
        since, marker = self._taken_since, self._marker
        if since is None or marker is None:
            seconds = self._barrier.held_seconds
            return {name: Held(seconds, ()) for name in self._barrier.late()}
        seconds = time.monotonic() - since
        if seconds < _LATE_SECONDS:
            return {}
        waiting, asked = self.waiting, marker.asked
        running: dict[str, list[Running]] = {} if asked is None or waiting else {asked: []}
        for name, row in sorted(waiting, key=lambda item: item[1].xid):
            running.setdefault(name, []).append(row)
        return {name: Held(seconds, tuple(rows)) for name, rows in running.items()}

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                nodes = {}
                for name, one in self._members.items():
                    with _naming(name, self._members):
                        node = connect_lasting(
                            source_address(one), _ANSWER_SECONDS, self._stop.is_set
                        )
                        nodes[name] = stack.enter_context(node)
                        _refuse_standby(name, node)
                self._marker = marker = Marker(nodes, is_clock_local=_is_clock_local(nodes))
                while not self._stop.is_set():
                    self._turn(marker, nodes)
        except BaseException as error:  # noqa: BLE001  # handed to who waits for the sessions
            if not (self._stop.is_set() and isinstance(error, GaussDecodeError)):
                self._on_error(error)

    def _turn(self, marker: Marker, nodes: Mapping[str, GaussConnection]) -> None:
        """Offer a mark when one is due, and see it through."""
        if not self._barrier.wait_due(POLL_SECONDS, self._interval) and not self._has_moved(nodes):
            return
        mark = self._take(marker)
        if mark is None:  # it is to end
            return
        self._marked_at = time.monotonic()
        self._highs = mark.required_lsns
        self._barrier.offer(Cut(mark.confirmable_lsns, mark.csn, mark.required_lsns))
        while not self._barrier.wait_done(POLL_SECONDS) and not self._stop.is_set():
            for name in self._barrier.late():
                self._nudge(name, nodes[name])

    def _take(self, marker: Marker) -> Mark | None:
        """Take a mark, however long transactions have to be waited for; None where it is to end."""
        pause = _FIRST_PAUSE
        self._taken_since = time.monotonic()
        while (mark := marker.step()) is None:
            self.waiting = marker.waiting
            if self._stop.wait(pause):
                return None
            pause = min(2 * pause, _LONGEST_PAUSE)
        self.waiting = frozenset()
        self._taken_since = None
        return mark

    def _nudge(self, name: str, node: GaussConnection) -> None:
        """Have a quiet server write a commit record, which its stream shows."""
        now = time.monotonic()
        if now - self._nudged.get(name, 0.0) >= _NUDGE_SECONDS:
            self._nudged[name] = now
            with _naming(name, self._members):
                node.query(EMPTY)

    def _has_moved(self, nodes: Mapping[str, GaussConnection]) -> bool:
        """Whether a log has moved on for a while without a transaction that lands."""
        if time.monotonic() - self._marked_at < IDLE_SECONDS:
            return False
        self._marked_at = time.monotonic()
        for name, node in nodes.items():
            with _naming(name, self._members):
                end = answer_from(node, Ask(name, What.HIGH))
            if isinstance(end, Lsn) and end > self._highs.get(name, 0):
                return True
        return False


@contextlib.contextmanager
def _naming(name: str, members: Mapping[str, Config]) -> Iterator[None]:
    """Have an error say which source it is of, where there are several."""
    try:
        yield
    except GaussDecodeError as error:
        if len(members) > 1:
            error.name_source(name)
        raise


def _is_clock_local(nodes: Mapping[str, GaussConnection]) -> bool:
    """Whether sessions draw CSNs themselves: never known of a product that may be distributed."""
    return len(nodes) == 1 and not any(node.profile.is_commercial for node in nodes.values())


def _refuse_standby(name: str, node: GaussConnection) -> None:
    if node.query("SELECT pg_catalog.pg_is_in_recovery()")[0][0] == "t":
        raise SourceRefusedError(
            f"{name}: a standby does not know the next CSN, and a landing in CSN order needs it. "
            "Follow the primary: leave decoding.standby-connection out, and name the primary in the "
            "dsn"
        )
