"""Rows that were there before the slot, tables added and repaired, under load and kills."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, Keeper, wait_until
from kit.postgres import Database, Postgres
from kit.workload import Workload

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_ROWS = 12_000
_PAUSE_SECONDS = 0.05  # between writes of one session: a load, and little to compare at the end
_BIG = f"""
CREATE TABLE kit.big (id int8 PRIMARY KEY, v text, n numeric(12,2), t timestamptz);
INSERT INTO kit.big SELECT g, repeat(md5(g::text), 3), g / 7.0, 'epoch'::timestamptz + g * '1 min'::interval
FROM generate_series(1, {_ROWS}) g;
CREATE TABLE kit.empty (id int4 PRIMARY KEY);
"""
_SNAPSHOT = {"mode": "initial", "chunk-bytes": "192KiB", "workers": 3}


def _prepare(database: Database, seed: int) -> Workload:
    """Tables with rows that no slot has seen."""
    workload = Workload(database, seed)
    workload.create()
    workload.run(40)
    database.execute(_BIG)
    database.create_slot()
    return workload


def _progress(daemon: Daemon) -> dict[str, Any]:
    status = daemon.status() or {}
    return dict(status.get("snapshot") or {})


def _is_done(daemon: Daemon, *titles: str) -> bool:
    progress = _progress(daemon)
    wanted = titles or tuple(progress)
    return bool(progress) and all(
        progress.get(title, {}).get("state") in ("done", "failed") for title in wanted
    )


def _churn(database: Database, rng: Random) -> None:
    """Change the large table in every way, its key too; then pause."""
    low = rng.randint(1, _ROWS)
    database.execute(
        f"UPDATE kit.big SET v = 'churned {low}' WHERE id BETWEEN {low} AND {low + 40};"
        f"DELETE FROM kit.big WHERE id BETWEEN {low + 50} AND {low + 55};"
        f"UPDATE kit.big SET id = -id, n = n + 1 WHERE id BETWEEN {low + 60} AND {low + 64};"
        f"INSERT INTO kit.big VALUES ({rng.randint(10**6, 10**12)}, 'new', 0.5, now())"
    )
    time.sleep(_PAUSE_SECONDS)


def _entries_of(daemon: Daemon, title: str) -> list[dict[str, Any]]:
    return [
        entry
        for entry in daemon.entries()
        if entry["kind"] == "snapshot"
        and any(
            f"{record['schema']}.{record['name']}" == title
            for record in entry["extra"]["snapshot"]["tables"].values()
        )
    ]


@pytest.mark.parametrize("postgres", [18], indirect=True)
@pytest.mark.parametrize("seed", [2])
def test_initial_under_load(database: Database, make_daemon: MakeDaemon, seed: int) -> None:
    """Rows of before the slot and all changes since give the tables, in one entry per table."""
    workload = _prepare(database, seed)
    rng = Random(seed)
    daemon = make_daemon(database, config={"snapshot": _SNAPSHOT}).start()
    workload.start(pause=_PAUSE_SECONDS)
    wait_until(lambda: bool(_progress(daemon)), "the snapshot")
    while not _is_done(daemon, "kit.big", "kit.types", "kit.bag"):
        _churn(database, rng)
    workload.finish()
    daemon.wait_while_running(lambda: _is_done(daemon), "all snapshots")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert len(_entries_of(daemon, "kit.big")) == 1
    landed = oracle.check(daemon.root, database, only_journal=False)
    assert any(change.op == "R" for change in landed.changes)
    _verify(daemon)


def _verify(daemon: Daemon) -> None:
    """The product's own check agrees."""
    command = [sys.executable, "-m", "gaussdecode", "verify", str(daemon.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", [11])
def test_kill9_at_any_time(database_15: Database, make_daemon: MakeDaemon, seed: int) -> None:
    """After kill -9 at random times only what is missing is read, and the result is the same."""
    workload = _prepare(database_15, seed)
    rng = Random(seed)
    config = {"snapshot": {**_SNAPSHOT, "chunk-bytes": "64KiB", "rate-limit": "2MiB"}}
    daemon = make_daemon(database_15, config=config)
    keeper = Keeper(daemon)
    chunks = daemon.root / "snapshots" / "kit.big"
    workload.start(pause=_PAUSE_SECONDS)
    stages: list[Callable[[], bool]] = [
        lambda: len(list(chunks.glob("chunk-*"))) >= 2,
        lambda: len(list(chunks.glob("chunk-*"))) >= 8,
        lambda: _progress(daemon).get("kit.big", {}).get("state") == "landing",
        lambda: rng.random() < 0.1,
    ]
    for is_reached in stages:
        keeper.keep()
        while not is_reached() and not _is_done(daemon, "kit.big"):
            _churn(database_15, rng)
            assert daemon.is_running
        daemon.kill9()
    keeper.keep()
    workload.finish()
    daemon.wait_while_running(lambda: _is_done(daemon), "the snapshot")
    keeper.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database_15, only_journal=False)
    _verify(daemon)


def test_finished_chunks_are_not_read_again(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A start after kill -9 goes on after the chunks that were durable."""
    _prepare(database_15, 3)
    config = {"snapshot": {**_SNAPSHOT, "chunk-bytes": "64KiB", "rate-limit": "256KiB"}}
    daemon = make_daemon(database_15, config=config).start()
    chunks = daemon.root / "snapshots" / "kit.big"
    daemon.wait_while_running(lambda: len(list(chunks.glob("chunk-*"))) >= 4, "chunks")
    daemon.kill9()
    before = list(chunks.glob("chunk-*"))
    daemon.write_config(snapshot={"rate-limit": None})
    database_15.execute("UPDATE kit.big SET v = 'while it was down' WHERE id % 100 = 0")
    daemon.start()
    daemon.wait_while_running(lambda: _is_done(daemon), "the snapshot")
    read = _progress(daemon)["kit.big"]["rows"]
    assert len(before) >= 4
    assert read < _ROWS, "all was read again"
    assert not chunks.exists()
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database_15, only_journal=False)


@pytest.mark.parametrize("mode", ["immediate"])
def test_server_restarts(own_server: Postgres, make_daemon: MakeDaemon, mode: str) -> None:
    """A server that stops while tables are read costs nothing but time."""
    database = Database(own_server, "restarted")
    workload = _prepare(database, 31)
    config = {"snapshot": {**_SNAPSHOT, "chunk-bytes": "64KiB", "rate-limit": "2MiB"}}
    daemon = make_daemon(database, config=config)
    keeper = Keeper(daemon)
    keeper.keep()
    workload.start(pause=_PAUSE_SECONDS)
    for _ in range(2):
        keeper.keep()
        daemon.wait_for_state("streaming")
        time.sleep(0.7)
        own_server.restart(mode)
    workload.finish()
    keeper.catch_up()
    daemon.wait_while_running(lambda: _is_done(daemon), "the snapshot")
    assert daemon.stop() == 0
    oracle.check(daemon.root, database, only_journal=False)


def test_table_changes_shape_while_it_is_read(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """A table that is truncated, rewritten or altered half-way is read again from the start."""
    _prepare(database_15, 4)
    config = {"snapshot": {**_SNAPSHOT, "chunk-bytes": "64KiB", "rate-limit": "256KiB"}}
    daemon = make_daemon(database_15, config=config).start()
    chunks = daemon.root / "snapshots" / "kit.big"
    for statement in (
        "ALTER TABLE kit.big ADD extra int4 DEFAULT 7; UPDATE kit.big SET extra = 7",
        "VACUUM FULL kit.big",
        f"""TRUNCATE kit.big;
        INSERT INTO kit.big (id, v) SELECT g, 'again' FROM generate_series(1, {_ROWS}) g""",
    ):
        daemon.wait_while_running(lambda: len(list(chunks.glob("chunk-*"))) >= 2, "chunks")
        for each in statement.split(";"):
            database_15.execute(each)
    daemon.wait_while_running(lambda: _is_done(daemon), "the snapshot")
    assert "table kit.big was" in daemon.log.read_text(), "it was read as if nothing had happened"
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database_15, only_journal=False)


def test_added_table_and_repaired_table(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A table made while streaming and one asked for by command land as they are."""
    workload = _prepare(database_15, 5)
    rng = Random(5)
    daemon = make_daemon(database_15, config={"snapshot": {**_SNAPSHOT, "mode": "none"}}).start()
    daemon.wait_for_state("streaming")
    workload.start(pause=_PAUSE_SECONDS)
    for title in ("kit.big", "kit.types", "kit.bag", "kit.big"):
        command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
        asked = subprocess.Popen([*command, "--table", title], stdout=subprocess.DEVNULL)
        while asked.poll() is None:
            _churn(database_15, rng)
        assert asked.returncode == 0
    workload.finish()
    daemon.catch_up()
    assert daemon.stop() == 0
    assert len(_entries_of(daemon, "kit.big")) == 2
    landed = landing.read(daemon.root)
    oracle.check_snapshots(landed)
    states = oracle.replay(
        change
        for change in landed.effective()
        if change.schema.table in {("kit", "big"), ("kit", "types"), ("kit", "bag")}
    )
    with database_15.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for table in states:
            oracle.compare(table, states[table], oracle.source_rows(session, table))


def test_one_bad_table_does_not_stop_the_others(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """A table that may not be read is marked, with the command that retries it."""
    _prepare(database_15, 6)
    name = database_15.name
    database_15.execute(
        f"CREATE TABLE public.secret (id int4 PRIMARY KEY); INSERT INTO public.secret VALUES (1);"
        f"CREATE ROLE reader_{name} LOGIN REPLICATION"
    )
    for (schema,) in database_15.execute(
        "SELECT DISTINCT quote_ident(schemaname) FROM pg_publication_tables"
    ):
        database_15.execute(
            f"GRANT USAGE ON SCHEMA {schema} TO reader_{name};"
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader_{name}"
        )
    database_15.execute(f"REVOKE SELECT ON public.secret FROM reader_{name}")
    dsn = f"{database_15.dsn} user=reader_{name}"
    daemon = make_daemon(database_15, dsn=dsn, config={"snapshot": _SNAPSHOT}).start()
    try:
        daemon.wait_while_running(
            lambda: (daemon.status() or {}).get("is_snapshot_settled") is True, "the snapshot"
        )
        assert _is_done(daemon)
        progress = _progress(daemon)
        assert progress["public.secret"]["state"] == "failed"
        reason = progress["public.secret"]["reason"]
        grant = re.search(r'GRANT USAGE .*; GRANT SELECT ON "public"."secret" TO "\w+";', reason)
        assert grant is not None
        assert daemon.record()["is_well"] is False
        assert [title for title, of in progress.items() if of["state"] == "failed"] == [
            "public.secret"
        ]
        status, ready = daemon.get("/readyz")
        told = "The existing rows of 1 table could not be landed."
        assert (status, told in ready.decode()) == (200, True), ready
        assert f"gaussdecode snapshot {daemon.config_path} --table 'public.secret'" in reason
        assert progress["kit.big"]["state"] == progress["kit.empty"]["state"] == "done"
        words = [sys.executable, "-m", "gaussdecode", "check", "--json", str(daemon.config_path)]
        record = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        (found,) = [of for of in record["findings"] if of["state"] == "snapshot-failed"]
        assert found["what"] == told, "check says what the daemon says"
        assert record["plan"]["daemon"] == "running, streaming"
        database_15.execute(grant[0])
        command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
        done = subprocess.run([*command, "--table", "public.secret"], check=False)
        assert done.returncode == 0
        daemon.wait_while_running(lambda: daemon.record()["is_well"] is True, "all well")
        assert daemon.stop() == 0
        assert _entries_of(daemon, "public.secret")
    finally:
        daemon.stop()
        database_15.execute(f"DROP OWNED BY reader_{name}; DROP ROLE reader_{name}")


@pytest.mark.parametrize("via_root", [True, False])
def test_odd_tables(database_15: Database, make_daemon: MakeDaemon, *, via_root: bool) -> None:
    """Partitions, column lists, row filters, collations, keys with NULLs: all land as published."""
    name = database_15.name
    database_15.execute(f'DROP PUBLICATION "{name}"; CREATE SCHEMA kit')
    for statement in (
        """CREATE TABLE kit.parts (id int4, region text, v text, PRIMARY KEY (id, region))
        PARTITION BY LIST (region)""",
        "CREATE TABLE kit.parts_a PARTITION OF kit.parts FOR VALUES IN ('a')",
        "CREATE TABLE kit.parts_b (v text, id int4 NOT NULL, region text NOT NULL)",
        "ALTER TABLE kit.parts ATTACH PARTITION kit.parts_b FOR VALUES IN ('b')",
        "INSERT INTO kit.parts SELECT g, chr(97 + g % 2), 'v' || g FROM generate_series(1, 9000) g",
        "CREATE TABLE kit.listed (id int4 PRIMARY KEY, shown text, hidden text)",
        "INSERT INTO kit.listed SELECT g, 's', 'h' FROM generate_series(1, 100) g",
        "CREATE TABLE kit.filtered (id int4 PRIMARY KEY, v text)",
        "INSERT INTO kit.filtered SELECT g, 'x' FROM generate_series(1, 100) g",
        "CREATE TABLE kit.loose (id int4, v text); CREATE UNIQUE INDEX ON kit.loose (id)",
        "INSERT INTO kit.loose VALUES (NULL, 'a'), (NULL, E'tab\\tand\\\\N'), (3, NULL), (4, '\\N')",
        """CREATE COLLATION kit.nocase (provider = icu, locale = 'und-u-ks-level2',
        deterministic = false)""",
        "CREATE TABLE kit.collated (k text COLLATE kit.nocase PRIMARY KEY, v text)",
        "INSERT INTO kit.collated SELECT 'Key' || g, repeat('v', 200) FROM generate_series(1, 3000) g",
        f"""CREATE PUBLICATION "{name}" FOR TABLE kit.parts, kit.listed (id, shown),
        kit.filtered WHERE (id > 90), kit.loose, kit.collated
        WITH (publish_via_partition_root = {via_root})""",
    ):
        database_15.execute(statement)
    database_15.create_slot()
    config = {"snapshot": {**_SNAPSHOT, "chunk-bytes": "64KiB", "verify": "counts"}}
    daemon = make_daemon(database_15, config=config).start()
    daemon.wait_while_running(lambda: _is_done(daemon, "kit.collated", "kit.loose"), "a snapshot")
    for number in range(20):
        database_15.execute(
            f"UPDATE kit.collated SET k = 'kEY{number + 1}' WHERE k = 'key{number + 1}';"
            f"UPDATE kit.parts SET region = 'b' WHERE id = {number * 2}"
        )
    daemon.wait_while_running(lambda: _is_done(daemon), "the snapshot")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert not any("failed" in line for line in daemon.log.read_text().splitlines())
    states = oracle.replay(landing.read(daemon.root).effective())
    parts = [("kit", "parts")] if via_root else [("kit", "parts_a"), ("kit", "parts_b")]
    with database_15.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for table in (*parts, ("kit", "loose"), ("kit", "collated")):
            if table == ("kit", "parts"):
                rows = oracle.source_rows_of(session, "SELECT * FROM kit.parts")
            else:
                rows = oracle.source_rows(session, table)
            oracle.compare(table, states[table], rows)
        shown = oracle.source_rows_of(session, "SELECT id, shown FROM kit.listed")
        oracle.compare(("kit", "listed"), states["kit", "listed"], shown)
        above = oracle.source_rows_of(session, "SELECT * FROM kit.filtered WHERE id > 90")
        oracle.compare(("kit", "filtered"), states["kit", "filtered"], above)
