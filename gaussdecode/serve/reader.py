"""Read a landing for clients: entries of its log as blocks of transactions, in order.

Given the root of a landing, or the URL of its mirror. Promises every transaction after a position, each once and
in the landing's order, with rows of all tables in their order; and an error in place of rows that are
missing, or may be. Reads only files that the log names, at most a few row groups of each table at a time.
"""

import bisect
import contextlib
import dataclasses
import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gaussdecode.errors import LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine, ended_by, epoch_of, oids_read_by
from gaussdecode.model.title import table_title
from gaussdecode.serve.block import (
    MESSAGES,
    Block,
    ServedColumn,
    TableRows,
    TableSchema,
    Transactions,
)
from gaussdecode.serve.errors import ServeError
from gaussdecode.spark.log.events import as_int64
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.place import Given, parquet_file

CHANGE_LSN: Final = "gd_change_lsn"
TRANSACTIONS: Final = "gd_transactions"
_OBJECT_NOT_IN_PREREQUISITE_STATE: Final = "55000"
_FEATURE_NOT_SUPPORTED: Final = "0A000"
_DATA_CORRUPTED: Final = "XX001"
_CHUNK_BYTES: Final = 1 << 20  # of a file; each client holds its messages, several times as large
_CHUNK_ROWS: Final = 1 << 14  # arbitrary; each client holds messages of so many
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SEQ_BITS: Final = 40  # rows of a transaction; the rest numbers the transactions of an entry
LEAST_RECORD: Final = 24
"""Bytes of a record's header: what comes between the ends of two records has the numbers in between."""
_SKIPPED: Final = frozenset({"gd_epoch", "gd_lsn", "gd_csn", "gd_xid", "gd_ts", "gd_source"})

Wanted = Callable[[str, str], bool]
"""Whether a client gets a table, by its schema and name."""


def every_table(schema: str, name: str) -> bool:
    """Want all tables."""
    del schema, name
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class ReadPosition:
    """How far a client has read a landing.

    Attributes:
        n: number of the next entry to read.
        epoch: of `lsn`.
        lsn: transactions of that entry that end up to here have been read; a CSN where the landing is in the
            order of CSNs.
    """

    n: int
    epoch: int
    lsn: int


