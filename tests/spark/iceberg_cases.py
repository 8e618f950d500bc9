"""Tables of a target in a catalog of Iceberg, read and kept by Spark with its jar; `test_lake` runs these with the oldest Spark."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from kit.ddllanding import ID, Command, DdlLanding, Of
from kit.history import History, Table
from kit.icebergcatalog import configure
from kit.lakes import each_version, last_state, live, rows_of, small, small_spark
from kit.postgres import Database
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession

from gaussdecode.errors import LandingError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.maintain.upkeep import compact_with, vacuum
from gaussdecode.spark.merge.engine import LocalEngine, SparkEngine
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
MADE = Options(format=ICEBERG, catalog="lake.cdc", history=True, changelog="gd_commit_date")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark with the jar, without a catalog."""
    with small_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def reader(
    spark: SparkSession, database_15: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> SparkSession:
    """A session that has the catalog ``lake``, in PostgreSQL, as pyiceberg has it too."""
    of = conninfo_to_dict(database_15.dsn)
    server = f"{of.get('host', '127.0.0.1')}:{of['port']}/{of['dbname']}"
    uri = f"postgresql+psycopg://{of['user']}:{of.get('password', '')}@{server}"
    configure(monkeypatch, uri)
    session = spark.newSession()
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:postgresql://{server}",
        ".jdbc.user": of["user"],
        ".jdbc.password": of.get("password", ""),
        ".warehouse": str(tmp_path / "warehouse"),
        ".cache-enabled": "false",
    }.items():
        session.conf.set(f"spark.sql.catalog.lake{name}", str(value))
    return session


def test_every_version_is_the_source_s(reader: SparkSession, tmp_path: Path) -> None:
    """At the tag of each version, with renames and retypes; histories and changelogs by their names."""
    source, rng, checked = History(tmp_path / "landing", 2), Random(2), 0
    for _ in range(4):
        source.run(rng.randint(1, 3))
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", MADE)
    store = Target(tmp_path / "target")
    for database, table, state in each_version(source, store):
        name = f"lake.cdc.public_{table.name}"
        tag = f"v{database.tables[table.directory]}"
        refs = {row["name"] for row in reader.sql(f"SELECT name FROM {name}.refs").collect()}
        if tag in refs:  # where a name means another column now, there is no older one
            rows = reader.sql(f"SELECT * FROM {name} VERSION AS OF '{tag}'")
            assert rows_of(rows, state) == state.rows, (table.name, database.n)
            checked += 1
        else:
            assert database.k != store.database_versions()[-1]
    assert checked > 8
    last = store.database()
    assert last is not None
    for table in source.tables:
        for kind in ("history", "changelog"):
            rows = reader.table(f"lake.cdc.public_{table.name}_{kind}")
            place = tmp_path / "target" / "tables" / table.directory / kind
            delta = reader.read.format("delta").load(str(place))
            assert all_of(rows) == all_of(delta.select(*[f"`{c}`" for c in rows.columns]))
    asked, then = as_documented(last.n)
    told = {row["name"]: row["version"] for row in reader.sql(asked).collect()}
    assert len(told) == 3 * len(source.tables)
    for table in source.tables:
        name = f"lake.cdc.public_{table.name}"
        assert told[name] == last.tables[table.directory]
        statement = then.replace("lake.cdc.shop_orders", name).replace("v12", f"v{told[name]}")
        assert all_of(reader.sql(statement)) == all_of(reader.table(name))


def as_documented(n: int) -> list[str]:
    """What the page says to ask for."""
    text = (Path(__file__).parents[2] / "docs" / "spark-reference.md").read_text()
    (block,) = re.findall(r"```sql iceberg\n(.*?)```", text, re.DOTALL)
    return [part.strip() for part in block.replace("n <= 41", f"n <= {n}").split(";")[:2]]


def all_of(frame: DataFrame) -> list[str]:
    """Rows of a frame, in an order."""
    return sorted(map(repr, frame.toArrow().to_pylist()))


def check(reader: SparkSession, source: History) -> None:
    """Every table is the source's."""
    for table in source.tables:
        state = last_state(source, table)
        assert state is not None
        assert rows_of(reader.table(f"lake.cdc.public_{table.name}"), state) == state.rows


def name_of(table: Table) -> str:
    """Of a table, in the catalog."""
    return f"lake.cdc.public_{table.name}"


