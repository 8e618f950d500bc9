"""Real servers of every kind of store, each with a directory of its own, for `make test-stores`.

HDFS is a name node and a data node of Hadoop in one process (MiniDFSCluster), with the jars of
Hadoop that Spark 4.0 carries. MinIO and Azurite are where `make test-stores` puts them.
"""

import abc
import base64
import hashlib
import hmac
import http.client
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self
from urllib.parse import urlencode

import pytest

from gaussdecode.demo.java import provide_java
from gaussdecode.demo.ports import free_port
from gaussdecode.settings.landing_sections import MirrorConfig
from kit.daemon import Json
from kit.jars import HADOOP, SPARK_40, jar
from kit.s3 import ENVIRONMENT

_PROGRAMS: Final = Path(__file__).parents[2] / "build" / "stores"
_SECONDS: Final = 90.0
_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx384m")
_AZURE: Final = "devstoreaccount1"  # Azurite's own account, and its published key
_AZURE_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class Server(abc.ABC):
    """A server of one kind.

    Attributes:
        port: where it listens.
    """

    secrets: ClassVar[dict[str, str]]
    """Lines of the file of credentials."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it, and wait until it answers."""
        command = self._command()
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the store does not answer"
            time.sleep(0.2)
        self._begin()
        return self

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

    def request(self, verb: str, path: str, headers: dict[str, str] | None = None) -> int:
        """Ask it over HTTP; gives the status, or 0 for no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(verb, path, headers=headers or {})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def section(self, prefix: str) -> Json:
        """The section ``landing.mirror`` of a place in it."""
        key = self._directory / "key"
        if not key.exists():
            key.touch(0o600)
            key.write_text("".join(f"{name}={value}\n" for name, value in self.secrets.items()))
        return {**self._where(prefix), "credentials-file": str(key), "timeout": "10s"}

    def url(self, prefix: str) -> str:
        """URL of a place in it, for Spark's commands."""
        section = {**self.section(prefix)}
        where = section.pop("url")
        words = {name: "true" if value is True else value for name, value in section.items()}
        return f"{where}?{urlencode(words)}"

    def config(self, prefix: str) -> MirrorConfig:
        """Settings of a place in it."""
        section = {key.replace("-", "_"): value for key, value in self.section(prefix).items()}
        place = Path(str(section["credentials_file"]))
        return MirrorConfig(**{**section, "credentials_file": place, "timeout": 10.0})

    def _answers(self) -> bool:
        return self.request("GET", "/") != 0

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """What starts it; skips where it is not installed."""

    @abc.abstractmethod
    def _where(self, prefix: str) -> Json:
        """URL, and what says how to reach it."""

    def _begin(self) -> None:  # noqa: B027 - most have nothing to do
        """Make what has to be there first."""


class Hdfs(Server):
    """Hadoop's file system, over WebHDFS."""

    secrets: ClassVar = {"HADOOP_USER_NAME": "gaussdecode"}

    def _command(self) -> list[str]:
        java = Path(provide_java(self._directory)) / "bin" / "java"
        path = [*(str(jar(of)) for of in HADOOP), str(SPARK_40 / "pyspark" / "jars" / "*")]
        data = f"-Dtest.build.data={self._directory / 'data'}"
        main = "org.apache.hadoop.test.MiniDFSClusterManager"
        words = [
            "-format",
            "-datanodes",
            "1",
            "-httpport",
            str(self.port),
            "-nnport",
            str(free_port()),
        ]
        off = ["-D", "dfs.permissions.enabled=false"]
        return [str(java), *_JAVA, data, "-cp", ":".join(path), main, *words, *off]

    def _answers(self) -> bool:
        return self.request("GET", "/webhdfs/v1/?op=LISTSTATUS&user.name=x") == http.client.OK

    def _where(self, prefix: str) -> Json:
        return {"url": f"webhdfs://127.0.0.1:{self.port}/{prefix}"}


class MinIO(Server):
    """Of S3's kind, with conditions decided at the object."""

    secrets: ClassVar = ENVIRONMENT

    def _command(self) -> list[str]:
        program = _PROGRAMS / "minio"
        if not program.exists():
            pytest.skip("MinIO is not installed; make test-stores does it where there is Go")
        (self._directory / "data" / "lake").mkdir(parents=True)
        names = zip(("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"), ENVIRONMENT.values(), strict=True)
        words = ["server", "--quiet", "--address", f"127.0.0.1:{self.port}"]
        return ["env", *(f"{name}={value}" for name, value in names), str(program), *words,
                str(self._directory / "data")]  # fmt: skip

    def _where(self, prefix: str) -> Json:
        return {"url": f"s3://lake/{prefix}", "endpoint": f"http://127.0.0.1:{self.port}",
                "region": "us-east-1", "allow-http": True}  # fmt: skip


class Azurite(Server):
    """Azure's blobs, by Microsoft's own emulator."""

    secrets: ClassVar = {
        "AZURE_STORAGE_ACCOUNT_NAME": _AZURE,
        "AZURE_STORAGE_ACCOUNT_KEY": _AZURE_KEY,
    }

    def _command(self) -> list[str]:
        main = _PROGRAMS / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        if not main.exists() or shutil.which("node") is None:
            pytest.skip("Azurite is not installed; make test-stores does it where there is npm")
        words = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--silent"]
        words += ["--skipApiVersionCheck", "--disableTelemetry", "--location"]
        return ["node", str(main), *words, str(self._directory / "data")]

    def _where(self, prefix: str) -> Json:
        return {"url": f"az://lake/{prefix}", "allow-http": True,
                "endpoint": f"http://127.0.0.1:{self.port}/{_AZURE}"}  # fmt: skip

    def _begin(self) -> None:
        """Make the container, which the client cannot."""
        dated = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        lines = [*(f"{name}:{value}" for name, value in dated.items())]
        lines += [f"/{_AZURE}/{_AZURE}/lake", "restype:container"]
        text = "\n".join(["PUT", *[""] * 11, *lines]).encode()
        proof = hmac.new(base64.b64decode(_AZURE_KEY), text, hashlib.sha256).digest()
        signed = {"Authorization": f"SharedKey {_AZURE}:{base64.b64encode(proof).decode()}"}
        status = self.request("PUT", f"/{_AZURE}/lake?restype=container", {**dated, **signed})
        assert status == http.client.CREATED


SERVERS: Final[dict[str, Callable[[Path], Server]]] = {
    "hdfs": Hdfs,
    "minio": MinIO,
    "azure": Azurite,
}


def prefix() -> str:
    """A place that nobody has used."""
    return f"p-{secrets.token_hex(4)}"