class LandingReader:
    """Reads the landing below a root for one client, or for several that want the same tables.

    Attributes:
        landing: its log and schemas.
    """

    def __init__(
        self,
        root: Given | Landing,
        *,
        source: str | None = None,
        wanted: Wanted = every_table,
        include_snapshot: bool = False,
        include_messages: bool = True,
    ) -> None:
        """Open a landing.

        Args:
            root: directory of the landing, or URL of its mirror; or the landing, where it is open already.
            source: the one whose rows are read, where the landing has several.
            wanted: tells the tables whose rows are read.
            include_snapshot: read rows of snapshots too, as a transaction at the snapshot's position.
            include_messages: read logical messages too.

        Raises:
            ConfigError: there is no landing.
            LandingError: the landing is damaged or newer than this program.
            ServeError: the landing has several sources, and none of them is given.
        """
        self.landing = root if isinstance(root, Landing) else Landing(root)
        self._source = source
        self._wanted = wanted
        self._include_snapshot = include_snapshot
        self._include_messages = include_messages
        self._looking = threading.Lock()
        # For quarantines: those that are over, with their ends, and the others.
        self._looked_until = 0
        self._quarantines: list[tuple[CommitEntry, int]] = []
        self._open: list[CommitEntry] = []
        self._snapshots: list[
            tuple[int, SourcePosition]
        ] = []  # numbers, and positions of their rows
        if self.landing.has_several and source is None:
            raise ServeError(
                _FEATURE_NOT_SUPPORTED,
                f"this landing has several sources ({', '.join(self.landing.sources)}), whose LSNs are not comparable",
                hint="Name one of them.",
            )

    # --- positions -------------------------------------------------------------------------

    def end(self) -> ReadPosition:
        """The position after everything that has landed.

        Raises:
            ServeError: the log is empty.
        """
        last = self.landing.last_n
        if last < 0:
            raise ServeError(
                _OBJECT_NOT_IN_PREREQUISITE_STATE,
                "nothing has landed yet",
                hint="Wait until the daemon has written its first entry.",
            )
        return self._after(self.landing.entry(last))

    def beginning(self) -> ReadPosition:
        """The position before the oldest entry that retention has left."""
        if self.landing.last_n < 0:
            return ReadPosition(0, 0, 0)
        return self._before(self.landing.entry(self.landing.first_n))

    def at(self, lsn: int) -> ReadPosition:
        """The position after all transactions that end up to an LSN, in the newest epoch that has it.

        Args:
            lsn: end of a commit record, or any LSN; one after the end of the log means the end.

        Raises:
            ServeError: the log does not reach so far back any more.
        """
        end = self.end()
        if lsn >= end.lsn:
            return end
        first = self.landing.first_n
        n = first - 1
        if self._holds(lsn, first):
            last = self.landing.last_n
            n = self.landing.last_until(lambda entry: self._position(entry).lsn > lsn, first, last)
        if n < first and first > 0:
            held = self.landing.entry(first)
            raise ServeError(
                _OBJECT_NOT_IN_PREREQUISITE_STATE,
                f"can no longer read from {Lsn(lsn)}: entries before {first} were removed by retention",
                f"The oldest entry ends at {Lsn(self._position(held).lsn)}.",
                "Drop the slot and make it anew; landing.retention says how long entries are kept.",
            )
        if n < first:
            return ReadPosition(0, 0, 0)
        after = self._after(self.landing.entry(n))
        return dataclasses.replace(after, lsn=max(lsn, after.lsn))

    def advanced(self, position: ReadPosition, lsn: int) -> ReadPosition:
        """The position of a slot after all transactions that end up to an LSN.

        LSNs of different epochs are not comparable. The LSN is of the slot's epoch. Where the slot has confirmed all
        of that epoch, it is of the next one, and never of a later one.

        Args:
            position: of the slot.
            lsn: any LSN; one after the end of the epoch means its end.

        Raises:
            ServeError: it lies before the slot, or retention removed what comes next.
        """
        first, last = self.landing.first_n, self.landing.last_n
        if position.n < first:
            self.at(lsn)  # the log may not reach so far back
        start = max(position.n, first)
        if start > last:
            epoch, found = position.epoch, last
        else:
            epoch = self._position(self.landing.entry(start)).epoch
            if lsn == position.lsn and position.n > 0 and epoch != position.epoch:
                return position  # it is at its end of an epoch
            found = (
                start
                - 1
                + bisect.bisect_left(
                    range(start, last + 1),
                    (epoch, lsn + 1),
                    key=lambda n: self._epoch_lsn(self.landing.entry(n)),
                )
            )
        if found >= start:
            after = self._after(self.landing.entry(found))
            is_end = found == last or self._position(self.landing.entry(found + 1)).epoch != epoch
            return after if is_end else dataclasses.replace(after, lsn=max(lsn, after.lsn))
        is_same = epoch == position.epoch or position.n == 0
        if not is_same or lsn < position.lsn:
            raise ServeError(
                _OBJECT_NOT_IN_PREREQUISITE_STATE,
                f"cannot advance replication slot to {Lsn(lsn)}, minimum is {Lsn(position.lsn)}"
                if is_same
                else f"cannot advance replication slot to {Lsn(lsn)}: epoch {epoch} begins after it, "
                f"at {Lsn(self._position(self.landing.entry(start)).lsn)}",
            )
        if start > last:
            return position
        return ReadPosition(start, epoch, lsn)

    def _epoch_lsn(self, entry: CommitEntry) -> tuple[int, int]:
        position = self._position(entry)
        return position.epoch, position.lsn

    def _holds(self, lsn: int, first: int) -> bool:
        return self._position(self.landing.entry(first)).lsn <= lsn

    def _position(self, entry: CommitEntry) -> SourcePosition:
        """Of the source; in a landing in the order of CSNs the CSN, which rises there, in place of the LSN."""
        position = self.landing.position(entry, self._source)
        if not self.landing.is_by_csn:
            return position
        return dataclasses.replace(position, lsn=position.csn or 0)

    def _is_mine(self, source: str | None) -> bool:
        """Whether a file or mark is of the source that is read."""
        return source in {None, self._source}

    def _after(self, entry: CommitEntry) -> ReadPosition:
        position = self._position(entry)
        return ReadPosition(entry.n + 1, position.epoch, position.lsn)

    def _before(self, entry: CommitEntry) -> ReadPosition:
        """Before all transactions of an entry: where it begins, if it says so; else at 0."""
        position = self._position(entry)
        sums = entry.extra.get("sums", entry.extra.get("sums_by_source", {}).get(self._source))
        lsn = 0
        if entry.kind is EntryKind.GENESIS:
            lsn = position.lsn
        elif sums is not None and sums["since"][0] == position.epoch and not self.landing.is_by_csn:
            lsn = sums["since"][1]
        return ReadPosition(entry.n, position.epoch, lsn)

    def after(self, entry: CommitEntry) -> ReadPosition:
        """The position after an entry that was read."""
        return self._after(entry)

    # --- what is missing -------------------------------------------------------------------

    def check_start(self, position: ReadPosition) -> None:
        """Refuse to begin where rows of a wanted table do not land.

        Raises:
            ServeError: a wanted table is in quarantine there.
        """
        last = self.landing.last_n
        if position.n > last + 1:
            raise ServeError(
                _OBJECT_NOT_IN_PREREQUISITE_STATE,
                f"the slot is at entry {position.n}, {Lsn(position.lsn)}, and the landing ends with entry {last}",
                hint="The landing was restored from an older copy. Compare the tables on the client's side with the "
                "source, then drop the slot and create it anew.",
            )
        with self._looking:  # clients begin in several threads
            first = max(self._looked_until, self.landing.first_n)
            for entry in self.landing.entries(first, last):
                ended = [of for of in self._open if self._ends(entry, of)]
                self._open = [of for of in self._open if of not in ended]
                self._quarantines += [(of, entry.n) for of in ended]
                if entry.kind is EntryKind.QUARANTINE:
                    self._open.append(entry)
                if self.has_snapshot(entry):
                    said = entry.extra["snapshot"]
                    self._snapshots.append((entry.n, SourcePosition(said["epoch"], 0, said["lsn"])))
            self._looked_until = max(self._looked_until, last + 1)
            held = [*self._quarantines, *((of, last + 1) for of in self._open)]
        for entry, end in held:
            if entry.n < position.n <= end:
                self.check(entry)

    def snapshots_ahead(self, position: ReadPosition) -> list[int]:
        """Entries of snapshots before a position whose rows come after it, or just before; `check_start` saw them."""
        first = self.landing.first_n
        return [
            n
            for n, at in self._snapshots
            if first <= n < position.n
            and at.epoch == position.epoch
            and at.lsn + LEAST_RECORD > position.lsn
        ]

    def check(self, entry: CommitEntry) -> None:
        """Refuse an entry after which rows are missing, or may be.

        Raises:
            ServeError: it says so, of a table that is wanted.
        """
        if entry.kind is EntryKind.GAP:
            until = Lsn(entry.extra["until_lsn"])
            since = Lsn(entry.extra.get("from_lsn", self._position(entry).lsn))
            raise self._missing(entry, f"changes are missing up to {until}", since)
        if entry.kind is EntryKind.QUARANTINE:
            table = Quarantine.from_extra(entry.extra)
            if self._wanted(table.namespace, table.name):
                raise ServeError(
                    _OBJECT_NOT_IN_PREREQUISITE_STATE,
                    f"rows of {table.title} do not land since {Lsn(table.from_lsn)} (entry {entry.n}): {table.error}",
                    hint=self._after_quarantine(entry, table),
                )
        is_mine = self._is_mine(entry.extra.get("source"))
        if entry.kind is EntryKind.SUSPECT and is_mine and self._concerns(entry):
            raise self._missing(entry, "changes may be missing", Lsn(self._position(entry).lsn))

    def _after_quarantine(self, entry: CommitEntry, table: Quarantine) -> str:
        """What to do about a table in quarantine."""
        over = "Take a snapshot of the table with the daemon, or leave the table out of what this client asks for."
        for later in self.landing.entries(entry.n + 1, self.landing.last_n):
            if self._ends(later, entry):
                over = f"A snapshot (entry {later.n}) has the table again: read it anew on the client's side."
                return f"{over} {self._move_past(later)}"
        return f"{over} Then try again: the error says where to move the slot."

    def _ends(self, later: CommitEntry, entry: CommitEntry) -> bool:
        """Whether an entry has a table whole that another one put in quarantine, perhaps under a new name."""
        table = Quarantine.from_extra(entry.extra)
        if table.table in ended_by(later):
            return True
        is_of_one = not self.landing.has_several
        return is_of_one and table.oid in oids_read_by(later, epoch_of(entry))

    def _concerns(self, entry: CommitEntry) -> bool:
        if entry.extra.get("is_any_table") or not entry.extra.get("tables"):
            return True
        changes = entry.extra.get("changes", {})
        return any(
            self._is_wanted(table)
            for table in entry.extra["tables"]
            if not changes.get(table, {}).get("comes_whole")
        )

    def _is_wanted(self, table: str) -> bool:
        for schema_id in self.landing.schema_ids(table)[:1]:
            record = self.landing.schema_record(table, schema_id)
            return self._wanted(record["schema"], record["name"])
        return True

    def _missing(self, entry: CommitEntry, what: str, since: Lsn) -> ServeError:
        return ServeError(
            _OBJECT_NOT_IN_PREREQUISITE_STATE,
            f"{what} after {since} (entry {entry.n}): {entry.extra.get('text', entry.kind)}",
            hint=f"Read the tables anew on the client's side. {self._move_past(entry)}",
        )

    def _move_past(self, entry: CommitEntry) -> str:
        """How a client accepts what an entry says."""
        position = self._position(entry)
        targets = [Lsn(position.lsn)]
        if entry.n > self.landing.first_n:
            before = self._position(self.landing.entry(entry.n - 1))
            if before.epoch != position.epoch:  # a slot passes one epoch at a time
                targets.insert(0, Lsn(before.lsn))
        calls = " and then ".join(f"pg_replication_slot_advance(SLOT, '{lsn}')" for lsn in targets)
        return f"Then move the slot past entry {entry.n}: SELECT {calls}."

    def new_epoch(self, entry: CommitEntry, position: ReadPosition) -> ServeError:
        """An entry from which on LSNs repeat, for a client at a position before it."""
        return ServeError(
            _OBJECT_NOT_IN_PREREQUISITE_STATE,
            f"entry {entry.n} begins epoch {self._position(entry).epoch} at {Lsn(self._position(entry).lsn)}: "
            "LSNs of the source repeat from here on",
            f"The client is at {Lsn(position.lsn)} of epoch {position.epoch}.",
            f"Compare the tables on the client's side with the source. {self._move_past(entry)}",
        )

    # --- rows ------------------------------------------------------------------------------

    def entries(self, first: int) -> Iterator[CommitEntry]:
        """Entries from a number up to the end of the log, each checked against the one before.

        Raises:
            LandingError: one is damaged, missing, or was removed by retention.
        """
        yield from self.landing.entries(first, self.landing.last_n)

    def blocks(self, entry: CommitEntry, after: ReadPosition) -> Iterator[Block]:
        """Blocks of an entry; none if it has no transactions after a position.

        Args:
            entry: of this landing's log.
            after: transactions of the entry that end up to its LSN (CSN) are left out; it is looked at
                only if its `n` is that of the entry.

        Raises:
            ServeError: rows are missing, or may be; or a file is damaged.
        """
        self.check(entry)
        try:
            if entry.kind is EntryKind.DATA:
                yield from self._data(entry, after if after.n == entry.n else None)
            elif self._include_snapshot and self.has_snapshot(entry):
                yield from self._snapshot(entry)
        except (
            OSError, pa.ArrowException, LandingError, KeyError, ValueError, IndexError, TypeError,
        ) as error:  # fmt: skip
            known = isinstance(error, OSError | pa.ArrowException | LandingError)
            what = str(error) if known else "a file of it is damaged"
            raise ServeError(
                _DATA_CORRUPTED,
                f"entry {entry.n} ({Lsn(self._position(entry).lsn)}) cannot be read: {what}",
                hint="gaussdecode verify names damaged files. Restore them from a copy; or read the tables anew on the "
                f"client's side. {self._move_past(entry)}",
            ) from error

    def has_snapshot(self, entry: CommitEntry) -> bool:
        """Whether an entry is a snapshot of the source that is read: LSNs of others mean nothing here."""
        return entry.kind is EntryKind.SNAPSHOT and self._is_mine(entry.extra.get("source"))

    def _data(self, entry: CommitEntry, after: ReadPosition | None) -> Iterator[Block]:
        transactions = self._transactions(entry)
        if transactions is None:
            files = (file for file in entry.files if self._is_mine(file.source))
            if any(file.table != TRANSACTIONS and file.ops for file in files):
                raise LandingError(f"it has rows, and no {TRANSACTIONS}")
            return
        shown = _by_csn(transactions) if self.landing.is_by_csn else transactions
        first = 0
        if after is not None:
            is_read = shown.end_lsn <= np.uint64(after.lsn)
            first = int(is_read.argmin()) if not is_read.all() else len(is_read)
        if first == len(transactions.end_lsn):
            return
        streams = [
            _Stream(self, files, entry, transactions) for files in self._files_by_schema(entry)
        ]
        messages = self._message_files(entry)
        if messages:
            streams.append(_Stream(self, messages, entry, transactions))
        epoch = self._position(entry).epoch
        yield from _merged(epoch, shown, first, streams)

    def _files_by_schema(self, entry: CommitEntry) -> Iterator[list[LandingFile]]:
        """Files of each wanted table, in order."""
        found: dict[str, list[LandingFile]] = {}
        for file in entry.files:
            if not file.table.startswith("gd_") and self._is_mine(file.source):
                found.setdefault(file.table, []).append(file)
        for files in found.values():
            schema = self.schema(files[0].table, files[0].schema_id)
            if self._wanted(schema.schema, schema.name):
                yield files

    def _message_files(self, entry: CommitEntry) -> list[LandingFile]:
        if not self._include_messages or self.landing.is_by_csn:
            return []
        return [
            file
            for file in entry.files
            if file.table == MESSAGES.name and self._is_mine(file.source)
        ]

    def _outside(self, entry: CommitEntry) -> npt.NDArray[np.uint64]:
        """LSNs of the messages outside of transactions."""
        found = [np.empty(0, np.uint64)]
        for file in self._message_files(entry):
            with parquet_file(self.landing.root / file.path) as opened:
                rows = opened.read(["gd_lsn", "gd_seq"])
            found.append(_lsns(rows.column("gd_lsn"))[~_known(rows.column("gd_seq"))])
        return np.concatenate(found)

    def schema(self, table: str, schema_id: str) -> TableSchema:
        """A version of a table's columns; of messages, what is written of them."""
        if table == MESSAGES.name:
            return MESSAGES
        record = self.landing.schema_record(table, schema_id)
        key = record["key"]
        return TableSchema(
            schema_id,
            record["schema"],
            record["name"],
            record["oid"],
            record["identity"],
            None if key is None else tuple(key),
            tuple(
                ServedColumn(
                    column["name"],
                    column["landed"],
                    column["type"],
                    column["type_oid"],
                    column["type_modifier"],
                    column["type_text"],
                    column["identity"],
                )
                for column in record["columns"]
            ),
        )

    def _transactions(self, entry: CommitEntry) -> Transactions | None:
        parts = []
        for file in entry.files:
            if file.table == TRANSACTIONS and self._is_mine(file.source):
                with self._opened(file) as opened:
                    parts.append(opened.read())
        outside = self._outside(entry)
        if not parts:
            return _only_outside(outside) if len(outside) else None
        rows = pa.concat_tables(parts, promote_options="default")
        end_lsn = _lsns(rows.column("gd_lsn"))
        count = len(end_lsn)
        found = Transactions(
            xid=as_int64(rows.column("gd_xid")),
            end_lsn=end_lsn,
            commit_lsn=_lsns_or(rows, "gd_commit_lsn", end_lsn),
            first_lsn=_lsns_or(rows, "gd_first_lsn", end_lsn),
            csn=as_int64(rows.column("gd_csn")),
            time_us=as_int64(rows.column("gd_ts").cast(pa.int64())),
            origin=_texts(rows, "origin", count),
            user=_texts(rows, "user", count),
            gid=_texts(rows, "gd_gid", count),
            is_outside=np.zeros(count, bool),
            row_ends=np.zeros(count, np.int64),
        )
        return _in_order(found, _only_outside(outside)) if len(outside) else found

    def _snapshot(self, entry: CommitEntry) -> Iterator[Block]:
        """Rows of a snapshot as one transaction, table by table."""
        said = entry.extra["snapshot"]
        lsn = np.array([said["lsn"]], np.uint64)
        none = np.zeros(1, np.int64)
        time = np.array([_microseconds(entry.committed_time)], np.int64)
        transactions = Transactions(
            none, lsn, lsn, lsn, none, time, (None,), (None,), (None,), none != 0, none
        )
        before: Block | None = None
        for rows in self._snapshot_rows(entry):
            count = len(rows.rows)
            block = Block(
                said["epoch"],
                dataclasses.replace(transactions, row_ends=np.array([count], np.int64)),
                (rows,),
                np.zeros(count, np.int32),
                np.arange(count, dtype=np.int64),
                np.full(count, lsn[0], np.uint64),
                is_continued=before is not None,
                is_open=True,
            )
            if before is not None:
                yield before
            before = block
        if before is not None:
            yield dataclasses.replace(before, is_open=False)

    def _snapshot_rows(self, entry: CommitEntry) -> Iterator[TableRows]:
        """Rows of each table; before them a TRUNCATE where clients may have older rows of it."""
        tables = entry.extra["snapshot"]["tables"]
        is_new = {change.table for change in entry.schema_changes if change.previous is None}
        for files in self._files_by_schema(entry):
            table = files[0].table
            clears = tables[table]["where"] is None and table not in is_new
            for file in files:
                schema = self.schema(file.table, file.schema_id)
                for batch in self._batches(file):
                    rows = batch.select(
                        [name for name in batch.schema.names if name not in _SKIPPED]
                    )
                    is_truncate = rows.column("gd_op")[0].as_py() == "T"
                    if clears and not is_truncate:
                        yield TableRows(schema, _truncation(rows.schema), {0: (False, False)})
                    clears = False
                    yield TableRows(schema, rows, {0: (False, False)} if is_truncate else {})

    def _batches(self, file: LandingFile) -> Iterator[pa.RecordBatch]:
        """Rows of a file, a MiB of it at a time."""
        with self._opened(file) as opened:
            groups = opened.metadata
            size = sum(groups.row_group(at).total_byte_size for at in range(groups.num_row_groups))
            rows = file.rows * _CHUNK_BYTES // max(1, file.bytes, size)
            rows = max(1, min(file.rows, rows, _CHUNK_ROWS))
            yield from opened.iter_batches(rows, use_threads=False)

    @contextlib.contextmanager
    def _opened(self, file: LandingFile) -> Iterator[pq.ParquetFile]:
        """Open a file that an entry names, and see that it has as many rows as the entry says."""
        with parquet_file(self.landing.root / file.path) as opened:
            if opened.metadata.num_rows != file.rows:
                raise LandingError(
                    f"{file.path} has {opened.metadata.num_rows} rows, and the entry names {file.rows}"
                )
            yield opened


