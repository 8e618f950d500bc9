"""Synthetic transactions, landed by the real writer and judged by what is on disk."""

import dataclasses
import datetime as dt
import functools
import io
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.compaction import compact
from gaussdecode.land.files import Files
from gaussdecode.land.names import table_directory
from gaussdecode.land.prepared import PreparedFiles
from gaussdecode.land.retention import retain
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.verify import verify_files
from gaussdecode.land.writer import Intake, Writer
from gaussdecode.model.account import Account, Counts
from gaussdecode.model.entry import ENDED, PREPARED, prepared_record
from gaussdecode.model.landing import (
    EntryKind,
    Position,
    SchemaChange,
    SourceIdentity,
    SourcePosition,
)
from gaussdecode.model.request import EntryRequest, RowGroup

IDENTITY = SourceIdentity("postgresql", "7000000000000000001", "shop", "orders", "pgoutput")
START = dt.datetime(2026, 1, 31, 22, 30, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        pa.field("gd_op", pa.string(), nullable=False),
        pa.field("gd_epoch", pa.int32(), nullable=False),
        pa.field("gd_lsn", pa.int64(), nullable=False),
        pa.field("gd_seq", pa.int64(), nullable=False),
        pa.field("id", pa.int32()),
    ]
)
COLUMNS = {"columns": [{"name": "id", "attribute_number": 1}]}
TABLES = (table_directory("public", "a"), table_directory("public", "b"))
BLOCK = 3


def transaction_lsn(number: int) -> int:
    """Commit position of the number-th transaction, from 1."""
    return 0x1000 + 0x100 * number


def account(number: int, framed: Counts, landed: Counts, left_out: dict[str, Counts]) -> Account:
    """The sums of the number-th transaction, which nothing else stands before."""
    since, until = transaction_lsn(number - 1), transaction_lsn(number)
    return Account((0, since), (0, until), framed, landed, left_out)


def row_group(
    table: str, schema_id: str, lsn: int, seqs: range, *, schema: pa.Schema = SCHEMA
) -> RowGroup:
    """Rows of one transaction in one table."""
    rows = len(seqs)
    content = pa.table(
        [
            pa.array(["I"] * rows, pa.string()),
            pa.array([0] * rows, pa.int32()),
            pa.array([lsn] * rows, pa.int64()),
            pa.array(list(seqs), pa.int64()),
            pa.array(list(seqs), pa.int32()),
        ],
        schema=schema,
    )
    first, last = Position(lsn, seqs[0]), Position(lsn, seqs[-1])
    return RowGroup(table, schema_id, schema, content, first, last, {"I": rows})


def ticking(step: dt.timedelta = dt.timedelta(minutes=20)) -> Callable[[], dt.datetime]:
    """A clock that moves on each time it is read, so that midnight comes in the middle."""
    ticks = itertools.count()
    lock = threading.Lock()

    def now() -> dt.datetime:
        with lock:
            return START + next(ticks) * step

    return now


