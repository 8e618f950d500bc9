"""A daemon with a mirror on a real S3 server: what is there, who is told, who goes on."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kit import landing, oracle
from kit.commands import Run
from kit.daemon import Daemon, Json, wait_until
from kit.postgres import Database
from kit.proxy import Proxy
from kit.s3 import ENVIRONMENT, S3, SECRET
from kit.workload import prepare

from gaussdecode.land.failpoints import ShipStep

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A running server; tests make buckets of their own."""
    with S3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in ENVIRONMENT.items():
        monkeypatch.setenv(name, secret)


def mirror(s3: S3, bucket: str) -> Json:
    """The section of a configuration."""
    return {
        "url": f"s3://{bucket}/orders",
        "endpoint": f"http://127.0.0.1:{s3.port}",
        "region": "us-east-1",
        "allow-http": True,
        "timeout": "5s",
    }


def make(make_daemon: MakeDaemon, database: Database, section: Json) -> Daemon:
    """A daemon with a mirror."""
    return make_daemon(database, config={"landing": {"mirror": section}})


def copy_of(s3: S3, bucket: str, directory: Path) -> Path:
    """What a reader of the mirror has, in a directory."""
    root = directory / "copy"
    shutil.rmtree(root, ignore_errors=True)
    for path, content in s3.objects(bucket).items():
        target = root / path.removeprefix("orders/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return root


def newest(s3: S3, bucket: str) -> int:
    """End of what the mirror has."""
    objects = s3.objects(bucket, "*/commits/*.json")
    names = sorted(path for path in objects if re.search(r"/commits/\d+\.json$", path))
    return 0 if not names else landing.position(_json(objects[names[-1]]))


def _json(raw: bytes) -> Json:
    record: Json = json.loads(raw)
    return record


def wait_shipped(daemon: Daemon, s3: S3, bucket: str) -> None:
    """Wait until the mirror has what has landed."""
    target = daemon.durable_lsn()
    daemon.wait_while_running(lambda: newest(s3, bucket) >= target, "the mirror has it")


def wait_for_errors(daemon: Daemon, least: float) -> None:
    """Wait until the mirror was tried in vain so often."""
    daemon.wait_while_running(
        lambda: value(daemon, "land_mirror_errors_total") >= least, "it is tried again and again"
    )


def test_a_new_host_goes_on_where_the_store_is(
    s3: S3, database_15: Database, make_daemon: MakeDaemon, tmp_path: Path, run: Run
) -> None:
    """What the first host had not shipped comes again from the server; when it comes back, it stops."""
    bucket = s3.bucket()
    workload = prepare(database_15, 40)
    section = {**mirror(s3, bucket), "local-retention": "0s"}
    with Proxy(s3.port) as way:
        there = {**section, "endpoint": f"http://127.0.0.1:{way.port}"}
        first = make(make_daemon, database_15, there)
        workload.run(40)
        first.start()
        first.catch_up()
        wait_shipped(first, s3, bucket)
    workload.run(40)
    first.catch_up()  # there alone
    assert newest(s3, bucket) < first.durable_lsn()
    assert database_15.slot_positions()[1] <= newest(s3, bucket), "told what only that disk has"
    path = str(first.config_path)
    assert "does not answer" in run("check", path).out
    first.kill9()
    assert SECRET not in first.log.read_text()
    first.write_config(landing={"mirror": section})
    assert f"{bucket}/orders: this landing up to entry" in run("check", path).out
    first.write_config(landing={"mirror": mirror(s3, "no-such-bucket")})
    result = run("check", path)
    assert result.status == os.EX_CONFIG
    assert "404 Not Found: NoSuchBucket; correct landing.mirror.url" in result.out
    first.write_config(landing={"mirror": section})
    workload.run(40)
    second = make(make_daemon, database_15, mirror(s3, bucket))
    second.begin()
    assert not (second.root / "layout.json").exists(), "nothing begins over a mirror"
    second.environment["GAUSSDECODE_FAILPOINTS"] = f"{ShipStep.MIRROR_FETCHED}:1=kill"
    second.start()
    assert second.wait() == -signal.SIGKILL, "it begins once more with what it had fetched there"
    del second.environment["GAUSSDECODE_FAILPOINTS"]
    second.start()
    second.catch_up()
    wait_shipped(second, s3, bucket)
    assert second.stop() == 0
    result = run("verify", "--mirror", str(second.config_path))
    assert result.status == os.EX_OK, result.err
    assert "all is well" in result.out
    first.start()
    assert first.wait() == os.EX_CONFIG
    assert "another host continues this landing" in first.log_tail()
    oracle.check(copy_of(s3, bucket, tmp_path), database_15)


def test_a_store_that_comes_and_goes(
    s3: S3, database_15: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """Away for many retries, at a start too, cut, the daemon killed: every entry is there once."""
    bucket = s3.bucket()
    workload = prepare(database_15, 43)
    with Proxy(s3.port) as proxy:
        section = {**mirror(s3, bucket), "local-retention": "0s", "timeout": "2s"}
        section["endpoint"] = f"http://127.0.0.1:{proxy.port}"
        daemon = make(make_daemon, database_15, section)
        workload.run(20)
        daemon.start()
        daemon.catch_up()
        wait_shipped(daemon, s3, bucket)
        before = value(daemon, "land_mirror_errors_total")  # a busy machine has some
        logged = daemon.log.read_text().count("mirror_failed")
        proxy.is_away = True
        proxy.cut_all()
        for failures in (1, 3):
            workload.run(20)
            daemon.catch_up()
            wait_for_errors(daemon, before + failures)
            assert database_15.slot_positions()[1] <= newest(s3, bucket) < daemon.durable_lsn()
        seen = daemon.status() or {}
        assert not seen["mirror"]["is_up"]
        assert seen["mirror"]["backlog_entries"] > 0
        assert "mirror-away" in [of["name"] for of in seen["troubles"]]
        assert value(daemon, "land_mirror_up") == 0
        assert value(daemon, "land_mirror_backlog_entries") > 0
        assert daemon.log.read_text().count("mirror_failed") <= logged + 2, (
            "it is said when it begins"
        )
        daemon.kill9()
        workload.run(10)
        daemon.start()
        daemon.catch_up()
        proxy.is_away = False
        wait_shipped(daemon, s3, bucket)
        assert daemon.stop() == 0

        section["timeout"] = "5s"
        daemon.write_config(landing={"mirror": section})
        for step in (ShipStep.ENTRY_SHIPPED, ShipStep.REMOVAL_NOTED):
            daemon.environment["GAUSSDECODE_FAILPOINTS"] = f"{step}:2=kill"
            daemon.start()
            workload.run(10)
            assert daemon.wait() == -signal.SIGKILL, step
        del daemon.environment["GAUSSDECODE_FAILPOINTS"]
        daemon.start()
        workload.start(pause=0.02)
        for _ in range(20):
            proxy.cut_all()
            time.sleep(0.05)
        workload.finish()
        daemon.catch_up()
        wait_shipped(daemon, s3, bucket)
        end = daemon.durable_lsn()
        wait_until(lambda: value(daemon, "land_mirror_backlog_entries") == 0, "nothing waits")
        wait_until(lambda: database_15.slot_positions()[1] >= end, "the server is told of all")
        assert value(daemon, "land_mirror_up") == 1
        assert daemon.stop() == 0
    oracle.check(copy_of(s3, bucket, tmp_path), database_15)


def test_existing_rows_are_not_read_again(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """A new host knows of the snapshots of the old one: each row is in the mirror once."""
    database_15.execute("CREATE TABLE public.t (id int8 PRIMARY KEY, v text)")
    database_15.execute("INSERT INTO public.t SELECT g, 'x' FROM generate_series(1, 1000) g")
    database_15.create_slot()
    store = tmp_path / "store"
    config = {"landing": {"mirror": {"url": f"file://{store}"}}, "snapshot": {"mode": "initial"}}

    def rows() -> int:
        files = store.glob("data/public.t/*/*.parquet")
        return sum(pq.ParquetFile(path).metadata.num_rows for path in files)

    def knows() -> bool:
        ledgers = sorted(store.glob("snapshots/ledger-*.json"))
        return bool(ledgers) and b'"state":"done"' in ledgers[-1].read_bytes()

    first = make_daemon(database_15, config=config).start()
    first.wait_while_running(knows, "the mirror knows of the snapshot")
    assert rows() == 1000
    first.kill9()
    second = make_daemon(database_15, config=config).start()
    second.wait_while_running(
        lambda: bool((second.status() or {}).get("is_snapshot_settled")), "nothing is to be read"
    )
    database_15.execute("INSERT INTO public.t VALUES (2000, 'y')")
    second.wait_while_running(lambda: rows() > 1000, "the change is there")
    assert second.stop() == 0
    assert rows() == 1001


@pytest.mark.parametrize("is_told", [True, False])
def test_a_new_host_notices_what_changed_while_nothing_ran(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path, is_told: bool
) -> None:
    """It goes by what the old one knew of the catalogue; where the mirror has none of it, by nothing."""
    name, store = database_15.publication, tmp_path / "store"
    database_15.execute(
        f'DROP PUBLICATION "{name}";'
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root);'
        "CREATE TABLE t (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);"
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);"
        "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2);"
        "CREATE TABLE u (id int PRIMARY KEY, v text); CREATE TABLE w (id int PRIMARY KEY);"
        "CREATE TABLE empty (id int PRIMARY KEY)"
    )
    database_15.create_slot()
    first = make_daemon(
        database_15, config={"landing": {"mirror": {"url": f"file://{store}", "confirm": "mirror"}}}
    ).start()
    database_15.execute(
        "INSERT INTO t SELECT g, 1 + g % 2 FROM generate_series(1, 20) g;"
        "INSERT INTO u VALUES (1, '7'); INSERT INTO w VALUES (1)"
    )
    first.catch_up()
    known = first.root / "snapshots" / "fingerprints.json"

    def knows() -> bool:
        copies = sorted(store.glob("snapshots/fingerprints-*.json"))
        has_all = len([*store.glob("commits/*.json")]) == len([*first.root.glob("commits/*.json")])
        return has_all and bool(copies) and copies[-1].read_bytes() == known.read_bytes()

    first.wait_while_running(knows, "the mirror knows of the catalogue")
    first.kill9()
    database_15.execute("TRUNCATE t_1; ALTER TABLE u ALTER v TYPE int USING v::int + 1")
    if not is_told:
        for path in store.glob("snapshots/fingerprints-*.json"):
            path.unlink()
    second = make_daemon(
        database_15, config={"landing": {"mirror": {"url": f"file://{store}", "confirm": "mirror"}}}
    ).start()
    database_15.execute("INSERT INTO w VALUES (2)")
    second.catch_up()
    assert second.stop() == 0
    second.start()
    database_15.execute("INSERT INTO w VALUES (3)")
    second.catch_up()
    assert second.stop() == 0
    (said,) = (of for of in landing.read_entries(second.root) if of["kind"] == "suspect")
    assert said["extra"]["reason"] == "table_changed"
    tables = ["public.t", "public.u"] + ([] if is_told else ["public.w"])
    assert said["extra"]["tables"] == tables
    assert is_told or "does not tell what it was when its rows landed" in said["extra"]["text"]


def test_lost_objects_are_found_and_shipped_again_beside_the_daemon(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path, run: Run
) -> None:
    """The newest entry and a data file are gone there: `verify --mirror` names both, and ships them again."""
    store = tmp_path / "store"
    database_15.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database_15.create_slot()
    daemon = make_daemon(
        database_15, config={"landing": {"mirror": {"url": f"file://{store}", "confirm": "mirror"}}}
    ).start()
    path = str(daemon.config_path)
    database_15.execute("INSERT INTO t VALUES (1)")
    daemon.catch_up()

    def is_known() -> bool:
        known = daemon.root / "mirror.json"
        newest = daemon.entries()[-1]["n"]
        return known.exists() and bool(json.loads(known.read_bytes())["shipped"] == newest)

    daemon.wait_while_running(is_known, "the landing knows what the mirror has")
    lost = [max(store.glob("commits/*.json")), min(store.glob("data/public.t/*/*.parquet"))]
    before = {of: of.read_bytes() for of in lost}
    for of in lost:
        of.unlink()
    result = run("verify", "--mirror", path)
    assert result.status == os.EX_IOERR
    assert f"entry {int(lost[0].stem)} had been shipped" in result.err
    assert "gaussdecode verify --mirror --ship-missing CONFIG" in result.err
    result = run("verify", "--mirror", "--ship-missing", path)
    assert result.status == os.EX_OK, result.err
    for of in lost:
        assert f"shipped again: {of.relative_to(store)}" in result.err
        assert of.read_bytes() == before[of]
    database_15.execute("INSERT INTO t VALUES (2)")
    daemon.catch_up()
    assert daemon.stop() == 0
    lost[1].unlink()
    assert f"{lost[1].relative_to(store)} of entry" in run("verify", "--mirror", path).err
    assert run("verify", "--ship-missing", str(daemon.root)).status == os.EX_CONFIG
    shutil.rmtree(daemon.root)
    result = run("verify", "--mirror", "--ship-missing", path)
    assert result.status == os.EX_CONFIG
    assert "run this on the host that has it" in result.err
    result = run("verify", "--mirror", path)
    assert "of the newest entries" in result.err


def metrics(daemon: Daemon) -> str:
    """What a scrape gets."""
    try:
        return daemon.get("/metrics")[1].decode()
    except OSError:
        return ""


def value(daemon: Daemon, name: str) -> float:
    """A metric without labels of its own."""
    match = re.search(rf"^gaussdecode_{name}{{[^}}]*}} (\S+)$", metrics(daemon), re.MULTILINE)
    return float("nan") if match is None else float(match[1])
