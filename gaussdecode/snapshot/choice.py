"""Decide which tables' rows and which tables' changes are wanted. Pure: no I/O.

Given the settings and the ledger (`land.snapshots`). A decision of an earlier start stays: no restart and no
upgrade makes a table's rows come or its changes go. The configuration cannot tell an old landing from a
new one, so the ledger records how the landing began. A written `initial` means the same as the default:
writing a default down must not change what happens.

The ledger has a record per table, and under ``*`` one of the landing:

==========  ========================================================================
``mode``    ``initial`` or ``none``, as the landing began or was switched to;
            ``earlier`` for a landing without a record, whose rows nobody asked for
``tables``  OID by title of those that were published at the beginning; absent before
            they were listed
==========  ========================================================================

==============  ====================================================================
state           of a table
==============  ====================================================================
``asked``       its rows are wanted, whatever the settings say
``done``        they have landed
``failed``      they could not be landed; tried again by the next start
``streamed``    it was added, and only its changes are wanted
``ignored``     it was added, and nothing of it is wanted until it is asked for
``quarantined`` what it brought could not be landed, and nothing of it is wanted until asked for
``missed``      for a while it was not published, or not on the white list: changes are missing
``renamed``     what was wanted of it has landed under another name (`snapshot.renames`)
==============  ====================================================================

A record without a state decides nothing: it says why somebody's wish was refused.
``why_stopped`` of a record stays, whatever the state, from a quarantine until all rows have landed.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final, Self

from gaussdecode.land.snapshots import WHY_STOPPED
from gaussdecode.settings.landing_sections import SnapshotConfig

ALL: Final = "*"  # key of the landing's own record
QUARANTINED: Final = "quarantined"
RENAMED: Final = "renamed"
LEFT_OUT: Final = frozenset({"ignored", QUARANTINED})  # states of a table whose changes do not land
_ENDED: Final = frozenset({"done", "streamed", "ignored", QUARANTINED})
_WANTED: Final = frozenset({"done", "streamed", QUARANTINED, RENAMED})

NEEDS_ALL_ROWS: Final = (
    "changes of it have not landed, and a snapshot with a condition would not make it "
    "complete; ask for all of its rows, without --where"
)

Json = dict[str, Any]  # Any: JSON


class Choice(enum.Enum):
    """What becomes of a published table now."""

    LEAVE = "nothing is to be done"
    LAND = "its rows are wanted"
    STREAM = "it is new, and its rows are not wanted"
    IGNORE = "it is new, and nothing of it is wanted"


class Origin(enum.StrEnum):
    """How a landing began, or what it was switched to."""

    INITIAL = "initial"
    NONE = "none"
    EARLIER = "earlier"


@dataclasses.dataclass(frozen=True, slots=True)
class Beginning:
    """The ledger's record of the landing.

    Attributes:
        origin: how it began.
        tables: OID by title of the tables that were there then; None before they were listed.
    """

    origin: Origin
    tables: Mapping[str, int] | None = None

    @classmethod
    def of(cls, ledger: Mapping[str, Json]) -> Self | None:
        """Read it; None when there is no record."""
        record = ledger.get(ALL)
        if record is None:
            return None
        tables = record.get("tables")
        origin = Origin(record.get("mode", "initial"))
        return cls(origin, dict(tables) if isinstance(tables, Mapping) else None)

    def to_record(self) -> Json:
        """Make it fit for the ledger."""
        record: Json = {"state": "listed", "mode": self.origin.value}
        return record if self.tables is None else {**record, "tables": dict(self.tables)}

    def switched(self, mode: str) -> Self:
        """What it is under a configured mode: a choice of the operator's, but no upgrade's."""
        if mode == "none":
            return dataclasses.replace(self, origin=Origin.NONE)
        if self.origin is Origin.NONE or mode == "only":
            return dataclasses.replace(self, origin=Origin.INITIAL)
        return self

    def listed(self, tables: Mapping[str, int]) -> Self:
        """The same, with the tables that are there."""
        return dataclasses.replace(self, tables=dict(tables))


def begin(mode: str) -> Beginning:
    """The record of a landing that begins now."""
    return Beginning(Origin.NONE if mode == "none" else Origin.INITIAL)


class Chooser:
    """Decides for one landing, as its ledger is now.

    Args:
        settings: settings of the slot.
        ledger: all records; without one of the landing every table's changes land.
    """

    def __init__(self, settings: SnapshotConfig, ledger: Mapping[str, Json]) -> None:
        self._settings = settings
        self._ledger = ledger
        self._beginning = Beginning.of(ledger) or Beginning(Origin.EARLIER)
        listed = self._beginning.tables
        self._titles = None if listed is None else frozenset(listed)
        # A table that was wanted under one name is not new under another.
        self._oids = {
            record.get("oid") for record in ledger.values() if record.get("state") in _WANTED
        }
        self._oids |= set((listed or {}).values())
        self._quarantined = {
            record.get("oid") for record in ledger.values() if record.get("state") == QUARANTINED
        } - {None}

    def _is_new(self, title: str, oid: int | None) -> bool:
        state = self._ledger.get(title, {}).get("state")
        if self._titles is None or state in ("failed", "missed"):
            return False
        return oid not in self._oids if oid else title not in self._titles

    def knows(self, title: str, oid: int | None) -> bool:
        """Whether something was decided for a table before."""
        is_decided = "state" in self._ledger.get(title, {})
        return is_decided or (self._titles is not None and not self._is_new(title, oid))

    def choose(self, title: str, oid: int | None) -> Choice:
        """Say what becomes of a published table.

        Args:
            title: ``schema.name``.
            oid: OID of the table; None or 0 where the source has none.
        """
        record = self._ledger.get(title, {})
        state = record.get("state")
        if state == "asked":
            return Choice.LAND
        if state in _ENDED and is_of(record, oid):
            return Choice.LEAVE
        is_new = self._is_new(title, oid)
        if is_new and self._settings.on_new_table == "ignore":
            return Choice.IGNORE
        own = self._settings.mode_of(title)
        if own is None:
            is_wanted = self._settings.mode != "none" and self._beginning.origin is Origin.INITIAL
            if is_wanted and is_new and self._settings.on_new_table == "stream":
                return Choice.STREAM
            own = "initial" if is_wanted else "none"
        return Choice.LAND if own == "initial" else Choice.LEAVE

    def leaves_out(self, title: str, oid: int | None) -> bool:
        """Whether the changes of a table in the stream are not wanted either."""
        record = self._ledger.get(title, {})
        if record.get("state") in LEFT_OUT and is_of(record, oid):
            return True
        if oid in self._quarantined:  # under another name
            return True
        return self.choose(title, oid) is Choice.IGNORE


def is_of(record: Mapping[str, Any], oid: int | None) -> bool:  # Any: JSON
    """Whether a record is of this table, not of one that had its name before."""
    known = record.get("oid")
    return not known or not oid or known == oid


def tables_of(ledger: Mapping[str, Json]) -> dict[str, Json]:
    """The records of tables: a title has a dot, a key of the ledger's own has none."""
    return {title: record for title, record in ledger.items() if "." in title}


def stopped(ledger: Mapping[str, Json]) -> dict[str, str]:
    """Why tables stand still for readers, by title, until all of their rows have landed."""
    records = sorted(ledger.items())
    return {title: str(of[WHY_STOPPED]) for title, of in records if of.get(WHY_STOPPED)}


def needs_all_rows(record: Mapping[str, Any]) -> bool:  # Any: JSON
    """Whether some of a table's rows would not do, as changes of it are missing."""
    return bool(record.get(WHY_STOPPED)) or record.get("state") == "missed"
