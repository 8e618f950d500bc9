"""Hive's metastore, as Spark ships it: Thrift in front of Derby in a directory, with its table locks."""

import socket
import subprocess
import time
from collections.abc import Sequence
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
_LOCKS: Final = """
CREATE TABLE HIVE_LOCKS (
  HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint,
  HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767),
  HL_LOCK_STATE char(1) NOT NULL, HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL,
  HL_ACQUIRED_AT bigint, HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL,
  HL_HEARTBEAT_COUNT integer, HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint,
  HL_BLOCKEDBY_INT_ID bigint, PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES (1);
CREATE TABLE AUX_TABLE (
  MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255),
  PRIMARY KEY (MT_KEY1, MT_KEY2));
"""
"""Tables of locks, of Hive 2.3's schema; the server makes only the others by itself."""


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
            # Of the locks; what it has by default is not among Spark's jars.
            "datanucleus.connectionPoolingType": "hikaricp",
            "javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=metastore;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": str(self._directory / "warehouse"),
        }
        java = provide_java(self._directory) / "bin" / "java"
        command = [str(java), *_JAVA, "-cp", f"{SPARK_40}/pyspark/jars/*"]
        self._make_locks(command)
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

    def _make_locks(self, java: Sequence[str]) -> None:
        """Make the database, with the tables that the server makes not."""
        done = subprocess.run(
            [*java, "-Dij.database=jdbc:derby:metastore;create=true", "org.apache.derby.tools.ij"],
            cwd=self._directory, input=_LOCKS, text=True, check=True, capture_output=True,
        )  # fmt: skip
        assert "ERROR" not in done.stdout, done.stdout

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
