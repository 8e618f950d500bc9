"""Read and write a Delta Lake table's log, which lists the files of each version.

Follows the protocol document (delta-io/delta, PROTOCOL.md). No library without Java writes file tags
and deletion vectors, and one commit has to carry these beside its transaction id. A commit is put under
a number that is still free. If two writers try, one fails, and none of its changes are seen. Each tenth
version writes a checkpoint, so that opening a table reads few commits.
"""

import copy
import dataclasses
import io
import json
import re
import secrets
import time
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.log.place import ObjectPath, Place, names_in, read_each, read_table
from gaussdecode.spark.target.durable import make_directory, put_file

LOG: Final = "_delta_log"
CHECKPOINT_EACH: Final = 10
"""Versions from one checkpoint to the next, as in other writers."""
TOMBSTONE_MS: Final = 7 * 86_400_000
"""Time for which a checkpoint lists a removed file."""

Json = dict[str, Any]  # decoded JSON
Action = Mapping[str, Json]
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_READ: Final = frozenset({"deletionVectors", "timestampNtz", "columnMapping"})
_WRITTEN: Final = _READ | {"appendOnly", "invariants", "changeDataFeed"}
"""Features of the protocol that this program knows. Readers of the change feed see files that come and go."""
_CONSTRAINT: Final = "delta.constraints."

_MAP: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_ACTIONS: Final = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _MAP,
                "deletionVector": _VECTOR,
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "deletionVector": _VECTOR,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
    }
)
"""Columns of a checkpoint."""


@dataclasses.dataclass(slots=True)
class Snapshot:
    """The state of a table at one version; actions as in the protocol.

    Attributes:
        version: its number, from 0.
        adds: files, by path.
        removes: removed files, by path and vector.
        metadata: schema, partitioning and properties.
        protocol: features that readers and writers must support.
        transactions: newest version of each application.
    """

    version: int = -1
    adds: dict[str, Json] = dataclasses.field(default_factory=dict)
    removes: dict[tuple[str, str], Json] = dataclasses.field(default_factory=dict)
    metadata: Json = dataclasses.field(default_factory=dict)
    protocol: Json = dataclasses.field(default_factory=dict)
    transactions: dict[str, Json] = dataclasses.field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the table."""
        return self.metadata.get("configuration") or {}

    def after(self, version: int, actions: Iterable[Action]) -> "Snapshot":
        """The version that results from a commit on top of this one."""
        new = dataclasses.replace(self, version=version, adds=dict(self.adds))
        for name in ("removes", "transactions"):
            setattr(new, name, copy.copy(getattr(self, name)))
        added = []
        for action in actions:
            ((kind, value),) = action.items()
            if kind == "add":
                added.append(value)
            elif kind == "remove":
                new.adds.pop(path_of(value), None)
                new.removes[path_of(value), _vector_id(value)] = value
            elif kind == "metaData":
                new.metadata = value
            elif kind == "protocol":
                new.protocol = value
            elif kind == "txn":
                new.transactions[value["appId"]] = value
        for value in added:  # a file that only gets another vector is removed with the old one
            new.adds[path_of(value)] = value
            new.removes.pop((path_of(value), _vector_id(value)), None)
        return new

    def actions(self, now: int) -> Iterator[Json]:
        """This version as actions of a checkpoint."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.metadata}
        yield from ({"txn": of} for of in self.transactions.values())
        yield from ({"add": {**of, "dataChange": False}} for of in self.adds.values())
        for of in self.removes.values():
            if of.get("deletionTimestamp", 0) > now - TOMBSTONE_MS:
                yield {"remove": {**of, "dataChange": False}}


def path_of(file: Mapping[str, Any]) -> str:  # Any: JSON
    """Path of a file below its table; the log percent-encodes it."""
    return urllib.parse.unquote(file["path"])


def _vector_id(file: Mapping[str, Any]) -> str:  # Any: JSON
    of = file.get("deletionVector")
    return "" if not of else f"{of['storageType']}{of['pathOrInlineDv']}@{of.get('offset')}"


