"""Seeded histories that land in the order of CSNs, of one source or of several.

Each transaction has a CSN above the one before and an end of its commit record that need not be:
inside an entry the two orders differ. A key lives on one source.
"""

import copy
import dataclasses
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from gaussdecode.model.landing import EntryKind, LandingFile
from kit.history import History, LandingWriter, Place, Row, Table, runs, shop, state_of

SOURCES: Final = ("dn1", "dn2", "dn3")


class CsnHistory(History):
    """A source with a seeded life, and its landing in the order of CSNs.

    Attributes:
        csn: of the newest transaction.
        csns: of all transactions.
    """

    def __init__(self, root: Path, seed: int, *, with_schema_changes: bool = True) -> None:
        super().__init__(root, seed, with_schema_changes=with_schema_changes, tables=shop())
        self.csn = 100
        self.low = self.lsn
        self.csns: list[int] = []
        self.mark = self.csn

    def make_writer(self, root: Path) -> LandingWriter:
        """Of a landing in the order of CSNs."""
        return LandingWriter(root, order="csn")

    def place(self, seq: int) -> Place:
        """A place in the last transaction."""
        return (self.writer.epoch, self.csn, seq)

    def step(self) -> None:
        """One data entry of a few transactions, and now and then an idle one after it."""
        count = self.rng.randint(1, 5)
        begun = self.csn
        for lsn in self.rng.sample(range(self.low + 1, self.low + 100), count):
            self.transaction_at(lsn)
        held = {"csns": {"least": self.csns[-count], "greatest": self.csn}}
        self.low += 100
        self.mark = self.csn + self.rng.randint(0, 3)
        self.commit_with(held)
        self.csn = self.mark
        assert begun < self.csns[-count]
        if self.rng.random() < 0.2:
            self.mark = self.csn = self.csn + 2
            self.writer.entry(EntryKind.IDLE, self.low, csn=self.mark)

    def transaction_at(self, lsn: int) -> None:
        """Change a few rows, with the next CSN."""
        self.csn += self.rng.randint(1, 4)
        self.csns.append(self.csn)
        self.transaction()
        for rows in self.landed.values():
            for _, _, row in rows:
                if row["gd_csn"] is None:
                    row["gd_csn"], row["gd_lsn"] = self.csn, lsn

    def commit_with(self, extra: dict[str, Any]) -> int:  # Any: JSON
        """Publish what waits."""
        files = self.files()
        return self.writer.entry(
            EntryKind.DATA, self.low, files, self.time, extra=extra, csn=self.mark
        )


