"""Messages: each one by field name, cut anywhere, at its limits, and mutated at random."""

import array
import contextlib
import dataclasses
import gc
import random
import struct
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import plain, texts, wire
from kit.decoded import Entry, EventKind, read_entry

from gaussdecode._wire import BatchDecoder
from gaussdecode.errors import (
    AccountError,
    LargeRowError,
    TruncatedError,
    WireError,
    attributed,
    from_record,
    to_record,
)
from gaussdecode.model.relation import Relation
from gaussdecode.model.types import ColumnType, Kind

TYPES = [ColumnType(Kind.INT32), ColumnType(Kind.STRING)]
RELATION = wire.relation(TYPES)
OTHER = wire.relation(TYPES, version=2, oid=20000)
FILTERED = wire.relation(TYPES, version=3, oid=30000, filtered=True)
RELATIONS = [RELATION, OTHER, FILTERED]
RESIDENT_SLACK = 8 << 20  # bytes; arbitrary, what the interpreter may take meanwhile

MESSAGES = {
    "begin": wire.begin(),
    "commit": wire.commit(),
    "origin": wire.origin(),
    "insert": wire.insert(["1", "one"]),
    "update": wire.update(["1", "two"]),
    "update of the key": wire.update(["2", wire.UNCHANGED], key=["1", None]),
    "update of a full row": wire.update(["2", wire.UNCHANGED], old=["1", "one"]),
    "delete": wire.delete(["1", None]),
    "delete of a full row": wire.delete(["1", "one"], b"O"),
    "truncate": wire.truncate(wire.OID, 20000, bits=3),
    "message": wire.logical(),
    "gauss begin": wire.gauss_begin(),
    "gauss begin with all": wire.gauss_begin(0x10, 9, 2**40, 5, 4294967295, "jörg"),
    "gauss begin with nothing": wire.gauss_begin(csn=0),
    "gauss commit": wire.gauss_commit(xid=2**40),
    "gauss commit with all": wire.gauss_commit(0x11, 7, 1_700_000_000_000_000, 2357),
    "notice": wire.notice(),
    "heartbeat": wire.heartbeat(),
    "stream start": wire.stream_start(2**32 - 1),
    "stream goes on": wire.stream_start(8, is_first=False),
    "stream commit": wire.stream_commit(2**32 - 1, 0x10, 0x20, 5),
    "stream abort": wire.stream_abort(7, 8),
    "prepare begin": wire.prepared(b"b", 2**32 - 1, b"it's"),
    "prepare": wire.prepared(b"P", 2**32 - 1, b"it's", 0x20, 0x10, 5),
    "stream prepare": wire.prepared(b"p", 9, b"\xff\xfe"),
    "commit prepared": wire.prepared(b"K", 9, b"", 0x20, 0x10, 5),
    "rollback prepared": wire.prepared(b"r", 9, b"gid", 0x20, 0x10, 5),
    "insert into a filtered table": wire.insert(["1", "x"], 30000),
    "update of a filtered table": wire.update(["1", "x"], ["1", None], oid=30000),
    "delete from a filtered table": wire.delete(["1", None], oid=30000),
}


IN_BLOCK = {
    name: wire.of_block(message, 2**32 - 1)
    for name, message in MESSAGES.items()
    if message[0] in b"IUDTM"
}


def decode(
    messages: list[bytes],
    relations: list[Relation] | None = None,
    stream_xid: int = 0,
    lsns: Sequence[int] = (),
) -> Entry:
    """Decode messages with a fresh decoder; relation events are left out."""
    described = RELATIONS if relations is None else relations
    # An array ends where its memory ends, so that a sanitizer sees the first byte beyond.
    raw = array.array("B", wire.raw_batch(messages, described, stream_xid=stream_xid, lsns=lsns))
    entry = read_entry(
        BatchDecoder().decode_bytes(memoryview(raw)),
        {each.version: each for each in described},
    )
    assert [event.kind for event in entry.events[: len(described)]] == (
        [EventKind.RELATION] * len(described)
    )
    del entry.events[: len(described)]
    return entry


def outcome(
    messages: list[bytes], relations: list[Relation], *, fast: bool, stream_xid: int = 0
) -> str:
    """What decoding gives: the entry, or class and byte of the error, as text."""
    try:
        if fast:
            return repr(decode(messages, relations, stream_xid))
        return repr(plain.decode(messages, relations, stream_xid=stream_xid))
    except WireError as error:
        return f"{type(error).__name__} at {error.offset}"


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_begin_and_commit() -> None:
    """Positions as sent, times counted from 1970."""
    entry = decode([wire.begin(0xAB00, 1_700_000_000_123_456, 77),
                    wire.commit(0xAB00, 0xAB40, 1_700_000_000_123_456)])  # fmt: skip
    begin, commit = entry.events
    assert (begin.kind, begin.x, begin.y, begin.z) == (
        EventKind.BEGIN, 0xAB00, 1_700_000_000_123_456, 77,
    )  # fmt: skip
    assert (commit.kind, commit.x, commit.y, commit.z) == (
        EventKind.COMMIT, 0xAB00, 0xAB40, 1_700_000_000_123_456,
    )  # fmt: skip


