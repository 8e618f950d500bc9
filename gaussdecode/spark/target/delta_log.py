"""The log of a table of Delta Lake: which files are a version of it.

Written and read by the protocol's own document (delta-io/delta, PROTOCOL.md): no library that needs
no Java writes tags of files and deletion vectors, and one commit has to carry these beside its transaction
id. A commit is put under a number that nobody has taken; of two writers one fails, and nothing of it is seen.
A checkpoint is written each tenth version, so that few commits are
read to open a table.
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
"""Versions from one checkpoint to the next, as others do."""
TOMBSTONE_MS: Final = 7 * 86_400_000
"""For so long a checkpoint says that a file was removed."""

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
    """What a version of a table is; actions as the protocol has them.

    Attributes:
        version: its number, from 0.
        adds: files, by path.
        removes: files that were taken away, by path and vector.
        metadata: schema, partitioning and properties.
        protocol: what a reader and a writer have to know.
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
        """Of the table."""
        return self.metadata.get("configuration") or {}

    def after(self, version: int, actions: Iterable[Action]) -> "Snapshot":
        """The version that a commit makes of it."""
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
        """The same as actions of a checkpoint."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.metadata}
        yield from ({"txn": of} for of in self.transactions.values())
        yield from ({"add": {**of, "dataChange": False}} for of in self.adds.values())
        for of in self.removes.values():
            if of.get("deletionTimestamp", 0) > now - TOMBSTONE_MS:
                yield {"remove": {**of, "dataChange": False}}


def path_of(file: Mapping[str, Any]) -> str:  # Any: JSON
    """Path of a file below its table: in the log it is percent-encoded."""
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
        """Numbers of the commits that are there, rising; older ones may stand in a checkpoint only."""
        found = map(_COMMIT.fullmatch, names_in(self._log))
        return sorted(int(match[1]) for match in found if match)

    def checkpoints(self) -> dict[int, list[str]]:
        """Names of the files of each whole checkpoint, by version, rising."""
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
        """Number of the newest version; -1 where there is no table."""
        return max(self.versions(), default=-1)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """A version of the table, the newest by default; one without anything where there is none.

        Raises:
            ConfigError: it is gone.
            LandingError: the log is damaged, or has what this program does not know.
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
                f"{self.root}: somebody gave this Delta table what this program does not keep: "
                f"{', '.join(sorted(unknown))}; take it away (ALTER TABLE ... DROP FEATURE, or DROP CONSTRAINT), or "
                "begin a new target"
            )

    def commit(self, before: Snapshot, actions: Sequence[Action]) -> Snapshot | None:
        """Make the version after another one; None where somebody else has made it."""
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
        """Write a version whole, so that commits before it need not be read."""
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
        """Remove commits that none of these versions is read from; give how many."""
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
    """An action as a row of a checkpoint: maps are pairs."""
    ((kind, value),) = action.items()
    row = dict(value)
    for name in ("partitionValues", "tags", "configuration"):
        if isinstance(row.get(name), dict):
            row[name] = list(row[name].items())
    if "format" in row:
        row["format"] = {**row["format"], "options": list(row["format"].get("options", {}).items())}
    return {kind: row}


def _plain(value: Json) -> Json:
    """The other way round; what is NULL is left out."""
    row = {name: of for name, of in value.items() if of is not None}
    for name in ("partitionValues", "tags", "configuration"):
        if isinstance(row.get(name), list):
            row[name] = dict(row[name])
    if "format" in row:
        row["format"] = {**row["format"], "options": dict(row["format"].get("options") or ())}
    return row


def is_hidden(path: str) -> bool:
    """Whether a file below a table is none of its rows: of its log, or of Iceberg's."""
    return path.startswith("_")


def exists(root: Place) -> bool:
    """Whether there is a table."""
    log = root / LOG
    return log.is_dir() if isinstance(log, Path) else DeltaLog(root).newest() >= 0
