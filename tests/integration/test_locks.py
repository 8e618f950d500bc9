"""A lock on one published table holds up nobody who does not read that table."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from kit import landing, oracle
from kit.daemon import PATIENCE_SECONDS, Daemon
from kit.postgres import Database, Session, run

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_CONFIG: Final[dict[str, dict[str, Any]]] = {
    "source": {"two-phase": True},
    "decoding": {"parallel-decode-num": 2, "white-table-list": "kit.*"},
}
_PREPARED: Final = "alters"


@pytest.fixture
def shop(database: Database) -> Iterator[Database]:
    """A filtered table, a partitioned one, one of which nobody holds a lock, and a slot."""
    name = database.publication
    database.execute(f'DROP PUBLICATION "{name}"')
    database.execute(
        "CREATE SCHEMA kit;"
        "CREATE TABLE kit.filtered (id int4 PRIMARY KEY, v text);"
        "CREATE TABLE kit.plain (id int4 PRIMARY KEY, v text);"
        "CREATE TABLE kit.root (id int4 PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE kit.part PARTITION OF kit.root FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE kit.free (id int4 PRIMARY KEY, v text);"
        f'CREATE PUBLICATION "{name}" FOR TABLE kit.filtered WHERE (id > 0), kit.plain, kit.free;'
        f'CREATE PUBLICATION "{name}_root" FOR TABLE kit.root WITH (publish_via_partition_root)'
    )
    database.create_slot()
    yield database
    for (gid,) in database.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    ):
        database.execute(f"ROLLBACK PREPARED '{gid}'")


def _alter(database: Database) -> Session:
    """Begin a transaction that holds ACCESS EXCLUSIVE on all tables but one."""
    session = database.connect()
    run(session, "BEGIN")
    for table in ("filtered", "plain", "root"):
        run(session, f"ALTER TABLE kit.{table} ADD COLUMN more int4 DEFAULT 7")
        run(session, f"INSERT INTO kit.{table} (id, v) VALUES (1, 'altered')")
    return session


def _command(*arguments: str) -> str:
    """What a command says; it must end."""
    command = [sys.executable, "-m", "gaussdecode", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    return done.stdout + done.stderr


def _configured(make_daemon: MakeDaemon, database: Database, **sections: Any) -> Daemon:
    daemon = make_daemon(database, config={**_CONFIG, **sections})
    names = [database.publication, f"{database.publication}_root"]
    daemon.write_config(source={"publication": names})
    return daemon


def _compare(landed: landing.Landing, database: Database) -> None:
    states = oracle.replay(landed.effective())
    with database.connect() as session:
        for table in ("filtered", "plain", "root", "free"):
            rows = oracle.source_rows_of(session, f"SELECT * FROM kit.{table}")
            oracle.compare(("kit", table), states["kit", table], rows)


@pytest.mark.parametrize(
    ("postgres", "is_prepared"),
    [(15, False), (16, True), (18, False)],  # from 16 on the server's own view waits
    indirect=["postgres"],
    ids=["15-open", "16-prepared", "18-open"],
)
def test_the_daemon_starts_and_goes_on(
    shop: Database, make_daemon: MakeDaemon, is_prepared: bool
) -> None:
    """With white list and prepared transactions; check and status answer."""
    daemon = _configured(make_daemon, shop)
    daemon.begin()
    with daemon:  # one time without the lock, so that the slot becomes one of two phases
        daemon.catch_up()
        assert daemon.stop() == 0
    holder = _alter(shop)
    if is_prepared:
        run(holder, f"PREPARE TRANSACTION '{_PREPARED}'")
    checked = _command("check", "--tables", "--columns", str(daemon.config_path))
    assert "kit.plain" in checked
    assert "kit.root" in checked
    for number in range(2):
        with daemon:
            shop.execute(f"INSERT INTO kit.free VALUES ({number}, 'beside the lock')")
            daemon.catch_up()
            assert shop.slot in _command("status", str(daemon.config_path))
            assert daemon.stop() == 0
    with daemon:
        run(holder, f"COMMIT PREPARED '{_PREPARED}'" if is_prepared else "COMMIT")
        shop.execute("INSERT INTO kit.plain (id, v) VALUES (2, 'after')")
        daemon.catch_up()
        assert daemon.stop() == 0
    holder.close()
    landed = landing.read(daemon.root)
    _compare(landed, shop)
    assert {change.schema.table for change in landed.changes} == {
        ("kit", table) for table in ("filtered", "plain", "root", "free")
    }
    assert "has not answered" not in daemon.log.read_text()


@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_rows_of_locked_tables_come_later(shop: Database, make_daemon: MakeDaemon) -> None:
    """A landing that begins while tables are locked lands changes of others, and then all rows."""
    for table in ("filtered", "plain", "root", "free"):
        shop.execute(f"INSERT INTO kit.{table} (id, v) VALUES (50, 'before')")
    daemon = _configured(make_daemon, shop, snapshot={"mode": "initial"})
    daemon.begin()
    holder = _alter(shop)
    with daemon:
        shop.execute("INSERT INTO kit.free VALUES (1, 'beside the lock')")
        daemon.catch_up()
        run(holder, "COMMIT")

        def is_done() -> bool:
            tables = (daemon.status() or {}).get("snapshot") or {}
            return len(tables) == 4 and all(of["state"] == "done" for of in tables.values())

        daemon.wait_while_running(is_done, "all rows")
        daemon.catch_up()
        assert daemon.stop() == 0
    holder.close()
    _compare(landing.read(daemon.root), shop)
