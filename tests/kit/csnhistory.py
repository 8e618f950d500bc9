"""Seeded histories that land in the order of CSNs, of one source or of several.

Each transaction has a CSN above the one before and an end of its commit record that need not be:
inside an entry the two orders differ. A key lives on one source.
"""

from pathlib import Path
from typing import Any

from gaussdecode.model.landing import EntryKind
from kit.history import History, LandingWriter, Place, shop


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