def test_time_before_1970_is_negative() -> None:
    """A clock set to 1960 is a negative number in two's complement."""
    (begin,) = decode([wire.begin(commit_time_us=-5)]).events
    assert begin.y == 2**64 - 5


def test_gauss_transaction() -> None:
    """BEGIN is followed by its CSN with the user, and by its origin in decimal."""
    time = 1_700_000_000_123_456
    events = decode(
        [
            wire.gauss_begin(0xAB00, 2357, 0, time, 12, "shop"),
            wire.gauss_commit(0xAB40, 2**33, None),
        ]
    ).events
    assert [(e.kind, e.flags, e.x, e.y, e.z, e.payload) for e in events] == [
        (EventKind.BEGIN, 1, 0xAB00, time, 0, b""),
        (EventKind.CSN, 0, 2357, 0, 0, b"shop"),
        (EventKind.ORIGIN, 0, 0, 0, 0, b"12"),
        (EventKind.COMMIT, 1, 2**33, 0xAB40, 0, b""),
    ]


def test_csn_of_a_commit_comes_before_it() -> None:
    """Serial plug-ins say the CSN at the end only."""
    events = decode([wire.gauss_begin(csn=0), wire.gauss_commit(csn=2357)]).events
    assert [event.kind for event in events] == [EventKind.BEGIN, EventKind.CSN, EventKind.COMMIT]
    assert events[1].x == 2357


def test_origin() -> None:
    """An origin keeps its position and name."""
    (event,) = decode([wire.origin(0x77, "north")]).events
    assert (event.kind, event.x, event.payload) == (EventKind.ORIGIN, 0x77, b"north")


def test_logical_message() -> None:
    """A message keeps prefix and content, zero bytes included."""
    (event,) = decode([wire.logical(b"app", b"\0\xff\0", 0x66, 0)]).events
    assert (event.kind, event.flags, event.x) == (EventKind.MESSAGE, 0, 0x66)
    assert event.payload == b"app\0\0\xff\0"


def test_truncate_is_one_event_per_table() -> None:
    """Each wanted table gets the option bits; a filtered one gets nothing."""
    events = decode([wire.truncate(20000, 30000, wire.OID, bits=2)]).events
    assert [(each.kind, each.index, each.flags) for each in events] == [
        (EventKind.TRUNCATE, 2, 2),
        (EventKind.TRUNCATE, 1, 2),
    ]


def test_rows_in_wire_order() -> None:
    """Rows of one table share a segment until another table or event comes between."""
    entry = decode(
        [
            wire.insert(["1", "a"]),
            wire.update(["2", "b"]),
            wire.insert(["3", "c"], 20000),
            wire.insert(["4", "d"], 30000),
            wire.delete(["5", None], oid=20000),
            wire.commit(),
            wire.insert(["6", "f"]),
            wire.truncate(wire.OID),
            wire.insert(["7", "g"]),
        ]
    )
    assert entry.rows() == [
        (1, 0, "I"), (1, 1, "U"), (2, 0, "I"), (2, 1, "D"), (1, 2, "I"), (1, 3, "I"),
    ]  # fmt: skip
    kinds = [event.kind.name for event in entry.events]
    assert kinds == ["SEGMENT", "SEGMENT", "COMMIT", "SEGMENT", "TRUNCATE", "SEGMENT"]
    assert entry.row_count == 6


def test_filtered_row_does_not_end_a_segment() -> None:
    """What nobody wants leaves no trace in the order."""
    messages = [wire.insert(["1", "a"]), wire.insert(["2", "b"], 30000), wire.insert(["3", "c"])]
    (segment,) = decode(messages).events
    assert segment.row_count == 2


def test_keepalive_is_the_last_event() -> None:
    """The position of an idle server follows everything before it."""
    raw = wire.raw_batch([wire.begin(), wire.commit()], keepalive=(0x99, True))
    last = read_entry(BatchDecoder().decode_bytes(raw), {}).events[-1]
    assert (last.kind, last.x, last.flags) == (EventKind.KEEPALIVE, 0x99, 1)


