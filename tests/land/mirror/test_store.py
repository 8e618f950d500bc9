"""A store as it is: a real S3 server, what it refuses, what breaks off, what must not be told."""

import functools
import os
import socket
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.proxy import Fault, Proxy
from kit.s3 import ENVIRONMENT, IDENTITY, S3, SECRET, unused_endpoint

from gaussdecode.errors import ConfigError, MirrorError, MirrorRefusedError
from gaussdecode.objects import cloud
from gaussdecode.objects.cloud import CloudStore
from gaussdecode.objects.credentials import read_credentials
from gaussdecode.objects.store import open_store
from gaussdecode.settings.landing_sections import MirrorConfig
from gaussdecode.settings.types import MIB


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_one_of_many_puts_wins(tmp_path: Path) -> None:
    """Of writers at the same time one makes the object, and its bytes are there.

    In a directory, where a link decides: S3Proxy looks first and writes then.
    """
    config = MirrorConfig(url=f"file://{tmp_path}/mirror")
    won: list[int] = []
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        store = CloudStore(config)
        barrier.wait()
        if store.put_new("commits/0.json", bytes([number]) * 5000):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = won
    assert CloudStore(config).get("commits/0.json") == bytes([winner]) * 5000


def test_objects_below_a_url(s3: S3, tmp_path: Path) -> None:
    """Written, listed, read in any order, removed; nothing beside the prefix is seen."""
    bucket = s3.bucket()
    store, beside = (
        CloudStore(s3.settings(bucket)),
        CloudStore(s3.settings(bucket, url=f"s3://{bucket}/landing2")),
    )
    assert beside.put_new("data/x", b"other")
    file = tmp_path / "file"
    file.write_bytes(os.urandom(3 * MIB))
    path = "data/public.a%20b/gd_date=2026-01-31/f~1.parquet"
    assert store.put_new(path, file)
    assert not store.put_new(path, b"other")
    assert store.size(path) == 3 * MIB
    assert store.size("data/none") is None
    assert store.get("data/none") is None
    assert store.checksum("data/none") is None
    assert store.names("data") == (["public.a%20b"], [])
    assert store.names("none") == ([], [])
    assert store.below("data") == [path]
    with store.open(path) as opened:
        opened.seek(-5, os.SEEK_END)
        assert opened.read() == file.read_bytes()[-5:]
    assert s3.objects(bucket)[f"landing/{path}"] == file.read_bytes()
    store.remove(path)
    store.remove(path)
    assert store.below("data") == []


class Forgetful(CloudStore):
    """A store that does not know the condition, as some do not."""

    def put_new(self, path: str, content: bytes | Path) -> bool:
        assert isinstance(content, bytes)
        self.replace(path, content)
        return True


def test_stores_without_conditions_are_refused(s3: S3) -> None:
    """Before anything is shipped; nothing stays of the question."""
    bucket = s3.bucket()
    CloudStore(s3.settings(bucket)).prove()
    with pytest.raises(MirrorRefusedError, match="with conditional puts"):
        Forgetful(s3.settings(bucket)).prove()
    assert s3.objects(bucket) == {}


