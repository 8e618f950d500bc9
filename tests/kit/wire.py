"""Builds pgoutput messages by field name, and raw batches as the reader hands them over."""

import json
import struct
from collections.abc import Iterable, Sequence

from gaussdecode.model.relation import Column, Relation, ReplicaIdentity
from gaussdecode.model.types import ColumnType, Kind

EPOCH_US = 946_684_800_000_000
RAW_MAGIC = 0x42524447
RAW_HEADER = struct.Struct("=IIQIIQQQII3Q18QII")
KINDS = ("C", "I", "U", "D", "T", "M")  # what a tally counts, in its order
Tally = tuple[int, ...]
NONE: Tally = (0,) * len(KINDS)
RAW_RELATION = struct.Struct("=IIIIHHI")
MESSAGE = struct.Struct("=IQ")  # what stands before a message: its size and its LSN
PLAN_COLUMN = struct.Struct("=BBBBB3x")
DATA, END = 0, 1
OID = 16385

Cell = bytes | str | None
UNCHANGED = b"\0unchanged"  # no text of the server holds a zero byte


def cell(value: Cell) -> bytes:
    """One value of a tuple: NULL, `UNCHANGED`, or text."""
    if value is None:
        return b"n"
    if value == UNCHANGED:
        return b"u"
    text = value.encode() if isinstance(value, str) else value
    return b"t" + struct.pack(">I", len(text)) + text


def row(values: Sequence[Cell]) -> bytes:
    """A tuple: column count and values."""
    return struct.pack(">H", len(values)) + b"".join(map(cell, values))


def begin(commit_lsn: int = 0x2000, commit_time_us: int = EPOCH_US, xid: int = 7) -> bytes:
    """A Begin message; the time counts from 1970, as everywhere in the product."""
    return b"B" + struct.pack(">QqI", commit_lsn, commit_time_us - EPOCH_US, xid)


def commit(
    commit_lsn: int = 0x2000,
    end_lsn: int = 0x2030,
    commit_time_us: int = EPOCH_US,
    flags: int = 0,
) -> bytes:
    """A Commit message."""
    return b"C" + struct.pack(">BQQq", flags, commit_lsn, end_lsn, commit_time_us - EPOCH_US)


def origin(lsn: int = 0x99, name: str = "elsewhere") -> bytes:
    """An Origin message."""
    return b"O" + struct.pack(">Q", lsn) + name.encode() + b"\0"


def stream_start(xid: int = 7, *, is_first: bool = True) -> bytes:
    """A Stream Start message."""
    return b"S" + struct.pack(">IB", xid, is_first)


def stream_commit(
    xid: int = 7,
    commit_lsn: int = 0x2000,
    end_lsn: int = 0x2030,
    commit_time_us: int = EPOCH_US,
    flags: int = 0,
) -> bytes:
    """A Stream Commit message."""
    time_us = commit_time_us - EPOCH_US
    return b"c" + struct.pack(">IBQQq", xid, flags, commit_lsn, end_lsn, time_us)


def stream_abort(xid: int = 7, subxid: int = 7, place: tuple[int, int] | None = None) -> bytes:
    """A Stream Abort message; `place` is LSN and time, as with streaming=parallel."""
    message = b"A" + struct.pack(">II", xid, subxid)
    return message if place is None else message + struct.pack(">Qq", *place)


def prepared(
    letter: bytes,
    xid: int = 7,
    gid: bytes = b"gid",
    end_lsn: int = 0x2030,
    lsn: int = 0x2000,
    time_us: int = EPOCH_US,
    flags: int = 0,
) -> bytes:
    """A Begin Prepare (b), Prepare (P), Stream Prepare (p), Commit Prepared (K) or Rollback Prepared (r)."""
    head = b"" if letter == b"b" else bytes([flags])
    times = struct.pack(">q", time_us - EPOCH_US) * (2 if letter == b"r" else 1)
    return (
        letter
        + head
        + struct.pack(">QQ", lsn, end_lsn)
        + times
        + struct.pack(">I", xid)
        + gid
        + b"\0"
    )


def of_block(message: bytes, xid: int = 7) -> bytes:
    """A change as it stands in a block: with the id of its (sub)transaction."""
    return message[:1] + struct.pack(">I", xid) + message[1:]