class SharedHistory(CsnHistory):
    """Rows spread over several sources by their keys, each with a log of its own.

    A table has on each source another OID, other numbers of columns and another order of them; a TRUNCATE
    empties it on some sources. It may be made anew on one of them.

    Args:
        root: of the landing.
        seed: of all that is random.
        order: of the landing.
        shows_ddl: a row changes on each source in the transaction of an ALTER TABLE; else the stream of some
            shows it later, or never.
    """

    def __init__(
        self, root: Path, seed: int, *, order: str = "csn", shows_ddl: bool = True
    ) -> None:
        self.order = order
        self.shows_ddl = shows_ddl
        self.records: dict[str, dict[str, dict[str, Any]]] = {source: {} for source in SOURCES}
        self.seqs: dict[tuple[int, str], int] = {}
        self.anew = dict.fromkeys(SOURCES, 0)
        super().__init__(root, seed)

    def make_writer(self, root: Path) -> LandingWriter:
        """Of a landing of several sources."""
        return LandingWriter(root, order=self.order, sources=SOURCES)

    def source_of(self, table: Table, row: Row) -> str:
        """Where a row lives: by its key, or by all of it."""
        values = table.key_of(row) if table.key else sorted(row.items())
        return SOURCES[zlib.crc32(repr(values).encode()) % len(SOURCES)]

    def changes(self, table: Table) -> list[tuple[str, Row | None, Row | None, list[str]]]:
        """Do something to a table; a TRUNCATE on some of its sources alone."""
        before = copy.copy(table.rows)
        found = super().changes(table)
        self.emptied = [s for s in SOURCES if self.rng.random() < 0.6] or [SOURCES[0]]
        if found and found[0][0] == "T":
            if isinstance(before, dict):
                kept = {k: r for k, r in before.items() if not self._is_gone(table, r)}
                table.rows = kept
            else:
                table.rows = [row for row in before if not self._is_gone(table, row)]
        return found

    def _is_gone(self, table: Table, row: Row) -> bool:
        return self.source_of(table, row) in self.emptied

    def land(self, table: Table, seq: int, op: str, new: Row | None, old: Row | None,
             unsent: list[str]) -> None:  # fmt: skip
        """Keep rows for the next entry; a row that moves is removed on one source and put on another."""
        if op == "T":
            for source in self.emptied:
                self._land_on(source, table, op, None, None, [])
            return
        whole = new
        if new is not None and isinstance(table.rows, dict) and op == "U":
            whole = table.rows[table.key_of(new)]
        there = None if whole is None else self.source_of(table, whole)
        before = None if old is None else self.source_of(table, old)
        if op == "U" and before is not None and before != there:
            assert there is not None
            self._land_on(before, table, "D", None, old, [])
            self._land_on(there, table, "I", whole, None, [])
            return
        place = there or before
        assert place is not None
        self._land_on(place, table, op, new, old, unsent)

    def _land_on(self, source: str, table: Table, op: str, new: Row | None, old: Row | None,
                 unsent: list[str]) -> None:  # fmt: skip
        at = (self.csn, source)
        seq = self.seqs.get(at, 0)
        self.seqs[at] = seq + 1
        number = SOURCES.index(source)
        there = copy.copy(table)
        there.oid = 1000 * (1 + number) + len(table.name) + self.anew[source]
        there.source, there.shift = source, 5 * number + self.anew[source]
        there.columns = table.columns[number:] + table.columns[:number]
        self.writer.records = self.records[source]
        super().land(there, seq, op, new, old, unsent)
        self.landed[table.directory][-1][2]["gd_source"] = source

    def alter(self, table: Table) -> None:
        """The same DDL on all sources."""
        super().alter(table)
        for source in SOURCES if self.shows_ddl else ():
            row = next(
                row for row in self._rows_beside(table) if self.source_of(table, row) == source
            )
            self._land_on(source, table, "I", row, None, [])
            self._land_on(source, table, "D", None, self.old_row(table, row), [])
        self.states[table.name][self.place(-1)] = state_of(table)

    def _rows_beside(self, table: Table) -> Iterator[Row]:
        """Rows with keys that no other row ever has."""
        (key,) = table.key
        for value in itertools.count(self.keys):
            yield {**{c.number: self.value(c) for c in table.columns}, key: value}

    def make_anew(self, source: str) -> None:
        """DROP and CREATE all tables on one source: their rows there are gone."""
        self.anew[source] += 1
        for table in self.tables:
            held = table.rows.values() if isinstance(table.rows, dict) else table.rows
            left = [row for row in held if self.source_of(table, row) != source]
            table.rows = {table.key_of(row): row for row in left} if table.key else left

    def suspect_on(self, source: str, table: Table) -> int:
        """Say of one source that it changed rows of a table without a change in the stream."""
        extra = {
            "reason": "table_changed", "text": "something happened", "tables": [table.directory],
            "is_any_table": False, "source": source, "changes": {},
        }  # fmt: skip
        return self.writer.entry(EntryKind.SUSPECT, self.low, extra=extra, csn=self.mark)

    def snapshot_on(self, source: str, table: Table) -> None:
        """Land all rows that a table has on one source; there are some."""
        since = self.writer.n - 1
        self.csn += 1
        self.mark = self.csn
        held = table.rows.values() if isinstance(table.rows, dict) else table.rows
        for row in [row for row in held if self.source_of(table, row) == source]:
            self._land_on(source, table, "R", row, None, [])
        for _, _, landed in self.landed[table.directory]:
            landed["gd_csn"] = self.csn
            landed["gd_lsn"] = 100 * self.csn + 10 * SOURCES.index(source)
        files = self.files()
        said = {"where": None, "rows": files[0].rows, "since_n": since}
        tables = {table.directory: said}
        extra = {"snapshot": {"epoch": 0, "lsn": self.low, "tables": tables}, "source": source}
        self.writer.entry(EntryKind.SNAPSHOT, self.low, files, extra=extra, csn=self.mark)

    def transaction_at(self, lsn: int) -> None:
        """Change a few rows; each source has its own end of the commit record."""
        if self.order == "lsn":
            lsn = 100 * self.csn  # rises as the CSNs do
        super().transaction_at(lsn)
        for rows in self.landed.values():
            for _, _, row in rows:
                if row["gd_csn"] == self.csn:
                    row["gd_lsn"] = lsn + 10 * SOURCES.index(row["gd_source"])

    def files(self) -> list[LandingFile]:
        """Write what waits, each file of one source."""
        files: list[LandingFile] = []
        for directory, every in self.landed.items():
            for source in SOURCES:
                rows = [one for one in every if one[2]["gd_source"] == source]
                for schema_id, schema, part in runs(rows):
                    at = schema.get_field_index("gd_epoch") + 1
                    wide = schema.insert(at, pa.field("gd_source", pa.string(), nullable=False))
                    content = pa.Table.from_pylist(part, schema=wide)
                    file = self.writer.file(directory, schema_id, content, len(files))
                    files.append(dataclasses.replace(file, source=source))
        self.landed = {}
        return files