def test_large_files_go_in_parts(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One above the limit arrives whole, and is not written again."""
    monkeypatch.setattr(cloud, "MIRROR_PUT_BYTES", 6 * MIB)
    store = CloudStore(s3.settings(s3.bucket()))
    file = tmp_path / "file"
    file.write_bytes(os.urandom(13 * MIB))
    assert store.put_new("data/large", file)
    assert not store.put_new("data/large", file)
    assert store.get("data/large") == file.read_bytes()


def test_refusals_say_what_and_tell_no_secret(s3: S3, tmp_path: Path) -> None:
    """A wrong bucket, wrong credentials, nobody there, nobody who answers: each in a sentence."""
    bucket = s3.bucket()
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and says nothing
    dead = s3.settings(bucket, endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=1.0)
    key = tmp_path / "key"
    key.write_text(f"AWS_ACCESS_KEY_ID={IDENTITY}\nAWS_SECRET_ACCESS_KEY=wrong-{SECRET}\n")
    key.chmod(0o600)
    cases: list[tuple[MirrorConfig, type[MirrorError], str]] = [
        (s3.settings("no-such-bucket"), MirrorRefusedError, "404 Not Found: NoSuchBucket"),
        (
            s3.settings(bucket, credentials_file=key),
            MirrorRefusedError,
            "403 Forbidden: SignatureDoesNotMatch",
        ),
        (s3.settings(bucket, endpoint=unused_endpoint(), timeout=2.0), MirrorError, "refused"),
        (dead, MirrorError, "no answer in time"),
    ]
    for config, kind, text in cases:
        store = CloudStore(config)
        works: list[Callable[[], object]] = [
            functools.partial(store.put_new, "a", b"x"),
            functools.partial(store.get, "a"),
            functools.partial(store.names, "a"),
        ]
        for work in works:
            with pytest.raises(kind) as caught:
                work()
            told = "".join(traceback.format_exception(caught.value))
            assert text in str(caught.value), told
            assert IDENTITY not in told
            assert SECRET not in told
            assert "\n" not in str(caught.value)
    silent.close()


def test_credentials_that_expire(s3: S3, tmp_path: Path) -> None:
    """The file is read again when it changes, in whatever way; until then the error says 403."""
    file = tmp_path / "key"

    def write(secret: str) -> None:
        new = tmp_path / "new"
        new.write_text(
            f"# of the agent\nexport AWS_ACCESS_KEY_ID='{IDENTITY}'\n\nAWS_SECRET_ACCESS_KEY={secret}\n"
        )
        new.chmod(0o600)
        new.rename(file)

    write(SECRET)
    store = CloudStore(s3.settings(s3.bucket(), credentials_file=file))
    assert store.put_new("a", b"1")
    write("expired")
    with pytest.raises(MirrorRefusedError, match="403"):
        store.put_new("b", b"2")
    write(SECRET)
    assert store.put_new("b", b"2")


@pytest.mark.parametrize(
    ("text", "mode", "match"),
    [
        ("AWS_SECRET_ACCESS_KEY=s3cret", 0o604, "chmod 0600"),
        ("AWS_SECRET_ACCESS_KEY=s3cret", 0o620, "chmod 0600"),
        ("password=s3cret", 0o600, "line 1: allowed: AWS_"),
        ("AWS_SECRET_ACCESS_KEY s3cret", 0o600, "line 1: allowed: AWS_"),
    ],
)
def test_files_of_credentials_that_are_refused(
    tmp_path: Path, text: str, mode: int, match: str
) -> None:
    """The error names the line and shows nothing of it."""
    file = tmp_path / "key"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=match) as caught:
        read_credentials(file)
    assert "s3cret" not in str(caught.value)


def test_a_group_may_read_credentials(tmp_path: Path) -> None:
    """As it may a password: Kubernetes mounts a secret so for an account that is not root."""
    file = tmp_path / "key"
    file.write_text("AWS_SECRET_ACCESS_KEY=s3cret")
    file.chmod(0o440)
    assert read_credentials(file) == {"aws_secret_access_key": "s3cret"}


def test_tokens_go_over_tls(tmp_path: Path) -> None:
    """One of Hadoop's is not sent in the clear unless that is asked for; nothing is asked before."""
    key = tmp_path / "key"
    key.write_text("HADOOP_DELEGATION_TOKEN=s3cret\n")
    key.chmod(0o600)
    with pytest.raises(ConfigError, match="would go to http://namenode:9870 without TLS") as caught:
        open_store(MirrorConfig(url="hdfs://namenode:8020/lake", credentials_file=key))
    assert "s3cret" not in str(caught.value)
    open_store(MirrorConfig(url="swebhdfs://namenode/lake", credentials_file=key))
    open_store(MirrorConfig(url="hdfs://namenode/lake", credentials_file=key, allow_http=True))


@pytest.mark.parametrize("after", [0, 100_000, 900_000])
def test_uploads_that_break_off(s3: S3, after: int) -> None:
    """A connection that is cut in the middle leaves a whole object or none, and the next put is right."""
    bucket = s3.bucket()
    proxy = Proxy(s3.port)
    store = CloudStore(s3.settings(bucket, endpoint=f"http://127.0.0.1:{proxy.port}", timeout=5.0))
    content = os.urandom(2 * MIB)
    proxy.plan(Fault.CUT, after)
    store.put_new("data/file", content)  # again after the cut, by itself
    assert store.get("data/file") == content
    proxy.close()


class Busy(Proxy):
    """A store that has too much to do for its first connections."""

    def __init__(self, target_port: int, refusals: int) -> None:
        self.refusals = refusals
        super().__init__(target_port)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        if self.refusals <= 0:
            super()._forward(client, server)
            return
        self.refusals -= 1
        with client, server:
            client.recv(65536)
            client.sendall(
                b"HTTP/1.1 503 Slow Down\r\nContent-Length: 31\r\nConnection: close\r\n\r\n"
                b"<Error><Code>SlowDown</Code></E"
            )


def test_a_busy_store_is_asked_again(s3: S3) -> None:
    """503s are waited out; where they do not end, the error names them."""
    bucket = s3.bucket()
    with Busy(s3.port, 2) as busy:
        store = CloudStore(s3.settings(bucket, endpoint=f"http://127.0.0.1:{busy.port}"))
        assert store.put_new("a", b"1")
        assert busy.refusals == 0
        busy.refusals = 1000
        store = CloudStore(s3.settings(bucket, endpoint=f"http://127.0.0.1:{busy.port}"))
        with pytest.raises(MirrorError, match="503 Service Unavailable: SlowDown"):
            store.put_new("b", b"1")
