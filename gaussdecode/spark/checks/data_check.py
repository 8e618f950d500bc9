"""Run data tests on rows, before the version that contains them is committed.

Given the rows of one table as they would be after the commit; promises to test changed rows and rows in
quarantine, and to read other rows only to check uniqueness. A row that fails lists its tests in
``gd_failed``. Rows in quarantine are in separate files beside the table, with all columns. Their
position in the order of changes tells which of them are still in quarantine.

A row that fails leaves the table entirely. Its last form that passed would show a state that the source
never had, beside rows of a later one.
"""

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, DataTestError
from gaussdecode.model.words import counted
from gaussdecode.spark.checks.data_tests import DataTest, Failed, Kind, OnFailure, check_columns
from gaussdecode.spark.log.events import KEY, stamp_fields
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.log.schema import (
    NAMES_TYPE,
    RAW,
    RAW_TYPE,
    SOURCE,
    UNCHANGED,
    TableSchema,
    parse_type,
)
from gaussdecode.spark.log.sql_text import quoted
from gaussdecode.spark.target.durable import sync_directory
from gaussdecode.spark.target.frames import read_versions, spark_type
from gaussdecode.spark.target.staging import write_rows
from gaussdecode.spark.target.state_file import StateFile

FAILED: Final = "gd_failed"
_PLACE: Final = ("gd_op", "gd_epoch", "gd_lsn", "gd_seq")

_WAS_OUT: Final = "gd_was_out"
_VALUE: Final = "gd_value"


def _held_fields(schema: TableSchema) -> list[pa.Field]:
    """Our own columns of rows in quarantine."""
    return [
        *stamp_fields(schema),
        pa.field(UNCHANGED, NAMES_TYPE),
        pa.field(RAW, RAW_TYPE),
        pa.field(KEY, pa.binary()),
        pa.field(FAILED, NAMES_TYPE),
    ]


def places_of(rows: DataFrame) -> list[str]:
    """Columns that together identify a row of a table; each of several sources has its own LSNs."""
    return [*_PLACE, *([SOURCE] if SOURCE in rows.columns else [])]


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table as they would be after the commit.

    Attributes:
        looked_at: rows to test: changed ones, and those in quarantine (``gd_was_out``).
        others: all other rows.
    """

    looked_at: DataFrame
    others: DataFrame


def rows_since(rows: DataFrame, after: int, held: DataFrame | None) -> Rows:
    """Separate rows that changed, or were in quarantine, from the others.

    Args:
        rows: all rows.
        after: entry that the table was at before.
        held: rows that were in quarantine; None for none.
    """
    is_new = F.col("gd_n") > after
    changed, rest = rows.where(is_new), rows.where(~is_new)
    changed = changed.withColumn(_WAS_OUT, F.lit(False))
    if held is None:
        return Rows(changed, rest)
    place = places_of(rows)
    places = F.broadcast(held.select(*place))
    was_out = rest.join(places, place, "left_semi").select(*map(quoted, rows.columns))
    others = rest.join(places, place, "left_anti").select(*map(quoted, rows.columns))
    return Rows(changed.unionByName(was_out.withColumn(_WAS_OUT, F.lit(True))), others)


def judged(rows: Rows, schema: TableSchema, tests: Sequence[DataTest]) -> DataFrame:
    """The rows to test, with the names of failed tests in ``gd_failed``."""
    frame, marks = rows.looked_at, []
    for number, test in enumerate(tests):
        if test.kind is Kind.UNIQUE:
            mark = f"gd_twice_{number}"
            frame = _with_twice(frame, rows.others, test.columns, mark)
            is_bad = F.col(mark)
        else:
            is_bad = _is_bad(test, schema)
        marks.append(F.when(is_bad, F.lit(test.name)))
    names = [quoted(name) for name in rows.looked_at.columns if name != _WAS_OUT]
    failed = F.array_compact(F.array(*marks)).cast(spark_type(NAMES_TYPE))
    return frame.select(*names, failed.alias(FAILED))


def _is_bad(test: DataTest, schema: TableSchema) -> Column:
    """Whether a row fails; NULL counts as no, as in `when`."""
    if test.kind is Kind.EXPRESSION:
        return ~F.expr(f"({test.expression})")
    name = test.columns[0]
    column, text = F.col(quoted(name)), _text_of(name)
    if test.kind is Kind.NOT_NULL:
        is_sent = ~F.coalesce(F.array_contains(UNCHANGED, name), F.lit(False))
        return column.isNull() & text.isNull() & is_sent
    of = spark_type(parse_type(next(c.type for c in schema.columns if c.name == name)))
    values = [F.lit(value).try_cast(of) for value in test.values]
    return ~F.coalesce(column.isin(*values), text.isin(*test.values))


def _text_of(name: str) -> Column:
    """The kept text of a value that its column cannot hold."""
    return F.element_at(RAW, F.lit(name))


def _with_twice(
    frame: DataFrame, others: DataFrame, columns: Sequence[str], mark: str
) -> DataFrame:
    """Mark rows that share their values with another row.

    A row in quarantine does not occupy its value: changed rows are compared with the other rows only.
    """
    held = functools.reduce(
        operator.and_, [F.col(quoted(c)).isNotNull() | _text_of(c).isNotNull() for c in columns]
    )
    value = F.struct(*[v for c in columns for v in (F.col(quoted(c)), _text_of(c))])
    valued = F.when(held, value).alias(_VALUE)
    own = frame.select(valued, _WAS_OUT)
    wanted = F.broadcast(own.select(_VALUE).where(F.col(_VALUE).isNotNull()).distinct())
    there = others.select(valued).join(wanted, _VALUE, "left_semi")
    counts = own.where(F.col(_VALUE).isNotNull()).unionByName(
        there.withColumn(_WAS_OUT, F.lit(False))
    )
    seats = F.sum(F.when(F.col(_WAS_OUT), 0).otherwise(1))
    counts = counts.groupBy(_VALUE).agg(seats.alias("gd_seats"), F.count("*").alias("gd_rows"))
    counts = F.broadcast(counts.where(F.col("gd_rows") > 1))
    left = frame.withColumn(_VALUE, valued).join(counts, _VALUE, "left")
    is_twice = F.when(F.col(_WAS_OUT), F.col("gd_rows") > 1).otherwise(F.col("gd_seats") > 1)
    return left.withColumn(mark, is_twice).drop(_VALUE, "gd_seats", "gd_rows")


# --- files in quarantine --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The result for one table.

    Attributes:
        failed: one result per test, also for tests that no row fails.
        quarantine: files of the rows that are now in quarantine.
    """

    failed: tuple[Failed, ...]
    quarantine: tuple[StateFile, ...]