def test_relations_are_passed_on_first() -> None:
    """The definition of each new version comes before its rows, word for word."""
    raw = wire.raw_batch([wire.insert(["1", "a"])], [OTHER, RELATION])
    events = read_entry(BatchDecoder().decode_bytes(raw), {1: TYPES}).events
    assert [(each.kind, each.index) for each in events[:2]] == [
        (EventKind.RELATION, 2), (EventKind.RELATION, 1),
    ]  # fmt: skip
    assert b'"name": "t20000"' in events[0].payload


def test_relations_are_remembered() -> None:
    """A later batch needs no description, and a new version replaces the one before."""
    decoder = BatchDecoder()
    decoder.decode_bytes(wire.raw_batch([], [RELATION]))
    again = read_entry(decoder.decode_bytes(wire.raw_batch([wire.insert(["1", "a"])])), {1: TYPES})
    assert again.parts[0].columns == [[1], ["a"]]
    wider = wire.relation([Kind.INT64, Kind.STRING, Kind.BOOL], version=9)
    types = {9: [column.type for column in wider.columns]}
    raw = wire.raw_batch([wire.insert([str(2**40), "a", "t"])], [wider])
    assert read_entry(decoder.decode_bytes(raw), types).parts[0].columns == [
        [2**40], ["a"], [True],
    ]  # fmt: skip


def test_many_tables() -> None:
    """Thousands of tables in one batch, each with its own part."""
    relations = [wire.relation(TYPES, version=number, oid=number * 64) for number in range(1, 3001)]
    messages = [wire.insert([str(each.version), "x"], each.oid) for each in relations]
    entry = decode(messages, relations)
    assert [part.columns[0] for part in entry.parts] == [[number] for number in range(1, 3001)]


def test_end_of_the_stream() -> None:
    """An END batch comes out as an END entry with its number."""
    entry = read_entry(BatchDecoder().decode_bytes(wire.raw_batch([], seq=8, kind=wire.END)), {})
    assert (entry.kind, entry.dispatch_seq, entry.events, entry.parts) == (wire.END, 8, [], [])


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_agree_with_the_plain_parser(name: str) -> None:
    """Each message alone has the same outcome in both."""
    assert repr(decode([MESSAGES[name]])) == repr(plain.decode([MESSAGES[name]], RELATIONS))


@pytest.mark.parametrize("name", MESSAGES)
def test_every_prefix_is_truncated(name: str) -> None:
    """Cut anywhere, a message raises instead of reading on, at the same byte in both."""
    whole = MESSAGES[name]
    for size in range(len(whole)):
        with pytest.raises(TruncatedError) as fast:
            decode([whole[:size]])
        with pytest.raises(TruncatedError) as slow:
            plain.decode([whole[:size]], RELATIONS)
        assert fast.value.args == slow.value.args


@pytest.mark.parametrize("name", MESSAGES)
def test_bytes_after_the_end_are_refused(name: str) -> None:
    """A message ends exactly at its length."""
    with pytest.raises(WireError, match="after the end"):
        decode([MESSAGES[name] + bytes(17)])  # an abort's may have 16 more


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"R" + bytes(20), "inside a batch"),
        (b"Y" + bytes(20), "inside a batch"),
        (b"E", "inside a batch"),
        (b"Q" + bytes(5), "unknown type"),
        (wire.prepared(b"P", flags=1), "unknown flags of a prepared transaction"),
        (wire.prepared(b"r", flags=1), "unknown flags of a prepared transaction"),
        (b"S\0\0\0\1\2", "unknown flags of a block"),
        (wire.stream_commit(flags=1), "unknown flags of a commit"),
        (b"\xff", "unknown type"),
        (wire.commit(flags=1), "unknown flags of a commit"),
        (wire.truncate(wire.OID, bits=4), "unknown flags of a truncate"),
        (wire.logical(flags=2), "unknown flags of a logical message"),
        (wire.insert(["1", "a"], oid=5), "not described"),
        (wire.truncate(5), "not described"),
        (wire.insert(["1"]), "number of columns"),
        (wire.insert(["1", "a", "b"]), "number of columns"),
        (wire.delete(["1"]), "number of columns"),
        (wire.insert(["1", "a"], 30000)[:-8] + b"\0\0\0\0t\0\0\0", "number of columns|unknown"),
        (b"I" + struct.pack(">I", wire.OID) + b"K" + wire.row(["1", "a"]), "no new tuple"),
        (b"U" + struct.pack(">I", wire.OID) + b"D" + wire.row(["1", "a"]), "no new tuple"),
        (wire.delete(["1", "a"], b"N"), "without an old tuple"),
        (wire.insert(["1", "a"]).replace(b"t\0\0\0\1a", b"b\0\0\0\1a"), "was not asked for"),
        (wire.insert(["1", "a"]).replace(b"t\0\0\0\1a", b"x\0\0\0\1a"), "unknown kind of value"),
        (wire.update(["1", "a"], key=[wire.UNCHANGED, None]), "old tuple"),
        (wire.gauss_begin(csn=2**63), "63 bits"),
        (wire.gauss_begin(xid=2**63), "63 bits"),
        (wire.gauss_commit(xid=2**63), "63 bits"),
        (wire.gauss_commit(csn=2**64 - 1), "63 bits"),
    ],
)
def test_breaking_the_format_is_an_error(message: bytes, reason: str) -> None:
    """Unknown types, flags and kinds stop the decoder; nothing is guessed."""
    with pytest.raises(WireError, match=reason) as raised:
        decode([message])
    assert not isinstance(raised.value, TruncatedError)


