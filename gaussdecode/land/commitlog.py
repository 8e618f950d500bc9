"""Keep the commit log: the only list of what has landed, and the only way to add to it.

Order
    Entries are numbered from 0 without holes. Entry *n* names the hash of entry *n - 1*,
    and says: up to its positions everything is complete, for all tables.

One writer
    `CommitLog.open` holds a lock on a file that only the owner of the landing can open, until
    `close`. The lock goes with the process, however it ends. Against a lock that did not hold (a copied
    root, a file system that lies) an entry is linked, never renamed, into place: two
    writers cannot both make entry *n*. The second finds the name taken and is *fenced*.

States of an entry, and who sets them::

    files hidden --sync--> durable --decide--> decided --reveal--> readable --show--> shown
        |                       |                   |                    |                  |
    crash: swept at start   swept at start     completed            completed          confirmed

    Up to "durable" nothing happened: what was landed comes again from the source. From
    "decided" on there is only forward: recovery completes the entry with the same bytes,
    never with others, and nothing of it may be landed again. The commit point is the fsync
    of ``commits/`` after the hidden entry was linked. If anything fails between that link
    and the end of the entry, this object is *broken*: it refuses to work on, the
    process ends, and recovery decides from what is on disk.

Confirming
    `commit` calls `confirm` after the entry is committed and durable, and at no other time.

Threads
    `commit` may be called from several (writer, compaction, retention); a lock makes them
    take turns, since an entry must know the hash of the one before. `confirm` runs inside
    the lock and must not call back.
"""

import datetime as dt
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

from gaussdecode.errors import LandingError
from gaussdecode.land import entry_steps, recovery
from gaussdecode.land import layout as layouts
from gaussdecode.land.checkpoint import BLOCK, Checkpoints
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries, parse_entry
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import Step
from gaussdecode.land.files import Files
from gaussdecode.land.mirror.known import mirrored_only_until
from gaussdecode.land.names import DDL, PREPARED, entry_path, is_prepared_name
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import (
    PreparedFile,
    SourceIdentity,
    SourcePosition,
    schema_key,
)
from gaussdecode.model.seal import hash_of

ORDER_LSN: Final = "lsn"
ORDER_CSN: Final = "csn"


def utc_now() -> dt.datetime:
    """The clock of the daemon: data only, never used for waiting."""
    return dt.datetime.now(dt.UTC)


