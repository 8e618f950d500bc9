"""The target: immutable files, and versions that say which of them are a table.

::

    <target>/target.json                        which landing it belongs to
    <target>/tables/<table>/files/              Parquet, never changed, names never used twice
    <target>/tables/<table>/versions/<v>.json   one version of one table, applied up to entry n;
                                                what is new in it, see `manifest`
    <target>/database/<k>.json                  one version of all tables, complete up to entry n
    <target>/tables/<table>/commits/<n>.json    what a table is at entry n that Delta Lake or
                                                Iceberg keeps, below <target>/lake

A version is committed by `link`, which fails when its number is taken: of two writers one
commits, the other one fails and nothing of it is seen. A reader follows one manifest
to files that do not change, so it sees one version or the other and never half of one.
Every step is durable before the next; a crash leaves files that no manifest names, which
`vacuum` removes.
"""

import contextlib
import dataclasses
import datetime as dt
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.errors import ConfigError, DiskError, GaussDecodeError, LandingError, unreadable
from gaussdecode.model.seal import NewerFormatError, check_version
from gaussdecode.spark import localdisk, manifest
from gaussdecode.spark.catalog import full_pattern
from gaussdecode.spark.failpoint import Step, reach
from gaussdecode.spark.formats import FORMATS, PARQUET
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.offset import Offset
from gaussdecode.spark.place import (
    Given,
    ObjectPath,
    Place,
    names_in,
    place_of,
    put_new,
)
from gaussdecode.spark.plan import Decided
from gaussdecode.spark.schema import TableSchema

VERSION: Final = 1
_DECIDED: Final = re.compile(r"\d.*\.json")
_NUMBER: Final = re.compile(r"(\d{20})\.json")
_NOT_OURS: Final = frozenset({"version", "oids"})  # ``oids`` is of older programs
Json = dict[str, Any]  # decoded JSON
FOLDERS: Final = ("files", "changelog", "quarantine")
"""Where the files of a table are, below its directory."""
COMMITS: Final = "commits"
"""Where it is kept what a table is that others keep, below its directory."""
LOGGED: Final = "logged"
"""Where it is kept what its changelog is."""
STAGING: Final = "staging"
"""Where files are on their way to other tables, below the target."""
LOAD: Final = "load"
"""Below the target while existing rows of tables are loaded; see ``gaussdecode spark snapshot``."""


