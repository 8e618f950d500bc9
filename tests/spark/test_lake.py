"""Catalogs and layouts; with jars in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.history import History
from kit.jars import LAKE, OLDEST, RELEASES, SPARK_40
from pyspark.sql import SparkSession

from gaussdecode.errors import EX_CONFIG, ConfigError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.merge.engine import LocalEngine, SparkEngine
from gaussdecode.spark.target.catalog_names import check_apart, full_pattern, name_of
from gaussdecode.spark.target.formats import DELTA, FORMATS, ICEBERG, PAIRS, coordinate
from gaussdecode.spark.target.layout import Layout, read_layouts
from gaussdecode.spark.target.store import Target


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("cases", ["iceberg_cases.py", "delta_cases.py"])
def test_with_jars(cases: str) -> None:
    """Every test of this file passes with Spark 4.0 and the jars."""
    # Spark 4.0 does not close sockets that its pipes are read to the end of.
    words = ["-q", "-W", "ignore", "-p", "no:unraisableexception", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(Path(__file__).with_name(cases))],
        env={**os.environ, "PYTHONPATH": str(SPARK_40)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


@pytest.mark.spark
def test_missing_jar_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Without the jar the one to add is said, or the Spark that there is one for; nothing is made."""
    History(tmp_path / "landing", 1).run(1)
    try:
        needed = coordinate(DELTA, spark.version)
    except ConfigError as error:
        needed = str(error)
    made = Options(catalog="lake")
    with pytest.raises(ConfigError, match=re.escape(needed)):
        apply_with(SparkEngine(spark), tmp_path / "landing", tmp_path / "target", made)
    assert not (tmp_path / "target").exists()


def test_every_pair_is_tried() -> None:
    """Here with the oldest Spark; `make test-spark-versions` has the others, each with all its jars."""
    assert {minor: tuple(pair.values()) for minor, pair in PAIRS.items()} == LAKE
    assert RELEASES.keys() == PAIRS.keys()
    lines = (Path(__file__).parents[2] / "Makefile").read_text().splitlines()
    (fetched,) = [line.split()[2:] for line in lines if "kit/jars.py" in line]
    assert [OLDEST, *fetched] == list(PAIRS)
    for minor in fetched:
        (line,) = [line for line in lines if f"/pyspark-{minor} " in line]
        asked = {kept_as for kept_as in FORMATS if f"tests/spark/{kept_as}_cases.py" in line}
        assert asked == PAIRS[minor].keys()


def test_coordinates_by_version_of_spark() -> None:
    """The jars for each version, and which version to take where there is none."""
    assert (coordinate(DELTA, "4.0.2"), coordinate(ICEBERG, "4.0.2")) == LAKE["4.0"]
    assert coordinate(DELTA, "4.2.0").startswith("io.delta:delta-spark_4.2_2.13:")
    assert coordinate(ICEBERG, "4.1.0").startswith(
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:"
    )
    with pytest.raises(
        ConfigError, match=r"no jar of iceberg is known for Spark 4\.2\.0: use Spark 4\.0 or 4\.1"
    ):
        coordinate(ICEBERG, "4.2.0")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("lake", ("lake", "Sales Dept", "a.b")),
        ("lake.cdc", ("lake", "cdc", "Sales Dept_a.b")),
        ("lake.x.{table}", ("lake", "x", "a.b")),
        ("uc.raw_{schema}.t_{table}", ("uc", "raw_Sales Dept", "t_a.b")),
    ],
)
def test_names_of_a_pattern(text: str, name: tuple[str, ...]) -> None:
    """Parts are parts whatever is in the names of the source."""
    assert name_of(full_pattern(text), "Sales%20Dept.a%2Eb") == name


@pytest.mark.parametrize(
    "text", ["", ".", "lake.", "{table}", "lake.{schema}", "lake.{name}", "lake.{table", "a.{0}"]
)
def test_patterns_that_are_none(text: str) -> None:
    """What would not tell tables apart is refused, with what it is."""
    with pytest.raises(ConfigError, match=r"^catalog '.*': |^catalog '.*' is no name of tables"):
        full_pattern(text)


def test_tables_of_one_name() -> None:
    """Catalogs that fold case would write one over the other."""
    check_apart(full_pattern("lake"), ["public.orders", "sales.orders", "public.a_b"])
    with pytest.raises(
        ConfigError, match=r"public\.Orders and public\.orders would both be lake\."
    ):
        check_apart(full_pattern("lake"), ["public.Orders", "public.orders"])
    with pytest.raises(ConfigError, match="would both be"):
        check_apart(full_pattern("lake.cdc"), ["a.b_c", "a_b.c"])


def test_layouts_of_options() -> None:
    """Columns by table, and what is computed of them."""
    found = read_layouts(["a.b=x,a b", "c=days(é)"], ["a.b=y,z"])
    assert found == {"a.b": Layout(("x", "a b"), ("y", "z")), "c": Layout(("days(é)",))}


@pytest.mark.parametrize(
    ("partition", "cluster", "why"),
    [
        ("t", "t=a", "give TABLE=COLUMN"), ("t=", "t=a", "give TABLE=COLUMN"),
        ("t=a", "t=b", "no column 'b'"), ("t=days(b)", "t=a", "no column 'b'"),
        ("t=days(a)", "t=a", r"days\(a\) needs a column of times: 'a' is int32"),
        ("t=hours(d)", "t=a", r"hours\(d\) needs a column of times"),
        ("t=days(d)", "t=a", "has a column 'd_day' already"),
        ("t=x", "t=a", "divides or orders no rows"), ("t=a", "t=l", "divides or orders no rows"),
    ],
)  # fmt: skip
def test_layouts_that_are_none(partition: str, cluster: str, why: str) -> None:
    """What cannot be is refused, with what can."""
    with pytest.raises(ConfigError, match=why):
        read_layouts([partition], [cluster])["t"].check(
            "t",
            {
                "a": "int32",
                "x": "binary",
                "l": "list<element: int32>",
                "d": "date32[day]",
                "d_day": "string",
            },
        )


def test_names_in_spark_need_spark(tmp_path: Path) -> None:
    """Without it they are refused, and nothing is made."""
    History(tmp_path / "landing", 1).run(1)
    with pytest.raises(ConfigError, match="need Spark: leave out --local"):
        apply_with(
            LocalEngine(), tmp_path / "landing", tmp_path / "target", Options(catalog="lake")
        )
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("kind", [None, DELTA])
def test_delta_lake_without_a_catalog_needs_no_spark(kind: str | None, tmp_path: Path) -> None:
    """Nor a jar; it is what a target is kept as where nobody says."""
    History(tmp_path / "landing", 1).run(1)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options(format=kind))
    assert Target(tmp_path / "target").format == DELTA


def test_format_that_is_none(tmp_path: Path) -> None:
    """It is refused with those there are."""
    History(tmp_path / "landing", 1).run(1)
    with pytest.raises(ConfigError, match="not one of delta, iceberg"):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "x", Options(format="orc"))
    assert ConfigError.exit_status == EX_CONFIG


def test_directory_of_a_run_that_died_before_it_was_a_target(tmp_path: Path) -> None:
    """What it left is no reason to refuse the directory; anything else is."""
    History(tmp_path / "landing", 1).run(1)
    target = tmp_path / "target"
    target.mkdir()
    (target / ".target.json.0123456789abcdef").write_text("{")
    (target / "mine").write_text("")
    with pytest.raises(ConfigError, match="holds something else"):
        apply_with(LocalEngine(), tmp_path / "landing", target)
    (target / "mine").unlink()
    apply_with(LocalEngine(), tmp_path / "landing", target)
