"""What becomes of tables that the catalogue changed: by policy, over restarts, kills and several servers."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import landing, targets
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_IOERR

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _parted(database: Database) -> None:
    """A table that is published as one, with rows in two partitions."""
    name = database.publication
    database.execute(
        f'DROP PUBLICATION "{name}";'
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root);'
        "CREATE TABLE t (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);"
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);"
        "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2); CREATE TABLE u (id int PRIMARY KEY)"
    )


def _fill(database: Database) -> None:
    database.execute(
        "INSERT INTO t SELECT g, 1 + g % 2 FROM generate_series(1, 20) g; INSERT INTO u VALUES (1)"
    )


def _suspects(daemon: Daemon) -> list[dict[str, Any]]:
    return [entry for entry in landing.read_entries(daemon.root) if entry["kind"] == "suspect"]


def _wait_for_suspects(daemon: Daemon, number: int) -> None:
    daemon.wait_while_running(lambda: len(_suspects(daemon)) >= number, "it is said")


def _wait_for_snapshots(daemon: Daemon, number: int) -> None:
    text = '"snapshot_landed"'
    daemon.wait_while_running(lambda: daemon.log.read_text().count(text) == number, "the rows")


def _command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gaussdecode", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("postgres", [14, 18], indirect=True)
def test_recorded_tables_stop_until_they_are_read_again(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """Apply ends with 78 and says why; the others go on; a snapshot, or the operator's word, ends it."""
    _parted(database)
    database.create_slot()
    with make_daemon(database) as daemon:
        _fill(database)
        daemon.catch_up()
        database.execute("TRUNCATE t_1")
        database.execute("INSERT INTO t VALUES (50, 2); INSERT INTO u VALUES (2)")
        daemon.catch_up()
        target = tmp_path / "target"
        done = _command("spark", "apply", daemon.root, target, "--local")
        assert done.returncode == EX_CONFIG
        assert "public.t stands still, the other tables go on: its file was replaced" in done.stderr
        assert "gaussdecode snapshot CONFIG --table public.t" in done.stderr
        assert "--accept-suspects" in done.stderr
        (entry,) = _suspects(daemon)
        n = entry["n"]
        said = _command("spark", "status", daemon.root, target).stdout
        assert f"public.t stands still at entry {n - 1}" in said
        found = targets.compare(database, targets.apply_local(daemon.root, target), target)
        assert found.equal == {"public.u"}
        assert found.different == {}
        gaps = _command("gaps", daemon.root)
        assert gaps.returncode == EX_IOERR
        assert "not yet: public.t" in gaps.stdout
        accepted = targets.apply_local(daemon.root, tmp_path / "accepted", accept_suspects=True)
        assert accepted.stopped == {}
        assert targets.compare(database, accepted, tmp_path / "accepted").different.keys() == {
            "public.t"
        }
        assert _command("snapshot", daemon.config_path, "--table", "public.t").returncode == 0
        daemon.wait_while_running(
            lambda: "snapshot_landed" in daemon.log.read_text(), "the rows of the table"
        )
        database.execute("DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (51, 1)")
        daemon.catch_up()
        for made in (target, tmp_path / "accepted", tmp_path / "at once"):
            summary = targets.apply_local(daemon.root, made)
            assert summary.stopped == {}
            assert targets.compare(database, summary, made).different == {}
        assert _command("gaps", "--unaccepted", daemon.root).returncode == 0
        assert daemon.stop() == 0


