"""Every kind of store as a real server of it: who wins, what readers see, a landing and its tables.

Minutes long, and their servers are large: `make test-stores` runs them.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.commands import Run
from kit.daemon import Daemon
from kit.history import History
from kit.killing import OPTIONS, Places, content, kill_and_run_again, started
from kit.postgres import Database
from kit.s3 import unused_endpoint
from kit.stores import SERVERS, Server, prefix
from kit.workload import prepare

from gaussdecode.demo.java import provide_java
from gaussdecode.errors import MirrorError, MirrorRefusedError
from gaussdecode.objects.store import Store, open_store
from gaussdecode.spark.apply import apply_with
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.failpoint import Step

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]
_WRITERS, _ROUNDS = 8, 20


@pytest.fixture(scope="module", params=sorted(SERVERS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A running server of each kind."""
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


def test_one_of_many_puts_wins(server: Server) -> None:
    """Of writers at the same time one makes the object, each time, and its bytes are there."""
    config = server.config(prefix())
    stores = [open_store(config) for _ in range(_WRITERS)]
    stores[0].prove()
    with ThreadPoolExecutor(_WRITERS) as pool:
        for number in range(_ROUNDS):
            path, barrier = f"commits/{number}.json", threading.Barrier(_WRITERS)

            def write(writer: int, path: str = path, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return stores[writer].put_new(path, bytes([writer]) * 5000)

            won = [*pool.map(write, range(_WRITERS))]
            assert Counter(won)[True] == 1, path
            assert stores[0].get(path) == bytes([won.index(True)]) * 5000
    assert len(stores[0].below("")) == _ROUNDS, "nothing else is left there"


def test_objects_below_a_url(server: Server, tmp_path: Path) -> None:
    """Written, listed, read in any order, replaced, removed; nothing beside the prefix is seen."""
    place = prefix()
    store, beside = (
        open_store(server.config(f"{place}/a b/ü")),
        open_store(server.config(f"{place}/a")),
    )
    assert beside.put_new("data/x", b"other")
    file, empty = tmp_path / "file", tmp_path / "empty"
    file.write_bytes(os.urandom(20_000_001))
    empty.touch()
    path = "data/public.a%20b%F0%9F/gd_date=2026-01-31/f~1#LATEST.parquet"
    assert store.put_new(path, file)
    assert not store.put_new(path, b"other")
    assert not store.put_new(path, file)
    assert store.put_new("data/empty", empty)
    assert store.get("data/empty") == b""
    assert [store.size(of) for of in (path, "data", "none/none")] == [20_000_001, None, None]
    assert (store.get("data/none"), store.checksum("none")) == (None, None)
    assert store.names("data") == (["public.a%20b%F0%9F"], ["empty"])
    assert store.names("none") == ([], [])
    assert store.below("") == ["data/empty", path]
    with store.open(path) as opened:
        opened.seek(-5, os.SEEK_END)
        assert opened.read() == file.read_bytes()[-5:]
        opened.seek(9_000_000)
        assert opened.read(2_000_000) == file.read_bytes()[9_000_000:11_000_000]
    store.replace("new/layout", b"1")
    store.replace("new/layout", b"2")
    assert store.get("new/layout") == b"2"
    for name in (path, path, "data/empty", "new/layout"):
        store.remove(name)
    assert store.names("") == ([], [])
    with pytest.raises(FileNotFoundError):
        store.put_new("a", tmp_path / "none")


def test_readers_see_whole_objects(server: Server, tmp_path: Path) -> None:
    """While a large one is written there is none, then all of it; who breaks off leaves none."""
    store = open_store(server.config(prefix()))
    file = tmp_path / "file"
    file.write_bytes(os.urandom(40_000_000))
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(store.put_new, "data/large", file)
        seen = []
        while not put.done():
            seen.append((store.names("data")[1], store.size("data/large")))
        assert put.result()
    assert {(tuple(names), size) for names, size in seen} <= {((), None), ((), 40_000_000),
        (("large",), 40_000_000)}  # fmt: skip
    assert len(seen) > 1
    assert store.below("") == ["data/large"]


def test_refusals(server: Server) -> None:
    """Nobody there is said so, in one sentence, without what may be a secret."""
    config = server.config(prefix())
    closed = unused_endpoint().rpartition(":")[2]
    nobody = type(config)(
        url=config.url.replace(str(server.port), closed),
        endpoint=config.endpoint.replace(str(server.port), closed),
        region=config.region, allow_http=True, timeout=2.0,
        credentials_file=config.credentials_file,
    )  # fmt: skip
    with pytest.raises(MirrorError, match="connection refused") as caught:
        open_store(nobody).get("a")
    assert not isinstance(caught.value, MirrorRefusedError)
    assert not any(value in str(caught.value) for value in server.secrets.values())


def test_two_applies_at_once_and_kills(server: Server, tmp_path: Path) -> None:
    """A target there: killed between files and commit and run again; two at once, one of which may fail."""
    landing, whole = tmp_path / "landing", tmp_path / "whole"
    history = History(landing, 53)
    history.run(7)
    apply_with(LocalEngine(), landing, whole, OPTIONS)
    for point in (Step.FILES_DURABLE, f"{Step.MANIFEST_WRITTEN}:2", f"{Step.MANIFEST_LINKED}:2"):
        kill_and_run_again(point, Places(str(landing), server.url(prefix())), whole)
    places = Places(str(landing), server.url(prefix()))
    apply_with(LocalEngine(), *places, OPTIONS)
    failed = 0
    for _ in range(6):
        history.run(2)
        apply_with(LocalEngine(), landing, whole, OPTIONS)
        both = [started(places), started(places)]
        ends = [(of.communicate(), of.returncode) for of in both]
        assert {status for _, status in ends} <= {os.EX_OK, os.EX_IOERR}, ends
        assert os.EX_OK in {status for _, status in ends}, ends
        failed += sum(status != os.EX_OK for _, status in ends)
        assert content(places.target) == content(whole)
    assert failed, "they never met"


def wait_shipped(daemon: Daemon, store: "Store[object]") -> None:
    """Wait until the mirror has what has landed."""
    last = max(int(path.stem) for path in (daemon.root / "commits").glob("[0-9]*.json"))
    daemon.wait_while_running(
        lambda: store.size(f"commits/{last:020d}.json") is not None, "the mirror has it"
    )


def test_from_a_server_to_tables(
    server: Server,
    database_15: Database,
    make_daemon: Callable[..., Daemon],
    tmp_path: Path,
    run: Run,
) -> None:
    """A daemon with its mirror there, lost; a second goes on; tables there, equal to the server."""
    place = prefix()
    section = {**server.section(f"{place}/landing"), "local-retention": "0s"}
    store = open_store(server.config(f"{place}/landing"))
    config = {"landing": {"mirror": section}}
    workload = prepare(database_15, 47)
    first = make_daemon(database_15, config=config)
    workload.run(30)
    first.start()
    first.catch_up()
    wait_shipped(first, store)
    first.kill9()
    workload.run(30)
    second = make_daemon(database_15, config=config)
    second.start()
    second.catch_up()
    wait_shipped(second, store)
    first.start()
    assert first.wait() == os.EX_CONFIG
    assert "another host continues this landing" in first.log_tail()
    assert run("verify", "--mirror", str(second.config_path)).status == os.EX_OK

    landing, target = server.url(f"{place}/landing"), server.url(f"{place}/tables")
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(provide_java(tmp_path)),
    }
    for words in (["--local"], ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]):
        command = [sys.executable, "-m", "gaussdecode", "spark", "apply", landing, target]
        done = subprocess.run(
            [*command, "--history", *words], env={**environment, "PYTHONWARNINGS": "ignore"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == os.EX_OK, done.stderr
        workload.run(30)
        second.catch_up()
        wait_shipped(second, store)
    run("spark", "apply", landing, target, "--history", "--local")
    dsn = f"{database_15.dsn} sslmode=disable"
    words = [landing, target, "--dsn", dsn, "--allow-insecure", "--json", "--local"]
    result = run("spark", "verify", *words)
    tables = json.loads(result.out)["tables"]
    assert not [of for of in tables if of["different_ranges"]]
    assert sum(of["why_not"] is None for of in tables) > 3, tables
    assert second.stop() in {0, -signal.SIGTERM}
