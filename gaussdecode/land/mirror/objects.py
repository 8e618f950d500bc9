"""The operations of an object store that the mirror needs."""

from pathlib import Path
from typing import BinaryIO, Protocol


class Objects(Protocol):
    """Objects below one URL; see `gaussdecode.objects.store.Store`, which says what each method does."""

    @property
    def url(self) -> str:
        """Where it is."""

    def prove(self) -> None:
        """See that the store keeps what exists when it is asked to."""

    def put_new(self, path: str, content: bytes | Path) -> bool:
        """Write an object that must not exist; whether it was this call that did."""

    def replace(self, path: str, content: bytes) -> None:
        """Write an object, whether it exists or not."""

    def get(self, path: str) -> bytes | None:
        """Content of an object; None where there is none."""

    def size(self, path: str) -> int | None:
        """Size of an object; None where there is none."""

    def checksum(self, path: str) -> str | None:
        """``sha256:`` and the digest of an object; None where there is none."""

    def open(self, path: str) -> BinaryIO:
        """Open an object for reading in any order."""

    def names(self, directory: str) -> tuple[list[str], list[str]]:
        """Directories and objects directly below one, by name."""

    def below(self, directory: str) -> list[str]:
        """Paths of all objects below a directory."""

    def remove(self, path: str) -> None:
        """Remove an object if it is there."""
