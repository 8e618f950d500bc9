"""A second opinion: changes of a real PostgreSQL, sent as GaussDB streams.

Reads a pgoutput slot through SQL with a parser of its own and commits what it finds in the
simulated server's store: the same rows, xids, users' types and commit times. What PostgreSQL
leaves out and openGauss sends (values stored out of line that did not change, keys that did
not change) is filled in from the rows seen before.
"""

import struct
from collections.abc import Iterator
from typing import Final

from kit.gaussstore import Change, Store, StoredColumn, Table, Values
from kit.oracle import OUTPUT_SETTINGS
from kit.postgres import Database, Session, run
from kit.workload import Workload

_UNCHANGED: Final = object()
Cells = tuple[object, ...]


class _Reader:
    """A cursor in one pgoutput message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 1

    def number(self, width: int) -> int:
        """Take an unsigned number."""
        self._at += width
        return int.from_bytes(self._data[self._at - width : self._at])

    def signed(self) -> int:
        """Take a signed number of 64 bits."""
        self._at += 8
        found: int = struct.unpack_from(">q", self._data, self._at - 8)[0]
        return found

    def name(self) -> str:
        """Take a text that ends with a zero."""
        end = self._data.index(0, self._at)
        text = self._data[self._at : end].decode()
        self._at = end + 1
        return text

    def letter(self) -> str:
        """Take one byte."""
        self._at += 1
        return chr(self._data[self._at - 1])

    def cells(self) -> Cells:
        """Take a tuple: texts, None or `_UNCHANGED`."""
        found: list[object] = []
        for _ in range(self.number(2)):
            kind = self.letter()
            if kind == "t":
                size = self.number(4)
                found.append(self._data[self._at : self._at + size].decode())
                self._at += size
            else:
                found.append(None if kind == "n" else _UNCHANGED)
        return tuple(found)


class Bridge:
    """Carries changes from a database to a store.

    Args:
        database: its slot must have the plug-in pgoutput.
        store: of the simulated server; gets the tables too.
        slot: the database's own by default.

    Attributes:
        transactions: how many were carried.
    """

    def __init__(self, database: Database, store: Store, slot: str | None = None) -> None:
        self._database = database
        self._slot = slot or database.slot
        self._store = store
        self._tables: dict[int, Table] = {}
        self._rows: dict[tuple[int, Values], Values] = {}
        self._names: dict[int, str] = {}
        self.transactions = 0

    def pump(self) -> int:
        """Carry all that the slot has; give the number of transactions."""
        before = self.transactions
        with self._database.connect() as session:
            session.execute(OUTPUT_SETTINGS)
            messages = run(
                session,
                "SELECT data FROM pg_logical_slot_get_binary_changes("
                f"'{self._slot}', NULL, NULL, 'proto_version', '1', "
                f"'publication_names', '{self._database.publication}')",
            )
            self._carry(session, (bytes(data) for (data,) in messages))
        return self.transactions - before

    def _carry(self, session: Session, messages: Iterator[bytes]) -> None:
        changes: list[Change] = []
        xid = time = 0
        for data in messages:
            reader, kind = _Reader(data), chr(data[0])
            if kind == "B":
                reader.number(8)
                time, xid = reader.signed(), reader.number(4)
                changes = []
            elif kind == "R":
                self._describe(session, reader)
            elif kind in "IUD":
                changes.append(self._row(kind, reader))
            elif kind == "C":
                self.transactions += 1
                first = changes[0].lsn if changes else None
                self._store.commit(
                    changes, xid=xid, commit_time_us=time, first_lsn=first, is_applied=False
                )
            else:
                assert kind in "YO", f"GaussDB has nothing like a message {kind!r}"

    def _type_name(self, session: Session, oid: int) -> str:
        if oid not in self._names:
            ((name,),) = run(session, f"SELECT format_type({oid}, NULL)")
            self._names[oid] = name
        return self._names[oid]

    def _describe(self, session: Session, reader: _Reader) -> None:
        oid, schema, name, identity = (
            reader.number(4),
            reader.name(),
            reader.name(),
            reader.letter(),
        )
        columns: list[StoredColumn] = []
        keys: list[str] = []
        for number in range(1, reader.number(2) + 1):
            flags, column = reader.number(1), reader.name()
            type_oid = reader.number(4)
            modifier = struct.unpack(">i", reader.number(4).to_bytes(4))[0]
            columns.append(
                StoredColumn(column, type_oid, modifier, self._type_name(session, type_oid), number)
            )
            if flags & 1:
                keys.append(column)
        primary = tuple(
            row[0]
            for row in run(
                session,
                "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL "
                "unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place) "
                "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
                f"WHERE i.indrelid = {oid} AND i.indisprimary ORDER BY k.place",
            )
        )
        index_key = tuple(keys) if identity == "i" else ()
        table = Table(oid, schema, name, tuple(columns), primary, identity, index_key)
        self._tables[oid] = table
        self._store.put_table(table)

    def _row(self, kind: str, reader: _Reader) -> Change:
        table = self._tables[reader.number(4)]
        tuples: dict[str, Cells] = {}
        letter = reader.letter()
        if letter in "KO":
            tuples[letter] = reader.cells()
            letter = reader.letter() if kind == "U" else ""
        if letter == "N":
            tuples["N"] = reader.cells()
        old = tuples.get("O") or tuples.get("K")
        new = tuples.get("N")
        if kind == "U" and old is None and new is not None:
            old = new  # the key did not change; openGauss sends it all the same
        known = self._rows.get((table.oid, self._key(table, old))) if old is not None else None
        if new is not None:
            filled = ("O" in tuples and tuples["O"]) or known
            new = tuple(
                filled[i] if cell is _UNCHANGED and filled else cell for i, cell in enumerate(new)
            )
            assert _UNCHANGED not in new, f"{table.schema}.{table.name}: a value was never seen"
        self._remember(table, old, new)
        lsn = self._store.write(100)
        return Change(kind, lsn, (table,), _values(new), None if kind == "I" else _values(old))

    @staticmethod
    def _key(table: Table, cells: Cells) -> Values:
        names = table.identity_names
        return tuple(
            cell if isinstance(cell, str) else None
            for column, cell in zip(table.columns, cells, strict=True)
            if column.name in names
        )

    def _remember(self, table: Table, old: Cells | None, new: Cells | None) -> None:
        if not table.identity_names:
            return
        if old is not None:
            self._rows.pop((table.oid, self._key(table, old)), None)
        values = _values(new)
        if new is not None and values is not None:
            self._rows[table.oid, self._key(table, new)] = values


def _values(cells: Cells | None) -> Values | None:
    """Texts and NULLs; what pgoutput did not send of an old row is not looked at."""
    if cells is None:
        return None
    return tuple(cell if isinstance(cell, str) else None for cell in cells)


# Steps of the workload whose traces a parallel stream of openGauss does not have.
_ABSENT_STEPS: Final = frozenset(("_truncate", "_change_shape", "_message"))


def leave_out_ddl(workload: Workload) -> None:
    """Let a workload do only what openGauss's parallel decoding can show."""
    for worker in workload.workers:
        worker._steps = [step for step in worker._steps if step[1].__name__ not in _ABSENT_STEPS]
