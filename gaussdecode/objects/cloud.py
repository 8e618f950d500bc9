"""Access to S3, GCS, Azure and compatible stores, and to directories, through obstore."""

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import ObjectStore, from_url

from gaussdecode.errors import ConfigError
from gaussdecode.objects.credentials import read_credentials
from gaussdecode.objects.store import READ_BYTES, Facts, Store, plain_reason
from gaussdecode.settings.landing_sections import MIRROR_PUT_BYTES

_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z ]{0,40})?)")
_REFUSED: Final = frozenset(
    {"NoSuchBucket", "NoSuchContainer", "ContainerNotFound", "AccessDenied", "InvalidAccessKeyId"}
)
_NOT_ALLOWED: Final = frozenset({"401", "403"})


class CloudStore(Store[ObjectStore]):
    """See `Store`."""

    _RAISED: ClassVar = (exceptions.BaseError, OSError, ValueError)

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

    # ---- requests --------------------------------------------------------------------

    def _pieces(self, client: ObjectStore, path: str) -> Iterator[bytes]:
        return map(bytes, obstore.get(client, path).stream(min_chunk_size=READ_BYTES))

    def _translated(self, what: str, path: str, error: Exception) -> Exception:
        status, code = _STATUS.search(str(error)), _code(error)
        is_refused = code in _REFUSED or (status is not None and status[1][:3] in _NOT_ALLOWED)
        if isinstance(error, exceptions.AlreadyExistsError):
            return FileExistsError(path)
        if isinstance(error, exceptions.NotFoundError | FileNotFoundError) and not is_refused:
            return FileNotFoundError(path)
        said = [match for match in (status and status[1], code) if match]
        why = ": ".join(said) or plain_reason(error)
        return self._error(what, path, why, is_refused=is_refused)

    def _make(self) -> ObjectStore:
        settings = self._settings
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
            options["base_url" if scheme == "gs" else "endpoint"] = settings.endpoint
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
                f"{self._section}url: {settings.url} cannot be used ({type(error).__name__}); allowed: "
                "s3://, gs://, az://, hdfs:// or file://, with the other settings that the store needs"
            ) from None


def _code(error: BaseException) -> str | None:
    found = _CODE.search(str(error))
    return None if found is None else found[1]
