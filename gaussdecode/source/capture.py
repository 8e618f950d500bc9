"""Capture files: the raw stream of a slot, recorded, to be landed or looked at later.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Self

from gaussdecode.errors import ConfigError, DiskError, WireError
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, parse_server
from gaussdecode.source.postgresql import slot as slots
from gaussdecode.source.postgresql.connection import SourceAddress, connect
from gaussdecode.source.postgresql.stream import Stream
from gaussdecode.source.start import check_start

MAGIC: Final = b"GDCAPT01"
FORMAT: Final = 1
_LENGTH: Final = struct.Struct("<I")
_TRAILER: Final = struct.Struct("<IQQ")
_MAX_HEADER_BYTES: Final = 1 << 20
_WAIT_SECONDS: Final = 0.2
_COMMIT_BYTES: Final = 26
_BODY: Final = 25  # of XLogData: where the payload begins


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
    """What was recorded.

    Attributes:
        identity: of the stream.
        server_version: such as 150018.
        timeline: of the server.
        encoding: of the database.
        start_lsn: where the stream began.
        options: of the plug-in.
        created_time: seconds since 1970.
        style: of a GaussDB stream; None for pgoutput.
        stream_encoding: of names and values in the frames of pgoutput.
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
        header: what it holds.
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
        """Unmap the file; nothing may look at `frames` any more."""
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
        return CaptureHeader.from_record(record)
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"{path}: the capture's header is damaged", len(MAGIC)) from error


class CaptureWriter:
    """Writes a new capture file; one that was not closed in order has no trailer.

    Args:
        path: must not exist.
        header: what will be recorded.

    Raises:
        ConfigError: the file exists or cannot be made.
    """

    def __init__(self, path: Path, header: CaptureHeader) -> None:
        try:
            self._file: IO[bytes] = path.open("xb", buffering=1 << 20)
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

    def abandon(self) -> None:
        """Close the file as it is."""
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
        frame_bytes: of the frames.
        seconds: of recording.
        lsn: everything that was committed up to here is recorded.
    """

    frame_bytes: int | None = None
    seconds: float | None = None
    lsn: Lsn | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What to record.

    Attributes:
        address: of the server.
        slot: name.
        publications: names.
        messages: logical messages too.
        only_local: leave out what has an origin, from PostgreSQL 16 on.
    """

    address: SourceAddress
    slot: str
    publications: tuple[str, ...]
    messages: bool = True
    only_local: bool = True


def record(
    recording: Recording, path: Path, limits: Limits, should_stop: Callable[[], bool]
) -> CaptureWriter:
    """Record a slot from where it stands; confirms nothing.

    Args:
        recording: what.
        path: of the new file.
        limits: when to stop; whichever comes first.
        should_stop: asked several times a second.

    Returns:
        The finished writer, for its counts.

    Raises:
        SourceError: the server failed or refused.
        ConfigError: the file cannot be made.
        DiskError: the file cannot be written.
    """
    with connect(recording.address) as connection:
        server = slots.read_server(connection, recording.slot, recording.publications)
        start_lsn = check_start(None, server, recording.slot)
        options = slots.stream_options(
            server.version,
            recording.publications,
            messages=recording.messages,
            only_local=recording.only_local,
        )
        encoding = connection.encoding.name
        header = _header_of(recording.slot, server, start_lsn, options, encoding)
        slots.start_stream(connection, recording.slot, start_lsn, options)
        writer = CaptureWriter(path, header)
        try:
            stream = Stream(connection, start_lsn, server.sender_timeout_ms)
            _record_frames(stream, writer, limits, should_stop)
            writer.finish()
            stream.close()
        except BaseException:
            writer.abandon()
            raise
    return writer


def _header_of(
    slot: str,
    server: slots.ServerState,
    start_lsn: Lsn,
    options: dict[str, str],
    stream_encoding: str,
) -> CaptureHeader:
    return CaptureHeader(
        identity=SourceIdentity(
            "postgresql", server.system_identifier, server.database, slot, slots.PLUGIN
        ),
        server_version=server.version,
        timeline=server.timeline,
        encoding=server.encoding,
        start_lsn=start_lsn,
        options=options,
        created_time=time.time(),
        stream_encoding=stream_encoding,
    )


def _record_frames(
    stream: Stream, writer: CaptureWriter, limits: Limits, should_stop: Callable[[], bool]
) -> None:
    deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
    while not should_stop():
        if deadline is not None and time.monotonic() >= deadline:
            return
        for frame in stream.frames(_WAIT_SECONDS):
            writer.add(frame)
            if limits.frame_bytes is not None and writer.frame_bytes >= limits.frame_bytes:
                return
            if limits.lsn is not None and reached(frame) >= limits.lsn:
                return


def reached(frame: bytes) -> int:
    """Up to where every commit has been sent, as far as one frame tells; else 0."""
    message = parse_server(frame)
    if isinstance(message, Keepalive):
        return message.wal_end
    if message.payload[:1] == b"C" and len(message.payload) >= _COMMIT_BYTES:
        return int.from_bytes(message.payload[10:18], "big")
    return 0
