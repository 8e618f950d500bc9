"""Files of prepared transactions.

Once the server is told a position beyond a PREPARE it never sends the rows again, only their end,
which may come days later and to another process. So they are written here first: one file for
each transaction that an entry's position would pass while it is prepared, named by an entry of kind
``prepared`` before that entry. The entry that holds the end of the transaction, whatever
it was, names the file as ended; then it goes, here and in the mirror.

A file is the batches of the transaction as the decoders made them, then its rows once more for
readers, then a sealed JSON object (what is known of the transaction, the descriptions of its tables,
size and CRC-32 of each batch, where the rows for readers are), then its size in 8 bytes,
little-endian. The batches are of the very layout of the program that wrote them, which the object
names: they are the program's own, and no reader's. The rows are Arrow IPC streams, of one table and
one description each, and only readers use them: what lands is made of the batches.
"""

import base64
import dataclasses
import io
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.disk import Disk
from gaussdecode.land.failpoints import Step
from gaussdecode.land.names import PREPARED, parent, prepared_name
from gaussdecode.land.sink import Sink
from gaussdecode.model.landing import PreparedFile
from gaussdecode.model.seal import canonical_json, read_sealed, sealed

_VERSION: Final = 1
_SIZE: Final = struct.Struct("<Q")
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")
Facts = Mapping[str, Any]  # Any: of `collect._assembler.Assembler.dump`


class ShownRows(Protocol):
    """What is needed of ``collect.shown.Shown``."""

    @property
    def table(self) -> str:
        """Directory."""

    @property
    def schema(self) -> Mapping[str, Any]:  # Any: JSON
        """As of a schema file."""

    @property
    def rows(self) -> pa.Table:
        """In order."""


Show = Callable[["KeptTransaction", Callable[[ShownRows], None]], str | None]
"""Gives the rows of what was kept to a function; why not, where that cannot be."""


def show_nothing(kept: "KeptTransaction", put: Callable[[ShownRows], None]) -> str | None:
    """Have no rows for readers."""
    del kept, put
    return "nobody made them"


@dataclasses.dataclass(slots=True)
class KeptTransaction:
    """A prepared transaction in a file; see `Assembler.keep`.

    Attributes:
        file: as the log names it.
        xid: of the transaction,
        gid: and its global identifier.
        lsn: end of its PREPARE,
        time_us: and its time, microseconds since 1970.
        origin: where it was made first; None for here.
        aborted: its subtransactions that were rolled back.
        tally: what was framed of it, by kind.
        relations: descriptions of its tables by the versions in the batches; None where nothing
            lands.
        places: offset and size of each batch.
        checks: CRC-32 of each, by offset.
    """

    file: PreparedFile
    xid: int
    gid: bytes
    lsn: int
    time_us: int
    origin: bytes | None
    aborted: tuple[int, ...]
    tally: tuple[int, ...]
    relations: dict[int, bytes | None]
    places: tuple[tuple[int, int], ...]
    checks: dict[int, int]
    disk: Disk

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with a batch.

        Raises:
            LandingError: it is not what was written.
        """
        with self.disk.files.open(self.file.path) as file:
            file.seek(offset)
            _fill(file, target, self.file.path)
        if zlib.crc32(target) != self.checks[offset]:
            raise _damaged(self.file.path, f"the batch at {offset} is not what was written")


def _fill(file: BinaryIO, target: memoryview, path: str) -> None:
    left = target
    while left.nbytes:
        data = file.read(min(left.nbytes, 1 << 20))
        if not data:
            raise _damaged(path, "it is cut short")
        left[: len(data)] = data
        left = left[len(data) :]


def _damaged(path: str, why: str) -> LandingError:
    return LandingError(
        f"{path}: {why}. It holds a prepared transaction, which the server does not send again: "
        "restore it from a copy of this landing, or from its mirror"
    )


class PreparedFiles:
    """Writes and reads them.

    Args:
        log: open.
        layout: of batches, of this program.
        older: layouts that it reads as well.
    """

    def __init__(self, log: CommitLog, layout: str, *older: str) -> None:
        self._log = log
        self._layout = layout
        self._readable = (layout, *older)

    def write(
        self, facts: Facts, batches: Iterable[memoryview], show: Show = show_nothing
    ) -> KeptTransaction:
        """Write a transaction; durable, under its name, when this returns.

        No entry names it yet. A crash leaves it to the next start, which removes it.

        Raises:
            DiskError: the file system failed.
        """
        disk = self._log.disk
        disk.space.reserve(f"write transaction {facts['xid']}, which is prepared")
        sink = Sink(disk, disk.unfinished(PREPARED, self._log.next_n, "prepared"))
        places, checks = [], {}
        try:
            for batch in batches:
                checks[sink.size] = zlib.crc32(batch)
                places.append((sink.size, batch.nbytes))
                sink.write(batch)
            sink.drain()
            shown = _Parts(sink)
            why = show(
                _kept(_named(sink.path, sink, "", facts), facts, places, checks, disk), shown.put
            )
            record = _trailer(facts, places, checks, self._layout)
            record |= {"shown": [] if why else shown.record(), "unshown": why}
            trailer = sealed(canonical_json(record))
            sink.write(trailer + _SIZE.pack(len(trailer)))
            checksum = sink.finish()
        except BaseException:
            sink.abandon()
            raise
        name = prepared_name(facts["lsn"], facts["xid"], secrets.token_hex(6))
        path = f"{PREPARED}/{name}"
        disk.rename(sink.path, path)
        disk.sync_directories(parent(path))
        disk.files.reach(Step.PREPARED_WRITTEN)
        return _kept(_named(path, sink, checksum, facts), facts, places, checks, disk)

    def read(self, file: PreparedFile) -> KeptTransaction:
        """Read what a file says of its transaction; not yet its rows.

        Raises:
            LandingError: it is missing, damaged, or of another version of this program.
        """
        disk, path = self._log.disk, file.path
        if disk.size(path) != file.bytes:
            raise _damaged(path, "it is missing or has another size than was written")
        with disk.files.open(path) as opened:
            opened.seek(-_SIZE.size, os.SEEK_END)
            (size,) = _SIZE.unpack(opened.read(_SIZE.size))
            if size > file.bytes - _SIZE.size:
                raise _damaged(path, "its end is not what was written")
            opened.seek(-_SIZE.size - size, os.SEEK_END)
            raw = opened.read(size)
        try:
            record = read_sealed(raw)
        except ValueError as error:
            raise _damaged(path, f"its end is not what was written ({error})") from error
        if record["version"] != _VERSION or record["layout"] not in self._readable:
            raise LandingError(
                f"{path}: prepared transaction {file.gid!r} was written by another version of gaussdecode, "
                f"or on another kind of machine ({record['layout']}, here {self._layout}). Start the one that "
                "wrote it, COMMIT or ROLLBACK PREPARED it, and upgrade when `gaussdecode status` shows none"
            )
        facts = _facts(record)
        return _kept(file, facts, record["places"], dict(map(tuple, record["checks"])), disk)


class _Summed(io.RawIOBase):
    """A part of a file that pyarrow writes a stream to; knows the CRC-32 of what was written."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self.check = 0

    def writable(self) -> bool:
        """Say yes, for pyarrow."""
        return True

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]  # pyarrow gives only these
        """Append all of `data`."""
        self.check = zlib.crc32(data, self.check)
        return self._sink.write(data)


