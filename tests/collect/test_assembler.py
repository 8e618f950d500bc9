"""The assembler against a plain model of what a stream means."""

import contextlib
import dataclasses
import itertools
import json
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.entries import (
    BEGIN,
    COMMIT,
    COMMIT_PREPARED,
    CSN,
    END,
    KEEPALIVE,
    MESSAGE,
    ORIGIN,
    PREPARE,
    RELATION,
    ROLLBACK_PREPARED,
    STREAM_ABORT,
    STREAM_COMMIT,
    STREAM_START,
    TAKEN_BACK,
    TRUNCATE,
    Item,
    Mark,
    Row,
    entry,
    relation,
    relation_mark,
    tally,
)
from kit.wire import NONE

from gaussdecode.collect._assembler import PUMP_ATTENTION, PUMP_END, PUMP_TIME, REASONS, Assembler
from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect.arrow import DDL, MESSAGES, TRANSACTIONS, system_rows, table_rows
from gaussdecode.collect.ddl_states import DdlStates
from gaussdecode.collect.spool import BoundedSpool, NoRoomError, Spool
from gaussdecode.collect.tables import Landed, Tables
from gaussdecode.errors import AccountError, InexactStreamError, SequenceError
from gaussdecode.ipc.ring import Ring
from gaussdecode.model import account
from gaussdecode.model.account import Counts, add
from gaussdecode.model.histogram import BOUNDS
from gaussdecode.model.landing import Position
from gaussdecode.model.relation import Relation, ReplicaIdentity

TABLES = {1: relation(1, "a"), 2: relation(2, "b"), 3: relation(3, "c", filtered=True)}
Line = tuple[str, str, int, int, int | None, str | None]  # table, op, lsn, seq, id, note


class Schemas:
    """Schema numbers by content, in memory."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def schema_id_for(self, table: str, record: dict[str, Any]) -> tuple[str, bool]:  # Any: JSON
        key = f"{table}{record}"
        is_new = key not in self.known
        return self.known.setdefault(key, f"s{len(self.known)}"), is_new


@dataclasses.dataclass
class File:
    """A prepared transaction that is kept, in memory."""

    xid: int
    gid: bytes
    lsn: int
    time_us: int
    first_lsn: int
    origin: bytes | None
    aborted: list[int]
    tally: list[int]
    relations: dict[int, bytes | None]
    places: list[tuple[int, int]]
    data: bytes

    @classmethod
    def of(cls, facts: dict[str, Any], batches: Iterable[memoryview]) -> "File":  # Any: as dumped
        data, places = b"", []
        for batch in batches:
            places.append((len(data), batch.nbytes))
            data += batch
        return cls(**facts, places=places, data=data)

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self.data[offset : offset + target.nbytes]


class Sink:
    """Plays the collector: gathers what the assembler releases."""

    def __init__(
        self, tmp_path: Any, most_bytes: int = 1 << 40, **settings: Any
    ) -> None:  # Any: a Path, keyword arguments
        self.tables = Tables(
            Schemas(), lambda schema, name: f"{schema}.{name}", list, lambda _: None
        )
        self.lines: list[Line] = []
        self.lsns: dict[tuple[int, int], int | None] = {}  # of changes, by lsn and seq
        self.transactions: list[dict[str, Any]] = []  # Any: row values
        self.messages: list[dict[str, Any]] = []  # Any: row values
        self.ddl: list[dict[str, Any]] = []  # Any: row values
        self.truncates: list[tuple[str, int, int]] = []
        self.csns_sent = False
        self.repeated: list[tuple[int, int, int, int, bool]] = []
        self.caught_up_at: list[int] = []  # transactions released before
        self.files: dict[int, File] = {}
        self.ended: list[int] = []
        self.held: list[Accumulator[Landed]] = [
            self._new(self.tables.system(name)) for name in (TRANSACTIONS, MESSAGES, DDL)
        ]
        self.spool = Spool(tmp_path, lambda _, operation: operation())
        limits = {
            "resume_lsn": 0, "memory_limit": 1 << 20, "row_limit": 1000, "byte_limit": 1 << 20,
            "budget": 1 << 22,
        }  # fmt: skip
        self.assembler = Assembler(
            self, self, self.held[0], self.held[1], self.held[2], BoundedSpool(self.spool, most_bytes, self.on_full),
            **{**limits, **settings},
        )  # fmt: skip

    def on_full(self) -> None:
        """Have what has no room given up."""
        assert self.assembler.give_up(), "no transaction here is larger than the spool"
        if self.assembler.is_given_up:
            raise NoRoomError

    def _new(self, landed: Landed) -> Accumulator[Landed]:
        return Accumulator(landed, *landed.kinds())

    def register(self, version: int, definition: bytes) -> Accumulator[Landed] | None:
        described = TABLES[version]
        if described.is_filtered:
            return None
        self.held.append(self._new(self.tables.find(described)))
        return self.held[-1]

    def recall(self, version: int) -> Accumulator[Landed] | None:
        """Nothing was ever let go."""
        return None

    def definition(self, version: int, accumulator: Accumulator[Landed] | None) -> bytes:
        assert accumulator is not None
        return json.dumps(TABLES[version].to_record()).encode()

    def prepared_table(self, definition: bytes) -> Accumulator[Landed] | None:
        return self.register(json.loads(definition)["version"], definition)

    def prepared_ended(self, file: "File") -> None:
        self.ended.append(file.xid)

    def keep(self) -> None:
        """Do what is done before an entry: put prepared transactions into files."""
        for xid in self.assembler.unkept():
            file = File.of(*self.assembler.dump(xid))
            self.files[xid] = file
            self.assembler.keep(file)
        assert self.assembler.unkept() == []

    def ddl_came(self, content: bytes, lsn: int, seq: int) -> None:
        self.tables.ddl.take(content, Position(lsn, seq))

    def keyless(self, accumulator: Accumulator[Landed]) -> Accumulator[Landed]:
        relation = accumulator.table.relation
        assert relation is not None
        columns = tuple(dataclasses.replace(c, is_identity=False) for c in relation.columns)
        nothing = dataclasses.replace(relation, identity=ReplicaIdentity.NOTHING, columns=columns)
        self.held.append(self._new(self.tables.find(nothing)))
        return self.held[-1]

    def truncated(self, accumulator: Accumulator[Landed], lsn: int, seq: int, flags: int) -> None:
        self.truncates.append((accumulator.table.directory, lsn, seq))

    def noticed(self, code: int, text: bytes, lsn: int) -> None:
        raise AssertionError("no notice was sent")

    def resent(
        self,
        lsn: int,
        xid: int,
        time_us: int,
        rows: int,
        has_origin: bool,
        is_new: bool,
        user: bytes,
        csn: int,
    ) -> None:
        is_taken_back = (
            self.csns_sent and rows == 0
        )  # then it has rows of tables, of which none lands
        assert is_new == (rows == 0) or is_taken_back, "all tables landed from the beginning"
        assert not user
        assert not csn or self.csns_sent
        self.repeated.append((lsn, xid, time_us, rows, has_origin))

    def caught_up(self) -> None:
        self.caught_up_at.append(self.assembler.transaction_count)

    def relieve(self) -> None:
        for accumulator in self.held:
            self.flush(accumulator)

    def change_over(self, accumulator: Accumulator[Landed]) -> None:
        for held in self.held:
            if held.table.directory == accumulator.table.directory:
                self.flush(held)
                held.is_current = held is accumulator

    def flush(self, accumulator: Accumulator[Landed]) -> None:
        landed = accumulator.table
        if not accumulator.row_count:
            return
        self.assembler.taken(accumulator.byte_count)
        taken = accumulator.take()
        if landed.relation is None:
            rows = system_rows(landed.directory, taken, 7, with_xid=True, with_time=True)
            rows.validate(full=True)
            into = {TRANSACTIONS: self.transactions, MESSAGES: self.messages, DDL: self.ddl}
            into[landed.directory].extend(rows.to_pylist())
            return
        table = table_rows(
            taken, landed.schema, landed.columns, landed.names, 7, with_xid=True, with_time=True
        )
        table.validate(full=True)
        self.lsns |= {(r["gd_lsn"], r["gd_seq"]): r["gd_change_lsn"] for r in table.to_pylist()}
        self.lines.extend(
            (landed.relation.name, r["gd_op"], r["gd_lsn"], r["gd_seq"], r["id"], r["note"])
            for r in table.to_pylist()
        )

    def finish(self) -> None:
        self.relieve()
        assert self.assembler.held_bytes == 0
        self.lines.sort(key=lambda line: line[2:4])


@dataclasses.dataclass(frozen=True)
class Txn:
    """One transaction of the model."""

    items: tuple[Item, ...]
    origin: bytes | None = None


notes = st.none() | st.text(max_size=5)
lsns = st.sampled_from([0, 8, 9, 2**32 + 8, 2**40])
rows = st.builds(Row, st.sampled_from([1, 2]), st.integers(-(2**63), 2**63 - 1), notes, lsn=lsns)
markers = st.sampled_from(
    [
        Mark(TRUNCATE, index=1), Mark(TRUNCATE, index=1, x=12), Mark(TRUNCATE, index=3),
        Mark(MESSAGE, 1, x=13, payload=b"p\0content"),
    ]
)  # fmt: skip
transactions = st.builds(
    Txn, st.lists(rows | markers, max_size=12).map(tuple), st.sampled_from([None, None, b"far"])
)


def stream(txns: list[Txn]) -> list[Item]:
    """Spell transactions as events; transaction *i* ends at ``100 * (i + 1)``."""
    items: list[Item] = []
    for i, txn in enumerate(txns):
        end = 100 * (i + 1)
        first = struct.pack("=Q", end - 99) if i else b""  # of the first one it is not known
        items.append(Mark(BEGIN, x=end - 10, y=i, z=1000 + i, payload=first))
        if txn.origin is not None:
            items.append(Mark(ORIGIN, payload=txn.origin))
        items += [*txn.items, Mark(COMMIT, x=end - 10, y=end, z=i)]
    return items


def placed(txns: list[Txn], resume_lsn: int, only_local: bool) -> Iterator[tuple[int, int, Item]]:
    """What must be released, in order: position and item."""
    for i, txn in enumerate(txns):
        end, seq = 100 * (i + 1), 0
        if end <= resume_lsn or (only_local and txn.origin is not None):
            continue
        for item in txn.items:
            if isinstance(item, Row) or item.kind == MESSAGE or item.index == 1:
                yield end, seq, item
                seq += 1


def expected(txns: list[Txn], resume_lsn: int, only_local: bool) -> list[Line]:
    """What must be released of tables, in order."""
    lines: list[Line] = []
    for end, seq, item in placed(txns, resume_lsn, only_local):
        if isinstance(item, Row):
            lines.append((TABLES[item.version].name, "I", end, seq, item.id, item.note))
        elif item.kind == TRUNCATE:
            lines.append(("a", "T", end, seq, None, None))
    return lines


def expected_lsns(
    txns: list[Txn], resume_lsn: int, only_local: bool
) -> dict[tuple[int, int], int | None]:
    """LSN of each change of a table, by its position."""
    return {
        (end, seq): (item.lsn if isinstance(item, Row) else item.x) or None
        for end, seq, item in placed(txns, resume_lsn, only_local)
        if isinstance(item, Row) or item.kind == TRUNCATE
    }


def cut(items: list[Item], draw: Callable[[int], int]) -> list[list[Item]]:
    """Cut events into batches at places that `draw` picks."""
    batches: list[list[Item]] = [[relation_mark(of) for of in TABLES.values()]]
    for item in items:
        if draw(3) == 0:
            batches.append([])
        batches[-1].append(item)
    return batches


Sums = tuple[dict[str, int], dict[str, int], dict[str, Counts]]


def check_sums(sums: list[Sums], items: list[Item], sink: Sink) -> None:
    """Each stretch adds up; together they are the stream, and what landed is what is there."""
    for framed, landed, left_out in sums:
        assert framed == add([landed, *left_out.values()])
    kinds = zip(("transactions", "I", "U", "D", "T", "messages"), tally(items), strict=True)
    assert add(framed for framed, _, _ in sums) == add([dict(kinds)])
    ops = [{line[1]: 1} for line in sink.lines]
    system = {"transactions": len(sink.transactions), "messages": len(sink.messages)}
    assert add(landed for _, landed, _ in sums) == add([*ops, system])
    rows = dict.fromkeys(sink.assembler.left_out_rows, 0)
    for _, _, left_out in sums:
        for reason, counts in left_out.items():
            rows[reason] += sum(counts.values()) - counts.get("transactions", 0)
    assert sink.assembler.left_out_rows == rows


@settings(deadline=None)
@given(data=st.data(), txns=st.lists(transactions, max_size=6), only_local=st.booleans())
def test_rows_come_out_whole_and_in_order(
    data: st.DataObject, txns: list[Txn], only_local: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However the stream is cut and spooled, the model's rows come out."""
    resume = 100 * data.draw(st.integers(0, len(txns)))
    sink = Sink(
        tmp_path_factory.getbasetemp(), resume_lsn=resume, only_local=only_local,
        memory_limit=data.draw(st.sampled_from([0, 600, 1 << 20])),
        row_limit=data.draw(st.sampled_from([1, 5, 1000])),
        budget=data.draw(st.sampled_from([1, 1 << 20])),
    )  # fmt: skip
    batches = cut(stream(txns), lambda n: data.draw(st.integers(0, n)))
    sums = []
    for seq, batch in enumerate(batches):
        sink.assembler.absorb_bytes(entry(seq, batch))
        if data.draw(st.booleans()):
            sums.append(sink.assembler.sums())
            sink.assembler.committed()
    sums.append(sink.assembler.sums())
    sink.finish()
    check_sums(sums, [item for batch in batches for item in batch], sink)

    wanted = expected(txns, resume, only_local)
    assert sink.lines == wanted
    assert sink.lsns == expected_lsns(txns, resume, only_local)
    assert {row["gd_change_lsn"] for row in sink.messages} <= {13}
    landed = [
        (100 * (i + 1), txn) for i, txn in enumerate(txns)
        if 100 * (i + 1) > resume and not (only_local and txn.origin is not None)
    ]  # fmt: skip
    assert [
        (row["gd_lsn"], row["gd_first_lsn"], row["gd_commit_lsn"], row["gd_gid"])
        for row in sink.transactions
    ] == [(end, end - 99 if end > 100 else None, end - 10, None) for end, _ in landed]
    assert [row["origin"] for row in sink.transactions] == [
        None if txn.origin is None else txn.origin.decode() for _, txn in landed
    ]
    assert sum(row["rows"] for row in sink.transactions) == len(wanted) + len(sink.messages)
    assert not sink.assembler.is_transaction_open
    sink.spool.close()


