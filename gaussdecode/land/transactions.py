"""Read the transactions of a landing, to recognise them when the server sends them again.

Given an open log and one of its sources, gives the rows of ``gd_transactions`` after a position, in the order
in which they ended. One row group per file of one entry is in memory. In CSN order the rows of an entry have
another order, and some rows of the next entry ended before some of its own. Then memory holds the compared
columns of one entry, and the rows that may still come after others.
"""

import dataclasses
import heapq
import itertools
import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.host import lazy_pyarrow
from gaussdecode.land.commitlog import ORDER_CSN, CommitLog
from gaussdecode.land.entry import Entries
from gaussdecode.land.mirror.known import without_transactions
from gaussdecode.land.names import MESSAGES, TRANSACTIONS
from gaussdecode.model.account import TRANSACTIONS as KIND
from gaussdecode.model.account import files_of
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, SourcePosition
from gaussdecode.model.transaction import TransactionMark

_COLUMNS: Final = ("gd_lsn", "gd_xid", "gd_ts", "rows", "origin", "user", "gd_csn")
_BLOCK: Final = 64  # entries looked at together on the way back; arbitrary
_ROWS: Final = 4096
_IDLE_LOOKED_AT: Final = 200  # half an hour of a server that writes WAL of others; arbitrary
_WITHOUT_ROWS: Final = frozenset(
    {
        EntryKind.IDLE,
        EntryKind.FORK,
        EntryKind.COMPACT,
        EntryKind.RETENTION,
        EntryKind.SUSPECT,
        EntryKind.QUARANTINE,
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """The end of a log, as far as it can be compared.

    Attributes:
        since_lsn: everything that landed after this position is in `transactions`; higher
            than what was asked for where the epoch began later or the rest is not here any more.
        transactions: rising.
        begun: ends of transactions in which tables landed for the first time.
        left_out: how many transactions it left out, by reason.
    """

    since_lsn: int
    transactions: Iterator[TransactionMark]
    begun: Mapping[str, int]
    left_out: Mapping[str, int]


def landed_since(log: CommitLog, source: str, lsn: int) -> Stretch:
    """Read what has landed of a source after a position, in the log's present epoch.

    Raises:
        LandingError: an entry is damaged. The iterator raises it for a file.
        DiskError: the file system failed.
    """
    first, since_lsn = _find_first(log, source, lsn)
    begun: dict[str, int] = {}
    left_out: Counter[str] = Counter()
    for entry in log.iterate(first, log.next_n - 1):
        for change in entry.schema_changes:
            if change.previous is None and change.source in (None, source):
                begun.setdefault(change.table, change.position.lsn)
        account = entry.accounts.get(source)
        if account is not None:
            for reason, counts in account.left_out.items():
                left_out[reason] += counts.get(KIND, 0)
    read = _read_by_csn if log.layout.order == ORDER_CSN else _read
    marks = read(log, source, log.iterate(first, log.next_n - 1))
    after = (mark for mark in marks if mark.end_lsn > since_lsn)
    return Stretch(since_lsn, after, begun, left_out)


def landed_lsn(entries: Entries, source: str) -> int:
    """Nothing that ends beyond this has landed, though the log's position may be higher.

    Entries without rows at the end of the log are looked through, so many as there may be at
    once; where there are more, it is the position of the oldest of them. In the order of CSNs it is up to
    where in the log all of the newest entry stood.

    Raises:
        LandingError: an entry is damaged.
        DiskError: the file system failed.
    """
    found = 0
    for n in reversed(entries.numbers()[-_IDLE_LOOKED_AT:]):
        entry = entries.one(n)
        position = entry.positions[source]
        found = position.lsn
        if position.until is not None:
            return ends_at(position)
        if entry.extra.get("source", source) != source:
            continue  # rows of another one
        if entry.kind not in _WITHOUT_ROWS:
            return _end_of(entry, found, source)
    return found


def _end_of(entry: CommitEntry, position: int, source: str) -> int:
    """Where the last of an entry's rows of a source ended."""
    if entry.kind is EntryKind.SNAPSHOT:
        said = entry.extra.get("snapshot", {})
        return max(position, int(said.get("lsn", 0)))
    # A message that no transaction holds stands at its beginning.
    ends = [file.last.lsn + (file.table == MESSAGES) for file in files_of(entry.files, source)]
    return min(position, max(ends)) if entry.kind is EntryKind.DATA and ends else position


def _find_first(log: CommitLog, source: str, lsn: int) -> tuple[int, int]:
    """Number of the first entry that is wanted, and the position before it."""
    now = log.positions[source]
    stop = log.next_n
    oldest = ends_at(now)
    held = max(log.floor, without_transactions(log.mirrored_only_until)) + 1
    while stop > held:
        start = max(stop - _BLOCK, held)
        for entry in reversed(list(log.iterate(start, stop - 1))):
            position = entry.positions[source]
            if position.epoch < now.epoch:
                return entry.n + 1, oldest
            if ends_at(position) <= lsn:
                return entry.n + 1, lsn
            oldest = ends_at(position)
        stop = start
    # The first entry that is held began at a position that nobody knows any more; so did an
    # epoch's: what ends up to its own position is not compared.
    return held + 1, oldest


def ends_at(position: SourcePosition) -> int:
    """Nothing that has landed up to a position ends beyond this."""
    return max(position.lsn, position.until or 0)


def _read(log: CommitLog, source: str, entries: Iterator[CommitEntry]) -> Iterator[TransactionMark]:
    for entry in entries:  # several lanes may have written the rows of one
        files = (_marks(_batches(log, file)) for file in _files(entry, source))
        yield from heapq.merge(*files, key=operator.attrgetter("end_lsn"))


def _read_by_csn(
    log: CommitLog, source: str, entries: Iterator[CommitEntry]
) -> Iterator[TransactionMark]:
    """Of an entry all that ends up to its position; the rest may end after some of the next one."""
    rest: list[pa.RecordBatch] = []
    for entry in entries:
        files = _files(entry, source)
        if not files:
            continue
        found = itertools.chain(rest, *(_batches(log, file) for file in files))
        rows = pa.Table.from_batches(found).sort_by("gd_lsn").combine_chunks()
        lsns = rows.column("gd_lsn").to_numpy()
        ended = int(lsns.searchsorted(entry.positions[source].lsn, side="right"))
        yield from _marks(iter(rows.slice(0, ended).to_batches(_ROWS)))
        rest = rows.slice(ended).to_batches()
    yield from _marks(iter(rest))


def _files(entry: CommitEntry, source: str) -> list[LandingFile]:
    if entry.replaced:
        return []
    return [file for file in files_of(entry.files, source) if file.table == TRANSACTIONS]


def _batches(log: CommitLog, file: LandingFile) -> Iterator[pa.RecordBatch]:
    try:
        with log.disk.files.open(file.path) as opened:
            parquet = lazy_pyarrow.pq.ParquetFile(opened)
            yield from parquet.iter_batches(_ROWS, columns=list(_COLUMNS))
    except (OSError, pa.ArrowException, KeyError) as error:
        raise LandingError(
            f"{file.path} cannot be read ({type(error).__name__}), so transactions that the server "
            "sends again cannot be compared with it; run `gaussdecode verify`, and restore it from a "
            "copy"
        ) from error


def _marks(batches: Iterator[pa.RecordBatch]) -> Iterator[TransactionMark]:
    for batch in batches:
        lsns, xids, times, counts, origins, users, csns = map(batch.column, _COLUMNS)
        columns = (lsns, xids, times.cast(pa.int64()), counts, origins.is_valid(), users, csns)
        for lsn, xid, time_us, count, has_origin, user, csn in zip(
            *(column.to_pylist() for column in columns), strict=True
        ):
            yield TransactionMark(
                lsn,
                xid or 0,
                time_us or 0,
                count or 0,
                has_origin,
                user=user or "",
                csn=csn or 0,
            )