def insert(values: Sequence[Cell], oid: int = OID) -> bytes:
    """An Insert message."""
    return b"I" + struct.pack(">I", oid) + b"N" + row(values)


def update(
    values: Sequence[Cell],
    key: Sequence[Cell] | None = None,
    old: Sequence[Cell] | None = None,
    oid: int = OID,
) -> bytes:
    """An Update message with a K tuple (`key`), an O tuple (`old`) or neither."""
    before = b""
    if key is not None:
        before = b"K" + row(key)
    elif old is not None:
        before = b"O" + row(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + row(values)


def delete(values: Sequence[Cell], tag: bytes = b"K", oid: int = OID) -> bytes:
    """A Delete message."""
    return b"D" + struct.pack(">I", oid) + tag + row(values)


def truncate(*oids: int, bits: int = 0) -> bytes:
    """A Truncate message."""
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), bits, *oids)


def logical(
    prefix: bytes = b"app", content: bytes = b"\x00\xff", lsn: int = 0x55, flags: int = 1
) -> bytes:
    """A logical message."""
    return (
        b"M" + struct.pack(">BQ", flags, lsn) + prefix + b"\0"
        + struct.pack(">I", len(content)) + content
    )  # fmt: skip


NOT_SENT = -(2**63)


def gauss_begin(  # fields as in the canonical message
    first_lsn: int = 0x2000,
    csn: int = 2357,
    xid: int = 0,
    commit_time_us: int | None = None,
    origin: int = 0,
    user: str = "",
) -> bytes:
    """A Begin of a translated GaussDB stream; 0, None and '' were not sent."""
    time = NOT_SENT if commit_time_us is None else commit_time_us - EPOCH_US
    head = struct.pack(">QQQqI", first_lsn, csn, xid, time, origin)
    return b"g" + head + user.encode() + b"\0"


def gauss_commit(
    end_lsn: int = 0x2030, xid: int = 0, commit_time_us: int | None = None, csn: int = 0
) -> bytes:
    """A Commit of a translated GaussDB stream."""
    time = NOT_SENT if commit_time_us is None else commit_time_us - EPOCH_US
    return b"f" + struct.pack(">QQqQ", end_lsn, xid, time, csn)


def notice(text: str = "rows may be missing", code: int = 1) -> bytes:
    """A Notice of a translated GaussDB stream."""
    return b"n" + struct.pack(">BI", code, len(text)) + text.encode()


def heartbeat(lsn: int = 0x3000, flushed_lsn: int = 0x2800, time_us: int = 1_700_000) -> bytes:
    """A Heartbeat of a translated GaussDB stream."""
    return b"h" + struct.pack(">QQq", lsn, flushed_lsn, time_us)


def relation_message(
    columns: Sequence[tuple[int, str, int, int]],
    oid: int = OID,
    namespace: str = "public",
    name: str = "orders",
    identity: bytes = b"d",
) -> bytes:
    """A Relation message; columns are (flags, name, type OID, type modifier)."""
    head = b"R" + struct.pack(">I", oid) + namespace.encode() + b"\0" + name.encode() + b"\0"
    body = b"".join(
        bytes([flags]) + column.encode() + b"\0" + struct.pack(">Ii", type_oid, modifier)
        for flags, column, type_oid, modifier in columns
    )
    return head + identity + struct.pack(">H", len(columns)) + body


def type_message(oid: int, namespace: str, name: str) -> bytes:
    """A Type message."""
    names = namespace.encode() + b"\0" + name.encode() + b"\0"
    return b"Y" + struct.pack(">I", oid) + names


def relation(
    types: Sequence[ColumnType | Kind],
    identity: Iterable[int] = (0,),
    version: int = 1,
    oid: int = OID,
    *,
    filtered: bool = False,
) -> Relation:
    """A relation with one column per type; `identity` names columns by index."""
    keys = set(identity)
    columns = tuple(
        Column(
            f"c{index}",
            25,
            -1,
            "text",
            held if isinstance(held, ColumnType) else ColumnType(held),
            is_identity=index in keys,
        )
        for index, held in enumerate(types)
    )
    return Relation(version, oid, "public", f"t{oid}", ReplicaIdentity.DEFAULT, columns, filtered)