@pytest.mark.parametrize("postgres", [15, 17], indirect=True)
def test_tables_are_read_again_by_themselves(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """on-suspect: snapshot reads just the table that was changed, also what happened while it was down."""
    _parted(database)
    database.create_slot()
    config = {
        "landing": {"on-suspect": "snapshot"},
        "snapshot": {"mode": "none", "suspect-interval": "1s"},
    }
    with make_daemon(database, config=config) as daemon:
        _fill(database)
        daemon.catch_up()
        changes = ["TRUNCATE t_1", "DROP TABLE t_2", "ALTER TABLE t ADD c float DEFAULT random()"]
        for number, change in enumerate(changes, 1):
            is_down = number == 2
            if is_down:
                assert daemon.stop() == 0
            database.execute(change)
            database.execute(f"INSERT INTO t (id, k) VALUES ({60 + number}, 1)")
            if is_down:
                daemon.start()
            _wait_for_snapshots(daemon, number)
        daemon.catch_up()
        assert daemon.stop() == 0
    summary = targets.apply_local(daemon.root, tmp_path / "target")
    assert summary.stopped == {}
    found = targets.compare(database, summary, tmp_path / "target")
    assert found.equal == {"public.t", "public.u"}
    landed = landing.read(daemon.root)
    assert {change.schema.table[1] for change in landed.changes if change.is_snapshot} == {"t"}


def test_a_changed_table_stops_the_daemon(database_15: Database, make_daemon: MakeDaemon) -> None:
    """on-suspect: stop ends it before anything after the change has landed, and at each start."""
    database = database_15
    _parted(database)
    database.create_slot()
    daemon = make_daemon(database, config={"landing": {"on-suspect": "stop"}}).start()
    _fill(database)
    daemon.catch_up()
    database.execute("TRUNCATE t_1")
    database.execute("INSERT INTO t VALUES (50, 2)")
    assert daemon.wait() == EX_CONFIG
    for _ in range(2):
        assert daemon.start().wait() == EX_CONFIG
        assert "public.t: its file was replaced" in daemon.log_tail()
        assert "landing.on-suspect is stop. Set record" in daemon.log_tail()
    assert _suspects(daemon) == []
    ids = {change.new["id"] for change in landing.read(daemon.root).changes}
    assert 50 not in ids
    daemon.write_config(landing={"on-suspect": "record"})
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    assert len(_suspects(daemon)) == 1
    assert 50 in {change.new["id"] for change in landing.read(daemon.root).changes}


def test_killed_before_it_is_written_down(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A change is said at least once, whenever the daemon dies; never twice where it does not."""
    database = database_15
    _parted(database)
    database.create_slot()
    with make_daemon(database) as daemon:
        _fill(database)
        daemon.catch_up()
        for number in range(4):
            daemon.kill9()
            database.execute(f"TRUNCATE t_1; INSERT INTO t VALUES ({70 + number}, 1)")
            daemon.start()
            _wait_for_suspects(daemon, number + 1)
        daemon.catch_up()
        assert daemon.stop() == 0
        said = len(_suspects(daemon))
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    assert len(_suspects(daemon)) == said
    for entry in _suspects(daemon):
        assert entry["extra"]["from_lsn"] <= entry["extra"]["until_lsn"]
        assert entry["extra"]["tables"] == ["public.t"]


def test_a_table_that_leaves_the_white_list_and_comes_back(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """Without snapshots nothing else tells that its changes are missing."""
    database = database_15
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    database.create_slot()
    daemon = make_daemon(database)
    texts = []
    for number, listed in enumerate(("public.*", "public.a", "public.*")):
        daemon.write_config(decoding={"white-table-list": listed})
        daemon.start()
        database.execute(f"INSERT INTO a VALUES ({number}); INSERT INTO b VALUES ({number})")
        daemon.catch_up()
        assert daemon.stop() == 0
        texts.append([entry["extra"]["text"] for entry in _suspects(daemon)])
    assert texts[0] == []
    assert len(texts[1]) == 1
    assert "public.b: its changes do not come any more" in texts[1][0]
    assert len(texts[2]) == 2
    assert "public.b: changes of it did not come for a while" in texts[2][1]
    summary = targets.apply_local(daemon.root, tmp_path / "target")
    assert summary.suspect_tables == ("public.b",)
    assert targets.compare(database, summary, tmp_path / "target").equal == {"public.a"}


def test_a_table_made_anew_that_no_publication_lists(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """DROP and CREATE under one name takes a table out of a publication that lists tables."""
    database, name = database_15, database_15.publication
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    database.execute(f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR TABLE a, b')
    database.create_slot()
    with make_daemon(database) as daemon:
        database.execute("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)")
        daemon.catch_up()
        database.execute("DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY)")
        database.execute("INSERT INTO a VALUES (2); INSERT INTO b VALUES (2)")
        daemon.catch_up()
        (entry,) = _suspects(daemon)
        assert entry["extra"]["tables"] == ["public.a"]
        assert "no publication has the table that has its name now" in entry["extra"]["text"]
        checked = _command("check", daemon.config_path)
        assert "public.a" in checked.stdout
        assert "no publication has" in checked.stdout
        database.execute("DROP TABLE b")
        database.execute("SELECT pg_logical_emit_message(true, 'a', 'b')")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert len(_suspects(daemon)) == 1, "a table that is gone has no wrong rows"


def test_a_landing_of_before_begins_to_look(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A landing that remembers nothing of the catalogue says nothing of what was before."""
    database = database_15
    _parted(database)
    database.create_slot()
    with make_daemon(database) as daemon:
        _fill(database)
        daemon.catch_up()
        assert daemon.stop() == 0
        (daemon.root / "snapshots" / "fingerprints.json").unlink()
        database.execute("TRUNCATE t_1")
        daemon.start()
        database.execute("INSERT INTO u VALUES (2)")
        daemon.catch_up()
        assert _suspects(daemon) == []
        database.execute("TRUNCATE t_2; INSERT INTO u VALUES (3)")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert len(_suspects(daemon)) == 1


def test_the_server_goes_away_before_an_entry(
    own_server: Any, make_daemon: MakeDaemon
) -> None:  # Any: Postgres
    """What nobody could look at is not committed: it comes again, after the look."""
    database = Database(own_server, "away")
    _parted(database)
    database.create_slot()
    with make_daemon(database, config={"landing": {"max-commit-interval": "20s"}}) as daemon:
        _fill(database)
        daemon.wait_while_running(lambda: len(daemon.entries()) > 2, "the first entry")
        database.execute("INSERT INTO t VALUES (70, 1)")
        database.execute("TRUNCATE t_1")
        own_server.kill9()
        daemon.wait_while_running(
            lambda: "session_retrying" in daemon.log.read_text(), "the session has ended"
        )
        assert all(change.new.get("id") != 70 for change in landing.read(daemon.root).changes)
        own_server.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    (change,) = (of for of in landing.read(daemon.root).changes if of.new.get("id") == 70)
    entries = landing.read_entries(daemon.root)
    first = next(e["n"] for e in entries if landing.position(e) >= change.order[1])
    assert next(entry["n"] for entry in entries if entry["kind"] == "suspect") < first