@settings(deadline=None)
@given(data=st.data(), txns=st.lists(transactions, min_size=1, max_size=6))
def test_what_is_sent_again_is_shown_before_anything_is_released(
    data: st.DataObject, txns: list[Txn], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However it is cut and spooled: each repeated transaction, then once that all have come."""
    resume = 100 * data.draw(st.integers(0, len(txns) - 1)) + data.draw(st.sampled_from([0, 50]))
    sink = Sink(
        tmp_path_factory.getbasetemp(), resume_lsn=resume, is_compared=True, only_local=False,
        memory_limit=data.draw(st.sampled_from([0, 1 << 20])),
    )  # fmt: skip
    for seq, batch in enumerate(cut(stream(txns), lambda n: data.draw(st.integers(0, n)))):
        sink.assembler.absorb_bytes(entry(seq, batch))
    sink.finish()

    counts = [
        sum(not isinstance(item, Mark) or item.index != 3 for item in txn.items) for txn in txns
    ]
    assert sink.repeated == [
        (100 * (i + 1), 1000 + i, i, counts[i], txn.origin is not None)
        for i, txn in enumerate(txns) if 100 * (i + 1) <= resume
    ]  # fmt: skip
    assert sink.caught_up_at == [0]
    assert not sink.assembler.is_comparing
    assert [row["rows"] for row in sink.transactions] == counts[len(sink.repeated) :]
    sink.spool.close()


taken_back = st.sampled_from([Mark(TAKEN_BACK, index=1), Mark(TAKEN_BACK, index=2)])
upserts = st.builds(Txn, st.lists(rows | markers | taken_back, max_size=16).map(tuple))


def upsert_stream(txns: list[Txn], csns: Iterable[int]) -> list[Item]:
    """Spell transactions as events of a GaussDB, with their CSNs."""
    items: list[Item] = []
    for i, (txn, csn) in enumerate(zip(txns, csns, strict=True)):
        items += [Mark(BEGIN, 1, x=100 * i + 1, y=i, z=1000 + i), Mark(CSN, x=csn), *txn.items]
        items.append(Mark(COMMIT, 1, x=1000 + i, y=100 * (i + 1), z=i))
    return items


def without_taken_back(txn: Txn) -> tuple[list[Item], int]:
    """What lands of a transaction, a DELETE that nothing explains among it; and how many pairs do not."""
    kept: list[Item] = []
    count = 0
    for item in txn.items:
        if isinstance(item, Mark) and item.kind == TAKEN_BACK:
            at = max(
                (
                    i
                    for i, of in enumerate(kept)
                    if isinstance(of, Row) and of.version == item.index
                ),
                default=-1,
            )
            later = [(of.kind, of.index) for of in kept[at:] if isinstance(of, Mark)]
            if at >= 0 and (TRUNCATE, item.index) not in later:
                del kept[at]
                count += 1
                continue
        kept.append(item)
    return kept, count


@settings(deadline=None)
@given(
    data=st.data(),
    txns=st.lists(upserts, max_size=6),
    by_csn=st.booleans(),
    is_compared=st.booleans(),
)
def test_rows_that_were_taken_back_do_not_land(
    data: st.DataObject,
    txns: list[Txn],
    by_csn: bool,
    is_compared: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """However the stream is cut and spooled, by LSN and by CSN: the last of the table goes, and no other."""
    resume = 100 * data.draw(st.integers(0, len(txns))) if is_compared and not by_csn else 0
    sink = Sink(
        tmp_path_factory.getbasetemp(), resume_lsn=resume, by_csn=by_csn,
        is_compared=bool(resume),
        memory_limit=data.draw(st.sampled_from([0, 600, 1 << 20])),
        row_limit=data.draw(st.sampled_from([1, 5, 1000])),
        budget=data.draw(st.sampled_from([1, 1 << 20])),
    )  # fmt: skip
    csns = data.draw(st.permutations(range(1, len(txns) + 1)))
    sums = []
    batches = cut(upsert_stream(txns, csns), lambda n: data.draw(st.integers(0, n)))
    sink.csns_sent = True
    for seq, batch in enumerate(batches):
        sink.assembler.absorb_bytes(entry(seq, batch))
        if data.draw(st.booleans()):
            sums.append(sink.assembler.sums())
            sink.assembler.committed()
    if by_csn:
        sink.assembler.pass_csn(len(txns), 100 * len(txns))
    sums.append(sink.assembler.sums())
    sink.finish()
    check_sums(sums, [item for batch in batches for item in batch], sink)

    found = [without_taken_back(txn) for txn in txns]
    lands = [i for i in range(len(txns)) if 100 * (i + 1) > resume]
    wanted: list[Line] = []
    wanted_lsns = {}
    for i in lands:
        seq = 0
        for item in found[i][0]:
            end = 100 * (i + 1)
            if isinstance(item, Row):
                name = TABLES[item.version].name
                wanted.append((name, "I", end, seq, item.id, item.note))
            elif item.kind == TAKEN_BACK:
                wanted.append((TABLES[item.index].name, "D", end, seq, None, None))
            elif item.kind == TRUNCATE and item.index == 1:
                wanted.append(("a", "T", end, seq, None, None))
            elif item.kind == TRUNCATE:
                continue
            if isinstance(item, Row) or item.kind != MESSAGE:
                wanted_lsns[end, seq] = (item.lsn if isinstance(item, Row) else item.x) or None
            seq += 1
    assert sink.lines == wanted
    assert sink.lsns == wanted_lsns
    assert sorted(
        (row["gd_lsn"], row["gd_first_lsn"], row["gd_commit_lsn"]) for row in sink.transactions
    ) == [(100 * (i + 1), 100 * i + 1, None) for i in lands]
    left_out = add(of.get(account.SPECULATIVE, {}) for _, _, of in sums)
    count = sum(found[i][1] for i in lands)
    assert left_out == ({"D": count, "I": count} if count else {})
    assert [rows for _, _, _, rows, _ in sink.repeated] == [
        sum(not isinstance(item, Mark) or item.index != 3 for item in found[i][0])
        for i in range(len(txns)) if i not in lands
    ]  # fmt: skip
    sink.spool.close()


def test_a_stream_of_postgresql_takes_nothing_back(sink: Sink) -> None:
    """Its deletes have an old row: such a message is damaged."""
    items: list[Item] = [Mark(BEGIN, x=90), Row(1, 1, "x"), Mark(TAKEN_BACK, index=1)]
    with pytest.raises(SequenceError):
        sink.assembler.absorb_bytes(entry(1, items))


CAUGHT_UP = {
    "keepalive there": Mark(KEEPALIVE, x=500),
    "message there": Mark(MESSAGE, 0, x=500, payload=b"p\0c"),
}


@pytest.mark.parametrize("mark", CAUGHT_UP.values(), ids=CAUGHT_UP.keys())
def test_position_is_reached_without_a_transaction(tmp_path: Any, mark: Mark) -> None:  # Any: Path
    """What stands alone at the log's position tells that all before it has come."""
    sink = Sink(tmp_path, resume_lsn=500, is_compared=True)
    sink.assembler.absorb_bytes(entry(0, [dataclasses.replace(mark, x=499)]))
    assert sink.caught_up_at == []
    sink.assembler.absorb_bytes(entry(1, [mark, mark]))
    assert sink.caught_up_at == [0]


@pytest.fixture
def sink(tmp_path: Any) -> Sink:  # Any: Path
    """An assembler that was told of the tables."""
    made = Sink(tmp_path)
    made.assembler.absorb_bytes(entry(0, [relation_mark(of) for of in TABLES.values()]))
    return made


WRONG = {
    "rows outside": [Row(1, 1, "x")],
    "commit outside": [Mark(COMMIT, x=90, y=100)],
    "begin inside": [Mark(BEGIN, x=90), Mark(BEGIN, x=91)],
    "keepalive inside": [Mark(BEGIN, x=90), Mark(KEEPALIVE, x=95)],
    "message inside": [Mark(BEGIN, x=90), Mark(MESSAGE, 0, x=95, payload=b"p\0c")],
    "other commit": [Mark(BEGIN, x=90), Mark(COMMIT, x=91, y=100)],
    "lower end": [
        Mark(BEGIN, x=90), Mark(COMMIT, x=90, y=100), Mark(BEGIN, x=91), Mark(COMMIT, x=91, y=100),
    ],
    "unknown version": [Mark(BEGIN, x=90), Row(9, 1, "x"), Mark(COMMIT, x=90, y=100)],
}  # fmt: skip


@pytest.mark.parametrize("items", WRONG.values(), ids=WRONG.keys())
def test_wrong_order_is_refused(sink: Sink, items: list[Item]) -> None:
    """What the protocol forbids ends the session and releases nothing."""
    with pytest.raises(SequenceError):
        sink.assembler.absorb_bytes(entry(1, items))
    assert sink.lines == []


BEGUN: list[Item] = [Mark(BEGIN, x=90), Row(1, 1, "x"), Mark(TRUNCATE, index=1)]
WHOLE: list[Item] = [*BEGUN, Mark(MESSAGE, 1, payload=b"p\0c"), Mark(COMMIT, x=90, y=100)]


@pytest.mark.parametrize("items", [BEGUN, WHOLE], ids=["open", "committed"])
@pytest.mark.parametrize("kind", range(6))
def test_what_does_not_arrive_stops_the_collector(sink: Sink, kind: int, items: list[Item]) -> None:
    """One message that was framed and is not there, of any kind, is no entry's business."""
    framed = list(tally(items))
    framed[kind] += 1
    with pytest.raises(AccountError, match="nothing of it is committed"):
        sink.assembler.absorb_bytes(entry(1, items, framed=tuple(framed)))


def test_what_arrives_twice_stops_the_collector(sink: Sink) -> None:
    """A row that nobody framed is refused, also when it comes with a later batch."""
    sink.assembler.absorb_bytes(entry(1, BEGUN))
    with pytest.raises(AccountError, match="reader counted"):
        sink.assembler.absorb_bytes(entry(2, [Row(1, 1, "x")], framed=NONE))


def test_reasons_are_told(tmp_path: Any) -> None:  # Any: Path
    """What does not land is counted under why."""
    sink = Sink(tmp_path, resume_lsn=100, skip_empty=True, start_csn=50)
    known: list[Item] = [relation_mark(of) for of in TABLES.values()]
    origin = Mark(ORIGIN, payload=b"far")

    def txn(end: int, *items: Item) -> list[Item]:
        return [Mark(BEGIN, x=end - 10), *items, Mark(COMMIT, x=end - 10, y=end)]

    batches: list[list[Item]] = [
        [*known, *txn(100, Row(1, 1, "x"), Row(1, 2, "x"))],
        txn(200, origin, Row(2, 1, "x")),
        txn(300, Mark(CSN, x=49), Row(2, 1, "x")),
        txn(400, Row(3, 1, "x"), Mark(TRUNCATE, index=3), Row(1, 9, "x")),
        txn(500),
    ]
    for seq, batch in enumerate(batches):
        sink.assembler.absorb_bytes(entry(seq, batch))
    far = (0, 4, 0, 0, 0, 0)
    sink.assembler.absorb_bytes(entry(5, [], framed=(0, 7, 0, 0, 0, 0), filtered=far,
                                      before_start=(0, 3, 0, 0, 0, 0)))  # fmt: skip
    framed, landed, left_out = sink.assembler.sums()
    assert framed == {"transactions": 5, "I": 6 + 7, "T": 1}
    assert landed == {"transactions": 1, "I": 1}
    assert left_out == {
        "resent": {"transactions": 1, "I": 2},
        "origin": {"transactions": 1, "I": 1},
        "before-start": {"transactions": 1, "I": 1 + 3},
        "filtered": {"I": 4},
        "not-wanted": {"I": 1, "T": 1},
        "empty": {"transactions": 1},
    }
    assert tuple(account.REASONS) == REASONS


def test_message_waits_for_a_boundary_behind_it(sink: Sink) -> None:
    """Its end is unknown, so nothing is committed while it is the newest."""
    sink.assembler.absorb_bytes(entry(1, [Mark(MESSAGE, 0, x=500, payload=b"p\0hello")]))
    could = [sink.assembler.can_hand_over]
    for seq, lsn in ((2, 500), (3, 560)):
        sink.assembler.absorb_bytes(entry(seq, [Mark(KEEPALIVE, x=lsn)]))
        could.append(sink.assembler.can_hand_over)
    assert could == [False, False, True]
    assert sink.assembler.boundary_lsn == 560
    sink.finish()
    message = sink.messages[0]
    assert (message["gd_lsn"], message["gd_seq"], message["content"]) == (500, None, b"hello")


def test_ddl_messages_have_a_table_of_their_own(sink: Sink) -> None:
    """Those of a transaction under our prefix, numbered with the rows; others are messages."""
    prefix, content = b"gaussdecode.ddl\0", b'{"version": 1, "command_tag": "CREATE TABLE"}'
    sink.assembler.absorb_bytes(
        entry(
            0,
            [
                Mark(MESSAGE, 0, x=10, payload=prefix + content),
                Mark(BEGIN, x=90),
                Mark(MESSAGE, 1, x=60, payload=prefix + content),
                Mark(MESSAGE, 1, x=70, payload=b"gaussdecode.ddls\0" + content),
                Mark(MESSAGE, 1, x=80, payload=prefix + b"{"),
                Mark(COMMIT, x=90, y=100, z=7),
            ],
        )
    )
    framed, landed, _ = sink.assembler.sums()
    sink.finish()
    assert [(row["gd_seq"], row["command_tag"], row["content"]) for row in sink.ddl] == [
        (0, "CREATE TABLE", content), (2, None, b"{"),
    ]  # fmt: skip
    assert [row["gd_seq"] for row in sink.messages] == [None, 1]
    assert framed["messages"] == landed["messages"] == 4
    assert [row["rows"] for row in sink.transactions] == [3]


def test_rows_behind_ddl_go_by_it(tmp_path: Path) -> None:
    """A description in a transaction with a message waits for it, as for those of one before."""
    sink = Sink(tmp_path)
    told: list[str] = []

    class Ddl(DdlStates):
        def take(self, content: bytes, at: Position) -> None:
            told.append(f"{content.decode()} {at.lsn} {at.seq}")

        def numbers(self, oid: int, _wire: object) -> None:
            told.append(f"rows of {oid}")

    sink.tables.ddl = Ddl()
    ddl = Mark(MESSAGE, 1, x=60, payload=b"gaussdecode.ddl\0{}")
    sink.assembler.absorb_bytes(
        entry(0, [Mark(BEGIN, x=90), ddl, Mark(COMMIT, x=90, y=100, z=7), Mark(BEGIN, x=190), ddl])
    )
    sink.assembler.absorb_bytes(
        entry(
            1,
            [
                Mark(RELATION, index=2), Mark(TRUNCATE, index=2),
                Mark(COMMIT, x=190, y=200, z=8),
            ],
        )
    )  # fmt: skip
    assert told == ["{} 100 0", "{} 200 0", f"rows of {TABLES[2].oid}"]


def test_message_at_the_durable_position_is_new(tmp_path: Any) -> None:  # Any: Path
    """Its own LSN is where it begins: only what lies below is durable."""
    sink = Sink(tmp_path, resume_lsn=500)
    for lsn in (499, 500):
        sink.assembler.absorb_bytes(entry(0, [Mark(MESSAGE, 0, x=lsn, payload=b"p\0c")]))
    sink.finish()
    assert [message["gd_lsn"] for message in sink.messages] == [500]


def test_open_transaction_holds_the_boundary(sink: Sink) -> None:
    """Rows of a transaction that did not commit are not released."""
    sink.assembler.absorb_bytes(entry(1, [Mark(BEGIN, x=90), Row(1, 1, "x")]))
    sink.finish()
    assert sink.lines == []
    assert sink.assembler.boundary_lsn == 0
    assert sink.assembler.retained_bytes > 0


def test_empty_table_is_valid() -> None:
    """A relation that was never filled gives no rows and no memory."""
    landed = Tables(Schemas(), lambda s, n: f"{s}.{n}", list, lambda _: None).find(TABLES[1])
    accumulator = Accumulator(landed, *landed.kinds())
    table = table_rows(
        accumulator.take(), landed.schema, landed.columns, landed.names, 1,
        with_xid=False, with_time=False,
    )  # fmt: skip
    table.validate(full=True)
    assert table.num_rows == 0
    assert isinstance(table.schema.field("gd_old").type, pa.StructType)


def test_relation_record_survives_json() -> None:
    """What the reader sends is what the collector reads."""
    assert Relation.from_record(TABLES[1].to_record()) == TABLES[1]


def test_each_batch_counts_in_each_stage(tmp_path: Path) -> None:
    """By the moments it carries; what has no rows too, the end of the stream does not."""
    assembler = Sink(tmp_path).assembler
    now = time.monotonic_ns()
    # No longer than any machine is up that has come as far as here: its clock begins then.
    spans = [(1_000_000, 3_000_000), (0, 90_000_000_000), (2_000_001, 121_000_000_000)]
    with contextlib.closing(Ring.create(1 << 16, 128)) as ring:
        for seq, (receive, decode) in enumerate(spans):
            moments = (now - decode - receive, now - decode, now)
            ring.put_bytes(entry(seq, [], moments=moments), 0.0)
        ring.put_bytes(entry(len(spans), [], END), 0.0)
        while assembler.pump([ring], 1.0) != PUMP_END:
            pass
    found = {
        stage: {bound: n for bound, n in zip((*BOUNDS, None), of.counts, strict=True) if n}
        for stage, of in assembler.durations.items()
    }
    assert found["receive"] == {0.001: 2, 0.005: 1}
    assert found["decode"] == {0.005: 1, 120.0: 1, 300.0: 1}
    assert sum(found["collect"].values()) == len(spans)
    assert assembler.durations["receive"].seconds == pytest.approx(0.003000001)
    waited = assembler.durations["collect"].seconds
    assert 0 < waited <= 3 * (time.monotonic_ns() - now) / 1e9


def test_waiting_is_no_work(tmp_path: Path) -> None:
    """Not while it lasts either: what is shown meanwhile would fall at its end."""
    sink = Sink(tmp_path)
    seen: list[int] = []
    with contextlib.closing(Ring.create(1 << 16, 128)) as ring, ThreadPoolExecutor(1) as pool:
        pumped = pool.submit(lambda: [sink.assembler.pump([ring], 0.15) for _ in range(4)])
        while not pumped.done():
            seen.append(sink.assembler.worked_ns)
            time.sleep(
                0.0005
            )  # else it waits for the interpreter's lock, which is no wait for batches
        pumped.result()
    seen.append(sink.assembler.worked_ns)
    assert seen == sorted(seen)
    assert seen[-1] < sink.assembler.waited_ns


def test_what_the_collector_is_at_counts_already(tmp_path: Path) -> None:
    """One that hands over for long, or for ever, is seen to be busy meanwhile; nothing counts twice."""
    seen: list[int] = []

    class Slow(Sink):
        def flush(self, accumulator: Accumulator[Landed]) -> None:
            seen.append(self.assembler.worked_ns)
            super().flush(accumulator)
            seen.append(self.assembler.worked_ns)

    sink = Slow(tmp_path, row_limit=2)
    rows: list[Item] = [Row(1, number, "x") for number in range(5)]
    began = time.monotonic_ns()
    with contextlib.closing(Ring.create(1 << 16, 128)) as ring:
        batch = [relation_mark(TABLES[1]), Mark(BEGIN, x=10), *rows, Mark(COMMIT, x=10, y=11)]
        ring.put_bytes(entry(0, batch), 0.0)
        ring.put_bytes(entry(1, [], END), 0.0)
        while sink.assembler.pump([ring], 1.0) != PUMP_END:
            seen.append(sink.assembler.worked_ns)
    seen.append(sink.assembler.worked_ns)
    assert len(seen) > 2
    assert seen[0] > 0
    assert seen == sorted(seen)
    assert seen[-1] <= time.monotonic_ns() - began


def test_the_first_that_waits_for_an_entry_is_told(tmp_path: Path) -> None:
    """At once, or its entry would be as late as the look at the timers; those after it are not."""
    sink = Sink(tmp_path)
    told: list[int] = []
    with contextlib.closing(Ring.create(1 << 16, 128)) as ring:
        for number in range(4):
            begun = Mark(BEGIN, x=10 * number + 1)
            done = Mark(COMMIT, x=10 * number + 1, y=10 * number + 2)
            mark = [relation_mark(TABLES[1])] if not number else []
            ring.put_bytes(entry(number, [*mark, begun, Row(1, number, "x"), done]), 0.0)
            told.append(sink.assembler.pump([ring], 0.3))
            if number == 1:
                sink.assembler.committed()
    assert told == [PUMP_ATTENTION, PUMP_TIME, PUMP_ATTENTION, PUMP_TIME]


# ---- transactions that are streamed while they are open


@dataclasses.dataclass(frozen=True)
class Streamed:
    """A transaction in blocks; `cuts` say after how many items each but the last of them ends.

    Attributes:
        items: rows and truncates, each with the (sub)transaction it is of: 0 the transaction itself.
        cuts: rising.
        aborted: subtransactions that are rolled back.
        is_aborted: all of it is.
        is_prepared: before that, or before its commit.
        origin: of its first block.
    """

    items: tuple[tuple[int, Item], ...]
    cuts: tuple[int, ...]
    aborted: frozenset[int]
    is_aborted: bool
    is_prepared: bool
    origin: bytes | None


changes = rows | st.sampled_from([Mark(TRUNCATE, index=1), Mark(TRUNCATE, index=3)])
streamed = st.builds(
    Streamed,
    st.lists(st.tuples(st.integers(0, 3), changes), max_size=10).map(tuple),
    st.lists(st.integers(0, 10), max_size=3).map(lambda cuts: tuple(sorted(cuts))),
    st.frozensets(st.integers(1, 4), max_size=3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, None, b"far"]),
)
Step = tuple[int, list[Item]]  # whose block, or 0; what stands in it


