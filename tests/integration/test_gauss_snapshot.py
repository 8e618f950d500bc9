"""Rows that a GaussDB has before its slot, joined to the stream by the CSN of a view."""

import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit import gausscheck, landing, oracle
from kit.daemon import Keeper, wait_until
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussprofile import PROFILES, V6_0_0, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Table
from kit.gaussworkload import Workload
from kit.proxy import Fault, Proxy

from gaussdecode.cli import main

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
BINARY = {"parallel-decode-num": 2, "decode-style": "b", "sending-batch": 1}
_PAUSE_SECONDS = 0.1  # between two transactions
STYLES: dict[str, dict[str, Any]] = {
    "binary": BINARY,
    "json": {**BINARY, "decode-style": "j"},
    "serial": {"parallel-decode-num": 1},
}


def daemon_of(
    gauss: GaussServer, directory: Path, decoding: dict[str, Any] = BINARY, **snapshot: object
) -> GaussDaemon:
    """A daemon whose slot is made now: what is there before is no change to it."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {name.replace("_", "-"): value for name, value in snapshot.items()}
    config = {"decoding": decoding, "snapshot": {"mode": "initial", **settings}}
    return GaussDaemon(GaussDatabase(gauss, directory.name), directory, config=config)


def is_done(daemon: GaussDaemon) -> bool:
    """Every table that is wanted has landed, or failed."""
    tables = ((daemon.status() or {}).get("snapshot") or {}).values()
    return bool(tables) and all(table["state"] in ("done", "failed") for table in tables)


def check(daemon: GaussDaemon, gauss: GaussServer) -> landing.Landing:
    """Replaying what landed gives the server's tables, value for value."""
    landed = landing.read(daemon.root)
    oracle.check_log(landed.entries)
    oracle.check_order(landed)
    oracle.check_snapshots(landed)
    gausscheck.check_tables(landed, gauss)
    assert not gauss.violations, gauss.violations
    assert not gauss.unknown_queries, gauss.unknown_queries
    assert not gauss.snapshots, "a view was left behind"
    return landed


def orders(gauss: GaussServer, *ids: int, name: str = "orders") -> Table:
    """A table with rows."""
    columns = {"id": "int8", "v": "text"}
    table = gauss.store.create_table("public", name, columns, key=["id"])
    transaction = gauss.store.begin()
    for number in ids:
        transaction.insert(table, {"id": str(number), "v": f"value\t{number}\\"})
    transaction.commit()
    return table


CASES = [
    pytest.param(V6_0_0, "UTF8", "binary", id="6.0.0-binary"),
    pytest.param(V6_0_0, "GB18030", "json", id="6.0.0-json"),
    pytest.param(PROFILES["3.0.0"], "UTF8", "binary", id="3.0.0-binary"),
    pytest.param(V6_0_0, "UTF8", "serial", id="6.0.0-serial"),
    pytest.param(PROFILES["3.0.3"], "UTF8", "serial", id="3.0.3-serial"),
]


@pytest.mark.parametrize(("profile", "encoding", "style"), CASES)
def test_existing_rows_join_the_stream(
    make_gauss: MakeGauss, tmp_path: Path, profile: Profile, encoding: str, style: str
) -> None:
    """Rows of before the slot and all changes since give the tables, values of all types equal."""
    gauss = make_gauss(profile, behaviour=Behaviour(encoding=encoding, flush_seconds=0.05))
    workload = Workload(gauss.store, 5, codec=gauss.codec, large=False)
    workload.run(25)
    daemon = daemon_of(gauss, tmp_path / "s", STYLES[style], verify="counts")
    with daemon:
        wait_until(lambda: bool(gauss.snapshots), "a view")
        for _ in range(25):
            workload.run(1)
            time.sleep(_PAUSE_SECONDS)
        daemon.wait_while_running(lambda: is_done(daemon), "all tables")
        workload.run(10)
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = check(daemon, gauss)
    assert any(change.is_snapshot for change in landed.changes)


