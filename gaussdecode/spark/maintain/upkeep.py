"""Maintain a target: merge small files, remove old versions.

`compact` commits versions with the same rows at the same entry in fewer files. `vacuum` removes
versions older than an age, and files that no version names any more. It never removes closed intervals,
which are the history.
"""

import collections
import contextlib
import dataclasses
import datetime as dt
import functools
import json
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.catalogs.announce import (
    announce,
    announce_newest,
    forget_snapshots,
    open_catalog,
)
from gaussdecode.spark.log.landing import ORDER_COLUMNS
from gaussdecode.spark.log.place import Given, Place, files_below, read_table
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge import tasks
from gaussdecode.spark.merge.bucket import gather, merge_bucket, replaced
from gaussdecode.spark.merge.engine import Engine, SparkEngine
from gaussdecode.spark.merge.sizing import MAX_BUCKETS, MIB, Sizes, shared_out
from gaussdecode.spark.merge.tasks import Job, MapTask
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.delta_log import LOG
from gaussdecode.spark.target.failpoint import Step, reach
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.state_file import (
    CHANGELOG,
    FOLDERS,
    HISTORY,
    StateFile,
    TableVersion,
    write_state,
)
from gaussdecode.spark.target.store import Target, utc_now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY: Final = 86_400.0
_SHARED_SECONDS: Final = 3600.0  # longer than any apply; arbitrary


@dataclasses.dataclass(frozen=True, slots=True)
class MergeTask:
    """Files of one kind to merge into one.

    Attributes:
        table: directory name of the table.
        table_root: directory of the table.
        kind: ``closed`` or ``changelog``.
        name: name of the new file, without its extension.
        files: files of one schema version and one partition.
    """

    table: str
    table_root: Place
    kind: str
    name: str
    files: tuple[StateFile, ...]


@dataclasses.dataclass(slots=True)
class Compacted:
    """Result of a compaction: tables with new versions, files before and after."""

    tables: int = 0
    files_before: int = 0
    files_after: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Vacuumed:
    """Result of a vacuum."""

    versions: int
    files: int
    bytes: int


def compact(
    spark: "SparkSession",
    target: Given,
    *,
    tables: Collection[str] | None = None,
    target_bytes: int = 128 * MIB,
    buckets: int | None = None,
) -> Compacted:
    """Merge the small files of a target, with Spark.

    Args:
        spark: a running session.
        target: directory.
        tables: table names; None for all.
        target_bytes: approximate size of merged files.
        buckets: spread current rows over this number of buckets; None to leave them.
    """
    return compact_with(
        SparkEngine(spark), target, tables=tables, target_bytes=target_bytes, buckets=buckets
    )


def compact_with(
    engine: Engine,
    target: Given,
    *,
    tables: Collection[str] | None = None,
    target_bytes: int = 128 * MIB,
    buckets: int | None = None,
    fewest: int = 2,
    is_settling: bool = True,
) -> Compacted:
    """Merge the small files of a target with another engine; see `compact`.

    Args:
        engine: runs the tasks.
        target: see `compact`, as for the next arguments.
        tables: see there.
        target_bytes: see there.
        buckets: see there.
        fewest: merge files of one size, within a factor of 16, if there are at least so many; 2:
            files of any size.
        is_settling: write changes that are in added files into the files of their buckets.

    Raises:
        ConfigError: a table does not exist, or the number of buckets is out of range.
        LandingError: another writer is running.
    """
    if buckets is not None and not 1 <= buckets <= MAX_BUCKETS:
        raise ConfigError(f"buckets must be 1 to {MAX_BUCKETS}, got {buckets}")
    store = Target(target)
    with store.locked():
        database = store.database()
        if database is None:
            raise ConfigError(f"{store.root} has no version yet: apply to it first")
        names = sorted(database.tables) if tables is None else map(store.find_table, tables)
        wanted = _Wanted(target_bytes, buckets, fewest, is_settling)
        return _compact(engine, store, database, list(names), wanted)


@dataclasses.dataclass(frozen=True, slots=True)
class _Wanted:
    """Arguments of `compact_with`."""

    target_bytes: int
    buckets: int | None
    fewest: int
    is_settling: bool