class Checker:
    """Runs the tests of one table.

    Args:
        spark: a running session.
        root: directory of the table in the target.
        schema: schema of its rows.
        tests: tests of the table.
        token: token of the run.

    Raises:
        ConfigError: a test cannot run on the table.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: Place,
        schema: TableSchema,
        tests: Sequence[DataTest],
        token: str,
    ) -> None:
        check_columns(schema, tests)
        self._spark, self._root, self._schema = spark, root, schema
        self._tests, self._token = tests, token

    def check(self, rows: Rows) -> Found:
        """Test rows, and write those that go into quarantine.

        Raises:
            DataTestError: rows fail a test whose on-failure stops the apply.
            ConfigError: an expression cannot be read or computed.
        """
        with _explained(self._schema):
            frame = judged(rows, self._schema, self._tests)
            names = frame.select(F.explode(FAILED).alias("name"))
            counts = {
                str(row["name"]): int(row["count"])
                for row in names.groupBy("name").count().collect()
            }
            failed = tuple(
                Failed(self._schema.title, test.name, counts.get(test.name, 0), test.on_failure)
                for test in self._tests
            )
            for found in failed:
                if found.rows and found.on_failure is OnFailure.STOP:
                    raise self._stop(found)
            out = [f.test for f in failed if f.rows and f.on_failure is OnFailure.QUARANTINE]
            if not out:
                return Found(failed, ())
            wanted = F.arrays_overlap(FAILED, F.array(*map(F.lit, out)))
            return Found(failed, self._write(frame.where(wanted)))

    def _stop(self, found: Failed) -> DataTestError:
        verb = "fails" if found.rows == 1 else "fail"
        key = ", ".join(self._schema.key) or "none"
        return DataTestError(
            f"{found.table}: {counted(found.rows, 'row')} {verb} test {found.test!r}, which stops; nothing of this "
            f"version was published. Key of the table: {key}. Repair the rows at the source and apply again, "
            "or give the test another on-failure"
        )

    def _write(self, frame: DataFrame) -> tuple[StateFile, ...]:
        """Write rows durably, under names that are never used again."""
        types = {
            field.name: field for field in (*_held_fields(self._schema), *self._schema.arrow())
        }
        fields = pa.schema([types[name] for name in frame.columns])
        name = f"quarantine/{self._token}"
        found = write_rows(frame, self._schema.schema_id, fields, self._root, name)
        if isinstance(self._root, Path):
            sync_directory(self._root / "quarantine")
        return found


def held_rows(
    spark: SparkSession,
    root: Place,
    files: Sequence[StateFile],
    schemas: Mapping[str, TableSchema],
    schema: TableSchema,
) -> DataFrame:
    """Read the rows in quarantine of a version of the table.

    Args:
        spark: a running session.
        root: directory of the table in the target.
        files: quarantine files.
        schemas: schemas of the files and of the result, by id.
        schema: schema of the result.
    """
    paths: dict[str, list[Place]] = {}
    for file in files:
        paths.setdefault(file.schema_id, []).append(root / file.path)
    return read_versions(
        spark, paths, schemas, schema, {i: _held_fields(of) for i, of in schemas.items()}
    )


def without(rows: DataFrame, held: DataFrame) -> DataFrame:
    """Rows that are not in quarantine."""
    place = places_of(rows)
    left = rows.join(F.broadcast(held.select(*place)), place, "left_anti")
    return left.select(*map(quoted, rows.columns))


@contextlib.contextmanager
def _explained(schema: TableSchema) -> Iterator[None]:
    """Name the table whose tests failed to run, without values of its rows.

    Raises:
        ConfigError: an expression is invalid, names a missing column, or cannot be computed.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        why = error.getCondition() if isinstance(error, PySparkException) else None
    else:
        return
    raise ConfigError(
        f"the tests of {schema.title} cannot be asked ({why or 'the job failed'}): look at their "
        "expressions, in Spark's SQL, with the table's columns"
    )
