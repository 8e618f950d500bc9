"""Logical messages: in their transaction or outside of it, each exactly once."""

from collections.abc import Callable

import pytest
from kit import oracle
from kit.daemon import Daemon
from kit.postgres import Database, run
from kit.stranger import Reader

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _emit(database: Database, first: int, last: int) -> None:
    """Send messages inside and outside of transactions, some of which are rolled back."""
    with database.connect() as session:
        for n in range(first, last):
            run(session, "BEGIN")
            run(session, "INSERT INTO public.t VALUES (%s)", [n])
            run(session, "SELECT pg_logical_emit_message(true, 'in', %s)", [f"in {n}"])
            run(session, "SELECT pg_logical_emit_message(false, 'out', %s)", [f"out {n}"])
            run(session, "INSERT INTO public.t VALUES (-%s)", [n])
            run(session, "ROLLBACK" if n % 3 == 0 else "COMMIT")
            run(
                session, "SELECT pg_logical_emit_message(false, 'alone', %s::text::bytea)", [str(n)]
            )


def test_messages(database: Database, make_daemon: MakeDaemon) -> None:
    """Transactional ones follow their transaction; the others land whatever becomes of it."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    daemon = make_daemon(database)
    for begin in (1, 31, 61):
        daemon.start()
        _emit(database, begin, begin + 30)
        daemon.catch_up()
        daemon.kill9()
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    read = Reader(daemon.root).advance()
    assert read.system["gd_messages"] == landed.messages
    assert read.system["gd_transactions"] == landed.transactions
    found: dict[str, list[str]] = {"in": [], "out": [], "alone": []}
    for message in landed.messages:
        if message["prefix"] in found:
            found[message["prefix"]].append(message["content"].decode())
            assert message["transactional"] == (message["prefix"] == "in")
    assert found["in"] == [f"in {n}" for n in range(1, 91) if n % 3]
    assert found["out"] == [f"out {n}" for n in range(1, 91)]
    assert found["alone"] == [str(n) for n in range(1, 91)]
    by_lsn = {m["gd_lsn"]: m["gd_seq"] for m in landed.messages if m["prefix"] == "in"}
    assert set(by_lsn.values()) == {1}, "a message has its place between the rows"
