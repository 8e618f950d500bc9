"""Write and read capture files: the raw stream of a slot, recorded for a later landing.

    offset  bytes
    0       8      magic "GDCAPT01"
    8       4      length of the header, little-endian like all lengths here
    12      n      header: a JSON object, see `CaptureHeader`
    12+n    ...    frames: uint32 size (never 0), then a CopyData payload from its letter,
                   XLogData ('w') and keepalives ('k') as the server sent them; of a
                   GaussDB stream two kinds more, see `gaussdb.capture`
    end-20  4      0: no frame
    end-16  8      number of frames
    end-8   8      bytes of the frames with their sizes

The trailer is written last; a file without it was cut off, and is refused rather than
landed in part. Recording confirms nothing: the slot keeps all it had, and can be recorded
or landed again. A capture begins where the slot stood, so that it describes every relation.
"""

import dataclasses
import json
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Self

from gaussdecode.errors import ConfigError, DiskError, WireError
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn

MAGIC: Final = b"GDCAPT01"
FORMAT: Final = 1
_LENGTH: Final = struct.Struct("<I")
_TRAILER: Final = struct.Struct("<IQQ")
_MAX_HEADER_BYTES: Final = 1 << 24
_WAIT_SECONDS: Final = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """The form of a GaussDB stream.

    Attributes:
        letter: ``b``, ``t`` or ``j``; ``s`` or ``q`` for serial text.
        is_batched: the server gathered messages.
        hides_truncate: TRUNCATE and DDL did not show.
    """

    letter: str
    is_batched: bool
    hides_truncate: bool


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureHeader:
    """The source of a recording.

    Attributes:
        identity: identity of the stream.
        server_version: such as 150018.
        timeline: timeline of the server.
        encoding: encoding of the database.
        start_lsn: start of the stream.
        options: options of the plug-in.
        created_time: seconds since 1970.
        style: style of a GaussDB stream; None for pgoutput.
        stream_encoding: encoding of names and values in the frames of pgoutput.
    """

    identity: SourceIdentity
    server_version: int
    timeline: int
    encoding: str
    start_lsn: Lsn
    options: dict[str, str]
    created_time: float
    style: Style | None = None
    stream_encoding: str = "UTF8"

    def to_bytes(self) -> bytes:
        """Spell it as the file does, from the magic to the first frame."""
        record = {"format": FORMAT, **dataclasses.asdict(self), "start_lsn": str(self.start_lsn)}
        if self.style is None:
            del record["style"]  # as it was before there were others
        if self.stream_encoding == "UTF8":
            del record["stream_encoding"]
        text = json.dumps(record).encode()
        return MAGIC + _LENGTH.pack(len(text)) + text

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:  # Any: JSON
        """Rebuild it from the JSON object."""
        fields = {key: value for key, value in record.items() if key != "format"}
        fields["identity"] = SourceIdentity(**record["identity"])
        fields["start_lsn"] = Lsn.parse(record["start_lsn"])
        if "style" in record:
            fields["style"] = Style(**record["style"])
        return cls(**fields)


class Capture:
    """A capture file, mapped.

    Attributes:
        header: header of the capture.
        frames: all frames with their sizes.
        frame_count: how many.
    """

    def __init__(self, path: Path) -> None:
        """Map a file.

        Raises:
            ConfigError: it cannot be read, or is no capture.
            WireError: it is cut off or damaged.
        """
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read as a capture ({error})") from error
        if self._map is None or self._map[: len(MAGIC)] != MAGIC:
            raise ConfigError(f"{path}: is not a capture file")
        view = memoryview(self._map)
        first = _first_frame(path, view)
        self.header = _header(path, view[len(MAGIC) + _LENGTH.size : first])
        end = size - _TRAILER.size
        if end < first:
            raise WireError(f"{path}: the capture is cut off in its header", size)
        zero, self.frame_count, frame_bytes = _TRAILER.unpack_from(view, end)
        if zero != 0 or frame_bytes != end - first:
            raise WireError(
                f"{path}: the capture has no valid trailer: recording was cut off, or the file "
                "was not copied whole; record or copy it again",
                size,
            )
        self.frames = view[first:end]

    def __iter__(self) -> Iterator[bytes]:
        """Give the frames one by one; a damaged size raises WireError."""
        at = 0
        while at < len(self.frames):
            (size,) = _LENGTH.unpack_from(self.frames, at)
            at += _LENGTH.size
            if not 0 < size <= len(self.frames) - at:
                raise WireError("a frame reaches past the end of the capture", at)
            yield bytes(self.frames[at : at + size])
            at += size

    def close(self) -> None:
        """Unmap the file; `frames` must not be used afterwards."""
        self.frames.release()
        if self._map is not None:
            self._map.close()