def test_what_others_do_to_a_table(reader: SparkSession, tmp_path: Path) -> None:
    """Files rewritten, rows deleted, columns added, the format raised: the next apply has the source's rows."""
    source = small(tmp_path)
    said: list[str] = []

    def apply() -> None:
        live(source)
        apply_with(
            SparkEngine(reader), tmp_path / "landing", tmp_path / "target", MADE,
            progress=said.append,
        )  # fmt: skip
        check(reader, source)

    apply()
    keyed = name_of(source.tables[0])
    for statement, is_told in (
        (f"CALL lake.system.rewrite_data_files(table => '{keyed}', options => map('rewrite-all', 'true'))", True),
        (f"DELETE FROM {keyed} WHERE id > 0", True),
        (f"ALTER TABLE {keyed} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')", False),
        (f"DELETE FROM {keyed} WHERE id IN (SELECT min(id) FROM {keyed})", True),
        (f"ALTER TABLE {keyed} ADD COLUMN mine int", False),
        (f"ALTER TABLE {keyed} SET TBLPROPERTIES ('mine' = 'kept')", False),
        (f"CALL lake.system.rewrite_manifests('{keyed}')", True),
        (f"DROP TABLE {keyed}", False),
    ):  # fmt: skip
        said.clear()
        reader.sql(statement).collect()
        apply()
        assert (
            any("of another writer" in text or "another writer (" in text for text in said)
            == is_told
        ), (statement, said)
    assert "mine" not in reader.table(keyed).columns
    reader.sql(f"ALTER TABLE {keyed} SET TBLPROPERTIES ('format-version' = '3')")
    with pytest.raises(LandingError, match=r"version 3 of Iceberg's format.* drop the table"):
        apply()
    reader.sql(f"DROP TABLE {keyed}")
    apply()


def test_files_are_the_delta_table_s(reader: SparkSession, tmp_path: Path) -> None:
    """Iceberg removes none of them; compact and vacuum here do, and older snapshots with them."""
    source = small(tmp_path)
    for _ in range(4):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", MADE)
        live(source)
    keyed = name_of(source.tables[0])
    for statement in (
        f"CALL lake.system.expire_snapshots(table => '{keyed}', older_than => TIMESTAMP '2100-01-01 00:00:00')",
        f"CALL lake.system.remove_orphan_files(table => '{keyed}')",
        f"DROP TABLE {keyed} PURGE",
    ):
        with pytest.raises(Exception, match=r"GC is disabled|gc\.enabled"):
            reader.sql(statement).collect()
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", MADE)
    check(reader, source)
    compact_with(LocalEngine(), tmp_path / "target")
    check(reader, source)
    vacuum(tmp_path / "target", older_than_seconds=0)
    check(reader, source)
    for table in source.tables:
        snapshots = reader.sql(f"SELECT * FROM {name_of(table)}.snapshots").collect()
        refs = reader.sql(f"SELECT name FROM {name_of(table)}.refs").collect()
        assert (len(snapshots), len(refs)) == (1, 2)


def test_ddl_is_followed_before_the_next_rows(reader: SparkSession, tmp_path: Path) -> None:
    """A snapshot of the same rows has the columns of the commands."""
    a, b, z = Of(2, "a"), Of(3, "b", "text"), Of(2, "z", "bigint")
    source = DdlLanding(tmp_path / "landing")
    source.land(([ID, a], {"id": 1, "a": 10}))
    said = (
        "ALTER TABLE t ADD b text; ALTER TABLE t RENAME a TO z; ALTER TABLE t ALTER z TYPE bigint"
    )
    for after, row in (
        ([ID, a], (1, 10)), ([ID, a, b], (1, 10, None)), ([ID, z, b], (1, 10, None)), ([ID, z], (1, 10)),
    ):  # fmt: skip
        source.land(Command(after, statement=said))
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", MADE)
        names = [name for name in reader.table("lake.cdc.public_t").columns if name[:3] != "gd_"]
        assert sorted(names) == sorted(of.name for of in after)  # a name that is new comes last
        wanted = [of.name for of in after]
        assert tuple(reader.table("lake.cdc.public_t").select(*wanted).collect()[0]) == row
    assert dict(reader.table("lake.cdc.public_t").dtypes)["z"] == "bigint"