@dataclasses.dataclass(slots=True)
class _Chunk:
    """Rows of one schema that are read and not yet in a block.

    Attributes:
        schema: their schema.
        rows: columns that plug-ins look at.
        keys: uint64, rising: number of the transaction in the entry, and of the row in it.
        change_lsn: uint64.
        first: rows before it are in blocks.
    """

    schema: TableSchema
    rows: pa.RecordBatch
    keys: npt.NDArray[np.uint64]
    change_lsn: npt.NDArray[np.uint64]
    first: int = 0


class _Stream:
    """Rows of one table in an entry, in order, chunk by chunk."""

    def __init__(
        self,
        reader: LandingReader,
        files: Sequence[LandingFile],
        entry: CommitEntry,
        transactions: Transactions,
    ) -> None:
        numbers = np.flatnonzero(~transactions.is_outside)
        self._order = numbers[np.argsort(transactions.end_lsn[numbers], kind="stable")]
        self._ends = transactions.end_lsn[self._order]
        self._outside = np.flatnonzero(transactions.is_outside)
        self._all_ends = transactions.end_lsn
        self._flags = {
            (truncate.position.lsn, truncate.position.seq): (
                truncate.cascade,
                truncate.restart_identity,
            )
            for truncate in entry.truncates
            if truncate.table == files[0].table and reader._is_mine(truncate.source)  # noqa: SLF001
        }
        self._shown = _by_csn(transactions).end_lsn if reader.landing.is_by_csn else None
        self._chunks = self._read(reader, files)
        self.chunk = next(self._chunks, None)

    def _read(self, reader: LandingReader, files: Sequence[LandingFile]) -> Iterator[_Chunk]:
        last = np.uint64(0)
        for file in files:
            schema = reader.schema(file.table, file.schema_id)
            for batch in reader._batches(file):  # noqa: SLF001
                chunk = self._chunk(schema, batch)
                if len(chunk.keys) and not (
                    last <= chunk.keys[0] and (chunk.keys[1:] > chunk.keys[:-1]).all()
                ):
                    raise LandingError(
                        f"rows of {table_title(schema.schema, schema.name)} are not in order; "
                        "compact or land anew: early versions wrote such entries"
                    )
                if len(chunk.keys):
                    last = chunk.keys[-1]
                    yield chunk

    def _chunk(self, schema: TableSchema, batch: pa.RecordBatch) -> _Chunk:
        lsns = _lsns(batch.column("gd_lsn"))
        seqs = as_int64(batch.column("gd_seq"))
        inside = _known(batch.column("gd_seq"))
        numbers = np.empty(len(lsns), np.uint64)
        numbers[inside] = _numbers(self._ends, self._order, lsns[inside])
        begins = self._all_ends[self._outside] - np.uint64(1)
        numbers[~inside] = _numbers(begins, self._outside, lsns[~inside])
        keys = (numbers << np.uint64(_SEQ_BITS)) | seqs.astype(np.uint64)
        if self._shown is None:
            change = _lsns_or(pa.Table.from_batches([batch]), CHANGE_LSN, lsns)
        else:
            change = self._shown[numbers.astype(np.int64)]
        kept = [name for name in batch.schema.names if name not in _SKIPPED]
        rows = batch.select(kept)
        if schema is MESSAGES:
            arrays = [pa.repeat("M", len(rows)), *rows.columns]
            rows = pa.RecordBatch.from_arrays(arrays, ["gd_op", *kept])
        return _Chunk(schema, rows, keys, change)

    def take(self, limit: np.uint64) -> Iterator[tuple[TableRows, Any, Any]]:
        """Take rows with keys up to a limit; with each part its keys and LSNs.

        Args:
            limit: not above the last key of the present chunk, unless that is the last chunk.
        """
        while self.chunk is not None:
            chunk = self.chunk
            end = int(np.searchsorted(chunk.keys, limit, "right"))
            if end > chunk.first:
                part = slice(chunk.first, end)
                rows = chunk.rows.slice(chunk.first, end - chunk.first)
                yield (
                    TableRows(chunk.schema, rows, self._truncates(rows, chunk.keys[part])),
                    chunk.keys[part],
                    chunk.change_lsn[part],
                )
                chunk.first = end
            if end < len(chunk.keys):
                return
            self.chunk = next(self._chunks, None)

    def _truncates(
        self, rows: pa.RecordBatch, keys: npt.NDArray[np.uint64]
    ) -> dict[int, tuple[bool, bool]]:
        if not self._flags:
            return {}
        found = {}
        for row in pc.indices_nonzero(pc.equal(rows.column("gd_op"), "T")).to_pylist():
            key = int(keys[row])
            lsn = int(self._all_ends[key >> _SEQ_BITS])
            found[row] = self._flags.get((lsn, key & ((1 << _SEQ_BITS) - 1)), (False, False))
        return found


