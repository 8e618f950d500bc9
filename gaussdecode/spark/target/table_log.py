"""Read and commit the versions of one table, which has up to four Delta tables.

The log of the rows decides. Its commits carry, beside the files, the other fields of `TableVersion` in
a table property: checkpoints keep properties, and other writers leave them alone. The property names
the versions of the other three Delta tables that belong to it; these are committed before. The
protocol's own place would be a metadata domain. But delta-rs writes no table that has one: nobody could
compact or vacuum ours without Spark.
"""

import dataclasses
import json
import time
import urllib.parse
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from gaussdecode import __version__
from gaussdecode.errors import LandingError, OvertakenError, unreadable
from gaussdecode.model.seal import NewerFormatError
from gaussdecode.spark.log.place import File, Place, files_below, parquet_file
from gaussdecode.spark.target.comments import NOTHING_CHANGED, Changed, Comments, is_of, kept
from gaussdecode.spark.target.comments import before as before_origin
from gaussdecode.spark.target.deletion_vectors import Vector
from gaussdecode.spark.target.delta_log import DeltaLog, Snapshot, is_hidden, path_of
from gaussdecode.spark.target.delta_schema import delta_schema, joined, partition_value, protocol_of
from gaussdecode.spark.target.durable import sync_directory
from gaussdecode.spark.target.failpoint import Step, reach
from gaussdecode.spark.target.state_file import (
    CHANGELOG,
    CURRENT,
    FOLDERS,
    HISTORY,
    NO_PARTITION,
    OTHERS,
    QUARANTINE,
    StateFile,
    TableVersion,
    spelled_value,
)

