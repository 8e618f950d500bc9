"""The landing's transactions, read back from after a position."""

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest
from kit.landrun import BLOCK, IDENTITY, ticking
from kit.simdisk import SimFiles

from gaussdecode.errors import LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.names import TRANSACTIONS
from gaussdecode.land.retention import retain
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.transactions import landed_lsn, landed_since
from gaussdecode.land.writer import Writer
from gaussdecode.model.account import Account
from gaussdecode.model.landing import EntryKind, Position, SourcePosition
from gaussdecode.model.request import EntryRequest, RowGroup
from gaussdecode.model.transaction import TransactionMark

FIRST = 1000


def _mark(lsn: int) -> TransactionMark:
    """What the transaction that ends at a position is known by."""
    return TransactionMark(
        lsn, lsn * 7, lsn * 1_000_000, lsn % 3, has_origin=lsn % 2 == 0, user="eve" * (lsn % 4 == 0)
    )


def _row_group(schema_id: str, lsns: list[int]) -> RowGroup:
    marks = [_mark(lsn) for lsn in lsns]
    times = pa.array([mark.time_us for mark in marks], pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "gd_op": ["I"] * len(lsns),
            "gd_lsn": pa.array(lsns, pa.int64()),
            "gd_seq": pa.array([0] * len(lsns), pa.int64()),
            "gd_xid": pa.array([mark.xid for mark in marks], pa.int64()),
            "gd_ts": times,
            "origin": pa.array(["far" if mark.has_origin else None for mark in marks], pa.string()),
            "user": pa.array([mark.user or None for mark in marks], pa.string()),
            "gd_csn": pa.array([None] * len(lsns), pa.int64()),
            "rows": pa.array([mark.row_count for mark in marks], pa.int64()),
        }
    )
    first, last = Position(lsns[0], 0), Position(lsns[-1], 0)
    return RowGroup(TRANSACTIONS, schema_id, table.schema, table, first, last, {"I": len(lsns)})


class _Run:
    """A landing of transactions alone."""

    def __init__(self) -> None:
        self.files = SimFiles()
        self.log = CommitLog.open(
            self.files, IDENTITY, space=SpaceWait(sleep=lambda _: None), now=ticking(), block=BLOCK
        )
        self.errors: list[BaseException] = []
        self.writer = Writer(
            self.log,
            lanes=2,
            on_durable=lambda _: None,
            on_error=self.errors.append,
        )
        self.intake = self.writer.begin()
        self.commit(EntryKind.GENESIS, FIRST)

    def commit(self, kind: EntryKind, lsn: int, epoch: int = 1, count: int = 0) -> None:
        position = SourcePosition(epoch, 1, lsn)
        before = self.log.position or position
        framed = {"transactions": count} if count else {}
        account = Account((before.epoch, before.lsn), (epoch, lsn), framed, framed)
        has_sums = kind in {EntryKind.DATA, EntryKind.IDLE}
        self.intake.commit(
            EntryRequest(kind=kind, position=position, account=account if has_sums else None)
        )
        assert self.writer.drain(60)

    def land(self, *lsns: int, epoch: int = 1) -> None:
        schema_id, _ = self.intake.schemas.schema_id_for(TRANSACTIONS, {"columns": []})
        for lsn in lsns:
            self.intake.write(_row_group(schema_id, [lsn]))
        self.commit(EntryKind.DATA, lsns[-1], epoch, len(lsns))

    @property
    def landed_lsn(self) -> int:
        """Where the last of what landed ends."""
        return landed_lsn(self.log.entries, self.log.source)

    def since(self, lsn: int) -> tuple[int, list[int]]:
        """From where on the log is known, and the ends; the marks are seen to be right."""
        stretch = landed_since(self.log, self.log.source, lsn)
        marks = list(stretch.transactions)
        assert marks == [_mark(mark.end_lsn) for mark in marks]
        return stretch.since_lsn, [mark.end_lsn for mark in marks]


@pytest.fixture
def run() -> Iterator[_Run]:
    """A landing that has begun."""
    made = _Run()
    yield made
    made.writer.close()
    made.log.close()


def test_everything_behind_a_position(run: _Run) -> None:
    """Also from the middle of an entry, over entries without files."""
    run.land(1001, 1002, 1003)
    run.commit(EntryKind.IDLE, 1010)
    run.land(1011, 1012)
    run.commit(EntryKind.IDLE, 1020)
    assert run.since(FIRST) == (FIRST, [1001, 1002, 1003, 1011, 1012])
    assert run.since(1002) == (1002, [1003, 1011, 1012])
    assert run.since(1003) == (1003, [1011, 1012])
    assert run.since(1012) == (1012, [])
    assert run.since(1015) == (1015, [])


def test_many_entries_and_checkpoints(run: _Run) -> None:
    """Further back than the entries that are looked at together."""
    for lsn in range(1001, 1101):
        run.land(lsn)
    assert run.since(1010) == (1010, list(range(1011, 1101)))


def test_nothing_from_before_the_landing(run: _Run) -> None:
    """A slot that stands before the first entry has sent nothing that could have landed."""
    run.land(1001)
    assert run.since(900) == (FIRST, [1001])


def test_nothing_from_an_earlier_epoch(run: _Run) -> None:
    """What lies before an accepted gap was not landed by this epoch."""
    run.land(1001)
    run.commit(EntryKind.GAP, 1050, epoch=2)
    run.land(1060, epoch=2)
    assert run.since(1001) == (1050, [1060])
    assert run.since(1055) == (1055, [1060])


def test_what_retention_took_is_not_known(run: _Run) -> None:
    """The stretch then begins where the log is known again."""
    for lsn in range(1001, 1012):
        run.land(lsn)
    assert retain(run.log, dt.timedelta(0)) is not None
    known, found = run.since(1001)
    assert known == 1000 + run.log.floor + 1
    assert found == list(range(known + 1, 1012))


def test_what_landed_last(run: _Run) -> None:
    """The position moves on where there is nothing to land; what landed does not."""
    assert run.landed_lsn == FIRST
    run.land(1001, 1005)
    run.commit(EntryKind.IDLE, 1010)
    run.commit(EntryKind.IDLE, 1020)
    assert run.log.position is not None
    assert (run.landed_lsn, run.log.position.lsn) == (1005, 1020)
    run.commit(EntryKind.SNAPSHOT, 1030)
    run.commit(EntryKind.IDLE, 1040)
    assert run.landed_lsn == 1030
    said = {"epoch": 1, "lsn": 9999, "tables": {}}
    run.log.commit(Draft(kind=EntryKind.SNAPSHOT, extra={"snapshot": said, "source": "another"}))
    assert run.landed_lsn == 1030, "a position of another source says nothing of this one"


def test_long_idle_log_is_not_searched_to_its_beginning(run: _Run) -> None:
    """Then the oldest idle entry that was looked at bounds what can have landed."""
    run.land(1001)
    for lsn in range(2001, 2301):
        run.commit(EntryKind.IDLE, lsn)
    assert 1001 < run.landed_lsn < 2300


def test_file_that_is_gone_is_named(run: _Run) -> None:
    """Nothing is taken for equal because it cannot be read."""
    run.land(1001)
    (entry,) = run.log.iterate(1, 1)
    run.files.unlink(entry.files[0].path)
    with pytest.raises(LandingError, match=r"gd_transactions.*gaussdecode verify"):
        list(landed_since(run.log, run.log.source, FIRST).transactions)
