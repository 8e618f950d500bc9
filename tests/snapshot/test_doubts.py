"""Tests for `gaussdecode.snapshot.doubts`."""

from pathlib import Path

import pytest

from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.files import Files
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model.landing import EntryKind, SourceIdentity, SourcePosition
from gaussdecode.snapshot.doubts import ANY_TABLE, Doubts, answered, answered_n, read_again_n

IDENTITY = SourceIdentity("gaussdb", "7", "shop", "orders", "mppdb_decoding")


class Landing:
    """A commit log with a ledger."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o750)
        self.log = CommitLog.open(Files(root), IDENTITY, block=4)
        self.log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(1, 1, 0x100)))
        self.store = SnapshotStore(self.log.disk)
        self.store.prepare()

    def commit(self, kind: EntryKind, **extra: object) -> None:
        """Publish an entry at the same position."""
        self.log.commit(Draft(kind=kind, position=self.log.position, extra=extra))

    def started(self, source: str | None = None) -> Doubts:
        """As a process that begins sees it; of one of several sources."""
        return Doubts(self.log, self.store.of(source), source)


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """A landing that has begun."""
    return Landing(tmp_path / "landing")


def order(landing: Landing, doubts: Doubts) -> None:
    """Note the orders, as the snapshotter does."""
    landing.store.note(doubts.answered())
    doubts.forget()


def test_an_entry_is_in_doubt_until_it_is_ordered(landing: Landing) -> None:
    """Whatever ends in between: the order follows from the log, and is given once."""
    doubts = landing.started()
    assert not doubts.look()
    landing.commit(EntryKind.SUSPECT, tables=[], **{ANY_TABLE: True})
    assert doubts.look()
    for _ in range(9):  # the process ends before it has ordered; the entry moves to a checkpoint
        landing.commit(EntryKind.IDLE)
        doubts = landing.started()
        assert doubts.look()
        assert doubts.concerns("public.t")
    order(landing, doubts)
    assert not doubts.look()
    assert not landing.started().look()


def test_each_of_several_sources_answers_for_its_own(landing: Landing) -> None:
    """And what one of them has ordered is none of the other's."""
    east, west = landing.started("east"), landing.started("west")
    assert not east.look()
    assert not west.look()
    landing.commit(EntryKind.SUSPECT, tables=["s.a"], source="east", **{ANY_TABLE: False})
    assert east.look()
    assert not west.look()
    landing.commit(EntryKind.SUSPECT, tables=["s.b"], source="west", **{ANY_TABLE: False})
    landing.store.of("east").note({"s.a": {"state": "asked"}, **east.answered()})
    east.forget()
    west = landing.started("west")
    assert west.look()
    assert not west.concerns("s.a")
    assert west.concerns("s.b")
    assert not landing.started("east").look()
    assert landing.store.of("west").ledger().keys().isdisjoint({"s.a"})


def test_what_comes_after_an_order_is_the_next(landing: Landing) -> None:
    """Also where it came before the order was durable, but was not seen by it."""
    doubts = landing.started()
    landing.commit(EntryKind.SUSPECT, tables=[])
    assert doubts.look()
    landing.commit(EntryKind.SUSPECT, tables=[])
    order(landing, doubts)
    assert landing.started().look()
    assert doubts.look()
    order(landing, doubts)
    assert not landing.started().look()


def test_only_the_tables_that_may_be_meant(landing: Landing) -> None:
    """An entry that names all of them leaves the others alone; older entries do not say."""
    doubts = landing.started()
    landing.commit(EntryKind.SUSPECT, tables=["s.a"], **{ANY_TABLE: False})
    assert doubts.look()
    assert doubts.concerns("s.a")
    assert not doubts.concerns("s.b")
    landing.commit(EntryKind.SUSPECT, tables=["s.a"])
    doubts.look()
    assert doubts.concerns("s.b")


def test_a_table_that_was_renamed_meanwhile(landing: Landing) -> None:
    """It is known by its OID: that of the entry, or of the ledger."""
    landing.store.note({"s.a": {"state": "done", "oid": 7}})
    doubts = landing.started()
    changes = {"s.b": {"oid": None, "table_oid": 8}}
    landing.commit(EntryKind.SUSPECT, tables=["s.a", "s.b"], changes=changes, **{ANY_TABLE: False})
    assert doubts.look()
    assert [doubts.concerns("s.c", oid) for oid in (7, 8, 9, 0)] == [True, True, False, False]
    order(landing, doubts)
    assert not doubts.concerns("s.c", 7)


def test_a_start_reads_on_where_the_one_before_did(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the whole log each time."""
    for _ in range(5):
        landing.commit(EntryKind.IDLE)
    assert not landing.started().look()
    read: list[int] = []
    iterate = landing.log.iterate

    def counted(first: int, last: int) -> object:
        read.extend(range(first, last + 1))
        return iterate(first, last)

    monkeypatch.setattr(landing.log, "iterate", counted)
    landing.commit(EntryKind.IDLE)
    assert not landing.started().look()
    assert read == [6]


def test_a_long_run_notes_how_far_it_has_read(landing: Landing) -> None:
    """Once in a block of entries, so that the next start reads no more than that."""
    doubts = landing.started()
    assert not doubts.look()
    noted = []
    for _ in range(9):
        landing.commit(EntryKind.IDLE)
        assert not doubts.look()
        noted.append(answered_n(landing.store.ledger()))
    assert noted == [0, 0, 0, 4, 4, 4, 4, 8, 8]
    landing.commit(EntryKind.SUSPECT, tables=[])
    for _ in range(9):
        landing.commit(EntryKind.IDLE)
        assert doubts.look()
    assert answered_n(landing.store.ledger()) == 8


@pytest.mark.parametrize("state", ["asked", "failed"])
def test_all_was_read_again_once_no_order_waits(state: str) -> None:
    """An order is not its end, and one that failed is none."""
    ledger = {**answered(7), "public.a": {"state": "done"}}
    assert read_again_n({}) == -1
    assert read_again_n(ledger) == 7
    assert read_again_n({**ledger, "public.b": {"state": state}}) == -1
