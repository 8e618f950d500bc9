"""A seeded random history of a cluster: transactions of one node and of several, with inversions.

Between drawing its CSN and each of its commit records other transactions draw theirs and write
their records, so that CSNs and LSNs invert within a node and between nodes. Rows are locked as
on a server: from the change until the commit record of that node, and a truncated table whole.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from kit.gausscluster import GaussCluster, GlobalTransaction
from kit.gaussstore import Table

SCHEMA: Final = "kit"
_OPEN: Final = 4  # sessions that work at once
_COMMITTING: Final = 3  # transactions that have a CSN and lack a commit record
_COLUMNS: Final = {"id": "int8", "v": "text", "n": "numeric(12,3)"}
USTORE: Final = "counters"
TABLES: Final = ("orders", "items", "ledger")  # the last one with REPLICA IDENTITY FULL


class History:
    """Random steps; what is open at the end is ended by `finish`.

    Args:
        cluster: it gets the tables of `TABLES`.
        seed: of everything random.
        truncates: TRUNCATE too, which parallel decoding does not send.
        spread: how often a transaction goes on at another node, from 0 to 1.
        linger: how seldom a drawn CSN gets its commit record, from 0 to 1.
        upserts: overtaken ones too; the cluster gets the table `USTORE` for them as well.
    """

    def __init__(
        self,
        cluster: GaussCluster,
        seed: int,
        *,
        truncates: bool = True,
        spread: float = 0.3,
        linger: float = 0.5,
        upserts: bool = False,
    ) -> None:
        self._cluster = cluster
        self._rng = Random(seed)
        self._truncates = truncates
        self._spread = spread
        self._linger = linger
        self._upserts = upserts
        self._nodes = list(cluster.servers)
        self._tables = {
            name: cluster.create_table(
                SCHEMA, name, _COLUMNS, key=["id"], identity="f" if name == TABLES[-1] else "d"
            )
            for name in TABLES
        }
        if upserts:
            self._tables[USTORE] = cluster.create_table(
                SCHEMA, USTORE, _COLUMNS, key=["id"], is_ustore=True
            )
        self._open: list[GlobalTransaction] = []
        self._committing: list[GlobalTransaction] = []
        self._next_id = 0
        # Who holds a row or a table, by node and row id or OID, until its commit record there.
        self._rows: dict[tuple[str, int], GlobalTransaction] = {}
        self._users: dict[tuple[str, int], set[GlobalTransaction]] = {}
        self._truncated: dict[tuple[str, int], GlobalTransaction] = {}

    def run(self, steps: int, pause: Callable[[], None] = lambda: None) -> None:
        """Take random steps.

        Args:
            steps: how many.
            pause: called after each.
        """
        for _ in range(steps):
            self.step()
            pause()

    def step(self) -> None:
        """Take one step."""
        choice = self._rng.random()
        if self._committing and (
            len(self._committing) > _COMMITTING or choice > 0.8 + 0.2 * self._linger
        ):
            self._write_record()
        elif not self._open or (len(self._open) < _OPEN and choice < 0.15):
            user = self._rng.choice(("app", "batch"))
            self._open.append(self._cluster.begin(user=user))
        elif choice < 0.7:
            self._work(self._rng.choice(self._open))
        else:
            self._end(self._rng.choice(self._open))

    def finish(self) -> None:
        """Commit everything that is open, in random order."""
        while self._open:
            self._end(self._rng.choice(self._open))
        while self._committing:
            self._write_record()

    # --- steps -------------------------------------------------------------------------

    def _work(self, in_: GlobalTransaction) -> None:
        nodes = list(in_.parts)
        if not nodes or self._rng.random() < self._spread:
            nodes = self._nodes
        node = self._rng.choice(nodes)
        if in_.is_prepared:
            return
        table = self._tables[self._rng.choice(list(self._tables))][node]
        holder = self._truncated.get((node, table.oid))
        if holder is not None and holder is not in_:
            return
        choice = self._rng.random()
        users = self._users.setdefault((node, table.oid), set())
        if choice < 0.03 and self._truncates and not users - {in_}:
            in_.on(node).truncate(table)
            self._truncated[node, table.oid] = in_
        elif holder is in_ or choice < 0.55:
            self._insert(in_, node, table)
        elif self._upserts and choice < 0.7:
            self._upsert(in_, node, table)
        else:
            self._change(in_, node, table, is_delete=choice > 0.85)
        if node in in_.parts:
            users.add(in_)

    def _insert(self, in_: GlobalTransaction, node: str, table: Table) -> None:
        made = []
        for _ in range(self._rng.choice((1, 1, 1, 3, 30))):
            self._next_id += 1
            made.append({"id": str(self._next_id), **self._values()})
        for row_id in in_.on(node).insert(table, *made):
            self._rows[node, row_id] = in_

    def _values(self) -> dict[str, str | None]:
        text = self._rng.choice((None, "", "x" * self._rng.randint(1, 50)))
        return {"v": text, "n": f"{self._rng.randint(-(10**6), 10**6) / 1000:.3f}"}

    def _upsert(self, in_: GlobalTransaction, node: str, table: Table) -> None:
        """Overtaken; on ustore the row that won is updated, else the stream has what the table has not."""
        held = self._cluster.servers[node].store.contents(table)
        free = [row_id for row_id in held if (node, row_id) not in self._rows]
        if not free:
            return
        row_id = self._rng.choice(free)
        self._rows[node, row_id] = in_
        given = {"id": table.row(held[row_id])["id"], **self._values()}
        in_.on(node).overtaken(table, given)
        if table.is_ustore or self._rng.random() < 0.6:
            in_.on(node).update(table, row_id, given)

    def _change(self, in_: GlobalTransaction, node: str, table: Table, *, is_delete: bool) -> None:
        held = self._cluster.servers[node].store.contents(table)
        free = [row_id for row_id in held if (node, row_id) not in self._rows]
        if not free:
            return
        row_id = self._rng.choice(free)
        self._rows[node, row_id] = in_
        if is_delete:
            in_.on(node).delete(table, row_id)
            return
        changes = self._values()
        if self._rng.random() < 0.1:
            self._next_id += 1
            changes["id"] = str(self._next_id)
        in_.on(node).update(table, row_id, changes)

    def _end(self, of: GlobalTransaction) -> None:
        if not of.parts or self._rng.random() < 0.1:
            nodes = list(of.parts)
            of.rollback()
            self._open.remove(of)
            for node in nodes:
                self._release(of, node)
            return
        if len(of.parts) > 1 and not of.is_prepared and self._rng.random() < 0.5:
            of.prepare()  # and its CSN is drawn at another step
            return
        self._open.remove(of)
        of.draw_csn(self._rng.choice(("COMMIT", "END", "CALL close_day()")))
        self._committing.append(of)
        if self._rng.random() < 0.2:
            self._cluster.clock.skip(self._rng.randint(1, 3))

    def _write_record(self) -> None:
        of = self._rng.choice(self._committing)
        node = self._rng.choice(list(of.parts))
        of.commit_on(node)
        self._release(of, node)
        if not of.parts:
            self._committing.remove(of)
        if self._rng.random() < 0.1:
            self._cluster.servers[node].store.commit_elsewhere()

    def _release(self, of: GlobalTransaction, node: str) -> None:
        for where in [at for at, by in self._rows.items() if by is of and at[0] == node]:
            del self._rows[where]
        for where in [at for at, by in self._truncated.items() if by is of and at[0] == node]:
            del self._truncated[where]
        for where, users in self._users.items():
            if where[0] == node:
                users.discard(of)
