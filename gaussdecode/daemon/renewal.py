"""Renew a connection whose server may send rows of a table under a former name (PostgreSQL 14).

The server keeps the names that it knew when the connection began. So the next connection begins once everything
has landed that it sent in between, and the tables are suspect.
"""

from collections.abc import Iterable

from gaussdecode.daemon.fingerprints import Json, former_name_change, suspect
from gaussdecode.logs import Event, get_logger

_log = get_logger("daemon")


class Renewal:
    """The connections of one source."""

    def __init__(self) -> None:
        self._stale: dict[str, tuple[int, int]] = {}  # by title: since which LSN, and until which
        self._is_under_way = False

    def ask(self, titles: Iterable[str], lsn: int) -> None:
        """Have another connection begin behind a position: rows of these tables may come under a former name."""
        for title in titles:
            since, _ = self._stale.get(title, (lsn, lsn))
            self._stale[title] = since, lsn

    def begin_if_due(self, durable_lsn: int) -> bool:
        """Whether another connection is to begin now: all has landed that the commands left behind."""
        if not self._stale or self._is_under_way:
            return False
        self._is_under_way = durable_lsn >= max(until for _, until in self._stale.values())
        if self._is_under_way:
            _log.warning(Event.CONNECTION_RENEWED, tables=", ".join(sorted(self._stale)))
        return self._is_under_way

    def end(self, lsn: int) -> list[Json]:
        """Another connection begins at a position; gives the content of a suspect entry, if there is one to write."""
        if not self._is_under_way:
            return []
        self._is_under_way = False
        over = {title: of for title, of in self._stale.items() if of[1] <= lsn}
        self._stale = {title: of for title, of in self._stale.items() if title not in over}
        if not over:
            return []
        changes = dict.fromkeys(over, former_name_change())
        return [suspect(changes, min(since for since, _ in over.values()), lsn)]