def blocks_of(xid: int, txn: Streamed) -> list[Step]:
    """Spell one: its blocks, and the rollbacks after those that they concern."""
    bounds = [0, *(min(cut, len(txn.items)) for cut in txn.cuts), len(txn.items)]
    steps: list[Step] = []
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        block: list[Item] = [Mark(STREAM_START, number == 0, x=xid, y=xid + number)]
        if number == 0 and txn.origin is not None:
            block.append(Mark(ORIGIN, payload=txn.origin))
        for sub, item in txn.items[start:stop]:
            of = xid + sub
            block.append(
                dataclasses.replace(item, xid=of)
                if isinstance(item, Row)
                else dataclasses.replace(item, z=of)
            )
        steps.append((xid, block))
        ended = {sub for sub, _ in txn.items[:stop]} - {sub for sub, _ in txn.items[stop:]}
        steps += [
            (0, [Mark(STREAM_ABORT, x=xid, y=xid + sub)])
            for sub in sorted(ended & txn.aborted - {0})
        ]
    return steps


def kept_items(txn: Txn | Streamed) -> list[Item]:
    """What of a committed one counts."""
    if isinstance(txn, Txn):
        return list(txn.items)
    return [item for sub, item in txn.items if sub == 0 or sub not in txn.aborted]


