"""An object store, as the mirror and the lake need it: put if absent, read, list, remove.

Given a URL and settings; promises that an object is either whole or not there, that `put_new`
never changes an object that exists, and that no error repeats what a store answered: answers
hold signatures and names of keys. Waits and tries again for as long as one request may take,
and no longer. Knows nothing of entries.

Credentials come from a file, which is read again when it changes, or from the environment and
the machine, as the store's own tools take them.
"""

import contextlib
import hashlib
import io
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import ObjectStore, from_url

from gaussdecode.errors import ConfigError, MirrorError, MirrorRefusedError
from gaussdecode.settings.sections import MIRROR_PUT_BYTES, MirrorConfig

_READ_BYTES: Final = 1 << 20
_WHOLE_BYTES: Final = 8 << 20  # arbitrary; what is smaller is read by one request
_PROBE: Final = "probe"
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z ]{0,40})?)")
_PLAIN: Final = {
    "Connection refused": "connection refused",
    "dns error": "the name of its host is not known",
    "failed to lookup address": "the name of its host is not known",
    "kind: Timeout": "no answer in time",
    "operation timed out": "no answer in time",
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
}
"""What is found in the text of an error, and what is said of it; the rest is not repeated."""
_REFUSED: Final = frozenset(
    {"NoSuchBucket", "NoSuchContainer", "ContainerNotFound", "AccessDenied", "InvalidAccessKeyId"}
)
_NOT_ALLOWED: Final = frozenset({"401", "403"})
_KEYS: Final = re.compile(r"(?:aws|google|gcs|azure)_[a-z0-9_]+")
_T = TypeVar("_T")


class Facts(NamedTuple):
    """What a list says of an object.

    Attributes:
        path: from the store's URL.
        bytes: its size.
        modified: when it was written, in seconds of Unix time by the store's clock.
    """

    path: str
    bytes: int
    modified: float


