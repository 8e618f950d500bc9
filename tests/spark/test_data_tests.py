"""Tests of data as they are declared: what each line means, and every mistake at once."""

from pathlib import Path

import pyarrow as pa
import pytest
from kit.history import Column as SourceColumn
from kit.history import History, Table

from gaussdecode.errors import ConfigError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.checks.data_tests import DataTest, Kind, OnFailure, check_columns, load_tests
from gaussdecode.spark.log.schema import Column, TableSchema
from gaussdecode.spark.merge.engine import LocalEngine

_GOOD = """
on-failure: quarantine
tables:
  sales.orders:
    - not-null: [id, total]
    - unique: [email, "the country"]
      name: one-each
    - accepted-values: [new, 2, true]
      column: status
      on-failure: stop
    - expression: total >= 0
      on-failure: warn
"""


def test_what_is_declared(tmp_path: Path) -> None:
    """A list of columns is a test for each, but where they are unique together."""
    path = tmp_path / "tests.yaml"
    path.write_text(_GOOD)
    out = OnFailure.QUARANTINE
    assert load_tests(path) == {
        "sales.orders": [
            DataTest("not-null id", Kind.NOT_NULL, ("id",), on_failure=out),
            DataTest("not-null total", Kind.NOT_NULL, ("total",), on_failure=out),
            DataTest("one-each", Kind.UNIQUE, ("email", "the country"), on_failure=out),
            DataTest(
                "accepted-values status", Kind.ACCEPTED, ("status",), ("new", "2", "true"),
                on_failure=OnFailure.STOP,
            ),
            DataTest("total >= 0", Kind.EXPRESSION, expression="total >= 0"),
        ]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        ("tables: 3", "line 1: tables: give schema.table:"),
        ("tables: {}", "line 1: tables: give schema.table:"),
        ("tables:\n  a.b: x", "line 2: a.b: give a list"),
        ("tables:\n  a.b:\n  - unique: x\n    not-null: y", "line 3: a test has one of not-null,"),
        ("tables:\n  a.b:\n  - columns: x", "line 3: a test has one of"),
        (
            "tables:\n  a.b:\n  - not-null: x\n    on-failure: drop",
            "line 4: on-failure: one of warn",
        ),
        ("tables:\n  a.b:\n  - not-null: x\n    tag: y", "line 4: tag: not known here; known are"),
        ("tables:\n  a.b:\n  - not-null: []", "line 3: not-null: give a column"),
        ("tables:\n  a.b:\n  - expression: [a, b]", "line 3: expression: give one"),
        ("tables:\n  a.b:\n  - accepted-values: [a]", "line 3: accepted-values: say of which"),
        (
            "tables:\n  a.b:\n  - not-null: x\n  - not-null: x",
            "line 4: a.b: two tests are 'not-null x'",
        ),
        ("on-failure: x\ntables:\n  a.b: y", r"line 1: on-failure: .*; line 3: a.b:"),
    ],
)
def test_mistakes_are_named(text: str, told: str, tmp_path: Path) -> None:
    """Each with its line, in one sentence."""
    path = tmp_path / "tests.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_tests(path)


def test_columns_and_values_are_the_tables() -> None:
    """A test of a column that is not there, or of a value that its type has not, is refused."""
    columns = (Column("id", "int32", 1), Column("when", "date32[day]", 2))
    schema = TableSchema("s", "a.b", "b", 1, ("id",), columns)
    check_columns(schema, [DataTest("t", Kind.ACCEPTED, ("when",), ("2026-01-31",))])
    with pytest.raises(
        ConfigError, match=r"test 't' of a.b: there is no column 'x'; there are: id"
    ):
        check_columns(schema, [DataTest("t", Kind.NOT_NULL, ("x",))])
    with pytest.raises(ConfigError, match="value 2 is no int32"):
        check_columns(schema, [DataTest("t", Kind.ACCEPTED, ("id",), ("1", "secret"))])


def test_they_need_spark_and_a_table(tmp_path: Path) -> None:
    """Without Spark, and of a table that is not in the landing, they are refused."""
    table = Table("t", [SourceColumn(1, "id", pa.int32())], (1,), full=False)
    source = History(tmp_path / "landing", 1, tables=[table], with_schema_changes=False)
    source.run(3)
    tests = [DataTest("t", Kind.NOT_NULL, ("id",))]
    for name, told in (("public.t", "leave out --local"), ("public.u", "no table 'public.u'")):
        with pytest.raises(ConfigError, match=told):
            apply_with(
                LocalEngine(), tmp_path / "landing", tmp_path / name, Options(tests={name: tests})
            )