class DeltaLog:
    """The log of one table.

    Args:
        root: directory of the table.
    """

    def __init__(self, root: Place) -> None:
        self.root = root
        self._log = root / LOG
        self._held: Snapshot | None = None

    def versions(self) -> list[int]:
        """Numbers of existing commits, ascending; older ones may be in a checkpoint only."""
        found = map(_COMMIT.fullmatch, names_in(self._log))
        return sorted(int(match[1]) for match in found if match)

    def checkpoints(self) -> dict[int, list[str]]:
        """File names of each complete checkpoint, by version, ascending."""
        found: dict[int, list[tuple[str, int]]] = {}
        for name in names_in(self._log):
            if match := _CHECKPOINT.fullmatch(name):
                found.setdefault(int(match[1]), []).append((name, int(match[3] or 1)))
        return {
            v: [name for name, _ in parts]
            for v, parts in sorted(found.items())
            if len(parts) == parts[0][1]
        }

    def newest(self) -> int:
        """Number of the newest version; -1 if there is no table."""
        return max(self.versions(), default=-1)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """A version of the table, the newest by default; an empty one if there is no table.

        Raises:
            ConfigError: the version was removed.
            LandingError: the log is damaged, or uses features that this program does not support.
        """
        there = self.versions()
        wanted = max(there, default=-1) if version is None else version
        if self._held is not None and self._held.version == wanted:
            return self._held
        if wanted < 0:
            return Snapshot()
        held = self._held
        if held is None or held.version > wanted:
            before = [v for v in self.checkpoints() if v <= wanted]
            held = self._read_checkpoint(before[-1]) if before else Snapshot()
        needed = range(held.version + 1, wanted + 1)
        if not set(needed) <= set(there):
            raise ConfigError(f"{self._log}: version {wanted} is gone: vacuum removed it")
        for number, actions in zip(needed, self._commits(needed), strict=True):
            held = held.after(number, actions)
        self._check_features(held)
        if version is None:
            self._held = held
        return held

    def commits(self, first: int, last: int) -> Iterator[list[Json]]:
        """Actions of each commit from one number to another."""
        return self._commits(range(first, last + 1))

    def _commits(self, numbers: Sequence[int]) -> Iterator[list[Json]]:
        paths = [self._log / f"{number:020d}.json" for number in numbers]
        for path, content in zip(paths, read_each(paths), strict=True):
            if content is None:
                raise ConfigError(f"{path} is gone: vacuum removed that version")
            try:
                yield [json.loads(line) for line in content.splitlines() if line.strip()]
            except ValueError as error:
                raise LandingError(f"{path} cannot be read: {error}") from error

    def _read_checkpoint(self, version: int) -> Snapshot:
        found: list[Json] = []
        for name in self.checkpoints()[version]:
            path = self._log / name
            try:
                table = read_table(path)
            except (OSError, pa.ArrowException) as error:
                raise LandingError(f"{path} cannot be read: {error}") from error
            for column in set(_ACTIONS.names) & set(table.column_names):
                values = table.column(column).drop_null().to_pylist()
                found += [{column: _plain(value)} for value in values]
        return Snapshot().after(version, found)

    def _check_features(self, of: Snapshot) -> None:
        unknown = {
            *set(of.protocol.get("readerFeatures") or ()) - _READ,
            *set(of.protocol.get("writerFeatures") or ()) - _WRITTEN,
            *(name for name in of.properties if name.startswith(_CONSTRAINT)),
        }
        if unknown:
            raise LandingError(
                f"{self.root}: this Delta table has features that this program does not support: "
                f"{', '.join(sorted(unknown))}; remove them (ALTER TABLE ... DROP FEATURE, or DROP CONSTRAINT), or "
                "begin a new target"
            )

    def commit(self, before: Snapshot, actions: Sequence[Action]) -> Snapshot | None:
        """Commit the next version; None if another writer took its number."""
        version = before.version + 1
        make_directory(self._log)
        lines = [json.dumps(action, separators=(",", ":")) for action in actions]
        if not put_file(self._log / f"{version:020d}.json", "\n".join(lines).encode() + b"\n"):
            return None
        self._held = before.after(version, actions)
        if version % CHECKPOINT_EACH == 0 and version:
            self.checkpoint(self._held)
        return self._held

    def checkpoint(self, of: Snapshot) -> None:
        """Write a checkpoint of a version, so that earlier commits need not be read."""
        rows = [_row(action) for action in of.actions(time.time_ns() // 1_000_000)]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=_ACTIONS), sink, compression="snappy")
        put_file(self._log / f"{of.version:020d}.checkpoint.parquet", sink.getvalue())
        said = json.dumps({"version": of.version, "size": len(rows)}).encode()
        last = self._log / "_last_checkpoint"
        if not isinstance(last, ObjectPath):  # a store keeps what is there; readers list instead
            hidden = last.with_name(f".{last.name}.{secrets.token_hex(8)}")
            hidden.write_bytes(said)
            hidden.replace(last)

    def forget(self, alive: Collection[int]) -> int:
        """Remove commits that none of these versions needs; return their number."""
        oldest = min(alive, default=0)
        whole = [v for v in self.checkpoints() if v <= oldest]
        if not whole:
            return 0
        gone = [v for v in self.versions() if v < whole[-1]]
        for version in gone:
            (self._log / f"{version:020d}.json").unlink()
        for version, names in self.checkpoints().items():
            for name in names if version < whole[-1] else ():
                (self._log / name).unlink()
        return len(gone)


def _row(action: Json) -> Json:
    """Convert an action to a row of a checkpoint: maps become pairs."""
    ((kind, value),) = action.items()
    row = dict(value)
    for name in ("partitionValues", "tags", "configuration"):
        if isinstance(row.get(name), dict):
            row[name] = list(row[name].items())
    if "format" in row:
        row["format"] = {**row["format"], "options": list(row["format"].get("options", {}).items())}
    return {kind: row}


def _plain(value: Json) -> Json:
    """Convert a row of a checkpoint back to an action, without NULLs."""
    row = {name: of for name, of in value.items() if of is not None}
    for name in ("partitionValues", "tags", "configuration"):
        if isinstance(row.get(name), list):
            row[name] = dict(row[name])
    if "format" in row:
        row["format"] = {**row["format"], "options": dict(row["format"].get("options") or ())}
    return row


def is_hidden(path: str) -> bool:
    """Whether a file below a table belongs to its log or to Iceberg, and holds no rows."""
    return path.startswith("_")


def exists(root: Place) -> bool:
    """Whether a Delta table exists there."""
    log = root / LOG
    return log.is_dir() if isinstance(log, Path) else DeltaLog(root).newest() >= 0
