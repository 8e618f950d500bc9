"""Run data tests on a table's new files, before its version is committed.

At that time the files hold every row, also those that were in quarantine. `rewrite` then removes the
rows that fail.
"""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from gaussdecode.spark.checks.data_check import Checker, Found, held_rows, rows_since
from gaussdecode.spark.checks.data_tests import DataTest, Kind
from gaussdecode.spark.merge.work import Work
from gaussdecode.spark.query import rows_of
from gaussdecode.spark.target.store import Target


def check_files(
    spark: SparkSession, store: Target, work: Work, tests: Sequence[DataTest], token: str
) -> Found:
    """Run the tests of a table.

    Raises:
        ConfigError: a test cannot run on the table.
        DataTestError: rows fail a test whose on-failure stops the apply.
    """
    schema, root = work.schema, store.table_root(work.table)
    assert schema is not None
    held = () if work.version is None else work.version.quarantine
    schemas = {i: store.schema(work.table, i) for i in {f.schema_id for f in held}}
    schemas[schema.schema_id] = schema
    out = held_rows(spark, root, held, schemas, schema) if held else None
    files = work.current
    if out is None and not any(test.kind is Kind.UNIQUE for test in tests):
        files = [file for file in files if token in file.path]
    rows = rows_of(spark, store, work.table, schema, files)
    return Checker(spark, root, schema, tests, token).check(rows_since(rows, work.after, out))
