"""The bytes that an openGauss walsender sends, made the way the server makes them.

Written from the server's side: records of the parallel styles (binary, text, JSON), the
texts of the serial plug-ins, the buffer that joins them into CopyData bodies, and the
control messages. Nothing here is shared with the code that reads these bytes.

One record of the binary style (integers big-endian)::

    u32 length of what follows up to the separator | u64 lsn | B C I U D | body | P or F
    BEGIN   u64 csn | u64 first_lsn | X u64 xid | T u32 n text | N u32 n user | O u32 origin
    COMMIT  X u64 xid | T u32 n text
    row     u16 n schema | u16 n table | N tuple | O tuple
    tuple   u16 count, then each: u16 n name | u32 type OID | u32 n value (all ones: NULL)
"""

import dataclasses
import datetime as dt
import functools
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kit.gaussprofile import V6_0_0, Profile

HEADER_BYTES: Final = 25
BATCH_BYTES: Final = 1_048_576
NULL: Final = 0xFFFFFFFF
EPOCH_2000_US: Final = 946_684_800_000_000

_BARE: Final = frozenset((5545, 21, 23, 20, 26, 700, 701, 1700))  # int1 2 4 8 oid float4 8 numeric
_BITS: Final = frozenset((1560, 1562))
_BOOL: Final = 16
_PLAIN_FIRST: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz_")
_PLAIN: Final = _PLAIN_FIRST | frozenset(b"0123456789")
# Every keyword of the grammar that is not UNRESERVED there.
_KEYWORDS: Final = frozenset(
    b"""
    all analyse analyze and any array as asc asymmetric authid authorization between bigint binary
    binary_double binary_integer bit blob_double boolean both bucketcnt buckets byteawithoutorder
    case cast char character check coalesce collate collation column compact concurrently
    constraint create cross csn current_catalog current_date current_role current_schema
    current_time current_timestamp current_user date datetime dec decimal decode default deferrable
    delta desc distinct do else end except excluded exists extract false fenced fetch float for
    foreign freeze from full function grant greatest group grouping_p having hdfsdirectory ilike
    in inline inner inout int integer intersect interval into is isnull join leading least left
    less like limit localtime localtimestamp maxvalue minus modify_p national natural nchar nlssort
    none not notnull null nullif number numeric nvarchar nvarchar2 nvl off offset on only or order
    out outer over overlaps overlay performance placing position precision prior priorer procedure
    real recyclebin references reject_p returning right row rownum select session_user setof
    similar smalldatetime smallint some split_partition substring symmetric sysdate table tinyint
    tablesample then time timecapsule timestamp timestampdiff to trailing treat trim true union
    unique user using values varchar varchar2 variadic verbose verify when where window with
    xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlparse xmlpi xmlroot xmlserialize
    """.split()
)


class Column(NamedTuple):
    """A column as a row names it: its name, its type's OID and ``format_type_be``."""

    name: bytes
    type_oid: int
    type_name: str


