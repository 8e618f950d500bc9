"""What a simulated openGauss holds: tables, their rows, and the WAL of what changed them.

Transactions take WAL positions as they go, so several of them interleave as on a server;
`Store.committed` lists them in the order of their commit records. Rows are applied to the
tables at commit, and `Store.contents` is what the tables hold then: the oracle.
"""

import dataclasses
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kit.gaussactivity import Activity, Backend, Prepared
from kit.gaussclock import FIRST_CSN, CsnClock
from kit.gausstypes import parse_type
from kit.gausswire import Statement

Value = str | bytes | None
Values = tuple[Value, ...]
FIRST_LSN: Final = 0x1_6000_0000
FIRST_XID: Final = 10_000_000_000  # beyond 32 bits, as an old openGauss has them
_COMMIT_BYTES: Final = 0x68


@dataclasses.dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a table.

    Attributes:
        name: true name.
        type_oid: pg_type.oid.
        modifier: atttypmod.
        type_name: as ``format_type_be`` prints it.
        number: attnum.
        is_not_null: declared so.
        is_generated: stored generated.
    """

    name: str
    type_oid: int
    modifier: int
    type_name: str
    number: int
    is_not_null: bool = False
    is_generated: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """One version of a table.

    Attributes:
        oid: pg_class.oid.
        schema: name.
        name: of the table.
        columns: live ones by number.
        key: names of the primary key's columns.
        identity: relreplident: d, f, n or i.
        index_key: columns of the identity index, for i.
        is_ustore: rows live in ustore.
        options: reloptions, beside that of ustore.
        comments: pg_description, by number of the column; 0 for the table.
        is_replicated: every node of the cluster has all its rows.
        is_by_interval: the server makes its partitions as rows come.
        is_deferrable: its primary key is, and so no replica identity.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[StoredColumn, ...]
    key: tuple[str, ...] = ()
    identity: str = "d"
    index_key: tuple[str, ...] = ()
    is_ustore: bool = False
    options: tuple[str, ...] = ()
    comments: tuple[tuple[int, str], ...] = ()
    is_replicated: bool = False
    is_by_interval: bool = False
    is_deferrable: bool = False

    @property
    def identity_names(self) -> tuple[str, ...]:
        """Columns of which the old values are logged; empty when none are."""
        if self.identity == "i":
            return self.index_key
        if self.identity == "d" and self.key and not self.is_deferrable:
            return self.key
        if self.identity == "f" or self.is_ustore:
            return tuple(column.name for column in self.columns)
        return ()

    def values(self, given: Mapping[str, Value]) -> Values:
        """Put values in the order of the columns; what is not given is NULL."""
        unknown = given.keys() - {column.name for column in self.columns}
        if unknown:
            raise KeyError(*unknown)
        return tuple(given.get(column.name) for column in self.columns)

    def row(self, values: Values) -> dict[str, Value]:
        """Name the values of a row."""
        return {column.name: value for column, value in zip(self.columns, values, strict=True)}


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change in the WAL: op I, U, D or T, with all values of both rows."""

    op: str
    lsn: int
    tables: tuple[Table, ...]
    new: Values | None = None
    old: Values | None = None
    row_id: int = 0
    is_compressed: bool = False  # the server cannot decode it, and sends no columns
    is_speculative: bool = False  # of an upsert that was overtaken; it changes nothing

    @property
    def table(self) -> Table:
        """The only table of a row's change."""
        return self.tables[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """One commit record and what belongs to it.

    Attributes:
        ddl_lsn: where a catalogue change stands in it, or None.
        statements: DDL that triggers of a publication wrote into the WAL.
        is_elsewhere: of another database of the instance.
    """

    xid: int
    subxids: tuple[int, ...]
    csn: int
    first_lsn: int
    commit_lsn: int
    end_lsn: int
    commit_time_us: int
    origin: int
    user: str
    changes: tuple[Change, ...]
    ddl_lsn: int | None = None
    is_elsewhere: bool = False
    statements: tuple[Statement, ...] = ()

    @property
    def has_records(self) -> bool:
        """Whether anything but its commit record is its own."""
        return bool(self.changes) or self.first_lsn != self.commit_lsn

    @property
    def rows_after_ddl(self) -> int:
        """How many changes parallel decoding drops."""
        if self.ddl_lsn is None:
            return 0
        return sum(change.lsn > self.ddl_lsn for change in self.changes)


@dataclasses.dataclass(frozen=True, slots=True)
class StoreCopy:
    """What `Store.copy` took: the WAL and the tables as they were then."""

    committed: tuple[Committed, ...]
    wal_end: int
    next_xid: int
    next_csn: int
    known_csn: int
    tables: Mapping[tuple[str, str], Table]
    rows: Mapping[int, Mapping[int, Values]]


class Store:
    """Tables, rows and WAL of one database.

    Args:
        clock: microseconds since 2000-01-01; commit times.
        first_csn: of a clock of its own.
        csn_clock: shared with other servers, in place of that.

    Attributes:
        csn_clock: gives the CSNs.
        known_csn: one more than the highest CSN that was seen here; without others the next one.
        next_xid: that the next transaction will take.
        activity: sessions and prepared transactions.
        committed: in the order of their commit records.
        wal_end: where the next record will start.
        changed: notified after every commit.
        schema_version: counts changes of tables.
        waiting: readers that wait for somebody's commit record.
    """

    def __init__(
        self,
        clock: Callable[[], int] | None = None,
        *,
        first_csn: int = FIRST_CSN,
        csn_clock: CsnClock | None = None,
    ) -> None:
        ticks = itertools.count(763_734_672_098_179, 1_000_003)
        self._clock = clock or (lambda: next(ticks))
        self.changed = threading.Condition(threading.RLock())
        self.committed: list[Committed] = []
        self.wal_end = FIRST_LSN
        self.tables: dict[tuple[str, str], Table] = {}
        self.schema_version = 0
        self._rows: dict[int, dict[int, Values]] = {}
        self._oids = itertools.count(16385)
        self.next_xid = FIRST_XID
        self.csn_clock = csn_clock or CsnClock(first_csn)
        self.known_csn = self.csn_clock.next
        self.activity = Activity()
        self.waiting = 0
        self._truncated: dict[int, list[int]] = {}
        self._emptied_at: dict[int, int] = {}  # by OID, where the file that it has now begins
        self._rewrites = Counter[int]()  # by OID
        self.changed_by: dict[int, int] = {}  # by OID, who changed a table's entry in pg_class last
        self._committing: dict[int, frozenset[int]] = {}  # CSN drawn, OIDs of its tables
        self._row_ids = itertools.count(1)

    # --- copies ------------------------------------------------------------------------

    def copy(self) -> StoreCopy:
        """Copy all that is there; nothing may be open."""
        with self.changed:
            assert not self._committing
            return StoreCopy(
                tuple(self.committed), self.wal_end, self.next_xid, self.csn_clock.next,
                self.known_csn, dict(self.tables),
                {oid: dict(rows) for oid, rows in self._rows.items()},
            )  # fmt: skip

    def put_back(self, copy: StoreCopy, *, is_clock_too: bool = False) -> None:
        """Be again what `copy` took: LSNs and transaction ids since then are given again.

        Args:
            copy: of this store.
            is_clock_too: CSNs since then are given again, as by a server with a clock of its own.
        """
        with self.changed:
            self.committed = list(copy.committed)
            self.wal_end, self.next_xid = copy.wal_end, copy.next_xid
            self.known_csn = copy.known_csn
            self.tables = dict(copy.tables)
            self._rows = {oid: dict(rows) for oid, rows in copy.rows.items()}
            self.schema_version += 1
            if is_clock_too:
                self.csn_clock.set_back(copy.next_csn)

    def lose_tail(self, lsn: int) -> None:
        """Be what a standby had that replayed up to a position; it gives the next CSN of what it saw."""
        with self.changed:
            assert not self._committing
            kept = [of for of in self.committed if of.end_lsn <= lsn]
            self.committed, self.wal_end = kept, lsn
            self.csn_clock.set_back(max((of.csn for of in kept), default=0) + 1)
            self.known_csn = self.csn_clock.next
            for oid in self._rows:
                self._rows[oid] = {}
            for of in kept:
                for change in of.changes:
                    self._apply(change)

    # --- tables ------------------------------------------------------------------------

    def create_table(
        self,
        schema: str,
        name: str,
        columns: Mapping[str, str],
        *,
        key: Sequence[str] = (),
        identity: str = "d",
        index_key: Sequence[str] = (),
        is_ustore: bool = False,
        generated: Sequence[str] = (),
    ) -> Table:
        """Create a table from short type names: ``{"id": "int8", "v": "varchar(10)"}``."""
        made = []
        for number, (column, text) in enumerate(columns.items(), 1):
            spec = parse_type(text)
            made.append(
                StoredColumn(
                    column, spec.oid, spec.modifier, spec.name, number,
                    is_not_null=column in key, is_generated=column in generated,
                )
            )  # fmt: skip
        table = Table(
            next(self._oids), schema, name, tuple(made), tuple(key), identity,
            tuple(index_key), is_ustore,
        )  # fmt: skip
        self.put_table(table)
        return table

    def put_table(self, table: Table) -> None:
        """Make a table known, or a newer version of it."""
        with self.changed:
            self.tables = {
                where: held for where, held in self.tables.items() if held.oid != table.oid
            }
            self.tables[table.schema, table.name] = table
            self.changed_by[table.oid] = (
                self.next_xid
            )  # of the transaction with the DDL, which follows
            self._rows.setdefault(table.oid, {})
            self.schema_version += 1

    def drop_table(self, table: Table) -> None:
        """Drop a table and its rows."""
        with self.changed:
            del self.tables[table.schema, table.name]
            del self._rows[table.oid]
            self.schema_version += 1

    def add_column(self, table: Table, name: str, type_text: str) -> Table:
        """Add a column; the rows that are there get NULL."""
        with self.changed:
            spec = parse_type(type_text)
            number = max((column.number for column in table.columns), default=0) + 1
            column = StoredColumn(name, spec.oid, spec.modifier, spec.name, number)
            newer = dataclasses.replace(table, columns=(*table.columns, column))
            rows = self._rows[table.oid]
            self._rows[table.oid] = {at: (*values, None) for at, values in rows.items()}
            self.put_table(newer)
            return newer

    def drop_column(self, table: Table, name: str) -> Table:
        """Drop a column."""
        with self.changed:
            kept = [i for i, column in enumerate(table.columns) if column.name != name]
            newer = dataclasses.replace(table, columns=tuple(table.columns[i] for i in kept))
            self._rows[table.oid] = {
                at: tuple(values[i] for i in kept) for at, values in self._rows[table.oid].items()
            }
            self.put_table(newer)
            return newer

    def contents(self, table: Table) -> dict[int, Values]:
        """The rows of a table now, by row id."""
        with self.changed:
            return dict(self._rows[table.oid])

    # --- transactions ------------------------------------------------------------------

    def write(self, size: int) -> int:
        """Append a WAL record; give its start."""
        with self.changed:
            start = self.wal_end
            self.wal_end = (start + max(size, 24) + 7) // 8 * 8
            return start

    def new_xid(self) -> int:
        """Take a transaction id."""
        with self.changed:
            xid = self.next_xid
            self.next_xid += 1
            return xid

    def new_row_id(self) -> int:
        """Take a row id."""
        return next(self._row_ids)

    def begin(
        self, *, user: str = "app", origin: int = 0, backend: Backend | None = None
    ) -> "Transaction":
        """Begin a transaction, in a session of its own unless one is given."""
        return Transaction(self, user, origin, backend)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        xid: int | None = None,
        subxids: Sequence[int] = (),
        first_lsn: int | None = None,
        user: str = "app",
        origin: int = 0,
        ddl_lsn: int | None = None,
        statements: Sequence[Statement] = (),
        commit_time_us: int | None = None,
        is_elsewhere: bool = False,
        is_applied: bool = True,
        csn: int | None = None,
    ) -> Committed:
        """Write a commit record, and apply the changes to the tables if asked to."""
        with self.changed:
            drawn = self.csn_clock.draw() if csn is None else csn
            self.known_csn = max(self.known_csn, drawn + 1)
            start = self.write(_COMMIT_BYTES)
            done = Committed(
                xid=self.new_xid() if xid is None else xid,
                subxids=tuple(subxids),
                csn=drawn,
                first_lsn=start if first_lsn is None else first_lsn,
                commit_lsn=start,
                end_lsn=self.wal_end,
                commit_time_us=self._clock() if commit_time_us is None else commit_time_us,
                origin=origin,
                user=user,
                changes=tuple(changes),
                ddl_lsn=ddl_lsn,
                is_elsewhere=is_elsewhere,
                statements=tuple(statements),
            )
            for change in changes if is_applied else ():
                self._apply(change)
            for change in changes:
                for table in change.tables if change.op == "T" else ():
                    self._truncated.setdefault(table.oid, []).append(done.csn)
                    self.changed_by[table.oid] = done.xid
                    self._emptied_at[table.oid] = change.lsn
            self.committed.append(done)
            self._committing.pop(done.csn, None)
            self.changed.notify_all()
            return done

    # --- as a snapshot sees it ---------------------------------------------------------

    @property
    def next_csn(self) -> int:
        """The CSN that the next transaction will draw, and what a new snapshot does not see."""
        return self.csn_clock.next

    def draw_csn(self, tables: Iterable[Table] = ()) -> int:
        """Take the number of a transaction that is about to write its commit record."""
        with self.changed:
            csn = self.csn_clock.draw()
            self.expect(csn, tables)
            return csn

    def expect(self, csn: int, tables: Iterable[Table]) -> None:
        """Know of a CSN that was drawn for a transaction whose commit record is yet to come."""
        with self.changed:
            self.known_csn = max(self.known_csn, csn + 1)
            self._committing[csn] = frozenset(table.oid for table in tables)

    def forget(self, csn: int) -> None:
        """Know that no commit record will come for a CSN."""
        with self.changed:
            self._committing.pop(csn, None)
            self.changed.notify_all()

    def expected(self) -> list[int]:
        """The CSNs that were drawn and whose commit records are yet to come, the least first."""
        with self.changed:
            return sorted(self._committing)

    def contents_at(self, table: Table, csn: int) -> dict[int, Values]:
        """The rows of a table after all transactions up to a CSN, by row id; columns as now."""
        with self.changed:
            rows: dict[int, dict[str, Value]] = {}
            for of in sorted(self.committed, key=lambda one: one.csn):
                for change in of.changes if of.csn <= csn else ():
                    if table.oid in {changed.oid for changed in change.tables}:
                        _replay(rows, change)
            return {
                row_id: tuple(row.get(column.name) for column in table.columns)
                for row_id, row in rows.items()
            }

    def seen(self, table: Table, csn: int) -> dict[int, Values]:
        """The rows that a snapshot sees, by row id; waits for who commits below its CSN.

        A table that was truncated since seems empty to it, as its new file is.
        """
        with self.changed:
            self.waiting += 1
            self.changed.wait_for(
                lambda: (
                    not any(
                        drawn < csn and table.oid in oids
                        for drawn, oids in self._committing.items()
                    )
                )
            )
            self.waiting -= 1
            if self.file_node(table.oid, csn) != self.file_node(table.oid):
                return {}
            rows: dict[int, dict[str, Value]] = {}
            for of in self.committed:
                for change in of.changes if of.csn < csn else ():
                    if table.oid in {changed.oid for changed in change.tables}:
                        _replay(rows, change)
            return {
                row_id: tuple(row.get(column.name) for column in table.columns)
                for row_id, row in rows.items()
            }

    def file_node(self, oid: int, csn: int | None = None) -> int:
        """The number of a table's file: at first its OID, another one after each TRUNCATE that is seen."""
        with self.changed:
            seen = [at for at in self._truncated.get(oid, ()) if csn is None or at < csn]
            return oid + 1_000_000 * len(seen) + 100_000_000 * self._rewrites[oid]

    def rewrite(self, table: Table) -> None:
        """Write a table into another file, as VACUUM FULL does: its WAL has no row."""
        with self.changed:
            transaction = self.begin()
            transaction.ddl()
            self.changed_by[table.oid] = transaction.xid
            self._emptied_at[table.oid] = self.wal_end
            self._rewrites[table.oid] += 1
            self.schema_version += 1
            transaction.commit()

    def is_in_file(self, change: Change) -> bool:
        """Whether a row is in the file that its table has now."""
        oid = change.table.oid
        return oid in self._rows and change.lsn > self._emptied_at.get(oid, 0)

    def _apply(self, change: Change) -> None:
        if change.is_speculative:
            return
        for table in change.tables:
            rows = self._rows[table.oid]
            if change.op == "T":
                rows.clear()
            elif change.new is None:
                del rows[change.row_id]
            else:
                rows[change.row_id] = change.new

    def commit_elsewhere(self) -> Committed:
        """Commit something in another database of the instance."""
        self.write(200)
        return self.commit((), is_elsewhere=True)


