"""Prepared transactions that are taken at their PREPARE land as those that come at their commit."""

import dataclasses
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from integration.test_streaming import rows_of, stream_early
from kit import landing
from kit.daemon import Daemon
from kit.postgres import Database, Postgres, run

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_IOERR
from gaussdecode.land.entry import parse_entry
from gaussdecode.land.verify import verify
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration

TABLES = 4


OPEN = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"


@pytest.fixture
def preparing(database: Database) -> Iterator[Database]:
    """A database in which no prepared transaction is left behind."""
    yield database
    for (gid,) in database.execute(OPEN):
        database.execute(f"ROLLBACK PREPARED '{gid}'")


@pytest.fixture
def preparing_15(database_15: Database) -> Iterator[Database]:
    """The same, on one major."""
    yield database_15
    for (gid,) in database_15.execute(OPEN):
        database_15.execute(f"ROLLBACK PREPARED '{gid}'")


@dataclasses.dataclass
class Load:
    """Random transactions over a few tables, of which some are prepared and end much later.

    Each prepared one has a table of its own while it waits: its locks last as long.
    """

    database: Database
    rng: Random
    waiting: dict[int, str] = dataclasses.field(default_factory=dict)
    count: int = 0

    def create(self) -> None:
        """Make the tables."""
        self.database.execute("CREATE SCHEMA kit")
        for table in range(TABLES):
            self.database.execute(
                f"CREATE TABLE kit.t{table} (id int8 PRIMARY KEY, note text, n numeric(9, 2))"
            )

    def step(self) -> None:
        """Begin and end one, or end one that was prepared."""
        free = [table for table in range(TABLES) if table not in self.waiting]
        if self.waiting and (not free or self.rng.random() < 0.3):
            self.end(self.rng.choice(sorted(self.waiting)))
        else:
            self.begin(self.rng.choice(free))

    def begin(self, table: int) -> None:
        """A transaction of one table; perhaps it is prepared."""
        self.count += 1
        with self.database.connect() as session:
            run(session, "BEGIN")
            for _ in range(self.rng.randint(0, 3)):
                self.change(session, f"kit.t{table}")
            if self.rng.random() < 0.6:
                gid = f"it's \u00fc {self.count}"
                run(session, "PREPARE TRANSACTION '" + gid.replace("'", "''") + "'")
                self.waiting[table] = gid
            else:
                run(session, "COMMIT")

    def leave(self) -> None:
        """Prepare one more, with a row in it."""
        if len(self.waiting) == TABLES:
            self.end(0)
        table = next(table for table in range(TABLES) if table not in self.waiting)
        with self.database.connect() as session:
            run(session, "BEGIN")
            run(session, f"INSERT INTO kit.t{table} (id) VALUES (-{self.count})")
            run(session, "PREPARE TRANSACTION 'left'")
        self.waiting[table] = "left"

    def change(self, session: Any, table: str) -> None:
        """One statement, perhaps in a savepoint that is rolled back."""
        is_undone = self.rng.random() < 0.3
        if is_undone:
            run(session, "SAVEPOINT s")
        kind = self.rng.choice("IIIUUDTAM" if self.rng.random() < 0.9 else "B")
        if kind in "IB":
            size = 2000 if kind == "B" else self.rng.randint(1, 5)
            fill = (
                f"INSERT INTO {table} (id, note, n) SELECT %s::int8 * 10000 + g, 'n' || g, g / 7.0 "
                "FROM generate_series(1, %s) g ON CONFLICT DO NOTHING"
            )
            run(session, fill, (self.rng.randint(1, 10**6), size))
        elif kind == "U":
            run(session, f"UPDATE {table} SET note = %s WHERE id %% 3 = 1", (str(self.count),))
        elif kind == "D":
            run(session, f"DELETE FROM {table} WHERE id %% 5 = %s", (self.rng.randint(0, 4),))
        elif kind == "T":
            run(session, f"TRUNCATE {table}")
        elif kind == "M":
            run(session, "SELECT pg_logical_emit_message(true, 'kit', %s)", (str(self.count),))
        else:
            run(
                session,
                f"ALTER TABLE {table} ADD COLUMN c{self.count}_{self.rng.randint(0, 9**9)} int4 DEFAULT 3",
            )
        if is_undone:
            run(session, "ROLLBACK TO SAVEPOINT s")

    def end(self, table: int) -> None:
        """Commit or roll back what waits; what was left is committed."""
        gid = self.waiting.pop(table).replace("'", "''")
        how = "ROLLBACK" if self.rng.random() < 0.3 and gid != "left" else "COMMIT"
        self.database.execute(f"{how} PREPARED '{gid}'")


