"""Write and read deletion vectors and added files: rows of immutable files that are no longer current.

The current state has *base files*, of one bucket each, and *added files*, whose rows are of many
buckets and sorted by them. Either may have a *deletion vector*: the positions of its rows that are no
longer current, in Delta Lake's format (a roaring bitmap; those of many files share one file, each at
its offset). The footer of an added file holds the spans of its buckets.

Rejected: added rows of which the newest of a key wins (every reader would sort, and a table without a
key has none) and equality deletes (cheap to write, paid for by every reader).
"""

import array
import binascii
import functools
import json
import secrets
import struct
import uuid
from base64 import b85decode, b85encode
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.place import Place, open_file, parquet_file, read_table
from gaussdecode.spark.target.durable import write_file
from gaussdecode.spark.target.state_file import StateFile, write_state

Ints = npt.NDArray[np.int64]
Span = tuple[int, int]
_SPANS: Final = b"gaussdecode.buckets"
_ROW_GROUP: Final = 16_384
"""Rows of an added file that are read together; a bucket has few of them."""
_VERSION: Final = b"\x01"
_MAGIC: Final = 1681511377
_HEAD: Final = struct.Struct("<IQI")
"""Magic number, how many bitmaps follow, and the upper half of the positions in the first one."""
_PLAIN = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_ZEROMQ = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


class Vector(NamedTuple):
    """The location of a deletion vector.

    Attributes:
        prefix: directory of its file, relative to the table.
        id: part of its file's name.
        offset: offset of its length in the file.
        size: size of the bitmap.
    """

    prefix: str
    id: uuid.UUID
    offset: int
    size: int

    @classmethod
    def of(cls, text: str) -> "Vector":
        """Parse the text that `str` gives."""
        prefix, name, offset, size = text.split(":")
        return cls(prefix, uuid.UUID(name), int(offset), int(size))

    def __str__(self) -> str:
        return f"{self.prefix}:{self.id}:{self.offset}:{self.size}"

    @property
    def path(self) -> str:
        """Path of its file, relative to the table."""
        name = f"deletion_vector_{self.id}.bin"
        return f"{self.prefix}/{name}" if self.prefix else name

    @classmethod
    def from_action(cls, of: Mapping[str, Any]) -> "Vector":  # Any: JSON
        """Read an action of the log.

        Raises:
            LandingError: this program did not write the vector.
        """
        if of["storageType"] != "u":
            raise LandingError("the log has a deletion vector that this program did not write")
        text = of["pathOrInlineDv"]
        name = b85decode(text[-20:].encode().translate(bytes.maketrans(_ZEROMQ, _PLAIN)))
        return cls(text[:-20], uuid.UUID(bytes=name), int(of["offset"]), int(of["sizeInBytes"]))

    def action(self, cardinality: int) -> dict[str, Any]:  # Any: JSON
        """Make the log's action."""
        name = b85encode(self.id.bytes).translate(bytes.maketrans(_PLAIN, _ZEROMQ)).decode()
        return {
            "storageType": "u",
            "pathOrInlineDv": self.prefix + name,
            "offset": self.offset,
            "sizeInBytes": self.size,
            "cardinality": cardinality,
        }


def ended_rows(root: Place, file: StateFile) -> Ints:
    """Positions in a file's deletion vector, sorted.

    Raises:
        LandingError: its file is missing or damaged.
    """
    if not file.deletes:
        return np.empty(0, dtype=np.int64)
    path = root / file.deletes_path
    try:
        found = read_vector(path, Vector.of(file.deletes))
    except (OSError, ValueError) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error
    if len(found) != file.deleted:
        raise LandingError(
            f"{path} has {len(found)} rows of {file.path}, not {file.deleted}; restore the target"
        )
    return found


