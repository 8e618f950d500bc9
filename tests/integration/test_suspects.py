"""What becomes of transactions that the server says may be incomplete: `landing.on-suspect`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import gausscheck, landing, oracle
from kit.daemon import wait_until
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussprofile import V6_0_0
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Committed, Table

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.land.failpoints import VARIABLE

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
BINARY = {"parallel-decode-num": 2, "decode-style": "b", "sending-batch": 1}


class Stage:
    """A server with two tables, and a daemon whose landing began without snapshots."""

    def __init__(self, gauss: GaussServer, directory: Path, on_suspect: str) -> None:
        self.gauss = gauss
        columns = {"id": "int8", "v": "text"}
        self.orders, self.other = (
            gauss.store.create_table("public", name, columns, key=["id"])
            for name in ("orders", "other")
        )
        directory.mkdir()
        config: dict[str, Any] = {
            "decoding": BINARY,
            "landing": {"on-suspect": on_suspect, "max-commit-interval": "0.2s"},
            "snapshot": {"mode": "none", "suspect-interval": "1s"},
        }
        self.daemon = GaussDaemon(GaussDatabase(gauss), directory, config=config)

    def insert(self, table: Table, *ids: int, ddl_before: int | None = None) -> Committed:
        """One transaction; the server drops what comes from `ddl_before` on."""
        transaction = self.gauss.store.begin()
        for number in ids:
            if number == ddl_before:
                transaction.ddl()
            transaction.insert(table, {"id": str(number), "v": f"value {number}"})
        return transaction.commit()

    def suspects(self) -> list[dict[str, Any]]:
        """Suspect entries."""
        return [entry for entry in self.daemon.entries() if entry["kind"] == "suspect"]

    def is_whole(self) -> bool:
        """Whether what landed is what the server has."""
        try:
            gausscheck.check_tables(landing.read(self.daemon.root), self.gauss)
        except AssertionError:
            return False
        return True

    def check(self) -> landing.Landing:
        """Assert everything."""
        landed = landing.read(self.daemon.root)
        oracle.check_log(landed.entries)
        oracle.check_order(landed)
        oracle.check_snapshots(landed)
        gausscheck.check_tables(landed, self.gauss)
        assert not self.gauss.violations, self.gauss.violations
        assert not self.gauss.unknown_queries, self.gauss.unknown_queries
        return landed


@pytest.fixture
def make_stage(make_gauss: MakeGauss, tmp_path: Path) -> Callable[[str], Stage]:
    """Makes a stage with a policy."""

    def make(on_suspect: str) -> Stage:
        gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
        return Stage(gauss, tmp_path / "s", on_suspect)

    return make


def test_dropped_rows_come_back_by_a_snapshot(make_stage: Callable[[str], Stage]) -> None:
    """Rows of a table that shows in the stream, and of one that does not; more than once."""
    stage = make_stage("snapshot")
    with stage.daemon as daemon:
        stage.insert(stage.orders, 1)
        daemon.catch_up()
        stage.insert(stage.orders, 2, 3, ddl_before=3)
        daemon.wait_while_running(stage.is_whole, "the first rows")
        stage.insert(stage.other, 4, ddl_before=4)  # nothing of it is sent
        stage.insert(stage.orders, 5)
        daemon.wait_while_running(stage.is_whole, "the second rows")
        gaps = ["gaps", "--unaccepted", str(daemon.root)]
        daemon.wait_while_running(lambda: main(gaps) == EX_OK, "nothing is in doubt any more")
        assert daemon.stop() == 0
    landed = stage.check()
    assert len(stage.suspects()) >= 2
    assert any(change.is_snapshot for change in landed.changes)
    assert "tables_in_doubt" in daemon.log.read_text()


@pytest.mark.parametrize("point", ["table_asked", "snapshot_committed"])
def test_an_order_survives_a_kill(make_stage: Callable[[str], Stage], point: str) -> None:
    """Between the entry and the order, after the order, and after the rows' entry."""
    stage = make_stage("record")
    with stage.daemon as daemon:
        daemon.wait_for_state("streaming")
        stage.insert(stage.orders, 1, 2, ddl_before=2)
        daemon.wait_while_running(lambda: len(stage.suspects()) == 1, "the entry")
        daemon.catch_up()
        daemon.kill9()  # the entry is there, and nothing has been ordered
        assert not stage.is_whole()
        daemon.write_config(landing={"on-suspect": "snapshot", "max-commit-interval": "0.2s"})
        daemon.environment = {VARIABLE: f"{point}=kill"}
        daemon.start()
        wait_until(lambda: not daemon.is_running, f"dying at {point}\n{daemon.log_tail()}")
        daemon.environment = {}
        daemon.start().wait_for_state("streaming")
        daemon.wait_while_running(stage.is_whole, "the rows")
        assert daemon.stop() == 0
    stage.check()


def test_noise_does_not_read_without_end(make_stage: Callable[[str], Stage]) -> None:
    """Many notices while the interval lasts are one order, however many entries they make."""
    stage = make_stage("snapshot")
    stage.daemon.write_config(snapshot={"mode": "none", "suspect-interval": "1h"})
    with stage.daemon as daemon:
        daemon.wait_for_state("streaming")
        for number in range(1, 8):
            stage.insert(stage.orders, number, -number, ddl_before=-number)
            daemon.catch_up()
        daemon.wait_while_running(
            lambda: "snapshot_landed" in daemon.log.read_text(), "the first snapshot"
        )
        stage.insert(stage.orders, 8, 9, ddl_before=9)
        daemon.catch_up()
        assert daemon.stop() == 0
    assert daemon.log.read_text().count('"tables_in_doubt"') == 1
    assert not stage.is_whole()  # the last one waits, and is in doubt for whoever asks
    daemon.write_config(snapshot={"mode": "none", "suspect-interval": "1s"})
    with daemon:
        daemon.wait_while_running(stage.is_whole, "the rest")
        assert daemon.stop() == 0
    stage.check()


def test_a_suspect_stops_the_daemon(make_stage: Callable[[str], Stage]) -> None:
    """With an error that says which and what to do; then it goes on where it stopped."""
    stage = make_stage("stop")
    daemon = stage.daemon.start()
    before = stage.insert(stage.orders, 1)
    daemon.catch_up()
    done = stage.insert(stage.orders, 2, 3, ddl_before=3)
    assert daemon.wait() == EX_CONFIG
    assert f"transactions {done.xid} from " in daemon.log_tail()
    assert "landing.on-suspect is stop: set record" in daemon.log_tail()
    assert daemon.durable_lsn() == before.end_lsn
    assert stage.gauss.slots["s"].confirmed_lsn <= before.end_lsn
    assert stage.suspects() == []
    daemon.start()
    assert daemon.wait() == EX_CONFIG
    daemon.write_config(landing={"on-suspect": "record"})
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    assert len(stage.suspects()) == 1
    assert [change.new["id"] for change in landing.read(daemon.root).changes] == [1, 2]
