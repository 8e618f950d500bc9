"""What readers of others are told of a version of all tables, before it is there.

The table of positions; names in a catalog of a Spark session, for Delta Lake; snapshots in a catalog of Iceberg.
After a kill the next apply tells what was not told.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from gaussdecode.errors import ConfigError
from gaussdecode.spark.formats import ICEBERG
from gaussdecode.spark.positions import of_positions, of_table, publish_positions, published
from gaussdecode.spark.sqltext import dotted
from gaussdecode.spark.store import DatabaseVersion, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gaussdecode.spark.iceberg import IcebergTables

Say = Callable[[str], None]


def announce(
    store: Target,
    newest: DatabaseVersion,
    before: DatabaseVersion | None,
    session: "SparkSession | None" = None,
    say: Say = lambda _: None,
) -> None:
    """Tell what a version of the database has otherwise than the one before it.

    Raises:
        ConfigError: a name belongs to another table.
        LandingError: a catalog failed, or another writer was quicker.
    """
    of = published(store, newest, before)
    publish_positions(store, newest, of)
    if store.format == ICEBERG:
        tables = open_catalog(store.catalog, say)
        if before is None:
            tables.check(of_positions(store))
        for one in (*of, of_positions(store)):
            tables.publish(one)
    elif store.catalog and session is not None:
        from gaussdecode.spark.registered import register

        register(session, [*of, *([of_positions(store)] if before is None else [])])


def announce_newest(store: Target) -> None:
    """Tell a catalog of Iceberg the newest version of every Delta table, also those that others made.

    Raises:
        ConfigError: see `announce`.
        LandingError: see `announce`.
    """
    newest = store.database()
    if newest is None:
        return
    tables = open_catalog(store.catalog)
    for table, v in newest.tables.items():
        for one in of_table(store, table, store.log(table).following(v)):
            tables.publish(one)


def differences(store: Target, newest: DatabaseVersion, table: str) -> list[str]:
    """What the tables of one table are otherwise in a catalog of Iceberg than in a version of the database.

    Raises:
        ConfigError: see `announce`.
        LandingError: see `announce`.
    """
    tables = open_catalog(store.catalog)
    found = [
        (one, tables.difference(one))
        for one in of_table(store, table, store.log(table).following(newest.tables[table]))
    ]
    return [f"{dotted(one.name)} {what}" for one, what in found if what]


def forget_snapshots(store: Target, table: str, alive: Collection[int], cut: float) -> None:
    """Remove a table's snapshots in a catalog of Iceberg that show none of some versions.

    Args:
        store: the target.
        table: directory.
        alive: versions of its rows that may be read.
        cut: seconds since 1970; younger files of Iceberg's own stay.
    """
    log, tables = store.log(table), open_catalog(store.catalog)
    numbers = [log.numbers(v) for v in alive]
    for one in of_table(store, table, log.following(max(alive)) if alive else {}):
        kept = {of[one.place.name] for of in numbers if one.place.name in of}
        tables.forget(one, {*kept, one.version}, cut)


def open_catalog(pattern: str, say: Say = lambda _: None) -> "IcebergTables":
    """Open the catalog that a pattern of names begins with.

    Raises:
        ConfigError: there is none, or pyiceberg is missing.
    """
    try:
        from gaussdecode.spark.iceberg import IcebergTables
    except ImportError as error:
        raise ConfigError(
            f"tables of Iceberg need pyiceberg ({error}): pip install 'gaussdecode[iceberg]'"
        ) from None
    return IcebergTables(pattern.partition(".")[0], say)
