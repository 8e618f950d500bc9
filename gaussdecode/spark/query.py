"""Read a target's tables as DataFrames: current state, history, changelog, or all tables at once.

Every function reads one committed version, whose files never change. Reading an earlier state needs
history, which gives every point since it began. Without history a point exists only if an apply ended
exactly there.
"""

from collections.abc import Container, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError
from gaussdecode.spark.checks.data_check import FAILED, held_rows
from gaussdecode.spark.log.events import ENDS, KEY, change_fields, stamp_fields
from gaussdecode.spark.log.landing import Landing, Point, Reach
from gaussdecode.spark.log.place import Given, Place
from gaussdecode.spark.log.schema import NAMES_TYPE, RAW, RAW_TYPE, UNCHANGED, TableSchema
from gaussdecode.spark.log.sql_text import quoted
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.deletion_vectors import Vector
from gaussdecode.spark.target.frames import read_versions
from gaussdecode.spark.target.state_file import StateFile, TableVersion
from gaussdecode.spark.target.store import Target

_OF_COLUMNS: Final = [pa.field(UNCHANGED, NAMES_TYPE), pa.field(RAW, RAW_TYPE)]
_ENDED: Final = [pa.field(name, of) for name, of in ENDS.items()]


def current(
    spark: SparkSession,
    target: Given,
    table: str,
    *,
    at: Point | None = None,
    root: Given | None = None,
    columns: Container[str] | None = None,
) -> DataFrame:
    """Read the rows of a table.

    Args:
        spark: a running session.
        target: directory or URL.
        table: ``schema.name``, or its directory.
        at: an earlier point; None for the newest version of the database.
        root: root of the landing; needed for a point by time or CSN.
        columns: columns to read from files at a URL, where Spark cannot prune columns itself; None
            for all. Of our own columns only ``gd_raw`` and ``gd_unchanged`` can be left out.

    Returns:
        Its columns, after ours: the last change of the row (``gd_n``, ``gd_lsn``, ``gd_ts``,
        ...), ``gd_raw`` and ``gd_unchanged``: columns whose value was never sent.

    Raises:
        ConfigError: there is no such table, or no such point.
    """
    store = Target(target)
    directory = store.find_table(table)
    newest = _newest(store)
    version = _version(store, newest, directory)
    stop = newest.stopped.get(directory)
    if stop is not None and at is not None and at.n == stop["n"]:
        return _current(spark, store, directory, version, columns)
    if at is None or at == Point():
        _check_moves(store, newest, directory)
        return _current(spark, store, directory, version, columns)
    if at.lsn is not None and version.history_from == -1 and at.lsn <= newest.lsn:
        return _at_lsn(history(spark, target, table, columns=columns), newest.epoch, at.lsn)
    reach = _reach(store, at, root)
    n, part = reach.whole, reach.csn or 0
    exact = store.database_at(n, part)
    is_exact = exact is not None and exact.reach == (n, part) and directory in exact.tables
    if exact is not None and is_exact and at.lsn is None:
        return _current(spark, store, directory, _version(store, exact, directory), columns)
    if version.history_from is None or n < version.history_from:
        raise ConfigError(_no_such_point(store, table, reach.n, version))
    if (n, part) > newest.reach:
        raise ConfigError(
            f"{store.root} is at entry {newest.n}, entry {reach.n} is not applied yet"
        )
    if stop is not None and n > stop["n"]:
        _check_moves(store, newest, directory)
    frame = history(spark, target, table, columns=columns)
    if at.lsn is not None:
        return _at_lsn(frame, newest.epoch, at.lsn)
    has_begun = _is_reached("gd_n", "gd_csn", reach)
    has_ended = F.col("gd_to_n").isNotNull() & _is_reached("gd_to_n", "gd_to_csn", reach)
    return frame.where(has_begun & ~has_ended).drop(*ENDS)


def _is_reached(n_name: str, csn_name: str, reach: Reach) -> Column:
    """Whether a change is in the part of the log up to a point."""
    is_whole = F.col(n_name) <= reach.whole
    if reach.csn is None:
        return is_whole
    csn = F.coalesce(csn_name, F.lit(0))
    return is_whole | ((F.col(n_name) == reach.n) & (csn <= F.lit(reach.csn)))


