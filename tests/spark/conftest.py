"""A local Spark for the tests that need one."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gaussdecode.demo.java import provide_java
from gaussdecode.spark.merge.engine import DRIVER_BYTES


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark, quiet, with everything it writes in a temporary directory."""
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["JAVA_HOME"] = str(provide_java(scratch))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        DRIVER_BYTES: "0",  # or nothing here would be large enough for tasks
        "spark.default.parallelism": "2",
        # Compiling takes longer than these few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "America/New_York",  # results must not depend on it
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch),
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
