"""Publish a version of all tables to external catalogs, before the version of the database is committed.

These are the table of positions, names in a catalog of a Spark session (Delta Lake), and snapshots in
an Iceberg catalog. After a kill the next apply publishes the missing ones.
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
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.store import Target

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
    """Publish the tables that changed between a database version and the one before.

    Raises:
        ConfigError: a name belongs to another table.
        LandingError: a catalog failed, or another writer committed first.
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
    """Publish the newest version of every Delta table to an Iceberg catalog, also versions of other writers.

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
    """How tables in an Iceberg catalog differ from a version of the database, by directory.

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
    """Remove a table's Iceberg snapshots that belong to none of some versions.

    Args:
        tables: the catalog.
        store: the target.
        table: directory of the table.
        alive: versions of its rows that readers may use.
        cut: seconds since 1970; younger metadata files of Iceberg stay.
    """
    log = store.log(table)
    numbers = [log.numbers(v) for v in alive]
    for one in of_table(store, table, log.following(max(alive)) if alive else {}):
        kept = {of[one.place.name] for of in numbers if one.place.name in of}
        tables.forget(one, {*kept, one.version}, cut)


def open_catalog(pattern: str, say: Say = lambda _: None) -> "IcebergTables":
    """Open the catalog that a name pattern begins with; a context that closes its connections.

    Raises:
        ConfigError: there is no such catalog, or pyiceberg is missing.
    """
    try:
        from gaussdecode.spark.catalogs.iceberg import IcebergTables
    except ImportError as error:
        raise ConfigError(
            f"tables of Iceberg need pyiceberg ({error}): pip install 'gaussdecode[iceberg]'"
        ) from None
    return IcebergTables(pattern.partition(".")[0], say)
