"""A real cluster that shares nothing but a store; minutes long, so `make test-cluster` runs it."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cluster import Cluster
from kit.history import History, canon
from kit.s3 import S3

from gaussdecode.demo.java import provide_java
from gaussdecode.errors import ConfigError
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.failpoint import VARIABLE, Step
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
_CONF = (
    "spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.ui.enabled=false",
    "spark.driver.bindAddress=127.0.0.1", "spark.task.maxFailures=8",
    "spark.gaussdecode.driverBytes=0",
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


def check(source: History, target: Path | str) -> None:
    """Every table has the source's rows."""
    store = Target(target)
    for table in source.tables:
        states = source.states[table.name]
        if not states:
            continue
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


_PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
_SHOWN = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody who gives the page's commands to a shell, with names of their own.

    Args:
        directory: to work in.
        names: what stands in the page, and what is meant by it.
    """

    def __init__(self, directory: Path, names: dict[str, str]) -> None:
        self._commands = iter(_SHOWN.findall(_PAGE.read_text()))
        self._directory, self._names = directory, names
        programs = Path(sys.executable).parent
        self._environment = {
            **os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "JAVA_HOME": str(provide_java(directory)), "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip

    def do_next(self, *words: str, until: Callable[[], bool] | None = None) -> None:
        """Run the next command of the page; one that follows is told to end once it is time."""
        command = next(self._commands)
        for word in words:
            assert word in command, f"the page has another order: {command}"
        for name, meant in self._names.items():
            command = re.sub(rf"{re.escape(name)}(?=\s|$)", shlex.quote(meant), command)
        log = self._directory / "log"
        with log.open("wb") as told:
            process = subprocess.Popen(
                ["bash", "-euc", command], cwd=self._directory, env=self._environment,
                stdout=told, stderr=told, start_new_session=True,
            )  # fmt: skip
        while until is not None and not until():
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
        if until is not None:
            os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(600) == 0, log.read_text()


def is_applied(target: Path | str, source: History) -> bool:
    """Whether a target is at the newest entry."""
    try:
        database = Target(target).database()
    except ConfigError:  # it is not made yet
        return False
    return database is not None and database.n == source.writer.n - 1


def test_the_page(s3: S3, tmp_path: Path) -> None:
    """Its commands, one after the other, bring one landing from a laptop to a cluster."""
    source, bucket = History(tmp_path / "landing", 32), s3.bucket()
    here = tmp_path / "tables"
    with Cluster(tmp_path) as cluster:
        landing, target = s3.url(bucket, "landing"), s3.url(bucket, "tables")
        page = Reader(
            tmp_path,
            {
                "/var/lib/gaussdecode/orders": str(tmp_path / "landing"),
                "/srv/orders": str(here),
                "s3://lake/orders": landing,
                "s3://lake/tables": target,
                "spark://master:7077": cluster.url,
                "/opt/gaussdecode/bin/python": sys.executable,
                "spark.executor.memory=4g": "spark.executor.memory=512m",
                "4g": "512m",
            },
        )

        source.run(3)
        page.do_next("--local")
        check(source, here)
        source.run(2)
        page.do_next("--follow", until=lambda: is_applied(here, source))
        check(source, here)
        source.run(2)
        s3.keep(tmp_path / "landing", bucket, "landing")
        s3.keep(here, bucket, "tables")
        page.do_next("--follow", "--master spark://", until=lambda: is_applied(target, source))
        check(source, target)
        source.run(2)
        s3.keep(tmp_path / "landing", bucket, "landing")
        page.do_next("spark-submit")
        check(source, target)


def test_java_killed(tmp_path: Path) -> None:
    """Who follows says that Spark has died, and what to do; who is told to end has nothing to say."""
    source = History(tmp_path / "landing", 33)
    source.run(2)
    words = ["spark", "apply", str(tmp_path / "landing"), str(tmp_path / "tables"), "--follow"]
    for number in (signal.SIGKILL, signal.SIGTERM):
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gaussdecode", *words, "--master", "local[1]",
                 "--conf", "spark.gaussdecode.driverBytes=0"],
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        source.run(2)
        while not is_applied(tmp_path / "tables", source):
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        if number == signal.SIGTERM:
            os.killpg(process.pid, number)
            assert process.wait(600) == os.EX_OK
            continue
        os.killpg(process.pid, signal.SIGSTOP)
        (java,) = [
            int(pid) for pid in subprocess.check_output(
                ["pgrep", "-f", "-g", str(process.pid), "java -cp"]).split()
        ]  # fmt: skip
        os.kill(java, number)
        os.killpg(process.pid, signal.SIGCONT)
        source.run(1)
        assert process.wait(600) == os.EX_UNAVAILABLE, (tmp_path / "log").read_text()
        assert "Spark's Java process has ended" in (tmp_path / "log").read_text()


_DAG = Path(__file__).parents[2] / "config" / "airflow" / "gaussdecode_apply.py"
_AIRFLOW = Path(__file__).parents[2] / "build" / "airflow" / "bin" / "airflow"


@pytest.mark.skipif(not _AIRFLOW.exists(), reason="make test-cluster installs Airflow")
def test_airflow(tmp_path: Path) -> None:
    """The DAG, with places of its own, is read and run by Airflow: tables are at the landing's end."""
    source, tables = History(tmp_path / "landing", 34), tmp_path / "tables"
    source.run(3)
    places = {
        "PROGRAM": f"{sys.executable} -m gaussdecode", "LANDING": str(tmp_path / "landing"),
        "TARGET": str(tables), "MASTER": "local[1]",
    }  # fmt: skip
    text = _DAG.read_text()
    for name, place in places.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {place!r}", text, flags=re.MULTILINE)
        assert count == 1, name
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / _DAG.name).write_text(text)
    environment = {
        **os.environ, "AIRFLOW_HOME": str(tmp_path / "home"), "SPARK_LOCAL_IP": "127.0.0.1",
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "JAVA_HOME": str(provide_java(tmp_path)),
    }  # fmt: skip
    for words in (["db", "migrate"], ["dags", "test", "gaussdecode_apply"]):
        done = subprocess.run(
            [_AIRFLOW, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    check(source, tables)
