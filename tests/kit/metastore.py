"""Hive's metastore, as Spark ships it: Thrift in front of Derby in a directory."""

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gaussdecode.demo.java import provide_java
from gaussdecode.demo.ports import free_port
from kit.jars import SPARK_40

_SECONDS: Final = 120.0
_OPENED: Final = ("java.lang", "java.net", "java.util", "java.util.concurrent", "java.nio")
_JAVA: Final = (
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m",
    "-Dhive.async.log.enabled=false", *(f"--add-opens=java.base/{of}=ALL-UNNAMED" for of in _OPENED),
)  # fmt: skip


class Metastore:
    """A server.

    Args:
        directory: of its own, in which there is nothing.

    Attributes:
        url: where it listens.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self.url = f"thrift://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it, and wait until it answers."""
        settings = {
            "javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=metastore;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": str(self._directory / "warehouse"),
        }
        java = provide_java(self._directory) / "bin" / "java"
        command = [str(java), *_JAVA, "-cp", f"{SPARK_40}/pyspark/jars/*"]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self._port)]
        for name, value in settings.items():
            command += ["--hiveconf", f"{name}={value}"]
        log = self._directory / "log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            assert self._process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, "the metastore does not answer"
            time.sleep(0.2)
        return self

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=5).close()
        except OSError:
            return False
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
