"""Several simulated servers as the data nodes of one cluster: one clock of CSNs, one oracle.

A transaction may change several of them: it is prepared on each, has one CSN, and its commit
record is written on each at a moment of its own. What all of them committed, in the order of
CSNs, is `GaussCluster.history`; what a table held after a CSN is `GaussCluster.rows_at`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from kit.gaussclock import CsnClock, draw_together
from kit.gaussprofile import V6_0_0, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Committed, Store, Table, Transaction, Value
from kit.postgres import Postgres

_NODES: Final = ("dn1", "dn2", "dn3")
_FLUSH_SECONDS: Final = 0.05
Rows = list[dict[str, Value]]


@dataclasses.dataclass(frozen=True, slots=True)
class GlobalCommit:
    """What one CSN committed.

    Attributes:
        csn: of all its commit records.
        parts: by node; on a node that has not written its commit record yet there is none.
    """

    csn: int
    parts: Mapping[str, Committed]


class GlobalTransaction:
    """A transaction over the nodes that it changes.

    Attributes:
        parts: by node, in the order in which they were first used; until they end.
        csn: once it is drawn.
        committed: by node, what has a commit record.
    """

    def __init__(self, cluster: "GaussCluster", gid: str, user: str) -> None:
        self._cluster = cluster
        self._user = user
        self.gid = gid
        self.parts: dict[str, Transaction] = {}
        self.csn: int | None = None
        self.committed: dict[str, Committed] = {}

    def on(self, name: str) -> Transaction:
        """Its part on a node; begun there when it is first asked for."""
        assert self.csn is None, "it commits already"
        if name not in self.parts:
            self.parts[name] = self._cluster.servers[name].store.begin(user=self._user)
        return self.parts[name]

    @property
    def is_prepared(self) -> bool:
        """Whether no session has it any more."""
        return any(part.gid is not None for part in self.parts.values())

    def prepare(self) -> None:
        """Prepare it on every node."""
        for part in self.parts.values():
            if part.gid is None:
                part.prepare(self.gid)

    def draw_csn(self, query: str = "COMMIT") -> int:
        """Draw the CSN of all its commit records; prepares what spans several nodes.

        Args:
            query: that the session runs meanwhile, on the only node.
        """
        if len(self.parts) == 1 and not self.is_prepared:
            (part,) = self.parts.values()
            self.csn = part.draw_csn(query)
            return self.csn
        self.prepare()
        stores = {name: self._cluster.servers[name].store for name in self.parts}
        self.csn = draw_together((stores[name], part.tables) for name, part in self.parts.items())
        for part in self.parts.values():
            part.expect(self.csn)
        return self.csn

    def commit_on(self, name: str) -> Committed:
        """Write the commit record on one node."""
        if self.csn is None:
            self.draw_csn()
        done = self.parts.pop(name).commit()
        self.committed[name] = done
        return done

    def commit(self) -> dict[str, Committed]:
        """Write the commit records that are left; give all."""
        for name in list(self.parts):
            self.commit_on(name)
        return self.committed

    def rollback(self) -> None:
        """Roll it back on every node; none has a commit record yet."""
        assert not self.committed
        for part in self.parts.values():
            part.rollback()
        self.parts.clear()


class GaussCluster:
    """Data nodes of one cluster, each a server of its own.

    Args:
        names: of the nodes.
        profile: the version.
        postgres: answers SQL, in a database per node; without it only streams work.
        behaviour: makes that of each node.

    Attributes:
        clock: of all.
        servers: by name.
    """

    def __init__(
        self,
        names: Sequence[str] = _NODES,
        profile: Profile = V6_0_0,
        *,
        postgres: Postgres | None = None,
        behaviour: Callable[[], Behaviour] = lambda: Behaviour(flush_seconds=_FLUSH_SECONDS),
    ) -> None:
        self.clock = CsnClock()
        self._gids = itertools.count(1)
        self.servers: dict[str, GaussServer] = {}
        for number, name in enumerate(names):
            store = Store(csn_clock=self.clock)
            store.write(number * 0x40_0000)  # no node's positions are another one's
            self.servers[name] = GaussServer(
                store, profile, catalogue=Catalogue(postgres) if postgres else None,
                behaviour=behaviour(), node_name=name,
            )  # fmt: skip
            self.servers[name].system_identifier += number

    # --- life --------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start all nodes."""
        for server in self.servers.values():
            server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all nodes, and what answers for them."""
        for server in self.servers.values():
            server.crash()
            if server.catalogue is not None:
                server.catalogue.close()

    def away(self, name: str) -> None:
        """Take a node away: it crashes, and is not there until it is `back`."""
        self.servers[name].crash()

    def back(self, name: str) -> None:
        """Let a node come back, on its ports of before."""
        self.servers[name].start()

    def cut(self, name: str) -> None:
        """Reset all connections of a node."""
        self.servers[name].reset_connections()

    # --- content -----------------------------------------------------------------------

    def create_table(
        self, schema: str, name: str, columns: Mapping[str, str], *, key: Sequence[str] = (),
        identity: str = "d", is_replicated: bool = False, is_ustore: bool = False,
    ) -> dict[str, Table]:  # fmt: skip
        """Create a table on all nodes; give it by node."""
        made = {}
        for node, server in self.servers.items():
            table = server.store.create_table(
                schema, name, columns, key=key, identity=identity, is_ustore=is_ustore
            )
            if is_replicated:
                table = dataclasses.replace(table, is_replicated=True)
                server.store.put_table(table)
            made[node] = table
        return made

    def create_slots(
        self, name: str, plugin: str = "mppdb_decoding", *, output_order: int = 0
    ) -> None:
        """Create a slot of one name on all nodes; CSN slots with output order 1."""
        for server in self.servers.values():
            (server.create_csn_slot if output_order else server.create_slot)(name, plugin)

    def begin(self, *, user: str = "app") -> GlobalTransaction:
        """Begin a transaction."""
        return GlobalTransaction(self, f"T{next(self._gids)}", user)

    # --- the oracle --------------------------------------------------------------------

    def history(self, up_to: int | None = None) -> list[GlobalCommit]:
        """List what was committed in the database, in the order of CSNs.

        Args:
            up_to: a CSN; what is above it is left out.
        """
        found: dict[int, dict[str, Committed]] = {}
        for name, server in self.servers.items():
            with server.store.changed:
                for of in server.store.committed:
                    if not of.is_elsewhere and (up_to is None or of.csn <= up_to):
                        found.setdefault(of.csn, {})[name] = of
        return [GlobalCommit(csn, found[csn]) for csn in sorted(found)]

    def rows_at(self, schema: str, table: str, csn: int | None = None) -> dict[str, Rows]:
        """What a table held after all transactions up to a CSN, by node; None for now."""
        at = self.clock.next if csn is None else csn
        result: dict[str, Rows] = {}
        for name, server in self.servers.items():
            held = server.store.tables[schema, table]
            result[name] = [held.row(v) for v in server.store.contents_at(held, at).values()]
        return result

    def violations(self) -> list[str]:
        """What clients did wrong, on any node."""
        return [what for server in self.servers.values() for what in server.violations]
