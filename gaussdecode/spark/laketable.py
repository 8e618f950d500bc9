"""What all tables of Delta Lake and of Iceberg have in common, and how they speak to the JVM."""

import contextlib
import dataclasses
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812 - the same

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.catalog import Name
from gaussdecode.spark.comments import Changed, Comments
from gaussdecode.spark.events import ACTION
from gaussdecode.spark.layout import PLAIN, Layout
from gaussdecode.spark.mergesql import NESTED, merge_text, rename_text
from gaussdecode.spark.schema import TableSchema, renamed_columns
from gaussdecode.spark.sqltext import quoted


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """Changes of a table.

    Attributes:
        rows: at most one per row of the table.
        on: rows are the same where these columns are.
        unsent: columns whose values a row that is there keeps, where ``gd_unchanged`` names them.
        bounds: least and greatest value of columns, in every row that `rows` is about.
        values: of columns, all those in rows that `rows` is about.
    """

    rows: DataFrame
    on: Sequence[str]
    unsent: Collection[str] = frozenset()
    bounds: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Sequence[int | str]] = dataclasses.field(default_factory=dict)


class LakeTable(Protocol):
    """One table."""

    def is_there(self) -> bool:
        """Whether it was made."""

    def position(self) -> int | None:
        """Number of the entry it is at; None when there is no table.

        Raises:
            LandingError: it is not this target's.
        """
        if not self.is_there():
            return None
        found = self.noted()
        if found is None:
            raise LandingError(f"{self.name()} was not made by this target, or is damaged")
        return found

    def noted(self) -> int | None:
        """The same of a table that others write too; None as well where this target did not yet."""

    def name(self) -> str:
        """Its name in SQL."""

    def version(self) -> int:
        """What its format calls its newest version."""

    def read(self, version: int | None = None) -> DataFrame:
        """Rows of a version, of the newest by default."""

    def replace(self, rows: DataFrame, n: int, layout: Layout = PLAIN) -> None:
        """Put rows and their columns in place of all there is but the comments, or make the table."""

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """Add columns that are not there yet; they are NULL in the rows there are."""

    def rename_columns(self, renamed: Mapping[str, str]) -> None:
        """Give columns other names, in our columns that name them too; those that have them stay."""

    def append(self, rows: DataFrame, n: int) -> None:
        """Put rows beside those there are, or make the table."""

    def merge(self, changes: Merge, n: int) -> None:
        """Apply changes."""

    def comments(self) -> Comments:
        """What it says of itself and of its columns."""

    def set_comments(self, changed: Changed) -> None:
        """Say something else; no row changes, and no position."""

    def compact(self) -> None:
        """Write small files anew, without those of their rows that are gone."""

    def forget(self, before: float, keep: Collection[int]) -> None:
        """Remove versions from before a time in seconds since 1970, but those to keep and the newest."""


def read_version(spark: SparkSession, name: str, version: int | None) -> DataFrame:
    """Rows of a version of a table, of the newest by default, as they are kept; errors as of `opened`."""
    at = "" if version is None else f" VERSION AS OF {version}"
    with opened(name):
        return spark.sql(f"SELECT * FROM {name}{at}")  # noqa: S608 - our own names


def exists(spark: SparkSession, name: str) -> bool:
    """Whether a catalog has a table; errors as of `opened`."""
    with opened(name):
        return spark.catalog.tableExists(name)


def column_comments(rows: DataFrame) -> dict[str, str]:
    """What columns say of themselves; empty for nothing."""
    return {field.name: field.metadata.get("comment", "") for field in rows.schema.fields}


def commented(rows: DataFrame, comments: Mapping[str, str]) -> DataFrame:
    """Rows whose columns say of themselves what columns of these names said."""
    return rows.select(
        *(
            F.col(quoted(name)).alias(name, metadata={"comment": comments[name]})
            if comments.get(name)
            else quoted(name)
            for name in rows.columns
        )
    )


@contextlib.contextmanager
def merging(name: str, changes: Merge, flat: Collection[str] = ()) -> Iterator[str]:
    """Give the MERGE, with its source as a view; see `merge_text`."""
    view = f"gd_changes_{secrets.token_hex(6)}"
    columns = [column for column in changes.rows.columns if column != ACTION]
    changes.rows.createOrReplaceTempView(view)
    try:
        yield merge_text(
            name, view, columns,
            on=changes.on, unsent=changes.unsent, bounds=changes.bounds, values=changes.values, flat=flat,
        )  # fmt: skip
    finally:
        changes.rows.sparkSession.catalog.dropTempView(view)


def add_columns(
    spark: SparkSession, name: str, held: Sequence[str], fields: Sequence[T.StructField]
) -> None:
    """Add columns that a table has not."""
    new = [
        f"{quoted(field.name)} {field.dataType.simpleString()}"
        for field in fields
        if field.name not in held
    ]
    if new:
        with named(name):
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(new)})")


def rename_columns(
    spark: SparkSession, name: str, held: DataFrame, renamed: Mapping[str, str]
) -> None:
    """Rename columns of a table that has them, and what our columns call them."""
    with named(name):
        for old, new in renamed.items():
            if old in held.columns:
                spark.sql(f"ALTER TABLE {name} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
        text = rename_text(name, renamed, flat_columns(held))
        spark.sql(text).collect()


def named_back(rows: DataFrame, old: TableSchema, newer: Iterable[TableSchema]) -> DataFrame:
    """Rows by the names of a version, where a killed apply has renamed columns already.

    Args:
        rows: of the table.
        old: version it is of, by its position.
        newer: versions it was about to become, the oldest first.
    """
    for new in newer:
        for before, after in (renamed_columns(old, new) or {}).items():
            if after in rows.columns and before not in rows.columns:
                rows = rows.withColumnRenamed(after, before)
    return rows


def flat_columns(rows: DataFrame) -> list[str]:
    """Which of our columns are kept as JSON."""
    return [f.name for f in rows.schema if f.name in NESTED and f.dataType == T.StringType()]


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Say which table could not be written, without what was in its rows.

    Raises:
        LandingError: the format refused the commit; another writer may have been quicker.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        cause = why(error)
    else:
        return
    raise LandingError(f"{name} was not changed: {cause}; was another writer quicker? run it again")


@contextlib.contextmanager
def opened(name: str) -> Iterator[None]:
    """Say which table could not be opened.

    Raises:
        LandingError: it is of another format, a view, may not be read, or its catalog does not answer.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise LandingError(
            f"{name} cannot be opened ({why(error)}): it is not a table that this target made, may not "
            "be read, or its catalog does not answer; choose another name, restore it, or run it again"
        ) from None


def why(error: PySparkException | Py4JJavaError) -> str:
    """What went wrong by its name: texts of errors may hold values."""
    if isinstance(error, PySparkException):
        return error.getCondition() or type(error).__name__
    return str(error.java_exception.getClass().getName())


def jvm_of(spark: SparkSession) -> Any:  # Any: py4j's view of the JVM
    """The JVM of a session."""
    return spark._jvm  # noqa: SLF001 - there is no other way to it


def session_of(spark: SparkSession) -> Any:  # Any: an object of the JVM
    """The session as the JVM has it."""
    return spark._jsparkSession  # noqa: SLF001 - there is no other way to it


def make_namespace(spark: SparkSession, name: Name) -> None:
    """Make what a table is to be in.

    Raises:
        ConfigError: the session may not.
    """
    space = ".".join(map(quoted, name[:-1]))
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(
            f"namespace {space} cannot be made ({why(error)}): make it yourself, "
            "or give another catalog or namespace"
        ) from None