Json = dict[str, Any]  # decoded JSON
BEGINS: Final = {CURRENT: "", HISTORY: "History of ", CHANGELOG: "Changelog of "}
"""Beginning of a Delta table's comment, by folder."""
PROPERTY: Final = "gaussdecode.version"
_SCHEMA: Final = "gaussdecode.schema"
_BUCKET: Final = "gaussdecode.bucket"
_FORMAT: Final = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Schema and partitioning of the Delta tables of a version.

    Attributes:
        columns: columns of each folder's files; for a missing folder the files themselves tell.
        partition: partition columns with their types, by folder.
        comment: comment that the table gets when it is created.
        said: comments of the source that change; that of the table comes before `comment`.
    """

    columns: Mapping[str, pa.Schema]
    partition: Mapping[str, Sequence[pa.Field]] = dataclasses.field(default_factory=dict)
    comment: str = ""
    said: Changed = NOTHING_CHANGED


class TableLog:
    """The Delta logs of one table.

    Args:
        root: its directory in the target.
        landing_id: id of the landing.
    """

    def __init__(self, root: Place, landing_id: str) -> None:
        self._root = root
        self._app = f"gaussdecode-{landing_id}"
        self._landing_id = landing_id
        self._logs = {folder: DeltaLog(root / folder) for folder in FOLDERS}

    def versions(self) -> list[int]:
        """Numbers of the versions that readers may use, ascending."""
        log = self._logs[CURRENT]
        there = log.versions()
        if not there or there[0] == 0:
            return there
        oldest = min(log.checkpoints(), default=there[-1])
        return [v for v in there if v >= oldest]

    def newest(self) -> TableVersion | None:
        """The newest version; None if there is none.

        Raises:
            LandingError: another writer has changed its rows.
        """
        if self._logs[CURRENT].newest() < 0:
            return None
        return self.version(None)

    def version(self, v: int | None) -> TableVersion:
        """One version, the newest for None.

        Raises:
            ConfigError: the version was removed.
            LandingError: the log is damaged, or another writer has changed rows.
        """
        log = self._logs[CURRENT]
        snapshot = log.snapshot(v)
        path = self._root / CURRENT
        if PROPERTY not in snapshot.properties:
            raise LandingError(
                f"{path} is a Delta table that this program did not make; restore ours or begin a new target"
            )
        record = json.loads(snapshot.properties[PROPERTY])
        if (number := record.pop("format")) > _FORMAT:
            error = NewerFormatError(f"its log has format {number}, this program reads {_FORMAT}")
            raise unreadable(path, error, "")
        numbers, ours = record.pop("logs"), record.pop("v")
        self._check_others(CURRENT, ours, snapshot.version)
        files = {CURRENT: self._files(CURRENT, snapshot, record["schema_id"])}
        files[CURRENT] = tuple(sorted(files[CURRENT], key=lambda file: file.bucket))
        for folder in FOLDERS[1:]:
            at = numbers.get(folder)
            if at is not None and v is None:
                at = self._beside(folder, at)
            of = Snapshot() if at is None else self._logs[folder].snapshot(at)
            files[folder] = self._files(folder, of, record["schema_id"])
        try:
            return TableVersion.from_record(record, snapshot.version, files)
        except (KeyError, TypeError) as error:
            raise unreadable(
                path, NewerFormatError(f"it cannot be understood: {error}"), ""
            ) from error

    def numbers(self, v: int) -> dict[str, int]:
        """Versions of each Delta table that belong to a version of the rows, by folder."""
        record = json.loads(self._logs[CURRENT].snapshot(v).properties[PROPERTY])
        return {CURRENT: v, **record["logs"]}

    def following(self, v: int) -> dict[str, int]:
        """The same, with later commits that change no row: comments, or another writer's OPTIMIZE."""
        log, numbers = self._logs[CURRENT], self.numbers(v)
        newest = log.snapshot()
        ours = [json.loads(of.properties[PROPERTY])["v"] for of in (log.snapshot(v), newest)]
        if ours[0] == ours[1]:
            numbers[CURRENT] = newest.version
        return {f: n if f == CURRENT else self._beside(f, n) for f, n in numbers.items()}

    def comments(self, folder: str) -> Comments:
        """Comments of one of its Delta tables and that table's columns."""
        metadata = self._logs[folder].snapshot().metadata
        fields = json.loads(metadata["schemaString"])["fields"]
        columns = {field["name"]: field["metadata"].get("comment", "") for field in fields}
        return Comments(metadata.get("description") or "", columns)

    def set_comments(self, folder: str, changed: Changed) -> None:
        """Change comments, in a commit that changes no row.

        Raises:
            LandingError: another writer committed first.
        """
        log = self._logs[folder]
        before = log.snapshot()
        schema = _commented(before.metadata["schemaString"], changed.columns)
        metadata = {**before.metadata, "schemaString": schema}
        if changed.table is not None:
            metadata["description"] = changed.table
        now = time.time_ns() // 1_000_000
        info = {"timestamp": now, "operation": "gaussdecode comments"}
        if log.commit(before, [{"commitInfo": info}, {"metaData": metadata}]) is None:
            raise self._overtaken(folder)

    def folders(self) -> list[str]:
        """Folders that have a Delta table."""
        return [folder for folder, log in self._logs.items() if log.newest() >= 0]

    def created(self, v: int) -> str:
        """Creation time of a version; its files may be gone."""
        return str(json.loads(self._logs[CURRENT].snapshot(v).properties[PROPERTY])["created"])

    def _beside(self, folder: str, number: int) -> int:
        """Version of another Delta table that belongs to the newest one of the rows.

        Later commits are of an apply that was killed, and do not count, or of other writers.
        """
        log = self._logs[folder]
        newest = log.newest()
        for actions in log.commits(number + 1, newest):
            if any(of.get("appId") == self._app for action in actions for of in action.values()):
                return number
        self._check_others(folder, number, newest)
        return newest

    def _check_others(self, folder: str, ours: int, newest: int) -> None:
        """Check that commits after ours changed no row; OPTIMIZE and property changes are allowed.

        Raises:
            LandingError: a commit did.
        """
        commits = self._logs[folder].commits(ours + 1, newest)
        for number, actions in enumerate(commits, ours + 1):
            files = [of for action in actions for kind, of in action.items() if kind in _FILES]
            if any(file.get("dataChange", True) for file in files):
                said = [of for action in actions for kind, of in action.items() if kind in _INFO]
                what = said[0].get("operation", "a commit") if said else "a commit"
                raise LandingError(
                    f"{self._root / folder}: {what} of another writer changed rows in version {number}, which "
                    f"only spark apply may. Restore version {number - 1}'s files from a copy, or remove this "
                    "table's directory from the target and apply again"
                )

    def _files(self, folder: str, of: Snapshot, schema_id: str) -> tuple[StateFile, ...]:
        adds = sorted(of.adds.values(), key=lambda add: (add["modificationTime"], add["path"]))
        return tuple(self._file(folder, add, schema_id) for add in adds)

    def _file(self, folder: str, add: Json, schema_id: str) -> StateFile:
        tags, path = add.get("tags") or {}, f"{folder}/{path_of(add)}"
        stats = json.loads(add.get("stats") or "{}")
        stats.pop("tightBounds", None)
        rows = stats.get("numRecords")
        if rows is None:
            rows = parquet_file(self._root / path).metadata.num_rows
        vector = add.get("deletionVector")
        parts = [
            f"{urllib.parse.quote(name, safe='')}={spelled_value(value)}"
            for name, value in (add.get("partitionValues") or {}).items()
        ]
        others = OTHERS if folder == CURRENT else -1
        return StateFile(
            path,
            rows,
            add["size"],
            tags.get(_SCHEMA, schema_id),
            int(tags.get(_BUCKET, others if _SCHEMA not in tags else -1)),
            "/".join(parts),
            str(Vector.from_action(vector)) if vector else "",
            vector["cardinality"] if vector else 0,
            json.dumps(stats, separators=(",", ":")),
        )

    # --- the next version ------------------------------------------------------------------

    def commit(
        self, version: TableVersion, shape: Shape, *, with_vectors: bool, is_change: bool
    ) -> None:
        """Commit the next version; its files are already written.

        Args:
            version: the new version; its number is one above the version that it is made from.
            shape: shape of its Delta tables.
            with_vectors: declare deletion vectors, which readers must then support.
            is_change: whether rows change; else the same rows are in other files.

        Raises:
            LandingError: another writer committed first.
        """
        self._sync(version)
        reach(Step.FILES_DURABLE)
        if self._logs[CURRENT].newest() + 1 != version.v:
            raise self._overtaken(CURRENT)
        numbers = {}
        for folder in FOLDERS[1:]:
            number = self._commit(folder, version, shape, is_change=is_change)
            if number >= 0:
                numbers[folder] = number
        record = {**version.to_record(), "format": _FORMAT, "v": version.v, "logs": numbers}
        self._commit(
            CURRENT, version, shape, is_change=is_change, record=record, with_vectors=with_vectors
        )

    def _overtaken(self, folder: str) -> OvertakenError:
        return OvertakenError(
            f"{self._root / folder} was committed by another writer at the same time; nothing was "
            "changed by this one, run it again"
        )

    def _commit(
        self, folder: str, version: TableVersion, shape: Shape, *, is_change: bool,
        record: Json | None = None, with_vectors: bool = False,
    ) -> int:  # fmt: skip
        """Bring one Delta table to a version's state; return its version, -1 if it needs none."""
        log, files = self._logs[folder], version.of_folder(folder)
        before = log.snapshot() if record is None else log.snapshot(version.v - 1)
        is_kept = {
            CURRENT: True,
            HISTORY: version.history_from is not None,
            CHANGELOG: version.changelog_from is not None,
            QUARANTINE: bool(files),
        }[folder]
        if before.version < 0 and not is_kept:
            return -1
        now = time.time_ns() // 1_000_000
        by = shape.partition.get(folder, ())
        changed = self._changes(before, files, by, now, is_change=is_change)
        state = {} if record is None else {PROPERTY: json.dumps(record, separators=(",", ":"))}
        described = self._description(folder, before, files, shape, with_vectors, state, now)
        if not changed and not described:
            return before.version
        info = {
            "timestamp": now,
            "operation": "gaussdecode apply" if is_change else "gaussdecode compact",
            "operationParameters": {"entry": str(version.n)},
            "isBlindAppend": False,
            "engineInfo": f"gaussdecode/{__version__}",
        }
        actions: list[Json] = [{"commitInfo": info}, *described]
        actions.append({"txn": {"appId": self._app, "version": version.n, "lastUpdated": now}})
        made = log.commit(before, [*actions, *changed])
        if made is None:
            raise self._overtaken(folder)
        return made.version

    @staticmethod
    def _changes(
        before: Snapshot, files: Sequence[StateFile], by: Sequence[pa.Field], now: int, *,
        is_change: bool,
    ) -> list[Json]:  # fmt: skip
        """Actions for files that are added, removed, or get another deletion vector."""
        wanted = {file.path.partition("/")[2]: file for file in files}
        found: list[Json] = []
        for path, add in before.adds.items():
            file = wanted.get(path)
            vector = add.get("deletionVector")
            if file is not None and file.deletes == (
                str(Vector.from_action(vector)) if vector else ""
            ):
                del wanted[path]
                continue
            removed = {
                "path": add["path"],
                "deletionTimestamp": now,
                "dataChange": is_change,
                "extendedFileMetadata": True,
                "partitionValues": add.get("partitionValues") or {},
                "size": add["size"],
            }
            found.append({"remove": {**removed, **({"deletionVector": vector} if vector else {})}})
        for path, file in wanted.items():
            held = before.adds.get(path)
            added = _added(file, path, by, held["modificationTime"] if held else now)
            found.append({"add": {**added, "dataChange": is_change}})
        return found

    def _description(
        self, folder: str, before: Snapshot, files: Sequence[StateFile], shape: Shape,
        with_vectors: bool, state: Mapping[str, str], now: int,
    ) -> list[Json]:  # fmt: skip
        """Protocol and metadata actions, if they changed."""
        columns = shape.columns.get(folder)
        if columns is None:
            if not files:
                return []
            columns = parquet_file(self._root / files[0].path).schema_arrow.remove_metadata()
        by = shape.partition.get(folder, ())
        for field in by:
            if field.name not in columns.names:  # that only paths have
                columns = columns.append(field)
        old = before.metadata
        names = [field.name for field in by]
        if folder == CHANGELOG:  # its older files stay
            names = old.get("partitionColumns", names)
        schema, properties = delta_schema(columns, old.get("schemaString"))
        if folder in BEGINS and shape.said.columns:
            schema = _commented(schema, shape.said.columns)
        with_vectors = with_vectors or any(file.deletes for file in files)
        if with_vectors:
            properties["delta.enableDeletionVectors"] = "true"
        protocol = joined(
            before.protocol, protocol_of(schema, properties, with_vectors=with_vectors)
        )
        metadata = {
            "id": old.get("id") or str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": names,
            "configuration": {**(old.get("configuration") or {}), **properties, **state},
            "createdTime": old.get("createdTime", now),
        }
        metadata |= {name: old[name] for name in ("name", "description") if name in old}
        if shape.comment and folder in BEGINS:
            held = metadata.get("description", "")
            where_from = BEGINS[folder] + shape.comment
            if not old or is_of(self._landing_id, held):  # the table may have been renamed
                metadata["description"] = kept(where_from, held)
        if folder in BEGINS and shape.said.table is not None:
            where_from = BEGINS[folder] + shape.comment
            metadata["description"] = before_origin(where_from, shape.said.table)
        found = [] if protocol == before.protocol else [{"protocol": protocol}]
        return found if metadata == old else [*found, {"metaData": metadata}]

    def _sync(self, version: TableVersion) -> None:
        """Make the names of a version's files durable; on a store they already are."""
        if isinstance(self._root, Path):
            new = version.paths - self.paths()
            for directory in {(self._root / path).parent for path in new}:
                sync_directory(directory)

    # --- keeping it small --------------------------------------------------------------------

    def paths(self) -> set[str]:
        """Files that the newest version of each Delta table names, by path from the table's directory."""
        found = set()
        for folder, log in self._logs.items():
            for file in self._files(folder, log.snapshot(), ""):
                found |= {file.path, *([file.deletes_path] if file.deletes else ())}
        return found

    def forget(self, alive: Collection[int]) -> tuple[int, set[str]]:
        """Remove commits that none of these versions needs.

        Returns:
            Number of commits removed from the log of the rows, and the files that these versions and
            the newest ones name.
        """
        if not alive:
            return 0, self.paths()
        versions = [self.version(v) for v in alive]
        named = self.paths().union(*(version.paths for version in versions))
        oldest: dict[str, set[int]] = {folder: set() for folder in FOLDERS}
        for v in alive:
            for folder, number in self.numbers(v).items():
                oldest[folder].add(number)
        removed = self._logs[CURRENT].forget(oldest[CURRENT])
        for folder in FOLDERS[1:]:
            if oldest[folder]:
                self._logs[folder].forget(oldest[folder])
        return removed, named

    def files(self) -> list[File]:
        """Existing files, without those of the logs, by path relative to the table's directory."""
        return [
            file._replace(path=f"{folder}/{file.path}")
            for folder in FOLDERS
            for file in files_below(self._root / folder)
            if not is_hidden(file.path)
        ]