@dataclasses.dataclass(frozen=True, slots=True)
class StateFile:
    """One Parquet file of a version.

    Attributes:
        path: relative to the table's directory.
        rows: in it.
        bytes: its size.
        schema_id: of its rows.
        bucket: of the current state; -1 elsewhere, and where it has rows of many buckets.
        partition: of the changelog, ``column=value``; empty elsewhere.
        deletes: path of the file that says which of its rows are not current; empty for none.
        deleted: how many these are.
    """

    path: str
    rows: int
    bytes: int
    schema_id: str
    bucket: int = -1
    partition: str = ""
    deletes: str = ""
    deleted: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PartVersion:
    """What a version has of one of several sources; fields as of `TableVersion`."""

    buckets: int
    ignore_through: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of one table.

    Attributes:
        v: its number, from 1.
        n: the last entry applied.
        schema_id: of the current state.
        buckets: rows are spread over so many; of several sources see `parts`.
        current: files of the current state: those of buckets, and those with added rows.
        closed: files of closed intervals.
        changelog: files of the changelog.
        quarantine: files of the rows among the current ones that failed a test.
        history_from: intervals that ended after this entry are kept; None without history.
        changelog_from: changes after this entry are kept; None without changelog.
        changelog_by: what the changelog is partitioned by.
        ignore_through: position that a snapshot covers; of several sources see `parts`.
        accepted_gaps: gap entries it went over.
        unmatched: changes that do not fit what it had, since the table was begun; see `merge.Merged`.
        created: when.
        part: of entry n + 1 it has what is up to this CSN; 0 for nothing.
        parts: of several sources, whose rows are in files of their own, by name.
    """

    v: int
    n: int
    schema_id: str
    buckets: int
    current: tuple[StateFile, ...] = ()
    closed: tuple[StateFile, ...] = ()
    changelog: tuple[StateFile, ...] = ()
    quarantine: tuple[StateFile, ...] = ()
    history_from: int | None = None
    changelog_from: int | None = None
    changelog_by: str = ""
    ignore_through: tuple[int, ...] | None = None
    accepted_gaps: tuple[int, ...] = ()
    unmatched: int = 0
    created: str = ""
    part: int = 0
    parts: dict[str, PartVersion] = dataclasses.field(default_factory=dict)

    @property
    def files(self) -> tuple[StateFile, ...]:
        """All of them that have rows."""
        return (*self.current, *self.closed, *self.changelog)

    @property
    def paths(self) -> set[str]:
        """All files, those with delete vectors too, relative to the table's directory."""
        deletes = {file.deletes for file in self.files if file.deletes}
        return {file.path for file in (*self.files, *self.quarantine)} | deletes

    def buckets_of(self, source: str | None) -> int | None:
        """Over how many buckets rows of a source are spread; None where there are none yet."""
        if source is None:
            return self.buckets
        return self.parts[source].buckets if source in self.parts else None

    @property
    def rows(self) -> int:
        """Rows of the current state."""
        return sum(file.rows - file.deleted for file in self.current)

    @classmethod
    def from_record(cls, record: Json) -> Self:
        """Read what `dataclasses.asdict` gave."""
        record = {key: value for key, value in record.items() if key not in _NOT_OURS}
        for name in ("current", "closed", "changelog", "quarantine"):
            record[name] = tuple(StateFile(**item) for item in record.get(name, ()))
        record["ignore_through"] = _tuple(record["ignore_through"])
        record["parts"] = {
            source: PartVersion(of["buckets"], _tuple(of["ignore_through"]))
            for source, of in record.get("parts", {}).items()
        }
        record["accepted_gaps"] = tuple(record["accepted_gaps"])
        return cls(**record)


