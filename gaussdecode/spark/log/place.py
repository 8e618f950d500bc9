"""Treat local paths and objects below a URL alike.

A place is a `pathlib.Path`, or an `ObjectPath` with the same methods as far as they are used. An
operation that differs between a disk and a store is a function here, so that other modules need not ask
which of them a place is. Places are picklable: driver and executors read through the same place. A URL
says where a store is and, after its question mark, how to reach it. It never holds credentials: each
machine takes these from a file that the URL names, from the environment, or from its own identity.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.errors import ConfigError
from gaussdecode.settings.landing_sections import MirrorConfig

if TYPE_CHECKING:
    from gaussdecode.objects.store import Store

_ALIASES: Final = {"s3a": "s3", "abfs": "abfss"}
_SCHEMES: Final = ("s3", "gs", "az", "abfss", "hdfs", "webhdfs", "swebhdfs", "file")
_OPTIONS: Final = {
    name.replace("_", "-"): name
    for name in (
        "endpoint",
        "region",
        "credentials_file",
        "allow_http",
        "virtual_hosted",
        "timeout",
    )
}
"""Options allowed after the question mark: keys of ``landing.mirror``, by their spelling."""
_ALLOWED: Final = (
    "allowed: a directory, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, "
    "abfss://container@account.dfs.core.windows.net/prefix, hdfs://namenode/prefix, "
    "webhdfs://namenode:port/prefix, swebhdfs://namenode:port/prefix or file:///directory"
)
_AT_A_TIME: Final = 16  # requests for small objects; arbitrary


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectPath:
    """A path below a URL.

    Attributes:
        settings: settings of the store; its URL is above all paths.
        path: path below the URL, without a slash at its ends; empty for the URL itself.
    """

    settings: MirrorConfig
    path: str = ""

    def __truediv__(self, other: str) -> "ObjectPath":
        return dataclasses.replace(self, path=f"{self.path}/{other}".strip("/"))

    def __str__(self) -> str:
        return f"{self.settings.url.rstrip('/')}/{self.path}".rstrip("/")

    @property
    def store(self) -> "Store[Any]":  # Any: of any library
        """The client, one per process."""
        return _store(self.settings)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return str(self).rpartition("/")[2]

    @property
    def parent(self) -> "ObjectPath":
        """The directory that contains it."""
        return dataclasses.replace(self, path=self.path.rpartition("/")[0])

    def absolute(self) -> "ObjectPath":
        """Itself; such a path is always absolute."""
        return self

    def read_bytes(self) -> bytes:
        """Content of the object.

        Raises:
            FileNotFoundError: there is no such object.
        """
        found = self.store.get(self.path)
        if found is None:
            raise FileNotFoundError(str(self))
        return found

    def is_file(self) -> bool:
        """Whether the object exists."""
        return self.store.size(self.path) is not None

    def exists(self) -> bool:
        """Whether the object exists; callers ask for objects only."""
        return self.is_file()

    def is_dir(self) -> bool:
        """Whether anything is below it."""
        return any(self.store.names(self.path))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the object; a missing one counts as removed."""
        del missing_ok
        self.store.remove(self.path)


Place = Path | ObjectPath
Given = Place | str
"""Forms in which callers give a place."""


class File(NamedTuple):
    """A file below a directory.

    Attributes:
        path: path relative to that directory.
        bytes: its size.
        modified: Unix time in seconds.
    """

    path: str
    bytes: int
    modified: float


@functools.lru_cache(maxsize=64)
def _store(settings: MirrorConfig) -> "Store[Any]":  # Any: of any library
    from gaussdecode.objects.store import open_store  # not where there is no URL

    return open_store(settings, section="")


def place_of(given: Given) -> Place:
    """Parse a path or URL.

    Raises:
        ConfigError: it is neither; values after the question mark are not repeated in the text.
    """
    if isinstance(given, ObjectPath):
        return given
    text = str(given)
    scheme, is_url, _ = text.partition("://")
    if isinstance(given, Path) or not is_url:
        if text.partition(":/")[0] in {*_SCHEMES, *_ALIASES} and ":/" in text:
            raise ConfigError(f"{text!r} lost a slash: give a URL as text, not as a Path")
        return Path(given).absolute()
    scheme = _ALIASES.get(scheme, scheme)
    if scheme not in _SCHEMES:
        raise ConfigError(f"{scheme}://... is no place; {_ALLOWED}")
    parts = urlsplit(text)
    if scheme == "file":
        if parts.netloc or parts.query or not parts.path.startswith("/"):
            raise ConfigError(f"file://... is no place; {_ALLOWED}")
        return Path(unquote(parts.path))
    is_plain = "@" not in parts.netloc or (scheme == "abfss" and ":" not in parts.netloc)
    if not parts.netloc or parts.fragment or not is_plain:
        raise ConfigError(f"{scheme}://... is no place; {_ALLOWED}")
    url = f"{scheme}://{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
    return ObjectPath(MirrorConfig(url=url, **_options(url, parts.query)))