_FILES: Final = ("add", "remove")
_INFO: Final = ("commitInfo",)


def _commented(schema: str, comments: Mapping[str, str]) -> str:
    """A Delta schema whose columns have these comments; an empty one is removed."""
    record = json.loads(schema)
    for field in record["fields"]:
        if field["name"] in comments:
            field["metadata"]["comment"] = comments[field["name"]]
            if not field["metadata"]["comment"]:
                del field["metadata"]["comment"]
    return json.dumps(record, separators=(",", ":"))


def _added(file: StateFile, path: str, by: Sequence[pa.Field], modified: int) -> Json:
    """The log's action that adds a file."""
    values, types = {}, {field.name: field.type for field in by}
    for part in filter(None, file.partition.split("/")):
        name, _, text = part.partition("=")
        name = urllib.parse.unquote(name)
        value = None if text == NO_PARTITION else urllib.parse.unquote(text)
        values[name] = partition_value(value, types.get(name, pa.string()))
    stats = json.loads(file.stats or json.dumps({"numRecords": file.rows}))
    added: Json = {
        "path": urllib.parse.quote(path, safe="/=-_.~"),
        "partitionValues": values,
        "size": file.bytes,
        "modificationTime": modified,
        "stats": json.dumps({**stats, "tightBounds": not file.deletes}, separators=(",", ":")),
        "tags": {_SCHEMA: file.schema_id, _BUCKET: str(file.bucket)},
    }
    if file.deletes:
        added["deletionVector"] = Vector.of(file.deletes).action(file.deleted)
    return added