def read_vector(path: Place, of: Vector) -> Ints:
    """Read the positions of a deletion vector, sorted.

    Raises:
        OSError: its file cannot be read.
        ValueError: the vector is damaged.
    """
    with open_file(path) as file:
        file.seek(of.offset)
        content = file.read(of.size + 8)
    size, data, sums = content[:4], content[4:-4], content[-4:]
    if len(data) != of.size or int.from_bytes(size) != of.size:
        raise ValueError("its length is another one")
    if binascii.crc32(data) != int.from_bytes(sums):
        raise ValueError("its checksum is another one")
    magic, bitmaps, upper = _HEAD.unpack_from(data)
    if (magic, bitmaps, upper) != (_MAGIC, 1, 0):
        raise ValueError("it is no vector of one bitmap")
    held = BitMap.deserialize(data[_HEAD.size :])
    return np.frombuffer(held.to_array(), dtype=np.uint32).astype(np.int64)


def write_vectors(
    root: Place, prefix: str, vectors: Mapping[str, Ints]
) -> tuple[dict[str, Vector], int]:
    """Write the vectors of files into one file; return each location by path, and the file's size."""
    folder, name = PurePosixPath(prefix).parts
    number, content, found = uuid.UUID(bytes=secrets.token_bytes(16)), bytearray(_VERSION), {}
    for path in sorted(vectors):
        rows = array.array("I", vectors[path].astype(np.uint32).tobytes())
        data = _HEAD.pack(_MAGIC, 1, 0) + BitMap(rows).serialize()
        found[path] = Vector(name, number, len(content), len(data))
        content += len(data).to_bytes(4) + data + binascii.crc32(data).to_bytes(4)
    file = next(iter(found.values())).path

    def write(sink: BinaryIO) -> None:
        sink.write(content)

    _, size = write_file(write, root, f"{folder}/{file}")
    return found, size


def is_current(span: Span, ended: Ints) -> npt.NDArray[np.bool_]:
    """Which positions of a span are not in a deletion vector."""
    start, stop = span
    result = np.ones(stop - start, dtype=np.bool_)
    low, high = np.searchsorted(ended, [start, stop])
    result[ended[low:high] - start] = False
    return result


def current_rows(root: Place, file: StateFile) -> pa.Table:
    """Read the current rows of a file.

    Raises:
        LandingError: the file is missing or damaged.
    """
    path = root / file.path
    try:
        rows = read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error
    if not file.deletes:
        return rows
    return rows.filter(pa.array(is_current((0, rows.num_rows), ended_rows(root, file))))


def write_added(
    root: Place, name: str, schema_id: str, parts: Mapping[int, pa.Table], partition: str = ""
) -> StateFile:
    """Write rows, sorted by bucket, into one added file."""
    buckets = sorted(parts)
    edges = np.cumsum([0, *(parts[bucket].num_rows for bucket in buckets)]).tolist()
    spans = [[b, edges[i], edges[i + 1]] for i, b in enumerate(buckets)]
    rows = pa.concat_tables([parts[bucket] for bucket in buckets])
    rows = rows.replace_schema_metadata({_SPANS: json.dumps(spans, separators=(",", ":"))})
    return write_state(rows, root, name, schema_id, -1, partition, group_rows=_ROW_GROUP)


@functools.lru_cache(maxsize=4096)
def spans(path: Place) -> dict[int, Span]:
    """Spans of an added file's rows, by bucket.

    Raises:
        LandingError: the file is missing or damaged.
    """
    try:
        found = json.loads(parquet_file(path).metadata.metadata[_SPANS])
        return {bucket: (start, stop) for bucket, start, stop in found}
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error


def folded(files: Iterable[tuple[str, int]], size: int, most: int) -> list[str]:
    """Choose the added files to rewrite together with new rows.

    Takes the newest ones while each is at most twice as large as all younger ones together. So sizes
    double from file to file, there are few files, and a row is written only a few times.

    Args:
        files: paths and sizes, oldest first.
        size: size of the new rows.
        most: upper limit of the sum of sizes.
    """
    chosen: list[str] = []
    for path, held in reversed(list(files)):
        if held > 2 * size or size + held > most:
            break
        chosen.append(path)
        size += held
    return chosen
