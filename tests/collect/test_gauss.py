"""What a GaussDB stream tells beside its rows, on its way to rows and entries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import gausswire
from kit.entries import BEGIN, COMMIT, CSN, NOTICE, ORIGIN, Item, Mark, Row, entry, relation
from kit.entries import relation_mark as describe

from gaussdecode.collect.collector import Collector, CollectorSettings
from gaussdecode.collect.spool import Spool
from gaussdecode.collect.suspects import LIMIT, QUIET_SECONDS, Suspects
from gaussdecode.collect.tables import Tables
from gaussdecode.collect.unlanded import Unlanded
from gaussdecode.errors import EX_CONFIG, SequenceError, SuspectError
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.request import EntryRequest, RowGroup

TABLE = relation(1, "t")
TIME_US = 1_700_000_000_000_000
Record = dict[str, Any]  # Any: row values


class Writer:
    """Remembers what it was given, in order."""

    commit_seconds = 0.0
    visible_seconds = 0.0
    largest_file_bytes = 0
    generation = 1
    is_crowded = False

    def __init__(self) -> None:
        self.requests: list[EntryRequest] = []
        self.rows: dict[str, list[Record]] = {}

    def write(self, group: RowGroup) -> None:
        group.table.validate(full=True)
        self.rows.setdefault(group.table_dir, []).extend(group.table.to_pylist())

    def commit(self, request: EntryRequest) -> None:
        self.requests.append(request)

    def note(self, request: EntryRequest) -> None:
        self.requests.append(request)

    def end(self) -> None:
        """Nothing is refused here."""


class Schemas:
    """One schema per table."""

    def schema_id_for(self, table: str, record: Record) -> tuple[str, bool]:
        return f"{table}-1", False


Make = Callable[..., tuple[Collector, Writer]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a collector and its writer; settings by name."""

    def build(**settings: Any) -> tuple[Collector, Writer]:  # Any: of the settings
        bounds: dict[str, Any] = {  # Any: as above
            "row_group_rows": 100, "row_group_bytes": 1 << 20, "memory_bytes": 1 << 22,
            "txn_memory_bytes": 1 << 20, "target_file_size": 1 << 20, "max_commit_interval": 3600.0,
            "only_local": True, "skip_empty_xacts": False, "include_xids": True,
            "include_timestamp": True,
        }  # fmt: skip
        tables = Tables(Schemas(), lambda _, name: name, list, lambda _: None)
        writer = Writer()
        collector = Collector(
            CollectorSettings(**{**bounds, **settings}), tables, writer,
            Spool(tmp_path, SpaceWait().run), SourcePosition(1, 1, 1), {},
        )  # fmt: skip
        collector.assembler.absorb_bytes(entry(0, [describe(TABLE)]))
        return collector, writer

    return build


def begin(first_lsn: int = 5, y: int = 0, z: int = 0) -> Mark:
    """BEGIN of a GaussDB stream; y is the time, z the xid."""
    return Mark(BEGIN, flags=1, x=first_lsn, y=y, z=z)


def commit(end_lsn: int, xid: int = 0, time: int = 0) -> Mark:
    """COMMIT of a GaussDB stream."""
    return Mark(COMMIT, flags=1, x=xid, y=end_lsn, z=time)


def collect(collector: Collector, *items: Item) -> None:
    """Absorb events as one batch."""
    collector.assembler.absorb_bytes(entry(1, list(items)))


def facts(row: Record) -> tuple[Any, ...]:  # Any: row values
    """The columns that a transaction shares."""
    time = row["gd_ts"]
    return row["gd_lsn"], row["gd_csn"], row["gd_xid"], time and int(time.timestamp() * 1e6)


