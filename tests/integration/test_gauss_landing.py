"""The daemon over a simulated GaussDB: every style, version and fault, exactly once."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from kit import gausscheck, landing
from kit.daemon import Json, Keeper, wait_until
from kit.gaussdaemon import GaussDaemon, GaussDatabase, lands
from kit.gaussprofile import PROFILES, V6_0_0, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Committed, Table
from kit.gaussworkload import Workload
from kit.memory import MemoryWatch
from kit.postgres import make_certificates

from gaussdecode.land.verify import verify
from gaussdecode.settings.sections import ROW_COPIES

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
BINARY: dict[str, object] = {"parallel_decode_num": 2, "decode_style": "b", "sending_batch": 1}
STYLES: dict[str, dict[str, object]] = {
    "binary": {**BINARY, "sending_batch": 0},
    "binary_batched": BINARY,
    "text": {**BINARY, "decode_style": "t"},
    "json": {**BINARY, "decode_style": "j"},
    "serial": {"parallel_decode_num": 1},
}
ENCODINGS = ("UTF8", "GB18030", "GBK", "UTF8", "UTF8", "SQL_ASCII", "UTF8")


def rows_of(root: Path) -> list[str]:
    """All landed changes as texts, in order; the log's own columns included."""
    return [
        repr((change.order, change.xid, change.op, change.schema.table, change.new, change.old))
        for change in landing.read(root).changes
    ]


# Every version lands in the product's usual way and in one other; the newest in all.
OTHERS = [["text"], ["json"], ["serial"], ["binary"], list(STYLES), ["serial"], ["json"]]
CASES = [
    pytest.param(PROFILES[name], encoding, ["binary_batched", *others], id=f"{name}-{encoding}")
    for name, encoding, others in zip(PROFILES, ENCODINGS, OTHERS, strict=True)
]


@pytest.mark.parametrize(("profile", "encoding", "styles"), CASES)
def test_styles_land_the_same(
    make_gauss: MakeGauss, tmp_path: Path, profile: Profile, encoding: str, styles: list[str]
) -> None:
    """Whatever the style, the same rows land, and they are what was committed."""
    gauss = make_gauss(profile, behaviour=Behaviour(flush_seconds=0.05, encoding=encoding))
    daemons: list[GaussDaemon] = []
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(styles):
            database = GaussDatabase(gauss, name)
            daemons.append(stack.enter_context(lands(database, tmp_path / name, **STYLES[name])))
        Workload(gauss.store, 7, codec=gauss.codec).run(20)
        for daemon in daemons:
            daemon.catch_up()
            assert daemon.stop() == 0
    for daemon in daemons:
        gausscheck.check(daemon.root, gauss)
    first, *others = [rows_of(daemon.root) for daemon in daemons]
    assert first
    for other in others:
        assert other == first


@pytest.mark.parametrize("style", ["binary_batched", "serial"])
def test_latency_begins_with_the_commit(make_gauss: MakeGauss, tmp_path: Path, style: str) -> None:
    """By the server's clock, in whatever time zone its sessions show it; what is ahead counts as 0."""
    gauss = make_gauss(behaviour=Behaviour(flush_seconds=0.05))
    table = orders(gauss)
    ages = iter((2000, -3600, 100_000_000))
    gauss.store._clock = lambda: gauss.now_us() - next(ages) * 1_000_000
    with lands(GaussDatabase(gauss), tmp_path, **STYLES[style]) as daemon:
        for number in range(3):
            insert(gauss, table, number)
        daemon.catch_up()
        page = daemon.get("/metrics")[1].decode()
        assert daemon.stop() == 0
    found = re.findall(r'land_commit_to_durable_seconds_bucket{le="(.+?)",.*} (\d+)', page)
    counts = {le: int(count) for le, count in found}
    assert [counts[le] for le in ("0.001", "1800", "3600", "+Inf")] == [1, 1, 2, 3]