def _merged(
    epoch: int, transactions: Transactions, first: int, streams: Sequence[_Stream]
) -> Iterator[Block]:
    """Bring the rows of all tables in order, as many at a time as every table has read.

    Args:
        epoch: of the entry.
        transactions: all of the entry.
        first: transactions before this one are left out.
        streams: rows of each table, from the beginning of the entry.
    """
    count = len(transactions.end_lsn)
    begin = np.uint64(first << _SEQ_BITS)
    for stream in streams:
        for _ in stream.take(begin - np.uint64(1)) if first else ():
            pass
    done = first  # transactions before it are in blocks
    is_continued = False
    while True:
        held = [stream.chunk for stream in streams if stream.chunk is not None]
        limit = min((chunk.keys[-1] for chunk in held), default=np.uint64((count << _SEQ_BITS) - 1))
        parts = [part for stream in streams for part in stream.take(limit)]
        is_last = all(stream.chunk is None for stream in streams)
        # The rest of a transaction may stand in the next chunk of any table.
        following = min(
            (int(stream.chunk.keys[stream.chunk.first]) for stream in streams if stream.chunk),
            default=count << _SEQ_BITS,
        )
        reached = int(limit) >> _SEQ_BITS
        is_open = not is_last and following >> _SEQ_BITS == reached
        end = count if is_last else reached + 1
        yield _block(epoch, transactions, done, end, parts, is_continued, is_open)
        if is_last:
            return
        is_continued = is_open
        done = end - 1 if is_open else end


