"""A landing in the order of CSNs of a running openGauss, which sends in the order of commit records."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import gausscheck, landing, oracle
from kit.daemon import Json, wait_until
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDaemon, GaussDatabase, lands
from kit.gausshistory import History
from kit.gaussserver import GaussServer
from kit.postgres import Postgres

pytestmark = pytest.mark.integration
SERIAL: dict[str, object] = {"parallel_decode_num": 1, "output_order": 1}
CSN: dict[str, object] = {
    "parallel_decode_num": 2, "decode_style": "b", "sending_batch": 1, "skip_empty_xacts": False,
    "output_order": 1,
}  # fmt: skip


@pytest.fixture
def one(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """A cluster of one node, whose transactions draw CSNs in one order and write records in another."""
    with GaussCluster(("dn1",), postgres=servers(15)) as made:
        yield made


def check(root: Path, server: GaussServer) -> None:
    """All that committed has landed once, by CSN, at or below each entry's watermark."""
    landed = landing.read(root)
    oracle.check_log(landed.entries)
    gausscheck.check_transactions(landed, server, gausscheck.visible_rows)
    gausscheck.check_tables(landed, server)
    passed = 0
    for entry in landed.entries:
        (position,) = entry["positions"].values()
        csns = entry["extra"].get("csns")
        if csns is not None:
            assert passed < csns["least"] <= csns["greatest"] <= position["csn"]
        passed = position["csn"] or passed
    assert not server.violations, server.violations


def caught_up(daemon: GaussDaemon, server: GaussServer) -> None:
    """Everything that has a commit record has landed."""
    last = max((of.csn for of in server.store.committed), default=0)

    def is_done() -> bool:
        newest = landing.newest_entry(daemon.root)
        assert newest is not None
        (position,) = newest["positions"].values()
        return (position["csn"] or 0) >= last

    wait_until(is_done, f"CSN {last}")


@pytest.mark.parametrize("style", ["parallel", "serial"])
def test_inverted_transactions_land_by_csn(one: GaussCluster, tmp_path: Path, style: str) -> None:
    """While others draw and write in another order."""
    server = one.servers["dn1"]
    history = History(one, 1, truncates=False)
    options = CSN if style == "parallel" else {"parallel_decode_num": 1, "output_order": 1}
    with lands(GaussDatabase(server), tmp_path, **options) as daemon:
        for _ in range(10):
            history.run(40)
            time.sleep(0.2)
        history.finish()
        caught_up(daemon, server)
        assert daemon.stop() == 0
    check(daemon.root, server)


@pytest.mark.parametrize("style", ["parallel", "serial"])
@pytest.mark.parametrize("is_first", [False, True], ids=["last-csn", "first-csn"])
def test_a_bounded_spool_behind_a_long_statement(
    one: GaussCluster, tmp_path: Path, style: str, *, is_first: bool
) -> None:
    """More waits for its turn than the spool may hold; when the statement has ended, all of it lands."""
    server = one.servers["dn1"]
    table = server.store.create_table("kit", "wide", {"id": "int8", "v": "text"}, key=["id"])
    options = CSN if style == "parallel" else SERIAL
    decoding = {name.replace("_", "-"): value for name, value in options.items()}
    landing_ = {"spool-bytes": "2MiB", "memory-bytes": "32MiB", "row-group-bytes": "1MiB"}
    config: dict[str, Json] = {
        "decoding": {**decoding, "max-txn-in-memory": 1},
        "landing": landing_,
    }
    with GaussDaemon(GaussDatabase(server), tmp_path, config=config) as daemon:
        daemon.wait_for_state("streaming")
        held = server.store.begin()
        held.insert(table, {"id": "0", "v": "x"})
        held.work("UPDATE kit.wide SET v = pg_sleep(3600)")
        if is_first:
            held.draw_csn()
        for number in range(1, 161):
            made = server.store.begin()
            made.insert(table, {"id": str(number), "v": f"{number:06}" * 50_000})
            made.commit()
        time.sleep(4)
        assert all(entry["kind"] != "data" for entry in landing.read_entries(daemon.root))
        assert daemon.record()["state"] == "streaming"
        held.commit()
        caught_up(daemon, server)
        assert '"turns_given_up"' in daemon.log.read_text()
        assert daemon.stop() == 0
    check(daemon.root, server)