def _first_frame(path: Path, view: memoryview) -> int:
    """Offset of the first frame."""
    fixed = len(MAGIC) + _LENGTH.size
    if len(view) >= fixed:
        (length,) = _LENGTH.unpack_from(view, len(MAGIC))
        if length <= _MAX_HEADER_BYTES and fixed + length <= len(view):
            return fixed + int(length)
    raise WireError(f"{path}: the capture is cut off in its header", len(view))


def _header(path: Path, text: memoryview) -> CaptureHeader:
    try:
        record = json.loads(bytes(text))
        if record["format"] != FORMAT:
            raise ConfigError(f"{path}: capture format {record['format']}, {FORMAT} is known")
        if "formats" in record:
            raise ConfigError(
                f"{path}: its values are in binary, which is not read any more; record it again with "
                "gaussdecode capture"
            )
        return CaptureHeader.from_record(record)
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"{path}: the capture's header is damaged", len(MAGIC)) from error


def _privately(path: str, flags: int) -> int:
    """Make a file that only its owner reads: it will hold rows."""
    return os.open(path, flags, 0o600)


class CaptureWriter:
    """Writes a new capture file; one that was not closed in order has no trailer.

    Args:
        path: must not exist.
        header: header of the capture.

    Raises:
        ConfigError: the file exists or cannot be made.
    """

    def __init__(self, path: Path, header: CaptureHeader) -> None:
        try:
            self._file: IO[bytes] = open(path, "xb", buffering=1 << 20, opener=_privately)  # noqa: SIM115 - `close`
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        self.path = path
        self.frame_count = 0
        self.frame_bytes = 0
        self._write(header.to_bytes())

    def add(self, frame: bytes) -> None:
        """Append one CopyData payload.

        Raises:
            DiskError: the file system failed or is full.
        """
        self._write(_LENGTH.pack(len(frame)))
        self._write(frame)
        self.frame_count += 1
        self.frame_bytes += _LENGTH.size + len(frame)

    def finish(self) -> None:
        """Write the trailer and make the file durable.

        Raises:
            DiskError: the file system failed or is full.
        """
        self._write(_TRAILER.pack(0, self.frame_count, self.frame_bytes))
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise DiskError(f"{self.path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        """Begin; `finish` ends it in order."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """After an error, close the file as it is."""
        if error is not None:
            self._abandon()

    def _abandon(self) -> None:
        try:
            self._file.close()
        except OSError:
            return

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise DiskError(f"{self.path}: {error.strerror}") from error


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop recording; None for no limit.

    Attributes:
        frame_bytes: bytes of the frames.
        seconds: seconds of recording.
        lsn: everything that was committed up to here is recorded.
    """

    frame_bytes: int | None = None
    seconds: float | None = None
    lsn: Lsn | None = None


def record_frames(
    frames: Callable[[float], Iterable[bytes]],
    add: Callable[[bytes], int],
    writer: CaptureWriter,
    limits: Limits,
    should_stop: Callable[[], bool],
) -> None:
    """Write frames down until a limit is reached.

    Args:
        frames: gives those that are here, after waiting so many seconds at most.
        add: writes one; gives the position up to which every commit has been written.
        writer: writer that they go to.
        limits: when to stop; whichever comes first.
        should_stop: asked several times a second.
    """
    deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
    while not should_stop():
        if deadline is not None and time.monotonic() >= deadline:
            return
        for frame in frames(_WAIT_SECONDS):
            reached = add(frame)
            if limits.frame_bytes is not None and writer.frame_bytes >= limits.frame_bytes:
                return
            if limits.lsn is not None and reached >= limits.lsn:
                return
