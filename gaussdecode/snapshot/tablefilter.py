"""Decide which tables' changes land, and remember how a landing began.

The collector asks for every table that the stream describes; snapshots ask too. A table that is left out
is durable in the ledger before the first of its changes is dropped. So it stays left out until an operator
asks for it, and a log line, `status` and a metric show it. Decisions hold for one session: a table that is
asked for lands from the next session on.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from gaussdecode.land.failpoints import SnapshotStep
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.relation import Relation
from gaussdecode.model.title import table_title
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.choice import (
    ALL,
    QUARANTINED,
    Beginning,
    Choice,
    Chooser,
    Json,
    Origin,
    begin,
)

_log = get_logger("snapshot")


def note_beginning(
    store: SnapshotStore,
    config: Config,
    list_tables: Callable[[], Mapping[str, int]],
    *,
    is_new: bool,
) -> Beginning:
    """Write down how a landing begins; durable when this returns.

    Called before the first entry, and at every later start of a session.

    Args:
        store: store of the landing.
        config: checked.
        list_tables: asks the source for OID by title of the published tables.
        is_new: nothing has landed yet.
    """
    mode = config.snapshot.mode
    known = Beginning.of(store.ledger())
    began = begin(mode) if is_new else Beginning(Origin.EARLIER)
    now = began if known is None else known
    now = now.switched(mode)
    if config.snapshot.on_new_table == "ignore" and now.tables is None:
        now = now.listed(list_tables())
    if now != known:
        store.note({ALL: now.to_record()})
        store.reach(SnapshotStep.BEGINNING_NOTED)
    return now


def unread(ledger: Mapping[str, Json]) -> dict[str, Any]:  # Any: of several types
    """The tables in quarantine, as settings of the reader: nobody must even look at their rows.

    By OID, and by title where the stream has no OIDs.
    """
    held = {title: of for title, of in ledger.items() if of.get("state") == QUARANTINED}
    oids = sorted(int(record["oid"]) for record in held.values() if record.get("oid"))
    return {"unread": tuple(oids), "left_out": tuple(sorted(held))}


class TableFilter:
    """Decides which tables' changes land, for one session.

    Args:
        store: store of the landing.
        config: checked.
        ledger: known state of each table.
    """

    def __init__(self, store: SnapshotStore, config: Config, ledger: Mapping[str, Json]) -> None:
        self._store = store
        self._settings = config.snapshot
        self._path = config.path
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._take(ledger)

    def _take(self, ledger: Mapping[str, Json]) -> None:
        self._ledger = ledger
        self._chooser = Chooser(self._settings, ledger)

    @property
    def ignored(self) -> list[str]:
        """Titles of the tables that are known to be left out."""
        ledger = self._ledger
        return sorted(title for title, of in ledger.items() if of.get("state") == "ignored")

    @property
    def quarantined(self) -> dict[str, str]:
        """Why nothing lands of the tables that are in quarantine, by title."""
        return {
            title: str(record.get("reason"))
            for title, record in sorted(self._ledger.items())
            if record.get("state") == QUARANTINED
        }

    def leaves_out(self, title: str, oid: int | None) -> bool:
        """Whether the changes of a table do not land in this session."""
        return self._chooser.leaves_out(title, oid)

    def is_wanted(self, relation: Relation) -> bool:
        """Whether a table of the stream lands; what does not is written down first."""
        title = table_title(relation.namespace, relation.name)
        oid = relation.oid if relation.is_oid_known else None
        if not self.leaves_out(title, oid):
            if not self._chooser.knows(title, oid):
                self._news.set()
            return True
        if self._chooser.choose(title, oid) is Choice.IGNORE:
            self.ignore(title, oid)
        return False

    def take_news(self) -> bool:
        """Whether the stream has shown a table that nobody knew; told once."""
        has_news = self._news.is_set()
        self._news.clear()
        return has_news

    def ignore(self, title: str, oid: int | None) -> None:
        """Write down, and say, that nothing of a table lands; once."""
        with self._lock:
            if self._chooser.choose(title, oid) is not Choice.IGNORE:
                return
            record: Json = {"state": "ignored", "oid": oid or None}
            self._store.note({title: record})
            self._store.reach(SnapshotStep.TABLE_IGNORED)
            self._take({**self._ledger, title: record})
        command = f"gaussdecode snapshot {self._path} --table {title!r}"
        _log.warning(Event.TABLE_IGNORED, table=title, land_it=command)
