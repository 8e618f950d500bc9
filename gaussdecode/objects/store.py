"""The interface of an object store for the mirror and the lake: put if absent, read, list, remove.

Given a URL and settings. An object is either whole or not there. `put_new` never changes an object that exists.
No error repeats the answer of a store, because answers hold signatures and names of keys. A request is
retried for as long as one request may take, and no longer. Knows nothing of entries.

Credentials come from a file, which is read again when it changes, or from the environment and
the machine, as the store's own tools take them.
"""

import abc
import hashlib
import io
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from gaussdecode.errors import MirrorError, MirrorRefusedError
from gaussdecode.settings.landing_sections import MirrorConfig

READ_BYTES: Final = 1 << 20
_WHOLE_BYTES: Final = 8 << 20  # arbitrary; what is smaller is read by one request
_PROBE: Final = "probe"
_PLAIN: Final = {
    "Connection refused": "connection refused",
    "dns error": "the name of its host is not known",
    "failed to lookup address": "the name of its host is not known",
    "NameResolutionError": "the name of its host is not known",
    "kind: Timeout": "no answer in time",
    "timed out": "no answer in time",
    "certificate": "its certificate is not accepted",
    "No such file or directory": "no such file or directory",
    "Not a directory": "not a directory",
    "File exists": "not a directory",
    "No space left": "no space left",
    "Permission denied": "permission denied",
    "kind: Connect": "no connection",
    "kind: Request": "the connection broke off",
    "kind: Interrupted": "the connection broke off",
    "kind: Decode": "the connection broke off",
    "Connection aborted": "the connection broke off",
    "Connection broken": "the connection broke off",
}
"""Parts of an error's text, and the message for each; the rest is not repeated."""
_HADOOP: Final = frozenset({"hdfs", "webhdfs", "swebhdfs"})
_C = TypeVar("_C")
_T = TypeVar("_T")


class Facts(NamedTuple):
    """What a list says of an object.

    Attributes:
        path: path from the store's URL.
        bytes: its size.
        modified: when it was written, in seconds of Unix time by the store's clock.
    """

    path: str
    bytes: int
    modified: float