def _block(
    epoch: int,
    transactions: Transactions,
    first: int,
    end: int,
    parts: Sequence[tuple[TableRows, Any, Any]],
    is_continued: bool,
    is_open: bool,
) -> Block:
    sizes = [len(keys) for _, keys, _ in parts]
    keys = np.concatenate([np.empty(0, np.uint64), *(keys for _, keys, _ in parts)])
    order = np.argsort(keys, kind="stable")
    table = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)[order]
    index = np.concatenate(
        [np.empty(0, np.int64), *(np.arange(size, dtype=np.int64) for size in sizes)]
    )[order]
    lsns = np.concatenate([np.empty(0, np.uint64), *(lsns for _, _, lsns in parts)])[order]
    bounds = (np.arange(first, end, dtype=np.uint64) + np.uint64(1)) << np.uint64(_SEQ_BITS)
    part = slice(first, end)
    return Block(
        epoch,
        Transactions(
            transactions.xid[part],
            transactions.end_lsn[part],
            transactions.commit_lsn[part],
            transactions.first_lsn[part],
            transactions.csn[part],
            transactions.time_us[part],
            transactions.origin[part],
            transactions.user[part],
            transactions.gid[part],
            transactions.is_outside[part],
            np.searchsorted(keys[order], bounds).astype(np.int64),
        ),
        tuple(rows for rows, _, _ in parts),
        table,
        index,
        lsns,
        is_continued=is_continued,
        is_open=is_open,
    )