def test_kill_and_resume(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Killed at any moment, with connections cut at any byte, the daemon loses and repeats nothing."""
    gauss = make_gauss(V6_0_0)
    database = GaussDatabase(gauss)
    workload, rng = Workload(gauss.store, 3), Random("kill")
    daemon = lands(database, tmp_path, **BINARY)
    with daemon:
        keeper = Keeper(daemon)
        for turn in range(6):
            workload.run(12)
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


def orders(gauss: GaussServer) -> Table:
    """A table of two columns and a key."""
    columns = {"id": "int8", "v": "text"}
    return gauss.store.create_table("public", "orders", columns, key=["id"])


def insert(gauss: GaussServer, table: Table, *ids: int) -> Committed:
    """One transaction that inserts rows."""
    transaction = gauss.store.begin()
    for number in ids:
        transaction.insert(table, {"id": str(number), "v": f"value {number}"})
    return transaction.commit()


def confirmed(database: GaussDatabase) -> int:
    """What the slot holds as confirmed."""
    return int(database.slot_positions()[1])


def test_lost_rows_are_suspect_before_they_are_confirmed(
    make_gauss: MakeGauss, tmp_path: Path
) -> None:
    """A transaction with DDL is named by a suspect entry that comes before its rows."""
    gauss = make_gauss(V6_0_0)
    database, table = GaussDatabase(gauss), orders(gauss)
    with lands(database, tmp_path, **BINARY) as daemon:
        insert(gauss, table, 1)
        daemon.catch_up()
        transaction = gauss.store.begin()
        transaction.insert(table, {"id": "2", "v": "kept"})
        transaction.ddl()
        transaction.insert(table, {"id": "3", "v": "lost"})
        done = transaction.commit()
        daemon.catch_up()
        metrics = daemon.get("/metrics")[1].decode()
        assert daemon.stop() == 0
    entries = daemon.entries()
    (suspect,) = [entry for entry in entries if entry["kind"] == "suspect"]
    named = {item["xid"]: item for item in suspect["extra"]["transactions"]}
    assert named[done.xid]["skip_start_lsn"] <= done.end_lsn
    after = [entry for entry in entries if landing.position(entry) >= done.end_lsn]
    assert suspect["n"] < after[0]["n"]
    assert landing.position(suspect) < done.end_lsn
    assert 'gaussdecode_source_notices_total{slot="s"}' in metrics
    assert "rows_may_be_missing" in daemon.log.read_text()
    layout = json.loads((daemon.root / "layout.json").read_text())
    assert "hides-truncate" in layout["capabilities"]
    ids = [change.new["id"] for change in landing.read(daemon.root).changes]
    assert ids == [1, 2]


def land_ddl_twice(gauss: GaussServer, table: Table, daemon: GaussDaemon) -> None:
    """Two transactions, each with DDL between two rows; the first one is sent again with the second."""
    for round_ in range(2):
        transaction = gauss.store.begin()
        transaction.insert(table, {"id": f"{round_}1", "v": "before"})
        transaction.ddl(f"CREATE INDEX i{round_}\n ON public.orders (v)")
        transaction.insert(table, {"id": f"{round_}2", "v": "after"})
        transaction.commit()
        gauss.rewind("s", 0)
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0, daemon.log_tail()


@pytest.mark.parametrize("plugin", ["mppdb_decoding", "sql_decoding"])
def test_ddl_of_serial_decoding_lands_between_its_rows(
    make_gauss: MakeGauss, tmp_path: Path, plugin: str
) -> None:
    """Where a publication has it; rows after it land, also when all comes again."""
    gauss = make_gauss(V6_0_0)
    gauss.create_slot("s", plugin)
    database, table = GaussDatabase(gauss), orders(gauss)
    daemon = lands(database, tmp_path, parallel_decode_num=1)
    daemon.write_config(source={"plugin": plugin})
    only_ddl = gauss.store.begin()
    only_ddl.ddl("CREATE TABLE public.other (id int8)")
    only_ddl.commit()
    unpublished = gauss.store.begin()
    unpublished.ddl()
    unpublished.insert(table, {"id": "0", "v": "after DDL that no publication has"})
    unpublished.commit()
    land_ddl_twice(gauss, table, daemon)
    landed = landing.read(daemon.root)
    assert [change.new["id"] for change in landed.changes] == [0, 1, 2, 11, 12]
    assert landed.messages == []
    assert [(of["gd_seq"], of["command_tag"], of["statement"]) for of in landed.ddl] == [
        (0, "CREATE TABLE", "CREATE TABLE public.other (id int8)"),
        (1, "CREATE INDEX", "CREATE INDEX i0\n ON public.orders (v)"),
        (1, "CREATE INDEX", "CREATE INDEX i1\n ON public.orders (v)"),
    ]
    assert verify(daemon.root).is_clean
    assert gauss.violations == []
    assert '"resent_compared"' in daemon.log.read_text()


@pytest.mark.parametrize(
    ("style", "is_json"),
    [("binary_batched", False), ("json", True), ("serial", False)],
)
def test_ddl_that_gaussdb_sends_lands_between_its_rows(
    style: str, is_json: bool, make_gauss: MakeGauss, tmp_path: Path
) -> None:
    """With enable-ddl-decoding, also when all comes again."""
    gauss = make_gauss(PROFILES["GaussDB"])
    gauss.create_slot("s")
    database, table = GaussDatabase(gauss), orders(gauss)
    options = {"enable_ddl_decoding": True, "enable_ddl_json_format": is_json}
    daemon = lands(database, tmp_path / "daemon", **STYLES[style], **options)
    land_ddl_twice(gauss, table, daemon)
    landed = landing.read(daemon.root)
    assert [change.new["id"] for change in landed.changes] == [1, 2, 11, 12]
    assert [(of["gd_seq"], of["command_tag"], of["statement"]) for of in landed.ddl] == [
        (1, "CREATE INDEX", "CREATE INDEX i0\n ON public.orders (v)"),
        (1, "CREATE INDEX", "CREATE INDEX i1\n ON public.orders (v)"),
    ]
    assert verify(daemon.root).is_clean
    assert gauss.violations == []


@pytest.mark.parametrize("style", ["binary_batched", "json", "serial"])
def test_a_row_that_the_server_lost_stops_its_table_only(
    style: str, make_gauss: MakeGauss, tmp_path: Path
) -> None:
    """By default it ends the daemon, and says whose row it was; in quarantine the others go on."""
    gauss = make_gauss(V6_0_0)
    columns = {"id": "int8", "v": "text"}
    sick, well = (
        gauss.store.create_table("public", name, columns, key=["id"]) for name in ("sick", "well")
    )
    daemon = lands(GaussDatabase(gauss), tmp_path / "daemon", **STYLES[style]).start()
    daemon.wait_for_state("streaming")
    for number in range(4):
        transaction = gauss.store.begin()
        values = {"id": str(number), "v": "x"}
        transaction.insert(sick, values, is_compressed=number in (2, 3))
        transaction.insert(well, values)
        transaction.commit()
    assert daemon.wait() == 76
    assert re.search(r"table public\.sick, after [0-9A-F]+/[0-9A-F]+: ", daemon.log_tail())
    assert "on-table-error: quarantine" in daemon.log_tail()
    daemon.write_config(landing={"on-table-error": "quarantine"})
    daemon.start().catch_up()
    assert daemon.stop() == 0
    changes = landing.read(daemon.root).changes
    ids = {
        name: [of.new["id"] for of in changes if of.schema.table == ("public", name)]
        for name in ("sick", "well")
    }
    assert ids == {"sick": [0, 1], "well": [0, 1, 2, 3]}
    assert [e["kind"] for e in daemon.entries()].count("quarantine") == 1


def test_a_dropped_table_stops_no_other_under_sql_decoding(
    make_gauss: MakeGauss, tmp_path: Path
) -> None:
    """Its last rows have no names, and the catalogue does not know it any more."""
    gauss = make_gauss(V6_0_0)
    columns = {"id": "int8", "v": "text"}
    gone, stays = (
        gauss.store.create_table("public", name, columns, key=["id"]) for name in ("gone", "stays")
    )
    config: dict[str, Json] = {
        "source": {"plugin": "sql_decoding"}, "decoding": {"parallel-decode-num": 1},
        "landing": {"on-table-error": "quarantine"},
    }  # fmt: skip
    gauss.create_slot("s", "sql_decoding")
    with GaussDaemon(GaussDatabase(gauss), tmp_path, config=config) as daemon:
        daemon.wait_for_state("streaming")
        daemon.stop()
        for table in (gone, stays):
            insert(gauss, table, 1)
        gauss.store.drop_table(gone)
        insert(gauss, stays, 2)
        daemon.start().catch_up()
        assert daemon.stop() == 0
        assert "sql_decoding names no columns: a row of public.gone" in daemon.log.read_text()
    found = [(of.schema.table[1], of.new["id"]) for of in landing.read(daemon.root).changes]
    assert found == [("stays", 1), ("stays", 2)]


def test_hidden_truncate_can_be_refused(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Whoever must see every TRUNCATE can have the daemon stay down instead."""
    gauss = make_gauss(V6_0_0)
    database = GaussDatabase(gauss)
    stop = {"source": {"invisible-truncate": "stop"}}
    serial = GaussDaemon(database, tmp_path, config=stop | {"decoding": {"parallel-decode-num": 1}})
    table = orders(gauss)
    with serial as daemon:
        insert(gauss, table, 1)
        transaction = gauss.store.begin()
        transaction.truncate(table)
        done = transaction.commit()
        daemon.wait_while_running(lambda: daemon.durable_lsn() >= done.end_lsn, "the truncate")
        assert daemon.stop() == 0
    assert [change.op for change in landing.read(serial.root).changes] == ["I", "T"]
    parallel = GaussDaemon(database, tmp_path, config=stop)
    with parallel as daemon:
        assert daemon.wait() == 78
    assert "invisible-truncate" in parallel.log_tail(3)


def test_empty_commits_advance_an_idle_slot(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Commits of others move position and slot by idle entries; nothing of them lands."""
    gauss = make_gauss(V6_0_0)
    database, table = GaussDatabase(gauss), orders(gauss)
    options = {**BINARY, "skip_empty_xacts": False, "white_table_list": "public.*"}
    with lands(database, tmp_path, **options) as daemon:
        insert(gauss, table, 1)
        daemon.catch_up()
        gauss.store.commit_elsewhere()
        gauss.store.write(20 << 20)  # so much of others' WAL that an entry is due
        last = gauss.store.commit_elsewhere()
        daemon.wait_while_running(lambda: confirmed(database) >= last.end_lsn, "the slot")
        assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    assert confirmed(database) == landing.position(landed.entries[-1]) == last.end_lsn
    assert not gauss.violations


def test_keepalives_confirm_nothing(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Keepalives and heartbeats that run ahead of what was sent move neither log nor slot."""
    behaviour = Behaviour(flush_seconds=0.05, is_held=True)
    gauss = make_gauss(PROFILES["GaussDB"], behaviour=behaviour)
    database, table = GaussDatabase(gauss), orders(gauss)
    before = confirmed(database)
    with lands(database, tmp_path, **BINARY, enable_heartbeat=True) as daemon:
        done = insert(gauss, table, 1)
        daemon.wait_for_state("streaming")

        def told(name: str) -> float:
            text = daemon.get("/metrics")[1].decode()
            found = re.search(rf"gaussdecode_source_heartbeat{name}{{.*}} (\S+)", text)
            return -1 if found is None else float(found[1])

        daemon.wait_while_running(lambda: told("s_total") > 2, "heartbeats")
        assert told("_lsn") > 0
        assert told("_flushed_lsn") >= told("_lsn")
        assert told("_timestamp_seconds") > 946_684_800, "after 2000"
        assert confirmed(database) == before
        assert landing.position(daemon.entries()[-1]) == before
        behaviour.is_held = False
        daemon.catch_up()
        assert daemon.stop() == 0
    assert confirmed(database) == done.end_lsn
    gausscheck.check(daemon.root, gauss)


@pytest.mark.parametrize("calls_openssl", [True, False])
def test_tls_and_users(make_gauss: MakeGauss, tmp_path: Path, calls_openssl: bool) -> None:
    """Over TLS with verify-full the stream lands too, and the log says where Python reads it.

    A commercial server says who it was.
    """
    environment = {}
    if not calls_openssl:
        text = "from gaussdecode.source.gaussdb import openssl\nopenssl.FUNCTIONS = ('no_such',)\n"
        (tmp_path / "sitecustomize.py").write_text(text)
        environment["PYTHONPATH"] = str(tmp_path)
    certificates = tmp_path / "tls"
    certificates.mkdir()
    authority = make_certificates(certificates)
    behaviour = Behaviour(flush_seconds=0.05)
    gauss = make_gauss(PROFILES["GaussDB"], behaviour=behaviour, certificates=certificates)
    database = GaussDatabase(gauss)
    workload = Workload(gauss.store, 11)
    tls = f"{database.dsn} sslmode=verify-full sslrootcert={authority}".replace(
        "host=127.0.0.1", "host=localhost"
    )
    config = {"decoding": {"include-user": True, "decode-style": "b", "sending-batch": 1}}
    with GaussDaemon(database, tmp_path, dsn=tls, config=config, environment=environment) as daemon:
        workload.run(20)
        daemon.catch_up()
        gauss.cut_after(5000)
        workload.run(20)
        daemon.catch_up()
        assert daemon.stop() == 0
    assert (b"tls_through_python" in daemon.log.read_bytes()) is not calls_openssl
    landed = gausscheck.check(daemon.root, gauss)
    assert {row["user"] for row in landed.transactions} == {"app", "batch"}


@pytest.mark.parametrize("style", ["binary_batched", "serial"])
def test_server_shutdown_and_crash(style: str, make_gauss: MakeGauss, tmp_path: Path) -> None:
    """A server that reloads, shuts down, or forgets confirmations is waited for; resent is skipped."""
    gauss = make_gauss(V6_0_0)
    database, workload = GaussDatabase(gauss), Workload(gauss.store, 13, large=False)
    rows_of = gausscheck.visible_rows if style != "serial" else gausscheck.all_rows
    with lands(database, tmp_path, **STYLES[style]) as daemon:
        workload.run(15)
        daemon.catch_up()
        gauss.reload(DateStyle="ISO, YMD")
        workload.run(5)
        daemon.catch_up()
        gauss.stop()
        workload.run(5)
        gauss.start()
        daemon.catch_up()
        gauss.crash()
        gauss.rewind(database.slot, 0)
        gauss.start()
        workload.run(5)
        daemon.catch_up()
        assert daemon.stop() == 0
    gausscheck.check(daemon.root, gauss, rows_of)


def test_start_position(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Transactions below a CSN, and rows of the one with this CSN below an LSN, are left out."""
    gauss = make_gauss(V6_0_0)
    database, table = GaussDatabase(gauss), orders(gauss)
    insert(gauss, table, 1)
    middle = insert(gauss, table, 2, 3, 4)
    insert(gauss, table, 5)
    third = middle.changes[1].lsn
    options = {**BINARY, "start_position": f"{middle.csn}/{third}"}
    with lands(database, tmp_path, **options) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    assert [change.new["id"] for change in landing.read(daemon.root).changes] == [3, 4, 5]


def command(*arguments: str) -> None:
    """Run a command; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "gaussdecode", *arguments], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_capture_and_replay(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """A recording, confirmed by nobody, lands what the stream itself lands, loss notices too."""
    gauss = make_gauss(V6_0_0)
    database, workload = GaussDatabase(gauss), Workload(gauss.store, 17, large=False)
    workload.run(20)
    daemon = lands(database, tmp_path, **BINARY)
    recording, replayed = tmp_path / "orders.capture", tmp_path / "replayed"
    command("capture", str(daemon.config_path), str(recording), "--seconds", "60")
    assert confirmed(database) < database.last_end()
    command("replay", str(recording), "--root", str(replayed), "--decoders", "2")
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    assert rows_of(replayed) == rows_of(daemon.root)
    kinds = {entry["kind"] for entry in landing.read_entries(replayed)}
    assert "suspect" in kinds
    layout = json.loads((replayed / "layout.json").read_text())
    assert "hides-truncate" in layout["capabilities"]


def test_rows_of_nulls_alone(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Where the server leaves NULLs out of old tuples, an old row of them lands in every style."""
    gauss = make_gauss(PROFILES["3.0.0"])
    columns = {"id": "int8", "v": "text"}
    table = gauss.store.create_table("public", "whole", columns, identity="f")
    daemons: list[GaussDaemon] = []
    with contextlib.ExitStack() as stack:
        for style in ("binary_batched", "text", "json", "serial"):
            database = GaussDatabase(gauss, style)
            daemons.append(stack.enter_context(lands(database, tmp_path / style, **STYLES[style])))
        transaction = gauss.store.begin()
        ids = transaction.insert(table, {}, {}, {"id": "1"}, {"v": "x"}, {"id": "2", "v": "y"})
        transaction.update(table, ids[0], {"id": "5"})
        transaction.delete(table, ids[1])
        transaction.update(table, ids[2], {"id": None})
        transaction.delete(table, ids[3])
        transaction.delete(table, ids[4])
        transaction.commit()
        for daemon in daemons:
            daemon.catch_up()
            assert daemon.stop() == 0
    for daemon in daemons:
        changes = gausscheck.check(daemon.root, gauss).changes
        assert [change.old for change in changes if change.op == "U"] == [
            {"id": None, "v": None}, {"id": 1, "v": None},
        ]  # fmt: skip


@pytest.mark.parametrize("style", ["binary_batched", "json"])
def test_huge_row(make_gauss: MakeGauss, tmp_path: Path, style: str) -> None:
    """Its way takes at most three times its size of memory, over all processes."""
    size = 64_000_000
    gauss = make_gauss()
    table = orders(gauss)
    with lands(GaussDatabase(gauss), tmp_path, **STYLES[style]) as daemon:
        insert(gauss, table, 1)
        daemon.catch_up()
        watch = MemoryWatch(daemon)
        watch.start()
        transaction = gauss.store.begin()
        transaction.insert(table, {"id": "2", "v": "0123456789" * (size // 10)})
        transaction.commit()
        daemon.catch_up()
        watch.end()
        assert daemon.stop() == 0
    assert watch.grown <= ROW_COPIES * size, watch.peak
    gausscheck.check(daemon.root, gauss)
