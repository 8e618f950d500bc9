"""Describe one stopped table, as a quarantine entry of the commit log records it.

A lasting error of one table would stop all tables. Where the operator chose so, the entry says instead:
nothing of this table lands after this entry's position, until a later entry brings a snapshot of it. All tables
are complete up to the position; all others go on.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, Final, Self

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import table_title

DROPPED: Final = "dropped"
"""In a snapshot's record of a table: the source has no table of its name; it has no OID of its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Quarantine:
    """A table that is left out.

    Attributes:
        table: its directory.
        namespace: schema name.
        name: name of the table.
        oid: pg_class.oid, or None where nothing tells it.
        from_lsn: rows of transactions that end after this position are left out.
        error: why; never a value.
    """

    table: str
    namespace: str
    name: str
    oid: int | None
    from_lsn: Lsn
    error: str

    @property
    def title(self) -> str:
        """As `model.title` spells it: the ledger keeps it by this."""
        return table_title(self.namespace, self.name)

    def to_extra(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for an entry."""
        return {
            "reason": "table_error",
            "text": f"nothing of {self.title} lands until a snapshot of it: {self.error}",
            "tables": [self.table],
            "namespace": self.namespace,
            "name": self.name,
            "oid": self.oid,
            "from_lsn": int(self.from_lsn),
            "is_open": True,
            "error": self.error,
        }

    @classmethod
    def from_extra(cls, extra: dict[str, Any]) -> Self:  # Any: JSON
        """Read what `to_extra` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            (table,) = extra["tables"]
            return cls(
                str(table),
                str(extra["namespace"]),
                str(extra["name"]),
                extra["oid"],
                Lsn(extra["from_lsn"]),
                str(extra["error"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a quarantine: {error}") from error


def stopped_by(entries: Iterable[CommitEntry]) -> set[str]:
    """Directories of the tables that entries put in quarantine."""
    stopped = (of.extra["tables"] for of in entries if of.kind is EntryKind.QUARANTINE)
    return {table for tables in stopped for table in tables}


def ended_by(entry: CommitEntry) -> set[str]:
    """Directories of the tables that are whole again with an entry: their quarantine is over.

    Rows of a snapshot that a condition chose are not the table.
    """
    if entry.kind is not EntryKind.SNAPSHOT:
        return set()
    said = entry.extra.get("snapshot", {}).get("tables", {})
    tables = {*said, *(file.table for file in entry.files)}
    return {table for table in tables if said.get(table, {}).get("where") is None}


def epoch_of(entry: CommitEntry) -> int:
    """Epoch of an entry of one source: OIDs are of it, after a restore one may be another table's."""
    position = entry.positions.get(entry.extra.get("source", ""))
    return max(of.epoch for of in ([position] if position else entry.positions.values()))


def oids_read_by(entry: CommitEntry, epoch: int, since_n: int = -1) -> set[int]:
    """OIDs of tables that are whole with an entry: they may have had another name before.

    Args:
        entry: any entry.
        epoch: epoch that the OIDs are to be of.
        since_n: leave out snapshots that began before this entry.
    """
    if entry.kind is not EntryKind.SNAPSHOT or epoch_of(entry) != epoch:
        return set()
    said = entry.extra.get("snapshot", {}).get("tables", {})
    return {
        int(of["oid"])
        for of in said.values()
        if of.get("oid")
        and of.get("where") is None
        and not of.get(DROPPED)
        and int(of.get("since_n", -1)) >= since_n
    }
