"""kill -9 at each step of an act: after the next start the landing equals the source."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kit import landing, oracle
from kit.beside import repeating
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK
from gaussdecode.land.failpoints import VARIABLE, ActStep, SnapshotStep, Step

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
Capture = pytest.CaptureFixture[str]


def _create(database: Database, *tables: str) -> None:
    """Make tables with existing rows."""
    for table in tables:
        database.execute(
            f"CREATE TABLE public.{table} (id int4 PRIMARY KEY, v text);"
            f"INSERT INTO {table} SELECT g, 'there before' FROM generate_series(1, 50) g"
        )


@contextmanager
def _load(database: Database, *tables: str) -> Iterator[None]:
    """Change rows of all tables in each transaction, beside the test."""

    def write(number: int) -> None:
        first = 100 + 3 * number
        with database.connect() as session, session.transaction():
            for table in tables:
                session.execute(
                    f"INSERT INTO {table} SELECT g, 'new' FROM generate_series({first}, {first + 2}) g;"
                    f"UPDATE {table} SET v = 'changed {number}' WHERE id % 9 = {number % 9};"
                    f"DELETE FROM {table} WHERE id = {first - 20}"
                )

    with repeating(write, 0.05):
        yield


def _die(daemon: Daemon, point: str, *act: str) -> None:
    """Start the daemon and have it killed within an act, which is asked for until then."""
    daemon.environment = {VARIABLE: f"{point}=kill"}
    daemon.start()
    if act:
        _settle(daemon)

    def is_dead() -> bool:
        if act and daemon.is_running:
            main(["ctl", str(daemon.config_path), *act])
        return not daemon.is_running

    wait_until(is_dead, f"dying at {point}\n{daemon.log_tail()}")
    daemon.environment = {}


def _settle(daemon: Daemon) -> None:
    """Wait until no table waits for its existing rows."""
    requests = daemon.root / "snapshots" / "requests"
    daemon.wait_while_running(
        lambda: (
            (daemon.status() or {}).get("is_snapshot_settled") is True
            and not list(requests.iterdir())
        ),
        "the existing rows",
    )


def _finish(daemon: Daemon) -> landing.Landing:
    """Let all land, end the daemon, and check what depends on no table."""
    _settle(daemon)
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    landed = landing.read(daemon.root)
    oracle.check_log(landed.entries)
    oracle.check_order(landed)
    oracle.check_snapshots(landed)
    assert main(["verify", str(daemon.root)]) == EX_OK
    return landed


def test_killed_within_add(database_15: Database, make_daemon: MakeDaemon, capsys: Capture) -> None:
    """After the ALTER, with the request, and within the snapshot: each table is the source's, row for row."""
    name = database_15.publication
    _create(database_15, "first", "one", "two")
    database_15.execute(f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR TABLE first')
    database_15.create_slot()
    config = {
        "snapshot": {"mode": "initial"},
        "decoding": {"white-table-list": "public.first,public.one,public.two"},
    }
    daemon = make_daemon(database_15, config=config)
    with _load(database_15, "first", "one", "two"):
        _die(daemon, ActStep.PUBLICATION_ALTERED, "add", "public.one")
        _die(daemon, ActStep.ROWS_ASKED, "add", "public.two")
        _die(daemon, SnapshotStep.SNAPSHOT_COMMITTED)
        daemon.start()
        _settle(daemon)
        again = ["ctl", str(daemon.config_path), "add", "public.two"]
        assert main(again) == EX_OK, "who got no answer asks again"
        capsys.readouterr()
        main(["check", "--tables", str(daemon.config_path)])
        listed = capsys.readouterr().out
    assert all(f"public.{table} " in listed for table in ("first", "one", "two"))
    assert daemon.record()["coverage"]["unpublished"] == []
    oracle.check_tables(_finish(daemon), database_15)


def test_killed_within_drop(
    database_15: Database, make_daemon: MakeDaemon, capsys: Capture
) -> None:
    """Of both publications or of none; its rows end at one position, which `gaps` tells; the other goes on."""
    name, second = database_15.publication, f"{database_15.publication}_2"
    _create(database_15, "stays", "goes")
    database_15.execute(
        f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR TABLE stays, goes;'
        f'CREATE PUBLICATION "{second}" FOR TABLE goes'
    )
    database_15.create_slot()
    config = {"source": {"publication": [name, second]}, "snapshot": {"mode": "initial"}}
    daemon = make_daemon(database_15, config=config)
    with _load(database_15, "stays", "goes"):
        _die(daemon, ActStep.PUBLICATION_ALTERED, "drop", "public.goes")
        daemon.start()
        daemon.wait_for_state("streaming")
        daemon.catch_up()
    landed = _finish(daemon)
    capsys.readouterr()
    main(["gaps", "--json", str(daemon.root)])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["public.goes"] in [of["tables"] for of in told]
    states = oracle.replay(landed.effective())
    with database_15.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        rows = oracle.source_rows(session, ("public", "stays"))
    oracle.compare(("public", "stays"), states["public", "stays"], rows)
    orders = {
        table: sorted({of.order[:2] for of in landed.streamed if of.schema.table[1] == table})
        for table in ("stays", "goes")
    }
    ended = len(orders["goes"])
    assert orders["goes"] == orders["stays"][:ended], "each transaction changes both, up to the end"
    assert ended < len(orders["stays"])


def test_killed_within_rotate(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Before its entry is in the log, and after: nothing is missing, nothing twice."""
    database_15.create_slot()
    _create(database_15, "t")
    daemon = make_daemon(database_15, config={"landing": {"max-commit-interval": "1h"}})
    with _load(database_15, "t"):
        for point in (Step.FILES_DURABLE, Step.ENTRY_COMMITTED):
            _die(daemon, f"{point}:2", "rotate")  # the first is of the start
    daemon.write_config(landing={"max-commit-interval": "300ms"})
    daemon.start()
    oracle.check_tables(_finish(daemon), database_15)
