"""What readers of others are told of a version of all tables, before it is there.

The table of positions; names in a catalog of a Spark session, for Delta Lake; snapshots in a catalog of Iceberg.
After a kill the next apply tells what was not told.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from gaussdecode.errors import ConfigError
from gaussdecode.spark.catalogs.positions import (
    of_positions,
    of_table,
    publish_positions,
    published,
)
from gaussdecode.spark.log.sql_text import dotted
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.store import DatabaseVersion, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gaussdecode.spark.catalogs.iceberg import IcebergTables

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
        with open_catalog(store.catalog, say) as tables:
            if before is None:
                tables.check(of_positions(store))
            for one in (*of, of_positions(store)):
                tables.publish(one)
    elif store.catalog and session is not None:
        from gaussdecode.spark.catalogs.registered import register

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
    with open_catalog(store.catalog) as tables:
        for table, v in newest.tables.items():
            for one in of_table(store, table, store.log(table).following(v)):
                tables.publish(one)


def differences(
    store: Target, newest: DatabaseVersion, of: Collection[str]
) -> dict[str, list[str]]:
    """What tables are otherwise in a catalog of Iceberg than in a version of the database, by directory.

    Raises:
        ConfigError: see `announce`.
        LandingError: see `announce`.
    """
    with open_catalog(store.catalog) as tables:
        return {
            table: [
                f"{dotted(one.name)} {what}"
                for one in of_table(store, table, store.log(table).following(newest.tables[table]))
                if (what := tables.difference(one))
            ]
            for table in of
        }


def forget_snapshots(
    tables: "IcebergTables", store: Target, table: str, alive: Collection[int], cut: float
) -> None:
    """Remove a table's snapshots in a catalog of Iceberg that show none of some versions.

    Args:
        tables: the catalog.
        store: the target.
        table: directory.
        alive: versions of its rows that may be read.
        cut: seconds since 1970; younger files of Iceberg's own stay.
    """
    log = store.log(table)
    numbers = [log.numbers(v) for v in alive]
    for one in of_table(store, table, log.following(max(alive)) if alive else {}):
        kept = {of[one.place.name] for of in numbers if one.place.name in of}
        tables.forget(one, {*kept, one.version}, cut)


def open_catalog(pattern: str, say: Say = lambda _: None) -> "IcebergTables":
    """Open the catalog that a pattern of names begins with; a context, as its connections have to be closed.

    Raises:
        ConfigError: there is none, or pyiceberg is missing.
    """
    try:
        from gaussdecode.spark.catalogs.iceberg import IcebergTables
    except ImportError as error:
        raise ConfigError(
            f"tables of Iceberg need pyiceberg ({error}): pip install 'gaussdecode[iceberg]'"
        ) from None
    return IcebergTables(pattern.partition(".")[0], say)
