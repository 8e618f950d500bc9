"""Ship a landing to its mirror, entry by entry, in order.

The mirror has the guarantees of the landing: an entry is there once everything it names is there, entries
have no holes, and nothing in it ever changes. The steps of one entry, each a request that may be repeated
after any end of the process::

    schemas -> data files -> the entry -> is the one before still there? -> confirmed

All are put only if absent. What is there already must be the same, else another host writes to the
same mirror and this one is *fenced*: it takes back what it has put for the entry that lost, and
stops. The last question is for a host that slept: what it put may have been absent because
retention had taken the number again. Entries are removed in rising order, so whoever finds the one
before its own has not been overtaken.

Local files go after the store has their entry, and are said to be gone before they are.

Not thread-safe: one thread ships.
"""

import dataclasses
from collections import deque

from gaussdecode.errors import ConfigError, LandingError, unreadable
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import ShipStep
from gaussdecode.land.layout import MIRRORED, Layout
from gaussdecode.land.mirror.known import check_url, read_state, write_state
from gaussdecode.land.mirror.numbered import NumberedFile
from gaussdecode.land.mirror.plan import (
    KEPT_TRANSACTIONS,
    NUMBERED,
    MirrorState,
    checkpoints,
    doomed_files,
    is_later,
    last_floor,
    needed_prepared,
    newest_entry,
)
from gaussdecode.land.mirror.putting import SHIP_MISSING, EntryPutter
from gaussdecode.land.names import (
    CHECKPOINTS,
    COMMITS,
    COMPACT,
    DATA,
    LAYOUT,
    PREPARED,
    checkpoint_range,
    entry_number,
    entry_path,
    parent,
)
from gaussdecode.model.entry import CommitEntry, parse_checkpoint
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.objects.store import AnyStore