@dataclasses.dataclass
class Landing:
    """One process's life on a landing.

    Attributes:
        files: the disk.
        confirmed: every position that was confirmed, in order.
        errors: what the writer gave up with.
    """

    files: Files
    token: str = "first"
    transactions: int = 5
    with_retention: bool = False
    with_prepared: bool = False
    block: int = BLOCK
    space: SpaceWait = dataclasses.field(default_factory=lambda: SpaceWait(sleep=lambda _: None))
    on_confirm: Callable[[int], None] = lambda _: None
    confirmed: list[int] = dataclasses.field(default_factory=list)
    errors: list[BaseException] = dataclasses.field(default_factory=list)

    def open(self) -> CommitLog:
        """Recover the landing."""
        return CommitLog.open(
            self.files,
            IDENTITY,
            space=self.space,
            now=ticking(),
            writer=self.token,
            block=self.block,
        )

    def run(self) -> None:
        """Recover, then land every transaction that is not durable yet."""
        log = self.open()
        try:
            writer = Writer(log, lanes=1, on_durable=self._confirm, on_error=self.errors.append)
            writer._start_syncers = lambda: 0  # type: ignore[method-assign]  # one order of operations
            try:
                self._land(log, writer, writer.begin())
            finally:
                writer.close()
        finally:
            log.close()

    def _land(self, log: CommitLog, writer: Writer, intake: Intake) -> None:
        if log.is_empty:
            start = SourcePosition(0, 1, transaction_lsn(0))
            intake.commit(EntryRequest(kind=EntryKind.GENESIS, position=start))
            writer.drain()
        for number in range(1, self.transactions + 1):
            lsn = transaction_lsn(number)
            position = log.position
            assert position is not None
            if lsn <= position.lsn:
                continue
            if self.with_prepared and number in (2, 4):
                self._prepare(log, intake, lsn)
            ended = [file.path for file in log.prepared] if number == self.transactions else []
            self._transaction(intake, writer, number, lsn, {ENDED: ended} if ended else {})
            self._maintain(log)

    def _prepare(self, log: CommitLog, intake: Intake, lsn: int) -> None:
        """Keep a transaction that is prepared beyond the log's position, until the last one."""
        facts = {
            "xid": lsn, "lsn": lsn - 1, "time_us": 0, "gid": b"g", "origin": None, "aborted": [],
            "tally": [0] * 6, "relations": {},
        }  # fmt: skip
        batches = [memoryview(b"batch" * lsn)]
        kept = PreparedFiles(log, "layout").write(facts, batches)
        records = {PREPARED: [prepared_record(kept.file)]}
        position = SourcePosition(0, 1, lsn)
        intake.note(EntryRequest(kind=EntryKind.PREPARED, position=position, extra=records))

    def _transaction(
        self, intake: Intake, writer: Writer, number: int, lsn: int, extra: dict[str, Any]
    ) -> None:  # Any: JSON
        """Land one transaction; the third is empty and moves the position only."""
        position = SourcePosition(0, 1, lsn)
        if number == 3:
            empty = {"transactions": 1}
            idle = account(number, empty, {}, {"empty": empty})
            intake.commit(EntryRequest(kind=EntryKind.IDLE, position=position, account=idle))
            writer.drain()
            return
        changes = []
        for index, table in enumerate(TABLES):
            seqs = range(index * 2, index * 2 + 2)
            schema_id, is_new = intake.schemas.schema_id_for(table, COLUMNS)
            if is_new:
                changes.append(SchemaChange(table, Position(lsn, seqs[0]), schema_id, None))
            intake.write(row_group(table, schema_id, lsn, seqs))
        while writer.waiting_bytes and not self.errors:  # so that every run does the same
            time.sleep(0)
        intake.commit(
            EntryRequest(
                kind=EntryKind.DATA,
                position=position,
                commit_time=START,
                schema_changes=tuple(changes),
                account=account(number, {"I": 2 * len(TABLES)}, {"I": 2 * len(TABLES)}, {}),
                extra=extra,
            )
        )
        writer.drain()

    def _maintain(self, log: CommitLog) -> None:
        log.forget_prepared()
        while compact(log) is not None:
            pass
        if self.with_retention:
            retain(log, dt.timedelta(0))

    def _confirm(self, position: SourcePosition) -> None:
        self.confirmed.append(position.lsn)
        self.on_confirm(position.lsn)


def landed_rows(files: Files) -> Iterator[tuple[int, int, str]]:
    """Position and table of every row that a reader of the log finds."""
    names = [item.name for item in files.items("commits")]
    held = [item.name for item in files.items("commits/checkpoints")]
    entries: dict[int, dict[str, object]] = {}
    for name in held:
        if name.endswith(".jsonl") and not name.startswith("."):
            for line in files.read(f"commits/checkpoints/{name}").splitlines()[1:]:
                entry = json.loads(line)
                entries[entry["n"]] = entry
    for name in names:
        if name.endswith(".json") and not name.startswith("."):
            entry = json.loads(files.read(f"commits/{name}"))
            entries[entry["n"]] = entry
    for entry in entries.values():
        if entry["kind"] == "data":
            for file in entry["files"]:  # type: ignore[attr-defined]
                for lsn, seq in _positions(files.read(file["path"])):
                    yield lsn, seq, file["table"]


@functools.lru_cache(maxsize=4096)
def _positions(content: bytes) -> list[tuple[int, int]]:
    table = pq.read_table(io.BytesIO(content), columns=["gd_lsn", "gd_seq"])
    return [(row["gd_lsn"], row["gd_seq"]) for row in table.to_pylist()]


def expected_rows(transactions: int) -> list[tuple[int, int, str]]:
    """What the transactions of `Landing` amount to."""
    return sorted(
        (transaction_lsn(number), index * 2 + seq, table)
        for number in range(1, transactions + 1)
        if number != 3
        for index, table in enumerate(TABLES)
        for seq in range(2)
    )


def check_invariants(files: Files, transactions: int, *, with_retention: bool) -> None:
    """Fail unless every transaction landed exactly once and the landing is clean."""
    report = verify_files(files)
    assert report.is_clean, report.findings
    rows = sorted(landed_rows(files))
    expected = expected_rows(transactions)
    assert rows == (expected[len(expected) - len(rows) :] if with_retention else expected)


def put(files: Files, path: str, content: bytes) -> None:
    """Write a file, over one that is there."""
    if files.size(path) is not None:
        files.unlink(path)
    handle = files.create(path)
    files.write(handle, content)
    files.close_handle(handle)