class CommitLog:
    """An open commit log, behind recovery. Make one with `open`.

    Attributes:
        disk: the landing's files.
        layout: content of ``layout.json``.
        source: name of the one source, or of the first of several.
        entries: reads committed entries.
        findings: actions and findings of recovery that an operator should know, in sentences.
        mirrored_only_until: data files of entries up to this number may be in the mirror only.
        pending_removals: files of prepared transactions that nobody needs once the mirror has an entry: its
            number, and the path.
    """

    def __init__(
        self,
        disk: Disk,
        layout: layouts.Layout,
        recovered: recovery.Recovered,
        checkpoints: Checkpoints,
        now: Callable[[], dt.datetime],
    ) -> None:
        self.disk = disk
        self.layout = layout
        self.source = next(iter(layout.sources))
        self.entries = Entries(disk)
        self.findings = recovered.findings
        self.mirrored_only_until = mirrored_only_until(disk)
        self._checkpoints = checkpoints
        self._state = recovered.state
        self._now = now
        self._lock = threading.RLock()
        self.pending_removals: deque[tuple[int, str]] = deque()
        self.find_orphans()
        self._broken: BaseException | None = None
        self._uncertain = False

    @classmethod
    def open(
        cls,
        files: Files,
        identity: SourceIdentity,
        *,
        source: str | None = None,
        others: Mapping[str, SourceIdentity] | None = None,
        order: str = ORDER_LSN,
        space: SpaceWait | None = None,
        now: Callable[[], dt.datetime] = utc_now,
        writer: str | None = None,
        block: int = BLOCK,
    ) -> Self:
        """Lock a landing, create it if the root is empty, and recover it.

        Args:
            files: the root; closed by `close`.
            identity: identity of the source that will be landed.
            source: its name in the entries; the slot's name by default.
            others: identities of the other sources, by name, where the landing has several.
            order: ``lsn`` or ``csn``.
            space: waits when the disk is full.
            now: clock for the times of entries.
            writer: token of this process; made up by default.
            block: entries in a checkpoint.

        Raises:
            ConfigError: the root is not fit for a landing.
            IdentityError: it belongs to another source.
            LandingError: another process has it, or it is damaged.
            DiskError: the file system failed.
        """
        files.check_root()
        disk = Disk(files, space or SpaceWait(), writer or secrets.token_hex(8))
        passed_over = disk.space.run("lock the landing", files.lock)
        sources = {source or identity.slot: identity, **(others or {})}
        layout = layouts.read_layout(disk)
        if layout is None:
            recovery.refuse_without_layout(disk)
            sources = {name: sources[name] for name in sorted(sources)}
            several = (layouts.SEVERAL,) if len(sources) > 1 else ()
            layout = layouts.Layout(
                secrets.token_hex(16), now(), order, sources, (*layouts.CAPABILITIES, *several)
            )
            layouts.create_layout(disk, layout)
        layouts.check_sources(layout, sources)
        for name, one in sources.items():
            layouts.check_layout(layout, name, one, order)
        checkpoints = Checkpoints(disk, Entries(disk), block)
        recovered = recovery.recover(disk, checkpoints)
        if passed_over is not None:
            recovered.findings.append(passed_over)
        return cls(disk, layout, recovered, checkpoints, now)

    @property
    def is_empty(self) -> bool:
        """There is no entry yet; the first one to commit is of kind genesis."""
        return self._state.next_n == 0

    @property
    def next_n(self) -> int:
        """Number the next entry gets."""
        return self._state.next_n

    @property
    def position(self) -> SourcePosition | None:
        """The durable position of the source, or the first of several; None in an empty log."""
        return self._state.positions.get(self.source)

    @property
    def positions(self) -> dict[str, SourcePosition]:
        """The durable position of each source, by name; none in an empty log.

        Waits for nobody: who commits holds the lock for as long as a disk is full.
        """
        return dict(self._state.positions)

    @property
    def has_several(self) -> bool:
        """Whether it is of several sources."""
        return len(self.layout.sources) > 1

    @property
    def floor(self) -> int:
        """Entries up to this number may be gone; -1 when none is."""
        return self._state.floor

    @property
    def compacted(self) -> int:
        """First entry number that no ``compact`` entry has looked at."""
        return self._state.compacted

    @property
    def elapsed_ms(self) -> int:
        """How much time the log has seen, leaps of the clock left out."""
        return self._state.elapsed_ms

    @property
    def block(self) -> int:
        """Entries in a checkpoint."""
        return self._checkpoints.block

    @property
    def schemas(self) -> dict[str, str]:
        """By `schema_key`, the schema_id its rows land under."""
        with self._lock:
            return dict(self._state.schemas)

    def schemas_of(self, source: str) -> dict[str, str]:
        """Per table, the schema_id under which rows of a source land."""
        if not self.has_several:
            return self.schemas
        begins = schema_key("", source)
        return {
            key.removeprefix(begins): schema_id
            for key, schema_id in self.schemas.items()
            if key.startswith(begins)
        }

    @property
    def prepared(self) -> list[PreparedFile]:
        """Files of prepared transactions that have not ended, in the order of their PREPARE."""
        with self._lock:
            return sorted(self._state.prepared.values(), key=lambda file: (file.lsn, file.path))

    def find_orphans(self) -> None:
        """Find files of prepared transactions that no entry names; nobody may be writing one."""
        known = {*self._state.prepared, *(path for _, path in list(self.pending_removals))}
        paths = (f"{PREPARED}/{item.name}" for item in self.disk.items(PREPARED))
        strays = [
            path
            for path in paths
            if path not in known and is_prepared_name(path.rpartition("/")[2])
        ]
        self.pending_removals.extend((self.next_n - 1, path) for path in strays)

    def forget_prepared(self, through: int | None = None) -> None:
        """Remove files of prepared transactions that ended.

        Args:
            through: number of the newest entry that the mirror has; None without one.

        Raises:
            DiskError: the file system failed.
        """
        while self.pending_removals and (through is None or self.pending_removals[0][0] <= through):
            self.disk.remove(self.pending_removals.popleft()[1])

    @property
    def is_uncertain(self) -> bool:
        """An entry failed where only recovery can tell whether it happened."""
        return self._uncertain

    def check_identity(self, identity: SourceIdentity, source: str | None = None) -> None:
        """Refuse another source than the one the landing belongs to.

        Args:
            identity: identity of the source now.
            source: its name; of the first one by default.

        Raises:
            IdentityError: and the text says what differs.
        """
        layouts.check_layout(self.layout, source or self.source, identity, self.layout.order)

    def require(self, capability: str) -> None:
        """Have every reader refuse this landing that does not know of something.

        Raises:
            DiskError: the file system failed.
        """
        with self._lock:
            self._check_usable()
            self.layout = layouts.with_capability(self.disk, self.layout, capability)

    def today(self) -> dt.date:
        """Day (UTC) of the partition for files that are begun now.

        Never one before the last entry's, however the clock is set: what is unfinished there
        must be found by the next start.
        """
        return entry_steps.partition_day(self._now(), self._state)

    def iterate(self, first: int, last: int) -> Iterator[CommitEntry]:
        """Read entries `first` to `last`, old ones from their checkpoints."""
        return self.entries.iterate(first, last)

    def commit(
        self,
        draft: Draft,
        confirm: Callable[[CommitEntry], object] | None = None,
        check: Callable[[], object] | None = None,
    ) -> CommitEntry:
        """Commit one entry: steps 1 to 6 of the protocol.

        Args:
            draft: content of the entry; its files are hidden and durable.
            confirm: called once the entry is durable.
            check: called when it is this caller's turn; raises to refuse, and then nothing
                has happened.

        Returns:
            The entry, with its number and hash.

        Raises:
            LandingError: fenced by another writer, or the log is broken.
            DiskError: the file system failed; see `is_uncertain`.
        """
        with self._lock:
            self._check_usable()
            if check is not None:
                check()
            try:
                entry = self._commit(draft)
                if confirm is not None:
                    confirm(entry)
                self.disk.files.reach(Step.POSITION_CONFIRMED)
                entry_steps.tidy(self.disk, entry)
                self._checkpoints.advance(self._state)
            except BaseException as error:
                self._broken = _wrap_fenced(error)
                if self._broken is error:
                    raise
                raise self._broken from error
            return entry

    def close(self) -> None:
        """Give the landing back to others, when nobody is committing any more."""
        with self._lock:
            self.disk.files.close()

    def _commit(self, draft: Draft) -> CommitEntry:
        is_by_csn = self.layout.order == ORDER_CSN
        planned = entry_steps.plan(
            draft, self._state, self.source, self._now(), is_by_csn=is_by_csn
        )
        entry_steps.sync(self.disk, planned)
        entry = planned.entry
        if any(file.table == DDL for file in entry.files):
            self.layout = layouts.with_capability(self.disk, self.layout, layouts.DDL)
        self._uncertain = True
        entry_steps.decide(self.disk, planned, self._check_next)
        entry_steps.reveal(self.disk, entry)
        entry_steps.show(self.disk, entry)
        self._state.fold(entry)
        self.pending_removals.extend((entry.n, path) for path in entry.ended)
        self._uncertain = False
        return entry

    def _check_next(self) -> None:
        """See on disk, not in memory, that the next number is still ours."""
        n = self._state.next_n
        # Not only n itself: a writer far ahead has it in a checkpoint and pruned by now.
        newest = max(self.entries.numbers(), default=-1)
        if newest >= n:
            raise LandingError(f"fenced: another writer committed entry {newest}")
        if n == 0:
            return
        raw = self.entries.raw(n - 1)
        if raw is None or _hash(raw, n - 1) != self._state.last_hash:
            raise LandingError(f"fenced: entry {n - 1} is gone or is not the one written here")

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise LandingError(
                f"the commit log stopped at an error ({self._broken}); restart the daemon, recovery then "
                "decides"
            )


def _wrap_fenced(error: BaseException) -> BaseException:
    """Say what it means that something written here is not there any more."""
    if not isinstance(error, FileNotFoundError):
        return error
    return LandingError(
        f"fenced: {error.filename} was written here and is missing: another process works below "
        "the root. Stop it"
    )


def _hash(raw: bytes, n: int) -> str:
    try:
        return hash_of(raw)
    except ValueError:
        return parse_entry(raw, entry_path(n)).hash