class Shipper:
    """Brings a mirror up to its landing.

    Args:
        log: open; others commit to it.
        store: store of the mirror.
        is_compacting: small files are merged, for which they must be here.

    Attributes:
        shipped: number of the newest entry that the store has; -1 before it is known.
        positions: per source, up to there the store has everything; none before it is known.
    """

    def __init__(self, log: CommitLog, store: AnyStore, *, is_compacting: bool = False) -> None:
        """Read what the landing knows of its mirror.

        Raises:
            ConfigError: it has files in another one.
        """
        self._log = log
        self._store = store
        self._is_compacting = is_compacting
        state = read_state(log.disk)
        check_url(state, store.url)
        is_known = state is not None and state.url == store.url
        self._state = state if state is not None and is_known else MirrorState(store.url)
        self._layout: Layout | None = None
        self._putter = EntryPutter(log.disk, store)
        self._checkpointed = -1
        self._numbered = [NumberedFile(log.disk, store, name) for name in NUMBERED]
        self._begins_at = 0  # in an empty mirror: no entry is there before this one
        self._aged: deque[tuple[int, float]] = deque()
        self.shipped = -1
        self.positions: dict[str, SourcePosition] = {}
        if 0 <= self._state.shipped < log.next_n and self._state.shipped > log.floor:
            self._reach(self._state.shipped, log.entries.one(self._state.shipped))

    @property
    def is_done(self) -> bool:
        """The store has every entry."""
        return self.shipped == self._log.next_n - 1

    @property
    def is_claimed(self) -> bool:
        """This host may go on with the log."""
        return self._state.is_claimed

    # ---- beginning -------------------------------------------------------------------

    def prepare(self) -> None:
        """See whose mirror it is, and how far; nothing is shipped before.

        Raises:
            ConfigError: it is another landing's.
            FencedError: another host has gone on with this one there.
            MirrorError: the store does not do it.
        """
        self._store.prove()
        self._hold_layout()
        newest = newest_entry(self._store.names(COMMITS)[1])
        last = self._log.next_n - 1
        if newest > last:
            raise self._putter.fenced(newest, f"which this landing, that ends with {last}, has not")
        if newest < self._state.removed:
            raise LandingError(
                f"{self._store.url}: it ends with entry {newest}, but files of entries up to "
                f"{self._state.removed} were only there. To find missing objects and ship those that this "
                f"host has: {SHIP_MISSING}"
            )
        if 0 <= newest <= self._log.floor:
            raise ConfigError(
                f"landing.mirror.url: {self._store.url} ends with entry {newest}, but retention removed "
                f"entries up to {self._log.floor} here while there was no mirror. Begin a new mirror at "
                "another prefix"
            )
        if newest >= 0:
            entry = self._log.entries.one(newest)
            self._putter.compare(entry, self._store.get(entry_path(newest)))
            self._reach(newest, entry)
            self._begins_at = 0
        else:
            self.shipped, self.positions = self._log.floor, {}
            self._begins_at = self._log.floor + 1
        held = checkpoints(self._store.names(CHECKPOINTS)[1])
        self._checkpointed = held[-1][1] if held else -1
        for file in self._numbered:
            file.prepare()
        first = max(self._log.floor + 1, newest - self._log.block)
        self._expire(last_floor(self._log.iterate(first, newest)))
        self._sweep_prepared()
        self._sweep()

    def _sweep_prepared(self) -> None:
        """Remove files of prepared transactions there that ended, or that no entry names."""
        log = self._log
        kept = {file.path for file in log.prepared}
        kept |= needed_prepared(log.iterate(self.shipped + 1, log.next_n - 1))
        self._putter.take_back([path for path in self._store.below(PREPARED) if path not in kept])

    def claim(self) -> None:
        """Say in the log, here and in the store, that this host goes on with it.

        From then on no other host that had it can ship anything. What that one had put for an
        entry that is not there now is removed.

        Raises:
            FencedError: another host was faster.
            MirrorError: the store does not do it.
        """
        if self._state.is_claimed:
            return
        log = self._log
        if self.is_done:
            assert log.position is not None
            extra = {
                "from_lsn": log.position.lsn,
                "from_timeline": log.position.timeline,
                "begun_from_mirror": True,
            }
            log.commit(Draft(kind=EntryKind.FORK, extra=extra))
        claim = self.shipped + 1
        while not self.is_done:
            self.ship()
        log.disk.files.reach(ShipStep.HOST_CLAIMED)
        named = {file.path for of in log.iterate(claim, log.next_n - 1) for file in of.files}
        for directory in (DATA, COMPACT):
            for path in self._store.below(directory):
                if is_later(path, claim) and path not in named:
                    self._store.remove(path)
        self._note(dataclasses.replace(self._state, is_claimed=True))

    # ---- one entry -------------------------------------------------------------------

    def ship(self) -> CommitEntry | None:
        """Ship the next entry; None where there is none.

        Raises:
            FencedError: another host has shipped this number.
            LandingError: a file of it is not here.
            MirrorError: the store does not do it.
        """
        n = self.shipped + 1
        if n >= self._log.next_n:
            return None
        self._hold_layout()
        entry = self._log.entries.one(n)
        self._putter.put(entry, is_first=n == self._begins_at)
        self._log.disk.files.reach(ShipStep.ENTRY_SHIPPED)
        self._reach(n, entry)
        return entry

    def _reach(self, n: int, entry: CommitEntry) -> None:
        self.shipped = n
        self.positions = dict(entry.positions)

    def _hold_layout(self) -> None:
        """See that the mirror is this landing's, and says what readers need to know of it."""
        layout = self._log.layout
        if layout is self._layout:
            return
        capabilities = tuple(of for of in layout.capabilities if of != MIRRORED)
        raw = dataclasses.replace(layout, capabilities=capabilities).to_bytes()
        if not self._store.put_new(LAYOUT, raw):
            held = self._store.get(LAYOUT)
            theirs = None if held is None else Layout.from_bytes(held)
            if theirs is not None and theirs.landing_id != layout.landing_id:
                raise ConfigError(
                    f"landing.mirror.url: {self._store.url} holds another landing "
                    f"({theirs.landing_id}, of slot {', '.join(theirs.sources)}), not this one "
                    f"({layout.landing_id}): give each landing a prefix of its own"
                )
            if theirs is None or not set(theirs.capabilities).issuperset(capabilities):
                self._store.replace(LAYOUT, raw)
        self._layout = layout

    # ---- what follows an entry -------------------------------------------------------

    def follow(self, entry: CommitEntry) -> None:
        """Do what an entry that was shipped asks for: checkpoints, and what retention took."""
        self._log.disk.files.reach(ShipStep.SHIPMENT_CONFIRMED)
        if self.shipped - self._checkpointed >= self._log.block:
            self._ship_checkpoints()
        if entry.floor is not None:
            self._expire(entry.floor)
        self._putter.take_back(list(entry.ended))

    def _ship_checkpoints(self) -> None:
        for first, last, path in self._log.entries.checkpoints():
            if self._checkpointed < last <= self.shipped and first > self._log.floor:
                self._putter.put_file(path)
                self._checkpointed = last
                self._log.disk.files.reach(ShipStep.CHECKPOINT_SHIPPED)
                self._remove_entries(last - self._log.block)

    def _remove_entries(self, last: int) -> None:
        """Remove entries that a checkpoint holds, in rising order: see the top."""
        numbers = (entry_number(name) for name in self._store.names(COMMITS)[1])
        for n in sorted(n for n in numbers if n is not None and n <= last):
            self._store.remove(entry_path(n))

    def _expire(self, floor: int) -> None:
        """Remove what retention took here: files first, then entries, then their checkpoint."""
        if floor < 0:
            return
        for _, last, name in checkpoints(self._store.names(CHECKPOINTS)[1]):
            if last > floor:
                break
            path = f"{CHECKPOINTS}/{name}"
            raw = self._store.get(path)
            numbers = checkpoint_range(name)
            if raw is None or numbers is None:
                continue
            try:
                _, lines = parse_checkpoint(raw)
                entries = [CommitEntry.from_bytes(line) for line in lines]
            except ValueError as error:
                raise unreadable(f"{self._store.url}: {path}", error, "restore it") from error
            for entry in entries:
                self._putter.take_back([file.path for file in entry.files])
            self._putter.take_back(self._store.below(f"{COMPACT}/{numbers[0]:020d}"))
            self._remove_entries(last)
            self._store.remove(path)
            self._log.disk.files.reach(ShipStep.MIRROR_EXPIRED)

    def ship_numbered(self) -> None:
        """Ship what is known beside the log, once the store has every entry that it goes by."""
        for file in self._numbered:
            if file.ship(lambda: self._log.next_n - 1, self.shipped):
                self._log.disk.files.reach(ShipStep.NUMBERED_SHIPPED)

    # ---- here ------------------------------------------------------------------------

    def note(self) -> None:
        """Remember how far the store is: the next start need not ask before it confirms."""
        if self._state.shipped != self.shipped:
            self._note(dataclasses.replace(self._state, shipped=self.shipped))

    def remove_local(self, keep_seconds: float, now: float) -> int:
        """Remove local data files that the store has had for long enough.

        Args:
            keep_seconds: since this process saw that it has them.
            now: monotonic seconds.

        Returns:
            Entries whose files went.
        """
        if not self._aged or self._aged[-1][0] < self.shipped:
            self._aged.append((self.shipped, now))
        last = self._state.removed
        while self._aged and self._aged[0][1] <= now - keep_seconds:
            last = self._aged.popleft()[0]
        if self._is_compacting:
            last = min(last, self._log.compacted - 1)
        before = self._state.removed
        if last <= before:
            return 0
        self._log.require(MIRRORED)
        self._note(dataclasses.replace(self._state, removed=last, shipped=self.shipped))
        self._log.mirrored_only_until = last
        self._log.disk.files.reach(ShipStep.REMOVAL_NOTED)
        self._sweep()
        return last - before

    def _sweep(self) -> None:
        """Remove what is said to be gone."""
        state, log = self._state, self._log
        if state.swept >= state.removed:
            return
        lowest = log.floor + 1
        rows = log.iterate(max(lowest, state.swept + 1), state.removed)
        lists = log.iterate(
            max(lowest, state.swept + 1 - KEPT_TRANSACTIONS), state.removed - KEPT_TRANSACTIONS
        )
        touched = set()
        for path in (
            *doomed_files(rows, of_transactions=False),
            *doomed_files(lists, of_transactions=True),
        ):
            log.disk.remove(path)
            touched.add(parent(path))
        for directory in sorted(touched):
            log.disk.remove_directory(directory)
        log.disk.files.reach(ShipStep.LOCAL_REMOVED)
        self._note(dataclasses.replace(state, swept=state.removed))

    def _note(self, state: MirrorState) -> None:
        write_state(self._log.disk, state)
        self._state = state
