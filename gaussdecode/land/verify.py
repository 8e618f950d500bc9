"""Run `verify`: check that the landing holds what its log says, and that the log is consistent.

Given a root. It reads everything, changes nothing, and may run beside the daemon. It checks every committed
entry and every row's position, in memory that does not grow with the landing. Files that retention removes
meanwhile are no finding: a missing file is compared with the floor that the log has at that moment, and the
floor is committed before any file goes.

* the chain: every entry follows the one before, every checkpoint agrees with itself;
* the files: present, size, checksum, rows, counts by operation, and schema;
* the rows: inside the positions of their entry; in order over the files of a table, of entries that say
  so, each file from its first position to its last; per transaction ``gd_seq`` from 0 without
  gap or repetition over all tables; so no ``(gd_epoch, gd_lsn, gd_seq)`` twice;
* where the order is that of CSNs: every CSN of an entry at or below its watermark, which all sources
  have in common, and above that of the entry before;
* the sums, of each source: what the reader framed in a stretch is what its files hold and what was left out,
  and each stretch begins where the one before ended;
* compaction: as many rows by operation, with the same positions, as the files replaced, in order;
* schemas, the layout and what snapshots keep: what was written;
* nothing lies around that no entry names.

Files that are in the mirror only are looked at there: `verify` of its URL.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.errors import ConfigError, GaussDecodeError, LandingError
from gaussdecode.land.commitlog import ORDER_CSN
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries, parse_entry
from gaussdecode.land.expiry import FloorWatch
from gaussdecode.land.files import Files
from gaussdecode.land.layout import read_layout
from gaussdecode.land.mirror.known import mirrored_only_until
from gaussdecode.land.names import (
    COMPACT,
    MESSAGES,
    SCHEMAS,
    TRANSACTIONS,
    data_number,
    entry_path,
)
from gaussdecode.land.schemas import read_schema
from gaussdecode.land.sequence import RowOrder, SequenceCheck
from gaussdecode.land.snapshots import ROOT as SNAPSHOTS
from gaussdecode.land.snapshots import is_whole
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.state import LogState
from gaussdecode.land.stray_files import Sums, strays, walk
from gaussdecode.land.tree import Kind, spell
from gaussdecode.model.account import Account, add, counted, counted_files, files_of
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, Position, SourcePosition

_MAX_FINDINGS: Final = 1000
_BATCH_ROWS: Final = 1 << 16
_SEQUENCED: Final = frozenset({EntryKind.DATA})
_OF_THE_STREAM: Final = frozenset({EntryKind.DATA, EntryKind.IDLE})
_MOVES_UNCOUNTED: Final = frozenset({EntryKind.GENESIS, EntryKind.GAP, EntryKind.FORK})


@dataclasses.dataclass(slots=True)
class Report:
    """What `verify` saw.

    Attributes:
        entries: number of entries read.
        first_n: number of the first one; None in an empty log.
        last_n: number of the last one.
        files: committed files read.
        rows: rows in them, those of merged files left out.
        bytes: size of the files.
        ops: rows by operation, over all entries.
        framed: counts that the reader found in the stream, by kind, over all entries with sums.
        left_out: counts of these that did not land, by reason and kind.
        tables: number of tables.
        positions: after the last entry.
        floor: floor of the log.
        findings: problems, in sentences; empty when all is well.
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
        ConfigError: there is no directory at `root`, or a newer program wrote to it.
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
    layout = read_layout(disk)
    if layout is None:
        raise LandingError("there is no layout.json: this is not the root of a landing")
    return _Verification(disk, is_by_csn=layout.order == ORDER_CSN).run()