def _tuple(values: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseVersion:
    """One version of all tables.

    Attributes:
        k: its number, from 1.
        n: all its tables are complete up to this entry.
        tables: version of each, by directory.
        is_complete: no table of the landing was left out.
        epoch: of the source's position at entry n.
        lsn: of it.
        csn: of it, or None.
        commit_time: of the newest transaction, in ISO form, or None.
        accepted_gaps: gap entries that were gone over by choice.
        suspects: entries that may be incomplete.
        quarantined: entry at which a table stopped, by directory.
        history: tables that are new get history too.
        changelog: they get a changelog, partitioned by this column; empty for none.
        stopped: by directory, the tables that stand still: fields of `plan.Stop`.
        created: when.
        part: of entry n + 1 it has what is up to this CSN; 0 for nothing.
        hash: of entry n; empty in versions of before it was kept.
    """

    k: int
    n: int
    tables: dict[str, int]
    is_complete: bool
    epoch: int = 0
    lsn: int = 0
    csn: int | None = None
    commit_time: str | None = None
    accepted_gaps: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    quarantined: dict[str, int] = dataclasses.field(default_factory=dict)
    history: bool = False
    changelog: str = ""
    stopped: dict[str, Json] = dataclasses.field(default_factory=dict)
    created: str = ""
    part: int = 0
    hash: str = ""

    @property
    def reach(self) -> tuple[int, int]:
        """How far it is: entries, and the CSN in the one after them."""
        return (self.n, self.part)

    @classmethod
    def from_record(cls, record: Json) -> Self:
        """Read what `dataclasses.asdict` gave."""
        record = {key: value for key, value in record.items() if key != "version"}
        record["accepted_gaps"] = tuple(record["accepted_gaps"])
        record["suspects"] = tuple(record["suspects"])
        return cls(**record)


class Target:
    """The target below a directory.

    Attributes:
        root: directory, or URL.
        landing_id: of the landing it is made from.
        format: what its tables are kept as, one of `FORMATS`.
        catalog: pattern of their names in a catalog, see `catalog`; empty for below `root`.
    """

    def __init__(self, root: Given) -> None:
        """Open it.

        Raises:
            ConfigError: there is no target.
        """
        self.root = place_of(root)
        path = self.root / "target.json"
        try:
            record = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"{self.root} is no target: apply to it first") from None
        except (OSError, ValueError) as error:
            raise LandingError(f"{path} cannot be read: {error}") from error
        _check_version(path, record)
        self.landing_id = str(record["landing_id"])
        self.format = str(record.get("format", PARQUET))
        self.catalog = str(record.get("catalog", ""))

    @classmethod
    def create(
        cls,
        root: Given,
        landing: Landing,
        kept_as: str | None = None,
        catalog: str | None = None,
    ) -> Self:
        """Open a target, or make one for a landing.

        Args:
            root: directory, or URL.
            landing: it is made from.
            kept_as: one of `FORMATS`; None for what it is, Parquet where it is new.
            catalog: see `catalog.full_pattern`; None for what it is, none where it is new.

        Raises:
            ConfigError: it belongs to another landing, is of another format or in another catalog,
                or something else is in the directory.
        """
        path = place_of(root)
        if kept_as not in (None, *FORMATS):
            raise ConfigError(f"format {kept_as!r} is not one of {', '.join(FORMATS)}")
        pattern = None if catalog is None else full_pattern(catalog)
        if not (path / "target.json").exists():
            if any(not _is_ours(name) for name in names_in(path)):
                raise ConfigError(f"{path} holds something else; give an empty directory")
            if isinstance(path, ObjectPath):
                path.store.prove()
                if kept_as not in (None, PARQUET) and pattern is None:
                    raise ConfigError(
                        f"{path}: tables kept as {kept_as} are in a catalog where a target is at a URL: "
                        "give --catalog"
                    )
            else:
                localdisk.prove(path)
            make_directory(path)
            record = {"version": VERSION, "landing_id": landing.landing_id}
            if kept_as not in (None, PARQUET):
                record["format"] = kept_as
            if pattern is not None:
                if kept_as in (None, PARQUET):
                    raise ConfigError("a catalog needs format delta or iceberg: give --format")
                record["catalog"] = pattern
            commit(path / "target.json", record)
        target = cls(path)
        if kept_as not in (None, target.format):
            raise ConfigError(
                f"{path} is kept as {target.format}, not {kept_as}; give each format its own target"
            )
        if pattern not in (None, target.catalog):
            raise ConfigError(
                f"the tables of {path} are in {target.catalog or 'its own directory'}, not in "
                f"{pattern}; give each catalog its own target"
            )
        target.check_landing(landing)
        return target

    def check_landing(self, landing: Landing) -> None:
        """See that it is made from a landing, and from the entries that stand in it.

        Raises:
            ConfigError: it is made from another one.
            LandingError: it is made from other entries: those of a copy, or of before it was restored.
        """
        if self.landing_id != landing.landing_id:
            raise ConfigError(
                f"{self.root} was made from another landing (id {self.landing_id}) than "
                f"{landing.root} (id {landing.landing_id}); give each its own target"
            )
        database = self.database()
        if database is not None:
            Offset(database.n, self.landing_id, database.hash).check(landing, "a new target")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers of this machine out; numbers that are taken keep out all.

        On a store only the numbers do.

        Raises:
            ConfigError: the file system of a directory cannot; see `localdisk`.
            TargetBusyError: one is at work.
        """
        if isinstance(self.root, ObjectPath):
            yield
            return
        with localdisk.locked(self.root):
            localdisk.prove(self.root)
            yield

    @property
    def is_shared(self) -> bool:
        """Whether it is on a store, where nothing but numbers that are taken keeps writers apart."""
        return isinstance(self.root, ObjectPath)

    def check_loaded(self) -> None:
        """See that no load of existing rows was broken off.

        Raises:
            ConfigError: one was; tables that it has not loaded would be without these rows.
        """
        if (self.root / LOAD).is_dir():
            raise ConfigError(
                f"the existing rows of {self.root} are not all loaded: run gaussdecode spark snapshot "
                f"again, which goes on where it was, or remove {self.root / LOAD} to go without them"
            )

    # --- versions --------------------------------------------------------------------------

    def table_root(self, table: str) -> Place:
        """Directory of a table."""
        return self.root / "tables" / table

    def tables(self) -> list[str]:
        """Directories of all tables."""
        return names_in(self.root / "tables")

    def versions(self, table: str) -> list[int]:
        """Numbers of a table's versions, rising."""
        return _numbers(self.table_root(table) / "versions")

    def version(self, table: str, v: int) -> TableVersion:
        """One version of a table."""
        record = self._whole(table, v)
        path = self.table_root(table) / "versions" / f"{v:020d}.json"
        try:
            return TableVersion.from_record(record)
        except (KeyError, TypeError) as error:
            raise _newer(path, error) from error

    def _whole(self, table: str, v: int) -> Json:
        records = [record for _, record in manifest.chain(v, self._manifests(table))]
        return manifest.combined(records[::-1])

    def _manifests(self, table: str) -> Callable[[int], Json]:
        directory = self.table_root(table) / "versions"
        return lambda v: read_json(directory / f"{v:020d}.json")

    def manifests(self, table: str) -> dict[int, Json]:
        """Content of a table's manifests, by number; see `manifest`."""
        read = self._manifests(table)
        return {v: read(v) for v in self.versions(table)}

    def newest(self, table: str) -> TableVersion | None:
        """The newest version of a table."""
        found = self.versions(table)
        return self.version(table, found[-1]) if found else None

    def database_versions(self) -> list[int]:
        """Numbers of the database's versions, rising."""
        return _numbers(self.root / "database")

    def database(self, k: int | None = None) -> DatabaseVersion | None:
        """One version of the database, the newest by default; None when there is none."""
        found = self.database_versions()
        if not found:
            return None
        number = found[-1] if k is None else k
        path = self.root / "database" / f"{number:020d}.json"
        record = read_json(path)
        try:
            return DatabaseVersion.from_record(record)
        except (KeyError, TypeError) as error:
            raise _newer(path, error) from error

    def database_at(self, n: int, part: int = 0) -> DatabaseVersion | None:
        """The newest version of the database that is not beyond an entry, and a CSN in the one after it."""
        for k in reversed(self.database_versions()):
            found = self.database(k)
            if found is not None and found.reach <= (n, part):
                return found
        return None

    def commit_table(self, table: str, version: TableVersion) -> None:
        """Make a version of a table; its files are written.

        Raises:
            LandingError: another writer committed this number.
        """
        sync_tree(self.table_root(table), version)
        reach(Step.FILES_DURABLE)
        directory = self.table_root(table) / "versions"
        make_directory(directory)
        # As read back: tuples are lists in JSON.
        record: Json = json.loads(json.dumps({**dataclasses.asdict(version), "version": VERSION}))
        since = manifest.ancestor(version.v, set(self.versions(table)).__contains__)
        short = manifest.difference(self._whole(table, since), record) if since else None
        commit(directory / f"{version.v:020d}.json", short or record)

    def commit_database(self, version: DatabaseVersion) -> None:
        """Make a version of the database; its tables' versions are committed."""
        make_directory(self.root / "database")
        path = self.root / "database" / f"{version.k:020d}.json"
        commit(path, dataclasses.asdict(version))
        reach(Step.DATABASE_DURABLE)

    # --- schemas ---------------------------------------------------------------------------

    def keep_schema(self, table: str, schema_id: str, record: Json) -> None:
        """Copy a schema file of the landing, so that versions can be read without it."""
        path = self.table_root(table) / "schemas" / f"{schema_id}.json"
        if path.exists():
            return
        make_directory(path.parent)
        with contextlib.suppress(LandingError):  # the same content, by another writer
            commit(path, record)

    def schema(self, table: str, schema_id: str) -> TableSchema:
        """A schema of a table."""
        record = read_json(self.table_root(table) / "schemas" / f"{schema_id}.json")
        numbers = self.decided(table).numbers.get(schema_id)
        parts = tuple(self.schema(table, part) for part in record.get("versions", {}).values())
        return TableSchema.from_record(schema_id, record, numbers, parts)

    def by_source(
        self, table: str, files: Iterable[StateFile]
    ) -> dict[str | None, list[StateFile]]:
        """Files of a table by the source whose rows they have; None for the only one."""
        sources: dict[str, str | None] = {}
        found: dict[str | None, list[StateFile]] = {}
        for file in files:
            if file.schema_id not in sources:
                sources[file.schema_id] = self.schema(table, file.schema_id).source
            found.setdefault(sources[file.schema_id], []).append(file)
        return found

    def files_of(
        self, table: str, files: Iterable[StateFile], source: str | None
    ) -> list[StateFile]:
        """Those of one source; all of them for None."""
        return list(files) if source is None else self.by_source(table, files).get(source, [])

    def schema_at(self, database: DatabaseVersion, table: str) -> TableSchema:
        """The schema of a table in a version of the database."""
        if self.format == PARQUET:
            return self.schema(table, self.version(table, database.tables[table]).schema_id)
        return self.schema(table, self.record(table, database.n)["schema_id"])

    def decided(self, table: str) -> Decided:
        """What somebody said of a table's columns."""
        numbers: dict[str, dict[str, int]] = {}
        changes = set()
        directory = self.table_root(table) / "columns"
        for name in names_in(directory):
            if not _DECIDED.fullmatch(name):
                continue
            record = read_json(directory / name)
            numbers |= record["numbers"]
            changes.add((int(record["n"]), str(record["old"]), str(record["new"])))
        return Decided(numbers, frozenset(changes))

    def decide(
        self, table: str, change: tuple[int, str, str], numbers: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Keep what somebody said of a table's columns; see `decided`."""
        n, old, new = change
        path = self.table_root(table) / "columns" / f"{n:020d}-{old}-{new}.json"
        make_directory(path.parent)
        commit(path, {"n": n, "old": old, "new": new, "numbers": numbers})

    def find_table(self, name: str) -> str:
        """Directory of a table, by that name or by ``schema.name``.

        Raises:
            ConfigError: it was never applied.
        """
        tables = self.tables()
        if name in tables:
            return name
        for table in tables:
            schema = self._newest_schema(table)
            if schema is not None and schema.title == name:
                return table
        raise ConfigError(
            f"{self.root} has no table {name!r}; it has: {', '.join(tables[:10]) or 'none yet'}"
        )

    def _newest_schema(self, table: str) -> TableSchema | None:
        if self.format != PARQUET:
            kept = self.records(table)
            return self.schema(table, self.record(table, kept[-1])["schema_id"]) if kept else None
        newest = self.newest(table)
        return None if newest is None else self.schema(table, newest.schema_id)

    # --- tables that others keep -------------------------------------------------------------

    def records(self, table: str, of: str = COMMITS) -> list[int]:
        """Entries at which a table was, or was about to be, committed; rising."""
        return _numbers(self.table_root(table) / of)

    def keep_record(self, table: str, n: int, record: Json, of: str = COMMITS) -> None:
        """Keep what a table will be at an entry, before the commit that brings it there."""
        path = self.table_root(table) / of / f"{n:020d}.json"
        make_directory(path.parent)
        if path.exists():  # of a run that was killed; it may have had other tests
            if read_json(path) == {**record, "version": VERSION}:
                return
            path.unlink()
        commit(path, record)

    def record(self, table: str, n: int, of: str = COMMITS) -> Json:
        """What was kept for the newest commit of a table that is not beyond an entry."""
        newest = max((k for k in self.records(table, of) if k <= n), default=n)
        return read_json(self.table_root(table) / of / f"{newest:020d}.json")

    def forget_records(self, table: str, n: int) -> None:
        """Remove the records before an entry that was committed, all but the last of them."""
        for of in (COMMITS, LOGGED):
            for k in [k for k in self.records(table, of) if k < n][:-1]:
                (self.table_root(table) / of / f"{k:020d}.json").unlink(missing_ok=True)


def utc_now() -> str:
    """Now, in ISO form."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")


def write_parquet(
    rows: pa.Table, root: Place, name: str, *, group_rows: int = 131_072
) -> tuple[str, int]:
    """Write a durable file under a name that is never used again; see `write_file`."""

    def write(file: BinaryIO) -> None:
        pq.write_table(
            rows, file, compression="zstd", compression_level=1, row_group_size=group_rows
        )

    return write_file(write, root, f"{name}-{secrets.token_hex(8)}.parquet")


def write_file(write: Callable[[BinaryIO], None], root: Place, name: str) -> tuple[str, int]:
    """Write a durable file.

    Args:
        write: writes its content.
        root: of the table.
        name: path from there, which is never used again.

    Returns:
        Its path relative to `root`, and its size.
    """
    path = root / name
    if isinstance(path, ObjectPath):
        held = io.BytesIO()
        write(held)
        path.store.put_new(path.path, held.getvalue())
        return name, held.tell()
    make_directory(path.parent)
    try:
        with path.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            return name, file.tell()
    except OSError as error:
        raise DiskError(f"{path} cannot be written: {error.strerror}") from error


def make_directory(path: Place) -> None:
    """Make a directory and its parents durable under their names; a store has none."""
    if isinstance(path, ObjectPath) or path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(root: Place, version: TableVersion) -> None:
    """Make the names of a version's files durable; on a store they are."""
    if isinstance(root, Path):
        for directory in {(root / path).parent for path in version.paths}:
            sync_directory(directory)


def commit(path: Place, record: Json) -> None:
    """Give a new file its content and its name in one step; fail when the name is taken."""
    content = json.dumps({**record, "version": VERSION}, sort_keys=True).encode()
    is_first = _put(path, content) if isinstance(path, ObjectPath) else _link(path, content)
    if not is_first:
        raise LandingError(
            f"{path} was committed by another writer at the same time; nothing was changed by "
            "this one, run it again"
        )


def _put(path: ObjectPath, content: bytes) -> bool:
    reach(Step.MANIFEST_WRITTEN)
    is_first = put_new(path, content)
    reach(Step.MANIFEST_LINKED)
    reach(Step.MANIFEST_DURABLE)
    return is_first


def _link(path: Path, content: bytes) -> bool:
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with hidden.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        reach(Step.MANIFEST_WRITTEN)
        os.link(hidden, path)
        reach(Step.MANIFEST_LINKED)
        sync_directory(path.parent)
        reach(Step.MANIFEST_DURABLE)
    except FileExistsError:
        return False
    except OSError as error:
        raise DiskError(f"{path} cannot be committed: {error.strerror}") from error
    finally:
        hidden.unlink(missing_ok=True)
    return True


def _is_ours(name: str) -> bool:
    """Whether a name in a directory without ``target.json`` is from a run that died before it."""
    return name == ".lock" or name.startswith((".target.json.", "probe-", localdisk.PROBE))


def _numbers(directory: Place) -> list[int]:
    found = map(_NUMBER.fullmatch, names_in(directory))
    return sorted(int(match[1]) for match in found if match)


def read_json(path: Place) -> Json:
    """Read a manifest.

    Raises:
        ConfigError: it is gone.
        LandingError: it is damaged.
    """
    try:
        record: Json = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} is gone: vacuum removed that version") from None
    except (OSError, ValueError) as error:
        raise LandingError(f"{path} cannot be read: {error}") from error
    _check_version(path, record)
    return record


def _check_version(path: Place, record: Json) -> None:
    """Refuse what a newer program wrote."""
    try:
        check_version(record, VERSION)
    except NewerFormatError as error:
        raise unreadable(path, error, "") from error


def _newer(path: Place, error: Exception) -> GaussDecodeError:
    """The error of a version with fields, or without some, as a newer program writes it."""
    return unreadable(path, NewerFormatError(f"it cannot be understood: {error}"), "")
