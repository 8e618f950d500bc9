"""Use Hadoop's file system as an object store, over WebHDFS: HTTP, without Hadoop on this machine.

A file is written under a hidden name of its own, ``.unfinished/`` below the URL, and renamed when it is
whole. The name node refuses a rename onto an existing file. So one of many writers wins, and no reader ever
sees a part of a file. The unfinished file of a writer that died is removed a day later.

With several name nodes the active one answers.

Rejected: pyarrow's HadoopFileSystem (libhdfs, a JVM and Hadoop's class path in every process) and fsspec's
WebHDFS (no timeouts, one name node, CREATE overwrites). HttpFS is not supported: its RENAME knows no options.
"""

import contextlib
import getpass
import io
import logging
import os
import posixpath
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

from gaussdecode.errors import ConfigError
from gaussdecode.objects.credentials import read_credentials
from gaussdecode.objects.store import READ_BYTES, Facts, Store, plain_reason

try:
    import hdfs as hdfscli
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry
except ImportError:
    raise ConfigError(
        "hdfs:// and webhdfs:// need the package hdfs, which is not installed here. On each "
        "machine that reads or writes there: pip install 'gaussdecode[hdfs]'"
    ) from None

_UNFINISHED: Final = ".unfinished"
_KEPT_SECONDS: Final = 86400.0  # arbitrary, longer than any upload
_WEB_PORTS: Final = {"hdfs": 9870, "webhdfs": 9870, "swebhdfs": 9871}  # Hadoop's own defaults
_TRIES: Final = 3
_CONNECTIONS: Final = 32  # to one server, kept open; arbitrary, above what is asked at a time
_REFUSED: Final = frozenset(
    {"AccessControlException", "AuthorizationException", "SecurityException"}
)
_UNAUTHORIZED: Final = "Authentication failure"  # what the library says of status 401
_MISSING: Final = "FileNotFoundException"
_EXISTS: Final = "FileAlreadyExistsException"
_KINDS: Final = ("DIRECTORY", "FILE")
_Status = dict[str, Any]  # Any: JSON

for _name in ("hdfs", "urllib3.connectionpool"):  # they show URLs with tokens, and answers
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


class _Client(hdfscli.Client):  # type: ignore[misc]  # it ships no types
    """The library's, with paths as they are: it would take ``#LATEST`` in one for a command."""

    def resolve(self, hdfs_path: str) -> str:
        """An absolute path is what it is."""
        return posixpath.normpath(hdfs_path)

    def move(self, path: str, target: str, option: str) -> None:
        """Rename with an option: without one what exists is not told from what went wrong."""
        self._rename(path, destination=target, renameoptions=option)

    def statuses(self, directory: str) -> list[_Status]:
        """What is directly in a directory; none where there is none, or a file."""
        try:
            found = self._list_status(directory).json()["FileStatuses"]["FileStatus"]
        except hdfscli.HdfsError as error:
            if error.exception == _MISSING:
                return []
            raise
        return [of for of in found if of["pathSuffix"] not in {"", _UNFINISHED}]


