"""Delta tables of a target and Spark with Delta Lake's jar; `test_lake` runs these with the oldest Spark."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from kit.ddllanding import ID, Command, DdlLanding, Of
from kit.history import Column, History, Table, canon
from kit.lakes import each_version, last_state, live, rows_of, small, small_spark
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.catalogs.registered import location_of
from gaussdecode.spark.merge.engine import LocalEngine, SparkEngine
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.query import current
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
BESIDE = Sizes(small_bucket=0, share=1000.0)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark with the jar."""
    with small_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


def path_of(root: Path, table: Table, kind: str = "current") -> str:
    """A Delta table, as SQL names one by its place."""
    return f"delta.`{root}/target/tables/{table.directory}/{kind}`"


@pytest.mark.parametrize(("seed", "with_vectors"), [(0, False), (1, True)])
def test_every_version_is_the_source_s(
    seed: int, spark: SparkSession, tmp_path: Path, *, with_vectors: bool
) -> None:
    """Delta Lake's own reader has the source's rows at each version, deletion vectors or none."""
    source, rng = History(tmp_path / "landing", seed), Random(seed)
    made = Options(history=True, vectors=with_vectors, buckets=2, sizes=BESIDE)
    for _ in range(4):
        source.run(rng.randint(1, 3))
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
    store, checked, vectors = Target(tmp_path / "target"), 0, 0
    for database, table, state in each_version(source, store):
        version = database.tables[table.directory]
        rows = spark.sql(f"SELECT * FROM {path_of(tmp_path, table)} VERSION AS OF {version}")
        assert rows_of(rows, state) == state.rows, (table.name, database.n)
        files = store.version(table.directory, version).current
        vectors += sum(bool(file.deletes) for file in files)
        checked += 1
    assert checked > 8
    assert bool(vectors) == made.vectors


def test_types_and_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    """Every type, and names that Delta Lake only maps, before and after they change."""
    types = {
        "id": pa.int16(), "big": pa.int64(), "price in €": pa.decimal128(12, 2),
        "t": pa.timestamp("us"), "tz": pa.timestamp("us", tz="UTC"), "f": pa.float32(),
        "d": pa.float64(), "l": pa.list_(pa.field("element", pa.int32())), "b": pa.binary(),
    }  # fmt: skip
    columns = [Column(i, name, of) for i, (name, of) in enumerate(types.items(), 1)]
    table = Table("odd%20name", columns, (1,), full=True)
    source = History(tmp_path / "landing", 4, with_schema_changes=False, tables=[table])
    made = Options(history=True, changelog="gd_commit_date")
    live(source, 1)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
    columns[2] = Column(3, "Preis = 2", columns[2].type)
    live(source)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
    ours = current(spark, tmp_path / "target", "public.odd%20name").toArrow()
    theirs = spark.sql(f"SELECT * FROM {path_of(tmp_path, table)}").toArrow()
    names = [column.name for column in columns]
    spelled = [canon([tuple(map(repr, row.values())) for row in t.select(names).to_pylist()])
               for t in (ours, theirs)]  # fmt: skip
    assert spelled[0] == spelled[1]
    for kind in ("history", "changelog"):
        rows = spark.sql(f"SELECT `Preis = 2`, id FROM {path_of(tmp_path, table, kind)}").collect()
        assert rows
        assert any(row["Preis = 2"] is not None for row in rows)


def test_names_in_a_catalog(spark: SparkSession, tmp_path: Path) -> None:
    """Tables have names, positions tell which versions belong together, and nobody else's is taken."""
    source = small(tmp_path)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS spark_catalog.cdc")
    made = Options(catalog="spark_catalog.cdc", history=True, changelog="gd_commit_date")
    for _ in range(3):
        apply_with(SparkEngine(spark), tmp_path / "landing", tmp_path / "target", made)
        for table in source.tables:
            state = last_state(source, table)
            assert state is not None
            name = f"spark_catalog.cdc.public_{table.name}"
            assert rows_of(spark.table(name), state) == state.rows
            beside = (f"{name}_history", f"{name}_changelog")
            assert all(spark.table(of).count() > 0 for of in beside[1:])
            assert spark.catalog.tableExists(beside[0])
        live(source)
    store = Target(tmp_path / "target")
    database = store.database()
    assert database is not None
    told: dict[str, int] = {}
    rows: list[Any] = spark.table("spark_catalog.cdc.gd_positions").orderBy("n").collect()
    for row in rows:
        told[row["path"]] = row["version"]
        assert row["landing"] == store.landing_id
    for directory, v in database.tables.items():
        numbers = store.log(directory).numbers(v)
        for folder, number in numbers.items():
            assert told[f"tables/{directory}/{folder}"] == number
    with pytest.raises(ConfigError, match="is another table"):
        apply_with(SparkEngine(spark), tmp_path / "landing", tmp_path / "other", made)
    with pytest.raises(ConfigError, match="need Spark"):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)


