"""The examples of docs/spark.md and its reference, run in the order of the pages."""

import re
import shlex
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from kit.history import Column, History, Table
from pyspark.sql import SparkSession

from gaussdecode.cli import main
from gaussdecode.commands import spark as command

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
FORMAT = PAGE.with_name("landing-format.md").read_text()
REFERENCE = PAGE.with_name("spark-reference.md")
TEXT = PAGE.read_text() + REFERENCE.read_text()
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", TEXT, re.DOTALL)


def orders() -> list[Table]:
    """The one table that the page asks about."""
    columns = [Column(1, "id", pa.int32()), Column(2, "note", pa.string(), toast=True)]
    return [Table("orders", columns, (1,), full=False)]


def test_examples_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every command ends with 0, every piece of Python runs, on a landing of orders."""
    history = History(tmp_path / "landing", 3, tables=orders(), with_schema_changes=False)
    history.run(3)
    places = {
        "LANDING": str(tmp_path / "landing"),
        "TARGET": str(tmp_path / "target"),
        "CHECKPOINT": str(tmp_path / "checkpoint"),
    }
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: spark))
    names = {**places, "spark": spark, "summary_lsn": history.lsn}
    ran = 0
    for kind, text in BLOCKS:
        if kind == "python":
            # The page is about the demo's shop; the kit's tables are in another schema.
            exec(compile(text.replace('"shop.', '"public.'), str(PAGE), "exec"), names)
            ran += 1
            continue
        for line in text.splitlines():
            words = [places.get(word, word) for word in shlex.split(line)]
            if "--follow" in words:  # does not end by itself
                words = [w for w in words if w != "--follow"]
                words[words.index("--metrics-file") + 1] = str(tmp_path / "gd.prom")
            assert words[:2] == ["gaussdecode", "spark"]
            assert main(words[1:]) == 0, line
            ran += 1
    assert ran >= 11
    for kind in ("pyarrow", "spark"):
        (text,) = re.findall(rf"```python {kind}\n(.*?)```", FORMAT, re.DOTALL)
        exec(
            compile(text.replace("public.plain", "public.orders"), "landing-format.md", "exec"),
            names,
        )
    assert "gaussdecode_spark_lag_entries" in (tmp_path / "gd.prom").read_text()
    assert command.__name__ in sys.modules
    capsys.readouterr()