def mirror_place(settings: MirrorConfig) -> Place:
    """Place of a landing's mirror."""
    parts = urlsplit(settings.url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else ObjectPath(settings)


def _options(url: str, query: str) -> dict[str, Any]:  # Any: of several types
    """Parse the settings after the question mark of a URL."""
    types = {field.name: field.metadata["setting"].type for field in _fields()}
    words: Mapping[str, object] = {"true": True, "false": False}
    found: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in _OPTIONS:
            raise ConfigError(
                f"{url}?...: there is no option {key!r}; allowed: {', '.join(_OPTIONS)}; credentials "
                "stand in the file that credentials-file names, or in the environment"
            )
        of = types[_OPTIONS[key]]
        try:
            found[_OPTIONS[key]] = of.read(words.get(text, text))
        except ValueError:
            raise ConfigError(
                f"{url}?...: {key} has the wrong form; allowed: {of.allowed}"
            ) from None
    return found


def _fields() -> tuple[dataclasses.Field[Any], ...]:  # Any: of several types
    return dataclasses.fields(MirrorConfig)


# --- reading --------------------------------------------------------------------------------


def names_in(place: Place) -> list[str]:
    """Names directly in a directory, sorted; none where there is none."""
    if isinstance(place, ObjectPath):
        return sorted(name for names in place.store.names(place.path) for name in names)
    return sorted(item.name for item in place.iterdir()) if place.is_dir() else []


def directories_in(place: Place) -> list[str]:
    """Names of the directories directly in a directory."""
    if isinstance(place, ObjectPath):
        return place.store.names(place.path)[0]
    return [name for name in names_in(place) if (place / name).is_dir()]


def files_below(place: Place) -> Iterator[File]:
    """All files below a directory, hidden ones too, by path."""
    if isinstance(place, ObjectPath):
        for facts in place.store.facts_below(place.path):
            yield File(facts.path.removeprefix(f"{place.path}/"), facts.bytes, facts.modified)
        return
    for path in sorted(place.rglob("*")) if place.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if path.is_file():
                yield File(str(path.relative_to(place)), status.st_size, status.st_mtime)


def read_each(places: Sequence[Place]) -> Iterator[bytes | None]:
    """Content of small files in order, None for each missing one; many at a time on a store."""
    if len(places) < 2 or not isinstance(places[0], ObjectPath):
        yield from map(_read, places)
        return
    with ThreadPoolExecutor(_AT_A_TIME, "read") as pool:
        yield from pool.map(_read, places)


def _read(place: Place) -> bytes | None:
    try:
        return place.read_bytes()
    except FileNotFoundError:
        return None


def _source(place: Place) -> Path | BinaryIO:
    """The argument that pyarrow opens."""
    return place.store.open(place.path) if isinstance(place, ObjectPath) else place


def open_file(place: Place) -> BinaryIO:
    """Open a file for random access.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return place.store.open(place.path) if isinstance(place, ObjectPath) else place.open("rb")


def parquet_file(place: Place) -> pq.ParquetFile:
    """Open a Parquet file.

    Raises:
        FileNotFoundError: there is none.
        OSError, pyarrow.ArrowException: it is damaged.
    """
    return pq.ParquetFile(_source(place))


def read_table(
    place: Place,
    columns: Sequence[str] | None = None,
    filters: list[tuple[str, str, Any]] | None = None,  # Any: as pyarrow takes it
) -> pa.Table:
    """Read a Parquet file; errors as of `parquet_file`."""
    wanted = None if columns is None else list(columns)
    return pq.read_table(_source(place), columns=wanted, filters=filters, partitioning=None)


# --- writing --------------------------------------------------------------------------------


def put_new(place: ObjectPath, content: bytes) -> bool:
    """Create an object that must not exist; return whether it then exists with this content.

    A response may get lost and the request be repeated, so an object with the same content counts as
    ours.
    """
    return place.store.put_new(place.path, content) or _read(place) == content
