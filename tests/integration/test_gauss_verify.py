"""A target compared with a simulated GaussDB server, whose views have a CSN and no position."""

import dataclasses
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit.daemon import wait_until
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussserver import GaussServer
from kit.gaussstore import Table
from kit.gaussworkload import Workload

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration


@pytest.mark.timeout(300)
def test_equal_at_the_position_that_the_stream_shows(
    make_gauss: Callable[..., GaussServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of every type are compared though changes are not applied, and a commit record comes late."""
    gauss = make_gauss()
    database = GaussDatabase(gauss)  # its slot: all rows come in the stream
    workload = Workload(gauss.store, 5, large=False)
    workload.run(25)
    config = {"decoding": {"parallel-decode-num": 2, "decode-style": "b"}}
    root, target = tmp_path / "landing", tmp_path / "target"
    with GaussDaemon(database, tmp_path, config=config) as daemon:
        workload.run(10)
        daemon.catch_up()
        apply = ["spark", "apply", str(root), str(target), "--local", "--accept-hidden-truncates"]
        # kit.shape is altered; in parallel decoding nobody may know when, so that it stands still.
        assert main(apply) in (EX_OK, EX_CONFIG)
        workload.run(5)
        columns = {"id": "int8", "v": "text"}
        orders = gauss.store.create_table("public", "orders", columns, key=["id"])
        late = gauss.store.begin()
        late.insert(orders, {"id": "1", "v": "late"})
        late.draw_csn()
        verify = ["spark", "verify", str(root), str(target), "--config", str(daemon.config_path)]
        capsys.readouterr()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(main, [*verify, "--local", "--json"])
            wait_until(lambda: gauss.store.waiting > 0 or done.done(), "a reader that waits")
            late.commit()
            done.result()
        said = capsys.readouterr()
        assert said.out, said.err
        found = {of["table"]: of for of in json.loads(said.out)["tables"]}
        assert len(found) > 5, said.err
        for title, of in found.items():
            is_still = title == "kit.shape"
            assert (of["why_not"] is not None, of["different_ranges"]) == (is_still, 0), of
        wait_until(lambda: not gauss.snapshots, "no view is left behind")
        assert not gauss.unknown_queries
        assert daemon.stop() == 0


@pytest.mark.timeout(300)
def test_a_renamed_table_is_found_by_its_rows(
    make_gauss: Callable[..., GaussServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The position is that of rows which landed under the name of now, in the directory of the first one."""
    gauss = make_gauss()
    database = GaussDatabase(gauss)
    columns = {"id": "int8", "v": "text"}
    old = gauss.store.create_table("public", "orders", columns, key=["id"])
    config = {"decoding": {"parallel-decode-num": 2, "decode-style": "b"}}
    root, target = tmp_path / "landing", tmp_path / "target"
    apply = ["spark", "apply", str(root), str(target), "--local", "--accept-hidden-truncates"]
    apply += ["--on-ddl", "rename-table=apply"]

    def insert(table: Table, number: int) -> None:
        transaction = gauss.store.begin()
        transaction.insert(table, {"id": str(number), "v": "x"})
        transaction.commit()
        daemon.catch_up()

    def verify() -> dict[str, Any]:
        capsys.readouterr()
        command = ["spark", "verify", str(root), str(target), "--config", str(daemon.config_path)]
        main([*command, "--local", "--json"])
        said = capsys.readouterr()
        assert said.out, said.err
        return {of["table"]: of for of in json.loads(said.out)["tables"]}

    with GaussDaemon(database, tmp_path, config=config) as daemon:
        insert(old, 1)
        assert main(apply) == EX_OK
        assert daemon.stop() == 0
        new = dataclasses.replace(old, name="sales")
        gauss.store.put_table(new)
        daemon.start()
        insert(new, 2)
        assert main(apply) == EX_OK
        assert Target(target).find_table("public.sales") == "public.orders"
        insert(new, 3)
        (found,) = verify().values()
        assert (found["table"], found["rows"], found["target_rows"]) == ("public.sales", 3, 3)
        assert (found["why_not"], found["different_ranges"]) == (None, 0)
        assert daemon.stop() == 0