def _compact(
    engine: Engine, store: Target, database: DatabaseVersion, names: Sequence[str], wanted: _Wanted
) -> Compacted:
    token, done, numbers = secrets.token_hex(6), Compacted(), dict(database.tables)
    for name in names:
        version = store.newest(name)
        if version is None or version.v != database.tables.get(name):
            continue  # ahead of the database: the next apply comes first
        merged = _merge_small(engine, store, name, version, wanted, token)
        for source in version.parts or (None,):
            merged = _settled(engine, store, name, merged, source, wanted, token)
        if merged == version:
            continue
        merged = dataclasses.replace(merged, v=version.v + 1, created=utc_now())
        store.commit_table(name, merged, with_vectors=database.vectors, is_change=False)
        numbers[name] = version.v + 1
        done.tables += 1
        done.files_before += len(version.files)
        done.files_after += len(merged.files)
    if done.tables:
        now = dataclasses.replace(database, k=database.k + 1, tables=numbers, created=utc_now())
        announce(store, now, database)
        store.commit_database(now)
    return done


def _merge_small(
    engine: Engine, store: Target, table: str, version: TableVersion, wanted: _Wanted, token: str
) -> TableVersion:
    planned = []
    for kind, files in (("closed", version.closed), ("changelog", version.changelog)):
        for part in _groups(files, wanted.target_bytes, wanted.fewest):
            folder = f"{CHANGELOG}/{part[0].partition}" if kind == CHANGELOG else HISTORY
            name = f"{folder}/{token}-{kind}"
            planned.append(MergeTask(table, store.table_root(table), kind, name, part))
    for text in engine.each(planned, merge_files):
        index, record = json.loads(text)
        task, new = next(t for t in planned if t.files[0].path == index), StateFile(**record)
        held = getattr(version, task.kind)
        gone = {file.path for file in task.files}
        kept = tuple(file for file in held if file.path not in gone)
        version = (
            dataclasses.replace(version, closed=(*kept, new))
            if task.kind == "closed"
            else dataclasses.replace(version, changelog=(*kept, new))
        )
    return version


def _groups(
    files: Sequence[StateFile], target_bytes: int, fewest: int
) -> Iterator[tuple[StateFile, ...]]:
    """Choose the files to merge: small files of one version and partition, in order."""
    by_kind: dict[tuple[str, str, int], list[StateFile]] = {}
    for file in files:
        if file.bytes < target_bytes // 2:
            tier = file.bytes.bit_length() // 4 if fewest > 2 else 0
            by_kind.setdefault((file.schema_id, file.partition, tier), []).append(file)
    for found in by_kind.values():
        if len(found) < fewest:
            continue
        group: list[StateFile] = []
        for file in found:
            if sum(one.bytes for one in group) + file.bytes > target_bytes and group:
                if len(group) > 1:
                    yield tuple(group)
                group = []
            group.append(file)
        if len(group) > 1:
            yield tuple(group)


def merge_files(task: MergeTask) -> Iterator[str]:
    """Write the rows of several files into one; JSON of the first path and the new file."""
    root = task.table_root
    try:
        parts = [read_table(root / file.path) for file in task.files]
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{root}: a file cannot be read: {error}; restore it") from error
    # Files that were written anew may lack a column of old values, or part of it.
    rows = pa.concat_tables(parts, promote_options="permissive")
    first = task.files[0]
    new = write_state(rows, root, task.name, first.schema_id, partition=first.partition)
    yield json.dumps([first.path, dataclasses.asdict(new)])


def _settled(
    engine: Engine,
    store: Target,
    table: str,
    version: TableVersion,
    source: str | None,
    wanted: _Wanted,
    token: str,
) -> TableVersion:
    """A version with the rows of one source (or the only one) in bucket files."""
    by_source = store.by_source(table, version.current) if version.parts else {}
    held = by_source.get(source, []) if version.parts else list(version.current)
    before = version.buckets_of(source)
    assert before is not None
    buckets = wanted.buckets or before
    unsettled = _unsettled(held, before) if wanted.is_settling else ()
    if buckets == before and not unsettled:
        return version
    schema = store.schema(table, version.schema_id).of(source)
    assert schema is not None
    forced = () if buckets != before else unsettled
    layout = (version.partition, version.cluster)
    by_source[source] = _spread(engine, store, table, schema, held, buckets, forced, layout, token)
    current = sorted((f for of in by_source.values() for f in of), key=lambda file: file.bucket)
    if source is None:
        return dataclasses.replace(version, current=tuple(current), buckets=buckets)
    part = dataclasses.replace(version.parts[source], buckets=buckets)
    return dataclasses.replace(
        version, current=tuple(current), parts={**version.parts, source: part}
    )


