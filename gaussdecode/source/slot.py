"""Describe slots and servers in terms that both products share, and the state of a landing."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Self

from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.rules import SourceKind

PLUGIN: Final = "pgoutput"
"""PostgreSQL's own plug-in."""


@dataclasses.dataclass(frozen=True, slots=True)
class SlotState:
    """One row of pg_replication_slots; columns that the version does not have are None.

    Attributes:
        name: name of the slot.
        plugin: output plug-in; None for a physical slot.
        slot_type: ``logical`` or ``physical``.
        database: name; None for a physical slot.
        is_temporary: it goes with its session.
        is_active: somebody streams from it.
        active_pid: process id of the reader.
        restart_lsn: oldest WAL it holds; None when lost.
        confirmed_flush_lsn: confirmed position.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``.
        safe_wal_size: bytes until it may be lost; None without a limit.
        is_two_phase: prepared transactions are sent at PREPARE.
        invalidation_reason: why it cannot be used any more, from 17 on; from 16 the text
            ``conflict``.
        is_failover: it is kept on standbys, from 17 on.
        confirmed_csn: confirmed CSN of a GaussDB slot in CSN order; None for any other slot.
    """

    name: str
    plugin: str | None
    slot_type: str
    database: str | None
    is_temporary: bool
    is_active: bool
    active_pid: int | None
    restart_lsn: Lsn | None
    confirmed_flush_lsn: Lsn | None
    wal_status: str | None
    safe_wal_size: int | None
    is_two_phase: bool
    invalidation_reason: str | None
    is_failover: bool
    confirmed_csn: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The server and database of a source.

    Attributes:
        system_identifier: system identifier of the cluster.
        database: name.
        node: name of the node in a distributed GaussDB; empty where it is not known.
    """

    system_identifier: str
    database: str
    node: str = ""

    def is_same(self, other: "Place") -> bool:
        """Whether two are one: nodes of one system identifier are told apart by their names."""
        if (self.system_identifier, self.database) != (other.system_identifier, other.database):
            return False
        return self.node == other.node or not self.node or not other.node


@dataclasses.dataclass(frozen=True, slots=True)
class ServerState:
    """The state of the server before a stream is started.

    Attributes:
        version: such as 150018.
        system_identifier: system identifier of the cluster.
        timeline: timeline of the server.
        wal_end: end of its WAL.
        database: we are connected to.
        slot: the row, or None when there is no such slot.
        sender_timeout_ms: ``wal_sender_timeout``; 0 for none.
        encoding: encoding of the database.
        missing_publications: configured, but not there.
        switch_points: end of each earlier timeline.
        is_standby: it recovers; its WAL ends where its replay is.
        instance: tells it from every other server, and from itself before its last start; empty
            where that is not known.
        node: see `Place`.
    """

    version: int
    system_identifier: str
    timeline: int
    wal_end: Lsn
    database: str
    slot: SlotState | None
    sender_timeout_ms: int
    encoding: str
    missing_publications: tuple[str, ...] = ()
    switch_points: Mapping[int, Lsn] = dataclasses.field(default_factory=dict)
    is_standby: bool = False
    instance: str = ""
    node: str = ""

    @property
    def place(self) -> Place:
        """The database."""
        return Place(self.system_identifier, self.database, self.node)

    def identity(self, kind: SourceKind, slot: str, plugin: str | None) -> SourceIdentity:
        """What a landing of a slot of this server belongs to."""
        return SourceIdentity(kind.value, self.system_identifier, self.database, slot, plugin or "")


@dataclasses.dataclass(frozen=True, slots=True)
class LandingPosition:
    """The source and position of the commit log.

    Attributes:
        system_identifier: system identifier of the cluster.
        timeline: timeline of the last entry; 0 when it has none.
        database: name.
        slot: name.
        plugin: output plug-in.
        lsn: the durable position.
        landed_lsn: nothing that ends beyond it has landed: the position moves on where there is
            nothing to land, and in the order of CSNs stands before some that landed. None for the position
            itself.
        instance: instance of the server that this process has read it from; empty for none.
    """

    system_identifier: str
    timeline: int
    database: str
    slot: str
    plugin: str
    lsn: Lsn
    landed_lsn: Lsn | None = None
    instance: str = ""

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:  # Any: JSON
        """Read what `to_record` wrote."""
        landed = record.get("landed_lsn")
        positions = {
            "lsn": Lsn(record["lsn"]),
            "landed_lsn": None if landed is None else Lsn(landed),
        }
        return cls(**{**record, **positions})