class HdfsStore(Store[_Client]):
    """See `Store`."""

    _RAISED: ClassVar = (hdfscli.HdfsError, requests.RequestException, OSError, KeyError)

    def put_new(self, path: str, content: bytes | Path) -> bool:
        """Write an object that must not exist; whether it was this call that did."""
        if isinstance(content, Path) and self.size(path) is not None:
            return False  # before all of it is sent
        try:
            self._do("put", path, lambda client: self._put(client, path, content, "NONE"))
        except FileExistsError:
            return False
        return True

    def replace(self, path: str, content: bytes) -> None:
        """Write an object, whether it exists or not."""
        self._do("put", path, lambda client: self._put(client, path, content, "OVERWRITE"))

    def get(self, path: str) -> bytes | None:
        """Content of an object; None where there is none."""
        try:
            return self._do("get", path, lambda client: b"".join(self._pieces(client, path)))
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        """Size of an object; None where there is none."""
        try:
            status = self._do("head", path, lambda client: client.status(self._at(path)))
        except FileNotFoundError:
            return None
        return int(status["length"]) if status["type"] == "FILE" else None

    def part(self, path: str, start: int, length: int) -> bytes:
        """Bytes of an object from `start` on: `length` of them, at least 1, or as far as it goes."""
        return self._do(
            "get", path, lambda client: b"".join(self._pieces(client, path, start, length))
        )

    def names(self, directory: str) -> tuple[list[str], list[str]]:
        """Directories and objects directly below one, by name, each sorted."""
        found = self._do("list", directory, lambda client: client.statuses(self._at(directory)))
        directories, files = (
            sorted(of["pathSuffix"] for of in found if of["type"] == kind) for kind in _KINDS
        )
        return directories, files

    def facts_below(self, directory: str) -> list[Facts]:
        """All objects below a directory, by path."""
        return sorted(self._do("list", directory, lambda client: [*self._walk(client, directory)]))

    def remove(self, path: str) -> None:
        """Remove an object if it is there, and the directories that are empty then."""

        def delete(client: _Client) -> None:
            at = path
            is_gone = client.delete(self._at(path))
            with contextlib.suppress(hdfscli.HdfsError):  # until one has something in it
                while is_gone and (at := at.rpartition("/")[0]):
                    client.delete(self._at(at))

        self._do("delete", path, delete)

    def prove(self) -> None:
        """See that the store keeps what exists, and remove what writers that died left there."""
        super().prove()
        self._do("list", _UNFINISHED, self._sweep)

    # ---- requests --------------------------------------------------------------------

    def _at(self, path: str) -> str:
        return posixpath.join("/", unquote(urlsplit(self.url).path), path)

    def _put(self, client: _Client, path: str, content: bytes | Path, option: str) -> None:
        hidden, target = self._at(f"{_UNFINISHED}/{secrets.token_hex(16)}"), self._at(path)
        try:
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                client.write(hidden, file, overwrite=False)
            self._move(client, hidden, target, option)
        except self._RAISED as error:
            with contextlib.suppress(*self._RAISED):
                client.delete(hidden)
            if getattr(error, "exception", None) == _MISSING:  # which would be said of `content`
                raise self._error(
                    "put", path, "somebody else removed it", is_refused=False
                ) from None
            raise

    def _move(self, client: _Client, hidden: str, path: str, option: str) -> None:
        try:
            client.move(hidden, path, option)
        except hdfscli.HdfsError as error:
            if error.exception != _MISSING:
                raise
            client.makedirs(posixpath.dirname(path))
            client.move(hidden, path, option)

    def _pieces(
        self, client: _Client, path: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        with client.read(self._at(path), start, length, chunk_size=READ_BYTES) as pieces:
            yield from pieces

    def _walk(self, client: _Client, directory: str) -> Iterator[Facts]:
        for status in client.statuses(self._at(directory)):
            path = posixpath.join(directory, status["pathSuffix"])
            if status["type"] == "DIRECTORY":
                yield from self._walk(client, path)
            else:
                yield Facts(path, status["length"], status["modificationTime"] / 1000)

    def _sweep(self, client: _Client) -> None:
        for facts in self._walk(client, _UNFINISHED):
            if facts.modified < time.time() - _KEPT_SECONDS:
                client.delete(self._at(facts.path))

    def _make(self) -> _Client:
        settings = self._settings
        held = read_credentials(settings.credentials_file, self._section)
        token = held.get("hadoop_delegation_token")
        addresses = settings.endpoint or _address(settings.url)
        if token is not None and "http://" in addresses and not settings.allow_http:
            raise ConfigError(
                f"{self._section}credentials-file: a delegation token would go to {addresses} without "
                "TLS; use swebhdfs:// or an endpoint with https://, or set allow-http"
            )
        session = requests.Session()
        retry = Retry(  # not what writes: its answer may be all that was lost
            _TRIES, allowed_methods={"GET"}, status_forcelist={502, 503, 504},
            backoff_factor=0.2, raise_on_status=False,
        )  # fmt: skip
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=retry))
        user = {"user.name": held.get("hadoop_user_name") or _user()}
        session.params = user if token is None else {"delegation": token}
        timeout = (min(settings.timeout, 10.0), settings.timeout)
        return _Client(addresses.replace(",", ";"), session=session, timeout=timeout)

    def _translated(self, what: str, path: str, error: Exception) -> Exception:
        """As of `Store`; of what a name node says only the name of its exception is told."""
        name = getattr(error, "exception", None)
        if name == _MISSING or isinstance(error, FileNotFoundError):
            return FileNotFoundError(path)
        if name == _EXISTS:
            return FileExistsError(path)
        is_unknown = str(error).startswith(_UNAUTHORIZED)
        why = "401 Unauthorized" if is_unknown else name or plain_reason(error)
        return self._error(what, path, why, is_refused=is_unknown or name in _REFUSED)


def _address(url: str) -> str:
    """Where the name node of a URL speaks HTTP: an ``hdfs://`` has its port of another protocol."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = (parts.port if parts.scheme != "hdfs" else None) or _WEB_PORTS[parts.scheme]
    return f"{'https' if parts.scheme == 'swebhdfs' else 'http'}://{host}:{port}"


def _user() -> str:
    """Whom to be, as Hadoop's own tools take it.

    Raises:
        ConfigError: the machine does not tell.
    """
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):
        raise ConfigError(
            "HADOOP_USER_NAME is not set, and this process's user has no name"
        ) from None
