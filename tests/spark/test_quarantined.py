"""Rows in quarantine: beside the table for every reader, and found again by what changes them."""

from pathlib import Path
from random import Random

import polars
import pytest
from kit.csnhistory import SharedHistory
from kit.history import History, canon
from pyspark.sql import SparkSession

from gaussdecode.spark.apply import apply_with
from gaussdecode.spark.checks.data_tests import DataTest, Kind, OnFailure
from gaussdecode.spark.merge.engine import SparkEngine
from gaussdecode.spark.merge.options import Options
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.query import history
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TESTS = {
    f"public.{table}": [
        DataTest("known", Kind.NOT_NULL, (column,), on_failure=OnFailure.QUARANTINE)
    ]
    for table, column in {"pair": "doc", "bag": "y"}.items()
}


@pytest.mark.parametrize(
    ("with_vectors", "is_shared"), [(False, False), (True, False), (True, True)]
)
def test_a_row_is_in_the_table_or_beside_it(
    spark: SparkSession, tmp_path: Path, *, with_vectors: bool, is_shared: bool
) -> None:
    """After each apply others read the rows that pass; those that fail are beside, and none is lost."""
    rng = Random(5)
    source: History
    if is_shared:
        source = SharedHistory(tmp_path / "landing", 5, order="lsn")
    else:
        source = History(tmp_path / "landing", 5, with_schema_changes=False)
    options = Options(
        history=True, vectors=with_vectors, buckets=2, tests=TESTS,
        sizes=Sizes(small_bucket=0, share=1000.0),
    )  # fmt: skip
    were_out = came_back = 0
    before: dict[str, set[str]] = {}
    for _ in range(5):
        if isinstance(source, SharedHistory):
            source.step()
        else:
            source.run(rng.randint(1, 3))
        apply_with(SparkEngine(spark), tmp_path / "landing", tmp_path / "target", options)
        for name, (test,) in TESTS.items():
            table = next(t for t in source.tables if f"public.{t.name}" == name)
            state = source.states[table.name][max(source.states[table.name])]
            at = state.names.index(test.columns[0])
            root = Target(tmp_path / "target").table_root(table.directory)
            rows = polars.scan_delta(str(root / "current")).collect().to_dicts()
            passed = canon([tuple(row[c] for c in state.names) for row in rows])
            assert passed == [row for row in state.rows if row[at] is not None]
            out = []
            if (root / "quarantine").is_dir():
                out = polars.scan_delta(str(root / "quarantine")).collect().to_dicts()
            failed = canon([tuple(row[c] for c in state.names) for row in out])
            assert failed == [row for row in state.rows if row[at] is None]
            kept = history(spark, tmp_path / "target", name).where("gd_to_n is null")
            assert kept.count() == len(state.rows)
            now = set(map(repr, failed))
            were_out += len(now)
            came_back += len(before.get(name, set()) - now)
            before[name] = now
    assert were_out > 3
    assert came_back > 0
