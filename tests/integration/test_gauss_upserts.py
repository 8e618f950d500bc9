"""Upserts that are overtaken: what a GaussDB sends of them lands as if it had not been."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from kit import gausscheck, landing
from kit.applied import newest
from kit.daemon import Json, Keeper, wait_until
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDaemon, GaussDatabase, lands
from kit.gausshistory import History
from kit.gaussprofile import V3_0_0, V6_0_0, V6_0_2, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussseveral import OPTIONS, SERIAL, SeveralDaemon, check_several, several
from kit.gaussstore import Store, Table
from kit.gausstargets import check_targets
from kit.gaussworkload import Workload
from kit.postgres import Postgres
from kit.targets import apply_local

from gaussdecode.cli import main
from gaussdecode.spark.merge.stop_rules import UNTOLD
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
BINARY: dict[str, object] = {"parallel_decode_num": 2, "decode_style": "b", "sending_batch": 1}
STYLES: dict[str, dict[str, object]] = {
    "binary": {**BINARY, "sending_batch": 0},
    "binary_batched": BINARY,
    "text": {**BINARY, "decode_style": "t"},
    "json": {**BINARY, "decode_style": "j", "sending_batch": 0},
    "serial": {"parallel_decode_num": 1},
}
PARALLEL: dict[str, object] = {"parallel-decode-num": 2, "decode-style": "b", "sending-batch": 1}


def overtaken(store: Store, *, on_ustore: bool = False) -> int:
    """How many upserts of what committed were."""
    return sum(
        change.is_speculative and change.op == "I" and change.table.is_ustore == on_ustore
        for of in store.committed
        for change in of.changes
    )


def left_out(root: Path) -> tuple[int, int]:
    """Inserts and deletes that did not land for that reason."""
    sums = [
        of
        for entry in landing.read_entries(root)
        for of in (
            entry["extra"].get("sums", {}),
            *entry["extra"].get("sums_by_source", {}).values(),
        )
    ]
    counts = [of.get("left_out", {}).get("speculative", {}) for of in sums]
    return sum(of.get("I", 0) for of in counts), sum(of.get("D", 0) for of in counts)


@pytest.mark.parametrize("profile", [V3_0_0, V6_0_0, V6_0_2], ids=lambda profile: profile.name)
@pytest.mark.parametrize("seed", [1, 2])
def test_styles_land_what_is_there(
    make_gauss: MakeGauss, tmp_path: Path, profile: Profile, seed: int
) -> None:
    """The tables are the server's in each style, and every row that was taken back is counted."""
    gauss = make_gauss(profile, behaviour=Behaviour(flush_seconds=0.05))
    daemons: dict[str, GaussDaemon] = {}
    with contextlib.ExitStack() as stack:
        for name, options in STYLES.items():
            database = GaussDatabase(gauss, name)
            daemons[name] = stack.enter_context(lands(database, tmp_path / name, **options))
        Workload(gauss.store, seed, upserts=True).run(60)
        for daemon in daemons.values():
            daemon.catch_up()
            assert daemon.stop() == 0
    count = overtaken(gauss.store)
    assert count > 10
    assert overtaken(gauss.store, on_ustore=True) > 2
    assert {table.name for table in _with_overtaken(gauss.store)} >= {"pair_key", "index_key"}
    for name, daemon in daemons.items():
        gausscheck.check(daemon.root, gauss)
        is_sent = name != "serial" or not profile.leaves_out_speculative
        assert left_out(daemon.root) == ((count, count) if is_sent else (0, 0)), name
    check_targets(daemons["binary"].root, tmp_path / "target", {"": gauss})


def _with_overtaken(store: Store) -> list[Table]:
    return [c.table for of in store.committed for c in of.changes if c.is_speculative]


