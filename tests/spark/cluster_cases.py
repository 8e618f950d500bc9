"""A real cluster that shares nothing but a store; minutes long, so `make test-cluster` runs it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.cluster import Cluster
from kit.history import History, canon
from kit.s3 import S3

from gaussdecode.spark.failpoint import VARIABLE, Step
from gaussdecode.spark.store import Target
from gaussdecode.spark.vectors import current_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
_CONF = (
    "spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.ui.enabled=false",
    "spark.driver.bindAddress=127.0.0.1", "spark.task.maxFailures=8",
)  # fmt: skip


class Driver:
    """One ``gaussdecode spark apply``.

    Args:
        cluster: where its tasks run.
        landing: URL.
        target: URL.
        directory: it works in, in which there is nothing.
        step: at which it kills itself.
    """

    def __init__(
        self, cluster: Cluster, landing: str, target: str, directory: Path, step: str = ""
    ) -> None:
        directory.mkdir()
        words = ["spark", "apply", landing, target, "--history", "--buckets", "4"]
        words += ["--master", cluster.url, *(word for of in _CONF for word in ("--conf", of))]
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gaussdecode", *words],
                cwd=directory, env={**os.environ, VARIABLE: step}, stdout=log, stderr=log,
            )  # fmt: skip

    def ended(self) -> int:
        """Wait for its end."""
        return self.process.wait(600)


def check(source: History, target: str) -> None:
    """Every table has the source's rows."""
    store = Target(target)
    for table in source.tables:
        states = source.states[table.name]
        state, version = states[max(states)], store.newest(table.directory)
        assert version is not None
        tables = [current_rows(store.table_root(table.directory), f) for f in version.current]
        rows = [row for of in tables for row in of.to_pylist()]
        assert canon([tuple(row[name] for name in state.names) for row in rows]) == state.rows


def test_executor_and_driver_killed(s3: S3, tmp_path: Path) -> None:
    """A driver dies before it commits, then an executor under the next one: rows are the source's."""
    source, bucket = History(tmp_path / "landing", 31), s3.bucket()
    source.run(7)
    landing, target = s3.keep(tmp_path / "landing", bucket, "landing"), s3.url(bucket, "target")
    with Cluster(tmp_path) as cluster:
        first = Driver(cluster, landing, target, tmp_path / "first", Step.FILES_WRITTEN)
        assert first.ended() == -signal.SIGKILL, first.log.read_text()
        assert Target(target).database() is None
        second = Driver(cluster, landing, target, tmp_path / "second")
        while not (held := cluster.executors()) or b"changes of" not in second.log.read_bytes():
            assert second.process.poll() is None, second.log.read_text()
            time.sleep(0.02)
        os.kill(held[0], signal.SIGKILL)
        assert second.ended() == 0, second.log.read_text()
    check(source, target)
    for place in tmp_path.glob("worker-*"):
        assert not list(place.rglob("*.parquet")), "an executor wrote beside the store"
