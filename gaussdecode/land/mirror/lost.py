"""Find objects that a mirror has lost, and ship those again that this host still has.

Works on the disk of a landing and the store of its mirror, beside a daemon, and on a host whose landing
another host took over. It only puts objects of the mirror's own log: the object belongs to an entry that the
mirror has (its hash covers all before it), or to one that this host has shipped while no other host went on.
All are put only if absent, the entries themselves first, because they name what retention has
removed. Objects that retention removes meanwhile are removed again.
"""

import dataclasses
import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries
from gaussdecode.land.expiry import FloorWatch
from gaussdecode.land.layout import Layout, read_layout
from gaussdecode.land.mirror.known import read_state
from gaussdecode.land.mirror.plan import NUMBERED, Shipped, numbered_copies, schema_paths
from gaussdecode.land.mirror.putting import EntryPutter
from gaussdecode.land.mirror.reading import MirrorFiles
from gaussdecode.land.mirror.restore import find_layout
from gaussdecode.land.names import COMPACT, entry_path
from gaussdecode.land.snapshots import ROOT as SNAPSHOTS
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import LandingFile
from gaussdecode.objects.store import AnyStore

_LOOKS: Final = 8  # requests at a time; arbitrary


def newest_shipped(disk: Disk | None, store: AnyStore) -> int:
    """Number of the newest entry that a mirror is known to have had; -1 where nothing tells.

    Args:
        disk: disk of the landing; None where it is not on this host.
        store: store of the mirror.

    Raises:
        ConfigError: the mirror is of another landing.
    """
    names = store.names(SNAPSHOTS)[1]
    copies = [n for file in NUMBERED for n, _ in numbered_copies(file, names)]
    if disk is None:
        return max(copies, default=-1)
    _check_identity(disk, store)
    state = read_state(disk)
    shipped = -1 if state is None or state.url != store.url else state.shipped
    return max([*copies, shipped])


def lost_end(shipped: int, store: AnyStore) -> str | None:
    """Say that entries which were shipped are not there any more, at the end of a mirror.

    Args:
        shipped: earlier result of `newest_shipped`.
        store: store of the mirror.
    """
    newest = max(_entries_of(store).numbers(), default=-1)  # the newest have files of their own
    if newest >= shipped:
        return None
    numbers = f"entry {shipped}" if newest + 1 == shipped else f"entries {newest + 1} to {shipped}"
    return f"{numbers} had been shipped, and the mirror ends with entry {newest}: the store has lost them"


def _entries_of(store: AnyStore) -> Entries:
    return Entries(Disk(MirrorFiles(store), SpaceWait(should_stop=lambda: True), "verify"))


def _newest(entries: Entries) -> int:
    return max([*entries.numbers(), *(last for _, last, _ in entries.checkpoints())], default=-1)


def _check_identity(disk: Disk, store: AnyStore) -> Layout | None:
    """The landing's layout; None where the landing or the mirror has none."""
    ours, theirs = read_layout(disk), find_layout(store)
    if ours is None or theirs is None:
        return None
    if ours.landing_id != theirs.landing_id:
        raise ConfigError(
            f"landing.mirror.url: {store.url} holds another landing ({theirs.landing_id}) than the one of "
            f"{disk.files.root} ({ours.landing_id})"
        )
    return ours


def ship_missing(disk: Disk, store: AnyStore, told: Callable[[str], object]) -> None:
    """Ship again what a mirror has lost and this host has.

    Args:
        disk: disk of the landing; only read.
        store: store of its mirror.
        told: told the path of each object that was put.

    Raises:
        ConfigError: there is no landing here, or it is another one, or it never shipped anything there.
        FencedError: nothing here is of the mirror's log.
        LandingError: an entry is neither here nor there.
        MirrorError: the store does not do it.
    """
    if _check_identity(disk, store) is None:
        raise ConfigError(
            f"{disk.files.root} and {store.url} are not a landing and its mirror: one has no "
            "layout.json. Start the daemon, which ships it again"
        )
    while True:
        floor = FloorWatch(Entries(disk)).look()
        try:
            return _Missing(disk, store, told).ship()
        except (FileNotFoundError, LandingError) as error:
            if FloorWatch(Entries(disk)).look() > floor:
                continue  # retention has taken meanwhile what was to be read
            if isinstance(error, LandingError):
                raise
            raise LandingError(f"{error.filename}: missing; restore it from a copy") from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Proof:
    """How much of the log here is the mirror's.

    Attributes:
        last: number of the last entry that is.
        is_overtaken: the mirror goes on with entries that are not here.
    """

    last: int
    is_overtaken: bool


