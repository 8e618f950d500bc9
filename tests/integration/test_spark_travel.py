"""A landing of a simulated GaussDB: its tables at CSNs of the past."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussprofile import V6_0_0
from kit.gaussserver import GaussServer
from pyspark.sql import SparkSession

from gaussdecode.demo.proof import spark_session
from gaussdecode.spark.apply import apply
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.query import current, history

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark."""
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with spark_session(directory) as session:
            yield session


def test_travel_by_csn(
    make_gauss: Callable[..., GaussServer], spark: SparkSession, tmp_path: Path
) -> None:
    """At the CSN of each commit the table has what was committed up to it, and nothing later."""
    gauss = make_gauss(V6_0_0)
    columns = {"id": "int8", "v": "text"}
    table = gauss.store.create_table("public", "orders", columns, key=["id"])
    expected: dict[int, set[tuple[int, str]]] = {}
    rows: dict[int, str] = {}
    ids: list[int] = []
    with lands(GaussDatabase(gauss), tmp_path, parallel_decode_num=1) as daemon:
        for number in range(1, 5):
            transaction = gauss.store.begin()
            ids += transaction.insert(table, {"id": str(number), "v": "new"})
            rows[number] = "new"
            if number > 1:
                transaction.update(table, ids[-2], {"v": "changed"})
                rows[number - 1] = "changed"
            csn = transaction.commit().csn
            expected[csn] = set(rows.items())
            daemon.catch_up()  # one entry for each
        assert daemon.stop() == 0
    root, target = daemon.root, tmp_path / "target"
    apply(spark, root, target, history=True)
    landed = {row.gd_csn for row in history(spark, target, "public.orders").collect()}
    assert landed == set(expected)
    for csn, wanted in expected.items():
        frame = current(spark, target, "public.orders", at=Point(csn=csn), root=root)
        assert {(row.id, row.v) for row in frame.collect()} == wanted, csn
    landing = Landing(root)
    assert landing.position(landing.entry(landing.resolve(Point(csn=max(expected))))).csn == max(
        expected
    )