def _replay(rows: dict[int, dict[str, Value]], change: Change) -> None:
    if change.is_speculative:
        return
    if change.op == "T":
        rows.clear()
    elif change.new is None:
        rows.pop(change.row_id, None)
    else:
        rows[change.row_id] = change.table.row(change.new)


class Transaction:
    """One transaction that has not ended.

    Attributes:
        xid: of the top level.
        backend: the session that runs it; one that came with it goes with it.
        gid: once it is prepared.
        csn: once it is drawn.
    """

    def __init__(self, store: Store, user: str, origin: int, backend: Backend | None) -> None:
        self._store = store
        self._user = user
        self._origin = origin
        self._owns_backend = backend is None
        self.backend = backend or store.activity.connect(user)
        self.work("BEGIN")
        self.rest()
        self.xid = store.new_xid()
        self.gid: str | None = None
        self.csn: int | None = None
        self._subs: list[tuple[int, int]] = []  # xid of a savepoint, changes before it
        self._subxids: list[int] = []
        self._changes: list[Change] = []
        self._first_lsn: int | None = None
        self._ddl_lsn: int | None = None
        self._statements: list[Statement] = []

    # --- its session -------------------------------------------------------------------

    def work(self, query: str) -> None:
        """Let the session begin a statement, which runs until `rest`."""
        self.backend.run(query, self._store.activity.now_us())

    def rest(self) -> None:
        """Let the session wait for its client, inside the transaction."""
        self.backend.rest(is_in_transaction=True)

    def _leave(self) -> None:
        self.backend.rest(is_in_transaction=False)
        if self._owns_backend:
            self._store.activity.leave(self.backend)

    @property
    def tables(self) -> list[Table]:
        """The tables that it changed."""
        return [table for change in self._changes for table in change.tables]

    @property
    def changes(self) -> tuple[Change, ...]:
        """What it changed so far."""
        return tuple(self._changes)

    def _put(self, size: int) -> int:
        self.work("statement")
        self.backend.xid = self.xid
        lsn = self._store.write(size)
        if self._first_lsn is None and not self._subs:
            self._first_lsn = lsn
        self.rest()
        return lsn

    def _held(self, table: Table, row_id: int) -> Values:
        for change in reversed(self._changes):
            if change.row_id == row_id and change.new is not None:
                return change.new
        return self._store.contents(table)[row_id]

    def insert(
        self, table: Table, *rows: Mapping[str, Value], is_compressed: bool = False
    ) -> list[int]:
        """Insert rows; several of them share one WAL record, as COPY writes them."""
        made = [table.values(given) for given in rows]
        lsn = self._put(sum(len(value or "") for values in made for value in values) + 40)
        ids = [self._store.new_row_id() for _ in made]
        for row_id, values in zip(ids, made, strict=True):
            change = Change("I", lsn, (table,), values, None, row_id, is_compressed)
            self._changes.append(change)
        return ids

    def overtaken(self, table: Table, given: Mapping[str, Value]) -> None:
        """Insert a row ON DUPLICATE KEY that another session inserts first, and take it back.

        What the upsert does then, `update` or nothing, follows. In ustore nothing is logged of the end.
        """
        values = table.values(given)
        lsn = self._put(sum(len(value or "") for value in values) + 40)
        row_id = self._store.new_row_id()
        inserted = Change("I", lsn, (table,), values, None, row_id, is_speculative=True)
        self._changes.append(inserted)
        if not table.is_ustore:
            lsn = self._put(60)
            self._changes.append(dataclasses.replace(inserted, op="D", lsn=lsn, new=None))

    def update(self, table: Table, row_id: int, changes: Mapping[str, Value]) -> None:
        """Update one row."""
        old = self._held(table, row_id)
        new = table.values({**table.row(old), **changes})
        lsn = self._put(sum(len(value or "") for value in new) + 60)
        self._changes.append(Change("U", lsn, (table,), new, old, row_id))

    def delete(self, table: Table, row_id: int) -> None:
        """Delete one row."""
        old = self._held(table, row_id)
        self._changes.append(Change("D", self._put(60), (table,), None, old, row_id))

    def truncate(self, *tables: Table) -> None:
        """Truncate tables."""
        self._changes.append(Change("T", self._put(80), tables))

    def ddl(self, published: str = "") -> None:
        """Write to the catalogue: parallel decoding drops all rows that follow.

        Args:
            published: the statement, where a publication has `ddl`.
        """
        lsn = self._put(100)
        if self._ddl_lsn is None:
            self._ddl_lsn = lsn
        if published:
            self._statements.append(Statement(self._put(100), published.encode()))

    def savepoint(self) -> None:
        """Start a subtransaction; what follows belongs to its xid."""
        self._subs.append((self._store.new_xid(), len(self._changes)))

    def release(self) -> None:
        """Keep the newest subtransaction."""
        self._subxids.append(self._subs.pop()[0])

    def rollback_to_savepoint(self) -> None:
        """Forget the newest subtransaction."""
        del self._changes[self._subs.pop()[1] :]

    # --- its end -----------------------------------------------------------------------

    def draw_csn(self, query: str = "COMMIT") -> int:
        """Begin to commit: the commit record is yet to be written, by `commit`.

        Args:
            query: that the session runs meanwhile; a procedure or a single statement commits too.
        """
        self.expect(self._store.draw_csn(self.tables), query)
        assert self.csn is not None
        return self.csn

    def expect(self, csn: int, query: str = "COMMIT") -> None:
        """Have a CSN, which the store knows of; the session works on the commit unless prepared."""
        self.csn = csn
        if self.gid is None:
            self.backend.xid = self.xid
            self.work(query)

    def prepare(self, gid: str) -> None:
        """Prepare it: no session has it any more, and `commit` or `rollback` ends it by its gid."""
        while self._subs:
            self.release()
        self._store.write(120)
        activity = self._store.activity
        assert gid not in activity.prepared
        activity.prepared[gid] = Prepared(self.xid, gid, self._user, activity.now_us())
        self.gid = gid
        self._leave()

    def commit(self) -> Committed:
        """Commit, with every subtransaction that is open; write the commit record now."""
        while self._subs:
            self.release()
        done = self._store.commit(
            sorted(self._changes, key=lambda change: change.lsn),
            xid=self.xid,
            subxids=self._subxids,
            first_lsn=self._first_lsn,
            user=self._user,
            origin=self._origin,
            ddl_lsn=self._ddl_lsn,
            statements=self._statements,
            csn=self.csn,
        )
        self._end()
        return done

    def rollback(self) -> None:
        """Write an abort record; nothing of it will ever be sent."""
        self._store.write(40)
        self._changes.clear()
        if self.csn is not None:
            self._store.forget(self.csn)
        self._end()

    def _end(self) -> None:
        if self.gid is None:
            self._leave()
        else:
            del self._store.activity.prepared[self.gid]
