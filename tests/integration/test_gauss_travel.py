"""What several simulated data nodes landed, at random CSNs of the past, against the cluster's oracle."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from kit.daemon import Json
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDaemon
from kit.gausshistory import SCHEMA, TABLES, History
from kit.gaussseveral import ClusterDatabase, SeveralDaemon, check_entries
from kit.landing import read_entries
from kit.postgres import Postgres
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.cli import main
from gaussdecode.demo.proof import spark_session
from gaussdecode.errors import ConfigError
from gaussdecode.land.verify import verify
from gaussdecode.spark.apply import apply
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.query import current, history
from gaussdecode.spark.stream.changes import changes
from gaussdecode.spark.stream.datasource import GaussDecodeSource
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.integration, pytest.mark.spark]
_ASKED: Final = 200
_APPLIED: Final = 10
_OURS: Final = "gd_transactions"
_COLUMNS: Final = ["gd_source", "id", "v", "n"]
Held = Counter[tuple[Any, ...]]  # Any: values


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark."""
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with spark_session(directory) as session:
            session.conf.set("spark.sql.shuffle.partitions", "2")
            yield session


@pytest.fixture(params=[("dn1", "dn2", "dn3", "dn4"), ("dn1",)], ids=["four", "one"])
def cluster(
    request: pytest.FixtureRequest, servers: Callable[[int], Postgres]
) -> Iterator[GaussCluster]:
    """Four nodes, and one."""
    with GaussCluster(request.param, postgres=servers(15)) as made:
        yield made


class OneDaemon(SeveralDaemon):
    """A daemon with the slot of one node, and no `sources:`."""

    def _merge(self, dsn: str, changes: Mapping[str, Json]) -> Json:
        return GaussDaemon._merge(self, dsn, changes)


def landed(cluster: GaussCluster, directory: Path) -> Path:
    """A random life of the nodes, truncates too, landed by the daemon: serial decoding shows these."""
    directory.mkdir()
    options: dict[str, object] = {"parallel-decode-num": 1, "output-order": 1}
    random = History(cluster, 1)
    kind = SeveralDaemon if len(cluster.servers) > 1 else OneDaemon
    with kind(ClusterDatabase(cluster), directory, config={"decoding": options}) as daemon:
        for _ in range(12):
            random.run(120)
            time.sleep(0.5)
        random.finish()
        daemon.catch_up_csn()
        assert daemon.stop() == 0
    return daemon.root


def expected(cluster: GaussCluster, table: str, csn: int) -> Held:
    """What the nodes held."""
    named = len(cluster.servers) > 1
    return Counter(
        (node if named else None, int(str(row["id"])), row["v"], Decimal(str(row["n"])))
        for node, rows in cluster.rows_at(SCHEMA, table, csn).items()
        for row in rows
    )


def held(rows: list[dict[str, Any]]) -> Held:  # Any: values
    """Rows as they are compared."""
    return Counter(tuple(row.get(name) for name in _COLUMNS) for row in rows)


def travelled(
    spark: SparkSession, target: Path, table: str, csns: list[int]
) -> dict[int, list[dict[str, Any]]]:  # Any: values
    """Rows at each of many CSNs, asked of the history at once."""
    asked = F.broadcast(spark.createDataFrame([(csn,) for csn in csns], "asked bigint"))
    versions = history(spark, target, f"{SCHEMA}.{table}")
    is_there = (F.col("gd_csn") <= F.col("asked")) & (
        F.col("gd_to_csn").isNull() | (F.col("gd_to_csn") > F.col("asked"))
    )
    names = [name for name in _COLUMNS if name in versions.columns]
    found: dict[int, list[dict[str, Any]]] = {csn: [] for csn in csns}
    for row in versions.join(asked, is_there).select("asked", *names).toArrow().to_pylist():
        found[row["asked"]].append(row)
    return found


def stored(target: Path, table: str) -> list[dict[str, Any]]:  # Any: values
    """Rows of a table in the newest version of a target."""
    store = Target(target)
    newest = store.database()
    assert newest is not None
    directory = store.find_table(f"{SCHEMA}.{table}")
    version = store.version(directory, newest.tables[directory])
    root = store.table_root(directory)
    rows: list[dict[str, Any]] = []
    for file in version.current:
        rows += pa.table(current_rows(root, file)).to_pylist()
    return rows


def test_the_database_at_any_csn_is_the_nodes(
    cluster: GaussCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """By history, by applying up to a CSN, by the query and by the data source; cut anywhere."""
    root = landed(cluster, tmp_path / "daemon")
    commits = cluster.history()
    last = commits[-1].csn
    if len(cluster.servers) > 1:
        check_entries(read_entries(root))
        assert not verify(root).findings
        assert any(len(of.parts) > 1 for of in commits)
    landing = Landing(root)
    entries = list(landing.entries(0, landing.last_n))
    assert sum(file.ops.get("T", 0) for entry in entries for file in entry.files), "no truncate"
    rng = Random(1)
    csns = sorted(rng.sample(range(commits[0].csn, last + 1), _ASKED))
    cut = [csn for csn in csns if landing.reach(Point(csn=csn)).csn is not None]
    assert len(cut) > _APPLIED, "hardly a CSN is inside an entry: the test tells less"

    target = tmp_path / "target"
    apply(spark, root, target, history=True)
    for table in TABLES:
        found = travelled(spark, target, table, sorted({*csns, last}))
        for csn in [*csns, last]:
            assert held(found[csn]) == expected(cluster, table, csn), (table, csn)
    assert any(expected(cluster, table, last) for table in TABLES)

    stepped = tmp_path / "stepped"
    for csn in sorted(rng.sample(cut, _APPLIED)):
        words = [str(root), str(stepped), "--local", "--to-csn", str(csn)]
        assert main(["spark", "apply", *words]) == 0
        for directory in Target(stepped).tables():
            table = directory.removeprefix(f"{SCHEMA}.")
            assert held(stored(stepped, table)) == expected(cluster, table, csn), (table, csn)

    spark.dataSource.register(GaussDecodeSource)
    for csn in rng.sample(cut, 2):
        for table in TABLES:
            shown = current(spark, target, f"{SCHEMA}.{table}", at=Point(csn=csn), root=root)
            assert held(shown.toArrow().to_pylist()) == expected(cluster, table, csn)
    check_system_tables(spark, root, cut[len(cut) // 2])


def check_system_tables(spark: SparkSession, root: Path, csn: int) -> None:
    """Transactions at a CSN inside of an entry: those of its files up to it, and none is elsewhere."""
    with pytest.raises(ConfigError, match=r"gd_transactions is no table.*gd_csn is not above"):
        changes(spark, root, "gd_transactions", to=Point(csn=csn))
    landing = Landing(root)
    reach = landing.reach(Point(csn=csn))
    files = [
        [root / f.path for e in landing.entries(0, n) for f in e.files if f.table == _OURS]
        for n in (reach.n, landing.last_n)
    ]
    upto, every = (
        spark.read.parquet(*map(str, paths))
        .where(F.col("gd_csn") <= csn)
        .select("gd_csn", "gd_xid")
        for paths in files
    )
    assert Counter(upto.collect()) == Counter(every.collect()) != Counter()