def test_facts_come_from_whichever_side_has_them(make: Make) -> None:
    """CSN, xid and time of BEGIN or of COMMIT; where neither has one it is NULL."""
    collector, writer = make()
    collect(
        collector,
        *(begin(y=TIME_US, z=7), Mark(CSN, x=40), Row(1, 1, "a"), commit(100)),
        *(begin(), Row(1, 2, "b"), Mark(CSN, x=41), commit(200, 2**40, TIME_US)),
        *(begin(), Row(1, 3, "c"), commit(300)),
        *(begin(z=9), Mark(CSN, x=43), Row(1, 4, "d"), commit(400, 9)),
    )
    collector._commit_if(is_due=True)
    assert [facts(row) for row in writer.rows["t"]] == [
        (100, 40, 7, TIME_US),
        (200, 41, 2**40, TIME_US),
        (300, None, None, None),
        (400, 43, 9, None),
    ]
    (request,) = writer.requests
    assert (request.position.lsn, request.position.csn) == (400, 43)


def test_entries_say_the_least_and_greatest_csn(make: Make) -> None:
    """Of their own transactions, in whatever order they come; nothing where there is none."""
    collector, writer = make(row_group_rows=2)
    for number, csns in enumerate(((7, 3, 9, 5), (), (8,), (4, 6))):
        for at, csn in enumerate(csns):
            end = 100 * number + at + 10
            collect(collector, begin(), Mark(CSN, x=csn), Row(1, csn, "a"), commit(end))
        if not csns:
            collect(collector, begin(), Row(1, 1, "a"), commit(100 * number + 10))
        collector._commit_if(is_due=True)
    assert [request.extra.get("csns") for request in writer.requests] == [
        {"least": 3, "greatest": 9},
        None,
        {"least": 8, "greatest": 8},
        {"least": 4, "greatest": 6},
    ]
    assert [request.position.csn for request in writer.requests] == [5, 5, 8, 6]


def test_the_oldest_commit_that_has_not_landed_is_known(make: Make) -> None:
    """By its BEGIN while it comes, then by its COMMIT, and until its entry is durable."""
    collector, _ = make()
    assert collector.unlanded(0) == Unlanded(complete_lsn=collector.assembler.boundary_lsn)
    collect(collector, begin(y=3_000_000), Row(1, 1, "a"))
    assert collector.unlanded(0).oldest_time == 3.0
    collect(collector, commit(100, time=4_000_000), begin(), Row(1, 2, "b"), commit(200))
    collect(collector, begin(), Row(1, 3, "c"), commit(300, time=6_000_000))
    assert collector.unlanded(0) == Unlanded(oldest_time=4.0)
    collector._commit_if(is_due=True)
    collect(collector, begin(), Row(1, 4, "d"), commit(400, time=8_000_000))
    assert collector.unlanded(299) == Unlanded(oldest_time=4.0)
    assert collector.unlanded(300) == Unlanded(oldest_time=8.0, landed_time=6.0)
    collector._commit_if(is_due=True)
    assert collector.unlanded(400) == Unlanded(landed_time=8.0, complete_lsn=400)


def test_csn_that_comes_late_leaves_earlier_rows_null(make: Make) -> None:
    """Rows before the first with a CSN have none."""
    collector, writer = make()
    collect(collector, begin(), Row(1, 1, "a"), Row(1, 2, "b"), commit(100))
    collect(collector, begin(), Mark(CSN, x=5), Row(1, 3, "c"), commit(200))
    collector._commit_if(is_due=True)
    assert [row["gd_csn"] for row in writer.rows["t"]] == [None, None, 5]


def test_user_and_origin(make: Make) -> None:
    """They land with the transaction, and do not stay for the next one."""
    collector, writer = make(only_local=False)
    named = (Mark(CSN, x=5, payload="jörg".encode()), Mark(ORIGIN, payload=b"12"))
    collect(collector, begin(), *named, commit(100), begin(), Mark(CSN, x=6), commit(200))
    collector._commit_if(is_due=True)
    found = [(row["user"], row["origin"]) for row in writer.rows["gd_transactions"]]
    assert found == [("jörg", "12"), (None, None)]


def test_empty_commits_are_no_content(make: Make) -> None:
    """Nothing lands of them; the position moves by an idle entry."""
    collector, writer = make(skip_empty_xacts=True)
    collect(collector, *(mark for lsn in (100, 200) for mark in (begin(), commit(lsn))))
    assert collector.assembler.waiting_count == 0
    assert collector.assembler.empty_count == 2
    collector._commit_if(is_due=True)
    (request,) = writer.requests
    assert (request.kind, request.position.lsn) == (EntryKind.IDLE, 200)
    assert writer.rows == {}