def test_spark_keeps_the_tables_small(spark: SparkSession, tmp_path: Path) -> None:
    """OPTIMIZE and properties between applies change no row; DELETE, MERGE and RESTORE are refused."""
    source = small(tmp_path)
    made = Options(history=True, vectors=True, buckets=2, sizes=BESIDE)
    for _ in range(3):
        for _ in range(2):
            apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
            live(source)
        for table in source.tables:
            spark.sql(f"OPTIMIZE {path_of(tmp_path, table)}").collect()
            text = "('delta.logRetentionDuration' = 'interval 60 days')"
            spark.sql(f"ALTER TABLE {path_of(tmp_path, table)} SET TBLPROPERTIES {text}")
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
    for table in source.tables:
        state = last_state(source, table)
        assert state is not None
        path = path_of(tmp_path, table)
        assert rows_of(spark.sql(f"SELECT * FROM {path}"), state) == state.rows
        kept = {
            row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {path}").collect()
        }
        assert kept["delta.logRetentionDuration"] == "interval 60 days"
    keyed = path_of(tmp_path, source.tables[0])
    spark.sql(f"DELETE FROM {keyed}").collect()
    live(source)
    with pytest.raises(LandingError, match="DELETE of another writer changed rows"):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)


def test_change_feed(spark: SparkSession, tmp_path: Path) -> None:
    """Where somebody turns it on, the feed adds up to the rows; with deletion vectors it has nothing else."""
    source = small(tmp_path)
    made = Options(vectors=True, buckets=2, sizes=BESIDE)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
    keyed = source.tables[0]
    path, state = path_of(tmp_path, keyed), last_state(source, keyed)
    assert state is not None
    text = "('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES {text}")
    first = spark.sql(f"DESCRIBE HISTORY {path} LIMIT 1").collect()[0]["version"]
    held = Counter(map(repr, state.rows))
    for _ in range(3):
        live(source)
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    place = tmp_path / "target" / "tables" / keyed.directory / "current"
    feed = reader.option("startingVersion", first + 1).load(str(place))
    for row in feed.select("_change_type", *state.names).collect():
        sign = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        held[repr(tuple(row[name] for name in state.names))] += sign
    state = last_state(source, keyed)
    assert state is not None
    assert {row: count for row, count in held.items() if count} == Counter(map(repr, state.rows))


def test_constraints_of_others_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the source need not fit them."""
    source = small(tmp_path)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options())
    path = path_of(tmp_path, source.tables[0])
    spark.sql(f"ALTER TABLE {path} ADD CONSTRAINT positive CHECK (id > -100000)")
    live(source)
    with pytest.raises(LandingError, match=r"does not support: .*delta\.constraints\.positive"):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options())


def test_location_of_a_url_is_hadoop_s() -> None:
    """The scheme that Spark knows a store by."""
    from gaussdecode.spark.log.place import place_of

    assert location_of(place_of("s3://bucket/a b?region=eu")) == "s3a://bucket/a b"
    assert location_of(Path("/srv/a b")) == "file:///srv/a%20b"


def test_ddl_is_followed_before_the_next_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Delta Lake's own reader sees the columns and comments of the commands, and every earlier version."""
    a, b = Of(2, "a"), Of(3, "b", "text")
    source = DdlLanding(tmp_path / "landing")
    source.land(([ID, a], {"id": 1, "a": 10}))
    said = {"object_type": "table column", "object_identity": "public.t.z"}
    z = Of(2, "z", "bigint")
    path, found = f"delta.`{tmp_path}/target/tables/public.t/current`", []
    for command in (
        Command([ID, a, b]),
        Command(
            [ID, z, b], statement="ALTER TABLE t RENAME a TO z; ALTER TABLE t ALTER z TYPE bigint"
        ),
        Command([ID, z], "COMMENT", "COMMENT ON COLUMN t.z IS 'Zed'", more=said),
        Command([ID, z]),
    ):
        source.land(command)
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options(history=True))
        table = spark.table(path)
        found.append({name: of for name, of in table.dtypes if not name.startswith("gd_")})
        assert table.collect()[0]["id"] == 1
    assert found == [
        {"id": "int", "a": "int", "b": "string"},
        {"id": "int", "z": "bigint", "b": "string"},
        {"id": "int", "z": "bigint", "b": "string"},
        {"id": "int", "z": "bigint"},
    ]
    (field,) = (field for field in spark.table(path).schema if field.name == "z")
    assert field.metadata["comment"] == "Zed"
    old = spark.sql(f"SELECT * FROM {path} VERSION AS OF 0").collect()[0]
    assert (old["id"], old["a"], old["b"]) == (1, 10, None)
    assert spark.table(path).collect()[0]["z"] == 10
