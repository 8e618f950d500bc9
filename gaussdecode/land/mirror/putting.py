"""Put one entry into a mirror, with all files that it names.

It takes the steps that `shipper` lists, each put only if absent. Nothing remains of an entry that lost to the
entry of another host.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from gaussdecode.errors import FencedError, LandingError, MirrorError
from gaussdecode.land.disk import Disk
from gaussdecode.land.failpoints import ShipStep
from gaussdecode.land.mirror.plan import Shipped, batches, newest_entry, schema_paths
from gaussdecode.land.names import COMMITS, entry_path
from gaussdecode.model.entry import CommitEntry
from gaussdecode.objects.store import AnyStore
from gaussdecode.settings.landing_sections import MIRROR_PUT_BYTES

SHIP_MISSING: Final = "gaussdecode verify --mirror --ship-missing CONFIG"
_UPLOADS: Final = 4  # files at a time; arbitrary


class EntryPutter:
    """Puts entries, their data files and their schemas.

    Args:
        disk: disk of the landing.
        store: store of the mirror.
    """

    def __init__(self, disk: Disk, store: AnyStore) -> None:
        self._disk = disk
        self._store = store
        self._schemas: set[str] = set()

    def put(self, entry: CommitEntry, *, is_first: bool) -> list[str]:
        """Put an entry after what it names.

        Args:
            entry: entry of the landing.
            is_first: the mirror has no entry before it.

        Returns:
            Paths of the entry and of its data files, where they were not there.

        Raises:
            FencedError: another host has shipped this number.
            LandingError: a file of it is neither here nor there, or the store has lost the entry before.
            MirrorError: the store does not do it.
        """
        reach = self._disk.files.reach
        for path in schema_paths(entry):
            if path not in self._schemas:
                self.put_file(path)
                self._schemas.add(path)
        reach(ShipStep.SCHEMAS_SHIPPED)
        put = self._put_files(entry)
        reach(ShipStep.FILES_SHIPPED)
        if self._store.put_new(entry_path(entry.n), entry.to_bytes()):
            put.append(entry_path(entry.n))
        else:
            try:
                self.compare(entry, self._store.get(entry_path(entry.n)))
            except FencedError:
                self.take_back(put)
                raise
        if is_first or self._store.size(entry_path(entry.n - 1)) is not None:
            return put
        self.take_back([entry_path(entry.n), *put])
        if newest_entry(self._store.names(COMMITS)[1]) > entry.n:
            raise self.fenced(entry.n - 1, "which has disappeared from the store")
        raise LandingError(
            f"{self._store.url}: entry {entry.n - 1} was shipped and is missing: it was lost or "
            f"removed in the store. To find and ship missing objects again: {SHIP_MISSING}"
        )

    def _put_files(self, entry: CommitEntry) -> list[str]:
        """Put the data files of an entry; gives those that were not there."""
        put: list[str] = []
        with ThreadPoolExecutor(_UPLOADS, "upload") as pool:
            for batch in batches((*entry.files, *entry.prepared), _UPLOADS, MIRROR_PUT_BYTES):
                runs = [(file.path, pool.submit(self._put_data, entry.n, file)) for file in batch]
                failures = [error for _, run in runs if (error := run.exception()) is not None]
                put += [path for path, run in runs if run.exception() is None and run.result()]
                if any(isinstance(error, FencedError) for error in failures):
                    self.take_back(put)
                for error in sorted(failures, key=lambda of: not isinstance(of, FencedError)):
                    raise error
        return put

    def _put_data(self, n: int, file: Shipped) -> bool:
        """Put a data file; False where the same one was there."""
        try:
            if self.put_file(file.path):
                return True
        except LandingError:  # it may be there alone
            if self._store.size(file.path) is None:
                raise
        if self._store.size(file.path) != file.bytes or (
            self._store.checksum(file.path) != file.checksum
        ):
            raise self.fenced(n, f"of which {file.path} has other bytes than here")
        return False

    def put_file(self, path: str) -> bool:
        """Put a file of the landing; False where there is something of its name.

        Raises:
            LandingError: it is not here.
            MirrorError: the store does not do it.
        """
        try:
            return self._store.put_new(path, self._disk.files.root / path)
        except FileNotFoundError:
            raise LandingError(
                f"{path} is missing here and not in the mirror; restore it from a copy"
            ) from None

    def compare(self, entry: CommitEntry, raw: bytes | None) -> None:
        """See that the mirror's entry of a number is the landing's.

        Raises:
            FencedError: it is another one.
            MirrorError: it is gone meanwhile.
        """
        if raw is None:
            raise MirrorError(f"{self._store.url}: entry {entry.n} has disappeared")
        if raw != entry.to_bytes():
            raise self.fenced(entry.n, "which is not the one of this landing")

    def take_back(self, paths: list[str]) -> None:
        """Remove objects."""
        for path in paths:
            self._store.remove(path)

    def fenced(self, n: int, what: str) -> FencedError:
        """What is said where another host has gone on with the landing."""
        return FencedError(
            f"fenced: {self._store.url} has entry {n}, {what}: another host continues this landing. "
            "Only one may: stop the other, or this one. With `confirm: mirror` the server sends "
            "again what the other has not shipped. To continue here, begin with an empty landing.root"
        )
