"""What GaussDB's options do to what lands, on a simulated openGauss or GaussDB."""

import datetime
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import landing
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussprofile import COMMERCIAL, V3_0_0, V6_0_0, Profile
from kit.gaussserver import GaussServer
from kit.gaussstore import Committed, Table
from kit.landing import Landing

from gaussdecode.errors import EX_CONFIG
from gaussdecode.land.verify import verify
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
PARALLEL = {"parallel_decode_num": 2}


def make_table(server: GaussServer, name: str = "t") -> Table:
    """A table with a key."""
    return server.store.create_table("public", name, {"a": "int4", "b": "text"}, key=["a"])


def insert(server: GaussServer, table: Table, *numbers: int, **how: object) -> Committed:
    """One transaction of inserts."""
    transaction = server.store.begin(**how)  # type: ignore[arg-type]  # as given
    for number in numbers:
        transaction.insert(table, {"a": str(number), "b": "x"})
    return transaction.commit()


def land(server: GaussServer, directory: Path, **options: object) -> Landing:
    """Land what is there; the last transaction must be one that lands."""
    database = GaussDatabase(server)
    with lands(database, directory, **{**PARALLEL, **options}) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    assert server.violations == []
    return landing.read(daemon.root)


def numbers(landed: Landing) -> list[int]:
    """The values of column a, in order."""
    return [change.new["a"] for change in landed.changes]


def with_slot(make_gauss: MakeGauss, profile: Profile | None = None, **how: object) -> GaussServer:
    """A server with the daemon's slot, so that what is done next will be streamed."""
    server = make_gauss(profile) if profile is not None else make_gauss()
    for name, value in how.items():
        setattr(server.behaviour, name, value)
    GaussDatabase(server)
    return server


@pytest.mark.parametrize(
    ("style", "is_wanted"), [("j", True), ("b", False)], ids=["wanted", "unwanted"]
)
def test_xid_and_time(make_gauss: MakeGauss, tmp_path: Path, style: str, is_wanted: bool) -> None:
    """include-xids and include-timestamp fill gd_xid and gd_ts, or leave them empty."""
    server = with_slot(make_gauss)
    committed = insert(server, make_table(server), 1)
    landed = land(
        server, tmp_path, include_xids=is_wanted, include_timestamp=is_wanted, decode_style=style
    )
    (row,) = [row for row in landed.transactions if row["rows"]]
    assert row["gd_csn"] == committed.csn
    # Since 6.0.0 include-xids also governs BEGIN; nothing else carries the xid.
    assert row["gd_xid"] == (committed.xid if is_wanted else None)
    assert (row["gd_ts"] is not None) is is_wanted


@pytest.mark.parametrize("number", [1, 2], ids=["serial", "parallel"])
def test_filters(make_gauss: MakeGauss, tmp_path: Path, number: int) -> None:
    """white-table-list, skip-empty-xacts and only-local; odd names are left to the daemon."""
    server = with_slot(make_gauss)
    odd, plain, other = (make_table(server, name) for name in ("odd(name", "t", "other"))
    insert(server, odd, 1)
    insert(server, other, 2)
    insert(server, plain, 3, origin=1)
    insert(server, plain, 4)
    listed = "public.odd(name,public.t"
    landed = land(
        server, tmp_path, parallel_decode_num=number, white_table_list=listed,
        skip_empty_xacts=True,
    )  # fmt: skip
    assert numbers(landed) == [1, 4]
    assert [row["rows"] for row in landed.transactions] == [1, 1]


def test_empty_transactions_are_recorded_unless_told_otherwise(
    make_gauss: MakeGauss, tmp_path: Path
) -> None:
    """With skip-empty-xacts: false, those of others leave a row in gd_transactions."""
    server = with_slot(make_gauss)
    server.store.commit_elsewhere()
    insert(server, make_table(server), 1)
    landed = land(server, tmp_path, skip_empty_xacts=False)
    assert [row["rows"] for row in landed.transactions] == [0, 1]