class Store(abc.ABC, Generic[_C]):
    """A place on a store, and all that is ever done below it. Thread-safe.

    Of the type of its library's client.

    Args:
        settings: URL, credentials and timeouts.
        section: prefix of option names in an error.
    """

    _RAISED: ClassVar[tuple[type[Exception], ...]]
    """What the library raises."""

    def __init__(self, settings: MirrorConfig, section: str = "landing.mirror.") -> None:
        """Look at the settings; no request is made.

        Raises:
            ConfigError: they cannot be used.
        """
        self.url = settings.url
        self._settings = settings
        self._section = section
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = self._stamp()
        self._made = self._make()

    # ---- objects ---------------------------------------------------------------------

    @abc.abstractmethod
    def put_new(self, path: str, content: bytes | Path) -> bool:
        """Write an object that must not exist; whether it was this call that did."""

    @abc.abstractmethod
    def replace(self, path: str, content: bytes) -> None:
        """Write an object, whether it exists or not."""

    @abc.abstractmethod
    def get(self, path: str) -> bytes | None:
        """Content of an object; None where there is none."""

    @abc.abstractmethod
    def size(self, path: str) -> int | None:
        """Size of an object; None where there is none."""

    @abc.abstractmethod
    def part(self, path: str, start: int, length: int) -> bytes:
        """Bytes of an object from `start` on: `length` of them, at least 1, or as far as it goes."""

    @abc.abstractmethod
    def names(self, directory: str) -> tuple[list[str], list[str]]:
        """Directories and objects directly below one, by name, each sorted."""

    @abc.abstractmethod
    def facts_below(self, directory: str) -> list[Facts]:
        """All objects below a directory, by path."""

    @abc.abstractmethod
    def remove(self, path: str) -> None:
        """Remove an object if it is there."""

    def checksum(self, path: str) -> str | None:
        """``sha256:`` and the digest of an object, read piece by piece; None where there is none."""

        def read(client: _C) -> str:
            digest = hashlib.sha256()
            for piece in self._pieces(client, path):
                digest.update(piece)
            return f"sha256:{digest.hexdigest()}"

        try:
            return self._do("get", path, read)
        except FileNotFoundError:
            return None

    def below(self, directory: str) -> list[str]:
        """Paths of all objects below a directory, sorted."""
        return [facts.path for facts in self.facts_below(directory)]

    def open(self, path: str) -> BinaryIO:
        """Open an object for reading in any order.

        Raises:
            FileNotFoundError: there is none.
        """
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(path)
        if size <= _WHOLE_BYTES and (whole := self.get(path)) is not None:
            return io.BytesIO(whole)
        return io.BufferedReader(_Raw(self, path, size), READ_BYTES)

    def prove(self) -> None:
        """See that the store keeps what exists when it is asked to, which not every one does.

        Raises:
            MirrorRefusedError: it replaces it.
            MirrorError: it does not do what is asked.
        """
        path = f"{_PROBE}-{secrets.token_hex(8)}"
        is_kept = self.put_new(path, b"1") and not self.put_new(path, b"2")
        self.remove(path)
        if not is_kept:
            raise MirrorRefusedError(
                f"{self.url}: this store replaces existing objects although the request forbids it "
                "(If-None-Match: *), so two hosts could overwrite each other; use a store, or a version "
                "of it, with conditional puts"
            )

    # ---- requests --------------------------------------------------------------------

    @abc.abstractmethod
    def _make(self) -> _C:
        """Make a client.

        Raises:
            ConfigError: the settings cannot be used.
        """

    @abc.abstractmethod
    def _pieces(self, client: _C, path: str) -> Iterator[bytes]:
        """An object, of which a piece at a time is in memory."""

    @abc.abstractmethod
    def _translated(self, what: str, path: str, error: Exception) -> Exception:
        """One of `_RAISED` as what is raised of it: of a file, or told in our words."""

    def _do(self, what: str, path: str, work: Callable[[_C], _T]) -> _T:
        try:
            return work(self._client())
        except self._RAISED as error:
            # Not from it: its text would follow into a traceback.
            raise self._translated(what, path, error) from None

    def _error(self, what: str, path: str, why: str, *, is_refused: bool) -> MirrorError:
        """Say what failed, with nothing of what the store answered."""
        reason = f"{self.url}: {what} {path or '.'}: {why}"
        if not is_refused:
            return MirrorError(reason)
        return MirrorRefusedError(
            f"{reason}; correct {self._section}url, the credentials or their rights. A writer needs "
            "to put, get, list and delete below its URL, a reader to get and list"
        )

    def _client(self) -> _C:
        """The client, made anew where the file of credentials has changed."""
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                self._made = self._make()
            return self._made

    def _stamp(self) -> tuple[int, int] | None:
        if self._settings.credentials_file is None:
            return None
        try:
            facts = self._settings.credentials_file.stat()
        except OSError:
            return getattr(self, "_seen", None)  # being replaced: what was read still counts
        return facts.st_mtime_ns, facts.st_ino


class _Raw(io.RawIOBase):
    """An object as a file, for `io.BufferedReader`: each read is one request, however large."""

    def __init__(self, store: Store[Any], path: str, size: int) -> None:  # Any: of any library
        super().__init__()
        self._store, self._path, self._size = store, path, size
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:  # Any: whatever has the buffer protocol
        """Read some bytes."""
        view = memoryview(buffer)
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        found = self._store.part(self._path, self._at, wanted)
        view[: len(found)] = found
        self._at += len(found)
        return len(found)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at


AnyStore = Store[Any]  # Any: of any library


def plain_reason(error: Exception) -> str:
    """Why a request failed, as far as it is known and may be told."""
    text = str(error)
    plain = next((say for found, say in _PLAIN.items() if found in text), None)
    return plain or f"it failed ({type(error).__name__})"


def open_store(settings: MirrorConfig, section: str = "landing.mirror.") -> Store[Any]:
    """Make the client of a store; its library is loaded only where there is one.

    Raises:
        ConfigError: the settings cannot be used.
    """
    if urlsplit(settings.url).scheme in _HADOOP:
        from gaussdecode.objects.hdfs import HdfsStore

        return HdfsStore(settings, section)
    from gaussdecode.objects.cloud import CloudStore

    return CloudStore(settings, section)