def test_quiet_stream_is_nudged(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Where a quiet stream shows nothing, a row that is changed on purpose moves it."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    orders(gauss, 1, 2)
    orders(gauss, 1, name="beat")
    quiet = {**BINARY, "skip-empty-xacts": True}
    nudge = "UPDATE public.beat SET v = 'nudged'"
    with daemon_of(gauss, tmp_path / "s", quiet, nudge=nudge) as daemon:
        daemon.wait_while_running(lambda: is_done(daemon), "all tables")
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = check(daemon, gauss)
    assert {change.schema.table[1] for change in landed.streamed} == {"beat"}


def test_a_quiet_serial_stream_says_how_far_it_is(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Nothing is committed by anybody else: existing rows land, at the beginning and by a command."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    orders(gauss, 1, 2)
    serial = {"parallel-decode-num": 1}
    with daemon_of(gauss, tmp_path / "s", serial) as daemon:
        daemon.wait_while_running(lambda: is_done(daemon), "all tables")
        assert daemon.stop() == 0
    assert {change.new["id"] for change in check(daemon, gauss).effective()} == {1, 2}
    with daemon_of(gauss, tmp_path / "t", serial, mode="none") as daemon:
        daemon.wait_for_state("streaming")
        refused = ask(daemon, "public.orders")
        assert (refused.returncode, "decoding.auto-advance: true" in refused.stderr) == (78, True)
        assert daemon.stop() == 0
        daemon.write_config(decoding={**serial, "auto-advance": True}, snapshot={"mode": "none"})
        daemon.start().wait_for_state("streaming")
        assert ask(daemon, "public.orders").returncode == 0
        assert daemon.stop() == 0
    assert {change.new["id"] for change in check(daemon, gauss).effective()} == {1, 2}


def test_killed_at_any_time(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """After kill -9, and connections that break, the tables are whole in the end."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    workload, rng = Workload(gauss.store, 23, large=False), Random(23)
    workload.run(25)
    with daemon_of(gauss, tmp_path / "s", workers=1) as daemon:
        keeper = Keeper(daemon)
        for turn in range(4):
            workload.run(4)
            wait_until(lambda: bool(gauss.snapshots) or not daemon.is_running, "a view")
            if turn % 2:
                gauss.cut_after(rng.randrange(1, 20_000))
            elif daemon.is_running:
                daemon.kill9()
            keeper.keep()
        daemon.wait_while_running(lambda: is_done(daemon), "all tables")
        keeper.catch_up()
        assert daemon.stop() == 0
    check(daemon, gauss)


def test_connections_cut_while_they_are_set_up(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Whichever connection of a snapshot is lost, at any answer: it is tried again, and lands."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    orders(gauss, 1, 2, 3)
    with Proxy(gauss.port) as proxy:
        database = GaussDatabase(gauss, "s")
        dsn = database.dsn.replace(f"port={gauss.port}", f"port={proxy.port}")
        config: dict[str, dict[str, Any]] = {
            "decoding": BINARY,
            "snapshot": {"mode": "none"},
        }  # JSON
        (tmp_path / "s").mkdir()
        with GaussDaemon(database, tmp_path / "s", dsn=dsn, config=config) as daemon:
            daemon.wait_for_state("streaming")
            for faults, after in enumerate((200, 424, 432, 440, 446, 880, 1300), 1):
                proxy.plan(Fault.CUT, after, of_stream=False)
                ask(daemon, "public.orders", "--no-wait")
                daemon.wait_while_running(lambda: proxy.faults >= faults, "a fault")  # noqa: B023
            daemon.wait_while_running(lambda: is_done(daemon), "the snapshot")
            assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    assert {change.new["id"] for change in landed.effective()} == {1, 2, 3}


def test_order_of_visibility(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """A transaction that is in the view, and writes its commit record late, is not applied twice."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    table = orders(gauss, 1, 2)
    with daemon_of(gauss, tmp_path / "s", mode="none") as daemon:
        late = gauss.store.begin()
        late.insert(table, {"id": "3", "v": "late"})
        late.draw_csn()
        other = gauss.store.begin()
        other.insert(table, {"id": "4", "v": "other"})
        other.commit()
        daemon.catch_up()
        ask(daemon, "public.orders", "--no-wait")
        daemon.wait_while_running(lambda: gauss.store.waiting > 0, "a reader that waits")
        last = gauss.store.begin()
        last.insert(table, {"id": "5", "v": "between"})
        last.commit()
        late.commit()
        daemon.wait_while_running(lambda: is_done(daemon), "the snapshot")
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = check(daemon, gauss)
    assert "another order" in daemon.log.read_text()
    assert sorted(change.new["id"] for change in landed.effective()) == [1, 2, 3, 4, 5]


def ask(daemon: GaussDaemon, title: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``gaussdecode snapshot``."""
    command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
    return subprocess.run(
        [*command, "--table", title, *arguments], capture_output=True, text=True, check=False
    )


def test_one_table_later(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """A table, or some of its rows, is landed on request; one that may not be read fails alone."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    orders(gauss, 1, 2, 3)
    orders(gauss, 7, name="secret")
    hidden = gauss.store.create_table("public", "hidden", {"id": "int8"}, key=["id"])
    gauss.store.put_table(dataclasses.replace(hidden, options=("enable_rowsecurity=true",)))
    gauss.forbidden.add(("public", "secret"))
    with daemon_of(gauss, tmp_path / "s", mode="none") as daemon:
        daemon.wait_for_state("streaming")
        some = ask(daemon, "public.orders", "--where", "id < 3")
        assert (some.returncode, "2 rows" in some.stdout) == (0, True), some.stderr
        refused = ask(daemon, "public.secret")
        assert (refused.returncode, 'GRANT SELECT ON "public"."secret"' in refused.stderr) == (
            69,
            True,
        )
        refused = ask(daemon, "public.hidden")
        assert (refused.returncode, "row level security" in refused.stderr) == (69, True)
        done = ask(daemon, "public.orders")
        assert (done.returncode, "3 rows" in done.stdout) == (0, True), done.stderr
        assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    assert sorted(change.new["id"] for change in landed.effective()) == [1, 2, 3]


def test_a_dropped_table_is_let_go(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Only once it is gone; then it has no rows for readers."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    table = orders(gauss)
    with daemon_of(gauss, tmp_path / "s", mode="none") as daemon:
        change = gauss.store.begin()
        change.insert(table, {"id": "1", "v": "a"})
        change.commit()
        daemon.catch_up()
        refused = ask(daemon, "public.orders", "--dropped")
        assert (refused.returncode, "has a table of this name" in refused.stderr) == (69, True)
        gauss.store.drop_table(table)
        done = ask(daemon, "public.orders", "--dropped")
        assert (done.returncode, "0 rows" in done.stdout) == (0, True), done.stderr
        assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    oracle.check_log(landed.entries)
    assert [change.op for change in landed.effective()][-1] == "T"


def test_disagreement_fails_the_table(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """With checksums all types pass; rows that are not what was summed up fail their table alone."""
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    workload = Workload(gauss.store, 31, large=False)
    workload.run(15)
    orders(gauss, *range(40))
    with daemon_of(gauss, tmp_path / "s", verify="checksums") as daemon:
        daemon.wait_while_running(lambda: is_done(daemon), "all tables")
        states = {title: record["state"] for title, record in daemon.record()["snapshot"].items()}
        assert set(states.values()) == {"done"}, states
        differing = ask(daemon, "public.orders", "--where", "random() < 0.5")
        assert differing.returncode == 69
        assert re.search(
            r"the server reports \d+ rows with checksum -?\d+, but \d+ rows", differing.stderr
        )
        daemon.catch_up()
        assert daemon.stop() == 0
    check(daemon, gauss)


@pytest.mark.parametrize(
    ("decoding", "named"),
    [({**BINARY, "skip-empty-xacts": True}, "skip-empty-xacts")],
    ids=["skips-empty"],
)  # fmt: skip
def test_refused_by_name(
    make_gauss: MakeGauss,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    decoding: dict[str, object],
    named: str,
) -> None:
    """Where the stream of a quiet server would not get to a position, no landing begins without the rows there are.

    One that began knowingly goes on without.
    """
    gauss = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05))
    table = orders(gauss, 1, 2)
    for mode in ("only", "initial"):
        daemon = daemon_of(gauss, tmp_path / mode, decoding, mode=mode)
        for command in (["check"], ["slot", "adopt"]):
            assert main([*command, str(daemon.config_path)]) == 78
            said = capsys.readouterr()
            assert f"snapshot.mode: {mode}: " in said.out + said.err
            assert named in said.out + said.err
        assert not landing.read_entries(daemon.root)
    with daemon_of(gauss, tmp_path / "t", decoding, mode="none") as daemon:
        daemon.wait_for_state("streaming")
        refused = ask(daemon, "public.orders")
        assert (refused.returncode, named in refused.stderr) == (78, True)
        transaction = gauss.store.begin()
        transaction.insert(table, {"id": "3", "v": "x"})
        transaction.commit()
        daemon.catch_up()
        assert daemon.stop() == 0
        daemon.write_config(snapshot={"mode": "initial"})
        daemon.start().wait_for_state("streaming")
        assert daemon.stop() == 0
    assert "snapshot_refused" in daemon.log.read_text()
