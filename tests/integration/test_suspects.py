"""What becomes of transactions that the server says may be incomplete: `landing.on-suspect`."""

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit import gausscheck, landing, oracle
from kit.daemon import wait_until
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussprofile import COMMERCIAL, V6_0_0
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
        except (AssertionError, KeyError):  # the latter of a table of which nothing landed yet
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
    assert "landing.on-suspect is stop. Set record" in daemon.log_tail()
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


# ---- what the WAL says of them


def ddl(stage: Stage, *, is_elsewhere: bool = False) -> Committed:
    """DDL that loses nothing: of a temporary table, a comment, or in another database."""
    if is_elsewhere:
        store = stage.gauss.store
        lsn = store.write(100)
        return store.commit((), ddl_lsn=lsn, first_lsn=lsn, is_elsewhere=True)
    transaction = stage.gauss.store.begin()
    transaction.insert(stage.orders, {"id": str(transaction.xid), "v": "before"})
    transaction.ddl()
    return transaction.commit()


def _is_settled(stage: Stage, wanted: int) -> bool:
    return settled(stage) == wanted


def settled(stage: Stage) -> int:
    """Transactions that entries say lost nothing."""
    return sum(entry["extra"].get("settled", 0) for entry in stage.daemon.entries())


@pytest.mark.parametrize("policy", ["record", "snapshot", "stop"])
def test_ddl_that_loses_nothing_is_closed(
    make_stage: Callable[[str], Stage], policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here and in other databases: nothing stops, nothing is read again, and entry and metrics tell how many."""
    stage = make_stage(policy)
    with stage.daemon as daemon:
        stage.insert(stage.orders, 1)
        daemon.catch_up()
        for number in range(3):
            ddl(stage)
            ddl(stage, is_elsewhere=True)
            stage.insert(stage.other, number)
            daemon.catch_up()
        daemon.wait_while_running(lambda: settled(stage) == 6, "the last of them")
        _, page = daemon.get("/metrics")
        assert re.search(
            r"^gaussdecode_collect_settled_transactions_total{.*} 6", page.decode(), re.MULTILINE
        )
        assert re.search(
            r"^gaussdecode_land_suspect_entries_total{.*} 0", page.decode(), re.MULTILINE
        )
        assert daemon.stop() == 0
    assert stage.suspects() == []
    landed = stage.check()
    assert not any(change.is_snapshot for change in landed.changes)
    capsys.readouterr()
    assert main(["gaps", str(daemon.root)]) == EX_OK
    assert capsys.readouterr().out.splitlines() == [
        "nothing is missing", "6 transactions with DDL lost nothing, as the server's WAL shows",
        "the rows that were there when the landing began are not in it (snapshot.mode: none)",
    ]  # fmt: skip


def test_an_idle_connection_that_the_server_ended_is_made_again(
    make_stage: Callable[[str], Stage],
) -> None:
    """DDL may be hours apart, and the server ends idle sessions: the next is settled all the same."""
    stage = make_stage("stop")
    with stage.daemon as daemon:
        for number in range(3):
            ddl(stage)
            stage.insert(stage.other, number)
            wanted = partial(_is_settled, stage, number + 1)
            daemon.wait_while_running(wanted, "the answer")
            stage.gauss.end_idle()
        assert daemon.stop() == 0
    assert stage.suspects() == []


def test_only_the_tables_that_lost_rows_are_read_again(make_stage: Callable[[str], Stage]) -> None:
    """The entry names them, and no other table is read."""
    stage = make_stage("snapshot")
    with stage.daemon as daemon:
        stage.insert(stage.other, 1)
        daemon.catch_up()
        ddl(stage)
        stage.insert(stage.orders, 2, 3, ddl_before=3)
        daemon.wait_while_running(stage.is_whole, "the rows that were lost")
        assert daemon.stop() == 0
    (suspect,) = stage.suspects()
    assert suspect["extra"]["tables"] == ["public.orders"]
    assert suspect["extra"]["only_these"] is True
    assert len(suspect["extra"]["transactions"]) == 1
    read = {change.schema.table for change in stage.check().changes if change.is_snapshot}
    assert read == {("public", "orders")}
    assert settled(stage) == 1


def _truncated(stage: Stage) -> None:
    """A later TRUNCATE: the rows that were lost are in a file that no table has."""
    transaction = stage.gauss.store.begin()
    transaction.truncate(stage.orders)
    transaction.commit()


def _rewritten(stage: Stage) -> None:
    """A later VACUUM FULL, whose transaction is named too."""
    stage.gauss.store.rewrite(stage.orders)


def _compressed(stage: Stage) -> None:
    """A table whose rows may be left out for their compression."""
    table = dataclasses.replace(stage.orders, options=("compression=yes",))
    stage.gauss.store.put_table(table)
    stage.gauss.store.changed_by[table.oid] = 1


@pytest.mark.parametrize("how", [_truncated, _rewritten, _compressed])
def test_a_file_that_was_replaced_proves_nothing(
    make_stage: Callable[[str], Stage], how: Callable[[Stage], None]
) -> None:
    """Of such a table nobody knows what was in the one before: it is named."""
    stage = make_stage("record")
    with stage.daemon as daemon:
        stage.insert(stage.other, 1)
        daemon.catch_up()
        assert daemon.stop() == 0
        ddl(stage)
        how(stage)
        daemon.start()
        daemon.wait_while_running(lambda: bool(stage.suspects()), "the entry")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert [entry["extra"]["tables"] for entry in stage.suspects()] == [["public.orders"]]
    assert stage.suspects()[0]["extra"]["only_these"] is True


def test_a_later_change_of_a_tables_entry_is_no_other_file(
    make_stage: Callable[[str], Stage],
) -> None:
    """GRANT, CREATE INDEX and others write its entry anew, and its rows are where they were."""
    stage = make_stage("stop")
    with stage.daemon as daemon:
        stage.insert(stage.other, 1)
        daemon.catch_up()
        assert daemon.stop() == 0
        ddl(stage)
        stage.gauss.store.put_table(dataclasses.replace(stage.orders, options=("fillfactor=70",)))
        daemon.start()
        stage.insert(stage.other, 2)
        daemon.wait_while_running(lambda: settled(stage) == 1, "the only one")
        assert daemon.stop() == 0
    assert stage.suspects() == []


def test_what_gaussdb_tells_is_not_taken_for_whole(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Only an openGauss is asked: nobody knows what the other one leaves out."""
    gauss = make_gauss(COMMERCIAL, behaviour=Behaviour(flush_seconds=0.05))
    stage = Stage(gauss, tmp_path / "s", "record")
    with stage.daemon as daemon:
        stage.insert(stage.orders, 1)
        daemon.catch_up()
        ddl(stage)
        daemon.wait_while_running(lambda: bool(stage.suspects()), "the entry")
        assert daemon.stop() == 0
    assert "may leave out parts of a stretch of its WAL" in daemon.log.read_text()
    assert stage.suspects()[0]["extra"]["is_any_table"] is True


@pytest.mark.parametrize("how", ["gone", "long", "refused"])
def test_what_cannot_be_read_stays_as_it_is(make_stage: Callable[[str], Stage], how: str) -> None:
    """WAL that is gone or too long, and a role that may not: any table may be meant, and the log says why."""
    stage = make_stage("record")
    store = stage.gauss.store
    with stage.daemon as daemon:
        stage.insert(stage.orders, 1)
        daemon.catch_up()
        transaction = store.begin()
        transaction.insert(stage.orders, {"id": "2", "v": "a"})
        transaction.ddl()
        if how == "long":
            store.write(200 << 20)
        elif how == "gone":
            stage.gauss.behaviour.area_from = store.wal_end + 10_000
        else:
            stage.gauss.behaviour.refuses_area = True
        transaction.commit()
        daemon.wait_while_running(lambda: bool(stage.suspects()), "the entry")
        daemon.catch_up()
        assert daemon.stop() == 0
    (suspect,) = stage.suspects()
    assert (suspect["extra"]["tables"], suspect["extra"]["is_any_table"]) == ([], True)
    assert "only_these" not in suspect["extra"]
    assert '"suspects_unsettled"' in daemon.log.read_text()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("policy", ["record", "snapshot"])
def test_random_ddl_is_settled_right(
    make_stage: Callable[[str], Stage], policy: str, seed: int
) -> None:
    """Open transactions beside each other: every table that lost rows is named, every DDL accounted for."""
    stage, rng = make_stage(policy), Random(seed)
    store = stage.gauss.store
    tables = [stage.orders, stage.other] + [
        store.create_table("public", f"t_{n}", {"id": "int8", "v": "text"}, key=["id"])
        for n in range(4)
    ]
    numbers = iter(range(10**6))
    with stage.daemon as daemon:
        open_ones = [store.begin() for _ in range(3)]
        for _ in range(150):
            transaction = rng.choice(open_ones)
            dice = rng.random()
            if dice < 0.2:
                transaction.ddl()
            elif dice < 0.7:
                transaction.insert(rng.choice(tables), {"id": str(next(numbers)), "v": "x"})
            else:
                (transaction.commit if dice < 0.95 else transaction.rollback)()
                open_ones[open_ones.index(transaction)] = store.begin()
        for transaction in open_ones:
            transaction.commit()
        with_ddl = [of for of in store.committed if of.ddl_lsn is not None]
        assert any(of.rows_after_ddl for of in with_ddl)

        def accounted() -> int:
            named = {
                of["xid"] for entry in stage.suspects() for of in entry["extra"]["transactions"]
            }
            return len(named) + settled(stage)

        stage.insert(stage.orders, 10**6)
        daemon.wait_while_running(lambda: accounted() >= len(with_ddl), "all DDL")
        if policy == "snapshot":
            daemon.wait_while_running(stage.is_whole, "what was lost")
        assert daemon.stop() == 0
    assert accounted() == len(with_ddl)
    assert settled(stage) > 0
    for of in with_ddl:
        assert of.ddl_lsn is not None
        lost = {f"public.{c.table.name}" for c in of.changes if c.lsn > of.ddl_lsn}
        named = {
            table
            for entry in stage.suspects()
            if of.xid in {item["xid"] for item in entry["extra"]["transactions"]}
            for table in entry["extra"]["tables"]
        }
        assert lost <= named