def _truncation(schema: pa.Schema) -> pa.RecordBatch:
    """One row of op T."""
    arrays = [
        pa.array(["T"]).cast(field.type) if field.name == "gd_op" else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def _microseconds(time: dt.datetime) -> int:
    return (time - _EPOCH) // dt.timedelta(microseconds=1)


def _lsns(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    return as_int64(column).view(np.uint64)


def _known(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Where a column is not NULL."""
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)


def _numbers(
    ends: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64], lsns: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Numbers of the transactions that rows are of, by their ends, which rise."""
    at = np.searchsorted(ends, lsns)
    if (at == len(ends)).any() or (ends[at] != lsns).any():
        raise LandingError(f"a row is of no transaction of {TRANSACTIONS}")
    return numbers[at]


def _only_outside(lsns: npt.NDArray[np.uint64]) -> Transactions:
    """Messages outside of transactions, each as one of its own."""
    none = np.zeros(len(lsns), np.int64)
    nobody = (None,) * len(lsns)
    ends = lsns + np.uint64(1)
    return Transactions(none, ends, lsns, lsns, none, none, nobody, nobody, nobody, none == 0, none)


def _by_csn(of: Transactions) -> Transactions:
    """The same with CSNs in place of LSNs, which fall and rise in their order; the LSN of its first record is kept."""
    csn = of.csn.astype(np.uint64)
    return dataclasses.replace(of, end_lsn=csn, commit_lsn=csn)


def _in_order(first: Transactions, second: Transactions) -> Transactions:
    """All of both, by their ends."""
    order = np.argsort(np.concatenate([first.end_lsn, second.end_lsn]), kind="stable")
    fields: dict[str, Any] = {}  # Any: an array, or a tuple
    for field in dataclasses.fields(Transactions):
        values = [getattr(of, field.name) for of in (first, second)]
        if isinstance(values[0], tuple):
            joined = values[0] + values[1]
            fields[field.name] = tuple(joined[at] for at in order)
        else:
            fields[field.name] = np.concatenate(values)[order]
    return Transactions(**fields)


def _lsns_or(rows: pa.Table, name: str, other: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A column of LSNs; others where it is missing or NULL."""
    if name not in rows.column_names:
        return other
    column = rows.column(name)
    known = np.asarray(pc.is_valid(column).combine_chunks().to_numpy(zero_copy_only=False), bool)
    return np.where(known, _lsns(column), other)


def _texts(rows: pa.Table, name: str, count: int) -> tuple[str | None, ...]:
    if name not in rows.column_names:
        return (None,) * count
    return tuple(rows.column(name).to_pylist())