@pytest.mark.parametrize("name", IN_BLOCK)
def test_changes_of_a_block_agree_with_the_plain_parser(name: str) -> None:
    """Whole, cut anywhere and too long, with the id of their (sub)transaction."""
    whole = IN_BLOCK[name]
    for message in [*(whole[:size] for size in range(len(whole) + 1)), whole + b"\0"]:
        outcomes = [
            outcome([message], RELATIONS, fast=fast, stream_xid=7) for fast in (True, False)
        ]
        assert outcomes[0] == outcomes[1]
    assert "4294967295" in outcome([whole], RELATIONS, fast=True, stream_xid=7) or (
        "filtered" in name
    )


def test_rows_of_subtransactions_are_apart() -> None:
    """A segment is of one (sub)transaction; what stands in no block is of none."""
    messages = [
        wire.of_block(wire.insert([str(number), "x"]), xid)
        for number, xid in enumerate([7, 7, 8, 8, 8, 7])
    ]
    events = decode([wire.stream_start(7), *messages], stream_xid=7).events
    assert [(event.kind, event.z, event.row_count) for event in events[1:]] == [
        (EventKind.SEGMENT, 7, 2), (EventKind.SEGMENT, 8, 3), (EventKind.SEGMENT, 7, 1),
    ]  # fmt: skip
    with pytest.raises(WireError, match="transaction 0"):
        decode([wire.of_block(wire.insert(["1", "x"]), 0)], stream_xid=7)


def test_place_of_an_abort_is_read_over() -> None:
    """What streaming=parallel adds is neither believed nor missed."""
    assert decode([wire.stream_abort(7, 8, (5, 6))]) == dataclasses.replace(
        decode([wire.stream_abort(7, 8)]), wire_bytes=29
    )
    with pytest.raises(TruncatedError):
        decode([wire.stream_abort(7, 8, (5, 6))[:-1]])


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 4])
def test_claimed_sizes_are_not_believed(size: int) -> None:
    """A value or content longer than its message is truncated; nothing is allocated for it."""
    before = resident_bytes()
    value = b"I" + struct.pack(">IcHcI", wire.OID, b"N", 2, b"t", size) + b"abc"
    content = b"M\1" + bytes(8) + b"p\0" + struct.pack(">I", size) + b"abc"
    for message in (value, content):
        with pytest.raises(TruncatedError):
            decode([message])
    assert resident_bytes() - before < RESIDENT_SLACK


def test_claimed_counts_are_not_believed() -> None:
    """Four thousand million tables or 65535 columns need their bytes."""
    with pytest.raises(TruncatedError):
        decode([b"T" + struct.pack(">IBI", 0xFFFFFFFF, 0, wire.OID)])
    with pytest.raises(WireError):
        decode([b"I" + struct.pack(">IcH", wire.OID, b"N", 0xFFFF)])


def test_damaged_raw_header_is_an_error_or_harmless() -> None:
    """No byte of the header or of a relation can lead outside of the batch."""
    whole = wire.raw_batch([MESSAGES["insert"]], [RELATION])
    for position in range(wire.RAW_HEADER.size + len(wire.raw_relation(RELATION))):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            raw = bytearray(whole)
            raw[position] = value
            with contextlib.suppress(WireError, AccountError):
                BatchDecoder().decode_bytes(raw)