Fields = Sequence[tuple[Column, bytes | None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One decoded change of a row.

    Attributes:
        op: I, U or D.
        lsn: start of its WAL record.
        schema: true name, in the database's encoding.
        table: true name.
        new: values, None when there is no new tuple.
        old: values that were logged of the old row, or None.
        is_hidden: the white list filters it.
    """

    op: str
    lsn: int
    schema: bytes
    table: bytes
    new: Fields | None
    old: Fields | None
    is_hidden: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Truncate:
    """A TRUNCATE; only serial mppdb_decoding of newer servers shows it."""

    lsn: int
    tables: Sequence[tuple[bytes, bytes]]
    restarts: bool = False
    cascades: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """A DDL statement; the serial plug-ins of newer servers show it, and GaussDB where it is asked for."""

    lsn: int
    sql: bytes
    relid: int = 0

    @property
    def tree(self) -> bytes:
        """What a trigger made of it, in JSON."""
        return json.dumps({"fmt": self.sql.decode()}).encode()


@dataclasses.dataclass(frozen=True, slots=True)
class Transaction:
    """One committed transaction, as the sender holds it.

    Attributes:
        xid: 64 bits.
        csn: of the commit record.
        first_lsn: first item queued for the top-level xid.
        commit_lsn: where the commit record starts.
        end_lsn: where it ends.
        commit_time_us: since 2000-01-01 UTC.
        origin: replication origin, 0 for local.
        user: who ran it.
        changes: in the order of the WAL.
    """

    xid: int
    csn: int
    first_lsn: int
    commit_lsn: int
    end_lsn: int
    commit_time_us: int
    changes: Iterable[Row | Truncate | Statement]
    origin: int = 0
    user: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """Which optional parts the client asked for.

    Attributes:
        time_zone: offset in minutes in which commit times are printed.
        ddl: key of DDL statements, ``TDDL`` or ``JDDL``; None for none.
    """

    xids: bool = True
    timestamp: bool = False
    originid: bool = False
    user: bool = False
    skip_empty: bool = False
    time_zone: int = 0
    ddl: str | None = None

    def statement(self, of: Statement) -> bytes:
        """Print a DDL statement as GaussDB does."""
        shown = json.loads(of.tree) if self.ddl == "JDDL" else of.sql.decode()
        return json.dumps({self.ddl: shown}).encode()


@functools.cache
def quote_identifier(name: bytes) -> bytes:
    """Quote a name where SQL needs it."""
    plain = bool(name) and name[0] in _PLAIN_FIRST and all(byte in _PLAIN for byte in name)
    if plain and name not in _KEYWORDS:
        return name
    return b'"' + name.replace(b'"', b'""') + b'"'


def lsn_text(lsn: int) -> bytes:
    """Print a position as ``%X/%X``."""
    return b"%X/%X" % (lsn >> 32, lsn & 0xFFFFFFFF)


def time_text(us_since_2000: int, zone_minutes: int = 0) -> bytes:
    """Print a commit time in ISO style, whatever DateStyle is."""
    shifted = us_since_2000 + zone_minutes * 60_000_000
    moment = dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=shifted)  # noqa: DTZ001 - shifted
    text = f"{moment.year:04}-{moment.month:02}-{moment.day:02} {moment:%H:%M:%S}"
    if moment.microsecond:
        text += f".{moment.microsecond:06}".rstrip("0")
    hours, minutes = divmod(abs(zone_minutes), 60)
    zone = f"{'-' if zone_minutes < 0 else '+'}{hours:02}" + (f":{minutes:02}" if minutes else "")
    return (text + zone).encode()


def print_literal(type_oid: int, value: bytes | None) -> bytes:
    """Print a value as the text and JSON styles do."""
    if value is None:
        return b"null"
    if type_oid in _BARE:
        return value
    if type_oid in _BITS:
        return b"B'" + value + b"'"
    if type_oid == _BOOL:
        return b"true" if value == b"t" else b"false"
    return b"'" + value.replace(b"'", b"''") + b"'"


_JSON_ESCAPES: Final = {
    **{code: b"\\u%04x" % code for code in range(32)},
    0x22: b'\\"', 0x5C: b"\\\\", 8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r",
}  # fmt: skip


_JSON_ESCAPED: Final = re.compile(rb'[\x00-\x1f"\\]')


def json_string(text: bytes) -> bytes:
    """Print a JSON string as cJSON does: bytes from 0x80 on go out as they are."""
    return b'"' + _JSON_ESCAPED.sub(lambda match: _JSON_ESCAPES[match[0][0]], text) + b'"'


def json_array(items: Iterable[bytes]) -> bytes:
    """Print an array of strings."""
    return b"[" + b",".join(map(json_string, items)) + b"]"


def _type_name(column: Column) -> bytes:
    return b"text" if column.type_name == "clob" else column.type_name.encode()


class BinaryStyle:
    """Records of ``decode-style`` b, length and LSN included."""

    letter: Final = "b"

    def __init__(self, wanted: Wanted, profile: Profile) -> None:
        self._wanted = wanted
        self._profile = profile

    def begin(self, of: Transaction) -> bytes:
        """Write BEGIN."""
        body = struct.pack(">QQ", of.csn, of.first_lsn)
        if self._wanted.xids and self._profile.begin_has_xid:
            body += b"X" + struct.pack(">Q", of.xid)
        if self._wanted.timestamp:
            body += _counted(b"T", time_text(of.commit_time_us, self._wanted.time_zone))
        if self._wanted.user:
            body += _counted(b"N", of.user)
        if self._wanted.originid:
            body += b"O" + struct.pack(">I", of.origin)
        return self._record(of.first_lsn, b"B", body)

    def commit(self, of: Transaction) -> bytes:
        """Write COMMIT."""
        body = b""
        if self._wanted.xids:
            body += b"X" + struct.pack(">Q", of.xid)
        if self._wanted.timestamp:
            body += _counted(b"T", time_text(of.commit_time_us, self._wanted.time_zone))
        return self._record(of.end_lsn, b"C", body)

    def row(self, row: Row) -> bytes:
        """Write INSERT, UPDATE or DELETE."""
        parts = [_name(row.schema), _name(row.table)]
        if row.new is not None:
            parts += [b"N", _tuple(row.new)]
        if row.old is not None:
            parts += [b"O", _tuple(row.old)]
        return self._record(row.lsn, row.op.encode(), b"".join(parts))

    def statement(self, of: Statement) -> bytes:
        """Write DDL as the text that it is in the other styles: how this one frames it is not documented."""
        return self._record(of.lsn, b"", self._wanted.statement(of))

    @staticmethod
    def _record(lsn: int, kind: bytes, body: bytes) -> bytes:
        return struct.pack(">IQ", 8 + len(kind) + len(body), lsn) + kind + body


def _counted(letter: bytes, text: bytes) -> bytes:
    return letter + struct.pack(">I", len(text)) + text


def _name(name: bytes) -> bytes:
    return struct.pack(">H", len(name)) + name


def _tuple(fields: Fields) -> bytes:
    parts = [struct.pack(">H", len(fields))]
    for column, value in fields:
        parts += [_name(quote_identifier(column.name)), struct.pack(">I", column.type_oid)]
        if value is None:
            parts.append(struct.pack(">I", NULL))
        else:
            parts += [struct.pack(">I", len(value)), value]
    return b"".join(parts)


class TextStyle:
    """Statements of ``decode-style`` t, without any frame."""

    letter: str = "t"

    def __init__(self, wanted: Wanted, profile: Profile) -> None:
        self._wanted = wanted
        self._profile = profile

    def statement(self, of: Statement) -> bytes:
        """Write DDL."""
        return self._wanted.statement(of)

    def begin(self, of: Transaction) -> bytes:
        """Write the BEGIN line."""
        text = b"BEGIN CSN: %d first_lsn: %b" % (of.csn, lsn_text(of.first_lsn))
        if self._wanted.xids and self._profile.begin_has_xid:
            text += b" xid: %d" % of.xid
        if self._wanted.timestamp:
            text += b" commit_time: " + time_text(of.commit_time_us, self._wanted.time_zone)
        if self._wanted.user:
            text += b" user_name: " + of.user
        if self._wanted.originid:
            text += b" origin_id: %d" % of.origin
        return text

    def commit(self, of: Transaction) -> bytes:
        """Write the commit line, in lower case."""
        text = b"commit xid: %d" % of.xid if self._wanted.xids else b"commit"
        if self._wanted.timestamp:
            text += b" (at " + time_text(of.commit_time_us, self._wanted.time_zone) + b")"
        return text

    def row(self, row: Row) -> bytes:
        """Write a row; the old key comes first."""
        names = {"I": b"INSERT", "U": b"UPDATE", "D": b"DELETE"}
        head = b"table " + row.schema + b" " + row.table + b" " + names[row.op] + b":"
        if row.op == "D":
            return head + (b" (no-tuple-data)" if row.old is None else _plain_fields(row.old))
        if row.op == "U" and row.old is not None:
            head += b" old-key:" + _plain_fields(row.old) + b" new-tuple:"
        return head + (b" (no-tuple-data)" if row.new is None else _plain_fields(row.new))


def _plain_fields(fields: Fields) -> bytes:
    return b"".join(
        b" " + quote_identifier(column.name) + b"[" + _type_name(column) + b"]:"
        + print_literal(column.type_oid, value)
        for column, value in fields
    )  # fmt: skip


class JsonStyle(TextStyle):
    """Statements of ``decode-style`` j; BEGIN and commit are those of style t."""

    letter = "j"

    def row(self, row: Row) -> bytes:
        """Write a row."""
        return json_row(row)


def json_row(row: Row) -> bytes:
    """Print a row with the eight keys that are always there."""
    names = {"I": b"INSERT", "U": b"UPDATE", "D": b"DELETE"}
    table = quote_identifier(row.schema) + b"." + quote_identifier(row.table)
    keys = [
        b'{"table_name":' + json_string(table),
        b'"op_type":' + json_string(names[row.op]),
    ]
    for prefix, fields in ((b"columns", row.new or ()), (b"old_keys", row.old or ())):
        keys += [
            b'"%b_name":' % prefix + json_array(quote_identifier(c.name) for c, _ in fields),
            b'"%b_type":' % prefix + json_array(_type_name(c) for c, _ in fields),
            b'"%b_val":' % prefix + json_array(print_literal(c.type_oid, v) for c, v in fields),
        ]
    return b",".join(keys) + b"}"


ParallelStyle = BinaryStyle | TextStyle
_STYLES: Final[dict[str, type[ParallelStyle]]] = {"b": BinaryStyle, "t": TextStyle, "j": JsonStyle}


class Buffer:
    """The sender's output buffer in parallel mode: joins records into CopyData bodies.

    Args:
        letter: of the style.
        batch: ``sending-batch``, 0 or 1.
        profile: says whether the header is overwritten.
        clock: microseconds since 2000-01-01, asked just before sending.
    """

    def __init__(self, letter: str, batch: int, profile: Profile, clock: Callable[[], int]) -> None:
        self._is_binary = letter == "b"
        self._batch = batch
        self._profile = profile
        self._clock = clock
        self._out = bytearray()
        self._header_lsn = 0
        self._write_location = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._out

    def handle(self, lsn: int) -> None:
        """Remember the position of a row or of the start of a commit record."""
        self._write_location = max(self._write_location, lsn)

    def add(
        self, record: bytes, lsn: int, commit_lsn: int, *, is_last: bool = False
    ) -> bytes | None:
        """Append one record; give a CopyData body when the buffer is full.

        Args:
            record: of the style.
            lsn: that a batched statement shows.
            commit_lsn: start of the commit record of its transaction.
            is_last: nothing may follow it in its body.
        """
        out = self._out
        if not out:
            out += bytes(HEADER_BYTES)
            self._header_lsn = commit_lsn
        if self._batch and not self._is_binary:
            out += struct.pack(">IQ", len(record) + 8, lsn)
        out += record
        is_full = is_last or len(out) > self._batch * BATCH_BYTES
        if self._is_binary:
            out += b"F" if is_full else b"P"
        elif is_full and self._batch:
            out += bytes(4)
        return self._send(self._profile.raises_header) if is_full else None

    def flush(self) -> bytes | None:
        """Give what is left when the timer says so."""
        if not self._out:
            return None
        self._out += bytes(4)
        return self._send(raises_header=False)

    def _send(self, raises_header: bool) -> bytes:
        lsn = self._header_lsn
        if raises_header and self._write_location:
            lsn = self._write_location
        self._out[:HEADER_BYTES] = wal_header(lsn, self._clock())
        body = bytes(self._out)
        self._out = bytearray()
        return body


class ParallelStream:
    """Turns transactions into CopyData bodies, in parallel mode."""

    def __init__(
        self,
        letter: str,
        batch: int,
        wanted: Wanted,
        profile: Profile = V6_0_0,
        clock: Callable[[], int] = lambda: 0,
        *,
        is_by_csn: bool = False,
    ) -> None:
        self.style = _STYLES[letter](wanted, profile)
        self._is_by_csn = is_by_csn  # BEGIN and COMMIT have bodies of their own
        self.buffer = Buffer(letter, batch, profile, clock)
        self._skips = wanted.skip_empty

    def transaction(self, of: Transaction, from_lsn: int = 0) -> Iterator[bytes]:
        """Give the bodies that a transaction fills.

        Args:
            of: the transaction.
            from_lsn: what stands before it is left out, and BEGIN with it; 0 for nothing.
        """
        style, buffer = self.style, self.buffer

        def put(record: bytes, lsn: int, *, is_alone: bool = False) -> Iterator[bytes]:
            is_last = is_alone and self._is_by_csn
            before = buffer.flush() if is_last else None
            if before is not None:
                yield before
            body = buffer.add(record, lsn, of.commit_lsn, is_last=is_last)
            if body is not None:
                yield body

        begun = from_lsn != 0
        if not self._skips and not begun:
            begun = True
            yield from put(style.begin(of), of.first_lsn, is_alone=True)
        for change in of.changes:
            if isinstance(change, Truncate) or (isinstance(change, Row) and change.is_hidden):
                continue
            if change.lsn < from_lsn:
                continue
            buffer.handle(change.lsn)
            if not begun:
                begun = True
                yield from put(style.begin(of), of.first_lsn, is_alone=True)
            record = style.row(change) if isinstance(change, Row) else style.statement(change)
            yield from put(record, change.lsn)
        buffer.handle(of.commit_lsn)
        if begun and of.end_lsn >= from_lsn:
            yield from put(style.commit(of), of.end_lsn, is_alone=True)


# ---- serial mode -------------------------------------------------------------------------


class SerialStream:
    """Turns transactions into CopyData bodies as mppdb_decoding does in serial mode."""

    def __init__(
        self, wanted: Wanted, profile: Profile = V6_0_0, clock: Callable[[], int] = lambda: 0
    ) -> None:
        self._wanted = wanted
        self._profile = profile
        self._clock = clock

    def transaction(self, of: Transaction) -> Iterator[bytes]:
        """Give one body per callback."""
        begun = False
        if not self._wanted.skip_empty:
            begun = True
            yield self._message(of.first_lsn, self._begin(of))
        for change in of.changes:
            if not begun:
                begun = True
                yield self._message(0, self._begin(of))
            text = self._change(change)
            if text is not None:
                yield self._message(change.lsn, text)
        if begun:
            yield self._message(of.end_lsn, self._commit(of))

    def _message(self, lsn: int, text: bytes) -> bytes:
        return wal_header(lsn, self._clock()) + text

    def _begin(self, of: Transaction) -> bytes:
        text = b"BEGIN %d" % of.xid if self._wanted.xids else b"BEGIN"
        return text + (b" ORIGIN_ID %d" % of.origin if self._wanted.originid else b"")

    def _commit(self, of: Transaction) -> bytes:
        text = b"COMMIT %d" % of.xid if self._wanted.xids else b"COMMIT"
        if self._wanted.timestamp:
            text += b" (at " + time_text(of.commit_time_us, self._wanted.time_zone) + b")"
        return text + b" CSN %d" % of.csn

    def _change(self, change: Row | Truncate | Statement) -> bytes | None:
        if isinstance(change, Truncate):
            return truncate_text(change) if self._profile.sends_truncate else None
        if isinstance(change, Statement) and self._wanted.ddl is not None:
            return self._wanted.statement(change)
        if isinstance(change, Statement):
            return (
                b"prefix: deparse, lsn: %d, relid %d, cmdtype: Simple, size: %d, content: %b\n"
                b"decode to: %b, [owner none]"
            ) % (change.lsn, change.relid, len(change.tree) + 1, change.tree, change.sql)
        return None if change.is_hidden else json_row(change)


def truncate_text(change: Truncate) -> bytes:
    """Print a TRUNCATE as the serial plug-ins do."""
    names = b", ".join(
        quote_identifier(schema) + b"." + quote_identifier(table) for schema, table in change.tables
    )
    flags = (b" restart_seqs" if change.restarts else b"") + (
        b" cascade" if change.cascades else b""
    )
    return b"table " + names + b": TRUNCATE:" + (flags or b" (no-flags)")


class SqlStream(SerialStream):
    """The texts of the plug-in sql_decoding."""

    def _begin(self, of: Transaction) -> bytes:
        return b"BEGIN %d" % of.csn

    def _commit(self, of: Transaction) -> bytes:
        time = time_text(of.commit_time_us, self._wanted.time_zone)
        return b"COMMIT (at " + time + b") %d" % of.csn

    def _change(self, change: Row | Truncate | Statement) -> bytes | None:
        if isinstance(change, Truncate):
            return truncate_text(change) if self._profile.sends_truncate else None
        if isinstance(change, Statement) and self._wanted.ddl is not None:
            return self._wanted.statement(change)
        if isinstance(change, Statement):
            return (
                b"message: prefix deparse, relid %d, cmdtype: Simple, sz: %d content: %b\n"
                b"decode to : %b, [owner none]"
            ) % (change.relid, len(change.tree) + 1, change.tree, change.sql)
        table = quote_identifier(change.schema) + b"." + quote_identifier(change.table)
        parts = []
        if change.op in "UD":
            parts.append(b"delete from " + table + b" where " + _where(change.old))
        if change.op in "IU":
            parts.append(b"insert into " + table + b" values " + _values(change.new))
        return b";".join(parts) + b";"


def _values(fields: Fields | None) -> bytes:
    if fields is None:
        return b" (no-tuple-data)"
    literals = (print_literal(column.type_oid, value) for column, value in fields)
    return b"(" + b", ".join(literals) + b")"


def _where(fields: Fields | None) -> bytes:
    if fields is None:
        return b" (no-tuple-data)"
    return b" and ".join(
        quote_identifier(column.name) + b" = " + print_literal(column.type_oid, value)
        for column, value in fields
    )


# ---- control messages --------------------------------------------------------------------

KEEPALIVE: Final = struct.Struct("<QiiqBBBB4x")
STATUS: Final = struct.Struct("<QQQQQiiqB3xI")
READY: Final = b"Z\x00\x00\x00\x05I"  # follows each notice, in the stream too
COPY_BOTH: Final = b"W\x00\x00\x00\x07\x00\x00\x00"
PRIMARY: Final = 2
STANDBY: Final = 3
NORMAL: Final = 1


class Status(NamedTuple):
    """A status update of the client."""

    receive: int
    write: int
    flush: int
    apply: int
    apply_read: int
    peer_role: int
    peer_state: int
    send_time_us: int
    wants_reply: int
    reply_flags: int


def wal_header(lsn: int, now_us: int) -> bytes:
    """The 25 bytes before a payload; both positions are always the same."""
    return b"w" + struct.pack(">QQq", lsn, lsn, now_us)


def copy_data(body: bytes) -> bytes:
    """Wrap a body in a CopyData message."""
    return b"d" + struct.pack(">I", len(body) + 4) + body


def keepalive(
    wal_end: int, now_us: int, *, wants_reply: bool = False, catchup: bool = False, role: int = 2
) -> bytes:
    """The 33 bytes of a keepalive, in the byte order of the server."""
    return b"k" + KEEPALIVE.pack(wal_end, role, NORMAL, now_us, wants_reply, catchup, 0, 0)


def heartbeat(lsn: int, flushed_lsn: int, timestamp: int, *, framed: bool) -> bytes:
    """The payload of a binary heartbeat, as the document words it or framed as a record.

    In the order of CSNs the two positions are CSNs: that was sent, and that comes next.
    """
    body = b"h" + struct.pack(">QQq", lsn, flushed_lsn, timestamp)
    return (struct.pack(">IQ", 33, lsn) if framed else b"") + body + b"F"


def ddl_notice(entries: Iterable[tuple[int, int, int, int]]) -> str:
    """The warning that rows after DDL of the same transaction may be missing."""
    listed = ", ".join(
        f"<{xid}, {', '.join(lsn_text(lsn).decode() for lsn in lsns)}>" for xid, *lsns in entries
    )
    return (
        "Due to DDL in the same top transaction, partial modification may be lost for "
        f"<XID, FIRST_LSN, FINAL_LSN, SKIP_START_LSN> = {{ {listed} }}"
    )