def test_transactions_below_the_start_are_left_out(make: Make) -> None:
    """A lower CSN than the start's drops the transaction, its position counts."""
    collector, writer = make(start_csn=6)
    collect(collector, begin(), Mark(CSN, x=5), Row(1, 1, "a"), commit(100))
    collect(collector, begin(), Mark(CSN, x=6), Row(1, 2, "b"), commit(200))
    collector._commit_if(is_due=True)
    assert [row["id"] for row in writer.rows["t"]] == [2]


def test_transactions_of_excluded_users_are_left_out(make: Make) -> None:
    """Whole, in one batch or in many, by the whole name; positions go on, and the sums say why."""
    collector, writer = make(excluded_users=("mallory", "jörg"), txn_memory_bytes=1)
    for number, name in enumerate(("alice", "mallory", "jörg", "mallor", "malloryx", "bob"), 1):
        named = Mark(CSN, x=number, payload=name.encode())
        collect(collector, begin(), named, Row(1, number, "a"))
        collect(collector, Row(1, number, "b"), commit(100 * number))
    collect(collector, begin(), Row(1, 9, "c"), commit(900))
    assert collector.assembler.spooled_count == 4
    framed, landed, left_out = collector.assembler.sums()
    assert framed == {"transactions": 7, "I": 13}
    assert landed == {"transactions": 5, "I": 9}
    assert left_out == {"user": {"transactions": 2, "I": 4}}
    collector._commit_if(is_due=True)
    assert [row["id"] for row in writer.rows["t"]] == [1, 1, 4, 4, 5, 5, 6, 6, 9]
    named_users = [row["user"] for row in writer.rows["gd_transactions"]]
    assert named_users == ["alice", "mallor", "malloryx", "bob", None]
    assert writer.requests[-1].position.lsn == 900


@pytest.mark.parametrize("flags", [(0, 1), (1, 0)])
def test_kinds_of_streams_do_not_mix(make: Make, flags: tuple[int, int]) -> None:
    """A BEGIN of one protocol is not ended by a COMMIT of the other."""
    collector, _ = make()
    with pytest.raises(SequenceError):
        collect(collector, Mark(BEGIN, flags=flags[0], x=5), Mark(COMMIT, flags=flags[1], x=5, y=9))


def notice(*named: tuple[int, int, int, int]) -> Mark:
    """A notice that rows may be missing."""
    return Mark(NOTICE, index=1, payload=gausswire.ddl_notice(named).encode())


@pytest.mark.parametrize("is_inside", [False, True])
def test_suspects_are_written_down_first(make: Make, is_inside: bool) -> None:
    """The suspect entry precedes the rows' and moves no position, wherever the notice stood."""
    collector, writer = make()
    told = notice((77, 0x10, 0x90, 0x50))
    rows: list[Item] = [begin(), Row(1, 1, "a"), commit(100, 77)]
    rows.insert(1 if is_inside else 0, told)
    collect(collector, *rows)
    collector._commit_if(is_due=True)
    suspect, data = writer.requests
    assert (suspect.kind, suspect.position.lsn) == (EntryKind.SUSPECT, 1)
    assert suspect.extra["transactions"] == [
        {"xid": 77, "first_lsn": 0x10, "final_lsn": 0x90, "skip_start_lsn": 0x50}
    ]
    assert (suspect.extra["from_lsn"], suspect.extra["until_lsn"]) == (0x50, 0x90)
    assert (data.kind, data.position.lsn) == (EntryKind.DATA, 100)
    assert collector.suspect_count == 1


def test_suspects_do_not_wait_for_rows(make: Make) -> None:
    """A notice of transactions that never come is written down after the interval."""
    collector, writer = make(max_commit_interval=1e-9)
    collect(collector, notice((77, 1, 3, 2)))
    assert collector._is_due()
    collector._commit_if(is_due=True)
    assert [request.kind for request in writer.requests] == [EntryKind.SUSPECT]


