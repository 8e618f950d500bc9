"""The file object that pyarrow writes a Parquet file to.

Given a path under a hidden name. The bytes on disk are those that pyarrow wrote, size and checksum are known
without reading them again, and a full disk in the middle only delays. Owned by one thread at a time.
"""

import contextlib
import hashlib
import io
from collections.abc import Iterator
from typing import Final

from gaussdecode.land.disk import Disk

_BUFFER_BYTES: Final = 128 * 1024
"""Arbitrary: pyarrow writes page by page, and a page of a narrow column is tiny."""


class Sink(io.RawIOBase):
    """An append-only file that counts and hashes.

    Attributes:
        path: path of the file, relative to the root.
        size: bytes taken so far.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__()
        self.path = path
        self.size = 0
        self._disk = disk
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        self._diverted: bytearray | None = None
        self._handle = disk.create(path)

    def writable(self) -> bool:
        """Say yes, for pyarrow."""
        return True

    def tell(self) -> int:
        """Offset of the next byte."""
        return self.size

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]  # pyarrow gives only these
        """Append all of `data`; of a file that was given up, nothing."""
        size = len(data)
        if self._handle < 0:  # pyarrow's buffer, which empties itself when it is collected
            return size
        if self._diverted is not None:
            self._diverted += data
            return size
        self.size += size
        self._digest.update(data)
        if len(self._buffer) + size > _BUFFER_BYTES:
            self.drain()
        if size > _BUFFER_BYTES:
            self._disk.write(self._handle, self.path, memoryview(data))
        else:
            self._buffer += data
        return size

    @contextlib.contextmanager
    def diverted(self) -> Iterator[bytearray]:
        """Keep what is written meanwhile out of the file; gives it."""
        self._diverted = bytearray()
        try:
            yield self._diverted
        finally:
            self._diverted = None

    def finish(self) -> str:
        """Make the content durable and give its checksum."""
        self.drain()
        self._disk.space.once(f"fsync {self.path}", lambda: self._disk.files.sync(self._handle))
        self.abandon()
        return f"sha256:{self._digest.hexdigest()}"

    def abandon(self) -> None:
        """Close without a promise; pyarrow's own close does nothing to the file."""
        if self._handle >= 0:
            self._disk.files.close_handle(self._handle)
            self._handle = -1
        super().close()

    def close(self) -> None:
        """Leave the file open for `finish`; io.IOBase calls this when it is collected."""

    def drain(self) -> None:
        """Have all that was taken be in the file; not durable."""
        if self._buffer:
            with memoryview(self._buffer) as view:
                self._disk.write(self._handle, self.path, view)
            self._buffer = bytearray()
