"""What the decoder threads of a simulated openGauss make of a committed transaction."""

import dataclasses
from collections.abc import Iterator, Sequence

from kit.gaussstore import Change, Committed, Table, Values
from kit.gausstypes import Printer
from kit.gausswire import Column, Fields, Row, Statement, Truncate
from kit.gausswire import Transaction as WireTransaction


@dataclasses.dataclass(frozen=True, slots=True)
class WhiteList:
    """The parsed ``white-table-list``: pairs of names, None for a star."""

    items: tuple[tuple[str | None, str | None], ...] = ()

    def admits(self, table: Table) -> bool:
        """Whether rows of a table are sent."""
        if not self.items:
            return True
        return any(
            schema in (None, table.schema) and name in (None, table.name)
            for schema, name in self.items
        )


class Decoder:
    """Renders committed transactions as the server's decoder threads do."""

    def __init__(
        self,
        printer: Printer,
        tables: WhiteList,
        *,
        is_parallel: bool,
        skips_generated: bool = False,
        sends_ddl: bool = False,
    ) -> None:
        self._printer = printer
        self._white_list = tables
        self._is_parallel = is_parallel
        self._skips_generated = skips_generated
        self._sends_ddl = sends_ddl

    def transaction(self, of: Committed, *, is_empty: bool = False) -> WireTransaction:
        """Render one transaction; rows after DDL are lost in parallel mode, and in old serial."""
        return WireTransaction(
            of.xid, of.csn, of.first_lsn, of.commit_lsn, of.end_lsn, of.commit_time_us,
            iter(()) if is_empty else self._changes(of), of.origin, of.user.encode(self._printer.encoding),
        )  # fmt: skip

    def _changes(self, of: Committed) -> Iterator[Row | Truncate | Statement]:
        shows_ddl = self._sends_ddl or (not self._is_parallel and self._printer.profile.sends_ddl)
        statements = list(of.statements) if shows_ddl else []
        for change in self._kept(of):
            while statements and statements[0].lsn < change.lsn:
                yield statements.pop(0)
            yield change
        yield from statements

    def _kept(self, of: Committed) -> Iterator[Row | Truncate]:
        """What decoding does not drop."""
        for change in of.changes:
            is_lost = of.ddl_lsn is not None and change.lsn > of.ddl_lsn and not self._sends_ddl
            if is_lost and (self._is_parallel or self._printer.profile.serial_drops):
                return
            if change.is_speculative and not change.table.is_ustore and self._leaves_out():
                continue
            yield self._truncate(change) if change.op == "T" else self.row(change)

    def _leaves_out(self) -> bool:
        return not self._is_parallel and self._printer.profile.leaves_out_speculative

    def _name(self, text: str) -> bytes:
        return text.encode(self._printer.encoding)

    def _truncate(self, change: Change) -> Truncate:
        names = [(self._name(table.schema), self._name(table.name)) for table in change.tables]
        return Truncate(change.lsn, names)

    def row(self, change: Change) -> Row:
        """Render one change of a row."""
        table = change.table
        old: Fields | None = None
        names = table.identity_names
        if change.old is not None and names:
            old = self._fields(table, change.old, names, is_old=True)
        new: Fields | None = None
        if change.new is not None:
            names = tuple(
                column.name
                for column in table.columns
                if not (self._skips_generated and column.is_generated) and not change.is_compressed
            )
            new = self._fields(table, change.new, names, is_old=False)
        return Row(
            change.op, change.lsn, self._name(table.schema), self._name(table.name), new, old,
            is_hidden=not self._white_list.admits(table),
        )  # fmt: skip

    def _fields(
        self, table: Table, values: Values, names: Sequence[str], *, is_old: bool
    ) -> Fields:
        skips_nulls = is_old and not self._printer.profile.sends_null_old
        return [
            (
                Column(self._name(column.name), column.type_oid, column.type_name),
                self._printer.print(column.type_oid, value),
            )
            for column, value in zip(table.columns, values, strict=True)
            if column.name in names and not (skips_nulls and value is None)
        ]
