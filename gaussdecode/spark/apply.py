"""Apply a landing's changes to a target, up to an entry: current state, history, changelog.

For each table the changes since its last version become events, the events are merged bucket by bucket,
and a new version is committed. Then one version of the database names the versions of all tables.
Progress is the number of the commit entry and nothing else. It is kept in the versions, so applying
again changes nothing, and a job that was killed at any point is simply run again. If two jobs run at
once, one commits and one fails.

Progress is neither Spark's checkpoint nor an LSN: batch numbers start again with a new checkpoint, and
LSNs repeat after the epoch rose.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gaussdecode.errors import ConfigError
from gaussdecode.spark.catalogs.announce import open_catalog
from gaussdecode.spark.checks.data_tests import Tests
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.log.place import Given, place_of
from gaussdecode.spark.merge.engine import Engine, SparkEngine
from gaussdecode.spark.merge.options import Options, Progress, Summary
from gaussdecode.spark.merge.run import Run
from gaussdecode.spark.target.catalog_names import full_pattern
from gaussdecode.spark.target.formats import FORMATS, ICEBERG
from gaussdecode.spark.target.layout import Layouts
from gaussdecode.spark.target.store import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply(
    spark: "SparkSession",
    root: Given,
    target: Given,
    *,
    to: Point | None = None,
    tables: Collection[str] | None = None,
    history: bool = False,
    vectors: bool = False,
    changelog: str | None = None,
    buckets: int | None = None,
    accept_gaps: bool = False,
    accept_suspects: bool = False,
    accept_hidden_truncates: bool = False,
    format: str | None = None,  # noqa: A002 - as in Spark
    catalog: str | None = None,
    tests: Tests | None = None,
    layouts: Layouts | None = None,
    on_ddl: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Apply a landing to a target, up to an entry of its log, with Spark.

    Args:
        spark: a running session.
        root: root of the landing: directory, or URL of its mirror.
        target: directory or URL; created if it does not exist.
        to: point to apply up to; None for the end of the log.
        tables: see `Options`, as for the next arguments.
        history: see there.
        vectors: see there.
        changelog: see there.
        buckets: see there.
        accept_gaps: see there.
        accept_suspects: see there.
        accept_hidden_truncates: see there.
        format: see there.
        catalog: see there.
        tests: see there; `data_tests.load_tests` reads them from a file.
        layouts: see there; `layout.read_layouts` reads them from texts.
        on_ddl: see there; action (``apply``, ``stop``, ``ignore``) by kind, such as ``drop-column``.
        progress: called with a sentence for each step.

    Raises:
        ConfigError: the target belongs to another landing, or a table does not exist.
        LandingError: the landing or the target is damaged, or another writer committed first.
        DataTestError: rows fail a test whose on-failure stops the apply.
    """
    options = Options(
        tables=tables, history=history, vectors=vectors, changelog=changelog, buckets=buckets,
        accept_gaps=accept_gaps, accept_suspects=accept_suspects,
        accept_hidden_truncates=accept_hidden_truncates, format=format, catalog=catalog, tests=tests,
        layouts=layouts, on_ddl=on_ddl,
    )  # fmt: skip
    return apply_with(SparkEngine(spark), root, target, options, to=to, progress=progress)


def apply_with(
    engine: Engine,
    root: Given,
    target: Given,
    options: Options | None = None,
    *,
    to: Point | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Apply with another engine; see `apply`."""
    landing, options = Landing(root), options or Options()
    if landing.hides_truncate and not options.accept_hidden_truncates:
        raise ConfigError(
            f"the stream landed in {landing.root} shows no TRUNCATE and no DDL (parallel decoding "
            "of GaussDB): a table that was emptied would keep its rows here. Decode serially on "
            "openGauss 6.0.0 or newer into a new landing, or go on with --accept-hidden-truncates"
        )
    store = _open_target(engine, target, landing, options)
    with store.locked():
        store.check_loaded()
        # A catalog of Iceberg is asked only where there is something to tell it.
        _check_catalog(
            engine, store.format == ICEBERG, store.catalog or None, options, is_new=False
        )
        run = Run(engine, landing, store, options, progress or (lambda _: None))
        reach = landing.reach(to or Point())
        return run.run(reach.whole, reach.csn)


def _open_target(engine: Engine, target: Given, landing: Landing, options: Options) -> Target:
    """Open a target, or create one for a landing; see `Target.create`.

    Raises:
        ConfigError: the target belongs to another landing, or this session cannot write it.
    """
    if options.format not in (None, *FORMATS):
        raise ConfigError(f"format {options.format!r} is not one of {', '.join(FORMATS)}")
    if not (place_of(target) / "target.json").exists():  # others are checked by `apply_with`
        _check_catalog(engine, options.format == ICEBERG, options.catalog, options, is_new=True)
    return Target.create(target, landing, options.format, options.catalog, options.hides)


def _check_catalog(
    engine: Engine, is_iceberg: bool, catalog: str | None, options: Options, *, is_new: bool
) -> None:
    """Refuse catalog options that cannot work, before anything is created."""
    if is_iceberg and not catalog:
        raise ConfigError(
            "tables of iceberg have their names in a catalog: give --catalog, one of pyiceberg's configuration"
        )
    if is_iceberg and options.vectors:
        raise ConfigError(
            "--deletion-vectors are of Delta Lake: a target with --format iceberg has none"
        )
    if options.hides and not is_iceberg:
        raise ConfigError(
            "--hide-technical-columns is for --format iceberg: other programs may rewrite files of a Delta table, "
            "which would lose what an apply needs"
        )
    if catalog is None:
        return
    pattern = full_pattern(catalog)
    if is_iceberg:
        if is_new:
            with open_catalog(pattern):
                pass
    elif not isinstance(engine, SparkEngine):
        raise ConfigError("names in a catalog of Spark need Spark: leave out --local, or --catalog")
    else:
        from gaussdecode.spark.catalogs.registered import check_session

        check_session(engine.session, pattern.partition(".")[0])


__all__ = ["Options", "Summary", "apply", "apply_with"]
