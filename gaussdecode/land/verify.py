"""`verify`: does the landing hold what its log says, and does the log hold together?

Given a root; reads everything, changes nothing, and may run beside the daemon. Promises to
look at every published entry and every row's position, in memory that does not grow with
the landing:

* the chain: every entry follows the one before, every checkpoint agrees with itself;
* the files: present, size, checksum, rows, counts by operation, and schema;
* the rows: inside the positions of their entry; per transaction ``gd_seq`` from 0 without
  gap or repetition over all tables; so no ``(gd_epoch, gd_lsn, gd_seq)`` twice;
* the sums: what the reader framed in a stretch is what its files hold and what was left out,
  and each stretch begins where the one before ended;
* compaction: as many rows by operation, with the same positions, as the files replaced;
* nothing lies around that no entry names.

"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.errors import GaussDecodeError, LandingError
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries
from gaussdecode.land.files import Files
from gaussdecode.land.layout import read_layout
from gaussdecode.land.names import (
    COMPACT,
    DATA,
    SCHEMAS,
    TRANSACTIONS,
    data_number,
    entry_path,
    unfinished_number,
)
from gaussdecode.land.schemas import read_schema
from gaussdecode.land.sequence import SequenceCheck
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.state import LogState
from gaussdecode.model.account import add, counted
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, Position, SourcePosition

_MAX_FINDINGS: Final = 1000
_BATCH_ROWS: Final = 1 << 16
_SEQUENCED: Final = frozenset({EntryKind.DATA})
_OF_THE_STREAM: Final = frozenset({EntryKind.DATA, EntryKind.IDLE})
_MOVES_UNCOUNTED: Final = frozenset({EntryKind.GENESIS, EntryKind.GAP})


@dataclasses.dataclass(slots=True)
class Report:
    """What `verify` saw.

    Attributes:
        entries: number of entries read.
        first_n: number of the first one; None in an empty log.
        last_n: number of the last one.
        files: published files read.
        rows: rows in them, those of merged files left out.
        bytes: size of the files.
        ops: rows by operation, over all entries.
        framed: what the reader found in the stream, by kind, over all entries with sums.
        left_out: what of it did not land, by reason and kind.
        tables: number of tables.
        positions: behind the last entry.
        floor: of the log.
        findings: what is wrong, in sentences; empty when all is well.
        is_cut: there were more findings than are listed.
    """

    entries: int = 0
    first_n: int | None = None
    last_n: int | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    ops: Counter[str] = dataclasses.field(default_factory=Counter)
    framed: Counter[str] = dataclasses.field(default_factory=Counter)
    left_out: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    tables: int = 0
    positions: dict[str, SourcePosition] = dataclasses.field(default_factory=dict)
    floor: int = -1
    findings: list[str] = dataclasses.field(default_factory=list)
    is_cut: bool = False

    @property
    def is_clean(self) -> bool:
        """Nothing is wrong."""
        return not self.findings

    def add(self, finding: str) -> None:
        """Write down something that is wrong."""
        if len(self.findings) < _MAX_FINDINGS:
            self.findings.append(finding)
        else:
            self.is_cut = True


def verify(root: Path) -> Report:
    """Check a landing.

    Raises:
        ConfigError: there is no directory at `root`.
        LandingError: there is no landing in it.
    """
    files = Files(root)
    try:
        return verify_files(files)
    finally:
        files.close()


def verify_files(files: Files) -> Report:
    """Check a landing through its files.

    Raises:
        LandingError: there is no landing.
    """
    disk = Disk(files, SpaceWait(should_stop=lambda: True), "verify")
    if read_layout(disk) is None:
        raise LandingError("there is no layout.json: this is not the root of a landing")
    return _Verification(disk).run()


class _Verification:
    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.entries = Entries(disk)
        self.report = Report()
        self.state = LogState()
        self.schemas: set[tuple[str, str]] = set()
        self.tables: set[str] = set()
        self.anchor = self.state.anchor
        self.has_sums = False

    def run(self) -> Report:
        report = self.report
        # Leftovers are looked for first: what is unfinished now may be published later.
        lying = list(self.unnamed())
        try:
            for entry in self.chain():
                self.check_entry(entry)
        except GaussDecodeError as error:
            report.add(f"the chain ends after entry {self.state.next_n - 1}: {error}")
        self.check_floor()
        self.check_leftovers(lying)
        report.tables = len(self.tables)
        report.positions = dict(self.state.positions)
        report.floor = self.state.floor
        return report

    def chain(self) -> Iterator[CommitEntry]:
        """All entries there are, each checked against the one before."""
        checkpoints = self.entries.checkpoints()
        numbers = set(self.entries.numbers())
        for first, last, path in checkpoints:
            header = self.entries.header(path)
            if self.state.next_n == 0 and first > 0:
                self.state = dataclasses.replace(
                    LogState.from_header(header),
                    next_n=first,
                    last_hash=header.previous,
                    positions={},
                )
            for entry in self.follow(self.entries.iterate(first, last)):
                self.check_copy(entry, numbers)
                yield entry
            behind = LogState.from_header(header)
            if behind.last_hash != self.state.last_hash or behind.schemas != self.state.schemas:
                self.report.add(f"{path}: its header is not the state behind entry {last}")
        newest = max(numbers, default=-1)
        yield from self.follow(self.entries.iterate(self.state.next_n, newest))

    def check_copy(self, entry: CommitEntry, numbers: set[int]) -> None:
        """Compare an entry of a checkpoint with its own file, while that is there."""
        if entry.n in numbers and self.entries.raw(entry.n) != entry.to_bytes():
            self.report.add(f"{entry_path(entry.n)} differs from its copy in the checkpoint")

    def follow(self, entries: Iterator[CommitEntry]) -> Iterator[CommitEntry]:
        for entry in entries:
            yield entry
            self.state.fold(entry)

    def check_floor(self) -> None:
        """See that nothing is missing between the floor and the first entry."""
        first, floor = self.report.first_n, self.state.floor
        if first is not None and first > floor + 1:
            self.report.add(f"entries {floor + 1} to {first - 1} are missing above the floor")
        if first == floor + 1 and self.anchor != self.state.anchor:
            self.report.add(f"entry {first} does not go on from the anchor of the floor")

    def check_entry(self, entry: CommitEntry) -> None:
        report = self.report
        report.first_n = entry.n if report.first_n is None else report.first_n
        report.last_n = entry.n
        if not report.entries:
            self.anchor = entry.previous
        report.entries += 1
        self.state.check_next(entry)
        order = SequenceCheck()
        held = []
        for file in entry.files:
            self.tables.add(file.table)
            self.check_schema(entry.n, file)
            if self.is_gone(entry, file):
                continue
            held.append(self.check_file(entry, file, order))
        self.check_sums(entry, add(held))
        if entry.kind in _SEQUENCED:
            self.check_order(entry, order)
        for replacement in entry.replaced:
            self.check_replacement(entry, replacement.path, replacement.replaced)

    def is_gone(self, entry: CommitEntry, file: LandingFile) -> bool:
        """Whether retention may have taken a merged file although its entry stays."""
        block = file.path.split("/")[1]
        merged = file.path.startswith(f"{COMPACT}/")
        return merged and int(block) <= self.newest_floor() and self.disk.size(file.path) is None

    def newest_floor(self) -> int:
        checkpoints = self.entries.checkpoints()
        lowest = checkpoints[0][0] if checkpoints else min(self.entries.numbers(), default=0)
        return lowest - 1

    def check_schema(self, n: int, file: LandingFile) -> None:
        key = (file.table, file.schema_id)
        if key in self.schemas:
            return
        self.schemas.add(key)
        try:
            if read_schema(self.disk, *key) is None:
                self.report.add(
                    f"{SCHEMAS}/{file.table}/{file.schema_id}.json is missing; entry {n} needs it"
                )
        except LandingError as error:
            self.report.add(str(error))

    def check_sums(self, entry: CommitEntry, held: dict[str, int]) -> None:
        """See that an entry accounts for its stretch of the stream, and for what it holds.

        Args:
            entry: to be checked.
            held: what its files hold, as they were read.
        """
        report, account = self.report, entry.account
        (source,) = entry.positions
        before, after = self.state.positions.get(source), entry.positions[source]
        if account is None:
            is_moved = before is None or (before.epoch, before.lsn) != (after.epoch, after.lsn)
            is_counted = entry.kind in _OF_THE_STREAM or (
                is_moved and entry.kind not in _MOVES_UNCOUNTED
            )
            if self.has_sums and is_counted:
                report.add(f"entry {entry.n} has no sums, but entries before it have them")
            return
        self.has_sums = True
        for wrong in (account.wrong_place(before, after), account.wrong(held)):
            if wrong is not None:
                report.add(f"entry {entry.n}: the sums do not add up: {wrong}")
        report.framed.update(account.framed)
        for reason, counts in account.left_out.items():
            report.left_out.setdefault(reason, Counter()).update(counts)

    def check_file(
        self, entry: CommitEntry, file: LandingFile, order: SequenceCheck
    ) -> dict[str, int]:
        """Read a file, and compare it with what its entry says; gives what it holds."""
        report = self.report
        size = self.disk.size(file.path)
        if size != file.bytes:
            found = "missing" if size is None else f"{size} bytes long, not {file.bytes}"
            report.add(f"{file.path} of entry {entry.n} is {found}")
            return {}
        if self.disk.checksum(file.path) != file.checksum:
            report.add(f"{file.path} of entry {entry.n} is altered: its checksum differs")
            return {}
        report.files += 1
        report.bytes += file.bytes
        try:
            rows, ops = self.read_rows(file, order)
        except (OSError, pa.ArrowException) as error:
            report.add(f"{file.path} of entry {entry.n} cannot be read: {error}")
            return {}
        if rows != file.rows:
            report.add(f"{file.path} holds {rows} rows, entry {entry.n} says {file.rows}")
        if ops and dict(ops) != file.ops:
            report.add(f"{file.path} holds {dict(ops)}, entry {entry.n} says {file.ops}")
        if entry.kind is not EntryKind.COMPACT:
            report.rows += rows
            report.ops.update(ops)
        return counted(file.table, rows, ops)

    def read_rows(self, file: LandingFile, order: SequenceCheck) -> tuple[int, Counter[str]]:
        """Read operations and positions of a file, batch by batch."""
        rows, ops = 0, Counter[str]()
        with self.disk.files.open(file.path) as raw:
            parquet = pq.ParquetFile(raw)
            names = parquet.schema_arrow.names
            columns = [name for name in ("gd_op", "gd_lsn", "gd_seq") if name in names]
            if not columns:
                return parquet.metadata.num_rows, ops
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                rows += batch.num_rows
                if "gd_op" in columns:
                    counted = batch.column("gd_op").value_counts().to_pylist()
                    ops.update({item["values"]: item["counts"] for item in counted})
                if {"gd_lsn", "gd_seq"} <= set(columns) and file.table != TRANSACTIONS:
                    order.add(file.table, batch)
        return rows, ops

    def check_order(self, entry: CommitEntry, order: SequenceCheck) -> None:
        (source,) = entry.positions
        after = self.state.positions.get(source)
        until = entry.positions[source]
        for finding in order.findings(after, until):
            self.report.add(f"entry {entry.n}: {finding}")

    def check_replacement(self, entry: CommitEntry, path: str, replaced: tuple[str, ...]) -> None:
        """Compare the positions in a merged file with those in the files it replaces."""
        if any(self.disk.size(each) is None for each in (path, *replaced)):
            return  # retention is at work, or the file's own entry was reported already
        merged, parts = SequenceCheck(), SequenceCheck()
        table = path.split("/")[2]
        try:
            for each, order in ((path, merged), *((old, parts) for old in replaced)):
                self.read_rows(_file_at(each, table), order)
        except (OSError, pa.ArrowException) as error:
            self.report.add(f"{path} of entry {entry.n} cannot be compared: {error}")
            return
        if merged.seen != parts.seen:
            self.report.add(f"{path} of entry {entry.n} holds other rows than it replaces")

    def unnamed(self) -> Iterator[str]:
        """Everything under ``data/`` and ``compact/`` that should not stay, or should be named."""
        for top in (DATA, COMPACT):
            for middle in self.disk.items(top):
                for leaf in self.disk.items(f"{top}/{middle.name}"):
                    directory = f"{top}/{middle.name}/{leaf.name}"
                    for item in self.disk.items(directory):
                        yield f"{directory}/{item.name}"

    def check_leftovers(self, paths: list[str]) -> None:
        """Report what no entry can name: numbers outside the log, names not of our pattern."""
        published: dict[int, list[str]] = {}
        for path in paths:
            name = path.rpartition("/")[2]
            number = data_number(name)
            if unfinished_number(name) is not None:
                if self.is_idle():
                    self.report.add(f"{path} is unfinished; the next start removes it")
            elif number is None:
                self.report.add(f"{path} is not ours; nothing else may write below the root")
            else:
                published.setdefault(number, []).append(path)
        for number in sorted(published):
            self.check_named(number, published[number])

    def check_named(self, n: int, paths: list[str]) -> None:
        if n >= self.state.next_n or n < (self.report.first_n or 0):
            if n >= self.state.next_n and not self.is_idle():
                return
            for path in paths:
                self.report.add(f"{path} belongs to entry {n}, which is not in the log")
            return
        (entry,) = self.entries.iterate(n, n)
        named = {file.path for file in entry.files}
        for path in paths:
            if path not in named:
                self.report.add(f"{path} is not named by entry {n}")

    def is_idle(self) -> bool:
        """Whether no daemon has the landing; its unfinished files are no finding."""
        try:
            self.disk.files.lock()
        except LandingError:
            return False
        self.disk.files.unlock()
        return True


def _file_at(path: str, table: str) -> LandingFile:
    """Describe a file by its path alone, to read its rows."""
    nowhere = Position(0, 0)
    return LandingFile(table, path, 0, 0, nowhere, nowhere, "", {}, False, False, "")
