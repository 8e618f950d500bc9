"""Store a target: Delta Lake tables of immutable files, and versions of all tables together.

::

    <target>/target.json                        which landing it belongs to
    <target>/tables/<table>/current/            a Delta table: its rows
    <target>/tables/<table>/history/            a Delta table: closed intervals
    <target>/tables/<table>/changelog/          a Delta table: changes
    <target>/tables/<table>/quarantine/         a Delta table: rows that failed a test
    <target>/tables/<table>/*/_iceberg/         Iceberg metadata of such a table; see `catalogs.iceberg`
    <target>/positions/                         a Delta table: which versions of the others belong together
    <target>/database/<k>.json                  one version of all tables, complete up to entry n

The log of ``current`` decides: its commit says up to which entry the table is applied, and which
versions of the other three belong to it. These are committed before. After a kill they are ahead, and
the next commit removes the files that the newest version of ``current`` does not name. Files are never
changed and their names never used twice. Every step is durable before the next; a crash leaves files
that no version names, which `vacuum` removes.

A lock object on the store would need clocks and a lease, and still the number that is put only if
absent.
"""

import contextlib
import dataclasses
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

from gaussdecode.errors import ConfigError, LandingError, OvertakenError, unreadable
from gaussdecode.model.seal import NewerFormatError, check_version
from gaussdecode.model.title import split_title, table_directory
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.offset import Offset
from gaussdecode.spark.log.place import Given, ObjectPath, Place, names_in, place_of
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.target import local_disk
from gaussdecode.spark.target.catalog_names import full_pattern
from gaussdecode.spark.target.comments import NOTHING_CHANGED, Changed
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.decided import Decided
from gaussdecode.spark.target.durable import make_directory, put_file
from gaussdecode.spark.target.failpoint import Step, reach
from gaussdecode.spark.target.formats import DELTA
from gaussdecode.spark.target.state_file import StateFile, TableVersion
from gaussdecode.spark.target.table_log import TableLog
from gaussdecode.spark.target.table_shape import shape_of

VERSION: Final = 1
LAYOUT: Final = 2
"""Format version of a target; the first one had tables in its own format."""
_DECIDED: Final = re.compile(r"\d.*\.json")
_NUMBER: Final = re.compile(r"(\d{20})\.json")
Json = dict[str, Any]  # decoded JSON
LOAD: Final = "load"
"""Directory below the target of a load of existing rows, which versions up to 0.2 had."""


