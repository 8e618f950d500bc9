"""Tables of which the stream does not carry every change: what a snapshot lands is one view.

Writers keep an invariant in every transaction: each number from 1 to N stands in the table once,
with either sign, and what is moved from one row to another adds up. So whatever view is taken,
its rows can be judged, also where the stream does not tell what came later.
"""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database, Session

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

_ROWS = 2500
_TABLE = f"""
CREATE SCHEMA kit;
CREATE TABLE kit.moved (id int8 PRIMARY KEY, n int8 NOT NULL, pad text);
INSERT INTO kit.moved SELECT g, 100, repeat(md5(g::text), 8) FROM generate_series(1, {_ROWS}) g;
"""
_SNAPSHOT = {"mode": "initial", "chunk-bytes": "64KiB", "rate-limit": "256KiB", "workers": 1}
_ALL = "insert, update, delete, truncate"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is published, who writes, and whether all changes show in the stream.

    Attributes:
        publications: what follows ``FOR`` of each.
        has_origin: writers write under a replication origin.
        is_seen: all changes show.
        is_told: the log says why the table is read at once.
        columns: that land.
    """

    publications: tuple[str, ...] = ("TABLE kit.moved",)
    has_origin: bool = False
    is_seen: bool = True
    is_told: bool = False
    columns: tuple[str, ...] = ("id", "n", "pad")


_CASES = {
    "origin": Case(has_origin=True, is_seen=False, is_told=True),
    "insert-only": Case(
        ("TABLE kit.moved WITH (publish = 'insert')",), is_seen=False, is_told=True
    ),
    "row-filter": Case((f"TABLE kit.moved WHERE (id > 0) WITH (publish = '{_ALL}')",)),
    "two-filters": Case(
        (
            "TABLE kit.moved WHERE (id > 0) WITH (publish = 'insert, delete')",
            "TABLE kit.moved WITH (publish = 'update')",
        ),
        is_seen=False, is_told=True,
    ),
    "column-list": Case((f"TABLE kit.moved (id, n) WITH (publish = '{_ALL}')",), columns=("id", "n")),
    "columns-without-key": Case(
        ("TABLE kit.moved (n, pad) WITH (publish = 'insert')",), is_seen=False, columns=("n", "pad")
    ),
}  # fmt: skip


@contextlib.contextmanager
def _origin(database: Database, case: Case) -> Iterator[str | None]:
    """A replication origin, which belongs to the whole server."""
    if not case.has_origin:
        yield None
        return
    name = f"origin_{database.name}"
    database.execute(f"SELECT pg_replication_origin_create('{name}')")
    try:
        yield name
    finally:
        database.execute(f"SELECT pg_replication_origin_drop('{name}')")


def _move(session: Session, rng: Random) -> None:
    """Turn signs, and move an amount between two rows."""
    low = rng.randint(1, _ROWS - 60)
    one, two = rng.sample(range(1, _ROWS + 1), 2)
    session.execute(
        f"UPDATE kit.moved SET id = -id WHERE abs(id) BETWEEN {low} AND {low + 40};"
        f"UPDATE kit.moved SET n = n - 7 WHERE abs(id) = {one};"
        f"UPDATE kit.moved SET n = n + 7 WHERE abs(id) = {two};"
        f"WITH gone AS (DELETE FROM kit.moved WHERE abs(id) = {low + 50} RETURNING id, n, pad)"
        " INSERT INTO kit.moved SELECT -id, n, pad FROM gone".encode()
    )


def _write(database: Database, origin: str | None, should_stop: threading.Event) -> None:
    with database.connect() as session:
        if origin is not None:
            session.execute(f"SELECT pg_replication_origin_session_setup('{origin}')".encode())
        rng = Random(7)
        while not should_stop.wait(0.01):
            _move(session, rng)
        if origin is not None:
            session.execute("SELECT pg_replication_origin_session_reset()")


def _progress(daemon: Daemon) -> dict[str, Any]:
    status = daemon.status() or {}
    return dict((status.get("snapshot") or {}).get("kit.moved", {}))


def _check_view(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """What every view of the table has in common."""
    assert sum(row["n"] for row in rows) == 100 * _ROWS
    if "id" in columns:
        assert sorted(abs(row["id"]) for row in rows) == list(range(1, _ROWS + 1))


@pytest.mark.parametrize("name", _CASES)
def test_rows_stand_at_one_position(
    database_15: Database, make_daemon: MakeDaemon, name: str
) -> None:
    """Whatever the stream leaves out, no row is lost and none is doubled."""
    case, database = _CASES[name], database_15
    database.execute(_TABLE)
    database.execute(f'DROP PUBLICATION "{database.publication}"')
    for number, what in enumerate(case.publications):
        database.execute(f'CREATE PUBLICATION "{database.name}_{number}" FOR {what}')
    database.create_slot()
    names = [f"{database.name}_{number}" for number in range(len(case.publications))]
    config = {
        "snapshot": _SNAPSHOT,
        "source": {"publication": names},
    }  # fmt: skip
    should_stop = threading.Event()
    with _origin(database, case) as origin:
        writer = threading.Thread(target=_write, args=(database, origin, should_stop))
        writer.start()
        try:
            daemon = make_daemon(database, config=config).start()
            daemon.wait_while_running(
                lambda: _progress(daemon).get("state") in ("done", "failed"), "the snapshot"
            )
        finally:
            should_stop.set()
            writer.join()
        daemon.catch_up()
    assert _progress(daemon)["state"] == "done", _progress(daemon)
    assert daemon.stop() == 0
    assert ("snapshot_at_once" in daemon.log.read_text()) is case.is_told
    landed = landing.read(daemon.root)
    rows = [change.new for change in landed.changes if change.op == "R"]
    if "WHERE" not in case.publications[0] or not case.is_seen:
        _check_view(rows, case.columns)
    if case.is_seen:
        held = "id > 0" if "WHERE" in case.publications[0] else "true"
        query = f"SELECT {', '.join(case.columns)} FROM kit.moved WHERE {held}"
        table = ("kit", "moved")
        with database.connect() as session:
            session.execute(oracle.OUTPUT_SETTINGS)
            wanted = oracle.source_rows_of(session, query)
        oracle.compare(table, oracle.replay(landed.effective())[table], wanted)


def test_part_of_a_key_identifies_nothing(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Inserts may be published with some columns of the key: then no key is claimed."""
    database = database_15
    database.execute(
        "CREATE SCHEMA kit; CREATE TABLE kit.pair (a int, b int, v int, PRIMARY KEY (a, b))"
    )
    database.execute(f'DROP PUBLICATION "{database.publication}"')
    database.execute(
        f'CREATE PUBLICATION "{database.publication}"'
        " FOR TABLE kit.pair (a, v) WITH (publish = 'insert')"
    )
    database.create_slot()
    daemon = make_daemon(database).start()
    database.execute("INSERT INTO kit.pair SELECT 1, g, g FROM generate_series(1, 9) g")
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = [change.new for change in landing.read(daemon.root).changes]
    assert landed == [{"a": 1, "v": v} for v in range(1, 10)]
    (schema,) = (daemon.root / "schemas" / "kit.pair").glob("*.json")
    assert json.loads(schema.read_bytes())["key"] is None