def test_small_memory_and_kills(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """A transaction's rows stand in many batches, in the spool, and are sent again."""
    gauss = make_gauss(V6_0_0)
    workload, rng = Workload(gauss.store, 5, upserts=True), Random("kill")
    config = {
        "decoding": {"parallel-decode-num": 3, "decode-style": "b", "max-txn-in-memory": 1},
    }
    with GaussDaemon(GaussDatabase(gauss), tmp_path, config=config) as daemon:
        keeper = Keeper(daemon)
        for turn in range(6):
            workload.run(15)
            if turn % 2:
                gauss.cut_after(rng.randrange(1, 200_000))
            else:
                wait_until(lambda: daemon.durable_lsn() > 0 or not daemon.is_running, "a start")
                with contextlib.suppress(AssertionError):
                    daemon.kill9()
            gauss.checkpoint()
            keeper.keep()
        keeper.catch_up()
        assert daemon.stop() == 0
    gausscheck.check(daemon.root, gauss)
    assert overtaken(gauss.store) > 20


@pytest.fixture(params=[1, 2, 4])
def cluster(
    request: pytest.FixtureRequest, servers: Callable[[int], Postgres]
) -> Iterator[GaussCluster]:
    """Some data nodes."""
    names = [f"dn{number}" for number in range(1, request.param + 1)]
    with GaussCluster(names, postgres=servers(15)) as made:
        yield made


def _daemon(cluster: GaussCluster, directory: Path, style: str) -> GaussDaemon:
    base = OPTIONS if style == "parallel" else SERIAL
    if len(cluster.servers) > 1:
        return several(cluster, directory, base)
    given = {name.replace("-", "_"): value for name, value in base.items()}
    return lands(GaussDatabase(cluster.servers["dn1"]), directory, **given)


@pytest.mark.parametrize("style", ["parallel", "serial"])
def test_by_csn(cluster: GaussCluster, tmp_path: Path, style: str) -> None:
    """While CSNs and commit records invert, and the daemon is killed."""
    history = History(cluster, 7, truncates=False, upserts=True)
    with _daemon(cluster, tmp_path, style) as daemon:
        for _ in range(3):
            history.run(250)
            daemon.wait_for_state("streaming")
            daemon.kill9()
            daemon.start()
        history.finish()
        if isinstance(daemon, SeveralDaemon):
            daemon.catch_up_csn()
        else:
            daemon.catch_up()
        assert daemon.stop() == 0
    if isinstance(daemon, SeveralDaemon):
        check_several(daemon.root, cluster)
    else:
        gausscheck.check(daemon.root, cluster.servers["dn1"])
    stores = [server.store for server in cluster.servers.values()]
    assert left_out(daemon.root)[0] == sum(map(overtaken, stores)) > 10
    check_targets(daemon.root, tmp_path / "target", cluster.servers)


@pytest.mark.parametrize("style", STYLES)
def test_a_delete_that_nothing_explains(make_gauss: MakeGauss, tmp_path: Path, style: str) -> None:
    """The table had no replica identity when it was deleted from, and has one by the time it is read."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    store = gauss.store
    table = store.create_table("public", "t", {"id": "int8", "v": "text"}, key=["id"], identity="n")
    daemon = lands(GaussDatabase(gauss), tmp_path, **STYLES[style])
    with contextlib.nullcontext():
        change = store.begin()
        first, _ = change.insert(table, {"id": "1", "v": "a"}, {"id": "2", "v": "b"})
        change.commit()
        change = store.begin()
        change.delete(table, first)
        change.insert(table, {"id": "3", "v": "c"})
        change.commit()
        store.put_table(dataclasses.replace(table, identity="d"))
        change = store.begin()
        change.overtaken(table, {"id": "2", "v": "lost"})
        change.commit()
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    changes = landing.read(daemon.root).changes
    assert [(of.op, of.new.get("id")) for of in changes] == [
        ("I", 1),
        ("I", 2),
        ("D", None),
        ("I", 3),
    ]
    assert [of.schema.key for of in changes] == [("id",), ("id",), None, ("id",)]
    assert left_out(daemon.root) == (1, 1)
    assert main(["verify", str(daemon.root)]) == 0
    summary = apply_local(daemon.root, tmp_path / "target", accept_hidden_truncates=True)
    assert list(summary.stopped.values()) == [UNTOLD]


def test_a_deferrable_key_is_no_identity(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Its deletes have no old row: what the same transaction inserted stays, and the table stands still."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    store = gauss.store
    table = store.create_table("public", "t", {"id": "int8", "v": "text"}, key=["id"])
    table = dataclasses.replace(table, is_deferrable=True)
    store.put_table(table)
    with lands(GaussDatabase(gauss), tmp_path, **BINARY) as daemon:
        change = store.begin()
        (first,) = change.insert(table, {"id": "1", "v": "a"})
        change.commit()
        change = store.begin()
        change.insert(table, {"id": "5", "v": "e"})
        change.delete(table, first)
        change.commit()
        daemon.catch_up()
        assert daemon.stop() == 0
    changes = landing.read(daemon.root).changes
    assert [(of.op, of.new.get("id")) for of in changes] == [("I", 1), ("I", 5), ("D", None)]
    assert left_out(daemon.root) == (0, 0)
    assert {of.schema.key for of in changes} == {None}
    summary = apply_local(daemon.root, tmp_path / "target", accept_hidden_truncates=True)
    assert list(summary.stopped.values()) == [UNTOLD]


def test_nothing_instead_on_ustore(
    make_gauss: MakeGauss, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stream has a row that the table has not: the row is not there twice, and is named; a snapshot mends it."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    columns = {"id": "int8", "v": "text"}
    table = gauss.store.create_table("public", "t", columns, key=["id"], is_ustore=True)
    config: dict[str, Json] = {"decoding": PARALLEL, "snapshot": {"mode": "none"}}
    with GaussDaemon(GaussDatabase(gauss), tmp_path, config=config) as daemon:
        for given in ({"id": "1", "v": "won"}, {"id": "2", "v": "b"}):
            change = gauss.store.begin()
            change.insert(table, given)
            change.commit()
        change = gauss.store.begin()
        change.overtaken(table, {"id": "1", "v": "lost"})
        change.insert(table, {"id": "3", "v": "c"})
        change.commit()
        daemon.catch_up()
        target = ["spark", "apply", str(daemon.root), str(tmp_path / "target"), "--local"]
        target.append("--accept-hidden-truncates")
        capsys.readouterr()
        assert main(target) == 0
        said = capsys.readouterr()
        assert "public.t: 1 change does not fit its rows" in said.out + said.err
        rows = newest(Target(tmp_path / "target"), "public.t")[1]
        assert sorted((row["id"], row["v"]) for row in rows) == [(1, "lost"), (2, "b"), (3, "c")]
        assert main(["snapshot", str(daemon.config_path), "--table", "public.t"]) == 0
        daemon.catch_up()
        assert daemon.stop() == 0
    capsys.readouterr()
    assert main(target) == 0
    assert "not fit" not in capsys.readouterr().out
    rows = newest(Target(tmp_path / "target"), "public.t")[1]
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "won"), (2, "b"), (3, "c")]
