"""Write and read files of prepared transactions.

Once a position beyond a PREPARE is confirmed, the server never sends its rows again. It sends only the end of
the transaction, which may come days later and to another process. So the rows are written here first: one
file for each transaction that is still prepared when an entry's position passes it. An entry of kind
``prepared`` before that entry names the file. The entry with the end of the transaction, commit or rollback,
names the file as ended; then the file goes, here and in the mirror.

A file is the batches of the transaction as the decoders made them, then a sealed JSON object (the
transaction, the descriptions of its tables, size and CRC-32 of each batch), then the size of this object in 8
bytes, little-endian. The batches have the layout of the program that wrote them, which the object names: no
reader of the landing can use them.
"""

import base64
import dataclasses
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final

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
Facts = Mapping[str, Any]  # Any: of `collect._assembler.Assembler.dump`


@dataclasses.dataclass(slots=True)
class KeptTransaction:
    """A prepared transaction in a file; see `Assembler.keep`.

    Attributes:
        file: file as the log names it.
        xid: XID of the transaction.
        gid: its global identifier.
        lsn: end of its PREPARE.
        time_us: time of its PREPARE, microseconds since 1970.
        first_lsn: LSN of its first record; 0 in files of early versions.
        origin: replication origin of the transaction; None for none.
        aborted: its subtransactions that were rolled back.
        tally: framed counts of the transaction, by kind.
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
    first_lsn: int
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
            raise _damaged(self.file.path, f"the batch at {offset} was altered")


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
        layout: layout of batches, of this program.
        older: layouts that it reads as well.
    """

    def __init__(self, log: CommitLog, layout: str, *older: str) -> None:
        self._log = log
        self._layout = layout
        self._readable = (layout, *older)

    def write(self, facts: Facts, batches: Iterable[memoryview]) -> KeptTransaction:
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
            trailer = sealed(canonical_json(_trailer(facts, places, checks, self._layout)))
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
                raise _damaged(path, "its end was altered")
            opened.seek(-_SIZE.size - size, os.SEEK_END)
            raw = opened.read(size)
        try:
            record = read_sealed(raw)
        except ValueError as error:
            raise _damaged(path, f"its end was altered ({error})") from error
        if record["version"] != _VERSION or record["layout"] not in self._readable:
            raise LandingError(
                f"{path}: prepared transaction {file.gid!r} was written by another version of gaussdecode, "
                f"or on another kind of machine ({record['layout']}, here {self._layout}). Start the one that "
                "wrote it, COMMIT or ROLLBACK PREPARED it, and upgrade when `gaussdecode status` shows none"
            )
        facts = _facts(record)
        return _kept(file, facts, record["places"], dict(map(tuple, record["checks"])), disk)


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
        first_lsn=facts.get("first_lsn", 0),
        origin=facts["origin"],
        aborted=tuple(facts["aborted"]),
        tally=tuple(facts["tally"]),
        relations=facts["relations"],
        places=tuple((offset, size) for offset, size in places),
        checks=checks,
        disk=disk,
    )