@pytest.mark.parametrize("kind", range(len(wire.KINDS)), ids=wire.KINDS)
@pytest.mark.parametrize("more", [1, -1])
def test_batch_holds_what_the_reader_counted(kind: int, more: int) -> None:
    """One message fewer or more than the reader framed stops the decoder, whatever its kind."""
    messages = [
        wire.begin(), wire.insert(["1", "a"]), wire.update(["1", "b"]), wire.delete(["1", None]),
        wire.truncate(wire.OID, 30000), wire.insert(["1", "x"], 30000), wire.logical(),
        wire.commit(),
    ]  # fmt: skip
    counted = list(wire.tally(messages))
    entry = decode(messages)
    assert entry.framed == tuple(counted) == (1, 2, 1, 1, 2, 1)
    assert entry.filtered == (0, 1, 0, 0, 1, 0)
    counted[kind] += more
    with pytest.raises(AccountError, match="reader counted"):
        BatchDecoder().decode_bytes(wire.raw_batch(messages, RELATIONS, framed=tuple(counted)))


def test_what_the_reader_left_out_counts() -> None:
    """What is not in the messages is in the sums, and is passed on by reason."""
    framed, filtered, before = (1, 9, 0, 0, 0, 0), (0, 5, 0, 0, 0, 0), (0, 3, 0, 0, 0, 0)
    raw = wire.raw_batch(
        [wire.begin(), wire.insert(["1", "a"]), wire.commit()], [RELATION],
        framed=framed, filtered=filtered, before_start=before,
    )  # fmt: skip
    entry = read_entry(BatchDecoder().decode_bytes(raw), {RELATION.version: RELATION})
    assert (entry.framed, entry.filtered, entry.before_start) == (framed, filtered, before)


def test_cut_raw_batch_is_an_error() -> None:
    """A raw batch that lost its end, wherever, is refused."""
    whole = wire.raw_batch([wire.begin()], [RELATION])
    for size in range(len(whole)):
        with pytest.raises(WireError):
            BatchDecoder().decode_bytes(whole[:size])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (wire.PLAN_COLUMN.pack(2, 0, 0, 0, 1), wire.PLAN_COLUMN.pack(0, 0, 0, 0, 1)),
        (wire.PLAN_COLUMN.pack(2, 0, 0, 0, 1), wire.PLAN_COLUMN.pack(15, 0, 0, 0, 1)),
        (wire.PLAN_COLUMN.pack(2, 0, 0, 0, 1), wire.PLAN_COLUMN.pack(14, 14, 0, 0, 1)),
        (wire.PLAN_COLUMN.pack(2, 0, 0, 0, 1), wire.PLAN_COLUMN.pack(7, 0, 39, 0, 1)),
        (wire.PLAN_COLUMN.pack(2, 0, 0, 0, 1), wire.PLAN_COLUMN.pack(7, 0, 5, 6, 1)),
    ],
)
def test_impossible_plan_is_refused(old: bytes, new: bytes) -> None:
    """Unknown kinds, nested lists and decimals out of range never reach a row."""
    raw = wire.raw_batch([], [wire.relation([Kind.INT16])])
    assert old in raw
    with pytest.raises(WireError):
        BatchDecoder().decode_bytes(raw.replace(old, new))


def test_decoder_goes_on_after_an_error() -> None:
    """A broken batch leaves nothing behind in the next one."""
    decoder = BatchDecoder()
    good = wire.raw_batch([wire.insert(["1", "a"])])
    decoder.decode_bytes(wire.raw_batch([], [RELATION]))
    expected = decoder.decode_bytes(good)
    broken = [wire.insert(["9", "z"]), wire.update(["1", "a"], key=["1", None])[:-1]]
    with pytest.raises(TruncatedError):
        decoder.decode_bytes(wire.raw_batch(broken))
    assert decoder.decode_bytes(good) == expected


def random_row(relation: Relation, rng: random.Random) -> bytes:
    """A message about a table, its values right or wrong for their columns."""
    count = len(relation.columns)

    def values(absent: list[wire.Cell]) -> list[wire.Cell]:
        return [
            rng.choice(absent) if rng.random() < 0.2 else texts.random_text(rng)
            for _ in range(count)
        ]

    new, old = values([None, wire.UNCHANGED]), values([None])
    if rng.random() < 0.5:  # as for a key stored out of line
        old = [
            before if after == wire.UNCHANGED else after
            for before, after in zip(old, new, strict=True)
        ]
    choices = [
        wire.insert(new, relation.oid),
        wire.update(new, oid=relation.oid),
        wire.update(new, old, oid=relation.oid),
        wire.update(new, old=old, oid=relation.oid),
        wire.delete(old, oid=relation.oid),
        wire.delete(old, b"O", relation.oid),
        wire.truncate(relation.oid, bits=1),
        rng.choice(
            [
                wire.begin(),
                wire.commit(),
                wire.origin(),
                wire.logical(),
                wire.gauss_begin(user="u"),
                wire.gauss_commit(),
                wire.notice(),
                wire.stream_start(),
                wire.stream_commit(),
                wire.stream_abort(),
                wire.prepared(rng.choice([b"b", b"P", b"p", b"K", b"r"])),
            ]
        ),
    ]
    return rng.choice(choices)