def test_many_suspects_are_bounded(make: Make) -> None:
    """Past the limit they are written down at once."""
    collector, writer = make()
    collect(collector, notice(*((xid, 1, 3, 2) for xid in range(LIMIT))))
    (request,) = writer.requests
    assert len(request.extra["transactions"]) == LIMIT
    collector._commit_if(is_due=True)
    assert len(writer.requests) == 1


def test_notice_that_names_nobody_is_an_open_suspect() -> None:
    """Another version may word it otherwise: then nothing is sure from there on."""
    suspects = Suspects(lambda: 0.0)
    suspects.add("partial modification may be lost", 500)
    extra = suspects.describe()
    assert extra is not None
    assert (extra["from_lsn"], extra["is_open"], extra["transactions"]) == (500, True, [])
    suspects.forget()
    assert suspects.describe() is None


def test_notices_without_end_make_few_entries(make: Make) -> None:
    """What follows waits for an entry, or ten minutes; the first is told at once."""
    now = [0.0]
    suspects = Suspects(lambda: now[0])
    told = gausswire.ddl_notice([(77, 1, 3, 2)])
    described = []
    while now[0] < 4 * QUIET_SECONDS:
        suspects.add(told, 1)
        if suspects.is_due(30.0):
            described.append(now[0])
            assert suspects.describe() is not None
            suspects.forget()
        now[0] += 1.0
    assert described == [
        30.0,
        30.0 + QUIET_SECONDS,
        30.0 + 2 * QUIET_SECONDS,
        30 + 3 * QUIET_SECONDS,
    ]

    collector, writer = make(max_commit_interval=1e-9)
    for end in (100, 200):  # whatever waits is said before the position passes it
        collect(collector, notice((end, 1, 3, 2)), begin(), Row(1, 1, "a"), commit(end, 77))
        collector._commit_if(is_due=True)
        collect(collector, notice((end + 1, 1, 3, 2)))
        assert not collector._is_due()
    kinds = [request.kind for request in writer.requests]
    assert kinds == 2 * [EntryKind.SUSPECT, EntryKind.DATA]
    assert [of["xid"] for of in writer.requests[2].extra["transactions"]] == [101, 200]


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_suspect_may_stop_everything(make: Make, is_inside: bool) -> None:
    """Nothing of it or after it is committed; what stood before it is."""
    collector, writer = make(stops_at_suspects=True)
    collect(collector, begin(), Row(1, 1, "a"), commit(90, 76))
    collector._commit_if(is_due=True)
    told = notice((77, 0x10, 0x90, 0x50))
    rows: list[Item] = [begin(), Row(1, 1, "a"), commit(100, 77)]
    rows.insert(1 if is_inside else 0, told)
    collect(collector, *rows)
    with pytest.raises(SuspectError) as stopped:
        collector._commit_if(is_due=True)
    assert "transactions 77 from 0/50 to 0/90" in str(stopped.value)
    assert "landing.on-suspect is stop. Set record to continue" in str(stopped.value)
    assert [request.position.lsn for request in writer.requests] == [90]
    assert stopped.value.exit_status == EX_CONFIG


@pytest.mark.parametrize("is_cut_short", [True, False])
def test_turns_are_known_at_the_end_alone(make: Make, *, is_cut_short: bool) -> None:
    """By CSN nothing lands of a stream that would go on: a lower one may come."""
    collector, writer = make(by_csn=True)
    collector._is_cut_short = lambda: is_cut_short
    for csn, end in ((9, 100), (7, 200), (8, 300)):
        collect(collector, begin(), Mark(CSN, x=csn), Row(1, csn, "a"), commit(end))
    collector._commit_if(is_due=True)
    assert (writer.rows, writer.requests) == ({}, [])
    collector._pass_all()
    collector._commit_if(is_due=True)
    if is_cut_short:
        assert (writer.rows, writer.requests) == ({}, [])
        return
    assert [row["gd_csn"] for row in writer.rows["t"]] == [7, 8, 9]
    (request,) = writer.requests
    assert (request.position.lsn, request.position.csn) == (300, 9)
    assert request.extra["csns"] == {"least": 7, "greatest": 9}
