"""The collector between a stream and a writer that only remembers."""

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kit.entries import (
    BEGIN,
    COMMIT,
    END,
    MESSAGE,
    PREPARE,
    STREAM_START,
    TRUNCATE,
    Item,
    Mark,
    Row,
    entry,
    relation,
    relation_mark,
)

from gaussdecode.collect.collector import Collector, CollectorSettings, Prepared
from gaussdecode.collect.entry_barrier import Cut, EntryBarrier, Seen
from gaussdecode.collect.snapshot_gate import Gate, Hold, HoldLostError
from gaussdecode.collect.spool import Spool
from gaussdecode.collect.tables import Tables
from gaussdecode.errors import DiskError, DiskStillFullError, SpoolFullError
from gaussdecode.ipc.ring import Ring
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.account import Account
from gaussdecode.model.histogram import Histogram
from gaussdecode.model.landing import EntryKind, PreparedFile, SourcePosition
from gaussdecode.model.relation import Relation
from gaussdecode.model.request import EntryRequest, RowGroup

_SETTINGS = CollectorSettings(
    row_group_rows=10,
    row_group_bytes=1 << 20,
    memory_bytes=1 << 22,
    txn_memory_bytes=1 << 20,
    target_file_size=1 << 20,
    max_commit_interval=3600.0,
    only_local=True,
    skip_empty_xacts=False,
    include_xids=True,
    include_timestamp=True,
)


class _Writer:
    """Remembers."""

    commit_seconds = 0.0
    visible_seconds = 0.0
    largest_file_bytes = 0
    generation = 1
    is_crowded = False

    def __init__(self) -> None:
        self.groups: list[RowGroup] = []
        self.requests: list[EntryRequest] = []

    def write(self, group: RowGroup) -> None:
        self.groups.append(group)

    def commit(self, request: EntryRequest) -> None:
        self.requests.append(request)

    def note(self, request: EntryRequest) -> None:
        self.requests.append(request)

    def end(self) -> None:
        """Nothing is refused here."""


class _Schemas:
    """Schemas by the names of their columns."""

    def schema_id_for(self, table: str, record: dict[str, Any]) -> tuple[str, bool]:  # Any: JSON
        return "-".join(column["name"] for column in record["columns"]), False


def _renamed(of: Relation, note: str) -> Relation:
    first, second = of.columns
    return dataclasses.replace(of, columns=(first, dataclasses.replace(second, name=note)))


def _inserts(version: int, lsn: int, count: int) -> list[Item]:
    rows: list[Item] = [Row(version, number, "x") for number in range(count)]
    return [Mark(BEGIN, x=lsn, z=lsn), *rows, Mark(COMMIT, x=lsn, y=lsn + 1)]


@pytest.fixture
def make_collector(tmp_path: Path) -> Callable[..., Collector]:
    """Make a collector that writes to a given writer."""

    def make(
        writer: _Writer,
        gate: Gate | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        prepared: Prepared | None = None,
        barrier: EntryBarrier | None = None,
        **settings: int | str,
    ) -> Collector:
        tables = Tables(_Schemas(), lambda schema, name: f"{schema}.{name}", list, lambda _: None)
        spool = Spool(tmp_path, SpaceWait().run)
        bounds = dataclasses.replace(_SETTINGS, **settings)  # type: ignore[arg-type]  # sizes
        position = SourcePosition(1, 1, 1)
        return Collector(
            bounds,
            tables,
            writer,
            spool,
            position,
            {},
            gate,
            prepared=prepared,
            should_stop=should_stop,
            barrier=barrier,
        )

    return make


def test_rows_of_an_older_schema_leave_first(
    make_collector: Callable[..., Collector],
) -> None:
    """A full row group does not overtake rows of its table under the schemas before it."""
    writer = _Writer()
    collector = make_collector(writer)
    first = relation(1, "t", oid=7)
    renamed = dataclasses.replace(_renamed(first, "remark"), version=2)
    back = dataclasses.replace(first, version=3)
    for seq, (of, lsn, count) in enumerate([(first, 10, 2), (renamed, 20, 3), (back, 30, 50)]):
        batch = entry(seq, [relation_mark(of), *_inserts(of.version, lsn, count)])
        collector.assembler.absorb_bytes(batch)
    collector._commit_if(is_due=True)
    groups = [group for group in writer.groups if group.table_dir == "public.t"]
    assert [(group.first.lsn, group.last.lsn) for group in groups] == [(11, 11), (21, 21), (31, 31)]
    (request,) = writer.requests
    changes = [change for change in request.schema_changes if change.table == "public.t"]
    assert [(change.previous, change.schema_id) for change in changes] == [
        (None, "id-note"),
        ("id-note", "id-remark"),
        ("id-remark", "id-note"),
    ]
    assert [change.position.lsn for change in changes] == [11, 21, 31]