def _check_moves(store: Target, database: DatabaseVersion, directory: str) -> None:
    """Refuse to show a stopped table as if it were as far as the others.

    Raises:
        ConfigError: the table is stopped.
    """
    stop = database.stopped.get(directory)
    if stop is not None:
        raise ConfigError(
            f"{store.root}: {directory} stands still at entry {stop['n']}, the others are at "
            f"{database.n}: {stop['why']}. Ask with --n {stop['n']}, or resolve it: "
            "gaussdecode spark status says of which tables"
        )


def _at_lsn(frame: DataFrame, epoch: int, lsn: int) -> DataFrame:
    """Rows that are valid after the transaction which ends at an LSN of the newest epoch."""
    has_begun = _is_through("gd_epoch", "gd_lsn", epoch, lsn)
    has_ended = F.col("gd_to_n").isNotNull() & _is_through("gd_to_epoch", "gd_to_lsn", epoch, lsn)
    return frame.where(has_begun & ~has_ended).drop(*ENDS)


def _is_through(epoch_name: str, lsn_name: str, epoch: int, lsn: int) -> Column:
    at_epoch = F.col(epoch_name) == epoch
    return (F.col(epoch_name) < epoch) | (at_epoch & (F.col(lsn_name) <= F.lit(lsn)))


def _no_such_point(store: Target, table: str, n: int, version: TableVersion) -> str:
    found = [v.n for k in store.database_versions() if (v := store.database(k)) is not None]
    near = ", ".join(str(number) for number in found[-5:])
    since = (
        "no history"
        if version.history_from is None
        else (f"history since entry {version.history_from}")
    )
    return (
        f"{store.root}: {table} has {since}, so entry {n} cannot be shown; versions are at "
        f"entries {near}. Apply with history, or to that entry"
    )


def _reach(store: Target, at: Point, root: Given | None) -> Reach:
    """Find the part of the log up to a point, with the landing's log if needed."""
    _check_same(store, at, root)
    return Reach(at.n) if at.n is not None else _landing(root).reach(at)


def _check_same(store: Target, at: Point, root: Given | None) -> None:
    """Check that a point and a landing belong to the target's landing.

    Raises:
        ConfigError: they belong to another landing.
        LandingError: see `Target.check_landing`.
    """
    at.check_landing(store.landing_id, f"{store.root} is made from")
    if root is not None:
        store.check_landing(Landing(root))


def _landing(root: Given | None) -> Landing:
    if root is None:
        raise ConfigError("to travel by LSN, CSN or time, give the root of the landing too")
    return Landing(root)


def history(
    spark: SparkSession, target: Given, table: str, *, columns: Container[str] | None = None
) -> DataFrame:
    """Read all versions of a table's rows: valid from ``gd_...`` until ``gd_to_...``.

    Current rows have NULL in ``gd_to_...``.

    Args:
        spark: a running session.
        target: directory or URL.
        table: ``schema.name``, or its directory.
        columns: see `current`.

    Raises:
        ConfigError: there is no such table, or it was applied without history.
    """
    store = Target(target)
    directory = store.find_table(table)
    version = _version(store, _newest(store), directory)
    if version.history_from is None:
        raise ConfigError(f"{store.root}: {table} was applied without history")
    now = _current(spark, store, directory, version, columns)
    if version.quarantine:
        held = _held(spark, store, directory, version.schema_id, version.quarantine)
        now = now.unionByName(held.select(*map(quoted, now.columns)))
    if not version.closed:
        ends = [F.lit(None).cast(_type_of(name)).alias(name) for name in ENDS]
        return now.select(*ends, "*")
    closed = _read(spark, store, directory, version.closed, version, closed=True, columns=columns)
    return closed.unionByName(now, allowMissingColumns=True)


def _type_of(name: str) -> str:
    return {"gd_to_op": "string", "gd_to_epoch": "int", "gd_to_ts": "timestamp"}.get(name, "bigint")


def changelog(spark: SparkSession, target: Given, table: str) -> DataFrame:
    """Read the changes of a table as they landed, with ``gd_n``.

    Raises:
        ConfigError: there is no such table, or it was applied without changelog.
    """
    store = Target(target)
    directory = store.find_table(table)
    version = _version(store, _newest(store), directory)
    if version.changelog_from is None:
        raise ConfigError(f"{store.root}: {table} was applied without changelog")
    return _read(spark, store, directory, version.changelog, version, changes=True)