def _spread(
    engine: Engine,
    store: Target,
    table: str,
    schema: TableSchema,
    files: Sequence[StateFile],
    buckets: int,
    forced: tuple[int, ...],
    layout: tuple[tuple[str, ...], tuple[str, ...]],
    token: str,
) -> list[StateFile]:
    """Write buckets whole: the named ones, or all if their number changes."""
    schemas = {i: store.schema(table, i) for i in {f.schema_id for f in files}}
    schemas[schema.schema_id] = schema
    job = Job(
        index=0,
        table_root=store.table_root(table),
        schema=schema,
        schemas=schemas,
        order=ORDER_COLUMNS["lsn"],
        resets=(),
        buckets=buckets,
        base=tuple(files),
        beside=(),
        is_rebuilt=not forced,
        with_history=False,
        with_vectors=False,
        token=token,
        partition=layout[0],
        cluster=layout[1],
    )
    planned = [MapTask(job, job.table_root, base=(file,)) for file in files]
    if forced:
        planned = [MapTask(job, job.table_root, forced=forced)]
    each = sum(file.bytes for file in files) // buckets
    shares = shared_out(((job.group(b), each) for b in range(buckets)), Sizes().reduce)
    merge = functools.partial(merge_bucket, jobs=[job]), shares
    texts = engine.gathered(
        planned, tasks.map_events, (merge, (functools.partial(gather, jobs=[job]), {}))
    )
    current = list(files) if forced else []
    for text in texts:
        current = replaced(current, json.loads(text))
    return sorted(current, key=lambda file: file.bucket)


def _unsettled(files: Sequence[StateFile], buckets: int) -> tuple[int, ...]:
    """Buckets with rows that are no longer current, or with rows in added files."""
    if any(file.bucket < 0 for file in files):
        return tuple(range(buckets))
    held = collections.Counter((file.bucket, file.partition) for file in files)
    return tuple(sorted({f.bucket for f in files if f.deletes or held[f.bucket, f.partition] > 1}))


def vacuum(target: Given, *, older_than_seconds: float = 7 * DAY) -> Vacuumed:
    """Remove old versions, and files that no version names.

    Args:
        target: directory or URL.
        older_than_seconds: versions and files younger than this stay, and so does the newest
            version. Leave readers, and writers on other machines, time to finish.

    Raises:
        ConfigError: on an object store, files of a running writer might be removed.
        LandingError: a writer is running.
    """
    store = Target(target)
    if store.is_shared and older_than_seconds < _SHARED_SECONDS:
        raise ConfigError(
            f"{store.root}: on an object store a running writer cannot be detected, so files younger than an hour stay; "
            f"give at least {_SHARED_SECONDS / DAY:.3f} days"
        )
    with contextlib.ExitStack() as held:
        held.enter_context(store.locked())
        cut, catalog = time.time() - older_than_seconds, None
        if store.format == ICEBERG:
            announce_newest(store)  # or it would name files that go
            catalog = held.enter_context(open_catalog(store.catalog))
        removed, kept = _forget_database(store, cut)
        files, size = _remove_unfinished(store, cut), 0
        for table in store.tables():
            alive = _alive(store, table, kept.get(table, set()), cut)
            if catalog is not None:
                forget_snapshots(catalog, store, table, alive, cut)
            forgotten, named = store.log(table).forget(alive)
            reach(Step.FILES_REMOVED)
            removed += forgotten
            for file in store.log(table).files():
                if file.path not in named and file.modified <= cut:
                    (store.table_root(table) / file.path).unlink()
                    files, size = files + 1, size + file.bytes
        return Vacuumed(removed, files, size)


def _remove_unfinished(store: Target, cut: float) -> int:
    """Remove files that a killed writer did not commit."""
    tables = [
        store.table_root(table) / folder / LOG for table in store.tables() for folder in FOLDERS
    ]
    old = [
        directory / file.path
        for directory in (store.root / "database", *tables)
        for file in files_below(directory)
        if file.path.startswith(".") and file.modified <= cut
    ]
    for path in old:
        path.unlink()
    return len(old)


def _forget_database(store: Target, cut: float) -> tuple[int, dict[str, set[int]]]:
    """Remove old database versions; return how many, and the table versions that others name."""
    removed = 0
    kept: dict[str, set[int]] = {}
    versions = store.database_versions()
    for k in versions:
        found = store.database(k)
        if found is not None and k != versions[-1] and _age(found.created) <= cut:
            (store.root / "database" / f"{k:020d}.json").unlink()
            removed += 1
            continue
        for table, v in ({} if found is None else found.tables).items():
            kept.setdefault(table, set()).add(v)
    return removed, kept


def _alive(store: Target, table: str, kept: Collection[int], cut: float) -> set[int]:
    """Versions of a table that readers may use."""
    log = store.log(table)
    versions = log.versions()
    ages = {v: _age(log.created(v)) for v in versions}
    return {v for v in versions if v in kept or v == versions[-1] or ages[v] > cut}


def _age(created: str) -> float:
    return dt.datetime.fromisoformat(created).timestamp()