def test_rows_of_a_table_leave_in_order_however_its_schemas_alternate(
    make_collector: Callable[..., Collector],
) -> None:
    """One row group for each stretch of one schema, also where an older version comes after a newer."""
    writer = _Writer()
    collector = make_collector(writer, row_group_rows=1000)
    first = relation(1, "t", oid=7)
    renamed = dataclasses.replace(_renamed(first, "remark"), version=2)
    other = relation(3, "u", oid=8)
    marks = [relation_mark(of) for of in (first, renamed, other)]
    collector.assembler.absorb_bytes(entry(0, [*marks, *_inserts(1, 10, 1)]))
    rows: list[Item] = [Row(version, number, "x") for number, version in enumerate((2, 2, 3, 1, 2))]
    alternating = [Mark(BEGIN, x=20, z=20), *rows, Mark(COMMIT, x=20, y=21)]
    collector.assembler.absorb_bytes(entry(1, alternating))
    truncated: list[Item] = [
        Mark(BEGIN, x=30, z=30),
        Mark(TRUNCATE, index=1),
        Mark(COMMIT, x=30, y=31),
    ]
    collector.assembler.absorb_bytes(entry(2, truncated))
    collector._commit_if(is_due=True)
    (request,) = writer.requests
    found = [
        (group.schema_id, *((p.lsn, p.seq) for p in (group.first, group.last)))
        for group in writer.groups
        if group.table_dir == "public.t"
    ]
    assert found == [
        ("id-note", (11, 0), (11, 0)),
        ("id-remark", (21, 0), (21, 1)),
        ("id-note", (21, 3), (21, 3)),
        ("id-remark", (21, 4), (21, 4)),
        ("id-note", (31, 0), (31, 0)),
    ]
    changes = [of for of in request.schema_changes if of.table == "public.t"]
    assert [(of.position.lsn, of.position.seq) for of in changes] == [
        where for _, where, _ in found
    ]
    assert collector.assembler.held_bytes == 0
    (held,) = (group for group in writer.groups if group.table_dir == "public.u")
    assert held.table.num_rows == 1, "another table is not cut for it"


@pytest.mark.parametrize("keeps", [True, False])
def test_an_entry_knows_when_its_transactions_committed(
    make_collector: Callable[..., Collector], keeps: bool
) -> None:
    """Those that land, also where the column of the time does not; not those sent again."""
    writer = _Writer()
    collector = make_collector(writer, include_timestamp=keeps, row_group_rows=4)
    of = relation(1, "t", oid=7)
    items: list[Item] = [relation_mark(of)]
    for seconds in range(10):  # the first was landed before; the row groups of ten are three
        lsn = 10 * seconds
        begin, row = Mark(BEGIN, x=lsn, z=lsn), Row(1, seconds, "x")
        items += [begin, row, Mark(COMMIT, x=lsn, y=lsn + 1, z=seconds * 1_000_000)]
    for seq, batch in enumerate([items[:13], items[13:]]):
        collector.assembler.absorb_bytes(entry(seq, batch))
        collector._commit_if(is_due=True)
    assert sum(collector.gathered.counted.counts) == len(writer.requests)
    found = []
    for request in writer.requests:
        histogram = Histogram()
        request.commit_times.tell(histogram, 10.0)
        found.append((sum(histogram.counted.counts), histogram.counted.seconds))
    assert found == [(3, 9.0 + 8.0 + 7.0), (6, 6.0 + 5.0 + 4.0 + 3.0 + 2.0 + 1.0)]


_COUNT = 12


