"""A real S3 server for the tests: S3Proxy, one jar of Maven Central, over a directory.

It checks signatures and conditions of requests as a store that keeps objects for others does. Each
bucket is a directory, which is made here: a mirror is given its bucket, and makes none.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gaussdecode.demo.java import provide_java
from gaussdecode.demo.ports import free_port
from gaussdecode.settings.landing_sections import MirrorConfig
from gaussdecode.spark.log.place import ObjectPath, place_of
from kit.jars import S3PROXY, jar

IDENTITY: Final = "AKIATESTIDENTITY"
SECRET: Final = "test/secret+of-the-store"
ENVIRONMENT: Final = {"AWS_ACCESS_KEY_ID": IDENTITY, "AWS_SECRET_ACCESS_KEY": SECRET}
_SECONDS: Final = 60.0


class S3:
    """One server.

    Attributes:
        port: where it listens.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._objects = directory / "objects"
        self._objects.mkdir()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.stop()

    def start(self) -> None:
        """Start it, with the objects it had, and wait until it answers."""
        settings = self._directory / "s3proxy.conf"
        settings.write_text(
            f"s3proxy.endpoint=http://127.0.0.1:{self.port}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={IDENTITY}\ns3proxy.credential={SECRET}\n"
            "jclouds.provider=filesystem-nio2\njclouds.identity=x\njclouds.credential=x\n"
            f"jclouds.filesystem.basedir={self._objects}\n"
        )
        home = Path(provide_java(self._directory))
        command = [str(home / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-XX:-UsePerfData", "-Xmx384m", "-jar", str(jar(S3PROXY))]
        with (self._directory / "s3proxy.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--properties", settings], stdout=log, stderr=log
            )
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            assert self._process.poll() is None, "S3Proxy has ended"
            assert time.monotonic() < deadline, "S3Proxy does not answer"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it, as a machine does that loses power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def bucket(self) -> str:
        """Make a bucket."""
        name = f"bucket-{secrets.token_hex(4)}"
        (self._objects / name).mkdir()
        return name

    def objects(self, bucket: str, pattern: str = "**/*") -> dict[str, bytes]:
        """Content of the objects of a bucket, by path; of one that goes meanwhile as if it had gone."""
        top, found = self._objects / bucket, {}
        for path in sorted(top.glob(pattern)):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found[str(path.relative_to(top))] = path.read_bytes()
        return found

    def url(self, bucket: str, path: str) -> str:
        """URL of a place in a bucket, with all that says how it is reached."""
        key = self._directory / "key"
        if not key.exists():
            key.touch(0o600)
            key.write_text("".join(f"{name}={value}\n" for name, value in ENVIRONMENT.items()))
        return (
            f"s3://{bucket}/{path}?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"
            f"&allow-http=true&timeout=10s&credentials-file={key}"
        )

    def keep(self, directory: Path, bucket: str, path: str) -> str:
        """Copy a directory to a place in a bucket, as a mirror would; gives its URL."""
        shutil.copytree(directory, self._objects / bucket / path, dirs_exist_ok=True)
        return self.url(bucket, path)

    def mirrored(self, config: Mapping[str, Any], bucket: str) -> dict[str, Any]:
        """A daemon's configuration, with a mirror at ``landing`` of a bucket; see `url`."""
        place = place_of(self.url(bucket, "landing"))
        assert isinstance(place, ObjectPath)
        wanted = place.settings
        mirror = {
            "url": wanted.url, "endpoint": wanted.endpoint, "region": wanted.region,
            "allow-http": True, "timeout": "10s", "credentials-file": str(wanted.credentials_file),
        }  # fmt: skip
        return {**config, "landing": {**config.get("landing", {}), "mirror": mirror}}

    def age(self, bucket: str, seconds: float) -> None:
        """Make all objects of a bucket so much older."""
        for path in (self._objects / bucket).rglob("*"):
            if path.is_file():
                then = path.stat().st_mtime - seconds
                os.utime(path, (then, then))

    def settings(self, bucket: str, **changes: object) -> MirrorConfig:
        """Settings of a mirror in a bucket; credentials come from `ENVIRONMENT`."""
        given: dict[str, object] = {
            "url": f"s3://{bucket}/landing",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "region": "us-east-1",
            "allow_http": True,
            "timeout": 10.0,
        }
        return MirrorConfig(**{**given, **changes})  # type: ignore[arg-type]  # as given


def unused_endpoint() -> str:
    """An endpoint at which nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


def with_credentials() -> dict[str, str]:
    """The environment of a process that may use the server."""
    return {**os.environ, **ENVIRONMENT}
