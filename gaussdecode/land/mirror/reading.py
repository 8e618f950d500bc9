"""Read a mirror as the files of a landing: for `verify` of a URL."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gaussdecode.land.failpoints import Point
from gaussdecode.land.files import Files, Item
from gaussdecode.objects.store import AnyStore


class MirrorFiles(Files):
    """The files of a mirror; nothing can be changed through them."""

    def __init__(self, store: AnyStore) -> None:  # there is no root to open
        self.root = Path(store.url)
        self._store = store

    def reach(self, point: Point) -> None:
        """Pass a failpoint: there is none here."""

    def is_locked(self) -> bool:
        """Somebody may ship at any time."""
        return True

    def close(self) -> None:
        """Nothing is open."""

    def items(self, path: str) -> list[Item]:
        """Names in a directory, sorted; none if there is no such directory."""
        directories, files = self._store.names(path)
        found = [Item(name, is_directory=True, is_file=False) for name in directories]
        found += [Item(name, is_directory=False, is_file=True) for name in files]
        return sorted(found)

    def scan(self, path: str) -> Iterator[Item]:
        """The same."""
        yield from self.items(path)

    def size(self, path: str) -> int | None:
        """Size of a file; None if there is none."""
        return self._store.size(path)

    def has_directory(self, path: str) -> bool:
        """Whether something is below it."""
        return any(self._store.names(path))

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        return self._store.open(path)

    def read(self, path: str) -> bytes:
        """Read a whole small file."""
        raw = self._store.get(path)
        if raw is None:
            raise FileNotFoundError(path)
        return raw
