"""The SQL of a simulated openGauss that reads tables: transactions, snapshots by CSN, COPY.

A snapshot sees the transactions that drew a smaller CSN, whatever the order of their commit
records; `gaussstore.Store.seen` says which rows these make. Conditions and expressions run on
PostgreSQL; what is printed is printed as the simulated version does it.
"""

import itertools
import re
import struct
from typing import TYPE_CHECKING, Final

from kit.gausscommand import CommandError
from kit.gaussmessage import Result, message
from kit.gaussstore import Table, Values

if TYPE_CHECKING:
    from kit.gausssession import Session

_TEXT: Final = 25
_READ_COMMITTED: Final = "read committed"
_REPEATABLE_READ: Final = "repeatable read"
_BEGIN: Final = re.compile(
    r"(?:BEGIN|START TRANSACTION)(?:\s+TRANSACTION)?(\s+ISOLATION LEVEL REPEATABLE READ)?"
    r"(?:,?\s*READ ONLY)?",
    re.IGNORECASE,
)
_END: Final = re.compile(r"(COMMIT|ROLLBACK|END)", re.IGNORECASE)
_IMPORT: Final = re.compile(r"SET TRANSACTION SNAPSHOT '([0-9A-F-]+)'", re.IGNORECASE)
_ISOLATION: Final = re.compile(r"SHOW transaction_isolation", re.IGNORECASE)
_EXPORT: Final = re.compile(
    r"SELECT \* FROM pg_catalog\.pg_export_snapshot_and_csn\(\)", re.IGNORECASE
)
_XID: Final = re.compile(r"SELECT pg_catalog\.txid_current\(\)", re.IGNORECASE)
_UPDATE: Final = re.compile(r"UPDATE (\w+)\.(\w+) SET (\w+) = '([^']*)'", re.IGNORECASE)
_COPY: Final = re.compile(r"COPY \((SELECT .*)\) TO STDOUT", re.IGNORECASE | re.DOTALL)
_NAME: Final = r'"((?:[^"]|"")*)"'
_SELECT: Final = re.compile(
    rf"SELECT (.+?) FROM ONLY {_NAME}\.{_NAME}(?: WHERE (.*?))?( LIMIT 0)?",
    re.IGNORECASE | re.DOTALL,
)
_SUMMED: Final = re.compile(
    rf"SELECT (?:pg_catalog\.left\(k|k, h).*FROM ONLY {_NAME}\.{_NAME} OFFSET 0\) x OFFSET 0.*",
    re.DOTALL,
)
_CLASS: Final = re.compile(
    rf"SELECT '{_NAME}\.{_NAME}'::pg_catalog\.regclass::pg_catalog\.oid", re.IGNORECASE
)
_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)
# What PostgreSQL compares values as; types that it does not have are texts.
_COMPARED: Final = {
    16: "bool", 17: "bytea", 20: "int8", 21: "int2", 23: "int4", 26: "oid", 700: "float4",
    701: "float8", 1042: "bpchar", 1082: "date", 1114: "timestamp", 1184: "timestamptz",
    1700: "numeric", 2950: "uuid", 5545: "int2",
}  # fmt: skip
_SUMMED_AS: Final = {
    **_COMPARED,
    1007: "int4[]",
    1009: "text[]",
    1186: "interval",
    1231: "numeric[]",
}
_FLOATS: Final = {700: 6, 701: 15}
_NUMBERS: Final = itertools.count(1)