class Target:
    """The target below a directory.

    Attributes:
        root: directory, or URL.
        landing_id: id of the landing that it is made from.
        format: table format for readers, one of `FORMATS`.
        hides: whether current tables in an Iceberg catalog hide our own columns.
        catalog: name pattern in a catalog, see `catalog_names`; empty without a catalog.
    """

    def __init__(self, root: Given) -> None:
        """Open a target.

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
        if record.get("layout", 1) < LAYOUT:
            raise ConfigError(
                f"{self.root} is a target of an earlier version, whose tables were in a format of its own: give "
                "an empty directory, and apply to it"
            )
        _check_version(path, {"version": record["layout"]}, LAYOUT)
        self.landing_id = str(record["landing_id"])
        self.format = str(record.get("format", DELTA))
        self.catalog = str(record.get("catalog", ""))
        self.hides = bool(record.get("hides", False))
        self._logs: dict[str, TableLog] = {}

    @classmethod
    def create(
        cls,
        root: Given,
        landing: Landing,
        kept_as: str | None = None,
        catalog: str | None = None,
        hides: bool = False,
    ) -> Self:
        """Open a target, or create one for a landing.

        Args:
            root: directory, or URL.
            landing: landing that it is made from.
            kept_as: one of `FORMATS`; None for the existing format, or Delta Lake for a new target.
            catalog: see `catalog_names.full_pattern`; None for the existing one, or none for a new
                target.
            hides: see `Target`; for a new target.

        Raises:
            ConfigError: the target belongs to another landing, has another format or catalog, or
                the directory holds something else.
        """
        path = place_of(root)
        pattern = None if catalog is None else full_pattern(catalog)
        if not (path / "target.json").exists():
            if any(not _is_ours(name) for name in names_in(path)):
                raise ConfigError(f"{path} holds something else; give an empty directory")
            if isinstance(path, ObjectPath):
                path.store.prove()
            else:
                local_disk.prove(path)
            make_directory(path)
            record: Json = {"layout": LAYOUT, "landing_id": landing.landing_id}
            record |= {"format": kept_as or DELTA, "catalog": pattern, "hides": hides or None}
            commit(path / "target.json", {key: of for key, of in record.items() if of is not None})
        target = cls(path)
        if kept_as not in (None, target.format):
            raise ConfigError(
                f"{path} is kept as {target.format}, not {kept_as}; give each format its own target"
            )
        if pattern not in (None, target.catalog):
            raise ConfigError(
                f"the tables of {path} have {f'names in {target.catalog}' if target.catalog else 'no names'}, not "
                f"names in {pattern}; give each catalog its own target"
            )
        if hides and not target.hides:
            raise ConfigError(
                f"the tables of {path} were made with technical columns, which they keep: begin a new target"
            )
        target.check_landing(landing)
        return target

    def check_landing(self, landing: Landing) -> None:
        """Check that the target is made from a landing, with the entries that it has now.

        Raises:
            ConfigError: it is made from another landing.
            LandingError: it is made from other entries: those of a copy, or from before a restore.
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
        """Keep other writers on this machine out; writers elsewhere are kept out by taken numbers.

        On an object store there is no lock, only taken numbers.

        Raises:
            ConfigError: the file system has no locks or hard links; see `local_disk`.
            TargetBusyError: another writer is running.
        """
        if isinstance(self.root, ObjectPath):
            yield
            return
        with local_disk.locked(self.root):
            local_disk.prove(self.root)
            yield

    @property
    def is_shared(self) -> bool:
        """Whether it is on an object store, where only taken numbers keep writers apart."""
        return isinstance(self.root, ObjectPath)

    def check_loaded(self) -> None:
        """Check that no load of existing rows was interrupted.

        Raises:
            ConfigError: one was; tables that it has not loaded would lack these rows.
        """
        if (self.root / LOAD).is_dir():
            raise ConfigError(
                f"the existing rows of {self.root} are not all loaded: spark snapshot of an earlier "
                f"version was interrupted. Finish it with that version, or remove {self.root / LOAD} "
                "to go without them"
            )

    # --- versions --------------------------------------------------------------------------

    def table_root(self, table: str) -> Place:
        """Directory of a table."""
        return self.root / "tables" / table

    def tables(self) -> list[str]:
        """Directories of all tables."""
        return names_in(self.root / "tables")

    def log(self, table: str) -> TableLog:
        """The Delta tables of a table."""
        if table not in self._logs:
            self._logs[table] = TableLog(self.table_root(table), self.landing_id)
        return self._logs[table]

    def version(self, table: str, v: int) -> TableVersion:
        """One version of a table."""
        return self.log(table).version(v)

    def newest(self, table: str) -> TableVersion | None:
        """The newest version of a table."""
        return self.log(table).newest()

    def database_versions(self) -> list[int]:
        """Numbers of the database's versions, rising."""
        found = map(_NUMBER.fullmatch, names_in(self.root / "database"))
        return sorted(int(match[1]) for match in found if match)

    def database(self, k: int | None = None) -> DatabaseVersion | None:
        """One version of the database, the newest by default; None if there is none."""
        found = self.database_versions()
        if not found:
            return None
        number = found[-1] if k is None else k
        path = self.root / "database" / f"{number:020d}.json"
        record = read_json(path)
        try:
            return DatabaseVersion.from_record(record)
        except (KeyError, TypeError) as error:
            newer = NewerFormatError(f"it cannot be understood: {error}")
            raise unreadable(path, newer, "") from error

    def database_at(self, n: int, part: int = 0) -> DatabaseVersion | None:
        """The newest database version that is not beyond an entry and a CSN in the next entry."""
        for k in reversed(self.database_versions()):
            found = self.database(k)
            if found is not None and found.reach <= (n, part):
                return found
        return None

    def commit_table(
        self, table: str, version: TableVersion, *, comment: str = "", with_vectors: bool = False,
        is_change: bool = True, said: Changed = NOTHING_CHANGED,
    ) -> None:  # fmt: skip
        """Commit a version of a table; its files are already written. See `TableLog.commit`.

        Raises:
            LandingError: another writer committed this number.
        """
        schema = self.schema(table, version.schema_id)
        shape = shape_of(schema, version.changelog_by, comment, version.partition)
        shape = dataclasses.replace(shape, said=said)
        self.log(table).commit(version, shape, with_vectors=with_vectors, is_change=is_change)

    def commit_database(self, version: DatabaseVersion) -> None:
        """Commit a version of the database; its tables' versions are already committed."""
        make_directory(self.root / "database")
        path = self.root / "database" / f"{version.k:020d}.json"
        commit(path, version.to_record())
        reach(Step.DATABASE_DURABLE)

    # --- schemas ---------------------------------------------------------------------------

    def keep_schema(self, table: str, schema_id: str, record: Json) -> None:
        """Copy a schema file of the landing, so that versions stay readable without the landing."""
        path = self.table_root(table) / "schemas" / f"{schema_id}.json"
        if path.exists():
            return
        make_directory(path.parent)
        with contextlib.suppress(LandingError):  # the same content, by another writer
            commit(path, record)

    def schema_records(self, table: str) -> dict[str, Json]:
        """All schemas of a table in the target, by id."""
        directory = self.table_root(table) / "schemas"
        return {n.removesuffix(".json"): read_json(directory / n) for n in names_in(directory)}

    def schema(self, table: str, schema_id: str) -> TableSchema:
        """A schema of a table."""
        record = read_json(self.table_root(table) / "schemas" / f"{schema_id}.json")
        numbers = self.decided(table).numbers.get(schema_id)
        parts = tuple(self.schema(table, part) for part in record.get("versions", {}).values())
        return TableSchema.from_record(schema_id, record, numbers, parts)

    def by_source(
        self, table: str, files: Iterable[StateFile]
    ) -> dict[str | None, list[StateFile]]:
        """Files of a table by the source of their rows; None for the only source."""
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
        """Files of one source; all files for None."""
        return list(files) if source is None else self.by_source(table, files).get(source, [])

    def schema_at(self, database: DatabaseVersion, table: str) -> TableSchema:
        """The schema of a table in a version of the database."""
        return self.schema(table, self.version(table, database.tables[table]).schema_id)

    def decided(self, table: str) -> Decided:
        """An operator's declarations about a table's columns."""
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
        """Save an operator's declarations about a table's columns; see `decided`."""
        n, old, new = change
        path = self.table_root(table) / "columns" / f"{n:020d}-{old}-{new}.json"
        make_directory(path.parent)
        commit(path, {"n": n, "old": old, "new": new, "numbers": numbers})

    def masks(self, table: str) -> Json | None:
        """Saved masks of a table, see `masks.to_record`; None if none were saved."""
        path = self.table_root(table) / "masks.json"
        return read_json(path) if path.exists() else None

    def keep_masks(self, table: str, record: Json) -> None:
        """Save a table's masks, before its first version."""
        make_directory(self.table_root(table))
        commit(self.table_root(table) / "masks.json", record)

    def find_table(self, name: str) -> str:
        """Directory of a table, by ``schema.name`` or by that name.

        Raises:
            ConfigError: the table was never applied.
        """
        tables = self.tables()
        database = self.database()
        renamed = {} if database is None else database.renamed
        found = [table for table, title in renamed.items() if title == name]
        if found:  # of two with one name the later one has it: the other table was dropped
            return max(found, key=self._age)
        if name in tables:
            return name
        for table in tables:
            if self.title(table) == name:
                return table
        raise ConfigError(
            f"{self.root} has no table {name!r}; it has: {', '.join(tables[:10]) or 'none yet'}"
        )

    def living(self, database: DatabaseVersion) -> list[str]:
        """Directories of a version without those of dropped tables whose names others have now."""
        taken = set(database.renamed.values())

        def is_alive(table: str) -> bool:
            title = self.schema_at(database, table).title
            return title not in taken and table_directory(*split_title(title)) == table

        return sorted(of for of in database.tables if of in database.renamed or is_alive(of))

    def title(self, table: str) -> str | None:
        """``schema.name`` of a table in its newest version; None if it has none."""
        newest = self.newest(table)
        return None if newest is None else self.schema(table, newest.schema_id).title

    def _age(self, table: str) -> int:
        newest = self.newest(table)
        return -1 if newest is None else newest.n


def utc_now() -> str:
    """The current time, in ISO form."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")


def commit(path: Place, record: Json) -> None:
    """Create a file with its content in one step; fail if the name exists."""
    content = json.dumps({**record, "version": VERSION}, sort_keys=True).encode()
    if not put_file(path, content):
        raise OvertakenError(
            f"{path} was committed by another writer at the same time; nothing was changed by "
            "this one, run it again"
        )


def _is_ours(name: str) -> bool:
    """Whether a name in a directory without ``target.json`` is from a run killed before writing it."""
    return name == ".lock" or name.startswith((".target.json.", "probe-", local_disk.PROBE))


def read_json(path: Place) -> Json:
    """Read a file of the target.

    Raises:
        ConfigError: the file was removed.
        LandingError: the file is damaged.
    """
    try:
        record: Json = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} is gone: vacuum removed that version") from None
    except (OSError, ValueError) as error:
        raise LandingError(f"{path} cannot be read: {error}") from error
    _check_version(path, record)
    return record


def _check_version(path: Place, record: Json, known: int = VERSION) -> None:
    """Refuse a file of a newer program."""
    try:
        check_version(record, known)
    except NewerFormatError as error:
        raise unreadable(path, error, "") from error
