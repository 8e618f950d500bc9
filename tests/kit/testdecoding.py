"""Reads the output of `test_decoding`, the server's own plain-text output plug-in.

A slot with it over the same WAL tells, independently of pgoutput and of us, which rows
changed in which order.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final

from kit.postgres import Database, run

OPERATIONS: Final = {"INSERT": "I", "UPDATE": "U", "DELETE": "D", "TRUNCATE": "T"}
UNCHANGED: Final = "unchanged-toast-datum"
Tuple = dict[str, str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class PlainChange:
    """One change as test_decoding prints it.

    Attributes:
        xid: of the transaction.
        op: I, U, D or T.
        table: (schema, name).
        old: key or whole old row; None when not printed.
        new: new row, None for D and T.
        unchanged: columns of the new row that were not sent.
    """

    xid: int
    op: str
    table: tuple[str, str]
    old: Tuple | None
    new: Tuple | None
    unchanged: frozenset[str]


def take(database: Database, slot: str, settings: str) -> Iterator[PlainChange]:
    """Take all changes of a slot.

    Args:
        database: of the slot.
        slot: with the plug-in test_decoding.
        settings: statements that say how values are printed.
    """
    with database.connect() as session:
        session.execute(settings)
        rows = run(
            session,
            f"SELECT xid::text, data FROM pg_logical_slot_get_changes('{slot}', NULL, NULL)",
        )
    for xid, data in rows:
        if data.startswith("table "):
            yield from _changes(int(xid), data)


def _changes(xid: int, line: str) -> Iterator[PlainChange]:
    reader = _Reader(line, len("table "))
    tables = [reader.table()]
    while reader.skip(", "):
        tables.append(reader.table())
    reader.need(": ")
    op = OPERATIONS[reader.until(":")]
    reader.need(":")
    old: Tuple | None = None
    new: Tuple | None = None
    unchanged: set[str] = set()
    if op in "IU":
        if reader.skip(" old-key:"):
            old, _ = reader.row()
            reader.need(" new-tuple:")
        new, unchanged = reader.row()
    elif op == "D":
        old = None if reader.skip(" (no-tuple-data)") else reader.row()[0]
    for table in tables:
        yield PlainChange(xid, op, table, old, new, frozenset(unchanged))


class _Reader:
    """A cursor in one line."""

    def __init__(self, line: str, start: int) -> None:
        self._line = line
        self._at = start

    def skip(self, text: str) -> bool:
        """Step over a text if it stands here."""
        if not self._line.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def need(self, text: str) -> None:
        """Step over a text that must stand here."""
        assert self.skip(text), f"expected {text!r} at {self._line[self._at : self._at + 60]!r}"

    def until(self, stop: str) -> str:
        """Take what stands before the next `stop`."""
        end = self._line.index(stop, self._at)
        text = self._line[self._at : end]
        self._at = end
        return text

    def quoted(self, mark: str) -> str:
        """Take a quoted text with doubled marks."""
        self.need(mark)
        parts: list[str] = []
        while True:
            parts.append(self.until(mark))
            self.need(mark)
            if not self.skip(mark):
                return "".join(parts)
            parts.append(mark)

    def identifier(self, stops: str) -> str:
        """Take a name, quoted or up to one of `stops`."""
        if self._line[self._at] == '"':
            return self.quoted('"')
        end = min(i for s in stops if (i := self._line.find(s, self._at)) >= 0)
        text = self._line[self._at : end]
        self._at = end
        return text

    def table(self) -> tuple[str, str]:
        """Take ``schema.name``."""
        schema = self.identifier(".")
        self.need(".")
        return schema, self.identifier(":,")

    def row(self) -> tuple[Tuple, set[str]]:
        """Take columns up to the end of the line or the new tuple."""
        values: Tuple = {}
        unchanged: set[str] = set()
        while self._at < len(self._line) and not self._line.startswith(" new-tuple:", self._at):
            if self.skip(" (no-tuple-data)"):
                break
            self.need(" ")
            name = self.identifier("[")
            self._type()
            if self.skip(UNCHANGED):
                unchanged.add(name)
            else:
                values[name] = self._value()
        return values, unchanged

    def _type(self) -> None:
        """Step over ``[type]:``; a type may be an array and may be quoted."""
        self.need("[")
        while not self.skip("]:"):
            if self._line[self._at] == '"':
                self.quoted('"')
            else:
                self._at += 1

    def _value(self) -> str | None:
        if self._line[self._at] == "'":
            return self.quoted("'")
        if self.skip("B"):
            return self.quoted("'")
        end = self._line.find(" ", self._at)
        text = self._line[self._at : end if end >= 0 else len(self._line)]
        self._at += len(text)
        return None if text == "null" else text