def random_stream(rng: random.Random) -> tuple[list[bytes], list[Relation]]:
    """Random tables of random types, and messages about them."""
    relations = []
    for version in range(1, rng.randrange(2, 5)):
        types = [texts.random_type(rng) for _ in range(rng.randrange(6))]
        identity = {index for index in range(len(types)) if rng.random() < 0.4}
        filtered = rng.random() < 0.2
        relations.append(
            wire.relation(types, identity, version, 16384 + version, filtered=filtered)
        )
    return [random_row(rng.choice(relations), rng) for _ in range(rng.randrange(60))], relations


def random_lsns(count: int, rng: random.Random) -> list[int]:
    """LSNs that mostly rise by little; some leap, some fall, some are not known."""
    lsns, lsn = [], 2**32 - 50
    for _ in range(count):
        lsn += rng.choice([0, 1, 80, 80, 80, 2**32 - 1, 2**32, 2**40, -40])
        lsns.append(0 if rng.random() < 0.1 else lsn)
    return lsns


def test_events_have_the_lsns_of_their_messages() -> None:
    """Of the first block, of a truncate, of BEGIN where it is known."""
    block = [wire.stream_start(), wire.of_block(wire.truncate(wire.OID))]
    begun, emptied = decode(block, stream_xid=7, lsns=[5, 6]).events
    assert (begun.y, emptied.x) == (5, 6)
    (begun,) = decode([wire.prepared(b"b")], lsns=[8]).events
    assert begun.y == 8
    assert [each.payload for each in decode([wire.begin()] * 2, lsns=[9, 0]).events] == [
        struct.pack("=Q", 9), b"",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_decoders_agree_on_any_stream(seed: int) -> None:
    """Rows of every kind, right or wrong: same columns, same misfits, same order."""
    rng = random.Random(f"stream {seed}")
    for _ in range(15):
        messages, relations = random_stream(rng)
        lsns = random_lsns(len(messages), rng)
        assert repr(decode(messages, relations, lsns=lsns)) == repr(
            plain.decode(messages, relations, lsns=lsns)
        )
        block = [
            wire.of_block(message, rng.choice([7, 7, 8])) if message[0] in b"IUDTM" else message
            for message in messages
        ]
        assert repr(decode(block, relations, 7, lsns)) == repr(
            plain.decode(block, relations, stream_xid=7, lsns=lsns)
        )


@settings(max_examples=500, deadline=None)
@given(st.lists(st.binary(max_size=64), max_size=4))
def test_decoders_agree_on_any_bytes(messages: list[bytes]) -> None:
    """Same result or same error at the same byte, whatever arrives."""
    assert outcome(messages, RELATIONS, fast=True) == outcome(messages, RELATIONS, fast=False)


def mutate(message: bytes, rng: random.Random) -> bytes:
    """Change, remove, insert or double a few bytes."""
    data = bytearray(message)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(data) + 1)
        choice = rng.randrange(5)
        if choice == 0:
            data[place : place + 1] = bytes([rng.randrange(256)])
        elif choice == 1:
            data[place : place + 1] = rng.choice([b"\0", b"\xff", b"\x7f", b"\x80", b"n", b"t"])
        elif choice == 2:
            del data[place : place + rng.randrange(1, 5)]
        elif choice == 3:
            data[place:place] = rng.randbytes(rng.randrange(1, 5))
        else:
            data[place : place + 4] = struct.pack(">I", rng.choice([0, 1, 2, 2**31, 2**32 - 1]))
    return bytes(data)


def test_decoders_agree_on_mutated_messages() -> None:
    """Thousands of damaged messages have the same outcome in both."""
    rng = random.Random("mutated")
    whole = list(MESSAGES.values())
    for _ in range(5_000):
        messages = [rng.choice(whole), mutate(rng.choice(whole), rng)]
        xid = rng.choice([0, 0, 7])
        fast = outcome(messages, RELATIONS, fast=True, stream_xid=xid)
        assert fast == outcome(messages, RELATIONS, fast=False, stream_xid=xid), messages