def kept_beside(target: Given, table: str) -> list[str]:
    """Products of a table that exist beside its rows: ``history``, ``changelog``, ``quarantine``."""
    store = Target(target)
    return store.log(store.find_table(table)).folders()[1:]


def database(
    spark: SparkSession, target: Given, *, at: Point | None = None, root: Given | None = None
) -> dict[str, DataFrame]:
    """Read all tables at one point of the source's history, by ``schema.name``."""
    return {title: current(spark, target, title, at=at, root=root) for title in titles(target)}


def titles(target: Given) -> list[str]:
    """``schema.name`` of all tables of the newest version.

    Raises:
        ConfigError: nothing was applied yet.
    """
    store = Target(target)
    newest = _newest(store)
    found = (store.schema_at(newest, directory).title for directory in newest.tables)
    return list(dict.fromkeys(found))  # one that was dropped may have the name that another got


def _newest(store: Target) -> DatabaseVersion:
    found = store.database()
    if found is None:
        raise ConfigError(f"{store.root} has no version yet: apply to it first")
    return found


def _version(store: Target, database: DatabaseVersion, table: str) -> TableVersion:
    if table not in database.tables:
        raise ConfigError(f"{store.root}: entry {database.n} has no table {table}")
    return store.version(table, database.tables[table])


def _current(
    spark: SparkSession,
    store: Target,
    table: str,
    version: TableVersion,
    columns: Container[str] | None = None,
) -> DataFrame:
    """Read the rows of a version, without those in quarantine."""
    return _read(spark, store, table, version.current, version, columns=columns)


def _held(
    spark: SparkSession, store: Target, table: str, schema_id: str, files: Sequence[StateFile]
) -> DataFrame:
    schemas = {i: store.schema(table, i) for i in {schema_id, *(f.schema_id for f in files)}}
    return held_rows(spark, store.table_root(table), files, schemas, schemas[schema_id])


def quarantine(spark: SparkSession, target: Given, table: str) -> DataFrame:
    """Read a table's rows in quarantine, with the names of the failed tests in ``gd_failed``.

    Raises:
        ConfigError: there is no such table.
    """
    store = Target(target)
    held = quarantine_at(spark, store, _newest(store), store.find_table(table))
    return held.select(
        FAILED, *[quoted(name) for name in held.columns if name not in {FAILED, KEY}]
    )


def quarantine_at(
    spark: SparkSession, store: Target, database: DatabaseVersion, directory: str
) -> DataFrame:
    """Read the quarantine of a table in a database version, with all columns."""
    files = _version(store, database, directory).quarantine
    schema_id = store.schema_at(database, directory).schema_id
    return _held(spark, store, directory, schema_id, files)


def rows_of(
    spark: SparkSession, store: Target, table: str, schema: TableSchema, files: Sequence[StateFile]
) -> DataFrame:
    """Read the rows of files of the current state."""
    return _read(spark, store, table, tuple(files), TableVersion(0, 0, schema.schema_id, 0))


def _read(
    spark: SparkSession,
    store: Target,
    table: str,
    files: tuple[StateFile, ...],
    version: TableVersion,
    *,
    closed: bool = False,
    changes: bool = False,
    columns: Container[str] | None = None,
) -> DataFrame:
    target, root = store.schema(table, version.schema_id), store.table_root(table)
    paths: dict[str, list[Place]] = {}
    is_state = not closed and not changes
    by_source = store.by_source(table, files) if target.parts and is_state else {None: list(files)}
    for source, found in by_source.items():
        # Files of the state are kept readable by the newest names; see `reads_as`.
        newest = target.of(source) if is_state else None
        for file in found:
            schema_id = file.schema_id if newest is None else newest.schema_id
            paths.setdefault(schema_id, []).append(root / file.path)
    schemas = {i: store.schema(table, i) for i in {*paths, version.schema_id}}
    ended = {
        root / file.path: (root / file.deletes_path, Vector.of(file.deletes))
        for file in files
        if file.deletes
    }
    return read_versions(
        spark,
        paths,
        schemas,
        target,
        {i: _ours(schema, closed=closed, changes=changes) for i, schema in schemas.items()},
        ended,
        columns if store.is_shared else None,
    )


def _ours(schema: TableSchema, *, closed: bool, changes: bool) -> list[pa.Field]:
    if changes:
        return [*change_fields(schema), pa.field("gd_n", pa.int64())]
    state = [*stamp_fields(schema), *_OF_COLUMNS]
    return [*_ENDED, *state] if closed else state
