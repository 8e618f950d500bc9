"""Write the files of snapshot tables, and commit them as one entry.

Several threads give row groups. In the entry all rows of each table have one position. Until the entry is
there the files are unfinished, and the next start sweeps them.
"""

import dataclasses
import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from gaussdecode.collect.snapshot_gate import CollectorPort
from gaussdecode.errors import SupersededError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.snapshots import Json
from gaussdecode.land.writer import Intake
from gaussdecode.model.account import Account, add
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import (
    EntryKind,
    LandingFile,
    Position,
    SchemaChange,
    Truncate,
    schema_key,
)
from gaussdecode.model.quarantine import DROPPED
from gaussdecode.model.request import Reached
from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.snapshot.file import SnapshotFile, Stamp, Stamper
from gaussdecode.snapshot.item import Context, Wanted
from gaussdecode.snapshot.read import TableTask


class Output:
    """The files of one table; threads borrow them one at a time.

    Args:
        item: the wanted table.
        task: how it is read.
        stamp: stamp of its rows.
        log: log of the landing.
        landing: sizes and compression.
        since_n: the last entry before the first view in which it was read.

    Attributes:
        is_empty: the whole table had no row; known when it is finished.
        is_dropped: the source has no table of its name.
        is_handed_over: committing its files may have begun.
    """

    def __init__(
        self,
        item: Wanted,
        task: TableTask,
        stamp: Stamp,
        log: CommitLog,
        landing: LandingConfig,
        since_n: int,
    ) -> None:
        self.item = item
        self.task = task
        self._since_n = since_n
        self.stamper = Stamper(stamp)
        self.is_empty = False
        self.is_dropped = False
        self.is_handed_over = False
        self._log = log
        self._landing = landing
        self._rows = 0
        self._lock = threading.Lock()
        self._idle: list[SnapshotFile] = []
        self._all: list[SnapshotFile] = []
        self._finished: list[LandingFile] = []

    def land(self, rows: Iterator[pa.Table]) -> None:
        """Write the rows of a chunk to a file that this thread alone has."""
        file = self._borrow()
        for part in rows:
            with self._lock:
                self._rows += part.num_rows
            file.write(part)
            if file.size >= self._landing.target_file_size:
                self._close(file)
                file = self._borrow()
        self._give_back(file)

    def _borrow(self) -> SnapshotFile:
        """Lend a file that no other thread writes."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            file = SnapshotFile(
                self._log, self.task.landed, self.stamper, self._landing.compression
            )
            self._all.append(file)
            return file

    def _give_back(self, file: SnapshotFile) -> None:
        """Let others go on with a file."""
        with self._lock:
            self._idle.append(file)

    def _close(self, file: SnapshotFile) -> None:
        """Finish a file that is large enough."""
        hidden = file.finish()
        with self._lock:
            self._all.remove(file)
            if hidden is not None:
                self._finished.append(hidden)

    def finish(self, epoch: int) -> list[LandingFile]:
        """Finish all files; a table without rows gets one that says so.

        Not where a condition chose the rows: that none fulfils it empties no table.
        """
        if not self.stamper.count and self.task.where is None:
            self.is_empty = True
            file = self._borrow()
            file.write_empty(epoch)
            self._give_back(file)
        for file in list(self._all):
            self._close(file)
        return self._finished

    @property
    def handed_over(self) -> dict[str, int]:
        """Counts of the rows that were given to be written, by kind, or the mark of an empty table."""
        if self._rows:
            return {"R": self._rows}
        return {} if self.task.where is not None else {"T": 1}

    def abandon(self) -> None:
        """Remove the written files, unless they may be part of an entry already."""
        if self.is_handed_over:
            return
        for file in self._all:
            file.abandon()
        for hidden in self._finished:
            self._log.disk.remove(hidden.path)

    def to_record(self) -> Json:
        """Make the entry's record of the table."""
        table = self.task.shape.table
        dropped = {DROPPED: True} if self.is_dropped else {}
        return {
            **dropped,
            "schema": table.schema,
            "name": table.name,
            "oid": table.oid,
            "rows": 0 if self.is_empty else self.stamper.count,
            "where": self.task.where,
            "since_n": self._since_n,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """An entry to be: finished files of several tables, all at one position.

    Attributes:
        outputs: outputs of the tables; finished.
        files: files of all of them.
        epoch: epoch of the landing.
        source: source whose tables they are, where there are several; else None.
    """

    outputs: Sequence[Output]
    files: Sequence[LandingFile]
    epoch: int
    source: str | None = None

    def commit(self, context: Context, port: CollectorPort) -> CommitEntry:
        """Publish it; in the collector's thread, while publications are held.

        Raises:
            SupersededError: the collector's session is over; nothing has happened.
        """
        log, writer = context.log, context.writer
        assert log is not None
        assert writer is not None
        intake = writer.intake_of(port.generation)
        intake.drain()
        stamp = self.outputs[0].stamper.stamp
        where = Position(stamp.lsn, 0)
        changes = self._schema_changes(intake, log, where)
        truncates = [
            Truncate(output.task.landed.directory, where, False, False, self.source)
            for output in self.outputs
            if output.is_empty
        ]
        tables = {output.task.landed.directory: output.to_record() for output in self.outputs}
        by_csn = {} if stamp.csn is None else {"csn": stamp.csn}
        said = {"epoch": self.epoch, "lsn": where.lsn, **by_csn, "tables": tables}
        whose = {} if self.source is None else {"source": self.source}
        accounts = self._accounts(log)
        account = accounts.pop(log.source)
        draft = Draft(
            kind=EntryKind.SNAPSHOT,
            files=tuple(self.files),
            schemas=intake.schemas.take_pending(),
            truncates=tuple(truncates),
            schema_changes=tuple(changes),
            extra={"snapshot": said, **whose},
            account=account,
            others={name: Reached(log.positions[name], of) for name, of in accounts.items()},
        )
        self._hand_over(is_handed_over=True)
        try:
            entry = intake.insert(draft, context.snapshot_landed)
        except SupersededError:
            self._hand_over(is_handed_over=False)
            raise
        for change in changes:
            port.schema_landed(change.table, change.schema_id)
        return entry

    def _hand_over(self, *, is_handed_over: bool) -> None:
        for output in self.outputs:
            output.is_handed_over = is_handed_over

    def _accounts(self, log: CommitLog) -> dict[str, Account]:
        """By source: it has rows of one of them, and moves nobody's position."""
        handed_over = add(output.handed_over for output in self.outputs)
        accounts = {}
        for name, position in log.positions.items():
            here = (position.epoch, position.lsn)
            rows = handed_over if self.source in (None, name) else {}
            accounts[name] = Account(since=here, until=here, framed=rows, landed=rows)
        return accounts

    def _schema_changes(
        self, intake: Intake, log: CommitLog, where: Position
    ) -> list[SchemaChange]:
        known = log.schemas
        changes = []
        for output in self.outputs:
            landed = output.task.landed
            intake.schemas.schema_id_for(landed.directory, output.task.record)
            previous = known.get(schema_key(landed.directory, self.source))
            if previous != landed.schema_id:
                changes.append(
                    SchemaChange(landed.directory, where, landed.schema_id, previous, self.source)
                )
        return changes