class _Missing:
    def __init__(self, disk: Disk, store: AnyStore, told: Callable[[str], object]) -> None:
        self._disk = disk
        self._store = store
        self._told = told
        self._here = Entries(disk)
        self._there = _entries_of(store)
        self._putter = EntryPutter(disk, store)
        self._floor_here, self._floor_there = FloorWatch(self._here), FloorWatch(self._there)
        self._schemas: set[str] = set()

    def ship(self) -> None:
        proof = self._proof()
        first = max(self._first(), self._floor() + 1)
        self._ship_log(first, proof.last)
        last = proof.last if proof.is_overtaken else self._ship_end(proof.last)
        waiting: dict[str, Shipped] = {}
        floor = self._floor()
        with ThreadPoolExecutor(_LOOKS, "look") as pool:
            for entry in self._here.iterate(max(first, floor + 1), last):
                self._ship_schemas(entry)
                files = [(_lowest(entry, file), file) for file in entry.files]
                self._ship_files(pool, [(n, file) for n, file in files if n > floor])
                waiting |= {file.path: file for file in entry.prepared}
                for path in entry.ended:
                    waiting.pop(path, None)
            # Should one end now, the next start removes its file there.
            self._ship_files(pool, [(last, file) for file in waiting.values()])

    def _floor(self) -> int:
        """Up to here retention has taken everything, or will, as far as is known now."""
        return max(self._floor_here.look(), self._floor_there.look())

    def _first(self) -> int:
        """The first entry that is here."""
        held = self._here.checkpoints()
        return min([*self._here.numbers()[:1], *(first for first, _, _ in held[:1])], default=0)

    def _proof(self) -> _Proof:
        """Find the last entry that here and there have in common, by its hash.

        Raises:
            FencedError: there is none.
        """
        newest_here, first = _newest(self._here), self._first()
        present = {*self._there.numbers(), *(last for _, last, _ in self._there.checkpoints())}
        above: CommitEntry | None = None
        for n in sorted(present, reverse=True):
            if n < first:
                break
            theirs = self._there.one(n)
            if n <= newest_here and self._here.one(n).hash == theirs.hash:
                return _Proof(self._proved_by(above, n), above is not None)
            above = theirs
        if not present:
            raise ConfigError(
                f"{self._store.url}: it has no entry; start the daemon, which ships everything that is "
                "here"
            )
        raise self._putter.fenced(max(present), "and none of the entries here")

    def _proved_by(self, above: CommitEntry | None, n: int) -> int:
        """Entries that are lost below one of another host are of its log where it follows them."""
        if above is None or above.n - 1 > _newest(self._here):
            return n
        before = self._here.one(above.n - 1)
        return before.n if above.previous == before.hash else n

    # ---- entries ---------------------------------------------------------------------

    def _ship_log(self, first: int, last: int) -> None:
        """Ship entries that are in no file and in no checkpoint there; the newest in files of their own."""
        there = set(self._there.numbers())
        newest = max(there, default=-1)
        held = [(low, high) for low, high, _ in self._there.checkpoints()]
        blocks = [of for of in self._here.checkpoints() if of[1] <= last]
        for n in range(first, last + 1):
            if n in there or (n < newest and any(low <= n <= high for low, high in held)):
                continue
            block = next((of for of in blocks if of[0] <= n <= of[1] and n < newest), None)
            path = entry_path(n) if block is None else block[2]
            if block is not None:
                held.append(block[:2])
            if self._store.put_new(path, self._entry_or_block(n, block)):
                self._keep_above_floor(path, n)

    def _entry_or_block(self, n: int, block: tuple[int, int, str] | None) -> bytes:
        raw = self._here.one(n).to_bytes() if block is None else self._disk.read(block[2])
        if raw is None:
            raise FileNotFoundError(errno.ENOENT, "retention has taken it", entry_path(n))
        return raw

    def _ship_end(self, last: int) -> int:
        """Ship the newest entries again that this host had shipped; gives the last one."""
        state = read_state(self._disk)
        shipped = -1 if state is None or state.url != self._store.url else state.shipped
        for entry in self._here.iterate(last + 1, min(shipped, _newest(self._here))):
            for path in self._putter.put(entry, is_first=False):
                self._told(path)
            last = entry.n
        return last

    # ---- files -----------------------------------------------------------------------

    def _ship_files(self, pool: ThreadPoolExecutor, files: Sequence[tuple[int, Shipped]]) -> None:
        """Ship those that are not there, and here as they were written; `verify` names others.

        Args:
            pool: asks the store.
            files: each with the entry that it goes with.
        """
        sizes = pool.map(lambda of: self._store.size(of[1].path), files)
        for (n, file), size in zip(files, sizes, strict=True):
            if size is None and self._put_file(file):
                self._keep_above_floor(file.path, n)

    def _put_file(self, file: Shipped) -> bool:
        path = self._disk.files.root / file.path
        try:
            is_here = self._disk.matches(file.path, file.bytes, file.checksum)
            return is_here and self._store.put_new(file.path, path)
        except FileNotFoundError:  # a daemon has removed it just now
            return False

    def _ship_schemas(self, entry: CommitEntry) -> None:
        for path in schema_paths(entry):
            if path in self._schemas:
                continue
            self._schemas.add(path)
            if self._disk.size(path) is not None and self._putter.put_file(path):
                self._told(path)

    def _keep_above_floor(self, path: str, n: int) -> None:
        """Say that an object was put; take it back where retention took entry `n` meanwhile."""
        if n <= self._floor():
            self._store.remove(path)
        else:
            self._told(path)


def _lowest(entry: CommitEntry, file: LandingFile) -> int:
    """The entry with which a file goes: of a merged one, the first of its block."""
    block = file.path.split("/")[1]
    is_merged = file.path.startswith(f"{COMPACT}/") and block.isdecimal()
    return min(entry.n, int(block)) if is_merged else entry.n