def entries_of(root: Path) -> list[CommitEntry]:
    """All entries that are files of their own, in order."""
    paths = sorted((root / "commits").glob("[0-9]*.json"))
    return [parse_entry(path.read_bytes(), path.name) for path in paths]


def beside(daemon: Daemon, directory: Path, **source: object) -> Daemon:
    """A second daemon, of a slot of its own at the same position."""
    slot = f"{daemon.database.slot}_2"
    daemon.database.copy_slot(slot)
    directory.mkdir()
    other = Daemon(daemon.database, directory, config={"source": {"two-phase": True, **source}})
    other.write_config_value("slot", slot)
    return other


@pytest.mark.parametrize(
    ("streaming", "seed", "kills"), [("off", 1, 0), ("off", 2, 5), ("parallel", 3, 5)]
)
def test_prepared_equals_whole(
    preparing: Database,
    make_daemon: Callable[..., Daemon],
    tmp_path: Path,
    streaming: str,
    seed: int,
    kills: int,
) -> None:
    """Savepoints, DDL, truncates, restarts between PREPARE and its end: row for row."""
    database = preparing
    load = Load(database, Random(seed))
    load.create()
    database.create_slot()
    if streaming != "off":
        stream_early(database)
    with make_daemon(database) as whole:
        prepared = beside(whole, tmp_path / "prepared", streaming=streaming)
        steps = 120
        deaths = set(load.rng.sample(range(10, steps), kills))
        with prepared:
            for step in range(steps):
                load.step()
                if step in deaths:
                    if load.rng.random() < 0.7:
                        prepared.catch_up()
                    prepared.kill9()
                    prepared.start()
            load.leave()
            prepared.catch_up()
            while load.waiting:
                load.end(min(load.waiting))
            for daemon in (whole, prepared):
                daemon.catch_up()
            assert prepared.stop() == 0
            assert whole.stop() == 0
    assert rows_of(prepared.root) == rows_of(whole.root)
    kinds = [entry.kind for entry in entries_of(prepared.root)]
    assert EntryKind.PREPARED in kinds
    last = entries_of(prepared.root)
    named = {file.path for entry in last for file in entry.prepared}
    assert named == {path for entry in last for path in entry.ended}


def prepare(database: Database, gid: str, *rows: int, table: str = "kit.t0") -> None:
    """Prepare a transaction that inserts rows."""
    with database.connect() as session:
        run(session, "BEGIN")
        for row in rows:
            run(session, f"INSERT INTO {table} (id) VALUES (%s)", (row,))
        run(session, f"PREPARE TRANSACTION '{gid}'")


def landed_ids(root: Path, table: str = "kit.t0") -> list[object]:
    """Keys in the order in which they landed."""
    changes = landing.read(root).changes
    return [
        change.new["id"]
        for change in changes
        if ".".join(change.schema.table) == table and change.new
    ]


CONFIG: dict[str, Any] = {"source": {"two-phase": True}}
POINTS = "GAUSSDECODE_FAILPOINTS"


@pytest.fixture
def tables_15(database_15: Database) -> Iterator[Database]:
    """Tables and a slot; no prepared transaction is left behind."""
    Load(database_15, Random(1)).create()
    database_15.create_slot()
    yield database_15
    for (gid,) in database_15.execute(OPEN):
        database_15.execute(f"ROLLBACK PREPARED '{gid}'")


@pytest.mark.parametrize(
    "point",
    [
        "prepared_written:1=kill",
        "prepared_written:2=kill",
        "entry_linked:1=kill",  # of the entry that names both
        "entry_shown:1=kill",
        "entry_linked:2=kill",  # of the entry that is beyond them
        "position_confirmed:2=kill",
    ],
)
def test_killed_at_every_step(
    tables_15: Database, make_daemon: Callable[..., Daemon], point: str
) -> None:
    """Wherever the daemon dies between PREPARE and what follows, each row lands once."""
    daemon = make_daemon(tables_15, config=CONFIG)
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    daemon.environment[POINTS] = point
    with daemon:
        daemon.wait_for_state("streaming")
        prepare(tables_15, "one", 1, 2)
        prepare(tables_15, "two", 3, table="kit.t1")
        tables_15.execute("INSERT INTO kit.t2 VALUES (4)")
        assert daemon.wait() == -signal.SIGKILL
        del daemon.environment[POINTS]
        daemon.start()
        daemon.catch_up()
        assert {each["gid"] for each in waiting(daemon)} == {"one", "two"}
        daemon.kill9()
        tables_15.execute("COMMIT PREPARED 'one'")
        tables_15.execute("ROLLBACK PREPARED 'two'")
        daemon.start()
        daemon.catch_up()
        assert waiting(daemon) == []
        assert daemon.stop() == 0
    ids = [landed_ids(daemon.root, f"kit.t{table}") for table in range(3)]
    assert ids == [[1, 2], [], [4]]
    assert main(["verify", str(daemon.root)]) == 0


