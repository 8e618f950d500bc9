"""Mirror the daemon's files beside the log: the ledger of snapshots, and the fingerprints.

These files change, and overwriting an object could lose another writer's change. So each version is an object
of its own, ``snapshots/<file>-<n>-<k>.json``: the file as it was when entry *n* was the newest. It is shipped
once the mirror has that entry, and fetched only with a log that has it. So a new host never uses
a state that its log does not reach.
"""

from collections.abc import Callable

from gaussdecode.land.disk import Disk
from gaussdecode.land.mirror.plan import numbered_copies, numbered_path
from gaussdecode.land.snapshots import ROOT
from gaussdecode.objects.store import AnyStore


class NumberedFile:
    """Ships one of these files whenever it has changed.

    Args:
        disk: disk of the landing.
        store: store of the mirror.
        name: name of the file, below ``snapshots/``.
    """

    def __init__(self, disk: Disk, store: AnyStore, name: str) -> None:
        self._disk = disk
        self._store = store
        self._name = name
        self._path = f"{ROOT}/{name}"
        self._seen = (0, 0)
        self._waiting: tuple[int, bytes] | None = None
        self._serial = 0

    def prepare(self) -> None:
        """See what the mirror has of it."""
        known = numbered_copies(self._name, self._store.names(ROOT)[1])
        self._serial = max((serial for _, serial in known), default=-1) + 1

    def ship(self, newest: Callable[[], int], shipped: int) -> bool:
        """Ship it, once the mirror has every entry that it goes by; whether it did.

        Args:
            newest: gives the number of the landing's newest entry.
            shipped: number of the newest entry that the mirror has.
        """
        if self._waiting is None:
            self._waiting = self._changed(newest)
        if self._waiting is None or shipped < self._waiting[0]:
            return False
        path = numbered_path(self._name, shipped, self._serial)
        self._store.put_new(path, self._waiting[1])
        self._waiting = None
        self._serial += 1
        for of in numbered_copies(self._name, self._store.names(ROOT)[1]):
            if numbered_path(self._name, *of) != path:
                self._store.remove(numbered_path(self._name, *of))
        return True

    def _changed(self, newest: Callable[[], int]) -> tuple[int, bytes] | None:
        """The newest entry after the file was read, and the file; None where it is as it was."""
        try:
            facts = (self._disk.files.root / self._path).stat()
        except FileNotFoundError:
            return None
        seen = facts.st_ino, facts.st_mtime_ns
        raw = None if seen == self._seen else self._disk.read(self._path)
        self._seen = seen
        return (
            None if raw is None else (newest(), raw)
        )  # what is read later may go by later entries