def xlog_data(lsn: int, message: bytes) -> bytes:
    """What is in CopyData: a message with its header."""
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + message


def keepalive(wal_end: int, *, wants_reply: bool = False) -> bytes:
    """What is in CopyData: how far the server is."""
    return b"k" + struct.pack(">QqB", wal_end, 0, wants_reply)


def padded(record: bytes) -> bytes:
    """Pad with zeros to a multiple of 8."""
    return record + bytes(-len(record) % 8)


def raw_relation(of: Relation, encoding: int = 0) -> bytes:
    """The record that tells a decoder a relation version."""
    plan = b"".join(
        PLAN_COLUMN.pack(
            column.type.kind,
            column.type.element or 0,
            column.type.precision,
            column.type.scale,
            column.is_identity,
        )
        for column in of.columns
    )
    definition = json.dumps(of.to_record()).encode()
    size = RAW_RELATION.size + len(plan) + len(definition)
    head = RAW_RELATION.pack(
        size + -size % 8,
        of.oid,
        of.version,
        of.is_filtered,
        len(of.columns),
        encoding,
        len(definition),
    )
    return padded(head + plan + definition)


def tally(messages: Iterable[bytes], *, is_streamed: bool = False) -> Tally:
    """Count messages as the reader does: a truncate counts the tables it names."""
    at = 4 * is_streamed
    counts = dict.fromkeys(KINDS, 0)
    for message in messages:
        letter = "C" if message[:1] in (b"f", b"c", b"K") else message[:1].decode("latin-1")
        if letter in counts:
            is_whole = letter != "T" or len(message) >= 5 + at
            many = int.from_bytes(message[1 + at : 5 + at]) if letter == "T" and is_whole else 1
            counts[letter] += many if is_whole else 0
    return tuple(counts.values())


def section_of(entry: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """LSN and payload of each message of a raw batch, and where they end."""
    fields = RAW_HEADER.unpack_from(entry)
    at, found = fields[5], []
    for _ in range(fields[4]):
        size, lsn = MESSAGE.unpack_from(entry, at)
        at += MESSAGE.size
        found.append((lsn, entry[at : at + size]))
        at += size
    return found, at


def raw_batch(
    messages: Sequence[bytes],
    relations: Sequence[Relation] = (),
    seq: int = 0,
    kind: int = DATA,
    keepalive: tuple[int, bool] = (0, False),
    framed: Tally | None = None,
    filtered: Tally = NONE,
    before_start: Tally = NONE,
    place: tuple[int, int] = (0, 0),
    opened_ns: int = 0,
    stream_xid: int = 0,
    encoding: int = 0,
    is_prepared: bool = False,
    lsns: Sequence[int] = (),
) -> bytes:
    """A raw batch of whole messages.

    Args:
        messages: payloads from their type byte.
        relations: versions that the decoder has not been told yet.
        seq: dispatch sequence.
        kind: DATA or END.
        keepalive: WAL end and whether a reply is wanted; 0 for none.
        framed: what the reader says it counted; what the messages are by default.
        filtered: what of it the reader left out, because nobody wants the table,
        before_start: or because it stands before the position to start from.
        place: LSN of the first message, and XID of the transaction that is open before it.
        opened_ns: when the first message came.
        stream_xid: whose block they are of; 0 for none.
        encoding: number of that of the values, 0 for UTF-8.
        is_prepared: the block is that of a prepared transaction.
        lsns: LSN of each message; () where none is known.
    """
    described = b"".join(raw_relation(of, encoding) for of in relations)
    section = b"".join(
        MESSAGE.pack(len(message), lsn) + message
        for message, lsn in zip(messages, lsns or [0] * len(messages), strict=True)
    )
    offset = RAW_HEADER.size + -RAW_HEADER.size % 8 + len(described)
    header = RAW_HEADER.pack(
        RAW_MAGIC,
        kind,
        seq,
        len(relations),
        len(messages),
        offset,
        offset + len(section),
        keepalive[0],
        keepalive[1],
        stream_xid,
        *place,
        opened_ns,
        *(
            tally(messages, is_streamed=stream_xid != 0 and not is_prepared)
            if framed is None
            else framed
        ),
        *filtered,
        *before_start,
        2 if is_prepared else int(stream_xid != 0),
        0,
    )
    return padded(header) + described + section
