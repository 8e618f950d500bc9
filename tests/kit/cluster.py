"""A Spark standalone cluster: a master and workers, each a process with a directory of its own."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from gaussdecode.demo.java import provide_java
from gaussdecode.demo.ports import free_port

_HOME: Final = Path(pyspark.__file__).parent
_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m")
_BACKEND: Final = b"CoarseGrainedExecutorBackend"
_SECONDS: Final = 300.0


class Cluster:
    """A master and workers of one core each.

    Attributes:
        url: of the master.
    """

    def __init__(self, directory: Path, workers: int = 3) -> None:
        self._directory = directory
        self._count = workers
        self._port, self._web = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start it, and wait until all workers are known."""
        address = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web)]
        self._start("master", "org.apache.spark.deploy.master.Master", *address)
        for number in range(self._count):
            name = f"worker-{number}"
            words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            words += ["--work-dir", str(self._directory / name / "work"), self.url]
            self._start(name, "org.apache.spark.deploy.worker.Worker", *words)
        deadline = time.monotonic() + _SECONDS
        while self._page().count("ALIVE") <= self._count:  # the master says it of itself too
            assert time.monotonic() < deadline, "the workers do not come"
            time.sleep(0.5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, with all executors."""
        for pid in self.executors():
            os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, name: str, main: str, *words: str) -> None:
        place = self._directory / name
        place.mkdir()
        java = Path(provide_java(self._directory)) / "bin" / "java"
        environment = {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_DIRS": str(place),
                       "SPARK_SCALA_VERSION": "2.13", "PYSPARK_PYTHON": sys.executable}  # fmt: skip
        with (place / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(java), *_JAVA, "-cp", f"{_HOME / 'jars'}/*", main, *words],
                    cwd=place, env=environment, stdout=log, stderr=log,
                )
            )  # fmt: skip

    def _page(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=10) as page:
                return str(page.read().decode())
        except OSError:
            return ""

    def executors(self) -> list[int]:
        """Processes of executors, by id: children of our workers."""
        workers = {process.pid for process in self._processes}
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in workers and _BACKEND in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
            except (OSError, IndexError):
                continue
        return sorted(found)