class Store:
    """A place on an object store, and all that is ever done below it. Thread-safe.

    Args:
        settings: where it is, and how it is asked.
        section: what comes before the names of settings in an error.
    """

    def __init__(self, settings: MirrorConfig, section: str = "landing.mirror.") -> None:
        """Look at the settings; no request is made.

        Raises:
            ConfigError: they cannot be used.
        """
        self.url = settings.url
        self._settings = settings
        self._section = section
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._made = self._make()

    # ---- objects ---------------------------------------------------------------------

    def put_new(self, path: str, content: bytes | Path) -> bool:
        """Write an object that must not exist; whether it was this call that did.

        A file above `MIRROR_PUT_BYTES` goes in parts, which no store takes under a condition: it
        is written where none is seen, and its name must be the caller's own.
        """
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        if size > MIRROR_PUT_BYTES:
            if self.size(path) is not None:
                return False
            self._do("put", path, lambda store: obstore.put(store, path, content))
            return True
        try:
            self._do("put", path, lambda store: obstore.put(store, path, content, mode="create"))
        except FileExistsError:
            return False
        return True

    def replace(self, path: str, content: bytes) -> None:
        """Write an object, whether it exists or not."""
        self._do("put", path, lambda store: obstore.put(store, path, content, mode="overwrite"))

    def get(self, path: str) -> bytes | None:
        """Content of an object; None where there is none."""
        try:
            return self._do("get", path, lambda store: bytes(obstore.get(store, path).bytes()))
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        """Size of an object; None where there is none."""

        def read(store: ObjectStore) -> int:
            return int(obstore.head(store, path)["size"])

        try:
            return self._do("head", path, read)
        except FileNotFoundError:
            return None

    def checksum(self, path: str) -> str | None:
        """``sha256:`` and the digest of an object, read piece by piece; None where there is none."""

        def read(store: ObjectStore) -> str:
            digest = hashlib.sha256()
            for piece in obstore.get(store, path).stream(min_chunk_size=_READ_BYTES):
                digest.update(piece)
            return f"sha256:{digest.hexdigest()}"

        try:
            return self._do("get", path, read)
        except FileNotFoundError:
            return None

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
        return io.BufferedReader(_Raw(self, path, size), _READ_BYTES)

    def part(self, path: str, start: int, length: int) -> bytes:
        """Bytes of an object from `start` on: `length` of them, at least 1, or as far as it goes."""

        def read(store: ObjectStore) -> bytes:
            return bytes(obstore.get_range(store, path, start=start, length=length))

        return self._do("get", path, read)

    def names(self, directory: str) -> tuple[list[str], list[str]]:
        """Directories and objects directly below one, by name, each sorted."""

        def read(store: ObjectStore) -> tuple[list[str], list[str]]:
            found = obstore.list_with_delimiter(store, f"{directory}/" if directory else None)
            return (
                sorted(path.rpartition("/")[2] for path in found["common_prefixes"]),
                sorted(item["path"].rpartition("/")[2] for item in found["objects"]),
            )

        return self._do("list", directory, read)

    def below(self, directory: str) -> list[str]:
        """Paths of all objects below a directory, sorted."""
        return [facts.path for facts in self.facts_below(directory)]

    def facts_below(self, directory: str) -> list[Facts]:
        """All objects below a directory, by path."""

        def read(store: ObjectStore) -> list[Facts]:
            pages = obstore.list(store, f"{directory}/" if directory else None)
            found = (item for page in pages for item in page)
            return sorted(
                Facts(i["path"], i["size"], i["last_modified"].timestamp()) for i in found
            )

        return self._do("list", directory, read)

    def remove(self, path: str) -> None:
        """Remove an object if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._do("delete", path, lambda store: obstore.delete(store, path))

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
                f"{self.url}: this store replaces an object that exists although it is asked not to "
                "(If-None-Match: *), so two hosts could land over each other; use a store or a version "
                "of it with conditional puts"
            )

    # ---- requests --------------------------------------------------------------------

    def _do(self, what: str, path: str, work: Callable[[ObjectStore], _T]) -> _T:
        return self.guarded(what, path, lambda: work(self._store()))

    def guarded(self, what: str, path: str, work: Callable[[], _T]) -> _T:
        """Do something at the store; what it raises is told in our words."""
        try:
            return work()
        except exceptions.AlreadyExistsError as error:
            raise FileExistsError(path) from error
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if _code(error) in _REFUSED:
                raise self._told(what, path, error) from None
            raise FileNotFoundError(path) from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            # Not from it: its text would follow into a traceback.
            raise self._told(what, path, error) from None

    def _told(self, what: str, path: str, error: BaseException) -> MirrorError:
        """Say what failed, and nothing of what the store answered but its code."""
        text = str(error)
        status, code = _STATUS.search(text), _code(error)
        said = [match for match in (status and status[1], code) if match]
        plain = next((say for found, say in _PLAIN.items() if found in text), None)
        why = ": ".join(said) or plain or f"it failed ({type(error).__name__})"
        reason = f"{self.url}: {what} {path or '.'}: {why}"
        is_refused = code in _REFUSED or (status is not None and status[1][:3] in _NOT_ALLOWED)
        if not is_refused:
            return MirrorError(reason)
        return MirrorRefusedError(
            f"{reason}; correct {self._section}url, the credentials or their rights: what is written "
            "needs to put, get, list and delete below its URL, what is only read to get and list"
        )

    def _store(self) -> ObjectStore:
        """The client, made anew where the file of credentials has changed."""
        with self._lock:
            if self._settings.credentials_file is not None and self._stamp() != self._seen:
                self._made = self._make()
            return self._made

    def _stamp(self) -> tuple[int, int] | None:
        assert self._settings.credentials_file is not None
        try:
            facts = self._settings.credentials_file.stat()
        except OSError:
            return self._seen  # being replaced: what was read still counts
        return facts.st_mtime_ns, facts.st_ino

    def _make(self) -> ObjectStore:
        settings = self._settings
        if settings.credentials_file is not None:
            self._seen = self._stamp()
        scheme = urlsplit(settings.url).scheme
        options: dict[str, Any] = {}  # Any: of several types, by the kind of store
        if scheme != "file":
            options["client_options"] = {
                "timeout": timedelta(seconds=settings.timeout),
                "connect_timeout": timedelta(seconds=min(settings.timeout, 10.0)),
                "allow_http": settings.allow_http,
            }
            options["retry_config"] = {
                "max_retries": 3,
                "retry_timeout": timedelta(seconds=settings.timeout),
            }
            options.update(read_credentials(settings.credentials_file, self._section))
        if settings.endpoint:
            options["endpoint"] = settings.endpoint
        if scheme == "s3":
            options["virtual_hosted_style_request"] = settings.virtual_hosted
            if settings.region:
                options["region"] = settings.region
        else:
            options |= {"mkdir": True} if scheme == "file" else {}
        try:
            return from_url(settings.url, **options)
        except (exceptions.BaseError, OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self._section}url: {settings.url} cannot be used ({type(error).__name__}); "
                "allowed: s3://, gs://, az:// or file:// with what the store needs beside it"
            ) from None


class _Raw(io.RawIOBase):
    """An object as a file, for `io.BufferedReader`: each read is one request, however large."""

    def __init__(self, store: Store, path: str, size: int) -> None:
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


def read_credentials(path: Path | None, section: str = "landing.mirror.") -> dict[str, str]:
    """Read a file of ``NAME=value`` lines, named as the store's own tools name them.

    Raises:
        ConfigError: it cannot be used; no value is repeated.
    """
    if path is None:
        return {}
    where = f"{section}credentials-file {path}"
    try:
        facts = path.stat()
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{where}: {why}") from None
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise ConfigError(f"{where}: others can read it; chmod 0600 {path}")
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        key = name.strip().removeprefix("export ").strip().lower()
        if not equals or not _KEYS.fullmatch(key):
            raise ConfigError(
                f"{where}, line {number}: allowed: AWS_..., GOOGLE_... or AZURE_..., an equals sign "
                "and its value"
            )
        found[key] = value.strip().strip("\"'")
    return found


def _code(error: BaseException) -> str | None:
    found = _CODE.search(str(error))
    return None if found is None else found[1]