def test_an_idle_slot_advances_by_empty_commits(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """What the server commits elsewhere moves the slot, without a row landed."""
    server = with_slot(make_gauss)
    insert(server, make_table(server), 1)
    database = GaussDatabase(server)
    with lands(database, tmp_path, **PARALLEL) as daemon:
        daemon.catch_up()
        last = server.store.commit_elsewhere()
        daemon.wait_while_running(
            lambda: server.slots["s"].confirmed_lsn == last.end_lsn, "the slot to advance"
        )
        assert daemon.stop() == 0
    assert server.violations == []


def test_auto_advance_follows_a_serial_stream(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """auto-advance: WAL without commits, and commits elsewhere, move log and slot; rows go on."""
    server = with_slot(make_gauss)
    table = make_table(server)
    insert(server, table, 1)
    database = GaussDatabase(server)
    options = {"parallel_decode_num": 1, "auto_advance": True, "sender_timeout": 1500}
    with lands(database, tmp_path, **options) as daemon:
        daemon.catch_up()
        server.store.commit_elsewhere()
        server.store.write(20 << 20)  # so much that an entry is due
        end = server.store.wal_end
        daemon.wait_while_running(
            lambda: server.slots["s"].confirmed_lsn == end, "the slot to advance"
        )
        daemon.kill9()
        daemon.start()
        insert(server, table, 2)
        daemon.catch_up()
        assert daemon.stop() == 0
    assert server.violations == []
    landed = landing.read(daemon.root)
    assert numbers(landed) == [1, 2]
    assert end in {landing.position(entry) for entry in landed.entries if entry["kind"] == "idle"}


@pytest.mark.parametrize(
    ("profile", "chosen"),
    [
        (None, {"parallel_decode_num": 1}),
        (None, {"parallel_decode_num": 2}),
        (COMMERCIAL, {"parallel_decode_num": 2, "enable_heartbeat": True}),
        (COMMERCIAL, {**PARALLEL, "decode_style": "t", "enable_heartbeat": True}),
    ],
    ids=["serial", "parallel", "heartbeats", "heartbeats in words"],
)  # fmt: skip
def test_an_idle_server_is_no_lag(
    make_gauss: MakeGauss, tmp_path: Path, profile: Profile | None, chosen: dict[str, object]
) -> None:
    """WAL that holds no commit neither moves the slot nor counts as lag, however old it is."""
    server = with_slot(make_gauss, profile, flush_seconds=0.1)
    last = insert(server, make_table(server), 1)
    database = GaussDatabase(server)
    options = {**chosen, "sender_timeout": 600, "skip_empty_xacts": True}
    with lands(database, tmp_path, **options) as daemon:
        daemon.catch_up()
        server.store.write(300)

        def shown() -> tuple[int, float]:
            status = daemon.status() or {}
            return status.get("lag_bytes", -1), status.get("lag_seconds", -1.0)

        end = str(Lsn(server.store.wal_end))
        daemon.wait_while_running(
            lambda: (daemon.status() or {}).get("server_wal_end") == end, "the server's end"
        )
        daemon.wait_while_running(lambda: shown() == (0, 0.0), "no lag")
        assert server.slots["s"].confirmed_lsn <= last.end_lsn
        insert(server, next(iter(server.store.tables.values())), 2)
        daemon.catch_up()
        assert daemon.stop() == 0
    assert server.violations == []


@pytest.mark.parametrize(("decoders", "is_receiving"), [(1, True), (2, False)])
def test_the_lag_behind_a_standby(
    make_gauss: MakeGauss, tmp_path: Path, decoders: int, is_receiving: bool
) -> None:
    """Idle it is 0; while what was written does not come it grows; then it is 0 again."""
    server = with_slot(make_gauss, flush_seconds=0.1)
    server.behaviour.is_standby, server.behaviour.is_receiving = True, is_receiving
    table = make_table(server)
    insert(server, table, 1)
    options = {"parallel_decode_num": decoders, "sender_timeout": 600, "standby_connection": True}
    daemon = lands(GaussDatabase(server), tmp_path, **options)
    daemon.write_config(snapshot={"mode": "none"}, guard={"interval": "1s"})

    def shown() -> tuple[int, float]:
        status = daemon.record()
        return status["lag_bytes"], status["lag_seconds"]

    def retained() -> float:
        slot = (daemon.record()["server"] or {}).get("slot") or {}
        return slot.get("retained_bytes") or 0.0

    with daemon:
        daemon.catch_up()
        server.store.write(300)
        end = str(Lsn(server.store.wal_end))
        daemon.wait_while_running(lambda: daemon.record()["server_wal_end"] == end, "its end")
        daemon.wait_while_running(lambda: shown() == (0, 0.0), "no lag of an idle standby")
        daemon.wait_while_running(lambda: retained() > 0, "WAL that the slot holds back is seen")
        server.behaviour.is_held = True
        insert(server, table, 2)
        daemon.wait_while_running(lambda: min(shown()) > 0, "a lag of what is held back")
        server.behaviour.is_held = False
        daemon.catch_up()
        daemon.wait_while_running(lambda: shown() == (0, 0.0), "no lag after it")
        assert b"guard_blind" not in daemon.log.read_bytes()
        assert daemon.stop() == 0
    assert server.violations == []


def test_origins(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """only-local: false brings what was replicated, include-originid says from where."""
    server = with_slot(make_gauss)
    table = make_table(server)
    insert(server, table, 1, origin=7)
    insert(server, table, 2)
    landed = land(server, tmp_path, only_local=False, include_originid=True)
    assert [(row["rows"], row["origin"]) for row in landed.transactions] == [(1, "7"), (1, None)]


def test_start_position(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Nothing of older transactions, and of the named one the rows from the position on."""
    server = with_slot(make_gauss)
    table = make_table(server)
    insert(server, table, 1)
    named = insert(server, table, 2, 3)
    insert(server, table, 4)
    landed = land(server, tmp_path, start_position=f"{named.csn}/{named.changes[1].lsn}")
    assert numbers(landed) == [3, 4]


@pytest.mark.parametrize("style", ["b", "t"])
def test_generated_columns(make_gauss: MakeGauss, tmp_path: Path, style: str) -> None:
    """skip-generated-columns leaves them out of new rows, by the catalogue."""
    server = with_slot(make_gauss)
    table = server.store.create_table(
        "public", "t", {"a": "int4", "b": "text", "twice": "int4"}, key=["a"], generated=["twice"]
    )
    transaction = server.store.begin()
    transaction.insert(table, {"a": "1", "b": "x", "twice": "2"})
    transaction.commit()
    landed = land(server, tmp_path, skip_generated_columns=True, decode_style=style)
    (change,) = landed.changes
    assert change.new == {"a": 1, "b": "x"}


def test_users(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """GaussDB names who made a transaction; those of some can be left out."""
    server = with_slot(make_gauss, COMMERCIAL)
    table = make_table(server)
    insert(server, table, 1, user="alice")
    insert(server, table, 2, user="mallory")
    insert(server, table, 3, user="bob")
    landed = land(server, tmp_path, include_user=True, exclude_users="mallory")
    assert numbers(landed) == [1, 3]
    assert [row["user"] for row in landed.transactions if row["rows"]] == ["alice", "bob"]


def test_users_are_left_out_here_where_the_server_names_them(
    make_gauss: MakeGauss, tmp_path: Path
) -> None:
    """A server that filters nothing; over restarts that set, keep or unset it, and resent WAL."""
    server = with_slot(make_gauss, COMMERCIAL, is_sending_excluded=True)
    table = make_table(server)
    database = GaussDatabase(server)
    daemon = lands(database, tmp_path, **PARALLEL, include_user=True)
    expected: list[int] = []
    for number, excluded in enumerate(("", "mallory", "mallory", "")):
        daemon.write_config(decoding={"exclude-users": excluded})
        for user in ("alice", "mallory", "bob"):
            row = len(server.store.committed)
            insert(server, table, row, user=user)
            if user != excluded:
                expected.append(row)
        server.rewind("s", 0)
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0, daemon.log_tail()
        assert daemon.log.read_text().count('"resent_compared"') == number
    landed = landing.read(daemon.root)
    assert numbers(landed) == expected
    assert verify(daemon.root).is_clean
    assert server.violations == []


def test_times_land_in_utc(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """timezone-is-utc: whatever zone the server prints, asked or not."""
    for profile, is_asked in ((V3_0_0, True), (COMMERCIAL, True)):
        server = with_slot(make_gauss, profile, zone_minutes=480)
        table = server.store.create_table("public", "t", {"a": "int4", "at": "timestamptz"})
        transaction = server.store.begin()
        transaction.insert(table, {"a": "1", "at": "2024-03-14 12:00:00+00"})
        transaction.commit()
        where = tmp_path / f"{profile.name}-{is_asked}"
        (change,) = land(server, where, timezone_is_utc=is_asked).changes
        assert change.new["at"] == datetime.datetime(2024, 3, 14, 12, tzinfo=datetime.UTC)


def test_a_transaction_above_the_limit_goes_to_disk(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """max-txn-in-memory holds for what the daemon keeps of an open transaction."""
    server = with_slot(make_gauss)
    table = make_table(server)
    transaction = server.store.begin()
    for number in range(3000):
        transaction.insert(table, {"a": str(number), "b": "x" * 1000})
    transaction.commit()
    for limit, is_spooled in ((1, True), (64, False)):
        server.rewind("s", 0)
        database = GaussDatabase(server)
        where = tmp_path / str(limit)
        with lands(database, where, **PARALLEL, max_txn_in_memory=limit) as daemon:
            daemon.catch_up()
            metrics = daemon.get("/metrics")[1].decode()
            assert daemon.stop() == 0
        assert len(landing.read(daemon.root).changes) == 3000
        (line,) = [
            line
            for line in metrics.splitlines()
            if line.startswith("gaussdecode_collect_spooled_transactions_total")
        ]
        assert (float(line.split()[-1]) > 0) is is_spooled


def test_the_server_hears_often_enough(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """sender-timeout: an idle stream outlives it many times on one connection."""
    server = with_slot(make_gauss)
    insert(server, make_table(server), 1)
    with lands(GaussDatabase(server), tmp_path, **PARALLEL, sender_timeout=2000) as daemon:
        daemon.catch_up()
        before = server.connections
        time.sleep(7)
        assert server.connections == before
        assert daemon.stop() == 0


def test_heartbeats_confirm_nothing(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """enable-heartbeat: they lie beyond what was sent, and rows land around them."""
    server = with_slot(make_gauss, COMMERCIAL)
    table = make_table(server)
    with lands(GaussDatabase(server), tmp_path, **PARALLEL, enable_heartbeat=True) as daemon:
        for number in range(5):
            insert(server, table, number)
            daemon.catch_up()
        assert daemon.stop() == 0
    assert numbers(landing.read(daemon.root)) == [0, 1, 2, 3, 4]
    assert server.violations == []
    ends = [committed.end_lsn for committed in server.store.committed]
    assert server.slots["s"].confirmed_lsn in ends


@pytest.mark.parametrize(
    ("profile", "option", "value", "expected"),
    [
        (V3_0_0, "include_originid", True, "openGauss has it from 5.0.0 on"),
        (None, "standby_connection", True, "walsender closed because of role is primary"),
        (V6_0_0, "enable_ddl_decoding", True, "openGauss has no such option"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_keeps_the_daemon_down(
    make_gauss: MakeGauss,
    tmp_path: Path,
    profile: Profile | None,
    option: str,
    value: object,
    expected: str,
) -> None:
    """Exit status 78, and the reason with the option's name."""
    server = with_slot(make_gauss, profile)
    daemon = lands(GaussDatabase(server), tmp_path, **PARALLEL, **{option: value})
    daemon.start()
    assert daemon.wait() == EX_CONFIG
    said = daemon.log_tail()
    assert expected in said
    assert option.replace("_", "-") in said or "walsender" in said