class _Parts:
    """Rows for readers, in the order in which they are given."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._found: dict[bytes, dict[str, Any]] = {}  # Any: JSON

    def put(self, shown: ShownRows) -> None:
        """Write rows of one table."""
        start, out = self._sink.size, _Summed(self._sink)
        with pa.ipc.new_stream(out, shown.rows.schema, options=_OPTIONS) as stream:
            stream.write_table(shown.rows)
        facts = {"table": shown.table, "schema": shown.schema}
        of = self._found.setdefault(canonical_json(facts), {**facts, "parts": []})
        of["parts"].append([start, self._sink.size - start, shown.rows.num_rows, out.check])

    def record(self) -> list[dict[str, Any]]:  # Any: JSON
        """Where they are."""
        return list(self._found.values())


def _named(path: str, sink: Sink, checksum: str, facts: Facts) -> PreparedFile:
    return PreparedFile(
        path,
        sink.size,
        checksum,
        facts["xid"],
        facts["gid"].decode("utf-8", "backslashreplace"),
        facts["lsn"],
        facts["time_us"],
        sum(facts["tally"]),
    )


def _trailer(
    facts: Facts, places: list[tuple[int, int]], checks: dict[int, int], layout: str
) -> dict[str, Any]:  # Any: JSON
    relations = {
        str(version): None if of is None else of.decode()
        for version, of in facts["relations"].items()
    }
    origin = facts["origin"]
    return {
        **facts,
        "gid": base64.b64encode(facts["gid"]).decode(),
        "origin": None if origin is None else base64.b64encode(origin).decode(),
        "relations": relations,
        "places": places,
        "checks": sorted(checks.items()),
        "version": _VERSION,
        "layout": layout,
    }


def _facts(record: dict[str, Any]) -> Facts:  # Any: JSON
    origin = record["origin"]
    relations = record["relations"].items()
    return {
        **record,
        "gid": base64.b64decode(record["gid"]),
        "origin": None if origin is None else base64.b64decode(origin),
        "relations": {int(v): None if of is None else of.encode() for v, of in relations},
    }


def _kept(
    file: PreparedFile,
    facts: Facts,
    places: Iterable[Iterable[int]],
    checks: dict[int, int],
    disk: Disk,
) -> KeptTransaction:
    return KeptTransaction(
        file=file,
        xid=facts["xid"],
        gid=facts["gid"],
        lsn=facts["lsn"],
        time_us=facts["time_us"],
        origin=facts["origin"],
        aborted=tuple(facts["aborted"]),
        tally=tuple(facts["tally"]),
        relations=facts["relations"],
        places=tuple((offset, size) for offset, size in places),
        checks=checks,
        disk=disk,
    )