@settings(deadline=None)
@given(
    data=st.data(),
    plain=st.lists(transactions, max_size=4),
    blocks=st.lists(streamed, max_size=5),
    only_local=st.booleans(),
)
def test_streamed_transactions_come_out_as_whole_ones(
    data: st.DataObject,
    plain: list[Txn],
    blocks: list[Streamed],
    only_local: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """However blocks interleave, are cut, spooled and rolled back: rows in the order of commits."""
    lives = {
        100 * (number + 1): [
            *blocks_of(100 * (number + 1), txn),
            *[(-1, [])] * txn.is_prepared,
            (0, []),
        ]
        for number, txn in enumerate(blocks)
    }
    waiting = [*plain]
    ended: list[Txn | Streamed] = []  # in the order of their commits
    steps: list[Step] = []
    while lives or waiting:
        xid = data.draw(st.sampled_from([*lives, *([0] if waiting else [])]))
        if xid == 0:
            ended.append(waiting.pop(0))
            steps.append((0, commits(ended)))
            continue
        owner, items = lives[xid].pop(0)
        gid, now = b"of %d" % xid, 100 * len(ended)
        if owner < 0:
            prepare = Mark(PREPARE, index=xid, x=now + 40, y=now + 50, z=7, payload=gid)
            steps.append((0, [prepare]))
            continue
        if lives[xid]:
            steps.append((owner, items))
            continue
        del lives[xid]
        txn = blocks[xid // 100 - 1]
        if txn.is_aborted and txn.is_prepared:
            steps.append((0, [Mark(ROLLBACK_PREPARED, index=xid, y=now + 60, payload=gid)]))
        elif txn.is_prepared:
            ended.append(txn)
            end = now + 100
            commit = Mark(COMMIT_PREPARED, index=xid, x=end - 10, y=end, z=7, payload=gid)
            steps.append((0, [commit]))
        elif txn.is_aborted:
            steps.append((0, [Mark(STREAM_ABORT, x=xid, y=xid)]))
        else:
            ended.append(txn)
            end = 100 * len(ended)
            steps.append((0, [Mark(STREAM_COMMIT, index=xid, x=end - 10, y=end, z=7)]))
    resume = 100 * data.draw(st.integers(0, len(ended)))
    is_compared = data.draw(st.booleans())
    sink = Sink(
        tmp_path_factory.getbasetemp(), resume_lsn=resume, only_local=only_local,
        is_compared=is_compared,
        memory_limit=data.draw(st.sampled_from([0, 1500, 1 << 20])),
        total_limit=data.draw(st.sampled_from([0, 3000, None])),
        row_limit=data.draw(st.sampled_from([1, 1000])),
    )  # fmt: skip
    marks: list[Item] = [
        relation_mark(of, is_streamed=data.draw(st.booleans())) for of in TABLES.values()
    ]
    sink.assembler.absorb_bytes(entry(0, marks))
    sums: list[Sums] = []
    every = list(marks)
    for owner, items in steps:
        for piece in pieces(items, lambda: data.draw(st.booleans())):
            sink.assembler.absorb_bytes(entry(0, piece, stream_xid=owner))
            every += piece
        if data.draw(st.booleans()):
            if not sink.assembler.is_comparing:  # before, nothing is committed
                sink.keep()
            sums.append(sink.assembler.sums())
            sink.assembler.committed()
    if not sink.assembler.is_comparing:
        sums.append(sink.assembler.sums())
        sink.finish()
        check_sums(sums, every, sink)
    shown = [Txn(tuple(kept_items(txn)), txn.origin) for txn in ended]
    assert sink.lines == expected(shown, resume, only_local)
    assert sink.lsns == expected_lsns(shown, resume, only_local)
    if not sink.assembler.is_comparing:
        assert [
            (row["gd_first_lsn"], row["gd_commit_lsn"], row["gd_gid"]) for row in sink.transactions
        ] == [
            (None, 100 * n - 10, None) if isinstance(txn, Txn) else (
                xid_of(txn, blocks), 100 * n - 10,
                f"of {xid_of(txn, blocks)}" if txn.is_prepared else None,
            )
            for n, txn in enumerate(ended, 1)
            if 100 * n > resume and not (only_local and txn.origin is not None)
        ]  # fmt: skip
    assert (sink.assembler.open_count, sink.assembler.prepared_transactions) == (0, [])
    assert sorted(sink.ended) == sorted(sink.files), "each file is told to have ended"
    assert (sink.assembler.retained_bytes, sink.assembler.spooled_bytes) == (0, 0)
    if is_compared:
        assert [(each[0], each[3]) for each in sink.repeated] == [
            (100 * (n + 1), sum(not isinstance(i, Mark) or i.index != 3 for i in txn.items))
            for n, txn in enumerate(shown) if 100 * (n + 1) <= resume
        ]  # fmt: skip
    sink.spool.close()


def xid_of(txn: Streamed, blocks: list[Streamed]) -> int:
    """Its number, and LSN of its first block; two may be equal, but none is another."""
    return next(100 * (n + 1) for n, other in enumerate(blocks) if other is txn)


def commits(ended: list[Txn | Streamed]) -> list[Item]:
    """The events of the newest, a plain one."""
    txn, end = ended[-1], 100 * len(ended)
    origin = [] if txn.origin is None else [Mark(ORIGIN, payload=txn.origin)]
    return [
        Mark(BEGIN, x=end - 10, z=9), *origin, *kept_items(txn), Mark(COMMIT, x=end - 10, y=end),
    ]  # fmt: skip


def pieces(items: list[Item], cut_here: Callable[[], bool]) -> list[list[Item]]:
    """Cut the events of a block, or of no block, into batches."""
    batches: list[list[Item]] = [[]]
    for item in items:
        if batches[-1] and cut_here():
            batches.append([])
        batches[-1].append(item)
    return batches


FIRST = Mark(STREAM_START, 1, x=7)
WRONG_BLOCKS: dict[str, list[Step]] = {
    "commit of nobody": [(0, [Mark(STREAM_COMMIT, index=7, x=90, y=100)])],
    "begins again": [(7, [FIRST]), (7, [FIRST])],
    "never began": [(7, [Mark(STREAM_START, 0, x=7)])],
    "rows of nobody": [(7, [Row(1, 1, "x", 7)])],
    "another's start": [(7, [Mark(STREAM_START, 1, x=8)])],
    "inside of another": [(0, [Mark(BEGIN, x=90)]), (7, [FIRST])],
    "begin in a block": [(7, [FIRST, Mark(BEGIN, x=90)])],
    "commit in a block": [(7, [FIRST]), (7, [Mark(STREAM_COMMIT, index=7, x=90, y=100)])],
    "message of no transaction": [(7, [FIRST, Mark(MESSAGE, 0, x=95, payload=b"p\0c")])],
    "keepalive in a block": [(7, [FIRST, Mark(KEEPALIVE, x=95)])],
    "commit inside": [(7, [FIRST]), (0, [Mark(BEGIN, x=90), Mark(STREAM_COMMIT, index=7, y=100)])],
    "abort inside": [(7, [FIRST]), (0, [Mark(BEGIN, x=90), Mark(STREAM_ABORT, x=7, y=7)])],
    "after its commit": [
        (7, [FIRST]), (0, [Mark(STREAM_COMMIT, index=7, x=90, y=100)]), (7, [Row(1, 1, "x", 7)]),
    ],
    "after its rollback": [
        (7, [FIRST]), (0, [Mark(STREAM_ABORT, x=7, y=7)]), (7, [Mark(STREAM_START, 0, x=7)]),
    ],
    "lower end": [
        (7, [FIRST]), (8, [Mark(STREAM_START, 1, x=8)]),
        (0, [Mark(STREAM_COMMIT, index=8, x=90, y=100)]),
        (0, [Mark(STREAM_COMMIT, index=7, x=80, y=100)]),
    ],
}  # fmt: skip


def check_refused(sink: Sink, steps: list[Step]) -> None:
    """The last step is an error, those before are none, and nothing is released."""
    for owner, items in steps[:-1]:
        sink.assembler.absorb_bytes(entry(1, items, stream_xid=owner))
    owner, items = steps[-1]
    with pytest.raises(SequenceError):
        sink.assembler.absorb_bytes(entry(1, items, stream_xid=owner))
    assert sink.lines == []


@pytest.mark.parametrize("steps", WRONG_BLOCKS.values(), ids=WRONG_BLOCKS.keys())
def test_wrong_order_of_blocks_is_refused(sink: Sink, steps: list[Step]) -> None:
    """Nothing that a server would never send is guessed at, and nothing of it is released."""
    check_refused(sink, steps)


def prepared(*blocks: Step, gid: bytes = b"g") -> list[Step]:
    """Transaction 7, prepared at 50."""
    return [*blocks, (0, [Mark(PREPARE, index=7, x=40, y=50, z=5, payload=gid)])]


def test_prepared_transaction_outlives_its_session(tmp_path: Any) -> None:  # Any: Path
    """Another assembler goes on with the file, whatever its versions are called."""
    first = Sink(tmp_path, memory_limit=0)
    first.assembler.absorb_bytes(entry(0, [relation_mark(of) for of in TABLES.values()]))
    rows: list[Item] = [
        Mark(STREAM_START, 1, x=7, y=4), Mark(ORIGIN, payload=b"far"), Row(2, 1, "x", 7, 5),
        Row(1, 2, None, 8, 6), Row(2, 3, "gone", 9), Mark(TRUNCATE, index=1, x=8, z=7),
        Mark(TRUNCATE, index=3, z=7),
    ]  # fmt: skip
    steps = prepared((7, rows), (0, [Mark(STREAM_ABORT, x=7, y=9)]))
    for owner, items in steps:
        first.assembler.absorb_bytes(entry(1, items, stream_xid=owner))
    assert first.assembler.boundary_lsn == 50
    assert first.assembler.sums() == ({}, {}, {}), "it waits"
    assert first.assembler.spooled_bytes > 0
    first.keep()
    assert first.assembler.spooled_bytes == 0
    assert first.assembler.prepared_transactions == [(b"g", 7, 50, 5, 5)]
    kept = first.files[7]
    assert (kept.gid, kept.lsn, kept.origin, kept.aborted) == (b"g", 50, b"far", [9])

    commit = entry(1, [Mark(COMMIT_PREPARED, index=7, x=90, y=100, z=8, payload=b"g")])
    second = Sink(tmp_path, resume_lsn=50, only_local=False, kept=[kept])
    marks: list[Item] = [relation_mark(TABLES[3])]
    second.assembler.absorb_bytes(entry(0, marks))
    assert second.assembler.prepared_transactions == first.assembler.prepared_transactions
    second.assembler.absorb_bytes(commit)
    assert second.assembler.sums()[2] == {"aborted": {"I": 1}, "not-wanted": {"T": 1}}
    second.finish()
    assert second.lines == [
        ("b", "I", 100, 0, 1, "x"), ("a", "I", 100, 1, 2, None), ("a", "T", 100, 2, None, None),
    ]  # fmt: skip
    assert second.lsns == {(100, 0): 5, (100, 1): 6, (100, 2): 8}
    assert [
        (row["gd_first_lsn"], row["gd_commit_lsn"], row["gd_gid"]) for row in second.transactions
    ] == [(4, 90, "g")]
    assert (second.ended, second.assembler.prepared_transactions) == ([7], [])

    third = Sink(tmp_path, resume_lsn=50, only_local=False, kept=[kept])
    third.assembler.absorb_bytes(entry(0, [relation_mark(of) for of in TABLES.values()]))
    for owner, items in steps:  # sent again
        third.assembler.absorb_bytes(entry(1, items, stream_xid=owner))
    third.assembler.absorb_bytes(commit)
    third.finish()
    assert (third.lines, third.lsns) == (second.lines, second.lsns)
    assert third.transactions == second.transactions


def test_end_of_a_prepared_transaction_that_landed(tmp_path: Any) -> None:  # Any: Path
    """Sent again without its rows, it is compared as far as it is known, and passed over."""
    sink = Sink(tmp_path, resume_lsn=100, is_compared=True)
    commit = Mark(COMMIT_PREPARED, index=7, x=90, y=100, z=8, payload=b"g")
    sink.assembler.absorb_bytes(entry(1, [commit]))
    assert sink.repeated == [(100, 7, 8, 0, False)]
    assert sink.caught_up_at == [0]


@pytest.mark.parametrize("kind", [COMMIT_PREPARED, ROLLBACK_PREPARED])
@pytest.mark.parametrize("resume", [50, 100])
def test_blocks_of_what_is_prepared_end_with_it(
    tmp_path: Any, kind: int, resume: int
) -> None:  # Any: Path
    """A server that begins behind a PREPARE may stream the rows once more, and send their end alone."""
    first = Sink(tmp_path)
    first.assembler.absorb_bytes(entry(0, [relation_mark(TABLES[1])]))
    for owner, items in prepared((7, [FIRST, Row(1, 1, "x", 7)])):
        first.assembler.absorb_bytes(entry(1, items, stream_xid=owner))
    first.keep()
    kept = [first.files[7]] if resume == 50 else []  # at 100 it has ended

    sink = Sink(tmp_path, resume_lsn=resume, kept=kept, memory_limit=0, is_compared=True)
    sink.assembler.absorb_bytes(entry(0, [relation_mark(TABLES[1])]))
    sink.assembler.absorb_bytes(entry(1, [FIRST, Row(1, 1, "x", 7)], stream_xid=7))
    assert sink.assembler.open_count == 1
    again: list[Item] = [Mark(STREAM_START, 0, x=7), Row(1, 1, "x", 7)]
    sink.assembler.absorb_bytes(entry(2, again, stream_xid=7))
    sink.assembler.absorb_bytes(entry(3, [Mark(kind, index=7, x=90, y=100, z=8, payload=b"g")]))
    assert sink.assembler.open_count == 0
    assert (sink.assembler.retained_bytes, sink.assembler.spooled_bytes) == (0, 0)
    assert sink.assembler.sums()[2]["resent"]["I"] == 2
    sink.finish()
    is_landed = kind == COMMIT_PREPARED and resume == 50
    assert sink.lines == [("a", "I", 100, 0, 1, "x")] * is_landed


WRONG_PREPARED: dict[str, list[Step]] = {
    "prepare of nobody": prepared(),
    "commit of nobody": [
        (0, [Mark(COMMIT_PREPARED, index=7, x=90, y=100, payload=b"g")]),
    ],
    "commit of another name": [
        *prepared((7, [Mark(STREAM_START, 1, x=7)])),
        (0, [Mark(COMMIT_PREPARED, index=7, x=90, y=100, payload=b"h")]),
    ],
    "prepared again": [
        *prepared((7, [Mark(STREAM_START, 1, x=7)])),
        *prepared((7, [Mark(STREAM_START, 1, x=7)]), gid=b"h"),
    ],
    "rows after it": [
        *prepared((7, [Mark(STREAM_START, 1, x=7)])), (7, [Row(1, 1, "x", 7)]),
    ],
    "commit as if streamed": [
        *prepared((7, [Mark(STREAM_START, 1, x=7)])),
        (0, [Mark(STREAM_COMMIT, index=7, x=90, y=100)]),
    ],
    "commit as if streamed, of blocks after it": [
        *prepared((7, [Mark(STREAM_START, 1, x=7)])), (7, [Mark(STREAM_START, 1, x=7)]),
        (0, [Mark(STREAM_COMMIT, index=7, x=90, y=100)]),
    ],
    "inside of another": [
        (7, [Mark(STREAM_START, 1, x=7)]),
        (0, [Mark(BEGIN, x=90), Mark(PREPARE, index=7, x=40, y=50)]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", WRONG_PREPARED.values(), ids=WRONG_PREPARED.keys())
def test_wrong_order_of_prepared_transactions_is_refused(sink: Sink, steps: list[Step]) -> None:
    """What would be a loss is an error, and nothing of it is released."""
    check_refused(sink, steps)


def test_rollbacks_of_nobody_are_counted(sink: Sink) -> None:
    """Some servers send them for transactions that were never streamed."""
    sink.assembler.absorb_bytes(
        entry(1, [Mark(STREAM_ABORT, x=7, y=7), Mark(STREAM_ABORT, x=7, y=9)])
    )
    assert sink.assembler.stray_count == 2


@pytest.mark.parametrize("is_rolled_back", [True, False])
def test_messages_beside_a_rollback_are_not_guessed(sink: Sink, is_rolled_back: bool) -> None:
    """Nobody can tell whether the message was of the savepoint."""
    message = Mark(MESSAGE, 1, z=7, payload=b"p\0c")
    sink.assembler.absorb_bytes(entry(1, [FIRST, Row(1, 1, "x", 8), message], stream_xid=7))
    if is_rolled_back:
        sink.assembler.absorb_bytes(entry(2, [Mark(STREAM_ABORT, x=7, y=8)]))
    commit: list[Item] = [Mark(STREAM_COMMIT, index=7, x=90, y=100)]
    if is_rolled_back:
        with pytest.raises(InexactStreamError, match="0/64"):
            sink.assembler.absorb_bytes(entry(3, commit))
        assert sink.lines == []
    else:
        sink.assembler.absorb_bytes(entry(3, commit))
        sink.finish()
        assert len(sink.messages) == 1


def test_what_has_landed_needs_no_exactness(tmp_path: Any) -> None:  # Any: Path
    """Sent again and not compared, it is skipped whatever it holds."""
    sink = Sink(tmp_path, resume_lsn=100)
    message = Mark(MESSAGE, 1, z=7, payload=b"p\0c")
    sink.assembler.absorb_bytes(entry(0, [relation_mark(TABLES[1])]))
    sink.assembler.absorb_bytes(entry(1, [FIRST, Row(1, 1, "x", 8), message], stream_xid=7))
    sink.assembler.absorb_bytes(entry(2, [Mark(STREAM_ABORT, x=7, y=8)]))
    sink.assembler.absorb_bytes(entry(3, [Mark(STREAM_COMMIT, index=7, x=90, y=100)]))
    assert sink.assembler.resent_count == 1
    sink.finish()
    assert (sink.lines, sink.messages) == ([], [])


def test_relation_of_a_rolled_back_transaction_changes_no_table(tmp_path: Any) -> None:  # Any: Path
    """Its description is not registered, whichever decoder told of it, and whenever."""
    sink = Sink(tmp_path)
    told = relation_mark(TABLES[1], is_streamed=True)
    sink.assembler.absorb_bytes(entry(0, [told, FIRST, Row(1, 1, "x", 7)], stream_xid=7))
    sink.assembler.absorb_bytes(entry(1, [Mark(STREAM_ABORT, x=7, y=7)]))
    sink.assembler.absorb_bytes(entry(2, [told, Mark(KEEPALIVE, x=50)]))
    assert len(sink.held) == 3, "the system tables alone"
    plain: list[Item] = [Mark(BEGIN, x=90), Row(1, 2, "y"), Mark(COMMIT, x=90, y=100)]
    sink.assembler.absorb_bytes(entry(3, plain))
    assert len(sink.held) == 4


def test_many_open_transactions(tmp_path: Any) -> None:  # Any: Path
    """5,000 of them, each in three blocks, in memory as bounded as it is with one."""
    sink = Sink(tmp_path, total_limit=100_000)
    sink.assembler.absorb_bytes(entry(0, [relation_mark(TABLES[1])]))
    most = 0
    for block in range(3):
        for xid in range(1, 5001):
            start = Mark(STREAM_START, block == 0, x=xid)
            sink.assembler.absorb_bytes(
                entry(1, [start, Row(1, 3 * xid + block, None, xid)], stream_xid=xid)
            )
            most = max(most, sink.assembler.retained_bytes)
    assert sink.assembler.open_count == 5000
    assert most <= 100_000
    for xid in range(5000, 0, -1):
        end = 100 * (5001 - xid)
        sink.assembler.absorb_bytes(entry(2, [Mark(STREAM_COMMIT, index=xid, x=end - 10, y=end)]))
    sink.finish()
    assert [line[4] for line in sink.lines] == [
        3 * xid + block for xid in range(5000, 0, -1) for block in range(3)
    ]
    assert sink.assembler.spooled_bytes == 0
    sink.spool.close()


# ---- by CSN


@dataclasses.dataclass(frozen=True)
class Numbered:
    """One transaction of a GaussDB stream, with its CSN."""

    csn: int
    txn: Txn


def gauss_stream(numbered: list[Numbered]) -> list[Item]:
    """Spell transactions as a GaussDB stream does; *i* ends at ``100 * (i + 1)``."""
    items: list[Item] = []
    for i, of in enumerate(numbered):
        items.append(Mark(BEGIN, flags=1, x=5, y=i, z=1000 + i))
        items.append(Mark(CSN, x=of.csn))
        if of.txn.origin is not None:
            items.append(Mark(ORIGIN, payload=of.txn.origin))
        items += [*of.txn.items, Mark(COMMIT, flags=1, x=1000 + i, y=100 * (i + 1), z=i)]
    return items


@settings(deadline=None)
@given(data=st.data(), txns=st.lists(transactions, max_size=8), only_local=st.booleans())
def test_turns_are_in_the_order_of_csns(
    data: st.DataObject, txns: list[Txn], only_local: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However CSNs and commits are in order, the stream is cut, spooled and passed."""
    csns = data.draw(st.lists(st.integers(1, 12), min_size=len(txns), max_size=len(txns)))
    numbered = [Numbered(csn, txn) for csn, txn in zip(csns, txns, strict=True)]
    ends = [100 * (i + 1) for i in range(len(txns))]
    lands = [not (only_local and txn.origin is not None) for txn in txns]
    sink = Sink(
        tmp_path_factory.getbasetemp(), by_csn=True, only_local=only_local,
        memory_limit=data.draw(st.sampled_from([0, 600, 1 << 20])),
        total_limit=data.draw(st.sampled_from([None, 0, 2000])),
        row_limit=data.draw(st.sampled_from([1, 5, 1000])),
        budget=data.draw(st.sampled_from([1, 1 << 20])),
    )  # fmt: skip
    assembler = sink.assembler
    batches = cut(gauss_stream(numbered), lambda n: data.draw(st.integers(0, n)))
    sums = []
    arrived = 0
    for seq, batch in enumerate(batches):
        assembler.absorb_bytes(entry(seq, batch))
        arrived += sum(isinstance(item, Mark) and item.kind == COMMIT for item in batch)
        assert assembler.arrived_csn == max(csns[:arrived], default=0)
        if data.draw(st.booleans()):
            # Everything up to there has come; every commit up to that LSN is not above it.
            csn = data.draw(st.integers(0, min(csns[arrived:], default=13) - 1))
            lsn = min([end for end, of in zip(ends, csns, strict=True) if of > csn] or [900]) - 1
            assembler.pass_csn(csn, lsn)
            passed = max(assembler.last_csn, csn)
            assert assembler.last_csn == passed
            turns = [i for i in range(arrived) if csns[i] <= passed and lands[i]]
            assert assembler.transaction_count == len(turns)
            assert assembler.finished_count == sum(lands[:arrived]) - len(turns)
            sums.append(assembler.sums())
            assembler.committed()
    assembler.pass_csn(12, 900)
    assert (assembler.finished_count, assembler.retained_bytes, assembler.spooled_bytes) == (
        0,
        0,
        0,
    )
    assert (assembler.last_csn, assembler.boundary_lsn) == (12, 900)
    sums.append(assembler.sums())
    sink.relieve()
    order = sorted((i for i, land in enumerate(lands) if land), key=lambda i: (csns[i], ends[i]))
    assert [row["gd_lsn"] for row in sink.transactions] == [ends[i] for i in order]
    assert [row["gd_csn"] for row in sink.transactions] == [csns[i] for i in order]
    for table in ("a", "b"):
        seen = [line[2] for line in sink.lines if line[0] == table]
        assert list(dict.fromkeys(seen)) == [ends[i] for i in order if ends[i] in seen]
    sink.finish()
    check_sums(sums, [item for batch in batches for item in batch], sink)
    assert sink.lines == expected(txns, 0, only_local)
    sink.spool.close()


@dataclasses.dataclass
class Reading:
    """One session after the other over a log, with a spool that holds a few batches.

    Attributes:
        low: position of the landing.
        csn: everything up to it has landed.
        landed: CSNs in the order in which they did.
    """

    log: list[Numbered]
    tells_csn_first: bool
    bound: int
    low: int = 0
    csn: int = 0
    first_csn: int = 0
    landed: list[int] = dataclasses.field(default_factory=list)

    def items(self) -> list[Item]:
        """What the server sends: all that ends after the position."""
        found: list[Item] = []
        for i, of in enumerate(self.log):
            if 100 * (i + 1) <= self.low:
                continue
            told = Mark(CSN, x=of.csn)
            end = Mark(COMMIT, flags=1, x=1000 + i, y=100 * (i + 1), z=i)
            begin = Mark(BEGIN, flags=1, x=5, y=i, z=1000 + i)
            if self.tells_csn_first:
                found += [begin, told, *of.txn.items, end]
            else:
                found += [begin, *of.txn.items, told, end]
        return found

    def session(self, directory: Any, draw: Callable[[int], int]) -> bool:  # Any: Path
        """Read all, and land what may be; says whether more is to be read again."""
        until = 100 * len(self.log) if self.csn else 0
        sink = Sink(
            directory, by_csn=True, resume_lsn=self.low, resume_csn=self.csn, resume_until=until,
            memory_limit=0, first_csn=self.first_csn, most_bytes=self.bound,
        )  # fmt: skip
        assembler = sink.assembler
        assembler.absorb_bytes(entry(0, [relation_mark(of) for of in TABLES.values()]))
        sent = self.items()
        while sent:
            size = draw(20) + 20
            assembler.absorb_bytes(entry(1, sent[:size]))
            del sent[:size]
        highest = max(of.csn for of in self.log)
        given_up = assembler.least_given_up
        self.csn = highest if given_up is None else min(highest, given_up - 1)
        assembler.pass_csn(self.csn, 10**6)
        assembler.sums()
        self.low = min(assembler.boundary_lsn, 100 * len(self.log))
        self.first_csn = assembler.lost_csn
        sink.relieve()
        self.landed += [row["gd_csn"] for row in sink.transactions]
        sink.spool.close()
        return given_up is not None


@settings(deadline=None)
@given(data=st.data(), tells_csn_first=st.booleans())
def test_what_has_no_room_is_read_again(
    data: st.DataObject, tells_csn_first: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However CSNs and commits are in order, and small and large: each lands once, by CSN, before long."""
    count = data.draw(st.integers(1, 12))
    csns = data.draw(st.permutations(range(1, count + 1)))
    sizes = data.draw(st.lists(st.sampled_from([1, 20, 60]), min_size=count, max_size=count))
    log = [
        Numbered(csn, Txn((Row(1, csn, "x" * 50),) * size))
        for csn, size in zip(csns, sizes, strict=True)
    ]
    reading = Reading(log, tells_csn_first, 16_000)
    sessions = 1
    while reading.session(tmp_path_factory.getbasetemp(), lambda n: data.draw(st.integers(0, n))):
        sessions += 1
        assert sessions <= 3 * count + 1
    assert reading.landed == list(range(1, count + 1))


def numbered_batch(seq: int, csn: int, end: int) -> bytes:
    """One transaction of one row."""
    items: list[Item] = [Mark(BEGIN, flags=1, x=5), Mark(CSN, x=csn), Row(1, end, "x")]
    if not csn:
        del items[1]
    return bytes(entry(seq, [relation_mark(TABLES[1]), *items, Mark(COMMIT, flags=1, y=end)]))


def test_csn_that_was_passed_is_refused(tmp_path: Any) -> None:  # Any: Path
    """A late transaction is an error, and nothing of it lands."""
    sink = Sink(tmp_path, by_csn=True, resume_lsn=100, resume_csn=7)
    sink.assembler.absorb_bytes(numbered_batch(0, 6, 100))  # sent again
    assert sink.assembler.resent_count == 1
    sink.assembler.absorb_bytes(numbered_batch(1, 9, 200))
    sink.assembler.pass_csn(8, 150)
    assert sink.assembler.boundary_lsn == 150
    with pytest.raises(SequenceError, match=r"CSN 8 came after all up to CSN 8 had landed"):
        sink.assembler.absorb_bytes(numbered_batch(2, 8, 300))
    assert sink.assembler.transaction_count == 0


def test_by_csn_everything_has_one(tmp_path: Any) -> None:  # Any: Path
    sink = Sink(tmp_path, by_csn=True)
    with pytest.raises(SequenceError, match="a transaction without a CSN"):
        sink.assembler.absorb_bytes(numbered_batch(0, 0, 100))


@pytest.mark.parametrize("by_csn", [False, True])
def test_a_csn_with_flags_is_refused(tmp_path: Any, *, by_csn: bool) -> None:  # Any: Path
    """A file could not hold it, and an entry would have it as a bound for ever."""
    sink = Sink(tmp_path, by_csn=by_csn)
    sink.assembler.absorb_bytes(numbered_batch(0, 2**62 - 1, 100))
    with pytest.raises(SequenceError, match="has CSN 9223372036854775813, and the greatest"):
        sink.assembler.absorb_bytes(numbered_batch(1, 2**63 + 5, 200))


def test_turns_in_one_batch_share_it(tmp_path: Any) -> None:  # Any: Path
    """A batch of many small transactions is kept once, and read back once."""
    sink = Sink(tmp_path, by_csn=True, memory_limit=0)
    reads: list[int] = []
    read_into = sink.spool.read_into

    def noted(offset: int, target: memoryview) -> None:
        reads.append(offset)
        read_into(offset, target)

    count = 50
    numbered = [Numbered(count - i, Txn((Row(1, i, "x" * 50),))) for i in range(count)]
    batch = entry(0, [*(relation_mark(of) for of in TABLES.values()), *gauss_stream(numbered)])
    sink.assembler.absorb_bytes(batch)
    assert sink.assembler.spooled_bytes == len(batch)
    sink.spool.read_into = noted  # type: ignore[method-assign]
    sink.assembler.pass_csn(count, 10**6)
    assert len(reads) == 1
    assert sink.assembler.spooled_bytes == 0
    assert [row["gd_csn"] for row in sink.transactions] == []
    sink.relieve()
    assert [row["gd_csn"] for row in sink.transactions] == list(range(1, count + 1))
    sink.spool.close()