def waiting(daemon: Daemon) -> list[dict[str, Any]]:  # Any: JSON
    """The prepared transactions that a daemon has."""
    status = daemon.status()
    assert status is not None
    found: list[dict[str, Any]] = status["prepared_txns"]
    return found


@pytest.fixture
def with_origin(servers: Callable[[int], Postgres]) -> Iterator[Database]:
    """A database on a server that can leave out what has an origin, with one, `away`."""
    database = Database(servers(16), "kit_with_origin")
    database.execute("SELECT pg_replication_origin_create('away')")
    yield database
    for (gid,) in database.execute(OPEN):
        database.execute(f"ROLLBACK PREPARED '{gid}'")
    database.drop()
    database.server.execute("SELECT pg_replication_origin_drop('away')")


def test_an_origin_at_one_end_only(
    with_origin: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """What counts is who made the rows, not who ends the transaction; each of them ends."""
    database = with_origin
    database.execute("CREATE TABLE t (id int8 PRIMARY KEY)")
    database.create_slot()
    with (
        make_daemon(database, config=CONFIG) as daemon,
        database.connect() as here,
        database.connect() as away,
    ):
        run(away, "SELECT pg_replication_origin_session_setup('away')")
        for number, (gid, session) in enumerate(
            [("foreign", away), ("ours", here), ("ours, undone", here), ("foreign, undone", away)]
        ):
            run(session, "BEGIN")
            run(session, "INSERT INTO t VALUES (%s)", (number,))
            run(session, f"PREPARE TRANSACTION '{gid}'")
        daemon.catch_up()
        assert len(waiting(daemon)) == 4
        run(here, "COMMIT PREPARED 'foreign'")
        run(away, "COMMIT PREPARED 'ours'")
        run(away, "ROLLBACK PREPARED 'ours, undone'")
        run(here, "ROLLBACK PREPARED 'foreign, undone'")
        daemon.catch_up()
        assert not waiting(daemon)
        assert daemon.stop() == 0
    assert [change.new["id"] for change in landing.read(daemon.root).changes] == [1]


def test_full_disk_keeps_the_prepare_unconfirmed(
    tables_15: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """While its file cannot be written the server is told nothing; then all goes on."""
    daemon = make_daemon(tables_15, config=CONFIG)
    with daemon:
        daemon.catch_up()
        daemon.kill9()
        before = tables_15.slot_positions()[1]
        daemon.environment[POINTS] = "create:2+=ENOSPC"  # the first is the lock's
        daemon.start()
        daemon.wait_for_state("streaming")
        prepare(tables_15, "one", 1)
        daemon.wait_while_running(
            lambda: "disk is full" in daemon.get("/readyz")[1].decode(), "a full disk"
        )
        assert tables_15.slot_positions()[1] <= max(before, daemon.durable_lsn())
        daemon.kill9()
        assert list((daemon.root / "prepared").glob("[0-9a-f]*")) == []
        daemon.environment.clear()
        daemon.start()
        daemon.catch_up()
        assert [each["gid"] for each in waiting(daemon)] == ["one"]
        tables_15.execute("COMMIT PREPARED 'one'")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert landed_ids(daemon.root) == [1]


@pytest.mark.parametrize("decoders", [1, 2])
@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_a_row_above_the_limit_is_nothing_before_the_commit(
    preparing_15: Database, make_daemon: Callable[..., Daemon], end: str, decoders: int
) -> None:
    """A table in quarantine by a row that never lands would be one for nothing; killed in between, too."""
    database = preparing_15
    database.execute("CREATE TABLE a (id int8 PRIMARY KEY, v text); CREATE TABLE b (LIKE a)")
    database.create_slot()
    config = {
        "source": {**CONFIG["source"], "max-row-bytes": "2MiB"},
        "decoding": {"parallel-decode-num": decoders},
        "landing": {"on-table-error": "quarantine"},
    }
    with make_daemon(database, config=config) as daemon, database.connect() as session:
        run(session, "BEGIN")
        run(session, "INSERT INTO a VALUES (1, 'small')")
        run(session, "INSERT INTO a VALUES (2, repeat('z', 3 << 20))")
        run(session, "INSERT INTO b VALUES (3, 'other')")
        run(session, "PREPARE TRANSACTION 'large'")
        database.execute("INSERT INTO a VALUES (4, 'alone')")
        daemon.catch_up()
        assert [each["gid"] for each in waiting(daemon)] == ["large"]
        daemon.kill9()
        daemon.start()
        run(session, f"{end} PREPARED 'large'")
        database.execute("INSERT INTO b VALUES (5, 'after')")
        daemon.catch_up()
        states = ((daemon.status() or {}).get("snapshot") or {}).items()
        stopped = [title for title, record in states if record["state"] == "quarantined"]
        assert stopped == (["public.a"] if end == "COMMIT" else [])
        assert not waiting(daemon)
        assert daemon.stop() == 0
    landed = [change.new["id"] for change in landing.read(daemon.root).changes]
    assert landed == ([4, 3, 5] if end == "COMMIT" else [4, 5])
    assert verify(daemon.root).findings == []


def test_slot_that_was_not_asked_before(
    tables_15: Database, make_daemon: Callable[..., Daemon], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was prepared earlier comes with its commit, once; and there is no way back."""
    daemon = make_daemon(tables_15)
    with daemon:
        prepare(tables_15, "early", 1)
        daemon.catch_up()
        assert daemon.stop() == 0
        daemon.write_config(**CONFIG)
        daemon.start()
        daemon.catch_up()
        assert waiting(daemon) == []
        prepare(tables_15, "late", 2, table="kit.t1")
        daemon.catch_up()
        assert [each["gid"] for each in waiting(daemon)] == ["late"]
        tables_15.execute("COMMIT PREPARED 'early'")
        daemon.catch_up()
        assert landed_ids(daemon.root) == [1]
        assert main(["slot", "list", str(daemon.config_path), "--json"]) == 0
        assert '"two_phase": true' in capsys.readouterr().out
        assert daemon.stop() == 0
        daemon.write_config(source={"two-phase": False})
        daemon.start()
        assert daemon.wait() == EX_CONFIG
        assert "set it to true, or create another slot" in daemon.log_tail(3)
        daemon.write_config(**CONFIG)
        daemon.start()
        tables_15.execute("COMMIT PREPARED 'late'")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert landed_ids(daemon.root, "kit.t1") == [2]


def test_the_slot_keeps_the_wal_until_the_end(
    tables_15: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """Confirmed beyond its PREPARE, restart_lsn stays before the transaction until it has ended."""
    daemon = make_daemon(tables_15, config=CONFIG)

    def land_more(row: int) -> None:
        """Let the server note a position to begin at, and confirm what is behind it."""
        tables_15.execute("CHECKPOINT")
        tables_15.execute(f"INSERT INTO kit.t3 (id) VALUES ({row})")
        daemon.catch_up()
        end = daemon.durable_lsn()
        daemon.wait_while_running(lambda: tables_15.slot_positions()[1] >= end, "it is confirmed")

    with daemon:
        begin = tables_15.wal_end()
        prepare(tables_15, "one", 1)
        prepared = tables_15.wal_end()
        for row in range(4):
            land_more(row)
        restart, confirmed = tables_15.slot_positions()
        assert restart <= begin
        assert confirmed > prepared
        tables_15.execute("COMMIT PREPARED 'one'")
        for row in range(4, 8):
            land_more(row)
        assert tables_15.slot_positions()[0] > prepared
        assert daemon.stop() == 0
    assert landed_ids(daemon.root) == [1]


def test_files_that_are_gone(
    tables_15: Database, make_daemon: Callable[..., Daemon], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not passed over: the daemon stops before anything, and says what to do."""
    daemon = make_daemon(tables_15, config=CONFIG)
    with daemon:
        prepare(tables_15, "one", 1)
        daemon.catch_up()
        assert daemon.stop() == 0
        (file,) = (daemon.root / "prepared").iterdir()
        held = file.read_bytes()
        file.unlink()
        assert main(["verify", str(daemon.root)]) != 0
        assert f"{file.name}, of prepared transaction 'one', is missing" in capsys.readouterr().err
        daemon.start()
        assert daemon.wait() == EX_IOERR
        assert "restore it from a copy" in daemon.log_tail(5)
        file.write_bytes(held)
        daemon.start()
        tables_15.execute("COMMIT PREPARED 'one'")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert landed_ids(daemon.root) == [1]


def test_both_sides_restart_and_a_new_host_begins(
    own_server: Postgres, make_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """A server that is killed, and a disk that is lost, between PREPARE and COMMIT PREPARED."""
    database = Database(own_server, "kit_prepared")
    Load(database, Random(1)).create()
    database.create_slot()
    mirror = {"url": f"file://{tmp_path}/mirror", "confirm": "mirror"}
    config = {**CONFIG, "landing": {"mirror": mirror}}
    daemon = make_daemon(database, config=config)
    with daemon:
        prepare(database, "one", *range(1, 50))
        prepare(database, "two", 50, table="kit.t1")
        daemon.catch_up()
        own_server.kill9()
        own_server.start()
        database.execute("INSERT INTO kit.t2 VALUES (51)")
        daemon.catch_up()
        end = daemon.durable_lsn()
        daemon.wait_while_running(lambda: database.slot_positions()[1] >= end, "it is confirmed")
        daemon.kill9()
    second = make_daemon(database, config=config)
    with second:
        database.execute("COMMIT PREPARED 'one'")
        second.catch_up()
        assert [each["gid"] for each in waiting(second)] == ["two"]
        database.execute("ROLLBACK PREPARED 'two'")
        second.catch_up()
        files = tmp_path / "mirror" / "prepared"
        second.wait_while_running(lambda: not list(files.glob("*")), "the mirror lets them go")
        assert second.stop() == 0
    ids = [landed_ids(tmp_path / "mirror", f"kit.t{table}") for table in range(3)]
    assert ids == [[*range(1, 50)], [], [51]]


def test_commands_show_prepared_transactions(
    tables_15: Database, make_daemon: Callable[..., Daemon], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`peek`, and a recording that is replayed."""
    daemon = make_daemon(tables_15, config=CONFIG)
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    prepare(tables_15, "it''s", 1)
    prepare(tables_15, "two", 2, table="kit.t1")
    tables_15.execute("COMMIT PREPARED 'it''s'")
    tables_15.execute("ROLLBACK PREPARED 'two'")
    path = str(daemon.config_path)
    assert main(["peek", path]) == 0
    shown = "\n".join(capsys.readouterr().out.splitlines())
    for pattern in (
        r"BEGIN.*\n.*INSERT INTO kit.t0.*\n.*PREPARE TRANSACTION 'it''s' xid: \d+\n",
        # Rolled back by the time it is decoded: what the server sends of it is left to the server.
        r"BEGIN.*\n(.*INSERT INTO kit.t1.*\n)?.*PREPARE TRANSACTION 'two' xid: \d+\n",
        r"\n.* COMMIT PREPARED 'it''s' xid: \d+\n.* ROLLBACK PREPARED 'two' xid: \d+$",
    ):
        assert re.search(pattern, shown) is not None, shown
    recording = tmp_path / "stream.capture"
    assert main(["capture", path, str(recording)]) == 0
    assert main(["replay", str(recording), "--root", str(tmp_path / "replayed")]) == 0
    assert landed_ids(tmp_path / "replayed") == [1]
    assert landed_ids(tmp_path / "replayed", "kit.t1") == []


def test_accepted_gap_ends_what_ended_in_it(
    tables_15: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """The slot is moved by somebody else: what the server still has waits on, the rest is gone."""
    daemon = make_daemon(tables_15, config=CONFIG)
    with daemon:
        prepare(tables_15, "one", 1)
        prepare(tables_15, "two", 2, table="kit.t1")
        daemon.catch_up()
        assert {each["gid"] for each in waiting(daemon)} == {"one", "two"}
        assert daemon.stop() == 0
        begin = str(Lsn(daemon.durable_lsn()))
        tables_15.execute("COMMIT PREPARED 'one'")
        end = tables_15.wal_end()
        tables_15.execute(f"SELECT pg_replication_slot_advance('{tables_15.slot}', '{end}')")
        assert main(["slot", "accept-gap", str(daemon.config_path), "--from-lsn", begin]) == 0
        daemon.start()
        daemon.catch_up()
        assert [each["gid"] for each in waiting(daemon)] == ["two"]
        tables_15.execute("COMMIT PREPARED 'two'")
        daemon.catch_up()
        assert waiting(daemon) == []
        assert daemon.stop() == 0
    assert landed_ids(daemon.root, "kit.t1") == [2]
    assert landed_ids(daemon.root) == []