def test_more_tables_than_have_room_all_land(make_collector: Callable[..., Collector]) -> None:
    """Tables that change in turn wake up as they were: every row lands, under its first schema."""
    writer = _Writer()
    collector = make_collector(writer, most_tables=5)
    tables = [relation(n, f"t{n}", oid=n) for n in range(1, _COUNT + 1)]
    expected: dict[str, list[tuple[int, str]]] = {}
    described = set()
    for lsn in range(10, 10 * 10 * _COUNT, 10):
        of = tables[(lsn // 10) * 5 % _COUNT]
        news = [] if of.version in described else [relation_mark(of)]
        described.add(of.version)
        collector.assembler.absorb_bytes(entry(lsn, [*news, *_inserts(of.version, lsn, 3)]))
        expected.setdefault(f"public.{of.name}", []).extend((lsn + 1, "id-note") for _ in range(3))
        if lsn % 30 == 0:
            collector._commit_if(is_due=True)
            assert len(collector._registry.all()) <= 5
            assert len(collector._tables._current) <= 5
    collector._commit_if(is_due=True)
    landed: dict[str, list[tuple[int, str]]] = {}
    for group in writer.groups:
        if group.schema_id == "id-note":
            rows = landed.setdefault(group.table_dir, [])
            rows.extend((lsn, group.schema_id) for lsn in group.table["gd_lsn"].to_pylist())
    assert len(expected) == _COUNT
    assert landed == expected
    changes = [change.table for request in writer.requests for change in request.schema_changes]
    assert len(changes) == len(set(changes)), "a table that wakes up has not changed"


def test_a_sleeping_table_that_is_told_again_is_the_same(
    make_collector: Callable[..., Collector],
) -> None:
    """Each decoder tells of a version once; the second does not make another table of it."""
    writer = _Writer()
    collector = make_collector(writer, most_tables=2)
    of = relation(1, "t", oid=7)
    collector.assembler.absorb_bytes(entry(0, [relation_mark(of), *_inserts(1, 10, 1)]))
    collector._commit_if(is_due=True)
    order = collector._registry._packed[1].order
    collector.assembler.absorb_bytes(entry(1, [relation_mark(of), *_inserts(1, 20, 1)]))
    (landed,) = (
        held.table for held in collector._registry.all() if held.table.relation is not None
    )
    assert landed.order == order
    assert not collector._registry._packed


def test_a_version_that_wakes_keeps_its_place_before_a_newer_one(
    make_collector: Callable[..., Collector],
) -> None:
    """Rows of a transaction that began under an older version leave before the newer ones."""
    writer = _Writer()
    collector = make_collector(writer, most_tables=3)
    first = relation(1, "t", oid=7)
    renamed = dataclasses.replace(_renamed(first, "remark"), version=2)
    collector.assembler.absorb_bytes(entry(0, [relation_mark(first), *_inserts(1, 10, 1)]))
    collector._commit_if(is_due=True)
    assert len(collector._registry.all()) == 3  # of the system alone
    opened: list[Item] = [Mark(BEGIN, x=20, z=20), Row(1, 1, "x")]
    collector.assembler.absorb_bytes(entry(1, opened))
    ended: list[Item] = [relation_mark(renamed), Row(2, 2, "y"), Mark(COMMIT, x=20, y=21)]
    collector.assembler.absorb_bytes(entry(2, ended))
    collector._commit_if(is_due=True)
    groups = [group for group in writer.groups if group.table_dir == "public.t"]
    assert [group.schema_id for group in groups] == ["id-note", "id-note", "id-remark"]
    assert [group.is_last for group in groups] == [True, False, True]


@pytest.mark.parametrize(
    ("visible", "cost", "interval"),
    [(0.0, 0.0, 30.0), (2.0, 1.0, 28.0), (40.0, 1.0, 15.0), (2.0, 9.0, 36.0)],
)
def test_entries_begin_early_and_cost_a_quarter_at_most(
    make_collector: Callable[..., Collector], visible: float, cost: float, interval: float
) -> None:
    """What an entry takes is taken off the interval, unless it would be all that is done."""
    writer = _Writer()
    writer.visible_seconds = visible
    writer.commit_seconds = cost
    assert make_collector(writer, max_commit_interval=30).timing.effective_interval == interval


def test_the_first_transactions_do_not_wait(make_collector: Callable[..., Collector]) -> None:
    """They are an entry at once, those after them when the interval is over."""
    writer = _Writer()
    collector = make_collector(writer)
    assert not collector._is_due()
    table = relation_mark(relation(1, "t", oid=7))
    collector.assembler.absorb_bytes(entry(0, [table, *_inserts(1, 10, 2)]))
    assert collector._is_due()
    collector._commit_if(is_due=True)
    collector.assembler.absorb_bytes(entry(1, _inserts(1, 20, 2)))
    assert not collector._is_due()


def test_of_a_recording_the_first_wait_too(make_collector: Callable[..., Collector]) -> None:
    """Nobody looks whether anything lands."""
    collector = make_collector(_Writer(), is_first_due=False)
    table = relation_mark(relation(1, "t", oid=7))
    collector.assembler.absorb_bytes(entry(0, [table, *_inserts(1, 10, 2)]))
    assert not collector._is_due()


def test_a_crowded_writer_is_committed(make_collector: Callable[..., Collector]) -> None:
    """Before a table's rows need a second file because its first one was closed early."""
    writer = _Writer()
    collector = make_collector(writer)
    table = relation_mark(relation(1, "t", oid=7))
    collector.assembler.absorb_bytes(entry(0, [table, *_inserts(1, 10, 2)]))
    collector._commit_if(is_due=collector._is_due())
    collector.assembler.absorb_bytes(entry(1, _inserts(1, 20, 2)))
    collector._commit_if(is_due=collector._is_due())
    assert len(writer.requests) == 1
    writer.is_crowded = True
    collector._commit_if(is_due=collector._is_due())
    request = writer.requests[-1]
    assert request.position is not None
    assert request.position.lsn == 21


def test_a_request_accounts_for_its_stretch(make_collector: Callable[..., Collector]) -> None:
    """The sums go from the position before to the next, and leave out what is still open."""
    writer = _Writer()
    collector = make_collector(writer)
    known = relation_mark(relation(1, "t", oid=7))
    begun: list[Item] = [Mark(BEGIN, x=20, z=20), Row(1, 1, "x")]
    collector.assembler.absorb_bytes(entry(0, [known, *_inserts(1, 10, 2), *begun]))
    collector._commit_if(is_due=True)
    collector.assembler.absorb_bytes(entry(1, [Row(1, 2, "x"), Mark(COMMIT, x=20, y=21)]))
    collector._commit_if(is_due=True)
    accounts = [request.account for request in writer.requests]
    sums = {"transactions": 1, "I": 2}
    assert accounts == [Account((1, 1), (1, 11), sums, sums), Account((1, 11), (1, 21), sums, sums)]


def test_what_was_committed_is_not_told_again(make_collector: Callable[..., Collector]) -> None:
    """A truncate and a change of the schema stand in the entry of their transaction alone."""
    writer = _Writer()
    collector = make_collector(writer)
    known = relation_mark(relation(1, "t", oid=7))
    emptied: list[Item] = [
        Mark(BEGIN, x=10, z=10),
        Mark(TRUNCATE, index=1),
        Mark(COMMIT, x=10, y=11),
    ]
    collector.assembler.absorb_bytes(entry(0, [known, *emptied]))
    collector._commit_if(is_due=True)
    collector.assembler.absorb_bytes(entry(1, _inserts(1, 20, 1)))
    collector._commit_if(is_due=True)
    first, second = writer.requests
    assert [truncate.table for truncate in first.truncates] == ["public.t"]
    assert [change.table for change in first.schema_changes if change.table == "public.t"]
    assert not second.truncates
    assert not second.schema_changes


def test_suspect_transactions_are_said_once(make_collector: Callable[..., Collector]) -> None:
    """Not in every entry that follows."""
    writer = _Writer()
    collector = make_collector(writer)
    collector._suspects.add("changes of some transactions are left out", 1)
    collector._commit_if(is_due=True)
    collector._commit_if(is_due=True)
    assert [request.kind for request in writer.requests] == [EntryKind.SUSPECT]


def test_message_waits_for_a_boundary_behind_it(
    make_collector: Callable[..., Collector],
) -> None:
    """Landed under a position before it, it would be sent, and land, again."""
    writer = _Writer()
    collector = make_collector(writer)
    message: list[Item] = [Mark(MESSAGE, 0, x=15, payload=b"p\0content")]
    collector.assembler.absorb_bytes(
        entry(0, [relation_mark(relation(1, "t", oid=7)), *_inserts(1, 10, 1), *message])
    )
    collector._commit_if(is_due=True)
    assert not writer.requests
    collector.assembler.absorb_bytes(entry(1, _inserts(1, 20, 1)))
    collector._commit_if(is_due=True)
    (request,) = writer.requests
    assert request.position is not None
    assert request.position.lsn == 21


def test_nothing_is_committed_while_a_snapshot_holds(
    make_collector: Callable[..., Collector], tmp_path: Path
) -> None:
    """However long ago the last entry was; after the hold all of it is."""
    gate = Gate(lambda: Spool(tmp_path, SpaceWait().run))
    writer = _Writer()
    collector = make_collector(writer, gate)
    holds: list[Hold] = []
    asker = threading.Thread(target=lambda: holds.append(gate.hold({"public.t": ["id"]})))
    asker.start()
    while asker.is_alive():
        collector._hold_session.attend(collector)
    known = relation_mark(relation(1, "t", oid=7))
    collector.assembler.absorb_bytes(entry(0, [known, *_inserts(1, 10, 1)]))
    collector._commit_if(is_due=True)
    assert not writer.requests
    gate.release(holds[0])
    collector._commit_if(is_due=True)
    assert len(writer.requests) == 1


@pytest.mark.parametrize("ends_first", [False, True])
def test_a_snapshot_of_one_of_several_holds_all(
    make_collector: Callable[..., Collector], tmp_path: Path, ends_first: bool
) -> None:
    """Once the entry before is asked for; a part of sessions that are over is none, and nothing is held."""
    gate = Gate(lambda: Spool(tmp_path, SpaceWait().run))
    asked: list[EntryRequest] = []
    barrier = EntryBarrier(("east", "west"), asked.append, 1 << 20)
    collector = make_collector(_Writer(), gate, barrier=barrier, name="east", source="east")
    known = relation_mark(relation(1, "t", oid=7))
    collector.assembler.absorb_bytes(entry(0, [known, *_inserts(1, 10, 1)]))
    holds: list[Hold] = []

    def ask() -> None:
        with contextlib.suppress(HoldLostError):
            holds.append(gate.hold({"public.t": ["id"]}))

    def give() -> None:
        while not barrier.ask("west", is_due=False):
            time.sleep(0.01)
        if ends_first:
            barrier.end()
        else:
            place = SourcePosition(1, 1, 5)
            barrier.give("west", EntryRequest(kind=EntryKind.IDLE, position=place))

    threads = [threading.Thread(target=one) for one in (ask, give)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + (1 if ends_first else 60)
    while not holds and time.monotonic() < deadline:
        collector._hold_session.attend(collector)
    assert bool(holds) != ends_first
    if not ends_first:
        assert [request.position.lsn for request in asked] == [11]
        collector.assembler.absorb_bytes(entry(1, _inserts(1, 20, 1)))
        collector._cut_with_others(barrier)
        assert not barrier.ask("west", is_due=True), "who gives a part now waits with its stream"
        collector._cut_with_others(barrier)
        assert collector.position.lsn == 11, "a part was given while a snapshot held it"
        gate.release(holds[0])
        threads.append(threading.Thread(target=give))
        threads[-1].start()
        collector._cut_with_others(barrier)
        assert [request.position.lsn for request in asked] == [11, 21]
    collector._hold_session.end()
    for thread in threads:
        thread.join()


def test_by_csn_nothing_lands_between_a_view_and_its_rows(
    make_collector: Callable[..., Collector], tmp_path: Path
) -> None:
    """From the moment in which the view may be taken; then all below it, and no more until it is let go."""
    gate = Gate(lambda: Spool(tmp_path, SpaceWait().run))
    asked: list[EntryRequest] = []
    barrier = EntryBarrier(("east",), asked.append, 1 << 20)
    collector = make_collector(_Writer(), gate, barrier=barrier, name="east", by_csn=True)
    found: list[object] = []

    def read() -> None:
        hold = gate.hold({})
        found.append(hold)
        found.append(gate.reach_csn(hold, 5))

    def attend_until(count: int) -> None:
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            collector._hold_session.attend(collector)
            time.sleep(0.001)
        assert len(found) >= count

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    attend_until(1)
    barrier.offer(Cut({"east": 0}, 7, {"east": 0}))
    assert barrier.look("east", Seen(10))[1] is None, "decided on while a view may be taken"
    while barrier.reach("east", 5) is not None:
        time.sleep(0.001)
    collector._cut_with_others(barrier)
    assert [request.position.csn for request in asked] == [5]
    attend_until(2)
    assert found[1] == (5, 1)
    barrier.offer(Cut({"east": 0}, 8, {"east": 0}))
    collector._cut_with_others(barrier)
    assert len(asked) == 1
    assert isinstance(found[0], Hold)
    gate.release(found[0])
    collector._cut_with_others(barrier)
    assert [request.position.csn for request in asked] == [5, 8]
    thread.join()


def _large_transaction() -> list[bytes]:
    """One transaction over many batches, the end of the stream after it."""
    of = relation(1, "t", oid=7)
    rows: list[Item] = [Row(1, number, "x" * 50) for number in range(20)]
    begin: list[Item] = [relation_mark(of), Mark(BEGIN, x=90, z=5), *rows]
    batches: list[list[Item]] = [begin, *[rows] * 8, [Mark(COMMIT, x=90, y=91)]]
    return [*(entry(seq, items) for seq, items in enumerate(batches)), entry(10, [], END)]


def test_release_of_a_large_transaction_is_progress(
    make_collector: Callable[..., Collector],
) -> None:
    """Each row group of one transaction tells that the collector moves."""
    writer = _Writer()
    collector = make_collector(writer)
    groups_seen: list[int] = []
    with contextlib.closing(Ring.create(1 << 20, 64)) as ring:
        for batch in _large_transaction():
            ring.put_bytes(batch)
        collector.run([ring], lambda: groups_seen.append(len(writer.groups)))
    assert set(range(1, 9)) <= set(groups_seen)
    landed = [group for group in writer.groups if group.table_dir == "public.t"]
    assert sum(group.table.num_rows for group in landed) == 180


def _open_files(directory: Path) -> int:
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            count += os.readlink(f"/proc/self/fd/{fd}").startswith(str(directory))
    return count


@pytest.mark.parametrize("is_whole", [True, False])
def test_spool_goes_with_the_session(
    make_collector: Callable[..., Collector], tmp_path: Path, is_whole: bool
) -> None:
    """However the stream ends, the file of an open transaction gives its room back."""
    collector = make_collector(_Writer(), txn_memory_bytes=1)
    batches = _large_transaction()
    with contextlib.closing(Ring.create(1 << 20, 64)) as ring:
        for batch in batches if is_whole else batches[:5]:
            ring.put_bytes(batch)
        seen: list[int] = []

        def on_round() -> None:
            seen.append(_open_files(tmp_path))
            if not is_whole:
                raise DiskError("given up")

        if is_whole:
            collector.run([ring], on_round)
        else:
            with pytest.raises(DiskError):
                collector.run([ring], on_round)
    assert max(seen) == 1
    assert _open_files(tmp_path) == 0


def test_memory_goes_with_the_session(make_collector: Callable[..., Collector]) -> None:
    """What was held of a stream that broke off is free before the next one begins."""
    collector = make_collector(_Writer(), row_group_rows=1000)
    of = relation(1, "t", oid=7)
    begun: list[Row | Mark] = [Mark(BEGIN, x=90, z=5), Row(1, 1, "x")]
    with contextlib.closing(Ring.create(1 << 20, 64)) as ring:
        ring.put_bytes(entry(0, [relation_mark(of), *_inserts(1, 20, 30), *begun]))
        held: list[tuple[int, int]] = []
        owned: list[object] = []

        def give_up() -> None:
            assembler = collector.assembler
            held.append((assembler.held_bytes, assembler.retained_bytes))
            owned.append(collector._registry.of_directory("public.t")[0])
            raise DiskError("given up")

        with pytest.raises(DiskError):
            collector.run([ring], give_up)
    assert min(held[0]) > 0
    assert collector.assembler.retained_bytes == 0
    assert collector.assembler.held_bytes == 0
    holders = sys.getrefcount(owned.pop()) - 1
    assert holders == 0, "somebody else holds its memory"


def test_spool_that_cannot_be_read_is_an_error_of_the_disk(tmp_path: Path) -> None:
    """It ends with the disk's status, not as a bug."""
    spool = Spool(tmp_path, SpaceWait().run)
    spool.write(memoryview(b"rows"))
    os.close(spool._fd)
    with pytest.raises(DiskError):
        spool.read_into(0, memoryview(bytearray(4)))
    with pytest.raises(DiskError):
        spool.free(0, 4)
    spool._fd = -1


# ---- a bound for open transactions ---------------------------------------------------------

_LARGE = [Row(1, number, "x" * 100) for number in range(100)]
_BOUND = {"txn_memory_bytes": 0, "spool_bytes": 30_000}


def _absorb(collector: Collector, *batches: tuple[int, list[Item]]) -> None:
    for seq, (stream_xid, items) in enumerate(batches):
        collector.assembler.absorb_bytes(entry(seq, items, stream_xid=stream_xid))


def test_transaction_that_is_larger_than_the_spool_waits(
    make_collector: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named with its commit and the bound; the collector moves, and a stop ends it."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    rounds: list[str | None] = []
    collector = make_collector(_Writer(), should_stop=lambda: len(rounds) == 3, **_BOUND)
    collector._on_round = lambda: rounds.append(collector.spool_wait)
    begin: list[Item] = [relation_mark(relation(1, "t")), Mark(BEGIN, x=0x500, z=77)]
    _absorb(collector, (0, [*begin, *_LARGE]), (0, [*_LARGE]))
    held = collector.assembler.spooled_bytes
    assert (collector.spool_wait, collector.assembler.spooled_batches) == (None, 2)
    with pytest.raises(DiskStillFullError, match=r"landing.spool-bytes .* stopped while waiting"):
        _absorb(collector, (0, [*_LARGE]), (0, [*_LARGE]))
    text = (
        "transaction 77, which commits at 0/500, needs more space than landing.spool-bytes (30000B) "
        f"allows: {held:,} bytes of it are here, and more comes"
    )
    assert rounds == [text] * 3
    collector._forget()
    assert (collector.assembler.spooled_bytes, collector.assembler.spooled_batches) == (0, 0)


def test_streamed_transactions_that_fill_the_spool_are_given_up(
    make_collector: Callable[..., Collector],
) -> None:
    """No commit that would free room can come before what there is no room for."""
    collector = make_collector(_Writer(), is_streamed=True, **_BOUND)
    start: list[Item] = [Mark(STREAM_START, 1, x=7), *_LARGE]
    _absorb(collector, (0, [relation_mark(relation(1, "t"))]), (7, start))
    nine: list[Item] = [Mark(STREAM_START, 1, x=9), *_LARGE]
    eight: list[Item] = [Mark(STREAM_START, 1, x=8), *_LARGE]
    with pytest.raises(SpoolFullError, match=r"open transactions .* transaction 8, which has 0"):
        _absorb(collector, (9, nine), (8, eight))


@dataclasses.dataclass
class _Kept:
    """A prepared transaction in a file."""

    file: PreparedFile
    xid: int
    places: list[tuple[int, int]]
    relations: dict[int, bytes | None]


class _Files:
    """Plays `land.prepared.PreparedFiles`."""

    def write(self, facts: Mapping[str, Any], batches: Iterable[memoryview]) -> _Kept:  # Any: JSON
        places = [(0, batch.nbytes) for batch in batches]
        path, xid, gid = f"prepared/{facts['xid']}", facts["xid"], facts["gid"].decode()
        file = PreparedFile(path, 1, "sha256:0", xid, gid, facts["lsn"], facts["time_us"], 100)
        return _Kept(file, facts["xid"], places, facts["relations"])


def test_prepared_transactions_make_room(make_collector: Callable[..., Collector]) -> None:
    """They go to files of their own before anything has to wait or be given up."""
    writer = _Writer()
    files = Prepared(writer=_Files())
    collector = make_collector(writer, prepared=files, is_streamed=True, **_BOUND)
    _absorb(collector, (0, [relation_mark(relation(1, "t"))]))
    for xid in (7, 8):
        prepare = Mark(PREPARE, index=xid, x=xid * 16, y=xid * 16 + 8, z=5, payload=b"g%d" % xid)
        _absorb(collector, (xid, [Mark(STREAM_START, 1, x=xid), *_LARGE]), (0, [prepare]))
    _absorb(collector, (9, [Mark(STREAM_START, 1, x=9), *_LARGE]))
    assert [request.kind for request in writer.requests] == [EntryKind.PREPARED]
    assert collector.assembler.unkept() == []
    assert (collector.assembler.spooled_batches, collector.spool_wait) == (1, None)