class Transactions:
    """The transaction of one session.

    Attributes:
        csn: of its snapshot, once it has one.
        is_open: a transaction block.
        is_failed: until ROLLBACK.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._exported: list[str] = []
        self._isolation = _READ_COMMITTED
        self._xid = 0
        self.csn: int | None = None
        self.is_open = False
        self.is_failed = False

    @property
    def status(self) -> bytes:
        """The letter of ReadyForQuery."""
        if self.is_failed:
            return b"E"
        return b"T" if self.is_open else b"I"

    def end(self, *, is_commit: bool = False) -> None:
        """End it; snapshots that it exported are gone."""
        store = self._session.server.store
        if self._xid and is_commit:
            store.commit((), xid=self._xid)
        elif self._xid:
            store.write(40)
        self._xid = 0
        for name in self._exported:
            self._session.server.snapshots.pop(name, None)
        self._exported.clear()
        self.csn, self.is_open, self.is_failed = None, False, False
        self._isolation = _READ_COMMITTED

    def execute(self, text: str) -> Result | None:
        """Run a statement that is about transactions; None for another one."""
        match = _BEGIN.fullmatch(text)
        if match:
            self.is_open = True
            self._isolation = _REPEATABLE_READ if match[1] else _READ_COMMITTED
            return Result([], [], "BEGIN")
        match = _END.fullmatch(text)
        if match:
            self.end(is_commit=match[1].upper() != "ROLLBACK" and not self.is_failed)
            return Result([], [], match[1].upper())
        if self.is_failed:
            raise CommandError("current transaction is aborted", "25P02")
        if _ISOLATION.fullmatch(text):
            return Result([("transaction_isolation", _TEXT)], [(self._isolation,)], "SHOW")
        match = _IMPORT.fullmatch(text)
        if match:
            return self._import(match[1])
        if self._isolation == _REPEATABLE_READ and self.csn is None:
            self.csn = self._session.server.store.next_csn
        if _EXPORT.fullmatch(text):
            return self._export()
        if _XID.fullmatch(text):
            return self._take_xid()
        return None

    def _import(self, name: str) -> Result:
        if self.csn is not None or self._isolation != _REPEATABLE_READ:
            raise CommandError("SET TRANSACTION SNAPSHOT must be called before any query", "25001")
        csn = self._session.server.snapshots.get(name)
        if csn is None:
            raise CommandError(f'invalid snapshot identifier: "{name}"', "22023")
        self.csn = csn
        return Result([], [], "SET")

    def _export(self) -> Result:
        csn = self._session.server.store.next_csn if self.csn is None else self.csn
        name = f"{next(_NUMBERS):08X}-00000001-1"
        self._session.server.snapshots[name] = csn
        self._exported.append(name)
        columns = [("snapshot", _TEXT), ("csn", _TEXT)]
        return Result(columns, [(name, f"{csn & 0xFFFFFFFF:X}")], "SELECT 1")  # %X of 64 bits

    def _take_xid(self) -> Result:
        store = self._session.server.store
        xid = self._xid or (store.new_xid() if self.is_open else store.commit(()).xid)
        if self.is_open:
            self._xid = xid
            if self._session.backend is not None:
                self._session.backend.xid = xid
        return Result([("txid_current", 20)], [(str(xid),)], "SELECT 1")


def execute(session: "Session", text: str) -> Result | bytes | None:
    """Run a statement on a table of the user's; None for another one.

    Returns:
        Rows, or the messages of a COPY.
    """
    match = _CLASS.fullmatch(text)
    if match:
        table = _table(session, match[1], match[2])
        return Result([("oid", 26)], [(str(table.oid),)], "SELECT 1")
    match = _UPDATE.fullmatch(text)
    if match:
        table = _table(session, match[1], match[2])
        transaction = session.server.store.begin()
        for row_id in session.server.store.contents(table):
            transaction.update(table, row_id, {match[3]: match[4]})
        transaction.commit()
        return Result([], [], "UPDATE 1")
    match = _COPY.fullmatch(text)
    if match:
        rows = _select(session, match[1])
        if rows is None:
            raise CommandError("the simulator does not know this query", "0A000")
        return _copied(rows)
    found = _summed(session, text) if _SUMMED.fullmatch(text) else _select(session, text)
    if found is None:
        return None
    width = len(found[0]) if found else 1
    columns = [(f"c{number}", _TEXT) for number in range(width)]
    return Result(columns, found, f"SELECT {len(found)}")


def _copied(rows: list[tuple[str | None, ...]]) -> bytes:
    width = len(rows[0]) if rows else 1
    out = [message(b"H", struct.pack(">bh", 0, width) + bytes(2 * width))]
    for row in rows:
        fields = ("\\N" if value is None else value.translate(_ESCAPES) for value in row)
        out.append(message(b"d", ("\t".join(fields) + "\n").encode()))
    return b"".join(out) + message(b"c") + message(b"C", f"COPY {len(rows)}".encode() + b"\0")


def _table(session: "Session", schema: str, name: str) -> Table:
    where = (schema.replace('""', '"'), name.replace('""', '"'))
    with session.server.store.changed:
        table = session.server.store.tables.get(where)
    if table is None:
        raise CommandError(f'relation "{".".join(where)}" does not exist', "42P01")
    return table


def _select(session: "Session", text: str) -> list[tuple[str | None, ...]] | None:
    match = _SELECT.fullmatch(text)
    if match is None:
        return None
    wanted, schema, name, condition, limit = match.groups()
    server = session.server
    table = _table(session, schema, name)
    if (table.schema, table.name) in server.forbidden:
        raise CommandError(f"permission denied for relation {table.name}", "42501")
    if limit:
        return []
    csn = session.transactions.csn
    store = server.store
    rows = store.contents(table) if csn is None else store.seen(table, csn)
    columns = {c.name: _COMPARED.get(c.type_oid, "text") for c in table.columns}
    printed = [_printed(session, table, values) for values in rows.values()]
    assert server.catalogue is not None
    try:
        return server.catalogue.select(columns, printed, wanted, condition)
    except LookupError as error:
        raise CommandError(str(error.args[0]), "42703") from None


def _summed(session: "Session", text: str) -> list[tuple[str | None, ...]]:
    """Checksums over the typed values of a table; what PostgreSQL has no type for is printed."""
    match = _SUMMED.fullmatch(text)
    assert match is not None
    server, csn = session.server, session.transactions.csn
    table = _table(session, match[1], match[2])
    assert csn is not None
    columns = {c.name: _SUMMED_AS.get(c.type_oid, "text") for c in table.columns}
    rows = [
        [value[columns[c.name] == "text"] for c, value in zip(table.columns, row, strict=True)]
        for row in (_printed(session, table, v) for v in server.store.seen(table, csn).values())
    ]
    assert server.catalogue is not None
    where = f'ONLY "{match[1]}"."{match[2]}" OFFSET'
    return server.catalogue.summed(columns, rows, text.replace(where, "gs_typed OFFSET"))


def _printed(
    session: "Session", table: Table, values: Values
) -> list[tuple[str | None, str | None]]:
    """A row as PostgreSQL prints it, and as this server does in this session."""
    printer, codec = session.server.printer(), session.server.codec
    row: list[tuple[str | None, str | None]] = []
    for column, value in zip(table.columns, values, strict=True):
        shown = printer.print(column.type_oid, value)
        digits = _FLOATS.get(column.type_oid)
        if digits and shown is not None and session.settings["extra_float_digits"] != "3":
            shown = f"{float(shown):.{digits}g}".encode()
        try:
            plain = value.decode(codec) if isinstance(value, bytes) else value
            row.append((plain, None if shown is None else shown.decode(codec)))
        except UnicodeDecodeError:
            raise CommandError("invalid byte sequence for encoding", "22021") from None
    return row