class _Verification:
    def __init__(self, disk: Disk, *, is_by_csn: bool) -> None:
        self.disk = disk
        self.is_by_csn = is_by_csn
        self.entries = Entries(disk)
        self.report = Report()
        self.state = LogState()
        self.schemas: set[tuple[str, str]] = set()
        self.tables: set[str] = set()
        self.anchor = self.state.anchor
        self.watch = FloorWatch(self.entries)
        self.on_disk, self.named = Sums(), Sums()
        self.young: list[str] = []
        self.has_sums = False
        self.held: list[tuple[str | None, dict[str, int]]] = []  # by files of the entry, as read
        self.row_orders: dict[
            tuple[str, str | None], RowOrder
        ] = {}  # likewise, by table and source

    def run(self) -> Report:
        report = self.report
        was_idle = not self.disk.files.is_locked()
        # What lies there is looked at first: what is unfinished now may be committed later,
        # and what a later entry names may not be there yet.
        self.last_before = self.newest()
        unfinished = self.survey()
        try:
            for entry in self.chain():
                self.check_entry(entry)
        except ConfigError:
            raise  # of a newer program: nothing can be said of it
        except GaussDecodeError as error:
            report.add(f"the chain ends after entry {self.state.next_n - 1}: {error}")
        self.check_floor()
        self.check_prepared()
        is_idle = was_idle and not self.disk.files.is_locked()
        self.check_lying(unfinished if is_idle else [], is_idle=is_idle)
        report.tables = len(self.tables)
        report.positions = dict(self.state.positions)
        report.floor = max(self.state.floor, self.watch.floor)
        return report

    def newest(self) -> int:
        """Number of the newest entry; -1 in an empty log."""
        held = self.entries.checkpoints()
        return max([*self.entries.numbers(), *(last for _, last, _ in held)], default=-1)

    # ---- the chain -------------------------------------------------------------------

    def chain(self) -> Iterator[CommitEntry]:
        """All entries there are, each checked against the one before; each file read once."""
        newest = self.newest()
        while self.state.next_n <= newest:
            n = self.state.next_n
            held = next((c for c in self.entries.checkpoints() if c[0] <= n <= c[1]), None)
            try:
                if held is not None:
                    yield from self.block(*held)
                    continue
                raw = self.entries.raw(n)
            except FileNotFoundError:
                raw = None
            if raw is not None:
                entry = parse_entry(raw, entry_path(n))
                yield entry
                self.state.fold(entry)
            elif not self.jump(n):
                raise LandingError(f"{entry_path(n)}: missing; restore it from a copy")

    def jump(self, n: int) -> bool:
        """Go on after what retention has taken; False when it has not taken entry `n`."""
        later = [c for c in self.entries.checkpoints() if c[0] > n]
        if not later or (n and n > self.watch.look()):
            return False
        first, _, path = later[0]
        try:
            header = self.entries.header(path)
        except FileNotFoundError:  # taken just now too
            return True
        state = LogState.from_header(header)
        self.state = dataclasses.replace(
            state, next_n=first, last_hash=header.previous, positions={}
        )
        self.report.first_n = None
        self.has_sums = False  # what was before the first entry is not known
        return True

    def block(self, first: int, last: int, path: str) -> Iterator[CommitEntry]:
        """The entries of a checkpoint, and whether its header is what they amount to."""
        header, lines = self.entries.block(path)
        is_begun_here = self.report.first_n is None and first > 0
        numbers = set(self.entries.numbers())
        previous, digest = header.previous, hashlib.sha256()
        for line in lines:
            digest.update(line + b"\n")
            entry = parse_entry(line, path)
            previous = entry.previous if entry.n == first else previous
            if entry.n < self.state.next_n:
                continue  # read from its own file, before there was this checkpoint
            if entry.n in numbers and self.entries.raw(entry.n) not in (line, None):
                where = entry_path(entry.n)
                self.report.add(f"{where} differs from its copy in the checkpoint")
            yield entry
            self.state.fold(entry)
        if self.state.next_n != last + 1:
            raise LandingError(f"{path}: it ends with entry {self.state.next_n - 1}")
        expected = self.state.to_header(first, previous, digest.hexdigest())
        if is_begun_here:  # how much time was seen before is not there
            expected = dataclasses.replace(expected, elapsed_ms=header.elapsed_ms)
        if expected != header:
            self.report.add(f"{path}: its header is not the state after entry {last}")
        self.state.elapsed_ms = header.elapsed_ms

    def check_floor(self) -> None:
        """See that nothing is missing between the floor and the first entry."""
        first, floor, anchor = self.report.first_n, self.state.floor, self.state.anchor
        if self.watch.look() > floor:
            floor, anchor = self.watch.floor, self.watch.anchor
        if first is not None and first > floor + 1:
            self.report.add(f"entries {floor + 1} to {first - 1} are missing above the floor")
        if first == floor + 1 and self.anchor != anchor:
            self.report.add(f"entry {first} does not follow the anchor of the floor")

    def check_prepared(self) -> None:
        """See that prepared transactions which have not ended are what was written."""
        for file in self.state.prepared.values():
            if self.disk.matches(file.path, file.bytes, file.checksum):
                continue
            if self.newest() == self.state.next_n - 1:  # else it may have ended meanwhile
                self.report.add(
                    f"{file.path}, of prepared transaction {file.gid!r}, is missing or altered"
                )

    def check_entry(self, entry: CommitEntry) -> None:
        report = self.report
        if report.first_n is None:
            report.first_n, self.anchor = entry.n, entry.previous
        report.last_n = entry.n
        report.entries += 1
        self.state.check_next(entry)
        orders = {source: SequenceCheck() for source in entry.positions}
        self.held.clear()
        self.row_orders.clear()
        for file in entry.files:
            self.tables.add(file.table)
            self.check_schema(entry.n, file)
            order = orders.get(_source_of(file, entry))
            if order is None:
                report.add(f"{file.path} of entry {entry.n} is of no source of the landing")
                continue
            self.check_file(entry, file, order)
        self.check_sums(entry)
        for source, order in orders.items():
            if entry.kind in _SEQUENCED:
                self.check_order(entry, source, order)
        if self.is_by_csn and len({at.csn for at in entry.positions.values()}) > 1:
            report.add(f"entry {entry.n}: its sources have no CSN in common")
        for replacement in entry.replaced:
            self.check_replacement(entry, replacement.path, replacement.replaced)

    def is_given_up(self, n: int, path: str = "") -> bool:
        """Whether retention has taken an entry's files, or a merged file although its entry stays.

        Files that are in the mirror only are as good as given up here.
        """
        if n <= mirrored_only_until(self.disk):
            return True
        block = path.split("/")[1] if path.startswith(f"{COMPACT}/") else ""
        return min(n, int(block) if block.isdecimal() else n) <= self.watch.look()

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

    def check_sums(self, entry: CommitEntry) -> None:
        """See that an entry accounts for its stretch of the stream, and for what it holds.

        Files that could not be read have been reported, or retention took them meanwhile: then
        the sums are compared with what the entry says of its files.
        """
        accounts = entry.accounts
        for source in entry.positions:
            self.check_account(entry, source, accounts.get(source))
        if accounts:
            self.has_sums = True

    def check_account(self, entry: CommitEntry, source: str, account: Account | None) -> None:
        """The same of one source."""
        report = self.report
        before, after = self.state.positions.get(source), entry.positions[source]
        if account is None:
            is_moved = before is None or (before.epoch, before.lsn) != (after.epoch, after.lsn)
            is_counted = entry.kind in _OF_THE_STREAM or (
                is_moved and entry.kind not in _MOVES_UNCOUNTED
            )
            if self.has_sums and is_counted:
                report.add(f"entry {entry.n} has no sums, but entries before it have them")
            return
        is_read = len(self.held) == len(entry.files)
        own = [counts for name, counts in self.held if name in (None, source)]
        held = add(own) if is_read else counted_files(files_of(entry.files, source))
        of = f" of {source}" if len(entry.positions) > 1 else ""
        for wrong in (account.wrong_place(before, after), account.wrong(held)):
            if wrong is not None:
                report.add(f"entry {entry.n}: the sums{of} do not add up: {wrong}")
        report.framed.update(account.framed)
        for reason, counts in account.left_out.items():
            report.left_out.setdefault(reason, Counter()).update(counts)

    def check_file(self, entry: CommitEntry, file: LandingFile, order: SequenceCheck) -> None:
        try:
            defect = self.defect(entry, file, order)
        except FileNotFoundError:
            defect = f"{file.path} of entry {entry.n} is missing"
        if defect is not None and not self.is_given_up(entry.n, file.path):
            self.report.add(defect)

    def defect(self, entry: CommitEntry, file: LandingFile, order: SequenceCheck) -> str | None:
        """Say what is wrong with a file; count it when it is there."""
        report = self.report
        size = self.disk.size(file.path)
        if size is not None and entry.n <= self.last_before:
            self.named.add(entry.n, file.path)
        if size != file.bytes:
            found = "missing" if size is None else f"{size} bytes long, not {file.bytes}"
            return f"{file.path} of entry {entry.n} is {found}"
        if self.disk.checksum(file.path) != file.checksum:
            return f"{file.path} of entry {entry.n} is altered: its checksum differs"
        report.files += 1
        report.bytes += file.bytes
        row_order = self.row_orders.setdefault((file.table, file.source), RowOrder())
        was_kept = row_order.is_kept
        row_order.begin()
        try:
            rows, ops = self.read_rows(file, order, row_order)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            return f"{file.path} of entry {entry.n} cannot be read: {error}"
        if entry.kind is not EntryKind.COMPACT:
            report.rows += rows
            report.ops.update(ops)
        self.held.append((file.source, counted(file.table, rows, ops)))
        if rows != file.rows:
            return f"{file.path} holds {rows} rows, entry {entry.n} says {file.rows}"
        if ops and dict(ops) != file.ops:
            return f"{file.path} holds {dict(ops)}, entry {entry.n} says {file.ops}"
        if entry.is_in_order and was_kept and not row_order.is_kept:
            return (
                f"{file.path} of entry {entry.n}: its rows are not in order, or do not follow those of the "
                "table's file before it"
            )
        if entry.is_in_order and row_order.first is not None:
            return _wrong_ends(entry, file, row_order)
        return None

    def read_rows(
        self, file: LandingFile, order: SequenceCheck, row_order: RowOrder
    ) -> tuple[int, Counter[str]]:
        """Read operations and positions of a file, batch by batch."""
        rows, ops = 0, Counter[str]()
        with self.disk.files.open(file.path) as raw:
            parquet = pq.ParquetFile(raw)
            names = parquet.schema_arrow.names
            wanted = ["gd_op", "gd_epoch", "gd_lsn", "gd_seq"]
            wanted += ["gd_csn"] if self.is_by_csn else []
            columns = [name for name in wanted if name in names]
            if not columns:
                return parquet.metadata.num_rows, ops
            # A thread of Arrow's pool that is alive when the program ends may abort it, after all is well
            # (apache/arrow 34314); for these few columns none is needed.
            batches = parquet.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
            for batch in batches:
                rows += batch.num_rows
                if "gd_op" in columns:
                    counted = batch.column("gd_op").value_counts().to_pylist()
                    ops.update({item["values"]: item["counts"] for item in counted})
                if {"gd_lsn", "gd_seq"} <= set(columns) and file.table != TRANSACTIONS:
                    order.add(file.table, batch)
                if "gd_lsn" in columns and file.table != MESSAGES:
                    row_order.add(batch)
                if "gd_csn" in columns:
                    order.add_csns(batch.column("gd_csn"))
        return rows, ops

    def check_order(self, entry: CommitEntry, source: str, order: SequenceCheck) -> None:
        after = self.state.positions.get(source)
        until = entry.positions[source]
        of = f"{source}: " if len(entry.positions) > 1 else ""
        for finding in order.findings(after, until, is_by_csn=self.is_by_csn):
            if not self.is_given_up(entry.n):
                self.report.add(f"entry {entry.n}: {of}{finding}")

    def check_replacement(self, entry: CommitEntry, path: str, replaced: tuple[str, ...]) -> None:
        """Compare the positions in a merged file with those in the files it replaces."""
        if any(self.disk.size(each) is None for each in (path, *replaced)):
            return  # retention is at work, or the file's own entry was reported already
        merged, parts = SequenceCheck(), SequenceCheck()
        row_order = RowOrder()
        table = path.split("/")[2]
        try:
            self.read_rows(_file_at(path, table), merged, row_order)
            for old in replaced:
                self.read_rows(_file_at(old, table), parts, RowOrder())
        except FileNotFoundError:
            return  # likewise
        except (OSError, pa.ArrowException) as error:
            self.report.add(f"{path} of entry {entry.n} cannot be compared: {error}")
            return
        if merged.seen != parts.seen:
            self.report.add(f"{path} of entry {entry.n} holds other rows than it replaces")
        if not row_order.is_kept:
            self.report.add(f"{path} of entry {entry.n}: its rows are not in order")

    # ---- what lies there -------------------------------------------------------------

    def survey(self) -> list[str]:
        """Look at everything below the root; gives some of what is unfinished."""
        unfinished: list[str] = []
        for path, item, kind in walk(self.disk):
            number = data_number(item.name)
            if kind is Kind.FOREIGN:
                self.report.add(f"{spell(path)} is not ours; nothing else may write below the root")
            elif kind is Kind.UNFINISHED:
                if len(unfinished) <= _MAX_FINDINGS:
                    unfinished.append(path)
            elif number is not None and item.is_file:
                if number <= self.last_before:
                    self.on_disk.add(number, path)
                elif len(self.young) <= _MAX_FINDINGS:
                    self.young.append(path)
            elif item.is_file:
                self.check_small(path)
        return unfinished

    def check_small(self, path: str) -> None:
        """See that a schema, or a file of a snapshot, is what was written."""
        top, _, rest = path.partition("/")
        try:
            if top == SCHEMAS:
                table, _, name = rest.partition("/")
                read_schema(self.disk, table, name.removesuffix(".json"))
            elif top == SNAPSHOTS and not is_whole(self.disk, path):
                self.report.add(f"{path} was altered")
        except FileNotFoundError:
            return  # the daemon has done with it
        except LandingError as error:
            self.report.add(str(error))

    def check_lying(self, unfinished: list[str], *, is_idle: bool) -> None:
        """Report what no entry names."""
        for path in sorted(unfinished):
            self.report.add(f"{path} is unfinished; the next start removes it")
        for path in self.young:
            n = data_number(path.rpartition("/")[2]) or 0
            if is_idle and n >= self.state.next_n:
                self.report.add(f"{path} belongs to entry {n}, which is not in the log")
        for block in self.on_disk.unlike(self.named):
            self.check_block(block, is_idle=is_idle)
            if self.report.is_cut:
                return

    def check_block(self, block: range, *, is_idle: bool) -> None:
        """Compare what lies there of a block of entries with what they name."""
        first = max(self.report.first_n or 0, self.watch.look() + 1)
        begin, end = max(block.start, first), min(block.stop, self.state.next_n)
        named: set[str] = set()
        known = begin
        try:
            for entry in self.entries.iterate(begin, end - 1):
                named.update(file.path for file in entry.files)
                known = entry.n + 1
        except (FileNotFoundError, GaussDecodeError):
            pass  # given up meanwhile, or damaged, which the chain says
        for n, path in strays(self.disk, block, named):
            if begin <= n < known:
                self.report.add(f"{path} is not named by entry {n}")
            elif n < first and (is_idle or not self.is_given_up(n)):
                self.report.add(f"{path} belongs to entry {n}, which is not in the log")


def _source_of(file: LandingFile, entry: CommitEntry) -> str:
    """Whose rows a file has; empty where it does not say so and there are several."""
    if file.source is None and len(entry.positions) == 1:
        return next(iter(entry.positions))
    return file.source or ""


def _wrong_ends(entry: CommitEntry, file: LandingFile, found: RowOrder) -> str | None:
    """Say where the first or the last row of a file is another one than its entry says."""
    for verb, at, said in (("begins", found.first, file.first), ("ends", found.last, file.last)):
        if at is not None and at != said:
            return f"{file.path} {verb} with {at}, entry {entry.n} says {said}"
    return None


def _file_at(path: str, table: str) -> LandingFile:
    """Describe a file by its path alone, to read its rows."""
    nowhere = Position(0, 0)
    return LandingFile(table, path, 0, 0, nowhere, nowhere, "", {}, False, False, "")