def test_mutated_batches_neither_crash_nor_leak() -> None:
    """Hundreds of thousands of damaged batches: an error or a result, and flat memory."""
    rng = random.Random("batches")
    kinds: list[ColumnType | Kind] = [
        Kind.INT64,
        Kind.STRING,
        Kind.BINARY,
        Kind.INTERVAL,
        ColumnType(Kind.LIST, Kind.STRING),
    ]
    relations = [wire.relation(kinds, [0, 1, 4])]
    row = ["12", "text \u00e9", "\\x00ff", "1 day 00:00:01", '{a,"b\\"",NULL}']
    raw = wire.raw_batch(
        [wire.begin(), wire.insert(row), wire.update([*row[:4], wire.UNCHANGED], old=row),
         wire.delete([*row[:2], None, None, "{x}"]), wire.logical(), wire.commit()],
        relations,
    )  # fmt: skip
    decoder = BatchDecoder()
    warm = 0
    for count in range(250_000):
        damaged = bytearray(raw)
        for _ in range(1 + count % 3):
            damaged[int(rng.random() * len(raw))] = int(rng.random() * 256)
        with contextlib.suppress(WireError, AccountError):
            decoder.decode_bytes(damaged)
        if count == 150_000:  # by then as many tables are awake as may be
            warm = resident_bytes()
    assert resident_bytes() - warm < RESIDENT_SLACK


def test_huge_row_gives_its_memory_back() -> None:
    """A row of 64 MiB does not stay in memory when small ones follow."""
    decoder = BatchDecoder()
    decoder.decode_bytes(wire.raw_batch([], [RELATION]))
    small = wire.raw_batch([wire.insert(["1", "a"])])
    decoder.decode_bytes(small)
    before = resident_bytes()
    huge = wire.raw_batch([wire.insert(["1", "x" * (64 << 20)])])
    assert len(decoder.decode_bytes(huge)) > 64 << 20
    del huge
    decoder.decode_bytes(small)
    assert resident_bytes() - before < 4 * RESIDENT_SLACK


def test_many_wide_tables_give_their_memory_back() -> None:
    """What all tables hold on to together is bounded, and they go on working."""
    decoder = BatchDecoder()
    relations = [wire.relation(TYPES, version=number, oid=number) for number in range(1, 61)]
    decoder.decode_bytes(wire.raw_batch([], relations))
    text = "x" * (3 << 20)
    before = resident_bytes()
    for each in relations:
        decoder.decode_bytes(wire.raw_batch([wire.insert(["1", text], each.oid)]))
    assert resident_bytes() - before < (64 << 20) + 4 * RESIDENT_SLACK
    for each in relations:
        raw = wire.raw_batch([wire.insert(["5", "a"], each.oid)])
        (part,) = read_entry(decoder.decode_bytes(raw), {each.version: each}).parts
        assert part.columns == [[5], ["a"]]


@pytest.mark.parametrize("seed", range(10))
def test_tables_that_sleep_decode_as_others(seed: int) -> None:
    """With columns for a single table between batches, every batch is the same byte for byte."""
    rng = random.Random(f"sleep {seed}")
    messages, relations = random_stream(rng)
    sleepy, awake = BatchDecoder(1), BatchDecoder()
    first = wire.raw_batch([], relations)
    assert sleepy.decode_bytes(first) == awake.decode_bytes(first)
    for _ in range(40):
        raw = wire.raw_batch(rng.sample(messages, rng.randrange(len(messages) + 1)))
        assert sleepy.decode_bytes(raw) == awake.decode_bytes(raw)
        sleepy.decode_bytes(wire.raw_batch([]))
        assert sleepy.awake_count <= 1


def test_quiet_tables_take_a_few_bytes() -> None:
    """Of twenty thousand tables that changed in turn, a thousand keep columns."""
    decoder = BatchDecoder()
    relations = [wire.relation(TYPES * 5, version=n, oid=n) for n in range(1, 20_001)]
    decoder.decode_bytes(wire.raw_batch([], relations[:1100]))
    row = ["1", "a"] * 5
    for each in relations[:1100]:
        decoder.decode_bytes(wire.raw_batch([wire.insert(row, each.oid)]))
    before = resident_bytes()
    for each in relations[1100:]:
        decoder.decode_bytes(wire.raw_batch([wire.insert(row, each.oid)], [each]))
    assert decoder.awake_count <= 1025
    assert (resident_bytes() - before) / len(relations) < 1200


def test_no_python_object_is_left_behind() -> None:
    """Neither results nor errors keep objects alive."""
    decoder = BatchDecoder()
    good = wire.raw_batch([wire.insert(["1", "a"]), wire.delete(["1", None])], [RELATION])
    bad = wire.raw_batch([wire.insert(["1", "a"]), b"?"])

    def rounds(count: int) -> None:
        for _ in range(count):
            decoder.decode_bytes(good)
            with contextlib.suppress(WireError):
                decoder.decode_bytes(bad)

    rounds(100)
    gc.collect()
    before = sys.getallocatedblocks()
    rounds(2000)
    gc.collect()
    assert abs(sys.getallocatedblocks() - before) < 500


