"""Begin a landing from its mirror, on a host that has no copy of it.

Given an empty root and a store, fetches the log of the mirror and all that a start needs: layout, entries,
checkpoints, schemas, the ledger of snapshots, the fingerprints, and the newest lists of transactions, which
are compared with what the server sends again. Rows stay in the mirror. The layout is written last: a
root without one begins again.

Before anything is streamed the host *claims* the log (`Shipper.claim`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from gaussdecode.errors import LandingError, MirrorError
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries
from gaussdecode.land.failpoints import ShipStep
from gaussdecode.land.layout import MIRRORED, Layout, create_layout
from gaussdecode.land.mirror.known import write_state
from gaussdecode.land.mirror.plan import (
    KEPT_TRANSACTIONS,
    NUMBERED,
    MirrorState,
    checkpoints,
    newest_entry,
    numbered_copies,
    numbered_path,
)
from gaussdecode.land.names import (
    CHECKPOINTS,
    COMMITS,
    DIRECTORIES,
    LAYOUT,
    PREPARED,
    SCHEMAS,
    TRANSACTIONS,
    entry_number,
    entry_path,
    parent,
)
from gaussdecode.land.snapshots import FINGERPRINTS, UNKNOWN_BEFORE, SnapshotStore
from gaussdecode.land.snapshots import ROOT as SNAPSHOTS
from gaussdecode.objects.store import AnyStore

_FETCHES: Final = 8  # at a time; arbitrary

Told = Callable[[str, int, int], object]
"""Called with the kind of object, the number fetched and the total; an exception ends the fetch."""


def find_layout(store: AnyStore) -> Layout | None:
    """Whose landing a mirror holds; None for an empty one.

    Raises:
        MirrorError: the store does not tell.
        LandingError: it is damaged.
    """
    raw = store.get(LAYOUT)
    return None if raw is None else Layout.from_bytes(raw)


def restore(disk: Disk, store: AnyStore, told: Told = lambda *_: None) -> int:
    """Fetch the log; gives the number of its newest entry.

    Args:
        disk: disk of a root without a layout, locked.
        store: store of a mirror with one.
        told: how far it is.

    Raises:
        LandingError: the mirror has no entry, never was complete, or is damaged.
        MirrorError: the store does not do it.
    """
    layout = find_layout(store)
    names = store.names(COMMITS)[1]
    last = newest_entry(names)
    if layout is None or last < 0:
        raise LandingError(f"{store.url}: there is no landing with entries")
    held = checkpoints(store.names(CHECKPOINTS)[1])
    numbers = sorted(n for n in map(entry_number, names) if n is not None and n <= last)
    if not held and numbers[0] > 0:
        raise LandingError(
            f"{store.url}: it begins with entry {numbers[0]} and has no checkpoint, because the host "
            "that began it had not shipped everything. Continue with the landing of that host"
        )
    for directory in (*DIRECTORIES, SNAPSHOTS):
        disk.ensure_directory(directory)
    batches = {
        "checkpoints": [f"{CHECKPOINTS}/{name}" for _, _, name in held],
        "entries": [entry_path(n) for n in numbers],
        "schemas": store.below(SCHEMAS),
        "prepared transactions": store.below(PREPARED),
    }
    for what, paths in batches.items():
        _fetch(disk, store, paths, partial(told, what))
    entries = Entries(disk)
    floor = held[0][0] - 1 if held else -1
    first = max(floor + 1, last - KEPT_TRANSACTIONS + 1)
    lists = [
        file.path
        for entry in entries.iterate(first, last)
        for file in entry.files
        if file.table == TRANSACTIONS
    ]
    _fetch(disk, store, lists, partial(told, "lists of transactions"))
    _fetch_numbered(disk, store, last)
    state = MirrorState(store.url, last, last, last, is_claimed=False)
    write_state(disk, state)
    disk.sync_directories(COMMITS, CHECKPOINTS)
    disk.files.reach(ShipStep.MIRROR_FETCHED)
    capabilities = (*(of for of in layout.capabilities if of != MIRRORED), MIRRORED)
    create_layout(disk, _with(layout, capabilities))
    return last


def _with(layout: Layout, capabilities: tuple[str, ...]) -> Layout:
    return Layout(layout.landing_id, layout.created, layout.order, layout.sources, capabilities)


def _fetch_numbered(disk: Disk, store: AnyStore, last: int) -> None:
    """Take the newest copy of each file that goes by no entry after the last one.

    Where there is none of the fingerprints, the landing says so: what the server's catalogue is now is not what
    the landing goes by.
    """
    names = store.names(SNAPSHOTS)[1]
    for name in NUMBERED:
        known = [of for of in numbered_copies(name, names) if of[0] <= last]
        if known:
            _write(disk, store, numbered_path(name, *known[-1]), f"{SNAPSHOTS}/{name}")
        elif name == FINGERPRINTS:
            SnapshotStore(disk).note_fingerprints(UNKNOWN_BEFORE, {})
    disk.sync_directories(SNAPSHOTS)


def _fetch(
    disk: Disk, store: AnyStore, paths: Sequence[str], told: Callable[[int, int], object]
) -> None:
    pool = ThreadPoolExecutor(_FETCHES, "fetch")
    try:
        runs = [pool.submit(_write, disk, store, path, path) for path in paths]
        for done, run in enumerate(runs):
            told(done, len(runs))
            run.result()
    finally:
        pool.shutdown(cancel_futures=True)
    disk.sync_directories(*{parent(path) for path in paths})


def _write(disk: Disk, store: AnyStore, path: str, target: str) -> None:
    """Fetch an object; what an earlier attempt left is replaced."""
    raw = store.get(path)
    if raw is None:
        raise MirrorError(f"{store.url}: {path} has disappeared")
    directory = parent(target)
    disk.ensure_directory(directory)
    hidden = disk.unfinished(directory, 0, "json")
    disk.write_file(hidden, raw)
    disk.replace(hidden, target)
