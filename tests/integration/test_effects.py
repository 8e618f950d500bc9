"""What the decoding options leave out of a landing, and what they do not."""

from collections.abc import Callable

import pytest
from kit import landing, oracle
from kit.daemon import MARK, Daemon
from kit.postgres import Database

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _run(database: Database, make_daemon: MakeDaemon, **options: object) -> landing.Landing:
    """Land what three transactions do: two tables, one of them, none that is published.

    The second has an origin, as if it had been replicated from elsewhere.
    """
    database.execute("CREATE SCHEMA other")
    database.execute("CREATE TABLE public.a (id int4 PRIMARY KEY)")
    database.execute("CREATE TABLE other.b (id int4 PRIMARY KEY)")
    database.create_slot()
    names = {name.replace("_", "-"): value for name, value in options.items()}
    daemon = make_daemon(database, config={"decoding": {"parallel-decode-num": 2, **names}})
    origin = f"from_{database.name}"
    with daemon, database.connect() as session:
        session.execute("INSERT INTO public.a VALUES (1); INSERT INTO other.b VALUES (1)")
        session.execute("SELECT pg_replication_origin_create(%s)", [origin])
        session.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
        session.execute("INSERT INTO public.a VALUES (2)")
        session.execute("SELECT pg_replication_origin_session_reset()")
        session.execute("INSERT INTO other.b VALUES (3)")
        session.execute("SELECT pg_replication_origin_drop(%s)", [origin])
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    oracle.check_log(landed.entries)
    oracle.check_order(landed)
    return landed


def _rows(landed: landing.Landing) -> list[tuple[str, int]]:
    return [(change.schema.table[1], change.new["id"]) for change in landed.changes]


def _transactions(landed: landing.Landing) -> list[tuple[int, str | None]]:
    """Rows and origin of each transaction but those of marks."""
    marks = {message["gd_lsn"] for message in landed.messages if message["prefix"] == MARK}
    return [
        (row["rows"], row["origin"]) for row in landed.transactions if row["gd_lsn"] not in marks
    ]


def test_defaults(database: Database, make_daemon: MakeDaemon) -> None:
    """What has an origin stays out, everything else lands with its xid and time."""
    landed = _run(database, make_daemon)
    assert _rows(landed) == [("a", 1), ("b", 1), ("b", 3)]
    assert all(change.xid for change in landed.changes)
    assert all(row["gd_ts"] is not None for row in landed.transactions)
    assert [rows for rows, _ in _transactions(landed) if rows] == [2, 1]


def test_not_only_local(database: Database, make_daemon: MakeDaemon) -> None:
    """What was replicated from elsewhere lands too, with the name of its origin."""
    landed = _run(database, make_daemon, only_local=False)
    assert _rows(landed) == [("a", 1), ("b", 1), ("a", 2), ("b", 3)]
    assert [of for of in _transactions(landed) if of[0]] == [
        (2, None),
        (1, f"from_{database.name}"),
        (1, None),
    ]


def test_without_xid_and_time(database_15: Database, make_daemon: MakeDaemon) -> None:
    """The columns stay, and are empty in every table."""
    landed = _run(database_15, make_daemon, include_xids=False, include_timestamp=False)
    assert _rows(landed) == [("a", 1), ("b", 1), ("b", 3)]
    assert {change.xid for change in landed.changes} == {None}
    for row in (*landed.transactions, *landed.messages):
        assert (row["gd_xid"], row["gd_ts"]) == (None, None)


@pytest.mark.parametrize("is_skipped", [True, False])
def test_white_list_and_empty_transactions(
    database_15: Database, make_daemon: MakeDaemon, is_skipped: bool
) -> None:
    """Other tables leave no row and no file; what is left empty lands when it is wanted."""
    landed = _run(
        database_15, make_daemon, white_table_list="public.*", skip_empty_xacts=is_skipped
    )
    assert _rows(landed) == [("a", 1)]
    assert not list((landed.root / "data").glob("other*"))
    assert _transactions(landed) == ([(1, None)] if is_skipped else [(1, None), (0, None)])