def test_counters_count() -> None:
    """Rows, bytes, values kept as text and invalid texts since the start."""
    decoder = BatchDecoder()
    messages = [wire.insert(["1", b"\xff"]), wire.insert(["x", "a"])]
    for _ in range(2):
        decoder.decode_bytes(wire.raw_batch(messages, [RELATION]))
    assert decoder.row_count == 4
    assert decoder.wire_bytes == 2 * sum(len(message) + 4 for message in messages)
    assert decoder.misfit_count == 4
    assert decoder.invalid_count == 2


# ---- the largest row

ROWS_AT_LIMIT = {
    "insert": (wire.insert(["1", "x" * 37]), 1, 37),
    "insert with a long key": (wire.insert(["1" * 9, "x"]), 0, 9),
    "update": (wire.update(["1", "x" * 18], old=["1", "y" * 7]), 1, 18),
    "delete of a full row": (wire.delete(["1", "x" * 37], b"O"), 1, 37),
}


@pytest.mark.parametrize("name", ROWS_AT_LIMIT)
def test_row_above_the_limit_names_its_largest_column(name: str) -> None:
    """A row of the limit is taken; one byte more is refused, with sizes and no value."""
    message, column, size = ROWS_AT_LIMIT[name]
    BatchDecoder(max_row_bytes=len(message)).decode_bytes(wire.raw_batch([message], [RELATION]))
    decoder = BatchDecoder(max_row_bytes=len(message) - 1)
    place = (0xABC, 9)
    with pytest.raises(LargeRowError) as raised:
        decoder.decode_bytes(wire.raw_batch([message], [RELATION], place=place))
    decoder.locate(raised.value)
    error = from_record(to_record(attributed(raised.value, decoder.blamed())))
    assert isinstance(error, LargeRowError)
    assert (error.size, error.limit, error.column) == (len(message), len(message) - 1, column)
    assert error.column_size == size
    assert (error.oid, error.described) == (wire.OID, ("public", f"t{wire.OID}"))
    shown = str(error)
    for part in (f"{len(message)} bytes, near 0/ABC, in transaction 9", "source.max-row-bytes"):
        assert part in shown
    assert RELATION.columns[column].name in shown
    assert "xx" not in shown


@pytest.mark.parametrize("name", ROWS_AT_LIMIT)
def test_row_above_the_limit_waits_for_the_commit(name: str) -> None:
    """One of a prepared transaction becomes an event with its sizes, and is counted as left out."""
    message, column, size = ROWS_AT_LIMIT[name]
    limit = len(message) - 1
    others = [wire.insert(["1", "a"]), wire.insert(["2", "b"])]
    messages = [others[0], message, others[1]]
    batch = wire.raw_batch(messages, [RELATION], stream_xid=7, is_prepared=True)
    decoder = BatchDecoder(max_row_bytes=limit, defers_large_rows=True)
    entry = read_entry(decoder.decode_bytes(batch), {1: TYPES})
    (event,) = [each for each in entry.events if each.kind is EventKind.LARGE_ROW]
    assert (event.x, event.y, event.first_row, event.z) == (len(message), limit, column, size)
    assert sum(part.row_count for part in entry.parts) == 2
    with pytest.raises(LargeRowError):
        BatchDecoder(max_row_bytes=limit).decode_bytes(batch)


def test_rows_that_nobody_reads_may_be_of_any_size() -> None:
    """Of a filtered table no row is kept, and of one in quarantine none is looked at."""
    decoder = BatchDecoder(max_row_bytes=8)
    decoder.decode_bytes(wire.raw_batch([wire.insert(["1", "x" * 99], 30000)], [FILTERED]))


# ---- where an error stands


@pytest.mark.parametrize(
    ("messages", "xid"),
    [
        ([], 5),
        ([wire.begin(xid=7)], 7),
        ([wire.gauss_begin(xid=2**40)], 2**40),
        ([wire.commit()], None),
        ([wire.gauss_commit()], None),
        ([wire.commit(), wire.begin(xid=8)], 8),
    ],
)
def test_error_names_position_and_transaction(messages: list[bytes], xid: int | None) -> None:
    """The transaction is that of the batch's head, or of the last BEGIN in it."""
    decoder = BatchDecoder()
    with pytest.raises(WireError) as raised:
        decoder.decode_bytes(wire.raw_batch([*messages, b"?"], place=(0x16B374D848, 5)))
    decoder.locate(raised.value)
    told = from_record(to_record(raised.value))
    assert isinstance(told, WireError)
    assert (told.lsn, told.xid) == (0x16B374D848, xid)
    transaction = "" if xid is None else f", in transaction {xid}"
    assert str(told).endswith(f"at byte 0, near 16/B374D848{transaction}")
